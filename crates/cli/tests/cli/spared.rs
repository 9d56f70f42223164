//! What nobody meant, and the program doesn't do: delete what it needs itself or was never saved, take an empty
//! variable for everything.

use crate::home::{Home, same};
use drumlin_testkit::LoopFs;
use std::fs;
use std::os::unix::fs::symlink;

/// Everything that the program keeps lies in what is saved, as it does by default.
fn at_home() -> (Home, impl Fn(&Home, &[&str]) -> crate::home::Ran) {
    let home = Home::new();
    home.write("home/file", "saved");
    home.write("home/dir/file", "saved");
    let run = |home: &Home, args: &[&str]| {
        let mut command = home.command(args);
        for name in ["DATA", "CONFIG", "CACHE", "STATE"] {
            command.env_remove(format!("XDG_{name}_HOME"));
        }
        command.output().unwrap().into()
    };
    (home, run)
}

#[test]
fn a_restore_that_deletes_spares_the_repository() {
    let (home, run) = at_home();
    let saved = home.text("home");
    run(&home, &["backup", &saved]).expect(0);
    home.write("home/new", "new");
    home.write("home/.local/share/other/file", "new");
    let folder = format!("latest:{saved}");
    for target in [vec![folder.as_str(), "--target", &saved], vec!["latest", "--target", "/", "--overwrite", "never"]] {
        let ran = run(&home, &[&["restore", "--delete", "-v"], &target[..]].concat()).expect(0);
        assert!(home.path("home/.local/share/drumlin/repository/config").exists(), "{}", ran.stdout);
        assert!(!home.path("home/new").exists() && !home.path("home/.local/share/other").exists(), "{}", ran.stdout);
    }
    assert!(home.path("home/.config/drumlin/keys").exists() && home.path("home/.cache/drumlin").exists());
    run(&home, &["check", "--read-data"]).expect(0);
    for within in ["", "/x/y"] {
        let target = home.text(&format!("home/.local/share/drumlin/repository{within}"));
        let ran = run(&home, &["restore", "latest", "--target", &target]).expect(1);
        assert!(ran.stderr.contains("lies in the repository that is read"), "{}", ran.stderr);
    }
    assert!(!home.path("home/.local/share/drumlin/repository/x").exists());
}

/// Not only the repository that is read, and not only the key that was given: what a copy is restored from knows
/// nothing of the first one.
#[test]
fn a_restore_that_deletes_spares_other_repositories_and_their_keys() {
    let (home, run) = at_home();
    let saved = home.text("home");
    home.write("home/was-a-file", "contents");
    run(&home, &["backup", &saved]).expect(0);
    let mine = home.text("home/.local/share/drumlin/repository");
    run(&home, &["-r", "usb", "-k", "usb.key", "init", "--cut-like", &mine]).expect(0);
    run(&home, &["copy", "--to", "usb", "--to-key-file", "usb.key"]).expect(0);
    // Another one, and keys that profiles and variables name, all made since.
    run(&home, &["-r", "home/other", "-k", "usb2.key", "init"]).expect(0);
    run(&home, &["-r", "home/third", "-k", "home/third.key", "init"]).expect(0);
    let (third, key) = (home.text("home/third"), home.text("home/third.key"));
    let profiles = format!("[profile.third]\nrepository = '{third}'\nkey-file = '{key}'\n");
    home.write("home/.config/drumlin/profiles.toml", profiles);
    home.write("home/variable.key", "its");
    // A repair would make the first one's config anew.
    fs::remove_file(home.path("home/other/config")).unwrap();
    // And two that lie deeper in what is to go: below a new folder, and where a file was.
    home.write("home/disks/one/new", "new");
    run(&home, &["-r", "home/disks/one/deep", "-k", "usb3.key", "init"]).expect(0);
    fs::remove_file(home.path("home/was-a-file")).unwrap();
    fs::create_dir(home.path("home/was-a-file")).unwrap();
    run(&home, &["-r", "home/was-a-file/deep", "-k", "usb4.key", "init"]).expect(0);
    let restore = |more: &[&str]| {
        let folder = format!("latest:{saved}");
        let args = [&["-r", "usb", "-k", "usb.key", "restore", &folder, "--target", &saved, "--delete"], more].concat();
        let mut command = home.command(&args);
        for name in ["DATA", "CONFIG", "CACHE", "STATE"] {
            command.env_remove(format!("XDG_{name}_HOME"));
        }
        crate::home::Ran::from(command.env("DRUMLIN_KEY_FILE", home.path("home/variable.key")).output().unwrap())
    };
    home.write("home/dir/new", "new");
    // The one that nothing names is told, and stays.
    let ran = restore(&["-v"]).expect(3);
    assert!(ran.stderr.contains("home/other") && ran.stderr.contains("it is a repository"), "{}", ran.stderr);
    assert!(ran.stderr.contains("home/disks/one/deep: it is a repository"), "{}", ran.stderr);
    assert!(ran.stderr.contains("home/was-a-file: a directory of that name is there"), "{}", ran.stderr);
    assert!(!home.path("home/dir/new").exists() && !home.path("home/disks/one/new").exists());
    for there in [
        ".local/share/drumlin/repository/config",
        "other/config.copy",
        "third/config",
        "third.key",
        "variable.key",
        "disks/one/deep/config",
        "was-a-file/deep/config",
    ] {
        assert!(home.path("home").join(there).exists(), "{there}: {}", ran.stdout);
    }
    run(&home, &["check", "--read-data"]).expect(0);
}

/// An older key file doesn't take the place of the one in use.
#[test]
fn a_restore_leaves_the_key_in_use_as_it_is() {
    let (home, run) = at_home();
    run(&home, &["backup", &home.text("home")]).expect(0);
    let mut keys = fs::read_dir(home.path("home/.config/drumlin/keys")).unwrap();
    let key = keys.next().unwrap().unwrap().path();
    run(&home, &["backup", &home.text("home")]).expect(0);
    run(&home, &["key", "passwd", "--new-key-file", "new.key"]).expect(0);
    fs::rename(home.path("new.key"), &key).unwrap();
    let ran = run(&home, &["restore", "latest", "--target", "/"]).expect(3);
    assert!(ran.stderr.contains(".key: a different key or password file"), "{}", ran.stderr);
    // What was seen of the repository has changed as well, and stays without a word.
    assert!(!ran.stderr.contains("state") && ran.stderr.matches("error:").count() == 1, "{}", ran.stderr);
    run(&home, &["snapshots"]).expect(0);
}

/// What is excluded but for a source in it is no less left out.
#[test]
fn beside_a_source_in_an_excluded_folder_nothing_is_deleted_unasked() {
    let home = Home::new();
    for file in ["s/a", "s/.cache/keep/f", "s/.cache/other/precious"] {
        home.write(&format!("src/{file}"), "x");
    }
    home.run(&["backup", "src/s", "src/s/.cache/keep", "-e", ".cache"]).ok();
    let ran = home.run(&["restore", "latest", "--target", "/", "--delete"]).expect(1);
    assert!(ran.stderr.contains("rules left 1 entry out"), "{}", ran.stderr);
    assert!(home.path("src/s/.cache/other/precious").exists());
}

#[test]
fn what_rules_left_out_is_deleted_only_when_that_is_said() {
    let home = Home::new();
    home.sources();
    home.run(&["backup", "src", "-e", "*.o"]).expect(0);
    let (folder, target) = (home.saved_folder(), home.text("src"));
    let restore = |more: &[&str]| home.run(&[&["restore", &folder, "--target", &target, "--delete"], more].concat());
    let ran = restore(&[]).expect(1);
    for part in ["rules left 1 entry out", "--exclude", "--delete-excluded"] {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
    assert!(restore(&["-n"]).expect(0).stderr.contains("rules left 1 entry out"));
    // Naming some of it is no word about the rest, but the same rules say all of it.
    restore(&["--exclude", "*.a"]).expect(1);
    restore(&["--exclude", "*.o", "--exclude", "*.a"]).expect(1);
    restore(&["--exclude", "*.o"]).ok();
    restore(&["--delete-excluded", "--exclude", "*.o"]).ok();
    assert!(home.path("src/deep/c.o").exists());
    restore(&["--delete-excluded"]).ok();
    assert!(!home.path("src/deep/c.o").exists());
    restore(&["--delete-excluded", "--exclude", "*.o"]).ok();
    home.run(&["restore", &folder, "--target", &target, "--delete-excluded"]).expect(2);
}

/// The profile's rules say what no backup has: size, marks and all.
#[test]
fn what_the_profiles_rules_leave_out_is_not_deleted() {
    let home = Home::new();
    home.sources();
    let rules =
        "exclude = ['*.o']\nexclude-larger-than = '100K'\nexclude-caches = true\nexclude-if-present = ['.nobackup']";
    let (repository, source) = (home.text("repo"), home.text("src"));
    let profile = format!("[profile.home]\nrepository = '{repository}'\nsources = ['{source}']\n{rules}\n");
    home.write("config/drumlin/profiles.toml", profile);
    let tag = "Signature: 8a477f597d28d172789f06886806bc55\n";
    let kept =
        ["deep/x.o", "disk.img", "cache/thing", "cache/sub/thing", "marked/thing", "new/large", "new/cache/thing"];
    for file in kept {
        home.write(
            &format!("src/{file}"),
            vec![1; if file.contains('.') || file.contains("large") { 200 << 10 } else { 9 }],
        );
    }
    home.write("src/cache/CACHEDIR.TAG", tag);
    home.write("src/marked/.nobackup", "");
    fs::remove_dir_all(home.path("src/new")).unwrap();
    home.run(&["-r", "repo", "-k", "key", "init"]).ok();
    let run = |args: &[&str]| home.run(&[&["-k", "key", "--profile", "home"], args].concat());
    run(&["backup"]).ok();
    // Made since: all but two of it no backup would have.
    home.write("src/new/large", vec![1; 200 << 10]);
    home.write("src/new/cache/thing", "kept");
    home.write("src/new/cache/CACHEDIR.TAG", tag);
    home.write("src/new/small", "gone");
    home.write("src/deep/y", "gone");
    let there = |file: &str| home.path(&format!("src/{file}")).exists();
    home.run(&["-r", "repo", "-k", "key", "restore", "latest", "--target", "/", "--delete"]).expect(1);
    assert!(there("deep/y"), "without the profile nobody knows the rules");
    for dry_run in [true, false] {
        run(&[&["restore", "latest", "--target", "/", "--delete"][..], if dry_run { &["-n"] } else { &[] }].concat())
            .ok();
        assert!(kept.into_iter().all(there), "{:?}", kept.map(there));
        assert_eq!((there("deep/y"), there("new/small")), (dry_run, dry_run));
    }
    // Other rules than the backup's say nothing of what it left out; and what they leave out is restored all the same.
    fs::write(
        home.path("config/drumlin/profiles.toml"),
        fs::read_to_string(home.path("config/drumlin/profiles.toml")).unwrap().replace("'*.o'", "'deep'"),
    )
    .unwrap();
    fs::remove_dir_all(home.path("src/deep")).unwrap();
    run(&["restore", "latest", "--target", "/", "--delete"]).expect(1);
    run(&["restore", "latest", "--target", "/"]).ok();
    assert!(home.path("src/deep").is_dir() && there("disk.img"));
    run(&["restore", "latest", "--target", "/", "--delete", "--delete-excluded"]).ok();
    assert!(!there("disk.img") && !there("cache/thing") && there("cache/CACHEDIR.TAG"));
}

#[test]
fn what_could_not_be_read_is_deleted_only_when_that_is_said() {
    let home = Home::new();
    home.sources();
    home.run(&["backup", "src", "missing"]).expect(3);
    home.write("src/deep/new", "new");
    let (folder, target) = (home.saved_folder(), home.text("src"));
    let restore = |more: &[&str]| home.run(&[&["restore", &folder, "--target", &target, "--delete"], more].concat());
    for more in [&[][..], &["--exclude", "*.o"]] {
        let ran = restore(more).expect(1);
        for part in ["1 entry could not be read", "--delete-excluded"] {
            assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
        }
    }
    assert!(home.path("src/deep/new").exists());
    restore(&["--delete-excluded"]).expect(0);
    assert!(!home.path("src/deep/new").exists());
}

/// On the way to what is saved, and to the repository in it, there is a symlink.
#[test]
fn a_repository_is_not_saved_into_itself() {
    let (home, run) = at_home();
    fs::rename(home.path("home"), home.path("real")).unwrap();
    symlink("real", home.path("home")).unwrap();
    let saved = home.text("home/");
    for n in 0..3 {
        let ran = run(&home, &["--json", "backup", &saved]).expect(0);
        let summary = ran.the("summary");
        assert!(n == 0 || summary["data_added"] == 0, "{summary}");
    }
    assert!(!run(&home, &["ls", "-R", "latest"]).expect(0).stdout.contains("repository"));
}

#[test]
fn an_empty_variable_is_no_place_and_not_everything() {
    let home = Home::new();
    home.sources();
    let mut command = home.command(&["backup", "src"]);
    let ran: crate::home::Ran = command.env("DRUMLIN_REPOSITORY", "").output().unwrap().into();
    assert!(ran.expect(2).stderr.contains("DRUMLIN_REPOSITORY is set, but empty"));
    assert!(!home.repository().exists());
    let ran = home.run(&["--config", "profiles.toml", "backup", "src"]).expect(2);
    assert!(ran.stderr.contains("--profile"), "{}", ran.stderr);
    assert!(!home.repository().exists());
    home.run(&["backup", "src"]).expect(0);
    for args in [&["restore", "latest", "", "--target", "out"][..], &["dump", "latest", ""], &["ls", "latest", ""]] {
        let ran = home.run(args).expect(2);
        assert!(ran.stderr.contains("one of the paths is empty"), "{}", ran.stderr);
    }
    assert!(!home.path("out").exists());
}

#[test]
fn the_latest_snapshot_is_not_passed_over_in_silence() {
    let home = Home::new();
    home.sources();
    home.run(&["backup", "src"]).expect(0);
    home.write("src/new", "new");
    let id =
        home.run(&["--json", "backup", "src"]).expect(0).the("summary")["snapshot_id"].as_str().unwrap().to_owned();
    home.tamper(&home.repository().join("snapshots").join(&id), |bytes| bytes[100] ^= 1);
    let folder = home.saved_folder();
    for quiet in ["-q", "--json"] {
        let _ = fs::remove_dir_all(home.path("out"));
        let ran = home.run(&[quiet, "restore", &folder, "--target", "out"]).expect(3);
        assert!(ran.stderr.contains("passed over, perhaps the latest"), "{}", ran.stderr);
        assert!(home.path("out/a.txt").exists() && !home.path("out/new").exists());
        if quiet == "--json" {
            assert_eq!(ran.the("summary")["exit_code"], 3);
        }
    }
    for look in [&["ls", "latest"][..], &["find", "a.txt"], &["du", "latest"]] {
        home.run(look).expect(3);
    }
}

/// The commands after a backup unmount what the repository is on.
#[test]
fn when_hooks_run_the_repository_is_in_use_no_more() {
    let Some(disk) = LoopFs::new(64 << 20) else {
        println!("when_hooks_run_the_repository_is_in_use_no_more: passed over, it needs root and loop devices");
        return;
    };
    let home = Home::new();
    home.sources();
    let (mount, kept, key) = (disk.path().to_str().unwrap(), home.text("kept"), home.text("k"));
    fs::create_dir(&kept).unwrap();
    // Mounted a second time, so that the first one is there to be looked at.
    let before = format!("mountpoint -q {kept} || mount --bind {mount} {kept}");
    home.write(
        "config/drumlin/profiles.toml",
        format!(
            "[profile.disk]\nrepository = '{kept}/repository'\nkey-file = '{key}'\nsources = ['{}']\n[profile.disk.hooks]\nbefore = '{before}'\n\
             after = 'umount {kept}'\nfailure = 'umount {kept}'\n",
            home.text("src")
        ),
    );
    let direct = format!("{mount}/repository");
    home.run(&["-r", &direct, "-k", &key, "init"]).expect(0);
    for n in 0..3 {
        home.write("src/new", n.to_string());
        let ran = home.run(&["backup", "--profile", "disk"]).expect(0);
        assert!(fs::read_dir(&kept).unwrap().next().is_none(), "it is mounted still: {}", ran.stderr);
    }
    home.run(&["backup", "--profile", "disk", "missing"]).expect(1);
    assert!(fs::read_dir(&kept).unwrap().next().is_none(), "it is mounted still");
    home.run(&["-r", &direct, "-k", &key, "restore", &home.saved_folder(), "--target", "out"]).ok();
    assert!(same(&home.path("src"), &home.path("out")));
}
