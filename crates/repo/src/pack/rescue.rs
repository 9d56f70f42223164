//! Chunks whose pack is gone or damaged, from wherever else they are: a prune may have moved them since the index was read,
//! and what two clients met at the same moment stands in two packs.

use super::reader::{Reader, lock};
use crate::index::Key;
use crate::{Error, Result};
use drumlin_format::pack::PackKind;
use drumlin_format::{ChunkId, PackId};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What is known of packs that were of no use.
#[derive(Default)]
pub(super) struct Lost {
    /// Packs for which the index was read anew.
    noted: HashSet<PackId>,
    /// What stood in a pack that is gone, by its number and the places in its table.
    keys: HashMap<u32, Arc<HashMap<u32, Key>>>,
}

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
        Ok(None)
    }

    /// The chunk that stood at this place of a pack, by its number, of which not even the table can be had.
    pub fn elsewhere_of(&self, kind: PackKind, pack: u32, ordinal: u32) -> Result<Option<Vec<u8>>> {
        let known = lock(&self.lost).keys.get(&pack).cloned();
        let keys = match known {
            Some(keys) => keys,
            None => {
                // Before the index forgets it.
                let keys = Arc::new(self.index().keys_in(pack)?);
                lock(&self.lost).keys.entry(pack).or_insert(keys).clone()
            }
        };
        let not = self.index().pack(pack).id;
        self.catch_up(&not)?;
        let Some(key) = keys.get(&ordinal) else { return Ok(None) };
        let mut tried = vec![not];
        while let Some(location) = self.index().lookup_key_beside(key, &tried)? {
            // The index keeps a part of the identity; the table has all of it.
            let info = self.index().pack(location.pack);
            let found = self.table(&info).and_then(|table| match table.chunks.get(location.ordinal as usize) {
                Some(chunk) => self.chunk_at(kind, &chunk.id, location).map(Some),
                None => Ok(None),
            });
            match found {
                Ok(Some(bytes)) => return Ok(Some(bytes)),
                Err(e) if !e.is_damage() => return Err(e),
                Ok(None) | Err(_) => tried.push(info.id),
            }
        }
        Ok(None)
    }
}
