//! What the merge hands to the workers, and what comes back.

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

/// A batch dealt with. Entries that vanished are left out.
pub(super) struct Batch {
    pub entries: Vec<Finished>,
    /// The run was stopped in its midst: the rest is missing.
    pub cut_short: bool,
}

/// A batch's number and what became of it.
pub(super) type Done = (u64, crate::Result<Batch>);
