//! Leases for writing, as file servers take them for their clients: whoever opens such a file otherwise has to wait.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// From `asm-generic/fcntl.h`; the `libc` crate doesn't have it.
const F_SETSIG: i32 = 10;

/// A lease on a file, given back when it is dropped.
pub struct Lease(File);

impl Lease {
    /// Take it; nobody else may have the file open.
    ///
    /// # Errors
    /// Those of the system: a file system without leases, somebody who has the file open.
    pub fn take(file: File) -> io::Result<Self> {
        // The holder is told by a signal: one that is ignored unless somebody asks for it.
        // SAFETY: a call on an open file that takes numbers alone.
        if unsafe { libc::fcntl(file.as_raw_fd(), F_SETSIG, libc::SIGURG) } != 0 {
            return Err(io::Error::last_os_error());
        }
        set(&file, libc::F_WRLCK)?;
        Ok(Lease(file))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Closing the file gives it back as well.
        let _ = set(&self.0, libc::F_UNLCK);
    }
}

fn set(file: &File, kind: i32) -> io::Result<()> {
    // SAFETY: a call on an open file that takes numbers alone.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
