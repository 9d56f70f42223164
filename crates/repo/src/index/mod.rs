//! Which pack holds a chunk.
//!
//! Three layers, asked in this order: the chunks of the run at hand (a hash table), what earlier runs stored (sorted
//! [`run`]s in the local cache, each behind its filters), and, where those are missing, the repository's index objects,
//! from which the runs are made. The index is never the only truth: the packs' own tables are.
//!
//! The *sparse* index is for repositories whose index is too large to hold or to fetch. It knows of data packs only
//! their hooks, 1 chunk in 64; where a chunk at hand is a hook of some pack, that pack's table is fetched and the
//! chunks around are looked up there. For who only reads, and has little of the index yet, the same is [`lean`]. After
//! Lillibridge et al., 'Sparse Indexing' (FAST '09), with packs as segments.
//!
//! [`Index::claim`] settles who stores a chunk that several threads meet at once.

mod fresh;
mod layers;
mod lean;
mod manifest;
mod objects;
mod run;
mod shadow;
mod sparse;
mod sync;

pub(crate) use run::Key;
pub use run::PackInfo;
pub use sync::look_again;

use crate::collection::Registration;
use crate::lock::lock;
use crate::{Cache, Error, Repository, Result};
use drumlin_format::index::Entry;
use drumlin_format::pack::PackKind;
use drumlin_format::{ChunkId, IndexId, PackId};
use fresh::Fresh;
use layers::{Gone, Layer, Layers};
use manifest::{Covered, Manifest};
use run::{Run, RunEntry, RunWriter, cache_error, key};
use sparse::Champions;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockWriteGuard};

/// Where a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location {
    /// The pack's number in this index: see [`Index::pack`].
    pub pack: u32,
    /// The chunk's place in the pack's table.
    pub ordinal: u32,
}

/// What the index holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexStats {
    /// Chunks.
    pub chunks: u64,
    /// Packs.
    pub packs: u64,
    /// Bytes of memory that it takes.
    pub memory: u64,
}

/// How much of the index to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexMode {
    /// All of it, as long as its filters take no more than so many bytes of memory; else its hooks.
    Auto(usize),
    /// All of it.
    Exact,
    /// Its hooks.
    Sparse,
    /// Its hooks, if the storage is far away and most of the index would have to be fetched; all of it once something
    /// isn't found by them. For who only reads.
    Lean,
}

/// The index of a repository.
pub struct Index {
    repository: Repository,
    cache: Arc<Cache>,
    folder: Option<PathBuf>,
    /// All runs that the cache has named as far as this index knows. Others are of processes that are at work beside it.
    known: Mutex<HashSet<String>>,
    /// The index objects of which this is the index.
    objects: Mutex<sync::Objects>,
    /// `None`: the index is exact.
    champions: Option<Champions>,
    /// Of a lean index the exact one.
    whole: Option<lean::Whole>,
    fresh: Fresh,
    layers: RwLock<Layers>,
    view: View,
    /// The tag of the newest generation, for a writer.
    newest: Option<u32>,
    /// An index object that is damaged is passed over, and noted, instead of ending everything: what only it names is
    /// missed by who reads, and stored again by who writes.
    lenient: bool,
    /// A writer that can open no tree pack but those whose keys its cache has.
    blind: bool,
    refreshing: Mutex<()>,
}

/// For whom the index is: `docs/collection.md`.
enum View {
    /// Whoever reads: all that is there counts.
    All,
    /// A writer: packs that a plan condemns, or that are damaged, are taken for gone; index objects of evicted sessions
    /// don't count.
    Writer { condemned: BTreeSet<PackId> },
    /// A collector: these index objects alone, whatever comes, and those that it puts itself; and of the packs that
    /// these name only some, if not all.
    Among { objects: sync::Objects, packs: Option<HashSet<PackId>> },
    /// A check: all index objects but these, which can't be read.
    Without(HashSet<IndexId>),
}

/// So many runs of about one size become one: an index of any size has a few runs of each size.
const MERGE_RUNS: usize = 8;

impl Index {
    /// The exact index as the cache knows it, brought up to date with the repository.
    ///
    /// # Errors
    /// As [`Index::open_with`].
    pub fn open(repository: &Repository, cache: Arc<Cache>) -> Result<Self> {
        Index::open_with(repository, cache, IndexMode::Exact)
    }

    /// The lean index, for commands that only read, perhaps only a part, and perhaps only once. Damaged index objects
    /// are passed over ([`Repository::passed_over`]).
    ///
    /// # Errors
    /// As [`Index::open_lenient`].
    pub fn open_lean(repository: &Repository, cache: Arc<Cache>) -> Result<Self> {
        Index::open_lenient(repository, cache, IndexMode::Lean)
    }

    /// The index in a mode, for commands that only read. Damaged index objects are passed over
    /// ([`Repository::passed_over`]).
    ///
    /// # Errors
    /// That the storage fails, or gives out nothing of any index object; that a newer program has written one.
    pub fn open_lenient(repository: &Repository, cache: Arc<Cache>, mode: IndexMode) -> Result<Self> {
        Index::open_view(repository, cache, mode, View::All, true)
    }

    /// The index in a mode, for reading: it has all packs that are named.
    ///
    /// # Errors
    /// That an index object is damaged, or sealed with secrets that have been given since the repository was opened
    /// ([`Error::Rekeyed`]); that the storage fails. A cache that is damaged is none: it is made again.
    pub fn open_with(repository: &Repository, cache: Arc<Cache>, mode: IndexMode) -> Result<Self> {
        Index::open_view(repository, cache, mode, View::All, false)
    }

    /// The exact index without what some index objects say, because they can't be read. What the cache knows of them
    /// stays as it is, and isn't asked.
    ///
    /// # Errors
    /// As [`Index::open_with`], of all others.
    pub fn open_without(repository: &Repository, cache: Arc<Cache>, unreadable: HashSet<IndexId>) -> Result<Self> {
        Index::open_view(repository, cache, IndexMode::Exact, View::Without(unreadable), false)
    }

    /// The index of what a registered writer may refer to. Damaged index objects are passed over
    /// ([`Repository::passed_over`]).
    ///
    /// # Errors
    /// As [`Index::open_lenient`]; and that the newest generation of secrets can't be told.
    pub fn open_for(registration: &Registration, cache: Arc<Cache>, mode: IndexMode) -> Result<Self> {
        Index::open_for_without(registration, cache, mode, &HashSet::new())
    }

    /// As [`Index::open_for`], without packs that are known to be damaged.
    pub fn open_for_without(
        registration: &Registration,
        cache: Arc<Cache>,
        mode: IndexMode,
        damaged: &HashSet<PackId>,
    ) -> Result<Self> {
        let mut condemned = registration.known().condemned();
        condemned.extend(damaged);
        Index::open_view(&registration.repository, cache, mode, View::Writer { condemned }, true)
    }

    /// The exact index of what these index objects say, and if not of all packs that they name only of these, for a
    /// collector: a chunk that one of them holds is found there, even if others hold it as well. It stays as it is:
    /// what a collector has seen doesn't change under its hands, and what others put meanwhile by whatever key takes
    /// nothing from its sight.
    ///
    /// # Errors
    /// [`Error::Replaced`] if one of them is gone: who asks has to look anew.
    pub fn open_among(
        repository: &Repository,
        cache: Arc<Cache>,
        objects: HashMap<IndexId, u64>,
        packs: Option<HashSet<PackId>>,
    ) -> Result<Self> {
        Index::open_view(repository, cache, IndexMode::Exact, View::Among { objects, packs }, false)
    }

    fn open_view(
        repository: &Repository,
        cache: Arc<Cache>,
        mode: IndexMode,
        view: View,
        lenient: bool,
    ) -> Result<Self> {
        let objects = sync::objects(repository, &view)?;
        let lean = mode == IndexMode::Lean && lean::is_worth_it(repository, &cache, &objects);
        let sparse = match mode {
            IndexMode::Exact => false,
            IndexMode::Sparse => true,
            IndexMode::Auto(bytes) => sync::filter_bytes(&objects) > bytes as u64,
            IndexMode::Lean => lean,
        };
        // Runs are shared with others only if they hold all that the objects name.
        let shared = matches!(view, View::All | View::Writer { .. } | View::Among { packs: None, .. });
        let folder = if shared { cache.runs_folder(if sparse { "hooks" } else { "runs" }) } else { None };
        let index = Index {
            repository: repository.clone(),
            cache,
            folder,
            known: Mutex::default(),
            objects: Mutex::default(),
            champions: sparse.then(|| Champions::new(if lean { lean::tables_bytes_max(&objects) } else { u64::MAX })),
            whole: lean.then(Default::default),
            fresh: Fresh::default(),
            layers: RwLock::new(Layers::default()),
            blind: matches!(view, View::Writer { .. }) && repository.secrets().meta.is_none(),
            newest: matches!(view, View::Writer { .. }).then(|| repository.generation()).transpose()?,
            view,
            lenient,
            refreshing: Mutex::new(()),
        };
        index.load(&objects);
        index.catch_up(objects)?;
        Ok(index)
    }

    /// Whether it holds hooks alone.
    pub fn is_sparse(&self) -> bool {
        self.champions.is_some()
    }

    /// A pack by its number.
    pub fn pack(&self, number: u32) -> Arc<PackInfo> {
        self.read().packs[number as usize].clone()
    }

    /// Where a chunk is, if it is in a finished pack. A sparse index may not find one that is there.
    pub fn lookup(&self, id: &ChunkId) -> Result<Option<Location>> {
        match self.fresh.lookup(&key(id)) {
            Some(Some(found)) => Ok(Some(found)),
            // Claimed, and on its way into a pack: it may be in one of an older generation as well.
            Some(None) | None => self.find(id),
        }
    }

    /// Where a chunk is, of all places that index objects give the first that will do, by its pack and its place in
    /// that one's table, and always the same one of several: for who knows better than each of them, and asks this index
    /// nothing meanwhile. Of an exact index.
    ///
    /// # Errors
    /// The index can't be read.
    pub fn lookup_where(
        &self,
        id: &ChunkId,
        will_do: &mut dyn FnMut(&PackInfo, u32) -> bool,
    ) -> Result<Option<Location>> {
        self.lookup_runs(&key(id), &[], will_do)
    }

    fn find(&self, id: &ChunkId) -> Result<Option<Location>> {
        let found = self.lookup_runs(&key(id), &[], &mut |_, _| true)?;
        match &self.champions {
            Some(champions) if found.is_none() && !self.has_whole() => match champions.find(self, id)? {
                None => self.find_in_whole(id),
                found => Ok(found),
            },
            Some(_) if found.is_none() => self.find_in_whole(id),
            _ => Ok(found),
        }
    }

    /// Where a chunk is besides these packs.
    pub(crate) fn lookup_beside(&self, id: &ChunkId, not: &[PackId]) -> Result<Option<Location>> {
        let found = self.lookup_runs(&key(id), not, &mut |_, _| true)?;
        if found.is_some() { Ok(found) } else { self.find_beside_in_whole(id, not) }
    }

    /// Take note of index objects that have come or gone. Locations that were given out stay valid, but what is there
    /// may be gone. A collector's stays as it is.
    pub fn refresh(&self) -> Result<()> {
        if matches!(self.view, View::Among { .. }) {
            return Ok(());
        }
        let _one_at_a_time = lock(&self.refreshing);
        self.catch_up(self.listed()?)?;
        self.refresh_whole()
    }

    fn lookup_runs(
        &self,
        wanted: &run::Key,
        not: &[PackId],
        will_do: &mut dyn FnMut(&PackInfo, u32) -> bool,
    ) -> Result<Option<Location>> {
        self.ask(|| self.try_runs(wanted, not, will_do))
    }

    /// Ask the runs something. The cache is a hint: one that is damaged is made again, and all are asked once more.
    /// Until then it stays, for others that ask: what they wouldn't find they would take for lost, or store again.
    fn ask<T>(&self, mut ask: impl FnMut() -> std::result::Result<T, Arc<Run>>) -> Result<T> {
        let mut damaged = match ask() {
            Ok(answer) => return Ok(answer),
            Err(damaged) => damaged,
        };
        let _one_at_a_time = lock(&self.refreshing);
        // Each of them may be, but none that has just been made.
        let most = self.read().runs.len() + 1;
        for _ in 0..most {
            // Or another thread has been faster.
            if self.write().spoil(&damaged) {
                self.catch_up(self.listed()?)?;
            }
            match ask() {
                Ok(answer) => return Ok(answer),
                Err(another) => damaged = another,
            }
        }
        Err(self.damaged_twice())
    }

    fn damaged_twice(&self) -> Error {
        let detail = "a run of the index was damaged twice; 'drumlin cache clear' removes it";
        self.damaged(std::io::Error::other(detail))
    }

    /// Where a chunk is, besides some packs, at a place that will do. Fails with the run that can't be read.
    fn try_runs(
        &self,
        wanted: &run::Key,
        not: &[PackId],
        will_do: &mut dyn FnMut(&PackInfo, u32) -> bool,
    ) -> std::result::Result<Option<Location>, Arc<Run>> {
        let layers = self.read();
        // The newest runs are last, and what they hold is asked for most.
        for layer in layers.runs.iter().rev() {
            // It may be in several packs; and if it is only in those that are passed over, it is stored once more.
            let will_do = |pack, ordinal| {
                let info = &layers.packs[(layer.base + pack) as usize];
                layer.counts(pack) && !self.passes(&info.id, not) && will_do(info, ordinal)
            };
            match layer.run.lookup(wanted, will_do) {
                Ok(Some((pack, ordinal))) => return Ok(Some(Location { pack: layer.base + pack, ordinal })),
                Ok(None) => {}
                Err(_) => return Err(layer.run.clone()),
            }
        }
        Ok(None)
    }

    fn passes(&self, pack: &PackId, not: &[PackId]) -> bool {
        not.contains(pack) || self.shuns(pack)
    }

    fn shuns(&self, pack: &PackId) -> bool {
        matches!(&self.view, View::Writer { condemned } if condemned.contains(pack))
    }

    /// Whether the caller has to store this chunk: nobody has, and nobody else in this run is about to.
    pub fn claim(&self, id: &ChunkId) -> Result<bool> {
        let wanted = key(id);
        if self.fresh.contains(&wanted) || self.serves(id)? {
            return Ok(false);
        }
        Ok(self.fresh.claim(wanted))
    }

    /// Whether a new tree may not refer to all nodes that are there: see [`Index::serves`].
    pub fn is_choosy(&self) -> bool {
        self.blind || self.newest.is_some_and(|newest| newest != 0)
    }

    /// Whether a new tree may refer to a chunk where it is. A node of an older generation is stored anew by whoever
    /// needs it again, so that trees become the newest generation's by themselves; and whoever can't open tree packs
    /// needs nodes in packs of his own, to compare with the next time.
    pub fn serves(&self, id: &ChunkId) -> Result<bool> {
        let Some(mut location) = self.find(id)? else { return Ok(false) };
        let mut not = Vec::new();
        loop {
            let pack = self.pack(location.pack);
            let is_readable = || !self.blind || self.cache.pack_key(pack.id).is_some();
            if pack.kind == PackKind::Data || self.newest.is_none_or(|n| n == pack.generation) && is_readable() {
                return Ok(true);
            }
            not.push(pack.id);
            match self.lookup_beside(id, &not)? {
                Some(other) => location = other,
                None => return Ok(false),
            }
        }
    }

    /// Take note of a finished pack. Its chunks are found from now on.
    pub fn add_pack(&self, entry: &Entry) {
        let number = self.add_pack_info(entry);
        for (ordinal, chunk) in entry.table.chunks.iter().enumerate() {
            self.fresh.place(key(&chunk.id), Location { pack: number, ordinal: ordinal as u32 });
        }
    }

    fn add_pack_info(&self, entry: &Entry) -> u32 {
        let mut layers = self.write();
        layers.packs.push(Arc::new(PackInfo::from(entry)));
        layers.packs.len() as u32 - 1
    }

    /// Take note that an index object names these packs, which [`Index::add_pack`] has been told of: from now on the
    /// cache holds their chunks, and this process's memory no longer does.
    pub(crate) fn settle(&self, object: drumlin_format::IndexId, entries: &[Entry]) -> Result<()> {
        // Whoever brings it up to date meanwhile may have listed the objects before this one was there, and would have
        // it pass for gone.
        let _one_at_a_time = lock(&self.refreshing);
        if matches!(self.view, View::Among { .. }) {
            lock(&self.objects).insert(object, 0);
        }
        self.add_run(entries, Covered::one(object, entries.len()))?;
        for entry in entries {
            entry.table.chunks.iter().for_each(|c| self.fresh.forget(&key(&c.id)));
        }
        if !self.compact()? {
            self.catch_up(self.listed()?)?;
        }
        self.save();
        Ok(())
    }

    /// Make a run of the packs of one index object.
    fn add_run(&self, entries: &[Entry], covered: Covered) -> Result<()> {
        let mut sorted = Vec::with_capacity(entries.iter().map(|e| e.table.chunks.len()).sum());
        for (pack, entry) in entries.iter().enumerate() {
            let hooks_alone = self.is_sparse() && entry.kind == PackKind::Data;
            sorted.extend(entry.table.chunks.iter().enumerate().filter(|(_, c)| !hooks_alone || c.id.is_hook()).map(
                |(ordinal, chunk)| RunEntry {
                    key: if hooks_alone { sparse::hook_key(chunk.id.hook()) } else { key(&chunk.id) },
                    pack: pack as u32,
                    ordinal: ordinal as u32,
                },
            ));
        }
        self.write_run(sorted, entries.iter().map(|e| Arc::new(PackInfo::from(e))).collect(), covered)?;
        self.keep_tables(entries);
        Ok(())
    }

    fn write_run(&self, mut entries: Vec<RunEntry>, packs: Vec<Arc<PackInfo>>, covered: Covered) -> Result<()> {
        entries.sort_unstable();
        let write = |file| {
            let mut writer = RunWriter::new(file);
            entries.iter().try_for_each(|e| writer.push(*e))?;
            writer.finish(&packs)
        };
        let told = |why: Error| self.repository.note_unkept(&why);
        let (run, name) = manifest::make_run(&self.cache, self.folder.as_deref(), write, told)?;
        drop(entries);
        self.push_layer(Arc::new(run), covered.named(name), Gone::default());
        Ok(())
    }

    /// Whoever reads chunks will want these. Of a sparse index they are too many.
    fn keep_tables(&self, entries: &[Entry]) {
        let Some(tables) = self.cache.tables().filter(|_| !self.is_sparse()) else { return };
        // Of trees even those who can't read them read what they have written themselves.
        let is_read =
            |entry: &&Entry| entry.kind == PackKind::Tree || self.repository.opens(entry.kind, entry.generation);
        entries.iter().filter(is_read).for_each(|entry| tables.keep(entry.pack, &entry.table));
    }

    fn push_layer(&self, run: Arc<Run>, covered: Covered, gone: Gone) {
        self.write().push(run, covered, gone);
    }

    /// Merge runs where there are many of about one size. `false`: some of them are damaged, and what they cover has to
    /// be read again. Where there is no room for a merged one, or no file can be made for it, they stay as they are.
    fn compact(&self) -> Result<bool> {
        while let Some(group) = self.mergeable() {
            let (file, name) = match manifest::new_run(&self.cache, self.folder.as_deref()) {
                Ok(made) => made,
                Err(e) => {
                    self.repository.note_unkept(&e);
                    return Ok(true);
                }
            };
            let runs: Vec<_> = group.iter().map(|l| l.run.clone()).collect();
            let Ok(run) = run::merge(&runs, |at, pack| group[at].counts(pack), file).map(Arc::new) else {
                manifest::remove_run(self.folder.as_deref(), &name);
                let damaged: Vec<_> = runs.iter().filter(|run| !run.is_sound()).collect();
                let mut layers = self.write();
                for run in &damaged {
                    layers.spoil(run);
                }
                return Ok(damaged.is_empty());
            };
            let mut covered = Covered::default().named(name);
            group.iter().flat_map(Layer::standing).for_each(|(id, packs)| covered.add(id, packs as usize));
            let mut layers = self.write();
            layers.runs.retain(|l| !runs.iter().any(|r| Arc::ptr_eq(r, &l.run)));
            // Packs keep the numbers that they had: locations given out stay valid.
            layers.push(run, covered, Gone::default());
        }
        Ok(true)
    }

    /// As many runs of about one size (a factor of eight) as are worth merging.
    fn mergeable(&self) -> Option<Vec<Layer>> {
        let mut sizes: HashMap<u32, Vec<Layer>> = HashMap::new();
        for layer in self.read().good() {
            sizes.entry(layer.run.entries.max(1).ilog2() / 3).or_default().push(layer.clone());
        }
        sizes.into_values().find(|group| group.len() >= MERGE_RUNS)
    }

    /// Name the runs that are there. Failing that, whoever comes next has to read the index again.
    fn save(&self) {
        let named = |layer: &&Layer| self.folder.is_none() || !layer.covered.name.is_empty();
        let runs = self.read().good().filter(named).map(|l| l.covered.clone()).collect();
        if let Err(e) = (Manifest { runs }).save(self.folder.as_deref(), &mut lock(&self.known)) {
            self.repository.note_unkept(&e);
        }
    }

    /// How much it holds; of chunks, those that are passed over as well.
    pub fn stats(&self) -> IndexStats {
        let layers = self.read();
        let mut packs: Vec<_> = layers.named().map(|p| p.id).collect();
        packs.sort_unstable();
        packs.dedup();
        IndexStats {
            chunks: layers.runs.iter().map(|l| l.run.entries).sum::<u64>() + self.fresh.placed() as u64,
            packs: packs.len() as u64,
            memory: layers.runs.iter().map(|l| l.run.memory() as u64).sum::<u64>() + self.fresh.memory() as u64,
        }
    }

    /// The index objects of which this is the index, and their lengths, in order: those that were listed when it was
    /// brought up to date.
    pub fn objects(&self) -> Vec<(IndexId, u64)> {
        let mut objects: Vec<_> = lock(&self.objects).iter().map(|(id, len)| (*id, *len)).collect();
        objects.sort_unstable();
        objects
    }

    /// From now on it is the index of these: what is named by others counts no more. After all that they name has been
    /// read, so that whoever asks meanwhile finds what is there.
    fn stand_by(&self, objects: &sync::Objects) {
        self.write().retire(objects);
        lock(&self.objects).clone_from(objects);
    }

    /// All packs, each once, in no particular order.
    pub fn packs(&self) -> Vec<Arc<PackInfo>> {
        let mut packs: Vec<_> = self.read().named().cloned().collect();
        packs.sort_unstable_by_key(|p| p.id);
        packs.dedup_by_key(|p| p.id);
        packs
    }

    /// What an index object says of a pack, or has said since this index was opened.
    pub(crate) fn info(&self, pack: &PackId) -> Option<Arc<PackInfo>> {
        self.read().named().find(|info| info.id == *pack).cloned()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Layers> {
        self.layers.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Layers> {
        self.layers.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn damaged(&self, source: std::io::Error) -> Error {
        let folder = self.folder.clone().unwrap_or_else(|| "(in memory)".into());
        cache_error("use the index in", &folder)(source)
    }
}

impl From<&Entry> for PackInfo {
    fn from(entry: &Entry) -> Self {
        PackInfo {
            id: entry.pack,
            kind: entry.kind,
            generation: entry.generation,
            len: entry.pack_len,
            table_offset: entry.table.blocks_end(),
            table_len: entry.table_len,
        }
    }
}
