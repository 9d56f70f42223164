//! The few objects that the protocol is about, and what can be done with them.

use crate::names;
use drumlin_format::decision::Verdict;
use drumlin_format::plan::Plan;
use drumlin_format::{IndexId, PackId, PlanId, SessionId, SnapshotId};

/// Where a verdict on a session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flag {
    /// The one place of a store that creates atomically.
    Decision(SessionId),
    /// Elsewhere: the writer's word that it is done.
    Commit(SessionId),
    /// Elsewhere: a collector, the second session, is about to evict the first.
    Claim(SessionId, SessionId),
    /// Elsewhere: the first session has been evicted.
    Evicted(SessionId),
}

impl Flag {
    /// The session that it is about.
    pub fn session(self) -> SessionId {
        match self {
            Flag::Decision(id) | Flag::Commit(id) | Flag::Claim(id, _) | Flag::Evicted(id) => id,
        }
    }

    /// Where the verdict on a session is looked for, in the order in which they count: on a store that creates
    /// atomically there is one place, and elsewhere an eviction counts more than the writer's word, which may have come
    /// too late.
    pub(crate) fn of_verdicts(session: SessionId, atomically: bool) -> Vec<Flag> {
        match atomically {
            true => vec![Flag::Decision(session)],
            false => vec![Flag::Evicted(session), Flag::Commit(session)],
        }
    }

    /// The object that is this flag.
    pub(crate) fn name(self) -> String {
        let name = names::decision(self.session());
        match self {
            Flag::Decision(_) => name,
            Flag::Commit(_) => name + ".commit",
            Flag::Evicted(_) => name + ".evicted",
            Flag::Claim(_, by) => format!("{name}.claim.{by}"),
        }
    }

    /// The flag that an object is, by the last part of its name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (id, rest) = name.split_at_checked(32)?;
        let id = SessionId::parse(id)?;
        match rest {
            "" => Some(Flag::Decision(id)),
            ".commit" => Some(Flag::Commit(id)),
            ".evicted" => Some(Flag::Evicted(id)),
            _ => Some(Flag::Claim(id, SessionId::parse(rest.strip_prefix(".claim.")?)?)),
        }
    }
}

/// The storage, as the protocol sees it. Every method is one step, and steps of several processes come in any order.
///
/// What is put is durable when the method returns. A listing gives at least what was there when it began and was not
/// removed since.
pub trait Board {
    /// What a step fails with.
    type Error;

    /// Whether [`Board::create`] lets exactly one of several creators win.
    fn creates_atomically(&self) -> Result<bool, Self::Error>;

    /// The plans that stand.
    fn plans(&self) -> Result<Vec<PlanId>, Self::Error>;
    /// A plan; `None` if it is gone, or if nobody signed it who may collect.
    fn plan(&self, id: PlanId) -> Result<Option<Plan>, Self::Error>;
    /// Let a plan stand.
    fn put_plan(&self, plan: &Plan) -> Result<(), Self::Error>;
    /// Whether any of the packs and index objects is there that a plan condemns.
    fn has_any_of(&self, plan: &Plan) -> Result<bool, Self::Error>;
    /// Remove a plan.
    fn remove_plan(&self, id: PlanId) -> Result<(), Self::Error>;

    /// All sessions that have not ended.
    fn sessions(&self) -> Result<Vec<SessionId>, Self::Error>;
    /// Whether a session has not ended.
    fn has_session(&self, id: SessionId) -> Result<bool, Self::Error>;
    /// Register a session.
    fn put_session(&self, id: SessionId) -> Result<(), Self::Error>;
    /// Whether the storage may put a session of ours once more, at any time: an attempt to put it that seemed to have
    /// failed may be carried out yet.
    fn may_come_back(&self, id: SessionId) -> Result<bool, Self::Error>;
    /// Remove a session, durably: if it came back after its decision was removed, what it committed would count no
    /// more.
    fn remove_session(&self, id: SessionId) -> Result<(), Self::Error>;

    /// Which flags stand for a session; an eviction never without the commit that was there before it, nor without
    /// itself where its claim has gone.
    fn flags(&self, session: SessionId) -> Result<Vec<Flag>, Self::Error>;
    /// The verdict in a flag, if somebody put it there who may; a claim of nobody's, which says nothing, if it can't be
    /// read or is another's word on that session than its own.
    fn verdict(&self, flag: Flag) -> Result<Option<Verdict>, Self::Error>;
    /// Put a verdict where none is: `false` if one is there.
    fn create(&self, flag: Flag, verdict: &Verdict) -> Result<bool, Self::Error>;
    /// Put a verdict, whatever is there.
    fn replace(&self, flag: Flag, verdict: &Verdict) -> Result<(), Self::Error>;
    /// Remove a flag.
    fn remove(&self, flag: Flag) -> Result<(), Self::Error>;

    /// Whether a snapshot that names this session counted for good before the session was there: then somebody has put
    /// it again who wants the snapshot to be taken for one that was never committed.
    fn has_counted(&self, session: SessionId) -> Result<bool, Self::Error>;

    /// Remove the checkpoints of a session that committed a snapshot: its account was not allowed to. With the session
    /// its decision goes, which says that they don't count.
    fn remove_checkpoints(&self, session: SessionId, committed: SnapshotId) -> Result<(), Self::Error>;

    /// Remove index objects, durably.
    fn remove_indexes(&self, ids: &[IndexId]) -> Result<(), Self::Error>;
    /// Remove packs, durably.
    fn remove_packs(&self, ids: &[PackId]) -> Result<(), Self::Error>;
}
