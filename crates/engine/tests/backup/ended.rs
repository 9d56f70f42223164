//! Runs that end before their time: what they leave when they are stopped or fail; and streams, which are whole or
//! nothing.

use super::*;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Asks to stop after so many entries.
struct StopAfter {
    counters: Counters,
    entries: u64,
    seen: AtomicU64,
}

impl StopAfter {
    fn new(entries: u64) -> Self {
        StopAfter { counters: Counters::default(), entries, seen: AtomicU64::new(0) }
    }
}

impl Monitor for StopAfter {
    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn problem(&self, problem: &Problem) {
        panic!("{problem:?}");
    }

    fn wants_entries(&self) -> bool {
        true
    }

    fn entry(&self, _: Change, _: &[u8]) {
        self.seen.fetch_add(1, Ordering::Relaxed);
    }

    fn stop(&self) -> bool {
        self.seen.load(Ordering::Relaxed) >= self.entries
    }
}

#[test]
fn a_stopped_run_leaves_a_partial_snapshot_that_restores_and_resumes() {
    for stop_at in [1, 150, 700] {
        let bench = bench();
        let source = tree(bench.folder.path(), 1000);
        settle();
        let monitor = StopAfter::new(stop_at);
        let report = backup::backup(&bench.repository, &bench.cache, options(&[&source]), &monitor);
        let report = match report {
            Err(Error::Interrupted) => continue,
            other => other.unwrap(),
        };
        assert!(report.stopped);
        let partial = report.snapshot.unwrap();
        assert!(partial.partial.is_some());
        let files = partial.root.unwrap().sums.files;
        assert!(files < 1000);
        let (listed, _) = bench.repository.snapshots().unwrap();
        assert_eq!(listed[0].snapshot, partial);

        let target = bench.folder.path().join("target");
        let (restored, monitor) = bench.restore(&partial, &source, &target);
        assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
        assert_eq!(restored.counts.files, files);

        let resumed = bench.backup(&source);
        assert!(!resumed.stopped && resumed.snapshot.as_ref().unwrap().partial.is_none());
        // Nothing that the partial snapshot holds is read again.
        assert_eq!(resumed.counts.bytes_read, resumed.counts.bytes - partial.root.unwrap().sums.bytes);
        assert_eq!(resumed.counts.files, 1000);
    }
}

#[test]
fn a_partial_snapshot_deletes_nothing_that_it_does_not_know() {
    for stop_at in [130, 137, 151, 163] {
        let bench = bench();
        let source = tree(bench.folder.path(), 1000);
        settle();
        let options = backup::Options { workers: 1, ..options(&[&source]) };
        let monitor = StopAfter::new(stop_at);
        let report = backup::backup(&bench.repository, &bench.cache, options, &monitor).unwrap();
        let partial = report.snapshot.unwrap();
        assert!(partial.partial.is_some() && partial.root.unwrap().sums.files < 1000);
        let mut options = common::restore_options(&partial, &source);
        options.subfolder = Some(source.as_os_str().as_encoded_bytes().to_vec());
        options.delete = true;
        let report = restore::restore(&bench.repository, &bench.cache, options, &Quiet::default()).unwrap();
        assert_eq!((report.counts.deleted, report.counts.kept), (0, report.counts.entries));
        assert_eq!(bench.backup(&source).counts.files, 1000);
    }
}

#[test]
fn a_resumed_run_falls_back_to_the_whole_snapshot_before() {
    let bench = bench();
    let source = tree(bench.folder.path(), 1000);
    settle();
    bench.backup(&source);
    fs::write(source.join("dir0/new"), b"new").unwrap();
    settle();
    let report = backup::backup(&bench.repository, &bench.cache, options(&[&source]), &StopAfter::new(300)).unwrap();
    assert!(report.snapshot.unwrap().partial.is_some());
    let resumed = bench.backup(&source);
    // The new file of three bytes may have been in the batch that was cut short.
    assert!(resumed.counts.bytes_read <= 3, "{} bytes read", resumed.counts.bytes_read);
    assert_eq!(resumed.counts.files, 1001);
}

#[test]
fn checkpoints_are_replaced_and_a_finished_run_leaves_none() {
    let bench = bench();
    let source = tree(bench.folder.path(), 2000);
    let mut options = options(&[&source]);
    options.checkpoint_bytes = 1 << 20;
    let report = backup::backup(&bench.repository, &bench.cache, options, &Quiet::default()).unwrap();
    let (listed, errors) = bench.repository.snapshots().unwrap();
    assert!(errors.is_empty());
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].snapshot, report.snapshot.unwrap());
}

fn stream(name: &str, reader: impl Read + Send + 'static, outcome: Result<(), String>) -> Source {
    Source::Stream { name: name.into(), reader: Box::new(reader), outcome: Box::new(|| outcome) }
}

#[test]
fn streams_become_files_and_failed_ones_nothing() {
    let bench = bench();
    let bytes = noise(5, 5_000_000);
    for (len, name) in [(0, "empty"), (10, "short"), (bytes.len(), "long")] {
        let mut options = options(&[]);
        options.source = stream(name, Cursor::new(bytes[..len].to_vec()), Ok(()));
        let report = backup::backup(&bench.repository, &bench.cache, options, &Quiet::default()).unwrap();
        let target = bench.folder.path().join(name);
        let options = common::restore_options(&report.snapshot.unwrap(), &target);
        restore::restore(&bench.repository, &bench.cache, options, &Quiet::default()).unwrap();
        assert!(fs::read(target.join(name)).unwrap() == bytes[..len]);
    }
    let before = bench.repository.snapshots().unwrap().0.len();
    let mut options = options(&[]);
    options.source = stream("x", Cursor::new(b"half".to_vec()), Err("the program failed with status 3".into()));
    let error = backup::backup(&bench.repository, &bench.cache, options, &Quiet::default()).unwrap_err();
    assert!(matches!(&error, Error::Stream(cause) if cause.contains("status 3")), "{error}");
    assert_eq!(bench.repository.snapshots().unwrap().0.len(), before);
}

/// Gives some bytes and then fails.
struct Breaks(Cursor<Vec<u8>>);

impl Read for Breaks {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        match self.0.read(buf)? {
            0 => Err(std::io::Error::other("it broke")),
            n => Ok(n),
        }
    }
}

/// However late a dump fails: what was stored of it needn't be stored again, by whoever comes next.
#[test]
fn what_a_failed_run_has_stored_is_not_stored_again() {
    let bytes = noise(3, 12_000_000);
    let read = || Cursor::new(bytes.clone());
    let failed = || stream("dump", read(), Err("the program failed with status 3".into()));
    let ways: [(&str, Source, Box<dyn Monitor>); 3] = [
        ("the program fails", failed(), Box::new(Quiet::default())),
        ("the pipe breaks", stream("dump", Breaks(read()), Ok(())), Box::new(Quiet::default())),
        ("it is stopped", stream("dump", read(), Ok(())), Box::new(StopAfterBytes(Counters::default(), 11_000_000))),
    ];
    for (name, source, monitor) in ways {
        let bench = bench();
        let run = |cache: &Arc<Cache>, source: Source, monitor: &dyn Monitor| {
            backup::backup(&bench.repository, cache, Options { source, ..options(&[]) }, monitor)
        };
        run(&bench.cache, source, &*monitor).unwrap_err();
        assert!(bench.repository.snapshots().unwrap().0.is_empty(), "{name}");
        let elsewhere = tempfile::tempdir().unwrap();
        let cache = Arc::new(Cache::open(&bench.repository, Some(elsewhere.path()), elsewhere.path()).unwrap());
        let report = run(&cache, stream("dump", read(), Ok(())), &Quiet::default()).unwrap();
        // Of what was on its way when it ended some pieces of 2 MiB weren't stored.
        assert!(report.counts.bytes_new < 7_000_000, "{name}: {} bytes", report.counts.bytes_new);
        let target = bench.folder.path().join("target");
        let options = common::restore_options(&report.snapshot.unwrap(), &target);
        restore::restore(&bench.repository, &cache, options, &Quiet::default()).unwrap();
        assert!(fs::read(target.join("dump")).unwrap() == bytes, "{name}");
    }
}

/// What is named in the index has to be there, and a session that protects it.
#[test]
fn a_failed_run_names_nothing_that_is_not_there() {
    for what in [names::SESSIONS, names::DATA] {
        let bench = bench();
        let memory = bench.memory.clone();
        let lose = move || {
            let mut names = Vec::new();
            memory.list(what, &mut |listed| names.push(listed.name)).unwrap();
            memory.delete(names.first().expect("there is one")).unwrap();
            Err("the program failed".to_owned())
        };
        let (name, reader) = (b"dump".to_vec(), Box::new(Cursor::new(noise(4, 8_000_000))));
        let source = Source::Stream { name, reader, outcome: Box::new(lose) };
        let run = |source| {
            let options = Options { source, ..options(&[]) };
            backup::backup(&bench.repository, &bench.cache, options, &Quiet::default())
        };
        let error = run(source).unwrap_err();
        assert!(matches!(error, Error::Stream(_)), "{error}");
        assert!(bench.repository.index_objects().unwrap().is_empty(), "{what}");
        let report = run(stream("dump", Cursor::new(noise(4, 8_000_000)), Ok(()))).unwrap();
        assert_eq!(report.counts.bytes_new, 8_000_000);
    }
}

/// Asks to stop once so many bytes have been read.
struct StopAfterBytes(Counters, u64);

impl Monitor for StopAfterBytes {
    fn counters(&self) -> &Counters {
        &self.0
    }

    fn problem(&self, problem: &Problem) {
        panic!("{problem:?}");
    }

    fn stop(&self) -> bool {
        self.0.get().bytes_read >= self.1
    }
}

#[test]
fn a_stop_after_the_end_of_the_walk_leaves_a_partial_snapshot_too() {
    let bench = bench();
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    for n in 0..7 {
        fs::write(source.join(n.to_string()), noise(n, 1_900_000)).unwrap();
    }
    // So few that the walk is long over when the workers have read some of them.
    let monitor = StopAfterBytes(Counters::default(), 6_000_000);
    let report = backup::backup(&bench.repository, &bench.cache, options(&[&source]), &monitor).unwrap();
    let snapshot = report.snapshot.unwrap();
    assert!(snapshot.root.unwrap().sums.files < 7);
    assert!(report.stopped && snapshot.partial.is_some(), "a run that was cut short passes for a whole one");
    assert_eq!(bench.backup(&source).counts.files, 7);
}

/// One worker has named chunks of a large file and not yet stored them; another finds them named, and its file is done
/// when the run is stopped.
#[test]
fn what_a_stopped_run_has_named_is_stored() {
    let mut partial = 0;
    for seed in 0..20 {
        // Large blocks: many chunks wait to be stored at once.
        let bench = bench_with(drumlin_repo::CreateOptions::default());
        let source = bench.folder.path().join("source");
        fs::create_dir_all(source.join("a")).unwrap();
        fs::create_dir_all(source.join("b")).unwrap();
        let bytes = noise(seed, 9 << 20);
        // Of one piece's length and a little: it is done while the other is being cut.
        fs::write(source.join("a/first"), &bytes[..(2 << 20) + 1]).unwrap();
        fs::write(source.join("b/second"), &bytes).unwrap();
        settle();
        // The directories count too: with the first file done, the second isn't.
        let options = backup::Options { workers: 3, ..options(&[&source.join("a"), &source.join("b")]) };
        let monitor = StopWhenDone(Counters::default());
        let Ok(report) = backup::backup(&bench.repository, &bench.cache, options, &monitor) else { continue };
        partial += u32::from(report.stopped);
        let snapshot = report.snapshot.unwrap();
        let target = bench.folder.path().join("target");
        let (_, monitor) = bench.restore(&snapshot, &source, &target);
        assert!(monitor.problems().is_empty(), "seed {seed}: {:?}", monitor.problems());
    }
    assert!(partial > 3, "{partial} runs were stopped in time");
}

/// Asks to stop once a file is done.
struct StopWhenDone(Counters);

impl Monitor for StopWhenDone {
    fn counters(&self) -> &Counters {
        &self.0
    }

    fn problem(&self, problem: &Problem) {
        panic!("{problem:?}");
    }

    fn stop(&self) -> bool {
        self.0.get().files >= 1
    }
}

/// Somebody who wants to stop as soon as there is a pack.
struct StopAtFirstPack {
    counters: Counters,
    memory: MemoryStore,
    until: OnceLock<Instant>,
}

/// When waiting has an end, which began when this was asked first.
fn end_of_wait(until: &OnceLock<Instant>) -> Instant {
    *until.get_or_init(|| Instant::now() + Duration::from_secs(30))
}

impl Monitor for StopAtFirstPack {
    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn problem(&self, problem: &Problem) {
        panic!("{problem:?}");
    }

    fn stop(&self) -> bool {
        let pause = || std::thread::sleep(Duration::from_millis(2));
        let is_there = || {
            let mut packs = 0;
            self.memory.list(names::DATA, &mut |_| packs += 1).unwrap();
            packs > 0
        };
        pause();
        // Three pieces fill the second pack; the thread that puts it may be late. (Or there is none: who has closed it may
        // have been told in time.)
        let is_due = || self.counters.get().bytes_read > 5_900_000 && !is_there();
        while is_due() && Instant::now() < end_of_wait(&self.until) {
            pause();
        }
        is_there()
    }
}

/// The first pack can't be written, which is told to whoever closes the next one: the piece of a large file that nobody
/// waits for any more.
#[test]
fn no_snapshot_refers_to_a_pack_that_could_not_be_written() {
    let (memory, folder) = (MemoryStore::new(), tempfile::tempdir().unwrap());
    let store = FaultStore::new(memory.clone());
    let faults = store.faults();
    let bench = common::bench_over(Arc::new(store), memory.clone(), folder, small());
    let source = tree(bench.folder.path(), 40);
    fs::write(source.join("large"), noise(7, 24 << 20)).unwrap();
    settle();
    faults.add(When::op(Op::Finish).named("data/*").times(1), Fault::Fail(Kind::Io));
    let monitor = StopAtFirstPack { counters: Counters::default(), memory, until: OnceLock::new() };
    let options = backup::Options { workers: 1, ..options(&[&source]) };
    let stopped = backup::backup(&bench.repository, &bench.cache, options, &monitor);
    assert!(matches!(stopped, Err(Error::Repo(drumlin_repo::Error::Unwritten(_)))), "{stopped:?}");
    assert!(bench.repository.snapshots().unwrap().0.is_empty());
    let whole = bench.backup(&source).snapshot.unwrap();
    let (restored, monitor) = bench.restore(&whole, &source, &bench.folder.path().join("target"));
    assert_eq!((restored.counts.files, monitor.problems().len()), (41, 0));
}

/// Somebody who takes his time to say that he doesn't want to stop: where much was read before the storage refused
/// anything, until it does.
struct Slow {
    counters: Counters,
    log: CallLog,
    until: OnceLock<Instant>,
}

impl Monitor for Slow {
    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn problem(&self, problem: &Problem) {
        panic!("{problem:?}");
    }

    fn stop(&self) -> bool {
        let pause = || std::thread::sleep(Duration::from_millis(2));
        let is_refused = || self.log.calls().iter().any(|call| format!("{call:?}").contains("data/"));
        pause();
        let is_due = || self.counters.get().bytes_read > 16 << 20 && !is_refused();
        while is_due() && Instant::now() < end_of_wait(&self.until) {
            pause();
        }
        false
    }
}

#[test]
fn a_run_that_has_failed_reads_no_large_file_to_its_end() {
    let (memory, folder) = (MemoryStore::new(), tempfile::tempdir().unwrap());
    let store = FaultStore::new(memory.clone());
    let faults = store.faults();
    let store = RecordStore::new(store);
    let log = store.log();
    let bench = common::bench_over(Arc::new(store), memory, folder, small());
    let source = bench.folder.path().join("source");
    fs::create_dir_all(source.join("a")).unwrap();
    let large = source.join("large");
    fs::write(&large, noise(7, 64 << 20)).unwrap();
    settle();
    bench.backup(&source);
    // It is read, and all that is in it is there already. Beside it there is something new, which finds no place.
    File::options().write(true).open(&large).unwrap().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    for n in 0..300 {
        fs::write(source.join("a").join(n.to_string()), noise(100 + n, 20_000)).unwrap();
    }
    settle();
    faults.add(When::op(Op::Upload).named("data/*"), Fault::Fail(Kind::Io));
    log.take();
    let monitor = Slow { counters: Counters::default(), log, until: OnceLock::new() };
    let failed = backup::backup(&bench.repository, &bench.cache, options(&[&source]), &monitor);
    assert!(matches!(failed, Err(Error::Repo(drumlin_repo::Error::Store(_)))), "{failed:?}");
    let read = monitor.counters.get().bytes_read;
    assert!(read < 40 << 20, "{read} bytes were read for nobody");
}

/// A storage on which packs that are being closed have to wait.
struct Gate(MemoryStore, Arc<AtomicBool>);

struct Gated(Box<dyn Upload>, Arc<AtomicBool>);

impl Upload for Gated {
    fn write(&mut self, bytes: &[u8]) -> drumlin_store::Result<()> {
        while std::thread::current().name() == Some("close-pack") && !self.1.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.0.write(bytes)
    }

    fn finish(self: Box<Self>) -> drumlin_store::Result<()> {
        self.0.finish()
    }
}

impl Store for Gate {
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
    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> drumlin_store::Result<()> {
        self.0.read_at(name, offset, buf)
    }
    fn put(&self, name: &str, bytes: &[u8], how: Put) -> drumlin_store::Result<()> {
        self.0.put(name, bytes, how)
    }
    fn upload(&self, name: &str, len_hint: u64) -> drumlin_store::Result<Box<dyn Upload>> {
        Ok(Box::new(Gated(self.0.upload(name, len_hint)?, self.1.clone())))
    }
    fn delete(&self, name: &str) -> drumlin_store::Result<()> {
        self.0.delete(name)
    }
    fn sync(&self) -> drumlin_store::Result<()> {
        self.0.sync()
    }
}

/// The second pack finds no place while the first is being closed.
#[test]
fn nothing_is_named_once_the_session_has_ended() {
    let (memory, folder) = (MemoryStore::new(), tempfile::tempdir().unwrap());
    let opened = Arc::new(AtomicBool::new(false));
    let store = FaultStore::new(Gate(memory.clone(), opened.clone()));
    let faults = store.faults();
    let bench = common::bench_over(Arc::new(store), memory.clone(), folder, small());
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("large"), noise(7, 8 << 20)).unwrap();
    settle();
    faults.add(When::op(Op::Upload).named("data/*").skip(1), Fault::Fail(Kind::Io));
    let failed = backup::backup(&bench.repository, &bench.cache, options(&[&source]), &Quiet::default());
    assert!(failed.is_err(), "{failed:?}");
    opened.store(true, Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(300));
    let mut left = Vec::new();
    memory.list("", &mut |listed| left.push(listed.name)).unwrap();
    let of_a_run = |name: &&String| !["config", "keys"].iter().any(|kept| name.starts_with(kept));
    assert_eq!(left.iter().find(of_a_run), None, "{left:?}");
}
