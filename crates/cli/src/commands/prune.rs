//! `prune`: remove what no snapshot needs.

use super::{gather, processors};
use crate::args::prune::Prune;
use crate::context::Context;
use crate::exit::{Exit, Result};
use crate::render::progress::Watch;
use crate::render::size::{bytes, count, counted};
use drumlin_engine::prune::{self, Options, Report, Survey, Tally};
use drumlin_format::SnapshotId;
use drumlin_repo::Repository;
use serde::Serialize;

#[derive(Serialize)]
struct JsonTally {
    packs: u64,
    bytes: u64,
}

impl From<Tally> for JsonTally {
    fn from(of: Tally) -> Self {
        JsonTally { packs: of.packs, bytes: of.bytes }
    }
}

#[derive(Serialize)]
struct JsonPlan {
    message_type: &'static str,
    snapshots: usize,
    all: JsonTally,
    needed_bytes: u64,
    unneeded: JsonTally,
    left_over: JsonTally,
    repacked: JsonTally,
    repacked_to_bytes: u64,
    rekeyed: JsonTally,
    rekeyed_snapshots: usize,
    older_after: JsonTally,
    older_needs_owner: JsonTally,
    unused_bytes_after: u64,
    index_objects_merged: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    parity: Option<JsonUpkeep>,
}

/// Bands that are made anew, and what that reads and writes.
#[derive(Serialize)]
struct JsonUpkeep {
    bands: u64,
    bytes_read: u64,
    bytes_written: u64,
}

#[derive(Serialize)]
struct JsonPrune {
    message_type: &'static str,
    removed: JsonTally,
    bytes_written: u64,
    bytes_before: u64,
    bytes_after: u64,
    forgotten_cleared: u64,
    unfinished_removed: u64,
    unfinished_bytes: u64,
    retained: u64,
    lacked_room: bool,
}

/// Run it.
///
/// # Errors
/// Nothing was removed, or not all that should have been.
pub fn run(context: &Context, args: &Prune) -> Result<Exit> {
    if args.dry_run {
        return foresee(context, args, &context.open_to_read()?, &[]);
    }
    run_in(context, args, &context.open_to_remove()?)
}

/// Prune a repository that is open already.
pub fn run_in(context: &Context, args: &Prune, repository: &Repository) -> Result<Exit> {
    let cache = context.cache(repository)?;
    let options = options(context, args);
    let watch = Watch::new(context.out, "prune");
    let out = context.out;
    let pruned = watch.run(|monitor| prune::prune(repository, &cache, &options, monitor));
    // Whatever became of that: locks must not run out because somebody is at work, or something is missing.
    let retention = watch.run(|monitor| repository.retain(&|| monitor.stop()));
    let report = match (pruned, &retention) {
        (Ok(report), _) => report,
        (Err(error), retention) => {
            if let Err(why) = retention {
                out.warn(format!("the object lock could not be extended, either: {why}"));
            }
            return Err(error.into());
        }
    };
    let retained = *retention.as_ref().unwrap_or(&0);
    if out.json() {
        report.survey.iter().for_each(|survey| out.tell(&plan(survey)));
        out.tell(&JsonPrune {
            message_type: "prune",
            removed: report.gone.into(),
            bytes_written: report.written,
            bytes_before: report.before,
            bytes_after: report.after,
            forgotten_cleared: report.cleared,
            unfinished_removed: report.unfinished.objects,
            unfinished_bytes: report.unfinished.bytes,
            retained,
            lacked_room: report.is_pared,
        });
        report.parity.iter().for_each(|parity| out.tell(&super::parity::json(parity, false)));
    } else {
        told(&report).into_iter().for_each(|line| out.note(line));
        if retained > 0 {
            out.note(format!("object lock: extended for {}", counted(retained, "object", "objects")));
        }
    }
    if let Some(why) = &report.unfinished.left {
        out.warn(format!("unfinished files of a killed run are still there and take space: {why}"));
    }
    if report.is_pared {
        context.note_doubt();
        out.caution(
            "there was no room to write packs anew, so that only those were removed of which nothing is needed; run it again once there is room",
        );
    }
    if report.survey.is_some_and(|survey| survey.lost > 0) {
        out.warn(
            "the index named packs that are not there; no snapshot needs them, and they were removed from the index",
        );
    }
    retention?;
    Ok(exit(&watch))
}

/// What was met was told: what is damaged stays, and what older secrets still open.
fn exit(watch: &Watch) -> Exit {
    let counts = watch.counts();
    if counts.damaged + counts.unwritable > 0 { Exit::Incomplete } else { Exit::Done }
}

/// Tell what it would do, if these snapshots had been forgotten.
///
/// # Errors
/// It would fail.
pub fn foresee(context: &Context, args: &Prune, repository: &Repository, forgotten: &[SnapshotId]) -> Result<Exit> {
    let cache = context.cache(repository)?;
    let (options, watch) = (options(context, args), Watch::new(context.out, "prune"));
    let survey = watch.run(|monitor| prune::plan_without(repository, &cache, &options, forgotten, monitor))?;
    match context.out.json() {
        true => context.out.object(&plan(&survey)),
        false => lines(&survey).into_iter().try_for_each(|line| context.out.line(line)),
    }?;
    Ok(exit(&watch))
}

fn options(context: &Context, args: &Prune) -> Options {
    Options {
        host: gather::host(context, None),
        max_unused: args.max_unused,
        max_repack: args.max_repack,
        max_rekey: args.max_rekey,
        allow_remove_all: args.unsafe_allow_remove_all,
        wait: args.wait,
        evict: args.evict.clone(),
        evict_after: args.evict_after,
        workers: args.workers.map_or_else(processors, usize::from),
    }
}

fn plan(survey: &Survey) -> JsonPlan {
    JsonPlan {
        message_type: "prune_plan",
        snapshots: survey.snapshots,
        all: survey.all.into(),
        needed_bytes: survey.needed,
        unneeded: survey.removed.into(),
        left_over: survey.orphans.into(),
        repacked: survey.repacked.into(),
        repacked_to_bytes: survey.moves,
        rekeyed: survey.rekeyed.into(),
        rekeyed_snapshots: survey.resealed,
        older_after: survey.older.into(),
        older_needs_owner: survey.older_closed.into(),
        unused_bytes_after: survey.unused,
        index_objects_merged: survey.indexes,
        parity: (survey.bands > 0).then_some(JsonUpkeep {
            bands: survey.bands,
            bytes_read: survey.parity.read,
            bytes_written: survey.parity.written,
        }),
    }
}

fn tally(of: &Tally) -> String {
    format!("{} in {}", bytes(of.bytes), counted(of.packs, "pack", "packs"))
}

fn lines(survey: &Survey) -> Vec<String> {
    let mut lines = vec![
        format!("in all:       {}", tally(&survey.all)),
        format!(
            "needed:       {}, by {}",
            bytes(survey.needed),
            counted(survey.snapshots as u64, "snapshot", "snapshots")
        ),
        format!("not needed:   {}, to be removed", tally(&survey.removed)),
    ];
    if survey.orphans.packs > 0 {
        lines.push(format!("left over:    {}, of interrupted runs, to be removed", tally(&survey.orphans)));
    }
    if survey.repacked.packs > 0 {
        lines.push(format!("written anew: {}, to {}", tally(&survey.repacked), bytes(survey.moves)));
    }
    if survey.rekeyed.packs > 0 || survey.resealed > 0 {
        let snapshots = counted(survey.resealed as u64, "snapshot", "snapshots");
        lines
            .push(format!("new secrets:  {} of these and {snapshots}, sealed with the newest", tally(&survey.rekeyed)));
    }
    lines.extend(older(survey));
    if survey.indexes > 0 {
        lines.push(format!("index:        {} small objects, to be merged", count(survey.indexes as u64)));
    }
    let freed = (survey.removed.bytes + survey.orphans.bytes + survey.repacked.bytes).saturating_sub(survey.moves);
    lines.push(format!("frees:        {}", bytes(freed)));
    lines.push(format!("stays unused: {}", bytes(survey.unused)));
    if survey.bands > 0 {
        let (read, written) = (bytes(survey.parity.read), bytes(survey.parity.written));
        let bands = counted(survey.bands, "band", "bands");
        lines.push(format!("parity:       {bands} to make: {read} to read, {written} to write"));
    }
    lines
}

/// What older secrets open after this run, too.
fn older(survey: &Survey) -> Option<String> {
    let owners = match survey.older_closed.packs {
        0 => String::new(),
        _ => format!("; {} of that need a prune with an owner's key", tally(&survey.older_closed)),
    };
    (survey.older.packs > 0).then(|| format!("old secrets:  still open {}{owners}", tally(&survey.older)))
}

fn told(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    if report.gone.packs == 0 && report.cleared > 0 {
        lines.push("nothing could be freed".to_owned());
    } else if report.gone.packs == 0 {
        lines.push("there is nothing to prune".to_owned());
    } else {
        lines.push(format!(
            "removed {}, freed {}: packs took {}, and take {}",
            counted(report.gone.packs, "pack", "packs"),
            bytes(report.before.saturating_sub(report.after)),
            bytes(report.before),
            bytes(report.after)
        ));
        if report.written > 0 {
            lines.push(format!("written anew: {}", bytes(report.written)));
        }
    }
    if report.cleared > 0 {
        let snapshots = counted(report.cleared, "forgotten snapshot", "forgotten snapshots");
        lines.push(format!("{snapshots} can no longer be brought back by 'drumlin undelete'"));
    }
    if let Some(survey) = &report.survey {
        if survey.rekeyed.packs > 0 || survey.resealed > 0 {
            let snapshots = counted(survey.resealed as u64, "snapshot", "snapshots");
            lines.push(format!("sealed with the newest secrets: {}, {snapshots}", tally(&survey.rekeyed)));
        }
        lines.extend(older(survey));
    }
    let unfinished = &report.unfinished;
    if unfinished.objects > 0 {
        let objects = counted(unfinished.objects, "unfinished object", "unfinished objects");
        lines.push(format!("removed {objects} of runs that were killed: {}", bytes(unfinished.bytes)));
    }
    if let Some(parity) = &report.parity {
        let packs = format!("{} of {}", counted(parity.covered.packs, "pack", "packs"), bytes(parity.covered.bytes));
        let uncovered = match parity.uncovered.packs {
            0 => String::new(),
            n => format!("; {} not yet: run 'drumlin parity'", count(n)),
        };
        lines.push(format!("parity:       {packs} are covered, by {}{uncovered}", bytes(parity.bytes)));
    }
    lines
}
