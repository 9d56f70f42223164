//! Who is at work, or was: waited for, named, cleared up after, evicted.

use crate::history::{History, objects, prune_all, prune_options};
use crate::meanwhile::{Odd, Slow};
use drumlin_engine::Error;
use drumlin_engine::monitor::{Counters, Monitor, Problem, Quiet};
use drumlin_engine::prune::{Options, Unused, prune};
use drumlin_format::session::{Process, Session};
use drumlin_repo::collection::{Board, Desk, Registration};
use drumlin_repo::{Index, IndexMode, Repository, Unlock, WriteSession};
use drumlin_store::{Fault, FaultStore, Kind, Op, When};
use drumlin_testkit::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// What a process of this machine called itself that is gone.
fn killed() -> Session {
    let mut child = std::process::Command::new("sleep").arg("0").spawn().unwrap();
    let this = drumlin_host::process::Process::this().unwrap();
    let process = Process {
        machine: this.machine,
        boot: this.boot,
        namespace: this.namespace,
        id: child.id(),
        began: 1,
        node: this.node,
    };
    child.wait().unwrap();
    Session { process: Some(process), ..Session::new("host", "backup", 0) }
}

/// Or each prune would look at everything, until one has something to remove.
#[test]
fn a_killed_session_goes_though_there_is_nothing_to_remove() {
    let history = History::new(1);
    prune_all(&history.bench).unwrap();
    let _ = Registration::begin(&history.bench.repository, killed()).unwrap();
    let at_work = |history: &History| objects(&history.bench.memory).keys().any(|name| name.starts_with("sessions/"));
    assert!(at_work(&history));
    prune_all(&history.bench).unwrap();
    assert!(!at_work(&history), "its session is left");
    // The one after it has only to list.
    prune_all(&history.bench).unwrap();
    assert!(prune_all(&history.bench).unwrap().survey.is_none());
    // One that may be alive stays.
    let _ = Registration::begin(&history.bench.repository, Session::new("elsewhere", "backup", 0)).unwrap();
    prune_all(&history.bench).unwrap();
    assert!(at_work(&history));
    history.whole();
}

#[test]
fn leftovers_of_a_killed_backup_go_and_its_session_too() {
    let history = History::new(1);
    let repository = &history.bench.repository;
    let before = objects(&history.bench.memory);
    let registration = Registration::begin(repository, killed()).unwrap();
    let index = Arc::new(Index::open_for(&registration, history.bench.cache.clone(), IndexMode::Exact).unwrap());
    let session = WriteSession::begin(registration, index, history.bench.cache.clone());
    let mut block = drumlin_repo::pack::BlockBuilder::default();
    let bytes = Rng::new(77).bytes(50_000);
    block.push(repository.data_id(&bytes).unwrap(), &bytes);
    let mut coder = drumlin_repo::pack::Coder::new().unwrap();
    session.data.append(&mut block, &mut coder, drumlin_repo::pack::Coding::Raw).unwrap();
    session.data.finish().unwrap();
    drop(session);
    let report = prune_all(&history.bench).unwrap();
    assert_eq!(report.survey.unwrap().orphans.packs, 1);
    let mut after = objects(&history.bench.memory);
    after.retain(|name, _| !name.starts_with("decisions/"));
    assert_eq!(after, before);
    history.whole();
}

#[test]
fn whoever_is_at_work_is_waited_for_and_named() {
    let mut history = History::new(2);
    history.forget(|at| at == 0);
    let session = Session::new("else\u{1b}where", "backup", 0);
    let registration = Registration::begin(&history.bench.repository, session).unwrap();
    let before = objects(&history.bench.memory);
    let busy = prune_all(&history.bench);
    let Err(Error::Busy(message)) = busy else { panic!("{busy:?}") };
    assert!(message.contains("else\\u{1b}where") && message.contains("backup"), "{message}");
    assert!(!message.contains('\u{1b}'), "it steers the terminal: {message}");
    let gone: Vec<_> = before.keys().filter(|n| !objects(&history.bench.memory).contains_key(*n)).cloned().collect();
    assert!(gone.is_empty(), "{gone:?}");
    assert!(!objects(&history.bench.memory).keys().any(|n| n.starts_with("plans/")), "its plan is left");
    history.whole();
    // It ends while somebody waits for it.
    let waiting = Options { wait: Duration::from_secs(60), ..prune_options() };
    std::thread::scope(|scope| {
        let thread =
            scope.spawn(|| prune(&history.bench.repository, &history.bench.cache, &waiting, &Quiet::default()));
        std::thread::sleep(Duration::from_millis(500));
        registration.abandon().unwrap();
        assert!(thread.join().unwrap().unwrap().gone.packs > 0);
    });
    history.whole();
}

#[test]
fn who_is_said_to_be_dead_is_evicted() {
    let mut history = History::new(2);
    history.forget(|at| at == 0);
    let _left = Registration::begin(&history.bench.repository, Session::new("elsewhere", "backup", 0)).unwrap();
    let sessions = Desk::new(&history.bench.repository).sessions().unwrap();
    let evicting = Options { evict: sessions, ..prune_options() };
    let report = prune(&history.bench.repository, &history.bench.cache, &evicting, &Quiet::default()).unwrap();
    assert!(report.gone.packs > 0);
    history.whole();
}

/// A session of another machine that writes nothing from one prune to another is taken for dead, one that writes isn't.
#[test]
fn who_is_silent_for_long_is_evicted() {
    let mut history = History::new(2);
    history.forget(|at| at == 0);
    let _left = Registration::begin(&history.bench.repository, Session::new("elsewhere", "backup", 0)).unwrap();
    let cautious = prune_options();
    let busy = |options: &Options| {
        let done = prune(&history.bench.repository, &history.bench.cache, options, &Quiet::default());
        matches!(done, Err(Error::Busy(_)))
    };
    assert!(busy(&cautious));
    std::thread::sleep(Duration::from_millis(2100));
    assert!(busy(&cautious));
    assert!(!busy(&Options { evict_after: Duration::from_secs(1), ..cautious }));
    history.whole();
}

/// Of an account that may remove nothing: it was done, whoever's machine it was on, and is in nobody's way.
#[test]
fn who_has_committed_and_could_not_clear_up_is_waited_for_by_nobody() {
    let mut history = History::new(2);
    let faults = FaultStore::new(history.bench.memory.clone());
    faults.faults().add(When::op(Op::Delete), Fault::Fail(Kind::Refused));
    let adding = Repository::open(Arc::new(faults), &Unlock::File(history.bench.key_file())).unwrap();
    let options = crate::common::options(&[&history.source]);
    let saved = drumlin_engine::backup::backup(&adding, &history.bench.cache, options, &Quiet::default()).unwrap();
    // This process, which is alive: as if it were another machine's.
    assert_eq!(Desk::new(&adding).sessions().unwrap(), [saved.snapshot.as_ref().unwrap().session]);
    history.forget(|at| at == 0);
    let report = prune_all(&history.bench).unwrap();
    assert!(report.gone.packs > 0);
    let left = objects(&history.bench.memory);
    assert!(!left.keys().any(|name| name.starts_with("sessions/") || name.starts_with("decisions/")));
    history.whole();
    assert!(
        history
            .bench
            .repository
            .snapshots()
            .unwrap()
            .0
            .iter()
            .any(|i| i.snapshot.id == saved.snapshot.as_ref().unwrap().id)
    );
}

/// Those that have ended are forgotten for it, and not those that a prune meets.
#[test]
fn who_is_silent_is_found_out_among_a_thousand() {
    let mut history = History::new(2);
    history.forget(|at| at == 0);
    let record = |n: u32| {
        let mut id = [0xff; 16];
        id[12..].copy_from_slice(&n.to_be_bytes());
        [&id[..], &[0; 16]].concat()
    };
    let known: Vec<u8> = (0..1000).flat_map(record).collect();
    history.bench.cache.remember("sessions seen by prune", &known).unwrap();
    let _left = Registration::begin(&history.bench.repository, Session::new("elsewhere", "backup", 0)).unwrap();
    assert!(matches!(prune_all(&history.bench), Err(Error::Busy(_))));
    std::thread::sleep(Duration::from_millis(2100));
    let impatient = Options { evict_after: Duration::from_secs(1), ..prune_options() };
    prune(&history.bench.repository, &history.bench.cache, &impatient, &Quiet::default()).unwrap();
    history.whole();
}

/// What the prune itself takes isn't taken from what it waits.
#[test]
fn who_is_at_work_is_waited_for_however_long_the_look_took() {
    let mut history = History::new(2);
    history.forget(|at| at == 0);
    let registration = Registration::begin(&history.bench.repository, Session::new("elsewhere", "backup", 0)).unwrap();
    let mut left = Some(registration);
    // Its first listing of packs takes longer than it is willing to wait; then the other one ends.
    let ended = std::sync::Mutex::new(false);
    let slow = move |folder: &str| {
        if folder == "data" && !std::mem::replace(&mut *ended.lock().unwrap(), true) {
            std::thread::sleep(Duration::from_millis(4000));
        }
    };
    let inner = history.bench.memory.clone();
    let store = Odd { inner, listing: Box::new(slow), ghosts: Vec::new(), withheld: None };
    let by = Repository::open(Arc::new(store), &Unlock::File(history.bench.key_file())).unwrap();
    let waiting = Options { wait: Duration::from_secs(3), ..prune_options() };
    std::thread::scope(|scope| {
        let registration = left.take().unwrap();
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(4300));
            registration.abandon().unwrap();
        });
        prune(&by, &history.bench.cache, &waiting, &Quiet::default()).unwrap();
    });
    history.whole();
}

/// What could not be written is told to whoever closes the next pack, and is no damage of what that one reads.
#[test]
fn a_pack_that_finds_no_place_is_no_damage_of_what_another_is_made_of() {
    let mut history = History::new(1);
    let more = history.source.join("more");
    std::fs::create_dir(&more).unwrap();
    for n in 0..60 {
        std::fs::write(more.join(n.to_string()), Rng::new(n).bytes(200_000)).unwrap();
    }
    history.step(1);
    // Every other one moves, into several packs.
    (0..60).step_by(2).for_each(|n| std::fs::remove_file(more.join(n.to_string())).unwrap());
    history.step(2);
    history.forget(|at| at < 2);
    let before = objects(&history.bench.memory);
    let store = FaultStore::new(history.bench.memory.clone());
    store.faults().add(When::op(Op::Finish).named("data/*").times(1), Fault::Fail(Kind::Missing));
    let pruning = Repository::open(Arc::new(store), &Unlock::File(history.bench.key_file())).unwrap();
    let strict = Options { max_unused: Unused::Bytes(0), workers: 1, ..prune_options() };
    let failed = prune(&pruning, &history.bench.cache, &strict, &Quiet::default());
    assert!(failed.is_err(), "{failed:?}");
    let after = objects(&history.bench.memory);
    assert!(before.keys().filter(|name| name.starts_with("data/")).all(|name| after.contains_key(name)));
    prune(&history.bench.repository, &history.bench.cache, &strict, &Quiet::default()).unwrap();
    history.whole();
}

/// Stops as soon as a pack is about to get its name.
struct StopsAtOnce {
    quiet: Quiet,
    is_naming: Arc<AtomicBool>,
}

impl Monitor for StopsAtOnce {
    fn counters(&self) -> &Counters {
        self.quiet.counters()
    }

    fn problem(&self, problem: &Problem) {
        self.quiet.problem(problem);
    }

    fn stop(&self) -> bool {
        self.is_naming.load(Relaxed)
    }
}

/// Once its session has ended, others take for nobody's what it still names.
#[test]
fn a_prune_that_is_stopped_names_nothing_behind_its_end() {
    let mut history = History::new(12);
    history.forget(|at| at < 11);
    let marks = || Arc::new(AtomicBool::new(false));
    let (is_naming, has_ended, is_late) = (marks(), marks(), marks());
    let inner = history.bench.memory.clone();
    let (naming, ended, late) = (is_naming.clone(), has_ended.clone(), is_late.clone());
    let store = Slow { inner, is_naming: naming, has_ended: ended, is_late: late };
    let slow = Repository::open(Arc::new(store), &Unlock::File(history.bench.key_file())).unwrap();
    let strict = Options { max_unused: Unused::Bytes(0), ..prune_options() };
    let monitor = StopsAtOnce { quiet: Quiet::default(), is_naming };
    let stopped = prune(&slow, &history.bench.cache, &strict, &monitor);
    assert!(matches!(stopped, Err(Error::Interrupted)), "{stopped:?}");
    std::thread::sleep(Duration::from_millis(600));
    assert!(has_ended.load(Relaxed) && !is_late.load(Relaxed));
    history.whole();
}
