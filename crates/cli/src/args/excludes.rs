//! What to leave out.

use crate::render::size;
use clap::Args;
use std::path::PathBuf;

/// Rules for what to leave out. Patterns have the syntax of .gitignore; one that begins with `/` is an absolute path.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "What to leave out")]
pub struct Excludes {
    /// Leave out what matches PATTERN (syntax of .gitignore; may be repeated, the last that matches counts)
    #[arg(short, long, value_name = "PATTERN")]
    pub exclude: Vec<String>,

    /// As --exclude, with letters of either case
    #[arg(long, value_name = "PATTERN")]
    pub iexclude: Vec<String>,

    /// Leave out what matches a pattern of FILE, one a line
    #[arg(long, value_name = "FILE")]
    pub exclude_file: Vec<PathBuf>,

    /// As --exclude-file, with letters of either case
    #[arg(long, value_name = "FILE")]
    pub iexclude_file: Vec<PathBuf>,

    /// Of directories that hold a file NAME (which begins with HEADER), keep that file alone
    #[arg(long, value_name = "NAME[:HEADER]")]
    pub exclude_if_present: Vec<String>,

    /// Leave out what is in caches, directories with a CACHEDIR.TAG
    #[arg(long)]
    pub exclude_caches: bool,

    /// Leave out files larger than SIZE
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub exclude_larger_than: Option<u64>,

    /// Don't leave the file systems of the sources
    #[arg(short = 'x', long)]
    pub one_file_system: bool,
}
