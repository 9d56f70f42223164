//! Entries as they stand in the storage: put before a removal, read, and absorbed by later ones.
//!
//! Crash order: the entry, durable → what it names is removed; an entry that absorbs, durable → what it absorbs is
//! removed. So whatever is gone is named by an entry that stands, at any moment.

use crate::keys::TrustedKey;
use crate::{Error, Repository, Result, names, random_id};
use drumlin_format::history::Entry;
use drumlin_format::key::Role;
use drumlin_format::{HistoryId, IndexId, KeyId, SnapshotId};
use drumlin_store::Put;
use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// When so many entries stand, the next one absorbs the small ones among them.
const STANDING_MAX: usize = 32;
/// An entry that is longer is left as it is: one put shall not take too long.
const ABSORBED_BYTES_MAX: u64 = 2 << 20;
/// What an entry takes beside its ids, about.
const BARE_BYTES: u64 = 256;

/// For what something is removed, and when: for people.
#[derive(Clone, Copy, Debug)]
pub struct Act<'a> {
    /// `forget`, `prune` or `repair`.
    pub name: &'a str,
    /// Seconds since 1970.
    pub time: i64,
}

impl<'a> Act<'a> {
    /// Done now, by this machine's clock.
    pub fn now(name: &'a str) -> Self {
        Act { name, time: now() }
    }
}

/// By this machine's clock, in seconds since 1970. Nothing rests on it.
pub(crate) fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().cast_signed()
}

/// What came of reading an entry.
pub(super) enum Read {
    /// Somebody signed it who may.
    Counts(Entry),
    /// It says nothing that can be believed.
    Void,
    /// Another one has absorbed it since it was listed.
    Gone,
}

impl Repository {
    /// The entries that stand, and their lengths.
    pub(super) fn history_ids(&self) -> Result<Vec<(HistoryId, u64)>> {
        let mut ids = Vec::new();
        self.store().list(names::HISTORY, &mut |listed| {
            ids.extend(HistoryId::parse(names::last(&listed.name)).map(|id| (id, listed.len)));
        })?;
        Ok(ids)
    }

    /// An entry, if it counts.
    pub(super) fn history_entry(&self, id: HistoryId, trusted: &HashMap<KeyId, TrustedKey>) -> Result<Read> {
        let bytes = match self.store().get(&names::history(id)).map_err(Error::from) {
            Err(e) if e.is_missing() => return Ok(Read::Gone),
            // A bad sector, say.
            Err(e) if e.is_of_one_object() => return Ok(Read::Void),
            other => other?,
        };
        let (entry, signer) = match Entry::open(id, self.secrets(), &bytes).map_err(Error::damaged(&names::history(id)))
        {
            Ok(opened) => opened,
            // One that can't be opened is told by a check; but who has given new secrets may have removed what this
            // client remembers.
            Err(e) => {
                self.refuse_if_rekeyed(&e)?;
                return Ok(Read::Void);
            }
        };
        let key = trusted.get(&signer.key).filter(|key| matches!(key.role, Role::Owner | Role::Keeper));
        let counts = key.is_some_and(|key| signer.verify(&key.verifying).is_ok());
        Ok(if counts { Read::Counts(entry) } else { Read::Void })
    }

    /// Say, durably, what is about to be removed. To be called right before; what is named and stays does no harm.
    ///
    /// # Errors
    /// The role may not remove anything, or the storage fails: then nothing may be removed.
    pub fn record(&self, act: Act, snapshots: &[SnapshotId], indexes: &[IndexId]) -> Result<()> {
        if snapshots.is_empty() && indexes.is_empty() {
            return Ok(());
        }
        self.may_forget()?;
        let mut entry = Entry::new(HistoryId(random_id()?), act.name, act.time);
        (entry.snapshots, entry.indexes) = (snapshots.to_vec(), indexes.to_vec());
        let absorbed = self.absorb(&mut entry)?;
        let bytes = entry.seal(self.config().suite, self.sealing()?);
        self.store().put(&names::history(entry.id), &bytes, Put::Create)?;
        // What stays because of an error is absorbed another time.
        absorbed.iter().for_each(|id| drop(self.store().delete(&names::history(*id))));
        Ok(())
    }

    /// Put an entry in place of those that are damaged, which absorbs them, so that nobody who has seen them misses
    /// them when they go. What they said is lost with them: clients that had not read it yet may miss what they named.
    /// Gives what is wrong with entries; one that the storage doesn't give out stays.
    ///
    /// # Errors
    /// The storage fails.
    pub fn mend_history(&self, act: Act) -> Result<Vec<(HistoryId, Error)>> {
        let mut wrong = Vec::new();
        for (id, _) in self.history_ids()? {
            match self.try_entry(id).or_else(|_| self.try_entry(id)) {
                Err(why) if why.is_of_one_object() => wrong.push((id, why)),
                other => other?,
            }
        }
        let damaged = wrong.iter().filter(|(_, why)| matches!(why, Error::Damaged { .. }));
        let mut entry = Entry::new(HistoryId(random_id()?), act.name, act.time);
        entry.absorbed = damaged.map(|(id, _)| *id).collect();
        if !entry.absorbed.is_empty() {
            let bytes = entry.seal(self.config().suite, self.sealing()?);
            self.store().put(&names::history(entry.id), &bytes, Put::Create)?;
            entry.absorbed.iter().try_for_each(|id| self.store().delete(&names::history(*id)))?;
        }
        Ok(wrong)
    }

    /// Fails if an entry can't be read, or is damaged; whose word it is doesn't matter. One that is gone, of a newer
    /// program or of secrets that came since is none of these.
    fn try_entry(&self, id: HistoryId) -> Result<()> {
        let name = names::history(id);
        let opened = match self.store().get(&name).map_err(Error::from) {
            Ok(bytes) => Entry::open(id, self.secrets(), &bytes).map(drop).map_err(Error::damaged(&name)),
            Err(e) => Err(e),
        };
        opened.or_else(|e| if e.is_missing() || e.is_newer() || e.is_unknown_generation() { Ok(()) } else { Err(e) })
    }

    /// Take over what small entries say, if many stand; gives those. Sizes double from one to the next, about, as in a
    /// log-structured merge tree (O'Neil et al., 1996): so each id is written a logarithmic number of times.
    fn absorb(&self, entry: &mut Entry) -> Result<Vec<HistoryId>> {
        let mut standing = self.history_ids()?;
        let mut absorbed = Vec::new();
        if standing.len() < STANDING_MAX {
            return Ok(absorbed);
        }
        let trusted = self.trusted_keys()?;
        standing.sort_unstable_by_key(|(id, len)| (*len, *id));
        let mut bytes = BARE_BYTES + 16 * (entry.snapshots.len() + entry.indexes.len()) as u64;
        for (id, len) in standing {
            if len > 2 * bytes || bytes + len > ABSORBED_BYTES_MAX {
                break;
            }
            let Read::Counts(other) = self.history_entry(id, &trusted)? else { continue };
            entry.snapshots.extend(other.snapshots);
            entry.indexes.extend(other.indexes);
            entry.absorbed.extend(other.absorbed);
            absorbed.push(id);
            bytes += len;
        }
        entry.absorbed.extend(&absorbed);
        entry.snapshots.sort_unstable();
        entry.snapshots.dedup();
        entry.indexes.sort_unstable();
        entry.indexes.dedup();
        entry.absorbed.sort_unstable();
        entry.absorbed.dedup();
        Ok(absorbed)
    }
}
