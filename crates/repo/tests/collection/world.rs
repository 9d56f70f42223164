//! The storage of the model: sets of small objects, and the steps that change them.

use drumlin_format::decision::Verdict;
use drumlin_format::plan::Plan;
use drumlin_format::{IndexId, PackId, PlanId, SessionId, SnapshotId};
use drumlin_repo::collection::Flag;
use std::collections::{BTreeMap, BTreeSet};

/// Contents: a chunk is a letter.
pub type Chunk = char;

/// What a snapshot is here.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Snap {
    pub session: SessionId,
    pub chunks: BTreeSet<Chunk>,
    pub plans: Vec<PlanId>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct World {
    pub atomic: bool,
    /// Listing objects and reading them all is one step: fewer orders to try.
    pub coarse: bool,
    /// Collectors condemn packs that no index object names, as well.
    pub orphans: bool,
    /// The storage may put sessions once more, when they have ended.
    pub late: bool,
    pub plans: BTreeMap<PlanId, Plan>,
    pub sessions: BTreeSet<SessionId>,
    pub flags: BTreeMap<Flag, Verdict>,
    pub snapshots: BTreeMap<SnapshotId, Snap>,
    pub packs: BTreeMap<PackId, BTreeSet<Chunk>>,
    pub indexes: BTreeMap<IndexId, BTreeMap<PackId, BTreeSet<Chunk>>>,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    Plans,
    Plan(PlanId),
    PutPlan(Plan),
    /// Whether anything is there of what it condemns.
    AnyOf(Plan),
    RemovePlan(PlanId),
    Sessions,
    HasSession(SessionId),
    PutSession(SessionId),
    RemoveSession(SessionId),
    Flags(SessionId),
    Verdict(Flag),
    Create(Flag, Verdict),
    Replace(Flag, Verdict),
    Remove(Flag),
    Indexes,
    /// Index objects with what they name.
    AllIndexes,
    /// Of these sessions, those that were evicted for good.
    Evicted(Vec<SessionId>),
    Packs,
    Index(IndexId),
    PutIndex(IndexId, BTreeMap<PackId, BTreeSet<Chunk>>),
    RemoveIndex(IndexId),
    PutPack(PackId, BTreeSet<Chunk>),
    RemovePack(PackId),
    /// Those that are not evicted: what a reader lists, those of open sessions included.
    Snapshots,
    PutSnapshot(SnapshotId, Snap),
    RemoveSnapshot(SnapshotId),
}

/// What a step gives back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    Done,
    Bool(bool),
    Plans(Vec<PlanId>),
    Plan(Option<Plan>),
    Sessions(Vec<SessionId>),
    Flags(Vec<Flag>),
    Verdict(Option<Verdict>),
    Indexes(Vec<IndexId>),
    AllIndexes(BTreeMap<IndexId, BTreeMap<PackId, BTreeSet<Chunk>>>),
    Index(Option<BTreeMap<PackId, BTreeSet<Chunk>>>),
    Packs(BTreeSet<PackId>),
    Snapshots(BTreeMap<SnapshotId, Snap>),
}

impl World {
    pub fn apply(&mut self, step: Step) -> Answer {
        match step {
            Step::Plans => return Answer::Plans(self.plans.keys().copied().collect()),
            Step::Plan(id) => return Answer::Plan(self.plans.get(&id).cloned()),
            Step::PutPlan(plan) => drop(self.plans.insert(plan.id, plan)),
            Step::AnyOf(plan) => {
                let any = plan.packs.iter().any(|id| self.packs.contains_key(id));
                return Answer::Bool(any || plan.indexes.iter().any(|id| self.indexes.contains_key(id)));
            }
            Step::RemovePlan(id) => drop(self.plans.remove(&id)),
            Step::Sessions => return Answer::Sessions(self.sessions.iter().copied().collect()),
            Step::HasSession(id) => return Answer::Bool(self.sessions.contains(&id)),
            Step::PutSession(id) => drop(self.sessions.insert(id)),
            Step::RemoveSession(id) => drop(self.sessions.remove(&id)),
            Step::Flags(id) => {
                let of = |flag: &&Flag| match flag {
                    Flag::Decision(s) | Flag::Commit(s) | Flag::Evicted(s) | Flag::Claim(s, _) => *s == id,
                };
                return Answer::Flags(self.flags.keys().filter(of).copied().collect());
            }
            Step::Verdict(flag) => return Answer::Verdict(self.flags.get(&flag).cloned()),
            Step::Create(flag, verdict) => {
                assert!(self.atomic, "only where the store creates atomically");
                let free = !self.flags.contains_key(&flag);
                if free {
                    self.flags.insert(flag, verdict);
                }
                return Answer::Bool(free);
            }
            Step::Replace(flag, verdict) => drop(self.flags.insert(flag, verdict)),
            Step::Remove(flag) => drop(self.flags.remove(&flag)),
            Step::Indexes => return Answer::Indexes(self.indexes.keys().copied().collect()),
            Step::Evicted(of) => return Answer::Sessions(of.into_iter().filter(|s| self.evicted(*s)).collect()),
            Step::Packs => return Answer::Packs(self.packs.keys().copied().collect()),
            Step::AllIndexes => return Answer::AllIndexes(self.indexes.clone()),
            Step::Index(id) => return Answer::Index(self.indexes.get(&id).cloned()),
            Step::PutIndex(id, packs) => drop(self.indexes.insert(id, packs)),
            Step::RemoveIndex(id) => drop(self.indexes.remove(&id)),
            Step::PutPack(id, chunks) => drop(self.packs.insert(id, chunks)),
            Step::RemovePack(id) => drop(self.packs.remove(&id)),
            Step::Snapshots => {
                let there = self.snapshots.iter().filter(|(_, snap)| !self.evicted(snap.session));
                return Answer::Snapshots(there.map(|(id, snap)| (*id, snap.clone())).collect());
            }
            Step::PutSnapshot(id, snap) => drop(self.snapshots.insert(id, snap)),
            Step::RemoveSnapshot(id) => drop(self.snapshots.remove(&id)),
        }
        Answer::Done
    }

    fn evicted(&self, session: SessionId) -> bool {
        self.flags.contains_key(&Flag::Evicted(session))
            || matches!(self.flags.get(&Flag::Decision(session)), Some(Verdict::Evicted { .. }))
    }

    /// Whether a reader shows this snapshot as whole: `docs/format.md`.
    pub fn counts(&self, id: SnapshotId) -> bool {
        let Some(snap) = self.snapshots.get(&id) else { return false };
        let committed = [Flag::Decision(snap.session), Flag::Commit(snap.session)]
            .iter()
            .any(|flag| self.flags.get(flag) == Some(&Verdict::Committed { snapshot: id }));
        !self.evicted(snap.session) && (committed || !self.sessions.contains(&snap.session))
    }

    /// Each snapshot that counts can be restored by somebody who comes now. `Err` says what is missing.
    pub fn whole(&self) -> Result<(), String> {
        for (id, snap) in &self.snapshots {
            if !self.counts(*id) {
                continue;
            }
            for chunk in &snap.chunks {
                let named = |pack: &PackId| self.indexes.values().any(|packs| packs.contains_key(pack));
                if !self.packs.iter().any(|(pack, chunks)| chunks.contains(chunk) && named(pack)) {
                    return Err(format!("snapshot {id:?} counts, and its chunk {chunk:?} is nowhere"));
                }
            }
        }
        Ok(())
    }
}
