//! The restoring side tried on real file systems: copies of trees, hostile targets, attributes, big files.

mod attributes;
mod big;
mod hostile;
mod removal;
mod roundtrip;

use std::path::Path;
use std::sync::Arc;

use drumlin_testkit::LoopFs;

use super::{FileId, Target, TargetDir, Wanted};
use crate::meta::{Extras, Time};

/// A user that owns nothing here.
const STRANGER: u32 = 54_321;

static NO_EXTRAS: Extras = Extras { xattrs: Vec::new(), flags: 0, target: Vec::new() };

fn root() -> bool {
    rustix::process::geteuid().is_root()
}

fn me() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// A fresh ext4, or `None` where it can't be had (then the test has nothing to say).
fn loop_fs() -> Option<LoopFs> {
    LoopFs::new(192 << 20)
}

fn open(path: &Path) -> Arc<TargetDir> {
    Arc::clone(Target::open(path, true).expect("the target opens").root())
}

/// Which entry it is; of what isn't there, none.
fn id(dir: &TargetDir, name: &[u8]) -> FileId {
    dir.stat(name).ok().flatten().map_or(FileId { dev: 0, ino: 0 }, |stat| FileId::of(&stat))
}

/// Metadata of an ordinary file of this user.
fn plain(mode: u16) -> Wanted<'static> {
    Wanted { mode, owner: Some(me()), mtime: Time { sec: 1_234_567_890, nsec: 123_456_789 }, extras: &NO_EXTRAS }
}

/// Runs `work` on a thread that is another, ordinary user (the rest of the process stays what it is).
fn as_stranger<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: raw calls with plain numbers and a null pointer for an empty list; unlike the functions of the C
            // library they change this thread alone, which ends with the closure.
            unsafe {
                assert_eq!(libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>()), 0);
                assert_eq!(libc::syscall(libc::SYS_setresgid, STRANGER, STRANGER, STRANGER), 0);
                assert_eq!(libc::syscall(libc::SYS_setresuid, STRANGER, STRANGER, STRANGER), 0);
            }
            work()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
