//! What was seen, compared with what is there. Pure: no storage, no clock.

use super::missing::{KeyTrouble, Missing};
use super::seen::{Id, Ids, Seen, SeenKey};
use drumlin_format::history::Entry;
use drumlin_format::{HistoryId, IndexId, KeyId, SnapshotId};
use std::collections::{BTreeMap, HashMap};

/// A key that is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoundKey {
    /// What is to be remembered of it.
    pub key: SeenKey,
    /// What 0.1's first builds remembered of its certificate: with the time of its making, which is another one once a
    /// recovery file has made it again.
    pub dated: Id,
}

/// What is there, looked at in this order: objects first, then the history.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    /// Where this is.
    pub place: String,
    /// The entries that were listed before the objects were: whatever they name was there by then.
    pub noticed: Ids,
    /// The snapshots that are listed.
    pub snapshots: Ids,
    /// The index objects that are listed.
    pub indexes: Ids,
    /// Of those that were not seen before: snapshots that count for good.
    pub lasting_snapshots: Vec<Id>,
    /// Of those that were not seen before: index objects whose writers have ended.
    pub lasting_indexes: Vec<Id>,
    /// The entries that are listed.
    pub history: Ids,
    /// Those of them that count and were not seen before.
    pub entries: Vec<Entry>,
    /// The keys that are listed, whatever they are.
    pub listed_keys: Ids,
    /// The keys that the owner has certified; `None` if they were not read.
    pub keys: Option<BTreeMap<Id, FoundKey>>,
    /// Checksum of the config's fields.
    pub config: Id,
    /// The generations of secrets that there are: checksums of their objects, by their numbers.
    pub generations: BTreeMap<u32, Id>,
}

impl View {
    /// All that an entry names, and whether that is still there.
    fn named<'a>(&'a self, entry: &'a Entry) -> impl Iterator<Item = (Id, bool)> + 'a {
        let snapshots = entry.snapshots.iter().map(|id| (id.0, self.snapshots.contains(&id.0)));
        let indexes = entry.indexes.iter().map(|id| (id.0, self.indexes.contains(&id.0)));
        let absorbed = entry.absorbed.iter().map(|id| (id.0, self.history.contains(&id.0)));
        snapshots.chain(indexes).chain(absorbed)
    }
}

/// What is missing, and what to remember from now on.
///
/// An entry that is seen may yet be lost, if the power fails before it is durable. It is durable if something is gone
/// that it alone names, and that is not just yet to come: so only such a one is remembered, and expected to stand. What
/// others name is explained as well, and looked at again the next time.
pub(super) fn judge(seen: &Seen, view: &View) -> (Missing, Seen) {
    let mut times: HashMap<Id, u32> = HashMap::new();
    for (id, _) in view.entries.iter().flat_map(|entry| view.named(entry)) {
        *times.entry(id).or_default() += 1;
    }
    let unexplained = |id: &&Id| !seen.gone.contains(id) && !times.contains_key(*id);
    let mut missing = Missing {
        place: view.place.clone(),
        last: seen.last,
        snapshots: seen.snapshots.not_in(&view.snapshots).filter(unexplained).map(|id| SnapshotId(*id)).collect(),
        indexes: seen.indexes.not_in(&view.indexes).filter(unexplained).map(|id| IndexId(*id)).collect(),
        entries: seen.entries.not_in(&view.history).filter(unexplained).map(|id| HistoryId(*id)).collect(),
        keys: Vec::new(),
        config: seen.config.is_some_and(|config| config != view.config),
        generations: seen
            .generations
            .iter()
            .filter(|(number, digest)| view.generations.get(number) != Some(*digest))
            .map(|(number, _)| *number)
            .collect(),
    };
    let mut next = seen.clone();
    next.config.get_or_insert(view.config);
    for (number, digest) in &view.generations {
        next.generations.entry(*number).or_insert(*digest);
    }
    let is_durable = |entry: &&Entry| {
        let proves = |(id, there): (Id, bool)| !there && times.get(&id) == Some(&1) && !seen.gone.contains(&id);
        view.noticed.contains(&entry.id.0) && view.named(entry).any(proves)
    };
    let durable: Vec<&Entry> = view.entries.iter().filter(is_durable).collect();
    next.entries.extend(durable.iter().map(|entry| entry.id.0));
    next.gone.extend(durable.iter().flat_map(|entry| view.named(entry)).map(|(id, _)| id));
    next.snapshots.extend(view.lasting_snapshots.iter().copied());
    next.indexes.extend(view.lasting_indexes.iter().copied());
    for (ids, listed) in
        [(&mut next.snapshots, &view.snapshots), (&mut next.indexes, &view.indexes), (&mut next.entries, &view.history)]
    {
        let over: Vec<Id> = ids.not_in(listed).filter(|id| next.gone.contains(id)).copied().collect();
        if !over.is_empty() {
            ids.retain(|id| over.binary_search(id).is_err());
        }
    }
    let Some(keys) = &view.keys else {
        let gone = seen.keys.keys().filter(|id| !view.listed_keys.contains(id));
        missing.keys = gone.map(|id| (KeyId(*id), KeyTrouble::Gone)).collect();
        return (missing, next);
    };
    for (id, was) in &seen.keys {
        let trouble = match keys.get(id) {
            None => KeyTrouble::Gone,
            Some(is) if ![is.key.certificate, is.dated].contains(&was.certificate) => KeyTrouble::Changed,
            Some(is) if was.revoked && !is.key.revoked => KeyTrouble::Unrevoked,
            Some(_) => continue,
        };
        missing.keys.push((KeyId(*id), trouble));
    }
    for (id, is) in keys {
        let kept = next.keys.entry(*id).or_insert(is.key);
        kept.revoked |= is.key.revoked;
        if kept.certificate == is.dated {
            kept.certificate = is.key.certificate;
        }
    }
    (missing, next)
}
