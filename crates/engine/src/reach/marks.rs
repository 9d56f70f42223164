//! Which chunks were met: one bit for each, by pack and place in the pack's table. Set by many threads at once.

use super::bits::Bits;
use super::find::Found;
use super::keys::{KEY_BYTES, Keys, Place, key};
use crate::Result;
use crate::lock::lock;
use drumlin_format::PackId;
use drumlin_format::pack::Table;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// The marks of all packs.
pub(crate) struct Marks {
    keys: Arc<Keys>,
    bits: Bits,
    /// Packs that have come since the keys were read.
    newer: Mutex<HashMap<PackId, Vec<u64>>>,
}

/// The marks of one pack.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marked {
    words: Vec<u64>,
    /// How many of its chunks are needed.
    pub live: u32,
}

impl Marked {
    /// Whether the chunk at this place is needed.
    pub fn is(&self, ordinal: usize) -> bool {
        self.words.get(ordinal / 64).is_some_and(|word| word >> (ordinal % 64) & 1 == 1)
    }
}

impl Marks {
    /// Nothing is marked.
    pub fn new(keys: Arc<Keys>) -> Self {
        let bits = Bits::new(&keys, |_| true);
        Marks { keys, bits, newer: Mutex::default() }
    }

    /// Mark a chunk where it was found. Whether it is the first time; what is nowhere is never marked.
    pub fn mark(&self, found: &Found) -> bool {
        match found {
            Found::At(place) => self.bits.add(*place),
            Found::Newer(info, ordinal) => {
                let mut newer = self.newer();
                let words = newer.entry(info.id).or_default();
                let (word, bit) = (*ordinal as usize / 64, 1 << (ordinal % 64));
                words.resize(words.len().max(word + 1), 0);
                let new = words[word] & bit == 0;
                words[word] |= bit;
                new
            }
            Found::Nowhere => false,
        }
    }

    /// Whether a chunk is marked at this place.
    pub fn has(&self, place: Place) -> bool {
        self.bits.contains(place)
    }

    /// Whether a pack's own table has what the marks were set by; of one that has come since nobody has asked.
    pub fn fits(&self, pack: &PackId, table: &Table) -> Result<bool> {
        let Some(number) = self.keys.number(pack) else { return Ok(true) };
        if self.keys.chunks(number) as usize != table.chunks.len() {
            return Ok(false);
        }
        let mut said = Vec::new();
        self.keys.window(number, 0, table.chunks.len(), &mut said)?;
        Ok(said.as_chunks::<KEY_BYTES>().0.iter().zip(&table.chunks).all(|(said, chunk)| *said == key(&chunk.id)))
    }

    /// What is marked of a pack; `None` if nothing is.
    pub fn of(&self, pack: &PackId) -> Option<Marked> {
        let words = match self.keys.number(pack) {
            Some(number) => self.bits.of(number),
            None => self.newer().get(pack)?.clone(),
        };
        let live = words.iter().map(|word| word.count_ones()).sum();
        (live > 0).then_some(Marked { words, live })
    }

    fn newer(&self) -> MutexGuard<'_, HashMap<PackId, Vec<u64>>> {
        lock(&self.newer)
    }
}
