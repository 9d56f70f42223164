//! What can't be had: it is told and listed, nothing is deleted on the strength of it, and the next backup stores it
//! again.

use crate::common::{self, bench, prune_options, repair_options, restore_options};
use crate::scene::{Scene, pack};
use drumlin_engine::monitor::Quiet;
use drumlin_engine::repair::{self, repair};
use drumlin_engine::{Error, prune, restore};
use drumlin_format::session::Session;
use drumlin_repo::collection::{Board, Desk, Registration};
use drumlin_repo::{Cache, Repository, Unlock, names};
use drumlin_store::{Fault, FaultStore, Kind, Put, Store, When};
use drumlin_testkit::{Rng, compare, wipe_parity};
use std::collections::HashSet;
use std::fs;
use std::sync::Arc;

#[test]
fn what_is_lost_is_listed_and_healed_by_the_next_backup() {
    for damage in ["gone", "flipped", "cut short"] {
        let mut scene = Scene::new();
        let name = scene.largest(names::DATA);
        match damage {
            "gone" => scene.bench.memory.delete(&name).unwrap(),
            "flipped" => scene.flip(&name, |len| len / 2),
            _ => {
                let bytes = scene.bench.memory.get(&name).unwrap();
                scene.bench.memory.put(&name, &bytes[..bytes.len() / 2], Put::Replace).unwrap();
            }
        }
        let before = scene.differences(0).unwrap() + scene.differences(1).unwrap();
        assert!(before > 0, "{damage} is no damage");
        let damaged = if damage == "flipped" { vec![pack(&name)] } else { vec![] };
        let report = scene.repair(&damaged);
        assert!(report.lost_chunks > 0 && report.unreadable.is_empty(), "{damage}: {report:?}");
        assert_eq!(report.damaged.len(), usize::from(damage != "gone"), "{damage}: {report:?}");
        let after = scene.differences(0).unwrap() + scene.differences(1).unwrap();
        assert!(after <= before, "{damage}: repair has made it worse");
        if damage == "flipped" {
            assert!(report.salvaged > 500_000, "{report:?}");
        }
        // What is known to be lost stands in nobody's way.
        scene.prune().unwrap();
        assert!(scene.names(names::LOSSES).len() == 1);
        // A backup that meets the same bytes stores them, though nothing has changed.
        scene.backup();
        assert_eq!((scene.differences(1), scene.differences(2)), (Some(0), Some(0)), "{damage}");
        // What the source has no more can't be stored again. Without it the loss is history, and with the next prune
        // the damaged pack.
        let (repository, _) = scene.fresh();
        repository.forget(&[scene.states[0].0.id]).unwrap();
        scene.prune().unwrap();
        assert!(scene.names(names::LOSSES).is_empty(), "{damage}");
        scene.prune().unwrap();
        assert!(!scene.names(names::DATA).contains(&name), "{damage}");
        assert_eq!((scene.differences(1), scene.differences(2)), (Some(0), Some(0)), "{damage}");
        // The next one reads nothing anew.
        let (repository, cache) = scene.fresh();
        let monitor = Quiet::default();
        let options = common::options(&[&scene.source]);
        let report = drumlin_engine::backup::backup(&repository, &cache, options, &monitor).unwrap();
        assert_eq!(report.counts.bytes_read, 0, "{damage}");
    }
}

/// Of a loss that is half healed only the other half is excused: what was stored again is missed like anything else.
#[test]
fn what_was_stored_again_is_not_given_up_a_second_time() {
    let mut scene = Scene::new();
    scene.names(names::DATA).iter().for_each(|name| scene.bench.memory.delete(name).unwrap());
    assert!(scene.repair(&[]).lost_chunks > 0);
    // All but one file is in the source still.
    fs::remove_file(scene.source.join("large0")).unwrap();
    scene.backup();
    let again = scene.names(names::DATA);
    assert!(!again.is_empty() && scene.differences(1) == Some(1), "all of it was healed, or nothing");
    scene.prune().unwrap();
    assert_eq!(scene.names(names::LOSSES).len(), 1);
    // Not mounted for a while.
    let aside: Vec<_> = again.iter().map(|name| (name, scene.bench.memory.get(name).unwrap())).collect();
    again.iter().for_each(|name| scene.bench.memory.delete(name).unwrap());
    // One that has nothing to do with it: the storage isn't empty.
    fs::create_dir(scene.source.join("other")).unwrap();
    fs::write(scene.source.join("other/file"), Rng::new(77).bytes(100_000)).unwrap();
    let (repository, cache) = scene.fresh();
    let options = common::options(&[&scene.source.join("other")]);
    drumlin_engine::backup::backup(&repository, &cache, options, &Quiet::default()).unwrap();
    let pruned = scene.prune();
    assert!(matches!(pruned, Err(Error::Doubt(_))), "{pruned:?}");
    aside.iter().for_each(|(name, bytes)| scene.bench.memory.put(name, bytes, Put::Create).unwrap());
    scene.prune().unwrap();
    assert_eq!((scene.differences(1), scene.differences(2)), (Some(1), Some(0)));
}

#[test]
fn a_lost_tree_costs_the_snapshots_that_need_it() {
    let mut scene = Scene::new();
    let packs = scene.names(names::TREE);
    packs.iter().for_each(|name| scene.bench.memory.delete(name).unwrap());
    let report = scene.repair(&[]);
    assert_eq!(report.unreadable.len(), 2, "{report:?}");
    assert!(matches!(scene.prune(), Err(Error::Unsure { .. })));
    scene.backup();
    assert_eq!(scene.differences(2), Some(0));
    let (repository, _) = scene.fresh();
    repository.forget(&[scene.states[0].0.id, scene.states[1].0.id]).unwrap();
    scene.prune().unwrap();
    assert_eq!(scene.differences(2), Some(0));
    assert!(scene.names(names::LOSSES).is_empty());
}

/// Without any repair: a backup finds that the tree before can't be read, reads everything, and stores what it needs of
/// it.
#[test]
fn a_backup_gets_over_a_damaged_tree() {
    for damage in ["gone", "flipped"] {
        let mut scene = Scene::new();
        for name in scene.names(names::TREE) {
            match damage {
                "gone" => scene.bench.memory.delete(&name).unwrap(),
                _ => {
                    let mut bytes = scene.bench.memory.get(&name).unwrap();
                    bytes[40..].iter_mut().step_by(50).for_each(|b| *b ^= 1);
                    scene.bench.memory.put(&name, &bytes, Put::Replace).unwrap();
                }
            }
        }
        fs::write(scene.source.join("d0/new"), "new").unwrap();
        scene.backup();
        assert_eq!(scene.differences(2), Some(0), "{damage}");
    }
}

#[test]
fn killed_at_every_call_nothing_gets_worse() {
    let scene = Scene::new();
    scene.bench.memory.delete(&scene.largest(names::DATA)).unwrap();
    scene.flip(&scene.names(names::INDEX)[0].clone(), |_| 100);
    let start = scene.objects();
    let reset = || {
        for name in scene.names("") {
            scene.bench.memory.delete(&name).unwrap();
        }
        start.iter().for_each(|(name, bytes)| scene.bench.memory.put(name, bytes, Put::Create).unwrap());
    };
    let run = |from: Option<u64>| {
        let store = FaultStore::new(scene.bench.memory.clone());
        let faults = store.faults();
        let repository = Repository::open(Arc::new(store), &Unlock::File(scene.bench.key_file())).unwrap();
        let cache = Arc::new(Cache::open(&repository, None, scene.bench.folder.path()).unwrap());
        let first = faults.calls();
        if let Some(from) = from {
            faults.add(When::any().skip(from), Fault::Fail(Kind::Io));
        }
        let done = repair(&repository, &cache, &repair_options(), &Quiet::default());
        (done, faults.calls() - first)
    };
    let (done, calls) = run(None);
    done.unwrap();
    let wanted = (scene.differences(0), scene.differences(1));
    assert!(wanted.0.unwrap() + wanted.1.unwrap() > 0, "{wanted:?}");
    for from in (0..calls).step_by(3) {
        reset();
        let (done, made) = run(Some(from));
        // Two runs differ by a call or two: names are random, and so is what lies beside what.
        assert!(done.is_err() || made <= from, "call {from} of {made} ({calls}) failed and nobody noticed");
        let (repository, cache) = scene.fresh();
        let evict =
            drumlin_repo::collection::Board::sessions(&drumlin_repo::collection::Desk::new(&repository)).unwrap();
        repair(&repository, &cache, &repair::Options { evict, ..repair_options() }, &Quiet::default()).unwrap();
        if from % 4 == 0 {
            assert_eq!((scene.differences(0), scene.differences(1)), wanted, "call {from}");
        }
    }
}

/// A block of leaves is lost in the midst of a tree: what is before and behind it comes back, and nothing is deleted on
/// the strength of what could not be read.
#[test]
fn a_restore_gets_over_a_gap_in_the_tree() {
    const DIRS: usize = 40;
    const FILES: usize = 150;
    let bench = bench();
    let folder = common::quick_folder();
    let source = folder.path().join("source");
    let name = |dir: usize| format!("directory {dir:02}");
    for dir in 0..DIRS {
        let dir = source.join(name(dir));
        fs::create_dir_all(&dir).unwrap();
        for file in 0..FILES {
            fs::write(dir.join(format!("{file:03} {}", "a long name that fills leaves ".repeat(5))), format!("{file}"))
                .unwrap();
        }
    }
    common::settle();
    let snapshot = bench.backup(&source).snapshot.unwrap();
    let mut packs = Vec::new();
    bench.memory.list(names::TREE, &mut |listed| packs.push(listed.name)).unwrap();
    let (mut in_the_midst, mut spared) = (0, 0);
    for part in 1..16 {
        let whole = bench.memory.get(&packs[0]).unwrap();
        let mut bent = whole.clone();
        wipe_parity(&mut bent);
        let at = whole.len() / 16 * part;
        bent[at] ^= 1;
        bench.memory.put(&packs[0], &bent, Put::Replace).unwrap();
        let repository = Repository::open(Arc::new(bench.memory.clone()), &Unlock::File(bench.key_file())).unwrap();
        let cache = Arc::new(Cache::open(&repository, None, folder.path()).unwrap());
        let target = folder.path().join(format!("out{part}"));
        for dir in 0..DIRS {
            fs::create_dir_all(target.join(name(dir))).unwrap();
            fs::write(target.join(name(dir)).join("mine"), "mine").unwrap();
        }
        let mut options = restore_options(&snapshot, &target);
        options.subfolder = Some(source.as_os_str().as_encoded_bytes().to_vec());
        options.delete = true;
        let monitor = Quiet::default();
        match restore::restore(&repository, &cache, options, &monitor) {
            Ok(report) => {
                let compared = compare::Options { mtime: false, mode: false, ..Default::default() };
                let differs = compare::trees(&source, &target, &compared).unwrap().len();
                let is_damaged = report.counts.damaged > 0;
                assert_eq!((differs > 0, !monitor.problems().is_empty()), (is_damaged, is_damaged), "part {part}");
                let has_mine = |dir: usize| target.join(name(dir)).join("mine").exists();
                let restored =
                    |dir: usize| fs::read_dir(target.join(name(dir))).unwrap().count() - usize::from(has_mine(dir));
                for dir in (0..DIRS).filter(|dir| restored(*dir) < FILES) {
                    assert!(has_mine(dir), "part {part}, {}: deleted for want of knowledge", name(dir));
                    spared += 1;
                }
                // What comes before the gap is there, and what comes behind it.
                let is_there = restored(0) == FILES && restored(DIRS - 1) == FILES;
                in_the_midst += usize::from(is_damaged && is_there);
            }
            // The uppermost node, or one of its family: then there is nothing to go by.
            Err(Error::Repo(e)) => assert!(e.is_damage(), "{e}"),
            Err(e) => panic!("{e}"),
        }
        bench.memory.put(&packs[0], &whole, Put::Replace).unwrap();
        fs::remove_dir_all(&target).unwrap();
    }
    assert!(in_the_midst > 0 && spared > 0, "no damage hit leaves in the midst: {in_the_midst}, {spared}");
}

/// A folder that wasn't mounted, or half of a union of disks that was not there.
#[test]
fn packs_that_come_back_after_a_repair_are_not_taken_for_nobodys() {
    for again in [false, true] {
        let scene = Scene::new();
        let name = scene.largest(names::DATA);
        let bytes = scene.bench.memory.get(&name).unwrap();
        scene.bench.memory.delete(&name).unwrap();
        assert!(scene.repair(&[]).lost_chunks > 0);
        if again {
            let report = scene.repair(&[]);
            assert!(report.lost_chunks > 0 && report.healed == 0, "it is the same loss: {report:?}");
        }
        scene.bench.memory.put(&name, &bytes, Put::Create).unwrap();
        scene.prune().unwrap();
        assert!(scene.names(names::DATA).contains(&name), "a prune has removed what was lost and found");
        let report = scene.repair(&[]);
        assert_eq!((report.lost_chunks, report.named), (0, 1), "{report:?}");
        scene.assert_whole();
        assert!(scene.names(names::LOSSES).is_empty());
        scene.prune().unwrap();
        scene.assert_whole();
    }
}

/// A second repair finds more that is lost, and is killed at any call: until a loss stands that says all of it, the one
/// of before does. Without either the next prune would take for nobody's what comes back.
#[test]
fn whenever_a_further_repair_is_killed_what_was_lost_before_may_come_back() {
    let scene = Scene::new();
    let memory = &scene.bench.memory;
    let first = scene.largest(names::DATA);
    let lost = memory.get(&first).unwrap();
    memory.delete(&first).unwrap();
    assert!(scene.repair(&[]).lost_chunks > 0);
    memory.delete(&scene.largest(names::DATA)).unwrap();
    let start = scene.objects();
    let reset = || {
        for name in scene.names("") {
            memory.delete(&name).unwrap();
        }
        start.iter().for_each(|(name, bytes)| memory.put(name, bytes, Put::Create).unwrap());
    };
    let evicting = || {
        let (repository, cache) = scene.fresh();
        let evict = Desk::new(&repository).sessions().unwrap();
        (repository, cache, evict)
    };
    let (mut wanted, mut seen, mut with_losses) = (None, HashSet::new(), HashSet::new());
    for from in 0.. {
        reset();
        let store = FaultStore::new(memory.clone());
        let faults = store.faults();
        let repository = Repository::open(Arc::new(store), &Unlock::File(scene.bench.key_file())).unwrap();
        let cache = Arc::new(Cache::open(&repository, None, scene.bench.folder.path()).unwrap());
        faults.add(When::any().skip(from), Fault::Fail(Kind::Io));
        let done = repair(&repository, &cache, &repair_options(), &Quiet::default());
        // What a call that changes nothing leaves is as it was: the names of what is new differ from run to run.
        let left: Vec<String> = scene.names("").into_iter().filter(|name| start.contains_key(name)).collect();
        let new = ["", names::DATA, names::INDEX, names::LOSSES, names::PLANS, names::SESSIONS, names::DECISIONS]
            .map(|folder| scene.names(folder).len());
        with_losses.insert((left.iter().any(|name| name.starts_with(names::LOSSES)), scene.names(names::LOSSES).len()));
        let is_done = done.is_ok();
        if !seen.insert((left, new)) && !is_done {
            continue;
        }
        let (repository, cache, evict) = evicting();
        repair(&repository, &cache, &repair::Options { evict, ..repair_options() }, &Quiet::default()).unwrap();
        memory.put(&first, &lost, Put::Create).unwrap();
        let (repository, cache, evict) = evicting();
        let options = prune::Options { evict, ..prune_options() };
        prune::prune(&repository, &cache, &options, &Quiet::default()).unwrap();
        assert!(scene.names(names::DATA).contains(&first), "call {from}: a prune has removed what was lost and found");
        scene.repair(&[]);
        let differences = (scene.differences(0), scene.differences(1));
        assert_eq!(*wanted.get_or_insert(differences), differences, "call {from}");
        if is_done {
            break;
        }
    }
    // What the other pack had stays lost.
    let (state, then) = wanted.unwrap();
    assert!(state.unwrap() + then.unwrap() > 0);
    // Between the loss that is put and the removal of the one before it there was a call.
    assert!(with_losses.contains(&(true, 2)), "{with_losses:?}");
}

/// A repair that has to wait puts the loss, and a backup comes by while the index still names the pack that is gone.
#[test]
fn a_loss_that_was_met_too_early_is_met_again() {
    let mut scene = Scene::new();
    let name = scene.largest(names::DATA);
    scene.bench.memory.delete(&name).unwrap();
    let session = Registration::begin(&scene.bench.repository, Session::new("elsewhere", "backup", 0)).unwrap();
    let (repository, cache) = scene.fresh();
    let busy = repair(&repository, &cache, &repair_options(), &Quiet::default());
    assert!(matches!(busy, Err(Error::Busy(_))), "{busy:?}");
    scene.backup();
    session.abandon().unwrap();
    assert!(scene.repair(&[]).lost_chunks > 0);
    scene.backup();
    assert_eq!((scene.differences(1), scene.differences(3)), (Some(0), Some(0)));
}
