//! Directories that the snapshot has and that may be empty in it, for restores that delete.
//!
//! A directory without entries shows only by what follows it: entries stand in the order of their directories, so one
//! that is waited for has none as soon as a later one begins. Which of them the snapshot knows to be empty depends on
//! how whole it is: see [`Empties::new`].

use super::Options;
use super::delete::delete;
use super::selection::{Selection, source, source_dir};
use super::worker::Context;
use drumlin_format::tree::join;
use std::collections::BTreeSet;

/// Keys of directories that are there and of which no entry was met yet.
pub(super) struct Empties {
    /// `None`: nothing is deleted in directories without entries.
    waiting: Option<BTreeSet<Vec<u8>>>,
}

impl Empties {
    /// For a restore. In a snapshot of which something could not be read, which ends early, or which doesn't say what was
    /// on other file systems, a directory may lack its entries because of that: nothing is deleted in it.
    pub fn new(options: &Options) -> Self {
        let snapshot = &options.snapshot;
        let whole = snapshot.partial.is_none() && snapshot.summary.unreadable == 0 && snapshot.passed_by.is_some();
        Empties { waiting: (options.delete && whole).then(BTreeSet::new) }
    }

    /// A directory of the snapshot, all of which is wanted, is there. Not of one that something else is mounted on: the
    /// snapshot may be of what is below it.
    pub fn expect(&mut self, dir: &[u8], name: &[u8]) {
        if let Some(waiting) = &mut self.waiting {
            waiting.insert(join(dir, name));
        }
    }

    /// The entries of a directory begin: those before it have none.
    pub fn begin(&mut self, key: &[u8], context: &Context, selection: &Selection) {
        let Some(waiting) = &mut self.waiting else { return };
        while let Some(first) = waiting.pop_first() {
            if &first[..] > key {
                waiting.insert(first);
                return;
            }
            if first != key {
                clear(&first, context, selection);
            }
        }
    }

    /// There are no more entries.
    pub fn end(&mut self, context: &Context, selection: &Selection) {
        self.waiting.take().into_iter().flatten().for_each(|key| clear(&key, context, selection));
    }

    /// A part of the tree can't be read: nobody knows what is empty.
    pub fn give_up(&mut self) {
        self.waiting = None;
    }
}

/// Delete all that is in a directory.
fn clear(key: &[u8], context: &Context, selection: &Selection) {
    let Some(target) = &context.target else { return };
    let listed = target.dir(&selection.below(key)).and_then(|handle| Ok((handle.list()?, handle)));
    match listed {
        Ok((names, handle)) if selection.is_marked(&handle, &names) => {}
        Ok((names, handle)) => {
            let below = selection.below(key);
            for name in names.iter() {
                delete(context, (&below, &handle), name, &source(key, name), selection);
            }
        }
        Err(e) if e.is_missing() => {}
        Err(e) => context.unwritable(&source_dir(key), e),
    }
}
