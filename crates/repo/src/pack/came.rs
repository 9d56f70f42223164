//! Blocks of contents as they came from a storage far away: whoever needs another part of one need not fetch it again,
//! nor while it is on its way.
//!
//! What a large file's changes of a day have put stands in few blocks, in the file's order: a restore from its start to
//! its end comes back to each day's block again and again, until all of it is used. So blocks of which something is
//! left, or is known to be wanted, stay longest.

use super::Lru;
use crate::lock::lock;
use drumlin_format::PackId;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// One part in so many of the room is for blocks that were used up: a chunk may be in a file twice, or in two files.
const SPENT_PART: usize = 4;

/// A pack, and a block's number in its table.
type At = (PackId, u32);

/// The blocks that came last, sealed.
pub(super) struct Came {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Blocks of which something was not used so far.
    kept: Lru<At, Vec<u8>>,
    /// Blocks of which everything was used once.
    spent: Lru<At, Vec<u8>>,
    /// Bytes of blocks in `kept` that were used.
    used: HashMap<At, u64>,
    /// Bytes of blocks that are known to be wanted yet.
    wanted: HashMap<At, u64>,
    /// Blocks that are being fetched now.
    coming: HashSet<At>,
}

/// What is to be fetched by whoever has asked for it.
pub(super) struct Coming<'a> {
    came: &'a Came,
    at: At,
}

impl Came {
    /// Room for so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        let (kept, spent) = (Lru::new(bytes_max - bytes_max / SPENT_PART), Lru::new(bytes_max / SPENT_PART));
        let state = State { kept, spent, used: HashMap::new(), wanted: HashMap::new(), coming: HashSet::new() };
        Came { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// The block, once it is there if somebody else fetches it; else it is for this one to fetch.
    pub fn get(&self, at: At) -> Result<Arc<Vec<u8>>, Coming<'_>> {
        let mut state = lock(&self.state);
        loop {
            if let Some(sealed) = state.kept.get(&at) {
                return Ok(sealed);
            }
            if let Some(sealed) = state.spent.get(&at) {
                return Ok(sealed);
            }
            if state.coming.insert(at) {
                return Err(Coming { came: self, at });
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether it is there, or on its way.
    pub fn is_known(&self, at: At) -> bool {
        let state = lock(&self.state);
        state.kept.contains(&at) || state.spent.contains(&at) || state.coming.contains(&at)
    }

    /// So many bytes of a block will be used.
    pub fn wanted(&self, at: At, bytes: u64) {
        *lock(&self.state).wanted.entry(at).or_default() += bytes;
    }

    /// So many bytes of a block were used, which has `of` in all. It stays while something is left: of what is wanted,
    /// if that is known.
    pub fn used(&self, at: At, bytes: u64, of: u64) {
        let mut state = lock(&self.state);
        let state = &mut *state;
        let is_spent = match state.wanted.get_mut(&at) {
            Some(wanted) => {
                *wanted = wanted.saturating_sub(bytes);
                *wanted == 0
            }
            None if !state.kept.contains(&at) => false,
            None => {
                let used = state.used.entry(at).or_default();
                *used += bytes;
                *used >= of
            }
        };
        if is_spent {
            state.wanted.remove(&at);
            state.used.remove(&at);
            if let Some(sealed) = state.kept.get(&at) {
                state.kept.remove(&at);
                let len = sealed.len();
                state.spent.put(at, sealed, len);
            }
        }
    }
}

impl Coming<'_> {
    /// Here it is.
    pub fn arrived(self, sealed: &[u8]) {
        let mut state = lock(&self.came.state);
        let state = &mut *state;
        state.kept.put(self.at, Arc::new(sealed.to_vec()), sealed.len());
        let kept = &state.kept;
        state.used.retain(|at, _| kept.contains(at));
    }
}

/// Whoever waits for it looks again: it is there, or theirs to fetch.
impl Drop for Coming<'_> {
    fn drop(&mut self) {
        lock(&self.came.state).coming.remove(&self.at);
        self.came.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_which_something_is_left_stay_longest() {
        let came = Came::new(40);
        let at = |n| (PackId([1; 16]), n);
        let fetch = |n| came.get(at(n)).map(drop).unwrap_err().arrived(&[n as u8; 10]);
        fetch(0);
        came.used(at(0), 5, 10);
        for n in 1..9 {
            fetch(n);
            came.used(at(n), 4, 10);
            assert!(came.get(at(n)).is_ok(), "something is left of {n}");
            came.used(at(n), 6, 10);
            assert!(came.is_known(at(n)), "the last one of which all was used is there, too");
        }
        assert!(came.is_known(at(0)) && !came.is_known(at(7)));
        came.used(at(0), 5, 10);
        assert!(came.is_known(at(0)) && !came.is_known(at(8)));
        // What was never there is none of its business.
        came.used(at(50), 10, 10);
        assert_eq!(lock(&came.state).used.len(), 0);
    }

    #[test]
    fn what_is_wanted_decides_where_that_is_known() {
        let came = Came::new(40);
        let at = |n| (PackId([1; 16]), n);
        let fetch = |n| came.get(at(n)).map(drop).unwrap_err().arrived(&[n as u8; 10]);
        came.wanted(at(0), 12);
        came.wanted(at(1), 3);
        (0..2).for_each(fetch);
        came.used(at(0), 10, 10);
        came.used(at(1), 3, 10);
        for n in 2..9 {
            fetch(n);
            came.used(at(n), 10, 10);
        }
        assert!(came.is_known(at(0)), "it comes once more");
        assert!(!came.is_known(at(1)), "the rest of it doesn't");
        came.used(at(0), 2, 10);
        assert!(lock(&came.state).wanted.is_empty() && lock(&came.state).kept.get(&at(0)).is_none());
    }
}
