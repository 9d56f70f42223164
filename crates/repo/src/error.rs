//! What can go wrong with a repository, told apart by what a user can do about it.

use drumlin_format::{ChunkId, KeyId};
use drumlin_store as store;
use std::io;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A failed operation on a repository.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no repository at that place.
    #[error("there is no repository in {location}")]
    NoRepository {
        /// The place.
        location: String,
    },
    /// There was a repository: its config is gone, and the copy of that as well.
    #[error("the repository in {location} has lost its config: neither 'config' nor 'config.copy' is there")]
    NoConfig {
        /// The place.
        location: String,
    },
    /// There is a repository (or something else) already.
    #[error("there is a repository in {location} already")]
    Exists {
        /// The place.
        location: String,
    },
    /// None of the repository's keys is opened by this passphrase or file.
    #[error("the {what} opens none of the keys of the repository in {location}{}", also(untried))]
    WrongKey {
        /// Passphrase or key file.
        what: &'static str,
        /// The repository's place.
        location: String,
        /// Why one of the keys, which may be the right one, could not be tried.
        untried: Option<Box<Error>>,
    },
    /// There is nothing to unlock it with.
    #[error("there is no key in the repository in {location}: its folder 'keys' is empty or gone")]
    NoKeys {
        /// The repository's place.
        location: String,
    },
    /// There is nothing that a passphrase could open.
    #[error("none of the keys of the repository in {location} has a passphrase")]
    NoPassphrase {
        /// The repository's place.
        location: String,
    },
    /// The key was revoked.
    #[error("key {key} of the repository in {location} was revoked by its owner; ask for a new one")]
    RevokedKey {
        /// The key.
        key: KeyId,
        /// The repository's place.
        location: String,
    },
    /// The key belongs to another repository.
    #[error("the key is for repository {expected}, but {location} holds repository {found}")]
    OtherRepository {
        /// What the key says.
        expected: String,
        /// What is there.
        found: String,
        /// The repository's place.
        location: String,
    },
    /// The role of the key doesn't allow it.
    #[error("a {role} key can't {action}")]
    NotAllowed {
        /// The role's name.
        role: &'static str,
        /// What was tried.
        action: &'static str,
    },
    /// An object is not what it should be.
    #[error("'{object}' in the repository is damaged: {source}")]
    Damaged {
        /// The object's name in the store.
        object: String,
        /// What is wrong.
        #[source]
        source: drumlin_format::Error,
    },
    /// An object is sealed with secrets that the key in use doesn't have.
    #[error(
        "'{object}' in the repository is of generation {generation:08x} of its secrets, which this key doesn't have"
    )]
    UnknownGeneration {
        /// The object's name in the store.
        object: String,
        /// The generation's tag.
        generation: u32,
    },
    /// Nothing can be sealed, or not with the newest secrets.
    #[error("nothing can be written to the repository in {location}: {why}")]
    Generation {
        /// The repository's place.
        location: String,
        /// Why.
        why: String,
    },
    /// The repository was given new secrets since it was opened.
    #[error("the repository in {location} was given new secrets meanwhile; run it again")]
    Rekeyed {
        /// The repository's place.
        location: String,
    },
    /// Keys that an older program made can't be given new secrets.
    #[error("keys that an older program made can't be given new secrets: {}", .0.join(", "))]
    OldKeys(Vec<String>),
    /// A block of a pack isn't what was sealed, or doesn't decode to what the pack's table says.
    #[error("block {block} of '{name}' in the repository is damaged: {detail}")]
    DamagedBlock {
        /// The pack's name in the storage.
        name: String,
        /// The block's position in its table.
        block: u32,
        /// What is wrong.
        detail: &'static str,
    },
    /// No pack holds this chunk.
    #[error("chunk {0} is in no pack of the repository")]
    MissingChunk(ChunkId),
    /// The storage failed.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The local cache can't be used.
    #[error("the local cache can't be used: cannot {action} '{path}': {source}")]
    Cache {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The system gave no randomness.
    #[error("the system gave no random bytes: {0}")]
    Entropy(String),
    /// The session was evicted by a collection while it slept; nothing of it counts.
    #[error("this backup's session was evicted by a prune while it stood still; run the backup again")]
    Evicted,
    /// The session is gone, and nobody has evicted it.
    #[error(
        "this run's session ({session}) is gone from {location}: the storage was set back to an older state, or somebody has \
         removed files there. What this run refers to may be gone as well, so nothing of it counts; run it again"
    )]
    SessionLost {
        /// Its id.
        session: String,
        /// Where.
        location: String,
    },
    /// What a session has written isn't there any more.
    #[error(
        "'{name}', which this run has written to {location}, is {now}: the storage was set back to an older state, or somebody \
         has removed files there. Nothing of this run counts; run it again"
    )]
    Undone {
        /// The object.
        name: String,
        /// What became of it.
        now: String,
        /// Where.
        location: String,
    },
    /// What is listed isn't there, however often it is looked for.
    #[error(
        "{location} keeps listing '{name}', but says that there is no such object, so its contents are unknown. If you know \
         that it is gone, the storage must be made to stop listing it"
    )]
    Ghost {
        /// The object.
        name: String,
        /// Where.
        location: String,
    },
    /// An index object that was there isn't any more: what it named is named by others.
    #[error(
        "'{name}' is gone since this run has read it: another prune or repair has replaced it meanwhile; run this again"
    )]
    Replaced {
        /// The object.
        name: String,
    },
    /// What this client has seen is not there any more, and no entry of the history says who removed it.
    #[error("the storage has lost or withholds what this client has seen in {place}: {0}", place = .0.place)]
    Unexplained(Box<crate::history::Missing>),
    /// A pack could not be written before, of which somebody else was told: what was to be in it may be referred to,
    /// and is nowhere.
    #[error("a pack could not be written, so nothing that refers to it is kept: {0}")]
    Unwritten(String),
    /// A snapshot's name fits none, or several.
    #[error("{0}")]
    NoSnapshot(String),
    /// This machine doesn't do its part: a thread can't be had, memory fails, a library does.
    #[error("{0}")]
    Machine(String),
    /// What is looked at changes again and again, or somebody else was faster: another try may do.
    #[error("{0}")]
    Unsteady(String),
    /// Something that a caller asked for makes no sense.
    #[error("{0}")]
    Misuse(String),
}

impl Error {
    /// A closure that turns a format error about `object` into [`Error::Damaged`].
    pub(crate) fn damaged(object: &str) -> impl FnOnce(drumlin_format::Error) -> Error + '_ {
        let object = object.to_owned();
        move |source| match source {
            drumlin_format::Error::Generation { generation, .. } => Error::UnknownGeneration { object, generation },
            drumlin_format::Error::Seal { source: short @ drumlin_seal::Error::Memory(_), .. } => {
                Error::Machine(short.to_string())
            }
            source => Error::Damaged { object, source },
        }
    }

    /// Whether an object can't be opened because the key lacks the secrets of its generation.
    pub fn is_unknown_generation(&self) -> bool {
        matches!(self, Error::UnknownGeneration { .. })
    }

    /// Whether the storage refuses it to this account.
    pub fn is_refused(&self) -> bool {
        matches!(self, Error::Store(e) if e.kind == store::Kind::Refused)
    }

    /// Whether an object is not there.
    pub fn is_missing(&self) -> bool {
        matches!(self, Error::Store(e) if e.kind == store::Kind::Missing)
    }

    /// Whether this is about one object alone: damaged, gone, or not given out by the storage (a bad sector, say).
    pub fn is_of_one_object(&self) -> bool {
        match self {
            Error::Store(e) if !e.name.is_empty() => {
                use store::Kind::{Io, Missing, Refused, Truncated};
                matches!(e.kind, Io | Missing | Refused | Truncated)
            }
            Error::Store(_) => false,
            other => other.is_damage(),
        }
    }

    /// Whether the storage gave out nothing of an object that is there: it may another time.
    pub fn is_unread(&self) -> bool {
        matches!(self, Error::Store(e) if e.kind == store::Kind::Io && e.action == store::Action::Read && !e.name.is_empty())
    }

    /// Whether the storage has not taken an object that was to be written.
    pub fn is_unwritten(&self) -> bool {
        use store::Action::{Create, Persist, Write};
        matches!(self, Error::Store(e) if matches!(e.action, Create | Persist | Write))
    }

    /// Whether a newer program is needed to understand an object.
    pub fn is_newer(&self) -> bool {
        matches!(self, Error::Damaged { source, .. } if source.is_newer())
    }

    /// Whether the storage may do it a little later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Error::Store(e) if e.kind == store::Kind::Transient)
    }

    /// Whether the storage has no room left.
    pub fn is_full(&self) -> bool {
        matches!(self, Error::Store(e) if e.kind == store::Kind::Full)
    }

    /// The object that is in cold storage, if that is the trouble.
    pub fn frozen(&self) -> Option<&str> {
        match self {
            Error::Store(e) if e.kind == store::Kind::Frozen => Some(&e.name),
            _ => None,
        }
    }

    /// What is wrong, in words that leave out which object this is about.
    pub fn cause(&self) -> String {
        match self {
            Error::Damaged { source, .. } => source.to_string(),
            Error::UnknownGeneration { generation, .. } => {
                format!("it is of generation {generation:08x} of the secrets, which this key doesn't have")
            }
            Error::DamagedBlock { block, detail, .. } => format!("block {block}: {detail}"),
            Error::Store(e) if e.kind == store::Kind::Missing => "it isn't there".into(),
            Error::Store(e) => e.cause(),
            other => other.to_string(),
        }
    }

    /// Whether this is about one object's bytes, so that others may still be read: damaged, gone, or on a place that
    /// can't be read.
    pub fn is_damage(&self) -> bool {
        match self {
            Error::Damaged { .. } | Error::DamagedBlock { .. } | Error::MissingChunk(_) => true,
            Error::UnknownGeneration { .. } => true,
            Error::Store(e) if matches!(e.kind, store::Kind::Missing | store::Kind::Truncated) => true,
            other => other.is_unread(),
        }
    }
}

/// Why one of the keys could not be tried, behind what is said of the others.
fn also(untried: &Option<Box<Error>>) -> String {
    untried.as_ref().map(|e| format!("; one could not be tried: {e}")).unwrap_or_default()
}
