//! The trees of all snapshots: each node is read once however many of them share it, and each chunk of contents that a
//! node leads to is in a pack that the index names.

use super::nodes::{Node, Nodes};
use super::small::Tree;
use crate::Result;
use crate::lock::lock;
use crate::monitor::add;
use crate::reach::bits::Bits;
use crate::reach::find::{Finder, Found};
use crate::reach::keys::Place;
use crate::reach::walk::{self, At, Visit};
use drumlin_format::ChunkId;
use drumlin_format::pack::PackKind;
use drumlin_format::tree::{Child, Leaf};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;

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

/// Walk all trees.
pub(super) fn walk(nodes: &Nodes, seen: &Bits, trees: &[Tree]) -> Result<Met> {
    let roots = trees.iter().enumerate().filter_map(|(tree, t)| Some((tree, t.root?)));
    let places = Places::default();
    let walked = walk::walk(roots, nodes.context.workers, || {
        let finder = Finder::new(&nodes.packs.keys, nodes.index, PackKind::Data, None);
        Looker { nodes, seen, places: &places, met: Met::default(), finder }
    })?;
    let mut met = Met::default();
    for looker in walked {
        met.add(&looker.met);
        met.lookups += looker.finder.lookups;
    }
    Ok(met)
}

/// Where nodes are, by the first word of a parent on each: the hash of its directory and name. A node is read once, for
/// whichever parent comes first, and held to its place then; all others have to say the same.
#[derive(Default)]
struct Places {
    by_node: Mutex<HashMap<ChunkId, u64>>,
    hasher: RandomState,
}

impl Places {
    /// Whether another parent has said something else.
    fn contradict(&self, child: &Child) -> bool {
        let place = self.hasher.hash_one(child.key());
        *lock(&self.by_node).entry(child.node).or_insert(place) != place
    }
}

/// What one of the threads has met.
struct Looker<'a> {
    nodes: &'a Nodes<'a>,
    seen: &'a Bits,
    places: &'a Places,
    met: Met,
    finder: Finder<'a>,
}

const MISPLACED: drumlin_format::Error =
    drumlin_format::Error::Malformed { object: "tree node", detail: "two parents have it at different places" };

/// A node: where it was found, and the place that it was read from, if that is known.
struct Spot {
    found: Found,
    read: Option<Place>,
}

impl Visit for Looker<'_> {
    type Node = Spot;

    fn meet(&mut self, id: &ChunkId, at: At) -> Result<(Spot, bool)> {
        let found = self.nodes.find(id)?;
        // What stands for the parent of a root names no place.
        if at.child.node == *id && !at.child.name.is_empty() && self.places.contradict(at.child) {
            self.met.lost += 1;
            if let Found::At(place) = &found {
                self.nodes.malformed(id, Some(*place), &MISPLACED);
            }
        }
        let new = match &found {
            Found::At(place) => self.seen.add(*place),
            Found::Newer(..) | Found::Nowhere => true,
        };
        self.met.nodes += u64::from(new);
        Ok((Spot { found, read: None }, new))
    }

    /// What can't be read is told.
    fn read(&mut self, id: &ChunkId, node: &mut Spot, _at: At) -> Result<Option<Vec<u8>>> {
        match self.nodes.read(id, &node.found)? {
            Node::Whole(bytes, place) => {
                node.read = place;
                return Ok(Some(bytes));
            }
            Node::Nowhere => self.met.nowhere += 1,
            Node::Lost(_) => self.met.lost += 1,
            Node::Removed => self.met.removed += 1,
        }
        Ok(None)
    }

    fn malformed(&mut self, id: &ChunkId, node: &Spot, _at: At, source: drumlin_format::Error) -> Result<()> {
        self.met.lost += 1;
        self.nodes.malformed(id, node.read, &source);
        Ok(())
    }

    fn misplaced(&mut self, id: &ChunkId, node: &Spot, _at: At, source: drumlin_format::Error) -> Result<()> {
        self.met.lost += 1;
        self.nodes.malformed(id, node.read, &source);
        Ok(())
    }

    fn leaf(&mut self, leaf: &Leaf) {
        let sums = leaf.sums();
        self.met.entries += sums.entries;
        let counters = self.nodes.context.monitor.counters();
        add(&counters.entries, sums.entries);
        add(&counters.files, sums.files);
        add(&counters.dirs, sums.dirs);
    }

    /// Whether the chunk's pack is whole is known by then, or will be.
    fn chunk(&mut self, id: &ChunkId, _at: At) -> Result<()> {
        self.met.chunks += 1;
        if matches!(self.finder.find(id)?, Found::Nowhere) {
            self.met.nowhere += 1;
        }
        Ok(())
    }

    fn go_on(&mut self) -> Result<()> {
        self.nodes.context.go_on()
    }
}
