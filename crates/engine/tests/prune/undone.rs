//! A storage that is put back to an older state while somebody is at work: the session is there, and what it has
//! written since isn't.

use crate::common::{options, repair_options};
use crate::history::{History, objects, prune_all, prune_options};
use crate::meanwhile::Meanwhile;
use drumlin_engine::Error;
use drumlin_engine::backup::backup;
use drumlin_engine::monitor::Quiet;
use drumlin_engine::prune::{self, Unused, prune};
use drumlin_engine::repair::{Options, repair};
use drumlin_format::PackId;
use drumlin_repo::{Cache, Repository, Unlock, names};
use drumlin_store::{MemoryStore, Put, Store};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Takes away what has come to be of packs and of the index.
fn put_back(memory: MemoryStore, before: BTreeMap<String, u64>) -> impl FnOnce() + Send {
    move || {
        let is_written = |name: &&String| {
            let folders = [names::DATA, names::TREE, names::INDEX];
            folders.iter().any(|folder| name.starts_with(folder)) && !before.contains_key(*name)
        };
        let now = objects(&memory);
        let mut written = now.keys().filter(is_written).peekable();
        assert!(written.peek().is_some(), "nothing was written");
        written.for_each(|name| memory.delete(name).unwrap());
    }
}

/// The repository, in which that happens just before the first object below `prefix` is put.
fn by(history: &History, prefix: &'static str) -> Repository {
    by_way_of(history.bench.memory.clone(), history, prefix)
}

/// The same, through a store over the same objects.
fn by_way_of(inner: MemoryStore, history: &History, prefix: &'static str) -> Repository {
    let memory = &history.bench.memory;
    let then = put_back(memory.clone(), objects(memory));
    let store = Meanwhile { inner, prefix, then: Mutex::new(Some(then)) };
    Repository::open(Arc::new(store), &Unlock::File(history.bench.key_file())).unwrap()
}

fn assert_undone<T: std::fmt::Debug>(outcome: Result<T, Error>) {
    let Err(Error::Repo(e @ drumlin_repo::Error::Undone { .. })) = &outcome else { panic!("{outcome:?}") };
    assert!(e.to_string().contains("is gone: the storage was set back to an older state"), "{e}");
}

/// Nor on a storage that is far away, where the snapshot is put while it is asked for the packs.
#[test]
fn a_backup_of_which_packs_are_gone_does_not_count() {
    for far in [false, true] {
        let mut history = History::new(2);
        let gone = history.states.pop().unwrap().0;
        history.bench.repository.forget(&[gone.id]).unwrap();
        let memory = &history.bench.memory;
        let by = by_way_of(if far { memory.far() } else { memory.clone() }, &history, names::INDEX);
        std::fs::write(history.source.join("new"), drumlin_testkit::Rng::new(9).bytes(50_000)).unwrap();
        let before = objects(memory);
        assert_undone(backup(&by, &history.bench.cache, options(&[&history.source]), &Quiet::default()));
        let of_snapshots = |name: &&String| name.starts_with(names::SNAPSHOTS);
        let after = objects(memory);
        assert!(after.keys().filter(of_snapshots).eq(before.keys().filter(of_snapshots)), "far {far}");
        let (listed, errors) = history.bench.repository.snapshots().unwrap();
        assert!(errors.is_empty(), "{errors:?}");
        let counting: Vec<_> = listed.iter().map(|info| info.snapshot.id).collect();
        assert_eq!(counting, history.states.iter().map(|(snapshot, _)| snapshot.id).collect::<Vec<_>>(), "far {far}");
        history.whole();
    }
}

#[test]
fn what_was_moved_and_is_gone_stays_where_it_stood() {
    let mut history = History::new(3);
    history.forget(|at| at == 0);
    let scratch = tempfile::tempdir().unwrap();
    let by = by(&history, names::PLANS);
    let cache = Arc::new(Cache::open(&by, None, scratch.path()).unwrap());
    let sharp = prune::Options { max_unused: Unused::Bytes(0), ..prune_options() };
    assert_undone(prune(&by, &cache, &sharp, &Quiet::default()));
    history.whole();
    prune(&by, &cache, &sharp, &Quiet::default()).unwrap();
    history.whole();
}

#[test]
fn what_a_repair_has_moved_and_is_gone_stays_where_it_can_be_healed() {
    let history = History::new(2);
    let memory = &history.bench.memory;
    let name = objects(memory).into_keys().find(|name| name.starts_with(names::DATA)).unwrap();
    let mut bytes = memory.get(&name).unwrap();
    bytes[1000] ^= 1;
    memory.put(&name, &bytes, Put::Replace).unwrap();
    let mending = || {
        let damaged = [PackId::parse(names::last(&name)).unwrap()].into();
        Options { damaged, ..repair_options() }
    };
    let by = by(&history, names::PLANS);
    assert_undone(repair(&by, &history.bench.cache, &mending(), &Quiet::default()));
    history.whole();
    let report = repair(&by, &history.bench.cache, &mending(), &Quiet::default()).unwrap();
    assert_eq!((report.mended.len(), report.lost_chunks), (1, 0), "{report:?}");
    prune_all(&history.bench).unwrap();
    assert!(memory.len(&name).unwrap().is_none());
    history.whole();
}
