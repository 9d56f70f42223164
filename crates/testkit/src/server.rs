//! A server that a script of `tests/servers` runs, for one test.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// A server; ended and deleted when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    name: &'static str,
    /// What the script tells of it.
    said: HashMap<String, String>,
    home: TempDir,
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/servers").join(name)
}

impl Server {
    /// Start it, or say why it can't be.
    pub fn start(name: &'static str) -> Result<Server, String> {
        let home = tempfile::Builder::new().prefix("drumlin-server-").tempdir().map_err(|e| e.to_string())?;
        let mut command = Command::new(script(name));
        let output = command.arg("start").arg(home.path().join("s")).stdin(Stdio::null()).output();
        let output = output.map_err(|e| e.to_string())?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines = text.lines().filter_map(|line| line.split_once('='));
        let said = lines.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        Ok(Server { name, said, home })
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What the script tells, if it does.
    pub fn tells(&self, key: &str) -> Option<&str> {
        self.said.get(key).map(String::as_str)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut stop = Command::new(script(self.name));
        stop.arg("stop").arg(self.home.path().join("s")).env("FAST", "1").stdout(Stdio::null()).stderr(Stdio::null());
        let _ = stop.status();
    }
}
