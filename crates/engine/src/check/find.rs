//! Where a chunk is. What stands beside each other in a tree was most often stored one behind the other: so the chunk behind
//! the one met last is looked at first, and the index, which costs a hundred times as much, is asked only if it is another.

use super::packs::{KEY_BYTES, Key, Packs, Place, key};
use crate::Result;
use drumlin_format::ChunkId;
use drumlin_format::pack::PackKind;
use drumlin_repo::{Index, PackInfo};
use std::sync::Arc;

/// What is known of a chunk.
pub(super) enum Found {
    /// It is there, by the word of the index.
    At(Place),
    /// It is in a pack that an index object names which has come since the check began.
    Newer(Arc<PackInfo>, u32),
    /// No index object names it.
    Nowhere,
}

/// Several stretches are followed at once: as many workers as a backup has, or as snapshots that a tree comes from.
const CURSORS: usize = 4;
/// Keys that are read at a time.
const WINDOW_KEYS: usize = 170;

/// Finds chunks of one kind. One a thread.
pub(super) struct Finder<'a> {
    packs: &'a Packs,
    index: &'a Index,
    kind: PackKind,
    /// The one used last comes first.
    cursors: Vec<Cursor>,
    /// How often the index was asked.
    pub lookups: u64,
}

/// A place, and the keys of the chunks from there on.
struct Cursor {
    at: Place,
    key: Key,
    window: Vec<u8>,
    /// The ordinal of the window's first key.
    first: u32,
}

impl<'a> Finder<'a> {
    /// For chunks of this kind.
    pub fn new(packs: &'a Packs, index: &'a Index, kind: PackKind) -> Self {
        Finder { packs, index, kind, cursors: Vec::new(), lookups: 0 }
    }

    /// Where a chunk is; of several places any one.
    pub fn find(&mut self, id: &ChunkId) -> Result<Found> {
        let wanted = key(id);
        for n in 0..self.cursors.len() {
            if self.cursors[n].step(self.packs, &wanted)? {
                self.cursors[..=n].rotate_right(1);
                return Ok(Found::At(self.cursors[0].at));
            }
        }
        self.lookups += 1;
        let found = ask(self.packs, self.index, self.kind, id)?;
        let Found::At(at) = found else { return Ok(found) };
        let window = match self.cursors.len() {
            CURSORS => self.cursors.pop().map(|c| c.window).unwrap_or_default(),
            _ => Vec::new(),
        };
        self.cursors.insert(0, Cursor { at, key: wanted, window, first: u32::MAX });
        Ok(found)
    }
}

/// Where a chunk is by the word of the index: always the same place of several.
pub(super) fn ask(packs: &Packs, index: &Index, kind: PackKind, id: &ChunkId) -> Result<Found> {
    let Some(location) = index.lookup(id)? else { return Ok(Found::Nowhere) };
    let info = index.pack(location.pack);
    let Some(pack) = packs.number(&info.id) else { return Ok(Found::Newer(info, location.ordinal)) };
    let known = packs.pack(pack);
    if known.info.kind != kind || location.ordinal >= known.chunks {
        return Ok(Found::Nowhere);
    }
    Ok(Found::At(Place { pack, ordinal: location.ordinal }))
}

impl Cursor {
    /// Go to the wanted chunk, if it is where this one is or right behind.
    fn step(&mut self, packs: &Packs, wanted: &Key) -> Result<bool> {
        if self.key == *wanted {
            return Ok(true);
        }
        let next = self.at.ordinal + 1;
        let held = (self.window.len() / KEY_BYTES) as u32;
        if self.first == u32::MAX || next >= self.first + held {
            if next >= packs.pack(self.at.pack).chunks {
                return Ok(false);
            }
            packs.keys(self.at.pack, next, WINDOW_KEYS, &mut self.window)?;
            self.first = next;
        }
        let at = (next - self.first) as usize * KEY_BYTES;
        let hit = self.window.get(at..at + KEY_BYTES) == Some(&wanted[..]);
        if hit {
            (self.at.ordinal, self.key) = (next, *wanted);
        }
        Ok(hit)
    }
}
