//! A decision: what became of a session, settled once by whoever creates the object first.
//!
//! ```text
//! header (32) | fresh (16) | sealed, for every role: CBOR [key id, signature, verdict bytes], padded
//! ```
//!
//! It is signed, so that a role which may not decide is not believed. The storage can't tell one verdict from another:
//! both are of one length.

use crate::cbor::{decode, encode};
use crate::generation::IndexKeys;
use crate::sealed::{open_shared, seal_shared};
use crate::{Header, ObjectType, PlanId, Result, Sealing, SessionId, Signer, SnapshotId};
use drumlin_seal::Suite;
use minicbor::{Decode, Encode};

/// What was decided.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum Verdict {
    /// The session's snapshot counts. Decided by its writer.
    #[n(0)]
    Committed {
        /// The snapshot.
        #[n(0)]
        snapshot: SnapshotId,
    },
    /// The session lost: nothing that it wrote counts. Decided by a collector.
    #[n(1)]
    Evicted {
        /// Zero. Readers pass over it.
        #[n(0)]
        plan: u64,
    },
    /// Nothing yet: a collector is about to evict the session, if that has not ended meanwhile.
    #[n(2)]
    Claimed {
        /// The collector's session.
        #[n(0)]
        by: SessionId,
    },
    /// The session is a collector's, and its plan is to be carried out. Decided by that collector.
    #[n(3)]
    Collected {
        /// The plan.
        #[n(0)]
        plan: PlanId,
    },
}

/// Sign and seal a decision on a session.
pub fn seal(session: SessionId, verdict: &Verdict, suite: Suite, with: Sealing) -> Vec<u8> {
    seal_shared(&with.header(ObjectType::Decision, suite, session.0), encode(verdict), with)
}

/// Open and decode a decision; who took it is checked by [`Signer::verify`].
pub fn open(session: SessionId, keys: &impl IndexKeys, object: &[u8]) -> Result<(Verdict, Signer)> {
    let header = Header::expect(object, ObjectType::Decision, &session.0)?;
    let (verdict, signer) = open_shared(&header, keys, object)?;
    Ok((decode(&verdict, "decision")?, signer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeyId;
    use drumlin_seal::{SealKey, Secret, SigningKey, derive};

    const SESSION: SessionId = SessionId([4; 16]);

    fn decide(verdict: &Verdict, by: u8, fresh: [u8; 16]) -> Vec<u8> {
        let (index_key, signing) = (Secret::new([1; 32]), SigningKey::new(Secret::new([by; 32])).unwrap());
        let with = Sealing { generation: 0, index_key: &index_key, key: KeyId([by; 16]), signing: &signing, fresh };
        seal(SESSION, verdict, Suite::Aes256Gcm, with)
    }

    #[test]
    fn round_trip_and_signature() {
        let index_key = Secret::new([1; 32]);
        let mut lens = Vec::new();
        for verdict in [
            Verdict::Committed { snapshot: SnapshotId([3; 16]) },
            Verdict::Evicted { plan: 9 },
            Verdict::Evicted { plan: u64::MAX },
            Verdict::Claimed { by: SessionId([4; 16]) },
            Verdict::Collected { plan: PlanId([5; 16]) },
        ] {
            let bytes = decide(&verdict, 2, [9; 16]);
            let (decided, signer) = open(SESSION, &index_key, &bytes).unwrap();
            assert_eq!((&decided, signer.key), (&verdict, KeyId([2; 16])));
            assert!(signer.verify(&SigningKey::new(Secret::new([2; 32])).unwrap().verifying()).is_ok());
            assert!(signer.verify(&SigningKey::new(Secret::new([3; 32])).unwrap().verifying()).is_err());
            assert!(open(SessionId([5; 16]), &index_key, &bytes).is_err());
            for at in 0..bytes.len() {
                assert!(open(SESSION, &index_key, &bytes[..at]).is_err(), "cut to {at}");
            }
            lens.push(bytes.len());
        }
        assert!(lens.iter().all(|len| *len == lens[0]), "the length tells the verdict: {lens:?}");
    }

    #[test]
    fn competing_decisions_share_no_key_stream() {
        let a = decide(&Verdict::Committed { snapshot: SnapshotId([3; 16]) }, 2, [7; 16]);
        let b = decide(&Verdict::Evicted { plan: 9 }, 3, [8; 16]);
        let plain = |object: &[u8]| {
            let key = derive(&Secret::new([1; 32]), "small object", &object[..48]);
            let mut sealed = object[48..].to_vec();
            SealKey::new(Suite::Aes256Gcm, &key).open(0, &object[..32], &mut sealed).unwrap().to_vec()
        };
        let (plain_a, plain_b) = (plain(&a), plain(&b));
        let same = (0..plain_a.len()).filter(|i| a[48 + i] ^ b[48 + i] == plain_a[*i] ^ plain_b[*i]).count();
        assert!(same < plain_a.len() / 8, "{same} of {} bytes bear the same key stream", plain_a.len());
    }
}
