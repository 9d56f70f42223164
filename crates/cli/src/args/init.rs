//! `init`.

use clap::Args;
use std::path::PathBuf;

/// Make a new repository
///
/// Its owner's key is locked with a passphrase, which is asked for or given by an option or a variable. With
/// --key-file, a random key is made instead and written to that file, which must not exist yet.
///
/// Without -r, the repository is made in $XDG_DATA_HOME/drumlin/repository; without a passphrase it then gets a random
/// key, which is kept in $XDG_CONFIG_HOME/drumlin/keys.
#[derive(Args, Debug)]
pub struct Init {
    /// Cut files at the same places as REPO, so that copies of its snapshots and backups made here share their contents
    ///
    /// It needs a key that may write to REPO. Whoever has such a key knows where files are cut in the new one, too.
    #[arg(long, value_name = "REPO")]
    pub cut_like: Option<String>,

    /// Read the passphrase of --cut-like's REPO from the first line of FILE [env: DRUMLIN_LIKE_PASSWORD_FILE; the
    /// passphrase itself: DRUMLIN_LIKE_PASSWORD]
    #[arg(long, value_name = "FILE", requires = "cut_like")]
    pub like_password_file: Option<PathBuf>,

    /// Run COMMAND in a shell and read the passphrase of --cut-like's REPO from its output [env:
    /// DRUMLIN_LIKE_PASSWORD_COMMAND]
    #[arg(long, value_name = "COMMAND", requires = "cut_like")]
    pub like_password_command: Option<String>,

    /// Unlock --cut-like's REPO with a key file or a recovery file [env: DRUMLIN_LIKE_KEY_FILE]
    #[arg(long, value_name = "FILE", requires = "cut_like")]
    pub like_key_file: Option<PathBuf>,
}
