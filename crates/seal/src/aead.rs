//! Authenticated encryption with counted nonces.
//!
//! A [`SealKey`] is used for one object only, its nonces are the numbers of the object's parts: the caller never seals
//! two different messages under the same number. What is sealed where is laid down in `docs/format.md`.

use crate::{Error, Result, Secret};
use aws_lc_rs::aead::{AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

/// Bytes that sealing adds at the end of a message.
pub const TAG_BYTES: usize = 16;

/// An authenticated cipher, by its number in the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// AES-256 in Galois/counter mode, 96-bit nonces (NIST SP 800-38D).
    Aes256Gcm,
    /// ChaCha20-Poly1305 (RFC 8439): where the processor has no AES.
    ChaCha20Poly1305,
}

impl Suite {
    /// The suite's number in object headers.
    pub fn number(self) -> u8 {
        match self {
            Suite::Aes256Gcm => 1,
            Suite::ChaCha20Poly1305 => 2,
        }
    }

    /// The suite of a number.
    pub fn from_number(number: u8) -> Result<Self> {
        match number {
            1 => Ok(Suite::Aes256Gcm),
            2 => Ok(Suite::ChaCha20Poly1305),
            other => Err(Error::UnknownSuite(other)),
        }
    }
}

/// A key that seals and opens the parts of one object.
pub struct SealKey {
    key: LessSafeKey,
}

impl SealKey {
    /// A sealing key of a suite from 32 secret bytes.
    pub fn new(suite: Suite, key: &Secret) -> Self {
        let algorithm = match suite {
            Suite::Aes256Gcm => &AES_256_GCM,
            Suite::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        };
        let key = UnboundKey::new(algorithm, key.expose()).expect("both suites take keys of 32 bytes");
        SealKey { key: LessSafeKey::new(key) }
    }

    /// Encrypt `message` in place and append its tag. `part` must not be used twice with this key.
    pub fn seal(&self, part: u64, context: &[u8], message: &mut Vec<u8>) {
        self.key
            .seal_in_place_append_tag(nonce(part), Aad::from(context), message)
            .expect("sealing fails only beyond 64 GiB a message");
    }

    /// Like [`SealKey::seal`], but `message` is left as it is, and `sealed` becomes what it is sealed: one pass less
    /// over it.
    pub fn seal_into(&self, part: u64, context: &[u8], message: &[u8], sealed: &mut Vec<u8>) {
        resize_exactly(sealed, message.len() + TAG_BYTES);
        // All of the message is its "extra" part, which is the one that may come from elsewhere.
        self.key
            .seal_in_place_scatter(nonce(part), Aad::from(context), &mut [], message, sealed)
            .expect("sealing fails only beyond 64 GiB a message");
    }

    /// Encrypt `message` in place and return its tag.
    pub fn seal_detached(&self, part: u64, context: &[u8], message: &mut [u8]) -> [u8; TAG_BYTES] {
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce(part), Aad::from(context), message)
            .expect("sealing fails only beyond 64 GiB a message");
        let mut out = [0; TAG_BYTES];
        out.copy_from_slice(tag.as_ref());
        out
    }

    /// Check and decrypt in place what [`SealKey::seal`] made; gives the message without its tag.
    ///
    /// # Errors
    /// [`Error::NotAuthentic`]: another key, part or context, or other bytes. The buffer's contents are unspecified
    /// then and must not be used.
    pub fn open<'a>(&self, part: u64, context: &[u8], sealed: &'a mut [u8]) -> Result<&'a mut [u8]> {
        self.key.open_in_place(nonce(part), Aad::from(context), sealed).map_err(|_| Error::NotAuthentic)
    }

    /// Like [`SealKey::open`], but `sealed` is left as it is, and `plain` becomes the message: one pass less over it.
    ///
    /// # Errors
    /// As [`SealKey::open`]; the contents of `plain` are unspecified then and must not be used.
    pub fn open_into(&self, part: u64, context: &[u8], sealed: &[u8], plain: &mut Vec<u8>) -> Result<()> {
        let len = sealed.len().checked_sub(TAG_BYTES).ok_or(Error::NotAuthentic)?;
        let (message, tag) = sealed.split_at(len);
        resize_exactly(plain, len);
        self.key
            .open_separate_gather(nonce(part), Aad::from(context), message, tag, plain)
            .map_err(|_| Error::NotAuthentic)
    }
}

/// Buffers are used for one message after the other, nearly all of a size: to grow by as much again, as vectors do,
/// would leave half of them unused.
fn resize_exactly(buffer: &mut Vec<u8>, len: usize) {
    buffer.reserve_exact(len.saturating_sub(buffer.len()));
    buffer.resize(len, 0);
}

fn nonce(part: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&part.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_what_it_sealed_and_nothing_else() {
        for suite in [Suite::Aes256Gcm, Suite::ChaCha20Poly1305] {
            let key = SealKey::new(suite, &Secret::new([1; 32]));
            let mut sealed = b"some contents".to_vec();
            key.seal(3, b"header", &mut sealed);
            assert_eq!(sealed.len(), 13 + TAG_BYTES);
            assert_eq!(key.open(3, b"header", &mut sealed.clone()).unwrap(), b"some contents");
            assert_eq!(key.open(4, b"header", &mut sealed.clone()), Err(Error::NotAuthentic));
            assert_eq!(key.open(3, b"Header", &mut sealed.clone()), Err(Error::NotAuthentic));
            assert_eq!(key.open(3, b"header", &mut sealed.clone()[..10]), Err(Error::NotAuthentic));
            assert_eq!(key.open(3, b"header", &mut []), Err(Error::NotAuthentic));
            for mut plain in [vec![], vec![7; 5], vec![7; 99]] {
                key.open_into(3, b"header", &sealed, &mut plain).unwrap();
                assert_eq!(plain, b"some contents");
            }
            assert_eq!(key.open_into(3, b"header", &sealed[..10], &mut Vec::new()), Err(Error::NotAuthentic));
            for i in 0..sealed.len() {
                let mut bent = sealed.clone();
                bent[i] ^= 1;
                let mut plain = Vec::new();
                assert_eq!(key.open_into(3, b"header", &bent, &mut plain), Err(Error::NotAuthentic), "byte {i}");
                assert_eq!(key.open(3, b"header", &mut bent), Err(Error::NotAuthentic), "byte {i}");
            }
            for mut into in [vec![], vec![7; 5], vec![7; 99]] {
                key.seal_into(3, b"header", b"some contents", &mut into);
                assert_eq!(into, sealed);
            }
            let other = SealKey::new(suite, &Secret::new([2; 32]));
            assert_eq!(other.open(3, b"header", &mut sealed), Err(Error::NotAuthentic));
        }
    }

    #[test]
    fn detached_tag_equals_appended_tag() {
        let key = SealKey::new(Suite::Aes256Gcm, &Secret::new([1; 32]));
        let mut whole = vec![7; 100];
        key.seal(9, b"", &mut whole);
        let mut parts = vec![7; 100];
        let tag = key.seal_detached(9, b"", &mut parts);
        parts.extend(tag);
        assert_eq!(whole, parts);
    }
}
