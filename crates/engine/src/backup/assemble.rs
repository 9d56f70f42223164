//! The new tree, put together in order from what is unchanged and from what the workers bring back in any order.

use super::job::{Batch, Finished};
use crate::Result;
use drumlin_format::snapshot::{Reached, Root};
use drumlin_format::tree::{Body, Content, Leaf, Meta};
use drumlin_repo::pack::Reader;
use drumlin_repo::tree::{Cursor, LeafRef, Nodes, TreeWriter};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::vec;

/// What comes next in the tree.
pub(super) enum Item {
    /// A leaf of the old tree, all of whose entries are unchanged.
    Leaf(LeafRef, Arc<Leaf>),
    /// An unchanged entry of an old leaf of which others have changed.
    Old { dir: Arc<[u8]>, name: Box<[u8]>, meta: Meta, content: Content },
    /// So many entries of a batch that a worker has, or will have.
    Batch(u64, usize),
}

impl Item {
    /// Those that are in it: of a batch none, before it arrives.
    fn entries(&self) -> usize {
        match self {
            Item::Leaf(_, leaf) => leaf.len(),
            Item::Old { .. } => 1,
            Item::Batch(..) => 0,
        }
    }
}

/// What is left of a batch that has arrived.
struct Arrived {
    entries: vec::IntoIter<Option<Finished>>,
    cut_short: bool,
}

/// Puts the tree together.
pub(super) struct Assembler {
    reader: Arc<Reader>,
    writer: TreeWriter,
    pub nodes: Nodes,
    queue: VecDeque<Item>,
    arrived: HashMap<u64, Arrived>,
    /// Entries of both.
    entries: usize,
    /// The run was stopped: what comes after a gap is left out.
    closed: bool,
    /// An old leaf that ended with its tree: it may be taken over whole only if it ends this one too.
    held: Option<(LeafRef, Arc<Leaf>)>,
    reached: Option<Reached>,
}

impl Assembler {
    pub fn new(reader: Arc<Reader>, writer: TreeWriter, nodes: Nodes) -> Self {
        let (queue, arrived) = (VecDeque::new(), HashMap::new());
        Assembler { reader, writer, nodes, queue, arrived, entries: 0, closed: false, held: None, reached: None }
    }

    /// Whether a batch was cut short: the tree ends there.
    pub fn is_cut_short(&self) -> bool {
        self.closed
    }

    /// Items that wait, and the entries in them that are there already.
    pub fn waiting(&self) -> (usize, usize) {
        (self.queue.len(), self.entries)
    }

    /// Add what comes next.
    pub fn push(&mut self, item: Item) -> Result<()> {
        self.entries += item.entries();
        self.queue.push_back(item);
        self.pump()
    }

    /// A batch has arrived.
    pub fn arrive(&mut self, number: u64, batch: Batch) -> Result<()> {
        self.entries += batch.entries.len();
        self.arrived.insert(number, Arrived { entries: batch.entries.into_iter(), cut_short: batch.cut_short });
        self.pump()
    }

    fn pump(&mut self) -> Result<()> {
        while let Some(item) = self.queue.front() {
            if let Item::Batch(number, count) = *item {
                let Some(mut batch) = self.arrived.remove(&number) else { return Ok(()) };
                self.queue.pop_front();
                let here = count.min(batch.entries.len());
                self.entries -= here;
                for entry in batch.entries.by_ref().take(here).flatten() {
                    self.entry(&entry.key, &entry.name, &entry.meta, entry.content)?;
                }
                self.closed |= here < count && batch.cut_short;
                // The rest comes behind other items.
                if batch.entries.len() > 0 || batch.cut_short {
                    self.arrived.insert(number, batch);
                }
                continue;
            }
            self.entries -= item.entries();
            match self.queue.pop_front() {
                Some(Item::Leaf(child, leaf)) => self.leaf(child, leaf)?,
                Some(Item::Old { dir, name, meta, content }) => self.entry(&dir, &name, &meta, content)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn entry(&mut self, dir: &[u8], name: &[u8], meta: &Meta, content: Content) -> Result<()> {
        if self.closed {
            return Ok(());
        }
        self.release()?;
        self.writer.push(&mut self.nodes, dir, name, meta, content)?;
        self.note(dir, name);
        Ok(())
    }

    fn note(&mut self, dir: &[u8], name: &[u8]) {
        let reached = self.reached.get_or_insert_with(|| Reached { dir: Vec::new(), name: Vec::new() });
        if reached.dir != dir {
            reached.dir.clear();
            reached.dir.extend_from_slice(dir);
        }
        reached.name.clear();
        reached.name.extend_from_slice(name);
    }

    fn leaf(&mut self, child: LeafRef, leaf: Arc<Leaf>) -> Result<()> {
        if self.closed {
            return Ok(());
        }
        self.release()?;
        if !self.writer.at_boundary() {
            return self.spell_out(&child, &leaf);
        }
        if self.is_outdated(&child)? {
            return self.spell_out(&child, &leaf);
        }
        let (dir, name, _) = leaf.get(leaf.len() - 1);
        self.note(dir, name);
        if self.writer.would_end((dir, name), leaf.len(), leaf.text_bytes()) {
            Ok(self.writer.push_leaf(&mut self.nodes, child, (dir, name))?)
        } else {
            self.held = Some((child, leaf));
            Ok(())
        }
    }

    /// Whether a leaf has to be stored anew, though it is unchanged: it lies under secrets that the repository has
    /// given up, or where this key can't read it the next time.
    fn is_outdated(&self, child: &LeafRef) -> Result<bool> {
        let index = self.reader.index();
        if !index.is_choosy() {
            return Ok(false);
        }
        for id in [Some(&child.node), child.body.as_ref()].into_iter().flatten() {
            if !index.serves(id)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Something follows the held leaf: its entries have to be spelt out.
    fn release(&mut self) -> Result<()> {
        match self.held.take() {
            Some((child, leaf)) => self.spell_out(&child, &leaf),
            None => Ok(()),
        }
    }

    fn spell_out(&mut self, child: &LeafRef, leaf: &Leaf) -> Result<()> {
        let body = read_body(&self.reader, child, leaf)?;
        for ((dir, name, meta), content) in leaf.iter().zip(body.contents) {
            self.writer.push(&mut self.nodes, dir, name, meta, content)?;
        }
        let (dir, name, _) = leaf.get(leaf.len() - 1);
        self.note(dir, name);
        Ok(())
    }

    /// The root of what is there so far and how far that is; the tree can go on.
    pub fn checkpoint(&mut self) -> Result<(Option<Root>, Option<Reached>)> {
        self.release()?;
        let root = self.writer.checkpoint(&mut self.nodes)?;
        self.nodes.flush()?;
        Ok((root, self.reached.clone()))
    }

    /// The root of the whole tree. Nothing may wait any more.
    pub fn finish(mut self) -> Result<(Option<Root>, Option<Reached>)> {
        debug_assert!(self.queue.is_empty());
        // One that has to be stored anew is never held.
        if let Some((child, leaf)) = self.held.take() {
            let (dir, name, _) = leaf.get(leaf.len() - 1);
            self.writer.push_leaf(&mut self.nodes, child, (dir, name))?;
        }
        let root = self.writer.finish(&mut self.nodes)?;
        self.nodes.flush()?;
        Ok((root, self.reached))
    }
}

/// The body of an old leaf.
pub(super) fn read_body(reader: &Arc<Reader>, child: &LeafRef, leaf: &Leaf) -> Result<Body> {
    Ok(Cursor::new(reader.clone(), None)?.body(child, leaf)?)
}
