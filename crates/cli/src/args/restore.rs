//! `restore`.

use super::select::Select;
use crate::render::size;
use clap::{Args, ValueEnum, ValueHint};
use drumlin_engine::{restore, thaw};
use drumlin_store::Haste;
use std::ffi::OsString;
use std::path::PathBuf;

/// Write files of a snapshot back
///
/// A file that is there and differs is replaced in one step, after its new contents are complete and verified. What is
/// right already is left alone, so that a restore that was interrupted goes on where it ended.
#[derive(Args, Debug)]
pub struct Restore {
    /// The snapshot: the beginning of its id, 'latest' or 'latest~N'; with ':FOLDER' behind it, what is in that folder
    #[arg(value_name = "SNAP[:FOLDER]")]
    pub snapshot: OsString,

    /// Restore only these paths of the snapshot
    #[arg(value_name = "PATH")]
    pub paths: Vec<OsString>,

    /// The folder to restore to; '/' is where everything came from
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath, required = true)]
    pub target: PathBuf,

    /// Narrows down what 'latest' means.
    #[command(flatten)]
    pub select: Select,

    /// Restore only what matches PATTERN (as in a .gitignore, but at any depth unless it begins with '/'; may be repeated)
    #[arg(short, long, value_name = "PATTERN")]
    pub include: Vec<String>,

    /// Leave out what matches PATTERN (may be repeated)
    #[arg(short, long, value_name = "PATTERN")]
    pub exclude: Vec<String>,

    /// What to do with files that are there and differ
    #[arg(long, value_name = "WHEN", default_value = "always")]
    pub overwrite: Overwrite,

    /// Delete what is in the restored folders and not in the snapshot
    ///
    /// At and below the sources of the backup; in the folders above them nothing is deleted, nor is the repository that is read, nor what Drumlin
    /// keeps for itself. Where rules left something out of the backup, or it could not read something, it is refused without --exclude or --delete-excluded.
    #[arg(long)]
    pub delete: bool,

    /// With --delete: also what rules left out of the backup, and what it could not read
    #[arg(long, requires = "delete")]
    pub delete_excluded: bool,

    /// Only tell what would be done
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    /// Read everything back afterwards and compare
    #[arg(long)]
    pub verify: bool,

    /// Owners and groups by number instead of by name
    #[arg(long)]
    pub numeric_ids: bool,

    /// What to do about packs in cold storage: how soon to have them back, or 'no' to fail; the provider's price depends on it
    #[arg(long, value_name = "HOW", default_value = "standard", hide_possible_values = true)]
    pub thaw: Thaw,

    /// Memory to use, about [default: 128M]
    #[arg(long, value_name = "SIZE", value_parser = size::parse_memory)]
    pub memory: Option<usize>,

    /// Threads that read, decrypt and write [default: one a processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
}

/// What to do with files that are there.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Overwrite {
    /// Make them what the snapshot says, comparing their contents
    Always,
    /// The same, but take equal size and time for equal contents
    IfChanged,
    /// Only if the snapshot's is newer
    IfNewer,
    /// Leave them alone
    Never,
}

/// How to have packs back from cold storage.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Thaw {
    /// In half a day or longer
    Bulk,
    /// In some hours
    Standard,
    /// In minutes, where the provider has that
    Expedited,
    /// Not at all
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
