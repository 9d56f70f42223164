//! What every storage far away is held to.

use drumlin_testkit::{Line, Relay};
use std::time::Duration;

/// Packs of a repository that many backups have written, a small one each.
pub const MANY_PACKS: u64 = 24;

/// So many times something that is done over a line waits for it, at the most: by what is on its way, not by the clock.
pub fn few_round_trips(relay: &Relay, most: f64, done: impl Fn()) {
    let round_trip = Duration::from_millis(100);
    relay.set(Line::long(round_trip));
    // On a busy machine what could go together may go one after the other.
    let is_quick = || {
        let before = relay.travelled();
        done();
        let waited = (relay.travelled() - before).as_secs_f64() / round_trip.as_secs_f64();
        eprintln!("{waited:.1} round trips");
        waited <= most
    };
    assert!((0..3).any(|_| is_quick()));
}
