//! Each kind of difference is noticed, and nothing else: one change at a time to one of two equal trees.

use std::fs::{self, File, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, Uid, mknodat};
use tempfile::TempDir;

use super::{Options, What, assert_same, trees};
use crate::{LoopFs, at, tree};

/// Two equal trees with one of each.
fn pair() -> (TempDir, std::path::PathBuf, std::path::PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let (a, b) = (home.path().join("a"), home.path().join("b"));
    for top in [&a, &b] {
        fs::create_dir(top).unwrap();
        fs::create_dir(top.join("dir")).unwrap();
        fs::write(top.join("dir/file"), vec![7; 300_000]).unwrap();
        fs::write(top.join("dir/other"), b"other").unwrap();
        fs::hard_link(top.join("dir/file"), top.join("linked")).unwrap();
        symlink("target", top.join("symlink")).unwrap();
        mknodat(CWD, top.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let root = at::open_root(top).unwrap();
        for name in [&b"dir/file"[..], b"dir/other", b"symlink", b"fifo", b"dir", b"."] {
            at::set_mtime(root.as_fd(), name, 1_000_000_000, 5).unwrap();
        }
    }
    assert_same(&a, &b, &Options::default());
    (home, a, b)
}

/// What `change` (done to the second tree) makes of two equal trees, times of directories aside.
fn after(change: impl FnOnce(&Path)) -> Vec<(String, What)> {
    let (_home, a, b) = pair();
    change(&b);
    let options = Options { dir_mtime: false, ..Options::default() };
    let found = trees(&a, &b, &options).unwrap();
    assert!(found.iter().all(|d| !d.to_string().is_empty()));
    found.into_iter().map(|d| (String::from_utf8(d.path).unwrap(), d.what)).collect()
}

fn one(path: &str, what: What) -> Vec<(String, What)> {
    vec![(path.to_owned(), what)]
}

fn keep_mtime(top: &Path, name: &str) {
    at::set_mtime(at::open_root(top).unwrap().as_fd(), name.as_bytes(), 1_000_000_000, 5).unwrap();
}

#[test]
fn presence_on_either_side() {
    assert_eq!(after(|b| fs::remove_file(b.join("dir/other")).unwrap()), one("dir/other", What::Presence));
    assert_eq!(after(|b| fs::write(b.join("a new one"), b"").unwrap()), one("a new one", What::Presence));
    assert_eq!(after(|b| fs::write(b.join("zzz"), b"").unwrap()), one("zzz", What::Presence));
}

#[test]
fn type_and_target() {
    let found = after(|b| {
        fs::remove_file(b.join("fifo")).unwrap();
        fs::create_dir(b.join("fifo")).unwrap();
    });
    assert_eq!(found, one("fifo", What::Kind));
    let found = after(|b| {
        fs::remove_file(b.join("symlink")).unwrap();
        symlink("targeT", b.join("symlink")).unwrap();
        keep_mtime(b, "symlink");
    });
    assert_eq!(found, one("symlink", What::Target));
}

#[test]
fn one_byte_and_one_more() {
    for offset in [0, 131_071, 131_072, 299_999] {
        let found = after(|b| {
            File::options().write(true).open(b.join("dir/file")).unwrap().write_at(b"x", offset).unwrap();
            keep_mtime(b, "dir/file");
        });
        assert_eq!(
            found,
            one("dir/file", What::Contents).into_iter().chain(one("linked", What::Contents)).collect::<Vec<_>>()
        );
    }
    let found = after(|b| {
        fs::write(b.join("dir/other"), b"other.").unwrap();
        keep_mtime(b, "dir/other");
    });
    assert_eq!(found, one("dir/other", What::Size));
}

#[test]
fn mode_and_times() {
    let found = after(|b| fs::set_permissions(b.join("dir/other"), Permissions::from_mode(0o4644)).unwrap());
    assert_eq!(found, one("dir/other", What::Mode));
    let found = after(|b| fs::set_permissions(b, Permissions::from_mode(0o711)).unwrap());
    assert_eq!(found, one(".", What::Mode));
    let touch = |name: &'static str| {
        move |b: &Path| {
            at::set_mtime(at::open_root(b).unwrap().as_fd(), name.as_bytes(), 1_000_000_000, 6).unwrap();
        }
    };
    for name in ["dir/other", "symlink", "fifo"] {
        assert_eq!(after(touch(name)), one(name, What::Mtime));
    }
    let (_home, a, b) = pair();
    touch("dir")(&b);
    let found = trees(&a, &b, &Options::default()).unwrap();
    assert_eq!((found.len(), &found[0].what, &found[0].path[..]), (1, &What::Mtime, &b"dir"[..]));
}

#[test]
fn hard_links() {
    let found = after(|b| {
        fs::remove_file(b.join("linked")).unwrap();
        fs::copy(b.join("dir/file"), b.join("linked")).unwrap();
        keep_mtime(b, "linked");
    });
    assert_eq!(found, one("linked", What::HardLink));
    let found = after(|b| {
        fs::write(b.join("dir/other"), vec![7; 300_000]).unwrap();
        fs::remove_file(b.join("linked")).unwrap();
        fs::hard_link(b.join("dir/other"), b.join("linked")).unwrap();
        keep_mtime(b, "linked");
    });
    assert!(found.contains(&("linked".into(), What::HardLink)), "linked with another one: {found:?}");
}

#[test]
fn owner_as_root() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for (uid, gid) in [(Some(1234), None), (None, Some(4321))] {
        let found = after(|b| {
            let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
            rustix::fs::chownat(CWD, b.join("symlink"), uid, gid, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        });
        assert_eq!(found, one("symlink", What::Owner));
    }
}

#[test]
fn on_a_file_system_with_everything() {
    let Some(fs) = LoopFs::new(128 << 20) else { return };
    let (a, b) = (fs.dir("a").unwrap(), fs.dir("b").unwrap());
    for top in [&a, &b] {
        let skipped = tree::nasty(top, true).unwrap();
        assert!(skipped.is_empty(), "ext4 has it all: {skipped:?}");
    }
    // Made one after the other: equal but for the times that were not set.
    let options = Options { mtime: false, holes: Some(65_536), ..Options::default() };
    assert_same(&a, &b, &options);
    let found = |options: &Options| -> Vec<_> {
        trees(&a, &b, options)
            .unwrap()
            .into_iter()
            .map(|d| (String::from_utf8_lossy(&d.path).into_owned(), d.what))
            .collect()
    };
    let root = at::open_root(&b).unwrap();
    let dir = |name: &str| at::open_dir(root.as_fd(), name.as_bytes()).unwrap();

    let attributes = dir("attributes");
    at::set_xattr(attributes.as_fd(), b"user", "user.empty", b"no longer").unwrap();
    at::set_xattr(attributes.as_fd(), b"trusted-link", "trusted.more", b"").unwrap();
    let expected: Vec<(String, What)> = vec![
        ("attributes/trusted-link".into(), What::Xattr(b"trusted.more".to_vec())),
        ("attributes/user".into(), What::Xattr(b"user.empty".to_vec())),
    ];
    assert_eq!(found(&options), expected);
    let options = Options { xattrs: false, ..options };
    assert_eq!(found(&options), vec![]);

    let file = at::open(dir("flags").as_fd(), b"immutable").unwrap();
    at::change_flags(file.as_fd(), 0, at::FLAGS_LOCKING).unwrap();
    assert_eq!(found(&options), one("flags/immutable", What::Flags));
    let options = Options { flags: false, ..options };

    rustix::fs::unlinkat(dir("nodes").as_fd(), c"null", AtFlags::empty()).unwrap();
    mknodat(dir("nodes"), c"null", FileType::CharacterDevice, Mode::from_raw_mode(0o640), rustix::fs::makedev(1, 5))
        .unwrap();
    assert_eq!(found(&options), one("nodes/null", What::Device));
    rustix::fs::unlinkat(dir("nodes").as_fd(), c"null", AtFlags::empty()).unwrap();
    rustix::fs::unlinkat(at::open_root(&a.join("nodes")).unwrap(), c"null", AtFlags::empty()).unwrap();

    // The same bytes with a hole less.
    let sparse = File::options().write(true).open(b.join("sparse/middle")).unwrap();
    sparse.write_all_at(&[0; 1 << 20], 1 << 20).unwrap();
    sparse.sync_all().unwrap();
    assert_eq!(found(&options), one("sparse/middle", What::Holes));
    let options = Options { holes: None, ..options };
    assert_eq!(found(&options), vec![]);

    // At the end of a path that no string can name.
    let mut deep = dir("dir-deep");
    for level in 0..30 {
        deep = at::open_dir(deep.as_fd(), &[b'a' + level % 26; 200]).unwrap();
    }
    at::write(deep.as_fd(), b"one more", b"").unwrap();
    let deepest = trees(&a, &b, &options).unwrap();
    assert_eq!(deepest.len(), 1);
    assert!(deepest[0].path.len() > 6000 && deepest[0].path.ends_with(b"/one more"));

    assert!(fs::remove_dir_all(&a).is_err(), "something was immutable");
    tree::remove(&a).unwrap();
    tree::remove(&b).unwrap();
    assert!(!a.exists() && !b.exists());
}

#[test]
fn random_trees_repeat_and_change() {
    let home = tempfile::tempdir().unwrap();
    let make = |name: &str, seed| {
        let dir = home.path().join(name);
        fs::create_dir(&dir).unwrap();
        tree::random(&dir, seed, 300).unwrap();
        dir
    };
    let options = Options { mtime: false, ..Options::default() };
    let (a, b, c) = (make("a", 1), make("b", 1), make("c", 2));
    assert_same(&a, &b, &options);
    assert!(trees(&a, &c, &options).unwrap().len() > 10);
    let (done, again) = (tree::mutate(&a, 5).unwrap(), tree::mutate(&b, 5).unwrap());
    assert_eq!((done.len(), done.len() > 20), (again.len(), true));
    assert_same(&a, &b, &options);
    for seed in 0..20 {
        tree::mutate(&b, seed).unwrap();
    }
    assert!(!trees(&a, &b, &options).unwrap().is_empty());
}

#[test]
fn an_ordinary_users_nasty_tree() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("tree");
    fs::create_dir(&dir).unwrap();
    tree::nasty(&dir, false).unwrap();
    assert_same(&dir, &dir, &Options { holes: Some(4096), ..Options::default() });
    tree::remove(&dir).unwrap();
    assert!(!dir.exists());
}
