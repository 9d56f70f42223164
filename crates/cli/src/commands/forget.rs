//! `forget`: from rules or names to a plan, shown and carried out.

use super::gather;
use super::snapshots::{HEADS, SHORT, cells};
use crate::args::forget::Forget;
use crate::args::prune::Prune;
use crate::args::select::Select;
use crate::context::Context;
use crate::exit::{Exit, Failure, Result};
use crate::profile::Profile;
use crate::render::path::{JsonPaths, shown};
use crate::render::size::{bytes, counted};
use crate::render::table::Table;
use crate::render::time::{now, rfc3339, zone};
use drumlin_engine::Error;
use drumlin_engine::forget::{Fate, Going, Group, GroupKey, Left, Options, Plan, Rules};
use drumlin_engine::select::SnapshotFilter;
use drumlin_format::SnapshotId;
use drumlin_repo::{Repository, SnapshotInfo};
use serde::Serialize;
use std::collections::HashMap;

/// Run it.
///
/// # Errors
/// Nothing was forgotten; or the storage failed in between, and the same command goes on.
pub fn run(context: &Context, args: &Forget) -> Result<Exit> {
    let (rules, filter) = what(context, args)?;
    let repository = match args.dry_run {
        true => context.open_to_read()?,
        false => context.open_to_remove()?,
    };
    if !args.dry_run {
        repository.may_forget()?;
    }
    let (all, damaged) = repository.snapshots()?;
    let (plan, unread) = match rules {
        None => (Plan::by_names(&all, &damaged, &args.snapshots, &filter, now().0)?, Vec::new()),
        Some(rules) => {
            let options = Options {
                rules,
                group_by: args.group_by,
                now: now(),
                zone: zone(),
                allow_remove_all: args.unsafe_allow_remove_all,
            };
            (Plan::by_rules(&filter.select(&all), &options), damaged)
        }
    };
    // Those from before a source was added to the profile, say.
    let others = all.iter().filter(|info| filter.exactly && filter.nearly_matches(&info.snapshot)).count();
    if others > 0 {
        let snapshots = counted(others as u64, "snapshot has", "snapshots have");
        context.out.note(format!(
            "{snapshots} some of the profile's sources, but not exactly these: the profile's rules say nothing of them (rules on the command line, with --path, do)"
        ));
    }
    let shown = Shown { context, plan: &plan, infos: all.iter().map(|i| (i.snapshot.id, i)).collect() };
    if args.dry_run {
        shown.all(true)?;
        plan.check().map_err(refused)?;
    } else {
        carry_out(&plan, &repository)?;
        shown.all(false)?;
    }
    for error in &unread {
        context.out.trouble_with("forget", &error.to_string());
    }
    let exit = if unread.is_empty() { Exit::Done } else { Exit::Incomplete };
    let usual = Prune::default();
    let how = Prune {
        unsafe_allow_remove_all: args.unsafe_allow_remove_all,
        wait: args.wait.unwrap_or(usual.wait),
        max_unused: args.max_unused.unwrap_or(usual.max_unused),
        ..usual
    };
    let pruned = match args.prune {
        false => Exit::Done,
        true if args.dry_run => {
            context.out.note("\nand a prune after it:");
            super::prune::foresee(context, &how, &repository, &plan.going())?
        }
        true => super::prune::run_in(context, &how, &repository)?,
    };
    Ok(if exit == Exit::Done { pruned } else { exit })
}

fn carry_out(plan: &Plan, repository: &Repository) -> Result<()> {
    if plan.going().is_empty() {
        return plan.check().map_err(refused);
    }
    plan.carry_out(repository).map_err(refused)
}

fn refused(error: Error) -> Failure {
    let is_refusal = matches!(error, Error::Refused(_));
    let failure = Failure::from(error);
    if is_refusal { failure.hint("if that is what you want, add --unsafe-allow-remove-all") } else { failure }
}

/// The rules, as the arguments or the profile have them, and the snapshots that they are for; no rules if snapshots are
/// named. Told before anything is unlocked or read.
fn what(context: &Context, args: &Forget) -> Result<(Option<Rules>, SnapshotFilter)> {
    if let Some(spec) = args.snapshots.iter().find(|spec| spec.contains(':')) {
        return Err(Failure::usage(format!("'{spec}' names a folder; snapshots are forgotten as a whole")));
    }
    let filter = args.select.filter()?;
    if !args.snapshots.is_empty() {
        return Ok((None, gather::filter(context, &args.select)?));
    }
    let rules = args.keep.rules();
    if let Some(profile) = &context.profile {
        let of_profile = profile.keep().map_err(Failure::failed)?;
        if let Some(rules) = Some(rules.clone()).filter(|rules| !rules.is_empty()).or(of_profile) {
            return Ok((Some(rules), own(context, profile, &args.select)?));
        }
    }
    if !rules.is_empty() {
        return Ok((Some(rules), filter));
    }
    if args.unsafe_allow_remove_all && filter != SnapshotFilter::default() {
        // What is asked for takes the place of its own part of the profile's alone.
        return Ok((
            Some(rules),
            match &context.profile {
                Some(profile) => own(context, profile, &args.select)?,
                None => filter,
            },
        ));
    }
    if args.keep.is_any_given() {
        return Err(Failure::usage("the rules that are given keep nothing")
            .hint("give another one that keeps some; to forget all, name the snapshots, or select them (--host, --path, --tag) with --unsafe-allow-remove-all"));
    }
    Err(Failure::usage("neither rules nor snapshots are given").hint(
        "give rules such as --keep-daily 7 --keep-monthly 12, or name snapshots; --dry-run shows what would happen",
    ))
}

/// A profile's own snapshots, unless others are asked for.
///
/// # Errors
/// It has neither sources nor tags: all that this host has ever saved would be meant.
fn own(context: &Context, profile: &Profile, select: &Select) -> Result<SnapshotFilter> {
    let filter = gather::of_profile(context, profile, select)?;
    if filter.paths.is_empty() && filter.tags.is_empty() {
        let message = "the profile has neither sources nor tags that tell its snapshots from others of this host";
        return Err(Failure::usage(message).hint("say which ones you mean with --path or --tag"));
    }
    Ok(filter)
}

/// What becomes of a snapshot, in JSON.
#[derive(Serialize)]
struct JsonFate<'a> {
    message_type: &'static str,
    id: String,
    short_id: String,
    #[serde(flatten)]
    snapshot: Option<JsonSnapshot<'a>>,
    action: &'static str,
    reasons: Vec<String>,
}

#[derive(Serialize)]
struct JsonSnapshot<'a> {
    time: String,
    host: &'a str,
    #[serde(flatten)]
    paths: JsonPaths<'a>,
    tags: &'a [String],
}

#[derive(Serialize)]
struct JsonSummary {
    message_type: &'static str,
    dry_run: bool,
    kept: usize,
    forgotten: usize,
    left_alone: usize,
    data_added_packed: u64,
}

/// What became of how many.
#[derive(Clone, Copy, Default)]
struct Tally {
    kept: usize,
    gone: usize,
    left: usize,
    future: usize,
    behind: usize,
}

impl Tally {
    fn of<'f>(fates: impl IntoIterator<Item = &'f (SnapshotId, Fate)>) -> Self {
        let mut tally = Tally::default();
        for (_, fate) in fates {
            match fate {
                Fate::Keep(_) => tally.kept += 1,
                Fate::Go(_) => tally.gone += 1,
                Fate::LeaveAlone(left) => {
                    tally.left += 1;
                    tally.future += usize::from(*left == Left::Future);
                    tally.behind += usize::from(*left == Left::Behind);
                }
            }
        }
        tally
    }

    /// In words; `would` it be so, or is it.
    fn words(self, would: bool) -> String {
        let [forget, keep, leave] = if would { ["would forget", "keep", "leave"] } else { ["forgot", "kept", "left"] };
        let mut words = format!("{forget} {}", counted(self.gone as u64, "snapshot", "snapshots"));
        if self.kept > 0 {
            words += &format!(", {keep} {}", self.kept);
        }
        if self.left > 0 {
            words += &format!(", {leave} {} alone", self.left);
        }
        words
    }
}

struct Shown<'a> {
    context: &'a Context<'a>,
    plan: &'a Plan,
    infos: HashMap<SnapshotId, &'a SnapshotInfo>,
}

impl Shown<'_> {
    /// A dry run has been asked for what is shown; otherwise it has been done, whether anybody reads it or not.
    fn all(&self, dry_run: bool) -> Result<()> {
        let out = self.context.out;
        let tally = Tally::of(self.plan.groups.iter().flat_map(|group| &group.fates));
        let stored = self.stored();
        if tally.future > 0 {
            let them = counted(tally.future as u64, "snapshot is", "snapshots are");
            out.caution(format!(
                "{them} from the future: either made with a wrong clock, or by somebody who wants other snapshots to be removed. Forget by \
                 their ids those that are wrong"
            ));
        }
        if tally.behind > 0 {
            let them = counted(tally.behind as u64, "snapshot was", "snapshots were");
            out.caution(format!(
                "{them} made by a clock that was behind, or after one from the future: the rules can't tell when, and leave the last seven alone"
            ));
        }
        if out.json() {
            for (id, fate) in self.plan.groups.iter().flat_map(|group| &group.fates) {
                out.tell(&self.json(*id, fate));
            }
            out.tell(&JsonSummary {
                message_type: "forget_summary",
                dry_run,
                kept: tally.kept,
                forgotten: tally.gone,
                left_alone: tally.left,
                data_added_packed: stored,
            });
            return Ok(());
        }
        for (at, group) in self.plan.groups.iter().enumerate() {
            if at > 0 {
                out.note("");
            }
            if group.key != GroupKey::default() {
                out.note(format!("{}:", group.key));
            }
            for line in self.table(group).lines() {
                if dry_run { out.line(line)? } else { out.note(line) }
            }
            if group.signers > 1 {
                out.note(format!(
                    "these are of {} keys, and the rules count those of each key by themselves",
                    group.signers
                ));
            }
        }
        if self.plan.groups.iter().all(|group| group.fates.is_empty()) {
            out.note("no snapshots");
            return Ok(());
        }
        out.note(tally.words(dry_run));
        if dry_run {
            out.note("a dry run: nothing was changed");
        } else if tally.gone > 0 {
            out.note(format!(
                "{} had stored {}: 'drumlin prune' frees the part that no other snapshot needs; until then 'drumlin \
                 undelete ID' brings back a snapshot that can be read",
                if tally.gone == 1 { "its backup" } else { "their backups" },
                bytes(stored)
            ));
        }
        Ok(())
    }

    /// What the backups of those that go had added to the repository.
    fn stored(&self) -> u64 {
        let going = self.plan.going();
        let stored = going.iter().filter_map(|id| Some(self.infos.get(id)?.snapshot.summary.bytes_stored));
        stored.fold(0, u64::saturating_add)
    }

    fn table(&self, group: &Group) -> Table {
        let [before @ .., last] = HEADS;
        let mut table = Table::new(&[&before[..], &["Reason", last]].concat());
        for (id, fate) in &group.fates {
            let mut row = match self.infos.get(id) {
                Some(info) => cells(info).to_vec(),
                // Damaged: its id is all there is.
                None => [&[id.to_string()[..SHORT].to_owned()][..], &vec![String::new(); HEADS.len() - 1]].concat(),
            };
            row.insert(HEADS.len() - 1, shown(reason(fate).as_bytes()).into_owned());
            table.row(row);
        }
        table
    }

    fn json(&self, id: SnapshotId, fate: &Fate) -> JsonFate<'_> {
        let (action, reasons) = match fate {
            Fate::Keep(reasons) => ("keep", reasons.iter().map(ToString::to_string).collect()),
            Fate::Go(why) => ("forget", vec![why.to_string()]),
            Fate::LeaveAlone(why) => ("leave_alone", vec![why.to_string()]),
        };
        let snapshot = self.infos.get(&id).map(|info| JsonSnapshot {
            time: rfc3339(info.snapshot.time),
            host: &info.snapshot.host,
            paths: info.snapshot.paths[..].into(),
            tags: &info.snapshot.tags,
        });
        let id = id.to_string();
        JsonFate { message_type: "forget", short_id: id[..SHORT].to_owned(), id, snapshot, action, reasons }
    }
}

/// Why it is kept, or that it goes.
fn reason(fate: &Fate) -> String {
    match fate {
        Fate::Keep(reasons) => reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        Fate::Go(Going::NoRule) => "-".into(),
        Fate::Go(why) => format!("- ({why})"),
        Fate::LeaveAlone(why) => why.to_string(),
    }
}
