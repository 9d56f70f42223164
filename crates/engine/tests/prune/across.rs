//! Who is at work while the repository is given new secrets: each ends well with the old ones, or says that there are
//! new ones, and accuses nobody.

use crate::common::{options, restore_options, settle};
use crate::history::{History, objects, prune_options};
use crate::meanwhile::Meanwhile;
use crate::rekey::{all, prune_by, rekey, repair_options, stats};
use drumlin_engine::monitor::Quiet;
use drumlin_engine::prune::{Options, prune};
use drumlin_engine::repair::repair;
use drumlin_engine::{Error, backup, restore};
use drumlin_repo::collection::{Board, Desk};
use drumlin_repo::history::{Act, Memory};
use drumlin_repo::{Cache, Error as RepoError, Index, RekeyOptions, Repository, Unlock};
use drumlin_store::{Fault, FaultStore, Kind, Op, When};
use std::fs;
use std::sync::Arc;

/// A backup that is at work while the repository is given new secrets ends with the old ones, and is read like any
/// other.
#[test]
fn a_backup_across_a_rekey_counts() {
    for prefix in ["index/", "snapshots/", "decisions/"] {
        let mut history = History::new(1);
        fs::write(history.source.join("new"), "new contents").unwrap();
        crate::common::settle();
        let inside = history.bench.repository.clone();
        let then = move || {
            let done = inside.rekey(RekeyOptions { now: 9, remove_old: false }).unwrap();
            let desk = Desk::new(&done.repository);
            let at_work = desk.sessions().unwrap();
            assert!(at_work.len() == 1 && !desk.is_over(at_work[0]).unwrap(), "it is told that somebody is at work");
        };
        let inner = history.bench.memory.clone();
        let store = Meanwhile { inner, prefix, then: std::sync::Mutex::new(Some(then)) };
        let old = Repository::open(Arc::new(store), &Unlock::File(history.bench.key_file())).unwrap();
        let cache = Arc::new(Cache::open(&old, None, history.bench.folder.path()).unwrap());
        let report = backup::backup(&old, &cache, options(&[&history.source]), &Quiet::default()).unwrap();
        let copy = history.bench.folder.path().join("with new");
        assert!(std::process::Command::new("cp").arg("-a").args([&history.source, &copy]).status().unwrap().success());
        history.states.push((report.snapshot.unwrap(), copy));
        history.whole();
        let key = Unlock::File(history.bench.key_file());
        history.bench.repository = Repository::open(Arc::new(history.bench.memory.clone()), &key).unwrap();
        assert_eq!(history.bench.repository.generations().newest(), 1);
        prune_by(&history.bench.repository, &all());
        history.whole();
        assert!(stats(&history.bench).generations[0].is_over());
    }
}

/// Whoever removes what can't be read must not take for damaged what was sealed with secrets that came meanwhile.
#[test]
fn a_prune_and_a_repair_across_a_rekey_remove_nothing() {
    for repairs in [false, true] {
        let mut history = History::new(2);
        history.forget(|at| at == 0);
        let inside = history.bench.repository.clone();
        let (source, folder) = (history.source.clone(), tempfile::tempdir().unwrap());
        let (sender, receiver) = std::sync::mpsc::channel();
        let then = move || {
            let done = inside.rekey(RekeyOptions { now: 9, remove_old: false }).unwrap().repository;
            let cache = Arc::new(Cache::open(&done, None, folder.path()).unwrap());
            sender.send(backup::backup(&done, &cache, options(&[&source]), &Quiet::default()).unwrap()).unwrap();
        };
        let inner = history.bench.memory.clone();
        let store = Meanwhile { inner, prefix: "sessions/", then: std::sync::Mutex::new(Some(then)) };
        let old = Repository::open(Arc::new(store), &Unlock::File(history.bench.key_file())).unwrap();
        let cache = Arc::new(Cache::open(&old, None, history.bench.folder.path()).unwrap());
        let why = match repairs {
            false => prune(&old, &cache, &prune_options(), &Quiet::default()).unwrap_err(),
            true => repair(&old, &cache, &repair_options(), &Quiet::default()).unwrap_err(),
        };
        assert!(is_rekeyed(&why), "{why:?}");
        let copy = history.states[0].1.clone();
        history.states.push((receiver.recv().unwrap().snapshot.unwrap(), copy));
        history.whole();
        let key = Unlock::File(history.bench.key_file());
        history.bench.repository = Repository::open(Arc::new(history.bench.memory.clone()), &key).unwrap();
        assert!(history.bench.repository.losses().unwrap().is_empty());
        prune_by(&history.bench.repository, &all());
        history.whole();
    }
}

fn is_rekeyed(why: &Error) -> bool {
    let (Error::Repo(e) | Error::Unsure { source: e, .. }) = why else { return false };
    matches!(e, RepoError::Rekeyed { .. })
}

/// What was made with secrets that came since is neither damaged nor lost nor removed: who began before is told that
/// there are others, and a backup ends with its own.
#[test]
fn who_began_before_a_rekey_accuses_nobody() {
    let mut history = History::new(3);
    let key = Unlock::File(history.bench.key_file());
    let scratch = tempfile::tempdir().unwrap();
    let remembering = |name: &str| {
        let late = Repository::open(Arc::new(history.bench.memory.clone()), &key).unwrap();
        let memory = Arc::new(Memory::open(&late, Some(&scratch.path().join(name))));
        let late = late.with_memory(memory);
        assert!(late.look_back(5, false).unwrap().is_empty());
        late
    };
    let (late, removes, saves) = (remembering("late"), remembering("removes"), remembering("saves"));
    let (reads, standing) = (remembering("reads"), history.states[2].0.clone());
    let (source, first) = (history.source.clone(), history.states[0].0.id);
    rekey(&mut history);
    let new = history.bench.repository.clone();
    let second = history.bench.backup(&source).snapshot.unwrap().id;
    // Of what it removes the history tells, in words that the others can't read.
    new.record(Act::now("forget"), &[first, second], &[]).unwrap();
    new.forget(&[first, second]).unwrap();
    // What is decided on an account that may remove nothing stays.
    fs::write(source.join("added"), "by somebody who may only add").unwrap();
    settle();
    let adds = FaultStore::new(history.bench.memory.clone());
    adds.faults().add(When::op(Op::Delete), Fault::Fail(Kind::Refused));
    let adds = Repository::open(Arc::new(adds), &key).unwrap();
    let cache = |of: &Repository, name: &str| {
        Arc::new(Cache::open(of, Some(&scratch.path().join(name)), scratch.path()).unwrap())
    };
    backup::backup(&adds, &cache(&adds, "adds"), options(&[&source]), &Quiet::default()).unwrap();
    assert!(objects(&history.bench.memory).keys().any(|name| name.starts_with("decisions/")));
    let desk = Desk::new(&new);
    let left = desk.sessions().unwrap();
    assert!(left.len() == 1 && desk.is_over(left[0]).unwrap(), "it has ended, though it is there");

    let refused = |what: &str, result: drumlin_repo::Result<()>| {
        assert!(matches!(result, Err(RepoError::Rekeyed { .. })), "{what}: {result:?}");
    };
    refused("snapshots", late.snapshots().map(drop));
    refused("standing snapshots", late.standing_snapshots().map(drop));
    refused("look back", late.look_back(6, false).map(drop));
    refused("forgotten", late.forgotten().map(drop));
    refused("index", Index::open(&late, cache(&late, "index")).map(drop));
    let monitor = Quiet::default();
    let ended = prune(&removes, &cache(&removes, "prune"), &prune_options(), &monitor).map(drop);
    assert!(matches!(&ended, Err(e) if is_rekeyed(e)), "{ended:?}");
    let ended = repair(&removes, &cache(&removes, "repair"), &repair_options(), &monitor).map(drop);
    assert!(matches!(&ended, Err(e) if is_rekeyed(e)), "{ended:?}");
    let report = backup::backup(&saves, &cache(&saves, "backup"), options(&[&source]), &monitor).unwrap();
    assert!(report.snapshot.is_some() && saves.passed_over().is_empty(), "{:?}", saves.passed_over());
    assert!(monitor.problems().is_empty() && !saves.is_behind(), "{:?}", monitor.problems());

    // What was sealed anew is not where a reader looks for it: he is told why, and of no index object that it were
    // damaged.
    prune_by(&new, &Options { evict: Desk::new(&new).sessions().unwrap(), ..all() });
    let target = scratch.path().join("target");
    let ended = restore::restore(&reads, &cache(&reads, "restore"), restore_options(&standing, &target), &monitor);
    assert!(matches!(ended, Err(Error::Repo(RepoError::MissingChunk(_)))), "{ended:?}");
    assert!(reads.is_behind() && reads.passed_over().is_empty(), "{:?}", reads.passed_over());
}
