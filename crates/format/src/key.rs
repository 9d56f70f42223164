//! Keys: what each role may know, and the objects and files that give it out.
//!
//! A *key object* in the repository holds a role's secrets, sealed under a passphrase or under the 32 bytes of a key
//! file. Its certificate, signed by the owner, says which signatures count. A *recovery file* holds the secrets
//! themselves, for the safe.
//!
//! ```text
//! key object: header (32) | CBOR body | checksum (16)
//! ```

use crate::cbor::{decode, encode, encode_into, plain_body, plain_object};
use crate::error::malformed;
use crate::generation::{GenerationSecrets, IndexKeys, Known, MetaKeys};
use crate::sealed::{pad, unpad};
use crate::signer::{Sealing, shared_key, shared_key_of};
use crate::{Error, FRESH_BYTES, Header, KeyId, ObjectType, RepositoryId, Result};
use drumlin_seal::{
    IdKey, PassphraseCost, PrivateKey, PublicKey, Secret, SigningKey, Suite, VerifyingKey, Zeroizing, derive,
    passphrase_key,
};
use minicbor::bytes::ByteArray;
use minicbor::{Decode, Encode};

const OBJECT: &str = "key";
const PURPOSE: &str = "key certificate";
const DATA_CHUNK: &str = "data chunk";
const TREE_CHUNK: &str = "tree chunk";
/// Labels are padded to a multiple of this.
const LABEL_STEP: usize = 64;
/// More than the secrets of any role take, sealed: their memory is never given back unwiped for a larger piece.
const SECRETS_ROOM: usize = 1024;
/// The same for each generation behind the first.
const GENERATION_ROOM: usize = 160;
/// The private half of a key's own pair, where it signs.
const WRAPPING: &str = "key wrapping";

/// What a key lets its holder do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum Role {
    /// Everything, and say who else may do what.
    #[n(0)]
    Owner,
    /// Restore.
    #[n(1)]
    Reader,
    /// Add; neither read nor delete.
    #[n(2)]
    Writer,
    /// Forget and prune, from metadata alone.
    #[n(3)]
    Keeper,
}

impl Role {
    /// The role's name in commands and messages.
    pub fn name(self) -> &'static str {
        match self {
            Role::Owner => "owner",
            Role::Reader => "reader",
            Role::Writer => "writer",
            Role::Keeper => "keeper",
        }
    }

    /// The role of a name.
    pub fn parse(name: &str) -> Option<Self> {
        [Role::Owner, Role::Reader, Role::Writer, Role::Keeper].into_iter().find(|r| r.name() == name)
    }
}

/// The secrets of a role. What a role doesn't have is `None`.
#[derive(Clone)]
pub struct Secrets {
    /// The repository.
    pub repository: RepositoryId,
    /// The key that these secrets were given out by.
    pub key: KeyId,
    /// The role.
    pub role: Role,
    /// Who signs the config and the certificates.
    pub owner: VerifyingKey,
    /// Opens index objects, pack tables, sessions and decisions of the first generation: every role.
    pub index: Secret,
    /// Gives chunks their identity: all but the keeper.
    pub identity: Option<Secret>,
    /// Decides where contents and trees are cut: owner and writer.
    pub cutting: Option<Secret>,
    /// Opens data packs of the first generation: owner and reader.
    pub data: Option<PrivateKey>,
    /// Opens tree packs and snapshots of the first generation: owner, reader, keeper.
    pub meta: Option<PrivateKey>,
    /// Signs the config and certificates: the owner.
    pub owner_signing: Option<SigningKey>,
    /// Signs snapshots, sessions, decisions, tables and index objects: all but the reader.
    pub signing: Option<SigningKey>,
    /// The key derived from `identity` for tree chunks: for the keeper, who has to tell a true node from a forged one and
    /// needs to know no more of contents.
    pub tree_identity: Option<Secret>,
    /// Of what the private half of this key's own pair is made, if the key doesn't sign: see [`Secrets::wrapping_key`].
    pub wrapping: Option<Secret>,
    /// What it knows of later generations, in the order of their numbers.
    pub generations: Vec<GenerationSecrets>,
}

/// A secret in CBOR, read and written without a copy that is not wiped.
pub(crate) struct Wiped(pub Secret);

impl<C> Encode<C> for Wiped {
    fn encode<W: minicbor::encode::Write>(
        &self,
        e: &mut minicbor::Encoder<W>,
        _: &mut C,
    ) -> std::result::Result<(), minicbor::encode::Error<W::Error>> {
        e.bytes(self.0.expose())?.ok()
    }
}

impl<'b, C> Decode<'b, C> for Wiped {
    fn decode(d: &mut minicbor::Decoder<'b>, _: &mut C) -> std::result::Result<Self, minicbor::decode::Error> {
        let secret = Secret::from_slice(d.bytes()?);
        secret.map(Wiped).ok_or_else(|| minicbor::decode::Error::message("a secret of 32 bytes"))
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct SecretsBody {
    #[n(0)]
    repository: RepositoryId,
    #[n(1)]
    key: KeyId,
    #[n(2)]
    role: Role,
    #[n(3)]
    owner: ByteArray<32>,
    #[n(4)]
    index: Wiped,
    #[n(5)]
    identity: Option<Wiped>,
    #[n(6)]
    cutting: Option<Wiped>,
    #[n(7)]
    data: Option<Wiped>,
    #[n(8)]
    meta: Option<Wiped>,
    #[n(9)]
    owner_signing: Option<Wiped>,
    #[n(10)]
    signing: Option<Wiped>,
    #[n(11)]
    tree_identity: Option<Wiped>,
    #[n(12)]
    wrapping: Option<Wiped>,
    #[n(13)]
    generations: Option<Vec<Known>>,
}

impl Secrets {
    /// The secrets of a lesser `role`, of all generations, for a new key that signs with `signing`. `None` if these secrets
    /// don't suffice.
    pub fn lessen(&self, role: Role, key: KeyId, signing: Option<SigningKey>) -> Option<Secrets> {
        let has = |yes: bool| yes.then_some(());
        let full = role == Role::Owner;
        let keeper = role == Role::Keeper;
        let lesser = Secrets {
            key,
            role,
            identity: has(!keeper).and(self.identity.clone()),
            tree_identity: has(keeper).and_then(|()| self.tree_ids()).map(|ids| ids.derived()),
            cutting: has(full || role == Role::Writer).and(self.cutting.clone()),
            data: has(full || role == Role::Reader).and(self.data.clone()),
            meta: has(role != Role::Writer).and(self.meta.clone()),
            owner_signing: has(full).and(self.owner_signing.clone()),
            signing: has(role != Role::Reader).and(signing),
            wrapping: None,
            generations: self.generations.iter().map(|of| of.lessen(role)).collect::<Option<_>>()?,
            ..self.clone()
        };
        lesser.complete().then_some(lesser)
    }

    /// Whether all is there that the role needs.
    fn complete(&self) -> bool {
        let is = |roles: &[Role], there: bool| there || !roles.contains(&self.role);
        use Role::*;
        is(&[Owner, Reader, Writer], self.identity.is_some())
            && is(&[Owner, Writer], self.cutting.is_some())
            && is(&[Owner, Reader], self.data.is_some())
            && is(&[Owner, Reader, Keeper], self.meta.is_some())
            && is(&[Owner], self.owner_signing.is_some())
            && is(&[Owner, Writer, Keeper], self.signing.is_some())
            && is(&[Keeper], self.identity.is_some() || self.tree_identity.is_some())
            && self.generations.iter().all(|of| of.suffices(self.role))
    }

    /// The private half of this key's own pair, to which the owner seals the secrets of later generations. A key that signs
    /// derives it; others have a secret for it, if they were made with one.
    pub fn wrapping_key(&self) -> Option<PrivateKey> {
        let secret = match (&self.signing, &self.wrapping) {
            (Some(signing), _) => derive(signing.secret(), WRAPPING, &self.key.0),
            (None, Some(wrapping)) => wrapping.clone(),
            (None, None) => return None,
        };
        PrivateKey::new(secret).ok()
    }

    /// What is known of the generation of this tag; `None` for the first one, too.
    pub fn generation(&self, tag: u32) -> Option<&GenerationSecrets> {
        self.generations.iter().find(|of| of.tag == tag)
    }

    /// Add what is known of a generation, in its place.
    pub fn learn(&mut self, of: GenerationSecrets) {
        if of.tag != 0 && self.generation(of.tag).is_none() {
            let at = self.generations.partition_point(|known| known.number <= of.number);
            self.generations.insert(at, of);
        }
    }

    /// What opens data packs of a generation, if the role may.
    pub fn data_key(&self, generation: u32) -> Option<&PrivateKey> {
        match generation {
            0 => self.data.as_ref(),
            tag => self.generation(tag)?.data.as_ref()?.key(),
        }
    }

    /// What gives tree chunks their identity. Every role has it: whoever reads a node can check it.
    pub fn tree_ids(&self) -> Option<IdKey> {
        match (&self.identity, &self.tree_identity) {
            (Some(identity), _) => Some(IdKey::new(identity, TREE_CHUNK)),
            (None, Some(derived)) => Some(IdKey::from_derived(derived)),
            (None, None) => None,
        }
    }

    /// What gives chunks of file contents their identity: all but the keeper.
    pub fn data_ids(&self) -> Option<IdKey> {
        self.identity.as_ref().map(|identity| IdKey::new(identity, DATA_CHUNK))
    }

    /// With what this key signs and seals an object of a generation that every role shall open; `None` for a reader, who signs
    /// nothing, and of a generation that isn't known.
    pub fn sealing(&self, generation: u32, fresh: [u8; FRESH_BYTES]) -> Option<Sealing<'_>> {
        let (signing, index_key) = (self.signing.as_ref()?, self.index_key(generation)?);
        Some(Sealing { generation, index_key, key: self.key, signing, fresh })
    }

    /// The CBOR map of the secrets: what is sealed in a key object, and the contents of a recovery file.
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let wiped = |s: &Secret| Wiped(s.clone());
        let body = SecretsBody {
            repository: self.repository,
            key: self.key,
            role: self.role,
            owner: self.owner.0.into(),
            index: wiped(&self.index),
            identity: self.identity.as_ref().map(wiped),
            cutting: self.cutting.as_ref().map(wiped),
            data: self.data.as_ref().map(|k| wiped(k.secret())),
            meta: self.meta.as_ref().map(|k| wiped(k.secret())),
            owner_signing: self.owner_signing.as_ref().map(|k| wiped(k.secret())),
            signing: self.signing.as_ref().map(|k| wiped(k.secret())),
            tree_identity: self.tree_identity.as_ref().map(wiped),
            wrapping: self.wrapping.as_ref().map(wiped),
            generations: (!self.generations.is_empty()).then(|| self.generations.iter().map(Known::of).collect()),
        };
        let room = SECRETS_ROOM + self.generations.len() * GENERATION_ROOM;
        Zeroizing::new(encode_into(Vec::with_capacity(room), &body))
    }

    /// Read what [`Secrets::encode`] wrote.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let body: SecretsBody = decode(bytes, OBJECT)?;
        let maybe = |s: Option<Wiped>| s.map(|s| s.0);
        let seal = |source| Error::Seal { object: OBJECT, source };
        let private = |s: Option<Wiped>| maybe(s).map(PrivateKey::new).transpose().map_err(seal);
        let signing = |s: Option<Wiped>| maybe(s).map(SigningKey::new).transpose().map_err(seal);
        let secrets = Secrets {
            repository: body.repository,
            key: body.key,
            role: body.role,
            owner: VerifyingKey(body.owner.into()),
            index: body.index.0,
            identity: maybe(body.identity),
            cutting: maybe(body.cutting),
            data: private(body.data)?,
            meta: private(body.meta)?,
            owner_signing: signing(body.owner_signing)?,
            signing: signing(body.signing)?,
            tree_identity: maybe(body.tree_identity),
            wrapping: maybe(body.wrapping),
            generations: body.generations.unwrap_or_default().into_iter().map(Known::into_secrets).collect(),
        };
        let tags = |of: &GenerationSecrets| of.tag == 0 || of.number == 0;
        if secrets.generations.iter().any(tags) || !secrets.generations.is_sorted_by(|a, b| a.number < b.number) {
            return malformed(OBJECT, "the generations that it knows are not in order");
        }
        if !secrets.complete() {
            return malformed(OBJECT, "a secret that its role needs is missing");
        }
        Ok(secrets)
    }
}

impl IndexKeys for Secrets {
    fn index_key(&self, generation: u32) -> Option<&Secret> {
        match generation {
            0 => Some(&self.index),
            tag => self.generation(tag).map(|of| &of.index),
        }
    }
}

impl MetaKeys for Secrets {
    fn meta_key(&self, generation: u32) -> Option<&PrivateKey> {
        match generation {
            0 => self.meta.as_ref(),
            tag => self.generation(tag)?.meta.as_ref()?.key(),
        }
    }
}

/// What unlocks a key object.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Lock {
    /// The 32 bytes of a key file.
    #[n(0)]
    File,
    /// A passphrase, by Argon2id.
    #[n(1)]
    Passphrase {
        /// 16 random bytes.
        #[cbor(n(0), with = "minicbor::bytes")]
        salt: Vec<u8>,
        /// Memory in KiB.
        #[n(1)]
        memory_kib: u32,
        /// Passes.
        #[n(2)]
        passes: u32,
        /// Lanes.
        #[n(3)]
        lanes: u32,
    },
    /// Nothing any more: the owner has revoked the key. Its certificate stays, so that what it signed can be told.
    #[n(2)]
    Revoked,
}

impl Lock {
    /// A lock for a passphrase under a fresh salt.
    pub fn passphrase(salt: [u8; 16], cost: PassphraseCost) -> Self {
        let PassphraseCost { memory_kib, passes, lanes } = cost;
        Lock::Passphrase { salt: salt.to_vec(), memory_kib, passes, lanes }
    }

    /// The key that a passphrase makes for this lock; an error for a lock that wants a file, or that nothing opens.
    pub fn passphrase_key(&self, passphrase: &[u8]) -> Result<Secret> {
        let Lock::Passphrase { salt, memory_kib, passes, lanes } = self else {
            return malformed(OBJECT, "it is unlocked by a key file, not by a passphrase");
        };
        let Ok(salt) = <&[u8; 16]>::try_from(&salt[..]) else {
            return malformed(OBJECT, "its salt is not of 16 bytes");
        };
        let cost = PassphraseCost { memory_kib: *memory_kib, passes: *passes, lanes: *lanes };
        passphrase_key(passphrase, salt, cost).map_err(|source| Error::Seal { object: OBJECT, source })
    }
}

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
    /// The public half of its own pair: later generations are handed to it by this. `None`: it was made by an older program.
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

    /// What takes this object's place when the owner revokes the key: its certificate, signed anew with the time (seconds
    /// since 1970), and its label; no lock and no secrets. A key that is revoked already keeps the time it has.
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

    /// The same key with a certificate, signed anew, that has the public half of its pair: for a key of before there were any.
    /// Lock, secrets and label stay as they are.
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

    fn owner() -> Secrets {
        let signing = |b| SigningKey::new(Secret::new([b; 32])).unwrap();
        Secrets {
            repository: RepositoryId([1; 16]),
            key: KeyId([2; 16]),
            role: Role::Owner,
            owner: signing(3).verifying(),
            index: Secret::new([4; 32]),
            identity: Some(Secret::new([5; 32])),
            cutting: Some(Secret::new([6; 32])),
            data: Some(PrivateKey::new(Secret::new([7; 32])).unwrap()),
            meta: Some(PrivateKey::new(Secret::new([8; 32])).unwrap()),
            owner_signing: Some(signing(3)),
            signing: Some(signing(9)),
            tree_identity: None,
            wrapping: None,
            generations: Vec::new(),
        }
    }

    #[test]
    fn roles_hold_what_they_need_and_no_more() {
        let owner = owner();
        let signing = SigningKey::new(Secret::new([11; 32])).unwrap();
        let of = |role| {
            let s = owner.lessen(role, KeyId([10; 16]), Some(signing.clone())).unwrap();
            let s = Secrets::decode(&s.encode()).unwrap();
            [
                s.identity.is_some(),
                s.cutting.is_some(),
                s.data.is_some(),
                s.meta.is_some(),
                s.owner_signing.is_some(),
                s.signing.is_some(),
                s.tree_identity.is_some(),
            ]
        };
        assert_eq!(of(Role::Owner), [true, true, true, true, true, true, false]);
        assert_eq!(of(Role::Reader), [true, false, true, true, false, false, false]);
        assert_eq!(of(Role::Writer), [true, true, false, false, false, true, false]);
        assert_eq!(of(Role::Keeper), [false, false, false, true, false, true, true]);
        let writer = owner.lessen(Role::Writer, KeyId([10; 16]), Some(signing.clone())).unwrap();
        assert!(writer.lessen(Role::Reader, KeyId([12; 16]), Some(signing)).is_none(), "no role makes a greater one");
    }

    #[test]
    fn every_role_can_check_tree_chunks_and_a_keeper_no_contents() {
        let owner = owner();
        let signing = SigningKey::new(Secret::new([11; 32])).unwrap();
        let id = owner.tree_ids().unwrap().id(b"node");
        for role in [Role::Owner, Role::Reader, Role::Writer, Role::Keeper] {
            let secrets = owner.lessen(role, KeyId([10; 16]), Some(signing.clone())).unwrap();
            let secrets = Secrets::decode(&secrets.encode()).unwrap();
            assert_eq!(secrets.tree_ids().unwrap().id(b"node"), id, "{role:?}");
            assert_eq!(secrets.data_ids().is_some(), role != Role::Keeper);
            assert_eq!(secrets.sealing(0, [0; 16]).is_some(), role != Role::Reader);
        }
        let keeper = owner.lessen(Role::Keeper, KeyId([10; 16]), Some(signing.clone())).unwrap();
        let again = keeper.lessen(Role::Keeper, KeyId([12; 16]), Some(signing)).unwrap();
        assert_eq!(again.tree_ids().unwrap().id(b"node"), id);
        let blind = Secrets { tree_identity: None, ..keeper };
        assert!(Secrets::decode(&blind.encode()).is_err(), "a keeper without it could be told anything");
    }

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
