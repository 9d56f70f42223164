//! Stores in which something happens at a certain call.

use drumlin_store::{Action, Kind, MemoryStore, Put, Store, Upload};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// A store in which something happens when an object is put.
pub struct Meanwhile<F> {
    pub inner: MemoryStore,
    pub prefix: &'static str,
    pub then: std::sync::Mutex<Option<F>>,
}

impl<F: FnOnce() + Send> Store for Meanwhile<F> {
    fn location(&self) -> String {
        self.inner.location()
    }
    fn is_far(&self) -> bool {
        self.inner.is_far()
    }
    fn list(&self, prefix: &str, each: &mut dyn FnMut(drumlin_store::Listed)) -> drumlin_store::Result<()> {
        self.inner.list(prefix, each)
    }
    fn len(&self, name: &str) -> drumlin_store::Result<Option<u64>> {
        self.inner.len(name)
    }
    fn get(&self, name: &str) -> drumlin_store::Result<Vec<u8>> {
        self.inner.get(name)
    }
    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> drumlin_store::Result<()> {
        self.inner.read_at(name, offset, buf)
    }
    fn put(&self, name: &str, bytes: &[u8], how: Put) -> drumlin_store::Result<()> {
        if name.starts_with(self.prefix)
            && let Some(then) = self.then.lock().unwrap().take()
        {
            then();
        }
        self.inner.put(name, bytes, how)
    }
    fn upload(&self, name: &str, len_hint: u64) -> drumlin_store::Result<Box<dyn drumlin_store::Upload>> {
        self.inner.upload(name, len_hint)
    }
    fn sync(&self) -> drumlin_store::Result<()> {
        self.inner.sync()
    }
    fn delete(&self, name: &str) -> drumlin_store::Result<()> {
        self.inner.delete(name)
    }
}

/// A store in which something happens before the first range of an object is read.
pub struct WhileReading {
    pub inner: MemoryStore,
    pub prefix: &'static str,
    pub then: Box<dyn Fn() + Send + Sync>,
}

impl Store for WhileReading {
    fn location(&self) -> String {
        self.inner.location()
    }
    fn list(&self, prefix: &str, each: &mut dyn FnMut(drumlin_store::Listed)) -> drumlin_store::Result<()> {
        self.inner.list(prefix, each)
    }
    fn len(&self, name: &str) -> drumlin_store::Result<Option<u64>> {
        self.inner.len(name)
    }
    fn get(&self, name: &str) -> drumlin_store::Result<Vec<u8>> {
        self.inner.get(name)
    }
    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> drumlin_store::Result<()> {
        if name.starts_with(self.prefix) {
            (self.then)();
        }
        self.inner.read_at(name, offset, buf)
    }
    fn put(&self, name: &str, bytes: &[u8], how: Put) -> drumlin_store::Result<()> {
        self.inner.put(name, bytes, how)
    }
    fn upload(&self, name: &str, len_hint: u64) -> drumlin_store::Result<Box<dyn drumlin_store::Upload>> {
        self.inner.upload(name, len_hint)
    }
    fn sync(&self) -> drumlin_store::Result<()> {
        self.inner.sync()
    }
    fn delete(&self, name: &str) -> drumlin_store::Result<()> {
        self.inner.delete(name)
    }
}

/// A store that lists what it doesn't have, and lists what it doesn't give out.
pub struct Odd {
    pub inner: MemoryStore,
    /// Called with each folder that is listed, before it is.
    pub listing: Box<dyn Fn(&str) + Send + Sync>,
    pub ghosts: Vec<String>,
    pub withheld: Option<String>,
}

impl Store for Odd {
    fn location(&self) -> String {
        self.inner.location()
    }
    fn list(&self, prefix: &str, each: &mut dyn FnMut(drumlin_store::Listed)) -> drumlin_store::Result<()> {
        (self.listing)(prefix);
        for name in self.ghosts.iter().filter(|name| name.starts_with(&format!("{prefix}/"))) {
            each(drumlin_store::Listed { name: name.clone(), len: 100 });
        }
        self.inner.list(prefix, each)
    }
    fn len(&self, name: &str) -> drumlin_store::Result<Option<u64>> {
        self.inner.len(name)
    }
    fn get(&self, name: &str) -> drumlin_store::Result<Vec<u8>> {
        match self.withheld.as_ref().is_some_and(|withheld| withheld == name) {
            true => Err(drumlin_store::Error::because(
                Kind::Missing,
                Action::Read,
                name,
                "memory",
                "there is no such object",
            )),
            false => self.inner.get(name),
        }
    }
    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> drumlin_store::Result<()> {
        self.inner.read_at(name, offset, buf)
    }
    fn put(&self, name: &str, bytes: &[u8], how: Put) -> drumlin_store::Result<()> {
        self.inner.put(name, bytes, how)
    }
    fn upload(&self, name: &str, len_hint: u64) -> drumlin_store::Result<Box<dyn drumlin_store::Upload>> {
        self.inner.upload(name, len_hint)
    }
    fn sync(&self) -> drumlin_store::Result<()> {
        self.inner.sync()
    }
    fn delete(&self, name: &str) -> drumlin_store::Result<()> {
        self.inner.delete(name)
    }
}

/// A store in which it takes a while until an upload of contents has its name. It takes note of when one gets it.
pub struct Slow {
    pub inner: MemoryStore,
    /// One has begun to get it.
    pub is_naming: Arc<AtomicBool>,
    /// A session has ended.
    pub has_ended: Arc<AtomicBool>,
    /// One has got it after that.
    pub is_late: Arc<AtomicBool>,
}

struct SlowUpload {
    inner: Box<dyn Upload>,
    marks: [Arc<AtomicBool>; 3],
}

impl Upload for SlowUpload {
    fn write(&mut self, bytes: &[u8]) -> drumlin_store::Result<()> {
        self.inner.write(bytes)
    }
    fn finish(self: Box<Self>) -> drumlin_store::Result<()> {
        let [is_naming, has_ended, is_late] = self.marks;
        is_naming.store(true, Relaxed);
        std::thread::sleep(Duration::from_millis(150));
        is_late.fetch_or(has_ended.load(Relaxed), Relaxed);
        self.inner.finish()
    }
}

impl Store for Slow {
    fn location(&self) -> String {
        self.inner.location()
    }
    fn list(&self, prefix: &str, each: &mut dyn FnMut(drumlin_store::Listed)) -> drumlin_store::Result<()> {
        self.inner.list(prefix, each)
    }
    fn len(&self, name: &str) -> drumlin_store::Result<Option<u64>> {
        self.inner.len(name)
    }
    fn get(&self, name: &str) -> drumlin_store::Result<Vec<u8>> {
        self.inner.get(name)
    }
    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> drumlin_store::Result<()> {
        self.inner.read_at(name, offset, buf)
    }
    fn put(&self, name: &str, bytes: &[u8], how: Put) -> drumlin_store::Result<()> {
        self.inner.put(name, bytes, how)
    }
    fn upload(&self, name: &str, len_hint: u64) -> drumlin_store::Result<Box<dyn Upload>> {
        let inner = self.inner.upload(name, len_hint)?;
        if !name.starts_with("data/") {
            return Ok(inner);
        }
        let marks = [self.is_naming.clone(), self.has_ended.clone(), self.is_late.clone()];
        Ok(Box::new(SlowUpload { inner, marks }))
    }
    fn sync(&self) -> drumlin_store::Result<()> {
        self.inner.sync()
    }
    fn delete(&self, name: &str) -> drumlin_store::Result<()> {
        self.has_ended.fetch_or(name.starts_with("sessions/"), Relaxed);
        self.inner.delete(name)
    }
}
