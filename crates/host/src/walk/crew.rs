//! How many workers a walk has: more of them while most of their time goes by in waiting for the file system.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{Shared, worker};

/// How many threads list and look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crew {
    /// At first; at least one.
    pub first: usize,
    /// At most, if those that are there mostly wait: for a disk that seeks, or a server that answers.
    pub most: usize,
}

impl From<usize> for Crew {
    /// So many from start to end.
    fn from(threads: usize) -> Self {
        Crew { first: threads, most: threads }
    }
}

/// Jobs in a row, of all workers, that were mostly waiting, before there is one worker more.
const WAITS: usize = 1;
/// Shorter ones tell nothing.
const JOB_MIN: Duration = Duration::from_millis(1);
/// A job that used less than this part of its time was waiting.
const BUSY_PART: u32 = 4;

/// What a thread had used when a job began.
pub(super) struct Watch {
    began: Instant,
    used: Used,
}

/// Of a thread: processor time, and how often it gave the processor away, because it waited and because it had to.
#[derive(Clone, Copy, Default)]
struct Used {
    time: Duration,
    waits: i64,
    pushed: i64,
}

impl Used {
    fn now() -> Self {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the kernel fills a whole `rusage`, whose every pattern of bits is one.
        let usage = unsafe {
            if libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) != 0 {
                return Used::default();
            }
            usage.assume_init()
        };
        let time = |t: libc::timeval| Duration::new(t.tv_sec.max(0) as u64, t.tv_usec.clamp(0, 999_999) as u32 * 1000);
        Used { time: time(usage.ru_utime) + time(usage.ru_stime), waits: usage.ru_nvcsw, pushed: usage.ru_nivcsw }
    }
}

impl Watch {
    pub fn start(now: Instant) -> Self {
        Watch { began: now, used: Used::now() }
    }

    /// Whether the job was mostly waiting; `None`: it was too short to tell. Time that others had the processor is no
    /// waiting.
    fn waited(&self) -> Option<bool> {
        let took = self.began.elapsed();
        if took < JOB_MIN {
            return None;
        }
        let used = Used::now();
        let busy = used.time.saturating_sub(self.used.time);
        Some(busy * BUSY_PART < took && used.waits - self.used.waits > used.pushed - self.used.pushed)
    }
}

impl Shared {
    /// One worker more, unless there are as many as there may be.
    pub(super) fn enlist(self: &Arc<Self>) -> std::io::Result<()> {
        let number = {
            let mut state = self.lock();
            if state.workers >= self.crew_most {
                return Ok(());
            }
            state.workers += 1;
            state.workers - 1
        };
        let shared = Arc::clone(self);
        let spawned = std::thread::Builder::new().name(format!("walk-{number}")).spawn(move || worker::main(&shared));
        spawned.map(drop).inspect_err(|_| self.lock().workers -= 1)
    }

    /// A job is done: if all of late were mostly waiting, and nobody is without work, there is one worker more.
    pub(super) fn learn(self: &Arc<Self>, job: &Watch) {
        let Some(waited) = job.waited() else { return };
        if !waited {
            self.waits.store(0, Ordering::Relaxed);
            return;
        }
        if self.waits.fetch_add(1, Ordering::Relaxed) + 1 < WAITS || self.hungry.load(Ordering::Relaxed) > 0 {
            return;
        }
        self.waits.store(0, Ordering::Relaxed);
        if !self.stopped() {
            // Where no thread can be had those that are there do the work.
            let _ = self.enlist();
        }
    }
}
