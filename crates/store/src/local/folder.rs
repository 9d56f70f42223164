//! The folders of a repository: resolved from one descriptor of its root, made on demand, made durable in batches.
//!
//! The root's path is followed once, when the store is opened. From then on every name is resolved below that
//! descriptor and through no symbolic link, so that whoever can write to the storage can't lead a process with more
//! rights out of it.
//!
//! A new folder entry is durable once its folder has been synced, and that folder's entry in *its* folder, up to the
//! root. [`Root::persist`] does that: it syncs a folder each time it is asked, and the folders above it once.

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags};
use rustix::io::{Errno, Result, retry_on_intr};
use rustix::process::{Gid, Uid, geteuid};

use super::mount;
use crate::descriptors;

/// Set once the kernel (or a sandbox) has turned `openat2` down: then each segment is opened by itself.
static WITHOUT_OPENAT2: AtomicBool = AtomicBool::new(false);

/// Before something far away that isn't there is looked for again.
const PAUSES: [Duration; 3] = [Duration::from_millis(2), Duration::from_millis(10), Duration::from_millis(50)];
/// What was replaced while it was opened is there: it is looked for so often again, besides.
const STALE_TRIES: u32 = 50;

/// Another one of the group has just made a folder, and is about to open it to the group: so often it is tried again to
/// put something there, after such a pause each time.
const SHARE_TRIES: u32 = 50;
const SHARE_PAUSE: Duration = Duration::from_millis(10);

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A repository's root folder.
pub(super) struct Root {
    dir: OwnedFd,
    /// It lies on another machine.
    is_far: bool,
    durability: Mutex<Durability>,
    /// Held by a sync from when it takes the list of folders until they are durable: a second sync must not find the
    /// list empty and return before.
    syncing: Mutex<()>,
}

#[derive(Default)]
struct Durability {
    /// Folders with entries made or removed since they were last synced.
    dirty: BTreeSet<String>,
    /// Folders whose own entry, and all entries above, are durable.
    anchored: HashSet<String>,
    /// The first failure to sync a folder. The kernel reports such a failure once and a second attempt may "succeed"
    /// without having written anything, so nothing in this store can be promised to be durable any more.
    failed: Option<Errno>,
}

/// `name` as its folder (`""` for the root) and what comes behind.
pub(super) fn split(name: &str) -> (&str, &str) {
    name.rsplit_once('/').unwrap_or(("", name))
}

impl Root {
    /// Open the folder at `path`, which may lead through symbolic links: the user wrote it.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let dir = retry_on_intr(|| fs::open(path, FOLDER, Mode::empty()))?;
        let is_far = mount::is_far(&dir);
        Ok(Self { dir, is_far, durability: Mutex::default(), syncing: Mutex::default() })
    }

    /// Whether it lies on another machine.
    pub(super) fn is_far(&self) -> bool {
        self.is_far
    }

    /// Look at something until it is there, but not for long, if it is far away. FUSE gives a file that is open another
    /// name before it is replaced, so that for a moment there is none, and forgets what it has found by the old one.
    /// (Seen with sshfs.)
    pub(super) fn patiently<T>(&self, mut look: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let (mut pauses, mut stale) = (PAUSES.iter().filter(|_| self.is_far), 0);
        loop {
            let looked = look();
            let pause = match looked.as_ref().map_err(Errno::from_io_error) {
                Err(Some(Errno::STALE)) if self.is_far && stale < STALE_TRIES => {
                    stale += 1;
                    Some(&PAUSES[0])
                }
                Err(Some(Errno::NOENT | Errno::STALE)) => pauses.next(),
                _ => None,
            };
            match pause {
                Some(pause) => std::thread::sleep(*pause),
                None => return looked,
            }
        }
    }

    /// Make the root's own entry durable, in the folder that it is in.
    pub(super) fn persist_root(&self) -> Result<()> {
        let open = || retry_on_intr(|| fs::openat(&self.dir, "..", FOLDER, Mode::empty()));
        match descriptors::wait_for(open) {
            Ok(above) => sync_folder(above),
            // A folder that one may pass and not read can't be synced by itself.
            Err(Errno::ACCESS) => fs::syncfs(&self.dir),
            Err(errno) => Err(errno),
        }
    }

    /// Open `name` below the root, without following any symbolic link; where descriptors are short, once others have
    /// returned theirs.
    pub(super) fn open_at(&self, name: &str, flags: OFlags) -> Result<OwnedFd> {
        descriptors::wait_for(|| self.open_once(name, flags))
    }

    /// As [`Root::open_at`], and wait for nobody.
    pub(super) fn open_once(&self, name: &str, flags: OFlags) -> Result<OwnedFd> {
        let path = if name.is_empty() { "." } else { name };
        let flags = flags | OFlags::CLOEXEC;
        if !WITHOUT_OPENAT2.load(Ordering::Relaxed) {
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            match retry_on_intr(|| fs::openat2(&self.dir, path, flags, Mode::empty(), resolve)) {
                // Sandboxes that don't know it answer EPERM; a real one will come back below.
                Err(Errno::NOSYS | Errno::PERM) => {}
                result => return result,
            }
        }
        // Not for `openat2`: its own flag refuses links too, and says so better.
        let result = self.open_by_segments(path, flags | OFlags::NOFOLLOW);
        if result.is_ok() {
            WITHOUT_OPENAT2.store(true, Ordering::Relaxed);
        }
        result
    }

    fn open_by_segments(&self, path: &str, flags: OFlags) -> Result<OwnedFd> {
        let (folder, file) = split(path);
        let mut at = None;
        for segment in folder.split('/').filter(|segment| !segment.is_empty()) {
            let above = at.as_ref().unwrap_or(&self.dir);
            let next = retry_on_intr(|| fs::openat(above, segment, FOLDER | OFlags::NOFOLLOW, Mode::empty()));
            at = Some(next.map_err(|errno| told_link(above, segment, errno))?);
        }
        let above = at.as_ref().unwrap_or(&self.dir);
        retry_on_intr(|| fs::openat(above, file, flags, Mode::empty())).map_err(|errno| told_link(above, file, errno))
    }

    /// Open an existing folder below the root; `""` is the root itself.
    pub(super) fn folder(&self, folder: &str) -> Result<OwnedFd> {
        let is_open = || fs::statat(&self.dir, folder, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|s| is_open_to_group(&s));
        self.once_shared(is_open, || self.open_at(folder, FOLDER))
    }

    /// Open a folder below the root, and make it and what is missing above it.
    pub(super) fn folder_made(&self, folder: &str) -> Result<OwnedFd> {
        match self.folder(folder) {
            Err(Errno::NOENT) => {}
            result => return result,
        }
        let mut at = None;
        for (end, _) in folder.match_indices('/').chain([(folder.len(), "")]) {
            let (_, segment) = split(&folder[..end]);
            let above = at.as_ref().unwrap_or(&self.dir);
            let make = || retry_on_intr(|| fs::mkdirat(above, segment, Mode::from_raw_mode(0o755)));
            match self.once_in(above, make) {
                Ok(()) => {
                    let open = || fs::openat(above, segment, FOLDER | OFlags::NOFOLLOW, Mode::empty());
                    let made = descriptors::wait_for(|| retry_on_intr(open));
                    let _ = made.map(|made| self.share(&made, |_, root| 0o755 | root & 0o2070));
                    self.durability().anchored.remove(&folder[..end]);
                }
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
            at = Some(self.folder(&folder[..end])?);
        }
        at.map_or_else(|| self.folder(""), Ok)
    }

    /// What is new is whose the repository's folder is, and open to its group if that one is, whatever the umask: a run
    /// as root, or by another one of the group, is to keep nobody out who was in before. `mode` tells what it shall be
    /// in that case, from what it was born as and what the repository's folder is. What can't be done shows where
    /// somebody can't read or write.
    pub(super) fn share(&self, made: impl AsFd, mode: impl Fn(u32, u32) -> u32) {
        let Ok(root) = fs::fstat(&self.dir) else { return };
        if geteuid().is_root() && !Uid::from_raw(root.st_uid).is_root() {
            let _ = fs::fchown(&made, Some(Uid::from_raw(root.st_uid)), Some(Gid::from_raw(root.st_gid)));
        }
        if is_open_to_group(&root)
            && let Ok(born) = fs::fstat(&made)
        {
            let born = born.st_mode & 0o7777;
            let mode = mode(born, root.st_mode);
            if mode != born {
                let _ = fs::fchmod(&made, Mode::from_raw_mode(mode));
            }
        }
    }

    /// Do something in `folder`. See [`Root::once_shared`].
    pub(super) fn once_in<T>(&self, folder: impl AsFd, attempt: impl FnMut() -> Result<T>) -> Result<T> {
        self.once_shared(|| fs::fstat(&folder).is_ok_and(|stat| is_open_to_group(&stat)), attempt)
    }

    /// Do something with a folder, a moment later once more where it is refused: who has made it opens it to the group
    /// right afterwards. `is_open`: whether that is done.
    fn once_shared<T>(&self, is_open: impl Fn() -> bool, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        let is_shared = || fs::fstat(&self.dir).is_ok_and(|root| is_open_to_group(&root));
        let (mut tries, mut refused_open) = (0, false);
        loop {
            match attempt() {
                Err(Errno::ACCESS) if tries < SHARE_TRIES && !refused_open && is_shared() => {
                    // It may have been opened since, and then another try does.
                    refused_open = is_open();
                    if !refused_open {
                        std::thread::sleep(SHARE_PAUSE);
                    }
                    tries += 1;
                }
                result => return result,
            }
        }
    }

    /// Whether the root is still reachable by a path. A descriptor outlives its folder, and every name in a folder
    /// that was removed is missing: that must not be taken for an answer.
    pub(super) fn is_linked(&self) -> Result<bool> {
        Ok(fs::fstat(&self.dir)?.st_nlink > 0)
    }

    /// Note that an entry in `folder` was made or removed, for the next [`Root::sync`].
    pub(super) fn mark(&self, folder: &str) {
        let mut durability = self.durability();
        if !durability.dirty.contains(folder) {
            durability.dirty.insert(folder.to_owned());
        }
    }

    /// The same, if that folder is there.
    pub(super) fn mark_if_there(&self, folder: &str) {
        if self.folder(folder).is_ok() {
            self.mark(folder);
        }
    }

    #[cfg(test)]
    pub(super) fn is_marked(&self, folder: &str) -> bool {
        self.durability().dirty.contains(folder)
    }

    /// Make all entries durable that were marked before this call.
    pub(super) fn sync(&self) -> Result<()> {
        let _alone = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        let dirty = std::mem::take(&mut self.durability().dirty);
        self.persist(dirty.iter().map(String::as_str))
    }

    /// Make the entries in `folders` durable, and the folders themselves.
    pub(super) fn persist<'a>(&self, folders: impl Iterator<Item = &'a str>) -> Result<()> {
        let mut todo = BTreeSet::new();
        let mut anchors = Vec::new();
        {
            let durability = self.durability();
            if let Some(errno) = durability.failed {
                return Err(errno);
            }
            for folder in folders {
                todo.insert(folder);
                let mut at = folder;
                while !at.is_empty() && !durability.anchored.contains(at) {
                    anchors.push(at);
                    at = split(at).0;
                    todo.insert(at);
                }
            }
        }
        let mut anchored: Vec<String> = anchors.iter().map(|&folder| folder.to_owned()).collect();
        for folder in todo {
            let synced = self.folder(folder).and_then(|dir| {
                // What is in it by now need not have it synced once more, for a folder that comes later.
                if !self.is_far && anchors.iter().any(|anchor| split(anchor).0 == folder) {
                    anchored.extend(folders_in(&dir, folder));
                }
                sync_folder(dir)
            });
            if let Err(errno) = synced {
                return Err(*self.durability().failed.get_or_insert(errno));
            }
        }
        self.durability().anchored.extend(anchored);
        Ok(())
    }

    fn durability(&self) -> std::sync::MutexGuard<'_, Durability> {
        // Each change under this lock is a single insertion or removal, so a panic elsewhere left it whole.
        self.durability.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a folder's group may add to it.
fn is_open_to_group(stat: &fs::Stat) -> bool {
    stat.st_mode & 0o020 != 0
}

/// `openat` says ENOTDIR of a symbolic link where `openat2` says ELOOP: have them say the same.
fn told_link(above: impl AsFd, segment: &str, errno: Errno) -> Errno {
    let is_link = || {
        fs::statat(above, segment, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
    };
    if errno == Errno::NOTDIR && is_link() { Errno::LOOP } else { errno }
}

/// The folders in a folder, by their paths below the root; as far as that can be told by looking at it once.
fn folders_in(dir: &OwnedFd, folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    let open = || retry_on_intr(|| fs::openat(dir, ".", FOLDER, Mode::empty()));
    let Ok(dir) = descriptors::wait_for(open) else { return found };
    let mut buffer = Vec::with_capacity(8 << 10);
    let mut listing = RawDir::new(dir, buffer.spare_capacity_mut());
    while let Some(Ok(entry)) = listing.next() {
        let name = entry.file_name().to_str().ok().filter(|name| !matches!(*name, "." | ".."));
        if let (FileType::Directory, Some(name)) = (entry.file_type(), name) {
            found.push(if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") });
        }
    }
    found
}

/// Sync a folder. Some file systems (FAT over FUSE, some network ones) have no such call for folders: there is nothing
/// more that can be done on those.
pub(super) fn sync_folder(folder: impl AsFd) -> Result<()> {
    match retry_on_intr(|| fs::fsync(&folder)) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::MaybeUninit;

    #[test]
    fn folders_are_made_and_found() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        assert_eq!(root.folder("a/b").unwrap_err(), Errno::NOENT);
        root.folder_made("a/b/c").unwrap();
        assert!(dir.path().join("a/b/c").is_dir());
        root.folder_made("a/b/c").unwrap();
        root.folder_made("").unwrap();
        // A descriptor of its own, not a duplicate: listings must not share an offset.
        let mut buffer = [MaybeUninit::uninit(); 4096];
        for _ in 0..2 {
            let mut entries = 0;
            let fd = root.folder("").unwrap();
            let mut listing = RawDir::new(fd, &mut buffer);
            while listing.next().is_some() {
                entries += 1;
            }
            assert_eq!(entries, 3);
        }
    }

    #[test]
    fn no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("x"), b"1").unwrap();
        std::os::unix::fs::symlink(outside.path(), dir.path().join("link")).unwrap();
        std::os::unix::fs::symlink(outside.path().join("x"), dir.path().join("file")).unwrap();
        let root = Root::open(dir.path()).unwrap();
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        for name in ["link", "link/x", "file"] {
            assert_eq!(root.open_at(name, OFlags::RDONLY).unwrap_err(), Errno::LOOP, "{name}");
            assert_eq!(root.open_by_segments(name, flags).unwrap_err(), Errno::LOOP, "{name}, by segments");
        }
        assert_eq!(root.folder("link").unwrap_err(), Errno::LOOP);
        assert_eq!(root.open_by_segments("link", flags | FOLDER).unwrap_err(), Errno::LOOP);
        assert_eq!(root.folder_made("link/sub").unwrap_err(), Errno::LOOP);
        assert!(!outside.path().join("sub").exists());
    }

    #[test]
    fn a_removed_root_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("repo");
        std::fs::create_dir(&path).unwrap();
        let root = Root::open(&path).unwrap();
        assert!(root.is_linked().unwrap());
        std::fs::remove_dir(&path).unwrap();
        assert!(!root.is_linked().unwrap());
    }

    #[test]
    fn folders_above_are_synced_once() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        root.folder_made("a/b").unwrap();
        root.persist(["a/b"].into_iter()).unwrap();
        let anchored = |folder| root.durability().anchored.contains(folder);
        assert!(anchored("a") && anchored("a/b"));
        // A folder that is made anew has to be anchored anew.
        std::fs::remove_dir(dir.path().join("a/b")).unwrap();
        root.folder_made("a/b").unwrap();
        assert!(anchored("a") && !anchored("a/b"));
    }

    #[test]
    fn one_sync_is_enough_for_all_that_are_in_a_folder() {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["a", "b/c", "b/d"] {
            std::fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        let root = Root::open(dir.path()).unwrap();
        let anchored = |folder| root.durability().anchored.contains(folder);
        root.persist(["a"].into_iter()).unwrap();
        assert!(anchored("a") && anchored("b") && !anchored("b/c"));
        root.persist(["b/c"].into_iter()).unwrap();
        assert!(anchored("b/c") && anchored("b/d"));
        root.folder_made("e").unwrap();
        assert!(!anchored("e"), "it has come since");
    }

    #[test]
    fn a_failed_sync_is_never_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        root.mark("gone");
        assert_eq!(root.sync().unwrap_err(), Errno::NOENT);
        assert_eq!(root.sync().unwrap_err(), Errno::NOENT, "the second sync has nothing to do and must not succeed");
        assert_eq!(root.persist([""].into_iter()).unwrap_err(), Errno::NOENT);
    }

    #[test]
    fn what_is_about_to_be_shared_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let set = |name: &str, mode| {
            fs::chmodat(fs::CWD, dir.path().join(name), Mode::from_raw_mode(mode), AtFlags::empty()).unwrap();
        };
        std::fs::create_dir(dir.path().join("new")).unwrap();
        let root = Root::open(dir.path()).unwrap();
        let folder = root.folder("new").unwrap();
        let tried = |opens_at: usize| {
            let mut tries = 0;
            let done = root.once_in(&folder, || {
                tries += 1;
                if tries == opens_at {
                    set("new", 0o2775);
                }
                // The one before has seen it shut.
                if tries > opens_at { Ok(()) } else { Err(Errno::ACCESS) }
            });
            (done, tries)
        };
        set("new", 0o755);
        assert_eq!(tried(3), (Err(Errno::ACCESS), 1), "nobody shares this one");
        set("", 0o2775);
        assert_eq!(tried(3), (Ok(()), 4));
        set("new", 0o755);
        assert_eq!(tried(usize::MAX), (Err(Errno::ACCESS), 1 + SHARE_TRIES as usize));
        set("new", 0o2775);
        assert_eq!(tried(usize::MAX), (Err(Errno::ACCESS), 2), "it is open, and others keep this one out");
        assert_eq!(root.once_in(&folder, || Err::<(), _>(Errno::NOSPC)), Err(Errno::NOSPC));
    }
}
