//! What a directory takes the place of: it stays beside it, under another name, until all that belongs in the directory
//! is there.
//!
//! A file is written beside what it replaces, and renamed. A directory can't be: it is there long before the last of
//! its files has turned out to be whole. So what it replaces goes last, and stays where something is lost or the run
//! ends early; a kill leaves it, too.

use super::worker::Context;
use crate::lock::lock;
use crate::monitor::{Monitor, Problem, ProblemKind, add};
use drumlin_host::place::{self, TargetDir};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// All of a restore.
#[derive(Default)]
pub(super) struct Asides {
    all: Mutex<Vec<Aside>>,
    /// What is in the snapshot isn't known to its end.
    is_gap: AtomicBool,
}

struct Aside {
    /// Of the directory that is in its place, in the source.
    path: Vec<u8>,
    /// The directory in which both are, below the target.
    dir: Vec<u8>,
    name: Vec<u8>,
    /// All that was met so far of what belongs into the directory could be restored.
    is_whole: bool,
}

impl Asides {
    /// Make the directory `name` in the place of something else. `dir`: in which, its path below the target first.
    pub fn make_dir(
        &self,
        (dir, handle): (&[u8], &TargetDir),
        name: &[u8],
        flags: u32,
        path: &[u8],
    ) -> place::Result<()> {
        let aside = handle.set_aside(name)?;
        handle.create_dir(name, flags).inspect_err(|_| _ = handle.rename(&aside, handle, name))?;
        let aside = Aside { path: path.into(), dir: dir.into(), name: aside, is_whole: true };
        lock(&self.all).push(aside);
        Ok(())
    }

    /// Whether it is one of them: the path of its directory below the target, and its name.
    pub fn has(&self, dir: &[u8], name: &[u8]) -> bool {
        lock(&self.all).iter().any(|aside| (&*aside.dir, &*aside.name) == (dir, name))
    }

    /// Something could not be restored.
    pub fn lost(&self, path: &[u8]) {
        let is_below = |above: &[u8]| path.strip_prefix(above).is_some_and(|rest| matches!(rest, [] | [b'/', ..]));
        lock(&self.all).iter_mut().for_each(|aside| aside.is_whole &= !is_below(&aside.path));
    }

    /// Nobody knows what else could not be.
    pub fn gap(&self) {
        self.is_gap.store(true, Ordering::Relaxed);
    }

    /// All is there that could be restored: what has a whole successor goes.
    pub fn settle(&self, context: &Context) {
        if !self.is_gap.load(Ordering::Relaxed) {
            let (whole, rest) = std::mem::take(&mut *lock(&self.all)).into_iter().partition(|aside| aside.is_whole);
            *lock(&self.all) = rest;
            for aside in whole as Vec<Aside> {
                let removed = context.target.as_ref().map_or(Ok(()), |t| t.dir(&aside.dir)?.remove(&aside.name));
                removed.unwrap_or_else(|e| context.problem(&aside.path, ProblemKind::Unwritable, e));
            }
        }
        self.tell(context.monitor);
    }

    /// Where everything is that did not go: at an end, whatever that was.
    pub fn tell(&self, monitor: &dyn Monitor) {
        for Aside { path, name, .. } in std::mem::take(&mut *lock(&self.all)) {
            let cause = format!(
                "not everything that belongs in it was restored; what was in its place is kept beside it as {}",
                name.escape_ascii()
            );
            add(&monitor.counters().unwritable, 1);
            monitor.problem(&Problem { path, kind: ProblemKind::Unwritable, cause });
        }
    }
}
