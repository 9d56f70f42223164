//! The chunks of packs by their places, as index objects have them.
//!
//! Of each chunk's id as much as the index keeps goes to a scratch file, pack after pack in the order of their tables,
//! so that memory doesn't grow with the chunks. It tells in no time whether the chunk behind the one that was met last
//! is the one wanted now.

use super::bits::Bits;
use super::twice;
use crate::lock::lock;
use crate::monitor::Monitor;
use crate::threads::on_threads;
use crate::{Error, Result};
use drumlin_format::index::Entry;
use drumlin_format::pack::PackKind;
use drumlin_format::{ChunkId, IndexId, PackId};
use drumlin_repo::{Cache, Repository};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// So much of a chunk's id.
pub(crate) type Key = [u8; KEY_BYTES];
/// Bytes of a [`Key`].
pub(crate) const KEY_BYTES: usize = 24;

/// The key of a chunk.
pub(crate) fn key(id: &ChunkId) -> Key {
    let mut key = [0; KEY_BYTES];
    key.copy_from_slice(&id.0[..KEY_BYTES]);
    key
}

/// A pack's number here, and a chunk's place in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub pack: u32,
    pub ordinal: u32,
}

/// Some packs, and the keys of their chunks.
pub(crate) struct Keys {
    packs: Vec<Row>,
    by_id: HashMap<PackId, u32>,
    file: File,
    written: u64,
    /// Chunks that stand in the same pack before: the index gives the first place alone.
    repeated: Vec<Place>,
    /// Packs of which two index objects say different things.
    pub contested: HashSet<PackId>,
    /// Those of them that can't be asked themselves.
    pub unsettled: HashSet<PackId>,
    /// Index objects that can't be read, and why: what they name is not here.
    pub broken: Vec<(IndexId, drumlin_repo::Error)>,
    /// An index object that was gone when it was to be read, if some were: others have taken its place.
    pub gone: Option<IndexId>,
}

/// A pack.
struct Row {
    /// What it holds, the tag of its generation, its bytes, and those of its table and before that.
    what: (PackKind, u32, u64, u32, u64),
    /// How many chunks are in it.
    chunks: u32,
    /// Where its keys begin in the file, counted in keys.
    first: u64,
}

/// What an index object says of a pack as a whole.
fn what(entry: &Entry) -> (PackKind, u32, u64, u32, u64) {
    (entry.kind, entry.generation, entry.pack_len, entry.table_len, entry.table.blocks_end())
}

impl Keys {
    /// Of no pack.
    pub fn new(cache: &Cache) -> Result<Self> {
        let (packs, by_id, repeated, broken) = (Vec::new(), HashMap::new(), Vec::new(), Vec::new());
        let (contested, unsettled, gone) = Default::default();
        let file = cache.scratch_file()?;
        Ok(Keys { packs, by_id, file, written: 0, repeated, contested, unsettled, broken, gone })
    }

    /// Of all packs that some index objects name. One that is gone is passed over: others have taken its place.
    pub fn read(
        repository: &Repository,
        cache: &Cache,
        objects: &[IndexId],
        workers: usize,
        monitor: &dyn Monitor,
    ) -> Result<Self> {
        let (keys, next) = (Mutex::new(Keys::new(cache)?), AtomicUsize::new(0));
        on_threads("keys", workers.min(objects.len()), || {
            while let Some(id) = objects.get(next.fetch_add(1, Ordering::Relaxed)) {
                if monitor.stop() {
                    return Err(Error::Interrupted);
                }
                let entries = match twice(|| repository.index_entries(*id)) {
                    Ok(Some(entries)) => entries,
                    Ok(None) => {
                        lock(&keys).gone = Some(*id);
                        continue;
                    }
                    Err(e) if e.is_damage() => {
                        lock(&keys).broken.push((*id, e));
                        continue;
                    }
                    Err(e) => return Err(e.into()),
                };
                let repeated: Vec<Vec<u32>> = entries.iter().map(repeated).collect();
                let mut keys = lock(&keys);
                for (entry, repeated) in entries.iter().zip(repeated) {
                    if let Some(pack) = keys.add(entry)? {
                        keys.repeated.extend(repeated.into_iter().map(|ordinal| Place { pack, ordinal }));
                    }
                }
            }
            Ok(())
        })?;
        Ok(keys.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Add a pack. Gives its number; `None` if it is there already, and stays as it is: contested, if that was
    /// something else.
    pub fn add(&mut self, entry: &Entry) -> Result<Option<u32>> {
        if let Some(number) = self.by_id.get(&entry.pack) {
            let keys: Vec<u8> = entry.table.chunks.iter().flat_map(|c| key(&c.id)).collect();
            let mut said = Vec::new();
            self.window(*number, 0, self.chunks(*number) as usize, &mut said)?;
            if said != keys || self.packs[*number as usize].what != what(entry) {
                self.contested.insert(entry.pack);
            }
            return Ok(None);
        }
        let (number, row) = (self.len(), self.write(entry)?);
        self.by_id.insert(entry.pack, number);
        self.packs.push(row);
        Ok(Some(number))
    }

    /// Take for what is in a contested pack what that says itself.
    pub fn correct(&mut self, entry: &Entry) -> Result<()> {
        let Some(number) = self.by_id.get(&entry.pack).copied() else { return Ok(()) };
        let row = self.write(entry)?;
        self.packs[number as usize] = row;
        self.repeated.retain(|place| place.pack != number);
        self.repeated.extend(repeated(entry).into_iter().map(|ordinal| Place { pack: number, ordinal }));
        Ok(())
    }

    fn write(&mut self, entry: &Entry) -> Result<Row> {
        let keys: Vec<u8> = entry.table.chunks.iter().flat_map(|c| key(&c.id)).collect();
        let at = self.written * KEY_BYTES as u64;
        self.file.write_all_at(&keys, at).map_err(Error::system("write a scratch file"))?;
        let row = Row { what: what(entry), chunks: entry.table.chunks.len() as u32, first: self.written };
        self.written += u64::from(row.chunks);
        Ok(row)
    }

    /// How many packs.
    pub fn len(&self) -> u32 {
        self.packs.len() as u32
    }

    /// The number of a pack.
    pub fn number(&self, id: &PackId) -> Option<u32> {
        self.by_id.get(id).copied()
    }

    /// What a pack holds.
    pub fn kind(&self, pack: u32) -> PackKind {
        self.packs[pack as usize].what.0
    }

    /// How many chunks are in a pack.
    pub fn chunks(&self, pack: u32) -> u32 {
        self.packs[pack as usize].chunks
    }

    /// The places of chunks that stand in the same pack before.
    pub fn repeated(&self) -> Bits {
        let bits = Bits::new(self, |_| true);
        for place in &self.repeated {
            bits.add(*place);
        }
        bits
    }

    /// Fill `out` with the keys of so many chunks of a pack from `ordinal` on, or as many as there are.
    pub fn window(&self, pack: u32, ordinal: u32, most: usize, out: &mut Vec<u8>) -> Result<()> {
        let row = &self.packs[pack as usize];
        let count = (row.chunks.saturating_sub(ordinal) as usize).min(most);
        out.resize(count * KEY_BYTES, 0);
        let at = (row.first + u64::from(ordinal)) * KEY_BYTES as u64;
        self.file.read_exact_at(out, at).map_err(Error::system("read a scratch file"))
    }
}

/// Places of chunks that stand in the same table before.
fn repeated(entry: &Entry) -> Vec<u32> {
    let start = |at: u32| u64::from_be_bytes(std::array::from_fn(|n| entry.table.chunks[at as usize].id.0[n]));
    let mut order: Vec<(u64, u32)> = (0..entry.table.chunks.len() as u32).map(|at| (start(at), at)).collect();
    order.sort_unstable();
    // Those that only begin alike cost no more than a question to the index.
    order.windows(2).filter(|two| two[0].0 == two[1].0).map(|two| two[1].1).collect()
}
