//! What happened, summed up over many runs: where nothing happens nothing goes wrong.

use std::collections::BTreeMap;

/// Each of these happens in some run, if there are enough of them.
const EVENTS: [&str; 24] = [
    "calls that failed",
    "calls without an answer",
    "late effects",
    "losses of power",
    "changes that were lost",
    "processes killed",
    "processes that stood still",
    "runs where nobody creates alone",
    "runs where one looks behind a put",
    "backups committed",
    "backups stopped",
    "backups skipped",
    "backups evicted",
    "prunes in whose way somebody was",
    "packs removed",
    "packs repacked",
    "orphans found",
    "bands made",
    "recovery objects removed",
    "snapshots forgotten",
    "snapshots had back",
    "undeletes refused",
    "readings",
    "checks",
];

/// How often something happened.
#[derive(Clone, Default)]
pub struct Sums(BTreeMap<String, u64>);

impl Sums {
    /// It happened so often.
    pub fn add(&mut self, event: &str, times: u64) {
        assert!(EVENTS.contains(&event), "'{event}' is on no list");
        *self.0.entry(event.into()).or_default() += times;
    }

    /// All of another's.
    pub fn join(&mut self, other: &Sums) {
        other.0.iter().for_each(|(event, times)| self.add(event, *times));
    }

    /// As [`Sums::parse`] takes it, a line each.
    pub fn lines(&self) -> String {
        self.0.iter().map(|(event, times)| format!("{times} × {event}\n")).collect()
    }

    /// Those in a text with other lines.
    pub fn parse(text: &str) -> Self {
        let mut sums = Sums::default();
        let parsed = text.lines().filter_map(|line| line.split_once(" × "));
        parsed.for_each(|(times, event)| sums.add(event, times.parse().unwrap()));
        sums
    }

    /// What never happened.
    pub fn missing(&self) -> Vec<&'static str> {
        EVENTS.into_iter().filter(|event| self.0.get(*event).is_none_or(|times| *times == 0)).collect()
    }
}
