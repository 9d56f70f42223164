//! A store in memory, for tests. It models durability: what a crash would leave is kept apart from what readers see.
//!
//! Each name has a live state and a durable one. `put` writes both; `Upload::finish` and `delete` change the live one,
//! and `sync` makes all live states durable. A crash takes each name back to its durable state, or keeps its live one:
//! a real disk may do either.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Action, Error, Kind, Listed, Put, Result, Store, Upload, name};

const LOCATION: &str = "memory";

type Objects = BTreeMap<String, Arc<Vec<u8>>>;

#[derive(Default)]
struct State {
    live: Objects,
    durable: Objects,
    /// Counts crashes: an upload does not live through one.
    epoch: u64,
}

/// A store in memory. Clones share their objects.
#[derive(Clone, Default)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
    far: bool,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same objects in a store that says of itself that it is far away.
    pub fn far(&self) -> Self {
        MemoryStore { far: true, ..self.clone() }
    }

    /// A crash that loses as much as it may: unsynced objects are gone, unsynced removals undone, and uploads that
    /// were under way fail with [`Kind::Io`].
    pub fn crash(&self) {
        self.crash_keeping(|_| false);
    }

    /// A crash after which the unsynced changes for which `keep` says so have reached the disk all the same.
    /// `keep` is asked in the order of the names, once for each name that has an unsynced change.
    pub fn crash_keeping(&self, mut keep: impl FnMut(&str) -> bool) {
        let unsynced = self.unsynced();
        let mut state = self.state();
        for name in unsynced {
            if keep(&name) {
                let object = state.live.get(&name).cloned();
                set(&mut state.durable, name, object);
            }
        }
        state.live = state.durable.clone();
        state.epoch += 1;
    }

    /// The names whose objects a crash could take away or bring back, in order.
    pub fn unsynced(&self) -> Vec<String> {
        let state = self.state();
        let names: BTreeSet<&String> = state.live.keys().chain(state.durable.keys()).collect();
        let differs = |name: &&String| match (state.live.get(*name), state.durable.get(*name)) {
            (Some(live), Some(durable)) => !Arc::ptr_eq(live, durable),
            (live, durable) => live.is_some() != durable.is_some(),
        };
        names.into_iter().filter(differs).cloned().collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A test that failed while it held the lock left no half-made state: each change is one insertion.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn object(&self, action: Action, name: &str) -> Result<Arc<Vec<u8>>> {
        name::check(action, name, LOCATION)?;
        self.state().live.get(name).cloned().ok_or_else(|| missing(action, name))
    }
}

fn set(objects: &mut Objects, name: String, object: Option<Arc<Vec<u8>>>) {
    match object {
        Some(object) => objects.insert(name, object),
        None => objects.remove(&name),
    };
}

fn missing(action: Action, name: &str) -> Error {
    Error::because(Kind::Missing, action, name, LOCATION, "there is no such object")
}

fn exists(name: &str) -> Error {
    Error::because(Kind::Exists, Action::Create, name, LOCATION, "an object of that name exists already")
}

impl Store for MemoryStore {
    fn location(&self) -> String {
        LOCATION.to_owned()
    }

    fn is_far(&self) -> bool {
        self.far
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed)) -> Result<()> {
        name::check_prefix(Action::List, prefix, LOCATION)?;
        // A copy, so that `each` may call back.
        let live = self.state().live.clone();
        for (name, object) in live.into_iter().filter(|(name, _)| name::is_below(name, prefix)) {
            each(Listed { name, len: object.len() as u64 });
        }
        Ok(())
    }

    fn len(&self, name: &str) -> Result<Option<u64>> {
        name::check(Action::Find, name, LOCATION)?;
        Ok(self.state().live.get(name).map(|object| object.len() as u64))
    }

    fn get(&self, name: &str) -> Result<Vec<u8>> {
        Ok(self.object(Action::Read, name)?.to_vec())
    }

    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        let object = self.object(Action::Read, name)?;
        let end = offset.saturating_add(buf.len() as u64);
        let range = usize::try_from(offset).unwrap_or(usize::MAX)..usize::try_from(end).unwrap_or(usize::MAX);
        match object.get(range) {
            Some(bytes) => buf.copy_from_slice(bytes),
            None => return Err(Error::truncated(Action::Read, name, LOCATION, end, object.len() as u64)),
        }
        Ok(())
    }

    fn put(&self, name: &str, bytes: &[u8], how: Put) -> Result<()> {
        name::check(Action::Write, name, LOCATION)?;
        let object = Arc::new(bytes.to_vec());
        let mut state = self.state();
        if how == Put::Create && state.live.contains_key(name) {
            return Err(exists(name));
        }
        state.live.insert(name.to_owned(), Arc::clone(&object));
        state.durable.insert(name.to_owned(), object);
        Ok(())
    }

    fn upload(&self, name: &str, _len_hint: u64) -> Result<Box<dyn Upload>> {
        name::check(Action::Write, name, LOCATION)?;
        let epoch = self.state().epoch;
        Ok(Box::new(MemoryUpload { store: self.clone(), name: name.to_owned(), bytes: Vec::new(), epoch }))
    }

    fn sync(&self) -> Result<()> {
        let mut state = self.state();
        state.durable = state.live.clone();
        Ok(())
    }

    fn delete(&self, name: &str) -> Result<()> {
        name::check(Action::Delete, name, LOCATION)?;
        self.state().live.remove(name);
        Ok(())
    }
}

struct MemoryUpload {
    store: MemoryStore,
    name: String,
    bytes: Vec<u8>,
    epoch: u64,
}

impl MemoryUpload {
    fn alive<'a>(&self, state: MutexGuard<'a, State>) -> Result<MutexGuard<'a, State>> {
        if state.epoch == self.epoch {
            return Ok(state);
        }
        Err(Error::because(Kind::Io, Action::Write, &self.name, LOCATION, "the store crashed meanwhile"))
    }
}

impl Upload for MemoryUpload {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        drop(self.alive(self.store.state())?);
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        let bytes = std::mem::take(&mut self.bytes);
        let mut state = self.alive(self.store.state())?;
        if state.live.contains_key(&self.name) {
            return Err(exists(&self.name));
        }
        state.live.insert(self.name.clone(), Arc::new(bytes));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conforms() {
        crate::conformance::check(|| Box::new(MemoryStore::new()));
    }

    fn upload(store: &MemoryStore, name: &str, bytes: &[u8]) {
        let mut upload = store.upload(name, 0).unwrap();
        upload.write(bytes).unwrap();
        upload.finish().unwrap();
    }

    #[test]
    fn a_crash_takes_what_was_not_synced() {
        let store = MemoryStore::new();
        upload(&store, "synced", b"1");
        store.sync().unwrap();
        upload(&store, "finished", b"2");
        store.put("put", b"3", Put::Create).unwrap();
        store.delete("synced").unwrap();
        assert_eq!(store.unsynced(), ["finished", "synced"]);
        let mut under_way = store.upload("under-way", 0).unwrap();

        store.crash();
        assert_eq!(store.get("finished").unwrap_err().kind, Kind::Missing);
        assert_eq!(store.get("put").unwrap(), b"3");
        assert_eq!(store.get("synced").unwrap(), b"1", "a removal that was not synced may be undone");
        assert_eq!(under_way.write(b"4").unwrap_err().kind, Kind::Io);
        assert_eq!(under_way.finish().unwrap_err().kind, Kind::Io);
        assert!(store.unsynced().is_empty());
    }

    #[test]
    fn a_crash_may_keep_some() {
        let store = MemoryStore::new();
        store.put("c", b"old", Put::Create).unwrap();
        upload(&store, "a", b"1");
        upload(&store, "b", b"2");
        store.delete("c").unwrap();
        store.crash_keeping(|name| name != "a");
        assert_eq!(store.len("a").unwrap(), None);
        assert_eq!(store.get("b").unwrap(), b"2");
        assert_eq!(store.len("c").unwrap(), None);
        store.crash();
        assert_eq!(store.get("b").unwrap(), b"2", "what a crash kept is durable");
    }
}
