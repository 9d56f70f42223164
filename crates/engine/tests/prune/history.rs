//! States of a tree, each backed up, to be forgotten and pruned; and a usual prune.

pub use crate::common::prune_options;
use crate::common::{self, Bench, bench, options, restore_options};
use drumlin_engine::monitor::Quiet;
use drumlin_engine::prune::{Report, prune};
use drumlin_engine::{Result, backup, restore};
use drumlin_format::key::Role;
use drumlin_format::snapshot::Snapshot;
use drumlin_repo::{Cache, NewLock, Repository, Unlock, names};
use drumlin_seal::Secret;
use drumlin_store::{MemoryStore, Put, Store};
use drumlin_testkit::{Rng, compare};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

pub fn prune_all(bench: &Bench) -> Result<Report> {
    prune(&bench.repository, &bench.cache, &prune_options(), &Quiet::default())
}

/// Several states of a tree, each backed up, and a copy of each to compare with.
pub struct History {
    pub bench: Bench,
    pub source: PathBuf,
    pub states: Vec<(Snapshot, PathBuf)>,
}

impl History {
    /// Each step changes a quarter of the files.
    pub fn new(steps: u64) -> Self {
        let bench = bench();
        let source = bench.folder.path().join("source");
        let mut history = History { bench, source, states: Vec::new() };
        (0..steps).for_each(|step| history.step(step));
        history
    }

    pub fn step(&mut self, step: u64) {
        let mut rng = Rng::new(step + 1);
        for dir in 0..8 {
            fs::create_dir_all(self.source.join(format!("d{dir}"))).unwrap();
            for file in 0..30 {
                if step > 0 && rng.below(4) > 0 {
                    continue;
                }
                let path = self.source.join(format!("d{dir}/f{file}"));
                let len = 2000 + rng.below(30_000);
                fs::write(path, if file % 3 == 0 { rng.bytes(len) } else { rng.text(len) }).unwrap();
            }
        }
        let large = self.source.join("large");
        let mut bytes = fs::read(&large).unwrap_or_else(|_| rng.bytes(3_000_000));
        let at = rng.below(2_000_000);
        bytes[at..at + 300_000].copy_from_slice(&rng.bytes(300_000));
        fs::write(&large, bytes).unwrap();
        common::settle();
        let copy = self.bench.folder.path().join(format!("copy{step}"));
        let copied = std::process::Command::new("cp").arg("-a").args([&self.source, &copy]).status().unwrap();
        assert!(copied.success());
        let report = self.bench.backup(&self.source);
        self.states.push((report.snapshot.unwrap(), copy));
    }

    pub fn forget(&mut self, gone: impl Fn(usize) -> bool) {
        let mut at = 0;
        self.states.retain(|(snapshot, _)| {
            at += 1;
            let gone = gone(at - 1);
            if gone {
                self.bench.memory.delete(&names::snapshot(snapshot.id)).unwrap();
            }
            !gone
        });
    }

    /// Every state that is left comes back as it was, by a reader that knows nothing yet.
    pub fn whole(&self) {
        self.whole_in(&self.bench.memory);
    }

    pub fn whole_in(&self, memory: &MemoryStore) {
        let repository = Repository::open(Arc::new(memory.clone()), &Unlock::File(self.bench.key_file())).unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let (listed, errors) = repository.snapshots().unwrap();
        assert!(errors.is_empty(), "{errors:?}");
        for (snapshot, copy) in &self.states {
            assert!(listed.iter().any(|info| info.snapshot.id == snapshot.id), "a snapshot is gone");
            let cache = Arc::new(Cache::open(&repository, None, scratch.path()).unwrap());
            let target = scratch.path().join("out");
            let monitor = Quiet::default();
            let mut options = restore_options(snapshot, &target);
            options.subfolder = Some(self.source.as_os_str().as_encoded_bytes().to_vec());
            restore::restore(&repository, &cache, options, &monitor).unwrap();
            assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
            compare::assert_same(copy, &target, &compare::Options { roots: false, ..compare::Options::default() });
            fs::remove_dir_all(&target).unwrap();
        }
    }

    pub fn bytes(&self) -> u64 {
        bytes(&self.bench.memory)
    }
}

/// All bytes of a store.
pub fn bytes(memory: &MemoryStore) -> u64 {
    let mut bytes = 0;
    memory.list("", &mut |listed| bytes += listed.len).unwrap();
    bytes
}

/// All objects of a store, and their lengths.
pub fn objects(memory: &MemoryStore) -> BTreeMap<String, u64> {
    let mut objects = BTreeMap::new();
    memory
        .list("", &mut |listed| {
            objects.insert(listed.name, listed.len);
        })
        .unwrap();
    objects
}

/// A repository of these states alone and its last snapshot, with the same secrets, so that it cuts files at the same
/// places.
pub fn fresh(history: &History) -> (MemoryStore, Snapshot) {
    let memory = MemoryStore::new();
    for name in objects(&history.bench.memory).keys().filter(|n| *n == "config" || n.starts_with("keys/")) {
        memory.put(name, &history.bench.memory.get(name).unwrap(), Put::Create).unwrap();
    }
    let key = Unlock::File(history.bench.key_file());
    let repository = Repository::open(Arc::new(memory.clone()), &key).unwrap();
    let cache = Arc::new(Cache::open(&repository, None, history.bench.folder.path()).unwrap());
    let mut last = None;
    for (_, copy) in &history.states {
        fs::remove_dir_all(&history.source).unwrap();
        assert!(std::process::Command::new("cp").arg("-a").args([copy, &history.source]).status().unwrap().success());
        let report = backup::backup(&repository, &cache, options(&[&history.source]), &Quiet::default()).unwrap();
        last = report.snapshot;
    }
    (memory, last.unwrap())
}

/// The repository, opened with a key of this role.
pub fn lesser(bench: &Bench, role: Role) -> Repository {
    Repository::open(Arc::new(bench.memory.clone()), &Unlock::File(lesser_file(bench, role))).unwrap()
}

/// The file of a new key of this role.
pub fn lesser_file(bench: &Bench, role: Role) -> String {
    let secret = Secret::new([7; 32]);
    let key = bench.repository.add_key(role, &NewLock::File(secret.clone()), "other", 0).unwrap();
    bench.repository.key_file(key, &secret).to_string()
}
