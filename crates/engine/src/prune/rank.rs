//! In which order the newest snapshots need the chunks of some packs: what is written anew is written in that order, so
//! that a restore of them reads it in one sweep.

use super::marks::Marks;
use crate::monitor::Monitor;
use crate::reach::{self, Visit};
use crate::{Error, Result};
use drumlin_format::pack::PackKind;
use drumlin_format::snapshot::Snapshot;
use drumlin_format::tree::Child;
use drumlin_format::{ChunkId, PackId};
use drumlin_repo::pack::Reader;
use std::collections::{HashMap, HashSet};

/// Places in the order of need, by pack and place in its table. What isn't ranked comes last.
pub(crate) struct Ranks {
    packs: HashMap<PackId, Vec<u32>>,
    next: u32,
}

/// Of a chunk that none of the newest snapshots needs.
pub(crate) const UNRANKED: u32 = u32::MAX;

impl Ranks {
    /// Rank the chunks of `packs` by the newest snapshot of each host and paths; `snapshots` are newest first.
    pub fn find(reader: &Reader, packs: &[PackId], snapshots: &[Snapshot], monitor: &dyn Monitor) -> Result<Self> {
        let mut ranks = Ranks { packs: packs.iter().map(|pack| (*pack, Vec::new())).collect(), next: 0 };
        let mut groups = HashSet::new();
        let newest = snapshots.iter().filter(|s| s.partial.is_none() && groups.insert((&s.host, &s.paths)));
        let mut sweep = Sweep { reader, ranks: &mut ranks, met: Marks::default(), monitor };
        for root in newest.filter_map(|s| s.root) {
            reach::walk(&mut sweep, &root)?;
        }
        Ok(ranks)
    }

    /// The rank of a chunk.
    pub fn of(&self, pack: &PackId, ordinal: usize) -> u32 {
        self.packs.get(pack).and_then(|of| of.get(ordinal)).copied().unwrap_or(UNRANKED)
    }

    fn put(&mut self, pack: &PackId, ordinal: usize) {
        let Some(of) = self.packs.get_mut(pack) else { return };
        if of.len() <= ordinal {
            of.resize(ordinal + 1, UNRANKED);
        }
        of[ordinal] = self.next;
        // Four billion chunks in a row: what comes behind them is as good as unranked.
        self.next = self.next.saturating_add(1);
    }
}

struct Sweep<'a> {
    reader: &'a Reader,
    ranks: &'a mut Ranks,
    met: Marks,
    monitor: &'a dyn Monitor,
}

impl Visit for Sweep<'_> {
    fn meet(&mut self, _kind: PackKind, id: &ChunkId, _at: &Child) -> Result<bool> {
        let index = self.reader.index();
        let Some(location) = index.lookup(id)? else { return Ok(false) };
        let new = self.met.mark(index, location);
        if new {
            self.ranks.put(&index.pack(location.pack).id, location.ordinal as usize);
        }
        Ok(new)
    }

    fn read(&mut self, id: &ChunkId) -> Result<Vec<u8>> {
        Ok(self.reader.chunk(PackKind::Tree, id)?)
    }

    /// An order is no matter of safety.
    fn failed(&mut self, _at: &Child, _error: drumlin_repo::Error) -> Result<()> {
        Ok(())
    }

    fn pause(&mut self) -> Result<()> {
        if self.monitor.stop() { Err(Error::Interrupted) } else { Ok(()) }
    }
}
