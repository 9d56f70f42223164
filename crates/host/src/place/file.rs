//! Regular files of the target while they are being written.
//!
//! A new file belongs to this process alone (mode 0600) until its metadata is given to it. A file that takes the place
//! of another is written beside it and renamed over it last, so at each moment one of the two is there whole; after a
//! crash without [`TempFile::sync`] it is up to the file system whether the new one has its contents yet.

use std::sync::Arc;

use rustix::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use rustix::fs::{self, AtFlags, RenameFlags};
use rustix::io::Errno;

use super::apply::{self, Attributes, Now, Wanted};
use super::dir::TargetDir;
use super::entry::{self, FileId};
use super::error::{Error, Problems, Result};
use super::gift::MODE_NEW;
use super::handle::Handle;
use crate::meta::Stat;
use crate::sys::open_retry;

/// A regular file open for writing. Parts may be written in any order and by several threads.
///
/// Dropped without [`NewFile::finish`] it stays as it is, incomplete: the caller then removes it.
pub struct NewFile {
    fd: OwnedFd,
    dir: Arc<TargetDir>,
    name: Box<[u8]>,
    now: Now,
}

impl NewFile {
    pub(super) fn new(fd: OwnedFd, dir: &Arc<TargetDir>, name: &[u8]) -> Result<Self> {
        let now = dir.learn(fd.as_fd()).map_err(|e| Error::system("stat", name, e))?;
        Ok(NewFile { fd, dir: Arc::clone(dir), name: name.into(), now })
    }

    pub(super) fn existing(fd: OwnedFd, dir: &Arc<TargetDir>, name: &[u8], stat: &Stat) -> Self {
        NewFile { fd, dir: Arc::clone(dir), name: name.into(), now: Now::of(stat, Attributes::Any) }
    }

    /// Sets the inode flags of `flags` that only work while the file is empty (no copy on write, compression).
    pub fn set_early_flags(&self, flags: u32) {
        apply::apply_early_flags(Handle::open(self.fd()), flags);
    }

    /// Writes all of `data` at `offset`. What is never written and not beyond the end is a hole.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        write_all_at(self.fd(), offset, data).map_err(|e| self.error("write", e))
    }

    /// Sets the length: what is added is a hole.
    pub fn set_len(&self, size: u64) -> Result<()> {
        fs::ftruncate(&self.fd, size).map_err(|e| self.error("write", e))
    }

    /// Reserves room for `size` bytes, so that a full disk shows before the work and the file lies in one piece. Leaves
    /// no holes. A file system that can't do that is no error.
    pub fn reserve(&self, size: u64) -> Result<()> {
        match fs::fallocate(&self.fd, fs::FallocateFlags::empty(), 0, size) {
            Err(e @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(self.error("write", e)),
            _ => Ok(()),
        }
    }

    /// Reads back up to `buffer.len()` bytes at `offset`; 0 at the end.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        loop {
            match rustix::io::pread(&self.fd, &mut *buffer, offset) {
                Err(Errno::INTR) => {}
                other => return other.map_err(|e| self.error("read", e)),
            }
        }
    }

    /// Which inode this is: for hard links, and for [`TargetDir::reopen_file`].
    pub fn id(&self) -> Result<FileId> {
        let stat = entry::stat_fd(self.fd()).map_err(|e| self.error("stat", e))?;
        Ok(FileId::of(&stat))
    }

    /// The name that it was created with.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Makes the contents durable.
    pub fn sync(&self) -> Result<()> {
        fs::fdatasync(&self.fd).map_err(|e| self.error("sync", e))
    }

    /// Gives the file its metadata and closes it: after the last write. If it turns out only then that what was written
    /// is lost, the file is removed.
    pub fn finish(self, wanted: &Wanted<'_>) -> Result<Problems> {
        let mut problems = Problems::new();
        apply::apply(Handle::open(self.fd()), &self.now, wanted, self.dir.shared(), &mut problems);
        apply::apply_flags(Handle::open(self.fd()), &self.now, wanted, &mut problems);
        let NewFile { fd, name, dir, .. } = self;
        close(fd).map_err(|e| {
            let _ = fs::unlinkat(dir.fd(), &*name, AtFlags::empty());
            Error::system("write", &name, e)
        })?;
        Ok(problems)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(super) fn dir(&self) -> &Arc<TargetDir> {
        &self.dir
    }

    pub(super) fn owner(&self) -> u32 {
        self.now.uid
    }

    pub(super) fn error(&self, op: &'static str, errno: Errno) -> Error {
        Error::system(op, &self.name, errno)
    }
}

/// A file beside the one that it will replace; written like any [`NewFile`]. Removed when dropped without a commit.
pub struct TempFile {
    /// `None` only once it is committed.
    file: Option<NewFile>,
    dir: Arc<TargetDir>,
}

impl TempFile {
    pub(super) fn create(dir: &Arc<TargetDir>) -> Result<Self> {
        let mut last = Errno::EXIST;
        for _ in 0..16 {
            let name = temp_name();
            match dir.create(&name, MODE_NEW) {
                Ok(fd) => {
                    return match NewFile::new(fd, dir, &name) {
                        Ok(file) => Ok(TempFile { file: Some(file), dir: Arc::clone(dir) }),
                        Err(e) => {
                            let _ = fs::unlinkat(dir.fd(), name.as_slice(), AtFlags::empty());
                            Err(e)
                        }
                    };
                }
                Err(e) if e.is_exists() => last = Errno::EXIST,
                Err(e) => return Err(e),
            }
        }
        Err(Error::system("create", b".drumlin-*.tmp", last))
    }

    /// Gives the file its metadata and puts it in the place of `name`, in the same directory: from then on the old
    /// entry is gone. The old one may be anything but a directory, which the caller removes first.
    pub fn commit_as(self, name: &[u8], wanted: &Wanted<'_>) -> Result<Problems> {
        let dir = self.dir.clone();
        self.commit(name, wanted, |_, from| dir.replace(from, name))
    }

    /// Gives the file its metadata and the name `name`, which nothing has: an error if something has it by now
    /// ([`Error::is_exists`]).
    pub fn commit_new(self, name: &[u8], wanted: &Wanted<'_>) -> Result<Problems> {
        self.commit(name, wanted, |dir, from| {
            match fs::renameat_with(dir, from, dir, name, RenameFlags::NOREPLACE) {
                // A file system, or a kernel, that can't promise that.
                Err(Errno::INVAL | Errno::NOSYS) => match entry::stat_at(dir, name) {
                    Err(Errno::NOENT) => fs::renameat(dir, from, dir, name),
                    Ok(_) => Err(Errno::EXIST),
                    Err(e) => Err(e),
                },
                other => other,
            }
        })
    }

    fn commit(
        mut self,
        name: &[u8],
        wanted: &Wanted<'_>,
        rename: impl FnOnce(BorrowedFd<'_>, &[u8]) -> rustix::io::Result<()>,
    ) -> Result<Problems> {
        super::resolve::check_name(name)?;
        let mut problems = Problems::new();
        if let Some(file) = &self.file {
            let handle = Handle::open(file.fd());
            apply::apply(handle, &file.now, wanted, self.dir.shared(), &mut problems);
            hear(file.fd()).map_err(|e| Error::system("write", name, e))?;
            rename(self.dir.fd(), &file.name).map_err(|e| Error::system("replace", name, e))?;
        }
        if let Some(file) = self.file.take() {
            // After the rename, which an immutable file refuses.
            apply::apply_flags(Handle::open(file.fd()), &file.now, wanted, &mut problems);
            close(file.fd).map_err(|e| Error::system("write", name, e))?;
        }
        Ok(problems)
    }
}

impl std::ops::Deref for TempFile {
    type Target = NewFile;

    fn deref(&self) -> &NewFile {
        match &self.file {
            Some(file) => file,
            None => unreachable!("only a commit takes the file, and it takes the whole value"),
        }
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            let _ = fs::unlinkat(self.dir.fd(), &*file.name, AtFlags::empty());
        }
    }
}

/// The name of what is in the making.
pub(super) fn temp_name() -> Vec<u8> {
    free_name("tmp")
}

/// Names nobody can guess, so nobody can occupy them all.
pub(super) fn free_name(suffix: &str) -> Vec<u8> {
    let mut random = [0u8; 8];
    // SAFETY: the pointer and length are those of a live array; the call writes at most that many bytes.
    let n = unsafe { libc::getrandom(random.as_mut_ptr().cast(), random.len(), libc::GRND_NONBLOCK) };
    if n != 8 {
        // Early boot or a sandbox. The exclusive create is what keeps this safe; the name only has to be free.
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        random = (time.as_nanos() as u64 ^ (u64::from(std::process::id()) << 40)).to_le_bytes();
    }
    format!(".drumlin-{:016x}.{suffix}", u64::from_le_bytes(random)).into_bytes()
}

/// Whether a name is one that [`super::TargetDir::set_aside`] gives.
pub fn is_aside(name: &[u8]) -> bool {
    let random = name.strip_prefix(b".drumlin-").and_then(|rest| rest.strip_suffix(b".old"));
    random.is_some_and(|random| random.len() == 16 && random.iter().all(u8::is_ascii_hexdigit))
}

/// Writes everything at the descriptor's own position: the start of a new file.
pub(super) fn write_all(fd: BorrowedFd<'_>, mut data: &[u8]) -> rustix::io::Result<()> {
    while !data.is_empty() {
        match rustix::io::write(fd, data) {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => data = &data[n..],
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

pub(super) fn write_all_at(fd: BorrowedFd<'_>, mut offset: u64, mut data: &[u8]) -> rustix::io::Result<()> {
    while !data.is_empty() {
        match rustix::io::pwrite(fd, data, offset) {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => (offset, data) = (offset + n as u64, &data[n..]),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// What closing would say, while the file stays open: a file system far away tells there that it has no room.
fn hear(fd: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let copy = || fd.try_clone_to_owned().map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO));
    close(open_retry(copy)?)
}

/// Closes and listens: network file systems and quotas may report a lost write only here.
pub(super) fn close(fd: OwnedFd) -> rustix::io::Result<()> {
    // SAFETY: the descriptor was owned by `fd`, which gave it up; nobody else closes it.
    if unsafe { libc::close(fd.into_raw_fd()) } == 0 {
        return Ok(());
    }
    match std::io::Error::last_os_error().raw_os_error() {
        // The descriptor is closed in that case too, on Linux.
        Some(libc::EINTR) | None => Ok(()),
        Some(e) => Err(Errno::from_raw_os_error(e)),
    }
}
