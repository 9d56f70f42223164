//! A damaged pack seen through its parity: shards that can't be read, or whose sums are wrong, are made again in
//! memory. Nothing is written here: `repair` moves what was healed into a new pack.
//!
//! Where the damage is, the directory of the parity tells, without a key. It isn't authenticated, so what comes of it
//! counts for nothing until a block or the table made of it was opened. Memory: one stripe (16 MiB at the most) while
//! it is looked at, one at a time in the whole process; of each pack then its directories and the shards that were made
//! again.

use super::parity::{ROWS, Shard, added_up};
use crate::lock::lock;
use crate::{Error, PackInfo, Repository, Result, names};
use drumlin_format::pack::{self, FOOTER_BYTES, Footer, PackKind};
use drumlin_format::parity::{
    self, DATA_BYTES_MAX, HEAD_BYTES, Head, Layout, SHARD_BYTES, STRIPE_SHARDS, Stripe, Sums,
};
use drumlin_format::{HEADER_BYTES, Header, ObjectType, PackId};
use reed_solomon_simd::engine::DefaultEngine;
use reed_solomon_simd::rate::{HighRateDecoder, RateDecoder};
use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

/// Shards that are read at once; if that fails, they are read one by one.
const PIECE_SHARDS: usize = 64;
/// No pack with parity is longer.
const LEN_MAX: u64 = DATA_BYTES_MAX + DATA_BYTES_MAX / 16;
/// One stripe at a time, but for those that are read through bands.
static ONE: Mutex<()> = Mutex::new(());

/// What is damaged in a pack, in shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Damaged ones before the parity, those included that can't be healed.
    pub data: u64,
    /// Those of them that can't be healed.
    pub lost: u64,
    /// Damaged recovery shards.
    pub recovery: u64,
    /// Directories that can't be read, or not all of them.
    pub directories: u64,
    /// Stripes of which no directory tells the sums: what is damaged in them isn't known, and nothing of it can be
    /// healed.
    pub blind: u64,
}

impl Damage {
    /// Whether what the pack holds is whole, or can be healed.
    pub fn is_healed(&self) -> bool {
        self.lost == 0 && self.blind == 0
    }
}

/// A pack and its parity.
pub struct Healed {
    repository: Repository,
    name: String,
    head: Head,
    layout: Layout,
    directories: Vec<Vec<u8>>,
    stripes: Vec<Stripe>,
    looked_at: Vec<bool>,
    /// Data shards that were made again.
    shards: HashMap<u32, Box<Shard>>,
    /// Data shards that are damaged and can't be made again.
    lost: HashSet<u32>,
    /// Stripes whose sums no directory tells.
    blind: HashSet<u32>,
    damage: Damage,
}

impl Healed {
    /// The pack that the index has so. `None` if it has no parity, or one that this program doesn't know.
    pub fn open(repository: &Repository, info: &PackInfo) -> Result<Option<Self>> {
        let header = pack::header(info.kind, repository.config().suite, info.generation, info.id).encode();
        let head = Head { header, table_offset: info.table_offset, table_len: info.table_len };
        let Some(layout) = head.layout().filter(|layout| layout.pack_len() == info.len) else { return Ok(None) };
        let (name, mut directories) = (info.name(), Vec::new());
        for at in layout.directories() {
            let shards = layout.directory_len().div_ceil(SHARD_BYTES);
            let mut bytes = read(repository, &name, at, shards, at + layout.directory_len() as u64)?.0;
            bytes.truncate(layout.directory_len());
            directories.push(bytes);
        }
        let stripes: Vec<Stripe> = layout.stripes().collect();
        let looked_at = vec![false; stripes.len()];
        let (repository, damage) = (repository.clone(), Damage::default());
        let (shards, lost, blind) = (HashMap::new(), HashSet::new(), HashSet::new());
        Ok(Some(Healed {
            repository,
            name,
            head,
            layout,
            directories,
            stripes,
            looked_at,
            shards,
            lost,
            blind,
            damage,
        }))
    }

    /// A pack of which only name and length are known, and whose footer is of no use: a directory is looked for from
    /// its end. How long the pack was the directory tells: it may have lost some of its end, or got something behind
    /// it. `None` as for [`Healed::open`].
    pub fn find(repository: &Repository, kind: PackKind, id: PackId, len: u64) -> Result<Option<Self>> {
        let name = names::pack(kind, id);
        if len > LEN_MAX {
            return Ok(None);
        }
        // Parity is a small part of any but the smallest packs.
        let first = len.saturating_sub(len / 16 + (1 << 17)) / SHARD_BYTES as u64;
        let mut piece_end = len / SHARD_BYTES as u64 + 1;
        while piece_end > first {
            let start = piece_end.saturating_sub(PIECE_SHARDS as u64).max(first);
            let bytes = read(repository, &name, start * SHARD_BYTES as u64, (piece_end - start) as usize, len)?.0;
            for shard in bytes.as_chunks::<SHARD_BYTES>().0.iter().rev() {
                let Ok(head) = Head::decode(&shard[..HEAD_BYTES]) else { continue };
                let (table_offset, table_len) = (head.table_offset, head.table_len);
                let Ok(header) = Header::expect(&head.header, kind.object(), &id.0) else { continue };
                let Some(layout) = head.layout() else { continue };
                let (generation, len) = (header.generation, layout.pack_len());
                let info = PackInfo { id, kind, generation, len, table_offset, table_len };
                if head.header == pack::header(kind, repository.config().suite, header.generation, id).encode()
                    && let Some(healed) = Healed::open(repository, &info)?
                {
                    return Ok(Some(healed));
                }
            }
            piece_end = start;
        }
        Ok(None)
    }

    /// Where the table is, and how long.
    pub fn table(&self) -> (u64, u32) {
        (self.head.table_offset, self.head.table_len)
    }

    /// The tag of the pack's generation.
    pub fn generation(&self) -> u32 {
        Header::decode(&self.head.header, ObjectType::DataPack)
            .or_else(|_| Header::decode(&self.head.header, ObjectType::TreePack))
            .map_or(0, |header| header.generation)
    }

    /// The pack's footer.
    pub fn footer(&self) -> Footer {
        Footer::new(self.head.table_offset, self.head.table_len, self.layout.parity_len())
    }

    /// What was found so far.
    pub fn damage(&self) -> Damage {
        self.damage
    }

    /// Look at all of the pack, the parity itself too.
    pub fn look_at_all(&mut self) -> Result<Damage> {
        self.damage.recovery = 0;
        (0..self.stripes.len()).try_for_each(|number| self.look_at(number, true))?;
        let whole = |directory: &&Vec<u8>| {
            Head::decode(directory) == Ok(self.head)
                && (0..self.stripes.len())
                    .all(|n| parity::decode_sums(&self.head, &self.layout, n, directory).is_some())
        };
        self.damage.directories = (self.directories.len() - self.directories.iter().filter(whole).count()) as u64;
        Ok(self.damage)
    }

    /// Fill `out` from `offset`, all of which lies before the parity, with what was there when the pack was written, as
    /// far as it can be healed.
    ///
    /// # Errors
    /// What the storage says of bytes that it doesn't give out and that can't be healed.
    pub fn read_at(&mut self, offset: u64, out: &mut [u8]) -> Result<()> {
        let end = offset.checked_add(out.len() as u64).filter(|end| *end <= self.layout.data_len());
        let Some(end) = end else {
            let detail = "what was to be read of it lies behind its table";
            return Err(Error::damaged(&self.name)(drumlin_format::Error::Malformed { object: "pack", detail }));
        };
        let shard = SHARD_BYTES as u64;
        for number in offset / shard / u64::from(STRIPE_SHARDS)..end.div_ceil(shard).div_ceil(u64::from(STRIPE_SHARDS))
        {
            self.look_at(number as usize, false)?;
        }
        let store = self.repository.store();
        match store.read_at(&self.name, offset, out).map_err(Error::from) {
            Err(e) if !is_of_bytes(&e) => return Err(e),
            Ok(()) if !(offset / shard..end.div_ceil(shard)).any(|n| self.shards.contains_key(&(n as u32))) => {
                return Ok(());
            }
            Ok(()) | Err(_) => {}
        }
        let mut at = offset;
        while at < end {
            let next = (at / shard + 1).saturating_mul(shard).min(end);
            let piece = &mut out[(at - offset) as usize..(next - offset) as usize];
            match self.shards.get(&((at / shard) as u32)) {
                Some(made) => piece.copy_from_slice(&made[(at % shard) as usize..][..(next - at) as usize]),
                // Its sum was right a moment ago: what can't be read now is tried once more before all is given up for
                // it.
                None => match store.read_at(&self.name, at, piece).map_err(Error::from) {
                    Err(e) if is_of_bytes(&e) => store.read_at(&self.name, at, piece)?,
                    other => other?,
                },
            }
            at = next;
        }
        Ok(())
    }

    /// As [`Healed::read_at`], for callers that can't tell by a key whether the bytes are those that were sealed: the
    /// sums must say so. Gives whether something had to be made again.
    ///
    /// # Errors
    /// As [`Healed::read_at`], and [`Error::Damaged`] where the sums say that it is something else, or there are none.
    pub fn read_sound(&mut self, offset: u64, out: &mut [u8]) -> Result<bool> {
        self.read_at(offset, out)?;
        let shard = SHARD_BYTES as u64;
        let mut shards = (offset / shard..(offset + out.len() as u64).div_ceil(shard)).map(|n| n as u32);
        let mut stripes = shards.clone().map(|n| n / STRIPE_SHARDS);
        if shards.any(|n| self.lost.contains(&n)) || stripes.any(|n| self.blind.contains(&n)) {
            let detail = "its bytes are not those that its parity was made of";
            return Err(Error::damaged(&self.name)(drumlin_format::Error::Malformed { object: "pack", detail }));
        }
        let mut shards = (offset / shard..(offset + out.len() as u64).div_ceil(shard)).map(|n| n as u32);
        Ok(shards.any(|n| self.shards.contains_key(&n)))
    }

    /// Look at a stripe, once; at its recovery shards only if they are needed, or `thoroughly`.
    fn look_at(&mut self, number: usize, thoroughly: bool) -> Result<()> {
        if !thoroughly && self.looked_at.get(number) != Some(&false) {
            return Ok(());
        }
        let Some(stripe) = self.stripes.get(number).copied() else { return Ok(()) };
        let first_look = !std::mem::replace(&mut self.looked_at[number], true);
        let sums =
            self.directories.iter().find_map(|bytes| parity::decode_sums(&self.head, &self.layout, number, bytes));
        let Some(sums) = sums else {
            self.damage.blind += u64::from(first_look);
            self.blind.insert(number as u32);
            return Ok(());
        };
        // Reading through bands may heal other packs by their own parity, which takes the one there is, and bands are
        // looked at one at a time.
        let one = (!self.repository.is_through()).then(|| lock(&ONE));
        let at = u64::from(stripe.first) * SHARD_BYTES as u64;
        let mut data = self.shards(at, &sums.data, self.layout.data_len())?;
        if data.bad.iter().any(|bad| *bad) || thoroughly {
            let at = self.layout.recovery_offset(stripe.first_recovery);
            let end = at + u64::from(stripe.recovery()) * SHARD_BYTES as u64;
            let recovery = self.shards(at, &sums.recovery, end)?;
            let count = |bad: &[bool]| bad.iter().filter(|bad| **bad).count() as u64;
            let (bad_data, bad_recovery) = (count(&data.bad), count(&recovery.bad));
            let lost = if first_look { self.heal(&stripe, &sums, &mut data, &recovery) } else { 0 };
            if first_look {
                self.damage.data += bad_data;
                self.damage.lost += lost;
            }
            if thoroughly {
                self.damage.recovery += bad_recovery;
            }
        }
        drop(one);
        Ok(())
    }

    /// Make a stripe's damaged shards again. Gives how many can't be.
    fn heal(&mut self, stripe: &Stripe, sums: &Sums, data: &mut Shards, recovery: &Shards) -> u64 {
        let mut lost = 0;
        for codeword in 0..stripe.weave as usize {
            let members = (codeword..stripe.shards as usize).step_by(stripe.weave as usize);
            let wanted: Vec<usize> = members.clone().filter(|n| data.bad[*n]).collect();
            let at_hand =
                (0..stripe.rows as usize).filter(|row| !recovery.bad[row * stripe.weave as usize + codeword]).count();
            if wanted.is_empty() {
                continue;
            }
            let made = match wanted.len() <= at_hand {
                true if self.layout.is_tiny() => {
                    let others = members.filter(|n| !data.bad[*n]).map(|n| &data.shards()[n]);
                    Some(vec![(wanted[0], added_up(others.chain([&recovery.shards()[0]])))])
                }
                true => solve(stripe, codeword, data, recovery, &wanted),
                false => None,
            };
            for (number, shard) in made.into_iter().flatten().filter(|(n, shard)| parity::sum(shard) == sums.data[*n]) {
                self.shards.insert(stripe.first + number as u32, Box::new(shard));
            }
            let wanted = wanted.into_iter().map(|n| stripe.first + n as u32);
            let lost_now: Vec<u32> = wanted.filter(|n| !self.shards.contains_key(n)).collect();
            lost += lost_now.len() as u64;
            self.lost.extend(lost_now);
        }
        lost
    }

    /// Read shards that end at `end` at the latest, and compare them with their sums.
    fn shards(&self, offset: u64, sums: &[u32], end: u64) -> Result<Shards> {
        let (bytes, mut bad) = read(&self.repository, &self.name, offset, sums.len(), end)?;
        let shards = bytes.as_chunks::<SHARD_BYTES>().0;
        for ((bad, shard), sum) in bad.iter_mut().zip(shards).zip(sums) {
            *bad |= parity::sum(shard) != *sum;
        }
        Ok(Shards { bytes, bad })
    }
}

/// Some shards as they were read, and which of them are damaged.
struct Shards {
    bytes: Vec<u8>,
    bad: Vec<bool>,
}

impl Shards {
    fn shards(&self) -> &[Shard] {
        self.bytes.as_chunks::<SHARD_BYTES>().0
    }
}

/// A codeword's damaged shards by the library's decoder; `None` if it finds that it can't be.
fn solve(
    stripe: &Stripe,
    codeword: usize,
    data: &Shards,
    recovery: &Shards,
    wanted: &[usize],
) -> Option<Vec<(usize, Shard)>> {
    let weave = stripe.weave as usize;
    let len = stripe.of_codeword(codeword as u32) as usize;
    let mut decoder = HighRateDecoder::new(len, ROWS, SHARD_BYTES, DefaultEngine::new(), None).ok()?;
    for place in 0..len {
        let number = place * weave + codeword;
        if !data.bad[number] {
            decoder.add_original_shard(place, data.shards()[number]).ok()?;
        }
    }
    for row in 0..stripe.rows as usize {
        let number = row * weave + codeword;
        if !recovery.bad[number] {
            decoder.add_recovery_shard(row, recovery.shards()[number]).ok()?;
        }
    }
    let decoded = decoder.decode().ok()?;
    let shard = |number: &usize| Some((*number, decoded.restored_original(number / weave)?.try_into().ok()?));
    wanted.iter().map(shard).collect()
}

/// Whether a failure is about bytes that others can take the place of.
fn is_of_bytes(error: &Error) -> bool {
    error.is_of_one_object() && !error.is_missing()
}

/// Read so many shards from `offset` on, with zeros from `end` on, and tell which of them the storage doesn't give out.
fn read(repository: &Repository, name: &str, offset: u64, shards: usize, end: u64) -> Result<(Vec<u8>, Vec<bool>)> {
    let (mut bytes, mut bad) = (vec![0; shards * SHARD_BYTES], vec![false; shards]);
    let store = repository.store();
    let fill = |first: usize, out: &mut [u8]| -> Result<bool> {
        let at = offset + (first * SHARD_BYTES) as u64;
        let len = (out.len() as u64).min(end.saturating_sub(at)) as usize;
        match store.read_at(name, at, &mut out[..len]).map_err(Error::from) {
            Ok(()) => Ok(true),
            Err(e) if is_of_bytes(&e) => Ok(false),
            Err(e) => Err(e),
        }
    };
    for (number, piece) in bytes.chunks_mut(PIECE_SHARDS * SHARD_BYTES).enumerate() {
        let first = number * PIECE_SHARDS;
        if fill(first, piece)? {
            continue;
        }
        for (place, shard) in piece.chunks_mut(SHARD_BYTES).enumerate() {
            if !fill(first + place, shard)? {
                shard.fill(0);
                bad[first + place] = true;
            }
        }
    }
    Ok((bytes, bad))
}

/// The generation and the footer of a pack, by its parity if that is damaged; what stands in it leads to the table.
///
/// The footer tells the generation: its checksum is over the header, too, so that of all that the key knows one fits.
/// The header itself need not be read, and may be damaged. Of a generation that isn't known it tells the tag.
pub(crate) fn read_footer(repository: &Repository, kind: PackKind, id: PackId, len: u64) -> Result<(u32, Footer)> {
    let name = names::pack(kind, id);
    let damaged = |detail| Error::damaged(&name)(drumlin_format::Error::Malformed { object: "pack", detail });
    let short = (HEADER_BYTES + FOOTER_BYTES) as u64;
    let at = len.checked_sub(FOOTER_BYTES as u64).filter(|_| len >= short).ok_or_else(|| damaged("it is too short"))?;
    let mut bytes = [0; FOOTER_BYTES];
    let read = repository.store().read_at(&name, at, &mut bytes).map_err(Error::from);
    let decode = |tag| Footer::decode(&bytes, &pack::header(kind, repository.config().suite, tag, id), len);
    let why = match read {
        Ok(()) => {
            if let Some(found) = repository.tags().find_map(|tag| Some((tag, decode(tag).ok()?))) {
                return Ok(found);
            }
            decode(0).map_err(Error::damaged(&name)).err()
        }
        Err(e) => Some(e),
    };
    match why {
        Some(e) if is_of_bytes(&e) => match Healed::find(repository, kind, id, len)? {
            Some(healed) => {
                repository.note_healed(&name);
                Ok((healed.generation(), healed.footer()))
            }
            None => match stated(repository, kind, id)? {
                Some(generation) if !repository.tags().any(|tag| tag == generation) => {
                    Err(Error::UnknownGeneration { object: name, generation })
                }
                _ => Err(e),
            },
        },
        Some(e) => Err(e),
        None => Err(damaged("its footer contradicts itself")),
    }
}

/// The tag in a pack's header, if that can be read.
fn stated(repository: &Repository, kind: PackKind, id: PackId) -> Result<Option<u32>> {
    let mut bytes = [0; HEADER_BYTES];
    match repository.store().read_at(&names::pack(kind, id), 0, &mut bytes).map_err(Error::from) {
        Err(e) if is_of_bytes(&e) => Ok(None),
        Err(e) => Err(e),
        Ok(()) => Ok(Header::expect(&bytes, kind.object(), &id.0).ok().map(|header| header.generation)),
    }
}
