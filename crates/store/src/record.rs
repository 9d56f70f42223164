//! A wrapper that writes down every call, so that a test can assert exactly what an operation reads and writes.

use std::sync::{Arc, Mutex, PoisonError};

use crate::{Cleared, Haste, Kind, Listed, Put, Result, Soon, Store, Thaw, Upload};

/// The operations of a store and of its uploads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// [`Store::list`]
    List,
    /// [`Store::len`]
    Len,
    /// [`Store::get`]
    Get,
    /// [`Store::read_at`]
    ReadAt,
    /// [`Store::put`]
    Put,
    /// [`Store::upload`]
    Upload,
    /// [`Upload::write`]
    Write,
    /// [`Upload::finish`]
    Finish,
    /// [`Store::sync`]
    Sync,
    /// [`Store::delete`]
    Delete,
}

/// One call that returned, with its object's name and its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// A listing and how many objects it gave.
    List {
        /// The folder.
        prefix: String,
        /// How many objects were listed.
        objects: u64,
    },
    /// A question for a length, and the answer.
    Len {
        /// The object.
        name: String,
        /// What the store said.
        len: Option<u64>,
    },
    /// A whole object was read.
    Get {
        /// The object.
        name: String,
        /// Its length.
        bytes: u64,
    },
    /// A range was read.
    ReadAt {
        /// The object.
        name: String,
        /// Where the range begins.
        offset: u64,
        /// Its length.
        bytes: u64,
    },
    /// A small object was written.
    Put {
        /// The object.
        name: String,
        /// Its length.
        bytes: u64,
        /// Whether it might replace another.
        how: Put,
    },
    /// An upload was begun.
    Upload {
        /// The object.
        name: String,
        /// The length that was promised.
        len_hint: u64,
    },
    /// An upload was given its name.
    Finish {
        /// The object.
        name: String,
        /// How many bytes were written to it in all.
        bytes: u64,
    },
    /// An upload was dropped before it was finished.
    Abandon {
        /// The object.
        name: String,
        /// How many bytes had been written to it.
        bytes: u64,
    },
    /// A sync.
    Sync,
    /// A removal.
    Delete {
        /// The object.
        name: String,
    },
    /// A call that returned an error.
    Failed {
        /// Which operation.
        op: Op,
        /// The object, or the folder of a listing.
        name: String,
        /// How it failed.
        kind: Kind,
    },
}

impl Call {
    /// Whether the call may have changed what is stored (a failed one too).
    pub fn is_write(&self) -> bool {
        match self {
            Self::Put { .. } | Self::Finish { .. } | Self::Delete { .. } => true,
            Self::Failed { op, .. } => matches!(op, Op::Put | Op::Finish | Op::Delete),
            _ => false,
        }
    }
}

/// A handle to what a [`RecordStore`] has written down; it outlives the store.
#[derive(Clone, Default)]
pub struct CallLog {
    calls: Arc<Mutex<Vec<Call>>>,
}

impl CallLog {
    /// All calls so far, in the order in which they returned.
    pub fn calls(&self) -> Vec<Call> {
        self.with(|calls| calls.clone())
    }

    /// All calls so far; the log starts anew.
    pub fn take(&self) -> Vec<Call> {
        self.with(std::mem::take)
    }

    /// The calls so far that may have changed what is stored.
    pub fn writes(&self) -> Vec<Call> {
        self.with(|calls| calls.iter().filter(|call| call.is_write()).cloned().collect())
    }

    fn with<T>(&self, f: impl FnOnce(&mut Vec<Call>) -> T) -> T {
        f(&mut self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Write down `call`, or that `op` failed, and hand the result on.
    fn note<T>(&self, op: Op, name: &str, result: Result<T>, call: impl FnOnce(&T) -> Call) -> Result<T> {
        let call = match &result {
            Ok(value) => call(value),
            Err(error) => Call::Failed { op, name: name.to_owned(), kind: error.kind },
        };
        self.with(|calls| calls.push(call));
        result
    }
}

/// A store that writes down every call made to it; see [`CallLog`].
///
/// Calls of [`Upload::write`] are summed up in [`Call::Finish`] and [`Call::Abandon`], since how an upload is cut into
/// writes says nothing about what is stored; only failed ones have an entry.
pub struct RecordStore<S> {
    inner: S,
    log: CallLog,
}

impl<S: Store> RecordStore<S> {
    /// Wrap `inner`.
    pub fn new(inner: S) -> Self {
        Self { inner, log: CallLog::default() }
    }

    /// The log: keep it before the store is boxed or given away.
    pub fn log(&self) -> CallLog {
        self.log.clone()
    }
}

impl<S: Store> Store for RecordStore<S> {
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
        let mut objects = 0;
        let result = self.inner.list(prefix, &mut |listed| {
            objects += 1;
            each(listed);
        });
        self.log.note(Op::List, prefix, result, |()| Call::List { prefix: prefix.to_owned(), objects })
    }

    fn len(&self, name: &str) -> Result<Option<u64>> {
        let result = self.inner.len(name);
        self.log.note(Op::Len, name, result, |len| Call::Len { name: name.to_owned(), len: *len })
    }

    fn get(&self, name: &str) -> Result<Vec<u8>> {
        let result = self.inner.get(name);
        self.log.note(Op::Get, name, result, |bytes| Call::Get { name: name.to_owned(), bytes: bytes.len() as u64 })
    }

    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        let bytes = buf.len() as u64;
        let result = self.inner.read_at(name, offset, buf);
        self.log.note(Op::ReadAt, name, result, |()| Call::ReadAt { name: name.to_owned(), offset, bytes })
    }

    fn freezes(&self) -> bool {
        self.inner.freezes()
    }

    fn thaw(&self, name: &str, haste: Haste) -> Result<Thaw> {
        self.inner.thaw(name, haste)
    }

    fn retain(&self, name: &str) -> Result<()> {
        self.inner.retain(name)
    }

    fn retains(&self) -> bool {
        self.inner.retains()
    }

    fn retention_ends_soon(&self, name: &str) -> Result<bool> {
        self.inner.retention_ends_soon(name)
    }

    fn expect(&self, soon: Soon<'_>) {
        self.inner.expect(soon);
    }

    fn put(&self, name: &str, bytes: &[u8], how: Put) -> Result<()> {
        let result = self.inner.put(name, bytes, how);
        let bytes = bytes.len() as u64;
        self.log.note(Op::Put, name, result, |()| Call::Put { name: name.to_owned(), bytes, how })
    }

    fn upload(&self, name: &str, len_hint: u64) -> Result<Box<dyn Upload>> {
        let result = self.inner.upload(name, len_hint);
        let upload = self.log.note(Op::Upload, name, result, |_| Call::Upload { name: name.to_owned(), len_hint })?;
        Ok(Box::new(RecordUpload { inner: Some(upload), log: self.log.clone(), name: name.to_owned(), bytes: 0 }))
    }

    fn sync(&self) -> Result<()> {
        let result = self.inner.sync();
        self.log.note(Op::Sync, "", result, |()| Call::Sync)
    }

    fn delete(&self, name: &str) -> Result<()> {
        let result = self.inner.delete(name);
        self.log.note(Op::Delete, name, result, |()| Call::Delete { name: name.to_owned() })
    }

    /// It concerns no object, and isn't recorded.
    fn clear_unfinished(&self) -> Result<Cleared> {
        self.inner.clear_unfinished()
    }
}

struct RecordUpload {
    /// `None` once finished.
    inner: Option<Box<dyn Upload>>,
    log: CallLog,
    name: String,
    bytes: u64,
}

impl Upload for RecordUpload {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(inner) = &mut self.inner else { return Ok(()) };
        let result = inner.write(bytes);
        if result.is_err() {
            return self.log.note(Op::Write, &self.name, result, |()| Call::Sync);
        }
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        let Some(inner) = self.inner.take() else { return Ok(()) };
        let result = inner.finish();
        let bytes = self.bytes;
        self.log.note(Op::Finish, &self.name, result, |()| Call::Finish { name: self.name.clone(), bytes })
    }
}

impl Drop for RecordUpload {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take() {
            drop(inner);
            let (name, bytes) = (std::mem::take(&mut self.name), self.bytes);
            self.log.with(|calls| calls.push(Call::Abandon { name, bytes }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStore;

    #[test]
    fn conforms() {
        crate::conformance::check(|| Box::new(RecordStore::new(MemoryStore::new())));
    }

    #[test]
    fn every_call_is_written_down() {
        let store = RecordStore::new(MemoryStore::new());
        let log = store.log();
        let name = || "a/b".to_owned();
        store.put("a/b", b"123", Put::Replace).unwrap();
        store.len("a/b").unwrap();
        store.get("a/b").unwrap();
        store.read_at("a/b", 1, &mut [0; 2]).unwrap();
        store.list("a", &mut |_| ()).unwrap();
        store.delete("a/b").unwrap();
        store.sync().unwrap();
        store.get("a/b").unwrap_err();
        let mut upload = store.upload("a/b", 9).unwrap();
        upload.write(b"12").unwrap();
        upload.write(b"3456").unwrap();
        upload.finish().unwrap();
        store.upload("a/b", 0).unwrap().finish().unwrap_err();
        let mut upload = store.upload("c", 0).unwrap();
        upload.write(b"1").unwrap();
        drop(upload);
        let expected = [
            Call::Put { name: name(), bytes: 3, how: Put::Replace },
            Call::Len { name: name(), len: Some(3) },
            Call::Get { name: name(), bytes: 3 },
            Call::ReadAt { name: name(), offset: 1, bytes: 2 },
            Call::List { prefix: "a".to_owned(), objects: 1 },
            Call::Delete { name: name() },
            Call::Sync,
            Call::Failed { op: Op::Get, name: name(), kind: Kind::Missing },
            Call::Upload { name: name(), len_hint: 9 },
            Call::Finish { name: name(), bytes: 6 },
            Call::Upload { name: name(), len_hint: 0 },
            Call::Failed { op: Op::Finish, name: name(), kind: Kind::Exists },
            Call::Upload { name: "c".to_owned(), len_hint: 0 },
            Call::Abandon { name: "c".to_owned(), bytes: 1 },
        ];
        assert_eq!(log.calls(), expected);
        assert_eq!(log.writes().len(), 4);
        assert_eq!(log.take().len(), expected.len());
        assert_eq!(log.calls(), []);
    }
}
