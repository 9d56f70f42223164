//! `init`.

use clap::Args;

/// Make a new repository
///
/// A passphrase (asked for, or given by one of the options or variables) becomes the key of its owner. With --key-file, a
/// random key is made instead and written to that file, which must not exist yet.
///
/// Without -r, the repository is made in $XDG_DATA_HOME/drumlin/repository; without a passphrase it then gets a random
/// key, which is kept in $XDG_CONFIG_HOME/drumlin/keys.
#[derive(Args, Debug)]
pub struct Init {}
