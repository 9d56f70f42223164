//! What lies in the storage: packs, index objects, and which object names which pack.

use crate::monitor::Monitor;
use crate::reach::keys::Keys;
use crate::reach::twice;
use crate::{Error, Result};
use drumlin_format::index::{Entry, Hooks};
use drumlin_format::pack::PackKind;
use drumlin_format::snapshot::Snapshot;
use drumlin_format::{IndexId, PackId};
use drumlin_repo::collection::Desk;
use drumlin_repo::pack::PackScan;
use drumlin_repo::{Cache, Index, PackInfo, Repository, names};
use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;

/// Packs about which index objects disagree are asked so many at a time: tables of all that somebody has contradicted
/// might not fit into memory.
pub(crate) const ASKED_AT_ONCE: usize = 64;

/// The packs and index objects of a repository at one moment.
#[derive(Default)]
pub(crate) struct Ground {
    /// The packs that are there: their kinds and lengths.
    pub packs: HashMap<PackId, (PackKind, u64)>,
    /// What index objects say of packs, of those that are gone too: place of the table, number of chunks.
    pub named: HashMap<PackId, (PackInfo, u32)>,
    /// The index objects, their lengths, and the packs that each names.
    pub objects: HashMap<IndexId, (u64, Vec<PackId>)>,
    /// The tags of the generations of index objects.
    pub generations: HashMap<IndexId, u32>,
    /// Index objects that can't be read or opened, and why.
    pub broken: Broken,
}

/// Index objects that can't be read, and why.
pub(crate) type Broken = Vec<(IndexId, drumlin_repo::Error)>;

/// Fails if there is one.
pub(crate) fn refuse(mut broken: Broken) -> Result<()> {
    match broken.pop() {
        Some((_, why)) => Err(Error::Doubt(format!("{why}; 'drumlin repair' makes the index anew"))),
        None => Ok(()),
    }
}

/// What an index object says. If that is no use it is read once more, and asked how long it is, whatever the list says
/// of that.
fn hooks(repository: &Repository, id: IndexId, len: u64) -> drumlin_repo::Result<Option<(u32, Vec<Hooks>)>> {
    match repository.index_hooks_of(id, len) {
        Err(e) if e.is_damage() => repository.index_hooks(id),
        other => other,
    }
}

/// What a pack says itself; `None` if that can't be read, as it is damaged or in cold storage.
pub(crate) fn own_word(scan: &PackScan, kind: PackKind, pack: PackId, len: u64) -> Result<Option<Entry>> {
    match twice(|| scan.entry(kind, pack, len)) {
        Err(e) if e.is_damage() || e.frozen().is_some() => Ok(None),
        other => Ok(Some(other?)),
    }
}

impl Ground {
    /// Look. Index objects first: a pack that one of them names and that isn't there then is gone.
    pub fn look(repository: &Repository) -> Result<Self> {
        let mut ground = Ground::default();
        let (mut gone, mut looks) = (None, 0);
        while looks == 0 || gone.is_some() {
            looks += 1;
            if let Some(gone) = gone.take() {
                drumlin_repo::index::look_again(repository, gone, looks - 1)?;
            }
            let mut objects = repository.index_objects()?;
            let is_new = |id: &IndexId| {
                !ground.objects.contains_key(id) && !ground.broken.iter().any(|(broken, _)| broken == id)
            };
            objects.retain(|(id, _)| is_new(id));
            let read = repository.ask_many(&objects, |(id, len)| Ok::<_, Infallible>(hooks(repository, *id, *len)));
            let Ok(read) = read;
            for ((id, len), hooks) in objects.into_iter().zip(read) {
                let hooks = match hooks {
                    Ok(Some((generation, hooks))) => {
                        ground.generations.insert(id, generation);
                        hooks
                    }
                    // One that is gone has been replaced by others.
                    Ok(None) => {
                        gone = Some(id);
                        continue;
                    }
                    // Nobody knows what it names, and it may be as good as any.
                    Err(e) if e.is_unknown_generation() => {
                        repository.refuse_rekeyed()?;
                        return Err(e.into());
                    }
                    Err(e) if e.is_damage() => {
                        ground.broken.push((id, e));
                        continue;
                    }
                    Err(e) => return Err(e.into()),
                };
                ground.objects.insert(id, (len, hooks.iter().map(|h| h.pack).collect()));
                ground.named.extend(hooks.iter().map(|h| (h.pack, (PackInfo::from(h), h.chunks))));
            }
        }
        for kind in [PackKind::Data, PackKind::Tree] {
            let list = repository.store().list(names::folder(kind), &mut |listed| {
                if let Some(id) = PackId::parse(names::last(&listed.name)) {
                    ground.packs.insert(id, (kind, listed.len));
                }
            });
            list.map_err(drumlin_repo::Error::from)?;
        }
        ground.refuse_short(repository)?;
        repository.refuse_rekeyed()?;
        Ok(ground)
    }

    /// Fails if a pack that an index object names is not in the listing, and is there when it is asked for by its name:
    /// then the storage lists too little, and nobody knows what else is left out.
    fn refuse_short(&self, repository: &Repository) -> Result<()> {
        for (pack, (info, _)) in self.named.iter().filter(|(pack, _)| !self.packs.contains_key(pack)) {
            let name = names::pack(info.kind, *pack);
            if repository.store().len(&name).map_err(drumlin_repo::Error::from)?.is_some() {
                let folder = names::folder(info.kind);
                return Err(Error::Doubt(format!(
                    "the storage doesn't list '{name}' in '{folder}', though it is there"
                )));
            }
        }
        Ok(())
    }

    /// Fails if snapshots need something, and none of the packs that the index names is there.
    pub fn refuse_empty(&self, snapshots: &[Snapshot]) -> Result<()> {
        let needed = snapshots.iter().any(|snapshot| snapshot.root.is_some());
        if needed && !self.named.is_empty() && self.known().next().is_none() {
            let cause = "the storage lists none of the packs that the index names";
            return Err(Error::Doubt(format!("{cause}: is all of it mounted, and may this account list it?")));
        }
        Ok(())
    }

    /// Fails if there are packs and no snapshot at all. Nobody but a user who has forgotten the last one can tell that
    /// from a listing that is empty, or of another place: a client that has never seen a snapshot misses none.
    pub fn refuse_all(&self, snapshots: &[Snapshot]) -> Result<()> {
        if snapshots.is_empty() && !self.packs.is_empty() {
            return Err(Error::Nothing { packs: self.packs.len() });
        }
        Ok(())
    }

    /// Fails if an index object can't be read: nobody knows what it names.
    pub fn refuse_broken(&mut self) -> Result<()> {
        refuse(std::mem::take(&mut self.broken))
    }

    /// The packs that are there and named by an index object.
    pub fn known(&self) -> impl Iterator<Item = PackId> {
        self.packs.keys().filter(|pack| self.named.contains_key(pack)).copied()
    }

    /// Packs that no index object names.
    pub fn orphans(&self) -> impl Iterator<Item = PackId> {
        self.packs.keys().filter(|pack| !self.named.contains_key(pack)).copied()
    }

    /// Packs that are named and gone.
    pub fn lost(&self) -> impl Iterator<Item = PackId> {
        self.named.keys().filter(|pack| !self.packs.contains_key(pack)).copied()
    }

    /// The chunks of all packs that the index objects name.
    ///
    /// # Errors
    /// The storage fails; [`drumlin_repo::Error::Replaced`] if an index object is gone. Those that can't be read are
    /// given besides.
    pub fn keys(
        &self,
        repository: &Repository,
        cache: &Cache,
        workers: usize,
        monitor: &dyn Monitor,
    ) -> Result<(Arc<Keys>, Broken)> {
        let mut ids: Vec<_> = self.objects.keys().copied().collect();
        ids.sort_unstable();
        let mut keys = Keys::read(repository, cache, &ids, workers, monitor)?;
        if let Some(gone) = keys.gone {
            return Err(drumlin_repo::Error::Replaced { name: names::index(gone) }.into());
        }
        let broken = std::mem::take(&mut keys.broken);
        self.settle(repository, &mut keys)?;
        Ok((Arc::new(keys), broken))
    }

    /// The index of what the index objects say, but for those that can't be read, of some of the packs.
    ///
    /// # Errors
    /// As [`Index::open_among`].
    pub fn index(&self, repository: &Repository, cache: &Arc<Cache>, packs: HashSet<PackId>) -> Result<Arc<Index>> {
        let is_broken = |id: &IndexId| self.broken.iter().any(|(broken, _)| broken == id);
        let readable = self.objects.iter().filter(|(id, _)| !is_broken(id));
        let objects = readable.map(|(id, (len, _))| (*id, *len)).collect();
        let all = self.named.keys().all(|pack| packs.contains(pack));
        Ok(Arc::new(Index::open_among(repository, cache.clone(), objects, (!all).then_some(packs))?))
    }

    /// Of packs of which index objects say different things, what they say themselves counts, where that can be read.
    fn settle(&self, repository: &Repository, keys: &mut Keys) -> Result<()> {
        let contested: Vec<(PackId, PackKind, u64)> =
            keys.contested.iter().filter_map(|id| self.packs.get(id).map(|(kind, len)| (*id, *kind, *len))).collect();
        if contested.is_empty() {
            return Ok(());
        }
        let scan = PackScan::new(repository)?;
        for contested in contested.chunks(ASKED_AT_ONCE) {
            let said = repository.ask_many(contested, |(id, kind, len)| own_word(&scan, *kind, *id, *len))?;
            for ((id, ..), said) in contested.iter().zip(said) {
                match said {
                    Some(entry) => keys.correct(&entry)?,
                    None => _ = keys.unsettled.insert(*id),
                }
            }
        }
        Ok(())
    }

    /// What some packs hold, and their lengths, as far as they are there.
    pub fn lens(&self, packs: &HashSet<PackId>) -> HashMap<PackId, (PackKind, u64)> {
        packs.iter().filter_map(|id| Some((*id, *self.packs.get(id)?))).collect()
    }

    /// Bytes of some packs.
    pub fn bytes<'a>(&self, packs: impl IntoIterator<Item = &'a PackId>) -> u64 {
        packs.into_iter().filter_map(|pack| self.packs.get(pack)).map(|(_, len)| len).sum()
    }

    /// The index objects of sessions that were evicted. Writers pass them over: what they name has to be named by
    /// others.
    pub fn of_evicted(&self, repository: &Repository) -> Result<Vec<IndexId>> {
        let mut ids: Vec<_> = self.objects.keys().copied().collect();
        ids.sort_unstable();
        let evicted = Desk::new(repository).evicted(&ids)?;
        Ok(ids.into_iter().filter(|id| evicted.iter().any(|session| id.is_of(session))).collect())
    }

    /// The index objects that name one of these packs.
    pub fn naming(&self, packs: &HashSet<PackId>) -> Vec<IndexId> {
        let names = |named: &[PackId]| named.iter().any(|pack| packs.contains(pack));
        let mut ids: Vec<_> = self.objects.iter().filter(|(_, (_, named))| names(named)).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids
    }
}
