//! Files that are immutable or append-only, and that have to give way all the same.
//!
//! Afterwards they have their flags again: such a file may live on under another name.

use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{self, Mode, OFlags};

use super::apply;
use super::entry::stat_fd;
use super::handle::Handle;
use crate::meta::Kind;

/// Does something while the flags are lifted from the file `name`; `None` if it has none, or they can't be lifted.
pub(super) fn while_unlocked<T>(dir: BorrowedFd<'_>, name: &[u8], work: impl FnOnce() -> T) -> Option<T> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let pinned = fs::openat(dir, name, flags, Mode::empty()).ok()?;
    if stat_fd(pinned.as_fd()).ok()?.kind != Kind::File {
        return None;
    }
    apply::while_unlocked(Handle::path(pinned.as_fd()), work)
}
