//! The program on a terminal: a pseudo-terminal of its own, on which it can ask, draw and be interrupted by keys.

use crate::home::Home;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Longer than anything waited for takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A program that runs on a terminal.
pub struct Terminal {
    child: Child,
    keys: File,
    screen: Arc<Mutex<String>>,
    reader: std::thread::JoinHandle<()>,
}

impl Home {
    /// Start it on a terminal with so many columns, with these variables besides the usual ones.
    pub fn on_terminal(&self, columns: u16, variables: &[(&str, &str)], args: &[&str]) -> Terminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let name = ptsname(&master, Vec::new()).unwrap();
        let name = OsStr::from_bytes(name.as_bytes());
        let side = || File::options().read(true).write(true).open(name).unwrap();
        let slave = side();
        tcsetwinsize(&slave, size).unwrap();
        let usual = self.command(args);
        // Its controlling terminal too, which is where passphrases are asked for and where Ctrl-C comes from; and that
        // isn't to be ignored, as it is by whatever was started in the background.
        let mut command = Command::new("setsid");
        command.args(["--ctty", "env", "--default-signal=INT,QUIT"]).arg(usual.get_program()).args(usual.get_args());
        command.env_clear().envs(usual.get_envs().filter_map(|(k, v)| Some((k, v?))));
        command.env("TERM", "xterm").envs(variables.iter().copied()).current_dir(self.path(""));
        command.stdin(slave).stdout(side()).stderr(side());
        let child = command.spawn().unwrap();
        // With the last descriptor of the slave's side the screen ends; these are the child's now.
        drop(command);
        let keys = File::from(master);
        let screen = Arc::new(Mutex::new(String::new()));
        let (mut from, to) = (keys.try_clone().unwrap(), screen.clone());
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = from.read(&mut buffer) {
                to.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..n]));
            }
        });
        Terminal { child, keys, screen, reader }
    }
}

impl Terminal {
    /// Press keys.
    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// What was written so far.
    pub fn screen(&self) -> String {
        self.screen.lock().unwrap().clone()
    }

    /// Send a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        crate::home::signal(&self.child, signal);
    }

    /// Whether it shows what is typed.
    pub fn echoes(&self) -> bool {
        tcgetattr(&self.keys).unwrap().local_modes.contains(LocalModes::ECHO)
    }

    /// Wait until the screen fits. Gives it.
    #[track_caller]
    pub fn wait_until(&self, fits: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let screen = self.screen();
            if fits(&screen) {
                return screen;
            }
            assert!(start.elapsed() < PATIENCE, "{:?}", screen.rsplit('\r').next());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Wait until a text stands on the screen for the `times`th time.
    #[track_caller]
    pub fn wait_for(&self, text: &str, times: usize) -> String {
        self.wait_until(|screen| screen.matches(text).count() >= times)
    }

    /// Wait for its end. Gives the status.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Wait for its end. Gives status and screen.
    pub fn end(mut self) -> (Option<i32>, String) {
        let status = self.wait();
        self.reader.join().unwrap();
        let screen = self.screen.lock().unwrap().clone();
        (status.code(), screen)
    }
}
