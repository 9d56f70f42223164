//! The commands that count: `stats` and `estimate`.

use super::excludes::Excludes;
use super::select::Select;
use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

/// Show how much a repository holds, and what deduplication and compression each save
///
/// Of single snapshots it tells what they refer to, each piece counted once however many of them share it.
#[derive(Args, Debug)]
pub struct Stats {
    /// Only what these snapshots refer to
    #[arg(value_name = "SNAP")]
    pub snapshots: Vec<OsString>,

    /// Which snapshots.
    #[command(flatten)]
    pub select: Select,
}

/// Tell how much a backup would save, without reading the contents of files
///
/// Where there is an earlier snapshot of the same host and sources, it tells too how much is new and changed since.
#[derive(Args, Debug)]
pub struct Estimate {
    /// What to save
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub paths: Vec<OsString>,

    /// Read paths to save from FILE, one shell pattern a line ('#' begins a comment; '-' is standard input)
    #[arg(long, value_name = "FILE")]
    pub files_from: Vec<PathBuf>,

    /// The host's name in the snapshots [env: DRUMLIN_HOST; default: this host's]
    #[arg(short = 'H', long)]
    pub host: Option<String>,

    /// Compare with this snapshot instead of the latest of the same host and sources
    #[arg(long, value_name = "SNAP")]
    pub parent: Option<String>,

    /// What to leave out.
    #[command(flatten)]
    pub excludes: Excludes,
}
