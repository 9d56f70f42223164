//! Who made an object: the key id and the signature that stand in it, inside the seal.
//!
//! Every role can seal under the index secret; only the signature tells who did. It counts as somebody's word once it
//! was compared with that key's certificate, which is the reader's part: [`Signer::verify`].

use crate::error::malformed;
use crate::generation::IndexKeys;
use crate::{Error, FRESH_BYTES, Header, KeyId, ObjectType, Result};
use drumlin_seal::{SIGNATURE_BYTES, SealKey, Secret, SigningKey, Suite, VerifyingKey, derive};

/// Bytes of a key id and a signature.
pub(crate) const ATTRIBUTION_BYTES: usize = 16 + SIGNATURE_BYTES;

/// With what an object is signed, and sealed for every role. Used up by the sealing: its fresh bytes serve once.
pub struct Sealing<'a> {
    /// The tag of the generation that it is sealed in.
    pub generation: u32,
    /// That generation's index secret.
    pub index_key: &'a Secret,
    /// The key whose holder signs.
    pub key: KeyId,
    /// That key's signing half.
    pub signing: &'a SigningKey,
    /// Random bytes, never used before.
    pub fresh: [u8; FRESH_BYTES],
}

impl Sealing<'_> {
    /// The header of a new object that is sealed so.
    pub fn header(&self, object: ObjectType, suite: Suite, id: [u8; 16]) -> Header {
        Header::new(object, suite, id).of(self.generation)
    }

    /// The key that seals the object of this header, for one `purpose`.
    pub(crate) fn seal_key(&self, header: &Header, purpose: &str) -> SealKey {
        debug_assert_eq!(header.generation, self.generation, "another generation's secret");
        shared_key(header, purpose, self.index_key, &self.fresh)
    }

    /// Key id and signature on `body`.
    pub(crate) fn attribution(&self, header: &Header, purpose: &str, body: &[u8]) -> [u8; ATTRIBUTION_BYTES] {
        let signature = self.signing.sign_digest(purpose, &signed_digest(header, self.key, body));
        let mut out = [0; ATTRIBUTION_BYTES];
        out[..16].copy_from_slice(&self.key.0);
        out[16..].copy_from_slice(&signature);
        out
    }
}

/// A key that every role can derive, of one object and of one sealing of it.
pub(crate) fn shared_key(header: &Header, purpose: &str, index_key: &Secret, fresh: &[u8; FRESH_BYTES]) -> SealKey {
    SealKey::new(header.suite, &derive(index_key, purpose, &[&header.encode()[..], fresh].concat()))
}

/// The [`shared_key`] made of the index secret of the header's generation.
pub(crate) fn shared_key_of(
    header: &Header,
    purpose: &str,
    keys: &impl IndexKeys,
    fresh: &[u8; FRESH_BYTES],
) -> Result<SealKey> {
    let unknown = Error::Generation { object: header.object.label(), generation: header.generation };
    let index_key = keys.index_key(header.generation).ok_or(unknown)?;
    Ok(shared_key(header, purpose, index_key, fresh))
}

/// Who signed an object, by its own word: to be compared with the certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signer {
    /// The key.
    pub key: KeyId,
    purpose: &'static str,
    digest: [u8; 32],
    signature: [u8; SIGNATURE_BYTES],
}

impl Signer {
    /// The signer of `body`, as an object of this header gives its key and signature.
    pub(crate) fn new(
        header: &Header,
        purpose: &'static str,
        key: KeyId,
        signature: &[u8],
        body: &[u8],
    ) -> Result<Self> {
        let Ok(signature) = signature.try_into() else {
            return malformed(purpose, "its signature has the wrong length");
        };
        Ok(Signer { key, purpose, digest: signed_digest(header, key, body), signature })
    }

    /// Take key id and signature off `bytes`, which go on with the body; gives the body too.
    pub(crate) fn split<'b>(header: &Header, purpose: &'static str, bytes: &'b [u8]) -> Result<(Self, &'b [u8])> {
        let Some((attribution, body)) = bytes.split_first_chunk::<ATTRIBUTION_BYTES>() else {
            return malformed(purpose, "it ends within its signature");
        };
        let mut key = [0; 16];
        key.copy_from_slice(&attribution[..16]);
        Ok((Signer::new(header, purpose, KeyId(key), &attribution[16..], body)?, body))
    }

    /// Whether the key of this verifying half signed it.
    pub fn verify(&self, key: &VerifyingKey) -> Result<()> {
        key.verify_digest(self.purpose, &self.digest, &self.signature)
            .map_err(|source| Error::Seal { object: self.purpose, source })
    }
}

/// The digest of what is signed: header, key id, body.
pub(crate) fn signed_digest(header: &Header, key: KeyId, body: &[u8]) -> [u8; 32] {
    let mut hasher = drumlin_seal::Hasher::new();
    hasher.update(&header.encode()).update(&key.0).update(body);
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_seal::digest;

    #[test]
    fn a_signature_is_of_its_header_its_key_and_its_body() {
        let (index_key, signing) = (Secret::new([1; 32]), SigningKey::new(Secret::new([2; 32])).unwrap());
        let header = Header::new(ObjectType::Index, Suite::Aes256Gcm, [3; 16]);
        let sealing =
            Sealing { generation: 0, index_key: &index_key, key: KeyId([4; 16]), signing: &signing, fresh: [5; 16] };
        let attribution = sealing.attribution(&header, "thing", b"body");
        let bytes = [&attribution[..], b"body"].concat();
        let verify = |header: &Header, purpose, bytes: &[u8]| {
            Signer::split(header, purpose, bytes).and_then(|(signer, _)| signer.verify(&signing.verifying()))
        };
        let (signer, body) = Signer::split(&header, "thing", &bytes).unwrap();
        assert_eq!((signer.key, body), (KeyId([4; 16]), &b"body"[..]));
        assert!(verify(&header, "thing", &bytes).is_ok());
        assert!(verify(&header, "other", &bytes).is_err());
        assert!(verify(&Header { id: [9; 16], ..header }, "thing", &bytes).is_err());
        assert!(verify(&Header { version: 0, ..header }, "thing", &bytes).is_err());
        for at in 0..bytes.len() {
            let mut bent = bytes.clone();
            bent[at] ^= 1;
            assert!(verify(&header, "thing", &bent).is_err(), "byte {at}");
        }
        assert!(Signer::split(&header, "thing", &bytes[..ATTRIBUTION_BYTES - 1]).is_err());
        // The same message, signed in the plain way.
        let message = [&header.encode()[..], &[4; 16], b"body"].concat();
        assert_eq!(attribution[16..], signing.sign("thing", &message));
        assert_eq!(signed_digest(&header, KeyId([4; 16]), b"body"), digest(&message));
    }
}
