//! Bringing a forgotten snapshot back.
//!
//! A collector may be at work, so this is a writer like any other (`docs/collection.md`): it registers a session, opens
//! the index of what that may refer to, and then looks whether each node and each chunk of the tree is still there.
//! Then the snapshot is written anew, under a new id, as this session's. Nothing is written if anything is missing.

use crate::legible::legible;
use crate::list::{Span, Steps, body};
use crate::monitor::{Monitor, add};
use crate::reach::find::{Finder, Found, passed};
use crate::reach::keys::Keys;
use crate::select::push_path;
use crate::{Error, Result, convert};
use drumlin_format::pack::PackKind;
use drumlin_format::session::purpose;
use drumlin_format::snapshot::Snapshot;
use drumlin_format::tree::{Data, Kind, ListNode, Ref};
use drumlin_format::{ChunkId, IndexId, PackId, SnapshotId};
use drumlin_repo::collection::Registration;
use drumlin_repo::pack::Reader;
use drumlin_repo::{
    Cache, Error as RepoError, Index, IndexMode, PackInfo, Repository, SnapshotInfo, Trust, WriteSession,
};
use drumlin_repo::{names, random_id};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Blocks of nodes that are kept: a tree is read in order.
const BLOCK_CACHE_BYTES: usize = 16 << 20;
/// So many nodes of chunk lists are remembered as seen: files that are copies of one another share them.
const LISTS_MAX: usize = 64 << 10;

/// What to bring back.
#[derive(Clone, Debug)]
pub struct Options {
    /// One of those that [`Repository::forgotten`] gives.
    pub forgotten: SnapshotInfo,
    /// This machine's name, for the session.
    pub host: String,
    /// Threads.
    pub workers: usize,
    /// The time now, seconds since 1970, for the session.
    pub now: i64,
}

/// What came of it.
#[derive(Debug)]
pub struct Report {
    /// The snapshot as it stands now. But for its id, its session and the plans that it knows it is as it was; and it
    /// says what it was called first.
    pub snapshot: Snapshot,
    /// Why what was forgotten is still among the forgotten ones, if so: that does no harm.
    pub leftover: Option<RepoError>,
}

/// Bring a snapshot back.
///
/// # Errors
/// [`Error::Pruned`] if something that it refers to is gone; [`Error::Refused`] if nobody known has signed it; damage;
/// the role doesn't allow it. Then nothing has changed.
pub fn undelete(
    repository: &Repository,
    cache: &Arc<Cache>,
    options: &Options,
    monitor: &dyn Monitor,
) -> Result<Report> {
    repository.may_undelete()?;
    let old = &options.forgotten.snapshot;
    // It would bear our signature from now on.
    if matches!(options.forgotten.trust, Trust::Unknown(_)) {
        let why = "no known key has signed it, and it would count as signed by yours";
        return Err(Error::Refused(format!("snapshot {} can't be brought back: {why}", old.id)));
    }
    let registration =
        Registration::begin(repository, convert::session(&options.host, purpose::UNDELETE, options.now))?;
    let plans = registration.known().ids();
    let index = match look(repository, cache, &registration, options, monitor) {
        Ok(index) => index,
        Err(e) => {
            let _ = registration.abandon();
            return Err(e);
        }
    };
    let session = WriteSession::begin(registration, index, cache.clone());
    let (id, original) = (SnapshotId(random_id()?), Some(old.first_id()));
    let snapshot = Snapshot { id, session: session.id(), plans, original, ..old.clone() };
    // If this fails the snapshot may yet appear: its session stays, and protects what it refers to.
    session.put_snapshot(&snapshot).and_then(|()| session.commit(snapshot.id)).map_err(|e| match e {
        RepoError::Evicted => {
            Error::Refused("a prune stopped waiting for this undelete, which had stood still; run it again".into())
        }
        other => other.into(),
    })?;
    let leftover = repository.remove_forgotten(old.id).err();
    Ok(Report { snapshot, leftover })
}

/// Make sure that all of it is there. Whatever plans the snapshot knew or was known to, it had no part in any since it
/// was forgotten.
fn look(
    repository: &Repository,
    cache: &Arc<Cache>,
    registration: &Registration,
    options: &Options,
    monitor: &dyn Monitor,
) -> Result<Arc<Index>> {
    let index = Arc::new(Index::open_for(registration, cache.clone(), IndexMode::Exact)?);
    let reader = Arc::new(Reader::new(repository.clone(), index.clone(), cache.clone(), BLOCK_CACHE_BYTES));
    let mut present = HashMap::new();
    let listed = repository.store().list(names::DATA, &mut |listed| {
        present.extend(PackId::parse(names::last(&listed.name)).map(|id| (id, listed.len)));
    });
    listed.map_err(RepoError::from)?;
    let ids: Vec<IndexId> = repository.index_objects()?.into_iter().map(|(id, _)| id).collect();
    let keys = Keys::read(repository, cache, &ids, options.workers, monitor)?;
    let passed = passed(&keys, &index)?;
    let usable = usable(&keys, &index, &present);
    let finder = Finder::new(&keys, &index, PackKind::Data, Some(&passed));
    let snapshot = &options.forgotten.snapshot;
    let (id, lists) = (snapshot.id, HashSet::new());
    let inspected =
        Inspector { reader: &reader, snapshot: id, present: &present, usable, finder, lists }.tree(snapshot, monitor);
    if let Err(Error::Pruned { .. }) = inspected {
        // What is sealed anew since then is not gone.
        repository.refuse_rekeyed()?;
    }
    match (inspected, repository.passed_over().first_key_value()) {
        // What seems to be gone may be what only that one names.
        (Err(Error::Pruned { .. }), Some((name, why))) => Err(Error::Refused(format!(
            "whether all of snapshot {id} is there can't be told: index object '{name}' can't be read: {why}"
        ))),
        (inspected, _) => inspected.map(|()| index),
    }
}

/// By their numbers: data packs that the session may refer to and that are in the store as long as they should be.
/// Nothing is guessed in a pack that the index hasn't given before.
fn usable(keys: &Keys, index: &Index, present: &HashMap<PackId, u64>) -> Vec<bool> {
    let mut usable = vec![false; keys.len() as usize];
    for info in index.packs().into_iter().filter(|info| is_there(info, present)) {
        if let Some(number) = keys.number(&info.id) {
            usable[number as usize] = true;
        }
    }
    usable
}

fn is_there(info: &PackInfo, present: &HashMap<PackId, u64>) -> bool {
    info.kind == PackKind::Data && present.get(&info.id) == Some(&info.len)
}

struct Inspector<'a> {
    reader: &'a Arc<Reader>,
    snapshot: SnapshotId,
    /// The data packs in the store, and their lengths.
    present: &'a HashMap<PackId, u64>,
    /// See [`usable`].
    usable: Vec<bool>,
    finder: Finder<'a>,
    /// Nodes of chunk lists of which everything is there, and their levels.
    lists: HashSet<(ChunkId, u8)>,
}

impl Inspector<'_> {
    /// Every node and all contents of a tree.
    fn tree(&mut self, snapshot: &Snapshot, monitor: &dyn Monitor) -> Result<()> {
        let counters = monitor.counters();
        if let Some(root) = snapshot.root {
            add(&counters.expected_entries, root.sums.entries);
            add(&counters.expected_bytes, root.sums.bytes);
        }
        let mut steps = Steps::new(self.reader, snapshot.root, Span::default());
        while let Some(head) = steps.head() {
            if monitor.stop() {
                return Err(Error::Interrupted);
            }
            let child = head.child.clone();
            let below = || entries_from(&child.dir, &child.name);
            let Some(entered) = steps.enter().map_err(|e| self.gone(e.into(), below))? else { continue };
            let body = body(self.reader, &entered.child, &entered.leaf).map_err(|e| self.gone(e.into(), below))?;
            for at in entered.within.clone() {
                let (dir, name, meta) = entered.leaf.get(at);
                let contents = || format!("the contents of {}", path(dir, name));
                // A body has as many contents as its leaf has entries, or it is not decoded.
                match &body.contents[at].data {
                    Data::None => {}
                    Data::Chunk(id) => self.chunk(id).map_err(|e| self.gone(e, contents))?,
                    Data::List(list) => self.list(&list.refs, list.level).map_err(|e| self.gone(e, contents))?,
                }
                add(&counters.entries, 1);
                if meta.kind == Kind::File {
                    add(&counters.files, 1);
                    add(&counters.bytes, meta.size);
                }
            }
        }
        Ok(())
    }

    /// The refs of a list, whose level bounds the depth.
    fn list(&mut self, refs: &[Ref], level: u8) -> Result<()> {
        for r in refs {
            let Ref::Chunk { id, len } = r else { continue };
            if level == 0 {
                self.chunk(id)?;
            } else if !self.lists.contains(&(*id, level)) {
                let bytes = self.reader.chunk(PackKind::Tree, id)?;
                let node = ListNode::decode(&bytes, level - 1, *len)
                    .map_err(|source| RepoError::Damaged { object: format!("chunk list {id}"), source })?;
                self.list(&node.refs, level - 1)?;
                if self.lists.len() >= LISTS_MAX {
                    self.lists.clear();
                }
                self.lists.insert((*id, level));
            }
        }
        Ok(())
    }

    /// A chunk of contents: in a pack that the session may refer to, and that is in the store as long as it should be.
    fn chunk(&mut self, id: &ChunkId) -> Result<()> {
        let is_there = match self.finder.find(id)? {
            Found::At(place) => self.usable[place.pack as usize],
            Found::Newer(info, _) => is_there(&info, self.present),
            Found::Nowhere => false,
        };
        if is_there { Ok(()) } else { Err(RepoError::MissingChunk(*id).into()) }
    }

    /// What is missing was removed by somebody; other errors are what they are.
    fn gone(&self, error: Error, what: impl Fn() -> String) -> Error {
        use drumlin_repo::Error::{MissingChunk, Store};
        let missing = match &error {
            Error::Repo(MissingChunk(_)) => true,
            Error::Repo(cause @ Store(e)) => !e.name.is_empty() && cause.is_damage() && !cause.is_unread(),
            _ => false,
        };
        if missing { Error::Pruned { snapshot: self.snapshot, what: what() } } else { error }
    }
}

fn entries_from(dir: &[u8], name: &[u8]) -> String {
    // The root begins before any entry.
    if name.is_empty() { "its entries".into() } else { format!("its entries from {} on", path(dir, name)) }
}

fn path(dir: &[u8], name: &[u8]) -> String {
    let mut out = Vec::new();
    push_path(dir, name, &mut out);
    format!("'{}'", legible(&out))
}
