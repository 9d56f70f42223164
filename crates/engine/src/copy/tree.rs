//! One tree from the source to the target: what differs from the copy before goes to the workers, what is alike is
//! taken over.

use super::base::{Base, Part};
use super::build::{Builder, Entry, has_bytes, taken_over};
use super::pair::{Event, Found, Pair};
use super::worker::{Copied, Done, Job, NOT_WHOLE, Shared, Stored};
use crate::list::{Span, find_entry};
use crate::monitor::{Change, Monitor, add};
use crate::select::{TreePath, push_path};
use crate::{Error, Result};
use crossbeam_channel::{Receiver, Sender};
use drumlin_format::ChunkId;
use drumlin_format::snapshot::Root;
use drumlin_format::tree::{Data, Leaf, List, Meta, Ref};
use drumlin_repo::tree::{ListWriter, Refs};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Barrier};

/// A batch is handed over when it has so many entries...
const BATCH_ENTRIES: usize = 256;
/// ...or so many bytes of contents.
const BATCH_BYTES: u64 = 2 << 20;
/// Files with a list that is longer than this, or has nodes of its own, are copied in pieces.
const WHOLE_BYTES_MAX: u64 = 4 << 20;
/// Bytes and chunks of a piece.
const PIECE_BYTES: u64 = 2 << 20;
const PIECE_CHUNKS: usize = 1024;
/// So many entries may wait for their turn in the tree, of some 200 bytes each.
const WAITING_MAX: usize = 128 << 10;

/// Copies one tree.
pub(super) struct Copy<'a, 'm> {
    pub shared: &'a Shared<'m>,
    pub monitor: &'m dyn Monitor,
    /// The source's tree.
    pub root: Option<Root>,
    pub builder: Builder<'m>,
    pub jobs: Sender<Job>,
    pub done: Receiver<Done>,
    pub workers: usize,
    batch: Vec<Entry>,
    wanted: Vec<(Data, u64)>,
    batch_bytes: u64,
    next: u64,
    outstanding: usize,
    /// Pieces that have come before those in front of them.
    pieces: HashMap<u64, std::result::Result<Copied, String>>,
}

impl<'a, 'm> Copy<'a, 'm> {
    pub fn new(
        shared: &'a Shared<'m>,
        root: Option<Root>,
        builder: Builder<'m>,
        (jobs, done): (Sender<Job>, Receiver<Done>),
        workers: usize,
    ) -> Self {
        Copy {
            shared,
            monitor: shared.monitor,
            root,
            builder,
            jobs,
            done,
            workers,
            batch: Vec::new(),
            wanted: Vec::new(),
            batch_bytes: 0,
            next: 0,
            outstanding: 0,
            pieces: HashMap::new(),
        }
    }

    /// Copy all of it, beside the tree of an older snapshot of the source and its copy. Gives the new root.
    pub fn run(mut self, before: Option<(Option<Root>, Base)>) -> Result<Option<Root>> {
        let (old, mut base) = before.map_or((None, None), |(root, base)| (root, Some(base)));
        let mut pair = Pair::new(&self.shared.source, self.root, old, self.monitor);
        while let Some(event) = pair.next()? {
            if self.monitor.stop() {
                return Err(Error::Interrupted);
            }
            match (event, &mut base) {
                (Event::Same(span), Some(base)) => self.same(&span, base)?,
                // Without a base there is no other tree, and nothing is alike.
                (Event::Same(_), None) => return Err(Error::Worker),
                (Event::Entry(found), base) => self.entry(found, base.as_mut())?,
            }
        }
        self.hand_over()?;
        self.collect(0)?;
        let barrier = Arc::new(Barrier::new(self.workers + 1));
        for _ in 0..self.workers {
            self.jobs.send(Job::Flush(barrier.clone())).map_err(|_| Error::Worker)?;
        }
        barrier.wait();
        while let Ok(done) = self.done.try_recv() {
            self.take_in(done)?;
        }
        self.builder.finish()
    }

    /// A stretch that the copy before has as well.
    fn same(&mut self, span: &Span, base: &mut Base) -> Result<()> {
        while let Some(part) = base.part(span)? {
            if self.monitor.stop() {
                return Err(Error::Interrupted);
            }
            match part {
                Part::Leaf(child, leaf) => {
                    add(&self.monitor.counters().unmodified, leaf.len() as u64);
                    self.hand_over()?;
                    self.builder.leaf(child, leaf)?;
                    // Behind something that is waited for they stay in memory.
                    self.collect(4 * self.workers)?;
                }
                // The source may have been whole again since.
                Part::Missing(leaf, at) => self.again(&leaf, at)?,
                part => {
                    add(&self.monitor.counters().unmodified, 1);
                    if let Some(entry) = taken_over(part) {
                        self.put(entry)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn again(&mut self, leaf: &Arc<Leaf>, at: usize) -> Result<()> {
        let (dir, name, meta) = leaf.get(at);
        let found = find_entry(&self.shared.source, self.root, &TreePath::of(dir, name), |entry| {
            Ok((*entry.meta(), entry.content()?.clone()))
        });
        match found {
            Ok((meta, content)) => self.convert(leaf.clone(), at, meta, content),
            // What is damaged now was when it was copied.
            Err(Error::Repo(e)) if e.is_damage() => {
                let entry = Entry { awaited: true, ..Entry::ready(leaf.clone(), at, *meta, Default::default()) };
                self.settled(entry, Stored::Damaged(format!("in the source: {e}")))
            }
            Err(e) => Err(e),
        }
    }

    /// An entry that the copy before doesn't have, or not so.
    fn entry(&mut self, found: Found, base: Option<&mut Base>) -> Result<()> {
        let counters = self.monitor.counters();
        if self.monitor.wants_entries() {
            let mut path = Vec::new();
            let (dir, name) = found.key();
            push_path(dir, name, &mut path);
            self.monitor.entry(if found.known { Change::Changed } else { Change::New }, &path);
        }
        if found.known
            && let Some(base) = base
            && let Some(data) = base.data(found.key(), found.meta.size)?
        {
            add(&counters.changed, 1);
            let Found { leaf, at, meta, mut content, .. } = found;
            content.data = data;
            return self.put(Entry::ready(leaf, at, meta, content));
        }
        add(&counters.new, 1);
        let Found { leaf, at, meta, content, .. } = found;
        self.convert(leaf, at, meta, content)
    }

    /// An entry whose contents, if it has any, come from the source.
    fn convert(
        &mut self,
        leaf: Arc<Leaf>,
        at: usize,
        meta: Meta,
        content: drumlin_format::tree::Content,
    ) -> Result<()> {
        if !has_bytes(&meta, &content) {
            return self.put(Entry::ready(leaf, at, meta, content));
        }
        if let Data::List(list) = &content.data {
            let bytes: u64 = list.refs.iter().filter(|r| matches!(r, Ref::Chunk { .. })).map(Ref::len).sum();
            if list.level > 0 || bytes > WHOLE_BYTES_MAX {
                let list = list.clone();
                self.hand_over()?;
                let stored = self.large(&list)?;
                return self.settled(Entry { awaited: true, ..Entry::ready(leaf, at, meta, content) }, stored);
            }
        }
        self.wanted.push((content.data.clone(), meta.size));
        self.batch_bytes += meta.size;
        self.put(Entry { awaited: true, ..Entry::ready(leaf, at, meta, content) })
    }

    /// An entry of which everything is known already.
    fn settled(&mut self, entry: Entry, stored: Stored) -> Result<()> {
        self.hand_over()?;
        let number = self.number();
        self.builder.entries(number, vec![entry])?;
        self.builder.arrive(number, vec![stored])
    }

    fn put(&mut self, entry: Entry) -> Result<()> {
        self.batch.push(entry);
        if self.batch.len() >= BATCH_ENTRIES || self.batch_bytes >= BATCH_BYTES { self.hand_over() } else { Ok(()) }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    fn hand_over(&mut self) -> Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let number = self.number();
        let (entries, wanted) = (std::mem::take(&mut self.batch), std::mem::take(&mut self.wanted));
        self.batch_bytes = 0;
        if !wanted.is_empty() {
            self.jobs.send(Job::Batch(number, wanted)).map_err(|_| Error::Worker)?;
            self.outstanding += 1;
        }
        self.builder.entries(number, entries)?;
        self.collect(4 * self.workers)
    }

    /// Take in what has arrived; wait while more than so much is under way.
    fn collect(&mut self, most: usize) -> Result<()> {
        loop {
            let wait = self.outstanding > most || self.outstanding > 0 && self.builder.waiting() > WAITING_MAX;
            let done =
                if wait { Some(self.done.recv().map_err(|_| Error::Worker)?) } else { self.done.try_recv().ok() };
            let Some(done) = done else { return Ok(()) };
            self.take_in(done)?;
        }
    }

    fn take_in(&mut self, done: Done) -> Result<()> {
        self.outstanding = self.outstanding.saturating_sub(1);
        match done {
            Done::Batch(number, stored) => self.builder.arrive(number, stored),
            Done::Piece(number, copied) => {
                self.pieces.insert(number, copied);
                Ok(())
            }
            Done::Failed(e) => Err(e),
        }
    }

    /// A large file, piece by piece.
    fn large(&mut self, list: &List) -> Result<Stored> {
        let mut file = Large { list: ListWriter::default(), whole: self.shared.whole(), holes: false };
        let mut under_way: VecDeque<(u64, Vec<Ref>)> = VecDeque::new();
        let source = self.shared.source.clone();
        let mut refs = Refs::new(&source, list);
        let (mut piece, mut bytes, mut damage) = (Vec::new(), 0, None);
        loop {
            let next = match refs.next() {
                Some(Err(e)) if e.is_damage() => {
                    damage = Some(format!("in the source: {e}"));
                    break;
                }
                Some(next) => Some(next?),
                None => None,
            };
            if let Some(r) = next {
                bytes += if matches!(r, Ref::Chunk { .. }) { r.len() } else { 0 };
                piece.push(r);
            }
            let end = next.is_none();
            if bytes >= PIECE_BYTES || piece.len() >= PIECE_CHUNKS || end && !piece.is_empty() {
                let number = self.send(&piece)?;
                under_way.push_back((number, std::mem::take(&mut piece)));
                bytes = 0;
            }
            while under_way.len() > if end { 0 } else { 2 * self.workers } {
                let Some((number, refs)) = under_way.pop_front() else { break };
                if let Err(cause) = self.piece(number, &refs, &mut file)? {
                    damage = Some(cause);
                    break;
                }
            }
            if end || damage.is_some() {
                break;
            }
        }
        if let Some(cause) = damage {
            // What is under way is of no use, and would be taken for another file's.
            for (number, _) in under_way {
                let _ = self.arrived(number)?;
            }
            return Ok(Stored::Damaged(cause));
        }
        if file.holes {
            // Once more, for where they are: a list of them could be of any length.
            let mut offset = 0;
            for r in Refs::new(&source, list) {
                let r = match r {
                    Err(e) if e.is_damage() => return Ok(Stored::Damaged(format!("in the source: {e}"))),
                    other => other?,
                };
                if let Ref::Hole { len } = r {
                    file.whole.hole(offset, len);
                }
                offset += r.len();
            }
        }
        match file.whole.finish(&list.whole) {
            Some(whole) => Ok(Stored::List(file.list.finish(&mut self.builder.nodes, whole)?)),
            None => Ok(Stored::Damaged(NOT_WHOLE.into())),
        }
    }

    fn send(&mut self, refs: &[Ref]) -> Result<u64> {
        let chunk = |r: &Ref| match r {
            Ref::Chunk { id, len } => Some((*id, *len)),
            Ref::Hole { .. } => None,
        };
        let chunks: Vec<(ChunkId, u64)> = refs.iter().filter_map(chunk).collect();
        let number = self.number();
        self.jobs.send(Job::Piece(number, chunks)).map_err(|_| Error::Worker)?;
        self.outstanding += 1;
        Ok(number)
    }

    /// The outcome of a piece.
    fn arrived(&mut self, number: u64) -> Result<std::result::Result<Copied, String>> {
        loop {
            if let Some(copied) = self.pieces.remove(&number) {
                return Ok(copied);
            }
            let done = self.done.recv().map_err(|_| Error::Worker)?;
            self.take_in(done)?;
        }
    }

    /// Append a piece to its file.
    fn piece(&mut self, number: u64, refs: &[Ref], file: &mut Large) -> Result<std::result::Result<(), String>> {
        let Copied { ids, bytes } = match self.arrived(number)? {
            Ok(copied) => copied,
            Err(cause) => return Ok(Err(cause)),
        };
        file.whole.update(&bytes);
        let mut ids = ids.into_iter();
        for r in refs {
            let r = match r {
                Ref::Hole { len } => {
                    file.holes = true;
                    Ref::Hole { len: *len }
                }
                Ref::Chunk { len, .. } => Ref::Chunk { id: ids.next().ok_or(Error::Worker)?, len: *len },
            };
            file.list.push(&mut self.builder.nodes, r)?;
        }
        Ok(Ok(()))
    }
}

/// A large file as it grows.
struct Large {
    list: ListWriter,
    whole: super::worker::Whole,
    holes: bool,
}
