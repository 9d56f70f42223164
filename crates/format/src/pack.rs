//! A pack: blocks of chunks, a sealed table of contents, a fixed footer.
//!
//! ```text
//! header (32) | block … | sealed table | parity | footer (48)
//!
//! sealed table:  fresh (16) | sealed: key id (16), signature (64), table, zeros
//! ```
//!
//! A block is one message sealed under a pack's key. The key is sealed to the repository's public key and stands in the
//! table, in a *slot*: a pack that took blocks over from others, sealed as they were, has a slot for each origin, and
//! all of them are of its own generation. The table is signed by whoever wrote the pack.

use crate::error::malformed;
use crate::generation::IndexKeys;
use crate::signer::{ATTRIBUTION_BYTES, Sealing, Signer, shared_key_of};
use crate::wire::{Reader, Writer, varint_len};
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
    /// The pack for which the key was made, of the same generation; its header is authenticated with each of its
    /// blocks.
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
        let mut out = Vec::with_capacity(self.encoded_len());
        self.encode_to(&mut out);
        out
    }

    /// How many they are: of a pack of tiny chunks two megabytes, which aren't to be written only to be counted.
    pub(crate) fn encoded_len(&self) -> usize {
        let slot = |slot: &Slot| slot.origin.0.len() + 1 + varint_len(slot.wrapped.len() as u64) + slot.wrapped.len();
        let block = |block: &Block| {
            let numbers = [block.slot, block.stored_len, block.raw_len, block.chunks].map(u64::from);
            1 + varint_len(block.number) + numbers.into_iter().map(varint_len).sum::<usize>()
        };
        let chunk = |chunk: &Chunk| chunk.id.0.len() + varint_len(u64::from(chunk.len));
        varint_len(self.slots.len() as u64)
            + varint_len(self.blocks.len() as u64)
            + self.slots.iter().map(slot).sum::<usize>()
            + self.blocks.iter().map(block).sum::<usize>()
            + self.chunks.iter().map(chunk).sum::<usize>()
    }

    pub(crate) fn encode_to(&self, out: &mut Vec<u8>) {
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

    /// How long the sealed table shall be, with room for one more block without chunks: what is sealed is then a
    /// multiple of 1 KiB, so that it tells little of what the pack holds.
    pub fn sealed_len(&self) -> usize {
        (ATTRIBUTION_BYTES + self.encoded_len() + 32).next_multiple_of(TABLE_STEP) + TABLE_EXTRA
    }

    /// Sign the table of the pack of this header, and seal it, zero-padded so that it takes `sealed_len` bytes.
    pub fn seal(&self, header: &Header, sealed_len: usize, with: Sealing) -> Vec<u8> {
        let end = (FRESH_BYTES + ATTRIBUTION_BYTES + self.encoded_len()).max(sealed_len.saturating_sub(TAG_BYTES));
        let mut out = Vec::with_capacity(end + TAG_BYTES);
        out.extend_from_slice(&with.fresh);
        out.resize(FRESH_BYTES + ATTRIBUTION_BYTES, 0);
        self.encode_to(&mut out);
        out.resize(end, 0);
        let message = &mut out[FRESH_BYTES..];
        let (attribution, body) = message.split_at_mut(ATTRIBUTION_BYTES);
        attribution.copy_from_slice(&with.attribution(header, TABLE, body));
        let tag = with.seal_key(header, TABLE).seal_detached(TABLE_PART, &header.encode(), message);
        out.extend_from_slice(&tag);
        out
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
        // Whatever it is coded by: what isn't worth its compression is stored as it is when it is sealed anew.
        if stored.max(raw + tag) > BLOCK_BYTES_MAX {
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
/// After Padmé (Nikitin et al., PETS 2019), a little finer: at most 0.8 % more bytes, and an observer learns only the
/// class. No pack is so long that there is no class: then it is all of 64 bits.
pub fn size_class(len: u64) -> u64 {
    let step = (1u64 << (63 - len.max(1).leading_zeros())) >> 7;
    len.checked_next_multiple_of(step.max(4096)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
