//! What is asked of a storage for the index, and for what is gone from it.

use super::*;
use drumlin_repo::Unlock;
use drumlin_store::{Listed, Put, Result, Upload};
use std::sync::Mutex;

/// Notes what is read, by name.
struct Noting {
    inner: MemoryStore,
    read: Mutex<Vec<String>>,
}

impl Noting {
    /// What was read of a folder since the last call.
    fn take(&self, folder: &str) -> usize {
        let read = std::mem::take(&mut *self.read.lock().unwrap());
        read.iter().filter(|name| name.starts_with(folder)).count()
    }

    fn note(&self, name: &str) -> &MemoryStore {
        self.read.lock().unwrap().push(name.to_owned());
        &self.inner
    }
}

impl Store for Noting {
    fn location(&self) -> String {
        self.inner.location()
    }
    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed)) -> Result<()> {
        self.inner.list(prefix, each)
    }
    fn len(&self, name: &str) -> Result<Option<u64>> {
        self.note(name).len(name)
    }
    fn get(&self, name: &str) -> Result<Vec<u8>> {
        self.note(name).get(name)
    }
    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.note(name).read_at(name, offset, buf)
    }
    fn put(&self, name: &str, bytes: &[u8], how: Put) -> Result<()> {
        self.inner.put(name, bytes, how)
    }
    fn upload(&self, name: &str, len_hint: u64) -> Result<Box<dyn Upload>> {
        self.inner.upload(name, len_hint)
    }
    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }
    fn delete(&self, name: &str) -> Result<()> {
        self.inner.delete(name)
    }
}

/// A repository, and as another client sees it whose reads are noted.
fn seen() -> (MemoryStore, Repository, Arc<Noting>, Repository) {
    let memory = MemoryStore::new();
    let repository = repository_in(&memory);
    let noting = Arc::new(Noting { inner: memory.clone(), read: Mutex::default() });
    let unlock = Unlock::File(repository.recovery_file().to_string());
    let other = Repository::open(noting.clone(), &unlock).unwrap();
    (memory, repository, noting, other)
}

/// Store so many chunks in each of so many sessions.
fn store_in_parts(repository: &Repository, cache: &Arc<Cache>, parts: std::ops::Range<u64>) {
    for part in parts {
        assert_eq!(store(repository, cache, IndexMode::Exact, part * 100..part * 100 + 100), 100);
    }
}

/// Whether an index finds of these chunks what index objects name, and no other pack than those.
fn assert_named(index: &Index, repository: &Repository, chunks: std::ops::Range<u64>) {
    let named = named(repository);
    for n in chunks {
        let id = id(repository, n);
        assert_eq!(index.lookup(&id).unwrap().is_some(), named.contains(&id), "{n}");
    }
}

/// All packs that index objects name, in order.
pub fn named_packs(repository: &Repository) -> Vec<drumlin_format::PackId> {
    let objects = repository.index_objects().unwrap();
    let entries = objects.iter().flat_map(|(id, _)| repository.index_entries(*id).unwrap().unwrap());
    let mut packs: Vec<_> = entries.map(|entry| entry.pack).collect();
    packs.sort_unstable();
    packs.dedup();
    packs
}

fn remove(repository: &Repository, count: usize) {
    let objects = repository.index_objects().unwrap();
    objects.iter().take(count).for_each(|(id, _)| repository.store().delete(&names::index(*id)).unwrap());
}

/// A client has read many index objects into one run. Where some of them go, that stays of use.
#[test]
fn index_objects_that_go_cost_no_more_than_those_that_come() {
    let (_memory, repository, noting, other) = seen();
    let ((_one, writers), (_two, readers)) = (cache(&repository), cache(&other));
    store_in_parts(&repository, &writers, 0..20);
    let open = || {
        noting.take("");
        let index = Index::open(&other, readers.clone()).unwrap();
        (index, noting.take("index/"))
    };
    assert_eq!((open().1, open().1), (20, 0));
    let objects = repository.index_objects().unwrap();
    let bytes = repository.store().get(&names::index(objects[3].0)).unwrap();
    [3, 11].iter().for_each(|at| repository.store().delete(&names::index(objects[*at].0)).unwrap());
    store_in_parts(&repository, &writers, 20..21);
    let (index, read) = open();
    assert_eq!(read, 1);
    assert_named(&index, &repository, 0..2100);
    assert!(index.packs().iter().map(|pack| pack.id).eq(named_packs(&repository)));
    // While it is open, too.
    remove(&repository, 1);
    index.refresh().unwrap();
    assert_eq!(noting.take("index/"), 0);
    assert_named(&index, &repository, 0..2100);
    index.shadowed(|at| panic!("{at:?} stands once")).unwrap();
    // What has gone comes back: it is read, and found.
    repository.store().put(&names::index(objects[3].0), &bytes, Put::Create).unwrap();
    index.refresh().unwrap();
    assert_eq!(noting.take("index/"), 1);
    assert_named(&index, &repository, 0..2100);
    repository.store().delete(&names::index(objects[3].0)).unwrap();
    // Once most of a run is gone the rest is read anew, into one that holds nothing else.
    remove(&repository, 10);
    let left = repository.index_objects().unwrap().len();
    let (index, read) = open();
    assert!((left - 1..=left).contains(&read), "{read} of {left}");
    assert_named(&index, &repository, 0..2100);
    assert_eq!(open().1, 0);
}

/// What is gone of runs stays behind where they are merged.
#[test]
fn what_is_gone_is_left_out_of_what_is_merged() {
    let (_memory, repository, noting, other) = seen();
    let ((_one, writers), (_two, readers)) = (cache(&repository), cache(&other));
    store_in_parts(&repository, &writers, 0..2);
    Index::open(&other, readers.clone()).unwrap();
    remove(&repository, 1);
    store_in_parts(&other, &readers, 2..10);
    noting.take("");
    let index = Index::open(&other, readers.clone()).unwrap();
    assert_eq!(noting.take("index/"), 0);
    assert_named(&index, &repository, 0..1000);
    assert!(index.packs().iter().map(|pack| pack.id).eq(named_packs(&repository)));
    assert_eq!(index.stats().chunks, 900);
}

/// Of two processes of one client each has made runs of its own: who saves last takes nothing from the other.
#[test]
fn two_at_work_on_one_cache_lose_nothing() {
    let (_memory, repository, noting, other) = seen();
    let ((_one, writers), (_two, shared)) = (cache(&repository), cache(&other));
    store_in_parts(&repository, &writers, 0..3);
    let slow = Registration::begin(&other, Session::new("h", "backup", 0)).unwrap();
    let index = Arc::new(Index::open_for(&slow, shared.clone(), IndexMode::Exact).unwrap());
    // Enough that runs are merged, and those that the first one has opened lose their names.
    store_in_parts(&other, &shared, 3..12);
    let session = WriteSession::begin(slow, index.clone(), shared.clone());
    let (mut block, mut coder) = (BlockBuilder::default(), Coder::new().unwrap());
    block.push(id(&other, 5000), &chunk(5000));
    session.data.append(&mut block, &mut coder, Coding::Raw).unwrap();
    session.flush().unwrap();
    session.abandon().unwrap();
    noting.take("");
    let index = Index::open(&other, shared.clone()).unwrap();
    assert_eq!(noting.take("index/"), 0);
    assert_named(&index, &repository, 0..1200);
    assert!(index.lookup(&id(&other, 5000)).unwrap().is_some());
}

/// A session that goes on for long saves what it has made again and again. What it has merged is not named beside it.
#[test]
fn what_a_session_has_merged_is_named_once() {
    let repository = repository();
    let (_folder, cache) = cache(&repository);
    let registration = Registration::begin(&repository, Session::new("h", "backup", 0)).unwrap();
    let index = Arc::new(Index::open_for(&registration, cache.clone(), IndexMode::Exact).unwrap());
    let session = WriteSession::begin(registration, index, cache.clone());
    let (mut block, mut coder) = (BlockBuilder::default(), Coder::new().unwrap());
    for n in 0..12 {
        block.push(id(&repository, n), &chunk(n));
        session.data.append(&mut block, &mut coder, Coding::Raw).unwrap();
        session.flush().unwrap();
    }
    session.abandon().unwrap();
    let index = Index::open(&repository, cache).unwrap();
    assert_eq!(index.stats().chunks, 12);
    assert_named(&index, &repository, 0..20);
}

/// A power failure may leave zeros in all that was written last. The cache is a hint, however much of it is bad.
#[test]
fn however_many_runs_are_damaged_all_are_made_again() {
    let repository = repository();
    let (_folder, cache) = cache(&repository);
    store_in_parts(&repository, &cache, 0..6);
    let bend = || {
        for entry in fs::read_dir(cache.folder().unwrap().join("runs")).unwrap() {
            let path = entry.unwrap().path();
            if !path.ends_with("manifest") {
                let mut bytes = fs::read(&path).unwrap();
                bytes[100] ^= 1;
                fs::write(&path, bytes).unwrap();
            }
        }
    };
    bend();
    let index = Index::open(&repository, cache.clone()).unwrap();
    index.shadowed(|at| panic!("{at:?} stands once")).unwrap();
    assert_named(&index, &repository, 0..700);
    bend();
    let index = Index::open(&repository, cache.clone()).unwrap();
    assert_named(&index, &repository, 0..700);
}

/// Of many chunks of a pack that is gone the storage need not say so of each.
#[test]
fn a_pack_that_is_gone_is_not_asked_for_each_of_its_chunks() {
    let (memory, repository, noting, other) = seen();
    let ((_one, writers), (_two, readers)) = (cache(&repository), cache(&other));
    store_in_parts(&repository, &writers, 0..3);
    let index = Arc::new(Index::open(&other, readers.clone()).unwrap());
    let reader = Reader::new(other, index.clone(), readers, 1 << 20);
    let lost = index.pack(index.lookup(&id(&repository, 0)).unwrap().unwrap().pack).id;
    let name = names::pack(PackKind::Data, lost);
    memory.delete(&name).unwrap();
    noting.take("");
    for n in 0..100 {
        assert!(reader.elsewhere(PackKind::Data, &id(&repository, n), &lost).unwrap().is_none());
    }
    let asked = noting.take(&name);
    assert!((1..8).contains(&asked), "{asked} times");
    // All the others are read as ever.
    assert_eq!(reader.chunk(PackKind::Data, &id(&repository, 150)).unwrap(), chunk(150));
}

/// What is in no pack by an index that was listed a while ago may be in one by now.
#[test]
fn a_chunk_that_is_nowhere_is_looked_for_once_more() {
    let (_memory, repository, noting, other) = seen();
    let ((_one, writers), (_two, readers)) = (cache(&repository), cache(&other));
    store_in_parts(&repository, &writers, 0..1);
    let index = Arc::new(Index::open(&other, readers.clone()).unwrap());
    let reader = Reader::new(other, index, readers, 1 << 20);
    store_in_parts(&repository, &writers, 1..2);
    assert_eq!(reader.chunk(PackKind::Data, &id(&repository, 150)).unwrap(), chunk(150));
    noting.take("");
    for n in 5000..5100 {
        let missing = reader.chunk(PackKind::Data, &id(&repository, n)).unwrap_err();
        assert!(matches!(missing, drumlin_repo::Error::MissingChunk(_)), "{missing}");
    }
    assert_eq!(noting.take(""), 0, "once is enough");
}

/// Lists whose holes have no contents between them could be made that have no end.
#[test]
fn a_hole_behind_a_hole_is_damage() {
    use drumlin_format::tree::{List, Ref};
    let repository = repository();
    let (_folder, cache) = cache(&repository);
    let index = Arc::new(Index::open(&repository, cache.clone()).unwrap());
    let reader = Reader::new(repository, index, cache, 1 << 20);
    let list = List { level: 0, refs: vec![Ref::Hole { len: 5 }; 2], whole: [0; 32] };
    let mut refs = drumlin_repo::tree::Refs::new(&reader, &list);
    assert_eq!(refs.next().unwrap().unwrap(), Ref::Hole { len: 5 });
    let damage = refs.next().unwrap().unwrap_err();
    assert!(damage.is_damage(), "{damage}");
    assert!(refs.next().is_none());
}
