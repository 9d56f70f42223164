//! Sealing a small key to a public key: what lets a client add without being able to read.
//!
//! HPKE in base mode (RFC 9180) with the X-Wing KEM (X25519 with ML-KEM-768, draft-connolly-cfrg-xwing-kem; KEM id
//! 0x647a), HKDF-SHA256 (0x0001) and ChaCha20-Poly1305 (0x0003).

use crate::{Error, Result, Secret, Seed};
use hpke::rand_core::{TryCryptoRng, TryRng};
use hpke::{
    Deserializable, Kem, OpModeR, OpModeS, Serializable, aead::ChaCha20Poly1305, kdf::HkdfSha256, kem::XWing,
    single_shot_open, single_shot_seal_with_rng,
};
use std::convert::Infallible;
use zeroize::Zeroizing;

/// Bytes of an encoded public key.
pub const PUBLIC_KEY_BYTES: usize = 1216;
/// Bytes of a wrapped 32-byte key: the encapsulation (1120), the sealed key (32), its tag (16).
pub const WRAPPED_BYTES: usize = ENCAPSULATION_BYTES + 32 + 16;
const ENCAPSULATION_BYTES: usize = 1120;

/// Seals keys that only the holder of the private key can open.
#[derive(Clone)]
pub struct PublicKey(<XWing as Kem>::PublicKey);

/// Opens what was sealed to its public key.
#[derive(Clone)]
pub struct PrivateKey {
    secret: Secret,
    key: <XWing as Kem>::PrivateKey,
}

impl PublicKey {
    /// Decode a public key of [`PUBLIC_KEY_BYTES`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        <XWing as Kem>::PublicKey::from_bytes(bytes).map(PublicKey).map_err(|_| Error::Malformed("public key"))
    }

    /// The encoded key.
    pub fn encode(&self) -> Vec<u8> {
        self.0.to_bytes().to_vec()
    }

    /// Seal `key`. `info` separates uses, `context` (an object's header) is authenticated with it.
    pub fn wrap(&self, key: &Secret, info: &[u8], context: &[u8], seed: &Seed) -> Result<Vec<u8>> {
        let (encapsulation, sealed) = single_shot_seal_with_rng::<ChaCha20Poly1305, HkdfSha256, XWing>(
            &OpModeS::Base,
            &self.0,
            info,
            key.expose(),
            context,
            &mut SeedRng::new(seed),
        )
        .map_err(|_| Error::Malformed("public key"))?;
        let mut out = encapsulation.to_bytes().to_vec();
        out.extend(sealed);
        Ok(out)
    }
}

impl PrivateKey {
    /// The private key that these 32 secret bytes are (X-Wing's decapsulation key seed).
    pub fn new(secret: Secret) -> Result<Self> {
        let key =
            <XWing as Kem>::PrivateKey::from_bytes(secret.expose()).map_err(|_| Error::Malformed("private key"))?;
        Ok(PrivateKey { secret, key })
    }

    /// The 32 bytes that it was made from.
    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// Its public key.
    pub fn public(&self) -> PublicKey {
        PublicKey(XWing::sk_to_pk(&self.key))
    }

    /// Open what [`PublicKey::wrap`] sealed with the same `info` and `context`.
    pub fn unwrap_key(&self, wrapped: &[u8], info: &[u8], context: &[u8]) -> Result<Secret> {
        if wrapped.len() != WRAPPED_BYTES {
            return Err(Error::Malformed("wrapped key"));
        }
        let (encapsulation, sealed) = wrapped.split_at(ENCAPSULATION_BYTES);
        let encapsulation =
            <XWing as Kem>::EncappedKey::from_bytes(encapsulation).map_err(|_| Error::Malformed("wrapped key"))?;
        let plain = single_shot_open::<ChaCha20Poly1305, HkdfSha256, XWing>(
            &OpModeR::Base,
            &self.key,
            &encapsulation,
            info,
            sealed,
            context,
        )
        .map_err(|_| Error::NotAuthentic)?;
        let plain = Zeroizing::new(plain);
        Secret::from_slice(&plain).ok_or(Error::Malformed("wrapped key"))
    }
}

/// A stream of bytes expanded from a seed by BLAKE3's extendable output.
struct SeedRng(blake3::OutputReader);

impl SeedRng {
    fn new(seed: &Seed) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("drumlin v1 randomness of one encapsulation");
        hasher.update(seed.expose());
        SeedRng(hasher.finalize_xof())
    }
}

impl TryRng for SeedRng {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> std::result::Result<u32, Infallible> {
        let mut bytes = [0; 4];
        self.0.fill(&mut bytes);
        Ok(u32::from_le_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> std::result::Result<u64, Infallible> {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        Ok(u64::from_le_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, out: &mut [u8]) -> std::result::Result<(), Infallible> {
        self.0.fill(out);
        Ok(())
    }
}

impl TryCryptoRng for SeedRng {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum;

    #[test]
    fn only_the_private_key_opens() {
        let private = PrivateKey::new(Secret::new([3; 32])).unwrap();
        let public = PublicKey::decode(&private.public().encode()).unwrap();
        let key = Secret::new([8; 32]);
        let wrapped = public.wrap(&key, b"pack", b"header", &Secret::new([4; 32])).unwrap();
        assert_eq!(wrapped.len(), WRAPPED_BYTES);
        assert_eq!(public.encode().len(), PUBLIC_KEY_BYTES);
        assert_eq!(private.unwrap_key(&wrapped, b"pack", b"header").unwrap(), key);
        assert!(private.unwrap_key(&wrapped, b"pack", b"other").is_err());
        assert!(private.unwrap_key(&wrapped, b"snap", b"header").is_err());
        assert!(private.unwrap_key(&wrapped[1..], b"pack", b"header").is_err());
        let other = PrivateKey::new(Secret::new([5; 32])).unwrap();
        assert!(other.unwrap_key(&wrapped, b"pack", b"header").is_err());
        for i in (0..wrapped.len()).step_by(97) {
            let mut bent = wrapped.clone();
            bent[i] ^= 1;
            assert!(private.unwrap_key(&bent, b"pack", b"header").is_err(), "byte {i}");
        }
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    /// Never edited: what was wrapped once must open for ever. An implementation of its own, from the papers, opened
    /// it.
    #[test]
    fn golden_wrap() {
        let private = PrivateKey::new(Secret::new([3; 32])).unwrap();
        let public = private.public();
        assert_eq!(hex(&checksum(&public.encode())), "c9d1f04032099abf0fcbe1e40cffc7a9");
        let mut wrapped = public.wrap(&Secret::new([8; 32]), b"pack", b"header", &Secret::new([4; 32])).unwrap();
        assert_eq!(hex(&checksum(&wrapped)), "ab42af243ecb4053437d00e8e6fe54fd");
        assert_eq!(
            hex(&wrapped[ENCAPSULATION_BYTES..]),
            "8d632ebadd039253dbd5b9ca83334fe4d50cf8259ef81f67a99d5fd63bbf2c761bd644ec2c617ed15f10b6ef30a78f91"
        );
        // An ephemeral X25519 key of zeros, so that its shared secret is zeros, too: the format accepts it. ML-KEM
        // alone then hides the key, and whoever wraps knows it anyway.
        wrapped[ENCAPSULATION_BYTES - 32..ENCAPSULATION_BYTES].fill(0);
        let sealed = "e7c6676c9df0f43d04e18fc68845e2294731afc3778079e9ad792b9540fcd9b97384ffe3918cf115a032da738f19e8e6";
        for (byte, pair) in wrapped[ENCAPSULATION_BYTES..].iter_mut().zip(sealed.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        }
        assert_eq!(private.unwrap_key(&wrapped, b"pack", b"header").unwrap(), Secret::new([8; 32]));
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes() {
        let public = PrivateKey::new(Secret::new([3; 32])).unwrap().public();
        let wrap = |seed| public.wrap(&Secret::new([8; 32]), b"", b"", &Secret::new([seed; 32])).unwrap();
        assert_eq!(wrap(1), wrap(1));
        assert_ne!(wrap(1), wrap(2));
    }
}
