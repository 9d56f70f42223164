//! What is said about sessions that are in the way, by commands that have to wait for them.

use drumlin_format::SessionId;
use std::time::Duration;

/// A time, as users write it.
pub fn duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let wrong = |_| "a time is a number and a unit, such as 90s, 30m, 2h or 7d".to_owned();
    let span: jiff::Span = text.parse().map_err(wrong)?;
    let days = jiff::SpanRelativeTo::days_are_24_hours();
    let duration = span.to_duration(days).map_err(wrong)?;
    Duration::try_from(duration).map_err(|_| "a time can't be negative".into())
}

/// A session's name.
pub fn session(text: &str) -> Result<SessionId, String> {
    SessionId::parse(text).ok_or_else(|| "a session is named by its 32 hexadecimal digits".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1d 2h"), Ok(Duration::from_secs(26 * 3600)));
        for wrong in ["7", "-1h", "1 month", "soon", ""] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
