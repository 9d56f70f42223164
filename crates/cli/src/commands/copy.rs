//! `copy`: snapshots into another repository.

use super::backup::memory;
use super::snapshots::{SHORT, in_words};
use super::{add_once, gather, processors, whole};
use crate::args::copy::{Copy, To};
use crate::context::Context;
use crate::exit::{Exit, Failure, Result};
use crate::lock;
use crate::render::progress::Watch;
use crate::render::size::{bytes, counted};
use crate::render::time::now;
use crate::unlock::{self, Asked};
use drumlin_engine::Error;
use drumlin_engine::copy::{Copier, End, Options, Report};
use drumlin_engine::monitor::Monitor;
use drumlin_engine::select::SnapshotFilter;
use drumlin_format::snapshot::Snapshot;
use drumlin_repo::history::Memory;
use drumlin_repo::{IndexMode, Repository, SnapshotInfo, Trust, names};
use drumlin_store::{Location, Surroundings};
use serde::Serialize;
use std::sync::Arc;

#[derive(Serialize)]
struct JsonCopied {
    message_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    source_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    beside_id: Option<String>,
    entries: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct JsonSummary {
    message_type: &'static str,
    dry_run: bool,
    copied: usize,
    already_there: usize,
    left_out: usize,
    entries_taken_over: u64,
    entries_damaged: u64,
    bytes_read: u64,
    data_added: u64,
    data_added_packed: u64,
}

/// What became of how many.
#[derive(Default)]
struct Tally {
    copied: usize,
    there: usize,
    /// Not copied, and told why.
    left_out: usize,
}

/// Run it.
///
/// # Errors
/// Not all was copied; what was counts.
pub fn run(context: &Context, args: &Copy) -> Result<Exit> {
    let (to, filter) = (Location::parse(&args.to.to)?, args.select.filter()?);
    let source = context.open_to_read()?;
    // Told before anything is asked about the other one.
    source.may_read()?;
    let target = open_target(context, args, &to, &source)?;
    let _lock = match context.caches().filter(|_| !args.dry_run) {
        Some(caches) => lock::copies(&caches, &source.config().id, &target.config().id)?,
        None => None,
    };
    let (all, damaged) = source.snapshots()?;
    let chosen = chosen(context, args, &filter, &all)?;
    if chosen.is_empty() && !all.is_empty() {
        context.out.caution("no snapshot fits: there is nothing to copy");
    }
    let options = options(context, args)?;
    let watch = Watch::new(context.out, "copy");
    let named = !args.snapshots.is_empty();
    let tally = Tally { left_out: if named { 0 } else { damaged.len() }, ..Tally::default() };
    let (memory, reading) = (target.memory().cloned(), source.clone());
    let mut copying = Copying { context, all: &all, named, dry_run: args.dry_run, reading, memory, tally };
    let source = End { cache: context.cache(&source)?, repository: source };
    let target = End { cache: context.cache(&target)?, repository: target };
    let copied = watch.run(|monitor| -> Result<()> {
        let mut copier = Copier::new(source, target, options)?;
        for error in copier.unreadable() {
            context.out.warn(format!("in the target, {error}: if it is a copy, its snapshot is copied once more"));
        }
        chosen.iter().try_for_each(|info| copying.one(&mut copier, info, monitor))
    });
    let tally = copying.tally;
    let counts = watch.counts();
    if !named {
        damaged.iter().for_each(|error| context.out.trouble_with("copy", &error.to_string()));
    }
    if context.out.json() {
        context.out.tell(&JsonSummary {
            message_type: "copy_summary",
            dry_run: args.dry_run,
            copied: tally.copied,
            already_there: tally.there,
            left_out: tally.left_out,
            entries_taken_over: counts.unmodified,
            entries_damaged: counts.damaged,
            bytes_read: counts.bytes_read,
            data_added: counts.bytes_new,
            data_added_packed: counts.bytes_stored,
        });
    } else {
        let verb = if args.dry_run { "would copy" } else { "copied" };
        let mut line = format!("{verb} {}", counted(tally.copied as u64, "snapshot", "snapshots"));
        if tally.there > 0 {
            line += &format!(", {} there already", tally.there);
        }
        context.out.note(line);
        if args.dry_run {
            context.out.note("a dry run: nothing was copied");
        } else if tally.copied > 0 {
            let (read, new, stored) = (counts.bytes_read, counts.bytes_new, counts.bytes_stored);
            context.out.note(format!("{} read, {} of it new, stored as {}", bytes(read), bytes(new), bytes(stored)));
        }
    }
    copied?;
    if counts.damaged > 0 {
        context.out.warn("not everything could be copied completely: see above");
    }
    Ok(if counts.damaged > 0 || tally.left_out > 0 { Exit::Incomplete } else { Exit::Done })
}

/// The repository that is written to.
fn open_target(context: &Context, args: &Copy, to: &Location, source: &Repository) -> Result<Repository> {
    // It is as it is now.
    let around = Surroundings { as_of: None, ..context.around() };
    let store = drumlin_store::open(to, &around)?;
    let target = context.remembered(unlock::open_other(Arc::from(store), "TO", asked(&args.to))?);
    if source.config().id == target.config().id {
        let message = format!("'{}' is the repository that would be copied, not another one", args.to.to);
        return Err(Failure::usage(message));
    }
    context.heed(&target, true);
    Ok(target)
}

/// The snapshots to copy, each behind those before it.
fn chosen(context: &Context, args: &Copy, filter: &SnapshotFilter, all: &[SnapshotInfo]) -> Result<Vec<SnapshotInfo>> {
    if args.snapshots.is_empty() {
        return Ok(filter.select(all));
    }
    let mut named: Vec<SnapshotInfo> = Vec::new();
    for spec in &args.snapshots {
        add_once(&mut named, whole(gather::find(context, all, spec.as_ref(), &args.select)?)?);
    }
    named.sort_by_key(|info| (info.snapshot.time, info.snapshot.id));
    Ok(named)
}

fn options(context: &Context, args: &Copy) -> Result<Options> {
    let memory = memory(context, args.memory)?;
    Ok(Options {
        host: gather::host(context, None),
        now: now().0,
        compression: args.compression,
        workers: args.workers.map_or_else(processors, usize::from),
        memory,
        index: IndexMode::Auto(memory / 4),
    })
}

/// A copy under way.
struct Copying<'a> {
    context: &'a Context<'a>,
    /// All snapshots of the source.
    all: &'a [SnapshotInfo],
    /// The user has named those to copy.
    named: bool,
    dry_run: bool,
    reading: Repository,
    /// What this client has seen of the target.
    memory: Option<Arc<Memory>>,
    tally: Tally,
}

impl Copying<'_> {
    /// Copy one, if it isn't there.
    fn one(&mut self, copier: &mut Copier, info: &SnapshotInfo, monitor: &dyn Monitor) -> Result<()> {
        if copier.copy_of(&info.snapshot)?.is_some() {
            self.tally.there += 1;
            return Ok(());
        }
        if !self.named && left_out(self.context, info) {
            self.tally.left_out += 1;
            return Ok(());
        }
        if self.dry_run {
            self.tally.copied += 1;
            told(self.context, &info.snapshot, None);
            return Ok(());
        }
        match copier.copy(info, self.all, monitor) {
            Ok(report) => {
                self.memory.iter().for_each(|memory| memory.made(report.snapshot.id, &report.indexes));
                self.tally.copied += 1;
                told(self.context, &info.snapshot, Some(&report));
                Ok(())
            }
            Err(Error::Interrupted) => Err(failure(Error::Interrupted)),
            Err(Error::Copied(_)) => {
                self.tally.there += 1;
                Ok(())
            }
            // The others are still to be copied.
            Err(e @ Error::Hollow(_)) if !self.named => {
                self.context.out.trouble_with("copy", &e.to_string());
                self.tally.left_out += 1;
                Ok(())
            }
            // By what was read, and not by what the target says.
            Err(e)
                if is_of_source(&e)
                    && !self.named
                    && self.reading.store().len(&names::snapshot(info.snapshot.id))?.is_none() =>
            {
                let which = in_words(&info.snapshot);
                self.context.out.note(format!("{which} was forgotten meanwhile, and not copied"));
                Ok(())
            }
            Err(e) => Err(failure(e)),
        }
    }
}

/// Whether it may be that what was to be copied is gone.
fn is_of_source(error: &Error) -> bool {
    matches!(error, Error::Refused(_)) || matches!(error, Error::Repo(e) if e.is_damage())
}

fn asked(to: &To) -> Asked {
    Asked {
        password_file: to.to_password_file.clone(),
        password_command: to.to_password_command.clone(),
        key_file: to.to_key_file.clone(),
    }
}

/// Whether a snapshot that nobody named is passed over; told here.
fn left_out(context: &Context, info: &SnapshotInfo) -> bool {
    let what = in_words(&info.snapshot);
    match info.trust {
        Trust::Unknown(_) => {
            let why = "no known key has signed it";
            context.out.trouble_with(
                "copy",
                &format!("{what} was not copied: {why}, and the copy would be signed with your key"),
            );
            true
        }
        Trust::Signed(_) if info.open_session => {
            context.out.trouble_with("copy", &format!("{what} was not copied: its backup is under way"));
            true
        }
        Trust::Signed(_) => false,
    }
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Interrupted => {
            Failure::new(Exit::Interrupted, "interrupted; run the same command again to go on with this snapshot")
        }
        other => other.into(),
    }
}

/// A snapshot was copied, or would be where there is no report.
fn told(context: &Context, source: &Snapshot, report: Option<&Report>) {
    let copy = report.map(|report| report.snapshot.id.to_string());
    if context.out.json() {
        let sums = report.map_or(source, |report| &report.snapshot).root.map(|root| root.sums).unwrap_or_default();
        context.out.tell(&JsonCopied {
            message_type: "copied",
            id: copy,
            source_id: source.id.to_string(),
            beside_id: report.and_then(|report| report.beside.as_ref()).map(|beside| beside.id.to_string()),
            entries: sums.entries,
            bytes: sums.bytes,
        });
        return;
    }
    context.out.note(match copy {
        Some(id) => format!("copied {} as {}", in_words(source), &id[..SHORT]),
        None => format!("would copy {}", in_words(source)),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_target_says_is_no_sign_that_the_source_is_gone() {
        assert!(is_of_source(&Error::Refused("it was forgotten and pruned while it was copied".into())));
        assert!(is_of_source(&drumlin_repo::Error::MissingChunk(drumlin_format::ChunkId([1; 32])).into()));
        assert!(!is_of_source(&drumlin_repo::Error::Evicted.into()));
        assert!(!is_of_source(&Error::Worker));
    }
}
