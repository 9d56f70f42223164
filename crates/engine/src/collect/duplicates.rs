//! Duplicates: chunks that stand in several packs, or several times in one. One of them is enough, if it is what it is
//! said to be; else none goes.
//!
//! Where chunks are the index says, by the word of whoever has put packs: of a stolen key that may only add, perhaps;
//! and what was written well may have rotted since. So before a chunk goes with its pack because it stands in another
//! one, too, that other one is read there, and must be what its name says. Only what goes is asked about: the choice of
//! packs comes first, and is made anew if something has to stay.
//!
//! Where it can't be read, contents by a keeper's key, the other pack's own table must have the chunk, and be signed by
//! the key that has signed the first one's, which could as well have written rubbish at once; or by an owner's, or of
//! trees by a keeper's, who read what they write anew. A keeper's key moves contents as they are sealed: what it has
//! signed says nothing of them but where it has them from, and a block that it says is another pack's, by origin and
//! number, is as good as that one. Bytes that a key can't open must be those that their parity was made of.
//!
//! What only parity makes sound is no reason for a sound copy to go. Nor is what lies in cold storage, where not even
//! tables can be read: copies of that stay until it is brought back.

use crate::collect::ground::Ground;
use crate::collect::places::Places;
use crate::monitor::{Monitor, Problem};
use crate::reach::bits::Bits;
use crate::reach::find::{self, Found};
use crate::reach::keys::{KEY_BYTES, Key, Keys, Place, key};
use crate::reach::marks::Marks;
use crate::{Error, Result};
use drumlin_format::key::Role;
use drumlin_format::pack::{PackKind, Table};
use drumlin_format::{ChunkId, KeyId, PackId};
use drumlin_repo::pack::Reader;
use drumlin_repo::{PackInfo, Repository};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// A chunk that is needed.
struct Case {
    /// What its places have to hold.
    key: Key,
    /// Where it is marked.
    marked: Vec<Place>,
    /// Where it stands as well, by the word of the index, in packs that are to go.
    others: Vec<Place>,
}

/// Where one of the marked places of a case is to be looked at.
struct Look {
    /// The number of the case.
    case: usize,
    at: Place,
    id: ChunkId,
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
    /// Its block's number.
    block: u32,
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

    /// Whether it says, as a keeper, that it has moved what stands at the one place from where it stands at the other,
    /// or both from one.
    fn has_moved(&self, at: &Place, (other, there): (&Word, &Place)) -> bool {
        let origin = |word: &Word, at: &Place| word.chunks.get(&at.ordinal).map(|stands| stands.origin);
        let is_keeper = matches!(self.signer, Some((_, Role::Keeper)));
        is_keeper && origin(self, at).is_some_and(|own| origin(other, there) == Some(own))
    }
}

/// The chunks that stand at several places, by the word of the index.
pub(crate) struct Duplicates<'a> {
    repository: &'a Repository,
    places: &'a Places,
    infos: BTreeMap<u32, &'a PackInfo>,
    /// Reads packs as they are.
    reader: Reader,
    /// All places of each, side by side.
    members: Vec<(Key, Place)>,
    /// Where chunks stand that were seen to be what they should be.
    sound: HashSet<Place>,
    /// Where they stand in blocks that were seen to be as they were sealed.
    sealed: HashSet<Place>,
    /// Where they should stand and aren't what they should be, or are by parity alone.
    unsound: HashSet<Place>,
    /// Those of them that parity doesn't make good.
    rotten: HashSet<Place>,
    /// Packs that this run has written itself, of chunks that it had looked at.
    own: HashSet<u32>,
}

impl<'a> Duplicates<'a> {
    /// Find them.
    pub fn find(repository: &'a Repository, places: &'a Places, ground: &'a Ground) -> Result<Self> {
        let numbers = ground.named.values().filter_map(|(info, _)| Some((places.keys().number(&info.id)?, info)));
        let infos: BTreeMap<u32, &PackInfo> = numbers.collect();
        let members = members(places, &infos)?;
        let (index, cache) = (places.anywhere().index().clone(), places.anywhere().cache().clone());
        let reader = Reader::new(repository.clone(), index, cache, 0).without_parity();
        let (sound, sealed, unsound, rotten, own) = Default::default();
        Ok(Duplicates { repository, places, infos, reader, members, sound, sealed, unsound, rotten, own })
    }

    /// These duplicates, but the packs `own`, which this run has written, need not be read again.
    pub fn but_for(self, own: &HashSet<PackId>) -> Self {
        let own = own.iter().filter_map(|pack| self.places.keys().number(pack)).collect();
        Duplicates { own, ..self }
    }

    /// Of needed chunks in packs that are to go and that are marked elsewhere: mark them there, too, unless a pack in
    /// which they are marked proves to have them. How many stay twice for that: if any do, packs are to be chosen anew.
    pub fn keep_unproven(&mut self, marks: &Marks, going: &HashSet<PackId>, monitor: &dyn Monitor) -> Result<u64> {
        let cases = self.cases(marks, going);
        let words = self.words(&cases)?;
        let mut proven = vec![false; cases.len()];
        for nth in 0..cases.iter().map(|case| case.marked.len()).max().unwrap_or(0) {
            self.look_at(&cases, nth, &words, &mut proven, monitor)?;
        }
        let mut kept = 0;
        for (case, _) in cases.iter().zip(proven).filter(|(_, proven)| !proven) {
            case.others.iter().for_each(|other| _ = marks.mark(&Found::At(*other)));
            kept += 1;
        }
        Ok(kept)
    }

    /// The packs that don't have what they should have.
    pub fn problems(&self) -> impl Iterator<Item = Problem> {
        let mut packs: BTreeMap<String, usize> = BTreeMap::new();
        for at in &self.rotten {
            let Some(info) = self.infos.get(&at.pack) else { continue };
            *packs.entry(info.name()).or_default() += 1;
        }
        packs.into_iter().map(|(name, chunks)| {
            let chunks = if chunks == 1 { "a chunk".into() } else { format!("{chunks} chunks") };
            let cause = format!(
                "{chunks} that it should hold are missing or wrong; copies in other packs stay, and 'drumlin repair --read-data' mends it"
            );
            Problem::damage(name, cause)
        })
    }

    /// The needed chunks of which something is to go.
    fn cases(&self, marks: &Marks, going: &HashSet<PackId>) -> Vec<Case> {
        let going: HashSet<u32> = going.iter().filter_map(|pack| self.places.keys().number(pack)).collect();
        let mut cases = Vec::new();
        for same in self.members.chunk_by(|one, other| one.0 == other.0) {
            let (marked, mut others): (Vec<Place>, Vec<Place>) =
                same.iter().map(|(_, at)| *at).partition(|at| marks.has(*at));
            others.retain(|at| going.contains(&at.pack));
            if !others.is_empty() && !marked.is_empty() && !marked.iter().any(|at| self.sound.contains(at)) {
                cases.push(Case { key: same[0].0, marked, others });
            }
        }
        cases
    }

    /// See for each case that isn't proven yet whether the chunk may go where it isn't marked, by the nth place at
    /// which it is.
    fn look_at(
        &mut self,
        cases: &[Case],
        nth: usize,
        words: &HashMap<u32, Word>,
        proven: &mut [bool],
        monitor: &dyn Monitor,
    ) -> Result<()> {
        // Each block once, one pack after the other.
        let mut blocks: BTreeMap<(u32, u32), Vec<Look>> = BTreeMap::new();
        for (number, case) in cases.iter().enumerate() {
            if proven[number] {
                continue;
            }
            let Some(at) = case.marked.get(nth).filter(|at| !self.unsound.contains(at)) else { continue };
            // Another chunk may stand where an index object that came later says that this one does.
            let stands = words.get(&at.pack).and_then(|word| word.chunks.get(&at.ordinal));
            let Some(stands) = stands.filter(|stands| key(&stands.id) == case.key) else { continue };
            let Some(info) = self.infos.get(&at.pack) else { continue };
            let opens = self.repository.opens(info.kind, info.generation);
            // Who can't open a block moves it whole, with what nobody had asked for when it was moved.
            if opens && self.own.contains(&at.pack) {
                self.sound.insert(*at);
                proven[number] = true;
            } else if self.sealed.contains(at) {
                proven[number] = self.is_enough(at, case, words);
            } else if opens || self.is_enough(at, case, words) {
                let look = Look { case: number, at: *at, id: stands.id };
                blocks.entry((at.pack, stands.block)).or_default().push(look);
            }
        }
        let blocks: Vec<_> = blocks.into_iter().collect();
        let seen = self.repository.ask_many(&blocks, |((pack, block), looks)| match monitor.stop() {
            true => Err(Error::Interrupted),
            false => Ok(self.sound(self.infos[pack], *block, looks)?),
        })?;
        for (((pack, block), looks), seen) in blocks.iter().zip(seen) {
            let Some(seen) = seen else { continue };
            let info = self.infos[pack];
            let opens = self.repository.opens(info.kind, info.generation);
            for (look, is_sound) in looks.iter().zip(seen) {
                proven[look.case] = is_sound;
                let kept = match (is_sound, opens) {
                    (true, true) => &mut self.sound,
                    (true, false) => &mut self.sealed,
                    (false, _) => &mut self.unsound,
                };
                kept.insert(look.at);
                if !is_sound && !self.is_healed(info, *block, look) {
                    self.rotten.insert(look.at);
                }
            }
        }
        Ok(())
    }

    /// Whether what stands here, of which this key sees that it is what was sealed, and not what is in it, may stand
    /// for what is to go.
    fn is_enough(&self, at: &Place, case: &Case, words: &HashMap<u32, Word>) -> bool {
        let silent = Word::default();
        let word = |place: &Place| words.get(&place.pack).unwrap_or(&silent);
        case.others.iter().all(|there| {
            let (own, other) = (word(at), word(there));
            own.counts_beside(other, self.places.keys().kind(at.pack)) || own.has_moved(at, (other, there))
        })
    }

    /// Which of some chunks of a block are what they should be, as far as this key sees; `None` if nobody can say.
    fn sound(&self, info: &PackInfo, block: u32, looks: &[Look]) -> drumlin_repo::Result<Option<Vec<bool>>> {
        let seen = self.reader.table(info).and_then(|table| {
            if !self.repository.opens(info.kind, info.generation) {
                let sound = self.reader.is_as_sealed(info, &table, block)?;
                return Ok(sound.map(|sound| vec![sound; looks.len()]));
            }
            let mut bytes = Vec::new();
            self.reader.block(info, &table, block, &mut Vec::new(), &mut bytes)?;
            let is_sound = |look: &Look| {
                let chunk = table.chunks.get(look.at.ordinal as usize).filter(|chunk| chunk.block == block);
                let chunk = chunk.and_then(|c| bytes.get(c.offset as usize..)?.get(..c.len as usize));
                chunk.map_or(Ok(false), |chunk| self.reader.check(info.kind, &look.id, chunk))
            };
            looks.iter().map(is_sound).collect::<drumlin_repo::Result<_>>().map(Some)
        });
        match seen {
            Err(e) if e.frozen().is_some() || e.is_refused() || e.is_missing() => Ok(None),
            Err(e) if e.is_of_one_object() || e.is_damage() => Ok(Some(vec![false; looks.len()])),
            other => other,
        }
    }

    /// Whether parity makes good what isn't as it should be. Then whoever runs this is told of the pack that was read
    /// through it.
    fn is_healed(&self, info: &PackInfo, block: u32, look: &Look) -> bool {
        let reader = self.places.anywhere();
        match self.repository.opens(info.kind, info.generation) {
            true => reader.chunk_in(info, look.at.ordinal, info.kind, &look.id).is_ok(),
            false => {
                let sealed = |table: Arc<Table>| reader.sealed_block(info, &table, block, &mut Vec::new(), None);
                reader.table(info).and_then(sealed).is_ok()
            }
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
                        word.chunks.insert(*ordinal, Stands { id: chunk.id, block: chunk.block, origin });
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
