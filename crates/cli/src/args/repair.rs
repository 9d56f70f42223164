//! `repair`.

use super::sessions::{duration, session};
use clap::Args;
use drumlin_format::SessionId;
use std::time::Duration;

/// Repair a damaged repository, as far as possible
///
/// It rebuilds the index where that is damaged, copies what is readable in damaged packs to new ones, and records what
/// is lost: the next backup that finds the same data stores it again. Damaged packs are kept until nothing is missing
/// any more. Without --read-data, it finds only damage that shows in names, lengths and tables.
#[derive(Args, Debug)]
pub struct Repair {
    /// Read all packs, and repair those that are damaged
    #[arg(long)]
    pub read_data: bool,

    /// How long to wait for running backups ("30m", "2h"; "0": not at all)
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = duration)]
    pub wait: Duration,

    /// Treat this session as dead: nothing of its backup counts then
    #[arg(long, value_name = "SESSION", value_parser = session)]
    pub evict: Vec<SessionId>,

    /// Threads [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: Option<u16>,
}
