//! What a new file gets from its directory before anything is applied: learned from the first one, true for the rest.
//!
//! Owner and group depend on the user, on setgid of the directory, on mount options and id mappings; an ACL and flags
//! may be inherited. One look at a real file answers all of that, and saves a look at each of the others.

use rustix::fd::BorrowedFd;

use super::apply::{Attributes, Now, has_acl, has_kept_flags};
use super::entry::stat_fd;
use super::handle::Handle;
use crate::meta::Kind;

/// The mode that new files are asked for while they fill.
pub(super) const MODE_NEW: u16 = 0o600;

/// What new files of one directory have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gift {
    now: Now,
}

impl Gift {
    /// Looks at a file that was just created with [`MODE_NEW`].
    pub fn learn(fd: BorrowedFd<'_>) -> rustix::io::Result<Gift> {
        let stat = stat_fd(fd)?;
        let h = Handle::open(fd);
        let attributes = if inherits(h) { Attributes::Inherited } else { Attributes::None };
        Ok(Gift { now: Now { kind: Kind::File, ..Now::of(&stat, attributes) } })
    }

    /// What a file has that was created with [`MODE_NEW`].
    pub fn now(&self) -> Now {
        self.now
    }

    /// Whether a file may be created with its final mode: it will belong to whom it shall belong to, so those whom the
    /// mode lets in are let in anyway, and this file system gives the mode that is asked for.
    pub fn allows(&self, mode: u16, owner: Option<(u32, u32)>, umask: u32) -> bool {
        self.now.attributes == Attributes::None
            && self.now.mode == MODE_NEW
            && mode & !0o777 == 0
            && u32::from(mode) & umask == 0
            && owner.is_none_or(|(uid, gid)| uid == self.now.uid && gid == self.now.gid)
    }
}

/// Whether a new entry has an ACL or flags from its directory.
pub(super) fn inherits(h: Handle<'_>) -> bool {
    has_acl(&h.xattr_names().unwrap_or_default()) || has_kept_flags(h)
}
