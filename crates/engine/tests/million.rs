//! One flat directory of very many entries, through every operation that a user meets first.

mod common;

use common::{Bench, bench_in, quick_folder, settle, small};
use drumlin_engine::backup::{self, Report};
use drumlin_engine::list::{self, Depth};
use drumlin_engine::monitor::Quiet;
use drumlin_engine::select::{TreePath, open_reader};
use drumlin_testkit::compare;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

/// Every so many entries one has contents.
const CONTENTS_EVERY: u64 = 16;

/// However many entries there are: 64 MiB that the engine may use and what it has besides, and the repository.
const PEAK_KIB_MAX: u64 = 160 << 10;

fn name(n: u64) -> String {
    format!("entry number {n:08}")
}

fn make(source: &Path, entries: u64) {
    fs::create_dir(source).unwrap();
    let dir = fs::File::open(source).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    for n in 0..entries {
        rustix::fs::mknodat(&dir, name(n), rustix::fs::FileType::RegularFile, mode, 0).unwrap();
        if n % CONTENTS_EVERY == 0 {
            fs::write(source.join(name(n)), n.to_le_bytes()).unwrap();
        }
    }
}

fn timed<T>(what: &str, call: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let out = call();
    println!("{what}: {:.2} s, {} KiB of memory at most until now", start.elapsed().as_secs_f64(), peak_kib());
    out
}

/// The most memory that this process ever had, the repository in it included.
fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}

fn run(bench: &Bench, source: &Path) -> Report {
    let monitor = Quiet::default();
    let mut options = common::options(&[source]);
    options.memory = 64 << 20;
    let report = backup::backup(&bench.repository, &bench.cache, options, &monitor).unwrap();
    assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
    report
}

fn flat(entries: u64) {
    let bench = bench_in(quick_folder(), small());
    let source = bench.folder.path().join("source");
    timed("make", || make(&source, entries));
    settle();
    let first = timed("backup", || run(&bench, &source));
    let contents = entries.div_ceil(CONTENTS_EVERY);
    assert_eq!((first.counts.files, first.counts.bytes_read), (entries, contents * 8));
    assert_eq!(first.counts.chunks_new, contents);
    let root = first.snapshot.as_ref().unwrap().root.unwrap();
    assert_eq!((root.sums.files, root.sums.bytes), (entries, contents * 8));

    let second = timed("without a change", || run(&bench, &source));
    assert_eq!((second.counts.unmodified, second.counts.bytes_read), (second.counts.entries, 0));
    assert_eq!((second.snapshot.unwrap().root, second.tree_bytes), (Some(root), 0));

    // One entry in the midst changes, one comes, one goes: a few nodes of the tree are new.
    let middle = source.join(name(entries / 2));
    fs::write(&middle, "changed").unwrap();
    fs::write(source.join("entry number 00000000a"), "new").unwrap();
    fs::remove_file(source.join(name(7))).unwrap();
    settle();
    let third = timed("three changes", || run(&bench, &source));
    let counts = third.counts;
    // The directory itself has changed as well.
    assert_eq!((counts.new, counts.changed, counts.removed, counts.bytes_read), (1, 2, 1, 10));
    assert!(third.tree_bytes < 256 << 10, "{} bytes of tree for three changes", third.tree_bytes);
    let snapshot = third.snapshot.unwrap();

    let reader = open_reader(&bench.repository, &bench.cache).unwrap();
    let path = TreePath::parse(source.as_os_str().as_bytes()).unwrap();
    let (mut met, mut last) = (0, Vec::new());
    let sums = timed("ls", || {
        list::list(&reader, snapshot.root, &path, Depth::Children, &Quiet::default(), &mut |entry| {
            assert!(last.as_slice() < entry.name(), "out of order");
            last = entry.name().to_vec();
            met += 1;
            Ok(ControlFlow::Continue(()))
        })
    });
    assert_eq!((met, sums.unwrap().files), (entries, entries));

    let target = bench.folder.path().join("target");
    let (report, monitor) = timed("restore", || bench.restore(&snapshot, &source, &target));
    assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
    assert_eq!((report.counts.restored, report.counts.bytes_written), (entries, contents * 8 + 2));
    let (report, _) = timed("restore again, in place", || bench.restore(&snapshot, &source, &target));
    assert_eq!((report.counts.kept, report.counts.bytes_written), (entries, 0));
    let peak = peak_kib();
    assert!(peak < PEAK_KIB_MAX, "{peak} KiB");
    let all = compare::Options { roots: false, flags: false, ..compare::Options::default() };
    timed("compare", || compare::assert_same(&source, &target, &all));
}

#[test]
fn a_flat_directory_of_two_hundred_thousand_entries() {
    flat(200_000);
}

/// Takes a gigabyte of a file system in memory.
#[test]
#[ignore = "a million entries: cargo test --release -p drumlin-engine --test million -- --ignored"]
fn a_flat_directory_of_a_million_entries() {
    flat(1_000_000);
}
