//! The index, exact and sparse, against what was stored.

use drumlin_format::ChunkId;
use drumlin_format::pack::PackKind;
use drumlin_format::session::Session;
use drumlin_repo::collection::Registration;
use drumlin_repo::pack::{BlockBuilder, Coder, Coding, Reader};
use drumlin_repo::{Cache, CreateOptions, Index, IndexMode, NewLock, Repository, WriteSession, names};
use drumlin_seal::Secret;
use drumlin_store::{MemoryStore, Store};
use proptest::prelude::*;
use std::collections::HashSet;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

mod reads;

fn repository() -> Repository {
    repository_in(&MemoryStore::new())
}

fn repository_in(memory: &MemoryStore) -> Repository {
    let lock = NewLock::File(Secret::new([1; 32]));
    let options = CreateOptions { block_bytes: 64 << 10, pack_bytes: 1 << 20, ..CreateOptions::default() };
    Repository::create(Arc::new(memory.clone()), options, lock, "test", 0).unwrap().0
}

fn cache(repository: &Repository) -> (tempfile::TempDir, Arc<Cache>) {
    let folder = tempfile::tempdir().unwrap();
    let cache = Arc::new(Cache::open(repository, Some(folder.path()), folder.path()).unwrap());
    (folder, cache)
}

fn chunk(n: u64) -> Vec<u8> {
    let mut state = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::new();
    while bytes.len() < 1500 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes
}

/// Store these chunks as a session would; gives how many of them were new.
fn store(repository: &Repository, cache: &Arc<Cache>, mode: IndexMode, numbers: impl Iterator<Item = u64>) -> u64 {
    let registration = Registration::begin(repository, Session::new("h", "backup", 0)).unwrap();
    let index = Arc::new(Index::open_for(&registration, cache.clone(), mode).unwrap());
    let session = WriteSession::begin(registration, index.clone(), cache.clone());
    let (mut block, mut coder, mut new) = (BlockBuilder::default(), Coder::new().unwrap(), 0);
    for n in numbers {
        let bytes = chunk(n);
        let id = repository.data_id(&bytes).unwrap();
        if index.claim(&id).unwrap() {
            assert!(!index.claim(&id).unwrap(), "claimed twice");
            new += 1;
            block.push(id, &bytes);
            if block.raw.len() > 60_000 {
                session.data.append(&mut block, &mut coder, Coding::Raw).unwrap();
            }
        }
    }
    session.data.append(&mut block, &mut coder, Coding::Raw).unwrap();
    session.flush().unwrap();
    session.abandon().unwrap();
    new
}

fn id(repository: &Repository, n: u64) -> ChunkId {
    repository.data_id(&chunk(n)).unwrap()
}

#[test]
fn the_exact_index_finds_everything_and_nothing_else() {
    let repository = repository();
    let (_folder, one) = cache(&repository);
    assert_eq!(store(&repository, &one, IndexMode::Exact, 0..5000), 5000);
    assert_eq!(store(&repository, &one, IndexMode::Exact, 4000..6000), 1000);
    // Another client, without any cache, learns it from the repository.
    let (_folder, other) = cache(&repository);
    for cache in [&one, &other, &one] {
        let index = Index::open(&repository, cache.clone()).unwrap();
        assert!((0..6000).all(|n| index.lookup(&id(&repository, n)).unwrap().is_some()));
        assert!((6000..7000).all(|n| index.lookup(&id(&repository, n)).unwrap().is_none()));
        assert_eq!(index.stats().chunks, 6000);
    }
}

#[test]
fn many_small_runs_are_merged_and_still_right() {
    let repository = repository();
    let (folder, cache) = cache(&repository);
    for part in 0..20 {
        assert_eq!(store(&repository, &cache, IndexMode::Exact, part * 100..part * 100 + 100), 100);
    }
    let index = Index::open(&repository, cache.clone()).unwrap();
    assert!((0..2000).all(|n| index.lookup(&id(&repository, n)).unwrap().is_some()));
    let runs = cache.folder().unwrap().join("runs");
    let count = fs::read_dir(runs).unwrap().filter(|e| e.as_ref().unwrap().file_name() != "manifest").count();
    assert!(count < 12, "{count} runs");
    drop(folder);
}

/// Whatever becomes of the cache in the midst of a run (a disk is cleaned up, a home folder is unmounted), the run goes
/// on without.
#[test]
fn a_cache_that_goes_in_the_midst_of_a_session_fails_nothing() {
    let repository = repository();
    let (folder, cache) = cache(&repository);
    let registration = Registration::begin(&repository, Session::new("h", "backup", 0)).unwrap();
    let index = Arc::new(Index::open_for(&registration, cache.clone(), IndexMode::Exact).unwrap());
    let session = WriteSession::begin(registration, index.clone(), cache.clone());
    let mut coder = Coder::new().unwrap();
    for part in 0..30 {
        let mut block = BlockBuilder::default();
        for n in part * 20..part * 20 + 20 {
            assert!(index.claim(&id(&repository, n)).unwrap());
            block.push(id(&repository, n), &chunk(n));
        }
        session.data.append(&mut block, &mut coder, Coding::Raw).unwrap();
        session.flush().unwrap();
        if part == 3 {
            fs::remove_dir_all(folder.path()).unwrap();
        }
    }
    assert!((0..600).all(|n| index.lookup(&id(&repository, n)).unwrap().is_some()));
    assert!(repository.unkept().is_some());
}

/// What a killed run leaves in packs that nothing names is stored again: so they are named in time, one large file's
/// too.
#[test]
fn finished_packs_are_named_in_time() {
    let memory = MemoryStore::new();
    let repository = repository_in(&memory);
    let (_folder, cache) = cache(&repository);
    let named = |every: Option<Duration>| {
        let before = objects(&memory, "index").len();
        let registration = Registration::begin(&repository, Session::new("h", "backup", 0)).unwrap();
        let index = Arc::new(Index::open_for(&registration, cache.clone(), IndexMode::Exact).unwrap());
        let session = WriteSession::begin(registration, index.clone(), cache.clone());
        every.into_iter().for_each(|every| session.name_packs_every(every));
        let (mut coder, mut block) = (Coder::new().unwrap(), BlockBuilder::default());
        // Packs of 1 MiB.
        for n in 0..3000 {
            block.push(id(&repository, n), &chunk(n));
            if block.raw.len() > 60_000 {
                session.data.append(&mut block, &mut coder, Coding::Raw).unwrap();
            }
        }
        let named = objects(&memory, "index").len() - before;
        session.abandon().unwrap();
        named
    };
    assert_eq!(named(None), 0);
    assert!(named(Some(Duration::ZERO)) >= 3);
}

/// Whatever is stored, one large file too: what waits for an index object is bounded, and so are the objects.
#[test]
fn a_session_writes_index_objects_as_it_goes() {
    let memory = MemoryStore::new();
    let repository = repository_in(&memory);
    let (_folder, cache) = cache(&repository);
    assert_eq!(store(&repository, &cache, IndexMode::Exact, 0..140_000), 140_000);
    let objects = objects(&memory, "index");
    assert!(objects.len() > 1, "{objects:?}");
    for object in objects {
        let len = memory.len(&object).unwrap().unwrap();
        // 64 Ki chunks, and those of the packs that were finished while it was written.
        assert!(len < (64 << 10) * 36 + (1 << 20), "{object}: {len} bytes");
    }
    let index = Index::open(&repository, cache).unwrap();
    assert!((0..140_000).step_by(997).all(|n| index.lookup(&id(&repository, n)).unwrap().is_some()));
}

#[test]
fn a_damaged_run_is_made_again() {
    let repository = repository();
    let (_folder, cache) = cache(&repository);
    store(&repository, &cache, IndexMode::Exact, 0..2000);
    let index = Index::open(&repository, cache.clone()).unwrap();
    for entry in fs::read_dir(cache.folder().unwrap().join("runs")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        bytes.iter_mut().take(4096 * 3).for_each(|b| *b ^= 0x55);
        fs::write(&path, bytes).unwrap();
    }
    // Open already, or opened anew: the pages that can't be believed are replaced.
    assert!((0..2000).all(|n| index.lookup(&id(&repository, n)).unwrap().is_some()));
    let index = Index::open(&repository, cache).unwrap();
    assert!((0..2000).all(|n| index.lookup(&id(&repository, n)).unwrap().is_some()));
}

/// One that is only met where many are merged: that used to fail, at each attempt.
#[test]
fn a_damaged_run_is_made_again_where_it_was_to_be_merged() {
    for at in [100, 3000] {
        let repository = repository();
        let (_folder, cache) = cache(&repository);
        for part in 0..20 {
            let bad = fs::read_dir(cache.folder().unwrap().join("runs")).into_iter().flatten().flatten();
            let bad = bad.map(|entry| entry.path()).find(|path| !path.ends_with("manifest"));
            if let Some(bad) = bad.filter(|_| part == 5) {
                let mut bytes = fs::read(&bad).unwrap();
                bytes[at] ^= 1;
                fs::write(&bad, bytes).unwrap();
            }
            assert_eq!(store(&repository, &cache, IndexMode::Exact, part * 200..part * 200 + 200), 200, "{part}");
        }
        let index = Index::open(&repository, cache.clone()).unwrap();
        assert!((0..4000).all(|n| index.lookup(&id(&repository, n)).unwrap().is_some()));
        let count = fs::read_dir(cache.folder().unwrap().join("runs")).unwrap().count();
        assert!(count < 12, "{count} runs are left");
    }
}

#[test]
fn the_sparse_index_stores_at_most_three_percent_more() {
    let repository = repository();
    let (_exact, exact) = cache(&repository);
    store(&repository, &exact, IndexMode::Exact, 0..40_000);
    // Another client meets the same data again with hooks alone: in the same order, and in shuffled stretches.
    let (_sparse, sparse) = cache(&repository);
    let index = Index::open_with(&repository, sparse.clone(), IndexMode::Sparse).unwrap();
    assert!(index.is_sparse());
    assert!(index.stats().memory * 4 < Index::open(&repository, exact.clone()).unwrap().stats().memory);
    let again = store(&repository, &sparse, IndexMode::Sparse, 0..40_000);
    assert!(again * 100 <= 40_000 * 3, "{again} of 40,000 chunks stored again");
    let stretches = (0..40).map(|n| n * 17 % 40 * 1000).flat_map(|start| start..start + 1000);
    let shuffled = store(&repository, &sparse, IndexMode::Sparse, stretches);
    assert!(shuffled * 100 <= 40_000 * 8, "{shuffled} of 40,000 chunks stored again");
    // New data is new, and stays exact within a run.
    assert_eq!(store(&repository, &sparse, IndexMode::Sparse, (50_000..51_000).chain(50_000..51_000)), 1000);
}

#[test]
fn the_sparse_index_is_chosen_by_size() {
    let repository = repository();
    let (_folder, cache) = cache(&repository);
    store(&repository, &cache, IndexMode::Exact, 0..5000);
    let sparse = |bytes| Index::open_with(&repository, cache.clone(), IndexMode::Auto(bytes)).unwrap().is_sparse();
    assert!(sparse(1000));
    assert!(!sparse(1 << 20));
}

/// Sessions that didn't see each other have stored the same; then packs are lost, all but one of them. Whoever reads
/// the index anew, in one run for all of its objects, finds the chunks in the one that is left.
#[test]
fn what_stands_in_several_packs_is_found_in_each() {
    let memory = MemoryStore::new();
    let repository = repository_in(&memory);
    for _ in 0..3 {
        // No index tells one of the other.
        let index: Vec<_> = objects(&memory, "index/").into_iter().map(|n| (memory.get(&n).unwrap(), n)).collect();
        index.iter().for_each(|(_, name)| memory.delete(name).unwrap());
        let (_folder, cache) = cache(&repository);
        assert_eq!(store(&repository, &cache, IndexMode::Exact, 0..300), 300);
        index.into_iter().for_each(|(bytes, name)| memory.put(&name, &bytes, drumlin_store::Put::Create).unwrap());
    }
    let packs = objects(&memory, "data/");
    assert_eq!(packs.len(), 3);
    for left in &packs {
        let lost: Vec<_> = packs.iter().filter(|p| *p != left).map(|n| (n, memory.get(n).unwrap())).collect();
        lost.iter().for_each(|(name, _)| memory.delete(name).unwrap());
        let (_folder, cache) = cache(&repository);
        let index = Arc::new(Index::open(&repository, cache.clone()).unwrap());
        let reader = Reader::new(repository.clone(), index, cache, 1 << 20);
        for n in 0..300 {
            let read = reader.chunk(PackKind::Data, &id(&repository, n));
            assert_eq!(read.unwrap(), chunk(n), "with {left} alone");
        }
        lost.iter().for_each(|(name, bytes)| memory.put(name, bytes, drumlin_store::Put::Create).unwrap());
    }
}

fn objects(memory: &MemoryStore, folder: &str) -> Vec<String> {
    let mut names = Vec::new();
    memory.list("", &mut |listed| names.push(listed.name)).unwrap();
    names.retain(|name| name.starts_with(folder));
    names
}

/// All objects of the one into the other.
fn merge(from: &MemoryStore, into: &MemoryStore) {
    let mut names = Vec::new();
    from.list("", &mut |listed| names.push(listed.name)).unwrap();
    for name in names {
        into.put(&name, &from.get(&name).unwrap(), drumlin_store::Put::Replace).unwrap();
    }
}

#[test]
fn shadowed_places_are_those_that_a_lookup_does_not_give() {
    let memory = MemoryStore::new();
    let repository = repository_in(&memory);
    let open = |memory: &MemoryStore| {
        let unlock = drumlin_repo::Unlock::File(repository.recovery_file().to_string());
        Repository::open(Arc::new(memory.clone()), &unlock).unwrap()
    };
    let empty = MemoryStore::new();
    merge(&memory, &empty);
    // Clients that know nothing of each other; enough of them that runs are merged.
    for client in 0..12 {
        let alone = MemoryStore::new();
        merge(&empty, &alone);
        let repository = open(&alone);
        let (_folder, cache) = cache(&repository);
        assert_eq!(store(&repository, &cache, IndexMode::Exact, client * 150..client * 150 + 400), 400);
        merge(&alone, &memory);
        if ![0, 5, 11].contains(&client) {
            continue;
        }
        // By a client that has seen nothing yet, and by one that finds a part of its cache damaged.
        for damaged in [false, true] {
            let repository = open(&memory);
            let (folder, cache) = self::cache(&repository);
            let index = Index::open(&repository, cache).unwrap();
            if damaged {
                let run = fs::read_dir(folder.path().join(repository.config().id.to_string()).join("runs")).unwrap();
                let run = run.map(|e| e.unwrap().path()).find(|p| p.metadata().unwrap().len() > 4096).unwrap();
                let mut bytes = fs::read(&run).unwrap();
                bytes[100] ^= 1;
                fs::write(&run, bytes).unwrap();
            }
            let mut found = std::collections::BTreeSet::new();
            index.shadowed(|at| _ = found.insert((index.pack(at.pack).id, at.ordinal))).unwrap();
            let mut expected = std::collections::BTreeSet::new();
            for (object, _) in repository.index_objects().unwrap() {
                for entry in repository.index_entries(object).unwrap().unwrap() {
                    for (ordinal, chunk) in (0..).zip(&entry.table.chunks) {
                        let at = index.lookup(&chunk.id).unwrap().unwrap();
                        if (index.pack(at.pack).id, at.ordinal) != (entry.pack, ordinal) {
                            expected.insert((entry.pack, ordinal));
                        }
                    }
                }
            }
            assert_eq!(expected.len() as u64, client * 250);
            if damaged {
                // What is made again may be asked in another order: then places of both are passed over.
                assert!(found.is_superset(&expected));
            } else {
                assert!(found == expected, "{} places instead of {}", found.len(), expected.len());
            }
        }
    }
}

/// What may happen to an index, in any order.
#[derive(Clone, Debug)]
enum Deed {
    /// A client stores these chunks.
    Store { client: usize, from: u64, count: u64, sparse: bool },
    /// A client loses its cache.
    Lose(usize),
    /// A byte of a file in a client's cache changes.
    Bend { client: usize, file: usize, at: usize },
    /// An index object goes, as a collector that has put nothing in its place would have it.
    Remove(usize),
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        6 => (0usize..3, 0u64..500, 1u64..150, proptest::bool::weighted(0.2))
            .prop_map(|(client, from, count, sparse)| Deed::Store { client, from, count, sparse }),
        1 => (0usize..3).prop_map(Deed::Lose),
        1 => (0usize..3, 0usize..8, 0usize..100_000).prop_map(|(client, file, at)| Deed::Bend { client, file, at }),
        1 => (0usize..20).prop_map(Deed::Remove),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Whatever clients store, lose and find damaged, and whatever goes: each finds what index objects name, and
    /// nothing else.
    #[test]
    fn whatever_happens_each_client_finds_what_is_named(deeds in proptest::collection::vec(deed(), 1..20)) {
        let repository = repository();
        let mut clients: Vec<_> = (0..3).map(|_| cache(&repository)).collect();
        let ids: Vec<ChunkId> = (0..700).map(|n| id(&repository, n)).collect();
        for deed in deeds {
            let named = named(&repository);
            match deed {
                Deed::Store { client, from, count, sparse } => {
                    let mode = if sparse { IndexMode::Sparse } else { IndexMode::Exact };
                    let missing = (from..from + count).filter(|n| !named.contains(&ids[*n as usize])).count() as u64;
                    let new = store(&repository, &clients[client].1, mode, from..from + count);
                    prop_assert!(new == missing || sparse && (missing..=count).contains(&new), "{} new of {}", new, missing);
                }
                Deed::Lose(client) => clients[client] = cache(&repository),
                Deed::Bend { client, file, at } => {
                    let runs = clients[client].1.folder().unwrap().join("runs");
                    let files: Vec<_> = fs::read_dir(runs).into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
                    if let Some(path) = files.get(file) {
                        let mut bytes = fs::read(path).unwrap();
                        let len = bytes.len();
                        bytes[at % len] ^= 1;
                        fs::write(path, bytes).unwrap();
                    }
                }
                Deed::Remove(which) => {
                    if let Some((id, _)) = repository.index_objects().unwrap().get(which) {
                        repository.store().delete(&names::index(*id)).unwrap();
                    }
                }
            }
            let named = self::named(&repository);
            for (_folder, cache) in &clients {
                let index = Index::open(&repository, cache.clone()).unwrap();
                for id in &ids {
                    prop_assert_eq!(index.lookup(id).unwrap().is_some(), named.contains(id));
                }
                let packs: Vec<_> = index.packs().iter().map(|pack| pack.id).collect();
                prop_assert_eq!(packs, reads::named_packs(&repository));
            }
        }
    }
}

/// All chunks that index objects name.
fn named(repository: &Repository) -> HashSet<ChunkId> {
    let objects = repository.index_objects().unwrap();
    let entries = objects.iter().flat_map(|(id, _)| repository.index_entries(*id).unwrap().unwrap());
    entries.flat_map(|entry| entry.table.chunks.into_iter().map(|chunk| chunk.id)).collect()
}
