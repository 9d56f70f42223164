//! Times: written in the user's zone for people and in UTC for scripts, and read from what people write.

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// What says which the machine's time zone is.
const LOCALTIME: &str = "/etc/localtime";

/// Seconds since 1970 and nanoseconds, as snapshots have them.
pub type Time = (i64, u32);

/// The time now.
pub fn now() -> Time {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now.as_secs() as i64, now.subsec_nanos())
}

/// The user's time zone. `TimeZone::system` also finds out what it is called, which nothing here says, and reads the names of all zones
/// for that: over a hundred calls, in directories that hardly anything else keeps in the caches.
pub fn zone() -> TimeZone {
    static ZONE: OnceLock<TimeZone> = OnceLock::new();
    ZONE.get_or_init(|| match std::env::var_os("TZ") {
        Some(_) => TimeZone::system(),
        None => in_file(LOCALTIME).unwrap_or_else(TimeZone::system),
    })
    .clone()
}

/// The zone that a file of the system's database describes, if it can be read.
fn in_file(path: &str) -> Option<TimeZone> {
    TimeZone::tzif("local", &std::fs::read(path).ok()?).ok()
}

fn timestamp(time: Time) -> Option<Timestamp> {
    Timestamp::new(time.0, i32::try_from(time.1).ok()?).ok()
}

/// `2026-11-20 16:00:44`, in the user's time zone.
pub fn local(time: Time) -> String {
    match timestamp((time.0, 0)) {
        Some(t) => t.to_zoned(zone()).strftime("%Y-%m-%d %H:%M:%S").to_string(),
        None => format!("@{}", time.0),
    }
}

/// RFC 3339 in UTC with nanoseconds: `2026-11-20T15:00:44.123456789Z`.
pub fn rfc3339(time: Time) -> String {
    match timestamp(time) {
        Some(t) => t.to_string(),
        None => format!("@{}.{:09}", time.0, time.1),
    }
}

/// Reads a time: `now`, `2026-11-20`, `2026-11-20 16:00`, `2026-11-20 16:00:44` in the user's time zone, RFC 3339, or
/// `@SECONDS` since 1970.
///
/// # Errors
/// What is wrong with it, for the user.
pub fn parse(text: &str) -> Result<Time, String> {
    let text = text.trim();
    if text == "now" {
        return Ok(now());
    }
    if let Some(seconds) = text.strip_prefix('@') {
        let seconds = seconds.parse().map_err(|_| format!("'{text}' is not a number of seconds since 1970"))?;
        return timestamp((seconds, 0)).map(|_| (seconds, 0)).ok_or_else(|| format!("'{text}' is out of range"));
    }
    let zoned = |civil: DateTime| civil.to_zoned(zone()).map(|z: Zoned| z.timestamp());
    let time = text
        .parse::<Timestamp>()
        .or_else(|_| text.parse::<DateTime>().and_then(zoned))
        .or_else(|_| text.parse::<Date>().and_then(|d| zoned(d.to_datetime(jiff::civil::Time::midnight()))))
        .map_err(|_| format!("'{text}' is not a time such as 2026-11-20 or '2026-11-20 16:00:44'"))?;
    let nanos = time.as_nanosecond();
    Ok((nanos.div_euclid(1_000_000_000) as i64, nanos.rem_euclid(1_000_000_000) as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_zone_is_the_systems() {
        let mut pairs = vec![(zone(), TimeZone::system())];
        // Where the machine's is UTC, as in a container, others tell more; where it has no others, there are none to be wrong about.
        for name in ["Europe/Berlin", "America/St_Johns", "Asia/Kolkata"] {
            pairs.extend(
                in_file(&format!("/usr/share/zoneinfo/{name}")).map(|zone| (zone, TimeZone::get(name).unwrap())),
            );
        }
        for (zone, system) in pairs {
            // A whole year, so that summer time is in it, and then a time that rules alone foretell.
            for day in (0..366).chain([20_000]) {
                let time = timestamp((1_795_190_444 + day * 86_400, 0)).unwrap();
                assert_eq!(zone.to_offset(time), system.to_offset(time), "{time} in {system:?}");
            }
        }
        assert!(in_file("/dev/null").is_none() && in_file("/there/is/none").is_none());
    }

    #[test]
    fn times_are_read_and_written() {
        assert_eq!(parse("2026-11-20T16:00:44.5Z"), Ok((1_795_190_444, 500_000_000)));
        assert_eq!(parse("2026-11-20T17:00:44+01:00"), Ok((1_795_190_444, 0)));
        assert_eq!(parse("@5"), Ok((5, 0)));
        assert_eq!(parse("1969-12-31T23:59:59.5Z"), Ok((-1, 500_000_000)));
        for civil in ["2026-11-20", "2026-11-20 16:00", "2026-11-20 16:00:44"] {
            let time = parse(civil).unwrap();
            assert!(local(time).starts_with(civil), "{civil}: {}", local(time));
        }
        for wrong in ["", "yesterday", "2026-13-01", "@x", "@99999999999999999"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(rfc3339((1_795_190_444, 1)), "2026-11-20T16:00:44.000000001Z");
        assert_eq!(rfc3339((i64::MAX, 0)), format!("@{}.000000000", i64::MAX), "no time, but no panic");
        assert_eq!(local((i64::MIN, 0)), format!("@{}", i64::MIN));
    }
}
