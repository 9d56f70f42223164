//! Nodes put into tree packs: leaves, bodies and inner nodes each gather in blocks of their own, so that a run that
//! needs leaves alone reads leaves alone.

use crate::pack::{BlockBuilder, Coder, Coding};
use crate::{Error, Result, WriteSession};
use drumlin_format::ChunkId;
use drumlin_format::tree::{NodeKind, TREE_CHUNK_BYTES_MAX};
use drumlin_seal::IdKey;
use std::sync::Arc;

/// A block of nodes that has gathered so much is full. Small, because a single node is often all that is wanted of it.
pub const TREE_BLOCK_BYTES: usize = 256 << 10;
/// Names and numbers compress well at any level; this one is fast.
const CODING: Coding = Coding::Zstd(3);

/// What a node is, as far as its block is concerned: a number from 0 to 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Leaves.
    Leaf,
    /// Bodies, and lists: what only those read who want contents.
    Body,
    /// Inner nodes.
    Inner,
}

impl Family {
    /// The family of an encoded node.
    pub fn of(node: &[u8]) -> Self {
        match NodeKind::of(node) {
            Some(NodeKind::Leaf) => Family::Leaf,
            Some(NodeKind::Inner) => Family::Inner,
            Some(NodeKind::Body | NodeKind::List) | None => Family::Body,
        }
    }
}

/// Puts nodes into the tree packs of a session.
pub struct Nodes {
    session: Arc<WriteSession>,
    ids: Arc<IdKey>,
    coder: Coder,
    blocks: [BlockBuilder; 3],
}

impl Nodes {
    /// For a session whose key may write.
    pub fn new(session: Arc<WriteSession>, ids: Arc<IdKey>) -> Result<Self> {
        let coder = Coder::new().map_err(|e| Error::Machine(format!("zstd failed: {e}")))?;
        Ok(Nodes { session, ids, coder, blocks: Default::default() })
    }

    /// Store a node unless the repository has it.
    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<ChunkId> {
        if bytes.len() > TREE_CHUNK_BYTES_MAX {
            return Err(Error::Misuse(format!("a node of {} bytes is longer than any reader takes", bytes.len())));
        }
        let id = ChunkId(self.ids.id(bytes));
        if self.session.index().claim(&id)? {
            let block = &mut self.blocks[Family::of(bytes) as usize];
            block.push(id, bytes);
            if block.raw.len() >= TREE_BLOCK_BYTES {
                self.session.tree.append(block, &mut self.coder, CODING)?;
            }
        }
        Ok(id)
    }

    /// Hand the blocks at hand to the packs.
    pub fn flush(&mut self) -> Result<()> {
        for block in &mut self.blocks {
            self.session.tree.append(block, &mut self.coder, CODING)?;
        }
        Ok(())
    }
}
