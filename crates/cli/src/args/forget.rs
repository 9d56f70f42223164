//! `forget` and `undelete`.

use super::prune::unused;
use super::select::{Select, split_tags};
use super::sessions::duration;
use clap::Args;
use drumlin_engine::forget::{Count, GroupBy, PerUnit, Period, Rules};
use drumlin_engine::prune::Unused;
use std::time::Duration;

/// Forget snapshots: all that no rule keeps, or those that are named
///
/// Rules are applied to each group of snapshots separately, and count only complete snapshots signed by a known key.
/// Without rules on the command line, the rules of the profile are applied to the profile's own snapshots. Forgotten
/// snapshots take space until a prune; until then 'drumlin undelete' can bring them back. A reader's or a writer's key
/// can't forget.
#[derive(Args, Debug)]
pub struct Forget {
    /// Snapshots to forget, whoever signed them: the start of each id, or 'latest'; a damaged one needs its full id
    #[arg(value_name = "SNAP")]
    pub snapshots: Vec<String>,

    /// Apply the rules to each group with the same 'host', 'paths' or 'tags' (a list); '' makes one group of all
    #[arg(short, long, value_name = "LIST", default_value = "host,paths")]
    pub group_by: GroupBy,

    /// Which snapshots.
    #[command(flatten)]
    pub select: Select,

    /// Only report what would be forgotten, and why the others are kept
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    /// Then run 'prune' with its defaults; with --dry-run: report what it would do
    #[arg(long)]
    pub prune: bool,

    /// With --prune: how long to wait for running backups ("30m", "2h"; "0": not at all) [default: 1h]
    #[arg(long, value_name = "TIME", requires = "prune", value_parser = duration)]
    pub wait: Option<Duration>,

    /// With --prune: how much unneeded data may remain in packs, as for 'prune' [default: 5%]
    #[arg(long, value_name = "LIMIT", requires = "prune", value_parser = unused)]
    pub max_unused: Option<Unused>,

    /// Allow rules to remove all snapshots of a group; without rules: forget all that --host, --tag and --path select
    #[arg(long, conflicts_with = "snapshots")]
    pub unsafe_allow_remove_all: bool,

    /// What to keep.
    #[command(flatten)]
    pub keep: Keep,
}

/// Rules: a snapshot is kept if any of them keeps it.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "What to keep")]
#[group(id = "rules", multiple = true, conflicts_with = "snapshots")]
pub struct Keep {
    /// Keep the N newest snapshots ('unlimited': all)
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub keep_last: Option<Count>,

    /// Keep the newest of each of the last N hours that have snapshots
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub keep_hourly: Option<Count>,

    /// Keep the newest of each of the last N days that have snapshots
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub keep_daily: Option<Count>,

    /// Keep the newest of each of the last N weeks that have snapshots
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub keep_weekly: Option<Count>,

    /// Keep the newest of each of the last N months that have snapshots
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub keep_monthly: Option<Count>,

    /// Keep the newest of each of the last N years that have snapshots
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub keep_yearly: Option<Count>,

    /// Keep all that are at most PERIOD older than the newest, such as 30d or 1y6m
    #[arg(long, value_name = "PERIOD")]
    pub keep_within: Option<Period>,

    /// Within PERIOD before the newest, keep the newest of each hour
    #[arg(long, value_name = "PERIOD")]
    pub keep_within_hourly: Option<Period>,

    /// Within PERIOD before the newest, keep the newest of each day
    #[arg(long, value_name = "PERIOD")]
    pub keep_within_daily: Option<Period>,

    /// Within PERIOD before the newest, keep the newest of each week
    #[arg(long, value_name = "PERIOD")]
    pub keep_within_weekly: Option<Period>,

    /// Within PERIOD before the newest, keep the newest of each month
    #[arg(long, value_name = "PERIOD")]
    pub keep_within_monthly: Option<Period>,

    /// Within PERIOD before the newest, keep the newest of each year
    #[arg(long, value_name = "PERIOD")]
    pub keep_within_yearly: Option<Period>,

    /// Keep those that have all these tags. Given several times: any one list is enough. '' means untagged
    #[arg(long, value_name = "TAG[,TAG...]")]
    pub keep_tag: Vec<String>,
}

impl Keep {
    /// Whether one was given, be it one that keeps nothing.
    pub fn is_any_given(&self) -> bool {
        let counts =
            [self.keep_last, self.keep_hourly, self.keep_daily, self.keep_weekly, self.keep_monthly, self.keep_yearly];
        counts.iter().any(Option::is_some) || !self.rules().is_empty()
    }

    /// As the engine takes them.
    pub fn rules(&self) -> Rules {
        let count = |given: Option<Count>| given.unwrap_or_default();
        Rules {
            last: count(self.keep_last),
            every: PerUnit {
                hourly: count(self.keep_hourly),
                daily: count(self.keep_daily),
                weekly: count(self.keep_weekly),
                monthly: count(self.keep_monthly),
                yearly: count(self.keep_yearly),
            },
            within: self.keep_within,
            within_every: PerUnit {
                hourly: self.keep_within_hourly,
                daily: self.keep_within_daily,
                weekly: self.keep_within_weekly,
                monthly: self.keep_within_monthly,
                yearly: self.keep_within_yearly,
            },
            tags: tag_sets(&self.keep_tag),
        }
    }
}

/// The set of tags of each list.
pub fn tag_sets(lists: &[String]) -> Vec<Vec<String>> {
    lists.iter().map(|list| split_tags(std::slice::from_ref(list))).collect()
}

/// Bring forgotten snapshots back
///
/// It works until the next prune, which removes data needed only by forgotten snapshots. Each snapshot comes back under
/// a new id, if everything that it refers to is still there. It needs an owner's key.
#[derive(Args, Debug)]
pub struct Undelete {
    /// Snapshots to bring back: the start of each id, as 'drumlin snapshots --forgotten' lists them, or 'latest'
    #[arg(value_name = "ID", required = true)]
    pub snapshots: Vec<String>,
}
