//! Signals: the first Ctrl-C (or SIGTERM) asks an operation to stop, the second ends the program; SIGUSR1 asks for the
//! state.
//!
//! Commands that only look at something leave SIGINT and SIGTERM to the system, which ends them at once.

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::flag;
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

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
        HEEDED.store(true, Ordering::Relaxed);
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            if signal == SIGHUP && is_ignored(signal) {
                // As nohup has it.
                continue;
            }
            // In this order: the first signal finds the flag down, and raises it.
            let _ = flag::register_conditional_shutdown(signal, 130, stop.clone());
            let _ = flag::register(signal, stop.clone());
        }
        Signals { stop, state: STATE.get_or_init(Arc::default).clone() }
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

/// The terminal that a passphrase is being typed on, and its modes before.
static ASKING: Mutex<Option<(File, Termios)>> = Mutex::new(None);

fn asking() -> MutexGuard<'static, Option<(File, Termios)>> {
    ASKING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While this lives the terminal does not show what is typed. With its end, or when a signal ends the program, the
/// terminal shows it again.
pub struct Asking(());

impl Asking {
    /// From now on. To be called before the question is written: whoever answers at once is not shown either.
    pub fn begin() -> Self {
        static WATCHED: OnceLock<()> = OnceLock::new();
        let modes = File::open("/dev/tty").and_then(|tty| Ok((tcgetattr(&tty)?, tty)));
        if let Ok((modes, tty)) = modes {
            let mut unseen = modes.clone();
            unseen.local_modes.remove(LocalModes::ECHO);
            let mut asking = asking();
            WATCHED.get_or_init(give_back);
            // Where it fails rpassword says so.
            let _ = tcsetattr(&tty, OptionalActions::Now, &unseen);
            *asking = Some((tty, modes));
        }
        Asking(())
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        show_again(asking().take());
    }
}

fn show_again(asked: Option<(File, Termios)>) -> bool {
    asked.is_some_and(|(tty, modes)| {
        let _ = tcsetattr(&tty, OptionalActions::Now, &modes);
        true
    })
}

/// Wait for signals for as long as the program runs: once it has asked for them they end it only if somebody sees to it.
fn give_back() {
    let heard = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|s| !is_ignored(*s));
    let Ok(mut signals) = signal_hook::iterator::Signals::new(heard) else { return };
    let watch = move || {
        for signal in signals.forever() {
            if !show_again(asking().take()) && HEEDED.load(Ordering::Relaxed) {
                continue;
            }
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    };
    let _ = std::thread::Builder::new().name("signals".into()).spawn(watch);
}

fn is_ignored(signal: libc::c_int) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: no new action is given, and the old one is written to a struct of the right type, for which all zeros are
    // a valid value.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}
