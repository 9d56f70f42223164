//! Storage behind rclone, for one test: `tests/servers/rclone`.

use crate::server::Server;

/// rclone, and a WebDAV server that it reaches; ended and deleted when dropped.
#[derive(Debug)]
pub struct Rclone(Server);

impl Rclone {
    /// Start it.
    ///
    /// # Panics
    /// If it can't be: only tests that are asked for by name do so.
    pub fn start() -> Rclone {
        Rclone(Server::start("rclone").unwrap_or_else(|why| panic!("rclone can't be started: {why}")))
    }

    /// What it can store at: a folder of this machine, and one of the server.
    pub fn remotes(&self) -> [&'static str; 2] {
        ["folder", "dav"]
    }

    /// A command that speaks SFTP on its standard input and output, and stores in a folder of a remote.
    ///
    /// # Panics
    /// If the script did not tell its configuration.
    pub fn serves(&self, remote: &str, folder: &str) -> String {
        let config = self.0.tells("RCLONE_CONFIG").expect("the script tells it");
        format!("rclone --config {config} serve sftp --stdio {remote}:{folder}")
    }
}
