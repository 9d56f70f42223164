//! Blocks of contents as they came from a storage far away: whoever needs another part of one need not fetch it again, nor while it is on its way.

use super::Lru;
use super::reader::lock;
use drumlin_format::PackId;
use std::collections::HashSet;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// A pack, and a block's number in its table.
type At = (PackId, u32);

/// The blocks that came last, sealed.
pub(super) struct Came {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    kept: Lru<At, Vec<u8>>,
    /// Those that somebody fetches just now.
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
        let state = State { kept: Lru::new(bytes_max), coming: HashSet::new() };
        Came { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// The block, once it is there if somebody else fetches it; else it is for this one to fetch.
    pub fn get(&self, at: At) -> Result<Arc<Vec<u8>>, Coming<'_>> {
        let mut state = lock(&self.state);
        loop {
            if let Some(sealed) = state.kept.get(&at) {
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
        state.kept.contains(&at) || state.coming.contains(&at)
    }
}

impl Coming<'_> {
    /// Here it is.
    pub fn arrived(self, sealed: &[u8]) {
        lock(&self.came.state).kept.put(self.at, Arc::new(sealed.to_vec()), sealed.len());
    }
}

/// Whoever waits for it looks again: it is there, or theirs to fetch.
impl Drop for Coming<'_> {
    fn drop(&mut self) {
        lock(&self.came.state).coming.remove(&self.at);
        self.came.changed.notify_all();
    }
}
