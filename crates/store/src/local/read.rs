//! Reading objects, with a few descriptors kept open so that many small reads in one pack cost one `pread` each.
//!
//! A descriptor shows the file that bore the name when it was opened. [`super::LocalStore`] forgets it when it
//! replaces or removes the object itself. Another process may do so too: objects up to [`REPLACED_BYTES_MAX`], among
//! which are all that anybody ever replaces, are checked to have a name still before each read; larger ones never
//! change and may at worst be read a little longer than they exist.
//!
//! Nothing is memory-mapped: a file that shrinks must give an error and no SIGBUS.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::fs::{self, Advice, FileType, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::folder::Root;
use crate::descriptors;
use crate::{TOO_LONG, WHOLE_BYTES_MAX};

/// How many descriptors are kept open, where there are many to be had.
pub(super) const HANDLES_MAX: usize = 64;

/// How many are kept open: of few descriptors a part, since whoever else needs one can't take them away.
fn handles_max() -> usize {
    static MAX: OnceLock<usize> = OnceLock::new();
    *MAX.get_or_init(|| {
        let soft = getrlimit(Resource::Nofile).current.unwrap_or(1024);
        usize::try_from(soft / 4).unwrap_or(usize::MAX).clamp(4, HANDLES_MAX)
    })
}

/// Objects of up to this length may be replaced: `put` is for those of a few MiB.
const REPLACED_BYTES_MAX: u64 = 8 << 20;

/// An object open for reading.
pub(super) struct Handle {
    file: File,
    len: u64,
}

/// What came of a read.
pub(super) enum Outcome {
    /// The buffer is full.
    Filled,
    /// The object ends too early, after so many bytes.
    Ends(u64),
}

impl Handle {
    /// Open the object `name`. A folder of that name is no object: [`Errno::NOENT`]. [`Errno::LOOP`] for a symbolic
    /// link, [`Errno::NOTSUP`] for what else is no regular file.
    pub(super) fn open(root: &Root, name: &str) -> rustix::io::Result<Self> {
        // Without NONBLOCK, a named pipe that somebody planted would hold us for ever.
        let fd = root.open_once(name, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        let stat = fs::fstat(&fd)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(Self { file: File::from(fd), len: stat.st_size.unsigned_abs() }),
            FileType::Directory => Err(Errno::NOENT),
            _ => Err(Errno::NOTSUP),
        }
    }

    /// The whole object.
    pub(super) fn read_all(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        // A sparse file may claim any length.
        let len = usize::try_from(self.len).ok().filter(|_| self.len <= WHOLE_BYTES_MAX);
        let len = len.ok_or_else(|| io::Error::other(TOO_LONG))?;
        bytes.try_reserve_exact(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        (&self.file).take(self.len).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn read_at(&self, mut offset: u64, mut buf: &mut [u8]) -> io::Result<Outcome> {
        let end = offset.checked_add(buf.len() as u64);
        if buf.is_empty() || end.is_none_or(|end| end > i64::MAX.unsigned_abs()) {
            let len = self.file.metadata()?.len();
            return Ok(if end.is_some_and(|end| end <= len) { Outcome::Filled } else { Outcome::Ends(len) });
        }
        while !buf.is_empty() {
            match self.file.read_at(buf, offset) {
                Ok(0) => return Ok(Outcome::Ends(self.file.metadata()?.len())),
                Ok(count) => {
                    buf = &mut buf[count..];
                    offset += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Outcome::Filled)
    }

    /// Whether the file still has a name.
    fn is_current(&self) -> bool {
        self.len > REPLACED_BYTES_MAX || fs::fstat(&self.file).is_ok_and(|stat| stat.st_nlink > 0)
    }
}

/// The descriptors that are kept, the one longest unused to be given up first.
#[derive(Default)]
pub(super) struct Handles {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    handles: HashMap<String, (Arc<Handle>, u64)>,
    /// Counts uses.
    now: u64,
    /// Counts calls of `forget`: a handle opened before one must not be kept after it.
    forgotten: u64,
}

impl Handles {
    /// Fill `buf` from `offset` of the object `name`.
    pub(super) fn read_at(&self, root: &Root, name: &str, offset: u64, buf: &mut [u8]) -> io::Result<Outcome> {
        if let Some(handle) = self.find(name) {
            // A network file system says ESTALE of a file that was removed elsewhere: then see what has the name now.
            match handle.read_at(offset, buf) {
                Err(error) if Errno::from_io_error(&error) == Some(Errno::STALE) => self.forget(name),
                result => return result,
            }
        }
        let forgotten = self.kept().forgotten;
        let handle = Arc::new(self.open(root, name)?);
        self.keep(name, &handle, forgotten);
        handle.read_at(offset, buf)
    }

    /// Have the system read a range into its cache, which nobody waits for. What goes wrong shows when it is read.
    pub(super) fn read_ahead(&self, root: &Root, name: &str, offset: u64, len: usize) {
        let handle = self.find(name).or_else(|| {
            let forgotten = self.kept().forgotten;
            let handle = Arc::new(Handle::open(root, name).ok()?);
            self.keep(name, &handle, forgotten);
            Some(handle)
        });
        if let (Some(handle), Some(len)) = (handle, NonZeroU64::new(len as u64)) {
            let _ = fs::fadvise(&handle.file, offset, Some(len), Advice::WillNeed);
        }
    }

    /// Open the object `name`. Where descriptors are short those that are kept go first, and then others' are waited
    /// for.
    pub(super) fn open(&self, root: &Root, name: &str) -> rustix::io::Result<Handle> {
        descriptors::wait_for(|| {
            let opened = Handle::open(root, name);
            if matches!(opened, Err(Errno::MFILE | Errno::NFILE)) {
                let kept = std::mem::take(&mut self.kept().handles);
                drop(kept);
            }
            opened
        })
    }

    /// Give up the descriptor of `name`: it may be another file's name now, or nobody's.
    pub(super) fn forget(&self, name: &str) {
        let mut kept = self.kept();
        kept.forgotten += 1;
        let handle = kept.handles.remove(name);
        drop(kept);
        // Closed without the lock: closing the last descriptor of a removed file frees its blocks.
        drop(handle);
    }

    fn find(&self, name: &str) -> Option<Arc<Handle>> {
        let mut kept = self.kept();
        kept.now += 1;
        let now = kept.now;
        let (handle, used) = kept.handles.get_mut(name)?;
        *used = now;
        let handle = Arc::clone(handle);
        drop(kept);
        if handle.is_current() {
            return Some(handle);
        }
        self.forget(name);
        None
    }

    fn keep(&self, name: &str, handle: &Arc<Handle>, forgotten: u64) {
        let mut kept = self.kept();
        if kept.forgotten != forgotten {
            return;
        }
        let mut evicted = None;
        if kept.handles.len() >= handles_max()
            && let Some(oldest) = kept.handles.iter().min_by_key(|(_, (_, used))| *used).map(|(name, _)| name.clone())
        {
            evicted = kept.handles.remove(&oldest);
        }
        let now = kept.now;
        kept.handles.insert(name.to_owned(), (Arc::clone(handle), now));
        drop(kept);
        drop(evicted);
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open_descriptors(dir: &std::path::Path) -> usize {
        let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        links.filter_map(|entry| std::fs::read_link(entry.path()).ok()).filter(|path| path.starts_with(dir)).count()
    }

    fn read(handles: &Handles, root: &Root, name: &str) -> io::Result<Vec<u8>> {
        let mut buf = [0; 3];
        match handles.read_at(root, name, 0, &mut buf)? {
            Outcome::Filled => Ok(buf.to_vec()),
            Outcome::Ends(len) => panic!("ends after {len}"),
        }
    }

    #[test]
    fn no_more_descriptors_than_allowed_and_the_oldest_goes() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let handles = Handles::default();
        let before = open_descriptors(dir.path());
        for i in 0..HANDLES_MAX + 10 {
            std::fs::write(dir.path().join(i.to_string()), b"abc").unwrap();
            read(&handles, &root, &i.to_string()).unwrap();
            read(&handles, &root, "0").unwrap();
        }
        assert_eq!(open_descriptors(dir.path()) - before, HANDLES_MAX);
        assert!(handles.kept().handles.contains_key("0"), "the one in use all the time stays");
        assert!(!handles.kept().handles.contains_key("1"));
    }

    #[test]
    fn a_replacement_by_another_process_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let handles = Handles::default();
        let object = dir.path().join("a");
        std::fs::write(&object, b"old").unwrap();
        assert_eq!(read(&handles, &root, "a").unwrap(), b"old");
        std::fs::write(dir.path().join("b"), b"new").unwrap();
        std::fs::rename(dir.path().join("b"), &object).unwrap();
        assert_eq!(read(&handles, &root, "a").unwrap(), b"new");
        std::fs::remove_file(&object).unwrap();
        assert_eq!(read(&handles, &root, "a").unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn what_was_forgotten_while_it_was_opened_is_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        std::fs::write(dir.path().join("a"), b"old").unwrap();
        let handles = Handles::default();
        let forgotten = handles.kept().forgotten;
        let handle = Arc::new(Handle::open(&root, "a").unwrap());
        handles.forget("a");
        handles.keep("a", &handle, forgotten);
        assert!(handles.find("a").is_none());
    }

    #[test]
    fn a_pipe_is_no_object_and_does_not_block() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        fs::mknodat(fs::CWD, dir.path().join("pipe"), FileType::Fifo, fs::Mode::from_raw_mode(0o600), 0).unwrap();
        assert_eq!(Handle::open(&root, "pipe").err(), Some(Errno::NOTSUP));
    }
}
