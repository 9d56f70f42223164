//! Storage that is full, fails or may not be written to, and paths that aren't what they should be: told with the name
//! of what failed, never a panic, and the repository is as good as before.

mod common;

use common::{options, restore_options, settle, small};
use drumlin_engine::backup::{self, Report};
use drumlin_engine::list::{self, Depth};
use drumlin_engine::monitor::{ProblemKind, Quiet};
use drumlin_engine::select::{TreePath, open_reader};
use drumlin_engine::{Error, Result, restore};
use drumlin_format::snapshot::Snapshot;
use drumlin_repo::{Cache, NewLock, Repository};
use drumlin_seal::Secret;
use drumlin_store::{
    Call, CallLog, Fault, FaultStore, Faults, Kind, MemoryStore, Op, Put, ReadOnlyStore, RecordStore, Store, When,
};
use drumlin_testkit::{Rng, compare};
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A repository whose storage fails as planned, and two states of a tree.
struct Scene {
    folder: tempfile::TempDir,
    memory: MemoryStore,
    repository: Repository,
    faults: Faults,
    log: CallLog,
}

impl Scene {
    fn new() -> Self {
        let scene = Scene::over(MemoryStore::new(), None);
        fs::create_dir(scene.source()).unwrap();
        scene.write(1);
        settle();
        scene
    }

    fn over(memory: MemoryStore, repository: Option<&Repository>) -> Self {
        let store = FaultStore::new(memory.clone());
        let faults = store.faults();
        let store = RecordStore::new(store);
        let log = store.log();
        let store: Arc<dyn Store> = Arc::new(store);
        let secret = || Secret::new([1; 32]);
        let repository = match repository {
            None => Repository::create(store, small(), NewLock::File(secret()), "test", 0).unwrap().0,
            Some(known) => {
                let key = known.key_file(known.secrets().key, &secret()).to_string();
                Repository::open(store, &drumlin_repo::Unlock::File(key)).unwrap()
            }
        };
        Scene { folder: tempfile::tempdir().unwrap(), memory, repository, faults, log }
    }

    /// The same repository on a storage of its own, with all that is in it now.
    fn fork(&self) -> Scene {
        let memory = MemoryStore::new();
        let mut names = Vec::new();
        self.memory.list("", &mut |l| names.push(l.name)).unwrap();
        names.iter().for_each(|n| memory.put(n, &self.memory.get(n).unwrap(), Put::Create).unwrap());
        Scene::over(memory, Some(&self.repository))
    }

    fn source(&self) -> PathBuf {
        self.folder.path().join("source")
    }

    /// Files of all sizes; of each state some are new.
    fn write(&self, state: u64) {
        let mut rng = Rng::new(state);
        for n in 0..40 {
            fs::write(self.source().join(format!("{state}-{n}")), rng.bytes(2000 * n)).unwrap();
        }
        fs::write(self.source().join("image"), rng.bytes(3 << 20)).unwrap();
    }

    /// A cache that knows nothing, so that everything is read from the storage.
    fn cache(&self) -> Arc<Cache> {
        Arc::new(Cache::open(&self.repository, None, self.folder.path()).unwrap())
    }

    fn backup(&self, cache: &Arc<Cache>, source: &Path) -> Result<Report> {
        let monitor = Quiet::default();
        let report = backup::backup(&self.repository, cache, options(&[source]), &monitor);
        // What can't be read of the backup before is told, and it goes on without that; as it does without what only an
        // index object names that can't be.
        let problems = monitor.problems();
        let is_told = |cause: &str| cause.contains("the test says so") || !self.repository.passed_over().is_empty();
        assert!(problems.iter().all(|problem| is_told(&problem.cause)), "{problems:?}");
        report
    }

    fn restore(&self, snapshot: &Snapshot, source: &Path, target: &Path) -> Result<restore::Report> {
        let mut options = restore_options(snapshot, target);
        options.subfolder = Some(source.as_os_str().as_bytes().to_vec());
        restore::restore(&self.repository, &self.cache(), options, &Quiet::default())
    }

    fn snapshots(&self) -> Vec<Snapshot> {
        let (snapshots, errors) = self.repository.snapshots().unwrap();
        assert!(errors.is_empty(), "{errors:?}");
        snapshots.into_iter().map(|s| s.snapshot).collect()
    }

    /// Every snapshot restores in full; of the last one the tree is `source`.
    #[track_caller]
    fn everything_restores(&self, source: &Path) {
        let snapshots = self.snapshots();
        for snapshot in &snapshots {
            let target = tempfile::tempdir().unwrap();
            let report = self.restore(snapshot, source, target.path()).unwrap();
            assert_eq!((report.counts.restored, report.counts.damaged), (report.counts.entries, 0));
            if Some(snapshot) == snapshots.last() {
                compare::assert_same(source, target.path(), &compare::Options { roots: false, ..Default::default() });
            }
        }
    }
}

#[track_caller]
fn store_error(error: Error) -> drumlin_store::Error {
    match error {
        Error::Repo(drumlin_repo::Error::Store(e)) => e,
        other => panic!("{other:?}"),
    }
}

const WRITES: [Op; 5] = [Op::Put, Op::Upload, Op::Write, Op::Finish, Op::Sync];

#[test]
fn a_disk_that_is_full_at_any_write_costs_that_run_and_nothing_else() {
    let first = Scene::new();
    let before = first.backup(&first.cache(), &first.source()).unwrap().snapshot.unwrap();
    first.write(2);
    settle();
    let source = first.source();
    let mut failed = 0;
    for op in WRITES {
        for (n, once) in (0..).flat_map(|n| [(n, true), (n, false)]) {
            let scene = first.fork();
            let cache = scene.cache();
            let when = When::op(op).skip(n);
            scene.faults.add(if once { when.times(1) } else { when }, Fault::Fail(Kind::Full));
            let outcome = scene.backup(&cache, &source);
            scene.faults.clear();
            let hit = scene.log.take().into_iter().any(|c| matches!(c, Call::Failed { kind: Kind::Full, .. }));
            // Some writes are of several kinds: none of them may have been swallowed.
            if hit && outcome.is_ok() {
                // It had committed, and was clearing up: that has to be seen nowhere.
                assert!(op == Op::Sync && n > 0, "{op:?} {n}");
                assert_eq!(scene.snapshots().len(), 2);
                scene.everything_restores(&source);
                continue;
            }
            assert_eq!(outcome.is_err(), hit, "{op:?} {n}");
            if let Err(error) = outcome {
                let words = error.to_string();
                let error = store_error(error);
                assert_eq!(error.kind, Kind::Full);
                assert!(
                    op == Op::Sync || words.contains(&format!("'{}'", error.name)) && !error.name.is_empty(),
                    "{words}"
                );
                assert_eq!(scene.snapshots(), std::slice::from_ref(&before), "{op:?} {n}");
                // There is room again: with what the failed run has left in the cache, and on another machine.
                let again = scene.backup(&cache, &source).unwrap();
                assert_eq!(again.parent, Some(before.clone()));
                assert_eq!(scene.snapshots().len(), 2);
                if once {
                    scene.everything_restores(&source);
                    assert_eq!(scene.backup(&scene.cache(), &source).unwrap().counts.bytes_new, 0);
                }
                failed += 1;
            } else {
                assert_eq!(scene.snapshots().len(), 2);
                break;
            }
        }
    }
    // Session, index, snapshot and decision; some packs of data and one of nodes, each begun, written and finished.
    assert!(failed >= 2 * (4 + 3 + 3 + 3 + 1), "only {failed} writes were seen to fail");
}

/// What there was room for is in the index, if there was room for that.
#[test]
fn what_a_full_disk_had_room_for_is_not_stored_again() {
    let scene = Scene::new();
    // Packs of 2 MiB: of four, two at least are closed, however busy the machine is.
    fs::write(scene.source().join("large"), Rng::new(7).bytes(12 << 20)).unwrap();
    settle();
    scene.faults.full_after(8 << 20);
    let error = store_error(scene.backup(&scene.cache(), &scene.source()).unwrap_err());
    assert_eq!(error.kind, Kind::Full);
    scene.faults.clear();
    let report = scene.backup(&scene.cache(), &scene.source()).unwrap();
    let all = report.counts.bytes;
    assert!(report.counts.bytes_new + (3 << 20) < all, "{} of {all}", report.counts.bytes_new);
    scene.everything_restores(&scene.source());
}

#[test]
fn an_answer_that_is_lost_leaves_a_repository_that_goes_on() {
    let first = Scene::new();
    first.backup(&first.cache(), &first.source()).unwrap();
    first.write(2);
    settle();
    let source = first.source();
    for op in [Op::Put, Op::Finish, Op::Sync, Op::Delete] {
        for n in 0.. {
            let scene = first.fork();
            let cache = scene.cache();
            scene.faults.add(When::op(op).skip(n).times(1), Fault::FailAfter(Kind::Transient));
            let _ = scene.backup(&cache, &source);
            scene.faults.clear();
            let hit = scene.log.take().into_iter().any(|c| matches!(c, Call::Failed { kind: Kind::Transient, .. }));
            // Whether or not the run counts, whatever is listed is whole.
            for snapshot in scene.snapshots() {
                let target = tempfile::tempdir().unwrap();
                let report = scene.restore(&snapshot, &source, target.path()).unwrap();
                assert_eq!(report.counts.restored, report.counts.entries, "{op:?} {n}");
            }
            scene.backup(&cache, &source).unwrap();
            scene.everything_restores(&source);
            if !hit {
                break;
            }
        }
    }
}

const READS: [Op; 4] = [Op::List, Op::Len, Op::Get, Op::ReadAt];

/// Fail each read of an operation in turn, always from the same state; how many failures it told, or made up for.
fn fail_each_read(first: &Scene, source: &Path, operation: impl Fn(&Scene) -> Result<()>) -> usize {
    let mut told = 0;
    for op in READS {
        for n in 0.. {
            let scene = first.fork();
            let before = scene.snapshots();
            scene.log.take();
            scene.faults.add(When::op(op).skip(n).times(1), Fault::Fail(Kind::Io));
            let outcome = operation(&scene);
            scene.faults.clear();
            let failed = scene.log.take().into_iter().find_map(|c| match c {
                Call::Failed { name, kind: Kind::Io, .. } => Some(name),
                _ => None,
            });
            let Some(name) = failed else {
                outcome.unwrap();
                break;
            };
            let Err(error) = outcome else {
                // The old chunks of a changed file are tried first to save time: a backup may do without.
                let saved = scene.snapshots().len() > before.len();
                // What can't be read of a pack is made again by its parity.
                let healed = op == Op::ReadAt && (name.starts_with("tree/") || name.starts_with("data/"));
                let not_told = "was not read, and nobody told";
                let of_the_one_before =
                    ["tree/", "index/", "snapshots/", "keys/"].iter().any(|folder| name.starts_with(folder));
                // An index object is asked for once more.
                let read_again = op == Op::Get && name.starts_with("index/");
                assert!(healed || read_again || saved && of_the_one_before, "{op:?} {n}: '{name}' {not_told}");
                if saved {
                    scene.everything_restores(source);
                } else {
                    told += 1;
                }
                continue;
            };
            let words = error.to_string();
            assert!(words.contains(&format!("'{name}'")), "{op:?} of '{name}' failed, and the user reads: {words}");
            assert!(words.contains("the test says so"), "{words}");
            assert_eq!(scene.snapshots(), before);
            told += 1;
        }
    }
    told
}

#[test]
fn storage_that_fails_at_any_read_is_told_and_nothing_is_harmed() {
    let scene = Scene::new();
    let source = scene.source();
    scene.backup(&scene.cache(), &source).unwrap();
    scene.write(2);
    settle();
    let snapshot = scene.backup(&scene.cache(), &source).unwrap().snapshot.unwrap();
    fs::write(source.join("image"), Rng::new(77).bytes(3 << 20)).unwrap();
    fs::write(source.join("another"), "new").unwrap();
    settle();

    // Parents are looked for, the old tree and the old list of chunks are read.
    let told = fail_each_read(&scene, &source, |scene| scene.backup(&scene.cache(), &source).map(drop));
    assert!(told >= 8, "{told}");

    let target = scene.folder.path().join("target");
    let told = fail_each_read(&scene, &source, |scene| {
        let _ = fs::remove_dir_all(&target);
        let report = scene.restore(&snapshot, &source, &target)?;
        assert_eq!((report.counts.restored, report.counts.damaged), (report.counts.entries, 0));
        Ok(())
    });
    assert!(told >= 8, "{told}");

    let told = fail_each_read(&scene, &source, |scene| {
        let reader = open_reader(&scene.repository, &scene.cache())?;
        let mut met = 0;
        let each = &mut |_: &list::Entry| {
            met += 1;
            Ok(ControlFlow::Continue(()))
        };
        let sums = list::list(&reader, snapshot.root, &TreePath::root(), Depth::All, &Quiet::default(), each)?;
        assert_eq!((sums.entries, met), (snapshot.root.unwrap().sums.entries, sums.entries));
        Ok(())
    });
    assert!(told >= 4, "{told}");
    scene.backup(&scene.cache(), &source).unwrap();
    scene.everything_restores(&source);
}

#[test]
fn sources_that_do_not_exist() {
    let scene = Scene::new();
    let (source, cache) = (scene.source(), scene.cache());
    let gone = scene.folder.path().join("gone");
    let below_a_file = source.join("image/below");
    let monitor = Quiet::default();
    let sources = options(&[&gone, &source, &below_a_file]);
    let report = backup::backup(&scene.repository, &cache, sources, &monitor).unwrap();
    let mut told: Vec<_> = monitor.problems().iter().map(|p| (p.path.clone(), p.kind)).collect();
    told.sort_by(|a, b| a.0.cmp(&b.0));
    let expected = [&gone, &below_a_file].map(|p| (p.as_os_str().as_bytes().to_vec(), ProblemKind::Unreadable));
    assert_eq!(told, expected);
    assert_eq!((report.counts.unreadable, report.counts.files), (2, 41));
    scene.everything_restores(&source);

    // None of them: directories that lead nowhere are no snapshot.
    let before = scene.snapshots();
    for sources in [vec![&gone], vec![&gone, &below_a_file]] {
        let sources: Vec<&Path> = sources.into_iter().map(PathBuf::as_path).collect();
        let monitor = Quiet::default();
        let refused = backup::backup(&scene.repository, &cache, options(&sources), &monitor);
        assert!(matches!(refused, Err(Error::NoSource)), "{refused:?}");
        assert_eq!(monitor.problems().len(), sources.len());
    }
    assert_eq!(scene.snapshots(), before);
    let mut left = 0;
    scene.memory.list("sessions", &mut |_| left += 1).unwrap();
    assert_eq!(left, 0, "a session that has ended is still registered");
    // An empty folder is a source like any other, even with another one missing in it.
    let empty = scene.folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let sources = options(&[&empty, &empty.join("missing")]);
    assert!(backup::backup(&scene.repository, &cache, sources, &Quiet::default()).unwrap().snapshot.is_some());
}

#[test]
fn a_source_within_a_source_keeps_its_own_times() {
    let scene = Scene::new();
    let (source, cache) = (scene.source(), scene.cache());
    let inner = source.join("sub/inner");
    fs::create_dir_all(&inner).unwrap();
    settle();
    let run = || backup::backup(&scene.repository, &cache, options(&[&source, &inner]), &Quiet::default()).unwrap();
    run();
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    for path in [&source, &source.join("sub")] {
        fs::File::open(path).unwrap().set_modified(time).unwrap();
    }
    settle();
    assert_eq!(run().counts.changed, 2);
    let target = scene.folder.path().join("target");
    scene.restore(scene.snapshots().last().unwrap(), &source, &target).unwrap();
    assert_eq!(fs::metadata(target.join("sub")).unwrap().modified().unwrap(), time);
}

#[test]
fn targets_that_are_not_what_they_should_be() {
    let scene = Scene::new();
    let (source, cache) = (scene.source(), scene.cache());
    let snapshot = scene.backup(&cache, &source).unwrap().snapshot.unwrap();
    // A file where the target should be, or on the way to it.
    let file = scene.folder.path().join("file");
    fs::write(&file, "precious").unwrap();
    for target in [file.clone(), file.join("below")] {
        for dry_run in [false, true] {
            let restore = restore::Options { dry_run, ..restore_options(&snapshot, &target) };
            let refused = restore::restore(&scene.repository, &cache, restore, &Quiet::default());
            let Err(Error::Place(e)) = refused else { panic!("{refused:?}") };
            assert!(e.to_string().contains(file.to_str().unwrap()), "{e}");
        }
    }
    assert_eq!(fs::read(&file).unwrap(), b"precious");

    // Inside of the source, where nothing it writes comes back to it.
    let target = source.join("restored/here");
    let report = scene.restore(&snapshot, &source, &target).unwrap();
    assert_eq!(report.counts.restored, report.counts.entries);
    settle();
    let report = scene.backup(&cache, &source).unwrap();
    assert_eq!((report.counts.files, report.counts.bytes_new), (82, 0));
    // And the source itself: all is there already.
    let report = scene.restore(report.snapshot.as_ref().unwrap(), &source, &source).unwrap();
    assert_eq!((report.counts.bytes_written, report.counts.kept), (0, report.counts.entries));
    scene.everything_restores(&source);
}

#[test]
fn a_repository_that_can_only_be_read_refuses_a_backup() {
    let scene = Scene::new();
    let source = scene.source();
    let snapshot = scene.backup(&scene.cache(), &source).unwrap().snapshot.unwrap();
    let key = scene.repository.key_file(scene.repository.secrets().key, &Secret::new([1; 32])).to_string();
    let store: Arc<dyn Store> = Arc::new(ReadOnlyStore::new(scene.memory.clone()));
    let repository = Repository::open(store, &drumlin_repo::Unlock::File(key)).unwrap();
    let cache = Arc::new(Cache::open(&repository, None, scene.folder.path()).unwrap());
    let refused = backup::backup(&repository, &cache, options(&[&source]), &Quiet::default());
    let error = store_error(refused.unwrap_err());
    assert_eq!(error.kind, Kind::Refused);
    assert!(error.name.starts_with("sessions/"), "{error}");
    let options = restore_options(&snapshot, &scene.folder.path().join("target"));
    let report = restore::restore(&repository, &cache, options, &Quiet::default()).unwrap();
    assert_eq!(report.counts.damaged, 0);
}
