//! What `--json` writes while an operation runs and when it fails: one object a line, told apart by `message_type`.
//! `docs/json.md` is the schema.

use crate::exit::Failure;
use crate::render::path::JsonPath;
use drumlin_engine::monitor::{Change, ProblemKind};
use serde::Serialize;

/// The last word of a command that failed.
#[derive(Serialize)]
pub struct ExitError<'a> {
    message_type: &'static str,
    code: i32,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
}

impl<'a> From<&'a Failure> for ExitError<'a> {
    fn from(failure: &'a Failure) -> Self {
        ExitError {
            message_type: "exit_error",
            code: failure.exit as i32,
            message: &failure.message,
            hint: failure.hint.as_deref(),
        }
    }
}

/// Trouble with one entry.
#[derive(Serialize)]
pub struct EntryError<'a> {
    message_type: &'static str,
    during: &'static str,
    kind: &'static str,
    #[serde(flatten)]
    path: JsonPath<'a>,
    error: Cause<'a>,
}

#[derive(Serialize)]
struct Cause<'a> {
    message: &'a str,
}

impl<'a> EntryError<'a> {
    /// What befell `path`.
    pub fn new(during: &'static str, kind: ProblemKind, path: &'a [u8], message: &'a str) -> Self {
        EntryError { message_type: "error", during, kind: problem(kind), path: path.into(), error: Cause { message } }
    }
}

/// Trouble that isn't about one entry.
#[derive(Serialize)]
pub struct OtherError<'a> {
    message_type: &'static str,
    during: &'static str,
    error: Cause<'a>,
}

impl<'a> OtherError<'a> {
    /// What happened.
    pub fn new(during: &'static str, message: &'a str) -> Self {
        OtherError { message_type: "error", during, error: Cause { message } }
    }
}

/// Something that is no error.
#[derive(Serialize)]
pub struct Warning<'a> {
    message_type: &'static str,
    message: &'a str,
}

impl<'a> Warning<'a> {
    /// These words.
    pub fn new(message: &'a str) -> Self {
        Warning { message_type: "warning", message }
    }
}

/// What became of one entry, with `-v`.
#[derive(Serialize)]
pub struct VerboseStatus<'a> {
    message_type: &'static str,
    action: &'static str,
    #[serde(flatten)]
    path: JsonPath<'a>,
}

impl<'a> VerboseStatus<'a> {
    /// What became of `path`.
    pub fn new(change: Change, path: &'a [u8]) -> Self {
        VerboseStatus { message_type: "verbose_status", action: action(change), path: path.into() }
    }
}

/// How far an operation is.
#[derive(Serialize)]
pub struct Status {
    /// Always `status`.
    pub message_type: &'static str,
    /// Since it began.
    pub seconds_elapsed: f64,
    /// Until its end; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds_remaining: Option<u64>,
    /// From 0 to 1; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent_done: Option<f64>,
    /// Entries dealt with.
    pub entries_done: u64,
    /// Entries expected; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_entries: Option<u64>,
    /// Files among those dealt with.
    pub files_done: u64,
    /// Bytes of file contents dealt with.
    pub bytes_done: u64,
    /// Bytes expected; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
    /// Bytes a second, lately.
    pub bytes_per_second: u64,
    /// Entries that gave trouble.
    pub error_count: u64,
}

/// The word for a kind of trouble.
pub fn problem(kind: ProblemKind) -> &'static str {
    match kind {
        ProblemKind::Unreadable => "unreadable",
        ProblemKind::ChangedWhileRead => "changed_while_read",
        ProblemKind::Vanished => "vanished",
        ProblemKind::Damaged => "damaged",
        ProblemKind::Unwritable => "unwritable",
        ProblemKind::Attribute => "attribute",
    }
}

/// The word for what became of an entry.
pub fn action(change: Change) -> &'static str {
    match change {
        Change::New => "new",
        Change::Changed => "changed",
        Change::Unmodified => "unmodified",
        Change::Removed => "removed",
        Change::Restored => "restored",
        Change::Kept => "kept",
        Change::Deleted => "deleted",
    }
}
