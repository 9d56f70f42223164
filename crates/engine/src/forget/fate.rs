//! What becomes of a snapshot, and why; and the words for it.

use super::rules::{Count, Period, Unit};
use std::fmt;

/// Why a snapshot is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is the `n`th of the newest.
    Last {
        /// Counted from 1.
        n: u32,
        /// So many are kept.
        of: Count,
    },
    /// It stands for the `n`th hour, day, … that has snapshots.
    Every {
        /// Of what it is the newest.
        unit: Unit,
        /// Counted from 1, the newest first.
        n: u32,
        /// So many are kept.
        of: Count,
        /// It is kept as the oldest snapshot instead.
        oldest: bool,
    },
    /// It is no older than that, compared with the newest.
    Within(Period),
    /// That, and it stands for its hour, day, …
    WithinEvery {
        /// Of what it is the newest.
        unit: Unit,
        /// How old it may be.
        period: Period,
        /// It is kept as the oldest snapshot instead.
        oldest: bool,
    },
    /// It has these tags.
    Tags(Vec<String>),
    /// It is partial, and there is no newer one that is whole.
    Resumes,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let oldest = |oldest: bool| if oldest { "oldest " } else { "" };
        match self {
            Reason::Last { n, of } => counted(f, "last", *n, *of),
            Reason::Every { unit, n, of, oldest: o } => {
                f.write_str(oldest(*o))?;
                counted(f, unit.word(), *n, *of)
            }
            Reason::Within(period) => write!(f, "within {period}"),
            Reason::WithinEvery { unit, period, oldest: o } => {
                write!(f, "{}{} within {period}", oldest(*o), unit.word())
            }
            Reason::Tags(tags) if tags.is_empty() => f.write_str("no tags"),
            Reason::Tags(tags) => write!(f, "tagged {}", tags.join("+")),
            Reason::Resumes => f.write_str("the next backup resumes from it"),
        }
    }
}

fn counted(f: &mut fmt::Formatter<'_>, word: &str, n: u32, of: Count) -> fmt::Result {
    match of {
        Count::Of(1) => f.write_str(word),
        Count::Of(of) => write!(f, "{word} {n} of {of}"),
        Count::All => write!(f, "{word} {n}"),
    }
}

/// Why a snapshot is neither kept by a rule nor removed by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// No key that may write here has signed it.
    UnknownKey,
    /// Its backup isn't over, or was killed.
    OpenSession,
    /// By its time it was taken more than a day from now.
    Future,
    /// It was made after another one, and its time is before that one's.
    Behind,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Left::UnknownKey => "not signed by a known key: left alone",
            Left::OpenSession => "its backup is not over: left alone",
            Left::Future => "from the future: left alone",
            Left::Behind => "made by a clock that was behind: left alone",
        })
    }
}

/// Why a snapshot goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Going {
    /// No rule keeps it.
    NoRule,
    /// It is partial, and there is a newer one that is whole.
    Superseded,
    /// The user named it.
    Named,
}

impl fmt::Display for Going {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Going::NoRule => "no rule keeps it",
            Going::Superseded => "partial, and a newer one is whole",
            Going::Named => "named",
        })
    }
}

/// What becomes of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is kept: there is at least one reason.
    Keep(Vec<Reason>),
    /// It is forgotten.
    Go(Going),
    /// The rules don't apply to it.
    LeaveAlone(Left),
}
