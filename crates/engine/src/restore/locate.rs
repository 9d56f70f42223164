//! Where chunks are. Chunks of files that follow one another in the tree mostly follow one another in a pack: the place
//! behind the last one is tried before the index is asked.

use crate::Result;
use drumlin_format::ChunkId;
use drumlin_format::pack::Table;
use drumlin_repo::Location;
use drumlin_repo::pack::Reader;
use std::sync::Arc;

/// Finds chunks.
pub(super) struct Locator {
    reader: Arc<Reader>,
    last: Option<Last>,
}

/// Where the chunk before was found.
struct Last {
    location: Location,
    table: Option<Arc<Table>>,
}

impl Locator {
    pub fn new(reader: Arc<Reader>) -> Self {
        Locator { reader, last: None }
    }

    /// Where a chunk is: right behind the one before, most often.
    pub fn locate(&mut self, id: &ChunkId) -> Result<Option<Location>> {
        if let Some(last) = &mut self.last
            && let Some(table) = &last.table
            && table.chunks.get(last.location.ordinal as usize + 1).is_some_and(|c| c.id == *id)
        {
            last.location.ordinal += 1;
            return Ok(Some(last.location));
        }
        let index = self.reader.index();
        let Some(location) = self.reader.locate(id)? else { return Ok(None) };
        let table = match self.last.take() {
            // Two in a row from one pack: its table is worth having.
            Some(last) if last.location.pack == location.pack => match last.table {
                Some(table) => Some(table),
                None => match self.reader.table(&index.pack(location.pack)) {
                    // Whoever wants what is in that pack will see it.
                    Err(e) if e.is_damage() => None,
                    other => Some(other?),
                },
            },
            _ => None,
        };
        self.last = Some(Last { location, table });
        Ok(Some(location))
    }
}
