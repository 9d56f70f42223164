//! Duplicates: chunks that stand in several packs, or several times in one. One of them is enough, if it is what it is said to be; else none goes.
//!
//! Where chunks are the index says, by the word of whoever has put packs: of a stolen key that may only add, perhaps; and what was written well may
//! have rotted since. So before a chunk goes with its pack because it stands in another one, too, that other one is read there, and must be what its
//! name says. Only what goes is asked about: the choice of packs comes first, and is made anew if something has to stay.
//!
//! Where it can't be read, contents by a keeper's key, or what lies in cold storage, the other pack's own table must have the chunk, and be signed by
//! the key that has signed the first one's, which could as well have written rubbish at once; or by an owner's, or of trees by a keeper's, who read what
//! they write anew. A keeper's key moves contents as they are sealed: what it has signed says nothing of them but where it has them from, and a block
//! that it says is another pack's, by origin and number, is as good as that one. Bytes that a key can't open must be those that their parity was made of.

use super::ground::Ground;
use super::places::Places;
use crate::monitor::Monitor;
use crate::reach::bits::Bits;
use crate::reach::find::{self, Found};
use crate::reach::keys::{KEY_BYTES, Key, Keys, Place, key};
use crate::reach::marks::Marks;
use crate::{Error, Result};
use drumlin_format::key::Role;
use drumlin_format::pack::{PackKind, Table};
use drumlin_format::{ChunkId, KeyId, PackId};
use drumlin_repo::{PackInfo, Repository};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// A chunk that is needed.
struct Case {
    /// What its places have to hold.
    key: Key,
    /// Where it is marked.
    marked: Vec<Place>,
    /// Where it stands as well, by the word of the index.
    others: Vec<Place>,
}

/// What a pack says itself.
#[derive(Default)]
struct Word {
    signer: Option<(KeyId, Role)>,
    /// Of the places that were asked for those at which it has what the index says.
    chunks: HashMap<u32, Stands>,
}

/// A chunk as a pack's own table has it.
#[derive(Clone, Copy)]
struct Stands {
    id: ChunkId,
    /// The pack that its block was sealed for, the block's number there, and where in the block it is.
    origin: (PackId, u64, u32),
}

impl Word {
    /// Whether its word on chunks of a kind is as good as the other's.
    fn counts_beside(&self, other: &Word, kind: PackKind) -> bool {
        match (self.signer, other.signer, kind) {
            (Some((_, Role::Owner)), ..) => true,
            (Some((_, Role::Keeper)), _, kind) => kind == PackKind::Tree,
            (Some((one, _)), Some((other, _)), _) => one == other,
            _ => false,
        }
    }

    /// Whether it says, as a keeper, that it has moved what stands at the one place from where it stands at the other, or both from one.
    fn has_moved(&self, at: &Place, (other, there): (&Word, &Place)) -> bool {
        let origin = |word: &Word, at: &Place| word.chunks.get(&at.ordinal).map(|stands| stands.origin);
        let is_keeper = matches!(self.signer, Some((_, Role::Keeper)));
        is_keeper && origin(self, at).is_some_and(|own| origin(other, there) == Some(own))
    }
}

/// What can be seen of a chunk where it stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// It is what its name says.
    Sound,
    /// Its block is what it was when it was sealed; what is in it this key can't see.
    Sealed,
    /// It can't be looked at now.
    Frozen,
    /// It is nothing that could stand for another.
    Unsound,
}

/// The chunks that stand at several places, by the word of the index.
pub(super) struct Duplicates<'a> {
    repository: &'a Repository,
    places: &'a Places,
    infos: BTreeMap<u32, &'a PackInfo>,
    /// All places of each, side by side.
    members: Vec<(Key, Place)>,
    /// Where chunks stand that were seen to be good enough for all others.
    settled: HashSet<Place>,
    /// Packs that this run has written itself, of chunks that it had looked at.
    own: HashSet<u32>,
}

impl<'a> Duplicates<'a> {
    /// Find them.
    pub fn find(repository: &'a Repository, places: &'a Places, ground: &'a Ground) -> Result<Self> {
        let numbers = ground.named.values().filter_map(|(info, _)| Some((places.keys().number(&info.id)?, info)));
        let infos: BTreeMap<u32, &PackInfo> = numbers.collect();
        let members = members(places, &infos)?;
        Ok(Duplicates { repository, places, infos, members, settled: HashSet::new(), own: HashSet::new() })
    }

    /// The same, but what stands in these packs, which this run has written, need not be read again.
    pub fn but_for(self, own: &HashSet<PackId>) -> Self {
        let own = own.iter().filter_map(|pack| self.places.keys().number(pack)).collect();
        Duplicates { own, ..self }
    }

    /// Of needed chunks in packs that are to go and that are marked elsewhere: mark them in all packs, unless the one in which they are marked
    /// proves to have them. How many stay twice for that: if any do, packs are to be chosen anew.
    pub fn keep_unproven(&mut self, marks: &Marks, going: &HashSet<PackId>, monitor: &dyn Monitor) -> Result<u64> {
        let cases = self.cases(marks, going);
        let words = self.words(&cases)?;
        let proven = self.repository.ask_many(&cases, |case| match monitor.stop() {
            true => Err(Error::Interrupted),
            false => self.proof(case, &words),
        })?;
        let mut kept = 0;
        for (case, proven) in cases.iter().zip(proven) {
            if proven {
                self.settled.insert(case.marked[0]);
            } else {
                case.others.iter().for_each(|other| _ = marks.mark(&Found::At(*other)));
                kept += 1;
            }
        }
        Ok(kept)
    }

    /// The needed chunks of which something is to go.
    fn cases(&self, marks: &Marks, going: &HashSet<PackId>) -> Vec<Case> {
        let going: HashSet<u32> = going.iter().filter_map(|pack| self.places.keys().number(pack)).collect();
        let mut cases = Vec::new();
        for same in self.members.chunk_by(|one, other| one.0 == other.0) {
            let (marked, others): (Vec<Place>, Vec<Place>) =
                same.iter().map(|(_, at)| *at).partition(|at| marks.has(*at));
            let goes = others.iter().any(|at| going.contains(&at.pack));
            if goes && marked.first().is_some_and(|at| !self.settled.contains(at)) {
                cases.push(Case { key: same[0].0, marked, others });
            }
        }
        // One pack after the other.
        cases.sort_unstable_by(|one, other| one.marked.cmp(&other.marked));
        cases
    }

    /// Whether a chunk may go where it isn't marked.
    fn proof(&self, case: &Case, words: &HashMap<u32, Word>) -> Result<bool> {
        let silent = Word::default();
        let word = |place: &Place| words.get(&place.pack).unwrap_or(&silent);
        let is_enough = |at: &Place| {
            case.others.iter().all(|there| {
                let (own, other) = (word(at), word(there));
                own.counts_beside(other, self.places.keys().kind(at.pack)) || own.has_moved(at, (other, there))
            })
        };
        for at in &case.marked {
            // Another chunk may stand where an index object that came later says that this one does.
            let stands = word(at).chunks.get(&at.ordinal).filter(|stands| key(&stands.id) == case.key);
            let (Some(stands), Some(info)) = (stands, self.infos.get(&at.pack)) else { continue };
            // Who can't open a block moves it whole, with what nobody had asked for when it was moved.
            if self.own.contains(&at.pack) && self.repository.opens(info.kind, info.generation) {
                return Ok(true);
            }
            match self.seen(info, at.ordinal, &stands.id)? {
                Seen::Sound => return Ok(true),
                Seen::Sealed | Seen::Frozen if is_enough(at) => return Ok(true),
                _ => {}
            }
        }
        Ok(false)
    }

    /// Look at a chunk where it stands.
    fn seen(&self, info: &PackInfo, ordinal: u32, id: &ChunkId) -> Result<Seen> {
        let reader = self.places.anywhere();
        let looked = if self.repository.opens(info.kind, info.generation) {
            reader.chunk_in(info, ordinal, info.kind, id).map(|_| Seen::Sound)
        } else {
            let block =
                |table: Arc<Table>| Ok(table.chunks.get(ordinal as usize).map(|chunk| (chunk.block, table.clone())));
            reader.table(info).and_then(block).and_then(|found| match found {
                Some((block, table)) => {
                    reader.sealed_block(info, &table, block, &mut Vec::new(), None).map(|()| Seen::Sealed)
                }
                None => Ok(Seen::Unsound),
            })
        };
        match looked {
            Err(e) if e.frozen().is_some() => Ok(Seen::Frozen),
            Err(e) if e.is_of_one_object() || e.is_damage() => Ok(Seen::Unsound),
            other => Ok(other?),
        }
    }

    /// What the packs of some cases say themselves.
    fn words(&self, cases: &[Case]) -> Result<HashMap<u32, Word>> {
        let mut asked: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for case in cases {
            let all = case.others.iter().chain(&case.marked);
            all.for_each(|at| asked.entry(at.pack).or_default().push(at.ordinal));
        }
        let packs: Vec<(u32, PackInfo)> =
            asked.keys().filter_map(|pack| Some((*pack, (*self.infos.get(pack)?).clone()))).collect();
        let words = self.repository.ask_tables(
            &packs,
            |(pack, info)| (*pack, info),
            |pack, table, signer| {
                let mut word = Word { signer, ..Word::default() };
                let mut said = Vec::new();
                for ordinal in &asked[&pack] {
                    if self.places.keys().window(pack, *ordinal, 1, &mut said).is_ok()
                        && let Some(chunk) = table.chunks.get(*ordinal as usize).filter(|chunk| said == key(&chunk.id))
                        && let Some(block) = table.blocks.get(chunk.block as usize)
                        && let Some(slot) = table.slots.get(block.slot as usize)
                    {
                        let origin = (slot.origin, block.number, chunk.offset);
                        word.chunks.insert(*ordinal, Stands { id: chunk.id, origin });
                    }
                }
                (pack, word)
            },
        )?;
        Ok(words.into_iter().collect())
    }
}

/// The chunks that stand at several places, with all of these.
fn members(places: &Places, infos: &BTreeMap<u32, &PackInfo>) -> Result<Vec<(Key, Place)>> {
    let (keys, index) = (places.keys(), places.anywhere().index());
    let mut members = places.with_passed(|passed| {
        infos.keys().map(|pack| placed(keys, passed, *pack)).collect::<Result<Vec<_>>>().map(|all| all.concat())
    })?;
    // And where the index has them, which is not among those.
    let mut repeated: Vec<(Key, PackKind)> = members.iter().map(|(key, at)| (*key, keys.kind(at.pack))).collect();
    repeated.sort_unstable_by_key(|(key, _)| *key);
    repeated.dedup();
    for (key, kind) in repeated {
        let mut id = ChunkId([0; 32]);
        id.0[..KEY_BYTES].copy_from_slice(&key);
        if let Found::At(at) = find::ask(keys, index, kind, &id)? {
            members.push((key, at));
        }
    }
    members.sort_unstable();
    members.dedup();
    Ok(members)
}

/// The keys of those chunks of a pack that are in a set, with their places.
fn placed(keys: &Keys, set: &Bits, pack: u32) -> Result<Vec<(Key, Place)>> {
    let words = set.of(pack);
    if words.iter().all(|word| *word == 0) {
        return Ok(Vec::new());
    }
    let mut all = Vec::new();
    keys.window(pack, 0, keys.chunks(pack) as usize, &mut all)?;
    let is_in = |ordinal: u32| words[ordinal as usize / 64] >> (ordinal % 64) & 1 == 1;
    let of_pack = (0..).zip(all.as_chunks::<KEY_BYTES>().0);
    Ok(of_pack.filter(|(at, _)| is_in(*at)).map(|(ordinal, key)| (*key, Place { pack, ordinal })).collect())
}
