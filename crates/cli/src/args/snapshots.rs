//! `snapshots`.

use super::select::Select;
use clap::Args;

/// List the snapshots
#[derive(Args, Debug)]
pub struct Snapshots {
    /// Which snapshots.
    #[command(flatten)]
    pub select: Select,

    /// Only the last N of each host and set of sources
    #[arg(long, value_name = "N")]
    pub latest: Option<usize>,

    /// Those that were forgotten, and can be had back until a prune
    #[arg(long)]
    pub forgotten: bool,

    /// Only these: beginnings of their ids, or 'latest'
    #[arg(value_name = "SNAP")]
    pub snapshots: Vec<String>,
}
