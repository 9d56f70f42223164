//! A connection to a host of several addresses: each is tried beside those before it, so that one which swallows whatever is sent to it (a
//! network without IPv6 behind a name that has it) keeps nobody from the next.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// An address has so long alone before the next one is tried as well (RFC 8305).
const STAGGER: Duration = Duration::from_millis(250);

/// Connect to the first that answers. `patience` is had with each.
pub(super) fn first_of(addresses: &[SocketAddr], patience: Duration) -> io::Result<TcpStream> {
    if let [address] = addresses {
        return TcpStream::connect_timeout(address, patience);
    }
    let (sender, tried) = mpsc::channel();
    let mut failed = io::Error::new(ErrorKind::NotFound, "the name has no address");
    let (mut waiting, mut under_way) = (addresses.iter().copied(), 0);
    loop {
        if let Some(address) = waiting.next() {
            let sender = sender.clone();
            let connect = move || {
                // Whoever comes late finds nobody, and closes what it has.
                let _ = sender.send(TcpStream::connect_timeout(&address, patience));
            };
            thread::Builder::new().name("dial".into()).spawn(connect)?;
            under_way += 1;
        }
        if under_way == 0 {
            return Err(failed);
        }
        let result = match waiting.len() {
            0 => tried.recv().map_err(|_| RecvTimeoutError::Disconnected),
            _ => tried.recv_timeout(STAGGER),
        };
        match result {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => {
                failed = error;
                under_way -= 1;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::time::Instant;

    /// A listener whose queue is full: whoever knocks there hears nothing.
    fn swallows() -> (TcpListener, Vec<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // On a socket that listens, it sets the queue's length anew.
        assert_eq!(unsafe { libc::listen(std::os::fd::AsRawFd::as_raw_fd(&listener), 0) }, 0);
        let address = listener.local_addr().unwrap();
        let knock = || TcpStream::connect_timeout(&address, Duration::from_millis(100));
        let held = std::iter::from_fn(|| knock().ok()).take(100).collect();
        (listener, held)
    }

    #[test]
    fn an_address_that_swallows_everything_keeps_nobody_from_the_next() {
        let connect = |addresses: &[SocketAddr]| first_of(addresses, Duration::from_secs(60))?.peer_addr();
        let (dead, _held) = swallows();
        let alive = TcpListener::bind("127.0.0.1:0").unwrap();
        let (dead, alive) = (dead.local_addr().unwrap(), alive.local_addr().unwrap());
        let start = Instant::now();
        assert_eq!(connect(&[dead, alive]).unwrap(), alive);
        assert!((STAGGER..Duration::from_secs(30)).contains(&start.elapsed()), "{:?}", start.elapsed());
        assert_eq!(connect(&[alive, dead]).unwrap(), alive);
        // Nobody is there, and says so: nothing is waited for.
        let refuses = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert_eq!(connect(&[refuses, alive]).unwrap(), alive);
        assert_eq!(connect(&[refuses, refuses]).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        assert_eq!(connect(&[]).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
