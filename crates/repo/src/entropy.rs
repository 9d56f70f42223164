//! Randomness from the system: the only place that draws it.

use crate::{Error, Result};
use drumlin_seal::Secret;

/// 32 fresh secret bytes.
pub fn random_secret() -> Result<Secret> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|e| Error::Entropy(e.to_string()))?;
    Ok(Secret::new(bytes))
}

/// 16 fresh bytes for a name.
pub fn random_id() -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|e| Error::Entropy(e.to_string()))?;
    Ok(bytes)
}
