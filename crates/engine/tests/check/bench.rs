//! Repositories to be checked, and short calls of the check.

use crate::common::{self, Bench, bench_in, quick_folder};
use drumlin_engine::backup::{self, Parent};
use drumlin_engine::check::{Finding, Options, Part, Report, check};
use drumlin_engine::monitor::Quiet;
use drumlin_format::config::ChunkSizes;
use drumlin_format::snapshot::Snapshot;
use drumlin_format::{IndexId, index};
use drumlin_repo::{Cache, CreateOptions, Repository, Unlock, names};
use drumlin_store::{MemoryStore, Put, Store};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// All objects of a store by their names.
pub type Objects = BTreeMap<String, Vec<u8>>;

/// Everything as small as it may be, so that small trees fill many chunks, blocks and packs.
pub fn tiny() -> CreateOptions {
    CreateOptions {
        chunks: ChunkSizes { min: 1024, normal: 4096, max: 16384 },
        block_bytes: 32 << 10,
        pack_bytes: 256 << 10,
        ..CreateOptions::default()
    }
}

/// An empty repository of such sizes.
pub fn tiny_bench() -> Bench {
    bench_in(quick_folder(), tiny())
}

/// All that is in a store.
pub fn objects(store: &MemoryStore) -> Objects {
    let mut names = Vec::new();
    store.list("", &mut |l| names.push(l.name)).unwrap();
    names.into_iter().map(|n| (n.clone(), store.get(&n).unwrap())).collect()
}

/// A store of these objects.
pub fn store_of(objects: &Objects) -> MemoryStore {
    let store = MemoryStore::new();
    objects.iter().for_each(|(name, bytes)| store.put(name, bytes, Put::Create).unwrap());
    store
}

/// The folder that an object is in.
pub fn folder(name: &str) -> &str {
    name.split('/').next().unwrap()
}

/// Open the repository in a store without asking any key object.
pub fn open(store: Arc<dyn Store>, recovery: &str) -> Repository {
    Repository::open(store, &Unlock::File(recovery.into())).unwrap()
}

/// Check, with nothing remembered.
pub fn check_plainly(repository: &Repository, read: Option<Part>) -> Report {
    let scratch = tempfile::tempdir().unwrap();
    let cache = Arc::new(Cache::open(repository, None, scratch.path()).unwrap());
    check(repository, &cache, Options { read, workers: 2 }, &Quiet::default()).unwrap()
}

/// A repository that is opened whole, and then has these objects in the place of its own.
pub fn replaced(whole: &Objects, by: &Objects, recovery: &str) -> Repository {
    let store = store_of(whole);
    let repository = open(Arc::new(store.clone()), recovery);
    for name in whole.keys().filter(|name| !by.contains_key(*name)) {
        store.delete(name).unwrap();
    }
    by.iter().for_each(|(name, bytes)| store.put(name, bytes, Put::Replace).unwrap());
    repository
}

/// What is said of an object.
pub fn finding<'a>(report: &'a Report, object: &str) -> Option<&'a Finding> {
    report.findings.iter().find(|f| f.object == object)
}

#[track_caller]
pub fn assert_sound(report: &Report) {
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
    assert!(!report.stopped);
}

/// The names of the packs that each chunk is in, by the index objects.
pub fn packs_of_chunks(repository: &Repository, objects: &Objects) -> BTreeMap<[u8; 32], Vec<String>> {
    let mut packs: BTreeMap<[u8; 32], Vec<String>> = BTreeMap::new();
    for (name, bytes) in objects.iter().filter(|(name, _)| folder(name) == names::INDEX) {
        let id = IndexId::parse(names::last(name)).unwrap();
        for entry in index::open(id, &repository.secrets().index, bytes).unwrap().0 {
            let pack = names::pack(entry.kind, entry.pack);
            entry.table.chunks.iter().for_each(|c| packs.entry(c.id.0).or_default().push(pack.clone()));
        }
    }
    packs
}

/// Two backups of a folder that each begin with these objects and know nothing of each other: the objects and the
/// snapshot of each. Both snapshots are of the same tree.
pub fn backups_apart(empty: &Objects, recovery: &str, source: &Path, scratch: &Path) -> [(Objects, Snapshot); 2] {
    for _ in 0..100 {
        let both = ["one", "two"].map(|host| {
            let store = store_of(empty);
            let repository = open(Arc::new(store.clone()), recovery);
            let cache = Arc::new(Cache::open(&repository, None, scratch).unwrap());
            let options = backup::Options { host: host.into(), parent: Parent::None, ..common::options(&[source]) };
            let report = backup::backup(&repository, &cache, options, &Quiet::default()).unwrap();
            (objects(&store), report.snapshot.unwrap())
        });
        // The times of the folders above it are in the tree, and other tests make folders there.
        if both[0].1.root == both[1].1.root {
            return both;
        }
    }
    panic!("the folders above {} are never at rest", source.display());
}
