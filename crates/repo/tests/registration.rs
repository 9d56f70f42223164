//! What a writer asks of the storage as it begins, and in which order.

use drumlin_format::plan::Plan;
use drumlin_format::session::Session;
use drumlin_format::{PlanId, SessionId};
use drumlin_repo::collection::{Board, Desk, Registration};
use drumlin_repo::{Cache, CreateOptions, Index, IndexMode, NewLock, Repository, names};
use drumlin_seal::Secret;
use drumlin_store::{Call, CallLog, MemoryStore, RecordStore, Store};
use std::collections::HashSet;
use std::sync::Arc;

/// A new repository, a cache for it, and what is asked of its storage.
fn scene() -> (Repository, tempfile::TempDir, Arc<Cache>, CallLog) {
    let store = RecordStore::new(MemoryStore::new());
    let log = store.log();
    let lock = NewLock::File(Secret::new([1; 32]));
    let repository = Repository::create(Arc::new(store), CreateOptions::default(), lock, "test", 0).unwrap().0;
    let folder = tempfile::tempdir().unwrap();
    let cache = Arc::new(Cache::open(&repository, Some(folder.path()), folder.path()).unwrap());
    (repository, folder, cache, log)
}

/// Folders that were listed, sessions that were put and plans that were read, in order.
fn steps(log: &CallLog) -> Vec<String> {
    let step = |call: Call| match call {
        Call::List { prefix, .. } => Some(format!("list {prefix}")),
        Call::Put { name, .. } => Some(format!("put {}", name.split('/').next().unwrap_or_default())),
        Call::Get { name, .. } if name.starts_with(names::PLANS) => Some("read a plan".to_owned()),
        Call::Len { name, .. } if name == "hint" => Some(name),
        _ => None,
    };
    log.take().into_iter().filter_map(step).collect()
}

fn begin(repository: &Repository) -> Registration {
    let hint = || assert_eq!(repository.store().len("hint").unwrap(), None);
    Registration::begin_with(repository, Session::new("host", "backup", 0), &hint).unwrap()
}

fn open(registration: &Registration, cache: &Arc<Cache>) {
    Index::open_for_without(registration, cache.clone(), IndexMode::Exact, &HashSet::new()).unwrap();
}

#[test]
fn the_index_is_listed_along_with_the_plans_and_once() {
    let (repository, _folder, cache, log) = scene();
    log.take();
    let registration = begin(&repository);
    open(&registration, &cache);
    let begun = ["put sessions", "hint", "list plans", "list index", "list decisions"];
    assert_eq!(steps(&log), begun, "hints come once the session stands, and the index behind the plans");
    // What was listed then says nothing of later.
    open(&registration, &cache);
    assert_eq!(steps(&log), ["list index", "list decisions"]);
}

#[test]
fn where_a_plan_stands_the_index_is_listed_once_it_was_read() {
    let (repository, _folder, cache, log) = scene();
    let (packs, indexes, snapshots, unnamed) = Default::default();
    let plan = Plan { id: PlanId([1; 16]), session: SessionId([2; 16]), packs, indexes, snapshots, unnamed };
    Desk::new(&repository).put_plan(&plan).unwrap();
    log.take();
    let registration = begin(&repository);
    assert_eq!(registration.known().ids(), [plan.id]);
    let begun = ["put sessions", "hint", "list plans", "list index", "list decisions", "read a plan", "list keys"];
    assert_eq!(steps(&log), begun);
    open(&registration, &cache);
    assert_eq!(steps(&log), ["list index", "list decisions"]);
}
