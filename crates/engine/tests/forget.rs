//! Forgetting and having back, on real snapshots: what is forgotten is out of the list and whole for as long as its
//! packs are; what is not whole any more doesn't come back; no failure of the storage loses a snapshot.

mod common;

use common::{Bench, bench, options, settle};
use drumlin_engine::forget::{Count, GroupBy, Options, Plan, Rules};
use drumlin_engine::monitor::{Counters, Monitor, Problem, Quiet};
use drumlin_engine::select::SnapshotFilter;
use drumlin_engine::undelete::{self, undelete};
use drumlin_engine::{Error, backup};
use drumlin_format::key::Role;
use drumlin_format::pack::PackKind;
use drumlin_format::plan::Plan as Condemned;
use drumlin_format::snapshot::{self, Recipient, Snapshot};
use drumlin_format::{KeyId, PackId, PlanId, SessionId, SnapshotId};
use drumlin_repo::collection::{Board, Desk, evict};
use drumlin_repo::{Error as RepoError, NewLock, Repository, Unlock, names, random_id, random_secret};
use drumlin_seal::{Secret, SigningKey};
use drumlin_store::{Fault, FaultStore, Faults, Kind, Op, Put, Store, When};
use drumlin_testkit::{Rng, compare};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files of one chunk, of some, and of so many that their list has nodes of its own.
fn source(bench: &Bench, name: &str, seed: u64) -> PathBuf {
    let source = bench.folder.path().join(name);
    fs::create_dir(&source).unwrap();
    for n in 0..20 {
        fs::write(source.join(n.to_string()), Rng::new(seed * 100 + n).bytes(30_000)).unwrap();
    }
    fs::write(source.join("image"), Rng::new(seed).bytes(5 << 20)).unwrap();
    settle();
    source
}

fn snapshots(repository: &Repository) -> Vec<Snapshot> {
    let (infos, errors) = repository.snapshots().unwrap();
    assert!(errors.is_empty(), "{errors:?}");
    infos.into_iter().map(|info| info.snapshot).collect()
}

fn ids(snapshots: &[Snapshot]) -> Vec<SnapshotId> {
    snapshots.iter().map(|s| s.id).collect()
}

fn back(bench: &Bench, repository: &Repository, id: SnapshotId) -> drumlin_engine::Result<undelete::Report> {
    let (infos, errors) = repository.forgotten().unwrap();
    assert!(errors.is_empty(), "{errors:?}");
    let forgotten = infos.into_iter().find(|info| info.snapshot.id == id).unwrap();
    let options = undelete::Options { forgotten, host: "host".into(), workers: 2, now: 7 };
    undelete(repository, &bench.cache, &options, &Quiet::default())
}

fn restores(bench: &Bench, snapshot: &Snapshot, source: &Path) {
    let target = tempfile::tempdir_in(bench.folder.path()).unwrap();
    let (report, monitor) = bench.restore(snapshot, source, target.path());
    assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
    assert_eq!(report.counts.damaged, 0);
    compare::assert_same(source, target.path(), &compare::Options { roots: false, ..Default::default() });
}

/// All objects and their bytes.
fn objects(store: &impl Store) -> BTreeMap<String, Vec<u8>> {
    let mut names = Vec::new();
    store.list("", &mut |l| names.push(l.name)).unwrap();
    names.into_iter().map(|name| (name.clone(), store.get(&name).unwrap())).collect()
}

fn packs(bench: &Bench, kind: PackKind) -> Vec<String> {
    objects(&bench.memory).into_keys().filter(|name| name.starts_with(names::folder(kind))).collect()
}

/// The repository, opened over a storage that fails as planned.
fn failing(bench: &Bench) -> (Repository, Faults) {
    let store = FaultStore::new(bench.memory.clone());
    let faults = store.faults();
    (Repository::open(Arc::new(store), &Unlock::File(bench.key_file())).unwrap(), faults)
}

#[test]
fn what_is_forgotten_can_be_had_back() {
    let bench = bench();
    let (one, two) = (source(&bench, "one", 1), source(&bench, "two", 2));
    let (first, second) = (bench.backup(&one).snapshot.unwrap(), bench.backup(&two).snapshot.unwrap());
    let before = objects(&bench.memory);
    bench.repository.forget(&[first.id]).unwrap();
    assert_eq!(ids(&snapshots(&bench.repository)), [second.id]);
    let after = objects(&bench.memory);
    assert_eq!(after[&names::forgotten(first.id)], before[&names::snapshot(first.id)], "the same bytes");
    let entries = after.keys().filter(|name| name.starts_with(names::HISTORY)).count();
    assert_eq!((after.len(), entries), (before.len() + 1, 1), "and a word on who did it");
    let (forgotten, errors) = bench.repository.forgotten().unwrap();
    assert!(errors.is_empty());
    assert_eq!(forgotten.iter().map(|f| &f.snapshot).collect::<Vec<_>>(), [&first]);
    restores(&bench, &second, &two);
    // Once more is no error; a snapshot that never was is one.
    bench.repository.forget(&[first.id]).unwrap();
    let unknown = bench.repository.forget(&[second.id, SnapshotId([9; 16])]);
    assert!(matches!(unknown, Err(RepoError::NoSnapshot(_))));
    assert_eq!(ids(&snapshots(&bench.repository)), [second.id], "all or nothing");

    let report = back(&bench, &bench.repository, first.id).unwrap();
    let new = report.snapshot;
    assert!(report.leftover.is_none() && new.id != first.id && new.session != first.session);
    assert_eq!(new.original, Some(first.id), "what it was called first");
    let as_it_was = Snapshot { id: first.id, session: first.session, original: None, ..new.clone() };
    assert_eq!(as_it_was, first, "all else is as it was");
    assert_eq!(snapshots(&bench.repository).len(), 2);
    restores(&bench, &new, &one);
    let all = objects(&bench.memory);
    for folder in [names::FORGOTTEN, names::SESSIONS, names::DECISIONS] {
        assert!(all.keys().all(|name| !name.starts_with(folder)), "{folder} is cleared up");
    }
    // It is a snapshot like any other: a backup compares with it.
    let again = bench.backup(&one);
    assert_eq!((again.counts.unmodified, again.counts.bytes_read), (again.counts.entries, 0));
}

#[test]
fn what_is_not_whole_stays_forgotten() {
    let bench = bench();
    let source = source(&bench, "source", 3);
    let snapshot = bench.backup(&source).snapshot.unwrap();
    bench.repository.forget(&[snapshot.id]).unwrap();
    let whole = objects(&bench.memory);
    let refused = |what: &str, part: &str| {
        let before = objects(&bench.memory);
        let error = back(&bench, &bench.repository, snapshot.id).unwrap_err();
        assert!(matches!(error, Error::Pruned { .. }), "{what}: {error}");
        let text = error.to_string();
        assert!(text.contains(part) && text.contains(&snapshot.id.to_string()), "{what}: {text}");
        assert!(objects(&bench.memory) == before, "{what}: something was written");
    };
    // Each pack in turn: gone, and cut short.
    let (data, tree) = (packs(&bench, PackKind::Data), packs(&bench, PackKind::Tree));
    assert!(data.len() > 2 && !tree.is_empty(), "{data:?} {tree:?}");
    for pack in &data {
        bench.memory.delete(pack).unwrap();
        refused(pack, "the contents of '/");
        bench.memory.put(pack, &whole[pack][..whole[pack].len() / 2], Put::Replace).unwrap();
        refused(pack, "the contents of '/");
        bench.memory.put(pack, &whole[pack], Put::Replace).unwrap();
    }
    for pack in &tree {
        bench.memory.delete(pack).unwrap();
        refused(pack, "");
        bench.memory.put(pack, &whole[pack], Put::Replace).unwrap();
    }
    // The index doesn't know them any more: a prune that is not done removing packs.
    let indexes: Vec<_> = whole.keys().filter(|name| name.starts_with(names::INDEX)).collect();
    indexes.iter().for_each(|name| bench.memory.delete(name).unwrap());
    refused("index", "its entries");
    indexes.iter().for_each(|name| bench.memory.put(name, &whole[*name], Put::Create).unwrap());
    // A prune is about to remove one, whatever it says of the snapshot.
    let id = |name: &String| PackId::parse(names::last(name)).unwrap();
    for pack in [&data[0], &tree[0]] {
        let plan = Condemned {
            id: PlanId(random_id().unwrap()),
            session: SessionId(random_id().unwrap()),
            packs: vec![id(pack)],
            indexes: Vec::new(),
            snapshots: vec![snapshot.id],
            unnamed: Vec::new(),
        };
        let desk = Desk::new(&bench.repository);
        desk.put_plan(&plan).unwrap();
        refused("plan", "");
        desk.remove_plan(plan.id).unwrap();
    }
    // Damage is told as that.
    bench.memory.put(&tree[0], &vec![0; whole[&tree[0]].len()], Put::Replace).unwrap();
    let damaged = back(&bench, &bench.repository, snapshot.id).unwrap_err();
    assert!(!matches!(damaged, Error::Pruned { .. }) && damaged.to_string().contains("damaged"), "{damaged}");
    bench.memory.put(&tree[0], &whole[&tree[0]], Put::Replace).unwrap();
    assert!(objects(&bench.memory) == whole);
    // And with a plan that condemns nothing of it, it comes back, and knows the plan.
    let plan = Condemned {
        id: PlanId([4; 16]),
        session: SessionId([4; 16]),
        packs: vec![PackId([4; 16])],
        indexes: Vec::new(),
        snapshots: Vec::new(),
        unnamed: Vec::new(),
    };
    Desk::new(&bench.repository).put_plan(&plan).unwrap();
    let new = back(&bench, &bench.repository, snapshot.id).unwrap().snapshot;
    assert_eq!(new.plans, [plan.id]);
    restores(&bench, &new, &source);
}

#[test]
fn a_user_who_has_enough_of_it_changes_nothing() {
    let bench = bench();
    let source = source(&bench, "source", 4);
    let snapshot = bench.backup(&source).snapshot.unwrap();
    bench.repository.forget(&[snapshot.id]).unwrap();
    let before = objects(&bench.memory);
    let forgotten = bench.repository.forgotten().unwrap().0.remove(0);
    let options = undelete::Options { forgotten, host: "host".into(), workers: 2, now: 7 };
    let monitor = Quiet::default();
    monitor.request_stop();
    let stopped = undelete(&bench.repository, &bench.cache, &options, &monitor);
    assert!(matches!(stopped, Err(Error::Interrupted)));
    assert!(objects(&bench.memory) == before);
}

/// A collector that loses its patience while the tree is looked through.
struct Evicting<'a> {
    bench: &'a Bench,
    quiet: Quiet,
}

impl Monitor for Evicting<'_> {
    fn counters(&self) -> &Counters {
        self.quiet.counters()
    }

    fn problem(&self, problem: &Problem) {
        self.quiet.problem(problem);
    }

    fn stop(&self) -> bool {
        let desk = Desk::new(&self.bench.repository);
        for session in desk.sessions().unwrap() {
            evict(&desk, session, SessionId([5; 16])).unwrap();
        }
        false
    }
}

#[test]
fn one_that_was_evicted_does_not_count() {
    let bench = bench();
    let source = source(&bench, "source", 11);
    let snapshot = bench.backup(&source).snapshot.unwrap();
    bench.repository.forget(&[snapshot.id]).unwrap();
    let forgotten = bench.repository.forgotten().unwrap().0.remove(0);
    let options = undelete::Options { forgotten, host: "host".into(), workers: 2, now: 7 };
    let monitor = Evicting { bench: &bench, quiet: Quiet::default() };
    let evicted = undelete(&bench.repository, &bench.cache, &options, &monitor).unwrap_err();
    assert!(matches!(evicted, Error::Refused(_)), "{evicted}");
    assert!(snapshots(&bench.repository).is_empty());
    let new = back(&bench, &bench.repository, snapshot.id).unwrap().snapshot;
    assert_eq!(ids(&snapshots(&bench.repository)), [new.id]);
}

#[test]
fn roles() {
    let bench = bench();
    let source = source(&bench, "source", 5);
    let snapshot = bench.backup(&source).snapshot.unwrap();
    let forgotten = bench.repository.snapshots().unwrap().0.remove(0);
    let options = undelete::Options { forgotten, host: "host".into(), workers: 2, now: 7 };
    let before = |bench: &Bench| {
        let mut objects = objects(&bench.memory);
        objects.retain(|name, _| !name.starts_with(names::KEYS));
        objects
    };
    let all = before(&bench);
    let as_role = |role: Role| {
        let secret = Secret::new([role as u8 + 10; 32]);
        let key = bench.repository.add_key(role, &NewLock::File(secret.clone()), "", 1).unwrap();
        let file = bench.repository.key_file(key, &secret).to_string();
        Repository::open(Arc::new(bench.memory.clone()), &Unlock::File(file)).unwrap()
    };
    for role in [Role::Writer, Role::Reader] {
        let error = as_role(role).forget(&[snapshot.id]).unwrap_err();
        assert!(matches!(error, RepoError::NotAllowed { action: "forget", .. }), "{error}");
    }
    for role in [Role::Writer, Role::Reader, Role::Keeper] {
        let error = undelete(&as_role(role), &bench.cache, &options, &Quiet::default()).unwrap_err();
        assert!(matches!(error, Error::Repo(RepoError::NotAllowed { action: "undelete", .. })), "{error}");
    }
    assert!(before(&bench) == all);
    as_role(Role::Keeper).forget(&[snapshot.id]).unwrap();
    assert!(snapshots(&bench.repository).is_empty());
    assert_eq!(as_role(Role::Keeper).forgotten().unwrap().0.len(), 1);
    assert!(as_role(Role::Writer).forgotten().is_err());
    back(&bench, &bench.repository, snapshot.id).unwrap();
}

/// Whatever step fails, with or without having taken effect: nothing is in neither place, and the next try does it.
#[test]
fn a_stop_between_two_steps_loses_nothing() {
    let bench = bench();
    let source = source(&bench, "source", 6);
    let (first, second) = (bench.backup(&source).snapshot.unwrap(), bench.backup(&source).snapshot.unwrap());
    let start = objects(&bench.memory);
    let steps = {
        let (repository, faults) = failing(&bench);
        let opened = faults.calls();
        repository.forget(&[first.id, second.id]).unwrap();
        faults.calls() - opened
    };
    assert!(steps >= 9, "{steps}");
    for fault in [Fault::Fail(Kind::Io), Fault::FailAfter(Kind::Io)] {
        for step in 1..=steps {
            reset(&bench, &start);
            let (repository, faults) = failing(&bench);
            faults.add(When::call(faults.calls() + step), fault);
            assert!(repository.forget(&[first.id, second.id]).is_err(), "{step}");
            let (present, forgotten) = (snapshots(&repository), repository.forgotten().unwrap().0);
            assert_eq!(present.len() + forgotten.len(), 2, "{step}: each is in one of the lists");
            repository.forget(&[first.id, second.id]).unwrap();
            assert!(snapshots(&repository).is_empty(), "{step}");
            assert_eq!(repository.forgotten().unwrap().0.len(), 2, "{step}");
        }
    }
    // The copy is durable before the snapshot goes.
    reset(&bench, &start);
    let (repository, faults) = failing(&bench);
    faults.add(When::op(Op::Sync).times(1), Fault::Fail(Kind::Io));
    assert!(repository.forget(&[first.id]).is_err());
    assert_eq!(snapshots(&repository).len(), 2);
    assert!(repository.forgotten().unwrap().0.is_empty(), "one that is in both places was not forgotten");
}

#[test]
fn a_stop_while_it_comes_back_loses_nothing() {
    let bench = bench();
    let source = source(&bench, "source", 7);
    let snapshot = bench.backup(&source).snapshot.unwrap();
    bench.repository.forget(&[snapshot.id]).unwrap();
    let start = objects(&bench.memory);
    // From the last call of all backwards: those that write come last.
    let steps = {
        let (repository, faults) = failing(&bench);
        let opened = faults.calls();
        back(&bench, &repository, snapshot.id).unwrap();
        faults.calls() - opened
    };
    for fault in [Fault::Fail(Kind::Io), Fault::FailAfter(Kind::Io)] {
        for step in 1..=steps {
            reset(&bench, &start);
            let (repository, faults) = failing(&bench);
            // The first listing is for finding it at all.
            let found = repository.forgotten().unwrap().0.remove(0);
            faults.add(When::call(faults.calls() + step), fault);
            let options = undelete::Options { forgotten: found, host: "host".into(), workers: 2, now: 7 };
            let ended = undelete(&repository, &bench.cache, &options, &Quiet::default());
            faults.clear();
            let (present, forgotten) = (snapshots(&repository), repository.forgotten().unwrap().0);
            assert!(!present.is_empty() || !forgotten.is_empty(), "{step}");
            if let Ok(report) = ended {
                assert_eq!(ids(&present), [report.snapshot.id]);
                assert!(report.leftover.is_some() || forgotten.is_empty(), "{step}");
            }
            if present.is_empty() {
                back(&bench, &repository, snapshot.id).unwrap();
            }
        }
    }
    restores(&bench, &snapshots(&bench.repository)[0], &source);
}

fn reset(bench: &Bench, to: &BTreeMap<String, Vec<u8>>) {
    for name in objects(&bench.memory).keys().filter(|name| !to.contains_key(*name)) {
        bench.memory.delete(name).unwrap();
    }
    to.iter().for_each(|(name, bytes)| bench.memory.put(name, bytes, Put::Replace).unwrap());
}

#[test]
fn a_damaged_snapshot_is_forgotten_by_its_full_id() {
    let bench = bench();
    let source = source(&bench, "source", 8);
    let (bad, good) = (bench.backup(&source).snapshot.unwrap(), bench.backup(&source).snapshot.unwrap());
    let name = names::snapshot(bad.id);
    let bytes = bench.memory.get(&name).unwrap();
    bench.memory.put(&name, &bytes[..bytes.len() - 1], Put::Replace).unwrap();
    let (infos, errors) = bench.repository.snapshots().unwrap();
    assert_eq!((infos.len(), errors.len()), (1, 1));
    let full = bad.id.to_string();
    let plan = |spec: &str| Plan::by_names(&infos, &errors, &[spec], &SnapshotFilter::default(), i64::MAX);
    assert!(matches!(plan(&full[..31]), Err(Error::NoSnapshot(_))));
    assert!(matches!(plan(&SnapshotId([3; 16]).to_string()), Err(Error::NoSnapshot(_))));
    plan(&full.to_uppercase()).unwrap().carry_out(&bench.repository).unwrap();
    assert_eq!(ids(&snapshots(&bench.repository)), [good.id]);
    assert_eq!(bench.repository.forgotten().unwrap().1.len(), 1);
    // Another object under the copy's name is not written over, nor taken for a copy.
    bench.memory.put(&names::forgotten(good.id), b"something else", Put::Create).unwrap();
    let error = bench.repository.forget(&[good.id]).unwrap_err().to_string();
    assert!(error.contains(&names::forgotten(good.id)), "{error}");
    assert_eq!(ids(&snapshots(&bench.repository)), [good.id]);
}

#[test]
fn nobody_s_snapshot_is_forgotten_by_name_and_never_comes_back() {
    let bench = bench();
    let source = source(&bench, "source", 9);
    let real = bench.backup(&source).snapshot.unwrap();
    // Anybody can seal to the public key in the config.
    let stranger = SigningKey::new(Secret::new([1; 32])).unwrap();
    let fake = Snapshot { id: SnapshotId([8; 16]), session: SessionId([8; 16]), ..real.clone() };
    let fresh = || random_secret().unwrap();
    let config = bench.repository.config();
    let to = Recipient { suite: config.suite, generation: 0, meta_key: &config.meta_key };
    let by = (KeyId([8; 16]), &stranger);
    let bytes = snapshot::seal(&fake, by, to, &fresh(), &fresh()).unwrap();
    bench.memory.put(&names::snapshot(fake.id), &bytes, Put::Create).unwrap();
    let rules = Rules { last: Count::Of(1), ..Rules::default() };
    let options = Options {
        rules,
        group_by: GroupBy::default(),
        now: real.time,
        zone: jiff::tz::TimeZone::UTC,
        allow_remove_all: false,
    };
    let (infos, _) = bench.repository.snapshots().unwrap();
    assert_eq!(infos.len(), 2);
    assert!(Plan::by_rules(&infos, &options).going().is_empty(), "neither of them");
    let plan = Plan::by_names(&infos, &[], &[fake.id.to_string()], &SnapshotFilter::default(), i64::MAX).unwrap();
    plan.carry_out(&bench.repository).unwrap();
    assert_eq!(ids(&snapshots(&bench.repository)), [real.id]);
    let refused = back(&bench, &bench.repository, fake.id).unwrap_err();
    assert!(matches!(refused, Error::Refused(_)), "{refused}");
}

#[test]
fn rules_leave_open_sessions_and_their_partial_snapshots_alone() {
    let bench = bench();
    let source = source(&bench, "source", 10);
    bench.backup(&source);
    // A run that dies after its first checkpoint, and so leaves its session.
    for n in 0..60 {
        fs::create_dir(source.join(format!("dir-{n}"))).unwrap();
        fs::write(source.join(format!("dir-{n}/file")), Rng::new(900 + n).bytes(900_000)).unwrap();
    }
    settle();
    let (repository, faults) = failing(&bench);
    faults.add(When::op(Op::Put).named("snapshots/*"), Fault::FailAfter(Kind::Io));
    let checkpoints = backup::Options { checkpoint_bytes: 1, ..options(&[&source]) };
    assert!(backup::backup(&repository, &bench.cache, checkpoints, &Quiet::default()).is_err());
    let (infos, _) = bench.repository.snapshots().unwrap();
    let open = infos.iter().find(|info| info.open_session).unwrap().snapshot.id;
    let named = Plan::by_names(&infos, &[], &[open.to_string()], &SnapshotFilter::default(), i64::MAX);
    assert!(matches!(named, Err(Error::Refused(_))));
    // Newer ones make no difference to that.
    let last = bench.backup(&source).snapshot.unwrap();
    let options = Options {
        rules: Rules { last: Count::Of(1), ..Rules::default() },
        group_by: GroupBy::default(),
        now: last.time,
        zone: jiff::tz::TimeZone::UTC,
        allow_remove_all: false,
    };
    let plan = Plan::by_rules(&bench.repository.snapshots().unwrap().0, &options);
    assert_eq!(plan.going().len(), 1);
    plan.carry_out(&bench.repository).unwrap();
    assert_eq!(ids(&snapshots(&bench.repository)), [open, last.id]);
}
