//! What a check reads, call by call, and how fast it is.

use crate::bench::{assert_sound, check_plainly, folder, objects, open, store_of, tiny_bench};
use crate::common::{bench_in, quick_folder, settle};
use drumlin_engine::check::{Options, Part, check};
use drumlin_engine::monitor::Quiet;
use drumlin_format::{IndexId, index};
use drumlin_repo::{Cache, CreateOptions, names};
use drumlin_store::{Call, RecordStore};
use drumlin_testkit::Rng;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// So many entries in folders of a thousand; every tenth has contents.
fn entries(source: &Path, count: u64, contents_every: u64) {
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    for dir in 0..count.div_ceil(1000) {
        let path = source.join(format!("folder {dir:04}"));
        fs::create_dir_all(&path).unwrap();
        let at = fs::File::open(&path).unwrap();
        for n in dir * 1000..((dir + 1) * 1000).min(count) {
            let name = format!("entry number {n:07} is {}", Rng::new(n).u64());
            rustix::fs::mknodat(&at, &name, rustix::fs::FileType::RegularFile, mode, 0).unwrap();
            if n % contents_every == 0 {
                fs::write(path.join(name), Rng::new(n).bytes(100)).unwrap();
            }
        }
    }
}

#[test]
fn the_structure_reads_no_contents_and_each_block_of_trees_about_once() {
    let bench = tiny_bench();
    let source = bench.folder.path().join("source");
    entries(&source, 120_000, 30);
    fs::write(source.join("large"), Rng::new(1).bytes(8 << 20)).unwrap();
    settle();
    bench.backup(&source);
    // A second snapshot shares nearly all of it.
    fs::write(source.join("folder 0001/new"), "new").unwrap();
    settle();
    bench.backup(&source);
    let whole = objects(&bench.memory);
    let mut blocks = 0;
    for (name, bytes) in whole.iter().filter(|(name, _)| folder(name) == names::INDEX) {
        let id = IndexId::parse(names::last(name)).unwrap();
        let entries = index::open(id, &bench.repository.secrets().index, bytes).unwrap().0;
        blocks += entries
            .iter()
            .filter(|e| e.kind == drumlin_format::pack::PackKind::Tree)
            .map(|e| e.table.blocks.iter().filter(|b| b.chunks > 0).count() + 1)
            .sum::<usize>();
    }
    let record = RecordStore::new(store_of(&whole));
    let log = record.log();
    let repository = open(Arc::new(record), &bench.repository.recovery_file());
    for workers in [1, 2, 8] {
        let cache = Arc::new(Cache::open(&repository, None, bench.folder.path()).unwrap());
        log.take();
        let report = check(&repository, &cache, Options { read: None, workers }, &Quiet::default()).unwrap();
        assert_sound(&report);
        let calls = log.calls();
        assert!(calls.iter().all(|c| !c.is_write()), "it only looks");
        let mut reads: BTreeMap<&str, usize> = BTreeMap::new();
        let mut listed: Vec<&str> = Vec::new();
        for call in &calls {
            match call {
                Call::ReadAt { name, .. } | Call::Get { name, .. } => *reads.entry(folder(name)).or_default() += 1,
                Call::List { prefix, .. } => listed.push(prefix),
                Call::Len { name, .. } => panic!("a call a pack: {name}"),
                other => panic!("{other:?}"),
            }
        }
        assert!(!reads.contains_key("data"), "{reads:?}");
        let trees = reads["tree"];
        assert!(blocks > 25 && trees >= blocks, "{trees} reads of {blocks} tables and blocks");
        let most = blocks * if workers == 1 { 12 } else { 14 } / 10;
        assert!(trees <= most, "{trees} reads of {blocks} tables and blocks by {workers} threads");
        assert_eq!(listed.iter().filter(|p| matches!(**p, "data" | "tree")).count(), 2, "{listed:?}");
        assert!(report.lookups * 20 < report.chunks, "{} lookups of {} chunks", report.lookups, report.chunks);
        assert!(report.entries > 120_000 && report.entries < 125_000, "shared ones count once: {}", report.entries);
    }
}

#[test]
fn reading_reads_each_byte_of_each_pack_once_in_large_pieces() {
    let bench = bench_in(quick_folder(), CreateOptions::default());
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("large"), Rng::new(1).bytes(20 << 20)).unwrap();
    settle();
    bench.backup(&source);
    let whole = objects(&bench.memory);
    let record = RecordStore::new(store_of(&whole));
    let log = record.log();
    let repository = open(Arc::new(record), &bench.repository.recovery_file());
    log.take();
    assert_sound(&check_plainly(&repository, Some(Part::All)));
    let (mut reads, mut bytes) = (0, 0);
    for call in log.calls() {
        if let Call::ReadAt { name, bytes: len, .. } = call
            && folder(&name) == "data"
        {
            (reads, bytes) = (reads + 1, bytes + len);
        }
    }
    let stored: u64 = whole.iter().filter(|(n, _)| folder(n) == "data").map(|(_, b)| b.len() as u64).sum();
    assert_eq!(bytes, stored);
    assert!(reads <= 2 + stored / (3 << 20), "{reads} reads of {stored} bytes");
}

/// Prints how fast the structure pass is, with the index at hand and without.
#[test]
#[ignore = "a measurement: cargo test --release -p drumlin-engine --test check -- --ignored --nocapture"]
fn entries_a_second() {
    let count = 1_000_000;
    let bench = bench_in(quick_folder(), CreateOptions::default());
    let source = bench.folder.path().join("source");
    entries(&source, count, 1);
    settle();
    bench.backup(&source);
    for (what, cache) in [
        ("with the index in the cache", bench.cache.clone()),
        ("without", Arc::new(Cache::open(&bench.repository, None, bench.folder.path()).unwrap())),
    ] {
        for workers in [1, 2] {
            let start = Instant::now();
            let options = Options { read: None, workers };
            let report = check(&bench.repository, &cache, options, &Quiet::default()).unwrap();
            assert_sound(&report);
            let seconds = start.elapsed().as_secs_f64();
            println!(
                "{what}, {workers} threads: {} entries in {seconds:.2} s, {:.0} a second; {} of {} chunks looked up",
                report.entries,
                report.entries as f64 / seconds,
                report.lookups,
                report.chunks
            );
        }
    }
    let status = fs::read_to_string("/proc/self/status").unwrap();
    println!("{}", status.lines().find(|l| l.starts_with("VmHWM")).unwrap_or_default());
}
