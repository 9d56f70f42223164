//! What every run begins with: files that never change, and a repository with some snapshots of them.

use crate::book::{Book, no_cache};
use crate::machine;
use crate::turns::Turns;
use crate::world::{Objects, Shared, Troubles};
use drumlin_engine::backup::{self, Compression, Parent, Source, backup};
use drumlin_engine::monitor::Quiet;
use drumlin_format::config::ChunkSizes;
use drumlin_host::filter::Filter;
use drumlin_repo::{CreateOptions, IndexMode, NewLock, Repository, Unlock};
use drumlin_seal::Secret;
use drumlin_store::Store;
use drumlin_testkit::Rng;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// A file.
pub struct File {
    /// Where it is.
    pub path: String,
    /// What is in it.
    pub bytes: Arc<Vec<u8>>,
}

/// The start of all runs.
pub struct Base {
    /// Files of no chunk, one, and several.
    pub files: Vec<File>,
    /// The repository's objects.
    pub objects: Objects,
    /// What is in it.
    pub book: Book,
    key: String,
    /// Nothing else is in there: what else is made on the way is made in the other one.
    folder: tempfile::TempDir,
    scratch: tempfile::TempDir,
}

/// Lengths of the files: a chunk is of 4 KiB and more.
const LENGTHS: [usize; 10] = [0, 40, 700, 1500, 2500, 4000, 4096, 5000, 9000, 14000];
/// In whose name the repository is made and looked at.
pub const OBSERVER: usize = machine::ACTORS_MAX - 1;

impl Base {
    /// Make it.
    pub fn new() -> Self {
        machine::begin(0);
        machine::belongs_to(OBSERVER);
        machine::holds(Some(OBSERVER));
        let own_folder = || tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let (folder, scratch) = (own_folder(), own_folder());
        set_time(folder.path(), 0);
        let mut rng = Rng::new(42);
        let mut files = Vec::new();
        for (number, len) in LENGTHS.into_iter().enumerate() {
            let path = folder.path().join(format!("f{number}")).to_str().unwrap().to_owned();
            let bytes = Arc::new(rng.bytes(len));
            fs::write(&path, &*bytes).unwrap();
            files.push(File { path, bytes });
        }
        let shared =
            Shared::new(Objects::new(), Turns::new(0, 1, Rng::new(0)), Troubles::default(), Rng::new(0), false);
        // The smallest that there are.
        let options = CreateOptions {
            chunks: ChunkSizes { min: 256, normal: 4096, max: 8192 },
            block_bytes: 4096,
            pack_bytes: 64 << 10,
            ..CreateOptions::default()
        };
        let lock = NewLock::File(Secret::new([1; 32]));
        let (repository, key) =
            Repository::create(Arc::new(shared.observer()), options, lock, "simulation", 0).unwrap();
        let key = repository.key_file(key, &Secret::new([1; 32])).to_string();
        let cache = no_cache(&repository, scratch.path());
        let book = Book::default();
        for chosen in [&[1, 2, 3, 7][..], &[2, 3, 8], &[5, 6, 9]] {
            let files = chosen.iter().map(|at: &usize| &files[*at]);
            let paths = files.clone().map(|f| f.path.clone().into_bytes()).collect();
            let contents = files.map(|f| (f.path.trim_start_matches('/').to_owned(), f.bytes.clone())).collect();
            let options = backup::Options {
                source: Source::Paths { paths, filter: Arc::new(Filter::none()), one_file_system: false },
                host: "host0".into(),
                user: "user".into(),
                tags: vec![book.begins(contents)],
                time: None,
                parent: Parent::None,
                force: false,
                compression: Compression::Level(1),
                workers: 1,
                walkers: 1.into(),
                late: drumlin_engine::LATE,
                memory: 8 << 20,
                index: IndexMode::Exact,
                checkpoint_bytes: 0,
                skip_unchanged: false,
                program: "simulation".into(),
            };
            let report = backup(&repository, &cache, options, &Quiet::default()).unwrap();
            book.committed(report.snapshot.unwrap().id);
        }
        machine::belongs_to_nobody();
        machine::holds(None);
        Base { files, objects: shared.objects(), book, key, folder, scratch }
    }

    /// Open the repository in a store.
    pub fn open(&self, store: Arc<dyn Store>) -> Repository {
        Repository::open(store, &Unlock::File(self.key.clone())).unwrap()
    }

    /// The folder of the files changes: what was saved before is not what is there, though all files are the same. The
    /// time that it gets is of nobody's clock.
    pub fn touch(&self, number: u64) {
        set_time(self.folder.path(), number);
    }

    /// A place for files of no name.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }
}

/// Times that the system gives are those of its last tick: whether two are the same no seed says.
fn set_time(folder: &Path, number: u64) {
    let time = UNIX_EPOCH + Duration::from_secs(1_000_000_000 + number);
    fs::File::open(folder).unwrap().set_modified(time).unwrap();
}
