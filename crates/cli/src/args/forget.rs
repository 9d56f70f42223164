//! `forget` and `undelete`.

use super::select::{Select, split_tags};
use clap::Args;
use drumlin_engine::forget::{Count, GroupBy, PerUnit, Period, Rules};

/// Forget snapshots: by rules, all but those that one of the rules keeps; or those that are named
///
/// Rules count within groups, and only whole snapshots that are signed by a known key. If none is given, those of the
/// profile keep its own snapshots. What is forgotten takes up its room until a prune, and can be had back until then with
/// 'drumlin undelete'. A reader's or a writer's key can't forget.
#[derive(Args, Debug)]
pub struct Forget {
    /// Forget these, whoever signed them: beginnings of their ids, or 'latest'; one that is damaged by its full id
    #[arg(value_name = "SNAP")]
    pub snapshots: Vec<String>,

    /// Count within groups of the same 'host', 'paths', 'tags'; '' counts all together
    #[arg(short, long, value_name = "LIST", default_value = "host,paths")]
    pub group_by: GroupBy,

    /// Which snapshots.
    #[command(flatten)]
    pub select: Select,

    /// Only tell what would be forgotten, and why the others are kept
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    /// Run 'prune' afterwards, with its defaults, if anything was forgotten; of a dry run, tell what it would do
    #[arg(long)]
    pub prune: bool,

    /// Let the rules remove all snapshots of a group; without a rule, all those that --host, --tag and --path choose
    #[arg(long, conflicts_with = "snapshots")]
    pub unsafe_allow_remove_all: bool,

    /// What to keep.
    #[command(flatten)]
    pub keep: Keep,
}

/// Rules; of several a snapshot is kept if any of them keeps it.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "What to keep")]
#[group(id = "rules", multiple = true, conflicts_with = "snapshots")]
pub struct Keep {
    /// The N newest snapshots ('unlimited': all)
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub keep_last: Option<Count>,

    /// The newest of each of the last N hours that have snapshots
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub keep_hourly: Option<Count>,

    /// The newest of each of the last N days
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub keep_daily: Option<Count>,

    /// The newest of each of the last N weeks
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub keep_weekly: Option<Count>,

    /// The newest of each of the last N months
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub keep_monthly: Option<Count>,

    /// The newest of each of the last N years
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub keep_yearly: Option<Count>,

    /// All that are no older than PERIOD, such as 30d or 1y6m, counted back from the newest
    #[arg(long, value_name = "PERIOD")]
    pub keep_within: Option<Period>,

    /// Of those no older than PERIOD the newest of each hour
    #[arg(long, value_name = "PERIOD")]
    pub keep_within_hourly: Option<Period>,

    /// Of those no older than PERIOD the newest of each day
    #[arg(long, value_name = "PERIOD")]
    pub keep_within_daily: Option<Period>,

    /// Of those no older than PERIOD the newest of each week
    #[arg(long, value_name = "PERIOD")]
    pub keep_within_weekly: Option<Period>,

    /// Of those no older than PERIOD the newest of each month
    #[arg(long, value_name = "PERIOD")]
    pub keep_within_monthly: Option<Period>,

    /// Of those no older than PERIOD the newest of each year
    #[arg(long, value_name = "PERIOD")]
    pub keep_within_yearly: Option<Period>,

    /// All with all these tags (may be repeated: those with any of the lists)
    #[arg(long, value_name = "TAG[,TAG...]")]
    pub keep_tag: Vec<String>,
}

impl Keep {
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
/// Each comes back under a new id, if all that it refers to is still there: a prune removes what only forgotten snapshots
/// need. It takes an owner's key.
#[derive(Args, Debug)]
pub struct Undelete {
    /// Beginnings of their ids, as 'drumlin snapshots --forgotten' lists them, or 'latest'
    #[arg(value_name = "ID", required = true)]
    pub snapshots: Vec<String>,
}
