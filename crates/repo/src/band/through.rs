//! A repository's storage seen through its bands: packs that are gone or damaged read as they were, as far as their
//! bands bear it.
//!
//! Each slice of a pack is compared with its sum. One that is damaged is made again: by the pack's own parity if that
//! does it, and otherwise from the others of the band, of which damaged ones are treated likewise. Nothing is believed:
//! what comes of it is what the storage might have said, and is opened and checked by whoever reads it. Nothing is
//! written here.
//!
//! Memory: some slices of each pack of one band, 16 MiB at the most, one band at a time; and as much of what was made.

use super::bands::{Records, fill};
use super::code::solve;
use super::{Band, Bands};
use crate::lock::lock;
use crate::pack::{Healed, Lru};
use crate::{Error, Repository, Result, names};
use drumlin_format::PackId;
use drumlin_format::band::{self, Member, SLICE_BYTES};
use drumlin_store::{self as store, Action, Cleared, Haste, Kind, Listed, Put, Store, Thaw, Upload};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

/// For what is read of a band at once, and for what is kept of what was made.
const MEMORY_BYTES: usize = 16 << 20;
/// The most slices of a pack that are read at once.
const SPAN_SLICES: usize = 16;
/// Damaged packs whose own parity is at hand.
const HEALED_MAX: usize = 4;

/// What was made of a span of a band: of each seat and slice that was damaged its bytes, or that they can't be had.
type Span = HashMap<(usize, usize), Option<Vec<u8>>>;

/// A store in which packs that are gone or damaged read as they were, as far as their bands bear it.
pub struct Through {
    repository: Repository,
    bands: Vec<Known>,
    /// By the pack's name: in which bands it is, and where.
    places: HashMap<String, Vec<(usize, usize)>>,
    /// What bands say of a pack may differ, if they lie: those that count.
    agreed: Mutex<HashMap<String, Arc<Agreed>>>,
    made: Mutex<Lru<(usize, usize), Span>>,
    healed: Mutex<Lru<PackId, Mutex<Option<Healed>>>>,
    /// One band at a time.
    one: Mutex<()>,
}

/// A pack's length, and the places in bands that say the same of it.
struct Agreed {
    len: u64,
    places: Vec<(usize, usize)>,
}

struct Known {
    band: Band,
    records: OnceLock<Records>,
}

impl Known {
    fn members(&self) -> impl Iterator<Item = (usize, Member)> + '_ {
        self.band.head.seats.iter().enumerate().filter_map(|(seat, member)| Some((seat, (*member)?)))
    }
}

fn name(member: &Member) -> String {
    names::pack(member.kind, member.pack)
}

impl Through {
    /// The storage of this repository, which is seen as it is, through these bands.
    pub fn new(repository: &Repository, bands: &Bands) -> Self {
        let bands: Vec<Known> =
            bands.all.iter().map(|band| Known { band: band.clone(), records: OnceLock::new() }).collect();
        let mut places: HashMap<String, Vec<(usize, usize)>> = HashMap::new();
        for (number, known) in bands.iter().enumerate() {
            for (seat, member) in known.members() {
                places.entry(name(&member)).or_default().push((number, seat));
            }
        }
        let (made, healed) = (Mutex::new(Lru::new(MEMORY_BYTES)), Mutex::new(Lru::new(HEALED_MAX)));
        let (repository, agreed) = (repository.clone(), Mutex::default());
        Through { repository, bands, places, agreed, made, healed, one: Mutex::new(()) }
    }

    /// Which of the bands that have this pack agree on its length: with the storage, or else with the first of them.
    /// `None`: it is in none.
    fn agreed(&self, name: &str) -> Result<Option<Arc<Agreed>>> {
        let Some(places) = self.places.get(name) else { return Ok(None) };
        if let Some(agreed) = lock(&self.agreed).get(name) {
            return Ok(Some(agreed.clone()));
        }
        let there = self.repository.store().len(name)?;
        let len_at = |(band, seat): &(usize, usize)| self.bands[*band].band.head.seats[*seat].map_or(0, |m| m.len);
        let len = match there.filter(|len| places.iter().any(|place| len_at(place) == *len)) {
            Some(len) => len,
            None => places.first().map_or(0, len_at),
        };
        let places = places.iter().filter(|place| len_at(place) == len).copied().collect();
        let agreed = Arc::new(Agreed { len, places });
        lock(&self.agreed).insert(name.to_owned(), agreed.clone());
        Ok(Some(agreed))
    }

    /// Fill `out` from `offset` of a pack. If it is in a band, with what its sums vouch for, and fails where that can't
    /// be had.
    pub fn read_surely(&self, name: &str, offset: u64, out: &mut [u8]) -> Result<()> {
        self.read(name, offset, out, true)
    }

    fn read(&self, name: &str, offset: u64, out: &mut [u8], surely: bool) -> Result<()> {
        let inner = self.repository.store();
        let end = offset.saturating_add(out.len() as u64);
        let agreed = self.agreed(name)?.filter(|agreed| !out.is_empty() && end <= agreed.len);
        let Some(agreed) = agreed else { return Ok(inner.read_at(name, offset, out)?) };
        let Agreed { len, places } = &*agreed;
        let slice_bytes = SLICE_BYTES as u64;
        let (first, last) = (offset / slice_bytes, end.div_ceil(slice_bytes));
        let start = first * slice_bytes;
        let mut bytes = vec![0; ((last * slice_bytes).min(*len) - start) as usize];
        let whole = given(inner.read_at(name, start, &mut bytes))?;
        for (slice, raw) in (first as usize..).zip(bytes.chunks_mut(SLICE_BYTES)) {
            let there = whole || given(inner.read_at(name, slice as u64 * slice_bytes, raw))?;
            if there && self.vouched(places, slice, raw)? {
                continue;
            }
            let made = places.iter().find_map(|place| self.make(*place, slice).transpose()).transpose()?;
            match made {
                Some(made) => raw.copy_from_slice(&made[..raw.len()]),
                None if there && !surely => {}
                // Not all of the slice was asked for.
                None if !surely && given(inner.read_at(name, offset, out))? => return Ok(()),
                None => return Err(self.lost(name).into()),
            }
        }
        out.copy_from_slice(&bytes[(offset - start) as usize..][..out.len()]);
        Ok(())
    }

    fn lost(&self, name: &str) -> store::Error {
        let cause = "more of the packs that it is coded with are lost than their parity makes up for";
        store::Error::because(Kind::Truncated, Action::Read, name, &self.repository.store().location(), cause)
    }

    fn records(&self, band: usize) -> Result<&Records> {
        let known = &self.bands[band];
        if known.records.get().is_none() {
            let _ = known.records.set(known.band.records(&self.repository)?);
        }
        Ok(known.records.get().expect("set above"))
    }

    /// The sum of a pack's slice, as its band has it; `None` if that is damaged.
    fn sum(&self, (band, seat): (usize, usize), slice: usize) -> Result<Option<u32>> {
        let sums = self.records(band)?.of(&self.bands[band].band.head, slice);
        Ok(sums.and_then(|sums| sums.seats.get(seat).copied()))
    }

    /// Whether a slice is what one of its bands says; where none says anything, it is taken for right.
    fn vouched(&self, places: &[(usize, usize)], slice: usize, raw: &[u8]) -> Result<bool> {
        let (sum, mut known) = (band::sum(raw), false);
        for place in places {
            match self.sum(*place, slice)? {
                Some(right) if right == sum => return Ok(true),
                right => known |= right.is_some(),
            }
        }
        Ok(!known)
    }

    /// A damaged slice of a pack, made again.
    fn make(&self, (band, seat): (usize, usize), slice: usize) -> Result<Option<Vec<u8>>> {
        let head = &self.bands[band].band.head;
        let each = (head.seats.len() + head.rows) * SLICE_BYTES;
        let slices = (MEMORY_BYTES / each).clamp(1, SPAN_SLICES);
        let key = (band, slice / slices);
        let known = || lock(&self.made).get(&key).and_then(|span| span.get(&(seat, slice)).cloned());
        if let Some(known) = known() {
            return Ok(known);
        }
        let one = lock(&self.one);
        if let Some(known) = known() {
            return Ok(known);
        }
        let first = slice / slices * slices;
        let span = self.span(band, first, slices.min(head.slices() - first))?;
        let made = span.get(&(seat, slice)).cloned().flatten();
        let bytes = span.values().flatten().map(Vec::len).sum::<usize>() + SLICE_BYTES;
        lock(&self.made).put(key, Arc::new(span), bytes);
        drop(one);
        Ok(made)
    }

    /// Look at some slices of all packs of a band, and make those again that are damaged.
    fn span(&self, band: usize, first: usize, slices: usize) -> Result<Span> {
        let (known, records) = (&self.bands[band].band, self.records(band)?);
        let head = &known.head;
        let len: usize = (first..first + slices).map(|slice| head.slice_len(slice)).sum();
        let at = (first * SLICE_BYTES) as u64;
        let sums: Vec<_> = (first..first + slices).map(|slice| records.of(head, slice)).collect();
        let part = |number: usize| number * SLICE_BYTES..(number * SLICE_BYTES + head.slice_len(first + number));
        // Of seats, then of rows: bytes, and of each slice whether it is whole.
        let (mut all, mut span) = (Vec::new(), Span::new());
        for (seat, member) in head.seats.iter().enumerate() {
            let (mut bytes, mut good) = (vec![0; len], vec![true; slices]);
            let there = member.map_or(0, |m| m.len.saturating_sub(at).min(len as u64)) as usize;
            if let Some(member) = member.filter(|_| there > 0) {
                let (name, inner) = (name(&member), self.repository.store());
                let whole = given(inner.read_at(&name, at, &mut bytes[..there]))?;
                for (number, sums) in sums.iter().enumerate().take_while(|(number, _)| number * SLICE_BYTES < there) {
                    let range = part(number);
                    let (own, at) = (range.start..range.end.min(there), at + range.start as u64);
                    let right = |bytes: &[u8]| sums.as_ref().is_none_or(|sums| sums.seats[seat] == band::sum(bytes));
                    let given = whole || given(inner.read_at(&name, at, &mut bytes[own.clone()]))?;
                    if given && right(&bytes[range.clone()]) {
                        continue;
                    }
                    good[number] = self.heal(&member, at, &mut bytes[own])? && right(&bytes[range.clone()]);
                    if good[number] {
                        span.insert((seat, first + number), Some(bytes[range].to_vec()));
                    }
                }
            }
            all.push((bytes, good));
        }
        for row in 0..head.rows {
            let (mut bytes, mut good, id) = (vec![0; len], vec![true; slices], head.band.object(row as u8 + 1));
            let whole = fill(&self.repository, id, head.data_offset() + at, &mut bytes)?;
            for (number, sums) in sums.iter().enumerate() {
                let (range, at) = (part(number), head.data_offset() + at);
                let at = at + range.start as u64;
                let given = whole || fill(&self.repository, id, at, &mut bytes[range.clone()])?;
                let right = |bytes: &[u8]| sums.as_ref().is_none_or(|sums| sums.rows[row] == band::sum(bytes));
                good[number] = given && right(&bytes[range]);
            }
            all.push((bytes, good));
        }
        // To find out what to do about what is lost takes the code long: so it is done once for slices that lack the
        // same.
        let lacks = |number: usize| -> Vec<bool> { all.iter().map(|(_, good)| !good[number]).collect() };
        let mut number = 0;
        while number < slices {
            let lost = lacks(number);
            let end = (number + 1..slices).find(|next| lacks(*next) != lost).unwrap_or(slices);
            let range = part(number).start..part(end - 1).end;
            for seat in (0..head.seats.len()).filter(|seat| lost[*seat]) {
                span.extend((number..end).map(|number| ((seat, first + number), None)));
            }
            let there: Vec<_> =
                all.iter().zip(&lost).map(|((bytes, _), lost)| (!lost).then(|| &bytes[range.clone()])).collect();
            let (seats, rows) = there.split_at(head.seats.len());
            for (seat, bytes) in solve(head, range.len(), seats, rows).into_iter().flatten() {
                for (number, bytes) in (number..end).zip(bytes.chunks(SLICE_BYTES)) {
                    if sums[number].as_ref().is_none_or(|sums| sums.seats[seat] == band::sum(bytes)) {
                        span.insert((seat, first + number), Some(bytes.to_vec()));
                    }
                }
            }
            number = end;
        }
        Ok(span)
    }

    /// Read bytes of a pack through its own parity, as far as they come before that. Whether there may be others now.
    fn heal(&self, member: &Member, at: u64, out: &mut [u8]) -> Result<bool> {
        let pack = {
            let mut all = lock(&self.healed);
            match all.get(&member.pack) {
                Some(pack) => pack,
                None => {
                    let found = Healed::find(&self.repository, member.kind, member.pack, member.len);
                    let found = match found {
                        Err(e) if e.is_of_one_object() => None,
                        other => other?,
                    };
                    let pack = Arc::new(Mutex::new(found));
                    all.put(member.pack, pack.clone(), 1);
                    pack
                }
            }
        };
        let mut pack = lock(&pack);
        let Some(healed) = &mut *pack else { return Ok(false) };
        let (offset, len) = healed.table();
        let before = (offset + u64::from(len)).saturating_sub(at).min(out.len() as u64) as usize;
        match healed.read_at(at, &mut out[..before]) {
            Err(e) if e.is_of_one_object() => Ok(false),
            other => other.map(|()| before > 0),
        }
    }
}

/// Whether the storage gave out bytes of an object.
fn given(read: store::Result<()>) -> Result<bool> {
    match read.map_err(Error::from) {
        Ok(()) => Ok(true),
        Err(e) if e.is_of_one_object() => Ok(false),
        Err(e) => Err(e),
    }
}

/// Whatever is no pack of a band is as in the storage itself; what is written goes there.
impl Store for Through {
    fn location(&self) -> String {
        self.repository.store().location()
    }

    fn is_far(&self) -> bool {
        self.repository.store().is_far()
    }

    fn creates_atomically(&self) -> store::Result<bool> {
        self.repository.store().creates_atomically()
    }

    fn may_come_late(&self, name: &str) -> bool {
        self.repository.store().may_come_late(name)
    }

    fn freezes(&self) -> bool {
        self.repository.store().freezes()
    }

    fn thaw(&self, name: &str, haste: Haste) -> store::Result<Thaw> {
        self.repository.store().thaw(name, haste)
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed)) -> store::Result<()> {
        self.repository.store().list(prefix, each)
    }

    fn len(&self, name: &str) -> store::Result<Option<u64>> {
        let len = self.repository.store().len(name)?;
        let agreed = || self.places.get(name).and_then(|places| places.first()).copied();
        Ok(len.or_else(|| agreed().and_then(|(band, seat)| Some(self.bands[band].band.head.seats[seat]?.len))))
    }

    /// Packs are never read whole by those who read them.
    fn get(&self, name: &str) -> store::Result<Vec<u8>> {
        self.repository.store().get(name)
    }

    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> store::Result<()> {
        match self.read(name, offset, buf, false) {
            Err(Error::Store(e)) => Err(e),
            Err(other) => {
                let location = self.repository.store().location();
                Err(store::Error::because(Kind::Io, Action::Read, name, &location, other.to_string()))
            }
            Ok(()) => Ok(()),
        }
    }

    fn put(&self, name: &str, bytes: &[u8], how: Put) -> store::Result<()> {
        self.repository.store().put(name, bytes, how)
    }

    fn upload(&self, name: &str, len_hint: u64) -> store::Result<Box<dyn Upload>> {
        self.repository.store().upload(name, len_hint)
    }

    fn sync(&self) -> store::Result<()> {
        self.repository.store().sync()
    }

    fn delete(&self, name: &str) -> store::Result<()> {
        self.repository.store().delete(name)
    }

    fn clear_unfinished(&self) -> store::Result<Cleared> {
        self.repository.store().clear_unfinished()
    }
}
