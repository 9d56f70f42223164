//! Backups, prunes and forgetters at work while it is checked, or counted: none of that is damage.

use crate::bench::{assert_sound, backups_apart, check_plainly, finding, folder, objects, open, store_of, tiny_bench};
use crate::common::settle;
use drumlin_engine::check::{Options, Part, check};
use drumlin_engine::monitor::Quiet;
use drumlin_engine::stats::{of_repository, of_snapshots};
use drumlin_format::decision::Verdict;
use drumlin_format::index::{self, Entry};
use drumlin_format::snapshot::Snapshot;
use drumlin_format::{Header, IndexId, ObjectType};
use drumlin_repo::collection::{Board, Desk, Flag};
use drumlin_repo::pack::Reader;
use drumlin_repo::{Cache, Index, Repository, names};
use drumlin_store::{Listed, MemoryStore, Put, Result, Store, Upload};
use drumlin_testkit::Rng;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

type Hook = Box<dyn FnMut(&MemoryStore, &str, &str) + Send>;

/// A store in which somebody else does something before some calls.
struct Shared {
    memory: MemoryStore,
    before: Mutex<Hook>,
}

impl Shared {
    fn call(&self, what: &str, name: &str) -> &MemoryStore {
        (self.before.lock().unwrap())(&self.memory, what, name);
        &self.memory
    }
}

impl Store for Shared {
    fn location(&self) -> String {
        self.memory.location()
    }
    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed)) -> Result<()> {
        self.call("list", prefix).list(prefix, each)
    }
    fn len(&self, name: &str) -> Result<Option<u64>> {
        self.call("len", name).len(name)
    }
    fn get(&self, name: &str) -> Result<Vec<u8>> {
        self.call("get", name).get(name)
    }
    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.call("read", name).read_at(name, offset, buf)
    }
    fn put(&self, name: &str, _: &[u8], _: Put) -> Result<()> {
        panic!("it writes {name}")
    }
    fn upload(&self, name: &str, _: u64) -> Result<Box<dyn Upload>> {
        panic!("it writes {name}")
    }
    fn sync(&self) -> Result<()> {
        Ok(())
    }
    fn delete(&self, name: &str) -> Result<()> {
        panic!("it deletes {name}")
    }
}

/// Two generations of the same tree: the objects of the one before a prune, and those of the one after it, in which
/// other packs hold everything.
struct Pruned {
    before: crate::bench::Objects,
    after: crate::bench::Objects,
    recovery: String,
}

fn pruned() -> Pruned {
    let bench = tiny_bench();
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    (0..40).for_each(|n| fs::write(source.join(n.to_string()), Rng::new(n).bytes(30_000)).unwrap());
    settle();
    let recovery = bench.repository.recovery_file().to_string();
    let empty = objects(&bench.memory);
    // The same chunks in packs of their own, as a prune would write them.
    let [(before, first), (mut after, _)] = backups_apart(&empty, &recovery, &source, bench.folder.path());
    after.retain(|name, _| folder(name) != "snapshots");
    let snapshot = names::snapshot(first.id);
    after.insert(snapshot.clone(), before[&snapshot].clone());
    Pruned { before, after, recovery }
}

/// What a prune does in three steps: new packs and index objects come, then the old index objects go, then the old
/// packs.
fn prune(store: &MemoryStore, pruned: &Pruned, step: usize) {
    for (name, bytes) in &pruned.after {
        if step == 0 && matches!(folder(name), "data" | "tree" | "index") {
            let _ = store.put(name, bytes, Put::Create);
        }
    }
    for name in pruned.before.keys().filter(|name| !pruned.after.contains_key(*name)) {
        if step == 1 && folder(name) == "index" || step == 2 && matches!(folder(name), "data" | "tree") {
            store.delete(name).unwrap();
        }
    }
}

/// Check while `other` does something before each call.
fn beside(
    pruned: &Pruned,
    read: Option<Part>,
    other: impl FnMut(&MemoryStore, &str, &str) + Send + 'static,
) -> Repository {
    beside_any(pruned, other, |repository, cache| {
        let report = check(repository, cache, Options { read, workers: 2 }, &Quiet::default()).unwrap();
        assert_sound(&report);
    })
}

/// Have something done while `other` does something before each call.
fn beside_any(
    pruned: &Pruned,
    other: impl FnMut(&MemoryStore, &str, &str) + Send + 'static,
    act: impl FnOnce(&Repository, &Arc<Cache>),
) -> Repository {
    let shared = Shared { memory: store_of(&pruned.before), before: Mutex::new(Box::new(|_, _, _| {})) };
    let shared = Arc::new(shared);
    let repository = open(shared.clone(), &pruned.recovery);
    *shared.before.lock().unwrap() = Box::new(other);
    let scratch = tempfile::tempdir().unwrap();
    let cache = Arc::new(Cache::open(&repository, None, scratch.path()).unwrap());
    act(&repository, &cache);
    *shared.before.lock().unwrap() = Box::new(|_, _, _| {});
    repository
}

/// Have something done beside a prune whose steps come at any of its calls.
fn beside_prunes(pruned: &Arc<Pruned>, act: impl Fn(&Repository, &Arc<Cache>)) {
    let calls = Arc::new(AtomicU64::new(0));
    let counter = calls.clone();
    beside_any(
        pruned,
        move |_, _, _| {
            counter.fetch_add(1, Ordering::Relaxed);
        },
        &act,
    );
    let calls = calls.load(Ordering::Relaxed);
    assert!(calls > 8, "{calls}");
    for first in 0..calls + 2 {
        for (second, third) in [(0, 0), (1, 0), (0, 1), (2, 3), (calls / 3, 1), (1, calls / 3)] {
            let at = [first, first + second, first + second + third];
            let (mut call, other) = (0, pruned.clone());
            let prune_then = move |store: &MemoryStore, _: &str, _: &str| {
                (0..3).filter(|step| at[*step] == call).for_each(|step| prune(store, &other, step));
                call += 1;
            };
            beside_any(pruned, prune_then, &act);
        }
    }
}

#[test]
fn a_prune_at_any_moment_is_no_damage() {
    let pruned = Arc::new(pruned());
    for read in [None, Some(Part::All)] {
        beside_prunes(&pruned, |repository, cache| {
            let report = check(repository, cache, Options { read, workers: 2 }, &Quiet::default()).unwrap();
            assert_sound(&report);
        });
    }
    // It is sound afterwards, too, and not because nobody looks.
    let store = store_of(&pruned.before);
    (0..3).for_each(|step| prune(&store, &pruned, step));
    let repository = open(Arc::new(store.clone()), &pruned.recovery);
    assert_sound(&check_plainly(&repository, Some(Part::All)));
    prune(&store, &pruned, 0);
    let pack = pruned.after.keys().find(|name| folder(name) == "data").unwrap();
    store.delete(pack).unwrap();
    assert_eq!(check_plainly(&repository, None).findings.len(), 1);
}

/// Each chunk counts once, wherever it has been.
#[test]
fn a_prune_at_any_moment_is_nothing_to_who_counts() {
    let pruned = Arc::new(pruned());
    let count = |repository: &Repository, cache: &Arc<Cache>| {
        let index = Arc::new(Index::open(repository, cache.clone()).unwrap());
        let reader = Arc::new(Reader::new(repository.clone(), index, cache.clone(), 1 << 20));
        let (snapshots, _) = repository.snapshots().unwrap();
        let snapshots: Vec<Snapshot> = snapshots.into_iter().map(|info| info.snapshot).collect();
        let monitor = Quiet::default();
        let all = of_repository(&reader, &snapshots, 2, &monitor).unwrap();
        let of = of_snapshots(&reader, &snapshots, 2, &monitor).unwrap();
        assert_eq!((of.missing, monitor.problems().len()), (0, 0));
        [all.data, all.tree, of.data, of.tree].map(|part| (part.chunks, part.bytes))
    };
    let mut quiet = None;
    beside_any(&pruned, |_, _, _| {}, |repository, cache| quiet = Some(count(repository, cache)));
    let [data, tree, ..] = quiet.unwrap();
    assert_eq!((data.1, quiet), (40 * 30_000, Some([data, tree, data, tree])));
    beside_prunes(&pruned, |repository, cache| assert_eq!(count(repository, cache), quiet.unwrap()));
}

/// Nothing is left of it, but what the check has read already.
#[test]
fn a_snapshot_that_is_forgotten_and_pruned_at_any_moment_is_no_damage() {
    let pruned = Arc::new(pruned());
    for first in 0..40 {
        for more in [0, 1, 4] {
            let (mut call, other) = (0, pruned.clone());
            beside(&pruned, None, move |store, _, _| {
                let steps = [&["snapshots"][..], &["index"], &["data", "tree"]];
                for (step, folders) in steps.iter().enumerate().filter(|(step, _)| first + more * step == call) {
                    let gone = other.before.keys().filter(|name| folders.contains(&folder(name)));
                    gone.for_each(|name| store.delete(name).unwrap_or_else(|e| panic!("{step}: {e}")));
                }
                call += 1;
            });
        }
    }
}

#[test]
fn a_pack_that_goes_without_its_index_object_is_damage_at_any_moment() {
    let pruned = pruned();
    let pack = pruned.before.keys().find(|name| folder(name) == "data").unwrap().clone();
    for moment in [("list", "snapshots"), ("list", "index"), ("list", "data"), ("read", &pack[..])] {
        let shared = Arc::new(Shared { memory: store_of(&pruned.before), before: Mutex::new(Box::new(|_, _, _| {})) });
        let repository = open(shared.clone(), &pruned.recovery);
        let (what, at, victim) = (moment.0.to_owned(), moment.1.to_owned(), pack.clone());
        *shared.before.lock().unwrap() = Box::new(move |store: &MemoryStore, call: &str, name: &str| {
            if (call, name) == (&what[..], &at[..]) {
                store.delete(&victim).unwrap();
            }
        });
        let report = check_plainly(&repository, Some(Part::All));
        let found = finding(&report, &pack).unwrap_or_else(|| panic!("{moment:?}: {:#?}", report.findings));
        assert!(found.causes[0].contains("isn't there") && !found.touched.is_empty(), "{found:#?}");
    }
}

#[test]
fn a_snapshot_that_is_forgotten_meanwhile_is_no_damage() {
    let pruned = pruned();
    beside(&pruned, None, |store, what, name| {
        if what == "get" && folder(name) == "snapshots" {
            store.delete(name).unwrap();
        }
    });
}

#[test]
fn whoever_prunes_all_the_time_is_told() {
    let pruned = pruned();
    let shared = Arc::new(Shared { memory: store_of(&pruned.before), before: Mutex::new(Box::new(|_, _, _| {})) });
    let repository = open(shared.clone(), &pruned.recovery);
    let whole = pruned.before.clone();
    *shared.before.lock().unwrap() = Box::new(move |store: &MemoryStore, what: &str, name: &str| {
        for (name, bytes) in whole.iter().filter(|(name, _)| what == "list" && folder(name) == "index") {
            let _ = store.put(name, bytes, Put::Create);
        }
        if what == "get" && folder(name) == "index" {
            store.delete(name).unwrap();
        }
    });
    let scratch = tempfile::tempdir().unwrap();
    let cache = Arc::new(Cache::open(&repository, None, scratch.path()).unwrap());
    let ended = check(&repository, &cache, Options { read: None, workers: 2 }, &Quiet::default()).unwrap_err();
    assert!(ended.to_string().contains("prune"), "{ended}");
}

/// A writer that wakes up after its eviction names packs that were removed as nobody's: `docs/collection.md`.
#[test]
fn what_an_evicted_writer_names_need_not_be_there() {
    let pruned = pruned();
    let store = store_of(&pruned.before);
    let repository = open(Arc::new(store.clone()), &pruned.recovery);
    let evicted = drumlin_format::SessionId([5; 16]);
    let name = pruned.before.keys().find(|name| folder(name) == "index").unwrap();
    let id = IndexId::parse(names::last(name)).unwrap();
    let secrets = repository.secrets();
    let mut entries: Vec<Entry> = index::open(id, &secrets.index, &pruned.before[name]).unwrap().0;
    // It holds the same chunks as the others do, under another name.
    entries.truncate(1);
    entries[0].pack = drumlin_format::PackId([6; 16]);
    let id = IndexId::of(evicted, [1; 8]);
    let header = Header::new(ObjectType::Index, repository.config().suite, id.0);
    let bytes = index::seal(&header, &entries, secrets.sealing(0, [3; 16]).unwrap());
    store.put(&names::index(id), &bytes, Put::Create).unwrap();
    let pack = names::pack(entries[0].kind, entries[0].pack);
    let report = check_plainly(&repository, Some(Part::All));
    assert!(finding(&report, &pack).is_some(), "while its writer may count it is damage");
    Desk::new(&repository).replace(Flag::Decision(evicted), &Verdict::Evicted { plan: 0 }).unwrap();
    assert_sound(&check_plainly(&repository, None));
    assert_sound(&check_plainly(&repository, Some(Part::All)));
    // Evicted and awake again between the look at the decisions and that at the index.
    let mut woken = vec![names::index(id)];
    store.list(names::DECISIONS, &mut |listed| woken.push(listed.name)).unwrap();
    let mut woken: Vec<_> = woken.into_iter().map(|name| (store.get(&name).unwrap(), name)).collect();
    beside(&pruned, None, move |memory, what, name| {
        if (what, name) == ("list", names::INDEX) {
            woken.drain(..).for_each(|(bytes, name)| memory.put(&name, &bytes, Put::Create).unwrap());
        }
    });
}
