//! No two backups of the same sources at once, nor two copies between the same repositories: an advisory lock on a file
//! of this machine, let go by the system when the process ends, however it ends.
//!
//! It spares work and snapshots that nobody asked for; the repository's safety rests on sessions, never on this.

use crate::exit::{Exit, Failure, Result};
use drumlin_format::RepositoryId;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// A lock that is held until this is dropped.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// The folder of locks below that of caches.
const FOLDER: &str = "locks";

fn name(repository: &RepositoryId, host: &str, paths: &[Vec<u8>]) -> String {
    let mut key = host.as_bytes().to_vec();
    for path in paths {
        key.push(0);
        key.extend_from_slice(path);
    }
    let hash: String = drumlin_seal::checksum(&key).iter().map(|b| format!("{b:02x}")).collect();
    format!("{repository}-{hash}")
}

/// Lock the backup of these sources. `None` where no lock can be kept: that is no reason not to back up.
///
/// # Errors
/// [`Exit::Busy`] if another process backs them up.
pub fn sources(caches: &Path, repository: &RepositoryId, host: &str, paths: &[Vec<u8>]) -> Result<Option<Lock>> {
    hold(caches, &name(repository, host, paths), "a backup of the same sources to the same repository")
}

/// Lock the copying from one repository to another. `None` as for [`sources`].
///
/// # Errors
/// [`Exit::Busy`] if another process copies.
pub fn copies(caches: &Path, from: &RepositoryId, to: &RepositoryId) -> Result<Option<Lock>> {
    hold(caches, &format!("{to}-from-{from}"), "a copy from the same repository to the same one")
}

fn hold(caches: &Path, name: &str, what: &str) -> Result<Option<Lock>> {
    let folder = caches.join(FOLDER);
    if crate::place::make_folder(&folder).is_err() {
        return Ok(None);
    }
    let path = folder.join(name);
    match file(&path) {
        Ok(file) => take(file, what),
        Err(_) => Ok(None),
    }
}

/// The file of a lock, made if it isn't there.
///
/// # Errors
/// It can't be had.
pub fn file(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Lock a file, and say in it who holds it. `what` is at work while it is held. `None` where files can't be locked.
///
/// # Errors
/// [`Exit::Busy`] if another process holds it.
pub fn take(mut file: File, what: &str) -> Result<Option<Lock>> {
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
            Ok(Some(Lock { _file: file }))
        }
        Err(Errno::WOULDBLOCK) => {
            let mut pid = String::new();
            let _ = file.take(32).read_to_string(&mut pid);
            let by = if pid.trim().is_empty() { String::new() } else { format!(" (process {})", pid.trim()) };
            Err(Failure::new(Exit::Busy, format!("{what} is at work{by}")).hint("wait for its end"))
        }
        Err(_) => Ok(None),
    }
}

/// Whether a backup or a copy to this repository, or to any, is at work on this machine.
pub fn at_work(caches: &Path, repository: Option<&RepositoryId>) -> bool {
    let Ok(entries) = std::fs::read_dir(caches.join(FOLDER)) else { return false };
    let prefix = repository.map(|r| format!("{r}-")).unwrap_or_default();
    entries.flatten().filter(|e| e.file_name().to_string_lossy().starts_with(&prefix)).any(|entry| {
        let Ok(file) = File::open(entry.path()) else { return false };
        flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_refused_until_the_first_ends() {
        let dir = tempfile::tempdir().unwrap();
        let (id, other) = (RepositoryId([1; 16]), RepositoryId([2; 16]));
        let paths = [b"/a".to_vec(), b"/b".to_vec()];
        let held = sources(dir.path(), &id, "host", &paths).unwrap();
        assert!(held.is_some() && at_work(dir.path(), Some(&id)) && at_work(dir.path(), None));
        assert!(!at_work(dir.path(), Some(&other)));
        let refused = sources(dir.path(), &id, "host", &paths).unwrap_err();
        assert_eq!(refused.exit, Exit::Busy);
        assert!(refused.message.contains(&std::process::id().to_string()), "{}", refused.message);
        assert!(sources(dir.path(), &other, "host", &paths).unwrap().is_some());
        assert!(sources(dir.path(), &id, "host", &paths[..1]).unwrap().is_some());
        drop(held);
        assert!(sources(dir.path(), &id, "host", &paths).unwrap().is_some());
        let copying = copies(dir.path(), &id, &other).unwrap();
        assert!(copying.is_some() && at_work(dir.path(), Some(&other)));
        assert_eq!(copies(dir.path(), &id, &other).unwrap_err().exit, Exit::Busy);
        assert!(copies(dir.path(), &other, &id).unwrap().is_some());
        assert!(sources(Path::new("/proc/nowhere"), &id, "host", &paths).unwrap().is_none());
    }
}
