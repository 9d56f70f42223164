//! The process itself: its limits, and what becomes of it when there is a bug.

use crate::exit::{Exit, Failure};
use crate::render::Out;
use rustix::process::{Resource, getrlimit, setrlimit};

/// From this size on the C library's allocator takes memory from the system and gives it back when it is freed. This is
/// what it begins with; left alone it raises that up to 32 MiB with each large piece that is freed, and then keeps what
/// is freed between smaller pieces: a first backup of 3,000,000 files took 106 MB and takes 84.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES_MIN: libc::c_int = 128 << 10;

/// Heaps of the C library's allocator: one for each processor, not its eight, of which each keeps what is free in it.
/// Of 3,000,000 files a first backup took 92 MB and takes 88, in the same time.
#[cfg(target_env = "gnu")]
fn heaps() -> libc::c_int {
    std::thread::available_parallelism().ok().and_then(|n| n.get().try_into().ok()).unwrap_or(2)
}

/// To be done before anything else. `json` says how a bug is told.
pub fn prepare(json: bool) {
    report_panics(json);
    // SAFETY: it changes numbers in the allocator, and no other thread runs yet.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN);
        libc::mallopt(libc::M_ARENA_MAX, heaps());
    }
    // Restores and walks hold many files open; the soft limit is that of ancient programs.
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        let _ = setrlimit(Resource::Nofile, limit);
    }
    crate::signals::note_state_requests();
}

/// A panic in any thread ends the program at once, with one line: the others may wait for the one that died.
fn report_panics(json: bool) {
    std::panic::set_hook(Box::new(move |info| {
        let what = match (info.payload().downcast_ref::<&str>(), info.payload().downcast_ref::<String>()) {
            (Some(text), _) => text,
            (_, Some(text)) => text.as_str(),
            _ => "for reasons unknown",
        };
        let place = info.location().map_or_else(String::new, |l| format!(" at {}:{}", l.file(), l.line()));
        let version = env!("CARGO_PKG_VERSION");
        let what = what.replace('\n', " ");
        let message = format!("this is a bug in drumlin {version}: {what}{place}; please report it");
        // An output of its own: the usual one may be locked by the thread that died.
        Out::new(json, true, 0).failure(&Failure::failed(message));
        std::process::exit(Exit::Failed as i32);
    }));
}

/// This machine's name.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The user's name; their number if they have none.
pub fn user_name() -> String {
    let uid = rustix::process::geteuid().as_raw();
    match drumlin_host::names::Names::new().user(uid) {
        Some(name) => String::from_utf8_lossy(&name).into_owned(),
        None => uid.to_string(),
    }
}
