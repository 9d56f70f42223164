//! A small S3 server in the test's own process: it keeps objects in memory, sees to signatures as Amazon's does, counts
//! what it is asked for, and misbehaves when it is told to.
//!
//! Its signatures are computed here once more: what the program under test signs is checked by something that isn't its
//! own code.

mod answer;
mod http;
mod policy;
mod sign;
mod state;
mod tls;

use std::collections::HashSet;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

pub use policy::{Context, Policy};
use state::State;

/// The bucket that there is.
pub const BUCKET: &str = "test";
/// An access key that is let in, and its secret.
pub const KEYS: (&str, &str) = ("AKIDEXAMPLE", "wJalrXUtnFEMIexampleKEY");

/// What a server does wrong or differently. Without any it is like Amazon's.
#[derive(Clone, Debug, Default)]
pub struct Habits {
    /// `If-None-Match` is taken and ignored, as Garage 2.5 does.
    pub ignores_conditions: bool,
    /// It is answered with 501.
    pub refuses_conditions: bool,
    /// What whoever asks may do; all, without one.
    pub policy: Option<Policy>,
    /// Seconds by which its clock is ahead.
    pub clock_ahead: i64,
    /// Bytes that it keeps at most; more is a quota that is exceeded.
    pub quota: Option<u64>,
    /// The session token that counts; with any other one the session has ended.
    pub token: Option<String>,
    /// The region that it is in, if that matters.
    pub region: Option<String>,
    /// It refuses with this code whoever doesn't name the bucket as a part of the host's name.
    pub in_host: Option<&'static str>,
    /// Actions (`PutObject` and so on, as rights are named) that nobody may do.
    pub forbidden: HashSet<&'static str>,
    /// Its answers bear no id of their requests.
    pub nameless: bool,
    /// An answer to a HEAD says no length.
    pub silent_heads: bool,
    /// Ranges are passed over: all of an object comes.
    pub ignores_ranges: bool,
    /// Keys in a listing's page.
    pub page: Option<usize>,
    /// Keeps what is replaced or removed.
    pub versions: bool,
    /// The bucket was made with object lock.
    pub locks: bool,
    /// What is put in parts forgets the lock that it was begun with.
    pub forgets_locks: bool,
    /// It locks everything by a rule of its own, and takes nothing without a sum.
    pub demands_sums: bool,
    /// Objects of this storage class can't be read, unless they were asked back.
    pub frozen: Option<String>,
    /// How often who looks after such an object is told that it is on its way.
    pub thaws_after: u32,
}

/// An answer in place of the true one, for a request of an action.
#[derive(Clone, Copy, Debug)]
pub enum Instead {
    /// This status and code, and nothing is done.
    Refuse(u16, &'static str),
    /// It is done, and the connection is closed without a word.
    Vanish,
    /// The connection is closed without a word, and nothing is done.
    Ignore,
    /// It is done; half of the answer comes.
    Half,
    /// It is done, or not; the answer is 200, and a page that some proxy has made.
    Nonsense {
        /// Whether it is done.
        done: bool,
    },
    /// A proxy with no server behind it says 404 for itself, and nothing is done.
    Proxy,
    /// What comes back is no HTTP, and nothing is done.
    Garbage,
    /// The answer is 200, and a body in pieces that has no end.
    Endless,
}

/// A server that runs as long as this lives.
pub struct S3 {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    ended: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
    changed: Condvar,
    tls: Option<Arc<rustls::ServerConfig>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl S3 {
    /// One that behaves.
    pub fn start() -> S3 {
        Self::with(Habits::default())
    }

    /// One with habits.
    ///
    /// # Panics
    /// If there is no port to be had.
    pub fn with(habits: Habits) -> S3 {
        Self::begin(habits, None)
    }

    /// One that speaks TLS, as `localhost` and as `far.test`, with a certificate of an authority that only
    /// [`S3::authority`] knows.
    ///
    /// # Panics
    /// If there is no port to be had.
    pub fn over_tls() -> S3 {
        Self::begin(Habits::default(), Some(tls::config()))
    }

    /// One that speaks TLS as `localhost`, with a certificate that it has signed itself: [`S3::own_certificate`].
    ///
    /// # Panics
    /// If there is no port to be had.
    pub fn over_tls_of_its_own() -> S3 {
        Self::begin(Habits::default(), Some(tls::own()))
    }

    /// That certificate, as PEM.
    pub fn own_certificate() -> &'static str {
        tls::OWN
    }

    /// The authority's certificate, as PEM.
    pub fn authority() -> &'static str {
        tls::AUTHORITY
    }

    fn begin(habits: Habits, tls: Option<Arc<rustls::ServerConfig>>) -> S3 {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("there is a port");
        let port = listener.local_addr().expect("it is bound").port();
        let shared = Arc::new(Shared {
            state: Mutex::new(State::new(habits)),
            ended: AtomicBool::new(false),
            open: Mutex::default(),
            changed: Condvar::new(),
            tls,
        });
        let of_thread = shared.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if of_thread.ended.load(Ordering::Relaxed) {
                    return;
                }
                lock(&of_thread.open).extend(client.try_clone().ok());
                let shared = of_thread.clone();
                thread::spawn(move || http::serve(&shared, client));
            }
        });
        S3 { port, shared }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its URL.
    pub fn endpoint(&self) -> String {
        match &self.shared.tls {
            None => format!("http://127.0.0.1:{}", self.port),
            Some(_) => format!("https://localhost:{}", self.port),
        }
    }

    /// Change its habits.
    pub fn habits(&self, change: impl FnOnce(&mut Habits)) {
        change(&mut lock(&self.shared.state).habits);
    }

    /// Answer otherwise: after `after` more requests of this action, `times` of them.
    pub fn instead(&self, action: &'static str, after: u32, times: u32, instead: Instead) {
        lock(&self.shared.state).instead.push((action, after, times, instead));
    }

    /// Answer as it should again.
    pub fn as_usual(&self) {
        lock(&self.shared.state).instead.clear();
    }

    /// What it was asked for since the last time: each request's action and key.
    pub fn asked(&self) -> Vec<(&'static str, String)> {
        std::mem::take(&mut lock(&self.shared.state).asked)
    }

    /// All keys, in order.
    pub fn keys(&self) -> Vec<String> {
        lock(&self.shared.state).objects.keys().cloned().collect()
    }

    /// An object's bytes.
    pub fn object(&self, key: &str) -> Option<Vec<u8>> {
        lock(&self.shared.state).objects.get(key).map(|object| object.bytes.to_vec())
    }

    /// An object's storage class.
    pub fn class(&self, key: &str) -> Option<String> {
        lock(&self.shared.state).objects.get(key).map(|object| object.class.clone())
    }

    /// An object's lock: its mode, and when it ends.
    pub fn lock_of(&self, key: &str) -> Option<(String, String)> {
        lock(&self.shared.state).objects.get(key)?.lock.clone()
    }

    /// Put an object there, past all that the server would see to.
    pub fn set(&self, key: &str, bytes: &[u8]) {
        lock(&self.shared.state).set(key, bytes.to_vec(), "STANDARD");
    }

    /// Take an object away.
    pub fn remove(&self, key: &str) {
        lock(&self.shared.state).remove(key);
    }

    /// How many uploads in parts have not come to an end.
    pub fn unfinished(&self) -> usize {
        lock(&self.shared.state).uploads.len()
    }

    /// Let all unfinished uploads be older by so many seconds.
    pub fn age(&self, seconds: i64) {
        lock(&self.shared.state).uploads.values_mut().for_each(|upload| upload.since -= seconds);
    }

    /// Answer so many more requests, and then none, until [`S3::resume`]: the first one after them is done, or isn't,
    /// and whoever asked is never told.
    pub fn stop_after(&self, requests: u32, does_last: bool) {
        let mut state = lock(&self.shared.state);
        (state.stop_after, state.does_last, state.stopped) = (Some(requests), does_last, false);
    }

    /// Whether it has stopped; waited for up to `patience`.
    pub fn has_stopped(&self, patience: Duration) -> bool {
        let state = lock(&self.shared.state);
        let waited = self.shared.changed.wait_timeout_while(state, patience, |state| !state.stopped);
        waited.unwrap_or_else(PoisonError::into_inner).0.stopped
    }

    /// Go on; what came while it had stopped is dropped.
    pub fn resume(&self) {
        self.cut();
        let mut state = lock(&self.shared.state);
        (state.stop_after, state.stopped) = (None, false);
        self.shared.changed.notify_all();
    }

    /// Break all connections.
    pub fn cut(&self) {
        for socket in lock(&self.shared.open).drain(..) {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        self.resume();
        // Wakes who waits for clients.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// Seconds since 1970.
fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs().cast_signed())
}
