//! The rules by which snapshots are kept, as users write them.

use std::fmt;
use std::str::FromStr;

/// How many to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// So many; of 0 the rule keeps nothing.
    Of(u32),
    /// As many as there are.
    All,
}

impl Default for Count {
    fn default() -> Self {
        Count::Of(0)
    }
}

impl Count {
    /// Whether a rule with it keeps anything.
    pub fn is_some(self) -> bool {
        self != Count::Of(0)
    }
}

impl FromStr for Count {
    type Err = String;

    /// A number, or `unlimited`, for which restic also takes -1.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "unlimited" | "-1" => Ok(Count::All),
            _ => text.parse().map(Count::Of).map_err(|_| format!("'{text}' is neither a number nor 'unlimited'")),
        }
    }
}

/// A stretch of the calendar, such as `1y2m3d4h`. Never empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Period {
    /// Years.
    pub years: u32,
    /// Months.
    pub months: u32,
    /// Weeks.
    pub weeks: u32,
    /// Days.
    pub days: u32,
    /// Hours.
    pub hours: u32,
}

impl FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not a period such as 30d or 1y6m");
        let mut period = Period::default();
        let mut rest = text;
        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let (number, unit) = rest.split_at(digits);
            let number: u32 = number.parse().map_err(|_| wrong())?;
            let field = match unit.as_bytes().first() {
                Some(b'y') => &mut period.years,
                Some(b'm') => &mut period.months,
                Some(b'w') => &mut period.weeks,
                Some(b'd') => &mut period.days,
                Some(b'h') => &mut period.hours,
                _ => return Err(wrong()),
            };
            *field = field.checked_add(number).ok_or_else(wrong)?;
            rest = &unit[1..];
        }
        if period == Period::default() { Err(wrong()) } else { Ok(period) }
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Period { years, months, weeks, days, hours } = *self;
        let parts = [(years, 'y'), (months, 'm'), (weeks, 'w'), (days, 'd'), (hours, 'h')];
        parts.iter().filter(|(n, _)| *n > 0).try_for_each(|(n, unit)| write!(f, "{n}{unit}"))
    }
}

/// A unit of the calendar. Weeks are those of ISO 8601: they begin on Mondays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Hours.
    Hour,
    /// Days.
    Day,
    /// Weeks.
    Week,
    /// Months.
    Month,
    /// Years.
    Year,
}

impl Unit {
    /// All of them.
    pub const ALL: [Unit; 5] = [Unit::Hour, Unit::Day, Unit::Week, Unit::Month, Unit::Year];

    /// The word for a snapshot that stands for one of them.
    pub fn word(self) -> &'static str {
        match self {
            Unit::Hour => "hourly",
            Unit::Day => "daily",
            Unit::Week => "weekly",
            Unit::Month => "monthly",
            Unit::Year => "yearly",
        }
    }
}

/// Something for each unit of the calendar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerUnit<T> {
    /// For hours.
    pub hourly: T,
    /// For days.
    pub daily: T,
    /// For weeks.
    pub weekly: T,
    /// For months.
    pub monthly: T,
    /// For years.
    pub yearly: T,
}

impl<T: Copy> PerUnit<T> {
    /// That of one unit.
    pub fn get(&self, unit: Unit) -> T {
        match unit {
            Unit::Hour => self.hourly,
            Unit::Day => self.daily,
            Unit::Week => self.weekly,
            Unit::Month => self.monthly,
            Unit::Year => self.yearly,
        }
    }
}

/// What to keep. A snapshot that any one rule keeps is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The newest ones.
    pub last: Count,
    /// The newest of each of the last hours, days, … that have snapshots.
    pub every: PerUnit<Count>,
    /// All that are no older than the newest by more than this.
    pub within: Option<Period>,
    /// Of those, the newest of each hour, day, …
    pub within_every: PerUnit<Option<Period>>,
    /// Those that have all tags of one of these sets. The empty set stands for snapshots without tags.
    pub tags: Vec<Vec<String>>,
}

impl Rules {
    /// Whether there is no rule at all.
    pub fn is_empty(&self) -> bool {
        let unit = |unit: &Unit| self.every.get(*unit).is_some() || self.within_every.get(*unit).is_some();
        !self.last.is_some() && self.within.is_none() && self.tags.is_empty() && !Unit::ALL.iter().any(unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_periods_are_read() {
        assert_eq!("7".parse(), Ok(Count::Of(7)));
        assert_eq!("unlimited".parse(), Ok(Count::All));
        assert_eq!("-1".parse(), Ok(Count::All));
        for wrong in ["", "-2", "all", "1.5", "99999999999"] {
            assert!(wrong.parse::<Count>().is_err(), "{wrong}");
        }
        let period = Period { years: 1, months: 2, weeks: 0, days: 3, hours: 4 };
        assert_eq!("1y2m3d4h".parse(), Ok(period));
        assert_eq!(period.to_string(), "1y2m3d4h");
        assert_eq!("3d2w4d".parse(), Ok(Period { weeks: 2, days: 7, ..Period::default() }));
        for wrong in ["", "3", "d", "3x", "1y2", "0d", "-1d", "1d ", "99999999999d", "4294967295d1d", "1ÿ"] {
            assert!(wrong.parse::<Period>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn no_rule_is_no_rule() {
        assert!(Rules::default().is_empty());
        assert!(!Rules { last: Count::All, ..Rules::default() }.is_empty());
        assert!(!Rules { tags: vec![Vec::new()], ..Rules::default() }.is_empty());
        let weekly = PerUnit { weekly: Count::Of(1), ..PerUnit::default() };
        assert!(!Rules { every: weekly, ..Rules::default() }.is_empty());
        let yearly = PerUnit { yearly: "1y".parse().ok(), ..PerUnit::default() };
        assert!(!Rules { within_every: yearly, ..Rules::default() }.is_empty());
    }
}
