//! What the target has copies of.

use super::End;
use crate::Result;
use drumlin_format::SnapshotId;
use drumlin_format::snapshot::Snapshot;
use drumlin_repo::{Error as RepoError, Trust, names};
use std::collections::{HashMap, HashSet};

/// Copies, by what the snapshot was called when it was taken.
#[derive(Default)]
pub(super) struct Copies {
    found: HashMap<SnapshotId, Snapshot>,
    /// The target's snapshots that count. One that is put, and not yet decided on, is new when it does.
    seen: HashSet<SnapshotId>,
    /// Snapshots of the target that can't be read: what they may be copies of is copied once more.
    pub unreadable: Vec<RepoError>,
}

impl Copies {
    /// Those that can be seen.
    pub fn find(target: &End) -> Result<Self> {
        let mut copies = Copies::default();
        if target.repository.secrets().meta.is_some() {
            let infos;
            (infos, copies.unreadable) = target.repository.snapshots()?;
            copies.seen = infos.iter().map(|info| info.snapshot.id).collect();
            // What nobody known has signed may be the storage's word that there is nothing to do.
            let signed = infos.into_iter().filter(|info| matches!(info.trust, Trust::Signed(_)));
            copies.found.extend(signed.map(|info| (info.snapshot.first_id(), info.snapshot)));
        }
        Ok(copies)
    }

    /// Look at what others have put since; these snapshots. A key that can't read them sees none.
    pub fn renew(&mut self, target: &End) -> Result<HashSet<SnapshotId>> {
        if target.repository.secrets().meta.is_none() {
            return Ok(HashSet::new());
        }
        let new: HashSet<_> = ids(target)?.difference(&self.seen).copied().collect();
        if !new.is_empty() {
            let Copies { found, seen, .. } = Copies::find(target)?;
            (self.found, self.seen) = (found, seen);
        }
        Ok(new)
    }

    /// The copy of a snapshot, if it is there.
    pub fn of(&self, target: &End, snapshot: &Snapshot) -> Result<Option<Snapshot>> {
        let first = snapshot.first_id();
        let copy = match self.found.get(&first) {
            Some(copy) => Some(copy.clone()),
            None if target.repository.secrets().meta.is_some() => None,
            None => target.cache.recall(&name(first)).and_then(|plain| Snapshot::from_plain(&plain).ok()),
        };
        let Some(copy) = copy else { return Ok(None) };
        // A key that may only sign could claim to have anything; what it copies it calls by its name.
        let same = |s: &Snapshot| (s.time, s.host.clone(), s.paths.clone());
        if same(&copy) != same(snapshot) {
            return Ok(None);
        }
        // It may have been forgotten since.
        let there = target.repository.store().len(&names::snapshot(copy.id)).map_err(RepoError::from)?;
        Ok(there.map(|_| copy))
    }

    /// Take note of a new copy.
    pub fn add(&mut self, target: &End, copy: &Snapshot) {
        self.found.insert(copy.first_id(), copy.clone());
        self.seen.insert(copy.id);
        if target.repository.secrets().meta.is_none() {
            // Without it the snapshot is copied once more, which stores nothing twice.
            let _ = target.cache.remember(&name(copy.first_id()), &copy.to_plain());
        }
    }
}

fn ids(target: &End) -> Result<HashSet<SnapshotId>> {
    let mut ids = HashSet::new();
    let store = target.repository.store();
    let listed = store.list(names::SNAPSHOTS, &mut |listed| ids.extend(SnapshotId::parse(names::last(&listed.name))));
    listed.map_err(RepoError::from)?;
    Ok(ids)
}

fn name(first: SnapshotId) -> String {
    format!("copy of {first}")
}
