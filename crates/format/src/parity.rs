//! Parity: what a pack has behind its table so that lost and flipped sectors of it can be made again, without any key.
//!
//! ```text
//! header, blocks, table (T + L bytes) | zeros | directory, zeros | recovery shards | directory | footer
//! ```
//!
//! All before the parity is cut into shards of a disk's sector. A directory tells each shard's sum, so that those which
//! are damaged are found; the recovery shards make them again. How many there are and where they lie follows from T + L
//! alone: [`Layout`]. This is pure geometry and bytes; the code itself is `repo`'s. All is specified in
//! `docs/format.md`.
//!
//! Nothing here is secret or authenticated. Whatever is made again by it is opened and checked as if it had been read.

use crate::error::malformed;
use crate::pack::FOOTER_BYTES;
use crate::wire::Reader;
use crate::{HEADER_BYTES, Result};
use drumlin_seal::checksum;

const DIRECTORY: &str = "parity directory";
const MAGIC: &[u8; 8] = b"drumpar\x01";

/// Bytes of a shard: a sector of today's disks.
pub const SHARD_BYTES: usize = 4096;
/// The most recovery shards of one codeword.
pub const ROWS_MAX: u32 = 4;
/// Bytes of a directory's head.
pub const HEAD_BYTES: usize = 72;
/// Shards of a stripe.
pub const STRIPE_SHARDS: u32 = 4096;
/// Packs up to so many shards have one recovery shard and one directory.
pub const TINY_SHARDS: u32 = 16;
/// The most that has parity: more than a pack can have.
pub const DATA_BYTES_MAX: u64 = 2 << 30;
/// Each row of recovery shards of a codeword is for so many shards of it.
const SHARDS_A_ROW: u32 = 64;
const SUM_BYTES: usize = 4;
const CHECKSUM_BYTES: usize = 16;

/// Where a pack's shards and directories are: a function of how many bytes come before the parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    data_len: u64,
}

/// Some shards in a row that are coded together, `weave` codewords by turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripe {
    /// Its first data shard.
    pub first: u32,
    /// How many data shards it has.
    pub shards: u32,
    /// How many codewords: shard `i` of the stripe belongs to codeword `i % weave`.
    pub weave: u32,
    /// Recovery shards of each codeword: so many of its shards may be lost.
    pub rows: u32,
    /// Its first recovery shard. Of row `r` and codeword `c` it is the one at `r * weave + c` from there.
    pub first_recovery: u32,
}

impl Stripe {
    /// How many recovery shards it has.
    pub fn recovery(&self) -> u32 {
        self.rows * self.weave
    }

    /// How many data shards a codeword has.
    pub fn of_codeword(&self, codeword: u32) -> u32 {
        self.shards.saturating_sub(codeword).div_ceil(self.weave)
    }

    fn directory_len(&self) -> usize {
        (self.shards + self.recovery()) as usize * SUM_BYTES + CHECKSUM_BYTES
    }
}

impl Layout {
    /// The layout of a pack with `data_len` bytes before the parity: T + L. `None`: such a pack has no parity.
    pub fn of(data_len: u64) -> Option<Self> {
        (HEADER_BYTES as u64..=DATA_BYTES_MAX).contains(&data_len).then_some(Layout { data_len })
    }

    /// Bytes before the parity.
    pub fn data_len(&self) -> u64 {
        self.data_len
    }

    /// How many data shards there are; the last one ends with zeros that aren't in the pack.
    pub fn shards(&self) -> u32 {
        self.data_len.div_ceil(SHARD_BYTES as u64) as u32
    }

    /// Whether there is but one recovery shard: all data shards added up.
    pub fn is_tiny(&self) -> bool {
        self.shards() <= TINY_SHARDS
    }

    /// How many codewords a stripe has: as many lost shards in a row fall to different ones.
    pub fn weave(&self) -> u32 {
        match self.shards() {
            ..=256 => 1,
            257..=1024 => 4,
            _ => 16,
        }
    }

    /// The stripes in their order.
    pub fn stripes(&self) -> impl Iterator<Item = Stripe> + use<> {
        let (shards, weave, tiny) = (self.shards(), self.weave(), self.is_tiny());
        (0..shards.div_ceil(STRIPE_SHARDS)).map(move |number| {
            let first = number * STRIPE_SHARDS;
            let len = (shards - first).min(STRIPE_SHARDS);
            let least = if len > TINY_SHARDS * weave { 2 } else { 1 };
            let rows = if tiny { 1 } else { len.div_ceil(SHARDS_A_ROW * weave).max(least) };
            // Those before have all of their rows.
            Stripe { first, shards: len, weave, rows, first_recovery: number * weave * ROWS_MAX }
        })
    }

    /// How many recovery shards there are.
    pub fn recovery(&self) -> u32 {
        self.stripes().map(|s| s.recovery()).sum()
    }

    /// Bytes of a directory.
    pub fn directory_len(&self) -> usize {
        HEAD_BYTES + self.stripes().map(|s| s.directory_len()).sum::<usize>()
    }

    /// Where the directories begin in the pack: the last one ends where the footer begins.
    pub fn directories(&self) -> impl Iterator<Item = u64> + use<> {
        let first = self.data_len.next_multiple_of(SHARD_BYTES as u64);
        let last = self.recovery_offset(0) + u64::from(self.recovery()) * SHARD_BYTES as u64;
        (!self.is_tiny()).then_some(first).into_iter().chain([last])
    }

    /// Where a recovery shard begins in the pack.
    pub fn recovery_offset(&self, number: u32) -> u64 {
        let shard = SHARD_BYTES as u64;
        let directory = if self.is_tiny() { 0 } else { (self.directory_len() as u64).next_multiple_of(shard) };
        self.data_len.next_multiple_of(shard) + directory + u64::from(number) * shard
    }

    /// Bytes of parity: P.
    pub fn parity_len(&self) -> u32 {
        let recovery_end = self.recovery_offset(0) + u64::from(self.recovery()) * SHARD_BYTES as u64;
        (recovery_end + self.directory_len() as u64 - self.data_len) as u32
    }

    /// Bytes of the whole pack.
    pub fn pack_len(&self) -> u64 {
        self.data_len + u64::from(self.parity_len()) + FOOTER_BYTES as u64
    }
}

/// The sum of a shard: finds damage, proves nothing. Eight lanes of 64 bits, as fast as memory; a changed word always
/// changes its lane.
pub fn sum(shard: &[u8; SHARD_BYTES]) -> u32 {
    sum_of(shard)
}

/// The sum of any whole number of lines of 64 bytes; what is left over after them isn't looked at.
#[inline]
pub(crate) fn sum_of(bytes: &[u8]) -> u32 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |state: u64, word: u64| (state ^ word).rotate_left(29).wrapping_mul(FACTOR);
    let mut lanes = [1, 2, 3, 4, 5, 6, 7, 8];
    for line in bytes.as_chunks::<64>().0 {
        for (lane, word) in lanes.iter_mut().zip(line.as_chunks::<8>().0) {
            *lane = mix(*lane, u64::from_le_bytes(*word));
        }
    }
    (lanes.into_iter().fold(0, mix) >> 32) as u32
}

/// What a directory says of its pack: enough to make header and footer again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The pack's header.
    pub header: [u8; HEADER_BYTES],
    /// Where the sealed table begins: T.
    pub table_offset: u64,
    /// Bytes of the sealed table: L.
    pub table_len: u32,
}

impl Head {
    /// Its pack's layout; `None` if no pack has such lengths.
    pub fn layout(&self) -> Option<Layout> {
        Layout::of(self.table_offset.checked_add(u64::from(self.table_len))?)
    }

    fn encode(&self, parity_len: u32) -> [u8; HEAD_BYTES] {
        let mut out = [0; HEAD_BYTES];
        out[..8].copy_from_slice(MAGIC);
        out[8..16].copy_from_slice(&self.table_offset.to_le_bytes());
        out[16..20].copy_from_slice(&self.table_len.to_le_bytes());
        out[20..24].copy_from_slice(&parity_len.to_le_bytes());
        out[24..56].copy_from_slice(&self.header);
        let sum = checksum(&out[..56]);
        out[56..].copy_from_slice(&sum);
        out
    }

    /// Read the head that a directory begins with.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let Some(bytes) = bytes.first_chunk::<HEAD_BYTES>() else {
            return malformed(DIRECTORY, "it ends within its head");
        };
        if &bytes[..8] != MAGIC {
            return malformed(DIRECTORY, "it does not begin as one does");
        }
        if bytes[56..] != checksum(&bytes[..56]) {
            return malformed(DIRECTORY, "the checksum of its head is wrong");
        }
        let mut r = Reader::new(&bytes[8..56], DIRECTORY);
        let (table_offset, table_len) = (u64::from_le_bytes(r.array()?), u32::from_le_bytes(r.array()?));
        let parity_len = u32::from_le_bytes(r.array()?);
        let head = Head { header: r.array()?, table_offset, table_len };
        if head.layout().map(|layout| layout.parity_len()) != Some(parity_len) || table_offset < HEADER_BYTES as u64 {
            return malformed(DIRECTORY, "its lengths don't fit together");
        }
        Ok(head)
    }
}

/// The sums of a stripe's shards, as far as a directory tells them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sums {
    /// Of its data shards.
    pub data: Vec<u32>,
    /// Of its recovery shards.
    pub recovery: Vec<u32>,
}

/// Encode a directory; `sums` are those of the stripes in their order.
pub fn encode(head: &Head, layout: &Layout, sums: &[Sums]) -> Vec<u8> {
    let mut out = Vec::with_capacity(layout.directory_len());
    out.extend_from_slice(&head.encode(layout.parity_len()));
    for (number, sums) in sums.iter().enumerate() {
        let start = out.len();
        sums.data.iter().chain(&sums.recovery).for_each(|sum| out.extend_from_slice(&sum.to_le_bytes()));
        let check = stripe_checksum(&out[..HEAD_BYTES], number, &out[start..]);
        out.extend_from_slice(&check);
    }
    out
}

/// Read the sums of one stripe from a directory whose head is `head`; `None` if they are damaged, or `directory` ends
/// before.
pub fn decode_sums(head: &Head, layout: &Layout, number: usize, directory: &[u8]) -> Option<Sums> {
    let (mut at, mut stripes) = (HEAD_BYTES, layout.stripes());
    for before in stripes.by_ref().take(number) {
        at += before.directory_len();
    }
    let stripe = stripes.next()?;
    let bytes = directory.get(at..)?.get(..stripe.directory_len())?;
    let (sums, check) = bytes.split_last_chunk::<CHECKSUM_BYTES>()?;
    if *check != stripe_checksum(&head.encode(layout.parity_len()), number, sums) {
        return None;
    }
    let mut data: Vec<u32> = sums.as_chunks::<SUM_BYTES>().0.iter().map(|sum| u32::from_le_bytes(*sum)).collect();
    let recovery = data.split_off(stripe.shards as usize);
    Some(Sums { data, recovery })
}

/// Over the head too: what another pack's directory says is of no use here.
fn stripe_checksum(head: &[u8], number: usize, sums: &[u8]) -> [u8; CHECKSUM_BYTES] {
    checksum(&[head, &(number as u32).to_le_bytes(), sums].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::{PackKind, header};
    use crate::{PackId, pack};
    use drumlin_seal::Suite;
    use proptest::prelude::*;

    fn head(data_len: u64) -> Head {
        let header = header(PackKind::Data, Suite::Aes256Gcm, 0, PackId([9; 16])).encode();
        Head { header, table_offset: data_len - 20, table_len: 20 }
    }

    fn sums(layout: &Layout) -> Vec<Sums> {
        let numbers = |from: u32, count: u32| (from..from + count).map(|n| n.wrapping_mul(0x9e37_79b9)).collect();
        let of = |s: Stripe| Sums { data: numbers(s.first, s.shards), recovery: numbers(77, s.recovery()) };
        layout.stripes().map(of).collect()
    }

    #[test]
    fn a_pack_of_each_size_has_its_parts_side_by_side() {
        for data_len in (0..300).map(|n| 52 + n * 1000).chain((1..150).map(|n| n * 1_048_577)) {
            let layout = Layout::of(data_len).unwrap();
            let ends: Vec<u64> = layout.directories().map(|at| at + layout.directory_len() as u64).collect();
            assert_eq!(ends.last(), Some(&(layout.data_len() + u64::from(layout.parity_len()))), "{data_len}");
            assert!(ends.len() == 1 || ends[0] <= layout.recovery_offset(0));
            assert!(layout.directories().all(|at| at >= data_len && at % SHARD_BYTES as u64 == 0));
            assert_eq!(layout.recovery_offset(0) % SHARD_BYTES as u64, 0);
            let (mut data, mut recovery) = (0, 0);
            for stripe in layout.stripes() {
                assert_eq!((stripe.first, stripe.first_recovery), (data, recovery));
                assert!((1..=ROWS_MAX).contains(&stripe.rows));
                let words: Vec<u32> = (0..stripe.weave).map(|c| stripe.of_codeword(c)).collect();
                assert_eq!(words.iter().sum::<u32>(), stripe.shards);
                assert!(words.iter().all(|len| *len <= 64 * ROWS_MAX));
                data += stripe.shards;
                recovery += stripe.recovery();
            }
            assert_eq!((data, recovery), (layout.shards(), layout.recovery()));
        }
        assert!(Layout::of(31).is_none() && Layout::of(DATA_BYTES_MAX + 1).is_none() && Layout::of(u64::MAX).is_none());
        assert!(Layout::of(DATA_BYTES_MAX).is_some());
    }

    #[test]
    fn parity_costs_little() {
        let percent = |len: u64| Layout::of(len).unwrap().parity_len() as f64 / len as f64 * 100.0;
        assert!(percent(64 << 20) < 1.8, "{}", percent(64 << 20));
        assert!(percent((64 << 20) + 4096) < 2.1);
        for mib in 8..200 {
            assert!(percent(mib << 20) < 2.8, "{mib} MiB: {}", percent(mib << 20));
        }
        for kib in 200..8 << 10 {
            assert!(percent(kib << 10) < 8.0, "{kib} KiB: {}", percent(kib << 10));
        }
        assert_eq!(Layout::of(4096).unwrap().pack_len(), 3 * 4096 - 4096 + 72 + 8 + 16 + 48);
    }

    #[test]
    fn directories_round_trip_and_notice_every_flip() {
        for data_len in [100, 70_000, 2 << 20, 40 << 20] {
            let (head, layout) = (head(data_len), Layout::of(data_len).unwrap());
            let sums = sums(&layout);
            let bytes = encode(&head, &layout, &sums);
            assert_eq!(bytes.len(), layout.directory_len());
            assert_eq!(Head::decode(&bytes), Ok(head));
            assert_eq!(head.layout(), Some(layout));
            let read =
                |bytes: &[u8]| -> Vec<_> { (0..sums.len()).map(|n| decode_sums(&head, &layout, n, bytes)).collect() };
            assert!(read(&bytes).into_iter().map(Option::unwrap).eq(sums.iter().cloned()));
            assert_eq!(decode_sums(&head, &layout, sums.len(), &bytes), None);
            for at in (0..bytes.len()).step_by(bytes.len() / 300 + 1) {
                let mut bent = bytes.clone();
                bent[at] ^= 4;
                let whole = Head::decode(&bent).is_ok() && read(&bent).iter().all(Option::is_some);
                assert!(!whole, "byte {at} of {data_len}");
            }
            let other = Head { table_offset: head.table_offset - 1, table_len: 21, ..head };
            assert_eq!(decode_sums(&other, &layout, 0, &bytes), None, "another pack's");
        }
    }

    #[test]
    fn every_flipped_bit_changes_the_sum() {
        let mut shard = std::array::from_fn(|at| (at * 7 % 251) as u8);
        let right = sum(&shard);
        for at in 0..SHARD_BYTES {
            for bit in 0..8 {
                shard[at] ^= 1 << bit;
                assert_ne!(sum(&shard), right, "bit {bit} of byte {at}");
                shard[at] ^= 1 << bit;
            }
        }
        // The same bit of two words of one lane, the uppermost too.
        for bit in 0..8 {
            for at in (64..SHARD_BYTES).step_by(64) {
                shard[7] ^= 1 << bit;
                shard[at + 7] ^= 1 << bit;
                assert_ne!(sum(&shard), right, "bit {bit} of words 0 and {at}");
                shard[7] ^= 1 << bit;
                shard[at + 7] ^= 1 << bit;
            }
        }
        assert_eq!((right, sum(&[0; SHARD_BYTES])), (0xe71e_3d77, 0x4295_f356));
    }

    #[test]
    fn heads_of_no_pack_are_refused() {
        let good = head(5000);
        for bad in [
            Head { table_offset: 31, ..good },
            Head { table_offset: u64::MAX, ..good },
            Head { table_offset: DATA_BYTES_MAX, ..good },
        ] {
            let parity_len = bad.layout().map_or(0, |layout| layout.parity_len());
            assert!(Head::decode(&bad.encode(parity_len)).is_err(), "{bad:?}");
        }
        assert!(Head::decode(&good.encode(good.layout().unwrap().parity_len() + 1)).is_err());
        assert!(Head::decode(&good.encode(0)[..HEAD_BYTES - 1]).is_err());
    }

    proptest! {
        #[test]
        fn hostile_directories_never_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..400),
            data_len in 32u64..DATA_BYTES_MAX,
        ) {
            let _ = Head::decode(&bytes);
            let head = Head { header: [0; 32], table_offset: data_len, table_len: 0 };
            if let Some(layout) = head.layout() {
                prop_assert_eq!(decode_sums(&head, &layout, 0, &bytes), None);
            }
            let _ = pack::size_class(data_len);
        }
    }
}
