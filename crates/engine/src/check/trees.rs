//! The trees of all snapshots: each node is read once however many of them share it, and each chunk of contents that a
//! node leads to is in a pack that the index names.
//!
//! Threads take inner nodes from a queue. One of level 1 is dealt with by one thread, with its leaves, their bodies and
//! the nodes of their lists, in the order in which they were stored: the reader's cache then reads most blocks once.

use super::find::{Finder, Found};
use super::nodes::{Node, Nodes};
use super::queue::Queue;
use super::seen::Seen;
use super::small::Tree;
use crate::Result;
use crate::monitor::add;
use drumlin_format::ChunkId;
use drumlin_format::pack::PackKind;
use drumlin_format::tree::{Body, Child, Data, Inner, Leaf, ListNode, Ref};
use std::sync::{Mutex, PoisonError};

/// What the walk met.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Met {
    /// Entries of leaves, each leaf once.
    pub entries: u64,
    /// Nodes, each once.
    pub nodes: u64,
    /// References to chunks of contents.
    pub chunks: u64,
    /// References to chunks, nodes among them, that no index object names.
    pub nowhere: u64,
    /// Nodes that can't be read.
    pub lost: u64,
    /// Nodes whose pack was removed meanwhile.
    pub removed: u64,
    /// How often the index was asked for chunks of contents.
    pub lookups: u64,
}

impl Met {
    fn add(&mut self, other: &Met) {
        self.entries += other.entries;
        self.nodes += other.nodes;
        self.chunks += other.chunks;
        self.nowhere += other.nowhere;
        self.lost += other.lost;
        self.removed += other.removed;
        self.lookups += other.lookups;
    }
}

/// An inner node that waits.
#[derive(Clone, Copy)]
struct Task {
    node: ChunkId,
    level: u8,
}

/// Walk all trees.
pub(super) fn walk(nodes: &Nodes, seen: &Seen, trees: &[Tree]) -> Result<Met> {
    let met = Mutex::new(Met::default());
    // The last one put comes first.
    let roots = trees.iter().rev().filter_map(|t| t.root).map(|root| Task { node: root.node, level: root.level });
    let queue = Queue::new(roots.collect());
    super::on_threads(nodes.context.workers, || {
        let finder = Finder::new(nodes.packs, nodes.index, PackKind::Data);
        let mut walker = Walker { nodes, seen, met: Met::default(), queue: &queue, finder };
        while let Some(task) = queue.take() {
            let dealt = walker.inner(task);
            queue.done();
            if dealt.is_err() {
                queue.end();
                return dealt;
            }
        }
        walker.met.lookups = walker.finder.lookups;
        met.lock().unwrap_or_else(PoisonError::into_inner).add(&walker.met);
        Ok(())
    })?;
    Ok(met.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// One of the threads.
struct Walker<'a> {
    nodes: &'a Nodes<'a>,
    seen: &'a Seen,
    met: Met,
    queue: &'a Queue<Task>,
    finder: Finder<'a>,
}

impl Drop for Walker<'_> {
    fn drop(&mut self) {
        // Nobody shall wait for what a thread that is lost would have put.
        if std::thread::panicking() {
            self.queue.end();
        }
    }
}

impl Walker<'_> {
    fn inner(&mut self, task: Task) -> Result<()> {
        self.nodes.context.go_on()?;
        let found = self.nodes.find(&task.node)?;
        if !self.is_new(&found) {
            return Ok(());
        }
        let Some((bytes, place)) = self.read(&task.node, &found)? else { return Ok(()) };
        let inner = match Inner::decode(&bytes, task.level) {
            Ok(inner) => inner,
            Err(e) => {
                self.lost();
                self.nodes.malformed(&task.node, place, &e);
                return Ok(());
            }
        };
        drop(bytes);
        if inner.level > 1 {
            let level = inner.level - 1;
            self.queue.put(inner.children.iter().rev().map(|c| Task { node: c.node, level }));
            return Ok(());
        }
        inner.children.iter().try_for_each(|child| self.leaf(child))
    }

    fn leaf(&mut self, child: &Child) -> Result<()> {
        self.nodes.context.go_on()?;
        // A node of level 1 has a body for each leaf, or it isn't decoded.
        let Some(body_id) = child.body else { return Ok(()) };
        let (leaf_at, body_at) = (self.nodes.find(&child.node)?, self.nodes.find(&body_id)?);
        let (leaf_is_new, body_is_new) = (self.is_new(&leaf_at), self.is_new(&body_at));
        // The one is only right beside the other: a new leaf for an old body is compared with it.
        if !leaf_is_new && !body_is_new {
            return Ok(());
        }
        let leaf = match self.read(&child.node, &leaf_at)? {
            None => None,
            Some((bytes, place)) => match Leaf::decode(&bytes) {
                Ok(leaf) => Some(leaf),
                Err(e) => {
                    self.lost();
                    self.nodes.malformed(&child.node, place, &e);
                    None
                }
            },
        };
        let body = self.read(&body_id, &body_at)?;
        let Some(leaf) = leaf else { return Ok(()) };
        if leaf_is_new {
            let sums = leaf.sums();
            self.met.entries += sums.entries;
            let counters = self.nodes.context.monitor.counters();
            add(&counters.entries, sums.entries);
            add(&counters.files, sums.files);
            add(&counters.dirs, sums.dirs);
        }
        let Some((bytes, place)) = body else { return Ok(()) };
        match Body::decode(&bytes, &leaf) {
            Ok(body) if body_is_new => body.contents.iter().try_for_each(|content| match &content.data {
                Data::None => Ok(()),
                Data::Chunk(id) => self.chunk(id),
                Data::List(list) => self.refs(list.level, &list.refs),
            }),
            Ok(_) => Ok(()),
            Err(e) => {
                self.lost();
                self.nodes.malformed(&body_id, place, &e);
                Ok(())
            }
        }
    }

    /// What a list leads to. As deep as the list, which the format bounds.
    fn refs(&mut self, level: u8, refs: &[Ref]) -> Result<()> {
        for r in refs {
            let Ref::Chunk { id, len } = r else { continue };
            if level == 0 {
                self.chunk(id)?;
                continue;
            }
            self.nodes.context.go_on()?;
            let found = self.nodes.find(id)?;
            if !self.is_new(&found) {
                continue;
            }
            let Some((bytes, place)) = self.read(id, &found)? else { continue };
            match ListNode::decode(&bytes, level - 1, *len) {
                Ok(node) => self.refs(level - 1, &node.refs)?,
                Err(e) => {
                    self.lost();
                    self.nodes.malformed(id, place, &e);
                }
            }
        }
        Ok(())
    }

    /// A chunk of contents. Whether its pack is whole is known by then, or will be.
    fn chunk(&mut self, id: &ChunkId) -> Result<()> {
        self.met.chunks += 1;
        if matches!(self.finder.find(id)?, Found::Nowhere) {
            self.met.nowhere += 1;
        }
        Ok(())
    }

    /// Whether a node is met for the first time.
    fn is_new(&mut self, found: &Found) -> bool {
        let new = match found {
            Found::At(place) => self.seen.add(*place),
            Found::Newer(..) | Found::Nowhere => true,
        };
        self.met.nodes += u64::from(new);
        new
    }

    fn lost(&mut self) {
        self.met.lost += 1;
    }

    /// Read a node; `None` if it can't be, which is told.
    fn read(&mut self, id: &ChunkId, found: &Found) -> Result<Option<(Vec<u8>, Option<super::packs::Place>)>> {
        match self.nodes.read(id, found)? {
            Node::Whole(bytes, place) => return Ok(Some((bytes, place))),
            Node::Nowhere => self.met.nowhere += 1,
            Node::Lost(_) => self.lost(),
            Node::Removed => self.met.removed += 1,
        }
        Ok(None)
    }
}
