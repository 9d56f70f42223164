//! What goes wrong, told with what to do about it and the right status.

use super::Away;
use crate::home::{Home, same};
use drumlin_testkit::{LoopFs, Rclone, Rng, Sshd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

const SERVER: &str = "/usr/lib/openssh/sftp-server";

#[test]
fn addresses_and_servers_that_are_wrong() {
    let Some(away) = Away::new() else { return };
    let port = away.relay.port();
    away.run("plain", &["init"]).ok();
    let cases: [(&str, i32, &[&str]); 6] = [
        ("sftp://plain/~/none", 10, &["there is no repository", "drumlin init"]),
        ("sftp://plain/etc", 10, &["there is no repository"]),
        ("sftp://stranger@plain/~/repo", 1, &["doesn't let 'stranger' in", "it takes publickey", "hint:"]),
        ("sftp://plain", 2, &["no folder", "/~/path"]),
        ("sftp://u:secret@h/x", 2, &["u:***@h", "no password may be in it"]),
        ("u@plain:/repo", 2, &["sftp://user@host/path"]),
    ];
    for (repo, code, parts) in cases {
        let ran = away.home.run(&["-r", repo, "-k", "k", "snapshots"]).expect(code);
        for part in parts {
            assert!(ran.stderr.contains(part), "{repo}: {part}: {}", ran.stderr);
        }
        assert!(!ran.stderr.contains("secret"), "{}", ran.stderr);
    }
    away.home.write("home/.ssh/config", format!("Host plain\n HostName 127.0.0.1\n Port {port}\n User plain\n"));
    let ran = away.run("plain", &["snapshots"]).expect(1);
    for part in ["is not known here: ssh-ed25519 SHA256:", &format!("ssh -p {port} plain@plain")] {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
    std::fs::remove_file(away.home.path("k")).unwrap();
    let ran = away.run("plain", &["--json", "init"]).expect(1);
    assert_eq!(ran.of_type("exit_error")[0]["code"], 1, "{}", ran.stderr);
    assert!(!away.home.path("k").exists(), "no key for a repository that there is not");
}

/// Another program's files where a repository is to be made, and in one.
#[test]
fn files_of_other_programs() {
    let Some(away) = Away::new() else { return };
    away.home.sources();
    let folder = away.folder("plain");
    // By the account itself, whose folders they are.
    let made = |name: &str| {
        let path = folder.join(name);
        let above: Vec<_> = path.parent().unwrap().ancestors().take_while(|above| above.starts_with(&folder)).collect();
        for missing in above.into_iter().rev().filter(|above| !above.exists()) {
            std::fs::create_dir(missing).unwrap();
            let meta = std::fs::metadata(away.sshd.folder("plain")).unwrap();
            std::os::unix::fs::chown(missing, Some(meta.uid()), Some(meta.gid())).unwrap();
        }
        std::fs::write(path, "dear").unwrap();
    };
    made("letter");
    let ran = away.run("plain", &["init"]).expect(1);
    assert!(ran.stderr.contains("the folder is not empty; a new repository needs"), "{}", ran.stderr);
    assert!(!away.home.path("k").exists(), "no key for a repository that there is not");
    std::fs::remove_file(folder.join("letter")).unwrap();
    away.run("plain", &["init"]).ok();
    ["letter", "data/letter", "snapshots/letter", "index/letter"].into_iter().for_each(made);
    away.run("plain", &["backup", "src"]).expect(0);
    away.run("plain", &["prune", "--max-unused", "0%"]).expect(0);
    away.run("plain", &["restore", &away.home.saved_folder(), "-t", "out"]).expect(0);
    assert!(same(&away.home.path("src"), &away.home.path("out")));
    for name in ["letter", "data/letter", "snapshots/letter", "index/letter"] {
        assert_eq!(std::fs::read(folder.join(name)).unwrap(), b"dear", "{name}");
    }
}

/// Somebody between us and the server, or a server that was set up anew.
#[test]
fn a_server_with_another_key() {
    let Some(away) = Away::new() else { return };
    away.home.sources();
    away.run("plain", &["init"]).ok();
    let port = away.relay.port();
    let known = away.sshd.folder(&format!("known-{port}"));
    let right = std::fs::read_to_string(&known).unwrap();
    let key = away.home.path("other");
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status().unwrap();
    assert!(made.success());
    let other = std::fs::read_to_string(key.with_extension("pub")).unwrap();
    let other = other.split(' ').nth(1).unwrap();
    std::fs::write(&known, format!("# servers\n[127.0.0.1]:{port} ssh-ed25519 {other}\n")).unwrap();
    let before = away.relay.bytes();
    let ran = away.run("plain", &["backup", "src"]).expect(1);
    for part in [
        "is not the one that is known: somebody may be intercepting the connection",
        "It now shows ssh-ed25519 SHA256:",
        &format!("{}:2", known.display()),
        &format!("ssh-keygen -R '[127.0.0.1]:{port}'"),
    ] {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
    assert!(away.relay.bytes().0 - before.0 < 10_000, "nothing was sent but greetings");
    std::fs::write(&known, right).unwrap();
    away.run("plain", &["backup", "src"]).ok();
}

#[test]
fn programs_that_speak_sftp_and_others() {
    let home = Home::new();
    home.sources();
    if !std::path::Path::new(SERVER).exists() {
        assert!(std::env::var_os("DRUMLIN_SERVERS").is_none(), "{SERVER} is missing");
        return eprintln!("skipped: there is no {SERVER}");
    }
    std::fs::create_dir(home.path("repo")).unwrap();
    let repo = format!("stdio:exec {SERVER} -d {}", home.text("repo"));
    let run = |args: &[&str]| home.run(&[&["-r", &repo, "-k", "k"], args].concat());
    run(&["init"]).ok();
    run(&["backup", "src"]).ok();
    run(&["backup", "src"]).ok();
    run(&["check", "--read-data"]).ok();
    run(&["restore", &home.saved_folder(), "-t", "out"]).ok();
    assert!(same(&home.path("src"), &home.path("out")));
    run(&["forget", "--keep-last", "1"]).ok();
    run(&["prune"]).ok();
    for (program, part) in
        [("no-such-program", "not found"), ("echo hello", "login script"), ("exit 7", "exit status 7")]
    {
        let ran = home.run(&["-r", &format!("stdio:{program}"), "-k", "k", "snapshots"]).expect(1);
        assert!(ran.stderr.contains(part), "{program}: {}", ran.stderr);
    }
    home.run(&["-r", "stdio:", "-k", "k", "snapshots"]).expect(2);
}

#[test]
fn a_full_server() {
    let Some(fs) = LoopFs::new(64 << 20) else { return eprintln!("skipped: no file system can be mounted here") };
    std::fs::set_permissions(fs.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let Some(sshd) = Sshd::start_in(&fs.path().join("s"), &[]) else { return };
    let home = Home::new();
    home.sources();
    home.write("home/.ssh/config", std::fs::read_to_string(sshd.config(sshd.port(), "")).unwrap());
    let run = |args: &[&str]| home.run(&[&["-r", "sftp://plain/~/repo", "-k", "k"], args].concat());
    run(&["init"]).ok();
    run(&["backup", "src"]).ok();
    home.write("noise", Rng::new(1).bytes(100 << 20));
    let ran = run(&["backup", "noise"]).expect(1);
    assert!(
        ran.stderr.contains("no space is left on the server") && ran.stderr.contains("make room"),
        "{}",
        ran.stderr
    );
    assert_eq!(run(&["--json", "snapshots"]).ok().objects().len(), 1);
    run(&["restore", &home.saved_folder(), "-t", "out"]).ok();
    assert!(same(&home.path("src"), &home.path("out")));
    run(&["backup", "src"]).ok();
}

/// A quota that is used up, as OpenSSH tells it: a failure, without a reason. Here it is the length that a file may
/// have.
#[test]
fn a_quota_that_is_used_up() {
    let home = Home::new();
    home.sources();
    if !std::path::Path::new(SERVER).exists() {
        assert!(std::env::var_os("DRUMLIN_SERVERS").is_none(), "{SERVER} is missing");
        return eprintln!("skipped: there is no {SERVER}");
    }
    std::fs::create_dir(home.path("repo")).unwrap();
    let free = format!("stdio:exec {SERVER} -d {}", home.text("repo"));
    let tight = format!("stdio:trap '' XFSZ; ulimit -f 20000; exec {SERVER} -d {}", home.text("repo"));
    let run = |repo: &str, args: &[&str]| home.run(&[&["-r", repo, "-k", "k"], args].concat());
    run(&tight, &["init"]).ok();
    run(&tight, &["backup", "src"]).ok();
    home.write("noise", Rng::new(1).bytes(100 << 20));
    let ran = run(&tight, &["backup", "noise"]).expect(1);
    for part in ["it gives no reason", "check the account's quota"] {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
    assert!(!ran.stderr.contains("repair"), "{}", ran.stderr);
    // Nobody waits for the server to remove it.
    let is_empty = |_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        std::fs::read_dir(home.path("repo/tmp")).unwrap().count() == 0
    };
    assert!((0..1000).any(is_empty), "nothing half-written stays");
    assert_eq!(run(&tight, &["--json", "snapshots"]).ok().objects().len(), 1);
    run(&tight, &["restore", &home.saved_folder(), "-t", "out"]).ok();
    assert!(same(&home.path("src"), &home.path("out")));
    run(&free, &["backup", "noise"]).ok();
    run(&free, &["check", "--read-data"]).ok();
}

/// Debian's rclone, serving a folder and a WebDAV server: by `tests/remote rclone`.
#[test]
#[ignore = "needs rclone"]
fn rclone_serves_any_storage() {
    let rclone = Rclone::start();
    for remote in rclone.remotes() {
        let home = Home::new();
        home.sources();
        let repo = format!("stdio:{}", rclone.serves(remote, "repo"));
        let run = |args: &[&str]| home.run(&[&["-r", &repo, "-k", "k"], args].concat());
        run(&["init"]).ok();
        for n in 0..2 {
            home.write("src/large", Rng::new(n).bytes(80 << 20));
            run(&["backup", "src"]).ok();
        }
        run(&["backup", "src"]).ok();
        run(&["check", "--read-data"]).ok();
        run(&["restore", &home.saved_folder(), "-t", "out"]).ok();
        assert!(same(&home.path("src"), &home.path("out")), "{remote}");
        run(&["forget", "--keep-last", "1"]).ok();
        run(&["prune", "--max-unused", "0%"]).ok();
        run(&["check", "--read-data"]).ok();
    }
}
