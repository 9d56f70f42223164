//! Backups beside a collection: the protocol's rules, under real snapshots. What is collected is told by the test; the
//! protocol itself is tried in every order in `repo`.

#[path = "../common/mod.rs"]
mod common;
mod meanwhile;
mod moved;

use common::{Bench, bench, options, prune_options, repair_options, settle};
use drumlin_engine::backup::{self, Parent, Report};
use drumlin_engine::monitor::Quiet;
use drumlin_engine::{parity, prune, repair};
use drumlin_format::decision::Verdict;
use drumlin_format::key::Role;
use drumlin_format::pack::PackKind;
use drumlin_format::plan::Plan;
use drumlin_format::session::Session;
use drumlin_format::snapshot::{Recipient, Snapshot};
use drumlin_format::{IndexId, KeyId, PackId, PlanId, SessionId, SnapshotId};
use drumlin_repo::collection::{
    Board, Collected, Desk, Draft, Flag, Known, Patience, Registration, Subject, collect, evict,
};
use drumlin_repo::history::Memory;
use drumlin_repo::{Cache, Index, NewLock, Repository, Unlock, WriteSession, names, random_id};
use drumlin_seal::{Secret, SigningKey};
use drumlin_store::{Fault, FaultStore, Kind, Listed, MemoryStore, Op, Put, Store, Upload, When};
use drumlin_testkit::Rng;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn source(bench: &Bench, name: &str, seed: u64) -> PathBuf {
    let source = bench.folder.path().join(name);
    fs::create_dir(&source).unwrap();
    for n in 0..20 {
        fs::write(source.join(n.to_string()), Rng::new(seed * 100 + n).bytes(50_000)).unwrap();
    }
    settle();
    source
}

fn objects<T>(bench: &Bench, folder: &str, parse: impl Fn(&str) -> Option<T>) -> Vec<T> {
    let mut found = Vec::new();
    bench.memory.list(folder, &mut |l| found.extend(parse(names::last(&l.name)))).unwrap();
    found
}

fn packs(bench: &Bench) -> Vec<PackId> {
    [PackKind::Data, PackKind::Tree]
        .iter()
        .flat_map(|kind| objects(bench, names::folder(*kind), PackId::parse))
        .collect()
}

fn plan(packs: Vec<PackId>, snapshots: Vec<SnapshotId>) -> Plan {
    let id = PlanId(random_id().unwrap());
    Plan { id, session: SessionId(random_id().unwrap()), packs, indexes: Vec::new(), snapshots, unnamed: Vec::new() }
}

fn again(bench: &Bench, source: &Path, parent: Parent) -> Report {
    let options = backup::Options { parent, ..options(&[source]) };
    backup::backup(&bench.repository, &bench.cache, options, &Quiet::default()).unwrap()
}

fn restores(bench: &Bench, report: &Report, source: &Path) {
    let target = bench.folder.path().join(format!("target-{}", report.snapshot.as_ref().unwrap().id));
    let (_, monitor) = bench.restore(report.snapshot.as_ref().unwrap(), source, &target);
    assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
    for n in 0..20 {
        assert!(fs::read(target.join(n.to_string())).unwrap() == fs::read(source.join(n.to_string())).unwrap());
    }
}

/// A removal that was not synced may be undone by a loss of power, and another one not: a session that came back
/// without its decision would take its snapshot with it.
#[test]
fn what_was_committed_counts_after_a_loss_of_power() {
    for keeps in ["", "decisions/", "sessions/", "nothing"] {
        let bench = bench();
        let source = source(&bench, "source", 1);
        let report = bench.backup(&source);
        bench.memory.crash_keeping(|name| name.starts_with(keeps));
        let (snapshots, errors) = bench.repository.snapshots().unwrap();
        assert!(errors.is_empty(), "{errors:?}");
        let listed: Vec<_> = snapshots.iter().map(|info| (info.snapshot.id, info.open_session)).collect();
        assert_eq!(
            listed,
            [(report.snapshot.as_ref().unwrap().id, false)],
            "of what was not synced '{keeps}' was kept"
        );
        restores(&bench, &report, &source);
    }
}

#[test]
fn a_writer_refers_to_nothing_that_a_plan_condemns() {
    let bench = bench();
    let source = source(&bench, "source", 1);
    let first = bench.backup(&source);
    let desk = Desk::new(&bench.repository);
    // A plan that has counted the snapshot, and so condemns nothing of it, admits it as a parent.
    let admitting = plan(vec![PackId([7; 16])], vec![first.snapshot.as_ref().unwrap().id]);
    desk.put_plan(&admitting).unwrap();
    let second = again(&bench, &source, Parent::Latest);
    assert_eq!((second.counts.unmodified, second.counts.bytes_read), (second.counts.entries, 0));
    assert_eq!(second.snapshot.as_ref().unwrap().plans, [admitting.id]);
    // Without it, all is read, and stored once more.
    let strict = plan(packs(&bench), Vec::new());
    desk.put_plan(&strict).unwrap();
    let third = again(&bench, &source, Parent::Latest);
    assert_eq!((third.counts.unmodified, third.counts.bytes_new), (0, first.counts.bytes_new));
    let named = again_fails(&bench, &source, Parent::Id(second.snapshot.as_ref().unwrap().id));
    assert!(named.contains("prune"), "{named}");
    // It knew both plans: for them it is a parent like any other.
    let fourth = again(&bench, &source, Parent::Latest);
    assert_eq!(fourth.counts.unmodified, fourth.counts.entries);
    for pack in strict.packs {
        [PackKind::Data, PackKind::Tree].iter().for_each(|k| bench.memory.delete(&names::pack(*k, pack)).unwrap());
    }
    restores(&bench, &third, &source);
    restores(&bench, &fourth, &source);
}

fn again_fails(bench: &Bench, source: &Path, parent: Parent) -> String {
    let options = backup::Options { parent, ..options(&[source]) };
    let failed = backup::backup(&bench.repository, &bench.cache, options, &Quiet::default());
    assert!(objects(bench, names::SESSIONS, SessionId::parse).is_empty(), "its session is over");
    failed.unwrap_err().to_string()
}

#[test]
fn what_only_an_evicted_session_names_is_read_and_not_referred_to() {
    let bench = bench();
    let source = source(&bench, "source", 2);
    let first = bench.backup(&source);
    let session = first.snapshot.as_ref().unwrap().session;
    let flag = Flag::Decision(session);
    Desk::new(&bench.repository).replace(flag, &Verdict::Evicted { plan: 0 }).unwrap();
    let second = again(&bench, &source, Parent::None);
    assert_eq!(second.counts.bytes_new, first.counts.bytes_new);
    // Somebody may have read it before the eviction: it stays in the index of those who restore.
    restores(&bench, &first, &source);
    restores(&bench, &second, &source);
    assert_eq!(again(&bench, &source, Parent::None).counts.bytes_new, 0);
}

/// Condemns what it is told to.
struct Told(Vec<PackId>, Vec<IndexId>);

impl Subject<Desk<'_>> for Told {
    type Error = drumlin_repo::Error;

    fn look(&mut self, _: &Desk, _: &Known) -> drumlin_repo::Result<Option<Draft>> {
        Ok(Some(Draft { packs: self.0.clone(), indexes: self.1.clone(), snapshots: Vec::new(), unnamed: Vec::new() }))
    }

    fn look_again(&mut self, _: &Desk, _: &mut Draft) -> drumlin_repo::Result<()> {
        Ok(())
    }

    fn plan_id(&mut self) -> drumlin_repo::Result<PlanId> {
        Ok(PlanId(random_id()?))
    }
}

#[test]
fn a_collection_removes_what_was_forgotten_beside_a_backup() {
    let bench = bench();
    let (one, two) = (source(&bench, "one", 3), source(&bench, "two", 4));
    let first = bench.backup(&one);
    let (gone, named) = (packs(&bench), objects(&bench, names::INDEX, IndexId::parse));
    let kept = bench.backup(&two);
    bench.repository.remove_snapshot(first.snapshot.unwrap().id).unwrap();
    // A backup that began before.
    let registration = Registration::begin(&bench.repository, Session::new("host", "backup", 0)).unwrap();
    let index = Arc::new(Index::open(&bench.repository, bench.cache.clone()).unwrap());
    let sleeper = WriteSession::begin(registration, index, bench.cache.clone());
    let desk = Desk::of(&bench.repository, Session::new("host", "prune", 0));
    let run = |patience: Patience| {
        let mut told = Told(gone.clone(), named.clone());
        collect(&desk, SessionId(random_id().unwrap()), &mut told, &mut |_| patience).unwrap()
    };
    assert_eq!(run(Patience::GiveUp), Collected::Blocked(sleeper.id()));
    assert!(gone.iter().all(|pack| packs(&bench).contains(pack)), "nothing happened");
    assert!(matches!(run(Patience::Evict), Collected::Done(_)));
    assert!(gone.iter().all(|pack| !packs(&bench).contains(pack)));
    for folder in [names::PLANS, names::SESSIONS] {
        assert!(objects(&bench, folder, |name| Some(name.to_owned())).is_empty(), "{folder} is cleared up");
    }
    // It wakes up.
    let id = sleeper.id();
    let mut late = kept.snapshot.clone().unwrap();
    (late.id, late.session) = (SnapshotId(random_id().unwrap()), id);
    assert!(matches!(sleeper.put_snapshot(&late), Err(drumlin_repo::Error::Evicted)));
    assert!(matches!(sleeper.commit(late.id), Err(drumlin_repo::Error::Evicted)));
    let (snapshots, errors) = bench.repository.snapshots().unwrap();
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(snapshots.iter().map(|s| s.snapshot.id).collect::<Vec<_>>(), [kept.snapshot.as_ref().unwrap().id]);
    restores(&bench, &kept, &two);
    // What is gone is stored once more, not referred to.
    let back = again(&bench, &one, Parent::Latest);
    assert!(back.counts.bytes_new > 900_000);
    restores(&bench, &back, &one);
}

/// A checkpoint whose answer was lost may be there, or an index object: its session goes on protecting what they refer
/// to, until it is evicted. A checkpoint that was put is committed when the run fails later.
#[test]
fn a_run_that_fails_ends_its_session_only_if_nothing_of_it_is_in_doubt() {
    for (name, kind, snapshots, sessions) in [
        ("snapshots/*", Kind::Io, 1, 1),
        ("index/*", Kind::Io, 1, 1),
        ("index/*", Kind::Refused, 1, 0),
        ("data/*", Kind::Io, 0, 0),
    ] {
        let bench = bench();
        let source = source(&bench, "source", 5);
        // So many directories that several checkpoints fall between them.
        for n in 0..60 {
            fs::create_dir(source.join(format!("dir-{n}"))).unwrap();
            fs::write(source.join(format!("dir-{n}/file")), Rng::new(900 + n).bytes(900_000)).unwrap();
        }
        settle();
        let op = if name == "data/*" { Op::Upload } else { Op::Put };
        // Of packs the first one: later ones may come behind a checkpoint.
        let skip = u64::from(name.starts_with("index/"));
        let when = When::op(op).named(name).skip(skip);
        let faults = FaultStore::new(bench.memory.clone());
        faults.faults().add(when, Fault::FailAfter(kind));
        let repository = Repository::open(Arc::new(faults), &Unlock::File(bench.key_file())).unwrap();
        let options = backup::Options { checkpoint_bytes: 1, ..options(&[&source]) };
        assert!(backup::backup(&repository, &bench.cache, options, &Quiet::default()).is_err());
        assert_eq!(objects(&bench, names::SNAPSHOTS, SnapshotId::parse).len(), snapshots, "{name}, {kind:?}");
        assert_eq!(objects(&bench, names::SESSIONS, SessionId::parse).len(), sessions, "{name}, {kind:?}");
    }
}

/// A failure is no answer: the next prune settles what was decided.
#[test]
fn a_prune_whose_decision_is_in_doubt_takes_nothing_back() {
    for fault in [Fault::Fail(Kind::Io), Fault::FailAfter(Kind::Io)] {
        let bench = bench();
        let (gone, kept) = (source(&bench, "gone", 1), source(&bench, "kept", 2));
        let forgotten = bench.backup(&gone).snapshot.unwrap();
        let report = bench.backup(&kept);
        bench.repository.remove_snapshot(forgotten.id).unwrap();
        let before = packs(&bench).len();
        let faults = FaultStore::new(bench.memory.clone());
        faults.faults().add(When::op(Op::Put).named("decisions/*"), fault);
        let repository = Repository::open(Arc::new(faults), &Unlock::File(bench.key_file())).unwrap();
        assert!(prune::prune(&repository, &bench.cache, &prune_options(), &Quiet::default()).is_err());
        assert_eq!(packs(&bench).len(), before);
        let sessions = objects(&bench, names::SESSIONS, SessionId::parse);
        assert_eq!((objects(&bench, names::PLANS, PlanId::parse).len(), sessions.len()), (1, 1));
        let options = prune::Options { evict: sessions, ..prune_options() };
        prune::prune(&bench.repository, &bench.cache, &options, &Quiet::default()).unwrap();
        assert!(packs(&bench).len() < before);
        assert_eq!(objects(&bench, names::PLANS, PlanId::parse), []);
        restores(&bench, &report, &kept);
    }
}

/// It comes after a prune has removed what it names, as nobody's.
#[test]
fn an_index_object_that_takes_effect_late_is_believed_by_nobody() {
    let bench = bench();
    let source = source(&bench, "source", 7);
    let faults = FaultStore::new(bench.memory.clone());
    faults.faults().add(When::op(Op::Put).named("index/*"), Fault::FailAfter(Kind::Io));
    faults.faults().add(When::op(Op::Delete).named("index/*"), Fault::Fail(Kind::Io));
    let repository = Repository::open(Arc::new(faults), &Unlock::File(bench.key_file())).unwrap();
    assert!(backup::backup(&repository, &bench.cache, options(&[&source]), &Quiet::default()).is_err());
    let late = objects(&bench, names::INDEX, IndexId::parse);
    assert_eq!(late.len(), 1, "it is there, though it was said to have failed");
    let bytes = bench.memory.get(&names::index(late[0])).unwrap();
    bench.memory.delete(&names::index(late[0])).unwrap();
    let other = self::source(&bench, "other", 8);
    let kept = bench.backup(&other);
    let sessions = objects(&bench, names::SESSIONS, SessionId::parse);
    prune::prune(
        &bench.repository,
        &bench.cache,
        &prune::Options { evict: sessions, ..prune_options() },
        &Quiet::default(),
    )
    .unwrap();
    bench.memory.put(&names::index(late[0]), &bytes, Put::Create).unwrap();
    let again = again(&bench, &source, Parent::None);
    assert!(again.counts.bytes_new > 900_000);
    restores(&bench, &again, &source);
    restores(&bench, &kept, &other);
}

/// An object's name and bytes.
type Sent = (String, Vec<u8>);

/// A storage that may or may not let one of several create alone, and that may carry out once more what it was asked to
/// put.
struct Odd {
    memory: MemoryStore,
    atomic: bool,
    /// Of sessions, what was put, which may come once more.
    late: Option<Mutex<Vec<Sent>>>,
}

/// A storage that lets nobody create alone.
fn with_flags(memory: &MemoryStore) -> Odd {
    Odd { memory: memory.clone(), atomic: false, late: None }
}

impl Store for Odd {
    fn location(&self) -> String {
        self.memory.location()
    }
    fn creates_atomically(&self) -> drumlin_store::Result<bool> {
        Ok(self.atomic)
    }
    fn may_come_late(&self, name: &str) -> bool {
        self.late.as_ref().is_some_and(|late| late.lock().unwrap().iter().any(|(sent, _)| sent == name))
    }
    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed)) -> drumlin_store::Result<()> {
        self.memory.list(prefix, each)
    }
    fn len(&self, name: &str) -> drumlin_store::Result<Option<u64>> {
        self.memory.len(name)
    }
    fn get(&self, name: &str) -> drumlin_store::Result<Vec<u8>> {
        self.memory.get(name)
    }
    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> drumlin_store::Result<()> {
        self.memory.read_at(name, offset, buf)
    }
    fn put(&self, name: &str, bytes: &[u8], how: Put) -> drumlin_store::Result<()> {
        if let Some(late) = self.late.as_ref().filter(|_| name.starts_with(names::SESSIONS)) {
            late.lock().unwrap().push((name.to_owned(), bytes.to_vec()));
        }
        self.memory.put(name, bytes, if self.atomic { how } else { Put::Replace })
    }
    fn upload(&self, name: &str, len_hint: u64) -> drumlin_store::Result<Box<dyn Upload>> {
        self.memory.upload(name, len_hint)
    }
    fn delete(&self, name: &str) -> drumlin_store::Result<()> {
        self.memory.delete(name)
    }
    fn sync(&self) -> drumlin_store::Result<()> {
        self.memory.sync()
    }
}

/// One memory as a storage that creates atomically and as one that doesn't; first the one that it is copied from.
fn both_ways(memory: &MemoryStore, from_flags: bool) -> [Arc<dyn Store>; 2] {
    let mut both: [Arc<dyn Store>; 2] = [Arc::new(memory.clone()), Arc::new(with_flags(memory))];
    if from_flags {
        both.reverse();
    }
    both
}

/// A repository on a storage that lets one of several create, or one that lets nobody create alone.
fn bench_on(flags: bool) -> Bench {
    let memory = MemoryStore::new();
    let [store, _] = both_ways(&memory, flags);
    common::bench_over(store, memory, tempfile::tempdir().unwrap(), common::small())
}

/// Where the writer's own word on its session is there.
fn own_word(flags: bool, session: SessionId) -> String {
    let decision = names::decision(session);
    if flags { decision + ".commit" } else { decision }
}

/// The same storage, which lets nobody remove anything.
fn adding(bench: &Bench) -> Repository {
    let faults = FaultStore::new(bench.repository.store().clone());
    faults.faults().add(When::op(Op::Delete), Fault::Fail(Kind::Refused));
    Repository::open(Arc::new(faults), &Unlock::File(bench.key_file())).unwrap()
}

/// As [`Told`], by a collector that sleeps before its second look, and is evicted.
struct Sleeper(SessionId, Vec<PackId>);

impl Subject<Desk<'_>> for Sleeper {
    type Error = drumlin_repo::Error;

    fn look(&mut self, _: &Desk, _: &Known) -> drumlin_repo::Result<Option<Draft>> {
        Ok(Some(Draft { packs: self.1.clone(), ..Draft::default() }))
    }

    fn look_again(&mut self, desk: &Desk, draft: &mut Draft) -> drumlin_repo::Result<()> {
        evict(desk, self.0, SessionId([9; 16]))?;
        // So that it puts another plan.
        draft.snapshots.push(SnapshotId([8; 16]));
        Ok(())
    }

    fn plan_id(&mut self) -> drumlin_repo::Result<PlanId> {
        Ok(PlanId(random_id()?))
    }
}

/// It learns that it was evicted when it has put its word: which nobody else must take for one. As nobody knows what
/// came first, what its plans condemn is taken for gone, but isn't, until all that is needed of it is elsewhere.
#[test]
fn what_an_evicted_collector_decided_is_not_carried_out_by_the_next() {
    let bench = bench();
    let source = source(&bench, "source", 6);
    let report = bench.backup(&source);
    let flags = Arc::new(with_flags(&bench.memory));
    let repository = Repository::open(flags, &Unlock::File(bench.key_file())).unwrap();
    let desk = Desk::of(&repository, Session::new("host", "prune", 0));
    let me = SessionId(random_id().unwrap());
    let mut sleeper = Sleeper(me, packs(&bench));
    assert_eq!(collect(&desk, me, &mut sleeper, &mut |_| Patience::GiveUp).unwrap(), Collected::Evicted);
    let plans = || objects(&bench, names::PLANS, PlanId::parse);
    assert_eq!(plans().len(), 2, "as if it had been killed");
    let mut next = Told(Vec::new(), Vec::new());
    collect(&desk, SessionId(random_id().unwrap()), &mut next, &mut |_| Patience::GiveUp).unwrap();
    assert_eq!(plans().len(), 2, "somebody may carry them out yet");
    assert_eq!(packs(&bench).len(), sleeper.1.len());
    restores(&bench, &report, &source);
    let prune = || prune::prune(&repository, &bench.cache, &prune_options(), &Quiet::default()).unwrap();
    prune();
    assert!(!packs(&bench).iter().any(|pack| sleeper.1.contains(pack)), "what was condemned has been moved");
    restores(&bench, &report, &source);
    prune();
    assert!(plans().is_empty(), "plans are left of which nothing comes");
    restores(&bench, &report, &source);
}

/// Somebody's key that may only write, and what it may put.
fn thief(bench: &Bench) -> Repository {
    let secret = Secret::new([7; 32]);
    let key = bench.repository.add_key(Role::Writer, &NewLock::File(secret.clone()), "thief", 0).unwrap();
    let file = bench.repository.key_file(key, &secret).to_string();
    Repository::open(Arc::new(bench.memory.clone()), &Unlock::File(file)).unwrap()
}

fn counts(bench: &Bench, report: &Report) -> bool {
    let id = report.snapshot.as_ref().unwrap().id;
    let standing = bench.repository.standing_snapshots().unwrap();
    let listed = bench.repository.snapshots().unwrap().0;
    listed.iter().any(|info| info.snapshot.id == id) && standing.iter().any(|snapshot| snapshot.id == id)
}

/// A session and a decision on it are its writer's: nobody else's take away what he has saved.
#[test]
fn another_writers_word_on_a_session_is_worth_nothing() {
    for (decides, registers) in [(true, false), (true, true), (false, true)] {
        let bench = bench();
        let source = source(&bench, "source", 7);
        let report = bench.backup(&source);
        let session = report.snapshot.as_ref().unwrap().session;
        let thief = thief(&bench);
        let theirs = Desk::of(&thief, Session::new("elsewhere", "backup", 0));
        if registers {
            theirs.put_session(session).unwrap();
        }
        if decides {
            let other = Verdict::Committed { snapshot: SnapshotId([1; 16]) };
            theirs.create(Flag::Decision(session), &other).unwrap();
            assert!(counts(&bench, &report), "decides {decides}, registers {registers}");
        }
        evict(&Desk::new(&bench.repository), session, SessionId([9; 16])).unwrap();
        assert!(counts(&bench, &report), "decides {decides}, registers {registers}");
        assert!(objects(&bench, names::SESSIONS, SessionId::parse).is_empty());
        restores(&bench, &report, &source);
    }
}

/// Nor does anything under the name of a session that is over, by whoever may add to the storage.
#[test]
fn a_session_that_is_put_again_takes_no_snapshot_with_it() {
    for (flags, replayed) in [(false, true), (false, false), (true, true), (true, false)] {
        let bench = bench_on(flags);
        let source = source(&bench, "source", 8);
        // An account that may remove nothing leaves its session, which somebody may keep.
        let report = backup::backup(&adding(&bench), &bench.cache, options(&[&source]), &Quiet::default()).unwrap();
        let session = report.snapshot.as_ref().unwrap().session;
        let name = names::session(session);
        let kept = bench.memory.get(&name).unwrap();
        evict(&Desk::new(&bench.repository), session, SessionId([9; 16])).unwrap();
        assert!(counts(&bench, &report) && bench.memory.get(&name).is_err());
        let memory = Arc::new(Memory::open(&bench.repository, None));
        let repository = bench.repository.clone().with_memory(memory);
        repository.look_back(1, true).unwrap();
        bench.memory.put(&name, if replayed { &kept } else { b"odd" }, Put::Create).unwrap();
        evict(&Desk::new(&repository), session, SessionId([9; 16])).unwrap();
        assert!(counts(&bench, &report), "flags: {flags}, replayed: {replayed}");
        assert!(objects(&bench, names::SESSIONS, SessionId::parse).is_empty());
    }
}

/// A session's put whose answer was lost is carried out once more, minutes later: when the backup has long ended. For
/// clients that have never seen the snapshot, too, it counts; and once it is forgotten nothing is left of all that.
#[test]
fn a_session_that_comes_back_takes_no_snapshot_with_it() {
    for atomic in [true, false] {
        let bench = bench_on(!atomic);
        let source = source(&bench, "source", 8);
        let storage = Arc::new(Odd { memory: bench.memory.clone(), atomic, late: Some(Mutex::default()) });
        let repository = Repository::open(storage.clone(), &Unlock::File(bench.key_file())).unwrap();
        let report = backup::backup(&repository, &bench.cache, options(&[&source]), &Quiet::default()).unwrap();
        let sent = storage.late.as_ref().unwrap().lock().unwrap().clone();
        assert_eq!(sent.len(), 1);
        let come_back = || bench.memory.put(&sent[0].0, &sent[0].1, Put::Create).unwrap();
        let prune = || prune::prune(&bench.repository, &bench.cache, &prune_options(), &Quiet::default()).unwrap();
        prune();
        come_back();
        assert!(counts(&bench, &report), "atomic: {atomic}, listed");
        prune();
        evict(&Desk::new(&bench.repository), report.snapshot.as_ref().unwrap().session, SessionId([9; 16])).unwrap();
        assert!(counts(&bench, &report) && bench.memory.get(&sent[0].0).is_err(), "atomic: {atomic}, pruned");
        restores(&bench, &report, &source);
        // Another one, which doesn't come back, leaves its decision for as long as its snapshot is there.
        fs::write(source.join("new"), "new").unwrap();
        settle();
        backup::backup(&repository, &bench.cache, options(&[&source]), &Quiet::default()).unwrap();
        prune();
        assert_eq!(objects(&bench, names::DECISIONS, |name| Some(name.len())).len(), 1, "atomic: {atomic}");
        let all: Vec<_> = bench.repository.snapshots().unwrap().0.iter().map(|info| info.snapshot.id).collect();
        bench.repository.forget(&all[1..]).unwrap();
        prune();
        assert!(objects(&bench, names::DECISIONS, |name| Some(name.len())).is_empty(), "atomic: {atomic}");
        restores(&bench, &report, &source);
    }
}

/// Cut short on a storage that can't name a file after it is written, or damaged later.
#[test]
fn a_decision_that_nobody_can_read_stops_nobody() {
    for flags in [false, true] {
        let bench = bench_on(flags);
        let source = source(&bench, "source", 9);
        let report = backup::backup(&adding(&bench), &bench.cache, options(&[&source]), &Quiet::default()).unwrap();
        let session = report.snapshot.as_ref().unwrap().session;
        bench.memory.put(&own_word(flags, session), b"torn", Put::Replace).unwrap();
        assert!(counts(&bench, &report), "it is whole, whatever was to be said of it");
        let (_, errors) = bench.repository.snapshots().unwrap();
        assert!(errors.len() == 1 && errors[0].to_string().contains("decisions/"), "{errors:?}");
        // What only it names is stored once more: nobody knows whether it was evicted.
        let second = backup::backup(&bench.repository, &bench.cache, options(&[&source]), &Quiet::default()).unwrap();
        restores(&bench, &second, &source);
        // Whoever comes to clear up finds a session that was done.
        let desk = Desk::of(&bench.repository, Session::new("host", "prune", 0));
        let mut told = Told(Vec::new(), Vec::new());
        let done = collect(&desk, SessionId(random_id().unwrap()), &mut told, &mut |_| Patience::GiveUp).unwrap();
        assert!(matches!(done, Collected::Done(_)), "{done:?}");
        assert!(counts(&bench, &report) && counts(&bench, &second));
        assert!(objects(&bench, names::SESSIONS, SessionId::parse).is_empty());
        assert!(objects(&bench, names::DECISIONS, |name| Some(name.to_owned())).is_empty());
        // Of one that has put nothing nothing counts, and it never will.
        let registration = Registration::begin(&bench.repository, Session::new("host", "backup", 0)).unwrap();
        let index = Arc::new(Index::open(&bench.repository, bench.cache.clone()).unwrap());
        let sleeper = WriteSession::begin(registration, index, bench.cache.clone());
        bench.memory.put(&own_word(flags, sleeper.id()), b"", Put::Replace).unwrap();
        let run =
            |patience| collect(&desk, SessionId(random_id().unwrap()), &mut Told(vec![], vec![]), &mut |_| patience);
        assert_eq!(run(Patience::GiveUp).unwrap(), Collected::Blocked(sleeper.id()));
        assert!(matches!(run(Patience::Evict).unwrap(), Collected::Done(_)));
        let mut late = report.snapshot.clone().unwrap();
        (late.id, late.session) = (SnapshotId(random_id().unwrap()), sleeper.id());
        assert!(matches!(sleeper.put_snapshot(&late), Err(drumlin_repo::Error::Evicted)));
        assert!(matches!(sleeper.commit(late.id), Err(drumlin_repo::Error::Evicted)));
    }
}

/// Who may only add, even without a key, can put rubbish in the place of a decision, and a snapshot that names the
/// session.
#[test]
fn what_others_put_ends_no_session() {
    for flags in [false, true] {
        let bench = bench_on(flags);
        let source = source(&bench, "source", 11);
        let report = bench.backup(&source);
        let config = bench.repository.config();
        let add = |role| bench.repository.add_key(role, &NewLock::File(Secret::new([7; 32])), "", 1).unwrap();
        let key = add(Role::Writer);
        let file = bench.repository.key_file(key, &Secret::new([7; 32])).to_string();
        let writer = Repository::open(Arc::new(bench.memory.clone()), &Unlock::File(file)).unwrap();
        let certified = writer.secrets().signing.clone().unwrap();
        for (signer, signing) in [(KeyId([1; 16]), SigningKey::new(Secret::new([9; 32])).unwrap()), (key, certified)] {
            let registration = Registration::begin(&bench.repository, Session::new("host", "backup", 0)).unwrap();
            let index = Arc::new(Index::open(&bench.repository, bench.cache.clone()).unwrap());
            let sleeper = WriteSession::begin(registration, index, bench.cache.clone());
            let mut forged = report.snapshot.clone().unwrap();
            (forged.id, forged.session) = (SnapshotId(random_id().unwrap()), sleeper.id());
            let to = Recipient { suite: config.suite, generation: 0, meta_key: &config.meta_key };
            let (fresh, seed) = (Secret::new([5; 32]), Secret::new([6; 32]));
            let bytes = drumlin_format::snapshot::seal(&forged, (signer, &signing), to, &fresh, &seed).unwrap();
            bench.memory.put(&names::snapshot(forged.id), &bytes, Put::Create).unwrap();
            bench.memory.put(&own_word(flags, sleeper.id()), b"rubbish", Put::Create).unwrap();
            let desk = Desk::of(&bench.repository, Session::new("host", "prune", 0));
            let mut told = Told(vec![], vec![]);
            let run = collect(&desk, SessionId(random_id().unwrap()), &mut told, &mut |_| Patience::GiveUp).unwrap();
            assert_eq!(run, Collected::Blocked(sleeper.id()), "it is at work");
            bench.memory.delete(&own_word(flags, sleeper.id())).unwrap();
            let mut late = report.snapshot.clone().unwrap();
            (late.id, late.session) = (SnapshotId(random_id().unwrap()), sleeper.id());
            sleeper.put_snapshot(&late).and_then(|()| sleeper.commit(late.id)).unwrap();
        }
    }
}

/// A storage that was put back to a time before it, or somebody who clears up by hand: nothing protects what it refers
/// to. One that is far away is told of the snapshot before it has said whether the session is there.
#[test]
fn a_session_that_is_gone_commits_nothing() {
    for far in [false, true] {
        let memory = MemoryStore::new();
        let store = if far { memory.far() } else { memory.clone() };
        let bench = common::bench_over(Arc::new(store), memory, tempfile::tempdir().unwrap(), common::small());
        let source = source(&bench, "source", 10);
        let report = bench.backup(&source);
        let before = objects(&bench, names::SNAPSHOTS, SnapshotId::parse);
        let registration = Registration::begin(&bench.repository, Session::new("host", "backup", 0)).unwrap();
        let index = Arc::new(Index::open(&bench.repository, bench.cache.clone()).unwrap());
        let session = WriteSession::begin(registration, index, bench.cache.clone());
        bench.memory.delete(&names::session(session.id())).unwrap();
        let mut late = report.snapshot.clone().unwrap();
        (late.id, late.session) = (SnapshotId(random_id().unwrap()), session.id());
        let put = session.put_snapshot(&late);
        let Err(drumlin_repo::Error::SessionLost { .. }) = put else { panic!("far {far}: {put:?}") };
        assert_eq!(objects(&bench, names::SNAPSHOTS, SnapshotId::parse), before, "far {far}");
        let (snapshots, errors) = bench.repository.snapshots().unwrap();
        assert!(errors.is_empty(), "{errors:?}");
        let counting: Vec<_> = snapshots.iter().map(|info| info.snapshot.id).collect();
        assert_eq!(counting, [report.snapshot.as_ref().unwrap().id], "far {far}");
    }
}
