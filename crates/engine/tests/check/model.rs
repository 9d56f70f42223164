//! What the loss of a pack costs, by the plainest walk over whole trees that there is.

use crate::bench::{Objects, packs_of_chunks};
use drumlin_engine::check::Touched;
use drumlin_engine::select::{open_reader, push_path};
use drumlin_format::ChunkId;
use drumlin_format::pack::PackKind;
use drumlin_format::snapshot::Snapshot;
use drumlin_format::tree::{Body, Data, Inner, Leaf, ListNode, Ref};
use drumlin_repo::pack::Reader;
use drumlin_repo::{Cache, Repository};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The trees of a repository that is whole.
pub struct Model {
    reader: Arc<Reader>,
    packs: BTreeMap<[u8; 32], Vec<String>>,
}

/// Absolute paths in the tree's order.
pub type Paths = Vec<Vec<u8>>;

impl Model {
    pub fn new(repository: &Repository, cache: &Arc<Cache>, objects: &Objects) -> Self {
        Model { reader: open_reader(repository, cache).unwrap(), packs: packs_of_chunks(repository, objects) }
    }

    /// All entries of a snapshot.
    pub fn all(&self, snapshot: &Snapshot) -> Paths {
        self.walk(snapshot, &BTreeSet::new()).0
    }

    /// The entries of a snapshot that are lost with these packs.
    pub fn lost(&self, snapshot: &Snapshot, packs: &BTreeSet<String>) -> BTreeSet<Vec<u8>> {
        self.walk(snapshot, packs).1
    }

    fn walk(&self, snapshot: &Snapshot, packs: &BTreeSet<String>) -> (Paths, BTreeSet<Vec<u8>>) {
        let (mut all, mut lost) = (Vec::new(), BTreeSet::new());
        if let Some(root) = snapshot.root {
            self.inner(&root.node, root.level, packs, false, &mut all, &mut lost);
        }
        (all, lost)
    }

    fn is_lost(&self, id: &ChunkId, packs: &BTreeSet<String>) -> bool {
        self.packs[&id.0].iter().all(|pack| packs.contains(pack))
    }

    fn node(&self, id: &ChunkId) -> Vec<u8> {
        self.reader.chunk(PackKind::Tree, id).unwrap()
    }

    fn inner(
        &self,
        id: &ChunkId,
        level: u8,
        packs: &BTreeSet<String>,
        above: bool,
        all: &mut Paths,
        lost: &mut BTreeSet<Vec<u8>>,
    ) {
        let gone = above || self.is_lost(id, packs);
        for child in Inner::decode(&self.node(id), level).unwrap().children {
            if level > 1 {
                self.inner(&child.node, level - 1, packs, gone, all, lost);
                continue;
            }
            let body_id = child.body.unwrap();
            let without = gone || self.is_lost(&child.node, packs) || self.is_lost(&body_id, packs);
            let leaf = Leaf::decode(&self.node(&child.node)).unwrap();
            let body = Body::decode(&self.node(&body_id), &leaf).unwrap();
            for ((dir, name, _), content) in leaf.iter().zip(&body.contents) {
                let mut path = Vec::new();
                push_path(dir, name, &mut path);
                let contents_gone = match &content.data {
                    Data::None => false,
                    Data::Chunk(id) => self.is_lost(id, packs),
                    Data::List(list) => self.refs(list.level, &list.refs, packs),
                };
                if without || contents_gone {
                    lost.insert(path.clone());
                }
                all.push(path);
            }
        }
    }

    fn refs(&self, level: u8, refs: &[Ref], packs: &BTreeSet<String>) -> bool {
        refs.iter().any(|r| match r {
            Ref::Hole { .. } => false,
            Ref::Chunk { id, .. } if self.is_lost(id, packs) => true,
            Ref::Chunk { id, len } if level > 0 => {
                self.refs(level - 1, &ListNode::decode(&self.node(id), level - 1, *len).unwrap().refs, packs)
            }
            Ref::Chunk { .. } => false,
        })
    }
}

/// The paths that a finding speaks of, in a snapshot of these entries.
pub fn spelled_out(touched: &[Touched], all: &Paths) -> BTreeSet<Vec<u8>> {
    let mut paths = BTreeSet::new();
    for t in touched {
        if t.entries == 1 && t.before.is_none() && all.contains(&t.path) {
            paths.insert(t.path.clone());
            continue;
        }
        let Some(first) = (if t.path == b"/" { Some(0) } else { all.iter().position(|p| *p == t.path) }) else {
            continue;
        };
        let end = t.before.as_ref().map_or(all.len(), |before| all.iter().position(|p| p == before).unwrap());
        assert_eq!((end - first) as u64, t.entries, "{t:?}");
        paths.extend(all[first..end].iter().cloned());
    }
    paths
}
