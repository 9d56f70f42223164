//! Who waits for something to come: as long as anybody does, or did a moment ago, what was asked for in advance is not
//! unwanted because nobody has fetched it. Over a slow line what comes first may be what is wanted last, by many
//! minutes.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::lock::lock;

/// Readers of a store.
#[derive(Default)]
pub(crate) struct Readers {
    state: Mutex<(usize, Option<Instant>)>,
}

/// One of them, until it has got what it waits for.
pub(crate) struct Reading<'a>(&'a Readers);

impl Readers {
    /// One begins to wait.
    pub(crate) fn begin(&self) -> Reading<'_> {
        lock(&self.state).0 += 1;
        Reading(self)
    }

    /// Nobody waits, nor has for so long.
    pub(crate) fn are_quiet(&self, time: Duration) -> bool {
        let (waiting, last) = *lock(&self.state);
        waiting == 0 && last.is_none_or(|last| last.elapsed() > time)
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        *state = (state.0 - 1, Some(Instant::now()));
    }
}
