//! Real S3 servers for one test: `tests/servers/NAME`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// Names the servers that tests have to run against, with spaces between. Without it they run against whatever can be started.
const NAMED: &str = "DRUMLIN_S3";
/// Those that there are scripts for and that can be started in seconds.
const KNOWN: [&str; 3] = ["moto", "versitygw", "garage"];

/// A bucket on a server of its own; ended and deleted when dropped.
#[derive(Debug)]
pub struct Bucket {
    name: &'static str,
    said: HashMap<String, String>,
    home: TempDir,
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/servers").join(name)
}

impl Bucket {
    /// One on each server that can be had.
    ///
    /// # Panics
    /// If one that `DRUMLIN_S3` names can't be started.
    pub fn all() -> Vec<Bucket> {
        let named = std::env::var(NAMED).ok();
        let is_wanted = |name: &str| named.as_ref().is_none_or(|named| named.split_whitespace().any(|of| of == name));
        let wanted = KNOWN.into_iter().chain(named.is_some().then_some("ceph")).filter(|name| is_wanted(name));
        let started = wanted.filter_map(|name| match Self::start(name) {
            Ok(bucket) => Some(bucket),
            Err(why) if named.is_some() => panic!("{name} can't be started: {why}"),
            Err(why) => {
                eprintln!("skipped: {name} can't be started here: {why}");
                None
            }
        });
        started.collect()
    }

    fn start(name: &'static str) -> Result<Bucket, String> {
        let home = tempfile::Builder::new().prefix("drumlin-s3-").tempdir().map_err(|e| e.to_string())?;
        let mut command = Command::new(script(name));
        let output = command.arg("start").arg(home.path().join("s")).stdin(Stdio::null()).output();
        let output = output.map_err(|e| e.to_string())?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines = text.lines().filter_map(|line| line.split_once('='));
        let said = lines.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        Ok(Bucket { name, said, home })
    }

    fn of(&self, key: &str) -> &str {
        self.said.get(key).map_or("", String::as_str)
    }

    /// Which server it is.
    pub fn server(&self) -> &'static str {
        self.name
    }

    /// The server lets one alone create a name. (Measured; Garage 2.5 ignores the condition.)
    pub fn creates_alone(&self) -> bool {
        self.name != "garage"
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
        self.said.get("LOCKED_BUCKET").map(String::as_str)
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

impl Drop for Bucket {
    fn drop(&mut self) {
        let mut stop = Command::new(script(self.name));
        stop.arg("stop").arg(self.home.path().join("s")).env("FAST", "1").stdout(Stdio::null()).stderr(Stdio::null());
        let _ = stop.status();
    }
}
