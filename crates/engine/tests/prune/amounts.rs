//! What goes and what stays: how much, in which order, within which limits, by whose key.

use crate::common::{bench, restore_options, settle};
use crate::history::{History, bytes, fresh, lesser, objects, prune_all, prune_options};
use drumlin_engine::monitor::Quiet;
use drumlin_engine::prune::{self, Options, Unused, prune};
use drumlin_engine::{Error, restore};
use drumlin_format::key::Role;
use drumlin_format::pack::PackKind;
use drumlin_format::snapshot::Snapshot;
use drumlin_format::{IndexId, PackId};
use drumlin_repo::{Cache, Repository, Unlock, names};
use drumlin_store::{Call, FaultStore, MemoryStore, Put, RecordStore, Store};
use drumlin_testkit::Rng;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

#[test]
fn half_of_six_are_forgotten() {
    let mut history = History::new(6);
    let going: Vec<_> = history.states.iter().step_by(2).map(|(snapshot, _)| snapshot.id).collect();
    let (repository, cache) = (&history.bench.repository, &history.bench.cache);
    let foreseen = prune::plan_without(repository, cache, &prune_options(), &going, &Quiet::default()).unwrap();
    history.forget(|at| at % 2 == 0);
    let before = history.bytes();
    let planned =
        prune::plan(&history.bench.repository, &history.bench.cache, &prune_options(), &Quiet::default()).unwrap();
    assert_eq!(history.bytes(), before, "a plan changes nothing");
    assert_eq!(planned, foreseen, "as if they had been forgotten");
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

/// On a storage that is nearly full there is no room to write anything anew: what nobody needs goes all the same, and
/// makes it.
#[test]
fn what_nobody_needs_goes_where_there_is_no_room_to_write() {
    let mut history = History::new(6);
    history.forget(|at| at % 2 == 0);
    let large = history.source.join("for a while");
    fs::write(&large, Rng::new(9).bytes(3_000_000)).unwrap();
    let report = history.bench.backup(&history.source);
    history.bench.memory.delete(&names::snapshot(report.snapshot.unwrap().id)).unwrap();
    fs::remove_file(large).unwrap();
    let planned =
        prune::plan(&history.bench.repository, &history.bench.cache, &prune_options(), &Quiet::default()).unwrap();
    assert!(planned.removed.packs > 0 && planned.removed.bytes > 3_000_000 && planned.moves > 300_000, "{planned:?}");

    let store = FaultStore::new(history.bench.memory.clone());
    let faults = store.faults();
    let key = Unlock::File(history.bench.key_file());
    let full = Repository::open(Arc::new(store), &key).unwrap();
    faults.full_after(200_000);
    let monitor = Quiet::default();
    let report = prune(&full, &history.bench.cache, &prune_options(), &monitor).unwrap();
    assert!(report.is_pared && report.before - report.after > 3_000_000, "{report:?}");
    assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
    history.whole();
    // With room the rest goes, and nothing is left of the attempt.
    faults.clear();
    let report = prune(&full, &history.bench.cache, &prune_options(), &monitor).unwrap();
    assert!(!report.is_pared && report.written > 300_000, "{report:?}");
    history.whole();
    let (after, fresh) = (history.bytes(), bytes(&fresh(&history).0));
    assert!(after * 10 <= fresh * 11, "{after} bytes, {fresh} in a fresh repository");
}

/// What an attempt has written that had no room for more isn't freed by the one that takes it away.
#[test]
fn what_an_attempt_without_room_has_written_does_not_count_as_freed() {
    let mut history = History::new(12);
    history.forget(|at| at < 11);
    let store = FaultStore::new(history.bench.memory.clone());
    let faults = store.faults();
    let full = Repository::open(Arc::new(store), &Unlock::File(history.bench.key_file())).unwrap();
    let packs = || -> u64 {
        let is_pack = |name: &String| [names::DATA, names::TREE].iter().any(|folder| name.starts_with(folder));
        objects(&history.bench.memory).iter().filter(|(name, _)| is_pack(name)).map(|(_, bytes)| bytes).sum()
    };
    let before = packs();
    faults.full_after(3_000_000);
    let strict = Options { max_unused: Unused::Bytes(0), ..prune_options() };
    let report = prune(&full, &history.bench.cache, &strict, &Quiet::default()).unwrap();
    assert!(report.is_pared, "{report:?}");
    assert_eq!((report.before, report.after), (before, packs()), "{report:?}");
    history.whole();
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

/// After years of changes the newest state is scattered over many packs. A prune that leaves nothing unused puts it
/// together again: a restore then reads about as much, and in as few steps, as one from a fresh repository.
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

/// The chunks of contents that packs hold.
fn stored(repository: &Repository, memory: &MemoryStore) -> usize {
    let names = objects(memory);
    let ids = names.keys().filter_map(|name| IndexId::parse(name.strip_prefix("index/")?));
    let entries = ids.flat_map(|id| repository.index_entries(id).unwrap().unwrap());
    entries.filter(|entry| entry.kind == PackKind::Data).map(|entry| entry.table.chunks.len()).sum()
}

/// Who must be rid of a file forgets its snapshots and lets nothing unused stay: then nothing of it does, however
/// little of its pack it was.
#[test]
fn where_nothing_may_stay_nothing_stays() {
    for nothing in [Unused::Bytes(0), Unused::Percent(0.0)] {
        let bench = bench();
        let source = bench.folder.path().join("source");
        fs::create_dir(&source).unwrap();
        for n in 0..100 {
            fs::write(source.join(format!("{n:02}")), Rng::new(n).bytes(20_000)).unwrap();
        }
        fs::write(source.join("50-must-go"), Rng::new(1000).bytes(500)).unwrap();
        settle();
        let first = bench.backup(&source).snapshot.unwrap();
        let all = stored(&bench.repository, &bench.memory);
        fs::remove_file(source.join("50-must-go")).unwrap();
        let second = bench.backup(&source).snapshot.unwrap();
        bench.repository.forget(&[first.id]).unwrap();
        let prune = |max_unused| {
            let options = Options { max_unused, ..prune_options() };
            prune(&bench.repository, &bench.cache, &options, &Quiet::default()).unwrap();
            stored(&bench.repository, &bench.memory)
        };
        assert_eq!(prune(Unused::Percent(5.0)), all, "it is hardly worth it");
        assert_eq!(prune(nothing), all - 1, "{nothing:?}");
        let before = objects(&bench.memory);
        assert_eq!(prune(nothing), all - 1, "{nothing:?}");
        assert_eq!(objects(&bench.memory), before, "{nothing:?}: it does the same again");
        let (_, monitor) = bench.restore(&second, &source, &bench.folder.path().join("target"));
        assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
    }
}

#[test]
fn all_snapshots_are_forgotten() {
    let mut history = History::new(2);
    history.forget(|_| true);
    let before = objects(&history.bench.memory);
    let refused = prune_all(&history.bench);
    assert!(matches!(refused, Err(Error::Nothing { packs: 1.. })), "{refused:?}");
    assert_eq!(objects(&history.bench.memory), before);
    let meant = Options { allow_remove_all: true, ..prune_options() };
    let report = prune(&history.bench.repository, &history.bench.cache, &meant, &Quiet::default()).unwrap();
    assert_eq!(report.after, 0);
    let left = objects(&history.bench.memory);
    assert!(
        left.keys().all(|name| ["config", "keys/", "history/"].iter().any(|known| name.starts_with(known))),
        "{left:?}"
    );
    history.step(9);
    history.whole();
}

/// What a plan says is what happens: which packs go, exactly; what is written, freed and left over, as estimates do.
#[test]
fn a_plan_tells_what_a_prune_does() {
    for max_unused in [Unused::Percent(5.0), Unused::Bytes(0), Unused::Unlimited] {
        let mut history = History::new(6);
        history.forget(|at| at < 4);
        let (bench, options) = (&history.bench, Options { max_unused, ..prune_options() });
        let orphan = drumlin_repo::names::pack(PackKind::Data, PackId([9; 16]));
        bench.memory.put(&orphan, &[1; 5000], Put::Create).unwrap();
        let planned = prune::plan(&bench.repository, &bench.cache, &options, &Quiet::default()).unwrap();
        assert_eq!((planned.orphans.packs, planned.orphans.bytes), (1, 5000));
        let before = objects(&bench.memory);
        let report = prune(&bench.repository, &bench.cache, &options, &Quiet::default()).unwrap();
        let after = objects(&bench.memory);
        let is_pack = |name: &&String| name.starts_with("data/") || name.starts_with("tree/");
        let sum = |of: &BTreeMap<String, u64>, other: &BTreeMap<String, u64>| {
            let only = of.keys().filter(is_pack).filter(|name| !other.contains_key(*name));
            only.map(|name| of[name]).fold((0, 0), |(packs, bytes), len| (packs + 1, bytes + len))
        };
        let (gone, written) = (sum(&before, &after), sum(&after, &before).1);
        let tallies = [planned.removed, planned.orphans, planned.repacked];
        let promised = tallies.iter().fold((0, 0), |(packs, bytes), t| (packs + t.packs, bytes + t.bytes));
        assert_eq!(gone, promised, "{max_unused:?}: {planned:?}");
        assert_eq!(gone, (report.gone.packs, report.gone.bytes), "{max_unused:?}");
        assert_eq!(report.before - report.after, gone.1 - written, "{max_unused:?}");
        // What compresses otherwise in another block, and is padded otherwise, isn't known before.
        let about = |told: u64, is: u64| told.abs_diff(is) <= is / 10 + 40_000;
        assert!(about(planned.moves, written), "{max_unused:?}: {written} bytes were written, of {}", planned.moves);
        let is = Options { max_unused: Unused::Unlimited, ..prune_options() };
        let next = prune::plan(&bench.repository, &bench.cache, &is, &Quiet::default()).unwrap();
        assert!(about(planned.unused, next.unused), "{max_unused:?}: {planned:?}, then {next:?}");
        assert!(about(planned.needed, next.needed), "{max_unused:?}: {planned:?}, then {next:?}");
        assert_eq!(max_unused != Unused::Unlimited, written > 200_000, "{max_unused:?}: {report:?}");
        // And of the next one: that nothing is left to do, or one pack, where a share of what turned out smaller is
        // smaller, too.
        let again = prune::plan(&bench.repository, &bench.cache, &options, &Quiet::default()).unwrap();
        assert_eq!((again.removed.packs, again.orphans.packs), (0, 0), "{max_unused:?}");
        let more = u64::from(matches!(max_unused, Unused::Percent(_)));
        assert!(again.repacked.packs <= more, "{max_unused:?}: {again:?}");
        history.whole();
    }
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

/// Its key opens no contents, so that nothing but the parity tells it what is whole: what came bent and was moved as it
/// is would get new parity of its own, and what could have healed it would be gone.
#[test]
fn a_keeper_heals_what_it_moves_or_leaves_it() {
    let mut rng = Rng::new(11);
    // What is bent isn't always among what is moved.
    assert!((0..8).any(|_| heals_what_it_moves(&mut rng)));
    let (history, _, _, named) = prune_bent(&mut rng, true);
    // What can't be told to be whole stays as it is, and is named.
    assert!(!named.is_empty());
    let after = objects(&history.bench.memory);
    assert!(named.iter().all(|name| after.contains_key(name)), "{named:?}");
}

fn heals_what_it_moves(rng: &mut Rng) -> bool {
    let (history, keeper, report, named) = prune_bent(rng, false);
    assert!(named.is_empty(), "{report:?}: {named:?}");
    history.whole();
    !keeper.healed().is_empty()
}

/// A keeper's prune of packs of which some places are bent, as many as their parity bears or more, and the packs that
/// it tells of.
fn prune_bent(rng: &mut Rng, beyond: bool) -> (History, Repository, prune::Report, Vec<String>) {
    let mut history = History::new(4);
    history.forget(|at| at < 3);
    let memory = history.bench.memory.clone();
    let packs: Vec<_> = objects(&memory).into_iter().filter(|(name, _)| name.starts_with("data/")).collect();
    assert!(packs.len() > 2, "{packs:?}");
    for (name, len) in &packs {
        let mut bytes = memory.get(name).unwrap();
        // One in each shard, which is beyond what the parity bears; or one or two, which is not.
        let end = *len as usize * 3 / 4;
        let few = if *len > 100_000 { vec![rng.below(end), rng.below(end)] } else { vec![rng.below(end)] };
        let places = if beyond { (4096..end).step_by(512).collect() } else { few };
        places.into_iter().for_each(|at| bytes[at] ^= 0x40);
        memory.put(name, &bytes, Put::Replace).unwrap();
    }
    let keeper = lesser(&history.bench, Role::Keeper);
    let scratch = tempfile::tempdir().unwrap();
    let cache = Arc::new(Cache::open(&keeper, None, scratch.path()).unwrap());
    let monitor = Quiet::default();
    let options = Options { max_unused: Unused::Bytes(0), ..prune_options() };
    let report = prune(&keeper, &cache, &options, &monitor).unwrap();
    assert!(report.survey.unwrap().repacked.packs > 0, "{report:?}");
    let named = monitor.problems().iter().map(|p| String::from_utf8_lossy(&p.path).into_owned()).collect();
    (history, keeper, report, named)
}
