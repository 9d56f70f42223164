//! A repository in memory or in a folder, and short calls of the operations.
#![allow(dead_code)] // Each test program uses a part of it.

pub mod user;

use drumlin_engine::backup::{self, Compression, Options, Parent, Report, Source};
use drumlin_engine::monitor::Quiet;
use drumlin_engine::prune::{self, Unused};
use drumlin_engine::repair;
use drumlin_engine::restore::{self, Overwrite};
use drumlin_format::snapshot::Snapshot;
use drumlin_host::filter::Filter;
use drumlin_repo::{Cache, CreateOptions, NewLock, Repository};
use drumlin_seal::Secret;
use drumlin_store::{MemoryStore, Store};
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A repository and its cache.
pub struct Bench {
    pub repository: Repository,
    pub cache: Arc<Cache>,
    pub folder: tempfile::TempDir,
    pub memory: MemoryStore,
}

/// Small packs and blocks, so that small trees fill several.
pub fn small() -> CreateOptions {
    CreateOptions { block_bytes: 256 << 10, pack_bytes: 2 << 20, ..CreateOptions::default() }
}

pub fn bench() -> Bench {
    bench_with(small())
}

pub fn bench_with(options: CreateOptions) -> Bench {
    bench_in(tempfile::tempdir().unwrap(), options)
}

/// A folder where thousands of files are made in no time, if the machine has such a place.
pub fn quick_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

pub fn bench_in(folder: tempfile::TempDir, options: CreateOptions) -> Bench {
    let memory = MemoryStore::new();
    bench_over(Arc::new(memory.clone()), memory, folder, options)
}

/// A repository in a store that lies over the memory.
pub fn bench_over(
    store: Arc<dyn Store>,
    memory: MemoryStore,
    folder: tempfile::TempDir,
    options: CreateOptions,
) -> Bench {
    let lock = NewLock::File(Secret::new([1; 32]));
    let (repository, _) = Repository::create(store, options, lock, "test", 0).unwrap();
    let cache = Arc::new(Cache::open(&repository, Some(&folder.path().join("cache")), folder.path()).unwrap());
    Bench { repository, cache, folder, memory }
}

pub fn options(paths: &[&Path]) -> Options {
    Options {
        source: Source::Paths {
            paths: paths.iter().map(|p| p.as_os_str().as_bytes().to_vec()).collect(),
            filter: Arc::new(Filter::none()),
            one_file_system: false,
        },
        host: "host".into(),
        user: "user".into(),
        tags: Vec::new(),
        time: None,
        parent: Parent::Latest,
        force: false,
        compression: Compression::Auto,
        workers: 2,
        walkers: 2.into(),
        late: drumlin_engine::LATE,
        memory: 128 << 20,
        checkpoint_bytes: 0,
        skip_unchanged: false,
        index: drumlin_repo::IndexMode::Exact,
        program: "test".into(),
    }
}

impl Bench {
    /// What opens the repository once more.
    pub fn key_file(&self) -> String {
        let secrets = self.repository.secrets();
        self.repository.key_file(secrets.key, &Secret::new([1; 32])).to_string()
    }

    pub fn backup(&self, path: &Path) -> Report {
        let monitor = Quiet::default();
        let report = backup::backup(&self.repository, &self.cache, options(&[path]), &monitor).unwrap();
        assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
        report
    }

    /// Restore what was backed up from `path` into `target`.
    pub fn restore(&self, snapshot: &Snapshot, path: &Path, target: &Path) -> (restore::Report, Quiet) {
        let monitor = Quiet::default();
        let mut options = restore_options(snapshot, target);
        options.subfolder = Some(path.as_os_str().as_bytes().to_vec());
        let report = restore::restore(&self.repository, &self.cache, options, &monitor).unwrap();
        (report, monitor)
    }
}

pub fn restore_options(snapshot: &Snapshot, target: &Path) -> restore::Options {
    restore::Options {
        snapshot: snapshot.clone(),
        subfolder: None,
        paths: Vec::new(),
        target: target.to_owned(),
        overwrite: Overwrite::Always,
        delete: false,
        repository: None,
        spared: Vec::new(),
        guarded: Vec::new(),
        remembered: Vec::new(),
        dry_run: false,
        include: Vec::new(),
        exclude: Vec::new(),
        unsaved: None,
        verify: false,
        numeric_ids: false,
        thaw: None,
        workers: 2,
        late: drumlin_engine::LATE,
        memory: 128 << 20,
    }
}

/// Wait until nothing that was just written is too recent to be believed unchanged.
pub fn settle() {
    std::thread::sleep(std::time::Duration::from_millis(60));
}

/// As usual, and nobody is waited for.
pub fn repair_options() -> repair::Options {
    repair::Options {
        host: "host".into(),
        damaged: HashSet::new(),
        spoiled: HashSet::new(),
        wait: Duration::ZERO,
        evict: Vec::new(),
        evict_after: Duration::from_secs(3600),
        workers: 2,
    }
}

/// The same.
pub fn prune_options() -> prune::Options {
    prune::Options {
        host: "host".into(),
        max_unused: Unused::Percent(5.0),
        max_repack: None,
        max_rekey: Unused::Percent(5.0),
        allow_remove_all: false,
        wait: Duration::ZERO,
        evict: Vec::new(),
        evict_after: Duration::from_secs(3600),
        workers: 2,
    }
}
