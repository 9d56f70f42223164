//! The secrets of a role, and what is derived from them.

use super::{OBJECT, Role};
use crate::cbor::{decode, encode_into};
use crate::error::malformed;
use crate::generation::{GenerationSecrets, IndexKeys, Known, MetaKeys};
use crate::signer::Sealing;
use crate::{Error, FRESH_BYTES, KeyId, RepositoryId, Result};
use drumlin_seal::{IdKey, PrivateKey, Secret, SigningKey, VerifyingKey, Zeroizing, derive};
use minicbor::bytes::ByteArray;
use minicbor::{Decode, Encode};

const DATA_CHUNK: &str = "data chunk";
const TREE_CHUNK: &str = "tree chunk";
/// More than the secrets of any role take, sealed: their memory is never given back unwiped for a larger piece.
const SECRETS_ROOM: usize = 1024;
/// As much again for each generation after the first.
const GENERATION_ROOM: usize = 160;
/// The private half of a key's own pair, where it signs.
const WRAPPING: &str = "key wrapping";

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
    /// The key derived from `identity` for tree chunks: for the keeper, who has to tell a true node from a forged one
    /// and needs to know no more of contents.
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
    /// The secrets of a lesser `role`, of all generations, for a new key that signs with `signing`. `None` if these
    /// secrets don't suffice.
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

    /// The private half of this key's own pair, to which the owner seals the secrets of later generations. A key that
    /// signs derives it; others have a secret for it, if they were made with one.
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

    /// Add what is known of a generation, in its place. There may be two of a number: where a repository was put back
    /// to what it was before the first of them, and given new secrets once more.
    pub fn learn(&mut self, of: GenerationSecrets) {
        if of.tag != 0 && self.generation(of.tag).is_none() {
            let at = self.generations.partition_point(|known| known.place() < of.place());
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

    /// With what this key signs and seals an object of a generation that every role shall open; `None` for a reader,
    /// who signs nothing, and of a generation that isn't known.
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
        if secrets.generations.iter().any(tags) || !secrets.generations.is_sorted_by(|a, b| a.place() < b.place()) {
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An owner's.
    pub fn owner() -> Secrets {
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

    /// Two of one number are of a repository that was put back to what it was before the first of them. Who knows both
    /// must be able to keep what he knows.
    #[test]
    fn generations_of_one_number_are_kept() {
        let signing = SigningKey::new(Secret::new([11; 32])).unwrap();
        let mut secrets = owner().lessen(Role::Writer, KeyId([10; 16]), Some(signing)).unwrap();
        let of = |number, tag| GenerationSecrets { number, tag, index: Secret::new([20; 32]), data: None, meta: None };
        for (number, tag) in [(2, 5), (1, 9), (1, 3), (3, 1), (1, 9)] {
            secrets.learn(of(number, tag));
        }
        let known = |secrets: &Secrets| secrets.generations.iter().map(|of| (of.number, of.tag)).collect::<Vec<_>>();
        assert_eq!(known(&secrets), [(1, 3), (1, 9), (2, 5), (3, 1)]);
        assert_eq!(known(&Secrets::decode(&secrets.encode()).unwrap()), known(&secrets));
        secrets.generations.swap(0, 1);
        assert!(Secrets::decode(&secrets.encode()).is_err());
        secrets.generations[0] = of(1, 3);
        assert!(Secrets::decode(&secrets.encode()).is_err(), "one tag twice");
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
}
