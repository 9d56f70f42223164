//! Keys, keyed hashes, sealing and signing: the only crate that names a cipher.
//!
//! Everything here is deterministic: randomness comes in as an argument ([`Seed`]), so that golden vectors can be made
//! and the callers decide where entropy comes from. Secrets are wiped when dropped and never printed.
//!
//! What each key is for is laid down in `docs/format.md`, what an attacker gains by which key in
//! `docs/threat-model.md`.

mod aead;
mod hash;
mod passphrase;
mod secret;
mod sign;
mod wrap;

pub use aead::{SealKey, Suite, TAG_BYTES};
pub use blake3::Hasher;
pub use hash::{IdKey, checksum, derive, digest};
pub use passphrase::{PassphraseCost, passphrase_key};
pub use secret::{Secret, Seed};
pub use sign::{SIGNATURE_BYTES, SigningKey, VerifyingKey};
pub use wrap::{PUBLIC_KEY_BYTES, PrivateKey, PublicKey, WRAPPED_BYTES};
pub use zeroize::Zeroizing;

/// Why something sealed could not be opened, or a key not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes were not sealed under this key, or have been altered since.
    #[error("the bytes are damaged, or were sealed under another key")]
    NotAuthentic,
    /// A key, signature or suite whose form is wrong.
    #[error("malformed {0}")]
    Malformed(&'static str),
    /// A suite that this version doesn't know.
    #[error("unknown cipher suite {0}; a newer version of drumlin may know it")]
    UnknownSuite(u8),
    /// The system has not as much memory for this program as a passphrase takes, in MiB.
    #[error(
        "a passphrase takes {0} MiB of memory, which this program can't have here: allow it more ('ulimit -v', a container's \
         limit), or use a key file, which takes none"
    )]
    Memory(u32),
    /// The cost of a passphrase is beyond what this program accepts.
    #[error("the passphrase cost is out of bounds: {0}")]
    Cost(&'static str),
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
