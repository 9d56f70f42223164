//! A disk that is full at any write and a place that can't be read at any read, of each operation in turn.

use crate::deed::{self, Deed, SILENT, store_error};
use crate::scene::{Scene, banded, objects, tidy};
use drumlin_store::{Call, Fault, FaultStore, Kind, Op, RecordStore, Store, When};
use std::collections::BTreeMap;

const WRITES: [Op; 6] = [Op::Put, Op::Upload, Op::Write, Op::Finish, Op::Sync, Op::Delete];
const READS: [Op; 4] = [Op::List, Op::Len, Op::Get, Op::ReadAt];

/// What there is to be tried where there is parity across packs.
const BANDED: [Deed; 4] = [Deed::Prune, Deed::Repair, Deed::Parity, Deed::ParityOff];

/// The n-th call of this operation fails, and all later ones unless `once`. Gives the failed object's name, or `None`
/// if there was no such call.
fn fail(scene: &Scene, deed: Deed, op: Op, n: u64, kind: Kind, once: bool) -> Option<Failed> {
    let memory = scene.store();
    let store = FaultStore::new(memory.clone());
    let faults = store.faults();
    let store = RecordStore::new(store);
    let log = store.log();
    let repository = scene.open(store);
    log.take();
    let when = When::op(op).skip(n);
    faults.add(if once { when.times(1) } else { when }, Fault::Fail(kind));
    let outcome = deed.run(scene, &repository);
    faults.clear();
    let all = log.take().into_iter().filter_map(|call| match call {
        Call::Failed { name, kind: k, .. } if k == kind => Some(name),
        _ => None,
    });
    let all: Vec<String> = all.collect();
    let failed = all.first()?.clone();
    let what = format!("{deed:?}, {op:?} number {n} of '{failed}', {}", if once { "once" } else { "from there on" });
    let told = match &outcome {
        // Who judges a new key opens the same storage.
        Ok(told) if told.iter().any(|text| text.starts_with(SILENT) && !text.contains("the test says so")) => {
            panic!("{what}: {told:?}")
        }
        Ok(told) if kind == Kind::Exhausted && told.iter().any(|text| text.contains("the test says so")) => {
            panic!("{what}: taken for damage: {told:?}")
        }
        Ok(told) => told.iter().any(|text| {
            text.contains(&failed) && ["the test says so", "through its parity"].iter().any(|why| text.contains(why))
        }),
        // It was done without that, and something was lacking: the program tells both.
        Err(_) if repository.passed_over().contains_key(&failed) => true,
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains("the test says so"), "{what}: {text}");
            match store_error(error) {
                Some(of) => {
                    assert_eq!(of.kind, kind, "{what}: {text}");
                    assert!(text.contains(&of.name) && (!of.name.is_empty() || op == Op::Sync), "{what}: {text}");
                }
                None => assert!(all.iter().any(|name| text.contains(name)), "{what}: {text}"),
            }
            true
        }
    };
    // Whatever was not synced is lost besides.
    memory.crash();
    let wrongs = scene.wrongs(&memory, &deed.takes(scene));
    assert!(wrongs.is_empty(), "{what}: {wrongs:#?}");
    if deed.writes() {
        again(scene, deed, &memory, &what);
    } else {
        assert!(objects(&memory) == scene.objects, "{what}: it only reads");
    }
    Some(Failed { name: failed, once, told })
}

struct Failed {
    name: String,
    once: bool,
    told: bool,
}

/// The storage is well again: the same ends well, and all is sound.
pub fn again(scene: &Scene, deed: Deed, store: &(impl Store + Clone + 'static), what: &str) {
    let repository = scene.open(store.clone());
    match deed.run(scene, &repository) {
        Ok(told) => assert_eq!(told, Vec::<String>::new(), "{what}, and again"),
        // It was done all the same.
        Err(drumlin_engine::Error::NoSnapshot(_))
            if matches!(deed, Deed::Forget | Deed::Undelete | Deed::RemoveKey) => {}
        Err(error) => panic!("{what}, and again: {error}"),
    }
    let wrongs = scene.wrongs(store, &deed.takes(scene));
    assert!(wrongs.is_empty(), "{what}, and again: {wrongs:#?}");
    let report = scene.check(store);
    assert!(report.findings.is_empty(), "{what}, and again: {:#?}", report.findings);
}

/// Fail each call in turn; how many of each operation were told, and what was not.
fn each(
    scene: &Scene,
    deeds: &[Deed],
    ops: &[Op],
    kind: Kind,
    whether_once: &[bool],
    may_be_silent: fn(Deed, Op, &Failed) -> bool,
) {
    let mut told: BTreeMap<Deed, usize> = BTreeMap::new();
    let mut untold = Vec::new();
    for deed in deeds {
        for op in ops {
            for once in whether_once {
                for n in 0.. {
                    let Some(failed) = fail(scene, *deed, *op, n, kind, *once) else { break };
                    if !failed.told && !may_be_silent(*deed, *op, &failed) {
                        untold.push(format!("{deed:?}, {op:?} number {n} of '{}'", failed.name));
                    }
                    *told.entry(*deed).or_default() += usize::from(failed.told);
                }
            }
        }
    }
    assert!(untold.is_empty(), "failed, and nobody told: {untold:#?}");
    let least = |deed| if deed::KEYS.contains(deed) { 1 } else { 3 };
    assert!(told.len() == deeds.len() && told.iter().all(|(deed, n)| *n >= least(deed)), "{told:?}");
}

/// What is cleared up after the deed is done, and tried again by the next one.
fn clearing_up(deed: Deed, op: Op, failed: &Failed) -> bool {
    let of = |folder| failed.name.starts_with(folder);
    let clears = op == Op::Sync || op == Op::Delete && (of("sessions/") || of("decisions/"));
    clears && matches!(deed, Deed::Backup | Deed::Undelete | Deed::CopyTo)
}

/// An index object is read once more; and where chunks are is known without it, if it could be read before.
fn read_again(deed: Deed, failed: &Failed) -> bool {
    (failed.once || deed == Deed::Undelete) && failed.name.starts_with("index/")
}

/// A repair reads once more what stands there twice, and the history.
fn put_again(deed: Deed, failed: &Failed) -> bool {
    deed == Deed::Repair && failed.once && ["config", "keys/", "history/"].iter().any(|of| failed.name.starts_with(of))
}

#[test]
fn a_full_disk_at_any_write_is_told_and_costs_that_run() {
    let deeds: Vec<Deed> = deed::ALL.into_iter().filter(|d| d.writes() && *d != Deed::Backup).collect();
    each(&tidy(), &deeds, &WRITES, Kind::Full, &[true, false], clearing_up);
    each(&banded(), &BANDED, &WRITES, Kind::Full, &[true, false], clearing_up);
}

#[test]
fn a_place_that_cannot_be_read_is_told_and_harms_nothing() {
    let deeds = [Deed::Forget, Deed::Undelete, Deed::Prune, Deed::Repair, Deed::CopyFrom, Deed::CopyTo];
    each(&tidy(), &deeds, &READS, Kind::Io, &[true, false], |deed, _, failed| {
        read_again(deed, failed) || put_again(deed, failed)
    });
    // What is made of packs and bands is read twice, or from another place.
    each(&banded(), &BANDED, &READS, Kind::Io, &[true, false], |deed, op, failed| {
        // To remove what can't be read is what it is asked for.
        op == Op::ReadAt && (failed.once || deed == Deed::ParityOff)
            || read_again(deed, failed)
            || put_again(deed, failed)
    });
}

/// A machine that is short of descriptors or memory says nothing of what it could not read: that ends the run.
#[test]
fn what_this_machine_is_short_of_is_no_damage() {
    let deeds = [Deed::Prune, Deed::Repair, Deed::Check];
    each(&tidy(), &deeds, &READS, Kind::Exhausted, &[true, false], |deed, _, failed| put_again(deed, failed));
}

#[test]
fn who_looks_into_a_snapshot_is_told_of_what_cannot_be_read() {
    let deeds: Vec<Deed> = [Deed::Restore, Deed::Ls].into_iter().chain(deed::LOOKS).collect();
    each(&tidy(), &deeds, &READS, Kind::Io, &[true, false], |_, op, failed| {
        // What was read ahead and nobody needed: all that came is right.
        failed.once || op == Op::ReadAt && failed.name.starts_with("data/")
    });
}

#[test]
fn keys_are_changed_wholly_or_not_at_all() {
    each(&tidy(), &deed::KEYS, &WRITES, Kind::Full, &[true, false], |_, _, _| false);
    // What can't be read of new secrets is put once more, by its copy; and who looks whether a key opens says nothing
    // of copies.
    let is_twice = |_, op, failed: &Failed| {
        op == Op::Get && ["generations/", "keys/", "config"].iter().any(|of| failed.name.starts_with(of))
    };
    each(&tidy(), &deed::KEYS, &READS, Kind::Io, &[true, false], is_twice);
}

#[test]
fn a_check_looks_once_more_at_what_it_could_not_read() {
    for scene in [tidy(), banded()] {
        each(&scene, &[Deed::Check], &READS, Kind::Io, &[true, false], |_, _, failed| failed.once);
    }
}
