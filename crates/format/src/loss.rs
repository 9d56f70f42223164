//! A loss: what is damaged or missing in a repository and could not be healed. Backups that meet such contents again
//! store them again; prunes know that these chunks are missing, and leave the packs alone in which they may yet be
//! found.
//!
//! ```text
//! header (32) | fresh (16) | sealed, for every role: CBOR [key id, signature, body bytes], padded
//! ```

use crate::cbor::{decode, encode};
use crate::error::malformed;
use crate::generation::IndexKeys;
use crate::ids::split_ids;
use crate::sealed::{open_shared, seal_shared};
use crate::{ChunkId, Header, LossId, ObjectType, PackId, Result, Sealing, Signer};
use drumlin_seal::Suite;
use minicbor::{Decode, Encode};

/// What is lost, as long as nobody stores it again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Loss {
    /// Its id.
    pub id: LossId,
    /// Chunks of file contents that snapshots need and no sound pack has.
    pub chunks: Vec<ChunkId>,
    /// Packs that are damaged, and in no index any more.
    pub packs: Vec<PackId>,
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct Body {
    #[cbor(n(0), with = "minicbor::bytes")]
    chunks: Vec<u8>,
    #[cbor(n(1), with = "minicbor::bytes")]
    packs: Vec<u8>,
}

impl Loss {
    /// Encode, sign and seal.
    pub fn seal(&self, suite: Suite, with: Sealing) -> Vec<u8> {
        let body = Body {
            chunks: self.chunks.iter().flat_map(|id| id.0).collect(),
            packs: self.packs.iter().flat_map(|id| id.0).collect(),
        };
        seal_shared(&with.header(ObjectType::Loss, suite, self.id.0), encode(&body), with)
    }

    /// Open and decode; whose word it is, is checked by [`Signer::verify`].
    pub fn open(id: LossId, keys: &impl IndexKeys, object: &[u8]) -> Result<(Self, Signer)> {
        let header = Header::expect(object, ObjectType::Loss, &id.0)?;
        let (body, signer) = open_shared(&header, keys, object)?;
        let body: Body = decode(&body, "loss")?;
        let (chunks, rest) = body.chunks.as_chunks::<32>();
        if !rest.is_empty() {
            return malformed("loss", "a list of ids ends within one");
        }
        let chunks = chunks.iter().copied().map(ChunkId).collect();
        Ok((Loss { id, chunks, packs: split_ids(&body.packs, "loss")?.map(PackId).collect() }, signer))
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
        let loss = Loss {
            id: LossId([3; 16]),
            chunks: vec![ChunkId([5; 32]), ChunkId([6; 32])],
            packs: vec![PackId([7; 16])],
        };
        let bytes = loss.seal(Suite::Aes256Gcm, sealing([9; 16]));
        let (back, signer) = Loss::open(loss.id, &index_key, &bytes).unwrap();
        assert_eq!((&back, signer.key), (&loss, KeyId([2; 16])));
        assert!(signer.verify(&signing.verifying()).is_ok());
        assert!(Loss::open(LossId([4; 16]), &index_key, &bytes).is_err());
        for at in 0..bytes.len() {
            let mut bent = bytes.clone();
            bent[at] ^= 1;
            assert!(Loss::open(loss.id, &index_key, &bent).is_err());
            assert!(Loss::open(loss.id, &index_key, &bytes[..at]).is_err());
        }
    }
}
