//! A worker: takes entries from the source to sealed blocks, all the way, so that a small file is handed over once.

use super::ahead::{self, Ahead, Found};
use super::big::Pieces;
use super::job::{Batch, Done, Entry, Finished, Job};
use super::level::Level;
use super::racy::{mapped, racy};
use crate::convert;
use crate::latency::Latency;
use crate::lock::lock;
use crate::monitor::{Change, Counters, Monitor, Problem, ProblemKind, add};
use crate::{Error, Result};
use crossbeam_channel::{Receiver, Sender, select};
use drumlin_chunk::Chunker;
use drumlin_format::ChunkId;
use drumlin_format::tree::{Content, Data, Kind, List, Meta, Ref, marks};
use drumlin_host::meta::{Extras, Stat};
use drumlin_host::read::{self, Had};
use drumlin_repo::WriteSession;
use drumlin_repo::pack::{BlockBuilder, Coder, Coding};
use drumlin_repo::tree::{ListWriter, Nodes};
use drumlin_seal::IdKey;
use std::collections::HashMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What all workers share.
pub(super) struct Shared<'a> {
    pub session: Arc<WriteSession>,
    pub data_ids: Arc<IdKey>,
    pub tree_ids: Arc<IdKey>,
    pub chunker: Chunker,
    pub level: Level,
    pub monitor: &'a dyn Monitor,
    pub reader: Arc<drumlin_repo::pack::Reader>,
    pub block_bytes: usize,
    /// Files up to this size are one chunk.
    pub single_bytes: u64,
    pub workers: usize,
    /// What is too long for an open.
    pub late: Duration,
    /// Contents of files with several hard links, so that each is read once.
    pub links: Mutex<HashMap<(u64, u64), Linked>>,
    pub pieces: Pieces,
    /// Why chunks of some piece, which others may refer to by now, are not stored: who waited for the piece may be
    /// gone, and the run may go on without that file.
    pub lost: Mutex<Option<String>>,
    /// The run has failed: what is still under way is for nobody.
    pub has_failed: AtomicBool,
}

impl Shared<'_> {
    /// Whether whatever is at work shall end: somebody wants that, or the run has failed.
    pub fn is_over(&self) -> bool {
        self.monitor.stop() || self.has_failed.load(Ordering::Relaxed)
    }

    /// Fails if chunks that were claimed are stored nowhere: before anything that may refer to them is put.
    pub fn refuse_lost(&self) -> Result<()> {
        let lost = lock(&self.lost);
        match &*lost {
            Some(cause) => Err(Error::Repo(drumlin_repo::Error::Unwritten(cause.clone()))),
            None => Ok(()),
        }
    }

    /// Remember that chunks which were claimed are not stored, and why.
    pub fn lose(&self, cause: &Error) {
        let mut lost = lock(&self.lost);
        lost.get_or_insert_with(|| cause.to_string());
    }
}

/// What was read of a file with several hard links.
#[derive(Clone)]
pub(super) struct Linked {
    stat: Stat,
    content: Content,
    marks: u8,
}

/// Beyond that many the table starts afresh: a file is then read again, nothing more.
const LINKS_MAX: usize = 16 << 10;
/// What has attributes of more bytes than that isn't kept in it: it is read again for each of its names.
const LINK_BYTES_MAX: usize = 16 << 10;
/// Files up to this size are read whole by one worker; larger ones are shared out in pieces.
pub(super) const WHOLE_BYTES_MAX: u64 = 2 << 20;
/// A file that keeps changing is read again so often, in the hope of a moment of rest.
const ATTEMPTS: usize = 2;
/// The kernel takes a lease away from a holder that doesn't give it back, by default after 45 seconds.
const LEASE: Duration = Duration::from_secs(60);
/// How often to look whether it is given back.
const LEASE_LOOK: Duration = Duration::from_millis(20);

/// The number under which a failure outside of any batch is told.
pub(super) const NO_BATCH: u64 = u64::MAX;

/// One of the worker threads.
pub(super) struct Worker<'a, 'm> {
    pub(super) shared: &'a Shared<'m>,
    block: BlockBuilder,
    coder: Coder,
    file: Vec<u8>,
    /// Made for the first long chunk list.
    nodes: Option<Nodes>,
    latency: Latency,
}

impl<'a, 'm> Worker<'a, 'm> {
    pub fn new(shared: &'a Shared<'m>) -> Result<Self> {
        let coder = Coder::new().map_err(Error::system("set up zstd"))?;
        let block = BlockBuilder::with_capacity(shared.block_bytes);
        Ok(Worker { shared, block, coder, file: Vec::new(), nodes: None, latency: Latency::new(shared.late) })
    }

    /// Work until there is no more. A failure ends the whole run: it is sent as the batch's outcome.
    pub fn run(mut self, jobs: &Receiver<Job>, done: &Sender<Done>) {
        let pieces = self.shared.pieces.waiting();
        loop {
            // Pieces first: somebody waits for them.
            if let Ok(piece) = pieces.try_recv() {
                piece.process(&mut self);
                continue;
            }
            select! {
                recv(pieces) -> piece => if let Ok(piece) = piece { piece.process(&mut self) },
                recv(jobs) -> job => match job {
                    Ok(Job::Batch(number, entries)) => {
                        let outcome = self.batch(entries);
                        let _ = done.send((number, outcome));
                    }
                    Ok(Job::Stream(number, name, source)) => {
                        let outcome = self.stream(name, source);
                        let _ = done.send((number, outcome.map(|f| Batch { entries: vec![Some(f)], cut_short: false })));
                    }
                    Ok(Job::Flush(barrier)) => {
                        if let Err(e) = self.flush() {
                            let _ = done.send((NO_BATCH, Err(e)));
                        }
                        barrier.wait();
                    }
                    Err(_) => return,
                }
            }
        }
    }

    fn counters(&self) -> &Counters {
        self.shared.monitor.counters()
    }

    fn batch(&mut self, entries: Vec<Entry>) -> Result<Batch> {
        let mut finished = Vec::with_capacity(entries.len());
        let (mut rest, mut ahead) = (entries.into_iter(), None);
        loop {
            if ahead.is_none() && self.latency.is_late() && !self.shared.is_over() {
                ahead = Some(ahead::read(rest.as_slice(), &mut self.latency).into_iter());
            }
            let Some(entry) = rest.next() else { break };
            let read = ahead.as_mut().and_then(|ahead| ahead.next().flatten());
            let outcome = if self.shared.is_over() { Err(Error::Interrupted) } else { self.entry(entry, read) };
            match outcome {
                Ok(entry) => finished.push(entry),
                Err(Error::Interrupted) => return Ok(Batch { entries: finished, cut_short: true }),
                Err(e) => return Err(e),
            }
        }
        self.latency.settle();
        Ok(Batch { entries: finished, cut_short: false })
    }

    /// `None` for an entry that vanished.
    fn entry(&mut self, mut entry: Entry, ahead: Option<Ahead>) -> Result<Option<Finished>> {
        let read = match ahead {
            Some(Ahead::File(found)) => self.file_read_ahead(&entry, found)?,
            Some(Ahead::Other(had, at)) => self.other_entry(&entry, had, at),
            None if entry.stat.kind == drumlin_host::meta::Kind::File => self.file_entry(&mut entry)?,
            None => {
                let (start, at) = (Instant::now(), SystemTime::now());
                let had = entry.dir.extras(&entry.name, entry.stat.kind);
                self.latency.note(1, start.elapsed());
                self.other_entry(&entry, had, at)
            }
        };
        let Some((content, found)) = read else { return Ok(None) };
        let counters = self.counters();
        add(if entry.known { &counters.changed } else { &counters.new }, 1);
        if self.shared.monitor.wants_entries() {
            let change = if entry.known { Change::Changed } else { Change::New };
            self.shared.monitor.entry(change, &path(&entry));
        }
        let mut meta = convert::meta(&entry.stat, entry.filesystem);
        meta.marks = found;
        count(counters, &meta);
        Ok(Some(Finished { key: entry.key, name: entry.name, meta, content }))
    }

    fn other_entry(&mut self, entry: &Entry, had: std::io::Result<Had>, at: SystemTime) -> Option<(Content, u8)> {
        use drumlin_host::meta::Kind;
        match had {
            Ok(had) if entry.stat.kind == Kind::Symlink && had.extras.target.is_empty() => {
                self.problem(entry, ProblemKind::Unreadable, "a symbolic link that leads nowhere");
                None
            }
            Ok(had) => {
                let found = racy(&entry.stat, at) | self.attributes_lost(entry, had.lost);
                Some((content(had.extras, Data::None), found))
            }
            Err(e) => {
                // Asked for the target of something that is no symlink, the system finds the question invalid.
                let gone = read::is_gone(&e) || entry.stat.kind == Kind::Symlink && e.kind() == ErrorKind::InvalidInput;
                self.problem(entry, if gone { ProblemKind::Vanished } else { ProblemKind::Unreadable }, &e.to_string());
                // What was in a directory may be in the tree by now, and needs its place there. A symlink without its
                // target is nothing; anything else that is there is worth having without its attributes, until the next
                // run asks for them again.
                let worth = if gone { entry.stat.kind == Kind::Dir } else { entry.stat.kind != Kind::Symlink };
                worth.then(|| (Content::default(), marks::RACY))
            }
        }
    }

    /// Tell that attributes could not be had. Gives the mark that makes the next run ask for them again.
    fn attributes_lost(&self, entry: &Entry, lost: Option<std::io::Error>) -> u8 {
        let Some(e) = lost else { return 0 };
        let cause = match e.kind() {
            ErrorKind::ArgumentListTooLong => {
                let most = read::ATTRS_BYTES_MAX >> 20;
                format!("its extended attributes are too long, or more than {most} MiB together: some are left out")
            }
            _ => format!("its attributes: {e}"),
        };
        self.problem(entry, ProblemKind::Unreadable, &cause);
        marks::RACY
    }

    fn problem(&self, entry: &Entry, kind: ProblemKind, cause: &str) {
        let counters = self.counters();
        add(
            match kind {
                ProblemKind::Vanished => &counters.vanished,
                ProblemKind::ChangedWhileRead => &counters.changed_while_read,
                _ => &counters.unreadable,
            },
            1,
        );
        self.shared.monitor.problem(&Problem { path: path(entry), kind, cause: cause.into() });
    }

    fn file_read_ahead(&mut self, entry: &Entry, found: Found) -> Result<Option<(Content, u8)>> {
        let mut bytes = &found.bytes[..];
        let mut from_memory = |to: &mut Vec<u8>, most: usize| {
            let (now, rest) = bytes.split_at(most.min(bytes.len()));
            to.extend_from_slice(now);
            bytes = rest;
            Ok(now.len())
        };
        let data = match self.whole(entry.stat.size, &mut from_memory) {
            Ok((data, _)) => data,
            Err(Read1::Fatal(e)) => return Err(e),
            Err(Read1::Source(e)) => return Err(Error::system("read memory")(e)),
        };
        let lost = self.attributes_lost(entry, found.had.lost);
        let marks = found.mapped | racy(&entry.stat, found.at) | lost;
        Ok(Some((content(found.had.extras, data), marks)))
    }

    fn file_entry(&mut self, entry: &mut Entry) -> Result<Option<(Content, u8)>> {
        let link = (entry.stat.nlink > 1).then_some((entry.stat.dev, entry.stat.ino));
        if let Some(link) = link
            && let Some(known) = self.links().get(&link)
            && known.stat == entry.stat
        {
            return Ok(Some((known.content.clone(), known.marks)));
        }
        let file = match self.open(entry) {
            Ok(file) => file,
            // It is waited for, and the run shall stop.
            Err(e) if e.kind() == ErrorKind::WouldBlock && self.shared.is_over() => {
                return Err(Error::Interrupted);
            }
            Err(e) if read::is_gone(&e) => {
                self.problem(entry, ProblemKind::Vanished, &e.to_string());
                return Ok(None);
            }
            Err(e) => {
                self.problem(entry, ProblemKind::Unreadable, &e.to_string());
                return Ok(Some((Content::default(), marks::CONTENTS_MISSING)));
            }
        };
        let Some((data, mut found)) = self.contents(entry, &file)? else { return Ok(None) };
        let had = read::extras_of_fd(&file);
        found |= self.attributes_lost(entry, had.lost);
        let content = content(had.extras, data);
        // Of one that could not be read each name is told.
        if let Some(link) = link.filter(|_| found & marks::CONTENTS_MISSING == 0 && content.weight() <= LINK_BYTES_MAX)
        {
            let mut links = self.links();
            if links.len() >= LINKS_MAX {
                links.clear();
            }
            links.insert(link, Linked { stat: entry.stat, content: content.clone(), marks: found });
        }
        Ok(Some((content, found)))
    }

    /// Open a file; one that somebody holds under a lease (a Samba or NFS server does, for its clients) is waited for.
    fn open(&mut self, entry: &Entry) -> std::io::Result<File> {
        let start = Instant::now();
        loop {
            match entry.dir.open_file(&entry.name) {
                Err(e) if e.kind() == ErrorKind::WouldBlock && start.elapsed() < LEASE && !self.shared.is_over() => {
                    std::thread::sleep(LEASE_LOOK);
                }
                opened => {
                    self.latency.note(1, start.elapsed());
                    return opened;
                }
            }
        }
    }

    fn links(&self) -> std::sync::MutexGuard<'a, HashMap<(u64, u64), Linked>> {
        lock(&self.shared.links)
    }

    /// Read a file's contents; `entry.stat` becomes that of the state that was read.
    fn contents(&mut self, entry: &mut Entry, mut file: &File) -> Result<Option<(Data, u8)>> {
        let mut changed = false;
        for _ in 0..ATTEMPTS {
            // Before the first byte: what changes after that, within the tick of the clock that stamped the state
            // before, bears the same time.
            let (at, mapped) = (SystemTime::now(), mapped(file, &entry.stat));
            let (read, after) = if entry.stat.size == 0 && !read::knows_its_length(file) {
                (self.large_stream(&mut file), read::restat(file))
            } else if entry.stat.size <= WHOLE_BYTES_MAX && !is_sparse(&entry.stat, file) {
                let mut from_file = |to: &mut Vec<u8>, most| read::append(file, to, most);
                (self.whole(entry.stat.size, &mut from_file), read::restat(file))
            } else {
                (self.large(entry, file), read::restat(file))
            };
            if after.as_ref().is_ok_and(|after| after.kind != entry.stat.kind) {
                self.problem(entry, ProblemKind::Vanished, "something else took its place");
                return Ok(None);
            }
            let (data, len, after) = match (read, after) {
                (Err(Read1::Fatal(e)), _) => return Err(e),
                (Err(Read1::Source(e)), _) | (_, Err(e)) => {
                    self.problem(entry, ProblemKind::Unreadable, &e.to_string());
                    return Ok(Some((Data::None, marks::CONTENTS_MISSING)));
                }
                (Ok((data, len)), Ok(after)) => (data, len, after),
            };
            let same =
                after.size == entry.stat.size && after.mtime == entry.stat.mtime && after.ctime == entry.stat.ctime;
            if same && entry.stat.size == 0 {
                // Nothing, or all that there is of what doesn't know its length.
                entry.stat.size = len;
            }
            if same && len == entry.stat.size {
                return Ok(Some((data, mapped | racy(&entry.stat, at))));
            }
            // The first difference may have come between the walk and the reading: then a second look settles it.
            if changed || entry.stat.size > WHOLE_BYTES_MAX {
                self.problem(entry, ProblemKind::ChangedWhileRead, "it changed while it was read");
                entry.stat.size = len;
                return Ok(Some((data, marks::CHANGED_WHILE_READ | mapped | racy(&entry.stat, at))));
            }
            changed = true;
            // A link that came since has no place in the count of file systems, which tells links of one from
            // another's.
            let nlink = if entry.stat.nlink > 1 { after.nlink } else { entry.stat.nlink };
            entry.stat = Stat { nlink, ..after };
            if let Err(e) = file.rewind() {
                self.problem(entry, ProblemKind::Unreadable, &e.to_string());
                return Ok(Some((Data::None, marks::CONTENTS_MISSING)));
            }
            if after.size > WHOLE_BYTES_MAX {
                // Grown out of this path: read as the large file that it is now.
                changed = false;
            }
        }
        self.problem(entry, ProblemKind::ChangedWhileRead, "it changed while it was read");
        Ok(Some((Data::None, marks::CONTENTS_MISSING | marks::CHANGED_WHILE_READ)))
    }

    /// A file that fits into memory. Gives its data and its length.
    fn whole(&mut self, size: u64, source: &mut Source) -> std::result::Result<(Data, u64), Read1> {
        if size == 0 {
            return Ok((Data::None, 0));
        }
        if size <= self.shared.single_bytes {
            return self.single(size as usize, source);
        }
        let mut file = std::mem::take(&mut self.file);
        file.clear();
        let len = source(&mut file, size as usize).map_err(Read1::Source);
        let data = len.and_then(|len| {
            add(&self.counters().bytes_read, len as u64);
            self.cut(&file).map_err(Read1::Fatal)
        });
        let len = file.len() as u64;
        self.file = file;
        Ok((data?, len))
    }

    /// A file of one chunk, read straight into the block.
    fn single(&mut self, size: usize, source: &mut Source) -> std::result::Result<(Data, u64), Read1> {
        if self.block.raw.len() + size > self.shared.block_bytes {
            self.store_block().map_err(Read1::Fatal)?;
        }
        let start = self.block.raw.len();
        let len = source(&mut self.block.raw, size).map_err(|e| {
            self.block.raw.truncate(start);
            Read1::Source(e)
        })?;
        add(&self.counters().bytes_read, len as u64);
        if len == 0 {
            return Ok((Data::None, 0));
        }
        let id = ChunkId(self.shared.data_ids.id(&self.block.raw[start..]));
        add(&self.counters().chunks, 1);
        match self.shared.session.index().claim(&id) {
            Ok(true) => {
                self.block.chunks.push((id, len as u32));
                add(&self.counters().bytes_new, len as u64);
                add(&self.counters().chunks_new, 1);
            }
            Ok(false) => self.block.raw.truncate(start),
            Err(e) => {
                self.block.raw.truncate(start);
                return Err(Read1::Fatal(e.into()));
            }
        }
        Ok((Data::Chunk(id), len as u64))
    }

    fn cut(&mut self, bytes: &[u8]) -> Result<Data> {
        let mut refs = Vec::new();
        for chunk in self.shared.chunker.chunks(bytes) {
            refs.push(Ref::Chunk { id: self.store(chunk)?, len: chunk.len() as u64 });
        }
        match refs[..] {
            [] => Ok(Data::None),
            [Ref::Chunk { id, .. }] => Ok(Data::Chunk(id)),
            _ => Ok(Data::List(self.list(refs, self.shared.data_ids.id(bytes))?)),
        }
    }

    fn list(&mut self, refs: Vec<Ref>, whole: [u8; 32]) -> Result<List> {
        let mut list = ListWriter::default();
        let nodes = self.nodes()?;
        refs.into_iter().try_for_each(|r| list.push(nodes, r))?;
        Ok(list.finish(nodes, whole)?)
    }

    /// Where long chunk lists go.
    pub fn nodes(&mut self) -> Result<&mut Nodes> {
        if self.nodes.is_none() {
            self.nodes = Some(Nodes::new(self.shared.session.clone(), self.shared.tree_ids.clone())?);
        }
        Ok(self.nodes.as_mut().expect("made above"))
    }

    /// Store a chunk unless somebody has.
    fn store(&mut self, chunk: &[u8]) -> Result<ChunkId> {
        let (id, new) = self.claim(chunk)?;
        if new {
            self.gather(id, chunk)?;
        }
        Ok(id)
    }

    /// A chunk's name, and whether it falls to this worker to store it.
    pub fn claim(&mut self, chunk: &[u8]) -> Result<(ChunkId, bool)> {
        let id = ChunkId(self.shared.data_ids.id(chunk));
        let counters = self.counters();
        add(&counters.chunks, 1);
        let new = self.shared.session.index().claim(&id)?;
        if new {
            add(&counters.bytes_new, chunk.len() as u64);
            add(&counters.chunks_new, 1);
        }
        Ok((id, new))
    }

    /// Put a chunk into the block at hand.
    pub fn gather(&mut self, id: ChunkId, chunk: &[u8]) -> Result<()> {
        if self.block.raw.len() + chunk.len() > self.shared.block_bytes {
            self.store_block()?;
        }
        self.block.push(id, chunk);
        Ok(())
    }

    fn store_block(&mut self) -> Result<()> {
        let mut block = std::mem::take(&mut self.block);
        let stored = self.store_chunks(&block.raw, &block.chunks);
        block.clear();
        self.block = block;
        stored
    }

    /// Store chunks that stand one behind the other, as a block of their own.
    pub fn store_chunks(&mut self, raw: &[u8], chunks: &[(ChunkId, u32)]) -> Result<()> {
        let start = Instant::now();
        // Whoever wants to end wants to end now.
        let coding = match self.shared.level.coding() {
            Coding::Zstd(_) | Coding::Best(_) if self.shared.monitor.stop() => Coding::Zstd(1),
            coding => coding,
        };
        let appended = self.shared.session.data.append_chunks(raw, chunks, &mut self.coder, coding)?;
        add(&self.counters().bytes_stored, appended.bytes);
        self.shared.level.learn(start, appended.waited);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.store_block()?;
        match &mut self.nodes {
            Some(nodes) => Ok(nodes.flush()?),
            None => Ok(()),
        }
    }

    fn stream(&mut self, name: Box<[u8]>, mut source: Box<dyn Read + Send>) -> Result<Finished> {
        let (data, len) = match self.large_stream(&mut source) {
            Ok(read) => read,
            Err(Read1::Fatal(e)) => return Err(e),
            Err(Read1::Source(e)) => return Err(Error::Stream(format!("the stream could not be read: {e}"))),
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = drumlin_format::tree::Time { sec: now.as_secs() as i64, nsec: now.subsec_nanos() };
        let (uid, gid) = drumlin_host::process::owner();
        let meta = Meta {
            kind: Kind::File,
            mode: 0o600,
            marks: 0,
            uid,
            gid,
            size: len,
            mtime: time,
            ctime: time,
            btime: None,
            ino: 0,
            nlink: 1,
            filesystem: 0,
            rdev: 0,
        };
        count(self.counters(), &meta);
        add(&self.counters().new, 1);
        Ok(Finished { key: Arc::from([]), name, meta, content: Content { data, ..Content::default() } })
    }
}

/// Appends up to so many of a file's bytes to what is there; fewer only at its end. Gives how many.
type Source<'s> = dyn FnMut(&mut Vec<u8>, usize) -> std::io::Result<usize> + 's;

/// Why a file's bytes were not had.
pub(super) enum Read1 {
    /// The source: a matter of this entry.
    Source(std::io::Error),
    /// The repository: the end of the run.
    Fatal(Error),
}

/// Count an entry dealt with.
pub(super) fn count(counters: &Counters, meta: &Meta) {
    add(&counters.entries, 1);
    match meta.kind {
        Kind::File => {
            add(&counters.files, 1);
            add(&counters.bytes, meta.size);
        }
        Kind::Dir => add(&counters.dirs, 1),
        _ => {}
    }
}

/// Whether a file has holes worth keeping. What can't be told is read as if it had.
pub(super) fn is_sparse(stat: &Stat, file: &File) -> bool {
    may_have_holes(stat) && read::is_sparse(file, stat.size).unwrap_or(true)
}

/// Whether a file takes so much less space than it is long that it may have holes worth keeping.
pub(super) fn may_have_holes(stat: &Stat) -> bool {
    stat.blocks * 512 + 4096 <= stat.size
}

fn content(extras: Extras, data: Data) -> Content {
    Content { data, target: extras.target, xattrs: extras.xattrs.into(), flags: extras.flags }
}

fn path(entry: &Entry) -> Vec<u8> {
    let mut path = Vec::new();
    entry.dir.path_of(&entry.name, &mut path);
    path
}
