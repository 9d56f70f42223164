//! Killed at every call to the storage, by a process or by a storage that fails from there on: what was covered and is
//! still needed is covered, and the next run ends where an undisturbed one does.

use crate::scene::{SHAPE, Scene, covered, objects, options, prune_options, store_of};
use drumlin_engine::monitor::Quiet;
use drumlin_engine::parity::{self, Shape};
use drumlin_engine::prune::{self, prune};
use drumlin_format::PackId;
use drumlin_repo::Repository;
use drumlin_repo::collection::{Board, Desk};
use drumlin_store::{Fault, FaultStore, Kind, MemoryStore, Store, When};
use std::collections::HashSet;

#[derive(Clone, Copy, Debug)]
enum Deed {
    Prune,
    Reshape,
}

fn run(deed: Deed, scene: &Scene, repository: &Repository, evict: bool) -> drumlin_engine::Result<()> {
    let cache = scene.cache(repository);
    let evict = if evict { Desk::new(repository).sessions()? } else { Vec::new() };
    match deed {
        Deed::Prune => {
            let options = prune::Options { evict, workers: 1, ..prune_options() };
            prune(repository, &cache, &options, &Quiet::default()).map(drop)
        }
        Deed::Reshape => {
            let shape = Some(Shape { rows: 1, ..SHAPE });
            let options = parity::Options { evict, workers: 1, ..options(shape) };
            parity::cover(repository, &cache, &options, &Quiet::default()).map(drop)
        }
    }
}

fn packs(memory: &MemoryStore) -> HashSet<PackId> {
    let mut packs = HashSet::new();
    for folder in ["data", "tree"] {
        let each =
            &mut |listed: drumlin_store::Listed| packs.extend(PackId::parse(listed.name.rsplit('/').next().unwrap()));
        memory.list(folder, each).unwrap();
    }
    packs
}

#[test]
fn killed_at_every_call() {
    let mut scene = Scene::new(3);
    scene.keep(&[2]);
    let start = scene.objects();
    let before = covered(&scene.bench.memory, &scene.bench.repository);
    for deed in [Deed::Prune, Deed::Reshape] {
        let attempt = |from: Option<u64>| {
            let memory = store_of(&start);
            let store = FaultStore::new(memory.clone());
            let faults = store.faults();
            let repository = scene.open(store);
            let first = faults.calls();
            if let Some(from) = from {
                faults.add(When::any().skip(from).times(u64::MAX), Fault::Fail(Kind::Io));
            }
            let done = run(deed, &scene, &repository, false);
            (memory, done, faults.calls() - first)
        };
        let (memory, done, calls) = attempt(None);
        done.unwrap();
        let settled = objects(&memory).values().map(Vec::len).sum::<usize>();
        let stay: HashSet<PackId> = packs(&memory).intersection(&before).copied().collect();
        assert!(!stay.is_empty() && calls > 60, "{deed:?}: {calls} calls, {} packs stay", stay.len());
        let mut failed = 0;
        for from in 0..calls {
            let (memory, done, _) = attempt(Some(from));
            // What could not be removed at the end is left to the next run.
            failed += u64::from(done.is_err());
            let repository = scene.open(memory.clone());
            let now = covered(&memory, &repository);
            // What is half made or half removed is no damage.
            let findings = scene.check_of(&memory).findings;
            assert!(findings.is_empty(), "{deed:?}, call {from} of {calls}: {findings:#?}");
            let missing: Vec<_> = stay.difference(&now).collect();
            assert!(missing.is_empty(), "{deed:?}, call {from} of {calls}: {missing:?} are not covered any more");
            run(deed, &scene, &repository, true).unwrap_or_else(|e| panic!("{deed:?}, call {from}: {e}"));
            // A prune with nothing to prune leaves dead sessions, and whoever comes then says of them that they are
            // dead.
            run(deed, &scene, &repository, true).unwrap();
            let now = covered(&memory, &repository);
            assert!(packs(&memory).is_subset(&now), "{deed:?}, call {from} of {calls}: not all is covered after it");
            let cache = scene.cache(&repository);
            let plan = parity::plan(&repository, &cache, &options(None), &Quiet::default()).unwrap();
            assert_eq!((plan.made, plan.removed.objects), (0, 0), "{deed:?}, call {from}: {plan:?}");
            let after = objects(&memory).values().map(Vec::len).sum::<usize>();
            assert!(
                after * 100 < settled * 112,
                "{deed:?}, call {from}: {after} bytes are left, {settled} without the failure"
            );
            if from % 9 == 0 {
                assert_eq!(scene.differences(&memory, 0), 0, "{deed:?}, call {from}");
            }
        }
        assert!(failed + 4 > calls, "{deed:?}: {failed} of {calls} failures were noticed");
    }
}
