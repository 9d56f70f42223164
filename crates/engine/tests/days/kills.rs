//! Killed at every call to the storage, which then loses what was not synced, or keeps some of it: what was there is
//! whole, and the same operation ends well.

use crate::deed::Deed;
use crate::faults::again;
use crate::scene::{Scene, banded, tidy};
use drumlin_store::{Fault, FaultStore, Kind, When};
use drumlin_testkit::Rng;

/// Kill at this call; `None` without any. Gives how many calls there were, and whether it came to its end with nothing
/// to tell.
fn run(scene: &Scene, deed: Deed, at: Option<u64>, rng: &mut Rng) -> (u64, bool) {
    let memory = scene.store();
    let store = FaultStore::new(memory.clone());
    let faults = store.faults();
    let repository = scene.open(store);
    let first = faults.calls();
    if let Some(at) = at {
        faults.add(When::any().skip(at), Fault::Fail(Kind::Io));
    }
    let outcome = deed.run(scene, &repository);
    let calls = faults.calls() - first;
    let what = format!("{deed:?}, killed at call {at:?}");
    match rng.below(3) {
        0 => memory.crash(),
        1 => memory.crash_keeping(|_| rng.one_in(2)),
        // The process alone is gone.
        _ => {}
    }
    let wrongs = scene.wrongs(&memory, &deed.takes(scene));
    assert!(wrongs.is_empty(), "{what}: {wrongs:#?}");
    again(scene, deed, &memory, &what);
    // What the index names after all that is there.
    scene.can_save_the_old(&memory, &what);
    (calls, outcome.is_ok_and(|told| told.is_empty()))
}

fn at_every_call(deed: Deed) {
    of_scene(&tidy(), deed);
}

fn of_scene(scene: &Scene, deed: Deed) {
    let mut rng = Rng::new(deed as u64);
    let (calls, done) = run(scene, deed, None, &mut rng);
    assert!(done && calls > 5, "{deed:?}: {calls}");
    let mut unnoticed = 0;
    for at in 0..calls {
        unnoticed += usize::from(run(scene, deed, Some(at), &mut rng).1);
    }
    // What is cleared up after all is done.
    assert!(unnoticed <= 6, "{deed:?}: {unnoticed} of {calls} kills were not noticed");
}

#[test]
fn a_killed_backup() {
    at_every_call(Deed::Backup);
}

#[test]
fn a_killed_forget() {
    at_every_call(Deed::Forget);
}

#[test]
fn a_killed_undelete() {
    at_every_call(Deed::Undelete);
}

#[test]
fn a_killed_prune() {
    at_every_call(Deed::Prune);
}

#[test]
fn a_killed_repair() {
    at_every_call(Deed::Repair);
}

#[test]
fn a_killed_upkeep_of_parity() {
    of_scene(&banded(), Deed::Prune);
    of_scene(&tidy(), Deed::Parity);
    of_scene(&banded(), Deed::ParityOff);
}

#[test]
fn a_killed_copy() {
    at_every_call(Deed::CopyTo);
}
