//! How many workers a walk has: more of them while most of their time goes by in waiting for the file system, and
//! processors have nothing to do meanwhile.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

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

/// Processors are looked at over times that are no shorter: what other threads have used is known to a tick, which may
/// be ten milliseconds.
const LOAD_TIME: Duration = Duration::from_millis(20);

/// From how many quarters of their time on they are full.
const FULL_QUARTERS: u32 = 3;

/// How much of the processors' time this process has used of late.
pub(super) struct Load {
    pub(super) processors: u32,
    since: Instant,
    used: Duration,
    pub(super) full: bool,
}

impl Load {
    pub fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX));
        Load { processors, since: Instant::now(), used: process_time(), full: false }
    }

    /// Whether it is nearly all: then who waits mostly waits for others of this process, for a lock or a processor, and
    /// a worker more would have them wait longer. A tree that is at hand, of 57,000 directories, had 40 workers by
    /// that, half as much memory again, and four times as many waits for locks.
    fn is_full(&mut self) -> bool {
        let now = Instant::now();
        if now - self.since >= LOAD_TIME {
            self.look(now, process_time());
        }
        self.full
    }

    fn look(&mut self, now: Instant, used: Duration) {
        let there_was = (now - self.since) * self.processors;
        self.full = used.saturating_sub(self.used) >= there_was * FULL_QUARTERS / 4;
        (self.since, self.used) = (now, used);
    }
}

/// Processor time of all threads.
fn process_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec.clamp(0, 999_999_999) as u32)
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

    /// A job is done: if it was mostly waiting, while processors were free and nobody without work, there is one worker
    /// more.
    pub(super) fn learn(self: &Arc<Self>, job: &Watch) {
        if job.waited() != Some(true) || self.hungry.load(Ordering::Relaxed) > 0 || self.stopped() {
            return;
        }
        if !self.load.lock().unwrap_or_else(PoisonError::into_inner).is_full() {
            // Where no thread can be had those that are there do the work.
            let _ = self.enlist();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_full_from_three_quarters_on() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let mut load = Load { processors: 2, since: began, used: Duration::from_secs(9), full: false };
        let mut is_full_after = |ms, used_ms| {
            load.look(at(ms), Duration::from_secs(9) + Duration::from_millis(used_ms));
            load.full
        };
        assert!(!is_full_after(20, 29));
        assert!(is_full_after(40, 29 + 30));
        // What was used before counts no more.
        assert!(!is_full_after(60, 29 + 30 + 29));
        assert!(is_full_after(160, 29 + 30 + 29 + 200));
        assert!(!is_full_after(260, 29 + 30 + 29 + 200));
    }
}
