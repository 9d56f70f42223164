//! Real S3 servers for one test: `tests/servers/NAME`.

use crate::server::Server;

/// Names the servers that tests have to run against, with spaces between. Without it they run against whatever can be
/// started.
const NAMED: &str = "DRUMLIN_S3";
/// Those that there are scripts for and that can be started in seconds.
const KNOWN: [&str; 3] = ["moto", "versitygw", "garage"];

/// A bucket on a server of its own; ended and deleted when dropped.
#[derive(Debug)]
pub struct Bucket(Server);

impl Bucket {
    /// One on each server that can be had.
    ///
    /// # Panics
    /// If one that `DRUMLIN_S3` names can't be started.
    pub fn all() -> Vec<Bucket> {
        let named = std::env::var(NAMED).ok();
        let is_wanted = |name: &str| named.as_ref().is_none_or(|named| named.split_whitespace().any(|of| of == name));
        let wanted = KNOWN.into_iter().chain(named.is_some().then_some("ceph")).filter(|name| is_wanted(name));
        let started = wanted.filter_map(|name| match Server::start(name).map(Bucket) {
            Ok(bucket) => Some(bucket),
            Err(why) if named.is_some() => panic!("{name} can't be started: {why}"),
            Err(why) => {
                eprintln!("skipped: {name} can't be started here: {why}");
                None
            }
        });
        started.collect()
    }

    fn of(&self, key: &str) -> &str {
        self.0.tells(key).unwrap_or_default()
    }

    /// Which server it is.
    pub fn server(&self) -> &'static str {
        self.0.name()
    }

    /// The server lets one alone create a name. (Measured; Garage 2.5 ignores the condition.)
    pub fn creates_alone(&self) -> bool {
        self.0.name() != "garage"
    }

    /// The server's URL.
    pub fn endpoint(&self) -> &str {
        self.of("ENDPOINT")
    }

    /// Its port.
    ///
    /// # Panics
    /// If the script said none.
    pub fn port(&self) -> u16 {
        self.of("TCP_PORT").parse().expect("the script tells the port")
    }

    /// The bucket's name.
    pub fn bucket(&self) -> &str {
        self.of("BUCKET")
    }

    /// A bucket with object lock, if the server has such.
    pub fn locked(&self) -> Option<&str> {
        self.0.tells("LOCKED_BUCKET")
    }

    /// A bucket that keeps versions, if the server has such and stamps them with the time at which they came.
    /// (Measured; versitygw 1.8.0 has the time at which they were replaced.)
    pub fn versioned(&self) -> Option<&str> {
        self.0.tells("VERSIONED_BUCKET")
    }

    /// The variables of the environment by which a client is told of its credentials.
    pub fn variables(&self) -> [(&'static str, String); 3] {
        [
            ("AWS_ACCESS_KEY_ID", self.of("ACCESS_KEY").to_owned()),
            ("AWS_SECRET_ACCESS_KEY", self.of("SECRET_KEY").to_owned()),
            ("AWS_REGION", self.of("REGION").to_owned()),
        ]
    }
}
