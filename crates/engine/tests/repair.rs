//! Repair: what is damaged is healed as far as can be, what is lost is stored again by the next backup that meets it, and nothing
//! else is touched.

mod common;

use common::{Bench, bench, restore_options};
use drumlin_engine::check;
use drumlin_engine::monitor::Quiet;
use drumlin_engine::prune::{self, Unused, prune};
use drumlin_engine::repair::{self, Report, repair};
use drumlin_engine::{Error, restore};
use drumlin_format::decision::Verdict;
use drumlin_format::key::Role;
use drumlin_format::loss::Loss;
use drumlin_format::pack::PackKind;
use drumlin_format::plan::Plan;
use drumlin_format::session::Session;
use drumlin_format::snapshot::Snapshot;
use drumlin_format::{ChunkId, LossId, PackId, PlanId, SessionId};
use drumlin_repo::collection::{Board, Desk, Flag, Registration};
use drumlin_repo::{Cache, Index, NewLock, Repository, Unlock, names};
use drumlin_seal::Secret;
use drumlin_store::{Fault, FaultStore, Kind, Put, Store, When};
use drumlin_testkit::{Rng, compare, parity_of, wipe_parity};
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

fn options() -> repair::Options {
    repair::Options {
        host: "host".into(),
        damaged: HashSet::new(),
        spoiled: HashSet::new(),
        wait: Duration::ZERO,
        evict: Vec::new(),
        evict_after: Duration::from_secs(3600),
        workers: 2,
    }
}

fn prune_options() -> prune::Options {
    prune::Options {
        host: "host".into(),
        max_unused: Unused::Percent(5.0),
        max_repack: None,
        max_rekey: Unused::Percent(5.0),
        allow_remove_all: false,
        wait: Duration::ZERO,
        evict: Vec::new(),
        evict_after: Duration::from_secs(3600),
        workers: 2,
    }
}

/// Two states of a tree.
struct Scene {
    bench: Bench,
    source: PathBuf,
    states: Vec<(Snapshot, PathBuf)>,
}

impl Scene {
    fn new() -> Self {
        let bench = bench();
        let source = bench.folder.path().join("source");
        let mut scene = Scene { bench, source, states: Vec::new() };
        for state in 0..2u64 {
            let mut rng = Rng::new(state + 1);
            for dir in 0..5 {
                fs::create_dir_all(scene.source.join(format!("d{dir}"))).unwrap();
                for file in (0..20).filter(|file| state == 0 || file % 5 == 0) {
                    let path = scene.source.join(format!("d{dir}/f{file}"));
                    let len = 1000 + rng.below(40_000);
                    fs::write(path, rng.bytes(len)).unwrap();
                }
            }
            fs::write(scene.source.join(format!("large{state}")), rng.bytes(2_500_000)).unwrap();
            scene.backup();
        }
        scene
    }

    fn backup(&mut self) {
        common::settle();
        let copy = self.bench.folder.path().join(format!("copy{}", self.states.len()));
        assert!(std::process::Command::new("cp").arg("-a").args([&self.source, &copy]).status().unwrap().success());
        let (repository, cache) = self.fresh();
        let monitor = Quiet::default();
        let report =
            drumlin_engine::backup::backup(&repository, &cache, common::options(&[&self.source]), &monitor).unwrap();
        self.states.push((report.snapshot.unwrap(), copy));
    }

    /// As somebody who comes new, but for the cache of parents.
    fn fresh(&self) -> (Repository, Arc<Cache>) {
        let store = Arc::new(self.bench.memory.clone());
        let repository = Repository::open(store, &Unlock::File(self.bench.key_file())).unwrap();
        let folder = self.bench.folder.path().join("other cache");
        let cache = Arc::new(Cache::open(&repository, Some(&folder), self.bench.folder.path()).unwrap());
        (repository, cache)
    }

    /// How many files of a state don't come back as they were, or `None` if it can't be restored at all.
    fn differences(&self, state: usize) -> Option<usize> {
        let (snapshot, copy) = &self.states[state];
        let (repository, _) = self.fresh();
        let cache = Arc::new(Cache::open(&repository, None, self.bench.folder.path()).unwrap());
        let target = self.bench.folder.path().join("out");
        let _ = fs::remove_dir_all(&target);
        let mut options = restore_options(snapshot, &target);
        options.subfolder = Some(self.source.as_os_str().as_encoded_bytes().to_vec());
        restore::restore(&repository, &cache, options, &Quiet::default()).ok()?;
        let compared = compare::Options { roots: false, dir_mtime: false, ..compare::Options::default() };
        let found = compare::trees(copy, &target, &compared).unwrap();
        found.iter().take(3).for_each(|difference| eprintln!("state {state}: {difference}"));
        Some(found.len())
    }

    fn assert_whole(&self) {
        for state in 0..self.states.len() {
            assert_eq!(self.differences(state), Some(0), "state {state}");
        }
    }

    fn repair(&self, damaged: &[PackId]) -> Report {
        let (repository, cache) = self.fresh();
        let options = repair::Options { damaged: damaged.iter().copied().collect(), ..options() };
        repair(&repository, &cache, &options, &Quiet::default()).unwrap()
    }

    fn prune(&self) -> Result<prune::Report, Error> {
        let (repository, cache) = self.fresh();
        prune(&repository, &cache, &prune_options(), &Quiet::default())
    }

    fn names(&self, folder: &str) -> Vec<String> {
        let mut names = Vec::new();
        self.bench.memory.list(folder, &mut |listed| names.push(listed.name)).unwrap();
        names.sort();
        names
    }

    /// The largest object of a folder.
    fn largest(&self, folder: &str) -> String {
        self.names(folder).into_iter().max_by_key(|name| self.bench.memory.len(name).unwrap()).unwrap()
    }

    /// In a way that parity doesn't make up for.
    fn flip(&self, name: &str, at: impl Fn(usize) -> usize) {
        let mut bytes = self.bench.memory.get(name).unwrap();
        wipe_parity(&mut bytes);
        let at = at(bytes.len());
        bytes[at] ^= 0x40;
        self.bench.memory.put(name, &bytes, Put::Replace).unwrap();
    }

    fn objects(&self) -> BTreeMap<String, Vec<u8>> {
        self.names("").into_iter().map(|name| (name.clone(), self.bench.memory.get(&name).unwrap())).collect()
    }
}

fn pack(name: &str) -> PackId {
    PackId::parse(names::last(name)).unwrap()
}

#[test]
fn what_is_sound_is_left_alone() {
    let scene = Scene::new();
    let before = scene.objects();
    let report = scene.repair(&[]);
    assert!(report.is_sound(), "{report:?}");
    assert!(scene.objects() == before);
}

#[test]
fn the_index_is_made_anew_from_the_packs() {
    for damage in ["all gone", "one gone", "first part", "second part"] {
        let scene = Scene::new();
        let objects = scene.names(names::INDEX);
        match damage {
            "all gone" => objects.iter().for_each(|name| scene.bench.memory.delete(name).unwrap()),
            "one gone" => scene.bench.memory.delete(&objects[0]).unwrap(),
            "first part" => scene.flip(&objects[0], |_| 100),
            _ => scene.flip(&objects[0], |len| len - 100),
        }
        assert!(scene.differences(0) != Some(0) || scene.differences(1) != Some(0), "{damage} is no damage");
        let report = scene.repair(&[]);
        assert!(report.named > 0 && report.lost_chunks == 0 && report.unreadable.is_empty(), "{damage}: {report:?}");
        scene.assert_whole();
        assert!(scene.repair(&[]).is_sound());
        scene.prune().unwrap();
        scene.assert_whole();
    }
}

/// Lost sectors, in every pack at once: nobody loses anything, and repair writes the packs anew.
#[test]
fn what_parity_heals_is_written_anew() {
    for damage in ["flipped", "zeros", "bad sectors", "header and footer", "a burst"] {
        let scene = Scene::new();
        let store = FaultStore::new(scene.bench.memory.clone());
        let faults = store.faults();
        let repository = Repository::open(Arc::new(store), &Unlock::File(scene.bench.key_file())).unwrap();
        let packs: Vec<String> = [scene.names(names::DATA), scene.names(names::TREE)].concat();
        for name in &packs {
            let mut bytes = scene.bench.memory.get(name).unwrap();
            let (parity, len) = (parity_of(&bytes), bytes.len());
            let middle = parity.start / 2 / 4096 * 4096;
            match damage {
                "flipped" => bytes[middle + 77] ^= 1,
                "zeros" => bytes[middle..middle + 4096].fill(0),
                "bad sectors" => faults.bad_bytes(name, middle as u64..middle as u64 + 4096),
                "a burst" => {
                    // One of three in the small ones, as many as are woven together in the others.
                    let sectors = if parity.start > 256 * 4096 { 4 } else { 1 };
                    bytes[middle..middle + sectors * 4096].iter_mut().for_each(|b| *b = !*b);
                }
                _ => {
                    bytes[..32].fill(0);
                    bytes[len - 48..].fill(0);
                }
            }
            scene.bench.memory.put(name, &bytes, Put::Replace).unwrap();
        }
        let cache = Arc::new(Cache::open(&repository, None, scene.bench.folder.path()).unwrap());
        let check = |repository: &Repository| {
            let options = check::Options { read: Some(check::Part::All), workers: 2 };
            check::check(repository, &cache, options, &Quiet::default()).unwrap()
        };
        let found = check(&repository).findings;
        assert_eq!(found.len(), packs.len(), "{damage}: {found:#?}");
        for finding in &found {
            assert_eq!((finding.healed, finding.chunks), (Some(true), 0), "{damage}: {finding:#?}");
            assert!(finding.touched.is_empty() && finding.snapshots.is_empty());
        }
        let restored = |repository: &Repository| {
            for (number, (snapshot, copy)) in scene.states.iter().enumerate() {
                let target = scene.bench.folder.path().join(format!("healed {number}"));
                let _ = fs::remove_dir_all(&target);
                let mut options = restore_options(snapshot, &target);
                options.subfolder = Some(scene.source.as_os_str().as_encoded_bytes().to_vec());
                let monitor = Quiet::default();
                restore::restore(repository, &cache, options, &monitor).unwrap();
                assert!(monitor.problems().is_empty(), "{damage}: {:?}", monitor.problems());
                let compared = compare::Options { roots: false, dir_mtime: false, ..compare::Options::default() };
                assert!(compare::trees(copy, &target, &compared).unwrap().is_empty(), "{damage}");
            }
        };
        restored(&repository);
        assert_eq!(repository.healed().is_empty(), damage == "header and footer", "{damage}: it is told");

        let damaged = packs.iter().map(|name| pack(name)).collect();
        let options = repair::Options { damaged, ..options() };
        let report = repair(&repository, &cache, &options, &Quiet::default()).unwrap();
        assert_eq!((report.mended.len(), report.damaged.len()), (packs.len(), 0), "{damage}: {report:?}");
        assert!(report.lost_chunks == 0 && report.unreadable.is_empty(), "{damage}: {report:?}");
        assert!(scene.names(names::LOSSES).is_empty(), "{damage}");
        // The old ones stay until a prune knows that nobody needs them.
        assert!(packs.iter().all(|name| scene.bench.memory.len(name).unwrap().is_some()));
        assert!(check(&repository).findings.is_empty(), "{damage}");
        prune(&repository, &cache, &prune_options(), &Quiet::default()).unwrap();
        assert!(packs.iter().all(|name| scene.bench.memory.len(name).unwrap().is_none()), "{damage}");
        faults.clear();
        assert!(check(&repository).findings.is_empty(), "{damage}");
        scene.assert_whole();
    }
}

/// A damaged pack that was written anew stays until a prune: no repair takes it into the index again, as long as what was made from it is there.
#[test]
fn what_was_written_anew_is_not_taken_in_again() {
    let scene = Scene::new();
    let old = scene.largest(names::DATA);
    let before = scene.names(names::DATA);
    let mut bytes = scene.bench.memory.get(&old).unwrap();
    let middle = parity_of(&bytes).start / 2;
    bytes[middle] ^= 1;
    scene.bench.memory.put(&old, &bytes, Put::Replace).unwrap();
    let report = scene.repair(&[pack(&old)]);
    assert_eq!((report.mended.as_slice(), report.lost_chunks), (&[pack(&old)][..], 0), "{report:?}");
    let found = |read| {
        let (repository, cache) = scene.fresh();
        let options = check::Options { read, workers: 2 };
        check::check(&repository, &cache, options, &Quiet::default()).unwrap().findings
    };
    assert!(found(Some(check::Part::All)).is_empty());
    let report = scene.repair(&[]);
    assert!(report.is_sound(), "{report:?}");
    assert!(found(Some(check::Part::All)).is_empty());
    // What was made from it gets lost: now it is all that there is.
    for name in scene.names(names::DATA).iter().filter(|name| !before.contains(name)) {
        scene.bench.memory.delete(name).unwrap();
    }
    assert!(!found(None).is_empty());
    let report = scene.repair(&[]);
    assert_eq!((report.lost_chunks, report.damaged.len()), (0, 0), "{report:?}");
    assert!(scene.names(names::LOSSES).is_empty());
    assert!(found(Some(check::Part::All)).is_empty());
    scene.assert_whole();
    assert!(scene.repair(&[]).is_sound());
    scene.prune().unwrap();
    assert!(scene.bench.memory.len(&old).unwrap().is_none());
    scene.assert_whole();
}

/// The parity alone is damaged: nothing is touched, and what is written anew has all of it.
#[test]
fn parity_that_is_damaged_is_a_finding_and_made_anew() {
    let scene = Scene::new();
    let name = scene.largest(names::DATA);
    let mut bytes = scene.bench.memory.get(&name).unwrap();
    let parity = parity_of(&bytes);
    let (repository, cache) = scene.fresh();
    let check = || {
        let options = check::Options { read: Some(check::Part::All), workers: 2 };
        check::check(&repository, &cache, options, &Quiet::default()).unwrap().findings
    };
    for at in [parity.start, parity.start + 5000, parity.len() / 2 + parity.start, parity.end - 1] {
        bytes[at] ^= 1;
        scene.bench.memory.put(&name, &bytes, Put::Replace).unwrap();
        let found = check();
        assert_eq!(found.len(), 1);
        assert_eq!((&found[0].object, found[0].healed, found[0].chunks), (&name, Some(true), 0), "{found:#?}");
        assert!(found[0].causes.iter().all(|c| c.starts_with("its parity is damaged")), "{found:#?}");
        bytes[at] ^= 1;
    }
    bytes[parity].fill(0);
    scene.bench.memory.put(&name, &bytes, Put::Replace).unwrap();
    assert_eq!(check()[0].chunks, 0);
    scene.assert_whole();
    assert_eq!(scene.repair(&[pack(&name)]).mended, [pack(&name)]);
    assert!(check().is_empty());
    scene.assert_whole();
}

/// Killed at every call, a repair of what parity heals costs nothing.
#[test]
fn killed_while_it_heals_nothing_is_lost() {
    let scene = Scene::new();
    let name = scene.largest(names::DATA);
    let mut bytes = scene.bench.memory.get(&name).unwrap();
    bytes[40_960..45_056].fill(0);
    scene.bench.memory.put(&name, &bytes, Put::Replace).unwrap();
    let start = scene.objects();
    let run = |from: Option<u64>| {
        for name in scene.names("") {
            scene.bench.memory.delete(&name).unwrap();
        }
        start.iter().for_each(|(name, bytes)| scene.bench.memory.put(name, bytes, Put::Create).unwrap());
        let store = FaultStore::new(scene.bench.memory.clone());
        let faults = store.faults();
        let repository = Repository::open(Arc::new(store), &Unlock::File(scene.bench.key_file())).unwrap();
        let cache = Arc::new(Cache::open(&repository, None, scene.bench.folder.path()).unwrap());
        let first = faults.calls();
        if let Some(from) = from {
            faults.add(When::any().skip(from), Fault::Fail(Kind::Io));
        }
        let options = repair::Options { damaged: [pack(&name)].into(), ..options() };
        (repair(&repository, &cache, &options, &Quiet::default()), faults.calls() - first)
    };
    let (done, calls) = run(None);
    assert_eq!(done.unwrap().mended, [pack(&name)]);
    for from in (0..calls).step_by(11) {
        let (done, made) = run(Some(from));
        // Two runs differ by a call or two: names are random, and so is what lies beside what.
        assert!(done.is_err() || made <= from, "call {from} of {made} ({calls}) failed and nobody noticed");
        scene.assert_whole();
    }
}

#[test]
fn what_is_lost_is_listed_and_healed_by_the_next_backup() {
    for damage in ["gone", "flipped", "cut short"] {
        let mut scene = Scene::new();
        let name = scene.largest(names::DATA);
        match damage {
            "gone" => scene.bench.memory.delete(&name).unwrap(),
            "flipped" => scene.flip(&name, |len| len / 2),
            _ => {
                let bytes = scene.bench.memory.get(&name).unwrap();
                scene.bench.memory.put(&name, &bytes[..bytes.len() / 2], Put::Replace).unwrap();
            }
        }
        let before = scene.differences(0).unwrap() + scene.differences(1).unwrap();
        assert!(before > 0, "{damage} is no damage");
        let damaged = if damage == "flipped" { vec![pack(&name)] } else { vec![] };
        let report = scene.repair(&damaged);
        assert!(report.lost_chunks > 0 && report.unreadable.is_empty(), "{damage}: {report:?}");
        assert_eq!(report.damaged.len(), usize::from(damage != "gone"), "{damage}: {report:?}");
        let after = scene.differences(0).unwrap() + scene.differences(1).unwrap();
        assert!(after <= before, "{damage}: repair has made it worse");
        if damage == "flipped" {
            assert!(report.salvaged > 500_000, "{report:?}");
        }
        // What is known to be lost stands in nobody's way.
        scene.prune().unwrap();
        assert!(scene.names(names::LOSSES).len() == 1);
        // A backup that meets the same bytes stores them, though nothing has changed.
        scene.backup();
        assert_eq!((scene.differences(1), scene.differences(2)), (Some(0), Some(0)), "{damage}");
        // What the source has no more can't be stored again. Without it the loss is history, and with the next prune the
        // damaged pack.
        let (repository, _) = scene.fresh();
        repository.forget(&[scene.states[0].0.id]).unwrap();
        scene.prune().unwrap();
        assert!(scene.names(names::LOSSES).is_empty(), "{damage}");
        scene.prune().unwrap();
        assert!(!scene.names(names::DATA).contains(&name), "{damage}");
        assert_eq!((scene.differences(1), scene.differences(2)), (Some(0), Some(0)), "{damage}");
        // The next one reads nothing anew.
        let (repository, cache) = scene.fresh();
        let monitor = Quiet::default();
        let options = common::options(&[&scene.source]);
        let report = drumlin_engine::backup::backup(&repository, &cache, options, &monitor).unwrap();
        assert_eq!(report.counts.bytes_read, 0, "{damage}");
    }
}

#[test]
fn a_lost_tree_costs_the_snapshots_that_need_it() {
    let mut scene = Scene::new();
    let packs = scene.names(names::TREE);
    packs.iter().for_each(|name| scene.bench.memory.delete(name).unwrap());
    let report = scene.repair(&[]);
    assert_eq!(report.unreadable.len(), 2, "{report:?}");
    assert!(matches!(scene.prune(), Err(Error::Unsure { .. })));
    scene.backup();
    assert_eq!(scene.differences(2), Some(0));
    let (repository, _) = scene.fresh();
    repository.forget(&[scene.states[0].0.id, scene.states[1].0.id]).unwrap();
    scene.prune().unwrap();
    assert_eq!(scene.differences(2), Some(0));
    assert!(scene.names(names::LOSSES).is_empty());
}

/// Without any repair: a backup finds that the tree before can't be read, reads everything, and stores what it needs of it.
#[test]
fn a_backup_gets_over_a_damaged_tree() {
    for damage in ["gone", "flipped"] {
        let mut scene = Scene::new();
        for name in scene.names(names::TREE) {
            match damage {
                "gone" => scene.bench.memory.delete(&name).unwrap(),
                _ => {
                    let mut bytes = scene.bench.memory.get(&name).unwrap();
                    bytes[40..].iter_mut().step_by(50).for_each(|b| *b ^= 1);
                    scene.bench.memory.put(&name, &bytes, Put::Replace).unwrap();
                }
            }
        }
        fs::write(scene.source.join("d0/new"), "new").unwrap();
        scene.backup();
        assert_eq!(scene.differences(2), Some(0), "{damage}");
    }
}

#[test]
fn killed_at_every_call_nothing_gets_worse() {
    let scene = Scene::new();
    scene.bench.memory.delete(&scene.largest(names::DATA)).unwrap();
    scene.flip(&scene.names(names::INDEX)[0].clone(), |_| 100);
    let start = scene.objects();
    let reset = || {
        for name in scene.names("") {
            scene.bench.memory.delete(&name).unwrap();
        }
        start.iter().for_each(|(name, bytes)| scene.bench.memory.put(name, bytes, Put::Create).unwrap());
    };
    let run = |from: Option<u64>| {
        let store = FaultStore::new(scene.bench.memory.clone());
        let faults = store.faults();
        let repository = Repository::open(Arc::new(store), &Unlock::File(scene.bench.key_file())).unwrap();
        let cache = Arc::new(Cache::open(&repository, None, scene.bench.folder.path()).unwrap());
        let first = faults.calls();
        if let Some(from) = from {
            faults.add(When::any().skip(from), Fault::Fail(Kind::Io));
        }
        let done = repair(&repository, &cache, &options(), &Quiet::default());
        (done, faults.calls() - first)
    };
    let (done, calls) = run(None);
    done.unwrap();
    let wanted = (scene.differences(0), scene.differences(1));
    assert!(wanted.0.unwrap() + wanted.1.unwrap() > 0, "{wanted:?}");
    for from in (0..calls).step_by(3) {
        reset();
        let (done, made) = run(Some(from));
        // Two runs differ by a call or two: names are random, and so is what lies beside what.
        assert!(done.is_err() || made <= from, "call {from} of {made} ({calls}) failed and nobody noticed");
        let (repository, cache) = scene.fresh();
        let evict =
            drumlin_repo::collection::Board::sessions(&drumlin_repo::collection::Desk::new(&repository)).unwrap();
        repair(&repository, &cache, &repair::Options { evict, ..options() }, &Quiet::default()).unwrap();
        if from % 4 == 0 {
            assert_eq!((scene.differences(0), scene.differences(1)), wanted, "call {from}");
        }
    }
}

/// A block of leaves is lost in the midst of a tree: what is before and behind it comes back, and nothing is deleted on the
/// strength of what could not be read.
#[test]
fn a_restore_gets_over_a_gap_in_the_tree() {
    let bench = bench();
    let folder = common::quick_folder();
    let source = folder.path().join("source");
    for dir in 0..40 {
        let dir = source.join(format!("directory {dir:02}"));
        fs::create_dir_all(&dir).unwrap();
        for file in 0..150 {
            fs::write(dir.join(format!("{file:03} {}", "a long name that fills leaves ".repeat(5))), format!("{file}"))
                .unwrap();
        }
    }
    common::settle();
    let snapshot = bench.backup(&source).snapshot.unwrap();
    let mut packs = Vec::new();
    bench.memory.list(names::TREE, &mut |listed| packs.push(listed.name)).unwrap();
    let mut met = HashSet::new();
    for part in 1..16 {
        let whole = bench.memory.get(&packs[0]).unwrap();
        let mut bent = whole.clone();
        wipe_parity(&mut bent);
        let at = whole.len() / 16 * part;
        bent[at] ^= 1;
        bench.memory.put(&packs[0], &bent, Put::Replace).unwrap();
        let repository = Repository::open(Arc::new(bench.memory.clone()), &Unlock::File(bench.key_file())).unwrap();
        let cache = Arc::new(Cache::open(&repository, None, folder.path()).unwrap());
        let target = folder.path().join(format!("out{part}"));
        fs::create_dir_all(target.join("directory 05")).unwrap();
        fs::write(target.join("directory 05/mine"), "mine").unwrap();
        let mut options = restore_options(&snapshot, &target);
        options.subfolder = Some(source.as_os_str().as_encoded_bytes().to_vec());
        options.delete = true;
        let monitor = Quiet::default();
        match restore::restore(&repository, &cache, options, &monitor) {
            Ok(report) => {
                let found = compare::trees(
                    &source,
                    &target,
                    &compare::Options { mtime: false, mode: false, ..Default::default() },
                );
                let missing = found.unwrap().len();
                if report.counts.damaged > 0 {
                    assert!(missing > 0 && !monitor.problems().is_empty(), "part {part}");
                    // What comes before the gap is there, and what comes behind it.
                    met.insert(target.join("directory 00").exists() || target.join("directory 39").exists());
                    if !target.join("directory 05").read_dir().unwrap().any(|e| e.unwrap().file_name() != "mine") {
                        assert!(target.join("directory 05/mine").exists(), "deleted for want of knowledge");
                    }
                }
            }
            // The uppermost node, or one of its family: then there is nothing to go by.
            Err(Error::Repo(e)) => assert!(e.is_damage(), "{e}"),
            Err(e) => panic!("{e}"),
        }
        bench.memory.put(&packs[0], &whole, Put::Replace).unwrap();
        fs::remove_dir_all(&target).unwrap();
    }
    assert!(met.contains(&true), "no damage hit a leaf");
}

/// The repository as somebody sees it who holds a keeper's key.
fn keeper(scene: &Scene) -> Repository {
    let secret = Secret::new([7; 32]);
    let key = scene.bench.repository.add_key(Role::Keeper, &NewLock::File(secret.clone()), "keeper", 0).unwrap();
    let file = scene.bench.repository.key_file(key, &secret).to_string();
    Repository::open(Arc::new(scene.bench.memory.clone()), &Unlock::File(file)).unwrap()
}

/// It opens no contents: what it writes anew is what the parity vouches for, and no other byte is given parity of its own.
#[test]
fn a_keeper_repairs_what_parity_vouches_for() {
    for beyond in [false, true] {
        let scene = Scene::new();
        let repository = keeper(&scene);
        let cache = Arc::new(Cache::open(&repository, None, scene.bench.folder.path()).unwrap());
        let (data, tree) = (scene.largest(names::DATA), scene.largest(names::TREE));
        for name in [&data, &tree] {
            let mut bytes = scene.bench.memory.get(name).unwrap();
            let end = bytes.len() * 3 / 4;
            if beyond && name == &data {
                (4096..end).step_by(512).for_each(|at| bytes[at] ^= 4);
            } else {
                bytes[end / 2] ^= 4;
            }
            scene.bench.memory.put(name, &bytes, Put::Replace).unwrap();
        }
        let index = scene.largest(names::INDEX);
        scene.bench.memory.delete(&index).unwrap();
        let damaged = [pack(&data), pack(&tree)].into();
        let report = repair(&repository, &cache, &repair::Options { damaged, ..options() }, &Quiet::default()).unwrap();
        if beyond {
            assert_eq!((&report.mended, &report.damaged), (&vec![pack(&tree)], &vec![pack(&data)]), "{report:?}");
            assert!(report.lost_chunks > 0 && scene.names(names::LOSSES).len() == 1, "{report:?}");
        } else {
            assert_eq!((report.mended.len(), report.damaged.len(), report.lost_chunks), (2, 0, 0), "{report:?}");
            scene.assert_whole();
        }
        // Nothing that it wrote is bent, and the disk may yet give back what it didn't believe.
        let (owner, fresh) = scene.fresh();
        let read = check::Options { read: Some(check::Part::All), workers: 2 };
        let found = check::check(&owner, &fresh, read, &Quiet::default()).unwrap().findings;
        // What is lost is in no pack that the index names.
        assert!(found.iter().all(|finding| beyond && finding.object == "index"), "{found:#?}");
        assert!(scene.names(names::DATA).contains(&data));
    }
}

#[test]
fn plans_and_losses_that_nobody_can_read_go_once_nobody_is_at_work() {
    for decided in [false, true] {
        let mut scene = Scene::new();
        let (session, plan) = (SessionId([3; 16]), PlanId([3; 16]));
        let desk = Desk::of(&scene.bench.repository, Session::new("elsewhere", "prune", 5));
        desk.put_session(session).unwrap();
        let (packs, indexes, snapshots) = (vec![PackId([9; 16])], Vec::new(), Vec::new());
        desk.put_plan(&Plan { id: plan, session, packs, indexes, snapshots, unnamed: Vec::new() }).unwrap();
        if decided {
            desk.create(Flag::Decision(session), &Verdict::Collected { plan }).unwrap();
        }
        let loss = Loss { id: LossId([4; 16]), chunks: vec![ChunkId([4; 32])], packs: vec![PackId([4; 16])] };
        scene.bench.repository.put_loss(&loss).unwrap();
        let (plan, loss) = (names::plan(plan), names::loss(loss.id));
        for name in [&plan, &loss] {
            let mut bytes = scene.bench.memory.get(name).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            scene.bench.memory.put(name, &bytes, Put::Replace).unwrap();
        }
        let refused = scene.prune().map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains(&plan), "{refused}");
        let (repository, cache) = scene.fresh();
        let busy = repair(&repository, &cache, &options(), &Quiet::default());
        assert!(matches!(busy, Err(Error::Busy(_))), "{busy:?}");
        assert_eq!((scene.names(names::PLANS), scene.names(names::SESSIONS).len()), (vec![plan.clone()], 1));
        let monitor = Quiet::default();
        let evicting = repair::Options { evict: vec![session], ..options() };
        let outcome = repair(&repository, &cache, &evicting, &monitor);
        if decided {
            // It may be carried out at this very moment by somebody who is not as dead as it is said.
            let refused = outcome.unwrap_err().to_string();
            assert!(refused.contains(&plan), "{refused}");
            assert!(scene.names(names::PLANS).contains(&plan) && scene.names(names::SESSIONS).len() == 1);
            continue;
        }
        assert_eq!(outcome.unwrap().cleared, 2);
        let told: Vec<_> = monitor.problems().iter().map(|p| String::from_utf8(p.path.clone()).unwrap()).collect();
        assert_eq!(told, [plan, loss]);
        for folder in [names::PLANS, names::LOSSES, names::SESSIONS] {
            assert_eq!(scene.names(folder), Vec::<String>::new());
        }
        scene.prune().unwrap();
        scene.backup();
        scene.assert_whole();
    }
}

/// A folder that wasn't mounted, or half of a union of disks that was not there.
#[test]
fn packs_that_come_back_after_a_repair_are_not_taken_for_nobodys() {
    for again in [false, true] {
        let scene = Scene::new();
        let name = scene.largest(names::DATA);
        let bytes = scene.bench.memory.get(&name).unwrap();
        scene.bench.memory.delete(&name).unwrap();
        assert!(scene.repair(&[]).lost_chunks > 0);
        if again {
            let report = scene.repair(&[]);
            assert!(report.lost_chunks > 0 && report.healed == 0, "it is the same loss: {report:?}");
        }
        scene.bench.memory.put(&name, &bytes, Put::Create).unwrap();
        scene.prune().unwrap();
        assert!(scene.names(names::DATA).contains(&name), "a prune has removed what was lost and found");
        let report = scene.repair(&[]);
        assert_eq!((report.lost_chunks, report.named), (0, 1), "{report:?}");
        scene.assert_whole();
        assert!(scene.names(names::LOSSES).is_empty());
        scene.prune().unwrap();
        scene.assert_whole();
    }
}

/// The tables are at the packs' ends, and the index has them too.
#[test]
fn trees_are_had_back_from_packs_that_have_lost_their_tables() {
    let scene = Scene::new();
    let (repository, cache) = scene.fresh();
    let index = Index::open(&repository, cache).unwrap();
    for info in index.packs().iter().filter(|info| info.kind == PackKind::Tree) {
        let name = names::pack(info.kind, info.id);
        let bytes = scene.bench.memory.get(&name).unwrap();
        scene.bench.memory.put(&name, &bytes[..info.table_offset as usize], Put::Replace).unwrap();
    }
    let report = scene.repair(&[]);
    assert!(report.unreadable.is_empty() && report.lost_chunks == 0, "{report:?}");
    scene.assert_whole();
}

/// A repair that has to wait puts the loss, and a backup comes by while the index still names the pack that is gone.
#[test]
fn a_loss_that_was_met_too_early_is_met_again() {
    let mut scene = Scene::new();
    let name = scene.largest(names::DATA);
    scene.bench.memory.delete(&name).unwrap();
    let session = Registration::begin(&scene.bench.repository, Session::new("elsewhere", "backup", 0)).unwrap();
    let (repository, cache) = scene.fresh();
    let busy = repair(&repository, &cache, &options(), &Quiet::default());
    assert!(matches!(busy, Err(Error::Busy(_))), "{busy:?}");
    scene.backup();
    session.abandon().unwrap();
    assert!(scene.repair(&[]).lost_chunks > 0);
    scene.backup();
    assert_eq!((scene.differences(1), scene.differences(3)), (Some(0), Some(0)));
}

/// Whoever wrote at the same time has stored the same. Both packs are damaged, in places of their own.
#[test]
fn what_stands_in_two_damaged_packs_is_taken_from_whichever_has_it() {
    let mut scene = Scene::new();
    // Of which some is nowhere else.
    let (repository, _) = scene.fresh();
    repository.forget(&[scene.states[0].0.id]).unwrap();
    let hidden: Vec<_> = scene
        .names(names::INDEX)
        .into_iter()
        .map(|name| (name.clone(), scene.bench.memory.get(&name).unwrap()))
        .collect();
    hidden.iter().for_each(|(name, _)| scene.bench.memory.delete(name).unwrap());
    let before = scene.names(names::DATA);
    scene.backup();
    hidden.iter().for_each(|(name, bytes)| scene.bench.memory.put(name, bytes, Put::Create).unwrap());
    let (all, whole) = (scene.names(names::DATA), scene.objects());
    let is_had = || (scene.differences(1), scene.differences(2)) == (Some(0), Some(0));
    // In which places is for the workers to say: in such as leave a whole copy of everything.
    let places = [(1, 7), (1, 4), (2, 6), (7, 1), (4, 1), (3, 6), (5, 2), (0, 6), (6, 0)];
    let is_damaged = places.iter().any(|(old, new)| {
        for name in &all {
            scene.bench.memory.put(name, &whole[name], Put::Replace).unwrap();
            let eighths = if before.contains(name) { old } else { new };
            scene.flip(name, |len| 200 + len * eighths / 8);
        }
        is_had()
    });
    assert!(is_damaged, "the same is lost in both, wherever it is tried");
    let report = scene.repair(&all.iter().map(|name| pack(name)).collect::<Vec<_>>());
    assert_eq!(report.lost_chunks, 0, "{report:?}");
    assert!(is_had());
    scene.prune().unwrap();
    assert!(is_had());
}
