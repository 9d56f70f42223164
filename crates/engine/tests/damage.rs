//! Every kind of object deleted, cut short or flipped, and then every operation: each tells, none panics, and none gives
//! anything but what was backed up.

mod common;

use common::{Bench, bench, settle};
use drumlin_engine::backup;
use drumlin_engine::monitor::Quiet;
use drumlin_engine::restore;
use drumlin_repo::{Cache, Repository, Unlock};
use drumlin_seal::Secret;
use drumlin_store::{MemoryStore, Put, Store};
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
        return Outcome::Whole;
    }
    let wrong = differences.iter().filter(|d| format!("{:?}", d.what).contains("Contents"));
    assert_eq!(wrong.count(), 0, "{differences:#?}");
    Outcome::Reported
}

fn key_file(bench: &Bench) -> String {
    let secrets = bench.repository.secrets();
    bench.repository.key_file(secrets.key, &Secret::new([1; 32])).to_string()
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
    let key = key_file(&bench);
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(try_restore(copy(&whole), &key, &source, folder.path()), Outcome::Whole);

    let mut told: BTreeMap<(String, &str), usize> = BTreeMap::new();
    for (name, bytes) in &whole {
        let flips = [10, bytes.len() / 3, bytes.len() / 2, bytes.len() - 30];
        let damages = std::iter::once(("deleted", None))
            .chain([bytes.len() / 2, bytes.len() - 1, 0].map(|len| ("cut", Some(bytes[..len].to_vec()))))
            .chain(flips.map(|at| {
                let mut bent = bytes.clone();
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
            // A pack has padding and a footer that a restore doesn't need; to notice damage there is for a check.
            let harmless = what != "deleted" && matches!(kind(name), "data" | "tree");
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
    let key = key_file(&bench);
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

#[test]
fn a_chunk_that_is_not_what_its_name_says_is_never_restored() {
    use drumlin_repo::pack::{BlockBuilder, Coder, Coding};
    use drumlin_repo::{Index, WriteSession};

    let bench = bench();
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    // The one small, the other of nearly a whole chunk.
    let right = [b"what the owner has".to_vec(), vec![7; 60_000]];
    // A writer claims to have them, and seals something else under their names.
    let index = Arc::new(Index::open(&bench.repository, bench.cache.clone()).unwrap());
    let session = WriteSession::begin(&bench.repository, index, bench.cache.clone(), "liar", "backup", 0).unwrap();
    let (mut block, mut coder) = (BlockBuilder::default(), Coder::new().unwrap());
    for (n, bytes) in right.iter().enumerate() {
        block.push(bench.repository.data_id(bytes).unwrap(), &vec![b'!'; bytes.len()]);
        fs::write(source.join(n.to_string()), bytes).unwrap();
    }
    session.data.append(&mut block, &mut coder, Coding::Raw).unwrap();
    session.flush().unwrap();
    session.abandon().unwrap();

    let report = bench.backup(&source);
    assert_eq!(report.counts.bytes_new, 0);
    let target = bench.folder.path().join("target");
    // In place, the files go another way: they are compared, and written in order.
    for _ in 0..2 {
        let (report, monitor) = bench.restore(report.snapshot.as_ref().unwrap(), &source, &target);
        assert_eq!(report.counts.damaged, 2, "{:?}", monitor.problems());
        for (n, bytes) in right.iter().enumerate() {
            assert_ne!(fs::read(target.join(n.to_string())).ok(), Some(vec![b'!'; bytes.len()]));
            fs::write(target.join(n.to_string()), "old").unwrap();
        }
    }
    assert_eq!(fs::read(target.join("0")).unwrap(), b"old", "damage never replaces what is there");
}
