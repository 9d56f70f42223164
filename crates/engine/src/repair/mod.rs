//! Making a damaged repository sound: the index from the packs, what can be read of damaged packs into new ones, and a list of
//! what is lost, so that backups store it again.
//!
//! Nothing is deleted but index objects that others take the place of. A damaged pack stays where it is, named by no
//! index: the disk may give it back, and then the next repair finds it whole. It goes by a prune, once nothing is missing
//! any more. Packs that are gone, or damaged beyond their own parity, are read through their bands (`repo::band`) as far as those
//! bear it; bands are brought up to date at the end.
//!
//! A collection in the sense of `docs/collection.md`, since index objects are removed.

mod subject;

use crate::monitor::Monitor;
use crate::prune::silence::{Waiting, describe};
use crate::{Error, Result, convert, parity};
use drumlin_format::{BandId, PackId, SessionId, SnapshotId};
use drumlin_repo::collection::{Collected, Desk, collect, withdraw};
use drumlin_repo::history::Act;
use drumlin_repo::{Cache, Repository, random_id};
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
    /// Packs that are gone and of which nothing that snapshots need was lost: their bands made it again, and it is in new packs
    /// now.
    pub made_again: Vec<PackId>,
    /// Packs that are damaged, of which something is lost, and that are in the index no more.
    pub damaged: Vec<PackId>,
    /// Packs that were damaged and of which nothing that snapshots need was lost, by their parity for one: it is in new packs
    /// now.
    pub mended: Vec<PackId>,
    /// Bytes of what was read of damaged packs and stored again.
    pub salvaged: u64,
    /// Chunks of file contents that snapshots need and that are lost.
    pub lost_chunks: u64,
    /// Snapshots whose trees can't be read whole, and why.
    pub unreadable: Vec<(SnapshotId, String)>,
    /// Losses of before that are healed.
    pub healed: u64,
    /// Objects of generations of the secrets that were put again by their copies.
    pub generations: u64,
    /// Parity across packs afterwards, if there is any.
    pub parity: Option<parity::Report>,
}

impl Report {
    /// Whether there was nothing to do, and nothing is lost.
    pub fn is_sound(&self) -> bool {
        let bands = self.parity.as_ref().map_or(0, |parity| parity.made);
        let found = self.named + self.indexes + self.lost_chunks + self.healed + self.generations + bands;
        found == 0 && self.unreadable.is_empty()
    }
}

/// Repair.
///
/// # Errors
/// Something else than index objects is missing that this client has seen ([`drumlin_repo::Error::Unexplained`]);
/// [`Error::Busy`] if somebody is at work who may be harmed: then nothing is removed.
pub fn repair(repository: &Repository, cache: &Arc<Cache>, options: &Options, monitor: &dyn Monitor) -> Result<Report> {
    repository.may_collect()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let missing = repository.look_back(now.as_secs().cast_signed(), true)?;
    if !missing.is_but_indexes() {
        return Err(drumlin_repo::Error::Unexplained(Box::new(missing)).into());
    }
    let generations = repository.mend_generations()?;
    let desk = Desk::of(repository, convert::session(&options.host, "repair", now.as_secs() as i64));
    let me = SessionId(random_id()?);
    let mut mending = Mending::new(repository, cache, options, monitor, me);
    let patience = crate::prune::Options {
        host: options.host.clone(),
        max_unused: crate::prune::Unused::Unlimited,
        max_repack: None,
        max_rekey: crate::prune::Unused::Bytes(0),
        allow_remove_all: false,
        wait: options.wait,
        evict: options.evict.clone(),
        evict_after: options.evict_after,
        workers: options.workers,
    };
    let mut waiting = Waiting::new(repository, cache, &desk, &patience, monitor, now);
    let collected = collect(&desk, me, &mut mending, &mut |session| waiting.patience(session));
    match collected {
        Ok(Collected::Nothing | Collected::Done(_)) => {
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
            mending.report.parity = parity::afterwards(repository, cache, &bands, monitor)?;
            Ok(Report { generations, ..mending.report })
        }
        Ok(Collected::Blocked(_)) if monitor.stop() => Err(Error::Interrupted),
        Ok(Collected::Blocked(session)) => Err(Error::Busy(describe(&desk, session))),
        Ok(Collected::Evicted) => {
            let _ = withdraw(&desk, me);
            Err(Error::Busy("another prune or repair has overtaken this one".into()))
        }
        Err(e) => {
            let _ = withdraw(&desk, me);
            Err(e)
        }
    }
}
