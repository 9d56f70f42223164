//! Signatures: Ed25519 (RFC 8032).

use crate::{Error, Result, Secret, digest};
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

/// Bytes of a signature.
pub const SIGNATURE_BYTES: usize = 64;

/// Makes signatures.
pub struct SigningKey {
    secret: Secret,
    pair: Ed25519KeyPair,
}

impl SigningKey {
    /// The signing key of a 32-byte seed.
    pub fn new(secret: Secret) -> Result<Self> {
        let pair = Ed25519KeyPair::from_seed_unchecked(secret.expose()).map_err(|_| Error::Malformed("signing key"))?;
        Ok(SigningKey { secret, pair })
    }

    /// The seed that it was made from.
    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// The key that checks its signatures.
    pub fn verifying(&self) -> VerifyingKey {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(self.pair.public_key().as_ref());
        VerifyingKey(bytes)
    }

    /// Sign `message` for one `purpose`; a signature never counts for another purpose.
    pub fn sign(&self, purpose: &str, message: &[u8]) -> [u8; SIGNATURE_BYTES] {
        self.sign_digest(purpose, &digest(message))
    }

    /// Sign a message of which this is the [`digest`].
    pub fn sign_digest(&self, purpose: &str, digest: &[u8; 32]) -> [u8; SIGNATURE_BYTES] {
        let mut out = [0; SIGNATURE_BYTES];
        out.copy_from_slice(self.pair.sign(&framed(purpose, digest)).as_ref());
        out
    }
}

impl Clone for SigningKey {
    fn clone(&self) -> Self {
        SigningKey::new(self.secret.clone()).expect("a seed that made a key makes it again")
    }
}

/// Checks signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VerifyingKey(pub [u8; 32]);

impl VerifyingKey {
    /// Whether `signature` is this key's on `message` for `purpose`.
    ///
    /// # Errors
    /// [`Error::NotAuthentic`]: it isn't.
    pub fn verify(&self, purpose: &str, message: &[u8], signature: &[u8]) -> Result<()> {
        self.verify_digest(purpose, &digest(message), signature)
    }

    /// Whether `signature` is this key's on the message of which this is the [`digest`].
    ///
    /// # Errors
    /// [`Error::NotAuthentic`]: it isn't.
    pub fn verify_digest(&self, purpose: &str, digest: &[u8; 32], signature: &[u8]) -> Result<()> {
        UnparsedPublicKey::new(&ED25519, self.0)
            .verify(&framed(purpose, digest), signature)
            .map_err(|_| Error::NotAuthentic)
    }
}

/// What is signed: `drumlin v1 `, the purpose, a zero byte, the BLAKE3 hash of the message.
fn framed(purpose: &str, digest: &[u8; 32]) -> Vec<u8> {
    let mut out = format!("drumlin v1 {purpose}\0").into_bytes();
    out.extend_from_slice(digest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_hold_for_their_message_and_purpose_alone() {
        let key = SigningKey::new(Secret::new([1; 32])).unwrap();
        let signature = key.sign("snapshot", b"message");
        let verifying = key.verifying();
        assert!(verifying.verify("snapshot", b"message", &signature).is_ok());
        assert!(verifying.verify("snapshot", b"Message", &signature).is_err());
        assert!(verifying.verify("config", b"message", &signature).is_err());
        assert_eq!(key.sign_digest("snapshot", &digest(b"message")), signature);
        assert!(verifying.verify_digest("snapshot", &digest(b"message"), &signature).is_ok());
        assert!(verifying.verify_digest("snapshot", &digest(b"Message"), &signature).is_err());
        assert!(verifying.verify("snapshot", b"message", &signature[1..]).is_err());
        assert!(VerifyingKey([0; 32]).verify("snapshot", b"message", &signature).is_err());
    }
}
