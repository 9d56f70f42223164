//! Giving a repository new secrets for all that comes, by one small object: a generation.
//!
//! Crash order: the config's copy is put as it is, to see whether that may be done → keys that go with it are revoked →
//! the owner's own key gets its pair, if it has none → the generation, which nobody else can have made under this
//! number → its copy → the config's copy says that there is one → the config does. Until the config speaks of
//! generations nobody looks for them, so a first one that was left by a killed run means nothing, unless the config is
//! lost and its copy speaks of it; the next run makes another. A later one is complete, and in force, the moment it is
//! there.

use crate::generations::Generations;
use crate::keys::KeyInfo;
use crate::twice::{self, Found};
use crate::{Error, Repository, Result, names, random_id, random_secret};
use drumlin_format::KeyId;
use drumlin_format::config::Config;
use drumlin_format::generation::{Generation, GenerationSecrets, LazyKey, Origin};
use drumlin_format::key::{KeyObject, Lock};
use drumlin_seal::{PublicKey, checksum};
use drumlin_store::{Kind, Put};
use std::collections::{BTreeSet, HashMap, HashSet};

/// How to rekey.
#[derive(Clone, Copy, Debug)]
pub struct RekeyOptions {
    /// The time, seconds since 1970.
    pub now: i64,
    /// Revoke the keys that can't be given new secrets because an older program made them.
    pub remove_old: bool,
}

/// What a rekey has done.
#[derive(Clone)]
pub struct Rekeyed {
    /// The repository, which seals with the new secrets from now on.
    pub repository: Repository,
    /// The generation's number.
    pub number: u32,
    /// The keys that have its secrets.
    pub given: Vec<KeyInfo>,
    /// The keys that were revoked with it.
    pub removed: Vec<KeyInfo>,
}

/// Another owner was faster. `removed`: keys that are removed already.
fn outrun(removed: &[KeyInfo]) -> Error {
    let mut why =
        "another owner has given the repository new secrets just now; run it again if you want newer ones still"
            .to_owned();
    if !removed.is_empty() {
        let keys: Vec<String> = removed.iter().map(|key| format!("{} '{}'", key.id, key.label)).collect();
        why += &format!("; these keys were removed before that was seen: {}", keys.join(", "));
    }
    Error::Unsteady(why)
}

impl Repository {
    /// Give the repository new secrets. Only an owner can.
    ///
    /// # Errors
    /// [`Error::OldKeys`] if keys can't be given them and shall not be revoked, [`Error::Unexplained`] if something is
    /// missing that this client has seen, [`Error::Unsteady`] if another owner does the same just now: then nothing has
    /// changed but for old keys, which are removed, and named.
    pub fn rekey(&self, options: RekeyOptions) -> Result<Rekeyed> {
        let own = self.secrets().key;
        let owner = self.secrets().owner_signing.as_ref().ok_or_else(|| self.not_allowed("rekey"))?;
        // A key that the storage shows as it was before it was revoked must not be given anything.
        self.refuse_unexplained(options.now)?;
        let numbers = self.generation_numbers()?;
        self.refuse_rekeyed()?;
        self.generation()?;
        let config = self.config_now()?;
        let (mut keys, objects) = (self.list_keys()?, self.sound_keys()?);
        if keys.iter().any(|key| key.id == own && key.revoked.is_some()) {
            return Err(Error::RevokedKey { key: own, location: self.store().location() });
        }
        let half_revoked = self.revoked_by_copies()?;
        keys.retain(|key| key.revoked.is_none() && !half_revoked.contains(&key.id));
        let mut pairs = self.pairs(&objects)?;
        pairs.retain(|key, _| !half_revoked.contains(key));
        let (given, old): (Vec<_>, Vec<_>) = keys.into_iter().partition(|key| pairs.contains_key(&key.id));
        if !old.is_empty() && !options.remove_old {
            return Err(Error::OldKeys(old.iter().map(|key| format!("{} '{}'", key.id, key.label)).collect()));
        }
        self.try_to_replace()?;
        if !half_revoked.is_empty() {
            self.mend_keys()?;
        }
        for key in &old {
            let object = &objects[&key.id];
            let bytes = object.revoke(config.id, options.now, owner);
            twice::put(&**self.store(), &names::key(key.id), &bytes, Put::Replace)?;
        }
        if let (Some(object), Some(pair)) = (objects.get(&own), pairs.get(&own))
            && object.certificate(config.id, &config.owner).is_ok_and(|certificate| certificate.wrapping.is_none())
        {
            let bytes = object.with_wrapping(config.id, pair, owner);
            twice::put(&**self.store(), &names::key(own), &bytes, Put::Replace)?;
        }
        // Another owner's may have come since the keys were looked at, of which he may have removed some. One that comes
        // later takes the same number.
        if self.generation_numbers()? != numbers {
            return Err(outrun(&old));
        }
        let secrets = self.fresh_generation(&numbers)?;
        let of = Origin { repository: config.id, suite: config.suite, created: options.now };
        let mut generation = Generation::new(of, &secrets).ok_or_else(|| self.not_allowed("rekey"))?;
        for (key, pair) in &pairs {
            let role = given.iter().find(|of| of.id == *key).map_or(self.role(), |of| of.role);
            let share = secrets.lessen(role).ok_or_else(|| self.not_allowed("rekey"))?;
            let shared = generation.share(*key, pair, &share, (&random_secret()?, &random_secret()?));
            shared.map_err(Error::damaged(&names::key(*key)))?;
        }
        let (name, bytes) = (names::generation(secrets.number), generation.encode(owner));
        match self.store().put(&name, &bytes, Put::Create) {
            Err(e) if e.kind == Kind::Exists => return Err(outrun(&old)),
            other => other?,
        }
        self.store().put(&names::generation_copy(secrets.number), &bytes, Put::Replace)?;
        self.mend_generations()?;
        self.retain_others(&|| false)?;
        let config = Config { generation: secrets.number.max(config.generation), ..config };
        twice::put(&**self.store(), names::CONFIG, &config.encode(owner), Put::Replace)?;
        let (mut own_secrets, mut generations) = (self.secrets().clone(), self.generations().clone());
        own_secrets.learn(secrets.clone());
        generations.add(generation, checksum(&bytes), &mut own_secrets);
        let repository = self.renewed(config, own_secrets, generations);
        repository.take_note(options.now);
        Ok(Rekeyed { repository, number: secrets.number, given, removed: old })
    }

    /// See whether this account may replace what is there, by putting the config's copy as it is: of one that may not
    /// new secrets would come, and the config would never tell of them.
    fn try_to_replace(&self) -> Result<()> {
        let store = self.store();
        if store.retains() {
            // By the config's own lock that of all others is told.
            return Ok(());
        }
        let bytes = match store.get(names::CONFIG_COPY).map_err(Error::from) {
            // What is damaged or gone is put right by that.
            Err(e) if e.is_of_one_object() => {
                let bytes = store.get(names::CONFIG)?;
                if e.is_missing() {
                    store.put(names::CONFIG_COPY, &bytes, Put::Create)?;
                }
                bytes
            }
            there => there?,
        };
        store.put(names::CONFIG_COPY, &bytes, Put::Replace)?;
        // Another owner may have done the same in between, and put a newer one.
        let now = self.config_now()?;
        if now.generation > self.config().generation {
            self.mend_config()?;
        }
        Ok(())
    }

    /// Keys whose revocation was cut short, and has come no further than to their copies. They aren't given anything.
    fn revoked_by_copies(&self) -> Result<HashSet<KeyId>> {
        let is_revoked = |id: &KeyId| match self.certified(*id).find(&names::copy_of(&names::key(*id)))? {
            Found::Sound(copy, _) if *copy.lock() == Lock::Revoked => Ok::<_, Error>(Some(*id)),
            _ => Ok(None),
        };
        Ok(self.ask_many(&self.key_ids()?, is_revoked)?.into_iter().flatten().collect())
    }

    fn sound_keys(&self) -> Result<HashMap<KeyId, KeyObject>> {
        self.key_objects(self.key_ids()?)?.into_iter().map(|(id, object)| Ok((id, object?))).collect()
    }

    /// The public halves of the pairs of all keys that were not revoked and have one; this key's own in any case.
    fn pairs(&self, objects: &HashMap<KeyId, KeyObject>) -> Result<HashMap<KeyId, PublicKey>> {
        let mut pairs = HashMap::new();
        let own = self.secrets().wrapping_key().map(|pair| pair.public());
        pairs.extend(own.map(|public| (self.secrets().key, public)));
        for (id, object) in objects {
            let name = names::key(*id);
            let certificate = object.certificate(self.config().id, &self.config().owner);
            let certificate = certificate.map_err(Error::damaged(&name))?;
            let (None, Some(public)) = (certificate.revoked, &certificate.wrapping) else { continue };
            let seal = |source| drumlin_format::Error::Seal { object: "key certificate", source };
            pairs.insert(*id, PublicKey::decode(public).map_err(seal).map_err(Error::damaged(&name))?);
        }
        Ok(pairs)
    }

    /// The numbers of all generations of which there is an object, of some kind.
    fn generation_numbers(&self) -> Result<BTreeSet<u32>> {
        let mut numbers = BTreeSet::new();
        self.store().list(names::GENERATIONS, &mut |listed| numbers.extend(names::generation_number(&listed.name)))?;
        Ok(numbers)
    }

    /// New secrets, under a number that nobody has taken.
    fn fresh_generation(&self, taken: &BTreeSet<u32>) -> Result<GenerationSecrets> {
        let newest = self.generations().newest();
        let number = (newest.saturating_add(1)..=u32::MAX).find(|number| !taken.contains(number));
        let number = number.ok_or_else(|| Error::Misuse("there is no number left for new secrets".into()))?;
        let tag = loop {
            let random: [u8; 16] = random_id()?;
            let tag = u32::from_le_bytes([random[0], random[1], random[2], random[3]]);
            if tag != 0 && self.tags().all(|other| other != tag) {
                break tag;
            }
        };
        let half = || random_secret().map(LazyKey::new).map(Some);
        Ok(GenerationSecrets { number, tag, index: random_secret()?, data: half()?, meta: half()? })
    }

    fn renewed(&self, config: Config, secrets: drumlin_format::key::Secrets, generations: Generations) -> Self {
        let repository = Repository::assemble(self.store().clone(), config, secrets, generations);
        match self.memory() {
            Some(memory) => repository.with_memory(memory.clone()),
            None => repository,
        }
    }
}
