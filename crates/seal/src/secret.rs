//! Bytes that must not outlive their use nor reach a log.

use zeroize::{Zeroize, ZeroizeOnDrop};

/// 32 secret bytes: wiped on drop, never printed.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct Secret([u8; 32]);

/// 32 fresh random bytes that an operation consumes as its only source of randomness. Never use one twice.
pub type Seed = Secret;

impl Secret {
    /// Take over 32 bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Secret(bytes)
    }

    /// Copy from a slice, `None` unless it is 32 bytes long.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Secret)
    }

    /// The bytes, for sealing them into something else.
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}
