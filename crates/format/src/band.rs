//! Bands: packs that are coded together, so that some of them may be lost as a whole and are made again from the
//! others. What it takes is in recovery objects.
//!
//! ```text
//! header (32) | head | zeros | recovery data, unless its number is 0 | sums | head
//! ```
//!
//! A band has *seats*, each for a pack or empty, and so many *rows* of recovery data, each as long as the longest pack.
//! All are cut into slices; the sums tell of each slice whether it is whole. So each row bears one damaged slice at
//! every place of its band. This is geometry and bytes; the code itself is `repo`'s. All is specified in
//! `docs/format.md`.
//!
//! Nothing here is secret or authenticated. Whatever is made again by it is opened and checked as if it had been read.

use crate::error::malformed;
use crate::pack::PackKind;
use crate::parity::sum_of;
use crate::wire::Reader;
use crate::{BandId, HEADER_BYTES, Header, ObjectType, PackId, RecoveryId, Result};
use drumlin_seal::{Suite, checksum};
use std::collections::HashSet;

const OBJECT: &str = "recovery object";
const MAGIC: &[u8; 8] = b"drumbnd\x01";

/// Bytes of a slice: of each place in a band so many are coded together. In a pack of ordinary length it is one shard
/// of each of the codewords of its own parity.
pub const SLICE_BYTES: usize = 65_536;
/// The most seats of a band.
pub const SEATS_MAX: usize = 128;
/// The most rows of a band.
pub const ROWS_MAX: usize = 16;
/// No longer pack is in a band.
pub const MEMBER_BYTES_MAX: u64 = 1 << 32;
/// The most bytes of a head.
pub const HEAD_BYTES_MAX: usize = FIXED_BYTES + SEATS_MAX * SEAT_BYTES + CHECKSUM_BYTES;
const FIXED_BYTES: usize = 48;
const SEAT_BYTES: usize = 25;
const SUM_BYTES: usize = 4;
const CHECKSUM_BYTES: usize = 16;
/// What recovery data begins at, and is as long as, a multiple of.
const ALIGNMENT: u64 = 4096;

/// A pack in a band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The pack.
    pub pack: PackId,
    /// Its kind.
    pub kind: PackKind,
    /// Bytes of the whole pack.
    pub len: u64,
}

impl Member {
    /// How many slices it has; the last one ends with zeros that aren't in the pack.
    pub fn slices(&self) -> usize {
        slices(self.len)
    }
}

/// What every object of a band says of the band.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The band.
    pub band: BandId,
    /// The repository's suite, which is in the header of every object.
    pub suite: Suite,
    /// The seats: a pack's place in the code.
    pub seats: Vec<Option<Member>>,
    /// How many objects have recovery data: so many packs may be lost.
    pub rows: usize,
}

impl Head {
    /// A head, if there can be a band like that.
    pub fn new(band: BandId, suite: Suite, seats: Vec<Option<Member>>, rows: usize) -> Result<Self> {
        if !(1..=SEATS_MAX).contains(&seats.len()) || !(1..=ROWS_MAX).contains(&rows) {
            return malformed(OBJECT, "it has too few or too many seats or rows");
        }
        let head = Head { band, suite, seats, rows };
        let mut packs = HashSet::new();
        for member in head.members() {
            if !packs.insert(member.pack) {
                return malformed(OBJECT, "a pack stands in it twice");
            }
            if !(1..=MEMBER_BYTES_MAX).contains(&member.len) {
                return malformed(OBJECT, "a pack in it is of no length that packs have");
            }
        }
        if packs.is_empty() {
            return malformed(OBJECT, "there is no pack in it");
        }
        Ok(head)
    }

    /// The packs in it.
    pub fn members(&self) -> impl Iterator<Item = Member> + '_ {
        self.seats.iter().flatten().copied()
    }

    /// Where a pack sits.
    pub fn seat(&self, pack: &PackId) -> Option<(usize, Member)> {
        self.seats.iter().enumerate().find_map(|(n, seat)| Some((n, seat.filter(|m| m.pack == *pack)?)))
    }

    /// Bytes of the recovery data of each row.
    pub fn row_len(&self) -> u64 {
        self.members().map(|m| m.len).max().unwrap_or_default().next_multiple_of(ALIGNMENT)
    }

    /// How many slices a row has.
    pub fn slices(&self) -> usize {
        slices(self.row_len())
    }

    /// Bytes of a slice: fewer in the last one.
    pub fn slice_len(&self, slice: usize) -> usize {
        (self.row_len() - (slice * SLICE_BYTES) as u64).min(SLICE_BYTES as u64) as usize
    }

    /// Bytes of the head.
    pub fn head_len(&self) -> usize {
        FIXED_BYTES + self.seats.len() * SEAT_BYTES + CHECKSUM_BYTES
    }

    /// Where recovery data begins in an object.
    pub fn data_offset(&self) -> u64 {
        ((HEADER_BYTES + self.head_len()) as u64).next_multiple_of(ALIGNMENT)
    }

    /// Where the sums begin in the object of this number.
    pub fn sums_offset(&self, number: u8) -> u64 {
        self.data_offset() + if number == 0 { 0 } else { self.row_len() }
    }

    /// Bytes of the sums of one slice of all.
    pub fn record_len(&self) -> usize {
        (self.seats.len() + self.rows) * SUM_BYTES + CHECKSUM_BYTES
    }

    /// Bytes of the object of this number.
    pub fn object_len(&self, number: u8) -> u64 {
        self.sums_offset(number) + (self.slices() * self.record_len() + self.head_len()) as u64
    }

    /// Encode the head as the object of this number has it.
    pub fn encode(&self, number: u8) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.head_len());
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.header(number));
        out.extend_from_slice(&[self.seats.len() as u8, self.rows as u8, 0, 0, 0, 0, 0, 0]);
        for seat in &self.seats {
            match seat {
                Some(member) => {
                    out.push(object_type(member.kind) as u8);
                    out.extend_from_slice(&member.pack.0);
                    out.extend_from_slice(&member.len.to_le_bytes());
                }
                None => out.extend_from_slice(&[0; SEAT_BYTES]),
            }
        }
        let sum = checksum(&out);
        out.extend_from_slice(&sum);
        out
    }

    /// The header of the object of this number.
    pub fn header(&self, number: u8) -> [u8; HEADER_BYTES] {
        Header::new(ObjectType::Recovery, self.suite, self.band.object(number).0).encode()
    }

    /// What comes before recovery data in the object of this number: header, head, zeros.
    pub fn beginning(&self, number: u8) -> Vec<u8> {
        let mut out = [&self.header(number)[..], &self.encode(number)].concat();
        out.resize(self.data_offset() as usize, 0);
        out
    }

    /// Read the head that `bytes` begin with, of the object of this id.
    pub fn decode(bytes: &[u8], id: RecoveryId) -> Result<Self> {
        let mut r = Reader::new(bytes, OBJECT);
        if r.take(8)? != MAGIC {
            return malformed(OBJECT, "its head does not begin as one does");
        }
        let header: [u8; HEADER_BYTES] = r.array()?;
        let (seats, rows) = (usize::from(r.u8()?), usize::from(r.u8()?));
        if r.take(6)? != [0; 6] {
            return malformed(OBJECT, "reserved bytes of its head are not zero");
        }
        let end = FIXED_BYTES + seats * SEAT_BYTES;
        let Some((head, check)) = bytes.get(..end + CHECKSUM_BYTES).and_then(|b| b.split_at_checked(end)) else {
            return malformed(OBJECT, "it ends within its head");
        };
        if *check != checksum(head) {
            return malformed(OBJECT, "the checksum of its head is wrong");
        }
        let header = Header::expect(&header, ObjectType::Recovery, &id.0)?;
        if header.generation != 0 {
            return malformed(OBJECT, "it is of a generation, and nothing in it is sealed");
        }
        let seats = (0..seats).map(|_| seat(&mut r)).collect::<Result<Vec<_>>>()?;
        let head = Head::new(id.band(), header.suite, seats, rows)?;
        if usize::from(id.number()) > rows {
            return malformed(OBJECT, "its band has fewer objects");
        }
        Ok(head)
    }

    /// Find the head that ends an object, in its last bytes.
    pub fn decode_last(bytes: &[u8], id: RecoveryId) -> Result<Self> {
        for seats in 1..=SEATS_MAX {
            let len = FIXED_BYTES + seats * SEAT_BYTES + CHECKSUM_BYTES;
            let Some(at) = bytes.len().checked_sub(len) else { break };
            if bytes[at..].starts_with(MAGIC)
                && let Ok(head) = Head::decode(&bytes[at..], id)
            {
                return Ok(head);
            }
        }
        malformed(OBJECT, "it doesn't end with a head")
    }

    /// Encode the sums of a slice: those of the seats in order, then those of the rows.
    pub fn encode_sums(&self, slice: usize, sums: &Sums) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.record_len());
        sums.seats.iter().chain(&sums.rows).for_each(|sum| out.extend_from_slice(&sum.to_le_bytes()));
        let check = self.record_checksum(slice, &out);
        out.extend_from_slice(&check);
        out
    }

    /// Read the sums of a slice; `None` if they are damaged.
    pub fn decode_sums(&self, slice: usize, record: &[u8]) -> Option<Sums> {
        let (sums, check) = record.get(..self.record_len())?.split_last_chunk::<CHECKSUM_BYTES>()?;
        if *check != self.record_checksum(slice, sums) {
            return None;
        }
        let mut seats: Vec<u32> = sums.as_chunks::<SUM_BYTES>().0.iter().map(|sum| u32::from_le_bytes(*sum)).collect();
        let rows = seats.split_off(self.seats.len());
        Some(Sums { seats, rows })
    }

    /// Over the band too: what another one's sums say is of no use here.
    fn record_checksum(&self, slice: usize, sums: &[u8]) -> [u8; CHECKSUM_BYTES] {
        checksum(&[&self.band.0[..], &(slice as u32).to_le_bytes(), sums].concat())
    }
}

/// The sums of one slice of all members and rows. Where a seat is empty, or its pack ends before, the sum is 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sums {
    /// By seat.
    pub seats: Vec<u32>,
    /// By row.
    pub rows: Vec<u32>,
}

/// The sum of a slice, with zeros behind it if it is shorter: so it is the same in every band.
pub fn sum(slice: &[u8]) -> u32 {
    if slice.len() == SLICE_BYTES {
        return sum_of(slice);
    }
    let mut whole = slice.to_vec();
    whole.resize(SLICE_BYTES, 0);
    sum_of(&whole)
}

fn slices(len: u64) -> usize {
    len.div_ceil(SLICE_BYTES as u64) as usize
}

fn object_type(kind: PackKind) -> ObjectType {
    match kind {
        PackKind::Data => ObjectType::DataPack,
        PackKind::Tree => ObjectType::TreePack,
    }
}

fn seat(r: &mut Reader) -> Result<Option<Member>> {
    let (kind, pack, len) = (r.u8()?, PackId(r.array()?), u64::from_le_bytes(r.array()?));
    let kind = match kind {
        0 if (pack.0, len) == ([0; 16], 0) => return Ok(None),
        kind if kind == ObjectType::DataPack as u8 => PackKind::Data,
        kind if kind == ObjectType::TreePack as u8 => PackKind::Tree,
        _ => return malformed(OBJECT, "a seat of it holds neither a pack nor nothing"),
    };
    Ok(Some(Member { pack, kind, len }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn member(n: u8, len: u64) -> Option<Member> {
        Some(Member {
            pack: PackId([n; 16]),
            kind: if n.is_multiple_of(2) { PackKind::Tree } else { PackKind::Data },
            len,
        })
    }

    fn head(seats: Vec<Option<Member>>, rows: usize) -> Head {
        Head::new(BandId([7; 15]), Suite::Aes256Gcm, seats, rows).unwrap()
    }

    /// With a right checksum: what is refused is refused for what it says.
    fn bent(head: &Head, at: usize, byte: u8) -> Vec<u8> {
        let mut bytes = head.encode(1);
        bytes[at] = byte;
        let end = bytes.len() - CHECKSUM_BYTES;
        let sum = checksum(&bytes[..end]);
        bytes[end..].copy_from_slice(&sum);
        bytes
    }

    #[test]
    fn geometry() {
        let head = head(vec![member(1, 65_537), None, member(2, 70_000)], 2);
        assert_eq!((head.row_len(), head.slices(), head.slice_len(0), head.slice_len(1)), (73_728, 2, 65_536, 8_192));
        assert_eq!((head.head_len(), head.data_offset(), head.record_len()), (139, 4096, 36));
        assert_eq!((head.sums_offset(0), head.sums_offset(2)), (4096, 4096 + 73_728));
        assert_eq!(head.object_len(0), 4096 + 72 + 139);
        assert_eq!(head.object_len(1), 4096 + 73_728 + 72 + 139);
        assert_eq!((head.beginning(1).len(), head.seat(&PackId([2; 16])).unwrap().0), (4096, 2));
        assert_eq!((member(1, 65_536).unwrap().slices(), member(1, 65_537).unwrap().slices()), (1, 2));
    }

    #[test]
    fn what_no_band_can_be_is_refused() {
        let good = head(vec![member(1, 100), member(2, 200)], 2);
        let id = good.band.object(1);
        assert_eq!(Head::decode(&good.encode(1), id), Ok(good.clone()));
        assert!(Head::decode(&good.encode(1), good.band.object(2)).is_err(), "another number");
        assert!(Head::decode(&good.encode(1), BandId([8; 15]).object(1)).is_err(), "another band");
        assert!(Head::decode(&good.encode(3), good.band.object(3)).is_err(), "there is no third row");
        // Seats, rows, reserved, kind, the pack of the other seat, a length beyond all.
        for (at, byte) in
            [(40, 0), (40, 129), (40, 255), (41, 0), (41, 17), (42, 1), (48, 0), (48, 7), (74, 1), (72, 9)]
        {
            let mut bytes = bent(&good, at, byte);
            if at == 74 {
                bytes[74..90].fill(1);
                let end = bytes.len() - CHECKSUM_BYTES;
                let sum = checksum(&bytes[..end]);
                bytes[end..].copy_from_slice(&sum);
            }
            assert!(Head::decode(&bytes, id).is_err(), "byte {at}");
        }
        for at in 0..good.head_len() {
            let mut bytes = good.encode(1);
            bytes[at] ^= 1;
            assert!(Head::decode(&bytes, id).is_err());
            assert!(Head::decode(&good.encode(1)[..at], id).is_err());
        }
        assert!(Head::new(good.band, good.suite, vec![None], 1).is_err());
    }

    #[test]
    fn a_sum_is_the_same_however_short_the_slice() {
        let slice: Vec<u8> = (0..8192u32).map(|n| (n * 7 % 251) as u8).collect();
        let mut whole = slice.clone();
        whole.resize(SLICE_BYTES, 0);
        assert_eq!(sum(&slice), sum(&whole));
        // As docs/format.md has it.
        assert_eq!((sum(&[]), sum(&slice)), (0x9573_d8f4, 0xb465_5fb5));
    }

    /// The test values of `docs/format.md`.
    #[test]
    fn a_head_and_sums_as_they_are_specified() {
        let seats = vec![
            Some(Member { pack: PackId([1; 16]), kind: PackKind::Data, len: 5 }),
            None,
            Some(Member { pack: PackId([2; 16]), kind: PackKind::Tree, len: 7 }),
        ];
        let head = head(seats, 2);
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let sums = Sums { seats: vec![sum(b"hello"), 0, sum(b"worlds!")], rows: vec![1, 2] };
        let right = "6472756d626e64016472756d6c696e010c01000000000000070707070707070707070707070707010302000000000000\
             030101010101010101010101010101010105000000000000000000000000000000000000000000000000000000000000\
             000004020202020202020202020202020202020700000000000000e453e00ce3244637fc1f33d08b21ef59";
        assert_eq!(hex(&head.encode(1)), right);
        assert_eq!(
            hex(&head.encode_sums(0, &sums)),
            "5794cda800000000ff225a4f01000000020000002bbcbde7ae765cdb45fd2ee9719e67fb"
        );
    }

    proptest! {
        #[test]
        fn heads_and_sums_come_back(
            lens in prop::collection::vec(prop::option::of(1u64..10_000_000), 1..SEATS_MAX),
            rows in 1..=ROWS_MAX,
            slice in 0usize..1000,
            seed in any::<u32>(),
        ) {
            let seats: Vec<_> = lens.iter().enumerate().map(|(n, len)| member(n as u8, (*len)?)).collect();
            let Ok(head) = Head::new(BandId([7; 15]), Suite::Aes256Gcm, seats, rows) else { return Ok(()) };
            for number in [0, rows as u8] {
                let id = head.band.object(number);
                prop_assert_eq!(Head::decode(&head.encode(number), id), Ok(head.clone()));
                let end = [&[5; 300][..], &head.encode(number)].concat();
                prop_assert_eq!(Head::decode_last(&end, id), Ok(head.clone()));
            }
            let sums = Sums { seats: vec![seed; lens.len()], rows: vec![!seed; rows] };
            let record = head.encode_sums(slice, &sums);
            prop_assert_eq!(head.decode_sums(slice, &record), Some(sums));
            prop_assert_eq!(head.decode_sums(slice + 1, &record), None);
            prop_assert_eq!(head.decode_sums(slice, &record[1..]), None);
            let all: usize = (0..head.slices()).map(|n| head.slice_len(n)).sum();
            prop_assert_eq!(all as u64, head.row_len());
        }
    }
}
