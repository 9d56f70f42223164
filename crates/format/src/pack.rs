//! A pack: blocks of chunks, a sealed table of contents, a fixed footer.
//!
//! ```text
//! header (32) | block … | sealed table | parity | footer (48)
//!
//! sealed table:  fresh (16) | sealed: key id (16), signature (64), table, zeros
//! ```
//!
//! A block is one message sealed under a pack's key. The key is sealed to the repository's public key and stands in the
//! table, in a *slot*: a pack that took blocks over from others, sealed as they were, has a slot for each origin, and all of
//! them are of its own generation. The table is signed by whoever wrote the pack.

use crate::error::malformed;
use crate::generation::IndexKeys;
use crate::signer::{ATTRIBUTION_BYTES, Sealing, Signer, shared_key_of};
use crate::wire::{Reader, Writer};
use crate::{ChunkId, Error, FRESH_BYTES, HEADER_BYTES, Header, ObjectType, PackId, Result};
use drumlin_seal::{TAG_BYTES, WRAPPED_BYTES, checksum};

const TABLE: &str = "pack table";
const FOOTER: &str = "pack footer";
const FOOTER_MAGIC: &[u8; 8] = b"drumend\x01";
/// Bytes of a footer.
pub const FOOTER_BYTES: usize = 48;
/// The purpose under which pack keys are sealed to a public key.
pub const WRAP_INFO: &[u8] = b"drumlin v1 pack key";
/// The part number of the table; the blocks count from 0 under keys of their own.
const TABLE_PART: u64 = 0;
/// The most that one block may hold, so that a hostile table can't make a reader allocate without limit.
pub const BLOCK_BYTES_MAX: u64 = 16 << 20;
/// The longest sealed table: a pack of 1 GiB of the smallest chunks has less.
pub const TABLE_BYTES_MAX: u32 = 256 << 20;
/// Sealed tables are so much longer than what is sealed: fresh bytes and tag.
const TABLE_EXTRA: usize = FRESH_BYTES + TAG_BYTES;
/// What is sealed is as long as a multiple of this.
const TABLE_STEP: usize = 1024;

/// How a block's bytes were coded before they were sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Codec {
    /// As they are.
    Raw = 0,
    /// One zstd frame (RFC 8878).
    Zstd = 1,
    /// Nothing but padding; holds no chunk.
    Padding = 2,
}

/// A pack key, sealed, and the pack for which it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The pack for which the key was made, of the same generation; its header is authenticated with each of its blocks.
    pub origin: PackId,
    /// The key as `drumlin_seal::PublicKey::wrap` made it (KEM number 1: HPKE with X-Wing).
    pub wrapped: Vec<u8>,
}

/// A block in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Which slot has its key.
    pub slot: u32,
    /// Its number under that key: the nonce.
    pub number: u64,
    /// How it is coded.
    pub codec: Codec,
    /// Where it begins in the pack, in bytes.
    pub offset: u64,
    /// Bytes in the pack, tag included.
    pub stored_len: u32,
    /// Bytes of its chunks together.
    pub raw_len: u32,
    /// Its first chunk in the table.
    pub first_chunk: u32,
    /// How many chunks it holds.
    pub chunks: u32,
}

/// A chunk in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Its identity.
    pub id: ChunkId,
    /// Its length in bytes.
    pub len: u32,
    /// Where it begins in its block, in bytes.
    pub offset: u32,
    /// The block that holds it.
    pub block: u32,
}

/// A pack's table of contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The keys.
    pub slots: Vec<Slot>,
    /// The blocks in the order in which they stand in the pack.
    pub blocks: Vec<Block>,
    /// The chunks in the order of their blocks.
    pub chunks: Vec<Chunk>,
}

impl Table {
    /// Append a block and its chunks, given as (id, length); offsets follow from what is there. Refuses what
    /// [`Table::decode`] would refuse of a single block.
    pub fn push(
        &mut self,
        slot: u32,
        number: u64,
        codec: Codec,
        stored_len: u32,
        raw_len: u32,
        chunks: &[(ChunkId, u32)],
    ) -> Result<()> {
        let place = |len| u32::try_from(len).or_else(|_| malformed(TABLE, "it has too many blocks or chunks"));
        let block = Block {
            slot,
            number,
            codec,
            offset: self.blocks_end(),
            stored_len,
            raw_len,
            first_chunk: place(self.chunks.len())?,
            chunks: place(chunks.len())?,
        };
        if slot as usize >= self.slots.len() {
            return malformed(TABLE, "a block names a key that isn't there");
        }
        block.check()?;
        let number = place(self.blocks.len())?;
        let sum = chunks
            .iter()
            .try_fold(0u32, |sum, (_, len)| sum.checked_add(*len).filter(|end| *len > 0 && *end <= raw_len));
        if sum != Some(raw_len) {
            return malformed(TABLE, "its chunks don't fill their block, or one is empty");
        }
        let mut offset = 0;
        for &(id, len) in chunks {
            self.chunks.push(Chunk { id, len, offset, block: number });
            offset += len;
        }
        self.blocks.push(block);
        Ok(())
    }

    /// Where the last block ends: where the sealed table begins, in bytes.
    pub fn blocks_end(&self) -> u64 {
        self.blocks.last().map_or(HEADER_BYTES as u64, |b| b.offset + u64::from(b.stored_len))
    }

    /// The bytes before sealing.
    pub fn encode(&self) -> Vec<u8> {
        let mut out =
            Vec::with_capacity(16 + self.slots.len() * 1200 + self.blocks.len() * 16 + self.chunks.len() * 36);
        out.varint(self.slots.len() as u64);
        for slot in &self.slots {
            out.extend_from_slice(&slot.origin.0);
            out.push(1);
            out.counted(&slot.wrapped);
        }
        out.varint(self.blocks.len() as u64);
        for block in &self.blocks {
            out.varint(u64::from(block.slot));
            out.varint(block.number);
            out.push(block.codec as u8);
            out.varint(u64::from(block.stored_len));
            out.varint(u64::from(block.raw_len));
            out.varint(u64::from(block.chunks));
        }
        for chunk in &self.chunks {
            out.extend_from_slice(&chunk.id.0);
        }
        for chunk in &self.chunks {
            out.varint(u64::from(chunk.len));
        }
        out
    }

    /// Read what [`Table::encode`] wrote, zero bytes behind it allowed.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut r = Reader::new(bytes, TABLE);
        let mut table = Table::default();
        for _ in 0..r.count(16 + 1 + WRAPPED_BYTES)? {
            let origin = PackId(r.array()?);
            if r.u8()? != 1 {
                return r.fail("a key is sealed in a way that this version doesn't know");
            }
            let wrapped = r.counted()?;
            if wrapped.len() != WRAPPED_BYTES {
                return r.fail("a sealed key has the wrong length");
            }
            table.slots.push(Slot { origin, wrapped: wrapped.to_vec() });
        }
        if has_twice(table.slots.iter().map(|s| s.origin)) {
            return r.fail("a pack's key stands in it twice");
        }
        let (mut offset, mut first_chunk) = (HEADER_BYTES as u64, 0u64);
        let blocks = r.count(6)?;
        table.blocks.reserve_exact(blocks);
        for _ in 0..blocks {
            let slot = r.u32()?;
            if slot as usize >= table.slots.len() {
                return r.fail("a block names a key that isn't there");
            }
            let number = r.varint()?;
            let codec = match r.u8()? {
                0 => Codec::Raw,
                1 => Codec::Zstd,
                2 => Codec::Padding,
                _ => return r.fail("a block is coded in a way that this version doesn't know"),
            };
            let (stored_len, raw_len, chunks) = (r.u32()?, r.u32()?, r.u32()?);
            let Ok(first) = u32::try_from(first_chunk) else {
                return r.fail("it counts more chunks than it holds");
            };
            let block = Block { slot, number, codec, offset, stored_len, raw_len, first_chunk: first, chunks };
            block.check()?;
            table.blocks.push(block);
            offset += u64::from(stored_len);
            first_chunk += u64::from(chunks);
        }
        if has_twice(table.blocks.iter().map(|b| (b.slot, b.number))) {
            return r.fail("two blocks under one key have the same number");
        }
        // An id takes 32 bytes and its length at least one: so this fits into memory's addresses too.
        let chunks = match usize::try_from(first_chunk) {
            Ok(chunks) if chunks <= r.remaining() / 33 => chunks,
            _ => return r.fail("it counts more chunks than it holds"),
        };
        let ids = r.take(chunks * 32)?;
        table.chunks.reserve_exact(chunks);
        let mut ids = ids.chunks_exact(32);
        for (number, block) in table.blocks.iter().enumerate() {
            let mut offset = 0u64;
            for _ in 0..block.chunks {
                let Some(Ok(id)) = ids.next().map(<[u8; 32]>::try_from) else {
                    return r.fail("it counts more chunks than it holds");
                };
                let len = r.u32()?;
                if len == 0 {
                    return r.fail("a chunk is empty");
                }
                table.chunks.push(Chunk { id: ChunkId(id), len, offset: offset as u32, block: number as u32 });
                offset += u64::from(len);
                if offset > u64::from(block.raw_len) {
                    return r.fail("its chunks are longer than their block");
                }
            }
            if offset != u64::from(block.raw_len) {
                return r.fail("its chunks don't fill their block");
            }
        }
        r.zeros_to_end()?;
        Ok(table)
    }

    /// How long the sealed table shall be, with room for one more block without chunks: what is sealed is then a multiple
    /// of 1 KiB, so that it tells little of what the pack holds.
    pub fn sealed_len(&self) -> usize {
        (ATTRIBUTION_BYTES + self.encode().len() + 32).next_multiple_of(TABLE_STEP) + TABLE_EXTRA
    }

    /// Sign the table of the pack of this header, and seal it, zero-padded so that it takes `sealed_len` bytes.
    pub fn seal(&self, header: &Header, sealed_len: usize, with: Sealing) -> Vec<u8> {
        let mut body = self.encode();
        body.resize(body.len().max(sealed_len.saturating_sub(ATTRIBUTION_BYTES + TABLE_EXTRA)), 0);
        let mut message = Vec::with_capacity(ATTRIBUTION_BYTES + body.len() + TAG_BYTES);
        message.extend_from_slice(&with.attribution(header, TABLE, &body));
        message.extend_from_slice(&body);
        with.seal_key(header, TABLE).seal(TABLE_PART, &header.encode(), &mut message);
        [&with.fresh[..], &message].concat()
    }

    /// Open and decode the sealed table of the pack of this header; whose word it is, is checked by [`Signer::verify`].
    pub fn open(header: &Header, keys: &impl IndexKeys, mut sealed: Vec<u8>) -> Result<(Self, Signer)> {
        let Some((fresh, sealed)) = sealed.split_first_chunk_mut::<FRESH_BYTES>() else {
            return malformed(TABLE, "it ends too early");
        };
        let message = shared_key_of(header, TABLE, keys, fresh)?
            .open(TABLE_PART, &header.encode(), sealed)
            .map_err(|source| Error::Seal { object: TABLE, source })?;
        let (signer, body) = Signer::split(header, TABLE, message)?;
        Ok((Table::decode(body)?, signer))
    }
}

impl Block {
    /// What its fields say together, apart from its chunks' lengths.
    fn check(&self) -> Result<()> {
        let (stored, raw) = (u64::from(self.stored_len), u64::from(self.raw_len));
        let tag = TAG_BYTES as u64;
        if stored < tag {
            return malformed(TABLE, "a block is shorter than its tag");
        }
        if stored.max(raw) > BLOCK_BYTES_MAX {
            return malformed(TABLE, "a block is too long");
        }
        match self.codec {
            Codec::Raw if stored != raw + tag => malformed(TABLE, "a raw block has another length than its contents"),
            Codec::Padding if (self.chunks, self.raw_len) != (0, 0) => malformed(TABLE, "padding has contents"),
            Codec::Raw | Codec::Zstd if self.chunks == 0 => malformed(TABLE, "a block has no chunks"),
            _ => Ok(()),
        }
    }
}

/// Whether a value occurs twice.
fn has_twice<T: Ord>(values: impl Iterator<Item = T> + Clone) -> bool {
    if values.clone().is_sorted_by(|a, b| a < b) {
        return false;
    }
    let mut values: Vec<T> = values.collect();
    values.sort_unstable();
    values.windows(2).any(|pair| pair[0] == pair[1])
}

/// The header of a pack of the generation of this tag: what is authenticated with its key and with each of its blocks.
pub fn header(kind: PackKind, suite: drumlin_seal::Suite, generation: u32, id: PackId) -> Header {
    Header::new(kind.object(), suite, id.0).of(generation)
}

/// What a pack holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PackKind {
    /// File contents.
    Data,
    /// Tree nodes and chunk lists.
    Tree,
}

impl PackKind {
    /// The object type of such packs.
    pub fn object(self) -> ObjectType {
        match self {
            PackKind::Data => ObjectType::DataPack,
            PackKind::Tree => ObjectType::TreePack,
        }
    }
}

/// The last bytes of a pack: where its table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    /// Where the sealed table begins, in bytes from the start of the pack.
    pub table_offset: u64,
    /// Bytes of the sealed table.
    pub table_len: u32,
    /// Bytes of parity behind the table; see [`crate::parity`].
    pub parity_len: u32,
    /// Bytes of the whole pack.
    pub pack_len: u64,
}

impl Footer {
    /// The footer of a pack with so many bytes of parity.
    pub fn new(table_offset: u64, table_len: u32, parity_len: u32) -> Self {
        let pack_len = table_offset + u64::from(table_len) + u64::from(parity_len) + FOOTER_BYTES as u64;
        Footer { table_offset, table_len, parity_len, pack_len }
    }

    /// The bytes; the checksum at their end covers the pack's header too.
    pub fn encode(&self, header: &Header) -> [u8; FOOTER_BYTES] {
        let mut out = [0; FOOTER_BYTES];
        out[..8].copy_from_slice(FOOTER_MAGIC);
        out[8..16].copy_from_slice(&self.table_offset.to_le_bytes());
        out[16..20].copy_from_slice(&self.table_len.to_le_bytes());
        out[20..24].copy_from_slice(&self.parity_len.to_le_bytes());
        out[24..32].copy_from_slice(&self.pack_len.to_le_bytes());
        let sum = footer_sum(&out, header);
        out[32..].copy_from_slice(&sum);
        out
    }

    /// Read the footer of a pack of `pack_len` bytes.
    pub fn decode(bytes: &[u8], header: &Header, pack_len: u64) -> Result<Self> {
        let Ok(bytes) = <&[u8; FOOTER_BYTES]>::try_from(bytes) else {
            return malformed(FOOTER, "it is not 48 bytes long");
        };
        if &bytes[..8] != FOOTER_MAGIC {
            return malformed(FOOTER, "it does not begin as a footer does; the pack may be cut short");
        }
        if bytes[32..] != footer_sum(bytes, header) {
            return malformed(FOOTER, "its checksum is wrong");
        }
        let mut r = Reader::new(&bytes[8..32], FOOTER);
        let footer = Footer {
            table_offset: u64::from_le_bytes(r.array()?),
            table_len: u32::from_le_bytes(r.array()?),
            parity_len: u32::from_le_bytes(r.array()?),
            pack_len: u64::from_le_bytes(r.array()?),
        };
        let end = [u64::from(footer.table_len), u64::from(footer.parity_len), FOOTER_BYTES as u64]
            .iter()
            .try_fold(footer.table_offset, |sum, len| sum.checked_add(*len));
        if footer.pack_len != pack_len || end != Some(pack_len) || footer.table_offset < HEADER_BYTES as u64 {
            return malformed(FOOTER, "its lengths don't add up to the pack's");
        }
        if footer.table_len > TABLE_BYTES_MAX {
            return malformed(FOOTER, "its table is too long");
        }
        Ok(footer)
    }
}

fn footer_sum(footer: &[u8; FOOTER_BYTES], header: &Header) -> [u8; 16] {
    checksum(&[&header.encode()[..], &footer[..32]].concat())
}

/// The size class of a pack of `len` bytes: the next multiple of 1/128 of the power of two below, at least of 4 KiB.
///
/// After Padmé (Nikitin et al., PETS 2019), a little finer: at most 0.8 % more bytes, and an observer learns only the class.
/// No pack is so long that there is no class: then it is all of 64 bits.
pub fn size_class(len: u64) -> u64 {
    let step = (1u64 << (63 - len.max(1).leading_zeros())) >> 7;
    len.checked_next_multiple_of(step.max(4096)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeyId;
    use drumlin_seal::{Secret, SigningKey, Suite};
    use proptest::prelude::*;

    fn sample() -> Table {
        let mut table = Table::default();
        table.slots.push(Slot { origin: PackId([1; 16]), wrapped: vec![5; 1168] });
        table.push(0, 0, Codec::Zstd, 120, 500, &[(ChunkId([1; 32]), 300), (ChunkId([2; 32]), 200)]).unwrap();
        table.push(0, 1, Codec::Raw, 1016, 1000, &[(ChunkId([3; 32]), 1000)]).unwrap();
        table.push(0, 2, Codec::Padding, 400, 0, &[]).unwrap();
        table
    }

    fn signing() -> SigningKey {
        SigningKey::new(Secret::new([2; 32])).unwrap()
    }

    #[test]
    fn tables_round_trip_and_know_their_offsets() {
        let table = sample();
        assert_eq!(Table::decode(&table.encode()).unwrap(), table);
        assert_eq!(table.blocks[1].offset, 152);
        assert_eq!(table.chunks[1], Chunk { id: ChunkId([2; 32]), len: 200, offset: 300, block: 0 });
        assert_eq!(table.blocks_end(), 32 + 120 + 1016 + 400);
        let header = header(PackKind::Data, Suite::Aes256Gcm, 0, PackId([9; 16]));
        let (index_key, signing) = (Secret::new([4; 32]), signing());
        let sealing =
            |fresh| Sealing { generation: 0, index_key: &index_key, key: KeyId([7; 16]), signing: &signing, fresh };
        let sealed = table.seal(&header, table.sealed_len(), sealing([1; 16]));
        assert_eq!(sealed.len(), table.sealed_len());
        assert_eq!(sealed.len() % 1024, 16 + TAG_BYTES);
        let (opened, signer) = Table::open(&header, &index_key, sealed.clone()).unwrap();
        assert_eq!((opened, signer.key), (table.clone(), KeyId([7; 16])));
        assert!(signer.verify(&signing.verifying()).is_ok());
        assert!(signer.verify(&SigningKey::new(Secret::new([3; 32])).unwrap().verifying()).is_err());
        let other = Header { id: [8; 16], ..header };
        assert!(Table::open(&other, &index_key, sealed.clone()).is_err(), "a table counts for its own pack only");
        for at in (0..sealed.len()).step_by(41) {
            let mut bent = sealed.clone();
            bent[at] ^= 1;
            assert!(Table::open(&header, &index_key, bent).is_err(), "byte {at}");
            assert!(Table::open(&header, &index_key, sealed[..at].to_vec()).is_err(), "cut to {at}");
        }
        let again = table.seal(&header, table.sealed_len(), sealing([2; 16]));
        assert_ne!(again[16..80], sealed[16..80], "the fresh bytes are in the key");
        assert_eq!(table.seal(&header, 0, sealing([3; 16])).len(), 16 + 80 + table.encode().len() + TAG_BYTES);
    }

    #[test]
    fn there_is_room_for_one_more_block_in_the_sealed_length() {
        let mut table = sample();
        for number in 3..200 {
            let len = table.sealed_len();
            table.push(0, u64::MAX - number, Codec::Padding, 16 << 20, 0, &[]).unwrap();
            let index_key = Secret::new([4; 32]);
            let signing = signing();
            let with = Sealing {
                generation: 0,
                index_key: &index_key,
                key: KeyId([7; 16]),
                signing: &signing,
                fresh: [1; 16],
            };
            let header = header(PackKind::Data, Suite::Aes256Gcm, 0, PackId([9; 16]));
            assert_eq!(table.seal(&header, len, with).len(), len);
        }
    }

    #[test]
    fn inconsistent_tables_are_refused() {
        for bend in [
            (|t: &mut Table| t.blocks[0].raw_len = 499) as fn(&mut Table),
            |t| t.blocks[0].raw_len = 501,
            |t| t.blocks[0].slot = 1,
            |t| t.blocks[0].stored_len = 15,
            |t| t.blocks[0].stored_len = u32::MAX,
            |t| t.blocks[0].chunks = 3,
            |t| t.blocks[2].chunks = u32::MAX,
            // Raw blocks are as long as their contents and a tag.
            |t| t.blocks[1].stored_len = 1015,
            |t| t.blocks[1].stored_len = 1017,
            // Padding has neither chunks nor contents, anything else has both.
            |t| t.blocks[2].raw_len = 1,
            |t| (t.blocks[1].codec, t.blocks[1].raw_len) = (Codec::Padding, 0),
            |t| t.blocks[2].codec = Codec::Zstd,
            |t| (t.blocks[2].codec, t.blocks[2].stored_len) = (Codec::Raw, 16),
            // Two blocks of one key and number, one behind the other or not.
            |t| t.blocks[1].number = 0,
            |t| t.blocks[2].number = 0,
            // Two chunks of which one has all the bytes.
            |t| (t.chunks[0].len, t.chunks[1].len) = (500, 0),
            |t| t.slots[0].wrapped.truncate(1167),
            |t| t.slots[0].wrapped.push(0),
            |t| t.slots[0].wrapped.clear(),
            |t| t.slots.push(t.slots[0].clone()),
        ] {
            let mut table = sample();
            bend(&mut table);
            assert!(Table::decode(&table.encode()).is_err(), "{table:?}");
        }
        let mut two = sample();
        two.slots.push(Slot { origin: PackId([2; 16]), ..two.slots[0].clone() });
        two.blocks[1].slot = 1;
        two.blocks[1].number = 0;
        assert_eq!(Table::decode(&two.encode()).unwrap(), two, "numbers count for each key apart");
        let bytes = sample().encode();
        for len in 0..bytes.len() {
            assert!(Table::decode(&bytes[..len]).is_err(), "cut to {len}");
        }
    }

    #[test]
    fn what_a_decoder_would_refuse_is_not_pushed() {
        let one = |len| [(ChunkId([1; 32]), len)];
        let mut table = sample();
        let before = table.clone();
        assert!(table.push(0, 3, Codec::Zstd, 100, 10, &one(11)).is_err());
        assert!(table.push(0, 3, Codec::Zstd, 100, 10, &one(9)).is_err());
        assert!(table.push(0, 3, Codec::Zstd, 100, 0, &one(0)).is_err());
        assert!(table.push(0, 3, Codec::Zstd, 100, 7, &[one(u32::MAX)[0], one(8)[0]]).is_err(), "a sum that wraps");
        assert!(table.push(0, 3, Codec::Zstd, 100, 0, &[]).is_err());
        assert!(table.push(0, 3, Codec::Raw, 10, 10, &one(10)).is_err());
        assert!(table.push(0, 3, Codec::Padding, 100, 10, &one(10)).is_err());
        assert!(table.push(1, 3, Codec::Zstd, 100, 10, &one(10)).is_err());
        assert!(table.push(0, 3, Codec::Zstd, (16 << 20) + 1, 10, &one(10)).is_err());
        assert_eq!(table, before);
        // The largest block that a config allows, as it is.
        let most = 2 * crate::config::GATHERED_BYTES_MAX - 1;
        table.push(0, 3, Codec::Raw, most + 16, most, &one(most)).unwrap();
        assert_eq!(Table::decode(&table.encode()).unwrap(), table);
    }

    #[test]
    fn footers_notice_every_flip() {
        let header = header(PackKind::Tree, Suite::Aes256Gcm, 0, PackId([9; 16]));
        let footer = Footer::new(1000, 2000, 0);
        let bytes = footer.encode(&header);
        assert_eq!(Footer::decode(&bytes, &header, 3048), Ok(footer));
        assert!(Footer::decode(&bytes, &header, 3049).is_err());
        let longest = Footer::new(1000, TABLE_BYTES_MAX, 0);
        assert!(Footer::decode(&longest.encode(&header), &header, longest.pack_len).is_ok());
        let longer = Footer::new(1000, TABLE_BYTES_MAX + 1, 0);
        assert!(Footer::decode(&longer.encode(&header), &header, longer.pack_len).is_err());
        for i in 0..FOOTER_BYTES {
            let mut bent = bytes;
            bent[i] ^= 0x10;
            assert!(Footer::decode(&bent, &header, 3048).is_err(), "byte {i}");
        }
    }

    #[test]
    fn size_classes_cost_little() {
        assert_eq!(size_class(1), 4096);
        assert_eq!(size_class(0), 0);
        assert_eq!((size_class(u64::MAX), size_class(u64::MAX - (1 << 40))), (u64::MAX, u64::MAX));
        assert_eq!(size_class(64 << 20), 64 << 20);
        assert_eq!(size_class((64 << 20) + 1), (64 << 20) + (512 << 10));
        for len in (1u64 << 20..100 << 20).step_by(777_777) {
            let class = size_class(len);
            assert!(class >= len && class - len <= len / 128 + 1 && size_class(class) == class);
        }
    }

    proptest! {
        #[test]
        fn hostile_tables_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = Table::decode(&bytes);
        }

        #[test]
        fn bent_tables_never_panic(at in 0usize..2000, value in any::<u8>()) {
            let mut bytes = sample().encode();
            let at = at % bytes.len();
            bytes[at] = value;
            if let Ok(table) = Table::decode(&bytes) {
                for chunk in &table.chunks {
                    let block = &table.blocks[chunk.block as usize];
                    prop_assert!(chunk.offset + chunk.len <= block.raw_len);
                }
            }
        }
    }
}
