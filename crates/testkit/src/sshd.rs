//! A real SFTP server for one test, OpenSSH's or ProFTPD's: `tests/servers/sshd`, `tests/servers/proftpd`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// A server with the accounts plain, jail, append, publish and worm, of which ProFTPD has jail and append; ended and
/// deleted when dropped.
#[derive(Debug)]
pub struct Sshd {
    program: &'static str,
    folder: PathBuf,
    port: u16,
    /// Deleted last.
    _home: Option<TempDir>,
}

/// The script of a program, as root.
fn command(program: &str) -> Command {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/servers").join(program);
    let uid = rustix::process::geteuid();
    if uid.is_root() {
        return Command::new(script);
    }
    let mut sudo = Command::new("sudo");
    sudo.args(["-n", "env"]).arg(format!("OWNER={}", uid.as_raw())).arg(script);
    sudo
}

impl Sshd {
    /// Start OpenSSH's. `None` if that can't be done here: no root, or no such server.
    ///
    /// # Panics
    /// If it can't be done and `DRUMLIN_SERVERS` is set: then a test that was skipped would pass for one that has
    /// passed.
    pub fn start() -> Option<Sshd> {
        Self::start_of("sshd")
    }

    /// Start ProFTPD's; for the rest as [`Sshd::start`].
    pub fn start_proftpd() -> Option<Sshd> {
        Self::start_of("proftpd")
    }

    fn start_of(program: &'static str) -> Option<Sshd> {
        let home = tempfile::Builder::new().prefix(&format!("drumlin-{program}-")).tempdir().ok()?;
        let folder = home.path().join("s");
        Self::start_with(program, &folder, &[], Some(home))
    }

    /// Start OpenSSH's in a folder of the caller's, with these variables set for the script.
    pub fn start_in(folder: &Path, variables: &[(&str, &str)]) -> Option<Sshd> {
        Self::start_with("sshd", folder, variables, None)
    }

    fn start_with(
        program: &'static str,
        folder: &Path,
        variables: &[(&str, &str)],
        home: Option<TempDir>,
    ) -> Option<Sshd> {
        let mut command = command(program);
        command.arg("start").arg(folder).envs(variables.iter().copied()).stdin(Stdio::null());
        let failed = match command.output() {
            Ok(output) if output.status.success() => {
                let text = String::from_utf8_lossy(&output.stdout).into_owned();
                let port = text.lines().find_map(|line| line.strip_prefix("TCP_PORT=")?.parse().ok());
                return Some(Sshd { program, folder: folder.to_owned(), port: port?, _home: home });
            }
            Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
            Err(error) => error.to_string(),
        };
        assert!(std::env::var_os("DRUMLIN_SERVERS").is_none(), "{program} can't be started: {failed}");
        eprintln!("skipped: {program} can't be started here: {failed}");
        None
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What an account sees as its own folder, or its root, as it lies on this machine.
    pub fn folder(&self, account: &str) -> PathBuf {
        self.folder.join(account)
    }

    /// The key that opens every account.
    pub fn key(&self) -> PathBuf {
        self.folder.join("client_key")
    }

    /// The server's key, as the client shall know it.
    pub fn known_hosts(&self) -> PathBuf {
        self.folder.join("known_hosts")
    }

    /// An ssh configuration for the accounts at another port (a relay's): `lines` count more than what it says.
    pub fn config(&self, port: u16, lines: &str) -> PathBuf {
        let file = self.folder.join(format!("config-{port}"));
        let (key, known) = (self.key(), self.folder.join(format!("known-{port}")));
        let hosts = std::fs::read_to_string(self.known_hosts()).unwrap_or_default();
        let text = hosts.replace(&format!("]:{}", self.port), &format!("]:{port}"));
        std::fs::write(&known, text).expect("the server's folder can be written to");
        let accounts = ["plain", "jail", "append", "publish", "worm"];
        let hosts: String = accounts.iter().map(|a| format!("Host {a}\n HostName 127.0.0.1\n User {a}\n")).collect();
        let text = format!(
            "{lines}\n{hosts}Host *\n Port {port}\n IdentityFile {}\n IdentitiesOnly yes\n UserKnownHostsFile {}\n \
             GlobalKnownHostsFile none\n",
            key.display(),
            known.display()
        );
        std::fs::write(&file, text).expect("the server's folder can be written to");
        file
    }

    /// Kill every session, as a crash of the server's machine would end them; new ones can be opened.
    pub fn kill_sessions(&self) {
        let Some(server) = self.server() else { return };
        for session in descendants(server) {
            if let Some(pid) = rustix::process::Pid::from_raw(session) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }

    /// Have the server read its configuration, `etc/sshd_config`, again.
    pub fn reload(&self) {
        let Some(pid) = self.server().and_then(rustix::process::Pid::from_raw) else { return };
        let begun = || self.log().matches("Server listening on").count();
        let before = begun();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::HUP);
        // It closes its port and opens it again, and writes that down.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while begun() <= before && std::time::Instant::now() < until {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    /// The process that listens.
    fn server(&self) -> Option<i32> {
        let pids = std::fs::read_to_string(self.folder.join("pids")).ok()?;
        pids.lines().find_map(|line| line.strip_prefix(self.program)?.split_whitespace().next()?.parse().ok())
    }

    /// What the server has written down.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log").join(self.program)).unwrap_or_default()
    }
}

/// A process's children and theirs.
fn descendants(pid: i32) -> Vec<i32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children: Vec<i32> = children.split_whitespace().filter_map(|child| child.parse().ok()).collect();
    children.iter().flat_map(|child| [vec![*child], descendants(*child)].concat()).collect()
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let mut stop = command(self.program);
        stop.arg("stop").arg(&self.folder).env("FAST", "1").stdout(Stdio::null()).stderr(Stdio::null());
        let _ = stop.status();
    }
}
