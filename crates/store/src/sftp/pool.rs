//! The connections of a store: one at first, more when those at hand are busy, a new one when one breaks.
//!
//! Whoever finds no connection makes one, and the others wait for it. More than one is opened in the background, while
//! work goes on: OpenSSH takes 2 MiB a connection and round trip, so that a far server needs several.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::first::First;
use super::peer::{Gone, Peer, Trouble};
use super::ssh::Occasion;
use super::{program, ssh};
use crate::around::{Stopped, Surroundings, Tell};
use crate::limit::Limits;
use crate::lock::lock;
use crate::retry::Outage;
use crate::{Action, Error, Kind, Result, Retries};

/// Connections at once.
const CONNECTIONS_MAX: usize = 4;
/// With so many bytes on the way on each connection, another one is worth its login.
const BUSY_BYTES: usize = 3 << 20;
/// After an attempt to open one more has failed, for so long none is made.
const RELUCTANCE: Duration = Duration::from_secs(60);
/// A connection says its first word within this time.
const GREETING: Duration = Duration::from_secs(60);
/// What was asked for before a server has greeted has come soon after that.
const FIRST_PATIENCE: Duration = Duration::from_secs(30);
/// A program that has said nothing for so long is dead. There is no asking it whether it lives.
const PROGRAM_PATIENCE: Duration = Duration::from_secs(300);

/// How to reach the server.
pub(super) enum Way {
    /// By our own ssh.
    Ssh(Box<ssh::Login>),
    /// By a command for the shell. Several may run at once, unless each is a world of its own: what one has written
    /// another one may not see at once.
    Program { command: String, several: bool },
}

/// All connections to one server.
pub(super) struct Pool {
    way: Way,
    location: String,
    limits: Limits,
    retries: Retries,
    outage: Outage,
    tell: Option<Tell>,
    stopped: Option<Stopped>,
    /// A path that nobody has.
    none: Vec<u8>,
    /// What is asked for along with the first greeting.
    pub(super) first: First,
    connections: Mutex<Connections>,
    changed: Condvar,
}

#[derive(Default)]
struct Connections {
    peers: Vec<Arc<Peer>>,
    /// So many are being opened.
    dialing: usize,
    /// There was one.
    succeeded: bool,
    reluctant: Option<Instant>,
    /// No further one is made: the server has refused it, as one does that wants another code of a person for each.
    /// Codes that count once, sent again and again, may have it shut us out.
    alone: bool,
}

impl Pool {
    pub(super) fn new(way: Way, location: String, none: Vec<u8>, first: First, around: &Surroundings) -> Arc<Self> {
        let limit = crate::limit::Limit::new;
        Arc::new(Pool {
            way,
            location,
            limits: Limits { upload: limit(around.upload_limit), download: limit(around.download_limit) },
            retries: around.retries,
            outage: Outage::default(),
            tell: around.tell.clone(),
            stopped: around.stopped.clone(),
            none,
            first,
            connections: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    pub(super) fn location(&self) -> &str {
        &self.location
    }

    /// Do something with a connection; if it breaks, with another one, again and again. So `call` must be safe to be
    /// done twice.
    pub(super) fn with<T>(
        self: &Arc<Self>,
        action: Action,
        name: &str,
        mut call: impl FnMut(&Arc<Peer>) -> std::result::Result<T, Trouble>,
    ) -> Result<std::result::Result<T, Trouble>> {
        self.again(|| {
            let peer = self.peer()?;
            match call(&peer) {
                Err(Trouble::Gone(gone)) => Err(self.broken(action, name, &gone)),
                other => Ok(other),
            }
        })
    }

    /// Try again what fails in passing, if there ever was a connection: an address that is wrong is told at once.
    pub(super) fn again<T>(&self, call: impl FnMut() -> Result<T>) -> Result<T> {
        let retries = match lock(&self.connections).succeeded {
            true => self.retries,
            false => Retries { give_up: Duration::ZERO, ..self.retries },
        };
        let tell = |error: &Error| {
            if let Some(tell) = &self.tell {
                tell(&format!("{error}; trying again"));
            }
        };
        retries.run(&self.outage, call, tell, || self.stopped.as_ref().is_some_and(|stopped| stopped()))
    }

    pub(super) fn broken(&self, action: Action, name: &str, gone: &Gone) -> Error {
        Error::because(Kind::Transient, action, name, &self.location, format!("the connection broke: {}", gone.0))
    }

    /// A connection, the one with the least to do.
    pub(super) fn peer(self: &Arc<Self>) -> Result<Arc<Peer>> {
        let mut connections = lock(&self.connections);
        loop {
            connections.peers.retain(|peer| peer.check().is_ok());
            if let Some(peer) = connections.peers.iter().min_by_key(|peer| peer.load()) {
                let peer = peer.clone();
                if peer.load() > BUSY_BYTES {
                    self.grow(&mut connections);
                }
                return Ok(peer);
            }
            if connections.dialing == 0 {
                connections.dialing = 1;
                drop(connections);
                return self.dial(false);
            }
            connections = self.changed.wait(connections).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// For somebody whose connections all have at least so much to do: the others that have little; if there is none,
    /// more are opened in the background.
    pub(super) fn others(self: &Arc<Self>, least: usize, taken: &[u64]) -> Vec<Arc<Peer>> {
        if least < BUSY_BYTES {
            return Vec::new();
        }
        let mut connections = lock(&self.connections);
        let is_free =
            |peer: &&Arc<Peer>| peer.load() < BUSY_BYTES && !taken.contains(&peer.number) && peer.check().is_ok();
        let others: Vec<_> = connections.peers.iter().filter(is_free).cloned().collect();
        if others.is_empty() {
            self.grow(&mut connections);
        }
        others
    }

    /// Whether there are to be several connections, once they have much to do.
    pub(super) fn may_grow(&self) -> bool {
        self.grows(&lock(&self.connections))
    }

    fn grows(&self, connections: &Connections) -> bool {
        let reluctant = connections.reluctant.is_some_and(|since| since.elapsed() < RELUCTANCE);
        let alone = connections.alone || matches!(self.way, Way::Program { several: false, .. });
        !reluctant && !alone
    }

    /// Open more in the background, as many as there are: the first tells whether it is any use.
    fn grow(self: &Arc<Self>, connections: &mut Connections) {
        if connections.dialing > 0 || !self.grows(connections) {
            return;
        }
        let there = connections.peers.len();
        for _ in 0..there.min(CONNECTIONS_MAX.saturating_sub(there)) {
            let pool = self.clone();
            let started = thread::Builder::new().name("sftp-dial".into()).spawn(move || {
                // Whether it came to anything is seen in the connections.
                let _ = pool.dial(true);
            });
            connections.dialing += usize::from(started.is_ok());
        }
    }

    /// Wait until everything that was told over any of them has been heard, for a while.
    pub(super) fn settle(&self) {
        let peers = lock(&self.connections).peers.clone();
        peers.iter().for_each(|peer| peer.settle());
    }

    /// Open one; nobody else is about to. `more`: though there are others.
    fn dial(self: &Arc<Self>, more: bool) -> Result<Arc<Peer>> {
        let occasion = match (more, lock(&self.connections).succeeded) {
            (true, _) => Occasion::More,
            (false, true) => Occasion::Again,
            (false, false) => Occasion::First,
        };
        let dialed = match &self.way {
            Way::Ssh(login) => login.dial(&self.limits, occasion).map_err(|e| e.at(&self.location)),
            Way::Program { command, .. } => program::start(command, &self.limits, PROGRAM_PATIENCE)
                .map_err(|source| Error::new(Action::RunProgram, "", &self.location, source)),
        };
        let greeted = dialed.map_err(Some).and_then(|peer| {
            // A program that ends at once is no passing trouble.
            let kind = match (&self.way, lock(&self.connections).succeeded) {
                (Way::Program { .. }, false) => Kind::Io,
                _ => Kind::Transient,
            };
            let connect = |gone: Gone| Error::because(kind, Action::Connect, "", &self.location, &*gone.0);
            let patience = match &self.way {
                Way::Ssh(login) => login.patience().unwrap_or(GREETING),
                Way::Program { .. } => GREETING,
            };
            let early = if occasion == Occasion::First { self.first.ask(&peer, &self.none) } else { None };
            match (peer.greet(patience), early) {
                (Ok(()), Some(early)) => self.first.keep(early, FIRST_PATIENCE),
                (Ok(()), None) => peer.inquire(&self.none),
                // Perhaps because of that: OpenSSH's is the server that was logged in to, and what speaks SFTP there
                // may be another program.
                (Err(_), Some(_)) => return Err(None),
                (Err(gone), None) => return Err(Some(connect(gone))),
            }
            Ok(peer)
        });
        let greeted = match greeted {
            Err(None) => {
                self.first.give_up();
                return self.dial(more);
            }
            Err(Some(error)) => Err(error),
            Ok(peer) => Ok(peer),
        };
        let mut connections = lock(&self.connections);
        connections.dialing -= 1;
        match &greeted {
            Ok(peer) => {
                connections.peers.push(peer.clone());
                connections.succeeded = true;
            }
            // Before anybody else can ask for another one.
            Err(error) if more => {
                connections.reluctant = Some(Instant::now());
                connections.alone |= error.kind == Kind::Refused;
            }
            Err(_) => {}
        }
        drop(connections);
        self.changed.notify_all();
        greeted
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.settle();
    }
}
