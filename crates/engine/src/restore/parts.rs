//! Of what chunks and holes a file is made, and where they are.

use super::locate::Locator;
use crate::Result;
use drumlin_format::ChunkId;
use drumlin_format::tree::{List, Ref};
use drumlin_repo::Location;
use drumlin_repo::pack::Reader;
use drumlin_repo::tree::Refs;

/// A file of more chunks and holes than this is written by one worker as well, whatever its size: what is known of each
/// would fill a window.
const PARTS_MAX: usize = 1024;
/// A hole in a list of holes: offset and length.
const HOLE_BYTES: usize = 16;

/// The parts of a file of several, in their order.
#[derive(Default)]
pub(super) struct Parts {
    /// Where each chunk is, and at which byte of the file it begins.
    pub places: Vec<(Location, u64)>,
    /// Each chunk, and how long the file has it.
    pub ids: Vec<(ChunkId, u32)>,
    /// Holes: offset and length of each, 8 bytes each, little-endian.
    pub holes: Vec<u8>,
}

/// What came of a look at a file's list.
pub(super) enum Found {
    /// All of it.
    Parts(Parts),
    /// Too many to be kept.
    Many,
    /// Damage: nobody has this chunk.
    Missing(ChunkId),
    /// Damage of the list itself, and what it is.
    Damaged(String),
}

/// Find the parts of a file of `size` bytes.
///
/// # Errors
/// The index, or a part of the list, can't be read, though it isn't damaged.
pub(super) fn find(reader: &Reader, locator: &mut Locator, list: &List, size: u64) -> Result<Found> {
    let (mut parts, mut at) = (Parts::default(), 0);
    for r in Refs::new(reader, list) {
        match r {
            Err(e) if e.is_damage() => return Ok(Found::Damaged(e.to_string())),
            Err(e) => return Err(e.into()),
            Ok(Ref::Hole { len }) => {
                parts.holes.extend_from_slice(&u64::to_le_bytes(at));
                parts.holes.extend_from_slice(&len.to_le_bytes());
                at += len;
            }
            Ok(Ref::Chunk { id, len }) => {
                let Some(location) = locator.locate(&id)? else { return Ok(Found::Missing(id)) };
                parts.places.push((location, at));
                parts.ids.push((id, u32::try_from(len).unwrap_or(u32::MAX)));
                at += len;
            }
        }
        if at > size || parts.places.len() as u64 > size {
            return Ok(Found::Damaged("the list of its chunks is longer than the file".into()));
        }
        if parts.places.len() + parts.holes.len() / HOLE_BYTES > PARTS_MAX {
            return Ok(Found::Many);
        }
    }
    Ok(Found::Parts(parts))
}
