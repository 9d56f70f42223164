//! Making a repository. It is drawn up whole, so that its key's file can be in a safe place, before anything of it is
//! in the storage.

use crate::many::ask_store;
use crate::{Error, Generations, NewLock, Repository, Result, names, random_id, random_secret, twice};
use drumlin_format::config::{ChunkSizes, Config};
use drumlin_format::key::{Role, Secrets};
use drumlin_format::{KeyId, RepositoryId};
use drumlin_seal::{PrivateKey, Secret, SigningKey, Suite};
use drumlin_store::{Kind, Put, Store};
use std::sync::Arc;

/// What a new repository shall be like. The defaults are measured: `docs/decisions/`.
#[derive(Clone, Copy, Debug)]
pub struct CreateOptions {
    /// The cipher.
    pub suite: Suite,
    /// How contents are cut.
    pub chunks: ChunkSizes,
    /// Bytes of chunks in a block.
    pub block_bytes: u32,
    /// Bytes of a pack.
    pub pack_bytes: u32,
}

impl Default for CreateOptions {
    fn default() -> Self {
        CreateOptions {
            suite: Suite::Aes256Gcm,
            chunks: ChunkSizes { min: 16 << 10, normal: 64 << 10, max: 256 << 10 },
            block_bytes: 1 << 20,
            pack_bytes: 64 << 20,
        }
    }
}

/// A repository that could not be put into the storage.
#[derive(Debug)]
pub struct NotMade {
    /// Why.
    pub error: Error,
    /// It may be there all the same, whole or in part, so that its key opens something.
    pub is_unsure: bool,
}

/// A repository that is drawn up, with one owner key; nothing of it is in the storage yet.
pub struct NewRepository {
    repository: Repository,
    key_object: Vec<u8>,
    config: Vec<u8>,
}

impl NewRepository {
    /// Draw one up for an empty store, with an owner key that `lock` opens. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// [`Error::Exists`] if something of a repository is there; the storage fails.
    pub fn draw(store: Arc<dyn Store>, options: CreateOptions, lock: &NewLock, label: &str, now: i64) -> Result<Self> {
        NewRepository::with(store, options, random_secret()?, lock, label, now)
    }

    /// The same, with contents and trees cut where `like` cuts them: what is copied from there and what is backed up
    /// here are the same chunks. All other secrets are new. `options.chunks` is that of `like`. Its key must be one
    /// that may write.
    ///
    /// # Errors
    /// As [`NewRepository::draw`]; [`Error::NotAllowed`].
    pub fn draw_like(
        store: Arc<dyn Store>,
        like: &Repository,
        options: CreateOptions,
        lock: &NewLock,
        label: &str,
        now: i64,
    ) -> Result<Self> {
        let cutting = like.secrets().cutting.clone().ok_or_else(|| like.not_allowed("cut contents"))?;
        let options = CreateOptions { chunks: like.config().chunks, ..options };
        NewRepository::with(store, options, cutting, lock, label, now)
    }

    fn with(
        store: Arc<dyn Store>,
        options: CreateOptions,
        cutting: Secret,
        lock: &NewLock,
        label: &str,
        now: i64,
    ) -> Result<Self> {
        refuse_another(&*store)?;
        let seal = |source| Error::Damaged {
            object: names::CONFIG.into(),
            source: drumlin_format::Error::Seal { object: "config", source },
        };
        let owner = SigningKey::new(random_secret()?).map_err(seal)?;
        let data = PrivateKey::new(random_secret()?).map_err(seal)?;
        let meta = PrivateKey::new(random_secret()?).map_err(seal)?;
        let config = Config {
            id: RepositoryId(random_id()?),
            suite: options.suite,
            chunks: options.chunks,
            block_bytes: options.block_bytes,
            pack_bytes: options.pack_bytes,
            data_key: data.public(),
            meta_key: meta.public(),
            owner: owner.verifying(),
            generation: 0,
        };
        let secrets = Secrets {
            repository: config.id,
            key: KeyId(random_id()?),
            role: Role::Owner,
            owner: config.owner,
            index: random_secret()?,
            identity: Some(random_secret()?),
            cutting: Some(cutting),
            data: Some(data),
            meta: Some(meta),
            signing: Some(SigningKey::new(random_secret()?).map_err(seal)?),
            owner_signing: Some(owner.clone()),
            tree_identity: None,
            wrapping: None,
            generations: Vec::new(),
        };
        let repository = Repository::assemble(store, config, secrets, Generations::default());
        let key_object = repository.seal_key(repository.secrets(), lock, label, now)?;
        let config = repository.config().encode(&owner);
        Ok(NewRepository { repository, key_object, config })
    }

    /// The owner's key.
    pub fn key(&self) -> KeyId {
        self.repository.secrets().key
    }

    /// The repository as it will be. Of what it says of itself all holds by now; in the storage there is nothing of it.
    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// Put it into the storage. The key object is durable before the config appears: a repository that is seen can be
    /// opened, by whoever has kept its key.
    ///
    /// # Errors
    /// [`Error::Exists`] if somebody was faster; the storage fails.
    pub fn make(self) -> std::result::Result<Repository, NotMade> {
        let (store, key) = (&**self.repository.store(), names::key(self.key()));
        twice::expect(store, &key, &self.key_object);
        twice::expect(store, names::CONFIG, &self.config);
        // In any order: it opens nothing before there is a config.
        let keys = [key.clone(), names::copy_of(&key)];
        let put = ask_store(store, &keys, |name| store.put(name, &self.key_object, Put::Create))
            .and_then(|_| twice::put(store, names::CONFIG, &self.config, Put::Create));
        match put {
            Ok(()) => Ok(self.repository),
            Err(e) => {
                // Or what is left would be in the way of the next attempt, or pass for a repository that nobody can
                // open.
                let is_gone = twice::take_back(store, names::CONFIG, &self.config);
                twice::take_back(store, &key, &self.key_object);
                // What seems to be gone may be on its way yet, where a line broke.
                let may_come = store.may_come_late(names::CONFIG) || store.may_come_late(names::CONFIG_COPY);
                let is_unsure = !is_gone || may_come || matches!(e.kind, Kind::Transient | Kind::Io);
                let error = match e.kind {
                    Kind::Exists => Error::Exists { location: store.location() },
                    _ => e.into(),
                };
                Err(NotMade { error, is_unsure })
            }
        }
    }
}

/// Fails if something of a repository is there.
fn refuse_another(store: &dyn Store) -> Result<()> {
    let objects = [names::CONFIG, names::CONFIG_COPY].map(|name| (name, false));
    let folders = [names::CONFIG, names::KEYS, names::SNAPSHOTS, names::INDEX].map(|folder| (folder, true));
    let found = ask_store(store, &[&objects[..], &folders].concat(), |(name, is_folder)| {
        let mut found = false;
        match is_folder {
            true => store.list(name, &mut |_| found = true)?,
            false => found = store.len(name)?.is_some(),
        }
        Ok::<_, Error>(found)
    })?;
    if found.contains(&true) { Err(Error::Exists { location: store.location() }) } else { Ok(()) }
}

impl Repository {
    /// Make a repository whose key is at hand, or need not be kept: [`NewRepository::draw`] and [`NewRepository::make`]
    /// in one.
    ///
    /// # Errors
    /// As those.
    pub fn create(
        store: Arc<dyn Store>,
        options: CreateOptions,
        lock: NewLock,
        label: &str,
        now: i64,
    ) -> Result<(Self, KeyId)> {
        let new = NewRepository::draw(store, options, &lock, label, now)?;
        let key = new.key();
        Ok((new.make().map_err(|not| not.error)?, key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_store::{Fault, FaultStore, MemoryStore, Op, When};

    /// Of who could not put all of it some may be there, that nobody could take away: then its key is all that opens
    /// it.
    #[test]
    fn what_may_be_there_all_the_same_is_told() {
        let unsure_where = |put: (&str, Fault), keeps: bool| {
            let (memory, lock) = (MemoryStore::new(), NewLock::File(Secret::new([7; 32])));
            let store = FaultStore::new(memory.clone());
            let faults = store.faults();
            let new = NewRepository::draw(Arc::new(store), CreateOptions::default(), &lock, "owner", 1).unwrap();
            faults.add(When::op(Op::Put).named(put.0), put.1);
            if keeps {
                faults.add(When::op(Op::Delete), Fault::Fail(Kind::Refused));
            }
            let not = new.make().err().unwrap();
            let is_there = Repository::read_config(&memory).is_ok();
            assert!(not.is_unsure || !is_there);
            (not.is_unsure, is_there)
        };
        let fails = |kind| (names::CONFIG_COPY, Fault::Fail(kind));
        assert_eq!(unsure_where(fails(Kind::Full), false), (false, false));
        assert_eq!(
            unsure_where(fails(Kind::Full), true),
            (true, true),
            "an account that may only add, and has no more room"
        );
        assert_eq!(
            unsure_where((names::CONFIG, Fault::Fail(Kind::Refused)), true),
            (false, false),
            "it never was there"
        );
        assert_eq!(unsure_where((names::CONFIG, Fault::FailAfter(Kind::Transient)), true), (true, true));
        assert_eq!(unsure_where((names::CONFIG, Fault::Fail(Kind::Transient)), false), (true, false));
    }
}
