//! Work beside other work: in a thread of its own where there can be one. Where there can't (a limit of processes, no
//! room for a stack) it is done at once and here, which takes longer and comes to the same.

use crate::lock::lock;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

/// Work that goes on, or what came of it.
pub enum Beside<H, T> {
    /// In this thread.
    Thread(H),
    /// It was done at once.
    Done(T),
}

impl<T> Beside<ScopedJoinHandle<'_, T>, T> {
    /// Wait for it. A panic there is one here.
    pub fn join(self) -> T {
        match self {
            Beside::Thread(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Beside::Done(done) => done,
        }
    }
}

/// Work that ends before the scope does, in a thread of this name.
pub fn beside<'scope, T, F>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: F,
) -> Beside<ScopedJoinHandle<'scope, T>, T>
where
    T: Send + 'scope,
    F: FnOnce() -> T + Send + 'scope,
{
    begin(work, |work| Builder::new().name(name.into()).spawn_scoped(scope, work))
}

/// Work that may outlive whoever began it.
pub(crate) fn apart<T, F>(name: &str, work: F) -> Beside<JoinHandle<T>, T>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    begin(work, |work| Builder::new().name(name.into()).spawn(work))
}

/// A thread that can't be started takes its work with it: so it is held here as well, for whoever comes first.
fn begin<'a, H, T, F>(
    work: F,
    spawn: impl FnOnce(Box<dyn FnOnce() -> T + Send + 'a>) -> std::io::Result<H>,
) -> Beside<H, T>
where
    F: FnOnce() -> T + Send + 'a,
{
    let held = Arc::new(Mutex::new(Some(work)));
    let of_thread = held.clone();
    let take = |held: &Mutex<Option<F>>| lock(held).take();
    match spawn(Box::new(move || take(&of_thread).expect("the work is still there: its thread was started")())) {
        Ok(thread) => Beside::Thread(thread),
        Err(_) => Beside::Done(take(&held).expect("the work is still there: no thread was started")()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_in_a_thread_or_here() {
        let here = std::thread::current().id();
        std::thread::scope(|scope| {
            let there = beside(scope, "there", || std::thread::current().id());
            assert_ne!(there.join(), here);
        });
        let refused = |_: Box<dyn FnOnce() -> std::thread::ThreadId + Send>| -> std::io::Result<()> {
            Err(rustix::io::Errno::AGAIN.into())
        };
        assert!(matches!(begin(|| std::thread::current().id(), refused), Beside::Done(id) if id == here));
    }
}
