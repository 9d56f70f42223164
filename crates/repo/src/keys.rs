//! Keys: who may do what. Adding and removing keys is the owner's; changing one's own passphrase is anybody's.

use crate::twice::{self, Counts, Examined, Found, Mended, Twice};
use crate::{Error, Repository, Result, names, random_id, random_secret};
use drumlin_format::KeyId;
use drumlin_format::key::{Certificate, KeyObject, KeyParts, Lock, Role, Secrets};
use drumlin_format::key_file::{self, KeyFile};
use drumlin_seal::{PassphraseCost, Secret, SigningKey, VerifyingKey, Zeroizing};
use drumlin_store::{Put, Store};
use std::collections::{BTreeSet, HashMap};

/// What shall unlock a new key object.
pub enum NewLock {
    /// A passphrase, at this cost.
    Passphrase(Vec<u8>, PassphraseCost),
    /// A key file with these 32 bytes.
    File(Secret),
}

/// A key as `key list` shows it.
#[derive(Clone, Debug)]
pub struct KeyInfo {
    /// The key.
    pub id: KeyId,
    /// Its role, by the owner's word.
    pub role: Role,
    /// Its name for people.
    pub label: String,
    /// When it was made, seconds since 1970.
    pub created: i64,
    /// Whether a passphrase opens it; else a file does.
    pub passphrase: bool,
    /// Whether it is the one in use.
    pub current: bool,
    /// When it was revoked, seconds since 1970, if so: nothing opens it any more.
    pub revoked: Option<i64>,
}

/// All keys of a repository.
#[derive(Debug, Default)]
pub struct Keys {
    /// Those that the owner certified, in the order in which they were made.
    pub sound: Vec<KeyInfo>,
    /// Those of which neither the object nor its copy is what the owner put, and why: they open nothing, and whose word
    /// it is that they signed can't be told.
    pub lost: Vec<(KeyId, Error)>,
}

/// A key whose signatures can be told, by the owner's word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrustedKey {
    /// Its role.
    pub role: Role,
    /// Checks its signatures.
    pub verifying: VerifyingKey,
    /// When it was revoked, if so: what it signed before still is its word, and no clock tells which that is.
    pub revoked: Option<i64>,
}

/// A key object and its copy.
pub(crate) fn twice<'a>(store: &'a dyn Store, id: KeyId) -> Twice<'a, KeyObject> {
    let decode = move |bytes: &[u8]| KeyObject::decode(id, bytes);
    Twice { store, name: names::key(id), decode: Box::new(decode), counts, copy_is_owed: false }
}

/// No key object is longer, whatever its label: who may add can put what takes all memory to be read.
const KEY_BYTES_MAX: u64 = 1 << 20;

/// All keys of which there is an object or its copy, in order, of a length that it can have.
pub(crate) fn ids(store: &dyn Store) -> Result<BTreeSet<KeyId>> {
    let mut ids = BTreeSet::new();
    store.list(names::KEYS, &mut |listed| {
        if listed.len <= KEY_BYTES_MAX {
            ids.extend(names::key_id(&listed.name));
        }
    })?;
    Ok(ids)
}

/// A copy that was revoked counts: nothing brings a key back.
fn counts(object: &KeyObject, copy: &KeyObject) -> Counts {
    let is_revoked = |object: &KeyObject| *object.lock() == Lock::Revoked;
    if is_revoked(copy) && !is_revoked(object) { Counts::Copy } else { Counts::Object }
}

impl Repository {
    /// Seal a key object for `secrets`. Certificates need the owner.
    pub(crate) fn seal_key(&self, secrets: &Secrets, lock: &NewLock, label: &str, now: i64) -> Result<Vec<u8>> {
        let owner = self.secrets().owner_signing.as_ref().ok_or_else(|| self.not_allowed("add keys"))?;
        let (lock, unlock) = self.new_lock(lock)?;
        let generation = self.generation()?;
        let fresh = random_id()?;
        let parts = KeyParts { secrets, lock, unlock: &unlock, label, created: now, fresh, generation };
        Ok(KeyObject::seal(&parts, self.config().suite, owner))
    }

    fn new_lock(&self, lock: &NewLock) -> Result<(Lock, Secret)> {
        Ok(match lock {
            NewLock::File(secret) => (Lock::File, secret.clone()),
            NewLock::Passphrase(passphrase, cost) => {
                let lock = Lock::passphrase(random_id()?, *cost);
                let unlock = lock.passphrase_key(passphrase).map_err(Error::damaged("the passphrase"))?;
                (lock, unlock)
            }
        })
    }

    /// Add a key of a role. Only an owner can. Gives its id.
    ///
    /// # Errors
    /// [`Error::NotAllowed`]: the key in use isn't an owner's. [`Error::Misuse`]: a passphrase that opens another key.
    /// Of the storage: the key may be there then, with its copy or without, and count; `key list` shows it.
    pub fn add_key(&self, role: Role, lock: &NewLock, label: &str, now: i64) -> Result<KeyId> {
        if self.secrets().owner_signing.is_none() {
            return Err(self.not_allowed("add keys"));
        }
        self.refuse_twin(lock, None)?;
        let id = KeyId(random_id()?);
        let signing = SigningKey::new(random_secret()?).map_err(|_| Error::Misuse("no signing key".into()))?;
        let lesser = self.secrets().lessen(role, id, Some(signing));
        let mut secrets = lesser.ok_or_else(|| self.not_allowed("add such a key"))?;
        if secrets.signing.is_none() {
            secrets.wrapping = Some(random_secret()?);
        }
        let bytes = self.seal_key(&secrets, lock, label, now)?;
        twice::put(&**self.store(), &names::key(id), &bytes, Put::Create)?;
        Ok(id)
    }

    /// The text of a key file for a key that a file with these bytes opens.
    pub fn key_file(&self, key: KeyId, secret: &Secret) -> Zeroizing<String> {
        KeyFile { repository: self.config().id, key, secret: secret.clone() }.encode()
    }

    /// The text of a recovery file: the secrets of the key in use, which need no object of the repository.
    pub fn recovery_file(&self) -> Zeroizing<String> {
        key_file::encode_recovery(self.secrets())
    }

    /// Make the object of the key in use again, if it is an owner's and [`Repository::lacks_its_key`]: what it has
    /// signed is its word once more.
    pub fn remake_key(&self, lock: &NewLock, label: &str, now: i64) -> Result<()> {
        let secrets = self.secrets();
        self.refuse_twin(lock, Some(secrets.key))?;
        let bytes = self.seal_key(secrets, lock, label, now)?;
        Ok(twice::put(&**self.store(), &names::key(secrets.key), &bytes, Put::Replace)?)
    }

    /// Change what opens the key in use; its role and certificate stay. Rewrites one small object, and its copy.
    ///
    /// # Errors
    /// [`Error::RevokedKey`]. [`Error::Misuse`]: a passphrase that opens another key. Of the storage: the old one or
    /// the new one opens it then, or, of object and copy, each a different one.
    pub fn relock(&self, lock: &NewLock) -> Result<()> {
        let secrets = self.secrets();
        self.refuse_twin(lock, Some(secrets.key))?;
        let name = names::key(secrets.key);
        let both = self.certified(secrets.key);
        let object = self.read_twice(&both)?;
        // The word that it is revoked may have come no further than to the copy.
        if let Found::Sound(copy, _) = both.find(&names::copy_of(&name))?
            && *copy.lock() == Lock::Revoked
        {
            return Err(Error::RevokedKey { key: secrets.key, location: self.store().location() });
        }
        let label = object.label(secrets).map_err(Error::damaged(&name))?;
        let certificate = object.certificate(secrets.repository, &secrets.owner).map_err(Error::damaged(&name))?;
        if certificate.revoked.is_some() {
            return Err(Error::RevokedKey { key: secrets.key, location: self.store().location() });
        }
        let created = certificate.created;
        let (lock, unlock) = self.new_lock(lock)?;
        let (fresh, generation) = (random_id()?, object.generation());
        let parts = KeyParts { secrets, lock, unlock: &unlock, label: &label, created, fresh, generation };
        twice::put(&**self.store(), &name, &object.reseal(&parts), Put::Replace)?;
        self.note_mended(&name);
        Ok(())
    }

    /// Revoke a key at a time, in seconds since 1970. What it signed can still be told to be its; its secrets are gone
    /// from the repository (not from whoever has kept them). The last owner key stays: without it nobody could ever
    /// open the repository as its owner. A key that is lost has nothing to be revoked: what is left of it goes.
    ///
    /// # Errors
    /// [`Error::NotAllowed`]: the key in use isn't an owner's. [`Error::Misuse`]: no such key, one that was removed
    /// before, or the last owner's. Of the storage: if either of its copies says so, it is revoked; else run it again.
    pub fn remove_key(&self, id: KeyId, now: i64) -> Result<()> {
        let secrets = self.secrets();
        let owner = secrets.owner_signing.as_ref().ok_or_else(|| self.not_allowed("remove keys"))?;
        let Keys { sound: keys, lost } = self.keys()?;
        if lost.iter().any(|(lost, _)| *lost == id) {
            return self.discard_key(id);
        }
        let Some(key) = keys.iter().find(|k| k.id == id) else {
            return Err(Error::Misuse(format!("there is no key {id}; 'drumlin key list' shows all of them")));
        };
        if key.revoked.is_some() {
            return Err(Error::Misuse(format!("key {id} was removed before")));
        }
        if key.role == Role::Owner && keys.iter().filter(|k| k.role == Role::Owner && k.revoked.is_none()).count() == 1
        {
            return Err(Error::Misuse(format!(
                "key {id} is the only owner key: add another one before you remove it ('drumlin key add --role owner')"
            )));
        }
        let name = names::key(id);
        let object = self.read_twice(&twice(&**self.store(), id))?;
        object.certificate(secrets.repository, &secrets.owner).map_err(Error::damaged(&name))?;
        Ok(twice::put(&**self.store(), &name, &object.revoke(secrets.repository, now, owner), Put::Replace)?)
    }

    /// Remove what is left of a key, once it is seen again that nothing of it can be used.
    fn discard_key(&self, id: KeyId) -> Result<()> {
        let both = self.certified(id);
        let mut left = Vec::new();
        for name in both.names() {
            match both.find(&name)? {
                Found::Gone => {}
                Found::Unsound(_) => left.push(name),
                Found::Sound(..) => {
                    return Err(Error::Misuse(format!(
                        "'{name}' can be read: 'drumlin repair' restores the key from it"
                    )));
                }
                Found::Newer(cause) => return Err(Error::Misuse(format!("'{name}' must not be removed: {cause}"))),
                Found::Unread(e) => return Err(e),
            }
        }
        Ok(left.iter().try_for_each(|name| self.store().delete(name))?)
    }

    /// All keys that the owner certified.
    ///
    /// # Errors
    /// What is wrong with the first that is lost; the storage fails.
    pub fn list_keys(&self) -> Result<Vec<KeyInfo>> {
        let Keys { sound, lost } = self.keys()?;
        lost.into_iter().next().map_or(Ok(sound), |(_, e)| Err(e))
    }

    /// All keys, those that are lost by themselves.
    ///
    /// # Errors
    /// The storage fails.
    pub fn keys(&self) -> Result<Keys> {
        let secrets = self.secrets();
        let mut keys = Keys::default();
        for (id, object) in self.key_objects(self.key_ids()?)? {
            let info = object.and_then(|object| {
                let certificate = object.certificate(secrets.repository, &secrets.owner);
                let certificate = certificate.map_err(Error::damaged(&names::key(id)))?;
                Ok(KeyInfo {
                    id,
                    role: certificate.role,
                    // It says nothing that counts: a key isn't lost with it.
                    label: object.label(secrets).unwrap_or_else(|_| "?".into()),
                    created: certificate.created,
                    passphrase: matches!(object.lock(), Lock::Passphrase { .. }),
                    current: id == secrets.key,
                    revoked: certificate.revoked,
                })
            });
            match info {
                Ok(info) => keys.sound.push(info),
                Err(e) => keys.lost.push((id, e)),
            }
        }
        keys.sound.sort_by_key(|k| (k.created, k.id));
        Ok(keys)
    }

    /// The verifying halves of all keys that the owner certified, revoked ones among them; a key object that is damaged
    /// or that the owner didn't certify has none.
    pub(crate) fn trusted_keys(&self) -> Result<HashMap<KeyId, TrustedKey>> {
        self.trusted_among(self.key_ids()?)
    }

    /// The verifying halves of these keys, which are listed already.
    pub(crate) fn trusted_among(&self, ids: impl IntoIterator<Item = KeyId>) -> Result<HashMap<KeyId, TrustedKey>> {
        let mut keys = HashMap::new();
        // One's own word counts, even if a recovery file opened a repository that has lost its key objects.
        if let Some(signing) = &self.secrets().signing {
            let own = TrustedKey { role: self.role(), verifying: signing.verifying(), revoked: None };
            keys.insert(self.secrets().key, own);
        }
        for (id, object) in self.key_objects(ids)? {
            if let Ok(object) = object
                && let Ok(certificate) = object.certificate(self.secrets().repository, &self.secrets().owner)
                && let Some(verifying) = certificate.verifying
            {
                keys.insert(id, TrustedKey { role: certificate.role, verifying, revoked: certificate.revoked });
            }
        }
        Ok(keys)
    }

    /// The objects of these keys; a damaged one is an error of its own.
    pub(crate) fn key_objects(&self, ids: impl IntoIterator<Item = KeyId>) -> Result<Vec<(KeyId, Result<KeyObject>)>> {
        let read = |id: &KeyId| match self.read_twice(&twice(&**self.store(), *id)) {
            Ok(object) => Ok((*id, Ok(object))),
            Err(e @ Error::Damaged { .. }) => Ok((*id, Err(e))),
            Err(e) => Err(e),
        };
        self.ask_many(&ids.into_iter().collect::<Vec<_>>(), read)
    }

    /// A key object and its copy, as far as the owner's word is in them.
    pub(crate) fn certified(&self, id: KeyId) -> Twice<'_, KeyObject> {
        let decode = move |bytes: &[u8]| {
            let object = KeyObject::decode(id, bytes)?;
            object.certificate(self.secrets().repository, &self.secrets().owner)?;
            Ok(object)
        };
        Twice { decode: Box::new(decode), ..twice(&**self.store(), id) }
    }

    /// All keys of which there is an object or its copy, in order.
    ///
    /// # Errors
    /// The storage fails.
    pub fn key_ids(&self) -> Result<Vec<KeyId>> {
        Ok(ids(&**self.store())?.into_iter().collect())
    }

    /// See whether a key's object and its copy are sound and the same. Gives its certificate, if the owner has given it
    /// one.
    ///
    /// # Errors
    /// The storage fails.
    pub fn examine_key(&self, id: KeyId) -> Result<Examined<Certificate>> {
        let Examined { object, mut troubles, lacks_copy } = self.certified(id).examine()?;
        let label = object.as_ref().map(|object| object.label(self.secrets()));
        if let Some(Err(e)) = &label {
            troubles.push((names::key(id), e.to_string()));
        }
        let is_labelled = matches!(label, Some(Ok(_)));
        let certificate =
            |object: KeyObject| object.certificate(self.secrets().repository, &self.secrets().owner).ok().cloned();
        Ok(Examined { object: object.filter(|_| is_labelled).and_then(certificate), troubles, lacks_copy })
    }

    /// Put key objects and their copies right, each by the other one.
    ///
    /// # Errors
    /// The storage fails, or this user may not.
    pub fn mend_keys(&self) -> Result<Mended> {
        self.mend_each(ids(&**self.store())?.into_iter().map(|id| self.certified(id)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CreateOptions, Unlock};
    use drumlin_store::MemoryStore;
    use std::sync::Arc;

    const COST: PassphraseCost = PassphraseCost { memory_kib: 64, passes: 1, lanes: 1 };

    fn passphrase(text: &str) -> NewLock {
        NewLock::Passphrase(text.as_bytes().to_vec(), COST)
    }

    fn repository() -> (Arc<dyn Store>, Repository) {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let (repository, _) =
            Repository::create(store.clone(), CreateOptions::default(), passphrase("owner"), "first", 1).unwrap();
        (store, repository)
    }

    fn open(store: &Arc<dyn Store>, text: &str) -> Result<Repository> {
        Repository::open(store.clone(), &Unlock::Passphrase(text.as_bytes().to_vec()))
    }

    /// Whoever opens the repository by it would get either.
    #[test]
    fn no_two_keys_have_one_passphrase() {
        let (store, owner) = repository();
        let twin = owner.add_key(Role::Reader, &passphrase("owner"), "twin", 2).unwrap_err().to_string();
        assert!(twin.contains("has this passphrase already"), "{twin}");
        owner.add_key(Role::Reader, &passphrase("reader"), "reader", 2).unwrap();
        let reader = open(&store, "reader").unwrap();
        assert!(reader.relock(&passphrase("owner")).is_err());
        reader.relock(&passphrase("reader")).unwrap();
        assert_eq!(
            (open(&store, "reader").unwrap().role(), open(&store, "owner").unwrap().role()),
            (Role::Reader, Role::Owner)
        );
    }

    #[test]
    fn a_removed_key_opens_nothing_and_is_still_known() {
        let (store, owner) = repository();
        let secret = Secret::new([9; 32]);
        let file_key = owner.add_key(Role::Writer, &NewLock::File(secret.clone()), "file", 2).unwrap();
        let typed_key = owner.add_key(Role::Keeper, &passphrase("keeper"), "typed", 3).unwrap();
        let file = Unlock::File(owner.key_file(file_key, &secret).to_string());
        let writer = Repository::open(store.clone(), &file).unwrap();
        assert!(writer.remove_key(typed_key, 10).is_err(), "only an owner can");
        assert_eq!(open(&store, "keeper").unwrap().role(), Role::Keeper);

        owner.remove_key(file_key, 10).unwrap();
        owner.remove_key(typed_key, 11).unwrap();
        assert!(
            matches!(Repository::open(store.clone(), &file), Err(Error::RevokedKey { key, .. }) if key == file_key)
        );
        assert!(matches!(open(&store, "keeper"), Err(Error::WrongKey { .. })));
        assert!(open(&store, "owner").is_ok());
        assert!(matches!(writer.relock(&passphrase("again")), Err(Error::RevokedKey { .. })));

        let keys = owner.list_keys().unwrap();
        let told: Vec<_> = keys.iter().map(|k| (k.label.as_str(), k.revoked, k.passphrase)).collect();
        assert_eq!(told, [("first", None, true), ("file", Some(10), false), ("typed", Some(11), false)]);
        let trusted = owner.trusted_keys().unwrap();
        assert_eq!(trusted.len(), 3, "what they signed can still be told");
        assert_eq!((trusted[&file_key].role, trusted[&file_key].revoked), (Role::Writer, Some(10)));
        assert_eq!(trusted[&file_key].verifying, writer.secrets().signing.as_ref().unwrap().verifying());
        assert!(owner.remove_key(file_key, 12).is_err(), "once is enough");
    }

    #[test]
    fn a_revoked_owner_does_not_count_as_one() {
        let (_, owner) = repository();
        let second = owner.add_key(Role::Owner, &passphrase("second"), "second", 2).unwrap();
        owner.remove_key(second, 3).unwrap();
        assert!(owner.remove_key(owner.secrets().key, 4).is_err());
    }

    #[test]
    fn a_key_with_a_senseless_lock_keeps_nobody_out() {
        let (store, owner) = repository();
        let parts = |id: u8, lock| {
            let secrets = Secrets { key: KeyId([id; 16]), ..owner.secrets().clone() };
            let unlock = Secret::new([1; 32]);
            let (label, fresh) = ("", [id; 16]);
            let parts = KeyParts { secrets: &secrets, lock, unlock: &unlock, label, created: 1, fresh, generation: 0 };
            let bytes = KeyObject::seal(&parts, owner.config().suite, owner.secrets().owner_signing.as_ref().unwrap());
            store.put(&names::key(secrets.key), &bytes, Put::Create).unwrap();
        };
        // Their ids come first, so they are tried first.
        parts(0, Lock::passphrase([1; 16], PassphraseCost { memory_kib: u32::MAX, ..COST }));
        parts(1, Lock::Passphrase { salt: vec![1], memory_kib: 64, passes: 1, lanes: 1 });
        assert!(open(&store, "owner").is_ok());
        let other = open(&store, "other");
        assert!(matches!(other, Err(Error::WrongKey { untried: Some(_), .. })), "told where nothing else opens");
    }

    #[test]
    fn a_keeper_checks_tree_chunks() {
        let (store, owner) = repository();
        owner.add_key(Role::Keeper, &passphrase("keeper"), "", 2).unwrap();
        let keeper = open(&store, "keeper").unwrap();
        assert!(keeper.data_ids().is_err());
        assert_eq!(keeper.tree_ids().unwrap().id(b"node"), owner.tree_ids().unwrap().id(b"node"));
    }
}
