//! New secrets for a repository that is there: a thief with the old ones, and prunes that seal everything anew, part by
//! part.

use crate::common::{Bench, bench, bench_in, options, quick_folder, restore_options, settle, small};
use crate::history::{History, lesser, objects, prune_options};
use crate::meanwhile::Meanwhile;
use drumlin_engine::backup;
use drumlin_engine::check::{self, Part, check};
use drumlin_engine::monitor::{Monitor, Quiet};
use drumlin_engine::prune::{self, Options, Unused, prune};
use drumlin_engine::repair::{self, repair};
use drumlin_engine::restore;
use drumlin_engine::stats::{RepositoryStats, of_repository};
use drumlin_format::key::{Role, Secrets};
use drumlin_format::pack::{self, FOOTER_BYTES, Footer, PackKind, Table, WRAP_INFO};
use drumlin_format::snapshot::Snapshot;
use drumlin_format::{Header, IndexId, ObjectType, PackId, SessionId, SnapshotId, index, snapshot};
use drumlin_repo::collection::{Board, Desk};
use drumlin_repo::pack::Reader;
use drumlin_repo::{Cache, Error as RepoError, Index, NewLock, RekeyOptions, Repository, Unlock, names};
use drumlin_seal::Secret;
use drumlin_store::{Call, Fault, FaultStore, Kind, MemoryStore, Put, RecordStore, Store, When};
use drumlin_testkit::compare;
use std::collections::HashSet;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

pub fn rekey(history: &mut History) {
    let done = history.bench.repository.rekey(RekeyOptions { now: 9, remove_old: false }).unwrap();
    history.bench.repository = done.repository;
}

pub fn all() -> Options {
    Options { max_rekey: Unused::Unlimited, ..prune_options() }
}

pub fn prune_by(repository: &Repository, options: &Options) -> prune::Report {
    let scratch = tempfile::tempdir().unwrap();
    let cache = Arc::new(Cache::open(repository, None, scratch.path()).unwrap());
    let monitor = Quiet::default();
    let report = prune(repository, &cache, options, &monitor).unwrap();
    assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
    report
}

pub fn stats(bench: &Bench) -> RepositoryStats {
    let repository = &bench.repository;
    let cache = Arc::new(Cache::open(repository, None, bench.folder.path()).unwrap());
    let index = Arc::new(Index::open(repository, cache.clone()).unwrap());
    let reader = Arc::new(Reader::new(repository.clone(), index, cache, 1 << 20));
    let snapshots: Vec<Snapshot> = repository.snapshots().unwrap().0.into_iter().map(|i| i.snapshot).collect();
    of_repository(&reader, &snapshots, 2, &Quiet::default()).unwrap()
}

/// What somebody with some secrets, taken out of a key before it was removed, can open of a repository, one object
/// after the other: packs, index objects, snapshots. `by` is one who opens everything, and shows what there is to try.
fn opened(memory: &MemoryStore, by: &Repository, thief: &Secrets) -> [Vec<String>; 3] {
    let (mut packs, mut indexes, mut snapshots) = (Vec::new(), Vec::new(), Vec::new());
    for name in objects(memory).into_keys() {
        let bytes = memory.get(&name).unwrap();
        let id = names::last(&name);
        match name.split('/').next().unwrap() {
            folder @ ("data" | "tree") => {
                let kind = if folder == "data" { PackKind::Data } else { PackKind::Tree };
                let header = Header::decode(&bytes, kind.object()).unwrap();
                assert_eq!(PackId(header.id), PackId::parse(id).unwrap());
                let footer = Footer::decode(&bytes[bytes.len() - FOOTER_BYTES..], &header, bytes.len() as u64).unwrap();
                let sealed = bytes[footer.table_offset as usize..][..footer.table_len as usize].to_vec();
                let (table, _) = Table::open(&header, by.secrets(), sealed.clone()).unwrap();
                let suite = by.config().suite;
                let private = if kind == PackKind::Data { &thief.data } else { &thief.meta };
                let key = |slot: &pack::Slot| {
                    let context = pack::header(kind, suite, header.generation, slot.origin).encode();
                    private.as_ref().is_some_and(|key| key.unwrap_key(&slot.wrapped, WRAP_INFO, &context).is_ok())
                };
                // Neither by its table nor, if somebody showed it to him, by any key in it.
                if Table::open(&header, thief, sealed).is_ok() || table.slots.iter().any(key) {
                    packs.push(name);
                }
            }
            "index" if index::open(IndexId::parse(id).unwrap(), thief, &bytes).is_ok() => indexes.push(name),
            "snapshots" if snapshot::open(SnapshotId::parse(id).unwrap(), thief, &bytes).is_ok() => {
                snapshots.push(name)
            }
            _ => {}
        }
    }
    [packs, indexes, snapshots]
}

#[test]
fn a_thief_reads_less_and_less_and_nothing_in_the_end() {
    let mut history = History::new(3);
    // The reader's key is copied, secrets and all, and then removed.
    let reader = lesser(&history.bench, Role::Reader);
    let stolen = reader.secrets().clone();
    history.bench.repository.remove_key(stolen.key, 5).unwrap();
    let memory = history.bench.memory.clone();
    let old = objects(&memory);
    let count = |folder: &str| old.keys().filter(|name| name.starts_with(folder)).count();
    let [packs, indexes, snapshots] = opened(&memory, &history.bench.repository, &stolen);
    assert_eq!(packs.len(), count("data/") + count("tree/"), "so far all of it");
    assert_eq!((indexes.len(), snapshots.len()), (count("index/"), 3));

    rekey(&mut history);
    history.step(3);
    let is_old = |name: &String| old.contains_key(name);
    for opened in opened(&memory, &history.bench.repository, &stolen) {
        assert!(!opened.is_empty() && opened.iter().all(is_old), "what came after is closed at once");
    }
    history.whole();

    // Each prune does a part, and he reads less after each.
    let mut before = u64::MAX;
    let part = Options { max_rekey: Unused::Bytes(1 << 20), ..prune_options() };
    for turn in 0.. {
        let [packs, ..] = opened(&memory, &history.bench.repository, &stolen);
        let left: u64 = packs.iter().map(|name| objects(&memory)[name]).sum();
        assert_eq!(stats(&history.bench).generations[0].pack_bytes, left, "stats tells it");
        if left == 0 {
            assert!(turn > 2, "{turn} turns");
            break;
        }
        assert!(left < before, "{left} bytes after {before}");
        before = left;
        let planned =
            prune::plan(&history.bench.repository, &history.bench.cache, &part, &Quiet::default()).unwrap().rekeyed;
        let report = prune_by(&history.bench.repository, &part);
        assert!(report.survey.unwrap().rekeyed.packs > 0 && report.survey.unwrap().rekeyed == planned);
        // One pack at the least, and no more than was allowed otherwise.
        assert!(report.written < (4 << 20), "{report:?}");
        history.whole();
    }
    let left = opened(&memory, &history.bench.repository, &stolen);
    assert_eq!(left, [const { Vec::<String>::new() }; 3]);
    assert!(stats(&history.bench).generations[0].is_over() && !stats(&history.bench).generations[1].is_over());
    // Nothing is left to do, and the next backup finds everything.
    assert!(prune_by(&history.bench.repository, &part).gone.packs == 0);
    let report = history.bench.backup(&history.source);
    assert_eq!((report.counts.chunks_new, report.counts.changed), (0, 0));
    history.whole();
    let found = check_all(&history.bench.repository);
    assert!(found.findings.is_empty(), "{:?}", found.findings);
}

fn check_all(repository: &Repository) -> check::Report {
    let scratch = tempfile::tempdir().unwrap();
    let cache = Arc::new(Cache::open(repository, None, scratch.path()).unwrap());
    let options = check::Options { read: Some(Part::All), workers: 2 };
    check(repository, &cache, options, &Quiet::default()).unwrap()
}

#[test]
fn by_itself_a_prune_does_what_is_small_in_one_run() {
    let mut history = History::new(2);
    rekey(&mut history);
    let survey = prune_by(&history.bench.repository, &prune_options()).survey.unwrap();
    assert!(survey.rekeyed.packs > 0 && survey.older.packs == 0 && survey.resealed == 2, "{survey:?}");
    history.whole();
    assert!(stats(&history.bench).generations[0].is_over());
    // With '0' nothing is done for its own sake.
    rekey(&mut history);
    let nothing = Options { max_rekey: Unused::Bytes(0), ..prune_options() };
    let survey = prune_by(&history.bench.repository, &nothing).survey.unwrap();
    assert_eq!((survey.rekeyed.packs, survey.resealed), (0, 0));
    assert!(survey.older.packs > 0 && survey.older_closed.packs == 0);
}

/// The same contents are found whatever they are sealed with, and the tree becomes the new generation's by itself.
#[test]
fn a_backup_stores_no_contents_again_and_its_tree_once() {
    let mut history = History::new(1);
    rekey(&mut history);
    let trees = |history: &History| objects(&history.bench.memory).keys().filter(|n| n.starts_with("tree/")).count();
    let before = trees(&history);
    let report = history.bench.backup(&history.source);
    assert_eq!((report.counts.chunks_new, report.counts.bytes_read), (0, 0), "no file is read");
    assert_eq!(report.counts.unmodified, report.counts.entries);
    assert!(report.tree_bytes > 0 && trees(&history) > before, "the tree is stored anew");
    let again = history.bench.backup(&history.source);
    assert_eq!((again.counts.chunks_new, again.tree_bytes), (0, 0), "once");
    history.whole();
}

/// A client that may only write can't open what a prune has sealed: it has stored its tree anew by then, or does so
/// when it meets that.
#[test]
fn a_writer_goes_on_whatever_comes_first() {
    for prune_first in [false, true] {
        let mut history = History::new(1);
        let writer = lesser(&history.bench, Role::Writer);
        let file = history.bench.repository.key_file(writer.secrets().key, &Secret::new([7; 32])).to_string();
        let outside = tempfile::tempdir().unwrap();
        let memory = history.bench.memory.clone();
        let open = || Repository::open(Arc::new(memory.clone()), &Unlock::File(file.clone())).unwrap();
        let run = || {
            let writer = open();
            let cache = Arc::new(Cache::open(&writer, Some(outside.path()), outside.path()).unwrap());
            backup::backup(&writer, &cache, options(&[&history.source]), &Quiet::default()).unwrap()
        };
        // The same tree is in the owner's packs, which it can't open: so it stores its own.
        run();
        let own = run();
        assert_eq!((own.counts.bytes_read, own.counts.unmodified), (0, own.counts.entries));
        history.bench.repository =
            history.bench.repository.rekey(RekeyOptions { now: 9, remove_old: false }).unwrap().repository;
        let mut last = None;
        for turn in 0..3 {
            if prune_first {
                prune_by(&history.bench.repository, &all());
            }
            let report = run();
            assert_eq!(report.counts.bytes_new, 0, "turn {turn}");
            // What a prune has sealed under its feet it reads anew, once.
            let read_all = prune_first && turn == 0;
            assert_eq!(report.counts.bytes_read > 0, read_all, "turn {turn}, prune first: {prune_first}");
            if !prune_first {
                prune_by(&history.bench.repository, &all());
            }
            last = report.snapshot;
        }
        history.states.push((last.unwrap(), history.states[0].1.clone()));
        history.whole();
        assert!(stats(&history.bench).generations[0].is_over());
    }
}

#[test]
fn a_keeper_seals_trees_and_says_that_contents_need_an_owner() {
    let mut history = History::new(4);
    let keeper = lesser(&history.bench, Role::Keeper);
    let file = history.bench.repository.key_file(keeper.secrets().key, &Secret::new([7; 32])).to_string();
    rekey(&mut history);
    history.step(4);
    history.forget(|at| at % 2 == 0);
    let keeper = Repository::open(Arc::new(history.bench.memory.clone()), &Unlock::File(file)).unwrap();
    let strict = Options { max_unused: Unused::Bytes(0), ..all() };
    let survey = prune_by(&keeper, &strict).survey.unwrap();
    assert!(survey.rekeyed.packs > 0 && survey.resealed > 0, "{survey:?}");
    assert!(survey.older_closed.packs > 0 && survey.older == survey.older_closed, "{survey:?}");
    history.whole();
    // What it has moved of contents it couldn't open is in packs of their generation.
    let of = |bench: &Bench| stats(bench).generations[0];
    let old = of(&history.bench);
    assert!(old.packs > 0 && old.snapshots == 0, "{old:?}");
    let again = prune_by(&keeper, &strict);
    assert_eq!(of(&history.bench).packs, old.packs, "{again:?}");
    prune_by(&history.bench.repository, &all());
    assert!(of(&history.bench).is_over());
    history.whole();
    assert!(check_all(&history.bench.repository).findings.is_empty());
}

/// A forget that was interrupted, or not allowed to remove anything, leaves a snapshot that can't be sealed anew: that
/// is told of, and counted.
#[test]
fn a_half_forgotten_snapshot_that_older_secrets_open_is_told_of() {
    let mut history = History::new(2);
    let id = history.states[0].0.id;
    let (memory, key) = (history.bench.memory.clone(), Unlock::File(history.bench.key_file()));
    memory.put(&names::forgotten(id), &memory.get(&names::snapshot(id)).unwrap(), Put::Create).unwrap();
    rekey(&mut history);
    let repository = Repository::open(Arc::new(memory.clone()), &key).unwrap();
    for is_left in [true, false] {
        let monitor = Quiet::default();
        prune(&repository, &history.bench.cache, &all(), &monitor).unwrap();
        let told = monitor.problems().iter().any(|problem| problem.cause.contains("older secrets still open it"));
        assert_eq!((told, monitor.counters().get().unwritable), (is_left, u64::from(is_left)));
        memory.delete(&names::forgotten(id)).unwrap();
    }
    history.whole();
}

/// Restores by every role that reads, of what was sealed before, between and after.
#[test]
fn each_role_restores_each_generation() {
    let mut history = History::new(1);
    let reader = lesser(&history.bench, Role::Reader);
    let file = history.bench.repository.key_file(reader.secrets().key, &Secret::new([7; 32])).to_string();
    rekey(&mut history);
    history.step(1);
    rekey(&mut history);
    history.step(2);
    assert_eq!(history.bench.repository.generations().newest(), 2);
    for pruned in [false, true] {
        if pruned {
            prune_by(&history.bench.repository, &all());
        }
        history.whole();
        let reader = Repository::open(Arc::new(history.bench.memory.clone()), &Unlock::File(file.clone())).unwrap();
        let new = lesser(&history.bench, Role::Reader);
        for by in [reader, new] {
            let scratch = tempfile::tempdir().unwrap();
            let cache = Arc::new(Cache::open(&by, None, scratch.path()).unwrap());
            for (snapshot, copy) in &history.states {
                let target = scratch.path().join(snapshot.id.to_string());
                let mut options = restore_options(snapshot, &target);
                options.subfolder = Some(history.source.as_os_str().as_encoded_bytes().to_vec());
                let monitor = Quiet::default();
                restore::restore(&by, &cache, options, &monitor).unwrap();
                assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
                compare::assert_same(copy, &target, &compare::Options { roots: false, ..compare::Options::default() });
            }
        }
    }
}

fn state(memory: &MemoryStore) -> MemoryStore {
    let copy = MemoryStore::new();
    objects(memory).keys().for_each(|name| copy.put(name, &memory.get(name).unwrap(), Put::Create).unwrap());
    copy
}

/// A prune that seals anew, killed at any store call: all that was there is whole, and the next one ends it.
#[test]
fn killed_at_every_call_while_sealing_anew() {
    let mut history = History::new(2);
    rekey(&mut history);
    history.step(2);
    let start = history.bench.memory.clone();
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
        let done = prune(&repository, &cache, &all(), &Quiet::default());
        (done, faults.calls() - first)
    };
    let memory = state(&start);
    let (done, calls) = run(&memory, None);
    assert!(done.unwrap().survey.unwrap().rekeyed.packs > 0);
    history.whole_in(&memory);
    assert!(calls > 60, "{calls}");
    for from in 0..calls {
        let memory = state(&start);
        let (done, made) = run(&memory, Some(from));
        // Two runs differ by a call or two: names are random, and so is which thread comes first.
        assert!(done.is_err() || made <= from, "call {from} of {made} ({calls}) failed and nobody noticed");
        if from % 8 == 0 {
            history.whole_in(&memory);
        }
        let repository = open(Arc::new(memory.clone()));
        let evict = Desk::new(&repository).sessions().unwrap();
        prune_by(&repository, &Options { evict, ..all() });
        let older = repository.tags_in(names::INDEX, ObjectType::Index).unwrap();
        assert!(!older.contains_key(&0) && repository.older_snapshots().unwrap().is_empty(), "call {from}: {older:?}");
        if from % 8 == 0 {
            history.whole_in(&memory);
            let thief = Secrets { generations: Vec::new(), ..repository.secrets().clone() };
            let left = opened(&memory, &repository, &thief);
            assert_eq!(left, [const { Vec::<String>::new() }; 3], "call {from}");
        }
    }
}

/// Where secrets are lost, or were not given to a key, what is sealed with them is told of; it costs one look, however
/// much that is.
#[test]
fn of_lost_secrets_the_storage_is_asked_once() {
    let mut history = History::new(2);
    rekey(&mut history);
    for step in 0..5 {
        history.step(9 + step);
    }
    let memory = history.bench.memory.clone();
    memory.delete(&names::generation(1)).unwrap();
    memory.delete(&names::generation_copy(1)).unwrap();
    let store = RecordStore::new(memory);
    let log = store.log();
    let old = Repository::open(Arc::new(store), &Unlock::File(history.bench.key_file())).unwrap();
    let looks = || {
        let is_look = |call: &&Call| matches!(call, Call::List { prefix, .. } if prefix == names::GENERATIONS);
        log.calls().iter().filter(is_look).count()
    };
    let before = looks();
    let (snapshots, errors) = old.snapshots().unwrap();
    assert!(snapshots.len() == 2 && errors.len() == 5 && errors.iter().all(RepoError::is_unknown_generation));
    let cache = Arc::new(Cache::open(&old, None, history.bench.folder.path()).unwrap());
    let (target, monitor) = (history.bench.folder.path().join("target"), Quiet::default());
    restore::restore(&old, &cache, restore_options(&snapshots[0].snapshot, &target), &monitor).unwrap();
    assert!(monitor.problems().is_empty() && old.passed_over().len() > 1, "{:?}", old.passed_over());
    assert_eq!(looks() - before, 1);
}

/// The index is made from packs of several generations alone, those with a damaged header and footer among them.
#[test]
fn an_index_is_made_again_from_packs_of_several_generations() {
    let mut history = History::new(2);
    rekey(&mut history);
    history.step(2);
    let memory = &history.bench.memory;
    let all = objects(memory);
    all.keys().filter(|name| name.starts_with("index/")).for_each(|name| memory.delete(name).unwrap());
    for name in all.keys().filter(|name| name.starts_with("data/") || name.starts_with("tree/")) {
        let mut bytes = memory.get(name).unwrap();
        bytes[5..20].fill(0x55);
        let end = bytes.len();
        bytes[end - 30..].fill(0x55);
        memory.put(name, &bytes, Put::Replace).unwrap();
    }
    let repository = &history.bench.repository;
    let cache = Arc::new(Cache::open(repository, None, history.bench.folder.path()).unwrap());
    let report = repair(repository, &cache, &repair_options(), &Quiet::default()).unwrap();
    assert!(report.named > 3 && report.damaged.is_empty() && report.lost_chunks == 0, "{report:?}");
    history.whole();
}

#[test]
fn tags_that_no_generation_has_are_told_and_stop_whoever_removes() {
    let mut history = History::new(1);
    rekey(&mut history);
    history.step(1);
    let memory = history.bench.memory.clone();
    let repository = history.bench.repository.clone();
    let named = |folder: &str| objects(&memory).into_keys().find(|name| name.starts_with(folder)).unwrap();
    for (folder, kind) in
        [("index/", "index"), ("snapshots/", "snapshot"), ("data/", "data pack"), ("tree/", "tree pack")]
    {
        let name = named(folder);
        let whole = memory.get(&name).unwrap();
        let mut bent = whole.clone();
        bent[10..14].copy_from_slice(&0x0bad_cafe_u32.to_le_bytes());
        memory.put(&name, &bent, Put::Replace).unwrap();
        let report = check_all(&repository);
        let finding = report.findings.iter().find(|f| f.object == name);
        let finding = finding.unwrap_or_else(|| panic!("{name} is not told: {:?}", report.findings));
        assert_eq!(finding.kind.name(), kind);
        if folder == "index/" {
            assert!(finding.causes[0].contains("0badcafe"), "{:?}", finding.causes);
            let before = objects(&memory);
            let scratch = tempfile::tempdir().unwrap();
            let cache = Arc::new(Cache::open(&repository, None, scratch.path()).unwrap());
            let why = prune(&repository, &cache, &prune_options(), &Quiet::default()).unwrap_err();
            assert!(why.to_string().contains("0badcafe"), "{why}");
            let why = repair(&repository, &cache, &repair_options(), &Quiet::default()).unwrap_err();
            assert!(why.to_string().contains(&name), "{why}");
            assert_eq!(objects(&memory), before);
        }
        memory.put(&name, &whole, Put::Replace).unwrap();
    }
    assert!(check_all(&repository).findings.is_empty());
    // A generation that is gone is told, and nothing is removed because of that.
    let name = names::generation(1);
    let (whole, copy) = (memory.get(&name).unwrap(), names::generation_copy(1));
    // One of two is told, and a repair puts it again.
    memory.delete(&name).unwrap();
    let report = check_all(&repository);
    assert!(report.findings.iter().any(|f| f.object == name && f.kind.name() == "generation"), "{:?}", report.findings);
    let scratch = tempfile::tempdir().unwrap();
    let cache = Arc::new(Cache::open(&repository, None, scratch.path()).unwrap());
    let mended = repair(&repository, &cache, &repair_options(), &Quiet::default()).unwrap();
    assert_eq!((mended.copies, mended.is_sound()), (1, false));
    assert_eq!(memory.get(&name).unwrap(), whole);
    assert!(check_all(&repository).findings.is_empty());
    memory.delete(&name).unwrap();
    memory.delete(&copy).unwrap();
    let blind = Repository::open(Arc::new(memory.clone()), &Unlock::File(history.bench.key_file())).unwrap();
    let report = check_all(&blind);
    assert!(report.findings.iter().any(|f| f.object == name && f.kind.name() == "generation"), "{:?}", report.findings);
    let scratch = tempfile::tempdir().unwrap();
    let cache = Arc::new(Cache::open(&blind, None, scratch.path()).unwrap());
    let before = objects(&memory);
    assert!(repair(&blind, &cache, &repair_options(), &Quiet::default()).is_err());
    assert!(prune(&blind, &cache, &prune_options(), &Quiet::default()).is_err());
    assert_eq!(objects(&memory), before);
    // What is of the first generation comes back all the same.
    let (listed, errors) = blind.snapshots().unwrap();
    assert_eq!((listed.len(), errors.len()), (1, 1));
    memory.put(&name, &whole, Put::Create).unwrap();
    history.whole();
}

/// Somebody forgets a snapshot in the very moment in which it is sealed anew: it doesn't come back.
#[test]
fn what_is_forgotten_meanwhile_stays_forgotten() {
    let mut history = History::new(2);
    rekey(&mut history);
    let inside = history.bench.repository.clone();
    let (snapshot, _) = history.states.remove(0);
    let id = snapshot.id;
    let then = move || inside.forget(&[id]).unwrap();
    let inner = history.bench.memory.clone();
    let store = Meanwhile { inner, prefix: "snapshots/", then: std::sync::Mutex::new(Some(then)) };
    let by = Repository::open(Arc::new(store), &Unlock::File(history.bench.key_file())).unwrap();
    assert!(!by.reseal_snapshot(id, SessionId([9; 16])).unwrap());
    assert_eq!(by.snapshots().unwrap().0.len(), 1);
    assert_eq!(by.forgotten().unwrap().0.len(), 1);
    assert!(by.look_back(5, true).unwrap().is_empty());
    history.whole();
}

/// A forget that was killed leaves a copy beside the snapshot, which counts: that older secrets open it still is told.
#[test]
fn what_a_killed_forget_left_is_told_and_not_counted() {
    let mut history = History::new(2);
    rekey(&mut history);
    let (memory, id) = (&history.bench.memory, history.states[0].0.id);
    let bytes = memory.get(&names::snapshot(id)).unwrap();
    memory.put(&names::forgotten(id), &bytes, Put::Create).unwrap();
    let run = || {
        let monitor = Quiet::default();
        let report = prune(&history.bench.repository, &history.bench.cache, &prune_options(), &monitor).unwrap();
        (report.survey.unwrap().resealed, monitor.problems())
    };
    let (resealed, problems) = run();
    assert_eq!((run().0, run().1.len()), (0, 1), "it is told as long as it is so");
    let [problem] = &problems[..] else { panic!("{problems:?}") };
    assert_eq!((resealed, &problem.path), (1, &names::snapshot(id).into_bytes()));
    assert!(problem.cause.contains(&format!("'drumlin forget {id}'")), "{problem:?}");
    history.whole();
    memory.delete(&names::forgotten(id)).unwrap();
    let (resealed, problems) = run();
    assert!(resealed == 1 && problems.is_empty(), "{problems:?}");
}

/// Who seals it anew was evicted while he slept, and another prune has cleared it away since.
#[test]
fn what_is_pruned_meanwhile_does_not_come_back() {
    let mut history = History::new(2);
    rekey(&mut history);
    let (inside, cache) = (history.bench.repository.clone(), history.bench.cache.clone());
    let (snapshot, _) = history.states.remove(0);
    let id = snapshot.id;
    let then = move || {
        inside.forget(&[id]).unwrap();
        prune(&inside, &cache, &prune_options(), &Quiet::default()).unwrap();
        assert!(inside.forgotten().unwrap().0.is_empty());
    };
    let inner = history.bench.memory.clone();
    let store = Meanwhile { inner, prefix: "snapshots/", then: std::sync::Mutex::new(Some(then)) };
    let by = Repository::open(Arc::new(store), &Unlock::File(history.bench.key_file())).unwrap();
    assert!(!by.reseal_snapshot(id, SessionId([9; 16])).unwrap());
    assert_eq!(by.snapshots().unwrap().0.len(), 1);
    assert!(by.look_back(5, true).unwrap().is_empty());
    history.whole();
}

/// A second owner's key, to see that what one seals anew the other reads.
#[test]
fn two_owners_take_turns() {
    let mut history = History::new(1);
    let other = bench_owner(&history);
    rekey(&mut history);
    let open =
        |file: &str| Repository::open(Arc::new(history.bench.memory.clone()), &Unlock::File(file.to_owned())).unwrap();
    let second = open(&other).rekey(RekeyOptions { now: 10, remove_old: false }).unwrap();
    assert_eq!((second.number, second.given.len()), (2, 2));
    prune_by(&open(&history.bench.key_file()), &all());
    prune_by(&open(&other), &all());
    history.whole();
    let fresh = bench();
    assert_eq!(fresh.repository.generations().newest(), 0);
    let header = Header::decode(&history.bench.memory.get(names::CONFIG).unwrap(), ObjectType::Config).unwrap();
    assert_eq!(header.generation, 0, "the config is nobody's generation");
}

fn bench_owner(history: &History) -> String {
    let secret = Secret::new([8; 32]);
    let key = history.bench.repository.add_key(Role::Owner, &NewLock::File(secret.clone()), "other", 0).unwrap();
    history.bench.repository.key_file(key, &secret).to_string()
}

/// Leaves whose bodies are equal, since nothing in them has contents: a later one is read where it was, though the
/// first is on its way into a pack of the new generation.
#[test]
fn equal_bodies_of_an_older_generation_are_no_damage() {
    let mut bench = bench_in(quick_folder(), small());
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    for n in 0..20_000 {
        fs::File::create(source.join(n.to_string())).unwrap();
    }
    settle();
    bench.backup(&source);
    bench.repository = bench.repository.rekey(RekeyOptions { now: 9, remove_old: false }).unwrap().repository;
    let report = bench.backup(&source);
    assert!(report.parent.is_some());
    assert!(report.counts.unmodified >= 20_000, "{} unmodified", report.counts.unmodified);
}

pub fn repair_options() -> repair::Options {
    repair::Options {
        spoiled: Default::default(),
        host: "host".into(),
        damaged: HashSet::new(),
        wait: Duration::ZERO,
        evict: Vec::new(),
        evict_after: Duration::from_secs(3600),
        workers: 2,
    }
}
