//! One directory of the target, held open: entries are created, opened, linked and listed in it by single names.

use std::sync::{Arc, OnceLock};

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::apply::{self, Attributes, Now, Wanted};
use super::entry::{self, FileId};
use super::error::{Error, Problems, Result};
use super::file::{self, NewFile, TempFile, free_name, temp_name};
use super::gift::{self, Gift, MODE_NEW};
use super::handle::{Handle, proc_path};
use super::list::{self, Names};
use super::locked;
use super::remove::{self, Removed};
use super::resolve::{self, check_name};
use super::target::Shared;
use crate::filter::Filter;
use crate::meta::{Kind, Stat};
use crate::sys::open_retry;

/// A directory at or below the target. Costs one descriptor; share it by `Arc` while entries in it are being restored.
pub struct TargetDir {
    fd: OwnedFd,
    /// False where the user may enter but not list: the descriptor is `O_PATH`.
    readable: bool,
    shared: Arc<Shared>,
    /// It is one of those that are all alike.
    is_alike: bool,
    gift: OnceLock<Gift>,
}

impl TargetDir {
    pub(super) fn new(fd: OwnedFd, readable: bool, shared: Arc<Shared>) -> Self {
        TargetDir { fd, readable, shared, is_alike: false, gift: OnceLock::new() }
    }

    /// It was made since the target was opened, if that was empty then.
    pub(super) fn new_one(self) -> Self {
        TargetDir { is_alike: self.shared.are_alike(), ..self }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Makes the directory `name`, mode 0700 until [`TargetDir::finish_dir`]. An error if anything of that name is
    /// there ([`Error::is_exists`]).
    pub fn make_dir(&self, name: &[u8]) -> Result<Arc<TargetDir>> {
        self.create_dir(name, 0)?;
        match self.open_dir(name) {
            // What was just made is a directory and was there.
            Err(Error::Blocked(_)) => Err(Error::Swapped(name.to_vec())),
            Err(e) if e.is_missing() => Err(Error::Swapped(name.to_vec())),
            other => other,
        }
    }

    /// Creates a directory without opening it. Of the inode flags that it shall have, those are set that work only
    /// while it is empty (see [`TargetDir::set_early_flags`]).
    pub fn create_dir(&self, name: &[u8], flags: u32) -> Result<()> {
        check_name(name)?;
        fs::mkdirat(&self.fd, name, Mode::RWXU).map_err(|e| Error::system("create", name, e))?;
        if apply::has_early_flags(flags) {
            // What is made in it inherits them.
            self.shared.are_different();
            self.open_dir(name)?.set_early_flags(flags);
        }
        Ok(())
    }

    /// Opens the existing directory `name`; a symlink or another kind of entry is refused ([`Error::Blocked`]).
    pub fn open_dir(&self, name: &[u8]) -> Result<Arc<TargetDir>> {
        let opened = resolve::open_dir(self.fd(), name)?;
        Ok(Arc::new(TargetDir::new(opened.fd, opened.readable, Arc::clone(&self.shared))))
    }

    /// Opens the existing directory `name` and makes it usable: immutable and append-only are lifted, the user's own
    /// permissions added. For restores in place; [`TargetDir::finish_dir`] sets what shall be.
    pub fn open_dir_for_writing(&self, name: &[u8]) -> Result<Arc<TargetDir>> {
        let mut dir = resolve::open_dir(self.fd(), name)?;
        let handle = if dir.readable { Handle::open(dir.fd.as_fd()) } else { Handle::path(dir.fd.as_fd()) };
        let stat = entry::stat_fd(dir.fd.as_fd()).map_err(|e| Error::system("stat", name, e))?;
        if self.shared.euid != 0 && stat.mode & 0o700 != 0o700 {
            handle.chmod(stat.mode | 0o700).map_err(|e| Error::system("open for writing", name, e))?;
        }
        if !dir.readable {
            dir = resolve::open_path(dir.fd.as_fd(), b"")?;
        }
        if dir.readable {
            apply::unlock(Handle::open(dir.fd.as_fd()), Kind::Dir);
        }
        Ok(Arc::new(TargetDir::new(dir.fd, dir.readable, Arc::clone(&self.shared))))
    }

    /// Makes the existing directory `name` usable for a while, if by its mode or flags it isn't: as one that was
    /// restored before. Who may not, is told by what comes next.
    pub fn open_up(&self, name: &[u8], stat: &Stat) {
        if self.shared.euid == 0 {
            // Only root may lift flags, and needs no more than that.
            if let Ok(dir) = resolve::open_dir(self.fd(), name) {
                apply::unlock(Handle::open(dir.fd.as_fd()), Kind::Dir);
            }
        } else if stat.mode & 0o700 != 0o700 {
            let _ = self.open_dir_for_writing(name);
        }
    }

    /// Sets the inode flags of `flags` that only work while this directory is empty (case-insensitive names, no copy on
    /// write, compression): right after [`TargetDir::make_dir`].
    pub fn set_early_flags(&self, flags: u32) {
        apply::apply_early_flags(self.handle(), flags);
    }

    /// Gives this directory its metadata: after the last change in it, and after its subdirectories. Files created
    /// through the same handle later might not get what their directory hands on by then.
    ///
    /// # Errors
    /// That the directory can't be looked at. What it doesn't take of its metadata is a problem, not an error: the rest
    /// is set all the same.
    pub fn finish_dir(&self, wanted: &Wanted<'_>) -> Result<Problems> {
        let now = match self.new_dir()? {
            Some(now) => now,
            None => {
                let stat = self.stat_self()?;
                Now { mtime: Some(stat.mtime), ..Now::of(&stat, Attributes::Any) }
            }
        };
        let mut problems = Problems::new();
        apply::apply(self.handle(), &now, wanted, &self.shared, &mut problems);
        apply::apply_flags(self.handle(), &now, wanted, &mut problems);
        Ok(problems)
    }

    /// The same of a directory in which more will be made: with setgid that inherits the group which it has from now on,
    /// and is unlike what is made elsewhere.
    pub fn finish_dir_early(&self, wanted: &Wanted<'_>) -> Result<Problems> {
        if wanted.mode & 0o2000 != 0 {
            self.shared.are_different();
        }
        self.finish_dir(wanted)
    }

    /// What it has, if it is new, and like others of which that is known.
    fn new_dir(&self) -> Result<Option<Now>> {
        if !(self.is_alike && self.shared.are_alike()) {
            return Ok(None);
        }
        if let Some(known) = self.shared.new_dir.get() {
            return Ok(*known);
        }
        let stat = self.stat_self()?;
        let inherits = gift::inherits(self.handle());
        let now = (!inherits && self.readable).then(|| Now::of(&stat, Attributes::None));
        Ok(*self.shared.new_dir.get_or_init(|| now))
    }

    /// Creates the regular file `name`, empty, mode 0600, open for writing and reading back. Never opens what is there.
    pub fn create_file(self: &Arc<Self>, name: &[u8]) -> Result<NewFile> {
        check_name(name)?;
        let fd = self.create(name, MODE_NEW)?;
        NewFile::new(fd, self, name).inspect_err(|_| self.take_back(name))
    }

    /// Removes a file that was just made and has not become what it was to be: it would pass for that.
    fn take_back(&self, name: &[u8]) {
        let _ = fs::unlinkat(&self.fd, name, AtFlags::empty());
    }

    /// Creates the regular file `name` with all its contents and metadata at once: the short way for small files.
    ///
    /// Where nothing speaks against it the file has its final mode from the start, so others may see it half written
    /// for some microseconds if they can enter the directory; in a place that is in use, take
    /// [`TargetDir::create_temp`].
    ///
    /// # Errors
    /// That the name is taken, or no name; that the file can't be made, or its contents not be written: it is removed
    /// again then. What it doesn't take of its metadata is a problem, not an error.
    pub fn place_file(&self, name: &[u8], contents: &[u8], wanted: &Wanted<'_>) -> Result<Problems> {
        check_name(name)?;
        let mut problems = Problems::new();
        let mode = wanted.mode & 0o7777;
        // With attributes to set, the file has to stay writable to its owner for a while.
        let direct = wanted.extras.xattrs.is_empty()
            && self.gift().get().is_some_and(|g| g.allows(mode, wanted.owner, self.shared.umask));
        let fd = self.create(name, if direct { mode } else { MODE_NEW })?;
        let learnt = self.learn(fd.as_fd()).inspect_err(|_| self.take_back(name));
        let mut now = learnt.map_err(|e| Error::system("stat", name, e))?;
        if direct {
            now.mode = mode;
        }
        let handle = Handle::open(fd.as_fd());
        apply::apply_early_flags(handle, wanted.extras.flags);
        let written = file::write_all(fd.as_fd(), contents);
        if let Err(e) = written {
            self.take_back(name);
            return Err(Error::system("write", name, e));
        }
        apply::apply(handle, &now, wanted, &self.shared, &mut problems);
        apply::apply_flags(handle, &now, wanted, &mut problems);
        if let Err(e) = file::close(fd) {
            self.take_back(name);
            return Err(Error::system("write", name, e));
        }
        Ok(problems)
    }

    /// Creates a file beside the others under a name of its own (`.drumlin-<random>.tmp`), to take the place of another
    /// by [`TempFile::commit_as`] once its contents are complete and proven. Dropped before that, it is removed.
    pub fn create_temp(self: &Arc<Self>) -> Result<TempFile> {
        TempFile::create(self)
    }

    /// Opens the existing regular file `name` for writing at offsets, if it is still the one with that id.
    pub fn reopen_file(self: &Arc<Self>, name: &[u8], id: FileId) -> Result<NewFile> {
        let (fd, stat) = self.open_regular(name, OFlags::RDWR)?;
        if FileId::of(&stat) != id {
            return Err(Error::Swapped(name.to_vec()));
        }
        Ok(NewFile::existing(fd, self, name, &stat))
    }

    /// Opens the existing regular file `name` for reading, to compare it. Anything else is refused
    /// ([`Error::Blocked`]).
    pub fn open_existing(&self, name: &[u8]) -> Result<(std::fs::File, Stat)> {
        let (fd, stat) = self.open_regular(name, OFlags::RDONLY)?;
        Ok((std::fs::File::from(fd), stat))
    }

    /// Makes `name` another name of the entry `from_name` in the directory `from`; a symlink is linked itself. With
    /// `id`, the link is taken back if it turns out to be another file.
    pub fn hard_link(&self, name: &[u8], from: &TargetDir, from_name: &[u8], id: Option<FileId>) -> Result<()> {
        check_name(name)?;
        check_name(from_name)?;
        fs::linkat(&from.fd, from_name, &self.fd, name, AtFlags::empty())
            .map_err(|e| Error::system("link", name, e))?;
        if let Some(id) = id
            && self.stat(name)?.map(|s| FileId::of(&s)) != Some(id)
        {
            let _ = fs::unlinkat(&self.fd, name, AtFlags::empty());
            return Err(Error::Swapped(from_name.to_vec()));
        }
        Ok(())
    }

    /// Puts what `make` makes, under the name that it is given, into the place of `name`, in one step: if that fails,
    /// or nothing was made, what has the name stays. A directory of that name is not replaced: `make` removes it last.
    ///
    /// # Errors
    /// Those of `make`; that the name can't be taken. Nothing is left under the other name.
    pub fn replace_by<T>(&self, name: &[u8], make: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
        check_name(name)?;
        let temporary = temp_name();
        let replaced = make(&temporary).and_then(|made| match self.replace(&temporary, name) {
            Ok(()) | Err(Errno::NOENT) => Ok(made),
            Err(e) => Err(Error::system("replace", name, e)),
        });
        // Of two names of one file a rename does nothing, and says that it did.
        let _ = fs::unlinkat(&self.fd, temporary.as_slice(), AtFlags::empty());
        replaced
    }

    /// Gives the entry `from` the name `name`, in place of what has it, even if that is immutable or append-only.
    pub(super) fn replace(&self, from: &[u8], name: &[u8]) -> rustix::io::Result<()> {
        let rename = || fs::renameat(&self.fd, from, &self.fd, name);
        match rename() {
            Err(Errno::PERM) => locked::while_unlocked(self.fd(), name, rename).unwrap_or(Err(Errno::PERM)),
            other => other,
        }
    }

    /// Gives the entry `name` another name in this directory, which is the answer: one that nothing has, and nobody
    /// guesses.
    pub fn set_aside(&self, name: &[u8]) -> Result<Vec<u8>> {
        let aside = free_name("old");
        self.rename(name, self, &aside).map(|()| aside)
    }

    /// Moves `name` to `new_name` in the directory `to`, replacing what is there, as `rename` does.
    pub fn rename(&self, name: &[u8], to: &TargetDir, new_name: &[u8]) -> Result<()> {
        check_name(name)?;
        check_name(new_name)?;
        fs::renameat(&self.fd, name, &to.fd, new_name).map_err(|e| Error::system("rename", name, e))
    }

    /// Removes the entry `name`, if it isn't a directory that has entries. A symlink is removed, not its target.
    pub fn remove(&self, name: &[u8]) -> Result<()> {
        check_name(name)?;
        match fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) if self.is_dir(name) => fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR),
            other => other,
        }
        .map_err(|e| Error::system("remove", name, e))
    }

    /// Removes the entry `name` with all that is below it. Symlinks and mounted file systems are not entered; what
    /// can't be removed is listed in the answer and does not stop the rest.
    pub fn remove_tree(&self, name: &[u8]) -> Result<Removed> {
        check_name(name)?;
        remove::tree(self.fd(), name, self.shared.euid == 0)
    }

    /// Does something while immutable and append-only are lifted from the file `name`; `None` if it has neither, or
    /// they can't be lifted.
    pub fn while_unlocked<T>(&self, name: &[u8], work: impl FnOnce() -> Result<T>) -> Option<Result<T>> {
        locked::while_unlocked(self.fd(), name, work)
    }

    /// Changes only the metadata of the existing entry `name`, which must be of that kind, and still the one with that
    /// id (else [`Error::Swapped`]).
    ///
    /// # Errors
    /// [`Error::Shared`]: something would have to be changed, and it has other names, which may stand anywhere and be
    /// anybody's.
    pub fn amend(&self, name: &[u8], kind: Kind, id: FileId, wanted: &Wanted<'_>) -> Result<Problems> {
        self.with_amendable(name, kind, id, wanted, |handle, now| {
            let mut problems = Problems::new();
            apply::apply(handle, now, wanted, &self.shared, &mut problems);
            apply::apply_flags(handle, now, wanted, &mut problems);
            problems
        })
    }

    /// Whether [`TargetDir::amend`] would do that; nothing is changed.
    ///
    /// # Errors
    /// As [`TargetDir::amend`].
    pub fn may_amend(&self, name: &[u8], kind: Kind, id: FileId, wanted: &Wanted<'_>) -> Result<()> {
        self.with_amendable(name, kind, id, wanted, |_, _| ())
    }

    fn with_amendable<T>(
        &self,
        name: &[u8],
        kind: Kind,
        id: FileId,
        wanted: &Wanted<'_>,
        work: impl FnOnce(Handle<'_>, &Now) -> T,
    ) -> Result<T> {
        let (pinned, stat) = self.pin(name)?;
        if stat.kind != kind || FileId::of(&stat) != id {
            return Err(Error::Swapped(name.to_vec()));
        }
        // Known to be a file or a directory now, so that opening it has no effect of its own.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = match kind {
            Kind::File | Kind::Dir => fs::open(proc_path(pinned.as_fd()), flags, Mode::empty()).ok(),
            _ => None,
        };
        let handle = opened.as_ref().map_or(Handle::path(pinned.as_fd()), |fd| Handle::open(fd.as_fd()));
        let now = Now { mtime: Some(stat.mtime), ..Now::of(&stat, Attributes::Any) };
        if kind != Kind::Dir && stat.nlink > 1 && apply::differs(handle, &now, wanted, &self.shared) {
            return Err(Error::Shared(name.to_vec()));
        }
        Ok(work(handle, &now))
    }

    /// What `name` is, or `None` if nothing of that name is there. Symlinks are not followed.
    pub fn stat(&self, name: &[u8]) -> Result<Option<Stat>> {
        check_name(name)?;
        match entry::stat_at(self.fd(), name) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(Error::system("stat", name, e)),
        }
    }

    /// What this directory itself is.
    pub fn stat_self(&self) -> Result<Stat> {
        entry::stat_fd(self.fd()).map_err(|e| Error::system("stat", b".", e))
    }

    /// The target of the symlink `name`.
    pub fn read_link(&self, name: &[u8]) -> Result<Vec<u8>> {
        check_name(name)?;
        fs::readlinkat(&self.fd, name, Vec::new())
            .map(std::ffi::CString::into_bytes)
            .map_err(|e| Error::system("read", name, e))
    }

    /// All names in this directory, sorted bytewise, without `.` and `..`.
    pub fn list(&self) -> Result<Names> {
        list::list(self.fd()).map_err(|e| Error::system("list", b".", e))
    }

    /// Whether a file in this directory, whose entries are `names`, marks it as one of which a backup by these rules
    /// saves nothing else.
    pub fn is_marked(&self, names: &Names, filter: &Filter) -> bool {
        filter.tag(self.fd(), |name| names.contains(name)).is_some()
    }

    /// Makes the entries of this directory durable (their names, not what they hold).
    pub fn sync(&self) -> Result<()> {
        fs::fsync(&self.fd).map_err(|e| Error::system("sync", b".", e))
    }

    pub(super) fn create(&self, name: &[u8], mode: u16) -> Result<OwnedFd> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CLOEXEC;
        open_retry(|| fs::openat(&self.fd, name, flags, Mode::from_raw_mode(u32::from(mode))))
            .map_err(|e| Error::system("create", name, e))
    }

    /// What a file has that was just created here with [`MODE_NEW`].
    pub(super) fn learn(&self, fd: BorrowedFd<'_>) -> rustix::io::Result<Now> {
        match self.gift().get() {
            Some(gift) => Ok(gift.now()),
            None => {
                let gift = Gift::learn(fd)?;
                Ok(self.gift().get_or_init(|| gift).now())
            }
        }
    }

    /// What new files in it have, once one was looked at: in it, or in another that is like it.
    fn gift(&self) -> &OnceLock<Gift> {
        if self.is_alike && self.shared.are_alike() { &self.shared.gift } else { &self.gift }
    }

    /// Holds an entry of any kind by its inode, without opening it.
    pub(super) fn pin(&self, name: &[u8]) -> Result<(OwnedFd, Stat)> {
        check_name(name)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = open_retry(|| fs::openat(&self.fd, name, flags, Mode::empty()))
            .map_err(|e| Error::system("open", name, e))?;
        let stat = entry::stat_fd(fd.as_fd()).map_err(|e| Error::system("stat", name, e))?;
        Ok((fd, stat))
    }

    fn open_regular(&self, name: &[u8], access: OFlags) -> Result<(OwnedFd, Stat)> {
        check_name(name)?;
        let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = open_retry(|| fs::openat(&self.fd, name, flags, Mode::empty())).map_err(|e| match e {
            Errno::LOOP => Error::Blocked(name.to_vec()),
            e => Error::system("open", name, e),
        })?;
        let stat = entry::stat_fd(fd.as_fd()).map_err(|e| Error::system("stat", name, e))?;
        if stat.kind == Kind::File { Ok((fd, stat)) } else { Err(Error::Blocked(name.to_vec())) }
    }

    fn is_dir(&self, name: &[u8]) -> bool {
        entry::stat_at(self.fd(), name).is_ok_and(|s| s.kind == Kind::Dir)
    }

    fn handle(&self) -> Handle<'_> {
        if self.readable { Handle::open(self.fd()) } else { Handle::path(self.fd()) }
    }
}
