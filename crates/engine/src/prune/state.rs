//! The state of a repository as its listings show it, to know again that there is nothing to prune.

use super::Options;
use crate::Result;
use drumlin_format::{IndexId, PackId, SessionId, SnapshotId};
use drumlin_repo::{Cache, Repository, names};
use drumlin_seal::checksum;
use std::collections::{BTreeSet, HashSet};

/// Under this name the cache remembers the state in which there was nothing to do.
const REMEMBERED: &str = "nothing to prune";

/// Where the objects are that a collection depends on.
const FOLDERS: [&str; 9] = [
    names::GENERATIONS,
    names::SNAPSHOTS,
    names::INDEX,
    names::DATA,
    names::TREE,
    names::PARITY,
    names::SESSIONS,
    names::PLANS,
    names::LOSSES,
];

/// The names of all objects that a collection depends on.
pub(super) struct State {
    objects: BTreeSet<String>,
    /// Of the names, and of what was asked for.
    digest: Vec<u8>,
    /// Nobody is at work, and nothing is left from anybody's work.
    quiet: bool,
    /// Of all packs.
    pub pack_bytes: u64,
}

impl State {
    /// As it is now.
    pub fn of(repository: &Repository, options: &Options) -> Result<Self> {
        let (mut objects, mut quiet, mut pack_bytes) = (BTreeSet::new(), true, 0);
        for folder in FOLDERS {
            let list = repository.store().list(folder, &mut |listed| {
                quiet &= ![names::SESSIONS, names::PLANS, names::LOSSES].contains(&folder);
                if folder == names::DATA || folder == names::TREE {
                    pack_bytes += listed.len;
                }
                objects.insert(listed.name);
            });
            list.map_err(drumlin_repo::Error::from)?;
        }
        let Options { max_unused, max_repack, max_rekey, .. } = options;
        // With what a limit means: an older program let some stay that this one doesn't.
        let spare = max_unused.spare();
        let mut text = format!("{max_unused:?} {spare:?} {max_repack:?} {max_rekey:?}");
        objects.iter().for_each(|name| text.extend([" ", name]));
        Ok(State { digest: checksum(text.as_bytes()).to_vec(), objects, quiet, pack_bytes })
    }

    /// The sessions that are registered.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.objects.iter().filter_map(|name| SessionId::parse(name.strip_prefix(names::SESSIONS)?.strip_prefix('/')?))
    }

    /// The snapshots.
    pub fn snapshots(&self) -> impl Iterator<Item = SnapshotId> {
        let last = |name: &String| SnapshotId::parse(name.strip_prefix(names::SNAPSHOTS)?.strip_prefix('/')?);
        self.objects.iter().filter_map(last)
    }

    /// Whether there was nothing to do in this state, for the same question.
    pub fn is_remembered(&self, cache: &Cache) -> bool {
        self.quiet && cache.recall(REMEMBERED).is_some_and(|known| known == self.digest)
    }

    /// There is nothing to do in this state.
    pub fn remember(&self, cache: &Cache) {
        let _ = cache.remember(REMEMBERED, &self.digest);
    }

    /// Whether all that is new since `before` is this collector's: then nobody has left anything that it hasn't looked
    /// at.
    ///
    /// # Errors
    /// Its index objects can't be read.
    pub fn is_own(&self, before: &State, repository: &Repository, me: SessionId) -> Result<bool> {
        if !before.quiet || !self.quiet {
            return Ok(false);
        }
        let is_in = |name: &str, folder: &str| name.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        let (mut named, mut packs) = (HashSet::new(), Vec::new());
        for name in self.objects.difference(&before.objects) {
            let last = names::last(name);
            if is_in(name, names::INDEX) {
                let Some(id) = IndexId::parse(last).filter(|id| id.is_of(&me)) else { return Ok(false) };
                named.extend(repository.index_entries(id)?.into_iter().flatten().map(|entry| entry.pack));
            } else if is_in(name, names::DATA) || is_in(name, names::TREE) {
                packs.push(PackId::parse(last));
            } else if !is_in(name, names::PARITY) {
                return Ok(false);
            }
        }
        Ok(packs.iter().all(|pack| pack.is_some_and(|pack| named.contains(&pack))))
    }
}
