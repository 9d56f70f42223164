//! `undelete`: forgotten snapshots brought back.

use super::processors;
use super::snapshots::{SHORT, in_words};
use crate::args::forget::Undelete;
use crate::context::Context;
use crate::exit::{Exit, Failure, Result};
use crate::process::host_name;
use crate::render::progress::Watch;
use crate::render::time::now;
use drumlin_engine::Error;
use drumlin_engine::select::{SnapshotFilter, find_snapshot};
use drumlin_engine::undelete::{Options, Report, undelete};
use drumlin_format::snapshot::Snapshot;
use drumlin_repo::SnapshotInfo;
use serde::Serialize;

#[derive(Serialize)]
struct JsonUndeleted {
    message_type: &'static str,
    id: String,
    forgotten_id: String,
}

/// Run it. One that can't be had back keeps none of the others from it.
///
/// # Errors
/// One of them isn't among the forgotten ones, and nothing was done; or one of them didn't come back.
pub fn run(context: &Context, args: &Undelete) -> Result<Exit> {
    let repository = context.open()?;
    repository.may_undelete()?;
    let cache = context.cache(&repository)?;
    let (forgotten, _) = repository.forgotten()?;
    let mut chosen: Vec<SnapshotInfo> = Vec::new();
    for spec in &args.snapshots {
        let info = find(&forgotten, spec)?;
        if chosen.iter().all(|known| known.snapshot.id != info.snapshot.id) {
            chosen.push(info);
        }
    }
    let watch = Watch::new(context.out, "undelete");
    let mut failed: Option<Failure> = None;
    for info in chosen {
        let old = info.snapshot.clone();
        let options = Options { forgotten: info, host: host_name(), workers: processors(), now: now().0 };
        match watch.run(|monitor| undelete(&repository, &cache, &options, monitor)) {
            Ok(report) => told(context, &old, &report),
            Err(e @ (Error::Pruned { .. } | Error::Refused(_))) => {
                if let Some(before) = failed.replace(e.into()) {
                    context.out.trouble_with("undelete", &before.message);
                }
            }
            Err(e) => return Err(e.into()),
        }
    }
    failed.map_or(Ok(Exit::Done), Err)
}

fn find(forgotten: &[SnapshotInfo], spec: &str) -> Result<SnapshotInfo> {
    if spec.contains(':') {
        return Err(Failure::usage(format!("'{spec}' names a folder; snapshots come back as a whole")));
    }
    let found = find_snapshot(forgotten, spec, &SnapshotFilter::default(), now().0).map_err(|e| match e {
        Error::NoSnapshot(message) => Failure::failed(format!("among the forgotten ones {message}")).hint(
            "'drumlin snapshots --forgotten' lists them; what is not listed was not forgotten, is damaged, or has been pruned",
        ),
        other => other.into(),
    })?;
    Ok(found.snapshot)
}

fn told(context: &Context, old: &Snapshot, report: &Report) {
    let new = &report.snapshot;
    if context.out.json() {
        context.out.tell(&JsonUndeleted {
            message_type: "undeleted",
            id: new.id.to_string(),
            forgotten_id: old.id.to_string(),
        });
    }
    context.out.note(format!("{} is back as {}", in_words(old), &new.id.to_string()[..SHORT]));
    if let Some(error) = &report.leftover {
        context.out.warn(format!("it is also still listed as forgotten, which does no harm: {error}"));
    }
}
