//! Snapshots that were forgotten. Their objects lie in a folder of their own, so that they can be had back for as long
//! as no prune has removed what they refer to.
//!
//! Crash order: the copy, durable → an entry of the history → the snapshot's removal. A snapshot is in one of the two
//! places at any time, or in both; then it counts as it did before. Packs are not touched.

use crate::history::Act;
use crate::{Error, Repository, Result, SnapshotInfo, names};
use drumlin_format::SnapshotId;
use drumlin_format::key::Role;
use drumlin_store::{Kind, Put};
use std::collections::HashSet;

impl Repository {
    /// Fails unless the key may forget snapshots.
    pub fn may_forget(&self) -> Result<()> {
        match self.role() {
            Role::Owner | Role::Keeper => self.is_heeded(),
            Role::Reader | Role::Writer => Err(self.not_allowed("forget")),
        }
    }

    /// Fails unless the key may bring forgotten snapshots back: it reads them, and writes them anew.
    pub fn may_undelete(&self) -> Result<()> {
        match (self.may_write(), &self.secrets().meta) {
            (Ok(()), Some(_)) => Ok(()),
            _ => Err(self.not_allowed("undelete")),
        }
    }

    /// Forget snapshots, whatever they are: whose session is open must not be among them. One that can't be opened is
    /// forgotten like any other, one that was forgotten before is passed over.
    ///
    /// # Errors
    /// One of them isn't there, or the storage fails. Nothing is forgotten before all copies are made.
    pub fn forget(&self, ids: &[SnapshotId]) -> Result<()> {
        self.may_forget()?;
        let act = Act::now("forget");
        self.refuse_unexplained(act.time)?;
        let present: HashSet<SnapshotId> = self.ids(names::SNAPSHOTS, SnapshotId::parse)?.into_iter().collect();
        let (found, absent): (Vec<SnapshotId>, Vec<_>) = ids.iter().partition(|id| present.contains(*id));
        for id in absent {
            if self.store().len(&names::forgotten(id))?.is_none() {
                return Err(Error::NoSnapshot(format!("there is no snapshot {id}")));
            }
        }
        self.ask_many(&found, |id| self.keep_forgotten(*id))?;
        self.store().sync()?;
        self.record(act, &found, &[])?;
        self.ask_many(&found, |id| self.store().delete(&names::snapshot(*id)))?;
        self.store().sync()?;
        self.take_note(act.time);
        Ok(())
    }

    fn keep_forgotten(&self, id: SnapshotId) -> Result<()> {
        let (name, copy) = (names::snapshot(id), names::forgotten(id));
        let bytes = match self.store().get(&name) {
            // Somebody else has forgotten it since it was listed.
            Err(e) if e.kind == Kind::Missing => return Ok(()),
            other => other?,
        };
        match self.store().put(&copy, &bytes, Put::Create) {
            Err(e) if e.kind == Kind::Exists => match self.store().get(&copy) {
                // Somebody was stopped between the two steps, or does the same just now.
                Ok(there) if there == bytes => Ok(()),
                Ok(_) => Err(Error::Misuse(format!(
                    "'{copy}' in the repository is there already and differs from '{name}': one of them is damaged; remove the \
                     one that you don't need from the storage"
                ))),
                // A prune has cleared it away just now.
                Err(e) if e.kind == Kind::Missing => self.keep_forgotten(id),
                Err(e) => Err(e.into()),
            },
            other => Ok(other?),
        }
    }

    /// The snapshots that were forgotten, oldest first, and the errors of those that could not be read. One that is
    /// still among the snapshots, too, wasn't forgotten.
    ///
    /// # Errors
    /// [`Error::Rekeyed`] as of [`Repository::snapshots`]; or the storage fails.
    pub fn forgotten(&self) -> Result<(Vec<SnapshotInfo>, Vec<Error>)> {
        self.may_list()?;
        // In this order: what is forgotten meanwhile may be missed, and is never told as both.
        let ids = self.ids(names::FORGOTTEN, SnapshotId::parse)?;
        let present: HashSet<SnapshotId> = self.ids(names::SNAPSHOTS, SnapshotId::parse)?.into_iter().collect();
        let trusted = self.trusted_keys()?;
        let absent: Vec<SnapshotId> = ids.into_iter().filter(|id| !present.contains(id)).collect();
        let read = self.ask_many(&absent, |id| match self.read_snapshot(&names::forgotten(*id), *id, &trusted) {
            Err(e) if !e.is_damage() => Err(e),
            read => Ok(read),
        })?;
        let (mut infos, mut errors) = (Vec::new(), Vec::new());
        for read in read {
            match read {
                Ok(Some((snapshot, trust))) => {
                    infos.push(SnapshotInfo { snapshot, trust, open_session: false, committed: true })
                }
                // Brought back, or cleared up by a prune.
                Ok(None) => {}
                Err(e) => {
                    self.refuse_if_rekeyed(&e)?;
                    errors.push(e);
                }
            }
        }
        infos.sort_by_key(|info| (info.snapshot.time, info.snapshot.id));
        Ok((infos, errors))
    }

    /// Remove what is left of a forgotten snapshot, durably: it has been written anew, or nothing of it is needed.
    pub fn remove_forgotten(&self, id: SnapshotId) -> Result<()> {
        self.may_forget()?;
        self.store().delete(&names::forgotten(id))?;
        Ok(self.store().sync()?)
    }
}
