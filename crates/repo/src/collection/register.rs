//! The first steps of whoever writes packs.

use super::Board;
use drumlin_format::plan::Plan;
use drumlin_format::snapshot::Snapshot;
use drumlin_format::{PackId, PlanId, SessionId};
use std::collections::BTreeSet;

/// What a session knows of collections: the plans that stood when it began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The plans.
    pub plans: Vec<Plan>,
}

impl Known {
    /// The packs that the session must not refer to.
    pub fn condemned(&self) -> BTreeSet<PackId> {
        self.plans.iter().flat_map(|plan| plan.packs.iter().chain(&plan.unnamed).copied()).collect()
    }

    /// The plans' ids: what a snapshot of the session says that it has seen.
    pub fn ids(&self) -> Vec<PlanId> {
        self.plans.iter().map(|plan| plan.id).collect()
    }

    /// Whether the session may take over what `snapshot` refers to without looking at each chunk: each plan either
    /// counted the snapshot when it chose its packs, or was known to the snapshot's own session.
    pub fn admits(&self, snapshot: &Snapshot) -> bool {
        self.plans.iter().all(|plan| plan.snapshots.contains(&snapshot.id) || snapshot.plans.contains(&plan.id))
    }
}

/// Register a session. Only what it reads of the index and of snapshots *after* this is fit to be referred to.
///
/// A writer puts its session and then lists the plans; a collector puts its plan and then lists the sessions. At least
/// one of them sees the other.
///
/// # Errors
/// The board's. The session may be there then, and is its caller's to remove.
pub fn register<B: Board>(board: &B, session: SessionId) -> Result<Known, B::Error> {
    board.put_session(session)?;
    let mut known = Known::default();
    for id in board.plans()? {
        // One that is gone by now has been swept: what it condemned is in no index that is read from here on.
        known.plans.extend(board.plan(id)?);
    }
    Ok(known)
}
