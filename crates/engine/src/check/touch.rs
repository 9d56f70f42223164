//! What damage touches: one more walk over the trees, once all that is damaged is known.
//!
//! What a subtree holds of each finding is kept, so that it is walked once however many snapshots share it; of what is
//! whole only a bit is kept.

use super::finding::{ObjectKind, Touched};
use super::nodes::{Node, Nodes};
use super::small::Tree;
use crate::Result;
use crate::reach::bits::Bits;
use crate::reach::find::{Finder, Found};
use crate::reach::keys::Place;
use crate::select::push_path;
use drumlin_format::ChunkId;
use drumlin_format::pack::PackKind;
use drumlin_format::tree::{Body, Child, Data, Inner, Leaf, ListNode, Ref};
use drumlin_repo::names;
use std::collections::HashMap;
use std::rc::Rc;

/// How many entries each finding touches, by the finding's number.
type Tally = Vec<(u32, u64)>;

/// A key in the tree's order: directory and name.
type Key<'k> = (&'k [u8], &'k [u8]);

/// Say of each finding which entries of which snapshots it touches. `missing` are the findings to blame for chunks that
/// no index object names.
pub(super) fn touch(nodes: &Nodes, whole: Bits, missing: Vec<u32>, trees: &[Tree]) -> Result<()> {
    let finder = Finder::new(&nodes.packs.keys, nodes.index, PackKind::Data, None);
    let mut walk = Walk { nodes, whole, missing, finder, touched: HashMap::new() };
    for tree in trees {
        let Some(root) = tree.root else { continue };
        let child = Child { dir: Vec::new(), name: Vec::new(), node: root.node, body: None, sums: root.sums };
        for (finding, entries) in walk.inner(&child, root.level, None)?.iter() {
            nodes.context.findings.entries(*finding, tree.id, *entries);
        }
    }
    Ok(())
}

struct Walk<'a> {
    nodes: &'a Nodes<'a>,
    /// Nodes below which nothing is touched.
    whole: Bits,
    missing: Vec<u32>,
    finder: Finder<'a>,
    /// What is touched below other nodes: inner ones, and leaves with their bodies.
    touched: HashMap<(Place, Option<Place>), Rc<Tally>>,
}

impl Walk<'_> {
    /// As deep as the tree, which the format bounds.
    fn inner(&mut self, child: &Child, level: u8, next: Option<Key>) -> Result<Rc<Tally>> {
        self.nodes.context.go_on()?;
        let found = self.nodes.find(&child.node)?;
        if let Some(known) = self.known(&found, None) {
            return Ok(known);
        }
        let (bytes, place) = match self.read(&child.node, &found)? {
            Ok(read) => read,
            Err(findings) => return Ok(Rc::new(self.lost(child, next, &findings))),
        };
        let inner = match Inner::decode(&bytes, level) {
            Ok(inner) => inner,
            Err(e) => {
                let finding = self.nodes.malformed(&child.node, place, &e);
                return Ok(Rc::new(self.lost(child, next, &Vec::from_iter(finding))));
            }
        };
        drop(bytes);
        let mut tally = Tally::new();
        for (at, below) in inner.children.iter().enumerate() {
            let next = inner.children.get(at + 1).map(|c| (&c.dir[..], &c.name[..])).or(next);
            let of_child = if level > 1 { self.inner(below, level - 1, next)? } else { self.leaf(below, next)? };
            of_child.iter().for_each(|(finding, entries)| count(&mut tally, *finding, *entries));
        }
        Ok(self.keep(&found, None, tally))
    }

    fn leaf(&mut self, child: &Child, next: Option<Key>) -> Result<Rc<Tally>> {
        self.nodes.context.go_on()?;
        let Some(body_id) = child.body else { return Ok(Rc::default()) };
        let (leaf_at, body_at) = (self.nodes.find(&child.node)?, self.nodes.find(&body_id)?);
        if let Some(known) = self.known(&leaf_at, Some(&body_at)) {
            return Ok(known);
        }
        let (bytes, place) = match self.read(&child.node, &leaf_at)? {
            Ok(read) => read,
            Err(findings) => return Ok(Rc::new(self.lost(child, next, &findings))),
        };
        let leaf = match Leaf::decode(&bytes) {
            Ok(leaf) => leaf,
            Err(e) => {
                let finding = self.nodes.malformed(&child.node, place, &e);
                return Ok(Rc::new(self.lost(child, next, &Vec::from_iter(finding))));
            }
        };
        let mut tally = Tally::new();
        match self.read(&body_id, &body_at)? {
            Err(findings) => self.all(&leaf, &findings, &mut tally),
            Ok((bytes, place)) => match Body::decode(&bytes, &leaf) {
                Ok(body) => self.entries(&leaf, &body, &mut tally)?,
                Err(e) => {
                    let finding = self.nodes.malformed(&body_id, place, &e);
                    self.all(&leaf, &Vec::from_iter(finding), &mut tally);
                }
            },
        }
        Ok(self.keep(&leaf_at, Some(&body_at), tally))
    }

    fn entries(&mut self, leaf: &Leaf, body: &Body, tally: &mut Tally) -> Result<()> {
        let mut findings = Vec::new();
        for (at, content) in body.contents.iter().enumerate() {
            findings.clear();
            match &content.data {
                Data::None => continue,
                Data::Chunk(id) => self.chunk(id, &mut findings)?,
                Data::List(list) => self.refs(list.level, &list.refs, &mut findings)?,
            }
            findings.sort_unstable();
            findings.dedup();
            findings.iter().for_each(|finding| self.entry(leaf, at, *finding, tally));
        }
        Ok(())
    }

    /// Every entry of a leaf: without its body none has its contents.
    fn all(&self, leaf: &Leaf, findings: &[u32], tally: &mut Tally) {
        for finding in findings {
            (0..leaf.len()).for_each(|at| self.entry(leaf, at, *finding, tally));
        }
    }

    fn entry(&self, leaf: &Leaf, at: usize, finding: u32, tally: &mut Tally) {
        count(tally, finding, 1);
        self.nodes.context.findings.touched(finding, || {
            let (dir, name, _) = leaf.get(at);
            Touched { path: path((dir, name)), entries: 1, before: None }
        });
    }

    /// All below a node that can't be read: its entries have no names.
    fn lost(&self, child: &Child, next: Option<Key>, findings: &[u32]) -> Tally {
        for finding in findings {
            self.nodes.context.findings.touched(*finding, || {
                let first = if child.name.is_empty() { b"/".to_vec() } else { path((&child.dir, &child.name)) };
                Touched { path: first, entries: child.sums.entries, before: next.map(path) }
            });
        }
        findings.iter().map(|finding| (*finding, child.sums.entries)).collect()
    }

    /// The findings that keep a list's chunks from being read. As deep as the list, which the format bounds.
    fn refs(&mut self, level: u8, refs: &[Ref], findings: &mut Vec<u32>) -> Result<()> {
        for r in refs {
            let Ref::Chunk { id, len } = r else { continue };
            if level == 0 {
                self.chunk(id, findings)?;
                continue;
            }
            self.nodes.context.go_on()?;
            let found = self.nodes.find(id)?;
            if self.known(&found, None).is_some_and(|tally| tally.is_empty()) {
                continue;
            }
            match self.read(id, &found)? {
                Err(by) => findings.extend(by),
                Ok((bytes, place)) => match ListNode::decode(&bytes, level - 1, *len) {
                    Ok(node) => {
                        let before = findings.len();
                        self.refs(level - 1, &node.refs, findings)?;
                        if findings.len() == before {
                            self.keep(&found, None, Tally::new());
                        }
                    }
                    Err(e) => findings.extend(self.nodes.malformed(id, place, &e)),
                },
            }
            findings.sort_unstable();
            findings.dedup();
        }
        Ok(())
    }

    fn chunk(&mut self, id: &ChunkId, findings: &mut Vec<u32>) -> Result<()> {
        match self.finder.find(id)? {
            Found::Nowhere => findings.extend(self.blamed(Vec::new())),
            Found::At(place) if self.nodes.bad.has(place) => {
                if self.nodes.bad.instead(self.nodes.packs, place)?.is_none() {
                    let by = self.nodes.bad.findings_of(self.nodes.packs, place)?;
                    findings.extend(self.blamed(by));
                }
            }
            Found::At(_) | Found::Newer(..) => {}
        }
        Ok(())
    }

    /// Read a node, or say which findings keep it from being read.
    #[allow(clippy::type_complexity, reason = "used three times, right here")]
    fn read(&mut self, id: &ChunkId, found: &Found) -> Result<std::result::Result<(Vec<u8>, Option<Place>), Vec<u32>>> {
        Ok(match self.nodes.read(id, found)? {
            Node::Whole(bytes, place) => Ok((bytes, place)),
            Node::Lost(findings) => Err(self.blamed(findings)),
            Node::Nowhere => Err(self.blamed(Vec::new())),
            Node::Removed => Err(Vec::new()),
        })
    }

    /// The findings to blame for a chunk that can be read nowhere: if none is about a pack that held it, those about
    /// the index.
    fn blamed(&mut self, findings: Vec<u32>) -> Vec<u32> {
        if !findings.is_empty() {
            return findings;
        }
        if self.missing.is_empty() {
            let cause = "chunks that snapshots refer to were only in packs of an evicted session, and those are gone";
            self.missing.push(self.nodes.context.findings.add(ObjectKind::Index, names::INDEX, cause));
        }
        self.missing.clone()
    }

    /// What is touched below a node, or in a leaf with its body, if it was met before.
    fn known(&self, found: &Found, body: Option<&Found>) -> Option<Rc<Tally>> {
        let (place, body) = places(found, body)?;
        if self.whole.contains(place) && body.is_none_or(|body| self.whole.contains(body)) {
            return Some(Rc::default());
        }
        self.touched.get(&(place, body)).cloned()
    }

    fn keep(&mut self, found: &Found, body: Option<&Found>, tally: Tally) -> Rc<Tally> {
        let tally = Rc::new(tally);
        if let Some((place, body)) = places(found, body) {
            if tally.is_empty() {
                self.whole.add(place);
                body.map(|body| self.whole.add(body));
            } else {
                self.touched.insert((place, body), tally.clone());
            }
        }
        tally
    }
}

/// The places of a node and of the body beside it. `None` unless all are known.
fn places(found: &Found, body: Option<&Found>) -> Option<(Place, Option<Place>)> {
    let place = |found: &Found| match found {
        Found::At(place) => Some(*place),
        Found::Newer(..) | Found::Nowhere => None,
    };
    match body {
        None => Some((place(found)?, None)),
        Some(body) => Some((place(found)?, Some(place(body)?))),
    }
}

fn count(tally: &mut Tally, finding: u32, entries: u64) {
    match tally.iter_mut().find(|(of, _)| *of == finding) {
        Some((_, sum)) => *sum = sum.saturating_add(entries),
        None => tally.push((finding, entries)),
    }
}

fn path((dir, name): Key) -> Vec<u8> {
    let mut out = Vec::new();
    push_path(dir, name, &mut out);
    out
}
