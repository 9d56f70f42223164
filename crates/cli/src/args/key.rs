//! `key` and what it does with keys.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Manage the keys of a repository
#[derive(Args, Debug)]
pub struct Key {
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
}

/// What to do with keys.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// List the keys
    List,
    /// Add a key for somebody else, or for another machine
    Add(Add),
    /// Take a key away: nothing opens it any more
    Remove(Remove),
    /// Change what opens the key in use
    Passwd(Passwd),
    /// Give the repository new secrets, which no removed key knows
    ///
    /// What is written from now on is closed to whoever has taken older secrets out of a key, that of a stolen machine for one:
    /// remove such keys first. All other keys go on as they are, and find the same chunks again. This writes a few small
    /// objects. What there is stays open to the older secrets until it is sealed anew: each prune does a part
    /// (prune --max-rekey), and 'drumlin stats' tells how much is left.
    ///
    /// Backups that are under way end with the secrets that they began with.
    Rekey(Rekey),
    /// Write the secrets of the key in use to a recovery file for a safe place
    ///
    /// The file alone is as good as the key: it opens the repository without any passphrase, even if the repository's own
    /// key objects are lost. Keep it where nobody else gets at it, and not in the repository alone. Give it to --key-file.
    Export(Export),
}

/// What opens a key.
#[derive(Args, Debug)]
#[group(multiple = false)]
pub struct NewLock {
    /// Read the key's passphrase from the first line of FILE, instead of asking for it
    #[arg(long, value_name = "FILE")]
    pub new_password_file: Option<PathBuf>,

    /// Make a random key instead, and write it to FILE, which must not exist yet
    #[arg(long, value_name = "FILE")]
    pub new_key_file: Option<PathBuf>,
}

/// `key add`.
#[derive(Args, Debug)]
pub struct Add {
    /// What the key is for
    #[arg(long, default_value = "owner")]
    pub role: Role,

    /// A name for people, such as the machine's [default: USER@HOST]
    #[arg(long)]
    pub label: Option<String>,

    /// What opens it.
    #[command(flatten)]
    pub lock: NewLock,
}

/// What a key is for.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Role {
    /// Everything
    Owner,
    /// Restore
    Reader,
    /// Back up; neither read nor delete
    Writer,
    /// Forget and prune, from metadata alone
    Keeper,
}

impl From<Role> for drumlin_format::key::Role {
    fn from(role: Role) -> Self {
        match role {
            Role::Owner => drumlin_format::key::Role::Owner,
            Role::Reader => drumlin_format::key::Role::Reader,
            Role::Writer => drumlin_format::key::Role::Writer,
            Role::Keeper => drumlin_format::key::Role::Keeper,
        }
    }
}

/// `key remove`.
#[derive(Args, Debug)]
pub struct Remove {
    /// The key: the beginning of its id
    #[arg(value_name = "ID")]
    pub id: String,
}

/// `key passwd`.
#[derive(Args, Debug)]
pub struct Passwd {
    /// What opens it from now on.
    #[command(flatten)]
    pub lock: NewLock,
}

/// `key rekey`.
#[derive(Args, Debug)]
pub struct Rekey {
    /// Remove the keys that were made by a version too old to be given new secrets
    ///
    /// Without it nothing is done if there are such keys. Add new ones in their place.
    #[arg(long)]
    pub remove_old: bool,
}

/// `key export`.
#[derive(Args, Debug)]
pub struct Export {
    /// The file, which must not exist yet; standard output if none is given
    pub file: Option<PathBuf>,
}
