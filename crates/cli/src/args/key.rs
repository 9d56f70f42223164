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
    /// Add a key for another person or machine
    Add(Add),
    /// Remove a key: its passphrase or key file no longer opens the repository
    Remove(Remove),
    /// Change the passphrase or key file of the key in use
    Passwd(Passwd),
    /// Give the repository new secrets, which removed keys don't know
    ///
    /// Use it when somebody may have copied the secrets of a key, such as that of a stolen machine. Remove that key
    /// first. What is written after the rekey can't be read with the old secrets. All other keys keep working, and
    /// deduplication goes on as before. It writes only a few small objects. Data that is there already stays readable
    /// with the old secrets until it is re-encrypted: each prune does a part of it (prune --max-rekey), and 'drumlin
    /// stats' shows how much is left.
    ///
    /// Backups that are running now finish with the old secrets.
    Rekey(Rekey),
    /// Write the secrets of the key in use to a recovery file, to be kept in a safe place
    ///
    /// The file opens the repository without a passphrase, even if the key objects in the repository are lost. Use it
    /// with --key-file. Keep it where nobody else has access, and not only in the repository.
    Export(Export),
}

/// What opens a key.
#[derive(Args, Debug)]
#[group(multiple = false)]
pub struct NewLock {
    /// Read the new passphrase from the first line of FILE, instead of asking for it
    #[arg(long, value_name = "FILE")]
    pub new_password_file: Option<PathBuf>,

    /// Use a random key instead of a passphrase, and write it to FILE, which must not exist yet
    #[arg(long, value_name = "FILE")]
    pub new_key_file: Option<PathBuf>,
}

/// `key add`.
#[derive(Args, Debug)]
pub struct Add {
    /// What the key is for
    #[arg(long, default_value = "owner")]
    pub role: Role,

    /// A name for the key, such as the machine's [default: USER@HOST]
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
    /// Back up; can't read or delete
    Writer,
    /// Forget and prune; can't read the contents of files
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
    /// The key: the start of its id
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
    /// Remove keys made by a version too old to get new secrets
    ///
    /// Without this option, nothing is done if there are such keys. Add new keys to replace them.
    #[arg(long)]
    pub remove_old: bool,
}

/// `key export`.
#[derive(Args, Debug)]
pub struct Export {
    /// The file, which must not exist yet; standard output if none is given
    pub file: Option<PathBuf>,
}
