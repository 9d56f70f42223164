//! Keys: what each role may know, and the objects and files that give it out.
//!
//! A *key object* in the repository holds a role's secrets, sealed under a passphrase or under the 32 bytes of a key
//! file. Its certificate, signed by the owner, says which signatures count. A *recovery file* holds the secrets
//! themselves, for the safe.
//!
//! ```text
//! key object: header (32) | CBOR body | checksum (16)
//! ```

mod lock;
mod object;
mod secrets;

pub use lock::Lock;
pub use object::{Certificate, KeyObject, KeyParts};
pub use secrets::Secrets;
pub(crate) use secrets::Wiped;

use minicbor::{Decode, Encode};

const OBJECT: &str = "key";

/// What a key lets its holder do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum Role {
    /// Everything, and say who else may do what.
    #[n(0)]
    Owner,
    /// Restore.
    #[n(1)]
    Reader,
    /// Add; neither read nor delete.
    #[n(2)]
    Writer,
    /// Forget and prune, from metadata alone.
    #[n(3)]
    Keeper,
}

impl Role {
    /// The role's name in commands and messages.
    pub fn name(self) -> &'static str {
        match self {
            Role::Owner => "owner",
            Role::Reader => "reader",
            Role::Writer => "writer",
            Role::Keeper => "keeper",
        }
    }

    /// The role of a name.
    pub fn parse(name: &str) -> Option<Self> {
        [Role::Owner, Role::Reader, Role::Writer, Role::Keeper].into_iter().find(|r| r.name() == name)
    }
}
