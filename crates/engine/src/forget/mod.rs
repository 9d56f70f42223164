//! Forgetting snapshots, by rules or by name. A [`Plan`] says what becomes of which snapshot, and why; a dry run shows
//! it, [`Plan::carry_out`] does it.
//!
//! What is forgotten can be had back ([`crate::undelete`]) until a prune removes what it refers to.

mod calendar;
mod fate;
mod group;
mod policy;
mod rules;
#[cfg(test)]
mod tests;

pub use fate::{Fate, Going, Left, Reason};
pub use group::{GroupBy, GroupKey};
pub(crate) use policy::FUTURE_SECONDS;
pub use policy::{Candidate, Group, Options, decide};
pub use rules::{Count, PerUnit, Period, Rules, Unit};

use crate::select::{SnapshotFilter, find_snapshot};
use crate::{Error, Result};
use drumlin_format::SnapshotId;
use drumlin_repo::{Error as RepoError, Repository, SnapshotInfo, names};

/// What becomes of which snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The snapshots, in groups; those that the user named are one group.
    pub groups: Vec<Group>,
}

impl Plan {
    /// What the rules make of these snapshots.
    pub fn by_rules(snapshots: &[SnapshotInfo], options: &Options) -> Self {
        let candidates: Vec<Candidate> = snapshots.iter().map(Candidate::from).collect();
        Plan { groups: decide(&candidates, options) }
    }

    /// To forget what the user named, whoever has signed it. The filter narrows `latest`, `now` is as for
    /// [`find_snapshot`]. `errors` tells which snapshots can't be read: such a one is named by its full id.
    ///
    /// # Errors
    /// [`Error::NoSnapshot`] if a name fits none or several, or a folder in one; [`Error::Refused`] for one whose
    /// session is open.
    pub fn by_names(
        snapshots: &[SnapshotInfo],
        errors: &[RepoError],
        specs: &[impl AsRef<str>],
        filter: &SnapshotFilter,
        now: i64,
    ) -> Result<Self> {
        let mut fates: Vec<(SnapshotId, Fate)> = Vec::new();
        for spec in specs.iter().map(AsRef::as_ref) {
            let id = match unreadable(errors, spec) {
                Some(id) => id,
                None => named(snapshots, spec, filter, now)?,
            };
            if fates.iter().all(|(known, _)| *known != id) {
                fates.push((id, Fate::Go(Going::Named)));
            }
        }
        Ok(Plan { groups: vec![Group { key: GroupKey::default(), fates, emptied: false, signers: 0 }] })
    }

    /// The snapshots that go.
    pub fn going(&self) -> Vec<SnapshotId> {
        let fates = self.groups.iter().flat_map(|group| &group.fates);
        fates.filter(|(_, fate)| matches!(fate, Fate::Go(_))).map(|(id, _)| *id).collect()
    }

    /// Fails if it must not be carried out.
    ///
    /// # Errors
    /// [`Error::Refused`] if nothing would be left of a group.
    pub fn check(&self) -> Result<()> {
        let Some(group) = self.groups.iter().find(|group| group.emptied) else { return Ok(()) };
        let all = match group.fates.iter().filter(|(_, fate)| matches!(fate, Fate::Go(_))).count() {
            1 => "the only snapshot".to_owned(),
            count => format!("all {count} snapshots"),
        };
        Err(Error::Refused(format!("the rules would remove {all} of {}; nothing was forgotten", group.key)))
    }

    /// Forget what goes. All of it stays if anything of it can't be forgotten.
    ///
    /// # Errors
    /// [`Error::Refused`] as [`Plan::check`] has it; the role doesn't allow it; the storage fails.
    pub fn carry_out(&self, repository: &Repository) -> Result<()> {
        self.check()?;
        Ok(repository.forget(&self.going())?)
    }
}

/// The snapshot of this full id, if it is one of those that can't be read.
fn unreadable(errors: &[RepoError], spec: &str) -> Option<SnapshotId> {
    let id = SnapshotId::parse(&spec.to_ascii_lowercase())?;
    let name = names::snapshot(id);
    let is_it = |error: &RepoError| match error {
        RepoError::Damaged { object, .. } => *object == name,
        RepoError::Store(e) => e.name == name,
        _ => false,
    };
    errors.iter().any(is_it).then_some(id)
}

fn named(snapshots: &[SnapshotInfo], spec: &str, filter: &SnapshotFilter, now: i64) -> Result<SnapshotId> {
    let found = find_snapshot(snapshots, spec, filter, now)?;
    let id = found.snapshot.snapshot.id;
    if !found.subfolder.is_root() {
        return Err(Error::NoSnapshot(format!("'{spec}' names a folder; snapshots are forgotten as a whole")));
    }
    if found.snapshot.open_session && !found.snapshot.committed {
        return Err(Error::Refused(format!(
            "the backup of snapshot {id} is not over, or was killed and has not been cleared up; nothing was forgotten"
        )));
    }
    Ok(id)
}
