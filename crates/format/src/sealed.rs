//! How the small objects are sealed: one padded message under a key derived from the index secret and fresh bytes, or
//! under a fresh key that is sealed to a public key.
//!
//! ```text
//! shared:           header (32) | fresh (16) | sealed message
//! to a public key:  header (32) | wrapped key (1168) | sealed message
//! message:          varint length | body | zeros up to a multiple of 128 bytes
//! signed body:      CBOR array [key id, signature, body], and the generation that it was signed in if it was sealed anew
//! ```

use crate::cbor::{decode, encode};
use crate::error::malformed;
use crate::generation::{IndexKeys, MetaKeys};
use crate::signer::{Sealing, Signer, shared_key_of, signed_digest};
use crate::wire::{Reader, Writer};
use crate::{Error, FRESH_BYTES, HEADER_BYTES, Header, KeyId, Result};
use drumlin_seal::{PublicKey, SealKey, Secret, Seed, SigningKey, WRAPPED_BYTES};
use minicbor::{Decode, Encode};

/// The purpose of the wrap; the header, which names the type, is authenticated with it.
const WRAP_INFO: &[u8] = b"drumlin v1 small object key";
/// The purpose of keys derived from the index secret.
const SHARED: &str = "small object";
/// Messages are as long as a multiple of this: lengths tell little.
const MESSAGE_STEP: usize = 128;

#[derive(Encode, Decode)]
struct Signed {
    #[n(0)]
    key: KeyId,
    #[cbor(n(1), with = "minicbor::bytes")]
    signature: Vec<u8>,
    #[cbor(n(2), with = "minicbor::bytes")]
    body: Vec<u8>,
    /// The tag of the generation in whose header it was signed, if that is not the one at hand.
    #[n(3)]
    generation: Option<u32>,
}

/// The signed body of an object whose purpose is its type's label.
fn signed(header: &Header, key: KeyId, signing: &SigningKey, body: Vec<u8>) -> Vec<u8> {
    let signature = signing.sign_digest(header.object.label(), &signed_digest(header, key, &body)).to_vec();
    encode(&Signed { key, signature, body, generation: None })
}

/// Body and signer of what [`signed`] made.
fn unsigned(header: &Header, bytes: &[u8]) -> Result<(Vec<u8>, Signer)> {
    let what = header.object.label();
    let signed: Signed = decode(bytes, what)?;
    let signed_in = header.of(signed.generation.unwrap_or(header.generation));
    let signer = Signer::new(&signed_in, what, signed.key, &signed.signature, &signed.body)?;
    Ok((signed.body, signer))
}

/// Put `body` behind its length, and zeros behind it.
pub(crate) fn pad(body: &[u8], step: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity((body.len() + 10).next_multiple_of(step));
    out.counted(body);
    out.resize(out.len().next_multiple_of(step), 0);
    out
}

/// The body of what [`pad`] made; zeros behind it may be any number.
pub(crate) fn unpad<'b>(message: &'b [u8], object: &'static str) -> Result<&'b [u8]> {
    let mut r = Reader::new(message, object);
    let body = r.counted()?;
    r.zeros_to_end()?;
    Ok(body)
}

/// Sign `body` and seal it for every role.
pub(crate) fn seal_shared(header: &Header, body: Vec<u8>, with: Sealing) -> Vec<u8> {
    let context = header.encode();
    let mut message = pad(&signed(header, with.key, with.signing, body), MESSAGE_STEP);
    with.seal_key(header, SHARED).seal(0, &context, &mut message);
    [&context[..], &with.fresh, &message].concat()
}

/// Open what [`seal_shared`] made.
pub(crate) fn open_shared(header: &Header, keys: &impl IndexKeys, object: &[u8]) -> Result<(Vec<u8>, Signer)> {
    let Some((fresh, sealed)) = behind_header(object).split_first_chunk::<FRESH_BYTES>() else {
        return malformed(header.object.label(), "it ends too early");
    };
    let message = open_message(header, shared_key_of(header, SHARED, keys, fresh)?, sealed)?;
    unsigned(header, &message)
}

/// Sign `body` and seal it so that only the private key's holder can open it. `key` and `seed` are fresh.
pub(crate) fn seal_to(
    header: &Header,
    public: &PublicKey,
    body: Vec<u8>,
    signer: (KeyId, &SigningKey),
    key: &Secret,
    seed: &Seed,
) -> Result<Vec<u8>> {
    seal_signed_to(header, public, &signed(header, signer.0, signer.1, body), key, seed)
}

fn seal_signed_to(header: &Header, public: &PublicKey, signed: &[u8], key: &Secret, seed: &Seed) -> Result<Vec<u8>> {
    let context = header.encode();
    let wrapped = public.wrap(key, WRAP_INFO, &context, seed).map_err(|source| fail(header, source))?;
    let mut message = pad(signed, MESSAGE_STEP);
    SealKey::new(header.suite, key).seal(0, &context, &mut message);
    Ok([&context[..], &wrapped, &message].concat())
}

/// Seal what [`seal_to`] made, an object of `header`, to another generation's public key: what was signed, and by whom,
/// stays as it is. `key` and `seed` are fresh.
pub(crate) fn reseal_to(
    header: &Header,
    keys: &impl MetaKeys,
    object: &[u8],
    generation: u32,
    public: &PublicKey,
    (key, seed): (&Secret, &Seed),
) -> Result<Vec<u8>> {
    let message = open_to(header, keys, object)?;
    let mut signed: Signed = decode(&message, header.object.label())?;
    let signed_in = signed.generation.unwrap_or(header.generation);
    signed.generation = (signed_in != generation).then_some(signed_in);
    seal_signed_to(&header.of(generation), public, &encode(&signed), key, seed)
}

/// Open what [`seal_to`] made.
pub(crate) fn open_with(header: &Header, keys: &impl MetaKeys, object: &[u8]) -> Result<(Vec<u8>, Signer)> {
    unsigned(header, &open_to(header, keys, object)?)
}

fn open_to(header: &Header, keys: &impl MetaKeys, object: &[u8]) -> Result<Vec<u8>> {
    let unknown = Error::Generation { object: header.object.label(), generation: header.generation };
    let private = keys.meta_key(header.generation).ok_or(unknown)?;
    let Some((wrapped, sealed)) = behind_header(object).split_at_checked(WRAPPED_BYTES) else {
        return malformed(header.object.label(), "it ends within its key");
    };
    let key = private.unwrap_key(wrapped, WRAP_INFO, &header.encode()).map_err(|source| fail(header, source))?;
    open_message(header, SealKey::new(header.suite, &key), sealed)
}

fn open_message(header: &Header, key: SealKey, sealed: &[u8]) -> Result<Vec<u8>> {
    let mut bytes = sealed.to_vec();
    let message = key.open(0, &header.encode(), &mut bytes).map_err(|source| fail(header, source))?;
    Ok(unpad(message, header.object.label())?.to_vec())
}

fn behind_header(object: &[u8]) -> &[u8] {
    object.get(HEADER_BYTES..).unwrap_or(&[])
}

fn fail(header: &Header, source: drumlin_seal::Error) -> Error {
    Error::Seal { object: header.object.label(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_hides_lengths_and_comes_off() {
        for len in [0, 1, 100, 126, 127, 128, 129, 1000] {
            let body = vec![7; len];
            let padded = pad(&body, 128);
            assert!(padded.len().is_multiple_of(128) && padded.len() < len + 2 + 128, "{len}");
            assert_eq!(unpad(&padded, "test").unwrap(), body);
            let mut bent = padded.clone();
            bent.push(1);
            assert!(unpad(&bent, "test").is_err(), "padding is zero");
        }
        assert_eq!(pad(&[1; 10], 128).len(), pad(&[1; 100], 128).len());
        assert!(unpad(&[], "test").is_err());
        assert!(unpad(&[5, 1, 2], "test").is_err());
    }
}
