//! Chunks that can't be read where the index has them, and where else they are.

use super::context::Context;
use super::finding::Findings;
use super::packs::{Packs, object_kind};
use crate::Result;
use crate::lock::lock;
use crate::reach::keys::{KEY_BYTES, Key, Place};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Other places of a bad pack's chunks, by ordinal.
type Others = HashMap<u32, Vec<Place>>;

/// The bad packs, and what is bad in each. Shared by threads.
#[derive(Default)]
pub(super) struct Bad {
    any: AtomicBool,
    packs: Mutex<BTreeMap<u32, BadPack>>,
    others: Mutex<HashMap<u32, Arc<Others>>>,
}

#[derive(Default)]
struct BadPack {
    /// The number of its finding; `None`: nobody needs it, though it is named.
    finding: Option<u32>,
    /// All of its chunks.
    all: bool,
    /// Those of its chunks.
    bits: Vec<u64>,
}

impl BadPack {
    fn has(&self, ordinal: u32) -> bool {
        let word = self.bits.get(ordinal as usize / 64);
        self.all || word.is_some_and(|word| word >> (ordinal % 64) & 1 == 1)
    }
}

/// Chunks of bad packs are looked for in the others so many at a time.
const GROUP_CHUNKS: u64 = 256 << 10;
/// Keys read at a time.
const PIECE_KEYS: usize = 32 << 10;

impl Bad {
    /// Nothing of a pack can be read.
    pub fn all_of(&self, pack: u32, finding: Option<u32>) {
        let mut packs = lock(&self.packs);
        let bad = packs.entry(pack).or_default();
        (bad.all, bad.finding) = (true, finding);
        self.any.store(true, Ordering::Release);
    }

    /// One chunk of a pack can't be read.
    pub fn one_of(&self, place: Place, finding: u32) {
        let mut packs = lock(&self.packs);
        let bad = packs.entry(place.pack).or_default();
        bad.finding = Some(finding);
        let word = place.ordinal as usize / 64;
        bad.bits.resize(bad.bits.len().max(word + 1), 0);
        bad.bits[word] |= 1 << (place.ordinal % 64);
        self.any.store(true, Ordering::Release);
    }

    /// Tell that a chunk of a pack, or all of them, can't be read.
    pub fn tell(&self, findings: &Findings, packs: &Packs, place: Place, cause: &drumlin_repo::Error) {
        let pack = packs.pack(place.pack);
        let finding = findings.add(object_kind(pack.info.kind), &pack.name(), cause.cause());
        // Without its table nothing of a pack can be read. A key in it is that of some of its blocks.
        match cause {
            drumlin_repo::Error::Damaged { source: drumlin_format::Error::Seal { object: "pack key", .. }, .. } => {
                self.one_of(place, finding);
            }
            drumlin_repo::Error::Damaged { .. } => self.all_of(place.pack, Some(finding)),
            other if other.is_missing() => self.all_of(place.pack, Some(finding)),
            _ => self.one_of(place, finding),
        }
    }

    /// Which of a pack's chunks can't be read.
    pub fn of(&self, pack: u32, chunks: u32) -> Vec<u32> {
        let packs = lock(&self.packs);
        let Some(bad) = packs.get(&pack) else { return Vec::new() };
        (0..chunks).filter(|ordinal| bad.has(*ordinal)).collect()
    }

    /// All that is bad in a pack can be healed.
    pub fn forgive(&self, pack: u32) {
        lock(&self.packs).remove(&pack);
    }

    /// Whether anything is bad.
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Whether a chunk can't be read there.
    pub fn has(&self, place: Place) -> bool {
        self.any() && lock(&self.packs).get(&place.pack).is_some_and(|bad| bad.has(place.ordinal))
    }

    /// A place where the chunk of a bad place can be read.
    pub fn instead(&self, packs: &Packs, place: Place) -> Result<Option<Place>> {
        let others = self.others(packs, place.pack)?;
        let mut places = others.get(&place.ordinal).into_iter().flatten();
        Ok(places.find(|other| !self.has(**other)).copied())
    }

    /// The findings about all places where a chunk is that can be read in none of them.
    pub fn findings_of(&self, packs: &Packs, place: Place) -> Result<Vec<u32>> {
        let others = self.others(packs, place.pack)?;
        let places = others.get(&place.ordinal).into_iter().flatten().chain([&place]);
        let bad = lock(&self.packs);
        let mut findings: Vec<u32> = places.filter_map(|p| bad.get(&p.pack)?.finding).collect();
        findings.sort_unstable();
        findings.dedup();
        Ok(findings)
    }

    fn others(&self, packs: &Packs, pack: u32) -> Result<Arc<Others>> {
        let mut known = lock(&self.others);
        if let Some(others) = known.get(&pack) {
            return Ok(others.clone());
        }
        let mut found = look_for(packs, &[pack])?;
        Ok(known.entry(pack).or_insert(Arc::new(found.remove(&pack).unwrap_or_default())).clone())
    }

    /// Look where else the chunks of all bad packs are, and count for each finding how many of them can be read nowhere
    /// there and how many elsewhere.
    pub fn count(&self, context: &Context, packs: &Packs) -> Result<()> {
        let numbers: Vec<u32> = lock(&self.packs).keys().copied().collect();
        let mut wanted: Vec<u32> = numbers.iter().copied().filter(|p| !lock(&self.others).contains_key(p)).collect();
        while !wanted.is_empty() {
            context.go_on()?;
            let (mut chunks, mut end) = (0, 0);
            while end < wanted.len() && chunks < GROUP_CHUNKS {
                chunks += u64::from(packs.pack(wanted[end]).chunks);
                end += 1;
            }
            let group: Vec<u32> = wanted.drain(..end).collect();
            let mut found = look_for(packs, &group)?;
            let mut known = lock(&self.others);
            group.iter().for_each(|p| drop(known.insert(*p, Arc::new(found.remove(p).unwrap_or_default()))));
        }
        for number in numbers {
            let bad: Vec<u32> = {
                let all = lock(&self.packs);
                let Some(pack) = all.get(&number) else { continue };
                (0..packs.pack(number).chunks).filter(|ordinal| pack.has(*ordinal)).collect()
            };
            let mut elsewhere = 0;
            for ordinal in &bad {
                elsewhere += u64::from(self.instead(packs, Place { pack: number, ordinal: *ordinal })?.is_some());
            }
            if let Some(finding) = lock(&self.packs).get(&number).and_then(|bad| bad.finding) {
                context.findings.chunks(finding, bad.len() as u64, elsewhere);
            }
        }
        Ok(())
    }
}

/// Where else the chunks of some packs are: of those that are elsewhere at all.
fn look_for(packs: &Packs, group: &[u32]) -> Result<HashMap<u32, Others>> {
    let mut wanted: Vec<(Key, Place)> = Vec::new();
    let mut keys = Vec::new();
    each_key(packs, group.iter().copied(), &mut keys, |key, place| wanted.push((*key, place)))?;
    wanted.sort_unstable();
    let mut found: HashMap<u32, Others> = HashMap::new();
    each_key(packs, 0..packs.packs.len() as u32, &mut keys, |key, place| {
        let first = wanted.partition_point(|(k, _)| k < key);
        for (_, bad) in wanted[first..].iter().take_while(|(k, _)| k == key).filter(|(_, bad)| *bad != place) {
            found.entry(bad.pack).or_default().entry(bad.ordinal).or_default().push(place);
        }
    })?;
    Ok(found)
}

fn each_key(
    packs: &Packs,
    of: impl Iterator<Item = u32>,
    keys: &mut Vec<u8>,
    mut each: impl FnMut(&Key, Place),
) -> Result<()> {
    for pack in of {
        let mut ordinal = 0;
        while ordinal < packs.pack(pack).chunks {
            packs.keys.window(pack, ordinal, PIECE_KEYS, keys)?;
            for key in keys.as_chunks::<KEY_BYTES>().0 {
                each(key, Place { pack, ordinal });
                ordinal += 1;
            }
        }
    }
    Ok(())
}
