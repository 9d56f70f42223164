//! Building a tree from entries that come in order, with leaves of an older tree taken over whole where nothing
//! changed.

use super::node::Nodes;
use crate::{Error, Result};
use drumlin_format::snapshot::Root;
use drumlin_format::tree::{Body, Boundaries, Child, Content, DIR_BYTES_MAX, Inner, Leaf, Meta, Owners, is_name};

/// Where names of users and groups come from.
pub trait NameSource {
    /// A user's name.
    fn user(&mut self, uid: u32) -> Option<Vec<u8>>;
    /// A group's name.
    fn group(&mut self, gid: u32) -> Option<Vec<u8>>;
}

/// Builds a tree.
pub struct TreeWriter {
    boundaries: Boundaries,
    names: Box<dyn NameSource + Send>,
    state: State,
    dir: Vec<u8>,
    dir_digest: Option<[u8; 16]>,
}

/// What is not yet in a node: small, and cloned for a checkpoint.
#[derive(Clone, Default)]
struct State {
    leaf: Leaf,
    body: Body,
    /// What the contents in `body` weigh.
    weight: usize,
    /// Children that wait for their node; the first level's are leaves.
    levels: Vec<Vec<Child>>,
}

impl TreeWriter {
    /// An empty tree.
    pub fn new(boundaries: Boundaries, names: Box<dyn NameSource + Send>) -> Self {
        TreeWriter { boundaries, names, state: State::default(), dir: Vec::new(), dir_digest: None }
    }

    /// Append an entry, which comes after all before it in tree order.
    pub fn push(&mut self, nodes: &mut Nodes, dir: &[u8], name: &[u8], meta: &Meta, content: Content) -> Result<()> {
        // What a reader would refuse must not be written.
        content.check(meta).map_err(|e| Error::Misuse(format!("an entry can't be stored: {e}")))?;
        if dir.len() > DIR_BYTES_MAX || !is_name(name) {
            return Err(Error::Misuse(
                "an entry can't be stored: its path is too long, or its name is not valid".into(),
            ));
        }
        self.state.leaf.push(dir, name, meta);
        self.state.weight += content.weight();
        self.state.body.contents.push(content);
        let hash = self.hash(dir, name);
        if Boundaries::leaf_ends(hash, self.state.leaf.len(), self.state.leaf.text_bytes())
            || Boundaries::body_ends(self.state.weight)
        {
            self.state.end_leaf(nodes, &mut *self.names, Some(hash))?;
        }
        Ok(())
    }

    /// Whether a leaf has just ended, so that an old one may follow whole.
    pub fn at_boundary(&self) -> bool {
        self.state.leaf.is_empty()
    }

    /// Append all entries of an old leaf, whose last entry is `last`, without looking at them again. Only at a
    /// boundary.
    ///
    /// An old leaf that its tree's end cut short is not taken over by the caller unless it ends this tree as well.
    pub fn push_leaf(&mut self, nodes: &mut Nodes, child: Child, last: (&[u8], &[u8])) -> Result<()> {
        debug_assert!(self.at_boundary());
        let hash = self.hash(last.0, last.1);
        self.state.push_child(nodes, 0, child, Some(hash))
    }

    /// Whether an old leaf of so many entries and bytes of text, ending with `last`, ends where this tree would end it.
    pub fn would_end(&mut self, last: (&[u8], &[u8]), entries: usize, text: usize) -> bool {
        Boundaries::leaf_ends(self.hash(last.0, last.1), entries, text)
    }

    fn hash(&mut self, dir: &[u8], name: &[u8]) -> u64 {
        let digest = match self.dir_digest {
            Some(digest) if self.dir == dir => digest,
            _ => {
                self.dir.clear();
                self.dir.extend_from_slice(dir);
                *self.dir_digest.insert(self.boundaries.dir_digest(dir))
            }
        };
        self.boundaries.hash(&digest, name)
    }

    /// The root of what was appended so far; the tree can go on. Nodes are put, not flushed.
    pub fn checkpoint(&mut self, nodes: &mut Nodes) -> Result<Option<Root>> {
        self.state.clone().end(nodes, &mut *self.names)
    }

    /// The root of the whole tree; `None` if it is empty. Nodes are put, not flushed.
    pub fn finish(mut self, nodes: &mut Nodes) -> Result<Option<Root>> {
        std::mem::take(&mut self.state).end(nodes, &mut *self.names)
    }
}

impl State {
    /// Put the leaf at hand. `hash` is its last entry's, `None` at the tree's end.
    fn end_leaf(&mut self, nodes: &mut Nodes, names: &mut dyn NameSource, hash: Option<u64>) -> Result<()> {
        let (dir, name, _) = self.leaf.get(0);
        let (dir, name) = (dir.to_vec(), name.to_vec());
        self.leaf.owners = owners(&self.leaf, names);
        let node = nodes.put(&self.leaf.encode())?;
        let body = nodes.put(&self.body.encode())?;
        let child = Child { dir, name, node, body: Some(body), sums: self.leaf.sums() };
        self.leaf.clear();
        self.body.contents.clear();
        self.weight = 0;
        self.push_child(nodes, 0, child, hash)
    }

    fn push_child(&mut self, nodes: &mut Nodes, below: usize, child: Child, hash: Option<u64>) -> Result<()> {
        if self.levels.len() == below {
            self.levels.push(Vec::new());
        }
        self.levels[below].push(child);
        let level = below as u8 + 1;
        let children = &self.levels[below];
        let text = children.iter().map(|c| c.dir.len() + c.name.len()).sum();
        if hash.is_some_and(|hash| Boundaries::inner_ends(hash, level, children.len(), text)) {
            let parent = self.end_inner(nodes, below)?;
            self.push_child(nodes, below + 1, parent, hash)?;
        }
        Ok(())
    }

    fn end_inner(&mut self, nodes: &mut Nodes, below: usize) -> Result<Child> {
        let inner = Inner { level: below as u8 + 1, children: std::mem::take(&mut self.levels[below]) };
        let node = nodes.put(&inner.encode())?;
        let sums = inner.sums();
        let first = inner.children.into_iter().next().expect("an inner node ends after a child");
        Ok(Child { dir: first.dir, name: first.name, node, body: None, sums })
    }

    /// Put all that waits, up to a single root.
    fn end(mut self, nodes: &mut Nodes, names: &mut dyn NameSource) -> Result<Option<Root>> {
        if !self.leaf.is_empty() {
            self.end_leaf(nodes, names, None)?;
        }
        let mut below = 0;
        while below < self.levels.len() {
            let above = self.levels[below + 1..].iter().any(|l| !l.is_empty());
            if !above && below > 0 && self.levels[below].len() == 1 {
                // A single inner node needs none above it.
                let top = &self.levels[below][0];
                return Ok(Some(Root { node: top.node, level: below as u8, sums: top.sums }));
            }
            if !self.levels[below].is_empty() {
                let parent = self.end_inner(nodes, below)?;
                self.push_child(nodes, below + 1, parent, None)?;
            }
            below += 1;
        }
        Ok(None)
    }
}

fn owners(leaf: &Leaf, names: &mut dyn NameSource) -> Owners {
    let mut owners = Owners::default();
    let ids = |of: fn(&Meta) -> u32| {
        let mut ids: Vec<u32> = leaf.iter().map(|(_, _, m)| of(m)).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    };
    owners.users.extend(ids(|m| m.uid).into_iter().filter_map(|id| Some((id, names.user(id)?))));
    owners.groups.extend(ids(|m| m.gid).into_iter().filter_map(|id| Some((id, names.group(id)?))));
    owners
}
