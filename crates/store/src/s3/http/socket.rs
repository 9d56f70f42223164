//! A TCP connection whose bytes are counted against the limits of speed, and that breaks when nothing has moved for a
//! while.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::dial;
use crate::limit::Limits;

/// How often somebody who waits looks whether anything moves.
const LOOK: Duration = Duration::from_secs(2);
/// Nothing has come, and nothing has gone, for so long: the connection is dead.
const PATIENCE: Duration = Duration::from_secs(60);
/// A host's addresses get so long to answer, all together.
const CONNECTING: Duration = Duration::from_secs(15);
/// With a limit of speed, so much is sent at once.
const PIECE_BYTES: usize = 16 << 10;

pub(super) struct Socket {
    tcp: TcpStream,
    limits: Limits,
    patience: Duration,
}

impl Socket {
    pub(super) fn dial(to: (&str, u16), limits: &Limits, connecting: Option<Duration>) -> io::Result<Self> {
        let tcp = dial::connect(to, connecting.unwrap_or(CONNECTING))?;
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(LOOK))?;
        tcp.set_write_timeout(Some(LOOK))?;
        Ok(Socket { tcp, limits: limits.clone(), patience: connecting.unwrap_or(PATIENCE) })
    }

    /// The other side has neither closed it nor said anything: what an idle connection is like.
    pub(super) fn is_quiet(&self) -> bool {
        let mut byte = [0];
        let looked = self.tcp.set_nonblocking(true).and_then(|()| self.tcp.peek(&mut byte));
        let quiet = matches!(looked, Err(error) if error.kind() == ErrorKind::WouldBlock);
        self.tcp.set_nonblocking(false).is_ok() && quiet
    }

    /// The other side has closed its half, or all of it, whatever it said before.
    fn is_closed(&self) -> bool {
        let mut polled = [PollFd::new(&self.tcp, PollFlags::RDHUP)];
        let closed = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        let looked = poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        looked.is_ok() && polled[0].revents().intersects(closed)
    }

    /// Bytes that were written and that the other side has not acknowledged.
    fn on_the_way(&self) -> i32 {
        let mut bytes: libc::c_int = 0;
        // SAFETY: TIOCOUTQ writes one int, to an int of ours; the descriptor is open as long as `self`. (std has no
        // such call.)
        let done = unsafe { libc::ioctl(self.tcp.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
        if done == 0 { bytes } else { 0 }
    }

    /// Repeat `call` while it only takes time, until nothing has moved for too long; or, if it writes, the other side,
    /// which takes nothing, has closed.
    fn wait(&mut self, writes: bool, mut call: impl FnMut(&mut TcpStream) -> io::Result<usize>) -> io::Result<usize> {
        let (mut since, mut waiting) = (Instant::now(), i32::MAX);
        loop {
            match call(&mut self.tcp) {
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    // A request that is still going out over a slow line is no silence.
                    let now = self.on_the_way();
                    if now < waiting {
                        (since, waiting) = (Instant::now(), now);
                    } else if writes && self.is_closed() {
                        // It may have answered before: that is for who reads.
                        return Err(io::Error::new(ErrorKind::BrokenPipe, "the server closed the connection"));
                    }
                    if since.elapsed() >= self.patience {
                        let words = format!("nothing has moved for {} seconds", self.patience.as_secs());
                        return Err(io::Error::new(ErrorKind::TimedOut, words));
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let room = if self.limits.download.is_any() { buf.len().min(PIECE_BYTES) } else { buf.len() };
        let came = self.wait(false, |tcp| tcp.read(&mut buf[..room]))?;
        std::thread::sleep(self.limits.download.delay(came));
        Ok(came)
    }
}

impl Write for Socket {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let piece = if self.limits.upload.is_any() { &buf[..buf.len().min(PIECE_BYTES)] } else { buf };
        std::thread::sleep(self.limits.upload.delay(piece.len()));
        let mut sent = 0;
        while sent < piece.len() {
            match self.wait(true, |tcp| tcp.write(&piece[sent..]))? {
                0 => return Err(ErrorKind::WriteZero.into()),
                more => sent += more,
            }
        }
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
