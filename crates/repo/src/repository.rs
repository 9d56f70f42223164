//! The repository: what is open, and the keys made from its secrets.

use crate::access::By;
use crate::band::{Bands, Through};
use crate::cache::Snapshots;
use crate::generations::{Generations, Met};
use crate::history::Memory;
use crate::lock::lock;
use crate::{Error, PackInfo, Result, Unlock, config, names};
use drumlin_format::ChunkId;
use drumlin_format::config::Config;
use drumlin_format::key::{Role, Secrets};
use drumlin_seal::{IdKey, Secret, derive};
use drumlin_store::{Haste, Soon, Store, Thaw};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock};

/// An open repository. Cheap to clone.
#[derive(Clone)]
pub struct Repository {
    store: Arc<dyn Store>,
    config: Arc<Config>,
    secrets: Arc<Secrets>,
    generations: Arc<Generations>,
    pub(crate) met: Arc<Met>,
    data_ids: Option<Arc<IdKey>>,
    tree_ids: Option<Arc<IdKey>>,
    memory: Option<Arc<Memory>>,
    /// Copies of snapshots, where they are worth keeping.
    pub(crate) kept: Option<Arc<Snapshots>>,
    /// Packs that were read through their parity; the config and the key in use, if it was their copies that were read.
    healed: Arc<Mutex<BTreeSet<String>>>,
    passed_over: Arc<Mutex<BTreeMap<String, String>>>,
    /// Why the cache could not be written.
    unkept: Arc<OnceLock<String>>,
    /// Whether packs are seen through their bands.
    through: bool,
    /// Whether there is no object of the key in use.
    lacks_key: bool,
}

impl Repository {
    /// Open the repository in a store.
    ///
    /// # Errors
    /// That there is none ([`Error::NoRepository`], [`Error::NoConfig`]); that what is given doesn't open it
    /// ([`Error::WrongKey`], [`Error::NoKeys`], [`Error::NoPassphrase`], [`Error::RevokedKey`],
    /// [`Error::OtherRepository`]); that an object without which nobody can open it is damaged, with its copy; that
    /// the storage fails.
    pub fn open(store: Arc<dyn Store>, unlock: &Unlock) -> Result<Self> {
        if let Some(key) = unlock.key() {
            store.expect(Soon::Object(&names::key(key)));
        }
        let (config, is_copy) = config::read(&*store)?;
        let (mut secrets, by) = Repository::unlock(&*store, &config, unlock)?;
        let generations = Generations::read(&*store, &config, &mut secrets)?;
        let mut repository = Repository::assemble(store, config, secrets, generations);
        repository.lacks_key = by == By::FileAlone;
        if is_copy {
            repository.note_healed(names::CONFIG);
        }
        if by == By::Copy {
            repository.note_healed(&names::key(repository.secrets.key));
        }
        Ok(repository)
    }

    /// Whether the object of the key in use is gone with its copy, or neither is sound. A recovery file opens the
    /// repository all the same, but what it signs then counts for nobody else, who can't tell whose word it is:
    /// [`Repository::remake_key`].
    pub fn lacks_its_key(&self) -> bool {
        self.lacks_key
    }

    /// The config of the repository in a store, or else its copy: what can be told without a key.
    pub fn read_config(store: &dyn Store) -> Result<Config> {
        config::read(store).map(|(config, _)| config)
    }

    pub(crate) fn assemble(store: Arc<dyn Store>, config: Config, secrets: Secrets, generations: Generations) -> Self {
        Repository {
            data_ids: secrets.data_ids().map(Arc::new),
            tree_ids: secrets.tree_ids().map(Arc::new),
            store,
            config: Arc::new(config),
            secrets: Arc::new(secrets),
            generations: Arc::new(generations),
            met: Arc::default(),
            memory: None,
            kept: None,
            healed: Arc::default(),
            passed_over: Arc::default(),
            unkept: Arc::default(),
            through: false,
            lacks_key: false,
        }
    }

    /// The names of what was found damaged or gone since the repository was opened, and made up for: packs by their
    /// parity, the config and the key in use by their copies. They should be repaired.
    pub fn healed(&self) -> Vec<String> {
        lock(&self.healed).iter().cloned().collect()
    }

    pub(crate) fn note_healed(&self, name: &str) {
        let mut healed = lock(&self.healed);
        if !healed.contains(name) {
            healed.insert(name.to_owned());
        }
    }

    /// The names of index objects that are damaged and were done without since the repository was opened, and what is
    /// wrong with each. What only they name was not found.
    pub fn passed_over(&self) -> BTreeMap<String, String> {
        lock(&self.passed_over).clone()
    }

    pub(crate) fn note_passed_over(&self, name: &str, cause: String) {
        lock(&self.passed_over).insert(name.to_owned(), cause);
    }

    /// Why something that this client keeps to be fast could not be kept since the repository was opened, the first
    /// time.
    pub fn unkept(&self) -> Option<&str> {
        self.unkept.get().map(String::as_str)
    }

    /// Take note of what could not be kept: nothing fails by that.
    pub fn note_unkept(&self, why: &Error) {
        self.unkept.get_or_init(|| why.to_string());
    }

    pub(crate) fn note_mended(&self, name: &str) {
        lock(&self.healed).remove(name);
    }

    /// The same repository, its packs seen through their bands: for reading what can't be read otherwise.
    #[must_use]
    pub fn through(&self, bands: &Bands) -> Self {
        Repository { store: Arc::new(Through::new(self, bands)), through: true, ..self.clone() }
    }

    /// Whether its packs are seen through their bands.
    pub(crate) fn is_through(&self) -> bool {
        self.through
    }

    /// The same repository, with what this client has seen of it: [`Repository::look_back`].
    #[must_use]
    pub fn with_memory(self, memory: Arc<Memory>) -> Self {
        Repository { memory: Some(memory), ..self }
    }

    /// What this client has seen of it, if anything remembers that.
    pub fn memory(&self) -> Option<&Arc<Memory>> {
        self.memory.as_ref()
    }

    /// The storage.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Have a pack brought back from cold storage, if it is there. Whether it can be read already; asking again tells
    /// how far it is.
    pub fn thaw(&self, pack: &PackInfo, haste: Haste) -> Result<bool> {
        Ok(self.store.thaw(&names::pack(pack.kind, pack.id), haste)? == Thaw::Ready)
    }

    /// The config.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The secrets of the key that opened it.
    pub fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// The generations of its secrets.
    pub fn generations(&self) -> &Generations {
        &self.generations
    }

    /// The role of that key.
    pub fn role(&self) -> Role {
        self.secrets.role
    }

    /// An error that says that the role doesn't allow `action`.
    pub(crate) fn not_allowed(&self, action: &'static str) -> Error {
        Error::NotAllowed { role: self.role().name(), action }
    }

    /// Fails unless the key may add to the repository.
    pub fn may_write(&self) -> Result<()> {
        match (&self.secrets.cutting, &self.secrets.signing) {
            (Some(_), Some(_)) => self.generation().map(drop),
            _ => Err(self.not_allowed("back up")),
        }
    }

    /// Fails unless the key may remove what no snapshot needs; `what` says for what.
    pub fn may_collect(&self, what: &'static str) -> Result<()> {
        match (self.role(), &self.secrets.signing) {
            (Role::Owner | Role::Keeper, Some(_)) => self.is_heeded(),
            _ => Err(self.not_allowed(what)),
        }
    }

    /// Fails if others can't tell whose word a plan of this key is: they would refer to what it condemns.
    pub(crate) fn is_heeded(&self) -> Result<()> {
        if !self.lacks_key {
            return Ok(());
        }
        let key = self.secrets.key;
        Err(Error::Misuse(format!(
            "the object of key {key} is gone from the repository: backups would not heed what this key is about to remove, and lose it. \
             'key passwd' with an owner's recovery file makes it again; for any other key the owner has to make a new one"
        )))
    }

    /// Fails unless the key may read contents.
    pub fn may_read(&self) -> Result<()> {
        if self.secrets.data.is_some() { Ok(()) } else { Err(self.not_allowed("read what is in the repository")) }
    }

    /// What gives contents their identity.
    pub fn data_ids(&self) -> Result<&Arc<IdKey>> {
        self.data_ids.as_ref().ok_or_else(|| self.not_allowed("tell chunks apart"))
    }

    /// What gives tree nodes and chunk lists their identity; every role has it, and checks what it reads.
    pub fn tree_ids(&self) -> Option<&Arc<IdKey>> {
        self.tree_ids.as_ref()
    }

    /// The identity of contents.
    pub fn data_id(&self, bytes: &[u8]) -> Result<ChunkId> {
        Ok(ChunkId(self.data_ids()?.id(bytes)))
    }

    /// The secret of the content-defined cuts, for `drumlin-chunk`.
    pub fn cut_secret(&self) -> Result<Secret> {
        let cutting = self.secrets.cutting.as_ref().ok_or_else(|| self.not_allowed("cut contents"))?;
        Ok(derive(cutting, "content cuts", &[]))
    }
}
