//! What can be had of damaged packs, by their parity, by other packs, by tables that the index has: nothing is lost.

use crate::common::{prune_options, repair_options, restore_options};
use crate::scene::{Scene, pack};
use drumlin_engine::check;
use drumlin_engine::monitor::Quiet;
use drumlin_engine::prune::prune;
use drumlin_engine::repair::{self, repair};
use drumlin_engine::restore;
use drumlin_engine::undelete::{self, undelete};
use drumlin_format::ChunkId;
use drumlin_format::key::Role;
use drumlin_format::pack::PackKind;
use drumlin_repo::pack::Reader;
use drumlin_repo::{Cache, Index, NewLock, Repository, Unlock, names};
use drumlin_seal::Secret;
use drumlin_store::{Fault, FaultStore, Kind, Put, Store, When};
use drumlin_testkit::{compare, parity_of};
use std::collections::HashSet;
use std::fs;
use std::sync::Arc;

/// Lost sectors, in every pack at once: nobody loses anything, and repair writes the packs anew.
#[test]
fn what_parity_heals_is_written_anew() {
    for damage in ["flipped", "zeros", "bad sectors", "header and footer", "a burst"] {
        let scene = Scene::new();
        let store = FaultStore::new(scene.bench.memory.clone());
        let faults = store.faults();
        let repository = Repository::open(Arc::new(store), &Unlock::File(scene.bench.key_file())).unwrap();
        let packs: Vec<String> = [scene.names(names::DATA), scene.names(names::TREE)].concat();
        for name in &packs {
            let mut bytes = scene.bench.memory.get(name).unwrap();
            let (parity, len) = (parity_of(&bytes), bytes.len());
            let middle = parity.start / 2 / 4096 * 4096;
            match damage {
                "flipped" => bytes[middle + 77] ^= 1,
                "zeros" => bytes[middle..middle + 4096].fill(0),
                "bad sectors" => faults.bad_bytes(name, middle as u64..middle as u64 + 4096),
                "a burst" => {
                    // One of three in the small ones, as many as are woven together in the others.
                    let sectors = if parity.start > 256 * 4096 { 4 } else { 1 };
                    bytes[middle..middle + sectors * 4096].iter_mut().for_each(|b| *b = !*b);
                }
                _ => {
                    bytes[..32].fill(0);
                    bytes[len - 48..].fill(0);
                }
            }
            scene.bench.memory.put(name, &bytes, Put::Replace).unwrap();
        }
        let cache = Arc::new(Cache::open(&repository, None, scene.bench.folder.path()).unwrap());
        let check = |repository: &Repository| {
            let options = check::Options { read: Some(check::Part::All), workers: 2 };
            check::check(repository, &cache, options, &Quiet::default()).unwrap()
        };
        let found = check(&repository).findings;
        assert_eq!(found.len(), packs.len(), "{damage}: {found:#?}");
        for finding in &found {
            assert_eq!((finding.healed, finding.chunks), (Some(true), 0), "{damage}: {finding:#?}");
            assert!(finding.touched.is_empty() && finding.snapshots.is_empty());
        }
        let restored = |repository: &Repository| {
            for (number, (snapshot, copy)) in scene.states.iter().enumerate() {
                let target = scene.bench.folder.path().join(format!("healed {number}"));
                let _ = fs::remove_dir_all(&target);
                let mut options = restore_options(snapshot, &target);
                options.subfolder = Some(scene.source.as_os_str().as_encoded_bytes().to_vec());
                let monitor = Quiet::default();
                restore::restore(repository, &cache, options, &monitor).unwrap();
                assert!(monitor.problems().is_empty(), "{damage}: {:?}", monitor.problems());
                let compared = compare::Options { roots: false, dir_mtime: false, ..compare::Options::default() };
                assert!(compare::trees(copy, &target, &compared).unwrap().is_empty(), "{damage}");
            }
        };
        restored(&repository);
        assert_eq!(repository.healed().is_empty(), damage == "header and footer", "{damage}: it is told");

        let damaged = packs.iter().map(|name| pack(name)).collect();
        let options = repair::Options { damaged, ..repair_options() };
        let report = repair(&repository, &cache, &options, &Quiet::default()).unwrap();
        assert_eq!((report.mended.len(), report.damaged.len()), (packs.len(), 0), "{damage}: {report:?}");
        assert!(report.lost_chunks == 0 && report.unreadable.is_empty(), "{damage}: {report:?}");
        assert!(scene.names(names::LOSSES).is_empty(), "{damage}");
        // The old ones stay until a prune knows that nobody needs them.
        assert!(packs.iter().all(|name| scene.bench.memory.len(name).unwrap().is_some()));
        assert!(check(&repository).findings.is_empty(), "{damage}");
        prune(&repository, &cache, &prune_options(), &Quiet::default()).unwrap();
        assert!(packs.iter().all(|name| scene.bench.memory.len(name).unwrap().is_none()), "{damage}");
        faults.clear();
        assert!(check(&repository).findings.is_empty(), "{damage}");
        scene.assert_whole();
    }
}

/// A damaged pack that was written anew stays until a prune: no repair takes it into the index again, as long as what
/// was made from it is there.
#[test]
fn what_was_written_anew_is_not_taken_in_again() {
    let scene = Scene::new();
    let old = scene.largest(names::DATA);
    let before = scene.names(names::DATA);
    let mut bytes = scene.bench.memory.get(&old).unwrap();
    let middle = parity_of(&bytes).start / 2;
    bytes[middle] ^= 1;
    scene.bench.memory.put(&old, &bytes, Put::Replace).unwrap();
    let report = scene.repair(&[pack(&old)]);
    assert_eq!((report.mended.as_slice(), report.lost_chunks), (&[pack(&old)][..], 0), "{report:?}");
    let found = |read| {
        let (repository, cache) = scene.fresh();
        let options = check::Options { read, workers: 2 };
        check::check(&repository, &cache, options, &Quiet::default()).unwrap().findings
    };
    assert!(found(Some(check::Part::All)).is_empty());
    let report = scene.repair(&[]);
    assert!(report.is_sound(), "{report:?}");
    assert!(found(Some(check::Part::All)).is_empty());
    // What was made from it gets lost: now it is all that there is.
    for name in scene.names(names::DATA).iter().filter(|name| !before.contains(name)) {
        scene.bench.memory.delete(name).unwrap();
    }
    assert!(!found(None).is_empty());
    let report = scene.repair(&[]);
    assert_eq!((report.lost_chunks, report.damaged.len()), (0, 0), "{report:?}");
    assert!(scene.names(names::LOSSES).is_empty());
    assert!(found(Some(check::Part::All)).is_empty());
    scene.assert_whole();
    assert!(scene.repair(&[]).is_sound());
    scene.prune().unwrap();
    assert!(scene.bench.memory.len(&old).unwrap().is_none());
    scene.assert_whole();
}

/// The parity alone is damaged: nothing is touched, and what is written anew has all of it.
#[test]
fn parity_that_is_damaged_is_a_finding_and_made_anew() {
    let scene = Scene::new();
    let name = scene.largest(names::DATA);
    let mut bytes = scene.bench.memory.get(&name).unwrap();
    let parity = parity_of(&bytes);
    let (repository, cache) = scene.fresh();
    let check = || {
        let options = check::Options { read: Some(check::Part::All), workers: 2 };
        check::check(&repository, &cache, options, &Quiet::default()).unwrap().findings
    };
    for at in [parity.start, parity.start + 5000, parity.len() / 2 + parity.start, parity.end - 1] {
        bytes[at] ^= 1;
        scene.bench.memory.put(&name, &bytes, Put::Replace).unwrap();
        let found = check();
        assert_eq!(found.len(), 1);
        assert_eq!((&found[0].object, found[0].healed, found[0].chunks), (&name, Some(true), 0), "{found:#?}");
        assert!(found[0].causes.iter().all(|c| c.starts_with("its parity is damaged")), "{found:#?}");
        bytes[at] ^= 1;
    }
    bytes[parity].fill(0);
    scene.bench.memory.put(&name, &bytes, Put::Replace).unwrap();
    assert_eq!(check()[0].chunks, 0);
    scene.assert_whole();
    assert_eq!(scene.repair(&[pack(&name)]).mended, [pack(&name)]);
    assert!(check().is_empty());
    scene.assert_whole();
}

/// Killed at every call, a repair of what parity heals costs nothing.
#[test]
fn killed_while_it_heals_nothing_is_lost() {
    let scene = Scene::new();
    let name = scene.largest(names::DATA);
    let mut bytes = scene.bench.memory.get(&name).unwrap();
    bytes[40_960..45_056].fill(0);
    scene.bench.memory.put(&name, &bytes, Put::Replace).unwrap();
    let start = scene.objects();
    let run = |from: Option<u64>| {
        for name in scene.names("") {
            scene.bench.memory.delete(&name).unwrap();
        }
        start.iter().for_each(|(name, bytes)| scene.bench.memory.put(name, bytes, Put::Create).unwrap());
        let store = FaultStore::new(scene.bench.memory.clone());
        let faults = store.faults();
        let repository = Repository::open(Arc::new(store), &Unlock::File(scene.bench.key_file())).unwrap();
        let cache = Arc::new(Cache::open(&repository, None, scene.bench.folder.path()).unwrap());
        let first = faults.calls();
        if let Some(from) = from {
            faults.add(When::any().skip(from), Fault::Fail(Kind::Io));
        }
        let options = repair::Options { damaged: [pack(&name)].into(), ..repair_options() };
        (repair(&repository, &cache, &options, &Quiet::default()), faults.calls() - first)
    };
    let (done, calls) = run(None);
    assert_eq!(done.unwrap().mended, [pack(&name)]);
    for from in (0..calls).step_by(11) {
        let (done, made) = run(Some(from));
        // Two runs differ by a call or two: names are random, and so is what lies beside what.
        assert!(done.is_err() || made <= from, "call {from} of {made} ({calls}) failed and nobody noticed");
        scene.assert_whole();
    }
}

/// The repository as somebody sees it who holds a keeper's key.
fn keeper(scene: &Scene) -> Repository {
    let secret = Secret::new([7; 32]);
    let key = scene.bench.repository.add_key(Role::Keeper, &NewLock::File(secret.clone()), "keeper", 0).unwrap();
    let file = scene.bench.repository.key_file(key, &secret).to_string();
    Repository::open(Arc::new(scene.bench.memory.clone()), &Unlock::File(file)).unwrap()
}

/// It opens no contents: what it writes anew is what the parity vouches for, and no other byte is given parity of its
/// own.
#[test]
fn a_keeper_repairs_what_parity_vouches_for() {
    for beyond in [false, true] {
        let scene = Scene::new();
        let repository = keeper(&scene);
        let cache = Arc::new(Cache::open(&repository, None, scene.bench.folder.path()).unwrap());
        let (data, tree) = (scene.largest(names::DATA), scene.largest(names::TREE));
        for name in [&data, &tree] {
            let mut bytes = scene.bench.memory.get(name).unwrap();
            let end = bytes.len() * 3 / 4;
            if beyond && name == &data {
                (4096..end).step_by(512).for_each(|at| bytes[at] ^= 4);
            } else {
                bytes[end / 2] ^= 4;
            }
            scene.bench.memory.put(name, &bytes, Put::Replace).unwrap();
        }
        let index = scene.largest(names::INDEX);
        scene.bench.memory.delete(&index).unwrap();
        let damaged = [pack(&data), pack(&tree)].into();
        let report =
            repair(&repository, &cache, &repair::Options { damaged, ..repair_options() }, &Quiet::default()).unwrap();
        if beyond {
            assert_eq!((&report.mended, &report.damaged), (&vec![pack(&tree)], &vec![pack(&data)]), "{report:?}");
            assert!(report.lost_chunks > 0 && scene.names(names::LOSSES).len() == 1, "{report:?}");
        } else {
            assert_eq!((report.mended.len(), report.damaged.len(), report.lost_chunks), (2, 0, 0), "{report:?}");
            scene.assert_whole();
        }
        // Nothing that it wrote is bent, and the disk may yet give back what it didn't believe.
        let (owner, fresh) = scene.fresh();
        let read = check::Options { read: Some(check::Part::All), workers: 2 };
        let found = check::check(&owner, &fresh, read, &Quiet::default()).unwrap().findings;
        // What is lost is in no pack that the index names.
        assert!(found.iter().all(|finding| beyond && finding.object == "index"), "{found:#?}");
        assert!(scene.names(names::DATA).contains(&data));
    }
}

/// A pack that has lost some of its end, or got something behind it, and all index objects with it: where its directory
/// is doesn't depend on how long it is.
#[test]
fn packs_of_another_length_are_healed_without_the_index() {
    for change in [-1, -48, -4096, 1, 512, 5000] {
        let scene = Scene::new();
        let mut packs = vec![scene.largest(names::DATA), scene.largest(names::TREE)];
        // A tiny one has one directory alone.
        packs.truncate(if change == -4096 { 1 } else { 2 });
        for name in &packs {
            let mut bytes = scene.bench.memory.get(name).unwrap();
            bytes.resize(bytes.len().saturating_add_signed(change), 0);
            scene.bench.memory.put(name, &bytes, Put::Replace).unwrap();
        }
        scene.names(names::INDEX).iter().for_each(|name| scene.bench.memory.delete(name).unwrap());
        let report = scene.repair(&[]);
        assert!(report.lost_chunks == 0 && report.unreadable.is_empty(), "{change}: {report:?}");
        assert_eq!(report.mended.len(), packs.len(), "{change}: {report:?}");
        scene.assert_whole();
        assert!(scene.repair(&[]).is_sound());
        let (repository, cache) = scene.fresh();
        let read = check::Options { read: Some(check::Part::All), workers: 2 };
        let found = check::check(&repository, &cache, read, &Quiet::default()).unwrap().findings;
        assert!(found.is_empty(), "{change}: {found:#?}");
    }
}

/// What the index says of it is all that tells where anything is in a pack that has lost its end. An owner opens what
/// is there; who can't leaves that to him.
#[test]
fn a_keeper_leaves_a_pack_without_its_table_to_an_owner() {
    for cut in [false, true] {
        let scene = Scene::new();
        let repository = keeper(&scene);
        let cache = Arc::new(Cache::open(&repository, None, scene.bench.folder.path()).unwrap());
        let name = scene.largest(names::DATA);
        let mut bytes = scene.bench.memory.get(&name).unwrap();
        let end = bytes.len() / 2;
        match cut {
            true => bytes.truncate(end),
            false => bytes[end..].fill(0),
        }
        scene.bench.memory.put(&name, &bytes, Put::Replace).unwrap();
        let before = [0, 1].map(|state| scene.differences(state).unwrap());
        let options = repair::Options { damaged: [pack(&name)].into(), ..repair_options() };
        for _ in 0..2 {
            let report = repair(&repository, &cache, &options, &Quiet::default()).unwrap();
            assert_eq!((&report.closed, report.lost_chunks, report.damaged.len()), (&vec![pack(&name)], 0, 0));
            assert!(!report.is_sound());
            assert_eq!([0, 1].map(|state| scene.differences(state).unwrap()), before, "nothing is lost by it");
        }
        let report = scene.repair(&[pack(&name)]);
        assert!(report.closed.is_empty() && report.salvaged > 0 && report.lost_chunks > 0, "{report:?}");
        assert_eq!([0, 1].map(|state| scene.differences(state).unwrap()), before);
    }
}

/// It can be brought back until the next prune, whatever is mended meanwhile.
#[test]
fn what_a_forgotten_snapshot_needs_is_mended_too() {
    let scene = Scene::new();
    let (repository, _) = scene.fresh();
    // The second large file is in one of its own session alone.
    let newest = &scene.states[1].0;
    repository.forget(&[newest.id]).unwrap();
    let named = repository.index_objects().unwrap().into_iter().filter(|(id, _)| id.is_of(&newest.session));
    let entries: Vec<_> = named.flat_map(|(id, _)| repository.index_entries(id).unwrap().unwrap()).collect();
    let damaged: Vec<_> = entries.iter().filter(|entry| entry.kind == PackKind::Data).map(|e| e.pack).collect();
    for id in &damaged {
        let name = names::pack(PackKind::Data, *id);
        let mut bytes = scene.bench.memory.get(&name).unwrap();
        bytes[5000] ^= 4;
        scene.bench.memory.put(&name, &bytes, Put::Replace).unwrap();
    }
    let report = scene.repair(&damaged);
    assert!(!report.mended.is_empty() && report.lost_chunks == 0, "{report:?}");
    let forgotten = repository.forgotten().unwrap().0.remove(0);
    let options = undelete::Options { forgotten, host: "host".into(), workers: 1, now: 7 };
    let (repository, cache) = scene.fresh();
    undelete(&repository, &cache, &options, &Quiet::default()).unwrap();
    scene.assert_whole();
}

/// The tables are at the packs' ends, and the index has them too.
#[test]
fn trees_are_had_back_from_packs_that_have_lost_their_tables() {
    let scene = Scene::new();
    let (repository, cache) = scene.fresh();
    let index = Index::open(&repository, cache).unwrap();
    for info in index.packs().iter().filter(|info| info.kind == PackKind::Tree) {
        let name = names::pack(info.kind, info.id);
        let bytes = scene.bench.memory.get(&name).unwrap();
        scene.bench.memory.put(&name, &bytes[..info.table_offset as usize], Put::Replace).unwrap();
    }
    let report = scene.repair(&[]);
    assert!(report.unreadable.is_empty() && report.lost_chunks == 0, "{report:?}");
    scene.assert_whole();
}

/// Whoever wrote at the same time has stored the same. Both packs are damaged, in places of their own.
#[test]
fn what_stands_in_two_damaged_packs_is_taken_from_whichever_has_it() {
    let mut scene = Scene::new();
    // Of which some is nowhere else.
    let (repository, _) = scene.fresh();
    repository.forget(&[scene.states[0].0.id]).unwrap();
    let hidden: Vec<_> = scene
        .names(names::INDEX)
        .into_iter()
        .map(|name| (name.clone(), scene.bench.memory.get(&name).unwrap()))
        .collect();
    hidden.iter().for_each(|(name, _)| scene.bench.memory.delete(name).unwrap());
    let before = scene.names(names::DATA);
    scene.backup();
    hidden.iter().for_each(|(name, bytes)| scene.bench.memory.put(name, bytes, Put::Create).unwrap());
    let all = scene.names(names::DATA);
    let is_had = || (scene.differences(1), scene.differences(2)) == (Some(0), Some(0));
    // What stands where is for the workers to say. The tables tell in which blocks of the one there is nothing of a
    // block of the other.
    let (repository, cache) = scene.fresh();
    let index = Arc::new(Index::open(&repository, cache.clone()).unwrap());
    let reader = Reader::new(repository, index.clone(), cache, 1 << 20);
    let mut spared: HashSet<ChunkId> = HashSet::new();
    let (old, new): (Vec<_>, Vec<_>) = all.iter().partition(|name| before.contains(name));
    for name in old.into_iter().chain(new) {
        let info = index.packs().into_iter().find(|info| info.id == pack(name)).unwrap();
        let table = reader.table(&info).unwrap();
        let chunks =
            |block: usize| table.chunks.iter().filter(move |chunk| chunk.block as usize == block).map(|chunk| chunk.id);
        let apart = (0..table.blocks.len()).filter(|block| chunks(*block).all(|id| !spared.contains(&id)));
        let block = apart.min_by_key(|block| chunks(*block).count()).expect("a block that shares nothing with others");
        spared.extend(chunks(block));
        let block = &table.blocks[block];
        scene.flip(name, |_| (block.offset + u64::from(block.stored_len) / 2) as usize);
    }
    assert!(is_had());
    let report = scene.repair(&all.iter().map(|name| pack(name)).collect::<Vec<_>>());
    assert_eq!(report.lost_chunks, 0, "{report:?}");
    assert!(is_had());
    scene.prune().unwrap();
    assert!(is_had());
}
