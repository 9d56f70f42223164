//! `snapshots`.

use super::select::Select;
use clap::Args;

/// List the snapshots
#[derive(Args, Debug)]
pub struct Snapshots {
    /// Which snapshots.
    #[command(flatten)]
    pub select: Select,

    /// Only the N newest of each host and set of sources
    #[arg(long, value_name = "N")]
    pub latest: Option<usize>,

    /// List forgotten snapshots, which 'undelete' can bring back until the next prune
    #[arg(long)]
    pub forgotten: bool,

    /// Only these: the start of each id, or 'latest'
    #[arg(value_name = "SNAP")]
    pub snapshots: Vec<String>,
}
