//! Points in time as S3 writes them, in seconds since 1970.

use std::time::{SystemTime, UNIX_EPOCH};

/// What this machine's clock says.
pub(super) fn now() -> i64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_secs().cast_signed(),
        Err(before) => -before.duration().as_secs().cast_signed(),
    }
}

/// Days since 1970 as year, month, day (Hinnant, "chrono-compatible low-level date algorithms").
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// The other way.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// `20261122T070000Z`.
pub(super) fn stamp(at: i64) -> String {
    iso_of(at).replace(['-', ':'], "")
}

/// `2026-11-22T07:00:00Z`.
pub(super) fn iso_of(at: i64) -> String {
    let (year, month, day) = civil(at.div_euclid(86_400));
    let of_day = at.rem_euclid(86_400);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", of_day / 3600, of_day / 60 % 60, of_day % 60)
}

/// Of `2026-11-22T07:00:00.000Z`, as listings and credentials have it.
pub(super) fn iso(text: &str) -> Option<i64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let is_utc = text.ends_with('Z') || text.ends_with("+00:00");
    (is_utc && text.get(10..11)? == "T").then_some(())?;
    point(number(0, 4)?, number(5, 7)?, number(8, 10)?, &text[11..])
}

/// Of `Sun, 22 Nov 2026 07:00:00 GMT`, as the Date header has it.
pub(super) fn http(text: &str) -> Option<i64> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut words = text.split_once(", ")?.1.split(' ');
    let day = words.next()?.parse().ok()?;
    let name = words.next()?;
    let month = MONTHS.iter().position(|month| *month == name)? as i64 + 1;
    let year = words.next()?.parse().ok()?;
    point(year, month, day, words.next()?)
}

/// `clock` begins with `07:00:00`.
fn point(year: i64, month: i64, day: i64, clock: &str) -> Option<i64> {
    let number = |from: usize| clock.get(from..from + 2)?.parse::<i64>().ok();
    let (hour, minute, second) = (number(0)?, number(3)?, number(6)?);
    let is_date = (1..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    let fits = is_date && (0..24).contains(&hour) && (0..60).contains(&minute) && (0..=60).contains(&second);
    fits.then(|| days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for (at, stamped, iso_text, http_text) in [
            (0, "19700101T000000Z", "1970-01-01T00:00:00Z", "Thu, 01 Jan 1970 00:00:00 GMT"),
            (951_827_696, "20000229T123456Z", "2000-02-29T12:34:56.789Z", "Tue, 29 Feb 2000 12:34:56 GMT"),
            (1_795_330_799, "20261122T065959Z", "2026-11-22T06:59:59+00:00", "Sun, 22 Nov 2026 06:59:59 GMT"),
            (4_102_444_799, "20991231T235959Z", "2099-12-31T23:59:59.000Z", "Thu, 31 Dec 2099 23:59:59 GMT"),
        ] {
            assert_eq!(stamp(at), stamped);
            assert_eq!(iso(&iso_of(at)), Some(at));
            assert_eq!((iso(iso_text), http(http_text)), (Some(at), Some(at)), "{stamped}");
        }
        for odd in
            ["", "Z", "2026-11-22 07:00:00Z", "2026-13-22T07:00:00Z", "2026-11-22T07:00:00+02:00", "ä026-11-22T0Z"]
        {
            assert_eq!(iso(odd), None, "{odd}");
        }
        for odd in [
            "",
            "Sun, ",
            "Sun, 22 Nov 2026",
            "Sun, 22 Foo 2026 06:59:59 GMT",
            "Sun, 22 Nov 2026 é:59:59 GMT",
            "Sun, 22 Nov 9223372036854775807 06:59:59 GMT",
            "Sun, 22 Nov 2026 -6:59:59 GMT",
        ] {
            assert_eq!(http(odd), None, "{odd}");
        }
    }
}
