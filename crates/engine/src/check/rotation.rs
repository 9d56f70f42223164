//! Which packs a run reads: all of them, a share of their bytes, or one of so many parts.
//!
//! For a share, the local cache remembers for each pack the number of the run that last read it and found it whole.
//! Those that were read longest ago come first, and none goes unread for more runs than such shares make up the whole.
//! No clock is asked. A run that was stopped is gone on with by the next one that is asked for the same.

use drumlin_format::PackId;
use drumlin_repo::{Cache, Repository};
use std::collections::HashMap;
use std::str::FromStr;

/// The share that is everything.
const WHOLE_PPM: u32 = 1_000_000;

/// How much of the packs' bytes to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    All,
    /// The share whose last reading is longest ago, in millionths; needs a cache.
    Share(u32),
    /// The `n`th, from 1 on, of `of` parts, into which packs fall by their ids.
    Nth {
        /// Which.
        n: u32,
        /// Of how many.
        of: u32,
    },
}

impl FromStr for Part {
    type Err = String;

    /// `10%`, `2.5%` or `3/10`.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let wrong = || format!("'{text}' is neither a share such as 10% nor a part such as 3/10");
        if let Some(share) = text.strip_suffix('%') {
            let (whole, places) = share.split_once('.').unwrap_or((share, ""));
            let digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
            if whole.is_empty() || places.len() > 4 || !digits(whole) || !digits(places) {
                return Err(wrong());
            }
            let ppm: u32 = format!("{whole}{places:0<4}").parse().map_err(|_| wrong())?;
            return match ppm {
                0 => Err("0% reads nothing: leave the option out".into()),
                1..WHOLE_PPM => Ok(Part::Share(ppm)),
                WHOLE_PPM => Ok(Part::All),
                _ => Err("there is no more than 100%".into()),
            };
        }
        let (n, of) = text.split_once('/').ok_or_else(wrong)?;
        let (n, of) = (n.parse().map_err(|_| wrong())?, of.parse().map_err(|_| wrong())?);
        if n == 0 || n > of {
            return Err(format!("there is no part {n} of {of}: the first is 1/{of}"));
        }
        Ok(if of == 1 { Part::All } else { Part::Nth { n, of } })
    }
}

impl Part {
    fn encode(self) -> [u8; 9] {
        let (tag, a, b) = match self {
            Part::All => (1, 0, 0),
            Part::Share(ppm) => (2, ppm, 0),
            Part::Nth { n, of } => (3, n, of),
        };
        let mut out = [tag; 9];
        out[1..5].copy_from_slice(&a.to_le_bytes());
        out[5..].copy_from_slice(&b.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8; 9]) -> Option<Self> {
        let [tag, a0, a1, a2, a3, b0, b1, b2, b3] = *bytes;
        let (a, b) = (u32::from_le_bytes([a0, a1, a2, a3]), u32::from_le_bytes([b0, b1, b2, b3]));
        match tag {
            1 => Some(Part::All),
            2 => Some(Part::Share(a)),
            3 => Some(Part::Nth { n: a, of: b }),
            _ => None,
        }
    }
}

/// A pack as far as its turn is concerned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub id: PackId,
    pub bytes: u64,
}

/// What is remembered from run to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rotation {
    /// The number of the run at hand.
    run: u32,
    /// What a run that was stopped was to read.
    unfinished: Option<Part>,
    /// The run that read each pack last; for one that was never read, the one before it was first seen.
    packs: HashMap<PackId, u32>,
}

/// What a run is to read.
pub(super) struct Choice {
    /// These, by their place among the candidates, the one that waits longest first.
    pub packs: Vec<usize>,
    /// Bytes that a stopped run has read already, and packs.
    pub before: (u64, u64),
}

const VERSION: u8 = 1;
const PACK_BYTES: usize = 16 + 4;

impl Rotation {
    /// What this client remembers.
    pub fn load(cache: &Cache, name: &str) -> Self {
        cache.recall(name).and_then(|bytes| Rotation::decode(&bytes)).unwrap_or_default()
    }

    /// Remember it, if that can be. Without a cache nothing is.
    pub fn save(&self, repository: &Repository, cache: &Cache, name: &str) {
        if let Err(e) = cache.remember(name, &self.encode()) {
            repository.note_unkept(&e);
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.run.to_le_bytes());
        out.extend_from_slice(&self.unfinished.map_or([0; 9], Part::encode));
        for (id, run) in &self.packs {
            out.extend_from_slice(&id.0);
            out.extend_from_slice(&run.to_le_bytes());
        }
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (&[version, a, b, c, d], rest) = bytes.split_first_chunk::<5>()?;
        let (part, packs) = rest.split_first_chunk::<9>()?;
        let (packs, left) = packs.as_chunks::<PACK_BYTES>();
        if version != VERSION || !left.is_empty() {
            return None;
        }
        let pack = |bytes: &[u8; PACK_BYTES]| {
            let (id, run) = bytes.split_first_chunk::<16>()?;
            Some((PackId(*id), u32::from_le_bytes(run.try_into().ok()?)))
        };
        Some(Rotation {
            run: u32::from_le_bytes([a, b, c, d]),
            unfinished: Part::decode(part),
            packs: packs.iter().filter_map(pack).collect(),
        })
    }

    /// Begin a run that reads this part of the packs that there are, or go on with it.
    pub fn begin(&mut self, part: Part, candidates: &[Candidate]) -> Choice {
        if self.unfinished != Some(part) {
            self.run = self.run.saturating_add(1);
            self.unfinished = Some(part);
        }
        let (run, old) = (self.run, std::mem::take(&mut self.packs));
        self.packs = candidates.iter().map(|c| (c.id, old.get(&c.id).copied().unwrap_or(run - 1))).collect();
        let read_by = |c: &Candidate| self.packs.get(&c.id).copied().unwrap_or(0);
        let mut before = (0, 0);
        for c in candidates.iter().filter(|c| read_by(c) == run && part.may_have(c)) {
            before = (before.0 + c.bytes, before.1 + 1);
        }
        let mut waiting: Vec<usize> = (0..candidates.len()).filter(|n| read_by(&candidates[*n]) != run).collect();
        waiting.sort_by_key(|n| (read_by(&candidates[*n]), candidates[*n].id));
        match part {
            Part::All => {}
            Part::Nth { .. } => waiting.retain(|n| part.may_have(&candidates[*n])),
            Part::Share(ppm) => {
                let total: u64 = candidates.iter().map(|c| c.bytes).sum();
                let wanted = (u128::from(total) * u128::from(ppm)).div_ceil(u128::from(WHOLE_PPM)) as u64;
                let runs = WHOLE_PPM.div_ceil(ppm);
                let mut sum = before.0;
                waiting.retain(|n| {
                    let c = &candidates[*n];
                    let due = run - read_by(c) >= runs;
                    let takes = due || sum < wanted;
                    sum += if takes { c.bytes } else { 0 };
                    takes
                });
            }
        }
        Choice { packs: waiting, before }
    }

    /// A pack was read and is whole.
    pub fn read(&mut self, id: PackId) {
        self.packs.insert(id, self.run);
    }

    /// The run has read all that it was to read.
    pub fn finish(&mut self) {
        self.unfinished = None;
    }
}

impl Part {
    /// Whether a pack can belong to it.
    fn may_have(self, candidate: &Candidate) -> bool {
        match self {
            Part::All | Part::Share(_) => true,
            Part::Nth { n, of } => {
                // Ids are random: any of their bytes share them out evenly.
                let [.., a, b, c, d, e, f, g, h] = candidate.id.0;
                u64::from_le_bytes([a, b, c, d, e, f, g, h]) % u64::from(of) == u64::from(n - 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn packs(range: std::ops::Range<u64>) -> Vec<Candidate> {
        let id = |n: u64| PackId(drumlin_seal::checksum(&n.to_le_bytes()));
        range.map(|n| Candidate { id: id(n), bytes: 1000 + n * 37 % 500 }).collect()
    }

    /// Read as a run would, up to so many packs. Gives what was read.
    fn run(rotation: &mut Rotation, part: Part, all: &[Candidate], most: usize) -> Vec<PackId> {
        let choice = rotation.begin(part, all);
        let read: Vec<PackId> = choice.packs.iter().take(most).map(|n| all[*n].id).collect();
        read.iter().for_each(|id| rotation.read(*id));
        if read.len() == choice.packs.len() {
            rotation.finish();
        }
        *rotation = Rotation::decode(&rotation.encode()).unwrap();
        read
    }

    #[test]
    fn parts_are_read_as_they_are_written() {
        for (text, part) in [
            ("100%", Part::All),
            ("10%", Part::Share(100_000)),
            ("2.5%", Part::Share(25_000)),
            ("0.0001%", Part::Share(1)),
            ("3/10", Part::Nth { n: 3, of: 10 }),
            ("1/1", Part::All),
        ] {
            assert_eq!(text.parse(), Ok(part), "{text}");
            assert_eq!(Part::decode(&part.encode()), Some(part));
        }
        for wrong in ["", "%", "10", "0%", "101%", "-1%", "1.00001%", "x/2", "0/2", "3/2", "1/", ".5%", "4294967295%"] {
            assert!(wrong.parse::<Part>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn ten_runs_of_a_tenth_read_everything_and_no_more_than_they_must() {
        let all = packs(0..137);
        let total: u64 = all.iter().map(|c| c.bytes).sum();
        let mut rotation = Rotation::default();
        for _ in 0..3 {
            let mut met = BTreeSet::new();
            for _ in 0..10 {
                let read = run(&mut rotation, Part::Share(100_000), &all, usize::MAX);
                let bytes: u64 = all.iter().filter(|c| read.contains(&c.id)).map(|c| c.bytes).sum();
                assert!(bytes >= total / 10 && bytes < total / 10 + 2000, "{bytes} of {total}");
                met.extend(read);
            }
            assert_eq!(met.len(), 137);
        }
    }

    #[test]
    fn however_the_repository_grows_nothing_waits_for_more_than_ten_runs() {
        let mut rotation = Rotation::default();
        let mut last: HashMap<PackId, u64> = HashMap::new();
        for n in 0..60 {
            // A third is new at first, and some go.
            let all = packs(n * 2..60 + n * 20);
            for c in &all {
                last.entry(c.id).or_insert(n);
            }
            for id in run(&mut rotation, Part::Share(100_000), &all, usize::MAX) {
                last.insert(id, n + 1);
            }
            let waits = all.iter().map(|c| n + 1 - last[&c.id]).max().unwrap();
            assert!(waits < 10, "run {n}: {waits}");
        }
    }

    #[test]
    fn a_stopped_run_is_gone_on_with_and_forgotten_once_something_else_is_asked_for() {
        let all = packs(0..100);
        for part in [Part::All, Part::Share(500_000), Part::Nth { n: 2, of: 3 }] {
            let mut rotation = Rotation::default();
            let whole = run(&mut rotation.clone(), part, &all, usize::MAX);
            let first = run(&mut rotation, part, &all, 10);
            let choice = rotation.clone().begin(part, &all);
            assert_eq!(choice.before.1, 10);
            let second = run(&mut rotation, part, &all, usize::MAX);
            assert_eq!([first, second].concat(), whole, "{part:?}");
            assert_eq!(rotation.clone().begin(part, &all).before, (0, 0), "it was finished");
        }
        let mut rotation = Rotation::default();
        run(&mut rotation, Part::All, &all, 10);
        run(&mut rotation, Part::Nth { n: 1, of: 2 }, &all, usize::MAX);
        assert_eq!(run(&mut rotation, Part::All, &all, usize::MAX).len(), 100);
    }

    #[test]
    fn parts_by_number_share_out_all_packs() {
        let all = packs(0..200);
        let mut rotation = Rotation::default();
        let mut read: Vec<_> =
            (1..=7).flat_map(|n| run(&mut rotation, Part::Nth { n, of: 7 }, &all, usize::MAX)).collect();
        assert_eq!(read.len(), 200);
        read.sort();
        read.dedup();
        assert_eq!(read.len(), 200);
    }

    #[test]
    fn what_is_damaged_in_the_cache_is_no_memory() {
        let mut rotation = Rotation::default();
        run(&mut rotation, Part::All, &packs(0..3), 2);
        let bytes = rotation.encode();
        assert_eq!(Rotation::decode(&bytes), Some(rotation));
        // Fewer packs are a memory of fewer; everything else is none.
        for len in (0..bytes.len()).filter(|len| *len < 14 || (len - 14) % PACK_BYTES != 0) {
            assert_eq!(Rotation::decode(&bytes[..len]), None, "{len} bytes");
        }
    }
}
