//! Copying snapshots into another repository, which has other secrets: contents are read, checked, and stored under the
//! target's identities; chunks stay the chunks that they are, and are not cut anew.
//!
//! ```text
//! source, new ──┐            ┌─ worker ─┐
//!               ├─ pair ─────┤          ├─ build ─ tree of the target
//! source, old ──┘      │     └─ worker ─┘    │
//!          target: copy of the old ──────────┘
//! ```
//!
//! Where an older snapshot has been copied already, its tree and the new one are walked side by side, and what they
//! have alike is taken over from the older one's copy: neither contents nor metadata of it are read in the source.
//!
//! Each snapshot is a writer's session of its own in the target (`docs/collection.md`), and counts as a whole or not at
//! all. The source is only read; what is damaged in it is told and marked, and costs nothing else.

mod base;
mod build;
mod copies;
mod owners;
mod pair;
mod run;
mod tree;
mod worker;

use crate::backup::Compression;
use crate::{Error, Result};
use copies::Copies;
use drumlin_format::IndexId;
use drumlin_format::snapshot::Snapshot;
use drumlin_repo::pack::Reader;
use drumlin_repo::{Cache, Index, IndexMode, Repository};
use std::sync::Arc;

/// How to copy.
#[derive(Clone, Debug)]
pub struct Options {
    /// This machine's name, for the sessions.
    pub host: String,
    /// The time now, seconds since 1970, for the sessions.
    pub now: i64,
    /// How hard to compress.
    pub compression: Compression,
    /// Threads that read, compress and seal.
    pub workers: usize,
    /// Bytes of memory to use, about.
    pub memory: usize,
    /// How much of the target's index to hold.
    pub index: IndexMode,
}

/// A repository, and this client's cache for it.
#[derive(Clone)]
pub struct End {
    /// The repository.
    pub repository: Repository,
    /// The cache.
    pub cache: Arc<Cache>,
}

/// What came of copying a snapshot.
#[derive(Clone, Debug)]
pub struct Report {
    /// The copy.
    pub snapshot: Snapshot,
    /// The index objects that were put for it.
    pub indexes: Vec<IndexId>,
    /// The snapshot of the source, copied before, beside which it was read.
    pub beside: Option<Snapshot>,
}

/// Copies snapshots from one repository to another.
pub struct Copier {
    source: End,
    target: End,
    reader: Arc<Reader>,
    options: Options,
    copies: Copies,
}

impl Copier {
    /// Between these two.
    ///
    /// # Errors
    /// They are the same repository; the source's key can't read, or the target's can't write.
    pub fn new(source: End, target: End, options: Options) -> Result<Self> {
        if source.repository.config().id == target.repository.config().id {
            return Err(Error::Refused("a repository can't be copied into itself".into()));
        }
        source.repository.may_read()?;
        target.repository.may_write()?;
        let index = Arc::new(Index::open(&source.repository, source.cache.clone())?);
        let reader = Reader::new(source.repository.clone(), index, source.cache.clone(), options.memory / 6);
        let reader = reader.with_told_tables();
        let copies = Copies::find(&target)?;
        Ok(Copier { source, target, reader: Arc::new(reader), options, copies })
    }

    /// The copy that the target has of a snapshot, as far as is known: one that is signed by a known key. A key that
    /// can't read the target's snapshots knows only what this client has copied, from its cache.
    pub fn copy_of(&self, snapshot: &Snapshot) -> Result<Option<Snapshot>> {
        self.copies.of(&self.target, snapshot)
    }

    /// Snapshots of the target that can't be read, and why. What they may be copies of counts as not copied.
    pub fn unreadable(&self) -> &[drumlin_repo::Error] {
        &self.copies.unreadable
    }
}
