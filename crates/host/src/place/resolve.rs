//! From names to descriptors, without ever leaving the directory that they start from.
//!
//! A single name is opened with `O_NOFOLLOW`; that alone keeps it inside its directory, once slashes and dots are
//! refused. A path of several components goes through `openat2`, in pieces shorter than `PATH_MAX`; kernels before 5.6
//! and sandboxes that forbid the call get one `openat` a component, which is as safe and merely slower.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::error::{Error, Result};
use crate::sys::open_retry;

/// The longest piece of a path that is handed to the kernel at once: below `PATH_MAX`, its zero byte included.
const PIECE_BYTES_MAX: usize = 4000;

/// Set once `openat2` proves to be missing or forbidden in this process.
static NO_OPENAT2: AtomicBool = AtomicBool::new(false);

const DIR: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A directory's descriptor; `readable` is false where only `O_PATH` was granted.
pub(super) struct Opened {
    pub fd: OwnedFd,
    pub readable: bool,
}

/// Refuses what is not the name of one entry. Snapshots come from other machines: a name may be anything.
#[inline]
pub(super) fn check_name(name: &[u8]) -> Result<()> {
    let bad = name.is_empty() || name == b"." || name == b".." || name.iter().any(|&b| b == b'/' || b == 0);
    if bad { Err(Error::BadName(name.to_vec())) } else { Ok(()) }
}

/// Opens one directory by its name in `at`. A directory that may be entered but not read is opened with `O_PATH`.
pub(super) fn open_dir(at: BorrowedFd<'_>, name: &[u8]) -> Result<Opened> {
    check_name(name)?;
    open_with(name, |flags| fs::openat(at, name, flags, Mode::empty()))
}

/// Opens the directory that `path` (components joined by `/`) names below `at`; an empty path is `at` itself.
pub(super) fn open_path(at: BorrowedFd<'_>, path: &[u8]) -> Result<Opened> {
    open_path_with(at, path, !NO_OPENAT2.load(Ordering::Relaxed))
}

/// As [`open_path`], but the caller chooses which system call is used, so that both can be tested.
pub(super) fn open_path_with(at: BorrowedFd<'_>, path: &[u8], openat2: bool) -> Result<Opened> {
    if path.is_empty() {
        return open_with(b".", |flags| fs::openat(at, c".", flags, Mode::empty()));
    }
    for name in path.split(|&b| b == b'/') {
        check_name(name).map_err(|_| Error::BadName(path.to_vec()))?;
    }
    let mut held: Option<Opened> = None;
    let mut rest = path;
    while !rest.is_empty() {
        let from = held.as_ref().map_or(at, |o| o.fd.as_fd());
        let (piece, after) = cut(rest);
        let next = if openat2 { beneath(from, piece, path)? } else { by_components(from, piece, path)? };
        held = Some(next);
        rest = after;
    }
    held.ok_or_else(|| Error::BadName(path.to_vec()))
}

/// The longest run of whole components that fits into one call, and what follows it.
fn cut(path: &[u8]) -> (&[u8], &[u8]) {
    if path.len() <= PIECE_BYTES_MAX {
        return (path, &[]);
    }
    let end = path[..=PIECE_BYTES_MAX].iter().rposition(|&b| b == b'/');
    // A component longer than a piece: the kernel refuses it with ENAMETOOLONG.
    let end = end.or_else(|| path.iter().position(|&b| b == b'/')).unwrap_or(path.len());
    (&path[..end], path.get(end + 1..).unwrap_or(&[]))
}

fn beneath(at: BorrowedFd<'_>, piece: &[u8], path: &[u8]) -> Result<Opened> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let opened = open_with(path, |flags| fs::openat2(at, piece, flags, Mode::empty(), resolve));
    match opened.as_ref().map_err(Error::errno) {
        // EAGAIN: a rename raced with the call. EPERM: what some sandboxes answer to calls they don't know.
        Err(Some(libc::ENOSYS | libc::EPERM | libc::EINVAL | libc::E2BIG)) => {
            let opened = by_components(at, piece, path)?;
            NO_OPENAT2.store(true, Ordering::Relaxed);
            Ok(opened)
        }
        Err(Some(libc::EAGAIN)) => by_components(at, piece, path),
        _ => opened,
    }
}

fn by_components(at: BorrowedFd<'_>, piece: &[u8], path: &[u8]) -> Result<Opened> {
    let mut held: Option<Opened> = None;
    for name in piece.split(|&b| b == b'/') {
        let from = held.as_ref().map_or(at, |o| o.fd.as_fd());
        held = Some(open_with(path, |flags| fs::openat(from, name, flags, Mode::empty()))?);
    }
    held.ok_or_else(|| Error::BadName(path.to_vec()))
}

/// Readable if the user may, else `O_PATH`; a symlink or another non-directory becomes [`Error::Blocked`].
fn open_with(name: &[u8], open: impl Fn(OFlags) -> rustix::io::Result<OwnedFd>) -> Result<Opened> {
    let open = |flags| open_retry(|| open(flags));
    let first = open(DIR | OFlags::RDONLY).map(|fd| Opened { fd, readable: true });
    let opened = match first {
        Err(Errno::ACCESS) => open(DIR | OFlags::PATH).map(|fd| Opened { fd, readable: false }),
        other => other,
    };
    opened.map_err(|e| match e {
        Errno::LOOP | Errno::NOTDIR | Errno::XDEV => Error::Blocked(name.to_vec()),
        e => Error::system("open", name, e),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_one_entry_only() {
        for bad in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0"] {
            assert!(matches!(check_name(bad), Err(Error::BadName(_))), "{}", bad.escape_ascii());
        }
        for good in [&b"..."[..], b"-rf", b"\xff\n", b".a", &[b'x'; 255]] {
            assert!(check_name(good).is_ok());
        }
    }

    #[test]
    fn long_paths_are_cut_between_components() {
        let path = [b"abcdefghi".as_slice(); 1000].join(&b'/');
        let (mut rest, mut names) = (path.as_slice(), 0);
        while !rest.is_empty() {
            let (piece, after) = cut(rest);
            assert!(piece.len() <= PIECE_BYTES_MAX && !piece.starts_with(b"/") && !piece.ends_with(b"/"));
            names += piece.split(|&b| b == b'/').inspect(|n| assert_eq!(n, b"abcdefghi")).count();
            rest = after;
        }
        assert_eq!(names, 1000);
    }
}
