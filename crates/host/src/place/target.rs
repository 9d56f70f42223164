//! The folder that a restore writes into, and what is known of the process that does.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustix::fd::AsFd;
use rustix::fs::{self, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::apply::Now;
use super::dir::TargetDir;
use super::error::{Error, Result};
use super::gathered::Gathered;
use super::gift::Gift;
use super::resolve;

/// Idle buffers for big files kept for the next one.
const BUFFERS_KEPT_MAX: usize = 4;

/// The folder that entries are created below.
pub struct Target {
    root: Arc<TargetDir>,
    is_made: bool,
}

/// What all handles below one target share.
pub(super) struct Shared {
    /// Nothing was in the target when it was opened, and nothing made since that hands on something of its own:
    /// directories below it are new, and all alike.
    alike: AtomicBool,
    /// What new files in such directories have, and the directories themselves, if nothing is inherited there.
    pub gift: OnceLock<Gift>,
    pub new_dir: OnceLock<Option<Now>>,
    pub euid: u32,
    /// Groups that an ordinary user may give a file to, once it is clear that this user is one.
    groups: Vec<u32>,
    /// Giving a file to another owner was refused: not tried again.
    chown_refused: AtomicBool,
    /// Permission bits that creating takes away; all of them where it can't be known.
    pub umask: u32,
    buffers: Mutex<Vec<Gathered>>,
}

impl Target {
    /// Opens the folder at `path`, with its missing parents created first if `create` says so.
    ///
    /// `path` is the user's own word, so symlinks in it are followed; nothing below it is.
    pub fn open(path: &Path, create: bool) -> Result<Target> {
        let bytes = path.as_os_str().as_bytes();
        let is_made =
            create && make(path).map_err(|source| Error::System { op: "create", name: bytes.to_vec(), source })?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = fs::openat(CWD, path, flags, Mode::empty()).map_err(|e| Error::system("open", bytes, e))?;
        let root = Arc::new(TargetDir::new(fd, true, Arc::new(Shared::new())));
        root.shared().alike.store(root.list().is_ok_and(|names| names.is_empty()), Ordering::Relaxed);
        Ok(Target { root, is_made })
    }

    /// Whether it was made when it was opened: for nobody else, until it gets its metadata.
    pub fn is_made(&self) -> bool {
        self.is_made
    }

    /// Remove it again, if it was made at `path` when it was opened and nothing is in it.
    pub fn withdraw(&self, path: &Path) {
        if self.is_made {
            // One with anything in it stays.
            let _ = std::fs::remove_dir(path);
        }
    }

    /// Whether all directories below it are new: made since it was opened, by whom it was opened for.
    pub fn is_new(&self) -> bool {
        self.root.shared().are_alike()
    }

    /// The folder itself.
    pub fn root(&self) -> &Arc<TargetDir> {
        &self.root
    }

    /// The existing directory at `path` below the folder: components joined by `/`, none of them `.` or `..`, of any
    /// length; the empty path is the folder. A symlink on the way is refused ([`Error::Blocked`]).
    pub fn dir(&self, path: &[u8]) -> Result<Arc<TargetDir>> {
        let opened = resolve::open_path(self.root.fd(), path)?;
        let dir = TargetDir::new(opened.fd, opened.readable, Arc::clone(self.root.shared()));
        Ok(Arc::new(if path.is_empty() { dir } else { dir.new_one() }))
    }

    /// Makes everything written to the target's file system durable. Once, at the end of a restore.
    pub fn sync(&self) -> Result<()> {
        match fs::syncfs(self.root.fd().as_fd()) {
            Ok(()) => Ok(()),
            Err(e) => Err(Error::system("sync", b".", e)),
        }
    }
}

/// Make a folder for nobody else, and what leads to it, unless it is there: whether it was made.
fn make(path: &Path) -> std::io::Result<bool> {
    if let Some(above) = path.parent() {
        std::fs::create_dir_all(above)?;
    }
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => Ok(true),
        // Whatever it is, opening it tells.
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        Err(_) if path.is_dir() => Ok(false),
        Err(e) => Err(e),
    }
}

impl Shared {
    fn new() -> Self {
        Shared {
            alike: AtomicBool::new(false),
            gift: OnceLock::new(),
            new_dir: OnceLock::new(),
            euid: rustix::process::geteuid().as_raw(),
            groups: own_groups(),
            chown_refused: AtomicBool::new(false),
            umask: umask(),
            buffers: Mutex::new(Vec::new()),
        }
    }

    /// Whether directories below the target, but for itself, are new and all alike.
    pub fn are_alike(&self) -> bool {
        self.alike.load(Ordering::Relaxed)
    }

    /// One of them hands on something of its own.
    pub fn are_different(&self) {
        self.alike.store(false, Ordering::Relaxed);
    }

    /// Whether giving a file to another owner is worth a try.
    pub fn may_chown(&self) -> bool {
        !self.chown_refused.load(Ordering::Relaxed)
    }

    /// Whether giving a file to this group is worth a try.
    pub fn may_chgrp(&self, gid: u32) -> bool {
        self.may_chown() || self.groups.contains(&gid)
    }

    /// Remembers a refusal. Root is refused only for reasons of the file at hand, so for root it says nothing of the
    /// next.
    pub fn chown_failed(&self, errno: Errno) {
        if errno == Errno::PERM && self.euid != 0 {
            self.chown_refused.store(true, Ordering::Relaxed);
        }
    }

    pub fn take_buffer(&self) -> Option<Gathered> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    pub fn give_buffer(&self, buffer: Gathered) {
        let mut idle = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < BUFFERS_KEPT_MAX {
            idle.push(buffer);
        }
    }
}

fn own_groups() -> Vec<u32> {
    let mut groups: Vec<u32> = rustix::process::getgroups()
        .map(|all| all.into_iter().map(rustix::process::Gid::as_raw).collect())
        .unwrap_or_default();
    groups.push(rustix::process::getegid().as_raw());
    groups
}

/// Read from `/proc`, since the system call can't ask without changing it for all threads.
fn umask() -> u32 {
    std::fs::read_to_string("/proc/thread-self/status")
        .ok()
        .and_then(|s| s.lines().find_map(|l| u32::from_str_radix(l.strip_prefix("Umask:")?.trim(), 8).ok()))
        .unwrap_or(0o777)
}
