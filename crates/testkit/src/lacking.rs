//! A file system that lacks what others have: hard links, renames that replace nothing, direct writes. FAT lacks the
//! first, old SMB servers and some of FUSE's more of them.

use crate::numberless::{AT_ONCE, attributes, kind, part};
use fuser::{
    BackgroundSession, BsdFileFlags, Config, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// What it lacks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lacks {
    /// Hard links.
    pub links: bool,
    /// `RENAME_NOREPLACE`.
    pub new_names: bool,
    /// `O_DIRECT`. As the kernel does it, a file that was to be created with it is there all the same.
    pub direct: bool,
}

/// A write, as it came to the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Each opening of a file has a number of its own.
    pub opening: u64,
    /// Bytes before it in the file.
    pub offset: u64,
    /// Bytes of it.
    pub len: u64,
}

/// A folder shown at another place, to be read and written, without what it lacks; unmounted when dropped.
pub struct Lacking {
    at: PathBuf,
    writes: Arc<Mutex<Vec<Written>>>,
    _session: BackgroundSession,
}

impl Lacking {
    /// Show `folder` at the empty folder `at`. `None` if this user may not mount, or there is no FUSE.
    pub fn mount(folder: &Path, at: &Path, lacks: Lacks) -> Option<Self> {
        let root = u64::from(INodeNo::ROOT);
        let nodes = Nodes {
            paths: HashMap::from([(root, folder.to_owned())]),
            numbers: HashMap::from([(folder.to_owned(), root)]),
            linked: HashSet::new(),
            last: root,
        };
        let writes = Arc::default();
        let shown = Shown {
            folder: folder.to_owned(),
            lacks,
            writes: Arc::clone(&writes),
            nodes: Mutex::new(nodes),
            files: Mutex::default(),
            lists: Mutex::default(),
        };
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("lacking".into())];
        let session = fuser::spawn_mount(shown, at, &config).ok()?;
        Some(Lacking { at: at.to_owned(), writes, _session: session })
    }

    /// All writes since this was asked last, in their order.
    pub fn writes(&self) -> Vec<Written> {
        std::mem::take(&mut lock(&self.writes))
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.at
    }
}

/// What the kernel calls by numbers, and where it lies.
struct Nodes {
    paths: HashMap<u64, PathBuf>,
    /// A file with two names has both of them here.
    numbers: HashMap<PathBuf, u64>,
    /// Those that have been given a second name.
    linked: HashSet<u64>,
    last: u64,
}

impl Nodes {
    fn number(&mut self, path: &Path) -> u64 {
        if let Some(number) = self.numbers.get(path) {
            return *number;
        }
        self.last += 1;
        self.paths.insert(self.last, path.to_owned());
        self.numbers.insert(path.to_owned(), self.last);
        self.last
    }

    fn link(&mut self, number: u64, path: &Path) {
        self.numbers.insert(path.to_owned(), number);
        self.linked.insert(number);
    }

    fn gone(&mut self, path: &Path) {
        let Some(number) = self.numbers.remove(path) else { return };
        let other = match self.linked.contains(&number) {
            true => self.numbers.iter().find(|(_, of)| **of == number).map(|(path, _)| path.clone()),
            false => None,
        };
        match other {
            Some(path) => self.paths.insert(number, path),
            None => self.paths.remove(&number),
        };
    }

    fn moved(&mut self, from: &Path, to: &Path) {
        self.gone(to);
        let below: Vec<(PathBuf, u64)> = self
            .numbers
            .iter()
            .filter(|(path, _)| path.starts_with(from))
            .map(|(path, number)| (path.clone(), *number))
            .collect();
        for (path, number) in below {
            let rest = path.strip_prefix(from).unwrap_or(Path::new(""));
            let new = if rest.as_os_str().is_empty() { to.to_owned() } else { to.join(rest) };
            self.numbers.remove(&path);
            self.numbers.insert(new.clone(), number);
            if self.paths.get(&number) == Some(&path) {
                self.paths.insert(number, new);
            }
        }
    }
}

/// What is open, by handles.
struct Open<T> {
    open: HashMap<u64, Arc<T>>,
    last: u64,
}

impl<T> Default for Open<T> {
    fn default() -> Self {
        Open { open: HashMap::new(), last: 0 }
    }
}

impl<T> Open<T> {
    fn keep(&mut self, what: T) -> FileHandle {
        self.last += 1;
        self.open.insert(self.last, Arc::new(what));
        FileHandle(self.last)
    }
}

type Entries = Vec<(INodeNo, FileType, OsString)>;

struct Shown {
    folder: PathBuf,
    lacks: Lacks,
    writes: Arc<Mutex<Vec<Written>>>,
    nodes: Mutex<Nodes>,
    files: Mutex<Open<File>>,
    lists: Mutex<Open<Entries>>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shown {
    fn path(&self, number: INodeNo) -> io::Result<PathBuf> {
        let path = lock(&self.nodes).paths.get(&u64::from(number)).cloned();
        path.ok_or_else(|| io::Error::from_raw_os_error(libc::ESTALE))
    }

    fn file(&self, handle: FileHandle) -> io::Result<Arc<File>> {
        let file = lock(&self.files).open.get(&handle.0).cloned();
        file.ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    fn list(&self, folder: &Path) -> io::Result<Entries> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let number = lock(&self.nodes).number(&entry.path());
            entries.push((INodeNo(number), kind(entry.file_type()?), entry.file_name()));
        }
        Ok(entries)
    }

    fn look(&self, path: &Path) -> io::Result<FileAttr> {
        let meta = fs::symlink_metadata(path)?;
        Ok(attributes(INodeNo(lock(&self.nodes).number(path)), &meta))
    }

    /// What is known of a file, by its name or, if it has none any more, as it is open.
    fn attributes(&self, number: INodeNo, handle: Option<FileHandle>) -> io::Result<FileAttr> {
        match handle.and_then(|handle| self.file(handle).ok()) {
            Some(file) => Ok(attributes(number, &file.metadata()?)),
            None => Ok(attributes(number, &fs::symlink_metadata(self.path(number)?)?)),
        }
    }

    fn refuses(&self, flags: i32) -> io::Result<()> {
        match self.lacks.direct && flags & libc::O_DIRECT != 0 {
            true => Err(io::Error::from_raw_os_error(libc::EINVAL)),
            false => Ok(()),
        }
    }

    fn rename(&self, from: &Path, to: &Path, flags: RenameFlags) -> io::Result<()> {
        if flags.is_empty() {
            fs::rename(from, to)?;
        } else {
            if self.lacks.new_names || flags != RenameFlags::RENAME_NOREPLACE {
                return Err(io::Error::from_raw_os_error(libc::EINVAL));
            }
            let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
            rustix::fs::renameat_with(rustix::fs::CWD, from, rustix::fs::CWD, to, flags)?;
        }
        lock(&self.nodes).moved(from, to);
        Ok(())
    }
}

fn empty(done: io::Result<()>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(e.into()),
    }
}

fn entry(found: io::Result<FileAttr>, reply: ReplyEntry) {
    match found {
        Ok(attributes) => reply.entry(&AT_ONCE, &attributes, Generation(0)),
        Err(e) => reply.error(e.into()),
    }
}

impl Filesystem for Shown {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entry(self.path(parent).and_then(|folder| self.look(&folder.join(name))), reply);
    }

    fn getattr(&self, _: &Request, number: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(number, handle) {
            Ok(attributes) => reply.attr(&AT_ONCE, &attributes),
            Err(e) => reply.error(e.into()),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        mode: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = || -> io::Result<FileAttr> {
            if let Some(mode) = mode {
                fs::set_permissions(self.path(number)?, fs::Permissions::from_mode(mode))?;
            }
            if let Some(size) = size {
                match handle.and_then(|handle| self.file(handle).ok()) {
                    Some(file) => file.set_len(size)?,
                    None => OpenOptions::new().write(true).open(self.path(number)?)?.set_len(size)?,
                }
            }
            self.attributes(number, handle)
        };
        match set() {
            Ok(attributes) => reply.attr(&AT_ONCE, &attributes),
            Err(e) => reply.error(e.into()),
        }
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let make = || {
            let path = self.path(parent)?.join(name);
            fs::DirBuilder::new().mode(mode & !umask).create(&path)?;
            self.look(&path)
        };
        entry(make(), reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let remove = || {
            let path = self.path(parent)?.join(name);
            fs::remove_file(&path)?;
            lock(&self.nodes).gone(&path);
            Ok(())
        };
        empty(remove(), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let remove = || {
            let path = self.path(parent)?.join(name);
            fs::remove_dir(&path)?;
            lock(&self.nodes).gone(&path);
            Ok(())
        };
        empty(remove(), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        to: INodeNo,
        new: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let rename = || self.rename(&self.path(parent)?.join(name), &self.path(to)?.join(new), flags);
        empty(rename(), reply);
    }

    fn link(&self, _: &Request, number: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let link = || {
            if self.lacks.links {
                return Err(io::Error::from_raw_os_error(libc::EPERM));
            }
            let path = self.path(parent)?.join(name);
            fs::hard_link(self.path(number)?, &path)?;
            lock(&self.nodes).link(number.into(), &path);
            self.look(&path)
        };
        entry(link(), reply);
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let open = || {
            self.refuses(flags.0)?;
            let how = flags.0 & libc::O_ACCMODE;
            let (reads, writes) = (how != libc::O_WRONLY, how != libc::O_RDONLY);
            OpenOptions::new().read(reads).write(writes).open(self.path(number)?)
        };
        match open() {
            Ok(file) => reply.opened(lock(&self.files).keep(file), FopenFlags::empty()),
            Err(e) => reply.error(e.into()),
        }
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let create = || -> io::Result<(File, FileAttr)> {
            let path = self.path(parent)?.join(name);
            let mut how = OpenOptions::new();
            how.read(true).write(true).mode(mode & !umask);
            match flags & libc::O_EXCL {
                0 => how.create(true),
                _ => how.create_new(true),
            };
            let file = how.open(&path)?;
            self.refuses(flags)?;
            Ok((file, self.look(&path)?))
        };
        match create() {
            Ok((file, attributes)) => {
                reply.created(&AT_ONCE, &attributes, Generation(0), lock(&self.files).keep(file), FopenFlags::empty());
            }
            Err(e) => reply.error(e.into()),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.file(handle).and_then(|file| part(&file, offset, size)) {
            Ok(bytes) => reply.data(&bytes),
            Err(e) => reply.error(e.into()),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        lock(&self.writes).push(Written { opening: handle.0, offset, len: data.len() as u64 });
        match self.file(handle).and_then(|file| file.write_all_at(data, offset)) {
            Ok(()) => reply.written(data.len() as u32),
            Err(e) => reply.error(e.into()),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        lock(&self.files).open.remove(&handle.0);
        reply.ok();
    }

    // No test cuts its power.
    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.path(number).and_then(|folder| self.list(&folder)) {
            Ok(entries) => reply.opened(lock(&self.lists).keep(entries), FopenFlags::empty()),
            Err(e) => reply.error(e.into()),
        }
    }

    fn readdir(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        // As it was when it was opened: what comes and goes meanwhile moves nothing.
        let entries = lock(&self.lists).open.get(&handle.0).cloned().unwrap_or_default();
        for (at, (number, kind, name)) in entries.iter().enumerate().skip(offset as usize) {
            if reply.add(*number, at as u64 + 1, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        lock(&self.lists).open.remove(&handle.0);
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match rustix::fs::statvfs(&self.folder) {
            Ok(all) => reply.statfs(
                all.f_blocks,
                all.f_bfree,
                all.f_bavail,
                all.f_files,
                all.f_ffree,
                all.f_bsize as u32,
                all.f_namemax as u32,
                all.f_frsize as u32,
            ),
            Err(e) => reply.error(io::Error::from(e).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, renameat_with};

    #[test]
    fn it_lacks_what_it_is_to_lack_and_nothing_else() {
        let home = tempfile::tempdir().unwrap();
        for (n, missing) in [false, true].into_iter().enumerate() {
            let (folder, at) = (home.path().join(format!("folder{n}")), home.path().join(format!("at{n}")));
            fs::create_dir(&folder).unwrap();
            fs::create_dir(&at).unwrap();
            let lacks = Lacks { links: missing, new_names: missing, direct: missing };
            let Some(mounted) = Lacking::mount(&folder, &at, lacks) else {
                return eprintln!("no FUSE here: nothing was tried");
            };
            let name = |of: &str| mounted.path().join(of);
            fs::create_dir(name("deep")).unwrap();
            fs::write(name("deep/a"), vec![7; 300_000]).unwrap();
            fs::rename(name("deep"), name("deeper")).unwrap();
            assert_eq!(fs::read(name("deeper/a")).unwrap(), vec![7; 300_000]);
            assert_eq!(fs::hard_link(name("deeper/a"), name("b")).is_err(), missing);
            fs::write(name("c"), "c").unwrap();
            fs::write(name("d"), "d").unwrap();
            let flags = rustix::fs::RenameFlags::NOREPLACE;
            assert!(renameat_with(CWD, name("c"), CWD, name("d"), flags).is_err());
            assert_eq!(renameat_with(CWD, name("c"), CWD, name("e"), flags).is_err(), missing);
            let direct = OpenOptions::new().write(true).create_new(true).custom_flags(libc::O_DIRECT).open(name("f"));
            assert_eq!(direct.is_err(), missing);
            assert!(folder.join("f").exists());
            fs::remove_file(name("d")).unwrap();
            assert!(!folder.join("d").exists() && fs::read(name("d")).is_err());
        }
    }
}
