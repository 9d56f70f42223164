//! Where chunks are looked for: first in packs that are to stay where there is a choice, then in those in reserve.

use super::ground::Ground;
use crate::Result;
use crate::reach::bits::Bits;
use crate::reach::find::{self, Finder, Found};
use crate::reach::keys::Keys;
use drumlin_format::pack::PackKind;
use drumlin_format::{ChunkId, PackId};
use drumlin_repo::pack::Reader;
use drumlin_repo::{Cache, Location, Repository};
use std::collections::HashSet;
use std::sync::Arc;

/// Memory for decoded blocks of nodes, for each thread: a leaf's, a body's, an inner node's and a list's, twice and
/// more.
const BLOCKS_BYTES: usize = 3 << 20;

/// The packs in which chunks may be found. Everybody who looks for a chunk finds it at the same place.
pub(crate) struct Places {
    keys: Arc<Keys>,
    first: Arc<Reader>,
    reserve: Option<Arc<Reader>>,
    /// Places in the packs that come first of chunks that count at another.
    passed: Bits,
}

impl Places {
    /// Chunks are looked for in `first`, and only what isn't there in `reserve`, by the word of the index objects of
    /// `ground`, whose chunks `keys` are: whatever comes meanwhile.
    pub fn new(
        repository: &Repository,
        cache: &Arc<Cache>,
        (ground, keys): (&Ground, Arc<Keys>),
        (first, reserve): (HashSet<PackId>, HashSet<PackId>),
        workers: usize,
    ) -> Result<Self> {
        let reader = |packs| -> Result<Arc<Reader>> {
            let index = ground.index(repository, cache, packs)?;
            let kept = BLOCKS_BYTES * workers.max(1);
            Ok(Arc::new(Reader::new(repository.clone(), index, cache.clone(), kept)))
        };
        let reserve = if reserve.is_empty() { None } else { Some(reader(reserve)?) };
        let first = reader(first)?;
        let passed = find::passed(&keys, first.index())?;
        Ok(Places { keys, first, reserve, passed })
    }

    /// All packs and their chunks.
    pub fn keys(&self) -> &Arc<Keys> {
        &self.keys
    }

    /// Who reads all of them.
    pub fn anywhere(&self) -> &Arc<Reader> {
        self.reserve.as_ref().unwrap_or(&self.first)
    }

    /// Look at the places of chunks that count at another one, of all packs.
    pub fn with_passed<R>(&self, look: impl FnOnce(&Bits) -> Result<R>) -> Result<R> {
        match &self.reserve {
            None => look(&self.passed),
            Some(reserve) => look(&find::passed(&self.keys, reserve.index())?),
        }
    }

    /// Who reads the packs that are looked through first.
    pub fn reader(&self) -> &Arc<Reader> {
        &self.first
    }
}

/// Looks for chunks. One a thread.
pub(crate) struct Seeker<'a> {
    places: &'a Places,
    finder: Finder<'a>,
}

/// Where a node is.
pub(crate) struct Spot<'a> {
    /// Where that is among all chunks.
    pub found: Found,
    /// Who reads it there; `None`: it is nowhere.
    reader: Option<(&'a Reader, Location)>,
    /// Who reads all packs.
    anywhere: &'a Reader,
}

impl<'a> Seeker<'a> {
    /// One that has found nothing yet.
    pub fn new(places: &'a Places) -> Self {
        let finder = Finder::new(&places.keys, places.first.index(), PackKind::Data, Some(&places.passed));
        Seeker { places, finder }
    }

    /// How often the index was asked for chunks of contents.
    pub fn lookups(&self) -> u64 {
        self.finder.lookups
    }

    /// Where a chunk of contents is.
    pub fn chunk(&mut self, id: &ChunkId) -> Result<Found> {
        match (self.finder.find(id)?, &self.places.reserve) {
            (Found::Nowhere, Some(reserve)) => {
                self.finder.lookups += 1;
                find::ask(&self.places.keys, reserve.index(), PackKind::Data, id)
            }
            (found, _) => Ok(found),
        }
    }

    /// Where a node is.
    pub fn node(&self, id: &ChunkId) -> Result<Spot<'a>> {
        for reader in [Some(&self.places.first), self.places.reserve.as_ref()].into_iter().flatten() {
            if let Some((found, location)) = find::look_up(&self.places.keys, reader.index(), PackKind::Tree, id)? {
                return Ok(Spot { found, reader: Some((reader, location)), anywhere: self.places.anywhere() });
            }
        }
        Ok(Spot { found: Found::Nowhere, reader: None, anywhere: self.places.anywhere() })
    }
}

impl Spot<'_> {
    /// Read the node there; if its pack is damaged, wherever else it is.
    pub fn read(&self, id: &ChunkId) -> drumlin_repo::Result<Vec<u8>> {
        let (reader, location) = self.reader.ok_or(drumlin_repo::Error::MissingChunk(*id))?;
        match reader.chunk_at(PackKind::Tree, id, location) {
            // In one of those that are to go, too.
            Err(e) if e.is_damage() => {
                let pack = reader.index().pack(location.pack).id;
                self.anywhere.elsewhere(PackKind::Tree, id, &pack)?.ok_or(e)
            }
            other => other,
        }
    }
}
