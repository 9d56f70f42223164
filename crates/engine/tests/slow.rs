//! A slow storage: the processors have time to spare, and `auto` spends it on size; and whoever restores waits for
//! several blocks at once.

mod common;

use common::{bench, options, restore_options, small};
use drumlin_engine::backup::{self, Compression};
use drumlin_engine::monitor::{Monitor, Quiet};
use drumlin_engine::restore;
use drumlin_repo::{Cache, NewLock, Repository, Unlock};
use drumlin_seal::Secret;
use drumlin_store::{Listed, MemoryStore, Put, Result, Store, Upload};
use drumlin_testkit::Rng;
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// Takes so many bytes of an upload a second, and some time for each read.
struct Slow {
    inner: MemoryStore,
    rate: u64,
    /// Reads of packs with contents, by who has asked.
    reads: Mutex<HashMap<ThreadId, usize>>,
    /// Whether who has read much more than the others waits for them.
    patient: AtomicBool,
    /// Whether an upload may end, by how many bytes those have that have come so far, itself among them.
    may_end: MayEnd,
    come: Arc<AtomicU64>,
}

type MayEnd = Arc<dyn Fn(u64) -> bool + Send + Sync>;

impl Slow {
    fn new(inner: MemoryStore, rate: u64) -> Self {
        let reads = Mutex::default();
        Slow { inner, rate, reads, patient: AtomicBool::new(false), may_end: Arc::new(|_| true), come: Arc::default() }
    }

    /// Nobody gets far ahead, however the machine treats its threads: what is asked is whether all take part.
    fn wait_for_others(&self) {
        let is_ahead = || {
            let reads = self.reads.lock().unwrap();
            let mine = reads[&std::thread::current().id()];
            mine > 2 * (reads.values().sum::<usize>() - mine) + 20
        };
        let begun = Instant::now();
        while self.patient.load(Ordering::Relaxed) && is_ahead() {
            if begun.elapsed() > Duration::from_secs(20) {
                self.patient.store(false, Ordering::Relaxed);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

struct SlowUpload {
    inner: Box<dyn Upload>,
    rate: u64,
    bytes: u64,
    may_end: MayEnd,
    come: Arc<AtomicU64>,
}

impl Upload for SlowUpload {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        std::thread::sleep(Duration::from_nanos(bytes.len() as u64 * 1_000_000_000 / self.rate));
        self.bytes += bytes.len() as u64;
        self.inner.write(bytes)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let begun = Instant::now();
        let come = self.come.fetch_add(self.bytes, Ordering::Relaxed) + self.bytes;
        while !(self.may_end)(come) {
            assert!(begun.elapsed() < Duration::from_secs(30), "nothing is read while something is sent");
            std::thread::sleep(Duration::from_millis(1));
        }
        self.inner.finish()
    }
}

impl Store for Slow {
    fn location(&self) -> String {
        self.inner.location()
    }
    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed)) -> Result<()> {
        self.inner.list(prefix, each)
    }
    fn len(&self, name: &str) -> Result<Option<u64>> {
        self.inner.len(name)
    }
    fn get(&self, name: &str) -> Result<Vec<u8>> {
        self.inner.get(name)
    }
    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        if name.starts_with("data/") {
            *self.reads.lock().unwrap().entry(std::thread::current().id()).or_default() += 1;
            std::thread::sleep(Duration::from_millis(5));
            self.wait_for_others();
        }
        self.inner.read_at(name, offset, buf)
    }
    fn put(&self, name: &str, bytes: &[u8], how: Put) -> Result<()> {
        self.inner.put(name, bytes, how)
    }
    fn upload(&self, name: &str, len_hint: u64) -> Result<Box<dyn Upload>> {
        let (inner, may_end) = (self.inner.upload(name, len_hint)?, self.may_end.clone());
        Ok(Box::new(SlowUpload { inner, rate: self.rate, bytes: 0, may_end, come: self.come.clone() }))
    }
    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }
    fn delete(&self, name: &str) -> Result<()> {
        self.inner.delete(name)
    }
}

/// Sentences of a few thousand words: what higher levels find more in.
fn text(rng: &mut Rng, words: &[String], bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 100);
    while text.len() < bytes {
        let sentence = rng.below(words.len() / 8) * 8;
        for word in &words[sentence..sentence + 4 + rng.below(4)] {
            text.push_str(word);
            text.push(' ');
        }
    }
    text
}

/// Bytes that blocks took when `source` was saved to a storage of this rate.
fn stored(source: &Path, rate: u64, compression: Compression) -> u64 {
    let store: Arc<dyn Store> = Arc::new(Slow::new(MemoryStore::new(), rate));
    let lock = NewLock::File(Secret::new([1; 32]));
    let (repository, _) = Repository::create(store, small(), lock, "test", 0).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let cache = Arc::new(Cache::open(&repository, Some(folder.path()), folder.path()).unwrap());
    let monitor = Quiet::default();
    let options = backup::Options { compression, ..options(&[source]) };
    backup::backup(&repository, &cache, options, &monitor).unwrap().counts.bytes_stored
}

#[test]
fn a_slow_storage_gets_fewer_bytes() {
    let source = common::quick_folder();
    let mut rng = Rng::new(7);
    let words: Vec<String> =
        (0..6000).map(|_| (0..3 + rng.below(8)).map(|_| (b'a' + rng.below(26) as u8) as char).collect()).collect();
    for file in 0..60 {
        fs::write(source.path().join(format!("{file}.txt")), text(&mut rng, &words, 600_000)).unwrap();
    }
    let (fast, slow) = (1 << 40, 2 << 20);
    let fixed = stored(source.path(), slow, Compression::Level(3));
    // The level has to be learned, so that not all of it gains. Where the processor has much else to do, it rightly
    // stays low.
    let patiently: Vec<u64> = (0..3).map(|_| stored(source.path(), slow, Compression::Auto)).collect();
    let is_less = |bytes: &u64| bytes * 100 < fixed * 95;
    assert!(patiently.iter().any(is_less), "{patiently:?} bytes at a slow storage, {fixed} at a fixed level");
    // On a machine that has much else to do, a fast storage may now and then seem to be slow.
    let alike = |at_once: u64| fixed * 100 <= at_once * 104 && at_once * 100 <= fixed * 104;
    let at_once: Vec<u64> = (0..4).map(|_| stored(source.path(), fast, Compression::Auto)).collect();
    assert!(at_once.iter().any(|bytes| alike(*bytes)), "{at_once:?} bytes at a fast storage, {fixed} at a fixed level");
}

/// One file and nothing else to do: its blocks are fetched by all workers.
#[test]
fn a_large_file_is_restored_by_all_workers() {
    let bench = bench();
    let source = bench.folder.path().join("source");
    fs::write(&source, Rng::new(1).bytes(40 << 20)).unwrap();
    let snapshot = bench.backup(&source).snapshot.unwrap();
    let store = Arc::new(Slow::new(bench.memory.clone(), 1 << 40));
    store.patient.store(true, Ordering::Relaxed);
    let repository = Repository::open(store.clone(), &Unlock::File(bench.key_file())).unwrap();
    let cache = Arc::new(Cache::open(&repository, None, bench.folder.path()).unwrap());
    let options = restore_options(&snapshot, &bench.folder.path().join("out"));
    restore::restore(&repository, &cache, options, &Quiet::default()).unwrap();
    let reads: Vec<usize> = store.reads.lock().unwrap().values().copied().filter(|reads| *reads > 2).collect();
    let all: usize = reads.iter().sum();
    assert!(reads.len() == 2 && reads.iter().all(|reads| reads * 4 > all), "reads of each thread: {reads:?}");
}

#[test]
fn what_comes_next_is_read_while_a_pack_is_sent() {
    const ALL: u64 = 48 << 20;
    const FURTHER: u64 = 1 << 20;
    let source = common::quick_folder();
    let mut rng = Rng::new(8);
    (0..48).for_each(|n| fs::write(source.path().join(n.to_string()), rng.bytes(1 << 20)).unwrap());
    let monitor = Arc::new(Quiet::default());
    let (watched, at_first) = (monitor.clone(), OnceLock::new());
    let read_on = move |come: u64| {
        let read = watched.counters().bytes_read.load(Ordering::Relaxed);
        let first = *at_first.get_or_init(|| read);
        assert!(first < ALL / 2, "half of it was read before anything was sent");
        read >= (come + FURTHER).min(ALL)
    };
    let slow = Slow::new(MemoryStore::new(), 1 << 40);
    let store: Arc<dyn Store> = Arc::new(Slow { may_end: Arc::new(read_on), ..slow });
    let lock = NewLock::File(Secret::new([1; 32]));
    let (repository, _) = Repository::create(store, small(), lock, "test", 0).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let cache = Arc::new(Cache::open(&repository, Some(folder.path()), folder.path()).unwrap());
    let report = backup::backup(&repository, &cache, options(&[source.path()]), &*monitor).unwrap();
    assert_eq!(report.counts.bytes, ALL);
}

/// Where many large files are read at once, each has fewer pieces under way: else their memory would grow by the square
/// of the workers.
#[test]
fn many_large_files_share_the_pieces_that_are_under_way() {
    const WORKERS: usize = 8;
    let source = common::quick_folder();
    let mut rng = Rng::new(9);
    (0..WORKERS).for_each(|n| fs::write(source.path().join(n.to_string()), rng.bytes(20 << 20)).unwrap());
    let monitor = Arc::new(Quiet::default());
    // Nothing is sent before nothing has been read for a while.
    let (watched, looked) = (monitor.clone(), Mutex::new((0, Instant::now())));
    let at_most = Arc::new(AtomicU64::new(0));
    let told = at_most.clone();
    let is_at_rest = move |_: u64| {
        let read = watched.counters().bytes_read.load(Ordering::Relaxed);
        let mut looked = looked.lock().unwrap();
        if looked.0 != read {
            *looked = (read, Instant::now());
        }
        // A machine that stands still is no rest, so early.
        let patience = Duration::from_secs(if read < 16 << 20 { 20 } else { 1 });
        let at_rest = told.load(Ordering::Relaxed) > 0 || looked.1.elapsed() > patience;
        if at_rest {
            let _ = told.compare_exchange(0, read, Ordering::Relaxed, Ordering::Relaxed);
        }
        at_rest
    };
    let slow = Slow::new(MemoryStore::new(), 1 << 40);
    let store: Arc<dyn Store> = Arc::new(Slow { may_end: Arc::new(is_at_rest), ..slow });
    let lock = NewLock::File(Secret::new([1; 32]));
    let (repository, _) = Repository::create(store, small(), lock, "test", 0).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let cache = Arc::new(Cache::open(&repository, Some(folder.path()), folder.path()).unwrap());
    let options = backup::Options { workers: WORKERS, ..options(&[source.path()]) };
    let report = backup::backup(&repository, &cache, options, &*monitor).unwrap();
    assert_eq!(report.counts.bytes, 160 << 20);
    let at_most = at_most.load(Ordering::Relaxed) >> 20;
    assert!((16..112).contains(&at_most), "{at_most} MiB were read when nothing could be sent");
}
