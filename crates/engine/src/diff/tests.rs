use super::*;
use crate::list::fixture::Fixture;
use crate::monitor::Quiet;
use drumlin_testkit::{Rng, tree};
use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

fn run(fixture: &Fixture, options: &Options) -> (Report, Vec<(String, Change)>) {
    let mut seen = Vec::new();
    let [.., old, new] = &fixture.snapshots[..] else { panic!("two snapshots are compared") };
    let report = diff(&fixture.reader(), old.root, new.root, options, &Quiet::default(), &mut |d| {
        seen.push((String::from_utf8_lossy(&d.path()).into_owned(), d.change));
        Ok(ControlFlow::Continue(()))
    });
    (report.unwrap(), seen)
}

#[test]
fn cost_follows_the_difference() {
    let mut files: Vec<_> = (0..50_000).map(|n| (format!("/d/{:02}/f{n:05}", n / 1000), 1)).collect();
    let mut fixture = Fixture::new();
    let write = |fixture: &mut Fixture, files: &[(String, u64)]| {
        fixture.write(&files.iter().map(|(p, s)| (p.as_str(), *s)).collect::<Vec<_>>());
    };
    write(&mut fixture, &files);
    files[25_000].1 = 5;
    files.remove(40_000);
    files.push(("/d/07/new".into(), 3));
    write(&mut fixture, &files);
    let (report, seen) = run(&fixture, &Options::default());
    let modified = Change::Modified(Modified { content: true, ..Modified::default() });
    let expected = [("/d/07/new", Change::Added), ("/d/25/f25000", modified), ("/d/40/f40000", Change::Removed)];
    assert_eq!(seen, expected.map(|(p, c)| (p.to_owned(), c)));
    assert_eq!((report.added.bytes, report.removed.bytes), (3, 1));
    assert_eq!((report.modified_old.bytes, report.modified_new.bytes, report.content), (1, 5, 1));
    assert!(report.leaves_read <= 10, "{} leaves", report.leaves_read);

    let path = TreePath::parse(b"/d/25").unwrap();
    assert_eq!(run(&fixture, &Options { path, ..Options::default() }).1.len(), 1);
    let path = TreePath::parse(b"/d/07/new").unwrap();
    assert_eq!(run(&fixture, &Options { path, ..Options::default() }).1.len(), 1);
    let [.., old, new] = &fixture.snapshots[..] else { unreachable!() };
    let options = Options { path: TreePath::parse(b"/none").unwrap(), ..Options::default() };
    let each = &mut |_: &Difference| Ok(ControlFlow::Continue(()));
    let none = diff(&fixture.reader(), old.root, new.root, &options, &Quiet::default(), each);
    assert!(matches!(none, Err(Error::NoPath(_))));
    // Against nothing all is added, against itself nothing is, and nothing is read for it.
    let monitor = Quiet::default();
    let all = diff(&fixture.reader(), None, new.root, &Options::default(), &monitor, each).unwrap();
    assert_eq!(all.added, new.root.unwrap().sums);
    let same = diff(&fixture.reader(), new.root, new.root, &Options::default(), &monitor, each).unwrap();
    assert_eq!(same, Report::default());
    assert_eq!(
        fixture.tree_reads(|r| {
            diff(r, new.root, new.root, &Options::default(), &monitor, each).unwrap();
        }),
        0
    );
}

#[test]
fn kinds_of_change() {
    let source = tempfile::tempdir().unwrap();
    let at = |name: &str| source.path().join(name);
    for name in ["content", "mode", "kind", "gone", "same", "touched"] {
        std::fs::write(at(name), name.repeat(1000)).unwrap();
    }
    std::fs::write(at("large"), Rng::new(1).bytes(3 << 20)).unwrap();
    symlink("one", at("link")).unwrap();
    let mut fixture = Fixture::new();
    fixture.backup(source.path());
    std::fs::write(at("content"), "CONTENT".repeat(1000)).unwrap();
    std::fs::set_permissions(at("mode"), std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::remove_file(at("kind")).unwrap();
    std::fs::create_dir(at("kind")).unwrap();
    std::fs::remove_file(at("gone")).unwrap();
    std::fs::write(at("new"), b"new").unwrap();
    std::fs::write(at("large"), Rng::new(1).bytes((3 << 20) + 1)).unwrap();
    std::fs::remove_file(at("link")).unwrap();
    symlink("two", at("link")).unwrap();
    // A new time, and back to the old one: the inode alone differs.
    let time = std::fs::metadata(at("touched")).unwrap().modified().unwrap();
    std::fs::File::options().write(true).open(at("touched")).unwrap().set_modified(time).unwrap();
    fixture.backup(source.path());
    let (report, seen) = run(&fixture, &Options::default());
    let seen: BTreeMap<_, _> = seen.into_iter().map(|(p, c)| (p.rsplit('/').next().unwrap().to_owned(), c)).collect();
    let of = |name: &str| match seen.get(name) {
        Some(Change::Modified(m)) => format!("{}{}{}", u8::from(m.kind), u8::from(m.content), u8::from(m.metadata)),
        Some(other) => format!("{other:?}"),
        None => String::new(),
    };
    assert_eq!((of("new"), of("gone")), ("Added".into(), "Removed".into()));
    assert_eq!((of("content"), of("large"), of("link")), ("011".into(), "011".into(), "011".into()));
    assert_eq!((of("mode"), of("same"), of("touched")), ("001".into(), String::new(), String::new()));
    assert!(of("kind").starts_with('1'));
    assert_eq!((report.kind, report.content), (1, 3));
    let (_, seen) = run(&fixture, &Options { inodes: true, ..Options::default() });
    assert!(seen.iter().any(|(p, _)| p.ends_with("/touched")));
}

#[test]
fn agrees_with_comparing_entry_by_entry() {
    for seed in 0..3 {
        let source = tempfile::tempdir().unwrap();
        tree::random(source.path(), seed, 1500).unwrap();
        let mut fixture = Fixture::new();
        fixture.backup(source.path());
        tree::mutate(source.path(), seed).unwrap();
        fixture.backup(source.path());
        let (_, seen) = run(&fixture, &Options::default());
        let [old, new] = &fixture.snapshots[..] else { unreachable!() };
        let (old, new) = (plain(&fixture, old.root), plain(&fixture, new.root));
        let mut expected: Vec<String> = Vec::new();
        for path in old.keys().chain(new.keys().filter(|p| !old.contains_key(*p))) {
            if old.get(path) != new.get(path) {
                expected.push(path.clone());
            }
        }
        let mut got: Vec<_> = seen.into_iter().map(|(p, _)| p).collect();
        expected.sort();
        got.sort();
        assert_eq!(got, expected, "seed {seed}");
        assert!(Path::new(&got[0]).is_absolute());
    }
}

/// Everything that counts of each entry.
fn plain(fixture: &Fixture, root: Option<Root>) -> BTreeMap<String, String> {
    let reader = fixture.reader();
    let mut all = BTreeMap::new();
    let (path, depth) = (TreePath::root(), crate::list::Depth::All);
    crate::list::list(&reader, root, &path, depth, &Quiet::default(), &mut |entry| {
        let (m, c) = (entry.meta(), entry.content()?);
        let text = format!("{:?} {:o} {} {} {} {:?} {c:?}", m.kind, m.mode, m.uid, m.gid, m.size, m.mtime);
        all.insert(String::from_utf8_lossy(&entry.path()).into_owned(), text);
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    all
}
