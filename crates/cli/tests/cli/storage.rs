//! Storage that is full, read-only, or of a newer version.

use crate::home::Home;
use drumlin_testkit::LoopFs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// Room for the packs that a backup sets aside while it writes.
const FS_BYTES: u64 = 256 << 20;

#[test]
fn a_newer_format_is_told_and_left_alone() {
    let home = Home::new();
    home.sources();
    home.run(&["backup", "src"]).ok();
    let config = home.repository().join("config");
    let mut bytes = std::fs::read(&config).unwrap();
    assert_eq!(bytes[VERSION_AT], drumlin_format::VERSION);
    bytes[VERSION_AT] += 1;
    std::fs::set_permissions(&config, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&config, bytes).unwrap();
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
    home.sources();
    // Root is stopped by a mount alone.
    let Some(fs) = LoopFs::new(FS_BYTES) else { return };
    let repo = fs.path().join("repo");
    let repo = repo.to_str().unwrap();
    home.run(&["-r", repo, "-k", "k", "init"]).ok();
    home.run(&["-r", repo, "-k", "k", "backup", "src"]).ok();
    let mount = Command::new("mount").args(["-o", "remount,ro"]).arg(fs.path()).status().unwrap();
    assert!(mount.success());
    for args in
        [&["snapshots"][..], &["ls", "latest"], &["restore", "latest", "-t", "out"], &["stats"], &["key", "list"]]
    {
        home.run(&[&["-r", repo, "-k", "k"], args].concat()).ok();
        home.run(&[&["-r", repo, "-k", "k", "--no-cache"], args].concat()).ok();
    }
    home.run(&["-r", repo, "-k", "k", "backup", "-n", "src"]).ok();
    let ran = home.run(&["-r", repo, "-k", "k", "backup", "src"]).expect(1);
    assert!(ran.stderr.contains("Read-only file system") && ran.stderr.contains("hint:"), "{}", ran.stderr);
}

#[test]
fn a_full_disk_fails_and_harms_nothing() {
    let home = Home::new();
    home.sources();
    let Some(fs) = LoopFs::new(FS_BYTES) else { return };
    let repo = fs.path().join("repo");
    let repo = repo.to_str().unwrap();
    home.run(&["-r", repo, "-k", "k", "init"]).ok();
    home.run(&["-r", repo, "-k", "k", "backup", "src"]).ok();
    // All but a little is taken by others.
    let filler = std::fs::File::create(fs.path().join("filler")).unwrap();
    let (mut size, mut taken) = (FS_BYTES, 0);
    while size >= 64 << 10 {
        match rustix::fs::fallocate(&filler, rustix::fs::FallocateFlags::empty(), taken, size) {
            Ok(()) => taken += size,
            Err(_) => size /= 2,
        }
    }
    filler.set_len(taken - (1 << 20)).unwrap();
    filler.sync_all().unwrap();
    let mut state = 1u64;
    let noise: Vec<u8> = (0..1 << 20)
        .flat_map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state ^ (state >> 29)) >> 16).to_le_bytes()
        })
        .collect();
    home.write("noise", &noise);
    let ran = home.run(&["-r", repo, "-k", "k", "backup", "noise"]).expect(1);
    assert!(ran.stderr.contains("No space left") && ran.stderr.contains("make room"), "{}", ran.stderr);
    assert_eq!(home.run(&["-r", repo, "-k", "k", "--json", "snapshots"]).ok().objects().len(), 1);
    home.run(&["-r", repo, "-k", "k", "restore", &format!("latest:{}", home.text("src")), "-t", "out"]).ok();
    assert!(crate::home::same(&home.path("src"), &home.path("out")));
}
