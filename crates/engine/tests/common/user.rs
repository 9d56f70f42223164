//! Tests as an ordinary user. Where the suite runs as root, a test executes itself again, alone, in a process of
//! nobody's: so that every thread, and every answer of the system, is an ordinary user's.

use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Who that is where the suite runs as root.
pub const NOBODY: u32 = 65534;
const FOLDER: &str = "DRUMLIN_TEST_USER_FOLDER";

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether a test that can't do without root has to be passed over.
pub fn needs_root(test: &str) -> bool {
    if !is_root() {
        println!("{test}: passed over, it needs root");
    }
    !is_root()
}

/// In the process that [`again`] has started: the folder that it was given.
pub fn folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

/// A folder that an ordinary user can reach and write to.
pub fn shared_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    if is_root() {
        chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    folder
}

/// Give a tree to the ordinary user.
pub fn give(tree: &Path) {
    std::os::unix::fs::lchown(tree, Some(NOBODY), Some(NOBODY)).unwrap();
    if tree.is_dir() && !tree.is_symlink() {
        std::fs::read_dir(tree).unwrap().for_each(|e| give(&e.unwrap().path()));
    }
}

/// Run this test as an ordinary user, in a process of its own. There, [`folder`] gives `folder`.
pub fn again(test: &str, folder: &Path) {
    // The folder that the program was built in may be closed to others.
    let program = folder.join("test-program");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = Command::new(&program);
    command
        .args(["--exact", test, "--nocapture"])
        .env(FOLDER, folder)
        .env("TMPDIR", folder)
        .current_dir("/")
        .gid(NOBODY)
        // As root this also gives up all further groups.
        .uid(NOBODY)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let ran = loop {
        match command.spawn() {
            // A process that another thread started meanwhile holds the copy open for writing for a moment.
            Err(e) if e.kind() == ErrorKind::ExecutableFileBusy => std::thread::sleep(Duration::from_millis(10)),
            started => break started.unwrap().wait_with_output().unwrap(),
        }
    };
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success() && out.contains(" 1 passed"), "as an ordinary user:\n{out}\n{err}");
    std::fs::remove_file(program).unwrap();
}

/// Run `check` as an ordinary user if the suite runs as root, else as who it is.
pub fn run(test: &str, check: fn(&Path)) {
    if let Some(folder) = folder() {
        return check(&folder);
    }
    let folder = shared_folder();
    let _ends = drumlin_testkit::tree::Unprotect(folder.path());
    if is_root() { again(test, folder.path()) } else { check(folder.path()) }
}
