//! A line between a client and a server that is long, narrow, counted, and breaks when it is told to.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes that are taken in at once.
const BUFFER_BYTES: usize = 64 << 10;
/// What may be on the line: more makes the sender wait.
const ON_THE_LINE_BYTES: u64 = 32 << 20;

/// What a line is like. Changes count for bytes that come in later.
#[derive(Clone, Copy, Debug, Default)]
pub struct Line {
    /// From one end to the other and back.
    pub round_trip: Duration,
    /// Bytes a second towards the server, of all connections together; 0 for no limit.
    pub up: u64,
    /// Bytes a second from the server, of all connections together; 0 for no limit.
    pub down: u64,
}

impl Line {
    /// One that is long, and of any width.
    pub fn long(round_trip: Duration) -> Self {
        Line { round_trip, ..Line::default() }
    }
}

/// A relay on a port of its own on 127.0.0.1; it passes nothing on any more once it is dropped.
pub struct Relay {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    target: SocketAddr,
    line: Mutex<Line>,
    /// When the line is free again: towards the server, and from it.
    free: [Mutex<Instant>; 2],
    /// Bytes towards the server, and from it.
    up: AtomicU64,
    down: AtomicU64,
    /// How often the client spoke after the server had.
    turns: AtomicU64,
    /// Connections so far.
    connections: AtomicU64,
    /// Break all connections once so many bytes in all have passed.
    cut_at: Mutex<Vec<u64>>,
    stalled: AtomicBool,
    ended: AtomicBool,
    /// By the connection's number: the sockets of both ends.
    open: Mutex<HashMap<u64, [TcpStream; 2]>>,
    /// Bytes that the server was given.
    delivered: AtomicU64,
    /// Until when something is on its way, and how long something has been.
    travel: Mutex<(Instant, Duration)>,
}

/// A connection, as long as something may still pass over it.
struct Connection {
    number: u64,
    shared: Arc<Shared>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        lock(&self.shared.open).remove(&self.number);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Relay {
    /// To a port on this machine.
    ///
    /// # Panics
    /// If there is no port to be had.
    pub fn to(port: u16, line: Line) -> Relay {
        Self::between(0, port, line)
    }

    /// From a certain port to another one on this machine.
    ///
    /// # Panics
    /// If that is taken.
    pub fn between(here: u16, port: u16, line: Line) -> Relay {
        let listener = TcpListener::bind(("127.0.0.1", here)).expect("the port is free");
        let here = listener.local_addr().expect("it is bound").port();
        let shared = Arc::new(Shared {
            target: SocketAddr::from(([127, 0, 0, 1], port)),
            line: Mutex::new(line),
            free: [Mutex::new(Instant::now()), Mutex::new(Instant::now())],
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
            turns: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            cut_at: Mutex::default(),
            stalled: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            open: Mutex::default(),
            delivered: AtomicU64::new(0),
            travel: Mutex::new((Instant::now(), Duration::ZERO)),
        });
        let of_thread = shared.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                if of_thread.ended.load(Ordering::Relaxed) {
                    return;
                }
                if let Ok(client) = client {
                    of_thread.clone().begin(client);
                }
            }
        });
        Relay { port: here, shared }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Bytes that went to the server, and that came from it.
    pub fn bytes(&self) -> (u64, u64) {
        (self.shared.up.load(Ordering::Relaxed), self.shared.down.load(Ordering::Relaxed))
    }

    /// How often the client spoke after the server had: round trips, where nothing goes both ways at once.
    pub fn turns(&self) -> u64 {
        self.shared.turns.load(Ordering::Relaxed)
    }

    /// For how long something was on its way so far, either way. Divided by the round trip: how often somebody waited
    /// for the line, whatever the machines take besides.
    pub fn travelled(&self) -> Duration {
        lock(&self.shared.travel).1
    }

    /// How fast bytes went to the server while `work` was done, which sends about `expected` of them: bytes a second,
    /// from the second to the ninth tenth of them.
    pub fn rate_up(&self, expected: u64, work: impl FnOnce()) -> f64 {
        let before = self.shared.delivered.load(Ordering::Relaxed);
        let (is_done, shared) = (Arc::new(AtomicBool::new(false)), self.shared.clone());
        let done = is_done.clone();
        let watch = thread::spawn(move || {
            let sent = || shared.delivered.load(Ordering::Relaxed) - before;
            let wait = |bytes: u64| {
                while sent() < bytes && !done.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(1));
                }
                (Instant::now(), sent())
            };
            let (from, to) = (wait(expected / 10), wait(expected * 9 / 10));
            (to.1 - from.1) as f64 / (to.0 - from.0).as_secs_f64()
        });
        work();
        is_done.store(true, Ordering::Relaxed);
        watch.join().expect("it only counts")
    }

    /// How many connections there were.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Break all connections now.
    pub fn cut(&self) {
        self.shared.cut();
    }

    /// Break one of the connections now: the newest, or else the oldest. `false`: there is none.
    pub fn cut_one(&self, is_newest: bool) -> bool {
        let mut open = lock(&self.shared.open);
        let number = if is_newest { open.keys().max() } else { open.keys().min() }.copied();
        let Some(sockets) = number.and_then(|number| open.remove(&number)) else { return false };
        sockets.iter().for_each(|socket| _ = socket.shutdown(Shutdown::Both));
        true
    }

    /// Break all connections whenever the bytes that passed both ways, since the relay was made, reach one of these
    /// numbers.
    pub fn cut_at(&self, mut bytes: Vec<u64>) {
        bytes.sort_unstable();
        *lock(&self.shared.cut_at) = bytes;
    }

    /// Pass on nothing while it is set; connections stay open.
    pub fn stall(&self, stalled: bool) {
        self.shared.stalled.store(stalled, Ordering::Relaxed);
    }

    /// Make it another line.
    pub fn set(&self, line: Line) {
        *lock(&self.shared.line) = line;
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        self.shared.cut();
        // Wakes who waits for clients.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Shared {
    fn begin(self: Arc<Self>, client: TcpStream) {
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        let Ok(server) = TcpStream::connect(self.target) else { return };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let (Ok(to_client), Ok(to_server)) = (client.try_clone(), server.try_clone()) else { return };
        let (Ok(here), Ok(there)) = (client.try_clone(), server.try_clone()) else { return };
        lock(&self.open).insert(number, [here, there]);
        let connection = Arc::new(Connection { number, shared: self });
        let server_spoke = Arc::new(AtomicBool::new(false));
        let (up, down) = (connection.clone(), connection);
        let spoke = server_spoke.clone();
        thread::spawn(move || up.shared.clone().pass(client, to_server, true, &spoke));
        thread::spawn(move || down.shared.clone().pass(server, to_client, false, &server_spoke));
    }

    fn pass(self: Arc<Self>, mut from: TcpStream, to: TcpStream, is_up: bool, server_spoke: &AtomicBool) {
        let (queue, queued) = channel::<(Instant, Vec<u8>)>();
        let on_the_line = Arc::new(AtomicU64::new(0));
        let (shared, out) = (self.clone(), on_the_line.clone());
        let sending = thread::spawn(move || shared.send(&queued, to, &out, is_up));
        let mut buffer = vec![0; BUFFER_BYTES];
        while let Ok(came @ 1..) = from.read(&mut buffer) {
            if is_up && server_spoke.swap(false, Ordering::Relaxed) {
                self.turns.fetch_add(1, Ordering::Relaxed);
            } else if !is_up {
                server_spoke.store(true, Ordering::Relaxed);
            }
            let counter = if is_up { &self.up } else { &self.down };
            counter.fetch_add(came as u64, Ordering::Relaxed);
            let Line { round_trip, up, down } = *lock(&self.line);
            let rate = if is_up { up } else { down };
            let (mut free, mut room) = (Instant::now(), ON_THE_LINE_BYTES);
            if rate > 0 {
                let mut line = lock(&self.free[usize::from(!is_up)]);
                *line = free.max(*line) + Duration::from_secs_f64(came as f64 / rate as f64);
                free = *line;
                // What fills it, and half a second's more.
                room = room.min((rate as f64 * (round_trip.as_secs_f64() + 0.5)) as u64);
            }
            on_the_line.fetch_add(came as u64, Ordering::Relaxed);
            let due = free + round_trip / 2;
            let mut travel = lock(&self.travel);
            let from = Instant::now().max(travel.0);
            if due > from {
                *travel = (due, travel.1 + (due - from));
            }
            drop(travel);
            if !self.hand_on(&queue, due, &buffer[..came]) || self.is_to_be_cut() {
                self.cut();
                break;
            }
            while on_the_line.load(Ordering::Relaxed) > room {
                thread::sleep(Duration::from_millis(1));
            }
        }
        drop(queue);
        let _ = sending.join();
    }

    fn hand_on(&self, queue: &Sender<(Instant, Vec<u8>)>, due: Instant, bytes: &[u8]) -> bool {
        queue.send((due, bytes.to_vec())).is_ok()
    }

    fn send(&self, queued: &Receiver<(Instant, Vec<u8>)>, mut to: TcpStream, on_the_line: &AtomicU64, is_up: bool) {
        while let Ok((due, bytes)) = queued.recv() {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            while self.stalled.load(Ordering::Relaxed) && !self.ended.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(2));
            }
            on_the_line.fetch_sub(bytes.len() as u64, Ordering::Relaxed);
            if to.write_all(&bytes).is_err() {
                return;
            }
            if is_up {
                self.delivered.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    }

    fn is_to_be_cut(&self) -> bool {
        let passed = self.up.load(Ordering::Relaxed) + self.down.load(Ordering::Relaxed);
        let mut cut_at = lock(&self.cut_at);
        let due = cut_at.iter().take_while(|at| **at <= passed).count();
        cut_at.drain(..due);
        due > 0
    }

    fn cut(&self) {
        for (_, sockets) in lock(&self.open).drain() {
            for socket in sockets {
                let _ = socket.shutdown(Shutdown::Both);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that gives back what it gets.
    fn echo() -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(move || {
                    let (mut from, mut to) = (stream.try_clone().unwrap(), stream);
                    let _ = std::io::copy(&mut from, &mut to);
                });
            }
        });
        port
    }

    fn ask(stream: &mut TcpStream, bytes: &[u8]) -> std::io::Result<Duration> {
        let start = Instant::now();
        stream.write_all(bytes)?;
        let mut back = vec![0; bytes.len()];
        stream.read_exact(&mut back)?;
        assert_eq!(back, bytes);
        Ok(start.elapsed())
    }

    #[test]
    fn a_line_is_long_narrow_and_counted() {
        let millis = Duration::from_millis;
        let relay = Relay::to(echo(), Line::long(millis(60)));
        let mut stream = TcpStream::connect(("127.0.0.1", relay.port())).unwrap();
        // On a busy machine, one of some.
        let is_right = |took: &[Duration], from: Duration, to: Duration| {
            assert!(took.iter().all(|took| *took >= from) && took.iter().any(|took| *took < to), "{took:?}");
        };
        let took: Vec<_> = (0..5).map(|_| ask(&mut stream, b"12345").unwrap()).collect();
        is_right(&took, millis(60), millis(200));
        assert_eq!((relay.bytes(), relay.turns(), relay.connections()), ((25, 25), 4, 1));
        let travelled = relay.travelled();
        assert!(travelled >= millis(299) && travelled <= millis(301), "{travelled:?}");
        // The slower way counts, as both go on at once.
        for (up, down) in [(1_000_000, 0), (0, 1_000_000), (4_000_000, 1_000_000)] {
            relay.set(Line { round_trip: millis(0), up, down });
            let took: Vec<_> = (0..3).map(|_| ask(&mut stream, &vec![7; 200_000]).unwrap()).collect();
            is_right(&took, millis(180), millis(1000));
        }
    }

    #[test]
    fn a_line_breaks_and_stalls_when_it_is_told_to() {
        let relay = Relay::to(echo(), Line::default());
        relay.cut_at(vec![1000]);
        let mut stream = TcpStream::connect(("127.0.0.1", relay.port())).unwrap();
        ask(&mut stream, &[1; 400]).unwrap();
        assert!(ask(&mut stream, &[1; 400]).is_err());
        let mut stream = TcpStream::connect(("127.0.0.1", relay.port())).unwrap();
        ask(&mut stream, &[1; 4000]).unwrap();
        relay.stall(true);
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        assert!(ask(&mut stream, b"1").is_err());
        relay.stall(false);
        stream.set_read_timeout(None).unwrap();
        stream.read_exact(&mut [0; 1]).unwrap();
        relay.cut();
        assert!(ask(&mut stream, b"1").is_err());
        assert_eq!(relay.connections(), 2);
        for _ in 0..20 {
            ask(&mut TcpStream::connect(("127.0.0.1", relay.port())).unwrap(), b"1").unwrap();
        }
        // What has ended is not kept.
        let until = Instant::now() + Duration::from_secs(5);
        while !lock(&relay.shared.open).is_empty() {
            assert!(Instant::now() < until, "{} connections are open", lock(&relay.shared.open).len());
            thread::sleep(Duration::from_millis(5));
        }
    }
}
