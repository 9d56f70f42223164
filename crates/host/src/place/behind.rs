//! A thread that writes what has been gathered, while more is.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;

use super::file::close;
use super::gathered::Gathered;

/// Buffers between the two: one that is filled, one that is written.
const BUFFERS: usize = 2;

/// Ends, with all that it was given written, when dropped.
pub(super) struct Behind {
    /// `None` only while it is being dropped.
    to: Option<Sender<Gathered>>,
    back: Receiver<(Gathered, rustix::io::Result<()>)>,
    /// Ends with what closing its descriptor said.
    thread: Option<JoinHandle<rustix::io::Result<()>>>,
    /// Buffers that were sent and have not come back.
    away: usize,
}

impl Behind {
    pub fn start(file: BorrowedFd<'_>) -> std::io::Result<Self> {
        let file = file.try_clone_to_owned()?;
        let (to, full) = channel::<Gathered>();
        let (done, back) = channel();
        let thread = std::thread::Builder::new().name("write-file".into()).spawn(move || {
            let mut failed = false;
            for mut gathered in full {
                // What comes after a failure goes nowhere: the file is given up.
                let written = if failed { Ok(()) } else { gathered.write_to(file.as_fd()) };
                failed |= written.is_err();
                gathered.clear();
                if done.send((gathered, written)).is_err() {
                    break;
                }
            }
            close(file)
        })?;
        Ok(Behind { to: Some(to), back, thread: Some(thread), away: 0 })
    }

    /// Have that written. An empty buffer, or what went wrong with an earlier one.
    pub fn write(&mut self, gathered: Gathered, spare: impl FnOnce() -> Gathered) -> rustix::io::Result<Gathered> {
        let sent = self.to.as_ref().is_some_and(|to| to.send(gathered).is_ok());
        if !sent {
            return Err(Errno::IO);
        }
        self.away += 1;
        if self.away < BUFFERS { Ok(spare()) } else { self.wait() }
    }

    /// Wait until all is written. Each buffer is given to `keep`.
    pub fn settle(&mut self, keep: impl Fn(Gathered)) -> rustix::io::Result<()> {
        while self.away > 0 {
            keep(self.wait()?);
        }
        Ok(())
    }

    /// End, once all is settled: what closing said, which a file system far away may say once only.
    pub fn end(mut self) -> rustix::io::Result<()> {
        self.to = None;
        self.thread.take().map_or(Ok(()), |thread| thread.join().unwrap_or(Err(Errno::IO)))
    }

    fn wait(&mut self) -> rustix::io::Result<Gathered> {
        let (gathered, written) = self.back.recv().map_err(|_| Errno::IO)?;
        self.away -= 1;
        written.map(|()| gathered)
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        self.to = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
