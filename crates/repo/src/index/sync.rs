//! Bringing the cached index up to date: index objects that no run covers are read, runs that cover objects which are gone
//! are dropped.

use super::manifest::{Covered, Manifest};
use super::run::Run;
use super::{Index, Layers};
use crate::{Error, Result, names};
use drumlin_format::IndexId;
use drumlin_format::index::{self, Entry};
use std::collections::HashSet;
use std::fs::File;
use std::sync::{Arc, PoisonError};

/// Index objects are read until they hold so many chunks, then a run is made of them.
const RUN_CHUNKS: usize = 128 << 10;

impl Index {
    /// Learn what others have added or removed.
    pub fn refresh(&self) -> Result<()> {
        let mut objects = HashSet::new();
        self.repository
            .store()
            .list(names::INDEX, &mut |listed| objects.extend(IndexId::parse(names::last(&listed.name))))?;
        let manifest = Manifest::load(&self.cache);
        let known = self.read().runs.len() == manifest.runs.len() && !manifest.runs.is_empty();
        if !known {
            self.load(&manifest, &objects);
        }
        let covered: HashSet<_> = self.read().runs.iter().flat_map(|l| l.covered.objects.iter().copied()).collect();
        let mut missing: Vec<_> = objects.difference(&covered).copied().collect();
        if missing.is_empty() {
            return Ok(());
        }
        missing.sort_unstable();
        self.read_objects(&missing)?;
        self.compact()?;
        self.save()
    }

    /// Open the runs that the manifest names. One that is damaged, or that covers an object which is gone, is passed over.
    fn load(&self, manifest: &Manifest, objects: &HashSet<IndexId>) {
        *self.layers.write().unwrap_or_else(PoisonError::into_inner) = Layers::default();
        let Some(folder) = self.cache.runs_folder() else { return };
        for covered in &manifest.runs {
            if covered.objects.iter().all(|o| objects.contains(o))
                && let Ok(run) = File::open(folder.join(&covered.name)).and_then(Run::open)
            {
                self.push_layer(Arc::new(run), covered.clone());
            }
        }
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

    /// Forget the cached index and make it again from the repository: after a lookup that contradicts a pack.
    pub fn rebuild(&self) -> Result<()> {
        *self.layers.write().unwrap_or_else(PoisonError::into_inner) = Layers::default();
        Manifest::default().save(&self.cache)?;
        self.refresh()
    }
}
