//! One entry held by a descriptor, and the calls that change its metadata through it: no name is looked up again.
//!
//! A descriptor opened with `O_PATH` (symlinks, pipes, sockets, devices, files that may not be read) takes the calls by
//! way of `AT_EMPTY_PATH` or `/proc/self/fd`; the latter names the inode itself and is never a step outside.

use std::ffi::CString;

use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::fs::{self, AtFlags, CWD, IFlags, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, XattrFlags};
use rustix::io::{Errno, Result};
use rustix::process::{Gid, Uid};

use crate::meta::Time;

/// A held entry.
#[derive(Clone, Copy)]
pub(super) struct Handle<'a> {
    fd: BorrowedFd<'a>,
    /// Opened with `O_PATH`.
    path_only: bool,
}

impl<'a> Handle<'a> {
    pub fn open(fd: BorrowedFd<'a>) -> Self {
        Handle { fd, path_only: false }
    }

    pub fn path(fd: BorrowedFd<'a>) -> Self {
        Handle { fd, path_only: true }
    }

    pub fn fd(self) -> BorrowedFd<'a> {
        self.fd
    }

    /// `None` leaves that one as it is.
    pub fn chown(self, uid: Option<Uid>, gid: Option<Gid>) -> Result<()> {
        if self.path_only {
            fs::chownat(self.fd, c"", uid, gid, AtFlags::EMPTY_PATH)
        } else {
            fs::fchown(self.fd, uid, gid)
        }
    }

    pub fn chmod(self, mode: u16) -> Result<()> {
        let mode = Mode::from_raw_mode(u32::from(mode));
        if self.path_only { fs::chmod(self.proc_path().as_c_str(), mode) } else { fs::fchmod(self.fd, mode) }
    }

    /// Sets the time of the last change; that of the last access is left alone.
    pub fn set_mtime(self, time: Time) -> Result<()> {
        // Larger values are orders to the kernel (UTIME_NOW, UTIME_OMIT), not times.
        if time.nsec >= 1_000_000_000 {
            return Err(Errno::INVAL);
        }
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec { tv_sec: time.sec, tv_nsec: time.nsec.into() },
        };
        if !self.path_only {
            return fs::futimens(self.fd, &times);
        }
        match fs::utimensat(self.fd, c"", &times, AtFlags::EMPTY_PATH) {
            // Kernels before 5.8 don't know the flag here.
            Err(Errno::INVAL | Errno::NOENT) => fs::utimensat(CWD, self.proc_path(), &times, AtFlags::empty()),
            other => other,
        }
    }

    pub fn set_xattr(self, name: &[u8], value: &[u8]) -> Result<()> {
        let flags = XattrFlags::empty();
        if self.path_only {
            fs::setxattr(self.proc_path().as_c_str(), name, value, flags)
        } else {
            fs::fsetxattr(self.fd, name, value, flags)
        }
    }

    pub fn remove_xattr(self, name: &[u8]) -> Result<()> {
        if self.path_only {
            fs::removexattr(self.proc_path().as_c_str(), name)
        } else {
            fs::fremovexattr(self.fd, name)
        }
    }

    /// The value, or `None` if there is no such attribute.
    pub fn xattr(self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let read = |buf: &mut [u8]| {
            if self.path_only {
                fs::getxattr(self.proc_path().as_c_str(), name, buf)
            } else {
                fs::fgetxattr(self.fd, name, buf)
            }
        };
        match grow(read) {
            Err(Errno::NODATA) => Ok(None),
            other => other.map(Some),
        }
    }

    /// All names, each ended by a zero byte; empty where the file system has no attributes.
    pub fn xattr_names(self) -> Result<Vec<u8>> {
        let mut small = [0u8; 256];
        let read = |buf: &mut [u8]| {
            if self.path_only { fs::listxattr(self.proc_path().as_c_str(), buf) } else { fs::flistxattr(self.fd, buf) }
        };
        // Most entries have none or one: no allocation for those.
        let list = match read(&mut small) {
            Ok(n) => Ok(small[..n].to_vec()),
            Err(Errno::RANGE) => grow(read),
            Err(e) => Err(e),
        };
        match list {
            Err(Errno::NOTSUP) => Ok(Vec::new()),
            other => other,
        }
    }

    /// The inode's flags, or `None` where the file system keeps none.
    pub fn flags(self) -> Result<Option<u32>> {
        let got = self.readable(|fd| fs::ioctl_getflags(fd));
        match got {
            Ok(flags) => Ok(Some(flags.bits())),
            Err(Errno::NOTTY | Errno::NOTSUP | Errno::NOSYS | Errno::INVAL) => Ok(None),
            Err(e) => Err(e),
        }
    }

    pub fn set_flags(self, flags: u32) -> Result<()> {
        self.readable(|fd| fs::ioctl_setflags(fd, IFlags::from_bits_retain(flags)))
    }

    /// `ioctl` needs more than `O_PATH`. Only called for regular files and directories: opening others has effects.
    fn readable<T>(self, call: impl Fn(BorrowedFd<'_>) -> Result<T>) -> Result<T> {
        if !self.path_only {
            return call(self.fd);
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = fs::open(self.proc_path().as_c_str(), flags, Mode::empty())?;
        call(rustix::fd::AsFd::as_fd(&fd))
    }

    fn proc_path(self) -> CString {
        proc_path(self.fd)
    }
}

/// The name of the descriptor's inode under `/proc`.
pub(super) fn proc_path(fd: BorrowedFd<'_>) -> CString {
    CString::new(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap_or_default()
}

/// Reads a value whose length is not known, and may change between two calls.
fn grow(read: impl Fn(&mut [u8]) -> Result<usize>) -> Result<Vec<u8>> {
    let mut buf = vec![0u8; 1024];
    loop {
        match read(&mut buf) {
            Ok(n) => {
                buf.truncate(n);
                return Ok(buf);
            }
            // The kernel's own limit on values and lists is 64 KiB.
            Err(Errno::RANGE) if buf.len() < 1 << 20 => buf.resize(buf.len() * 4, 0),
            Err(e) => return Err(e),
        }
    }
}
