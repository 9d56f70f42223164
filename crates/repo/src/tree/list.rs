//! Long chunk lists: written as their refs come, read as they are needed.

use super::node::Nodes;
use crate::pack::Reader;
use crate::{Error, Result};
use drumlin_format::pack::PackKind;
use drumlin_format::tree::{HOLE_BEHIND_HOLE, INLINE_REFS_MAX, List, ListNode, Ref};

/// Builds the list of one file, in memory for one node a level.
#[derive(Default)]
pub struct ListWriter {
    levels: Vec<Vec<Ref>>,
}

impl ListWriter {
    /// Append a stretch of the file.
    pub fn push(&mut self, nodes: &mut Nodes, r: Ref) -> Result<()> {
        self.push_at(nodes, 0, r)
    }

    fn push_at(&mut self, nodes: &mut Nodes, level: usize, r: Ref) -> Result<()> {
        if self.levels.len() == level {
            self.levels.push(Vec::new());
        }
        self.levels[level].push(r);
        if r.ends_node(self.levels[level].len()) {
            let above = self.end_node(nodes, level)?;
            self.push_at(nodes, level + 1, above)?;
        }
        Ok(())
    }

    fn end_node(&mut self, nodes: &mut Nodes, level: usize) -> Result<Ref> {
        let refs = std::mem::take(&mut self.levels[level]);
        let len = refs.iter().map(Ref::len).sum();
        let node = ListNode { level: level as u8, refs };
        Ok(Ref::Chunk { id: nodes.put(&node.encode())?, len })
    }

    /// The uppermost refs; `whole` is the identity of all the contents.
    pub fn finish(mut self, nodes: &mut Nodes, whole: [u8; 32]) -> Result<List> {
        let mut level = 0;
        loop {
            let above = self.levels.get(level + 1..).is_some_and(|l| l.iter().any(|l| !l.is_empty()));
            let here = self.levels.get(level).map_or(0, Vec::len);
            if !above && here <= INLINE_REFS_MAX {
                let refs = if here == 0 { Vec::new() } else { self.levels.swap_remove(level) };
                return Ok(List { level: level as u8, refs, whole });
            }
            if here > 0 {
                let r = self.end_node(nodes, level)?;
                self.push_at(nodes, level + 1, r)?;
            }
            level += 1;
        }
    }
}

/// The chunks and holes of a file, in order.
pub struct Refs<'a> {
    reader: &'a Reader,
    /// Refs to come, and their level, the innermost node last.
    path: Vec<(u8, std::vec::IntoIter<Ref>)>,
    /// The last one was a hole.
    is_behind_hole: bool,
}

impl<'a> Refs<'a> {
    /// Of this list.
    pub fn new(reader: &'a Reader, list: &List) -> Self {
        Refs { reader, path: vec![(list.level, list.refs.clone().into_iter())], is_behind_hole: false }
    }

    fn step(&mut self) -> Result<Option<Ref>> {
        loop {
            let Some((level, refs)) = self.path.last_mut() else { return Ok(None) };
            let Some(r) = refs.next() else {
                self.path.pop();
                continue;
            };
            match (*level, r) {
                (_, r @ Ref::Hole { .. }) => {
                    // In one node that is refused where it is decoded.
                    if std::mem::replace(&mut self.is_behind_hole, true) {
                        let source =
                            drumlin_format::Error::Malformed { object: "chunk list", detail: HOLE_BEHIND_HOLE };
                        return Err(Error::Damaged { object: "a chunk list".into(), source });
                    }
                    return Ok(Some(r));
                }
                (0, r) => {
                    self.is_behind_hole = false;
                    return Ok(Some(r));
                }
                (level, Ref::Chunk { id, len }) => {
                    let bytes = self.reader.chunk(PackKind::Tree, &id)?;
                    let node = ListNode::decode(&bytes, level - 1, len)
                        .map_err(|source| Error::Damaged { object: format!("chunk list {id}"), source })?;
                    self.reader.index().expect_near(Some(id), node.refs.iter().filter_map(Ref::chunk));
                    self.path.push((level - 1, node.refs.into_iter()));
                }
            }
        }
    }
}

impl Iterator for Refs<'_> {
    type Item = Result<Ref>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.step();
        if next.is_err() {
            self.path.clear();
        }
        next.transpose()
    }
}
