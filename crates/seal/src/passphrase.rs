//! Keys from passphrases: Argon2id (RFC 9106).

use crate::{Error, Result, Secret};
use argon2::{Algorithm, Argon2, Params, Version};
use zeroize::Zeroizing;

/// What one guess costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassphraseCost {
    /// Memory in KiB.
    pub memory_kib: u32,
    /// Passes over that memory.
    pub passes: u32,
    /// Lanes.
    pub lanes: u32,
}

impl PassphraseCost {
    /// What new keys get: 48 MiB, 4 passes, 4 lanes. As much memory filled as by RFC 9106's second recommendation (64
    /// MiB, 3 passes), and more than OWASP asks for (46 MiB, 1 pass), within the 64 MB that commands which only look
    /// may take.
    pub const DEFAULT: PassphraseCost = PassphraseCost { memory_kib: 48 * 1024, passes: 4, lanes: 4 };

    /// The most that a key object may ask for: 1 GiB, so that a hostile storage can't exhaust the machine.
    const MEMORY_KIB_MAX: u32 = 1024 * 1024;
    const PASSES_MAX: u32 = 64;
    const LANES_MAX: u32 = 64;
}

/// The key of a passphrase under a 16-byte salt.
///
/// # Errors
/// [`Error::Cost`]: more than this program grants, or no valid combination. [`Error::Memory`]: the machine hasn't as
/// much. [`Error::Malformed`]: a passphrase that Argon2 doesn't take (of more than 4 GiB).
pub fn passphrase_key(passphrase: &[u8], salt: &[u8; 16], cost: PassphraseCost) -> Result<Secret> {
    if cost.memory_kib > PassphraseCost::MEMORY_KIB_MAX {
        return Err(Error::Cost("more than 1 GiB of memory"));
    }
    if cost.passes > PassphraseCost::PASSES_MAX || cost.lanes > PassphraseCost::LANES_MAX {
        return Err(Error::Cost("more than 64 passes or lanes"));
    }
    let params = Params::new(cost.memory_kib, cost.passes, cost.lanes, Some(32))
        .map_err(|_| Error::Cost("not a valid combination for Argon2id"))?;
    let mut key = Zeroizing::new([0; 32]);
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params).hash_password_into(passphrase, salt, &mut *key).map_err(
        |error| match error {
            argon2::Error::OutOfMemory => Error::Memory(cost.memory_kib.div_ceil(1024)),
            _ => Error::Malformed("passphrase"),
        },
    )?;
    Ok(Secret::new(*key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passphrase_salt_and_cost_all_count() {
        let cost = PassphraseCost { memory_kib: 64, passes: 1, lanes: 1 };
        let key = passphrase_key(b"correct", &[1; 16], cost).unwrap();
        assert_eq!(key, passphrase_key(b"correct", &[1; 16], cost).unwrap());
        assert_ne!(key, passphrase_key(b"Correct", &[1; 16], cost).unwrap());
        assert_ne!(key, passphrase_key(b"correct", &[2; 16], cost).unwrap());
        assert_ne!(key, passphrase_key(b"correct", &[1; 16], PassphraseCost { passes: 2, ..cost }).unwrap());
    }

    #[test]
    fn hostile_costs_are_refused_not_tried() {
        for cost in [
            PassphraseCost { memory_kib: u32::MAX, passes: 1, lanes: 1 },
            PassphraseCost { memory_kib: 64, passes: u32::MAX, lanes: 1 },
            PassphraseCost { memory_kib: 64, passes: 1, lanes: u32::MAX },
            PassphraseCost { memory_kib: 0, passes: 0, lanes: 0 },
        ] {
            assert!(matches!(passphrase_key(b"x", &[0; 16], cost), Err(Error::Cost(_))));
        }
    }
}
