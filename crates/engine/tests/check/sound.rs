//! Repositories that are sound, whatever is in them.

use crate::bench::{
    Objects, assert_sound, backups_apart, check_plainly, finding, folder, objects, open, replaced, tiny_bench,
};
use crate::common::{Bench, bench, options, settle};
use drumlin_engine::backup;
use drumlin_engine::check::{Leftover, Part};
use drumlin_engine::monitor::{Change, Counters, Monitor, Problem, Quiet};
use drumlin_repo::Cache;
use drumlin_store::{Put, Store};
use drumlin_testkit::{Rng, tree};
use std::fs;
use std::path::Path;
use std::sync::Arc;

#[track_caller]
fn sound_in_all_ways(bench: &Bench) -> drumlin_engine::check::Report {
    let recovery = bench.repository.recovery_file();
    let repository = open(Arc::new(bench.memory.clone()), &recovery);
    assert_sound(&check_plainly(&repository, None));
    let report = check_plainly(&repository, Some(Part::All));
    assert_sound(&report);
    let read = report.read.unwrap();
    assert_eq!((read.packs, read.bytes), (read.packs_total, read.bytes_total));
    report
}

#[test]
fn an_empty_repository_and_an_empty_tree() {
    let bench = bench();
    let report = sound_in_all_ways(&bench);
    assert_eq!((report.snapshots, report.packs), (0, 0));
    // A stream of nothing, and a folder of nothing.
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    bench.backup(&source);
    let report = sound_in_all_ways(&bench);
    assert_eq!((report.snapshots, report.chunks), (1, 0));
    assert!(report.entries > 0, "the folders above it");
}

#[test]
fn all_that_a_tree_can_hold() {
    let bench = bench();
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    let _ends = tree::Unprotect(&source);
    tree::nasty(&source, rustix::process::geteuid().is_root()).unwrap();
    settle();
    let first = bench.backup(&source);
    let report = sound_in_all_ways(&bench);
    assert_eq!(report.entries, first.snapshot.unwrap().root.unwrap().sums.entries);
}

#[test]
fn a_large_file_whose_list_has_nodes_above_nodes() {
    let bench = tiny_bench();
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("large"), Rng::new(3).bytes(64 << 20)).unwrap();
    fs::write(source.join("small"), "small").unwrap();
    settle();
    let first = bench.backup(&source);
    let report = sound_in_all_ways(&bench);
    assert!(report.chunks > 5000 && report.chunks == first.counts.chunks, "{}", report.chunks);
    assert!(report.nodes > 12, "{} nodes are no list of two levels", report.nodes);
    assert!(report.lookups < report.chunks / 4, "{} of {} chunks were looked up", report.lookups, report.chunks);
}

/// Asks for an end once so many entries were met.
struct EndsAfter(Counters, u64);

impl Monitor for EndsAfter {
    fn counters(&self) -> &Counters {
        &self.0
    }
    fn problem(&self, _: &Problem) {}
    fn entry(&self, _: Change, _: &[u8]) {}
    fn stop(&self) -> bool {
        self.0.get().entries >= self.1
    }
}

#[test]
fn partial_snapshots_and_whole_ones_on_top_of_them() {
    let bench = bench();
    let source = bench.folder.path().join("source");
    for n in 0..2000 {
        let path = source.join(format!("{:02}/{n}", n % 40));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, n.to_string().repeat(50)).unwrap();
    }
    settle();
    let monitor = EndsAfter(Counters::default(), 600);
    let stopped = backup::backup(&bench.repository, &bench.cache, options(&[&source]), &monitor).unwrap();
    assert!(stopped.stopped && stopped.snapshot.is_some());
    let report = sound_in_all_ways(&bench);
    assert_eq!(report.snapshots, 1);
    bench.backup(&source);
    let report = sound_in_all_ways(&bench);
    assert_eq!(report.snapshots, 2);
}

#[test]
fn packs_that_no_index_names_are_told_and_no_damage() {
    let bench = bench();
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), "contents").unwrap();
    settle();
    bench.backup(&source);
    let names = ["data/07/07070707070707070707070707070707", "tree/08/08080808080808080808080808080808"];
    names.iter().for_each(|name| bench.memory.put(name, b"half of a pack", Put::Create).unwrap());
    // What bears no name of ours is nobody's business.
    for name in ["data/07/x", "data/08/07070707070707070707070707070707", "data/readme", "forgotten/x", "locks/1"] {
        bench.memory.put(name, b"something else", Put::Create).unwrap();
    }
    let report = sound_in_all_ways(&bench);
    assert_eq!(report.leftover, Leftover { packs: 2, bytes: 28 });
}

/// Two backups of the same files at the same moment, of which neither sees the other: every chunk is there twice.
fn twice() -> (Objects, String, std::path::PathBuf, Bench) {
    let bench = tiny_bench();
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    (0..30).for_each(|n| fs::write(source.join(n.to_string()), Rng::new(n).bytes(20_000)).unwrap());
    fs::write(source.join("large"), Rng::new(99).bytes(400_000)).unwrap();
    settle();
    let recovery = bench.repository.recovery_file().to_string();
    let empty = objects(&bench.memory);
    let [(mut both, _), (second, _)] = backups_apart(&empty, &recovery, &source, bench.folder.path());
    both.extend(second);
    (both, recovery, source, bench)
}

#[test]
fn what_is_there_twice_is_sound_and_not_lost_with_one_of_its_packs() {
    let (both, recovery, ..) = twice();
    let repository = replaced(&both, &both, &recovery);
    let report = check_plainly(&repository, Some(Part::All));
    assert_sound(&report);
    assert_eq!(report.snapshots, 2);
    let packs: Vec<_> = both.keys().filter(|n| matches!(folder(n), "data" | "tree")).collect();
    assert!(packs.len() >= 6, "{packs:?}");
    for pack in &packs {
        let mut damaged = both.clone();
        damaged.remove(*pack);
        let report = check_plainly(&replaced(&both, &damaged, &recovery), None);
        assert_eq!(report.findings.len(), 1, "{:#?}", report.findings);
        let found = finding(&report, pack).unwrap();
        assert!(found.chunks > 0 && found.chunks_elsewhere == found.chunks, "{found:#?}");
        assert!(found.snapshots.is_empty() && found.touched.is_empty(), "{found:#?}");
    }
    // Without the tree packs of either nothing is left to be read.
    let mut damaged = both.clone();
    damaged.retain(|name, _| folder(name) != "tree");
    let report = check_plainly(&replaced(&both, &damaged, &recovery), None);
    for found in &report.findings {
        assert_eq!((found.chunks_elsewhere, found.snapshots.len()), (0, 2), "{found:#?}");
    }
}

#[test]
fn what_is_bad_in_one_pack_and_whole_in_another_is_not_lost() {
    let (both, recovery, source, bench) = twice();
    let mut damaged = both.clone();
    let pack = both.keys().find(|n| folder(n) == "data").unwrap();
    drumlin_testkit::wipe_parity(damaged.get_mut(pack).unwrap());
    damaged.get_mut(pack).unwrap()[5000] ^= 1;
    let report = check_plainly(&replaced(&both, &damaged, &recovery), Some(Part::All));
    let found = finding(&report, pack).unwrap();
    assert!(found.chunks > 0 && found.chunks_elsewhere == found.chunks && found.touched.is_empty(), "{found:#?}");
    restores(&replaced(&both, &both, &recovery), &source, &bench);
}

/// The repository that the tests above bend gives back what went into it.
fn restores(repository: &drumlin_repo::Repository, source: &Path, bench: &Bench) {
    let cache = Arc::new(Cache::open(repository, None, bench.folder.path()).unwrap());
    for info in repository.snapshots().unwrap().0 {
        let target = bench.folder.path().join(info.snapshot.id.to_string());
        let mut options = crate::common::restore_options(&info.snapshot, &target);
        options.subfolder = Some(source.as_os_str().as_encoded_bytes().to_vec());
        let monitor = Quiet::default();
        drumlin_engine::restore::restore(repository, &cache, options, &monitor).unwrap();
        assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
    }
}
