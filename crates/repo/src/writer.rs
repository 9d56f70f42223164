//! A writing session: registered before its first pack, with everything in it made durable in order, and one decision
//! at its end. `docs/format.md` states the order; this is where it is kept.

use crate::beside::{Beside, beside};
use crate::collection::{self, Announced, Board, Desk, Registration};
use crate::lock::lock;
use crate::pack::{Finished, Packer};
use crate::puts::{Object, Puts};
use crate::{Cache, Error, Index, Repository, Result, names, random_id, random_secret};
use drumlin_format::decision::Verdict;
use drumlin_format::index::{self, Entry};
use drumlin_format::pack::{Block, PackKind, Slot};
use drumlin_format::snapshot::{self, Snapshot};
use drumlin_format::{ChunkId, IndexId, ObjectType, PackId, SessionId, SnapshotId};
use drumlin_store::{Kind, Put, Soon};
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::{Duration, Instant};

/// Packs whose chunks number more than this are written to an index object at once: their tables are all that a session
/// keeps in memory for its index objects.
const PENDING_CHUNKS_MAX: usize = 64 << 10;

/// Or so long after the last one: what a killed run leaves in packs that no index object names is stored again by the
/// next. Over a line that is slow a pack takes minutes, and a large file may be hundreds of them.
const NAMING_EVERY: Duration = Duration::from_secs(60);

/// For so long packs that nobody wants any more are waited for: who has stopped the run wants it to end.
const FAREWELL: Duration = Duration::from_millis(500);
/// How often it is looked whether an index object has been put.
const PUT_LOOK: Duration = Duration::from_millis(20);

/// A session that writes.
pub struct WriteSession {
    repository: Repository,
    id: SessionId,
    /// Packs of file contents.
    pub data: Packer,
    /// Packs of tree nodes.
    pub tree: Packer,
    /// The tag of the generation of those.
    generation: u32,
    /// Packs of older generations, for blocks that are taken over as they are.
    older: Mutex<BTreeMap<(u8, u32), Arc<Packer>>>,
    ledger: Arc<Ledger>,
    cache: Arc<Cache>,
    /// Whether the storage was asked for all that was put before the last snapshot.
    asked: AtomicBool,
    /// Its decision, once it is known which that will be.
    announced: Mutex<Option<Announced>>,
    /// The snapshot that will be put, and its bytes.
    expected: Mutex<Option<(Snapshot, Vec<u8>)>>,
}

/// The finished packs of a session that no index object names yet.
struct Ledger {
    repository: Repository,
    index: Arc<Index>,
    session: SessionId,
    pending: Mutex<Pending>,
    /// When packs were named last, and how often that is done at the least.
    naming: Mutex<(Instant, Duration)>,
    puts: Puts,
    /// Held by whoever writes an index object.
    writing: Mutex<()>,
    /// See [`WriteSession::is_in_doubt`].
    doubt: Arc<AtomicBool>,
    /// The session ends: no index object is to come.
    ended: AtomicBool,
}

#[derive(Default)]
struct Pending {
    entries: Vec<Entry>,
    chunks: usize,
}

impl Ledger {
    /// Take in a finished pack. If many chunks wait by now, or some for long, an index object is written.
    fn add(&self, entry: Entry) -> Result<()> {
        let mut pending = lock(&self.pending);
        pending.chunks += entry.table.chunks.len();
        pending.entries.push(entry);
        let full = pending.chunks >= PENDING_CHUNKS_MAX;
        drop(pending);
        let is_due = {
            let (last, every) = *lock(&self.naming);
            last.elapsed() >= every
        };
        match (full, is_due) {
            (true, _) => self.write(PENDING_CHUNKS_MAX),
            (false, true) => self.write(1),
            (false, false) => Ok(()),
        }
    }

    /// If so many chunks wait: make all finished packs durable, and then an index object that names them.
    fn write(&self, least: usize) -> Result<()> {
        let _one_at_a_time = lock(&self.writing);
        let pending = {
            let mut pending = lock(&self.pending);
            if pending.entries.is_empty() || pending.chunks < least {
                return Ok(());
            }
            std::mem::take(&mut *pending)
        };
        lock(&self.naming).0 = Instant::now();
        let mut random = [0; 8];
        random.copy_from_slice(&random_id()?[..8]);
        let id = IndexId::of(self.session, random);
        let sealing = self.repository.sealing()?;
        let header = sealing.header(ObjectType::Index, self.repository.config().suite, id.0);
        let bytes = index::seal(&header, &pending.entries, sealing);
        let (store, name) = (self.repository.store(), names::index(id));
        // Nameless, it may be there before what it names is durable.
        store.expect(Soon::Bytes { name: &name, bytes: &bytes });
        let put_back = |pending: Pending| {
            let mut waiting = lock(&self.pending);
            waiting.chunks += pending.chunks;
            waiting.entries.extend(pending.entries);
        };
        if let Err(e) = store.sync() {
            put_back(pending);
            return Err(e.into());
        }
        let is_over = || self.ended.load(Ordering::SeqCst);
        let late = || Err(Error::Unwritten("the run has ended before".into()));
        if is_over() {
            put_back(pending);
            return late();
        }
        // So is one that is being put while others end the session. Who ends it says so first, and then looks for this:
        // one of the two is seen.
        let doubt = self.doubt.swap(true, Ordering::SeqCst);
        if is_over() {
            put_back(pending);
            self.doubt.store(doubt, Ordering::SeqCst);
            return late();
        }
        if let Err(e) = store.put(&name, &bytes, Put::Create) {
            // It may be there and not be durable, and nobody shall remember it then once the session has ended. Or it
            // may be on its way.
            let _ = store.delete(&name);
            if !matches!(e.kind, Kind::Io | Kind::Transient | Kind::Exhausted) {
                put_back(pending);
                self.doubt.store(doubt, Ordering::SeqCst);
            }
            return Err(e.into());
        }
        self.doubt.store(doubt, Ordering::SeqCst);
        self.puts.note(Object::Index(id), bytes.len() as u64);
        // Megabytes, and the index needs some in their place.
        drop(bytes);
        self.index.settle(id, &pending.entries)
    }

    /// As [`Puts::refuse_lost`].
    fn refuse_lost(&self, all: bool) -> Result<()> {
        self.puts.refuse_lost(&**self.repository.store(), all, || self.index.stats().packs)
    }
}

fn packer(ledger: &Arc<Ledger>, cache: &Arc<Cache>, kind: PackKind, generation: u32) -> Packer {
    let kept = cache.clone();
    let (repository, ledger, cache) = (ledger.repository.clone(), ledger.clone(), cache.clone());
    let sink = move |finished: Finished| {
        ledger.puts.note(Object::Pack(kind, finished.entry.pack), finished.entry.pack_len);
        ledger.index.add_pack(&finished.entry);
        if kind == PackKind::Tree {
            // Without it a key that can't read couldn't compare with its own last tree.
            let _ = cache.keep_pack_key(finished.entry.pack, &finished.key);
        }
        ledger.add(finished.entry)
    };
    let packer = Packer::new(repository, kind, generation, Arc::new(sink));
    if kind == PackKind::Tree { packer.with_copies(kept) } else { packer }
}

/// What a session has written so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Bytes of file contents, as stored.
    pub data_bytes: u64,
    /// Bytes of tree nodes, as stored.
    pub tree_bytes: u64,
}

impl WriteSession {
    /// Begin to write. The index is one that was opened for this registration: [`Index::open_for`].
    pub fn begin(registration: Registration, index: Arc<Index>, cache: Arc<Cache>) -> Self {
        let Registration { repository, id, generation, .. } = registration;
        let (pending, puts, writing, doubt, ended) = Default::default();
        let naming = Mutex::new((Instant::now(), NAMING_EVERY));
        let of = repository.clone();
        let ledger = Ledger { repository: of, index, session: id, pending, naming, puts, writing, doubt, ended };
        let ledger = Arc::new(ledger);
        let data = packer(&ledger, &cache, PackKind::Data, generation);
        let tree = packer(&ledger, &cache, PackKind::Tree, generation);
        let older = Mutex::default();
        WriteSession {
            repository,
            id,
            data,
            tree,
            generation,
            older,
            ledger,
            cache,
            asked: AtomicBool::new(false),
            announced: Mutex::default(),
            expected: Mutex::default(),
        }
    }

    /// Have finished packs named by an index object that often at the least, instead of each minute.
    pub fn name_packs_every(&self, every: Duration) {
        lock(&self.ledger.naming).1 = every;
    }

    /// The session.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// The index that it adds to.
    pub fn index(&self) -> &Arc<Index> {
        &self.ledger.index
    }

    /// What was written so far.
    pub fn written(&self) -> Written {
        let of = |kind: PackKind, packer: &Packer| {
            let older = lock(&self.older);
            let older = older.iter().filter(|((of, _), _)| *of == kind.object() as u8);
            packer.stored_bytes() + older.map(|(_, packer)| packer.stored_bytes()).sum::<u64>()
        };
        Written { data_bytes: of(PackKind::Data, &self.data), tree_bytes: of(PackKind::Tree, &self.tree) }
    }

    /// The tag of the generation that it seals in.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Take over a block as it stands in another pack, of this kind and generation: into a pack of the same.
    pub fn adopt(
        &self,
        (kind, generation): (PackKind, u32),
        slot: &Slot,
        block: &Block,
        sealed: &[u8],
        chunks: &[(ChunkId, u32)],
    ) -> Result<u64> {
        match kind {
            _ if generation != self.generation => {
                let of = (kind.object() as u8, generation);
                let new = || Arc::new(packer(&self.ledger, &self.cache, kind, generation));
                let older = lock(&self.older).entry(of).or_insert_with(new).clone();
                older.adopt(slot, block, sealed, chunks)
            }
            PackKind::Data => self.data.adopt(slot, block, sealed, chunks),
            PackKind::Tree => self.tree.adopt(slot, block, sealed, chunks),
        }
    }

    /// Have a pack that others wrote named by the index objects of this session as well: for a collector that removes
    /// the object which names it.
    pub fn name_again(&self, entry: Entry) -> Result<()> {
        self.ledger.add(entry)
    }

    /// Close the packs at hand and make everything written so far durable and found: what a snapshot needs before it
    /// may be written. No block may be under way.
    ///
    /// # Errors
    /// Of a pack that can't be closed: no snapshot may refer to this session's chunks then. Of the index object, or of
    /// the storage's word that all is durable: what was to be named waits, and may be tried again, unless the object
    /// may be on its way ([`WriteSession::is_in_doubt`]).
    pub fn flush(&self) -> Result<()> {
        self.finish_packs()?;
        self.ledger.write(0)
    }

    /// As [`WriteSession::flush`], as far as possible, for a session that will end without a snapshot: its finished
    /// packs are named anyway, so that the next session needn't store their contents again. If nothing refers to them
    /// by then, the next prune removes them. `closing`: the packs at hand are closed first, which takes its time.
    ///
    /// # Errors
    /// Those of a snapshot ([`WriteSession::put_snapshot`]): nothing is named then. That of the first pack that can't
    /// be closed, else that of the index object.
    pub fn name_finished(&self, closing: bool) -> Result<()> {
        let finished = if closing { self.finish_packs() } else { Ok(()) };
        // Who reads the index trusts it: what an eviction or an older state of the storage has taken away mustn't be
        // named.
        self.refuse_unprotected()?;
        if Desk::new(&self.repository).is_evicted(self.id)? {
            return Err(Error::Evicted);
        }
        self.ledger.refuse_lost(true)?;
        self.ledger.write(0)?;
        finished
    }

    /// Whether a pack, or a part of one, could not be written: then nothing that this session has stored may be
    /// referred to.
    pub fn has_failed(&self) -> bool {
        self.data.has_failed() || self.tree.has_failed() || lock(&self.older).values().any(|of| of.has_failed())
    }

    /// No pack that isn't closed by now is to get a name, and no index object to come: for who ends the session.
    /// Threads that close one are waited for, for a moment.
    pub fn give_up(&self) {
        self.ledger.ended.store(true, Ordering::SeqCst);
        let older: Vec<_> = lock(&self.older).values().cloned().collect();
        let packers = [&self.data, &self.tree].into_iter().chain(older.iter().map(|of| &**of));
        let until = Instant::now() + FAREWELL;
        packers.for_each(|packer| packer.give_up(until));
    }

    /// Wait until the index object that is just being put is there, or has failed: for who has given up, and has
    /// something to commit nevertheless.
    pub fn see_put(&self) {
        while self.is_in_doubt() && matches!(self.ledger.writing.try_lock(), Err(TryLockError::WouldBlock)) {
            std::thread::sleep(PUT_LOOK);
        }
    }

    fn finish_packs(&self) -> Result<()> {
        let older: Vec<_> = lock(&self.older).values().cloned().collect();
        let packers: Vec<&Packer> = [&self.data, &self.tree].into_iter().chain(older.iter().map(|of| &**of)).collect();
        // Each takes some round trips.
        let finished: Vec<Result<()>> = self.repository.ask_many(&packers, |packer| Ok::<_, Error>(packer.finish()))?;
        finished.into_iter().collect()
    }

    /// Whether an index object that could not be put may yet appear: its packs would be taken for stored by whoever
    /// reads it, though they were removed as nobody's, if the session had ended. So it isn't to be ended: once it is
    /// evicted, nobody refers to what it names.
    pub fn is_in_doubt(&self) -> bool {
        self.ledger.doubt.load(Ordering::SeqCst)
    }

    /// What [`WriteSession::is_in_doubt`] tells, for callers that no longer have the session when they ask.
    pub fn doubt(&self) -> Arc<AtomicBool> {
        self.ledger.doubt.clone()
    }

    /// The packs that it has put.
    pub fn packs(&self) -> HashSet<PackId> {
        self.ledger.puts.packs()
    }

    /// The index objects that it has put.
    pub fn indexes(&self) -> Vec<IndexId> {
        self.ledger.puts.indexes()
    }

    /// See that all that this session has put is in the storage: that may have been put back to an older state
    /// meanwhile. For who is about to decide that it counts.
    ///
    /// # Errors
    /// [`Error::Undone`] for the first that isn't, unless the session was evicted: then others clear up after it, and
    /// nobody can decide on it any more.
    pub fn refuse_lost(&self) -> Result<()> {
        match self.ledger.refuse_lost(true) {
            Err(Error::Undone { .. }) if Desk::new(&self.repository).is_evicted(self.id)? => Ok(()),
            other => other,
        }
    }

    /// Write a snapshot object, durably. All that it refers to must have been flushed; of what this session has put
    /// itself the storage is asked whether it is there, for a partial snapshot what came since it was asked last.
    ///
    /// # Errors
    /// [`Error::SessionLost`] or [`Error::Evicted`] if nothing protects that any more: a snapshot without its session
    /// would count at once. [`Error::Undone`] as [`WriteSession::refuse_lost`].
    pub fn put_snapshot(&self, snapshot: &Snapshot) -> Result<()> {
        let name = names::snapshot(snapshot.id);
        let bytes = match lock(&self.expected).take().filter(|(expected, _)| expected == snapshot) {
            Some((_, bytes)) => bytes,
            None => self.seal_snapshot(snapshot)?,
        };
        let store = self.repository.store();
        let protected = || self.refuse_unprotected();
        let is_there = || {
            let all = snapshot.partial.is_none();
            self.ledger.refuse_lost(all)?;
            self.asked.store(all, Ordering::Relaxed);
            Ok(())
        };
        if !store.is_far() {
            protected()?;
            is_there()?;
            return Ok(store.put(&name, &bytes, Put::Create)?);
        }
        // Nobody waits for the answers by themselves.
        let (answers, put) = std::thread::scope(|scope| {
            let asked = [beside(scope, "protected", protected), beside(scope, "is-there", is_there)];
            let put = store.put(&name, &bytes, Put::Create);
            (asked.map(Beside::join), put)
        });
        put?;
        let refused = answers.into_iter().find(Result::is_err).unwrap_or(Ok(()));
        refused.inspect_err(|_| {
            let _ = store.delete(&name);
        })
    }

    fn seal_snapshot(&self, snapshot: &Snapshot) -> Result<Vec<u8>> {
        let secrets = self.repository.secrets();
        let signing = secrets.signing.as_ref().ok_or_else(|| self.repository.not_allowed("back up"))?;
        let (key, seed) = (random_secret()?, random_secret()?);
        let sealed = snapshot::seal(snapshot, (secrets.key, signing), self.repository.recipient()?, &key, &seed);
        sealed.map_err(Error::damaged(&names::snapshot(snapshot.id)))
    }

    /// A hint that this snapshot will be put once all is flushed, and the session committed with it. What is wrong is
    /// told then.
    pub fn expect_snapshot(&self, snapshot: &Snapshot) {
        if let Ok(bytes) = self.seal_snapshot(snapshot) {
            self.repository.store().expect(Soon::Bytes { name: &names::snapshot(snapshot.id), bytes: &bytes });
            *lock(&self.expected) = Some((snapshot.clone(), bytes));
        }
        let announced = Desk::new(&self.repository).announce(self.id, &Verdict::Committed { snapshot: snapshot.id });
        *lock(&self.announced) = announced.ok().flatten();
    }

    /// Fails if the session isn't there any more.
    fn refuse_unprotected(&self) -> Result<()> {
        match self.repository.store().len(&names::session(self.id))? {
            Some(_) => Ok(()),
            None => Err(self.lost()?),
        }
    }

    /// Why the session is gone.
    fn lost(&self) -> Result<Error> {
        let location = self.repository.store().location();
        Ok(match Desk::new(&self.repository).is_evicted(self.id)? {
            true => Error::Evicted,
            false => Error::SessionLost { session: self.id.to_string(), location },
        })
    }

    /// Decide that `snapshot`, which has been put, counts; then clear up.
    ///
    /// # Errors
    /// [`Error::Evicted`]: a collector was faster, and the snapshot doesn't count. [`Error::SessionLost`]: the storage
    /// has lost what was written. Any other is of the decision itself, which may be there all the same: whoever comes
    /// next settles that.
    pub fn commit(self, snapshot: SnapshotId) -> Result<()> {
        self.give_up();
        if !self.asked.load(Ordering::Relaxed) {
            self.refuse_lost()?;
        }
        let desk = Desk::new(&self.repository).having_announced(lock(&self.announced).take());
        let verdict = Verdict::Committed { snapshot };
        if !collection::commit(&desk, self.id, &verdict)? {
            return Err(Error::Evicted);
        }
        // It counts from here on. What could not be cleared up, the next collection does.
        let _ = collection::end(&desk, self.id, &verdict);
        Ok(())
    }

    /// End a session of which no snapshot was put, unless it is in doubt ([`WriteSession::is_in_doubt`]).
    /// Where that is refused it may go on: an account that may only add can end a session by a decision alone.
    ///
    /// # Errors
    /// That it can't be removed: then it stays until it is decided on, or a collector evicts it.
    pub fn abandon(&self) -> Result<()> {
        self.give_up();
        if self.is_in_doubt() {
            return Ok(());
        }
        Desk::new(&self.repository).remove_session(self.id)
    }
}

impl Drop for WriteSession {
    /// Nobody waits for its packs any more, and others may take its session for ended.
    fn drop(&mut self) {
        self.give_up();
    }
}

#[cfg(test)]
mod tests;
