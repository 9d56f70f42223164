//! Watches an operation: draws its progress, tells its trouble, answers SIGUSR1, and passes on that it shall stop.
//!
//! A thread looks at the counters ten times a second; the operation itself only ever adds to them.

use crate::exit::without_number;
use crate::render::Out;
use crate::render::json::{self, EntryError, Status, VerboseStatus};
use crate::render::path::shown;
use crate::render::size::{bytes, clock, count, counted};
use crate::signals::Signals;
use drumlin_engine::monitor::{Change, Counters, Counts, Monitor, Problem, ProblemKind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(100);
/// Ticks between two objects with `--json`.
const JSON_TICKS: u32 = 10;

/// A monitor for a command.
pub struct Watch<'a> {
    out: &'a Out,
    signals: Signals,
    /// What is done, as errors in JSON name it.
    during: &'static str,
    counters: Counters,
    started: Instant,
}

impl<'a> Watch<'a> {
    /// Watch what `during` names. From now on the first Ctrl-C asks the operation to stop.
    pub fn new(out: &'a Out, during: &'static str) -> Self {
        Watch { out, signals: Signals::heed(), during, counters: Counters::default(), started: Instant::now() }
    }

    /// The numbers now.
    pub fn counts(&self) -> Counts {
        self.counters.get()
    }

    /// The signals that it heeds.
    pub fn signals(&self) -> &Signals {
        &self.signals
    }

    /// Run an operation whose result is what is shown.
    pub fn plainly<T>(&self, operation: impl FnOnce(&dyn Monitor) -> T) -> T {
        operation(self)
    }

    /// Run the operation, and show how it goes meanwhile.
    pub fn run<T>(&self, operation: impl FnOnce(&dyn Monitor) -> T) -> T {
        let (end, ended) = channel::<()>();
        let result = std::thread::scope(|scope| {
            // Without the thread nothing is shown; that is no reason to do nothing.
            let _ = std::thread::Builder::new().name("progress".into()).spawn_scoped(scope, move || {
                let mut ticker = Ticker { watch: self, ticks: 0, rate: Rate::default(), told_stop: false };
                while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                    ticker.tick();
                }
            });
            let result = operation(self);
            drop(end);
            result
        });
        self.out.settle();
        result
    }
}

impl Monitor for Watch<'_> {
    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn problem(&self, problem: &Problem) {
        let cause = without_number(&problem.cause);
        if self.out.json() {
            self.out.tell_err(&EntryError::new(self.during, problem.kind, &problem.path, &cause));
            return;
        }
        let serious = match problem.kind {
            ProblemKind::Unreadable | ProblemKind::Damaged | ProblemKind::Unwritable | ProblemKind::Attribute => true,
            ProblemKind::ChangedWhileRead | ProblemKind::Vanished => false,
        };
        self.out.trouble(&problem.path, &cause, serious);
    }

    fn wants_entries(&self) -> bool {
        self.out.verbose() > 0
    }

    fn entry(&self, change: Change, path: &[u8]) {
        let usual = matches!(change, Change::Unmodified | Change::Kept);
        if usual && self.out.verbose() < 2 {
            return;
        }
        if self.out.json() {
            self.out.tell(&VerboseStatus::new(change, path));
        } else {
            self.out.note(format!("{:<10} {}", json::action(change), shown(path)));
        }
    }

    fn waits(&self, whom: &str) {
        self.out.note(format!("waiting: {whom}"));
    }

    fn stop(&self) -> bool {
        self.signals.stop()
    }
}

struct Ticker<'w, 'a> {
    watch: &'w Watch<'a>,
    ticks: u32,
    rate: Rate,
    told_stop: bool,
}

impl Ticker<'_, '_> {
    fn tick(&mut self) {
        let out = self.watch.out;
        let counts = self.watch.counters.get();
        self.ticks += 1;
        self.rate.learn(done(&counts), TICK);
        let state = State { counts, elapsed: self.watch.started.elapsed(), rate: self.rate.smooth };
        if self.watch.signals.stop() && !self.told_stop {
            self.told_stop = true;
            if !out.json() && !out.quiet() {
                out.answer("stopping; press Ctrl-C again to abort at once");
            }
        }
        if self.watch.signals.take_state() {
            if out.json() { out.tell(&state.json()) } else { out.answer(&state.line()) }
        } else if out.live() {
            out.status(&state.line());
        } else if out.json() && !out.quiet() && self.ticks.is_multiple_of(JSON_TICKS) {
            out.tell(&state.json());
        }
        // Lines of the last tick are seen now, and not once their buffer is full.
        out.push();
    }
}

/// Bytes a second, smoothed over some seconds.
#[derive(Default)]
struct Rate {
    before: u64,
    smooth: f64,
    ticks: u32,
}

impl Rate {
    fn learn(&mut self, total: u64, over: Duration) {
        let now = total.saturating_sub(self.before) as f64 / over.as_secs_f64();
        self.before = total;
        self.ticks += 1;
        // The first ticks count in full, so that the rate doesn't have to climb up from nothing.
        let weight = (1.0 / f64::from(self.ticks)).max(0.03);
        self.smooth += (now - self.smooth) * weight;
    }
}

struct State {
    counts: Counts,
    elapsed: Duration,
    rate: f64,
}

/// Bytes dealt with. Those of an entry are counted at its end: what is read of a large file until then counts as well.
fn done(counts: &Counts) -> u64 {
    counts.bytes.max(counts.bytes_read).max(counts.bytes_written)
}

impl State {
    fn done(&self) -> u64 {
        done(&self.counts)
    }

    /// What part is done: by bytes, by entries where there are none. What is expected is a guess, so never all of it.
    fn part(&self) -> Option<f64> {
        let c = &self.counts;
        let of = |done: u64, all: u64| (all > 0).then(|| (done as f64 / all as f64).min(0.999));
        of(self.done(), c.expected_bytes).or_else(|| of(c.entries, c.expected_entries))
    }

    fn remaining(&self) -> Option<Duration> {
        let left = self.counts.expected_bytes.checked_sub(self.done()).filter(|_| self.counts.expected_bytes > 0)?;
        (self.rate >= 1.0).then(|| Duration::from_secs_f64((left as f64 / self.rate).min(1e9)))
    }

    fn errors(&self) -> u64 {
        let c = &self.counts;
        c.unreadable + c.damaged + c.unwritable + c.attributes
    }

    fn line(&self) -> String {
        let c = &self.counts;
        let part = self.part().map_or_else(String::new, |p| format!("{:5.1}%  ", p * 100.0));
        let of = match c.expected_bytes {
            0 => "of unknown".into(),
            n => format!("of {}", bytes(n.max(self.done()))),
        };
        let eta = self.remaining().map_or_else(|| "unknown".into(), clock);
        let mut line = format!(
            "[{}] {part}{} files  {} {of}  {}/s  ETA {eta}",
            clock(self.elapsed),
            count(c.files),
            bytes(self.done()),
            bytes(self.rate as u64),
        );
        if self.errors() > 0 {
            line.push_str(&format!("  {}", counted(self.errors(), "error", "errors")));
        }
        line
    }

    fn json(&self) -> Status {
        let known = |n: u64| (n > 0).then_some(n);
        Status {
            message_type: "status",
            seconds_elapsed: (self.elapsed.as_secs_f64() * 1e3).round() / 1e3,
            seconds_remaining: self.remaining().map(|d| d.as_secs()),
            percent_done: self.part(),
            entries_done: self.counts.entries,
            total_entries: known(self.counts.expected_entries),
            files_done: self.counts.files,
            bytes_done: self.done(),
            total_bytes: known(self.counts.expected_bytes),
            bytes_per_second: self.rate as u64,
            error_count: self.errors(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(bytes: u64, expected_bytes: u64, rate: f64) -> State {
        let counts = Counts { entries: 7, files: 5, bytes, expected_bytes, ..Counts::default() };
        State { counts, elapsed: Duration::from_secs(3), rate }
    }

    #[test]
    fn unknown_is_said_and_known_is_computed() {
        assert_eq!(state(2048, 0, 0.0).line(), "[0:03] 5 files  2.00 KiB of unknown  0 B/s  ETA unknown");
        assert_eq!(
            state(1024, 4096, 1024.0).line(),
            "[0:03]  25.0%  5 files  1.00 KiB of 4.00 KiB  1.00 KiB/s  ETA 0:03"
        );
        let json = serde_json::to_value(state(1024, 4096, 1024.0).json()).unwrap();
        assert_eq!((json["percent_done"].as_f64(), json["seconds_remaining"].as_u64()), (Some(0.25), Some(3)));
        let json = serde_json::to_value(state(1024, 0, 0.0).json()).unwrap();
        assert!(json.get("percent_done").is_none() && json.get("seconds_remaining").is_none());
        assert!(state(9000, 4096, 1.0).part().unwrap() < 1.0, "more than expected is no reason to say 220 %");
    }

    #[test]
    fn a_large_file_moves_before_its_end() {
        let mut state = state(0, 4096, 1024.0);
        state.counts.bytes_read = 1024;
        assert_eq!((state.part(), state.remaining()), (Some(0.25), Some(Duration::from_secs(3))));
    }

    #[test]
    fn the_rate_starts_at_once_and_then_smooths() {
        let mut rate = Rate::default();
        rate.learn(1000, Duration::from_secs(1));
        assert_eq!(rate.smooth as u64, 1000);
        (2..100).for_each(|n| rate.learn(n * 1000, Duration::from_secs(1)));
        rate.learn(99_000, Duration::from_secs(1));
        assert!((900.0..1000.0).contains(&rate.smooth), "{}", rate.smooth);
    }
}
