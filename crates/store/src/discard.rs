//! A store that takes everything and keeps nothing: for dry runs, which do all the work of a backup but write.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::lock::lock;
use crate::{Action, Haste, Listed, Put, Result, Soon, Store, Thaw, Upload, name};

/// Reads go to the store inside; writes vanish, but for the names of objects and their lengths: who has put one finds
/// that it is there.
pub struct DiscardStore<S> {
    inner: S,
    put: Arc<Mutex<HashMap<String, u64>>>,
}

impl<S: Store> DiscardStore<S> {
    /// Wrap `inner`, which is never written to.
    pub fn new(inner: S) -> Self {
        DiscardStore { inner, put: Arc::default() }
    }
}

impl<S: Store> Store for DiscardStore<S> {
    fn location(&self) -> String {
        self.inner.location()
    }

    fn is_far(&self) -> bool {
        self.inner.is_far()
    }

    fn creates_atomically(&self) -> Result<bool> {
        self.inner.creates_atomically()
    }

    fn may_come_late(&self, name: &str) -> bool {
        self.inner.may_come_late(name)
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed)) -> Result<()> {
        self.inner.list(prefix, each)
    }

    fn list_in_order(&self, folders: &[&str], each: &mut dyn FnMut(usize, Listed)) -> Result<()> {
        self.inner.list_in_order(folders, each)
    }

    fn len(&self, name: &str) -> Result<Option<u64>> {
        let put = lock(&self.put).get(name).copied();
        put.map_or_else(|| self.inner.len(name), |len| Ok(Some(len)))
    }

    fn get(&self, name: &str) -> Result<Vec<u8>> {
        self.inner.get(name)
    }

    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inner.read_at(name, offset, buf)
    }

    fn freezes(&self) -> bool {
        self.inner.freezes()
    }

    fn thaw(&self, name: &str, haste: Haste) -> Result<Thaw> {
        self.inner.thaw(name, haste)
    }

    fn expect(&self, soon: Soon<'_>) {
        // Nothing is going to be put.
        if !matches!(soon, Soon::Put | Soon::Bytes { .. }) {
            self.inner.expect(soon);
        }
    }

    fn put(&self, name: &str, bytes: &[u8], _how: Put) -> Result<()> {
        name::check(Action::Write, name, &self.location())?;
        lock(&self.put).insert(name.to_owned(), bytes.len() as u64);
        Ok(())
    }

    fn upload(&self, name: &str, _len_hint: u64) -> Result<Box<dyn Upload>> {
        name::check(Action::Write, name, &self.location())?;
        Ok(Box::new(Discarded { name: name.to_owned(), len: 0, put: self.put.clone() }))
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn delete(&self, name: &str) -> Result<()> {
        name::check(Action::Delete, name, &self.location())?;
        lock(&self.put).remove(name);
        Ok(())
    }
}

struct Discarded {
    name: String,
    len: u64,
    put: Arc<Mutex<HashMap<String, u64>>>,
}

impl Upload for Discarded {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.len += bytes.len() as u64;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        lock(&self.put).insert(self.name, self.len);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStore;

    #[test]
    fn nothing_is_written_and_all_can_be_read() {
        let memory = MemoryStore::new();
        memory.put("a", b"1", Put::Create).unwrap();
        let store = DiscardStore::new(memory.clone());
        store.put("b", b"2", Put::Create).unwrap();
        assert_eq!(
            (store.len("a").unwrap(), store.len("b").unwrap(), store.len("c").unwrap()),
            (Some(1), Some(1), None)
        );
        let mut upload = store.upload("c", 1).unwrap();
        upload.write(b"3").unwrap();
        upload.finish().unwrap();
        assert_eq!(store.len("c").unwrap(), Some(1));
        store.delete("a").unwrap();
        store.sync().unwrap();
        let mut names = Vec::new();
        memory.list("", &mut |l| names.push(l.name)).unwrap();
        assert_eq!(names, ["a"]);
        assert_eq!(store.get("a").unwrap(), b"1");
        assert!(store.put("../x", b"", Put::Create).is_err());
    }
}
