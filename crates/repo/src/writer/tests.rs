//! Sessions that end while an index object of theirs is under way.

use super::*;
use crate::pack::{BlockBuilder, Coder, Coding};
use crate::{CreateOptions, NewLock};
use drumlin_format::session::Session;
use drumlin_seal::Secret;
use drumlin_store::{Listed, MemoryStore, Result as Stored, Store, Upload};
use std::sync::Barrier;

/// A storage that does one thing late: when somebody has met it there twice.
struct Late {
    memory: MemoryStore,
    what: Mutex<Option<Call>>,
    meeting: Barrier,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    Sync,
    PutIndex,
}

impl Late {
    fn meet_at(&self, call: Call) {
        if lock(&self.what).take_if(|what| *what == call).is_some() {
            self.meeting.wait();
            self.meeting.wait();
        }
    }
}

impl Store for Late {
    fn location(&self) -> String {
        self.memory.location()
    }
    fn creates_atomically(&self) -> Stored<bool> {
        self.memory.creates_atomically()
    }
    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed)) -> Stored<()> {
        self.memory.list(prefix, each)
    }
    fn len(&self, name: &str) -> Stored<Option<u64>> {
        self.memory.len(name)
    }
    fn get(&self, name: &str) -> Stored<Vec<u8>> {
        self.memory.get(name)
    }
    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Stored<()> {
        self.memory.read_at(name, offset, buf)
    }
    fn put(&self, name: &str, bytes: &[u8], how: Put) -> Stored<()> {
        if name.starts_with(names::INDEX) {
            self.meet_at(Call::PutIndex);
        }
        self.memory.put(name, bytes, how)
    }
    fn upload(&self, name: &str, len_hint: u64) -> Stored<Box<dyn Upload>> {
        self.memory.upload(name, len_hint)
    }
    fn sync(&self) -> Stored<()> {
        self.meet_at(Call::Sync);
        self.memory.sync()
    }
    fn delete(&self, name: &str) -> Stored<()> {
        self.memory.delete(name)
    }
}

/// What is in a folder.
fn count(late: &Late, folder: &str) -> usize {
    let mut count = 0;
    late.memory.list(folder, &mut |_| count += 1).unwrap();
    count
}

/// A session with something in it is flushed, and this happens while the storage is at that call. What became of the
/// flush.
fn meanwhile(call: Call, then: impl FnOnce(&WriteSession, &Late)) -> (Result<()>, Arc<Late>) {
    let late = Arc::new(Late { memory: MemoryStore::new(), what: Mutex::new(None), meeting: Barrier::new(2) });
    let key = NewLock::File(Secret::new([1; 32]));
    let (repository, _) = Repository::create(late.clone(), CreateOptions::default(), key, "test", 0).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let cache = Arc::new(Cache::open(&repository, None, scratch.path()).unwrap());
    let registration = Registration::begin(&repository, Session::new("host", "backup", 0)).unwrap();
    let index = Arc::new(Index::open(&repository, cache.clone()).unwrap());
    let session = WriteSession::begin(registration, index, cache);
    let (mut block, words) = (BlockBuilder::default(), b"some words".repeat(100));
    block.push(repository.data_id(&words).unwrap(), &words);
    session.data.append(&mut block, &mut Coder::new().unwrap(), Coding::Raw).unwrap();
    *lock(&late.what) = Some(call);
    let flushed = std::thread::scope(|scope| {
        let flushing = scope.spawn(|| session.flush());
        late.meeting.wait();
        then(&session, &late);
        flushing.join().unwrap()
    });
    (flushed, late)
}

/// Its packs are nobody's by then, and may be gone before it comes.
#[test]
fn behind_the_end_of_a_session_no_index_object_comes() {
    let (flushed, late) = meanwhile(Call::Sync, |session, late| {
        session.abandon().unwrap();
        assert_eq!(count(late, names::SESSIONS), 0);
        late.meeting.wait();
    });
    assert!(matches!(flushed, Err(Error::Unwritten(_))), "{flushed:?}");
    assert_eq!(count(&late, names::INDEX), 0);
}

#[test]
fn a_session_stands_while_an_index_object_of_it_is_put() {
    let (flushed, late) = meanwhile(Call::PutIndex, |session, late| {
        session.abandon().unwrap();
        assert_eq!(count(late, names::SESSIONS), 1, "who reads that index object would believe it");
        late.meeting.wait();
    });
    flushed.unwrap();
    assert_eq!((count(&late, names::INDEX), count(&late, names::SESSIONS)), (1, 1));
}

/// Who has a checkpoint to commit needn't leave it to others for that.
#[test]
fn an_index_object_that_is_being_put_can_be_waited_for() {
    let (flushed, _late) = meanwhile(Call::PutIndex, |session, late| {
        session.give_up();
        assert!(session.is_in_doubt());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| session.see_put());
            std::thread::sleep(3 * PUT_LOOK);
            assert!(!waits.is_finished());
            late.meeting.wait();
        });
        assert!(!session.is_in_doubt());
    });
    flushed.unwrap();
}
