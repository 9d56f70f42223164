//! An index object: the tables of some packs, gathered, so that a client learns of many packs by one read.
//!
//! ```text
//! header (32) | fresh (16) | length of the sealed hooks (4, little-endian) | sealed hooks (part 0) | sealed tables (part 1)
//!
//! part 0:  key id (16) | signature (64) | BLAKE3 hash of part 1 (32) | hooks | zeros
//! part 1:  tables | zeros
//! ```
//!
//! The hooks come first, so that a client which holds only those reads the start of the object alone. The signature is
//! on both parts: directly on the first, by its hash on the second.

use crate::error::malformed;
use crate::generation::IndexKeys;
use crate::pack::{FOOTER_BYTES, PackKind, TABLE_BYTES_MAX, Table};
use crate::signer::{ATTRIBUTION_BYTES, Sealing, Signer, shared_key_of};
use crate::wire::{Reader, Writer, varint_len};
use crate::{Error, FRESH_BYTES, HEADER_BYTES, Header, IndexId, ObjectType, PackId, Result};
use drumlin_seal::{TAG_BYTES, digest};

const OBJECT: &str = "index object";
/// Bytes before the sealed hooks.
pub const PREFIX_BYTES: usize = HEADER_BYTES + FRESH_BYTES + 4;
/// What is sealed is as long as a multiple of this.
const PART_STEP: usize = 1024;
/// The sealed hooks of one object are no longer than this: of the usual 64 Ki chunks they are some kilobytes, and of as
/// many packs four megabytes.
pub const HOOKS_BYTES_MAX: u32 = 64 << 20;
/// Bytes of the hash of the sealed tables' contents.
const HASH_BYTES: usize = 32;
/// Stands in the type of a pack whose generation follows, because it is not the first.
const TAGGED: u8 = 0x80;

/// What an index object says of one pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The pack.
    pub pack: PackId,
    /// What it holds.
    pub kind: PackKind,
    /// The tag of its generation.
    pub generation: u32,
    /// Bytes of the whole pack.
    pub pack_len: u64,
    /// Bytes of its sealed table, which begins where the table's blocks end.
    pub table_len: u32,
    /// Its table of contents.
    pub table: Table,
}

/// The hooks of one pack: the first 8 bytes of each chunk id that is a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hooks {
    /// The pack.
    pub pack: PackId,
    /// What it holds.
    pub kind: PackKind,
    /// The tag of its generation.
    pub generation: u32,
    /// Bytes of the whole pack.
    pub pack_len: u64,
    /// Where its sealed table begins.
    pub table_offset: u64,
    /// Bytes of its sealed table.
    pub table_len: u32,
    /// How many chunks it holds.
    pub chunks: u32,
    /// The hooks.
    pub hooks: Vec<u64>,
}

impl Entry {
    /// The hooks among the pack's chunk ids, in the table's order.
    fn hooks(&self) -> impl Iterator<Item = u64> {
        self.table.chunks.iter().filter(|c| c.id.is_hook()).map(|c| c.id.hook())
    }
}

/// Encode, sign and seal an index object.
pub fn seal(header: &Header, entries: &[Entry], with: Sealing) -> Vec<u8> {
    let key = with.seal_key(header, OBJECT);
    let context = header.encode();
    // The hash of the tables comes first, once they are there.
    let mut body = vec![0; HASH_BYTES];
    body.varint(entries.len() as u64);
    for entry in entries {
        body.extend_from_slice(&entry.pack.0);
        match entry.generation {
            0 => body.push(entry.kind.object() as u8),
            generation => {
                body.push(entry.kind.object() as u8 | TAGGED);
                body.extend_from_slice(&generation.to_le_bytes());
            }
        }
        body.varint(entry.pack_len);
        body.varint(entry.table.blocks_end());
        body.varint(u64::from(entry.table_len));
        body.varint(entry.table.chunks.len() as u64);
        body.varint(entry.hooks().count() as u64);
        entry.hooks().for_each(|hook| body.extend_from_slice(&hook.to_be_bytes()));
    }
    let hooks_len = (ATTRIBUTION_BYTES + body.len()).next_multiple_of(PART_STEP);
    body.resize(hooks_len - ATTRIBUTION_BYTES, 0);
    // Megabytes: written where they will stand, and nowhere else.
    let lens: Vec<usize> = entries.iter().map(|entry| entry.table.encoded_len()).collect();
    let table_len = |len: &usize| varint_len(*len as u64) + len;
    let tables_len = varint_len(entries.len() as u64) + lens.iter().map(table_len).sum::<usize>();
    let (hooks_end, tables_len) = (PREFIX_BYTES + hooks_len + TAG_BYTES, tables_len.next_multiple_of(PART_STEP));
    let mut out = Vec::with_capacity(hooks_end + tables_len + TAG_BYTES);
    let len = u32::try_from(hooks_len + TAG_BYTES).expect("the hooks of one object's packs stay far below 4 GiB");
    out.extend_from_slice(&context);
    out.extend_from_slice(&with.fresh);
    out.extend_from_slice(&len.to_le_bytes());
    out.resize(hooks_end, 0);
    out.varint(entries.len() as u64);
    for (entry, len) in entries.iter().zip(lens) {
        out.varint(len as u64);
        entry.table.encode_to(&mut out);
    }
    out.resize(hooks_end + tables_len, 0);
    body[..HASH_BYTES].copy_from_slice(&digest(&out[hooks_end..]));
    let mut hooks = [&with.attribution(header, OBJECT, &body)[..], &body].concat();
    key.seal(0, &context, &mut hooks);
    out[PREFIX_BYTES..hooks_end].copy_from_slice(&hooks);
    let tag = key.seal_detached(1, &context, &mut out[hooks_end..]);
    out.extend_from_slice(&tag);
    out
}

/// How long the sealed hooks are, from the first [`PREFIX_BYTES`] of the object. Nothing vouches for that number yet,
/// and memory is taken by it.
///
/// # Errors
/// The object is shorter than that, or says more than [`HOOKS_BYTES_MAX`].
pub fn hooks_len(prefix: &[u8]) -> Result<u32> {
    let len = match prefix.get(PREFIX_BYTES - 4..PREFIX_BYTES).map(<[u8; 4]>::try_from) {
        Some(Ok(len)) => u32::from_le_bytes(len),
        _ => return malformed(OBJECT, "it ends too early"),
    };
    if len > HOOKS_BYTES_MAX {
        return malformed(OBJECT, "its hooks are longer than any are");
    }
    Ok(len)
}

/// Open the hooks alone, from the start of an object (as many bytes as [`hooks_len`] asks for, or more). Whose word
/// they are is checked by [`Signer::verify`].
pub fn open_hooks(id: IndexId, keys: &impl IndexKeys, object: &[u8]) -> Result<(Vec<Hooks>, Signer)> {
    let parts = Parts::of(id, object)?;
    let (hooks, _, signer) = parts.open_hooks(keys)?;
    Ok((hooks, signer))
}

/// Open the whole object; whose word it is, is checked by [`Signer::verify`].
pub fn open(id: IndexId, keys: &impl IndexKeys, object: &[u8]) -> Result<(Vec<Entry>, Signer)> {
    let parts = Parts::of(id, object)?;
    let (hooks, tables_digest, signer) = parts.open_hooks(keys)?;
    let bytes = parts.open_part(keys, 1, parts.tables)?;
    if digest(&bytes) != tables_digest {
        return malformed(OBJECT, "its second part is not the one that its first part was signed with");
    }
    let mut r = Reader::new(&bytes, OBJECT);
    if r.count(1)? != hooks.len() {
        return r.fail("its two parts name different packs");
    }
    let entries = hooks
        .into_iter()
        .map(|pack| {
            let table = Table::decode(r.counted()?)?;
            let Hooks { pack: id, kind, generation, pack_len, table_len, .. } = pack;
            let entry = Entry { pack: id, kind, generation, pack_len, table_len, table };
            if entry.table.blocks_end() != pack.table_offset
                || entry.table.chunks.len() as u64 != u64::from(pack.chunks)
                || !entry.hooks().eq(pack.hooks)
            {
                return r.fail("its two parts contradict each other");
            }
            Ok(entry)
        })
        .collect::<Result<_>>()?;
    r.zeros_to_end()?;
    Ok((entries, signer))
}

/// An object cut into its parts, still sealed.
struct Parts<'a> {
    header: Header,
    fresh: [u8; FRESH_BYTES],
    hooks: &'a [u8],
    /// Empty if only the start of the object is there.
    tables: &'a [u8],
}

impl<'a> Parts<'a> {
    fn of(id: IndexId, object: &'a [u8]) -> Result<Self> {
        let header = Header::expect(object, ObjectType::Index, &id.0)?;
        let parts = object.split_at_checked(PREFIX_BYTES).and_then(|(prefix, rest)| {
            let len = usize::try_from(hooks_len(prefix).ok()?).ok()?;
            let (hooks, tables) = rest.split_at_checked(len)?;
            let fresh = *prefix[HEADER_BYTES..].first_chunk()?;
            Some(Parts { header, fresh, hooks, tables })
        });
        parts.map_or_else(|| malformed(OBJECT, "it ends within its hooks"), Ok)
    }

    /// The hooks, the digest of the other part, and who signed both.
    fn open_hooks(&self, keys: &impl IndexKeys) -> Result<(Vec<Hooks>, [u8; 32], Signer)> {
        let bytes = self.open_part(keys, 0, self.hooks)?;
        let (signer, body) = Signer::split(&self.header, OBJECT, &bytes)?;
        let mut r = Reader::new(body, OBJECT);
        let tables_digest = r.array()?;
        let packs = (0..r.count(22)?).map(|_| pack_hooks(&mut r)).collect::<Result<_>>()?;
        r.zeros_to_end()?;
        Ok((packs, tables_digest, signer))
    }

    fn open_part(&self, keys: &impl IndexKeys, part: u64, sealed: &[u8]) -> Result<Vec<u8>> {
        let mut bytes = sealed.to_vec();
        let len = shared_key_of(&self.header, OBJECT, keys, &self.fresh)?
            .open(part, &self.header.encode(), &mut bytes)
            .map_err(|source| Error::Seal { object: OBJECT, source })?
            .len();
        bytes.truncate(len);
        Ok(bytes)
    }
}

fn pack_hooks(r: &mut Reader) -> Result<Hooks> {
    let (pack, kind) = (PackId(r.array()?), r.u8()?);
    let generation = if kind & TAGGED == 0 { 0 } else { u32::from_le_bytes(r.array()?) };
    if kind & TAGGED != 0 && generation == 0 {
        return r.fail("it says twice that a pack is of the first generation");
    }
    let pack = Hooks {
        pack,
        kind: match kind & !TAGGED {
            3 => PackKind::Data,
            4 => PackKind::Tree,
            _ => return r.fail("it names a pack of no known kind"),
        },
        generation,
        pack_len: r.varint()?,
        table_offset: r.varint()?,
        table_len: r.u32()?,
        chunks: r.u32()?,
        hooks: (0..r.count(8)?).map(|_| r.array().map(u64::from_be_bytes)).collect::<Result<_>>()?,
    };
    let end = pack.table_offset.checked_add(u64::from(pack.table_len) + FOOTER_BYTES as u64);
    // What is between table and footer is parity, of a kind that may be newer than this program.
    let parity = end.and_then(|end| pack.pack_len.checked_sub(end));
    if parity.is_none_or(|len| len > u64::from(u32::MAX)) || pack.table_offset < HEADER_BYTES as u64 {
        return r.fail("a pack's lengths don't add up");
    }
    if pack.table_len > TABLE_BYTES_MAX {
        return r.fail("a pack's table is too long");
    }
    Ok(pack)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::{Codec, Slot};
    use crate::{ChunkId, KeyId};
    use drumlin_seal::{SealKey, Secret, SigningKey, Suite, derive};

    const ID: IndexId = IndexId([7; 16]);

    fn sample() -> Vec<Entry> {
        let mut table = Table::default();
        table.slots.push(Slot { origin: PackId([1; 16]), wrapped: vec![5; 1168] });
        let chunks: Vec<_> = (0..=255u8).map(|b| (ChunkId([b; 32]), 10)).collect();
        table.push(0, 0, Codec::Zstd, 100, 2560, &chunks).unwrap();
        let entry = Entry {
            pack: PackId([1; 16]),
            kind: PackKind::Data,
            generation: 0,
            pack_len: 132 + 3048,
            table_len: 3000,
            table,
        };
        vec![entry.clone(), Entry { pack: PackId([2; 16]), kind: PackKind::Tree, ..entry }]
    }

    fn header() -> Header {
        Header::new(ObjectType::Index, Suite::Aes256Gcm, ID.0)
    }

    fn sealed(entries: &[Entry], fresh: [u8; 16]) -> (Vec<u8>, Secret, SigningKey) {
        let (index_key, signing) = (Secret::new([4; 32]), SigningKey::new(Secret::new([5; 32])).unwrap());
        let with = Sealing { generation: 0, index_key: &index_key, key: KeyId([6; 16]), signing: &signing, fresh };
        let object = seal(&header(), entries, with);
        (object, index_key, signing)
    }

    #[test]
    fn round_trip_whole_and_hooks_alone() {
        let (object, key, signing) = sealed(&sample(), [9; 16]);
        let (entries, signer) = open(ID, &key, &object).unwrap();
        assert_eq!((entries, signer.key), (sample(), KeyId([6; 16])));
        assert!(signer.verify(&signing.verifying()).is_ok());
        assert!(signer.verify(&SigningKey::new(Secret::new([6; 32])).unwrap().verifying()).is_err());
        // Nobody has signed that number when memory is taken by it.
        let mut long = object[..PREFIX_BYTES].to_vec();
        long[PREFIX_BYTES - 4..].copy_from_slice(&(HOOKS_BYTES_MAX + 1).to_le_bytes());
        assert!(hooks_len(&long).is_err() && hooks_len(&long[..PREFIX_BYTES - 1]).is_err());
        let start = &object[..PREFIX_BYTES + hooks_len(&object).unwrap() as usize];
        let (hooks, signer) = open_hooks(ID, &key, start).unwrap();
        assert!(signer.verify(&signing.verifying()).is_ok(), "one part alone tells who signed both");
        assert_eq!(hooks.len(), 2);
        assert_eq!(hooks[0].hooks, [0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303]);
        assert_eq!((hooks_len(&object).unwrap() % 1024, object.len() % 1024), (16, PREFIX_BYTES + 32), "padded");
        assert!(open(IndexId([8; 16]), &key, &object).is_err());
        assert!(open(ID, &Secret::new([5; 32]), &object).is_err());
        for len in (0..object.len()).step_by(13) {
            assert!(open(ID, &key, &object[..len]).is_err(), "cut to {len}");
        }
        for at in (0..object.len()).step_by(13) {
            let mut bent = object.clone();
            bent[at] ^= 4;
            assert!(open(ID, &key, &bent).is_err(), "flipped at {at}");
        }
        let (again, ..) = sealed(&sample(), [8; 16]);
        assert_ne!(again[PREFIX_BYTES..][..64], object[PREFIX_BYTES..][..64], "the fresh bytes are in the key");
    }

    #[test]
    fn an_object_of_no_packs_is_one() {
        let (object, key, _) = sealed(&[], [9; 16]);
        assert_eq!(open(ID, &key, &object).unwrap().0, []);
    }

    /// The object with its parts' plaintexts changed, sealed again: by somebody who has the index secret.
    fn forged(entries: &[Entry], bend: impl Fn(&mut Vec<u8>, &mut Vec<u8>)) -> (Vec<u8>, Secret) {
        let (object, key, _) = sealed(entries, [9; 16]);
        let part_key = SealKey::new(Suite::Aes256Gcm, &derive(&key, "index object", &object[..48]));
        let at = PREFIX_BYTES + hooks_len(&object).unwrap() as usize;
        let plain = |part, sealed: &[u8]| part_key.open(part, &object[..32], &mut sealed.to_vec()).unwrap().to_vec();
        let (mut hooks, mut tables) = (plain(0, &object[PREFIX_BYTES..at]), plain(1, &object[at..]));
        bend(&mut hooks, &mut tables);
        part_key.seal(0, &object[..32], &mut hooks);
        part_key.seal(1, &object[..32], &mut tables);
        let len = (hooks.len() as u32).to_le_bytes();
        ([&object[..48], &len, &hooks, &tables].concat(), key)
    }

    #[test]
    fn parts_that_contradict_each_other_are_refused() {
        let (same, key) = forged(&sample(), |_, _| {});
        assert!(open(ID, &key, &same).is_ok());
        let fix = |hooks: &mut Vec<u8>, tables: &[u8]| hooks[80..112].copy_from_slice(&digest(tables));
        let (tables_of_another, key) = forged(&sample(), |_, tables| *tables.last_mut().unwrap() = 1);
        assert!(open(ID, &key, &tables_of_another).is_err(), "the second part is not the signed one");
        let (padding, key) = forged(&sample(), |hooks, tables| {
            *tables.last_mut().unwrap() = 1;
            fix(hooks, tables);
        });
        assert!(open(ID, &key, &padding).is_err(), "padding is zero");
        let (hook, key) = forged(&sample(), |hooks, _| {
            let at = hooks.windows(8).position(|w| w == [3; 8]).unwrap();
            hooks[at + 7] = 4;
        });
        assert!(open_hooks(ID, &key, &hook).is_ok() && open(ID, &key, &hook).is_err(), "a hook that no chunk has");
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        for (pack_len, table_len) in [(132 + 3048 + (1 << 32), 3000), (132 + 3047, 3000), (u64::MAX, 3000), (100, 0)] {
            let entries = [Entry { pack_len, table_len, ..sample().remove(0) }];
            let (object, key, _) = sealed(&entries, [9; 16]);
            assert!(open(ID, &key, &object).is_err() && open_hooks(ID, &key, &object).is_err(), "{pack_len}");
        }
        let table_len = TABLE_BYTES_MAX + 1;
        let longer = [Entry { pack_len: 132 + 3048 + 5000, ..sample().remove(0) }];
        let (object, key, _) = sealed(&longer, [1; 16]);
        assert_eq!(open(ID, &key, &object).unwrap().0, longer, "parity of whatever length");
        let entries = [Entry { pack_len: 132 + 48 + u64::from(table_len), table_len, ..sample().remove(0) }];
        let (object, key, _) = sealed(&entries, [9; 16]);
        assert!(open(ID, &key, &object).is_err(), "a table that nobody would allocate");
    }
}
