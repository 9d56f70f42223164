//! Backups beside a collection: the protocol's rules, under real snapshots. What is collected is told by the test; the
//! protocol itself is tried in every order in `repo`.

mod common;

use common::{Bench, bench, options, settle};
use drumlin_engine::backup::{self, Parent, Report};
use drumlin_engine::monitor::Quiet;
use drumlin_format::decision::Verdict;
use drumlin_format::pack::PackKind;
use drumlin_format::plan::Plan;
use drumlin_format::session::Session;
use drumlin_format::{IndexId, PackId, PlanId, SessionId, SnapshotId};
use drumlin_repo::collection::{Board, Collected, Desk, Draft, Flag, Known, Patience, Registration, Subject, collect};
use drumlin_repo::{Index, Repository, Unlock, WriteSession, names, random_id};
use drumlin_store::{Fault, FaultStore, Kind, Op, Store, When};
use drumlin_testkit::Rng;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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

/// A removal that was not synced may be undone by a loss of power, and another one not: a session that came back without its
/// decision would take its snapshot with it.
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
    sleeper.put_snapshot(&late).unwrap();
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

/// A checkpoint whose answer was lost may be there: its session goes on protecting what it refers to. One that was put
/// is committed when the run fails later.
#[test]
fn a_run_that_fails_ends_its_session_only_if_no_snapshot_is_in_doubt() {
    for in_doubt in [true, false] {
        let bench = bench();
        let source = source(&bench, "source", 5);
        // So many directories that several checkpoints fall between them.
        for n in 0..60 {
            fs::create_dir(source.join(format!("dir-{n}"))).unwrap();
            fs::write(source.join(format!("dir-{n}/file")), Rng::new(900 + n).bytes(900_000)).unwrap();
        }
        settle();
        let when =
            if in_doubt { When::op(Op::Put).named("snapshots/*") } else { When::op(Op::Put).named("index/*").skip(1) };
        let faults = FaultStore::new(bench.memory.clone());
        faults.faults().add(when, Fault::FailAfter(Kind::Io));
        let repository = Repository::open(Arc::new(faults), &Unlock::File(bench.key_file())).unwrap();
        let options = backup::Options { checkpoint_bytes: 1, ..options(&[&source]) };
        assert!(backup::backup(&repository, &bench.cache, options, &Quiet::default()).is_err());
        assert_eq!(objects(&bench, names::SNAPSHOTS, SnapshotId::parse).len(), 1);
        assert_eq!(objects(&bench, names::SESSIONS, SessionId::parse).len(), usize::from(in_doubt));
    }
}
