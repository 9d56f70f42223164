//! Which rule wins, and whether the explanation says so.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::*;

fn filter(patterns: &[&str]) -> Filter {
    let exclude = patterns.iter().map(|p| Pattern::flag(*p)).collect();
    Filter::new(&FilterOptions { exclude, ..FilterOptions::default() }).expect("patterns")
}

fn excluded(patterns: &[&str], path: &str, kind: Kind) -> bool {
    matches!(filter(patterns).verdict(path.as_bytes(), kind, 1), Verdict::Exclude(_))
}

#[test]
fn patterns_match_as_in_gitignore_at_any_depth() {
    let file = |patterns: &[&str], path: &str| excluded(patterns, path, Kind::File);
    assert!(file(&["*.o"], "/a/b/c.o") && file(&["*.o"], "/c.o") && !file(&["*.o"], "/c.oo"));
    assert!(!file(&["*.o", "!c.o"], "/a/c.o") && file(&["!c.o", "*.o"], "/a/c.o"));
    assert!(file(&["/a/b"], "/a/b") && !file(&["/a/b"], "/x/a/b") && !file(&["/a/b"], "/a/b/c"));
    assert!(file(&["a/b"], "/a/b") && file(&["a/b"], "/x/y/a/b") && !file(&["a/b"], "/x/ab"));
    assert!(!file(&["/*.c"], "/a/x.c") && file(&["/a/*.c"], "/a/x.c") && file(&["/a/**/x.c"], "/a/b/d/x.c"));
    assert!(file(&["!a/b", "a/b"], "/q/a/b") && !file(&["a/b", "!a/b"], "/q/a/b"));
    assert!(file(&["#*#", "", "   "], "/a/#x#") && file(&["\\#x"], "/a/#x") && file(&["\\!x"], "/a/!x"));
    assert!(!file(&["#*#", "!#x#"], "/a/#x#"));
    assert!(file(&["*.o", "!", "! "], "/a/c.o"), "takes nothing back");
    assert!(!file(&["dir/"], "/a/dir") && excluded(&["dir/"], "/a/dir", Kind::Dir));
    assert!(!file(&["a/dir/"], "/z/a/dir") && excluded(&["a/dir/"], "/z/a/dir", Kind::Dir));
    assert!(excluded(&["x*"], "/a/x\n\t", Kind::Symlink));
    assert!(matches!(filter(&["*.o"]).verdict(b"/a/\xff\xfe.o", Kind::File, 0), Verdict::Exclude(_)));
}

#[test]
fn letters_match_without_case_only_where_wanted() {
    let mut pattern = Pattern::flag("*.JPG");
    for (ignore_case, want) in [(false, false), (true, true)] {
        pattern.ignore_case = ignore_case;
        let options = FilterOptions { exclude: vec![pattern.clone(), Pattern::flag("*.Png")], ..Default::default() };
        let filter = Filter::new(&options).expect("patterns");
        let out = |p: &str| matches!(filter.verdict(p.as_bytes(), Kind::File, 0), Verdict::Exclude(_));
        assert_eq!(out("/a/x.jpg"), want);
        assert!(!out("/a/x.png") && out("/a/x.Png") && out("/a/x.JPG"));
    }
}

#[test]
fn letters_beyond_ascii_match_as_others_do() {
    let file = |patterns: &[&str], path: &str| excluded(patterns, path, Kind::File);
    assert!(file(&["[öx]1"], "/a/ö1") && file(&["[öx]1"], "/a/x1") && !file(&["[öx]1"], "/a/é1"));
    assert!(!file(&["[ö]*"], "/a/é") && file(&["[ö]*"], "/a/öl"));
    let pattern = Pattern { ignore_case: true, ..Pattern::flag("Ä[ö].txt") };
    let filter = Filter::new(&FilterOptions { exclude: vec![pattern], ..Default::default() }).expect("patterns");
    let out = |p: &str| matches!(filter.verdict(p.as_bytes(), Kind::File, 0), Verdict::Exclude(_));
    assert!(out("/a/äÖ.TXT") && out("/a/Äö.txt") && !out("/a/éö.txt"));
    for (refused, why) in [("[ä-ü]*", "one by one"), ("[!ä]", "one by one"), ("/a/../b", "'..'")] {
        let pattern = Pattern::flag(refused);
        let options = FilterOptions { exclude: vec![pattern], ..FilterOptions::default() };
        assert!(Filter::new(&options).expect_err(refused).to_string().contains(why));
    }
    assert!(file(&["//a//./b"], "/a/b"));
}

#[test]
fn the_rule_that_won_is_named() {
    let mut exclude = Pattern::file("/etc/rules", b"\xef\xbb\xbf# first\n\n*.o\r\n!keep.o\n", false).expect("a file");
    assert_eq!(exclude.len(), 2);
    exclude.push(Pattern::flag("keep.o"));
    let options = FilterOptions { exclude, exclude_larger_than: Some(100), ..Default::default() };
    let filter = Filter::new(&options).expect("patterns");
    let rule = |path: &str, size| match filter.verdict(path.as_bytes(), Kind::File, size) {
        Verdict::Exclude(rule) => rule.to_string(),
        Verdict::Include => "included".into(),
    };
    assert_eq!(rule("/a/b.o", 1), "*.o (/etc/rules:3)");
    assert_eq!(rule("/a/keep.o", 1), "keep.o (option)");
    assert_eq!(rule("/a/big", 101), "files larger than 100 bytes (option)");
    assert_eq!(rule("/a/big", 100), "included");
    assert!(matches!(filter.verdict(b"/a/dir", Kind::Dir, 4096), Verdict::Include));
    assert!(filter.has_rules() && !Filter::none().has_rules());
}

#[test]
fn what_is_not_well_formed_is_refused_by_name() {
    let e = Pattern::file("rules", b"ok\n\xff\xfe\n", false).expect_err("not UTF-8");
    assert!(e.to_string().contains("rules:2"), "{e}");
    let options = FilterOptions { exclude: vec![Pattern::flag("a{b")], ..Default::default() };
    let e = Filter::new(&options).expect_err("no glob");
    assert!(e.to_string().contains("a{b"), "{e}");
    for bad in ["", "a/b", "..", ":header"] {
        let options = FilterOptions { exclude_if_present: vec![bad.into()], ..Default::default() };
        assert!(Filter::new(&options).is_err(), "{bad:?}");
    }
}

#[test]
fn explanations_say_where_it_was_decided() {
    let tmp = tempfile::tempdir().expect("a directory");
    let t = |p: &str| tmp.path().join(p);
    for dir in ["src/target/deep", "src/cache/sub", "src/marked", "elsewhere", "src/real"] {
        std::fs::create_dir_all(t(dir)).expect("mkdir");
    }
    std::fs::write(t("src/keep.o"), b"").expect("write");
    std::fs::write(t("src/real/x"), b"").expect("write");
    std::fs::write(t("src/cache/CACHEDIR.TAG"), b"Signature: 8a477f597d28d172789f06886806bc55").expect("write");
    std::fs::write(t("src/marked/no"), b"stop here").expect("write");
    std::os::unix::fs::symlink("real", t("src/link")).expect("symlink");
    let bytes = |p: &Path| p.as_os_str().as_bytes().to_vec();
    let options = FilterOptions {
        exclude: ["*.o", "!keep.o", "target/"].map(Pattern::flag).into(),
        exclude_if_present: vec!["no:stop".into()],
        exclude_caches: true,
        exclude_larger_than: None,
    };
    let filter = Filter::new(&options).expect("filter");
    let scope = Scope { sources: vec![bytes(&t("src"))], one_file_system: true };
    let why = |p: &str| {
        let e = filter.explain(&bytes(&t(p)), &scope);
        let at = Path::new(OsStr::from_bytes(&e.at)).strip_prefix(tmp.path()).map(|p| p.display().to_string());
        (e.included, at.unwrap_or_else(|_| "above".into()), e.reason)
    };
    let rule = |text: &str, origin| Rule { text: text.into(), origin };
    let flag = |text: &str| rule(text, Origin::Flag);
    assert_eq!(why("src"), (true, "src".into(), Reason::Source));
    assert_eq!(why(""), (true, String::new(), Reason::AboveSource));
    assert_eq!(why("elsewhere/x"), (false, "elsewhere/x".into(), Reason::NotCovered));
    assert_eq!(why("src/real/x"), (true, "src".into(), Reason::NoRule));
    assert_eq!(why("src/real/x.o"), (false, "src/real/x.o".into(), Reason::Excluded(flag("*.o"))));
    assert_eq!(why("src/keep.o"), (true, "src/keep.o".into(), Reason::TakenBack(flag("!keep.o"))));
    assert_eq!(why("src/target/deep/keep.o"), (false, "src/target".into(), Reason::Excluded(flag("target/"))));
    assert_eq!(why("src/new/target/x"), (false, "src/new/target".into(), Reason::Excluded(flag("target/"))));
    assert_eq!(why("src/new/keep.o"), (true, "src/new/keep.o".into(), Reason::TakenBack(flag("!keep.o"))));
    let tag = rule("CACHEDIR.TAG", Origin::BuiltIn);
    assert_eq!(why("src/cache/sub/x"), (false, "src/cache".into(), Reason::Tagged(tag.clone())));
    assert_eq!(why("src/cache/CACHEDIR.TAG"), (true, "src/cache/CACHEDIR.TAG".into(), Reason::Tag(tag)));
    assert_eq!(why("src/cache"), (true, "src".into(), Reason::NoRule));
    assert_eq!(why("src/marked/x"), (false, "src/marked".into(), Reason::Tagged(flag("no:stop"))));
    assert_eq!(why("src/link/x"), (false, "src/link".into(), Reason::BeyondSymlink));
    assert_eq!(why("src/link"), (true, "src".into(), Reason::NoRule));
    // A source that is a symlink is saved as one, unless a slash follows.
    for (source, included) in [("src/link", false), ("src/link/", true)] {
        let scope = Scope { sources: vec![bytes(&t(source))], one_file_system: false };
        assert_eq!(filter.explain(&bytes(&t("src/link/x")), &scope).included, included, "{source}");
        assert!(filter.explain(&bytes(&t("src/link")), &scope).included);
    }
    assert!(!filter.explain(b"relative", &scope).included);

    let scope = Scope { sources: vec![b"/".to_vec()], one_file_system: true };
    let proc = Filter::none().explain(b"/proc/self/status", &scope);
    assert_eq!((proc.included, proc.at.as_slice(), proc.reason), (false, b"/proc".as_slice(), Reason::OtherFileSystem));
}

#[test]
fn rules_are_known_again() {
    let of = |options: FilterOptions| Filter::new(&options).expect("patterns").digest();
    let patterns = |texts: &[&str]| texts.iter().map(|text| Pattern::flag(*text)).collect::<Vec<_>>();
    let with = |texts: &[&str]| of(FilterOptions { exclude: patterns(texts), ..Default::default() });
    assert_eq!(of(FilterOptions::default()), None);
    assert_eq!(with(&[""]), None, "no rule");
    let one = with(&["*.o"]);
    assert!(one.is_some() && one == with(&["*.o", ""]));
    // Wherever they stand; those of the program's own don't count.
    let origin = Origin::File { path: "rules".into(), line: 7 };
    let exclude = vec![
        Pattern { origin, ..Pattern::flag("*.o") },
        Pattern { origin: Origin::BuiltIn, ..Pattern::flag("/repository") },
    ];
    assert_eq!(of(FilterOptions { exclude, ..Default::default() }), one);
    let others = [
        with(&["*.a"]),
        with(&["*.o", "*.a"]),
        with(&["*.a", "*.o"]),
        with(&["*.o", "!keep.o"]),
        of(FilterOptions {
            exclude: vec![Pattern { ignore_case: true, ..Pattern::flag("*.o") }],
            ..Default::default()
        }),
        of(FilterOptions { exclude_if_present: vec!["*.o".into()], ..Default::default() }),
        of(FilterOptions { exclude: patterns(&["*.o"]), exclude_caches: true, ..Default::default() }),
        of(FilterOptions { exclude_larger_than: Some(5), ..Default::default() }),
        of(FilterOptions { exclude_larger_than: Some(6), ..Default::default() }),
    ];
    for (at, other) in others.iter().enumerate() {
        assert!(other.is_some() && *other != one && !others[..at].contains(other), "{at}");
    }
}
