//! The same work on several threads.

use crate::{Error, Result};

/// Do the same on several threads of this name; this one is the first of them. The first failure is given, once all have
/// ended.
pub(crate) fn on_threads(name: &str, threads: usize, work: impl Fn() -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let spawn = |_| std::thread::Builder::new().name(name.into()).spawn_scoped(scope, &work).ok();
        // Without the others it takes longer, and comes to the same.
        let others: Vec<_> = (1..threads).filter_map(spawn).collect();
        let own = work();
        others.into_iter().fold(own, |result, thread| result.and(thread.join().unwrap_or(Err(Error::Worker))))
    })
}
