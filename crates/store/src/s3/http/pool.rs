//! Connections to one server: each is used by one at a time, and kept for the next.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use rustls::ClientConfig;

use super::connection::{Broken, Connection, Request, Response};
use super::proxy::Proxies;
use super::{Endpoint, tls};
use crate::limit::Limits;
use crate::lock::lock;

/// So many idle ones are kept,
const IDLE_MAX: usize = 32;
/// for so long: servers close them after a while, and a request that meets that has to be sent again.
const IDLE_FOR: Duration = Duration::from_secs(15);

pub(crate) struct Pool {
    limits: Limits,
    /// A file of certificates to trust in, in place of the system's.
    bundle: Option<PathBuf>,
    proxies: Arc<Proxies>,
    tls: OnceLock<Arc<ClientConfig>>,
    /// To whom, since when.
    idle: Mutex<Vec<(Endpoint, Connection, Instant)>>,
}

impl Pool {
    pub(crate) fn new(limits: Limits, bundle: Option<PathBuf>, proxies: Arc<Proxies>) -> Self {
        Pool { limits, bundle, proxies, tls: OnceLock::new(), idle: Mutex::default() }
    }

    /// Send a request, and take in its answer's body up to as many bytes as `most` says for its status. `sent` counts
    /// how often it was sent: what was sent twice may have been carried out the first time.
    ///
    /// A kept connection that turns out to have been closed is replaced at once; `Broken` is about a new one, or about
    /// one on which the server had begun to answer.
    pub(crate) fn call(
        &self,
        endpoint: &Endpoint,
        request: &Request<'_>,
        most: &dyn Fn(u16) -> usize,
        sent: &mut u32,
    ) -> Result<Response, Broken> {
        while let Some(mut kept) = self.kept(endpoint) {
            *sent += 1;
            match kept.call(request, most) {
                Err(broken) if broken.unheard && !broken.silent => {}
                answered => return self.keep(endpoint, kept, answered),
            }
        }
        let mut new =
            self.dial(endpoint).map_err(|error| Broken { error, unheard: true, silent: false, dialing: true })?;
        *sent += 1;
        let answered = new.call(request, most);
        self.keep(endpoint, new, answered)
    }

    /// A single request without TLS, to a service next door that answers soon or not at all.
    pub(crate) fn once(
        endpoint: &Endpoint,
        request: &Request<'_>,
        patience: Duration,
        most: usize,
    ) -> io::Result<Response> {
        let mut connection = Connection::dial(endpoint, None, None, &Limits::default(), Some(patience))?;
        connection.call(request, &|_| most).map_err(|broken| broken.error)
    }

    fn dial(&self, endpoint: &Endpoint) -> io::Result<Connection> {
        let tls = match (endpoint.tls, self.tls.get()) {
            (false, _) => None,
            (true, Some(known)) => Some(known.clone()),
            (true, None) => {
                let made = tls::config(self.bundle.as_deref())?;
                Some(self.tls.get_or_init(|| made).clone())
            }
        };
        let proxy = self.proxies.to(endpoint)?;
        let dialed = Connection::dial(endpoint, proxy, tls, &self.limits, None);
        match proxy {
            Some(proxy) => dialed.map_err(|error| {
                io::Error::new(error.kind(), format!("by the proxy {proxy}: {}", crate::error::plain(&error)))
            }),
            None => dialed,
        }
    }

    fn kept(&self, endpoint: &Endpoint) -> Option<Connection> {
        let mut idle = lock(&self.idle);
        idle.retain(|(_, _, since)| since.elapsed() < IDLE_FOR);
        while let Some(place) = idle.iter().rposition(|(to, ..)| to == endpoint) {
            let (_, connection, _) = idle.remove(place);
            if connection.is_quiet() {
                return Some(connection);
            }
        }
        None
    }

    fn keep(
        &self,
        endpoint: &Endpoint,
        connection: Connection,
        answered: Result<Response, Broken>,
    ) -> Result<Response, Broken> {
        if answered.is_ok() && connection.is_reusable() {
            let mut idle = lock(&self.idle);
            if idle.len() >= IDLE_MAX {
                idle.remove(0);
            }
            idle.push((endpoint.clone(), connection, Instant::now()));
        }
        answered
    }
}
