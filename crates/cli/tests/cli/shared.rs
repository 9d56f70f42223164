//! A repository on a disk that several users share, as docs/guides/backup.md has it.

use crate::home::{Home, Ran};
use drumlin_testkit::Rng;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

const GROUP: u32 = 4320;
const USERS: [u32; 2] = [4321, 4322];

fn sh(home: &Home, script: &str) {
    let done = Command::new("sh").args(["-ec", script]).current_dir(home.path("")).status().unwrap();
    assert!(done.success(), "{script}");
}

/// A repository that a group may write to, and a folder for each user's own things. `None`: only root can be others.
fn home() -> Option<Home> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root may run it as other users");
        return None;
    }
    let home = Home::new();
    home.run(&["-r", "repo", "-k", "repo.key", "init"]).ok();
    // Not every folder above the program is open to all.
    sh(&home, &format!("cp {} drumlin; chmod 755 . drumlin; chmod 644 repo.key", env!("CARGO_BIN_EXE_drumlin")));
    sh(&home, &format!("chgrp -R {GROUP} repo; chmod -R g+rwX repo; find repo -type d -exec chmod g+s {{}} +"));
    for (n, user) in USERS.iter().enumerate() {
        sh(&home, &format!("mkdir -p {user}/own {user}/src"));
        write(&home, *user, "file", Rng::new(n as u64).bytes(100_000));
    }
    Some(home)
}

/// A file of a user's.
fn write(home: &Home, user: u32, name: &str, contents: impl AsRef<[u8]>) {
    home.write(&format!("{user}/src/{name}"), contents);
    sh(home, &format!("chown -R {user}:{user} {user}"));
}

/// The program as one of the users, with a umask.
fn command(home: &Home, user: u32, umask: &str, args: &[&str]) -> Command {
    let usual = home.command(args);
    let mut command = Command::new("setpriv");
    let (id, group) = (user.to_string(), GROUP.to_string());
    command.args(["--reuid", &id, "--regid", &id, "--groups", &group]);
    command.args(["sh", "-c", &format!("umask {umask}; exec ../drumlin \"$@\""), "drumlin"]);
    command.args(["-r", "../repo", "-k", "../repo.key"]).args(args).env_clear();
    command.envs(usual.get_envs().filter_map(|(k, v)| Some((k, v?)))).current_dir(home.path(&id));
    for name in ["DATA", "CONFIG", "CACHE", "STATE"] {
        command.env(format!("XDG_{name}_HOME"), home.path(&id).join("own"));
    }
    command.env("HOME", home.path(&id).join("own"));
    command
}

fn run(home: &Home, user: u32, umask: &str, args: &[&str]) -> Ran {
    command(home, user, umask, args).output().unwrap().into()
}

#[test]
fn a_strict_umask_keeps_nobody_out() {
    let Some(home) = home() else { return };
    for umask in ["077", "022", "007"] {
        for user in USERS {
            run(&home, user, umask, &["backup", "src"]).ok();
            write(&home, user, "new", umask);
        }
        for user in USERS {
            run(&home, user, umask, &["check", "--read-data"]).ok();
        }
    }
    run(&home, USERS[0], "077", &["forget", "--keep-last", "1", "--prune"]).ok();
    run(&home, USERS[1], "077", &["forget", "--keep-last", "1", "--prune"]).ok();
    run(&home, USERS[0], "077", &["check", "--read-data"]).ok();
    // Root's as well, whatever it may read itself.
    let root = ["sh", "-c", "umask 077; exec \"$@\"", "sh"];
    home.run_by(root[0], &root[1..], &["-r", "repo", "-k", "repo.key", "backup", "repo.key"]).ok();
    run(&home, USERS[1], "022", &["check", "--read-data"]).ok();
}

/// Those of the group who come together make each folder once, and find it open.
#[test]
fn those_who_come_together_keep_nobody_out() {
    let Some(home) = home() else { return };
    for round in 0..6 {
        let umask = if round % 2 == 0 { "022" } else { "077" };
        for user in USERS {
            write(&home, user, "file", Rng::new(u64::from(user) + round).bytes(100_000));
        }
        let begun = USERS.map(|user| {
            let mut command = command(&home, user, umask, &["-q", "backup", "src"]);
            command.stderr(std::process::Stdio::piped()).spawn().unwrap()
        });
        for child in begun {
            Ran::from(child.wait_with_output().unwrap()).expect(0);
        }
    }
    run(&home, USERS[0], "022", &["check", "--read-data"]).ok();
}

/// What root makes in another user's repository is that user's.
#[test]
fn what_root_makes_is_whose_the_repository_is() {
    let Some(home) = home() else { return };
    let user = USERS[0];
    sh(&home, &format!("chown -R {user}:{user} repo; chmod -R g-rwxs repo; mkdir src; echo x > src/file"));
    let root = ["sh", "-c", "umask 077; exec \"$@\"", "sh"];
    home.run_by(root[0], &root[1..], &["-r", "repo", "-k", "repo.key", "backup", "src"]).ok();
    run(&home, user, "077", &["check", "--read-data"]).ok();
    let snapshot = std::fs::read_dir(home.path("repo/snapshots")).unwrap().next().unwrap().unwrap();
    let of = snapshot.metadata().unwrap();
    assert_eq!((of.uid(), of.permissions().mode() & 0o077), (user, 0));
}
