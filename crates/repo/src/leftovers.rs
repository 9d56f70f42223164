//! What a collection has made worthless, and clears away: snapshots that were forgotten and whose packs may be gone,
//! and snapshots of sessions that were evicted.

use crate::collection::Desk;
use crate::history::Act;
use crate::{Error, Repository, Result, names};
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
        if ids.is_empty() {
            return Ok(());
        }
        self.may_forget()?;
        self.ask_many(ids, |id| self.store().delete(&names::forgotten(*id)))?;
        Ok(self.store().sync()?)
    }

    /// Remove the snapshots of evicted sessions, which never count, and the decisions of sessions that have ended and
    /// whose snapshots are gone: they were left as those sessions may come back
    /// ([`crate::collection::Board::may_come_back`]), which harms nobody any more.
    pub fn clear_decided(&self) -> Result<()> {
        // In this order: of a session that ends meanwhile the snapshot is seen, and of a snapshot that is being
        // forgotten its copy.
        let decided: HashSet<SessionId> = self.decided_on()?.into_iter().collect();
        if decided.is_empty() || self.secrets().meta.is_none() {
            return Ok(());
        }
        let open: HashSet<SessionId> = self.ids(names::SESSIONS, SessionId::parse)?.into_iter().collect();
        let ids = self.ids(names::SNAPSHOTS, SnapshotId::parse)?;
        let sessions = self.sessions_of(&ids, names::snapshot)?;
        let found: HashSet<SessionId> = sessions.iter().flatten().filter(|id| decided.contains(id)).copied().collect();
        let desk = Desk::new(self);
        let mut gone = HashSet::new();
        for session in &found {
            if desk.is_evicted(*session)? {
                gone.insert(*session);
            }
        }
        let is_evicted = |session: &Option<SessionId>| session.is_some_and(|session| gone.contains(&session));
        let evicted: Vec<SnapshotId> =
            ids.iter().zip(&sessions).filter(|(_, session)| is_evicted(session)).map(|(id, _)| *id).collect();
        self.record(Act::now("prune"), &evicted, &[])?;
        self.ask_many(&evicted, |id| self.remove_snapshot(*id))?;
        // Of a snapshot that can't be read nobody knows the session.
        if sessions.contains(&None) {
            return Ok(());
        }
        let forgotten = self.sessions_of(&self.forgotten_ids()?, names::forgotten)?;
        if forgotten.contains(&None) {
            return Ok(());
        }
        let kept: HashSet<SessionId> = forgotten.into_iter().flatten().chain(found).chain(open).collect();
        for session in decided.difference(&kept) {
            desk.remove_commit(*session)?;
        }
        Ok(())
    }

    /// The sessions of these snapshots; `None` for those that can't be read, or are gone by now.
    fn sessions_of(&self, ids: &[SnapshotId], named: fn(SnapshotId) -> String) -> Result<Vec<Option<SessionId>>> {
        self.ask_many(ids, |id| match self.store().get(&named(*id)) {
            Err(e) if e.kind == Kind::Missing => Ok(None),
            // One that is damaged is left to a check.
            got => {
                Ok::<_, Error>(snapshot::open(*id, self.secrets(), &got?).ok().map(|(snapshot, _)| snapshot.session))
            }
        })
    }
}
