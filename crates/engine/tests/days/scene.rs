//! A repository with one of everything, and what is in its snapshots.

use crate::common;
use drumlin_engine::backup::{self, Parent};
use drumlin_engine::check::{Report, check};
use drumlin_engine::dump::dump_file;
use drumlin_engine::list::{self, Depth};
use drumlin_engine::monitor::Quiet;
use drumlin_engine::parity::{self, Shape};
use drumlin_engine::select::{TreePath, open_reader};
use drumlin_format::config::ChunkSizes;
use drumlin_format::decision::Verdict;
use drumlin_format::key::Role;
use drumlin_format::loss::Loss;
use drumlin_format::plan::Plan;
use drumlin_format::session::Session;
use drumlin_format::snapshot::Snapshot;
use drumlin_format::tree::Kind;
use drumlin_format::{ChunkId, LossId, PackId, PlanId, SessionId, SnapshotId};
use drumlin_repo::collection::{Board, Desk, Flag};
use drumlin_repo::{Cache, CreateOptions, NewLock, RekeyOptions, Repository, Unlock};
use drumlin_seal::Secret;
use drumlin_store::{MemoryStore, Put, Store};
use drumlin_testkit::Rng;
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// All objects of a store by their names.
pub type Objects = BTreeMap<String, Vec<u8>>;

/// What a snapshot gives back, by paths.
pub type Contents = BTreeMap<String, Vec<u8>>;

/// A repository as it is before every attempt.
pub struct Scene {
    /// All that is in it.
    pub objects: Objects,
    /// Its snapshots, oldest first, and their contents.
    pub standing: Vec<(SnapshotId, Contents)>,
    /// One that was forgotten, and its contents.
    pub forgotten: (SnapshotId, Contents),
    /// What to save: the newest state, changed a little.
    pub source: PathBuf,
    /// What the forgotten snapshot is of.
    pub old: PathBuf,
    pub folder: tempfile::TempDir,
    /// Packs that a check has found damaged.
    pub damaged: HashSet<PackId>,
    recovery: String,
}

/// Everything as small as it may be, so that few files fill many chunks, blocks and packs.
fn tiny() -> CreateOptions {
    CreateOptions {
        chunks: ChunkSizes { min: 1024, normal: 4096, max: 16384 },
        block_bytes: 32 << 10,
        pack_bytes: 256 << 10,
        ..CreateOptions::default()
    }
}

impl Scene {
    /// Make it. `disorder`: with what killed runs leave, so that there is an object of each kind. `banded`: with parity
    /// across packs.
    pub fn new(disorder: bool, banded: bool) -> Self {
        Scene::of(disorder, banded, false)
    }

    /// The same, but the repository was given new secrets after its second snapshot, and what opens it is from before.
    pub fn rekeyed() -> Self {
        Scene::of(true, true, true)
    }

    fn of(disorder: bool, banded: bool, rekeys: bool) -> Self {
        let mut bench = common::bench_in(common::quick_folder(), tiny());
        let recovery = bench.repository.recovery_file().to_string();
        let (source, old) = (bench.folder.path().join("source"), bench.folder.path().join("old"));
        fs::create_dir_all(source.join("dir")).unwrap();
        let mut rng = Rng::new(5);
        let mut change = |state: usize| {
            for n in (0..16).filter(|n| state == 0 || n % 4 == state) {
                let len = 500 + rng.below(9_000);
                fs::write(source.join(format!("dir/{n}")), rng.bytes(len)).unwrap();
            }
            fs::write(source.join(format!("large{state}")), rng.bytes(70_000)).unwrap();
            common::settle();
        };
        let mut taken = Vec::new();
        for state in 0..4 {
            if rekeys && state == 2 {
                let options = RekeyOptions { now: 5, remove_old: false };
                bench.repository = bench.repository.rekey(options).unwrap().repository;
            }
            change(state);
            if state == 3 {
                // Nobody else has it.
                fs::create_dir(&old).unwrap();
                fs::write(old.join("own"), Rng::new(99).bytes(60_000)).unwrap();
                common::settle();
            }
            let from = if state == 3 { &old } else { &source };
            taken.push(bench.backup(from).snapshot.unwrap());
        }
        let repository = &bench.repository;
        repository.add_key(Role::Writer, &NewLock::File(Secret::new([7; 32])), "writer", 1).unwrap();
        let gone = taken.pop().unwrap();
        let read = |snapshot: &Snapshot| contents(repository, snapshot, bench.folder.path()).unwrap();
        let forgotten = (gone.id, read(&gone));
        let standing = taken.iter().map(|s| (s.id, read(s))).collect();
        repository.forget(&[gone.id]).unwrap();
        if banded {
            let mut options = crate::deed::parity_options(repository).unwrap();
            options.shape = Some(Shape { seats: 4, rows: 1 });
            parity::cover(repository, &bench.cache, &options, &Quiet::default()).unwrap();
        }
        if disorder {
            disorderly(repository);
        }
        let objects = objects(&bench.memory);
        Scene { objects, standing, forgotten, source, old, folder: bench.folder, damaged: HashSet::new(), recovery }
    }

    /// The repository in a store, by a reader that asks no key object.
    pub fn open(&self, store: impl Store + 'static) -> Repository {
        Repository::open(Arc::new(store), &Unlock::File(self.recovery.clone())).unwrap()
    }

    /// The same, if it can be opened.
    pub fn try_open(&self, store: impl Store + 'static) -> drumlin_repo::Result<Repository> {
        Repository::open(Arc::new(store), &Unlock::File(self.recovery.clone()))
    }

    /// A cache that knows nothing.
    pub fn cache(&self, repository: &Repository) -> Arc<Cache> {
        Arc::new(Cache::open(repository, None, self.folder.path()).unwrap())
    }

    /// What is wrong with the snapshots of a store: those that have to be listed, and are not, or not whole.
    /// `may_be_gone` are those that somebody may have forgotten. Whatever else is listed has to be whole too.
    pub fn wrongs(&self, store: &(impl Store + Clone + 'static), may_be_gone: &[SnapshotId]) -> Vec<String> {
        let repository = self.open(store.clone());
        let (infos, errors) = repository.snapshots().unwrap();
        let mut wrongs: Vec<String> = errors.iter().map(ToString::to_string).collect();
        for (id, expected) in &self.standing {
            match infos.iter().find(|info| info.snapshot.id == *id) {
                Some(info) => match contents(&repository, &info.snapshot, self.folder.path()) {
                    Ok(found) if found == *expected => {}
                    Ok(_) => wrongs.push(format!("{id} is not what was saved")),
                    Err(e) => wrongs.push(format!("{id} is not whole: {e}")),
                },
                None if may_be_gone.contains(id) => {}
                None => wrongs.push(format!("{id} is not listed")),
            }
        }
        for info in infos.iter().filter(|info| self.standing.iter().all(|(id, _)| *id != info.snapshot.id)) {
            if let Err(e) = contents(&repository, &info.snapshot, self.folder.path()) {
                wrongs.push(format!("{}, which is new, is not whole: {e}", info.snapshot.id));
            }
        }
        wrongs
    }

    /// Save what the forgotten snapshot was of, which the index may still name: it comes back.
    #[track_caller]
    pub fn can_save_the_old(&self, store: &(impl Store + Clone + 'static), what: &str) {
        let repository = self.open(store.clone());
        let options = backup::Options { parent: Parent::None, ..common::options(&[&self.old]) };
        let report = backup::backup(&repository, &self.cache(&repository), options, &Quiet::default());
        let snapshot = report.unwrap_or_else(|e| panic!("{what}: no backup: {e}")).snapshot.unwrap();
        let found = contents(&repository, &snapshot, self.folder.path());
        let found = found.unwrap_or_else(|e| panic!("{what}: the next backup refers to what is gone: {e}"));
        assert!(found == self.forgotten.1, "{what}: the next backup is not what was saved");
    }

    /// Check all there is but contents.
    pub fn check(&self, store: &(impl Store + Clone + 'static)) -> Report {
        let repository = self.open(store.clone());
        let options = drumlin_engine::check::Options { read: None, workers: 1 };
        check(&repository, &self.cache(&repository), options, &Quiet::default()).unwrap()
    }

    /// A store with what was there at the start.
    pub fn store(&self) -> MemoryStore {
        store_of(&self.objects)
    }
}

/// One of each of what runs leave that were killed, or could not heal everything.
fn disorderly(repository: &Repository) {
    let desk = Desk::of(repository, Session::new("elsewhere", "test", 5));
    for n in [1, 2] {
        desk.replace(Flag::Decision(SessionId([n; 16])), &Verdict::Evicted { plan: 0 }).unwrap();
        desk.put_session(SessionId([n + 2; 16])).unwrap();
        let plan = Plan {
            id: PlanId([n; 16]),
            session: SessionId([n + 2; 16]),
            packs: vec![PackId([9; 16])],
            indexes: Vec::new(),
            snapshots: Vec::new(),
            unnamed: Vec::new(),
        };
        desk.put_plan(&plan).unwrap();
        repository
            .put_loss(&Loss { id: LossId([n; 16]), chunks: vec![ChunkId([n; 32])], packs: vec![PackId([n; 16])] })
            .unwrap();
    }
}

/// All files of a snapshot, every byte verified.
pub fn contents(repository: &Repository, snapshot: &Snapshot, scratch: &Path) -> drumlin_engine::Result<Contents> {
    readable(repository, snapshot, scratch, &Quiet::default())
}

/// The same; directories that can't be read are told to the monitor.
pub fn readable(
    repository: &Repository,
    snapshot: &Snapshot,
    scratch: &Path,
    monitor: &Quiet,
) -> drumlin_engine::Result<Contents> {
    let cache = Arc::new(Cache::open(repository, None, scratch)?);
    let reader = open_reader(repository, &cache)?;
    let mut paths = Vec::new();
    list::list(&reader, snapshot.root, &TreePath::root(), Depth::All, monitor, &mut |entry| {
        if entry.meta().kind == Kind::File {
            paths.push(String::from_utf8(entry.path()).unwrap());
        }
        Ok(ControlFlow::Continue(()))
    })?;
    let mut contents = Contents::new();
    for path in paths {
        let mut bytes = Vec::new();
        dump_file(&reader, snapshot.root, &TreePath::parse(path.as_bytes())?, 1, monitor, &mut bytes)?;
        contents.insert(path, bytes);
    }
    Ok(contents)
}

/// All that is in a store.
pub fn objects(store: &MemoryStore) -> Objects {
    let mut names = Vec::new();
    store.list("", &mut |l| names.push(l.name)).unwrap();
    names.into_iter().map(|n| (n.clone(), store.get(&n).unwrap())).collect()
}

/// A store of these objects.
pub fn store_of(objects: &Objects) -> MemoryStore {
    let store = MemoryStore::new();
    objects.iter().for_each(|(name, bytes)| store.put(name, bytes, Put::Create).unwrap());
    store
}

/// The scenes, each made once for all tests.
pub fn tidy() -> Arc<Scene> {
    static SCENE: Mutex<Option<Arc<Scene>>> = Mutex::new(None);
    SCENE.lock().unwrap().get_or_insert_with(|| Arc::new(Scene::new(false, false))).clone()
}

/// With parity across packs.
pub fn banded() -> Arc<Scene> {
    static SCENE: Mutex<Option<Arc<Scene>>> = Mutex::new(None);
    SCENE.lock().unwrap().get_or_insert_with(|| Arc::new(Scene::new(false, true))).clone()
}
