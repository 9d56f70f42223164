//! Which chunks make up a file. A file of one chunk needs no list; the few refs of a middling file stand in its leaf's
//! body; a long list is cut by content into nodes of its own, and these into nodes above, so that a change in a file of
//! a terabyte rewrites a few nodes of some tens of kilobytes.

use super::{NODE_ENTRIES_MAX, NodeKind, read_node};
use crate::wire::{Reader, Writer};
use crate::{ChunkId, Result};

const OBJECT: &str = "chunk list";
/// How many refs may stand in a body; a longer list goes to nodes.
pub const INLINE_REFS_MAX: usize = 8;
/// A node of a list ends, on average, after so many refs.
const NODE_REFS: u64 = 512;
/// It never ends before so many...
const NODE_REFS_MIN: usize = 64;
/// ...and always after so many.
const NODE_REFS_MAX: usize = 4096;
/// More levels than any file can need.
pub(super) const LEVEL_MAX: u8 = 8;
/// What is wrong with a list in which two holes stand one behind the other: they are one. A few nodes of nothing else,
/// each named again and again, would have no end, and no contents for which anybody had to wait.
pub const HOLE_BEHIND_HOLE: &str = "a hole stands behind a hole";

/// A stretch of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ref {
    /// A chunk (level 0), or a node of the list below (above level 0), and how many bytes of the file it makes up.
    Chunk {
        /// The chunk.
        id: ChunkId,
        /// Bytes of the file.
        len: u64,
    },
    /// A hole: so many bytes that read as zeros and take no space.
    Hole {
        /// Bytes of the file.
        len: u64,
    },
}

impl Ref {
    /// Bytes of the file.
    pub fn len(&self) -> u64 {
        match self {
            Ref::Chunk { len, .. } | Ref::Hole { len } => *len,
        }
    }

    /// The chunk or node, unless it is a hole.
    pub fn chunk(&self) -> Option<ChunkId> {
        match self {
            Ref::Chunk { id, .. } => Some(*id),
            Ref::Hole { .. } => None,
        }
    }

    /// Never: a ref of no bytes is refused.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a node of a list ends after this ref, being the `count`th in it. The chunk's id decides, so that a
    /// change moves no other boundary.
    pub fn ends_node(&self, count: usize) -> bool {
        if count < NODE_REFS_MIN {
            return false;
        }
        let hit = match self {
            Ref::Chunk { id, .. } => {
                u64::from_le_bytes(id.0[24..].try_into().unwrap_or([0; 8])).is_multiple_of(NODE_REFS)
            }
            Ref::Hole { .. } => false,
        };
        hit || count >= NODE_REFS_MAX
    }
}

/// The uppermost refs of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// 0 if the refs are the file's chunks; else they are nodes, so many levels above the chunks.
    pub level: u8,
    /// The refs; together as long as the file.
    pub refs: Vec<Ref>,
    /// The keyed hash of the whole contents, under the key of data chunks: of all bytes outside of holes, followed by
    /// the offset and the length of each hole as 8 bytes each, little-endian.
    pub whole: [u8; 32],
}

/// A node of a long list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListNode {
    /// 0 if the refs are chunks, else the level of the nodes that they are, plus one.
    pub level: u8,
    /// The refs.
    pub refs: Vec<Ref>,
}

impl ListNode {
    /// The node's chunk.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(8 + self.refs.len() * 35);
        out.push(NodeKind::List as u8);
        out.push(self.level);
        encode_refs(&mut out, &self.refs);
        out
    }

    /// Read what [`ListNode::encode`] wrote; it must be of `level` and stand for `len` bytes.
    pub fn decode(bytes: &[u8], level: u8, len: u64) -> Result<Self> {
        let mut r = read_node(bytes, NodeKind::List, OBJECT)?;
        if r.u8()? != level {
            return r.fail("it is a node of another level");
        }
        let refs = decode_refs(&mut r, len, NODE_ENTRIES_MAX)?;
        r.end()?;
        Ok(ListNode { level, refs })
    }
}

pub(super) fn encode_refs(out: &mut Vec<u8>, refs: &[Ref]) {
    out.varint(refs.len() as u64);
    for r in refs {
        match r {
            Ref::Chunk { len, .. } => out.varint(len << 1),
            Ref::Hole { len } => out.varint(len << 1 | 1),
        }
    }
    for r in refs {
        if let Ref::Chunk { id, .. } = r {
            out.extend_from_slice(&id.0);
        }
    }
}

/// Refs that make up `total` bytes, `most` at the most.
pub(super) fn decode_refs(r: &mut Reader, total: u64, most: usize) -> Result<Vec<Ref>> {
    let count = r.count_up_to(1, most)?;
    let mut refs = Vec::with_capacity(count);
    let mut sum = 0u64;
    for _ in 0..count {
        let coded = r.varint()?;
        let (len, is_hole) = (coded >> 1, coded & 1 == 1);
        sum = sum.checked_add(len).map_or_else(|| r.fail("its lengths are too large"), Ok)?;
        if len == 0 {
            return r.fail("a ref stands for no bytes");
        }
        if is_hole && matches!(refs.last(), Some(Ref::Hole { .. })) {
            return r.fail(HOLE_BEHIND_HOLE);
        }
        refs.push(if is_hole { Ref::Hole { len } } else { Ref::Chunk { id: ChunkId([0; 32]), len } });
    }
    if total != sum {
        return r.fail("its refs don't add up to the length of the contents");
    }
    for chunk in &mut refs {
        if let Ref::Chunk { id, .. } = chunk {
            *id = r.id()?;
        }
    }
    Ok(refs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn refs() -> impl Strategy<Value = Vec<Ref>> {
        let one = (1u64..1 << 40, proptest::option::of(any::<[u8; 32]>())).prop_map(|(len, id)| match id {
            Some(id) => Ref::Chunk { id: ChunkId(id), len },
            None => Ref::Hole { len },
        });
        proptest::collection::vec(one, 0..50).prop_map(|mut refs| {
            refs.dedup_by(|next, one| next.chunk().is_none() && one.chunk().is_none());
            refs
        })
    }

    #[test]
    fn what_no_reader_may_take_is_refused() {
        let chunk = |len| Ref::Chunk { id: ChunkId([1; 32]), len };
        let decode = |refs: Vec<Ref>| {
            let len = refs.iter().map(Ref::len).sum();
            ListNode::decode(&ListNode { level: 0, refs }.encode(), 0, len)
        };
        assert!(decode(vec![Ref::Hole { len: 1 }, chunk(1), Ref::Hole { len: 1 }]).is_ok());
        assert!(decode(vec![chunk(1), Ref::Hole { len: 1 }, Ref::Hole { len: 1 }]).is_err());
        assert!(decode(vec![chunk(1); NODE_ENTRIES_MAX]).is_ok());
        assert!(decode(vec![chunk(1); NODE_ENTRIES_MAX + 1]).is_err());
    }

    proptest! {
        #[test]
        fn round_trip(refs in refs(), level in 0u8..4) {
            let len = refs.iter().map(Ref::len).sum();
            let node = ListNode { level, refs };
            let bytes = node.encode();
            prop_assert_eq!(ListNode::decode(&bytes, level, len).unwrap(), node);
            prop_assert!(ListNode::decode(&bytes, level + 1, len).is_err());
            prop_assert!(ListNode::decode(&bytes, level, len + 1).is_err());
            for cut in 0..bytes.len() {
                prop_assert!(ListNode::decode(&bytes[..cut], level, len).is_err());
            }
        }

        #[test]
        fn noise_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = ListNode::decode(&[&[4, 0][..], &bytes].concat(), 0, 100);
        }
    }
}
