//! `repair`.

use super::sessions::{duration, session};
use clap::Args;
use drumlin_format::SessionId;
use std::time::Duration;

/// Make a damaged repository sound, as far as can be
///
/// Makes the index anew where it is damaged, reads what can be read of damaged packs into new ones, and lists what is lost, so
/// that the next backup that meets the same bytes stores them again. Damaged packs stay where they are until nothing
/// is missing any more. Without --read-data only what can be told from names, lengths and tables is looked for.
#[derive(Args, Debug)]
pub struct Repair {
    /// Read all packs, and repair what is found damaged
    #[arg(long)]
    pub read_data: bool,

    /// How long to wait for backups that are under way ("30m", "2h"; "0" for not at all)
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = duration)]
    pub wait: Duration,

    /// Take this session for dead; nothing of its backup counts then
    #[arg(long, value_name = "SESSION", value_parser = session)]
    pub evict: Vec<SessionId>,

    /// Threads [default: one a processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: Option<u16>,
}
