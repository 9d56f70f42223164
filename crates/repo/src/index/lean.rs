//! The lean index: for who only reads, of a storage far away, and has next to nothing of the index yet: a new machine,
//! from which one file is to be restored or a folder looked at.
//!
//! It is a sparse one: of data packs it has their hooks, a fiftieth of the index, of tree packs all. Where a chunk is
//! none of the hooks, those that stand around it in the tree are asked, of the same leaf or list, and lead to where
//! most of that is: what stands together was mostly stored together. What isn't found that way is looked up in the
//! whole index, which is fetched then.

use super::manifest::Manifest;
use super::sync::Objects;
use super::{Index, IndexMode, Location};
use crate::lock::lock;
use crate::{Cache, Repository, Result};
use drumlin_format::ChunkId;
use drumlin_format::PackId;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Less than this is fetched whole, at once.
const WORTH_BYTES: u64 = 256 << 10;
/// Of what the whole index takes, the part that tables may take that are fetched instead.
const TABLES_PART: u64 = 4;
/// Leaves and lists that are kept in mind: of the tree, and of the files that several threads restore.
const STRETCHES: usize = 8;

/// Whether most of these objects would have to be fetched, and that would take a while.
pub(super) fn is_worth_it(repository: &Repository, cache: &Cache, objects: &Objects) -> bool {
    if !repository.store().is_far() {
        return false;
    }
    let runs = Manifest::load(cache.runs_folder("runs").as_deref()).runs;
    let standing = runs.iter().filter(|run| run.gone(objects).is_some());
    let here: HashSet<_> = standing.flat_map(|run| run.objects()).map(|(id, _)| id).collect();
    let bytes = |is_here: bool| -> u64 {
        objects.iter().filter(|(id, _)| here.contains(id) == is_here).map(|(_, len)| len).sum()
    };
    bytes(false) > WORTH_BYTES.max(bytes(true))
}

/// Bytes of tables that may be fetched until the whole index is.
pub(super) fn tables_bytes_max(objects: &Objects) -> u64 {
    objects.values().sum::<u64>() / TABLES_PART
}

/// The whole index, once it was needed.
#[derive(Default)]
pub(super) struct Whole {
    index: Mutex<Option<Arc<Index>>>,
    is_there: AtomicBool,
    /// What numbers packs have in the lean one, by those that they have in the whole.
    numbers: Mutex<HashMap<u32, u32>>,
}

/// Chunks that stand together in the tree.
#[derive(Default)]
pub(super) struct Near {
    stretches: Mutex<VecDeque<Stretch>>,
}

struct Stretch {
    /// The node of a list that names them: it stands in a stretch itself.
    of: Option<ChunkId>,
    ids: Vec<ChunkId>,
}

impl Near {
    fn add(&self, of: Option<ChunkId>, ids: Vec<ChunkId>) {
        let mut stretches = lock(&self.stretches);
        stretches.truncate(STRETCHES - 1);
        stretches.push_front(Stretch { of, ids });
    }

    /// The hooks around a chunk, the nearest first; of a long file's, those of the file before those around it.
    pub(super) fn hooks(&self, id: &ChunkId) -> Vec<u64> {
        let stretches = lock(&self.stretches);
        let (mut hooks, mut id) = (Vec::new(), Some(*id));
        for _ in 0..STRETCHES {
            let place_in = |stretch: &Stretch| stretch.ids.iter().position(|of| Some(*of) == id);
            let found = stretches.iter().find_map(|stretch| Some((place_in(stretch)?, stretch)));
            let Some((at, stretch)) = found else { break };
            let mut around: Vec<(usize, u64)> = (0..)
                .zip(&stretch.ids)
                .filter(|(_, id)| id.is_hook())
                .map(|(place, id): (usize, _)| (place.abs_diff(at), id.hook()))
                .collect();
            around.sort_unstable();
            hooks.extend(around.into_iter().map(|(_, hook)| hook));
            id = stretch.of;
        }
        hooks
    }
}

impl Index {
    /// Whether it is lean.
    pub(super) fn is_lean(&self) -> bool {
        self.whole.is_some()
    }

    /// Chunks that stand together in the tree, in their order, some of which will be looked up: of a lean index these
    /// lead to one another. `of`: the node of a list that names them.
    pub fn expect_near(&self, of: Option<ChunkId>, ids: impl Iterator<Item = ChunkId>) {
        if let Some(champions) = self.champions.as_ref().filter(|_| self.is_lean()) {
            champions.near.add(of, ids.collect());
        }
    }

    /// Whether the whole index is there: then there is no need to look for anything in any other way.
    pub(super) fn has_whole(&self) -> bool {
        self.whole.as_ref().is_some_and(|whole| whole.is_there.load(Ordering::Relaxed))
    }

    /// The whole index, fetched now if it has to be; `None` if this one is not lean.
    fn whole(&self) -> Result<Option<(&Whole, Arc<Index>)>> {
        let Some(whole) = &self.whole else { return Ok(None) };
        let mut index = lock(&whole.index);
        let index = match &*index {
            Some(index) => index.clone(),
            None => {
                let fetched = Index::open_lenient(&self.repository, self.cache.clone(), IndexMode::Exact)?;
                whole.is_there.store(true, Ordering::Relaxed);
                index.insert(Arc::new(fetched)).clone()
            }
        };
        Ok(Some((whole, index)))
    }

    pub(super) fn find_in_whole(&self, id: &ChunkId) -> Result<Option<Location>> {
        let Some((whole, index)) = self.whole()? else { return Ok(None) };
        Ok(index.lookup(id)?.map(|found| self.as_here(whole, &index, found)))
    }

    pub(super) fn find_beside_in_whole(&self, id: &ChunkId, not: &[PackId]) -> Result<Option<Location>> {
        let Some((whole, index)) = self.whole()? else { return Ok(None) };
        Ok(index.lookup_beside(id, not)?.map(|found| self.as_here(whole, &index, found)))
    }

    /// Bring that up to date, too, if it is there.
    pub(super) fn refresh_whole(&self) -> Result<()> {
        let index = self.whole.as_ref().and_then(|whole| lock(&whole.index).clone());
        index.map_or(Ok(()), |index| index.refresh())
    }

    /// A place of the whole index as one of this: packs have numbers of their own in each.
    fn as_here(&self, whole: &Whole, index: &Index, found: Location) -> Location {
        let number = || {
            let info = index.pack(found.pack);
            let mut layers = self.write();
            let there = layers.packs.iter().position(|pack| **pack == *info);
            there.unwrap_or_else(|| {
                layers.packs.push(info);
                layers.packs.len() - 1
            }) as u32
        };
        Location { pack: *lock(&whole.numbers).entry(found.pack).or_insert_with(number), ..found }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(first: u8, n: u8) -> ChunkId {
        let mut id = [n; 32];
        id[0] = first;
        ChunkId(id)
    }

    #[test]
    fn the_nearest_hooks_come_first() {
        let near = Near::default();
        let (hook, other) = (|n| id(3, n), |n| id(9, n));
        near.add(None, vec![hook(0), other(1), other(2), hook(3), other(4), hook(5)]);
        assert_eq!(near.hooks(&other(4)), [hook(3).hook(), hook(5).hook(), hook(0).hook()]);
        assert!(near.hooks(&other(7)).is_empty());
        (0..STRETCHES as u8 - 1).for_each(|n| near.add(None, vec![other(20 + n), hook(20 + n)]));
        assert_eq!(near.hooks(&other(4)).len(), 3);
        near.add(None, vec![other(30)]);
        assert_eq!(
            (near.hooks(&other(4)), near.hooks(&other(30)), near.hooks(&other(21))),
            (vec![], vec![], vec![hook(21).hook()])
        );
    }

    #[test]
    fn a_long_files_chunks_lead_to_what_is_around_the_file() {
        let near = Near::default();
        let (hook, other) = (|n| id(3, n), |n| id(9, n));
        near.add(None, vec![hook(0), other(1), other(2), hook(3)]);
        near.add(Some(other(2)), vec![other(50), other(51)]);
        assert_eq!(near.hooks(&other(51)), [hook(3).hook(), hook(0).hook()]);
        near.add(Some(other(50)), vec![other(60), hook(61)]);
        assert_eq!(near.hooks(&other(60)), [hook(61).hook(), hook(3).hook(), hook(0).hook()]);
        // What claims to stand in itself has an end.
        near.add(Some(hook(70)), vec![hook(70)]);
        assert_eq!(near.hooks(&hook(70)).len(), STRETCHES);
    }
}
