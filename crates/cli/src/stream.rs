//! Streams as sources: standard input, and what a program writes.

use crate::exit::{Failure, Result};
use crate::signals::Signals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often somebody who waits looks whether to stop.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// A program gets so long to end once it was asked to.
const GRACE: Duration = Duration::from_secs(2);

/// The name of a stream in its snapshot: one component of a path.
///
/// # Errors
/// It isn't one.
pub fn name(name: &OsString) -> Result<Vec<u8>> {
    let bytes = name.as_bytes();
    let bytes = bytes.strip_prefix(b"/").unwrap_or(bytes);
    let why = match bytes {
        b"" => "it is empty",
        b"." | b".." => "that is a folder's",
        _ if bytes.contains(&b'/') => "give a file name without folders",
        _ if bytes.len() > 255 => "no file's name is longer than 255 bytes",
        _ => return Ok(bytes.to_vec()),
    };
    Err(Failure::usage(format!("'{}' can't be the name of a stream: {why}", name.to_string_lossy())))
}

/// Reads from a descriptor; stops waiting for more once the user has interrupted the program.
pub struct Interruptible {
    file: File,
    signals: Signals,
}

impl Interruptible {
    /// Standard input.
    ///
    /// # Errors
    /// It is closed.
    pub fn stdin(signals: &Signals) -> Result<Self> {
        use std::os::fd::AsFd;
        let fd = io::stdin().as_fd().try_clone_to_owned();
        let fd = fd.map_err(|e| Failure::failed(format!("cannot read standard input: {}", crate::exit::plain(&e))))?;
        if stands_for_none(&fd) {
            return Err(Failure::failed("cannot read standard input: it is closed"));
        }
        Ok(Self::new(fd, signals))
    }

    fn new(fd: OwnedFd, signals: &Signals) -> Self {
        // A pipe that holds more means fewer turns for both ends. Not a pipe, or no right to it: no matter.
        let _ = rustix::pipe::fcntl_setpipe_size(&fd, 1 << 20);
        Interruptible { file: fd.into(), signals: signals.clone() }
    }
}

/// Whether it is what the runtime opens where a descriptor was closed: `/dev/null`, to be read and written. Nobody
/// redirects a standard input so.
fn stands_for_none(fd: &OwnedFd) -> bool {
    use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat, major, minor};
    let is_null = fstat(fd).is_ok_and(|stat| {
        let device = (major(stat.st_rdev), minor(stat.st_rdev));
        FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && device == (1, 3)
    });
    is_null && fcntl_getfl(fd).is_ok_and(|flags| flags & OFlags::RWMODE == OFlags::RDWR)
}

impl Read for Interruptible {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.signals.stop() {
                return Err(io::Error::other("interrupted"));
            }
            match poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&LOOK)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return self.file.read(buf),
                Err(e) => return Err(e.into()),
            }
        }
    }
}

/// A program whose output is saved. It is not ended when this is dropped, but by [`Program::end`].
#[derive(Clone)]
pub struct Program {
    name: String,
    signals: Signals,
    child: Arc<Mutex<Option<Child>>>,
}

impl Program {
    /// Start it. Gives its output too.
    ///
    /// # Errors
    /// It can't be started.
    pub fn start(args: &[OsString], signals: &Signals) -> Result<(Self, Interruptible)> {
        let Some((program, args)) = args.split_first() else {
            return Err(Failure::usage("--command needs a program: --command NAME -- PROGRAM ARGUMENTS..."));
        };
        let name = program.to_string_lossy().into_owned();
        let started = Command::new(program).args(args).stdout(Stdio::piped()).spawn();
        let mut child =
            started.map_err(|e| Failure::failed(format!("cannot run '{name}': {}", crate::exit::plain(&e))))?;
        let Some(output) = child.stdout.take() else {
            return Err(Failure::failed(format!("'{name}' has no output")));
        };
        let reader = Interruptible::new(output.into(), signals);
        Ok((Program { name, signals: signals.clone(), child: Arc::new(Mutex::new(Some(child))) }, reader))
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wait for its end. The error says how it failed.
    ///
    /// # Errors
    /// It failed, or the user had no patience.
    pub fn outcome(&self) -> std::result::Result<(), String> {
        let mut slot = self.child();
        let Some(child) = slot.as_mut() else { return Ok(()) };
        let mut pause = Duration::from_millis(1);
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if self.signals.stop() => return Err("interrupted".into()),
                Ok(None) => std::thread::sleep(pause),
                Err(e) => return Err(format!("cannot wait for '{}': {e}", self.name)),
            }
            pause = (pause * 2).min(Duration::from_millis(50));
        };
        *slot = None;
        if status.success() { Ok(()) } else { Err(format!("'{}' failed ({})", self.name, ended(status))) }
    }

    /// End it if it still runs: asked first, then made to.
    pub fn end(&self) {
        let Some(mut child) = self.child().take() else { return };
        if let Some(pid) = rustix::process::Pid::from_raw(child.id().cast_signed()) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let start = std::time::Instant::now();
        while start.elapsed() < GRACE {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// How a program ended, in words.
pub fn ended(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (_, Some(signal)) => format!("signal {signal}"),
        _ => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_component() {
        assert_eq!(name(&"db.sql".into()).unwrap(), b"db.sql");
        assert_eq!(name(&"/db.sql".into()).unwrap(), b"db.sql");
        for wrong in ["", "/", ".", "..", "a/b", "/a/b"] {
            assert!(name(&wrong.into()).is_err(), "{wrong}");
        }
    }
}
