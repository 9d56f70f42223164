//! Making a band: from packs, from bands that it takes the place of, or from both.
//!
//! What a band's recovery data lacks beside that of the bands which it is made from is added: each pack that comes,
//! leaves or changes its seat is read once, and the packs that stay where they are aren't read at all; their sums are
//! taken over. So whatever could be healed before can be healed after, even if a pack that stays was damaged meanwhile.
//! Where an old band's own data is damaged, all packs of the new one are read.
//!
//! After a crash there are objects without the one of number 0: no band, and no harm.

use super::bands::{Records, fill};
use super::code::Adder;
use super::{Band, Bands, Through};
use crate::pack::added_to;
use crate::{Error, Repository, Result, names, random_id};
use drumlin_format::band::{self, Head, Member, SLICE_BYTES, Sums};
use drumlin_format::{BandId, PackId};
use drumlin_store::{Put, Store as _, Upload};
use std::collections::{BTreeMap, HashMap, HashSet};

/// For what is added up at once.
const MEMORY_BYTES: usize = 16 << 20;
/// The most slices of a pack that are read at once.
const SPAN_SLICES: usize = 16;

/// A band to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// The packs by their seats.
    pub seats: Vec<Option<Member>>,
    /// How many of them may be lost.
    pub rows: usize,
    /// Bands whose place it takes, wholly or in part, and which are made use of: all of so many rows.
    pub from: Vec<BandId>,
}

/// What making a band reads and writes, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Of packs and of other recovery data.
    pub read: u64,
    /// Of recovery data.
    pub written: u64,
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, other: Cost) {
        self.read += other.read;
        self.written += other.written;
    }
}

/// A band that was made.
#[derive(Clone, Debug)]
pub struct Made {
    /// The band.
    pub band: Band,
    /// What that took.
    pub cost: Cost,
}

impl Recipe {
    fn len(&self) -> u64 {
        self.seats.iter().flatten().map(|m| m.len).max().unwrap_or_default().next_multiple_of(4096)
    }

    /// What has to be added to the recovery data of the old bands: packs and their seats.
    fn terms(&self, bands: &Bands) -> Vec<(usize, Member)> {
        // What is added twice is not added at all.
        let mut odd: BTreeMap<(usize, PackId), (Member, bool)> = BTreeMap::new();
        let old = self.from.iter().filter_map(|id| bands.get(*id)).map(|band| &band.head.seats);
        for seats in old.chain([&self.seats]) {
            for (seat, member) in seats.iter().enumerate().filter_map(|(seat, m)| Some((seat, (*m)?))) {
                odd.entry((seat, member.pack)).and_modify(|(_, is)| *is = !*is).or_insert((member, true));
            }
        }
        odd.into_iter().filter(|(_, (_, is))| *is).map(|((seat, _), (member, _))| (seat, member)).collect()
    }

    /// What it costs.
    pub fn cost(&self, bands: &Bands) -> Cost {
        let packs: HashMap<PackId, u64> = self.terms(bands).into_iter().map(|(_, m)| (m.pack, m.len)).collect();
        let rows = self.from.iter().filter_map(|id| bands.get(*id)).map(|band| band.head.row_len() * self.rows as u64);
        let read = packs.values().sum::<u64>() + rows.sum::<u64>();
        Cost { read, written: self.len() * self.rows as u64 }
    }

    /// This band, made in the way that reads least: from what the old bands have, or from its packs alone.
    #[must_use]
    pub fn cheapest(self, bands: &Bands) -> Self {
        let anew = Recipe { from: Vec::new(), ..self.clone() };
        if anew.cost(bands).read <= self.cost(bands).read { anew } else { self }
    }
}

/// Make a band, durably. `stop` is asked now and then; `each` is told of bytes that were read.
///
/// # Errors
/// One of its packs can't be read, or is not what another band says ([`Error::is_of_one_object`]). `None`: it was
/// stopped.
pub fn make(
    repository: &Repository,
    bands: &Bands,
    through: &Through,
    recipe: &Recipe,
    stop: &dyn Fn() -> bool,
    each: &dyn Fn(u64),
) -> Result<Option<Made>> {
    let mut id = [0; 15];
    id.copy_from_slice(&random_id()?[..15]);
    let malformed = |source| Error::Damaged { object: names::PARITY.into(), source };
    let head =
        Head::new(BandId(id), repository.config().suite, recipe.seats.clone(), recipe.rows).map_err(malformed)?;
    let store = repository.store();
    let mut uploads = Vec::new();
    for number in 1..=recipe.rows as u8 {
        let name = names::recovery(head.band.object(number));
        let mut upload = store.upload(&name, head.object_len(number))?;
        upload.write(&head.beginning(number))?;
        uploads.push(upload);
    }
    let mut maker = Maker::new(repository, bands, through, recipe, head)?;
    let mut records = Vec::new();
    let mut first = 0;
    while first < maker.head.slices() {
        if stop() {
            return Ok(None);
        }
        let read = maker.cost.read;
        let slices = maker.span.min(maker.head.slices() - first);
        maker.add(first, slices, &mut uploads, &mut records)?;
        each(maker.cost.read - read);
        first += slices;
    }
    let Maker { head, mut cost, .. } = maker;
    for (number, mut upload) in (1u8..).zip(uploads) {
        upload.write(&[&records[..], &head.encode(number)].concat())?;
        upload.finish()?;
    }
    store.sync()?;
    let first = [&head.beginning(0)[..], &records, &head.encode(0)].concat();
    store.put(&names::recovery(head.band.object(0)), &first, Put::Create)?;
    let objects: Vec<_> = (0..=recipe.rows as u8).map(|number| Some(head.object_len(number))).collect();
    cost.written = objects.iter().flatten().sum();
    Ok(Some(Made { band: Band { head, objects }, cost }))
}

/// A band that is read from, and its sums.
struct Old<'a> {
    band: &'a Band,
    records: Records,
}

struct Maker<'a> {
    repository: &'a Repository,
    through: &'a Through,
    head: Head,
    from: Vec<Old<'a>>,
    terms: Vec<(usize, Member)>,
    all: Vec<(usize, Member)>,
    span: usize,
    cost: Cost,
}

/// What came of adding up some slices.
struct Added {
    adder: Adder,
    /// By slice and pack, of those that were read.
    sums: Vec<HashMap<PackId, u32>>,
}

impl<'a> Maker<'a> {
    fn new(
        repository: &'a Repository,
        bands: &'a Bands,
        through: &'a Through,
        recipe: &Recipe,
        head: Head,
    ) -> Result<Self> {
        let mut from = Vec::new();
        for id in &recipe.from {
            let band = bands.get(*id).filter(|band| band.head.rows == recipe.rows);
            let band = band.ok_or_else(|| Error::Misuse("a band can't be made from one of other rows".into()))?;
            from.push(Old { band, records: band.records(repository)? });
        }
        let (terms, all) = (recipe.terms(bands), recipe.seats.iter().enumerate());
        let all = all.filter_map(|(seat, m)| Some((seat, (*m)?))).collect();
        let held = (2 * recipe.rows.next_power_of_two() + 1) * SLICE_BYTES;
        let span = (MEMORY_BYTES / held).clamp(1, SPAN_SLICES);
        Ok(Maker { repository, through, head, from, terms, all, span, cost: Cost::default() })
    }

    /// Make some slices of all rows.
    fn add(
        &mut self,
        first: usize,
        slices: usize,
        uploads: &mut [Box<dyn Upload>],
        records: &mut Vec<u8>,
    ) -> Result<()> {
        let len: usize = (first..first + slices).map(|slice| self.head.slice_len(slice)).sum();
        let mut rows: Vec<Vec<u8>> = Vec::new();
        let mut sums = None;
        if !self.from.is_empty()
            && let Some(old) = self.old_rows(first, slices, len)?
        {
            let mut added = self.add_up(&self.terms.clone(), first, slices, len)?;
            rows = added.adder.finish().map(|row| row.to_vec()).collect();
            rows.iter_mut().zip(&old).for_each(|(row, old)| added_to(row, old));
            sums = self.seat_sums(first, &added.sums);
        }
        let sums = match sums {
            Some(sums) => sums,
            None => {
                let mut added = self.add_up(&self.all.clone(), first, slices, len)?;
                rows = added.adder.finish().map(|row| row.to_vec()).collect();
                let sums = self.seat_sums(first, &added.sums);
                sums.ok_or_else(|| Error::Misuse("all packs of a band were read, and their sums aren't known".into()))?
            }
        };
        for (number, seats) in sums.into_iter().enumerate() {
            let of = |row: &Vec<u8>| band::sum(&row[number * SLICE_BYTES..][..self.head.slice_len(first + number)]);
            let sums = Sums { seats, rows: rows.iter().map(of).collect() };
            records.extend_from_slice(&self.head.encode_sums(first + number, &sums));
        }
        for (upload, row) in uploads.iter_mut().zip(&rows) {
            upload.write(&row[..len])?;
        }
        Ok(())
    }

    /// The recovery data of the old bands, added up; `None` if some of it is damaged.
    fn old_rows(&mut self, first: usize, slices: usize, len: usize) -> Result<Option<Vec<Vec<u8>>>> {
        let at = (first * SLICE_BYTES) as u64;
        let mut sum = vec![vec![0; len]; self.head.rows];
        for old in &self.from {
            let head = &old.band.head;
            // Beyond the longest pack of the old band there are zeros, and beyond that of the new one what leaves it.
            let there = head.row_len().saturating_sub(at).min((slices * SLICE_BYTES) as u64) as usize;
            for (row, sum) in sum.iter_mut().enumerate() {
                let mut bytes = vec![0; there];
                self.cost.read += there as u64;
                if !fill(self.repository, head.band.object(row as u8 + 1), head.data_offset() + at, &mut bytes)? {
                    return Ok(None);
                }
                for (number, slice) in bytes.chunks(SLICE_BYTES).enumerate() {
                    let sums = old.records.of(head, first + number);
                    if sums.is_none_or(|sums| sums.rows[row] != band::sum(slice)) {
                        return Ok(None);
                    }
                }
                bytes.truncate(len);
                added_to(sum, &bytes);
            }
        }
        Ok(Some(sum))
    }

    fn add_up(&mut self, terms: &[(usize, Member)], first: usize, slices: usize, len: usize) -> Result<Added> {
        let at = (first * SLICE_BYTES) as u64;
        let (mut adder, mut sums) = (Adder::new(self.head.rows, len), vec![HashMap::new(); slices]);
        let mut bytes = Vec::new();
        for (seat, member) in terms {
            let there = member.len.saturating_sub(at).min((slices * SLICE_BYTES) as u64) as usize;
            if there == 0 {
                continue;
            }
            bytes.clear();
            bytes.resize(there, 0);
            self.through.read_surely(&names::pack(member.kind, member.pack), at, &mut bytes)?;
            self.cost.read += there as u64;
            for (slice, sums) in bytes.chunks(SLICE_BYTES).zip(&mut sums) {
                sums.insert(member.pack, band::sum(slice));
            }
            // What is longer than the new band leaves it, and its last bytes with it.
            adder.add(*seat, &bytes[..there.min(len)]);
        }
        Ok(Added { adder, sums })
    }

    /// The sums of the packs by slice and seat: those that were just made, and those that an old band has. `None`: one
    /// isn't known.
    fn seat_sums(&self, first: usize, made: &[HashMap<PackId, u32>]) -> Option<Vec<Vec<u32>>> {
        let mut all = Vec::new();
        let wanted: HashSet<PackId> = self.head.members().map(|m| m.pack).collect();
        for (number, made) in made.iter().enumerate() {
            let (slice, mut known) = (first + number, made.clone());
            for old in &self.from {
                let Some(sums) = old.records.of(&old.band.head, slice) else { continue };
                for (seat, sum) in old.band.head.seats.iter().zip(sums.seats) {
                    if let Some(member) = seat.filter(|m| wanted.contains(&m.pack)) {
                        known.entry(member.pack).or_insert(sum);
                    }
                }
            }
            let of = |seat: &Option<Member>| match seat {
                Some(member) if slice < member.slices() => known.get(&member.pack).copied(),
                _ => Some(0),
            };
            all.push(self.head.seats.iter().map(of).collect::<Option<Vec<u32>>>()?);
        }
        Some(all)
    }
}
