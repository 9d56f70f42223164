//! Bands kept up to date: what is covered, what that costs, who may.

use crate::common;
use crate::scene::{SHAPE, Scene, covered, options, prune_options};
use drumlin_engine::monitor::{ProblemKind, Quiet};
use drumlin_engine::parity::{self, Shape};
use drumlin_engine::prune::{self, prune};
use drumlin_format::key::Role;
use drumlin_format::session::Session;
use drumlin_repo::collection::Registration;
use drumlin_repo::{NewLock, Repository, Unlock, names};
use drumlin_seal::Secret;
use drumlin_store::{Call, Fault, FaultStore, Kind, Op, RecordStore, Store, When};
use std::collections::HashSet;
use std::sync::Arc;

#[test]
fn what_is_covered_is_left_alone() {
    let scene = Scene::new(2);
    let before = scene.objects();
    let report = scene.cover(None);
    assert_eq!((report.made, report.removed.objects, report.cost.read), (0, 0, 0));
    assert_eq!(report.shape, SHAPE);
    assert!(scene.objects() == before);
    // The cost of it is about what it says.
    assert!(report.bytes < report.covered.bytes * 7 / 10, "{report:?}");
}

#[test]
fn new_packs_are_covered_at_little_cost() {
    let mut scene = Scene::new(2);
    for state in 2..6 {
        scene.backup(state);
        let uncovered = scene.check(false).parity.unwrap().uncovered;
        assert!(uncovered.packs >= 2);
        let plan = scene.plan();
        assert_eq!((plan.uncovered.packs, plan.uncovered.bytes), (uncovered.packs, uncovered.bytes));
        let report = scene.cover(None);
        assert_eq!((report.made, report.cost.read), (plan.made, plan.cost.read), "the plan is what is done");
        assert_eq!((report.uncovered.packs, report.left.clone()), (0, None), "{report:?}");
        // Of each length there is one band to be filled at the most.
        assert!(report.cost.read <= uncovered.bytes + 4 * 300_000, "{report:?}");
        let sparse = scene.bands().all.iter().filter(|b| b.head.members().count() * 2 <= SHAPE.seats).count();
        assert!(sparse <= 4, "{sparse} bands are half empty");
    }
    assert_eq!(covered(&scene.bench.memory, &scene.bench.repository).len(), scene.packs().len());
    scene.all_whole();
}

/// A prune reads the packs that go and those that come, and not those that stay.
#[test]
fn a_prune_keeps_all_covered_and_reads_little() {
    let mut scene = Scene::new(6);
    scene.cover(Some(Shape { seats: 16, rows: 1 }));
    scene.keep(&[0, 1, 2, 3, 5]);
    let repository = scene.repository();
    let plan = prune::plan(&repository, &scene.cache(&repository), &prune_options(), &Quiet::default()).unwrap();
    assert!(plan.bands > 0 && plan.parity.read > 0, "{plan:?}");
    let before: HashSet<String> = scene.packs().into_keys().collect();
    let store = RecordStore::new(scene.bench.memory.clone());
    let log = store.log();
    let repository = scene.open(store);
    let report = prune(&repository, &scene.cache(&repository), &prune_options(), &Quiet::default()).unwrap();
    let parity = report.parity.unwrap();
    assert_eq!((parity.uncovered.packs, parity.left), (0, None));
    let after: HashSet<String> = scene.packs().into_keys().collect();
    let stay: Vec<&String> = before.intersection(&after).collect();
    assert!(report.gone.packs > 0 && !stay.is_empty());
    assert_eq!(covered(&scene.bench.memory, &scene.bench.repository).len(), after.len());
    // Of packs that stay none is read, but for those of bands in which hardly anything stays.
    let whole = |name: &str| {
        let of = |call: &Call| match call {
            Call::ReadAt { name: read, bytes, .. } if read == name => *bytes,
            _ => 0,
        };
        let reads: u64 = log.calls().iter().map(of).sum();
        reads >= scene.bench.memory.len(name).unwrap().unwrap()
    };
    let read = stay.iter().filter(|name| whole(name)).count();
    assert!(read * 4 <= stay.len(), "{read} of {} packs that stay were read", stay.len());
    let again = scene.plan();
    assert_eq!((again.made, again.removed.objects), (0, 0), "{again:?}");
    scene.all_whole();
    assert!(scene.check(true).findings.is_empty());
    // With nothing left to be covered, nothing is left.
    scene.keep(&[]);
    scene.prune().unwrap();
    assert!(scene.objects().keys().all(|name| !name.starts_with(names::PARITY)));
}

#[test]
fn another_shape_makes_all_anew_and_stays() {
    let scene = Scene::new(3);
    let shape = Shape { seats: 4, rows: 1 };
    let report = scene.cover(Some(shape));
    assert_eq!((report.uncovered.packs, report.shape), (0, shape));
    assert!(report.removed.objects > 0 && scene.bands().all.iter().all(|band| band.head.rows == 1));
    assert_eq!(scene.cover(None).made, 0);
    assert_eq!(scene.plan().shape, shape);
    assert_eq!(covered(&scene.bench.memory, &scene.bench.repository).len(), scene.packs().len());
}

#[test]
fn without_bands_nobody_makes_any() {
    let mut scene = Scene::new(3);
    let repository = scene.repository();
    let off =
        |dry| parity::off(&repository, &scene.cache(&repository), &options(None), dry, &Quiet::default()).unwrap();
    let (would, done) = (off(true), off(false));
    assert!(would.removed.objects > 0 && would.removed == done.removed);
    assert_eq!(off(false).removed.objects, 0);
    scene.keep(&[2]);
    assert!(scene.prune().unwrap().parity.is_none());
    assert!(scene.repair(&[]).0.parity.is_none());
    assert!(scene.check(true).parity.is_none());
    assert!(scene.objects().keys().all(|name| !name.starts_with(names::PARITY)));
}

#[test]
fn a_keeper_may_and_readers_and_writers_may_not() {
    let scene = Scene::new(2);
    let owner = &scene.bench.repository;
    for (role, may) in [(Role::Keeper, true), (Role::Writer, false), (Role::Reader, false)] {
        let lock = NewLock::File(Secret::new([role as u8 + 7; 32]));
        let key = owner.add_key(role, &lock, "other", 1).unwrap();
        let file = owner.key_file(key, &Secret::new([role as u8 + 7; 32])).to_string();
        let store = Arc::new(scene.bench.memory.clone());
        let repository = Repository::open(store, &Unlock::File(file)).unwrap();
        let shape = Some(Shape { seats: 5, rows: 1 });
        let done = parity::cover(&repository, &scene.cache(&repository), &options(shape), &Quiet::default());
        assert_eq!(done.is_ok(), may, "{role:?}: {done:?}");
        assert_eq!(done.is_ok_and(|report| report.uncovered.packs == 0), may);
    }
}

/// Where no band may be written no pack is damaged, and what was to be replaced stays, with all packs in it. Where one
/// can't be, room may come of what else goes: the packs of its old bands stay.
#[test]
fn what_can_not_be_written_is_no_packs_fault() {
    for kind in [Kind::Refused, Kind::Io] {
        let mut scene = Scene::new(3);
        scene.keep(&[2]);
        let before = scene.objects();
        let faults = FaultStore::new(scene.bench.memory.clone());
        faults.faults().add(When::op(Op::Upload).named("parity/*"), Fault::Fail(kind));
        let repository = scene.open(faults);
        let (cache, monitor) = (scene.cache(&repository), Quiet::default());
        let pruned = prune(&repository, &cache, &prune_options(), &monitor);
        let shape = Some(Shape { seats: 4, rows: 1 });
        let covered = parity::cover(&repository, &cache, &options(shape), &monitor);
        let told = match kind {
            Kind::Refused => vec![pruned.unwrap_err().to_string(), covered.unwrap_err().to_string()],
            _ => {
                assert!(pruned.is_ok() && covered.unwrap().failed > 0);
                let problems = monitor.problems();
                assert!(problems.iter().all(|problem| problem.kind == ProblemKind::Unreadable), "{problems:?}");
                problems.into_iter().map(|problem| problem.cause).collect()
            }
        };
        assert!(!told.is_empty() && told.iter().all(|why| why.contains("cannot write 'parity/")), "{told:?}");
        let after = scene.objects();
        let is_kept = |name: &str| name.starts_with(names::PARITY) || name.starts_with(names::DATA);
        let mut kept = before.iter().filter(|(name, _)| is_kept(name));
        assert!(kind == Kind::Io || kept.all(|(name, bytes)| after.get(name) == Some(bytes)));
        scene.all_whole();
        scene.prune().unwrap();
        assert_eq!(scene.plan().uncovered.packs, 0);
        scene.all_whole();
    }
}

/// A collector at work: nothing is removed that it may rely on. A writer is nothing to mind.
#[test]
fn another_collector_is_not_overtaken() {
    let scene = Scene::new(2);
    let begin = |purpose| Registration::begin(&scene.bench.repository, Session::new("elsewhere", purpose, 0)).unwrap();
    let other = begin("prune");
    let shape = Some(Shape { seats: 4, rows: 1 });
    let report = scene.cover(shape);
    assert!(report.uncovered.packs == 0 && report.removed.objects == 0, "{report:?}");
    assert!(report.left.as_ref().is_some_and(|who| who.contains("a prune of host 'elsewhere'")), "{report:?}");
    let repository = scene.repository();
    let off = parity::off(&repository, &scene.cache(&repository), &options(None), false, &Quiet::default());
    assert!(matches!(off, Err(drumlin_engine::Error::Busy(_))), "{off:?}");
    other.abandon().unwrap();
    let writer = begin("backup");
    let report = scene.cover(shape);
    assert!(report.removed.objects > 0 && report.left.is_none(), "{report:?}");
    writer.abandon().unwrap();
}

/// Two at once, of any kind: whoever loses, all is whole, and the next run has all covered.
#[test]
fn two_at_once() {
    for turn in 0..6 {
        let mut scene = Scene::new(3);
        scene.keep(&[turn % 3]);
        let (one, two) = (scene.repository(), scene.repository());
        std::thread::scope(|scope| {
            let run = |repository: Repository, prunes: bool| {
                let cache = scene.cache(&repository);
                let done = match prunes {
                    true => prune(&repository, &cache, &prune_options(), &Quiet::default()).map(drop),
                    false => parity::cover(&repository, &cache, &options(None), &Quiet::default()).map(drop),
                };
                assert!(matches!(done, Ok(()) | Err(drumlin_engine::Error::Busy(_))), "{done:?}");
            };
            scope.spawn(move || run(one, true));
            scope.spawn(move || run(two, turn % 2 == 0));
        });
        scene.all_whole();
        scene.prune().unwrap();
        scene.all_whole();
        let plan = scene.plan();
        assert_eq!((plan.uncovered.packs, plan.made, plan.removed.objects), (0, 0, 0), "{plan:?}");
    }
    common::settle();
}
