//! A directory that was listed: its path, and a descriptor through which its entries are opened later.
//!
//! Descriptors are scarce. A `Dir` keeps the one it was listed with as long as few are open; else it opens itself again
//! when asked, component by component from `/`, and refuses symlinks on the way. A directory that was replaced
//! meanwhile gives other files under the same names: who reads them compares what `restat` says with what the walk
//! said.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::fs::OFlags;

use crate::sys;

/// Descriptors held by all `Dir`s of the process.
static OPEN: AtomicUsize = AtomicUsize::new(0);
/// How many they may hold; a quarter of the soft limit, at most 256.
static OPEN_MAX: OnceLock<usize> = OnceLock::new();

fn open_max() -> usize {
    *OPEN_MAX.get_or_init(|| (crate::process::descriptors() / 4).clamp(8, 256))
}

/// A descriptor that counts among those held.
#[derive(Debug)]
pub(crate) struct Held(OwnedFd);

impl Held {
    /// Holds the descriptor, or gives it back when `max` are held already.
    fn new(fd: OwnedFd, max: usize) -> Result<Held, OwnedFd> {
        if OPEN.load(Ordering::Relaxed) >= max {
            return Err(fd);
        }
        OPEN.fetch_add(1, Ordering::Relaxed);
        Ok(Held(fd))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A listed directory. Shared as `Arc<Dir>`; the descriptor, if one is held, is closed with the last of them.
#[derive(Debug)]
pub struct Dir {
    path: Box<[u8]>,
    follow: usize,
    /// Names of entries that may be symlinks which stand for what they point to, sorted: they lead to a source.
    followed: Box<[Vec<u8>]>,
    fd: OnceLock<Held>,
    /// Cleared once the kernel refused `O_NOATIME` here (the files belong to somebody else).
    noatime: AtomicBool,
}

/// A descriptor of a `Dir`: its own, or one opened for the moment.
#[derive(Debug)]
pub enum DirFd<'a> {
    /// Held by the directory.
    Held(BorrowedFd<'a>),
    /// Closed when dropped.
    Fresh(OwnedFd),
}

impl AsFd for DirFd<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            DirFd::Held(fd) => *fd,
            DirFd::Fresh(fd) => fd.as_fd(),
        }
    }
}

impl Dir {
    /// `path`: components joined by `/`, no leading slash. Symlinks are followed within its first `follow` bytes only.
    pub(crate) fn new(path: Box<[u8]>, follow: usize, noatime: bool) -> Dir {
        Dir { path, follow, followed: Box::default(), fd: OnceLock::new(), noatime: AtomicBool::new(noatime) }
    }

    /// The same directory, in which symlinks of these names are followed.
    pub(crate) fn following(self, names: impl Iterator<Item = Vec<u8>>) -> Dir {
        let mut followed: Box<[Vec<u8>]> = names.collect();
        followed.sort_unstable();
        Dir { followed, ..self }
    }

    /// Whether a symlink of this name is followed.
    pub(crate) fn follows(&self, name: &[u8]) -> bool {
        self.followed.binary_search_by(|followed| followed.as_slice().cmp(name)).is_ok()
    }

    /// Keeps the descriptor for those who read files, or, if too many listings wait with one, gives it back.
    ///
    /// These may hold half of what is allowed at most: what the walk itself needs comes first.
    pub(crate) fn keep(&self, fd: OwnedFd) -> Result<(), OwnedFd> {
        self.keep_below(fd, open_max() / 2)
    }

    /// The same; where it is given back, the walk itself may hold it for the time that it needs it.
    pub(crate) fn keep_for_walk(&self, fd: OwnedFd) -> Option<Held> {
        let fd = self.keep(fd).err()?;
        Held::new(fd, open_max()).ok()
    }

    fn keep_below(&self, fd: OwnedFd, max: usize) -> Result<(), OwnedFd> {
        let held = Held::new(fd, max)?;
        // Somebody else may have opened it meanwhile; one is enough.
        drop(self.fd.set(held));
        Ok(())
    }

    /// Absolute path: components joined by `/`, without the leading slash. The root is empty.
    ///
    /// Neither this nor any other path joined by `/` sorts in tree order: compare [`Dir::key`]s.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Appends the path with its components joined by the byte 0: such keys come in tree order under `memcmp`.
    pub fn key(&self, out: &mut Vec<u8>) {
        out.extend(self.path.iter().map(|&b| if b == b'/' { 0 } else { b }));
    }

    /// Appends the absolute path of an entry, leading slash included, as messages show it.
    pub fn path_of(&self, name: &[u8], out: &mut Vec<u8>) {
        if !self.path.is_empty() {
            out.push(b'/');
            out.extend_from_slice(&self.path);
        }
        out.push(b'/');
        out.extend_from_slice(name);
    }

    pub(crate) fn follow(&self) -> usize {
        self.follow
    }

    /// A descriptor of this directory, opened again if it is not held.
    ///
    /// # Errors
    /// Whatever opening it says: gone, denied, replaced by a symlink (`ELOOP`).
    pub fn fd(&self) -> io::Result<DirFd<'_>> {
        if let Some(fd) = self.fd.get() {
            return Ok(DirFd::Held(fd.as_fd()));
        }
        let fd = sys::open_dir_path(&self.path, self.follow)?;
        if let Err(fd) = self.keep_below(fd, open_max() + open_max() / 2) {
            return Ok(DirFd::Fresh(fd));
        }
        match self.fd.get() {
            Some(held) => Ok(DirFd::Held(held.as_fd())),
            None => Err(io::Error::from_raw_os_error(libc::EBADF)),
        }
    }

    /// Whether `O_NOATIME` is worth a try here.
    pub(crate) fn noatime(&self) -> bool {
        self.noatime.load(Ordering::Relaxed)
    }

    pub(crate) fn noatime_flag(&self) -> OFlags {
        if self.noatime() { OFlags::NOATIME } else { OFlags::empty() }
    }

    pub(crate) fn noatime_refused(&self) {
        self.noatime.store(false, Ordering::Relaxed);
    }
}
