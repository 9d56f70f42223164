//! What is asked of a storage for the index, and for what is gone from it.

use super::*;
use drumlin_repo::Unlock;
use drumlin_store::{Fault, FaultStore, Kind, Listed, Op, Put, Result, Upload, When};
use std::sync::Mutex;

type Meanwhile = Box<dyn FnOnce() + Send>;

/// Notes what is read, by name.
struct Noting {
    inner: MemoryStore,
    read: Mutex<Vec<String>>,
    /// What else happens as the next index object is read.
    meanwhile: Mutex<Option<Meanwhile>>,
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
        let is_awaited = name.starts_with("index/");
        let meanwhile = if is_awaited { self.meanwhile.lock().unwrap().take() } else { None };
        meanwhile.into_iter().for_each(|meanwhile| meanwhile());
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
    let noting = Arc::new(Noting { inner: memory.clone(), read: Mutex::default(), meanwhile: Mutex::default() });
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

/// Damage the first page of each run.
fn bend(cache: &Cache) {
    for entry in fs::read_dir(cache.folder().unwrap().join("runs")).unwrap() {
        let path = entry.unwrap().path();
        if !path.ends_with("manifest") {
            let mut bytes = fs::read(&path).unwrap();
            bytes[100] ^= 1;
            fs::write(&path, bytes).unwrap();
        }
    }
}

/// Of chunks 0 to 599, in one run, the first, on the page that is damaged, and those that are on others.
fn first_and_elsewhere(repository: &Repository) -> (ChunkId, Vec<ChunkId>) {
    let mut ids: Vec<_> = (0..600).map(|n| id(repository, n)).collect();
    ids.sort_unstable_by_key(|id| id.0);
    (ids[0], ids.split_off(300))
}

/// A power failure may leave zeros in all that was written last. The cache is a hint, however much of it is bad.
#[test]
fn however_many_runs_are_damaged_all_are_made_again() {
    let repository = repository();
    let (_folder, cache) = cache(&repository);
    store_in_parts(&repository, &cache, 0..6);
    bend(&cache);
    let index = Index::open(&repository, cache.clone()).unwrap();
    index.shadowed(|at| panic!("{at:?} stands once")).unwrap();
    assert_named(&index, &repository, 0..700);
    bend(&cache);
    let index = Index::open(&repository, cache.clone()).unwrap();
    assert_named(&index, &repository, 0..700);
}

/// Who asks for a chunk meanwhile would else take it for lost, or store it again.
#[test]
fn what_a_damaged_run_holds_is_found_while_it_is_made_again() {
    let (_memory, repository, noting, other) = seen();
    let ((_one, writers), (_two, readers)) = (cache(&repository), cache(&other));
    store_in_parts(&repository, &writers, 0..6);
    let index = Arc::new(Index::open(&other, readers.clone()).unwrap());
    bend(&readers);
    let (first, elsewhere) = first_and_elsewhere(&repository);
    let found = Arc::new(Mutex::new(None));
    let (told, asked) = (found.clone(), index.clone());
    *noting.meanwhile.lock().unwrap() = Some(Box::new(move || {
        let is_found = |id: &&ChunkId| asked.lookup(id).unwrap().is_some();
        *told.lock().unwrap() = Some(elsewhere.iter().filter(is_found).count());
    }));
    assert!(index.lookup(&first).unwrap().is_some());
    assert_eq!(*found.lock().unwrap(), Some(300));
    assert_named(&index, &repository, 0..600);
    assert_eq!(index.stats().chunks, 600);
}

/// That a part of what a client has is damaged is no reason to do without the rest.
#[test]
fn what_cannot_be_made_again_is_told_and_the_rest_is_found() {
    let memory = MemoryStore::new();
    let repository = repository_in(&memory);
    let disk = FaultStore::new(memory);
    let faults = disk.faults();
    let other = Repository::open(Arc::new(disk), &Unlock::File(repository.recovery_file().to_string())).unwrap();
    let ((_one, writers), (_two, readers)) = (cache(&repository), cache(&other));
    store_in_parts(&repository, &writers, 0..6);
    let index = Index::open_lenient(&other, readers.clone(), IndexMode::Exact).unwrap();
    bend(&readers);
    let (first, elsewhere) = first_and_elsewhere(&repository);
    faults.add(When::op(Op::Get).named("index/*"), Fault::Fail(Kind::Io));
    for _ in 0..2 {
        assert!(index.lookup(&first).is_err());
        assert!(elsewhere.iter().all(|id| index.lookup(id).unwrap().is_some()));
    }
    faults.clear();
    assert_named(&index, &repository, 0..700);
}

/// A collector's index stays as it is, and has what it puts itself.
#[test]
fn what_a_collector_has_put_is_found_when_its_runs_are_made_again() {
    let repository = repository();
    let (_folder, cache) = cache(&repository);
    store_in_parts(&repository, &cache, 0..2);
    let registration = Registration::begin(&repository, Session::new("h", "prune", 0)).unwrap();
    let objects = repository.index_objects().unwrap().into_iter().collect();
    let index = Arc::new(Index::open_among(&repository, cache.clone(), objects, None).unwrap());
    let session = WriteSession::begin(registration, index.clone(), cache.clone());
    let (mut block, mut coder) = (BlockBuilder::default(), Coder::new().unwrap());
    block.push(id(&repository, 500), &chunk(500));
    session.data.append(&mut block, &mut coder, Coding::Raw).unwrap();
    session.flush().unwrap();
    bend(&cache);
    assert_named(&index, &repository, 0..600);
    session.abandon().unwrap();
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
