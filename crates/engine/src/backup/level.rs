//! How hard to compress: what the user said, or what keeps the slowest stage busy.
//!
//! `Auto` watches how long the workers wait for the storage. On a fast disk the processors are the slowest stage and
//! the level is the one that pays best there; on a slow line they wait, and the level rises until they no longer do.

use drumlin_repo::pack::Coding;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How hard to compress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// As it pays.
    Auto,
    /// Always at this zstd level.
    Level(i32),
    /// Not at all.
    None,
}

/// The level of the moment, shared by the workers.
pub(crate) struct Level {
    fixed: Option<Coding>,
    level: AtomicI32,
    /// Nanoseconds spent coding and sealing, and waiting for the storage, since the level was last thought over.
    busy: AtomicU64,
    waiting: AtomicU64,
}

const LEVEL_START: i32 = 3;
const LEVEL_MIN: i32 = 3;
const LEVEL_MAX: i32 = 12;
/// The level is thought over after so much coding.
const PERIOD: Duration = Duration::from_millis(500);

impl Level {
    pub fn new(compression: Compression) -> Self {
        let fixed = match compression {
            Compression::Auto => None,
            Compression::Level(level) => Some(Coding::Zstd(level)),
            Compression::None => Some(Coding::Raw),
        };
        Level { fixed, level: AtomicI32::new(LEVEL_START), busy: AtomicU64::new(0), waiting: AtomicU64::new(0) }
    }

    /// How to code the next block.
    pub fn coding(&self) -> Coding {
        self.fixed.unwrap_or_else(|| Coding::Best(self.level.load(Ordering::Relaxed)))
    }

    /// A block took from `start` to now, `waited` of it for the storage.
    pub fn learn(&self, start: Instant, waited: Duration) {
        if self.fixed.is_some() {
            return;
        }
        let busy = start.elapsed().saturating_sub(waited);
        let busy = self.busy.fetch_add(busy.as_nanos() as u64, Ordering::Relaxed) + busy.as_nanos() as u64;
        let waiting = self.waiting.fetch_add(waited.as_nanos() as u64, Ordering::Relaxed) + waited.as_nanos() as u64;
        if busy + waiting < PERIOD.as_nanos() as u64 {
            return;
        }
        self.busy.store(0, Ordering::Relaxed);
        self.waiting.store(0, Ordering::Relaxed);
        let level = self.level.load(Ordering::Relaxed);
        // More waiting than work: a level more costs nothing. Hardly any waiting: back towards what pays on a fast
        // disk.
        let next = if waiting > busy {
            level + 1
        } else if waiting * 8 < busy {
            level - 1
        } else {
            level
        };
        self.level.store(next.clamp(LEVEL_MIN, LEVEL_MAX), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learn(level: &Level, busy: u64, waited: u64) {
        let start = Instant::now().checked_sub(Duration::from_millis(busy + waited)).unwrap();
        level.learn(start, Duration::from_millis(waited));
    }

    #[test]
    fn rises_while_the_storage_is_slow_and_falls_back() {
        let level = Level::new(Compression::Auto);
        assert_eq!(level.coding(), Coding::Best(LEVEL_START));
        (0..30).for_each(|_| learn(&level, 10, 700));
        assert_eq!(level.coding(), Coding::Best(LEVEL_MAX));
        (0..30).for_each(|_| learn(&level, 700, 0));
        assert_eq!(level.coding(), Coding::Best(LEVEL_MIN));
        (0..30).for_each(|_| learn(&level, 400, 200));
        assert_eq!(level.coding(), Coding::Best(LEVEL_MIN), "a balance is left alone");
    }

    #[test]
    fn what_the_user_says_stays() {
        for (compression, coding) in [(Compression::Level(7), Coding::Zstd(7)), (Compression::None, Coding::Raw)] {
            let level = Level::new(compression);
            (0..10).for_each(|_| learn(&level, 1, 900));
            assert_eq!(level.coding(), coding);
        }
    }
}
