//! The file in which a client keeps what it has seen of a repository. It stands in a folder that is no cache, and every
//! key of the repository that is used on the machine shares it.
//!
//! ```text
//! <folder>/<repository id>/seen:  "drumlin seen" 00 00 00 02 | fresh (16) | sealed
//! ```
//!
//! A file that is lost or damaged makes the client forget, and no more: what it sees next is all that it expects. One
//! that is there and can't be read now (it is another user's, its disk fails) is left as it is, and told.

use super::seen::{Id, Ids, Seen};
use crate::cache::make_folder;
use crate::lock::lock;
use crate::{Repository, random_id};
use drumlin_format::{IndexId, SnapshotId};
use drumlin_seal::{SealKey, Secret, Suite, derive};
use drumlin_store::descriptors;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

const MAGIC: &[u8; 16] = b"drumlin seen\0\0\0\x02";
/// Of files that were written before there were generations.
const MAGIC_BEFORE: &[u8; 16] = b"drumlin seen\0\0\0\x01";
/// That everything was there is written anew after so many seconds, if nothing else has changed.
const STALE: i64 = 24 * 3600;

/// What a client has seen of a repository.
pub struct Memory {
    path: Option<PathBuf>,
    secret: Secret,
    suite: Suite,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    seen: Seen,
    /// As it is in the file, so far as this process knows.
    kept: Seen,
    /// What others have written to the file since doesn't matter.
    replaced: bool,
    trouble: Option<Trouble>,
}

/// Why nothing is known of what was seen before, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The file can't be read, and may say something yet.
    Unread(String),
    /// What it says is of no use any more.
    Useless(String),
}

impl Memory {
    /// What is remembered in a folder; nothing beyond this process without one. Made when it is saved.
    pub fn open(repository: &Repository, folder: Option<&Path>) -> Self {
        let config = repository.config();
        let memory = Memory {
            path: folder.map(|folder| folder.join(config.id.to_string()).join("seen")),
            secret: derive(&repository.secrets().index, "remembered history", &config.id.0),
            suite: config.suite,
            inner: Mutex::default(),
        };
        match memory.load() {
            Ok(seen) => {
                let (seen, mut inner) = (seen.unwrap_or_default(), memory.lock());
                (inner.seen, inner.kept) = (seen.clone(), seen);
            }
            Err(why) => memory.lock().trouble = Some(why),
        }
        memory
    }

    /// Why what was remembered is not known, if so.
    pub fn trouble(&self) -> Option<Trouble> {
        self.lock().trouble.clone()
    }

    /// This client has made a snapshot, which counts, and put these index objects for it.
    pub fn made(&self, snapshot: SnapshotId, indexes: &[IndexId]) {
        let seen = &mut self.lock().seen;
        seen.snapshots.extend([snapshot.0]);
        seen.indexes.extend(indexes.iter().map(|id| id.0));
    }

    /// The number of the newest generation of secrets that it remembers.
    pub(crate) fn expected_generation(&self) -> u32 {
        self.lock().seen.generations.last_key_value().map_or(0, |(number, _)| *number)
    }

    pub(super) fn read<T>(&self, read: impl FnOnce(&Seen) -> T) -> T {
        read(&self.lock().seen)
    }

    /// From now on this is remembered; all of it was there at `whole`.
    pub(super) fn remember(&self, mut next: Seen, whole: Option<i64>) {
        let mut inner = self.lock();
        // What another thread has made meanwhile stays.
        let made = |all: &Ids, known: &Ids| -> Vec<Id> {
            all.not_in(known).filter(|id| !next.gone.contains(id)).copied().collect()
        };
        let snapshots = made(&inner.seen.snapshots, &next.snapshots);
        let indexes = made(&inner.seen.indexes, &next.indexes);
        next.snapshots.extend(snapshots);
        next.indexes.extend(indexes);
        next.last = whole.unwrap_or(inner.seen.last);
        inner.seen = next;
    }

    pub(super) fn replace(&self, seen: Seen) {
        let mut inner = self.lock();
        (inner.seen, inner.replaced) = (seen, true);
    }

    /// Write it, if there is anything new: in one step, so that what is there is whole at any time.
    ///
    /// # Errors
    /// The folder or the file can't be written; what is there can't be read, and so isn't written over.
    pub fn save(&self) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let mut inner = self.lock();
        let unchanged = Seen { last: inner.kept.last, ..inner.seen.clone() } == inner.kept;
        if unchanged && !inner.replaced && (inner.seen.last - inner.kept.last).abs() < STALE {
            return Ok(());
        }
        // Another process may have written since; what it has seen and nobody is sure of is found out by the next look.
        if !inner.replaced {
            match self.load() {
                // Where there is no file nobody has said anything.
                Ok(None) => {}
                Ok(Some(others)) if others != inner.kept => {
                    let before = inner.kept.clone();
                    inner.seen.accept(&before, &others);
                    inner.seen.join(others);
                }
                Err(Trouble::Unread(why)) => return Err(io::Error::other(why)),
                Ok(_) | Err(Trouble::Useless(_)) => {}
            }
        }
        let folder = path.parent().unwrap_or(Path::new("."));
        make_folder(folder)?;
        let fresh = random_id().map_err(io::Error::other)?;
        let mut sealed = inner.seen.encode();
        self.key(&fresh).seal(0, MAGIC, &mut sealed);
        let temporary = path.with_extension(format!("new-{}", std::process::id()));
        let write = || {
            // Of a killed process that had this one's number.
            let _ = fs::remove_file(&temporary);
            let open = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary);
            let mut file = descriptors::wait_for(open)?;
            // What root makes in another one's folder (`sudo` may keep HOME) is that one's, or he couldn't read it any
            // more.
            let owner = fs::metadata(folder)?;
            if rustix::process::geteuid().is_root() && owner.uid() != 0 {
                fchown(&file, Some(owner.uid()), Some(owner.gid()))?;
            }
            file.write_all(&[&MAGIC[..], &fresh, &sealed].concat())?;
            file.sync_data()?;
            fs::rename(&temporary, path)
        };
        write().inspect_err(|_| drop(fs::remove_file(&temporary)))?;
        inner.kept = inner.seen.clone();
        inner.replaced = false;
        Ok(())
    }

    /// Where it is kept, if it is.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// What the file says; `None` if there is none.
    fn load(&self) -> std::result::Result<Option<Seen>, Trouble> {
        let Some(path) = &self.path else { return Ok(None) };
        let bytes = match descriptors::wait_for(|| fs::read(path)) {
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
            Err(e) => return Err(Trouble::Unread(e.to_string())),
            Ok(bytes) => bytes,
        };
        self.opened(&bytes).map(Some).map_err(|why| Trouble::Useless(why.into()))
    }

    /// What the bytes of the file say.
    fn opened(&self, bytes: &[u8]) -> std::result::Result<Seen, &'static str> {
        let Some((magic, rest)) = bytes.split_first_chunk::<16>() else { return Err("it is too short") };
        if magic != MAGIC && magic != MAGIC_BEFORE {
            return Err("it is not such a file, or from another version of drumlin");
        }
        let Some((fresh, sealed)) = rest.split_first_chunk() else { return Err("it is too short") };
        let mut sealed = sealed.to_vec();
        let plain = self.key(fresh).open(0, magic, &mut sealed).map_err(|_| "it is damaged")?;
        Seen::decode(plain, magic == MAGIC).ok_or("it is damaged")
    }

    fn key(&self, fresh: &[u8; 16]) -> SealKey {
        SealKey::new(self.suite, &derive(&self.secret, "seen", fresh))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }
}
