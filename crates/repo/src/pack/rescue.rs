//! Chunks whose pack is gone or damaged, from wherever else they are: a prune may have moved them since the index was
//! read, and what two clients met at the same moment stands in two packs.

use super::reader::Reader;
use crate::band::Bands;
use crate::lock::lock;
use crate::{Error, PackInfo, Result};
use drumlin_format::pack::PackKind;
use drumlin_format::{ChunkId, PackId};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What is known of packs that were of no use.
#[derive(Default)]
pub(super) struct Lost {
    /// Packs for which the index was read anew.
    noted: HashSet<PackId>,
    /// What the index said of packs that were looked for by their ids.
    infos: HashMap<PackId, Option<Arc<PackInfo>>>,
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
            self.doubt(&info);
            // It may stand there at another place than the index says, or at several.
            let own = self.table(&info).ok();
            let places = own.iter().flat_map(|table| (0..).zip(&table.chunks)).filter(|(_, chunk)| chunk.id == *id);
            if let Some(bytes) = places.map(|(at, _)| self.chunk_in(&info, at, kind, id)).find_map(Result::ok) {
                return Ok(Some(bytes));
            }
            if let Some(bytes) = self.made_again(&info, kind, id)? {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
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
        let find = || self.index().packs().into_iter().find(|info| info.id == *pack);
        known.infos.entry(*pack).or_insert_with(find).clone()
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
