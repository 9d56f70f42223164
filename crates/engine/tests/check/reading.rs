//! Parts of the packs, run after run; runs that are stopped; storage that doesn't give out all bytes.

use crate::bench::{assert_sound, finding, folder, objects, open, store_of, tiny_bench};
use crate::common::{Bench, settle};
use drumlin_engine::check::{Options, Part, Report, check};
use drumlin_engine::monitor::{Counters, Monitor, Problem, Quiet};
use drumlin_repo::{Cache, Repository};
use drumlin_store::{Call, CallLog, Fault, FaultStore, Kind, MemoryStore, Op, Put, RecordStore, Store, When};
use drumlin_testkit::Rng;
use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;

/// A repository of some forty packs, written down call by call.
struct World {
    bench: Bench,
    repository: Repository,
    cache: Arc<Cache>,
    store: MemoryStore,
    log: CallLog,
}

fn world() -> World {
    let bench = tiny_bench();
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    (0..100).for_each(|n| fs::write(source.join(n.to_string()), Rng::new(n).bytes(90_000)).unwrap());
    settle();
    bench.backup(&source);
    let store = store_of(&objects(&bench.memory));
    let record = RecordStore::new(store.clone());
    let log = record.log();
    let repository = open(Arc::new(record), &bench.repository.recovery_file());
    let folder = bench.folder.path();
    let cache = Arc::new(Cache::open(&repository, Some(&folder.join("cache of the check")), folder).unwrap());
    World { bench, repository, cache, store, log }
}

impl World {
    fn run(&self, part: Part, monitor: &dyn Monitor) -> (Report, BTreeSet<String>) {
        self.log.take();
        let options = Options { read: Some(part), workers: 2 };
        let report = check(&self.repository, &self.cache, options, monitor).unwrap();
        let mut read = BTreeSet::new();
        for call in self.log.calls() {
            match call {
                Call::ReadAt { name, .. } if folder(&name) == "data" => drop(read.insert(name)),
                _ => {}
            }
        }
        (report, read)
    }

    fn packs(&self) -> BTreeSet<String> {
        objects(&self.store).into_keys().filter(|name| folder(name) == "data").collect()
    }
}

#[test]
fn ten_runs_of_a_tenth_read_each_pack_and_new_ones_too() {
    let world = world();
    let (tenth, before) = (Part::Share(100_000), world.packs());
    assert!(before.len() > 30);
    let mut met = BTreeSet::new();
    for n in 0..10 {
        if n == 4 {
            // More comes meanwhile.
            let source = world.bench.folder.path().join("more");
            fs::create_dir(&source).unwrap();
            (0..20).for_each(|n| fs::write(source.join(n.to_string()), Rng::new(500 + n).bytes(90_000)).unwrap());
            settle();
            world.bench.backup(&source);
            for (name, bytes) in objects(&world.bench.memory) {
                world.store.put(&name, &bytes, Put::Replace).unwrap();
            }
        }
        let (report, read) = world.run(tenth, &Quiet::default());
        assert_sound(&report);
        let told = report.read.unwrap();
        assert!(told.bytes >= told.bytes_total / 10 && told.bytes < told.bytes_total / 4, "{told:?}");
        assert!(n > 0 || read.len() < before.len() / 5, "{} of {}", read.len(), before.len());
        met.extend(read);
    }
    assert!(met.is_superset(&before));
    // What came in the fifth run is read in the fourteenth at the latest.
    (0..4).for_each(|_| met.extend(world.run(tenth, &Quiet::default()).1));
    assert!(world.packs().len() > before.len() && met == world.packs());
}

#[test]
fn parts_by_number_need_no_cache() {
    let mut world = world();
    world.cache = Arc::new(Cache::open(&world.repository, None, world.bench.folder.path()).unwrap());
    let mut met = BTreeSet::new();
    for n in 1..=3 {
        let (report, read) = world.run(Part::Nth { n, of: 3 }, &Quiet::default());
        assert_sound(&report);
        assert!(read.is_disjoint(&met) && !read.is_empty(), "each is in one part");
        assert_eq!(world.run(Part::Nth { n, of: 3 }, &Quiet::default()).1, read, "and stays in it");
        met.extend(read);
    }
    assert_eq!(met, world.packs());
    // A share of what was read longest ago can't be told without a memory.
    let options = Options { read: Some(Part::Share(100_000)), workers: 2 };
    let refused = check(&world.repository, &world.cache, options, &Quiet::default()).unwrap_err();
    assert!(refused.to_string().contains("1/10"), "{refused}");
}

/// Asks for an end once so many bytes were read.
struct EndsAfter(Counters, u64);

impl Monitor for EndsAfter {
    fn counters(&self) -> &Counters {
        &self.0
    }
    fn problem(&self, _: &Problem) {}
    fn stop(&self) -> bool {
        self.0.get().bytes_read >= self.1
    }
}

#[test]
fn a_stopped_run_is_gone_on_with() {
    let world = world();
    for part in [Part::All, Part::Share(600_000), Part::Nth { n: 1, of: 2 }] {
        let (stopped, first) = world.run(part, &EndsAfter(Counters::default(), 2 << 20));
        assert!(stopped.stopped);
        let read = stopped.read.unwrap();
        assert!(read.packs > 3 && read.packs < 20, "{read:?}");
        let (report, second) = world.run(part, &Quiet::default());
        assert_sound(&report);
        let told = report.read.unwrap();
        assert_eq!((told.packs_before, told.bytes_before), (read.packs, read.bytes));
        // Of the packs at hand when it was stopped each thread had one.
        assert!(first.intersection(&second).count() <= 2, "{:?}", first.intersection(&second));
        if part == Part::All {
            assert_eq!(&first | &second, world.packs());
        }
        // And the one after that begins anew.
        let (again, _) = world.run(part, &Quiet::default());
        assert_eq!(again.read.unwrap().packs_before, 0);
    }
    // Before anything is read there is nothing to keep.
    let (stopped, read) = world.run(Part::All, &EndsAfter(Counters::default(), 0));
    assert!(stopped.stopped && read.is_empty());
}

#[test]
fn what_is_damaged_is_read_again_each_time() {
    let world = world();
    let pack = world.packs().into_iter().next().unwrap();
    let mut bytes = world.store.get(&pack).unwrap();
    drumlin_testkit::wipe_parity(&mut bytes);
    bytes[5000] ^= 1;
    world.store.put(&pack, &bytes, Put::Replace).unwrap();
    let mut found = 0;
    for _ in 0..12 {
        let (report, read) = world.run(Part::Share(100_000), &Quiet::default());
        assert_eq!(read.contains(&pack), finding(&report, &pack).is_some());
        found += usize::from(finding(&report, &pack).is_some());
        assert!(found == 0 || read.contains(&pack), "once it is found it stays first");
    }
    assert!(found > 2);
}

/// A bad sector: what else is in the pack is read all the same, and only what is in the bad block is lost.
#[test]
fn a_place_that_cannot_be_read_is_damage_of_its_block() {
    let world = world();
    let mut whole = objects(&world.store);
    let pack = world.packs().into_iter().next().unwrap();
    drumlin_testkit::wipe_parity(whole.get_mut(&pack).unwrap());
    for kind in [Kind::Io, Kind::Refused] {
        let store = FaultStore::new(store_of(&whole));
        let faults = store.faults();
        let repository = open(Arc::new(store), &world.bench.repository.recovery_file());
        // The table, then all blocks in one piece, then the first of them by itself.
        faults.add(When::op(Op::ReadAt).named(&pack).skip(1).times(2), Fault::Fail(kind));
        let report = crate::bench::check_plainly(&repository, Some(Part::All));
        assert_eq!(report.findings.len(), 1, "{:#?}", report.findings);
        let found = finding(&report, &pack).unwrap();
        assert!(found.causes.len() == 1 && found.causes[0].starts_with("block 0: "), "{found:#?}");
        assert!(found.chunks > 0 && !found.touched.is_empty(), "{found:#?}");
    }
    // A storage that is away is no damage: the check ends.
    let store = FaultStore::new(store_of(&whole));
    let faults = store.faults();
    let repository = open(Arc::new(store), &world.bench.repository.recovery_file());
    faults.add(When::op(Op::ReadAt).named(&pack), Fault::Fail(Kind::Transient));
    let cache = Arc::new(Cache::open(&repository, None, world.bench.folder.path()).unwrap());
    let options = Options { read: Some(Part::All), workers: 2 };
    check(&repository, &cache, options, &Quiet::default()).unwrap_err();
    for folder in ["index", "data", "tree", "snapshots", "keys", "sessions", "decisions", "plans"] {
        faults.clear();
        faults.add(When::op(Op::List).named(folder), Fault::Fail(Kind::Io));
        check(&repository, &cache, options, &Quiet::default()).unwrap_err();
    }
    // An object that isn't given out is one that is damaged.
    for folder in ["index", "snapshots", "keys", "config"] {
        faults.clear();
        faults.add(When::op(Op::Get).named(&format!("{folder}*")), Fault::Fail(Kind::Io));
        let report = check(&repository, &cache, options, &Quiet::default()).unwrap();
        assert!(report.findings.iter().any(|f| f.object.starts_with(folder)), "{:#?}", report.findings);
    }
}
