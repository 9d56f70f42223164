//! Bringing the cached index up to date: index objects that no run covers are read, what runs hold of objects that are
//! gone is passed over.

use super::manifest::{Covered, Manifest};
use super::run::{PackInfo, Run, RunEntry, key};
use super::{Index, Layer, View, manifest, sparse};
use crate::collection::Desk;
use crate::lock::lock;
use crate::{Error, Repository, Result, names};
use drumlin_format::IndexId;
use drumlin_format::index::{self, Entry};
use drumlin_format::pack::{PackKind, Table};
use drumlin_store::descriptors;
use drumlin_store::{Kind, Listed, Soon};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

/// So often the index is listed, with pauses that double from this one on.
const LOOKS_MAX: u32 = 8;
const PAUSE: Duration = Duration::from_millis(10);
/// Index objects are read until they hold so many chunks, then a run is made of them.
const RUN_CHUNKS: usize = 64 << 10;
/// So many index objects are asked for in advance, behind the next one, and no more than so many bytes of them.
const AHEAD_MAX: usize = 8;
const AHEAD_BYTES_MAX: u64 = 8 << 20;
/// If only hooks are read, a run is made of so many objects, each of which has a thousand hooks or fewer.
const HOOKS_OBJECTS: usize = 64;
/// What a chunk takes in an index object, and what its filter takes in memory, in bytes; the latter with its page's
/// key.
const OBJECT_BYTES_A_CHUNK: u64 = 36;
const FILTER_BYTES_A_HUNDRED_CHUNKS: u64 = 125;

/// The index objects of a repository and their lengths in bytes.
pub(super) type Objects = HashMap<IndexId, u64>;

/// The index objects that count in a view.
pub(super) fn objects(repository: &Repository, view: &View) -> Result<Objects> {
    let mut objects = HashMap::new();
    let mut take =
        |listed: Listed| objects.extend(IndexId::parse(names::last(&listed.name)).map(|id| (id, listed.len)));
    match view {
        View::All => repository.store().list(names::INDEX, &mut take)?,
        View::Among { objects: these, .. } => objects.clone_from(these),
        View::Without(ids) => {
            repository.store().list(names::INDEX, &mut take)?;
            objects.retain(|id, _| !ids.contains(id));
        }
        View::Writer { .. } => {
            // In this order: an object of somebody who was evicted before he wrote it is told as that.
            let mut decided = HashSet::new();
            repository.store().list_in_order(&[names::INDEX, names::DECISIONS], &mut |at, listed| match at {
                0 => take(listed),
                _ => decided.extend(names::decided_on(&listed.name)),
            })?;
            let ids: Vec<_> = objects.keys().copied().collect();
            let evicted = Desk::new(repository).evicted_among(&ids, decided)?;
            objects.retain(|id, _| !evicted.iter().any(|session| id.is_of(session)));
        }
    }
    Ok(objects)
}

/// Bytes of memory that the filters of the exact index would take, about.
pub(super) fn filter_bytes(objects: &Objects) -> u64 {
    objects.values().sum::<u64>() / OBJECT_BYTES_A_CHUNK * FILTER_BYTES_A_HUNDRED_CHUNKS / 100
}

/// To be called before the index is listed once more, as one of the objects that were listed so many times wasn't
/// there: it has been replaced by others just now, or the storage needs some time to agree with itself.
///
/// # Errors
/// [`Error::Ghost`]: it doesn't come to.
pub fn look_again(repository: &Repository, gone: IndexId, looks: u32) -> Result<()> {
    if looks >= LOOKS_MAX {
        return Err(Error::Ghost { name: names::index(gone), location: repository.store().location() });
    }
    if looks > 1 {
        std::thread::sleep(PAUSE * (1 << looks));
    }
    Ok(())
}

impl Index {
    /// The index objects that count for it, as they are now.
    pub(super) fn listed(&self) -> Result<Objects> {
        match &self.view {
            View::Among { .. } => Ok(lock(&self.objects).clone()),
            view => objects(&self.repository, view),
        }
    }

    /// Open the runs that the cache names. One that is damaged, or of which most is gone, is passed over.
    pub(super) fn load(&self, objects: &Objects) {
        let Some(folder) = &self.folder else { return };
        let Manifest { runs } = Manifest::load(Some(folder));
        *lock(&self.known) = runs.iter().map(|run| run.name.clone()).collect();
        let open = |covered: Covered| {
            let gone = covered.gone(objects)?;
            let file = descriptors::wait_for(|| File::open(folder.join(&covered.name))).ok()?;
            let run = Run::open(file).ok().filter(|run| covered.fits(run.packs.len()))?;
            Some((run, covered, gone))
        };
        // Of those that are of use.
        let runs = manifest::each_once(runs.into_iter().filter_map(open).collect(), |(_, covered, _)| covered);
        runs.into_iter().for_each(|(run, covered, gone)| self.push_layer(Arc::new(run), covered, gone));
    }

    /// Read the objects that no run covers, or one alone of which a part is damaged: that goes then.
    pub(super) fn catch_up(&self, objects: Objects) -> Result<()> {
        self.read_missing(objects)?;
        if self.write().drop_bad() {
            self.save();
        }
        Ok(())
    }

    /// Read the objects that no good run covers. One that is gone when it is read has been replaced by others: a
    /// collector was at work.
    fn read_missing(&self, mut objects: Objects) -> Result<()> {
        let mut looks = 0;
        loop {
            looks += 1;
            let covered: HashSet<_> = {
                let layers = self.read();
                let stay = layers.good().filter(|layer| layer.covered.gone(&objects).is_some());
                stay.flat_map(Layer::standing).map(|(id, _)| id).collect()
            };
            let mut missing: Vec<_> = objects.keys().filter(|id| !covered.contains(id)).copied().collect();
            if missing.is_empty() {
                self.stand_by(&objects);
                return Ok(());
            }
            missing.sort_unstable();
            let gone = match self.is_sparse() {
                true => self.read_hooks(&missing, &objects)?,
                false => self.read_objects(&missing, &objects)?,
            };
            self.stand_by(&objects);
            // What is found to be damaged there has to be read again.
            let all_stand = looks == LOOKS_MAX || self.compact()?;
            self.save();
            match gone {
                None if all_stand => return Ok(()),
                None => {}
                // Others do without what only it may name: it is stored again, or missed. A collector would take that
                // for nobody's.
                Some(gone) if matches!(self.view, View::Among { .. }) => {
                    return Err(Error::Replaced { name: names::index(gone) });
                }
                Some(_) if looks == LOOKS_MAX => return Ok(()),
                Some(gone) => look_again(&self.repository, gone, looks)?,
            }
            objects = self.listed()?;
        }
    }

    /// Whether an index object is done without that could not be read; noted if so. One that a newer program has
    /// written is not damaged, nor is one that was made with secrets which have been given since the repository was
    /// opened.
    fn passes_over(&self, name: &str, error: &Error) -> bool {
        let passes = self.lenient && error.is_damage() && !error.is_missing() && !error.is_newer();
        if passes {
            match self.repository.refuse_if_rekeyed(error) {
                // Who writes stores anew what he doesn't find.
                Err(Error::Rekeyed { .. }) if matches!(self.view, View::Writer { .. }) => {}
                Err(Error::Rekeyed { .. }) => self.repository.note_behind(),
                _ => self.repository.note_passed_over(name, error.cause()),
            }
        }
        passes
    }

    /// Whether an index object was left in part by a writer that was cut off. Of one whose secrets aren't known nobody
    /// can tell.
    fn is_torn(&self, id: IndexId, error: &Error) -> Result<bool> {
        let may_be = error.is_damage() && !error.is_unknown_generation();
        Ok(may_be && Desk::new(&self.repository).is_unfinished(id)?)
    }

    /// One of those that are gone, if some are.
    fn read_objects(&self, ids: &[IndexId], objects: &Objects) -> Result<Option<IndexId>> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut covered = Covered::default();
        let (mut chunks, mut gone) = (0, None);
        let (mut is_any_read, mut unread) = (self.read().good().next().is_some(), None);
        let mut ahead = Ahead { ids, objects, hinted: 0, bytes: 0 };
        for (at, id) in ids.iter().enumerate() {
            ahead.hint(&self.repository, at);
            let name = names::index(*id);
            // What passes is not to cost what only this one names.
            let get = || self.repository.store().get(&name);
            let opened = match get().or_else(|e| if e.kind == Kind::Io { get() } else { Err(e) }) {
                Err(e) if e.kind == Kind::Missing => {
                    gone = Some(*id);
                    continue;
                }
                Err(e) => Err(Error::from(e)),
                // Whoever signed it is believed for now: chunks are checked by their ids wherever they are read.
                Ok(bytes) => index::open(*id, self.repository.secrets(), &bytes).map_err(Error::damaged(&name)),
            };
            let of_object = match (&self.view, opened) {
                (_, Err(e)) if self.is_torn(*id, &e)? => continue,
                (_, Err(e)) if self.passes_over(&name, &e) => {
                    unread = unread.or(Some(e).filter(Error::is_unread));
                    continue;
                }
                (View::Among { objects, packs: Some(packs) }, Ok((mut entries, _))) if objects.contains_key(id) => {
                    entries.retain(|entry| packs.contains(&entry.pack));
                    entries
                }
                (_, Err(e)) => return self.repository.refuse_if_rekeyed(&e).and(Err(e)),
                (_, Ok((entries, _))) => entries,
            };
            is_any_read = true;
            chunks += of_object.iter().map(|e| e.table.chunks.len()).sum::<usize>();
            covered.add(*id, of_object.len());
            entries.extend(of_object);
            if chunks >= RUN_CHUNKS {
                self.add_run(&entries, std::mem::take(&mut covered))?;
                entries.clear();
                chunks = 0;
            }
        }
        if let Some(e) = unread
            && !is_any_read
        {
            // It is the storage that fails: to store everything anew would not help.
            return Err(e);
        }
        if !covered.is_empty() {
            self.add_run(&entries, covered)?;
        }
        Ok(gone)
    }

    /// Read these index objects for a sparse index: of data packs only the hooks. Of tree packs all chunks count, as
    /// their own tables name them.
    fn read_hooks(&self, ids: &[IndexId], objects: &Objects) -> Result<Option<IndexId>> {
        let mut gone = None;
        for ids in ids.chunks(HOOKS_OBJECTS) {
            gone = self.read_some_hooks(ids, objects)?.or(gone);
        }
        Ok(gone)
    }

    fn read_some_hooks(&self, ids: &[IndexId], objects: &Objects) -> Result<Option<IndexId>> {
        let read = self.repository.ask_many(ids, |id| -> Result<_> {
            match self.repository.index_hooks_of(*id, objects.get(id).copied().unwrap_or_default()) {
                Err(e) if self.is_torn(*id, &e)? => Ok(Said::Nothing),
                Err(e) if self.passes_over(&names::index(*id), &e) => Ok(Said::Nothing),
                Err(e) => Err(e),
                Ok(None) => Ok(Said::Gone),
                Ok(Some((_, hooks))) => Ok(Said::Hooks(hooks)),
            }
        })?;
        let (mut named, mut covered, mut gone) = (Vec::new(), Covered::default(), None);
        for (id, said) in ids.iter().zip(read) {
            match said {
                Said::Nothing => {}
                Said::Gone => gone = Some(*id),
                Said::Hooks(hooks) => {
                    covered.add(*id, hooks.len());
                    named.extend(hooks.into_iter().map(|of| (*id, of)));
                }
            }
        }
        if !covered.is_empty() {
            let tables = self.repository.ask_many(&named, |(object, of)| match of.kind {
                PackKind::Data => Ok(None),
                PackKind::Tree => self.tree_table(*object, of).map(Some),
            })?;
            let mut entries = Vec::new();
            for (pack, ((_, of), table)) in (0..).zip(named.iter().zip(tables)) {
                let of_hook = |hook: &u64| RunEntry { key: sparse::hook_key(*hook), pack, ordinal: 0 };
                match table {
                    None => entries.extend(of.hooks.iter().map(of_hook)),
                    Some(table) => entries.extend((0..).zip(&table.chunks).map(|(ordinal, chunk)| RunEntry {
                        key: key(&chunk.id),
                        pack,
                        ordinal,
                    })),
                }
            }
            let infos = named.iter().map(|(_, of)| Arc::new(PackInfo::from(of))).collect();
            self.write_run(entries, infos, covered)?;
        }
        Ok(gone)
    }

    /// A tree pack's table, by its own word; if that can't be had, by the index object's.
    fn tree_table(&self, object: IndexId, of: &index::Hooks) -> Result<Table> {
        match self.table_of(&PackInfo::from(of)).map(|(table, _)| table) {
            Err(e) if e.is_damage() => {
                let entries = match self.repository.index_entries(object) {
                    // Its hooks could be read; what else it says can't be.
                    Err(e) if self.passes_over(&names::index(object), &e) => None,
                    entries => entries?,
                };
                let entries = entries.unwrap_or_default();
                let entry = entries.into_iter().find(|entry| entry.pack == of.pack);
                Ok(entry.map(|entry| entry.table).unwrap_or_default())
            }
            other => other,
        }
    }
}

/// Asks for objects in advance: many small ones would else be waited for one after the other.
struct Ahead<'a> {
    ids: &'a [IndexId],
    objects: &'a Objects,
    /// How many have been asked for, or used.
    hinted: usize,
    /// Bytes of those that were asked for and not used.
    bytes: u64,
}

impl Ahead<'_> {
    /// The one in this place, which is the next in turn, is about to be used.
    fn hint(&mut self, repository: &Repository, at: usize) {
        let len = |at: usize| self.ids.get(at).and_then(|id| self.objects.get(id)).copied().unwrap_or_default();
        if at < self.hinted {
            self.bytes -= len(at);
        }
        self.hinted = self.hinted.max(at + 1);
        while let Some(next) = self.ids.get(self.hinted)
            && (self.hinted == at + 1
                || self.hinted <= at + AHEAD_MAX && self.bytes + len(self.hinted) <= AHEAD_BYTES_MAX)
        {
            repository.store().expect(Soon::Object(&names::index(*next)));
            self.bytes += len(self.hinted);
            self.hinted += 1;
        }
    }
}

/// What an index object has said.
enum Said {
    Hooks(Vec<index::Hooks>),
    /// It is of no use, and of somebody who was evicted.
    Nothing,
    Gone,
}
