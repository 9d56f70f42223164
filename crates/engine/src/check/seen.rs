//! One bit for each chunk of the tree packs.

use super::packs::{Packs, Place};
use drumlin_format::pack::PackKind;
use std::sync::atomic::{AtomicU64, Ordering};

/// A set of places in tree packs, shared by threads.
pub(super) struct Seen(Vec<Box<[AtomicU64]>>);

impl Seen {
    /// The empty set.
    pub fn new(packs: &Packs) -> Self {
        let words = |chunks: u32| (0..chunks.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let of_pack = |p: &super::packs::Pack| words(if p.info.kind == PackKind::Tree { p.chunks } else { 0 });
        Seen(packs.packs.iter().map(of_pack).collect())
    }

    /// Add a place. Whether it is new.
    pub fn add(&self, place: Place) -> bool {
        let bit = 1 << (place.ordinal % 64);
        let word = self.0.get(place.pack as usize).and_then(|pack| pack.get(place.ordinal as usize / 64));
        word.is_none_or(|word| word.fetch_or(bit, Ordering::Relaxed) & bit == 0)
    }

    /// Whether a place is in it.
    pub fn contains(&self, place: Place) -> bool {
        let word = self.0.get(place.pack as usize).and_then(|pack| pack.get(place.ordinal as usize / 64));
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (place.ordinal % 64) & 1 == 1)
    }
}
