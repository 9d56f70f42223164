//! Threads: as many as are wanted, or as there can be.

use crate::{Error, Result};
use std::thread::{Builder, Scope};

/// Do the same on several threads of this name; this one is the first of them. The first failure is given, once all
/// have ended.
pub(crate) fn on_threads(name: &str, threads: usize, work: impl Fn() -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let spawn = |_| Builder::new().name(name.into()).spawn_scoped(scope, &work).ok();
        // Without the others it takes longer, and comes to the same.
        let others: Vec<_> = (1..threads).filter_map(spawn).collect();
        let own = work();
        others.into_iter().fold(own, |result, thread| result.and(thread.join().unwrap_or(Err(Error::Worker))))
    })
}

/// Start so many workers in threads of this name, or as many as there can be: those that are there do the work. Gives
/// how many there are.
///
/// # Errors
/// There can be none at all; what making a worker fails with.
pub(crate) fn start<'scope, W>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    workers: usize,
    mut worker: impl FnMut() -> Result<W>,
) -> Result<usize>
where
    W: FnOnce() + Send + 'scope,
{
    for number in 0..workers {
        let builder = Builder::new().name(format!("{name}-{number}"));
        match builder.spawn_scoped(scope, worker()?) {
            Ok(_) => {}
            Err(e) if number == 0 => return Err(Error::system("start a thread")(e)),
            Err(_) => return Ok(number),
        }
    }
    Ok(workers)
}
