//! What unlocks a key object.

use super::OBJECT;
use crate::error::malformed;
use crate::{Error, Result};
use drumlin_seal::{PassphraseCost, Secret, passphrase_key};
use minicbor::{Decode, Encode};

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
