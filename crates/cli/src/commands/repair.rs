//! `repair`: make a damaged repository sound, as far as can be.

use super::{gather, processors};
use crate::args::repair::Repair;
use crate::context::Context;
use crate::exit::{Exit, Failure, Result};
use crate::render::path::shown;
use crate::render::progress::Watch;
use crate::render::size::{bytes, count, counted};
use drumlin_engine::check::{self, ObjectKind, Part, check};
use drumlin_engine::repair::{Options, Report, repair};
use drumlin_format::{PackId, RecoveryId};
use drumlin_repo::names;
use serde::Serialize;
use std::collections::HashSet;
use std::time::Duration;

/// Sessions are taken for dead after so long without a sign of life, as a prune does by default.
const EVICT_AFTER: Duration = Duration::from_secs(7 * 24 * 3600);

#[derive(Serialize)]
struct JsonUnreadable {
    id: String,
    error: String,
}

#[derive(Serialize)]
struct JsonRepair {
    message_type: &'static str,
    packs_named_again: u64,
    index_objects_replaced: u64,
    packs_gone: Vec<String>,
    packs_damaged: Vec<String>,
    packs_closed: Vec<String>,
    packs_mended: Vec<String>,
    packs_made_again: Vec<String>,
    bytes_salvaged: u64,
    chunks_lost: u64,
    copies_mended: u64,
    unreadable_cleared: u64,
    sessions_ended: Vec<String>,
    objects_lost: Vec<String>,
    snapshots_broken: u64,
    snapshots_unreadable: Vec<JsonUnreadable>,
}

/// Run it.
///
/// # Errors
/// It can't be repaired now.
pub fn run(context: &Context, args: &Repair) -> Result<Exit> {
    let repository = context.open_to_remove()?;
    let cache = context.cache(&repository)?;
    let workers = args.workers.map_or_else(processors, usize::from);
    let watch = Watch::new(context.out, "repair");
    let mend = |damaged, spoiled| {
        let options = Options {
            host: gather::host(context, None),
            damaged,
            spoiled,
            wait: args.wait,
            evict: args.evict.clone(),
            evict_after: EVICT_AFTER,
            workers,
        };
        watch.run(|monitor| repair(&repository, &cache, &options, monitor))
    };
    let look = |read| {
        let report = watch.run(|monitor| check(&repository, &cache, check::Options { read, workers }, monitor))?;
        if report.stopped {
            return Err(Failure::new(Exit::Interrupted, "interrupted; what was not repaired yet is unchanged"));
        }
        Ok(report.findings)
    };
    let mut report = Report::default();
    let (mut damaged, mut spoiled) = (HashSet::new(), HashSet::new());
    if args.read_data {
        if repository.secrets().data.is_none() {
            context.out.warn("this key can't read the contents of files: only the tables of data packs are checked");
        }
        // What no index object names isn't read: so the index is whole first.
        if look(None)?.iter().any(|finding| finding.kind == ObjectKind::Index) {
            report = mend(HashSet::new(), HashSet::new())?;
        }
        let findings = look(Some(Part::All)).inspect_err(|_| done_so_far(context, &report))?;
        let is_pack = |kind| matches!(kind, ObjectKind::DataPack | ObjectKind::TreePack);
        let recovery = findings.iter().filter(|finding| finding.kind == ObjectKind::Recovery);
        spoiled.extend(recovery.filter_map(|f| RecoveryId::parse(names::last(&f.object))).map(|id| id.band()));
        // What was wrong from the beginning would be as wrong in a new pack.
        let packs = findings.iter().filter(|finding| is_pack(finding.kind) && !finding.made_so);
        damaged.extend(packs.filter_map(|finding| PackId::parse(names::last(&finding.object))));
    }
    report.go_on(mend(damaged, spoiled).inspect_err(|_| done_so_far(context, &report))?);
    tell(context, &report);
    for id in args.evict.iter().filter(|id| !report.evicted.contains(id)) {
        context.out.warn(format!("there is no session {id} to end"));
    }
    for (id, why) in &report.unreadable {
        context.out.warn(format!("snapshot {id} can no longer be read completely: {}", shown(why.as_bytes())));
    }
    if !report.unreadable.is_empty() {
        // Each piece of damage is met but once, from whichever snapshot leads to it first.
        context.out.warn(
            "other snapshots may share the damaged data: 'drumlin check' names all snapshots and files that are affected",
        );
    }
    for name in &report.lost_objects {
        context.out.warn(format!("'{name}' and its copy are damaged, and can't be rebuilt: {}", what_then(name)));
    }
    let lost = report.lost_chunks + report.broken_snapshots > 0
        || !report.unreadable.is_empty()
        || !report.lost_objects.is_empty()
        || !report.closed.is_empty();
    Ok(if lost { Exit::Incomplete } else { Exit::Done })
}

/// What to do about an object that is lost with its copy.
fn what_then(name: &str) -> String {
    match names::key_id(name) {
        Some(id) => format!(
            "whoever opens the repository with that key needs a new one ('drumlin key add'); 'drumlin key remove {id}' removes what is left \
             of it"
        ),
        None => {
            "what is encrypted with these secrets can be read again only if a copy of the repository still has this object".into()
        }
    }
}

/// It ends in its second half: what the first has done is worth knowing.
fn done_so_far(context: &Context, report: &Report) {
    if !report.is_sound() {
        tell(context, report);
    }
}

fn tell(context: &Context, report: &Report) {
    if context.out.json() {
        context.out.tell(&json(report));
        report.parity.iter().for_each(|parity| context.out.tell(&super::parity::json(parity, false)));
    } else {
        lines(report).into_iter().for_each(|line| context.out.note(line));
        let parity = report.parity.iter().flat_map(|parity| super::parity::lines(parity, false));
        parity.for_each(|line| context.out.note(format!("  {line}")));
    }
}

fn json(report: &Report) -> JsonRepair {
    JsonRepair {
        message_type: "repair",
        packs_named_again: report.named,
        index_objects_replaced: report.indexes,
        packs_gone: report.gone.iter().map(ToString::to_string).collect(),
        packs_damaged: report.damaged.iter().map(ToString::to_string).collect(),
        packs_closed: report.closed.iter().map(ToString::to_string).collect(),
        packs_mended: report.mended.iter().map(ToString::to_string).collect(),
        packs_made_again: report.made_again.iter().map(ToString::to_string).collect(),
        bytes_salvaged: report.salvaged,
        chunks_lost: report.lost_chunks,
        copies_mended: report.copies,
        unreadable_cleared: report.cleared,
        sessions_ended: report.evicted.iter().map(ToString::to_string).collect(),
        objects_lost: report.lost_objects.clone(),
        snapshots_broken: report.broken_snapshots,
        snapshots_unreadable: report
            .unreadable
            .iter()
            .map(|(id, error)| JsonUnreadable { id: id.to_string(), error: error.clone() })
            .collect(),
    }
}

fn lines(report: &Report) -> Vec<String> {
    if report.is_sound() {
        return vec!["there is nothing to repair".into()];
    }
    let mut lines = Vec::new();
    if report.copies > 0 {
        let objects = counted(report.copies, "object", "objects");
        lines.push(format!("restored: {objects} of the config, the keys or the secrets, from the other copy"));
    }
    if !report.evicted.is_empty() {
        lines.push(format!("ended: {}", counted(report.evicted.len() as u64, "session", "sessions")));
    }
    if report.cleared > 0 {
        let objects = counted(report.cleared, "small object", "small objects");
        lines.push(format!(
            "removed: {objects} (plans, losses, history) that were unreadable; losses are determined anew"
        ));
    }
    if report.named > 0 {
        lines.push(format!("{} in the index again", counted(report.named, "pack is", "packs are")));
    }
    if report.indexes > 0 {
        lines.push(format!("rewritten: {} of the index", counted(report.indexes, "object", "objects")));
    }
    if !report.mended.is_empty() {
        let packs = counted(report.mended.len() as u64, "damaged pack was", "damaged packs were");
        lines.push(format!("{packs} rewritten, with everything that snapshots need; a prune removes the old"));
    }
    if !report.made_again.is_empty() {
        let packs = counted(report.made_again.len() as u64, "pack that is gone was", "packs that are gone were");
        lines.push(format!("{packs} rebuilt from parity across packs, with everything that snapshots need"));
    }
    let packs = (report.gone.len() + report.damaged.len()) as u64;
    if packs > 0 {
        let [gone, damaged] = [&report.gone, &report.damaged].map(|packs| count(packs.len() as u64));
        lines.push(format!(
            "{} removed from the index: {gone} gone, {damaged} damaged",
            counted(packs, "pack is", "packs are")
        ));
    }
    if !report.closed.is_empty() {
        let packs = counted(report.closed.len() as u64, "damaged pack stays", "damaged packs stay");
        lines.push(format!("{packs} in the index, as only an owner's repair can tell what of it is whole: run one"));
    }
    if report.salvaged > 0 {
        lines.push(format!("salvaged from them: {}", bytes(report.salvaged)));
    }
    match report.lost_chunks {
        0 if report.unreadable.is_empty() && report.broken_snapshots == 0 && report.closed.is_empty() => {
            lines.push("nothing that a snapshot needs is lost".into())
        }
        0 => {}
        lost => lines.push(format!(
            "lost: {}. Run the backups again: each reads everything once, and stores lost data that it finds",
            counted(lost, "chunk of files' contents", "chunks of files' contents")
        )),
    }
    lines
}
