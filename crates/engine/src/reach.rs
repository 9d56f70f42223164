//! What snapshots reach: every chunk that their trees refer to, each node read once however many snapshots share it.
//!
//! In tree order, so that a block of nodes is read about once, and in memory for one path from the root. Who walks decides
//! what is met for the first time, and keeps that in whatever takes the least room.

use crate::Result;
use drumlin_format::ChunkId;
use drumlin_format::pack::PackKind;
use drumlin_format::snapshot::Root;
use drumlin_format::tree::{Body, Child, Data, Inner, Leaf, ListNode, Ref};

/// Who walks.
pub(crate) trait Visit {
    /// A chunk is referred to, from the leaf or inner node `at` or from its contents. Whether it is met for the first time,
    /// and can be read: then what it leads to is met as well.
    fn meet(&mut self, kind: PackKind, id: &ChunkId, at: &Child) -> Result<bool>;

    /// Read a node.
    fn read(&mut self, id: &ChunkId) -> Result<Vec<u8>>;

    /// Reading something below `at` failed: whether to go on without it.
    fn failed(&mut self, at: &Child, error: drumlin_repo::Error) -> Result<()>;

    /// Called now and then; fails to end the walk.
    fn pause(&mut self) -> Result<()>;
}

/// Walk one tree.
pub(crate) fn walk(visit: &mut impl Visit, root: &Root) -> Result<()> {
    let top = Child { dir: Vec::new(), name: Vec::new(), node: root.node, body: None, sums: root.sums };
    let mut to_come = vec![(top, root.level)];
    while let Some((child, level)) = to_come.pop() {
        visit.pause()?;
        let mut new = visit.meet(PackKind::Tree, &child.node, &child)?;
        if let Some(body) = &child.body {
            new |= visit.meet(PackKind::Tree, body, &child)?;
        }
        if !new {
            continue;
        }
        let met = if level == 0 {
            leaf(visit, &child)
        } else {
            inner(visit, &child, level).map(|inner| {
                to_come.extend(inner.children.into_iter().rev().map(|c| (c, level - 1)));
            })
        };
        match met {
            Err(crate::Error::Repo(e)) if e.is_damage() => visit.failed(&child, e)?,
            other => other?,
        }
    }
    Ok(())
}

fn inner(visit: &mut impl Visit, child: &Child, level: u8) -> Result<Inner> {
    let bytes = visit.read(&child.node)?;
    Ok(Inner::decode(&bytes, level).map_err(|source| damaged(&child.node, source))?)
}

fn leaf(visit: &mut impl Visit, child: &Child) -> Result<()> {
    let bytes = visit.read(&child.node)?;
    let leaf = Leaf::decode(&bytes).map_err(|source| damaged(&child.node, source))?;
    let id = child.body.ok_or(drumlin_repo::Error::MissingChunk(child.node))?;
    let body = Body::decode(&visit.read(&id)?, &leaf).map_err(|source| damaged(&id, source))?;
    for content in &body.contents {
        match &content.data {
            Data::None => {}
            Data::Chunk(id) => {
                visit.meet(PackKind::Data, id, child)?;
            }
            Data::List(list) => refs(visit, list.level, &list.refs, child)?,
        }
    }
    Ok(())
}

/// The chunks of a list, or the nodes that lead to them. As deep as the list, which the format bounds.
fn refs(visit: &mut impl Visit, level: u8, of: &[Ref], child: &Child) -> Result<()> {
    let kind = if level == 0 { PackKind::Data } else { PackKind::Tree };
    for r in of {
        let Ref::Chunk { id, len } = r else { continue };
        if visit.meet(kind, id, child)? && level > 0 {
            let bytes = visit.read(id)?;
            let node = ListNode::decode(&bytes, level - 1, *len).map_err(|source| damaged(id, source))?;
            refs(visit, level - 1, &node.refs, child)?;
        }
    }
    Ok(())
}

fn damaged(id: &ChunkId, source: drumlin_format::Error) -> drumlin_repo::Error {
    drumlin_repo::Error::Damaged { object: format!("tree node {id}"), source }
}
