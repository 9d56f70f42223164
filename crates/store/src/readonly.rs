//! A wrapper that refuses every call that would change anything: for commands that only look.

use crate::{Action, Error, Haste, Kind, Listed, Put, Result, Soon, Store, Thaw, Upload};

/// A store that can be read and not written: `put`, `upload` and `delete` are [`Kind::Refused`], and never reach the
/// store inside.
pub struct ReadOnlyStore<S> {
    inner: S,
}

impl<S: Store> ReadOnlyStore<S> {
    /// Wrap `inner`.
    pub fn new(inner: S) -> Self {
        Self { inner }
    }

    fn refuse<T>(&self, action: Action, name: &str) -> Result<T> {
        Err(Error::because(Kind::Refused, action, name, &self.location(), "the repository was opened for reading only"))
    }
}

impl<S: Store> Store for ReadOnlyStore<S> {
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
        self.inner.len(name)
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

    fn put(&self, name: &str, _bytes: &[u8], _how: Put) -> Result<()> {
        self.refuse(Action::Write, name)
    }

    fn upload(&self, name: &str, _len_hint: u64) -> Result<Box<dyn Upload>> {
        self.refuse(Action::Write, name)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.refuse(Action::Delete, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryStore, RecordStore};

    #[test]
    fn no_write_gets_through() {
        let memory = MemoryStore::new();
        memory.put("a", b"1", Put::Create).unwrap();
        let recorded = RecordStore::new(memory);
        let log = recorded.log();
        let store = ReadOnlyStore::new(recorded);
        assert_eq!(store.put("b", b"2", Put::Replace).unwrap_err().kind, Kind::Refused);
        assert_eq!(store.upload("b", 0).err().map(|e| e.kind), Some(Kind::Refused));
        assert_eq!(store.delete("a").unwrap_err().kind, Kind::Refused);
        store.sync().unwrap();
        assert_eq!(log.take(), []);
        assert_eq!(store.get("a").unwrap(), b"1");
        assert_eq!(store.len("a").unwrap(), Some(1));
    }
}
