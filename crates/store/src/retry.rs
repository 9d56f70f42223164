//! Trying again what failed in passing: with growing pauses, and no longer than the user's patience.
//!
//! Only failures of [`Kind::Transient`] are tried again. Whether doing it twice is safe is for whoever calls to know. A
//! user who wants to stop doesn't wait for the end of all patience. And patience is had once for an outage, not once
//! for each call: who clears up after a storage that was not to be reached for so long doesn't wait as long again.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::lock::lock;
use crate::{Error, Kind, Result};

/// Once the user wants to stop, an outage has so long to end, counted from the first failure that is met then, by
/// whatever call, with pauses no longer than this: a line that is mended by then takes what can be saved.
const LAST_PATIENCE: Duration = Duration::from_secs(2);
const LAST_PAUSE: Duration = Duration::from_secs(1);
/// Whatever comes after that tries so often all the same, as below.
const LAST_ATTEMPTS: u32 = 2;
/// In an outage that has lasted too long already: so many attempts all the same, since the first may only find a
/// connection that has died.
const LEAST_ATTEMPTS: u32 = 3;
/// An outage of which nothing was heard for so long is another one. An attempt takes a minute or two where nobody
/// answers.
const STALE: Duration = Duration::from_secs(300);
/// Of an outage it is told again after so long.
const TELL: Duration = Duration::from_secs(30);
/// How often it is looked at whether the user wants to stop.
const LOOK: Duration = Duration::from_millis(100);

/// When to try again, and when to give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// The first pause, about. Each one is twice as long as the one before.
    pub first: Duration,
    /// No pause is longer.
    pub longest: Duration,
    /// Counted from the first failure, of this call or of any other since the storage has done anything; 0 for one
    /// attempt alone.
    pub give_up: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Retries {
            first: Duration::from_millis(250),
            longest: Duration::from_secs(20),
            give_up: Duration::from_secs(600),
        }
    }
}

/// What is known of a storage that doesn't do what it is asked, by all who ask it.
#[derive(Debug, Default)]
pub(crate) struct Outage(Mutex<Now>);

#[derive(Debug, Default)]
struct Now {
    /// The first failure since it has done anything, and the last.
    began: Option<(Instant, Instant)>,
    /// When that was told last.
    told: Option<Instant>,
    /// The first failure since the user wants to stop.
    last: Option<Instant>,
}

impl Outage {
    fn is_over(&self) {
        *self.now() = Now::default();
    }

    /// A call has failed. Since when they do.
    fn goes_on(&self) -> Instant {
        let (mut now, at) = (self.now(), Instant::now());
        // Nobody has asked for so long that it may have been over meanwhile.
        let began = now.began.filter(|(_, last)| last.elapsed() < STALE).map_or(at, |(began, _)| began);
        now.began = Some((began, at));
        began
    }

    /// A call has failed, and the user wants to stop. Since when both are so.
    fn stopped_since(&self) -> Instant {
        *self.now().last.get_or_insert_with(Instant::now)
    }

    /// Whether it is time to tell, of which one takes note.
    fn is_to_be_told(&self) -> bool {
        let mut now = self.now();
        let is_time = now.told.is_none_or(|told| told.elapsed() >= TELL);
        if is_time {
            now.told = Some(Instant::now());
        }
        is_time
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        lock(&self.0)
    }
}

impl Retries {
    /// Call until it succeeds, fails for good, or has failed for too long. `tell` hears of what is tried again, now and
    /// then: not of a call's first failure, since the next attempt usually mends that. `stopped`: whether the user
    /// wants to stop.
    pub(crate) fn run<T>(
        &self,
        outage: &Outage,
        mut call: impl FnMut() -> Result<T>,
        mut tell: impl FnMut(&Error),
        stopped: impl Fn() -> bool,
    ) -> Result<T> {
        let mut began: Option<Instant> = None;
        let (mut pause, mut attempts) = (self.first, 0);
        loop {
            let error = match call() {
                Err(error) if error.kind == Kind::Transient => error,
                // Said by no storage, perhaps: that somebody has given up.
                Err(error) if error.kind == Kind::Io => return Err(error),
                other => {
                    outage.is_over();
                    return other;
                }
            };
            let all_began = outage.goes_on();
            attempts += 1;
            let began = *began.get_or_insert_with(Instant::now);
            let wait = jittered(pause);
            let stopped_for = stopped().then(|| outage.stopped_since().elapsed());
            let is_last = attempts >= LAST_ATTEMPTS
                && stopped_for.is_some_and(|time| time + wait.min(LAST_PAUSE) > LAST_PATIENCE);
            let is_too_long = |began: Instant| began.elapsed() + wait > self.give_up;
            let is_hopeless = attempts >= LEAST_ATTEMPTS && is_too_long(all_began);
            if is_too_long(began) || is_hopeless || is_last {
                return Err(given_up(error, began, attempts));
            }
            if attempts > 1 && outage.is_to_be_told() {
                tell(&error);
            }
            doze(wait, &stopped);
            pause = (pause * 2).min(self.longest);
        }
    }
}

fn given_up(error: Error, began: Instant, attempts: u32) -> Error {
    if attempts == 1 {
        return error;
    }
    let cause = format!("{}; tried again for {} seconds", error.cause(), began.elapsed().as_secs());
    Error::because(Kind::Transient, error.action, &error.name, &error.location, cause)
}

/// Sleep for so long, or, once the user wants to stop, for no longer than [`LAST_PAUSE`].
pub(crate) fn doze(time: Duration, stopped: &impl Fn() -> bool) {
    let began = Instant::now();
    loop {
        let time = if stopped() { time.min(LAST_PAUSE) } else { time };
        match time.checked_sub(began.elapsed()) {
            Some(left) if !left.is_zero() => std::thread::sleep(left.min(LOOK)),
            _ => return,
        }
    }
}

/// Half of it to all of it: many clients of a storage that went away shall not come back at one moment.
pub(crate) fn jittered(pause: Duration) -> Duration {
    let mut random = [0; 2];
    // Without randomness they do.
    let _ = getrandom::fill(&mut random);
    pause / 2 + pause.mul_f64(f64::from(u16::from_ne_bytes(random)) / f64::from(u16::MAX)) / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Action;

    fn failure(kind: Kind) -> Error {
        Error::because(kind, Action::Read, "a", "sftp://h/r", "the line broke")
    }

    fn quick(give_up_millis: u64) -> Retries {
        let millis = Duration::from_millis;
        Retries { first: millis(1), longest: millis(4), give_up: millis(give_up_millis) }
    }

    #[test]
    fn what_passes_is_tried_again() {
        let (mut calls, mut told) = (Vec::new(), 0);
        let call = || {
            calls.push(Instant::now());
            if calls.len() < 6 { Err(failure(Kind::Transient)) } else { Ok(calls.len()) }
        };
        let outage = Outage::default();
        let result = quick(60_000).run(&outage, call, |_| told += 1, || false);
        assert_eq!((result.unwrap(), told), (6, 1));
        // Pauses grow.
        assert!(calls[5] - calls[4] >= Duration::from_millis(2), "{calls:?}");
        // The next outage is another one.
        assert!(outage.now().began.is_none() && outage.is_to_be_told() && !outage.is_to_be_told());
    }

    #[test]
    fn what_does_not_pass_is_told_at_once() {
        for kind in [Kind::Missing, Kind::Exists, Kind::Refused, Kind::Full, Kind::Io, Kind::Truncated] {
            let mut calls = 0;
            let call = || -> Result<()> {
                calls += 1;
                Err(failure(kind))
            };
            let error = quick(60_000)
                .run(&Outage::default(), call, |_| panic!("it was to be tried again"), || false)
                .unwrap_err();
            assert_eq!((error.kind, calls), (kind, 1));
        }
    }

    #[test]
    fn patience_ends() {
        let fails = || Err::<(), _>(failure(Kind::Transient));
        let error = quick(30).run(&Outage::default(), fails, |_| (), || false).unwrap_err();
        assert_eq!(error.kind, Kind::Transient);
        assert!(error.to_string().contains("the line broke; tried again for"), "{error}");
        let error = quick(0).run(&Outage::default(), fails, |_| (), || false).unwrap_err();
        assert_eq!(error.to_string(), "cannot read 'a' in sftp://h/r: the line broke");
    }

    #[test]
    fn an_outage_is_waited_for_once() {
        let (outage, retries) = (Outage::default(), quick(3000));
        let attempts = |mended_after: u32| {
            let mut calls = 0;
            let call = || {
                calls += 1;
                if calls > mended_after { Ok(()) } else { Err(failure(Kind::Transient)) }
            };
            let result = retries.run(&outage, call, |_| (), || false);
            (calls, result.is_ok())
        };
        let (calls, _) = attempts(u32::MAX);
        assert!(calls > LEAST_ATTEMPTS, "{calls}");
        // Whoever comes after it tries, and no more.
        assert_eq!(attempts(u32::MAX), (LEAST_ATTEMPTS, false));
        assert_eq!(attempts(u32::MAX), (LEAST_ATTEMPTS, false));
        // Once the storage does anything, all have patience again.
        assert_eq!(attempts(1), (2, true));
        assert_eq!(attempts(LEAST_ATTEMPTS + 2), (LEAST_ATTEMPTS + 3, true));
    }

    #[test]
    fn who_wants_to_stop_waits_no_longer() {
        let minute = Duration::from_secs(60);
        let slow = Retries { first: Duration::from_millis(2), longest: minute, give_up: 10 * minute };
        // Nobody wants to, and the line is mended; somebody does, and it is, or is not.
        for (stopped, mended_after, expected) in [(false, 9, true), (true, 4, true), (true, 99, false)] {
            let (mut calls, began, outage) = (0, Instant::now(), Outage::default());
            let mut call = || {
                calls += 1;
                if calls > mended_after { Ok(()) } else { Err(failure(Kind::Transient)) }
            };
            let is_done = slow.run(&outage, &mut call, |_| (), || stopped).is_ok();
            assert_eq!(is_done, expected, "{stopped} {mended_after}");
            assert!(began.elapsed() < minute / 2);
            if !is_done {
                // Whoever comes after that time has it behind him.
                std::thread::sleep(LAST_PAUSE);
                let (before, again) = (calls, Instant::now());
                let mut call = || {
                    calls += 1;
                    Err::<(), _>(failure(Kind::Transient))
                };
                assert!(slow.run(&outage, &mut call, |_| (), || stopped).is_err());
                assert!(again.elapsed() < LAST_PAUSE / 2 && calls - before == LAST_ATTEMPTS, "{before} {calls}");
            }
        }
        // While it waits.
        let wants = std::sync::atomic::AtomicBool::new(false);
        let (began, slow) = (Instant::now(), Retries { first: minute, ..slow });
        let call = || Err::<(), _>(failure(Kind::Transient));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                wants.store(true, std::sync::atomic::Ordering::Relaxed);
            });
            assert!(
                slow.run(&Outage::default(), call, |_| (), || wants.load(std::sync::atomic::Ordering::Relaxed))
                    .is_err()
            );
        });
        assert!(began.elapsed() < minute / 2);
    }
}
