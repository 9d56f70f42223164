//! The commands about the program itself and about this machine: `why`, `cache`, `completions`, `man`, `version`.

use super::excludes::Excludes;
use clap::{Args, Subcommand};
use std::ffi::OsString;

/// Tell which rule includes or excludes a path
///
/// Give it the same options as the backup, or the same profile.
#[derive(Args, Debug)]
pub struct Why {
    /// The paths
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<OsString>,

    /// What the backup saves (may be repeated) [default: the sources of the profile, else '/']
    #[arg(long, value_name = "PATH")]
    pub source: Vec<OsString>,

    /// The rules.
    #[command(flatten)]
    pub excludes: Excludes,
}

/// Show where the caches are, and how large
///
/// Caches only save time: a repository needs none of what is in them.
#[derive(Args, Debug)]
pub struct Cache {
    /// What to do; without it they are shown.
    #[command(subcommand)]
    pub action: Option<CacheAction>,
}

/// What to do with caches.
#[derive(Debug, Subcommand)]
pub enum CacheAction {
    /// Delete the cache of the repository given by -r, a profile or DRUMLIN_REPOSITORY; without any, all caches
    Clear,
}

/// Print a script with which a shell completes commands and options
#[derive(Args, Debug)]
pub struct Completions {
    /// The shell
    pub shell: clap_complete::Shell,
}

/// Print the manual page of the program or of a command
///
/// 'drumlin man backup | man -l -' shows it.
#[derive(Args, Debug)]
pub struct Man {
    /// The command, such as 'backup' or 'key add'
    pub command: Vec<String>,
}

/// Print the version of the program and of the repository format
#[derive(Args, Debug)]
pub struct Version {}
