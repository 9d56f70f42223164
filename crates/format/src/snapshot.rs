//! A snapshot: the root of a tree, when and of what it was taken, signed by the client that took it.
//!
//! ```text
//! header (32) | key wrapped to the metadata key (1168) | sealed: CBOR [key id, signature, body bytes], padded
//! ```

use crate::cbor::{decode, encode};
use crate::error::malformed;
use crate::generation::MetaKeys;
use crate::ids::split_ids;
use crate::sealed::{open_with, reseal_to, seal_to};
use crate::tree::Sums;
use crate::{ChunkId, Header, KeyId, ObjectType, PlanId, Result, SessionId, SnapshotId};
use drumlin_seal::{PublicKey, Secret, Seed, SigningKey, Suite};
use minicbor::{Decode, Encode};

pub use crate::Signer;

const OBJECT: &str = "snapshot";

/// The root of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root {
    /// The uppermost node.
    pub node: ChunkId,
    /// Its level, 1 if its children are leaves.
    pub level: u8,
    /// What the tree holds.
    pub sums: Sums,
}

/// How far a partial snapshot got: everything up to and including this entry, in tree order.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Reached {
    /// The entry's directory, components joined by zero bytes.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub dir: Vec<u8>,
    /// Its name.
    #[cbor(n(1), with = "minicbor::bytes")]
    pub name: Vec<u8>,
}

/// What a run found and did, for people and for estimates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Summary {
    /// Entries that the previous snapshot didn't have.
    #[n(0)]
    pub new: u64,
    /// Entries that had changed.
    #[n(1)]
    pub changed: u64,
    /// Entries as before.
    #[n(2)]
    pub unmodified: u64,
    /// Entries that could not be read.
    #[n(3)]
    pub unreadable: u64,
    /// Files that changed while they were read.
    #[n(4)]
    pub changed_while_read: u64,
    /// Entries left out by a rule.
    #[n(5)]
    pub excluded: u64,
    /// Bytes of file contents read.
    #[n(6)]
    pub bytes_read: u64,
    /// Bytes of chunks that the repository didn't have.
    #[n(7)]
    pub bytes_new: u64,
    /// Bytes that those take in the repository.
    #[n(8)]
    pub bytes_stored: u64,
    /// Milliseconds it took.
    #[n(9)]
    pub millis: u64,
    /// Sources that were named and not there; `None` if all were.
    #[n(10)]
    pub absent: Option<u64>,
    /// A number of the rules for what is left out, by which they can be known again; `None` if there were none.
    #[n(11)]
    pub rules: Option<u64>,
    /// So many seconds later than its own time it was made, by the times of those that were made before it: one of the
    /// clocks was wrong. `None` if nothing says so.
    #[n(12)]
    pub behind: Option<u64>,
}

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its name.
    pub id: SnapshotId,
    /// The session that wrote it.
    pub session: SessionId,
    /// When it was taken: seconds since 1970 and nanoseconds, by the client's clock or as the user said.
    pub time: (i64, u32),
    /// The machine.
    pub host: String,
    /// The user.
    pub user: String,
    /// What was backed up: absolute paths, or the name of a stream.
    pub paths: Vec<Vec<u8>>,
    /// The user's tags.
    pub tags: Vec<String>,
    /// The tree; `None` if it is empty.
    pub root: Option<Root>,
    /// How far it got, if it is partial.
    pub partial: Option<Reached>,
    /// The snapshot that it was compared with.
    pub parent: Option<SnapshotId>,
    /// The program that wrote it.
    pub program: String,
    /// What the run found and did.
    pub summary: Summary,
    /// The collection plans that its session knew: it refers to nothing that they condemn.
    pub plans: Vec<PlanId>,
    /// What it was called when it was taken, if it is a copy of that: from another repository, or back from the
    /// forgotten.
    pub original: Option<SnapshotId>,
    /// Directories on other file systems that were not looked into, with all below them that isn't of a source there:
    /// absolute paths. `None` in snapshots of before there was such a list: nobody knows.
    pub passed_by: Option<Vec<Vec<u8>>>,
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct Body {
    #[n(0)]
    session: SessionId,
    #[n(1)]
    seconds: i64,
    #[n(2)]
    nanoseconds: u32,
    #[n(3)]
    host: String,
    #[n(4)]
    user: String,
    #[n(5)]
    paths: Vec<minicbor::bytes::ByteVec>,
    #[n(6)]
    tags: Vec<String>,
    #[cbor(n(7), with = "minicbor::bytes")]
    node: Option<Vec<u8>>,
    #[n(8)]
    level: u8,
    #[n(9)]
    sums: Sums,
    #[n(10)]
    partial: Option<Reached>,
    #[n(11)]
    parent: Option<SnapshotId>,
    #[n(12)]
    program: String,
    #[n(13)]
    summary: Summary,
    #[cbor(n(14), with = "minicbor::bytes")]
    plans: Option<Vec<u8>>,
    #[n(15)]
    original: Option<SnapshotId>,
    #[n(16)]
    passed_by: Option<Vec<minicbor::bytes::ByteVec>>,
}

impl Body {
    fn of(snapshot: &Snapshot) -> Self {
        let snapshot = snapshot.clone();
        let Snapshot { session, time, host, user, paths, tags, root, partial, parent, program, summary, .. } = snapshot;
        let Snapshot { plans, original, passed_by, .. } = snapshot;
        Body {
            session,
            seconds: time.0,
            nanoseconds: time.1,
            host,
            user,
            paths: paths.into_iter().map(Into::into).collect(),
            tags,
            node: root.map(|r| r.node.0.to_vec()),
            level: root.map_or(0, |r| r.level),
            sums: root.map_or_else(Sums::default, |r| r.sums),
            partial,
            parent,
            program,
            summary,
            plans: (!plans.is_empty()).then(|| plans.iter().flat_map(|id| id.0).collect()),
            original,
            passed_by: passed_by.map(|paths| paths.into_iter().map(Into::into).collect()),
        }
    }

    fn into_snapshot(self, id: SnapshotId) -> Result<Snapshot> {
        let root = match self.node.as_deref().map(<[u8; 32]>::try_from) {
            None => None,
            Some(Ok(node)) if self.level >= 1 => Some(Root { node: ChunkId(node), level: self.level, sums: self.sums }),
            Some(_) => return malformed(OBJECT, "its root is not a node"),
        };
        if self.nanoseconds >= 1_000_000_000 {
            return malformed(OBJECT, "its time is not a time");
        }
        Ok(Snapshot {
            id,
            session: self.session,
            time: (self.seconds, self.nanoseconds),
            host: self.host,
            user: self.user,
            paths: self.paths.into_iter().map(Into::into).collect(),
            tags: self.tags,
            root,
            partial: self.partial,
            parent: self.parent,
            program: self.program,
            summary: self.summary,
            plans: split_ids(self.plans.as_deref().unwrap_or_default(), OBJECT)?.map(PlanId).collect(),
            original: self.original,
            passed_by: self.passed_by.map(|paths| paths.into_iter().map(Into::into).collect()),
        })
    }
}

impl Snapshot {
    /// What it was called when it was taken: the same of all its copies.
    pub fn first_id(&self) -> SnapshotId {
        self.original.unwrap_or(self.id)
    }

    /// The body and the id, unsealed: what a client keeps in its local cache of a snapshot that it took itself.
    pub fn to_plain(&self) -> Vec<u8> {
        [&self.id.0[..], &encode(&Body::of(self))].concat()
    }

    /// Read what [`Snapshot::to_plain`] wrote.
    pub fn from_plain(bytes: &[u8]) -> Result<Self> {
        match bytes.split_first_chunk::<16>() {
            Some((id, body)) => decode::<Body>(body, OBJECT)?.into_snapshot(SnapshotId(*id)),
            None => malformed(OBJECT, "it ends too early"),
        }
    }
}

/// To what snapshots are sealed.
#[derive(Clone, Copy)]
pub struct Recipient<'a> {
    /// The cipher.
    pub suite: Suite,
    /// The generation's tag.
    pub generation: u32,
    /// That generation's metadata key.
    pub meta_key: &'a PublicKey,
}

/// Encode, sign and seal a snapshot to the metadata key. `key` is fresh, `seed` too.
pub fn seal(
    snapshot: &Snapshot,
    signer: (KeyId, &SigningKey),
    to: Recipient,
    key: &Secret,
    seed: &Seed,
) -> Result<Vec<u8>> {
    let header = Header::new(ObjectType::Snapshot, to.suite, snapshot.id.0).of(to.generation);
    seal_to(&header, to.meta_key, encode(&Body::of(snapshot)), signer, key, seed)
}

/// Seal a snapshot's object anew, to another generation: it stays what it is, its name and its signature too. `key` is
/// fresh, `seed` too.
pub fn reseal(
    id: SnapshotId,
    keys: &impl MetaKeys,
    object: &[u8],
    to: Recipient,
    key: &Secret,
    seed: &Seed,
) -> Result<Vec<u8>> {
    let header = Header::expect(object, ObjectType::Snapshot, &id.0)?;
    reseal_to(&header, keys, object, to.generation, to.meta_key, (key, seed))
}

/// Open and decode a snapshot; who signed it is checked by [`Signer::verify`].
pub fn open(id: SnapshotId, keys: &impl MetaKeys, object: &[u8]) -> Result<(Snapshot, Signer)> {
    let header = Header::expect(object, ObjectType::Snapshot, &id.0)?;
    let (body, signer) = open_with(&header, keys, object)?;
    Ok((decode::<Body>(&body, OBJECT)?.into_snapshot(id)?, signer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_seal::PrivateKey;

    fn sample() -> Snapshot {
        Snapshot {
            id: SnapshotId([1; 16]),
            session: SessionId([2; 16]),
            time: (1_790_000_000, 5),
            host: "host".into(),
            user: "user".into(),
            paths: vec![b"/home/\xff".to_vec()],
            tags: vec!["tag".into()],
            root: Some(Root {
                node: ChunkId([3; 32]),
                level: 2,
                sums: Sums { entries: 10, files: 5, dirs: 3, bytes: 99 },
            }),
            partial: Some(Reached { dir: b"home".to_vec(), name: b"x".to_vec() }),
            parent: None,
            program: "drumlin".into(),
            summary: Summary { new: 10, absent: Some(1), rules: Some(u64::MAX), ..Summary::default() },
            plans: vec![PlanId([4; 16]), PlanId([5; 16])],
            original: Some(SnapshotId([6; 16])),
            passed_by: Some(vec![b"/srv".to_vec(), b"/var/lib/x\xff".to_vec()]),
        }
    }

    #[test]
    fn a_copy_says_of_what_and_others_say_nothing_more() {
        let copy = Snapshot { passed_by: None, ..sample() };
        let taken = Snapshot { original: None, ..copy.clone() };
        assert_eq!((copy.first_id(), taken.first_id()), (SnapshotId([6; 16]), taken.id));
        // One byte of the key, one of the length, 16 of the id: what is not a copy is written as it always was.
        let (with, without) = (copy.to_plain(), taken.to_plain());
        assert_eq!(with.len(), without.len() + 18);
        assert_eq!(with[with.len() - 18..][..2], [15, 0x50]);
        assert_eq!(Snapshot::from_plain(&without).unwrap(), taken);
        let mut short = with.clone();
        short.truncate(with.len() - 1);
        assert!(Snapshot::from_plain(&short).is_err());
    }

    #[test]
    fn only_the_metadata_key_opens_and_the_signature_holds() {
        let meta = PrivateKey::new(Secret::new([5; 32])).unwrap();
        let signing = SigningKey::new(Secret::new([6; 32])).unwrap();
        let (key, seed) = (Secret::new([7; 32]), Secret::new([8; 32]));
        let public = meta.public();
        let to = Recipient { suite: Suite::Aes256Gcm, generation: 0, meta_key: &public };
        let bytes = seal(&sample(), (KeyId([9; 16]), &signing), to, &key, &seed).unwrap();
        let (snapshot, signer) = open(SnapshotId([1; 16]), &meta, &bytes).unwrap();
        assert_eq!(snapshot, sample());
        assert_eq!(Snapshot::from_plain(&snapshot.to_plain()).unwrap(), snapshot);
        assert_eq!(signer.key, KeyId([9; 16]));
        assert!(signer.verify(&signing.verifying()).is_ok());
        assert!(signer.verify(&SigningKey::new(Secret::new([1; 32])).unwrap().verifying()).is_err());
        let longer = Snapshot { tags: vec!["tags".into()], ..sample() };
        let longer = seal(&longer, (KeyId([9; 16]), &signing), to, &key, &seed).unwrap();
        assert_eq!(longer.len(), bytes.len(), "a length tells little");
        assert!(open(SnapshotId([2; 16]), &meta, &bytes).is_err());
        assert!(open(SnapshotId([1; 16]), &PrivateKey::new(Secret::new([6; 32])).unwrap(), &bytes).is_err());
        for at in (0..bytes.len()).step_by(31) {
            let mut bent = bytes.clone();
            bent[at] ^= 1;
            assert!(open(SnapshotId([1; 16]), &meta, &bent).is_err(), "byte {at}");
            assert!(open(SnapshotId([1; 16]), &meta, &bytes[..at]).is_err(), "cut to {at}");
        }
    }
}
