//! The calls that everything here is made of: one directory descriptor, one name, symlinks not followed.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{self, AtFlags, CWD, FileType, IFlags, Mode, OFlags, RawDir, Statx, StatxFlags};
use rustix::io::Errno;

const OPEN_DIR: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Extended attributes, sorted by name.
pub(crate) type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Inode flags that a user can set: compress, sync, immutable, append, nodump, noatime, no compression, data
/// journalling, notail, dirsync, topdir, no copy on write, project inheritance.
const FLAGS_SETTABLE: u32 =
    0x4 | 0x8 | FLAGS_LOCKING | 0x40 | 0x80 | 0x400 | 0x4000 | 0x8000 | 0x1_0000 | 0x2_0000 | 0x0080_0000 | 0x2000_0000;
/// Immutable and append-only.
pub(crate) const FLAGS_LOCKING: u32 = 0x10 | 0x20;

/// The directory where a test begins; symlinks in `path` are followed.
pub(crate) fn open_root(path: &Path) -> io::Result<OwnedFd> {
    Ok(fs::openat(CWD, path, OPEN_DIR, Mode::empty())?)
}

pub(crate) fn open_dir(at: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    Ok(fs::openat(at, name, OPEN_DIR | OFlags::NOFOLLOW, Mode::empty())?)
}

/// Makes and opens a directory.
pub(crate) fn make_dir(at: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    fs::mkdirat(at, name, Mode::from_raw_mode(0o755))?;
    open_dir(at, name)
}

/// Makes a file with these contents.
pub(crate) fn write(at: BorrowedFd<'_>, name: &[u8], contents: &[u8]) -> io::Result<std::fs::File> {
    use std::io::Write;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = std::fs::File::from(fs::openat(at, name, flags, Mode::from_raw_mode(0o644))?);
    file.write_all(contents)?;
    Ok(file)
}

/// A regular file or a directory, for reading.
pub(crate) fn open(at: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(fs::openat(at, name, flags, Mode::empty())?)
}

/// All names in a directory, sorted bytewise.
pub(crate) fn names(dir: BorrowedFd<'_>) -> io::Result<Vec<Vec<u8>>> {
    let fd = fs::openat(dir, c".", OPEN_DIR, Mode::empty())?;
    let mut buffer = vec![MaybeUninit::<u8>::uninit(); 1 << 15];
    let mut entries = RawDir::new(fd.as_fd(), &mut buffer);
    let mut names = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    names.sort();
    Ok(names)
}

pub(crate) fn stat(at: BorrowedFd<'_>, name: &[u8]) -> io::Result<Statx> {
    Ok(fs::statx(at, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS)?)
}

pub(crate) fn kind(stat: &Statx) -> FileType {
    FileType::from_raw_mode(u32::from(stat.stx_mode))
}

/// A path to the entry for calls that take no directory descriptor; of any kind, and never followed by the `l` calls.
pub(crate) fn proc_path(at: BorrowedFd<'_>, name: &[u8]) -> Vec<u8> {
    let mut path = format!("/proc/self/fd/{}/", at.as_raw_fd()).into_bytes();
    path.extend_from_slice(name);
    path
}

pub(crate) fn xattrs(at: BorrowedFd<'_>, name: &[u8]) -> io::Result<Xattrs> {
    let path = proc_path(at, name);
    // Larger than the kernel lets lists and values be.
    let mut buffer = vec![0u8; 1 << 16];
    let len = match fs::llistxattr(path.as_slice(), &mut buffer[..]) {
        Err(Errno::NOTSUP) => 0,
        other => other?,
    };
    let mut all = Xattrs::new();
    let list = buffer[..len].to_vec();
    for name in list.split(|&b| b == 0).filter(|n| !n.is_empty()) {
        let len = fs::lgetxattr(path.as_slice(), name, &mut buffer[..])?;
        all.push((name.to_vec(), buffer[..len].to_vec()));
    }
    all.sort();
    Ok(all)
}

pub(crate) fn set_xattr(at: BorrowedFd<'_>, name: &[u8], xattr: &str, value: &[u8]) -> io::Result<()> {
    Ok(fs::lsetxattr(proc_path(at, name).as_slice(), xattr, value, fs::XattrFlags::empty())?)
}

/// The settable inode flags of a file or directory; 0 where the file system has none.
pub(crate) fn flags(fd: BorrowedFd<'_>) -> io::Result<u32> {
    match fs::ioctl_getflags(fd) {
        Ok(flags) => Ok(flags.bits() & FLAGS_SETTABLE),
        Err(Errno::NOTTY | Errno::NOTSUP | Errno::INVAL) => Ok(0),
        Err(e) => Err(e.into()),
    }
}

/// Sets and clears some flags, and leaves the others.
pub(crate) fn change_flags(fd: BorrowedFd<'_>, set: u32, clear: u32) -> io::Result<()> {
    let has = fs::ioctl_getflags(fd)?.bits();
    let goal = (has & !clear) | set;
    if goal != has {
        fs::ioctl_setflags(fd, IFlags::from_bits_retain(goal))?;
    }
    Ok(())
}

/// Sets the time of the last change, in seconds and nanoseconds.
pub(crate) fn set_mtime(at: BorrowedFd<'_>, name: &[u8], sec: i64, nsec: i64) -> io::Result<()> {
    let time = fs::Timespec { tv_sec: sec, tv_nsec: nsec };
    let times = fs::Timestamps { last_access: time, last_modification: time };
    Ok(fs::utimensat(at, name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Lifts the process's limit on descriptors as far as it may: comparing deep trees holds two a level.
pub(crate) fn raise_descriptor_limit() {
    use std::sync::Once;
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the pointer is to a live struct of the type that both calls take.
        unsafe {
            if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
                limit.rlim_cur = limit.rlim_max;
                libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
            }
        }
    });
}
