//! Keys on P-256 whose secret number begins with a zero byte, as one of 256 does.
//!
//! OpenSSH writes the number as short as it is; the library that reads its files takes none of less than 32 bytes
//! (`EcdsaPrivateKey::decode` in ssh-key 0.7). Here the zeros are put in front of it, and the library reads it then.

use russh::keys::PrivateKey;
use russh::keys::ssh_encoding::pem::PemLabel;
use russh::keys::ssh_encoding::{self, Decode, DecodePem, Encode, Reader};
use russh::keys::ssh_key::Error;
use russh::keys::ssh_key::private::{EcdsaKeypair, KeypairData};
use zeroize::Zeroizing;

/// Bytes of a secret number.
const BYTES: usize = 32;

/// The file of a key that isn't locked: see OpenSSH's PROTOCOL.key.
struct Unlocked {
    secret: Zeroizing<Vec<u8>>,
}

impl PemLabel for Unlocked {
    const PEM_LABEL: &'static str = PrivateKey::PEM_LABEL;
}

impl Decode for Unlocked {
    type Error = Error;

    fn decode(reader: &mut impl Reader) -> Result<Self, Error> {
        let mut magic = *b"openssh-key-v1\0";
        let begins = magic;
        reader.read(&mut magic)?;
        let cipher = Vec::<u8>::decode(reader)?;
        let kdf = Vec::<u8>::decode(reader)?;
        let _options = Vec::<u8>::decode(reader)?;
        let keys = u32::decode(reader)?;
        if magic != begins || cipher != b"none" || kdf != b"none" || keys != 1 {
            return Err(Error::FormatEncoding);
        }
        let _public = Vec::<u8>::decode(reader)?;
        Ok(Unlocked { secret: Zeroizing::new(Vec::decode(reader)?) })
    }
}

/// Whether it may be such a key that the library refused.
pub(super) fn may_be(error: &russh::keys::Error) -> bool {
    matches!(error, russh::keys::Error::SshKey(Error::Encoding(ssh_encoding::Error::Length)))
}

/// Read such a key, with its passphrase if it is locked.
///
/// # Errors
/// It is another one, or none.
pub(super) fn read(text: &str, passphrase: Option<&str>) -> Result<PrivateKey, Error> {
    let secret = match passphrase {
        None => Unlocked::decode_pem(text)?.secret,
        Some(passphrase) => {
            let locked = PrivateKey::from_openssh(text)?;
            let (key, iv) = locked.kdf().derive_key_and_iv(locked.cipher(), passphrase)?;
            let mut secret = Zeroizing::new(locked.key_data().encrypted().ok_or(Error::Decrypted)?.to_vec());
            // Ciphers with a tag, of which the library doesn't give it out, are nobody's default.
            locked.cipher().decrypt(&key, &iv, &mut secret, None)?;
            secret
        }
    };
    filled(&secret)
}

/// The key of what is secret in a file, its number filled up.
fn filled(mut secret: &[u8]) -> Result<PrivateKey, Error> {
    let secret = &mut secret;
    // The same twice, if it was unlocked by the right passphrase.
    if u32::decode(secret)? != u32::decode(secret)? {
        return Err(Error::Crypto);
    }
    let mut pair = Zeroizing::new(Vec::new());
    // The algorithm, the curve, the public half.
    for _ in 0..3 {
        Vec::<u8>::decode(secret)?.encode(&mut *pair)?;
    }
    let number = Zeroizing::new(Vec::<u8>::decode(secret)?);
    let mut whole = Zeroizing::new([0; BYTES]);
    let zeros = BYTES.checked_sub(number.len()).ok_or(Error::FormatEncoding)?;
    whole[zeros..].copy_from_slice(&number);
    whole.as_slice().encode(&mut *pair)?;
    match KeypairData::decode(&mut pair.as_slice())? {
        pair @ KeypairData::Ecdsa(EcdsaKeypair::NistP256 { .. }) => PrivateKey::try_from(pair),
        _ => Err(Error::FormatEncoding),
    }
}
