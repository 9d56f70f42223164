//! Unfinished objects: files in the folder `tmp/` that get their real name, or vanish, when they are done.
//!
//! Their names tell who is writing them: `<host>-<boot>-<pid namespace>-<pid>-<random>`, all hexadecimal. What a run that
//! was killed left is cleared by a later one:
//!
//! | who wrote it | when it goes |
//! |---|---|
//! | a process of this boot, in this process namespace | once it is gone: it can be asked for |
//! | this host, before it was started again | after a day in which nobody wrote to it |
//! | another host, or a container | after a week in which nobody wrote to it |
//!
//! The day is for clones of a machine that bear one name and share a storage. Time is told by the storage alone: a file
//! made there just now is compared with, so that a client's wrong clock takes nothing from anybody. And a writer that
//! wakes up after its week has lost no more than that object: it gets no name, and its run fails.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::fs::{self, AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::{Errno, Result, retry_on_intr};
use rustix::process::{Pid, getpid, test_kill_process};

use super::folder::{Root, split};
use super::list;
use crate::name::TMP;
use crate::{Cleared, Put};

const DAY: Duration = Duration::from_secs(86_400);
const WEEK: Duration = Duration::from_secs(7 * 86_400);

/// A file in `tmp/`. Dropped before [`Temporary::publish`], it is removed.
pub(super) struct Temporary {
    tmp: OwnedFd,
    name: String,
    file: File,
    /// Whether there is still a name in `tmp/` to remove.
    named: bool,
}

impl Temporary {
    /// Create one, open for reading and writing, with `flags` besides.
    pub(super) fn create(root: &Root, flags: OFlags) -> Result<Self> {
        let tmp = root.folder_made(TMP)?;
        let flags = flags | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        loop {
            let name = Writer::this().file_name()?;
            // Nobody is to write an object twice: it is born read-only, and only this descriptor can write.
            match fs::openat(&tmp, &name, flags, Mode::from_raw_mode(0o444)) {
                Ok(fd) => return Ok(Self { tmp, name, file: File::from(fd), named: true }),
                Err(Errno::EXIST | Errno::INTR) => {}
                Err(errno) => return Err(errno),
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
        let published = match how {
            Put::Create => self.publish_new(&folder, file),
            Put::Replace => self.rename(&folder, file),
        };
        match published {
            // On a network file system the file itself can't be asked any more.
            Err(Errno::NOENT) if fs::fstat(&self.file).map_or(true, |stat| stat.st_nlink == 0) => Err(Errno::STALE),
            result => result,
        }
    }

    fn rename(&mut self, folder: &OwnedFd, file: &str) -> Result<()> {
        retry_on_intr(|| fs::renameat(&self.tmp, &self.name, folder, file))?;
        self.named = false;
        Ok(())
    }

    /// One of three ways to create a name only if there is none, by what the file system offers.
    fn publish_new(&mut self, folder: &OwnedFd, file: &str) -> Result<()> {
        match retry_on_intr(|| fs::linkat(&self.tmp, &self.name, folder, file, AtFlags::empty())) {
            // NFS may lose the answer to a link, repeat it and then find its own name there: two links to this file
            // mean that it was us.
            Err(Errno::EXIST) if fs::fstat(&self.file).is_ok_and(|stat| stat.st_nlink == 2) => Ok(()),
            // No hard links here (FAT, some FUSE and network file systems).
            Err(Errno::PERM | Errno::NOTSUP | Errno::NOSYS | Errno::MLINK) => self.rename_new(folder, file),
            result => result,
        }
    }

    fn rename_new(&mut self, folder: &OwnedFd, file: &str) -> Result<()> {
        let (tmp, name) = (&self.tmp, &self.name);
        match retry_on_intr(|| fs::renameat_with(tmp, name, folder, file, RenameFlags::NOREPLACE)) {
            Ok(()) => {
                self.named = false;
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
        retry_on_intr(|| fs::openat(folder, file, flags, Mode::from_raw_mode(0o444)))?;
        let renamed = self.rename(folder, file);
        if renamed.is_err() {
            // The name is ours; leave nothing empty under it.
            let _ = fs::unlinkat(folder, file, AtFlags::empty());
        }
        renamed
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if self.named {
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

/// When a file was written last, in seconds by the storage's clock.
fn written(file: impl AsFd) -> Result<i64> {
    Ok(fs::fstat(file)?.st_mtime)
}

fn is_running(pid: u64) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return true };
    test_kill_process(pid) != Err(Errno::SRCH)
}

/// Who writes a temporary file. 0 stands for what could not be found out, and equals nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Writer {
    /// A hash of the machine's id and its host name: the id alone may be shared by clones of one image.
    host: u64,
    /// A hash of the kernel's boot id.
    boot: u64,
    /// The process namespace: a process id of another container means nothing here.
    namespace: u64,
    pid: u64,
}

impl Writer {
    /// This process. A child after a fork would bear its parent's id; this program doesn't fork.
    fn this() -> Self {
        static THIS: OnceLock<Writer> = OnceLock::new();
        *THIS.get_or_init(|| {
            let read = |path: &str| std::fs::read(path).unwrap_or_default();
            let machine = read("/etc/machine-id");
            let host = if machine.is_empty() {
                0
            } else {
                fingerprint(&[b"host", &machine, &read("/proc/sys/kernel/hostname")])
            };
            let boot = match read("/proc/sys/kernel/random/boot_id") {
                id if id.is_empty() => 0,
                id => fingerprint(&[b"boot", &id]),
            };
            let namespace =
                std::fs::metadata("/proc/self/ns/pid").map_or(0, |ns| std::os::unix::fs::MetadataExt::ino(&ns));
            Self { host, boot, namespace, pid: getpid().as_raw_nonzero().get().unsigned_abs().into() }
        })
    }

    fn file_name(self) -> Result<String> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|_| Errno::IO)?;
        let Self { host, boot, namespace, pid } = self;
        Ok(format!("{host:016x}-{boot:016x}-{namespace:x}-{pid:x}-{:016x}", u64::from_ne_bytes(random)))
    }

    fn parse(name: &str) -> Option<Self> {
        let mut fields = name.split('-').map(|field| u64::from_str_radix(field, 16));
        let mut next = || fields.next()?.ok();
        let writer = Self { host: next()?, boot: next()?, namespace: next()?, pid: next()? };
        next()?;
        fields.next().is_none().then_some(writer)
    }

    /// How long it has to have been silent to be taken for gone, seen from the process `this`; `None`: it is alive.
    fn patience(self, this: Self, is_running: impl Fn(u64) -> bool) -> Option<Duration> {
        let same = |mine: u64, other: u64| mine != 0 && mine == other;
        if same(this.boot, self.boot) && same(this.namespace, self.namespace) {
            return (!is_running(self.pid)).then_some(Duration::ZERO);
        }
        let restarted = same(this.host, self.host) && this.boot != 0 && self.boot != 0 && this.boot != self.boot;
        Some(if restarted { DAY } else { WEEK })
    }
}

/// FNV-1a over the parts: the storage is to learn no machine id, and the same words must give the same number in every
/// version of this program.
fn fingerprint(parts: &[&[u8]]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.iter().copied().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
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

    #[test]
    fn names_tell_their_writer() {
        let this = Writer::this();
        let name = this.file_name().unwrap();
        assert_eq!(Writer::parse(&name), Some(this));
        assert_ne!(name, this.file_name().unwrap());
        for odd in ["", "x", "1-2-3-4", "1-2-3-4-5-6", "1-2-3-4-g"] {
            assert_eq!(Writer::parse(odd), None, "{odd}");
        }
    }

    #[test]
    fn who_can_be_asked_for_is_and_others_are_waited_for() {
        let this = Writer { host: 1, boot: 2, namespace: 3, pid: 4 };
        let running = |pid| pid == 4;
        for (writer, patience, why) in [
            (this, None, "ourselves"),
            (Writer { pid: 5, ..this }, Some(Duration::ZERO), "a process that died"),
            (Writer { pid: 5, namespace: 9, ..this }, Some(WEEK), "in another container"),
            (Writer { boot: 9, ..this }, Some(DAY), "before this boot"),
            (Writer { boot: 9, host: 9, ..this }, Some(WEEK), "another host"),
            (Writer { boot: 0, pid: 5, ..this }, Some(WEEK), "an unknown boot"),
        ] {
            assert_eq!(writer.patience(this, running), patience, "{why}");
        }
        let nameless = Writer { host: 0, ..this };
        let other = Writer { boot: 9, ..nameless };
        assert_eq!(other.patience(nameless, running), Some(WEEK), "hosts without an id are not the same");
        assert!(is_running(u64::from(std::process::id())));
    }
}
