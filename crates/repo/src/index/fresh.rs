//! Chunks of the run at hand: claimed by a thread, or placed in a finished pack.

use super::Location;
use super::run::Key;
use crate::lock::lock;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

const SHARDS: usize = 16;
type Shard = HashMap<Key, Option<Location>, BuildHasherDefault<Identity>>;

/// A hash table in shards, so that threads seldom wait for each other.
#[derive(Default)]
pub(super) struct Fresh {
    shards: [Mutex<Shard>; SHARDS],
}

impl Fresh {
    fn shard(&self, key: &Key) -> MutexGuard<'_, Shard> {
        self.shards[usize::from(key[23]) % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: unknown. `Some(None)`: claimed, on its way into a pack.
    pub fn lookup(&self, key: &Key) -> Option<Option<Location>> {
        self.shard(key).get(key).copied()
    }

    pub fn contains(&self, key: &Key) -> bool {
        self.shard(key).contains_key(key)
    }

    /// Whether the caller is the first.
    pub fn claim(&self, key: Key) -> bool {
        match self.shard(&key).entry(key) {
            Entry::Occupied(_) => false,
            Entry::Vacant(entry) => {
                entry.insert(None);
                true
            }
        }
    }

    pub fn place(&self, key: Key, location: Location) {
        self.shard(&key).insert(key, Some(location));
    }

    pub fn forget(&self, key: &Key) {
        self.shard(key).remove(key);
    }

    pub fn placed(&self) -> usize {
        self.each().map(|s| s.values().filter(|v| v.is_some()).count()).sum()
    }

    pub fn memory(&self) -> usize {
        self.each().map(|s| s.capacity() * (size_of::<(Key, Option<Location>)>() + 1)).sum()
    }

    fn each(&self) -> impl Iterator<Item = MutexGuard<'_, Shard>> {
        self.shards.iter().map(|s| lock(s))
    }
}

/// Keys are keyed hashes already: their own bytes serve as the hash.
#[derive(Default)]
pub(super) struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk() {
            self.0 = u64::from_le_bytes(*first);
        }
    }

    fn write_usize(&mut self, _: usize) {
        // The length of the key, always the same.
    }
}
