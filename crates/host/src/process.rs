//! Telling a process apart from all others, so that another one on the same system can say for sure that it is gone.
//!
//! A process id alone doesn't do: ids are used again, mean something else in another container, and start anew with the
//! machine. With the boot, the id's namespace and the moment at which the process began it does.

use std::fs;
use std::os::unix::fs::MetadataExt;

/// A process of this machine or of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The machine, by the id that its installation was given (machine-id(5)); empty if it has none.
    pub machine: String,
    /// The run of the system: the kernel's random boot id.
    pub boot: String,
    /// The process-id namespace, by its inode number.
    pub namespace: u64,
    /// The id in there.
    pub id: u32,
    /// When it began, in ticks since the boot.
    pub began: u64,
    /// What its system calls itself (uname(2)): clones of one image, and containers, may share an id. `None`: it
    /// doesn't say.
    pub node: Option<String>,
}

/// What can be said of a process that may be gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alive {
    /// It runs.
    Yes,
    /// It is gone for good.
    No,
    /// It is of another machine or another container.
    Unknown,
}

/// The user and the group that this process makes files as.
pub fn owner() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

impl Process {
    /// This process; `None` where the system doesn't tell (no `/proc`).
    pub fn this() -> Option<Self> {
        let (boot, namespace) = here()?;
        let id = std::process::id();
        Some(Process { machine: machine(), boot, namespace, id, began: began(id)?, node: Some(node()) })
    }

    /// Whether it still runs, as far as this system knows. `has_same_label`: whoever wrote calls the machine as this
    /// one is called; it counts for a process that doesn't say what its system calls itself.
    pub fn alive(&self, has_same_label: bool) -> Alive {
        let has_same_name = self.node.as_ref().map_or(has_same_label, |name| *name == node());
        let is_same_machine = has_same_name && !self.machine.is_empty() && self.machine == machine();
        match here() {
            // It ended with its system, if not before.
            Some((boot, _)) if boot != self.boot && is_same_machine => Alive::No,
            Some((boot, namespace)) if (&boot, namespace) == (&self.boot, self.namespace) => match began(self.id) {
                Some(began) if began == self.began => Alive::Yes,
                // `/proc` may hide the processes of others (hidepid): then an id that exists looks like one that
                // doesn't.
                None if exists(self.id) => Alive::Unknown,
                _ => Alive::No,
            },
            _ => Alive::Unknown,
        }
    }
}

/// How many files this process may have open at once.
pub fn descriptors() -> usize {
    let soft = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(1024);
    usize::try_from(soft).unwrap_or(usize::MAX)
}

fn here() -> Option<(String, u64)> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some((boot.trim().to_owned(), fs::metadata("/proc/self/ns/pid").ok()?.ino()))
}

fn machine() -> String {
    let read = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let id = read.trim();
    // Anything else is no id, "uninitialized" for one.
    if id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()) { id.to_owned() } else { String::new() }
}

fn node() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn began(id: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name in parentheses may hold anything; what follows it are fields 3 and up, and this is field 22 (proc(5)).
    let fields = stat.rsplit_once(')')?.1;
    fields.split_whitespace().nth(22 - 3)?.parse().ok()
}

fn exists(id: u32) -> bool {
    let Some(pid) = i32::try_from(id).ok().and_then(rustix::process::Pid::from_raw) else { return false };
    rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_living_the_dead_and_those_elsewhere() {
        let this = Process::this().unwrap();
        assert_eq!(this.alive(true), Alive::Yes);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let other = Process { id: child.id(), began: began(child.id()).unwrap(), ..this.clone() };
        assert_eq!(other.alive(true), Alive::Yes);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(other.alive(true), Alive::No);
        let reused = Process { began: this.began + 1, ..this.clone() };
        assert_eq!(reused.alive(true), Alive::No, "another process has its id now");
        let boot = "another".to_owned();
        let elsewhere = Process { machine: "0".repeat(32), boot: boot.clone(), ..this.clone() };
        assert_eq!(elsewhere.alive(true), Alive::Unknown);
        assert_eq!(Process { machine: String::new(), boot: boot.clone(), ..this.clone() }.alive(true), Alive::Unknown);
        if !this.machine.is_empty() {
            let before = Process { boot, ..this.clone() };
            assert_eq!(
                before.alive(false),
                Alive::No,
                "before this machine was started anew, whatever it is called by its user"
            );
            let clone = Process { node: Some("another".into()), ..before.clone() };
            assert_eq!(clone.alive(true), Alive::Unknown, "a clone of it that goes by the same label");
            let silent = Process { node: None, ..before };
            assert_eq!((silent.alive(true), silent.alive(false)), (Alive::No, Alive::Unknown));
        }
        assert_eq!(Process { namespace: 1, ..this }.alive(true), Alive::Unknown);
    }
}
