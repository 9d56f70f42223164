//! A worker: takes contents from the source's packs to the target's. Chunks are read in the order of the packs in which
//! they lie, checked under the source's identities, and stored under the target's unless it has them.

use crate::backup::Level;
use crate::lock::lock;
use crate::monitor::{Monitor, add};
use crate::{Error, Result};
use crossbeam_channel::{Receiver, Sender};
use drumlin_format::ChunkId;
use drumlin_format::pack::PackKind;
use drumlin_format::tree::{Data, List, Ref};
use drumlin_repo::pack::{BlockBuilder, Coder, Reader};
use drumlin_repo::{Error as RepoError, WriteSession};
use drumlin_seal::{Hasher, IdKey};
use std::collections::HashMap;
use std::sync::{Arc, Barrier, Mutex, MutexGuard};
use std::time::Instant;

/// So many chunks of the source are remembered with their identity in the target: some 20 MB.
const KNOWN_MAX: usize = 128 << 10;
/// Chunks that are looked ahead for blocks that a storage far away is asked for.
const CHUNKS_AHEAD: usize = 64;

/// What all workers share.
pub(super) struct Shared<'a> {
    pub source: Arc<Reader>,
    pub session: Arc<WriteSession>,
    pub source_ids: Arc<IdKey>,
    pub target_ids: Arc<IdKey>,
    pub level: Level,
    pub monitor: &'a dyn Monitor,
    pub block_bytes: usize,
    /// Chunks of the source that this session has stored or found in the target. Only within a session: another one may
    /// find them gone.
    known: Mutex<HashMap<ChunkId, (ChunkId, u32)>>,
}

/// Something to do.
pub(super) enum Job {
    /// The contents of files, none of which is large: where they are in the source, and their lengths.
    Batch(u64, Vec<(Data, u64)>),
    /// Chunks of a large file, and their lengths.
    Piece(u64, Vec<(ChunkId, u64)>),
    /// Store what is at hand, and meet.
    Flush(Arc<Barrier>),
}

/// What came of it.
pub(super) enum Done {
    /// Of each file.
    Batch(u64, Vec<Stored>),
    /// The bytes of a piece, one chunk behind the other, and the chunks' names; or why they can't be had.
    Piece(u64, std::result::Result<Copied, String>),
    /// The end of the run.
    Failed(Error),
}

/// A piece of a large file.
pub(super) struct Copied {
    pub ids: Vec<ChunkId>,
    pub bytes: Vec<u8>,
}

/// Where a file's contents are in the target.
pub(super) enum Stored {
    Chunk(ChunkId),
    Refs(Vec<Ref>, [u8; 32]),
    List(List),
    /// The source doesn't have them whole; the cause.
    Damaged(String),
}

impl<'a> Shared<'a> {
    pub fn new(
        source: Arc<Reader>,
        session: Arc<WriteSession>,
        ids: (Arc<IdKey>, Arc<IdKey>),
        level: Level,
        monitor: &'a dyn Monitor,
        block_bytes: usize,
    ) -> Self {
        let (source_ids, target_ids) = ids;
        let known = Mutex::default();
        Shared { source, session, source_ids, target_ids, level, monitor, block_bytes, known }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<ChunkId, (ChunkId, u32)>> {
        lock(&self.known)
    }

    /// What both repositories call the same contents, as they come.
    pub fn whole(&self) -> Whole {
        Whole { source: Box::new(self.source_ids.hasher()), target: Box::new(self.target_ids.hasher()) }
    }
}

/// The identity of a whole file in both repositories.
pub(super) struct Whole {
    source: Box<Hasher>,
    target: Box<Hasher>,
}

impl Whole {
    /// Contents, or the offset and length of a hole.
    pub fn update(&mut self, bytes: &[u8]) {
        self.source.update(bytes);
        self.target.update(bytes);
    }

    /// A hole: told when all contents have been.
    pub fn hole(&mut self, offset: u64, len: u64) {
        self.update(&offset.to_le_bytes());
        self.update(&len.to_le_bytes());
    }

    /// The identity in the target, if that in the source is this.
    pub fn finish(&self, expected: &[u8; 32]) -> Option<[u8; 32]> {
        (self.source.finalize().as_bytes() == expected).then(|| *self.target.finalize().as_bytes())
    }
}

/// Why contents whose chunks are all there are none.
pub(super) const NOT_WHOLE: &str = "its contents are not those that were backed up";

/// One of the worker threads.
pub(super) struct Worker<'a, 'm> {
    shared: &'a Shared<'m>,
    block: BlockBuilder,
    coder: Coder,
}

/// A chunk that was asked for.
enum Got {
    /// Its name in the target, its length, and its bytes if somebody wants them.
    Stored(ChunkId, u64, Option<Vec<u8>>),
    Lost(String),
}

impl<'a, 'm> Worker<'a, 'm> {
    pub fn new(shared: &'a Shared<'m>) -> Result<Self> {
        let coder = Coder::new().map_err(Error::system("set up zstd"))?;
        Ok(Worker { shared, block: BlockBuilder::with_capacity(shared.block_bytes), coder })
    }

    /// Work until there is no more.
    pub fn run(mut self, jobs: &Receiver<Job>, done: &Sender<Done>) {
        for job in jobs {
            let outcome = match job {
                Job::Batch(number, files) => self.batch(&files).map(|stored| Done::Batch(number, stored)),
                Job::Piece(number, chunks) => self.piece(&chunks).map(|copied| Done::Piece(number, copied)),
                Job::Flush(barrier) => {
                    let stored = self.store_block();
                    if let Err(e) = stored {
                        let _ = done.send(Done::Failed(e));
                    }
                    barrier.wait();
                    continue;
                }
            };
            // Whoever asked may be gone, if the run has failed.
            let _ = done.send(outcome.unwrap_or_else(Done::Failed));
        }
    }

    fn batch(&mut self, files: &[(Data, u64)]) -> Result<Vec<Stored>> {
        let mut wanted: HashMap<ChunkId, bool> = HashMap::new();
        for (data, _) in files {
            match data {
                Data::None => {}
                Data::Chunk(id) => {
                    wanted.entry(*id).or_insert(false);
                }
                // The whole file's identity takes the bytes.
                Data::List(list) => list.refs.iter().for_each(|r| {
                    if let Ref::Chunk { id, .. } = r {
                        wanted.insert(*id, true);
                    }
                }),
            }
        }
        let got = self.chunks(wanted.into_iter().collect())?;
        Ok(files.iter().map(|(data, size)| self.file(data, *size, &got)).collect())
    }

    fn file(&self, data: &Data, size: u64, got: &HashMap<ChunkId, Got>) -> Stored {
        let of = |id: &ChunkId, len: u64| match got.get(id) {
            Some(Got::Stored(name, found, bytes)) if *found == len => Ok((*name, bytes.as_deref().unwrap_or_default())),
            Some(Got::Stored(..)) => Err("one of its chunks has the wrong length".to_owned()),
            Some(Got::Lost(cause)) => Err(cause.clone()),
            None => Err(NOT_WHOLE.to_owned()),
        };
        match data {
            Data::None => Stored::Damaged(NOT_WHOLE.into()),
            Data::Chunk(id) => of(id, size).map_or_else(Stored::Damaged, |(name, _)| Stored::Chunk(name)),
            Data::List(list) => {
                let (mut refs, mut whole) = (Vec::with_capacity(list.refs.len()), self.shared.whole());
                for r in &list.refs {
                    match r {
                        Ref::Hole { len } => refs.push(Ref::Hole { len: *len }),
                        Ref::Chunk { id, len } => match of(id, *len) {
                            Ok((name, bytes)) => {
                                whole.update(bytes);
                                refs.push(Ref::Chunk { id: name, len: *len });
                            }
                            Err(cause) => return Stored::Damaged(cause),
                        },
                    }
                }
                let mut offset = 0;
                for r in &list.refs {
                    if let Ref::Hole { len } = r {
                        whole.hole(offset, *len);
                    }
                    offset += r.len();
                }
                match whole.finish(&list.whole) {
                    Some(whole) => Stored::Refs(refs, whole),
                    None => Stored::Damaged(NOT_WHOLE.into()),
                }
            }
        }
    }

    fn piece(&mut self, chunks: &[(ChunkId, u64)]) -> Result<std::result::Result<Copied, String>> {
        let mut wanted: Vec<_> = chunks.iter().map(|(id, _)| (*id, true)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let got = self.chunks(wanted)?;
        let mut copied = Copied { ids: Vec::with_capacity(chunks.len()), bytes: Vec::new() };
        for (id, len) in chunks {
            match got.get(id) {
                Some(Got::Stored(name, found, Some(bytes))) if found == len => {
                    copied.ids.push(*name);
                    copied.bytes.extend_from_slice(bytes);
                }
                Some(Got::Lost(cause)) => return Ok(Err(cause.clone())),
                _ => return Ok(Err("one of its chunks has the wrong length".into())),
            }
        }
        Ok(Ok(copied))
    }

    /// Have chunks stored, each asked for once, and say whether their bytes are wanted.
    fn chunks(&mut self, wanted: Vec<(ChunkId, bool)>) -> Result<HashMap<ChunkId, Got>> {
        let mut got = HashMap::with_capacity(wanted.len());
        let mut placed = Vec::with_capacity(wanted.len());
        for (id, bytes) in wanted {
            let known = if bytes { None } else { self.shared.known().get(&id).copied() };
            match known {
                Some((name, len)) => {
                    got.insert(id, Got::Stored(name, u64::from(len), None));
                }
                // One that is in no pack is told when it is read.
                None => placed.push((self.shared.source.index().lookup(&id)?, id, bytes)),
            }
        }
        placed.sort_unstable();
        let is_far = self.shared.source.repository().store().is_far();
        let expect = |chunk: Option<&(_, ChunkId, bool)>| {
            chunk.filter(|_| is_far).into_iter().for_each(|(_, id, _)| self.shared.source.expect(id));
        };
        placed.iter().take(CHUNKS_AHEAD).for_each(|chunk| expect(Some(chunk)));
        for (at, (_, id, wants_bytes)) in placed.iter().enumerate() {
            expect(placed.get(at + CHUNKS_AHEAD));
            let (id, wants_bytes) = (*id, *wants_bytes);
            if self.shared.monitor.stop() {
                return Err(Error::Interrupted);
            }
            let bytes = match self.shared.source.chunk(PackKind::Data, &id) {
                Ok(bytes) => bytes,
                Err(e) if e.is_damage() => {
                    got.insert(id, Got::Lost(cause(&e)));
                    continue;
                }
                Err(e) => return Err(e.into()),
            };
            let name = self.store(&bytes)?;
            let len = bytes.len() as u64;
            let mut known = self.shared.known();
            if known.len() >= KNOWN_MAX {
                known.clear();
            }
            known.insert(id, (name, bytes.len() as u32));
            got.insert(id, Got::Stored(name, len, wants_bytes.then_some(bytes)));
        }
        Ok(got)
    }

    /// Store a chunk unless the target has it.
    fn store(&mut self, chunk: &[u8]) -> Result<ChunkId> {
        let counters = self.shared.monitor.counters();
        add(&counters.bytes_read, chunk.len() as u64);
        add(&counters.chunks, 1);
        let id = ChunkId(self.shared.target_ids.id(chunk));
        if self.shared.session.index().claim(&id)? {
            add(&counters.bytes_new, chunk.len() as u64);
            add(&counters.chunks_new, 1);
            if self.block.raw.len() + chunk.len() > self.shared.block_bytes {
                self.store_block()?;
            }
            self.block.push(id, chunk);
        }
        Ok(id)
    }

    fn store_block(&mut self) -> Result<()> {
        let start = Instant::now();
        let coding = self.shared.level.coding();
        let appended = self.shared.session.data.append(&mut self.block, &mut self.coder, coding)?;
        add(&self.shared.monitor.counters().bytes_stored, appended.bytes);
        self.shared.level.learn(start, appended.waited);
        Ok(())
    }
}

/// Why the source doesn't have a chunk.
fn cause(error: &RepoError) -> String {
    format!("in the source: {error}")
}
