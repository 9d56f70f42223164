//! A repository that was moved between storages that create atomically and such that don't: what was decided on the one
//! counts on the other.

use super::*;

/// As somebody leaves it whose account may add and not remove: sessions stay, and so do the verdicts on them, until the
/// owner's next prune.
fn left_by_who_may_add(store: Arc<dyn Store>, memory: &MemoryStore) -> (Snapshot, Unlock) {
    let forbidding = FaultStore::new(store);
    let faults = forbidding.faults();
    let bench = common::bench_over(Arc::new(forbidding), memory.clone(), tempfile::tempdir().unwrap(), common::small());
    faults.add(When::op(Op::Delete), Fault::Fail(Kind::Refused));
    let source = source(&bench, "source", 1);
    (bench.backup(&source).snapshot.unwrap(), Unlock::File(bench.key_file()))
}

/// What brings verdicts to where a storage has them first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Collector {
    Prune,
    Repair,
    Parity,
}

impl Collector {
    /// At work on a repository that it has never seen, and told that these sessions are dead.
    fn run(self, repository: &Repository, evict: Vec<SessionId>) -> drumlin_engine::Result<()> {
        let kept = tempfile::tempdir().unwrap();
        let cache = Arc::new(Cache::open(repository, None, kept.path()).unwrap());
        match self {
            Collector::Prune => {
                let options = prune::Options { evict, ..prune_options() };
                prune::prune(repository, &cache, &options, &Quiet::default()).map(drop)
            }
            Collector::Repair => {
                let options = repair::Options { evict, ..repair_options() };
                repair::repair(repository, &cache, &options, &Quiet::default()).map(drop)
            }
            Collector::Parity => {
                let options = parity::Options {
                    host: "host".into(),
                    shape: None,
                    spoiled: HashSet::new(),
                    evict,
                    evict_after: Duration::from_secs(3600),
                    workers: 2,
                };
                parity::off(repository, &cache, &options, false, &Quiet::default()).map(drop)
            }
        }
    }
}

fn listed(repository: &Repository) -> Vec<SnapshotId> {
    let (infos, errors) = repository.snapshots().unwrap();
    assert!(errors.is_empty(), "{errors:?}");
    infos.into_iter().map(|info| info.snapshot.id).collect()
}

/// What is left of the protocol.
fn left(store: &dyn Store, folders: &[&str]) -> Vec<String> {
    let mut left = Vec::new();
    folders.iter().for_each(|folder| store.list(folder, &mut |listed| left.push(listed.name)).unwrap());
    left
}

/// A repository that was copied, object by object, to a storage of the other sort: what was decided there counts here.
#[test]
fn what_was_decided_on_another_sort_of_storage_counts() {
    for (from_flags, collector) in
        [false, true].into_iter().flat_map(|from| [Collector::Prune, Collector::Repair].map(|by| (from, by)))
    {
        let memory = MemoryStore::new();
        let [from, to] = both_ways(&memory, from_flags);
        let (snapshot, key) = left_by_who_may_add(from.clone(), &memory);
        let mut sessions = Vec::new();
        to.list(names::SESSIONS, &mut |listed| sessions.extend(SessionId::parse(names::last(&listed.name)))).unwrap();
        assert_eq!(sessions, [snapshot.session]);
        if collector == Collector::Repair {
            // Something for which it wants nobody else to be at work.
            to.put(&names::plan(PlanId([5; 16])), b"torn", Put::Create).unwrap();
        }
        // On a machine that has never seen it.
        let moved = Repository::open(to.clone(), &key).unwrap();
        assert_eq!(listed(&moved), [snapshot.id], "{from_flags}");
        collector.run(&moved, sessions).unwrap();
        assert_eq!(listed(&moved), [snapshot.id], "{from_flags}, {collector:?}: nobody may evict who has committed");
        let left = left(&*to, &[names::SESSIONS, names::DECISIONS, names::PLANS]);
        assert_eq!(left, [""; 0], "{from_flags}, {collector:?}");
    }
}

/// The same of a collector that was stopped after it had decided: what it condemned goes.
#[test]
fn what_a_collector_decided_on_another_sort_of_storage_is_carried_out() {
    for (from_flags, collector) in [false, true]
        .into_iter()
        .flat_map(|from| [Collector::Prune, Collector::Repair, Collector::Parity].map(|by| (from, by)))
    {
        let memory = MemoryStore::new();
        let [from, to] = both_ways(&memory, from_flags);
        let folder = tempfile::tempdir().unwrap();
        let bench = common::bench_over(from, memory, folder, common::small());
        let (gone, kept) = (source(&bench, "gone", 1), source(&bench, "kept", 2));
        let forgotten = bench.backup(&gone).snapshot.unwrap();
        let condemned = packs(&bench);
        let report = bench.backup(&kept);
        bench.repository.remove_snapshot(forgotten.id).unwrap();
        let stopped = prune::prune(&adding(&bench), &bench.cache, &prune_options(), &Quiet::default());
        assert!(stopped.is_err() && condemned.iter().all(|pack| packs(&bench).contains(pack)));
        let sessions = objects(&bench, names::SESSIONS, SessionId::parse);
        assert_eq!(sessions.len(), 1, "{from_flags}");
        let moved = Repository::open(to.clone(), &Unlock::File(bench.key_file())).unwrap();
        collector.run(&moved, sessions).unwrap();
        assert!(!condemned.iter().any(|pack| packs(&bench).contains(pack)), "{from_flags}, {collector:?}");
        let left = left(&*to, &[names::SESSIONS, names::DECISIONS, names::PLANS]);
        assert_eq!(left, [""; 0], "{from_flags}, {collector:?}");
        restores(&bench, &report, &kept);
    }
}

/// The same of a session that was evicted there, and has put a snapshot nevertheless.
#[test]
fn who_was_evicted_on_another_sort_of_storage_stays_so() {
    for from_flags in [false, true] {
        let memory = MemoryStore::new();
        let [from, to] = both_ways(&memory, from_flags);
        let (snapshot, key) = left_by_who_may_add(from.clone(), &memory);
        let there = Repository::open(from.clone(), &key).unwrap();
        let desk = Desk::new(&there);
        let flag = if from_flags { Flag::Evicted(snapshot.session) } else { Flag::Decision(snapshot.session) };
        desk.replace(flag, &Verdict::Evicted { plan: 0 }).unwrap();
        desk.remove_session(snapshot.session).unwrap();
        let moved = Repository::open(to.clone(), &key).unwrap();
        assert!(moved.snapshots().unwrap().0.is_empty(), "{from_flags}");
        moved.adopt_verdicts().unwrap();
        assert!(moved.snapshots().unwrap().0.is_empty(), "{from_flags}");
        assert!(Desk::new(&moved).is_evicted(snapshot.session).unwrap());
    }
}
