//! `parity`: parity across packs.

use super::{gather, processors};
use crate::args::parity::{Parity, Wish};
use crate::context::Context;
use crate::exit::{Exit, Result};
use crate::render::progress::Watch;
use crate::render::size::{bytes, counted};
use drumlin_engine::parity::{self, Objects, Options, Report, Tally};
use serde::Serialize;
use std::collections::HashSet;

/// Packs and their bytes, or recovery objects and theirs.
#[derive(Serialize)]
struct JsonTally {
    #[serde(skip_serializing_if = "Option::is_none")]
    packs: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    objects: Option<u64>,
    bytes: u64,
}

impl From<Tally> for JsonTally {
    fn from(of: Tally) -> Self {
        JsonTally { packs: Some(of.packs), objects: None, bytes: of.bytes }
    }
}

impl From<Objects> for JsonTally {
    fn from(of: Objects) -> Self {
        JsonTally { packs: None, objects: Some(of.objects), bytes: of.bytes }
    }
}

/// What became of parity across packs.
#[derive(Serialize)]
pub struct JsonParity {
    message_type: &'static str,
    dry_run: bool,
    shape: String,
    bands: u64,
    parity_bytes: u64,
    covered: JsonTally,
    uncovered: JsonTally,
    packs_lost: u64,
    something_missing: bool,
    bands_made: u64,
    bands_failed: u64,
    bytes_read: u64,
    bytes_written: u64,
    removed: JsonTally,
    #[serde(skip_serializing_if = "Option::is_none")]
    left: Option<String>,
}

/// Run it.
///
/// # Errors
/// It can't be done now, or not by this key.
pub fn run(context: &Context, args: &Parity) -> Result<Exit> {
    let repository = if args.dry_run { context.open_to_read()? } else { context.open_to_remove()? };
    let cache = context.cache(&repository)?;
    let options = Options {
        host: gather::host(context, None),
        shape: match args.wish {
            Some(Wish::Shape(shape)) => Some(shape),
            Some(Wish::Off) | None => None,
        },
        spoiled: HashSet::new(),
        evict: args.evict.clone(),
        evict_after: args.evict_after,
        workers: args.workers.map_or_else(processors, usize::from),
    };
    let watch = Watch::new(context.out, "parity");
    let off = args.wish == Some(Wish::Off);
    let report = watch.run(|monitor| match (off, args.dry_run) {
        (true, dry_run) => parity::off(&repository, &cache, &options, dry_run, monitor),
        (false, true) => parity::plan(&repository, &cache, &options, monitor),
        (false, false) => parity::cover(&repository, &cache, &options, monitor),
    })?;
    let out = context.out;
    match (out.json(), off) {
        (true, _) if args.dry_run => out.object(&json(&report, true))?,
        (true, _) => out.tell(&json(&report, false)),
        (false, true) => out.note(off_line(&report, args.dry_run)),
        (false, false) if args.dry_run => lines(&report, true).into_iter().try_for_each(|line| out.line(line))?,
        (false, false) => lines(&report, false).into_iter().for_each(|line| out.note(line)),
    }
    if report.lost > 0 {
        let packs = counted(report.lost, "pack is not there", "packs are not there");
        out.warn(format!("{packs}, though the index names them: 'drumlin repair' rebuilds what can be rebuilt"));
    }
    if report.missing {
        out.warn(
            "something that snapshots need is in no pack that the index names: what it may be rebuilt from is kept, and \
             'drumlin repair' comes first",
        );
    }
    Ok(if report.failed > 0 || report.lost > 0 || report.missing { Exit::Incomplete } else { Exit::Done })
}

/// As an object.
pub fn json(report: &Report, dry_run: bool) -> JsonParity {
    JsonParity {
        message_type: "parity",
        dry_run,
        shape: report.shape.to_string(),
        bands: report.bands,
        parity_bytes: report.bytes,
        covered: report.covered.into(),
        uncovered: report.uncovered.into(),
        packs_lost: report.lost,
        something_missing: report.missing,
        bands_made: report.made,
        bands_failed: report.failed,
        bytes_read: report.cost.read,
        bytes_written: report.cost.written,
        removed: report.removed.into(),
        left: report.left.clone(),
    }
}

fn off_line(report: &Report, dry_run: bool) -> String {
    let Objects { objects, bytes: of } = report.removed;
    match (objects, dry_run) {
        (0, _) => "there is no parity across packs".into(),
        (_, true) => format!("would remove {} of {}", recovery(objects), bytes(of)),
        (_, false) => format!("removed {} of {}", recovery(objects), bytes(of)),
    }
}

fn recovery(objects: u64) -> String {
    counted(objects, "recovery object", "recovery objects")
}

/// In words.
pub fn lines(report: &Report, dry_run: bool) -> Vec<String> {
    let packs = |tally: Tally| format!("{} of {}", counted(tally.packs, "pack", "packs"), bytes(tally.bytes));
    let bands = |n| counted(n, "band", "bands");
    let mut lines = Vec::new();
    let mut covered = format!("covered:   {}", packs(report.covered));
    if report.bands > 0 {
        let shape = report.shape;
        covered.push_str(&format!(", by {} of {} ({shape})", bytes(report.bytes), bands(report.bands)));
    }
    lines.push(covered);
    if report.uncovered.packs > 0 {
        lines.push(format!("uncovered: {}", packs(report.uncovered)));
    }
    if report.made > 0 {
        let made = if dry_run { "to make:  " } else { "made:     " };
        let (read, written) = (bytes(report.cost.read), bytes(report.cost.written));
        lines.push(format!("{made} {}: {read} read, {written} written", bands(report.made)));
    }
    if report.failed > 0 {
        lines.push(format!("failed:    {}, for the reasons above", bands(report.failed)));
    }
    if report.removed.objects > 0 {
        let removed = if dry_run { "to remove:" } else { "removed:  " };
        let Objects { objects, bytes: of } = report.removed;
        lines.push(format!("{removed} {} of {}, which others replace", recovery(objects), bytes(of)));
    }
    if let Some(who) = &report.left {
        lines.push(format!("left:      unneeded recovery objects were kept because {who}; the next run removes them"));
    }
    if report.covered.packs + report.uncovered.packs == 0 {
        lines.push("there is nothing to cover yet: run it again after a backup".into());
    }
    lines
}
