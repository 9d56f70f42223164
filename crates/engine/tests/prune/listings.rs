//! A storage that lists fewer snapshots than there are: who has seen the others isn't fooled.

use crate::history::{History, objects, prune_options};
use crate::meanwhile::Odd;
use drumlin_engine::Error;
use drumlin_engine::monitor::Quiet;
use drumlin_engine::prune::{plan, prune};
use drumlin_repo::history::Memory;
use drumlin_repo::{Cache, Repository, Unlock, names};
use drumlin_store::{MemoryStore, Put, Store};
use std::sync::Arc;

/// A storage that cuts some of its listings of snapshots short.
struct Short {
    inner: MemoryStore,
    cut: std::sync::Mutex<Cut>,
}

/// After `whole` listings, so many ones have `most` snapshots.
#[derive(Clone, Copy, Default)]
struct Cut {
    whole: usize,
    times: usize,
    most: usize,
}

impl Cut {
    fn next(&mut self) -> usize {
        if self.whole > 0 {
            self.whole -= 1;
        } else if self.times > 0 {
            self.times -= 1;
            return self.most;
        }
        usize::MAX
    }
}

impl Store for Short {
    fn location(&self) -> String {
        self.inner.location()
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(drumlin_store::Listed)) -> drumlin_store::Result<()> {
        let mut left = if prefix == names::SNAPSHOTS { self.cut.lock().unwrap().next() } else { usize::MAX };
        self.inner.list(prefix, &mut |listed| {
            if left > 0 {
                left -= 1;
                each(listed);
            }
        })
    }

    fn len(&self, name: &str) -> drumlin_store::Result<Option<u64>> {
        self.inner.len(name)
    }

    fn get(&self, name: &str) -> drumlin_store::Result<Vec<u8>> {
        self.inner.get(name)
    }

    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> drumlin_store::Result<()> {
        self.inner.read_at(name, offset, buf)
    }

    fn put(&self, name: &str, bytes: &[u8], how: Put) -> drumlin_store::Result<()> {
        self.inner.put(name, bytes, how)
    }

    fn upload(&self, name: &str, len_hint: u64) -> drumlin_store::Result<Box<dyn drumlin_store::Upload>> {
        self.inner.upload(name, len_hint)
    }

    fn sync(&self) -> drumlin_store::Result<()> {
        self.inner.sync()
    }

    fn delete(&self, name: &str) -> drumlin_store::Result<()> {
        self.inner.delete(name)
    }
}

/// Who has never seen a snapshot misses none: only what there is else speaks for them.
#[test]
fn a_list_without_any_is_not_believed_by_who_knows_nothing() {
    let history = History::new(2);
    let memory = history.bench.memory.clone();
    let cut = Cut { whole: 0, times: usize::MAX, most: 0 };
    let store = Arc::new(Short { inner: memory.clone(), cut: cut.into() });
    let repository = Repository::open(store, &Unlock::File(history.bench.key_file())).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let cache = Arc::new(Cache::open(&repository, None, scratch.path()).unwrap());
    let before = objects(&memory);
    for outcome in [
        prune(&repository, &cache, &prune_options(), &Quiet::default()).map(|_| ()),
        plan(&repository, &cache, &prune_options(), &Quiet::default()).map(|_| ()),
    ] {
        assert!(matches!(outcome, Err(Error::Nothing { packs: 1.. })), "{outcome:?}");
    }
    assert_eq!(objects(&memory), before);
    history.whole();
}

#[test]
fn a_list_of_snapshots_that_is_cut_short_is_not_believed() {
    let mut history = History::new(4);
    let first = history.states.remove(0).0.id;
    history.bench.repository.forget(&[first]).unwrap();
    let key = Unlock::File(history.bench.key_file());
    let prune_in = |repository: &Repository| {
        let cache = Arc::new(Cache::open(repository, None, history.bench.folder.path()).unwrap());
        prune(repository, &cache, &prune_options(), &Quiet::default())
    };
    let all = history.states.len();
    let unexplained = |error: &drumlin_repo::Error| match error {
        drumlin_repo::Error::Unexplained(missing) => missing.snapshots.len(),
        other => panic!("{other}"),
    };
    for (whole, times) in [(0, usize::MAX), (1, usize::MAX), (2, usize::MAX), (0, 1), (1, 1), (1, 2), (2, 1)] {
        for most in [0, all - 1] {
            let memory = MemoryStore::new();
            for name in objects(&history.bench.memory).keys() {
                memory.put(name, &history.bench.memory.get(name).unwrap(), Put::Create).unwrap();
            }
            let store = Arc::new(Short { inner: memory.clone(), cut: Default::default() });
            let repository = Repository::open(store.clone(), &key).unwrap();
            let remembered = Arc::new(Memory::open(&repository, None));
            let repository = repository.with_memory(remembered);
            assert!(repository.look_back(5, true).unwrap().is_empty());
            let before = objects(&memory);
            *store.cut.lock().unwrap() = Cut { whole, times, most };
            match prune_in(&repository) {
                // It has listed them again.
                Ok(report) => {
                    assert!(times < 3 && report.gone.packs > 0, "{whole} {times} {most}");
                    history.whole_in(&memory);
                }
                Err(Error::Repo(e)) => {
                    assert_eq!(unexplained(&e), all - most);
                    assert_eq!(objects(&memory), before, "{whole} {times} {most}");
                }
                Err(other) => panic!("{other}"),
            }
            *store.cut.lock().unwrap() = Cut { whole: 0, times: usize::MAX, most };
            let error = repository.forget(&[history.states[0].0.id]).unwrap_err();
            assert_eq!(unexplained(&error), all - most);
            // Who hasn't seen them can't know; who accepts it takes what there is.
            repository.accept_history(5).unwrap();
            assert!(repository.look_back(5, true).unwrap().is_empty());
        }
    }
}

/// Whoever opens a repository in such a storage.
fn odd(history: &History, ghosts: Vec<String>, withheld: Option<String>) -> Repository {
    let store = Arc::new(Odd { inner: history.bench.memory.clone(), listing: Box::new(|_| {}), ghosts, withheld });
    Repository::open(store, &Unlock::File(history.bench.key_file())).unwrap()
}

/// A storage that lists an index object which it doesn't have, for good: a stale entry in a directory or a bucket.
#[test]
fn an_index_object_that_is_listed_and_is_not_there() {
    let mut history = History::new(2);
    history.forget(|at| at == 0);
    let ghost = names::index(drumlin_format::IndexId([7; 16]));
    let repository = odd(&history, vec![ghost.clone()], None);
    let scratch = tempfile::tempdir().unwrap();
    let cache = Arc::new(Cache::open(&repository, None, scratch.path()).unwrap());
    let before = objects(&history.bench.memory);
    let refused = prune(&repository, &cache, &prune_options(), &Quiet::default()).unwrap_err().to_string();
    assert!(refused.contains(&ghost) && refused.contains("no such object"), "{refused}");
    assert_eq!(objects(&history.bench.memory), before);
    // Who saves or restores does without.
    let options = crate::common::options(&[&history.source]);
    drumlin_engine::backup::backup(&repository, &cache, options, &Quiet::default()).unwrap();
    history.whole();
}

/// A snapshot that is listed and is "not there" may be back tomorrow, and wants its contents then.
#[test]
fn a_snapshot_that_is_listed_and_is_not_given_out() {
    let history = History::new(2);
    let withheld = names::snapshot(history.states[0].0.id);
    let repository = odd(&history, Vec::new(), Some(withheld.clone()));
    let scratch = tempfile::tempdir().unwrap();
    let cache = Arc::new(Cache::open(&repository, None, scratch.path()).unwrap());
    let refused = prune(&repository, &cache, &prune_options(), &Quiet::default()).unwrap_err().to_string();
    assert!(refused.contains(&withheld), "{refused}");
    history.whole();
}
