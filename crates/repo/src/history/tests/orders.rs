//! Removers and lookers at once, one call of the storage at a time, in an order that a seed gives. Calls fail, with
//! their effect done or not; what failed was not made durable, and is lost when the power fails.

use super::{bench, look};
use crate::collection::{Board, Desk};
use crate::history::entries::Read;
use crate::{Repository, names, random_id};
use drumlin_format::key::Role;
use drumlin_format::{IndexId, SnapshotId};
use drumlin_store::{Action, Error, Kind, Listed, MemoryStore, Put, Result, Store, Upload};
use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Who is next.
struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    random: u64,
    /// Who has not come to an end.
    active: BTreeSet<usize>,
    turn: usize,
    /// Objects that are there and not durable.
    volatile: Vec<String>,
}

impl State {
    fn below(&mut self, n: usize) -> usize {
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as usize % n
    }

    fn next(&mut self) {
        let all: Vec<usize> = self.active.iter().copied().collect();
        if !all.is_empty() {
            self.turn = all[self.below(all.len())];
        }
    }
}

impl Turns {
    fn new(seed: u64, actors: usize) -> Arc<Self> {
        let state = State { random: seed, active: (0..actors).collect(), turn: 0, volatile: Vec::new() };
        Arc::new(Turns { state: Mutex::new(state), changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// One step of an actor's, when it is its turn.
    fn step<T>(&self, actor: usize, work: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.changed.wait_while(self.lock(), |state| state.turn != actor).unwrap();
        let done = work(&mut state);
        state.next();
        self.changed.notify_all();
        done
    }

    fn leave(&self, actor: usize) {
        self.step(actor, |state| state.active.remove(&actor));
    }
}

/// An actor that hasn't come to an end; one that panics has, or the others would wait for it for ever.
struct Playing<'a>(&'a Turns, usize);

impl Drop for Playing<'_> {
    fn drop(&mut self) {
        self.0.leave(self.1);
    }
}

/// An actor's storage.
struct Client {
    memory: MemoryStore,
    turns: Arc<Turns>,
    actor: usize,
    /// Calls that write fail now and then.
    fails: bool,
}

impl Client {
    fn write(&self, name: &str, call: impl FnOnce() -> Result<()>) -> Result<()> {
        let fail = || Error::because(Kind::Transient, Action::Write, name, "the test", "it says so");
        self.turns.step(self.actor, |state| {
            let often = if name.starts_with(names::HISTORY) { 4 } else { 12 };
            if !self.fails || state.below(often) > 0 {
                state.volatile.retain(|known| known != name);
                return call();
            }
            if state.below(2) == 0 {
                call()?;
                if self.memory.len(name)?.is_some() {
                    state.volatile.push(name.to_owned());
                }
            }
            Err(fail())
        })
    }
}

impl Store for Client {
    fn location(&self) -> String {
        "the test".into()
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed)) -> Result<()> {
        self.turns.step(self.actor, |_| self.memory.list(prefix, each))
    }

    fn len(&self, name: &str) -> Result<Option<u64>> {
        self.turns.step(self.actor, |_| self.memory.len(name))
    }

    fn get(&self, name: &str) -> Result<Vec<u8>> {
        self.turns.step(self.actor, |_| self.memory.get(name))
    }

    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.turns.step(self.actor, |_| self.memory.read_at(name, offset, buf))
    }

    fn put(&self, name: &str, bytes: &[u8], how: Put) -> Result<()> {
        self.write(name, || self.memory.put(name, bytes, how))
    }

    fn upload(&self, name: &str, len_hint: u64) -> Result<Box<dyn Upload>> {
        self.memory.upload(name, len_hint)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.write(name, || self.memory.delete(name))
    }
}

/// How many of each.
const REMOVERS: usize = 3;
const LOOKERS: usize = 2;

fn remover(repository: &Repository, turns: &Turns, actor: usize) {
    for _ in 0..20 {
        let choice = turns.step(actor, |state| state.below(3));
        let mut snapshots: Vec<SnapshotId> = repository.ids(names::SNAPSHOTS, SnapshotId::parse).unwrap();
        let mut indexes: Vec<IndexId> = repository.ids(names::INDEX, IndexId::parse).unwrap();
        // The same ones for all, rather often: who failed is taken up by others.
        snapshots.sort_unstable();
        indexes.sort_unstable();
        let some = turns.step(actor, |state| 1 + state.below(3));
        let _ = match choice {
            0 => repository.forget(&snapshots[..some.min(snapshots.len())]),
            1 => Desk::new(repository).remove_indexes(&indexes[..some.min(indexes.len())]),
            _ => {
                let put = |name: String| repository.store().put(&name, name.as_bytes(), Put::Create);
                let _ = put(names::snapshot(SnapshotId(random_id().unwrap())));
                put(names::index(IndexId(random_id().unwrap()))).map_err(Into::into)
            }
        };
    }
}

fn run(seed: u64) {
    let bench = bench();
    for _ in 0..20 {
        bench.put(&names::snapshot(SnapshotId(random_id().unwrap())));
        bench.put(&names::index(IndexId(random_id().unwrap())));
    }
    // So many entries that they are absorbed all the time, or so few that it doesn't come to that.
    for _ in 0..if seed.is_multiple_of(2) { 30 } else { 0 } {
        bench.owner.record(super::Act::now("prune"), &[], &[IndexId(random_id().unwrap())]).unwrap();
    }
    let power = REMOVERS + LOOKERS;
    let turns = Turns::new(seed, power + 1);
    let lookers = [Role::Reader, Role::Writer].map(|role| bench.client(role));
    std::thread::scope(|scope| {
        for actor in 0..power {
            let client = Client { memory: bench.memory.clone(), turns: turns.clone(), actor, fails: actor < REMOVERS };
            let (bench, turns, lookers) = (&bench, &turns, &lookers);
            scope.spawn(move || {
                let _playing = Playing(turns, actor);
                let key = bench.owner.key_file(bench.owner.secrets().key, &drumlin_seal::Secret::new([1; 32]));
                let repository = Repository::open(Arc::new(client), &crate::Unlock::File(key.to_string())).unwrap();
                match lookers.get(actor.wrapping_sub(REMOVERS)) {
                    None => remover(&repository, turns, actor),
                    Some(looker) => {
                        let repository = repository.with_memory(looker.memory().unwrap().clone());
                        for _ in 0..30 {
                            match repository.look_back(5, true) {
                                Ok(missing) => assert!(missing.is_empty(), "seed {seed}: accused wrongly: {missing}"),
                                // The history changes all the time: it shall be run again.
                                Err(crate::Error::Unsteady(_)) => {}
                                Err(e) => panic!("seed {seed}: {e}"),
                            }
                        }
                    }
                }
            });
        }
        let (bench, turns) = (&bench, &turns);
        scope.spawn(move || {
            let _playing = Playing(turns, power);
            // The power fails: entries that nobody was told are durable are gone. (Snapshots and index objects that are
            // seen and not durable have sessions, which are not played here.)
            for _ in 0..150 {
                turns.step(power, |state| {
                    if state.below(4) == 0 {
                        for name in std::mem::take(&mut state.volatile) {
                            if name.starts_with(names::HISTORY) {
                                bench.memory.delete(&name).unwrap();
                            }
                        }
                    }
                });
            }
        });
    });
    // Now the storage drops something that both have seen.
    let mut folders = vec![names::SNAPSHOTS, names::INDEX, names::HISTORY];
    folders.rotate_left(seed as usize % 3);
    for looker in &lookers {
        super::sound(looker);
        super::sound(looker);
    }
    for folder in folders {
        let mut all = Vec::new();
        bench.memory.list(folder, &mut |listed| all.push(listed.name)).unwrap();
        all.sort();
        let Some(victim) = all.get(turns.lock().below(all.len().max(1))) else { continue };
        let id = SnapshotId::parse(names::last(victim)).unwrap().0;
        // What somebody has signed for and then failed to remove may go.
        let named = named(&bench.owner).contains(&id);
        let expected: Vec<bool> = lookers
            .iter()
            .map(|looker| {
                looker.memory().unwrap().read(|seen| {
                    seen.snapshots.contains(&id) || seen.indexes.contains(&id) || seen.entries.contains(&id)
                })
            })
            .collect();
        bench.memory.delete(victim).unwrap();
        for (looker, expected) in lookers.iter().zip(expected) {
            assert_eq!(!look(looker).is_empty(), expected && !named, "seed {seed}: {victim}");
            assert!(expected || named || folder == names::HISTORY, "seed {seed}: {victim} was not remembered");
            looker.accept_history(1).unwrap();
        }
    }
}

/// All that entries name.
fn named(repository: &Repository) -> BTreeSet<[u8; 16]> {
    let trusted = repository.trusted_keys().unwrap();
    let mut named = BTreeSet::new();
    for (id, _) in repository.history_ids().unwrap() {
        if let Read::Counts(entry) = repository.history_entry(id, &trusted).unwrap() {
            named.extend(entry.snapshots.iter().map(|id| id.0));
            named.extend(entry.indexes.iter().map(|id| id.0));
            named.extend(entry.absorbed.iter().map(|id| id.0));
        }
    }
    named
}

#[test]
fn nobody_is_accused_wrongly_and_what_is_dropped_is_noticed() {
    let runs = std::env::var("DRUMLIN_ORDERS").ok().and_then(|n| n.parse().ok()).unwrap_or(40);
    (0..runs).for_each(run);
}
