//! A worker: takes the first waiting work, explores from there in tree order for a while, brings back what it found.
//!
//! Exploring depth first keeps a run of listings in order without the lock; a run ends when it is large enough, when it
//! took long, or when others wait for work that this worker could give them.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::dir::{Dir, DirFd};
use crate::sys::{self, DIR_FLAGS};

use super::Shared;
use super::crew::Watch;
use super::frontier::{Appetite, Fragment, Take};
use super::list::Survey;
use super::listing::{Batch, Part, Run, Store, WalkError, What};
use super::names::{Key, RAW_BYTES, RAW_SLACK};
use super::pending::{Flat, Group, Heritage, Kids, Pending};
use super::plan::Plan;

/// A run doesn't last longer than this while there is something to show.
pub(super) const RUN_TIME: Duration = Duration::from_millis(2);
/// Subdirectories that take longer are handed out one by one.
const SLOW_DIR: Duration = Duration::from_micros(500);
/// Directories of longer paths are told and not entered: eight times what a path may have that the kernel is handed
/// whole. All directories on the way are held with their paths, so that a program that makes one in another for ever
/// would cost memory by the square of the depth.
pub(super) const PATH_BYTES_MAX: usize = 32 << 10;
/// What one span of a flat directory takes when all is fast, and the least worth handing over.
const SPAN_ENTRIES: u32 = 1024;
const SPAN_ENTRIES_MIN: u32 = 4;

pub(super) struct Worker<'a> {
    pub(super) shared: &'a Shared,
    pub(super) raw: Vec<u8>,
    pub(super) keys: Vec<Key>,
    pub(super) store: Store,
    pub(super) parts: Vec<Part>,
    /// What is found and not yet explored, the next item last.
    pub(super) stack: Vec<Pending>,
    pub(super) seen: Option<(Arc<Flat>, Kids)>,
    pub(super) began: Instant,
    pub(super) path: Vec<u8>,
    pub(super) survey: Survey,
    /// A directory that holds no descriptor of its own, opened for its subdirectories.
    reopened: Option<(Arc<Dir>, Rc<OwnedFd>)>,
    /// When the clock was last read.
    pub(super) now: Instant,
    /// A moving average of what a directory cost, in nanoseconds.
    dir_ns: u64,
    /// The last entries took long: look at the clock more often.
    pub(super) slow: bool,
}

/// Leaves the walk in order when a worker ends, be it by a panic.
struct Attendance<'a>(&'a Shared);

impl Drop for Attendance<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.workers -= 1;
        if std::thread::panicking() {
            state.panicked = true;
            self.0.stop.store(true, Ordering::Relaxed);
        }
        drop(state);
        self.0.work.notify_all();
        self.0.ready.notify_all();
    }
}

pub(crate) fn main(shared: &Arc<Shared>) {
    let _attendance = Attendance(shared);
    let mut worker = Worker {
        shared,
        raw: vec![0; RAW_BYTES + RAW_SLACK],
        keys: Vec::new(),
        store: Store::default(),
        parts: Vec::new(),
        stack: Vec::new(),
        seen: None,
        began: Instant::now(),
        path: Vec::new(),
        survey: Survey::default(),
        reopened: None,
        now: Instant::now(),
        dir_ns: 0,
        slow: false,
    };
    let mut done = None;
    while let Some((place, work)) = worker.exchange(done.take()) {
        worker.now = Instant::now();
        worker.began = worker.now;
        let job = Watch::start(worker.now);
        match work {
            Pending::Root(plan, errors) => worker.visit_root(plan, errors),
            Pending::Span(span) => worker.look_at(span),
            work => worker.stack.push(work),
        }
        worker.explore();
        shared.learn(&job);
        done = Some((place, worker.fragment()));
    }
}

impl Worker<'_> {
    /// Hands in a result and takes new work, with one lock for both. `None` at the end.
    fn exchange(&mut self, done: Option<(u32, Fragment)>) -> Option<(u32, Pending)> {
        let shared = self.shared;
        let mut state = shared.lock();
        if let Some((place, fragment)) = done {
            state.frontier.publish(place, fragment);
            if state.consumer_waits && state.frontier.front_ready() {
                shared.ready.notify_one();
            }
        }
        loop {
            if shared.stopped() {
                return None;
            }
            match state.frontier.take(self.appetite()) {
                Take::Job(place, work) => {
                    let others = shared.hungry.load(Ordering::Relaxed) > 0 && state.frontier.has_work();
                    drop(state);
                    if others {
                        shared.work.notify_one();
                    }
                    return Some((place, work));
                }
                Take::Done => {
                    shared.work.notify_all();
                    shared.ready.notify_all();
                    return None;
                }
                Take::Wait => {
                    shared.hungry.fetch_add(1, Ordering::Relaxed);
                    state = shared.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                    shared.hungry.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// How much to take: so that it is worth the lock, yet is brought back within a few milliseconds.
    fn appetite(&self) -> Appetite {
        let slow = u128::from(self.dir_ns) > SLOW_DIR.as_nanos();
        let most = SPAN_ENTRIES.min(self.shared.part_entries_max);
        let entries =
            u32::try_from(4_000_000 / self.shared.entry_ns.load(Ordering::Relaxed).max(1)).unwrap_or(u32::MAX);
        Appetite {
            dirs: if slow { 1 } else { 64 },
            entries: entries.clamp(SPAN_ENTRIES_MIN.min(most), most),
            share: self.shared.hungry.load(Ordering::Relaxed) > 0,
        }
    }

    fn fragment(&mut self) -> Fragment {
        self.reopened = None;
        let run = (!self.parts.is_empty()).then(|| {
            let bytes = self.store.bytes() + self.parts.len() * size_of::<Part>();
            let batch = Arc::new(Batch::seal(&mut self.store, &self.shared.pool));
            let room = self.parts.len();
            let parts = std::mem::replace(&mut self.parts, Vec::with_capacity(room)).into_iter();
            Run { batch, parts, bytes }
        });
        Fragment { run, rest: std::mem::take(&mut self.stack), seen: self.seen.take() }
    }

    /// Whether there is work for another besides what this worker would take up again itself.
    fn can_share(&self) -> bool {
        let left = self.stack.iter().rev().map(|pending| match pending {
            Pending::Group(group) => group.end - group.at,
            _ => 2,
        });
        let mut sum = 0;
        left.into_iter().any(|n| {
            sum += n;
            sum >= 2
        })
    }

    fn explore(&mut self) {
        while !self.stack.is_empty() {
            if self.shared.stopped() {
                return;
            }
            if !self.parts.is_empty()
                && (self.store.bytes() >= self.shared.run_bytes
                    || self.now - self.began > RUN_TIME
                    || self.shared.hungry.load(Ordering::Relaxed) > 0 && self.can_share())
            {
                return;
            }
            match self.stack.last() {
                Some(Pending::Group(group)) if group.at == group.end => {
                    self.stack.pop();
                    continue;
                }
                Some(Pending::Group(_)) => {}
                _ => return,
            }
            // The group stays in its place below what the visit puts on the stack.
            let place = self.stack.len() - 1;
            if let Pending::Group(mut group) = std::mem::replace(&mut self.stack[place], Pending::Hole) {
                let start = group.starts[group.at as usize] as usize;
                group.at += 1;
                self.visit(&group, start);
                self.stack[place] = Pending::Group(group);
            }
            let before = std::mem::replace(&mut self.now, Instant::now());
            let took = (self.now - before).as_nanos() as u64;
            self.dir_ns = (self.dir_ns * 3 + took) / 4;
        }
    }

    fn visit_root(&mut self, plan: Arc<Plan>, errors: Vec<(Vec<u8>, std::io::Error)>) {
        let dir = Arc::new(Dir::new(Box::default(), 0, true).following(plan.followed()));
        let full = plan.source;
        let heritage = Heritage { plan: Some(plan), dev: 0, full };
        let opened = self.open(None, c"/", &dir, true, !full);
        self.list(dir, opened, heritage);
        if let Some(first) = self.parts.first_mut() {
            first.errors.extend(errors.into_iter().map(|(path, source)| WalkError {
                path,
                what: What::NoSource,
                source,
            }));
        }
    }

    /// Opens and lists the subdirectory of a group whose name begins at `start`.
    fn visit(&mut self, group: &Group, start: usize) {
        let name = CStr::from_bytes_until_nul(&group.names[start..]).unwrap_or_default();
        let above = group.dir.path();
        let mut path = Vec::with_capacity(above.len() + 1 + name.count_bytes());
        if !above.is_empty() {
            path.extend_from_slice(above);
            path.push(b'/');
        }
        path.extend_from_slice(name.to_bytes());

        let planned = group.heritage.plan.as_ref().and_then(|p| p.children.get(name.to_bytes())).cloned();
        let may_follow = planned.as_ref().is_some_and(|p| p.follow());
        let source = planned.as_ref().is_some_and(|p| p.source);
        let follow = if planned.is_some() { path.len() } else { group.dir.follow() };
        let noatime = planned.is_some() || group.dir.noatime();
        let followed = planned.iter().flat_map(|plan| plan.followed());
        let dir = Arc::new(Dir::new(path.into_boxed_slice(), follow, noatime).following(followed));
        let full = group.heritage.full || source;
        let opened = match dir.path().len() <= PATH_BYTES_MAX {
            true => self.open(Some(group), name, &dir, may_follow, planned.is_some() && !full),
            false => Err(Errno::NAMETOOLONG),
        };
        let heritage = Heritage { full, dev: group.heritage.dev, plan: planned };
        self.list(dir, opened, heritage);
    }

    /// `is_way`: of what is in it only what leads to sources is looked at.
    fn open(
        &mut self,
        parent: Option<&Group>,
        name: &CStr,
        dir: &Dir,
        follow: bool,
        is_way: bool,
    ) -> Result<OwnedFd, Errno> {
        let held;
        let fresh;
        let at = match parent {
            None => rustix::fs::CWD,
            Some(Group { held: Some(held), .. }) => held.as_fd(),
            Some(Group { dir: parent, .. }) => match &self.reopened {
                Some((known, fd)) if Arc::ptr_eq(known, parent) => {
                    fresh = Rc::clone(fd);
                    fresh.as_fd()
                }
                _ => match parent.fd().map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))? {
                    DirFd::Held(fd) => {
                        held = fd;
                        held
                    }
                    DirFd::Fresh(fd) => {
                        fresh = Rc::new(fd);
                        self.reopened = Some((Arc::clone(parent), Rc::clone(&fresh)));
                        fresh.as_fd()
                    }
                },
            },
        };
        let flags = DIR_FLAGS | if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        let first = sys::open_retry(|| rustix::fs::openat(at, name, flags | dir.noatime_flag(), Mode::empty()));
        match first {
            Err(Errno::PERM) if dir.noatime() => {
                dir.noatime_refused();
                sys::open_retry(|| rustix::fs::openat(at, name, flags, Mode::empty()))
            }
            Err(Errno::ACCESS) if is_way => {
                sys::open_way(|flags| rustix::fs::openat(at, name, flags, Mode::empty()), flags)
            }
            other => other,
        }
    }
}
