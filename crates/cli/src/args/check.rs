//! `check`.

use clap::Args;
use drumlin_engine::check::Part;

/// Check the repository for damage, and name the files that are affected
///
/// Everything except the contents of files is read and compared with what refers to it, which takes a few seconds.
/// --read-data reads the contents, too. A check writes nothing, and may run at the same time as backups and prunes. If
/// anything is damaged the exit status is 1.
#[derive(Args, Debug)]
pub struct Check {
    /// Read contents too: all, or PART of them
    ///
    /// PART is a share, such as 10%: each run reads the packs that have not been read for the longest time, so that ten
    /// such runs read all, including new ones. Or it is one of several fixed parts, such as 3/10, which needs no cache.
    /// If a run is stopped, the next one with the same PART continues it.
    #[arg(long, value_name = "PART", num_args = 0..=1, default_missing_value = "100%")]
    pub read_data: Option<Part>,

    /// Accept the repository as it is now, even if objects that this client has seen before are missing
    ///
    /// Each client remembers which snapshots, index objects and keys it has seen, and reports those that have vanished
    /// without being removed by anybody who is allowed to. If you have restored the repository itself from an older
    /// copy, that is expected: use this option then.
    #[arg(long)]
    pub accept_history: bool,
}
