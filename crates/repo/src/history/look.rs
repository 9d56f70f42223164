//! Looking: what is there is listed and compared with what this client has seen.

use super::entries::Read;
use super::judge::{FoundKey, View, judge};
use super::missing::Missing;
use super::seen::{Id, Ids, Seen, SeenKey};
use crate::collection::Desk;
use crate::{Error, Repository, Result, names};
use drumlin_format::{HistoryId, IndexId, KeyId, SessionId, SnapshotId, snapshot};
use drumlin_seal::checksum;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// So often it is looked before anybody is accused, or an entry that has just come is left to another time; and so
/// often the history is listed anew because it changes meanwhile.
const LOOKS: usize = 3;
const LISTINGS_MAX: usize = 8;
/// So many snapshots are opened in one look to find out whether they count for good; the others another time.
const OPENED_MAX: usize = 256;

impl Repository {
    /// Compare what is there with what this client has seen, and remember what is new. `keys`: read all keys, too, and
    /// don't only look whether those that were seen are there. Without a memory nothing is looked at.
    ///
    /// `now` is in seconds since 1970, for people.
    ///
    /// # Errors
    /// The storage can't be listed, or the history can't be read.
    pub fn look_back(&self, now: i64, keys: bool) -> Result<Missing> {
        Ok(self.look(now, keys)?.0)
    }

    /// Fails if something that this client has seen is gone by nobody's word: for whoever removes.
    ///
    /// # Errors
    /// [`Error::Unexplained`]; and as [`Repository::look_back`].
    pub fn refuse_unexplained(&self, now: i64) -> Result<()> {
        let missing = self.look_back(now, true)?;
        if missing.is_empty() { Ok(()) } else { Err(Error::Unexplained(Box::new(missing))) }
    }

    /// Remember what this client has done itself: for whoever has removed something. Failing that, the next look does
    /// it.
    pub fn take_note(&self, now: i64) {
        let _ = self.look(now, false);
    }

    /// Take the repository as it is now: what this client has seen before is forgotten.
    ///
    /// # Errors
    /// As [`Repository::look_back`].
    pub fn accept_history(&self, now: i64) -> Result<()> {
        let Some(memory) = self.memory() else { return Ok(()) };
        let view = self.view(&Seen::default(), true, self.listed_history()?)?;
        let (_, mut seen) = judge(&Seen::default(), &view);
        seen.last = now;
        memory.replace(seen);
        Ok(())
    }

    /// Whether the history says that a snapshot was removed, or was to be. Ids are never used again.
    pub(crate) fn was_removed(&self, id: SnapshotId) -> Result<bool> {
        for _ in 0..LISTINGS_MAX {
            if let Some(entries) = self.new_entries(self.listed_history()?.not_in(&Ids::default()))? {
                return Ok(entries.iter().any(|entry| entry.snapshots.contains(&id)));
            }
        }
        let why = "the history of the repository keeps changing while it is read; run it again";
        Err(Error::Unsteady(why.into()))
    }

    /// Whether this client has seen that a snapshot counts for good.
    pub(crate) fn has_seen(&self, id: SnapshotId) -> bool {
        self.memory().is_some_and(|memory| memory.read(|seen| seen.snapshots.contains(&id.0)))
    }

    /// Whether a listing of snapshots has all that this client has seen and that nobody has removed. `false`: it was
    /// cut short, and another one may not be.
    ///
    /// # Errors
    /// [`Error::Unexplained`] if they are gone; and as [`Repository::look_back`].
    pub(crate) fn lists_all(&self, listed: &[SnapshotId], now: i64) -> Result<bool> {
        let Some(memory) = self.memory() else { return Ok(true) };
        let lacking = memory.read(|seen| seen.snapshots_not_in(listed));
        if lacking.is_empty() {
            return Ok(true);
        }
        let (missing, view) = self.look(now, false)?;
        if !missing.snapshots.is_empty() {
            return Err(Error::Unexplained(Box::new(missing)));
        }
        Ok(!lacking.iter().any(|id| view.snapshots.contains(&id.0)))
    }

    fn look(&self, now: i64, keys: bool) -> Result<(Missing, View)> {
        let Some(memory) = self.memory() else { return Ok(Default::default()) };
        let (mut looks, mut noticed) = (0, Ids::default());
        loop {
            looks += 1;
            let view = self.view(&memory.read(Seen::clone), keys, noticed)?;
            // Another thread may have looked meanwhile.
            let (missing, next) = memory.read(|seen| judge(seen, &view));
            let fresh = view.entries.iter().any(|entry| !view.noticed.contains(&entry.id.0));
            if missing.is_empty() && !fresh || looks == LOOKS {
                memory.remember(next, missing.is_empty().then_some(now));
                return Ok((missing, view));
            }
            noticed = view.history;
        }
    }

    /// What is there. The order is that of `docs/history.md`: objects, then sessions, then decisions; and the history
    /// after the objects. What has no place in it is asked for side by side.
    fn view(&self, seen: &Seen, keys: bool, noticed: Ids) -> Result<View> {
        let (mut snapshots, mut indexes, mut key_ids) = (Vec::new(), Vec::new(), BTreeSet::new());
        let mut history = Vec::new();
        let folders = [names::SNAPSHOTS, names::INDEX, names::KEYS, names::HISTORY];
        self.store().list_in_order(&folders, &mut |at, listed| {
            let name = names::last(&listed.name);
            match at {
                0 => snapshots.extend(SnapshotId::parse(name).map(|id| id.0)),
                1 => indexes.extend(IndexId::parse(name).map(|id| id.0)),
                2 => key_ids.extend(names::key_id(name)),
                _ => history.extend(HistoryId::parse(name).map(|id| id.0)),
            }
        })?;
        let (snapshots, indexes): (Ids, Ids) = (snapshots.into_iter().collect(), indexes.into_iter().collect());
        let generations = self.standing_generations(seen)?;
        let place = self.store().location();
        let mut view = View { place, config: config(self), generations, noticed, ..View::default() };
        let new_snapshots: Vec<Id> = snapshots.not_in(&seen.snapshots).copied().collect();
        let new_indexes: Vec<Id> = indexes.not_in(&seen.indexes).copied().collect();
        view.listed_keys = key_ids.iter().map(|id| id.0).collect();
        let (lasting, found) = self.ask_both(
            || self.lasting(new_snapshots, new_indexes),
            || keys.then(|| self.seen_keys(key_ids)).transpose(),
        );
        (view.lasting_snapshots, view.lasting_indexes) = lasting?;
        view.keys = found?;
        (view.snapshots, view.indexes, view.history) = (snapshots, indexes, history.into_iter().collect());
        for look in 0..LISTINGS_MAX {
            if look > 0 {
                view.history = self.listed_history()?;
            }
            if let Some(entries) = self.new_entries(view.history.not_in(&seen.entries))? {
                view.entries = entries;
                return Ok(view);
            }
        }
        let why = "the history of the repository keeps changing while it is read; run it again";
        Err(Error::Unsteady(why.into()))
    }

    /// The generations that there are. One that another process of this client has seen come is looked for.
    fn standing_generations(&self, seen: &Seen) -> Result<BTreeMap<u32, Id>> {
        let mut standing: BTreeMap<u32, Id> = self.generations().digests().collect();
        let unknown: Vec<u32> =
            seen.generations.keys().filter(|number| !standing.contains_key(number)).copied().collect();
        // One below the newest would have been found when the repository was opened.
        let is_new = unknown.last().is_some_and(|newest| *newest > self.generations().newest());
        if !is_new || Repository::read_config(&**self.store())?.generation == 0 {
            return Ok(standing);
        }
        for number in unknown {
            for name in [names::generation(number), names::generation_copy(number)] {
                match self.store().get(&name).map_err(Error::from) {
                    Ok(bytes) if seen.generations.get(&number) == Some(&checksum(&bytes)) => {
                        standing.insert(number, checksum(&bytes));
                    }
                    Err(e) if !e.is_of_one_object() => return Err(e),
                    _ => {}
                }
            }
        }
        Ok(standing)
    }

    /// The number of the newest generation that this client has seen, when the repository was opened or before.
    pub(crate) fn seen_generation(&self) -> u32 {
        self.memory().map_or(0, |memory| memory.expected_generation())
    }

    fn listed_history(&self) -> Result<Ids> {
        Ok(self.history_ids()?.into_iter().map(|(id, _)| id.0).collect())
    }

    /// Those of these entries that count; `None` if one of them is gone.
    fn new_entries<'a>(
        &self,
        ids: impl Iterator<Item = &'a Id>,
    ) -> Result<Option<Vec<drumlin_format::history::Entry>>> {
        let mut ids = ids.peekable();
        let mut entries = Vec::new();
        if ids.peek().is_none() {
            return Ok(Some(entries));
        }
        let trusted = self.trusted_keys()?;
        for id in ids {
            match self.history_entry(HistoryId(*id), &trusted)? {
                Read::Counts(entry) => entries.push(entry),
                Read::Void => {}
                Read::Gone => return Ok(None),
            }
        }
        Ok(Some(entries))
    }

    /// Of snapshots and index objects that are new those that nobody removes without a word. They are listed once more,
    /// behind the sessions: a writer that has ended in between has removed its checkpoints before.
    fn lasting(&self, mut snapshots: Vec<Id>, mut indexes: Vec<Id>) -> Result<(Vec<Id>, Vec<Id>)> {
        if snapshots.is_empty() && indexes.is_empty() {
            return Ok(Default::default());
        }
        let (mut open, mut decided) = (HashSet::new(), HashSet::new());
        let (mut standing, mut standing_indexes) = (HashSet::new(), HashSet::new());
        let folders = [names::SESSIONS, names::DECISIONS, names::SNAPSHOTS, names::INDEX];
        // Of many index objects a listing is long.
        let folders = if indexes.is_empty() { &folders[..3] } else { &folders };
        self.store().list_in_order(folders, &mut |at, listed| {
            let name = names::last(&listed.name);
            match at {
                0 => open.extend(SessionId::parse(name)),
                1 => decided.extend(names::decided_on(name)),
                2 => standing.extend(SnapshotId::parse(name).map(|id| id.0)),
                _ => standing_indexes.extend(IndexId::parse(name).map(|id| id.0)),
            }
        })?;
        snapshots.retain(|id| standing.contains(id));
        indexes.retain(|id| standing_indexes.contains(id));
        let indexes = self.lasting_indexes(indexes, &open, &decided)?;
        Ok((self.lasting_snapshots(snapshots, &open, &decided)?, indexes))
    }

    /// The snapshots that nobody removes without a word: their sessions have ended, and were not evicted. Others are
    /// checkpoints that their own writer replaces.
    fn lasting_snapshots(
        &self,
        ids: Vec<Id>,
        open: &HashSet<SessionId>,
        decided: &HashSet<SessionId>,
    ) -> Result<Vec<Id>> {
        if open.is_empty() && decided.is_empty() {
            return Ok(ids);
        }
        // Whoever can't open them knows his own.
        if self.secrets().meta.is_none() {
            return Ok(Vec::new());
        }
        let desk = Desk::new(self);
        let mut lasting = Vec::new();
        for id in ids.into_iter().take(OPENED_MAX) {
            let bytes = match self.store().get(&names::snapshot(SnapshotId(id))).map_err(Error::from) {
                // Gone since it was listed, or damaged.
                Err(e) if e.is_of_one_object() => continue,
                other => other?,
            };
            let Ok((snapshot, _)) = snapshot::open(SnapshotId(id), self.secrets(), &bytes) else { continue };
            let session = snapshot.session;
            if open.contains(&session) {
                continue;
            }
            let evicted = match decided.contains(&session).then(|| desk.is_evicted(session)) {
                None => false,
                Some(Err(e)) if e.is_damage() => continue,
                Some(evicted) => evicted?,
            };
            if !evicted {
                lasting.push(id);
            }
        }
        Ok(lasting)
    }

    /// The index objects of writers that have ended, and were not evicted: the others may not be durable yet.
    fn lasting_indexes(
        &self,
        ids: Vec<Id>,
        open: &HashSet<SessionId>,
        decided: &HashSet<SessionId>,
    ) -> Result<Vec<Id>> {
        let desk = Desk::new(self);
        let prefix = |id: &SessionId| id.0.first_chunk::<8>().copied();
        let mut writers: HashSet<[u8; 8]> = open.iter().filter_map(prefix).collect();
        let wrote: HashSet<[u8; 8]> = ids.iter().filter_map(|id| id.first_chunk().copied()).collect();
        for session in decided.iter().filter(|id| prefix(id).is_some_and(|prefix| wrote.contains(&prefix))) {
            match desk.is_evicted(*session) {
                Ok(false) => {}
                Err(e) if !e.is_damage() => return Err(e),
                _ => writers.extend(prefix(session)),
            }
        }
        let is_over = |id: &Id| id.first_chunk().is_none_or(|writer| !writers.contains(writer));
        Ok(ids.into_iter().filter(is_over).collect())
    }

    /// What is to be remembered of the keys that the owner has certified.
    fn seen_keys(&self, ids: BTreeSet<KeyId>) -> Result<BTreeMap<Id, FoundKey>> {
        let secrets = self.secrets();
        let mut keys = BTreeMap::new();
        for (id, object) in self.key_objects(ids)? {
            let Ok(object) = object else { continue };
            let Ok(certificate) = object.certificate(secrets.repository, &secrets.owner) else { continue };
            let verifying = certificate.verifying.map(|key| key.0).unwrap_or_default();
            let role = certificate.role.name().as_bytes();
            let dated = checksum(&[role, &certificate.created.to_le_bytes(), &verifying].concat());
            let certificate =
                SeenKey { certificate: checksum(&[role, &verifying].concat()), revoked: certificate.revoked.is_some() };
            keys.insert(id.0, FoundKey { key: certificate, dated });
        }
        Ok(keys)
    }
}

/// What never changes in a config.
fn config(repository: &Repository) -> Id {
    let config = repository.config();
    let sizes = [config.chunks.min, config.chunks.normal, config.chunks.max, config.block_bytes, config.pack_bytes];
    let mut bytes: Vec<u8> = sizes.iter().flat_map(|n| u64::from(*n).to_le_bytes()).collect();
    bytes.push(config.suite.number());
    bytes.extend(config.data_key.encode());
    bytes.extend(config.meta_key.encode());
    checksum(&bytes)
}
