//! Whose an unfinished object is: the names of the files in `tmp/`, on disks here and elsewhere.
//!
//! Their names tell who is writing them: `<host>-<boot>-<pid namespace>-<pid>-<began>-<random>`, all hexadecimal. When
//! the process began (in ticks since the boot) tells it from a later one with its id: the first process of each
//! container is 1, and numbers of namespaces are used again. Names of older programs lack it. What a run that was
//! killed left is cleared by a later one:
//!
//! | who wrote it | when it goes |
//! |---|---|
//! | a process of this boot, in this process namespace | once it is gone: it can be asked for |
//! | this host, before it was started again | after a day in which nobody wrote to it |
//! | another host, or a container | after a week in which nobody wrote to it |
//!
//! The day is for clones of a machine that bear one name and share a storage. Time is told by the storage alone: a file
//! made there just now is compared with, so that a client's wrong clock takes nothing from anybody. And a writer that
//! wakes up after its week has lost no more than that object: it gets no name, and its run fails.

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, getpid, test_kill_process};

const DAY: Duration = Duration::from_secs(86_400);
const WEEK: Duration = Duration::from_secs(7 * 86_400);

/// Whether a process of this namespace runs that began then; 0: whenever it began.
pub(crate) fn is_running(pid: u64, began: u64) -> bool {
    let Some(id) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return true };
    if test_kill_process(id) == Err(Errno::SRCH) {
        return false;
    }
    // Where `/proc` hides others' processes, one of this id may be it.
    began == 0 || began_at(&pid.to_string()).is_none_or(|now| now == began)
}

/// When a process began, in ticks since the boot: field 22 of its `stat` (proc(5)). The name in parentheses may hold
/// anything.
fn began_at(process: &str) -> Option<u64> {
    let stat = std::fs::read(format!("/proc/{process}/stat")).ok()?;
    let behind = stat.iter().rposition(|b| *b == b')')?;
    std::str::from_utf8(&stat[behind + 1..]).ok()?.split_whitespace().nth(22 - 3)?.parse().ok()
}

/// Who writes a temporary file. 0 stands for what could not be found out, and equals nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Writer {
    /// A hash of the machine's id and its host name: the id alone may be shared by clones of one image.
    host: u64,
    /// A hash of the kernel's boot id.
    boot: u64,
    /// The process namespace: a process id of another container means nothing here.
    namespace: u64,
    pid: u64,
    /// When it began.
    began: u64,
}

impl Writer {
    /// This process. A child after a fork would bear its parent's id; this program doesn't fork.
    pub(crate) fn this() -> Self {
        static THIS: OnceLock<Writer> = OnceLock::new();
        *THIS.get_or_init(|| {
            let read = |path: &str| std::fs::read(path).unwrap_or_default();
            let machine = read("/etc/machine-id");
            let host = if machine.is_empty() {
                0
            } else {
                fingerprint(&[b"host", &machine, &read("/proc/sys/kernel/hostname")])
            };
            let boot = match read("/proc/sys/kernel/random/boot_id") {
                id if id.is_empty() => 0,
                id => fingerprint(&[b"boot", &id]),
            };
            let namespace =
                std::fs::metadata("/proc/self/ns/pid").map_or(0, |ns| std::os::unix::fs::MetadataExt::ino(&ns));
            let began = began_at("self").unwrap_or(0);
            Self { host, boot, namespace, pid: getpid().as_raw_nonzero().get().unsigned_abs().into(), began }
        })
    }

    /// A name for a new file of its.
    pub(crate) fn file_name(self) -> io::Result<String> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let Self { host, boot, namespace, pid, began } = self;
        Ok(format!("{host:016x}-{boot:016x}-{namespace:x}-{pid:x}-{began:x}-{:016x}", u64::from_ne_bytes(random)))
    }

    /// Whose file this is, if it is one in `tmp/`.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let fields: Result<Vec<u64>, _> = name.split('-').map(|field| u64::from_str_radix(field, 16)).collect();
        match fields.ok()?[..] {
            [host, boot, namespace, pid, began, _random] => Some(Self { host, boot, namespace, pid, began }),
            [host, boot, namespace, pid, _random] => Some(Self { host, boot, namespace, pid, began: 0 }),
            _ => None,
        }
    }

    /// How long it has to have been silent to be taken for gone, seen from the process `this`; `None`: it is alive.
    pub(crate) fn patience(self, this: Self, is_running: impl Fn(u64, u64) -> bool) -> Option<Duration> {
        let same = |mine: u64, other: u64| mine != 0 && mine == other;
        if same(this.boot, self.boot) && same(this.namespace, self.namespace) {
            return (!is_running(self.pid, self.began)).then_some(Duration::ZERO);
        }
        let restarted = same(this.host, self.host) && this.boot != 0 && self.boot != 0 && this.boot != self.boot;
        Some(if restarted { DAY } else { WEEK })
    }
}

/// FNV-1a over the parts: the storage is to learn no machine id, and the same words must give the same number in every
/// version of this program.
fn fingerprint(parts: &[&[u8]]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.iter().copied().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_their_writer() {
        let this = Writer::this();
        let name = this.file_name().unwrap();
        assert_eq!(Writer::parse(&name), Some(this));
        assert_ne!(name, this.file_name().unwrap());
        let older = Writer { host: 1, boot: 2, namespace: 3, pid: 4, began: 0 };
        assert_eq!(Writer::parse("1-2-3-4-5"), Some(older));
        for odd in ["", "x", "1-2-3-4", "1-2-3-4-5-6-7", "1-2-3-4-g"] {
            assert_eq!(Writer::parse(odd), None, "{odd}");
        }
    }

    #[test]
    fn who_can_be_asked_for_is_and_others_are_waited_for() {
        let this = Writer { host: 1, boot: 2, namespace: 3, pid: 4, began: 5 };
        let running = |pid, began| pid == 4 && (began == 5 || began == 0);
        for (writer, patience, why) in [
            (this, None, "ourselves"),
            (Writer { pid: 5, ..this }, Some(Duration::ZERO), "a process that died"),
            (Writer { began: 4, ..this }, Some(Duration::ZERO), "one that had our id before us"),
            (Writer { began: 0, ..this }, None, "one of an older program that may be ourselves"),
            (Writer { pid: 5, namespace: 9, ..this }, Some(WEEK), "in another container"),
            (Writer { boot: 9, ..this }, Some(DAY), "before this boot"),
            (Writer { boot: 9, host: 9, ..this }, Some(WEEK), "another host"),
            (Writer { boot: 0, pid: 5, ..this }, Some(WEEK), "an unknown boot"),
        ] {
            assert_eq!(writer.patience(this, running), patience, "{why}");
        }
        let nameless = Writer { host: 0, ..this };
        let other = Writer { boot: 9, ..nameless };
        assert_eq!(other.patience(nameless, running), Some(WEEK), "hosts without an id are not the same");
        let own = Writer::this();
        assert!(is_running(own.pid, own.began) && is_running(own.pid, 0) && !is_running(own.pid, own.began + 1));
    }
}
