//! A session: a writer's registration, there before its first pack, signed by it.
//!
//! ```text
//! header (32) | fresh (16) | sealed, for every role: CBOR [key id, signature, body bytes], padded
//! ```

use crate::cbor::{decode, encode};
use crate::generation::IndexKeys;
use crate::sealed::{open_shared, seal_shared};
use crate::{Header, ObjectType, Result, Sealing, SessionId, Signer};
use drumlin_seal::Suite;
use minicbor::{Decode, Encode};

/// What sessions are for. Collectors go by these words in who gives way to whom.
pub mod purpose {
    /// Saves files.
    pub const BACKUP: &str = "backup";
    /// Copies snapshots from another repository.
    pub const COPY: &str = "copy";
    /// Has a forgotten snapshot back.
    pub const UNDELETE: &str = "undelete";
    /// Removes what nobody needs.
    pub const PRUNE: &str = "prune";
    /// Heals damage, and gives up what can't be healed.
    pub const REPAIR: &str = "repair";
    /// Makes or removes parity across packs.
    pub const PARITY: &str = "parity";
}

/// What a writer says of itself. The key that it writes with is the signer's.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Session {
    /// The machine.
    #[n(0)]
    pub host: String,
    /// When it began by its own clock, seconds since 1970: for people to read; nothing rests on it.
    #[n(1)]
    pub started: i64,
    /// Zero. Readers pass over it.
    #[n(2)]
    pub plan_seen: u64,
    /// What it is for: one of [`purpose`].
    #[n(3)]
    pub purpose: String,
    /// The process that writes, if its system tells processes apart.
    #[n(4)]
    pub process: Option<Process>,
}

/// A process, told apart from all that there were and will be, so that whoever shares its system can tell that it is
/// gone.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Process {
    /// The machine: Linux's machine id; empty if it has none.
    #[n(0)]
    pub machine: String,
    /// The run of the system, from its start to its end: Linux's boot id.
    #[n(1)]
    pub boot: String,
    /// The process-id namespace, by its inode number.
    #[n(2)]
    pub namespace: u64,
    /// The process id in there.
    #[n(3)]
    pub id: u32,
    /// When it began, in the system's ticks since the boot: ids are used again.
    #[n(4)]
    pub began: u64,
    /// What its system calls itself: Linux's node name. Older writers leave it out.
    #[n(5)]
    pub node: Option<String>,
}

impl Session {
    /// A session that begins now, in seconds since 1970, of a process that isn't told.
    pub fn new(host: impl Into<String>, purpose: impl Into<String>, started: i64) -> Self {
        Session { host: host.into(), started, plan_seen: 0, purpose: purpose.into(), process: None }
    }

    /// Encode, sign and seal.
    pub fn seal(&self, id: SessionId, suite: Suite, with: Sealing) -> Vec<u8> {
        seal_shared(&with.header(ObjectType::Session, suite, id.0), encode(self), with)
    }

    /// Open and decode; whose word it is, is checked by [`Signer::verify`].
    pub fn open(id: SessionId, keys: &impl IndexKeys, object: &[u8]) -> Result<(Self, Signer)> {
        let header = Header::expect(object, ObjectType::Session, &id.0)?;
        let (body, signer) = open_shared(&header, keys, object)?;
        Ok((decode(&body, "session")?, signer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeyId;
    use drumlin_seal::{Secret, SigningKey};

    #[test]
    fn round_trip_and_signature() {
        let (index_key, signing) = (Secret::new([1; 32]), SigningKey::new(Secret::new([2; 32])).unwrap());
        let sealing =
            |fresh| Sealing { generation: 0, index_key: &index_key, key: KeyId([2; 16]), signing: &signing, fresh };
        let process = Process {
            machine: "m".into(),
            boot: "a boot".into(),
            namespace: 4026531836,
            id: 17,
            began: 99,
            node: Some("n".into()),
        };
        let session = Session { plan_seen: 7, process: Some(process), ..Session::new("h", "backup", -5) };
        let bytes = session.seal(SessionId([3; 16]), Suite::Aes256Gcm, sealing([9; 16]));
        let (back, signer) = Session::open(SessionId([3; 16]), &index_key, &bytes).unwrap();
        assert_eq!((back, signer.key), (session.clone(), KeyId([2; 16])));
        assert!(signer.verify(&signing.verifying()).is_ok());
        assert!(signer.verify(&SigningKey::new(Secret::new([3; 32])).unwrap().verifying()).is_err());
        assert!(Session::open(SessionId([4; 16]), &index_key, &bytes).is_err());
        for at in 0..bytes.len() {
            let mut bent = bytes.clone();
            bent[at] ^= 1;
            assert!(Session::open(SessionId([3; 16]), &index_key, &bent).is_err());
            assert!(Session::open(SessionId([3; 16]), &index_key, &bytes[..at]).is_err());
        }
        let again = session.seal(SessionId([3; 16]), Suite::Aes256Gcm, sealing([8; 16]));
        assert_ne!(again[48..80], bytes[48..80], "the fresh bytes are in the key");
        let longer = Session { host: "a longer name".into(), ..session.clone() };
        assert_eq!(longer.seal(SessionId([3; 16]), Suite::Aes256Gcm, sealing([7; 16])).len(), bytes.len());
    }
}
