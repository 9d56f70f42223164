//! `copy`.

use super::backup::compression;
use super::select::Select;
use crate::render::size;
use clap::Args;
use drumlin_engine::backup::Compression;
use std::path::PathBuf;

/// Copy snapshots into another repository
///
/// What is there already is not copied again, so the same command goes on where another one ended. Contents are read here,
/// and stored there under that repository's own keys. It takes a reader's or owner's key here, a writer's or owner's there.
/// The other repository must exist: 'drumlin init --cut-like' makes one that cuts files where this one does.
#[derive(Args, Debug)]
pub struct Copy {
    /// Copy these: beginnings of their ids, or 'latest' [default: all]
    #[arg(value_name = "SNAP")]
    pub snapshots: Vec<String>,

    /// The repository to copy to.
    #[command(flatten)]
    pub to: To,

    /// Which snapshots.
    #[command(flatten)]
    pub select: Select,

    /// Only say which snapshots would be copied
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    /// How hard to compress: 'auto', 'off', or a level of zstd from -7 to 22
    #[arg(long, value_name = "LEVEL", value_parser = compression, allow_hyphen_values = true, default_value = "auto")]
    pub compression: Compression,

    /// Memory to use, about [default: 128M]
    #[arg(long, value_name = "SIZE", value_parser = size::parse_memory)]
    pub memory: Option<usize>,

    /// Threads that read, compress and encrypt [default: one a processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
}

/// The other repository, and what opens it. The names are not those of the options of every command.
#[derive(Args, Debug)]
pub struct To {
    /// The repository to copy to
    #[arg(long, value_name = "REPO")]
    pub to: String,

    /// Read its passphrase from the first line of FILE [env: DRUMLIN_TO_PASSWORD_FILE; the passphrase itself: DRUMLIN_TO_PASSWORD]
    #[arg(long, value_name = "FILE")]
    pub to_password_file: Option<PathBuf>,

    /// Run COMMAND by the shell and read its passphrase from the output [env: DRUMLIN_TO_PASSWORD_COMMAND]
    #[arg(long, value_name = "COMMAND")]
    pub to_password_command: Option<String>,

    /// Unlock it with a key file or a recovery file [env: DRUMLIN_TO_KEY_FILE]
    #[arg(long, value_name = "FILE")]
    pub to_key_file: Option<PathBuf>,
}
