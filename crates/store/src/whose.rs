//! Whose an unfinished object is: the names of the files in `tmp/`, on disks here and elsewhere.
//!
//! Their names tell who is writing them: `<host>-<boot>-<pid namespace>-<pid>-<random>`, all hexadecimal. What a run that
//! was killed left is cleared by a later one:
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

/// Whether a process of this namespace runs.
pub(crate) fn is_running(pid: u64) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return true };
    test_kill_process(pid) != Err(Errno::SRCH)
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
            Self { host, boot, namespace, pid: getpid().as_raw_nonzero().get().unsigned_abs().into() }
        })
    }

    /// A name for a new file of its.
    pub(crate) fn file_name(self) -> io::Result<String> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let Self { host, boot, namespace, pid } = self;
        Ok(format!("{host:016x}-{boot:016x}-{namespace:x}-{pid:x}-{:016x}", u64::from_ne_bytes(random)))
    }

    /// Whose file this is, if it is one in `tmp/`.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let mut fields = name.split('-').map(|field| u64::from_str_radix(field, 16));
        let mut next = || fields.next()?.ok();
        let writer = Self { host: next()?, boot: next()?, namespace: next()?, pid: next()? };
        next()?;
        fields.next().is_none().then_some(writer)
    }

    /// How long it has to have been silent to be taken for gone, seen from the process `this`; `None`: it is alive.
    pub(crate) fn patience(self, this: Self, is_running: impl Fn(u64) -> bool) -> Option<Duration> {
        let same = |mine: u64, other: u64| mine != 0 && mine == other;
        if same(this.boot, self.boot) && same(this.namespace, self.namespace) {
            return (!is_running(self.pid)).then_some(Duration::ZERO);
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
        for odd in ["", "x", "1-2-3-4", "1-2-3-4-5-6", "1-2-3-4-g"] {
            assert_eq!(Writer::parse(odd), None, "{odd}");
        }
    }

    #[test]
    fn who_can_be_asked_for_is_and_others_are_waited_for() {
        let this = Writer { host: 1, boot: 2, namespace: 3, pid: 4 };
        let running = |pid| pid == 4;
        for (writer, patience, why) in [
            (this, None, "ourselves"),
            (Writer { pid: 5, ..this }, Some(Duration::ZERO), "a process that died"),
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
        assert!(is_running(u64::from(std::process::id())));
    }
}
