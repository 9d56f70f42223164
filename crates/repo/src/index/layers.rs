//! The runs that an index asks, and which of their packs count.
//!
//! A run holds what many index objects name. Where one of these is gone, as a prune has put another in its place, its
//! packs are passed over; the run goes once most of them are. (To read all that it holds once more would cost whoever is
//! far away from the storage a fetch of nearly the whole index after each prune.)

use super::manifest::Covered;
use super::run::{PackInfo, Run};
use super::sync::Objects;
use drumlin_format::IndexId;
use std::collections::HashSet;
use std::sync::Arc;

/// Whether each pack of a run is of an index object that is gone; empty if none is.
pub(super) type Gone = Arc<[bool]>;

/// All runs.
#[derive(Default)]
pub(super) struct Layers {
    /// The newest last.
    pub runs: Vec<Layer>,
    /// All packs that there have been: each keeps its number, whatever becomes of its run.
    pub packs: Vec<Arc<PackInfo>>,
    /// Packs that were gone before their run came in.
    hidden: HashSet<u32>,
}

/// A run in its place.
#[derive(Clone)]
pub(super) struct Layer {
    pub run: Arc<Run>,
    /// The number of its first pack among all packs.
    pub base: u32,
    pub covered: Covered,
    gone: Gone,
    /// A part of it can't be read. The rest is of use until what it holds has been read again.
    is_bad: bool,
}

impl Layer {
    /// Whether a pack, by its number in the run, is of an index object that stands.
    pub fn counts(&self, pack: u32) -> bool {
        !self.gone.get(pack as usize).copied().unwrap_or(false)
    }

    /// The index objects of what counts, and how many packs each names.
    pub fn standing(&self) -> impl Iterator<Item = (IndexId, u32)> {
        let mut end = 0;
        self.covered.objects().filter(move |(_, packs)| {
            end += packs;
            // One that names nothing says nothing either.
            *packs == 0 || self.counts(end - packs)
        })
    }

    /// Pass over more of its packs. One whose object is there again is read again, from that.
    fn pass_over(&mut self, gone: &Gone) {
        self.gone = match (self.gone.is_empty(), gone.is_empty()) {
            (true, _) => gone.clone(),
            (false, true) => return,
            (false, false) => self.gone.iter().zip(gone.iter()).map(|(before, now)| *before || *now).collect(),
        };
    }
}

impl Layers {
    /// The newest run, of which these packs don't count.
    pub fn push(&mut self, run: Arc<Run>, covered: Covered, gone: Gone) {
        let base = self.packs.len() as u32;
        self.packs.extend(run.packs.iter().cloned());
        self.hidden.extend((base..).zip(gone.iter()).filter(|(_, gone)| **gone).map(|(number, _)| number));
        self.runs.push(Layer { run, base, covered, gone, is_bad: false });
    }

    /// The runs of which no part is known to be damaged.
    pub fn good(&self) -> impl Iterator<Item = &Layer> {
        self.runs.iter().filter(|layer| !layer.is_bad)
    }

    /// Take note that a part of a run can't be read. `false`: it isn't asked any more.
    pub fn spoil(&mut self, run: &Arc<Run>) -> bool {
        let spoilt = self.runs.iter_mut().find(|layer| Arc::ptr_eq(&layer.run, run));
        spoilt.map(|layer| layer.is_bad = true).is_some()
    }

    /// Let those go of which a part can't be read: others hold now what they do. Whether there were any.
    pub fn drop_bad(&mut self) -> bool {
        let before = self.runs.len();
        self.runs.retain(|layer| !layer.is_bad);
        self.runs.len() < before
    }

    /// What is named by other index objects than these counts no more.
    pub fn retire(&mut self, objects: &Objects) {
        self.runs.retain_mut(|layer| match layer.covered.gone(objects) {
            Some(gone) => {
                layer.pass_over(&gone);
                true
            }
            None => false,
        });
    }

    /// Packs that some index object has named since the index was opened, or had before, once for each time.
    pub fn named(&self) -> impl Iterator<Item = &Arc<PackInfo>> {
        (0..).zip(&self.packs).filter(|(number, _)| !self.hidden.contains(number)).map(|(_, info)| info)
    }
}
