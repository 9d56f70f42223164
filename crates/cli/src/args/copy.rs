//! `copy`.

use super::backup::compression;
use super::select::Select;
use crate::render::size;
use clap::Args;
use drumlin_engine::backup::Compression;
use std::path::PathBuf;

/// Copy snapshots into another repository
///
/// What is in the other repository already is not copied again, so running the same command again continues an
/// interrupted copy. Contents are read here and stored there, encrypted with that repository's own keys. It needs a
/// reader's or owner's key for this repository, and a writer's or owner's key for the other one, which must exist.
/// 'drumlin init --cut-like' makes one that cuts files into chunks at the same places as this one.
#[derive(Args, Debug)]
pub struct Copy {
    /// Snapshots to copy: the start of each id, or 'latest' [default: all]
    #[arg(value_name = "SNAP")]
    pub snapshots: Vec<String>,

    /// The repository to copy to.
    #[command(flatten)]
    pub to: To,

    /// Which snapshots.
    #[command(flatten)]
    pub select: Select,

    /// Only report which snapshots would be copied
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    /// How hard to compress: 'auto', 'off', 'max', or a zstd level from -7 to 22
    #[arg(long, value_name = "LEVEL", value_parser = compression, allow_hyphen_values = true, default_value = "auto")]
    pub compression: Compression,

    /// Approximate memory to use [default: 128M]
    #[arg(long, value_name = "SIZE", value_parser = size::parse_memory)]
    pub memory: Option<usize>,

    /// Threads that read, compress and encrypt [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
}

/// The other repository, and what opens it. The names are not those of the options of every command.
#[derive(Args, Debug)]
pub struct To {
    /// The repository to copy to
    #[arg(long, value_name = "REPO")]
    pub to: String,

    /// Read the other repository's passphrase from the first line of FILE [env: DRUMLIN_TO_PASSWORD_FILE; the
    /// passphrase itself: DRUMLIN_TO_PASSWORD]
    #[arg(long, value_name = "FILE")]
    pub to_password_file: Option<PathBuf>,

    /// Run COMMAND in a shell and read the other repository's passphrase from its output [env:
    /// DRUMLIN_TO_PASSWORD_COMMAND]
    #[arg(long, value_name = "COMMAND")]
    pub to_password_command: Option<String>,

    /// Unlock the other repository with a key file or a recovery file [env: DRUMLIN_TO_KEY_FILE]
    #[arg(long, value_name = "FILE")]
    pub to_key_file: Option<PathBuf>,
}
