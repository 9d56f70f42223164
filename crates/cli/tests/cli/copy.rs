//! `copy`, `init --cut-like`.

use crate::home::{Home, Ran, same, signal};
use crate::interrupt::wait_for;
use drumlin_testkit::Rng;
use rustix::process::Signal;
use std::process::Command;

/// A repository with two snapshots, and another one that is empty, opened by `to.key`.
fn home() -> Home {
    let home = Home::new();
    home.sources();
    home.run(&["backup", "src"]).ok();
    home.write("src/more", Rng::new(1).bytes(100_000));
    home.run(&["backup", "src", "--tag", "second"]).ok();
    home.run(&["-r", "to", "-k", "to.key", "init"]).ok();
    home
}

fn copy(home: &Home, args: &[&str]) -> Ran {
    home.run(&[&["copy", "--to", "to", "--to-key-file", "to.key"], args].concat())
}

fn there(home: &Home, args: &[&str]) -> Ran {
    home.run(&[&["-r", "to", "-k", "to.key"], args].concat())
}

#[test]
fn what_is_copied_comes_back_and_is_copied_once() {
    let home = home();
    let ran = copy(&home, &["--json"]).ok();
    let copied = ran.of_type("copied");
    let sources = home.run(&["--json", "snapshots"]).ok().objects();
    assert_eq!(copied.len(), 2);
    for (copied, source) in copied.iter().zip(&sources) {
        assert_eq!((&copied["source_id"], &copied["entries"]), (&source["id"], &source["entries"]));
    }
    assert_eq!(copied[1]["beside_id"], sources[0]["id"], "the second beside the first");
    assert!(copied[0].get("beside_id").is_none());
    let summary = ran.the("copy_summary");
    assert_eq!((&summary["copied"], &summary["already_there"]), (&2.into(), &0.into()), "{summary}");
    assert_eq!(summary["bytes_read"], sources[1]["bytes"], "what both have is read once: {summary}");
    // As they were: when, where, of what.
    let copies = there(&home, &["--json", "snapshots"]).ok().objects();
    for (copy, source) in copies.iter().zip(&sources) {
        for field in ["time", "host", "user", "paths", "tags", "program", "summary", "files", "bytes"] {
            assert_eq!(copy[field], source[field], "{field}");
        }
        assert_eq!(copy["original"], source["id"]);
        assert!(source.get("original").is_none());
    }
    assert_eq!(copies[1]["parent"], copies[0]["id"]);
    there(&home, &["restore", &home.saved_folder(), "-t", "out"]).ok();
    assert!(same(&home.path("src"), &home.path("out")));

    let ran = copy(&home, &[]).ok();
    assert!(ran.stdout.contains("copied 0 snapshots, 2 there already"), "{}", ran.stdout);
    assert_eq!(copy(&home, &["-q"]).ok().stdout, "");
    home.write("src/third", "3");
    home.run(&["backup", "src"]).ok();
    let ran = copy(&home, &["--json"]).ok();
    assert_eq!(ran.the("copy_summary")["bytes_read"], 1, "the new file's");
    assert_eq!(ran.of_type("copied").len(), 1);
}

#[test]
fn a_dry_run_says_which_and_copies_nothing() {
    let home = home();
    let sources = home.run(&["--json", "snapshots"]).ok().objects();
    copy(&home, &["-q", sources[0]["id"].as_str().unwrap()]).ok();
    let (to, before) = (home.path("to"), home.path("before"));
    assert!(Command::new("cp").arg("-a").args([&to, &before]).status().unwrap().success());
    let ran = copy(&home, &["--json", "-n"]).ok();
    let would: Vec<_> = ran.of_type("copied").iter().map(|c| (c["source_id"].clone(), c.get("id").cloned())).collect();
    assert_eq!(would, [(sources[1]["id"].clone(), None)]);
    let summary = ran.the("copy_summary");
    assert_eq!(summary["dry_run"], true, "{summary}");
    assert_eq!((&summary["copied"], &summary["already_there"]), (&1.into(), &1.into()), "{summary}");
    assert_eq!(summary["data_added"], 0, "{summary}");
    let ran = copy(&home, &["--dry-run"]).ok();
    assert!(ran.stdout.contains("would copy 1 snapshot, 1 there already"), "{}", ran.stdout);
    assert!(same(&to, &before));
    assert_eq!(copy(&home, &["--json"]).ok().the("copy_summary")["copied"], 1);
}

#[test]
fn some_of_them() {
    let home = home();
    home.run(&["backup", "src/deep", "-H", "other"]).ok();
    let count = || there(&home, &["--json", "snapshots"]).ok().objects().len();
    copy(&home, &["--host", "nobody"]).expect(0);
    assert_eq!(count(), 0);
    copy(&home, &["--tag", "second"]).ok();
    assert_eq!(count(), 1);
    copy(&home, &["latest", "--host", "other"]).ok();
    assert_eq!(count(), 2);
    copy(&home, &["--path", "src/deep"]).ok();
    assert_eq!(count(), 2);
    copy(&home, &["latest~2", "latest~2"]).ok();
    assert_eq!(count(), 3);
    copy(&home, &["ffffffff"]).expect(1);
    copy(&home, &["latest:/src"]).expect(2);
    let ran = copy(&home, &["-v"]).ok();
    assert!(ran.stdout.contains("3 there already"), "{}", ran.stdout);
}

#[test]
fn statuses() {
    let home = home();
    home.run(&["copy"]).expect(2);
    home.run(&["copy", "--to", "s3:bucket"]).expect(2);
    home.run(&["copy", "--to", "nowhere", "--to-key-file", "to.key"]).expect(10);
    assert!(!home.path("nowhere").exists());
    home.run(&["-r", "nowhere", "-k", "to.key", "copy", "--to", "to"]).expect(10);
    let wrong = home.run(&["copy", "--to", "to", "--to-key-file", home.kept_key().to_str().unwrap()]).expect(12);
    assert!(wrong.stderr.contains("to"), "{}", wrong.stderr);
    let asked = home.run(&["copy", "--to", "to"]).expect(12);
    assert!(asked.stderr.contains("is given for the repository in to"), "{}", asked.stderr);
    home.write("pw", "x");
    home.run(&["copy", "--to", "to", "--to-key-file", "to.key", "--to-password-file", "pw"]).expect(2);
    let itself = home.repository();
    let ran = home.run(&["copy", "--to", itself.to_str().unwrap()]).expect(2);
    assert!(ran.stderr.contains("is the repository that would be copied"), "{}", ran.stderr);
    for (role, code) in [("reader", 0), ("writer", 1), ("keeper", 1)] {
        let file = format!("{role}.key");
        home.run(&["key", "add", "--role", role, "--new-key-file", &file]).ok();
        let ran = home.run(&["-k", &file, "copy", "--host", "nobody", "--to", "to", "--to-key-file", "to.key"]);
        assert_eq!(ran.code, Some(code), "{role}: {}", ran.stderr);
    }
    for (role, code) in [("reader", 1), ("writer", 0), ("keeper", 1)] {
        let file = format!("to-{role}.key");
        there(&home, &["key", "add", "--role", role, "--new-key-file", &file]).ok();
        let ran = home.run(&["copy", "--host", "nobody", "--to", "to", "--to-key-file", &file]);
        assert_eq!(ran.code, Some(code), "{role}: {}", ran.stderr);
    }
}

#[test]
fn the_other_key_may_come_from_the_environment() {
    let home = home();
    home.write("pw", "secret\n");
    home.run(&["-r", "third", "-p", "pw", "init"]).ok();
    let by = |name: &str, value: &str| {
        home.command(&["copy", "--to", "third"]).env(name, value).output().unwrap().status.code()
    };
    assert_eq!(by("DRUMLIN_TO_PASSWORD", "wrong"), Some(12));
    assert_eq!(by("DRUMLIN_TO_PASSWORD", "secret"), Some(0));
    assert_eq!(by("DRUMLIN_TO_PASSWORD_FILE", "pw"), Some(0));
    assert_eq!(by("DRUMLIN_TO_PASSWORD_COMMAND", "cat pw"), Some(0));
    assert_eq!(by("DRUMLIN_TO_KEY_FILE", "to.key"), Some(12));
    home.run(&["copy", "--to", "third", "--to-password-command", "cat pw"]).ok();
    home.run(&["copy", "--to", "third", "--to-password-file", "pw"]).ok();
}

#[test]
fn damage_is_told_and_the_rest_is_copied() {
    let home = home();
    home.damage();
    let ran = copy(&home, &[]).expect(3);
    assert!(ran.stderr.contains("error: ") && ran.stderr.contains("not everything"), "{}", ran.stderr);
    let ran = there(&home, &["--json", "ls", "latest"]).ok();
    assert!(ran.of_type("node").iter().any(|n| n["contents_missing"] == true), "{}", ran.stdout);
}

#[test]
fn interrupted_it_leaves_no_half_copy() {
    let home = Home::new();
    home.write("src/text", Rng::new(1).bytes(40_000_000).into_iter().map(|b| b'a' + b % 16).collect::<Vec<_>>());
    home.run(&["backup", "src"]).ok();
    home.run(&["-r", "to", "-k", "to.key", "init"]).ok();
    let mut child = home.start(&[
        "--json",
        "copy",
        "--to",
        "to",
        "--to-key-file",
        "to.key",
        "--compression",
        "19",
        "--workers",
        "1",
    ]);
    wait_for(&mut child, "status");
    signal(&child, Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(there(&home, &["--json", "snapshots"]).ok().objects().is_empty());
    assert!(home.path("to/sessions").read_dir().map_or(true, |mut d| d.next().is_none()));
    copy(&home, &[]).ok();
    assert_eq!(there(&home, &["--json", "snapshots"]).ok().objects().len(), 1);
}

#[test]
fn cut_like_another_one_copies_and_backups_share() {
    let home = home();
    let (kept, repository) = (home.kept_key(), home.repository());
    let like = ["init", "--cut-like", repository.to_str().unwrap(), "--like-key-file", kept.to_str().unwrap()];
    home.run(&[&["-r", "alike", "-k", "alike.key"], &like[..]].concat()).ok();
    home.write("src/large", Rng::new(2).bytes(3_000_000));
    home.run(&["backup", "src"]).ok();
    let new_bytes = |repo: &str| {
        let key = format!("{repo}.key");
        home.run(&["copy", "--to", repo, "--to-key-file", &key]).ok();
        let ran = home.run(&["-r", repo, "-k", &key, "--json", "backup", "src", "--force", "-H", "other"]).ok();
        ran.the("summary")["data_added"].as_u64().unwrap()
    };
    assert_eq!(new_bytes("alike"), 0, "the same chunks");
    assert!(new_bytes("to") > 2_000_000, "cut elsewhere they are others");
    // A reader doesn't know where files are cut.
    home.run(&["key", "add", "--role", "reader", "--new-key-file", "reader.key"]).ok();
    let like = ["init", "--cut-like", repository.to_str().unwrap(), "--like-key-file", "reader.key"];
    home.run(&[&["-r", "no", "-k", "no.key"], &like[..]].concat()).expect(1);
    assert!(!home.path("no").exists() && !home.path("no.key").exists());
    home.run(&["-r", "no", "-k", "no.key", "init", "--like-key-file", "reader.key"]).expect(2);
}

/// What the copy of a damaged snapshot lacks is no reason to delete it where it was saved.
#[test]
fn a_copy_of_what_is_damaged_deletes_nothing() {
    let home = Home::new();
    for n in 0..3000 {
        home.write(&format!("src/a/a-rather-long-name-of-a-file-{n}"), "x");
    }
    home.run(&["backup", "src"]).ok();
    home.write("src/b/other", "other");
    home.run(&["backup", "src"]).ok();
    home.run(&["-r", "to", "-k", "to.key", "init"]).ok();
    // The first tree pack has the first snapshot's root, too.
    let mut packs = crate::kills::files(&home.repository().join("tree"));
    packs.sort_by_key(|path| std::fs::metadata(path).unwrap().len());
    std::fs::remove_file(packs.pop().unwrap()).unwrap();
    let ran = copy(&home, &[]).expect(3);
    assert!(ran.stderr.contains("nothing of snapshot"), "{}", ran.stderr);
    let copies = there(&home, &["--json", "snapshots"]).ok().objects();
    assert_eq!(copies.len(), 1, "{copies:?}");
    assert!(copies[0]["summary"]["entries_unreadable"].as_u64() > Some(0), "{}", copies[0]);
    let restore = ["restore", "latest", "-t", "/", "--delete"];
    let ran = there(&home, &restore).expect(1);
    assert!(ran.stderr.contains("could not be read when this snapshot was made"), "{}", ran.stderr);
    assert_eq!(std::fs::read_dir(home.path("src/a")).unwrap().count(), 3000);
    // By its own id the other one is told as what it is.
    let ran = copy(&home, &["latest~1"]).expect(1);
    assert!(ran.stderr.contains("nothing of snapshot"), "{}", ran.stderr);
}

/// Of two that begin at the same time, as by a timer that comes too often, one goes on.
#[test]
fn a_second_copy_is_refused_while_one_is_at_work() {
    let home = home();
    copy(&home, &[]).ok();
    let locks = std::fs::read_dir(home.path("cache/drumlin/locks")).unwrap().map(|entry| entry.unwrap().path());
    let lock = locks.filter(|path| path.to_str().unwrap().contains("-from-")).collect::<Vec<_>>();
    assert_eq!(lock.len(), 1, "{lock:?}");
    let held = std::fs::File::open(&lock[0]).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    let ran = copy(&home, &[]).expect(11);
    assert!(ran.stderr.contains("a copy from the same repository to the same one is at work"), "{}", ran.stderr);
    copy(&home, &["-n"]).ok();
    drop(held);
    copy(&home, &[]).ok();
}

/// A slip in a filter copies nothing, and says so.
#[test]
fn a_filter_that_nothing_fits_is_told() {
    let home = home();
    let ran = copy(&home, &["--host", "typo"]).expect(0);
    assert!(ran.stderr.contains("no snapshot fits"), "{}", ran.stderr);
    assert!(there(&home, &["--json", "snapshots"]).ok().objects().is_empty());
}
