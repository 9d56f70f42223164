//! Reading nodes of trees: wherever a whole copy is. What can't be read is told.

use super::bad::Bad;
use super::context::Context;
use super::packs::{Packs, object_kind};
use crate::Result;
use crate::reach::find::{Found, ask};
use crate::reach::keys::Place;
use drumlin_format::ChunkId;
use drumlin_format::pack::PackKind;
use drumlin_repo::Index;
use drumlin_repo::pack::Reader;

/// All that is needed to read nodes. Shared by threads.
pub(super) struct Nodes<'a> {
    pub context: &'a Context<'a>,
    pub packs: &'a Packs,
    pub index: &'a Index,
    pub reader: &'a Reader,
    /// Reads packs as they are seen through their bands, if there are any.
    pub through: Option<&'a Reader>,
    pub bad: &'a Bad,
}

/// What came of reading a node.
pub(super) enum Node {
    /// Its bytes, whose identity is right, and where they are: `None` in a pack that has come since.
    Whole(Vec<u8>, Option<Place>),
    /// It can be read nowhere, by these findings.
    Lost(Vec<u32>),
    /// No index object names it.
    Nowhere,
    /// A prune has removed its pack just now.
    Removed,
}

impl Nodes<'_> {
    /// Where a node is.
    pub fn find(&self, id: &ChunkId) -> Result<Found> {
        ask(&self.packs.keys, self.index, PackKind::Tree, id)
    }

    /// Read a node.
    pub fn read(&self, id: &ChunkId, found: &Found) -> Result<Node> {
        let mut place = match found {
            Found::Nowhere => return Ok(Node::Nowhere),
            Found::At(place) => *place,
            Found::Newer(info, ordinal) => {
                return match self.reader.chunk_in(info, *ordinal, PackKind::Tree, id) {
                    Ok(bytes) => Ok(Node::Whole(bytes, None)),
                    Err(e) if e.is_of_one_object() => {
                        let name = info.name();
                        Ok(Node::Lost(vec![self.context.findings.add(object_kind(info.kind), &name, e.cause())]))
                    }
                    Err(e) => Err(e.into()),
                };
            }
        };
        let first = place;
        loop {
            if !self.bad.has(place) {
                let pack = self.packs.pack(place.pack);
                match self.reader.chunk_in(&pack.info, place.ordinal, PackKind::Tree, id) {
                    Ok(bytes) => return Ok(Node::Whole(bytes, Some(place))),
                    Err(e) if e.is_missing() && !self.packs.is_still_named(self.context, place.pack)? => {
                        return Ok(Node::Removed);
                    }
                    Err(e) if e.is_of_one_object() => self.bad.tell(self.context.findings, self.packs, place, &e),
                    Err(e) => return Err(e.into()),
                }
            }
            match self.bad.instead(self.packs, first)? {
                Some(other) => place = other,
                // It was told; what it leads to is looked at all the same.
                None => {
                    let pack = self.packs.pack(first.pack);
                    let healed = |reader: &Reader| reader.healed_chunk(&pack.info, first.ordinal, PackKind::Tree, id);
                    let read = match (healed(self.reader), self.through) {
                        (Err(e), Some(through)) if e.is_of_one_object() => healed(through),
                        (read, _) => read,
                    };
                    return match read {
                        Ok(bytes) => Ok(Node::Whole(bytes, Some(first))),
                        Err(e) if e.is_of_one_object() => Ok(Node::Lost(self.bad.findings_of(self.packs, first)?)),
                        Err(e) => Err(e.into()),
                    };
                }
            }
        }
    }

    /// A node whose identity is right doesn't follow the format: its writer was wrong. Gives the number of the finding.
    pub fn malformed(&self, id: &ChunkId, place: Option<Place>, source: &drumlin_format::Error) -> Option<u32> {
        let pack = self.packs.pack(place?.pack);
        let cause = format!("tree node {id}: {source}");
        Some(self.context.findings.add_made_so(object_kind(pack.info.kind), &pack.name(), cause))
    }
}
