//! `backup`: what rules leave out, pattern by pattern, and where file systems end.

use crate::home::Home;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is saved of a tree with these rules, below its root.
fn saved(home: &Home, rules: &[&str]) -> Vec<String> {
    home.run(&[&["backup", "src"], rules].concat()).ok();
    let src = home.text("src/");
    let nodes = home.run(&["--json", "ls", "latest"]).ok().objects();
    let mut names: Vec<_> =
        nodes.iter().filter_map(|n| n["path"].as_str()?.strip_prefix(&src).map(str::to_owned)).collect();
    names.sort();
    names
}

#[test]
fn patterns_mean_what_they_mean_to_git() {
    let home = Home::new();
    for file in ["a.log", "build/x", "sub/a.log", "sub/build", "sub/deep/keep.log", "sub/deep/b.txt", "with space"] {
        home.write(&format!("src/{file}"), "x");
    }
    let all = saved(&home, &[]);
    let gone = |rules: &[&str]| -> Vec<String> {
        let kept = saved(&home, rules);
        all.iter().filter(|n| !kept.contains(n)).cloned().collect()
    };
    for (patterns, expected) in [
        (&["*.log"][..], &["a.log", "sub/a.log", "sub/deep/keep.log"][..]),
        (&["*.log", "!keep.log"], &["a.log", "sub/a.log"]),
        (&["!keep.log", "*.log"], &["a.log", "sub/a.log", "sub/deep/keep.log"]),
        (&["build"], &["build", "build/x", "sub/build"]),
        (&["build/"], &["build", "build/x"]),
        (&["sub/*.log"], &["sub/a.log"]),
        (&["sub/**/*.log"], &["sub/a.log", "sub/deep/keep.log"]),
        (&["**/deep"], &["sub/deep", "sub/deep/b.txt", "sub/deep/keep.log"]),
        (&["?.log"], &["a.log", "sub/a.log"]),
        (&["[ab].txt"], &["sub/deep/b.txt"]),
        (&["with space"], &["with space"]),
        (&["A.LOG"], &[]),
        // What is below a directory that is left out can't be taken back.
        (&["deep", "!keep.log"], &["sub/deep", "sub/deep/b.txt", "sub/deep/keep.log"]),
    ] {
        let flags: Vec<_> = patterns.iter().flat_map(|p| ["-e", *p]).collect();
        assert_eq!(gone(&flags), expected, "{patterns:?}");
        // From a file the same is meant, with comments and empty lines.
        home.write("rules", format!("# rules\n\n{}\n", patterns.join("\n")));
        assert_eq!(gone(&["--exclude-file", "rules"]), expected, "{patterns:?}");
    }
    let absolute = home.text("src/sub/a.log");
    assert_eq!(gone(&["-e", &absolute]), ["sub/a.log"]);
    assert_eq!(gone(&["--iexclude", "A.LOG"]), ["a.log", "sub/a.log"]);
    assert_eq!(gone(&["-e", "/a.log"]), [""; 0], "a pattern that begins with a slash begins at the root");
}

#[test]
fn tags_and_sizes() {
    let home = Home::new();
    home.write("src/tagged/TAG", "Signature: mine and more");
    home.write("src/tagged/x", "x");
    home.write("src/other/TAG", "Signature: yours");
    home.write("src/other/x", "x");
    home.write("src/cache/CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n# more\n");
    home.write("src/cache/x", "x");
    home.write("src/false/CACHEDIR.TAG", "Signature: of something else");
    home.write("src/false/x", "x");
    home.write("src/sizes/1024", [0; 1024]);
    home.write("src/sizes/1025", [0; 1025]);
    let kept = |rules: &[&str], name: &str| saved(&home, rules).iter().any(|n| n == name);
    let header = ["--exclude-if-present", "TAG:Signature: mine"];
    assert!(!kept(&header, "tagged/x") && kept(&header, "tagged/TAG") && kept(&header, "other/x"));
    let any = ["--exclude-if-present", "TAG"];
    assert!(!kept(&any, "tagged/x") && !kept(&any, "other/x") && kept(&any, "cache/x"));
    let caches = ["--exclude-caches"];
    assert!(!kept(&caches, "cache/x") && kept(&caches, "cache/CACHEDIR.TAG") && kept(&caches, "false/x"));
    assert!(kept(&[], "cache/x") && kept(&[], "sizes/1025"));
    let large = ["--exclude-larger-than", "1K"];
    assert!(kept(&large, "sizes/1024") && !kept(&large, "sizes/1025"));
}

/// A file system in memory, mounted while this lives.
struct Mounted(PathBuf);

impl Mounted {
    fn on(path: &Path) -> Option<Self> {
        std::fs::create_dir_all(path).unwrap();
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(path).output().ok()?;
        mount.status.success().then(|| Mounted(path.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn file_systems_are_left_only_if_that_is_wanted() {
    let home = Home::new();
    home.write("src/here", "x");
    let Some(_mounted) = Mounted::on(&home.path("src/mnt")) else {
        eprintln!("skipped: nothing can be mounted here");
        return;
    };
    home.write("src/mnt/there", "x");
    assert_eq!(saved(&home, &[]), ["here", "mnt", "mnt/there"]);
    for flag in ["-x", "--one-file-system"] {
        assert_eq!(saved(&home, &[flag]), ["here", "mnt"], "the place of the mount is one of this file system's");
    }
    // A source that is named is wanted, wherever it is.
    assert_eq!(saved(&home, &["-x", "src/mnt"]), ["here", "mnt", "mnt/there"]);
    let estimate = |args: &[&str]| home.run(&[&["--json", "estimate", "src"], args].concat()).ok().the("estimate");
    assert_eq!((&estimate(&[])["total"]["files"], &estimate(&["-x"])["total"]["files"]), (&2.into(), &1.into()));
    let why = home.run(&["--json", "why", "-x", "--source", "src", "src/mnt/there"]).ok().the("why");
    assert_eq!((&why["included"], &why["reason"]), (&false.into(), &"other_file_system".into()), "{why}");
    let profile = format!("[profile.p]\nsources = ['{}']\none-file-system = true\n", home.text("src"));
    home.write("config/drumlin/profiles.toml", profile);
    assert_eq!(saved(&home, &["--profile", "p"]), ["here", "mnt"]);
}
