//! Chunks whose pack is gone or damaged, from wherever else they are: a prune may have moved them since the index was
//! read, and what two clients met at the same moment stands in two packs.

use super::reader::Reader;
use crate::band::Bands;
use crate::lock::lock;
use crate::{Error, Location, PackInfo, Result};
use drumlin_format::pack::PackKind;
use drumlin_format::{ChunkId, PackId};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What is known of packs that were of no use.
#[derive(Default)]
pub(super) struct Lost {
    /// Packs for which the index was read anew.
    noted: HashSet<PackId>,
    /// Those of them that aren't there.
    absent: HashSet<PackId>,
    /// What the index said of packs that were looked for by their ids.
    infos: HashMap<PackId, Option<Arc<PackInfo>>>,
    /// A chunk that was nowhere has had the index read anew.
    is_missed: bool,
}

/// Decoded blocks that are kept of what is read through bands.
const THROUGH_BYTES: usize = 4 << 20;

impl Reader {
    /// A pack was of no use: bring the index up to date, once for each. Whether that was done just now.
    pub fn catch_up(&self, lost: &PackId) -> Result<bool> {
        // Held meanwhile: whoever else misses that pack wants the new index as well.
        let mut known = lock(&self.lost);
        if known.noted.contains(lost) {
            return Ok(false);
        }
        self.index().refresh()?;
        Ok(known.noted.insert(*lost))
    }

    /// Where a chunk is. The first one that is nowhere has the index brought up to date: a prune that was at work while
    /// it was listed may have put what is new where that was past, and removed what it replaces before it came there.
    pub fn locate(&self, id: &ChunkId) -> Result<Option<Location>> {
        let found = self.index().lookup(id)?;
        if found.is_some() {
            return Ok(found);
        }
        // Held meanwhile: whoever else misses a chunk wants the new index as well.
        let mut known = lock(&self.lost);
        if !known.is_missed {
            self.index().refresh()?;
            known.is_missed = true;
        }
        drop(known);
        self.index().lookup(id)
    }

    /// The packs that were of no use.
    pub fn useless(&self) -> HashSet<PackId> {
        lock(&self.lost).noted.clone()
    }

    /// A chunk, checked, from another pack than this one; `None` if no other has it whole.
    pub fn elsewhere(&self, kind: PackKind, id: &ChunkId, not: &PackId) -> Result<Option<Vec<u8>>> {
        self.catch_up(not)?;
        // Several may be of no use: whoever was evicted and wrote all the same named packs that are gone.
        let mut tried = vec![*not];
        while let Some(location) = self.index().lookup_beside(id, &tried)? {
            match self.chunk_at(kind, id, location) {
                Err(e) if e.is_damage() || matches!(e, Error::NotAllowed { .. }) => {
                    tried.push(self.index().pack(location.pack).id)
                }
                other => return other.map(Some),
            }
        }
        for pack in tried {
            let Some(info) = self.info(&pack) else { continue };
            if let Some(bytes) = self.anywhere_in(&info, kind, id) {
                return Ok(Some(bytes));
            }
            if let Some(bytes) = self.made_again(&info, kind, id)? {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }

    /// A chunk, checked, from any place of a pack: it may stand there at another one than the index says, or at several.
    /// A pack that isn't there is asked but once.
    fn anywhere_in(&self, info: &PackInfo, kind: PackKind, id: &ChunkId) -> Option<Vec<u8>> {
        if lock(&self.lost).absent.contains(&info.id) {
            return None;
        }
        self.doubt(info);
        let is_missing = |e: &Error| e.is_missing();
        let note = || {
            lock(&self.lost).absent.insert(info.id);
        };
        let table = self
            .table(info)
            .inspect_err(|e| {
                if is_missing(e) {
                    note()
                }
            })
            .ok()?;
        let mut places = (0..).zip(&table.chunks).filter(|(_, chunk)| chunk.id == *id);
        places.find_map(|(at, _)| {
            self.chunk_in(info, at, kind, id)
                .inspect_err(|e| {
                    if is_missing(e) {
                        note()
                    }
                })
                .ok()
        })
    }

    /// A chunk, checked, from its pack as its band makes it again; `None` if it doesn't.
    fn made_again(&self, info: &PackInfo, kind: PackKind, id: &ChunkId) -> Result<Option<Vec<u8>>> {
        let Some(through) = self.last_resort(&info.id)? else { return Ok(None) };
        let made = through.table(info).and_then(|table| match table.chunks.iter().position(|chunk| chunk.id == *id) {
            Some(at) => through.chunk_in(info, at as u32, kind, id).map(Some),
            None => Ok(None),
        });
        match made {
            Err(e) if e.is_of_one_object() => Ok(None),
            Ok(Some(bytes)) => {
                self.repository().note_healed(&info.name());
                Ok(Some(bytes))
            }
            other => other,
        }
    }

    /// What the index says of a pack, or has said.
    fn info(&self, pack: &PackId) -> Option<Arc<PackInfo>> {
        let mut known = lock(&self.lost);
        known.infos.entry(*pack).or_insert_with(|| self.index().info(pack)).clone()
    }

    /// Who reads a pack through its band, once it was of no use and the index was brought up to date.
    pub(super) fn last_resort(&self, pack: &PackId) -> Result<Option<Arc<Reader>>> {
        if !self.heals() || self.repository().is_through() || !lock(&self.lost).noted.contains(pack) {
            return Ok(None);
        }
        if self.through.get().is_none() {
            let bands = Bands::look(self.repository())?;
            let through = if bands.all.is_empty() {
                None
            } else {
                let (repository, index) = (self.repository().through(&bands), self.index().clone());
                Some(Arc::new(Reader::new(repository, index, self.cache().clone(), THROUGH_BYTES)))
            };
            let _ = self.through.set(through);
        }
        Ok(self.through.get().cloned().flatten())
    }

    /// What came of reading a pack through its band: if that failed, what is told of is what was found first.
    pub(super) fn resorted<T>(&self, info: &PackInfo, made: Result<T>, why: Error) -> Result<T> {
        match made {
            Err(e) if e.is_of_one_object() => Err(why),
            Ok(made) => {
                self.repository().note_healed(&info.name());
                Ok(made)
            }
            other => other,
        }
    }
}
