//! What a client has seen of a repository, and the bytes that it is kept in: sorted ids, 16 bytes each, so that a
//! hundred thousand of them are read in no time.

use drumlin_format::SnapshotId;
use std::collections::BTreeMap;

/// An id of whatever is meant.
pub(super) type Id = [u8; 16];
/// Ids in order, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ids(Vec<Id>);

/// What was seen of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SeenKey {
    /// Checksum of what never changes in its certificate.
    pub certificate: Id,
    /// Whether it was revoked.
    pub revoked: bool,
}

/// All that a client has seen and expects to find again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// When all of it was there, seconds since 1970; 0: never.
    pub last: i64,
    /// Checksum of the config's fields.
    pub config: Option<Id>,
    /// Snapshots that count for good.
    pub snapshots: Ids,
    /// Index objects of writers that have ended.
    pub indexes: Ids,
    /// Entries of the history that were durable.
    pub entries: Ids,
    /// What those entries name, whatever it is: it may be gone.
    pub gone: Ids,
    /// The keys.
    pub keys: BTreeMap<Id, SeenKey>,
    /// Generations of the secrets: checksums of their objects, by their numbers.
    pub generations: BTreeMap<u32, Id>,
}

impl FromIterator<Id> for Ids {
    fn from_iter<T: IntoIterator<Item = Id>>(ids: T) -> Self {
        let mut ids: Vec<Id> = ids.into_iter().collect();
        ids.sort_unstable();
        ids.dedup();
        Ids(ids)
    }
}

impl Ids {
    pub fn contains(&self, id: &Id) -> bool {
        self.0.binary_search(id).is_ok()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Those that are not among `others`: both are walked once, side by side.
    pub fn not_in<'a>(&'a self, others: &'a Ids) -> impl Iterator<Item = &'a Id> {
        let mut rest = &others.0[..];
        self.0.iter().filter(move |id| {
            // Where most are among them the next one is near.
            let near = rest.iter().take(8).position(|other| other >= *id);
            rest = &rest[near.unwrap_or_else(|| rest.partition_point(|other| other < *id))..];
            rest.first() != Some(id)
        })
    }

    pub fn extend(&mut self, ids: impl IntoIterator<Item = Id>) {
        let before = self.0.len();
        self.0.extend(ids);
        if self.0.len() > before {
            self.0.sort();
            self.0.dedup();
        }
    }

    pub fn retain(&mut self, keep: impl FnMut(&Id) -> bool) {
        self.0.retain(keep);
    }
}

/// What differs between two states of a map goes for a third one as well.
fn take_over<K: Ord + Copy, V: PartialEq + Copy>(
    own: &mut BTreeMap<K, V>,
    before: &BTreeMap<K, V>,
    now: &BTreeMap<K, V>,
) {
    for (key, value) in before {
        match now.get(key) {
            None => drop(own.remove(key)),
            Some(now) if now != value => drop(own.insert(*key, *now)),
            Some(_) => {}
        }
    }
}

impl Seen {
    /// What this and another process of the same client have seen.
    pub fn join(&mut self, other: Seen) {
        self.last = self.last.max(other.last);
        self.config = self.config.or(other.config);
        self.snapshots.extend(other.snapshots.0);
        self.indexes.extend(other.indexes.0);
        self.entries.extend(other.entries.0);
        self.gone.extend(other.gone.0);
        for (id, key) in other.keys {
            self.keys.entry(id).and_modify(|own| own.revoked |= key.revoked).or_insert(key);
        }
        for (number, digest) in other.generations {
            self.generations.entry(number).or_insert(digest);
        }
    }

    /// Takes over what another process has taken out, or changed, since it and this one knew the same: somebody has
    /// accepted that it is gone, or another.
    pub fn accept(&mut self, before: &Seen, other: &Seen) {
        let gone = |before: &Ids, other: &Ids| -> Ids { before.not_in(other).copied().collect() };
        let lists = [
            (&mut self.snapshots, gone(&before.snapshots, &other.snapshots)),
            (&mut self.indexes, gone(&before.indexes, &other.indexes)),
            (&mut self.entries, gone(&before.entries, &other.entries)),
        ];
        for (own, gone) in lists {
            own.retain(|id| !gone.contains(id));
        }
        if other.config != before.config {
            self.config = other.config;
        }
        take_over(&mut self.keys, &before.keys, &other.keys);
        take_over(&mut self.generations, &before.generations, &other.generations);
    }

    /// The snapshots that are not among these.
    pub fn snapshots_not_in(&self, listed: &[SnapshotId]) -> Vec<SnapshotId> {
        let listed = listed.iter().map(|id| id.0).collect();
        self.snapshots.not_in(&listed).map(|id| SnapshotId(*id)).collect()
    }

    pub fn encode(&self) -> Vec<u8> {
        let lists = [&self.snapshots, &self.indexes, &self.entries, &self.gone];
        let ids: usize = lists.iter().map(|ids| ids.len()).sum();
        let mut out = Vec::with_capacity(96 + 16 * ids + 33 * self.keys.len() + 20 * self.generations.len());
        out.extend_from_slice(&self.last.to_le_bytes());
        out.push(self.config.is_some().into());
        out.extend_from_slice(&self.config.unwrap_or_default());
        for ids in lists {
            out.extend_from_slice(&(ids.len() as u64).to_le_bytes());
            out.extend_from_slice(ids.0.as_flattened());
        }
        out.extend_from_slice(&(self.generations.len() as u64).to_le_bytes());
        for (number, digest) in &self.generations {
            out.extend_from_slice(&number.to_le_bytes());
            out.extend_from_slice(digest);
        }
        for (id, key) in &self.keys {
            out.extend_from_slice(id);
            out.extend_from_slice(&key.certificate);
            out.push(key.revoked.into());
        }
        out
    }

    /// `None` if it is nothing that [`Seen::encode`] makes. `generations`: whether it says anything of those; what was
    /// written before there were any does not.
    pub fn decode(mut bytes: &[u8], with_generations: bool) -> Option<Self> {
        let rest = &mut bytes;
        let last = i64::from_le_bytes(take(rest)?);
        let [has_config] = take(rest)?;
        let config = take(rest).map(|id| (has_config == 1).then_some(id))?;
        let (snapshots, indexes, entries, gone) = (ids(rest)?, ids(rest)?, ids(rest)?, ids(rest)?);
        let mut generations = BTreeMap::new();
        if with_generations {
            let count = u64::from_le_bytes(take(rest)?);
            for _ in 0..count {
                let number = u32::from_le_bytes(take(rest)?);
                generations.insert(number, take(rest)?);
            }
        }
        let (keys, odd) = rest.as_chunks::<33>();
        if !odd.is_empty() {
            return None;
        }
        let key = |mut bytes: &[u8]| {
            let id = take(&mut bytes)?;
            let key = SeenKey { certificate: take(&mut bytes)?, revoked: bytes == [1] };
            Some((id, key))
        };
        let keys = keys.iter().map(|bytes| key(bytes)).collect::<Option<_>>()?;
        Some(Seen { last, config, snapshots, indexes, entries, gone, keys, generations })
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

fn ids(bytes: &mut &[u8]) -> Option<Ids> {
    let len = usize::try_from(u64::from_le_bytes(take(bytes)?)).ok()?.checked_mul(16)?;
    let (ids, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    let ids = ids.as_chunks().0.to_vec();
    ids.is_sorted_by(|a, b| a < b).then_some(Ids(ids))
}
