//! A whole tree removed, without ever stepping out of it.
//!
//! Directories are opened by single names that are not followed, and removed by name in the held parent. Few of them
//! are held open: on the way back up from a deep one, `..` is taken only if it is the directory that was come from.

use std::collections::HashSet;
use std::mem::MaybeUninit;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, SeekFrom};
use rustix::io::Errno;

use super::entry::{FileId, stat_fd};
use super::error::{Error, Result};
use super::handle::Handle;
use crate::meta::Stat;
use crate::sys::open_retry;

/// Descriptors held at once; the deeper ones come first.
const HELD_MAX: usize = 48;
/// Failures that are listed; more are only counted.
const LISTED_MAX: usize = 100;

/// What [`super::TargetDir::remove_tree`] did.
#[derive(Debug, Default)]
pub struct Removed {
    /// Entries that are gone, the named one included.
    pub entries: u64,
    /// Entries that could not be removed (a directory is counted only if it failed itself, not for what is left in it).
    pub failures: u64,
    /// The first hundred of these, with the path from the named entry on.
    pub failed: Vec<(Vec<u8>, Error)>,
}

/// One directory on the way down.
struct Level {
    /// `None` while too many deeper ones are open.
    fd: Option<OwnedFd>,
    id: FileId,
    name: Vec<u8>,
    /// Subdirectories seen and not yet entered.
    subdirs: Vec<Vec<u8>>,
    /// Entries that could not be removed: not tried again when the listing comes back to them.
    stuck: HashSet<Box<[u8]>>,
    /// Whether something was removed since the listing was last begun.
    progress: bool,
}

struct Removal<'a> {
    top: BorrowedFd<'a>,
    device: u64,
    is_root: bool,
    levels: Vec<Level>,
    removed: Removed,
    buffer: Vec<MaybeUninit<u8>>,
}

/// Removes `name` in `top`; `Err` only if the named entry itself could not be looked at.
pub(super) fn tree(top: BorrowedFd<'_>, name: &[u8], is_root: bool) -> Result<Removed> {
    match fs::unlinkat(top, name, AtFlags::empty()) {
        Ok(()) => return Ok(Removed { entries: 1, ..Removed::default() }),
        // A directory; some file systems say EPERM.
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(e) => return Err(Error::system("remove", name, e)),
    }
    let device = stat_fd(top).map_err(|e| Error::system("stat", name, e))?.dev;
    let buffer = vec![MaybeUninit::uninit(); 1 << 15];
    let mut removal = Removal { top, device, is_root, levels: Vec::new(), removed: Removed::default(), buffer };
    match removal.enter(name.to_vec()) {
        Ok(()) => removal.run(),
        Err(e) => return Err(e),
    }
    Ok(removal.removed)
}

impl Removal<'_> {
    fn run(&mut self) {
        while let Some(level) = self.levels.last_mut() {
            if let Some(name) = level.subdirs.pop() {
                if let Err(e) = self.enter(name.clone()) {
                    self.fail(&name, e);
                }
            } else if !self.empty_some() && !self.leave() {
                return;
            }
        }
    }

    /// Removes what one buffer lists, except directories, which it keeps for later. False at the end of the listing.
    fn empty_some(&mut self) -> bool {
        let Some(level) = self.levels.last_mut() else { return false };
        let Some(fd) = level.fd.as_ref().map(AsFd::as_fd) else { return false };
        let (mut seen, mut gone) = (false, 0);
        let mut failed: Vec<(Vec<u8>, Errno)> = Vec::new();
        let mut entries = RawDir::new(fd, &mut self.buffer);
        while let Some(entry) = entries.next() {
            match entry {
                Ok(entry) => {
                    seen = true;
                    let name = entry.file_name();
                    if name == c"." || name == c".." || level.stuck.contains(name.to_bytes()) {
                        // Nothing to do.
                    } else if entry.file_type() == FileType::Directory {
                        level.subdirs.push(name.to_bytes().to_vec());
                    } else {
                        match fs::unlinkat(fd, name, AtFlags::empty()) {
                            Ok(()) => gone += 1,
                            Err(Errno::NOENT) => {}
                            // The listing may not know types.
                            Err(Errno::ISDIR) => level.subdirs.push(name.to_bytes().to_vec()),
                            Err(e) => failed.push((name.to_bytes().to_vec(), e)),
                        }
                    }
                }
                Err(e) => {
                    seen = false;
                    if e != Errno::NOENT {
                        failed.push((Vec::new(), e));
                    }
                    break;
                }
            }
            if entries.is_buffer_empty() {
                break;
            }
        }
        level.progress |= gone > 0;
        self.removed.entries += gone;
        for (name, e) in failed {
            let error = Error::system(if name.is_empty() { "list" } else { "remove" }, &name, e);
            self.fail(&name, error);
        }
        seen
    }

    /// Goes down into a subdirectory of the current one.
    fn enter(&mut self, name: Vec<u8>) -> Result<()> {
        let parent = match self.levels.last() {
            Some(level) => level.fd.as_ref().map(AsFd::as_fd).ok_or_else(|| Error::Swapped(name.clone()))?,
            None => self.top,
        };
        let (fd, stat) = open_to_empty(parent, &name, self.is_root)?;
        if stat.dev != self.device {
            return Err(Error::system("remove", &name, Errno::XDEV));
        }
        let id = FileId::of(&stat);
        self.levels.push(Level { fd: Some(fd), id, name, subdirs: Vec::new(), stuck: HashSet::new(), progress: false });
        if let Some(far) = self.levels.len().checked_sub(HELD_MAX + 1) {
            self.levels[far].fd = None;
        }
        Ok(())
    }

    /// Goes up from an emptied directory and removes it. False if the way up is lost.
    fn leave(&mut self) -> bool {
        let Some(mut level) = self.levels.pop() else { return false };
        if let Some(parent) = self.levels.last_mut()
            && parent.fd.is_none()
        {
            match up(&level, parent.id) {
                Ok(fd) => parent.fd = Some(fd),
                Err(e) => {
                    self.fail(&level.name, e);
                    return false;
                }
            }
        }
        if !level.stuck.is_empty() {
            if let Some(parent) = self.levels.last_mut() {
                parent.stuck.insert(level.name.into());
            }
            return true;
        }
        let parent = match self.levels.last() {
            Some(level) => match &level.fd {
                Some(fd) => fd.as_fd(),
                None => return false,
            },
            None => self.top,
        };
        match fs::unlinkat(parent, level.name.as_slice(), AtFlags::REMOVEDIR) {
            Ok(()) => {
                self.removed.entries += 1;
                if let Some(parent) = self.levels.last_mut() {
                    parent.progress = true;
                }
            }
            Err(Errno::NOENT) => {}
            // Some file systems lose their place in a directory that shrinks: look again, while that helps.
            Err(Errno::NOTEMPTY | Errno::EXIST)
                if level.progress && level.fd.as_ref().is_some_and(|fd| fs::seek(fd, SeekFrom::Start(0)).is_ok()) =>
            {
                level.progress = false;
                self.levels.push(level);
            }
            Err(e) => {
                let error = Error::system("remove", &level.name, e);
                self.fail(&level.name, error);
            }
        }
        true
    }

    /// Notes that `name` in the current directory (the directory itself, if empty) can't be removed.
    fn fail(&mut self, name: &[u8], error: Error) {
        self.removed.failures += 1;
        if let Some(level) = self.levels.last_mut() {
            level.stuck.insert(name.into());
        }
        if self.removed.failed.len() < LISTED_MAX {
            let above = self.levels.iter().map(|l| l.name.as_slice());
            let path = above.chain(Some(name).filter(|n| !n.is_empty())).collect::<Vec<_>>().join(&b'/');
            self.removed.failed.push((path, error));
        }
    }
}

/// The parent of a directory, if it still is the one that was come from.
fn up(level: &Level, parent: FileId) -> Result<OwnedFd> {
    let lost = || Error::Swapped(level.name.clone());
    let fd = level.fd.as_ref().ok_or_else(lost)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = open_retry(|| fs::openat(fd, c"..", flags, Mode::empty())).map_err(|e| Error::system("open", b"..", e))?;
    let stat = stat_fd(fd.as_fd()).map_err(|e| Error::system("stat", b"..", e))?;
    if FileId::of(&stat) == parent { Ok(fd) } else { Err(lost()) }
}

/// Opens a directory so that entries can be removed from it: never across a mount, with the user's own permissions
/// added.
fn open_to_empty(at: BorrowedFd<'_>, name: &[u8], is_root: bool) -> Result<(OwnedFd, Stat)> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let open = |flags: OFlags| match fs::openat2(at, name, flags, Mode::empty(), resolve) {
        // Without the call, a bind mount of the same file system goes unnoticed; other devices do not.
        Err(Errno::NOSYS | Errno::PERM | Errno::AGAIN) => fs::openat(at, name, flags, Mode::empty()),
        other => other,
    };
    let error = |e| match e {
        Errno::LOOP | Errno::NOTDIR => Error::Blocked(name.to_vec()),
        e => Error::system("remove", name, e),
    };
    let stat = |fd: &OwnedFd| stat_fd(fd.as_fd()).map_err(error);
    match open_retry(|| open(flags | OFlags::RDONLY)) {
        Ok(fd) => {
            let stat = stat(&fd)?;
            if !is_root && stat.mode & 0o700 != 0o700 {
                // A refusal shows when the entries are removed.
                let _ = Handle::open(fd.as_fd()).chmod(stat.mode | 0o700);
            }
            Ok((fd, stat))
        }
        Err(Errno::ACCESS) => {
            let pinned = open(flags | OFlags::PATH).map_err(error)?;
            let stat = stat(&pinned)?;
            Handle::path(pinned.as_fd()).chmod(stat.mode | 0o700).map_err(error)?;
            let fd = fs::openat(&pinned, c".", flags | OFlags::RDONLY, Mode::empty()).map_err(error)?;
            Ok((fd, stat))
        }
        Err(e) => Err(error(e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_up_must_be_the_way_down() {
        let home = tempfile::tempdir().expect("made");
        for name in ["a", "a/b", "c"] {
            std::fs::create_dir(home.path().join(name)).expect("made");
        }
        let open = |name: &str| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let fd = fs::open(home.path().join(name), flags, Mode::empty()).expect("opened");
            let id = FileId::of(&stat_fd(fd.as_fd()).expect("looked at"));
            (fd, id)
        };
        let ((_, a), (fd, id)) = (open("a"), open("a/b"));
        let b =
            Level { fd: Some(fd), id, name: b"b".to_vec(), subdirs: vec![], stuck: HashSet::new(), progress: false };
        assert!(up(&b, a).is_ok());
        std::fs::rename(home.path().join("a/b"), home.path().join("c/b")).expect("moved");
        assert!(matches!(up(&b, a), Err(Error::Swapped(_))), "somebody moved it while it was being emptied");
    }
}
