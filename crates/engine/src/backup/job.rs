//! What the merge hands to the workers, and what comes back.

use crate::{Error, Result};
use crossbeam_channel::{Receiver, Sender};
use drumlin_format::tree::{Content, Data, Meta};
use drumlin_host::dir::Dir;
use drumlin_host::meta::Stat;
use std::io::Read;
use std::sync::{Arc, Barrier};

/// An entry that is new or has changed.
pub(super) struct Entry {
    /// Its directory on this machine.
    pub dir: Arc<Dir>,
    /// Its directory in the tree.
    pub key: Arc<[u8]>,
    /// Its name.
    pub name: Box<[u8]>,
    /// What the walk saw.
    pub stat: Stat,
    /// The ordinal of its file system.
    pub filesystem: u32,
    /// Whether it was there before.
    pub known: bool,
    /// What its contents were before, if it was changed.
    pub old: Option<Data>,
}

/// Work.
pub(super) enum Job {
    /// Some entries, all of them small files or no files, or a single large one.
    Batch(u64, Vec<Entry>),
    /// A stream to be saved as a file of this name.
    Stream(u64, Box<[u8]>, Box<dyn Read + Send>),
    /// Store what is at hand, and meet at the barrier: each worker takes one of these.
    Flush(Arc<Barrier>),
}

/// An entry dealt with.
pub(super) struct Finished {
    pub key: Arc<[u8]>,
    pub name: Box<[u8]>,
    pub meta: Meta,
    pub content: Content,
}

/// A batch dealt with.
pub(super) struct Batch {
    /// In their order; `None` for an entry that vanished.
    pub entries: Vec<Option<Finished>>,
    /// The run was stopped in its midst: the rest is missing.
    pub cut_short: bool,
}

/// A batch's number and what became of it.
pub(super) type Done = (u64, Result<Batch>);

/// The workers, as the merge has them. With it their jobs end, and so do they.
pub(super) struct Workers {
    pub jobs: Sender<Job>,
    pub done: Receiver<Done>,
    /// How many they are.
    pub count: usize,
}

impl Workers {
    /// All store what is at hand: each takes one of the jobs, since none goes on before all have met.
    pub fn flush(&self) -> Result<()> {
        let barrier = Arc::new(Barrier::new(self.count + 1));
        for _ in 0..self.count {
            self.jobs.send(Job::Flush(barrier.clone())).map_err(|_| Error::Worker)?;
        }
        barrier.wait();
        Ok(())
    }
}
