//! The merge of the walk with the previous tree: both come in tree order, so each entry is met once, and nothing is
//! looked up.

use super::assemble::{Assembler, Item, read_body};
use super::job::{Entry, Job, Workers};
use super::old::{OldLeaf, OldLeaves};
use super::passed_by::PassedBy;
use super::worker::{NO_BATCH, WHOLE_BYTES_MAX};
use crate::monitor::{Change, Monitor, Problem, ProblemKind, add};
use crate::unchanged::Unchanged;
use crate::{Error, Result};
use drumlin_format::tree::{Body, Content, Data, Kind, Meta, Sums};
use drumlin_host::meta::Stat;
use drumlin_host::walk::{Listing, What};
use drumlin_repo::pack::Reader;
use std::cmp::Ordering;
use std::sync::Arc;

/// A batch is handed over when it has so many entries...
const BATCH_ENTRIES: usize = 128;
/// ...or so many bytes of contents...
const BATCH_BYTES: u64 = 1 << 20;
/// ...or so many unchanged entries wait for those between them that have changed. (Where opening is waited for, a batch
/// is read by many threads: of changes that are few and far between, too, it has many.)
const KEPT_ENTRIES: usize = 4 << 10;
/// So many things may wait for their turn in the tree, those between the changes of several batches...
const WAITING_MAX: usize = 16 << 10;
/// ...and so many entries, of about 200 bytes each. Without that, while a large file is stored, everything that comes
/// after it could be read and wait.
const WAITING_ENTRIES_MAX: usize = 128 << 10;

/// Merges walk and old tree.
pub(super) struct Merge<'a> {
    pub monitor: &'a dyn Monitor,
    pub reader: Arc<Reader>,
    pub assembler: Assembler,
    pub workers: Workers,
    /// Read everything.
    pub force: bool,
    unchanged: Unchanged,
    /// Whether anything was met but directories that only lead to the sources.
    found: bool,
    passed_by: PassedBy,
    old: OldStream,
    batch: Vec<Entry>,
    batch_bytes: u64,
    /// How many of the batch at hand have their place in the tree.
    placed: usize,
    /// The number of the batch at hand.
    next_batch: u64,
    outstanding: usize,
}

/// Directory, name, meta.
type OldEntry<'a> = (&'a [u8], &'a [u8], &'a Meta);

/// The old tree, read entry by entry.
struct OldStream {
    leaves: Option<OldLeaves>,
    leaf: Option<OldLeaf>,
    /// The entry to come.
    at: usize,
    /// Entries before this one have been passed on already, or are not part of the stream.
    passed: usize,
    /// Nothing in this leaf differs so far.
    pristine: bool,
    body: Option<Body>,
}

impl<'a> Merge<'a> {
    pub fn new(
        monitor: &'a dyn Monitor,
        reader: Arc<Reader>,
        (assembler, leaves): (Assembler, Option<OldLeaves>),
        workers: Workers,
        force: bool,
        sources: &[Vec<u8>],
    ) -> Self {
        let old = OldStream { leaves, leaf: None, at: 0, passed: 0, pristine: false, body: None };
        Merge {
            monitor,
            reader,
            assembler,
            workers,
            force,
            unchanged: Unchanged::new(sources),
            found: false,
            passed_by: PassedBy::new(sources),
            old,
            batch: Vec::new(),
            batch_bytes: 0,
            placed: 0,
            next_batch: 0,
            outstanding: 0,
        }
    }

    /// Take in what the walk found in a directory, or in a part of one.
    pub fn listing(&mut self, listing: &mut Listing) -> Result<()> {
        self.report(listing);
        let mut key = Vec::new();
        listing.dir().key(&mut key);
        let key: Arc<[u8]> = key.into();
        let mut unmodified = Sums::default();
        for entry in listing.iter() {
            self.entry(listing, &key, entry.name, entry.stat, &mut unmodified)?;
        }
        let counters = self.monitor.counters();
        if unmodified.entries > 0 {
            add(&counters.unmodified, unmodified.entries);
            add(&counters.entries, unmodified.entries);
            add(&counters.files, unmodified.files);
            add(&counters.dirs, unmodified.dirs);
            add(&counters.bytes, unmodified.bytes);
        }
        self.collect(false)
    }

    fn report(&mut self, listing: &mut Listing) {
        let counters = self.monitor.counters();
        let excluded = listing.excluded();
        add(&counters.excluded, excluded.files + excluded.dirs);
        add(&counters.vanished, listing.vanished());
        self.passed_by.add(listing.take_passed_by());
        for error in listing.take_errors() {
            let kind = match error.what {
                What::Vanished => ProblemKind::Vanished,
                _ => ProblemKind::Unreadable,
            };
            add(if kind == ProblemKind::Vanished { &counters.vanished } else { &counters.unreadable }, 1);
            add(&counters.absent, u64::from(error.what == What::NoSource));
            self.monitor.problem(&Problem { path: error.path, kind, cause: error.source.to_string() });
        }
    }

    fn entry(
        &mut self,
        listing: &Listing,
        key: &Arc<[u8]>,
        name: &[u8],
        stat: &Stat,
        unmodified: &mut Sums,
    ) -> Result<()> {
        let filesystem = self.unchanged.filesystem(stat);
        self.found = self.found || !self.unchanged.is_above(key, name);
        let known = loop {
            let Some((dir, old_name, old)) = self.old.peek()? else { break false };
            match (dir, old_name).cmp(&(key, name)) {
                Ordering::Less => self.removed()?,
                Ordering::Greater => break false,
                Ordering::Equal => {
                    if !self.force && self.unchanged.is(old, listing.dir(), key, name, stat, filesystem) {
                        unmodified.add_entry(old);
                        if self.monitor.wants_entries() {
                            self.tell(Change::Unmodified, listing, name);
                        }
                        return self.keep();
                    }
                    break true;
                }
            }
        };
        let old = if known { self.old_contents(stat)? } else { None };
        if known {
            self.skip()?;
        } else {
            // What comes before a pristine leaf doesn't touch it; what comes in its midst does.
            self.break_leaf(self.old.at > self.old.first())?;
        }
        let large = stat.kind == drumlin_host::meta::Kind::File && stat.size > WHOLE_BYTES_MAX;
        if large {
            self.hand_over()?;
        }
        let dir = listing.dir().clone();
        self.batch.push(Entry { dir, key: key.clone(), name: name.into(), stat: *stat, filesystem, known, old });
        self.batch_bytes += if stat.kind == drumlin_host::meta::Kind::File { stat.size } else { 0 };
        if large || self.batch.len() >= BATCH_ENTRIES || self.batch_bytes >= BATCH_BYTES {
            self.hand_over()?;
        }
        Ok(())
    }

    fn tell(&self, change: Change, listing: &Listing, name: &[u8]) {
        let mut path = Vec::new();
        listing.dir().path_of(name, &mut path);
        self.monitor.entry(change, &path);
    }

    /// The old contents of the entry at hand, if they help to read the new ones.
    fn old_contents(&mut self, stat: &Stat) -> Result<Option<Data>> {
        let Some((_, _, old)) = self.old.peek()? else { return Ok(None) };
        let (kind, size) = (old.kind, old.size);
        if kind != Kind::File || stat.size <= WHOLE_BYTES_MAX || size == 0 {
            return Ok(None);
        }
        let at = self.old.at;
        let body = self.body()?;
        Ok(Some(body.contents[at].data.clone()))
    }

    fn body(&mut self) -> Result<&Body> {
        if self.old.body.is_none() {
            let leaf = self.old.leaf.as_ref().expect("only asked for while there is an old entry");
            self.old.body = Some(read_body(&self.reader, &leaf.child, &leaf.leaf)?);
        }
        Ok(self.old.body.as_ref().expect("read above"))
    }

    /// The old entry at hand goes into the new tree.
    fn keep(&mut self) -> Result<()> {
        self.old.at += 1;
        if !self.old.pristine {
            self.pass_on()?;
        }
        self.end_leaf()
    }

    /// The old entry at hand is replaced.
    fn skip(&mut self) -> Result<()> {
        self.break_leaf(true)?;
        self.old.at += 1;
        self.old.passed = self.old.at;
        self.end_leaf()
    }

    /// The old entry at hand is gone.
    fn removed(&mut self) -> Result<()> {
        add(&self.monitor.counters().removed, 1);
        if self.monitor.wants_entries()
            && let Some((dir, name, _)) = self.old.peek()?
        {
            let mut path: Vec<u8> = [&b"/"[..], dir].concat();
            path.iter_mut().filter(|b| **b == 0).for_each(|b| *b = b'/');
            if !dir.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name);
            self.monitor.entry(Change::Removed, &path);
        }
        self.skip()
    }

    /// The leaf at hand can't be taken over whole: what was kept of it so far is passed on entry by entry.
    fn break_leaf(&mut self, touched: bool) -> Result<()> {
        if touched && self.old.leaf.is_some() && self.old.pristine {
            self.old.pristine = false;
            self.pass_on()?;
        }
        Ok(())
    }

    /// Pass on the kept entries that haven't been.
    fn pass_on(&mut self) -> Result<()> {
        let (from, to) = (self.old.passed, self.old.at);
        self.old.passed = to;
        if from == to {
            return Ok(());
        }
        self.place()?;
        let contents: Vec<Content> = self.body()?.contents[from..to].to_vec();
        let leaf = self.old.leaf.as_ref().expect("it has entries").leaf.clone();
        for (at, content) in (from..to).zip(contents) {
            let (dir, name, meta) = leaf.get(at);
            let meta: Meta = *meta;
            self.assembler.push(Item::Old { dir: dir.into(), name: name.into(), meta, content })?;
        }
        Ok(())
    }

    fn end_leaf(&mut self) -> Result<()> {
        let Some(leaf) = &self.old.leaf else { return Ok(()) };
        if self.old.at < leaf.to {
            return Ok(());
        }
        let leaf = self.old.leaf.take().expect("it is there");
        if self.old.pristine {
            self.place()?;
            self.assembler.push(Item::Leaf(leaf.child, leaf.leaf))?;
        }
        self.hand_over_in_time()
    }

    /// What is in the batch has its place in the tree before what comes now.
    fn place(&mut self) -> Result<()> {
        let new = self.batch.len() - self.placed;
        if new == 0 {
            return Ok(());
        }
        self.placed += new;
        self.assembler.push(Item::Batch(self.next_batch, new))
    }

    /// Hand the batch at hand to the workers once much that is unchanged waits for it.
    fn hand_over_in_time(&mut self) -> Result<()> {
        if self.assembler.waiting().1 > KEPT_ENTRIES { self.hand_over() } else { Ok(()) }
    }

    /// Hand the batch at hand to the workers.
    fn hand_over(&mut self) -> Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.place()?;
        let entries = std::mem::take(&mut self.batch);
        (self.batch_bytes, self.placed) = (0, 0);
        let number = self.number();
        self.send(Job::Batch(number, entries))
    }

    fn number(&mut self) -> u64 {
        self.next_batch += 1;
        self.next_batch - 1
    }

    fn send(&mut self, job: Job) -> Result<()> {
        self.workers.jobs.send(job).map_err(|_| Error::Worker)?;
        self.outstanding += 1;
        self.collect(false)
    }

    /// Give a stream to the workers.
    pub fn stream(&mut self, name: &[u8], reader: Box<dyn std::io::Read + Send>) -> Result<()> {
        self.found = true;
        self.hand_over()?;
        let number = self.number();
        self.assembler.push(Item::Batch(number, 1))?;
        self.send(Job::Stream(number, name.into(), reader))
    }

    /// Take in what has arrived; wait while too much is under way, or for everything if `all`.
    fn collect(&mut self, all: bool) -> Result<()> {
        loop {
            let (items, entries) = self.assembler.waiting();
            let wait = self.outstanding > if all { 0 } else { 4 * self.workers.count }
                || self.outstanding > 0 && (items > WAITING_MAX || entries > WAITING_ENTRIES_MAX);
            let done = &self.workers.done;
            let done = if wait { Some(done.recv().map_err(|_| Error::Worker)?) } else { done.try_recv().ok() };
            let Some((number, outcome)) = done else { return Ok(()) };
            let batch = outcome?;
            if number != NO_BATCH {
                self.outstanding -= 1;
                self.assembler.arrive(number, batch)?;
            }
        }
    }

    /// Whether the walk has met anything besides directories that lead to sources: whether any source was there.
    pub fn found_a_source(&self) -> bool {
        self.found
    }

    /// What was on other file systems and not looked into, so far.
    pub fn passed_by(&self) -> Vec<Vec<u8>> {
        self.passed_by.paths()
    }

    /// All that was taken in so far is in the assembler.
    pub fn settle(&mut self) -> Result<()> {
        self.hand_over()?;
        self.collect(true)
    }

    /// The walk is at its end: what is left of the old tree is gone.
    pub fn finish(&mut self) -> Result<()> {
        while self.old.peek()?.is_some() {
            self.removed()?;
        }
        self.settle()
    }

    /// The walk was stopped: of the leaf at hand what was kept stays, the rest of the old tree is left out.
    pub fn stop(&mut self) -> Result<()> {
        self.break_leaf(true)?;
        self.settle()
    }
}

impl OldStream {
    /// The entry to come.
    fn peek(&mut self) -> Result<Option<OldEntry<'_>>> {
        while self.leaf.is_none() {
            let Some(leaves) = &self.leaves else { return Ok(None) };
            let Some(leaf) = leaves.next() else {
                self.leaves = None;
                return Ok(None);
            };
            let leaf = leaf?;
            self.body = None;
            (self.at, self.passed) = (leaf.from, leaf.from);
            self.pristine = leaf.from == 0 && leaf.to == leaf.leaf.len();
            self.leaf = (leaf.from < leaf.to).then_some(leaf);
        }
        Ok(self.leaf.as_ref().map(|leaf| leaf.leaf.get(self.at)))
    }

    /// The first entry of the leaf at hand that is part of the stream.
    fn first(&self) -> usize {
        self.leaf.as_ref().map_or(0, |l| l.from)
    }
}
