//! Duplicates: chunks that stand in several packs, or several times in one. One of them is enough, if it is what it is said to be; else none goes.
//!
//! Where chunks are the index says, by the word of whoever has put packs: of a stolen key that may only add, perhaps. A pack goes
//! because what is needed of it stands in another one, too. Before that counts the other one's own table must have the chunk, and
//!
//! - be signed by the key that has signed the first one's, which could as well have written rubbish at once; or by an owner's, or of trees by a
//!   keeper's, who read what they write anew; or
//! - the chunk is read there, and is what its name says.
//!
//! Where neither is so, both stay. A keeper's key reads no contents, and moves them as they are sealed: so what it has signed says nothing of them but
//! where it has them from. A block that it says is another pack's, by origin and number, is as good as that one.

use super::ground::Ground;
use super::places::Places;
use crate::monitor::Monitor;
use crate::reach::bits::Bits;
use crate::reach::find::{self, Found};
use crate::reach::keys::{KEY_BYTES, Key, Keys, Place, key};
use crate::reach::marks::Marks;
use crate::{Error, Result};
use drumlin_format::key::Role;
use drumlin_format::pack::PackKind;
use drumlin_format::{ChunkId, KeyId, PackId};
use drumlin_repo::{PackInfo, Repository};
use std::collections::{BTreeMap, HashMap};

/// A chunk that is needed.
struct Case {
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

/// Mark needed chunks in all packs that have them, unless the one in which they are marked proves to have them. How many stay twice for
/// that.
pub(super) fn keep_unproven(
    repository: &Repository,
    places: &Places,
    ground: &Ground,
    marks: &Marks,
    monitor: &dyn Monitor,
) -> Result<u64> {
    let numbers = ground.named.values().filter_map(|(info, _)| Some((places.keys().number(&info.id)?, info)));
    let infos: BTreeMap<u32, &PackInfo> = numbers.collect();
    let cases = cases(places, marks, &infos)?;
    let words = words(repository, places, &infos, &cases)?;
    let silent = Word::default();
    let word = |place: &Place| words.get(&place.pack).unwrap_or(&silent);
    let mut kept = 0;
    for case in &cases {
        if monitor.stop() {
            return Err(Error::Interrupted);
        }
        let counts = |at: &Place| {
            let has_it = word(at).chunks.contains_key(&at.ordinal);
            let is_enough = |there: &Place| {
                let (own, other) = (word(at), word(there));
                own.counts_beside(other, places.keys().kind(at.pack)) || own.has_moved(at, (other, there))
            };
            has_it && case.others.iter().all(is_enough)
        };
        if case.marked.iter().any(counts) {
            continue;
        }
        let mut proven = false;
        for at in &case.marked {
            let (Some(stands), Some(info)) = (word(at).chunks.get(&at.ordinal), infos.get(&at.pack)) else { continue };
            proven = proven || reads(repository, places, info, at.ordinal, &stands.id)?;
        }
        if !proven {
            for other in &case.others {
                marks.mark(&Found::At(*other));
            }
            kept += 1;
        }
    }
    Ok(kept)
}

/// The needed chunks that stand somewhere else, too.
fn cases(places: &Places, marks: &Marks, infos: &BTreeMap<u32, &PackInfo>) -> Result<Vec<Case>> {
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
    let mut cases = Vec::new();
    for same in members.chunk_by(|one, other| one.0 == other.0) {
        let (marked, others): (Vec<Place>, Vec<Place>) = same.iter().map(|(_, at)| *at).partition(|at| marks.has(*at));
        if !marked.is_empty() && !others.is_empty() {
            cases.push(Case { marked, others });
        }
    }
    // One pack after the other.
    cases.sort_unstable_by(|one, other| one.marked.cmp(&other.marked));
    Ok(cases)
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

/// What the packs of some cases say themselves.
fn words(
    repository: &Repository,
    places: &Places,
    infos: &BTreeMap<u32, &PackInfo>,
    cases: &[Case],
) -> Result<HashMap<u32, Word>> {
    let mut asked: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for case in cases {
        let all = case.others.iter().chain(&case.marked);
        all.for_each(|at| asked.entry(at.pack).or_default().push(at.ordinal));
    }
    let packs: Vec<(u32, PackInfo)> =
        asked.keys().filter_map(|pack| Some((*pack, (*infos.get(pack)?).clone()))).collect();
    let words = repository.ask_tables(
        &packs,
        |(pack, info)| (*pack, info),
        |pack, table, signer| {
            let mut word = Word { signer, ..Word::default() };
            let mut said = Vec::new();
            for ordinal in &asked[&pack] {
                if places.keys().window(pack, *ordinal, 1, &mut said).is_ok()
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

/// Whether a chunk can be read at a place, and is what its name says.
fn reads(repository: &Repository, places: &Places, info: &PackInfo, ordinal: u32, id: &ChunkId) -> Result<bool> {
    if !repository.opens(info.kind, info.generation) {
        return Ok(false);
    }
    match places.anywhere().chunk_in(info, ordinal, info.kind, id) {
        Ok(_) => Ok(true),
        Err(e) if e.is_of_one_object() || e.is_damage() || e.frozen().is_some() => Ok(false),
        Err(e) => Err(e.into()),
    }
}
