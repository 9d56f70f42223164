//! What damage touches: exactly that, in each snapshot, compared with a plain walk.

use crate::bench::{Objects, check_plainly, finding, folder, objects, replaced, tiny_bench};
use crate::common::{Bench, settle};
use crate::model::{Model, spelled_out};
use drumlin_engine::check::{ObjectKind, PATHS_MAX, Part, Report};
use drumlin_format::SnapshotId;
use drumlin_format::snapshot::Snapshot;
use drumlin_repo::Repository;
use drumlin_testkit::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

struct World {
    bench: Bench,
    whole: Objects,
    recovery: String,
    snapshots: Vec<Snapshot>,
    model: Model,
}

/// Three snapshots of a tree that changes a little, in many packs.
fn world() -> World {
    let bench = tiny_bench();
    let source = bench.folder.path().join("source");
    let file = |n: u64| source.join(format!("d{}/s{}/{n:04}", n % 5, n % 3));
    for n in 0..400 {
        fs::create_dir_all(file(n).parent().unwrap()).unwrap();
        fs::write(file(n), Rng::new(n).bytes(if n % 40 == 0 { 60_000 } else { 1500 })).unwrap();
    }
    // Of its list some nodes come to other packs than the rest.
    fs::write(source.join("d2/large"), Rng::new(1000).bytes(4 << 20)).unwrap();
    fs::write(source.join("empty"), "").unwrap();
    settle();
    let mut snapshots = vec![bench.backup(&source).snapshot.unwrap()];
    for round in 0..2 {
        for n in [3, 77, 160] {
            fs::write(file(n + round), Rng::new(5000 + n + round).bytes(3000)).unwrap();
        }
        fs::remove_file(file(200 + round)).unwrap();
        settle();
        snapshots.push(bench.backup(&source).snapshot.unwrap());
    }
    let whole = objects(&bench.memory);
    let recovery = bench.repository.recovery_file().to_string();
    let model = Model::new(&bench.repository, &bench.cache, &whole);
    World { bench, whole, recovery, snapshots, model }
}

impl World {
    fn damaged(&self, by: &Objects) -> Repository {
        replaced(&self.whole, by, &self.recovery)
    }

    /// Compare a finding with the loss of these packs.
    #[track_caller]
    fn compare(&self, report: &Report, object: &str, packs: &BTreeSet<String>) -> usize {
        let found = finding(report, object).unwrap_or_else(|| panic!("{object}: {:#?}", report.findings));
        let mut expected: BTreeMap<SnapshotId, u64> = BTreeMap::new();
        let (mut named, mut lost_in_all) = (BTreeSet::new(), BTreeSet::new());
        for snapshot in &self.snapshots {
            let (all, lost) = (self.model.all(snapshot), self.model.lost(snapshot, packs));
            if !lost.is_empty() {
                expected.insert(snapshot.id, lost.len() as u64);
            }
            // A stretch of another snapshot may have other entries in it than in this one.
            if self.snapshots.len() == 1 || found.touched.iter().all(|t| t.entries == 1 && t.before.is_none()) {
                named.extend(spelled_out(&found.touched, &all));
                lost_in_all.extend(lost);
            }
        }
        let told: BTreeMap<_, _> = found.snapshots.iter().map(|s| (s.id, s.entries.unwrap())).collect();
        assert_eq!(told, expected, "{object}");
        if !found.touches_more {
            assert_eq!(named, lost_in_all, "{object}");
        }
        expected.values().map(|n| *n as usize).sum()
    }
}

#[test]
fn a_lost_pack_touches_exactly_what_it_held() {
    let world = world();
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    let mut partly = 0;
    for pack in world.whole.keys().filter(|n| matches!(folder(n), "data" | "tree")) {
        let mut damaged = world.whole.clone();
        damaged.remove(pack);
        let report = check_plainly(&world.damaged(&damaged), None);
        assert_eq!(report.findings.len(), 1, "{:#?}", report.findings);
        let touched = world.compare(&report, pack, &[pack.clone()].into());
        assert!(touched > 0, "{pack}");
        partly += usize::from(touched < 300);
        *kinds.entry(folder(pack)).or_default() += 1;
        // Read or not, that is the same.
        let read = check_plainly(&world.damaged(&damaged), Some(Part::All));
        assert_eq!(read.findings, report.findings);
    }
    assert!(kinds["data"] > 10 && kinds["tree"] >= 3 && partly > 5, "{kinds:?} {partly}");
}

#[test]
fn several_lost_packs_are_told_apart() {
    let world = world();
    let packs: BTreeSet<String> = world.whole.keys().filter(|n| folder(n) == "data").step_by(3).cloned().collect();
    let mut damaged = world.whole.clone();
    damaged.retain(|name, _| !packs.contains(name));
    let report = check_plainly(&world.damaged(&damaged), None);
    assert_eq!(report.findings.len(), packs.len());
    for pack in &packs {
        world.compare(&report, pack, &[pack.clone()].into());
    }
}

#[test]
fn a_bad_block_touches_what_is_in_it_and_not_the_rest_of_its_pack() {
    let world = world();
    // Of many small files, in many blocks.
    let files = |pack: &&String| world.model.lost(&world.snapshots[0], &[(*pack).clone()].into()).len();
    let pack = world.whole.keys().filter(|n| folder(n) == "data").max_by_key(files).unwrap();
    let mut damaged = world.whole.clone();
    drumlin_testkit::wipe_parity(damaged.get_mut(pack).unwrap());
    damaged.get_mut(pack).unwrap()[1000] ^= 1;
    assert!(check_plainly(&world.damaged(&damaged), None).findings.is_empty(), "contents aren't read");
    let report = check_plainly(&world.damaged(&damaged), Some(Part::All));
    let found = finding(&report, pack).unwrap();
    assert!(found.causes.len() == 1 && found.causes[0].starts_with("block 0: "), "{found:#?}");
    let all: BTreeSet<_> = world.snapshots.iter().flat_map(|s| world.model.lost(s, &[pack.clone()].into())).collect();
    let named: BTreeSet<_> = found.touched.iter().map(|t| t.path.clone()).collect();
    assert!(!named.is_empty() && named.len() < all.len() && named.is_subset(&all), "{} of {}", named.len(), all.len());
    // Those are the very ones that a restore can't give back.
    let repository = world.damaged(&damaged);
    let cache = std::sync::Arc::new(drumlin_repo::Cache::open(&repository, None, world.bench.folder.path()).unwrap());
    let mut lost = BTreeSet::new();
    for snapshot in &world.snapshots {
        let target = world.bench.folder.path().join(snapshot.id.to_string());
        let options = crate::common::restore_options(snapshot, &target);
        let monitor = drumlin_engine::monitor::Quiet::default();
        drumlin_engine::restore::restore(&repository, &cache, options, &monitor).unwrap();
        lost.extend(monitor.problems().into_iter().map(|p| p.path));
    }
    assert_eq!(named, lost);
}

#[test]
fn an_index_object_that_cannot_be_read_is_blamed_for_what_only_it_names() {
    let world = world();
    let indexes: Vec<_> = world.whole.keys().filter(|n| folder(n) == "index").cloned().collect();
    assert_eq!(indexes.len(), 3);
    let all: BTreeSet<String> = world.whole.keys().filter(|n| matches!(folder(n), "data" | "tree")).cloned().collect();
    for index in &indexes {
        let mut damaged = world.whole.clone();
        let bytes = damaged.get_mut(index).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        let others: Objects =
            world.whole.iter().filter(|(n, _)| *n != index).map(|(n, b)| (n.clone(), b.clone())).collect();
        let named: BTreeSet<String> =
            crate::bench::packs_of_chunks(&world.bench.repository, &others).into_values().flatten().collect();
        let only: BTreeSet<String> = all.difference(&named).cloned().collect();
        assert!(!only.is_empty());
        let report = check_plainly(&world.damaged(&damaged), None);
        assert_eq!(report.findings.len(), 1, "{:#?}", report.findings);
        assert_eq!(finding(&report, index).unwrap().kind, ObjectKind::Index);
        world.compare(&report, index, &only);
        // Gone, it can't be named; what it cost can.
        damaged.remove(index);
        let report = check_plainly(&world.damaged(&damaged), None);
        assert_eq!(report.findings.len(), 1, "{:#?}", report.findings);
        assert_eq!(report.leftover.packs, only.len() as u64);
        world.compare(&report, "index", &only);
    }
}

#[test]
fn more_paths_than_anybody_reads_are_counted() {
    let bench = tiny_bench();
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    let many = 2 * PATHS_MAX as u64;
    (0..many).for_each(|n| fs::write(source.join(n.to_string()), Rng::new(n).bytes(300)).unwrap());
    settle();
    bench.backup(&source);
    let whole = objects(&bench.memory);
    let recovery = bench.repository.recovery_file().to_string();
    let mut damaged = whole.clone();
    damaged.retain(|name, _| folder(name) != "data");
    let report = check_plainly(&replaced(&whole, &damaged, &recovery), None);
    let found = &report.findings[0];
    assert_eq!((found.touched.len(), found.touches_more), (PATHS_MAX, true));
    assert_eq!(found.snapshots[0].entries, Some(many));
}

#[test]
fn a_snapshot_that_is_lost_is_touched_as_a_whole() {
    let world = world();
    let name = format!("snapshots/{}", world.snapshots[1].id);
    let mut damaged = world.whole.clone();
    damaged.get_mut(&name).unwrap()[1500] ^= 1;
    let report = check_plainly(&world.damaged(&damaged), None);
    let touched = &finding(&report, &name).unwrap().snapshots;
    assert_eq!((touched.len(), touched[0].id, touched[0].entries), (1, world.snapshots[1].id, None));
    assert_eq!(report.snapshots, 2, "the others are walked");
}
