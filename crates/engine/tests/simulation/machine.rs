//! What a machine gives that no seed would repeat: random bytes and the time. In this program both come from the seed.
//!
//! The two calls of the C library are defined here once more, and the program's own definition is the one that
//! everything in it is linked to: identities, keys and the order of hash tables are then the same at every run. A
//! thread that belongs to no actor has the system's time, and random bytes that are good for nothing but names of
//! temporary files.

use drumlin_testkit::Rng;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// So many actors have clocks of their own.
pub const ACTORS_MAX: usize = 16;
/// Nobody.
const NOBODY: usize = usize::MAX;

/// Seconds since 1970 at the start: far from the times of the files, none of which is too recent to be believed.
pub const EPOCH: i64 = 2_000_000_000;

static SEED: AtomicU64 = AtomicU64::new(0);
/// Counts the runs: the same seed may be run again.
static RUN: AtomicU64 = AtomicU64::new(0);
/// Who has the turn: threads that have made no call yet are his.
static HOLDER: AtomicUsize = AtomicUsize::new(NOBODY);
/// How many sessions each actor has begun.
static SESSIONS: [AtomicU64; ACTORS_MAX] = [const { AtomicU64::new(0) }; ACTORS_MAX];
/// How many threads have drawn random bytes, of an actor, in a session, by a digest of their name.
static THREADS: Mutex<BTreeMap<(usize, u64, u64), u64>> = Mutex::new(BTreeMap::new());
/// How far each actor's clock is off, in seconds.
static OFFSETS: [AtomicI64; ACTORS_MAX] = [const { AtomicI64::new(0) }; ACTORS_MAX];
/// Seconds since the start.
static NOW: AtomicI64 = AtomicI64::new(0);

thread_local! {
    static ACTOR: Cell<usize> = const { Cell::new(NOBODY) };
    /// The run that the generator is for, and the generator.
    static RANDOM: RefCell<Option<(u64, Rng)>> = const { RefCell::new(None) };
}

/// Begin a run: the clocks are right, and all that is drawn follows from `seed`. One run at a time.
pub fn begin(seed: u64) {
    SEED.store(seed, Ordering::SeqCst);
    RUN.fetch_add(1, Ordering::SeqCst);
    NOW.store(0, Ordering::SeqCst);
    HOLDER.store(NOBODY, Ordering::SeqCst);
    SESSIONS.iter().for_each(|sessions| sessions.store(0, Ordering::SeqCst));
    THREADS.lock().unwrap_or_else(PoisonError::into_inner).clear();
    OFFSETS.iter().for_each(|offset| offset.store(0, Ordering::SeqCst));
}

/// This thread works for an actor.
pub fn belongs_to(actor: usize) {
    ACTOR.set(actor);
}

/// This thread works for nobody any more.
pub fn belongs_to_nobody() {
    ACTOR.set(NOBODY);
}

/// Somebody has the turn.
pub fn holds(actor: Option<usize>) {
    HOLDER.store(actor.unwrap_or(NOBODY), Ordering::SeqCst);
}

/// An actor begins a session. What its threads draw from here on doesn't depend on how many threads drew anything
/// before: those of a run that failed may have come to it or not.
pub fn begins_session(actor: usize) {
    if let Some(sessions) = SESSIONS.get(actor) {
        sessions.fetch_add(1, Ordering::SeqCst);
    }
}

/// A second passes.
pub fn tick() {
    NOW.fetch_add(1, Ordering::SeqCst);
}

/// An actor's clock is off by so many seconds.
pub fn set_clock(actor: usize, offset: i64) {
    OFFSETS[actor].store(offset, Ordering::SeqCst);
}

fn actor() -> Option<usize> {
    let own = ACTOR.get();
    let actor = if own == NOBODY { HOLDER.load(Ordering::SeqCst) } else { own };
    (actor < ACTORS_MAX).then_some(actor)
}

/// FNV-1a.
fn digest(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn fill(bytes: &mut [u8]) {
    let Some(actor) = actor() else {
        // The place of a variable differs from run to run, the time does too.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let here = &raw const bytes as u64;
        let seed = (time.tv_nsec as u64).rotate_left(32) ^ here ^ NEXT.fetch_add(0x9e37_79b9, Ordering::SeqCst);
        bytes.copy_from_slice(&Rng::new(seed ^ u64::from(std::process::id())).bytes(bytes.len()));
        return;
    };
    let (run, seed) = (RUN.load(Ordering::SeqCst), SEED.load(Ordering::SeqCst));
    RANDOM.with_borrow_mut(|random| {
        if random.as_ref().is_none_or(|(of, _)| *of != run) {
            // By its name: which of several threads is the first to draw is for the system to say.
            let name = digest(std::thread::current().name().unwrap_or_default());
            let session = SESSIONS[actor].load(Ordering::SeqCst);
            let mut threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
            let number = threads.entry((actor, session, name)).or_default();
            *number += 1;
            let parts = [seed, actor as u64, session, name, *number];
            let mixed = parts.iter().fold(0, |mixed, part| Rng::new(mixed ^ part).u64());
            *random = Some((run, Rng::new(mixed)));
        }
        if let Some((_, rng)) = random {
            bytes.copy_from_slice(&rng.bytes(bytes.len()));
        }
    });
}

/// The C library's call of this name, for all that is linked into this program.
///
/// # Safety
/// As there: `len` bytes at `buffer` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(buffer: *mut u8, len: usize, _flags: u32) -> isize {
    if len > 0 {
        // SAFETY: the caller of `getrandom` gives a buffer of that length, and nobody else has it meanwhile.
        fill(unsafe { std::slice::from_raw_parts_mut(buffer, len) });
    }
    len as isize
}

/// The C library's `struct timespec` where a `long` has 64 bits.
#[repr(C)]
pub struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

/// The C library's call of this name, for all that is linked into this program: the time of day is the simulated one,
/// other clocks are the system's.
///
/// # Safety
/// As there: `out` is for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: i32, out: *mut Timespec) -> i32 {
    use rustix::time::{ClockId, clock_gettime};
    let real = |id| {
        let time = clock_gettime(id);
        Timespec { seconds: time.tv_sec, nanoseconds: time.tv_nsec }
    };
    let time = match (clock, actor()) {
        (0, Some(actor)) => {
            let seconds = EPOCH + NOW.load(Ordering::SeqCst) + OFFSETS[actor].load(Ordering::SeqCst);
            Timespec { seconds, nanoseconds: 0 }
        }
        (0, None) => real(ClockId::Realtime),
        // Those that somebody here asks for tell time that only goes on.
        _ => real(ClockId::Monotonic),
    };
    // SAFETY: the caller of `clock_gettime` gives a place for the answer.
    unsafe { out.write(time) };
    0
}
