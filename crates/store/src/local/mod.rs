//! A store in a folder on a file system: ext4, XFS, btrfs, tmpfs, NFS, sshfs and their like, on Linux.
//!
//! ```text
//! <repository>/            mode 0700
//!   data/1f/1f00…         an object: the name is the path, mode 0444, never written again
//!   tmp/<writer>-<random>  an unfinished object
//! ```
//!
//! # What a crash leaves
//!
//! An object gets its name only when its data is durable, so it is complete or absent. The order is: data
//! (`fdatasync` of the file in `tmp/`) → name (`link` or `rename`) → folder (`fsync`, and of the folders above that
//! are new) → `put` or `sync` returns. Before the folder is synced, a crash may take the name away again, or bring back
//! the object that a replacement or a removal took away. What stays in `tmp/` goes with [`Store::clear_unfinished`].
//!
//! If a sync of a folder fails, nothing in it can be known to be durable from then on: every later `put` and `sync` of
//! this [`LocalStore`] fails too, until the store is opened anew.

mod folder;
mod list;
mod mount;
mod read;
mod temporary;
mod upload;
mod writer;

use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use crate::name::{self, TMP};
use crate::{Action, Cleared, Error, Kind, Listed, Put, Result, Soon, Store, Upload};
use folder::{Root, split};
use read::{Handles, Outcome};
use temporary::Temporary;
use writer::Writer;

/// A folder on a file system.
pub struct LocalStore {
    inner: Arc<Inner>,
}

struct Inner {
    root: Root,
    location: String,
    handles: Handles,
    /// Started by the first upload: a store that is only read has no thread. `None` if there is no starting one.
    writer: OnceLock<Option<Writer>>,
}

/// The folder that is made first for a new repository: left empty where there was no room for more.
const LEFT: &str = "keys";

impl LocalStore {
    /// Make a folder for a new repository, or take an empty one (a mount point, say). [`Kind::Exists`] if there is
    /// anything in it; [`Kind::Missing`] if the folder that it is to be made in does not exist.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let shown = path.display().to_string();
        let error = |errno| root_error(Action::Create, &shown, errno);
        let is_new = match retry_on_intr(|| fs::mkdir(path, Mode::from_raw_mode(0o700))) {
            Err(Errno::EXIST) => false,
            result => result.map(|()| true).map_err(error)?,
        };
        let root = Root::open(path).map_err(error)?;
        // What an interrupted attempt left, and what mkfs makes, is no obstacle.
        let io = |source| Error::new(Action::Create, "", &shown, source);
        for entry in std::fs::read_dir(path).map_err(io)? {
            let entry = entry.map_err(io)?;
            // An empty folder of any other name may be somebody's mount point that waits for its disk.
            let is_left = || {
                entry.file_name() == LEFT
                    && entry.file_type().is_ok_and(|sort| sort.is_dir())
                    && std::fs::read_dir(entry.path()).is_ok_and(|mut inner| inner.next().is_none())
            };
            if entry.file_name() != TMP && entry.file_name() != "lost+found" && !is_left() {
                let cause = "the folder is not empty; a new repository needs a new or empty folder";
                return Err(Error::because(Kind::Exists, Action::CreateRepository, "", &shown, cause));
            }
        }
        root.folder_made(TMP).map_err(error)?;
        root.persist([TMP].into_iter()).map_err(error)?;
        if is_new {
            root.persist_root().map_err(error)?;
        }
        Ok(Self::with(root, shown))
    }

    /// Open a repository's folder. [`Kind::Missing`] if there is none. Writes nothing.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let shown = path.as_ref().display().to_string();
        let root = Root::open(path.as_ref()).map_err(|errno| root_error(Action::Open, &shown, errno))?;
        Ok(Self::with(root, shown))
    }

    fn with(root: Root, location: String) -> Self {
        let inner = Inner { root, location, handles: Handles::default(), writer: OnceLock::new() };
        Self { inner: Arc::new(inner) }
    }

    fn error(&self, action: Action, name: &str, errno: Errno) -> Error {
        self.inner.error(action, name, errno)
    }

    fn check(&self, action: Action, name: &str) -> Result<()> {
        name::check(action, name, &self.inner.location)
    }

    /// An error that says there is no such object, unless the whole repository is gone.
    fn missing(&self, action: Action, name: &str) -> Error {
        match self.linked(action) {
            Ok(()) => {
                let cause = "there is no such object";
                Error::because(Kind::Missing, action, name, &self.inner.location, cause)
            }
            Err(error) => error,
        }
    }

    /// Why an object could not be read.
    fn unread(&self, name: &str, source: io::Error) -> Error {
        match Errno::from_io_error(&source) {
            Some(Errno::NOENT) => self.missing(Action::Read, name),
            Some(errno) => self.error(Action::Read, name, errno),
            None => Error::new(Action::Read, name, &self.inner.location, source),
        }
    }

    /// "Not there" is an answer only while the repository is there. [`Kind::Io`], so that nobody takes it for one.
    fn linked(&self, action: Action) -> Result<()> {
        if self.inner.root.is_linked().map_err(|errno| self.error(action, "", errno))? {
            return Ok(());
        }
        let cause = "the repository's folder has been removed while it was in use";
        Err(Error::because(Kind::Io, action, "", &self.inner.location, cause))
    }

    fn write_whole(&self, name: &str, bytes: &[u8], how: Put) -> rustix::io::Result<()> {
        let root = &self.inner.root;
        let temporary = Temporary::create(root, OFlags::empty())?;
        let written = temporary.file().write_all_at(bytes, 0);
        written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        retry_on_intr(|| fs::fdatasync(temporary.file()))?;
        if how == Put::Replace {
            // Before, as it may be what stands in the way, and after, as others may have read meanwhile.
            self.inner.handles.forget(name);
        }
        let folder = split(name).0;
        // Nor has, perhaps, whoever has put what is there already.
        temporary.publish(root, name, how).inspect_err(|e| {
            if *e == Errno::EXIST {
                root.mark(folder)
            }
        })?;
        if how == Put::Replace {
            self.inner.handles.forget(name);
        }
        root.persist([folder].into_iter())
    }
}

impl Inner {
    fn writer(&self) -> Option<&Writer> {
        self.writer.get_or_init(|| Writer::start().ok()).as_ref()
    }

    /// What the system said, in words where its own would mislead.
    fn error(&self, action: Action, name: &str, errno: Errno) -> Error {
        let because = |kind, cause: &str| Error::because(kind, action, name, &self.location, cause);
        match errno {
            Errno::NOTDIR => because(Kind::Io, "there is a file where a folder should be"),
            Errno::ISDIR => because(Kind::Io, "there is a folder where a file should be"),
            Errno::LOOP => {
                because(Kind::Refused, "it is, or leads through, a symbolic link, and these are not followed here")
            }
            Errno::NOTSUP | Errno::NXIO if matches!(action, Action::Read | Action::Find | Action::List) => {
                because(Kind::Refused, "it is neither a file nor a folder")
            }
            Errno::EXIST => because(Kind::Exists, "an object of that name exists already"),
            Errno::STALE if action == Action::Write => because(
                Kind::Transient,
                "its unfinished file is gone: another run took this one for dead, or the storage was mounted anew",
            ),
            errno => Error::new(action, name, &self.location, errno),
        }
    }
}

/// An error about the repository's folder itself.
fn root_error(action: Action, location: &str, errno: Errno) -> Error {
    match errno {
        Errno::NOTDIR => {
            Error::because(Kind::Io, action, "", location, "it is, or leads through, a file, not a folder")
        }
        errno => Error::new(action, "", location, errno),
    }
}

impl Store for LocalStore {
    fn location(&self) -> String {
        self.inner.location.clone()
    }

    fn is_far(&self) -> bool {
        self.inner.root.is_far()
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed)) -> Result<()> {
        name::check_prefix(Action::List, prefix, &self.inner.location)?;
        match list::list(&self.inner.root, prefix, each) {
            // A folder that is not there is no error; the repository's own is.
            Err((Errno::NOENT, name)) => return Err(self.missing(Action::List, &name)),
            result => result.map_err(|(errno, name)| self.error(Action::List, &name, errno))?,
        }
        self.linked(Action::List)
    }

    fn len(&self, name: &str) -> Result<Option<u64>> {
        self.check(Action::Find, name)?;
        let root = &self.inner.root;
        let stat = root.patiently(|| Ok(root.open_at(name, OFlags::PATH).and_then(fs::fstat)?));
        let stat = stat.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO));
        match stat.map(|stat| (FileType::from_raw_mode(stat.st_mode), stat.st_size)) {
            Ok((FileType::RegularFile, len)) => Ok(Some(len.unsigned_abs())),
            Ok((FileType::Directory, _)) | Err(Errno::NOENT) => self.linked(Action::Find).map(|()| None),
            // Without openat2, the link itself has been opened.
            Ok((FileType::Symlink, _)) => Err(self.error(Action::Find, name, Errno::LOOP)),
            Ok(_) => Err(self.error(Action::Find, name, Errno::NOTSUP)),
            Err(errno) => Err(self.error(Action::Find, name, errno)),
        }
    }

    fn get(&self, name: &str) -> Result<Vec<u8>> {
        self.check(Action::Read, name)?;
        // Always opened anew: what `get` reads is what gets replaced.
        let root = &self.inner.root;
        root.patiently(|| self.inner.handles.open(root, name)?.read_all()).map_err(|source| self.unread(name, source))
    }

    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.check(Action::Read, name)?;
        let wanted = offset.saturating_add(buf.len() as u64);
        let root = &self.inner.root;
        match root.patiently(|| self.inner.handles.read_at(root, name, offset, buf)) {
            Ok(Outcome::Filled) => Ok(()),
            Ok(Outcome::Ends(len)) => Err(Error::truncated(Action::Read, name, &self.inner.location, wanted, len)),
            Err(source) => Err(self.unread(name, source)),
        }
    }

    fn expect(&self, soon: Soon<'_>) {
        if let Soon::Range { name, offset, len } = soon
            && self.check(Action::Read, name).is_ok()
        {
            self.inner.handles.read_ahead(&self.inner.root, name, offset, len);
        }
    }

    fn put(&self, name: &str, bytes: &[u8], how: Put) -> Result<()> {
        self.check(Action::Write, name)?;
        self.write_whole(name, bytes, how).map_err(|errno| self.error(Action::Write, name, errno))
    }

    fn upload(&self, name: &str, len_hint: u64) -> Result<Box<dyn Upload>> {
        self.check(Action::Write, name)?;
        let upload = upload::LocalUpload::begin(Arc::clone(&self.inner), name, len_hint);
        Ok(Box::new(upload.map_err(|errno| self.error(Action::Write, name, errno))?))
    }

    fn sync(&self) -> Result<()> {
        self.inner.root.sync().map_err(|errno| self.error(Action::Persist, "", errno))
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.check(Action::Delete, name)?;
        let (folder, file) = split(name);
        let removed = self.inner.root.folder(folder).and_then(|folder| fs::unlinkat(folder, file, AtFlags::empty()));
        self.inner.handles.forget(name);
        match removed {
            Ok(()) => self.inner.root.mark(folder),
            // A folder of that name is no object. Whoever has removed it may not have come to make that durable.
            Err(Errno::NOENT | Errno::ISDIR) => {
                self.linked(Action::Delete)?;
                self.inner.root.mark_if_there(folder);
            }
            Err(errno) => return Err(self.error(Action::Delete, name, errno)),
        }
        Ok(())
    }

    fn clear_unfinished(&self) -> Result<Cleared> {
        temporary::clear(&self.inner.root).map_err(|(errno, name)| self.error(Action::Delete, &name, errno))
    }
}

#[cfg(test)]
mod tests;
