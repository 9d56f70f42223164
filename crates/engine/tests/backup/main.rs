//! What a backup stores.

#[path = "../common/mod.rs"]
mod common;
mod ended;
mod numbers;

use common::{bench, bench_with, options, settle, small};
use drumlin_engine::backup::{self, Compression, Options, Source};
use drumlin_engine::monitor::{Change, Counters, Monitor, Problem, Quiet};
use drumlin_engine::{Error, restore};
use drumlin_format::key::Role;
use drumlin_format::pack::{Codec, PackKind};
use drumlin_host::filter::{Filter, FilterOptions};
use drumlin_repo::{Cache, NewLock, Repository, Unlock, names};
use drumlin_seal::Secret;
use drumlin_store::{CallLog, Fault, FaultStore, Kind, Listed, MemoryStore, Op, Put, RecordStore, Store, Upload, When};
use rustix::fs::inotify;
use std::fs::{self, File};
use std::io::{Cursor, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes that don't compress and don't repeat.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| next()).collect();
    bytes.truncate(len);
    bytes
}

fn tree(folder: &Path, files: usize) -> std::path::PathBuf {
    let source = folder.join("source");
    for n in 0..files {
        let dir = source.join(format!("dir{}", n / 20));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(format!("file{n}")), noise(n as u64, 3000 + n)).unwrap();
    }
    source
}

fn recorded(memory: &MemoryStore) -> (Repository, CallLog) {
    let store = RecordStore::new(memory.clone());
    let log = store.log();
    let lock = NewLock::File(Secret::new([1; 32]));
    let (repository, _) = Repository::create(Arc::new(store), small(), lock, "test", 0).unwrap();
    (repository, log)
}

#[test]
fn a_run_without_changes_writes_exactly_what_it_must() {
    let folder = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    let source = tree(folder.path(), 300);
    let (repository, log) = recorded(&MemoryStore::new());
    let cache = Arc::new(Cache::open(&repository, Some(outside.path()), outside.path()).unwrap());
    settle();
    let run = || backup::backup(&repository, &cache, options(&[&source]), &Quiet::default()).unwrap();
    let first = run();
    log.take();
    let second = run();
    assert_eq!(second.counts.unmodified, second.counts.entries);
    assert_eq!(second.snapshot.unwrap().root, first.snapshot.unwrap().root);
    let names: Vec<String> = log.writes().iter().map(|c| format!("{c:?}")).collect();
    let of = |part: &str| names.iter().filter(|n| n.contains(part)).count();
    // Registered, put, decided, cleared up. No pack, no index object.
    assert_eq!((of("sessions/"), of("snapshots/"), of("decisions/")), (2, 1, 2), "{names:#?}");
    assert_eq!(names.len(), 5, "{names:#?}");
}

#[test]
fn new_timestamps_store_no_contents() {
    let bench = bench();
    let source = tree(bench.folder.path(), 1000);
    settle();
    bench.backup(&source);
    for n in 0..1000 {
        let file = fs::File::options().write(true).open(source.join(format!("dir{}/file{n}", n / 20))).unwrap();
        file.set_modified(std::time::SystemTime::now()).unwrap();
    }
    settle();
    let report = bench.backup(&source);
    assert!(report.counts.changed >= 1000);
    assert_eq!(report.counts.bytes_new, 0);
    let each = report.tree_bytes / 1000;
    assert!(each <= 40, "{each} bytes of tree an entry");
}

#[test]
fn a_byte_in_front_of_a_large_file_stores_few_chunks() {
    let bench = bench();
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    let bytes = noise(7, 20 << 20);
    fs::write(source.join("image"), &bytes).unwrap();
    let first = bench.backup(&source);
    assert!(first.counts.chunks_new > 200);
    fs::write(source.join("image"), [b"x", &bytes[..]].concat()).unwrap();
    let second = bench.backup(&source);
    assert!(second.counts.chunks_new <= 2, "{} new chunks", second.counts.chunks_new);
    // In its midst, with the rest where it was: found by trying the old chunks first. Once in a thousand times a change
    // hits a cut, and moves some more.
    let mut changed = bytes.clone();
    let states = [5, 10, 15].map(|mib| {
        changed.clone_from(&bytes);
        changed[mib << 20..(mib << 20) + 5].copy_from_slice(b"other");
        fs::write(source.join("image"), &changed).unwrap();
        bench.backup(&source)
    });
    let new = [0, 1, 2].map(|at: usize| states[at].counts.chunks_new);
    assert!(new.iter().filter(|new| **new <= 2).count() >= 2, "{new:?} new chunks");
    let [.., third] = states;
    let target = bench.folder.path().join("target");
    let (_, monitor) = bench.restore(&third.snapshot.unwrap(), &source, &target);
    assert!(monitor.problems().is_empty());
    assert!(fs::read(target.join("image")).unwrap() == changed);
}

/// A folder more in a profile is no reason to read all the others again.
#[test]
fn sources_that_were_saved_among_others_are_compared() {
    let bench = bench();
    let at = |name: &str| bench.folder.path().join(name);
    for (dir, len) in [("a", 100_000), ("b", 200_000), ("c", 300_000), ("apart", 400_000)] {
        fs::create_dir(at(dir)).unwrap();
        fs::write(at(dir).join("file"), noise(len as u64, len)).unwrap();
    }
    settle();
    let save = |sources: &[PathBuf]| {
        let sources: Vec<&Path> = sources.iter().map(PathBuf::as_path).collect();
        backup::backup(&bench.repository, &bench.cache, options(&sources), &Quiet::default()).unwrap()
    };
    let first = save(&[at("a"), at("b")]);
    assert_eq!(first.counts.bytes_read, 300_000);
    for (sources, read) in
        [(vec![at("a"), at("b"), at("c")], 300_000), (vec![at("b/file")], 0), (vec![at("apart")], 400_000)]
    {
        let report = save(&sources);
        assert_eq!(report.counts.bytes_read, read, "{sources:?}");
        let parent = report.snapshot.as_ref().unwrap().parent;
        assert_eq!(parent.is_some(), read < 400_000, "{sources:?}");
        let target = at(&format!("target {}", sources.len() * 1000 + read as usize));
        let (restored, monitor) = bench.restore(&report.snapshot.unwrap(), bench.folder.path(), &target);
        assert!(monitor.problems().is_empty());
        assert_eq!(restored.counts.files, sources.len() as u64);
    }
}

#[test]
fn where_a_file_is_cut_does_not_depend_on_what_it_was_before() {
    let bench = bench();
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    let bytes = noise(11, 9_100_000);
    // Appended to, cut short, written into: each time what is known of the old cuts is tried first.
    let other = [&bytes[..3_000_000], b"something else", &bytes[3_300_000..]].concat();
    for (n, state) in [&bytes[..5_000_123], &bytes[..], &bytes[..7_000_000], &other].into_iter().enumerate() {
        fs::write(source.join("image"), state).unwrap();
        settle();
        bench.backup(&source);
        fs::write(source.join(format!("copy-{n}")), state).unwrap();
        settle();
        let copied = bench.backup(&source);
        assert_eq!((copied.counts.bytes_read, copied.counts.chunks_new), (state.len() as u64, 0), "state {n}");
    }
}

/// As it grows into its holes, as a disk image does.
#[test]
fn where_a_file_is_cut_does_not_depend_on_the_holes_that_it_had() {
    let bench = bench();
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    // By whole blocks of a file system: what is filled later leaves what was there as it is.
    const BLOCK: usize = 4096;
    let bytes = noise(13, 9 * 250 * BLOCK);
    let image = fs::File::create(source.join("image")).unwrap();
    image.set_len(bytes.len() as u64).unwrap();
    let mut there = Vec::new();
    for from in (0..bytes.len()).step_by(250 * BLOCK) {
        there.push(from..from + 75 * BLOCK);
    }
    let write = |part: &std::ops::Range<usize>| image.write_all_at(&bytes[part.clone()], part.start as u64).unwrap();
    there.iter().for_each(write);
    settle();
    let first = bench.backup(&source);
    if first.counts.bytes_read == bytes.len() as u64 {
        return eprintln!("this file system has no holes");
    }
    there.iter().for_each(|part| write(&(part.end..part.end + 175 * BLOCK)));
    settle();
    bench.backup(&source);
    fs::write(source.join("copy"), &bytes).unwrap();
    settle();
    assert_eq!(bench.backup(&source).counts.chunks_new, 0);
}

#[test]
fn equal_files_met_by_several_workers_are_stored_once() {
    let bench = bench();
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    let bytes = noise(3, 40_000);
    for n in 0..400 {
        fs::write(source.join(format!("{n}")), &bytes).unwrap();
    }
    let mut options = options(&[&source]);
    options.workers = 8;
    let report = backup::backup(&bench.repository, &bench.cache, options, &Quiet::default()).unwrap();
    assert_eq!((report.counts.chunks, report.counts.chunks_new), (400, 1));
}

#[test]
fn what_is_incompressible_is_stored_as_it_is_and_text_is_not() {
    let text = b"the same words again and again, ".repeat(100_000);
    for (compression, text_max) in [(Compression::Auto, 20), (Compression::Level(1), 20), (Compression::None, 101)] {
        let noise = noise(5, 3_000_000);
        // A block of a few KiB isn't tried before it is compressed.
        let cases = [(&text[..], 0, text_max * 10), (&noise, 1000, 1010), (&noise[..40_000], 1000, 1010)];
        for (contents, least, most) in cases {
            let bench = bench();
            let source = bench.folder.path().join("source");
            fs::create_dir(&source).unwrap();
            fs::write(source.join("file"), contents).unwrap();
            let mut options = options(&[&source]);
            options.compression = compression;
            let report = backup::backup(&bench.repository, &bench.cache, options, &Quiet::default()).unwrap();
            let permille = report.counts.bytes_stored * 1000 / report.counts.bytes_new;
            assert!((least..=most).contains(&permille), "{permille} ‰ with {compression:?}");
            // Nothing has to be decoded that isn't any shorter.
            let objects = bench.repository.index_objects().unwrap();
            let entries = objects.iter().flat_map(|(id, _)| bench.repository.index_entries(*id).unwrap().unwrap());
            let blocks: Vec<_> = entries
                .filter(|entry| entry.kind == PackKind::Data)
                .flat_map(|entry| entry.table.blocks)
                .filter(|block| block.chunks > 0)
                .map(|block| block.codec)
                .collect();
            let expected = if most < 1000 { Codec::Zstd } else { Codec::Raw };
            assert!(!blocks.is_empty() && blocks.iter().all(|codec| *codec == expected), "{blocks:?}, {compression:?}");
        }
    }
}

#[test]
fn where_nothing_has_changed_no_snapshot_need_be_made() {
    let bench = bench();
    let source = tree(bench.folder.path(), 50);
    settle();
    let run = |tags: &[&str]| {
        let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        let options = Options { skip_unchanged: true, tags, ..options(&[&source]) };
        backup::backup(&bench.repository, &bench.cache, options, &Quiet::default()).unwrap()
    };
    let count = || bench.repository.snapshots().unwrap().0.len();
    let first = run(&[]).snapshot.expect("there was none");
    let objects = || {
        let mut names = Vec::new();
        bench.memory.list("", &mut |l| names.push(l.name)).unwrap();
        names
    };
    let before = objects();
    let same = run(&[]);
    assert!(same.snapshot.is_none() && same.parent.as_ref() == Some(&first) && !same.stopped);
    assert_eq!(same.counts.unmodified, same.counts.entries);
    assert_eq!(objects(), before, "it leaves nothing");
    // With other tags it is another one; so it is once anything is another.
    assert!(run(&["x"]).snapshot.is_some() && run(&["x"]).snapshot.is_none());
    fs::set_permissions(source.join("dir1/file21"), fs::Permissions::from_mode(0o600)).unwrap();
    settle();
    assert!(run(&["x"]).snapshot.is_some());
    assert_eq!(count(), 3);
    // One that was forgotten by somebody else stands for nothing.
    for info in bench.repository.snapshots().unwrap().0 {
        bench.repository.remove_snapshot(info.snapshot.id).unwrap();
    }
    assert!(run(&["x"]).snapshot.is_some());
}

/// What a cache remembers need not be what is latest: another user's run, or one whose cache could not be written, may
/// have found the source otherwise meanwhile.
#[test]
fn a_snapshot_is_made_where_another_one_has_come_since() {
    let bench = bench();
    let source = tree(bench.folder.path(), 20);
    settle();
    let scratch = tempfile::tempdir().unwrap();
    let other = Arc::new(Cache::open(&bench.repository, Some(scratch.path()), scratch.path()).unwrap());
    let run = |cache: &Arc<Cache>, filter: Filter| {
        let paths = vec![source.as_os_str().as_bytes().to_vec()];
        let of = Source::Paths { paths, filter: Arc::new(filter), one_file_system: false };
        let options = Options { skip_unchanged: true, source: of, ..options(&[&source]) };
        backup::backup(&bench.repository, cache, options, &Quiet::default()).unwrap().snapshot
    };
    let first = run(&bench.cache, Filter::none()).expect("there was none");
    // As if less of it had been there, and all of it is as it was afterwards.
    let small = FilterOptions { exclude_larger_than: Some(0), ..FilterOptions::default() };
    let second = run(&other, Filter::new(&small).unwrap()).expect("it is another one");
    assert_ne!(second.root, first.root);
    let third = run(&bench.cache, Filter::none()).expect("the latest lacks something");
    assert_eq!(third.root, first.root);
    assert!(run(&bench.cache, Filter::none()).is_none());
}

/// Where a session can't be taken back (an account that may only add), or something was stored all the same, a snapshot
/// is made.
#[test]
fn a_snapshot_is_made_all_the_same_where_it_is_needed() {
    let folder = tempfile::tempdir().unwrap();
    let source = tree(folder.path(), 50);
    settle();
    let memory = MemoryStore::new();
    let store = FaultStore::new(memory.clone());
    let faults = store.faults();
    let bench = common::bench_over(Arc::new(store), memory, tempfile::tempdir().unwrap(), small());
    let run = |force: bool| {
        let options = Options { skip_unchanged: true, force, ..options(&[&source]) };
        backup::backup(&bench.repository, &bench.cache, options, &Quiet::default()).unwrap()
    };
    assert!(run(false).snapshot.is_some() && run(false).snapshot.is_none());
    faults.add(When::op(Op::Delete), Fault::Fail(Kind::Refused));
    let added = run(false).snapshot.expect("its session stays unless it decides on one");
    assert!(bench.repository.snapshots().unwrap().0.iter().any(|info| info.snapshot == added));
    faults.clear();
    // What the index doesn't have any more is stored once more.
    let (objects, memory) = (bench.repository.index_objects().unwrap(), &bench.memory);
    objects.iter().for_each(|(id, _)| memory.delete(&names::index(*id)).unwrap());
    assert!(run(true).snapshot.is_some());
}

#[test]
fn a_writer_backs_up_from_its_own_cache_and_can_read_nothing() {
    let bench = bench();
    let secret = Secret::new([9; 32]);
    let key = bench.repository.add_key(Role::Writer, &NewLock::File(secret.clone()), "client", 0).unwrap();
    let unlock = Unlock::File(bench.repository.key_file(key, &secret).to_string());
    let writer = Repository::open(Arc::new(bench.memory.clone()), &unlock).unwrap();
    let outside = tempfile::tempdir().unwrap();
    let cache = Arc::new(Cache::open(&writer, Some(outside.path()), outside.path()).unwrap());
    let source = tree(bench.folder.path(), 500);
    settle();
    let run = || backup::backup(&writer, &cache, options(&[&source]), &Quiet::default()).unwrap();
    let first = run();
    let second = run();
    assert_eq!((second.counts.bytes_read, second.counts.unmodified), (0, second.counts.entries));
    fs::write(source.join("dir3/new"), noise(77, 1000)).unwrap();
    settle();
    let third = run();
    assert_eq!(third.counts.bytes_read, 1000);
    // With its cache it also sees what others have stored, and without it everything is read but nothing stored again.
    let fresh = tempfile::tempdir().unwrap();
    let cache = Arc::new(Cache::open(&writer, Some(fresh.path()), fresh.path()).unwrap());
    let again = backup::backup(&writer, &cache, options(&[&source]), &Quiet::default()).unwrap();
    assert_eq!((again.counts.bytes_new, again.counts.bytes_read > 0), (0, true));

    assert!(writer.snapshots().is_err());
    let snapshot = first.snapshot.unwrap();
    let options = common::restore_options(&snapshot, &bench.folder.path().join("no"));
    assert!(restore::restore(&writer, &cache, options, &Quiet::default()).is_err());
    // The owner restores what the writer wrote.
    let target = bench.folder.path().join("target");
    let (_, monitor) = bench.restore(&third.snapshot.unwrap(), &source, &target);
    assert!(monitor.problems().is_empty());
    assert_eq!(fs::read(target.join("dir3/new")).unwrap(), noise(77, 1000));
}

/// The same tree is there already, by somebody else: a client that can't open his packs stores the nodes for itself,
/// and compares with them the next time.
#[test]
fn a_writer_s_tree_is_in_packs_that_it_can_read() {
    let bench = bench();
    let source = tree(bench.folder.path(), 500);
    settle();
    bench.backup(&source);
    let secret = Secret::new([9; 32]);
    let key = bench.repository.add_key(Role::Writer, &NewLock::File(secret.clone()), "client", 0).unwrap();
    let unlock = Unlock::File(bench.repository.key_file(key, &secret).to_string());
    let writer = Repository::open(Arc::new(bench.memory.clone()), &unlock).unwrap();
    let outside = tempfile::tempdir().unwrap();
    let cache = Arc::new(Cache::open(&writer, Some(outside.path()), outside.path()).unwrap());
    let run = || backup::backup(&writer, &cache, options(&[&source]), &Quiet::default()).unwrap();
    assert_eq!(run().counts.bytes_new, 0);
    for n in 0..3 {
        fs::write(source.join("dir3/new"), noise(n, 1000)).unwrap();
        settle();
        assert_eq!(run().counts.bytes_read, 1000, "turn {n}");
    }
    let last = run();
    assert_eq!((last.counts.bytes_read, last.tree_bytes), (0, 0), "and nothing is stored again and again");
}

#[test]
fn no_key_and_nonce_are_used_twice_and_nothing_stored_repeats() {
    // Two repositories with equal contents have no equal object, and no two blocks of one are equal.
    let objects = || {
        let bench = bench();
        let source = tree(bench.folder.path(), 100);
        bench.backup(&source);
        let mut all = Vec::new();
        bench.memory.list("", &mut |l| all.push(l.name)).unwrap();
        all.iter().map(|n| bench.memory.get(n).unwrap()).collect::<Vec<_>>()
    };
    let (a, b) = (objects(), objects());
    // Any 16 bytes of sealed text that stand in both would be a repetition of key and nonce.
    let windows = |objects: &[Vec<u8>]| {
        // Parity is made of what is sealed, and what says where it is stands there twice.
        let end = |o: &[u8]| match drumlin_testkit::parity_of(o) {
            parity if parity.is_empty() => o.len() - 48,
            parity => parity.start,
        };
        let sealed = objects.iter().filter(|o| o.len() > 4096).flat_map(|o| o[64..end(o)].chunks_exact(16));
        sealed.map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    let (a, b) = (windows(&a), windows(&b));
    let count = a.len();
    let set: std::collections::HashSet<_> = a.into_iter().collect();
    assert_eq!(set.len(), count, "sealed bytes repeat within a repository");
    assert!(b.iter().all(|w| !set.contains(w)), "sealed bytes repeat between repositories");
}

#[test]
fn the_sparse_index_deduplicates_a_renamed_tree_and_knows_unchanged_files() {
    // A pack of the usual size, as the loss is some sixty chunks before the first hook of each.
    let bench = common::bench_with(drumlin_repo::CreateOptions::default());
    let source = bench.folder.path().join("source");
    fs::create_dir_all(source.join("old")).unwrap();
    for n in 0..6000 {
        fs::write(source.join(format!("old/{n:05}")), noise(n, 2000)).unwrap();
    }
    settle();
    bench.backup(&source);
    let run = || {
        let mut options = options(&[&source]);
        options.index = drumlin_repo::IndexMode::Sparse;
        backup::backup(&bench.repository, &bench.cache, options, &Quiet::default()).unwrap()
    };
    let unchanged = run();
    assert_eq!((unchanged.counts.bytes_read, unchanged.counts.unmodified), (0, unchanged.counts.entries));
    fs::rename(source.join("old"), source.join("new")).unwrap();
    let renamed = run();
    assert_eq!(renamed.counts.chunks, 6000);
    // Which chunks are hooks is a matter of luck: this many stored again happens once in a million runs.
    assert!(renamed.counts.chunks_new <= 900, "{} chunks stored again", renamed.counts.chunks_new);
    let target = bench.folder.path().join("target");
    let (_, monitor) = bench.restore(&renamed.snapshot.unwrap(), &source, &target);
    assert!(monitor.problems().is_empty());
    assert_eq!(fs::read(target.join("new/02999")).unwrap(), noise(2999, 2000));
}

#[test]
fn an_edit_that_hides_behind_the_old_size_and_time_is_found() {
    let bench = bench();
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), "before").unwrap();
    settle();
    bench.backup(&source);
    let modified = fs::metadata(source.join("file")).unwrap().modified().unwrap();
    fs::write(source.join("file"), "after!").unwrap();
    fs::File::options().write(true).open(source.join("file")).unwrap().set_modified(modified).unwrap();
    settle();
    let report = bench.backup(&source);
    assert_eq!((report.counts.changed, report.counts.bytes_new), (1, 6));
}

/// Whoever watches it would be told.
#[test]
fn an_unchanged_large_file_is_never_opened() {
    let bench = bench();
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    let large = source.join("large");
    fs::write(&large, noise(1, 5_000_000)).unwrap();
    settle();
    bench.backup(&source);
    let told = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&told, &large, inotify::WatchFlags::OPEN | inotify::WatchFlags::ACCESS).unwrap();
    let is_told = || rustix::io::read(&told, &mut [0; 4096][..]).is_ok_and(|len| len > 0);
    let again = bench.backup(&source);
    assert_eq!((again.counts.bytes_read, again.counts.unmodified), (0, again.counts.entries));
    assert!(!is_told());
    fs::read(&large).unwrap();
    assert!(is_told());
}

#[test]
fn forced_all_is_read_again_whatever_the_comparison_says() {
    let bench = bench();
    let source = tree(bench.folder.path(), 100);
    settle();
    let first = bench.backup(&source);
    let forced = backup::Options { force: true, ..options(&[&source]) };
    let report = backup::backup(&bench.repository, &bench.cache, forced, &Quiet::default()).unwrap();
    assert_eq!((report.counts.bytes_read, report.counts.bytes_new), (first.counts.bytes_read, 0));
    assert_eq!((report.counts.unmodified, report.counts.changed), (0, report.counts.entries));
    assert_eq!(report.snapshot.unwrap().root.unwrap().sums, first.snapshot.unwrap().root.unwrap().sums);
}

/// A snapshot that nobody signed who may is compared with only by who names it.
#[test]
fn what_an_unknown_key_has_signed_is_no_parent() {
    let bench = bench();
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), noise(1, 5000)).unwrap();
    settle();
    let first = bench.backup(&source).snapshot.unwrap();
    let secret = Secret::new([9; 32]);
    let key = bench.repository.add_key(Role::Owner, &NewLock::File(secret.clone()), "", 1).unwrap();
    let text = bench.repository.key_file(key, &secret).to_string();
    let other = Repository::open(Arc::new(bench.memory.clone()), &Unlock::File(text)).unwrap();
    let cache =
        |name: &str| Arc::new(Cache::open(&other, Some(&bench.folder.path().join(name)), bench.folder.path()).unwrap());
    let theirs =
        backup::backup(&other, &cache("theirs"), options(&[&source]), &Quiet::default()).unwrap().snapshot.unwrap();
    let parent_of = |parent: backup::Parent, name: &str| {
        let options = backup::Options { parent, ..options(&[&source]) };
        let report = backup::backup(&bench.repository, &cache(name), options, &Quiet::default()).unwrap();
        bench.repository.remove_snapshot(report.snapshot.unwrap().id).unwrap();
        report.parent.map(|parent| parent.id)
    };
    assert_eq!(parent_of(backup::Parent::Latest, "one"), Some(theirs.id));
    // Nobody vouches for the key any more.
    let mut names = Vec::new();
    bench.memory.list("keys", &mut |listed| names.push(listed.name)).unwrap();
    let of_key = names.iter().filter(|name| name.contains(&key.to_string()));
    assert!(of_key.map(|name| bench.memory.delete(name).unwrap()).count() > 0);
    assert_eq!(parent_of(backup::Parent::Latest, "two"), Some(first.id));
    assert_eq!(parent_of(backup::Parent::Id(theirs.id), "three"), Some(theirs.id));
}
