//! Chunks that stand in two packs: one goes if the other is what it should be.

use crate::history::{History, bytes, fresh, lesser, objects, prune_options};
use crate::liars::{entries, session};
use drumlin_engine::monitor::{ProblemKind, Quiet};
use drumlin_engine::prune::{Options, Unused, prune};
use drumlin_format::ChunkId;
use drumlin_format::key::Role;
use drumlin_format::pack::PackKind;
use drumlin_repo::pack::{BlockBuilder, Coder, Coding, Reader};
use drumlin_repo::{Cache, Index, Repository};
use drumlin_store::{Put, Store};
use std::sync::Arc;

/// A history of one state of which all contents stand twice.
struct Twins {
    history: History,
    /// The names of the packs of contents: those of the backup, and those of the other machine.
    packs: [Vec<String>; 2],
}

impl Twins {
    /// Two machines have stored the same, with keys of their own or with the same one.
    fn new(by_one_key: bool) -> Self {
        let history = History::new(1);
        let other = if by_one_key { history.bench.repository.clone() } else { lesser(&history.bench, Role::Writer) };
        let before = objects(&history.bench.memory);
        let (twin, _scratch) = session(&other);
        let mut coder = Coder::new().unwrap();
        let mut block = BlockBuilder::default();
        let ids = chunks(&history);
        let contents = read(&history, &ids);
        for (id, bytes) in ids.iter().zip(contents) {
            block.push(*id, &bytes);
            if block.raw.len() > 200_000 {
                twin.data.append(&mut block, &mut coder, Coding::Zstd(3)).unwrap();
            }
        }
        twin.data.append(&mut block, &mut coder, Coding::Zstd(3)).unwrap();
        twin.flush().unwrap();
        twin.abandon().unwrap();
        let after = objects(&history.bench.memory);
        let data = after.into_keys().filter(|name| name.starts_with("data/"));
        let (first, second) = data.partition(|name| before.contains_key(name));
        Twins { history, packs: [first, second] }
    }

    /// Change a byte of a block of each pack of one of them, and its parity or not.
    fn rot(&self, which: usize, and_parity: bool) {
        for name in &self.packs[which] {
            let mut bytes = self.history.bench.memory.get(name).unwrap();
            if and_parity {
                drumlin_testkit::wipe_parity(&mut bytes);
            }
            // Not its table, which says what is in it.
            bytes[1000] = bytes[1000].wrapping_add(1);
            self.history.bench.memory.put(name, &bytes, Put::Replace).unwrap();
        }
    }

    /// Prune as one who knows nothing yet, so many times. The packs that were told of as damaged each time.
    fn prunes(&self, by: &Repository, max_unused: Unused, times: usize) -> Vec<Vec<String>> {
        let scratch = tempfile::tempdir().unwrap();
        let cache = Arc::new(Cache::open(by, None, scratch.path()).unwrap());
        let prune_once = |_| {
            let monitor = Quiet::default();
            prune(by, &cache, &Options { max_unused, ..prune_options() }, &monitor).unwrap();
            let problems = monitor.problems();
            assert!(problems.iter().all(|problem| problem.kind == ProblemKind::Damaged), "{problems:?}");
            let mut told: Vec<String> =
                problems.into_iter().map(|problem| String::from_utf8(problem.path).unwrap()).collect();
            told.sort_unstable();
            told
        };
        (0..times).map(prune_once).collect()
    }

    fn prune(&self, by: &Repository, max_unused: Unused) -> Vec<String> {
        self.prunes(by, max_unused, 1).remove(0)
    }

    fn there(&self, which: usize) -> bool {
        self.packs[which].iter().all(|name| self.history.bench.memory.len(name).unwrap().is_some())
    }
}

/// The chunks of contents, each once.
fn chunks(history: &History) -> Vec<ChunkId> {
    let data = entries(history).into_iter().filter(|entry| entry.kind == PackKind::Data);
    let mut ids: Vec<ChunkId> = data.flat_map(|entry| entry.table.chunks).map(|chunk| chunk.id).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

fn read(history: &History, ids: &[ChunkId]) -> Vec<Vec<u8>> {
    let (repository, cache) = (history.bench.repository.clone(), history.bench.cache.clone());
    let index = Arc::new(Index::open(&repository, cache.clone()).unwrap());
    let reader = Reader::new(repository, index, cache, 8 << 20);
    ids.iter().map(|id| reader.chunk(PackKind::Data, id).unwrap()).collect()
}

/// The states of who has stored it and who prunes.
const WAYS: [(bool, bool); 3] = [(false, false), (true, false), (true, true)];

#[test]
fn of_two_copies_the_sound_one_stays() {
    for (by_one_key, by_keeper) in WAYS {
        for rotten in [0, 1] {
            let twins = Twins::new(by_one_key);
            let keeper = by_keeper.then(|| lesser(&twins.history.bench, Role::Keeper));
            twins.rot(rotten, true);
            let by = keeper.as_ref().unwrap_or(&twins.history.bench.repository);
            for max_unused in [Unused::Percent(5.0), Unused::Bytes(0)] {
                let packs = twins.prune(by, max_unused);
                assert!(packs.iter().all(|name| twins.packs[rotten].contains(name)), "{packs:?}");
                twins.history.whole();
            }
        }
    }
}

#[test]
fn rot_is_told_again_while_it_is_there() {
    // Which of two the index gives is for chance to say.
    let told = (0..20).find_map(|round| {
        let twins = Twins::new(true);
        twins.rot(round % 2, true);
        let packs = twins.prunes(&twins.history.bench.repository, Unused::Unlimited, 3);
        assert!(packs.iter().all(|of| *of == packs[0]), "{packs:?}");
        twins.history.whole();
        (!packs[0].is_empty()).then_some(packs)
    });
    assert!(told.is_some());
}

/// What only parity makes sound is used up by the next sector that goes: a perfect copy doesn't go for it.
#[test]
fn of_two_copies_the_perfect_one_stays() {
    for (by_one_key, by_keeper) in WAYS {
        for damaged in [0, 1] {
            let twins = Twins::new(by_one_key);
            let keeper = by_keeper.then(|| lesser(&twins.history.bench, Role::Keeper));
            twins.rot(damaged, false);
            let by = keeper.as_ref().unwrap_or(&twins.history.bench.repository);
            twins.prune(by, Unused::Bytes(0));
            if twins.there(damaged) {
                twins.rot(damaged, true);
            }
            twins.history.whole();
        }
    }
}

#[test]
fn of_two_sound_copies_one_goes() {
    for (by_one_key, by_keeper) in WAYS {
        let twins = Twins::new(by_one_key);
        let keeper = by_keeper.then(|| lesser(&twins.history.bench, Role::Keeper));
        let (before, one) = (twins.history.bytes(), bytes(&fresh(&twins.history).0));
        let by = keeper.as_ref().unwrap_or(&twins.history.bench.repository);
        assert_eq!(twins.prune(by, Unused::Bytes(0)), [""; 0]);
        twins.history.whole();
        let after = twins.history.bytes();
        assert!(before > one * 17 / 10 && after * 10 <= one * 12, "{before}, then {after}, and {one} in a fresh one");
    }
}
