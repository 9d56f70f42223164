//! `prune`.

use super::sessions::{duration, session};
use crate::render::size;
use clap::Args;
use drumlin_engine::prune::Unused;
use drumlin_format::SessionId;
use std::time::Duration;

/// Remove data that no snapshot needs
///
/// A prune may run at the same time as backups, restores and other prunes. It waits for backups that started before it;
/// those that start later don't delay it. Packs without needed data are removed. Packs with some are rewritten, as far
/// as the limits below allow. After a prune, forgotten snapshots can't be brought back.
#[derive(Args, Debug)]
pub struct Prune {
    /// Only report what would be done
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    /// How much unneeded data may remain in packs: a share of the needed data ("5%"), a size ("2 GiB"), or "unlimited"
    #[arg(long, value_name = "LIMIT", default_value = "5%", value_parser = unused)]
    pub max_unused: Unused,

    /// Rewrite at most SIZE in this run
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub max_repack: Option<u64>,

    /// After 'drumlin key rekey': re-encrypt at most this much per run: a share of all packs ("5%"; a share is never
    /// less than 1 GiB), a size, or "unlimited"; "0" for nothing
    #[arg(long, value_name = "LIMIT", default_value = "5%", value_parser = unused)]
    pub max_rekey: Unused,

    /// Allow removing all packs if the storage lists no snapshot at all
    #[arg(long)]
    pub unsafe_allow_remove_all: bool,

    /// How long to wait for running backups ("30m", "2h"; "0": not at all)
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = duration)]
    pub wait: Duration,

    /// Treat this session as dead: nothing of its backup counts then
    #[arg(long, value_name = "SESSION", value_parser = session)]
    pub evict: Vec<SessionId>,

    /// Treat a backup as dead after this long without new data, measured between prunes
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = duration)]
    pub evict_after: Duration,

    /// Threads [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: Option<u16>,
}

impl Default for Prune {
    fn default() -> Self {
        Prune {
            dry_run: false,
            max_unused: Unused::Percent(5.0),
            max_repack: None,
            max_rekey: Unused::Percent(5.0),
            unsafe_allow_remove_all: false,
            wait: Duration::from_secs(3600),
            evict: Vec::new(),
            evict_after: Duration::from_secs(7 * 24 * 3600),
            workers: None,
        }
    }
}

/// Reads how much that nothing needs may remain.
///
/// # Errors
/// What is wrong with it, for the user.
pub fn unused(text: &str) -> Result<Unused, String> {
    if text == "unlimited" {
        return Ok(Unused::Unlimited);
    }
    match text.strip_suffix('%') {
        Some(share) => match share.trim().parse::<f64>() {
            Ok(share) if share.is_finite() && share >= 0.0 => Ok(Unused::Percent(share)),
            _ => Err("a share is a number of percent, such as 5%".into()),
        },
        None => size::parse(text)
            .map(Unused::Bytes)
            .map_err(|why| format!("{why}, nor a share such as 5%, nor 'unlimited'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_command_line() {
        #[derive(clap::Parser, Debug)]
        struct Line {
            #[command(flatten)]
            prune: Prune,
        }
        let line = <Line as clap::Parser>::parse_from(["prune"]);
        assert_eq!(format!("{:?}", line.prune), format!("{:?}", Prune::default()));
    }

    #[test]
    fn limits_are_read() {
        assert_eq!(unused("unlimited"), Ok(Unused::Unlimited));
        assert_eq!(unused("2.5%"), Ok(Unused::Percent(2.5)));
        assert_eq!(unused("0"), Ok(Unused::Bytes(0)));
        assert_eq!(unused("3 MiB"), Ok(Unused::Bytes(3 << 20)));
        for wrong in ["-1%", "x%", "nan%", "%", "much"] {
            assert!(unused(wrong).is_err(), "{wrong}");
        }
    }
}
