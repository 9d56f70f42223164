//! What reading promises, on real files.

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::XattrFlags;

use super::*;

fn dir_of(path: &Path) -> Arc<Dir> {
    let bytes = &path.as_os_str().as_bytes()[1..];
    Arc::new(Dir::new(bytes.into(), bytes.len(), true))
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn files_open_and_symlinks_dont() {
    let tmp = tempfile::tempdir().expect("a directory");
    std::fs::write(tmp.path().join("f"), b"hello").expect("write");
    symlink("f", tmp.path().join("l")).expect("symlink");
    let dir = dir_of(tmp.path());
    let mut buf = [0; 5];
    dir.open_file(b"f").expect("open").read_exact_at(&mut buf, 0).expect("read");
    assert_eq!(&buf, b"hello");
    assert_eq!(dir.open_file(b"l").expect_err("a symlink").raw_os_error(), Some(libc::ELOOP));
    assert_eq!(dir.open_file(b"gone").expect_err("nothing").raw_os_error(), Some(libc::ENOENT));
    for bad in [b"".as_slice(), b"a/b", b"../x", b"f\0g"] {
        assert_eq!(dir.open_file(bad).expect_err("no name").raw_os_error(), Some(libc::EINVAL));
    }
}

#[test]
fn what_is_appended_is_what_there_is_and_no_more_than_was_asked_for() {
    let mut file = tempfile::tempfile().expect("a file");
    let contents: Vec<u8> = (0..100_000u32).map(|n| (n % 251) as u8).collect();
    file.write_all(&contents).expect("write");
    for (before, most) in [(0, 0), (0, 1), (7, 100), (3, 100_000), (5, 100_001), (5, 1 << 20)] {
        file.rewind().expect("rewind");
        let mut to = vec![9; before];
        let read = append(&file, &mut to, most).expect("read");
        assert_eq!(read, most.min(contents.len()));
        assert!(to[..before].iter().all(|byte| *byte == 9) && to[before..] == contents[..read]);
    }
    // From where it stands; and at its end nothing.
    let mut to = Vec::new();
    assert_eq!(append(&file, &mut to, 10).expect("read"), 0);
    let dir = std::fs::File::open("/").expect("open");
    assert_eq!(append(&dir, &mut to, 10).expect_err("a folder").raw_os_error(), Some(libc::EISDIR));
    assert!(to.is_empty());
}

#[test]
fn a_pipe_doesnt_block() {
    let tmp = tempfile::tempdir().expect("a directory");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        tmp.path().join("p"),
        rustix::fs::FileType::Fifo,
        Mode::from_raw_mode(0o600),
        0,
    )
    .expect("mkfifo");
    let dir = dir_of(tmp.path());
    assert_eq!(restat(dir.open_file(b"p").expect("open")).expect("stat").kind, Kind::Fifo);
    assert_eq!(dir.extras(b"p", Kind::Fifo).expect("extras").extras, Extras::default());
}

#[test]
fn a_change_is_seen_afterwards() {
    let tmp = tempfile::tempdir().expect("a directory");
    let path = tmp.path().join("f");
    std::fs::write(&path, b"hello").expect("write");
    let dir = dir_of(tmp.path());
    let before = dir.stat(b"f").expect("stat");
    let file = dir.open_file(b"f").expect("open");
    assert_eq!(restat(&file).expect("restat"), before);
    assert_eq!(
        (before.size, before.mode),
        (5, std::fs::metadata(&path).expect("stat").permissions().mode() as u16 & 0o7777)
    );
    std::fs::OpenOptions::new().append(true).open(&path).expect("open").write_all(b"!").expect("write");
    let after = restat(&file).expect("restat");
    assert_eq!((after.size, after.ino), (6, before.ino));
    assert_ne!(after, before);
}

#[test]
fn access_times_stay() {
    let tmp = tempfile::tempdir().expect("a directory");
    let path = tmp.path().join("f");
    std::fs::write(&path, b"hello").expect("write");
    let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    let times = std::fs::FileTimes::new().set_accessed(old).set_modified(old);
    std::fs::File::options().write(true).open(&path).expect("open").set_times(times).expect("times");
    dir_of(tmp.path()).open_file(b"f").expect("open").read_exact_at(&mut [0; 5], 0).expect("read");
    assert_eq!(std::fs::metadata(&path).expect("stat").atime(), 1_000_000);
}

#[test]
fn attributes_come_sorted_and_whole() {
    let tmp = tempfile::tempdir().expect("a directory");
    let path = tmp.path().join("f");
    std::fs::write(&path, b"").expect("write");
    let long = vec![b'v'; 2000];
    for (name, value) in [("user.b", b"2".as_slice()), ("user.a", &long), ("user.empty", b"")] {
        match rustix::fs::setxattr(&path, name, value, XattrFlags::empty()) {
            Err(Errno::OPNOTSUPP) => return,
            other => other.expect("setxattr"),
        }
    }
    let want =
        vec![(b"user.a".to_vec(), long), (b"user.b".to_vec(), b"2".to_vec()), (b"user.empty".to_vec(), Vec::new())];
    let dir = dir_of(tmp.path());
    assert_eq!(dir.extras(b"f", Kind::File).expect("extras").extras.xattrs, want);
    assert_eq!(extras_of_fd(dir.open_file(b"f").expect("open")).extras.xattrs, want);
}

/// Give what a system call would.
fn answer(bytes: &[u8], buf: &mut [u8]) -> Result<usize, Errno> {
    buf.get_mut(..bytes.len()).ok_or(Errno::RANGE)?.copy_from_slice(bytes);
    Ok(bytes.len())
}

#[test]
fn one_attribute_that_cant_be_read_costs_no_other() {
    let names = b"user.c\0user.a\0user.b\0security.x\0";
    let get = |name: &CString, buf: &mut [u8]| match name.as_bytes() {
        b"user.a" => Err(Errno::IO),
        b"user.b" => Err(Errno::NODATA),
        name => answer(name, buf),
    };
    let (had, lost) = attributes(|buf| answer(names, buf), get);
    let had: Vec<_> = had.iter().map(|(name, _)| name.as_slice()).collect();
    assert_eq!((had, lost), (vec![b"security.x".as_slice(), b"user.c"], Some(Errno::IO)));
}

#[test]
fn more_attributes_than_a_tree_can_hold_are_left_out() {
    let names: Vec<u8> = (0..200).flat_map(|n| format!("user.{n:04}\0").into_bytes()).chain(*b"system.acl\0").collect();
    let value = vec![7; 64 << 10];
    let (had, lost) = attributes(|buf| answer(&names, buf), |_, buf| answer(&value, buf));
    assert_eq!((had[0].0.as_slice(), lost), (b"system.acl".as_slice(), Some(Errno::TOOBIG)));
    let bytes: usize = had.iter().map(|(name, value)| name.len() + value.len() + ATTR_COST).sum();
    assert!(bytes <= ATTRS_BYTES_MAX && bytes > ATTRS_BYTES_MAX - (128 << 10), "{bytes}");
}

#[test]
fn symlinks_have_targets_and_attributes_of_their_own() {
    let tmp = tempfile::tempdir().expect("a directory");
    std::fs::write(tmp.path().join("f"), b"").expect("write");
    let target = format!("f/../{}", "x".repeat(900));
    symlink(&target, tmp.path().join("l")).expect("symlink");
    symlink("f", tmp.path().join("k")).expect("symlink");
    let dir = dir_of(tmp.path());
    assert_eq!(dir.extras(b"l", Kind::Symlink).expect("extras").extras.target, target.as_bytes());
    let _ = rustix::fs::setxattr(tmp.path().join("f"), "user.of-the-file", b"1", XattrFlags::empty());
    assert_eq!(dir.extras(b"k", Kind::Symlink).expect("extras").extras.xattrs, []);
    if is_root() && rustix::fs::lsetxattr(tmp.path().join("k"), "trusted.t", b"1", XattrFlags::empty()).is_ok() {
        let xattrs = dir.extras(b"k", Kind::Symlink).expect("extras").extras.xattrs;
        assert_eq!(xattrs, [(b"trusted.t".to_vec(), b"1".to_vec())]);
    }
}

#[test]
fn flags_are_those_that_users_set() {
    let tmp = tempfile::tempdir().expect("a directory");
    std::fs::write(tmp.path().join("f"), b"x").expect("write");
    let dir = dir_of(tmp.path());
    let file = dir.open_file(b"f").expect("open");
    let Ok(before) = rustix::fs::ioctl_getflags(&file) else { return };
    if rustix::fs::ioctl_setflags(&file, before | rustix::fs::IFlags::NODUMP).is_err() {
        return;
    }
    assert_eq!(extras_of_fd(&file).extras.flags, 0x40, "raw {:#x}", before.bits());
}

#[test]
fn holes_are_found() {
    let tmp = tempfile::tempdir().expect("a directory");
    let path = tmp.path().join("f");
    let file = std::fs::File::create(&path).expect("create");
    let block = vec![7; 64 << 10];
    file.write_all_at(&block, 1 << 20).expect("write");
    file.write_all_at(&block, 3 << 20).expect("write");
    file.set_len(5 << 20).expect("truncate");
    let file = dir_of(tmp.path()).open_file(b"f").expect("open");
    let ranges: Vec<_> = data_ranges(file.as_fd(), 5 << 20).map(|r| r.expect("seek")).collect();
    assert_eq!(ranges, [(1 << 20, (1 << 20) + (64 << 10)), (3 << 20, (3 << 20) + (64 << 10))]);
    let ranges: Vec<_> = data_ranges(file.as_fd(), (1 << 20) + 5).map(|r| r.expect("seek")).collect();
    assert_eq!(ranges, [(1 << 20, (1 << 20) + 5)]);
    assert_eq!(data_ranges(file.as_fd(), 0).count(), 0);
    std::fs::File::options().write(true).open(&path).expect("open").set_len(10).expect("truncate");
    assert!(data_ranges(file.as_fd(), 5 << 20).next().is_none());
}

#[test]
fn a_dir_reopens_itself_but_not_through_a_symlink() {
    let tmp = tempfile::tempdir().expect("a directory");
    let real = tmp.path().join("a/b");
    std::fs::create_dir_all(&real).expect("mkdir");
    std::fs::write(real.join("f"), b"x").expect("write");
    let bytes = real.as_os_str().as_bytes()[1..].to_vec();
    let root = tmp.path().as_os_str().len() - 1;
    let dir = Dir::new(bytes.clone().into(), root, true);
    assert!(dir.open_file(b"f").is_ok());
    let dir = Dir::new(bytes.into(), root, true);
    std::fs::rename(tmp.path().join("a"), tmp.path().join("moved")).expect("rename");
    symlink("moved", tmp.path().join("a")).expect("symlink");
    assert_eq!(dir.open_file(b"f").expect_err("a symlink on the way").raw_os_error(), Some(libc::ELOOP));
}

#[test]
fn who_may_store_into_a_file_is_known() {
    let tmp = tempfile::tempdir().expect("a directory");
    let path = tmp.path().join("f");
    std::fs::write(&path, [1; 5000]).expect("write");
    let read = File::open(&path).expect("open");
    assert!(!has_writer(&read).expect("it is ours"));
    let file = File::options().read(true).write(true).open(&path).expect("open");
    assert!(has_writer(&read).expect("it is ours"));
    // The mapping outlives the descriptor.
    let mut mapping = drumlin_testkit::Mapping::of(&file).expect("map");
    drop(file);
    assert!(has_writer(&read).expect("it is ours"));
    mapping.store(1, 2);
    drop(mapping);
    assert!(!has_writer(&read).expect("it is ours"));
    // Nothing of a lease is left.
    File::options().write(true).open(&path).expect("nobody has to be waited for");
}

#[test]
fn stores_are_stamped_once_that_is_asked_for() {
    let tmp = tempfile::tempdir().expect("a directory");
    let path = tmp.path().join("f");
    std::fs::write(&path, [1; 5000]).expect("write");
    let file = File::options().read(true).write(true).open(&path).expect("open");
    if !drumlin_testkit::are_stores_stamped_anew(&file) {
        return eprintln!("skipped: not on this file system");
    }
    file.sync_all().expect("sync");
    let mut mapping = drumlin_testkit::Mapping::of(&file).expect("map");
    let mut store = |at| {
        std::thread::sleep(std::time::Duration::from_millis(30));
        mapping.store(at, 7);
        restat(&file).expect("stat").mtime
    };
    // Unless somebody has all synced just then.
    let mut dirty = None;
    for at in 0..10 {
        let (first, second) = (store(at), store(at + 20));
        dirty = dirty.or((first == second).then_some(second));
    }
    assert!(dirty.is_some(), "a page that is dirty already");
    let before = store(50);
    have_stores_stamped(&file);
    // What is being written back is no cleaner for a moment.
    let stamped = (0..100).any(|at| store(at) != before);
    assert!(stamped);
}
