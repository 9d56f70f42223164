//! What a backup stands on: the index of what it may refer to, the tree that it is compared with, the losses that it
//! may meet.

use super::{Parent, ParentSnapshots, losses, parent};
use crate::Result;
use drumlin_format::snapshot::Snapshot;
use drumlin_format::{LossId, PackId};
use drumlin_repo::collection::Registration;
use drumlin_repo::{Cache, Index, IndexMode, Repository};
use std::collections::HashSet;
use std::sync::Arc;

/// What is to be backed up, as far as it decides what is looked for.
pub(super) struct Wanted<'a> {
    pub repository: &'a Repository,
    pub cache: &'a Arc<Cache>,
    pub host: &'a str,
    pub paths: &'a [Vec<u8>],
    pub parent: &'a Parent,
    /// Files, not a stream: that has no entries to compare, and its chunks are found by the index.
    pub is_walk: bool,
}

/// What was found.
pub(super) struct Ground {
    pub index: Arc<Index>,
    pub parents: ParentSnapshots,
    /// What was lost and may be met again, because all is read.
    pub losses: Vec<LossId>,
}

impl Wanted<'_> {
    /// The snapshots of the run before, as this client remembers them, if they are wanted.
    pub fn remembered(&self) -> Vec<Snapshot> {
        match self.is_walk && *self.parent == Parent::Latest {
            true => parent::remembered(self.cache, self.host, self.paths).unwrap_or_default(),
            false => Vec::new(),
        }
    }

    /// Look for all of it, side by side, once the session is registered. `remembered` is what was remembered before
    /// that.
    pub fn look(
        &self,
        registration: &Registration,
        remembered: &[Snapshot],
        mode: IndexMode,
        damaged: &HashSet<PackId>,
    ) -> Result<Ground> {
        let (repository, known) = (self.repository, registration.known());
        let parents = || match self.is_walk {
            true => ParentSnapshots::find(repository, remembered, self.parent, self.host, self.paths, known),
            false => Ok(ParentSnapshots::default()),
        };
        let losses = || losses::unmet(repository, self.cache, self.host, self.paths);
        let index = || Index::open_for_without(registration, self.cache.clone(), mode, damaged);
        let (index, (losses, parents)) = repository.ask_both(index, || repository.ask_both(losses, parents));
        let (index, losses) = (index?, losses?);
        // What was lost may be in any file: all are read once.
        let parents = if losses.is_empty() { parents? } else { ParentSnapshots::default() };
        // Of a parent that is newer than this session the index may have been listed too early. (One that was
        // remembered is older.)
        if !parents.0.iter().all(|parent| remembered.iter().any(|old| old.id == parent.id)) {
            index.refresh()?;
        }
        Ok(Ground { index: Arc::new(index), parents, losses })
    }
}
