//! A backup from its start to its commit.

use super::assemble::Assembler;
use super::big::Pieces;
use super::ground::{Ground, Wanted};
use super::job::Workers;
use super::level::Level;
use super::merge::Merge;
use super::worker::{Shared, Worker};
use super::{Compression, Options, Parent, ParentSnapshots, Report, Source, losses, old, parent};
use crate::lock::lock;
use crate::monitor::{Monitor, Problem, ProblemKind, add};
use crate::threads;
use crate::{Error, Result, convert};
use crossbeam_channel::{bounded, unbounded};
use drumlin_chunk::{Chunker, Params};
use drumlin_format::pack::PackKind;
use drumlin_format::session::purpose;
use drumlin_format::snapshot::{Reached, Root, Snapshot, Summary};
use drumlin_format::tree::Boundaries;
use drumlin_format::{LossId, PackId, SnapshotId};
use drumlin_host::names::Names;
use drumlin_host::walk::{self, Crew, Walk};
use drumlin_repo::collection::{Known, Looks, Registration};
use drumlin_repo::pack::Reader;
use drumlin_repo::tree::{NameSource, Nodes, TreeWriter};
use drumlin_repo::{Cache, PackInfo, Repository, WriteSession, Written, names, random_id};
use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Back up.
///
/// # Errors
/// Only what concerns the run as a whole. Entries that can't be read are told to the monitor, counted, and left out.
pub fn backup(repository: &Repository, cache: &Arc<Cache>, options: Options, monitor: &dyn Monitor) -> Result<Report> {
    repository.may_write()?;
    let again = again(&options);
    let mut damaged = HashSet::new();
    match attempt(repository, cache, options, &mut damaged, monitor) {
        // Nobody has looked further: the next backup tells, if it is so.
        Err(Error::Repo(drumlin_repo::Error::MissingChunk(_))) if again.is_some() && monitor.stop() => {
            Err(Error::Interrupted)
        }
        Err(Error::Repo(e)) if is_of_tree(&e) && again.is_some() && !monitor.stop() => {
            // The tree of the backup before can't be read: all is read anew, and nothing refers to what is damaged.
            let cause = format!("the previous backup can't be compared with, so all files are read: {e}");
            monitor.counters().reset();
            monitor.problem(&Problem { path: b"/".to_vec(), kind: ProblemKind::Vanished, cause });
            let options = again.ok_or(Error::Worker)?;
            attempt(repository, cache, options, &mut damaged, monitor)
        }
        outcome => outcome,
    }
}

/// Whether the tree of the backup before can't be read: it is damaged, or sealed anew since by somebody whose keys this
/// key doesn't have.
fn is_of_tree(error: &drumlin_repo::Error) -> bool {
    error.is_damage() || matches!(error, drumlin_repo::Error::NotAllowed { .. })
}

/// Whether what was stored by a run that failed so is worth having named in the index: the storage does what it is
/// asked.
pub(crate) fn is_worth_naming(error: &Error) -> bool {
    match error {
        Error::Stream(_) | Error::Interrupted | Error::System { .. } => true,
        // Where no pack finds room, what names those that did may.
        Error::Repo(drumlin_repo::Error::Machine(_)) => true,
        Error::Repo(e) => e.is_full() || is_of_tree(e),
        _ => false,
    }
}

/// The options for another attempt, compared with nothing; `None` if the first has compared with nothing, or has eaten
/// up its source.
fn again(options: &Options) -> Option<Options> {
    let Source::Paths { paths, filter, one_file_system } = &options.source else { return None };
    if options.parent == Parent::None {
        return None;
    }
    Some(Options {
        source: Source::Paths { paths: paths.clone(), filter: filter.clone(), one_file_system: *one_file_system },
        host: options.host.clone(),
        user: options.user.clone(),
        tags: options.tags.clone(),
        parent: Parent::None,
        program: options.program.clone(),
        ..*options
    })
}

/// Back up without referring to packs that are `damaged`; if it fails, those are in there that were found to be.
fn attempt(
    repository: &Repository,
    cache: &Arc<Cache>,
    options: Options,
    damaged: &mut HashSet<PackId>,
    monitor: &dyn Monitor,
) -> Result<Report> {
    let start = Instant::now();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let paths = match &options.source {
        Source::Paths { paths, .. } => paths.clone(),
        Source::Stream { name, .. } => vec![name.clone()],
    };
    let rules = match &options.source {
        Source::Paths { filter, .. } => filter.digest(),
        Source::Stream { .. } => None,
    };
    // The walk runs while the session is registered and the index is opened.
    let feed = Feed::start(options.source, options.walkers, options.memory / 16)?;
    // Before anything is looked at that may be referred to: `docs/collection.md`.
    let session = convert::session(&options.host, purpose::BACKUP, now.as_secs() as i64);
    let is_walk = matches!(feed, Feed::Walk(_));
    let (host, parent) = (&options.host, &options.parent);
    let wanted = Wanted { repository, cache, host, paths: &paths, parent, is_walk };
    let remembered = wanted.remembered();
    let looks = Looks { losses: true, objects: parent::objects(cache, &remembered) };
    let registration = Registration::begin_looking(repository, session, &looks)?;
    let known = registration.known().clone();
    let Ground { index, parents, losses } = match wanted.look(&registration, &remembered, options.index, damaged) {
        Ok(ground) => ground,
        Err(e) => {
            let _ = registration.abandon();
            return Err(e);
        }
    };
    // A run that was stopped knows less than the one before it.
    if let Some(sums) = parents.0.iter().filter_map(|p| Some(p.root?.sums)).max_by_key(|sums| sums.entries) {
        monitor.counters().expected_entries.store(sums.entries, Ordering::Relaxed);
        monitor.counters().expected_bytes.store(sums.bytes, Ordering::Relaxed);
    }
    let session = WriteSession::begin(registration, index.clone(), cache.clone());
    let reader = Reader::new(repository.clone(), index, cache.clone(), options.memory / 24).with_copies();
    let time = options.time.unwrap_or((now.as_secs() as i64, now.subsec_nanos()));
    // A time that the user gives is as old as it likes, and another machine has a clock of its own.
    let before = match is_walk {
        true => parents.first().filter(|parent| parent.host == options.host).cloned(),
        false => parent::remembered(cache, &options.host, &paths).and_then(|of| of.into_iter().next()),
    };
    let behind = before.filter(|_| options.time.is_none()).and_then(|before| behind(&before, time.0));
    let run = Run {
        repository,
        session: Arc::new(session),
        reader: Arc::new(reader),
        parents,
        monitor,
        time,
        behind,
        start,
        paths,
        rules,
        host: options.host.clone(),
        user: options.user.clone(),
        tags: options.tags.clone(),
        program: options.program.clone(),
        skip_unchanged: options.skip_unchanged,
        known,
        losses,
        placed: Mutex::new(Placed::Nothing),
    };
    let Options { compression, force, checkpoint_bytes, .. } = options;
    let pace = Pace { workers: options.workers.max(1), late: options.late, compression, force, checkpoint_bytes };
    match run.pipeline(pace, feed).and_then(|outcome| run.conclude(outcome)) {
        Ok(end) => run.end(cache, end),
        Err(e) => {
            run.give_up(&e, damaged);
            Err(e)
        }
    }
}

/// Where a tree is damaged: all packs of trees, which take little room to be stored anew, and those of contents that
/// are not there, or not as long as they should be.
fn distrusted(reader: &Reader) -> Result<HashSet<PackId>> {
    let mut there = HashMap::new();
    let list = reader.repository().store().list(names::DATA, &mut |listed| {
        there.extend(PackId::parse(names::last(&listed.name)).map(|id| (id, listed.len)));
    });
    list.map_err(drumlin_repo::Error::from)?;
    let sound = |pack: &PackInfo| pack.kind == PackKind::Data && there.get(&pack.id) == Some(&pack.len);
    Ok(reader.index().packs().iter().filter(|pack| !sound(pack)).map(|pack| pack.id).chain(reader.useless()).collect())
}

/// Clocks of a machine that is set by others step back by less than so many seconds.
const BEHIND_SECONDS: u64 = 60;

/// How far a snapshot's time is behind the one that was made before, by which it is later at the least; which may have
/// been behind itself. A second more, so that of several in a row the order can be told.
fn behind(before: &Snapshot, time: i64) -> Option<u64> {
    let made = before.time.0.saturating_add_unsigned(before.summary.behind.unwrap_or_default());
    u64::try_from(made.saturating_sub(time))
        .ok()
        .filter(|seconds| *seconds >= BEHIND_SECONDS)
        .map(|seconds| seconds + 1)
}

struct Run<'a> {
    repository: &'a Repository,
    session: Arc<WriteSession>,
    reader: Arc<Reader>,
    parents: ParentSnapshots,
    monitor: &'a dyn Monitor,
    time: (i64, u32),
    /// See [`Summary::behind`].
    behind: Option<u64>,
    start: Instant,
    paths: Vec<Vec<u8>>,
    /// A number of the rules for what is left out.
    rules: Option<u64>,
    host: String,
    user: String,
    tags: Vec<String>,
    program: String,
    skip_unchanged: bool,
    known: Known,
    /// What was lost and may be met again, because all is read.
    losses: Vec<LossId>,
    placed: Mutex<Placed>,
}

/// Which snapshot of this session stands; each is replaced by the next.
#[derive(Clone, Copy)]
enum Placed {
    Nothing,
    Snapshot(SnapshotId),
    /// Putting one failed, and may have taken effect or take it later.
    Unknown,
}

/// So long after the last checkpoint another one is made if anything was stored since, however little: over a slow line
/// that is what a power failure costs.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(600);

/// How the pipeline works.
struct Pace {
    workers: usize,
    late: Duration,
    compression: Compression,
    force: bool,
    checkpoint_bytes: u64,
}

/// Where entries come from.
enum Feed {
    Walk(Walk),
    Stream { name: Vec<u8>, reader: Box<dyn Read + Send>, outcome: Box<dyn FnOnce() -> Whole + Send> },
}

/// Whether a stream was whole.
type Whole = std::result::Result<(), String>;

impl Feed {
    fn start(source: Source, threads: Crew, budget_bytes: usize) -> Result<Self> {
        match source {
            Source::Paths { paths: sources, filter, one_file_system } => {
                let options = walk::Options { sources, threads, one_file_system, budget_bytes, ..Default::default() };
                Ok(Feed::Walk(Walk::start(options, filter).map_err(Error::system("start the walk"))?))
            }
            Source::Stream { name, reader, outcome } => Ok(Feed::Stream { name, reader, outcome }),
        }
    }
}

/// What is left to be decided.
struct End {
    /// It has been put; `None` where none is to be made.
    snapshot: Option<Snapshot>,
    tree_bytes: u64,
    stopped: bool,
}

/// What the pipeline leaves.
struct Outcome {
    root: Option<Root>,
    reached: Option<Reached>,
    stopped: bool,
    /// Whether any of the sources was there.
    found: bool,
    /// See [`Snapshot::passed_by`].
    passed_by: Vec<Vec<u8>>,
}

impl Run<'_> {
    fn pipeline(&self, pace: Pace, feed: Feed) -> Result<Outcome> {
        let repository = self.repository;
        let sizes = repository.config().chunks;
        let params = Params::new(sizes.min, sizes.normal, sizes.max)
            .map_err(|e| Error::Repo(drumlin_repo::Error::Misuse(e.to_string())))?;
        let tree_ids = repository.tree_ids().cloned().ok_or(Error::Worker)?;
        let secrets = repository.secrets();
        let cutting = secrets.cutting.as_ref().ok_or(Error::Worker)?;
        let workers = pace.workers;
        let shared = Shared {
            session: self.session.clone(),
            data_ids: repository.data_ids()?.clone(),
            tree_ids: tree_ids.clone(),
            chunker: Chunker::new(repository.cut_secret()?.expose(), params),
            level: Level::new(pace.compression),
            monitor: self.monitor,
            reader: self.reader.clone(),
            block_bytes: repository.config().block_bytes as usize,
            single_bytes: u64::from(sizes.normal),
            workers,
            late: pace.late,
            links: Mutex::default(),
            pieces: Pieces::new(workers, params.max as usize),
            lost: Mutex::default(),
            has_failed: AtomicBool::new(false),
        };
        let names = Box::new(UserNames(Names::new()));
        let writer = TreeWriter::new(Boundaries::new(cutting), names);
        let nodes = Nodes::new(self.session.clone(), tree_ids)?;
        let assembler = Assembler::new(self.reader.clone(), writer, nodes);
        let leaves = match self.parents.0.is_empty() {
            true => None,
            false => Some(old::read(self.reader.clone(), self.parents.0.clone())?),
        };
        let (jobs, jobs_in) = bounded(2 * workers);
        let (done_out, done) = unbounded();
        std::thread::scope(|scope| {
            let started = threads::start(scope, "worker", workers, || {
                let worker = Worker::new(&shared)?;
                let (jobs, done) = (jobs_in.clone(), done_out.clone());
                Ok(move || worker.run(&jobs, &done))
            })?;
            // With the workers gone their channel ends. (Who panics among several leaves the merge waiting, unless that
            // ends the program: see the crate's documentation.)
            drop((jobs_in, done_out));
            // Dropping the merge on any error ends the jobs, and with them the workers.
            let workers = Workers { jobs, done, count: started };
            let trees = (assembler, leaves);
            let merge = Merge::new(self.monitor, self.reader.clone(), trees, workers, pace.force, &self.paths);
            // The workers end before this does.
            self.feed(merge, feed, pace.checkpoint_bytes, &shared)
                .inspect_err(|_| shared.has_failed.store(true, Ordering::Relaxed))
        })
    }

    fn feed(&self, mut merge: Merge, feed: Feed, checkpoint_bytes: u64, shared: &Shared) -> Result<Outcome> {
        let mut stopped = false;
        match feed {
            Feed::Walk(mut walk) => {
                let (mut checkpointed, mut last) = (0, Instant::now());
                while let Some(mut listing) = walk.next_unless(|| self.monitor.stop()) {
                    merge.listing(&mut listing)?;
                    drop(listing);
                    if self.monitor.stop() {
                        stopped = true;
                        break;
                    }
                    let stored = self.session.written().data_bytes;
                    let is_late = stored > checkpointed && last.elapsed() >= CHECKPOINT_EVERY;
                    if checkpoint_bytes > 0 && (stored - checkpointed >= checkpoint_bytes || is_late) {
                        checkpointed = stored;
                        self.checkpoint(&mut merge, shared)?;
                        last = Instant::now();
                    }
                }
                stopped |= walk.is_stopped();
                if stopped { merge.stop()? } else { merge.finish()? }
            }
            Feed::Stream { name, reader, outcome } => {
                merge.stream(&name, reader)?;
                merge.settle()?;
                outcome().map_err(Error::Stream)?;
                if self.monitor.counters().get().bytes == 0 {
                    // A dump of nothing is one that has failed where nobody saw it.
                    self.tell_empty(name);
                }
            }
        }
        merge.workers.flush()?;
        merge.settle()?;
        shared.refuse_lost()?;
        // The stop may have come when the walk was at its end and workers were still reading.
        let stopped = stopped || merge.assembler.is_cut_short();
        let (found, passed_by) = (merge.found_a_source(), merge.passed_by());
        let (root, reached) = merge.assembler.finish()?;
        Ok(Outcome { root, reached, stopped, found, passed_by })
    }

    /// A stream without a byte counts as a source that isn't there, so that rules of `forget` keep those that had
    /// something.
    fn tell_empty(&self, name: Vec<u8>) {
        let counters = self.monitor.counters();
        add(&counters.absent, 1);
        add(&counters.unreadable, 1);
        let cause = "nothing came in this stream. If that can't be right: of a pipe a shell tells only whether its last program has \
                     failed, unless it was told 'set -o pipefail'";
        let problem = Problem { path: name, kind: ProblemKind::Unreadable, cause: cause.to_owned() };
        self.monitor.problem(&problem);
    }

    /// Make what there is so far durable, as a partial snapshot in place of the one before.
    fn checkpoint(&self, merge: &mut Merge, shared: &Shared) -> Result<()> {
        merge.settle()?;
        merge.workers.flush()?;
        merge.settle()?;
        shared.refuse_lost()?;
        let (root, reached) = merge.assembler.checkpoint()?;
        self.session.flush()?;
        let snapshot = self.snapshot(root, reached, merge.passed_by())?;
        self.put(&snapshot)
    }

    /// Put a snapshot, and remove the checkpoint before.
    fn put(&self, snapshot: &Snapshot) -> Result<()> {
        let before = std::mem::replace(&mut *self.placed(), Placed::Unknown);
        self.session.put_snapshot(snapshot)?;
        *self.placed() = Placed::Snapshot(snapshot.id);
        match before {
            // Who can't, or may only add, leaves it: it doesn't count beside the one that the session decides on, and
            // that must not be lost for its sake.
            Placed::Snapshot(before) => {
                let removed =
                    self.repository.remove_snapshot(before).or_else(|_| self.repository.remove_snapshot(before));
                drop(removed);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn placed(&self) -> MutexGuard<'_, Placed> {
        lock(&self.placed)
    }

    fn snapshot(&self, root: Option<Root>, partial: Option<Reached>, passed_by: Vec<Vec<u8>>) -> Result<Snapshot> {
        let counts = self.monitor.counters().get();
        let summary = Summary {
            new: counts.new,
            changed: counts.changed,
            unmodified: counts.unmodified,
            unreadable: counts.unreadable,
            changed_while_read: counts.changed_while_read,
            excluded: counts.excluded,
            bytes_read: counts.bytes_read,
            bytes_new: counts.bytes_new,
            bytes_stored: counts.bytes_stored,
            millis: self.start.elapsed().as_millis() as u64,
            absent: Some(counts.absent).filter(|absent| *absent > 0),
            rules: self.rules,
            behind: self.behind,
        };
        Ok(Snapshot {
            id: SnapshotId(random_id()?),
            session: self.session.id(),
            time: self.time,
            host: self.host.clone(),
            user: self.user.clone(),
            paths: self.paths.clone(),
            tags: self.tags.clone(),
            root,
            partial,
            parent: self.parents.first().map(|p| p.id),
            program: self.program.clone(),
            summary,
            plans: self.known.ids(),
            original: None,
            passed_by: Some(passed_by),
        })
    }

    /// See that all is durable that the snapshot needs, and put it, if there is to be one.
    fn conclude(&self, outcome: Outcome) -> Result<End> {
        let stopped = outcome.stopped;
        if outcome.root.is_none() && stopped {
            return Err(Error::Interrupted);
        }
        // Directories that lead to nothing are nothing, too.
        if !outcome.found && self.monitor.counters().get().unreadable > 0 {
            return Err(Error::NoSource);
        }
        let tree_bytes = self.session.written().tree_bytes;
        if self.is_same(&outcome)? {
            match self.session.abandon() {
                // An account that may only add is rid of its session by a decision alone.
                Err(e) if e.is_refused() => {}
                // What it can't clear up others will.
                _ => return Ok(End { snapshot: None, tree_bytes, stopped }),
            }
        }
        let partial = if stopped { outcome.reached } else { None };
        let snapshot = self.snapshot(outcome.root, partial, outcome.passed_by)?;
        self.session.expect_snapshot(&snapshot);
        self.session.flush()?;
        self.put(&snapshot)?;
        Ok(End { snapshot: Some(snapshot), tree_bytes, stopped })
    }

    /// Decide, where anything is to be decided on.
    fn end(self, cache: &Cache, end: End) -> Result<Report> {
        let (parents, monitor, start) = (self.parents.clone(), self.monitor, self.start);
        let (losses, host, paths) = (self.losses.clone(), self.host.clone(), self.paths.clone());
        let index = self.session.index().clone();
        let session = self.end_session()?;
        let indexes = session.indexes();
        if let Some(snapshot) = &end.snapshot {
            session.commit(snapshot.id)?;
        }
        cache.tidy(&index);
        if let Some(snapshot) = &end.snapshot {
            if snapshot.partial.is_none() {
                losses::met(cache, &host, &paths, &losses);
            }
            parent::remember(cache, snapshot, &parents);
        }
        Ok(Report {
            parent: parents.first().cloned(),
            snapshot: end.snapshot,
            indexes,
            counts: monitor.counters().get(),
            tree_bytes: end.tree_bytes,
            millis: start.elapsed().as_millis() as u64,
            stopped: end.stopped,
        })
    }

    /// Whether the snapshot that was compared with says the same, and another one isn't wanted then.
    fn is_same(&self, outcome: &Outcome) -> Result<bool> {
        let Some(parent) = self.parents.first().filter(|_| self.skip_unchanged && !outcome.stopped) else {
            return Ok(false);
        };
        let of = |snapshot: &Snapshot| (snapshot.host.clone(), snapshot.paths.clone(), snapshot.tags.clone());
        let is_alike = parent.root == outcome.root
            && parent.partial.is_none()
            && parent.passed_by.as_ref() == Some(&outcome.passed_by)
            && of(parent) == (self.host.clone(), self.paths.clone(), self.tags.clone());
        // What was stored all the same, as the index had lost it, is for a snapshot to refer to; and a checkpoint is
        // one already.
        let has_stored = self.session.written() != Written::default() || !matches!(*self.placed(), Placed::Nothing);
        if !is_alike || has_stored {
            return Ok(false);
        }
        parent::is_latest(self.repository, parent)
    }

    /// End the session of a run that has failed, with what it has stored named, if that may be of use to the next.
    fn give_up(self, error: &Error, damaged: &mut HashSet<PackId>) {
        if matches!(error, Error::Repo(e) if is_of_tree(e)) {
            damaged.extend(distrusted(&self.reader).unwrap_or_default());
        }
        let (placed, stop, is_far) = (*self.placed(), self.monitor.stop(), self.repository.store().is_far());
        let Ok(session) = self.end_session() else { return };
        // Beside a checkpoint nothing is risked: an index object that fails, and may land late, would keep that from
        // being decided on.
        if matches!(placed, Placed::Nothing) && is_worth_naming(error) {
            // Who wants to end doesn't wait for a line.
            let _ = session.name_finished(!(stop && is_far));
        }
        session.give_up();
        if matches!(placed, Placed::Snapshot(_)) {
            session.see_put();
        }
        let _ = match placed {
            // What it has named may yet appear: the session stays, and is evicted one day.
            _ if session.is_in_doubt() => Ok(()),
            // As whole as any partial snapshot.
            Placed::Snapshot(checkpoint) => session.commit(checkpoint),
            // Nobody refers to what was written.
            Placed::Nothing => session.abandon(),
            // It may yet appear, and must not count then without a session that protects what it refers to.
            Placed::Unknown => Ok(()),
        };
    }

    fn end_session(self) -> Result<WriteSession> {
        Arc::try_unwrap(self.session).map_err(|_| Error::Worker)
    }
}

struct UserNames(Names);

impl NameSource for UserNames {
    fn user(&mut self, uid: u32) -> Option<Vec<u8>> {
        self.0.user(uid).map(|n| n.to_vec())
    }

    fn group(&mut self, gid: u32) -> Option<Vec<u8>> {
        self.0.group(gid).map(|n| n.to_vec())
    }
}
