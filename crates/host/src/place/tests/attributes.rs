//! Metadata of single entries: order, refusals, leftovers, replacing.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use rustix::fd::AsFd;
use rustix::io::Errno;

use super::super::handle::Handle;
use super::super::{Error, Problem, What};
use super::*;
use crate::meta::{Kind, Stat};

fn stat(dir: &TargetDir, name: &str) -> Stat {
    dir.stat(name.as_bytes()).expect("looked at").expect("there")
}

fn problem(what: What, cause: Errno) -> Problem {
    Problem { what, cause }
}

#[test]
fn modes_of_many_files() {
    let home = tempfile::tempdir().expect("made");
    let dir = open(home.path());
    // The first one teaches what files get here; the others rely on that.
    for round in 0..2 {
        for mode in [0o644, 0o600, 0o000, 0o777, 0o666, 0o444, 0o4755, 0o2755, 0o1644] {
            let name = format!("{round}-{mode:o}");
            assert_eq!(dir.place_file(name.as_bytes(), b"contents", &plain(mode)).expect("placed"), vec![]);
            let is = stat(&dir, &name);
            assert_eq!((is.mode, is.mtime, is.size), (mode, plain(0).mtime, 8), "{name}");
            let name = format!("{round}-{mode:o}-big");
            let file = dir.create_file(name.as_bytes()).expect("created");
            assert_eq!(file.finish(&plain(mode)).expect("finished"), vec![]);
            assert_eq!((stat(&dir, &name).mode, stat(&dir, &name).mtime), (mode, plain(0).mtime));
        }
    }
}

#[test]
fn not_open_to_others_while_it_fills() {
    let home = tempfile::tempdir().expect("made");
    let dir = open(home.path());
    let file = dir.create_file(b"file").expect("created");
    let temp = dir.create_temp().expect("created");
    dir.make_dir(b"dir").expect("made");
    assert_eq!((stat(&dir, "file").mode, stat(&dir, "dir").mode), (0o600, 0o700));
    let temp_name = String::from_utf8(temp.name().to_vec()).expect("text");
    assert!(temp_name.starts_with(".drumlin-") && temp_name.ends_with(".tmp"));
    assert_eq!(stat(&dir, &temp_name).mode, 0o600);
    drop((file, temp));
    assert!(!dir.list().expect("listed").contains(temp_name.as_bytes()));
}

#[test]
fn the_old_file_stays_until_the_new_one_is_complete() {
    let home = tempfile::tempdir().expect("made");
    let dir = open(home.path());
    dir.place_file(b"name", b"old", &plain(0o644)).expect("placed");
    let old = stat(&dir, "name");
    let temp = dir.create_temp().expect("created");
    temp.write_at(0, b"half of the n").expect("written");
    drop(temp);
    assert_eq!(stat(&dir, "name"), old);
    let temp = dir.create_temp().expect("created");
    temp.write_at(0, b"new").expect("written");
    let mut back = [0; 8];
    assert_eq!((temp.read_at(0, &mut back).expect("read"), &back[..3]), (3, &b"new"[..]));
    temp.sync().expect("synced");
    assert_eq!(temp.commit_as(b"name", &plain(0o640)).expect("committed"), vec![]);
    assert_eq!(fs::read(home.path().join("name")).expect("read"), b"new");
    assert_eq!((stat(&dir, "name").mode, dir.list().expect("listed").len()), (0o640, 1));
    // A directory is not replaced by accident.
    dir.make_dir(b"dir").expect("made");
    let temp = dir.create_temp().expect("created");
    assert!(temp.commit_as(b"dir", &plain(0o640)).is_err());
    assert_eq!(dir.list().expect("listed").len(), 2);
}

#[test]
fn values_no_system_takes() {
    let home = tempfile::tempdir().expect("made");
    let dir = open(home.path());
    let order = Time { sec: 5, nsec: libc::UTIME_NOW as u32 };
    let problems = dir.place_file(b"now", b"", &Wanted { mtime: order, ..plain(0o600) }).expect("placed");
    assert_eq!(problems, vec![problem(What::Times, Errno::INVAL)], "an order to the kernel is no time");
    for (uid, gid, what) in [(u32::MAX, me().1, What::Owner), (me().0, u32::MAX, What::Group)] {
        let name = format!("{what}");
        let wanted = Wanted { owner: Some((uid, gid)), ..plain(0o6755) };
        let problems = dir.place_file(name.as_bytes(), b"", &wanted).expect("placed");
        assert_eq!(problems, vec![problem(what, Errno::INVAL), problem(What::Mode, Errno::PERM)]);
    }
    let bad = Extras {
        xattrs: vec![(b"nonsense".to_vec(), b"x".to_vec()), (b"user.\0".to_vec(), vec![])],
        ..Extras::default()
    };
    let problems = dir.place_file(b"attribute", b"", &Wanted { extras: &bad, ..plain(0o600) }).expect("placed");
    assert_eq!(problems.len(), 2);
    assert!(problems.iter().all(|p| matches!(p.what, What::Xattr(_)) && !p.to_string().is_empty()));
    let bad = Extras { target: b"a\0b".to_vec(), ..Extras::default() };
    assert!(dir.symlink(b"link", &Wanted { extras: &bad, ..plain(0o777) }).is_err());
    assert!(dir.symlink(b"link", &plain(0o777)).is_err(), "a symlink to nothing at all");
    assert!(dir.mknod(b"node", Kind::Dir, 0, &plain(0o777)).is_err());
}

#[test]
fn times_that_the_file_system_clamps_are_told() {
    let Some(fs) = loop_fs() else { return };
    let dir = open(fs.path());
    for (sec, fits) in [(-1, true), (i64::from(i32::MIN), true), (1 << 33, true), (1 << 40, false), (i64::MIN, false)] {
        let name = format!("t{sec}");
        let wanted = Wanted { mtime: Time { sec, nsec: 7 }, ..plain(0o600) };
        let problems = dir.place_file(name.as_bytes(), b"", &wanted).expect("placed");
        assert_eq!(problems.is_empty(), fits, "{sec}: {problems:?}");
    }
}

#[test]
fn without_owner_no_setuid() {
    let home = tempfile::tempdir().expect("made");
    let dir = open(home.path());
    let problems = dir.place_file(b"x", b"", &Wanted { owner: None, ..plain(0o6755) }).expect("placed");
    assert_eq!((problems, stat(&dir, "x").mode), (vec![problem(What::Mode, Errno::PERM)], 0o755));
}

#[test]
fn an_ordinary_user_gives_only_to_own_groups() {
    if !root() {
        return;
    }
    let home = tempfile::tempdir().expect("made");
    fs::set_permissions(home.path(), Permissions::from_mode(0o777)).expect("opened to all");
    let done = as_stranger(|| {
        let dir = open(home.path());
        let foreign = Wanted { owner: Some((1234, STRANGER)), ..plain(0o4644) };
        let mut done = Vec::new();
        for name in [b"a", b"b"] {
            done.push((
                dir.place_file(name, b"", &foreign).expect("placed"),
                stat(&dir, std::str::from_utf8(name).expect("text")),
            ));
        }
        done
    });
    for (problems, stat) in done {
        assert_eq!(problems, vec![problem(What::Owner, Errno::PERM), problem(What::Mode, Errno::PERM)]);
        assert_eq!((stat.uid, stat.gid, stat.mode), (STRANGER, STRANGER, 0o644));
    }
}

#[test]
fn existing_entries_are_amended_exactly() {
    let Some(fs) = loop_fs() else { return };
    let dir = open(fs.path());
    let acl: Vec<u8> = [2u32, 0x6_0001, !0, 0x4_0002, 1234, 0x4_0004, !0, 0x4_0010, !0, 0x20, !0]
        .iter()
        .flat_map(|w| w.to_le_bytes())
        .collect();
    let before = Extras {
        xattrs: vec![
            (
                b"security.capability".to_vec(),
                [0x0200_0001u32, 1, 0, 0, 0].iter().flat_map(|w| w.to_le_bytes()).collect(),
            ),
            (b"system.posix_acl_access".to_vec(), acl.clone()),
            (b"trusted.extra".to_vec(), b"1".to_vec()),
            (b"user.change".to_vec(), b"before".to_vec()),
            (b"user.extra".to_vec(), b"1".to_vec()),
        ],
        flags: 0x10 | 0x40,
        target: Vec::new(),
    };
    let after = Extras { xattrs: vec![(b"user.change".to_vec(), b"after".to_vec())], flags: 0x80, target: Vec::new() };
    let wanted = Wanted { owner: Some((1234, 4321)), extras: &before, ..plain(0o640) };
    assert_eq!(dir.place_file(b"file", b"x", &wanted).expect("placed"), vec![]);
    assert_eq!(dir.make_dir(b"dir").expect("made").finish_dir(&wanted).expect("finished"), vec![]);
    assert!(dir.remove(b"file").is_err(), "immutable");
    let new = Wanted { owner: Some((0, 0)), extras: &after, mtime: Time { sec: -3, nsec: 1 }, mode: 0o4755 };
    assert!(matches!(dir.amend(b"file", Kind::Dir, id(&dir, b"file"), &new), Err(Error::Swapped(_))));
    assert_eq!(dir.amend(b"file", Kind::File, id(&dir, b"file"), &new).expect("amended"), vec![]);
    let sub = dir.open_dir_for_writing(b"dir").expect("opened");
    sub.place_file(b"inside", b"", &plain(0o600)).expect("no longer immutable");
    assert_eq!(sub.finish_dir(&new).expect("finished"), vec![]);
    for name in ["file", "dir"] {
        let is = stat(&dir, name);
        assert_eq!((is.mode, is.uid, is.gid, is.mtime), (0o4755, 0, 0, new.mtime));
        let (fd, _) = dir.pin(name.as_bytes()).expect("held");
        let handle = Handle::path(fd.as_fd());
        assert_eq!(handle.xattr_names().expect("listed"), b"user.change\0");
        assert_eq!(handle.xattr(b"user.change").expect("read").expect("there"), b"after");
        assert_eq!(handle.flags().expect("read").expect("kept") & (0x10 | 0x40 | 0x80), 0x80);
    }
    // And back, over what is there now.
    assert_eq!(dir.amend(b"file", Kind::File, id(&dir, b"file"), &wanted).expect("amended"), vec![]);
    let (fd, is) = dir.pin(b"file").expect("held");
    assert_eq!((is.mode, is.uid), (0o640, 1234));
    assert_eq!(Handle::path(fd.as_fd()).xattr(b"system.posix_acl_access").expect("read"), Some(acl));
    assert!(dir.remove(b"file").is_err(), "immutable again");
    dir.while_unlocked(b"file", || dir.remove(b"file")).expect("unlocked").expect("removed");
}

/// Under its other names nothing changes, whose they may be.
#[test]
fn a_file_with_other_names_is_not_amended() {
    let Some(fs) = loop_fs() else { return };
    let dir = open(fs.path());
    dir.place_file(b"file", b"x", &plain(0o640)).expect("placed");
    let first = id(&dir, b"file");
    dir.hard_link(b"other", &dir, b"file", Some(first)).expect("linked");
    assert_eq!(dir.amend(b"file", Kind::File, first, &plain(0o640)).expect("nothing to do"), vec![]);
    let attributes = Extras { xattrs: vec![(b"user.a".to_vec(), b"1".to_vec())], ..Extras::default() };
    let flags = Extras { flags: 0x40, ..Extras::default() };
    let later = Wanted { mtime: Time { sec: 9, nsec: 9 }, ..plain(0o640) };
    for wanted in
        [plain(0o600), later, Wanted { extras: &attributes, ..plain(0o640) }, Wanted { extras: &flags, ..plain(0o640) }]
    {
        assert!(matches!(dir.amend(b"file", Kind::File, first, &wanted), Err(Error::Shared(_))));
    }
    assert_eq!((stat(&dir, "other").mode, stat(&dir, "other").mtime), (0o640, plain(0).mtime));
    assert!(matches!(
        dir.amend(b"file", Kind::File, FileId { ino: 1, ..first }, &plain(0o640)),
        Err(Error::Swapped(_))
    ));
    dir.remove(b"other").expect("removed");
    assert_eq!(dir.amend(b"file", Kind::File, first, &later).expect("amended"), vec![]);
}

#[test]
fn an_immutable_file_takes_the_place_of_another() {
    let Some(fs) = loop_fs() else { return };
    let dir = open(fs.path());
    dir.place_file(b"name", b"old", &plain(0o600)).expect("placed");
    let lock = Extras { flags: 0x10, ..Extras::default() };
    let temp = dir.create_temp().expect("created");
    temp.write_at(0, b"new").expect("written");
    let wanted = Wanted { extras: &lock, ..plain(0o600) };
    assert_eq!(temp.commit_as(b"name", &wanted).expect("committed"), vec![]);
    assert!(dir.remove(b"name").is_err(), "immutable");
    assert_eq!(std::fs::read(fs.path().join("name")).expect("read"), b"new");
    // And gives way to another, but for its other names.
    dir.while_unlocked(b"name", || dir.hard_link(b"other", &dir, b"name", None)).expect("unlocked").expect("linked");
    let temp = dir.create_temp().expect("created");
    temp.write_at(0, b"newer").expect("written");
    assert_eq!(temp.commit_as(b"name", &plain(0o600)).expect("committed"), vec![]);
    assert_eq!(std::fs::read(fs.path().join("name")).expect("read"), b"newer");
    assert!(dir.remove(b"other").is_err(), "immutable still");
    // What is right keeps its flags all the time, and its ctime with them.
    let (before, other) = (ctime(&fs.path().join("other")), id(&dir, b"other"));
    assert_eq!(dir.amend(b"other", Kind::File, other, &wanted).expect("amended"), vec![]);
    assert_eq!(ctime(&fs.path().join("other")), before);
    dir.while_unlocked(b"other", || dir.remove(b"other")).expect("unlocked").expect("removed");
}

fn ctime(path: &std::path::Path) -> (i64, i64) {
    use std::os::unix::fs::MetadataExt;
    let of = path.symlink_metadata().expect("there");
    (of.ctime(), of.ctime_nsec())
}

#[test]
fn a_users_read_only_entries_are_amended() {
    if !root() {
        return;
    }
    let Some(fs) = loop_fs() else { return };
    fs::set_permissions(fs.path(), Permissions::from_mode(0o777)).expect("opened to all");
    as_stranger(|| {
        let dir = open(fs.path());
        let owner = Some((STRANGER, STRANGER));
        let one = Extras { xattrs: vec![(b"user.a".to_vec(), b"1".to_vec())], ..Extras::default() };
        let two = Extras { xattrs: vec![(b"user.a".to_vec(), b"2".to_vec())], flags: 0x40, ..Extras::default() };
        for (name, mode) in [(&b"r"[..], 0o444), (b"w", 0o200), (b"none", 0o000)] {
            let wanted = Wanted { owner, extras: &one, ..plain(mode) };
            assert_eq!(dir.place_file(name, b"x", &wanted).expect("placed"), vec![]);
        }
        let wanted = Wanted { owner, extras: &two, ..plain(0o444) };
        assert_eq!(dir.amend(b"r", Kind::File, id(&dir, b"r"), &wanted).expect("amended"), vec![]);
        assert_eq!(dir.amend(b"w", Kind::File, id(&dir, b"w"), &wanted).expect("amended"), vec![]);
        assert_eq!(dir.amend(b"none", Kind::File, id(&dir, b"none"), &wanted).expect("amended"), vec![]);
        for name in ["r", "w", "none"] {
            assert_eq!(stat(&dir, name).mode, 0o444);
        }
        // Directories that the user locked against herself.
        for mode in [0o555, 0o300, 0o100, 0o000] {
            let name = format!("dir-{mode:o}");
            let sub = dir.make_dir(name.as_bytes()).expect("made");
            sub.finish_dir(&Wanted { owner, ..plain(mode) }).expect("finished");
            assert!(sub.create_file(b"x").is_err() || mode == 0o300);
            let sub = dir.open_dir_for_writing(name.as_bytes()).expect("opened");
            sub.place_file(b"y", b"", &Wanted { owner, ..plain(0o600) }).expect("placed");
            assert!(sub.list().expect("listed").contains(b"y"));
            assert_eq!(sub.finish_dir(&Wanted { owner, ..plain(mode) }).expect("finished"), vec![]);
            assert_eq!(stat(&dir, &name).mode, mode);
        }
    });
}

#[test]
fn a_full_disk_is_an_error_and_leaves_no_half_file() {
    let Some(fs) = LoopFs::new(16 << 20) else { return };
    let dir = open(fs.path());
    let file = dir.create_file(b"reserved").expect("created");
    assert!(file.reserve(1 << 30).is_err_and(|e| e.is_full()));
    drop(file);
    dir.remove(b"reserved").expect("removed");
    let data = vec![1; 300_000];
    let failed = (0..200).find_map(|i| {
        let name = format!("f{i}");
        dir.place_file(name.as_bytes(), &data, &plain(0o600)).err().map(|e| (name, e))
    });
    let (name, error) = failed.expect("16 MiB are soon full");
    assert!(error.is_full(), "{error}");
    assert!(dir.stat(name.as_bytes()).expect("looked at").is_none());
}
