//! Two states of a tree, each backed up, to be damaged and repaired.

use crate::common::{self, Bench, bench, prune_options, repair_options, restore_options};
use drumlin_engine::monitor::Quiet;
use drumlin_engine::prune::{self, prune};
use drumlin_engine::repair::{self, Report, repair};
use drumlin_engine::{Error, restore};
use drumlin_format::PackId;
use drumlin_format::snapshot::Snapshot;
use drumlin_repo::{Cache, Repository, Unlock, names};
use drumlin_store::{Put, Store};
use drumlin_testkit::{Rng, compare, wipe_parity};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

/// Two states of a tree.
pub struct Scene {
    pub bench: Bench,
    pub source: PathBuf,
    pub states: Vec<(Snapshot, PathBuf)>,
}

impl Scene {
    pub fn new() -> Self {
        let bench = bench();
        let source = bench.folder.path().join("source");
        let mut scene = Scene { bench, source, states: Vec::new() };
        for state in 0..2u64 {
            let mut rng = Rng::new(state + 1);
            for dir in 0..5 {
                fs::create_dir_all(scene.source.join(format!("d{dir}"))).unwrap();
                for file in (0..20).filter(|file| state == 0 || file % 5 == 0) {
                    let path = scene.source.join(format!("d{dir}/f{file}"));
                    let len = 1000 + rng.below(40_000);
                    fs::write(path, rng.bytes(len)).unwrap();
                }
            }
            fs::write(scene.source.join(format!("large{state}")), rng.bytes(2_500_000)).unwrap();
            scene.backup();
        }
        scene
    }

    pub fn backup(&mut self) {
        common::settle();
        let copy = self.bench.folder.path().join(format!("copy{}", self.states.len()));
        assert!(std::process::Command::new("cp").arg("-a").args([&self.source, &copy]).status().unwrap().success());
        let (repository, cache) = self.fresh();
        let monitor = Quiet::default();
        let report =
            drumlin_engine::backup::backup(&repository, &cache, common::options(&[&self.source]), &monitor).unwrap();
        self.states.push((report.snapshot.unwrap(), copy));
    }

    /// As somebody who comes new, but for the cache of parents.
    pub fn fresh(&self) -> (Repository, Arc<Cache>) {
        let store = Arc::new(self.bench.memory.clone());
        let repository = Repository::open(store, &Unlock::File(self.bench.key_file())).unwrap();
        let folder = self.bench.folder.path().join("other cache");
        let cache = Arc::new(Cache::open(&repository, Some(&folder), self.bench.folder.path()).unwrap());
        (repository, cache)
    }

    /// How many files of a state don't come back as they were, or `None` if it can't be restored at all.
    pub fn differences(&self, state: usize) -> Option<usize> {
        let (snapshot, copy) = &self.states[state];
        let (repository, _) = self.fresh();
        let cache = Arc::new(Cache::open(&repository, None, self.bench.folder.path()).unwrap());
        let target = self.bench.folder.path().join("out");
        let _ = fs::remove_dir_all(&target);
        let mut options = restore_options(snapshot, &target);
        options.subfolder = Some(self.source.as_os_str().as_encoded_bytes().to_vec());
        restore::restore(&repository, &cache, options, &Quiet::default()).ok()?;
        let compared = compare::Options { roots: false, dir_mtime: false, ..compare::Options::default() };
        let found = compare::trees(copy, &target, &compared).unwrap();
        found.iter().take(3).for_each(|difference| eprintln!("state {state}: {difference}"));
        Some(found.len())
    }

    pub fn assert_whole(&self) {
        for state in 0..self.states.len() {
            assert_eq!(self.differences(state), Some(0), "state {state}");
        }
    }

    pub fn repair(&self, damaged: &[PackId]) -> Report {
        let (repository, cache) = self.fresh();
        let options = repair::Options { damaged: damaged.iter().copied().collect(), ..repair_options() };
        repair(&repository, &cache, &options, &Quiet::default()).unwrap()
    }

    pub fn prune(&self) -> Result<prune::Report, Error> {
        let (repository, cache) = self.fresh();
        prune(&repository, &cache, &prune_options(), &Quiet::default())
    }

    pub fn names(&self, folder: &str) -> Vec<String> {
        let mut names = Vec::new();
        self.bench.memory.list(folder, &mut |listed| names.push(listed.name)).unwrap();
        names.sort();
        names
    }

    /// The largest object of a folder.
    pub fn largest(&self, folder: &str) -> String {
        self.names(folder).into_iter().max_by_key(|name| self.bench.memory.len(name).unwrap()).unwrap()
    }

    /// In a way that parity doesn't make up for.
    pub fn flip(&self, name: &str, at: impl Fn(usize) -> usize) {
        let mut bytes = self.bench.memory.get(name).unwrap();
        wipe_parity(&mut bytes);
        let at = at(bytes.len());
        bytes[at] ^= 0x40;
        self.bench.memory.put(name, &bytes, Put::Replace).unwrap();
    }

    pub fn objects(&self) -> BTreeMap<String, Vec<u8>> {
        self.names("").into_iter().map(|name| (name.clone(), self.bench.memory.get(&name).unwrap())).collect()
    }
}

pub fn pack(name: &str) -> PackId {
    PackId::parse(names::last(name)).unwrap()
}
