//! Keyed identities, key derivation and plain checksums, all by BLAKE3
//! (O'Connor, Aumasson, Neves, Wilcox-O'Hearn, 2020).

use crate::Secret;
use zeroize::Zeroize;

/// A key that gives contents their 32-byte identity.
///
/// Without it nobody can tell from an identity what the contents are, nor confirm a guess.
#[derive(Clone)]
pub struct IdKey([u8; 32]);

impl IdKey {
    /// The identity key for one domain (`purpose`) below a repository's secret for identities.
    pub fn new(secret: &Secret, purpose: &str) -> Self {
        IdKey::from_derived(&derive(secret, purpose, &[]))
    }

    /// The identity key of 32 bytes that [`IdKey::derived`] gave: for who may check identities of one domain and not
    /// know the secret behind all of them.
    pub fn from_derived(bytes: &Secret) -> Self {
        IdKey(*bytes.expose())
    }

    /// The key itself, derived for its domain: to be handed on sealed.
    pub fn derived(&self) -> Secret {
        Secret::new(self.0)
    }

    /// The identity of `bytes`.
    pub fn id(&self, bytes: &[u8]) -> [u8; 32] {
        *blake3::keyed_hash(&self.0, bytes).as_bytes()
    }

    /// 64 uniform bits for short strings met one after the other, as `first` then `second`.
    /// `first` is a digest of fixed length, so the concatenation is unambiguous.
    pub fn short(&self, first: &[u8; 16], second: &[u8]) -> u64 {
        let mut buf = [0u8; 64];
        let hash = if second.len() <= 48 {
            buf[..16].copy_from_slice(first);
            buf[16..16 + second.len()].copy_from_slice(second);
            blake3::keyed_hash(&self.0, &buf[..16 + second.len()])
        } else {
            let mut hasher = blake3::Hasher::new_keyed(&self.0);
            hasher.update(first).update(second);
            hasher.finalize()
        };
        u64::from_le_bytes(hash.as_bytes()[..8].try_into().unwrap_or([0; 8]))
    }

    /// A hasher for contents that come in pieces.
    pub fn hasher(&self) -> blake3::Hasher {
        blake3::Hasher::new_keyed(&self.0)
    }
}

impl Drop for IdKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// A key derived from `secret` for one `purpose` and one `context` (an object's header, say; may be empty).
///
/// BLAKE3's key derivation with the string `drumlin v1 ` + `purpose` over `secret` followed by `context`.
pub fn derive(secret: &Secret, purpose: &str, context: &[u8]) -> Secret {
    let mut hasher = blake3::Hasher::new_derive_key(&format!("drumlin v1 {purpose}"));
    hasher.update(secret.expose()).update(context);
    Secret::new(*hasher.finalize().as_bytes())
}

/// Plain BLAKE3, 32 bytes: what stands for a long message in a signature, or in another message.
pub fn digest(bytes: &[u8]) -> [u8; 32] {
    *blake3::hash(bytes).as_bytes()
}

/// The first 16 bytes of plain BLAKE3: notices damage, proves nothing about who wrote the bytes.
pub fn checksum(bytes: &[u8]) -> [u8; 16] {
    let mut out = [0; 16];
    out.copy_from_slice(&blake3::hash(bytes).as_bytes()[..16]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purposes_and_contexts_separate_keys() {
        let secret = Secret::new([7; 32]);
        let a = derive(&secret, "a", b"");
        assert_ne!(a, derive(&secret, "b", b""));
        assert_ne!(a, derive(&secret, "a", b"x"));
        assert_ne!(IdKey::new(&secret, "a").id(b"x"), IdKey::new(&secret, "b").id(b"x"));
    }

    #[test]
    fn a_derived_key_gives_the_same_identities_and_no_others() {
        let secret = Secret::new([7; 32]);
        let key = IdKey::new(&secret, "a");
        assert_eq!(key.derived(), derive(&secret, "a", b""));
        assert_eq!(IdKey::from_derived(&key.derived()).id(b"x"), key.id(b"x"));
        assert_ne!(IdKey::from_derived(&key.derived()).id(b"x"), IdKey::new(&secret, "b").id(b"x"));
    }

    #[test]
    fn checksums_and_digests_are_plain_blake3() {
        // The first 16 and all 32 bytes of the hash of nothing, from BLAKE3's own test vectors.
        let empty = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(hex(&digest(b"")), empty);
        assert_eq!(hex(&checksum(b"")), empty[..32]);
    }

    #[test]
    fn short_agrees_with_the_plain_definition_at_every_length() {
        let key = IdKey::new(&Secret::new([9; 32]), "test");
        for len in 0..130 {
            let text = vec![b'n'; len];
            let whole = [&[5u8; 16][..], &text].concat();
            assert_eq!(key.short(&[5; 16], &text).to_le_bytes(), key.id(&whole)[..8]);
        }
    }
}
