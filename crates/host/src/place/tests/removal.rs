//! Whole trees removed, and nothing else.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use drumlin_testkit::tree;

use super::super::Error;
use super::*;
use crate::meta::Kind;

#[test]
fn deep_and_wide_and_with_links_out() {
    let Some(fs) = loop_fs() else { return };
    fs::write(fs.path().join("precious"), b"x").expect("written");
    let dir = open(fs.path());
    let top = dir.make_dir(b"top").expect("made");
    let mut deep = Arc::clone(&top);
    for i in 0..300 {
        deep = deep.make_dir(&[b'd'; 100]).expect("made");
        deep.place_file(format!("file {i}").as_bytes(), b"", &plain(0o600)).expect("placed");
        let target = Extras { target: b"/".to_vec(), ..Extras::default() };
        deep.symlink(b"out", &Wanted { extras: &target, ..plain(0o777) }).expect("made");
    }
    drop(deep);
    for i in 0..5000 {
        top.place_file(format!("wide {i}").as_bytes(), b"", &plain(0o600)).expect("placed");
    }
    top.mknod(b"pipe", Kind::Fifo, 0, &plain(0o600)).expect("made");
    // Of this file system: other tests have theirs.
    let is_here = |fd: &fs::DirEntry| fs::read_link(fd.path()).is_ok_and(|of| of.starts_with(fs.path()));
    let descriptors = || fs::read_dir("/proc/self/fd").expect("listed").flatten().filter(is_here).count();
    let before = descriptors();
    let removed = dir.remove_tree(b"top").expect("removed");
    assert_eq!((removed.entries, removed.failures), (1 + 3 * 300 + 5001, 0));
    assert!(descriptors() <= before, "descriptors are returned");
    assert!(fs.path().join("precious").exists() && !fs.path().join("top").exists());
    assert!(dir.remove_tree(b"top").is_err_and(|e| e.is_missing()));
    assert_eq!(dir.remove_tree(b"precious").expect("removed").entries, 1);
}

#[test]
fn what_resists_is_told_and_the_rest_goes() {
    let Some(fs) = loop_fs() else { return };
    let nasty = fs.dir("nasty").expect("made");
    tree::nasty(&nasty, true).expect("made");
    // Far below what is held open at once.
    let dir = open(fs.path());
    let mut deep = dir.open_dir(b"nasty").expect("opened").make_dir(b"deep").expect("made");
    for _ in 0..120 {
        deep = deep.make_dir(b"d").expect("made");
    }
    let lock = Extras { flags: 0x10, ..Extras::default() };
    deep.place_file(b"stuck", b"", &Wanted { extras: &lock, ..plain(0o600) }).expect("placed");
    deep.place_file(b"free", b"", &plain(0o600)).expect("placed");
    let removed = dir.remove_tree(b"nasty").expect("begun");
    let mut failed: Vec<String> = removed.failed.iter().map(|(p, _)| String::from_utf8_lossy(p).into_owned()).collect();
    failed.sort();
    let stuck = format!("nasty/deep/{}stuck", "d/".repeat(120));
    let flags =
        ["append", "dir-append/inside", "dir-immutable/inside", "immutable"].map(|n| format!("nasty/flags/{n}"));
    assert_eq!(failed, [vec![stuck], flags.to_vec()].concat());
    assert_eq!(removed.failures, 5);
    assert!(removed.entries > 3000);
    tree::unprotect(&nasty).expect("unlocked");
    let removed = dir.remove_tree(b"nasty").expect("removed");
    assert_eq!((removed.failures, removed.entries), (0, 1 + (1 + 120 + 1) + (1 + 2 + 2 * 2)));
}

#[test]
fn mounted_file_systems_are_not_entered() {
    let (Some(fs), true) = (loop_fs(), root()) else { return };
    fs::create_dir_all(fs.path().join("tree/mounted")).expect("made");
    fs::create_dir(fs.path().join("kept")).expect("made");
    fs::write(fs.path().join("kept/file"), b"x").expect("written");
    // The same device, so that only the mount itself tells.
    let mount =
        |args: &[&std::path::Path]| Command::new("mount").arg("--bind").args(args).status().is_ok_and(|s| s.success());
    if !mount(&[&fs.path().join("kept"), &fs.path().join("tree/mounted")]) {
        return;
    }
    let removed = open(fs.path()).remove_tree(b"tree").expect("begun");
    let unmounted = Command::new("umount").arg(fs.path().join("tree/mounted")).status().is_ok_and(|s| s.success());
    assert!(unmounted);
    assert!(matches!(&removed.failed[..], [(path, e)] if path == b"tree/mounted" && e.errno() == Some(libc::EXDEV)));
    assert!(fs.path().join("kept/file").exists());
}

#[test]
fn a_user_removes_what_she_locked() {
    if !root() {
        return;
    }
    let home = tempfile::tempdir().expect("made");
    std::os::unix::fs::chown(home.path(), Some(STRANGER), Some(STRANGER)).expect("given");
    as_stranger(|| {
        let dir = open(home.path());
        let owner = Some((STRANGER, STRANGER));
        let top = dir.make_dir(b"top").expect("made");
        for mode in [0o000, 0o100, 0o300, 0o555] {
            let sub = top.make_dir(format!("{mode:o}").as_bytes()).expect("made");
            sub.place_file(b"file", b"", &Wanted { owner, ..plain(0) }).expect("placed");
            sub.finish_dir(&Wanted { owner, ..plain(mode) }).expect("finished");
        }
        top.finish_dir(&Wanted { owner, ..plain(0o500) }).expect("finished");
        let removed = dir.remove_tree(b"top").expect("removed");
        assert_eq!((removed.entries, removed.failures), (9, 0), "{:?}", removed.failed);
    });
}

#[test]
fn one_entry_at_a_time() {
    let home = tempfile::tempdir().expect("made");
    let dir = open(home.path());
    dir.make_dir(b"empty").expect("made");
    dir.make_dir(b"full").expect("made").create_file(b"x").expect("created");
    symlink("full", home.path().join("link")).expect("made");
    dir.remove(b"empty").expect("removed");
    dir.remove(b"link").expect("removed");
    assert!(matches!(dir.remove(b"full"), Err(Error::System { .. })));
    assert!(dir.remove(b"gone").is_err_and(|e| e.is_missing()));
    assert_eq!(dir.list().expect("listed").iter().collect::<Vec<_>>(), [b"full"]);
}
