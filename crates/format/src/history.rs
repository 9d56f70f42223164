//! An entry of the history: what its signer removes from the repository, put before anything of it goes. Whoever has
//! seen an object that is not there any more finds it in an entry, or knows that it went by nobody's word.
//!
//! ```text
//! header (32) | fresh (16) | sealed, for every role: CBOR [key id, signature, body bytes], padded
//! ```

use crate::cbor::{decode, encode};
use crate::generation::IndexKeys;
use crate::ids::split_ids;
use crate::sealed::{open_shared, seal_shared};
use crate::{Header, HistoryId, IndexId, ObjectType, Result, Sealing, Signer, SnapshotId};
use drumlin_seal::Suite;
use minicbor::{Decode, Encode};

/// What was removed, or is about to be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Its id.
    pub id: HistoryId,
    /// By what: `forget`, `prune` or `repair`. For people.
    pub act: String,
    /// When, in seconds since 1970. For people.
    pub time: i64,
    /// Snapshots that leave the list: forgotten, or of a session that was evicted.
    pub snapshots: Vec<SnapshotId>,
    /// Index objects that go.
    pub indexes: Vec<IndexId>,
    /// Entries that need not stand any more: all that they said is said here, and those that they absorbed are named
    /// here, too.
    pub absorbed: Vec<HistoryId>,
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct Body {
    #[n(0)]
    act: String,
    #[n(1)]
    time: i64,
    #[cbor(n(2), with = "minicbor::bytes")]
    snapshots: Vec<u8>,
    #[cbor(n(3), with = "minicbor::bytes")]
    indexes: Vec<u8>,
    #[cbor(n(4), with = "minicbor::bytes")]
    absorbed: Vec<u8>,
}

impl Entry {
    /// An entry that says nothing yet.
    pub fn new(id: HistoryId, act: &str, time: i64) -> Self {
        let (snapshots, indexes, absorbed) = Default::default();
        Entry { id, act: act.to_owned(), time, snapshots, indexes, absorbed }
    }

    /// Encode, sign and seal.
    pub fn seal(&self, suite: Suite, with: Sealing) -> Vec<u8> {
        let body = Body {
            act: self.act.clone(),
            time: self.time,
            snapshots: self.snapshots.iter().flat_map(|id| id.0).collect(),
            indexes: self.indexes.iter().flat_map(|id| id.0).collect(),
            absorbed: self.absorbed.iter().flat_map(|id| id.0).collect(),
        };
        seal_shared(&with.header(ObjectType::History, suite, self.id.0), encode(&body), with)
    }

    /// Open and decode; whose word it is, is checked by [`Signer::verify`].
    pub fn open(id: HistoryId, keys: &impl IndexKeys, object: &[u8]) -> Result<(Self, Signer)> {
        let header = Header::expect(object, ObjectType::History, &id.0)?;
        let what = header.object.label();
        let (body, signer) = open_shared(&header, keys, object)?;
        let body: Body = decode(&body, what)?;
        let entry = Entry {
            id,
            act: body.act,
            time: body.time,
            snapshots: split_ids(&body.snapshots, what)?.map(SnapshotId).collect(),
            indexes: split_ids(&body.indexes, what)?.map(IndexId).collect(),
            absorbed: split_ids(&body.absorbed, what)?.map(HistoryId).collect(),
        };
        Ok((entry, signer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeyId;
    use drumlin_seal::{Secret, SigningKey};

    #[test]
    fn round_trip_and_signature() {
        let (index_key, signing) = (Secret::new([1; 32]), SigningKey::new(Secret::new([2; 32])).unwrap());
        let sealing =
            |fresh| Sealing { generation: 0, index_key: &index_key, key: KeyId([2; 16]), signing: &signing, fresh };
        let entry = Entry {
            snapshots: vec![SnapshotId([5; 16]), SnapshotId([6; 16])],
            indexes: vec![IndexId([7; 16])],
            absorbed: vec![HistoryId([8; 16])],
            ..Entry::new(HistoryId([3; 16]), "prune", -7)
        };
        let bytes = entry.seal(Suite::Aes256Gcm, sealing([9; 16]));
        let (back, signer) = Entry::open(entry.id, &index_key, &bytes).unwrap();
        assert_eq!((&back, signer.key), (&entry, KeyId([2; 16])));
        assert!(signer.verify(&signing.verifying()).is_ok());
        assert!(Entry::open(HistoryId([4; 16]), &index_key, &bytes).is_err());
        for at in 0..bytes.len() {
            let mut bent = bytes.clone();
            bent[at] ^= 1;
            assert!(Entry::open(entry.id, &index_key, &bent).is_err());
            assert!(Entry::open(entry.id, &index_key, &bytes[..at]).is_err());
        }
    }
}
