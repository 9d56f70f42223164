//! A connection to a host that may have several addresses: each is tried beside those before it, so that one that
//! swallows whatever is sent to it, as IPv6 does where it is set up and leads nowhere, costs a moment and not all
//! patience.
//!
//! After RFC 8305 ("Happy Eyeballs"), but for its resolver: names are resolved by the system, all families at once, in
//! its order.

use std::io::{self, ErrorKind};
use std::net::{self, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// An address of a host gets so long before the next one is tried beside it (RFC 8305's connection attempt delay).
const STAGGER: Duration = Duration::from_millis(250);

/// Connect to a host, within so long after its name has been resolved.
pub(crate) fn connect((host, port): (&str, u16), patience: Duration) -> io::Result<net::TcpStream> {
    connect_any(&addresses(host, port)?, patience)
}

/// A host's addresses. Whatever is below `localhost` is this machine (RFC 6761, 6.3), which not every system's resolver
/// knows: a server of one's own that has its buckets in its name is asked so.
fn addresses(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let is_here = host.to_ascii_lowercase().ends_with(".localhost");
    Ok((if is_here { "localhost" } else { host }, port).to_socket_addrs()?.collect())
}

fn connect_any(addresses: &[SocketAddr], patience: Duration) -> io::Result<net::TcpStream> {
    if let [only] = addresses {
        return net::TcpStream::connect_timeout(only, patience);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let connected = runtime.block_on(async { timeout(patience, any_of(addresses.to_vec())).await });
    let stream = connected.map_err(|_| {
        let words = format!("none of its {} addresses answers within {} seconds", addresses.len(), patience.as_secs());
        io::Error::new(ErrorKind::TimedOut, words)
    })??;
    let stream = stream.into_std()?;
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// A connection to the first of these addresses that takes one.
pub(crate) async fn any_of(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut waiting = in_turns(addresses).into_iter();
    let mut tries = JoinSet::new();
    let mut failed = io::Error::new(ErrorKind::NotFound, "the name has no address");
    loop {
        if let Some(address) = waiting.next() {
            tries.spawn(TcpStream::connect(address));
        }
        let tried = match waiting.len() {
            0 => tries.join_next().await,
            _ => match timeout(STAGGER, tries.join_next()).await {
                Ok(tried) => tried,
                Err(_) => continue,
            },
        };
        match tried {
            Some(Ok(Ok(stream))) => return Ok(stream),
            Some(Ok(Err(error))) => failed = error,
            Some(Err(error)) => failed = error.into(),
            None => return Err(failed),
        }
    }
}

/// The families by turns, beginning with the first address's: where one of them leads nowhere, all of its addresses do.
fn in_turns(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let begins = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (first, second): (Vec<_>, Vec<_>) = addresses.into_iter().partition(|address| address.is_ipv6() == begins);
    let mut by_turns = Vec::with_capacity(first.len() + second.len());
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    loop {
        let pair = (first.next(), second.next());
        by_turns.extend(pair.0.into_iter().chain(pair.1));
        if pair == (None, None) {
            return by_turns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::time::Instant;

    fn reached(addresses: &[SocketAddr]) -> io::Result<SocketAddr> {
        connect_any(addresses, Duration::from_secs(60))?.peer_addr()
    }

    /// A listener whose queue is full: whoever knocks there hears nothing.
    fn swallows() -> (TcpListener, Vec<net::TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // On a socket that listens, it sets the queue's length anew.
        assert_eq!(unsafe { libc::listen(std::os::fd::AsRawFd::as_raw_fd(&listener), 0) }, 0);
        let address = listener.local_addr().unwrap();
        let knock = || net::TcpStream::connect_timeout(&address, Duration::from_millis(100));
        let held = std::iter::from_fn(|| knock().ok()).take(100).collect();
        (listener, held)
    }

    #[test]
    fn an_address_that_swallows_everything_keeps_nobody_from_the_next() {
        let (dead, _held) = swallows();
        let alive = TcpListener::bind("127.0.0.1:0").unwrap();
        let (dead, alive) = (dead.local_addr().unwrap(), alive.local_addr().unwrap());
        let start = Instant::now();
        assert_eq!(reached(&[dead, alive]).unwrap(), alive);
        assert!((STAGGER..Duration::from_secs(30)).contains(&start.elapsed()), "{:?}", start.elapsed());
        assert_eq!(reached(&[alive, dead]).unwrap(), alive);
        // Nobody is there, and says so: nothing is waited for.
        let refuses = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert_eq!(reached(&[refuses, alive]).unwrap(), alive);
        assert_eq!(reached(&[refuses, refuses]).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        assert_eq!(reached(&[]).unwrap_err().kind(), ErrorKind::NotFound);
        let error = connect_any(&[dead, dead], Duration::from_millis(600)).unwrap_err();
        assert!(error.kind() == ErrorKind::TimedOut && error.to_string().contains("2 addresses"), "{error}");
    }

    #[test]
    fn what_connects_blocks_as_others_do() {
        use std::io::{Read, Write};
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut ours = connect_any(&[address, address], Duration::from_secs(60)).unwrap();
        let late = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            listener.accept().unwrap().0.write_all(b"1").unwrap();
        });
        let mut byte = [0];
        ours.read_exact(&mut byte).unwrap();
        late.join().unwrap();
    }

    #[test]
    fn families_take_turns() {
        let of = |list: &[&str]| -> Vec<SocketAddr> { list.iter().map(|address| address.parse().unwrap()).collect() };
        let given = of(&["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1", "1.1.1.2:1"]);
        assert_eq!(in_turns(given), of(&["[::1]:1", "1.1.1.1:1", "[::2]:1", "1.1.1.2:1", "[::3]:1"]));
        assert_eq!(in_turns(of(&["1.1.1.1:1", "[::1]:1"])), of(&["1.1.1.1:1", "[::1]:1"]));
        assert!(in_turns(Vec::new()).is_empty());
    }
}
