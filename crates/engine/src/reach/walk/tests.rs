//! Trees that are made up, walked by any number of threads, beside the plainest walk that there is.

use super::*;
use crate::Error;
use drumlin_format::tree::{Content, Kind, List, Meta, Sums, Time};
use drumlin_testkit::Rng;
use std::collections::{HashMap, HashSet};

/// Trees that share much.
struct Forest {
    rng: Rng,
    nodes: HashMap<ChunkId, Vec<u8>>,
    roots: Vec<Root>,
    /// Nodes of lists by their levels, with the bytes they stand for; leaves with bodies; inner nodes by their levels.
    lists: Vec<Vec<(ChunkId, u64)>>,
    leaves: Vec<(ChunkId, ChunkId)>,
    inner: Vec<Vec<ChunkId>>,
}

impl Forest {
    fn new(seed: u64) -> Self {
        let mut forest = Forest {
            rng: Rng::new(seed),
            nodes: HashMap::new(),
            roots: Vec::new(),
            lists: vec![Vec::new(); 4],
            leaves: Vec::new(),
            inner: vec![Vec::new(); 4],
        };
        for _ in 0..3 {
            let level = 1 + forest.rng.below(3) as u8;
            let node = forest.inner(level);
            forest.roots.push(Root { node, level, sums: Sums::default() });
        }
        forest
    }

    fn put(&mut self, bytes: Vec<u8>) -> ChunkId {
        let id = ChunkId(*blake3::hash(&bytes).as_bytes());
        self.nodes.insert(id, bytes);
        id
    }

    /// Now and then one that another tree has, too.
    fn chunk(&mut self) -> ChunkId {
        ChunkId([1 + self.rng.below(200) as u8; 32])
    }

    fn refs(&mut self, level: u8) -> Vec<Ref> {
        let count = 1 + self.rng.below(5);
        let one = |forest: &mut Self| match (level, forest.rng.one_in(6)) {
            (_, true) => Ref::Hole { len: 1 + forest.rng.below(9) as u64 },
            (0, _) => Ref::Chunk { id: forest.chunk(), len: 1 + forest.rng.below(9) as u64 },
            _ => {
                let (id, len) = forest.list(level - 1);
                Ref::Chunk { id, len }
            }
        };
        let mut refs: Vec<Ref> = (0..count).map(|_| one(self)).collect();
        refs.dedup_by(|next, one| next.chunk().is_none() && one.chunk().is_none());
        refs
    }

    fn list(&mut self, level: u8) -> (ChunkId, u64) {
        if self.rng.one_in(3)
            && let Some(known) = self.rng.pick(&self.lists[usize::from(level)])
        {
            return *known;
        }
        let refs = self.refs(level);
        let len = refs.iter().map(Ref::len).sum();
        let id = self.put(ListNode { level, refs }.encode());
        self.lists[usize::from(level)].push((id, len));
        (id, len)
    }

    fn leaf(&mut self) -> (ChunkId, ChunkId) {
        if self.rng.one_in(3)
            && let Some(known) = self.rng.pick(&self.leaves)
        {
            return *known;
        }
        let (mut leaf, mut contents) = (Leaf::default(), Vec::new());
        for n in 0..1 + self.rng.below(4) {
            let (data, size) = match self.rng.below(3) {
                0 => (Data::None, 0),
                1 => (Data::Chunk(self.chunk()), 1),
                _ => {
                    let level = self.rng.below(4) as u8;
                    let refs = self.refs(level);
                    let size = refs.iter().map(Ref::len).sum();
                    (Data::List(List { level, refs, whole: [0; 32] }), size)
                }
            };
            leaf.push(b"", format!("name {n}").as_bytes(), &meta(size));
            contents.push(Content { data, ..Content::default() });
        }
        let ids = (self.put(leaf.encode()), self.put(Body { contents }.encode()));
        self.leaves.push(ids);
        ids
    }

    fn inner(&mut self, level: u8) -> ChunkId {
        if self.rng.one_in(4)
            && let Some(known) = self.rng.pick(&self.inner[usize::from(level)])
        {
            return *known;
        }
        let count = 1 + self.rng.below(5);
        let one = |n: usize, forest: &mut Self| {
            let (node, body) = match level {
                1 => forest.leaf(),
                _ => (forest.inner(level - 1), ChunkId([0; 32])),
            };
            let body = (level == 1).then_some(body);
            Child { dir: Vec::new(), name: format!("{n}").into(), node, body, sums: Sums::default() }
        };
        let mut children: Vec<Child> = (0..count).map(|n| one(n, self)).collect();
        // Trees may share nodes, and other nodes of one tree; the children of one node are different ones.
        let mut known = HashSet::new();
        children.retain(|child| known.insert(child.node));
        let id = self.put(Inner { level, children }.encode());
        self.inner[usize::from(level)].push(id);
        id
    }
}

fn meta(size: u64) -> Meta {
    let time = Time { sec: 1, nsec: 2 };
    Meta {
        kind: Kind::File,
        mode: 0o644,
        marks: 0,
        uid: 1,
        gid: 2,
        size,
        mtime: time,
        ctime: time,
        btime: None,
        ino: 1,
        nlink: 1,
        filesystem: 0,
        rdev: 0,
    }
}

/// What was met, in this order: nodes once, chunks of contents each time.
#[derive(Debug, Default, PartialEq, Eq)]
struct Met {
    nodes: Vec<ChunkId>,
    chunks: Vec<ChunkId>,
}

impl Met {
    fn sorted(mut self) -> Self {
        self.nodes.sort_unstable();
        self.chunks.sort_unstable();
        self
    }
}

/// Plainly.
#[derive(Default)]
struct Model {
    seen: HashSet<ChunkId>,
    met: Met,
}

impl Model {
    fn new(forest: &Forest) -> Self {
        let mut model = Model::default();
        forest.roots.iter().for_each(|root| model.inner(forest, &root.node, root.level));
        model
    }

    fn is_new(&mut self, id: &ChunkId) -> bool {
        let new = self.seen.insert(*id);
        if new {
            self.met.nodes.push(*id);
        }
        new
    }

    fn inner(&mut self, forest: &Forest, id: &ChunkId, level: u8) {
        if !self.is_new(id) {
            return;
        }
        for child in Inner::decode(&forest.nodes[id], level).unwrap().children {
            let Some(body) = child.body else {
                self.inner(forest, &child.node, level - 1);
                continue;
            };
            self.is_new(&child.node);
            let leaf = Leaf::decode(&forest.nodes[&child.node]).unwrap();
            if self.is_new(&body) {
                for content in Body::decode(&forest.nodes[&body], &leaf).unwrap().contents {
                    match content.data {
                        Data::None => {}
                        Data::Chunk(id) => self.met.chunks.push(id),
                        Data::List(list) => self.refs(forest, list.level, &list.refs),
                    }
                }
            }
        }
    }

    fn refs(&mut self, forest: &Forest, level: u8, refs: &[Ref]) {
        for r in refs {
            match r {
                Ref::Hole { .. } => {}
                Ref::Chunk { id, .. } if level == 0 => self.met.chunks.push(*id),
                Ref::Chunk { id, len } => {
                    if self.is_new(id) {
                        let node = ListNode::decode(&forest.nodes[id], level - 1, *len).unwrap();
                        self.refs(forest, level - 1, &node.refs);
                    }
                }
            }
        }
    }
}

/// What all threads share.
struct Shared<'a> {
    forest: &'a Forest,
    seen: Mutex<HashSet<ChunkId>>,
    met: Mutex<Met>,
    /// At this node the walk fails; or panics.
    fails: Option<(ChunkId, bool)>,
    /// This one can't be read.
    unread: Option<ChunkId>,
}

struct Visitor<'a>(&'a Shared<'a>);

impl Visit for Visitor<'_> {
    type Node = ();

    fn meet(&mut self, id: &ChunkId, at: At) -> Result<((), bool)> {
        assert!(at.tree < self.0.forest.roots.len());
        let new = self.0.seen.lock().unwrap().insert(*id);
        if new {
            self.0.met.lock().unwrap().nodes.push(*id);
        }
        Ok(((), new))
    }

    fn read(&mut self, id: &ChunkId, _node: &mut (), _at: At) -> Result<Option<Vec<u8>>> {
        match self.0.fails {
            Some((at, true)) if at == *id => panic!("on purpose"),
            Some((at, false)) if at == *id => return Err(Error::NoPath("on purpose".into())),
            _ => {}
        }
        Ok((self.0.unread != Some(*id)).then(|| self.0.forest.nodes[id].clone()))
    }

    fn malformed(&mut self, id: &ChunkId, _node: &(), _at: At, source: drumlin_format::Error) -> Result<()> {
        panic!("{id}: {source}");
    }

    fn chunk(&mut self, id: &ChunkId, _at: At) -> Result<()> {
        self.0.met.lock().unwrap().chunks.push(*id);
        Ok(())
    }

    fn go_on(&mut self) -> Result<()> {
        Ok(())
    }
}

fn walked(forest: &Forest, threads: usize, fails: Option<(ChunkId, bool)>) -> Result<Met> {
    walked_by(Shared { forest, seen: Mutex::default(), met: Mutex::default(), fails, unread: None }, threads)
}

fn walked_by(shared: Shared, threads: usize) -> Result<Met> {
    walk(shared.forest.roots.iter().copied().enumerate(), threads, || Visitor(&shared))?;
    Ok(shared.met.into_inner().unwrap())
}

#[test]
fn each_node_is_read_once_and_each_chunk_is_met() {
    for seed in 0..60 {
        let forest = Forest::new(seed);
        let model = Model::new(&forest).met;
        let met = walked(&forest, 1, None).unwrap();
        assert_eq!(met, model, "seed {seed}: one thread keeps the order");
        let model = model.sorted();
        for threads in [2, 5] {
            assert_eq!(walked(&forest, threads, None).unwrap().sorted(), model, "seed {seed}, {threads} threads");
        }
    }
}

#[test]
fn a_failure_ends_it() {
    for seed in 0..20 {
        let forest = Forest::new(seed);
        let nodes = Model::new(&forest).met.nodes;
        let at = Rng::new(seed).pick(&nodes).copied().unwrap();
        for threads in [1, 4] {
            let failed = walked(&forest, threads, Some((at, false)));
            assert!(matches!(failed, Err(Error::NoPath(_))), "seed {seed}, {threads} threads");
        }
    }
}

#[test]
fn a_thread_that_is_lost_keeps_nobody_waiting() {
    let forest = Forest::new(3);
    let at = Model::new(&forest).met.nodes[4];
    let lost = std::panic::catch_unwind(|| walked(&forest, 4, Some((at, true))));
    // In the thread that called, or in another one.
    assert!(!matches!(lost, Ok(Ok(_) | Err(Error::NoPath(_)))));
}

/// Two leaves that differ in a time alone have the same body: whichever of them can't be read, what the other needs is
/// met.
#[test]
fn a_body_is_decoded_beside_any_leaf_that_can_be_read() {
    let mut forest = Forest::new(1);
    let chunk = ChunkId([250; 32]);
    let body = forest.put(Body { contents: vec![Content { data: Data::Chunk(chunk), ..Content::default() }] }.encode());
    let leaves = [1, 2].map(|ino| {
        let mut leaf = Leaf::default();
        leaf.push(b"", b"name", &Meta { ino, ..meta(1) });
        forest.put(leaf.encode())
    });
    forest.roots = leaves.map(|node| root_over(&mut forest, node, body)).to_vec();
    for (unread, threads) in [(0, 1), (1, 1), (0, 4), (1, 4)] {
        let unread = Some(leaves[unread]);
        let shared = Shared { forest: &forest, seen: Mutex::default(), met: Mutex::default(), fails: None, unread };
        assert_eq!(walked_by(shared, threads).unwrap().chunks, [chunk], "{threads} threads");
    }
}

fn root_over(forest: &mut Forest, node: ChunkId, body: ChunkId) -> Root {
    let child = Child { dir: Vec::new(), name: b"name".to_vec(), node, body: Some(body), sums: Sums::default() };
    Root { node: forest.put(Inner { level: 1, children: vec![child] }.encode()), level: 1, sums: Sums::default() }
}
