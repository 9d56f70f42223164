//! The config: what every client must know of a repository before it can use a key. Signed by the repository's owner.
//!
//! ```text
//! header (32) | CBOR [body bytes, signature] | checksum (16)
//! ```

use crate::cbor::{decode, encode, plain_body, plain_object};
use crate::error::malformed;
use crate::{Error, Header, ObjectType, RepositoryId, Result};
use drumlin_seal::{PublicKey, SigningKey, Suite, VerifyingKey};
use minicbor::{Decode, Encode};

const OBJECT: &str = "config";
const PURPOSE: &str = "config";

/// The most that a block may gather, and the longest chunk: together below [`crate::pack::BLOCK_BYTES_MAX`], so that no
/// config makes blocks which a decoder refuses.
pub const GATHERED_BYTES_MAX: u32 = 4 << 20;

/// How contents are cut; the same for the life of a repository, or nothing deduplicates any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct ChunkSizes {
    /// No cut before so many bytes.
    #[n(0)]
    pub min: u32,
    /// The size around which chunks gather, a power of two. A file no longer than this is one chunk.
    #[n(1)]
    pub normal: u32,
    /// A cut after so many bytes at the latest.
    #[n(2)]
    pub max: u32,
}

/// What every client knows of a repository.
#[derive(Clone)]
pub struct Config {
    /// The repository.
    pub id: RepositoryId,
    /// The cipher suite of new objects.
    pub suite: Suite,
    /// How contents are cut.
    pub chunks: ChunkSizes,
    /// Bytes of chunks that a block gathers before it is closed.
    pub block_bytes: u32,
    /// Bytes after which a pack is closed.
    pub pack_bytes: u32,
    /// Keys of data packs of the first generation are sealed to this.
    pub data_key: PublicKey,
    /// Keys of tree packs and snapshots of the first generation are sealed to this.
    pub meta_key: PublicKey,
    /// The owner's key: it signs this config and who may write.
    pub owner: VerifyingKey,
    /// The number of the newest generation that there was when it was written; there may be newer ones. 0: the first
    /// one is all.
    pub generation: u32,
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct Body {
    #[n(0)]
    chunks: ChunkSizes,
    #[n(1)]
    block_bytes: u32,
    #[n(2)]
    pack_bytes: u32,
    #[cbor(n(3), with = "minicbor::bytes")]
    data_key: Vec<u8>,
    #[cbor(n(4), with = "minicbor::bytes")]
    meta_key: Vec<u8>,
    #[cbor(n(5), with = "minicbor::bytes")]
    owner: Vec<u8>,
    /// Features a reader must know; any unknown one means: keep away.
    #[n(6)]
    needs: Vec<String>,
    #[n(7)]
    generation: Option<u32>,
}

/// Stands in `needs` if there are generations behind the first.
const GENERATIONS: &str = "generations";

#[derive(Encode, Decode)]
struct Signed {
    #[cbor(n(0), with = "minicbor::bytes")]
    body: Vec<u8>,
    #[cbor(n(1), with = "minicbor::bytes")]
    signature: Vec<u8>,
}

impl Config {
    /// Encode and sign. `owner` must be the key whose verifying half is `self.owner`.
    pub fn encode(&self, owner: &SigningKey) -> Vec<u8> {
        let header = Header::new(ObjectType::Config, self.suite, self.id.0);
        let body = encode(&Body {
            chunks: self.chunks,
            block_bytes: self.block_bytes,
            pack_bytes: self.pack_bytes,
            data_key: self.data_key.encode(),
            meta_key: self.meta_key.encode(),
            owner: self.owner.0.to_vec(),
            needs: if self.generation > 0 { vec![GENERATIONS.to_owned()] } else { Vec::new() },
            generation: (self.generation > 0).then_some(self.generation),
        });
        let signature = owner.sign(PURPOSE, &signed_bytes(&header, &body)).to_vec();
        plain_object(&header, &encode(&Signed { body, signature }))
    }

    /// Decode, and check that the owner named inside signed it. That the owner is the right one only a key can tell:
    /// compare [`Config::owner`] with the owner that the key names.
    pub fn decode(object: &[u8]) -> Result<Self> {
        let header = Header::decode(object, ObjectType::Config)?;
        let signed: Signed = decode(plain_body(&header, object)?, OBJECT)?;
        let body: Body = decode(&signed.body, OBJECT)?;
        if body.needs.iter().any(|feature| feature != GENERATIONS) {
            return Err(Error::Feature { object: OBJECT });
        }
        let generation = body.generation.unwrap_or(0);
        let needs = body.needs.iter().any(|feature| feature == GENERATIONS);
        if needs != (generation > 0) || header.generation != 0 {
            return malformed(OBJECT, "what it says of generations contradicts itself");
        }
        let ChunkSizes { min, normal, max } = body.chunks;
        if !(normal.is_power_of_two()
            && min >= 64
            && min <= normal
            && normal <= max
            && max <= GATHERED_BYTES_MAX
            && normal >= 4096)
        {
            return malformed(OBJECT, "its chunk sizes make no sense");
        }
        if !(4096..=GATHERED_BYTES_MAX).contains(&body.block_bytes) || !(64 << 10..=1 << 30).contains(&body.pack_bytes)
        {
            return malformed(OBJECT, "its block or pack size makes no sense");
        }
        let seal = |source| Error::Seal { object: OBJECT, source };
        let Ok(owner) = <[u8; 32]>::try_from(&body.owner[..]) else {
            return malformed(OBJECT, "its owner is not a key");
        };
        let owner = VerifyingKey(owner);
        owner.verify(PURPOSE, &signed_bytes(&header, &signed.body), &signed.signature).map_err(seal)?;
        Ok(Config {
            id: RepositoryId(header.id),
            suite: header.suite,
            chunks: body.chunks,
            block_bytes: body.block_bytes,
            pack_bytes: body.pack_bytes,
            data_key: PublicKey::decode(&body.data_key).map_err(seal)?,
            meta_key: PublicKey::decode(&body.meta_key).map_err(seal)?,
            owner,
            generation,
        })
    }
}

fn signed_bytes(header: &Header, body: &[u8]) -> Vec<u8> {
    [&header.encode()[..], body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::BLOCK_BYTES_MAX;
    use drumlin_seal::{PrivateKey, Secret};

    // A block is closed once it has gathered enough: it holds less than that, and one more chunk.
    const _: () = assert!(2 * GATHERED_BYTES_MAX as u64 <= BLOCK_BYTES_MAX);

    #[test]
    fn round_trip_and_every_flip_is_noticed() {
        let owner = SigningKey::new(Secret::new([1; 32])).unwrap();
        let config = Config {
            id: RepositoryId([2; 16]),
            suite: Suite::Aes256Gcm,
            chunks: ChunkSizes { min: 16384, normal: 65536, max: 262144 },
            block_bytes: 1 << 20,
            pack_bytes: 64 << 20,
            data_key: PrivateKey::new(Secret::new([3; 32])).unwrap().public(),
            meta_key: PrivateKey::new(Secret::new([4; 32])).unwrap().public(),
            owner: owner.verifying(),
            generation: 0,
        };
        let bytes = config.encode(&owner);
        let back = Config::decode(&bytes).unwrap();
        assert_eq!((back.id, back.chunks, back.owner), (config.id, config.chunks, config.owner));
        assert_eq!(back.meta_key.encode(), config.meta_key.encode());
        for at in (0..bytes.len()).step_by(7) {
            let mut bent = bytes.clone();
            bent[at] ^= 1;
            assert!(Config::decode(&bent).is_err(), "byte {at}");
            assert!(Config::decode(&bytes[..at]).is_err(), "cut to {at}");
        }
        let sizes = |block_bytes, max| {
            let chunks = ChunkSizes { max, ..config.chunks };
            Config::decode(&Config { block_bytes, chunks, ..config.clone() }.encode(&owner)).is_ok()
        };
        assert!(sizes(4 << 20, 4 << 20));
        assert!(!sizes((4 << 20) + 1, 4 << 20) && !sizes(4 << 20, (4 << 20) + 1) && !sizes(4095, 4 << 20));
        let later = Config { generation: 3, ..config.clone() }.encode(&owner);
        assert_eq!(Config::decode(&later).unwrap().generation, 3);
        assert_eq!(back.generation, 0);
        let has = |bytes: &[u8]| bytes.windows(11).any(|w| w == b"generations");
        assert!(
            has(&later) && !has(&bytes),
            "older programs are kept away from what they don't know, and from no other"
        );
        let stranger = SigningKey::new(Secret::new([9; 32])).unwrap();
        assert!(Config::decode(&config.encode(&stranger)).is_err(), "signed by another");
    }
}
