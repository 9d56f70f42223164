//! A wrapper that makes chosen calls fail, or lie, so that a test can try every way in which storage misbehaves.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Action, Cleared, Error, Haste, Kind, Listed, Op, Put, Result, Soon, Store, Thaw, Upload};

/// What happens to a call that a rule picks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call does nothing and fails with this kind.
    Fail(Kind),
    /// The call takes effect, and its answer is lost: it fails with this kind.
    FailAfter(Kind),
    /// `put` and `upload` keep no more than these first bytes of the object and report success; `get` gives no more
    /// of it. Other operations are left alone.
    Short(u64),
}

/// Which calls a rule picks. Built from [`When::any`], [`When::op`] or [`When::call`]; every condition must hold.
#[derive(Clone, Debug)]
pub struct When {
    op: Option<Op>,
    name: Option<String>,
    call: Option<u64>,
    skip: u64,
    times: u64,
}

impl When {
    /// Every call.
    pub fn any() -> Self {
        Self { op: None, name: None, call: None, skip: 0, times: u64::MAX }
    }

    /// Every call of one operation.
    pub fn op(op: Op) -> Self {
        Self { op: Some(op), ..Self::any() }
    }

    /// The call of this number alone, counted from 1 over all operations; see [`Faults::calls`].
    pub fn call(number: u64) -> Self {
        Self { call: Some(number), ..Self::any() }
    }

    /// Only for names (or prefixes of listings) that match `pattern`, where `*` stands for any bytes, slashes too.
    pub fn named(mut self, pattern: &str) -> Self {
        self.name = Some(pattern.to_owned());
        self
    }

    /// Leave out the first `skip` calls that match.
    pub fn skip(mut self, skip: u64) -> Self {
        self.skip = skip;
        self
    }

    /// Pick no more than `times` calls.
    pub fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }

    fn picks(&mut self, op: Op, name: &str, call: u64) -> bool {
        let matches = self.op.is_none_or(|wanted| wanted == op)
            && self.call.is_none_or(|wanted| wanted == call)
            && self.name.as_ref().is_none_or(|pattern| glob(pattern.as_bytes(), name.as_bytes()));
        if !matches || self.times == 0 {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        self.times -= 1;
        true
    }
}

/// `*` matches any run of bytes, every other byte itself.
fn glob(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.split_first() {
        None => name.is_empty(),
        Some((b'*', rest)) => (0..=name.len()).any(|skip| glob(rest, &name[skip..])),
        Some((byte, rest)) => name.split_first().is_some_and(|(first, tail)| first == byte && glob(rest, tail)),
    }
}

#[derive(Default)]
struct Plan {
    rules: Vec<(When, Fault)>,
    calls: u64,
    /// How many more bytes fit; `None` for no limit.
    room: Option<u64>,
    /// Stretches of objects that can't be read.
    bad: Vec<(String, Range<u64>)>,
}

/// The plan of a [`FaultStore`]; clones share it, so that a test can change it while the store is in use.
#[derive(Clone, Default)]
pub struct Faults {
    plan: Arc<Mutex<Plan>>,
}

impl Faults {
    /// Add a rule. Of several rules that pick a call, the one added first decides.
    pub fn add(&self, when: When, fault: Fault) {
        self.plan().rules.push((when, fault));
    }

    /// Accept `bytes` more bytes of `put` and `write`; a call that would go beyond fails with [`Kind::Full`]. What an
    /// upload took that is given up is free again.
    pub fn full_after(&self, bytes: u64) {
        self.plan().room = Some(bytes);
    }

    /// These bytes of an object lie on bad sectors: whatever reads one of them fails with [`Kind::Io`].
    pub fn bad_bytes(&self, name: &str, bytes: Range<u64>) {
        self.plan().bad.push((name.to_owned(), bytes));
    }

    fn are_bad(&self, name: &str, bytes: Range<u64>) -> bool {
        !bytes.is_empty()
            && self.plan().bad.iter().any(|(of, bad)| of == name && bad.start < bytes.end && bytes.start < bad.end)
    }

    /// Forget all rules, bad bytes and the limit of space. The count of calls goes on.
    pub fn clear(&self) {
        let mut plan = self.plan();
        plan.rules.clear();
        plan.bad.clear();
        plan.room = None;
    }

    /// How many calls there were. To fail each call of an operation in turn, run it once without a rule, and then
    /// once with [`When::call`] of each number up to this.
    pub fn calls(&self) -> u64 {
        self.plan().calls
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Count a call that adds `bytes` bytes, and say what becomes of it.
    fn decide(&self, op: Op, name: &str, bytes: u64) -> Option<Fault> {
        let mut plan = self.plan();
        plan.calls += 1;
        let call = plan.calls;
        if let Some((_, fault)) = plan.rules.iter_mut().find_map(|(when, fault)| {
            let picked = when.picks(op, name, call);
            picked.then_some((when, *fault))
        }) {
            return Some(fault);
        }
        match &mut plan.room {
            Some(room) if bytes > *room => return Some(Fault::Fail(Kind::Full)),
            Some(room) => *room -= bytes,
            None => {}
        }
        None
    }

    /// Run `call` as the plan says.
    fn run<T>(&self, op: Op, name: &str, bytes: u64, at: &str, call: impl FnOnce() -> Result<T>) -> Result<T> {
        match self.decide(op, name, bytes) {
            Some(Fault::Fail(kind)) => Err(injected(kind, op, name, at)),
            Some(Fault::FailAfter(kind)) => call().and(Err(injected(kind, op, name, at))),
            Some(Fault::Short(_)) | None => call(),
        }
    }
}

fn injected(kind: Kind, op: Op, name: &str, location: &str) -> Error {
    let action = match op {
        Op::List => Action::List,
        Op::Len => Action::Find,
        Op::Get | Op::ReadAt => Action::Read,
        Op::Put | Op::Upload | Op::Write => Action::Write,
        Op::Finish => Action::Create,
        Op::Sync => Action::Persist,
        Op::Delete => Action::Delete,
    };
    Error::because(kind, action, name, location, "the test says so")
}

/// How much of `bytes` a short object keeps.
fn cut(bytes: &[u8], limit: u64) -> &[u8] {
    &bytes[..usize::try_from(limit).unwrap_or(usize::MAX).min(bytes.len())]
}

/// A store whose calls fail as its [`Faults`] say; clones share them.
#[derive(Clone)]
pub struct FaultStore<S> {
    inner: S,
    faults: Faults,
}

impl<S: Store> FaultStore<S> {
    /// Wrap `inner`; nothing fails until the plan says so.
    pub fn new(inner: S) -> Self {
        Self { inner, faults: Faults::default() }
    }

    /// The plan.
    pub fn faults(&self) -> Faults {
        self.faults.clone()
    }

    fn run<T>(&self, op: Op, name: &str, call: impl FnOnce() -> Result<T>) -> Result<T> {
        self.faults.run(op, name, 0, &self.location(), call)
    }
}

impl<S: Store> Store for FaultStore<S> {
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
        self.run(Op::List, prefix, || self.inner.list(prefix, each))
    }

    fn len(&self, name: &str) -> Result<Option<u64>> {
        self.run(Op::Len, name, || self.inner.len(name))
    }

    fn get(&self, name: &str) -> Result<Vec<u8>> {
        if self.faults.are_bad(name, 0..u64::MAX) {
            return Err(injected(Kind::Io, Op::Get, name, &self.location()));
        }
        match self.faults.decide(Op::Get, name, 0) {
            Some(Fault::Fail(kind)) => Err(injected(kind, Op::Get, name, &self.location())),
            Some(Fault::FailAfter(kind)) => {
                self.inner.get(name).and(Err(injected(kind, Op::Get, name, &self.location())))
            }
            Some(Fault::Short(limit)) => Ok(cut(&self.inner.get(name)?, limit).to_vec()),
            None => self.inner.get(name),
        }
    }

    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        if self.faults.are_bad(name, offset..offset.saturating_add(buf.len() as u64)) {
            return Err(injected(Kind::Io, Op::ReadAt, name, &self.location()));
        }
        self.run(Op::ReadAt, name, || self.inner.read_at(name, offset, buf))
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
        match self.faults.decide(Op::Put, name, bytes.len() as u64) {
            Some(Fault::Fail(kind)) => Err(injected(kind, Op::Put, name, &self.location())),
            Some(Fault::FailAfter(kind)) => {
                self.inner.put(name, bytes, how).and(Err(injected(kind, Op::Put, name, &self.location())))
            }
            Some(Fault::Short(limit)) => self.inner.put(name, cut(bytes, limit), how),
            None => self.inner.put(name, bytes, how),
        }
    }

    fn upload(&self, name: &str, len_hint: u64) -> Result<Box<dyn Upload>> {
        let (inner, limit) = match self.faults.decide(Op::Upload, name, 0) {
            Some(Fault::Fail(kind) | Fault::FailAfter(kind)) => {
                return Err(injected(kind, Op::Upload, name, &self.location()));
            }
            Some(Fault::Short(limit)) => (self.inner.upload(name, len_hint)?, limit),
            None => (self.inner.upload(name, len_hint)?, u64::MAX),
        };
        let (faults, location) = (self.faults.clone(), self.location());
        Ok(Box::new(FaultUpload {
            inner: Some(inner),
            faults,
            location,
            name: name.to_owned(),
            limit,
            failed: None,
            taken: 0,
        }))
    }

    fn sync(&self) -> Result<()> {
        self.run(Op::Sync, "", || self.inner.sync())
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.run(Op::Delete, name, || self.inner.delete(name))
    }

    /// It concerns no object, and is no call that is counted.
    fn clear_unfinished(&self) -> Result<Cleared> {
        self.inner.clear_unfinished()
    }
}

struct FaultUpload {
    /// `None` once it is finished.
    inner: Option<Box<dyn Upload>>,
    faults: Faults,
    location: String,
    name: String,
    /// How many more bytes are kept.
    limit: u64,
    /// How a write failed: so do all calls after it.
    failed: Option<Kind>,
    /// What is taken as long as it may still be given up.
    taken: u64,
}

impl Drop for FaultUpload {
    fn drop(&mut self) {
        if let Some(room) = &mut self.faults.plan().room {
            *room += self.taken;
        }
    }
}

impl FaultUpload {
    fn go_on(&self, op: Op) -> Result<()> {
        self.failed.map_or(Ok(()), |kind| Err(injected(kind, op, &self.name, &self.location)))
    }
}

impl Upload for FaultUpload {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.go_on(Op::Write)?;
        let kept = cut(bytes, self.limit);
        self.limit -= kept.len() as u64;
        let (inner, len) = (self.inner.as_mut().expect("it isn't finished"), bytes.len() as u64);
        let written = self.faults.run(Op::Write, &self.name, len, &self.location, || inner.write(kept));
        match written {
            Ok(()) if self.faults.plan().room.is_some() => self.taken += len,
            Ok(()) => {}
            Err(ref e) => self.failed = Some(e.kind),
        }
        written
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.go_on(Op::Finish)?;
        let inner = self.inner.take().expect("it isn't finished");
        let taken = std::mem::take(&mut self.taken);
        let finished = self.faults.run(Op::Finish, &self.name, 0, &self.location, || inner.finish());
        // Whoever heard nothing may have what it took all the same.
        if finished.as_ref().is_err_and(|e| e.kind != Kind::Transient) {
            self.taken = taken;
        }
        finished
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStore;

    fn make() -> (FaultStore<MemoryStore>, Faults) {
        let store = FaultStore::new(MemoryStore::new());
        let faults = store.faults();
        (store, faults)
    }

    #[test]
    fn conforms_without_a_plan() {
        crate::conformance::check(|| Box::new(make().0));
    }

    #[test]
    fn by_operation_name_and_count() {
        let (store, faults) = make();
        faults.add(When::op(Op::Put).named("snap/*").skip(1).times(2), Fault::Fail(Kind::Refused));
        let put = |name: &str| store.put(name, b"1", Put::Replace).map_err(|e| e.kind);
        assert_eq!(put("snap/1"), Ok(()));
        assert_eq!(put("packs/1"), Ok(()));
        assert_eq!(put("snap/2"), Err(Kind::Refused));
        assert_eq!(put("snap/3"), Err(Kind::Refused));
        assert_eq!(put("snap/4"), Ok(()));
        assert_eq!(store.len("snap/2").unwrap(), None);
        assert_eq!(faults.calls(), 6);
    }

    #[test]
    fn by_number_of_call() {
        let (store, faults) = make();
        faults.add(When::call(2), Fault::Fail(Kind::Transient));
        store.sync().unwrap();
        assert_eq!(store.len("a").unwrap_err().kind, Kind::Transient);
        assert_eq!(store.len("a").unwrap(), None);
    }

    #[test]
    fn bad_bytes_fail_whoever_reads_one_of_them() {
        let (store, faults) = make();
        store.put("a", b"0123456789", Put::Create).unwrap();
        faults.bad_bytes("a", 4..6);
        let read = |at: u64, len: usize| store.read_at("a", at, &mut vec![0; len]).map_err(|e| e.kind);
        assert_eq!((read(0, 4), read(6, 4), read(5, 0)), (Ok(()), Ok(()), Ok(())));
        assert_eq!((read(0, 5), read(5, 1), read(4, 6)), (Err(Kind::Io), Err(Kind::Io), Err(Kind::Io)));
        assert_eq!(store.get("a").unwrap_err().kind, Kind::Io);
        faults.clear();
        assert_eq!((read(0, 10), store.get("a").unwrap()), (Ok(()), b"0123456789".to_vec()));
    }

    #[test]
    fn a_lost_answer_takes_effect() {
        let (store, faults) = make();
        faults.add(When::op(Op::Finish).times(1), Fault::FailAfter(Kind::Transient));
        let mut upload = store.upload("a", 0).unwrap();
        upload.write(b"12").unwrap();
        assert_eq!(upload.finish().unwrap_err().kind, Kind::Transient);
        assert_eq!(store.get("a").unwrap(), b"12");
    }

    #[test]
    fn full_after_so_many_bytes() {
        let (store, faults) = make();
        faults.full_after(10);
        store.put("a", &[0; 4], Put::Create).unwrap();
        let mut upload = store.upload("b", 0).unwrap();
        upload.write(&[0; 6]).unwrap();
        assert_eq!(upload.write(&[0; 1]).unwrap_err().kind, Kind::Full);
        // Behind what is missing nothing is written, and the object never appears.
        assert_eq!(upload.write(&[]).unwrap_err().kind, Kind::Full);
        assert_eq!(store.put("c", &[0; 1], Put::Create).unwrap_err().kind, Kind::Full);
        assert_eq!(upload.finish().unwrap_err().kind, Kind::Full);
        // Its room is free again.
        store.put("d", &[0; 6], Put::Create).unwrap();
        assert_eq!(store.put("c", &[0; 1], Put::Create).unwrap_err().kind, Kind::Full);
        faults.clear();
        store.put("c", &[0; 1], Put::Create).unwrap();
    }

    #[test]
    fn short_objects() {
        let (store, faults) = make();
        faults.add(When::op(Op::Upload), Fault::Short(5));
        faults.add(When::op(Op::Put), Fault::Short(2));
        let mut upload = store.upload("a", 0).unwrap();
        upload.write(b"1234").unwrap();
        upload.write(b"5678").unwrap();
        upload.finish().unwrap();
        assert_eq!(store.get("a").unwrap(), b"12345");
        store.put("b", b"1234", Put::Create).unwrap();
        assert_eq!(store.len("b").unwrap(), Some(2));
    }

    #[test]
    fn globs() {
        for (pattern, name, matches) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("packs/*", "packs/1f/x", true),
            ("*/x", "packs/1f/x", true),
            ("p*f*x", "packs/1f/x", true),
            ("p*f*y", "packs/1f/x", false),
        ] {
            assert_eq!(glob(pattern.as_bytes(), name.as_bytes()), matches, "{pattern} {name}");
        }
    }
}
