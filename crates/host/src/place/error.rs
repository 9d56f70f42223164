//! What can go wrong: errors that keep an entry from being there, and problems that leave it there incomplete.

use std::fmt;

use rustix::io::Errno;

/// An entry, or its contents, could not be placed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A name that no directory entry may have: empty, `.`, `..`, or with a slash or a zero byte in it.
    #[error("'{}' can't be the name of an entry", .0.escape_ascii())]
    BadName(Vec<u8>),
    /// A symlink (or another kind of trick) stands where the path below the target has to be a directory.
    #[error("'{}' is a symbolic link, or not a directory: not followed", .0.escape_ascii())]
    Blocked(Vec<u8>),
    /// Between creating an entry and opening it, something else took its place; nothing was done to that.
    #[error("'{}' was replaced by something else while it was being restored", .0.escape_ascii())]
    Swapped(Vec<u8>),
    /// Its metadata would change under other names as well, whose they may be: nothing was done.
    #[error("'{}' has other names (hard links), under which it would be changed, too", .0.escape_ascii())]
    Shared(Vec<u8>),
    /// The system refused.
    #[error("can't {op} '{}': {source}", .name.escape_ascii())]
    System {
        /// What was tried, as a verb: `create`, `open`, `write`…
        op: &'static str,
        /// The entry's name (or path below the target).
        name: Vec<u8>,
        /// The system's reason.
        source: std::io::Error,
    },
}

impl Error {
    pub(super) fn system(op: &'static str, name: &[u8], errno: Errno) -> Self {
        Error::System { op, name: name.to_vec(), source: errno.into() }
    }

    /// The system's error number, where the system spoke.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Error::System { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }

    /// Something of that name is already there.
    pub fn is_exists(&self) -> bool {
        self.errno() == Some(libc::EEXIST)
    }

    /// Nothing of that name is there.
    pub fn is_missing(&self) -> bool {
        self.errno() == Some(libc::ENOENT)
    }

    /// It may be there, and this machine can't look into it now. (What this user may not look into is another matter.)
    pub fn is_unread(&self) -> bool {
        let codes = [libc::EIO, libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ESTALE];
        self.errno().is_some_and(|code| codes.contains(&code))
    }

    /// There can't be a hard link to this file there: another file system, one without links, as many as there may be,
    /// or this user may not make it.
    pub fn is_no_link(&self) -> bool {
        matches!(self.errno(), Some(libc::EXDEV | libc::EMLINK | libc::EPERM | libc::EOPNOTSUPP))
    }

    /// The file system, or the user's share of it, is full: no other file will fare better.
    pub fn is_full(&self) -> bool {
        matches!(self.errno(), Some(libc::ENOSPC | libc::EDQUOT))
    }
}

/// What one call here gives.
pub type Result<T> = std::result::Result<T, Error>;

/// The part of an entry that could not be given back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum What {
    /// The owner.
    Owner,
    /// The group.
    Group,
    /// The permission bits, or one of setuid, setgid and sticky (setuid and setgid are left out on purpose when the
    /// owner or group they would lend could not be set).
    Mode,
    /// The extended attribute of that name (POSIX ACLs are `system.posix_acl_access` and `…_default`).
    Xattr(Box<[u8]>),
    /// The time of the last change: refused, or outside of what the file system can hold.
    Times,
    /// Some of the inode flags: those bits.
    Flags(u32),
    /// The device node itself: it was not created.
    Node,
}

/// An attribute that could not be given back, and why. The entry is there without it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Problem {
    /// Which attribute.
    pub what: What,
    /// The system's reason.
    pub cause: Errno,
}

/// Usually empty, and then without an allocation.
pub type Problems = Vec<Problem>;

impl Problem {
    pub(super) fn new(what: What, cause: Errno) -> Self {
        Problem { what, cause }
    }

    /// Whether it is only that this user may not: expected in any restore by an ordinary user.
    pub fn is_denied(&self) -> bool {
        matches!(self.cause, Errno::PERM | Errno::ACCESS)
    }

    /// Whether it is that this user can't give the entry to whoever owned it.
    pub fn is_about_owners(&self) -> bool {
        matches!(self.what, What::Owner | What::Group) && self.is_denied()
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Owner => f.write_str("owner"),
            What::Group => f.write_str("group"),
            What::Mode => f.write_str("mode"),
            What::Xattr(name) => write!(f, "attribute {}", name.escape_ascii()),
            What::Times => f.write_str("time of last change"),
            What::Flags(bits) => write!(f, "inode flags {bits:#x}"),
            What::Node => f.write_str("device node"),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} not set: {}", self.what, std::io::Error::from(self.cause))
    }
}
