//! Every kind of object deleted, cut short or flipped, and then every operation: each tells, none panics, and none
//! gives anything but what was backed up.

#[path = "../common/mod.rs"]
mod common;
mod forged;

use common::{bench, settle};
use drumlin_engine::backup;
use drumlin_engine::monitor::Quiet;
use drumlin_engine::restore;
use drumlin_format::session::Session;
use drumlin_repo::collection::Registration;
use drumlin_repo::{Cache, Repository, Unlock, names};
use drumlin_store::{Fault, FaultStore, Kind, MemoryStore, Op, Put, Store, When};
use drumlin_testkit::{compare, tree};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

fn objects(store: &MemoryStore) -> BTreeMap<String, Vec<u8>> {
    let mut names = Vec::new();
    store.list("", &mut |l| names.push(l.name)).unwrap();
    names.into_iter().map(|n| (n.clone(), store.get(&n).unwrap())).collect()
}

fn copy(objects: &BTreeMap<String, Vec<u8>>) -> MemoryStore {
    let store = MemoryStore::new();
    for (name, bytes) in objects {
        store.put(name, bytes, Put::Create).unwrap();
    }
    store
}

/// What came of an attempt.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// An error ended it.
    Refused,
    /// Some entries were reported.
    Reported,
    /// All was well, by a copy of what is damaged, and that was told.
    Healed,
    /// All was well.
    Whole,
}

fn try_restore(store: MemoryStore, key_file: &str, source: &Path, folder: &Path) -> Outcome {
    let Ok(repository) = Repository::open(Arc::new(store), &Unlock::File(key_file.into())) else {
        return Outcome::Refused;
    };
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).unwrap();
    let cache = Arc::new(Cache::open(&repository, None, folder).unwrap());
    let Ok((snapshots, _)) = repository.snapshots() else { return Outcome::Refused };
    let Some(info) = snapshots.last() else { return Outcome::Refused };
    let monitor = Quiet::default();
    let target = folder.join("target");
    let mut options = common::restore_options(&info.snapshot, &target);
    options.subfolder = Some(source.as_os_str().as_encoded_bytes().to_vec());
    let Ok(report) = restore::restore(&repository, &cache, options, &monitor) else { return Outcome::Refused };
    let reported = report.counts.damaged + report.counts.unwritable;
    assert_eq!(reported > 0, !monitor.problems().is_empty());
    // What is there is right, whether or not all of it is.
    let compared = compare::Options { roots: false, ..compare::Options::default() };
    let differences = compare::trees(source, &target, &compared).unwrap();
    if reported == 0 {
        assert!(differences.is_empty(), "restored wrongly without a word: {differences:#?}");
        return if repository.healed().is_empty() { Outcome::Whole } else { Outcome::Healed };
    }
    let wrong = differences.iter().filter(|d| format!("{:?}", d.what).contains("Contents"));
    assert_eq!(wrong.count(), 0, "{differences:#?}");
    Outcome::Reported
}

fn kind(name: &str) -> &str {
    name.split('/').next().unwrap()
}

#[test]
fn damage_to_any_object_is_told() {
    let bench = bench();
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    tree::random(&source, 5, 300).unwrap();
    settle();
    bench.backup(&source);
    let whole = objects(&bench.memory);
    let key = bench.key_file();
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(try_restore(copy(&whole), &key, &source, folder.path()), Outcome::Whole);

    let mut told: BTreeMap<(String, &str), usize> = BTreeMap::new();
    for (name, bytes) in &whole {
        let flips = [10, bytes.len() / 3, bytes.len() / 2, bytes.len() - 30];
        let damages = std::iter::once(("deleted", None))
            .chain([bytes.len() / 2, bytes.len() - 1, 0].map(|len| ("cut", Some(bytes[..len].to_vec()))))
            .chain(flips.map(|at| {
                let mut bent = bytes.clone();
                drumlin_testkit::wipe_parity(&mut bent);
                bent[at] ^= 0x40;
                ("flipped", Some(bent))
            }));
        for (what, bent) in damages {
            let mut objects = whole.clone();
            match bent {
                Some(bent) => objects.insert(name.clone(), bent),
                None => objects.remove(name),
            };
            let outcome = try_restore(copy(&objects), &key, &source, folder.path());
            // A pack has padding and a footer that a restore doesn't need; to notice damage there, or in a copy, is for
            // a check.
            let harmless = name.ends_with(".copy") || what != "deleted" && matches!(kind(name), "data" | "tree");
            if outcome == Outcome::Whole {
                assert!(harmless, "{name} {what}: nobody noticed");
            } else {
                *told.entry((kind(name).to_owned(), what)).or_default() += 1;
            }
        }
    }
    for kind in ["config", "keys", "data", "tree", "index", "snapshots"] {
        for what in ["deleted", "cut", "flipped"] {
            assert!(told.contains_key(&(kind.to_owned(), what)), "{kind} {what}: never told");
        }
    }
}

/// Of a pack whose own table can't be had, not by its parity either, the index has another.
#[test]
fn what_only_the_index_can_find_in_packs_is_restored() {
    let bench = bench();
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    tree::random(&source, 11, 300).unwrap();
    settle();
    bench.backup(&source);
    let (whole, key, folder) = (objects(&bench.memory), bench.key_file(), tempfile::tempdir().unwrap());
    let listed = bench.repository.index_objects().unwrap();
    let entries = listed.iter().flat_map(|(id, _)| bench.repository.index_entries(*id).unwrap().unwrap());
    let tables: Vec<_> = entries
        .map(|entry| {
            let start = entry.table.blocks_end() as usize;
            (names::pack(entry.kind, entry.pack), start, start + entry.table_len as usize)
        })
        .collect();
    assert!(tables.len() >= 2);
    let bend = |bend: &dyn Fn(&mut Vec<u8>, usize, usize)| {
        let mut objects = whole.clone();
        for (name, start, end) in &tables {
            let bytes = objects.get_mut(name).unwrap();
            drumlin_testkit::wipe_parity(bytes);
            bend(bytes, *start, *end);
        }
        try_restore(copy(&objects), &key, &source, folder.path())
    };
    assert_eq!(bend(&|bytes, start, end| bytes[start..end].fill(0)), Outcome::Healed);
    assert_eq!(bend(&|bytes, start, _| bytes.truncate(start)), Outcome::Healed);
    // What the index can't find either is told.
    assert_eq!(bend(&|bytes, start, _| bytes[..start].fill(0)), Outcome::Refused);
}

#[test]
fn objects_swapped_for_others_of_their_kind_are_told() {
    let bench = bench();
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    tree::random(&source, 6, 300).unwrap();
    settle();
    bench.backup(&source);
    tree::mutate(&source, 1).unwrap();
    settle();
    bench.backup(&source);
    let whole = objects(&bench.memory);
    let key = bench.key_file();
    let folder = tempfile::tempdir().unwrap();
    for folder_name in ["data", "tree", "index", "snapshots"] {
        let names: Vec<_> = whole.keys().filter(|n| kind(n) == folder_name).cloned().collect();
        assert!(names.len() > 1, "{folder_name}");
        let mut objects = whole.clone();
        objects.insert(names[0].clone(), whole[&names[1]].clone());
        objects.insert(names[1].clone(), whole[&names[0]].clone());
        let outcome = try_restore(copy(&objects), &key, &source, folder.path());
        assert_ne!(outcome, Outcome::Whole, "{folder_name}");
    }
}

#[test]
fn a_lost_pack_costs_what_is_in_it_and_not_the_rest() {
    let bench = bench();
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    // Packs of two mebibytes: some with many small files, some with a part of a large one.
    let mut rng = drumlin_testkit::Rng::new(1);
    for n in 0..200 {
        fs::write(source.join(format!("{n:03}")), rng.bytes(if n % 50 == 0 { 300_000 } else { 20_000 })).unwrap();
    }
    fs::write(source.join("large"), rng.bytes(9 << 20)).unwrap();
    settle();
    let snapshot = bench.backup(&source).snapshot.unwrap();
    let whole = objects(&bench.memory);
    let packs: Vec<_> = whole.keys().filter(|n| kind(n) == "data").collect();
    assert!(packs.len() >= 5, "{packs:?}");
    let key = bench.key_file();
    let folder = tempfile::tempdir().unwrap();
    let (mut lost, mut small_lost) = ([0, 0], 0);
    for pack in packs {
        for cut in [false, true] {
            let store = copy(&whole);
            store.delete(pack).unwrap();
            if cut {
                store.put(pack, &whole[pack][..whole[pack].len() / 2], Put::Create).unwrap();
            }
            let repository = Repository::open(Arc::new(store), &Unlock::File(key.clone())).unwrap();
            let cache = Arc::new(Cache::open(&repository, None, folder.path()).unwrap());
            let target = folder.path().join("target");
            let _ = fs::remove_dir_all(&target);
            let monitor = Quiet::default();
            let mut options = common::restore_options(&snapshot, &target);
            options.subfolder = Some(source.as_os_str().as_encoded_bytes().to_vec());
            let report = restore::restore(&repository, &cache, options, &monitor).unwrap();
            let counts = report.counts;
            assert_eq!((counts.damaged + counts.restored, counts.unwritable), (counts.entries, 0));
            assert_eq!(counts.damaged, monitor.problems().len() as u64);
            assert!(counts.damaged > 0 && counts.damaged < 201, "{pack}");
            for problem in monitor.problems() {
                assert!(problem.cause.contains(pack.rsplit('/').next().unwrap()), "{}", problem.cause);
            }
            // What is there is right, and what is not there was told.
            let compared = compare::Options { roots: false, ..compare::Options::default() };
            let differences = compare::trees(&source, &target, &compared).unwrap();
            assert_eq!(differences.len() as u64, counts.damaged);
            assert!(differences.iter().all(|d| d.what == compare::What::Presence), "{differences:#?}");
            lost[usize::from(cut)] += counts.damaged;
            small_lost += u64::from(counts.damaged > 1);
        }
    }
    // Of packs of which half is there the index can find that.
    assert!(lost[0] >= 201 && lost[1] < lost[0] * 3 / 4 && small_lost > 1, "{lost:?}");
}

/// Two backups of the same files at the same moment, of which neither sees the other: each chunk stands in two packs.
/// What one of them has lost is taken from the other, for files that are written from start to end as for all others.
#[test]
fn what_a_pack_has_lost_is_restored_from_another() {
    let bench = bench();
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    let mut rng = drumlin_testkit::Rng::new(2);
    (0..20).for_each(|n| fs::write(source.join(format!("{n:03}")), rng.bytes(20_000)).unwrap());
    fs::write(source.join("large"), rng.bytes(9 << 20)).unwrap();
    settle();
    let (empty, key) = (objects(&bench.memory), bench.key_file());
    let mut all = empty.clone();
    let mut snapshots = Vec::new();
    for _ in 0..2 {
        let store = copy(&empty);
        let repository = Repository::open(Arc::new(store.clone()), &Unlock::File(key.clone())).unwrap();
        let cache = Arc::new(Cache::open(&repository, None, bench.folder.path()).unwrap());
        let options = common::options(&[&source]);
        snapshots.extend(backup::backup(&repository, &cache, options, &Quiet::default()).unwrap().snapshot);
        all.extend(objects(&store));
    }
    let packs: Vec<_> = all.keys().filter(|n| kind(n) == "data").collect();
    assert!(packs.len() >= 10, "{packs:?}");
    for pack in packs {
        let store = copy(&all);
        store.delete(pack).unwrap();
        let repository = Repository::open(Arc::new(store), &Unlock::File(key.clone())).unwrap();
        let cache = Arc::new(Cache::open(&repository, None, bench.folder.path()).unwrap());
        let target = bench.folder.path().join("target");
        let _ = fs::remove_dir_all(&target);
        let monitor = Quiet::default();
        let mut options = common::restore_options(&snapshots[0], &target);
        options.subfolder = Some(source.as_os_str().as_encoded_bytes().to_vec());
        restore::restore(&repository, &cache, options, &monitor).unwrap();
        assert!(monitor.problems().is_empty(), "{pack}: {:?}", monitor.problems());
        compare::assert_same(&source, &target, &compare::Options { roots: false, ..compare::Options::default() });
    }
}

#[test]
fn damage_to_a_file_of_several_names_touches_none_of_them() {
    let bench = bench();
    let (source, target) = (bench.folder.path().join("source"), bench.folder.path().join("target"));
    for (len, there) in [(1000, true), (1000, false), (500_000, true), (9 << 20, true)] {
        let _ = (fs::remove_dir_all(&source), fs::remove_dir_all(&target));
        fs::create_dir_all(source.join("sub")).unwrap();
        fs::create_dir_all(target.join("sub")).unwrap();
        fs::write(source.join("a"), drumlin_testkit::Rng::new(len).bytes(len as usize)).unwrap();
        fs::hard_link(source.join("a"), source.join("b")).unwrap();
        fs::hard_link(source.join("a"), source.join("sub/c")).unwrap();
        settle();
        let before = objects(&bench.memory);
        let snapshot = bench.backup(&source).snapshot.unwrap();
        for name in objects(&bench.memory).keys().filter(|n| kind(n) == "data" && !before.contains_key(*n)) {
            bench.memory.delete(name).unwrap();
        }
        // Other files have these names.
        let others = if there { &["a", "b", "sub/c"][..] } else { &["b", "sub/c"] };
        others.iter().for_each(|name| fs::write(target.join(name), format!("another {name}")).unwrap());
        let (report, monitor) = bench.restore(&snapshot, &source, &target);
        let mut told: Vec<_> = monitor.problems().into_iter().map(|p| p.path).collect();
        told.sort();
        let expected = ["a", "b", "sub/c"].map(|n| source.join(n).into_os_string().into_encoded_bytes());
        assert_eq!(told, expected, "{:?}", monitor.problems());
        assert_eq!((report.counts.damaged, report.counts.unwritable), (1, 2));
        for name in others {
            assert_eq!(fs::read_to_string(target.join(name)).unwrap(), format!("another {name}"));
        }
    }
}

/// A bad sector, or a file longer than anything that is ever read whole: what is there besides is found without that
/// object, as without one that is damaged.
#[test]
fn an_index_object_that_the_storage_does_not_give_out_is_passed_over() {
    let memory = MemoryStore::new();
    let store = FaultStore::new(memory.clone());
    let faults = store.faults();
    let folder = tempfile::tempdir().unwrap();
    let bench = common::bench_over(Arc::new(store), memory.clone(), folder, common::small());
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    tree::random(&source, 8, 50).unwrap();
    settle();
    let snapshot = bench.backup(&source).snapshot.unwrap();
    let name = "index/00112233445566778899aabbccddeeff";
    memory.put(name, &[7; 3000], Put::Create).unwrap();
    faults.add(When::op(Op::Get).named(name), Fault::Fail(Kind::Io));
    // A machine that has no cache.
    let open = || {
        let repository = Repository::open(bench.repository.store().clone(), &Unlock::File(bench.key_file())).unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let cache = Arc::new(Cache::open(&repository, Some(scratch.path()), scratch.path()).unwrap());
        (repository, cache, scratch)
    };
    let passed_over = |repository: &Repository| repository.passed_over().contains_key(name);
    let (repository, cache, _scratch) = open();
    let (target, quiet) = (bench.folder.path().join("out"), Quiet::default());
    let options = common::restore_options(&snapshot, &target);
    restore::restore(&repository, &cache, options, &quiet).unwrap();
    assert!(quiet.problems().is_empty() && passed_over(&repository), "{:?}", quiet.problems());
    let (repository, cache, _scratch) = open();
    let report = backup::backup(&repository, &cache, common::options(&[&source]), &quiet).unwrap();
    assert!(report.counts.bytes_new == 0 && passed_over(&repository));
}

#[test]
fn a_damaged_cache_costs_nothing_but_time() {
    let bench = bench();
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    tree::random(&source, 8, 300).unwrap();
    settle();
    bench.backup(&source);
    let cache_folder = bench.cache.folder().unwrap().to_owned();
    let files: Vec<_> = ["runs", "last", "."]
        .iter()
        .flat_map(|f| fs::read_dir(cache_folder.join(f)).unwrap())
        .map(|e| e.unwrap().path())
        .filter(|p| p.is_file())
        .collect();
    assert!(files.len() >= 3, "{files:?}");
    for file in &files {
        // A run that was found damaged before has been replaced by another one.
        let Ok(bytes) = fs::read(file) else { continue };
        for at in [0, bytes.len() / 2, bytes.len() - 1] {
            let mut bent = bytes.clone();
            bent[at] ^= 0xff;
            fs::write(file, &bent).unwrap();
            let report =
                backup::backup(&bench.repository, &bench.cache, common::options(&[&source]), &Quiet::default());
            match report {
                Ok(report) => assert_eq!(report.counts.bytes_new, 0, "{file:?} byte {at}"),
                // A damaged page is noticed when it is asked for; making the index anew mends it.
                Err(e) => assert!(e.to_string().contains("cache"), "{e}"),
            }
            fs::write(file, &bytes).unwrap();
        }
        let _ = fs::remove_file(file);
        let report = backup::backup(&bench.repository, &bench.cache, common::options(&[&source]), &Quiet::default());
        assert_eq!(report.unwrap().counts.bytes_new, 0, "{file:?} deleted");
        fs::write(file, &bytes).unwrap();
    }
}

/// The first node below the root is gone: what lies behind it is restored, all of it or by its path.
#[test]
fn what_lies_behind_a_lost_part_of_the_tree_is_restored() {
    use drumlin_engine::check;
    use drumlin_format::snapshot::{Root, Snapshot};
    use drumlin_format::tree::{Child, Inner, Sums};
    use drumlin_format::{ChunkId, SnapshotId};
    use drumlin_repo::pack::{BlockBuilder, Coder, Coding};
    use drumlin_repo::tree::Cursor;
    use drumlin_repo::{Index, WriteSession};

    let bench = bench();
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    tree::random(&source, 5, 200).unwrap();
    settle();
    let saved = bench.backup(&source).snapshot.unwrap();
    let root = saved.root.unwrap();
    let first = {
        let reader = drumlin_engine::select::open_reader(&bench.repository, &bench.cache).unwrap();
        Cursor::new(reader, Some(root)).unwrap().next_leaf().unwrap().unwrap()
    };
    let child = |name: &[u8], node, sums| Child { dir: Vec::new(), name: name.to_vec(), node, body: None, sums };
    // A tree whose root has these children.
    let forge = |number: u8, children: Vec<Child>| {
        let mut snapshot = saved.clone();
        let bytes = Inner { level: root.level + 1, children }.encode();
        let registration = Registration::begin(&bench.repository, Session::new("host", "backup", 0)).unwrap();
        let index = Arc::new(Index::open(&bench.repository, bench.cache.clone()).unwrap());
        let session = WriteSession::begin(registration, index, bench.cache.clone());
        let (mut block, mut coder) = (BlockBuilder::default(), Coder::new().unwrap());
        let node = ChunkId(bench.repository.tree_ids().unwrap().id(&bytes));
        block.push(node, &bytes);
        session.tree.append(&mut block, &mut coder, Coding::Raw).unwrap();
        session.flush().unwrap();
        snapshot.id = SnapshotId([number; 16]);
        snapshot.session = session.id();
        snapshot.root = Some(Root { node, level: root.level + 1, sums: root.sums });
        session.put_snapshot(&snapshot).unwrap();
        session.commit(snapshot.id).unwrap();
        snapshot
    };

    let below = |target: &Path| target.join(source.strip_prefix("/").unwrap());
    let same = |found: &Path| {
        compare::assert_same(&source, found, &compare::Options { roots: false, ..Default::default() });
    };
    let run = |snapshot: &Snapshot, target: &Path, subfolder: Option<&Path>| {
        let monitor = Quiet::default();
        let subfolder = subfolder.map(|path| path.as_os_str().as_encoded_bytes().to_vec());
        let options = restore::Options { subfolder, ..common::restore_options(snapshot, target) };
        let report = restore::restore(&bench.repository, &bench.cache, options, &monitor).unwrap();
        assert_eq!(report.counts.damaged, monitor.problems().len() as u64, "{:?}", monitor.problems());
        report.counts.damaged
    };
    let lost = child(b"\x01", ChunkId([7; 32]), Sums { entries: 3, ..Sums::default() });
    let rest = Child { dir: first.dir, body: None, ..child(&first.name, root.node, root.sums) };
    let snapshot = forge(1, vec![lost, rest.clone()]);
    // It isn't asked for what it had.
    let target = bench.folder.path().join("target");
    assert_eq!(run(&snapshot, &target, Some(&source)), 0);
    same(&target);
    let all = bench.folder.path().join("all");
    assert_eq!(run(&snapshot, &all, None), 1);
    same(&below(&all));

    // What is not where its parent has it is nowhere: named again and again a node would have no end.
    let misplaced = forge(2, vec![Child { name: b"\x01".to_vec(), ..rest.clone() }]);
    let nothing = bench.folder.path().join("nothing");
    assert_eq!(run(&misplaced, &nothing, None), 1);
    assert!(!below(&nothing).exists());
    let twice = forge(3, vec![Child { name: b"\x01".to_vec(), ..rest.clone() }, rest]);
    let options = common::restore_options(&twice, &nothing);
    let refused = restore::restore(&bench.repository, &bench.cache, options, &Quiet::default());
    assert!(refused.is_err(), "{refused:?}");
    let options = check::Options { read: None, workers: 2 };
    let report = check::check(&bench.repository, &bench.cache, options, &Quiet::default()).unwrap();
    let told: Vec<String> = report.findings.into_iter().flat_map(|finding| finding.causes).collect();
    assert!(told.iter().any(|cause| cause.contains("two parents have it at different places")), "{told:?}");
    assert!(told.iter().any(|cause| cause.contains("two of its children are the same")), "{told:?}");
}
