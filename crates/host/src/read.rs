//! Reading what a listing names: contents, extended attributes, flags, holes.
//!
//! No call here follows a symlink (unless it stands on the way to a source; or, where `/proc` isn't mounted, somebody
//! puts one there just then), waits for a writer at a pipe, or (where the kernel permits) touches an access time. A
//! file may change while it is read: read no more than the size that the walk gave, then compare [`restat`] with it.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Seek};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use crate::dir::Dir;
use crate::meta::{Extras, FLAGS_KEPT, Kind, Stat};
use crate::numbers;
use crate::sys::{self, Follow};

/// Bytes that hold nearly every list of names and every value; longer ones cost two calls more.
const ATTR_BYTES: usize = 4096;
/// How often a value that grows between two calls is asked for again.
const ATTR_TRIES: usize = 8;
/// What all attributes of an entry may take, each with [`ATTR_COST`]: what is beyond that isn't read. Nothing that is
/// made in earnest comes near.
pub const ATTRS_BYTES_MAX: usize = 4 << 20;
/// What an attribute counts besides the bytes of its name and its value.
pub const ATTR_COST: usize = 64;

/// Extras as far as they could be had.
#[derive(Debug, Default)]
pub struct Had {
    /// What could be had.
    pub extras: Extras,
    /// Why the rest could not.
    pub lost: Option<io::Error>,
}

fn c_name(name: &[u8]) -> io::Result<CString> {
    if name.is_empty() || name.contains(&b'/') {
        return Err(Errno::INVAL.into());
    }
    CString::new(name).map_err(|_| Errno::INVAL.into())
}

/// What an open file is now: to be compared with what the walk said of it.
///
/// # Errors
/// Those of `statx`.
pub fn restat(fd: impl AsFd) -> io::Result<Stat> {
    Ok(sys::stat_at(fd.as_fd(), b"\0", Follow::No)?)
}

/// Whether anybody has this file open for writing. Who has mapped it so that he can store into it is one of them. For a
/// moment nobody else can open it for writing, and waits.
///
/// # Errors
/// It isn't known: it takes the file's owner or root (`CAP_LEASE`), and a file system with leases, which those of other
/// machines aren't.
pub fn has_writer(file: &File) -> io::Result<bool> {
    Ok(sys::has_writer(file.as_fd())?)
}

/// See to it that whatever is stored into an open file through a mapping from now on gives it another time.
///
/// The kernel stamps a file at the first such store into a page that is clean, and at no other until that page is
/// written back, half a minute later by default. So the pages are begun to be written back, which costs nothing where
/// none is dirty. File systems that don't write pages back (tmpfs), or keep them elsewhere (overlayfs), don't do it;
/// that is no error.
pub fn have_stores_stamped(file: impl AsFd) {
    // Whatever it says, the file is read.
    let _ = sys::write_out(file.as_fd());
}

/// Have the system begin to read a part of a file that is read soon; what is in its cache already costs nothing.
pub fn expect(file: impl AsFd, from: u64, len: u64) {
    // Whatever it says, the file is read.
    let _ = rustix::fs::fadvise(file, from, std::num::NonZeroU64::new(len), rustix::fs::Advice::WillNeed);
}

/// Whether a file that says it is empty is so. Some file systems of FUSE's know how long a document is only once they
/// have been asked for it (those of clouds, as rclone shows them); of proc and its like, which don't know it either,
/// nothing is worth saving.
pub fn knows_its_length(file: impl AsFd) -> bool {
    numbers::type_of(file) != Ok(numbers::FUSE)
}

/// Whether opening what the walk has found failed because nothing of that name is left, or something of another type.
pub fn is_gone(error: &io::Error) -> bool {
    // A symlink isn't followed, a file is no directory, a socket can't be opened at all. ESTALE may be said of a whole
    // file system that is still there: then nothing of it may go without a word.
    let other = [libc::ENOENT, libc::ELOOP, libc::ENOTDIR, libc::ENXIO, libc::ENODEV];
    error.raw_os_error().is_some_and(|code| other.contains(&code))
}

impl Dir {
    /// Opens a file for reading. Devices and pipes open too, without waiting, should a file have become one: compare
    /// [`restat`] before reading where that matters.
    ///
    /// # Errors
    /// Those of the system: `ENOENT` for a file that is gone, `ELOOP` for one that became a symlink, `EACCES`.
    pub fn open_file(&self, name: &[u8]) -> io::Result<File> {
        self.open_with(name, OFlags::empty())
    }

    fn open_with(&self, name: &[u8], more: OFlags) -> io::Result<File> {
        let c_name = c_name(name)?;
        let dir = self.fd()?;
        let nofollow = if self.follows(name) { OFlags::empty() } else { OFlags::NOFOLLOW };
        let flags = OFlags::RDONLY | nofollow | OFlags::NONBLOCK | OFlags::CLOEXEC | more;
        let noatime = self.noatime_flag();
        let opened = sys::open_retry(|| rustix::fs::openat(&dir, &c_name, flags | noatime, Mode::empty()));
        let fd = match opened {
            // The file belongs to somebody else, and so do, most likely, the others here.
            Err(Errno::PERM) if !noatime.is_empty() => {
                let fd = sys::open_retry(|| rustix::fs::openat(&dir, &c_name, flags, Mode::empty()))?;
                self.noatime_refused();
                fd
            }
            other => other?,
        };
        Ok(File::from(fd))
    }

    /// What an entry is now.
    ///
    /// # Errors
    /// Those of `statx`.
    pub fn stat(&self, name: &[u8]) -> io::Result<Stat> {
        let name = c_name(name)?;
        Ok(sys::stat_at(self.fd()?.as_fd(), name.as_bytes_with_nul(), Follow::No)?)
    }

    /// Target of a symlink, attributes and flags of an entry. For a file that is open, [`extras_of_fd`] is cheaper.
    ///
    /// # Errors
    /// Those of the system where the entry itself isn't to be had, or the target of a symlink; a file system without
    /// attributes or flags has none, which is no error.
    pub fn extras(&self, name: &[u8], kind: Kind) -> io::Result<Had> {
        let mut extras = Extras::default();
        let mut unreadable = None;
        match kind {
            Kind::Symlink => {
                let name = c_name(name)?;
                extras.target = rustix::fs::readlinkat(self.fd()?, &name, Vec::with_capacity(256))?.into_bytes();
            }
            Kind::File | Kind::Dir => {
                let more = if kind == Kind::Dir { OFlags::DIRECTORY } else { OFlags::empty() };
                match self.open_with(name, more) {
                    Ok(file) => return Ok(extras_of_fd(&file)),
                    // What can't be read may still be asked for its attributes.
                    Err(e) if matches!(e.raw_os_error(), Some(libc::EACCES | libc::EPERM)) => unreadable = Some(e),
                    Err(e) => return Err(e),
                }
            }
            Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => {}
        }
        // Through the descriptor, so that the path is short however deep the directory; the last component of the path
        // is never followed by the `l` calls.
        let dir = self.fd()?;
        let through = format!("/proc/self/fd/{}/", dir.as_fd().as_raw_fd()).into_bytes();
        let (mut xattrs, mut lost) = self.attributes_at(through, name, kind)?;
        if lost == Some(Errno::NOENT) {
            // It is gone, or `/proc` isn't there.
            self.stat(name)?;
            let mut whole = Vec::new();
            self.path_of(b"", &mut whole);
            (xattrs, lost) = self.attributes_at(whole, name, kind)?;
        }
        extras.xattrs = xattrs;
        Ok(Had { extras, lost: lost.map(|e| unreadable.unwrap_or(e.into())) })
    }

    /// Attributes of an entry by the path of its directory, which ends with a slash.
    fn attributes_at(&self, mut path: Vec<u8>, name: &[u8], kind: Kind) -> io::Result<(Attributes, Option<Errno>)> {
        path.extend_from_slice(c_name(name)?.as_bytes());
        if kind == Kind::Dir && self.follows(name) {
            path.extend_from_slice(b"/.");
        }
        let path = CString::new(path).map_err(|_| Errno::INVAL)?;
        Ok(attributes(|buf| rustix::fs::llistxattr(&path, buf), |attr, buf| rustix::fs::lgetxattr(&path, attr, buf)))
    }
}

/// Attributes and flags of an open file or directory; a file system without attributes or flags has none.
pub fn extras_of_fd(fd: impl AsFd) -> Had {
    let fd = fd.as_fd();
    let (xattrs, lost) =
        attributes(|buf| rustix::fs::flistxattr(fd, buf), |attr, buf| rustix::fs::fgetxattr(fd, attr, buf));
    let (flags, lost) = match flags_of_fd(fd) {
        Ok(flags) => (flags, lost.map(io::Error::from)),
        Err(e) => (0, Some(lost.map_or(e, io::Error::from))),
    };
    Had { extras: Extras { xattrs, flags, target: Vec::new() }, lost }
}

fn flags_of_fd(fd: BorrowedFd<'_>) -> io::Result<u32> {
    match rustix::fs::ioctl_getflags(fd) {
        Ok(flags) => Ok(flags.bits() & FLAGS_KEPT),
        // File systems without flags, and files (devices, pipes) without inode operations, say it in several ways.
        Err(Errno::NOTTY | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS | Errno::BADF) => Ok(0),
        Err(e) => Err(e.into()),
    }
}

/// Appends up to `most` bytes to `to`, from where the file stands; fewer only at its end. Gives how many. In as few calls
/// as the system takes, and into memory that nobody has cleared.
///
/// # Errors
/// What the system says; what was read before that is there.
pub fn append(file: impl AsFd, to: &mut Vec<u8>, most: usize) -> io::Result<usize> {
    to.reserve_exact(most);
    let before = to.len();
    loop {
        let left = most - (to.len() - before);
        if left == 0 {
            return Ok(most);
        }
        match rustix::io::read(&file, &mut to.spare_capacity_mut()[..left]) {
            Ok(([], _)) => return Ok(to.len() - before),
            Ok((read, _)) => {
                let end = before + (most - left) + read.len();
                // SAFETY: up to there the vector has bytes: those that it had, and those that were just read behind
                // them.
                unsafe { to.set_len(end) };
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Reads something of unknown length: at first into `buf`, then into as much as is needed.
fn growing(mut get: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut buf = [0u8; ATTR_BYTES];
    match get(&mut buf) {
        Ok(n) => return Ok(buf.get(..n).unwrap_or_default().to_vec()),
        Err(Errno::RANGE) => {}
        Err(e) => return Err(e),
    }
    // The kernel allows 64 KiB; some file systems go beyond.
    let mut size = 64 << 10;
    for _ in 0..ATTR_TRIES {
        let mut buf = vec![0; size];
        match get(&mut buf) {
            Ok(n) => {
                buf.truncate(n);
                return Ok(buf);
            }
            Err(Errno::RANGE) => size *= 4,
            Err(e) => return Err(e),
        }
    }
    Err(Errno::TOOBIG)
}

/// Names and values, as `Extras` keeps them.
type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

/// The attributes that could be had, and why the first of the others could not.
fn attributes(
    mut list: impl FnMut(&mut [u8]) -> Result<usize, Errno>,
    mut get: impl FnMut(&CString, &mut [u8]) -> Result<usize, Errno>,
) -> (Attributes, Option<Errno>) {
    let names = match growing(&mut list) {
        Ok(names) => names,
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => return (Vec::new(), None),
        Err(e) => return (Vec::new(), Some(e)),
    };
    // In this order what the system itself goes by (`security`, `system`) comes first.
    let mut names: Vec<&[u8]> = names.split(|&b| b == 0).filter(|n| !n.is_empty()).collect();
    names.sort_unstable();
    names.dedup();
    let (mut out, mut lost, mut bytes) = (Vec::new(), None, 0);
    for name in names {
        let Ok(c_name) = CString::new(name) else { continue };
        match growing(|buf| get(&c_name, buf)) {
            Ok(value) => {
                bytes += name.len() + value.len() + ATTR_COST;
                if bytes > ATTRS_BYTES_MAX {
                    return (out, Some(Errno::TOOBIG));
                }
                out.push((name.to_vec(), value));
            }
            // Removed since it was listed, or listed by a file system that doesn't give it.
            Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
            Err(e) => lost = lost.or(Some(e)),
        }
    }
    (out, lost)
}

/// The ranges of a file that hold data, up to `size`; what lies between them reads as zeros. Worth asking only where
/// `blocks * 512 < size`. Moves the position of the file: read it with `pread`.
#[derive(Debug)]
pub struct DataRanges<'a> {
    fd: BorrowedFd<'a>,
    at: u64,
    size: u64,
}

/// Whether a file has holes, as far as can be told. A file system that compresses (ZFS) has fewer blocks for a file
/// without any.
///
/// # Errors
/// Its position can't be put back to the beginning.
pub fn is_sparse(mut file: &File, size: u64) -> io::Result<bool> {
    let first = data_ranges(file.as_fd(), size).next();
    file.seek(io::SeekFrom::Start(0))?;
    Ok(!matches!(first, Some(Ok(range)) if range == (0, size)))
}

/// Where the next data of a file begin, at `at` or behind it; `None`: nothing but a hole comes any more. Where the file
/// system can't tell, it is data.
pub fn next_data(fd: impl AsFd, at: u64) -> Option<u64> {
    match rustix::fs::seek(fd, SeekFrom::Data(at)) {
        Ok(data) => Some(data.max(at)),
        Err(Errno::NXIO) => None,
        Err(_) => Some(at),
    }
}

/// See [`DataRanges`].
pub fn data_ranges(fd: BorrowedFd<'_>, size: u64) -> DataRanges<'_> {
    DataRanges { fd, at: 0, size }
}

impl Iterator for DataRanges<'_> {
    /// Start and end in bytes, start < end.
    type Item = io::Result<(u64, u64)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.size {
            return None;
        }
        let start = match rustix::fs::seek(self.fd, SeekFrom::Data(self.at)) {
            Ok(start) => start.max(self.at),
            Err(Errno::NXIO) => self.size,
            // A file system that knows no holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOTTY) => self.at,
            Err(e) => {
                self.at = self.size;
                return Some(Err(e.into()));
            }
        };
        if start >= self.size {
            self.at = self.size;
            return None;
        }
        let end = match rustix::fs::seek(self.fd, SeekFrom::Hole(start)) {
            Ok(end) if end > start => end.min(self.size),
            // Cut shorter meanwhile, or no holes known here: the reader will see the end by itself.
            Ok(_) | Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOTTY) => self.size,
            Err(e) => {
                self.at = self.size;
                return Some(Err(e.into()));
            }
        };
        self.at = end;
        Some(Ok((start, end)))
    }
}

#[cfg(test)]
mod tests;
