//! What snapshots need, marked in the packs where it is to be found.

use super::ground::{self, Ground};
use super::places::{Places, Seeker, Spot};
use crate::lock::lock;
use crate::monitor::{Monitor, add};
use crate::reach::find::Found;
use crate::reach::marks::Marks;
use crate::reach::walk::{At, Visit, walk};
use crate::{Error, Result};
use drumlin_format::ChunkId;
use drumlin_format::snapshot::Snapshot;
use drumlin_repo::{Cache, Repository};
use std::collections::HashSet;
use std::slice;
use std::sync::{Arc, Mutex, PoisonError};

/// Marks what snapshots need.
pub(crate) struct Need<'a> {
    places: &'a Places,
    workers: usize,
    monitor: &'a dyn Monitor,
    /// The marks so far.
    pub marks: Marks,
    missing: Mutex<HashSet<ChunkId>>,
    /// References to chunks of contents.
    pub chunks: u64,
    /// How often the index was asked for those.
    pub lookups: u64,
}

/// Why something in a tree can't be read; of several reasons the first by the alphabet, whichever thread met it.
type Damage = Mutex<Option<(String, drumlin_repo::Error)>>;

impl<'a> Need<'a> {
    /// Nothing is needed yet.
    pub fn new(places: &'a Places, workers: usize, monitor: &'a dyn Monitor) -> Self {
        let (marks, missing) = (Marks::new(places.keys().clone()), Mutex::default());
        Need { places, workers: workers.max(1), monitor, marks, missing, chunks: 0, lookups: 0 }
    }

    /// All that some snapshots need.
    ///
    /// # Errors
    /// [`Error::Unsure`] if a node of their trees can't be read.
    pub fn add(&mut self, snapshots: &[Snapshot]) -> Result<()> {
        self.walk(snapshots, None)
    }

    /// What a snapshot needs, as far as its tree can be read; and why it can't, if not all of it can. What is damaged
    /// and another snapshot led to before is no reason.
    pub fn add_readable(&mut self, snapshot: &Snapshot) -> Result<Option<drumlin_repo::Error>> {
        let damage = Damage::default();
        self.walk(slice::from_ref(snapshot), Some(&damage))?;
        Ok(damage.into_inner().unwrap_or_else(PoisonError::into_inner).map(|(_, cause)| cause))
    }

    /// Whether anything is missing that snapshots need, or one can't be read. What others put or move meanwhile is not
    /// missing: before that is said it is looked once more.
    ///
    /// # Errors
    /// An index object is damaged; what concerns the storage as a whole.
    pub fn is_unmet(
        repository: &Repository,
        cache: &Arc<Cache>,
        workers: usize,
        monitor: &dyn Monitor,
    ) -> Result<bool> {
        match unmet(repository, cache, workers, monitor) {
            Ok(true) | Err(Error::Repo(drumlin_repo::Error::Replaced { .. })) => {
                unmet(repository, cache, workers, monitor)
            }
            other => other,
        }
    }

    /// The marks, and the chunks of file contents that are in no pack: what is lost needs no room.
    pub fn finish(self) -> (Marks, HashSet<ChunkId>) {
        (self.marks, self.missing.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn walk(&mut self, snapshots: &[Snapshot], damage: Option<&Damage>) -> Result<()> {
        let roots = snapshots.iter().enumerate().filter_map(|(tree, snapshot)| Some((tree, snapshot.root?)));
        let need = &*self;
        let visitor = || {
            let seeker = Seeker::new(need.places);
            Marker { need, snapshots, damage, seeker, chunks: 0, uncounted: 0 }
        };
        let (mut chunks, mut lookups) = (0, 0);
        for mut marker in walk(roots, need.workers, visitor)? {
            marker.count();
            chunks += marker.chunks;
            lookups += marker.seeker.lookups();
        }
        self.chunks += chunks;
        self.lookups += lookups;
        Ok(())
    }
}

/// As [`Need::is_unmet`], by one look.
fn unmet(repository: &Repository, cache: &Arc<Cache>, workers: usize, monitor: &dyn Monitor) -> Result<bool> {
    // What they need was named before they were put.
    let (snapshots, broken) = repository.snapshots()?;
    if !broken.is_empty() {
        return Ok(true);
    }
    let ground = Ground::look(repository)?;
    let (keys, broken) = ground.keys(repository, cache, workers, monitor)?;
    ground::refuse(broken)?;
    let known = ground.known().collect();
    let places = Places::new(repository, cache, (&ground, keys), (known, HashSet::new()), workers)?;
    let mut need = Need::new(&places, workers, monitor);
    for info in snapshots {
        if need.add_readable(&info.snapshot)?.is_some() {
            return Ok(true);
        }
    }
    Ok(!need.finish().1.is_empty())
}

/// One of the threads.
struct Marker<'a> {
    need: &'a Need<'a>,
    /// By the number of their trees.
    snapshots: &'a [Snapshot],
    /// `None`: any damage ends the walk.
    damage: Option<&'a Damage>,
    seeker: Seeker<'a>,
    chunks: u64,
    /// What was met since the monitor's counter was set: all threads share that.
    uncounted: u64,
}

impl Marker<'_> {
    fn count(&mut self) {
        add(&self.need.monitor.counters().chunks, std::mem::take(&mut self.uncounted));
    }

    fn damaged(&self, at: At, source: drumlin_repo::Error) -> Result<()> {
        let Some(damage) = self.damage else {
            return Err(Error::Unsure { snapshot: self.snapshots[at.tree].id, source });
        };
        let cause = source.to_string();
        let mut known = lock(damage);
        if known.as_ref().is_none_or(|(first, _)| cause < *first) {
            *known = Some((cause, source));
        }
        Ok(())
    }
}

impl<'a> Visit for Marker<'a> {
    type Node = Spot<'a>;

    fn meet(&mut self, id: &ChunkId, at: At) -> Result<(Spot<'a>, bool)> {
        self.uncounted += 1;
        let spot = self.seeker.node(id)?;
        if matches!(spot.found, Found::Nowhere) {
            self.damaged(at, drumlin_repo::Error::MissingChunk(*id))?;
        }
        let new = self.need.marks.mark(&spot.found);
        Ok((spot, new))
    }

    fn read(&mut self, id: &ChunkId, node: &mut Spot, at: At) -> Result<Option<Vec<u8>>> {
        match node.read(id) {
            Err(e) if e.is_damage() => self.damaged(at, e).map(|()| None),
            read => Ok(Some(read?)),
        }
    }

    fn malformed(&mut self, id: &ChunkId, _node: &Spot, at: At, source: drumlin_format::Error) -> Result<()> {
        self.damaged(at, drumlin_repo::Error::Damaged { object: format!("tree node {id}"), source })
    }

    fn chunk(&mut self, id: &ChunkId, _at: At) -> Result<()> {
        self.uncounted += 1;
        self.chunks += 1;
        let found = self.seeker.chunk(id)?;
        if matches!(found, Found::Nowhere) {
            lock(&self.need.missing).insert(*id);
        }
        self.need.marks.mark(&found);
        Ok(())
    }

    fn go_on(&mut self) -> Result<()> {
        self.count();
        if self.need.monitor.stop() { Err(Error::Interrupted) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
