//! What can go wrong with a store, told apart by what the caller can do about it.

use std::{fmt, io};

use rustix::io::Errno;

use crate::Action;

/// A result of a store operation.
pub type Result<T> = std::result::Result<T, Error>;

/// What kind of failure it was: callers decide by this, never by the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// There is no such object (or no such repository folder).
    Missing,
    /// An object of that name is there already.
    Exists,
    /// The object ends before the bytes that were asked for.
    Truncated,
    /// The storage refuses: permissions, credentials, a read-only mount, a name outside the grammar.
    Refused,
    /// It is in cold storage, and can be read after it has been thawed: [`crate::Store::thaw`].
    Frozen,
    /// No space or quota left.
    Full,
    /// A failure that may pass: a broken line, an interrupted call.
    Transient,
    /// This machine is short of something: file descriptors, memory. It says nothing of the storage, or of what is in
    /// it.
    Exhausted,
    /// Anything else that the storage reports.
    Io,
}

impl Kind {
    /// The kind of an error of the operating system, or of an [`io::Error`] made by a program.
    pub fn of(error: &io::Error) -> Self {
        if let Some(errno) = Errno::from_io_error(error) {
            return Self::of_errno(errno);
        }
        match error.kind() {
            io::ErrorKind::NotFound => Self::Missing,
            io::ErrorKind::AlreadyExists => Self::Exists,
            io::ErrorKind::UnexpectedEof => Self::Truncated,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::InvalidInput => {
                Self::Refused
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full,
            io::ErrorKind::Interrupted
            | io::ErrorKind::WouldBlock
            | io::ErrorKind::TimedOut
            | io::ErrorKind::StaleNetworkFileHandle => Self::Transient,
            io::ErrorKind::OutOfMemory => Self::Exhausted,
            _ => Self::Io,
        }
    }

    fn of_errno(errno: Errno) -> Self {
        match errno {
            Errno::NOENT => Self::Missing,
            Errno::EXIST => Self::Exists,
            Errno::ACCESS | Errno::PERM | Errno::ROFS => Self::Refused,
            Errno::NOSPC | Errno::DQUOT => Self::Full,
            Errno::INTR | Errno::AGAIN | Errno::TIMEDOUT | Errno::STALE => Self::Transient,
            // A mount whose server or line is gone, as after a sleep.
            Errno::NOTCONN | Errno::SHUTDOWN | Errno::CONNRESET | Errno::CONNABORTED => Self::Transient,
            Errno::HOSTDOWN | Errno::HOSTUNREACH | Errno::NETDOWN | Errno::NETUNREACH => Self::Transient,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => Self::Exhausted,
            _ => Self::Io,
        }
    }
}

/// A failed store operation: what was tried, on which object, where, and why it failed.
#[derive(Debug)]
pub struct Error {
    /// The kind of failure.
    pub kind: Kind,
    /// What was tried, as a verb phrase: `read`, `write`, `list`.
    pub action: Action,
    /// The object's name; empty if it is about the store as a whole.
    pub name: String,
    /// The store's location.
    pub location: String,
    /// What the system said.
    pub source: io::Error,
}

impl Error {
    /// An error of the kind that `source` tells by itself.
    pub fn new(action: Action, name: &str, location: &str, source: impl Into<io::Error>) -> Self {
        let source = source.into();
        Self { kind: Kind::of(&source), action, name: name.to_owned(), location: location.to_owned(), source }
    }

    /// An error of a given kind, with words of our own as its cause.
    pub fn because(
        kind: Kind,
        action: Action,
        name: &str,
        location: &str,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        let as_io = match kind {
            Kind::Missing => io::ErrorKind::NotFound,
            Kind::Exists => io::ErrorKind::AlreadyExists,
            Kind::Truncated => io::ErrorKind::UnexpectedEof,
            Kind::Refused => io::ErrorKind::PermissionDenied,
            Kind::Full => io::ErrorKind::StorageFull,
            Kind::Transient => io::ErrorKind::TimedOut,
            Kind::Exhausted => io::ErrorKind::OutOfMemory,
            Kind::Frozen | Kind::Io => io::ErrorKind::Other,
        };
        let source = io::Error::new(as_io, cause);
        Self { kind, action, name: name.to_owned(), location: location.to_owned(), source }
    }

    /// What the system said, in words.
    pub fn cause(&self) -> String {
        plain(&self.source)
    }

    /// [`Kind::Truncated`]: `wanted` is the end of the range that was asked for, `len` the object's real length.
    pub fn truncated(action: Action, name: &str, location: &str, wanted: u64, len: u64) -> Self {
        let cause = format!("it ends after {len} bytes, and {wanted} were expected");
        Self::because(Kind::Truncated, action, name, location, cause)
    }
}

/// An error of the system without its number, which says nothing to a reader of the words before it.
pub(crate) fn plain(error: &io::Error) -> String {
    let mut words = error.to_string();
    if let Some(code) = error.raw_os_error()
        && let Some(before) = words.strip_suffix(&format!(" (os error {code})"))
    {
        words.truncate(before.len());
    }
    words
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} ", self.action)?;
        if !self.name.is_empty() {
            write!(f, "'{}' in ", self.name)?;
        }
        write!(f, "{}: {}", self.location, self.cause())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errnos_map_to_kinds() {
        for (errno, kind) in [
            (Errno::NOENT, Kind::Missing),
            (Errno::EXIST, Kind::Exists),
            (Errno::ACCESS, Kind::Refused),
            (Errno::PERM, Kind::Refused),
            (Errno::ROFS, Kind::Refused),
            (Errno::NOSPC, Kind::Full),
            (Errno::DQUOT, Kind::Full),
            (Errno::INTR, Kind::Transient),
            (Errno::AGAIN, Kind::Transient),
            (Errno::TIMEDOUT, Kind::Transient),
            (Errno::STALE, Kind::Transient),
            (Errno::NOTCONN, Kind::Transient),
            (Errno::HOSTDOWN, Kind::Transient),
            (Errno::MFILE, Kind::Exhausted),
            (Errno::NFILE, Kind::Exhausted),
            (Errno::NOMEM, Kind::Exhausted),
            (Errno::IO, Kind::Io),
            (Errno::NOTDIR, Kind::Io),
        ] {
            assert_eq!(Kind::of(&errno.into()), kind, "{errno:?}");
        }
    }

    #[test]
    fn messages_say_what_where_and_why() {
        let error = Error::new(Action::Read, "packs/1f/x", "/srv/repo", Errno::NOENT);
        assert_eq!(error.to_string(), "cannot read 'packs/1f/x' in /srv/repo: No such file or directory");
        let error = Error::new(Action::Open, "", "/srv/repo", Errno::ACCESS);
        assert_eq!(error.to_string(), "cannot open /srv/repo: Permission denied");
        let error = Error::truncated(Action::Read, "a", "/srv/repo", 20, 10);
        assert_eq!(error.kind, Kind::Truncated);
        assert_eq!(Kind::of(&error.source), Kind::Truncated);
        assert_eq!(error.to_string(), "cannot read 'a' in /srv/repo: it ends after 10 bytes, and 20 were expected");
    }
}
