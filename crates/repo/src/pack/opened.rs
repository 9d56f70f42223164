//! Blocks that were opened and decoded last, for the chunks beside the one that they were opened for. Each is opened
//! once, whoever else wants it meanwhile: workers that restore the files of one block all come at the same moment.

use super::Lru;
use crate::lock::lock;
use drumlin_format::PackId;
use std::collections::HashSet;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// A pack, and a block's number in its table.
type At = (PackId, u32);

/// The blocks.
pub(super) struct Opened {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    kept: Lru<At, Vec<u8>>,
    /// Those that somebody opens just now.
    under_way: HashSet<At>,
}

/// The turn of whoever has asked for a block that is not there: to open it.
pub(super) struct Turn<'a> {
    opened: &'a Opened,
    at: At,
}

impl Opened {
    /// Room for so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        let state = State { kept: Lru::new(bytes_max), under_way: HashSet::new() };
        Opened { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// The block, once it is there if somebody else opens it; else it is this one's turn.
    pub fn get(&self, at: At) -> Result<Arc<Vec<u8>>, Turn<'_>> {
        let mut state = lock(&self.state);
        loop {
            if let Some(block) = state.kept.get(&at) {
                return Ok(block);
            }
            if state.under_way.insert(at) {
                return Err(Turn { opened: self, at });
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether it is there, or about to be.
    pub fn is_known(&self, at: At) -> bool {
        let state = lock(&self.state);
        state.kept.contains(&at) || state.under_way.contains(&at)
    }
}

impl Turn<'_> {
    /// Here it is.
    pub fn done(self, block: Arc<Vec<u8>>) {
        let len = block.len();
        lock(&self.opened.state).kept.put(self.at, block, len);
    }
}

/// Whoever waits for it looks again: it is there, or it is his turn.
impl Drop for Turn<'_> {
    fn drop(&mut self) {
        lock(&self.opened.state).under_way.remove(&self.at);
        self.opened.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    #[test]
    fn each_block_is_opened_once_whoever_comes() {
        let (opened, opens, at) = (Opened::new(100), AtomicUsize::new(0), (PackId([1; 16]), 7));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| match opened.get(at) {
                    Ok(block) => assert_eq!(*block, [7]),
                    Err(turn) => {
                        opens.fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(Duration::from_millis(20));
                        turn.done(Arc::new(vec![7]));
                    }
                });
            }
        });
        assert_eq!(opens.load(Ordering::Relaxed), 1);
        // Who fails leaves it to the next one.
        let other = (PackId([1; 16]), 8);
        drop(opened.get(other));
        assert!(!opened.is_known(other) && opened.get(other).is_err());
    }
}
