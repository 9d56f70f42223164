//! `backup`.

use super::excludes::Excludes;
use crate::render::{size, time};
use clap::{Args, ValueHint};
use drumlin_engine::backup::Compression;
use std::ffi::OsString;
use std::path::PathBuf;

/// Save files, or a stream, as a new snapshot
///
/// The backup is compared with the latest snapshot of the same host and sources, or else of the same host and some of
/// them: files whose size, times, inode, mode, owner and number of links are the same count as unmodified and aren't
/// read. The first Ctrl-C (or SIGTERM) stops the backup and leaves a partial snapshot (of files; of a stream none),
/// from which the next run goes on. SIGUSR1 prints the progress.
#[derive(Args, Debug)]
pub struct Backup {
    /// What to save: files and directories; with --command, after '--': the program and its arguments
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub paths: Vec<OsString>,

    /// Read paths to save from FILE, one shell pattern per line ('#' starts a comment; FILE '-' is standard input)
    #[arg(long, value_name = "FILE", help_heading = "What to save")]
    pub files_from: Vec<PathBuf>,

    /// Read paths to save from FILE, one per line, taken literally
    #[arg(long, value_name = "FILE", help_heading = "What to save")]
    pub files_from_verbatim: Vec<PathBuf>,

    /// Read paths to save from FILE, each ended by a zero byte
    #[arg(long, value_name = "FILE", help_heading = "What to save")]
    pub files_from_raw: Vec<PathBuf>,

    /// Save standard input as a file NAME
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "stdin", help_heading = "What to save")]
    pub stdin: Option<OsString>,

    /// The same as --stdin NAME
    #[arg(long, value_name = "NAME", hide = true)]
    pub stdin_filename: Option<OsString>,

    /// Save the standard output of a program as a file NAME; if the program fails, no snapshot is made
    #[arg(long, value_name = "NAME", conflicts_with_all = ["stdin", "stdin_filename", "files_from", "files_from_verbatim", "files_from_raw"], help_heading = "What to save")]
    pub command: Option<OsString>,

    /// Add tags to the snapshot (may be repeated)
    #[arg(long, value_name = "TAG[,TAG...]")]
    pub tag: Vec<String>,

    /// Host name in the snapshot [env: DRUMLIN_HOST; default: this host's]
    #[arg(short = 'H', long)]
    pub host: Option<String>,

    /// Time of the snapshot, such as '2026-11-20 16:00:44' [default: now]
    #[arg(long, value_parser = time::parse)]
    pub time: Option<time::Time>,

    /// Write nothing, only report what would be stored
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    /// Compare with this snapshot instead of the latest of the same host and sources, or some of them
    #[arg(long, value_name = "SNAP")]
    pub parent: Option<String>,

    /// Make no snapshot if nothing has changed since the previous one and host, sources and tags are the same
    #[arg(long, conflicts_with_all = ["stdin", "stdin_filename", "command"])]
    pub skip_if_unchanged: bool,

    /// Read all files, even those that seem unmodified
    #[arg(short, long)]
    pub force: bool,

    /// How hard to compress: 'auto', 'off', 'max', or a zstd level from -7 to 22
    #[arg(long, value_name = "LEVEL", value_parser = compression, allow_hyphen_values = true)]
    pub compression: Option<Compression>,

    /// Approximate memory to use [default: 128M]
    #[arg(long, value_name = "SIZE", value_parser = size::parse_memory)]
    pub memory: Option<usize>,

    /// How much of the repository's index to keep in memory: 'auto' is 'sparse' if 'exact' would take too much
    #[arg(long, value_name = "KIND", value_enum, default_value = "auto")]
    pub index: IndexKind,

    /// Threads that read, compress and encrypt [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,

    /// Threads that list directories [default: one per processor, at least two, and up to 64 while they mostly wait]
    #[arg(long, value_name = "N", hide = true, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub walkers: Option<u16>,

    /// Store a partial snapshot after this much new data, and every ten minutes; 0: only when interrupted
    #[arg(long, value_name = "SIZE", hide = true, value_parser = size::parse, default_value = "1G")]
    pub checkpoint: u64,

    /// What to leave out.
    #[command(flatten)]
    pub excludes: Excludes,
}

/// How much of the index to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum IndexKind {
    /// The exact one, or the sparse one if that would take too much memory.
    Auto,
    /// All of it.
    Exact,
    /// One chunk in 64: less memory, slightly less deduplication.
    Sparse,
}

/// Reads how hard to compress.
///
/// # Errors
/// What is wrong with it, for the user.
pub fn compression(text: &str) -> Result<Compression, String> {
    match text {
        "auto" => Ok(Compression::Auto),
        "off" => Ok(Compression::None),
        "max" => Ok(Compression::Level(19)),
        _ => match text.parse::<i32>() {
            Ok(0) => Ok(Compression::None),
            Ok(level @ -7..=22) => Ok(Compression::Level(level)),
            _ => Err(format!("'{text}' is neither 'auto', 'off' nor 'max', nor a level from -7 to 22")),
        },
    }
}
