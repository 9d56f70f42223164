//! Trying again what failed in passing: with growing pauses, and no longer than the user's patience.
//!
//! Only failures of [`Kind::Transient`] are tried again. Whether doing it twice is safe is for whoever calls to know. A user who
//! wants to stop doesn't wait for the end of all patience.

use std::time::{Duration, Instant};

use crate::{Error, Kind, Result};

/// Once the user wants to stop: so many attempts more, with pauses no longer than this. A line that is mended by then takes what
/// can be saved.
const LAST_ATTEMPTS: u32 = 5;
const LAST_PAUSE: Duration = Duration::from_secs(1);
/// How often it is looked at whether the user wants to stop.
const LOOK: Duration = Duration::from_millis(100);

/// When to try again, and when to give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// The first pause, about. Each one is twice as long as the one before.
    pub first: Duration,
    /// No pause is longer.
    pub longest: Duration,
    /// Counted from the first failure; 0 for one attempt alone.
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

impl Retries {
    /// Call until it succeeds, fails for good, or has failed for too long. `tell` hears of each failure that is tried
    /// again, with the pause before that and whether it is the first of its row. `stopped`: whether the user wants to stop.
    pub fn run<T>(
        &self,
        mut call: impl FnMut() -> Result<T>,
        mut tell: impl FnMut(&Error, Duration, bool),
        stopped: impl Fn() -> bool,
    ) -> Result<T> {
        let mut began: Option<Instant> = None;
        let (mut pause, mut last) = (self.first, 0);
        loop {
            let error = match call() {
                Err(error) if error.kind == Kind::Transient => error,
                other => return other,
            };
            let is_first = began.is_none();
            let began = *began.get_or_insert_with(Instant::now);
            let wait = jittered(pause);
            last += u32::from(stopped());
            if began.elapsed() + wait > self.give_up || last > LAST_ATTEMPTS {
                return Err(given_up(error, began, is_first));
            }
            tell(&error, wait, is_first);
            doze(wait, &stopped);
            pause = (pause * 2).min(self.longest);
        }
    }
}

fn given_up(error: Error, began: Instant, is_first: bool) -> Error {
    if is_first {
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

    fn failure(kind: Kind) -> Error {
        Error::because(kind, "read", "a", "sftp://h/r", "the line broke")
    }

    fn quick(give_up_millis: u64) -> Retries {
        let millis = Duration::from_millis;
        Retries { first: millis(1), longest: millis(4), give_up: millis(give_up_millis) }
    }

    #[test]
    fn what_passes_is_tried_again() {
        let (mut calls, mut told) = (0, Vec::new());
        let call = || {
            calls += 1;
            if calls < 6 { Err(failure(Kind::Transient)) } else { Ok(calls) }
        };
        let result = quick(60_000).run(call, |_, pause, first| told.push((pause, first)), || false);
        assert_eq!(result.unwrap(), 6);
        assert_eq!(told.iter().filter(|(_, first)| *first).count(), 1);
        assert!(told.iter().all(|(pause, _)| *pause <= Duration::from_millis(4)), "{told:?}");
        assert!(told[4].0 >= Duration::from_millis(2), "{told:?}");
    }

    #[test]
    fn what_does_not_pass_is_told_at_once() {
        for kind in [Kind::Missing, Kind::Exists, Kind::Refused, Kind::Full, Kind::Io, Kind::Truncated] {
            let mut calls = 0;
            let call = || -> Result<()> {
                calls += 1;
                Err(failure(kind))
            };
            let error = quick(60_000).run(call, |_, _, _| panic!("it was to be tried again"), || false).unwrap_err();
            assert_eq!((error.kind, calls), (kind, 1));
        }
    }

    #[test]
    fn patience_ends() {
        let fails = || Err::<(), _>(failure(Kind::Transient));
        let error = quick(30).run(fails, |_, _, _| (), || false).unwrap_err();
        assert_eq!(error.kind, Kind::Transient);
        assert!(error.to_string().contains("the line broke; tried again for"), "{error}");
        let error = quick(0).run(fails, |_, _, _| (), || false).unwrap_err();
        assert_eq!(error.to_string(), "cannot read 'a' in sftp://h/r: the line broke");
    }

    #[test]
    fn who_wants_to_stop_waits_no_longer() {
        let minute = Duration::from_secs(60);
        let slow = Retries { first: Duration::from_millis(2), longest: minute, give_up: 10 * minute };
        // Nobody wants to, and the line is mended; somebody does, and it is, or is not.
        for (stopped, mended_after, expected) in [(false, 9, true), (true, 4, true), (true, 9, false)] {
            let (mut calls, began) = (0, Instant::now());
            let call = || {
                calls += 1;
                if calls > mended_after { Ok(()) } else { Err(failure(Kind::Transient)) }
            };
            assert_eq!(slow.run(call, |_, _, _| (), || stopped).is_ok(), expected, "{stopped} {mended_after}");
            assert!(began.elapsed() < minute / 2);
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
            assert!(slow.run(call, |_, _, _| (), || wants.load(std::sync::atomic::Ordering::Relaxed)).is_err());
        });
        assert!(began.elapsed() < minute / 2);
    }
}
