//! Trees of every shape come out whole and in order.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{Mode, OFlags};

use super::super::worker::PATH_BYTES_MAX;
use super::*;

#[test]
fn random_trees_match_the_model() {
    for seed in 0..12 {
        let tmp = quick_dir();
        let mut dice = Dice(seed);
        for _ in 0..3 {
            grow(tmp.path(), &mut dice, &mut 400, 0);
        }
        let want = model(tmp.path());
        for (threads, budget_bytes, part_entries_max) in
            [(1, 8 << 20, 4096), (2, 8 << 20, 4096), (3, 0, 4096), (8, 8 << 20, 5), (2, 0, 1)]
        {
            let options = Options { threads: threads.into(), budget_bytes, part_entries_max, ..options(&[tmp.path()]) };
            assert_same(&below(&walk(options), tmp.path()), &want);
        }
    }
}

#[test]
fn an_empty_directory_is_listed() {
    let tmp = quick_dir();
    let all = walk(options(&[tmp.path()]));
    let got = below(&all, tmp.path());
    assert_eq!((got.len(), got[0].entries.len(), got[0].complete), (1, 0, true));
}

#[test]
fn two_hundred_thousand_entries() {
    let tmp = quick_dir();
    let count = 200_000;
    let dir = rustix::fs::open(tmp.path(), OFlags::DIRECTORY, Mode::empty()).expect("open");
    for i in 0..count {
        let name = format!("entry-{}", i * 7919 % count);
        if i % 1000 == 0 {
            rustix::fs::mkdirat(&dir, name.as_str(), Mode::from_raw_mode(0o700)).expect("mkdir");
        } else {
            rustix::fs::symlinkat(c"t", &dir, name.as_str()).expect("symlink");
        }
    }
    for threads in [1, 4] {
        let all = walk(Options { threads: threads.into(), ..options(&[tmp.path()]) });
        let got = below(&all, tmp.path());
        assert_eq!(got[0].entries.len(), count);
        assert!(got[0].parts > count / 4096, "{} parts", got[0].parts);
        // All subdirectories follow, in order (that is checked for every walk).
        assert_eq!(got.len(), 1 + count / 1000);
        assert!(got.iter().all(|l| l.errors.is_empty() && l.complete));
    }
}

#[test]
fn tens_of_thousands_of_subdirectories_in_little_memory() {
    let tmp = quick_dir();
    let count = 20_000;
    let dir = rustix::fs::open(tmp.path(), OFlags::DIRECTORY, Mode::empty()).expect("open");
    for i in 0..count {
        rustix::fs::mkdirat(&dir, format!("{i}"), Mode::from_raw_mode(0o700)).expect("mkdir");
    }
    let options = Options { budget_bytes: 1 << 20, threads: 4.into(), ..options(&[tmp.path()]) };
    let mut walk = Walk::start(options, Arc::new(Filter::none())).expect("threads");
    std::thread::sleep(std::time::Duration::from_millis(100));
    let waiting = walk.shared.lock().frontier.ready_bytes();
    // Empty directories weigh little each, but all of them would weigh more than this.
    assert!(waiting < 2 << 20, "{waiting} bytes wait");
    let all = collect(&mut walk, 4096);
    assert_eq!(below(&all, tmp.path()).len(), count + 1);
}

/// 300 levels of names of 100 bytes: seven times PATH_MAX.
#[test]
fn deeper_than_a_path_can_say() {
    let tmp = quick_dir();
    let name = "d".repeat(100);
    let mut fd: OwnedFd = rustix::fs::open(tmp.path(), OFlags::DIRECTORY, Mode::empty()).expect("open");
    for i in 0..300 {
        rustix::fs::mkdirat(&fd, name.as_str(), Mode::from_raw_mode(0o700)).expect("mkdir");
        // A sibling on each level, so that every level waits for its turn.
        rustix::fs::mkdirat(&fd, "e", Mode::from_raw_mode(0o700)).expect("mkdir");
        fd = rustix::fs::openat(&fd, name.as_str(), OFlags::DIRECTORY, Mode::empty()).expect("open");
        let file =
            rustix::fs::openat(&fd, "f", OFlags::CREATE | OFlags::WRONLY, Mode::from_raw_mode(0o600)).expect("f");
        rustix::io::write(&file, format!("{i}").as_bytes()).expect("write");
    }
    for threads in [1, 3] {
        let options = Options { threads: threads.into(), ..options(&[tmp.path()]) };
        let mut walk = Walk::start(options, Arc::new(Filter::none())).expect("threads");
        let (mut dirs, mut deepest) = (0, None);
        while let Some(listing) = walk.next() {
            assert!(listing.errors().is_empty(), "{:?}", listing.errors());
            if listing.path().starts_with(&tmp.path().as_os_str().as_bytes()[1..]) {
                dirs += 1;
            }
            if listing.path().len() > 30_000 && listing.iter().any(|e| e.name == b"f") {
                deepest = Some(listing);
            }
        }
        assert_eq!(dirs, 601);
        let deepest = deepest.expect("the last level");
        let mut text = String::new();
        let mut file = deepest.dir().open_file(b"f").expect("open");
        std::io::Read::read_to_string(&mut file, &mut text).expect("read");
        assert_eq!(text, "299");
        // And without the descriptor that the walk may have left there.
        let again = crate::dir::Dir::new(deepest.path().into(), 0, true);
        assert!(again.open_file(b"f").is_ok());
    }
}

/// A program that makes a directory in a directory for ever: the walk comes to an end, and says where.
#[test]
fn too_deep_is_told_and_not_entered() {
    let tmp = quick_dir();
    let name = "d".repeat(250);
    let mut fd: OwnedFd = rustix::fs::open(tmp.path(), OFlags::DIRECTORY, Mode::empty()).expect("open");
    for _ in 0..200 {
        rustix::fs::mkdirat(&fd, name.as_str(), Mode::from_raw_mode(0o700)).expect("mkdir");
        fd = rustix::fs::openat(&fd, name.as_str(), OFlags::DIRECTORY, Mode::empty()).expect("open");
    }
    std::fs::create_dir(tmp.path().join("e")).expect("mkdir");
    let all = walk(options(&[tmp.path()]));
    let told: Vec<_> = all.iter().flat_map(|listed| listed.errors.iter().map(move |e| (listed, e))).collect();
    let [(listed, error)] = told[..] else { panic!("{} errors", told.len()) };
    assert_eq!(error.source.raw_os_error(), Some(libc::ENAMETOOLONG));
    assert!(!listed.complete && listed.entries.is_empty());
    let longest = all.iter().map(|listed| listed.path.len()).max().expect("some");
    assert!((PATH_BYTES_MAX + 1..=PATH_BYTES_MAX + 251).contains(&longest), "{longest}");
    assert_eq!(below(&all, &tmp.path().join("e")).len(), 1);
}

#[test]
fn listings_outlive_the_walk() {
    let tmp = quick_dir();
    grow(tmp.path(), &mut Dice(99), &mut 300, 0);
    let mut walk = Walk::start(options(&[tmp.path()]), Arc::new(Filter::none())).expect("threads");
    let mut kept = Vec::new();
    while let Some(listing) = walk.next() {
        kept.push(listing);
    }
    drop(walk);
    for listing in kept {
        for entry in listing.iter().filter(|e| e.stat.kind == crate::meta::Kind::File) {
            let file = listing.dir().open_file(entry.name).expect("open");
            assert_eq!(crate::read::restat(&file).expect("restat"), *entry.stat);
        }
    }
}
