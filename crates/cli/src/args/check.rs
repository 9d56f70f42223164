//! `check`.

use clap::Args;
use drumlin_engine::check::Part;

/// Check whether the repository is sound; name what is damaged, and which files that touches
///
/// Every object but the contents of files is opened and compared with what refers to it, in a few seconds. --read-data goes
/// through the contents as well. It writes nothing, and may run beside backups and prunes. If anything is damaged the exit
/// status is 1.
#[derive(Args, Debug)]
pub struct Check {
    /// Read contents too: all, or PART of them
    ///
    /// PART is a share such as 10%: each run reads those packs whose last reading is longest ago, so that ten such runs
    /// read all, new ones too. Or it is one of several parts, such as 3/10, which needs no cache. A run that was stopped is
    /// gone on with by the next one of the same PART.
    #[arg(long, value_name = "PART", num_args = 0..=1, require_equals = true, default_missing_value = "100%")]
    pub read_data: Option<Part>,

    /// Take the repository as it is now, whatever this client has seen in it before
    ///
    /// Each client remembers which snapshots, index objects and keys it has seen, and says so if something of it is gone
    /// that nobody who may has removed. That is right after the repository was put back from an older copy: then this is
    /// the way to go on.
    #[arg(long)]
    pub accept_history: bool,
}
