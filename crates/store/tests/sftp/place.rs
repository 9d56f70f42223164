//! A server, a line to it, and stores over both.

use std::path::PathBuf;
use std::time::Duration;

use drumlin_store::{Location, Retries, SftpStore, Surroundings};
use drumlin_testkit::{Line, Relay, Sshd};

pub struct Place {
    pub relay: Relay,
    pub sshd: Sshd,
    config: PathBuf,
}

impl Place {
    /// `None` where no server can be started.
    pub fn new() -> Option<Self> {
        Self::with("")
    }

    /// With more lines of ssh configuration.
    pub fn with(lines: &str) -> Option<Self> {
        Some(Self::over(Sshd::start()?, lines))
    }

    /// Over a server that has been started.
    pub fn over(sshd: Sshd, lines: &str) -> Self {
        let relay = Relay::to(sshd.port(), Line::default());
        let config = sshd.config(relay.port(), lines);
        Place { relay, sshd, config }
    }

    pub fn around(&self) -> Surroundings {
        let millis = Duration::from_millis;
        Surroundings {
            user: "nobody".into(),
            ssh_config: Some(self.config.clone()),
            retries: Retries { first: millis(20), longest: millis(200), give_up: millis(20_000) },
            ..Surroundings::default()
        }
    }

    pub fn location(&self, account: &str, folder: &str) -> Location {
        Location::parse(&format!("sftp://{account}{folder}")).unwrap()
    }

    /// A new repository's store.
    pub fn create(&self, account: &str, folder: &str) -> SftpStore {
        SftpStore::create(&self.location(account, folder), &self.around()).unwrap_or_else(|e| panic!("{e}"))
    }

    pub fn open(&self, account: &str, folder: &str) -> drumlin_store::Result<SftpStore> {
        SftpStore::open(&self.location(account, folder), &self.around())
    }
}
