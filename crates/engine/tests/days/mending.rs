//! A repair that has something to repair, on the same bad days: killed at any call, with what was not synced lost; on a
//! disk that is full after any number of bytes; with a place that can't be read once. What could be restored before can
//! be restored after, and the next repair makes everything sound.

use crate::deed::Deed;
use crate::scene::{Objects, Scene};
use drumlin_engine::check::{self, Part, check};
use drumlin_engine::monitor::Quiet;
use drumlin_format::PackId;
use drumlin_repo::names;
use drumlin_store::{Fault, FaultStore, Kind, MemoryStore, Store, When};
use drumlin_testkit::Rng;

/// Tries of each sort.
const TRIES: u64 = 24;

/// What befalls the repair.
#[derive(Clone, Copy, Debug)]
enum Bad {
    /// Killed at this call; what was not synced is lost, or some of it.
    Killed(u64),
    /// The disk takes no more than so many bytes.
    Full(u64),
    /// This call fails, once.
    Unreadable(u64),
}

/// Every pack has lost some bytes that its parity makes up for.
fn bent() -> Scene {
    let mut scene = Scene::new(false, false);
    let packs = |name: &String| name.starts_with("data/") || name.starts_with("tree/");
    for (name, bytes) in scene.objects.iter_mut().filter(|(name, _)| packs(name)) {
        let middle = bytes.len() / 3;
        bytes[middle] ^= 0x20;
        scene.damaged.extend(PackId::parse(names::last(name)));
    }
    scene
}

/// Index objects are gone, and what they say is in the packs alone.
fn unindexed() -> Scene {
    let mut scene = Scene::new(false, false);
    let whole: Objects = std::mem::take(&mut scene.objects);
    let mut number = 0;
    scene.objects = whole
        .into_iter()
        .filter(|(name, _)| {
            number += u32::from(name.starts_with("index/"));
            !name.starts_with("index/") || number % 2 == 0
        })
        .collect();
    scene
}

/// Repair on a bad day, or a good one; how many calls that were, and how many bytes came.
fn repair(scene: &Scene, bad: Option<Bad>, whole_meanwhile: bool, rng: &mut Rng) -> u64 {
    let memory = scene.store();
    let store = FaultStore::new(memory.clone());
    let faults = store.faults();
    let repository = scene.open(store);
    let first = faults.calls();
    match bad {
        Some(Bad::Killed(at)) => faults.add(When::any().skip(at), Fault::Fail(Kind::Io)),
        Some(Bad::Unreadable(at)) => faults.add(When::any().skip(at).times(1), Fault::Fail(Kind::Io)),
        Some(Bad::Full(bytes)) => faults.full_after(bytes),
        None => {}
    }
    let outcome = Deed::Repair.run(scene, &repository);
    let calls = faults.calls() - first;
    let what = format!("{bad:?}");
    match (&outcome, bad) {
        (Err(error), None) => panic!("{error}"),
        (Err(error), _) => {
            let text = error.to_string();
            assert!(["the test says so", "no space", "full"].iter().any(|why| text.contains(why)), "{what}: {text}");
        }
        _ => {}
    }
    match (bad, rng.below(3)) {
        (Some(Bad::Killed(_)), 0) => memory.crash(),
        (Some(Bad::Killed(_)), 1) => memory.crash_keeping(|_| rng.one_in(2)),
        _ => {}
    }
    if whole_meanwhile {
        let wrongs = scene.wrongs(&memory, &[]);
        assert!(wrongs.is_empty(), "{what}: {wrongs:#?}");
    }
    mends(scene, &memory, &what);
    calls
}

/// The next one makes everything sound, to the last byte.
fn mends(scene: &Scene, memory: &MemoryStore, what: &str) {
    let repository = scene.open(memory.clone());
    Deed::Repair.run(scene, &repository).unwrap_or_else(|e| panic!("{what}, and again: {e}"));
    let wrongs = scene.wrongs(memory, &[]);
    assert!(wrongs.is_empty(), "{what}, and again: {wrongs:#?}");
    assert_eq!(findings(scene, memory), Vec::<String>::new(), "{what}, and again");
}

fn on_bad_days(scene: &Scene, whole_meanwhile: bool) {
    let mut rng = Rng::new(11);
    let calls = repair(scene, None, whole_meanwhile, &mut rng);
    assert!(calls > 20, "{calls}");
    let bytes: u64 = scene.objects.values().map(|object| object.len() as u64).sum();
    for n in 0..TRIES {
        let at = n * calls / TRIES + rng.below((calls / TRIES).max(1) as usize) as u64;
        repair(scene, Some(Bad::Killed(at)), whole_meanwhile, &mut rng);
        repair(scene, Some(Bad::Unreadable(at)), whole_meanwhile, &mut rng);
        repair(scene, Some(Bad::Full(n * bytes / TRIES)), whole_meanwhile, &mut rng);
    }
}

#[test]
fn packs_are_healed_whatever_happens_meanwhile() {
    on_bad_days(&bent(), true);
}

#[test]
fn the_index_is_made_anew_whatever_happens_meanwhile() {
    on_bad_days(&unindexed(), false);
}

/// A place that stays unreadable, in each object in turn: a check names the object, a repair makes it good, and whoever
/// reads then never comes to that place again.
#[test]
fn a_place_that_stays_unreadable_is_got_over() {
    let mut scene = Scene::new(false, false);
    let lens: Vec<(String, u64)> =
        scene.objects.iter().map(|(name, bytes)| (name.clone(), bytes.len() as u64)).collect();
    let healable = |name: &str| ["data/", "tree/", "index/"].iter().any(|folder| name.starts_with(folder));
    for (name, len) in lens.iter().filter(|(name, _)| healable(name)) {
        let store = FaultStore::new(scene.store());
        store.faults().bad_bytes(name, len / 2..len / 2 + 1);
        let named = findings(&scene, &store);
        assert!(named.iter().any(|object| object == name), "{name}: {named:?}");
        scene.damaged = PackId::parse(names::last(name)).into_iter().collect();
        for deed in [Deed::Repair, Deed::Prune] {
            let outcome = deed.run(&scene, &scene.open(store.clone()));
            assert!(outcome.is_ok(), "{name}, {deed:?}: {outcome:?}");
            let wrongs = scene.wrongs(&store, &[]);
            assert!(wrongs.is_empty(), "{name}, {deed:?}: {wrongs:#?}");
        }
        let told = Deed::Dump.run(&scene, &scene.open(store.clone())).unwrap();
        assert!(told.is_empty(), "{name}: {told:?}");
        assert_eq!(findings(&scene, &store), Vec::<String>::new(), "{name}");
    }
}

/// The objects that a check of everything names.
fn findings(scene: &Scene, store: &(impl Store + Clone + 'static)) -> Vec<String> {
    let repository = scene.open(store.clone());
    let options = check::Options { read: Some(Part::All), workers: 1 };
    let report = check(&repository, &scene.cache(&repository), options, &Quiet::default()).unwrap();
    report.findings.into_iter().map(|finding| finding.object).collect()
}
