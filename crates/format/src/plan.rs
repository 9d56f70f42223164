//! A collection plan: what a collector condemns. Writers that have seen it refer to nothing in it.
//!
//! ```text
//! header (32) | fresh (16) | sealed, for every role: CBOR [key id, signature, body bytes], padded
//! ```

use crate::cbor::{decode, encode};
use crate::generation::IndexKeys;
use crate::ids::split_ids;
use crate::sealed::{open_shared, seal_shared};
use crate::{Header, IndexId, ObjectType, PackId, PlanId, Result, Sealing, SessionId, Signer, SnapshotId};
use drumlin_seal::Suite;
use minicbor::{Decode, Encode};

/// What a collector condemns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    /// Its id.
    pub id: PlanId,
    /// The collector's session. The plan is carried out once a decision on that session says so.
    pub session: SessionId,
    /// Packs that will be removed.
    pub packs: Vec<PackId>,
    /// Index objects that will be removed: what else they name is named by others.
    pub indexes: Vec<IndexId>,
    /// Snapshots that need none of it: whoever takes over what they refer to need not look at each chunk.
    pub snapshots: Vec<SnapshotId>,
    /// Packs that stay, and that no index object will name any more.
    pub unnamed: Vec<PackId>,
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct Body {
    #[n(0)]
    session: SessionId,
    #[cbor(n(1), with = "minicbor::bytes")]
    packs: Vec<u8>,
    #[cbor(n(2), with = "minicbor::bytes")]
    indexes: Vec<u8>,
    #[cbor(n(3), with = "minicbor::bytes")]
    snapshots: Vec<u8>,
    #[cbor(n(4), with = "minicbor::bytes")]
    unnamed: Option<Vec<u8>>,
}

impl Plan {
    /// Encode, sign and seal.
    pub fn seal(&self, suite: Suite, with: Sealing) -> Vec<u8> {
        let body = Body {
            session: self.session,
            packs: self.packs.iter().flat_map(|id| id.0).collect(),
            indexes: self.indexes.iter().flat_map(|id| id.0).collect(),
            snapshots: self.snapshots.iter().flat_map(|id| id.0).collect(),
            unnamed: Some(self.unnamed.iter().flat_map(|id| id.0).collect()).filter(|ids: &Vec<u8>| !ids.is_empty()),
        };
        seal_shared(&with.header(ObjectType::Plan, suite, self.id.0), encode(&body), with)
    }

    /// Open and decode; whose word it is, is checked by [`Signer::verify`].
    pub fn open(id: PlanId, keys: &impl IndexKeys, object: &[u8]) -> Result<(Self, Signer)> {
        let header = Header::expect(object, ObjectType::Plan, &id.0)?;
        let (body, signer) = open_shared(&header, keys, object)?;
        let body: Body = decode(&body, "plan")?;
        let plan = Plan {
            id,
            session: body.session,
            packs: ids(&body.packs)?.map(PackId).collect(),
            indexes: ids(&body.indexes)?.map(IndexId).collect(),
            snapshots: ids(&body.snapshots)?.map(SnapshotId).collect(),
            unnamed: ids(&body.unnamed.unwrap_or_default())?.map(PackId).collect(),
        };
        Ok((plan, signer))
    }
}

fn ids(bytes: &[u8]) -> Result<impl Iterator<Item = [u8; 16]>> {
    split_ids(bytes, "plan")
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
        let plan = Plan {
            id: PlanId([3; 16]),
            session: SessionId([4; 16]),
            packs: vec![PackId([5; 16]), PackId([6; 16])],
            indexes: vec![IndexId([7; 16])],
            snapshots: vec![],
            unnamed: vec![PackId([8; 16])],
        };
        let bytes = plan.seal(Suite::Aes256Gcm, sealing([9; 16]));
        let (back, signer) = Plan::open(plan.id, &index_key, &bytes).unwrap();
        assert_eq!((&back, signer.key), (&plan, KeyId([2; 16])));
        assert!(signer.verify(&signing.verifying()).is_ok());
        assert!(Plan::open(PlanId([4; 16]), &index_key, &bytes).is_err());
        for at in 0..bytes.len() {
            let mut bent = bytes.clone();
            bent[at] ^= 1;
            assert!(Plan::open(plan.id, &index_key, &bent).is_err());
            assert!(Plan::open(plan.id, &index_key, &bytes[..at]).is_err());
        }
    }

    #[test]
    fn a_list_that_ends_within_an_id_is_refused() {
        assert!(ids(&[0; 32]).is_ok_and(|ids| ids.count() == 2));
        assert!(ids(&[0; 33]).is_err());
    }
}
