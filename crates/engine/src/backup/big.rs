//! Large files and streams: one worker reads and cuts, all of them hash, store and compress the pieces.
//!
//! Where a file has an older version, its next old chunk is tried first, by its hash; only a miss sends the chunker
//! over it, and where the old version's positions fit again the trial goes on.

use super::job::Entry;
use super::worker::{Read1, Worker, may_have_holes};
use crate::Error;
use crate::holes::Holes;
use crate::lock::lock;
use crate::monitor::add;
use crossbeam_channel::{Receiver, Sender, bounded, select, unbounded};
use drumlin_format::ChunkId;
use drumlin_format::tree::{Data, Ref};
use drumlin_host::read;
use drumlin_repo::tree::{ListWriter, Refs};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

/// Bytes of a piece: a few dozen chunks.
const PIECE_BYTES: usize = 2 << 20;
/// Bytes that are read at once and hashed while a core's own cache still has them.
const READ_BYTES: usize = 256 << 10;

/// Stretches between holes of up to so many bytes go into one piece together: an image may have hundreds of thousands.
const SHORT_BYTES: u64 = 256 << 10;
/// So many chunks and holes of them.
const SHORT_PARTS_MAX: usize = 4096;

/// What the system is told to read before it is asked for: so much at once that a disk with one head, on which the
/// repository may be as well, is seldom sent to and fro (`bench/spindle`).
const AHEAD_BYTES: u64 = 8 << 20;

/// Chunks on their way to whoever has time.
pub(super) struct Piece {
    number: u64,
    bytes: Buffer,
    parts: Vec<Part>,
    reply: Sender<Reply>,
}

/// Memory for a piece: zeroed once, then used again and again.
type Buffer = Box<[u8]>;

/// The pieces of all large files that are read at the time.
pub(super) struct Pieces {
    waiting: (Sender<Piece>, Receiver<Piece>),
    workers: usize,
    /// How many are out, of all files.
    out: AtomicUsize,
    /// Of a buffer: some chunks, as large as they come, fit into one.
    bytes: usize,
    /// Buffers that wait to be used again.
    spare: Mutex<Vec<Buffer>>,
}

impl Pieces {
    pub fn new(workers: usize, chunk_max: usize) -> Self {
        let bytes = PIECE_BYTES.max(4 * chunk_max);
        Pieces { waiting: unbounded(), workers, out: AtomicUsize::new(0), bytes, spare: Mutex::default() }
    }

    /// Pieces that nobody has taken yet.
    pub fn waiting(&self) -> &Receiver<Piece> {
        &self.waiting.1
    }

    /// How many pieces one file may have out: as many as there are workers, so that each can have one; where many files
    /// are read, as many together as keep all workers busy, or memory would grow by the square of the workers.
    fn room(&self) -> usize {
        if self.out.load(Ordering::Relaxed) > 2 * self.workers { 1 } else { self.workers }
    }

    fn buffer(&self) -> Buffer {
        let spare = self.lock().pop();
        spare.unwrap_or_else(|| vec![0; self.bytes].into())
    }

    fn give_back(&self, buffer: Buffer) {
        let mut spare = self.lock();
        if spare.len() < self.workers + 2 {
            spare.push(buffer);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Buffer>> {
        lock(&self.spare)
    }
}

/// A part of a file on its way.
enum Part {
    Cut(Cut),
    /// A hole of so many bytes.
    Hole(u64),
}

struct Cut {
    start: usize,
    len: usize,
    /// Already known to be stored: a trial succeeded.
    id: Option<ChunkId>,
}

struct Reply {
    number: u64,
    bytes: Buffer,
    refs: crate::Result<Vec<Ref>>,
}

impl Piece {
    /// Hash and store its chunks, and tell their names.
    pub fn process(self, worker: &mut Worker) {
        let refs = self.store(worker);
        if let Err(e) = &refs
            && !matches!(e, Error::Interrupted)
        {
            worker.shared.lose(e);
        }
        // Whoever asked may be gone: if the run has failed, and also if the file could not be read to its end, or
        // somebody wants to stop.
        let _ = self.reply.send(Reply { number: self.number, bytes: self.bytes, refs });
    }

    fn store(&self, worker: &mut Worker) -> crate::Result<Vec<Ref>> {
        let mut refs = Vec::with_capacity(self.parts.len());
        let mut run = Run::default();
        for part in &self.parts {
            let cut = match part {
                Part::Cut(cut) => cut,
                Part::Hole(len) => {
                    refs.push(Ref::Hole { len: *len });
                    continue;
                }
            };
            if worker.shared.is_over() {
                // What was claimed has to be stored: others may refer to it by now.
                run.store(&self.bytes, worker)?;
                return Err(Error::Interrupted);
            }
            let (id, new) = match cut.id {
                Some(id) => (id, false),
                None => worker.claim(&self.bytes[cut.start..cut.start + cut.len])?,
            };
            if !new || run.len + cut.len > worker.shared.block_bytes {
                run.store(&self.bytes, worker)?;
            }
            if new {
                run.push(id, cut);
            }
            refs.push(Ref::Chunk { id, len: cut.len as u64 });
        }
        run.store(&self.bytes, worker)?;
        Ok(refs)
    }
}

/// New chunks that stand one behind the other. Where they fill most of a block they become one as they are.
#[derive(Default)]
struct Run {
    start: usize,
    len: usize,
    chunks: Vec<(ChunkId, u32)>,
}

impl Run {
    fn push(&mut self, id: ChunkId, cut: &Cut) {
        if self.chunks.is_empty() {
            self.start = cut.start;
        }
        self.len += cut.len;
        self.chunks.push((id, cut.len as u32));
    }

    fn store(&mut self, bytes: &[u8], worker: &mut Worker) -> crate::Result<()> {
        let bytes = &bytes[self.start..self.start + self.len];
        if self.len >= worker.shared.block_bytes / 4 * 3 {
            worker.store_chunks(bytes, &self.chunks)?;
        } else {
            let mut rest = bytes;
            for (id, len) in &self.chunks {
                let (chunk, behind) = rest.split_at(*len as usize);
                worker.gather(*id, chunk)?;
                rest = behind;
            }
        }
        self.len = 0;
        self.chunks.clear();
        Ok(())
    }
}

/// What the old version of a file had, from some position on.
#[derive(Default)]
struct Trial<'a> {
    refs: Option<Refs<'a>>,
    next: Option<Ref>,
    /// What comes behind that.
    then: Option<Ref>,
    at: u64,
}

impl<'a> Trial<'a> {
    fn of(mut refs: Refs<'a>) -> Self {
        let mut next = || refs.next().and_then(Result::ok);
        let (next, then) = (next(), next());
        Trial { refs: Some(refs), next, then, at: 0 }
    }

    /// The old chunk that began at this position. One that ended with the old file, or before a hole of it, did so not
    /// because of what the contents say: it is no cut to go by.
    fn at(&mut self, position: u64) -> Option<(ChunkId, usize)> {
        while self.at < position || matches!(self.next, Some(Ref::Hole { .. })) {
            self.at += self.next?.len();
            self.next = self.then.take();
            // Damage in the old list costs the trial, not the backup.
            self.then = self.refs.as_mut()?.next().and_then(Result::ok);
        }
        match (self.next?, self.then?) {
            (Ref::Chunk { id, len }, Ref::Chunk { .. }) if self.at == position => Some((id, len as usize)),
            _ => None,
        }
    }
}

/// One file on its way: pieces that are out, refs that are in.
struct Flow<'w, 'a, 'm> {
    worker: &'w mut Worker<'a, 'm>,
    list: ListWriter,
    /// Up to two refs are held back: a file of one chunk has no list.
    first: Vec<Ref>,
    hasher: drumlin_seal::Hasher,
    holes: Holes,
    reply: (Sender<Reply>, Receiver<Reply>),
    next_out: u64,
    next_in: u64,
    /// Stretches that come after pieces still out: holes wait their turn.
    arrived: VecDeque<(u64, Vec<Ref>)>,
    out: usize,
    len: u64,
    /// Short stretches, and the holes between them, that wait for more.
    short: Option<Short>,
}

/// Short stretches of a file, one behind the other.
struct Short {
    bytes: Buffer,
    filled: usize,
    parts: Vec<Part>,
}

impl Drop for Flow<'_, '_, '_> {
    /// A file that failed leaves pieces behind that nobody waits for.
    fn drop(&mut self) {
        self.worker.shared.pieces.out.fetch_sub(self.out, Ordering::Relaxed);
    }
}

impl<'a, 'm> Worker<'a, 'm> {
    /// A large file, its holes kept.
    pub(super) fn large(&mut self, entry: &Entry, file: &File) -> Result<(Data, u64), Read1> {
        let shared = self.shared;
        let size = entry.stat.size;
        let mut trial = Trial::default();
        if let Some(Data::List(list)) = &entry.old {
            trial = Trial::of(Refs::new(&shared.reader, list));
        }
        let mut flow = Flow::new(self);
        if !may_have_holes(&entry.stat) {
            flow.stretch(&mut FileAt::new(file, 0, size), size, &mut trial)?;
            return flow.finish();
        }
        let mut at = 0;
        for range in read::data_ranges(file.as_fd(), size) {
            let (start, end) = range.map_err(Read1::Source)?;
            flow.hole(start - at)?;
            flow.stretch(&mut FileAt::new(file, start, end), end - start, &mut trial)?;
            at = end;
            if flow.len < at {
                // It shrank while it was read.
                return flow.finish();
            }
        }
        flow.hole(size - at)?;
        flow.finish()
    }

    /// A stream of unknown length.
    pub(super) fn large_stream(&mut self, source: &mut dyn Read) -> Result<(Data, u64), Read1> {
        let mut flow = Flow::new(self);
        flow.stretch(source, u64::MAX, &mut Trial::default())?;
        flow.finish()
    }
}

impl<'w, 'a, 'm> Flow<'w, 'a, 'm> {
    fn new(worker: &'w mut Worker<'a, 'm>) -> Self {
        let hasher = worker.shared.data_ids.hasher();
        let out_max = worker.shared.workers + 1;
        Flow {
            worker,
            list: ListWriter::default(),
            first: Vec::new(),
            hasher,
            holes: Holes::default(),
            reply: bounded(out_max + 1),
            next_out: 0,
            next_in: 0,
            arrived: VecDeque::new(),
            out: 0,
            len: 0,
            short: None,
        }
    }

    /// Read and cut up to `len` bytes.
    fn stretch(&mut self, source: &mut dyn Read, len: u64, trial: &mut Trial) -> Result<(), Read1> {
        if len <= SHORT_BYTES {
            return self.short_stretch(source, len as usize, trial);
        }
        self.send_short()?;
        let chunker = &self.worker.shared.chunker;
        let chunk_max = chunker.params().max as usize;
        let mut left = len;
        let pieces = &self.worker.shared.pieces;
        let mut bytes = pieces.buffer();
        // What was left over from the piece before stands at the start.
        let mut kept = 0;
        loop {
            let want = (bytes.len() - kept).min(usize::try_from(left).unwrap_or(usize::MAX));
            let got = self.read(source, &mut bytes[kept..kept + want])?;
            left -= got as u64;
            let end = got < want || left == 0;
            let filled = kept + got;

            let mut cuts = Vec::with_capacity(64);
            let mut at = 0;
            while at < filled && (end || filled - at >= chunk_max) {
                let cut = self.cut(&bytes[..filled], at, trial);
                at += cut.len;
                cuts.push(Part::Cut(cut));
            }
            let mut next = pieces.buffer();
            kept = filled - at;
            next[..kept].copy_from_slice(&bytes[at..filled]);
            self.send(bytes, cuts)?;
            if end {
                pieces.give_back(next);
                return Ok(());
            }
            bytes = next;
        }
    }

    /// The same of a stretch that is all there is until the next hole, or the file's end.
    fn short_stretch(&mut self, source: &mut dyn Read, len: usize, trial: &mut Trial) -> Result<(), Read1> {
        let fits = |short: &Short| short.bytes.len() - short.filled >= len && short.parts.len() < SHORT_PARTS_MAX;
        if !self.short.as_ref().is_some_and(fits) {
            self.send_short()?;
        }
        let new = || Short { bytes: self.worker.shared.pieces.buffer(), filled: 0, parts: Vec::new() };
        let mut short = self.short.take().unwrap_or_else(new);
        let mut at = short.filled;
        short.filled += self.read(source, &mut short.bytes[at..at + len])?;
        while at < short.filled {
            let cut = self.cut(&short.bytes[..short.filled], at, trial);
            at += cut.len;
            short.parts.push(Part::Cut(cut));
        }
        self.short = Some(short);
        Ok(())
    }

    fn send_short(&mut self) -> Result<(), Read1> {
        self.short.take().map_or(Ok(()), |short| self.send(short.bytes, short.parts))
    }

    /// The next chunk, which begins at `at` and ends with the bytes at the latest.
    fn cut(&mut self, bytes: &[u8], at: usize, trial: &mut Trial) -> Cut {
        let rest = &bytes[at..];
        let known = trial
            .at(self.len)
            .filter(|(id, len)| *len <= rest.len() && self.worker.shared.data_ids.id(&rest[..*len]) == id.0);
        let (id, len) = match known {
            Some((id, len)) => (Some(id), len),
            None => (None, self.worker.shared.chunker.cut(rest)),
        };
        self.len += len as u64;
        Cut { start: at, len, id }
    }

    /// Read until `bytes` is full or the source ends, and hash what was read.
    fn read(&mut self, source: &mut dyn Read, bytes: &mut [u8]) -> Result<usize, Read1> {
        let mut got = 0;
        for part in bytes.chunks_mut(READ_BYTES) {
            if self.worker.shared.is_over() {
                return Err(Read1::Fatal(Error::Interrupted));
            }
            let len = fill(source, part).map_err(Read1::Source)?;
            self.hasher.update(&part[..len]);
            add(&self.worker.shared.monitor.counters().bytes_read, len as u64);
            got += len;
            if len < part.len() {
                break;
            }
        }
        Ok(got)
    }

    fn send(&mut self, bytes: Buffer, parts: Vec<Part>) -> Result<(), Read1> {
        let shared = self.worker.shared;
        if parts.is_empty() {
            shared.pieces.give_back(bytes);
            return Ok(());
        }
        let piece = Piece { number: self.next_out, bytes, parts, reply: self.reply.0.clone() };
        self.next_out += 1;
        self.out += 1;
        shared.pieces.out.fetch_add(1, Ordering::Relaxed);
        if shared.workers == 1 {
            piece.process(self.worker);
        } else {
            shared.pieces.waiting.0.send(piece).map_err(|_| Read1::Fatal(Error::Worker))?;
        }
        while self.out > shared.pieces.room() {
            self.take_or_help()?;
        }
        Ok(())
    }

    /// Wait for a piece, or process one oneself.
    fn take_or_help(&mut self) -> Result<(), Read1> {
        if let Ok(reply) = self.reply.1.try_recv() {
            return self.take(reply);
        }
        let shared = self.worker.shared;
        let mut reply = None;
        select! {
            recv(self.reply.1) -> r => reply = r.ok(),
            recv(shared.pieces.waiting()) -> piece => if let Ok(piece) = piece { piece.process(self.worker) },
        }
        reply.map_or(Ok(()), |r| self.take(r))
    }

    fn take(&mut self, reply: Reply) -> Result<(), Read1> {
        self.out -= 1;
        let pieces = &self.worker.shared.pieces;
        pieces.out.fetch_sub(1, Ordering::Relaxed);
        pieces.give_back(reply.bytes);
        let refs = reply.refs.map_err(Read1::Fatal)?;
        self.enter(reply.number, refs)
    }

    /// Refs become part of the list in the order of their numbers.
    fn enter(&mut self, number: u64, refs: Vec<Ref>) -> Result<(), Read1> {
        self.arrived.push_back((number, refs));
        while let Some(at) = self.arrived.iter().position(|(n, _)| *n == self.next_in) {
            let (_, refs) = self.arrived.swap_remove_back(at).expect("just found");
            self.next_in += 1;
            for r in refs {
                self.push_ref(r)?;
            }
        }
        Ok(())
    }

    fn push_ref(&mut self, r: Ref) -> Result<(), Read1> {
        if self.first.len() < 2 {
            self.first.push(r);
            if self.first.len() < 2 {
                return Ok(());
            }
            let first = self.first.clone();
            return first.into_iter().try_for_each(|r| self.push_list(r));
        }
        self.push_list(r)
    }

    fn push_list(&mut self, r: Ref) -> Result<(), Read1> {
        let nodes = self.worker.nodes().map_err(Read1::Fatal)?;
        self.list.push(nodes, r).map_err(|e| Read1::Fatal(e.into()))
    }

    fn hole(&mut self, len: u64) -> Result<(), Read1> {
        if len == 0 {
            return Ok(());
        }
        self.holes.add(self.worker.shared.reader.cache(), self.len, len);
        self.len += len;
        if let Some(short) = &mut self.short {
            short.parts.push(Part::Hole(len));
            return Ok(());
        }
        let number = self.next_out;
        self.next_out += 1;
        self.enter(number, vec![Ref::Hole { len }])
    }

    fn finish(mut self) -> Result<(Data, u64), Read1> {
        self.send_short()?;
        while self.out > 0 {
            self.take_or_help()?;
        }
        let data = match (self.first.len(), self.first.first()) {
            (0, _) => Data::None,
            (1, Some(Ref::Chunk { id, .. })) => Data::Chunk(*id),
            (count, _) => {
                if count == 1 {
                    self.push_list(self.first[0])?;
                }
                let read = std::mem::take(&mut self.holes).finish(&mut self.hasher);
                read.map_err(|e| Read1::Fatal(Error::system("read back what was put aside of a file")(e)))?;
                let whole = *self.hasher.finalize().as_bytes();
                let nodes = self.worker.nodes().map_err(Read1::Fatal)?;
                Data::List(std::mem::take(&mut self.list).finish(nodes, whole).map_err(|e| Read1::Fatal(e.into()))?)
            }
        };
        Ok((data, self.len))
    }
}

/// A file read from a position on, whatever its own position.
struct FileAt<'a> {
    file: &'a File,
    at: u64,
    end: u64,
    /// How far it was said that it will be read.
    ahead: u64,
}

impl<'a> FileAt<'a> {
    fn new(file: &'a File, at: u64, end: u64) -> Self {
        // What is read at once needs no hint.
        FileAt { file, at, end, ahead: if end - at > SHORT_BYTES { at } else { end } }
    }
}

impl Read for FileAt<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        // Never beyond what is data: of a file full of holes most would be asked for again and again.
        if self.at + AHEAD_BYTES / 4 >= self.ahead && self.ahead < self.end {
            let len = AHEAD_BYTES.min(self.end - self.ahead);
            read::expect(self.file, self.ahead, len);
            self.ahead += len;
        }
        let n = self.file.read_at(buf, self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

/// Read until the buffer is full or the source ends.
fn fill(source: &mut dyn Read, buf: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < buf.len() {
        match source.read(&mut buf[got..]) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(got)
}
