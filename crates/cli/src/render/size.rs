//! Sizes, counts, rates and durations: written for people, and sizes read from them.

use std::time::Duration;

const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// Bytes with a binary unit: `1.25 MiB`.
pub fn bytes(n: u64) -> String {
    if n < 1024 {
        return format!("{n} B");
    }
    let mut value = n as f64;
    let mut unit = 0;
    // What would be shown as 1024.0 of a unit is 1.00 of the next.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if value < 9.995 { 2 } else { 1 };
    format!("{value:.digits$} {}", UNITS[unit])
}

/// A count with its thousands apart: `12,345`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 file`, `2 files`.
pub fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(n), if n == 1 { one } else { many })
}

/// How many times smaller: `3.1:1`; nothing if there was nothing.
pub fn ratio(from: u64, to: u64) -> Option<String> {
    match (from, to) {
        (0, _) => None,
        (_, 0) => Some("nothing left".into()),
        _ => Some(format!("{:.2}:1", from as f64 / to as f64)),
    }
}

/// A duration as a clock shows it: `0:03`, `12:34`, `1:02:03`.
pub fn clock(duration: Duration) -> String {
    let secs = duration.as_secs();
    let (h, m, s) = (secs / 3600, secs / 60 % 60, secs % 60);
    if h > 0 { format!("{h}:{m:02}:{s:02}") } else { format!("{m}:{s:02}") }
}

/// How long something took: `0.31 s`, `12.3 s`, `4:07 min`, `1:02:03 h`.
pub fn took(millis: u64) -> String {
    match millis {
        0..10_000 => format!("{:.2} s", millis as f64 / 1e3),
        10_000..60_000 => format!("{:.1} s", millis as f64 / 1e3),
        60_000..3_600_000 => format!("{} min", clock(Duration::from_millis(millis))),
        _ => format!("{} h", clock(Duration::from_millis(millis))),
    }
}

/// Reads a size: `4096`, `500K`, `1.5G`, `10MiB` in powers of 1024, `10MB` in powers of 1000.
///
/// # Errors
/// What is wrong with it, for the user.
pub fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim().to_ascii_lowercase();
    let wrong = || format!("'{text}' is not a size such as 500K, 128M, 1.5G or 10MB");
    let mut letters = unit.chars();
    let power = match letters.next() {
        None | Some('b') => 0,
        Some('k') => 1,
        Some('m') => 2,
        Some('g') => 3,
        Some('t') => 4,
        Some('p') => 5,
        Some('e') => 6,
        Some(_) => return Err(wrong()),
    };
    let base: u64 = match (unit.as_str(), letters.as_str()) {
        ("" | "b", _) | (_, "" | "ib") => 1024,
        (_, "b") => 1000,
        _ => return Err(wrong()),
    };
    let factor = base.pow(power);
    let too_large = || format!("'{text}' is too large");
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(too_large);
    }
    let value: f64 = number.parse().map_err(|_| wrong())?;
    let total = value * factor as f64;
    if total >= u64::MAX as f64 { Err(too_large()) } else { Ok(total as u64) }
}

/// Reads a size that fits into memory.
///
/// # Errors
/// As [`parse`].
pub fn parse_memory(text: &str) -> Result<usize, String> {
    let size = usize::try_from(parse(text)?).map_err(|_| format!("'{text}' is too large"))?;
    if size < 8 << 20 { Err(format!("'{text}' is too little to work with; give at least 8M")) } else { Ok(size) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_in_words() {
        for (n, words) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (10 << 10, "10.0 KiB"),
            ((1 << 20) - 1, "1.00 MiB"),
            (1536 << 20, "1.50 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(bytes(n), words);
        }
        assert_eq!([count(0), count(999), count(1000), count(1_234_567)], ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            (ratio(0, 0), ratio(10, 4), ratio(5, 0)),
            (None, Some("2.50:1".into()), Some("nothing left".into()))
        );
    }

    #[test]
    fn durations_in_words() {
        assert_eq!(clock(Duration::from_secs(3723)), "1:02:03");
        assert_eq!(
            [took(310), took(12_345), took(247_000), took(3_723_000)],
            ["0.31 s", "12.3 s", "4:07 min", "1:02:03 h"]
        );
    }

    #[test]
    fn sizes_are_read() {
        for (text, n) in [
            ("0", 0),
            ("4096", 4096),
            ("4096b", 4096),
            ("500K", 500 << 10),
            ("1.5g", 3 << 29),
            ("10MiB", 10 << 20),
            ("10 MB", 10_000_000),
            ("1t", 1 << 40),
        ] {
            assert_eq!(parse(text), Ok(n), "{text}");
        }
        for wrong in ["", "G", "-1", "1x", "1kk", "1.2.3", "99999999999E", "1e5", "."] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(parse_memory("1M").is_err());
    }
}
