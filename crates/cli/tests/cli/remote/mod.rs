//! Repositories on other machines, by the real program: a real server, lines that are long and break, accounts with few
//! rights.

mod accounts;
mod far;
mod kills;
mod slips;

use crate::home::{Home, Ran};
use drumlin_testkit::{Line, Relay, Sshd};
use std::process::Command;

/// A home whose user can log in to a server.
pub struct Away {
    pub home: Home,
    pub relay: Relay,
    pub sshd: Sshd,
}

impl Away {
    /// `None` where no server can be started.
    pub fn new() -> Option<Self> {
        Some(Self::over(Sshd::start()?))
    }

    /// Over a server that has been started.
    pub fn over(sshd: Sshd) -> Self {
        let relay = Relay::to(sshd.port(), Line::default());
        let away = Away { home: Home::new(), relay, sshd };
        away.configure("");
        away
    }

    /// The user's ssh configuration: for the relay's port, with these lines before all others.
    pub fn configure(&self, lines: &str) {
        let config = self.sshd.config(self.relay.port(), lines);
        self.home.write("home/.ssh/config", std::fs::read_to_string(config).unwrap());
    }

    /// Run it with the repository of an account.
    pub fn run(&self, account: &str, args: &[&str]) -> Ran {
        Ran::from(self.command(account, args).output().unwrap())
    }

    /// The same by another key than the owner's.
    pub fn run_by(&self, key: &str, account: &str, args: &[&str]) -> Ran {
        let repo = address(account);
        self.home.run(&[&["-r", &repo, "-k", key], args].concat())
    }

    /// By the owner's, not yet started.
    pub fn command(&self, account: &str, args: &[&str]) -> Command {
        let repo = address(account);
        self.home.command(&[&["-r", &repo, "-k", "k"], args].concat())
    }

    /// The repository's folder on this machine, where the server keeps it.
    pub fn folder(&self, account: &str) -> std::path::PathBuf {
        self.sshd.folder(account).join(if account == "jail" { "data/repo" } else { "repo" })
    }
}

fn address(account: &str) -> String {
    format!("sftp://{account}/{}/repo", if account == "jail" { "data" } else { "~" })
}
