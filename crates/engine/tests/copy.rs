//! Copies into another repository: the same comes back from there, nothing is copied twice, and what goes wrong on
//! either side leaves no copy that isn't what it says.

mod common;
#[allow(dead_code, reason = "the tests of prunes have more use of them")]
#[path = "prune/meanwhile.rs"]
mod meanwhile;

use common::{Bench, bench, bench_with, restore_options, settle, small};
use drumlin_engine::backup::Compression;
use drumlin_engine::copy::{Copier, End, Options, Report};
use drumlin_engine::list::{self, Depth};
use drumlin_engine::monitor::{Counters, Monitor, Problem, Quiet};
use drumlin_engine::repair;
use drumlin_engine::select::{TreePath, open_reader};
use drumlin_engine::{Error, Result, prune, restore};
use drumlin_format::config::ChunkSizes;
use drumlin_format::key::Role;
use drumlin_format::snapshot::Snapshot;
use drumlin_format::tree::{Data, Meta, marks};
use drumlin_repo::{
    Cache, CreateOptions, Error as RepoError, Index, IndexMode, NewLock, RekeyOptions, Repository, SnapshotInfo, Unlock,
};
use drumlin_repo::{names, random_id};
use drumlin_seal::Secret;
use drumlin_store::{Call, CallLog, FaultStore, Kind, MemoryStore, Put, RecordStore, Store};
use drumlin_testkit::{Rng, compare, tree, wipe_parity};
use meanwhile::WhileReading;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn how() -> Options {
    Options {
        host: "host".into(),
        now: 7,
        compression: Compression::Auto,
        workers: 2,
        memory: 64 << 20,
        index: IndexMode::Exact,
    }
}

fn end(bench: &Bench) -> End {
    End { repository: bench.repository.clone(), cache: bench.cache.clone() }
}

/// The repository of a bench over another storage, with a cache that knows nothing.
fn over(bench: &Bench, store: impl Store + 'static) -> End {
    let repository = Repository::open(Arc::new(store), &Unlock::File(bench.key_file())).unwrap();
    let cache = Arc::new(Cache::open(&repository, None, bench.folder.path()).unwrap());
    End { repository, cache }
}

fn recorded(bench: &Bench) -> (End, CallLog) {
    let store = RecordStore::new(bench.memory.clone());
    let log = store.log();
    (over(bench, store), log)
}

fn infos(end: &End) -> Vec<SnapshotInfo> {
    let (infos, errors) = end.repository.snapshots().unwrap();
    assert!(errors.is_empty(), "{errors:?}");
    infos
}

/// Copy whatever hasn't been, and nothing may go wrong.
fn copy_all(source: &End, target: &End) -> Vec<Report> {
    let monitor = Quiet::default();
    let reports = try_all(source, target, &monitor).unwrap();
    assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
    reports
}

fn try_all(source: &End, target: &End, monitor: &dyn Monitor) -> Result<Vec<Report>> {
    let mut copier = Copier::new(source.clone(), target.clone(), how())?;
    let all = infos(source);
    let mut reports = Vec::new();
    for info in &all {
        if copier.copy_of(&info.snapshot)?.is_none() {
            reports.push(copier.copy(info, &all, monitor)?);
        }
    }
    Ok(reports)
}

/// An entry as it can be told in any repository.
#[derive(Debug, PartialEq)]
struct Told {
    path: Vec<u8>,
    meta: Meta,
    owners: (Option<Vec<u8>>, Option<Vec<u8>>),
    target: Vec<u8>,
    attributes: String,
    flags: u32,
    holes_and_chunks: Vec<(bool, u64)>,
}

fn told(end: &End, snapshot: &Snapshot) -> Vec<Told> {
    let reader = open_reader(&end.repository, &end.cache).unwrap();
    let (mut all, monitor) = (Vec::new(), Quiet::default());
    let root = TreePath::root();
    list::list(&reader, snapshot.root, &root, Depth::All, &monitor, &mut |entry| {
        let content = entry.content()?;
        let refs = match &content.data {
            Data::None => Vec::new(),
            Data::Chunk(_) => vec![(false, entry.meta().size)],
            Data::List(list) => drumlin_repo::tree::Refs::new(&reader, list)
                .map(|r| r.map(|r| (matches!(r, drumlin_format::tree::Ref::Hole { .. }), r.len())))
                .collect::<drumlin_repo::Result<_>>()?,
        };
        all.push(Told {
            path: entry.path(),
            meta: *entry.meta(),
            owners: (entry.user().map(<[u8]>::to_vec), entry.group().map(<[u8]>::to_vec)),
            target: content.target.clone(),
            attributes: format!("{:?}", content.xattrs),
            flags: content.flags,
            holes_and_chunks: refs,
        });
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
    all
}

/// The target has the same in its copy, entry by entry, and it comes back.
fn is_copy(source: &End, of: &Snapshot, target: &End, copy: &Snapshot) {
    assert_eq!(told(target, copy), told(source, of));
    let same = |s: &Snapshot| {
        let Snapshot { time, host, user, paths, tags, partial, program, summary, .. } = s.clone();
        (time, host, user, paths, tags, partial, program, summary, s.root.map(|r| r.sums))
    };
    assert_eq!(same(copy), same(of));
    assert_eq!(copy.original, Some(of.first_id()));
    assert!(copy.id != of.id && copy.root.map(|r| r.node) != of.root.map(|r| r.node));
}

fn comes_back(target: &End, copy: &Snapshot, folder: &Path, like: &Path) {
    let out = tempfile::tempdir_in(folder).unwrap();
    let _ends = tree::Unprotect(out.path());
    let monitor = Quiet::default();
    let mut options = restore_options(copy, out.path());
    options.subfolder = Some(copy.paths[0].clone());
    restore::restore(&target.repository, &target.cache, options, &monitor).unwrap();
    assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
    compare::assert_same(like, out.path(), &compare::Options { roots: false, ..Default::default() });
}

/// Files of all kinds of lengths, one with holes, and links.
fn source(bench: &Bench) -> PathBuf {
    let source = bench.folder.path().join("source");
    fs::create_dir_all(source.join("many")).unwrap();
    let mut rng = Rng::new(1);
    for n in 0..300u64 {
        fs::write(source.join(format!("many/{n}")), rng.text((n * 37 % 9000) as usize)).unwrap();
    }
    fs::write(source.join("middling"), rng.bytes(300_000)).unwrap();
    fs::write(source.join("large"), rng.bytes(9 << 20)).unwrap();
    fs::hard_link(source.join("large"), source.join("link")).unwrap();
    let sparse = fs::File::create(source.join("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, &rng.bytes(5 << 20), 3 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, &rng.bytes(100_000), 20 << 20).unwrap();
    sparse.set_len(30 << 20).unwrap();
    settle();
    source
}

fn data_read(log: &CallLog) -> u64 {
    let data = |call: &Call| match call {
        Call::ReadAt { name, bytes, .. } | Call::Get { name, bytes } if name.starts_with("data/") => *bytes,
        _ => 0,
    };
    log.calls().iter().map(data).sum()
}

#[test]
fn nasty_trees_come_back_from_the_copy() {
    let (one, two) = (bench(), bench());
    let source = one.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    let _ends = tree::Unprotect(&source);
    tree::nasty(&source, common::user::is_root()).unwrap();
    settle();
    let snapshot = one.backup(&source).snapshot.unwrap();
    let reports = copy_all(&end(&one), &end(&two));
    assert!(reports.len() == 1 && reports[0].beside.is_none());
    is_copy(&end(&one), &snapshot, &end(&two), &reports[0].snapshot);
    let blank = over(&two, two.memory.clone());
    comes_back(&blank, &reports[0].snapshot, one.folder.path(), &source);
}

#[test]
fn beside_an_older_copy_or_not_it_is_the_same_tree() {
    for seed in 0..4 {
        let (one, two) = (bench(), bench());
        let source = one.folder.path().join("source");
        fs::create_dir(&source).unwrap();
        let _ends = tree::Unprotect(&source);
        tree::random(&source, seed, 1500).unwrap();
        let mut before: Option<Snapshot> = None;
        for step in 0..4 {
            settle();
            let snapshot = one.backup(&source).snapshot.unwrap();
            let reports = copy_all(&end(&one), &end(&two));
            assert_eq!(reports.len(), 1);
            let Report { snapshot: copy, beside, .. } = &reports[0];
            assert_eq!(beside.as_ref().map(|b| b.id), before.as_ref().map(|b| b.id));
            is_copy(&end(&one), &snapshot, &end(&two), copy);
            // Without the older one there is nothing to take over, and the nodes are the same all the same.
            let mut copier = Copier::new(end(&one), end(&two), how()).unwrap();
            let info = infos(&end(&one)).pop().unwrap();
            let alone = copier.copy(&info, &[], &Quiet::default()).unwrap();
            assert!(alone.beside.is_none());
            assert_eq!(alone.snapshot.root, copy.root, "seed {seed}, step {step}");
            two.repository.remove_snapshot(alone.snapshot.id).unwrap();
            let known = |of: &Option<Snapshot>| of.as_ref().map(|s| s.first_id());
            assert_eq!(copy.parent.is_some(), before.is_some());
            let parent = infos(&end(&two)).into_iter().map(|i| i.snapshot).find(|s| Some(s.id) == copy.parent);
            assert_eq!(known(&parent), known(&before));
            before = Some(snapshot);
            tree::mutate(&source, seed * 100 + step).unwrap();
        }
    }
}

#[test]
fn what_is_copied_is_not_copied_again_and_what_is_alike_is_not_read_again() {
    let (one, two) = (bench(), bench());
    let folder = source(&one);
    let first = one.backup(&folder).snapshot.unwrap();
    let (from, read) = recorded(&one);
    let (to, written) = recorded(&two);
    assert_eq!(copy_all(&from, &to).len(), 1);
    assert!(data_read(&read) > 14 << 20);
    assert_eq!(read.writes(), []);
    read.take();
    written.take();
    assert_eq!(copy_all(&from, &to).len(), 0);
    assert_eq!(written.writes(), [], "a second copy of the same writes nothing");
    assert_eq!(data_read(&read), 0);

    // One file is new, one has other times alone, one has other contents, and the rest is as it was.
    fs::write(folder.join("many/new"), Rng::new(9).bytes(20_000)).unwrap();
    fs::write(folder.join("many/7"), Rng::new(8).bytes(5000)).unwrap();
    let now = fs::FileTimes::new().set_modified(std::time::SystemTime::now());
    fs::File::options().write(true).open(folder.join("large")).unwrap().set_times(now).unwrap();
    settle();
    let second = one.backup(&folder).snapshot.unwrap();
    let (from, read) = recorded(&one);
    let reports = copy_all(&from, &to);
    assert_eq!(reports.len(), 1);
    let bytes = data_read(&read);
    assert!(bytes < 300 << 10, "{bytes} bytes of contents were read for 25,000 new ones");
    assert_eq!(reports[0].beside.as_ref().map(|s| s.id), Some(first.id));
    is_copy(&from, &second, &to, &reports[0].snapshot);
    comes_back(&to, &reports[0].snapshot, one.folder.path(), &folder);
}

#[test]
fn chunks_stay_what_they_are_whatever_the_target_would_cut() {
    let sizes = ChunkSizes { min: 2 << 10, normal: 4 << 10, max: 8 << 10 };
    let (one, two) = (bench(), bench_with(CreateOptions { chunks: sizes, block_bytes: 16 << 10, ..small() }));
    let folder = source(&one);
    let snapshot = one.backup(&folder).snapshot.unwrap();
    let copy = copy_all(&end(&one), &end(&two)).remove(0).snapshot;
    is_copy(&end(&one), &snapshot, &end(&two), &copy);
    comes_back(&end(&two), &copy, one.folder.path(), &folder);
    // And back: the copy of the copy is one of the first.
    let back = copy_all(&end(&two), &end(&one));
    assert!(back.is_empty(), "what it was called first is there");
    let three = bench();
    let third = copy_all(&end(&two), &end(&three)).remove(0).snapshot;
    is_copy(&end(&one), &snapshot, &end(&three), &third);
    assert!(copy_all(&end(&one), &end(&three)).is_empty());
}

/// Of packs that have lost their ends the index knows what was where: what a restore has back from a failing disk a copy
/// has, too.
#[test]
fn packs_without_their_tables_are_copied() {
    let (one, two) = (bench(), bench());
    let folder = source(&one);
    settle();
    let snapshot = one.backup(&folder).snapshot.unwrap();
    let index = Index::open(&one.repository, one.cache.clone()).unwrap();
    for info in index.packs() {
        let bytes = one.memory.get(&info.name()).unwrap();
        one.memory.put(&info.name(), &bytes[..info.table_offset as usize], Put::Replace).unwrap();
    }
    let (from, target) = (over(&one, one.memory.clone()), end(&two));
    let reports = copy_all(&from, &target);
    is_copy(&from, &snapshot, &target, &reports[0].snapshot);
    comes_back(&target, &reports[0].snapshot, two.folder.path(), &folder);
}

#[test]
fn an_empty_snapshot_and_a_partial_one() {
    let (one, two) = (bench(), bench());
    let folder = source(&one);
    // On a busy machine all that was read by then may still be on its way.
    let stopped = |mib: u64| {
        let stop = StopAfter::bytes(mib << 20);
        drumlin_engine::backup::backup(&one.repository, &one.cache, common::options(&[&folder]), &stop).ok()
    };
    let partial = (3..20).find_map(stopped).unwrap().snapshot.unwrap();
    assert!(partial.partial.is_some());
    let copy = copy_all(&end(&one), &end(&two)).remove(0).snapshot;
    is_copy(&end(&one), &partial, &end(&two), &copy);
    let whole = one.backup(&folder).snapshot.unwrap();
    let report = copy_all(&end(&one), &end(&two)).remove(0);
    assert_eq!(report.beside.map(|s| s.id), Some(partial.id));
    is_copy(&end(&one), &whole, &end(&two), &report.snapshot);
}

/// Ends an operation after so many bytes.
struct StopAfter {
    quiet: Quiet,
    bytes: u64,
}

impl StopAfter {
    fn bytes(bytes: u64) -> Self {
        StopAfter { quiet: Quiet::default(), bytes }
    }
}

impl Monitor for StopAfter {
    fn counters(&self) -> &Counters {
        self.quiet.counters()
    }

    fn problem(&self, problem: &Problem) {
        self.quiet.problem(problem);
    }

    fn stop(&self) -> bool {
        self.counters().get().bytes_read >= self.bytes
    }
}

fn folder_is_empty(memory: &MemoryStore, folder: &str) -> bool {
    let mut empty = true;
    memory.list(folder, &mut |_| empty = false).unwrap();
    empty
}

#[test]
fn interrupted_nothing_counts_and_what_was_stored_is_found() {
    let (one, two) = (bench(), bench());
    let folder = source(&one);
    one.backup(&folder);
    let stop = StopAfter::bytes(8 << 20);
    assert!(matches!(try_all(&end(&one), &end(&two), &stop), Err(Error::Interrupted)));
    assert!(infos(&end(&two)).is_empty());
    assert!(folder_is_empty(&two.memory, names::SESSIONS) && folder_is_empty(&two.memory, names::SNAPSHOTS));
    let again = Quiet::default();
    let reports = try_all(&end(&one), &end(&two), &again).unwrap();
    let counts = again.counters().get();
    assert!(counts.bytes_new + (6 << 20) < counts.bytes_read, "{counts:?}");
    comes_back(&over(&two, two.memory.clone()), &reports[0].snapshot, one.folder.path(), &folder);
}

#[test]
fn a_full_target_has_no_copy_and_takes_it_once_there_is_room() {
    let (one, two) = (bench(), bench());
    let folder = source(&one);
    one.backup(&folder);
    let store = FaultStore::new(two.memory.clone());
    let faults = store.faults();
    let to = over(&two, store);
    for room in [100, 5_000, 1 << 20, 10 << 20] {
        faults.full_after(room);
        match try_all(&end(&one), &to, &Quiet::default()) {
            Err(Error::Repo(RepoError::Store(e))) => assert_eq!(e.kind, Kind::Full, "{room}"),
            other => panic!("{room}: {other:?}"),
        }
        faults.clear();
        assert!(infos(&to).is_empty(), "{room}");
        assert!(folder_is_empty(&two.memory, names::SESSIONS), "{room}");
    }
    let copy = copy_all(&end(&one), &to).remove(0).snapshot;
    comes_back(&over(&two, two.memory.clone()), &copy, one.folder.path(), &folder);
}

fn with_role(bench: &Bench, role: Role) -> End {
    let secret = Secret::new([9; 32]);
    let key = bench.repository.add_key(role, &NewLock::File(secret.clone()), "", 1).unwrap();
    let text = bench.repository.key_file(key, &secret).to_string();
    let repository = Repository::open(Arc::new(bench.memory.clone()), &Unlock::File(text)).unwrap();
    let folder = bench.folder.path().join(format!("cache of {}", role.name()));
    let cache = Arc::new(Cache::open(&repository, Some(&folder), bench.folder.path()).unwrap());
    End { repository, cache }
}

#[test]
fn the_source_is_read_and_the_target_written_by_whoever_may() {
    let (one, two) = (bench(), bench());
    let folder = source(&one);
    let first = one.backup(&folder).snapshot.unwrap();
    let refused = |source: &End, target: &End| {
        let refused = Copier::new(source.clone(), target.clone(), how()).err().unwrap();
        assert!(matches!(refused, Error::Repo(RepoError::NotAllowed { .. })), "{refused}");
    };
    for role in [Role::Writer, Role::Keeper] {
        refused(&with_role(&one, role), &end(&two));
    }
    for role in [Role::Reader, Role::Keeper] {
        refused(&end(&one), &with_role(&two, role));
    }
    assert!(matches!(Copier::new(end(&one), end(&one), how()), Err(Error::Refused(_))));

    // A reader's key here and a writer's there are enough, for the next copy too: the writer knows its own by its
    // cache.
    let (from, to) = (with_role(&one, Role::Reader), with_role(&two, Role::Writer));
    let key = to.repository.key_file(to.repository.secrets().key, &Secret::new([9; 32])).to_string();
    let copy_at = |from: &End, to: &End| {
        let all = infos(from);
        let mut copier = Copier::new(from.clone(), to.clone(), how()).unwrap();
        let todo: Vec<_> =
            all.iter().filter(|info| copier.copy_of(&info.snapshot).unwrap().is_none()).cloned().collect();
        let monitor = Quiet::default();
        // Of what was copied before: it stays counted, whatever is attempted again.
        monitor.counters().damaged.store(5, Ordering::Relaxed);
        let copied: Vec<_> = todo.iter().map(|info| copier.copy(info, &all, &monitor).unwrap()).collect();
        assert_eq!(monitor.counters().get().damaged, 5);
        assert!(monitor.problems().is_empty());
        (copied, monitor.counters().get())
    };
    let (copied, _) = copy_at(&from, &to);
    assert_eq!(copied.len(), 1);
    assert!(copy_at(&from, &to).0.is_empty());
    fs::write(folder.join("many/more"), "more").unwrap();
    settle();
    let second = one.backup(&folder).snapshot.unwrap();
    let (copied, counts) = copy_at(&from, &to);
    assert_eq!(copied[0].beside.as_ref().map(|s| s.id), Some(first.id));
    assert_eq!(counts.bytes_read, 4, "the new file alone");
    is_copy(&end(&one), &second, &end(&two), &copied[0].snapshot);

    // The target's owner has sealed anew what that copy refers to, so that the writer can't read its tree any more: all
    // is compared with nothing, and stored once.
    let mut two = two;
    two.repository = two.repository.rekey(RekeyOptions { now: 5, remove_old: false }).unwrap().repository;
    let all = prune::Options { max_rekey: prune::Unused::Unlimited, ..common::prune_options() };
    prune::prune(&two.repository, &end(&two).cache, &all, &Quiet::default()).unwrap();
    fs::write(folder.join("many/last"), "at last").unwrap();
    settle();
    let third = one.backup(&folder).snapshot.unwrap();
    let to = End {
        repository: Repository::open(Arc::new(two.memory.clone()), &Unlock::File(key)).unwrap(),
        cache: to.cache,
    };
    let (copied, counts) = copy_at(&from, &to);
    assert_eq!((copied.len(), copied[0].beside.as_ref().map(|s| s.id)), (1, None));
    assert_eq!(counts.bytes_new, 7, "the new file alone");
    is_copy(&end(&one), &third, &end(&two), &copied[0].snapshot);
}

#[test]
fn what_nobody_known_has_signed_is_not_signed_by_us() {
    let (one, two) = (bench(), bench());
    one.backup(&source(&one));
    let mut info = infos(&end(&one)).remove(0);
    info.trust = drumlin_repo::Trust::Unknown(drumlin_format::KeyId(random_id().unwrap()));
    let mut copier = Copier::new(end(&one), end(&two), how()).unwrap();
    let refused = copier.copy(&info, &[], &Quiet::default());
    assert!(matches!(refused, Err(Error::Refused(_))));
    assert!(folder_is_empty(&two.memory, names::SESSIONS));
}

#[test]
fn damage_in_the_source_costs_what_it_hits() {
    let one = bench();
    let folder = source(&one);
    let whole = one.backup(&folder).snapshot.unwrap();
    let expected = told(&end(&one), &whole);
    let mut all = Vec::new();
    one.memory.list("", &mut |l| all.push(l.name)).unwrap();
    let packs: Vec<_> = all.iter().filter(|n| n.starts_with("data/") || n.starts_with("tree/")).cloned().collect();
    assert!(packs.len() > 6);
    let (mut hit, mut hollow) = (0, 0);
    for pack in &packs {
        for damage in ["gone", "bent"] {
            let store = MemoryStore::new();
            for name in &all {
                let mut copy = one.memory.get(name).unwrap();
                if name == pack {
                    if damage == "gone" {
                        continue;
                    }
                    wipe_parity(&mut copy);
                    (0..copy.len()).step_by(5000).skip(1).for_each(|at| copy[at] ^= 1);
                }
                store.put(name, &copy, Put::Create).unwrap();
            }
            let two = bench();
            let (from, monitor) = (over(&one, store), Quiet::default());
            let copy = match try_all(&from, &end(&two), &monitor) {
                Ok(mut copies) => copies.remove(0).snapshot,
                Err(Error::Hollow(id)) => {
                    assert!(
                        id == whole.id && infos(&end(&two)).is_empty() && folder_is_empty(&two.memory, names::SESSIONS)
                    );
                    hollow += 1;
                    continue;
                }
                Err(e) => panic!("{pack} {damage}: {e}"),
            };
            // By this a restore knows that it must not delete what the copy lacks.
            let lost = monitor.counters().get().damaged;
            assert_eq!(copy.summary.unreadable, whole.summary.unreadable + lost, "{pack} {damage}");
            let (damaged, problems) = (monitor.counters().get().damaged, monitor.problems());
            assert_eq!(damaged > 0, !problems.is_empty());
            // What is there is right: read by itself, from a repository that is whole.
            let got = told(&end(&two), &copy);
            let missing = |t: &Told| t.meta.marks & marks::CONTENTS_MISSING != 0;
            assert!(got.len() <= expected.len());
            let lost = expected.len() - got.len();
            let marked = got.iter().filter(|t| missing(t)).count();
            assert!(damaged > 0 || lost + marked == 0, "{pack} {damage}: {lost} lost and {marked} without contents");
            hit += usize::from(damaged > 0);
            for entry in got.iter().filter(|t| !missing(t)) {
                let Some(was) = expected.iter().find(|e| e.path == entry.path) else { panic!("{entry:?}") };
                if pack.starts_with("data/") {
                    assert_eq!(entry, was);
                }
                assert_eq!(entry.meta, was.meta);
            }
            let out = tempfile::tempdir_in(one.folder.path()).unwrap();
            let mut options = restore_options(&copy, out.path());
            options.subfolder = Some(copy.paths[0].clone());
            restore::restore(&two.repository, &two.cache, options, &Quiet::default()).unwrap();
            for entry in got.iter().filter(|t| !missing(t) && t.meta.kind == drumlin_format::tree::Kind::File) {
                let path = Path::new(std::str::from_utf8(&entry.path).unwrap());
                let inside = path.strip_prefix(&folder).unwrap();
                assert!(fs::read(path).unwrap() == fs::read(out.path().join(inside)).unwrap(), "{}", path.display());
            }

            // Once the source is whole again, the next snapshot has all of it.
            if pack.starts_with("data/") && damaged > 0 && damage == "gone" {
                let reports = {
                    let mut copier = Copier::new(end(&one), end(&two), how()).unwrap();
                    let all = infos(&end(&one));
                    let mut later = all[0].clone();
                    later.snapshot.id = drumlin_format::SnapshotId(random_id().unwrap());
                    later.snapshot.time.0 += 1;
                    copier.copy(&later, &all, &monitor).unwrap()
                };
                assert_eq!(reports.beside.as_ref().map(|b| b.id), Some(whole.id));
                assert_eq!(told(&end(&two), &reports.snapshot), expected);
            }
        }
    }
    assert!(hollow > 0, "the root was never lost");
    assert!(hit > packs.len(), "{hit} of {} damages were met", 2 * packs.len());
}

/// Two copies of a snapshot would count as two snapshots, for rules, too.
#[test]
fn what_another_run_copies_meanwhile_is_there_once() {
    let (one, two) = (bench(), bench());
    let folder = source(&one);
    one.backup(&folder);
    let (from, to) = (end(&one), end(&two));
    let is_first = AtomicBool::new(true);
    let then = {
        let (from, to) = (from.clone(), to.clone());
        move || {
            if is_first.swap(false, Ordering::Relaxed) {
                copy_all(&from, &to);
            }
        }
    };
    let store = WhileReading { inner: one.memory.clone(), prefix: "data/", then: Box::new(then) };
    let late = try_all(&over(&one, store), &to, &Quiet::default()).unwrap_err();
    assert!(matches!(&late, Error::Copied(_)), "{late}");
    assert_eq!(infos(&to).len(), 1);
    assert!(folder_is_empty(&two.memory, names::SESSIONS));
}

#[test]
fn a_damaged_target_gets_no_copy_that_would_not_be_whole() {
    let (one, two) = (bench(), bench());
    let folder = source(&one);
    one.backup(&folder);
    copy_all(&end(&one), &end(&two));
    fs::write(folder.join("many/more"), "more").unwrap();
    settle();
    one.backup(&folder);
    // All nodes of the copy are gone, which the index doesn't know.
    let mut trees = Vec::new();
    two.memory.list("tree", &mut |l| trees.push(l.name)).unwrap();
    for name in trees {
        two.memory.delete(&name).unwrap();
    }
    let to = over(&two, two.memory.clone());
    let refused = try_all(&end(&one), &to, &Quiet::default()).unwrap_err();
    assert!(matches!(&refused, Error::Refused(why) if why.contains("damaged in the target")), "{refused}");
    assert_eq!(infos(&to).len(), 1);
    assert!(folder_is_empty(&two.memory, names::SESSIONS));
}

/// Somebody forgets the snapshot meanwhile, and prunes: no copy with holes passes for it.
#[test]
fn what_is_forgotten_while_it_is_copied_leaves_no_copy() {
    let (one, two) = (bench(), bench());
    let folder = source(&one);
    let going = one.backup(&folder).snapshot.unwrap();
    let (repository, cache) = (one.repository.clone(), one.cache.clone());
    let is_first = AtomicBool::new(true);
    let then = move || {
        if is_first.swap(false, Ordering::Relaxed) {
            repository.forget(&[going.id]).unwrap();
            let all = prune::Options { allow_remove_all: true, ..common::prune_options() };
            prune::prune(&repository, &cache, &all, &Quiet::default()).unwrap();
        }
    };
    let store = WhileReading { inner: one.memory.clone(), prefix: "data/", then: Box::new(then) };
    let refused = try_all(&over(&one, store), &end(&two), &Quiet::default()).unwrap_err();
    assert!(matches!(&refused, Error::Refused(why) if why.contains("forgotten and pruned")), "{refused}");
    assert!(infos(&end(&two)).is_empty() && folder_is_empty(&two.memory, names::SESSIONS));
}

/// A repository that only receives copies gets back what it has lost by the next one.
#[test]
fn a_target_that_has_lost_contents_gets_whole_copies() {
    let (one, two) = (bench(), bench());
    let folder = source(&one);
    one.backup(&folder);
    copy_all(&end(&one), &end(&two));
    let mut packs = Vec::new();
    two.memory.list(names::DATA, &mut |l| packs.push((l.len, l.name))).unwrap();
    let (_, largest) = packs.into_iter().max().unwrap();
    two.memory.delete(&largest).unwrap();
    let how = repair::Options {
        host: "host".into(),
        damaged: Default::default(),
        spoiled: Default::default(),
        wait: Duration::ZERO,
        evict: Vec::new(),
        evict_after: Duration::from_secs(3600),
        workers: 2,
    };
    let report = repair::repair(&end(&two).repository, &end(&two).cache, &how, &Quiet::default()).unwrap();
    assert!(report.lost_chunks > 0, "{report:?}");
    fs::write(folder.join("many/more"), "more").unwrap();
    settle();
    let snapshot = one.backup(&folder).snapshot.unwrap();
    let copied = copy_all(&end(&one), &end(&two));
    is_copy(&end(&one), &snapshot, &end(&two), &copied.last().unwrap().snapshot);
    comes_back(&end(&two), &copied.last().unwrap().snapshot, two.folder.path(), &folder);
    // Once a repair or prune has seen that nothing is missing any more, what is alike is taken over again.
    let report = repair::repair(&end(&two).repository, &end(&two).cache, &how, &Quiet::default()).unwrap();
    assert_eq!((report.lost_chunks, report.healed), (0, 1), "{report:?}");
}

#[test]
fn between_repositories_with_several_generations() {
    let (mut from, mut to) = (bench(), bench());
    let tree = source(&from);
    from.backup(&tree);
    let rekey = |bench: &mut Bench| {
        let done = bench.repository.rekey(RekeyOptions { now: 5, remove_old: false }).unwrap();
        bench.repository = done.repository;
    };
    rekey(&mut from);
    fs::write(tree.join("after"), "what came after").unwrap();
    settle();
    from.backup(&tree);
    let (source, target) = (end(&from), end(&to));
    copy_all(&source, &target);
    rekey(&mut to);
    // What was copied before is found, whatever it is sealed with.
    let target = end(&to);
    assert!(copy_all(&source, &target).is_empty());
    fs::write(tree.join("last"), "what came last").unwrap();
    settle();
    from.backup(&tree);
    assert_eq!(copy_all(&source, &target).len(), 1);
    let (of, copies) = (infos(&source), infos(&target));
    assert_eq!((of.len(), copies.len()), (3, 3));
    for (of, copy) in of.iter().zip(&copies) {
        is_copy(&source, &of.snapshot, &target, &copy.snapshot);
    }
    comes_back(&target, &copies[2].snapshot, to.folder.path(), &tree);
}
