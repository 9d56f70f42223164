//! A storage that drops objects, or goes back: every command says so, and what removes refuses.

use crate::home::{Home, Ran};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Two snapshots, and everything as it was before the second one.
fn home() -> Home {
    let home = Home::new();
    home.sources();
    home.run(&["backup", "src"]).ok();
    copy(&home.repository(), &home.path("older"));
    home.write("src/new", "new");
    home.run(&["backup", "src"]).ok();
    home
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    files
}

fn ids(home: &Home) -> Vec<String> {
    let list = home.run(&["--json", "snapshots"]).ok().of_type("snapshot");
    list.iter().map(|s| s["id"].as_str().unwrap().to_owned()).collect()
}

#[track_caller]
fn alarmed(ran: Ran, code: i32) -> Ran {
    let ran = ran.expect(code);
    // Of `copy`, which has two, only that tells which one.
    assert!(ran.stderr.contains("the storage has lost or withholds what this client has seen in /"), "{}", ran.stderr);
    assert!(ran.stderr.contains("--accept-history"), "{}", ran.stderr);
    ran
}

#[test]
fn an_older_copy_of_the_repository_is_told_until_it_is_accepted() {
    let home = home();
    fs::rename(home.repository(), home.path("newer")).unwrap();
    fs::rename(home.path("older"), home.repository()).unwrap();
    for args in [
        &["snapshots"][..],
        &["-q", "ls", "latest"],
        &["restore", "latest", "-t", "out"],
        &["find", "a.txt"],
        &["stats"],
        &["key", "list"],
        &["backup", "-n", "src"],
        &["prune", "-n"],
        &["backup", "src"],
    ] {
        let code = if args == ["prune", "-n"] { 1 } else { 4 };
        let ran = alarmed(home.run(args), code);
        assert!(
            ran.stderr.contains("1 snapshot (") && ran.stderr.contains("Nothing was missing when it was looked at on "),
            "{}",
            ran.stderr
        );
    }
    assert!(home.path("out").exists());
    let before = files(&home.repository().join("snapshots"));
    assert_eq!(before.len(), 2, "the backup was done");
    for args in [
        &["prune"][..],
        &["repair"],
        &["forget", "latest"],
        &["forget", "--keep-last", "1", "--prune"],
        &["check"],
        &["-q", "check"],
    ] {
        alarmed(home.run(args), 1);
    }
    assert_eq!(files(&home.repository().join("snapshots")), before);
    assert!(!home.repository().join("history").exists() && !home.repository().join("forgotten").exists());
    let told = home.run(&["check"]).expect(1);
    assert!(told.stdout.contains("damaged: snapshot 'snapshots/") && told.stdout.contains("this client has seen it"));

    let missing = home.run(&["--json", "snapshots"]).expect(4).the("missing");
    assert_eq!((missing["snapshots"].as_array().unwrap().len(), &missing["config"]), (1, &false.into()));
    assert!(missing["last_seen"].as_str().unwrap().starts_with("20"), "{missing}");
    let backup = home.run(&["--json", "backup", "src"]).expect(4);
    assert_eq!(backup.the("summary")["exit_code"], 4);

    let accepted = home.run(&["check", "--accept-history"]).ok();
    assert!(accepted.stdout.contains("accepted that these are missing: 1 snapshot ("), "{}", accepted.stdout);
    home.run(&["forget", "--keep-last", "1", "--prune"]).ok();
    home.run(&["check", "--read-data"]).ok();
    home.run(&["check", "--accept-history"]).ok();
}

/// It says nothing to anybody any more; and whoever has seen it is not to miss it.
#[test]
fn an_entry_that_nobody_can_read_is_repaired() {
    let home = home();
    home.run(&["backup", "src"]).ok();
    home.run(&["forget", &ids(&home)[0]]).ok();
    home.run(&["snapshots"]).ok();
    let entry = files(&home.repository().join("history")).pop().unwrap();
    home.tamper(&entry, |bytes| bytes[60] ^= 1);
    let ran = home.run(&["check"]).expect(1);
    assert!(ran.stdout.contains("damaged: history"), "{}", ran.stdout);
    let ran = home.run(&["repair"]).expect(0);
    assert!(ran.stdout.contains("1 small object ("), "{}", ran.stdout);
    assert!(!entry.exists());
    for args in [&["check"][..], &["repair"], &["prune"], &["snapshots"], &["check"]] {
        home.run(args).ok();
    }
}

#[test]
fn one_dropped_object_is_named() {
    for (folder, kind) in [("snapshots", "snapshot"), ("index", "index"), ("history", "history"), ("keys", "key")] {
        let home = home();
        home.run(&["key", "add", "--role", "writer", "--new-key-file", "writer.key"]).ok();
        home.run(&["backup", "src"]).ok();
        home.run(&["forget", &ids(&home)[0]]).ok();
        home.run(&["prune"]).ok();
        let own = fs::read_to_string(home.kept_key()).unwrap();
        let all = files(&home.repository().join(folder));
        let name_of = |path: &std::path::PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        let is_own = |name: &str| own.contains(name.trim_end_matches(".copy"));
        let is_victim = |f: &&std::path::PathBuf| !is_own(&name_of(f)) && !name_of(f).ends_with(".copy");
        let victim = all.iter().find(is_victim).unwrap();
        let name = format!("'{folder}/{}'", name_of(victim));
        fs::remove_file(victim).unwrap();
        let _ = fs::remove_file(format!("{}.copy", victim.display()));
        let ran = home.run(&["check"]).expect(1);
        assert!(ran.stdout.contains(&format!("damaged: {kind} {name}\n")), "{name}: {}", ran.stdout);
        alarmed(home.run(&["snapshots"]), 4);
        alarmed(home.run(&["backup", "src"]), 4);
        alarmed(home.run(&["prune"]), 1);
        if folder == "index" {
            // That is what a repair is for.
            home.run(&["repair"]).expect(0);
            home.run(&["check"]).ok();
            home.run(&["snapshots"]).ok();
        } else {
            alarmed(home.run(&["repair"]), 1);
        }
        home.run(&["check", "--accept-history"]);
        home.run(&["snapshots"]).ok();
    }
}

#[test]
fn a_revoked_key_that_is_given_back_is_told() {
    let home = home();
    home.run(&["key", "add", "--role", "writer", "--new-key-file", "writer.key"]).ok();
    copy(&home.repository().join("keys"), &home.path("keys"));
    let keys = home.run(&["--json", "key", "list"]).ok().objects();
    let writer = keys.iter().find(|k| k["role"] == "writer").unwrap()["id"].as_str().unwrap().to_owned();
    home.run(&["key", "remove", &writer]).ok();
    home.run(&["snapshots"]).ok();
    let object = home.repository().join("keys").join(&writer);
    fs::remove_file(&object).unwrap();
    copy(&home.path("keys").join(&writer), &object);
    let ran = alarmed(home.run(&["key", "list"]), 4);
    assert!(ran.stderr.contains(&format!("key {writer}, which was revoked")), "{}", ran.stderr);
    home.run(&["backup", "src"]).ok();
}

#[test]
fn clients_remember_for_themselves() {
    let home = home();
    home.run(&["key", "add", "--role", "writer", "--new-key-file", "writer.key"]).ok();
    let other = |args: &[&str]| -> Ran {
        let mut command = home.command(&[&["-k", "writer.key"], args].concat());
        command.env("XDG_STATE_HOME", home.path("other")).output().unwrap().into()
    };
    other(&["backup", "src"]).ok();
    home.run(&["forget", "--keep-last", "2"]).ok();
    home.run(&["prune"]).ok();
    other(&["backup", "src"]).ok();
    assert!(home.path("other/drumlin").exists() && home.path("state/drumlin").exists());
    // A writer that can't open snapshots misses its own all the same, and the others have not seen it yet.
    let before: Vec<_> = ids(&home);
    let snapshots = || files(&home.repository().join("snapshots"));
    let known = snapshots();
    other(&["backup", "src"]).ok();
    let new = snapshots().into_iter().find(|f| !known.contains(f)).unwrap();
    fs::remove_file(new).unwrap();
    alarmed(other(&["backup", "src"]), 4);
    home.run(&["backup", "src"]).ok();
    assert_eq!(ids(&home).len(), before.len() + 2);
}

#[test]
fn what_is_remembered_may_be_lost_or_unwritable() {
    let home = home();
    let id = ids(&home).remove(0);
    let seen = files(&home.path("state/drumlin")).remove(0).join("seen");
    for bad in [&b""[..], b"drumlin seen\0\0\0\x02 of another version", &[7; 500]] {
        fs::write(&seen, bad).unwrap();
        let ran = home.run(&["snapshots"]).expect(0);
        assert!(ran.stderr.contains("is no longer known") && ran.stderr.contains("seen"), "{}", ran.stderr);
        home.run(&["snapshots"]).ok();
    }
    let run = |name: &str, value: Option<&Path>, args: &[&str]| -> Ran {
        let mut command = home.command(args);
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
        command.output().unwrap().into()
    };
    // A place that is no folder.
    let ran = run("XDG_STATE_HOME", Some(&home.path("src/a.txt")), &["backup", "src"]).expect(0);
    assert!(ran.stderr.contains("can't be saved: cannot write '"), "{}", ran.stderr);
    run("XDG_STATE_HOME", None, &["snapshots"]).ok();
    assert!(home.path("home/.local/state/drumlin").exists());
    let mut command = home.command(&["snapshots"]);
    command.env_remove("HOME").env("XDG_STATE_HOME", "relative");
    assert_eq!(command.output().unwrap().status.code(), Some(0));
    // Who has lost it, or has it no more, starts with what is there.
    fs::remove_file(&seen).unwrap();
    fs::remove_file(home.repository().join("snapshots").join(&id)).unwrap();
    home.run(&["snapshots"]).ok();
    assert!(
        home.run(&["check", "--accept-history"])
            .expect(0)
            .stdout
            .contains("nothing that this client has seen is missing")
    );
}
