//! A way through a tree that sees its nodes: each may be entered or passed over, and what lies outside of a range of
//! keys is never read. One bad node costs what is below it, not the rest.

use crate::select::TreePath;
use drumlin_format::ChunkId;
use drumlin_format::pack::PackKind;
use drumlin_format::snapshot::Root;
use drumlin_format::tree::{Body, Child, Inner, Leaf};
use drumlin_repo::pack::Reader;
use drumlin_repo::{Error, Result};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// A place in the tree's order: directory and name.
pub(crate) type Key = (Vec<u8>, Vec<u8>);

/// A stretch of the tree's order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Span {
    /// From here on.
    pub start: Key,
    /// Up to, not including; `None`: to the end.
    pub end: Option<Key>,
}

impl Span {
    /// The one entry of a path; nothing for the root.
    pub fn entry(path: &TreePath) -> Self {
        let Some((dir, name)) = path.entry() else { return Span { start: Key::default(), end: Some(Key::default()) } };
        // No name contains a zero byte, so nothing comes between.
        Span { start: (dir.to_vec(), name.to_vec()), end: Some((dir.to_vec(), [name, &[0]].concat())) }
    }

    /// What stands right below a directory.
    pub fn children(dir: &[u8]) -> Self {
        Span { start: (dir.to_vec(), Vec::new()), end: Some(([dir, &[0]].concat(), Vec::new())) }
    }

    /// All that is below a directory.
    pub fn below(dir: &[u8]) -> Self {
        // Everything below begins with the directory and a zero byte, of which a one byte is the successor.
        let end = (!dir.is_empty()).then(|| ([dir, &[1]].concat(), Vec::new()));
        Span { start: (dir.to_vec(), Vec::new()), end }
    }

    /// Whether a key comes before its end.
    pub fn before_end(&self, key: (&[u8], &[u8])) -> bool {
        self.end.as_ref().is_none_or(|end| key < (&end.0, &end.1))
    }
}

/// The next thing on the way.
#[derive(Clone, Copy)]
pub(crate) struct Head<'a> {
    /// The node, not entered yet.
    pub child: &'a Child,
    /// 0 for a leaf.
    pub level: u8,
    /// Where the next node begins, as far as that is known.
    pub next: Option<(&'a [u8], &'a [u8])>,
}

impl Head<'_> {
    /// Where it begins.
    pub fn first(&self) -> (&[u8], &[u8]) {
        (&self.child.dir, &self.child.name)
    }
}

/// A leaf that was entered, and which of its entries lie in the span.
pub(crate) struct Entered {
    pub child: Child,
    pub leaf: Arc<Leaf>,
    pub within: Range<usize>,
}

/// Reads nodes, and keeps the last few decoded: ways through neighbouring parts of a tree meet the same ones.
pub(crate) struct Nodes {
    reader: Arc<Reader>,
    inners: RefCell<Vec<(ChunkId, Arc<Inner>)>>,
    leaves: RefCell<Vec<(ChunkId, Arc<Leaf>)>>,
}

/// So many of each: a few kilobytes to some dozens each.
const NODES_KEPT: usize = 8;

impl Nodes {
    pub fn new(reader: &Arc<Reader>) -> Rc<Self> {
        Rc::new(Nodes { reader: reader.clone(), inners: RefCell::default(), leaves: RefCell::default() })
    }

    fn inner(&self, id: &ChunkId, level: u8) -> Result<Arc<Inner>> {
        // A node of another level is refused by its decoder, so it is not kept under another level either.
        if let Some(inner) = kept(&self.inners, id).filter(|inner| inner.level == level) {
            return Ok(inner);
        }
        let inner = Inner::decode(&self.reader.chunk(PackKind::Tree, id)?, level).map_err(|e| damaged(id, e))?;
        Ok(keep(&self.inners, id, inner))
    }

    fn leaf(&self, child: &Child) -> Result<Arc<Leaf>> {
        let id = &child.node;
        if let Some(leaf) = kept(&self.leaves, id) {
            return Ok(leaf);
        }
        let leaf = Leaf::decode(&self.reader.chunk(PackKind::Tree, id)?).map_err(|e| damaged(id, e))?;
        Ok(keep(&self.leaves, id, leaf))
    }
}

fn kept<T>(all: &RefCell<Vec<(ChunkId, Arc<T>)>>, id: &ChunkId) -> Option<Arc<T>> {
    let mut all = all.borrow_mut();
    let at = all.iter().position(|(of, _)| of == id)?;
    all[at..].rotate_left(1);
    all.last().map(|(_, node)| node.clone())
}

fn keep<T>(all: &RefCell<Vec<(ChunkId, Arc<T>)>>, id: &ChunkId, node: T) -> Arc<T> {
    let (mut all, node) = (all.borrow_mut(), Arc::new(node));
    if all.len() == NODES_KEPT {
        all.remove(0);
    }
    all.push((*id, node.clone()));
    node
}

/// The way. In memory: one path from the root.
pub(crate) struct Steps {
    nodes: Rc<Nodes>,
    span: Span,
    /// From the root down: nodes and the position of the head among their children.
    path: Vec<Frame>,
}

struct Frame {
    inner: Arc<Inner>,
    at: usize,
}

impl Steps {
    /// Through a span of the tree with this root.
    pub fn new(reader: &Arc<Reader>, root: Option<Root>, span: Span) -> Self {
        Steps::over(&Nodes::new(reader), root, span)
    }

    /// Through a span of a tree, with nodes that are shared with other steps.
    pub fn over(nodes: &Rc<Nodes>, root: Option<Root>, span: Span) -> Self {
        let mut steps = Steps { nodes: nodes.clone(), span, path: Vec::new() };
        if let Some(root) = root {
            // A node above the root, so that the root is a head like any other.
            let child = Child { dir: Vec::new(), name: Vec::new(), node: root.node, body: None, sums: root.sums };
            let inner = Arc::new(Inner { level: root.level.saturating_add(1), children: vec![child] });
            steps.path.push(Frame { inner, at: 0 });
        }
        steps.settle();
        steps
    }

    /// Leave nodes that are used up, and pass over what lies before the span; end at its end.
    fn settle(&mut self) {
        while let Some(frame) = self.path.last() {
            match frame.inner.children.get(frame.at) {
                Some(child) if self.span.before_end((&child.dir, &child.name)) => return,
                // All that follows comes after the span as well.
                Some(_) => self.path.clear(),
                None => {
                    self.path.pop();
                }
            }
        }
    }

    /// The next node; `None` at the end.
    pub fn head(&self) -> Option<Head<'_>> {
        let frame = self.path.last()?;
        let child = frame.inner.children.get(frame.at)?;
        let next = self.path.iter().rev().find_map(|f| {
            // Above the last frame the head's own ancestors are at `at - 1`.
            let at = if std::ptr::eq(f, frame) { f.at + 1 } else { f.at };
            f.inner.children.get(at).map(|c| (&c.dir[..], &c.name[..]))
        });
        Some(Head { child, level: frame.inner.level - 1, next })
    }

    /// How many nodes are open above the head.
    pub fn depth(&self) -> usize {
        self.path.len()
    }

    /// Pass over the head.
    pub fn skip(&mut self) {
        if let Some(frame) = self.path.last_mut() {
            frame.at += 1;
        }
        self.settle();
    }

    /// Enter the head: the nodes below it come next, or, of a leaf, its entries are given. After an error the head is
    /// behind as if it had been passed over.
    pub fn enter(&mut self) -> Result<Option<Entered>> {
        let Some(frame) = self.path.last_mut() else { return Ok(None) };
        let Some(child) = frame.inner.children.get(frame.at).cloned() else { return Ok(None) };
        let level = frame.inner.level - 1;
        frame.at += 1;
        let next = self.path.iter().rev().find_map(|frame| frame.inner.children.get(frame.at));
        let next = next.map(|next| (next.dir.clone(), next.name.clone()));
        let next = next.as_ref().map(|(dir, name)| (&dir[..], &name[..]));
        if level == 0 {
            self.settle();
            let leaf = self.nodes.leaf(&child)?;
            child.holds_leaf(&leaf, next).map_err(|e| damaged(&child.node, e))?;
            let start = (&self.span.start.0[..], &self.span.start.1[..]);
            let from = partition(&leaf, |key| key < start);
            let to = partition(&leaf, |key| self.span.before_end(key)).max(from);
            return Ok(Some(Entered { child, leaf, within: from..to }));
        }
        let inner = self.nodes.inner(&child.node, level);
        match inner
            .and_then(|inner| child.holds_inner(&inner, next).map(|()| inner).map_err(|e| damaged(&child.node, e)))
        {
            Ok(inner) => {
                let at = inner.find(&self.span.start.0, &self.span.start.1);
                self.path.push(Frame { inner, at });
                self.settle();
                Ok(None)
            }
            Err(e) => {
                self.settle();
                Err(e)
            }
        }
    }

    /// Whether all of the head lies in the span.
    pub fn holds(&self, head: &Head) -> bool {
        head.first() >= (&self.span.start.0, &self.span.start.1)
            && match (&self.span.end, head.next) {
                (None, _) => true,
                (Some(end), Some(next)) => next <= (&end.0[..], &end.1[..]),
                (Some(_), None) => false,
            }
    }
}

/// How many entries of a leaf, from its start, are so.
pub(crate) fn partition(leaf: &Leaf, so: impl Fn((&[u8], &[u8])) -> bool) -> usize {
    let (mut low, mut high) = (0, leaf.len());
    while low < high {
        let middle = low + (high - low) / 2;
        let (dir, name, _) = leaf.get(middle);
        if so((dir, name)) { low = middle + 1 } else { high = middle }
    }
    low
}

/// Read a leaf's body.
pub(crate) fn body(reader: &Reader, child: &Child, leaf: &Leaf) -> Result<Body> {
    let id = child.body.ok_or(Error::MissingChunk(child.node))?;
    Body::decode(&reader.chunk(PackKind::Tree, &id)?, leaf).map_err(|source| damaged(&id, source))
}

fn damaged(id: &ChunkId, source: drumlin_format::Error) -> Error {
    Error::Damaged { object: format!("tree node {id}"), source }
}
