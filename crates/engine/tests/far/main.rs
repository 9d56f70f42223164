//! A storage that is far away is asked for each block of a tree but once: copies are kept, and trusted no further than
//! their seals.

#[path = "../common/mod.rs"]
mod common;

mod blocks;

use common::{Bench, bench_over, quick_folder, settle, small};
use drumlin_engine::backup;
use drumlin_engine::check::{self, check};
use drumlin_engine::monitor::Quiet;
use drumlin_engine::prune::{self, Unused, prune};
use drumlin_engine::{restore, select};
use drumlin_format::SnapshotId;
use drumlin_format::index::Entry;
use drumlin_format::pack::{Codec, PackKind};
use drumlin_format::session::Session;
use drumlin_format::snapshot::Snapshot;
use drumlin_repo::collection::Registration;
use drumlin_repo::tree::Cursor;
use drumlin_repo::{Cache, Index, IndexMode, Repository, WriteSession, names};
use drumlin_store::{Call, CallLog, MemoryStore, Put, RecordStore, Store};
use drumlin_testkit::{Rng, compare};
use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

struct Scene {
    bench: Bench,
    log: CallLog,
    source: PathBuf,
    last: Snapshot,
}

/// A folder backed up in several states, so that its tree lies in several packs.
fn scene() -> Scene {
    let memory = MemoryStore::new();
    let store = RecordStore::new(memory.far());
    let log = store.log();
    let bench = bench_over(Arc::new(store), memory, quick_folder(), small());
    let source = bench.folder.path().join("source");
    for folder in 0..36 {
        fs::create_dir_all(source.join(format!("{folder:02}"))).unwrap();
        (0..60).for_each(|n| fs::write(source.join(format!("{folder:02}/{n}")), format!("{folder} {n}")).unwrap());
    }
    let mut last = None;
    for state in 0..6 {
        fs::write(source.join(format!("{:02}/new", state * 7)), format!("{state}")).unwrap();
        settle();
        last = bench.backup(&source).snapshot;
    }
    log.take();
    Scene { bench, log, source, last: last.unwrap() }
}

/// Reads of tree packs, and questions for their lengths.
fn asked(calls: &[Call]) -> (usize, usize) {
    let reads = calls.iter().filter(|call| matches!(call, Call::ReadAt { name, .. } if name.starts_with("tree/")));
    let lengths = calls.iter().filter(|call| matches!(call, Call::Len { name, .. } if name.starts_with("tree/")));
    (reads.count(), lengths.count())
}

/// Copies of trees.
fn copies(bench: &Bench) -> Vec<PathBuf> {
    kept(bench, "trees")
}

/// The tables of packs that are kept, in the folder of the only key.
fn kept_tables(bench: &Bench) -> Vec<PathBuf> {
    let of_keys = kept(bench, "tables");
    of_keys.iter().flat_map(|folder| fs::read_dir(folder).unwrap()).map(|entry| entry.unwrap().path()).collect()
}

/// What is kept in a folder of the cache.
fn kept(bench: &Bench, folder: &str) -> Vec<PathBuf> {
    let folder = bench.cache.folder().unwrap().join(folder);
    fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
}

/// All packs that index objects name.
fn entries(repository: &Repository) -> Vec<Entry> {
    let ids = repository.index_objects().unwrap();
    ids.iter().flat_map(|(id, _)| repository.index_entries(*id).unwrap().unwrap()).collect()
}

fn tree_packs(memory: &MemoryStore) -> Vec<String> {
    let mut names = Vec::new();
    memory.list("tree", &mut |listed| names.push(listed.name)).unwrap();
    names
}

fn assert_restores(bench: &Bench, snapshot: &Snapshot, source: &Path) {
    let target = bench.folder.path().join("target");
    let _ = fs::remove_dir_all(&target);
    let (_, monitor) = bench.restore(snapshot, source, &target);
    assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
    let options = compare::Options { roots: false, ..compare::Options::default() };
    assert_eq!(compare::trees(source, &target, &options).unwrap(), Vec::new());
}

#[test]
fn what_was_written_here_is_never_read_again() {
    let Scene { bench, log, source, last } = scene();
    let packs = tree_packs(&bench.memory).len();
    assert!(packs >= 6, "{packs}");
    let again = bench.backup(&source);
    assert_eq!((again.counts.new, again.counts.changed), (0, 0));
    let (reads, lengths) = asked(&log.take());
    assert!(reads == 0 && lengths <= packs, "{reads} reads of trees, {lengths} lengths");
    assert_restores(&bench, &last, &source);
    assert_eq!(asked(&log.take()).0, 0, "a restore takes the tree from here, too");
}

/// What was read of the index and of snapshots: names, and of parts where they begin.
fn metadata_read(calls: &[Call]) -> Vec<(String, u64)> {
    let mut read: Vec<_> = calls
        .iter()
        .filter_map(|call| match call {
            Call::Get { name, .. } => Some((name.clone(), 0)),
            Call::ReadAt { name, offset, .. } => Some((name.clone(), *offset)),
            _ => None,
        })
        .filter(|(name, _)| ["index/", "snapshots/"].iter().any(|folder| name.starts_with(folder)))
        .collect();
    read.sort_unstable();
    read
}

fn metadata(memory: &MemoryStore) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for folder in ["index", "snapshots"] {
        memory.list(folder, &mut |listed| _ = names.insert(listed.name)).unwrap();
    }
    names
}

/// Another client of the same repository, who has never been there.
fn other(bench: &Bench) -> Bench {
    let folder = quick_folder();
    let cache = Cache::open(&bench.repository, Some(&folder.path().join("cache")), folder.path());
    let (repository, memory) = (bench.repository.clone(), bench.memory.clone());
    Bench { repository, cache: Arc::new(cache.unwrap()), folder, memory }
}

#[test]
fn of_index_and_snapshots_only_what_others_have_added_is_read() {
    let Scene { bench, log, source, .. } = scene();
    bench.backup(&source);
    assert_eq!(metadata_read(&log.take()), [], "all of it is from here");
    let (before, other) = (metadata(&bench.memory), other(&bench));
    fs::write(source.join("00/other"), "other").unwrap();
    settle();
    other.backup(&source);
    let added: BTreeSet<String> = metadata(&bench.memory).difference(&before).cloned().collect();
    assert!(added.len() >= 2, "{added:?}");
    log.take();
    bench.backup(&source);
    let read: BTreeSet<String> = metadata_read(&log.take()).into_iter().map(|(name, _)| name).collect();
    assert!(!read.is_empty() && read.is_subset(&added), "{read:?} of {added:?}");
    bench.backup(&source);
    assert_eq!(metadata_read(&log.take()), []);
}

#[test]
fn a_lost_cache_is_had_again_in_one_sweep() {
    let Scene { bench, log, source, .. } = scene();
    let (there, other) = (metadata(&bench.memory), other(&bench));
    log.take();
    other.backup(&source);
    let calls = log.take();
    let read = metadata_read(&calls);
    assert!(!read.is_empty());
    assert!(read.windows(2).all(|pair| pair[0] != pair[1]), "read twice: {read:?}");
    assert!(read.iter().all(|(name, _)| there.contains(name)), "{read:?}");
    let lists = calls.iter().filter(|call| matches!(call, Call::List { prefix, .. } if prefix == "index")).count();
    assert!(lists <= 2, "the index was listed {lists} times");
}

/// The names of snapshots that were fetched since the log was last taken.
fn fetched(scene: &Scene) -> usize {
    let of_snapshot = |call: &Call| matches!(call, Call::Get { name, .. } if name.starts_with("snapshots/"));
    scene.log.take().iter().filter(|call| of_snapshot(call)).count()
}

#[test]
fn a_snapshot_is_fetched_but_once() {
    let scene = scene();
    let caches = scene.bench.folder.path().join("caches");
    let reading = || scene.bench.repository.clone().keeping_snapshots(&caches);
    let ids = |repository: &Repository| -> Vec<SnapshotId> {
        let (infos, errors) = repository.snapshots().unwrap();
        assert!(errors.is_empty(), "{errors:?}");
        infos.iter().map(|info| info.snapshot.id).collect()
    };
    let all = ids(&scene.bench.repository);
    scene.log.take();
    assert_eq!((ids(&reading()), fetched(&scene)), (all.clone(), 6));
    assert_eq!((ids(&reading()), fetched(&scene)), (all.clone(), 0));
    // What is torn, or another's, or gone, is had again.
    let folder = caches.join(scene.bench.repository.config().id.to_string()).join("snapshots");
    let of = |at: usize| folder.join(all[at].to_string());
    fs::write(of(0), b"").unwrap();
    fs::copy(of(2), of(1)).unwrap();
    fs::remove_file(of(3)).unwrap();
    assert_eq!((ids(&reading()), fetched(&scene)), (all.clone(), 3));
    assert_eq!((ids(&reading()), fetched(&scene)), (all.clone(), 0));
    // A copy of what was forgotten tells of nothing, and goes.
    scene.bench.repository.forget(&all[4..5]).unwrap();
    scene.log.take();
    let left = [&all[..4], &all[5..]].concat();
    assert_eq!((ids(&reading()), fetched(&scene)), (left, 0));
    assert!(!of(4).exists() && of(5).exists());
    // Whoever looks after the repository reads what is there.
    scene.bench.memory.put(&names::snapshot(all[5]), b"no snapshot", Put::Replace).unwrap();
    assert_eq!(scene.bench.repository.snapshots().unwrap().1.len(), 1);
    assert!(scene.bench.repository.standing_snapshots().unwrap_err().is_damage());
}

#[test]
fn copies_that_are_lost_or_wrong_are_had_again() {
    let Scene { bench, log, source, last } = scene();
    for damage in ["lost", "bent", "cut"] {
        for copy in copies(&bench) {
            let mut bytes = fs::read(&copy).unwrap();
            match damage {
                "lost" => fs::remove_file(&copy).unwrap(),
                "bent" => {
                    // Heads of records and what is in them.
                    bytes.iter_mut().step_by(97).for_each(|byte| *byte ^= 4);
                    fs::write(&copy, bytes).unwrap();
                }
                _ => fs::write(&copy, &bytes[..bytes.len() * 2 / 3]).unwrap(),
            }
        }
        // Another process: this one has the files open.
        let cache = Cache::open(&bench.repository, Some(&bench.folder.path().join("cache")), bench.folder.path());
        let bench = Bench {
            repository: bench.repository.clone(),
            cache: Arc::new(cache.unwrap()),
            folder: quick_folder(),
            memory: bench.memory.clone(),
        };
        log.take();
        let again = bench.backup(&source);
        assert_eq!((again.counts.new, again.counts.changed), (0, 0), "{damage}");
        assert!(asked(&log.take()).0 > 0, "{damage}");
        // A wrong one takes others of its pack along, which are had in the next run.
        bench.backup(&source);
        log.take();
        bench.backup(&source);
        assert_eq!(asked(&log.take()).0, 0, "{damage}: it is here again");
        assert_restores(&bench, &last, &source);
    }
}

#[test]
fn a_copy_of_what_the_repository_has_lost_is_not_built_upon() {
    let Scene { bench, source, .. } = scene();
    let lost = tree_packs(&bench.memory);
    lost.iter().for_each(|name| bench.memory.delete(name).unwrap());
    let monitor = Quiet::default();
    let again = backup::backup(&bench.repository, &bench.cache, common::options(&[&source]), &monitor).unwrap();
    assert!(
        monitor.problems().iter().any(|problem| problem.cause.contains("all files are read")),
        "{:?}",
        monitor.problems()
    );
    // Neither the copies nor anything else of this client leads to what is gone.
    assert_restores(&bench, &again.snapshot.unwrap(), &source);
}

#[test]
fn a_check_looks_at_the_repository_and_not_at_copies() {
    let Scene { bench, .. } = scene();
    let look = || {
        check(&bench.repository, &bench.cache, check::Options { read: None, workers: 1 }, &Quiet::default()).unwrap()
    };
    assert_eq!(look().findings, Vec::new());
    let name = tree_packs(&bench.memory).remove(0);
    let mut bytes = bench.memory.get(&name).unwrap();
    // More than parity makes up for.
    let len = bytes.len();
    bytes[40..len - 60].fill(7);
    bench.memory.put(&name, &bytes, Put::Replace).unwrap();
    assert!(!look().findings.is_empty());
}

#[test]
fn copies_go_with_what_they_are_of() {
    let Scene { bench, source, .. } = scene();
    let (snapshots, _) = bench.repository.snapshots().unwrap();
    let old: Vec<_> = snapshots[..snapshots.len() - 1].iter().map(|info| info.snapshot.id).collect();
    bench.repository.forget(&old).unwrap();
    let options = prune::Options {
        host: "host".into(),
        max_unused: Unused::Percent(0.0),
        max_repack: None,
        max_rekey: Unused::Percent(0.0),
        allow_remove_all: false,
        wait: Duration::ZERO,
        evict: Vec::new(),
        evict_after: Duration::from_secs(7 * 24 * 3600),
        workers: 1,
    };
    prune(&bench.repository, &bench.cache, &options, &Quiet::default()).unwrap();
    bench.backup(&source);
    let there: Vec<String> = tree_packs(&bench.memory).iter().map(|name| name[name.len() - 32..].to_owned()).collect();
    for copy in copies(&bench) {
        let name = copy.file_name().unwrap().to_str().unwrap();
        assert!(there.iter().any(|pack| pack == name), "{name} is of no pack");
    }
    assert!(!copies(&bench).is_empty());
    let mut packs: Vec<String> = entries(&bench.repository).iter().map(|entry| entry.pack.to_string()).collect();
    let mut tables: Vec<String> =
        kept_tables(&bench).iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    packs.sort_unstable();
    tables.sort_unstable();
    assert_eq!(tables, packs, "tables of all packs that there are, and of no others");
}

/// Whether one of these calls read a pack's table.
fn reads_a_table(calls: &[Call], entries: &[Entry]) -> bool {
    calls.iter().any(|call| match call {
        Call::ReadAt { name, offset, .. } => entries
            .iter()
            .any(|entry| *name == names::pack(entry.kind, entry.pack) && *offset >= entry.table.blocks_end()),
        _ => false,
    })
}

/// A restore of one file of many.
fn restore_one(bench: &Bench, snapshot: &Snapshot, source: &Path, file: &str) {
    let target = bench.folder.path().join("one");
    let _ = fs::remove_dir_all(&target);
    let subfolder = Some(source.as_os_str().as_bytes().to_vec());
    let paths = vec![[b"/", file.as_bytes()].concat()];
    let options = restore::Options { subfolder, paths, ..common::restore_options(snapshot, &target) };
    let monitor = Quiet::default();
    restore::restore(&bench.repository, &bench.cache, options, &monitor).unwrap();
    assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
    assert_eq!(fs::read(target.join(file)).unwrap(), fs::read(source.join(file)).unwrap());
}

/// For one file the blocks of the tree that lead to it are read, a few wherever it lies.
#[test]
fn metadata_of_one_file_is_what_leads_to_it() {
    let memory = MemoryStore::new();
    let store = RecordStore::new(memory.far());
    let log = store.log();
    let bench = bench_over(Arc::new(store), memory, quick_folder(), small());
    let source = bench.folder.path().join("source");
    let mut rng = Rng::new(8);
    let mut deep = source.clone();
    let name = |rng: &mut Rng, n: usize| (0..7).fold(n.to_string(), |name, _| format!("{name}-{:016x}", rng.u64()));
    for _ in 0..6 {
        for side in 0..70 {
            let folder = deep.join(format!("side{side}"));
            fs::create_dir_all(&folder).unwrap();
            (0..60).for_each(|n| fs::write(folder.join(name(&mut rng, n)), "x").unwrap());
        }
        fs::write(deep.join("file"), rng.bytes(2000)).unwrap();
        deep.push("deeper");
    }
    settle();
    let last = bench.backup(&source).snapshot.unwrap();
    let whole: u64 = tree_packs(&bench.memory).iter().map(|name| bench.memory.len(name).unwrap().unwrap()).sum();
    let bytes = |depth: usize| -> u64 {
        // Each time somebody who has never been there.
        let other = other(&bench);
        log.take();
        restore_one(&other, &last, &source, &format!("{}file", "deeper/".repeat(depth)));
        let read = |call: &Call| match call {
            Call::ReadAt { name, bytes, .. } if name.starts_with("tree/") => *bytes,
            _ => 0,
        };
        log.take().iter().map(read).sum()
    };
    let all: Vec<u64> = (0..6).map(bytes).collect();
    let (least, most) = (all.iter().min().unwrap(), all.iter().max().unwrap());
    assert!(*least > 0 && *most < whole / 3 && *most <= 3 * least, "{all:?} of {whole}");
}

/// A table names all chunks of its pack, which are many where files are small: of a storage far away it comes with the
/// index, once.
#[test]
fn what_the_index_told_of_packs_is_not_asked_again() {
    let Scene { bench, log, source, last } = scene();
    let entries = entries(&bench.repository);
    for (bench, whose) in [(&bench, "who wrote it"), (&other(&bench), "another")] {
        log.take();
        restore_one(bench, &last, &source, "07/33");
        let calls = log.take();
        assert!(!reads_a_table(&calls, &entries), "{whose}: {calls:?}");
        let contents = |call: &&Call| matches!(call, Call::ReadAt { name, .. } if name.starts_with("data/"));
        assert_eq!(calls.iter().filter(contents).count(), 1, "{whose}: its block, and nothing else of contents");
        // What is lost or wrong is had again from the packs, once.
        for damage in ["lost", "bent", "cut"] {
            for path in kept_tables(bench) {
                let mut bytes = fs::read(&path).unwrap();
                match damage {
                    "lost" => fs::remove_file(&path).unwrap(),
                    "bent" => {
                        bytes[40] ^= 4;
                        fs::write(&path, bytes).unwrap();
                    }
                    _ => fs::write(&path, &bytes[..bytes.len() / 2]).unwrap(),
                }
            }
            assert_restores(bench, &last, &source);
            assert!(reads_a_table(&log.take(), &entries), "{whose}: {damage}");
            assert_restores(bench, &last, &source);
            assert!(!reads_a_table(&log.take(), &entries), "{whose}: {damage}, again");
        }
    }
}

/// An index object may have blocks of a pack elsewhere than they are, by a key that may only add: what was kept of it
/// is of no use, and the packs' own tables are.
#[test]
fn what_an_index_object_told_wrongly_of_packs_is_thrown_away() {
    let Scene { bench, log, source, last } = scene();
    let mut entries = entries(&bench.repository);
    for (id, _) in bench.repository.index_objects().unwrap() {
        bench.memory.delete(&names::index(id)).unwrap();
    }
    let mut wrong = HashSet::new();
    for entry in &mut entries {
        // Of two neighbours the first is said to be longer, and the other shorter. Of raw blocks that would be noticed
        // at once.
        let (blocks, chunks) = (&mut entry.table.blocks, &mut entry.table.chunks);
        if blocks[..2].iter().all(|block| block.codec != Codec::Raw) {
            blocks[0].stored_len += 1;
            blocks[1].stored_len -= 1;
            blocks[1].offset += 1;
            wrong.insert((entry.kind, "blocks"));
        } else if blocks[0].chunks > 1 {
            chunks[0].len += 1;
            chunks[1].len -= 1;
            wrong.insert((entry.kind, "chunks"));
        }
    }
    assert!(wrong.len() >= 2 && wrong.iter().any(|(kind, _)| *kind == PackKind::Tree), "{wrong:?}");
    let registration = Registration::begin(&bench.repository, Session::new("elsewhere", "backup", 0)).unwrap();
    let scratch = quick_folder();
    let cache = Arc::new(Cache::open(&bench.repository, None, scratch.path()).unwrap());
    let index = Arc::new(Index::open_for(&registration, cache.clone(), IndexMode::Exact).unwrap());
    let liar = WriteSession::begin(registration, index, cache);
    entries.iter().for_each(|entry| liar.name_again(entry.clone()).unwrap());
    liar.flush().unwrap();
    liar.abandon().unwrap();
    let other = other(&bench);
    restore_one(&other, &last, &source, "07/33");
    assert_restores(&other, &last, &source);
    assert!(reads_a_table(&log.take(), &entries));
    // From then on the packs' own tables are kept.
    assert_restores(&other, &last, &source);
    assert!(!reads_a_table(&log.take(), &entries));
}

/// Bytes of the index that were read, and how many of its objects as a whole.
fn index_read(calls: &[Call], memory: &MemoryStore) -> (u64, usize) {
    let (mut bytes, mut whole) = (0, 0);
    for call in calls {
        match call {
            Call::ReadAt { name, bytes: read, .. } if name.starts_with("index/") => bytes += *read,
            Call::Get { name, .. } if name.starts_with("index/") => {
                bytes += memory.len(name).unwrap().unwrap_or_default();
                whole += 1;
            }
            _ => {}
        }
    }
    (bytes, whole)
}

/// Many small files, so that the index is worth not being fetched: in `36`, which comes first in packs of its own, and
/// in `00` to `35`.
fn many(scene: &Scene) -> (Snapshot, u64) {
    let mut rng = Rng::new(8);
    for n in 0..24_000 {
        fs::write(scene.source.join(format!("{:02}/noise {n}", n % 36)), rng.bytes(200 + n % 300)).unwrap();
    }
    settle();
    let last = scene.bench.backup(&scene.source).snapshot.unwrap();
    let mut bytes = 0;
    scene.bench.memory.list("index", &mut |listed| bytes += listed.len).unwrap();
    (last, bytes)
}

/// Who comes to a storage far away for one file, or to look around, doesn't fetch the whole index for that.
#[test]
fn a_new_machine_that_wants_a_part_fetches_a_part_of_the_index() {
    let scene = scene();
    let (last, index_bytes) = many(&scene);
    let Scene { bench, log, source, .. } = &scene;
    let other = other(bench);
    log.take();
    let reader = select::open_reader(&other.repository, &other.cache).unwrap();
    let mut cursor = Cursor::new(reader, last.root).unwrap();
    let mut entries = 0;
    while let Some(leaf) = cursor.next_leaf().unwrap() {
        entries += cursor.leaf(&leaf).unwrap().len();
    }
    assert!(entries > 24_000, "{entries}");
    let calls = log.take();
    let (bytes, whole) = index_read(&calls, &bench.memory);
    assert!(bytes > 0 && bytes < index_bytes / 8 && whole == 0, "{bytes} of {index_bytes} bytes, {whole} objects");
    let of_contents = |call: &&Call| matches!(call, Call::ReadAt { name, .. } if name.starts_with("data/"));
    assert_eq!(calls.iter().filter(of_contents).count(), 0, "of contents nothing is needed");

    // Where contents went depends on who came first, and ids are random: of some files no hook around leads to the
    // pack. Of most one does.
    let by_hooks = (0..6).filter(|n| {
        let machine = self::other(bench);
        let file = 3020 + 3000 * n;
        select::open_reader(&machine.repository, &machine.cache).unwrap();
        log.take();
        restore_one(&machine, &last, source, &format!("{:02}/noise {file}", file % 36));
        let calls = log.take();
        let (bytes, whole) = index_read(&calls, &bench.memory);
        let reads = calls.iter().filter(of_contents).count();
        assert!(whole > 0 || (2..=7).contains(&reads), "{reads}: up to six tables, and a block");
        assert!(whole > 0 || bytes == 0, "hooks are kept, but {bytes} bytes were read");
        whole == 0
    });
    let by_hooks = by_hooks.count();
    assert!(by_hooks >= 3, "{by_hooks} of 6 were found without the whole index");
    // All of it is another matter.
    assert_restores(&other, &last, source);
    assert_ne!(index_read(&log.take(), &bench.memory).1, 0);
    restore_one(&other, &last, source, "21/noise 9021");
    assert_eq!(index_read(&log.take(), &bench.memory), (0, 0), "it has come by then");
}

/// A pack of few chunks has no hooks, and a forgery may have wrong ones: then the whole index is fetched.
#[test]
fn what_no_hook_leads_to_is_found_all_the_same() {
    let scene = scene();
    let (_, index_bytes) = many(&scene);
    let Scene { bench, log, source, .. } = &scene;
    // Its chunk may be a hook itself; then another one has to do.
    let hookless = |n: u32| {
        let before = entries(&bench.repository);
        fs::write(source.join("07/late"), format!("late {n}")).unwrap();
        settle();
        let last = bench.backup(source).snapshot.unwrap();
        let all = entries(&bench.repository);
        let is_new = |entry: &&Entry| entry.kind == PackKind::Data && before.iter().all(|old| old.pack != entry.pack);
        let mut chunks = all.iter().filter(is_new).flat_map(|entry| &entry.table.chunks);
        chunks.all(|chunk| !chunk.id.is_hook()).then_some(last)
    };
    let last = (0..16).find_map(hookless).unwrap();
    let other = other(bench);
    log.take();
    restore_one(&other, &last, source, "07/late");
    let (bytes, whole) = index_read(&log.take(), &bench.memory);
    assert!(bytes >= index_bytes && whole > 0, "{bytes} of {index_bytes} bytes, {whole} objects");
    restore_one(&other, &last, source, "07/33");
    // Where a tree pack's table is gone, an index object's word counts.
    let third = self::other(bench);
    for name in tree_packs(&bench.memory) {
        let mut bytes = bench.memory.get(&name).unwrap();
        let entry =
            entries(&bench.repository).into_iter().find(|entry| names::pack(entry.kind, entry.pack) == name).unwrap();
        let from = entry.table.blocks_end() as usize;
        bytes[from..].fill(7);
        bench.memory.put(&name, &bytes, Put::Replace).unwrap();
    }
    restore_one(&third, &last, source, "20/noise 9020");
}
