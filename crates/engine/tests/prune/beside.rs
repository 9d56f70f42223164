//! Backups, restores and other prunes in the midst of a prune.

use crate::common::{self, options, repair_options, restore_options};
use crate::history::{History, objects, prune_all, prune_options};
use crate::meanwhile::{Meanwhile, WhileReading};
use drumlin_engine::monitor::Quiet;
use drumlin_engine::prune::{Options, Report, Unused, prune};
use drumlin_engine::{Error, backup, repair, restore};
use drumlin_format::loss::Loss;
use drumlin_format::pack::PackKind;
use drumlin_format::snapshot::Snapshot;
use drumlin_format::{LossId, PackId, SessionId};
use drumlin_repo::collection::{Board, Desk, evict};
use drumlin_repo::{Cache, Repository, Unlock, names};
use drumlin_store::{Put, Store};
use drumlin_testkit::compare;
use std::collections::HashSet;
use std::fs;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

/// A backup that has read the index before the plan was there, and ends after the first look, refers to what the plan
/// condemned: that has to stay. And one that comes after the plan stores anew what the plan condemns.
#[test]
fn a_backup_between_the_two_looks_keeps_what_it_refers_to() {
    for prefix in ["plans/", "decisions/"] {
        let mut history = History::new(2);
        // The last state is forgotten, and a backup of the same tree finds all of it in the index.
        let copy = history.states[1].1.clone();
        history.forget(|at| at == 1);
        let inside =
            Repository::open(Arc::new(history.bench.memory.clone()), &Unlock::File(history.bench.key_file())).unwrap();
        let (source, folder) = (history.source.clone(), tempfile::tempdir().unwrap());
        let (sender, receiver) = std::sync::mpsc::channel();
        let then = move || {
            let cache = Arc::new(Cache::open(&inside, None, folder.path()).unwrap());
            let report = backup::backup(&inside, &cache, options(&[&source]), &Quiet::default()).unwrap();
            sender.send(report).unwrap();
        };
        let memory = history.bench.memory.clone();
        let store = Meanwhile { inner: memory, prefix, then: std::sync::Mutex::new(Some(then)) };
        let repository = Repository::open(Arc::new(store), &Unlock::File(history.bench.key_file())).unwrap();
        let report = prune(&repository, &history.bench.cache, &prune_options(), &Quiet::default()).unwrap();
        let backup = receiver.recv().unwrap();
        if prefix == "plans/" {
            assert_eq!(backup.counts.chunks_new, 0, "it found all in the index");
        } else {
            assert!(backup.counts.chunks_new > 0 && report.gone.packs > 0, "it knew the plan");
        }
        history.states.push((backup.snapshot.unwrap(), copy));
        history.whole();
        prune_all(&history.bench).unwrap();
        history.whole();
    }
}

/// A repair in the midst of which, right before an object with this prefix is put, the source is backed up by a client
/// without a cache.
fn repair_beside_a_backup(
    history: &History,
    prefix: &'static str,
    damaged: HashSet<PackId>,
) -> (repair::Report, Snapshot) {
    let key = history.bench.key_file();
    let inside = Repository::open(Arc::new(history.bench.memory.clone()), &Unlock::File(key.clone())).unwrap();
    let (source, folder) = (history.source.clone(), tempfile::tempdir().unwrap());
    let (sender, receiver) = std::sync::mpsc::channel();
    let then = move || {
        let cache = Arc::new(Cache::open(&inside, None, folder.path()).unwrap());
        let report = backup::backup(&inside, &cache, options(&[&source]), &Quiet::default()).unwrap();
        sender.send(report.snapshot.unwrap()).unwrap();
    };
    let memory = history.bench.memory.clone();
    let store = Meanwhile { inner: memory, prefix, then: std::sync::Mutex::new(Some(then)) };
    let repository = Repository::open(Arc::new(store), &Unlock::File(key)).unwrap();
    let options = repair::Options { damaged, ..repair_options() };
    let report = repair::repair(&repository, &history.bench.cache, &options, &Quiet::default()).unwrap();
    (report, receiver.recv().unwrap())
}

/// A pack that is gone leaves the index: whoever comes after the plan stores again what was in it.
#[test]
fn a_backup_beside_a_repair_refers_to_nothing_that_is_lost() {
    let mut history = History::new(2);
    let copy = history.states[1].1.clone();
    let there = objects(&history.bench.memory);
    let largest = there.iter().filter(|(name, _)| name.starts_with("data/")).max_by_key(|(_, len)| **len).unwrap();
    history.bench.memory.delete(largest.0).unwrap();
    let (report, saved) = repair_beside_a_backup(&history, "decisions/", HashSet::new());
    assert!(report.lost_chunks > 0);
    history.states = vec![(saved, copy)];
    history.whole();
}

/// Damaged packs leave the index once what snapshots need of them is elsewhere: also what a snapshot needs that came
/// meanwhile.
#[test]
fn a_backup_beside_a_repair_loses_nothing() {
    for prefix in ["plans/", "decisions/"] {
        let mut history = History::new(2);
        // What is in the last state alone nobody needs, and a backup of it finds all of it in the index.
        let copy = history.states[1].1.clone();
        history.forget(|at| at == 1);
        let mut damaged = HashSet::new();
        for name in objects(&history.bench.memory).into_keys().filter(|name| name.starts_with("data/")) {
            let mut bytes = history.bench.memory.get(&name).unwrap();
            bytes[1000] ^= 1;
            history.bench.memory.put(&name, &bytes, Put::Replace).unwrap();
            damaged.extend(PackId::parse(names::last(&name)));
        }
        let (report, saved) = repair_beside_a_backup(&history, prefix, damaged);
        assert_eq!((report.lost_chunks, report.unreadable.len()), (0, 0), "{prefix}: {report:?}");
        history.states.push((saved, copy));
        // Without what a repair has put out of the index.
        prune_all(&history.bench).unwrap();
        history.whole();
    }
}

/// One that comes while another is about to remove what it condemned: it writes index objects in place of others, and
/// none of them may name what will be gone. Else the next backup of the same contents takes it for stored.
#[test]
fn two_prunes_leave_no_name_of_what_is_gone() {
    let mut history = History::new(3);
    history.forget(|at| at < 2);
    // A copy of a state that was forgotten, to be saved again.
    let again = history.bench.folder.path().join("copy1");
    let key = history.bench.key_file();
    let inside = Repository::open(Arc::new(history.bench.memory.clone()), &Unlock::File(key.clone())).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let then = move || {
        let cache = Arc::new(Cache::open(&inside, None, folder.path()).unwrap());
        let thorough = Options { max_unused: Unused::Bytes(0), ..prune_options() };
        sender.send(prune(&inside, &cache, &thorough, &Quiet::default())).unwrap();
    };
    let memory = history.bench.memory.clone();
    let store = Meanwhile { inner: memory, prefix: "decisions/", then: std::sync::Mutex::new(Some(then)) };
    let repository = Repository::open(Arc::new(store), &Unlock::File(key)).unwrap();
    let lazy = Options { max_unused: Unused::Unlimited, ..prune_options() };
    let report = prune(&repository, &history.bench.cache, &lazy, &Quiet::default()).unwrap();
    assert!(report.gone.packs > 0, "{report:?}");
    let busy = receiver.recv().unwrap();
    assert!(matches!(busy, Err(Error::Busy(_))), "{busy:?}");
    let there = objects(&history.bench.memory);
    for (id, _) in history.bench.repository.index_objects().unwrap() {
        for pack in history.bench.repository.index_hooks(id).unwrap().unwrap().1 {
            let name = names::pack(pack.kind, pack.pack);
            assert!(there.contains_key(&name), "'{}' names {name}, which is gone", names::index(id));
        }
    }
    fs::remove_dir_all(&history.source).unwrap();
    assert!(std::process::Command::new("cp").arg("-a").args([&again, &history.source]).status().unwrap().success());
    common::settle();
    let saved = history.bench.backup(&history.source).snapshot.unwrap();
    history.states.push((saved, again));
    history.whole();
}

/// Restores that have read the index, and perhaps begun, before a prune moves what they want.
#[test]
fn a_restore_goes_on_while_packs_are_moved() {
    for prefix in ["data/", "tree/"] {
        let mut history = History::new(5);
        history.forget(|at| at % 2 == 0);
        let (snapshot, copy) = history.states.last().unwrap().clone();
        let (source, key) = (history.source.clone(), history.bench.key_file());
        let bench = &history.bench;
        let strict = Options { max_unused: Unused::Bytes(0), ..prune_options() };
        let run = || {
            let before = objects(&bench.memory);
            let report = prune(&bench.repository, &bench.cache, &strict, &Quiet::default()).unwrap();
            assert!(report.gone.packs > 3, "{report:?}");
            let data = |name: &&String| name.starts_with("data/") || name.starts_with("tree/");
            let now = objects(&bench.memory);
            assert!(before.keys().filter(data).any(|name| !now.contains_key(name)));
        };
        let target = bench.folder.path().join("out");
        std::thread::scope(|scope| {
            let (go, going) = std::sync::mpsc::channel::<()>();
            let (done, wait) = std::sync::mpsc::channel::<()>();
            scope.spawn(move || {
                going.recv().unwrap();
                run();
                done.send(()).unwrap();
            });
            let wait = std::sync::Mutex::new(wait);
            let once = std::sync::Once::new();
            let go = std::sync::Mutex::new(go);
            let then = move || {
                once.call_once(|| {
                    go.lock().unwrap().send(()).unwrap();
                    wait.lock().unwrap().recv().unwrap();
                });
            };
            let store = WhileReading { inner: bench.memory.clone(), prefix, then: Box::new(then) };
            let repository = Repository::open(Arc::new(store), &Unlock::File(key)).unwrap();
            let scratch = tempfile::tempdir().unwrap();
            let cache = Arc::new(Cache::open(&repository, None, scratch.path()).unwrap());
            let monitor = Quiet::default();
            let mut options = restore_options(&snapshot, &target);
            options.subfolder = Some(source.as_os_str().as_encoded_bytes().to_vec());
            restore::restore(&repository, &cache, options, &monitor).unwrap();
            assert!(monitor.problems().is_empty(), "{prefix}: {:?}", monitor.problems());
        });
        compare::assert_same(&copy, &target, &compare::Options { roots: false, ..compare::Options::default() });
    }
}

/// A repository in which all is pruned that nobody needs, and whoever is at work evicted, when something with this
/// prefix is read for the first time. What came of it is sent.
fn pruned_while_reading(history: &History, prefix: &'static str) -> (Repository, Receiver<Result<Report, Error>>) {
    let key = history.bench.key_file();
    let inside = Repository::open(Arc::new(history.bench.memory.clone()), &Unlock::File(key.clone())).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let once = std::sync::Mutex::new(Some(move || {
        let cache = Arc::new(Cache::open(&inside, None, folder.path()).unwrap());
        let evict = Desk::new(&inside).sessions().unwrap();
        sender.send(prune(&inside, &cache, &Options { evict, ..sharp() }, &Quiet::default())).unwrap();
    }));
    let then = move || {
        let prune = once.lock().unwrap().take();
        prune.into_iter().for_each(|prune| prune());
    };
    let store = WhileReading { inner: history.bench.memory.clone(), prefix, then: Box::new(then) };
    (Repository::open(Arc::new(store), &Unlock::File(key)).unwrap(), receiver)
}

fn sharp() -> Options {
    Options { max_unused: Unused::Bytes(0), ..prune_options() }
}

/// A prune that was taken for dead while it weighed packs tells of no damage: what it can't read another one has moved.
#[test]
fn who_was_evicted_tells_of_no_damage() {
    // While packs are weighed; while trees are walked, of which some are gone then.
    for prefix in [names::DATA, names::TREE] {
        let mut history = History::new(4);
        history.forget(|at| at % 2 == 0);
        let (repository, receiver) = pruned_while_reading(&history, prefix);
        let monitor = Quiet::default();
        let scratch = tempfile::tempdir().unwrap();
        let cache = Arc::new(Cache::open(&repository, None, scratch.path()).unwrap());
        let ended = prune(&repository, &cache, &sharp(), &monitor);
        assert!(receiver.recv().unwrap().unwrap().gone.packs > 0, "{prefix}: nothing was moved");
        assert!(matches!(ended, Err(Error::Overtaken(_))), "{prefix}: {ended:?}");
        assert!(monitor.problems().is_empty(), "{prefix}: {:?}", monitor.problems());
        history.whole();
        prune_all(&history.bench).unwrap();
        history.whole();
    }
}

/// A repair that was taken for dead while it walked trees, or moved what can be read of a damaged pack, takes what it
/// misses for lost no more: it tells of nothing, and puts no list of losses.
#[test]
fn a_repair_that_was_evicted_tells_of_no_loss() {
    for prefix in [names::DATA, names::TREE] {
        let mut history = History::new(4);
        history.forget(|at| at % 2 == 0);
        let there = objects(&history.bench.memory).into_keys();
        let packs = there.filter(|name| prefix == names::DATA && name.starts_with(names::DATA));
        let damaged = packs.filter_map(|name| PackId::parse(names::last(&name))).collect();
        let (repository, receiver) = pruned_while_reading(&history, prefix);
        let monitor = Quiet::default();
        let scratch = tempfile::tempdir().unwrap();
        let cache = Arc::new(Cache::open(&repository, None, scratch.path()).unwrap());
        let options = repair::Options { damaged, ..repair_options() };
        let ended = repair::repair(&repository, &cache, &options, &monitor);
        assert!(receiver.recv().unwrap().unwrap().gone.packs > 0, "{prefix}: nothing was moved");
        assert!(matches!(ended, Err(Error::Overtaken(_))), "{prefix}: {ended:?}");
        assert!(monitor.problems().is_empty(), "{prefix}: {:?}", monitor.problems());
        assert!(!objects(&history.bench.memory).keys().any(|name| name.starts_with(names::LOSSES)), "{prefix}");
        history.whole();
        prune_all(&history.bench).unwrap();
        history.whole();
    }
}

/// Nor does it take away what is known of losses: what was there when it walked the trees may be missing by now.
#[test]
fn a_prune_that_was_evicted_leaves_losses_as_they_are() {
    for is_healed in [true, false] {
        let mut history = History::new(3);
        history.forget(|at| at == 0);
        let (memory, repository) = (&history.bench.memory, &history.bench.repository);
        let there = objects(memory);
        let mut packs: Vec<(PackId, u64)> = there
            .iter()
            .filter(|(name, _)| name.starts_with(names::DATA))
            .map(|(name, len)| (PackId::parse(names::last(name)).unwrap(), *len))
            .collect();
        packs.sort_by_key(|(_, len)| *len);
        let chunk = |of: PackId| {
            let named = repository.index_objects().unwrap().into_iter();
            let mut entries = named.flat_map(|(id, _)| repository.index_entries(id).unwrap().unwrap());
            entries.find(|entry| entry.pack == of).unwrap().table.chunks[0].id
        };
        let (whole, gone) = (chunk(packs[0].0), packs[packs.len() - 1].0);
        let mut loss = Loss { id: LossId([4; 16]), chunks: Vec::new(), packs: Vec::new() };
        if !is_healed {
            memory.delete(&names::pack(PackKind::Data, gone)).unwrap();
            repair::repair(repository, &history.bench.cache, &repair_options(), &Quiet::default()).unwrap();
            loss = repository.losses().unwrap().remove(0);
            assert!(!loss.chunks.is_empty());
            repository.remove_loss(loss.id).unwrap();
        }
        // One of its chunks is there.
        loss.chunks.push(whole);
        loss.chunks.sort_unstable();
        repository.put_loss(&loss).unwrap();
        let inside = Repository::open(Arc::new(memory.clone()), &Unlock::File(history.bench.key_file())).unwrap();
        let then = move || {
            let desk = Desk::new(&inside);
            for session in desk.sessions().unwrap() {
                evict(&desk, session, SessionId([9; 16])).unwrap();
            }
        };
        let store = WhileReading { inner: memory.clone(), prefix: names::TREE, then: Box::new(then) };
        let late = Repository::open(Arc::new(store), &Unlock::File(history.bench.key_file())).unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let cache = Arc::new(Cache::open(&late, None, scratch.path()).unwrap());
        let ended = prune(&late, &cache, &sharp(), &Quiet::default());
        assert!(matches!(ended, Err(Error::Overtaken(_))), "{is_healed}: {ended:?}");
        assert_eq!(repository.losses().unwrap(), [loss], "{is_healed}");
        prune_all(&history.bench).unwrap();
        let left = repository.losses().unwrap();
        assert!(left.iter().all(|loss| !is_healed && !loss.chunks.contains(&whole)), "{left:?}");
    }
}

/// A prune ends while somebody asks what one would do, and removes what he was about to read: he looks again.
#[test]
fn who_asks_what_a_prune_would_do_is_not_confused_by_one() {
    let mut history = History::new(4);
    history.forget(|at| at % 2 == 0);
    let (repository, receiver) = pruned_while_reading(&history, names::TREE);
    let monitor = Quiet::default();
    let survey = drumlin_engine::prune::plan(&repository, &history.bench.cache, &sharp(), &monitor).unwrap();
    assert!(receiver.recv().unwrap().unwrap().gone.packs > 0, "nothing was moved");
    assert_eq!((survey.removed.packs, survey.repacked.packs), (0, 0), "{survey:?}");
    assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
    history.whole();
}

/// A repair has named again what stood in a loss: the prune that looked before took it for lost, and would have other
/// index objects without it.
#[test]
fn a_repair_that_ends_beside_a_prune_is_not_undone() {
    let mut history = History::new(3);
    history.forget(|at| at == 0);
    let mut entries = Vec::new();
    for (id, _) in history.bench.repository.index_objects().unwrap() {
        entries.extend(history.bench.repository.index_entries(id).unwrap().unwrap());
    }
    let entry = entries.iter().filter(|entry| entry.kind == PackKind::Data).max_by_key(|entry| entry.pack_len).unwrap();
    let chunks = entry.table.chunks.iter().map(|chunk| chunk.id).collect();
    let loss = Loss { id: LossId([4; 16]), chunks, packs: vec![entry.pack] };
    history.bench.repository.put_loss(&loss).unwrap();
    let inside = history.bench.memory.clone();
    let then = move || inside.delete(&names::loss(loss.id)).unwrap();
    let store =
        Meanwhile { inner: history.bench.memory.clone(), prefix: "plans/", then: std::sync::Mutex::new(Some(then)) };
    let repository = Repository::open(Arc::new(store), &Unlock::File(history.bench.key_file())).unwrap();
    let thorough = Options { max_unused: Unused::Bytes(0), ..prune_options() };
    let ended = prune(&repository, &history.bench.cache, &thorough, &Quiet::default());
    let refused = ended.unwrap_err().to_string();
    assert!(refused.contains("a repair has ended"), "{refused}");
    history.whole();
    prune_all(&history.bench).unwrap();
    history.whole();
}

/// Each may not know the other's plan: so one of them goes out of the way, and begins anew.
#[test]
fn two_prunes_at_once_do_not_wait_for_each_other_for_ever() {
    for _ in 0..4 {
        let mut history = History::new(4);
        history.forget(|at| at < 2);
        let barrier = std::sync::Barrier::new(2);
        let start = std::time::Instant::now();
        std::thread::scope(|scope| {
            let prunes: Vec<_> = (0..2)
                .map(|_| {
                    let store = Arc::new(history.bench.memory.clone());
                    let repository = Repository::open(store, &Unlock::File(history.bench.key_file())).unwrap();
                    let barrier = &barrier;
                    scope.spawn(move || {
                        let folder = tempfile::tempdir().unwrap();
                        let cache = Arc::new(Cache::open(&repository, None, folder.path()).unwrap());
                        let wait = std::time::Duration::from_secs(60);
                        let thorough = Options { max_unused: Unused::Bytes(0), wait, ..prune_options() };
                        barrier.wait();
                        prune(&repository, &cache, &thorough, &Quiet::default())
                    })
                })
                .collect();
            prunes.into_iter().for_each(|prune| drop(prune.join().unwrap().unwrap()));
        });
        assert!(start.elapsed() < std::time::Duration::from_secs(30), "{:?}", start.elapsed());
        history.whole();
    }
}
