//! Where things are, with nothing configured and with everything.

use crate::home::{Home, same};
use std::os::unix::fs::PermissionsExt;

#[test]
fn the_first_backup_makes_a_repository_and_keeps_its_key() {
    let home = Home::new();
    home.sources();
    let ran = home.run(&["backup", "src"]).ok();
    let key = home.kept_key();
    assert!(ran.stdout.contains(home.repository().to_str().unwrap()), "{}", ran.stdout);
    assert!(ran.stdout.contains(key.to_str().unwrap()), "{}", ran.stdout);
    assert!(ran.stdout.contains("drumlin key export"), "{}", ran.stdout);
    let mode = |p: &std::path::Path| p.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&key), mode(key.parent().unwrap()), mode(&home.repository())), (0o600, 0o700, 0o700));
    assert!(home.path("cache/drumlin").exists());
    let siblings = std::fs::read_dir(home.path("data/drumlin")).unwrap().count();
    assert_eq!(siblings, 1, "nothing is left of its making");

    assert!(!home.run(&["backup", "src"]).ok().stdout.contains("made repository"));
    assert_eq!(home.run(&["--json", "snapshots"]).ok().objects().len(), 2);
    home.run(&["restore", &format!("latest:{}", home.text("src")), "-t", "out"]).ok();
    assert!(same(&home.path("src"), &home.path("out")));
    home.run(&["init"]).expect(1);
}

#[test]
fn init_makes_the_same_and_says_so_in_json() {
    let home = Home::new();
    let made = home.run(&["--json", "init"]).ok().the("initialized");
    assert_eq!(made["repository"], home.repository().to_str().unwrap());
    assert_eq!(made["key_file"], home.kept_key().to_str().unwrap());
    assert!(home.kept_key().to_str().unwrap().contains(made["id"].as_str().unwrap()));
    home.run(&["snapshots"]).ok();
}

/// Of the one that was made, not of the one that is used where none is named.
#[test]
fn the_command_that_init_gives_exports_the_key_of_what_it_has_made() {
    let home = Home::new();
    home.run(&["init"]).ok();
    let (place, key) = (home.text("elsewhere"), home.text("its.key"));
    let made = home.run(&["-r", &place, "init", "--key-file", &key]).ok().stdout;
    let command = made.lines().last().unwrap().strip_prefix("'drumlin ").unwrap().split_once(" FILE'").unwrap().0;
    let args: Vec<&str> = command.split(' ').chain(["copy.txt"]).collect();
    home.run(&args).ok();
    let snapshots = |key: &str| home.run(&["-r", &place, "--key-file", key, "snapshots"]).code;
    assert_eq!((snapshots("copy.txt"), snapshots(&home.text("its.key"))), (Some(0), Some(0)), "{command}");
}

#[test]
fn a_passphrase_is_used_instead_of_a_key_file() {
    let home = Home::new();
    home.sources();
    home.write("pw", "secret\n");
    let ran = home.run(&["-p", "pw", "backup", "src"]).ok();
    assert!(ran.stdout.contains("Without the passphrase"), "{}", ran.stdout);
    assert!(!home.path("config/drumlin/keys").exists());
    home.run(&["snapshots"]).expect(12);
    home.run(&["-p", "pw", "snapshots"]).ok();
}

#[test]
fn a_new_key_file_never_overwrites() {
    let home = Home::new();
    home.write("taken.key", "something dear");
    home.run(&["-r", "repo", "-k", "taken.key", "init"]).expect(1);
    assert_eq!(std::fs::read(home.path("taken.key")).unwrap(), b"something dear");
    assert!(!home.path("repo").exists());
    home.run(&["-r", "repo", "-k", "new.key", "init"]).ok();
    // A repository that can't be made leaves no key for it.
    home.run(&["-r", "repo", "-k", "second.key", "init"]).expect(1);
    home.run(&["-r", "no/such/folder", "-k", "second.key", "init"]).expect(1);
    assert!(!home.path("second.key").exists());
    home.run(&["-r", &format!("file://{}", home.text("repo")), "-k", "new.key", "snapshots"]).ok();
}

#[test]
fn variables_and_flags_name_places() {
    let home = Home::new();
    home.sources();
    home.run(&["-r", "repo", "-k", "repo.key", "init"]).ok();
    let mut command = home.command(&["backup", "src", "--cache-dir", "elsewhere"]);
    let output = command.env("DRUMLIN_REPOSITORY", "repo").env("DRUMLIN_KEY_FILE", "repo.key").output().unwrap();
    assert!(output.status.success());
    assert!(home.path("elsewhere").exists() && !home.path("cache").exists() && !home.repository().exists());
    home.run(&["-r", "repo", "-k", "repo.key", "--no-cache", "backup", "src"]).ok();
    // Variables that are relative are none, by the XDG specification.
    let output = home.command(&["init"]).env("XDG_DATA_HOME", "relative").output().unwrap();
    assert!(output.status.success());
    assert!(home.path("home/.local/share/drumlin/repository").exists());
}

#[test]
fn a_dry_run_makes_nothing() {
    let home = Home::new();
    home.sources();
    let ran = home.run(&["--json", "backup", "-n", "src"]).ok();
    let summary = ran.the("summary");
    assert_eq!((&summary["dry_run"], &summary["total_files_processed"]), (&true.into(), &4.into()));
    assert!(summary.get("snapshot_id").is_none() && summary["data_added"].as_u64() > Some(0));
    assert!(!home.path("data").exists() && !home.path("config").exists() && !home.path("cache").exists());

    home.run(&["backup", "src"]).ok();
    let files = || {
        let list = std::process::Command::new("find").arg(home.repository()).output().unwrap();
        list.stdout
    };
    let before = files();
    home.write("src/new", "new");
    assert_eq!(home.run(&["--json", "backup", "-n", "src"]).ok().the("summary")["entries_new"], 1);
    assert_eq!(files(), before);
}

#[test]
fn caches_are_shown_and_cleared() {
    let home = Home::new();
    home.sources();
    assert!(home.run(&["cache"]).ok().stdout.contains("there are none"));
    home.run(&["backup", "src"]).ok();
    home.run(&["-r", "repo", "-k", "repo.key", "init"]).ok();
    home.run(&["-r", "repo", "-k", "repo.key", "backup", "src"]).ok();
    let caches = home.run(&["--json", "cache"]).ok().objects();
    assert_eq!(caches.len(), 2);
    assert!(caches.iter().all(|c| c["bytes"].as_u64() > Some(0)), "{caches:?}");
    home.run(&["-r", "repo", "cache", "clear"]).ok();
    assert_eq!(home.run(&["--json", "cache"]).ok().objects().len(), 1);
    home.run(&["cache", "clear"]).ok();
    assert_eq!(home.run(&["--json", "cache"]).ok().objects().len(), 0);
    assert_eq!(
        home.run(&["--json", "backup", "src"]).ok().the("summary")["entries_new"],
        0,
        "the parent is found without it"
    );
}

/// A folder for caches that the user names may hold other things, by whatever names.
#[test]
fn what_is_no_cache_is_not_cleared() {
    let home = Home::new();
    home.write("src/file", "contents");
    home.run(&["init"]).ok();
    let (md5, digest) = ("0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210");
    home.write(&format!("caches/{md5}/thesis"), "mine");
    home.write(&format!("caches/{digest}"), "mine");
    home.run(&["--cache-dir", "caches", "backup", "src"]).ok();
    let count = || std::fs::read_dir(home.path("caches")).unwrap().count();
    let before = count();
    home.run(&["--cache-dir", "caches", "cache", "clear"]).ok();
    assert_eq!(count(), before - 1, "not the cache alone");
    assert!(home.path(&format!("caches/{md5}/thesis")).exists() && home.path(&format!("caches/{digest}")).exists());
    // A cache that somebody has put something into is one no longer.
    home.run(&["--cache-dir", "caches", "backup", "src"]).ok();
    let cache =
        home.run(&["--json", "--cache-dir", "caches", "cache"]).ok().objects()[0]["path"].as_str().unwrap().to_owned();
    home.write(&format!("{cache}/mine"), "mine");
    let told = home.run(&["--cache-dir", "caches", "cache", "clear"]).expect(0).stderr;
    assert!(told.contains(&format!("'{cache}' holds more than a cache")), "{told}");
    assert!(home.path(&format!("{cache}/runs")).exists());
}

/// Who is stopped in the midst of clearing finds the rest another time.
#[test]
fn a_cache_that_could_not_be_removed_whole_is_still_one() {
    let home = Home::new();
    home.write("src/file", "contents");
    home.run(&["backup", "src"]).ok();
    let cache = home.run(&["--json", "cache"]).ok().objects()[0]["path"].as_str().unwrap().to_owned();
    (0..20).for_each(|n| std::fs::write(format!("{cache}/.scratch-{n}"), "").unwrap());
    // What comes last in the folder can't be removed.
    let parts = std::fs::read_dir(&cache).unwrap().map(|part| part.unwrap().path());
    let stays = parts.filter(|part| part.is_file()).last().unwrap();
    let set =
        |flag: &str| std::process::Command::new("chattr").arg(flag).arg(&stays).status().is_ok_and(|s| s.success());
    if !set("+i") {
        return;
    }
    let told = home.run(&["cache", "clear"]);
    let found = home.run(&["--json", "cache"]).ok().objects();
    assert!(set("-i"));
    assert!(told.expect(1).stderr.contains(&cache));
    assert_eq!(found[0]["path"], *cache);
    home.run(&["cache", "clear"]).ok();
    assert!(!std::path::Path::new(&cache).exists());
}

#[test]
fn own_folders_are_left_out_of_a_backup_around_them() {
    let home = Home::new();
    home.sources();
    home.run(&["backup", "."]).ok();
    let names = home.run(&["ls", "latest"]).ok().stdout;
    assert!(names.contains("/src/a.txt") && names.contains("/config/drumlin/keys"), "{names}");
    assert!(!names.contains("/drumlin/repository/config") && !names.contains("/cache/drumlin/"), "{names}");
    let why = home.run(&["why", "--source", ".", "data/drumlin/repository/config"]).ok().stdout;
    assert!(why.contains("excluded") && why.contains("built in"), "{why}");
}
