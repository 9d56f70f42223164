//! The two looks of a collection: `docs/collection.md`, steps 3 and 6.

use super::weigh::{Choice, Scales};
use super::{Options, Survey, Unused};
use crate::collect::duplicates::Duplicates;
use crate::collect::ground::{self, Ground};
use crate::collect::naming::{Naming, parts};
use crate::collect::need::Need;
use crate::collect::places::Places;
use crate::collect::rank::Ranks;
use crate::collect::repack::Repack;
use crate::lock::lock;
use crate::monitor::{Monitor, Problem, ProblemKind};
use crate::reach::keys::Keys;
use crate::reach::marks::Marks;
use crate::{Error, Result, parity};
use drumlin_format::loss::Loss;
use drumlin_format::pack::PackKind;
use drumlin_format::snapshot::Snapshot;
use drumlin_format::{ChunkId, IndexId, LossId, PackId, PlanId, SessionId, SnapshotId};
use drumlin_repo::band::Cost;
use drumlin_repo::collection::{Desk, Draft, Known, Registration, Subject};
use drumlin_repo::{Cache, PackInfo, Repository, WriteSession, names, random_id};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

/// Index objects below this length are small; more of them than [`SMALL_OBJECTS_MAX`] are made into few.
const SMALL_OBJECT_BYTES: u64 = 256 << 10;
const SMALL_OBJECTS_MAX: usize = 32;
/// So often packs are chosen anew because of duplicates that turn out to be no good; after that all duplicates are
/// looked at.
const CHOICES_MAX: usize = 4;

/// A collection of a repository.
pub(super) struct Collection<'a> {
    pub repository: &'a Repository,
    pub cache: &'a Arc<Cache>,
    pub options: &'a Options,
    pub monitor: &'a dyn Monitor,
    pub me: SessionId,
    /// Packs and index objects that are written in the place of others.
    pub session: Option<WriteSession>,
    /// The chunks of the packs that the first look found.
    pub keys: Option<Arc<Keys>>,
    /// The snapshots of the first look.
    pub seen: HashSet<SnapshotId>,
    /// What was found.
    pub survey: Survey,
    /// The losses that stood at the first look.
    pub losses: HashSet<LossId>,
    /// Packs that may go at any time by another's plan.
    pub shunned: HashSet<PackId>,
    /// Bytes of the packs that are condemned.
    pub condemned: u64,
    /// What bands without them cost.
    pub parity: Cost,
    /// Some stay that nobody needs: a band without them can't be made for now.
    pub held: bool,
    /// Whether there was no room for what was to be written anew. Nothing was decided on by then.
    pub lacks_room: bool,
    /// Some snapshot could not be sealed anew for now.
    pub unsealed: bool,
}

/// What a first look found and chose.
pub(super) struct Look {
    ground: Ground,
    snapshots: Vec<Snapshot>,
    places: Places,
    marks: Marks,
    /// Packs of which nothing is needed.
    unused: Vec<PackId>,
    /// Packs to be written anew.
    repack: Vec<PackInfo>,
    /// Index objects to be written anew: small ones, if there are many, and those of sessions that were evicted.
    objects: Vec<IndexId>,
    /// Losses of which nothing is missing any more.
    pub healed: Vec<LossId>,
    /// Losses some of whose chunks are there again, without those: if one of these goes missing once more, that must
    /// not pass for a known loss.
    pub narrowed: Vec<Loss>,
    /// All losses that stand.
    losses: HashSet<LossId>,
    /// Snapshots that are to be sealed anew.
    reseal: Vec<SnapshotId>,
    /// What is damaged and stays: to be told if this look is the one that counts.
    pub problems: Vec<Problem>,
    /// What it comes to.
    pub survey: Survey,
}

impl Look {
    /// Look at everything and change nothing. What `plans` condemn may be removed at any time, or never. The snapshots
    /// in `forgotten` are treated as forgotten.
    pub fn at(
        repository: &Repository,
        cache: &Arc<Cache>,
        options: &Options,
        (plans, forgotten): (&Known, &[SnapshotId]),
        monitor: &dyn Monitor,
    ) -> Result<Self> {
        let condemned = &plans.condemned();
        let forgotten: HashSet<SnapshotId> = forgotten.iter().copied().collect();
        let mut snapshots = repository.standing_snapshots()?;
        snapshots.retain(|snapshot| !forgotten.contains(&snapshot.id));
        let mut ground = Ground::look(repository)?;
        ground.refuse_broken()?;
        ground.refuse_empty(&snapshots)?;
        if !options.allow_remove_all {
            ground.refuse_all(&snapshots)?;
        }
        // Those that nobody signed who may stand as well, and say nothing.
        let standing = repository.loss_ids()?.into_iter().collect();
        let losses = repository.losses()?;
        // What a repair has put aside may yet be of use.
        let aside: HashSet<&PackId> = losses.iter().flat_map(|loss| &loss.packs).collect();
        ground.packs.retain(|pack, _| !aside.contains(pack));
        let known: HashSet<PackId> = ground.known().collect();
        let newest = repository.generation()?;
        let is_newest = |pack: &PackId| ground.named.get(pack).is_some_and(|(info, _)| info.generation == newest);
        let own = writers_trees(repository, &ground, newest)?;
        let is_choice =
            |pack: &PackId| is_newest(pack) && (own.is_empty() || !is_tree(&ground, pack) || own.contains(pack));
        let mixed = known.iter().any(|pack| !is_choice(pack));
        // Of chunks that exist twice, the one sealed with the newest secrets stays; of nodes, the one that the writers
        // of the snapshots can open.
        let comes_first = |pack: &PackId| !condemned.contains(pack) && (!mixed || is_choice(pack));
        let first = known.iter().filter(|pack| comes_first(pack)).copied().collect();
        let reserve = if condemned.is_empty() && !mixed { HashSet::new() } else { known.clone() };
        let (keys, broken) = ground.keys(repository, cache, options.workers, monitor)?;
        ground::refuse(broken)?;
        let places = Places::new(repository, cache, (&ground, keys), (first, reserve), options.workers)?;
        let mut need = Need::new(&places, options.workers, monitor);
        need.add(&snapshots)?;
        let (marks, lost) = need.finish();
        let (missing, healed) = (unexpected(&lost, &losses), lost.is_empty());
        if missing > 0 {
            return Err(Error::Doubt(format!(
                "{missing} chunks that snapshots need are in none of the packs that the storage lists; \
                 'drumlin check' tells which snapshots that are, and 'drumlin repair' heals or gives up what is missing"
            )));
        }
        let known = HashMap::new();
        let damaged = BTreeMap::new();
        let mut scales =
            Scales { repository, ground: &ground, places: &places, options, condemned, newest, known, damaged };
        let mut duplicates = Duplicates::find(repository, &places, &ground)?;
        let mut rounds = 0..CHOICES_MAX;
        let Choice { unused, repack, mut survey } = loop {
            let choice = scales.choose(&marks)?;

            let goes = if rounds.next().is_some() { choice.goes() } else { ground.known().collect() };
            if duplicates.keep_unproven(&marks, &goes, monitor)? == 0 {
                break choice;
            }
        };
        let problems = scales.problems().chain(duplicates.problems()).collect();
        (survey.snapshots, survey.lost) = (snapshots.len(), ground.lost().count());
        ground.orphans().for_each(|pack| survey.orphans.add(ground.packs[&pack].1));
        let (objects, small) = replaced_objects(repository, &ground, (&places, newest), plans)?;
        survey.indexes = small;
        let mut reseal =
            if options.max_rekey == Unused::Bytes(0) { Vec::new() } else { repository.older_snapshots()? };
        reseal.retain(|id| !forgotten.contains(id));
        survey.resealed = reseal.len();
        let (healed, narrowed) = match healed {
            true => (losses.iter().map(|loss| loss.id).collect(), Vec::new()),
            false => (Vec::new(), losses.into_iter().filter_map(|loss| narrowed(loss, &lost)).collect()),
        };
        let look = Look {
            healed,
            narrowed,
            losses: standing,
            reseal,
            ground,
            snapshots,
            places,
            marks,
            unused,
            repack,
            objects,
            problems,
            survey,
        };
        Ok(look)
    }

    /// The packs that would go.
    pub fn goes(&self) -> HashSet<PackId> {
        let repacked = self.repack.iter().map(|info| info.id);
        self.unused.iter().copied().chain(repacked).chain(self.ground.orphans()).collect()
    }

    fn is_idle(&self) -> bool {
        self.unused.is_empty()
            && self.repack.is_empty()
            && self.objects.is_empty()
            && self.ground.orphans().next().is_none()
    }
}

fn is_tree(ground: &Ground, pack: &PackId) -> bool {
    ground.packs.get(pack).is_some_and(|(kind, _)| *kind == PackKind::Tree)
}

/// Index objects in whose place others are written, and how many of them because they are small and many.
fn replaced_objects(
    repository: &Repository,
    ground: &Ground,
    (places, newest): (&Places, u32),
    plans: &Known,
) -> Result<(Vec<IndexId>, usize)> {
    let mut objects: Vec<_> =
        ground.objects.iter().filter(|(_, (len, _))| *len < SMALL_OBJECT_BYTES).map(|(id, _)| *id).collect();
    if objects.len() <= SMALL_OBJECTS_MAX {
        objects.clear();
    }
    let small = objects.len();
    objects.extend(ground.of_evicted(repository)?);
    objects.extend(plans.plans.iter().flat_map(|plan| &plan.indexes).filter(|id| ground.objects.contains_key(*id)));
    // What is said of a pack that can't be asked itself is as good as what else is said of it.
    let keys = places.keys();
    objects.extend(ground.naming(&keys.contested.difference(&keys.unsettled).copied().collect()));
    // A backup would take what they name for stored.
    objects.extend(ground.naming(&ground.lost().collect()));
    // Those of older generations that name no pack of one: nothing else would ever make them anew.
    let is_newest = |pack: &PackId| ground.named.get(pack).is_some_and(|(info, _)| info.generation == newest);
    let bare = |id: &IndexId| {
        let (_, named) = &ground.objects[id];
        named.iter().all(|pack| !ground.packs.contains_key(pack) || is_newest(pack))
    };
    objects.extend(ground.generations.iter().filter(|(id, tag)| **tag != newest && bare(id)).map(|(id, _)| *id));
    Ok((objects, small))
}

/// After new secrets were given: the tree packs that clients have written which can open no others.
fn writers_trees(repository: &Repository, ground: &Ground, newest: u32) -> Result<HashSet<PackId>> {
    if newest == 0 {
        return Ok(HashSet::new());
    }
    let trees = ground.known().filter(|pack| is_tree(ground, pack)).map(|pack| &ground.named[&pack].0);
    Ok(repository.of_writers(trees.filter(|info| info.generation == newest))?)
}

/// A loss without what is there again; `None` if all of it is missing still.
fn narrowed(mut loss: Loss, missing: &HashSet<ChunkId>) -> Option<Loss> {
    let before = loss.chunks.len();
    loss.chunks.retain(|id| missing.contains(id));
    (loss.chunks.len() < before).then_some(loss)
}

/// How many chunks are missing that no loss speaks of.
fn unexpected(missing: &HashSet<ChunkId>, losses: &[Loss]) -> usize {
    let given_up: HashSet<&ChunkId> = losses.iter().flat_map(|loss| &loss.chunks).collect();
    missing.iter().filter(|id| !given_up.contains(id)).count()
}

impl Collection<'_> {
    /// Seal snapshots with the newest secrets.
    fn reseal(&mut self, snapshots: &[SnapshotId]) -> Result<()> {
        self.survey.resealed = 0;
        for id in snapshots {
            if self.monitor.stop() {
                return Err(Error::Interrupted);
            }
            if self.repository.reseal_snapshot(*id, self.me)? {
                self.survey.resealed += 1;
            } else if self.repository.is_half_forgotten(*id)? {
                self.unsealed = true;
                let copy = names::forgotten(*id);
                let cause = format!(
                    "older secrets still open it: a 'forget' of it is running or was interrupted, and it isn't re-encrypted \
                     while '{copy}' is there; 'drumlin forget {id}' forgets it; to keep it, remove that object from the \
                     storage"
                );
                let path = names::snapshot(*id).into_bytes();
                Problem { path, kind: ProblemKind::Unwritable, cause }.tell(self.monitor);
            }
        }
        Ok(())
    }

    /// Have new index objects name what these ones name, except for packs that are condemned or gone. If these disagree
    /// about a pack, the new ones say what its own table says; as long as that can't be read, all that these say.
    fn name_again(&self, ground: &Ground, objects: &[IndexId], condemned: &HashSet<PackId>) -> Result<()> {
        let Some(session) = &self.session else { return Ok(()) };
        let contested = self.keys.as_ref().map(|keys| ground.lens(&keys.contested)).unwrap_or_default();
        let mut naming = Naming::new(self.repository, contested)?;
        for id in objects {
            // Another collector may have removed it, and named what it named.
            let Some(mut entries) = self.repository.index_entries(*id)? else { continue };
            entries.retain(|entry| ground.packs.contains_key(&entry.pack) && !condemned.contains(&entry.pack));
            for part in parts(entries) {
                for said in naming.hear(part)? {
                    naming.name_again(session, said)?;
                }
            }
        }
        naming.finish(session)?;
        Ok(session.flush()?)
    }
}

impl Collection<'_> {
    /// How things stand now, and what snapshots need that have come since the first look, if some have.
    fn since(&mut self, desk: &Desk, condemned: &HashSet<PackId>) -> Result<(Ground, Option<Marks>)> {
        if self.repository.loss_ids()?.into_iter().collect::<HashSet<_>>() != self.losses {
            // A repair has named again what the first look took for lost.
            return Err(Error::Doubt("a repair has ended meanwhile: run the prune again".into()));
        }
        let mut new = self.repository.standing_snapshots()?;
        new.retain(|snapshot| !self.seen.contains(&snapshot.id));
        let mut ground = Ground::look(self.repository)?;
        ground.refuse_broken()?;
        if new.is_empty() {
            return Ok((ground, None));
        }
        // What others may remove at any time stands for nothing: no writer that has come since has referred to it.
        let known: HashSet<PackId> = ground.known().filter(|pack| !self.shunned.contains(pack)).collect();
        let first = known.difference(condemned).copied().collect();
        let workers = self.options.workers;
        // Afresh: of what has come since, too, it is asked whether it is so.
        let (keys, broken) = ground.keys(self.repository, self.cache, workers, self.monitor)?;
        ground::refuse(broken)?;
        self.keys = Some(keys.clone());
        let places = Places::new(self.repository, self.cache, (&ground, keys), (first, known), workers)?;
        let mut need = Need::new(&places, workers, self.monitor);
        need.add(&new)?;
        let (marks, lost) = need.finish();
        let missing = unexpected(&lost, &self.repository.losses()?);
        if missing > 0 {
            return Err(Error::Doubt(format!(
                "a snapshot that was made meanwhile needs {missing} chunks that no pack has"
            )));
        }
        let own = self.session.as_ref().map(WriteSession::packs).unwrap_or_default();
        let mut duplicates = Duplicates::find(self.repository, &places, &ground)?.but_for(&own);
        duplicates.keep_unproven(&marks, condemned, self.monitor)?;
        self.tell(desk, &duplicates.problems().collect::<Vec<_>>())?;
        Ok((ground, Some(marks)))
    }

    /// Make parity across packs without those that go, before they go. What damaged packs may be healed by stays.
    fn keep_parity(&mut self, ground: &Ground, draft: &mut Draft, condemned: &mut HashSet<PackId>) -> Result<()> {
        let options = self.options.parity();
        let (stay, cost) = parity::before_removal(self.repository, &options, &draft.packs, self.monitor)?;
        self.parity = cost;
        if stay.is_empty() {
            return Ok(());
        }
        self.held = true;
        condemned.retain(|pack| !stay.contains(pack));
        draft.packs.retain(|pack| !stay.contains(pack));
        let naming = ground.naming(&stay);
        draft.indexes.retain(|id| naming.binary_search(id).is_err());
        Ok(())
    }
}

impl Subject<Desk<'_>> for Collection<'_> {
    type Error = Error;

    fn look(&mut self, desk: &Desk, known: &Known) -> Result<Option<Draft>> {
        let looked = self.choose(desk, known);
        self.unless_overtaken(desk, looked)
    }

    fn look_again(&mut self, desk: &Desk, draft: &mut Draft) -> Result<()> {
        let looked = self.acquit(desk, draft);
        self.unless_overtaken(desk, looked)
    }

    fn plan_id(&mut self) -> Result<PlanId> {
        Ok(PlanId(random_id()?))
    }

    fn is_in_doubt(&self) -> bool {
        // Its session ends now: what is still being closed would be named by nobody's.
        self.session.as_ref().inspect(|session| session.give_up()).is_some_and(WriteSession::is_in_doubt)
    }
}

impl Collection<'_> {
    /// What a prune can't find that somebody has taken for dead meanwhile was moved or removed under its eyes: of
    /// nothing of that it is told.
    fn unless_overtaken<T>(&self, desk: &Desk, looked: Result<T>) -> Result<T> {
        match looked {
            Err(e) if !matches!(e, Error::Interrupted) && matches!(desk.stands(self.me), Ok(false)) => {
                Err(super::overtaken())
            }
            looked => looked,
        }
    }

    /// Fails if somebody has taken this prune for dead: what it has seen may be so no more.
    fn refuse_overtaken(&self, desk: &Desk) -> Result<()> {
        if desk.stands(self.me)? { Ok(()) } else { Err(super::overtaken()) }
    }

    /// Tell of packs that are damaged and stay; as [`Collection::unless_overtaken`].
    fn tell<'p>(&self, desk: &Desk, problems: impl IntoIterator<Item = &'p Problem>) -> Result<()> {
        let mut problems = problems.into_iter().peekable();
        if problems.peek().is_some() {
            self.refuse_overtaken(desk)?;
        }
        problems.for_each(|problem| problem.tell(self.monitor));
        Ok(())
    }

    /// The first look: choose what is to go, and write what takes its place.
    fn choose(&mut self, desk: &Desk, known: &Known) -> Result<Option<Draft>> {
        let look_at = || Look::at(self.repository, self.cache, self.options, (known, &[]), self.monitor);
        let mut look = look_at()?;
        if !look.healed.is_empty() {
            // What was there when it walked may have been lost since, and be known by these.
            self.refuse_overtaken(desk)?;
            look.healed.iter().try_for_each(|loss| self.repository.remove_loss(*loss))?;
            // The packs that they kept from going are left over now.
            look = look_at()?;
        }
        self.tell(desk, &look.problems)?;
        if !look.narrowed.is_empty() {
            self.refuse_overtaken(desk)?;
        }
        look.narrowed.iter().try_for_each(|loss| self.repository.narrow_loss(loss))?;
        self.survey = look.survey;
        self.keys = Some(look.places.keys().clone());
        self.losses = look.losses.clone();
        self.shunned = known.condemned().into_iter().collect();
        self.seen = look.snapshots.iter().map(|s| s.id).collect();
        self.reseal(&look.reseal)?;
        if look.is_idle() {
            return Ok(None);
        }
        let registration = Registration::of_collector(self.repository, self.me, known.clone())?;
        let reader = look.places.reader();
        let session =
            self.session.insert(WriteSession::begin(registration, reader.index().clone(), self.cache.clone()));
        let stay = Mutex::default();
        if !look.repack.is_empty() {
            let packs: Vec<PackId> = look.repack.iter().map(|info| info.id).collect();
            let ranks = Ranks::find(&look.places, &packs, &look.snapshots, self.monitor)?;
            let repack = Repack {
                repository: self.repository,
                reader,
                session,
                marks: &look.marks,
                ranks: &ranks,
                monitor: self.monitor,
                workers: self.options.workers,
                spare: self.options.max_unused.spare(),
                leaves_frozen: true,
            };
            let moved = repack.run(&look.repack, &stay).and_then(|()| Ok(session.flush()?));
            let told = self.tell(desk, lock(&stay).values());
            self.lacks_room = matches!(&moved, Err(Error::Repo(e)) if e.is_full());
            // Why it ended comes first: on a line that is broken nothing can be asked for.
            moved?;
            told?;
        }
        let stay = stay.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut condemned: HashSet<PackId> = look.unused.iter().copied().collect();
        condemned.extend(look.repack.iter().map(|info| info.id).filter(|pack| !stay.contains_key(pack)));
        condemned.extend(look.ground.orphans());
        let mut indexes: Vec<IndexId> = look.ground.naming(&condemned);
        indexes.extend(&look.objects);
        indexes.sort_unstable();
        indexes.dedup();
        self.name_again(&look.ground, &indexes, &condemned)?;
        let mut packs: Vec<PackId> = condemned.into_iter().collect();
        packs.sort_unstable();
        let mut snapshots: Vec<SnapshotId> = self.seen.iter().copied().collect();
        snapshots.sort_unstable();
        Ok(Some(Draft { packs, indexes, snapshots, unnamed: Vec::new() }))
    }

    /// The second look: what is needed by now after all stays.
    fn acquit(&mut self, desk: &Desk, draft: &mut Draft) -> Result<()> {
        let mut condemned: HashSet<PackId> = draft.packs.iter().copied().collect();
        let (ground, needed) = self.since(desk, &condemned)?;
        if let Some(marks) = needed {
            // What it needs after all stays, and so do the index objects that name it, or what names it in their place;
            // and what of it is needed nobody knows.
            let is_contested = |pack: &PackId| self.keys.as_ref().is_some_and(|keys| keys.contested.contains(pack));
            condemned.retain(|pack| marks.of(pack).is_none() && !is_contested(pack));
            let acquitted: HashSet<PackId> =
                draft.packs.iter().filter(|pack| !condemned.contains(pack)).copied().collect();
            let naming = ground.naming(&acquitted);
            draft.packs.retain(|pack| condemned.contains(pack));
            draft.indexes.retain(|id| naming.binary_search(id).is_err());
        }
        self.keep_parity(&ground, draft, &mut condemned)?;
        let mut more = ground.naming(&condemned);
        // Who was evicted since the first look may have written what is needed.
        more.extend(ground.of_evicted(self.repository)?);
        more.sort_unstable();
        more.dedup();
        more.retain(|id| !id.is_of(&self.me) && !draft.indexes.contains(id));
        self.name_again(&ground, &more, &condemned)?;
        draft.indexes.extend(more);
        // What was moved is about to go where it stood.
        self.session.as_ref().map_or(Ok(()), WriteSession::refuse_lost)?;
        self.condemned = ground.bytes(&draft.packs);
        Ok(())
    }
}
