//! Sources merged, followed, missing; what filters and devices leave out.

use std::os::unix::fs::symlink;

use super::super::listing::What;
use super::*;

fn touch(path: impl AsRef<Path>) {
    if let Some(dir) = path.as_ref().parent() {
        std::fs::create_dir_all(dir).expect("mkdir");
    }
    std::fs::write(path, b"x").expect("write");
}

fn find<'a>(all: &'a [Listed], path: &Path) -> Option<&'a Listed> {
    all.iter().find(|l| l.path == path.as_os_str().as_bytes()[1..])
}

fn names(all: &[Listed], path: &Path) -> Option<Vec<String>> {
    find(all, path).map(|l| l.names().into_iter().map(str::to_owned).collect())
}

#[test]
fn sources_hang_below_one_root() {
    let tmp = quick_dir();
    for file in ["home/u/Docs/a", "home/u/Docs/sub/b", "home/u/other/c", "home/v/d", "etc/e", "etc/f", "single"] {
        touch(tmp.path().join(file));
    }
    let t = |p: &str| tmp.path().join(p);
    let all = walk(options(&[&t("home/u/Docs"), &t("etc"), &t("home/u/Docs/sub"), &t("single")]));
    assert_eq!(all[0].path, b"");
    assert_eq!(all[0].entries.len(), 1);
    assert_eq!(names(&all, tmp.path()), Some(vec!["etc".into(), "home".into(), "single".into()]));
    assert_eq!(names(&all, &t("home")), Some(vec!["u".into()]));
    assert_eq!(names(&all, &t("home/u")), Some(vec!["Docs".into()]));
    assert_same(&below(&all, &t("home/u/Docs")), &model(&t("home/u/Docs")));
    assert_same(&below(&all, &t("etc")), &model(&t("etc")));
    assert!(find(&all, &t("home/u/other")).is_none() && find(&all, &t("home/v")).is_none());
    assert!(all.iter().all(|l| l.errors.is_empty()));
}

#[test]
fn symlinks_are_followed_only_on_the_way_or_with_a_slash() {
    let tmp = quick_dir();
    let t = |p: &str| tmp.path().join(p);
    touch(t("real/sub/a"));
    touch(t("real/b"));
    symlink("real", t("link")).expect("symlink");
    symlink("nowhere", t("dangling")).expect("symlink");

    let all = walk(options(&[&t("link")]));
    let top = find(&all, tmp.path()).expect("listed");
    assert_eq!((top.names(), top.entries[0].2), (vec!["link"], 4));
    assert!(find(&all, &t("link")).is_none());

    for given in ["link/", "link/."] {
        let all = walk(options(&[&t(given)]));
        assert_eq!(names(&all, &t("link")), Some(vec!["b".into(), "sub".into()]));
        assert_eq!(names(&all, &t("link/sub")), Some(vec!["a".into()]));
    }
    let all = walk(options(&[&t("link/sub")]));
    assert_eq!(names(&all, &t("link")), Some(vec!["sub".into()]));
    assert_eq!(names(&all, &t("link/sub")), Some(vec!["a".into()]));

    let all = walk(options(&[&t("dangling/")]));
    let errors: Vec<_> = all.iter().flat_map(|l| &l.errors).map(|e| (e.what, e.path.clone())).collect();
    assert_eq!(errors, [(What::NoSource, t("dangling").into_os_string().into_vec())]);

    // A followed source inside another one, which has it as a symlink.
    let all = walk(options(&[tmp.path(), &t("link/")]));
    assert_eq!(names(&all, &t("link")), Some(vec!["b".into(), "sub".into()]));
    assert_same(&below(&all, &t("real")), &model(&t("real")));
}

#[test]
fn missing_sources_are_reported_and_the_rest_is_walked() {
    let tmp = quick_dir();
    let t = |p: &str| tmp.path().join(p);
    touch(t("here/a"));
    let given = [t("gone"), t("far/away/too"), t("here"), t("here/a/beyond"), t("here/no"), "relative/path".into()];
    let all = walk(options(&given.iter().map(|p| p.as_path()).collect::<Vec<_>>()));
    let mut got: Vec<_> =
        all.iter().flat_map(|l| &l.errors).map(|e| (e.path.clone(), e.what == What::NoSource)).collect();
    got.sort();
    let mut want = [t("far/away/too"), t("gone"), t("here/a/beyond"), t("here/no"), "relative/path".into()]
        .map(|p| (p.into_os_string().into_vec(), true));
    want.sort();
    assert_eq!(got, want);
    assert_eq!(names(&all, &t("here")), Some(vec!["a".into()]));
}

#[test]
fn no_sources_give_an_empty_root() {
    let all = walk(Options::default());
    assert_eq!((all.len(), all[0].entries.len(), all[0].errors.len()), (1, 0, 0));
}

#[test]
fn the_root_is_a_source_too() {
    let mut walk =
        Walk::start(Options { one_file_system: true, ..options(&[Path::new("/")]) }, Arc::new(Filter::none()))
            .expect("threads");
    // A machine that is busy may make it come in parts.
    let mut count = 0;
    loop {
        let part = walk.next().expect("the root");
        assert_eq!(part.path(), b"");
        count += part.len();
        if part.is_last() {
            break;
        }
    }
    assert_eq!(count, std::fs::read_dir("/").expect("read_dir").count());
    assert_eq!(walk.next().map(|l| l.path().contains(&b'/')), Some(false));
}

#[test]
fn other_file_systems_are_entries_only() {
    let other =
        |p: &Path| std::fs::metadata(p).is_ok_and(|m| m.dev() != std::fs::metadata("/dev").map_or(0, |m| m.dev()));
    let inner = Path::new("/dev/shm");
    if !other(inner) {
        return;
    }
    let tmp = tempfile::tempdir_in(inner).expect("a directory");
    touch(tmp.path().join("x/f"));
    let dev = Path::new("/dev");
    // Other tests use this place at the same time.
    let only_ours = || excluding(&["/dev/shm/*", &format!("!{}", tmp.path().display())]);
    let stay = |sources: &[&Path]| walk_filtered(Options { one_file_system: true, ..options(sources) }, only_ours());
    let all = stay(&[dev]);
    assert!(find(&all, dev).is_some_and(|l| l.names().contains(&"shm")));
    assert!(find(&all, inner).is_none());
    assert!(find(&walk_filtered(options(&[dev]), only_ours()), &tmp.path().join("x")).is_some());
    // Given explicitly, it is covered; if only a place in it is given, just that.
    assert!(find(&stay(&[dev, inner]), &tmp.path().join("x")).is_some());
    let place = tmp.path().join("x");
    let all = stay(&[dev, &place]);
    assert_eq!(names(&all, &place), Some(vec!["f".into()]));
    assert_eq!(find(&all, inner).map(|l| l.entries.len()), Some(1));
    assert!(find(&all, dev).is_some_and(|l| l.entries.len() > 1));
}

#[test]
fn filtered_entries_are_left_out_and_counted() {
    let tmp = quick_dir();
    let t = |p: &str| tmp.path().join(p);
    for file in ["keep/a.txt", "keep/a.o", "keep/b.o", "target/x/y", "deep/target/z", "deep/keep.o", "vault/s/inner/q"]
    {
        touch(t(file));
    }
    let filter = || excluding(&["*.o", "!keep.o", "target/", "vault"]);
    let all = walk_filtered(options(&[tmp.path()]), filter());
    assert_eq!(names(&all, tmp.path()), Some(vec!["deep".into(), "keep".into()]));
    assert_eq!(names(&all, &t("keep")), Some(vec!["a.txt".into()]));
    assert_eq!(names(&all, &t("deep")), Some(vec!["keep.o".into()]));
    assert_eq!(find(&all, &t("keep")).map(|l| l.excluded), Some(Excluded { files: 2, dirs: 0, bytes: 2 }));
    assert_eq!(find(&all, tmp.path()).map(|l| l.excluded.dirs), Some(2));
    assert!(below(&all, &t("target")).is_empty() && below(&all, &t("vault")).is_empty());
    // A source inside an excluded directory is covered, and nothing else of that directory.
    touch(t("vault/other"));
    let all = walk_filtered(options(&[tmp.path(), &t("vault/s/inner")]), filter());
    assert_eq!(names(&all, &t("vault")), Some(vec!["s".into()]));
    assert_eq!(names(&all, &t("vault/s/inner")), Some(vec!["q".into()]));
    assert_eq!(find(&all, tmp.path()).map(|l| l.excluded.dirs), Some(2), "the rest of it is left out all the same");
    let all = walk_filtered(options(&[tmp.path(), &t("vault")]), filter());
    assert_eq!(find(&all, tmp.path()).map(|l| l.excluded.dirs), Some(1), "of a source nothing is");
}

#[test]
fn tagged_directories_keep_their_tag_alone() {
    let tmp = quick_dir();
    let t = |p: &str| tmp.path().join(p);
    let signature = "Signature: 8a477f597d28d172789f06886806bc55\nand more";
    for file in ["cache/x", "cache/sub/y", "fake/x", "marked/z", "plain/w"] {
        touch(t(file));
    }
    std::fs::write(t("cache/CACHEDIR.TAG"), signature).expect("write");
    std::fs::write(t("fake/CACHEDIR.TAG"), "Signature: something else").expect("write");
    touch(t("marked/.nobackup"));
    let given = FilterOptions {
        exclude_caches: true,
        exclude_if_present: vec![".nobackup".into()],
        ..FilterOptions::default()
    };
    for part_entries_max in [1, 4096] {
        let options = Options { part_entries_max, ..options(&[tmp.path()]) };
        let all = walk_filtered(options, Filter::new(&given).expect("filter"));
        assert_eq!(names(&all, &t("cache")), Some(vec!["CACHEDIR.TAG".into()]));
        assert_eq!(find(&all, &t("cache")).map(|l| l.excluded), Some(Excluded { files: 1, dirs: 1, bytes: 1 }));
        assert!(find(&all, &t("cache/sub")).is_none());
        assert_eq!(names(&all, &t("fake")), Some(vec!["CACHEDIR.TAG".into(), "x".into()]));
        assert_eq!(names(&all, &t("marked")), Some(vec![".nobackup".into()]));
        assert_eq!(names(&all, &t("plain")), Some(vec!["w".into()]));
    }
}
