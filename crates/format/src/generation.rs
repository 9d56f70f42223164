//! A generation: new secrets for what comes after it, handed to the keys that are left.
//!
//! All that is written is sealed with the secrets of one generation, whose *tag* stands in its header. The first
//! generation (tag 0) has no object: its secrets are those that a key was made with. Each later one is an object,
//! signed by the owner, with its number, its public keys, and for each key that the owner hands it to a *share*: the
//! secrets as far as the key's role goes, sealed to the key's own public key.
//!
//! ```text
//! header (32; its id is the number) | CBOR [body bytes, signature] | checksum (16)
//! share:  wrapped key (1168) | sealed: CBOR map of secrets, padded
//! ```
//!
//! Numbers order generations: the highest is the newest. Tags tell them apart: they are random, so that one tag never
//! has two meanings, whatever becomes of the storage.

use crate::cbor::{decode, encode, encode_into, plain_body, plain_object};
use crate::error::malformed;
use crate::key::{Role, Wiped};
use crate::sealed::{pad, unpad};
use crate::{Error, Header, KeyId, ObjectType, RepositoryId, Result};
use drumlin_seal::{
    PrivateKey, PublicKey, SealKey, Secret, Seed, SigningKey, Suite, VerifyingKey, WRAPPED_BYTES, Zeroizing,
};
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use std::sync::OnceLock;

const OBJECT: &str = "generation";
const PURPOSE: &str = "generation";
const WRAP_INFO: &[u8] = b"drumlin v1 generation key";
/// Shares are as long as a multiple of this, whatever the role.
const SHARE_STEP: usize = 128;

/// Whoever has index secrets, by the tags of their generations.
pub trait IndexKeys {
    /// The index secret of a generation, if it is known.
    fn index_key(&self, generation: u32) -> Option<&Secret>;
}

/// One secret alone is the first generation's.
impl IndexKeys for Secret {
    fn index_key(&self, generation: u32) -> Option<&Secret> {
        (generation == 0).then_some(self)
    }
}

/// Whoever has metadata keys, by the tags of their generations.
pub trait MetaKeys {
    /// The metadata key of a generation, if it is known.
    fn meta_key(&self, generation: u32) -> Option<&PrivateKey>;
}

/// One key alone is the first generation's.
impl MetaKeys for PrivateKey {
    fn meta_key(&self, generation: u32) -> Option<&PrivateKey> {
        (generation == 0).then_some(self)
    }
}

/// A private key that is made of its 32 bytes when it is first used: it takes some kilobytes then, and some time.
#[derive(Clone)]
pub struct LazyKey {
    secret: Secret,
    key: OnceLock<Box<PrivateKey>>,
}

impl LazyKey {
    /// The key of these bytes.
    pub fn new(secret: Secret) -> Self {
        LazyKey { secret, key: OnceLock::new() }
    }

    /// The bytes.
    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// The key; any 32 bytes are one.
    pub fn key(&self) -> Option<&PrivateKey> {
        if self.key.get().is_none() {
            let _ = self.key.set(Box::new(PrivateKey::new(self.secret.clone()).ok()?));
        }
        self.key.get().map(|key| &**key)
    }
}

/// What a key knows of a generation behind the first.
#[derive(Clone)]
pub struct GenerationSecrets {
    /// Its number, from 1.
    pub number: u32,
    /// Its tag, not 0.
    pub tag: u32,
    /// Opens what every role may: tables, index objects, sessions, decisions and the like.
    pub index: Secret,
    /// Opens data packs: owner and reader.
    pub data: Option<LazyKey>,
    /// Opens tree packs and snapshots: owner, reader, keeper.
    pub meta: Option<LazyKey>,
}

impl GenerationSecrets {
    /// Where it stands among others.
    pub(crate) fn place(&self) -> (u32, u32) {
        (self.number, self.tag)
    }

    /// As far as a role goes; `None` if these secrets don't suffice.
    pub fn lessen(&self, role: Role) -> Option<Self> {
        let lesser = GenerationSecrets {
            data: self.data.clone().filter(|_| reads_contents(role)),
            meta: self.meta.clone().filter(|_| reads_trees(role)),
            ..self.clone()
        };
        lesser.suffices(role).then_some(lesser)
    }

    /// Whether all is there that the role needs.
    pub(crate) fn suffices(&self, role: Role) -> bool {
        (self.data.is_some() || !reads_contents(role)) && (self.meta.is_some() || !reads_trees(role))
    }
}

fn reads_contents(role: Role) -> bool {
    matches!(role, Role::Owner | Role::Reader)
}

fn reads_trees(role: Role) -> bool {
    role != Role::Writer
}

/// Secrets in CBOR, in a key object among the others.
#[derive(Encode, Decode)]
#[cbor(map)]
pub(crate) struct Known {
    #[n(0)]
    number: u32,
    #[n(1)]
    tag: u32,
    #[n(2)]
    index: Wiped,
    #[n(3)]
    data: Option<Wiped>,
    #[n(4)]
    meta: Option<Wiped>,
}

impl Known {
    pub fn of(secrets: &GenerationSecrets) -> Self {
        let half = |key: &Option<LazyKey>| key.as_ref().map(|key| Wiped(key.secret.clone()));
        Known {
            number: secrets.number,
            tag: secrets.tag,
            index: Wiped(secrets.index.clone()),
            data: half(&secrets.data),
            meta: half(&secrets.meta),
        }
    }

    pub fn into_secrets(self) -> GenerationSecrets {
        let half = |wiped: Option<Wiped>| wiped.map(|wiped| LazyKey::new(wiped.0));
        GenerationSecrets {
            number: self.number,
            tag: self.tag,
            index: self.index.0,
            data: half(self.data),
            meta: half(self.meta),
        }
    }
}

/// What is in a share.
#[derive(Encode, Decode)]
#[cbor(map)]
struct ShareBody {
    #[n(0)]
    index: Wiped,
    #[n(1)]
    data: Option<Wiped>,
    #[n(2)]
    meta: Option<Wiped>,
}

/// A generation behind the first, as its object has it.
#[derive(Clone)]
pub struct Generation {
    /// The repository.
    pub repository: RepositoryId,
    /// The cipher that the shares are sealed with.
    pub suite: Suite,
    /// Its number, from 1: the highest is the newest.
    pub number: u32,
    /// Its tag, not 0.
    pub tag: u32,
    /// Keys of data packs are sealed to this.
    pub data_key: PublicKey,
    /// Keys of tree packs and snapshots are sealed to this.
    pub meta_key: PublicKey,
    /// When it was made, seconds since 1970, for people.
    pub created: i64,
    /// Its secrets, for each key that it was handed to, in the order of their ids.
    shares: Vec<Share>,
}

#[derive(Clone, Encode, Decode)]
struct Share {
    #[n(0)]
    key: KeyId,
    #[cbor(n(1), with = "minicbor::bytes")]
    sealed: Vec<u8>,
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct Body {
    #[n(0)]
    repository: RepositoryId,
    #[n(1)]
    data_key: ByteVec,
    #[n(2)]
    meta_key: ByteVec,
    #[n(3)]
    created: i64,
    #[n(4)]
    shares: Vec<Share>,
}

#[derive(Encode, Decode)]
struct Signed {
    #[cbor(n(0), with = "minicbor::bytes")]
    body: Vec<u8>,
    #[cbor(n(1), with = "minicbor::bytes")]
    signature: Vec<u8>,
}

/// What a new generation is of.
#[derive(Clone, Copy)]
pub struct Origin {
    /// The repository.
    pub repository: RepositoryId,
    /// Its cipher.
    pub suite: Suite,
    /// The time, seconds since 1970.
    pub created: i64,
}

impl Generation {
    /// A generation of these secrets, an owner's, that nobody has yet. `None` if they are not all there.
    pub fn new(of: Origin, secrets: &GenerationSecrets) -> Option<Self> {
        let Origin { repository, suite, created } = of;
        Some(Generation {
            repository,
            suite,
            number: secrets.number,
            tag: secrets.tag,
            data_key: secrets.data.as_ref()?.key()?.public(),
            meta_key: secrets.meta.as_ref()?.key()?.public(),
            created,
            shares: Vec::new(),
        })
    }

    fn header(&self) -> Header {
        Header::new(ObjectType::Generation, self.suite, number_id(self.number)).of(self.tag)
    }

    /// Hand it to a key whose public key this is: `secrets` are this generation's, as far as the key's role goes.
    /// `wrapping` and `seed` are fresh.
    pub fn share(
        &mut self,
        key: KeyId,
        to: &PublicKey,
        secrets: &GenerationSecrets,
        (wrapping, seed): (&Secret, &Seed),
    ) -> Result<()> {
        let context = self.header().encode();
        let Known { index, data, meta, .. } = Known::of(secrets);
        let body = Zeroizing::new(encode_into(Vec::with_capacity(SHARE_STEP), &ShareBody { index, data, meta }));
        let mut message = Zeroizing::new(pad(&body, SHARE_STEP));
        SealKey::new(self.suite, wrapping).seal(0, &context, &mut message);
        let wrapped = to.wrap(wrapping, WRAP_INFO, &context, seed).map_err(seal_error)?;
        let share = Share { key, sealed: [&wrapped[..], &message].concat() };
        match self.shares.binary_search_by_key(&key, |share| share.key) {
            Ok(at) => self.shares[at] = share,
            Err(at) => self.shares.insert(at, share),
        }
        Ok(())
    }

    /// The keys that it was handed to.
    pub fn keys(&self) -> impl Iterator<Item = KeyId> {
        self.shares.iter().map(|share| share.key)
    }

    /// Encode and sign.
    pub fn encode(&self, owner: &SigningKey) -> Vec<u8> {
        let header = self.header();
        let body = encode(&Body {
            repository: self.repository,
            data_key: self.data_key.encode().into(),
            meta_key: self.meta_key.encode().into(),
            created: self.created,
            shares: self.shares.clone(),
        });
        let signature = owner.sign(PURPOSE, &signed_bytes(&header, &body)).to_vec();
        plain_object(&header, &encode(&Signed { body, signature }))
    }

    /// Decode the generation of this number of a repository, if its `owner` signed it.
    pub fn decode(repository: RepositoryId, owner: &VerifyingKey, number: u32, object: &[u8]) -> Result<Self> {
        let header = Header::expect(object, ObjectType::Generation, &number_id(number))?;
        let signed: Signed = decode(plain_body(&header, object)?, OBJECT)?;
        owner.verify(PURPOSE, &signed_bytes(&header, &signed.body), &signed.signature).map_err(seal_error)?;
        let body: Body = decode(&signed.body, OBJECT)?;
        if body.repository != repository {
            return malformed(OBJECT, "it is another repository's");
        }
        if number == 0 || header.generation == 0 {
            return malformed(OBJECT, "the first generation has no object");
        }
        if !body.shares.is_sorted_by(|a, b| a.key < b.key) {
            return malformed(OBJECT, "its shares are not in the order of their keys");
        }
        Ok(Generation {
            repository,
            suite: header.suite,
            number,
            tag: header.generation,
            data_key: PublicKey::decode(&body.data_key).map_err(seal_error)?,
            meta_key: PublicKey::decode(&body.meta_key).map_err(seal_error)?,
            created: body.created,
            shares: body.shares,
        })
    }

    /// The secrets that it hands to a key of this role, whose private key this is; `None` if it wasn't handed to it.
    ///
    /// # Errors
    /// The share can't be opened, lacks what the role needs, or has other keys than those that everybody seals to.
    pub fn secrets(&self, key: KeyId, role: Role, private: &PrivateKey) -> Result<Option<GenerationSecrets>> {
        let Ok(at) = self.shares.binary_search_by_key(&key, |share| share.key) else { return Ok(None) };
        let Some((wrapped, sealed)) = self.shares[at].sealed.split_at_checked(WRAPPED_BYTES) else {
            return malformed(OBJECT, "a share ends within its key");
        };
        let context = self.header().encode();
        let wrapping = private.unwrap_key(wrapped, WRAP_INFO, &context).map_err(seal_error)?;
        let mut message = Zeroizing::new(sealed.to_vec());
        let plain = SealKey::new(self.suite, &wrapping).open(0, &context, &mut message).map_err(seal_error)?;
        let body: ShareBody = decode(unpad(plain, OBJECT)?, OBJECT)?;
        let half = |wiped: Option<Wiped>| wiped.map(|wiped| LazyKey::new(wiped.0));
        let secrets = GenerationSecrets {
            number: self.number,
            tag: self.tag,
            index: body.index.0,
            data: half(body.data),
            meta: half(body.meta),
        };
        let fits = |half: &Option<LazyKey>, public: &PublicKey| {
            let private = half.as_ref().map(LazyKey::key);
            private.is_none_or(|key| key.is_some_and(|key| key.public().encode() == public.encode()))
        };
        if !secrets.suffices(role) || !fits(&secrets.data, &self.data_key) || !fits(&secrets.meta, &self.meta_key) {
            return malformed(OBJECT, "a share doesn't hold what its key's role needs");
        }
        Ok(Some(secrets))
    }
}

/// A number as the id that stands in header and name.
fn number_id(number: u32) -> [u8; 16] {
    u128::from(number).to_be_bytes()
}

fn signed_bytes(header: &Header, body: &[u8]) -> Vec<u8> {
    [&header.encode()[..], body].concat()
}

fn seal_error(source: drumlin_seal::Error) -> Error {
    Error::Seal { object: OBJECT, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPOSITORY: RepositoryId = RepositoryId([1; 16]);

    fn secret(byte: u8) -> Secret {
        Secret::new([byte; 32])
    }

    fn owner() -> SigningKey {
        SigningKey::new(secret(3)).unwrap()
    }

    fn secrets(tag: u32) -> GenerationSecrets {
        let half = |byte| Some(LazyKey::new(secret(byte)));
        GenerationSecrets { number: 1, tag, index: secret(4), data: half(5), meta: half(6) }
    }

    fn pair(byte: u8) -> PrivateKey {
        PrivateKey::new(secret(byte)).unwrap()
    }

    fn sample(tag: u32) -> Generation {
        let of = Origin { repository: REPOSITORY, suite: Suite::Aes256Gcm, created: 7 };
        let mut generation = Generation::new(of, &secrets(tag)).unwrap();
        for (byte, role) in [(12, Role::Keeper), (11, Role::Writer), (10, Role::Owner), (13, Role::Reader)] {
            let share = secrets(tag).lessen(role).unwrap();
            let fresh = (&secret(byte + 100), &secret(byte + 200));
            generation.share(KeyId([byte; 16]), &pair(byte).public(), &share, fresh).unwrap();
        }
        generation
    }

    fn read(object: &[u8]) -> Result<Generation> {
        Generation::decode(REPOSITORY, &owner().verifying(), 1, object)
    }

    #[test]
    fn each_key_opens_its_own_share_and_no_more() {
        let bytes = sample(0xabcd).encode(&owner());
        let back = read(&bytes).unwrap();
        assert_eq!((back.number, back.tag, back.created, back.suite), (1, 0xabcd, 7, Suite::Aes256Gcm));
        assert!(back.keys().eq([10, 11, 12, 13].map(|byte| KeyId([byte; 16]))));
        for (byte, role, reads) in [
            (10, Role::Owner, (true, true)),
            (11, Role::Writer, (false, false)),
            (12, Role::Keeper, (false, true)),
            (13, Role::Reader, (true, true)),
        ] {
            let own = back.secrets(KeyId([byte; 16]), role, &pair(byte)).unwrap().unwrap();
            assert_eq!((own.number, own.tag, &own.index), (1, 0xabcd, &secret(4)));
            assert_eq!((own.data.is_some(), own.meta.is_some()), reads, "{role:?}");
            assert!(back.secrets(KeyId([byte; 16]), role, &pair(byte + 50)).is_err(), "another key's");
        }
        assert!(back.secrets(KeyId([99; 16]), Role::Owner, &pair(10)).unwrap().is_none());
        let lens: Vec<_> = back.shares.iter().map(|share| share.sealed.len()).collect();
        assert!(lens.iter().all(|len| *len == lens[0]), "a length tells a role: {lens:?}");
        // A share that gives too little for the role that the key has.
        assert!(back.secrets(KeyId([11; 16]), Role::Reader, &pair(11)).is_err());
    }

    #[test]
    fn only_the_owner_makes_one_and_every_flip_is_noticed() {
        let bytes = sample(5).encode(&owner());
        assert!(read(&sample(5).encode(&SigningKey::new(secret(99)).unwrap())).is_err());
        assert!(Generation::decode(RepositoryId([2; 16]), &owner().verifying(), 1, &bytes).is_err());
        assert!(Generation::decode(REPOSITORY, &owner().verifying(), 2, &bytes).is_err(), "under another name");
        assert!(read(&sample(0).encode(&owner())).is_err(), "the first one has no object");
        for at in (0..bytes.len()).step_by(11) {
            let mut bent = bytes.clone();
            bent[at] ^= 1;
            assert!(read(&bent).is_err(), "byte {at}");
            assert!(read(&bytes[..at]).is_err(), "cut to {at}");
        }
        // Shares that changed places, summed up again: the signature is on them.
        let mut swapped = sample(5);
        let first = swapped.shares[0].sealed.clone();
        swapped.shares[0].sealed = std::mem::replace(&mut swapped.shares[1].sealed, first);
        let of_owner = swapped.encode(&owner());
        assert!(read(&of_owner).unwrap().secrets(KeyId([10; 16]), Role::Owner, &pair(10)).is_err());
        let mut twice = sample(5);
        twice.shares.insert(1, twice.shares[0].clone());
        assert!(read(&twice.encode(&owner())).is_err());
        let mut short = sample(5);
        short.shares[0].sealed.truncate(1000);
        assert!(read(&short.encode(&owner())).unwrap().secrets(KeyId([10; 16]), Role::Owner, &pair(10)).is_err());
    }

    #[test]
    fn keys_that_nobody_seals_to_are_refused() {
        let mut generation = sample(5);
        let half = |byte| Some(LazyKey::new(secret(byte)));
        let other = GenerationSecrets { meta: half(77), ..secrets(5) };
        generation.share(KeyId([10; 16]), &pair(10).public(), &other, (&secret(1), &secret(2))).unwrap();
        let back = read(&generation.encode(&owner())).unwrap();
        assert!(back.secrets(KeyId([10; 16]), Role::Owner, &pair(10)).is_err());
    }
}
