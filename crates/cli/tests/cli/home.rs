//! A home of its own for each test: nothing of the machine's is read or written.

use serde_json::Value;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;
use tempfile::TempDir;

/// A home folder, with folders for everything that the program keeps.
pub struct Home {
    dir: TempDir,
    root: PathBuf,
}

/// How a run of the program ended.
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub bytes: Vec<u8>,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Ran {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            bytes: output.stdout,
        }
    }
}

impl Ran {
    /// It ended with this status.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    /// It ended well and said nothing on standard error.
    #[track_caller]
    pub fn ok(self) -> Self {
        let ran = self.expect(0);
        assert_eq!(ran.stderr, "");
        ran
    }

    /// The objects on standard output: every line is one.
    #[track_caller]
    pub fn objects(&self) -> Vec<Value> {
        objects(&self.stdout)
    }

    /// The objects of a type, on standard output or on standard error.
    #[track_caller]
    pub fn of_type(&self, message_type: &str) -> Vec<Value> {
        // Hooks and programs write to standard error what they please.
        let told: String = self.stderr.lines().filter(|l| l.starts_with('{')).map(|l| format!("{l}\n")).collect();
        let all = [objects(&self.stdout), objects(&told)].concat();
        all.into_iter().filter(|o| o["message_type"] == message_type).collect()
    }

    /// The only object of a type.
    #[track_caller]
    pub fn the(&self, message_type: &str) -> Value {
        let mut all = self.of_type(message_type);
        assert_eq!(all.len(), 1, "{message_type}: {}\n{}", self.stdout, self.stderr);
        all.remove(0)
    }
}

#[track_caller]
fn objects(text: &str) -> Vec<Value> {
    let parse = |line: &str| {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        assert!(value["message_type"].is_string(), "{line}");
        value
    };
    text.lines().map(parse).collect()
}

impl Home {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("home")).unwrap();
        Home { dir, root }
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        assert!(self.dir.path().exists());
        self.root.join(name)
    }

    /// The same as text.
    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Write a file, and the folders above it.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, contents).unwrap();
        path
    }

    /// A small tree to save: two files, a folder, a symlink, and a name that isn't UTF-8.
    pub fn sources(&self) -> PathBuf {
        use std::os::unix::ffi::OsStrExt;
        self.write("src/a.txt", "alpha\n");
        self.write("src/deep/b.txt", "beta\n".repeat(1000));
        self.write("src/deep/c.o", "object");
        std::os::unix::fs::symlink("a.txt", self.path("src/link")).unwrap();
        std::fs::write(self.path("src").join(OsStr::from_bytes(b"odd\xff\n")), "odd").unwrap();
        self.path("src")
    }

    /// The program with these arguments, not yet started.
    pub fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_drumlin"));
        command.env_clear().current_dir(&self.root).stdin(Stdio::null());
        // `tests/mounts` runs this where nothing else than TMPDIR can be written.
        for name in ["PATH", "TMPDIR"] {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        command.env("HOME", self.path("home")).env("TZ", "UTC");
        for name in ["DATA", "CONFIG", "CACHE", "STATE"] {
            command.env(format!("XDG_{name}_HOME"), self.path(&name.to_lowercase()));
        }
        command.args(args);
        command
    }

    /// Run it to its end.
    pub fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Ran {
        self.command(args).output().unwrap().into()
    }

    /// Run it among mounts of its own, made by a shell command. Takes root, and a kernel that has namespaces.
    pub fn run_among(&self, mount: &str, args: &[&str]) -> Ran {
        self.run_by("unshare", &["--mount", "sh", "-c", &format!("{mount} && exec \"$0\" \"$@\"")], args)
    }

    /// Have another program run it: one that takes options of its own, then those here.
    pub fn run_by(&self, program: &str, options: &[&str], args: &[&str]) -> Ran {
        let usual = self.command(args);
        let mut command = Command::new(program);
        command.args(options).arg(usual.get_program()).args(usual.get_args());
        command.env_clear().envs(usual.get_envs().filter_map(|(k, v)| Some((k, v?)))).current_dir(self.path(""));
        command.output().unwrap().into()
    }

    /// Run it with this as its standard input.
    pub fn feed<S: AsRef<OsStr>>(&self, args: &[S], input: &[u8]) -> Ran {
        use std::io::Write;
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap().into()
    }

    /// Start it with pipes to all three.
    pub fn start<S: AsRef<OsStr>>(&self, args: &[S]) -> Child {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// The default repository.
    pub fn repository(&self) -> PathBuf {
        self.path("data/drumlin/repository")
    }

    /// Change the bytes of a file, which may be write-protected.
    pub fn tamper(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let mut bytes = std::fs::read(path).unwrap();
        change(&mut bytes);
        std::fs::write(path, bytes).unwrap();
    }

    /// Damage each data pack: some block of it, whichever that is, and its parity.
    pub fn damage(&self) {
        for folder in std::fs::read_dir(self.repository().join("data")).unwrap() {
            for pack in std::fs::read_dir(folder.unwrap().path()).unwrap() {
                self.tamper(&pack.unwrap().path(), |b| {
                    drumlin_testkit::wipe_parity(b);
                    b.iter_mut().skip(40).take(400).for_each(|b| *b ^= 0x55);
                });
            }
        }
    }

    /// The latest snapshot's folder of the usual sources.
    pub fn saved_folder(&self) -> String {
        format!("latest:{}", self.text("src"))
    }

    /// The only key file that is kept.
    pub fn kept_key(&self) -> PathBuf {
        let mut keys = std::fs::read_dir(self.path("config/drumlin/keys")).unwrap();
        let key = keys.next().unwrap().unwrap().path();
        assert!(keys.next().is_none());
        key
    }
}

/// What a process may have in memory, by default: docs/laws.md.
pub const MEMORY: u64 = 128 << 20;

/// Run the program to its end, and tell the most that it had in memory, in bytes.
pub fn peak(mut command: Command) -> (Ran, u64) {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let (ended, has_ended) = std::sync::mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        let mut most = 0;
        while has_ended.recv_timeout(Duration::from_millis(2)) == Err(RecvTimeoutError::Timeout) {
            let told = std::fs::read_to_string(&status).unwrap_or_default();
            let kib =
                told.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
            most = most.max(kib.unwrap_or(0u64) << 10);
        }
        most
    });
    let ran = child.wait_with_output().unwrap().into();
    drop(ended);
    (ran, watch.join().unwrap())
}

/// Send a signal.
pub fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Whether two files or folders are the same, as `diff -r` sees it.
pub fn same(one: &Path, other: &Path) -> bool {
    let diff = Command::new("diff").args(["-r", "--no-dereference"]).arg(one).arg(other).output().unwrap();
    diff.status.success()
}
