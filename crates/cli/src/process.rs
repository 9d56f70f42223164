//! The process itself: its limits, and what becomes of it when there is a bug.

use crate::exit::{Exit, Failure};
use crate::render::Out;
use rustix::process::{Resource, getrlimit, setrlimit};

/// To be done before anything else. `json` says how a bug is told.
pub fn prepare(json: bool) {
    report_panics(json);
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
