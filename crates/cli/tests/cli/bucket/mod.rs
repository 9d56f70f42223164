//! Repositories in buckets, by the real program: a server in this process that misbehaves when it is told to, and real
//! ones.

mod far;
mod kills;
mod past;
mod rights;
mod slips;
mod whole;

use crate::home::{Home, Ran};
use drumlin_testkit::s3::{BUCKET, Habits, KEYS, S3};
use std::process::Command;

/// A home whose user has a bucket.
pub struct Cloud {
    pub home: Home,
    pub server: S3,
    endpoint: String,
}

impl Cloud {
    pub fn new() -> Self {
        Self::with(Habits::default())
    }

    pub fn with(habits: Habits) -> Self {
        let server = S3::with(habits);
        Cloud { home: Home::new(), endpoint: server.endpoint(), server }
    }

    /// Reach the server by another port.
    pub fn through(&mut self, port: u16) {
        self.endpoint = format!("http://127.0.0.1:{port}");
    }

    /// The program with the repository in the bucket, not yet started.
    pub fn command(&self, args: &[&str]) -> Command {
        self.command_by("k", args)
    }

    fn command_by(&self, key: &str, args: &[&str]) -> Command {
        let repo = format!("s3://{BUCKET}/repo");
        let mut command = self.home.command(&[&["-r", &repo, "--endpoint", &self.endpoint, "-k", key], args].concat());
        command.env("AWS_ACCESS_KEY_ID", KEYS.0).env("AWS_SECRET_ACCESS_KEY", KEYS.1);
        command
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        self.command(args).output().unwrap().into()
    }

    /// By another key than the owner's.
    pub fn run_by(&self, key: &str, args: &[&str]) -> Ran {
        self.command_by(key, args).output().unwrap().into()
    }

    /// Names of objects below a folder of the repository.
    pub fn objects(&self, folder: &str) -> Vec<String> {
        let below = format!("repo/{folder}/");
        self.server.keys().into_iter().filter(|key| key.starts_with(&below)).collect()
    }
}

/// A server that ignores conditions.
pub fn careless() -> Habits {
    Habits { ignores_conditions: true, ..Habits::default() }
}
