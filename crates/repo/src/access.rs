//! Unlocking: from what the user has to the secrets of a role.

use crate::{Error, Repository, Result, names};
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
    pub(crate) fn key(&self) -> Option<KeyId> {
        match self {
            Unlock::File(text) => KeyFile::decode(text).ok().map(|file| file.key),
            Unlock::Passphrase(_) => None,
        }
    }
}

impl Repository {
    /// The secrets that `unlock` gives access to, and the key object's id.
    pub(crate) fn unlock(store: &dyn Store, config: &Config, unlock: &Unlock) -> Result<Secrets> {
        let secrets = match unlock {
            Unlock::Passphrase(passphrase) => by_passphrase(store, passphrase)?,
            Unlock::File(text) if key_file::is_recovery(text) => {
                key_file::decode_recovery(text).map_err(Error::damaged("the recovery file"))?
            }
            Unlock::File(text) => by_file(store, config, text)?,
        };
        if secrets.repository != config.id || secrets.owner != config.owner {
            return Err(Error::OtherRepository {
                expected: secrets.repository.to_string(),
                found: config.id.to_string(),
                location: store.location(),
            });
        }
        Ok(secrets)
    }
}

fn by_file(store: &dyn Store, config: &Config, text: &str) -> Result<Secrets> {
    let file = KeyFile::decode(text).map_err(Error::damaged("the key file"))?;
    if file.repository != config.id {
        return Err(Error::OtherRepository {
            expected: file.repository.to_string(),
            found: config.id.to_string(),
            location: store.location(),
        });
    }
    let name = names::key(file.key);
    let bytes = match store.get(&name) {
        Err(e) if e.kind == drumlin_store::Kind::Missing => {
            return Err(Error::WrongKey { what: "key file", location: store.location() });
        }
        other => other?,
    };
    let object = KeyObject::decode(file.key, &bytes).map_err(Error::damaged(&name))?;
    if *object.lock() == Lock::Revoked {
        // Only the owner's word makes a key revoked; without it the object is a forgery.
        object.certificate(config.id, &config.owner).map_err(Error::damaged(&name))?;
        return Err(Error::RevokedKey { key: file.key, location: store.location() });
    }
    open(&object, &file.secret)
        .map_err(Error::damaged(&name))?
        .ok_or_else(|| Error::WrongKey { what: "key file", location: store.location() })
}

/// `None` if it is not the right key.
fn open(object: &KeyObject, unlock: &Secret) -> std::result::Result<Option<Secrets>, FormatError> {
    match object.unlock(unlock) {
        Ok(secrets) => Ok(Some(secrets)),
        Err(FormatError::Seal { source: drumlin_seal::Error::NotAuthentic, .. }) => Ok(None),
        Err(other) => Err(other),
    }
}

fn by_passphrase(store: &dyn Store, passphrase: &[u8]) -> Result<Secrets> {
    let mut ids = Vec::new();
    store.list(names::KEYS, &mut |listed| ids.extend(KeyId::parse(names::last(&listed.name))))?;
    ids.sort();
    // A key object that is damaged, or whose lock makes no sense, is told only if no other one opens.
    let mut damage = None;
    for id in ids {
        let name = names::key(id);
        let bytes = store.get(&name)?;
        match try_passphrase(id, &bytes, passphrase) {
            Ok(Some(secrets)) => return Ok(secrets),
            Ok(None) => {}
            Err(source) => damage = Some(Error::Damaged { object: name, source }),
        }
    }
    Err(damage.unwrap_or(Error::WrongKey { what: "passphrase", location: store.location() }))
}

/// `None` if the key is not of this passphrase, or of none: a key file's, or revoked.
fn try_passphrase(id: KeyId, bytes: &[u8], passphrase: &[u8]) -> std::result::Result<Option<Secrets>, FormatError> {
    let object = KeyObject::decode(id, bytes)?;
    match object.lock() {
        Lock::Passphrase { .. } => open(&object, &object.lock().passphrase_key(passphrase)?),
        Lock::File | Lock::Revoked => Ok(None),
    }
}
