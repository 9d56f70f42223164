//! Unfinished objects: files in the folder `tmp/` that get their real name, or vanish, when they are done.
//!
//! Their names tell who is writing them, and what a run that was killed left is cleared by a later one: see
//! [`crate::whose`].

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{self, AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::{Errno, Result, retry_on_intr};

use super::folder::{Root, split};
use super::{list, mount};
use crate::descriptors;
use crate::name::TMP;
use crate::whose::{Writer, is_running};
use crate::{Cleared, Put};

/// So often, and after such a pause each time, it is tried again to take the place of a file that somebody has open.
const OPEN_TRIES: u32 = 30;
const OPEN_PAUSE: Duration = Duration::from_millis(100);

/// Nobody is to write an object twice: it is born read-only, and only the descriptor that has created it can write.
const MODE: u32 = 0o444;

/// A file in `tmp/`. Dropped before [`Temporary::publish`], it is removed.
pub(super) struct Temporary {
    // Before its name, that is closed first: NFS renames what is removed while it is open, and removes it later.
    file: File,
    name: Name,
}

/// A file's name in `tmp/`, removed in the end.
struct Name {
    tmp: OwnedFd,
    name: String,
    /// Whether there is still something to remove.
    stands: bool,
}

impl Temporary {
    /// Create one, open for reading and writing, with `flags` besides.
    pub(super) fn create(root: &Root, flags: OFlags) -> Result<Self> {
        let tmp = root.folder_made(TMP)?;
        let flags = flags | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        loop {
            let name = Writer::this().file_name().map_err(|_| Errno::IO)?;
            let create = || fs::openat(&tmp, &name, flags, Mode::from_raw_mode(MODE));
            match root.once_in(&tmp, || descriptors::wait_for(create)) {
                Ok(fd) => {
                    root.share(&fd, |born, _| born | 0o040);
                    return Ok(Self { file: File::from(fd), name: Name { tmp, name, stands: true } });
                }
                Err(Errno::EXIST | Errno::INTR) => {}
                Err(errno) => {
                    // Linux has created a file by the time that it finds out that nobody writes to it directly.
                    if errno == Errno::INVAL {
                        let _ = fs::unlinkat(&tmp, &name, AtFlags::empty());
                    }
                    return Err(errno);
                }
            }
        }
    }

    /// The open file.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Give the file, whose data must be durable, its real name. The name itself is durable after a sync of the
    /// folder. [`Errno::EXIST`] if `how` is [`Put::Create`] and the name is taken, [`Errno::STALE`] if the file was
    /// cleared away: its writer was taken for dead.
    pub(super) fn publish(mut self, root: &Root, name: &str, how: Put) -> Result<()> {
        let (folder, file) = split(name);
        let folder = root.folder_made(folder)?;
        let published = root.once_in(&folder, || match how {
            Put::Create => self.publish_new(&folder, file),
            Put::Replace => self.rename(&folder, file),
        });
        match published {
            // On a network file system the file itself can't be asked any more.
            Err(Errno::NOENT) if fs::fstat(&self.file).map_or(true, |stat| stat.st_nlink == 0) => Err(Errno::STALE),
            result => result,
        }
    }

    fn rename(&mut self, folder: &OwnedFd, file: &str) -> Result<()> {
        let rename = || retry_on_intr(|| fs::renameat(&self.name.tmp, &self.name.name, folder, file));
        let mut renamed = rename();
        // Over SMB nothing takes the place of a file that somebody has open; objects that are ever replaced are small,
        // and soon read.
        let mut tries = 0;
        while matches!(renamed, Err(Errno::ACCESS | Errno::BUSY)) && tries < OPEN_TRIES && mount::is_far(folder) {
            std::thread::sleep(OPEN_PAUSE);
            renamed = rename();
            tries += 1;
        }
        // It gave up what stood there first, and then failed: better these bytes than none.
        if renamed.is_err() && mount::is_far(folder) && is_free(folder, file) {
            let link = || fs::linkat(&self.name.tmp, &self.name.name, folder, file, AtFlags::empty());
            if retry_on_intr(link).is_ok() {
                return Ok(());
            }
            renamed = rename();
        }
        renamed?;
        self.name.stands = false;
        Ok(())
    }

    /// One of three ways to create a name only if there is none, by what the file system offers.
    fn publish_new(&mut self, folder: &OwnedFd, file: &str) -> Result<()> {
        let Name { tmp, name, .. } = &self.name;
        match retry_on_intr(|| fs::linkat(tmp, name, folder, file, AtFlags::empty())) {
            // NFS may lose the answer to a link, repeat it and then find its own name there: two links to this file
            // mean that it was us.
            Err(Errno::EXIST) if fs::fstat(&self.file).is_ok_and(|stat| stat.st_nlink == 2) => Ok(()),
            // No hard links here (FAT, some FUSE and network file systems).
            Err(Errno::PERM | Errno::NOTSUP | Errno::NOSYS | Errno::MLINK) => self.rename_new(folder, file),
            result => result,
        }
    }

    fn rename_new(&mut self, folder: &OwnedFd, file: &str) -> Result<()> {
        let Name { tmp, name, .. } = &self.name;
        match retry_on_intr(|| fs::renameat_with(tmp, name, folder, file, RenameFlags::NOREPLACE)) {
            Ok(()) => {
                self.name.stands = false;
                Ok(())
            }
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => self.reserve_and_rename(folder, file),
            Err(errno) => Err(errno),
        }
    }

    /// The last resort: whoever creates the empty name owns it and renames over it. On such a file system alone, a
    /// reader or a crash between the two may find the object empty.
    fn reserve_and_rename(&mut self, folder: &OwnedFd, file: &str) -> Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        retry_on_intr(|| fs::openat(folder, file, flags, Mode::from_raw_mode(MODE)))?;
        let renamed = self.rename(folder, file);
        if renamed.is_err() {
            // The name is ours; leave nothing empty under it.
            let _ = fs::unlinkat(folder, file, AtFlags::empty());
        }
        renamed
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        if self.stands {
            // What stays behind is stale once this process is gone, and is found then.
            let _ = fs::unlinkat(&self.tmp, &self.name, AtFlags::empty());
        }
    }
}

/// Remove what writers that are gone left in `tmp/`. What can't be removed doesn't keep the rest from going; the first
/// such failure is told, with the name.
pub(super) fn clear(root: &Root) -> std::result::Result<Cleared, (Errno, String)> {
    let mut cleared = Cleared::default();
    let mut failed = None;
    let mut now = None;
    for (name, len) in list::temporaries(root)? {
        let Some(patience) = Writer::parse(&name).and_then(|writer| writer.patience(Writer::this(), is_running)) else {
            continue;
        };
        let mut remove = || {
            let tmp = root.folder(TMP)?;
            if !patience.is_zero() {
                let now = match now {
                    Some(now) => now,
                    None => *now.insert(written(Temporary::create(root, OFlags::empty())?.file())?),
                };
                let file = fs::openat(&tmp, &name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
                if now.saturating_sub(written(&file)?) < patience.as_secs() as i64 {
                    return Ok(false);
                }
            }
            fs::unlinkat(&tmp, &name, AtFlags::empty()).map(|()| true)
        };
        match remove() {
            Ok(true) => {
                cleared.files += 1;
                cleared.bytes += len;
            }
            // Its writer lives, or somebody else has removed it.
            Ok(false) | Err(Errno::NOENT) => {}
            Err(errno) => failed = failed.or(Some((errno, format!("{TMP}/{name}")))),
        }
    }
    failed.map_or(Ok(cleared), Err)
}

/// Whether nothing has this name.
fn is_free(folder: &OwnedFd, file: &str) -> bool {
    matches!(fs::statat(folder, file, AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT))
}

/// When a file was written last, in seconds by the storage's clock.
fn written(file: impl AsFd) -> Result<i64> {
    Ok(fs::fstat(file)?.st_mtime)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    type Way = fn(&mut Temporary, &OwnedFd, &str) -> Result<()>;

    #[test]
    fn each_way_to_create_a_name_lets_one_win() {
        let ways: [(&str, Way); 3] = [
            ("link", Temporary::publish_new),
            ("rename", Temporary::rename_new),
            ("reserve", Temporary::reserve_and_rename),
        ];
        for (way, publish) in ways {
            let dir = tempfile::tempdir().unwrap();
            let root = Root::open(dir.path()).unwrap();
            let folder = root.folder("").unwrap();
            for bytes in [b"first", b"later"] {
                let mut temporary = Temporary::create(&root, OFlags::empty()).unwrap();
                temporary.file().write_all(bytes).unwrap();
                let expected = if bytes == b"first" { Ok(()) } else { Err(Errno::EXIST) };
                assert_eq!(publish(&mut temporary, &folder, "object"), expected, "{way}");
            }
            assert_eq!(std::fs::read(dir.path().join("object")).unwrap(), b"first", "{way}");
            assert_eq!(std::fs::read_dir(dir.path().join(TMP)).unwrap().count(), 0, "{way}");
        }
    }
}
