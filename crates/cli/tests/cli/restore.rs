//! `restore`.

use crate::home::{Home, same};
use std::os::unix::fs::MetadataExt;

fn saved() -> (Home, String) {
    let home = Home::new();
    home.sources();
    home.run(&["backup", "src"]).ok();
    let folder = home.saved_folder();
    (home, folder)
}

/// Whoever restores the latest of several machines' snapshots hears whose it is.
#[test]
fn whose_snapshot_is_restored_is_told() {
    let home = Home::new();
    home.sources();
    home.run(&["backup", "src", "-H", "mars"]).ok();
    let of_mars = home.run(&["restore", "latest", "-t", "out"]).ok();
    assert!(
        of_mars.stdout.contains("from:     snapshot ") && of_mars.stdout.contains(", host mars"),
        "{}",
        of_mars.stdout
    );
    home.run(&["backup", "src", "-H", "venus"]).ok();
    let of_any = home.run(&["restore", "latest", "-t", "out"]).expect(0);
    assert!(of_any.stderr.contains("the latest snapshot is one of host venus"), "{}", of_any.stderr);
    let of_mars = home.run(&["restore", "latest", "-H", "mars", "-t", "out"]).ok();
    assert!(of_mars.stdout.contains(", host mars"), "{}", of_mars.stdout);
    let id = home.run(&["--json", "snapshots", "-H", "venus"]).ok().the("snapshot")["id"].as_str().unwrap().to_owned();
    home.run(&["restore", &id, "-t", "out"]).ok();
    // This machine's own is what it thinks of.
    home.run(&["backup", "src"]).ok();
    home.run(&["restore", "latest", "-t", "out"]).ok();
}

/// And whoever restores the latest of several sets of sources, which of them it is of.
#[test]
fn of_which_sources_a_snapshot_is_that_is_restored_is_told() {
    let home = Home::new();
    home.sources();
    home.write("other/file", "something else");
    home.run(&["backup", "src"]).ok();
    home.run(&["restore", "latest", "-t", "out"]).ok();
    home.run(&["backup", "other"]).ok();
    let ran = home.run(&["restore", "latest", "-t", "out"]).expect(0);
    let told = format!(
        "'latest' is a snapshot of {} alone, and there are others of this host, as of {}: --path",
        home.text("other"),
        home.text("src")
    );
    assert!(ran.stderr.contains(&told), "{}", ran.stderr);
    home.run(&["restore", "latest", "--path", &home.text("src"), "-t", "out"]).ok();
    home.run(&["restore", "latest", &home.text("other/file"), "-t", "out"]).ok();
    let id = home.run(&["--json", "snapshots"]).ok().of_type("snapshot")[0]["id"].as_str().unwrap().to_owned();
    home.run(&["restore", &id, "-t", "out"]).ok();
    // One that has the others in it lacks nothing.
    let home = Home::new();
    home.write("tree/a/file", "in both");
    home.run(&["backup", "tree/a"]).ok();
    home.run(&["backup", "tree"]).ok();
    home.run(&["restore", "latest", "-t", "out"]).ok();
}

/// What is kept though it differs is not told as right.
#[test]
fn what_is_kept_is_not_called_right() {
    let (home, folder) = saved();
    home.run(&["restore", &folder, "-t", "out"]).ok();
    let again = home.run(&["restore", &folder, "-t", "out"]).ok();
    assert!(again.stdout.contains(" right already"), "{}", again.stdout);
    home.write("out/a.txt", "changed since");
    for overwrite in ["never", "if-newer"] {
        let ran = home.run(&["restore", &folder, "-t", "out", "--overwrite", overwrite]).ok();
        assert!(ran.stdout.contains(" kept as they were") && !ran.stdout.contains("right"), "{}", ran.stdout);
    }
}

#[test]
fn the_whole_and_parts_of_it() {
    let (home, folder) = saved();
    let summary = home.run(&["--json", "restore", "latest", "-t", "whole", "--verify"]).ok().the("summary");
    let below = format!("whole{}", home.text("src"));
    assert!(same(&home.path("src"), &home.path(&below)));
    assert_eq!((summary["exit_code"].as_i64(), summary["total_files_processed"].as_u64()), (Some(0), Some(4)));
    assert!(summary["files_verified"].as_u64() >= Some(4), "{summary}");
    let mtime = |p: &std::path::Path| (p.metadata().unwrap().mtime(), p.metadata().unwrap().mtime_nsec());
    assert_eq!(mtime(&home.path("src/a.txt")), mtime(&home.path(&below).join("a.txt")));

    home.run(&["restore", &folder, "-t", "sub", "/deep"]).ok();
    assert!(home.path("sub/deep/b.txt").exists() && !home.path("sub/a.txt").exists());
    home.run(&["restore", &folder, "-t", "inc", "-i", "*.txt"]).ok();
    assert!(home.path("inc/deep/b.txt").exists() && !home.path("inc/deep/c.o").exists());
    home.run(&["restore", &folder, "-t", "exc", "-e", "deep"]).ok();
    assert!(home.path("exc/a.txt").exists() && !home.path("exc/deep").exists());
    home.run(&["restore", "latest", "/no/such/path", "-t", "none"]).expect(1);
    home.run(&["restore", "ffff", "-t", "none"]).expect(1);
}

#[test]
fn what_could_not_be_written_is_3() {
    let (home, folder) = saved();
    // A mount point can't be replaced by a file; for users without that right, a folder that isn't theirs to write.
    let Some(fs) = drumlin_testkit::LoopFs::new(16 << 20) else { return };
    let taken = fs.path().parent().unwrap();
    let name = fs.path().file_name().unwrap().to_str().unwrap();
    home.write(&format!("src/{name}"), "a file where the target has a mount");
    home.run(&["backup", "src"]).ok();
    let ran = home.run(&["--json", "restore", &folder, "-t", taken.to_str().unwrap()]).expect(3);
    assert!(ran.of_type("error").iter().any(|e| e["kind"] == "unwritable"), "{}", ran.stderr);
    assert!(ran.the("summary")["entries_unwritable"].as_u64() >= Some(1));
}

#[test]
fn a_full_target_is_named_and_the_same_command_goes_on() {
    let home = Home::new();
    home.sources();
    let noise: Vec<u8> = drumlin_testkit::Rng::new(1).bytes(30 << 20);
    std::fs::write(home.path("src/large"), &noise).unwrap();
    home.run(&["backup", "src"]).ok();
    let Some(fs) = drumlin_testkit::LoopFs::new(24 << 20) else { return };
    let target = fs.path().join("out").to_str().unwrap().to_owned();
    let restore = || home.run(&["restore", &home.saved_folder(), "-t", &target]);
    let ran = restore().expect(1);
    assert!(ran.stderr.contains(&format!("'{target}' is full: ")), "{}", ran.stderr);
    assert!(ran.stderr.contains("restored so far") && ran.stderr.contains("continues from"), "{}", ran.stderr);
    home.write("src/large", "less");
    home.run(&["backup", "src"]).ok();
    restore().ok();
    assert!(same(&home.path("src"), std::path::Path::new(&target)));
}

/// What differs because it was kept is no damage, and no check would find any.
#[test]
fn what_was_kept_is_not_taken_for_damage() {
    let (home, folder) = saved();
    home.run(&["restore", &folder, "-t", "out"]).ok();
    home.write("out/a.txt", "it was changed");
    let ran = home.run(&["restore", &folder, "-t", "out", "--overwrite", "never", "--verify"]).expect(3);
    assert!(ran.stderr.contains("it differs from the snapshot"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("hint: 'drumlin check --read-data'"), "{}", ran.stderr);
}

#[test]
fn damage_is_3_and_named() {
    let (home, folder) = saved();
    home.damage();
    let ran = home.run(&["--json", "restore", &folder, "-t", "out", "--verify"]).expect(3);
    assert!(ran.the("summary")["files_verified"].as_u64() < Some(4), "{}", ran.stdout);
    let errors = ran.of_type("error");
    assert!(errors.iter().any(|e| e["kind"] == "damaged" && e["path"].is_string()), "{}", ran.stderr);
    assert!(ran.the("summary")["entries_damaged"].as_u64() >= Some(1));
    // To people the pack is named as check names it, and what to do.
    let told = home.run(&["restore", &folder, "-t", "out"]).expect(3).stderr;
    let checked = home.run(&["--json", "check", "--read-data"]).expect(1).the("damage");
    let pack = checked["object"].as_str().unwrap();
    assert!(told.contains(&format!(" of '{pack}' in the repository is damaged: ")), "{told}");
    assert!(told.contains("hint: 'drumlin check --read-data' lists"), "{told}");
    assert_ne!(home.run(&["dump", "latest", &home.text("src/deep/b.txt")]).code, Some(0));
}
