//! Which places of chunks count for nothing, because the same chunk is found at another.

use super::run::{Run, RunEntry, RunIter};
use super::{Index, Layer, Location};
use crate::Result;
use drumlin_format::PackId;
use std::cmp::Reverse;
use std::sync::Arc;

/// A layer's next entry, and those behind it.
struct Head<'a> {
    entry: RunEntry,
    layer: &'a Layer,
    /// The newest layer, asked first, has the greatest.
    age: usize,
    rest: RunIter<'a>,
}

impl Index {
    /// Every place of a chunk in a finished pack that [`Index::lookup`] doesn't give, as it gives another one. In one
    /// pass over all runs; a place may come twice. Of an exact index whose user shuns nothing. Of a chunk that stands
    /// more than once in one pack the index knows the first place alone.
    pub fn shadowed(&self, mut each: impl FnMut(Location)) -> Result<()> {
        self.ask(|| self.try_shadowed(&mut each))
    }

    fn try_shadowed(&self, each: &mut impl FnMut(Location)) -> std::result::Result<(), Arc<Run>> {
        let layers: Vec<Layer> = self.read().runs.clone();
        let mut heads = Vec::new();
        for (age, layer) in layers.iter().enumerate() {
            let mut rest = layer.run.iter();
            if let Some(entry) = next(layer, &mut rest)? {
                heads.push(Head { entry, layer, age, rest });
            }
        }
        // The chunk at hand, and where it is found.
        let mut found: Option<(super::Key, PackId, u32)> = None;
        // Few runs: the least head is found by looking at all of them.
        while let Some(at) = (0..heads.len()).min_by_key(|at| (&heads[*at].entry.key, Reverse(heads[*at].age))) {
            let head = &mut heads[at];
            let RunEntry { key, pack, ordinal } = head.entry;
            let Some(info) = head.layer.run.packs.get(pack as usize) else { return Err(head.layer.run.clone()) };
            match found {
                // Two index objects may name one pack.
                Some((of, id, first)) if of == key && (id, first) != (info.id, ordinal) => {
                    each(Location { pack: head.layer.base + pack, ordinal });
                }
                Some((of, ..)) if of == key => {}
                _ => found = Some((key, info.id, ordinal)),
            }
            match next(head.layer, &mut head.rest)? {
                Some(next) => head.entry = next,
                None => drop(heads.swap_remove(at)),
            }
        }
        Ok(())
    }
}

/// The next entry whose pack counts. Fails with the run if it can't be read.
fn next(layer: &Layer, rest: &mut RunIter) -> std::result::Result<Option<RunEntry>, Arc<Run>> {
    let counts = |entry: &std::io::Result<RunEntry>| entry.as_ref().map_or(true, |entry| layer.counts(entry.pack));
    rest.find(counts).transpose().map_err(|_| layer.run.clone())
}
