//! One bit for each chunk of some packs.

use super::keys::{Keys, Place};
use drumlin_format::pack::PackKind;
use std::sync::atomic::{AtomicU64, Ordering};

/// A set of places, shared by threads.
pub(crate) struct Bits(Vec<Box<[AtomicU64]>>);

impl Bits {
    /// The empty set, with room for the packs of these kinds.
    pub fn new(keys: &Keys, of: impl Fn(PackKind) -> bool) -> Self {
        let words = |chunks: u32| (0..chunks.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let of_pack = |number| words(if of(keys.kind(number)) { keys.chunks(number) } else { 0 });
        Bits((0..keys.len()).map(of_pack).collect())
    }

    /// Add a place. Whether it is new; one that there is no room for always is.
    pub fn add(&self, place: Place) -> bool {
        let bit = 1 << (place.ordinal % 64);
        self.word(place).is_none_or(|word| word.fetch_or(bit, Ordering::Relaxed) & bit == 0)
    }

    /// Whether a place is in it.
    pub fn contains(&self, place: Place) -> bool {
        self.word(place).is_some_and(|word| word.load(Ordering::Relaxed) >> (place.ordinal % 64) & 1 == 1)
    }

    /// The places of one pack: 64 a word, the first in the lowest bit.
    pub fn of(&self, pack: u32) -> Vec<u64> {
        let words = self.0.get(pack as usize).into_iter().flatten();
        words.map(|word| word.load(Ordering::Relaxed)).collect()
    }

    fn word(&self, place: Place) -> Option<&AtomicU64> {
        self.0.get(place.pack as usize)?.get(place.ordinal as usize / 64)
    }
}
