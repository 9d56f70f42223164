//! Backup: walk and old tree merged in order; what differs read, cut, deduplicated and stored by workers; a new tree
//! built in order at the end of it.
//!
//! ```text
//! walk ─┐                ┌─ worker ─┐
//!       ├─ merge ─ jobs ─┤          ├─ results ─ assemble ─ tree
//! old ──┘                └─ worker ─┘
//! ```
//!
//! Merge and assembly share a thread. Every queue between them is bounded. Crash order is `drumlin_repo`'s: nothing
//! refers to what is not durable; a run that is stopped leaves a partial snapshot of what it has.

mod ahead;
mod assemble;
mod big;
mod ground;
mod job;
mod level;
mod losses;
mod merge;
mod old;
mod parent;
mod passed_by;
mod racy;
mod run;
mod worker;

pub use level::Compression;
pub(crate) use level::Level;
pub use parent::{Parent, ParentSnapshots, remembered};
pub use run::backup;
pub(crate) use run::is_worth_naming;

use crate::monitor::Counts;
use drumlin_format::IndexId;
use drumlin_format::snapshot::Snapshot;
use drumlin_host::filter::Filter;
use drumlin_host::walk::Crew;
use drumlin_repo::IndexMode;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

/// What to back up.
pub enum Source {
    /// Paths on this machine.
    Paths {
        /// Absolute paths.
        paths: Vec<Vec<u8>>,
        /// What to leave out.
        filter: Arc<Filter>,
        /// Don't leave the file systems of the sources.
        one_file_system: bool,
    },
    /// A stream, saved as one file.
    Stream {
        /// The file's name in the snapshot.
        name: Vec<u8>,
        /// Its bytes.
        reader: Box<dyn Read + Send>,
        /// Asked after the end of the stream: an error means that it was not whole, and no snapshot is made.
        outcome: Box<dyn FnOnce() -> std::result::Result<(), String> + Send>,
    },
}

/// How to back up.
pub struct Options {
    /// What.
    pub source: Source,
    /// The machine's name.
    pub host: String,
    /// The user's name.
    pub user: String,
    /// Tags of the snapshot.
    pub tags: Vec<String>,
    /// The snapshot's time; now if `None`. Seconds since 1970 and nanoseconds.
    pub time: Option<(i64, u32)>,
    /// What to compare with.
    pub parent: Parent,
    /// Read every file, whatever the comparison says.
    pub force: bool,
    /// How hard to compress.
    pub compression: Compression,
    /// Threads that read, cut, compress and seal.
    pub workers: usize,
    /// Threads that walk.
    pub walkers: Crew,
    /// Where opening takes longer than this, on average, small files are read ahead by many threads. See
    /// [`crate::LATE`].
    pub late: Duration,
    /// Bytes of memory to use, about.
    pub memory: usize,
    /// How much of the index to hold.
    pub index: IndexMode,
    /// Store a partial snapshot after so many new bytes; 0: only when stopped.
    pub checkpoint_bytes: u64,
    /// Make no snapshot where the one that it is compared with has the same tags and the same tree.
    pub skip_unchanged: bool,
    /// The program and its version.
    pub program: String,
}

/// What a backup did.
#[derive(Clone, Debug)]
pub struct Report {
    /// The snapshot; partial if the run was stopped. `None` only for one that would be as its parent is:
    /// [`Options::skip_unchanged`].
    pub snapshot: Option<Snapshot>,
    /// The index objects that were put for it.
    pub indexes: Vec<IndexId>,
    /// The snapshot that it was compared with.
    pub parent: Option<Snapshot>,
    /// The numbers.
    pub counts: Counts,
    /// Bytes that tree nodes take in the repository.
    pub tree_bytes: u64,
    /// Milliseconds it took.
    pub millis: u64,
    /// Whether it was stopped before its end.
    pub stopped: bool,
}
