//! Index objects that claim what isn't so, by a key that may only add or by a bug: nothing goes on their word alone.

use crate::common::{options, repair_options};
use crate::history::{History, lesser, lesser_file, objects, prune_options};
use crate::meanwhile::{Meanwhile, WhileReading};
use drumlin_engine::backup;
use drumlin_engine::monitor::{Monitor, Quiet};
use drumlin_engine::prune::{Options, Unused, prune};
use drumlin_engine::repair::repair;
use drumlin_format::ChunkId;
use drumlin_format::index::Entry;
use drumlin_format::key::Role;
use drumlin_format::pack::{self, Block, Chunk, Codec, PackKind, Slot};
use drumlin_format::session::Session;
use drumlin_repo::collection::Registration;
use drumlin_repo::pack::{BlockBuilder, Coder, Coding, Reader};
use drumlin_repo::{Cache, Index, IndexMode, Repository, Unlock, WriteSession, names};
use drumlin_seal::{SealKey, Secret};
use drumlin_store::{Fault, FaultStore, Kind, Op, Put, Store, When};
use std::sync::{Arc, Mutex};

/// All packs that index objects name.
pub fn entries(history: &History) -> Vec<Entry> {
    let repository = &history.bench.repository;
    let ids = repository.index_objects().unwrap();
    ids.iter().flat_map(|(id, _)| repository.index_entries(*id).unwrap().unwrap()).collect()
}

/// A session of a machine that has nothing, and its cache's folder.
pub fn session(repository: &Repository) -> (WriteSession, tempfile::TempDir) {
    let scratch = tempfile::tempdir().unwrap();
    let cache = Arc::new(Cache::open(repository, None, scratch.path()).unwrap());
    let registration = Registration::begin(repository, Session::new("elsewhere", "backup", 0)).unwrap();
    let index = Arc::new(Index::open_for(&registration, cache.clone(), IndexMode::Exact).unwrap());
    (WriteSession::begin(registration, index, cache), scratch)
}

/// One pack of each kind with rubbish under the names of all chunks that there are.
fn claim_all(repository: &Repository, entries: &[Entry]) {
    claim(repository, entries, |_| true);
}

/// An index object that says this of a pack.
fn name(repository: &Repository, entry: Entry) {
    let (liar, _scratch) = session(repository);
    liar.name_again(entry).unwrap();
    liar.flush().unwrap();
    liar.abandon().unwrap();
}

/// The same under some names.
fn claim(repository: &Repository, entries: &[Entry], picked: impl Fn(&ChunkId) -> bool) {
    let (liar, _scratch) = session(repository);
    let mut coder = Coder::new().unwrap();
    for kind in [PackKind::Data, PackKind::Tree] {
        let packer = if kind == PackKind::Data { &liar.data } else { &liar.tree };
        let mut block = BlockBuilder::default();
        let chunks = entries.iter().filter(|entry| entry.kind == kind).flat_map(|entry| &entry.table.chunks);
        for chunk in chunks.filter(|chunk| picked(&chunk.id)) {
            block.push(chunk.id, &vec![b'!'; chunk.len as usize]);
            if block.raw.len() > 200_000 {
                packer.append(&mut block, &mut coder, Coding::Raw).unwrap();
            }
        }
        if !block.is_empty() {
            packer.append(&mut block, &mut coder, Coding::Raw).unwrap();
        }
    }
    liar.flush().unwrap();
    liar.abandon().unwrap();
}

/// Whoever has stolen a key that may only add: neither the owner's prunes nor a keeper's take away what is sound for
/// what he says.
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

/// A pack has lost its end, and a thief claims to have what is in it. Nobody has looked whether he has: what can still be
/// read there is moved.
#[test]
fn a_repair_leaves_nothing_behind_for_what_a_thief_claims_to_have() {
    for role in [Role::Owner, Role::Keeper] {
        let history = History::new(2);
        let mut data = entries(&history);
        data.retain(|entry| entry.kind == PackKind::Data);
        claim(&lesser(&history.bench, Role::Writer), &data, |_| true);
        let largest = data.iter().max_by_key(|entry| entry.pack_len).unwrap();
        let name = names::pack(largest.kind, largest.pack);
        let bytes = history.bench.memory.get(&name).unwrap();
        let cut = &bytes[..largest.table.blocks_end() as usize];
        history.bench.memory.put(&name, cut, Put::Replace).unwrap();
        let by = if role == Role::Owner { history.bench.repository.clone() } else { lesser(&history.bench, role) };
        let scratch = tempfile::tempdir().unwrap();
        let cache = Arc::new(Cache::open(&by, None, scratch.path()).unwrap());
        let report = repair(&by, &cache, &repair_options(), &Quiet::default()).unwrap();
        assert_eq!(report.lost_chunks, 0, "{report:?}");
        history.whole();
        prune(&history.bench.repository, &cache, &prune_options(), &Quiet::default()).unwrap();
        history.whole();
    }
}

/// Nothing of a pack is left but its blocks, and an index object has the only table; another one that a thief has put says
/// something else of it, and nobody can tell which of them is right.
#[test]
fn a_repair_gives_up_no_pack_that_a_thief_has_contradicted() {
    for _ in 0..4 {
        let history = History::new(2);
        let largest = entries(&history).into_iter().max_by_key(|entry| entry.pack_len).unwrap();
        let mut lie = largest.clone();
        let ids: Vec<ChunkId> = largest.table.chunks.iter().map(|chunk| chunk.id).collect();
        let rotated = ids.iter().cycle().skip(1);
        lie.table.chunks.iter_mut().zip(rotated).for_each(|(chunk, id)| chunk.id = *id);
        assert!(lie != largest);
        name(&lesser(&history.bench, Role::Writer), lie.clone());
        let path = names::pack(largest.kind, largest.pack);
        let bytes = history.bench.memory.get(&path).unwrap();
        history.bench.memory.put(&path, &bytes[..largest.table.blocks_end() as usize], Put::Replace).unwrap();
        let by = &history.bench.repository;
        let scratch = tempfile::tempdir().unwrap();
        let cache = Arc::new(Cache::open(by, None, scratch.path()).unwrap());
        let report = repair(by, &cache, &repair_options(), &Quiet::default()).unwrap();
        assert_eq!((report.lost_chunks, &report.closed[..]), (0, &[largest.pack][..]), "{report:?}");
        let _ = prune(by, &cache, &prune_options(), &Quiet::default());
        // Once what he has put is gone all is there.
        for (id, _) in by.index_objects().unwrap() {
            if by.index_entries(id).unwrap().unwrap().contains(&lie) {
                history.bench.memory.delete(&names::index(id)).unwrap();
            }
        }
        history.whole();
    }
}

/// That a sound pack is longer than it is says a thief, in index objects that come before and after the honest one.
#[test]
fn a_repair_believes_nobody_who_makes_a_sound_pack_longer() {
    let history = History::new(2);
    let thief = lesser(&history.bench, Role::Writer);
    for entry in &entries(&history) {
        for _ in 0..4 {
            name(&thief, Entry { pack_len: entry.pack_len + 4096, ..entry.clone() });
        }
    }
    let by = &history.bench.repository;
    let scratch = tempfile::tempdir().unwrap();
    let cache = Arc::new(Cache::open(by, None, scratch.path()).unwrap());
    let report = repair(by, &cache, &repair_options(), &Quiet::default()).unwrap();
    let none = (report.lost_chunks, report.mended.len(), report.damaged.len(), report.closed.len(), report.salvaged);
    assert_eq!(none, (0, 0, 0, 0, 0), "{report:?}");
    history.whole();
}

/// Nor while a prune is at work: what a new snapshot needs of a pack that is to go is there, whoever says since that he
/// has it, too.
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

/// A keeper can't read contents, and knows what he has moved: what prunes of his left that were killed goes with the
/// next.
#[test]
fn what_a_keeper_has_moved_twice_goes() {
    // Where each block holds something that is needed a keeper has nothing to move.
    let mut several = (0..8).filter(|_| has_moved_twice_and_clears_up());
    assert!(several.next().is_some(), "nothing was moved");
}

/// `false`: there was nothing to move.
fn has_moved_twice_and_clears_up() -> bool {
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
    let at_first = history.bytes();
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
    let after = history.bytes();
    assert!(after * 100 <= at_first * 102, "{at_first} at first, then {before}, then {after}");
    before > at_first * 12 / 10
}

/// An index object that says of a pack which there is that its chunks stand in another order, beside the truth or
/// instead of it.
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

/// The same of packs that can't be asked themselves, as they are in cold storage: they stay, all that is said of them
/// is kept, and the rest of the prune goes on. Once they can be asked what they say counts.
#[test]
fn what_is_said_of_packs_in_cold_storage_stops_no_prune() {
    for round in 0..4 {
        let mut history = History::new(3);
        let mut said = entries(&history);
        said.retain(|entry| entry.kind == PackKind::Data);
        let (liar, _scratch) = session(&lesser(&history.bench, Role::Writer));
        for mut entry in said.iter().cloned() {
            let mut ids: Vec<ChunkId> = entry.table.chunks.iter().map(|chunk| chunk.id).collect();
            // What it has, elsewhere; or another pack's.
            match round % 2 {
                0 => ids.rotate_left(1),
                _ => ids.clone_from(&said.iter().flat_map(|of| of.table.chunks.iter().map(|chunk| chunk.id)).collect()),
            }
            entry.table.chunks.iter_mut().zip(ids).for_each(|(chunk, id)| chunk.id = id);
            liar.name_again(entry).unwrap();
        }
        liar.flush().unwrap();
        liar.abandon().unwrap();
        history.forget(|at| at == 0);
        let store = FaultStore::new(history.bench.memory.clone());
        for op in [Op::Get, Op::ReadAt] {
            store.faults().add(When::op(op).named("data/*"), Fault::Fail(Kind::Frozen));
        }
        let by = Repository::open(Arc::new(store), &Unlock::File(history.bench.key_file())).unwrap();
        let (sharp, monitor) = (Options { max_unused: Unused::Bytes(0), ..prune_options() }, Quiet::default());
        let report = prune(&by, &history.bench.cache, &sharp, &monitor).unwrap();
        assert!(report.gone.packs > 0, "{report:?}");
        let told = monitor.problems();
        assert!(told.iter().all(|problem| problem.cause.contains("can't be read now")), "{told:?}");
        assert!(!told.is_empty() && monitor.counters().get().damaged == told.len() as u64, "{told:?}");
        let still = entries(&history);
        assert!(said.iter().all(|entry| still.contains(entry)), "what is so is said no more");
        history.whole();
        let monitor = Quiet::default();
        prune(&history.bench.repository, &history.bench.cache, &sharp, &monitor).unwrap();
        assert!(monitor.counters().get().damaged > 0);
        let settled = entries(&history);
        assert!(settled.iter().all(|entry| entry.kind == PackKind::Tree
            || said.contains(entry)
            || !said.iter().any(|of| of.pack == entry.pack)));
        history.whole();
    }
}

/// An index object that has a pack's table elsewhere than it is: the pack knows better.
#[test]
fn where_its_table_is_a_pack_knows_itself() {
    a_pack_knows_better(|entry| entry.table_len -= 1);
}

/// The same of the generation that it is sealed for.
#[test]
fn of_which_generation_it_is_a_pack_knows_itself() {
    a_pack_knows_better(|entry| entry.generation = 7);
}

fn a_pack_knows_better(lie: impl Fn(&mut Entry)) {
    for _ in 0..4 {
        let mut history = History::new(3);
        let (liar, _scratch) = session(&lesser(&history.bench, Role::Writer));
        for mut entry in entries(&history) {
            lie(&mut entry);
            liar.name_again(entry).unwrap();
        }
        liar.flush().unwrap();
        liar.abandon().unwrap();
        history.whole();
        history.forget(|at| at == 0);
        for _ in 0..2 {
            prune(&history.bench.repository, &history.bench.cache, &prune_options(), &Quiet::default()).unwrap();
            history.whole();
        }
    }
}

/// What a thief puts while a prune walks through trees is not seen by it, even where something damaged has it look
/// further.
#[test]
fn what_comes_while_a_prune_walks_hides_nothing() {
    let mut history = History::new(3);
    history.forget(|at| at == 0);
    let thief = lesser(&history.bench, Role::Writer);
    let all = entries(&history);
    let roots: Vec<ChunkId> = history.states.iter().filter_map(|(state, _)| Some(state.root?.node)).collect();
    claim(&thief, &all, |id| roots.contains(id));
    let once = Mutex::new(Some(move || claim_all(&thief, &all)));
    let then = move || {
        // The others wait for it.
        let mut once = once.lock().unwrap();
        once.take().into_iter().for_each(|claim| claim());
    };
    let store = WhileReading { inner: history.bench.memory.clone(), prefix: names::TREE, then: Box::new(then) };
    let by = Repository::open(Arc::new(store), &Unlock::File(history.bench.key_file())).unwrap();
    let before = objects(&history.bench.memory).len();
    prune(&by, &history.bench.cache, &prune_options(), &Quiet::default()).unwrap();
    assert!(objects(&history.bench.memory).len() != before, "nobody put anything");
    history.whole();
}

/// An index object that says of a sound pack that another one's chunks stand in it, at places that it has or behind
/// them. It holds something else there, or nothing, and neither vouches for anything nor hides where those chunks are.
#[test]
fn what_stands_at_a_place_is_what_counts() {
    for (by_cache, longer) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut history = History::new(3);
        let data: Vec<Entry> = entries(&history).into_iter().filter(|entry| entry.kind == PackKind::Data).collect();
        let (longest, rest): (Vec<_>, Vec<_>) =
            data.into_iter().partition(|entry| entry.table.chunks.len() > 40 && entry.pack_len > 100_000);
        let (mut claimed, others) = (longest[0].clone(), longest[1..].iter().chain(&rest));
        let taken: Vec<ChunkId> = others.flat_map(|entry| entry.table.chunks.iter().map(|chunk| chunk.id)).collect();
        assert!(taken.len() > 10, "nothing to take: {}", taken.len());
        if longer {
            let last = claimed.table.chunks.pop().unwrap();
            let parts = taken.iter().take(last.len as usize - 1).map(|id| Chunk { id: *id, len: 1, ..last });
            claimed.table.chunks.extend((0..).zip(parts).map(|(at, part)| Chunk { offset: last.offset + at, ..part }));
            let told = claimed.table.chunks.last_mut().unwrap();
            told.len = last.offset + last.len - told.offset;
            let chunks = claimed.table.chunks.len() as u32;
            let block = &mut claimed.table.blocks[last.block as usize];
            block.chunks = chunks - block.first_chunk;
        } else {
            claimed.table.chunks.iter_mut().zip(&taken).for_each(|(chunk, id)| chunk.id = *id);
        }
        // Of two index objects the first by name counts for what is at a place, and the last that a cache has come to
        // know for where something is.
        let index = || objects(&history.bench.memory).into_keys().filter(|name| name.starts_with(names::INDEX));
        let truth = index().max().unwrap();
        let (mut rounds, mut known) = (0..1000, index().collect::<std::collections::HashSet<_>>());
        while rounds.next().is_some() && index().max().unwrap() == truth {
            index()
                .filter(|name| known.insert(name.clone()))
                .for_each(|lie| history.bench.memory.delete(&lie).unwrap());
            let (liar, _scratch) = session(&lesser(&history.bench, Role::Writer));
            liar.name_again(claimed.clone()).unwrap();
            liar.flush().unwrap();
            liar.abandon().unwrap();
        }
        history.forget(|at| at == 0);
        let scratch = tempfile::tempdir().unwrap();
        let cache = match by_cache {
            true => history.bench.cache.clone(),
            false => Arc::new(Cache::open(&history.bench.repository, None, scratch.path()).unwrap()),
        };
        let sharp = Options { max_unused: Unused::Bytes(0), ..prune_options() };
        prune(&history.bench.repository, &cache, &sharp, &Quiet::default()).unwrap();
        history.whole();
    }
}

/// A table that says of rubbish that it is the very block that stands in another pack. A keeper moves blocks unseen,
/// and says where they are from: not by the word of somebody who moves none.
#[test]
fn what_a_thief_says_to_have_moved_stands_for_nothing() {
    for _ in 0..4 {
        let mut history = History::new(3);
        let repository = &history.bench.repository;
        let thief = lesser(&history.bench, Role::Writer);
        let (liar, _scratch) = session(&thief);
        let index = Arc::new(Index::open(repository, history.bench.cache.clone()).unwrap());
        let reader = Reader::new(repository.clone(), index.clone(), history.bench.cache.clone(), 0);
        for info in index.packs().iter().filter(|info| info.kind == PackKind::Data) {
            let table = reader.table(info).unwrap();
            for block in table.blocks.iter().filter(|block| block.chunks > 0) {
                let chunks = &table.chunks[block.first_chunk as usize..][..block.chunks as usize];
                let ids: Vec<_> = chunks.iter().map(|chunk| (chunk.id, chunk.len)).collect();
                let rubbish = vec![b'!'; block.stored_len as usize];
                let slot = &table.slots[block.slot as usize];
                liar.adopt((info.kind, info.generation), slot, block, &rubbish, &ids).unwrap();
            }
        }
        liar.flush().unwrap();
        liar.abandon().unwrap();
        history.forget(|at| at == 0);
        let keeper = lesser(&history.bench, Role::Keeper);
        let sharp = Options { max_unused: Unused::Bytes(0), ..prune_options() };
        for _ in 0..3 {
            let scratch = tempfile::tempdir().unwrap();
            let cache = Arc::new(Cache::open(&keeper, None, scratch.path()).unwrap());
            prune(&keeper, &cache, &sharp, &Quiet::default()).unwrap();
            history.whole();
        }
    }
}

/// A pack by a thief whose table says that its blocks are from another pack, under a key of his own: the two are sound
/// each by itself. Whoever moves blocks of both files none under the other's key.
#[test]
fn a_key_that_a_thief_gives_to_an_origin_opens_nothing_of_others() {
    let history = History::new(1);
    let repository = &history.bench.repository;
    let suite = repository.config().suite;
    for kind in [PackKind::Data, PackKind::Tree] {
        let honest = entries(&history).into_iter().find(|entry| entry.kind == kind).unwrap();
        let name = names::pack(kind, honest.pack);
        let header = pack::header(kind, suite, 0, honest.pack).encode();
        // Anybody who writes has what it takes: the key that keys of packs are sealed to, and the pack's id.
        let config = repository.config();
        let public = if kind == PackKind::Data { &config.data_key } else { &config.meta_key };
        let secret = Secret::new([7; 32]);
        let wrapped = public.wrap(&secret, pack::WRAP_INFO, &header, &Secret::new([8; 32])).unwrap();
        let lie = Slot { origin: honest.pack, wrapped };
        let sealed_by_thief = {
            let mut sealed = b"what he has".to_vec();
            SealKey::new(suite, &secret).seal(1 << 40, &header, &mut sealed);
            sealed
        };
        let block = Block {
            number: 1 << 40,
            codec: Codec::Raw,
            stored_len: sealed_by_thief.len() as u32,
            raw_len: 11,
            ..honest.table.blocks[0].clone()
        };
        let before: Vec<_> = entries(&history).iter().map(|entry| entry.pack).collect();
        let (mover, _scratch) = session(repository);
        mover.adopt((kind, 0), &lie, &block, &sealed_by_thief, &[(ChunkId([9; 32]), 11)]).unwrap();
        for block in honest.table.blocks.iter().filter(|block| block.chunks > 0) {
            let mut sealed = vec![0; block.stored_len as usize];
            repository.store().read_at(&name, block.offset, &mut sealed).unwrap();
            let chunks = &honest.table.chunks[block.first_chunk as usize..][..block.chunks as usize];
            let ids: Vec<_> = chunks.iter().map(|chunk| (chunk.id, chunk.len)).collect();
            mover.adopt((kind, 0), &honest.table.slots[block.slot as usize], block, &sealed, &ids).unwrap();
        }
        mover.flush().unwrap();
        mover.abandon().unwrap();
        // Of somebody who has not written any of it, and remembers no key.
        let scratch = tempfile::tempdir().unwrap();
        let cache = Arc::new(Cache::open(repository, None, scratch.path()).unwrap());
        let index = Arc::new(Index::open(repository, cache.clone()).unwrap());
        let reader = Reader::new(repository.clone(), index.clone(), cache, 0);
        let mut moved = 0;
        for info in index.packs().iter().filter(|info| info.kind == kind && !before.contains(&info.id)) {
            let table = reader.table(info).unwrap();
            for number in (0..table.blocks.len() as u32).filter(|at| table.blocks[*at as usize].chunks > 0) {
                let (mut sealed, mut bytes) = (Vec::new(), Vec::new());
                reader.block(info, &table, number, &mut sealed, &mut bytes).unwrap();
                moved += 1;
            }
        }
        assert!(moved > honest.table.blocks.iter().filter(|block| block.chunks > 0).count(), "{kind:?}");
    }
}
