//! Clocks that are wrong: a day off, years off, running backwards, set in the midst of a run. What is saved is whole,
//! what is kept doesn't depend on them, and who is taken for dead wrongly loses no more than one run.
//!
//! The C library's clock is defined here once more, and all that is linked into this program asks it.

mod common;

use common::{Bench, bench, options};
use drumlin_engine::backup::{self, Parent};
use drumlin_engine::check::{self, check};
use drumlin_engine::forget::{Count, GroupBy, Plan, Rules};
use drumlin_engine::monitor::Quiet;
use drumlin_engine::prune::{self, Unused, prune};
use drumlin_engine::undelete::{self, undelete};
use drumlin_engine::{Error, forget};
use drumlin_format::SnapshotId;
use drumlin_format::session::Session;
use drumlin_format::snapshot::Snapshot;
use drumlin_repo::collection::{Board, Desk, Registration, commit};
use drumlin_repo::names;
use drumlin_store::Store;
use drumlin_testkit::{Rng, compare};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const DAY: i64 = 86_400;
const YEAR: i64 = 365 * DAY;

/// How far the clock is off, in seconds.
static OFFSET: AtomicI64 = AtomicI64::new(0);
/// Whether it is another at every look, up to a day either way.
static JUMPS: AtomicBool = AtomicBool::new(false);
static LOOKS: AtomicU64 = AtomicU64::new(0);

/// The C library's `struct timespec` where a `long` has 64 bits.
#[repr(C)]
pub struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

/// The C library's call of this name: the time of day is off, other clocks are the system's.
///
/// # Safety
/// As there: `out` is for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: i32, out: *mut Timespec) -> i32 {
    use rustix::time::{ClockId, clock_gettime};
    let time = clock_gettime(if clock == 0 { ClockId::Realtime } else { ClockId::Monotonic });
    let off = match clock {
        0 if JUMPS.load(Ordering::SeqCst) => {
            Rng::new(LOOKS.fetch_add(1, Ordering::SeqCst)).below(2 * DAY as usize) as i64 - DAY
        }
        0 => OFFSET.load(Ordering::SeqCst),
        _ => 0,
    };
    // SAFETY: the caller of `clock_gettime` gives a place for the answer.
    unsafe { out.write(Timespec { seconds: time.tv_sec + off, nanoseconds: time.tv_nsec }) };
    0
}

/// There is one clock: whoever sets it has it alone.
struct Clock(#[allow(dead_code)] MutexGuard<'static, ()>);

impl Clock {
    fn take() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let clock = Clock(ALONE.lock().unwrap_or_else(PoisonError::into_inner));
        clock.set(0);
        clock
    }

    fn set(&self, offset: i64) {
        OFFSET.store(offset, Ordering::SeqCst);
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        self.set(0);
        JUMPS.store(false, Ordering::SeqCst);
    }
}

/// States of a tree, each with a copy.
struct History {
    bench: Bench,
    source: PathBuf,
    states: Vec<(Snapshot, PathBuf)>,
    saved: usize,
}

impl History {
    fn new() -> Self {
        let bench = bench();
        let source = bench.folder.path().join("source");
        fs::create_dir(&source).unwrap();
        History { bench, source, states: Vec::new(), saved: 0 }
    }

    /// Some files become others of the same length; then a backup.
    fn step(&mut self) -> backup::Report {
        let mut rng = Rng::new(self.states.len() as u64);
        for n in 0..20 {
            if self.states.is_empty() || n % 5 == self.states.len() % 5 {
                fs::write(self.source.join(n.to_string()), rng.bytes(9000)).unwrap();
            }
        }
        fs::write(self.source.join("large"), rng.bytes(400_000)).unwrap();
        self.save()
    }

    fn save(&mut self) -> backup::Report {
        common::settle();
        self.saved += 1;
        let copy = self.bench.folder.path().join(format!("copy{}", self.saved));
        assert!(std::process::Command::new("cp").arg("-a").args([&self.source, &copy]).status().unwrap().success());
        let report = self.bench.backup(&self.source);
        self.states.push((report.snapshot.clone().unwrap(), copy));
        report
    }

    #[track_caller]
    fn whole(&self) {
        let listed: Vec<SnapshotId> =
            self.bench.repository.snapshots().unwrap().0.iter().map(|info| info.snapshot.id).collect();
        for (snapshot, copy) in &self.states {
            assert!(listed.contains(&snapshot.id), "a snapshot is gone");
            self.comes_back(snapshot, copy);
        }
    }

    #[track_caller]
    fn comes_back(&self, snapshot: &Snapshot, copy: &Path) {
        let target = tempfile::tempdir_in(self.bench.folder.path()).unwrap();
        let (_, monitor) = self.bench.restore(snapshot, &self.source, target.path());
        assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
        compare::assert_same(copy, target.path(), &compare::Options { roots: false, ..Default::default() });
    }

    fn prune(&self, evict_after: Duration) -> Result<prune::Report, Error> {
        let options = prune::Options {
            host: "host".into(),
            max_unused: Unused::Bytes(0),
            max_repack: None,
            max_rekey: Unused::Percent(5.0),
            allow_remove_all: false,
            wait: Duration::ZERO,
            evict: Vec::new(),
            evict_after,
            workers: 2,
        };
        prune(&self.bench.repository, &self.bench.cache, &options, &Quiet::default())
    }

    /// What these rules would forget by a clock that says so.
    fn going(&self, now: i64, rules: Rules) -> Vec<SnapshotId> {
        let (infos, _) = self.bench.repository.snapshots().unwrap();
        let (group_by, zone) = (GroupBy::default(), jiff::tz::TimeZone::UTC);
        let options = forget::Options { rules, group_by, now: (now, 0), zone, allow_remove_all: false };
        Plan::by_rules(&infos, &options).going()
    }

    fn forget(&mut self, at: usize) -> Snapshot {
        let (snapshot, _) = self.states.remove(at);
        self.bench.repository.forget(&[snapshot.id]).unwrap();
        snapshot
    }
}

fn week() -> Duration {
    Duration::from_secs(7 * 86_400)
}

#[test]
fn backups_by_a_clock_that_goes_astray() {
    let clock = Clock::take();
    let mut history = History::new();
    for offset in [0, -DAY, DAY, -2 * DAY, -YEAR, 30 * YEAR, -100 * YEAR, 0] {
        clock.set(offset);
        history.step();
        // Nothing has changed, whatever the clock says: nothing is stored, though more may have to be read.
        let again = history.save();
        assert_eq!(again.counts.bytes_new, 0, "{offset}");
    }
    history.whole();
    // Someone who knows nothing compares with what calls itself the latest. That costs time, no more.
    clock.set(0);
    let bare = std::sync::Arc::new(
        drumlin_repo::Cache::open(&history.bench.repository, None, history.bench.folder.path()).unwrap(),
    );
    let report = backup::backup(
        &history.bench.repository,
        &bare,
        backup::Options { parent: Parent::Latest, ..options(&[&history.source]) },
        &Quiet::default(),
    );
    let (snapshot, copy) = (report.unwrap().snapshot.unwrap(), history.states.last().unwrap().1.clone());
    history.comes_back(&snapshot, &copy);
}

#[test]
fn a_snapshot_from_the_future_pushes_nothing_out() {
    let clock = Clock::take();
    let mut history = History::new();
    history.step();
    clock.set(3 * DAY);
    history.step();
    clock.set(0);
    history.step();
    let going = |now: i64, last: u32| history.going(now, Rules { last: Count::Of(last), ..Rules::default() });
    let ids: Vec<SnapshotId> = history.states.iter().map(|(snapshot, _)| snapshot.id).collect();
    let now = history.states[2].0.time.0;
    assert_eq!(going(now, 1), [], "the one from the future neither counts nor goes, nor what was made after it");
    // Who forgets by a clock that is days behind takes all for the future, and forgets nothing.
    assert_eq!(going(now - 2 * DAY, 1), []);
    // By one that is years ahead nothing is from the future. The rules then count what is there, and not the years.
    assert_eq!(going(now + 9 * YEAR, 3), []);
    assert_eq!(going(now + 9 * YEAR, 1), [ids[0]]);
    // What is made after it goes by its own time once there are enough newer ones: one slip of a clock doesn't keep all
    // for good.
    let mut made: Vec<SnapshotId> = vec![ids[2]];
    for _ in 0..9 {
        made.push(history.step().snapshot.unwrap().id);
    }
    let mut going = history.going(now, Rules { last: Count::Of(1), ..Rules::default() });
    going.sort_unstable();
    let mut ordinary = vec![ids[0], made[0], made[1]];
    ordinary.sort_unstable();
    assert_eq!(going, ordinary, "of those that count the last one stays, of ten behind seven");
    history.whole();
}

/// A machine whose clock begins somewhere in the past each time it is switched on, and that forgets right after each
/// backup: what was saved last is never what goes, though by its time it would be.
#[test]
fn a_clock_that_is_behind_makes_no_snapshot_the_first_to_go() {
    let clock = Clock::take();
    let mut history = History::new();
    for day in 0..3 {
        clock.set(day * DAY);
        history.step();
    }
    let real = history.states[2].0.time.0;
    let rules = Rules { last: Count::Of(1), ..Rules::default() };
    for (night, start) in [500, 300, 900, 100, 800, 200, 700, 400, 600, 150].into_iter().enumerate() {
        clock.set(-YEAR + start);
        let made = history.step().snapshot.unwrap();
        assert!(made.summary.behind.is_some_and(|seconds| seconds > YEAR as u64), "night {night}: {:?}", made.summary);
        for now in [made.time.0, real, real + 30 * DAY] {
            let going = history.going(now, rules.clone());
            assert!(!going.contains(&made.id), "night {night}, by a clock that says {now}");
        }
    }
    // Once it is set, all is as it was; and a time that the user gives is no slip.
    clock.set(9 * DAY);
    let made = history.step().snapshot.unwrap();
    assert_eq!(made.summary.behind, None);
    assert_eq!(history.going(made.time.0, rules).len(), 6, "the ordinary ones, and of ten behind three");
    let options = backup::Options { time: Some((real, 0)), ..options(&[&history.source]) };
    let (repository, cache) = (&history.bench.repository, &history.bench.cache);
    let given = backup::backup(repository, cache, options, &Quiet::default()).unwrap().snapshot.unwrap();
    assert_eq!((given.time.0, given.summary.behind), (real, None));
    history.whole();
}

#[test]
fn who_is_silent_is_told_by_time_that_passes() {
    let clock = Clock::take();
    let mut history = History::new();
    (0..2).for_each(|_| _ = history.step());
    let gone = history.forget(0);
    let session = || Registration::begin(&history.bench.repository, Session::new("elsewhere", "backup", 0)).unwrap();
    let (left, busy) = (session(), |result| matches!(result, Err(Error::Busy(_))));
    // Seen first by a clock that is a year ahead; then it is set right, and a week later is a week later.
    clock.set(YEAR);
    assert!(busy(history.prune(week())));
    clock.set(0);
    assert!(busy(history.prune(week())));
    clock.set(-DAY);
    assert!(busy(history.prune(week())), "back by a day");
    clock.set(5 * DAY);
    assert!(busy(history.prune(week())), "a week isn't over");
    history.whole();
    clock.set(8 * DAY);
    assert!(history.prune(week()).unwrap().gone.packs > 0, "it is evicted now, and not in a year");
    history.whole();
    assert!(history.bench.memory.len(&names::forgotten(gone.id)).unwrap().is_none());
    // If it was alive after all, it is told so, and nothing of it counts.
    drop(left);
}

#[test]
fn a_clock_that_jumps_a_week_costs_a_living_writer_its_run_and_nothing_else() {
    let clock = Clock::take();
    let mut history = History::new();
    (0..2).for_each(|_| _ = history.step());
    history.forget(0);
    let repository = history.bench.repository.clone();
    let before = Desk::new(&repository).sessions().unwrap();
    let writer = Registration::begin(&repository, Session::new("elsewhere", "backup", 0)).unwrap();
    let id = *Desk::new(&repository).sessions().unwrap().iter().find(|id| !before.contains(id)).unwrap();
    assert!(matches!(history.prune(week()), Err(Error::Busy(_))));
    clock.set(8 * DAY);
    history.prune(week()).unwrap();
    let desk = Desk::new(&repository);
    let verdict = drumlin_format::decision::Verdict::Committed { snapshot: SnapshotId([1; 16]) };
    assert!(!commit(&desk, id, &verdict).unwrap(), "it was evicted");
    drop(writer);
    history.whole();
    history.save();
    history.whole();
}

#[test]
fn a_clock_that_is_set_all_the_time() {
    let _clock = Clock::take();
    JUMPS.store(true, Ordering::SeqCst);
    let mut history = History::new();
    for _ in 0..4 {
        history.step();
        let again = history.save();
        assert_eq!(again.counts.bytes_new, 0);
    }
    assert!(LOOKS.load(Ordering::SeqCst) > 10, "nobody asks this clock");
    history.whole();
    history.forget(0);
    history.forget(0);
    let back = history.forget(0);
    let (forgotten, _) = history.bench.repository.forgotten().unwrap();
    let forgotten = forgotten.into_iter().find(|info| info.snapshot.id == back.id).unwrap();
    let how = undelete::Options { forgotten, host: "host".into(), workers: 2, now: 7 };
    undelete(&history.bench.repository, &history.bench.cache, &how, &Quiet::default()).unwrap();
    history.prune(week()).unwrap();
    history.whole();
    let how = check::Options { read: Some(check::Part::All), workers: 2 };
    let report = check(&history.bench.repository, &history.bench.cache, how, &Quiet::default()).unwrap();
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
}
