//! The sparse index: which packs are worth looking into for the chunks at hand.
//!
//! A hook leads to a pack; its table is fetched, and the chunks around the hook are found there. Packs that were
//! written one after the other are met one after the other: towards the end of one its successor's table is fetched as
//! well, so that nothing is missed up to that one's first hook. What no hook leads to is stored once more: a few chunks
//! before the first hook of each stretch of known data.

use super::lean::Near;
use super::run::{Key, PackInfo, key};
use super::{Index, Location};
use crate::Result;
use crate::lock::lock;
use crate::pack::{Lru, read_table};
use drumlin_format::ChunkId;
use drumlin_format::pack::{PackKind, Table};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Memory for tables.
const TABLES_BYTES: usize = 16 << 20;
/// So many packs are looked into for a chunk.
const TRIES: usize = 6;

/// The tables of the packs that chunks at hand are found in.
pub(super) struct Champions {
    tables: Mutex<Lru<u32, Champion>>,
    /// Bytes of sealed tables that may be fetched, and that were.
    bytes_max: u64,
    bytes: AtomicU64,
    pub(super) near: Near,
}

struct Champion {
    ordinals: HashMap<Key, u32>,
}

/// The key under which a run keeps a hook.
pub(super) fn hook_key(hook: u64) -> Key {
    let mut key = [0; 24];
    key[..8].copy_from_slice(&hook.to_be_bytes());
    // The filter looks at the middle third.
    key[8..16].copy_from_slice(&hook.to_be_bytes());
    key
}

/// Each of these once, in turns the one that comes first and the one that comes most often of those that are left.
fn first_and_most(packs: Vec<u32>) -> Vec<u32> {
    let mut votes: Vec<(u32, u32)> = Vec::new();
    for pack in packs {
        match votes.iter_mut().find(|(of, _)| *of == pack) {
            Some((_, votes)) => *votes += 1,
            None => votes.push((pack, 1)),
        }
    }
    let mut order = Vec::with_capacity(votes.len());
    while !votes.is_empty() {
        let most = (0..votes.len()).rev().max_by_key(|at| votes[*at].1).unwrap_or_default();
        order.push(votes.remove(if order.len() % 2 == 0 { 0 } else { most }).0);
    }
    order
}

impl Champions {
    /// None yet. So many bytes of sealed tables may be fetched.
    pub fn new(bytes_max: u64) -> Self {
        let (tables, bytes, near) = (Mutex::new(Lru::new(TABLES_BYTES)), AtomicU64::new(0), Near::default());
        Champions { tables, bytes_max, bytes, near }
    }

    /// Where a chunk is, as far as hooks lead there.
    pub fn find(&self, index: &Index, id: &ChunkId) -> Result<Option<Location>> {
        if let Some(found) = self.known(&key(id)) {
            // Who only reads knows by what stands around a chunk where it may be.
            if !index.is_lean() {
                self.approach_end(index, found)?;
            }
            return Ok(Some(found));
        }
        if self.is_spent() {
            return Ok(None);
        }
        let mut tries = TRIES;
        for pack in self.candidates(index, id)? {
            if lock(&self.tables).contains(&pack) {
                continue;
            }
            if tries == 0 || self.is_spent() {
                break;
            }
            tries -= 1;
            self.fetch(index, pack)?;
            if let Some(found) = self.known(&key(id)) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Whether no more tables may be fetched.
    fn is_spent(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > self.bytes_max
    }

    /// Packs that may hold a chunk: its own, if it is a hook; then those to which the hooks around it lead: the
    /// nearest, and those of most hooks, since some lead far away, to contents that were met before.
    fn candidates(&self, index: &Index, id: &ChunkId) -> Result<Vec<u32>> {
        let pack_of =
            |hook| Ok::<_, crate::Error>(index.lookup_runs(&hook_key(hook), &[], &mut |_, _| true)?.map(|at| at.pack));
        let own = if id.is_hook() { pack_of(id.hook())? } else { None };
        let around = self.near.hooks(id).into_iter().filter_map(|hook| pack_of(hook).transpose());
        Ok(own.into_iter().chain(first_and_most(around.collect::<Result<Vec<_>>>()?)).collect())
    }

    fn known(&self, wanted: &Key) -> Option<Location> {
        let mut tables = lock(&self.tables);
        let found =
            tables.iter().find_map(|(pack, t)| Some(Location { pack: *pack, ordinal: *t.ordinals.get(wanted)? }))?;
        // It has been of use: it stays.
        tables.get(&found.pack);
        Some(found)
    }

    fn fetch(&self, index: &Index, pack: u32) -> Result<()> {
        let info = index.pack(pack);
        let (table, fetched) = match index.shuns(&info.id) {
            true => Default::default(),
            false => index.table_for_lookups(&info)?,
        };
        self.bytes.fetch_add(fetched, Ordering::Relaxed);
        let ordinals: HashMap<Key, u32> =
            table.chunks.iter().enumerate().map(|(at, chunk)| (key(&chunk.id), at as u32)).collect();
        let bytes = ordinals.capacity() * (size_of::<(Key, u32)>() + 1);
        let champion = Arc::new(Champion { ordinals });
        lock(&self.tables).put(pack, champion, bytes);
        Ok(())
    }

    /// Near the end of a pack its successor is fetched.
    fn approach_end(&self, index: &Index, found: Location) -> Result<()> {
        let next = {
            let mut tables = lock(&self.tables);
            let Some(table) = tables.get(&found.pack) else { return Ok(()) };
            if (found.ordinal as usize + 1) * 10 < table.ordinals.len() * 9 {
                return Ok(());
            }
            match index.successor(found.pack) {
                Some(next) if !tables.contains(&next) => next,
                _ => return Ok(()),
            }
        };
        self.fetch(index, next)
    }
}

impl Index {
    /// A pack's table for lookups, by its own word or kept, and the bytes that were fetched for it; one without chunks
    /// if it can't be had.
    fn table_for_lookups(&self, info: &PackInfo) -> Result<(Table, u64)> {
        let none = (Table::default(), u64::from(info.table_len));
        match self.table_of(info) {
            // A pack that is gone or damaged can't be referred to; its chunks are stored again.
            Err(e) if e.is_damage() => Ok(none),
            // Nor can what nobody brings back from cold storage for that.
            Err(e) if e.frozen().is_some() => Ok(none),
            other => other,
        }
    }

    /// A pack's table, by its own word, and the bytes that were fetched for it; of a lean index it may have been kept,
    /// and is kept.
    pub(super) fn table_of(&self, info: &PackInfo) -> Result<(Table, u64)> {
        let kept = self.cache.tables().filter(|_| self.is_lean());
        if let Some(table) = kept.and_then(|tables| tables.get(info.id)) {
            return Ok((table, 0));
        }
        let table = read_table(&self.repository, info)?.0;
        kept.inspect(|tables| tables.keep(info.id, &table));
        Ok((table, u64::from(info.table_len)))
    }

    /// The data pack that was written after this one, if they are named by one index object.
    fn successor(&self, pack: u32) -> Option<u32> {
        let layers = self.read();
        let layer = layers.runs.iter().find(|l| (l.base..l.base + l.run.packs.len() as u32).contains(&pack))?;
        let end = layer.base + layer.run.packs.len() as u32;
        let counts = |number: u32| layer.counts(number - layer.base);
        (pack + 1..end).find(|number| counts(*number) && layers.packs[*number as usize].kind == PackKind::Data)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_nearest_and_those_that_most_hooks_lead_to_take_turns() {
        assert_eq!(super::first_and_most(vec![7, 2, 9, 4, 9, 9, 4]), [7, 9, 2, 4]);
        assert!(super::first_and_most(Vec::new()).is_empty());
    }
}
