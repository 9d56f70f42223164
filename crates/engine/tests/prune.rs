//! Prune: what is needed stays whole, what isn't goes, whatever happens beside it or in its middle.

mod common;

use common::{Bench, bench, options, restore_options};
use drumlin_engine::backup;
use drumlin_engine::monitor::Quiet;
use drumlin_engine::prune::{self, Options, Report, Unused, prune};
use drumlin_engine::{Error, Result, restore};
use drumlin_format::key::Role;
use drumlin_format::pack::PackKind;
use drumlin_format::session::{Process, Session};
use drumlin_format::snapshot::Snapshot;
use drumlin_repo::collection::{Board, Desk, Registration};
use drumlin_repo::{Cache, Index, IndexMode, NewLock, Repository, Unlock, WriteSession, names};
use drumlin_seal::Secret;
use drumlin_store::{Call, Fault, FaultStore, Kind, MemoryStore, Op, Put, RecordStore, Store, When};
use drumlin_testkit::{Rng, compare};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

fn prune_options() -> Options {
    Options {
        host: "host".into(),
        max_unused: Unused::Percent(5.0),
        max_repack: None,
        wait: Duration::ZERO,
        evict: Vec::new(),
        evict_after: Duration::from_secs(3600),
        workers: 2,
    }
}

fn prune_all(bench: &Bench) -> Result<Report> {
    prune(&bench.repository, &bench.cache, &prune_options(), &Quiet::default())
}

/// Several states of a tree, each backed up, and a copy of each to compare with.
struct History {
    bench: Bench,
    source: PathBuf,
    states: Vec<(Snapshot, PathBuf)>,
}

impl History {
    /// Each step changes a quarter of the files.
    fn new(steps: u64) -> Self {
        let bench = bench();
        let source = bench.folder.path().join("source");
        let mut history = History { bench, source, states: Vec::new() };
        (0..steps).for_each(|step| history.step(step));
        history
    }

    fn step(&mut self, step: u64) {
        let mut rng = Rng::new(step + 1);
        for dir in 0..8 {
            fs::create_dir_all(self.source.join(format!("d{dir}"))).unwrap();
            for file in 0..30 {
                if step > 0 && rng.below(4) > 0 {
                    continue;
                }
                let path = self.source.join(format!("d{dir}/f{file}"));
                let len = 2000 + rng.below(30_000);
                fs::write(path, if file % 3 == 0 { rng.bytes(len) } else { rng.text(len) }).unwrap();
            }
        }
        let large = self.source.join("large");
        let mut bytes = fs::read(&large).unwrap_or_else(|_| rng.bytes(3_000_000));
        let at = rng.below(2_000_000);
        bytes[at..at + 300_000].copy_from_slice(&rng.bytes(300_000));
        fs::write(&large, bytes).unwrap();
        common::settle();
        let copy = self.bench.folder.path().join(format!("copy{step}"));
        let copied = std::process::Command::new("cp").arg("-a").args([&self.source, &copy]).status().unwrap();
        assert!(copied.success());
        let report = self.bench.backup(&self.source);
        self.states.push((report.snapshot.unwrap(), copy));
    }

    fn forget(&mut self, gone: impl Fn(usize) -> bool) {
        let mut at = 0;
        self.states.retain(|(snapshot, _)| {
            at += 1;
            let gone = gone(at - 1);
            if gone {
                self.bench.memory.delete(&names::snapshot(snapshot.id)).unwrap();
            }
            !gone
        });
    }

    /// Every state that is left comes back as it was, by a reader that knows nothing yet.
    fn whole(&self) {
        self.whole_in(&self.bench.memory);
    }

    fn whole_in(&self, memory: &MemoryStore) {
        let repository = Repository::open(Arc::new(memory.clone()), &Unlock::File(self.bench.key_file())).unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let (listed, errors) = repository.snapshots().unwrap();
        assert!(errors.is_empty(), "{errors:?}");
        for (snapshot, copy) in &self.states {
            assert!(listed.iter().any(|info| info.snapshot.id == snapshot.id), "a snapshot is gone");
            let cache = Arc::new(Cache::open(&repository, None, scratch.path()).unwrap());
            let target = scratch.path().join("out");
            let monitor = Quiet::default();
            let mut options = restore_options(snapshot, &target);
            options.subfolder = Some(self.source.as_os_str().as_encoded_bytes().to_vec());
            restore::restore(&repository, &cache, options, &monitor).unwrap();
            assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
            compare::assert_same(copy, &target, &compare::Options { roots: false, ..compare::Options::default() });
            fs::remove_dir_all(&target).unwrap();
        }
    }

    fn bytes(&self) -> u64 {
        bytes(&self.bench.memory)
    }
}

fn bytes(memory: &MemoryStore) -> u64 {
    let mut bytes = 0;
    memory.list("", &mut |listed| bytes += listed.len).unwrap();
    bytes
}

fn objects(memory: &MemoryStore) -> BTreeMap<String, u64> {
    let mut objects = BTreeMap::new();
    memory
        .list("", &mut |listed| {
            objects.insert(listed.name, listed.len);
        })
        .unwrap();
    objects
}

/// A repository of these states alone and its last snapshot, with the same secrets, so that it cuts files at the same places.
fn fresh(history: &History) -> (MemoryStore, Snapshot) {
    let memory = MemoryStore::new();
    for name in objects(&history.bench.memory).keys().filter(|n| *n == "config" || n.starts_with("keys/")) {
        memory.put(name, &history.bench.memory.get(name).unwrap(), Put::Create).unwrap();
    }
    let key = Unlock::File(history.bench.key_file());
    let repository = Repository::open(Arc::new(memory.clone()), &key).unwrap();
    let cache = Arc::new(Cache::open(&repository, None, history.bench.folder.path()).unwrap());
    let mut last = None;
    for (_, copy) in &history.states {
        fs::remove_dir_all(&history.source).unwrap();
        assert!(std::process::Command::new("cp").arg("-a").args([copy, &history.source]).status().unwrap().success());
        let report = backup::backup(&repository, &cache, options(&[&history.source]), &Quiet::default()).unwrap();
        last = report.snapshot;
    }
    (memory, last.unwrap())
}

#[test]
fn half_of_six_are_forgotten() {
    let mut history = History::new(6);
    history.forget(|at| at % 2 == 0);
    let before = history.bytes();
    let planned =
        prune::plan(&history.bench.repository, &history.bench.cache, &prune_options(), &Quiet::default()).unwrap();
    assert_eq!(history.bytes(), before, "a plan changes nothing");
    let report = prune_all(&history.bench).unwrap();
    assert_eq!(report.survey, Some(planned));
    assert!(report.gone.packs > 0 && report.after < report.before, "{report:?}");
    history.whole();
    let (after, fresh) = (history.bytes(), bytes(&fresh(&history).0));
    assert!(after * 10 <= fresh * 11, "{after} bytes after a prune of {before}, {fresh} in a fresh repository");
    // And the next backup finds what is there.
    let report = history.bench.backup(&history.source);
    assert_eq!(report.counts.chunks_new, 0, "{:?}", report.counts);
}

/// What a restore of a state reads: calls of `read_at`, and their bytes.
fn restore_reads(memory: &MemoryStore, key: &str, snapshot: &Snapshot, folder: &Path) -> (usize, u64) {
    let store = RecordStore::new(memory.clone());
    let log = store.log();
    let repository = Repository::open(Arc::new(store), &Unlock::File(key.into())).unwrap();
    let cache = Arc::new(Cache::open(&repository, None, folder).unwrap());
    let target = folder.join("reads");
    log.take();
    restore::restore(&repository, &cache, restore_options(snapshot, &target), &Quiet::default()).unwrap();
    fs::remove_dir_all(&target).unwrap();
    let calls = log.take();
    let data: Vec<u64> = calls
        .iter()
        .filter_map(|call| match call {
            Call::ReadAt { name, bytes, .. } if name.starts_with("data/") => Some(*bytes),
            _ => None,
        })
        .collect();
    (data.len(), data.iter().sum())
}

/// After years of changes the newest state is scattered over many packs. A prune that leaves nothing unused puts it together
/// again: a restore then reads about as much, and in as few steps, as one from a fresh repository.
#[test]
fn a_restore_does_not_get_slower_with_age() {
    let mut history = History::new(12);
    history.forget(|at| at < 11);
    let (snapshot, _) = history.states[0].clone();
    let (key, folder) = (history.bench.key_file(), history.bench.folder.path().to_owned());
    let aged = restore_reads(&history.bench.memory, &key, &snapshot, &folder);
    let strict = Options { max_unused: Unused::Bytes(0), ..prune_options() };
    prune(&history.bench.repository, &history.bench.cache, &strict, &Quiet::default()).unwrap();
    history.whole();
    let pruned = restore_reads(&history.bench.memory, &key, &snapshot, &folder);
    let (memory, fresh) = fresh(&history);
    let new = restore_reads(&memory, &key, &fresh, &folder);
    assert!(aged.1 * 10 > new.1 * 12, "there is nothing to gain: {aged:?} beside {new:?}");
    assert!(pruned.1 * 10 < new.1 * 13 && pruned.0 * 10 < new.0 * 14, "{pruned:?} beside {new:?}");
}

#[test]
fn with_nothing_to_do_it_lists_and_reads_nothing() {
    let mut history = History::new(3);
    history.forget(|at| at == 1);
    prune_all(&history.bench).unwrap();
    let report = prune_all(&history.bench).unwrap();
    assert_eq!((report.gone.packs, report.written), (0, 0));
    let state = objects(&history.bench.memory);
    let store = RecordStore::new(history.bench.memory.clone());
    let log = store.log();
    let repository = Repository::open(Arc::new(store), &Unlock::File(history.bench.key_file())).unwrap();
    log.take();
    let report = prune(&repository, &history.bench.cache, &prune_options(), &Quiet::default()).unwrap();
    assert_eq!(report.survey, None);
    assert!(log.calls().iter().all(|call| matches!(call, Call::List { .. })), "{:?}", log.calls());
    assert_eq!(objects(&history.bench.memory), state);
    // Other limits are another question.
    let strict = Options { max_unused: Unused::Bytes(0), ..prune_options() };
    assert!(prune(&repository, &history.bench.cache, &strict, &Quiet::default()).unwrap().survey.is_some());
}

#[test]
fn all_snapshots_are_forgotten() {
    let mut history = History::new(2);
    history.forget(|_| true);
    let report = prune_all(&history.bench).unwrap();
    assert_eq!(report.after, 0);
    let left = objects(&history.bench.memory);
    assert!(left.keys().all(|name| name == "config" || name.starts_with("keys/")), "{left:?}");
    history.step(9);
    history.whole();
}

#[test]
fn limits_are_kept() {
    let mut history = History::new(4);
    history.forget(|at| at < 3);
    let none = Options { max_unused: Unused::Unlimited, ..prune_options() };
    let report = prune(&history.bench.repository, &history.bench.cache, &none, &Quiet::default()).unwrap();
    assert_eq!(report.written, 0);
    let little = Options { max_repack: Some(200_000), max_unused: Unused::Bytes(0), ..prune_options() };
    let report = prune(&history.bench.repository, &history.bench.cache, &little, &Quiet::default()).unwrap();
    assert!(report.survey.unwrap().moves <= 200_000, "{report:?}");
    let report = prune_all(&history.bench).unwrap();
    assert!(report.written > 200_000, "{report:?}");
    history.whole();
}

fn lesser(bench: &Bench, role: Role) -> Repository {
    let secret = Secret::new([7; 32]);
    let key = bench.repository.add_key(role, &NewLock::File(secret.clone()), "other", 0).unwrap();
    let file = bench.repository.key_file(key, &secret).to_string();
    Repository::open(Arc::new(bench.memory.clone()), &Unlock::File(file)).unwrap()
}

#[test]
fn a_keeper_prunes_by_metadata_alone_and_others_may_not() {
    let mut history = History::new(4);
    history.forget(|at| at < 3);
    for role in [Role::Reader, Role::Writer] {
        let repository = lesser(&history.bench, role);
        let refused = prune(&repository, &history.bench.cache, &prune_options(), &Quiet::default());
        assert!(matches!(refused, Err(Error::Repo(drumlin_repo::Error::NotAllowed { .. }))), "{refused:?}");
    }
    let keeper = lesser(&history.bench, Role::Keeper);
    let scratch = tempfile::tempdir().unwrap();
    let cache = Arc::new(Cache::open(&keeper, None, scratch.path()).unwrap());
    let before = history.bytes();
    let report = prune(&keeper, &cache, &prune_options(), &Quiet::default()).unwrap();
    assert!(report.gone.packs > 0 && history.bytes() < before, "{report:?}");
    history.whole();
}

#[test]
fn leftovers_of_a_killed_backup_go_and_its_session_too() {
    let history = History::new(1);
    let repository = &history.bench.repository;
    let before = objects(&history.bench.memory);
    let mut child = std::process::Command::new("sleep").arg("0").spawn().unwrap();
    let this = drumlin_host::process::Process::this().unwrap();
    let process =
        Process { machine: this.machine, boot: this.boot, namespace: this.namespace, id: child.id(), began: 1 };
    child.wait().unwrap();
    let session = Session { process: Some(process), ..Session::new("host", "backup", 0) };
    let registration = Registration::begin(repository, session).unwrap();
    let index = Arc::new(Index::open_for(&registration, history.bench.cache.clone(), IndexMode::Exact).unwrap());
    let session = WriteSession::begin(registration, index, history.bench.cache.clone());
    let mut block = drumlin_repo::pack::BlockBuilder::default();
    let bytes = Rng::new(77).bytes(50_000);
    block.push(repository.data_id(&bytes).unwrap(), &bytes);
    let mut coder = drumlin_repo::pack::Coder::new().unwrap();
    session.data.append(&mut block, &mut coder, drumlin_repo::pack::Coding::Raw).unwrap();
    session.data.finish().unwrap();
    drop(session);
    let report = prune_all(&history.bench).unwrap();
    assert_eq!(report.survey.unwrap().orphans.packs, 1);
    let mut after = objects(&history.bench.memory);
    after.retain(|name, _| !name.starts_with("decisions/"));
    assert_eq!(after, before);
    history.whole();
}

#[test]
fn whoever_is_at_work_is_waited_for_and_named() {
    let mut history = History::new(2);
    history.forget(|at| at == 0);
    let session = Session::new("elsewhere", "backup", 0);
    let registration = Registration::begin(&history.bench.repository, session).unwrap();
    let before = objects(&history.bench.memory);
    let busy = prune_all(&history.bench);
    let Err(Error::Busy(message)) = busy else { panic!("{busy:?}") };
    assert!(message.contains("elsewhere") && message.contains("backup"), "{message}");
    let gone: Vec<_> = before.keys().filter(|n| !objects(&history.bench.memory).contains_key(*n)).cloned().collect();
    assert!(gone.is_empty(), "{gone:?}");
    assert!(!objects(&history.bench.memory).keys().any(|n| n.starts_with("plans/")), "its plan is left");
    history.whole();
    // It ends while somebody waits for it.
    let waiting = Options { wait: Duration::from_secs(60), ..prune_options() };
    std::thread::scope(|scope| {
        let thread =
            scope.spawn(|| prune(&history.bench.repository, &history.bench.cache, &waiting, &Quiet::default()));
        std::thread::sleep(Duration::from_millis(500));
        registration.abandon().unwrap();
        assert!(thread.join().unwrap().unwrap().gone.packs > 0);
    });
    history.whole();
}

#[test]
fn who_is_said_to_be_dead_is_evicted() {
    let mut history = History::new(2);
    history.forget(|at| at == 0);
    let _left = Registration::begin(&history.bench.repository, Session::new("elsewhere", "backup", 0)).unwrap();
    let sessions = Desk::new(&history.bench.repository).sessions().unwrap();
    let evicting = Options { evict: sessions, ..prune_options() };
    let report = prune(&history.bench.repository, &history.bench.cache, &evicting, &Quiet::default()).unwrap();
    assert!(report.gone.packs > 0);
    history.whole();
}

/// A session of another machine that writes nothing from one prune to another is taken for dead, one that writes isn't.
#[test]
fn who_is_silent_for_long_is_evicted() {
    let mut history = History::new(2);
    history.forget(|at| at == 0);
    let _left = Registration::begin(&history.bench.repository, Session::new("elsewhere", "backup", 0)).unwrap();
    let cautious = prune_options();
    let busy = |options: &Options| {
        let done = prune(&history.bench.repository, &history.bench.cache, options, &Quiet::default());
        matches!(done, Err(Error::Busy(_)))
    };
    assert!(busy(&cautious));
    std::thread::sleep(Duration::from_millis(2100));
    assert!(busy(&cautious));
    assert!(!busy(&Options { evict_after: Duration::from_secs(1), ..cautious }));
    history.whole();
}

/// A store in which something happens when an object is put.
struct Meanwhile<F> {
    inner: MemoryStore,
    prefix: &'static str,
    then: std::sync::Mutex<Option<F>>,
}

impl<F: FnOnce() + Send> Store for Meanwhile<F> {
    fn location(&self) -> String {
        self.inner.location()
    }
    fn list(&self, prefix: &str, each: &mut dyn FnMut(drumlin_store::Listed)) -> drumlin_store::Result<()> {
        self.inner.list(prefix, each)
    }
    fn len(&self, name: &str) -> drumlin_store::Result<Option<u64>> {
        self.inner.len(name)
    }
    fn get(&self, name: &str) -> drumlin_store::Result<Vec<u8>> {
        self.inner.get(name)
    }
    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> drumlin_store::Result<()> {
        self.inner.read_at(name, offset, buf)
    }
    fn put(&self, name: &str, bytes: &[u8], how: Put) -> drumlin_store::Result<()> {
        if name.starts_with(self.prefix)
            && let Some(then) = self.then.lock().unwrap().take()
        {
            then();
        }
        self.inner.put(name, bytes, how)
    }
    fn upload(&self, name: &str, len_hint: u64) -> drumlin_store::Result<Box<dyn drumlin_store::Upload>> {
        self.inner.upload(name, len_hint)
    }
    fn sync(&self) -> drumlin_store::Result<()> {
        self.inner.sync()
    }
    fn delete(&self, name: &str) -> drumlin_store::Result<()> {
        self.inner.delete(name)
    }
}

/// A store in which something happens before the first range of an object is read.
struct WhileReading {
    inner: MemoryStore,
    prefix: &'static str,
    then: Box<dyn Fn() + Send + Sync>,
}

impl Store for WhileReading {
    fn location(&self) -> String {
        self.inner.location()
    }
    fn list(&self, prefix: &str, each: &mut dyn FnMut(drumlin_store::Listed)) -> drumlin_store::Result<()> {
        self.inner.list(prefix, each)
    }
    fn len(&self, name: &str) -> drumlin_store::Result<Option<u64>> {
        self.inner.len(name)
    }
    fn get(&self, name: &str) -> drumlin_store::Result<Vec<u8>> {
        self.inner.get(name)
    }
    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> drumlin_store::Result<()> {
        if name.starts_with(self.prefix) {
            (self.then)();
        }
        self.inner.read_at(name, offset, buf)
    }
    fn put(&self, name: &str, bytes: &[u8], how: Put) -> drumlin_store::Result<()> {
        self.inner.put(name, bytes, how)
    }
    fn upload(&self, name: &str, len_hint: u64) -> drumlin_store::Result<Box<dyn drumlin_store::Upload>> {
        self.inner.upload(name, len_hint)
    }
    fn sync(&self) -> drumlin_store::Result<()> {
        self.inner.sync()
    }
    fn delete(&self, name: &str) -> drumlin_store::Result<()> {
        self.inner.delete(name)
    }
}

/// A backup that has read the index before the plan was there, and ends after the first look, refers to what the plan
/// condemned: that has to stay. And one that comes after the plan stores anew what the plan condemns.
#[test]
fn a_backup_between_the_two_looks_keeps_what_it_refers_to() {
    for prefix in ["plans/", "decisions/"] {
        let mut history = History::new(2);
        // The last state is forgotten, and a backup of the same tree finds all of it in the index.
        let copy = history.states[1].1.clone();
        history.forget(|at| at == 1);
        let inside =
            Repository::open(Arc::new(history.bench.memory.clone()), &Unlock::File(history.bench.key_file())).unwrap();
        let (source, folder) = (history.source.clone(), tempfile::tempdir().unwrap());
        let (sender, receiver) = std::sync::mpsc::channel();
        let then = move || {
            let cache = Arc::new(Cache::open(&inside, None, folder.path()).unwrap());
            let report = backup::backup(&inside, &cache, options(&[&source]), &Quiet::default()).unwrap();
            sender.send(report).unwrap();
        };
        let memory = history.bench.memory.clone();
        let store = Meanwhile { inner: memory, prefix, then: std::sync::Mutex::new(Some(then)) };
        let repository = Repository::open(Arc::new(store), &Unlock::File(history.bench.key_file())).unwrap();
        let report = prune(&repository, &history.bench.cache, &prune_options(), &Quiet::default()).unwrap();
        let backup = receiver.recv().unwrap();
        if prefix == "plans/" {
            assert_eq!(backup.counts.chunks_new, 0, "it found all in the index");
        } else {
            assert!(backup.counts.chunks_new > 0 && report.gone.packs > 0, "it knew the plan");
        }
        history.states.push((backup.snapshot.unwrap(), copy));
        history.whole();
        prune_all(&history.bench).unwrap();
        history.whole();
    }
}

/// One that comes while another is about to remove what it condemned: it writes index objects in place of others, and none of
/// them may name what will be gone. Else the next backup of the same contents takes it for stored.
#[test]
fn two_prunes_leave_no_name_of_what_is_gone() {
    let mut history = History::new(3);
    history.forget(|at| at < 2);
    // A copy of a state that was forgotten, to be saved again.
    let again = history.bench.folder.path().join("copy1");
    let key = history.bench.key_file();
    let inside = Repository::open(Arc::new(history.bench.memory.clone()), &Unlock::File(key.clone())).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let then = move || {
        let cache = Arc::new(Cache::open(&inside, None, folder.path()).unwrap());
        let thorough = Options { max_unused: Unused::Bytes(0), ..prune_options() };
        sender.send(prune(&inside, &cache, &thorough, &Quiet::default())).unwrap();
    };
    let memory = history.bench.memory.clone();
    let store = Meanwhile { inner: memory, prefix: "decisions/", then: std::sync::Mutex::new(Some(then)) };
    let repository = Repository::open(Arc::new(store), &Unlock::File(key)).unwrap();
    let lazy = Options { max_unused: Unused::Unlimited, ..prune_options() };
    let report = prune(&repository, &history.bench.cache, &lazy, &Quiet::default()).unwrap();
    assert!(report.gone.packs > 0, "{report:?}");
    let busy = receiver.recv().unwrap();
    assert!(matches!(busy, Err(Error::Busy(_))), "{busy:?}");
    let there = objects(&history.bench.memory);
    for (id, _) in history.bench.repository.index_objects().unwrap() {
        for pack in history.bench.repository.index_hooks(id).unwrap().unwrap() {
            let name = names::pack(pack.kind, pack.pack);
            assert!(there.contains_key(&name), "'{}' names {name}, which is gone", names::index(id));
        }
    }
    fs::remove_dir_all(&history.source).unwrap();
    assert!(std::process::Command::new("cp").arg("-a").args([&again, &history.source]).status().unwrap().success());
    common::settle();
    let saved = history.bench.backup(&history.source).snapshot.unwrap();
    history.states.push((saved, again));
    history.whole();
}

/// Restores that have read the index, and perhaps begun, before a prune moves what they want.
#[test]
fn a_restore_goes_on_while_packs_are_moved() {
    for prefix in ["data/", "tree/"] {
        let mut history = History::new(5);
        history.forget(|at| at % 2 == 0);
        let (snapshot, copy) = history.states.last().unwrap().clone();
        let (source, key) = (history.source.clone(), history.bench.key_file());
        let bench = &history.bench;
        let strict = Options { max_unused: Unused::Bytes(0), ..prune_options() };
        let run = || {
            let before = objects(&bench.memory);
            let report = prune(&bench.repository, &bench.cache, &strict, &Quiet::default()).unwrap();
            assert!(report.gone.packs > 3, "{report:?}");
            let data = |name: &&String| name.starts_with("data/") || name.starts_with("tree/");
            let now = objects(&bench.memory);
            assert!(before.keys().filter(data).any(|name| !now.contains_key(name)));
        };
        let target = bench.folder.path().join("out");
        std::thread::scope(|scope| {
            let (go, going) = std::sync::mpsc::channel::<()>();
            let (done, wait) = std::sync::mpsc::channel::<()>();
            scope.spawn(move || {
                going.recv().unwrap();
                run();
                done.send(()).unwrap();
            });
            let wait = std::sync::Mutex::new(wait);
            let once = std::sync::Once::new();
            let go = std::sync::Mutex::new(go);
            let then = move || {
                once.call_once(|| {
                    go.lock().unwrap().send(()).unwrap();
                    wait.lock().unwrap().recv().unwrap();
                });
            };
            let store = WhileReading { inner: bench.memory.clone(), prefix, then: Box::new(then) };
            let repository = Repository::open(Arc::new(store), &Unlock::File(key)).unwrap();
            let scratch = tempfile::tempdir().unwrap();
            let cache = Arc::new(Cache::open(&repository, None, scratch.path()).unwrap());
            let monitor = Quiet::default();
            let mut options = restore_options(&snapshot, &target);
            options.subfolder = Some(source.as_os_str().as_encoded_bytes().to_vec());
            restore::restore(&repository, &cache, options, &monitor).unwrap();
            assert!(monitor.problems().is_empty(), "{prefix}: {:?}", monitor.problems());
        });
        compare::assert_same(&copy, &target, &compare::Options { roots: false, ..compare::Options::default() });
    }
}

#[test]
fn in_doubt_nothing_goes() {
    let mut history = History::new(3);
    history.forget(|at| at == 1);
    for kind in [PackKind::Data, PackKind::Tree] {
        let before = objects(&history.bench.memory);
        let of_kind = before.keys().filter(|name| name.starts_with(names::folder(kind)));
        let lost: Vec<_> = of_kind.map(|name| (name, history.bench.memory.get(name).unwrap())).collect();
        lost.iter().for_each(|(name, _)| history.bench.memory.delete(name).unwrap());
        let failed = prune_all(&history.bench).unwrap_err();
        let fits = match kind {
            PackKind::Data => matches!(failed, Error::Doubt(_)),
            PackKind::Tree => matches!(failed, Error::Unsure { .. } | Error::Doubt(_)),
        };
        assert!(fits, "{failed:?}");
        assert!(failed.to_string().contains("nothing was removed"), "{failed}");
        lost.iter().for_each(|(name, kept)| history.bench.memory.put(name, kept, Put::Create).unwrap());
        assert_eq!(objects(&history.bench.memory), before);
    }
    // A snapshot that can't be read might need anything.
    let name = names::snapshot(history.states[0].0.id);
    let whole = history.bench.memory.get(&name).unwrap();
    let mut bent = whole.clone();
    bent[100] ^= 1;
    history.bench.memory.put(&name, &bent, Put::Replace).unwrap();
    let failed = prune_all(&history.bench).unwrap_err();
    assert!(failed.to_string().contains(&name), "{failed}");
    history.bench.memory.put(&name, &whole, Put::Replace).unwrap();
    history.whole();
}

/// Killed at any store call, or with a store that fails from there on: all that was there is whole, and the next prune ends
/// where an undisturbed one does.
#[test]
fn killed_at_every_call() {
    let mut history = History::new(3);
    history.forget(|at| at == 1);
    let start = history.bench.memory.clone();
    let state = |memory: &MemoryStore| {
        let mut all = Vec::new();
        memory.list("", &mut |listed| all.push(listed.name)).unwrap();
        let copy = MemoryStore::new();
        all.iter().for_each(|name| copy.put(name, &memory.get(name).unwrap(), Put::Create).unwrap());
        copy
    };
    let open = |store: Arc<dyn Store>| Repository::open(store, &Unlock::File(history.bench.key_file())).unwrap();
    let run = |memory: &MemoryStore, from: Option<u64>| {
        let store = FaultStore::new(memory.clone());
        let faults = store.faults();
        let repository = open(Arc::new(store));
        let scratch = tempfile::tempdir().unwrap();
        let cache = Arc::new(Cache::open(&repository, None, scratch.path()).unwrap());
        let first = faults.calls();
        if let Some(from) = from {
            faults.add(When::any().skip(from).times(u64::MAX), Fault::Fail(Kind::Io));
        }
        let done = prune(&repository, &cache, &prune_options(), &Quiet::default());
        (done, faults.calls() - first)
    };
    let memory = state(&start);
    let (done, calls) = run(&memory, None);
    done.unwrap();
    let settled = bytes(&memory);
    history.whole_in(&memory);
    assert!(calls > 40, "{calls}");
    for from in 0..calls {
        let memory = state(&start);
        let (done, _) = run(&memory, Some(from));
        assert!(done.is_err(), "call {from} of {calls} failed and nobody noticed");
        if from % 7 == 0 {
            history.whole_in(&memory);
        }
        // The process of the session that is left is this one, which lives: so somebody has to say that it is dead.
        let repository = open(Arc::new(memory.clone()));
        let evict = Desk::new(&repository).sessions().unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let cache = Arc::new(Cache::open(&repository, None, scratch.path()).unwrap());
        let options = Options { evict, ..prune_options() };
        prune(&repository, &cache, &options, &Quiet::default()).unwrap();
        if from % 5 == 0 {
            history.whole_in(&memory);
        }
        let after = bytes(&memory);
        assert!(after * 100 < settled * 108, "call {from}: {after} bytes are left, {settled} without the failure");
    }
}

/// What a prune that was killed has written anew may be all that there is of something once the next one has tidied up: the
/// backup after that finds it, to compare with and to refer to.
#[test]
fn a_backup_after_a_killed_prune_finds_everything() {
    for (folder, skip) in [("index/", 1), ("plans/", 0), ("decisions/", 0)] {
        let mut history = History::new(3);
        history.forget(|at| at < 2);
        let store = FaultStore::new(history.bench.memory.clone());
        let faults = store.faults();
        let repository = Repository::open(Arc::new(store), &Unlock::File(history.bench.key_file())).unwrap();
        let thorough = Options { max_unused: Unused::Bytes(0), ..prune_options() };
        faults.add(When::op(Op::Put).named(&format!("{folder}*")).skip(skip), Fault::Fail(Kind::Io));
        faults.add(When::op(Op::Delete), Fault::Fail(Kind::Io));
        prune(&repository, &history.bench.cache, &thorough, &Quiet::default()).unwrap_err();
        let evict = Desk::new(&history.bench.repository).sessions().unwrap();
        assert_eq!(evict.len(), 1);
        let next = Options { evict, ..prune_options() };
        prune(&history.bench.repository, &history.bench.cache, &next, &Quiet::default()).unwrap();
        history.whole();
        let report = history.bench.backup(&history.source);
        assert_eq!((report.counts.chunks_new, report.counts.changed), (0, 0), "killed at {folder}");
        history.whole();
    }
}

#[test]
fn a_stop_leaves_nothing_behind() {
    let mut history = History::new(2);
    history.forget(|at| at == 0);
    let before = objects(&history.bench.memory);
    let monitor = Quiet::default();
    monitor.request_stop();
    let stopped = prune(&history.bench.repository, &history.bench.cache, &prune_options(), &monitor);
    assert!(matches!(stopped, Err(Error::Interrupted)), "{stopped:?}");
    assert_eq!(objects(&history.bench.memory), before);
}
