//! What a restore needs of cold storage is asked for as a whole, and waited for.

use super::{Options, needs};
use crate::monitor::Monitor;
use crate::thaw::{self, thaw};
use crate::{Error, Result};
use drumlin_format::pack::PackKind;
use drumlin_repo::pack::Reader;
use drumlin_repo::tree::Cursor;
use drumlin_repo::{Cache, Index, IndexMode, PackInfo, Repository, names};
use std::collections::HashSet;
use std::sync::Arc;

/// A restore that may have things brought back.
pub(super) struct Cold<'a> {
    pub repository: &'a Repository,
    pub cache: &'a Arc<Cache>,
    pub options: &'a Options,
    pub how: thaw::Options,
}

impl Cold<'_> {
    /// See to it that all that is needed can be read, and what was met frozen. Whether it can; if not, the user has
    /// ended it.
    pub fn thaw(&self, met: Option<&str>, monitor: &dyn Monitor) -> Result<bool> {
        let mut asked = HashSet::new();
        loop {
            // Afresh: it was waited for hours, and others may have been at work.
            let index = Arc::new(Index::open_lenient(self.repository, self.cache.clone(), IndexMode::Exact)?);
            let packs = match self.needed(&index, met, monitor) {
                // What else is needed the tree tells, which is mostly left where it can be read.
                Err(Error::Repo(e)) if e.frozen().is_some() => {
                    index.packs().into_iter().filter(|pack| pack.kind == PackKind::Tree).collect()
                }
                packs => packs?,
            };
            if !monitor.stop() && packs.iter().all(|pack| asked.contains(&pack.id)) {
                return Ok(true);
            }
            if !thaw(self.repository, &packs, self.how, monitor)? {
                return Ok(false);
            }
            asked.extend(packs.iter().map(|pack| pack.id));
        }
    }

    /// The packs with contents that are needed, and the one that was met.
    fn needed(&self, index: &Arc<Index>, met: Option<&str>, monitor: &dyn Monitor) -> Result<Vec<Arc<PackInfo>>> {
        let memory = self.options.memory / 16;
        let reader = Reader::new(self.repository.clone(), index.clone(), self.cache.clone(), memory);
        let reader = Arc::new(reader.with_copies().with_told_tables());
        let mut cursor = Cursor::new(reader.clone(), self.options.snapshot.root)?;
        let mut packs = needs::packs(&reader, &mut cursor, self.options, monitor)?;
        // It may be that of a file which only seemed to be right.
        let met = met.and_then(|met| index.packs().into_iter().find(|pack| names::pack(pack.kind, pack.id) == met));
        let is_new = met.as_ref().is_some_and(|met| packs.iter().all(|pack| pack.id != met.id));
        packs.extend(met.filter(|_| is_new));
        Ok(packs)
    }
}
