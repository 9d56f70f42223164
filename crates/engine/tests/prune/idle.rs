//! A prune that has nothing to do, and how it knows.

use crate::common::options;
use crate::history::{History, objects, prune_all, prune_options};
use crate::liars::entries;
use crate::meanwhile::{Meanwhile, Odd};
use drumlin_engine::backup;
use drumlin_engine::monitor::{Monitor, ProblemKind, Quiet};
use drumlin_engine::prune::{Options, Unused, prune};
use drumlin_format::pack::PackKind;
use drumlin_repo::{Cache, Repository, Unlock, names};
use drumlin_store::{Call, Put, RecordStore, Store};
use std::sync::{Arc, Mutex};

/// Prune. Whether that did nothing but list.
fn only_lists(history: &History, options: &Options) -> bool {
    let store = RecordStore::new(history.bench.memory.clone());
    let log = store.log();
    let repository = Repository::open(Arc::new(store), &Unlock::File(history.bench.key_file())).unwrap();
    log.take();
    let state = objects(&history.bench.memory);
    let report = prune(&repository, &history.bench.cache, options, &Quiet::default()).unwrap();
    let lists = log.calls().iter().all(|call| matches!(call, Call::List { .. }));
    assert_eq!(lists, report.survey.is_none(), "{:?}", log.calls());
    assert!(!lists || objects(&history.bench.memory) == state);
    lists
}

/// Whether the one before did something or not.
#[test]
fn with_nothing_to_do_it_lists_and_reads_nothing() {
    let mut history = History::new(3);
    assert!(!only_lists(&history, &prune_options()), "it has to look once");
    assert!(only_lists(&history, &prune_options()));
    history.forget(|at| at == 1);
    let gone = prune_all(&history.bench).unwrap().gone;
    assert!(gone.packs > 0);
    assert!(only_lists(&history, &prune_options()));
    // Other limits are another question, and so is another snapshot.
    let strict = Options { max_unused: Unused::Bytes(0), ..prune_options() };
    let written = prune(&history.bench.repository, &history.bench.cache, &strict, &Quiet::default()).unwrap().written;
    assert!(written > 0);
    assert!(only_lists(&history, &strict));
    history.step(9);
    assert!(!only_lists(&history, &strict));
    // Where something was held back it is looked at again.
    history.forget(|at| at == 0);
    let little = Options { max_repack: Some(100_000), ..strict };
    assert!(!only_lists(&history, &little));
    assert!(!only_lists(&history, &little));
    history.whole();
}

/// What came while a prune was at work is looked at by the next one: a whole backup, or what one left that was cut
/// short.
#[test]
fn what_came_meanwhile_is_looked_at() {
    for what in ["a backup", "a stray pack", "a forget"] {
        let mut history = History::new(3);
        history.forget(|at| at == 1);
        let (memory, source) = (history.bench.memory.clone(), history.source.clone());
        let inside = Repository::open(Arc::new(memory.clone()), &Unlock::File(history.bench.key_file())).unwrap();
        let going = history.states[0].0.id;
        if what == "a forget" {
            history.states.remove(0);
        }
        let then = move || match what {
            "a forget" => inside.forget(&[going]).unwrap(),
            "a backup" => {
                let folder = tempfile::tempdir().unwrap();
                let cache = Arc::new(Cache::open(&inside, None, folder.path()).unwrap());
                backup::backup(&inside, &cache, options(&[&source]), &Quiet::default()).unwrap();
            }
            _ => {
                let stray = format!("{}/01/0123456789abcdef0123456789abcdef", names::DATA);
                memory.put(&stray, &[1; 100], Put::Create).unwrap();
            }
        };
        let inner = history.bench.memory.clone();
        let store = Meanwhile { inner, prefix: names::PLANS, then: Mutex::new(Some(then)) };
        let repository = Repository::open(Arc::new(store), &Unlock::File(history.bench.key_file())).unwrap();
        let report = prune(&repository, &history.bench.cache, &prune_options(), &Quiet::default()).unwrap();
        assert!(report.gone.packs > 0, "{report:?}");
        assert!(!only_lists(&history, &prune_options()), "{what}");
        history.whole();
    }
}

/// Nor is it taken for looked at by a prune that found nothing to do.
#[test]
fn what_is_forgotten_while_nothing_is_to_be_done() {
    let mut history = History::new(3);
    let (inside, going) = (history.bench.repository.clone(), history.states.remove(0).0.id);
    let listings = std::sync::atomic::AtomicUsize::new(0);
    let listing = move |folder: &str| {
        // Bands are listed to see whether it has to look at all, and once more when it has.
        if folder == names::PARITY && listings.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 1 {
            inside.forget(&[going]).unwrap();
        }
    };
    let inner = history.bench.memory.clone();
    let store = Odd { inner, listing: Box::new(listing), ghosts: Vec::new(), withheld: None };
    let repository = Repository::open(Arc::new(store), &Unlock::File(history.bench.key_file())).unwrap();
    prune(&repository, &history.bench.cache, &prune_options(), &Quiet::default()).unwrap();
    assert!(!only_lists(&history, &prune_options()));
    history.whole();
}

/// Forgotten, and nobody alone needed anything of it: the next prune has nothing to remove, and clears it away all the
/// same.
#[test]
fn what_was_forgotten_goes_though_nothing_else_does() {
    let mut history = History::new(1);
    let twin = history.bench.backup(&history.source).snapshot.unwrap();
    history.bench.repository.forget(&[twin.id]).unwrap();
    let is_there = |history: &History| objects(&history.bench.memory).keys().any(|name| name.starts_with("forgotten/"));
    assert!(is_there(&history));
    let report = prune_all(&history.bench).unwrap();
    assert_eq!(report.gone.packs, 0, "{report:?}");
    assert!(!is_there(&history), "it can be had back after a prune");
    assert!(only_lists(&history, &prune_options()));
    history.whole();
    history.step(1);
}

/// What can't be written anew because its table or a block is damaged stays, and is told each time.
#[test]
fn what_is_damaged_and_stays_is_told_each_time() {
    for of_table in [true, false] {
        let mut history = History::new(3);
        history.forget(|at| at == 0);
        let data: Vec<_> = entries(&history).into_iter().filter(|entry| entry.kind == PackKind::Data).collect();
        for entry in data {
            let name = names::pack(entry.kind, entry.pack);
            let mut bytes = history.bench.memory.get(&name).unwrap();
            drumlin_testkit::wipe_parity(&mut bytes);
            let blocks = entry.table.blocks_end() as usize;
            let damaged = if of_table { blocks..blocks + entry.table_len as usize } else { 1000..blocks };
            bytes[damaged].iter_mut().step_by(16).for_each(|byte| *byte = byte.wrapping_add(1));
            history.bench.memory.put(&name, &bytes, Put::Replace).unwrap();
        }
        let sharp = Options { max_unused: Unused::Bytes(0), ..prune_options() };
        let told = |_| {
            let monitor = Quiet::default();
            prune(&history.bench.repository, &history.bench.cache, &sharp, &monitor).unwrap();
            let problems = monitor.problems();
            assert!(problems.iter().all(|problem| problem.kind == ProblemKind::Damaged), "{problems:?}");
            assert_eq!(monitor.counters().get().damaged, problems.len() as u64);
            problems.len()
        };
        let told: Vec<usize> = (0..3).map(told).collect();
        assert!(told[0] > 0 && told.iter().all(|times| *times == told[0]), "{told:?}");
    }
}
