//! The two looks of a collection: `docs/collection.md`, steps 3 and 6.

use super::choose::{self, Candidate, Limits};
use super::ground::{self, Ground};
use super::need::Need;
use super::places::Places;
use super::rank::Ranks;
use super::repack::{self, Repack};
use super::{Options, Survey, Tally, Unused, duplicates};
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
use drumlin_repo::{Cache, PackInfo, PackScan, Repository, WriteSession, names, random_id};
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

/// Index objects below this length are small; more of them than [`SMALL_OBJECTS_MAX`] are made into few.
const SMALL_OBJECT_BYTES: u64 = 256 << 10;
const SMALL_OBJECTS_MAX: usize = 32;
/// A share of packs to be sealed with newer secrets is so much at the least: what is small is done in one run.
const REKEY_BYTES: u64 = 1 << 30;

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
    /// Bytes of the packs that are condemned.
    pub condemned: u64,
    /// What bands without them cost.
    pub parity: Cost,
    /// Some stay that nobody needs: a band without them can't be made for now.
    pub held: bool,
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
    /// Losses of which some is there again, as they are without that: what is there once more is not to be excused when it is missing.
    pub narrowed: Vec<Loss>,
    /// Snapshots that are to be sealed anew.
    reseal: Vec<SnapshotId>,
    /// What it comes to.
    pub survey: Survey,
}

impl Look {
    /// Look at everything and change nothing. Packs may be condemned already; and snapshots pass for forgotten.
    pub fn at(
        repository: &Repository,
        cache: &Arc<Cache>,
        options: &Options,
        (condemned, forgotten): (&BTreeSet<PackId>, &[SnapshotId]),
        monitor: &dyn Monitor,
    ) -> Result<Self> {
        let mut snapshots = repository.standing_snapshots()?;
        snapshots.retain(|snapshot| !forgotten.contains(&snapshot.id));
        let mut ground = Ground::look(repository)?;
        ground.refuse_broken()?;
        ground.refuse_empty(&snapshots)?;
        if !options.allow_remove_all {
            ground.refuse_all(&snapshots)?;
        }
        let losses = repository.losses()?;
        // What a repair has put aside may yet be of use.
        ground.packs.retain(|pack, _| !losses.iter().any(|loss| loss.packs.contains(pack)));
        let known: HashSet<PackId> = ground.known().collect();
        let newest = repository.generation()?;
        let is_newest = |pack: &PackId| ground.named.get(pack).is_some_and(|(info, _)| info.generation == newest);
        let own = writers_trees(repository, &ground, newest)?;
        let is_choice =
            |pack: &PackId| is_newest(pack) && (own.is_empty() || !is_tree(&ground, pack) || own.contains(pack));
        let mixed = known.iter().any(|pack| !is_choice(pack));
        // Of what stands twice, what is sealed with the newest secrets stays; and of nodes what those can open who took them.
        let comes_first = |pack: &PackId| !condemned.contains(pack) && (!mixed || is_choice(pack));
        let first = known.iter().filter(|pack| comes_first(pack)).copied().collect();
        let reserve = if condemned.is_empty() && !mixed { HashSet::new() } else { known.clone() };
        let (keys, broken) = ground.keys(repository, cache, options.workers, monitor)?;
        ground::refuse(broken)?;
        let places = Places::new(repository, cache, keys, (first, reserve), &HashSet::new(), options.workers)?;
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
        duplicates::keep_unproven(repository, &places, &ground, &marks, monitor)?;
        let (mut unused, mut candidates) = (Vec::new(), Vec::new());
        let mut survey = Survey { snapshots: snapshots.len(), lost: ground.lost().count(), ..Survey::default() };
        for (id, (kind, len)) in &ground.packs {
            survey.all.add(*len);
            let Some((info, chunks)) = ground.named.get(id) else { continue };
            if condemned.contains(id) {
                continue;
            }
            if places.keys().contested.contains(id) {
                // What is needed of it nobody knows before its index objects are made anew, by what it says itself.
                let path = names::pack(info.kind, info.id).into_bytes();
                let cause = "it stays as it is: two index objects say different things of it".into();
                monitor.problem(&Problem { path, kind: ProblemKind::Damaged, cause });
                survey.needed += len;
                continue;
            }
            let live = marks.of(id).map_or(0, |m| m.live);
            if live == 0 {
                unused.push(*id);
                continue;
            }
            let small = *len < u64::from(repository.config().pack_bytes) / choose::SMALL_PART;
            let cost = if live < *chunks || small {
                match places.reader().table(info) {
                    Ok(table) => repack::cost(repository, info, &table, &marks),
                    // It stays, and a check tells of it.
                    Err(e) if e.is_damage() => continue,
                    // In cold storage it stays as it is: to see what of it could go costs more than that.
                    Err(e) if e.frozen().is_some() => {
                        survey.needed += len;
                        continue;
                    }
                    Err(e) => return Err(e.into()),
                }
            } else {
                repack::Cost { unused: 0, drops: 0, moves: *len }
            };
            survey.needed += len - cost.unused;
            survey.unused += cost.unused;
            let older = repack::can_renew(repository, info).then(|| number_of(repository, info.generation));
            if info.generation != newest && older.is_none() {
                survey.older_closed.add(*len);
            }
            let repack::Cost { unused, drops, moves } = cost;
            candidates.push(Candidate { pack: *id, kind: *kind, older, len: *len, unused, drops, moves });
        }
        let limits = Limits {
            unused: options.max_unused,
            repack: options.max_repack.unwrap_or(u64::MAX),
            rekey: match options.max_rekey {
                Unused::Percent(share) if share > 0.0 => {
                    ((survey.all.bytes as f64 * share / 100.0) as u64).max(REKEY_BYTES)
                }
                Unused::Percent(_) => 0,
                Unused::Bytes(bytes) => bytes,
                Unused::Unlimited => u64::MAX,
            },
            pack_bytes: u64::from(repository.config().pack_bytes),
        };
        let mut chosen = choose::choose(&candidates, survey.needed, limits);
        chosen.sort_unstable();
        for candidate in candidates.iter().filter(|c| chosen.binary_search(&c.pack).is_ok()) {
            survey.repacked.add(candidate.len);
            if candidate.older.is_some() {
                survey.rekeyed.add(candidate.len);
            }
            survey.moves += candidate.moves;
            survey.unused -= candidate.drops;
        }
        survey.older = survey.older_closed;
        let stays = |c: &&Candidate| c.older.is_some() && chosen.binary_search(&c.pack).is_err();
        candidates.iter().filter(stays).for_each(|c| survey.older.add(c.len));
        unused.sort_unstable();
        unused.iter().for_each(|pack| survey.removed.add(ground.packs[pack].1));
        ground.orphans().for_each(|pack| survey.orphans.add(ground.packs[&pack].1));
        let repack = chosen.iter().map(|pack| ground.named[pack].0.clone()).collect();
        let mut objects: Vec<_> =
            ground.objects.iter().filter(|(_, (len, _))| *len < SMALL_OBJECT_BYTES).map(|(id, _)| *id).collect();
        if objects.len() <= SMALL_OBJECTS_MAX {
            objects.clear();
        }
        survey.indexes = objects.len();
        objects.extend(ground.of_evicted(repository)?);
        objects.extend(ground.naming(&places.keys().contested));
        // A backup would take what they name for stored.
        objects.extend(ground.naming(&ground.lost().collect()));
        // Those of older generations that name no pack of one: nothing else would ever make them anew.
        let bare = |id: &IndexId| {
            let (_, named) = &ground.objects[id];
            named.iter().all(|pack| !ground.packs.contains_key(pack) || is_newest(pack))
        };
        objects.extend(ground.generations.iter().filter(|(id, tag)| **tag != newest && bare(id)).map(|(id, _)| *id));
        let mut reseal =
            if options.max_rekey == Unused::Bytes(0) { Vec::new() } else { repository.older_snapshots()? };
        reseal.retain(|id| !forgotten.contains(id));
        survey.resealed = reseal.len();
        let (healed, narrowed) = match healed {
            true => (losses.iter().map(|loss| loss.id).collect(), Vec::new()),
            false => (Vec::new(), losses.into_iter().filter_map(|loss| narrowed(loss, &lost)).collect()),
        };
        Ok(Look { healed, narrowed, reseal, ground, snapshots, places, marks, unused, repack, objects, survey })
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

/// After new secrets were given: the tree packs that clients have written which can open no others.
fn writers_trees(repository: &Repository, ground: &Ground, newest: u32) -> Result<HashSet<PackId>> {
    if newest == 0 {
        return Ok(HashSet::new());
    }
    let trees = ground.known().filter(|pack| is_tree(ground, pack)).map(|pack| &ground.named[&pack].0);
    Ok(repository.of_writers(trees.filter(|info| info.generation == newest))?)
}

/// The number of a generation, by its tag.
fn number_of(repository: &Repository, tag: u32) -> u32 {
    repository.secrets().generation(tag).map_or(0, |of| of.number)
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
                let copy = names::forgotten(*id);
                let cause = format!(
                    "older secrets still open it: a 'forget' of it was cut short, and while '{copy}' is there it isn't sealed anew; \
                     'drumlin forget {id}' forgets it, and who removes that object from the storage keeps it"
                );
                let path = names::snapshot(*id).into_bytes();
                self.monitor.problem(&Problem { path, kind: ProblemKind::Unwritable, cause });
            }
        }
        Ok(())
    }

    /// Have other index objects name what these ones name, but for condemned packs and such that are gone.
    fn name_again(&self, ground: &Ground, objects: &[IndexId], condemned: &HashSet<PackId>) -> Result<()> {
        let Some(session) = &self.session else { return Ok(()) };
        let mut named = HashSet::new();
        for id in objects {
            // Another collector may have removed it, and named what it named.
            let Some(entries) = self.repository.index_entries(*id)? else { continue };
            for mut entry in entries {
                let stays = ground.packs.contains_key(&entry.pack) && !condemned.contains(&entry.pack);
                if stays && named.insert(entry.pack) {
                    if self.keys.as_ref().is_some_and(|keys| keys.contested.contains(&entry.pack)) {
                        let (kind, len) = ground.packs[&entry.pack];
                        entry = PackScan::new(self.repository)?.entry(kind, entry.pack, len)?;
                    }
                    session.name_again(entry)?;
                }
            }
        }
        Ok(session.flush()?)
    }
}

impl Collection<'_> {
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

    fn look(&mut self, _desk: &Desk, known: &Known) -> Result<Option<Draft>> {
        let look_at = || Look::at(self.repository, self.cache, self.options, (&known.condemned(), &[]), self.monitor);
        let mut look = look_at()?;
        if !look.healed.is_empty() {
            look.healed.iter().try_for_each(|loss| self.repository.remove_loss(*loss))?;
            // The packs that they kept from going are left over now.
            look = look_at()?;
        }
        look.narrowed.iter().try_for_each(|loss| self.repository.narrow_loss(loss))?;
        self.survey = look.survey;
        self.keys = Some(look.places.keys().clone());
        self.seen = look.snapshots.iter().map(|s| s.id).collect();
        self.reseal(&look.reseal)?;
        if look.is_idle() {
            return Ok(None);
        }
        let registration = Registration::of_collector(self.repository, self.me, known.clone())?;
        let reader = look.places.reader();
        let session =
            self.session.insert(WriteSession::begin(registration, reader.index().clone(), self.cache.clone()));
        let mut stay = HashSet::new();
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
                leaves_frozen: true,
            };
            stay = repack.run(&look.repack)?;
            session.flush()?;
        }
        let mut condemned: HashSet<PackId> = look.unused.iter().copied().collect();
        condemned.extend(look.repack.iter().map(|info| info.id).filter(|pack| !stay.contains(pack)));
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

    fn look_again(&mut self, _desk: &Desk, draft: &mut Draft) -> Result<()> {
        let mut new = self.repository.standing_snapshots()?;
        new.retain(|snapshot| !self.seen.contains(&snapshot.id));
        let mut ground = Ground::look(self.repository)?;
        ground.refuse_broken()?;
        let mut condemned: HashSet<PackId> = draft.packs.iter().copied().collect();
        if !new.is_empty() {
            let known: HashSet<PackId> = ground.known().collect();
            let first = known.difference(&condemned).copied().collect();
            let workers = self.options.workers;
            // Afresh: of what has come since, too, it is asked whether it is so.
            let (keys, broken) = ground.keys(self.repository, self.cache, workers, self.monitor)?;
            ground::refuse(broken)?;
            self.keys = Some(keys.clone());
            let places = Places::new(self.repository, self.cache, keys, (first, known), &HashSet::new(), workers)?;
            let mut need = Need::new(&places, workers, self.monitor);
            need.add(&new)?;
            let (marks, lost) = need.finish();
            let missing = unexpected(&lost, &self.repository.losses()?);
            if missing > 0 {
                return Err(Error::Doubt(format!(
                    "a snapshot that came meanwhile needs {missing} chunks that no pack has"
                )));
            }
            duplicates::keep_unproven(self.repository, &places, &ground, &marks, self.monitor)?;
            // What it needs after all stays, and so do the index objects that name it, or what names it in their place.
            condemned.retain(|pack| marks.of(pack).is_none());
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

    fn plan_id(&mut self) -> Result<PlanId> {
        Ok(PlanId(random_id()?))
    }
}

impl Tally {
    fn add(&mut self, bytes: u64) {
        self.packs += 1;
        self.bytes += bytes;
    }
}
