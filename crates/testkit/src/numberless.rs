//! A file system that has no inode numbers of its own, as FUSE's, FAT's and some servers' don't: each mount gives
//! others.

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEntry, ReplyOpen, Request,
};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A folder shown at another place, to be read alone, with all but the inode numbers as it is; unmounted when dropped.
pub struct Numberless {
    at: PathBuf,
    _session: BackgroundSession,
}

impl Numberless {
    /// Show `folder` at the empty folder `at`, with numbers from `first` on in the order in which files are asked for.
    /// `None` if this user may not mount, or there is no FUSE.
    pub fn mount(folder: &Path, at: &Path, first: u64) -> Option<Self> {
        Self::show(folder, at, first, Told::AsItIs)
    }

    /// The same, with files that say that they are empty, and aren't.
    pub fn mount_lengthless(folder: &Path, at: &Path) -> Option<Self> {
        Self::show(folder, at, 2, Told::Empty)
    }

    /// The same, with files that say that they take a block each, as where they are compressed.
    pub fn mount_compressed(folder: &Path, at: &Path) -> Option<Self> {
        Self::show(folder, at, 2, Told::Compressed)
    }

    fn show(folder: &Path, at: &Path, first: u64, told: Told) -> Option<Self> {
        let shown = Shown { files: Mutex::new(vec![folder.to_owned()]), first: first.max(2), told };
        let mut config = Config::default();
        config.mount_options = vec![MountOption::RO, MountOption::FSName("numberless".into())];
        let session = fuser::spawn_mount(shown, at, &config).ok()?;
        Some(Numberless { at: at.to_owned(), _session: session })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.at
    }
}

/// Nothing is remembered by the kernel, so that what is done behind its back is seen.
pub(crate) const AT_ONCE: Duration = Duration::ZERO;

struct Shown {
    /// By number: the folder itself, which always has the first, then `first` and those after it.
    files: Mutex<Vec<PathBuf>>,
    first: u64,
    told: Told,
}

/// What is said of the lengths of files.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    AsItIs,
    Empty,
    Compressed,
}

impl Shown {
    fn path(&self, number: INodeNo) -> Result<PathBuf, Errno> {
        let at = if number == INodeNo::ROOT {
            0
        } else {
            u64::from(number).checked_sub(self.first).ok_or(Errno::ENOENT)? + 1
        };
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.get(at as usize).cloned().ok_or(Errno::ENOENT)
    }

    fn number(&self, path: PathBuf) -> INodeNo {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let at = files.iter().position(|known| *known == path).unwrap_or_else(|| {
            files.push(path);
            files.len() - 1
        });
        if at == 0 { INodeNo::ROOT } else { INodeNo(self.first + at as u64 - 1) }
    }

    fn attributes(&self, path: PathBuf) -> io::Result<FileAttr> {
        let meta = fs::symlink_metadata(&path)?;
        let attributes = attributes(self.number(path), &meta);
        Ok(match self.told {
            Told::Empty if meta.is_file() => FileAttr { size: 0, ..attributes },
            Told::Compressed if meta.is_file() => FileAttr { blocks: 1, ..attributes },
            _ => attributes,
        })
    }

    fn entries(&self, folder: &Path) -> io::Result<Vec<(INodeNo, FileType, OsString)>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            entries.push((self.number(entry.path()), kind(entry.file_type()?), entry.file_name()));
        }
        entries.sort_by(|a, b| a.2.cmp(&b.2));
        Ok(entries)
    }
}

/// A part of a file, or what there is of it.
pub(crate) fn part(file: &File, offset: u64, size: u32) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; size as usize];
    let mut had = 0;
    while had < bytes.len() {
        match file.read_at(&mut bytes[had..], offset + had as u64)? {
            0 => break,
            more => had += more,
        }
    }
    bytes.truncate(had);
    Ok(bytes)
}

pub(crate) fn kind(of: fs::FileType) -> FileType {
    match of {
        of if of.is_dir() => FileType::Directory,
        of if of.is_symlink() => FileType::Symlink,
        of if of.is_fifo() => FileType::NamedPipe,
        of if of.is_socket() => FileType::Socket,
        of if of.is_char_device() => FileType::CharDevice,
        of if of.is_block_device() => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

fn time(sec: i64, nsec: i64) -> SystemTime {
    let whole = Duration::from_secs(sec.unsigned_abs());
    let second = if sec < 0 { UNIX_EPOCH - whole } else { UNIX_EPOCH + whole };
    second + Duration::from_nanos(nsec.unsigned_abs())
}

pub(crate) fn attributes(ino: INodeNo, meta: &Metadata) -> FileAttr {
    FileAttr {
        ino,
        size: meta.size(),
        blocks: meta.blocks(),
        atime: time(meta.atime(), meta.atime_nsec()),
        mtime: time(meta.mtime(), meta.mtime_nsec()),
        ctime: time(meta.ctime(), meta.ctime_nsec()),
        crtime: UNIX_EPOCH,
        kind: kind(meta.file_type()),
        perm: (meta.mode() & 0o7777) as u16,
        nlink: meta.nlink() as u32,
        uid: meta.uid(),
        gid: meta.gid(),
        rdev: meta.rdev() as u32,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for Shown {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.path(parent).and_then(|folder| self.attributes(folder.join(name)).map_err(Errno::from)) {
            Ok(attributes) => reply.entry(&AT_ONCE, &attributes, Generation(0)),
            Err(e) => reply.error(e),
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.path(number).and_then(|path| self.attributes(path).map_err(Errno::from)) {
            Ok(attributes) => reply.attr(&AT_ONCE, &attributes),
            Err(e) => reply.error(e),
        }
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        match self.path(number).and_then(|path| fs::read_link(path).map_err(Errno::from)) {
            Ok(target) => reply.data(target.as_os_str().as_bytes()),
            Err(e) => reply.error(e),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // Else the kernel reads as much as it was told that there is.
        let direct = if self.told == Told::Empty { FopenFlags::FOPEN_DIRECT_IO } else { FopenFlags::empty() };
        reply.opened(FileHandle(0), direct);
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let path = self.path(number).map_err(|_| io::ErrorKind::NotFound.into());
        let read = path.and_then(File::open).and_then(|file| part(&file, offset, size));
        match read {
            Ok(bytes) => reply.data(&bytes),
            Err(e) => reply.error(e.into()),
        }
    }

    fn readdir(&self, _: &Request, number: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let entries = match self.path(number).and_then(|folder| self.entries(&folder).map_err(Errno::from)) {
            Ok(entries) => entries,
            Err(e) => return reply.error(e),
        };
        for (at, (number, kind, name)) in entries.into_iter().enumerate().skip(offset as usize) {
            if reply.add(number, at as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mount_gives_other_numbers_and_all_else_is_the_same() {
        let home = tempfile::tempdir().unwrap();
        let (folder, at) = (home.path().join("folder"), home.path().join("at"));
        fs::create_dir_all(folder.join("deep")).unwrap();
        fs::create_dir(&at).unwrap();
        fs::write(folder.join("deep/file"), vec![7; 300_000]).unwrap();
        std::os::unix::fs::symlink("file", folder.join("deep/link")).unwrap();
        let numbers = [1000, 2000].map(|first| {
            let mounted = Numberless::mount(&folder, &at, first)?;
            let file = mounted.path().join("deep/file");
            assert_eq!(fs::read(&file).unwrap(), vec![7; 300_000]);
            assert_eq!(fs::read_link(mounted.path().join("deep/link")).unwrap(), Path::new("file"));
            let (there, here) = (fs::metadata(folder.join("deep/file")).unwrap(), fs::metadata(&file).unwrap());
            assert_eq!((there.ctime(), there.ctime_nsec()), (here.ctime(), here.ctime_nsec()));
            Some(here.ino())
        });
        let [Some(first), Some(second)] = numbers else { return eprintln!("no FUSE here: nothing was tried") };
        assert!((1000..2000).contains(&first) && second >= 2000, "{first} {second}");
    }
}
