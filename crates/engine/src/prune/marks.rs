//! Which chunks are needed: one bit for each, by pack and place in the pack's table.

use drumlin_format::PackId;
use drumlin_repo::{Index, Location};
use std::collections::HashMap;

/// The marks of some packs.
#[derive(Default)]
pub(crate) struct Marks {
    by_pack: HashMap<PackId, usize>,
    packs: Vec<Marked>,
    /// Where the packs of one index are found in `packs`, by the number that the index gave them.
    numbers: Vec<Option<usize>>,
}

/// The marks of one pack.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marked {
    bits: Vec<u64>,
    /// How many of its chunks are needed.
    pub live: u32,
}

impl Marked {
    /// Whether the chunk at this place is needed.
    pub fn is(&self, ordinal: usize) -> bool {
        self.bits.get(ordinal / 64).is_some_and(|word| word >> (ordinal % 64) & 1 == 1)
    }

    fn set(&mut self, ordinal: usize) -> bool {
        let (word, bit) = (ordinal / 64, 1 << (ordinal % 64));
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        let new = self.bits[word] & bit == 0;
        self.bits[word] |= bit;
        self.live += u32::from(new);
        new
    }
}

impl Marks {
    /// Mark a chunk where `index`, always the same one, found it. Whether it is the first time.
    pub fn mark(&mut self, index: &Index, location: Location) -> bool {
        let number = location.pack as usize;
        if self.numbers.len() <= number {
            self.numbers.resize(number + 1, None);
        }
        let at = match self.numbers[number] {
            Some(at) => at,
            None => {
                let at = self.place(index.pack(location.pack).id);
                self.numbers[number] = Some(at);
                at
            }
        };
        self.packs[at].set(location.ordinal as usize)
    }

    /// Mark a chunk of a pack.
    pub fn mark_in(&mut self, pack: PackId, ordinal: u32) -> bool {
        let at = self.place(pack);
        self.packs[at].set(ordinal as usize)
    }

    fn place(&mut self, pack: PackId) -> usize {
        let next = self.packs.len();
        let at = *self.by_pack.entry(pack).or_insert(next);
        if at == next {
            self.packs.push(Marked::default());
        }
        at
    }

    /// What is marked of a pack; `None` if nothing is.
    pub fn of(&self, pack: &PackId) -> Option<&Marked> {
        self.by_pack.get(pack).map(|at| &self.packs[*at])
    }
}
