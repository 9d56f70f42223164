//! Removing what no snapshot needs, while others write.
//!
//! A collection in the sense of `docs/collection.md`: what is needed is marked, a bit for each chunk; packs of which
//! nothing is needed go, others are written anew as far as the limits allow. Works on metadata alone where the key
//! can't read contents. Stopped at any point it has done no harm, and the next one finishes or undoes what it left.

mod choose;
mod state;
mod subject;
mod weigh;

pub use choose::Unused;

use crate::collect::silence::{Policy, Waiting, describe};
use crate::monitor::Monitor;
use crate::{Error, Result, convert, parity};
use drumlin_format::session::purpose;
use drumlin_format::{SessionId, SnapshotId};
use drumlin_repo::band::Cost;
use drumlin_repo::collection::{Collected, Desk, bury, collect};
use drumlin_repo::{Cache, Repository, random_id};
use state::State;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use subject::{Collection, Look};

/// So often it is looked what a prune would do, if others end meanwhile.
const LOOKS_MAX: u32 = 4;

/// What to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// This machine's name.
    pub host: String,
    /// How much that nobody needs may stay.
    pub max_unused: Unused,
    /// The most bytes to write anew; `None`: as many as it takes.
    pub max_repack: Option<u64>,
    /// How much of what older secrets still open may be sealed anew, if the repository was given new ones: a share is
    /// one of all packs, and 1 GiB at the least.
    pub max_rekey: Unused,
    /// Whether everything may go if the storage lists no snapshot at all.
    pub allow_remove_all: bool,
    /// How long to wait for sessions that are at work.
    pub wait: Duration,
    /// Sessions that are known to be dead.
    pub evict: Vec<SessionId>,
    /// Sessions are taken for dead that have given no sign of life for so long, as this client has seen it from prune
    /// to prune.
    pub evict_after: Duration,
    /// Threads.
    pub workers: usize,
}

/// Packs, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many.
    pub packs: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Tally {
    fn add(&mut self, bytes: u64) {
        self.packs += 1;
        self.bytes += bytes;
    }
}

/// What was found and chosen. Bytes within packs are shares of sealed blocks, and so are estimates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Snapshots that were looked at.
    pub snapshots: usize,
    /// All packs.
    pub all: Tally,
    /// Bytes that snapshots need.
    pub needed: u64,
    /// Packs of which nothing is needed.
    pub removed: Tally,
    /// Packs that no index names: what was cut short left them.
    pub orphans: Tally,
    /// Packs that are written anew.
    pub repacked: Tally,
    /// Bytes that are written in their place.
    pub moves: u64,
    /// Of the packs that are written anew: those that older secrets open, and that are sealed with the newest.
    pub rekeyed: Tally,
    /// Needed packs that older secrets open after this run, too.
    pub older: Tally,
    /// Of those: packs that the key in use can't open, so that it takes an owner's to seal them anew.
    pub older_closed: Tally,
    /// Snapshots that are sealed anew.
    pub resealed: usize,
    /// Bytes that nobody needs and that stay, in packs that are needed otherwise.
    pub unused: u64,
    /// Small index objects that become few.
    pub indexes: usize,
    /// Packs that the index names and that are gone.
    pub lost: usize,
    /// Bands that are made anew, since packs in them go.
    pub bands: u64,
    /// What that reads and writes.
    pub parity: Cost,
}

/// What was done.
#[derive(Clone, Debug)]
pub struct Report {
    /// What was found and chosen; `None` if nothing had changed since there was nothing to do.
    pub survey: Option<Survey>,
    /// What is gone.
    pub gone: Tally,
    /// Bytes that were written anew.
    pub written: u64,
    /// Bytes of all packs before it.
    pub before: u64,
    /// Bytes of all packs after it.
    pub after: u64,
    /// Whether the storage had no room for packs to be written anew: then only those are gone of which nothing is
    /// needed.
    pub is_pared: bool,
    /// Forgotten snapshots that can't be had back any more.
    pub cleared: u64,
    /// What runs that were killed had begun to write, and is gone.
    pub unfinished: Unfinished,
    /// Parity across packs afterwards, if there is any.
    pub parity: Option<parity::Report>,
}

impl Report {
    /// Of one that found all as it had left it.
    fn unchanged(pack_bytes: u64, unfinished: Unfinished) -> Self {
        Report {
            survey: None,
            gone: Tally::default(),
            written: 0,
            before: pack_bytes,
            after: pack_bytes,
            is_pared: false,
            cleared: 0,
            unfinished,
            parity: None,
        }
    }
}

/// Objects that never got their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unfinished {
    /// How many.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Why others of them are left, if there are any. They harm nobody.
    pub left: Option<String>,
}

impl Unfinished {
    /// Clear them away.
    fn clear(repository: &Repository) -> Self {
        match repository.store().clear_unfinished() {
            Ok(cleared) => Unfinished { objects: cleared.files, bytes: cleared.bytes, left: None },
            Err(error) => Unfinished { left: Some(error.to_string()), ..Unfinished::default() },
        }
    }
}

/// What a prune would do.
///
/// # Errors
/// As [`prune`].
pub fn plan(repository: &Repository, cache: &Arc<Cache>, options: &Options, monitor: &dyn Monitor) -> Result<Survey> {
    plan_without(repository, cache, options, &[], monitor)
}

/// What it would do if these snapshots had been forgotten.
///
/// # Errors
/// As [`prune`].
pub fn plan_without(
    repository: &Repository,
    cache: &Arc<Cache>,
    options: &Options,
    forgotten: &[SnapshotId],
    monitor: &dyn Monitor,
) -> Result<Survey> {
    repository.may_collect("prune")?;
    let (plans, mut looks) = (Default::default(), 0);
    let look = loop {
        let named = || -> Result<HashSet<_>> { Ok(repository.index_objects()?.into_iter().collect()) };
        let before = named()?;
        let look = Look::at(repository, cache, options, (&plans, forgotten), monitor);
        looks += 1;
        // This has no session, so others may move and remove packs meanwhile: then it looks again.
        if looks == LOOKS_MAX || matches!(look, Err(Error::Interrupted)) || before.is_subset(&named()?) {
            break look?;
        }
    };
    look.problems.iter().for_each(|problem| problem.tell(monitor));
    let mut survey = look.survey;
    (survey.bands, survey.parity) = parity::outlook(repository, &options.parity(), look.goes())?;
    Ok(survey)
}

/// Prune.
///
/// # Errors
/// Something is missing that this client has seen ([`drumlin_repo::Error::Unexplained`]); [`Error::Nothing`],
/// [`Error::Unsure`] and [`Error::Doubt`] if it can't be told for sure what is needed, [`Error::Busy`] if somebody is
/// at work who may refer to what would be removed: then nothing is gone.
pub fn prune(repository: &Repository, cache: &Arc<Cache>, options: &Options, monitor: &dyn Monitor) -> Result<Report> {
    repository.may_collect("prune")?;
    let (mut waited, mut pared, mut at_first) = (Duration::ZERO, None, None);
    loop {
        match attempt(repository, cache, pared.as_ref().unwrap_or(options), monitor, &mut waited) {
            Ok(Attempt::Done(report)) => {
                let before = at_first.unwrap_or(report.before);
                return Ok(Report { is_pared: pared.is_some(), before, ..*report });
            }
            Ok(Attempt::GaveWay) => {}
            // Whoever prunes wants room: what nobody needs goes without any.
            Ok(Attempt::LacksRoom { before, .. }) if pared.is_none() => {
                at_first = Some(before);
                pared = Some(Options { max_repack: Some(0), ..options.clone() });
            }
            Ok(Attempt::LacksRoom { error, .. }) | Err(error) => return Err(error),
        }
        // The next one finds again what this one has found.
        monitor.counters().reset();
    }
}

/// What came of an attempt.
enum Attempt {
    Done(Box<Report>),
    /// It gave way to another prune or a repair, which has ended by now.
    GaveWay,
    /// There was no room for packs to be written anew; nothing else was done. `before`: bytes of packs when it began,
    /// those that it has written not among them.
    LacksRoom {
        error: Error,
        before: u64,
    },
}

/// `waited`: for how long it has waited so far.
fn attempt(
    repository: &Repository,
    cache: &Arc<Cache>,
    options: &Options,
    monitor: &dyn Monitor,
    waited: &mut Duration,
) -> Result<Attempt> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    repository.refuse_unexplained(now.as_secs().cast_signed())?;
    repository.adopt_verdicts()?;
    let unfinished = Unfinished::clear(repository);
    let mut state = State::of(repository, options)?;
    let before = state.pack_bytes;
    if state.is_remembered(cache) {
        return Ok(Attempt::Done(Box::new(Report::unchanged(before, unfinished))));
    }
    let desk = Desk::of(repository, convert::session(&options.host, purpose::PRUNE, now.as_secs() as i64));
    let me = SessionId(random_id()?);
    let mut waiting = Waiting::new(repository, cache, &desk, options.policy(), monitor, now).of_prune(me, *waited);
    // Those that are over, at once, whether there is something to remove or not: what they left is looked at as
    // nobody's.
    let over: Vec<_> = state.sessions().filter(|session| waiting.is_over(*session)).collect();
    if !over.is_empty() {
        bury(&desk, &over, me)?;
        state = State::of(repository, options)?;
    }
    let mut forgotten = repository.forgotten_ids()?;
    let mut collection = Collection {
        repository,
        cache,
        options,
        monitor,
        me,
        session: None,
        keys: None,
        seen: HashSet::new(),
        survey: Survey::default(),
        losses: HashSet::new(),
        shunned: HashSet::new(),
        condemned: 0,
        parity: Cost::default(),
        held: false,
        lacks_room: false,
        unsealed: false,
    };
    let collected = collect(&desk, me, &mut collection, &mut |session| waiting.patience(session));
    let report = Report {
        survey: Some(collection.survey),
        written: monitor.counters().get().bytes_written,
        ..Report::unchanged(before, unfinished)
    };
    // One that was being forgotten just then is as whole as it was.
    forgotten.retain(|id| !collection.seen.contains(id));
    let aftermath = Aftermath { collection: &collection, state, forgotten, now };
    match collected {
        Ok(Collected::Nothing) => aftermath.conclude(None, report).map(|report| Attempt::Done(Box::new(report))),
        Ok(Collected::Done(draft)) => {
            aftermath.conclude(Some(draft.packs.len() as u64), report).map(|report| Attempt::Done(Box::new(report)))
        }
        Ok(Collected::Blocked(_)) if monitor.stop() => Err(Error::Interrupted),
        Ok(Collected::Blocked(session)) => {
            let is_through = waiting.wait_outside(session)?;
            *waited = waiting.waited();
            if is_through {
                return Ok(Attempt::GaveWay);
            }
            if monitor.stop() { Err(Error::Interrupted) } else { Err(Error::Busy(describe(&desk, session))) }
        }
        Ok(Collected::Evicted) => Err(overtaken()),
        // Not where another one has overtaken it meanwhile.
        Err(error @ Error::Repo(_)) if aftermath.collection.lacks_room => Ok(Attempt::LacksRoom { error, before }),
        Err(e) => Err(e),
    }
}

fn overtaken() -> Error {
    Error::Overtaken("another prune has overtaken this one")
}

/// What is still to be done once it is settled what goes.
struct Aftermath<'a> {
    collection: &'a Collection<'a>,
    /// What lay in the storage before.
    state: State,
    /// Forgotten snapshots that nobody can have back any more.
    forgotten: Vec<SnapshotId>,
    now: Duration,
}

impl Aftermath<'_> {
    /// Clear up, bring parity up to date, and remember that there is nothing more to do, if so. `gone`: how many packs;
    /// `None`: there was nothing to remove.
    fn conclude(self, gone: Option<u64>, mut report: Report) -> Result<Report> {
        let Collection { repository, cache, options, monitor, .. } = *self.collection;
        repository.clear_forgotten(&self.forgotten)?;
        repository.clear_decided()?;
        report.cleared = self.forgotten.len() as u64;
        if gone.is_some() {
            repository.take_note(self.now.as_secs().cast_signed());
        }
        let made = self.collection.parity;
        report.parity =
            parity::afterwards(repository, cache, &options.parity(), &[], monitor)?.map(|mut afterwards| {
                afterwards.cost += made;
                afterwards
            });
        let after = State::of(repository, options)?;
        if let Some(packs) = gone {
            report.after = after.pack_bytes;
            report.gone = Tally { packs, bytes: self.collection.condemned };
        }
        if self.is_done(gone.is_some()) && self.is_looked_at(&after)? {
            after.remember(cache);
        }
        Ok(report)
    }

    /// Whether all was done that was to be done: with nothing held back, and nothing damaged, which the next one would
    /// try again and tell again.
    fn is_done(&self, has_removed: bool) -> bool {
        let Collection { repository, options, monitor, held, unsealed, survey, .. } = self.collection;
        let is_whole = monitor.counters().get().damaged == 0 && repository.healed().is_empty();
        let is_held = *held || options.max_repack.is_some() || survey.older.packs > 0;
        is_whole && !unsealed && !(has_removed && is_held)
    }

    /// Those that were looked at, and no others: one that was forgotten since leaves something to do.
    fn is_looked_at(&self, after: &State) -> Result<bool> {
        let same = after.snapshots().collect::<HashSet<_>>() == self.collection.seen;
        Ok(same && after.is_own(&self.state, self.collection.repository, self.collection.me)?)
    }
}

impl Options {
    fn policy(&self) -> Policy {
        let Options { wait, evict_after, .. } = *self;
        Policy { host: self.host.clone(), wait, evict: self.evict.clone(), evict_after }
    }

    /// To keep parity across packs up to date.
    fn parity(&self) -> parity::Options {
        parity::Options {
            host: self.host.clone(),
            shape: None,
            spoiled: HashSet::new(),
            evict: self.evict.clone(),
            evict_after: self.evict_after,
            workers: self.workers,
        }
    }
}
