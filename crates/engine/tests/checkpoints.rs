//! Whatever a run refers to is there before it refers to it: the storage is looked at in each moment in which a
//! snapshot appears in it, as if the machine had died right then.

mod common;

use common::{Bench, bench_over, options, prune_options, quick_folder, restore_options, settle, small};
use drumlin_engine::backup;
use drumlin_engine::monitor::{Change, Counters, Monitor, Problem, Quiet};
use drumlin_engine::prune;
use drumlin_engine::restore;
use drumlin_format::SnapshotId;
use drumlin_repo::{Cache, NewLock, Repository, Unlock};
use drumlin_seal::Secret;
use drumlin_store::{Fault, FaultStore, Kind, Listed, MemoryStore, Op, Put, Result, Store, Upload, When};
use drumlin_testkit::{Rng, compare};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Keeps a copy of everything whenever a snapshot is put.
struct Watched {
    inner: MemoryStore,
    states: Arc<Mutex<Vec<MemoryStore>>>,
}

fn copy(store: &MemoryStore) -> MemoryStore {
    let (to, mut names) = (MemoryStore::new(), Vec::new());
    store.list("", &mut |l| names.push(l.name)).unwrap();
    names.iter().for_each(|n| to.put(n, &store.get(n).unwrap(), Put::Create).unwrap());
    to
}

impl Store for Watched {
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
        self.inner.read_at(name, offset, buf)
    }

    fn put(&self, name: &str, bytes: &[u8], how: Put) -> Result<()> {
        self.inner.put(name, bytes, how)?;
        if name.starts_with("snapshots/") {
            self.states.lock().unwrap().push(copy(&self.inner));
        }
        Ok(())
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

/// Waits, when the entry of that name has been compared, until so many bytes have been stored.
struct WaitAt {
    counters: Counters,
    path: PathBuf,
    bytes: u64,
}

impl Monitor for WaitAt {
    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn problem(&self, problem: &Problem) {
        panic!("{problem:?}");
    }

    fn wants_entries(&self) -> bool {
        true
    }

    fn entry(&self, _: Change, path: &[u8]) {
        let start = Instant::now();
        while path == self.path.as_os_str().as_encoded_bytes() && self.counters.get().bytes_stored < self.bytes {
            assert!(start.elapsed() < Duration::from_secs(60), "nothing is stored");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn noise(path: &Path, seed: u64, len: usize) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, Rng::new(seed).bytes(len)).unwrap();
}

#[test]
fn every_checkpoint_is_whole_when_it_appears() {
    let folder = quick_folder();
    let source = folder.path().join("source");
    let memory = MemoryStore::new();
    let states = Arc::new(Mutex::new(Vec::new()));
    let store: Arc<dyn Store> = Arc::new(Watched { inner: memory.clone(), states: states.clone() });
    let (repository, key) = Repository::create(store, small(), NewLock::File(Secret::new([1; 32])), "t", 0).unwrap();
    let key = repository.key_file(key, &Secret::new([1; 32])).to_string();
    let cache = Arc::new(Cache::open(&repository, Some(&folder.path().join("cache")), folder.path()).unwrap());
    for n in 0..900 {
        noise(&source.join(format!("y/old-{n:03}")), n, 100);
    }
    settle();
    let run = |monitor: &dyn Monitor| {
        let options = backup::Options { checkpoint_bytes: 1, ..options(&[&source]) };
        backup::backup(&repository, &cache, options, monitor).unwrap()
    };
    run(&Quiet::default());
    // New data before and behind what is unchanged; the old tree ends in its midst.
    for n in 0..20 {
        noise(&source.join(format!("a/new-{n}")), 10_000 + n, 200_000);
        noise(&source.join(format!("z{n:02}/new")), 20_000 + n, 700_000);
    }
    noise(&source.join("b/large"), 7, 5_000_000);
    noise(&source.join("y/new"), 8, 5_000_000);
    settle();
    states.lock().unwrap().clear();
    // More than there is before `y`: a checkpoint is due when all of `y` has been compared, whenever the last one was.
    let (counters, path) = (Counters::default(), source.join("y/old-899"));
    let report = run(&WaitAt { counters, path, bytes: 11_000_000 });
    assert!(report.counts.unmodified >= 900);

    let states = std::mem::take(&mut *states.lock().unwrap());
    assert!(states.len() >= 2, "{} checkpoints", states.len());
    let mut in_the_midst = 0;
    for (at, state) in states.iter().enumerate() {
        let last = at == states.len() - 1;
        let repository = Repository::open(Arc::new(state.clone()), &Unlock::File(key.clone())).unwrap();
        let scratch = quick_folder();
        let cache = Arc::new(Cache::open(&repository, None, scratch.path()).unwrap());
        let (listed, errors) = repository.snapshots().unwrap();
        assert!(errors.is_empty(), "{errors:?}");
        let partials: Vec<_> = listed.iter().filter(|s| s.snapshot.partial.is_some()).collect();
        // The one before goes when the next has come; the whole one counts when that is decided.
        assert!(partials.len() == 1 && last || !last && (1..=2).contains(&partials.len()));
        for info in &listed {
            let snapshot = &info.snapshot;
            let target = scratch.path().join(snapshot.id.to_string());
            let monitor = Quiet::default();
            let mut options = restore_options(snapshot, &target);
            options.subfolder = Some(source.as_os_str().as_encoded_bytes().to_vec());
            let report = restore::restore(&repository, &cache, options, &monitor).unwrap();
            assert!(monitor.problems().is_empty(), "checkpoint {at}: {:?}", monitor.problems());
            assert_eq!(report.counts.restored, report.counts.entries);
            let Some(reached) = &snapshot.partial else { continue };
            // All up to where it says is there.
            if reached.dir.ends_with(b"/y") || reached.dir.ends_with(b"\0y") || reached.dir.ends_with(b"z00") {
                // One of them is new.
                let old = fs::read_dir(target.join("y")).unwrap().count() - 1;
                let expected = if reached.dir.ends_with(b"y") { reached.name.clone() } else { b"old-899".to_vec() };
                let expected: usize = String::from_utf8(expected).unwrap()[4..].parse().unwrap();
                assert_eq!(old, expected + 1, "checkpoint {at} ends with {}", reached.name.escape_ascii());
                in_the_midst += 1;
            }
        }
    }
    assert!(in_the_midst > 0, "no checkpoint where the old tree ended");
    // The run that was killed in the end is taken up.
    let resumed = Repository::open(Arc::new(states[states.len() - 2].clone()), &Unlock::File(key)).unwrap();
    let scratch = quick_folder();
    let cache = Arc::new(Cache::open(&resumed, None, scratch.path()).unwrap());
    let resumed = backup::backup(&resumed, &cache, options(&[&source]), &Quiet::default()).unwrap();
    assert!(resumed.parent.unwrap().partial.is_some() && resumed.counts.unmodified > 920);
    assert_eq!(resumed.counts.files, 900 + 42);
}

/// An account that may only add can't take away the checkpoint before, either.
#[test]
fn who_may_remove_nothing_saves_more_than_a_checkpoint() {
    let memory = MemoryStore::new();
    let store = FaultStore::new(memory.clone());
    let faults = store.faults();
    let bench = bench_over(Arc::new(store), memory, quick_folder(), small());
    let source = bench.folder.path().join("source");
    let mut rng = Rng::new(8);
    for n in 0..60 {
        fs::create_dir_all(source.join(format!("d{n:02}"))).unwrap();
        fs::write(source.join(format!("d{n:02}/file")), rng.bytes(400_000)).unwrap();
    }
    faults.add(When::op(Op::Delete), Fault::Fail(Kind::Refused));
    let options = backup::Options { checkpoint_bytes: 1, ..options(&[&source]) };
    let report = backup::backup(&bench.repository, &bench.cache, options, &Quiet::default()).unwrap();
    let snapshot = report.snapshot.unwrap();
    assert!(snapshot.partial.is_none() && !report.stopped);
    let mut ids = Vec::new();
    bench.memory.list("snapshots", &mut |listed| ids.push(listed.name)).unwrap();
    assert!(ids.len() > 2, "no checkpoint was left: {ids:?}");
    let counting = |bench: &Bench| -> Vec<SnapshotId> {
        bench.repository.snapshots().unwrap().0.iter().map(|info| info.snapshot.id).collect()
    };
    assert_eq!(counting(&bench), [snapshot.id], "of one session one counts");
    let target = bench.folder.path().join("out");
    bench.restore(&snapshot, &source, &target);
    compare::assert_same(&source, &target, &compare::Options { roots: false, ..Default::default() });

    // Somebody who can't read snapshots clears the session, and the decision with it.
    let before = copy(&bench.memory);
    faults.clear();
    for folder in ["sessions", "decisions"] {
        let mut names = Vec::new();
        bench.memory.list(folder, &mut |listed| names.push(listed.name)).unwrap();
        assert_eq!(names.len(), 1, "{folder}");
        names.iter().for_each(|name| bench.memory.delete(name).unwrap());
    }
    assert_eq!(counting(&bench), [snapshot.id], "the last of a session stands for the others");
    // Somebody who can takes the checkpoints with it, so that none appears when the last one is forgotten.
    let repository = Repository::open(Arc::new(before.clone()), &Unlock::File(bench.key_file())).unwrap();
    repository.forget(&[snapshot.id]).unwrap();
    let options = prune::Options { allow_remove_all: true, ..prune_options() };
    prune::prune(&repository, &bench.cache, &options, &Quiet::default()).unwrap();
    let mut left = Vec::new();
    before.list("", &mut |listed| left.push(listed.name)).unwrap();
    assert!(!left.iter().any(|name| name.starts_with("snapshots/")), "{left:?}");
    assert!(repository.snapshots().unwrap().0.is_empty());
}

/// Whatever keeps the checkpoint before from being removed: the backup itself is whole.
#[test]
fn a_checkpoint_that_stays_costs_no_backup() {
    let memory = MemoryStore::new();
    let store = FaultStore::new(memory.clone());
    let faults = store.faults();
    let bench = bench_over(Arc::new(store), memory, quick_folder(), small());
    let source = bench.folder.path().join("source");
    let mut rng = Rng::new(9);
    for n in 0..20 {
        fs::create_dir_all(source.join(format!("d{n:02}"))).unwrap();
        fs::write(source.join(format!("d{n:02}/file")), rng.bytes(400_000)).unwrap();
    }
    faults.add(When::op(Op::Delete).named("snapshots/*"), Fault::Fail(Kind::Io));
    let options = backup::Options { checkpoint_bytes: 1, ..options(&[&source]) };
    let report = backup::backup(&bench.repository, &bench.cache, options, &Quiet::default()).unwrap();
    faults.clear();
    let counting: Vec<_> = bench.repository.snapshots().unwrap().0.iter().map(|info| info.snapshot.id).collect();
    assert_eq!(counting, [report.snapshot.unwrap().id]);
}
