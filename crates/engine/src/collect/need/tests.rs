//! What is marked, beside the plainest walk that asks the index for everything.

use super::*;
use crate::backup::{self, Compression, Parent, Source};
use crate::collect::ground::Ground;
use crate::monitor::Quiet;
use drumlin_format::PackId;
use drumlin_format::config::ChunkSizes;
use drumlin_format::pack::PackKind;
use drumlin_format::tree::{Body, Data, Inner, Leaf, ListNode, Ref};
use drumlin_host::filter::Filter;
use drumlin_repo::pack::Reader;
use drumlin_repo::{Cache, CreateOptions, NewLock, Repository, Unlock, random_secret};
use drumlin_store::{MemoryStore, Put, Store};
use drumlin_testkit::Rng;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Some snapshots of a folder, by clients of which some knew nothing of each other.
struct History {
    store: MemoryStore,
    recovery: String,
    folder: tempfile::TempDir,
}

fn open(store: &MemoryStore, recovery: &str) -> Repository {
    Repository::open(Arc::new(store.clone()), &Unlock::File(recovery.into())).unwrap()
}

fn names(store: &MemoryStore) -> Vec<String> {
    let mut names = Vec::new();
    store.list("", &mut |listed| names.push(listed.name)).unwrap();
    names
}

fn copy(from: &MemoryStore, to: &MemoryStore) {
    let known: BTreeSet<String> = names(to).into_iter().collect();
    for name in names(from).into_iter().filter(|name| !known.contains(name)) {
        to.put(&name, &from.get(&name).unwrap(), Put::Create).unwrap();
    }
}

impl History {
    fn new() -> Self {
        let options = CreateOptions {
            chunks: ChunkSizes { min: 1024, normal: 4096, max: 16384 },
            block_bytes: 32 << 10,
            pack_bytes: 256 << 10,
            ..CreateOptions::default()
        };
        let (store, lock) = (MemoryStore::new(), NewLock::File(random_secret().unwrap()));
        let repository = Repository::create(Arc::new(store.clone()), options, lock, "test", 0).unwrap().0;
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        fs::create_dir(folder.path().join("source")).unwrap();
        History { store, recovery: repository.recovery_file().to_string(), folder }
    }

    fn source(&self) -> PathBuf {
        self.folder.path().join("source")
    }

    fn repository(&self) -> (Repository, Arc<Cache>) {
        let repository = open(&self.store, &self.recovery);
        let cache = Arc::new(Cache::open(&repository, None, self.folder.path()).unwrap());
        (repository, cache)
    }

    fn backup_to(&self, store: &MemoryStore) {
        let repository = open(store, &self.recovery);
        let cache = Arc::new(Cache::open(&repository, None, self.folder.path()).unwrap());
        let paths = vec![self.source().as_os_str().as_bytes().to_vec()];
        let options = backup::Options {
            source: Source::Paths { paths, filter: Arc::new(Filter::none()), one_file_system: false },
            host: "host".into(),
            user: "user".into(),
            tags: Vec::new(),
            time: None,
            parent: Parent::None,
            force: false,
            compression: Compression::Auto,
            workers: 2,
            walkers: 1.into(),
            late: crate::LATE,
            memory: 64 << 20,
            checkpoint_bytes: 0,
            skip_unchanged: false,
            index: drumlin_repo::IndexMode::Exact,
            program: "test".into(),
        };
        backup::backup(&repository, &cache, options, &Quiet::default()).unwrap();
    }

    fn change(&self, rng: &mut Rng) {
        for dir in 0..4 {
            let path = self.source().join(format!("d{dir}"));
            fs::create_dir_all(&path).unwrap();
            for file in 0..25 {
                if rng.one_in(3) {
                    let len = 500 + rng.below(60_000);
                    fs::write(path.join(format!("f{file}")), rng.bytes(len)).unwrap();
                }
            }
        }
        change_within(&self.source().join("large"), rng, 4_000_000);
    }

    /// Several backups, some of them in ignorance of each other.
    fn random(rng: &mut Rng) -> Self {
        let history = History::new();
        for _ in 0..2 + rng.below(3) {
            let before = MemoryStore::new();
            copy(&history.store, &before);
            history.change(rng);
            history.backup_to(&history.store);
            for _ in 0..rng.below(3) {
                let apart = MemoryStore::new();
                copy(&before, &apart);
                if rng.one_in(2) {
                    change_within(&history.source().join("large"), rng, 4_000_000);
                }
                history.backup_to(&apart);
                copy(&apart, &history.store);
            }
        }
        history
    }
}

/// A file of random bytes, of which a part is new.
fn change_within(path: &Path, rng: &mut Rng, len: usize) {
    let mut bytes = fs::read(path).unwrap_or_else(|_| rng.bytes(len));
    let at = rng.below(len - 300_000);
    bytes[at..at + 200_000].copy_from_slice(&rng.bytes(200_000));
    fs::write(path, bytes).unwrap();
}

/// The rule: a chunk is needed where those that come first have it, by the word of the index, else where the reserve
/// has it.
struct Model<'a> {
    places: &'a Places,
    marked: BTreeSet<(PackId, u32)>,
    missing: BTreeSet<ChunkId>,
    /// References to chunks of contents.
    chunks: u64,
}

impl Model<'_> {
    fn meet(&mut self, id: &ChunkId) -> bool {
        for reader in [self.places.reader(), self.places.anywhere()] {
            if let Some(location) = reader.index().lookup(id).unwrap() {
                return self.marked.insert((reader.index().pack(location.pack).id, location.ordinal));
            }
        }
        self.missing.insert(*id);
        false
    }

    fn node(&self, id: &ChunkId) -> Vec<u8> {
        self.places.anywhere().chunk(PackKind::Tree, id).unwrap()
    }

    fn inner(&mut self, id: &ChunkId, level: u8) {
        if !self.meet(id) {
            return;
        }
        for child in Inner::decode(&self.node(id), level).unwrap().children {
            let Some(body) = child.body else {
                self.inner(&child.node, level - 1);
                continue;
            };
            self.meet(&child.node);
            if self.meet(&body) {
                let leaf = Leaf::decode(&self.node(&child.node)).unwrap();
                for content in Body::decode(&self.node(&body), &leaf).unwrap().contents {
                    match content.data {
                        Data::None => {}
                        Data::Chunk(id) => self.chunk(&id),
                        Data::List(list) => self.refs(list.level, &list.refs),
                    }
                }
            }
        }
    }

    fn chunk(&mut self, id: &ChunkId) {
        self.chunks += 1;
        self.meet(id);
    }

    fn refs(&mut self, level: u8, refs: &[Ref]) {
        for r in refs {
            match r {
                Ref::Hole { .. } => {}
                Ref::Chunk { id, .. } if level == 0 => self.chunk(id),
                Ref::Chunk { id, len } => {
                    if self.meet(id) {
                        let node = ListNode::decode(&self.node(id), level - 1, *len).unwrap();
                        self.refs(level - 1, &node.refs);
                    }
                }
            }
        }
    }
}

fn marked(marks: &Marks, packs: impl Iterator<Item = (PackId, u32)>) -> BTreeSet<(PackId, u32)> {
    let of = |(id, chunks): (PackId, u32)| {
        let marked = marks.of(&id).unwrap_or_default();
        let ordinals: Vec<_> = (0..chunks).filter(|at| marked.is(*at as usize)).map(|at| (id, at)).collect();
        assert_eq!(marked.live as usize, ordinals.len());
        ordinals
    };
    packs.flat_map(of).collect()
}

/// How many chunks are in several packs of an index.
fn doubles(reader: &Reader) -> usize {
    let mut places = 0;
    reader.index().shadowed(|_| places += 1).unwrap();
    places
}

#[test]
fn marks_are_those_of_the_plainest_rule() {
    let (mut several, mut lost) = (0, 0);
    for seed in 0..6 {
        let mut rng = Rng::new(seed);
        let history = History::random(&mut rng);
        let (repository, cache) = history.repository();
        let snapshots = repository.standing_snapshots().unwrap();
        let ground = Ground::look(&repository).unwrap();
        let mut known: Vec<PackId> = ground.known().collect();
        known.sort_unstable();
        for case in 0..4 {
            let (first, reserve): (HashSet<PackId>, HashSet<PackId>) = match case {
                // All of them; what is in no other pack is in reserve; some contents are missing.
                0 => (known.iter().copied().collect(), HashSet::new()),
                3 => {
                    let mut gone = |pack: &PackId| ground.packs[pack].0 == PackKind::Data && rng.one_in(4);
                    (known.iter().copied().filter(|pack| !gone(pack)).collect(), HashSet::new())
                }
                _ => (known.iter().copied().filter(|_| !rng.one_in(3)).collect(), known.iter().copied().collect()),
            };
            // At times some packs have come since the keys were read.
            let mut objects: Vec<_> = ground.objects.keys().copied().collect();
            objects.sort_unstable();
            objects.retain(|_| case != 2 || rng.one_in(2));
            let keys = crate::reach::keys::Keys::read(&repository, &cache, &objects, 2, &Quiet::default()).unwrap();
            let places = Places::new(&repository, &cache, (&ground, Arc::new(keys)), (first, reserve), 2).unwrap();
            several += doubles(places.reader());
            let (marked_by_model, missing) = (BTreeSet::new(), BTreeSet::new());
            let mut model = Model { places: &places, marked: marked_by_model, missing, chunks: 0 };
            snapshots.iter().filter_map(|s| s.root).for_each(|root| model.inner(&root.node, root.level));
            for workers in [1, 4] {
                let monitor = Quiet::default();
                let mut need = Need::new(&places, workers, &monitor);
                need.add(&snapshots).unwrap();
                assert_eq!(need.chunks, model.chunks);
                let (marks, missing) = need.finish();
                let packs = ground.named.iter().map(|(id, (_, chunks))| (*id, *chunks));
                let what = format!("seed {seed}, case {case}, {workers} threads");
                assert!(marked(&marks, packs) == model.marked, "{what}: other marks");
                assert!(missing.into_iter().collect::<BTreeSet<_>>() == model.missing, "{what}: others are missing");
                assert!(model.missing.is_empty() || case == 3, "{what}");
                lost += model.missing.len();
            }
        }
    }
    assert!(several > 1000 && lost > 100, "nothing was tried: {several} chunks in several packs, {lost} in none");
}

#[test]
fn the_index_is_seldom_asked() {
    let history = History::new();
    let mut rng = Rng::new(1);
    for dir in 0..20 {
        let path = history.source().join(format!("d{dir}"));
        fs::create_dir(&path).unwrap();
        (0..200).for_each(|file| fs::write(path.join(format!("f{file}")), rng.bytes(300)).unwrap());
    }
    for _ in 0..3 {
        change_within(&history.source().join("large"), &mut rng, 20_000_000);
        history.backup_to(&history.store);
    }
    let (repository, cache) = history.repository();
    let snapshots = repository.standing_snapshots().unwrap();
    let ground = Ground::look(&repository).unwrap();
    let (keys, _) = ground.keys(&repository, &cache, 2, &Quiet::default()).unwrap();
    let places =
        Places::new(&repository, &cache, (&ground, keys), (ground.known().collect(), HashSet::new()), 2).unwrap();
    for workers in [1, 4] {
        let monitor = Quiet::default();
        let mut need = Need::new(&places, workers, &monitor);
        need.add(&snapshots).unwrap();
        assert!(need.chunks > 8_000, "{}", need.chunks);
        assert!(need.lookups * 20 < need.chunks, "{} lookups of {} chunks", need.lookups, need.chunks);
        assert!(need.monitor.counters().get().chunks > need.chunks, "nodes count as well");
    }
}

#[test]
fn it_ends_when_it_is_told_to() {
    let history = History::new();
    history.change(&mut Rng::new(1));
    history.backup_to(&history.store);
    let (repository, cache) = history.repository();
    let ground = Ground::look(&repository).unwrap();
    let monitor = Quiet::default();
    let (keys, _) = ground.keys(&repository, &cache, 2, &monitor).unwrap();
    let places =
        Places::new(&repository, &cache, (&ground, keys), (ground.known().collect(), HashSet::new()), 2).unwrap();
    monitor.request_stop();
    let ended = Need::new(&places, 2, &monitor).add(&repository.standing_snapshots().unwrap());
    assert!(matches!(ended, Err(Error::Interrupted)), "{ended:?}");
    assert!(matches!(ground.keys(&repository, &cache, 2, &monitor), Err(Error::Interrupted)));
}

/// Prints how long it takes to mark what a large tree needs, and by the plainest rule.
#[test]
#[ignore = "a measurement: cargo test --release -p drumlin-engine --lib chunks_a_second -- --ignored --nocapture"]
fn chunks_a_second() {
    let history = History::new();
    let mut rng = Rng::new(1);
    for dir in 0..200 {
        let path = history.source().join(format!("d{dir:03}"));
        fs::create_dir(&path).unwrap();
        (0..1000).for_each(|file| fs::write(path.join(format!("f{file}")), rng.bytes(100)).unwrap());
    }
    history.backup_to(&history.store);
    let (repository, cache) = history.repository();
    let snapshots = repository.standing_snapshots().unwrap();
    let ground = Ground::look(&repository).unwrap();
    drumlin_repo::Index::open(&repository, cache.clone()).unwrap();
    for workers in [1, 2] {
        let start = std::time::Instant::now();
        let (keys, _) = ground.keys(&repository, &cache, workers, &Quiet::default()).unwrap();
        let read = start.elapsed();
        let all = (ground.known().collect(), HashSet::new());
        let places = Places::new(&repository, &cache, (&ground, keys), all, workers).unwrap();
        let opened = start.elapsed();
        let monitor = Quiet::default();
        let mut need = Need::new(&places, workers, &monitor);
        need.add(&snapshots).unwrap();
        let walked = start.elapsed();
        let (chunks, lookups) = (need.chunks, need.lookups);
        println!(
            "{workers} threads: keys {read:.2?}, index {:.2?}, {chunks} chunks in {:.2?}, {lookups} of them looked up",
            opened - read,
            walked - opened
        );
        let (start, marked, missing) = (std::time::Instant::now(), BTreeSet::new(), BTreeSet::new());
        let mut model = Model { places: &places, marked, missing, chunks: 0 };
        snapshots.iter().filter_map(|s| s.root).for_each(|root| model.inner(&root.node, root.level));
        println!("the plainest rule: {:.2?}", start.elapsed());
    }
}
