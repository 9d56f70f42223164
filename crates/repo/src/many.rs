//! Many small requests of the storage: one after the other where it is at hand, many at once where each waits for its
//! answer.

use crate::Repository;
use crate::beside::beside;
use drumlin_store::Store;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// Requests that are under way at once, of a storage far away.
const AT_ONCE: usize = 16;

impl Repository {
    /// Ask the storage something of each of these. The answers come in their order.
    ///
    /// # Errors
    /// The first that is met; what was under way beside it is done then, and of the rest nothing.
    pub fn ask_many<T, R, E>(&self, items: &[T], ask: impl Fn(&T) -> Result<R, E> + Sync) -> Result<Vec<R>, E>
    where
        T: Sync,
        R: Send,
        E: Send,
    {
        ask_store(&**self.store(), items, ask)
    }

    /// Two different things: one after the other, or side by side.
    pub fn ask_both<A, B: Send>(&self, one: impl FnOnce() -> A, other: impl FnOnce() -> B + Send) -> (A, B) {
        if !self.store().is_far() {
            return (one(), other());
        }
        thread::scope(|scope| {
            let other = beside(scope, "ask", other);
            let one = one();
            (one, other.join())
        })
    }
}

/// As [`Repository::ask_many`], of a store that is no repository yet.
pub(crate) fn ask_store<T, R, E>(
    store: &dyn Store,
    items: &[T],
    ask: impl Fn(&T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E>
where
    T: Sync,
    R: Send,
    E: Send,
{
    at_once(if store.is_far() { AT_ONCE.min(items.len()) } else { 1 }, items, ask)
}

fn at_once<T, R, E>(threads: usize, items: &[T], ask: impl Fn(&T) -> Result<R, E> + Sync) -> Result<Vec<R>, E>
where
    T: Sync,
    R: Send,
    E: Send,
{
    if threads < 2 {
        return items.iter().map(ask).collect();
    }
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let some = || {
        let mut answers = Vec::new();
        while !failed.load(Ordering::Relaxed) {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { break };
            match ask(item) {
                Ok(answer) => answers.push((at, answer)),
                Err(e) => {
                    failed.store(true, Ordering::Relaxed);
                    return Err(e);
                }
            }
        }
        Ok(answers)
    };
    let mut answers = Vec::with_capacity(items.len());
    thread::scope(|scope| {
        let spawn = |_| thread::Builder::new().name("ask".into()).spawn_scoped(scope, some).ok();
        // As many as there can be, and this one.
        let others: Vec<_> = (1..threads).map_while(spawn).collect();
        let mut all = vec![some()];
        let join = |other: thread::ScopedJoinHandle<_>| other.join().unwrap_or_else(|panic| resume_unwind(panic));
        all.extend(others.into_iter().map(join));
        all.into_iter().try_for_each(|some| some.map(|some| answers.extend(some)))
    })?;
    answers.sort_unstable_by_key(|(at, _)| *at);
    Ok(answers.into_iter().map(|(_, answer)| answer).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn answers_come_in_order_and_are_waited_for_together() {
        let items: Vec<u32> = (0..100).collect();
        let together = Barrier::new(4);
        let doubled = at_once(4, &items, |n| {
            together.wait();
            Ok::<_, ()>(n * 2)
        });
        assert_eq!(doubled, Ok(items.iter().map(|n| n * 2).collect()));
        assert_eq!(at_once(4, &[] as &[u32], |n| Ok::<_, ()>(*n)), Ok(Vec::new()));
    }

    #[test]
    fn an_error_ends_it() {
        let items: Vec<u32> = (0..100_000).collect();
        let asked = AtomicUsize::new(0);
        let ended = at_once(4, &items, |n| {
            asked.fetch_add(1, Ordering::Relaxed);
            if *n == 7 { Err("seven") } else { Ok(()) }
        });
        assert_eq!(ended, Err("seven"));
        assert!(asked.load(Ordering::Relaxed) < items.len());
    }
}
