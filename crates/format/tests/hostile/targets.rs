//! One function for each decoder: hostile bytes in, and whether they were taken for something. It panics if the decoder
//! does, if that takes memory out of proportion, or if what was decoded does not come back from its own encoding.
//!
//! Sealed objects begin with a byte that says how deep the rest goes: 0 is the object as the storage has it, more is what
//! stands inside, sealed, signed and summed up by us as somebody would who has the keys.

use super::memory::bounded;
use drumlin_format::config::{ChunkSizes, Config};
use drumlin_format::decision::{self, Verdict};
use drumlin_format::index::{self, Entry};
use drumlin_format::key::{KeyObject, KeyParts, Lock, Role, Secrets};
use drumlin_format::key_file::{self, KeyFile};
use drumlin_format::pack::{self, Codec, FOOTER_BYTES, Footer, PackKind, Slot, Table};
use drumlin_format::plan::Plan;
use drumlin_format::session::Session;
use drumlin_format::snapshot::{self, Reached, Root, Snapshot, Summary};
use drumlin_format::tree::{
    Body, Child, Content, Data, Inner, Kind, Leaf, List, ListNode, Meta, Ref, Sums, Time, Xattrs, is_dir_path, is_name,
};
use drumlin_format::{
    ChunkId, Header, IndexId, KeyId, ObjectType, PackId, PlanId, RepositoryId, Sealing, SessionId, SnapshotId,
};
use drumlin_seal::{PassphraseCost, PrivateKey, SealKey, Secret, SigningKey, Suite, checksum, derive, digest};
use minicbor::{Decoder, Encoder};
use std::sync::LazyLock;

/// A decoder and what to begin with.
pub struct Target {
    /// Its name.
    pub name: &'static str,
    /// Decode; whether it was something.
    pub run: fn(&[u8]) -> bool,
    /// Valid inputs.
    pub samples: fn() -> Vec<Vec<u8>>,
}

/// All of them.
pub const ALL: [Target; 15] = [
    Target { name: "leaf", run: leaf, samples: leaf_samples },
    Target { name: "body", run: body, samples: body_samples },
    Target { name: "inner", run: inner, samples: inner_samples },
    Target { name: "list", run: list, samples: list_samples },
    Target { name: "table", run: table, samples: table_samples },
    Target { name: "footer", run: footer, samples: footer_samples },
    Target { name: "index", run: index, samples: index_samples },
    Target { name: "config", run: config, samples: config_samples },
    Target { name: "key_object", run: key_object, samples: key_object_samples },
    Target { name: "key_file", run: key_file, samples: key_file_samples },
    Target { name: "recovery", run: recovery, samples: recovery_samples },
    Target { name: "snapshot", run: snapshot, samples: snapshot_samples },
    Target { name: "session", run: session, samples: session_samples },
    Target { name: "decision", run: decision, samples: decision_samples },
    Target { name: "plan", run: plan, samples: plan_samples },
];

const SUITE: Suite = Suite::Aes256Gcm;
const FRESH: [u8; 16] = [9; 16];
const KEY: KeyId = KeyId([2; 16]);
const REPOSITORY: RepositoryId = RepositoryId([1; 16]);

/// Shared prefixes make up to 4 MiB of text out of little (each entry may repeat what came before it), and it is moved
/// while it grows.
fn node_text(len: usize) -> usize {
    3 * (len * len / 8).min(4 << 20) + 4096
}

struct Keys {
    index: Secret,
    signing: SigningKey,
    owner: SigningKey,
    meta: PrivateKey,
    /// A key for small objects, and the same sealed to the metadata key for a snapshot of id 5….
    small: Secret,
    small_wrapped: Vec<u8>,
}

static KEYS: LazyLock<Keys> = LazyLock::new(|| {
    let meta = PrivateKey::new(secret(5)).unwrap();
    let small = secret(6);
    let header = Header::new(ObjectType::Snapshot, SUITE, [5; 16]).encode();
    let small_wrapped = meta.public().wrap(&small, b"drumlin v1 small object key", &header, &secret(7)).unwrap();
    Keys { index: secret(1), signing: signing(2), owner: signing(3), meta, small, small_wrapped }
});

fn secret(byte: u8) -> Secret {
    Secret::new([byte; 32])
}

fn signing(byte: u8) -> SigningKey {
    SigningKey::new(secret(byte)).unwrap()
}

fn sealing() -> Sealing<'static> {
    Sealing { index_key: &KEYS.index, key: KEY, signing: &KEYS.signing, fresh: FRESH }
}

/// The depth, and what stands there.
fn depth(bytes: &[u8], depths: u8) -> (u8, &[u8]) {
    bytes.split_first().map_or((0, bytes), |(depth, rest)| (depth % depths, rest))
}

fn at_depth(depth: u8, bytes: &[u8]) -> Vec<u8> {
    [&[depth], bytes].concat()
}

/// As a key shared by all roles seals it, behind header and fresh bytes.
fn sealed(header: &Header, purpose: &str, part: u64, plain: &[u8]) -> Vec<u8> {
    let key = derive(&KEYS.index, purpose, &[&header.encode()[..], &FRESH].concat());
    let mut message = plain.to_vec();
    SealKey::new(header.suite, &key).seal(part, &header.encode(), &mut message);
    message
}

/// The opposite.
fn unsealed(header: &Header, purpose: &str, part: u64, sealed: &[u8]) -> Vec<u8> {
    let key = derive(&KEYS.index, purpose, &[&header.encode()[..], &FRESH].concat());
    let mut message = sealed.to_vec();
    SealKey::new(header.suite, &key).open(part, &header.encode(), &mut message).unwrap().to_vec()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

/// A body as small objects have it: signed (the signature is looked at by nobody here), behind its length.
fn message(body: &[u8]) -> Vec<u8> {
    let mut signed = Vec::new();
    let mut encoder = Encoder::new(&mut signed);
    encoder.array(3).unwrap().bytes(&KEY.0).unwrap().bytes(&[0; 64]).unwrap().bytes(body).unwrap();
    [varint(signed.len() as u64), signed].concat()
}

/// A small object for every role, of which the depth gives the object, the message or the body.
fn shared_object(header: &Header, bytes: &[u8]) -> Vec<u8> {
    let message = match depth(bytes, 3) {
        (0, object) => return object.to_vec(),
        (1, plain) => plain.to_vec(),
        (_, body) => message(body),
    };
    [&header.encode()[..], &FRESH, &sealed(header, "small object", 0, &message)].concat()
}

fn shared_samples(object: &[u8], body: &[u8]) -> Vec<Vec<u8>> {
    vec![at_depth(0, object), at_depth(1, &message(body)), at_depth(2, body)]
}

/// The worst is a vector of empty strings: a byte each, in memory 24, and the vector doubles.
fn small(len: usize) -> usize {
    64 * len + 4096
}

fn meta(kind: Kind) -> Meta {
    Meta {
        kind,
        mode: 0o644,
        marks: 0,
        uid: 1000,
        gid: 100,
        size: 0,
        mtime: Time { sec: 1_700_000_000, nsec: 7 },
        ctime: Time { sec: 1_700_000_200, nsec: 9 },
        btime: Some(Time { sec: 1_600_000_000, nsec: 999_999_999 }),
        ino: 50,
        nlink: 1,
        filesystem: 0,
        rdev: 0,
    }
}

/// One entry of each kind.
fn sample_leaf() -> Leaf {
    let mut leaf = Leaf::default();
    leaf.push(b"", b"home", &meta(Kind::Dir));
    leaf.push(b"home", b"abc", &Meta { size: 5, ..meta(Kind::File) });
    leaf.push(b"home", b"abd", &Meta { size: 100, nlink: 2, filesystem: 3, ino: 40, ..meta(Kind::File) });
    leaf.push(b"home", b"empty", &Meta { btime: None, ..meta(Kind::File) });
    leaf.push(b"home", b"link", &Meta { size: 3, mode: 0o777, uid: 0, ..meta(Kind::Symlink) });
    leaf.push(b"home\0u", b"dev", &Meta { rdev: 0x801, ..meta(Kind::BlockDevice) });
    leaf.push(b"home\0u", b"gone", &Meta { size: 9, marks: 1, ..meta(Kind::File) });
    leaf.push(b"home\0uu", b"\xff", &Meta { mtime: Time { sec: -5, nsec: 0 }, ..meta(Kind::Fifo) });
    leaf.owners.users.push((0, b"root".to_vec()));
    leaf.owners.users.push((1000, b"u".to_vec()));
    leaf.owners.groups.push((100, b"users".to_vec()));
    leaf
}

/// A leaf's chunk.
pub fn leaf(bytes: &[u8]) -> bool {
    let most = 40 * bytes.len() + node_text(bytes.len());
    let Ok(leaf) = bounded(most, || Leaf::decode(bytes)) else { return false };
    assert!(!leaf.is_empty());
    assert!(leaf.iter().all(|(dir, name, _)| is_dir_path(dir) && is_name(name)));
    assert!(leaf.iter().is_sorted_by(|a, b| (a.0, a.1) < (b.0, b.1)));
    assert_eq!(leaf.sums().entries, leaf.len() as u64);
    assert_eq!(Leaf::decode(&leaf.encode()).as_ref(), Ok(&leaf));
    true
}

fn leaf_samples() -> Vec<Vec<u8>> {
    let mut long = Leaf::default();
    for at in 0..300u64 {
        let dir = format!("dir{}", at / 100);
        long.push(dir.as_bytes(), format!("file {at:04}").as_bytes(), &Meta { ino: at * 3, ..meta(Kind::File) });
    }
    vec![sample_leaf().encode(), long.encode()]
}

/// The length of a leaf's chunk in two bytes (little-endian), that chunk, and its body's.
pub fn body(bytes: &[u8]) -> bool {
    let Some((len, rest)) = bytes.split_first_chunk::<2>() else { return false };
    let Some((leaf, bytes)) = rest.split_at_checked(u16::from_le_bytes(*len).into()) else { return false };
    // Where the leaf is nothing, the body is still worth a try.
    let leaf = Leaf::decode(leaf).unwrap_or_else(|_| sample_leaf());
    let most = 200 * leaf.len() + 64 * bytes.len() + 4096;
    let Ok(body) = bounded(most, || Body::decode(bytes, &leaf)) else { return false };
    assert_eq!(body.contents.len(), leaf.len());
    for (content, (_, _, meta)) in body.contents.iter().zip(leaf.iter()) {
        content.check(meta).unwrap();
        if let Data::List(list) = &content.data {
            assert_eq!(list.refs.iter().map(Ref::len).sum::<u64>(), meta.size);
        }
        assert!(content.xattrs.is_sorted_by(|a, b| a.0 < b.0));
    }
    assert_eq!(Body::decode(&body.encode(), &leaf).as_ref(), Ok(&body));
    true
}

fn body_samples() -> Vec<Vec<u8>> {
    let leaf = sample_leaf();
    let xattrs = Xattrs::from(vec![(b"user.a".to_vec(), b"v".to_vec()), (b"user.b".to_vec(), Vec::new())]);
    let other = Xattrs::from(vec![(b"system.posix_acl_access".to_vec(), vec![2; 28])]);
    let refs = vec![
        Ref::Hole { len: 30 },
        Ref::Chunk { id: ChunkId([2; 32]), len: 40 },
        Ref::Hole { len: 20 },
        Ref::Chunk { id: ChunkId([3; 32]), len: 10 },
    ];
    let contents = vec![
        Content { xattrs: xattrs.clone(), flags: 0x40, ..Content::default() },
        Content { data: Data::Chunk(ChunkId([1; 32])), xattrs, ..Content::default() },
        Content { data: Data::List(List { level: 1, refs, whole: [7; 32] }), ..Content::default() },
        Content { xattrs: other, ..Content::default() },
        Content { target: b"abc".to_vec(), ..Content::default() },
        Content::default(),
        Content::default(),
        Content::default(),
    ];
    let leaf = leaf.encode();
    vec![[&(leaf.len() as u16).to_le_bytes()[..], &leaf, &Body { contents }.encode()].concat()]
}

/// An inner node's chunk, taken to be of the level that it says.
pub fn inner(bytes: &[u8]) -> bool {
    let level = bytes.get(1).copied().unwrap_or(1);
    let most = 16 * bytes.len() + node_text(bytes.len());
    let Ok(inner) = bounded(most, || Inner::decode(bytes, level)) else { return false };
    assert!(inner.level == level && !inner.children.is_empty());
    assert!(inner.children.iter().all(|c| is_dir_path(&c.dir) && is_name(&c.name)));
    assert!(inner.children.iter().is_sorted_by(|a, b| (&a.dir, &a.name) < (&b.dir, &b.name)));
    for (at, child) in inner.children.iter().enumerate() {
        assert_eq!(inner.find(&child.dir, &child.name), at);
    }
    let _ = inner.sums();
    assert_eq!(Inner::decode(&inner.encode(), level).as_ref(), Ok(&inner));
    true
}

fn inner_samples() -> Vec<Vec<u8>> {
    let sample = |level: u8| {
        let child = |dir: &[u8], name: &[u8], byte: u8| Child {
            dir: dir.to_vec(),
            name: name.to_vec(),
            node: ChunkId([byte; 32]),
            body: (level == 1).then_some(ChunkId([byte + 100; 32])),
            sums: Sums { entries: 300, files: 200, dirs: 50, bytes: 1 << 40 },
        };
        let children = vec![
            child(b"", b"a", 1),
            child(b"", b"ab", 2),
            child(b"home\0u", b"b", 3),
            child(b"home\0v", b"a", 4),
            child(b"home\0v\0deeper", b"a", 5),
        ];
        Inner { level, children }.encode()
    };
    vec![sample(1), sample(2), sample(16)]
}

/// A node of a chunk list, taken to be of the level that it says and, if its refs can be counted, of their length.
pub fn list(bytes: &[u8]) -> bool {
    let level = bytes.get(1).copied().unwrap_or(0);
    let len = list_len(bytes.get(2..).unwrap_or(&[])).unwrap_or(0);
    let most = 64 * bytes.len() + 1024;
    let Ok(node) = bounded(most, || ListNode::decode(bytes, level, len)) else { return false };
    assert!(node.refs.iter().all(|r| !r.is_empty()));
    assert_eq!(node.refs.iter().map(Ref::len).sum::<u64>(), len);
    assert_eq!(ListNode::decode(&node.encode(), level, len).as_ref(), Ok(&node));
    assert!(ListNode::decode(bytes, level, len.wrapping_add(1)).is_err());
    true
}

fn list_len(mut bytes: &[u8]) -> Option<u64> {
    let mut next = || {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = bytes.split_first()?;
            bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                return Some(value);
            }
        }
        None
    };
    let count = next()?;
    (0..count).try_fold(0u64, |sum, _| sum.checked_add(next()? >> 1))
}

fn list_samples() -> Vec<Vec<u8>> {
    let chunk = |byte, len| Ref::Chunk { id: ChunkId([byte; 32]), len };
    let mixed = vec![chunk(1, 65536), Ref::Hole { len: 1 << 40 }, chunk(2, 1), Ref::Hole { len: 4096 }];
    let many = (0..100).map(|n| chunk(n, 70_000 + u64::from(n))).collect();
    let far = vec![Ref::Hole { len: (1 << 63) - 1 }, chunk(1, 1 << 62), Ref::Hole { len: 5 }, chunk(2, 1)];
    [(0, mixed), (1, many), (0, far)].into_iter().map(|(level, refs)| ListNode { level, refs }.encode()).collect()
}

fn pack_header() -> Header {
    pack::header(PackKind::Data, SUITE, PackId([9; 16]))
}

/// A sealed table, its message, or the table alone.
pub fn table(bytes: &[u8]) -> bool {
    let header = pack_header();
    let (depth, rest) = depth(bytes, 3);
    let most = 16 * rest.len() + 4096;
    let decoded = match depth {
        0 => {
            let sealed = rest.to_vec();
            bounded(most, || Table::open(&header, &KEYS.index, sealed).map(|(table, _)| table))
        }
        1 => {
            let sealed = [&FRESH[..], &sealed(&header, "pack table", 0, rest)].concat();
            bounded(most, || Table::open(&header, &KEYS.index, sealed).map(|(table, _)| table))
        }
        _ => bounded(most, || Table::decode(rest)),
    };
    let Ok(table) = decoded else { return false };
    check_table(&table);
    let sealed_len = table.sealed_len();
    let sealed = table.seal(&header, sealed_len, sealing());
    assert_eq!(sealed.len(), sealed_len);
    assert_eq!(Table::open(&header, &KEYS.index, sealed).map(|(table, _)| table).as_ref(), Ok(&table));
    true
}

/// What a writer could have made, and nothing else.
fn check_table(table: &Table) {
    assert_eq!(Table::decode(&table.encode()).as_ref(), Ok(table));
    let mut again = Table { slots: table.slots.clone(), ..Table::default() };
    for block in &table.blocks {
        let first = block.first_chunk as usize;
        let chunks = table.chunks[first..first + block.chunks as usize].iter().map(|c| (c.id, c.len));
        let chunks: Vec<_> = chunks.collect();
        again.push(block.slot, block.number, block.codec, block.stored_len, block.raw_len, &chunks).unwrap();
    }
    assert_eq!(&again, table);
}

fn sample_table() -> Table {
    let mut table = Table::default();
    table.slots.push(Slot { origin: PackId([9; 16]), wrapped: vec![5; 1168] });
    table.push(0, 0, Codec::Zstd, 120, 500, &[(ChunkId([1; 32]), 300), (ChunkId([2; 32]), 200)]).unwrap();
    table.push(0, 1, Codec::Raw, 1016, 1000, &[(ChunkId([200; 32]), 1000)]).unwrap();
    table.push(0, 2, Codec::Padding, 400, 0, &[]).unwrap();
    table
}

fn table_samples() -> Vec<Vec<u8>> {
    let (header, table) = (pack_header(), sample_table());
    let object = table.seal(&header, table.sealed_len(), sealing());
    let message = unsealed(&header, "pack table", 0, &object[FRESH.len()..]);
    let mut two = Table::default();
    two.slots.push(Slot { origin: PackId([1; 16]), wrapped: vec![5; 1168] });
    two.slots.push(Slot { origin: PackId([2; 16]), wrapped: vec![6; 1168] });
    let chunks: Vec<_> = (0..200u8).map(|b| (ChunkId([b; 32]), 1000 + u32::from(b))).collect();
    let len = chunks.iter().map(|(_, len)| len).sum();
    two.push(1, 7, Codec::Zstd, 5000, len, &chunks).unwrap();
    two.push(0, 3, Codec::Zstd, 500, 600, &[(ChunkId([3; 32]), 600)]).unwrap();
    vec![at_depth(0, &object), at_depth(1, &message), at_depth(2, &table.encode()), at_depth(2, &two.encode())]
}

/// A footer with or without a right checksum, of a pack as long as it says.
pub fn footer(bytes: &[u8]) -> bool {
    let header = pack_header();
    let (depth, rest) = depth(bytes, 2);
    let mut footer = rest.to_vec();
    if depth == 1 && footer.len() == FOOTER_BYTES {
        let sum = checksum(&[&header.encode()[..], &footer[..32]].concat());
        footer[32..].copy_from_slice(&sum);
    }
    let pack_len = footer.get(24..32).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
    let Ok(decoded) = bounded(256, || Footer::decode(&footer, &header, pack_len)) else { return false };
    assert_eq!(decoded.encode(&header)[..], footer);
    assert!(decoded.table_offset.checked_add(decoded.table_len.into()).is_some_and(|end| end <= pack_len));
    assert!(Footer::decode(&footer, &header, pack_len ^ 1).is_err());
    true
}

fn footer_samples() -> Vec<Vec<u8>> {
    let footer = Footer::new(1000, 2000).encode(&pack_header());
    vec![at_depth(0, &footer), at_depth(1, &footer)]
}

fn index_header() -> Header {
    Header::new(ObjectType::Index, SUITE, [4; 16])
}

/// An index object; or the length of its first part in four bytes (little-endian), that part and the other, with the
/// digest put right.
pub fn index(bytes: &[u8]) -> bool {
    let (header, id) = (index_header(), IndexId([4; 16]));
    let object = match depth(bytes, 2) {
        (0, object) => object.to_vec(),
        (_, parts) => {
            let Some((len, parts)) = parts.split_first_chunk::<4>() else { return false };
            let Some((hooks, tables)) = parts.split_at_checked(u32::from_le_bytes(*len) as usize) else { return false };
            let mut hooks = hooks.to_vec();
            if let Some(place) = hooks.get_mut(80..112) {
                place.copy_from_slice(&digest(tables));
            }
            let hooks = sealed(&header, "index object", 0, &hooks);
            let len = (hooks.len() as u32).to_le_bytes();
            [&header.encode()[..], &FRESH, &len, &hooks, &sealed(&header, "index object", 1, tables)].concat()
        }
    };
    let most = 16 * object.len() + 4096;
    let hooks = bounded(most, || index::open_hooks(id, &KEYS.index, &object));
    let Ok((entries, _)) = bounded(most, || index::open(id, &KEYS.index, &object)) else { return hooks.is_ok() };
    let (hooks, _) = hooks.unwrap();
    assert!(hooks.iter().map(|h| h.pack).eq(entries.iter().map(|e| e.pack)));
    entries.iter().for_each(|entry| check_table(&entry.table));
    let again = index::seal(&header, &entries, sealing());
    assert_eq!(index::open(id, &KEYS.index, &again).map(|(entries, _)| entries), Ok(entries));
    assert_eq!(index::open_hooks(id, &KEYS.index, &again).map(|(hooks, _)| hooks), Ok(hooks));
    true
}

fn index_samples() -> Vec<Vec<u8>> {
    let table = sample_table();
    let (table_len, end) = (3000, table.blocks_end());
    let pack_len = end + u64::from(table_len) + FOOTER_BYTES as u64;
    let entry = Entry { pack: PackId([1; 16]), kind: PackKind::Data, pack_len, table_len, table };
    let full = [entry.clone(), Entry { pack: PackId([2; 16]), kind: PackKind::Tree, ..entry.clone() }];
    let pack_len = 32 + u64::from(table_len) + FOOTER_BYTES as u64;
    let bare = [Entry { pack_len, table: Table::default(), ..entry }];
    let header = index_header();
    let of = |entries: &[Entry]| {
        let object = index::seal(&header, entries, sealing());
        let hooks_end = index::PREFIX_BYTES + index::hooks_len(&object).unwrap() as usize;
        let hooks = unsealed(&header, "index object", 0, &object[index::PREFIX_BYTES..hooks_end]);
        let tables = unsealed(&header, "index object", 1, &object[hooks_end..]);
        // Most of both is padding, which isn't worth the time; some stays.
        let some = |part: &[u8]| part.iter().rposition(|b| *b != 0).map_or(0, |last| last + 4);
        let (hooks, tables) = (&hooks[..some(&hooks)], &tables[..some(&tables)]);
        let parts = [&(hooks.len() as u32).to_le_bytes()[..], hooks, tables].concat();
        [at_depth(0, &object), at_depth(1, &parts)]
    };
    [of(&full), of(&bare)].concat()
}

/// header | body | checksum of both.
fn plain(header: &Header, body: &[u8]) -> Vec<u8> {
    let object = [&header.encode()[..], body].concat();
    let sum = checksum(&object);
    [&object[..], &sum].concat()
}

fn plain_body(object: &[u8]) -> &[u8] {
    &object[32..object.len() - 16]
}

/// A config, its signed body, or the body that the owner signs.
pub fn config(bytes: &[u8]) -> bool {
    let header = Header::new(ObjectType::Config, SUITE, REPOSITORY.0);
    let object = match depth(bytes, 3) {
        (0, object) => object.to_vec(),
        (1, signed) => plain(&header, signed),
        (_, body) => {
            let signature = KEYS.owner.sign("config", &[&header.encode()[..], body].concat());
            let mut signed = Vec::new();
            Encoder::new(&mut signed).array(2).unwrap().bytes(body).unwrap().bytes(&signature).unwrap();
            plain(&header, &signed)
        }
    };
    let Ok(config) = bounded(small(object.len()), || Config::decode(&object)) else { return false };
    let ChunkSizes { min, normal, max } = config.chunks;
    assert!(64 <= min && min <= normal && normal <= max && normal.is_power_of_two());
    let again = Config { owner: KEYS.owner.verifying(), ..config.clone() };
    let back = Config::decode(&again.encode(&KEYS.owner)).unwrap();
    assert_eq!((back.id, back.suite, back.chunks), (config.id, config.suite, config.chunks));
    assert_eq!((back.block_bytes, back.pack_bytes), (config.block_bytes, config.pack_bytes));
    assert_eq!(back.data_key.encode(), config.data_key.encode());
    assert_eq!(back.meta_key.encode(), config.meta_key.encode());
    true
}

fn config_samples() -> Vec<Vec<u8>> {
    let config = Config {
        id: REPOSITORY,
        suite: SUITE,
        chunks: ChunkSizes { min: 16384, normal: 65536, max: 262144 },
        block_bytes: 1 << 20,
        pack_bytes: 64 << 20,
        data_key: PrivateKey::new(secret(8)).unwrap().public(),
        meta_key: KEYS.meta.public(),
        owner: KEYS.owner.verifying(),
    };
    let object = config.encode(&KEYS.owner);
    let signed = plain_body(&object);
    let mut decoder = Decoder::new(signed);
    decoder.array().unwrap();
    vec![at_depth(0, &object), at_depth(1, signed), at_depth(2, decoder.bytes().unwrap())]
}

fn sample_secrets(role: Role) -> Secrets {
    let owner = Secrets {
        repository: REPOSITORY,
        key: KEY,
        role: Role::Owner,
        owner: KEYS.owner.verifying(),
        index: KEYS.index.clone(),
        identity: Some(secret(11)),
        cutting: Some(secret(12)),
        data: Some(PrivateKey::new(secret(8)).unwrap()),
        meta: Some(KEYS.meta.clone()),
        owner_signing: Some(KEYS.owner.clone()),
        signing: Some(KEYS.signing.clone()),
        tree_identity: None,
    };
    owner.lessen(role, KEY, Some(KEYS.signing.clone())).unwrap()
}

/// A key object, or its body.
pub fn key_object(bytes: &[u8]) -> bool {
    let header = Header::new(ObjectType::Key, SUITE, KEY.0);
    let object = match depth(bytes, 2) {
        (0, object) => object.to_vec(),
        (_, body) => plain(&header, body),
    };
    let most = small(object.len());
    let Ok(key) = bounded(most, || KeyObject::decode(KEY, &object)) else { return false };
    if let Lock::Passphrase { memory_kib, passes, lanes, .. } = key.lock()
        && *memory_kib <= 128
        && *passes <= 2
        && *lanes <= 2
    {
        let _ = key.lock().passphrase_key(b"passphrase");
    }
    let certificate = key.certificate(REPOSITORY, &KEYS.owner.verifying());
    let _ = bounded(most, || key.label(&KEYS.index));
    let unlock = secret(77);
    if let Ok(secrets) = bounded(most, || key.unlock(&unlock)) {
        let parts =
            KeyParts { secrets: &secrets, lock: Lock::File, unlock: &unlock, label: "", created: 5, fresh: FRESH };
        let again = KeyObject::decode(KEY, &key.reseal(&parts)).unwrap();
        assert_eq!(again.unlock(&unlock).unwrap().encode(), secrets.encode());
        assert_eq!(again.certificate(REPOSITORY, &KEYS.owner.verifying()).is_ok(), certificate.is_ok());
    }
    let revoked = KeyObject::decode(KEY, &key.revoke(REPOSITORY, 9, &KEYS.owner)).unwrap();
    assert!(*revoked.lock() == Lock::Revoked && revoked.unlock(&unlock).is_err());
    assert!(revoked.certificate(REPOSITORY, &KEYS.owner.verifying()).unwrap().revoked.is_some());
    true
}

fn key_object_samples() -> Vec<Vec<u8>> {
    let unlock = secret(77);
    let cost = PassphraseCost { memory_kib: 64, passes: 1, lanes: 1 };
    let mut samples = Vec::new();
    for (role, lock) in [
        (Role::Owner, Lock::File),
        (Role::Reader, Lock::File),
        (Role::Writer, Lock::passphrase([0xaa; 16], cost)),
        (Role::Keeper, Lock::File),
    ] {
        let secrets = sample_secrets(role);
        let parts = KeyParts { secrets: &secrets, lock, unlock: &unlock, label: "a label", created: 5, fresh: FRESH };
        let object = KeyObject::seal(&parts, SUITE, &KEYS.owner);
        let revoked = KeyObject::decode(KEY, &object).unwrap().revoke(REPOSITORY, 9, &KEYS.owner);
        samples.extend([at_depth(0, &object), at_depth(1, plain_body(&object)), at_depth(1, plain_body(&revoked))]);
    }
    samples
}

/// Text with the check that it should have.
fn checked(text: &str) -> String {
    let mut kept = String::new();
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
        kept.push_str(line);
        kept.push('\n');
    }
    kept.make_ascii_lowercase();
    let sum: String = checksum(kept.as_bytes())[..4].iter().map(|b| format!("{b:02x}")).collect();
    format!("{text}\ncheck {sum}\n")
}

fn text_at_depth(bytes: &[u8]) -> Option<String> {
    let (depth, rest) = depth(bytes, 2);
    let text = std::str::from_utf8(rest).ok()?;
    Some(if depth == 0 { text.to_owned() } else { checked(text) })
}

fn without_check(text: &str) -> &str {
    text.split_at(text.find("check").unwrap()).0
}

/// A key file, or its lines before the check.
pub fn key_file(bytes: &[u8]) -> bool {
    let Some(text) = text_at_depth(bytes) else { return false };
    let _ = key_file::is_recovery(&text);
    let Ok(file) = bounded(small(text.len()), || KeyFile::decode(&text)) else { return false };
    let again = KeyFile::decode(&file.encode()).unwrap();
    assert_eq!((again.repository, again.key, again.secret), (file.repository, file.key, file.secret));
    true
}

fn key_file_samples() -> Vec<Vec<u8>> {
    let text = KeyFile { repository: REPOSITORY, key: KEY, secret: secret(0xab) }.encode();
    let (upper, lines) = (text.to_uppercase(), without_check(&text));
    vec![at_depth(0, text.as_bytes()), at_depth(0, upper.as_bytes()), at_depth(1, lines.as_bytes())]
}

/// A recovery file, its lines before the check, or the secrets in it.
pub fn recovery(bytes: &[u8]) -> bool {
    let decoded = match depth(bytes, 3) {
        (2, secrets) => bounded(small(secrets.len()), || Secrets::decode(secrets)),
        _ => {
            let Some(text) = text_at_depth(bytes) else { return false };
            bounded(small(text.len()), || key_file::decode_recovery(&text))
        }
    };
    let Ok(secrets) = decoded else { return false };
    let text = key_file::encode_recovery(&secrets);
    assert!(key_file::is_recovery(&text));
    assert_eq!(key_file::decode_recovery(&text).unwrap().encode(), secrets.encode());
    true
}

fn recovery_samples() -> Vec<Vec<u8>> {
    let mut samples = Vec::new();
    for role in [Role::Owner, Role::Reader, Role::Writer, Role::Keeper] {
        let secrets = sample_secrets(role);
        let text = key_file::encode_recovery(&secrets);
        let lines = without_check(&text);
        samples.extend([at_depth(0, text.as_bytes()), at_depth(1, lines.as_bytes()), at_depth(2, &secrets.encode())]);
    }
    samples
}

/// A snapshot's object, its message, or its body.
pub fn snapshot(bytes: &[u8]) -> bool {
    let (header, id) = (Header::new(ObjectType::Snapshot, SUITE, [5; 16]), SnapshotId([5; 16]));
    let message = match depth(bytes, 3) {
        (0, object) => {
            let most = small(object.len());
            let opened = bounded(most, || snapshot::open(id, &KEYS.meta, object));
            return opened.is_ok_and(|(snapshot, _)| check_snapshot(&snapshot));
        }
        (1, message) => message.to_vec(),
        (_, body) => {
            let plain = [&id.0[..], body].concat();
            if let Ok(snapshot) = bounded(small(plain.len()), || Snapshot::from_plain(&plain)) {
                return check_snapshot(&snapshot);
            }
            return false;
        }
    };
    let mut sealed = message;
    SealKey::new(SUITE, &KEYS.small).seal(0, &header.encode(), &mut sealed);
    let object = [&header.encode()[..], &KEYS.small_wrapped, &sealed].concat();
    let most = small(object.len());
    let opened = bounded(most, || snapshot::open(id, &KEYS.meta, &object));
    opened.is_ok_and(|(snapshot, _)| check_snapshot(&snapshot))
}

fn check_snapshot(snapshot: &Snapshot) -> bool {
    assert_eq!(Snapshot::from_plain(&snapshot.to_plain()).as_ref(), Ok(snapshot));
    true
}

fn snapshot_samples() -> Vec<Vec<u8>> {
    let sums = Sums { entries: 10, files: 5, dirs: 3, bytes: 1 << 40 };
    let whole = Snapshot {
        id: SnapshotId([5; 16]),
        session: SessionId([2; 16]),
        time: (1_790_000_000, 5),
        host: "host".into(),
        user: "user".into(),
        paths: vec![b"/home/\xff".to_vec(), b"/etc".to_vec()],
        tags: vec!["tag".into(), "Füße".into()],
        root: Some(Root { node: ChunkId([3; 32]), level: 2, sums }),
        partial: Some(Reached { dir: b"home".to_vec(), name: b"x".to_vec() }),
        parent: Some(SnapshotId([6; 16])),
        program: "drumlin".into(),
        summary: Summary { new: 10, bytes_read: 1 << 50, ..Summary::default() },
        plans: vec![PlanId([9; 16]), PlanId([8; 16])],
    };
    let empty =
        Snapshot { root: None, partial: None, parent: None, paths: Vec::new(), tags: Vec::new(), ..whole.clone() };
    let mut samples = Vec::new();
    for snapshot in [whole, empty] {
        let (key, seed, signer) = (secret(21), secret(22), (KEY, &KEYS.signing));
        let object = snapshot::seal(&snapshot, signer, SUITE, &KEYS.meta.public(), &key, &seed).unwrap();
        let body = &snapshot.to_plain()[16..];
        samples.extend(shared_samples(&object, body));
    }
    samples
}

/// A session's object, its message, or its body.
pub fn session(bytes: &[u8]) -> bool {
    let id = SessionId([3; 16]);
    let object = shared_object(&Header::new(ObjectType::Session, SUITE, id.0), bytes);
    let opened = bounded(small(object.len()), || Session::open(id, &KEYS.index, &object));
    let Ok((session, _)) = opened else { return false };
    let again = session.seal(id, SUITE, sealing());
    assert_eq!(Session::open(id, &KEYS.index, &again).unwrap().0, session);
    true
}

fn session_samples() -> Vec<Vec<u8>> {
    let session = Session { host: "host".into(), started: -5, plan_seen: 7, purpose: "backup".into() };
    let object = session.seal(SessionId([3; 16]), SUITE, sealing());
    shared_samples(&object, &minicbor::to_vec(&session).unwrap())
}

/// A decision's object, its message, or its body.
pub fn decision(bytes: &[u8]) -> bool {
    let id = SessionId([3; 16]);
    let object = shared_object(&Header::new(ObjectType::Decision, SUITE, id.0), bytes);
    let opened = bounded(small(object.len()), || decision::open(id, &KEYS.index, &object));
    let Ok((verdict, _)) = opened else { return false };
    let again = decision::seal(id, &verdict, SUITE, sealing());
    assert_eq!(decision::open(id, &KEYS.index, &again).unwrap().0, verdict);
    true
}

fn decision_samples() -> Vec<Vec<u8>> {
    let verdicts = [
        Verdict::Committed { snapshot: SnapshotId([3; 16]) },
        Verdict::Evicted { plan: 1 << 40 },
        Verdict::Claimed { by: SessionId([4; 16]) },
        Verdict::Collected { plan: PlanId([5; 16]) },
    ];
    let samples = verdicts.iter().map(|verdict| {
        let object = decision::seal(SessionId([3; 16]), verdict, SUITE, sealing());
        shared_samples(&object, &minicbor::to_vec(verdict).unwrap())
    });
    samples.flatten().collect()
}

/// A plan's object, its message, or its body.
pub fn plan(bytes: &[u8]) -> bool {
    let id = PlanId([3; 16]);
    let object = shared_object(&Header::new(ObjectType::Plan, SUITE, id.0), bytes);
    let opened = bounded(small(object.len()), || Plan::open(id, &KEYS.index, &object));
    let Ok((plan, _)) = opened else { return false };
    let again = plan.seal(SUITE, sealing());
    assert_eq!(Plan::open(id, &KEYS.index, &again).unwrap().0, plan);
    true
}

fn plan_samples() -> Vec<Vec<u8>> {
    let (packs, indexes) = (vec![PackId([5; 16]); 2], vec![IndexId([7; 16])]);
    let plan = Plan { id: PlanId([3; 16]), session: SessionId([4; 16]), packs, indexes, snapshots: Vec::new() };
    // The body as it is encoded: a map of the session and three strings of ids.
    let mut body = Vec::new();
    let mut e = Encoder::new(&mut body);
    e.map(4).unwrap().u8(0).unwrap().bytes(&[4; 16]).unwrap();
    for (key, ids) in [(1, &[5; 32][..]), (2, &[7; 16]), (3, &[])] {
        e.u8(key).unwrap().bytes(ids).unwrap();
    }
    shared_samples(&plan.seal(SUITE, sealing()), &body)
}
