//! The two looks of a repair.

use super::losses::{CHUNKS_MAX, in_parts, says};
use super::{Options, Report};
use crate::collect::duplicates::Duplicates;
use crate::collect::ground::{ASKED_AT_ONCE, Broken, Ground, own_word};
use crate::collect::naming::{Naming, parts};
use crate::collect::need::Need;
use crate::collect::places::Places;
use crate::collect::rank::Ranks;
use crate::collect::repack::{Repack, Spare};
use crate::monitor::{Monitor, Problem};
use crate::reach::twice;
use crate::{Error, Result};
use drumlin_format::index::Entry;
use drumlin_format::loss::Loss;
use drumlin_format::pack::PackKind;
use drumlin_format::snapshot::Snapshot;
use drumlin_format::{ChunkId, IndexId, LossId, PackId, PlanId, SessionId, SnapshotId};
use drumlin_repo::band::Bands;
use drumlin_repo::collection::{Desk, Draft, Known, Registration, Subject};
use drumlin_repo::pack::{Healed, PackScan};
use drumlin_repo::{Cache, Index, Losses, PackInfo, Repository, WriteSession, names, random_id};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The packs of bands, and their lengths.
type Members = HashMap<PackId, (PackKind, u64)>;

/// A repair.
pub(super) struct Mending<'a> {
    repository: &'a Repository,
    cache: &'a Arc<Cache>,
    options: &'a Options,
    monitor: &'a dyn Monitor,
    pub me: SessionId,
    session: Option<WriteSession>,
    /// See [`WriteSession::doubt`].
    doubt: Arc<AtomicBool>,
    /// Packs that were found damaged by reading them.
    damaged: HashSet<PackId>,
    /// Damaged packs that others were made from: left out of the index, unless something is missing.
    replaced: HashSet<PackId>,
    /// Something is missing: whatever there is is taken.
    last_resort: bool,
    /// Packs that no index object shall name.
    bad: HashSet<PackId>,
    /// Damaged packs that stay in the index: only what that says of them tells where anything is in them, and only
    /// another key can tell what of it is whole.
    closed: HashSet<PackId>,
    /// Packs about which index objects disagree.
    contested: HashSet<PackId>,
    /// Of those, packs of which all that snapshots need is in others now.
    moved: HashSet<PackId>,
    /// Packs as they are seen through their bands, and which packs are in one; `None` without bands.
    through: Option<(Repository, Members)>,
    /// A damaged pack has come into the index again: only now can be seen what snapshots need of it.
    again: bool,
    /// What is damaged, and is told once it is sure that it is.
    problems: Vec<Problem>,
    /// The snapshots that were looked at.
    pub snapshots: HashSet<SnapshotId>,
    pub report: Report,
}

impl<'a> Mending<'a> {
    pub fn new(
        repository: &'a Repository,
        cache: &'a Arc<Cache>,
        options: &'a Options,
        monitor: &'a dyn Monitor,
        me: SessionId,
    ) -> Self {
        Mending {
            repository,
            cache,
            options,
            monitor,
            me,
            session: None,
            doubt: Arc::default(),
            damaged: options.damaged.clone(),
            replaced: HashSet::new(),
            last_resort: false,
            bad: HashSet::new(),
            closed: HashSet::new(),
            contested: HashSet::new(),
            moved: HashSet::new(),
            through: None,
            again: false,
            problems: Vec::new(),
            snapshots: HashSet::new(),
            report: Report::default(),
        }
    }

    /// One that goes on where this one has ended.
    pub fn next(self, me: SessionId) -> (Report, Option<Self>) {
        let Mending { repository, cache, options, monitor, damaged, last_resort, bad, moved, again, report, .. } = self;
        let next =
            Mending { damaged, last_resort, bad, moved, ..Mending::new(repository, cache, options, monitor, me) };
        (report, again.then_some(next))
    }

    /// Whether a pack is in a band, as long as the index has it.
    fn is_in_band(&self, info: &PackInfo) -> bool {
        self.through.as_ref().is_some_and(|(_, packs)| packs.get(&info.id) == Some(&(info.kind, info.len)))
    }

    /// Packs of bands that are gone, or damaged, and that no index object names: an earlier repair may have given them
    /// up, while there was too little to make them again.
    fn given_up(&self, ground: &Ground) -> Vec<PackId> {
        let Some((_, packs)) = &self.through else { return Vec::new() };
        let is_gone = |id: &PackId| !ground.packs.contains_key(id) || self.bad.contains(id);
        let mut given_up: Vec<PackId> =
            packs.keys().filter(|id| is_gone(id) && !ground.named.contains_key(id)).copied().collect();
        given_up.sort_unstable();
        given_up
    }

    /// Let the index name what was given up and can be made again now, so that it is.
    fn take_up(&mut self, ground: &Ground, session: &WriteSession) -> Result<()> {
        let given_up = self.given_up(ground);
        let Some((through, packs)) = &self.through else { return Ok(()) };
        let scan = PackScan::new(through)?;
        for id in given_up {
            if self.monitor.stop() {
                return Err(Error::Interrupted);
            }
            let (kind, len) = packs[&id];
            match scan.entry(kind, id, len) {
                Ok(entry) => {
                    session.name_again(entry)?;
                    self.again = true;
                    // It may be there, and its table too damaged to be read.
                    self.damaged.insert(id);
                }
                Err(e) if e.is_of_one_object() => {}
                // Or it lies in cold storage: it isn't given up once more because of that.
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// What the index objects say, as far as they can be read: those that can't join the broken ones.
    fn read_objects(&self, ground: &mut Ground, mut each: impl FnMut(IndexId, Vec<Entry>) -> Result<()>) -> Result<()> {
        let mut ids: Vec<IndexId> = ground.objects.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            if self.monitor.stop() {
                return Err(Error::Interrupted);
            }
            match twice(|| self.repository.index_entries(id)) {
                Ok(Some(entries)) => each(id, entries)?,
                // Another collector has put others in its place.
                Ok(None) => {}
                Err(e) if e.is_damage() => {
                    ground.objects.remove(&id);
                    ground.broken.push((id, e));
                }
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn note(&mut self, name: String, cause: impl ToString) {
        self.problems.push(Problem::damage(name, cause.to_string()));
    }

    /// What is the matter with a pack that an index object names; nothing to tell of those that were found damaged
    /// before.
    fn fault(&self, ground: &Ground, info: &PackInfo) -> Option<Option<String>> {
        match ground.packs.get(&info.id) {
            None => Some(Some("it is not there".into())),
            Some((_, len)) if *len != info.len => Some(Some(format!("it has {len} bytes instead of {}", info.len))),
            Some(_) => self.damaged.contains(&info.id).then_some(None),
        }
    }

    /// Takes for packs about which index objects disagree what they say themselves, if anything is the matter with any
    /// pack: a lie about its length would make a sound one bad. Gives those that can't be asked.
    fn settle(&mut self, ground: &mut Ground) -> Result<HashSet<PackId>> {
        if !ground.named.values().any(|(info, _)| self.fault(ground, info).is_some()) {
            return Ok(HashSet::new());
        }
        let (keys, _) = ground.keys(self.repository, self.cache, self.options.workers, self.monitor)?;
        self.contested = keys.contested.clone();
        let scan = PackScan::new(self.repository)?;
        let settled = keys.contested.difference(&keys.unsettled).copied().collect();
        let asked: Vec<_> = ground.lens(&settled).into_iter().collect();
        for asked in asked.chunks(ASKED_AT_ONCE) {
            let own = self.repository.ask_many(asked, |(id, (kind, len))| own_word(&scan, *kind, *id, *len))?;
            let named = own.into_iter().flatten().map(|own| {
                let chunks = own.table.chunks.len() as u32;
                (own.pack, (PackInfo::from(&own), chunks))
            });
            ground.named.extend(named);
        }
        Ok(keys.unsettled.clone())
    }

    /// Packs that sound index objects name and that are no longer what they say.
    fn find_bad(&mut self, ground: &mut Ground) -> Result<()> {
        let unsettled = self.settle(ground)?;
        let mut closed = HashSet::new();
        for (id, (info, _)) in &ground.named {
            let Some(fault) = self.fault(ground, info) else { continue };
            if let Some(cause) = &fault {
                self.note(names::pack(info.kind, *id), cause);
            }
            let there = ground.packs.get(id).copied();
            if there.is_none() {
                self.report.gone.push(*id);
            }
            if unsettled.contains(id) {
                // Whichever of them lies, the others may be all that tells where anything is in it.
                let cause = "index objects disagree about it, and its own table can't be read: it stays in the index with all that they say";
                self.note(names::pack(info.kind, *id), cause);
                closed.insert(*id);
                continue;
            }
            if let Some((_, len)) = there
                && !self.repository.opens(info.kind, info.generation)
                && !self.tells_its_table(info, len)?
            {
                let cause = "its table can't be read, and this key can't tell what else of it is damaged: it stays in the \
                             index, as an owner's repair may save more of it";
                self.note(names::pack(info.kind, *id), cause);
                closed.insert(*id);
                continue;
            }
            self.bad.insert(*id);
        }
        self.closed = closed;
        Ok(())
    }

    /// Whether a pack's own table can be read, by its parity or its band if need be. A band may have been made when the
    /// pack was damaged already, and vouch for that.
    fn tells_its_table(&self, info: &PackInfo, len: u64) -> Result<bool> {
        let (seen, len) = match &self.through {
            Some((through, _)) if self.is_in_band(info) => (through, info.len),
            _ => (self.repository, len),
        };
        Ok(own_word(&PackScan::new(seen)?, info.kind, info.id, len)?.is_some())
    }

    /// Whether a pack is damaged, which its table alone doesn't show, and others hold the same: an earlier repair has
    /// made them from it and put it out of the index, and no prune has removed it yet.
    fn is_replaced(&self, entry: &Entry, len: u64, held: &Index) -> Result<bool> {
        for chunk in &entry.table.chunks {
            if held.lookup(&chunk.id)?.is_some() {
                if entry.pack_len != len {
                    return Ok(true);
                }
                let healed = Healed::open(self.repository, &PackInfo::from(entry))?;
                return Ok(healed
                    .map(|mut healed| healed.look_at_all())
                    .transpose()?
                    .is_some_and(|found| found.data > 0));
            }
        }
        Ok(false)
    }

    /// Packs that no sound index object names: named again if they are whole.
    fn scan(&mut self, ground: &Ground, session: &WriteSession) -> Result<()> {
        let scan = PackScan::new(self.repository)?;
        let mut orphans: Vec<PackId> = ground.orphans().filter(|id| !self.bad.contains(id)).collect();
        orphans.sort_unstable();
        let named: HashSet<PackId> = ground.named.keys().copied().collect();
        let held = match orphans.is_empty() || named.is_empty() || self.last_resort {
            true => None,
            false => Some(ground.index(self.repository, self.cache, named)?),
        };
        let (mut sound, mut unread) = (None, None);
        for id in orphans {
            if self.monitor.stop() {
                return Err(Error::Interrupted);
            }
            let (kind, len) = ground.packs[&id];
            match twice(|| scan.entry(kind, id, len)) {
                Ok(entry) => {
                    if let Some(held) = &held
                        && self.is_replaced(&entry, len, held)?
                    {
                        self.replaced.insert(id);
                        continue;
                    }
                    self.again |= self.damaged.contains(&id) || entry.pack_len != len;
                    self.report.named += 1;
                    session.name_again(entry)?;
                    sound = Some((kind, id, len));
                }
                // It may be as good as any.
                Err(e) if e.is_unknown_generation() => return Err(e.into()),
                Err(e) if e.is_damage() => {
                    self.note(names::pack(kind, id), &e);
                    self.bad.insert(id);
                    unread = unread.or(Some(e).filter(|e| e.is_unread()));
                }
                Err(e) => return Err(e.into()),
            }
        }
        // A storage that gives nothing out any more says nothing of its packs.
        match (unread, sound) {
            (Some(unread), None) => Err(unread.into()),
            (Some(unread), Some((kind, id, len))) if scan.entry(kind, id, len).is_err() => Err(unread.into()),
            _ => Ok(()),
        }
    }

    /// What snapshots need of damaged packs and can still be read, through their parity too, goes into new ones.
    fn salvage(
        &mut self,
        ground: &Ground,
        tables: Vec<Entry>,
        snapshots: &[Snapshot],
        session: &WriteSession,
    ) -> Result<()> {
        let mut there: HashSet<PackId> = ground.known().collect();
        // What is gone may be made again.
        there.extend(tables.iter().map(|entry| entry.pack));
        let sound: HashSet<PackId> = there.difference(&self.bad).copied().collect();
        let workers = self.options.workers;
        let (keys, _) = ground.keys(self.repository, self.cache, workers, self.monitor)?;
        let through = self.through.as_ref().map_or(self.repository, |(through, _)| through);
        let places = Places::new(through, self.cache, (ground, keys), (sound, there), workers)?;
        let infos: Vec<PackInfo> = tables.iter().map(|e| ground.named[&e.pack].0.clone()).collect();
        let reader = places.anywhere();
        // Before trees are walked: a pack's own table may be what is damaged, and nodes are found by it.
        reader.teach(tables.into_iter().map(|entry| (entry.pack, Arc::new(entry.table))).collect());
        let mut need = Need::new(&places, workers, self.monitor);
        // What one needs that can't be read itself nobody knows.
        let mut all_known = self.report.broken_snapshots == 0;
        for snapshot in snapshots {
            // One whose tree can't be read whole is told of later, when all was done for it that can be.
            all_known &= need.add_readable(snapshot)?.is_none();
        }
        for forgotten in self.repository.forgotten()?.0 {
            // Until a prune they can be brought back, if all of it is there.
            need.add_readable(&forgotten.snapshot)?;
        }
        let (marks, _) = need.finish();
        // What the index says of other packs nobody has looked at: unless they prove it, what can still be read of these
        // isn't left behind for their sake.
        let mut duplicates = Duplicates::find(through, &places, ground)?;
        duplicates.keep_unproven(&marks, &self.bad, self.monitor)?;
        self.problems.extend(duplicates.problems());
        let before = session.written();
        let ids: Vec<PackId> = infos.iter().map(|info| info.id).collect();
        let ranks = Ranks::find(&places, &ids, snapshots, self.monitor)?;
        let repack = Repack {
            repository: through,
            reader,
            session,
            marks: &marks,
            ranks: &ranks,
            monitor: self.monitor,
            workers: self.options.workers,
            spare: Spare::Little,
            leaves_frozen: false,
        };
        let stay = Mutex::default();
        let moved = repack.run(&infos, &stay);
        let stay = stay.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.problems.extend(stay.values().cloned());
        moved?;
        session.flush()?;
        if all_known {
            self.moved.extend(ids.iter().filter(|id| !stay.contains_key(id)));
        }
        let after = session.written();
        self.report.salvaged = after.data_bytes + after.tree_bytes - before.data_bytes - before.tree_bytes;
        Ok(())
    }

    /// What is missing now, with the index as it will be.
    fn count_losses(&mut self, desk: &Desk, ground: &Ground, snapshots: &[Snapshot]) -> Result<()> {
        let mut now = Ground::look(self.repository)?;
        let mut sound: HashSet<PackId> = now.known().collect();
        sound.retain(|pack| !self.bad.contains(pack));
        // What of them is lost nobody knows yet.
        sound.extend(&self.closed);
        let workers = self.options.workers;
        let (keys, broken) = now.keys(self.repository, self.cache, workers, self.monitor)?;
        let known = ids_of(&ground.broken);
        // What could be read before, and can't any more, would pass for lost.
        now.broken.extend(broken);
        if let Some(at) = now.broken.iter().position(|(id, _)| !known.contains(id)) {
            return Err(now.broken.swap_remove(at).1.into());
        }
        let places = Places::new(self.repository, self.cache, (&now, keys), (sound, HashSet::new()), workers)?;
        let mut need = Need::new(&places, workers, self.monitor);
        for snapshot in snapshots {
            if let Some(cause) = need.add_readable(snapshot)? {
                self.report.unreadable.push((snapshot.id, cause.to_string()));
            }
        }
        let mut chunks: Vec<ChunkId> = need.finish().1.into_iter().collect();
        chunks.sort_unstable();
        let is_missing = !chunks.is_empty() || !self.report.unreadable.is_empty();
        let is_more = !self.replaced.is_empty() || !self.last_resort && !self.given_up(ground).is_empty();
        if is_missing && is_more {
            self.damaged.extend(self.replaced.drain());
            (self.again, self.last_resort) = (true, true);
            return Ok(());
        }
        self.report.lost_chunks = chunks.len() as u64;
        let (mut mended, mut packs): (Vec<PackId>, Vec<PackId>) =
            self.bad.iter().filter(|id| ground.packs.contains_key(id)).partition(|id| self.moved.contains(id));
        mended.sort_unstable();
        packs.sort_unstable();
        self.report.made_again = self.report.gone.iter().filter(|id| self.moved.contains(id)).copied().collect();
        self.report.gone.retain(|id| !self.moved.contains(id));
        // Nobody's now: the next prune removes them.
        self.report.mended = mended;
        self.report.damaged = packs.clone();
        self.report.closed = self.closed.iter().copied().collect();
        self.report.closed.sort_unstable();
        let Losses { whole: before, broken, idle } = self.repository.readable_losses()?;
        if is_missing || self.report.broken_snapshots > 0 {
            // Should they come back, a prune is not to take them for nobody's: they may have what is lost.
            let earlier = before.iter().flat_map(|loss| &loss.packs).filter(|id| !ground.packs.contains_key(id));
            packs.extend(self.report.gone.iter().chain(earlier));
            packs.sort_unstable();
            packs.dedup();
        } else {
            // Nobody needs anything of them.
            packs.clear();
            self.report.damaged.clear();
        }
        let nothing = chunks.is_empty() && packs.is_empty() && self.report.unreadable.is_empty();
        let parts = if nothing { Vec::new() } else { in_parts(&chunks, &packs, CHUNKS_MAX) };
        // What somebody has moved who takes this repair for dead isn't lost, and what he has found lost isn't healed.
        self.refuse_overtaken(desk)?;
        for part in &parts {
            if !before.iter().any(|loss| says(loss, *part)) {
                let (chunks, packs) = (part.0.to_vec(), part.1.to_vec());
                self.repository.put_loss(&Loss { id: LossId(random_id()?), chunks, packs })?;
            }
        }
        // The new ones say all that still holds.
        for loss in before.iter().filter(|loss| !parts.iter().any(|part| says(loss, *part))) {
            self.repository.remove_loss(loss.id)?;
            self.report.healed += 1;
        }
        idle.into_iter().try_for_each(|id| self.repository.remove_loss(id))?;
        // What they said was found anew.
        for (id, why) in broken {
            self.note(names::loss(id), why);
            self.repository.remove_loss(id)?;
            self.report.cleared += 1;
        }
        Ok(())
    }

    /// The index objects in whose place others are put.
    fn replace(&mut self, ground: &mut Ground, session: &WriteSession) -> Result<(Vec<IndexId>, Vec<Entry>)> {
        let (mut replaced, mut tables) = (Vec::new(), Vec::new());
        let bad = self.bad.clone();
        let mut packs: HashSet<PackId> = ground.packs.keys().copied().collect();
        packs.extend(ground.named.values().map(|(info, _)| info).filter(|info| self.is_in_band(info)).map(|i| i.id));
        let (me, broken) = (self.me, ground.broken.len());
        let mut naming = Naming::new(self.repository, ground.lens(&self.contested))?;
        self.read_objects(ground, |id, entries| {
            if id.is_of(&me) || !entries.iter().any(|e| bad.contains(&e.pack)) {
                return Ok(());
            }
            replaced.push(id);
            for part in parts(entries) {
                for said in naming.hear(part)? {
                    match (bad.contains(&said.pack()), packs.contains(&said.pack())) {
                        (true, true) => tables.push(said.likely()),
                        (true, false) => {}
                        (false, _) => naming.name_again(session, said)?,
                    }
                }
            }
            Ok(())
        })?;
        naming.finish(session)?;
        // One that could be read before: nobody has looked for the packs that it names.
        match ground.broken.drain(broken..).next() {
            Some((_, e)) => Err(e.into()),
            None => Ok((replaced, tables)),
        }
    }
}

impl Subject<Desk<'_>> for Mending<'_> {
    type Error = Error;

    fn look(&mut self, desk: &Desk, known: &Known) -> Result<Option<Draft>> {
        let looked = self.make_sound(desk, known);
        self.unless_overtaken(desk, looked)
    }

    /// No pack goes: so no snapshot that has come since can be harmed. Index objects that have come since and name bad
    /// packs go as well.
    fn look_again(&mut self, desk: &Desk, draft: &mut Draft) -> Result<()> {
        let looked = self.take_those_that_came(draft);
        self.unless_overtaken(desk, looked)
    }

    fn plan_id(&mut self) -> Result<PlanId> {
        Ok(PlanId(random_id()?))
    }

    fn is_in_doubt(&self) -> bool {
        self.doubt.load(Ordering::SeqCst)
    }
}

impl Mending<'_> {
    /// Fails if somebody has taken this repair for dead: he may have moved or removed under its eyes what it misses.
    fn refuse_overtaken(&self, desk: &Desk) -> Result<()> {
        if desk.stands(self.me)? { Ok(()) } else { Err(super::overtaken()) }
    }

    /// Tell of what was found damaged, if it was sure to be.
    fn tell_found(&mut self, desk: &Desk) -> Result<()> {
        if !self.problems.is_empty() {
            self.refuse_overtaken(desk)?;
            self.problems.drain(..).for_each(|problem| problem.tell(self.monitor));
        }
        Ok(())
    }

    /// What came of a look, and what was found damaged by it, unless this repair was overtaken meanwhile
    /// ([`Mending::refuse_overtaken`]): of nothing of that it is told.
    fn unless_overtaken<T>(&mut self, desk: &Desk, looked: Result<T>) -> Result<T> {
        let mut problems = std::mem::take(&mut self.problems);
        let looked = match (desk.stands(self.me), looked) {
            (Ok(true), looked) => looked,
            (Ok(false), Err(Error::Interrupted)) => return Err(Error::Interrupted),
            (Ok(false), _) => return Err(super::overtaken()),
            (Err(unknown), looked) => {
                let but = "; perhaps another prune or repair has moved it, which couldn't be asked";
                problems.iter_mut().for_each(|problem| problem.cause += but);
                // That says more than the question whose answer doesn't come.
                looked.and(Err(unknown.into()))
            }
        };
        problems.iter().for_each(|problem| problem.tell(self.monitor));
        looked
    }

    /// The first look.
    fn make_sound(&mut self, desk: &Desk, known: &Known) -> Result<Option<Draft>> {
        let (snapshots, broken) = self.readable()?;
        self.report.broken_snapshots = broken;
        self.snapshots = snapshots.iter().map(|snapshot| snapshot.id).collect();
        let bands = Bands::look(self.repository)?;
        if !bands.all.is_empty() {
            let members = bands.all.iter().flat_map(|band| band.head.members());
            let packs = members.map(|m| (m.pack, (m.kind, m.len))).collect();
            self.through = Some((self.repository.through(&bands), packs));
        }
        let mut ground = Ground::look(self.repository)?;
        if self.through.is_none() {
            ground.refuse_empty(&snapshots)?;
        }
        // Those whose second part is damaged are found by reading them.
        self.read_objects(&mut ground, |_, _| Ok(()))?;
        let standing: HashSet<PackId> = ground.objects.values().flat_map(|(_, packs)| packs.iter().copied()).collect();
        ground.named.retain(|id, _| standing.contains(id));
        let registration = Registration::of_collector(self.repository, self.me, known.clone())?;
        // Of nothing: nobody looks anything up in it.
        let nothing = Some(HashSet::new());
        let index = Arc::new(Index::open_among(self.repository, self.cache.clone(), HashMap::new(), nothing)?);
        let session = WriteSession::begin(registration, index, self.cache.clone());
        self.doubt = session.doubt();
        self.scan(&ground, &session)?;
        if self.last_resort {
            self.take_up(&ground, &session)?;
        }
        // First the index is whole: only then can be seen what snapshots need of what is damaged.
        self.again |=
            self.report.named > 0 && ground.named.values().any(|(info, _)| self.fault(&ground, info).is_some());
        let mut indexes = Vec::new();
        if self.again {
            session.flush()?;
        } else {
            self.find_bad(&mut ground)?;
            let tables;
            (indexes, tables) = self.replace(&mut ground, &session)?;
            session.flush()?;
            if !tables.is_empty() {
                // That may take hours.
                self.tell_found(desk)?;
                self.salvage(&ground, tables, &snapshots, &session)?;
            }
        }
        for (id, why) in &ground.broken {
            self.note(names::index(*id), why);
            indexes.push(*id);
        }
        if !self.again {
            self.count_losses(desk, &ground, &snapshots)?;
        }
        self.session = Some(session);
        self.report.indexes = indexes.len() as u64;
        if indexes.is_empty() {
            return Ok(None);
        }
        indexes.sort_unstable();
        let mut snapshots: Vec<_> = snapshots.iter().map(|s| s.id).collect();
        snapshots.sort_unstable();
        // Who begins from here on finds in them nothing that is stored already, though index objects name them yet.
        let mut unnamed: Vec<PackId> = self.bad.iter().copied().collect();
        unnamed.sort_unstable();
        Ok(Some(Draft { packs: Vec::new(), indexes, snapshots, unnamed }))
    }

    /// The second look.
    fn take_those_that_came(&mut self, draft: &mut Draft) -> Result<()> {
        let mut ground = Ground::look(self.repository)?;
        ground.objects.retain(|id, _| draft.indexes.binary_search(id).is_err());
        let Some(session) = self.session.take() else { return Ok(()) };
        let (more, _) = self.replace(&mut ground, &session)?;
        let is_new = |id: &IndexId| draft.indexes.binary_search(id).is_err();
        if let Some((_, e)) = ground.broken.into_iter().find(|(id, e)| is_new(id) && e.is_unread()) {
            return Err(e.into());
        }
        session.flush()?;
        session.refuse_lost()?;
        draft.indexes.extend(more);
        Ok(())
    }

    /// The snapshots that can be read, and how many can't.
    fn readable(&mut self) -> Result<(Vec<Snapshot>, u64)> {
        let (infos, errors) = self.repository.snapshots()?;
        for error in &errors {
            let cause = format!("{error}; 'drumlin forget' with its full id gives it up");
            self.note("snapshots".to_owned(), cause);
        }
        Ok((infos.into_iter().rev().map(|info| info.snapshot).collect(), errors.len() as u64))
    }
}

fn ids_of(broken: &Broken) -> HashSet<IndexId> {
    broken.iter().map(|(id, _)| *id).collect()
}
