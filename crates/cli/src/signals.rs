//! Signals: the first Ctrl-C (or SIGTERM) asks an operation to stop, the second ends the program; SIGUSR1 asks for the
//! state.
//!
//! Commands that only look at something leave SIGINT and SIGTERM to the system, which ends them at once.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::flag;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// What signals have asked for.
#[derive(Clone)]
pub struct Signals {
    stop: Arc<AtomicBool>,
    state: Arc<AtomicBool>,
}

static STATE: OnceLock<Arc<AtomicBool>> = OnceLock::new();
static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Whether an operation that heeds signals was asked to stop.
pub fn is_stopped() -> bool {
    STOP.get().is_some_and(|stop| stop.load(Ordering::Relaxed))
}

/// Take note of SIGUSR1 from now on; unheeded it would end the program.
pub fn note_state_requests() {
    let state = STATE.get_or_init(Arc::default);
    let _ = flag::register(SIGUSR1, state.clone());
}

impl Signals {
    /// Heed them from now on.
    pub fn heed() -> Self {
        let stop = STOP.get_or_init(Arc::default).clone();
        let signals = Signals { stop: stop.clone(), state: STATE.get_or_init(Arc::default).clone() };
        if HEEDED.swap(true, Ordering::Relaxed) {
            // Once more, and the first signal would find the flag that it has just raised itself.
            return signals;
        }
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            if signal == SIGHUP && is_ignored(signal) {
                // As nohup has it.
                continue;
            }
            // In this order: the first signal finds the flag down, and raises it.
            let _ = flag::register_conditional_shutdown(signal, 130, stop.clone());
            let _ = flag::register(signal, stop.clone());
        }
        signals
    }

    /// Whether the operation shall stop.
    pub fn stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether the state was asked for since the last call.
    pub fn take_state(&self) -> bool {
        self.state.swap(false, Ordering::Relaxed)
    }
}

/// An operation heeds signals by itself.
static HEEDED: AtomicBool = AtomicBool::new(false);

/// Whether an operation heeds them, so that they don't end the program by themselves.
pub fn are_heeded() -> bool {
    HEEDED.load(Ordering::Relaxed)
}

/// Whether whoever started the program has it ignore a signal.
pub fn is_ignored(signal: libc::c_int) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: no new action is given, and the old one is written to a struct of the right type, for which all zeros are
    // a valid value.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}
