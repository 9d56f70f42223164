//! What every storage far away is held to.

use std::time::Duration;

/// Packs of a repository that many backups have written, a small one each.
pub const MANY_PACKS: u64 = 24;

/// Seconds that a restore takes over a line of a round trip are so many of those more than with none, at the most.
pub fn few_round_trips(takes: impl Fn(Duration) -> f64, most: f64) {
    let round_trip = Duration::from_millis(100);
    let at_once = takes(Duration::ZERO);
    // A machine that is busy with something else takes time, too.
    let is_quick = || {
        let waited = (takes(round_trip) - at_once) / round_trip.as_secs_f64();
        eprintln!("{waited:.1} round trips of time");
        waited <= most
    };
    assert!((0..3).any(|_| is_quick()));
}
