//! Sealing snapshots anew, after the repository was given new secrets: each keeps its name, and what was signed in it.
//!
//! One put replaces the object in one step. Whoever does it has a session, so no other collector ends meanwhile, unless
//! it evicts him: who finds his session gone looks whether the snapshot is, too.

use crate::history::Act;
use crate::{Error, Repository, Result, names, random_secret};
use drumlin_format::{HEADER_BYTES, Header, ObjectType, SessionId, SnapshotId, snapshot};
use drumlin_store::{Kind, Put};
use std::collections::BTreeMap;

impl Repository {
    /// The snapshots that are sealed with older secrets than the newest, and that this key opens.
    ///
    /// # Errors
    /// The storage fails.
    pub fn older_snapshots(&self) -> Result<Vec<SnapshotId>> {
        let newest = self.generation()?;
        if newest == 0 || self.may_list().is_err() {
            return Ok(Vec::new());
        }
        let mut older = Vec::new();
        for id in self.ids(names::SNAPSHOTS, SnapshotId::parse)? {
            let tag = self.tag_of(&names::snapshot(id), ObjectType::Snapshot)?;
            older.extend(tag.filter(|tag| *tag != newest && self.tags().any(|known| known == *tag)).map(|_| id));
        }
        Ok(older)
    }

    /// Seal a snapshot with the newest secrets, unless it is being written or forgotten. Whether it was done. `me` is
    /// the session of who does it.
    ///
    /// # Errors
    /// It is damaged, or the storage fails.
    pub fn reseal_snapshot(&self, id: SnapshotId, me: SessionId) -> Result<bool> {
        let (name, copy) = (names::snapshot(id), names::forgotten(id));
        let bytes = match self.store().get(&name) {
            // Forgotten since it was listed.
            Err(e) if e.kind == Kind::Missing => return Ok(false),
            other => other?,
        };
        let (old, _) = snapshot::open(id, self.secrets(), &bytes).map_err(Error::damaged(&name))?;
        // The writer of a session that is open removes what it has put before, and a forgotten one is in no list.
        if self.store().len(&names::session(old.session))?.is_some() || self.store().len(&copy)?.is_some() {
            return Ok(false);
        }
        let to = self.recipient()?;
        let fresh = (random_secret()?, random_secret()?);
        let sealed = snapshot::reseal(id, self.secrets(), &bytes, to, &fresh.0, &fresh.1);
        let sealed = sealed.map_err(Error::damaged(&name))?;
        let (new, _) = snapshot::open(id, self.secrets(), &sealed).map_err(Error::damaged(&name))?;
        if new != old {
            return Err(Error::Machine(format!("'{name}' could not be sealed anew: this machine's memory is failing")));
        }
        self.store().put(&name, &sealed, Put::Replace)?;
        let is_alone = self.store().len(&names::session(me))?.is_some();
        if self.store().len(&copy)?.is_some() || !is_alone && self.was_removed(id)? {
            // Forgotten since it was read. Its own remover may have been here before.
            self.record(Act::now("forget"), &[id], &[])?;
            self.store().delete(&name)?;
            return Ok(false);
        }
        Ok(true)
    }

    /// Whether somebody began to forget a snapshot, and has not come to its end: it counts, and isn't sealed anew.
    ///
    /// # Errors
    /// The storage fails.
    pub fn is_half_forgotten(&self, id: SnapshotId) -> Result<bool> {
        Ok(self.store().len(&names::forgotten(id))?.is_some() && self.store().len(&names::snapshot(id))?.is_some())
    }

    /// How many objects of a folder there are of each generation, by its tag. What has no header is passed over.
    ///
    /// # Errors
    /// The storage fails.
    pub fn tags_in(&self, folder: &str, object: ObjectType) -> Result<BTreeMap<u32, u64>> {
        let (mut found, mut tags) = (Vec::new(), BTreeMap::new());
        self.store().list(folder, &mut |listed| found.push(listed.name))?;
        for name in found {
            if let Some(tag) = self.tag_of(&name, object)? {
                *tags.entry(tag).or_default() += 1;
            }
        }
        Ok(tags)
    }

    /// The tag in an object's header; `None` if it is gone, or has none.
    fn tag_of(&self, name: &str, object: ObjectType) -> Result<Option<u32>> {
        let mut header = [0; HEADER_BYTES];
        match self.store().read_at(name, 0, &mut header).map_err(Error::from) {
            Err(e) if e.is_of_one_object() => Ok(None),
            Err(e) => Err(e),
            Ok(()) => Ok(Header::decode(&header, object).ok().map(|header| header.generation)),
        }
    }
}
