//! Some states of a tree in many small packs, covered.

use crate::common::{self, Bench, bench_in};
use drumlin_engine::Result;
use drumlin_engine::backup::{self, Parent};
use drumlin_engine::check::{self, Part};
use drumlin_engine::monitor::Quiet;
use drumlin_engine::parity::{self, Options, Report, Shape};
use drumlin_engine::prune::{self, Unused, prune};
use drumlin_engine::repair::{self, repair};
use drumlin_engine::restore;
use drumlin_format::PackId;
use drumlin_format::config::ChunkSizes;
use drumlin_format::snapshot::Snapshot;
use drumlin_repo::band::Bands;
use drumlin_repo::collection::{Board, Desk};
use drumlin_repo::{Cache, CreateOptions, Repository, Unlock, names};
use drumlin_store::{MemoryStore, Put, Store};
use drumlin_testkit::{Rng, compare};
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub const SHAPE: Shape = Shape { seats: 6, rows: 2 };

pub struct Scene {
    pub bench: Bench,
    pub source: PathBuf,
    pub states: Vec<(Snapshot, PathBuf)>,
    key_file: String,
}

pub fn options(shape: Option<Shape>) -> Options {
    Options {
        host: "host".into(),
        shape,
        spoiled: HashSet::new(),
        evict: Vec::new(),
        evict_after: Duration::from_secs(1 << 40),
        workers: 2,
    }
}

pub fn prune_options() -> prune::Options {
    prune::Options {
        host: "host".into(),
        max_unused: Unused::Bytes(0),
        max_repack: None,
        max_rekey: Unused::Percent(5.0),
        allow_remove_all: true,
        wait: Duration::ZERO,
        evict: Vec::new(),
        evict_after: Duration::from_secs(1 << 40),
        workers: 2,
    }
}

impl Scene {
    /// `states` backups, and all packs covered.
    pub fn new(states: u64) -> Self {
        let small = CreateOptions {
            chunks: ChunkSizes { min: 1024, normal: 4096, max: 16384 },
            block_bytes: 64 << 10,
            pack_bytes: 256 << 10,
            ..CreateOptions::default()
        };
        let bench = bench_in(common::quick_folder(), small);
        let (source, key_file) = (bench.folder.path().join("source"), bench.key_file());
        fs::create_dir_all(&source).unwrap();
        let mut scene = Scene { bench, source, states: Vec::new(), key_file };
        (0..states).for_each(|state| scene.backup(state));
        let report = scene.cover(Some(SHAPE));
        assert_eq!((report.uncovered.packs, report.failed, report.left.clone()), (0, 0, None), "{report:?}");
        assert!(report.bands >= 2 && report.covered.packs as usize == scene.packs().len(), "{report:?}");
        scene
    }

    pub fn backup(&mut self, state: u64) {
        let mut rng = Rng::new(state + 1);
        for file in (0..30).filter(|file| state == 0 || file % 3 == state as usize % 3) {
            let len = 2000 + rng.below(30_000);
            fs::write(self.source.join(format!("f{file}")), rng.bytes(len)).unwrap();
        }
        fs::write(self.source.join(format!("large{}", state % 2)), rng.bytes(500_000)).unwrap();
        common::settle();
        let copy = self.bench.folder.path().join(format!("copy{}", self.states.len()));
        assert!(std::process::Command::new("cp").arg("-a").args([&self.source, &copy]).status().unwrap().success());
        let options = backup::Options { parent: Parent::Latest, ..common::options(&[&self.source]) };
        let report = backup::backup(&self.bench.repository, &self.bench.cache, options, &Quiet::default()).unwrap();
        self.states.push((report.snapshot.unwrap(), copy));
    }

    pub fn open(&self, store: impl Store + 'static) -> Repository {
        Repository::open(Arc::new(store), &Unlock::File(self.key_file.clone())).unwrap()
    }

    pub fn cache(&self, repository: &Repository) -> Arc<Cache> {
        Arc::new(Cache::open(repository, None, self.bench.folder.path()).unwrap())
    }

    pub fn repository(&self) -> Repository {
        self.open(self.bench.memory.clone())
    }

    pub fn cover(&self, shape: Option<Shape>) -> Report {
        let repository = self.repository();
        parity::cover(&repository, &self.cache(&repository), &options(shape), &Quiet::default()).unwrap()
    }

    pub fn plan(&self) -> Report {
        {
            let repository = self.repository();
            parity::plan(&repository, &self.cache(&repository), &options(None), &Quiet::default()).unwrap()
        }
    }

    pub fn prune(&self) -> Result<prune::Report> {
        let repository = self.repository();
        let evict = Desk::new(&repository).sessions()?;
        let options = prune::Options { evict, ..prune_options() };
        prune(&repository, &self.cache(&repository), &options, &Quiet::default())
    }

    pub fn repair_options(damaged: &[PackId]) -> repair::Options {
        repair::Options {
            host: "host".into(),
            damaged: damaged.iter().copied().collect(),
            spoiled: HashSet::new(),
            wait: Duration::ZERO,
            evict: Vec::new(),
            evict_after: Duration::from_secs(1 << 40),
            workers: 2,
        }
    }

    pub fn repair(&self, damaged: &[PackId]) -> (repair::Report, Quiet) {
        let (repository, monitor) = (self.repository(), Quiet::default());
        let report = repair(&repository, &self.cache(&repository), &Self::repair_options(damaged), &monitor).unwrap();
        (report, monitor)
    }

    pub fn check(&self, read: bool) -> check::Report {
        let repository = self.repository();
        let options = check::Options { read: read.then_some(Part::All), workers: 2 };
        check::check(&repository, &self.cache(&repository), options, &Quiet::default()).unwrap()
    }

    /// Check all but contents of another store.
    pub fn check_of(&self, memory: &MemoryStore) -> check::Report {
        let repository = self.open(memory.clone());
        let options = check::Options { read: None, workers: 1 };
        check::check(&repository, &self.cache(&repository), options, &Quiet::default()).unwrap()
    }

    /// Forget all states but these.
    pub fn keep(&mut self, keep: &[usize]) {
        let gone: Vec<_> = (0..self.states.len()).filter(|n| !keep.contains(n)).map(|n| self.states[n].0.id).collect();
        self.bench.repository.forget(&gone).unwrap();
        let mut at = 0;
        self.states.retain(|_| {
            at += 1;
            keep.contains(&(at - 1))
        });
    }

    /// How many files of a state don't come back, from this store.
    pub fn differences(&self, memory: &MemoryStore, state: usize) -> usize {
        let (snapshot, copy) = &self.states[state];
        let repository = self.open(memory.clone());
        let target = tempfile::tempdir_in(self.bench.folder.path()).unwrap();
        let target = target.path().join("out");
        let mut options = common::restore_options(snapshot, &target);
        options.subfolder = Some(self.source.as_os_str().as_encoded_bytes().to_vec());
        let monitor = Quiet::default();
        if let Err(e) = restore::restore(&repository, &self.cache(&repository), options, &monitor) {
            eprintln!("state {state}: {e}");
            return usize::MAX;
        }
        let compared = compare::Options { roots: false, dir_mtime: false, ..compare::Options::default() };
        compare::trees(copy, &target, &compared).unwrap().len()
    }

    #[track_caller]
    pub fn all_whole(&self) {
        for state in 0..self.states.len() {
            assert_eq!(self.differences(&self.bench.memory, state), 0, "state {state}");
        }
    }

    /// The packs that are there, by their names.
    pub fn packs(&self) -> BTreeMap<String, PackId> {
        let mut packs = BTreeMap::new();
        for folder in [names::DATA, names::TREE] {
            let each = &mut |listed: drumlin_store::Listed| {
                packs.insert(listed.name.clone(), PackId::parse(names::last(&listed.name)).unwrap());
            };
            self.bench.memory.list(folder, each).unwrap();
        }
        packs
    }

    pub fn bands(&self) -> Bands {
        Bands::look(&self.bench.repository).unwrap()
    }

    pub fn objects(&self) -> BTreeMap<String, Vec<u8>> {
        objects(&self.bench.memory)
    }

    pub fn change(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = self.bench.memory.get(name).unwrap();
        change(&mut bytes);
        self.bench.memory.put(name, &bytes, Put::Replace).unwrap();
    }
}

pub fn objects(memory: &MemoryStore) -> BTreeMap<String, Vec<u8>> {
    let mut all = Vec::new();
    memory.list("", &mut |listed| all.push(listed.name)).unwrap();
    all.into_iter().map(|name| (name.clone(), memory.get(&name).unwrap())).collect()
}

pub fn store_of(objects: &BTreeMap<String, Vec<u8>>) -> MemoryStore {
    let store = MemoryStore::new();
    objects.iter().for_each(|(name, bytes)| store.put(name, bytes, Put::Create).unwrap());
    store
}

/// The packs of a store that a loss of as many as there are rows spares: all of the band and all of its packs are
/// there.
pub fn covered(memory: &MemoryStore, repository: &Repository) -> HashSet<PackId> {
    let is_there = |m: &drumlin_format::band::Member| memory.len(&names::pack(m.kind, m.pack)).unwrap() == Some(m.len);
    let bands = Bands::look(repository).unwrap().all;
    let sound = bands.iter().filter(|band| band.is_whole() && band.head.members().all(|m| is_there(&m)));
    sound.flat_map(|band| band.head.members().map(|m| m.pack)).collect()
}
