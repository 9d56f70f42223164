//! The walk over trees: inner nodes, leaves with their bodies, and the nodes of their lists.
//!
//! Threads take nodes from a queue. An inner node of level 1 is dealt with by one thread, with its leaves, their bodies
//! and the lowest nodes of their lists, in the order in which they were stored: a reader's cache then reads most blocks
//! once. One thread alone meets everything in the order of the trees. In memory are the children of one path from a
//! root, and of as many lists as there are threads.

use super::queue::Queue;
use crate::Result;
use crate::lock::lock;
use crate::threads::on_threads;
use drumlin_format::ChunkId;
use drumlin_format::snapshot::Root;
use drumlin_format::tree::{Body, Child, Data, Inner, Leaf, ListNode, Ref};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where something is referred to.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    /// The number of the tree.
    pub tree: usize,
    /// The leaf, with its body and its contents, or the inner node.
    pub child: &'a Child,
}

/// What becomes of all that is met. One a thread.
pub(crate) trait Visit {
    /// What is known of a node before it is read.
    type Node;

    /// A node is referred to. Whether it is met for the first time by any thread: then it is read.
    fn meet(&mut self, id: &ChunkId, at: At) -> Result<(Self::Node, bool)>;

    /// Read a node; `None`: go on without it.
    fn read(&mut self, id: &ChunkId, node: &mut Self::Node, at: At) -> Result<Option<Vec<u8>>>;

    /// A node that was read is not what it must be. Whether to go on without it.
    fn malformed(&mut self, id: &ChunkId, node: &Self::Node, at: At, source: drumlin_format::Error) -> Result<()>;

    /// A node that was read for the first time is not where its parent has it: nothing that it needs is in doubt, but
    /// it is out of order.
    fn misplaced(&mut self, _id: &ChunkId, _node: &Self::Node, _at: At, _source: drumlin_format::Error) -> Result<()> {
        Ok(())
    }

    /// A leaf was read, for the first time.
    fn leaf(&mut self, _leaf: &Leaf) {}

    /// A chunk of contents is referred to.
    fn chunk(&mut self, id: &ChunkId, at: At) -> Result<()>;

    /// Called before each node; fails to end the walk.
    fn go_on(&mut self) -> Result<()>;
}

/// What waits.
enum Task {
    Inner {
        tree: usize,
        child: Child,
        level: u8,
    },
    /// A node of a list of the leaf `child`, that leads to other nodes.
    List {
        tree: usize,
        child: Arc<Child>,
        node: ChunkId,
        level: u8,
        len: u64,
    },
}

/// Walk some trees, which are told apart by their numbers. Gives what the threads' visitors have come to.
///
/// # Errors
/// The first failure of a visitor ends the walk.
pub(crate) fn walk<V: Visit + Send>(
    roots: impl IntoIterator<Item = (usize, Root)>,
    threads: usize,
    visitor: impl Fn() -> V + Sync,
) -> Result<Vec<V>> {
    let task = |(tree, root): (usize, Root)| {
        let child = Child { dir: Vec::new(), name: Vec::new(), node: root.node, body: None, sums: root.sums };
        Task::Inner { tree, child, level: root.level }
    };
    let mut roots: Vec<Task> = roots.into_iter().map(task).collect();
    // The last one put comes first.
    roots.reverse();
    let (queue, visitors) = (Queue::new(roots), Mutex::new(Vec::new()));
    let left = Left::default();
    on_threads("walk", threads, || {
        let mut walker = Walker { visit: visitor(), queue: &queue, left: &left, alone: threads <= 1 };
        let _ending = Ending(&queue);
        while let Some(task) = queue.take() {
            let dealt = walker.deal_with(task);
            queue.done();
            if dealt.is_err() {
                queue.end();
                return dealt;
            }
        }
        lock(&visitors).push(walker.visit);
        Ok(())
    })?;
    Ok(visitors.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Nobody shall wait for what a thread that is lost would have put.
struct Ending<'a>(&'a Queue<Task>);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.end();
        }
    }
}

/// Bodies that were met, but not decoded, because their leaf can't be read. Another leaf may have the same body.
#[derive(Default)]
struct Left {
    /// Set before the first of them is noted, so that nobody takes the lock as long as all is well.
    is_any: AtomicBool,
    bodies: Mutex<HashSet<ChunkId>>,
}

impl Left {
    fn lock(&self) -> MutexGuard<'_, HashSet<ChunkId>> {
        lock(&self.bodies)
    }

    /// Whether the caller, who has a leaf that can be read, has to decode a body that was met before.
    fn take(&self, body: &ChunkId) -> bool {
        self.is_any.load(Ordering::SeqCst) && self.lock().remove(body)
    }
}

/// One of the threads.
struct Walker<'a, V> {
    visit: V,
    queue: &'a Queue<Task>,
    left: &'a Left,
    alone: bool,
}

impl<V: Visit> Walker<'_, V> {
    fn deal_with(&mut self, task: Task) -> Result<()> {
        match task {
            Task::Inner { tree, child, level } => self.inner(tree, &child, level),
            Task::List { tree, child, node, level, len } => self.list(&node, level, len, At { tree, child: &child }),
        }
    }

    fn inner(&mut self, tree: usize, child: &Child, level: u8) -> Result<()> {
        let at = At { tree, child };
        self.visit.go_on()?;
        let (mut node, new) = self.visit.meet(&child.node, at)?;
        if !new {
            return Ok(());
        }
        let Some(bytes) = self.visit.read(&child.node, &mut node, at)? else { return Ok(()) };
        let inner = match Inner::decode(&bytes, level) {
            Ok(inner) => inner,
            Err(e) => return self.visit.malformed(&child.node, &node, at, e),
        };
        drop(bytes);
        if let Err(e) = child.holds_inner(&inner, None) {
            self.visit.misplaced(&child.node, &node, at, e)?;
        }
        if level > 1 {
            let task = |child| Task::Inner { tree, child, level: level - 1 };
            self.queue.put(inner.children.into_iter().rev().map(task));
            return Ok(());
        }
        inner.children.iter().try_for_each(|child| self.leaf(At { tree, child }))
    }

    fn leaf(&mut self, at: At) -> Result<()> {
        self.visit.go_on()?;
        let child = at.child;
        // A node of level 1 has a body for each leaf, or it isn't decoded.
        let Some(body_id) = child.body else { return Ok(()) };
        let (mut leaf_node, leaf_is_new) = self.visit.meet(&child.node, at)?;
        // The one is only right beside the other: a new leaf for an old body is compared with it.
        let mut met = None;
        if !leaf_is_new {
            let (node, is_new) = self.visit.meet(&body_id, at)?;
            if !is_new && !self.left.take(&body_id) {
                return Ok(());
            }
            met = Some((node, true));
        }
        let leaf = match self.visit.read(&child.node, &mut leaf_node, at)?.map(|bytes| Leaf::decode(&bytes)) {
            None => None,
            Some(Ok(leaf)) => Some(leaf),
            Some(Err(e)) => {
                self.visit.malformed(&child.node, &leaf_node, at, e)?;
                None
            }
        };
        let Some(leaf) = leaf else {
            self.left.is_any.store(true, Ordering::SeqCst);
            // Held while it is met: who finds that it is old finds it here.
            let mut left = self.left.lock();
            let (mut node, is_new) = met.map_or_else(|| self.visit.meet(&body_id, at), Ok)?;
            if is_new {
                left.insert(body_id);
                drop(left);
                self.visit.read(&body_id, &mut node, at)?;
            }
            return Ok(());
        };
        let (mut body_node, mut body_is_new) = met.map_or_else(|| self.visit.meet(&body_id, at), Ok)?;
        body_is_new = body_is_new || self.left.take(&body_id);
        let body = self.visit.read(&body_id, &mut body_node, at)?;
        if leaf_is_new {
            if let Err(e) = child.holds_leaf(&leaf, None) {
                self.visit.misplaced(&child.node, &leaf_node, at, e)?;
            }
            self.visit.leaf(&leaf);
        }
        let Some(bytes) = body else { return Ok(()) };
        match Body::decode(&bytes, &leaf) {
            Ok(body) if body_is_new => body.contents.iter().try_for_each(|content| match &content.data {
                Data::None => Ok(()),
                Data::Chunk(id) => self.visit.chunk(id, at),
                Data::List(list) => self.refs(list.level, &list.refs, at),
            }),
            Ok(_) => Ok(()),
            Err(e) => self.visit.malformed(&body_id, &body_node, at, e),
        }
    }

    /// What a list of this level, or a node of it, refers to. As deep as the list, which the format bounds.
    fn refs(&mut self, level: u8, refs: &[Ref], at: At) -> Result<()> {
        let chunks =
            || refs.iter().filter_map(|r| if let Ref::Chunk { id, len } = r { Some((id, *len)) } else { None });
        if level == 0 {
            return chunks().try_for_each(|(id, _)| self.visit.chunk(id, at));
        }
        if level > 1 && !self.alone {
            let child = Arc::new(at.child.clone());
            let list = |(id, len): (&ChunkId, u64)| {
                let (tree, child) = (at.tree, child.clone());
                Task::List { tree, child, node: *id, level: level - 1, len }
            };
            let mut tasks: Vec<Task> = chunks().map(list).collect();
            tasks.reverse();
            self.queue.put(tasks);
            return Ok(());
        }
        chunks().try_for_each(|(id, len)| self.list(id, level - 1, len, at))
    }

    /// A node of a list.
    fn list(&mut self, id: &ChunkId, level: u8, len: u64, at: At) -> Result<()> {
        self.visit.go_on()?;
        let (mut node, new) = self.visit.meet(id, at)?;
        if !new {
            return Ok(());
        }
        let Some(bytes) = self.visit.read(id, &mut node, at)? else { return Ok(()) };
        match ListNode::decode(&bytes, level, len) {
            Ok(decoded) => self.refs(level, &decoded.refs, at),
            Err(e) => self.visit.malformed(id, &node, at, e),
        }
    }
}

#[cfg(test)]
mod tests;
