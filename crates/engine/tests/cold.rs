//! Contents in cold storage: a restore asks for all that it needs at once, and for nothing else, and waits.

mod common;

use common::{Bench, bench_over, quick_folder, restore_options, settle, small};
use drumlin_engine::monitor::Quiet;
use drumlin_engine::restore::{Options, Overwrite, Report, restore};
use drumlin_engine::{Error, backup, parity, prune, thaw};
use drumlin_format::snapshot::Snapshot;
use drumlin_repo::{Cache, IndexMode};
use drumlin_store::{Action, Haste, Kind, Listed, MemoryStore, Put, Result, Store, Thaw, Upload};
use drumlin_testkit::{Rng, compare};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Data packs can't be read before they were asked for and looked after so many times.
#[derive(Clone)]
struct Cold {
    inner: MemoryStore,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    is_winter: bool,
    /// Of what was asked for, how often it will be said that it is on its way.
    asked: BTreeMap<String, u32>,
    /// Packs of trees are in cold storage as well.
    trees: bool,
    /// It says that all is there, and gives nothing.
    lies: bool,
    /// So many more looks after what was asked for find the line down.
    down: u32,
    /// Packs that were read before all were there.
    early: u32,
}

/// How often one has to look.
const LOOKS: u32 = 3;

impl Cold {
    fn melt(&self, name: &str) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        let may_freeze = name.starts_with("data/") || state.trees && name.starts_with("tree/");
        if !state.is_winter || !may_freeze {
            return Ok(());
        }
        if state.lies || state.asked.get(name) != Some(&0) {
            return Err(drumlin_store::Error::because(
                Kind::Frozen,
                Action::Read,
                name,
                "cold",
                "it is in cold storage",
            ));
        }
        state.early += u32::from(state.asked.values().any(|left| *left > 0));
        Ok(())
    }

    fn asked(&self) -> Vec<String> {
        self.state.lock().unwrap().asked.keys().cloned().collect()
    }
}

impl Store for Cold {
    fn location(&self) -> String {
        self.inner.location()
    }
    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed)) -> Result<()> {
        self.inner.list(prefix, each)
    }
    fn len(&self, name: &str) -> Result<Option<u64>> {
        self.inner.len(name)
    }
    fn get(&self, name: &str) -> Result<Vec<u8>> {
        self.melt(name).and_then(|()| self.inner.get(name))
    }
    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.melt(name).and_then(|()| self.inner.read_at(name, offset, buf))
    }
    fn freezes(&self) -> bool {
        true
    }
    fn thaw(&self, name: &str, haste: Haste) -> Result<Thaw> {
        assert_eq!(haste, Haste::Bulk);
        let mut state = self.state.lock().unwrap();
        if state.lies {
            return Ok(Thaw::Ready);
        }
        if state.asked.contains_key(name) && state.down > 0 {
            state.down -= 1;
            return Err(drumlin_store::Error::because(Kind::Transient, Action::Thaw, name, "cold", "the line is down"));
        }
        match state.asked.get_mut(name) {
            Some(0) => Ok(Thaw::Ready),
            Some(left) => {
                *left -= 1;
                Ok(if *left == 0 { Thaw::Ready } else { Thaw::Coming })
            }
            None => {
                state.asked.insert(name.to_owned(), LOOKS);
                Ok(Thaw::Coming)
            }
        }
    }
    fn put(&self, name: &str, bytes: &[u8], how: Put) -> Result<()> {
        self.inner.put(name, bytes, how)
    }
    fn upload(&self, name: &str, len_hint: u64) -> Result<Box<dyn Upload>> {
        self.inner.upload(name, len_hint)
    }
    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }
    fn delete(&self, name: &str) -> Result<()> {
        self.inner.delete(name)
    }
}

struct Scene {
    bench: Bench,
    store: Cold,
    source: PathBuf,
    last: Snapshot,
}

/// Two folders of several packs each, backed up one after the other, and then the winter.
fn scene() -> Scene {
    let memory = MemoryStore::new();
    let store = Cold { inner: memory.clone(), state: Arc::default() };
    let bench = bench_over(Arc::new(store.clone()), memory, quick_folder(), small());
    let source = bench.folder.path().join("source");
    let mut rng = Rng::new(3);
    let mut last = None;
    for folder in ["one", "two"] {
        fs::create_dir_all(source.join(folder)).unwrap();
        for n in 0..40 {
            fs::write(source.join(folder).join(n.to_string()), rng.bytes(200_000)).unwrap();
        }
        fs::write(source.join(folder).join("large"), rng.bytes(9 << 20)).unwrap();
        settle();
        last = bench.backup(&source).snapshot;
    }
    store.state.lock().unwrap().is_winter = true;
    Scene { bench, store, source, last: last.unwrap() }
}

impl Scene {
    fn options(&self, paths: &[&str]) -> Options {
        let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
        Options {
            subfolder: Some(bytes(&self.source)),
            paths: paths.iter().map(|path| bytes(&Path::new("/").join(path))).collect(),
            thaw: Some(thaw::Options { haste: Haste::Bulk, pace: Duration::from_millis(1) }),
            ..restore_options(&self.last, &self.bench.folder.path().join("target"))
        }
    }

    fn restore(&self, options: Options, monitor: &Quiet) -> drumlin_engine::Result<Report> {
        restore(&self.bench.repository, &self.bench.cache, options, monitor)
    }

    fn packs(&self) -> usize {
        let mut packs = 0;
        self.bench.memory.list("data", &mut |_| packs += 1).unwrap();
        packs
    }

    fn is_same(&self, folder: &str) -> bool {
        let options = compare::Options { roots: false, ..compare::Options::default() };
        let target = self.bench.folder.path().join("target").join(folder);
        compare::trees(&self.source.join(folder), &target, &options).unwrap().is_empty()
    }
}

#[test]
fn all_that_is_needed_is_asked_for_at_once_and_nothing_else() {
    let scene = scene();
    let monitor = Quiet::default();
    let report = scene.restore(scene.options(&["one"]), &monitor).unwrap();
    assert!(monitor.problems().is_empty() && !report.stopped, "{:?}", monitor.problems());
    assert!(scene.is_same("one"));
    let counts = report.counts;
    assert_eq!((counts.files, counts.restored + counts.kept), (41, 42), "counted once: {counts:?}");
    let asked = scene.store.asked().len();
    assert!(asked >= 5 && asked <= scene.packs() / 2 + 1, "{asked} of {}", scene.packs());
    assert_eq!(scene.store.state.lock().unwrap().early, 0, "no pack was read while others were on their way");

    // The rest, where one half is there already: what is right is not asked for again, and asked for once.
    let report = scene.restore(Options { overwrite: Overwrite::IfChanged, ..scene.options(&[]) }, &monitor).unwrap();
    assert!(scene.is_same("") && report.counts.kept >= 41, "{report:?}");
    assert_eq!(scene.store.asked().len(), scene.packs());
}

#[test]
fn what_is_there_is_not_asked_for() {
    let scene = scene();
    scene.store.state.lock().unwrap().is_winter = false;
    scene.restore(scene.options(&[]), &Quiet::default()).unwrap();
    scene.store.state.lock().unwrap().is_winter = true;
    scene.restore(Options { overwrite: Overwrite::IfChanged, ..scene.options(&[]) }, &Quiet::default()).unwrap();
    assert_eq!(scene.store.asked(), Vec::<String>::new());

    // Of the same size and time, and wrong all the same: found when it is compared.
    let path = scene.bench.folder.path().join("target/two/7");
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[100] ^= 1;
    fs::write(&path, bytes).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    scene.restore(scene.options(&[]), &Quiet::default()).unwrap();
    assert!(scene.is_same(""));
}

/// What a restore has done itself, before it met a pack in cold storage, it must not take for what the user has done
/// since.
#[test]
fn what_has_to_be_spared_is_known_before_anything_is_written() {
    for overwrite in [Overwrite::Never, Overwrite::IfNewer] {
        let scene = scene();
        let [one, two] = ["one", "two"].map(|folder| scene.source.join(folder));
        scene.store.state.lock().unwrap().is_winter = false;
        fs::hard_link(one.join("0"), one.join("further")).unwrap();
        fs::hard_link(two.join("39"), two.join("further")).unwrap();
        settle();
        let last = scene.bench.backup(&scene.source).snapshot.unwrap();
        scene.store.state.lock().unwrap().is_winter = true;
        let scene = Scene { last, ..scene };
        let elsewhere = scene.bench.folder.path().join("elsewhere");
        scene.restore(Options { target: elsewhere, ..scene.options(&["one"]) }, &Quiet::default()).unwrap();
        let before = scene.store.asked().len();

        let target = scene.bench.folder.path().join("target");
        fs::create_dir_all(target.join("two")).unwrap();
        for n in 0..30 {
            fs::write(target.join("two").join(n.to_string()), "the user's own").unwrap();
        }
        let report = scene.restore(Options { overwrite, ..scene.options(&[]) }, &Quiet::default()).unwrap();
        assert_eq!(report.counts.kept, 30 + 1, "the user's files and their folder: {:?}", report.counts);
        assert!(scene.is_same("one"), "{overwrite:?}: with its hard link");
        assert_eq!(fs::read(target.join("two/3")).unwrap(), b"the user's own");
        assert_eq!(fs::read(target.join("two/31")).unwrap(), fs::read(two.join("31")).unwrap());
        let asked = scene.store.asked().len();
        assert!(before < asked && asked < scene.packs(), "{before}, {asked} of {}", scene.packs());
    }
}

/// A rule that moves all that is old moves packs of trees, too.
#[test]
fn packs_of_trees_are_brought_back_first() {
    for overwrite in [Overwrite::IfChanged, Overwrite::Never] {
        let scene = scene();
        scene.store.state.lock().unwrap().trees = true;
        // A client that has no copies of them.
        let scratch = tempfile::tempdir().unwrap();
        let cache = Arc::new(Cache::open(&scene.bench.repository, None, scratch.path()).unwrap());
        let options = Options { overwrite, ..scene.options(&[]) };
        let report = restore(&scene.bench.repository, &cache, options, &Quiet::default()).unwrap();
        assert!(scene.is_same(""));
        let counts = report.counts;
        assert_eq!((counts.restored + counts.kept, counts.damaged), (84, 0), "{counts:?}");
        assert!(overwrite == Overwrite::IfChanged || counts.kept == 0, "{counts:?}");
        let mut trees = 0;
        scene.bench.memory.list("tree", &mut |_| trees += 1).unwrap();
        assert!(trees > 0);
        assert_eq!(scene.store.asked().len(), scene.packs() + trees);
    }
}

/// A wait of hours gets over a line that is down for a while; who can't even ask is told.
#[test]
fn a_line_that_is_down_while_it_thaws() {
    let scene = scene();
    scene.store.state.lock().unwrap().down = 40;
    scene.restore(scene.options(&[]), &Quiet::default()).unwrap();
    assert!(scene.is_same(""));
    assert_eq!(scene.store.state.lock().unwrap().down, 0);
}

#[test]
fn it_can_be_left_alone_or_given_up() {
    let scene = scene();
    let fails = |options: Options| match scene.restore(options, &Quiet::default()) {
        Err(Error::Repo(e)) => assert!(e.frozen().is_some() && e.to_string().contains("cold storage"), "{e}"),
        other => panic!("{other:?}"),
    };
    fails(Options { thaw: None, ..scene.options(&[]) });
    assert_eq!(scene.store.asked(), Vec::<String>::new());

    // A storage that says that all is there is not asked for ever.
    scene.store.state.lock().unwrap().lies = true;
    fails(scene.options(&[]));
    scene.store.state.lock().unwrap().lies = false;

    // A wait of a day is ended at once; what was asked for stays asked for.
    let monitor = Arc::new(Quiet::default());
    let (ends, waiting) = (monitor.clone(), scene.store.clone());
    let user = std::thread::spawn(move || {
        while waiting.asked().is_empty() {
            std::thread::yield_now();
        }
        ends.request_stop();
    });
    let slow = thaw::Options { haste: Haste::Bulk, pace: Duration::from_secs(86_400) };
    let report = scene.restore(Options { thaw: Some(slow), ..scene.options(&[]) }, &monitor).unwrap();
    user.join().unwrap();
    assert!(report.stopped);
    scene.restore(scene.options(&[]), &Quiet::default()).unwrap();
    assert!(scene.is_same(""));
}

/// With parity across packs, too: bands that would have to be read stay as they are, and what is in them; all else is
/// pruned.
#[test]
fn bands_of_what_is_frozen_stay() {
    let scene = scene();
    let (bench, source) = (&scene.bench, &scene.source);
    scene.store.state.lock().unwrap().is_winter = false;
    let with_folder = |name: &str, seed: u64| {
        fs::create_dir_all(source.join(name)).unwrap();
        (0..8)
            .for_each(|n| fs::write(source.join(name).join(n.to_string()), Rng::new(seed + n).bytes(100_000)).unwrap());
        settle();
        bench.backup(source).snapshot.unwrap()
    };
    with_folder("banded", 90);
    let bands = parity::Options {
        host: "host".into(),
        shape: None,
        spoiled: Default::default(),
        evict: Vec::new(),
        evict_after: Duration::from_secs(3600),
        workers: 2,
    };
    let report = parity::cover(&bench.repository, &bench.cache, &bands, &Quiet::default()).unwrap();
    assert!(report.bands > 0 && report.covered.packs > 0);
    let with = with_folder("unbanded", 70);
    ["banded", "unbanded"].iter().for_each(|folder| fs::remove_dir_all(source.join(folder)).unwrap());
    settle();
    let last = bench.backup(source).snapshot.unwrap();
    scene.store.state.lock().unwrap().is_winter = true;
    let mut ids = Vec::new();
    bench.memory.list("snapshots", &mut |listed| ids.push(listed.name)).unwrap();
    ids.retain(|name| *name != drumlin_repo::names::snapshot(last.id));
    assert!(ids.contains(&drumlin_repo::names::snapshot(with.id)));
    ids.iter().for_each(|name| bench.memory.delete(name).unwrap());
    let options = prune::Options { max_unused: prune::Unused::Bytes(0), ..common::prune_options() };
    let monitor = Quiet::default();
    let pruned = prune::prune(&bench.repository, &bench.cache, &options, &monitor).unwrap();
    assert!(pruned.gone.packs > 0, "what is in no band goes");
    let told = monitor.problems();
    assert!(!told.is_empty() && told.iter().all(|problem| problem.cause.contains("cold storage")), "{told:?}");
    assert_eq!(scene.store.asked(), Vec::<String>::new());
    scene.store.state.lock().unwrap().is_winter = false;
    let target = bench.folder.path().join("target");
    bench.restore(&last, source, &target);
    assert!(scene.is_same(""));
    // In summer all is made up for.
    let rest = prune::prune(&bench.repository, &bench.cache, &options, &Quiet::default()).unwrap();
    assert!(rest.gone.packs > 0, "what was in a band goes");
    let covered = parity::cover(&bench.repository, &bench.cache, &bands, &Quiet::default()).unwrap();
    assert_eq!((covered.uncovered.packs, covered.failed), (0, 0));
}

/// Nothing that isn't to be restored is worth a thaw: what is frozen stays as it is, or is stored once more.
#[test]
fn prunes_and_backups_go_on_without_what_is_frozen() {
    let scene = scene();
    let (bench, source) = (&scene.bench, &scene.source);
    // One pack has something of both.
    let mixed = source.join("mixed");
    scene.store.state.lock().unwrap().is_winter = false;
    fs::create_dir_all(&mixed).unwrap();
    for n in 0..8 {
        fs::write(mixed.join(n.to_string()), Rng::new(n).bytes(100_000)).unwrap();
    }
    settle();
    let with = bench.backup(source).snapshot.unwrap();
    (0..4).for_each(|n| fs::remove_file(mixed.join(n.to_string())).unwrap());
    settle();
    let without = bench.backup(source).snapshot.unwrap();
    scene.store.state.lock().unwrap().is_winter = true;

    for other in [&with, &scene.last] {
        bench.memory.delete(&drumlin_repo::names::snapshot(other.id)).unwrap();
    }
    let options = prune::Options {
        host: "host".into(),
        max_unused: prune::Unused::Bytes(0),
        max_repack: None,
        max_rekey: prune::Unused::Percent(5.0),
        allow_remove_all: false,
        wait: Duration::ZERO,
        evict: Vec::new(),
        evict_after: Duration::from_secs(3600),
        workers: 2,
    };
    let monitor = Quiet::default();
    prune::prune(&bench.repository, &bench.cache, &options, &monitor).unwrap();
    let options = backup::Options { index: IndexMode::Sparse, force: true, ..common::options(&[source]) };
    let scratch = tempfile::tempdir().unwrap();
    let cache = Arc::new(Cache::open(&bench.repository, None, scratch.path()).unwrap());
    let again = backup::backup(&bench.repository, &cache, options, &monitor).unwrap().snapshot.unwrap();
    assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
    assert_eq!(scene.store.asked(), Vec::<String>::new());
    scene.store.state.lock().unwrap().is_winter = false;
    for snapshot in [without, again] {
        let target = bench.folder.path().join("target");
        bench.restore(&snapshot, source, &target);
        assert!(scene.is_same(""));
        fs::remove_dir_all(target).unwrap();
    }
}
