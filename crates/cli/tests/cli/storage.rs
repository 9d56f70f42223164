//! Storage that is full, read-only, or of a newer version.

use crate::home::{Home, Ran, same};
use drumlin_testkit::{LoopFs, Rng};
use std::path::Path;
use std::process::Command;

/// Room for the packs that a backup sets aside while it writes.
const FS_BYTES: u64 = 256 << 20;

/// A file system of its own, if one can be mounted.
fn mounted(bytes: u64) -> Option<LoopFs> {
    let fs = LoopFs::new(bytes);
    if fs.is_none() {
        eprintln!("skipped: no file system can be mounted here");
    }
    fs
}

/// A repository on a file system of its own, with the usual sources saved in it, and what runs the program with it.
fn on_its_own(home: &Home) -> Option<(LoopFs, impl Fn(&[&str]) -> Ran)> {
    let fs = mounted(FS_BYTES)?;
    home.sources();
    let repo = fs.path().join("repo").to_str().unwrap().to_owned();
    let run = move |args: &[&str]| home.run(&[&["-r", &repo, "-k", "k"], args].concat());
    run(&["init"]).ok();
    run(&["backup", "src"]).ok();
    Some((fs, run))
}

#[test]
fn a_newer_format_is_told_and_left_alone() {
    let home = Home::new();
    home.sources();
    home.run(&["backup", "src"]).ok();
    home.tamper(&home.repository().join("config"), |bytes| {
        assert_eq!(bytes[VERSION_AT], drumlin_format::VERSION);
        bytes[VERSION_AT] += 1;
    });
    for args in [&["snapshots"][..], &["backup", "src"], &["restore", "latest", "-t", "out"]] {
        let ran = home.run(args).expect(1);
        assert!(ran.stderr.contains("use a newer drumlin"), "{}", ran.stderr);
    }
}

/// Where an object's header has its version.
const VERSION_AT: usize = 7;

#[test]
fn a_read_only_repository_can_be_read() {
    let home = Home::new();
    // Root is stopped by a mount alone.
    let Some((fs, run)) = on_its_own(&home) else { return };
    let mount = Command::new("mount").args(["-o", "remount,ro"]).arg(fs.path()).status().unwrap();
    assert!(mount.success());
    for args in
        [&["snapshots"][..], &["ls", "latest"], &["restore", "latest", "-t", "out"], &["stats"], &["key", "list"]]
    {
        run(args).ok();
        run(&[&["--no-cache"], args].concat()).ok();
    }
    run(&["backup", "-n", "src"]).ok();
    let ran = run(&["backup", "src"]).expect(1);
    assert!(ran.stderr.contains("Read-only file system") && ran.stderr.contains("hint:"), "{}", ran.stderr);
}

/// Let a file of this length take all the room that there is. Gives its length then.
fn fill(file: &std::fs::File, len: u64) -> u64 {
    let (mut size, mut len) = (FS_BYTES, len);
    while size >= 4096 {
        match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), len, size) {
            Ok(()) => len += size,
            Err(_) => size /= 2,
        }
    }
    len
}

#[test]
fn a_full_disk_fails_and_harms_nothing() {
    let home = Home::new();
    let Some((fs, run)) = on_its_own(&home) else { return };
    // All but a little is taken by others.
    let filler = std::fs::File::create(fs.path().join("filler")).unwrap();
    let room = fill(&filler, 0) - (1 << 20);
    filler.set_len(room).unwrap();
    filler.sync_all().unwrap();
    home.write("noise", Rng::new(1).bytes(8 << 20));
    let ran = run(&["backup", "noise"]).expect(1);
    assert!(ran.stderr.contains("No space left") && ran.stderr.contains("make room"), "{}", ran.stderr);
    assert_eq!(run(&["--json", "snapshots"]).ok().objects().len(), 1);
    run(&["check", "--read-data"]).ok();
    // And with no room at all.
    fill(&filler, room);
    for args in [&["forget", "latest"][..], &["prune"], &["repair"]] {
        let ran = run(args).expect(1);
        assert!(ran.stderr.contains("No space left") && ran.stderr.contains("make room"), "{args:?}: {}", ran.stderr);
    }
    run(&["restore", &home.saved_folder(), "-t", "out"]).ok();
    assert!(same(&home.path("src"), &home.path("out")));
}

#[test]
fn a_cache_without_room_costs_nothing_but_time() {
    let home = Home::new();
    home.sources();
    let Some(fs) = mounted(16 << 20) else { return };
    let cache = fs.path().join("cache");
    let run = |args: &[&str]| home.run(&[&["--cache-dir", cache.to_str().unwrap()], args].concat());
    run(&["backup", "src"]).ok();
    home.write("src/more", Rng::new(3).bytes(1 << 20));
    let filler = std::fs::File::create(fs.path().join("filler")).unwrap();
    fill(&filler, 0);
    for args in [&["backup", "src"][..], &["backup", "src"], &["restore", &home.saved_folder(), "-t", "out"]] {
        let ran = run(args).expect(0);
        assert!(ran.stderr.contains("No space left") && ran.stderr.contains(cache.to_str().unwrap()), "{}", ran.stderr);
        assert_eq!(ran.stderr.matches("No space left").count(), 1, "{}", ran.stderr);
    }
    assert!(same(&home.path("src"), &home.path("out")));
    for args in [&["ls", "latest"][..], &["check"], &["check", "--read-data"], &["forget", "latest"]] {
        run(args).expect(0);
    }
    // Nothing is left of what had no room.
    let named = std::fs::read_dir(&cache).unwrap().map(|e| e.unwrap().path().join("runs"));
    let runs: Vec<_> = named.filter(|runs| runs.exists()).flat_map(|runs| std::fs::read_dir(runs).unwrap()).collect();
    assert!(runs.len() <= 3, "{runs:?}");
}

/// A key that finds no room leaves nothing that only it would open.
#[test]
fn a_full_disk_for_keys_leaves_nothing_behind() {
    let home = Home::new();
    home.sources();
    let Some(fs) = mounted(16 << 20) else { return };
    let (filler, key) = (fs.path().join("filler"), fs.path().join("k").to_str().unwrap().to_owned());
    let full = std::fs::File::create(&filler).unwrap();
    fill(&full, 0);
    let run = |args: &[&str]| home.run(&[&["-r", "repo", "-k", &key], args].concat());
    let ran = run(&["init"]).expect(1);
    assert!(ran.stderr.contains("No space left"), "{}", ran.stderr);
    assert!(!home.path("repo").exists() && !Path::new(&key).exists());
    full.set_len(0).unwrap();
    run(&["init"]).ok();
    fill(&full, 0);
    let second = format!("{key}2");
    run(&["key", "add", "--new-key-file", &second]).expect(1);
    assert!(!Path::new(&second).exists());
    assert_eq!(run(&["--json", "key", "list"]).ok().objects().len(), 1);
}

/// Wherever the room ends: what was put is taken back, and the next attempt finds nothing in its way.
#[test]
fn a_repository_that_has_no_room_can_be_made_once_there_is_some() {
    let home = Home::new();
    let Some(fs) = mounted(16 << 20) else { return };
    let full = std::fs::File::create(fs.path().join("filler")).unwrap();
    let (mut failed, mut left) = (0, 0);
    for room in (0..12).map(|blocks| blocks * 4096) {
        let taken = fill(&full, 0);
        full.set_len(taken - room).unwrap();
        full.sync_all().unwrap();
        let (repository, key) = (fs.path().join(format!("repo-{room}")), format!("key-{room}"));
        let run = || home.run(&["-r", repository.to_str().unwrap(), "-k", &key, "init"]);
        let ran = run();
        if ran.code != Some(0) {
            failed += 1;
            left += usize::from(repository.join("keys").exists());
            assert!(
                ran.stderr.contains("make room on the storage of") && !ran.stderr.contains("prune"),
                "{}",
                ran.stderr
            );
            full.set_len(0).unwrap();
            run().ok();
        }
        full.set_len(0).unwrap();
        std::fs::remove_dir_all(&repository).unwrap();
    }
    assert!(failed > 1 && left > 0, "{failed}, {left} of them with folders");
}

/// Whoever prunes a storage that is nearly full wants room, and there is none to write anything anew.
#[test]
fn a_prune_without_room_says_what_it_has_left() {
    let home = Home::new();
    let Some((fs, run)) = on_its_own(&home) else { return };
    home.write("src/gone", Rng::new(1).bytes(20 << 20));
    run(&["backup", "src"]).ok();
    std::fs::remove_file(home.path("src/gone")).unwrap();
    (0..20).for_each(|n| drop(home.write(&format!("src/mixed/{n}"), Rng::new(n + 2).bytes(1 << 20))));
    run(&["backup", "src"]).ok();
    (0..12).for_each(|n| std::fs::remove_file(home.path(&format!("src/mixed/{n}"))).unwrap());
    run(&["backup", "src"]).ok();
    run(&["forget", "--keep-last", "1"]).ok();
    let full = std::fs::File::create(fs.path().join("filler")).unwrap();
    let taken = fill(&full, 0);
    full.set_len(taken - (2 << 20)).unwrap();
    full.sync_all().unwrap();
    let ran = run(&["--json", "prune"]).expect(3);
    let pruned = ran.the("prune");
    assert!(ran.stderr.contains("there was no room to write packs anew"), "{}", ran.stderr);
    assert!(pruned["lacked_room"] == true && pruned["removed"]["bytes"].as_u64() > Some(20 << 20), "{pruned}");
    drop(full);
    std::fs::remove_file(fs.path().join("filler")).unwrap();
    let pruned = run(&["--json", "prune"]).ok().the("prune");
    assert!(pruned["lacked_room"] == false && pruned["bytes_written"].as_u64() > Some(7 << 20), "{pruned}");
    run(&["check", "--read-data"]).ok();
}

/// Not with an advice to make a new one there.
#[test]
fn a_repository_without_its_config_is_told_as_that() {
    let home = Home::new();
    home.sources();
    home.run(&["backup", "src"]).ok();
    for name in ["config", "config.copy"] {
        std::fs::rename(home.repository().join(name), home.path(&format!("kept-{name}"))).unwrap();
    }
    for args in [&["snapshots"][..], &["check"], &["repair"], &["backup", "src"], &["restore", "latest", "-t", "out"]] {
        let ran = home.run(args).expect(1);
        assert!(
            ran.stderr.contains("has lost its config") && ran.stderr.contains("from a copy"),
            "{args:?}: {}",
            ran.stderr
        );
    }
    std::fs::rename(home.path("kept-config.copy"), home.repository().join("config.copy")).unwrap();
    home.run(&["repair"]).ok();
    home.run(&["check"]).ok();
}

#[test]
fn a_target_that_is_full_or_read_only_is_told() {
    let home = Home::new();
    home.sources();
    home.write("src/large", Rng::new(2).bytes(24 << 20));
    home.run(&["backup", "src"]).ok();
    let Some(fs) = mounted(16 << 20) else { return };
    let target = fs.path().join("out");
    let restore = ["restore", &home.saved_folder(), "-t", target.to_str().unwrap()];
    let ran = home.run(&restore);
    assert!(matches!(ran.code, Some(1 | 3)), "{}", ran.stderr);
    assert!(ran.stderr.contains("No space left on device") && !ran.stderr.contains("os error"), "{}", ran.stderr);
    assert!(!target.join("large").exists(), "half a file would pass for a whole one");
    assert!(Command::new("mount").args(["-o", "remount,ro"]).arg(fs.path()).status().unwrap().success());
    let elsewhere = fs.path().join("new");
    let ran = home.run(&["restore", "latest", "-t", elsewhere.to_str().unwrap()]).expect(1);
    assert!(ran.stderr.contains("Read-only file system") && !ran.stderr.contains("os error"), "{}", ran.stderr);
    // Nothing of it is the repository's fault.
    home.run(&["restore", &home.saved_folder(), "-t", "out"]).ok();
    assert!(same(&home.path("src"), &home.path("out")));
}
