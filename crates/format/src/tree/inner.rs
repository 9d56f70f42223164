//! An inner node: where its children begin, and what each holds.

use super::{DIR_BYTES_MAX, Leaf, NODE_ENTRIES_MAX, NODE_TEXT_MAX, NodeKind, Sums, is_dir_path, is_name, read_node};
use crate::error::malformed;
use crate::wire::Writer;
use crate::{ChunkId, Result};

const OBJECT: &str = "tree node";
/// More levels than any tree can need.
pub const LEVEL_MAX: u8 = 16;

/// A child of an inner node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// The directory of its first entry.
    pub dir: Vec<u8>,
    /// The name of its first entry.
    pub name: Vec<u8>,
    /// The child: a leaf, or an inner node of the level below.
    pub node: ChunkId,
    /// The body of a leaf.
    pub body: Option<ChunkId>,
    /// What it holds.
    pub sums: Sums,
}

impl Child {
    /// Where its first entry stands.
    pub fn key(&self) -> Key<'_> {
        (&self.dir, &self.name)
    }

    /// Whether an inner node is this child, by where it begins and ends: whoever may add can name a node anywhere, and
    /// what is named again and again has no end. `next`: where what comes behind it begins, if that is known.
    ///
    /// # Errors
    /// [`crate::Error::Malformed`]: it belongs elsewhere.
    pub fn holds_inner(&self, inner: &Inner, next: Option<Key>) -> Result<()> {
        let ends = inner.children.first().zip(inner.children.last());
        self.holds(ends.map(|(first, last)| (first.key(), last.key())), next)
    }

    /// Whether a leaf is this child, in the same way.
    ///
    /// # Errors
    /// [`crate::Error::Malformed`]: it belongs elsewhere.
    pub fn holds_leaf(&self, leaf: &Leaf, next: Option<Key>) -> Result<()> {
        let key = |at: usize| {
            let (dir, name, _) = leaf.get(at);
            (dir, name)
        };
        self.holds(leaf.len().checked_sub(1).map(|last| (key(0), key(last))), next)
    }

    fn holds(&self, ends: Option<(Key, Key)>, next: Option<Key>) -> Result<()> {
        let fits = ends.is_none_or(|(first, last)| self.key() == first && next.is_none_or(|next| last < next));
        // What stands for the parent of a root names nothing.
        if fits || self.name.is_empty() { Ok(()) } else { malformed(OBJECT, "it is not where its parent has it") }
    }
}

/// A directory and a name in it.
type Key<'a> = (&'a [u8], &'a [u8]);

/// An inner node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inner {
    /// 1 if the children are leaves, else one more than theirs.
    pub level: u8,
    /// The children in tree order, at least one.
    pub children: Vec<Child>,
}

impl Inner {
    /// What the node holds.
    pub fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        self.children.iter().for_each(|c| sums.add(&c.sums));
        sums
    }

    /// The node's chunk. Level 1 has a body for each child, the others have none.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.children.len() * 120);
        out.push(NodeKind::Inner as u8);
        out.push(self.level);
        out.varint(self.children.len() as u64);
        let mut before: &[u8] = &[];
        for c in &self.children {
            let shared = before.iter().zip(&c.dir).take_while(|(a, b)| a == b).count();
            out.varint(shared as u64);
            out.counted(&c.dir[shared..]);
            out.counted(&c.name);
            before = &c.dir;
        }
        for c in &self.children {
            for value in [c.sums.entries, c.sums.files, c.sums.dirs, c.sums.bytes] {
                out.varint(value);
            }
        }
        for c in &self.children {
            out.extend_from_slice(&c.node.0);
            if self.level == 1 {
                out.extend_from_slice(&c.body.map_or([0; 32], |b| b.0));
            }
        }
        out
    }

    /// Read what [`Inner::encode`] wrote; it must be of `level`.
    pub fn decode(bytes: &[u8], level: u8) -> Result<Self> {
        let mut r = read_node(bytes, NodeKind::Inner, OBJECT)?;
        if r.u8()? != level {
            return r.fail("it is a node of another level");
        }
        let count = r.count(39)?;
        if count == 0 || count > NODE_ENTRIES_MAX || level == 0 || level > LEVEL_MAX {
            return r.fail("it has no children, or too many, or too many levels");
        }
        let mut children: Vec<Child> = Vec::with_capacity(count);
        let mut text = 0;
        for _ in 0..count {
            let shared = r.index()?;
            let before = children.last();
            let Some(prefix) = before.map_or(&[][..], |c| &c.dir[..]).get(..shared) else {
                return r.fail("a directory shares more than there is");
            };
            let (rest, name) = (r.counted()?, r.counted()?);
            text += prefix.len() + rest.len() + name.len();
            if text > NODE_TEXT_MAX || prefix.len() + rest.len() > DIR_BYTES_MAX {
                return r.fail("its directories and names are too long");
            }
            let (dir, name) = ([prefix, rest].concat(), name.to_vec());
            if !is_dir_path(&dir) || !is_name(&name) || before.is_some_and(|c| (&c.dir, &c.name) >= (&dir, &name)) {
                return r.fail("its children are not in order");
            }
            children.push(Child { dir, name, node: ChunkId([0; 32]), body: None, sums: Sums::default() });
        }
        for c in &mut children {
            c.sums = Sums { entries: r.varint()?, files: r.varint()?, dirs: r.varint()?, bytes: r.varint()? };
        }
        for c in &mut children {
            c.node = r.id()?;
            c.body = if level == 1 { Some(r.id()?) } else { None };
        }
        r.end()?;
        let mut nodes: Vec<&ChunkId> = children.iter().map(|c| &c.node).collect();
        nodes.sort_unstable();
        if nodes.windows(2).any(|two| two[0] == two[1]) {
            return r.fail("two of its children are the same");
        }
        Ok(Inner { level, children })
    }

    /// The child in which an entry would stand: the last one that begins at or before it, or else the first.
    pub fn find(&self, dir: &[u8], name: &[u8]) -> usize {
        self.children.partition_point(|c| (&c.dir[..], &c.name[..]) <= (dir, name)).saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(level: u8) -> Inner {
        let child = |dir: &[u8], name: &[u8], b: u8| Child {
            dir: dir.to_vec(),
            name: name.to_vec(),
            node: ChunkId([b; 32]),
            body: (level == 1).then_some(ChunkId([b + 100; 32])),
            sums: Sums { entries: 300, files: 200, dirs: 50, bytes: 1 << 40 },
        };
        Inner { level, children: vec![child(b"", b"a", 1), child(b"home\0u", b"b", 2), child(b"home\0v", b"a", 3)] }
    }

    #[test]
    fn round_trip_cuts_and_search() {
        for level in [1, 2] {
            let inner = sample(level);
            let bytes = inner.encode();
            assert_eq!(Inner::decode(&bytes, level).unwrap(), inner);
            assert!(Inner::decode(&bytes, 3 - level).is_err());
            for cut in 0..bytes.len() {
                assert!(Inner::decode(&bytes[..cut], level).is_err());
            }
        }
        let inner = sample(1);
        assert_eq!(inner.find(b"", b"A"), 0);
        assert_eq!(inner.find(b"home\0u", b"a"), 0);
        assert_eq!(inner.find(b"home\0u", b"b"), 1);
        assert_eq!(inner.find(b"zzz", b"b"), 2);
        assert_eq!(inner.sums().entries, 900);
    }

    /// Nodes that are right in all but one thing.
    #[test]
    fn what_no_reader_may_take_is_refused() {
        let of = |level: u8, children: usize| {
            let node = |n: usize| {
                let mut id = [0; 32];
                id[..8].copy_from_slice(&n.to_le_bytes());
                ChunkId(id)
            };
            let child = |n: usize| Child {
                dir: Vec::new(),
                name: format!("{n:06}").into_bytes(),
                node: node(n),
                body: (level == 1).then_some(ChunkId([2; 32])),
                sums: Sums { entries: 1, files: 1, ..Sums::default() },
            };
            Inner::decode(&Inner { level, children: (0..children).map(child).collect() }.encode(), level)
        };
        assert!(of(1, NODE_ENTRIES_MAX).is_ok());
        assert!(of(1, NODE_ENTRIES_MAX + 1).is_err());
        assert!(of(LEVEL_MAX, 1).is_ok());
        assert!(of(LEVEL_MAX + 1, 1).is_err());
    }

    /// Children in directories of nearly 1 MiB that share all but their ends.
    fn bomb(children: usize) -> Vec<u8> {
        let dir = crate::tree::leaf::tests::long_dir();
        let mut out = vec![NodeKind::Inner as u8, 2];
        out.varint(children as u64);
        for at in 0..children {
            let end = format!("{at:04}");
            let shared = if at == 0 { 0 } else { dir.len() };
            out.varint(shared as u64);
            out.counted(&[&dir[shared..], end.as_bytes()].concat());
            out.counted(b"x");
        }
        out.resize(out.len() + children * 4, 0);
        for at in 0..children {
            let mut node = [0; 32];
            node[..8].copy_from_slice(&(at as u64).to_le_bytes());
            out.extend_from_slice(&node);
        }
        out
    }

    /// Some KB of nodes, each named again and again, would be a tree without end.
    #[test]
    fn no_child_is_named_twice() {
        let mut inner = sample(2);
        inner.children[1].node = inner.children[0].node;
        assert!(Inner::decode(&inner.encode(), 2).is_err());
    }

    #[test]
    fn a_child_is_where_its_parent_has_it() {
        let inner = sample(2);
        let [first, second, third] = &inner.children[..] else { panic!("three children") };
        let mut below = sample(1);
        below.children.truncate(2);
        let parent = |child: &Child| Child { body: None, ..child.clone() };
        assert!(parent(first).holds_inner(&below, Some(third.key())).is_ok());
        assert!(parent(first).holds_inner(&below, None).is_ok());
        assert!(parent(first).holds_inner(&below, Some(second.key())).is_err(), "it reaches into what follows");
        assert!(parent(second).holds_inner(&below, None).is_err(), "it begins elsewhere");
        let root = Child { dir: Vec::new(), name: Vec::new(), ..parent(first) };
        assert!(root.holds_inner(&below, None).is_ok());
    }

    #[test]
    fn shared_directories_do_not_fill_memory() {
        assert!(Inner::decode(&bomb(3), 2).is_ok());
        assert!(Inner::decode(&bomb(5), 2).is_err());
        assert!(Inner::decode(&bomb(8192), 2).is_err());
    }

    proptest! {
        #[test]
        fn bent_bytes_never_panic(at in any::<prop::sample::Index>(), value in any::<u8>()) {
            let mut bytes = sample(1).encode();
            let at = at.index(bytes.len());
            bytes[at] = value;
            let _ = Inner::decode(&bytes, 1);
        }
    }
}
