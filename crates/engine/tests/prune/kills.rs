//! In doubt, stopped, killed: nothing that is needed goes, and the next prune ends where an undisturbed one does.

use crate::history::{History, bytes, objects, prune_all, prune_options};
use drumlin_engine::Error;
use drumlin_engine::monitor::Quiet;
use drumlin_engine::prune::{Options, Unused, prune};
use drumlin_format::pack::PackKind;
use drumlin_repo::collection::{Board, Desk};
use drumlin_repo::{Cache, Repository, Unlock, names};
use drumlin_store::{Fault, FaultStore, Kind, MemoryStore, Op, Put, Store, When};
use std::sync::Arc;

#[test]
fn in_doubt_nothing_goes() {
    let mut history = History::new(3);
    history.forget(|at| at == 1);
    for kind in [PackKind::Data, PackKind::Tree] {
        let before = objects(&history.bench.memory);
        let of_kind = before.keys().filter(|name| name.starts_with(names::folder(kind)));
        let lost: Vec<_> = of_kind.map(|name| (name, history.bench.memory.get(name).unwrap())).collect();
        lost.iter().for_each(|(name, _)| history.bench.memory.delete(name).unwrap());
        let failed = prune_all(&history.bench).unwrap_err();
        let fits = match kind {
            PackKind::Data => matches!(failed, Error::Doubt(_)),
            PackKind::Tree => matches!(failed, Error::Unsure { .. } | Error::Doubt(_)),
        };
        assert!(fits, "{failed:?}");
        assert!(failed.to_string().contains("nothing was removed"), "{failed}");
        lost.iter().for_each(|(name, kept)| history.bench.memory.put(name, kept, Put::Create).unwrap());
        assert_eq!(objects(&history.bench.memory), before);
    }
    // A snapshot that can't be read might need anything.
    let name = names::snapshot(history.states[0].0.id);
    let whole = history.bench.memory.get(&name).unwrap();
    let mut bent = whole.clone();
    bent[100] ^= 1;
    history.bench.memory.put(&name, &bent, Put::Replace).unwrap();
    let failed = prune_all(&history.bench).unwrap_err();
    assert!(failed.to_string().contains(&name), "{failed}");
    history.bench.memory.put(&name, &whole, Put::Replace).unwrap();
    history.whole();
}

/// Killed at any store call, or with a store that fails from there on: all that was there is whole, and the next prune
/// ends where an undisturbed one does.
#[test]
fn killed_at_every_call() {
    let mut history = History::new(3);
    history.forget(|at| at == 1);
    let start = history.bench.memory.clone();
    let state = |memory: &MemoryStore| {
        let mut all = Vec::new();
        memory.list("", &mut |listed| all.push(listed.name)).unwrap();
        let copy = MemoryStore::new();
        all.iter().for_each(|name| copy.put(name, &memory.get(name).unwrap(), Put::Create).unwrap());
        copy
    };
    let open = |store: Arc<dyn Store>| Repository::open(store, &Unlock::File(history.bench.key_file())).unwrap();
    let run = |memory: &MemoryStore, from: Option<u64>| {
        let store = FaultStore::new(memory.clone());
        let faults = store.faults();
        let repository = open(Arc::new(store));
        let scratch = tempfile::tempdir().unwrap();
        let cache = Arc::new(Cache::open(&repository, None, scratch.path()).unwrap());
        let first = faults.calls();
        if let Some(from) = from {
            faults.add(When::any().skip(from).times(u64::MAX), Fault::Fail(Kind::Io));
        }
        let done = prune(&repository, &cache, &prune_options(), &Quiet::default());
        (done, faults.calls() - first)
    };
    let memory = state(&start);
    let (done, calls) = run(&memory, None);
    done.unwrap();
    let settled = bytes(&memory);
    history.whole_in(&memory);
    assert!(calls > 40, "{calls}");
    for from in 0..calls {
        let memory = state(&start);
        let (done, made) = run(&memory, Some(from));
        // Two runs differ by a call or two: names are random, and so is which thread comes first.
        assert!(done.is_err() || made <= from, "call {from} of {made} ({calls}) failed and nobody noticed");
        if from % 7 == 0 {
            history.whole_in(&memory);
        }
        // The process of the session that is left is this one, which lives: so somebody has to say that it is dead.
        let repository = open(Arc::new(memory.clone()));
        let evict = Desk::new(&repository).sessions().unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let cache = Arc::new(Cache::open(&repository, None, scratch.path()).unwrap());
        let options = Options { evict, ..prune_options() };
        prune(&repository, &cache, &options, &Quiet::default()).unwrap();
        if from % 5 == 0 {
            history.whole_in(&memory);
        }
        let after = bytes(&memory);
        assert!(after * 100 < settled * 108, "call {from}: {after} bytes are left, {settled} without the failure");
    }
}

/// What a prune that was killed has written anew may be all that there is of something once the next one has tidied up:
/// the backup after that finds it, to compare with and to refer to.
#[test]
fn a_backup_after_a_killed_prune_finds_everything() {
    for (folder, skip) in [("index/", 1), ("plans/", 0), ("decisions/", 0)] {
        let mut history = History::new(3);
        history.forget(|at| at < 2);
        let store = FaultStore::new(history.bench.memory.clone());
        let faults = store.faults();
        let repository = Repository::open(Arc::new(store), &Unlock::File(history.bench.key_file())).unwrap();
        let thorough = Options { max_unused: Unused::Bytes(0), ..prune_options() };
        faults.add(When::op(Op::Put).named(&format!("{folder}*")).skip(skip), Fault::Fail(Kind::Io));
        faults.add(When::op(Op::Delete), Fault::Fail(Kind::Io));
        prune(&repository, &history.bench.cache, &thorough, &Quiet::default()).unwrap_err();
        let evict = Desk::new(&history.bench.repository).sessions().unwrap();
        assert_eq!(evict.len(), 1);
        let next = Options { evict, ..prune_options() };
        prune(&history.bench.repository, &history.bench.cache, &next, &Quiet::default()).unwrap();
        history.whole();
        let report = history.bench.backup(&history.source);
        assert_eq!((report.counts.chunks_new, report.counts.changed), (0, 0), "killed at {folder}");
        history.whole();
    }
}

#[test]
fn a_stop_leaves_nothing_behind() {
    let mut history = History::new(2);
    history.forget(|at| at == 0);
    let before = objects(&history.bench.memory);
    let monitor = Quiet::default();
    monitor.request_stop();
    let stopped = prune(&history.bench.repository, &history.bench.cache, &prune_options(), &monitor);
    assert!(matches!(stopped, Err(Error::Interrupted)), "{stopped:?}");
    assert_eq!(objects(&history.bench.memory), before);
}
