//! Unfinished objects: files in the folder `tmp/` that get their real name, or vanish, when they are done.
//!
//! Their names tell who is writing them, so that files left over from a crash can be told from files in use without
//! looking at any clock: `<host>-<boot>-<pid namespace>-<pid>-<random>`, all hexadecimal. A file is stale if this
//! host wrote it, and either in an earlier boot or in a process of this boot that is gone. A file of another host is
//! never stale here.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::{self, AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::{Errno, Result, retry_on_intr};
use rustix::process::{Pid, getpid, test_kill_process};

use super::folder::{Root, split};
use crate::Put;
use crate::name::TMP;

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
    /// folder. [`Errno::EXIST`] if `how` is [`Put::Create`] and the name is taken.
    pub(super) fn publish(mut self, root: &Root, name: &str, how: Put) -> Result<()> {
        let (folder, file) = split(name);
        let folder = root.folder_made(folder)?;
        match how {
            Put::Create => self.publish_new(&folder, file),
            Put::Replace => self.rename(&folder, file),
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

/// A file that a process of this host left in `tmp/` when it died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleTmp {
    /// Its name within `tmp/`.
    pub(super) name: String,
    /// Its length in bytes.
    pub len: u64,
}

/// The stale ones among the files in `tmp/`, which were listed with their lengths.
pub(super) fn stale(files: Vec<(String, u64)>) -> Vec<StaleTmp> {
    let this = Writer::this();
    let gone = |name: &str| Writer::parse(name).is_some_and(|writer| writer.is_gone(this, is_running));
    files.into_iter().filter(|(name, _)| gone(name)).map(|(name, len)| StaleTmp { name, len }).collect()
}

/// Remove a file from `tmp/`; `Ok` if it is gone already.
pub(super) fn remove(root: &Root, stale: &StaleTmp) -> Result<()> {
    match fs::unlinkat(root.folder(TMP)?.as_fd(), &stale.name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        result => result,
    }
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

    /// Whether the process is known to be gone, seen from the process `this`. Any doubt is a no.
    fn is_gone(self, this: Self, is_running: impl Fn(u64) -> bool) -> bool {
        if self.boot == 0 || this.boot == 0 {
            return false;
        }
        if self.boot == this.boot {
            return self.namespace == this.namespace && this.namespace != 0 && !is_running(self.pid);
        }
        self.host == this.host && this.host != 0
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
    fn only_what_is_certainly_dead_is_stale() {
        let this = Writer { host: 1, boot: 2, namespace: 3, pid: 4 };
        let running = |pid| pid == 4;
        for (writer, gone, why) in [
            (this, false, "ourselves"),
            (Writer { pid: 5, ..this }, true, "a process that died"),
            (Writer { pid: 5, namespace: 9, ..this }, false, "in another container"),
            (Writer { boot: 9, ..this }, true, "before this boot"),
            (Writer { boot: 9, host: 9, ..this }, false, "another host"),
            (Writer { boot: 0, pid: 5, ..this }, false, "an unknown boot"),
        ] {
            assert_eq!(writer.is_gone(this, running), gone, "{why}");
        }
        let nameless = Writer { host: 0, ..this };
        assert!(!Writer { boot: 9, ..nameless }.is_gone(nameless, running), "hosts without an id are not the same");
        assert!(is_running(u64::from(std::process::id())));
    }
}
