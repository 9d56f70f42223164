//! A listing that is empty or cut short, once or always: nothing that snapshots need goes, and nothing refers to what
//! is gone.

use crate::deed::{self, Deed};
use crate::faults::again;
use crate::scene::{Scene, banded, objects, tidy};
use drumlin_engine::Error;
use drumlin_engine::monitor::Quiet;
use drumlin_engine::prune::prune;
use drumlin_format::session::Session;
use drumlin_repo::collection::Registration;
use drumlin_repo::names;
use drumlin_store::{Listed, MemoryStore, Put, Result, Store, Upload};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What becomes of a listing.
#[derive(Clone, Copy, Debug)]
enum Cut {
    /// There is nothing in it.
    Empty,
    /// It ends half-way.
    Half,
    /// Its last name is missing.
    Last,
}

/// Lists too little of a folder.
struct Lister {
    inner: MemoryStore,
    folder: &'static str,
    cut: Cut,
    /// Which of the listings, or all.
    at: Option<usize>,
    met: Arc<AtomicUsize>,
}

impl Store for Lister {
    fn location(&self) -> String {
        self.inner.location()
    }
    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed)) -> Result<()> {
        let mut found = Vec::new();
        self.inner.list(prefix, &mut |listed| found.push(listed))?;
        if prefix == self.folder {
            let number = self.met.fetch_add(1, Ordering::SeqCst);
            if self.at.is_none_or(|at| at == number) {
                found.truncate(match self.cut {
                    Cut::Empty => 0,
                    Cut::Half => found.len() / 2,
                    Cut::Last => found.len().saturating_sub(1),
                });
            }
        }
        found.into_iter().for_each(each);
        Ok(())
    }
    fn len(&self, name: &str) -> Result<Option<u64>> {
        self.inner.len(name)
    }
    fn get(&self, name: &str) -> Result<Vec<u8>> {
        self.inner.get(name)
    }
    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inner.read_at(name, offset, buf)
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

/// How many listings of the folder there were.
fn run(scene: &Scene, deed: Deed, folder: &'static str, cut: Cut, at: Option<usize>, wrong: &mut Vec<String>) -> usize {
    let memory = scene.store();
    let met = Arc::new(AtomicUsize::new(0));
    let repository = scene.open(Lister { inner: memory.clone(), folder, cut, at, met: met.clone() });
    met.store(0, Ordering::SeqCst);
    let outcome = deed.run(scene, &repository);
    let listings = met.load(Ordering::SeqCst);
    let what = format!("{deed:?}, '{folder}' {cut:?} at {at:?}");
    if listings == 0 || at.is_some_and(|at| at >= listings) {
        return listings;
    }
    if let Err(error) = &outcome {
        let text = error.to_string();
        assert!(!text.contains("bug"), "{what}: {text}");
    }
    let wrongs = scene.wrongs(&memory, &deed.takes(scene));
    if !wrongs.is_empty() {
        wrong.push(format!("{what} ({outcome:?}): {wrongs:?}"));
        return listings;
    }
    if !deed.writes() {
        assert!(objects(&memory) == scene.objects, "{what}: it only reads");
        return listings;
    }
    again(scene, deed, &memory, &what);
    // What was believed to be gone, or unnamed, isn't taken away by the next one either.
    Deed::Prune.run(scene, &scene.open(memory.clone())).unwrap_or_else(|e| panic!("{what}, then a prune: {e}"));
    let wrongs = scene.wrongs(&memory, &deed.takes(scene));
    assert!(wrongs.is_empty(), "{what}, then a prune: {wrongs:#?}");
    scene.can_save_the_old(&memory, &what);
    listings
}

#[test]
fn a_listing_that_is_too_short_harms_nothing() {
    let scene = tidy();
    let folders = [
        names::KEYS,
        names::DATA,
        names::TREE,
        names::INDEX,
        names::SNAPSHOTS,
        names::FORGOTTEN,
        names::SESSIONS,
        names::DECISIONS,
        names::PLANS,
        names::LOSSES,
    ];
    let mut wrong = Vec::new();
    for deed in deed::ALL {
        // Whether a prune is told all snapshots is for the signed history to say.
        for folder in folders.into_iter().filter(|folder| (*folder, deed) != (names::SNAPSHOTS, Deed::Prune)) {
            for cut in [Cut::Empty, Cut::Half, Cut::Last] {
                let listings = run(&scene, deed, folder, cut, None, &mut wrong);
                let one_by_one = deed.writes() && listings > 1 && !matches!(cut, Cut::Half);
                for at in (0..listings).filter(|_| one_by_one) {
                    run(&scene, deed, folder, cut, Some(at), &mut wrong);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of them: {wrong:#?}", wrong.len());
}

/// The same of what parity across packs looks at.
#[test]
fn a_listing_of_bands_that_is_too_short_harms_nothing() {
    let (scene, mut wrong) = (banded(), Vec::new());
    for deed in [Deed::Prune, Deed::Repair, Deed::Parity, Deed::ParityOff, Deed::Check] {
        for folder in [names::PARITY, names::DATA, names::INDEX, names::SESSIONS, names::LOSSES] {
            for cut in [Cut::Empty, Cut::Half, Cut::Last] {
                let listings = run(&scene, deed, folder, cut, None, &mut wrong);
                for at in (0..listings).filter(|_| deed.writes()) {
                    run(&scene, deed, folder, cut, Some(at), &mut wrong);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of them: {wrong:#?}", wrong.len());
}

/// Who is at work stands in a prune's way though one of the listings, whichever, leaves him out.
#[test]
fn a_writer_at_work_is_not_overlooked() {
    let scene = tidy();
    for cut in [Cut::Empty, Cut::Half, Cut::Last] {
        for at in 0.. {
            let memory = scene.store();
            let beside = scene.open(memory.clone());
            let session = || Registration::begin(&beside, Session::new("elsewhere", "backup", 0)).unwrap();
            let writers = [session(), session(), session()];
            let met = Arc::new(AtomicUsize::new(0));
            let folder = names::SESSIONS;
            let repository = scene.open(Lister { inner: memory.clone(), folder, cut, at: Some(at), met: met.clone() });
            let options = deed::prune_options(Vec::new());
            let outcome = prune(&repository, &scene.cache(&repository), &options, &Quiet::default());
            let error = outcome.map(|report| report.gone).unwrap_err();
            assert!(matches!(error, Error::Busy(_)), "{cut:?} at {at}: {error}");
            assert!(writers.len() == 3 && scene.wrongs(&memory, &[]).is_empty());
            if met.load(Ordering::SeqCst) <= at {
                assert!(at >= 2, "it lists them but {at} times");
                break;
            }
        }
    }
}
