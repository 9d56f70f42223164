//! Key objects and their certificates.

use super::{Lock, OBJECT, Role, Secrets};
use crate::cbor::{decode, encode, plain_body, plain_object};
use crate::error::malformed;
use crate::generation::IndexKeys;
use crate::sealed::{pad, unpad};
use crate::signer::{shared_key, shared_key_of};
use crate::{Error, FRESH_BYTES, Header, KeyId, ObjectType, RepositoryId, Result};
use drumlin_seal::{PublicKey, Secret, SigningKey, Suite, VerifyingKey, Zeroizing};
use minicbor::bytes::ByteArray;
use minicbor::{Decode, Encode};

const PURPOSE: &str = "key certificate";
/// Labels are padded to a multiple of this.
const LABEL_STEP: usize = 64;

/// The owner's word on which role a key has and which signatures are its.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The key.
    pub key: KeyId,
    /// Its role.
    pub role: Role,
    /// Checks its signatures; `None` for a reader, who signs nothing.
    pub verifying: Option<VerifyingKey>,
    /// When it was made, seconds since 1970.
    pub created: i64,
    /// When the owner revoked it, seconds since 1970, if so: what it signs from then on doesn't count.
    pub revoked: Option<i64>,
    /// The public half of its own pair: later generations are handed to it by this. `None`: it was made by an older
    /// program.
    pub wrapping: Option<Vec<u8>>,
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct CertificateBody {
    #[n(0)]
    role: Role,
    #[n(1)]
    verifying: Option<ByteArray<32>>,
    #[n(2)]
    created: i64,
    #[n(3)]
    revoked: Option<i64>,
    #[cbor(n(4), with = "minicbor::bytes")]
    wrapping: Option<Vec<u8>>,
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct KeyBody {
    #[n(0)]
    lock: Lock,
    #[cbor(n(1), with = "minicbor::bytes")]
    certificate: Vec<u8>,
    #[cbor(n(2), with = "minicbor::bytes")]
    signature: Vec<u8>,
    #[cbor(n(3), with = "minicbor::bytes")]
    secrets: Vec<u8>,
    #[cbor(n(4), with = "minicbor::bytes")]
    label: Vec<u8>,
    /// 16 random bytes, new at every writing: no key seals two messages.
    #[n(5)]
    fresh: ByteArray<FRESH_BYTES>,
}

/// A key object, decoded but not unlocked.
pub struct KeyObject {
    header: Header,
    body: KeyBody,
    certificate: Certificate,
}

/// What goes into a key object.
pub struct KeyParts<'a> {
    /// The secrets that it gives out.
    pub secrets: &'a Secrets,
    /// What unlocks it.
    pub lock: Lock,
    /// The 32 bytes of the key file, or what the passphrase makes.
    pub unlock: &'a Secret,
    /// A name for people: sealed, so that the storage doesn't learn it.
    pub label: &'a str,
    /// When the key was made, seconds since 1970.
    pub created: i64,
    /// 16 random bytes.
    pub fresh: [u8; 16],
    /// The tag of the generation whose index secret seals the label.
    pub generation: u32,
}

impl KeyObject {
    /// Seal a key object; the owner signs its certificate.
    pub fn seal(parts: &KeyParts, suite: Suite, owner: &SigningKey) -> Vec<u8> {
        let certificate = encode(&CertificateBody {
            role: parts.secrets.role,
            verifying: parts.secrets.signing.as_ref().map(|k| k.verifying().0.into()),
            created: parts.created,
            revoked: None,
            wrapping: parts.secrets.wrapping_key().map(|pair| pair.public().encode()),
        });
        let header = Header::new(ObjectType::Key, suite, parts.secrets.key.0).of(parts.generation);
        let signature = owner.sign(PURPOSE, &signed_bytes(&header, parts.secrets.repository, &certificate)).to_vec();
        Self::seal_with(parts, header, certificate, signature)
    }

    /// Seal the same key under another lock, its certificate kept: what its holder can do without the owner.
    pub fn reseal(&self, parts: &KeyParts) -> Vec<u8> {
        Self::seal_with(parts, self.header, self.body.certificate.clone(), self.body.signature.clone())
    }

    fn seal_with(parts: &KeyParts, header: Header, certificate: Vec<u8>, signature: Vec<u8>) -> Vec<u8> {
        let context = header.encode();
        let mut secrets = parts.secrets.encode();
        shared_key(&header, "key object", parts.unlock, &parts.fresh).seal(0, &context, &mut secrets);
        let secrets = std::mem::take(&mut *secrets);
        let mut label = pad(parts.label.as_bytes(), LABEL_STEP);
        // A label of a generation that the key doesn't know is nothing that it could have read.
        let index_key = parts.secrets.index_key(header.generation).unwrap_or(&parts.secrets.index);
        shared_key(&header, "key label", index_key, &parts.fresh).seal(0, &context, &mut label);
        let fresh = parts.fresh.into();
        let body = KeyBody { lock: parts.lock.clone(), certificate, signature, secrets, label, fresh };
        plain_object(&header, &encode(&body))
    }

    /// What takes this object's place when the owner revokes the key: its certificate, signed anew with the time
    /// (seconds since 1970), and its label; no lock and no secrets. A key that is revoked already keeps the time it
    /// has.
    pub fn revoke(&self, repository: RepositoryId, at: i64, owner: &SigningKey) -> Vec<u8> {
        let Certificate { role, verifying, created, revoked, .. } = self.certificate;
        let certificate = encode(&CertificateBody {
            role,
            verifying: verifying.map(|v| v.0.into()),
            created,
            revoked: Some(revoked.unwrap_or(at)),
            wrapping: None,
        });
        let signature = owner.sign(PURPOSE, &signed_bytes(&self.header, repository, &certificate)).to_vec();
        // The sealed label stays as it is, with the fresh bytes of its key: nothing is sealed here.
        let (label, fresh) = (self.body.label.clone(), self.body.fresh);
        let body = KeyBody { lock: Lock::Revoked, certificate, signature, secrets: Vec::new(), label, fresh };
        plain_object(&self.header, &encode(&body))
    }

    /// The same key with a certificate, signed anew, that has the public half of its pair: for a key of before there
    /// were any. Lock, secrets and label stay as they are.
    pub fn with_wrapping(&self, repository: RepositoryId, public: &PublicKey, owner: &SigningKey) -> Vec<u8> {
        let Certificate { role, verifying, created, revoked, .. } = self.certificate;
        let verifying = verifying.map(|v| v.0.into());
        let wrapping = Some(public.encode());
        let certificate = encode(&CertificateBody { role, verifying, created, revoked, wrapping });
        let signature = owner.sign(PURPOSE, &signed_bytes(&self.header, repository, &certificate)).to_vec();
        let KeyBody { lock, secrets, label, fresh, .. } = &self.body;
        let (lock, secrets, label, fresh) = (lock.clone(), secrets.clone(), label.clone(), *fresh);
        plain_object(&self.header, &encode(&KeyBody { lock, certificate, signature, secrets, label, fresh }))
    }

    /// Decode without unlocking.
    pub fn decode(id: KeyId, object: &[u8]) -> Result<Self> {
        let header = Header::expect(object, ObjectType::Key, &id.0)?;
        let body: KeyBody = decode(plain_body(&header, object)?, OBJECT)?;
        let stated: CertificateBody = decode(&body.certificate, OBJECT)?;
        let revoked = stated.revoked.is_some();
        if (body.lock == Lock::Revoked) != revoked || revoked && !body.secrets.is_empty() {
            return malformed(OBJECT, "its certificate and its lock contradict each other");
        }
        let certificate = Certificate {
            key: id,
            role: stated.role,
            verifying: stated.verifying.map(|v| VerifyingKey(v.into())),
            created: stated.created,
            revoked: stated.revoked,
            wrapping: stated.wrapping,
        };
        Ok(KeyObject { header, body, certificate })
    }

    /// What unlocks it.
    pub fn lock(&self) -> &Lock {
        &self.body.lock
    }

    /// Unlock with the 32 bytes of the key file, or with what the passphrase makes.
    pub fn unlock(&self, unlock: &Secret) -> Result<Secrets> {
        if self.body.lock == Lock::Revoked {
            return malformed(OBJECT, "it was revoked: nothing unlocks it any more");
        }
        let mut bytes = Zeroizing::new(self.body.secrets.clone());
        let plain = shared_key(&self.header, "key object", unlock, &self.body.fresh)
            .open(0, &self.header.encode(), &mut bytes)
            .map_err(|source| Error::Seal { object: OBJECT, source })?;
        let secrets = Secrets::decode(plain)?;
        if secrets.key.0 != self.header.id || secrets.role != self.certificate.role {
            return malformed(OBJECT, "its secrets are another key's");
        }
        Ok(secrets)
    }

    /// The certificate, if `owner` signed it for this repository.
    pub fn certificate(&self, repository: RepositoryId, owner: &VerifyingKey) -> Result<&Certificate> {
        owner
            .verify(PURPOSE, &signed_bytes(&self.header, repository, &self.body.certificate), &self.body.signature)
            .map_err(|source| Error::Seal { object: "key certificate", source })?;
        Ok(&self.certificate)
    }

    /// The tag of the generation whose index secret its label is sealed under.
    pub fn generation(&self) -> u32 {
        self.header.generation
    }

    /// The name for people.
    pub fn label(&self, keys: &impl IndexKeys) -> Result<String> {
        let mut bytes = self.body.label.clone();
        let plain = shared_key_of(&self.header, "key label", keys, &self.body.fresh)?
            .open(0, &self.header.encode(), &mut bytes)
            .map_err(|source| Error::Seal { object: OBJECT, source })?;
        match std::str::from_utf8(unpad(plain, OBJECT)?) {
            Ok(label) => Ok(label.to_owned()),
            Err(_) => malformed(OBJECT, "its label is not text"),
        }
    }
}

fn signed_bytes(header: &Header, repository: RepositoryId, certificate: &[u8]) -> Vec<u8> {
    [&header.encode()[..], &repository.0, certificate].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::secrets::tests::owner;
    use drumlin_seal::PassphraseCost;

    #[test]
    fn a_revoked_key_keeps_its_certificate_alone() {
        let secrets = owner();
        let signing = secrets.owner_signing.as_ref().unwrap();
        let unlock = Secret::new([77; 32]);
        let parts = KeyParts {
            secrets: &secrets,
            lock: Lock::File,
            unlock: &unlock,
            label: "old",
            created: 5,
            fresh: [9; 16],
            generation: 0,
        };
        let bytes = KeyObject::seal(&parts, Suite::Aes256Gcm, signing);
        let object = KeyObject::decode(KeyId([2; 16]), &bytes).unwrap();
        assert_eq!(object.certificate(secrets.repository, &secrets.owner).unwrap().revoked, None);
        let bytes = object.revoke(secrets.repository, 99, signing);
        let revoked = KeyObject::decode(KeyId([2; 16]), &bytes).unwrap();
        let certificate = revoked.certificate(secrets.repository, &secrets.owner).unwrap();
        let before = object.certificate(secrets.repository, &secrets.owner).unwrap();
        assert_eq!(certificate, &Certificate { revoked: Some(99), wrapping: None, ..before.clone() });
        assert_eq!(revoked.lock(), &Lock::Revoked);
        assert_eq!(revoked.label(&secrets.index).unwrap(), "old");
        assert!(revoked.unlock(&unlock).is_err() && revoked.lock().passphrase_key(b"x").is_err());
        assert!(!bytes.windows(32).any(|w| object.body.secrets.windows(32).any(|s| s == w)), "its secrets are gone");
        let twice = revoked.revoke(secrets.repository, 100, signing);
        assert_eq!(KeyObject::decode(KeyId([2; 16]), &twice).unwrap().certificate.revoked, Some(99));
        // Its holder, who kept the secrets, can't bring it back.
        assert!(KeyObject::decode(KeyId([2; 16]), &revoked.reseal(&parts)).is_err());
    }

    #[test]
    fn labels_of_about_one_length_can_not_be_told_apart() {
        let secrets = owner();
        let unlock = Secret::new([77; 32]);
        let len = |label: &str| {
            let parts = KeyParts {
                secrets: &secrets,
                lock: Lock::File,
                unlock: &unlock,
                label,
                created: 5,
                fresh: [9; 16],
                generation: 0,
            };
            KeyObject::seal(&parts, Suite::Aes256Gcm, secrets.owner_signing.as_ref().unwrap()).len()
        };
        assert_eq!(len(""), len("the laptop of somebody"));
        assert!(len("x") < len(&"x".repeat(70)));
    }

    #[test]
    fn a_key_object_opens_with_its_lock_alone() {
        let secrets = owner();
        let cost = PassphraseCost { memory_kib: 64, passes: 1, lanes: 1 };
        let lock = Lock::passphrase([1; 16], cost);
        let unlock = lock.passphrase_key(b"secret").unwrap();
        let parts = KeyParts {
            secrets: &secrets,
            lock,
            unlock: &unlock,
            label: "laptop",
            created: 5,
            fresh: [9; 16],
            generation: 0,
        };
        let bytes = KeyObject::seal(&parts, Suite::Aes256Gcm, secrets.owner_signing.as_ref().unwrap());
        let object = KeyObject::decode(KeyId([2; 16]), &bytes).unwrap();
        let again = object.lock().passphrase_key(b"secret").unwrap();
        assert_eq!(object.unlock(&again).unwrap().encode(), secrets.encode());
        assert_eq!(object.label(&secrets.index).unwrap(), "laptop");
        assert_eq!(object.certificate(secrets.repository, &secrets.owner).unwrap().role, Role::Owner);
        assert!(object.certificate(secrets.repository, &VerifyingKey([1; 32])).is_err());
        assert!(object.certificate(RepositoryId([9; 16]), &secrets.owner).is_err(), "it is of another repository");
        assert!(object.unlock(&object.lock().passphrase_key(b"Secret").unwrap()).is_err());
        assert!(KeyObject::decode(KeyId([3; 16]), &bytes).is_err());
        for at in 0..bytes.len() {
            let mut bent = bytes.clone();
            bent[at] ^= 1;
            assert!(KeyObject::decode(KeyId([2; 16]), &bent).is_err(), "byte {at}");
            assert!(KeyObject::decode(KeyId([2; 16]), &bytes[..at]).is_err(), "cut to {at}");
        }
        let other = Secret::new([77; 32]);
        let moved = KeyParts { lock: Lock::File, unlock: &other, fresh: [8; 16], ..parts };
        let moved = KeyObject::decode(KeyId([2; 16]), &object.reseal(&moved)).unwrap();
        assert_eq!(moved.unlock(&other).unwrap().encode(), secrets.encode());
        assert!(moved.certificate(secrets.repository, &secrets.owner).is_ok() && moved.unlock(&again).is_err());
    }
}
