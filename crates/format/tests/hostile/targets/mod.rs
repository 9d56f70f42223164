//! One function for each decoder: hostile bytes in, and whether they were taken for something. It panics if the decoder
//! does, if that takes memory out of proportion, or if what was decoded does not come back from its own encoding.
//!
//! Sealed objects begin with a byte that says how deep the rest goes: 0 is the object as the storage has it, more is
//! what stands inside, sealed, signed and summed up by us as somebody would who has the keys.

mod keys;
mod packs;
mod small;
mod tree;

pub use keys::{config, generation, key_file, key_object, recovery};
pub use packs::{band, footer, index, parity, table};
pub use small::{decision, history, loss, plan, session, snapshot};
pub use tree::{body, inner, leaf, list};

use super::memory::bounded;
use drumlin_format::band;
use drumlin_format::config::{ChunkSizes, Config};
use drumlin_format::decision::{self, Verdict};
use drumlin_format::generation::{Generation, GenerationSecrets, LazyKey, Origin};
use drumlin_format::history::Entry as HistoryEntry;
use drumlin_format::index::{self, Entry};
use drumlin_format::key::{KeyObject, KeyParts, Lock, Role, Secrets};
use drumlin_format::key_file::{self, KeyFile};
use drumlin_format::loss::Loss;
use drumlin_format::pack::{self, Codec, FOOTER_BYTES, Footer, PackKind, Slot, Table};
use drumlin_format::parity::{self, HEAD_BYTES, Head, Stripe};
use drumlin_format::plan::Plan;
use drumlin_format::session::Session;
use drumlin_format::snapshot::{self, Reached, Recipient, Root, Snapshot, Summary};
use drumlin_format::tree::{
    Body, Child, Content, Data, Inner, Kind, Leaf, List, ListNode, Meta, Ref, Sums, Time, Xattrs, is_dir_path, is_name,
};
use drumlin_format::{
    BandId, ChunkId, Header, HistoryId, IndexId, KeyId, LossId, ObjectType, PackId, PlanId, RepositoryId, Sealing,
    SessionId, SnapshotId,
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
pub const ALL: [Target; 20] = [
    Target { name: "leaf", run: leaf, samples: tree::leaf_samples },
    Target { name: "body", run: body, samples: tree::body_samples },
    Target { name: "inner", run: inner, samples: tree::inner_samples },
    Target { name: "list", run: list, samples: tree::list_samples },
    Target { name: "table", run: table, samples: packs::table_samples },
    Target { name: "footer", run: footer, samples: packs::footer_samples },
    Target { name: "parity", run: parity, samples: packs::parity_samples },
    Target { name: "band", run: band, samples: packs::band_samples },
    Target { name: "index", run: index, samples: packs::index_samples },
    Target { name: "config", run: config, samples: keys::config_samples },
    Target { name: "key_object", run: key_object, samples: keys::key_object_samples },
    Target { name: "key_file", run: key_file, samples: keys::key_file_samples },
    Target { name: "recovery", run: recovery, samples: keys::recovery_samples },
    Target { name: "generation", run: generation, samples: keys::generation_samples },
    Target { name: "snapshot", run: snapshot, samples: small::snapshot_samples },
    Target { name: "session", run: session, samples: small::session_samples },
    Target { name: "decision", run: decision, samples: small::decision_samples },
    Target { name: "plan", run: plan, samples: small::plan_samples },
    Target { name: "loss", run: loss, samples: small::loss_samples },
    Target { name: "history", run: history, samples: small::history_samples },
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
    Sealing { generation: 0, index_key: &KEYS.index, key: KEY, signing: &KEYS.signing, fresh: FRESH }
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
