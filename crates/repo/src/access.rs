//! Unlocking: from what the user has to the secrets of a role.

use crate::keys::NewLock;
use crate::{Error, Repository, Result, keys, names};
use drumlin_format::config::Config;
use drumlin_format::key::{KeyObject, Lock, Secrets};
use drumlin_format::key_file::{self, KeyFile};
use drumlin_format::{Error as FormatError, KeyId};
use drumlin_seal::Secret;
use drumlin_store::Store;

/// What unlocks a repository.
pub enum Unlock {
    /// A passphrase: tried on each key object that has one.
    Passphrase(Vec<u8>),
    /// The text of a key file or recovery file.
    File(String),
}

impl Unlock {
    /// The key whose object will be asked for, if that is known before anything is read.
    pub fn key(&self) -> Option<KeyId> {
        match self {
            Unlock::File(text) => KeyFile::decode(text).ok().map(|file| file.key),
            Unlock::Passphrase(_) => None,
        }
    }
}

/// Where a key's secrets were had from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// The key's object.
    Object,
    /// Its copy.
    Copy,
    /// A recovery file, and there is no sound object of the key.
    FileAlone,
}

impl By {
    fn found(is_copy: bool) -> Self {
        if is_copy { By::Copy } else { By::Object }
    }
}

impl Repository {
    /// The secrets that `unlock` gives access to, and by what.
    pub(crate) fn unlock(store: &dyn Store, config: &Config, unlock: &Unlock) -> Result<(Secrets, By)> {
        let (secrets, by) = match unlock {
            Unlock::Passphrase(passphrase) => by_passphrase(store, config, passphrase)?,
            Unlock::File(text) if key_file::is_recovery(text) => by_recovery_file(store, config, text)?,
            Unlock::File(text) => by_file(store, config, text)?,
        };
        is_of(&secrets, config, store)?;
        Ok((secrets, by))
    }

    /// Fails if another key than this one has the passphrase already: of two whoever opens the repository by it would
    /// get either, and perhaps not the one that may do what he wants.
    pub(crate) fn refuse_twin(&self, lock: &NewLock, own: Option<KeyId>) -> Result<()> {
        let NewLock::Passphrase(passphrase, _) = lock else { return Ok(()) };
        let store = &**self.store();
        for id in keys::ids(store)?.into_iter().filter(|id| Some(*id) != own) {
            // One that is damaged opens nothing.
            let Ok((object, _)) = keys::twice(store, id).read() else { continue };
            let tried = try_passphrase(&object, self.config(), passphrase);
            match tried.map_err(Error::damaged(&names::key(id))) {
                Ok(Some(_)) => {
                    return Err(Error::Misuse(format!("the key {id} has this passphrase already: choose another one")));
                }
                Err(short @ Error::Machine(_)) => return Err(short),
                Ok(None) | Err(_) => {}
            }
        }
        Ok(())
    }
}

fn is_of(secrets: &Secrets, config: &Config, store: &dyn Store) -> Result<()> {
    if secrets.repository == config.id && secrets.owner == config.owner {
        return Ok(());
    }
    Err(Error::OtherRepository {
        expected: secrets.repository.to_string(),
        found: config.id.to_string(),
        location: store.location(),
    })
}

/// What it holds needs no object of the repository, but a key that its owner has revoked opens nothing in this way
/// either.
fn by_recovery_file(store: &dyn Store, config: &Config, text: &str) -> Result<(Secrets, By)> {
    let secrets = key_file::decode_recovery(text).map_err(Error::damaged("the recovery file"))?;
    is_of(&secrets, config, store)?;
    match keys::twice(store, secrets.key).read() {
        Ok((object, is_copy)) => match is_revoked(&object, secrets.key, config, store) {
            Err(e @ Error::RevokedKey { .. }) => Err(e),
            // Whatever else is wrong with the object, the secrets are not in it.
            _ => Ok((secrets, By::found(is_copy))),
        },
        Err(e) if e.is_of_one_object() => Ok((secrets, By::FileAlone)),
        Err(e) => Err(e),
    }
}

/// Fails if a key was revoked, or is said to be by somebody who is not the owner.
fn is_revoked(object: &KeyObject, key: KeyId, config: &Config, store: &dyn Store) -> Result<()> {
    if *object.lock() == Lock::Revoked {
        // Only the owner's word makes a key revoked; without it the object is a forgery.
        object.certificate(config.id, &config.owner).map_err(Error::damaged(&names::key(key)))?;
        return Err(Error::RevokedKey { key, location: store.location() });
    }
    Ok(())
}

fn by_file(store: &dyn Store, config: &Config, text: &str) -> Result<(Secrets, By)> {
    let file = KeyFile::decode(text).map_err(Error::damaged("the key file"))?;
    if file.repository != config.id {
        return Err(Error::OtherRepository {
            expected: file.repository.to_string(),
            found: config.id.to_string(),
            location: store.location(),
        });
    }
    let name = names::key(file.key);
    let (object, is_copy) = keys::twice(store, file.key).read().map_err(|e| match e.is_missing() {
        true if keys::ids(store).is_ok_and(|ids| ids.is_empty()) => Error::NoKeys { location: store.location() },
        true => Error::WrongKey { what: "key file", location: store.location(), untried: None },
        false => e,
    })?;
    is_revoked(&object, file.key, config, store)?;
    match open(&object, &file.secret).map_err(Error::damaged(&name))? {
        Some(secrets) => Ok((secrets, By::found(is_copy))),
        None => Err(Error::WrongKey { what: "key file", location: store.location(), untried: None }),
    }
}

/// `None` if it is not the right key.
fn open(object: &KeyObject, unlock: &Secret) -> std::result::Result<Option<Secrets>, FormatError> {
    match object.unlock(unlock) {
        Ok(secrets) => Ok(Some(secrets)),
        Err(FormatError::Seal { source: drumlin_seal::Error::NotAuthentic, .. }) => Ok(None),
        Err(other) => Err(other),
    }
}

fn by_passphrase(store: &dyn Store, config: &Config, passphrase: &[u8]) -> Result<(Secrets, By)> {
    // A key object that is damaged or isn't given out, or whose lock makes no sense, is told only if no other one
    // opens; and where others could be tried, it is told that the passphrase isn't theirs: anybody who may add could
    // otherwise have each slip of the finger pass for damage.
    let (mut damage, mut tried, mut short) = (None, false, None);
    let ids = keys::ids(store)?;
    for id in ids.iter().copied() {
        let (object, is_copy) = match keys::twice(store, id).read() {
            Err(e) if e.is_of_one_object() => {
                damage = Some(e);
                continue;
            }
            other => other?,
        };
        match try_passphrase(&object, config, passphrase) {
            Ok(Some(secrets)) => return Ok((secrets, By::found(is_copy))),
            Ok(None) => tried |= matches!(object.lock(), Lock::Passphrase { .. }),
            Err(source) => match Error::damaged(&names::key(id))(source) {
                // It says nothing of the key.
                machine @ Error::Machine(_) => short = Some(machine),
                error => damage = Some(error),
            },
        }
    }
    if let Some(short) = short {
        return Err(short);
    }
    let location = store.location();
    Err(match damage {
        untried if tried => Error::WrongKey { what: "passphrase", location, untried: untried.map(Box::new) },
        Some(damage) => damage,
        None if ids.is_empty() => Error::NoKeys { location },
        None => Error::NoPassphrase { location },
    })
}

/// `None` if the key is not of this passphrase, or of none: a key file's, or revoked. Nothing is tried on what the
/// owner has not certified: a try takes as long as whoever wrote the object likes, within limits, and anybody who may
/// add can write many.
fn try_passphrase(
    object: &KeyObject,
    config: &Config,
    passphrase: &[u8],
) -> std::result::Result<Option<Secrets>, FormatError> {
    match object.lock() {
        Lock::Passphrase { .. } => {
            object.certificate(config.id, &config.owner)?;
            open(object, &object.lock().passphrase_key(passphrase)?)
        }
        Lock::File | Lock::Revoked => Ok(None),
    }
}
