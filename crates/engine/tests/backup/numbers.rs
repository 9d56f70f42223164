//! File systems whose files have other inode numbers at each mount.

use super::*;
use drumlin_testkit::{Numberless, compare};
use std::path::PathBuf;

/// A folder, and where it is shown with numbers that are made up.
struct Shown {
    bench: common::Bench,
    folder: PathBuf,
    at: PathBuf,
}

impl Shown {
    /// `None` where nobody can mount anything.
    fn new() -> Option<Self> {
        let bench = bench();
        let folder = tree(bench.folder.path(), 60);
        fs::write(folder.join("dir0/large"), noise(1, 3 << 20)).unwrap();
        std::os::unix::fs::symlink("large", folder.join("dir0/link")).unwrap();
        fs::write(folder.join("dir1/twice"), noise(2, 5000)).unwrap();
        fs::hard_link(folder.join("dir1/twice"), folder.join("dir2/again")).unwrap();
        let at = bench.folder.path().join("at");
        fs::create_dir(&at).unwrap();
        settle();
        if Numberless::mount(&folder, &at, 2).is_none() {
            eprintln!("no FUSE here: nothing was tried");
            return None;
        }
        Some(Shown { bench, folder, at })
    }

    /// Back the whole up, or this below it, with numbers from `first` on.
    fn backup(&self, first: u64, below: &str) -> backup::Report {
        let _mounted = Numberless::mount(&self.folder, &self.at, first).unwrap();
        self.bench.backup(&self.at.join(below))
    }
}

/// Files, directories, symlinks; and directories that only lead to the sources.
#[test]
fn another_number_alone_is_no_change() {
    let Some(shown) = Shown::new() else { return };
    fs::remove_file(shown.folder.join("dir2/again")).unwrap();
    settle();
    for below in ["", "dir0"] {
        let first = shown.backup(1000, below);
        let again = shown.backup(5000, below);
        assert_eq!(again.counts.unmodified, again.counts.entries, "{:?}", again.counts);
        assert_eq!(again.snapshot.unwrap().root, first.snapshot.unwrap().root);
    }
}

#[test]
fn whatever_else_has_changed_is_read() {
    let Some(shown) = Shown::new() else { return };
    shown.backup(1000, "");
    let changed = shown.folder.join("dir0/file3");
    let before = fs::metadata(&changed).unwrap();
    fs::write(&changed, noise(99, before.len() as usize)).unwrap();
    // The times of contents are anybody's to set: that of the inode isn't.
    File::options().write(true).open(&changed).unwrap().set_modified(before.modified().unwrap()).unwrap();
    settle();
    let again = shown.backup(5000, "");
    // It, and the two names of one file, which only their number holds together.
    assert_eq!(again.counts.changed, 3, "{:?}", again.counts);
    let target = shown.bench.folder.path().join("target");
    let (_, monitor) = shown.bench.restore(&again.snapshot.unwrap(), &shown.at, &target);
    assert!(monitor.problems().is_empty());
    // Their number was another for each.
    let options = compare::Options { roots: false, hard_links: false, ..Default::default() };
    compare::assert_same(&shown.folder, &target, &options);
}

/// Documents in a cloud, as rclone shows them.
#[test]
fn what_does_not_know_its_length_is_saved_all_the_same() {
    let Some(shown) = Shown::new() else { return };
    fs::write(shown.folder.join("dir0/empty"), "").unwrap();
    settle();
    let backup = |late| {
        let _mounted = Numberless::mount_lengthless(&shown.folder, &shown.at).unwrap();
        let options = Options { late, ..options(&[&shown.at]) };
        backup::backup(&shown.bench.repository, &shown.bench.cache, options, &Quiet::default()).unwrap()
    };
    // As it comes, and with all that opens late read ahead; then nobody knows whether anything has changed.
    for late in [drumlin_engine::LATE, std::time::Duration::ZERO] {
        let report = backup(late);
        let target = tempfile::tempdir().unwrap();
        let (_, monitor) = shown.bench.restore(&report.snapshot.unwrap(), &shown.at, &target.path().join("t"));
        assert!(monitor.problems().is_empty());
        let options = compare::Options { roots: false, hard_links: false, ..Default::default() };
        compare::assert_same(&shown.folder, &target.path().join("t"), &options);
    }
}

/// What takes few blocks, as its file system compresses, is cut as elsewhere.
#[test]
fn what_is_compressed_is_no_other_file() {
    let Some(shown) = Shown::new() else { return };
    let folder = shown.folder.join("texts");
    fs::create_dir(&folder).unwrap();
    for n in 0..20 {
        fs::write(folder.join(format!("text{n}")), noise(100 + n, 52_000)).unwrap();
    }
    settle();
    let first = shown.bench.backup(&folder);
    for late in [drumlin_engine::LATE, std::time::Duration::ZERO] {
        let _mounted = Numberless::mount_compressed(&folder, &shown.at).unwrap();
        let options = Options { late, force: true, ..options(&[&shown.at]) };
        let report = backup::backup(&shown.bench.repository, &shown.bench.cache, options, &Quiet::default()).unwrap();
        assert_eq!((report.counts.chunks, report.counts.chunks_new), (first.counts.chunks, 0));
    }
}
