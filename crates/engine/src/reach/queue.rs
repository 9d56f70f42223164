//! Nodes that wait for a thread. The last one put is the next one taken, so that the threads stay side by side in the
//! tree, and few nodes wait however large it is.

use crate::lock::lock;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What waits, and how many threads may still put more.
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    tasks: Vec<T>,
    working: usize,
    ended: bool,
}

impl<T> Queue<T> {
    /// With these to begin with; the last one comes first.
    pub fn new(tasks: Vec<T>) -> Self {
        Queue { state: Mutex::new(State { tasks, working: 0, ended: false }), changed: Condvar::new() }
    }

    /// Put some; the last one comes first.
    pub fn put(&self, tasks: impl IntoIterator<Item = T>) {
        self.lock().tasks.extend(tasks);
        self.changed.notify_all();
    }

    /// The next one, to be followed by [`Queue::done`]; waits for one that may come. `None`: there will be no more.
    pub fn take(&self) -> Option<T> {
        let mut state = self.lock();
        loop {
            if state.ended {
                return None;
            }
            if let Some(task) = state.tasks.pop() {
                state.working += 1;
                return Some(task);
            }
            if state.working == 0 {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// What was taken is dealt with, and what it leads to has been put.
    pub fn done(&self) {
        let mut state = self.lock();
        state.working -= 1;
        if state.working == 0 && state.tasks.is_empty() {
            self.changed.notify_all();
        }
    }

    /// No more.
    pub fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        lock(&self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn all_that_comes_is_taken_once_by_any_number_of_threads() {
        for threads in [1, 2, 5] {
            let (queue, taken) = (Queue::new(vec![12u64]), AtomicU64::new(0));
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| {
                        while let Some(level) = queue.take() {
                            taken.fetch_add(1, Ordering::Relaxed);
                            if level > 0 {
                                queue.put([level - 1, level - 1]);
                            }
                            queue.done();
                        }
                    });
                }
            });
            assert_eq!(taken.load(Ordering::Relaxed), (1 << 13) - 1, "{threads} threads");
        }
    }

    #[test]
    fn an_end_wakes_those_who_wait() {
        let queue = Queue::new(vec![1]);
        assert_eq!(queue.take(), Some(1));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| queue.take());
            queue.end();
            assert_eq!(waits.join().unwrap(), None);
        });
    }
}
