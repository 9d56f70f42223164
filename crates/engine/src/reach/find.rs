//! Where a chunk is. What stands beside each other in a tree was most often stored one behind the other: so the chunk
//! behind the one met last is looked at first, and the index, which costs a hundred times as much, is asked only if it
//! is another.

use super::bits::Bits;
use super::keys::{KEY_BYTES, Key, Keys, Place, key};
use crate::Result;
use drumlin_format::ChunkId;
use drumlin_format::pack::PackKind;
use drumlin_repo::{Index, Location, PackInfo};
use std::sync::Arc;

/// What is known of a chunk.
pub(crate) enum Found {
    /// It is there, by the word of the index.
    At(Place),
    /// It is in a pack that the keys can't speak for: an index object that came after they were read names it, or
    /// several disagree about it.
    Newer(Arc<PackInfo>, u32),
    /// No index object names it.
    Nowhere,
}

/// Several stretches are followed at once: several workers of a backup, or several backups, have stored a tree's
/// chunks.
const CURSORS: usize = 4;
/// Keys that are read at a time.
const WINDOW_KEYS: usize = 170;

/// Finds chunks of one kind. One a thread.
pub(crate) struct Finder<'a> {
    keys: &'a Keys,
    index: &'a Index,
    kind: PackKind,
    /// Places that are not to be guessed.
    passed: Option<&'a Bits>,
    /// The one used last comes first.
    cursors: Vec<Cursor>,
    /// How often the index was asked.
    pub lookups: u64,
}

/// A place, and the keys of the chunks from there on.
struct Cursor {
    at: Place,
    key: Key,
    /// The chunk to be met next, if it is where one would think.
    next: u32,
    window: Vec<u8>,
    /// The ordinal of the window's first key.
    first: u32,
}

impl<'a> Finder<'a> {
    /// For chunks of this kind. `passed` are places that count for nothing as there is another one of the same chunk,
    /// which the index gives: then all who look for a chunk find it at one place. Without them it is any one.
    pub fn new(keys: &'a Keys, index: &'a Index, kind: PackKind, passed: Option<&'a Bits>) -> Self {
        Finder { keys, index, kind, passed, cursors: Vec::new(), lookups: 0 }
    }

    /// Where a chunk is.
    pub fn find(&mut self, id: &ChunkId) -> Result<Found> {
        let wanted = key(id);
        for n in 0..self.cursors.len() {
            if self.cursors[n].step(self.keys, self.passed, &wanted)? {
                self.cursors[..=n].rotate_right(1);
                return Ok(Found::At(self.cursors[0].at));
            }
        }
        self.lookups += 1;
        let found = ask(self.keys, self.index, self.kind, id)?;
        let Found::At(at) = found else { return Ok(found) };
        let window = match self.cursors.len() {
            CURSORS => self.cursors.pop().map(|c| c.window).unwrap_or_default(),
            _ => Vec::new(),
        };
        let next = behind(self.keys, self.passed, at);
        self.cursors.insert(0, Cursor { at, key: wanted, next, window, first: u32::MAX });
        Ok(found)
    }
}

/// Where a chunk is by the word of the index, and of the keys: always the same place of several. Index objects may
/// contradict each other, and one that says of a pack what isn't so draws no chunk away from where it is.
pub(crate) fn ask(keys: &Keys, index: &Index, kind: PackKind, id: &ChunkId) -> Result<Found> {
    Ok(look_up(keys, index, kind, id)?.map_or(Found::Nowhere, |(found, _)| found))
}

/// As [`ask`], and also where the index has that chunk; `None` if it is nowhere.
pub(crate) fn look_up(keys: &Keys, index: &Index, kind: PackKind, id: &ChunkId) -> Result<Option<(Found, Location)>> {
    let (wanted, mut read, mut said, mut doubtful) = (key(id), Ok(()), Vec::new(), false);
    let mut stands = |info: &PackInfo, ordinal| {
        let Some(pack) = keys.number(&info.id) else { return true };
        if keys.unsettled.contains(&info.id) {
            doubtful = true;
            return false;
        }
        let looked = keys.window(pack, ordinal, 1, &mut said);
        let stands = looked.is_ok() && keys.kind(pack) == kind && said == wanted;
        read = std::mem::replace(&mut read, Ok(())).and(looked);
        stands
    };
    let mut found = index.lookup_where(id, &mut stands)?;
    read?;
    if found.is_none() && doubtful {
        // It may be there, and nowhere else: then it isn't missing. Nothing goes for that, as such packs have nothing
        // marked.
        found = index.lookup_where(id, &mut |info, _| keys.unsettled.contains(&info.id))?;
    }
    Ok(found.map(|location| (place(keys, index, location), location)))
}

/// The places of chunks that count at another one: at the one which this index gives.
///
/// # Errors
/// The index can't be read.
pub(crate) fn passed(keys: &Keys, index: &Index) -> Result<Bits> {
    let passed = keys.repeated();
    index.shadowed(|location| {
        if let Some(pack) = keys.number(&index.pack(location.pack).id) {
            passed.add(Place { pack, ordinal: location.ordinal });
        }
    })?;
    Ok(passed)
}

/// The place that the index means.
fn place(keys: &Keys, index: &Index, location: Location) -> Found {
    let (info, ordinal) = (index.pack(location.pack), location.ordinal);
    match keys.number(&info.id).filter(|_| !keys.unsettled.contains(&info.id)) {
        None => Found::Newer(info, ordinal),
        Some(pack) => Found::At(Place { pack, ordinal }),
    }
}

/// The chunk behind a place, but for those that are passed over.
fn behind(keys: &Keys, passed: Option<&Bits>, at: Place) -> u32 {
    let is_passed = |ordinal: &u32| passed.is_some_and(|bits| bits.contains(Place { ordinal: *ordinal, ..at }));
    (at.ordinal + 1..keys.chunks(at.pack)).find(|ordinal| !is_passed(ordinal)).unwrap_or(u32::MAX)
}

impl Cursor {
    /// Go to the wanted chunk, if it is where this one is or right behind.
    fn step(&mut self, keys: &Keys, passed: Option<&Bits>, wanted: &Key) -> Result<bool> {
        if self.key == *wanted {
            return Ok(true);
        }
        let next = self.next;
        let held = (self.window.len() / KEY_BYTES) as u32;
        if self.first == u32::MAX || next >= self.first + held {
            if next >= keys.chunks(self.at.pack) {
                return Ok(false);
            }
            keys.window(self.at.pack, next, WINDOW_KEYS, &mut self.window)?;
            self.first = next;
        }
        let at = (next - self.first) as usize * KEY_BYTES;
        let hit = self.window.get(at..at + KEY_BYTES) == Some(&wanted[..]);
        if hit {
            (self.at.ordinal, self.key) = (next, *wanted);
            self.next = behind(keys, passed, self.at);
        }
        Ok(hit)
    }
}

#[cfg(test)]
mod tests;
