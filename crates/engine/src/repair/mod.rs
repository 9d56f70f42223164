//! Making a damaged repository sound: the index from the packs, what can be read of damaged packs into new ones, and a
//! list of what is lost, so that backups store it again.
//!
//! What forgotten snapshots need of damaged packs goes along, as long as no prune has removed it.
//!
//! Nothing is deleted but index objects that others take the place of. A damaged pack stays where it is, named by no
//! index: the disk may give it back, and then the next repair finds it whole. It goes by a prune, once nothing is
//! missing any more. Packs that are gone, or damaged beyond their own parity, are read through their bands
//! (`repo::band`) as far as those bear it; bands are brought up to date at the end. The config, keys and generations
//! are put again by their copies.
//!
//! A collection in the sense of `docs/collection.md`, since index objects are removed.

mod losses;
mod subject;

use crate::collect::silence::{Policy, Waiting, describe};
use crate::monitor::{Monitor, Problem};
use crate::{Error, Result, convert, parity};
use drumlin_format::session::purpose;
use drumlin_format::{BandId, PackId, PlanId, SessionId, SnapshotId};
use drumlin_repo::collection::{Board, Collected, Desk, bury, collect, discard};
use drumlin_repo::history::Act;
use drumlin_repo::{Cache, Repository, SnapshotInfo, names, random_id};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use subject::Mending;

/// What to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// This machine's name.
    pub host: String,
    /// Packs that were found damaged by reading them.
    pub damaged: HashSet<PackId>,
    /// Bands of which something was found damaged by reading their recovery objects.
    pub spoiled: HashSet<BandId>,
    /// How long to wait for sessions that are at work.
    pub wait: Duration,
    /// Sessions that are known to be dead.
    pub evict: Vec<SessionId>,
    /// See [`crate::prune::Options`].
    pub evict_after: Duration,
    /// Threads.
    pub workers: usize,
}

/// What was done.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Packs that the index has again.
    pub named: u64,
    /// Index objects that others took the place of.
    pub indexes: u64,
    /// Packs that the index named and that are gone, with what was in them.
    pub gone: Vec<PackId>,
    /// Packs that are gone and of which nothing that snapshots need was lost: their bands made it again, and it is in
    /// new packs now.
    pub made_again: Vec<PackId>,
    /// Packs that are damaged, of which something is lost, and that are in the index no more.
    pub damaged: Vec<PackId>,
    /// Packs that are damaged and stay in the index: only that tells where anything is in them, and this key can't tell
    /// what of it is whole.
    pub closed: Vec<PackId>,
    /// Packs that were damaged and of which nothing that snapshots need was lost, by their parity for one: it is in new
    /// packs now.
    pub mended: Vec<PackId>,
    /// Bytes of what was read of damaged packs and stored again.
    pub salvaged: u64,
    /// Chunks of file contents that snapshots need and that are lost.
    pub lost_chunks: u64,
    /// Snapshots that can't be read themselves.
    pub broken_snapshots: u64,
    /// Snapshots whose trees can't be read whole, and why: of several that share what is damaged, the one that led to
    /// it first.
    pub unreadable: Vec<(SnapshotId, String)>,
    /// Losses of before that are healed.
    pub healed: u64,
    /// Plans, losses and entries of the history that nobody could read.
    pub cleared: u64,
    /// Sessions that were to be ended, and were.
    pub evicted: Vec<SessionId>,
    /// Of the config, keys and generations of the secrets, and of their copies: how many were put again by the other
    /// one.
    pub copies: u64,
    /// Of keys and generations of the secrets, those of which neither the object nor its copy is sound, by their names:
    /// nothing makes them again.
    pub lost_objects: Vec<String>,
    /// Parity across packs afterwards, if there is any.
    pub parity: Option<parity::Report>,
}

impl Report {
    /// Whether there was nothing to do, and nothing is lost.
    pub fn is_sound(&self) -> bool {
        let bands = self.parity.as_ref().map_or(0, |parity| parity.made);
        let found = self.broken_snapshots
            + self.named
            + self.indexes
            + self.lost_chunks
            + self.healed
            + self.cleared
            + self.copies
            + self.evicted.len() as u64
            + bands;
        found == 0 && self.unreadable.is_empty() && self.lost_objects.is_empty() && self.closed.is_empty()
    }

    /// Add what was done after it: what is lost, and what can't be read, is as it is then.
    pub fn go_on(&mut self, then: Report) {
        let join = |packs: &mut Vec<PackId>, more: Vec<PackId>| {
            packs.extend(more);
            packs.sort_unstable();
            packs.dedup();
        };
        join(&mut self.gone, then.gone);
        join(&mut self.made_again, then.made_again);
        join(&mut self.damaged, then.damaged);
        join(&mut self.mended, then.mended);
        self.named += then.named;
        self.indexes += then.indexes;
        self.salvaged += then.salvaged;
        self.healed += then.healed;
        self.cleared += then.cleared;
        self.copies += then.copies;
        self.evicted.extend(then.evicted);
        self.parity = match (self.parity.take(), then.parity) {
            (Some(before), Some(then)) => Some(then.after(&before)),
            (before, then) => then.or(before),
        };
        (self.broken_snapshots, self.closed) = (then.broken_snapshots, then.closed);
        (self.lost_chunks, self.unreadable) = (then.lost_chunks, then.unreadable);
        self.lost_objects = then.lost_objects;
    }
}

/// So often all is looked at again, because snapshots came meanwhile.
const ROUNDS_MAX: usize = 3;

/// Repair.
///
/// # Errors
/// Something else than index objects is missing that this client has seen ([`drumlin_repo::Error::Unexplained`]);
/// [`Error::Busy`] if somebody is at work who may be harmed: then nothing is removed.
pub fn repair(repository: &Repository, cache: &Arc<Cache>, options: &Options, monitor: &dyn Monitor) -> Result<Report> {
    repository.may_collect("repair")?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let missing = repository.look_back(now.as_secs().cast_signed(), true)?;
    if !missing.is_but_indexes() {
        return Err(drumlin_repo::Error::Unexplained(Box::new(missing)).into());
    }
    repository.adopt_verdicts()?;
    let copies = repository.mend_copies()?;
    let desk = Desk::of(repository, convert::session(&options.host, purpose::REPAIR, now.as_secs() as i64));
    let Options { wait, evict_after, .. } = *options;
    let policy = Policy { host: options.host.clone(), wait, evict: options.evict.clone(), evict_after };
    let mut waiting = Waiting::new(repository, cache, &desk, policy, monitor, now);
    let mut report = Report { copies: copies.put, ..Report::default() };
    // Whether there is anything else to do or not.
    report.evicted = desk.sessions()?.into_iter().filter(|session| options.evict.contains(session)).collect();
    bury(&desk, &report.evicted, SessionId(random_id()?))?;
    report.cleared = clear_plans(&desk, &mut waiting, monitor)?;
    for (id, why) in repository.mend_history(Act::now("repair"))? {
        report.cleared += u64::from(matches!(why, drumlin_repo::Error::Damaged { .. }));
        tell(monitor, names::history(id), why);
    }
    for _ in 0..ROUNDS_MAX {
        let mut next = Some(Mending::new(repository, cache, options, monitor, SessionId(random_id()?)));
        let (mut looked_at, mut indexes) = (HashSet::new(), 0);
        while let Some(mut mending) = next {
            mend(&desk, &mut mending, &mut waiting, monitor)?;
            looked_at = std::mem::take(&mut mending.snapshots);
            let done;
            (done, next) = mending.next(SessionId(random_id()?));
            indexes += done.indexes;
            report.go_on(done);
        }
        // A backup that came to its end meanwhile may need what the index named when it began.
        let is_known = |info: &SnapshotInfo| looked_at.contains(&info.snapshot.id);
        if indexes == 0 || repository.snapshots()?.0.iter().all(is_known) {
            break;
        }
    }
    if report.indexes > 0 {
        // Who has met a loss while the index still named what is lost has found nothing to store.
        repository.renew_losses()?;
    }
    // What they named is named again, or counted as lost: whoever has seen them need look for them no more.
    repository.record(Act::now("repair"), &[], &missing.indexes)?;
    repository.take_note(now.as_secs().cast_signed());
    let bands = parity::Options {
        host: options.host.clone(),
        shape: None,
        spoiled: options.spoiled.clone(),
        evict: options.evict.clone(),
        evict_after: options.evict_after,
        workers: options.workers,
    };
    report.parity = parity::afterwards(repository, cache, &bands, &report.closed, monitor)?;
    report.lost_objects = copies.lost;
    Ok(report)
}

/// One collection.
fn mend(desk: &Desk, mending: &mut Mending, waiting: &mut Waiting, monitor: &dyn Monitor) -> Result<()> {
    let me = mending.me;
    match collect(desk, me, mending, &mut |session| waiting.patience(session)) {
        Ok(Collected::Nothing | Collected::Done(_)) => Ok(()),
        Ok(Collected::Blocked(session)) => Err(blocked(desk, session, monitor)),
        Ok(Collected::Evicted) => Err(overtaken()),
        Err(e) => Err(e),
    }
}

fn overtaken() -> Error {
    Error::Overtaken("another prune or repair has overtaken this one")
}

fn blocked(desk: &Desk, session: SessionId, monitor: &dyn Monitor) -> Error {
    if monitor.stop() { Error::Interrupted } else { Error::Busy(describe(desk, session)) }
}

/// Plans that can't be read stand in the way of whoever writes: they go, once nobody is at work. Gives how many.
fn clear_plans(desk: &Desk, waiting: &mut Waiting, monitor: &dyn Monitor) -> Result<u64> {
    let broken = desk.broken_plans()?;
    if broken.is_empty() {
        return Ok(0);
    }
    let plans: Vec<PlanId> = broken.iter().map(|(id, _)| *id).collect();
    if let Some(session) = discard(desk, &plans, SessionId(random_id()?), &mut |session| waiting.patience(session))? {
        return Err(blocked(desk, session, monitor));
    }
    broken.iter().for_each(|(id, why)| tell(monitor, names::plan(*id), why));
    Ok(broken.len() as u64)
}

/// Tell of an object that is damaged.
fn tell(monitor: &dyn Monitor, name: String, cause: impl ToString) {
    Problem::damage(name, cause.to_string()).tell(monitor);
}
