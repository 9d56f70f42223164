//! How much there is, and what deduplication and compression each save.
//!
//! For single snapshots what they refer to is followed, each node once however many snapshots share it; which chunks
//! were met is kept as one bit for each chunk. For the whole repository its index objects are read, one after the
//! other, and no tree at all.

use crate::list::report_damage;
use crate::monitor::{Counters, Monitor, Problem, ProblemKind, add};
use crate::parity::Objects;
use crate::reach::find::{Finder, Found, ask, passed};
use crate::reach::keys::{Keys, Place};
use crate::reach::marks::Marks;
use crate::reach::walk::{At, Visit, walk};
use crate::select::push_path;
use crate::{Error, Result};
use drumlin_format::pack::{Codec, PackKind, Table};
use drumlin_format::snapshot::Snapshot;
use drumlin_format::tree::Sums;
use drumlin_format::{ChunkId, Header, IndexId, ObjectType, index};
use drumlin_repo::pack::Reader;
use drumlin_repo::{Repository, names};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// So often it is counted anew if prunes come between.
const ATTEMPTS: usize = 5;

/// Chunks of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Packs that hold them.
    pub packs: u64,
    /// Chunks, each counted once.
    pub chunks: u64,
    /// Their bytes before compression.
    pub bytes: u64,
    /// The share that they have of the sealed blocks that hold them.
    pub stored: u64,
}

impl Part {
    /// How many times smaller compression made them; 1 if there is nothing.
    pub fn compression(&self) -> f64 {
        ratio(self.bytes, self.stored)
    }
}

fn ratio(of: u64, to: u64) -> f64 {
    if of == 0 || to == 0 { 1.0 } else { of as f64 / to as f64 }
}

/// What some snapshots refer to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotStats {
    /// How many snapshots.
    pub snapshots: u64,
    /// What a restore of each of them would write, together. Holes count.
    pub logical: Sums,
    /// File contents, each chunk once.
    pub data: Part,
    /// Nodes of trees and chunk lists, each once.
    pub tree: Part,
    /// Chunks that no pack holds: the repository is damaged.
    pub missing: u64,
}

impl SnapshotStats {
    /// How many times smaller deduplication (and holes) made the contents, before compression.
    pub fn deduplication(&self) -> f64 {
        ratio(self.logical.bytes, self.data.bytes)
    }
}

/// What a repository holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepositoryStats {
    /// How many snapshots there are.
    pub snapshots: u64,
    /// What a restore of each of them would write, together.
    pub logical: Sums,
    /// File contents.
    pub data: Part,
    /// Nodes of trees and chunk lists.
    pub tree: Part,
    /// Bytes of chunks that are stored more than once: two clients met them at the same time.
    pub twice: u64,
    /// Bytes of whole packs, with their tables and padding.
    pub pack_bytes: u64,
    /// Index objects.
    pub index_objects: u64,
    /// Their bytes.
    pub index_bytes: u64,
    /// If the repository was given new secrets: what there is of each generation, the first one first.
    pub generations: Vec<GenerationStats>,
    /// Recovery objects: parity across packs.
    pub parity: Objects,
}

/// What the secrets of one generation open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GenerationStats {
    /// Its number; 0 is the first.
    pub number: u32,
    /// When it was made, seconds since 1970; `None` of the first.
    pub created: Option<i64>,
    /// Packs.
    pub packs: u64,
    /// Their bytes.
    pub pack_bytes: u64,
    /// Index objects.
    pub index_objects: u64,
    /// Snapshots, forgotten ones too.
    pub snapshots: u64,
    /// Sessions, decisions, plans, losses, entries of the history: random names and numbers.
    pub others: u64,
}

impl GenerationStats {
    /// Whether its secrets open nothing of what was backed up any more.
    pub fn is_over(&self) -> bool {
        self.packs == 0 && self.index_objects == 0 && self.snapshots == 0
    }
}

impl RepositoryStats {
    /// How many times smaller deduplication (and holes) made the contents of all snapshots, before compression.
    pub fn deduplication(&self) -> f64 {
        ratio(self.logical.bytes, self.data.bytes)
    }
}

fn logical(snapshots: &[Snapshot]) -> Sums {
    let mut sums = Sums::default();
    snapshots.iter().filter_map(|s| s.root).for_each(|root| sums.add(&root.sums));
    sums
}

/// The first trouble ends an attempt, and isn't told: a prune may be what made it.
struct Attempt<'a> {
    monitor: &'a dyn Monitor,
    /// Of no interest to anybody.
    counters: Counters,
    failed: AtomicBool,
}

impl Monitor for Attempt<'_> {
    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn problem(&self, _: &Problem) {
        self.failed.store(true, Ordering::Relaxed);
    }

    fn stop(&self) -> bool {
        self.failed.load(Ordering::Relaxed) || self.monitor.stop()
    }
}

/// Have something counted by the index and the objects that it is of, until no prune comes between, which moves chunks
/// and removes what they were in. What is missing then is told.
fn counted<T>(
    reader: &Reader,
    monitor: &dyn Monitor,
    count: impl Fn(&[(IndexId, u64)], &dyn Monitor) -> Result<T>,
) -> Result<T> {
    let index = reader.index();
    for _ in 0..ATTEMPTS {
        let objects = index.objects();
        let held = Attempt { monitor, counters: Counters::default(), failed: AtomicBool::new(false) };
        let result = count(&objects, &held);
        let is_failed = held.failed.load(Ordering::Relaxed);
        match result {
            Err(e) if is_replaced(&e) => {}
            Ok(_) | Err(Error::Interrupted) if is_failed => {}
            // A pack that wasn't there has had the index brought up to date in the midst of it.
            Ok(_) if index.objects() != objects => {}
            result => return result,
        }
        if monitor.stop() {
            return Err(Error::Interrupted);
        }
        index.refresh()?;
        let now: HashSet<IndexId> = index.objects().iter().map(|(id, _)| *id).collect();
        if is_failed && objects.iter().all(|(id, _)| now.contains(id)) {
            let told = count(&index.objects(), monitor);
            return told.map_err(|e| if is_replaced(&e) { Error::Changing } else { e });
        }
    }
    Err(Error::Changing)
}

fn is_replaced(error: &Error) -> bool {
    matches!(error, Error::Repo(drumlin_repo::Error::Replaced { .. }))
}

fn replaced(object: IndexId) -> Error {
    drumlin_repo::Error::Replaced { name: names::index(object) }.into()
}

/// What the whole repository holds; `snapshots` are those that count.
///
/// # Errors
/// What concerns the repository as a whole; [`Error::Changing`] if prunes never let it come to an end.
pub fn of_repository(
    reader: &Arc<Reader>,
    snapshots: &[Snapshot],
    workers: usize,
    monitor: &dyn Monitor,
) -> Result<RepositoryStats> {
    counted(reader, monitor, |objects, monitor| by_objects(reader, snapshots, objects, workers, monitor))
}

fn by_objects(
    reader: &Arc<Reader>,
    snapshots: &[Snapshot],
    objects: &[(IndexId, u64)],
    workers: usize,
    monitor: &dyn Monitor,
) -> Result<RepositoryStats> {
    let repository = reader.repository();
    let mut stats = RepositoryStats {
        snapshots: snapshots.len() as u64,
        logical: logical(snapshots),
        index_objects: objects.len() as u64,
        index_bytes: objects.iter().map(|(_, len)| len).sum(),
        ..RepositoryStats::default()
    };
    let list = repository.store().list(names::PARITY, &mut |listed| stats.parity.add(listed.len));
    list.map_err(drumlin_repo::Error::from)?;
    let ids: Vec<IndexId> = objects.iter().map(|(id, _)| *id).collect();
    let keys = Keys::read(repository, reader.cache(), &ids, workers, monitor)?;
    if let Some(gone) = keys.gone {
        return Err(replaced(gone));
    }
    let elsewhere = passed(&keys, reader.index())?;
    let (mut seen, mut tally) = (HashSet::new(), Tally::of(repository)?);
    for id in ids {
        if monitor.stop() {
            return Err(Error::Interrupted);
        }
        let name = names::index(id);
        let bytes = match repository.store().get(&name).map_err(drumlin_repo::Error::from) {
            Err(e) if e.is_missing() => return Err(replaced(id)),
            bytes => bytes?,
        };
        if let Ok(header) = Header::decode(&bytes, ObjectType::Index) {
            tally.add(header.generation, |of| of.index_objects += 1);
        }
        let opened = index::open(id, repository.secrets(), &bytes);
        let (entries, _) = opened.map_err(|source| drumlin_repo::Error::Damaged { object: name, source })?;
        for entry in entries {
            if !seen.insert(entry.pack) {
                continue;
            }
            stats.pack_bytes += entry.pack_len;
            tally.add(entry.generation, |of| {
                of.packs += 1;
                of.pack_bytes += entry.pack_len;
            });
            // All of them are there: the objects are read a second time.
            let number = keys.number(&entry.pack).unwrap_or(u32::MAX);
            let mut unique = Vec::new();
            for (ordinal, chunk) in entry.table.chunks.iter().enumerate() {
                let here = Place { pack: number, ordinal: ordinal as u32 };
                // What is passed over may only begin like another: the index tells.
                let is_other = elsewhere.contains(here)
                    && !matches!(ask(&keys, reader.index(), entry.kind, &chunk.id)?, Found::At(at) if at == here);
                match is_other {
                    true => stats.twice += u64::from(chunk.len),
                    false => unique.push(ordinal),
                }
            }
            let part = if entry.kind == PackKind::Data { &mut stats.data } else { &mut stats.tree };
            count(part, &entry.table, unique);
        }
    }
    stats.generations = tally.finish();
    Ok(stats)
}

/// What there is of each generation, if there are several.
struct Tally(BTreeMap<u32, GenerationStats>);

impl Tally {
    fn of(repository: &Repository) -> Result<Self> {
        let mut tally = Tally(BTreeMap::new());
        if repository.generations().newest() == 0 {
            return Ok(tally);
        }
        tally.0.insert(0, GenerationStats::default());
        for of in repository.generations().iter() {
            let new = GenerationStats { number: of.number, created: Some(of.created), ..GenerationStats::default() };
            tally.0.insert(of.tag, new);
        }
        for folder in [names::SNAPSHOTS, names::FORGOTTEN] {
            for (tag, count) in repository.tags_in(folder, ObjectType::Snapshot)? {
                tally.add(tag, |of| of.snapshots += count);
            }
        }
        for (folder, object) in [
            (names::SESSIONS, ObjectType::Session),
            (names::DECISIONS, ObjectType::Decision),
            (names::PLANS, ObjectType::Plan),
            (names::LOSSES, ObjectType::Loss),
            (names::HISTORY, ObjectType::History),
        ] {
            for (tag, count) in repository.tags_in(folder, object)? {
                tally.add(tag, |of| of.others += count);
            }
        }
        Ok(tally)
    }

    fn add(&mut self, tag: u32, add: impl FnOnce(&mut GenerationStats)) {
        if let Some(of) = self.0.get_mut(&tag) {
            add(of);
        }
    }

    fn finish(self) -> Vec<GenerationStats> {
        let mut all: Vec<_> = self.0.into_values().collect();
        all.sort_by_key(|of| of.number);
        all
    }
}

/// Count some chunks of a pack: a block's stored bytes are shared out by the length of its chunks.
fn count(part: &mut Part, table: &Table, ordinals: impl IntoIterator<Item = usize>) {
    part.packs += 1;
    let mut used = vec![0u64; table.blocks.len()];
    for chunk in ordinals.into_iter().filter_map(|at| table.chunks.get(at)) {
        part.chunks += 1;
        part.bytes += u64::from(chunk.len);
        if let Some(used) = used.get_mut(chunk.block as usize) {
            *used += u64::from(chunk.len);
        }
    }
    for (block, used) in table.blocks.iter().zip(used) {
        if used > 0 && block.codec != Codec::Padding {
            let share = u128::from(block.stored_len) * u128::from(used) / u128::from(block.raw_len.max(1));
            part.stored += share as u64;
        }
    }
}

/// What some snapshots refer to, together.
///
/// # Errors
/// What concerns the repository as a whole; [`Error::Changing`] if prunes never let it come to an end. A damaged node
/// is told to the monitor; what only it leads to is not counted.
pub fn of_snapshots(
    reader: &Arc<Reader>,
    snapshots: &[Snapshot],
    workers: usize,
    monitor: &dyn Monitor,
) -> Result<SnapshotStats> {
    counted(reader, monitor, |objects, monitor| by_trees(reader, snapshots, objects, workers, monitor))
}

fn by_trees(
    reader: &Arc<Reader>,
    snapshots: &[Snapshot],
    objects: &[(IndexId, u64)],
    workers: usize,
    monitor: &dyn Monitor,
) -> Result<SnapshotStats> {
    let (repository, index) = (reader.repository(), reader.index());
    let ids: Vec<IndexId> = objects.iter().map(|(id, _)| *id).collect();
    let keys = Arc::new(Keys::read(repository, reader.cache(), &ids, workers, monitor)?);
    if let Some(gone) = keys.gone {
        return Err(replaced(gone));
    }
    let (elsewhere, marks, missing) = (passed(&keys, index)?, Marks::new(keys.clone()), AtomicU64::new(0));
    let roots = snapshots.iter().filter_map(|s| s.root).enumerate();
    walk(roots, workers, || Looker {
        reader,
        monitor,
        keys: &keys,
        finder: Finder::new(&keys, index, PackKind::Data, Some(&elsewhere)),
        marks: &marks,
        missing: &missing,
    })?;
    let mut stats = SnapshotStats {
        snapshots: snapshots.len() as u64,
        logical: logical(snapshots),
        missing: missing.into_inner(),
        ..SnapshotStats::default()
    };
    for info in index.packs() {
        let Some(marked) = marks.of(&info.id) else { continue };
        let table = match reader.table(&info) {
            // What is in it isn't counted, and the others are.
            Err(e) if e.is_damage() || e.is_of_one_object() => {
                add(&monitor.counters().damaged, 1);
                let path = info.name().into_bytes();
                monitor.problem(&Problem { path, kind: ProblemKind::Damaged, cause: e.to_string() });
                continue;
            }
            table => table?,
        };
        let part = if info.kind == PackKind::Data { &mut stats.data } else { &mut stats.tree };
        count(part, &table, (0..table.chunks.len()).filter(|at| marked.is(*at)));
    }
    Ok(stats)
}

/// One of the threads.
struct Looker<'a> {
    reader: &'a Reader,
    monitor: &'a dyn Monitor,
    keys: &'a Keys,
    finder: Finder<'a>,
    marks: &'a Marks,
    missing: &'a AtomicU64,
}

impl Looker<'_> {
    /// Whether a chunk is met for the first time. One that is in no pack is told, and never new.
    fn is_new(&mut self, found: &Found, id: &ChunkId, at: At) -> bool {
        if matches!(found, Found::Nowhere) {
            self.missing.fetch_add(1, Ordering::Relaxed);
            add(&self.monitor.counters().damaged, 1);
            let mut path = Vec::new();
            push_path(&at.child.dir, &at.child.name, &mut path);
            let cause = format!("chunk {id}, which something from here on needs, is in no pack");
            self.monitor.problem(&Problem { path, kind: ProblemKind::Damaged, cause });
        }
        self.marks.mark(found)
    }
}

impl Visit for Looker<'_> {
    type Node = ();

    fn meet(&mut self, id: &ChunkId, at: At) -> Result<((), bool)> {
        let found = ask(self.keys, self.reader.index(), PackKind::Tree, id)?;
        Ok(((), self.is_new(&found, id, at)))
    }

    fn read(&mut self, id: &ChunkId, _node: &mut (), at: At) -> Result<Option<Vec<u8>>> {
        match self.reader.chunk(PackKind::Tree, id) {
            Err(e) => report_damage(self.monitor, at.child, e).map(|()| None),
            read => Ok(Some(read?)),
        }
    }

    fn malformed(&mut self, id: &ChunkId, _node: &(), at: At, source: drumlin_format::Error) -> Result<()> {
        let object = format!("tree node {id}");
        report_damage(self.monitor, at.child, drumlin_repo::Error::Damaged { object, source })
    }

    fn chunk(&mut self, id: &ChunkId, at: At) -> Result<()> {
        let found = self.finder.find(id)?;
        self.is_new(&found, id, at);
        Ok(())
    }

    fn go_on(&mut self) -> Result<()> {
        if self.monitor.stop() { Err(Error::Interrupted) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::fixture::Fixture;
    use crate::monitor::Quiet;
    use drumlin_testkit::Rng;

    #[test]
    fn shared_and_compressed_bytes_are_told_apart() {
        let source = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| std::fs::write(source.path().join(name), bytes).unwrap();
        let (random, text) = (Rng::new(1).bytes(40_000), Rng::new(2).text(60_000));
        write("random", &random);
        write("random again", &random);
        write("text", &text);
        write("large", &Rng::new(3).bytes(4_000_000));
        let mut fixture = Fixture::new();
        fixture.backup(source.path());
        let first = of_snapshots(&fixture.reader(), &fixture.snapshots, 2, &Quiet::default()).unwrap();
        assert_eq!((first.snapshots, first.logical.files, first.logical.bytes), (1, 4, 4_140_000));
        assert_eq!((first.data.bytes, first.missing), (4_100_000, 0));
        // The text may stand in a block with random bytes, which is then not compressed.
        assert!(first.data.stored > 4_040_000 && first.data.stored < 4_101_000, "{}", first.data.stored);
        assert!((first.deduplication() - 4.14 / 4.1).abs() < 0.001);

        write("more", &Rng::new(4).bytes(10_000));
        fixture.backup(source.path());
        let both = of_snapshots(&fixture.reader(), &fixture.snapshots, 2, &Quiet::default()).unwrap();
        assert_eq!((both.logical.bytes, both.data.bytes), (4_140_000 + 4_150_000, 4_110_000));
        let last = of_snapshots(&fixture.reader(), &fixture.snapshots[1..], 2, &Quiet::default()).unwrap();
        assert_eq!(last.data.bytes, 4_110_000);

        let all = of_repository(&fixture.reader(), &fixture.snapshots, 2, &Quiet::default()).unwrap();
        assert_eq!((all.data, all.tree, all.logical), (both.data, both.tree, both.logical));
        assert_eq!((all.twice, all.index_objects), (0, 2));
        assert!(all.pack_bytes > all.data.stored + all.tree.stored && all.index_bytes > 0);

        // A repository without its packs of the second run: told, not fatal.
        let empty = Fixture::new();
        let lost = of_snapshots(&empty.reader(), &fixture.snapshots[..1], 2, &Quiet::default()).unwrap();
        assert_eq!((lost.missing, lost.data.chunks), (1, 0));
    }
}
