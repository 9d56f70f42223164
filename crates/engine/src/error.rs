//! Why an operation failed as a whole. What concerns single entries goes to the `Monitor` instead.

use drumlin_format::SnapshotId;
use std::io;

/// A result of an operation.
pub type Result<T> = std::result::Result<T, Error>;

/// A failed operation.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The repository.
    #[error(transparent)]
    Repo(#[from] drumlin_repo::Error),
    /// The target of a restore.
    #[error(transparent)]
    Place(#[from] drumlin_host::place::Error),
    /// The system.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// No snapshot fits, or several do.
    #[error("{0}")]
    NoSnapshot(String),
    /// A path is not in the snapshot.
    #[error("there is no '{0}' in the snapshot")]
    NoPath(String),
    /// A pattern that makes no sense.
    #[error("{0}")]
    Pattern(String),
    /// None of the sources could be read.
    #[error("none of the sources could be read; nothing was backed up")]
    NoSource,
    /// A stream's program or reader failed.
    #[error("{0}; no snapshot was made")]
    Stream(String),
    /// A snapshot's tree can't be read whole, so that nobody knows what it needs.
    #[error("snapshot {snapshot} can't be read completely: {source}; nothing was removed")]
    Unsure {
        /// The snapshot.
        snapshot: SnapshotId,
        /// What is damaged.
        #[source]
        source: drumlin_repo::Error,
    },
    /// Something about the storage looks wrong enough to touch nothing.
    #[error("{0}; nothing was removed")]
    Doubt(String),
    /// There are packs, and no snapshot that would need any of them.
    #[error("the storage lists no snapshot at all, so that all {packs} packs would go; nothing was removed")]
    Nothing {
        /// How many.
        packs: usize,
    },
    /// A session that may refer to what would be removed has not ended.
    #[error("{0}; nothing was removed")]
    Busy(String),
    /// Another collector has done its work meanwhile, and taken this one for dead.
    #[error("{0}; nothing was removed")]
    Overtaken(&'static str),
    /// It could be done, and would do harm.
    #[error("{0}")]
    Refused(String),
    /// What a forgotten snapshot refers to is not there any more.
    #[error(
        "snapshot {snapshot} can't be brought back: {what} are gone: a prune has removed them or is about to, or they are damaged, which 'drumlin check' tells"
    )]
    Pruned {
        /// The snapshot.
        snapshot: SnapshotId,
        /// What is missing, in the plural.
        what: String,
    },
    /// Nothing of a snapshot can be read, and a copy of it would be one of nothing.
    #[error("nothing of snapshot {0} can be read, and so it can't be copied")]
    Hollow(SnapshotId),
    /// What was to be copied has been copied by another run meanwhile.
    #[error("another run has copied snapshot {0} meanwhile")]
    Copied(SnapshotId),
    /// The user asked to end before there was anything worth keeping.
    #[error("interrupted")]
    Interrupted,
    /// What is looked at changes all the time.
    #[error("packs keep being removed from the repository while it is read; run it again once the prune is done")]
    Changing,
    /// A thread ended unexpectedly.
    #[error("a worker thread ended unexpectedly; this is a bug in drumlin")]
    Worker,
}

impl Error {
    /// A closure that says what was tried.
    pub(crate) fn system(action: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let action = action.into();
        move |source| Error::System { action, source }
    }
}
