//! A restore from its start to its end.

use super::aside::Asides;
use super::cold::Cold;
use super::own::Own;
use super::plan::{Planned, Planner};
use super::worker::{Context, Room, Worker};
use super::{Options, Report, dirs, links, verify};
use crate::monitor::{Monitor, ProblemKind};
use crate::threads;
use crate::{Error, Result};
use crossbeam_channel::{bounded, unbounded};
use drumlin_format::tree::Sums;
use drumlin_host::place::{Owners, Target};
use drumlin_repo::pack::Reader;
use drumlin_repo::{Cache, Index, IndexMode, Repository};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Restore.
///
/// When a pack turns out to be in cold storage, all that are needed are asked for; once they are there it begins anew,
/// and leaves alone what it has done. Where it has to leave alone what others have done, too, it couldn't tell one from
/// the other: then nothing is written before all that is needed is there.
///
/// # Errors
/// Only what concerns the run as a whole; what can't be read or written is told to the monitor and counted.
pub fn restore(repository: &Repository, cache: &Arc<Cache>, options: Options, monitor: &dyn Monitor) -> Result<Report> {
    repository.may_read()?;
    let start = Instant::now();
    let cold = options.thaw.filter(|_| !options.dry_run).map(|how| Cold { repository, cache, options: &options, how });
    let stopped = || {
        let (counts, millis) = (monitor.counters().get(), start.elapsed().as_millis() as u64);
        Report { counts, verified: 0, spoiled: 0, millis, stopped: true }
    };
    if let Some(cold) = cold.as_ref().filter(|_| options.overwrite.spares() && repository.store().freezes())
        && !cold.thaw(None, monitor)?
    {
        return Ok(stopped());
    }
    let asides = Asides::default();
    let ended = attempts((repository, cache, &options), cold.as_ref(), monitor, &asides, start);
    asides.tell(monitor);
    Ok(ended?.unwrap_or_else(stopped))
}

/// One after the other, until no pack in cold storage is met; `None`: the wait for one was stopped.
fn attempts(
    (repository, cache, options): (&Repository, &Arc<Cache>, &Options),
    cold: Option<&Cold>,
    monitor: &dyn Monitor,
    asides: &Asides,
    start: Instant,
) -> Result<Option<Report>> {
    let mut met = HashSet::new();
    loop {
        let ended = attempt(repository, cache, options, monitor, asides, start);
        let frozen = match &ended {
            Err(Error::Repo(e)) => e.frozen().map(str::to_owned),
            _ => None,
        };
        // One that was said to be there and isn't would be asked for again and again.
        let Some(frozen) = frozen.filter(|name| met.insert(name.clone())) else { return ended.map(Some) };
        let Some(cold) = cold else { return ended.map(Some) };
        if !cold.thaw(Some(&frozen), monitor)? {
            return Ok(None);
        }
        monitor.counters().reset();
    }
}

fn attempt(
    repository: &Repository,
    cache: &Arc<Cache>,
    options: &Options,
    monitor: &dyn Monitor,
    asides: &Asides,
    start: Instant,
) -> Result<Report> {
    let whole = options.snapshot.root.filter(|_| options.paths.is_empty() && options.subfolder.is_none());
    if let Some(root) = whole {
        monitor.counters().expected_entries.store(root.sums.entries, Ordering::Relaxed);
        monitor.counters().expected_bytes.store(root.sums.bytes, Ordering::Relaxed);
    }
    let target = match Target::open(&options.target, !options.dry_run) {
        Err(e) if e.is_missing() && options.dry_run => None,
        target => Some(target?),
    };
    let is_part = options.subfolder.is_some() || !options.paths.is_empty() || !options.include.is_empty();
    let mode = if is_part { IndexMode::Lean } else { IndexMode::Exact };
    let index = Arc::new(Index::open_lenient(repository, cache.clone(), mode)?);
    let reader = Reader::new(repository.clone(), index, cache.clone(), options.memory / 16);
    // The blocks in which one window ends and the next begins, and those of a large file's changes.
    let reader = reader.with_copies().with_told_tables().with_room(options.memory / 4);
    let context = Context {
        reader: Arc::new(reader),
        data_ids: repository.data_ids()?.clone(),
        target,
        owners: Owners::new(options.numeric_ids),
        own: Own::new(options),
        monitor,
        fetches: unbounded(),
        spare: Mutex::default(),
        open: AtomicUsize::new(0),
        hinted: AtomicUsize::new(0),
        room: Room::new(drumlin_host::process::descriptors(), options.workers),
        owner_told: AtomicBool::new(false),
        lost: Mutex::default(),
        replaced: Mutex::default(),
        unfinished: Mutex::default(),
        asides,
        differing: AtomicU64::new(0),
        fatal: Mutex::new(None),
        options,
    };
    let planned = distribute(&context);
    context.clear_away();
    if let (Err(_), Some(target)) = (&planned, &context.target) {
        target.withdraw(&options.target);
    }
    let planned = planned?;
    context.outcome()?;
    if let Some(root) = whole.filter(|_| options.include.is_empty() && options.exclude.is_empty() && !monitor.stop()) {
        compare(&context, root.sums);
    }
    let linked = links::make(&context, &planned);
    if linked.is_ok() && !context.ended() {
        asides.settle(&context);
    }
    // A full disk is no reason to leave directories as nobody wanted them.
    dirs::finish(&context, &planned)?;
    match linked {
        Err(Error::Interrupted) => {}
        other => other?,
    }
    context.outcome()?;
    let verified = if options.verify && !options.dry_run { verify::verify(&context, &planned.selection)? } else { 0 };
    if let Some(target) = context.target.as_ref().filter(|_| options.verify) {
        target.sync()?;
    }
    let counts = monitor.counters().get();
    Ok(Report {
        counts,
        verified,
        spoiled: counts.damaged.saturating_sub(context.differing.load(Ordering::Relaxed)),
        millis: start.elapsed().as_millis() as u64,
        stopped: monitor.stop(),
    })
}

/// Whether all was met that the snapshot says it has: a part of the tree that is passed over without a word would show
/// here. Of damage it was told.
fn compare(context: &Context, sums: Sums) {
    let met = context.counters().get();
    if met.damaged == 0 && (met.entries, met.files) != (sums.entries, sums.files) {
        let cause = format!(
            "{} entries were met, {} of them files, where the snapshot says that it has {} and {}: 'drumlin check' may tell why",
            met.entries, met.files, sums.entries, sums.files
        );
        context.problem(b"/", ProblemKind::Damaged, cause);
    }
}

/// Plan, with workers at work meanwhile.
fn distribute(context: &Context) -> Result<Planned> {
    let workers = context.options.workers.max(1);
    let (tasks, tasks_in) = bounded(4 * workers);
    let (at_work, others) = bounded(0);
    std::thread::scope(|scope| {
        threads::start(scope, "worker", workers, || {
            let (worker, tasks) = (Worker::new(context), tasks_in.clone());
            let (at_work, others) = (at_work.clone(), others.clone());
            Ok(move || worker.run(&tasks, at_work, &others))
        })?;
        drop((tasks_in, at_work));
        let mut planner = Planner::new(context, tasks)?;
        planner.run()?;
        Ok(planner.finish())
    })
}
