//! Parity across packs: what packs that are gone as a whole, or damaged beyond their own parity, are made of again.
//!
//! Bands (`repo::band`) are made for the packs that the index names, and kept up to date as packs come and go. That is
//! no part of any protocol: bands are redundant, and whatever happens to them harms nobody. Still they don't go
//! lightly:
//!
//! - A new band is durable before one that it takes the place of goes. A prune makes the bands anew that have packs in
//!   them which go before it decides, and removes the old ones when the packs are gone.
//! - Bands are looked at before the index: so what is in a band was named by then, and what isn't named any more goes.
//! - Who removes bands has a session registered and is the only collector that has; and looks at all afresh after he
//!   has seen that. So no two remove each the band that the other one relies on, and what somebody is about to
//!   finish isn't taken for rubbish. With another collector at work, or a dead one's session, what could go stays until
//!   the next time.
//! - A band with a pack that the index names and that is lost, or that a repair has given up, stays as it is:
//!   `choose.rs`. So does one with a pack that no index object names any more, as long as snapshots need something that
//!   is nowhere: the object may have gone along with the pack, and a client that never saw it knows nothing of that.
//!
//! After a crash there are at worst parts of new bands and old ones beside new ones, and a session: the next run
//! removes them.

mod choose;
mod upkeep;

pub use choose::Shape;
pub(crate) use upkeep::{before_removal, outlook};

use crate::collect::silence::{Policy, Waiting, describe};
use crate::monitor::Monitor;
use crate::{Error, Result, convert};
use drumlin_format::session::purpose;
use drumlin_format::{BandId, PackId, SessionId};
use drumlin_repo::band::{Bands, Cost};
use drumlin_repo::collection::{Board, Desk, Patience, alone};
use drumlin_repo::{Cache, Repository, names, random_id};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use upkeep::{Done, Upkeep, Without};

/// So many lost packs are named.
const NAMED_MAX: usize = 4;

/// What to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// This machine's name.
    pub host: String,
    /// The shape of all bands; `None`: as most have it, or the default where there are none.
    pub shape: Option<Shape>,
    /// Bands that were found damaged by reading them.
    pub spoiled: HashSet<BandId>,
    /// Sessions that are known to be dead.
    pub evict: Vec<SessionId>,
    /// See [`crate::prune::Options`].
    pub evict_after: Duration,
    /// Threads.
    pub workers: usize,
}

/// Packs, and their bytes.
pub use crate::prune::Tally;

/// Recovery objects, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Objects {
    /// How many.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Objects {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.objects += 1;
        self.bytes += bytes;
    }
}

/// How things stand, and what was done, or would be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The shape of new bands.
    pub shape: Shape,
    /// Bands that cover packs.
    pub bands: u64,
    /// Bytes of all recovery objects.
    pub bytes: u64,
    /// Packs that any loss of as many as there are rows in their band spares.
    pub covered: Tally,
    /// Packs that are in the index and not covered.
    pub uncovered: Tally,
    /// Packs that the index names and that are not there, or not as they should be: a repair comes first.
    pub lost: u64,
    /// Whether something that snapshots need is in no pack that the index names: a repair comes first. (Looked for only
    /// where bands know other packs than the index.)
    pub missing: bool,
    /// Bands that were made, or are to be.
    pub made: u64,
    /// What that read and wrote, or would.
    pub cost: Cost,
    /// Bands that could not be made: packs are damaged, or nothing more can be written.
    pub failed: u64,
    /// Recovery objects that nobody needs any more and that were removed, and their bytes.
    pub removed: Objects,
    /// Of those, what could not be removed now, and why.
    pub left: Option<String>,
}

impl Report {
    /// This report, with the work of an earlier one added.
    pub(crate) fn after(mut self, before: &Report) -> Report {
        self.made += before.made;
        self.cost.read += before.cost.read;
        self.cost.written += before.cost.written;
        self.removed.objects += before.removed.objects;
        self.removed.bytes += before.removed.bytes;
        self
    }
}

/// Cover what isn't covered yet.
///
/// # Errors
/// The role doesn't allow it; something is missing that this client has seen; what concerns the storage as a whole.
pub fn cover(repository: &Repository, cache: &Arc<Cache>, options: &Options, monitor: &dyn Monitor) -> Result<Report> {
    with_session(repository, options, |desk, me, now| {
        let without = Without::nothing(repository, cache, options.workers, monitor)?;
        bring_up_to_date(repository, cache, options, &without, monitor, (desk, me, now))
    })
}

fn bring_up_to_date(
    repository: &Repository,
    cache: &Cache,
    options: &Options,
    without: &Without,
    monitor: &dyn Monitor,
    who: (&Desk, SessionId, Duration),
) -> Result<Report> {
    let done = upkeep::make_all(repository, options, without, monitor)?;
    let mut upkeep = Upkeep::look(repository, options, without)?;
    let Done { made, cost, failed, .. } = done;
    let mut report = Report { missing: without.missing, made, cost, failed, ..Report::default() };
    if upkeep.removable(false).objects > 0 {
        match in_the_way(repository, cache, options, monitor, who)? {
            Some(session) => report.left = Some(describe(who.0, session)),
            None => {
                // What was seen before may have been somebody's who has ended since, and who removed what this rests
                // on.
                upkeep = Upkeep::look(repository, options, without)?;
                report.removed = upkeep.removable(false);
                upkeep.remove()?;
                upkeep = Upkeep::look(repository, options, without)?;
            }
        }
    }
    upkeep.stands(&mut report);
    Ok(report)
}

/// What [`cover`] would do.
///
/// # Errors
/// As [`cover`].
pub fn plan(repository: &Repository, cache: &Arc<Cache>, options: &Options, monitor: &dyn Monitor) -> Result<Report> {
    repository.may_collect("make parity")?;
    let without = Without::nothing(repository, cache, options.workers, monitor)?;
    let upkeep = Upkeep::look(repository, options, &without)?;
    let mut report = Report { missing: without.missing, ..Report::default() };
    upkeep.stands(&mut report);
    (report.made, report.cost) = (upkeep.choice.steps.len() as u64, upkeep.choice.cost(&upkeep.bands));
    report.removed = upkeep.removable(true);
    Ok(report)
}

/// Whether there are any bands, or parts of some: then whoever removes packs keeps them up to date.
pub(crate) fn is_wanted(repository: &Repository) -> Result<bool> {
    let mut found = false;
    repository.store().list(names::PARITY, &mut |_| found = true).map_err(drumlin_repo::Error::from)?;
    Ok(found)
}

/// Remove all bands.
///
/// # Errors
/// As [`cover`]; [`Error::Busy`] if another collector is at work; [`Error::Refused`] if packs are lost, or something of
/// what was in them.
pub fn off(
    repository: &Repository,
    cache: &Arc<Cache>,
    options: &Options,
    dry_run: bool,
    monitor: &dyn Monitor,
) -> Result<Report> {
    let gone = |bands: &Bands| Report { removed: all(bands), ..Report::default() };
    if dry_run {
        repository.may_collect("make parity")?;
        refuse_needed(repository, cache, options, monitor)?;
        return Ok(gone(&Bands::look(repository)?));
    }
    with_session(repository, options, |desk, me, now| {
        if let Some(session) = in_the_way(repository, cache, options, monitor, (desk, me, now))? {
            return Err(Error::Busy(describe(desk, session)));
        }
        refuse_needed(repository, cache, options, monitor)?;
        let bands = Bands::look(repository)?;
        let ids: Vec<_> = bands.all.iter().map(|band| band.id()).collect();
        upkeep::remove(repository, &bands, &ids, true)?;
        Ok(gone(&bands))
    })
}

/// Fails if bands may be all that something can be made of again.
fn refuse_needed(repository: &Repository, cache: &Arc<Cache>, options: &Options, monitor: &dyn Monitor) -> Result<()> {
    let without = Without::nothing(repository, cache, options.workers, monitor)?;
    let upkeep = Upkeep::look(repository, options, &without)?;
    let named = |packs: &[PackId]| {
        let mut named: Vec<String> = packs.iter().take(NAMED_MAX).map(|pack| pack.to_string()).collect();
        named.extend((packs.len() > NAMED_MAX).then(|| format!("and {} others", packs.len() - NAMED_MAX)));
        named.join(", ")
    };
    let why = match (&upkeep.lost[..], &upkeep.given_up[..]) {
        ([], []) => return Ok(()),
        ([], given_up) => format!(
            "something that snapshots need is lost, and packs {} may have it: perhaps only parity across packs can \
             rebuild them, once more of what was coded with them is back; run 'drumlin repair', and the backups again",
            named(given_up)
        ),
        (lost, _) => format!(
            "not there as the index names them: packs {}; perhaps only parity across packs can rebuild them, so run \
             'drumlin repair' first",
            named(lost)
        ),
    };
    Err(Error::Refused(why))
}

fn all(bands: &Bands) -> Objects {
    let mut sum = Objects::default();
    bands.all.iter().flat_map(|band| band.objects.iter().flatten()).for_each(|len| sum.add(*len));
    bands.stray.iter().for_each(|(_, len)| sum.add(*len));
    sum
}

/// Do something while a session is registered.
fn with_session(
    repository: &Repository,
    options: &Options,
    work: impl FnOnce(&Desk, SessionId, Duration) -> Result<Report>,
) -> Result<Report> {
    repository.may_collect("make parity")?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    repository.refuse_unexplained(now.as_secs().cast_signed())?;
    repository.adopt_verdicts()?;
    let desk = Desk::of(repository, convert::session(&options.host, purpose::PARITY, now.as_secs().cast_signed()));
    let me = SessionId(random_id()?);
    desk.put_session(me)?;
    let done = work(&desk, me, now);
    // Failing that, it is a dead one's, and the next collector deals with it.
    let ended = desk.remove_session(me);
    let done = done?;
    ended?;
    Ok(done)
}

/// Another collector that is at work, or was killed and may not be known to be dead. Nobody is waited for: he may wait
/// for us.
fn in_the_way(
    repository: &Repository,
    cache: &Cache,
    options: &Options,
    monitor: &dyn Monitor,
    (desk, me, now): (&Desk, SessionId, Duration),
) -> Result<Option<SessionId>> {
    let (host, evict) = (options.host.clone(), options.evict.clone());
    let policy = Policy { host, wait: Duration::ZERO, evict, evict_after: options.evict_after };
    let mut waiting = Waiting::new(repository, cache, desk, policy, monitor, now);
    // Of a session that says nothing that can be believed nobody knows whether it collects.
    let collects = |of: &str| [purpose::PRUNE, purpose::REPAIR, purpose::PARITY].contains(&of);
    let mut counts = |id| Ok(desk.session(id)?.is_none_or(|session| collects(&session.purpose)));
    let mut patience = |session| match waiting.patience(session) {
        Patience::Wait => Patience::GiveUp,
        other => other,
    };
    Ok(alone(desk, me, &mut counts, &mut patience)?)
}

/// After packs were removed or moved: cover what isn't covered, and remove bands that nobody needs any more. Does
/// nothing where there are none. For who has seen that nothing is missing, or has put down what is. Packs that are
/// `damaged` are not coded as they are.
pub(crate) fn afterwards(
    repository: &Repository,
    cache: &Arc<Cache>,
    options: &Options,
    damaged: &[PackId],
    monitor: &dyn Monitor,
) -> Result<Option<Report>> {
    if !is_wanted(repository)? {
        return Ok(None);
    }
    let without = Without { unreadable: damaged.iter().copied().collect(), ..Without::default() };
    let work = |desk: &Desk, me, now| bring_up_to_date(repository, cache, options, &without, monitor, (desk, me, now));
    with_session(repository, options, work).map(Some)
}
