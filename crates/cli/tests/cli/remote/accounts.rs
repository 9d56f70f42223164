//! Accounts with few rights.

use super::Away;
use crate::everything;
use crate::home::same;
use drumlin_testkit::Sshd;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

fn objects(folder: PathBuf) -> Vec<(PathBuf, u32)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let meta = entry.metadata().unwrap();
        if meta.is_dir() {
            found.extend(objects(entry.path()));
        } else {
            found.push((entry.path(), meta.permissions().mode() & 0o777));
        }
    }
    found
}

/// An account that may only add: it backs up and restores; whoever owns the storage forgets and prunes, and then it
/// goes on.
#[test]
fn an_account_that_may_only_add() {
    if let Some(away) = Away::new() {
        may_only_add(&away, &["append", "publish"]);
    }
    if let Some(proftpd) = Sshd::start_proftpd() {
        may_only_add(&Away::over(proftpd), &["append"]);
    }
}

fn may_only_add(away: &Away, accounts: &[&str]) {
    for account in accounts {
        away.home.write("k", "");
        fs::remove_file(away.home.path("k")).unwrap();
        let _ = fs::remove_dir_all(away.home.path("src"));
        let _ = fs::remove_dir_all(away.home.path("out"));
        away.home.sources();
        away.run(account, &["init"]).ok();
        for n in 0..3 {
            away.home.write("src/new", n.to_string());
            away.run(account, &["backup", "src"]).ok();
        }
        let folder = away.folder(account);
        assert!(objects(folder.clone()).iter().all(|(_, mode)| *mode == 0o444), "{account}");
        away.run(account, &["check", "--read-data"]).ok();
        away.run(account, &["restore", &away.home.saved_folder(), "-t", "out"]).ok();
        assert!(same(&away.home.path("src"), &away.home.path("out")));

        // What is taken away is refused, and nothing changes.
        let ran = away.run(account, &["forget", "--keep-last", "1"]).expect(1);
        assert!(ran.stderr.contains("permission denied"), "{}", ran.stderr);
        away.run(account, &["prune"]).expect(1);
        assert_eq!(away.run(account, &["--json", "snapshots"]).ok().objects().len(), 3, "{account}");

        // By somebody who may.
        let owner = |args: &[&str]| away.home.run(&[&["-r", folder.to_str().unwrap(), "-k", "k"], args].concat());
        owner(&["forget", "--keep-last", "1"]).ok();
        owner(&["prune", "--max-unused", "0%"]).ok();
        assert_eq!(fs::read_dir(folder.join("sessions")).unwrap().count(), 0, "{account}: what it could not clear up");
        owner(&["check", "--read-data"]).ok();
        away.home.write("src/new", "more");
        away.run(account, &["backup", "src"]).ok();
        away.run(account, &["check", "--read-data"]).ok();
    }
}

#[test]
fn everything_on_proftpd() {
    let Some(proftpd) = Sshd::start_proftpd() else { return };
    let away = Away::over(proftpd);
    everything::done(&away.home, &|args| away.run("jail", args), "");
}

/// What the guide advises: the machine's account may only add, and its key may neither read nor remove; who forgets and
/// prunes has a keeper's key, where the repository is a folder.
#[test]
fn a_writers_key_over_an_account_that_may_only_add() {
    if let Some(away) = Away::new() {
        writes_by_its_key(&away, &["append", "publish"]);
    }
    if let Some(proftpd) = Sshd::start_proftpd() {
        writes_by_its_key(&Away::over(proftpd), &["append"]);
    }
}

fn writes_by_its_key(away: &Away, accounts: &[&str]) {
    away.home.sources();
    for account in accounts {
        for file in ["k", "writer.key", "keeper.key"] {
            let _ = fs::remove_file(away.home.path(file));
        }
        away.run(account, &["init"]).ok();
        let folder = away.folder(account);
        let by =
            |key: &str, args: &[&str]| away.home.run(&[&["-r", folder.to_str().unwrap(), "-k", key], args].concat());
        for role in ["writer", "keeper"] {
            by("k", &["key", "add", "--role", role, "--new-key-file", &format!("{role}.key")]).ok();
        }
        for round in 0..2 {
            for n in 0..2 {
                away.home.write("src/new", format!("{round} {n}"));
                away.run_by("writer.key", account, &["backup", "src"]).ok();
                // A machine whose cache is gone.
                away.home.write("src/newer", format!("{round} {n}"));
                away.run_by("writer.key", account, &["--no-cache", "backup", "src"]).ok();
            }
            away.run_by("writer.key", account, &["ls", "latest"]).expect(1);
            by("keeper.key", &["forget", "--keep-last", "1"]).ok();
            by("keeper.key", &["prune", "--max-unused", "0%"]).ok();
            assert_eq!(
                fs::read_dir(folder.join("sessions")).unwrap().count(),
                0,
                "{account}: what it could not clear up"
            );
        }
        by("k", &["check", "--read-data"]).ok();
        let _ = fs::remove_dir_all(away.home.path("out"));
        by("k", &["restore", &away.home.saved_folder(), "-t", "out"]).ok();
        assert!(same(&away.home.path("src"), &away.home.path("out")), "{account}");
    }
}

/// What a client that was cut off leaves where nothing can be renamed: half an object under its own name.
#[test]
fn torn_objects_keep_nobody_from_backing_up_and_restoring() {
    let Some(away) = Away::new() else { return };
    away.home.sources();
    away.run("append", &["init"]).ok();
    away.run("append", &["backup", "src"]).ok();
    let folder = away.folder("append");
    let session = "00112233445566778899aabbccddeeff";
    let newest = |of: &str| fs::read(objects(folder.join(of)).pop().unwrap().0).unwrap();
    let (pack, index, of_session) = (newest("data"), newest("index"), newest("sessions"));
    let decision = newest("decisions");
    // In a folder that the account has made: it writes packs there later.
    let (whole, _) = objects(folder.join("data")).pop().unwrap();
    let first = &whole.file_name().unwrap().to_str().unwrap()[..2];
    let torn_pack = format!("data/{first}/{first}000000000000000000000000000000");
    let torn: [(&str, Vec<u8>); 6] = [
        (&torn_pack, pack[..pack.len() / 2].to_vec()),
        // An index object's name begins like that of its session.
        ("index/00112233445566770000000000000000", index[..40].to_vec()),
        ("index/00112233445566770000000000000001", Vec::new()),
        ("snapshots/99000000000000000000000000000000", Vec::new()),
        (&format!("sessions/{session}"), of_session[..10].to_vec()),
        (&format!("decisions/{session}"), decision[..10].to_vec()),
    ];
    for (name, bytes) in &torn {
        fs::write(folder.join(name), bytes).unwrap();
    }
    away.home.write("src/new", "new");
    away.run("append", &["backup", "src"]).expect(0);
    away.run("append", &["--no-cache", "backup", "src"]).expect(0);
    // Of a snapshot that is torn nobody can say that it isn't the latest.
    away.run("append", &["restore", &away.home.saved_folder(), "-t", "out"]).expect(3);
    away.run("append", &["--no-cache", "restore", &away.home.saved_folder(), "-t", "out2"]).expect(3);
    assert!(
        same(&away.home.path("src"), &away.home.path("out")) && same(&away.home.path("src"), &away.home.path("out2"))
    );
    // They are named by a check.
    let ran = away.run("append", &["check"]);
    for name in ["index/00112233445566770000000000000000", "snapshots/99000000000000000000000000000000"] {
        assert!(ran.stdout.contains(name) || ran.stderr.contains(name), "{name}: {} {}", ran.stdout, ran.stderr);
    }
    // Whoever may remove files removes what has no meaning; then all is as it should be.
    let owner = |args: &[&str]| away.home.run(&[&["-r", folder.to_str().unwrap(), "-k", "k"], args].concat());
    owner(&["forget", "99000000000000000000000000000000"]).ok();
    owner(&["repair", "--evict", session]).expect(0);
    owner(&["prune", "--max-unused", "0%"]).expect(0);
    owner(&["check", "--read-data"]).ok();
    assert!(!folder.join(torn_pack).exists());
}

#[test]
fn a_chroot() {
    let Some(away) = Away::new() else { return };
    away.home.sources();
    away.run("jail", &["init"]).ok();
    away.run("jail", &["backup", "src"]).ok();
    away.run("jail", &["check", "--read-data"]).ok();
    away.run("jail", &["prune"]).ok();
}

/// The account of the guide, word by word: a chroot in which nothing can be changed or removed.
#[test]
fn the_append_only_account_of_the_guide() {
    let Some(away) = Away::new() else { return };
    let guide = include_str!("../../../../../docs/guides/sftp.md");
    let (_, block) = guide.split_once("    Match User backup\n").unwrap();
    let chroot = block.lines().take_while(|line| line.starts_with("        ")).map(str::trim);
    let command =
        guide.lines().map(str::trim).find(|line| line.starts_with("ForceCommand") && line.contains("-P")).unwrap();
    let lines: String = chroot
        .map(|line| match line.split_once(' ').unwrap().0 {
            "ChrootDirectory" => "ChrootDirectory /srv/jail",
            "ForceCommand" => command,
            _ => line,
        })
        .map(|line| format!("  {line}\n"))
        .collect();
    let config = away.sshd.folder("etc/sshd_config");
    let (before, after) = fs::read_to_string(&config)
        .unwrap()
        .split_once("Match User jail\n")
        .map(|(before, rest)| (before.to_owned(), rest[rest.find("Match User").unwrap()..].to_owned()))
        .unwrap();
    fs::write(&config, format!("{before}Match User jail\n{lines}{after}")).unwrap();
    away.sshd.reload();

    away.home.sources();
    away.run("jail", &["init"]).ok();
    for n in 0..2 {
        away.home.write("src/new", n.to_string());
        away.run("jail", &["backup", "src"]).ok();
    }
    away.run("jail", &["check", "--read-data"]).ok();
    away.run("jail", &["restore", &away.home.saved_folder(), "-t", "out"]).ok();
    assert!(same(&away.home.path("src"), &away.home.path("out")));
    away.run("jail", &["forget", "--keep-last", "1"]).expect(1);
    away.run("jail", &["prune"]).expect(1);

    // Whoever has stolen the key, and speaks SFTP by another program.
    let before: Vec<_> =
        objects(away.folder("jail")).into_iter().map(|(path, mode)| (fs::read(&path).unwrap(), path, mode)).collect();
    assert!(before.iter().all(|(.., mode)| *mode == 0o444));
    away.home.write("mine", "mine");
    let mut attempts = String::new();
    for (_, path, _) in &before {
        let inside = Path::new("/").join(path.strip_prefix(away.sshd.folder("jail")).unwrap());
        let (inside, mine) = (inside.display(), away.home.path("mine"));
        attempts += &format!("-rm {inside}\n-put {} {inside}\n-chmod 600 {inside}\n", mine.display());
        attempts += &format!("-rename {inside} /data/stolen\n-ln {inside} /data/stolen\n");
    }
    away.home.write("attempts", attempts);
    let config = away.home.path("home/.ssh/config");
    let mut thief = Command::new("sftp");
    thief.args(["-q", "-b"]).arg(away.home.path("attempts")).arg("-F").arg(config).arg("jail");
    let output = thief.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    // Of hard links the server doesn't even say that there are such.
    assert!(told.matches("ermission denied").count() >= 4 * before.len(), "{told}");
    let after = before.iter().all(|(bytes, path, mode)| {
        fs::read(path).unwrap() == *bytes && fs::metadata(path).unwrap().permissions().mode() & 0o777 == *mode
    });
    assert!(after, "something has changed");
}
