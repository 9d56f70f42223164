//! What goes wrong at a keyboard: each is told in words, with what to do, and nothing is lost by it.

use crate::home::{Home, Ran};

/// The status, and words that don't come out of the machinery.
#[track_caller]
fn told(ran: Ran, code: i32, words: &str) -> Ran {
    let ran = ran.expect(code);
    assert!(ran.stderr.contains(words), "{}", ran.stderr);
    for odd in ["bug", "panicked", "os error", "Error {", "Err("] {
        assert!(!ran.stderr.contains(odd), "{odd}: {}", ran.stderr);
    }
    ran
}

#[test]
fn files_where_folders_are_meant() {
    let home = Home::new();
    home.sources();
    home.run(&["backup", "src"]).ok();
    home.write("file", "dear");
    std::os::unix::fs::symlink("nowhere", home.path("dangling")).unwrap();
    for (target, words) in [
        ("file", "is not a folder"),
        ("file/", "file"),
        ("file/below", "leads through a file"),
        ("dangling", "leads nowhere"),
    ] {
        let ran = told(home.run(&["restore", "latest", "-t", target]), 1, words);
        assert!(ran.stderr.contains("hint: ") && ran.stderr.contains(target), "{}", ran.stderr);
    }
    assert_eq!(std::fs::read(home.path("file")).unwrap(), b"dear");
    told(home.run(&["-r", "file", "snapshots"]), 1, "a file, not a folder");
    told(home.run(&["-r", "file/below", "snapshots"]), 1, "a file, not a folder");
    told(home.run(&["-r", "file", "-k", "new.key", "init"]), 1, "a file, not a folder");
    told(home.run(&["-r", "src", "-k", "new.key", "init"]), 1, "the folder is not empty");
    home.run(&["-r", "repo", "-k", "repo.key", "init"]).ok();
    told(home.run(&["-r", "repo", "-k", "new.key", "init"]), 1, "there is a repository in");
    assert!(!home.path("new.key").exists());
    told(home.run(&["-p", "src", "snapshots"]), 1, "Is a directory");
    told(home.run(&["-k", "src", "snapshots"]), 1, "Is a directory");
    told(home.run(&["-k", "file", "snapshots"]), 12, "file");
    told(home.run(&["backup", "src", "--exclude-file", "src"]), 1, "Is a directory");
    told(home.run(&["backup", "--files-from", "src"]), 1, "Is a directory");
    told(home.run(&["dump", "latest", "/", "--target", "no/such/file"]), 1, "No such file or directory");
    // A cache is something to do without.
    home.run(&["--cache-dir", "file", "ls", "latest"]).ok();
}

#[test]
fn words_in_the_wrong_place() {
    let home = Home::new();
    home.sources();
    told(home.run(&["bakup", "src"]), 2, "'backup'");
    told(home.run(&["src", "backup"]), 2, "unrecognized subcommand");
    told(home.run(&["backup", "--tags", "x", "src"]), 2, "--tag");
    told(home.run(&["backup", ""]), 2, "empty");
    told(home.run(&["backup"]), 2, "nothing to back up");
    told(home.run(&["backup", "scr"]), 1, "is not there");
    assert!(!home.path("data").exists(), "a slip makes no repository");
    home.run(&["backup", "src"]).ok();
    let restore = |args: &[&str]| home.run(&[&["restore"], args].concat());
    told(restore(&["latest"]), 2, "--target");
    told(restore(&["latest", "out"]), 2, "--target");
    told(restore(&["-t", "out"]), 2, "SNAP");
    told(restore(&["latest", "-t", "out", "--overwrite", "sometimes"]), 2, "if-newer");
    told(restore(&["latest", "-t", "out", "-i", "{a"]), 2, "pattern");
    told(restore(&["latest", "-t", "out", "-e", "{a"]), 2, "pattern");
    told(restore(&["latest", "src/a.txt", "-t", "out"]), 1, "absolute");
    assert!(!home.path("out").exists() || home.path("out").read_dir().unwrap().next().is_none());
    told(restore(&["latest", "-t", "out", "-i", "nothing*"]), 0, "nothing was restored");
    told(home.run(&["find", "["]), 2, "without its ']'");
    told(home.run(&["find", "x", "--newer", "tomorrow"]), 2, "not a time");
    told(home.run(&["find", "x", "--type", "directory"]), 2, "dir");
    told(home.run(&["ls", "latest", "../src"]), 1, "there is no");
    told(home.run(&["key", "remove", "zz"]), 1, "key");
    told(home.run(&["backup", "src", "--time", "yesterday"]), 2, "not a time");
    told(home.run(&["backup", "src", "--memory", "1"]), 2, "too little");
    told(home.run(&["-r", "", "snapshots"]), 2, "empty");
    told(home.run(&["-r", "~/repo", "snapshots"]), 10, "write the whole path");
    told(home.run(&["-r", "~/repo", "-k", "new.key", "init"]), 1, "write the whole path");
    told(home.run(&["-r", "s3://x/y", "snapshots"]), 2, "s3");
    assert_eq!(home.run(&["--json", "snapshots"]).ok().objects().len(), 1);
}

#[test]
fn a_repository_without_snapshots_says_so() {
    let home = Home::new();
    home.run(&["init"]).ok();
    assert_eq!(home.run(&["snapshots"]).ok().stdout, "no snapshots\n");
    assert_eq!(home.run(&["--json", "snapshots"]).ok().stdout, "");
    assert_eq!(home.run(&["find", "*"]).ok().stdout, "");
    home.run(&["stats"]).ok();
    for args in [&["ls", "latest"][..], &["restore", "latest", "-t", "out"], &["diff", "latest~1", "latest"]] {
        told(home.run(args), 1, "snapshot");
    }
    told(home.run(&["restore", "abc", "-t", "out"]), 1, "abc");
    assert!(!home.path("out").exists());
}

#[test]
fn sources_twice_nested_empty_and_oddly_spelt() {
    let home = Home::new();
    home.sources();
    std::fs::create_dir(home.path("src/empty")).unwrap();
    home.write("with space/a  b .txt", "spaced");
    let given = ["src", "src/", "./src/deep", "src", "with space", "src//empty/."];
    home.run(&[&["backup"][..], &given].concat()).ok();
    let snapshot = home.run(&["--json", "snapshots"]).ok().the("snapshot");
    let expected = ["src", "src/deep", "src/empty", "with space"].map(|p| home.text(p));
    assert_eq!(snapshot["paths"], serde_json::json!(expected));
    let listed = home.run(&["ls", "latest"]).ok().stdout;
    let mut once: Vec<_> = listed.lines().collect();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), listed.lines().count(), "nothing is saved twice: {listed}");
    home.run(&["restore", "latest", "-t", "a new/target"]).ok();
    for name in ["src", "with space"] {
        let back = home.path(&format!("a new/target{}", home.text(name)));
        assert!(crate::home::same(&home.path(name), &back), "{name}");
    }
    // A directory with nothing in it is something.
    home.run(&["backup", "src/empty"]).ok();
    home.run(&["restore", &format!("latest:{}", home.text("src/empty")), "-t", "none"]).ok();
    assert_eq!(home.path("none").read_dir().unwrap().count(), 0);
    assert_eq!(home.run(&["ls", "latest", &home.text("with space/a  b .txt")]).code, Some(1));
    let spaced = home.text("with space/a  b .txt");
    assert_eq!(home.run(&["dump", "latest~1", &(spaced + "/")]).ok().stdout, "spaced");
}

#[test]
fn no_key_that_would_fit() {
    let home = Home::new();
    home.sources();
    home.run(&["backup", "src"]).ok();
    let kept = home.kept_key();
    std::fs::rename(&kept, home.path("away.key")).unwrap();
    told(home.run(&["snapshots"]), 12, &format!("none is kept in '{}'", kept.display()));
    home.run(&["-k", "away.key", "snapshots"]).ok();
    home.write("password", "a passphrase\n");
    let ran = told(home.run(&["-p", "password", "snapshots"]), 12, "none of the keys");
    assert!(ran.stderr.contains("hint: ") && ran.stderr.contains("key file"), "{}", ran.stderr);
    // A passphrase's file is no key file.
    told(home.run(&["-k", "password", "snapshots"]), 12, "is a password file, not a key file");
    std::fs::rename(home.repository().join("keys"), home.path("keys")).unwrap();
    told(home.run(&["-p", "password", "snapshots"]), 12, "'keys' is empty or gone");
    std::fs::rename(home.path("keys"), home.repository().join("keys")).unwrap();
    home.run(&["-k", "away.key", "snapshots"]).ok();
}
