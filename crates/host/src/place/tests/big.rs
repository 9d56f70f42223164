//! Big files against a model: the bytes, the length, the holes.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};

use drumlin_testkit::Rng;

use super::super::BigFile;
use super::*;

/// Writes and skips at random; what comes out must be what a vector holds.
fn try_one(dir: &Arc<TargetDir>, name: &str, hint: u64, seed: u64) {
    let mut rng = Rng::new(seed);
    let file = dir.create_file(name.as_bytes()).expect("created");
    let mut big = BigFile::new(&file, hint, true).expect("begun");
    let mut model: Vec<u8> = Vec::new();
    for _ in 0..2 + rng.below(12) {
        let len = match rng.below(6) {
            0 => rng.below(10),
            1 => rng.below(4097),
            2 => 4096 * rng.below(4),
            3 => rng.below(5 << 20),
            _ => rng.below(100_000),
        };
        if rng.one_in(2) {
            let data = rng.bytes(len);
            big.write(&data).expect("written");
            model.extend_from_slice(&data);
        } else {
            big.skip(len as u64).expect("skipped");
            model.resize(model.len() + len, 0);
        }
        assert_eq!(big.position(), model.len() as u64);
    }
    assert_eq!(big.finish().expect("ended"), model.len() as u64);
    file.finish(&plain(0o600)).expect("finished");
    let (back, stat) = dir.open_existing(name.as_bytes()).expect("opened");
    assert_eq!(stat.size, model.len() as u64, "seed {seed}");
    let mut bytes = vec![1; model.len()];
    back.read_exact_at(&mut bytes, 0).expect("read");
    assert!(bytes == model, "seed {seed}: other bytes");
    dir.remove(name.as_bytes()).expect("removed");
}

#[test]
fn any_order_of_bytes_and_holes() {
    let home = tempfile::tempdir().expect("made");
    let dir = open(home.path());
    for seed in 0..60 {
        try_one(&dir, "direct", 1 << 30, seed);
        try_one(&dir, "buffered", 0, seed);
    }
}

#[test]
fn without_direct_writes_too() {
    // Where there are none, or where they are refused late.
    for place in ["/dev/shm", "/run", "/proc/self/cwd"] {
        let Ok(home) = tempfile::Builder::new().prefix("drumlin-big-").tempdir_in(place) else { continue };
        let dir = open(home.path());
        for seed in 100..110 {
            try_one(&dir, "file", 1 << 30, seed);
        }
    }
}

#[test]
fn holes_take_no_room() {
    let Some(fs) = loop_fs() else { return };
    let dir = open(fs.path());
    for hint in [0, 1 << 30] {
        let file = dir.create_file(b"sparse").expect("created");
        let mut big = BigFile::new(&file, hint, true).expect("begun");
        assert_eq!(big.is_direct(), hint > 0);
        big.skip(100 << 20).expect("skipped");
        big.write(&[1; 5000]).expect("written");
        big.skip((1 << 40) + 1).expect("skipped");
        big.write(b"end").expect("written");
        big.skip(1 << 20).expect("skipped");
        let size = big.finish().expect("ended");
        assert_eq!(size, (100 << 20) + 5000 + (1 << 40) + 1 + 3 + (1 << 20));
        file.sync().expect("synced");
        file.finish(&plain(0o600)).expect("finished");
        let meta = fs.path().join("sparse").metadata().expect("there");
        assert!(meta.len() == size && meta.blocks() * 512 <= 64 << 10, "{} blocks", meta.blocks());
        dir.remove(b"sparse").expect("removed");
    }
}

#[test]
fn shorter_and_longer_than_announced() {
    let Some(fs) = loop_fs() else { return };
    let dir = open(fs.path());
    let data = Rng::new(1).bytes(12_345_678);
    for announced in [0, 9 << 20, data.len() as u64, 40 << 20] {
        let file = dir.create_file(b"file").expect("created");
        let mut big = BigFile::new(&file, announced, false).expect("begun");
        for piece in data.chunks(777_777) {
            big.write(piece).expect("written");
        }
        assert_eq!(big.finish().expect("ended"), data.len() as u64);
        file.finish(&plain(0o600)).expect("finished");
        assert!(std::fs::read(fs.path().join("file")).expect("read") == data, "announced {announced}");
        let meta = fs.path().join("file").metadata().expect("there");
        assert!(meta.blocks() * 512 < 13 << 20, "what was reserved and not used is returned");
        dir.remove(b"file").expect("removed");
    }
    let file = dir.create_file(b"file").expect("created");
    assert!(BigFile::new(&file, 1 << 40, false).is_err_and(|e| e.is_full()), "told before the work");
    let mut big = BigFile::new(&file, 1 << 40, true).expect("begun");
    assert!(big.skip(u64::MAX).is_err());
    big.write(b"x").expect("written");
    drop(big);
    file.write_at(3, b"not aligned").expect("direct writes ended with the writer");
    assert_eq!(File::open(fs.path().join("file")).expect("opened").metadata().expect("there").len(), 14);
}

#[test]
fn many_stretches() {
    let home = tempfile::tempdir().expect("made");
    let dir = open(home.path());
    for (hint, stretch, hole) in [(1 << 30, 4096, 4096), (0, 4096, 4096), (1 << 30, 5000, 9000), (0, 10, 9000)] {
        let file = dir.create_file(b"file").expect("created");
        let mut big = BigFile::new(&file, hint, true).expect("begun");
        let mut model: Vec<u8> = Vec::new();
        for i in 0..3000u32 {
            let data = vec![i as u8 | 1; stretch];
            big.write(&data).expect("written");
            big.skip(hole).expect("skipped");
            model.extend_from_slice(&data);
            model.resize(model.len() + hole as usize, 0);
        }
        big.finish().expect("ended");
        file.finish(&plain(0o600)).expect("finished");
        assert!(std::fs::read(home.path().join("file")).expect("read") == model, "{hint} {stretch} {hole}");
        dir.remove(b"file").expect("removed");
    }
}

/// Writes that fail while more is gathered are told all the same, and nothing is written once the file is given up.
#[test]
fn a_file_system_that_fills_up_meanwhile() {
    let Some(fs) = loop_fs() else { return };
    let dir = open(fs.path());
    let data = Rng::new(1).bytes(1 << 20);
    let file = dir.create_file(b"file").expect("created");
    let mut big = BigFile::new(&file, 1 << 40, true).expect("begun");
    let error = (0..4096).find_map(|_| big.write(&data).err()).expect("no such room");
    assert!(error.is_full(), "{error}");
    assert!(big.write(&data).is_err() && big.finish().is_err(), "after a failure nothing is well");
    file.set_len(0).expect("emptied");
    file.write_at(3, b"not aligned").expect("direct writes ended with the writer");
    assert_eq!(fs.path().join("file").metadata().expect("there").len(), 14);
    // Here it is one of the last writes that fails, if not the very last.
    let free = rustix::fs::statvfs(fs.path()).expect("asked");
    let free = free.f_bfree * free.f_frsize;
    file.set_len(0).expect("emptied");
    let mut big = BigFile::new(&file, 1 << 40, true).expect("begun");
    let failed = (0..free / data.len() as u64 + 3).find_map(|_| big.write(&data).err());
    assert!(failed.or_else(|| big.finish().err()).is_some_and(|e| e.is_full()));
}
