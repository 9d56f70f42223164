//! Bringing the cached index up to date: index objects that no run covers are read, runs that cover objects which are gone
//! are dropped.

use super::Index;
use super::manifest::{Covered, Manifest};
use super::run::Run;
use crate::{Error, Repository, Result, names};
use drumlin_format::IndexId;
use drumlin_format::index::{self, Entry};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::sync::Arc;

/// Index objects are read until they hold so many chunks, then a run is made of them.
const RUN_CHUNKS: usize = 128 << 10;
/// What a chunk takes in an index object, and what its filter takes in memory, in bytes; the latter with its page's key.
const OBJECT_BYTES_A_CHUNK: u64 = 36;
const FILTER_BYTES_A_HUNDRED_CHUNKS: u64 = 125;

/// The index objects of a repository and their lengths in bytes.
pub(super) type Objects = HashMap<IndexId, u64>;

pub(super) fn objects(repository: &Repository) -> Result<Objects> {
    let mut objects = HashMap::new();
    repository.store().list(names::INDEX, &mut |listed| {
        objects.extend(IndexId::parse(names::last(&listed.name)).map(|id| (id, listed.len)));
    })?;
    Ok(objects)
}

/// Bytes of memory that the filters of the exact index would take, about.
pub(super) fn filter_bytes(objects: &Objects) -> u64 {
    objects.values().sum::<u64>() / OBJECT_BYTES_A_CHUNK * FILTER_BYTES_A_HUNDRED_CHUNKS / 100
}

impl Index {
    /// Open the runs that the cache names. One that is damaged, or that covers an object which is gone, is passed over.
    pub(super) fn load(&self, objects: &Objects) {
        let Some(folder) = &self.folder else { return };
        for covered in Manifest::load(Some(folder)).runs {
            if covered.objects.iter().all(|o| objects.contains_key(o))
                && let Ok(run) = File::open(folder.join(&covered.name)).and_then(Run::open)
            {
                self.push_layer(Arc::new(run), covered);
            }
        }
    }

    /// Read the objects that no run covers.
    pub(super) fn catch_up(&self, objects: &Objects) -> Result<()> {
        let covered: HashSet<_> = self.read().runs.iter().flat_map(|l| l.covered.objects.iter().copied()).collect();
        let mut missing: Vec<_> = objects.keys().filter(|id| !covered.contains(id)).copied().collect();
        if missing.is_empty() {
            return Ok(());
        }
        missing.sort_unstable();
        self.read_objects(&missing)?;
        self.compact()?;
        self.save()
    }

    fn read_objects(&self, ids: &[IndexId]) -> Result<()> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut covered = Covered::default();
        let mut chunks = 0;
        for id in ids {
            let name = names::index(*id);
            let bytes = self.repository.store().get(&name)?;
            let index_key = &self.repository.secrets().index;
            // Whoever signed it is believed for now: chunks are checked by their ids wherever they are read.
            let (of_object, _) = index::open(*id, index_key, &bytes).map_err(Error::damaged(&name))?;
            chunks += of_object.iter().map(|e| e.table.chunks.len()).sum::<usize>();
            entries.extend(of_object);
            covered.objects.push(*id);
            if chunks >= RUN_CHUNKS {
                self.add_run(&entries, std::mem::take(&mut covered))?;
                entries.clear();
                chunks = 0;
            }
        }
        if entries.is_empty() && covered.objects.is_empty() { Ok(()) } else { self.add_run(&entries, covered) }
    }
}
