//! The bands of a repository as its storage has them: which recovery objects are there, what their heads and sums say.

use crate::{Error, Repository, Result, names};
use drumlin_format::band::{self, HEAD_BYTES_MAX, Head, SLICE_BYTES, Sums};
use drumlin_format::{BandId, HEADER_BYTES, RecoveryId};
use std::collections::BTreeMap;

/// Recovery data is read so much at a time.
const PIECE_BYTES: u64 = 16 * SLICE_BYTES as u64;

/// A band whose head could be read.
#[derive(Clone, Debug)]
pub struct Band {
    /// What its objects say of it.
    pub head: Head,
    /// The lengths of its objects by number, as they were listed.
    pub objects: Vec<Option<u64>>,
}

/// Bands, and recovery objects that belong to none.
#[derive(Clone, Debug, Default)]
pub struct Bands {
    /// In the order of their ids.
    pub all: Vec<Band>,
    /// Objects of bands of which no head can be read, or which have no object of such a number; and their bytes.
    pub stray: Vec<(RecoveryId, u64)>,
    /// Objects whose first head was to be read and could not be, and why.
    pub unread: Vec<(RecoveryId, String)>,
}

impl Band {
    /// The band.
    pub fn id(&self) -> BandId {
        self.head.band
    }

    /// The ids of all objects that it should have.
    pub fn ids(&self) -> impl Iterator<Item = RecoveryId> + '_ {
        (0..=self.head.rows as u8).map(|number| self.id().object(number))
    }

    /// Whether it was made to its end: its first object is put last.
    pub fn is_made(&self) -> bool {
        self.objects.first().is_some_and(Option::is_some)
    }

    /// Whether all of its objects are there, as long as they should be.
    pub fn is_whole(&self) -> bool {
        self.wrong().next().is_none()
    }

    /// The numbers of objects that are missing or not as long as they should be, and how long they are.
    pub fn wrong(&self) -> impl Iterator<Item = (u8, Option<u64>)> + '_ {
        let objects = (0u8..).zip(self.objects.iter().copied());
        objects.filter(|(number, len)| *len != Some(self.head.object_len(*number)))
    }

    /// Bytes of its objects.
    pub fn bytes(&self) -> u64 {
        self.objects.iter().flatten().sum()
    }

    /// Read its sums.
    pub(super) fn records(&self, repository: &Repository) -> Result<Records> {
        let head = &self.head;
        let mut records = Records { bytes: Vec::new(), good: vec![false; head.slices()] };
        for (number, len) in (0u8..).zip(&self.objects) {
            // Room is made only for what is there.
            let at = head.sums_offset(number);
            let end = at + (head.slices() * head.record_len()) as u64;
            if len.is_none_or(|len| len < end) || records.good.iter().all(|good| *good) {
                continue;
            }
            let mut bytes = vec![0; (end - at) as usize];
            if !fill(repository, head.band.object(number), at, &mut bytes)? {
                continue;
            }
            records.bytes.resize(bytes.len(), 0);
            let each = records.bytes.chunks_exact_mut(head.record_len()).zip(bytes.chunks_exact(head.record_len()));
            for (slice, (known, record)) in each.enumerate() {
                if !records.good[slice] && head.decode_sums(slice, record).is_some() {
                    known.copy_from_slice(record);
                    records.good[slice] = true;
                }
            }
        }
        Ok(records)
    }

    /// Read all of an object, and tell what is wrong with it.
    ///
    /// # Errors
    /// What the storage says, that the object is gone too.
    pub fn verify(&self, repository: &Repository, number: u8) -> Result<Verified> {
        let (head, id) = (&self.head, self.id().object(number));
        let name = names::recovery(id);
        let store = repository.store();
        let mut verified = Verified::default();
        let mut beginning = vec![0; head.data_offset() as usize];
        store.read_at(&name, 0, &mut beginning)?;
        verified.heads = u64::from(beginning != head.beginning(number));
        let mut tail = vec![0; (head.object_len(number) - head.sums_offset(number)) as usize];
        store.read_at(&name, head.sums_offset(number), &mut tail)?;
        let (sums, last) = tail.split_at(head.slices() * head.record_len());
        verified.heads += u64::from(last != head.encode(number));
        let own: Vec<_> = sums.chunks(head.record_len()).enumerate().map(|(n, r)| head.decode_sums(n, r)).collect();
        verified.sums = own.iter().filter(|sums| sums.is_none()).count() as u64;
        let Some(row) = usize::from(number).checked_sub(1) else { return Ok(verified) };
        // Where its own sums are damaged, another one's tell.
        let others = if verified.sums > 0 { Some(self.records(repository)?) } else { None };
        let mut piece = Vec::new();
        let (mut at, mut slice) = (0, 0);
        while at < head.row_len() {
            piece.resize((head.row_len() - at).min(PIECE_BYTES) as usize, 0);
            store.read_at(&name, head.data_offset() + at, &mut piece)?;
            for bytes in piece.chunks(SLICE_BYTES) {
                let other = || others.as_ref().and_then(|records| records.of(head, slice));
                let sums = own[slice].clone().or_else(other);
                verified.slices += u64::from(sums.is_some_and(|sums| sums.rows.get(row) != Some(&band::sum(bytes))));
                slice += 1;
            }
            at += piece.len() as u64;
        }
        Ok(verified)
    }
}

/// What is wrong with a recovery object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Of what it says of its band at its beginning and at its end, how many are damaged.
    pub heads: u64,
    /// Slices whose sums are damaged.
    pub sums: u64,
    /// Slices of its recovery data that are damaged.
    pub slices: u64,
}

/// The sums of a band's slices, as far as any object tells them.
pub(super) struct Records {
    bytes: Vec<u8>,
    good: Vec<bool>,
}

impl Records {
    /// Those of a slice.
    pub fn of(&self, head: &Head, slice: usize) -> Option<Sums> {
        self.good.get(slice).filter(|good| **good)?;
        let len = head.record_len();
        head.decode_sums(slice, self.bytes.get(slice * len..)?.get(..len)?)
    }
}

impl Bands {
    /// Look which there are. To be done before the index is looked at: whatever is in a band was named by then.
    ///
    /// # Errors
    /// The storage can't be listed, or fails as a whole.
    pub fn look(repository: &Repository) -> Result<Self> {
        let mut listed: BTreeMap<BandId, BTreeMap<u8, u64>> = BTreeMap::new();
        repository.store().list(names::PARITY, &mut |object| {
            if let Some(id) = RecoveryId::parse(names::last(&object.name)) {
                listed.entry(id.band()).or_default().insert(id.number(), object.len);
            }
        })?;
        let mut bands = Bands::default();
        for (id, objects) in listed {
            let head = read_head(repository, id, &objects, &mut bands.unread)?;
            let rows = head.as_ref().map_or(0, |head| head.rows);
            let beyond = objects.iter().filter(|(number, _)| head.is_none() || usize::from(**number) > rows);
            bands.stray.extend(beyond.map(|(number, len)| (id.object(*number), *len)));
            if let Some(head) = head {
                let objects = (0..=rows as u8).map(|number| objects.get(&number).copied()).collect();
                bands.all.push(Band { head, objects });
            }
        }
        Ok(bands)
    }

    /// Whether there are neither bands nor parts of any.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty() && self.stray.is_empty()
    }

    /// One of them.
    pub fn get(&self, id: BandId) -> Option<&Band> {
        self.all.iter().find(|band| band.id() == id)
    }
}

/// Any object's head will do.
fn read_head(
    repository: &Repository,
    band: BandId,
    objects: &BTreeMap<u8, u64>,
    unread: &mut Vec<(RecoveryId, String)>,
) -> Result<Option<Head>> {
    for (number, len) in objects {
        let id = band.object(*number);
        let most = (len.saturating_sub(HEADER_BYTES as u64)).min(HEAD_BYTES_MAX as u64);
        let mut bytes = vec![0; most as usize];
        let first = repository.store().read_at(&names::recovery(id), HEADER_BYTES as u64, &mut bytes);
        let first = first.map_err(Error::from).and_then(|()| Head::decode(&bytes, id).map_err(Error::damaged("")));
        match first {
            Ok(head) => return Ok(Some(head)),
            Err(e) if e.is_of_one_object() => unread.push((id, e.cause())),
            Err(e) => return Err(e),
        }
        if fill(repository, id, len - most, &mut bytes)?
            && let Ok(head) = Head::decode_last(&bytes, id)
        {
            return Ok(Some(head));
        }
    }
    Ok(None)
}

/// Whether the storage gives out these bytes.
pub(super) fn fill(repository: &Repository, id: RecoveryId, at: u64, out: &mut [u8]) -> Result<bool> {
    match repository.store().read_at(&names::recovery(id), at, out).map_err(Error::from) {
        Ok(()) => Ok(true),
        Err(e) if e.is_of_one_object() => Ok(false),
        Err(e) => Err(e),
    }
}
