//! What the actors were told, kept apart from what the storage says; and whether the two agree.

use drumlin_engine::dump::dump_file;
use drumlin_engine::list::{self, Depth};
use drumlin_engine::monitor::{Monitor, Quiet};
use drumlin_engine::select::{TreePath, open_reader};
use drumlin_format::SnapshotId;
use drumlin_format::snapshot::Snapshot;
use drumlin_format::tree::Kind;
use drumlin_repo::{Cache, Repository};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Files by their paths in the tree, and what is in them.
pub type Contents = BTreeMap<String, Arc<Vec<u8>>>;

#[derive(Default)]
struct Pages {
    /// What each backup, by its tag, is to save.
    backups: BTreeMap<String, Contents>,
    /// Snapshots that somebody was told are committed.
    committed: BTreeSet<SnapshotId>,
    /// Snapshots that somebody has begun to forget.
    forgotten: BTreeSet<SnapshotId>,
    /// Backups that were told they were evicted.
    evicted: BTreeSet<String>,
    wrong: Vec<String>,
}

/// The book. Clones share it.
#[derive(Clone, Default)]
pub struct Book(Arc<Mutex<Pages>>);

impl Book {
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A book of its own with the same pages.
    pub fn copy(&self) -> Book {
        let pages = self.pages();
        Book(Arc::new(Mutex::new(Pages {
            backups: pages.backups.clone(),
            committed: pages.committed.clone(),
            forgotten: pages.forgotten.clone(),
            evicted: pages.evicted.clone(),
            wrong: pages.wrong.clone(),
        })))
    }

    /// A backup begins. Gives its tag.
    pub fn begins(&self, contents: Contents) -> String {
        let mut pages = self.pages();
        let tag = format!("b{}", pages.backups.len());
        pages.backups.insert(tag.clone(), contents);
        tag
    }

    /// Somebody was told that this snapshot counts.
    pub fn committed(&self, id: SnapshotId) {
        self.pages().committed.insert(id);
    }

    /// Somebody begins to forget a snapshot.
    pub fn forgets(&self, id: SnapshotId) {
        self.pages().forgotten.insert(id);
    }

    /// Whether anybody has begun to forget it.
    pub fn is_forgotten(&self, id: SnapshotId) -> bool {
        self.pages().forgotten.contains(&id)
    }

    /// A backup was told that it was evicted.
    pub fn evicted(&self, tag: &str) {
        self.pages().evicted.insert(tag.into());
    }

    /// Something is not as it has to be.
    pub fn wrong(&self, what: String) {
        self.pages().wrong.push(what);
    }

    /// All that is not as it has to be.
    pub fn wrongs(&self) -> Vec<String> {
        self.pages().wrong.clone()
    }

    /// Those that have to be listed.
    fn due(&self) -> Vec<SnapshotId> {
        let pages = self.pages();
        pages.committed.difference(&pages.forgotten).copied().collect()
    }

    fn contents(&self, snapshot: &Snapshot) -> Option<Contents> {
        self.pages().backups.get(snapshot.tags.first()?).cloned()
    }

    /// Bytes of the files in these snapshots, each content once.
    pub fn needed(&self, snapshots: &[Snapshot]) -> u64 {
        let all = snapshots.iter().filter_map(|s| self.contents(s)).flat_map(Contents::into_values);
        all.collect::<BTreeSet<_>>().iter().map(|bytes| bytes.len() as u64).sum()
    }

    /// Compare with the repository: what has to be listed is, and what is listed is whole, or at least `some` of it.
    /// Gives the snapshots that are listed.
    ///
    /// # Errors
    /// What the storage says; what is wrong is noted here.
    pub fn compare(
        &self,
        repository: &Repository,
        cache: &Arc<Cache>,
        mut some: impl FnMut(&Snapshot) -> bool,
    ) -> Result<Vec<Snapshot>, drumlin_engine::Error> {
        let due = self.due();
        let (infos, errors) = repository.snapshots()?;
        if let Some(error) = errors.first() {
            self.wrong(format!("a snapshot can't be listed: {error}"));
        }
        for id in due {
            if !infos.iter().any(|info| info.snapshot.id == id) && !self.is_forgotten(id) {
                self.wrong(format!("snapshot {id} was committed, nobody forgot it, and it is not listed"));
            }
        }
        let reader = open_reader(repository, cache)?;
        for info in &infos {
            let snapshot = &info.snapshot;
            // What a backup that was stopped has put is listed as in progress until the claim on its session, by which
            // it was told, is confirmed.
            let counts = info.committed || !info.open_session;
            if counts && snapshot.tags.first().is_some_and(|tag| self.pages().evicted.contains(tag)) {
                self.wrong(format!("snapshot {} counts, and its backup was told that it was evicted", snapshot.id));
            }
            if !some(snapshot) {
                continue;
            }
            match self.whole(&reader, snapshot) {
                Ok(None) => {}
                // Whoever forgets it and prunes meanwhile does no wrong.
                _ if self.is_forgotten(snapshot.id) => {}
                Ok(Some(what)) => self.wrong(what),
                Err(error) => return Err(error),
            }
        }
        Ok(infos.into_iter().map(|info| info.snapshot).collect())
    }

    /// What is wrong with a snapshot, if anything is.
    fn whole(
        &self,
        reader: &Arc<drumlin_repo::pack::Reader>,
        snapshot: &Snapshot,
    ) -> Result<Option<String>, drumlin_engine::Error> {
        let name = |what: &str| format!("snapshot {} of {:?}: {what}", snapshot.id, snapshot.tags);
        let Some(expected) = self.contents(snapshot) else { return Ok(Some(name("nobody made it"))) };
        let monitor = Quiet::default();
        let mut files = Vec::new();
        list::list(reader, snapshot.root, &TreePath::root(), Depth::All, &monitor, &mut |entry| {
            if entry.meta().kind == Kind::File {
                let dir = String::from_utf8_lossy(entry.dir()).replace('\0', "/");
                let file = String::from_utf8_lossy(entry.name()).into_owned();
                files.push(if dir.is_empty() { file } else { format!("{dir}/{file}") });
            }
            Ok(ControlFlow::Continue(()))
        })?;
        for file in &files {
            let Some(bytes) = expected.get(file) else { return Ok(Some(name(&format!("it has '{file}'")))) };
            let mut out = Vec::new();
            let path = TreePath::parse(file.as_bytes())?;
            match dump_file(reader, snapshot.root, &path, 1, &monitor as &dyn Monitor, &mut out) {
                Err(drumlin_engine::Error::Repo(error)) if error.is_damage() && !self.is_forgotten(snapshot.id) => {
                    return Ok(Some(name(&format!("'{file}' is not whole: {error}"))));
                }
                other => other?,
            };
            if out != **bytes {
                return Ok(Some(name(&format!("'{file}' is not what was saved"))));
            }
        }
        let all = files.len() == expected.len();
        Ok((!all && snapshot.partial.is_none()).then(|| name(&format!("it has only {files:?}"))))
    }
}

/// A cache that knows nothing.
pub fn no_cache(repository: &Repository, scratch: &Path) -> Arc<Cache> {
    Arc::new(Cache::open(repository, None, scratch).unwrap())
}
