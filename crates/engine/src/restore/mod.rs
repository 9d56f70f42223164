//! Restore: the tree read in order into a window of work, the window's chunks sorted by where they lie in the packs,
//! each block read and decoded once and its bytes written straight to where they belong.
//!
//! ```text
//! tree ─ plan ─ window ─ blocks in pack order ─┬─ worker ─┬─ files
//!                  └──── large and replaced ───┴─ worker ─┘
//! then hard links, then (backwards, children first) the directories' own metadata
//! ```
//!
//! Every chunk is checked before a byte of it is written, every file of several chunks as a whole once more. What is
//! there already and right is left alone; what is there and wrong is replaced in one step, after its new contents are
//! complete.

mod aside;
mod at_hand;
mod barriers;
mod cold;
mod compare;
mod delete;
mod dirs;
mod empties;
mod existing;
mod file;
mod hand_out;
mod links;
mod locate;
mod needs;
mod node;
mod own;
mod parts;
mod plan;
mod range;
mod run;
mod selection;
mod spared;
mod spread;
mod stream;
mod verify;
mod window;
mod worker;

pub use run::restore;

use crate::monitor::Counts;
use drumlin_format::snapshot::Snapshot;
use drumlin_host::filter::{Filter, Pattern};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What to do with files that are there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overwrite {
    /// Make them what the snapshot says, comparing their contents.
    Always,
    /// As `Always`, but believe equal length and time to mean equal contents.
    IfChanged,
    /// Only if the snapshot's is newer.
    IfNewer,
    /// Leave them alone.
    Never,
}

impl Overwrite {
    /// Whether a file may stay for no other reason than that it is there.
    fn spares(self) -> bool {
        matches!(self, Overwrite::IfNewer | Overwrite::Never)
    }
}

/// What to restore, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// Restore what is below this path as if it were the root.
    pub subfolder: Option<Vec<u8>>,
    /// Absolute paths in the snapshot (below `subfolder`, if that is given); all of it if empty.
    pub paths: Vec<Vec<u8>>,
    /// Where to.
    pub target: PathBuf,
    /// What to do with files that are there.
    pub overwrite: Overwrite,
    /// Delete what is in restored directories but not in the snapshot, at and below the sources of the backup. Above
    /// them the backup has recorded only the directories that lead to them.
    pub delete: bool,
    /// The folder of the repository that is read, if it is on this machine: nothing is restored into it.
    pub repository: Option<PathBuf>,
    /// Files and folders that are never deleted, nor are the folders above them. The repository is one of them.
    pub spared: Vec<PathBuf>,
    /// Files, and folders of files, with which the program opens repositories: keys and passwords. One that is there is
    /// not replaced by a different one from the snapshot; that is told.
    pub guarded: Vec<PathBuf>,
    /// Files and folders that are kept in the same way, but without telling: what the program remembers, whose older
    /// states always differ.
    pub remembered: Vec<PathBuf>,
    /// Only say what would be done.
    pub dry_run: bool,
    /// Restore only what matches one of these patterns (in gitignore's syntax), and all below that.
    pub include: Vec<String>,
    /// Leave out what matches these; nothing of it is deleted either.
    pub exclude: Vec<Pattern>,
    /// What a backup by these rules leaves out is not deleted.
    pub unsaved: Option<Arc<Filter>>,
    /// Read everything back and compare.
    pub verify: bool,
    /// Owners by number, not by name.
    pub numeric_ids: bool,
    /// What to do about packs in cold storage; `None`: to fail.
    pub thaw: Option<crate::thaw::Options>,
    /// Threads that read, decode and write.
    pub workers: usize,
    /// Where making a small file takes longer than this, on average, many threads do so at once. See [`crate::LATE`].
    pub late: Duration,
    /// Bytes of memory to use, about.
    pub memory: usize,
}

/// What a restore did.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// The numbers.
    pub counts: Counts,
    /// Files read back and found right.
    pub verified: u64,
    /// Entries that lack something because of damage in the repository.
    pub spoiled: u64,
    /// Milliseconds it took.
    pub millis: u64,
    /// Whether it was stopped before its end.
    pub stopped: bool,
}
