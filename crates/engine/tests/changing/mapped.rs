//! Files that somebody stores into through a mapping. The kernel gives them another time at the first store into a
//! clean page alone, so that what comes after it, until the page is written back, leaves no trace in their times. On
//! tmpfs it never is.

use super::*;
use drumlin_testkit::Mapping;
use std::fs::File;

/// Read by a worker in one piece, in chunks, and in pieces by all.
const LENGTHS: [usize; 3] = [5_000, 500_000, 5_000_000];

#[test]
fn what_is_stored_after_a_backup_is_found_by_the_next() {
    [bench(), quick_bench()].iter().for_each(what_is_stored_is_found);
}

fn what_is_stored_is_found(bench: &Bench) {
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    let open = |len: usize| {
        let path = source.join(format!("mapped-{len}"));
        fs::write(&path, noise(len as u64, len)).unwrap();
        let file = File::options().read(true).write(true).open(path).unwrap();
        file.sync_all().unwrap();
        file
    };
    let files = LENGTHS.map(open);
    let mut mappings = files.each_ref().map(|file| Mapping::of(file).unwrap());
    let changed = || files.each_ref().map(|file| file.metadata().unwrap().modified().unwrap());
    settle();
    let at_first = changed();
    mappings.iter_mut().for_each(|mapping| mapping.store(100, b'1'));
    assert!(changed().iter().zip(at_first).all(|(now, first)| *now > first));
    settle();
    bench.backup(&source);
    settle();
    mappings.iter_mut().for_each(|mapping| mapping.store(101, b'2'));
    drop((mappings, files));
    let report = next_run_is_right(bench, &source);
    assert_eq!(report.counts.changed, LENGTHS.len() as u64);
}

/// What is read ahead of the workers is no different.
#[test]
fn what_is_read_ahead_is_no_different() {
    let bench = bench();
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    let file = |n: usize| {
        let path = source.join(format!("mapped-{n:02}"));
        fs::write(&path, noise(n as u64, 100)).unwrap();
        let file = File::options().read(true).write(true).open(path).unwrap();
        file.sync_all().unwrap();
        file
    };
    let files: Vec<File> = (0..40).map(file).collect();
    let mut mappings: Vec<Mapping> = files.iter().map(|file| Mapping::of(file).unwrap()).collect();
    settle();
    mappings.iter_mut().for_each(|mapping| mapping.store(10, b'1'));
    settle();
    // Whatever opening takes, it is too long.
    let options = backup::Options { workers: 1, late: std::time::Duration::ZERO, ..common::options(&[&source]) };
    backup::backup(&bench.repository, &bench.cache, options, &Quiet::default()).unwrap();
    settle();
    mappings.iter_mut().for_each(|mapping| mapping.store(11, b'2'));
    let many = files.len();
    drop((mappings, files));
    let report = next_run_is_right(&bench, &source);
    assert_eq!(report.counts.changed, many as u64);
}
