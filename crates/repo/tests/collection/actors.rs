//! Who takes part: writers, collectors, and somebody who forgets. The protocol is the shipped code; what is made up
//! here is what they work on.

use crate::explore::{Pause, Script};
use crate::world::{Answer, Chunk, Snap, Step};
use drumlin_format::decision::Verdict;
use drumlin_format::plan::Plan;
use drumlin_format::snapshot::{Snapshot, Summary};
use drumlin_format::{IndexId, PackId, PlanId, SessionId, SnapshotId};
use drumlin_repo::collection::{
    Board, Collected, Draft, Flag, Known, Patience, Subject, collect, commit, end, register,
};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

macro_rules! answer {
    ($script:expr, $step:expr, $variant:ident) => {
        match $script.ask($step)? {
            Answer::$variant(value) => Ok(value),
            other => panic!("{other:?} answers another question"),
        }
    };
}

/// Which rule is broken, to see that the model finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    Nothing,
    /// Writers don't look at plans.
    PlansUnseen,
    /// Collectors don't look at sessions.
    SessionsUnseen,
    /// A claim is confirmed without another look at the session.
    ClaimUnchecked,
    /// No second look at snapshots.
    OneLook,
    /// Any snapshot will do as a parent.
    AnyParent,
    /// Writers believe index objects of evicted sessions.
    AnyIndex,
    /// Collectors take over index objects as they are, packs that are gone included.
    AnyPack,
    /// The second look goes by the index of the first.
    IndexOnce,
    /// Where there are flags: whoever decides doesn't look for claims and evictions.
    ClaimsUnseen,
    /// The same: whoever evicts doesn't look for commits.
    CommitsUnseen,
    /// The same: of plans that were decided on, and evicted, nobody is in doubt.
    DoubtUnseen,
    /// Of a session that may come back the decision is removed all the same.
    LateUnknown,
}

pub struct Play<'s, 'a> {
    pub script: &'s Script<'a>,
    pub broken: Broken,
}

impl Board for Play<'_, '_> {
    type Error = Pause;

    fn creates_atomically(&self) -> Result<bool, Self::Error> {
        Ok(self.script.atomic)
    }
    fn plans(&self) -> Result<Vec<PlanId>, Pause> {
        let plans = answer!(self.script, Step::Plans, Plans)?;
        Ok(if self.broken == Broken::PlansUnseen { Vec::new() } else { plans })
    }
    fn plan(&self, id: PlanId) -> Result<Option<Plan>, Pause> {
        answer!(self.script, Step::Plan(id), Plan)
    }
    fn put_plan(&self, plan: &Plan) -> Result<(), Pause> {
        self.script.ask(Step::PutPlan(plan.clone())).map(drop)
    }
    fn has_any_of(&self, plan: &Plan) -> Result<bool, Pause> {
        answer!(self.script, Step::AnyOf(plan.clone()), Bool)
    }
    fn remove_plan(&self, id: PlanId) -> Result<(), Pause> {
        self.script.ask(Step::RemovePlan(id)).map(drop)
    }
    fn sessions(&self) -> Result<Vec<SessionId>, Pause> {
        let sessions = answer!(self.script, Step::Sessions, Sessions)?;
        Ok(if self.broken == Broken::SessionsUnseen { Vec::new() } else { sessions })
    }
    fn has_session(&self, id: SessionId) -> Result<bool, Pause> {
        let there = answer!(self.script, Step::HasSession(id), Bool)?;
        Ok(there || self.broken == Broken::ClaimUnchecked)
    }
    fn put_session(&self, id: SessionId) -> Result<(), Pause> {
        self.script.ask(Step::PutSession(id)).map(drop)
    }
    fn may_come_back(&self, _: SessionId) -> Result<bool, Pause> {
        Ok(self.script.late && self.broken != Broken::LateUnknown)
    }
    fn remove_session(&self, id: SessionId) -> Result<(), Pause> {
        self.script.ask(Step::RemoveSession(id)).map(drop)
    }
    fn flags(&self, session: SessionId) -> Result<Vec<Flag>, Pause> {
        let mut flags = answer!(self.script, Step::Flags(session), Flags)?;
        match self.broken {
            Broken::ClaimsUnseen => flags.retain(|flag| !matches!(flag, Flag::Claim(..) | Flag::Evicted(_))),
            Broken::CommitsUnseen => flags.retain(|flag| !matches!(flag, Flag::Commit(_))),
            _ => {}
        }
        Ok(flags)
    }
    fn verdict(&self, flag: Flag) -> Result<Option<Verdict>, Pause> {
        answer!(self.script, Step::Verdict(flag), Verdict)
    }
    fn create(&self, flag: Flag, verdict: &Verdict) -> Result<bool, Pause> {
        answer!(self.script, Step::Create(flag, verdict.clone()), Bool)
    }
    fn replace(&self, flag: Flag, verdict: &Verdict) -> Result<(), Pause> {
        self.script.ask(Step::Replace(flag, verdict.clone())).map(drop)
    }
    fn remove(&self, flag: Flag) -> Result<(), Pause> {
        self.script.ask(Step::Remove(flag)).map(drop)
    }
    fn has_counted(&self, _: SessionId) -> Result<bool, Pause> {
        // No two sessions of the model have one id.
        Ok(false)
    }
    fn remove_checkpoints(&self, _: SessionId, _: SnapshotId) -> Result<(), Pause> {
        // A snapshot that doesn't count needs nothing: nobody can tell whether it is there.
        Ok(())
    }
    fn remove_indexes(&self, ids: &[IndexId]) -> Result<(), Pause> {
        ids.iter().try_for_each(|id| self.script.ask(Step::RemoveIndex(*id)).map(drop))
    }
    fn remove_packs(&self, ids: &[PackId]) -> Result<(), Pause> {
        ids.iter().try_for_each(|id| self.script.ask(Step::RemovePack(*id)).map(drop))
    }
}

type Indexes = BTreeMap<IndexId, BTreeMap<PackId, BTreeSet<Chunk>>>;

impl Play<'_, '_> {
    /// The index as it is: objects that are gone when they are read have been replaced by others.
    fn indexes(&self) -> Result<Indexes, Pause> {
        if self.script.coarse {
            return answer!(self.script, Step::AllIndexes, AllIndexes);
        }
        let mut indexes = Indexes::new();
        let mut again = true;
        while again {
            again = false;
            for id in answer!(self.script, Step::Indexes, Indexes)? {
                let Entry::Vacant(place) = indexes.entry(id) else { continue };
                match answer!(self.script, Step::Index(id), Index)? {
                    Some(packs) => drop(place.insert(packs)),
                    None => again = true,
                }
            }
        }
        Ok(indexes)
    }

    /// What a writer may refer to: nothing that only an evicted session names. Asked after the index was read: whoever
    /// was evicted before he wrote is told as evicted.
    fn usable(&self) -> Result<Indexes, Pause> {
        let mut indexes = self.indexes()?;
        if self.broken != Broken::AnyIndex {
            let sessions = indexes.keys().map(author).collect();
            let evicted = answer!(self.script, Step::Evicted(sessions), Sessions)?;
            indexes.retain(|id, _| !evicted.contains(&author(id)));
        }
        Ok(indexes)
    }

    /// What a collector works on: all index objects, those of evicted sessions too, since somebody may have read them
    /// before; but of the packs that they name only those that are there.
    ///
    /// And the packs that no index object named.
    fn found(&self) -> Result<(Indexes, BTreeSet<PackId>), Pause> {
        let mut indexes = self.indexes()?;
        if self.broken == Broken::AnyPack {
            return Ok((indexes, BTreeSet::new()));
        }
        let mut packs = answer!(self.script, Step::Packs, Packs)?;
        indexes.values_mut().for_each(|named| named.retain(|pack, _| packs.contains(pack)));
        packs.retain(|pack| self.script.orphans && !indexes.values().any(|named| named.contains_key(pack)));
        Ok((indexes, packs))
    }

    fn snapshots(&self) -> Result<BTreeMap<SnapshotId, Snap>, Pause> {
        answer!(self.script, Step::Snapshots, Snapshots)
    }
}

/// Ids of an actor's own objects.
fn pack(number: u8) -> PackId {
    PackId([number; 16])
}

/// Whose an index object is: a session's second one is numbered a hundred higher.
fn author(id: &IndexId) -> SessionId {
    SessionId([id.0[0] % 100; 16])
}

fn snapshot(id: SnapshotId, snap: &Snap) -> Snapshot {
    Snapshot {
        id,
        session: snap.session,
        time: (0, 0),
        host: String::new(),
        user: String::new(),
        paths: Vec::new(),
        tags: Vec::new(),
        root: None,
        partial: None,
        parent: None,
        program: String::new(),
        summary: Summary::default(),
        plans: snap.plans.clone(),
        original: None,
        passed_by: None,
    }
}

/// A backup of these chunks: what a parent has is taken over, what the index has is referred to, the rest is stored.
pub fn writer(play: &Play, me: u8, chunks: &str) -> Result<String, Pause> {
    let (session, id) = (SessionId([me; 16]), SnapshotId([me; 16]));
    let known = register(play, session)?;
    let condemned = known.condemned();
    let indexes = play.usable()?;
    let wanted: BTreeSet<Chunk> = chunks.chars().collect();
    let admitted =
        |id: &SnapshotId, snap: &Snap| play.broken == Broken::AnyParent || known.admits(&snapshot(*id, snap));
    let parents = play.snapshots()?;
    // The one that has most of it, whoever it belongs to.
    let parent = parents
        .iter()
        .filter(|(id, snap)| admitted(id, snap))
        .max_by_key(|(_, snap)| snap.chunks.intersection(&wanted).count());
    let inherited = parent.map(|(_, snap)| snap.chunks.clone()).unwrap_or_default();
    let indexed = |chunk: &Chunk| {
        let mut packs = indexes.values().flatten();
        packs.any(|(pack, chunks)| chunks.contains(chunk) && !condemned.contains(pack))
    };
    let new: BTreeSet<Chunk> = wanted.iter().filter(|c| !inherited.contains(c) && !indexed(c)).copied().collect();
    if !new.is_empty() {
        play.script.ask(Step::PutPack(pack(me), new.clone()))?;
        play.script.ask(Step::PutIndex(IndexId([me; 16]), [(pack(me), new)].into()))?;
    }
    let snap = Snap { session, chunks: wanted, plans: known.ids() };
    play.script.ask(Step::PutSnapshot(id, snap))?;
    let verdict = Verdict::Committed { snapshot: id };
    if !commit(play, session, &verdict)? {
        return Ok("evicted".into());
    }
    end(play, session, &verdict)?;
    Ok("committed".into())
}

/// Somebody forgets a snapshot.
pub fn forgetter(play: &Play, number: u8) -> Result<String, Pause> {
    play.script.ask(Step::RemoveSnapshot(SnapshotId([number; 16])))?;
    Ok("forgot".into())
}

/// The storage carries out what it was asked for long ago: to put a session.
pub fn repeater(play: &Play, session: SessionId) -> Result<String, Pause> {
    play.put_session(session)?;
    Ok("put it again".into())
}

/// A collector of long ago goes on from where it stood, as far as its next index object.
pub fn indexer(play: &Play, me: u8) -> Result<String, Pause> {
    play.script.ask(Step::PutIndex(IndexId([me; 16]), [(pack(1), ['a'].into())].into()))?;
    Ok("fell over".into())
}

/// A collector of long ago goes on from right before it decided on its plan; or from its second look, which has
/// acquitted something, so that another plan stands beside the first.
pub fn decider(play: &Play, me: u8, again: bool) -> Result<String, Pause> {
    let session = SessionId([me; 16]);
    let first = PlanId([me; 16]);
    let Some(mut plan) = play.plan(first)? else { return Ok("carried out".into()) };
    if again {
        plan.id = PlanId([me + 1; 16]);
        play.put_plan(&plan)?;
    }
    let verdict = Verdict::Collected { plan: plan.id };
    if !commit(play, session, &verdict)? {
        return Ok("evicted".into());
    }
    play.remove_indexes(&plan.indexes)?;
    play.remove_packs(&plan.packs)?;
    play.remove_plan(first)?;
    play.remove_plan(plan.id)?;
    end(play, session, &verdict)?;
    Ok("done".into())
}

/// A collector of long ago that has claimed another, and has not seen that it decided, goes on.
pub fn claimant(play: &Play, me: u8, session: SessionId) -> Result<String, Pause> {
    let me = SessionId([me; 16]);
    play.replace(Flag::Evicted(session), &Verdict::Evicted { plan: 0 })?;
    play.remove_session(session)?;
    play.remove(Flag::Claim(session, me))?;
    Ok("evicted it".into())
}

/// A collector of long ago that knows a plan for decided on, as it was, carries it out.
pub fn carrier(play: &Play, id: PlanId) -> Result<String, Pause> {
    let Some(plan) = play.plan(id)? else { return Ok("carried out".into()) };
    play.remove_indexes(&plan.indexes)?;
    play.remove_packs(&plan.packs)?;
    play.remove_plan(id)?;
    end(play, plan.session, &Verdict::Collected { plan: id })?;
    Ok("carried it out".into())
}

/// A collection; whoever is in the way is evicted, or left in peace.
pub fn collector(play: &Play, me: u8, patience: Patience) -> Result<String, Pause> {
    let mut things = Things { me, indexes: Indexes::new(), seen: BTreeSet::new(), shunned: BTreeSet::new(), plans: 0 };
    Ok(match collect(play, SessionId([me; 16]), &mut things, &mut |_| patience)? {
        Collected::Nothing => "nothing".into(),
        Collected::Done(draft) => format!("done: {:?}", draft.packs),
        Collected::Blocked(_) => "blocked".into(),
        Collected::Evicted => "evicted".into(),
    })
}

/// Packs of which not all is needed are replaced by ones of which all is.
struct Things {
    me: u8,
    indexes: Indexes,
    seen: BTreeSet<SnapshotId>,
    /// What doubtful plans condemn.
    shunned: BTreeSet<PackId>,
    plans: u8,
}

impl Things {
    /// Where each of these chunks is to be found, if not in a condemned pack.
    fn homes(&self, chunks: &BTreeSet<Chunk>, condemned: &BTreeSet<PackId>) -> BTreeMap<Chunk, PackId> {
        let mut homes = BTreeMap::new();
        for (pack, held) in self.indexes.values().flatten() {
            for chunk in held.intersection(chunks) {
                if !condemned.contains(pack) {
                    homes.entry(*chunk).or_insert(*pack);
                }
            }
        }
        homes
    }
}

impl Subject<Play<'_, '_>> for Things {
    type Error = Pause;

    fn look(&mut self, play: &Play, known: &Known) -> Result<Option<Draft>, Pause> {
        let doubtless = Known::default();
        let known = if play.broken == Broken::DoubtUnseen { &doubtless } else { known };
        let snapshots = play.snapshots()?;
        let mut packs;
        (self.indexes, packs) = play.found()?;
        self.seen = snapshots.keys().copied().collect();
        let needed: BTreeSet<Chunk> = snapshots.values().flat_map(|s| s.chunks.iter().copied()).collect();
        self.shunned = known.condemned();
        let mut homes = self.homes(&needed, &self.shunned);
        for (chunk, pack) in self.homes(&needed, &BTreeSet::new()) {
            // Only in a condemned pack: nobody will carry out its plan, or that would have been seen to.
            homes.entry(chunk).or_insert(pack);
        }
        let mut moved = BTreeSet::new();
        for (pack, held) in self.indexes.values().flatten() {
            let used: BTreeSet<Chunk> = held.iter().filter(|c| homes.get(c) == Some(pack)).copied().collect();
            if used != *held || self.shunned.contains(pack) {
                packs.insert(*pack);
                moved.extend(used);
            }
        }
        let goes = |(id, named): &(&IndexId, &BTreeMap<PackId, BTreeSet<Chunk>>)| {
            named.keys().any(|p| packs.contains(p)) || known.plans.iter().any(|plan| plan.indexes.contains(id))
        };
        let indexes: Vec<IndexId> = self.indexes.iter().filter(goes).map(|(id, _)| *id).collect();
        if packs.is_empty() && indexes.is_empty() {
            return Ok(None);
        }
        let mut kept: BTreeMap<_, _> = indexes.iter().flat_map(|id| self.indexes[id].clone()).collect();
        kept.retain(|pack, _| !packs.contains(pack));
        if !moved.is_empty() {
            play.script.ask(Step::PutPack(pack(self.me), moved.clone()))?;
            kept.insert(pack(self.me), moved);
        }
        if !kept.is_empty() {
            let id = IndexId([self.me; 16]);
            play.script.ask(Step::PutIndex(id, kept.clone()))?;
            self.indexes.insert(id, kept);
        }
        let snapshots = self.seen.iter().copied().collect();
        Ok(Some(Draft { packs: packs.into_iter().collect(), indexes, snapshots, unnamed: Vec::new() }))
    }

    fn look_again(&mut self, play: &Play, draft: &mut Draft) -> Result<(), Pause> {
        if play.broken != Broken::OneLook {
            let snapshots = play.snapshots()?;
            let new = snapshots.iter().filter(|(id, _)| !self.seen.contains(id));
            let needed: BTreeSet<Chunk> = new.flat_map(|(_, snap)| snap.chunks.iter().copied()).collect();
            // Afresh: what was there at the first look may have gone by another collector's doing.
            if play.broken != Broken::IndexOnce {
                self.indexes = play.found()?.0;
            }
            let condemned: BTreeSet<PackId> = draft.packs.iter().copied().collect();
            let elsewhere = self.homes(&needed, &condemned.union(&self.shunned).copied().collect());
            let only_there: BTreeSet<Chunk> =
                needed.iter().filter(|chunk| !elsewhere.contains_key(chunk)).copied().collect();
            // What others may remove at any time stands for nothing here.
            let mut acquitted = self.homes(&only_there, &self.shunned);
            for (chunk, pack) in self.homes(&only_there, &BTreeSet::new()) {
                acquitted.entry(chunk).or_insert(pack);
            }
            let acquitted: BTreeSet<PackId> = acquitted.into_values().collect();
            if !acquitted.is_empty() {
                // Then the index objects that name it stay as well.
                draft.packs.retain(|pack| !acquitted.contains(pack));
                let names = |id: &IndexId| {
                    self.indexes.get(id).is_some_and(|named| named.keys().any(|p| acquitted.contains(p)))
                };
                draft.indexes.retain(|id| !names(id));
            }
        }
        let condemned: BTreeSet<PackId> = draft.packs.iter().copied().collect();
        let mut kept = BTreeMap::new();
        for (id, named) in &self.indexes {
            let other = *id != IndexId([self.me; 16]) && !draft.indexes.contains(id);
            if other && named.keys().any(|pack| condemned.contains(pack)) {
                draft.indexes.push(*id);
                kept.extend(named.clone());
            }
        }
        kept.retain(|pack, _| !condemned.contains(pack));
        if !kept.is_empty() {
            play.script.ask(Step::PutIndex(IndexId([self.me + 100; 16]), kept))?;
        }
        Ok(())
    }

    fn plan_id(&mut self) -> Result<PlanId, Pause> {
        self.plans += 1;
        Ok(PlanId([self.me + 100 * (self.plans - 1); 16]))
    }
}
