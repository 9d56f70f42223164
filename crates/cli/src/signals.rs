//! Signals: the first Ctrl-C (or SIGTERM) asks an operation to stop, the second ends the program; SIGUSR1 asks for the
//! state.
//!
//! What comes right behind the first one is the same one: `timeout` signals its command and then its group, in which
//! that is too. A terminal that goes away says so twice, by the shell and by the kernel, whenever they come to it, so
//! that a second SIGHUP ends nothing at all.
//!
//! Commands that only look at something leave SIGINT and SIGTERM to the system, which ends them at once; what has to be
//! put right before that is ([`before_end`]).

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::flag;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError};

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

/// Take note of SIGUSR1 from now on; unheeded it would end the program. And have a file that grows beyond a limit
/// (`ulimit -f`) be an error of who writes it, as on a full disk: SIGXFSZ would end the program without a word.
/// (Programs that this one starts end by it as usual.)
pub fn note_state_requests() {
    let state = STATE.get_or_init(Arc::default);
    let _ = flag::register(SIGUSR1, state.clone());
    let _ = flag::register(SIGXFSZ, Arc::default());
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
            let stop = stop.clone();
            // SAFETY: what is called in there (atomics, clock_gettime, _exit) may be called by a signal's handler.
            let _ = unsafe { signal_hook::low_level::register(signal, move || stop_or_end(signal, &stop)) };
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

/// Signals within so many milliseconds of the first count as the same one: hardly anybody presses a key twice that
/// fast.
const SAME_MILLIS: u64 = 200;

/// When the first signal came, in milliseconds of a clock that never jumps, from 1 on; 0: none has come.
static FIRST: AtomicU64 = AtomicU64::new(0);

/// In a signal's handler: the first asks to stop, a later one ends the program.
fn stop_or_end(signal: libc::c_int, stop: &AtomicBool) {
    let now = millis() + 1;
    match FIRST.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => stop.store(true, Ordering::Relaxed),
        Err(first) if signal != SIGHUP && now.saturating_sub(first) >= SAME_MILLIS => {
            signal_hook::low_level::exit(130);
        }
        Err(_) => {}
    }
}

fn millis() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes to a struct of the right type, and this clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec.cast_unsigned() * 1000 + now.tv_nsec.cast_unsigned() / 1_000_000
}

/// Whether an operation handles signals itself.
static HEEDED: AtomicBool = AtomicBool::new(false);

/// Whether an operation handles signals, so that they don't end the program at once.
fn are_heeded() -> bool {
    HEEDED.load(Ordering::Relaxed)
}

/// Something to be put right.
struct Undo {
    number: u64,
    /// The signal ends the program even where an operation heeds it.
    always: bool,
    put_right: Box<dyn FnOnce() + Send>,
}

/// What is put right before a signal ends the program, in the order in which it came to be.
static UNDO: Mutex<Vec<Undo>> = Mutex::new(Vec::new());

fn undo() -> MutexGuard<'static, Vec<Undo>> {
    UNDO.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While this lives, something is put right before a signal ends the program.
pub struct BeforeEnd(u64);

/// Have something put right if a signal comes that no operation heeds, or, with `always`, even if one does: the program
/// ends then.
pub fn before_end(always: bool, put_right: impl FnOnce() + Send + 'static) -> BeforeEnd {
    static WATCHED: Once = Once::new();
    let mut all = undo();
    let number = all.last().map_or(0, |last| last.number + 1);
    all.push(Undo { number, always, put_right: Box::new(put_right) });
    drop(all);
    WATCHED.call_once(watch);
    BeforeEnd(number)
}

impl Drop for BeforeEnd {
    fn drop(&mut self) {
        undo().retain(|one| one.number != self.0);
    }
}

/// Wait for signals for as long as the program runs: once it has asked for them they end it only if somebody sees to
/// it.
fn watch() {
    let heard = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|s| !is_ignored(*s));
    let Ok(mut signals) = signal_hook::iterator::Signals::new(heard) else { return };
    let watch = move || {
        for signal in signals.forever() {
            let all = {
                let mut all = undo();
                if are_heeded() && !all.iter().any(|one| one.always) {
                    continue;
                }
                std::mem::take(&mut *all)
            };
            all.into_iter().rev().for_each(|one| (one.put_right)());
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    };
    let _ = std::thread::Builder::new().name("signals".into()).spawn(watch);
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
