//! Who uses what a profile's hooks have made ready. Several runs may use at once what `open` has opened, and the last
//! of them runs `close`. What `before` has made ready is for one backup alone.
//!
//! For `open` and `close` there are two advisory locks on files of this machine, which the system releases however a
//! process ends. One is held by whoever opens or closes; the other is shared by all who are between the two.

use crate::exit::{Exit, Failure, Result, plain};
use crate::lock::{self, Lock};
use crate::place;
use crate::profile::Profile;
use crate::render::Out;
use crate::signals::is_stopped;
use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

/// How often a run that waits until others have opened or closed looks again.
const LOOK: Duration = Duration::from_millis(20);
/// After so long it says what it waits for.
const QUIET: Duration = Duration::from_secs(2);
/// And after so long it ends: where a hook hangs, a run an hour shall not become a crowd.
const PATIENCE: Duration = Duration::from_secs(5 * 60);
/// Shells know descriptors up to this one by their number.
const SHELLS_MAX: i32 = 9;

/// A run that uses what `open` has opened.
#[derive(Clone)]
pub(super) struct User {
    /// Held while it is opened or closed, and while it is used. `None` where no locks can be kept: each is the only one
    /// then.
    locks: Option<Arc<(File, File)>>,
}

impl User {
    /// Run `open` while nobody else opens or closes, and be one of those that use what it opens from then on.
    pub fn begin(profile: &Profile, out: &Out, open: impl FnOnce() -> Result<()>) -> Result<Self> {
        let (turn, users) = match locks(profile) {
            Ok(locks) => locks,
            Err(failure) => {
                tell_unlocked(out, profile, &failure);
                return open().map(|()| User { locks: None });
            }
        };
        wait(&turn, profile.name(), out, Some(PATIENCE))?;
        let shared = flock(&users, FlockOperation::NonBlockingLockShared);
        let opened = shared.map_err(|e| cannot(profile.name(), e)).and_then(|()| open());
        // The other one is let go of with its file where nothing was opened.
        let _ = flock(&turn, FlockOperation::Unlock);
        opened.map(|()| User { locks: Some(Arc::new((turn, users))) })
    }

    /// Whether nobody else uses it. Then nobody opens it either until this process has ended. Who opens it just now will
    /// close it: if that takes long it isn't waited for.
    pub fn is_last(&self) -> bool {
        let Some((turn, users)) = self.locks.as_deref() else { return true };
        let began = Instant::now();
        while flock(turn, FlockOperation::NonBlockingLockExclusive).is_err() {
            if began.elapsed() >= QUIET {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        flock(users, FlockOperation::NonBlockingLockExclusive).is_ok()
    }

    /// Have the shell that this process becomes keep others from opening until it has ended: by a descriptor, which what
    /// it runs is not to have, as what goes on in the background would keep them from it for as long. `None`: none, or
    /// not one that a shell could close.
    pub fn hand_on(&self) -> Option<i32> {
        let (turn, _) = self.locks.as_deref()?;
        fcntl_setfd(turn, FdFlags::empty()).ok()?;
        Some(turn.as_raw_fd()).filter(|turn| *turn <= SHELLS_MAX)
    }

    /// Use it no more, and run `close` if nobody else uses it either.
    pub fn end(self, profile: &str, out: &Out, close: impl FnOnce() -> Result<()>) -> Result<()> {
        let Some((turn, users)) = self.locks.as_deref() else { return close() };
        // Whoever was asked to stop closes what was opened all the same.
        wait(turn, profile, out, None)?;
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
pub fn alone(profile: &Profile, out: &Out) -> Result<Option<Lock>> {
    match lock_file(profile, "backup") {
        Ok(file) => lock::take(file, &format!("a backup of profile '{}'", profile.name()))
            .map_err(|failure| failure.hint("wait for its end; until then no hook is run")),
        Err(failure) => {
            tell_unlocked(out, profile, &failure);
            Ok(None)
        }
    }
}

fn tell_unlocked(out: &Out, profile: &Profile, failure: &Failure) {
    static TOLD: Once = Once::new();
    let (name, why) = (profile.name(), &failure.message);
    TOLD.call_once(|| {
        out.caution(format!(
            "runs of profile '{name}' are not kept apart, so the hooks of one may undo what another needs: {why}"
        ));
    });
}

fn locks(profile: &Profile) -> Result<(File, File)> {
    Ok((lock_file(profile, "turn")?, lock_file(profile, "users")?))
}

fn lock_file(profile: &Profile, what: &str) -> Result<File> {
    let folder = place::states()?;
    place::make_folder(&folder)?;
    // However it was named: by a path from here, or through a link, it is the same profile.
    let file = profile.file().canonicalize();
    let file = file.as_deref().unwrap_or_else(|_| profile.file());
    let which = [file.as_os_str().as_encoded_bytes(), profile.name().as_bytes()].join(&0);
    let which: String = drumlin_seal::checksum(&which).iter().map(|b| format!("{b:02x}")).collect();
    let path = folder.join(format!("{which}-{what}"));
    let file = lock::file(&path).map_err(Failure::file("make", &path))?;
    // Some file systems have no locks. A file that nobody waits for tells: a lock on this one might be in another's way.
    let probe = lock::file(&folder.join("probe")).map_err(Failure::file("make", &folder))?;
    match flock(&probe, FlockOperation::NonBlockingLockShared) {
        Ok(()) | Err(Errno::WOULDBLOCK) => Ok(file),
        Err(e) => Err(Failure::file("lock", &path)(e.into())),
    }
}

/// Wait for one's turn, at most for `patience` and until a stop is asked for, or, without one, for as long as it takes.
fn wait(turn: &File, profile: &str, out: &Out, patience: Option<Duration>) -> Result<()> {
    let (began, mut told) = (Instant::now(), false);
    loop {
        match flock(turn, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) => {}
            Err(e) => return Err(cannot(profile, e)),
        }
        if patience.is_some() && is_stopped() {
            return Err(Failure::new(Exit::Interrupted, "interrupted; nothing was begun"));
        }
        if patience.is_some_and(|patience| began.elapsed() >= patience) {
            let message = format!("a hook of profile '{profile}' that another run has begun doesn't end");
            return Err(
                Failure::new(Exit::Busy, message).hint("see what 'open' or 'close' waits for; nothing was begun")
            );
        }
        if !told && began.elapsed() >= QUIET {
            out.note(format!("waiting for another run of profile '{profile}', whose hook opens or closes"));
            told = true;
        }
        std::thread::sleep(LOOK);
    }
}

fn cannot(profile: &str, e: Errno) -> Failure {
    let why = plain(&e.into());
    Failure::failed(format!("cannot tell whether others use profile '{profile}': {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_ever_for_a_hook_that_hangs() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("turn");
        let (out, short) = (Out::new(false, true, 0), Duration::from_millis(50));
        let (one, other) = (lock::file(&path).unwrap(), lock::file(&path).unwrap());
        wait(&one, "home", &out, Some(short)).unwrap();
        let refused = wait(&other, "home", &out, Some(short)).unwrap_err();
        assert_eq!(refused.exit, Exit::Busy);
        assert!(refused.message.contains("a hook of profile 'home'"), "{}", refused.message);
        drop(one);
        wait(&other, "home", &out, Some(short)).unwrap();
    }
}
