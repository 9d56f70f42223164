//! Machines that are short of something: file descriptors, threads, memory.

use crate::home::{Home, Ran, same};
use drumlin_testkit::Rng;
use std::fs;
use std::process::Command;

/// The program under one of prlimit(1)'s limits; `uid`: as this user, for whom there is a copy of it.
fn limited(home: &Home, limit: &str, uid: Option<u32>, args: &[&str]) -> Ran {
    let usual = home.command(args);
    let mut command = Command::new("prlimit");
    command.arg(limit);
    match uid.map(|uid| uid.to_string()) {
        Some(uid) => command.args(["setpriv", "--reuid", &uid, "--regid", &uid, "--clear-groups"]).arg("./drumlin"),
        None => command.arg(usual.get_program()),
    };
    command.args(usual.get_args());
    command.env_clear().envs(usual.get_envs().filter_map(|(k, v)| Some((k, v?)))).current_dir(home.path(""));
    command.output().unwrap().into()
}

/// They are waited for and given back; and what can't be opened for lack of them is no damage.
#[test]
fn few_descriptors_do() {
    let home = Home::new();
    for n in 0..200 {
        home.write(&format!("src/{n}/file"), Rng::new(n).bytes(2000));
    }
    for n in 0..60 {
        home.write("src/new", Rng::new(1000 + n).bytes(3000));
        home.run(&["backup", "src"]).ok();
    }
    home.write("src/new", "once more");
    let run = |args: &[&str]| limited(&home, "--nofile=48:48", None, args);
    run(&["backup", "src", "--workers", "8"]).ok();
    // Whatever is left when the last pack has been read.
    for most in 40..=56 {
        limited(&home, &format!("--nofile={most}:{most}"), None, &["check", "--read-data"]).ok();
    }
    run(&["restore", &home.saved_folder(), "-t", "out", "--workers", "8"]).ok();
    assert!(same(&home.path("src"), &home.path("out")));
    run(&["forget", "--keep-last", "1", "--prune"]).ok();
    run(&["check"]).ok();
}

/// A limit for files is told as what it is.
#[test]
fn files_that_may_not_grow_are_an_error() {
    let home = Home::new();
    home.write("src/file", Rng::new(1).bytes(3 << 20));
    home.run(&["init"]).ok();
    let ran = limited(&home, "--fsize=1000000:1000000", None, &["backup", "src"]).expect(1);
    assert!(ran.stderr.contains("File too large"), "{}", ran.stderr);
    home.run(&["backup", "src"]).ok();
    let restore = ["restore", &home.saved_folder(), "-t", "out"];
    let ran = limited(&home, "--fsize=1000000:1000000", None, &restore);
    assert!(matches!(ran.code, Some(1 | 3)) && ran.stderr.contains("File too large"), "{:?}: {}", ran.code, ran.stderr);
    home.run(&["restore", &home.saved_folder(), "-t", "out"]).ok();
    assert!(same(&home.path("src"), &home.path("out")));
}

/// What can't be looked at for lack of them may be a repository.
#[test]
fn with_few_descriptors_no_repository_is_deleted() {
    let home = Home::new();
    home.write("src/file", "saved");
    home.run(&["backup", "src"]).ok();
    let deep = format!("src/new/{}", "d/".repeat(300));
    fs::create_dir_all(home.path(&deep)).unwrap();
    home.run(&["-r", &format!("{deep}repository"), "-k", "other.key", "init"]).ok();
    let restore = ["restore", &home.saved_folder(), "-t", "src", "--delete"];
    let ran = limited(&home, "--nofile=256:256", None, &restore).expect(3);
    assert!(home.path(&deep).join("repository/config").exists(), "{}", ran.stderr);
    assert!(ran.stderr.contains("src/new"), "{}", ran.stderr);
    // With enough it is found, and what is beside it goes.
    home.write("src/new/d/file", "new");
    let ran = home.run(&restore).expect(3);
    assert!(ran.stderr.contains("it is a repository"), "{}", ran.stderr);
    assert!(home.path(&deep).join("repository/config").exists() && !home.path("src/new/d/file").exists());
}

/// Where a user may have few processes the same is done by fewer threads; and where they are too few that is told as
/// what it is.
#[test]
fn few_threads_do() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root may run it as a user who has no other processes");
        return;
    }
    let home = Home::new();
    let uid = 1_000_000_000 + std::process::id();
    home.sources();
    for n in 0..300 {
        home.write(&format!("src/many/{n}"), Rng::new(n).bytes(3000));
    }
    // Not every folder above the program is open to all.
    // By a program of its own: a child that another test has just begun would hold it open for writing.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_drumlin")).arg(home.path("drumlin")).status();
    assert!(copied.unwrap().success());
    let owned = |path: &str| {
        let owner = format!("{uid}:{uid}");
        assert!(Command::new("chown").args(["-R", "-h", &owner]).arg(home.path(path)).status().unwrap().success());
    };
    owned("");
    let run = |most: u32, args: &[&str]| limited(&home, &format!("--nproc={most}:{most}"), Some(uid), args);
    let mut done = 0;
    for most in 1..12 {
        home.write("src/new", Rng::new(u64::from(most)).bytes(200_000));
        owned("src/new");
        let ran = run(most, &["backup", "src", "--workers", "4"]);
        assert!(!ran.stderr.contains("a bug"), "{most}: {}", ran.stderr);
        done += u32::from(ran.code == Some(0));
        // As many as there are of them at once at most.
        assert!(most < 8 || ran.code == Some(0), "{most}: {}", ran.stderr);
        if ran.code != Some(0) {
            assert!(ran.stderr.contains("Resource temporarily unavailable"), "{most}: {}", ran.stderr);
            continue;
        }
        let out = format!("out{most}");
        run(most, &["restore", "latest", "-t", &out, "--workers", "4"]).ok();
        assert!(same(&home.path("src"), &home.path(&format!("{out}{}/src", home.text("")))));
        run(most, &["forget", "--keep-last", "1", "--prune"]).ok();
        run(most, &["check", "--read-data"]).ok();
    }
    assert!(done > 4, "{done}");
}

/// A passphrase takes much of it at once. That there is none says nothing of the key, which must not be taken for lost.
#[test]
fn too_little_memory_is_no_damage() {
    let home = Home::new();
    home.write("pw", "a passphrase\n");
    home.run(&["init", "--password-file", "pw"]).ok();
    let snapshots = ["snapshots", "--password-file", "pw"];
    let (mut told, mut opened) = (0, false);
    // At first it doesn't even begin.
    for most in (16u64 << 20..).step_by(8 << 20).take(64) {
        let ran = limited(&home, &format!("--as={most}:{most}"), None, &snapshots);
        assert!(!ran.stderr.contains("damage"), "{most}: {}", ran.stderr);
        told += u32::from(ran.code == Some(1) && ran.stderr.contains("a passphrase takes 48 MiB of memory"));
        opened = ran.code == Some(0);
        if opened {
            break;
        }
    }
    assert!(told > 0 && opened, "{told} times, opened: {opened}");
}
