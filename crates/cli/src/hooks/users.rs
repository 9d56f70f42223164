//! Who uses what a profile's hooks have made ready. Several runs may use at once what `open` has opened, and the last
//! of them runs `close`. What `before` has made ready is for one backup alone.
//!
//! For `open` and `close` there are two advisory locks on files of this machine, which the system releases however a
//! process ends. One is held by whoever opens or closes; the other is shared by all who are between the two.

use crate::exit::{Exit, Failure, Result, plain};
use crate::profile::Profile;
use crate::signals::is_stopped;
use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How often a run that waits until others have opened or closed looks again.
const LOOK: Duration = Duration::from_millis(20);

/// A run that uses what `open` has opened.
#[derive(Clone)]
pub(super) struct User {
    /// Held while it is opened or closed, and while it is used. `None` where no locks can be kept: each is the only one
    /// then.
    locks: Option<Arc<(File, File)>>,
}

impl User {
    /// Run `open` while nobody else opens or closes, and be one of those that use what it opens from then on.
    pub fn begin(profile: &Profile, folder: Option<&Path>, open: impl FnOnce() -> Result<()>) -> Result<Self> {
        let locks = folder.and_then(|folder| locks(profile, folder).ok());
        let Some((turn, users)) = &locks else {
            return open().map(|()| User { locks: None });
        };
        wait(turn, profile.name())?;
        let shared = flock(users, FlockOperation::NonBlockingLockShared);
        let opened = shared.map_err(|e| cannot(profile.name(), e)).and_then(|()| open());
        // The other one is let go of with its file where nothing was opened.
        let _ = flock(turn, FlockOperation::Unlock);
        opened.map(|()| User { locks: locks.map(Arc::new) })
    }

    /// Whether nobody else uses it. Then nobody opens it either until this process has ended, whatever it becomes.
    pub fn is_last(&self) -> bool {
        let Some((turn, users)) = self.locks.as_deref() else { return true };
        flock(turn, FlockOperation::LockExclusive).is_ok()
            && flock(users, FlockOperation::NonBlockingLockExclusive).is_ok()
            && fcntl_setfd(turn, FdFlags::empty()).is_ok()
    }

    /// Use it no more, and run `close` if nobody else uses it either.
    pub fn end(self, profile: &str, close: impl FnOnce() -> Result<()>) -> Result<()> {
        let Some((turn, users)) = self.locks.as_deref() else { return close() };
        // Whoever was asked to stop closes what was opened all the same.
        flock(turn, FlockOperation::LockExclusive).map_err(|e| cannot(profile, e))?;
        let closed = match flock(users, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => close(),
            Err(Errno::WOULDBLOCK) => Ok(()),
            Err(e) => Err(cannot(profile, e)),
        };
        let _ = flock(users, FlockOperation::Unlock);
        let _ = flock(turn, FlockOperation::Unlock);
        closed
    }
}

/// Be the only backup of a profile, for as long as this lives. `None` where no locks can be kept.
///
/// # Errors
/// [`Exit::Busy`]: another one is at work.
pub fn alone(profile: &Profile, folder: Option<&Path>) -> Result<Option<File>> {
    let Some(file) = folder.and_then(|folder| lock(profile, folder, "backup").ok()) else { return Ok(None) };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => {
            let message = format!("a backup of profile '{}' is at work", profile.name());
            Err(Failure::new(Exit::Busy, message).hint("wait for its end; until then no hook is run"))
        }
        Err(_) => Ok(None),
    }
}

fn locks(profile: &Profile, folder: &Path) -> Result<(File, File)> {
    Ok((lock(profile, folder, "turn")?, lock(profile, folder, "users")?))
}

fn lock(profile: &Profile, folder: &Path, what: &str) -> Result<File> {
    crate::place::make_folder(folder)?;
    let which = [profile.file().as_os_str().as_encoded_bytes(), profile.name().as_bytes()].join(&0);
    let which: String = drumlin_seal::checksum(&which).iter().map(|b| format!("{b:02x}")).collect();
    let path = folder.join(format!("{which}-{what}"));
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
    opened.map_err(Failure::file("make", &path))
}

fn wait(turn: &File, profile: &str) -> Result<()> {
    loop {
        match flock(turn, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(_) if is_stopped() => return Err(Failure::new(Exit::Interrupted, "interrupted; nothing was begun")),
            Err(Errno::WOULDBLOCK) => std::thread::sleep(LOOK),
            Err(e) => return Err(cannot(profile, e)),
        }
    }
}

fn cannot(profile: &str, e: Errno) -> Failure {
    let why = plain(&e.into());
    Failure::failed(format!("cannot tell whether others use profile '{profile}': {why}"))
}
