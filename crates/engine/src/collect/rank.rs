//! In which order the newest snapshots need the chunks of some packs: what is written anew is written in that order, so
//! that a restore of them reads it in one sweep.

use super::places::{Places, Seeker, Spot};
use crate::monitor::Monitor;
use crate::reach::find::Found;
use crate::reach::marks::Marks;
use crate::reach::walk::{At, Visit, walk};
use crate::{Error, Result};
use drumlin_format::snapshot::Snapshot;
use drumlin_format::{ChunkId, PackId};
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
    pub fn find(places: &Places, packs: &[PackId], snapshots: &[Snapshot], monitor: &dyn Monitor) -> Result<Self> {
        let mut groups = HashSet::new();
        let newest = snapshots.iter().filter(|s| s.partial.is_none() && groups.insert((&s.host, &s.paths)));
        let numbers = packs.iter().filter_map(|pack| Some((places.keys().number(pack)?, *pack))).collect();
        let none = || Ranks { packs: packs.iter().map(|pack| (*pack, Vec::new())).collect(), next: 0 };
        let visitor = || {
            let (seeker, met) = (Seeker::new(places), Marks::new(places.keys().clone()));
            Sweep { seeker, numbers: &numbers, ranks: none(), met, monitor }
        };
        // By one thread: the order is the point.
        let walked = walk(newest.filter_map(|s| s.root).enumerate(), 1, visitor)?;
        Ok(walked.into_iter().next().map_or_else(none, |sweep| sweep.ranks))
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
    seeker: Seeker<'a>,
    /// The packs by their numbers.
    numbers: &'a HashMap<u32, PackId>,
    ranks: Ranks,
    met: Marks,
    monitor: &'a dyn Monitor,
}

impl Sweep<'_> {
    /// Whether a chunk is met for the first time.
    fn is_new(&mut self, found: &Found) -> bool {
        let new = self.met.mark(found);
        match found {
            Found::At(place) if new => {
                if let Some(pack) = self.numbers.get(&place.pack) {
                    self.ranks.put(pack, place.ordinal as usize);
                }
            }
            Found::Newer(info, ordinal) if new => self.ranks.put(&info.id, *ordinal as usize),
            _ => {}
        }
        new
    }
}

/// An order is no matter of safety: what can't be read is passed over.
impl<'a> Visit for Sweep<'a> {
    type Node = Spot<'a>;

    fn meet(&mut self, id: &ChunkId, _at: At) -> Result<(Spot<'a>, bool)> {
        let spot = self.seeker.node(id)?;
        let new = self.is_new(&spot.found);
        Ok((spot, new))
    }

    fn read(&mut self, id: &ChunkId, node: &mut Spot, _at: At) -> Result<Option<Vec<u8>>> {
        match node.read(id) {
            Err(e) if e.is_damage() => Ok(None),
            read => Ok(Some(read?)),
        }
    }

    fn malformed(&mut self, _id: &ChunkId, _node: &Spot, _at: At, _source: drumlin_format::Error) -> Result<()> {
        Ok(())
    }

    fn chunk(&mut self, id: &ChunkId, _at: At) -> Result<()> {
        let found = self.seeker.chunk(id)?;
        self.is_new(&found);
        Ok(())
    }

    fn go_on(&mut self) -> Result<()> {
        if self.monitor.stop() { Err(Error::Interrupted) } else { Ok(()) }
    }
}
