//! Building a tree from entries that come in order, with leaves of an older tree taken over whole where nothing
//! changed.

use super::node::Nodes;
use crate::{Error, Result};
use drumlin_format::snapshot::Root;
use drumlin_format::tree::{
    Body, Boundaries, Child, Content, Inner, LEVEL_MAX, Leaf, Meta, NAME_BYTES_MAX, Owners, TREE_CHUNK_BYTES_MAX,
    is_dir_path, is_name,
};

/// What the contents of a leaf weigh at the most, but those of a single entry: room is left for chunks' ids.
const WEIGHT_MAX: usize = TREE_CHUNK_BYTES_MAX / 4 * 3;

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
    /// Directory and name of the last entry, once there is one.
    last: Option<(Vec<u8>, Vec<u8>)>,
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
        TreeWriter { boundaries, names, state: State::default(), dir: Vec::new(), dir_digest: None, last: None }
    }

    /// Append an entry, which comes after all before it in tree order.
    pub fn push(&mut self, nodes: &mut Nodes, dir: &[u8], name: &[u8], meta: &Meta, content: Content) -> Result<()> {
        // What a reader would refuse must not be written.
        content.check(meta).map_err(|e| Error::Misuse(format!("an entry can't be stored: {e}")))?;
        if !is_name(name) {
            return Err(unstorable("its name is too long, or not valid"));
        }
        self.make_room(nodes, &content)?;
        self.go_on_to(dir, name)?;
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

    /// End the leaf at hand if an entry with these contents would make its body too long for readers. Whoever looks for
    /// a boundary before an entry calls it before.
    pub fn make_room(&mut self, nodes: &mut Nodes, content: &Content) -> Result<()> {
        if self.at_boundary() || self.state.weight + content.weight() <= WEIGHT_MAX {
            return Ok(());
        }
        let (dir, name, _) = self.state.leaf.get(self.state.leaf.len() - 1);
        let (dir, name) = (dir.to_vec(), name.to_vec());
        let hash = self.hash(&dir, &name);
        self.state.end_leaf(nodes, &mut *self.names, Some(hash))
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
        self.go_on_to(&child.dir, &child.name)?;
        // The leaf may be of one entry.
        if (&child.dir[..], &child.name[..]) != last {
            self.go_on_to(last.0, last.1)?;
        }
        let hash = self.hash(last.0, last.1);
        self.state.push_child(nodes, 0, child, Some(hash))
    }

    /// Whether an old leaf of so many entries and bytes of text, ending with `last`, ends where this tree would end it.
    pub fn would_end(&mut self, last: (&[u8], &[u8]), entries: usize, text: usize) -> bool {
        Boundaries::leaf_ends(self.hash(last.0, last.1), entries, text)
    }

    /// The next entry is this one: it has to be behind the last one, where an entry can be.
    fn go_on_to(&mut self, dir: &[u8], name: &[u8]) -> Result<()> {
        match &mut self.last {
            Some((last_dir, last)) if last_dir == dir && &last[..] < name => {
                last.clear();
                last.extend_from_slice(name);
            }
            Some((last_dir, _)) if &last_dir[..] >= dir => return Err(unstorable("it comes before the last one")),
            _ if !is_dir_path(dir) => return Err(unstorable("its path is too long, or not valid")),
            last => *last = Some((dir.to_vec(), name.to_vec())),
        }
        Ok(())
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
        let level = level_above(below)?;
        let children = &self.levels[below];
        let text = children.iter().map(|c| c.dir.len() + c.name.len()).sum();
        if hash.is_some_and(|hash| Boundaries::inner_ends(hash, level, children.len(), text)) {
            let parent = self.end_inner(nodes, below)?;
            self.push_child(nodes, below + 1, parent, hash)?;
        }
        Ok(())
    }

    fn end_inner(&mut self, nodes: &mut Nodes, below: usize) -> Result<Child> {
        let inner = Inner { level: level_above(below)?, children: std::mem::take(&mut self.levels[below]) };
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

/// The level of a node above so many others. None that is higher than a reader takes.
fn level_above(below: usize) -> Result<u8> {
    let level = u8::try_from(below + 1).ok().filter(|level| *level <= LEVEL_MAX);
    level.ok_or_else(|| Error::Misuse(format!("a tree of more than {LEVEL_MAX} levels can't be stored")))
}

fn unstorable(why: &str) -> Error {
    Error::Misuse(format!("an entry can't be stored: {why}"))
}

fn owners(leaf: &Leaf, names: &mut dyn NameSource) -> Owners {
    let mut owners = Owners::default();
    let ids = |of: fn(&Meta) -> u32| {
        let mut ids: Vec<u32> = leaf.iter().map(|(_, _, m)| of(m)).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    };
    let fits = |name: &Vec<u8>| name.len() <= NAME_BYTES_MAX;
    owners.users.extend(ids(|m| m.uid).into_iter().filter_map(|id| Some((id, names.user(id).filter(fits)?))));
    owners.groups.extend(ids(|m| m.gid).into_iter().filter_map(|id| Some((id, names.group(id).filter(fits)?))));
    owners
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_tree_is_higher_than_a_reader_takes() {
        assert_eq!(level_above(0).unwrap(), 1);
        assert_eq!(level_above(15).unwrap(), LEVEL_MAX);
        assert!(level_above(16).is_err());
        assert!(level_above(256).is_err());
    }
}
