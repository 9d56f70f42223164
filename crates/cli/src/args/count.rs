//! The commands that count: `stats` and `estimate`.

use super::excludes::Excludes;
use super::select::Select;
use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

/// Show how much a repository holds, and how much deduplication and compression each save
///
/// For chosen snapshots it shows how much data they refer to. Data that several of them share is counted once.
#[derive(Args, Debug)]
pub struct Stats {
    /// Count only what these snapshots refer to
    #[arg(value_name = "SNAP")]
    pub snapshots: Vec<OsString>,

    /// Which snapshots.
    #[command(flatten)]
    pub select: Select,
}

/// Show how much a backup would save, without reading the contents of files
///
/// If there is an earlier snapshot of the same host and sources, it also shows how much is new or changed since.
#[derive(Args, Debug)]
pub struct Estimate {
    /// What to save
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub paths: Vec<OsString>,

    /// Read paths to save from FILE, one shell pattern per line ('#' starts a comment; FILE '-' is standard input)
    #[arg(long, value_name = "FILE")]
    pub files_from: Vec<PathBuf>,

    /// Host name in the snapshots [env: DRUMLIN_HOST; default: this host's]
    #[arg(short = 'H', long)]
    pub host: Option<String>,

    /// Compare with this snapshot instead of the latest of the same host and sources, or some of them
    #[arg(long, value_name = "SNAP")]
    pub parent: Option<String>,

    /// What to leave out.
    #[command(flatten)]
    pub excludes: Excludes,
}
