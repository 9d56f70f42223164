//! The commands that look into snapshots: `ls`, `find`, `diff`, `du`, `dump`.

use super::select::Select;
use crate::render::{size, time};
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// List what is in a snapshot
///
/// Without a path all of it is listed; with one, the entries of that directory, or with -R all that is below it.
#[derive(Args, Debug)]
pub struct Ls {
    /// The snapshot: the beginning of its id, 'latest' or 'latest~N'; with ':FOLDER' behind it, that folder
    #[arg(value_name = "SNAP[:FOLDER]")]
    pub snapshot: OsString,

    /// Only these paths of it
    #[arg(value_name = "PATH")]
    pub paths: Vec<OsString>,

    /// Mode, owner, size and time too
    #[arg(short, long)]
    pub long: bool,

    /// All that is below the paths
    #[arg(short = 'R', long)]
    pub recursive: bool,

    /// Narrows down what 'latest' means.
    #[command(flatten)]
    pub select: Select,
}

/// Find entries of snapshots by name, type, time or size
///
/// A pattern has the wildcards *, ? and [...]; with a slash in it, it is matched against the whole path (where ** crosses
/// slashes), else against the name. All snapshots are searched unless some are chosen.
#[derive(Args, Debug)]
pub struct Find {
    /// What to look for
    #[arg(value_name = "PATTERN", required = true)]
    pub patterns: Vec<OsString>,

    /// Only in this snapshot (may be repeated)
    #[arg(short, long = "snapshot", value_name = "SNAP[:FOLDER]")]
    pub snapshots: Vec<OsString>,

    /// Letters of either case
    #[arg(short, long)]
    pub ignore_case: bool,

    /// Only entries of this type (may be repeated)
    #[arg(long = "type", value_name = "TYPE")]
    pub kinds: Vec<Kind>,

    /// Only what was modified at TIME or later, such as 2026-11-20
    #[arg(short = 'N', long, value_name = "TIME", alias = "oldest", value_parser = time::parse)]
    pub newer: Option<time::Time>,

    /// Only what was modified at TIME or earlier
    #[arg(short = 'O', long, value_name = "TIME", alias = "newest", value_parser = time::parse)]
    pub older: Option<time::Time>,

    /// Only what has at least SIZE bytes
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub larger: Option<u64>,

    /// Only what has at most SIZE bytes
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub smaller: Option<u64>,

    /// Mode, owner, size and time too
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
/// '+' is only in the second, '-' only in the first, 'M' has other contents, 'T' is of another type, 'U' differs in its
/// metadata alone.
#[derive(Args, Debug)]
pub struct Diff {
    /// The first snapshot; with ':FOLDER' behind it, only what is in that folder
    #[arg(value_name = "SNAP[:FOLDER]")]
    pub old: OsString,

    /// The second
    #[arg(value_name = "SNAP[:FOLDER]")]
    pub new: OsString,

    /// Show what differs in its metadata alone, too
    #[arg(long)]
    pub metadata: bool,

    /// Narrows down what 'latest' means.
    #[command(flatten)]
    pub select: Select,
}

/// Sum up what is below directories of a snapshot
///
/// A file with several hard links counts once for each of its names.
#[derive(Args, Debug)]
pub struct Du {
    /// The snapshot; with ':FOLDER' behind it, that folder
    #[arg(value_name = "SNAP[:FOLDER]")]
    pub snapshot: OsString,

    /// Only these paths of it
    #[arg(value_name = "PATH")]
    pub paths: Vec<OsString>,

    /// Show directories down to N levels below the paths
    #[arg(short, long, value_name = "N", alias = "max-depth", default_value_t = 1)]
    pub depth: usize,

    /// Exact numbers of bytes
    #[arg(short, long)]
    pub bytes: bool,

    /// Narrows down what 'latest' means.
    #[command(flatten)]
    pub select: Select,
}

/// Write a file of a snapshot to standard output, or a directory as an archive
#[derive(Args, Debug)]
pub struct Dump {
    /// The snapshot; with ':FOLDER' behind it, that folder
    #[arg(value_name = "SNAP[:FOLDER]")]
    pub snapshot: OsString,

    /// The file or directory
    #[arg(value_name = "PATH")]
    pub entry: OsString,

    /// The kind of archive for a directory; with it, a single file comes as an archive too
    #[arg(short, long, value_name = "KIND")]
    pub archive: Option<Archive>,

    /// Write to FILE, which must not exist yet, instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub target: Option<PathBuf>,

    /// Threads that read and decrypt [default: one a processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,

    /// Narrows down what 'latest' means.
    #[command(flatten)]
    pub select: Select,
}

/// A kind of archive.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Archive {
    /// POSIX pax, as all tar programs read it
    Tar,
    /// Zip with zip64
    Zip,
}
