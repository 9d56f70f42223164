//! Looking at bands and packs, making bands, removing them.

use super::choose::{Ask, Choice, Step, choose};
use super::{Objects, Options, Report, Tally};
use crate::collect::ground::Ground;
use crate::collect::need::Need;
use crate::lock::lock;
use crate::monitor::{Monitor, Problem, ProblemKind, add};
use crate::{Error, Result};
use drumlin_format::band::Member;
use drumlin_format::{BandId, PackId};
use drumlin_repo::band::{Bands, Cost, Through, make};
use drumlin_repo::{Cache, Repository, names};
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What is about to go.
#[derive(Clone, Debug, Default)]
pub(crate) struct Without {
    /// Packs that will be removed.
    pub packs: HashSet<PackId>,
    /// Whether nobody needs what the index names and the storage doesn't have. What it has cut short may be needed.
    pub lost: bool,
    /// Packs that can't be read: those that are in no band are passed over.
    pub unreadable: HashSet<PackId>,
    /// Something is missing that snapshots need: it may be in packs that bands know, and no index object any more.
    pub missing: bool,
}

impl Without {
    /// Nothing is about to go; what nobody explains is looked for ([`Without::missing`]). Where all packs of bands are
    /// named, as they nearly always are, that takes nothing.
    pub fn nothing(repository: &Repository, cache: &Arc<Cache>, workers: usize, monitor: &dyn Monitor) -> Result<Self> {
        let bands = Bands::look(repository)?;
        let mut ground = Ground::look(repository)?;
        ground.refuse_broken()?;
        let mut members = bands.all.iter().flat_map(|band| band.head.members());
        let missing = members.any(|m| !ground.named.contains_key(&m.pack))
            && Need::is_unmet(repository, cache, workers, monitor)?;
        Ok(Without { missing, ..Without::default() })
    }
}

/// What was made.
#[derive(Clone, Debug, Default)]
pub(super) struct Done {
    pub made: u64,
    pub cost: Cost,
    pub failed: u64,
    /// Packs of the bands that could not be brought up to date.
    members: HashSet<PackId>,
}

/// A band that could not be made, by the number of its step, and why.
type Failure = (usize, drumlin_repo::Error);

/// So often it is looked again if what was to be read is gone: somebody else is at work.
const TRIES: usize = 3;

/// How things stand, and what there is to do.
pub(super) struct Upkeep<'a> {
    repository: &'a Repository,
    options: &'a Options,
    pub bands: Bands,
    pub choice: Choice,
    wanted: BTreeMap<PackId, Member>,
    /// Packs that the index names and that are not there as it does.
    pub lost: Vec<PackId>,
    /// Packs of bands that the index doesn't name, and that may have what is lost.
    pub given_up: Vec<PackId>,
    /// Bands that say otherwise of a pack than the index, which is signed: nothing of theirs is made use of.
    lying: HashSet<BandId>,
}

impl<'a> Upkeep<'a> {
    /// Look, and choose.
    pub fn look(repository: &'a Repository, options: &'a Options, without: &Without) -> Result<Self> {
        // In this order: what is in a band was named before it was made.
        let bands = Bands::look(repository)?;
        let mut ground = Ground::look(repository)?;
        ground.refuse_broken()?;
        let losses = !repository.loss_ids()?.is_empty();
        let lies =
            |m: Member| ground.named.get(&m.pack).is_some_and(|(info, _)| (info.kind, info.len) != (m.kind, m.len));
        let lying: HashSet<BandId> =
            bands.all.iter().filter(|band| band.head.members().any(lies)).map(|band| band.id()).collect();
        let spoiled = options.spoiled.union(&lying).copied().collect();
        let mut ask = Ask { shape: options.shape, spoiled, ..Ask::default() };
        for (id, (info, _)) in ground.named.iter().filter(|(id, _)| !without.packs.contains(id)) {
            if ground.packs.get(id) == Some(&(info.kind, info.len)) {
                ask.wanted.insert(*id, Member { pack: *id, kind: info.kind, len: info.len });
            } else if !without.lost || ground.packs.contains_key(id) {
                ask.held.insert(*id);
            }
        }
        if !ask.held.is_empty() {
            // Who was evicted and wrote all the same may name what is gone as nobody's.
            let evicted = ground.of_evicted(repository)?;
            let naming =
                |id: &PackId| ground.naming(&HashSet::from([*id])).iter().any(|object| !evicted.contains(object));
            ask.held.retain(naming);
        }
        let mut lost: Vec<PackId> = ask.held.iter().copied().collect();
        lost.sort_unstable();
        let in_bands: HashSet<PackId> = bands.all.iter().flat_map(|band| band.head.members()).map(|m| m.pack).collect();
        ask.wanted.retain(|id, _| in_bands.contains(id) || !without.unreadable.contains(id));
        // What a repair has given up may yet be had back, with what the disk gives back; and what went along with the
        // index object that named it, by a repair.
        let is_given_up =
            |id: &PackId| (losses || without.missing) && !ground.named.contains_key(id) && !without.packs.contains(id);
        let mut given_up: Vec<PackId> = in_bands.into_iter().filter(is_given_up).collect();
        given_up.sort_unstable();
        ask.held.extend(&given_up);
        let choice = choose(&bands, &ask);
        Ok(Upkeep { repository, options, bands, choice, wanted: ask.wanted, lost, given_up, lying })
    }

    /// Make what there is to make. Gives what could not be made.
    fn make(&self, monitor: &dyn Monitor, done: &mut Done) -> Result<Vec<Failure>> {
        let steps = &self.choice.steps;
        add(&monitor.counters().expected_bytes, self.choice.cost(&self.bands).read);
        let honest = self.bands.all.iter().filter(|band| !self.lying.contains(&band.id())).cloned().collect();
        let through = Through::new(self.repository, &Bands { all: honest, ..Bands::default() });
        let (next, made, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        let work = || -> Result<()> {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(step) = steps.get(number) else { return Ok(()) };
                let each = |bytes| add(&monitor.counters().bytes, bytes);
                let stop = || monitor.stop();
                match make(self.repository, &self.bands, &through, &step.recipe, &stop, &each) {
                    Ok(Some(new)) => lock(&made).push(new.cost),
                    Ok(None) => return Err(Error::Interrupted),
                    // Nothing can be written there at all, or by this account.
                    Err(e) if e.is_unwritten() && e.is_refused() => return Err(e.into()),
                    Err(e) if e.is_of_one_object() || e.frozen().is_some() => lock(&failed).push((number, e)),
                    Err(e) => return Err(e.into()),
                }
            }
        };
        crate::threads::on_threads("parity", self.options.workers.min(steps.len()).max(1), work)?;
        for cost in made.into_inner().unwrap_or_else(PoisonError::into_inner) {
            done.made += 1;
            done.cost += cost;
        }
        Ok(failed.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether what a step of an earlier look read and covered is as it was then: so it is damaged.
    fn has_still(&self, step: &Step) -> bool {
        let mut members = step.recipe.seats.iter().flatten();
        members.all(|m| self.wanted.get(&m.pack) == Some(m))
            && step.replaces.iter().all(|id| self.bands.get(*id).is_some())
    }

    /// How things stand.
    pub fn stands(&self, report: &mut Report) {
        report.shape = self.choice.shape;
        report.lost = self.lost.len() as u64;
        report.bands = self.choice.stay.len() as u64;
        report.bytes = super::all(&self.bands).bytes;
        self.choice.uncovered.iter().for_each(|m| count(&mut report.uncovered, m.len));
        let uncovered: HashSet<PackId> = self.choice.uncovered.iter().map(|m| m.pack).collect();
        self.wanted.values().filter(|m| !uncovered.contains(&m.pack)).for_each(|m| count(&mut report.covered, m.len));
    }

    /// Recovery objects that can go now, or will when all is made that is to be.
    pub fn removable(&self, later: bool) -> Objects {
        let mut sum = Objects::default();
        let stays = |id: &BandId| self.choice.stay.contains(id) || self.choice.held.contains(id);
        let goes = |id: &BandId| if later { !stays(id) } else { self.choice.removable.contains(id) };
        for band in self.bands.all.iter().filter(|band| goes(&band.id())) {
            band.objects.iter().flatten().for_each(|len| sum.add(*len));
        }
        if later || self.clears_strays() {
            self.bands.stray.iter().for_each(|(_, len)| sum.add(*len));
        }
        sum
    }

    /// Of what nobody can say what it is of something may yet be made as long as anything is wrong.
    fn clears_strays(&self) -> bool {
        self.choice.steps.is_empty() && self.choice.held.is_empty()
    }

    /// Remove what can go.
    pub fn remove(&self) -> Result<()> {
        remove(self.repository, &self.bands, &self.choice.removable, self.clears_strays())
    }
}

/// Make all bands that there are to make. What can't be made is told, if packs are damaged.
pub(super) fn make_all(
    repository: &Repository,
    options: &Options,
    without: &Without,
    monitor: &dyn Monitor,
) -> Result<Done> {
    let (mut done, mut without) = (Done::default(), without.clone());
    for _ in 0..TRIES {
        let upkeep = Upkeep::look(repository, options, &without)?;
        let failures = upkeep.make(monitor, &mut done)?;
        if failures.is_empty() {
            break;
        }
        let now = Upkeep::look(repository, options, &without)?;
        for (number, why) in failures {
            let step = &upkeep.choice.steps[number];
            if !now.has_still(step) {
                continue;
            }
            done.failed += 1;
            let old = step.replaces.iter().filter_map(|id| upkeep.bands.get(*id));
            done.members.extend(old.flat_map(|band| band.head.members()).map(|m| m.pack));
            let path = names::PARITY.as_bytes().to_vec();
            if why.is_unwritten() {
                // A quota, perhaps, or a disk: it is no pack's fault, and room may come of what goes.
                let cause = format!("{why}; packs that are coded with what it was to take the place of stay");
                monitor.problem(&Problem { path, kind: ProblemKind::Unreadable, cause });
            } else if why.frozen().is_some() {
                // Nothing is wrong with it, and to have it brought back costs more than what is to go with it takes.
                let cause =
                    format!("{why}; packs coded with it, or to be coded with it, wait until it is brought back");
                monitor.problem(&Problem { path, kind: ProblemKind::Unreadable, cause });
            } else {
                let cause = format!("{why}; packs to be coded with it wait for 'drumlin repair --read-data'");
                monitor.problem(&Problem { path, kind: ProblemKind::Damaged, cause });
                add(&monitor.counters().damaged, 1);
            }
            // The others of its band need not wait for it.
            without.unreadable.extend(about(&why));
        }
    }
    Ok(done)
}

/// The pack that a failure is about.
fn about(why: &drumlin_repo::Error) -> Option<PackId> {
    match why {
        drumlin_repo::Error::Store(e) => PackId::parse(names::last(&e.name)),
        drumlin_repo::Error::Damaged { object, .. } => PackId::parse(names::last(object)),
        _ => None,
    }
}

fn count(sum: &mut Tally, len: u64) {
    sum.packs += 1;
    sum.bytes += len;
}

/// Remove bands, durably: their first objects first, so that nobody takes what is left of them for one that was
/// damaged.
pub(super) fn remove(repository: &Repository, bands: &Bands, ids: &[BandId], strays: bool) -> Result<()> {
    let of = || bands.all.iter().filter(|band| ids.contains(&band.id()));
    let store = repository.store();
    let remove = |ids: &mut dyn Iterator<Item = _>| -> drumlin_repo::Result<()> {
        let mut any = false;
        for id in ids {
            store.delete(&names::recovery(id))?;
            any = true;
        }
        if any { Ok(store.sync()?) } else { Ok(()) }
    };
    remove(&mut of().filter_map(|band| band.ids().next()))?;
    remove(&mut of().flat_map(|band| band.ids().skip(1)))?;
    if strays {
        remove(&mut bands.stray.iter().map(|(id, _)| *id))?;
    }
    Ok(())
}

/// Before packs are removed: bands without them, durably. Gives those of them that have to stay, because a band with
/// one of them in it could not be made anew: what is damaged there may be healed by it.
pub(crate) fn before_removal(
    repository: &Repository,
    options: &Options,
    packs: &[PackId],
    monitor: &dyn Monitor,
) -> Result<(HashSet<PackId>, Cost)> {
    if !super::is_wanted(repository)? {
        return Ok(Default::default());
    }
    let without = Without { packs: packs.iter().copied().collect(), lost: true, ..Without::default() };
    let done = make_all(repository, options, &without, monitor)?;
    // Where a band is held, the lost packs in it may need all others.
    let upkeep = Upkeep::look(repository, options, &without)?;
    let held = upkeep.choice.held.iter().filter_map(|id| upkeep.bands.get(*id));
    let members = held.flat_map(|band| band.head.members()).map(|m| m.pack).chain(done.members);
    Ok((members.filter(|pack| without.packs.contains(pack)).collect(), done.cost))
}

/// What [`before_removal`] would do: how many bands it would make, and what that costs.
pub(crate) fn outlook(repository: &Repository, options: &Options, packs: HashSet<PackId>) -> Result<(u64, Cost)> {
    if !super::is_wanted(repository)? {
        return Ok(Default::default());
    }
    let upkeep = Upkeep::look(repository, options, &Without { packs, lost: true, ..Without::default() })?;
    Ok((upkeep.choice.steps.len() as u64, upkeep.choice.cost(&upkeep.bands)))
}
