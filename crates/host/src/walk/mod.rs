//! A parallel walk over the sources that comes out in tree order and in bounded memory.
//!
//! Order: the entries of a directory, names ascending bytewise, then the contents of each of its subdirectories in that
//! order, recursively. By [`Dir::key`](crate::dir::Dir::key) directories come in `memcmp` order, the root first.
//!
//! All sources hang below one root, `/`: the directories above a source are listed with only those entries that lead to
//! a source. Symlinks on the way to a source are looked through, and so is a source given with a slash at its end;
//! below a source no symlink is ever followed. A source within another is covered once, and even if a rule or a
//! boundary between file systems would have kept the walk away from it.
//!
//! Cost: an open, two `getdents64` and a close a directory, one `statx` an entry; no allocation an entry. Nothing is
//! fatal: what can't be read is reported in the listing where it belongs.

mod crew;
mod frontier;
mod list;
mod listing;
mod names;
mod pending;
mod plan;
mod scan;
#[cfg(test)]
mod tests;
mod worker;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::filter::Filter;

pub use crew::Crew;
pub use listing::{Entry, Excluded, Listing, WalkError, What};
pub(crate) use plan::normalise;

use crew::Load;
use frontier::Frontier;
use listing::{Pool, Run};
use pending::Pending;
use plan::Plan;

/// What to walk and with how much effort.
#[derive(Clone, Debug)]
pub struct Options {
    /// Absolute paths. With a slash (or `/.`) at its end, a symlink is followed.
    pub sources: Vec<Vec<u8>>,
    /// Threads that list and look.
    pub threads: Crew,
    /// Don't descend into directories of other devices than their source's; the mount points themselves are entries.
    pub one_file_system: bool,
    /// Bytes of listings that may wait for the consumer.
    pub budget_bytes: usize,
    /// Entries of one listing at most; larger directories come in several.
    pub part_entries_max: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            sources: Vec::new(),
            threads: 2.into(),
            one_file_system: false,
            budget_bytes: 8 << 20,
            part_entries_max: 4096,
        }
    }
}

/// How often who waits looks whether he still wants to.
const STOP_LOOK: Duration = Duration::from_millis(100);

/// What the workers and the consumer share.
struct Shared {
    state: Mutex<State>,
    /// Workers wait here for work.
    work: Condvar,
    /// The consumer waits here for listings, and a walk that ends for its workers.
    ready: Condvar,
    /// Workers that wait: a reason for the others to bring back early what they can't do at once.
    hungry: AtomicUsize,
    load: Mutex<Load>,
    /// Workers at most.
    crew_most: usize,
    stop: AtomicBool,
    /// What an entry of a shared directory cost of late, in nanoseconds: one worker learns it for all.
    entry_ns: AtomicU64,
    pool: Arc<Pool>,
    filter: Arc<Filter>,
    one_file_system: bool,
    part_entries_max: u32,
    run_bytes: usize,
}

struct State {
    frontier: Frontier,
    consumer_waits: bool,
    workers: usize,
    panicked: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A worker that panicked took no lock into it; the list is whole between any two of its operations.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn entries_are_slow(&self) -> bool {
        Duration::from_nanos(self.entry_ns.load(Ordering::Relaxed)) > list::SLOW_ENTRY
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.lock());
        self.work.notify_all();
        self.ready.notify_all();
    }
}

/// A walk under way. Dropping it stops it.
pub struct Walk {
    shared: Arc<Shared>,
    run: Option<Run>,
}

impl Walk {
    /// Starts the workers.
    ///
    /// # Errors
    /// Only if not even one thread can be started.
    pub fn start(options: Options, filter: Arc<Filter>) -> std::io::Result<Walk> {
        let (plan, errors) = Plan::new(&options.sources);
        let budget = options.budget_bytes.max(64 << 10);
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                frontier: Frontier::new(Pending::Root(plan, errors), budget),
                consumer_waits: false,
                workers: 0,
                panicked: false,
            }),
            work: Condvar::new(),
            ready: Condvar::new(),
            hungry: AtomicUsize::new(0),
            load: Mutex::new(Load::new()),
            crew_most: options.threads.most.max(options.threads.first),
            stop: AtomicBool::new(false),
            entry_ns: AtomicU64::new(0),
            pool: Arc::default(),
            filter,
            one_file_system: options.one_file_system,
            part_entries_max: u32::try_from(options.part_entries_max).unwrap_or(u32::MAX).clamp(1, 1 << 16),
            run_bytes: (budget / 32).clamp(16 << 10, 128 << 10),
        });
        let walk = Walk { shared, run: None };
        walk.shared.enlist()?;
        // Where no more threads can be had one does the work.
        let _ = (1..options.threads.first).try_for_each(|_| walk.shared.enlist());
        Ok(walk)
    }

    /// The next listing in tree order; `None` at the end, or once stopped. Waits for it.
    #[allow(clippy::should_implement_trait)] // It is one: see below. The method spares callers the import.
    pub fn next(&mut self) -> Option<Listing> {
        self.next_unless(|| false)
    }

    /// As [`Walk::next`], for a caller that may stop waiting: once `stop` says so the walk is stopped, though a file
    /// system that doesn't answer may hold its workers for good.
    pub fn next_unless(&mut self, stop: impl Fn() -> bool) -> Option<Listing> {
        loop {
            if let Some(listing) = self.run.as_mut().and_then(Iterator::next) {
                return Some(listing);
            }
            self.run = Some(self.next_run(&stop)?);
        }
    }

    fn next_run(&mut self, stop: &dyn Fn() -> bool) -> Option<Run> {
        self.run = None;
        let shared = &self.shared;
        let mut state = shared.lock();
        loop {
            // A walk that ends early for a bug must never look like one that is complete.
            assert!(!state.panicked, "a thread of the walk panicked");
            if shared.stopped() {
                return None;
            }
            if let Some(run) = state.frontier.pop() {
                if shared.hungry.load(Ordering::Relaxed) > 0 && state.frontier.has_work() {
                    shared.work.notify_one();
                }
                return Some(run);
            }
            if state.frontier.is_done() {
                return None;
            }
            if stop() {
                drop(state);
                shared.stop();
                return None;
            }
            state.consumer_waits = true;
            state = shared.ready.wait_timeout(state, STOP_LOOK).unwrap_or_else(PoisonError::into_inner).0;
            state.consumer_waits = false;
        }
    }

    /// Whether it was stopped, so that it may not have come to its end.
    pub fn is_stopped(&self) -> bool {
        self.shared.stopped()
    }

    /// Ends the walk: [`Walk::next`] gives nothing more, and the workers stop at their next system call.
    pub fn stop(&mut self) {
        self.run = None;
        self.shared.stop();
    }
}

impl Iterator for Walk {
    type Item = Listing;

    fn next(&mut self) -> Option<Listing> {
        Walk::next(self)
    }
}

impl Drop for Walk {
    /// Waits a moment for the workers, so that their descriptors are closed; not for one that hangs in a dead mount.
    fn drop(&mut self) {
        self.stop();
        let state = self.shared.lock();
        let wait = self.shared.ready.wait_timeout_while(state, Duration::from_millis(200), |s| s.workers > 0);
        drop(wait);
    }
}
