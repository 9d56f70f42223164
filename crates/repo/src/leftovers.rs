//! What a collection has made worthless, and clears away: snapshots that were forgotten and whose packs may be gone, and
//! snapshots of sessions that were evicted.

use crate::collection::Desk;
use crate::history::Act;
use crate::{Repository, Result, names};
use drumlin_format::{SessionId, SnapshotId, snapshot};
use drumlin_store::Kind;
use std::collections::HashSet;

impl Repository {
    /// The snapshots that were forgotten.
    pub fn forgotten_ids(&self) -> Result<Vec<SnapshotId>> {
        self.ids(names::FORGOTTEN, SnapshotId::parse)
    }

    /// Remove forgotten snapshots for good: what they need may be gone.
    pub fn clear_forgotten(&self, ids: &[SnapshotId]) -> Result<()> {
        ids.iter().try_for_each(|id| self.remove_forgotten(*id))
    }

    /// Remove the snapshots of evicted sessions, which never count.
    pub fn clear_evicted(&self) -> Result<()> {
        let decided: HashSet<SessionId> = self.decided_on()?.into_iter().collect();
        if decided.is_empty() || self.secrets().meta.is_none() {
            return Ok(());
        }
        let desk = Desk::new(self);
        let mut evicted = Vec::new();
        for id in self.ids(names::SNAPSHOTS, SnapshotId::parse)? {
            let name = names::snapshot(id);
            let bytes = match self.store().get(&name) {
                Err(e) if e.kind == Kind::Missing => continue,
                other => other?,
            };
            // One that is damaged is left to a check.
            let Ok((snapshot, _)) = snapshot::open(id, self.secrets(), &bytes) else { continue };
            if decided.contains(&snapshot.session) && desk.is_evicted(snapshot.session)? {
                evicted.push(id);
            }
        }
        self.record(Act::now("prune"), &evicted, &[])?;
        evicted.into_iter().try_for_each(|id| self.remove_snapshot(id))
    }
}
