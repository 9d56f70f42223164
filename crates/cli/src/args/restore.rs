//! `restore`.

use super::excludes::Rules;
use super::select::Select;
use crate::render::size;
use clap::{Args, ValueEnum, ValueHint};
use drumlin_engine::{restore, thaw};
use drumlin_store::Haste;
use std::ffi::OsString;
use std::path::PathBuf;

/// Restore files from a snapshot
///
/// A file in the target that differs is replaced in one step, once its new contents are complete and verified. What is
/// right already is left alone, so running an interrupted restore again continues it.
#[derive(Args, Debug)]
pub struct Restore {
    /// The snapshot: the start of its id, 'latest' or 'latest~N'; followed by ':FOLDER': that folder's contents
    #[arg(value_name = "SNAP[:FOLDER]")]
    pub snapshot: OsString,

    /// Restore only these paths of the snapshot; behind SNAP:FOLDER, of that folder
    #[arg(value_name = "PATH")]
    pub paths: Vec<OsString>,

    /// The folder to restore to; '/' puts everything back where it came from
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath, required = true)]
    pub target: PathBuf,

    /// Narrows down what 'latest' means.
    #[command(flatten)]
    pub select: Select,

    /// Restore only what matches PATTERN (as in a .gitignore, but at any depth unless it starts with '/'; may be
    /// repeated)
    #[arg(short, long, value_name = "PATTERN")]
    pub include: Vec<String>,

    /// Patterns of what is left out, and not deleted either.
    #[command(flatten)]
    pub exclude: Rules,

    /// What to do with files in the target that differ
    #[arg(long, value_name = "WHEN", default_value = "always")]
    pub overwrite: Overwrite,

    /// Delete what is in the restored folders but not in the snapshot
    ///
    /// It deletes only at and below the sources of the backup, not in the folders above them. It never deletes the
    /// repository that is read, nor Drumlin's own files, nor what --exclude names. If rules left something out of the
    /// backup, it is refused unless the same rules are given (by --profile and --exclude), which then name what is not
    /// deleted, or --delete-excluded; if the backup could not read something, unless --delete-excluded is.
    #[arg(long)]
    pub delete: bool,

    /// With --delete: also delete what rules left out of the backup (but not what --exclude names), and what it could
    /// not read
    #[arg(long, requires = "delete")]
    pub delete_excluded: bool,

    /// Only report what would be done
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    /// Read everything back afterwards and compare
    #[arg(long)]
    pub verify: bool,

    /// Restore owners and groups by number instead of by name
    #[arg(long)]
    pub numeric_ids: bool,

    /// What to do about packs in cold storage: 'bulk', 'standard' or 'expedited' retrieval (speed and price differ), or
    /// 'no' to fail
    #[arg(long, value_name = "HOW", default_value = "standard", hide_possible_values = true)]
    pub thaw: Thaw,

    /// Approximate memory to use [default: 128M]
    #[arg(long, value_name = "SIZE", value_parser = size::parse_memory)]
    pub memory: Option<usize>,

    /// Threads that read, decrypt and write [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
}

/// What to do with files that are there.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Overwrite {
    /// Restore all files that differ, comparing their contents
    Always,
    /// Like 'always', but treat files of equal size and time as having equal contents
    IfChanged,
    /// Replace only files that are older than in the snapshot
    IfNewer,
    /// Leave them alone
    Never,
}

/// How to have packs back from cold storage.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Thaw {
    /// Within half a day or longer
    Bulk,
    /// Within some hours
    Standard,
    /// Within minutes, where the provider offers that
    Expedited,
    /// Don't retrieve anything: fail
    No,
}

impl From<Thaw> for Option<thaw::Options> {
    fn from(thaw: Thaw) -> Self {
        let haste = match thaw {
            Thaw::Bulk => Haste::Bulk,
            Thaw::Standard => Haste::Standard,
            Thaw::Expedited => Haste::Expedited,
            Thaw::No => return None,
        };
        Some(thaw::Options { haste, ..thaw::Options::default() })
    }
}

impl From<Overwrite> for restore::Overwrite {
    fn from(overwrite: Overwrite) -> Self {
        match overwrite {
            Overwrite::Always => restore::Overwrite::Always,
            Overwrite::IfChanged => restore::Overwrite::IfChanged,
            Overwrite::IfNewer => restore::Overwrite::IfNewer,
            Overwrite::Never => restore::Overwrite::Never,
        }
    }
}
