//! `restore`: owners, by name and by number, and what an ordinary user may not give.

use crate::home::{Home, Ran};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Nobody in particular.
const USER: u32 = 54_321;

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: only root can give files to others");
    }
    root
}

fn chown_all(path: &Path) {
    assert!(Command::new("chown").args(["-R", &format!("{USER}:{USER}")]).arg(path).status().unwrap().success());
}

#[test]
fn by_name_where_there_is_one_and_by_number_if_asked() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    // Two machines on which the same name has another number.
    for (machine, uid) in [("saved", USER), ("restored", USER + 1)] {
        let line = |id: u32| format!("root:x:0:0::/:/bin/sh\ntill:x:{id}:{id}::/:/bin/sh\n");
        home.write(&format!("{machine}.passwd"), line(uid));
        home.write(&format!("{machine}.group"), format!("root:x:0:\ntill:x:{uid}:\n"));
    }
    let on = |machine: &str, args: &[&str]| -> Ran {
        let mount = format!("mount --bind {machine}.passwd /etc/passwd && mount --bind {machine}.group /etc/group");
        home.run_among(&mount, args)
    };
    if on("saved", &["version"]).code != Some(0) {
        eprintln!("skipped: no mount namespace to be had");
        return;
    }
    let file = home.write("src/file", "x");
    chown(&file, Some(USER), Some(USER)).unwrap();
    // This one has no name on either of them.
    let nameless = home.write("src/nameless", "x");
    chown(&nameless, Some(USER + 7), Some(USER + 7)).unwrap();
    on("saved", &["backup", "src"]).ok();
    let node = on("saved", &["--json", "ls", "latest", file.to_str().unwrap()]).ok().the("node");
    assert_eq!((&node["user"], &node["uid"]), (&"till".into(), &USER.into()));
    let folder = home.saved_folder();
    let owner = |path: &str| home.path(path).metadata().map(|m| (m.uid(), m.gid())).unwrap();
    on("restored", &["restore", &folder, "-t", "named"]).ok();
    assert_eq!(owner("named/file"), (USER + 1, USER + 1));
    on("restored", &["restore", &folder, "-t", "numbered", "--numeric-ids"]).ok();
    assert_eq!(owner("numbered/file"), (USER, USER));
    assert_eq!((owner("named/nameless"), owner("numbered/nameless")), ((USER + 7, USER + 7), (USER + 7, USER + 7)));
}

/// What root saved, and the program as an ordinary user has it: with a home of their own, and the key.
fn as_user() -> (Home, impl Fn(&Home, &[&str]) -> Ran) {
    let home = Home::new();
    std::fs::set_permissions(home.path(""), PermissionsExt::from_mode(0o755)).unwrap();
    home.write("src/of-root", "root's\n");
    chown(home.write("src/theirs", "theirs\n"), Some(USER), Some(USER)).unwrap();
    chown(home.write("src/others", "other's\n"), Some(USER + 1), Some(USER + 1)).unwrap();
    home.write("src/locked/a", "a");
    home.write("src/locked/b", "b");
    std::fs::set_permissions(home.path("src/of-root"), PermissionsExt::from_mode(0o4755)).unwrap();
    let device = rustix::fs::makedev(1, 3);
    let kind = rustix::fs::FileType::CharacterDevice;
    rustix::fs::mknodat(rustix::fs::CWD, home.path("src/null"), kind, 0o666.into(), device).unwrap();
    home.run(&["-r", "repo", "-k", "repo.key", "init"]).ok();
    home.run(&["-r", "repo", "-k", "repo.key", "backup", "src"]).ok();
    std::fs::create_dir(home.path("user")).unwrap();
    for theirs in ["repo", "repo.key", "user"] {
        chown_all(&home.path(theirs));
    }
    // Where the program was built they may not be. Copied by a process of its own: a descriptor that writes to it,
    // which another test's child has for a moment, would keep it from being run.
    assert!(
        Command::new("cp").arg(env!("CARGO_BIN_EXE_drumlin")).arg(home.path("drumlin")).status().unwrap().success()
    );
    let run = |home: &Home, args: &[&str]| -> Ran {
        let (repo, key) = (home.text("repo"), home.text("repo.key"));
        let usual = home.command(&[&["-r", &repo, "-k", &key], args].concat());
        let mut command = Command::new(home.path("drumlin"));
        command.args(usual.get_args()).env_clear().env("HOME", home.path("user")).env("TZ", "UTC");
        command.current_dir(home.path("user")).uid(USER).gid(USER).output().unwrap().into()
    };
    (home, run)
}

#[test]
fn an_ordinary_user_gets_what_they_may_have_and_the_rest_is_told() {
    if !is_root() {
        return;
    }
    let (home, run) = as_user();
    let folder = home.saved_folder();
    // A folder in the target that isn't theirs to write to.
    home.write("user/out/keep", "theirs");
    chown_all(&home.path("user/out"));
    std::fs::create_dir(home.path("user/out/locked")).unwrap();
    let ran = run(&home, &["--json", "restore", &folder, "-t", "out"]).expect(3);
    for (name, contents) in [("of-root", "root's\n"), ("theirs", "theirs\n"), ("others", "other's\n")] {
        let path = home.path("user/out").join(name);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), contents);
        assert_eq!(path.metadata().unwrap().uid(), USER);
    }
    let mode = home.path("user/out/of-root").metadata().unwrap().mode() & 0o7777;
    assert_eq!(mode, 0o755, "a program that ran as root must not run as somebody else");
    let of = |kind: &str| -> Vec<String> {
        let errors = ran.of_type("error").into_iter().filter(|e| e["kind"] == kind);
        let mut all: Vec<_> = errors
            .map(|e| {
                let path = e["path"].as_str().unwrap();
                let name = path.strip_prefix(&home.text("src/")).unwrap_or(path);
                format!("{name}: {}", e["error"]["message"].as_str().unwrap())
            })
            .collect();
        all.sort();
        all
    };
    let unwritable = of("unwritable");
    for refused in ["locked/a: ", "locked/b: "] {
        assert!(unwritable.iter().any(|e| e.starts_with(refused) && e.contains("ermission denied")), "{unwritable:?}");
    }
    let attributes = of("attribute");
    for refused in ["null: device node not set: Operation not permitted", "of-root: mode not set"] {
        assert!(attributes.iter().any(|e| e.contains(refused)), "{attributes:?}");
    }
    // What every file would say is said once, and counted.
    let owner: Vec<_> = attributes.iter().filter(|e| e.contains("owner not set")).collect();
    assert!(owner.len() == 1 && owner[0].contains("only root can give files to other users"), "{attributes:?}");
    let summary = ran.the("summary");
    assert_eq!(summary["exit_code"], 3);
    assert_eq!(summary["entries_unwritable"], unwritable.len(), "{summary} {unwritable:?}");
    assert!(summary["attributes_not_set"].as_u64() >= Some(4), "{summary}");
    // In words, too, and without numbers that say nothing.
    let ran = run(&home, &["restore", &folder, "-t", "again"]).expect(3);
    assert!(ran.stderr.contains("device node") && ran.stderr.contains("not everything was restored"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("os error"), "{}", ran.stderr);
}

/// The folders that lead to what is theirs belong to others, to whom nobody else can give them.
#[test]
fn an_ordinary_user_gets_all_that_is_theirs_without_a_word() {
    if !is_root() {
        return;
    }
    let (home, run) = as_user();
    home.write("user/mine/deep/file", "theirs");
    chown_all(&home.path("user/mine"));
    run(&home, &["backup", &home.text("user/mine")]).expect(0);
    for target in ["once", "once", "twice"] {
        let ran = run(&home, &["restore", "latest", "--path", &home.text("user/mine"), "-t", target]).expect(0);
        assert_eq!(ran.stderr, "");
    }
}

/// What is in a folder that its owner has closed can't be looked at: nobody knows that nothing in it is excluded.
#[test]
fn what_can_not_be_looked_into_is_not_deleted() {
    if !is_root() {
        return;
    }
    let (home, run) = as_user();
    home.write("user/s/file", "x");
    chown_all(&home.path("user/s"));
    let folder = home.text("user/s");
    run(&home, &["backup", &folder]).expect(0);
    home.write("user/s/closed/precious", "x");
    chown_all(&home.path("user/s"));
    std::fs::set_permissions(home.path("user/s/closed"), PermissionsExt::from_mode(0o000)).unwrap();
    let here = format!("latest:{folder}");
    let restore = ["restore", &here, "-t", &folder, "--delete", "-e", "precious"];
    let ran = run(&home, &restore).expect(3);
    assert!(ran.stderr.contains("closed"), "{}", ran.stderr);
    assert!(home.path("user/s/closed/precious").exists());
    run(&home, &restore[..5]).expect(0);
    assert!(!home.path("user/s/closed").exists());
}

#[test]
fn an_ordinary_user_saves_what_they_may_read() {
    if !is_root() {
        return;
    }
    let (home, run) = as_user();
    for (name, mode) in [("src/theirs", 0o600), ("src/others", 0o600), ("src/locked", 0o700)] {
        std::fs::set_permissions(home.path(name), PermissionsExt::from_mode(mode)).unwrap();
    }
    let ran = run(&home, &["--json", "backup", &home.text("src")]).expect(3);
    let mut named: Vec<_> = ran.of_type("error").iter().map(|e| e["path"].as_str().unwrap().to_owned()).collect();
    named.sort();
    assert_eq!(named, [home.text("src/locked"), home.text("src/others")]);
    let summary = ran.the("summary");
    assert_eq!((&summary["entries_unreadable"], &summary["files_changed_while_read"]), (&2.into(), &0.into()));
    // The file is there, marked as without its contents.
    let nodes = run(&home, &["--json", "ls", "latest", &home.text("src")]).ok().objects();
    let marked = |name: &str| nodes.iter().find(|n| n["path"] == home.text(name)).unwrap()["contents_missing"] == true;
    assert!(marked("src/others") && !marked("src/theirs"), "{nodes:?}");
    let ran = run(&home, &["restore", &home.saved_folder(), "-t", "out"]).expect(3);
    assert!(ran.stderr.contains("could not be read when it was backed up"), "{}", ran.stderr);
    // That the folder is there and empty tells nobody that it wasn't.
    let told = "2 entries could not be read when this snapshot was made";
    assert!(ran.stderr.contains(told), "{}", ran.stderr);
    for flag in ["-q", "--json"] {
        let ran = run(&home, &[flag, "restore", &home.saved_folder(), "--dry-run", "-t", "elsewhere"]);
        assert!(ran.stderr.contains(told), "{flag}: {}", ran.stderr);
    }
    assert_eq!(std::fs::read(home.path("user/out/theirs")).unwrap(), b"theirs\n");
    // Nothing that could be looked at at all is no backup.
    let ran = run(&home, &["backup", &home.text("src/locked/a")]).expect(1);
    assert!(ran.stderr.contains("Permission denied"), "{}", ran.stderr);
}
