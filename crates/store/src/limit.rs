//! How fast bytes may go, each way: shared by all connections of a store.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::lock::lock;

/// So much may go at once after a pause.
const BURST: Duration = Duration::from_millis(100);

/// A limit of one direction.
#[derive(Clone, Default)]
pub(crate) struct Limit {
    /// Bytes a second, and when the line is free again.
    free: Option<Arc<(u64, Mutex<Instant>)>>,
}

impl Limit {
    /// `None` is no limit.
    pub(crate) fn new(bytes_a_second: Option<u64>) -> Self {
        Limit { free: bytes_a_second.map(|rate| Arc::new((rate.max(1), Mutex::new(Instant::now())))) }
    }

    /// There is one.
    pub(crate) fn is_any(&self) -> bool {
        self.free.is_some()
    }

    /// How long to wait before, or after, these bytes go.
    pub(crate) fn delay(&self, bytes: usize) -> Duration {
        let Some(free) = &self.free else { return Duration::ZERO };
        let (rate, free) = &**free;
        let now = Instant::now();
        let mut free = lock(free);
        let takes = Duration::from_secs_f64(bytes as f64 / *rate as f64);
        *free = (*free).max(now.checked_sub(BURST).unwrap_or(now)) + takes;
        free.saturating_duration_since(now)
    }
}

/// Both directions.
#[derive(Clone, Default)]
pub(crate) struct Limits {
    pub upload: Limit,
    pub download: Limit,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_wait_for_those_before_them() {
        assert_eq!(Limit::new(None).delay(1 << 40), Duration::ZERO);
        let limit = Limit::new(Some(1000));
        let shared = limit.clone();
        let first = limit.delay(1000);
        assert!(first <= Duration::from_secs(1) && first > Duration::from_millis(800), "{first:?}");
        let second = shared.delay(500);
        assert!(second > Duration::from_millis(1300) && second <= Duration::from_millis(1500), "{second:?}");
    }
}
