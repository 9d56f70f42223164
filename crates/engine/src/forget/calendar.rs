//! In which hour, day, … a time lies, and what lies how long before it: by a time zone that the caller names.

use super::rules::{Period, Unit};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, Zoned};

/// A time as snapshots have it, on the calendar. What lies beyond the calendar's years goes to its end.
pub(super) fn zoned((seconds, nanos): (i64, u32), zone: &TimeZone) -> Zoned {
    let time = i32::try_from(nanos).ok().and_then(|nanos| Timestamp::new(seconds, nanos).ok());
    let end = if seconds < 0 { Timestamp::MIN } else { Timestamp::MAX };
    time.unwrap_or(end).to_zoned(zone.clone())
}

/// One hour, day, …: times in the same one have equal ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bucket([i16; 4]);

impl Bucket {
    /// That of a time.
    pub fn of(unit: Unit, time: &Zoned) -> Self {
        let (year, month, day) = (time.year(), time.month().into(), time.day().into());
        Bucket(match unit {
            Unit::Hour => [year, month, day, time.hour().into()],
            Unit::Day => [year, month, day, 0],
            Unit::Week => {
                let week = time.date().iso_week_date();
                [week.year(), week.week().into(), 0, 0]
            }
            Unit::Month => [year, month, 0, 0],
            Unit::Year => [year, 0, 0, 0],
        })
    }
}

/// The moment that lies a period before `newest`; `None` if that is before the calendar begins.
///
/// A month before the 31st of March is the last of February.
pub(super) fn before(newest: &Zoned, period: Period) -> Option<Timestamp> {
    let Period { years, months, weeks, days, hours } = period;
    let span = Span::new().try_years(years).and_then(|s| s.try_months(months)).and_then(|s| s.try_weeks(weeks));
    let span = span.and_then(|s| s.try_days(days)).and_then(|s| s.try_hours(hours)).ok()?;
    newest.checked_sub(span).ok().map(|start| start.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Zoned {
        text.parse::<Timestamp>().unwrap().to_zoned(TimeZone::UTC)
    }

    #[test]
    fn buckets() {
        let same = |unit, one, other| Bucket::of(unit, &at(one)) == Bucket::of(unit, &at(other));
        assert!(same(Unit::Hour, "2026-11-20T16:00:00Z", "2026-11-20T16:59:59Z"));
        assert!(!same(Unit::Hour, "2026-11-20T16:59:59Z", "2026-11-20T17:00:00Z"));
        assert!(!same(Unit::Hour, "2026-11-20T16:00:00Z", "2026-11-21T16:00:00Z"));
        assert!(same(Unit::Day, "2026-11-20T00:00:00Z", "2026-11-20T23:59:59Z"));
        // Weeks begin on Mondays, and the days around New Year's Day are of one week.
        assert!(same(Unit::Week, "2026-11-16T00:00:00Z", "2026-11-22T23:59:59Z"));
        assert!(!same(Unit::Week, "2026-11-22T23:59:59Z", "2026-11-23T00:00:00Z"));
        assert!(same(Unit::Week, "2026-12-31T00:00:00Z", "2027-01-03T00:00:00Z"));
        assert!(!same(Unit::Week, "2025-01-06T00:00:00Z", "2026-01-06T00:00:00Z"));
        assert!(same(Unit::Month, "2026-11-01T00:00:00Z", "2026-11-30T00:00:00Z"));
        assert!(!same(Unit::Month, "2026-11-01T00:00:00Z", "2025-11-01T00:00:00Z"));
        assert!(same(Unit::Year, "2026-01-01T00:00:00Z", "2026-12-31T00:00:00Z"));
    }

    #[test]
    fn the_zone_decides_on_the_day() {
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        let of = |zone: &TimeZone| Bucket::of(Unit::Day, &zoned((1_795_212_000, 0), zone));
        assert_ne!(of(&TimeZone::UTC), of(&zone), "22:00 UTC is the next day further east");
    }

    #[test]
    fn periods_end_where_the_calendar_says() {
        let start = |end: &str, period: &str| before(&at(end), period.parse().unwrap()).map(|t| t.to_string());
        assert_eq!(start("2026-11-20T16:00:00Z", "1y2m3d4h").unwrap(), "2025-09-17T12:00:00Z");
        assert_eq!(start("2024-03-31T00:00:00Z", "1m").unwrap(), "2024-02-29T00:00:00Z");
        assert_eq!(start("2026-11-20T16:00:00Z", "2w").unwrap(), "2026-11-06T16:00:00Z");
        assert_eq!(start("2026-11-20T16:00:00Z", "19000y"), None);
        assert_eq!(start("2026-11-20T16:00:00Z", "4294967295h"), None);
    }

    #[test]
    fn any_time_is_on_the_calendar() {
        for seconds in [i64::MIN, -1, 0, i64::MAX] {
            for nanos in [0, 999_999_999, u32::MAX] {
                let time = zoned((seconds, nanos), &TimeZone::UTC);
                Unit::ALL.iter().for_each(|unit| assert_eq!(Bucket::of(*unit, &time), Bucket::of(*unit, &time)));
                let _ = before(&time, "1y1m1w1d1h".parse().unwrap());
            }
        }
        assert_eq!(zoned((-1, 500_000_000), &TimeZone::UTC).timestamp().to_string(), "1969-12-31T23:59:59.5Z");
    }
}
