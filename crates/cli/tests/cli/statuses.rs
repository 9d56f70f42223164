//! Each exit status, by what brings it about.

use crate::home::Home;
use std::os::unix::fs::PermissionsExt;

#[test]
fn usage_is_2() {
    let home = Home::new();
    for args in [
        &["backup"][..],
        &["nonsense"],
        &["backup", "--nonsense", "x"],
        &["restore", "latest"],
        &["backup", "--exclude-larger-than", "huge", "x"],
        &["backup", "--compression", "much", "x"],
        &["-r", "s3:bucket", "snapshots"],
        &["backup", "-q", "-v", "x"],
        &["-p", "x", "-k", "y", "backup", "/dev/null"],
        &["backup", "--command", "x"],
        &["backup", "--stdin", "a/b"],
        &["backup", "--command", "x", "--stdin", "y", "--", "true"],
        &["man", "nonsense"],
        &["check", "--read-data=0%"],
        &["check", "--read-data=11/10"],
        &["check", "--read-data", "much"],
        &["--no-cache", "check", "--read-data=10%"],
        &["-r", "new", "init"],
    ] {
        let ran = home.run(args).expect(2);
        assert!(!ran.stderr.is_empty(), "{args:?}");
        let ran = home.run(&[&["--json"], args].concat()).expect(2);
        assert_eq!(ran.the("exit_error")["code"], 2, "{args:?}");
    }
    assert!(!home.repository().exists());
}

#[test]
fn no_repository_is_10() {
    let home = Home::new();
    home.sources();
    for command in [
        "snapshots",
        "ls latest",
        "find x",
        "diff latest latest",
        "stats",
        "key list",
        "restore latest -t out",
        "du latest",
        "check",
    ] {
        let args: Vec<_> = command.split(' ').collect();
        assert!(home.run(&args).expect(10).stderr.contains("drumlin init"), "{command}");
        home.run(&[&["-r", "nowhere", "-p", "/dev/null"][..1], &["nowhere"], &args].concat()).expect(10);
    }
    home.run(&["-r", "nowhere", "backup", "src"]).expect(10);
    assert!(!home.path("nowhere").exists(), "a repository that is named is made by init alone");
    std::fs::create_dir(home.path("empty")).unwrap();
    let ran = home.run(&["-r", "empty", "--json", "snapshots"]).expect(10);
    assert_eq!(ran.the("exit_error")["code"], 10);
}

#[test]
fn a_wrong_key_is_12() {
    let home = Home::new();
    home.write("right", "correct horse\n");
    home.write("wrong", "battery staple\n");
    home.write("nonsense.key", "drumlin key file 1\nrubbish\n");
    home.run(&["-r", "repo", "-p", "right", "init"]).ok();
    home.run(&["-r", "other", "-k", "other.key", "init"]).ok();
    home.run(&["-r", "repo", "-p", "right", "snapshots"]).ok();
    home.run(&["-r", "repo", "-p", "wrong", "snapshots"]).expect(12);
    assert!(home.run(&["-r", "repo", "snapshots"]).expect(12).stderr.contains("DRUMLIN_PASSWORD"));
    home.run(&["-r", "repo", "-k", "other.key", "snapshots"]).expect(12);
    home.run(&["-r", "repo", "-k", "nonsense.key", "snapshots"]).expect(12);
    home.run(&["-r", "repo", "-p", "/dev/null", "snapshots"]).expect(12);
    home.run(&["-r", "repo", "-p", "missing", "snapshots"]).expect(1);
    home.run(&["-r", "repo", "--password-command", "false", "snapshots"]).expect(1);
    // What has no end is no passphrase, and isn't waited for.
    for endless in [["--password-command", "yes"], ["--password-file", "/dev/zero"]] {
        let ran = home.run(&[&["-r", "repo"][..], &endless, &["snapshots"]].concat()).expect(1);
        assert!(ran.stderr.contains("longer than any passphrase"), "{}", ran.stderr);
    }
    home.run(&["-r", "repo", "--password-command", "cat right", "snapshots"]).ok();
    let by = |name: &str, value: &str| home.command(&["-r", "repo", "snapshots"]).env(name, value).output().unwrap();
    assert_eq!(by("DRUMLIN_PASSWORD", "correct horse").status.code(), Some(0));
    assert_eq!(by("DRUMLIN_PASSWORD", "correct horse ").status.code(), Some(12));
    assert_eq!(by("DRUMLIN_PASSWORD_FILE", "right").status.code(), Some(0));
    assert_eq!(by("DRUMLIN_PASSWORD_COMMAND", "cat right").status.code(), Some(0));
    assert_eq!(by("DRUMLIN_KEY_FILE", "other.key").status.code(), Some(12));
    // A flag counts more than the environment.
    let mut command = home.command(&["-r", "repo", "-p", "right", "snapshots"]);
    assert_eq!(command.env("DRUMLIN_KEY_FILE", "other.key").output().unwrap().status.code(), Some(0));
}

#[test]
fn what_could_not_be_read_is_3() {
    let home = Home::new();
    let src = home.sources();
    let ran = home.run(&["backup", "src", "missing"]).expect(3);
    assert!(
        ran.stderr.contains(&format!("error: {}: No such file or directory\n", home.text("missing"))),
        "{}",
        ran.stderr
    );
    assert!(ran.stdout.contains("1 unreadable"), "{}", ran.stdout);
    let ran = home.run(&["--json", "backup", "src", "missing"]).expect(3);
    let error = ran.the("error");
    assert_eq!((error["path"].as_str(), error["kind"].as_str()), (Some(&home.text("missing")[..]), Some("unreadable")));
    assert_eq!(ran.the("summary")["entries_unreadable"], 1);
    // Nothing at all is no snapshot, nor a reason to make a repository.
    home.run(&["backup", "missing"]).expect(1);
    let bare = Home::new();
    bare.run(&["backup", "missing", "gone/../too"]).expect(1);
    assert!(!bare.path("data").exists());
    if !rustix::process::geteuid().is_root() {
        std::fs::set_permissions(src.join("a.txt"), std::fs::Permissions::from_mode(0o000)).unwrap();
        home.run(&["backup", "src"]).expect(3);
    }
}

#[test]
fn a_second_backup_of_the_same_sources_is_11() {
    let home = Home::new();
    home.sources();
    home.run(&["init"]).ok();
    let mut first = home.start(&["--json", "backup", "--stdin", "x"]);
    crate::interrupt::wait_for(&mut first, "\"status\"");
    let ran = home.run(&["--json", "backup", "--stdin", "x"]).expect(11);
    assert!(ran.the("exit_error")["message"].as_str().unwrap().contains(&first.id().to_string()));
    home.run(&["cache", "clear"]).expect(11);
    // Other sources are nobody's business.
    home.feed(&["backup", "--stdin", "y"], b"y").ok();
    home.run(&["backup", "src"]).ok();
    home.feed(&["backup", "-H", "other", "--stdin", "x"], b"x").ok();
    std::io::Write::write_all(&mut first.stdin.take().unwrap(), b"x").unwrap();
    assert_eq!(first.wait().unwrap().code(), Some(0));
    home.feed(&["backup", "--stdin", "x"], b"x").ok();
    home.run(&["cache", "clear"]).ok();
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let home = Home::new();
    home.sources();
    for n in 0..2000 {
        home.write(&format!("src/many/{n:0100}"), "");
    }
    home.run(&["backup", "src"]).ok();
    for args in [&["ls", "latest"][..], &["--json", "ls", "latest"], &["dump", "latest", "/"], &["man"]] {
        let mut child = home.start(args);
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), &output.stderr[..]), (Some(0), &b""[..]), "{args:?}");
    }
    // A backup is not for its reader.
    let mut child = home.start(&["-v", "backup", "src", "--force"]);
    drop(child.stdout.take());
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
    assert_eq!(home.run(&["--json", "snapshots"]).ok().objects().len(), 2);
}

#[test]
fn many_files_may_be_open() {
    let home = Home::new();
    // A program that it starts has its limits.
    let script = format!(
        "ulimit -Sn 64; exec {} backup --command x -- sh -c 'ulimit -Sn; ulimit -Hn'",
        env!("CARGO_BIN_EXE_drumlin")
    );
    let mut command = home.command::<&str>(&[]);
    let program = std::process::Command::new("sh")
        .args(["-c", &script])
        .envs(command.get_envs().filter_map(|(k, v)| Some((k, v?))))
        .output()
        .unwrap();
    assert!(program.status.success(), "{}", String::from_utf8_lossy(&program.stderr));
    command.args(["dump", "latest", "x"]);
    let limits = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let limits: Vec<_> = limits.lines().collect();
    assert!(limits.len() == 2 && limits[0] == limits[1], "{limits:?}");
}
