//! A restore asks a storage that is far away for each block of contents but once, whatever the files are like.

use crate::common::{self, Bench, bench_over, quick_folder, settle, small};
use crate::{Scene, scene};
use drumlin_engine::monitor::Quiet;
use drumlin_engine::restore;
use drumlin_repo::names;
use drumlin_store::{Call, CallLog, Listed, MemoryStore, Put, RecordStore, Soon, Store, Upload};
use drumlin_testkit::{Rng, compare};
use std::collections::HashSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Where one window of a restore ends and the next begins, blocks are shared.
#[test]
fn a_restore_fetches_no_block_twice() {
    let Scene { bench, log, source, .. } = scene();
    let mut rng = Rng::new(5);
    // More than the first window holds.
    for n in 0..16_000 {
        let bytes = rng.bytes(400 + n % 900);
        fs::write(source.join(format!("{:02}/noise {n}", n % 36)), bytes).unwrap();
    }
    assert_reads_once(&bench, &log, &source, 128 << 20);
}

/// Files of some hundred KiB between small ones: both are in the same blocks, at their edges.
#[test]
fn a_restore_of_files_of_all_sizes_fetches_no_block_twice() {
    let Scene { bench, log, source, .. } = scene();
    let mut rng = Rng::new(6);
    fs::create_dir(source.join("mail")).unwrap();
    for n in 0..3000 {
        let len = if n % 200 == 7 { 900_000 } else { 1200 };
        fs::write(source.join(format!("mail/{n:05}")), rng.bytes(len)).unwrap();
    }
    // With little room to keep blocks in.
    assert_reads_once(&bench, &log, &source, 24 << 20);
}

/// A storage that takes a while to answer, and what it is told in advance.
struct Late(RecordStore<MemoryStore>, Arc<Mutex<Told>>);

#[derive(Default)]
struct Told {
    /// Ranges of contents that nobody has read yet, by object and offset.
    waiting: HashSet<(String, u64)>,
    /// As many as these were at most.
    most: usize,
}

impl Store for Late {
    fn location(&self) -> String {
        self.0.location()
    }
    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed)) -> drumlin_store::Result<()> {
        self.0.list(prefix, each)
    }
    fn len(&self, name: &str) -> drumlin_store::Result<Option<u64>> {
        self.0.len(name)
    }
    fn get(&self, name: &str) -> drumlin_store::Result<Vec<u8>> {
        self.0.get(name)
    }
    fn expect(&self, soon: Soon<'_>) {
        if let Soon::Range { name, offset, .. } = soon
            && name.starts_with(names::DATA)
        {
            let mut told = self.1.lock().unwrap();
            told.waiting.insert((name.to_owned(), offset));
            told.most = told.most.max(told.waiting.len());
        }
    }
    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> drumlin_store::Result<()> {
        self.1.lock().unwrap().waiting.remove(&(name.to_owned(), offset));
        std::thread::sleep(Duration::from_millis(3));
        self.0.read_at(name, offset, buf)
    }
    fn put(&self, name: &str, bytes: &[u8], how: Put) -> drumlin_store::Result<()> {
        self.0.put(name, bytes, how)
    }
    fn upload(&self, name: &str, len_hint: u64) -> drumlin_store::Result<Box<dyn Upload>> {
        self.0.upload(name, len_hint)
    }
    fn sync(&self) -> drumlin_store::Result<()> {
        self.0.sync()
    }
    fn delete(&self, name: &str) -> drumlin_store::Result<()> {
        self.0.delete(name)
    }
    fn is_far(&self) -> bool {
        self.0.is_far()
    }
}

/// A large file of which every now and then a piece is newer: what was stored before and after that is in the same
/// block, and wanted while that is still on its way.
#[test]
fn a_restore_of_a_patched_file_fetches_no_block_twice() {
    let memory = MemoryStore::new();
    let store = RecordStore::new(memory.far());
    let log = store.log();
    let told = Arc::<Mutex<Told>>::default();
    let bench = bench_over(Arc::new(Late(store, Arc::clone(&told))), memory, quick_folder(), small());
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    let mut bytes = Rng::new(7).bytes(12_000_000);
    fs::write(source.join("image"), &bytes).unwrap();
    settle();
    bench.backup(&source);
    (0..bytes.len()).step_by(90_000).for_each(|at| bytes[at] ^= 1);
    fs::write(source.join("image"), &bytes).unwrap();
    assert_reads_once(&bench, &log, &source, 128 << 20);
    // Most of its steps go on in a block that is there: enough of others is on its way all the same.
    let most = told.lock().unwrap().most;
    assert!(most >= 8, "{most}");
}

/// What comes back much later in a file, past all that there is room for.
#[test]
fn a_restore_of_a_file_that_repeats_itself_fetches_no_block_twice() {
    let Scene { bench, log, source, .. } = scene();
    let mut bytes = Rng::new(8).bytes(24_000_000);
    for (from, to) in [(1_000_000, 14_000_000), (5_000_000, 22_000_000)] {
        bytes.copy_within(from..from + 700_000, to);
    }
    fs::write(source.join("image"), &bytes).unwrap();
    assert_reads_once(&bench, &log, &source, 24 << 20);
}

fn assert_reads_once(bench: &Bench, log: &CallLog, source: &Path, memory: usize) {
    settle();
    let last = bench.backup(source).snapshot.unwrap();
    log.take();
    let target = bench.folder.path().join("target");
    let subfolder = Some(source.as_os_str().as_bytes().to_vec());
    let options = restore::Options { memory, subfolder, ..common::restore_options(&last, &target) };
    restore::restore(&bench.repository, &bench.cache, options, &Quiet::default()).unwrap();
    let options = compare::Options { roots: false, ..compare::Options::default() };
    assert_eq!(compare::trees(source, &target, &options).unwrap(), Vec::new());
    let mut reads: Vec<String> =
        log.take().iter().filter(|call| matches!(call, Call::ReadAt { .. })).map(|call| format!("{call:?}")).collect();
    let all = reads.len();
    reads.sort_unstable();
    reads.dedup();
    assert!(all > 40, "{all}");
    assert_eq!(reads.len(), all, "of {all} reads some were made twice");
}
