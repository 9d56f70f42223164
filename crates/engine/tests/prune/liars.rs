//! Index objects that claim what isn't so, by a key that may only add or by a bug: nothing goes on their word alone.

use crate::common::{options, repair_options};
use crate::history::{History, bytes, fresh, lesser, lesser_file, objects, prune_options};
use crate::meanwhile::Meanwhile;
use drumlin_engine::backup;
use drumlin_engine::monitor::Quiet;
use drumlin_engine::prune::{Options, Unused, prune};
use drumlin_engine::repair::repair;
use drumlin_format::ChunkId;
use drumlin_format::index::Entry;
use drumlin_format::key::Role;
use drumlin_format::pack::PackKind;
use drumlin_format::session::Session;
use drumlin_repo::collection::Registration;
use drumlin_repo::pack::{BlockBuilder, Coder, Coding};
use drumlin_repo::{Cache, Index, IndexMode, Repository, Unlock, WriteSession, names};
use drumlin_store::{Fault, FaultStore, Kind, Op, Put, Store, When};
use std::sync::{Arc, Mutex};

/// All packs that index objects name.
fn entries(history: &History) -> Vec<Entry> {
    let repository = &history.bench.repository;
    let ids = repository.index_objects().unwrap();
    ids.iter().flat_map(|(id, _)| repository.index_entries(*id).unwrap().unwrap()).collect()
}

fn session(repository: &Repository) -> (WriteSession, tempfile::TempDir) {
    let scratch = tempfile::tempdir().unwrap();
    let cache = Arc::new(Cache::open(repository, None, scratch.path()).unwrap());
    let registration = Registration::begin(repository, Session::new("elsewhere", "backup", 0)).unwrap();
    let index = Arc::new(Index::open_for(&registration, cache.clone(), IndexMode::Exact).unwrap());
    (WriteSession::begin(registration, index, cache), scratch)
}

/// One pack of each kind with rubbish under the names of all chunks that there are.
fn claim_all(repository: &Repository, entries: &[Entry]) {
    let (liar, _scratch) = session(repository);
    let mut coder = Coder::new().unwrap();
    for kind in [PackKind::Data, PackKind::Tree] {
        let packer = if kind == PackKind::Data { &liar.data } else { &liar.tree };
        let mut block = BlockBuilder::default();
        let chunks = entries.iter().filter(|entry| entry.kind == kind).flat_map(|entry| &entry.table.chunks);
        for chunk in chunks {
            block.push(chunk.id, &vec![b'!'; chunk.len as usize]);
            if block.raw.len() > 200_000 {
                packer.append(&mut block, &mut coder, Coding::Raw).unwrap();
            }
        }
        packer.append(&mut block, &mut coder, Coding::Raw).unwrap();
    }
    liar.flush().unwrap();
    liar.abandon().unwrap();
}

/// Whoever has stolen a key that may only add: neither the owner's prunes nor a keeper's take away what is sound for what he says.
#[test]
fn a_thief_who_claims_to_have_everything_has_nothing_removed() {
    for by_keeper in [false, true] {
        let mut history = History::new(3);
        claim_all(&lesser(&history.bench, Role::Writer), &entries(&history));
        history.forget(|at| at == 0);
        let keeper = lesser(&history.bench, Role::Keeper);
        let by = if by_keeper { &keeper } else { &history.bench.repository };
        let scratch = tempfile::tempdir().unwrap();
        let cache = Arc::new(Cache::open(by, None, scratch.path()).unwrap());
        for max_unused in [Unused::Percent(5.0), Unused::Bytes(0)] {
            let options = Options { max_unused, ..prune_options() };
            prune(by, &cache, &options, &Quiet::default()).unwrap();
            history.whole();
        }
    }
}

/// Nor while a prune is at work: what a new snapshot needs of a pack that is to go is there, whoever says since that he has it, too.
#[test]
fn a_thief_who_watches_a_prune_gains_nothing() {
    for round in 0..3 {
        let mut history = History::new(2);
        let (first, copy) = history.states.remove(0);
        let thief = lesser(&history.bench, Role::Writer);
        let all = entries(&history);
        history.bench.repository.forget(&[first.id]).unwrap();
        // Somebody who has begun before the plan is there finds the old state in the index, and refers to it.
        let inside =
            Repository::open(Arc::new(history.bench.memory.clone()), &Unlock::File(history.bench.key_file())).unwrap();
        let saved = Arc::new(Mutex::new(None));
        let (told, old) = (saved.clone(), copy.clone());
        let then = move || {
            let scratch = tempfile::tempdir().unwrap();
            let cache = Arc::new(Cache::open(&inside, None, scratch.path()).unwrap());
            let report = backup::backup(&inside, &cache, options(&[&old]), &Quiet::default()).unwrap();
            *told.lock().unwrap() = report.snapshot;
            claim_all(&thief, &all);
        };
        let inner = history.bench.memory.clone();
        let store = Meanwhile { inner, prefix: names::PLANS, then: Mutex::new(Some(then)) };
        let by = Repository::open(Arc::new(store), &Unlock::File(history.bench.key_file())).unwrap();
        let sharp = Options { max_unused: Unused::Bytes(0), ..prune_options() };
        prune(&by, &history.bench.cache, &sharp, &Quiet::default()).unwrap();
        history.whole();
        let saved = saved.lock().unwrap().take().unwrap();
        let target = history.bench.folder.path().join(format!("out{round}"));
        let (_, monitor) = history.bench.restore(&saved, &copy, &target);
        assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
        drumlin_testkit::compare::assert_same(
            &copy,
            &target,
            &drumlin_testkit::compare::Options { roots: false, ..Default::default() },
        );
    }
}

/// A keeper can't read contents, and knows what he has moved: what prunes of his left that were killed goes with the next.
#[test]
fn what_a_keeper_has_moved_twice_goes() {
    let mut history = History::new(4);
    history.forget(|at| at % 2 == 0);
    let file = lesser_file(&history.bench, Role::Keeper);
    let sharp = Options { max_unused: Unused::Bytes(0), ..prune_options() };
    let run = |store: Arc<dyn Store>| {
        let by = Repository::open(store, &Unlock::File(file.clone())).unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let cache = Arc::new(Cache::open(&by, None, scratch.path()).unwrap());
        prune(&by, &cache, &sharp, &Quiet::default())
    };
    // Killed when all is moved and nothing is decided, again and again.
    for _ in 0..3 {
        let store = FaultStore::new(history.bench.memory.clone());
        store.faults().add(When::op(Op::Put).named("plans/*"), Fault::Fail(Kind::Io));
        assert!(run(Arc::new(store)).is_err());
    }
    let before = history.bytes();
    for _ in 0..2 {
        run(Arc::new(history.bench.memory.clone())).unwrap();
    }
    history.whole();
    let (after, fresh) = (history.bytes(), bytes(&fresh(&history).0));
    assert!(before > fresh * 13 / 10 && after * 10 <= fresh * 12, "{before}, then {after}, and {fresh} in a fresh one");
}

/// Two machines have stored the same, with keys of their own or with the same one; what one of them has rots.
#[test]
fn of_two_copies_the_sound_one_stays() {
    for (rotten, by_one_key, by_keeper) in
        [(0, false, false), (1, false, false), (0, true, false), (1, true, false), (0, true, true), (1, true, true)]
    {
        let history = History::new(1);
        let keeper = by_keeper.then(|| lesser(&history.bench, Role::Keeper));
        let other = if by_one_key { history.bench.repository.clone() } else { lesser(&history.bench, Role::Writer) };
        let before = objects(&history.bench.memory);
        let (twin, _scratch) = session(&other);
        let mut coder = Coder::new().unwrap();
        let mut block = BlockBuilder::default();
        let data: Vec<Entry> = entries(&history).into_iter().filter(|entry| entry.kind == PackKind::Data).collect();
        for chunk in data.iter().flat_map(|entry| &entry.table.chunks) {
            let bytes = read(&history, &chunk.id);
            block.push(chunk.id, &bytes);
            if block.raw.len() > 200_000 {
                twin.data.append(&mut block, &mut coder, Coding::Raw).unwrap();
            }
        }
        twin.data.append(&mut block, &mut coder, Coding::Raw).unwrap();
        twin.flush().unwrap();
        twin.abandon().unwrap();
        let after = objects(&history.bench.memory);
        let names = |is_new: bool| {
            let of_data = after.keys().filter(move |name| name.starts_with("data/"));
            of_data.filter(|name| before.contains_key(*name) != is_new).cloned().collect::<Vec<_>>()
        };
        for name in names(rotten == 1) {
            let mut bytes = history.bench.memory.get(&name).unwrap();
            drumlin_testkit::wipe_parity(&mut bytes);
            // Not its table, which says what is in it.
            bytes[1000] ^= 1;
            history.bench.memory.put(&name, &bytes, Put::Replace).unwrap();
        }
        let by = keeper.as_ref().unwrap_or(&history.bench.repository);
        let scratch = tempfile::tempdir().unwrap();
        let cache = Arc::new(Cache::open(by, None, scratch.path()).unwrap());
        for max_unused in [Unused::Percent(5.0), Unused::Bytes(0)] {
            prune(by, &cache, &Options { max_unused, ..prune_options() }, &Quiet::default()).unwrap();
            history.whole();
        }
    }
}

fn read(history: &History, id: &ChunkId) -> Vec<u8> {
    let index = Arc::new(Index::open(&history.bench.repository, history.bench.cache.clone()).unwrap());
    let reader =
        drumlin_repo::pack::Reader::new(history.bench.repository.clone(), index, history.bench.cache.clone(), 8 << 20);
    reader.chunk(PackKind::Data, id).unwrap()
}

/// An index object that says of a pack which there is that its chunks stand in another order, beside the truth or instead of it.
#[test]
fn a_pack_is_written_anew_by_its_own_table_alone() {
    for (first, alone) in [(true, false), (false, false), (true, true)] {
        let mut history = History::new(3);
        let all = entries(&history);
        // Names of index objects are random: of several tries one is read first, and one last.
        let (liar, _scratch) = session(&lesser(&history.bench, Role::Writer));
        for mut entry in all {
            let mut ids: Vec<ChunkId> = entry.table.chunks.iter().map(|chunk| chunk.id).collect();
            if first {
                ids.rotate_left(1)
            } else {
                ids.reverse()
            }
            entry.table.chunks.iter_mut().zip(ids).for_each(|(chunk, id)| chunk.id = id);
            liar.name_again(entry).unwrap();
        }
        let told = objects(&history.bench.memory);
        liar.flush().unwrap();
        liar.abandon().unwrap();
        let truth = told.keys().filter(|name| name.starts_with("index/") && alone);
        truth.for_each(|name| history.bench.memory.delete(name).unwrap());
        history.forget(|at| at == 0);
        let options = Options { max_unused: Unused::Bytes(0), ..prune_options() };
        prune(&history.bench.repository, &history.bench.cache, &options, &Quiet::default()).unwrap();
        if alone {
            // What the packs themselves say is all there still.
            let said = objects(&history.bench.memory);
            said.keys()
                .filter(|name| name.starts_with("index/"))
                .for_each(|name| history.bench.memory.delete(name).unwrap());
            let mended =
                repair(&history.bench.repository, &history.bench.cache, &repair_options(), &Quiet::default()).unwrap();
            assert_eq!((mended.lost_chunks, mended.unreadable.len()), (0, 0));
        }
        history.whole();
    }
}
