//! The target's tree, put together in order from what is taken over and from what workers bring back in any order.

use super::base::Part;
use super::owners::Owners;
use super::worker::Stored;
use crate::Result;
use crate::list::body;
use crate::monitor::{Monitor, Problem, ProblemKind, add};
use crate::select::push_path;
use drumlin_format::snapshot::Root;
use drumlin_format::tree::{Boundaries, Content, Data, Kind, Leaf, Meta, Sums, marks};
use drumlin_repo::pack::Reader;
use drumlin_repo::tree::{LeafRef, ListWriter, Nodes, TreeWriter};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// An entry of the target.
pub(super) struct Entry {
    /// A leaf that has its name and those of its owners.
    pub leaf: Arc<Leaf>,
    pub at: usize,
    pub meta: Meta,
    /// Its contents, but for what a worker brings.
    pub content: Content,
    /// A worker brings where they are.
    pub awaited: bool,
}

enum Item {
    Leaf(LeafRef, Arc<Leaf>),
    Entries(u64, Vec<Entry>),
}

/// Puts the tree together.
pub(super) struct Builder<'a> {
    monitor: &'a dyn Monitor,
    /// Reads the target.
    reader: Arc<Reader>,
    owners: Owners,
    writer: TreeWriter,
    pub nodes: Nodes,
    queue: VecDeque<Item>,
    /// Entries in it.
    waiting: usize,
    arrived: HashMap<u64, Vec<Stored>>,
    /// An old leaf that ended with its tree: it may be taken over whole only if it ends this one too.
    held: Option<(LeafRef, Arc<Leaf>)>,
}

impl<'a> Builder<'a> {
    pub fn new(monitor: &'a dyn Monitor, reader: Arc<Reader>, boundaries: Boundaries, nodes: Nodes) -> Self {
        let owners = Owners::default();
        let writer = TreeWriter::new(boundaries, Box::new(owners.clone()));
        let (queue, arrived) = (VecDeque::new(), HashMap::new());
        Builder { monitor, reader, owners, writer, nodes, queue, waiting: 0, arrived, held: None }
    }

    /// Entries that wait for their turn.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// A leaf comes next, as it is.
    pub fn leaf(&mut self, child: LeafRef, leaf: Arc<Leaf>) -> Result<()> {
        self.waiting += leaf.len();
        self.queue.push_back(Item::Leaf(child, leaf));
        self.pump()
    }

    /// Entries come next; what they await arrives under this number.
    pub fn entries(&mut self, number: u64, entries: Vec<Entry>) -> Result<()> {
        self.waiting += entries.len();
        self.queue.push_back(Item::Entries(number, entries));
        self.pump()
    }

    /// What was awaited has arrived, in the order of the entries that await it.
    pub fn arrive(&mut self, number: u64, stored: Vec<Stored>) -> Result<()> {
        self.arrived.insert(number, stored);
        self.pump()
    }

    fn pump(&mut self) -> Result<()> {
        loop {
            let stored = match self.queue.front() {
                None => return Ok(()),
                Some(Item::Leaf(..)) => Vec::new(),
                Some(Item::Entries(number, entries)) => match self.arrived.remove(number) {
                    Some(stored) => stored,
                    None if entries.iter().any(|e| e.awaited) => return Ok(()),
                    None => Vec::new(),
                },
            };
            match self.queue.pop_front() {
                Some(Item::Leaf(child, leaf)) => {
                    self.waiting -= leaf.len();
                    self.take_over(child, leaf)?;
                }
                Some(Item::Entries(_, entries)) => {
                    self.waiting -= entries.len();
                    let mut stored = stored.into_iter();
                    for mut entry in entries {
                        if entry.awaited {
                            let stored = stored.next().unwrap_or_else(|| Stored::Damaged("it got lost".into()));
                            self.settle(&mut entry, stored)?;
                        }
                        self.entry(&entry.leaf, entry.at, &entry.meta, entry.content)?;
                    }
                }
                None => {}
            }
        }
    }

    /// Put what a worker brought into its entry.
    fn settle(&mut self, entry: &mut Entry, stored: Stored) -> Result<()> {
        entry.content.data = match stored {
            Stored::Chunk(id) => Data::Chunk(id),
            Stored::Refs(refs, whole) => {
                let mut list = ListWriter::default();
                refs.into_iter().try_for_each(|r| list.push(&mut self.nodes, r))?;
                Data::List(list.finish(&mut self.nodes, whole)?)
            }
            Stored::List(list) => Data::List(list),
            Stored::Damaged(cause) => {
                entry.meta.marks |= marks::CONTENTS_MISSING;
                let (dir, name, _) = entry.leaf.get(entry.at);
                let mut path = Vec::new();
                push_path(dir, name, &mut path);
                add(&self.monitor.counters().damaged, 1);
                self.monitor.problem(&Problem { path, kind: ProblemKind::Damaged, cause });
                Data::None
            }
        };
        Ok(())
    }

    fn entry(&mut self, leaf: &Leaf, at: usize, meta: &Meta, content: Content) -> Result<()> {
        self.release()?;
        let mut sums = Sums::default();
        sums.add_entry(meta);
        self.count(&sums);
        self.push(leaf, at, meta, content)
    }

    fn push(&mut self, leaf: &Leaf, at: usize, meta: &Meta, content: Content) -> Result<()> {
        self.writer.make_room(&mut self.nodes, &content)?;
        if self.writer.at_boundary() {
            self.owners.clear();
        }
        self.owners.learn(leaf, meta);
        let (dir, name, _) = leaf.get(at);
        Ok(self.writer.push(&mut self.nodes, dir, name, meta, content)?)
    }

    fn count(&self, sums: &Sums) {
        let counters = self.monitor.counters();
        add(&counters.entries, sums.entries);
        add(&counters.files, sums.files);
        add(&counters.dirs, sums.dirs);
        add(&counters.bytes, sums.bytes);
    }

    fn take_over(&mut self, child: LeafRef, leaf: Arc<Leaf>) -> Result<()> {
        self.release()?;
        self.count(&leaf.sums());
        if !self.writer.at_boundary() {
            return self.spell_out(&child, &leaf);
        }
        let (dir, name, _) = leaf.get(leaf.len() - 1);
        if self.writer.would_end((dir, name), leaf.len(), leaf.text_bytes()) {
            Ok(self.writer.push_leaf(&mut self.nodes, child, (dir, name))?)
        } else {
            self.held = Some((child, leaf));
            Ok(())
        }
    }

    /// Something follows the held leaf: its entries have to be spelt out.
    fn release(&mut self) -> Result<()> {
        match self.held.take() {
            Some((child, leaf)) => self.spell_out(&child, &leaf),
            None => Ok(()),
        }
    }

    fn spell_out(&mut self, child: &LeafRef, leaf: &Leaf) -> Result<()> {
        let body = body(&self.reader, child, leaf)?;
        for (at, content) in body.contents.into_iter().enumerate() {
            let meta = *leaf.get(at).2;
            self.push(leaf, at, &meta, content)?;
        }
        Ok(())
    }

    /// The root of the whole tree. Nothing may wait any more.
    pub fn finish(mut self) -> Result<Option<Root>> {
        debug_assert!(self.queue.is_empty());
        if let Some((child, leaf)) = self.held.take() {
            let (dir, name, _) = leaf.get(leaf.len() - 1);
            self.writer.push_leaf(&mut self.nodes, child, (dir, name))?;
        }
        let root = self.writer.finish(&mut self.nodes)?;
        self.nodes.flush()?;
        Ok(root)
    }
}

impl Entry {
    /// One whose contents are all there.
    pub fn ready(leaf: Arc<Leaf>, at: usize, meta: Meta, content: Content) -> Self {
        Entry { leaf, at, meta, content, awaited: false }
    }
}

/// Whether there are bytes of a file to be copied.
pub(super) fn has_bytes(meta: &Meta, content: &Content) -> bool {
    meta.kind == Kind::File && content.data != Data::None
}

/// What a part of the copy before becomes in this one, unless its contents are missing.
pub(super) fn taken_over(part: Part) -> Option<Entry> {
    match part {
        Part::Entry(leaf, at, content) => {
            let meta = *leaf.get(at).2;
            Some(Entry::ready(leaf, at, meta, content))
        }
        Part::Leaf(..) | Part::Missing(..) => None,
    }
}
