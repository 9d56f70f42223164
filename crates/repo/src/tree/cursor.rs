//! Reading a tree in order, from any entry on, in memory for one path from the root.

use crate::pack::Reader;
use crate::{Error, Result};
use drumlin_format::pack::PackKind;
use drumlin_format::snapshot::Root;
use drumlin_format::tree::{Body, Child, Inner, Leaf};
use drumlin_format::{ChunkId, Error as FormatError};
use std::sync::Arc;

/// A leaf as an inner node names it.
pub type LeafRef = Child;

/// A place in a tree.
pub struct Cursor {
    reader: Arc<Reader>,
    root: Option<Root>,
    /// From the root down to level 1; the numbers are the children to come.
    path: Vec<(Inner, usize)>,
    /// The leaf that was given last, and where what comes behind it begins.
    last: Option<(ChunkId, Option<Key>)>,
}

/// Directory and name.
type Key = (Vec<u8>, Vec<u8>);

impl Cursor {
    /// At the start of the tree with this root, which is read; what is below it, when it is come to.
    pub fn new(reader: Arc<Reader>, root: Option<Root>) -> Result<Self> {
        let mut cursor = Cursor { reader, root, path: Vec::new(), last: None };
        if let Some(root) = root {
            let inner = cursor.inner(&root.node, root.level)?;
            cursor.path.push((inner, 0));
        }
        Ok(cursor)
    }

    /// Go to the leaf that holds an entry, or would.
    ///
    /// # Errors
    /// A node on the way can't be read: the next leaf is then the first one behind all that it holds.
    pub fn seek(&mut self, dir: &[u8], name: &[u8]) -> Result<()> {
        self.path.clear();
        self.last = None;
        let Some(root) = self.root else { return Ok(()) };
        let (mut node, mut level) = (root.node, root.level);
        let mut parent: Option<Child> = None;
        loop {
            let inner = self.inner(&node, level)?;
            if let Some(parent) = &parent {
                self.is_below(parent, &inner)?;
            }
            let at = inner.find(dir, name);
            parent = inner.children.get(at).cloned();
            node = inner.children[at].node;
            // Above level 1 the child is entered, so the next one to come is behind it.
            self.path.push((inner, if level == 1 { at } else { at + 1 }));
            if level == 1 {
                return Ok(());
            }
            level -= 1;
        }
    }

    /// The next leaf, not read yet.
    ///
    /// # Errors
    /// The node that holds it can't be read: the next one is then the first behind all that it holds.
    pub fn next_leaf(&mut self) -> Result<Option<LeafRef>> {
        loop {
            let Some((inner, at)) = self.path.last_mut() else { return Ok(None) };
            let Some(child) = inner.children.get(*at) else {
                self.path.pop();
                continue;
            };
            *at += 1;
            let (child, level) = (child.clone(), inner.level);
            if level == 1 {
                self.last = Some((child.node, self.next_key().map(|(dir, name)| (dir.to_vec(), name.to_vec()))));
                return Ok(Some(child));
            }
            let below = self.inner(&child.node, level - 1)?;
            self.is_below(&child, &below)?;
            self.path.push((below, 0));
        }
    }

    /// Where what comes next begins, as far as the nodes say that were read.
    fn next_key(&self) -> Option<(&[u8], &[u8])> {
        self.path.iter().rev().find_map(|(inner, at)| inner.children.get(*at)).map(Child::key)
    }

    /// Whether an inner node is where its parent names it.
    fn is_below(&self, child: &Child, inner: &Inner) -> Result<()> {
        child.holds_inner(inner, self.next_key()).map_err(|e| damaged(&child.node, e))
    }

    fn inner(&self, id: &ChunkId, level: u8) -> Result<Inner> {
        let bytes = self.reader.chunk(PackKind::Tree, id)?;
        Inner::decode(&bytes, level).map_err(|e| damaged(id, e))
    }

    /// Read a leaf.
    pub fn leaf(&self, child: &LeafRef) -> Result<Leaf> {
        let next = self.last.as_ref().filter(|(node, _)| *node == child.node).and_then(|(_, next)| next.as_ref());
        read_leaf(&self.reader, child, next.map(|(dir, name)| (&dir[..], &name[..])))
    }

    /// Read a leaf's body.
    pub fn body(&self, child: &LeafRef, leaf: &Leaf) -> Result<Body> {
        read_body(&self.reader, child, leaf)
    }
}

/// Read a leaf, which ends before `next`, if that is known.
pub(crate) fn read_leaf(reader: &Reader, child: &LeafRef, next: Option<(&[u8], &[u8])>) -> Result<Leaf> {
    let bytes = reader.chunk(PackKind::Tree, &child.node)?;
    let leaf = Leaf::decode(&bytes).map_err(|e| damaged(&child.node, e))?;
    child.holds_leaf(&leaf, next).map_err(|e| damaged(&child.node, e))?;
    Ok(leaf)
}

/// Read a leaf's body.
pub(crate) fn read_body(reader: &Reader, child: &LeafRef, leaf: &Leaf) -> Result<Body> {
    let id = child.body.ok_or(Error::MissingChunk(child.node))?;
    let bytes = reader.chunk(PackKind::Tree, &id)?;
    let body = Body::decode(&bytes, leaf).map_err(|e| damaged(&id, e))?;
    reader.index().expect_near(None, body.contents.iter().flat_map(|content| content.data.names()));
    Ok(body)
}

fn damaged(id: &ChunkId, source: FormatError) -> Error {
    Error::Damaged { object: format!("tree node {id}"), source }
}
