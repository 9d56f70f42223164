//! The commands that look into snapshots: `ls`, `find`, `diff`, `du`, `dump`.

use super::select::Select;
use crate::render::{size, time};
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// List what is in a snapshot
///
/// Without a path, the whole snapshot is listed; with one, the entries of that directory, or with -R all below it.
#[derive(Args, Debug)]
pub struct Ls {
    /// The snapshot: the start of its id, 'latest' or 'latest~N'; followed by ':FOLDER': that folder in it
    #[arg(value_name = "SNAP[:FOLDER]")]
    pub snapshot: OsString,

    /// List only these paths of it
    #[arg(value_name = "PATH")]
    pub paths: Vec<OsString>,

    /// Show mode, owner, size and time, too
    #[arg(short, long)]
    pub long: bool,

    /// List everything below the paths
    #[arg(short = 'R', long)]
    pub recursive: bool,

    /// Narrows down what 'latest' means.
    #[command(flatten)]
    pub select: Select,
}

/// Find entries of snapshots by name, type, time or size
///
/// A pattern may contain the wildcards *, ? and [...]. With a slash in it, it is matched against the whole path (**
/// also matches slashes), otherwise against the name; one that ends with a slash fits directories alone. All snapshots
/// are searched unless some are selected.
#[derive(Args, Debug)]
pub struct Find {
    /// What to look for
    #[arg(value_name = "PATTERN", required = true)]
    pub patterns: Vec<OsString>,

    /// Search only this snapshot (may be repeated)
    #[arg(short, long = "snapshot", value_name = "SNAP[:FOLDER]")]
    pub snapshots: Vec<OsString>,

    /// Match names ignoring case
    #[arg(short, long)]
    pub ignore_case: bool,

    /// Only entries of this type (may be repeated)
    #[arg(long = "type", value_name = "TYPE")]
    pub kinds: Vec<Kind>,

    /// Only entries modified at TIME or later, such as 2026-11-20
    #[arg(short = 'N', long, value_name = "TIME", alias = "oldest", value_parser = time::parse)]
    pub newer: Option<time::Time>,

    /// Only entries modified at TIME or earlier
    #[arg(short = 'O', long, value_name = "TIME", alias = "newest", value_parser = time::parse)]
    pub older: Option<time::Time>,

    /// Only entries of at least SIZE
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub larger: Option<u64>,

    /// Only entries of at most SIZE
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub smaller: Option<u64>,

    /// Show mode, owner, size and time, too
    #[arg(short, long)]
    pub long: bool,

    /// Which snapshots.
    #[command(flatten)]
    pub select: Select,
}

/// A type of entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Regular files
    #[value(alias = "f")]
    File,
    /// Directories
    #[value(alias = "d")]
    Dir,
    /// Symbolic links
    #[value(alias = "l")]
    Symlink,
    /// Named pipes
    #[value(alias = "p")]
    Fifo,
    /// Sockets
    #[value(alias = "s")]
    Socket,
    /// Character devices
    #[value(alias = "c")]
    Chardev,
    /// Block devices
    #[value(alias = "b")]
    Blockdev,
}

/// Show what differs between two snapshots
///
/// '+' marks an entry that is only in the second, '-' one that is only in the first. 'M': the contents differ; 'T': the
/// type differs; 'U': only metadata differs.
#[derive(Args, Debug)]
pub struct Diff {
    /// The first snapshot; followed by ':FOLDER': only that folder in it
    #[arg(value_name = "SNAP[:FOLDER]")]
    pub old: OsString,

    /// The second snapshot
    #[arg(value_name = "SNAP[:FOLDER]")]
    pub new: OsString,

    /// Also show entries of which only metadata differs
    #[arg(long)]
    pub metadata: bool,

    /// Narrows down what 'latest' means.
    #[command(flatten)]
    pub select: Select,
}

/// Show how much is below each directory of a snapshot
///
/// A file with several hard links counts once for each of its names.
#[derive(Args, Debug)]
pub struct Du {
    /// The snapshot; followed by ':FOLDER': that folder in it
    #[arg(value_name = "SNAP[:FOLDER]")]
    pub snapshot: OsString,

    /// Only these paths of it
    #[arg(value_name = "PATH")]
    pub paths: Vec<OsString>,

    /// Show directories down to N levels below the paths
    #[arg(short, long, value_name = "N", alias = "max-depth", default_value_t = 1)]
    pub depth: usize,

    /// Show exact numbers of bytes
    #[arg(short, long)]
    pub bytes: bool,

    /// Narrows down what 'latest' means.
    #[command(flatten)]
    pub select: Select,
}

/// Write a file of a snapshot to standard output, or a directory as an archive
#[derive(Args, Debug)]
pub struct Dump {
    /// The snapshot; followed by ':FOLDER': that folder in it
    #[arg(value_name = "SNAP[:FOLDER]")]
    pub snapshot: OsString,

    /// The file or directory
    #[arg(value_name = "PATH")]
    pub entry: OsString,

    /// Write an archive of this kind (a single file, too, is put into an archive then) [default for directories: tar]
    #[arg(short, long, value_name = "KIND")]
    pub archive: Option<Archive>,

    /// Write to FILE, which must not exist yet, instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub target: Option<PathBuf>,

    /// Threads that read and decrypt [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,

    /// Narrows down what 'latest' means.
    #[command(flatten)]
    pub select: Select,
}

/// A kind of archive.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Archive {
    /// POSIX pax, which all tar programs read
    Tar,
    /// Zip with zip64
    Zip,
}
