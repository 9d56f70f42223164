//! What snapshots need, marked in the packs where it is to be found.

use super::marks::Marks;
use crate::monitor::{Monitor, add};
use crate::reach::{self, Visit};
use crate::{Error, Result};
use drumlin_format::pack::PackKind;
use drumlin_format::snapshot::Snapshot;
use drumlin_format::tree::Child;
use drumlin_format::{ChunkId, PackId};
use drumlin_repo::pack::Reader;
use drumlin_repo::{Cache, Index, Repository};
use std::collections::HashSet;
use std::sync::Arc;

/// Memory for decoded blocks of nodes.
const BLOCKS_BYTES: usize = 24 << 20;

/// The places where chunks may be found: packs to stay where there is a choice, and those in reserve.
pub(crate) struct Places {
    first: Arc<Reader>,
    reserve: Option<Arc<Reader>>,
}

impl Places {
    /// Chunks are looked for in `first`, and only what isn't there in `reserve`.
    pub fn new(
        repository: &Repository,
        cache: &Arc<Cache>,
        first: HashSet<PackId>,
        reserve: HashSet<PackId>,
    ) -> Result<Self> {
        let reader = |packs| -> Result<Arc<Reader>> {
            let index = Arc::new(Index::open_among(repository, cache.clone(), packs)?);
            Ok(Arc::new(Reader::new(repository.clone(), index, cache.clone(), BLOCKS_BYTES)))
        };
        let reserve = if reserve.is_empty() { None } else { Some(reader(reserve)?) };
        Ok(Places { first: reader(first)?, reserve })
    }

    /// Who reads all of them.
    pub fn anywhere(&self) -> &Arc<Reader> {
        self.reserve.as_ref().unwrap_or(&self.first)
    }

    /// Who reads the packs that are looked through first.
    pub fn reader(&self) -> &Arc<Reader> {
        &self.first
    }
}

/// Marks what snapshots need.
pub(crate) struct Need<'a> {
    places: &'a Places,
    monitor: &'a dyn Monitor,
    /// The marks so far.
    pub marks: Marks,
    /// Chunks of file contents that are in no pack: what is lost needs no room.
    pub missing: HashSet<ChunkId>,
}

impl<'a> Need<'a> {
    /// Nothing is needed yet.
    pub fn new(places: &'a Places, monitor: &'a dyn Monitor) -> Self {
        Need { places, monitor, marks: Marks::default(), missing: HashSet::new() }
    }

    /// All that a snapshot needs.
    ///
    /// # Errors
    /// [`Error::Unsure`] if a node of its tree can't be read.
    pub fn add(&mut self, snapshot: &Snapshot) -> Result<()> {
        let Some(root) = &snapshot.root else { return Ok(()) };
        match reach::walk(self, root) {
            Err(Error::Repo(source)) if source.is_damage() => Err(Error::Unsure { snapshot: snapshot.id, source }),
            other => other,
        }
    }
}

impl Visit for Need<'_> {
    fn meet(&mut self, kind: PackKind, id: &ChunkId, _at: &Child) -> Result<bool> {
        add(&self.monitor.counters().chunks, 1);
        let index = self.places.first.index();
        if let Some(location) = index.lookup(id)? {
            return Ok(self.marks.mark(index, location));
        }
        if let Some(reserve) = &self.places.reserve
            && let Some(location) = reserve.index().lookup(id)?
        {
            return Ok(self.marks.mark_in(reserve.index().pack(location.pack).id, location.ordinal));
        }
        match kind {
            PackKind::Tree => Err(drumlin_repo::Error::MissingChunk(*id).into()),
            PackKind::Data => {
                self.missing.insert(*id);
                Ok(false)
            }
        }
    }

    fn read(&mut self, id: &ChunkId) -> Result<Vec<u8>> {
        match (self.places.first.chunk(PackKind::Tree, id), &self.places.reserve) {
            (Err(drumlin_repo::Error::MissingChunk(_)), Some(reserve)) => Ok(reserve.chunk(PackKind::Tree, id)?),
            (read, _) => Ok(read?),
        }
    }

    fn failed(&mut self, _at: &Child, error: drumlin_repo::Error) -> Result<()> {
        Err(error.into())
    }

    fn pause(&mut self) -> Result<()> {
        if self.monitor.stop() { Err(Error::Interrupted) } else { Ok(()) }
    }
}
