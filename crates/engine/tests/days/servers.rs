//! The same on real servers: every operation is killed, or loses an answer, at calls that a seed chooses; and writers,
//! a collector, somebody who forgets and a reader are at work at once, each over a line of its own that fails now and
//! then.
//!
//! ```text
//! DRUMLIN_SERVER_SEED=17 DRUMLIN_SERVER_TRIES=1000 cargo test -p drumlin-engine --test days servers
//! ```
//!
//! `DRUMLIN_MOUNT` names a folder on a file system of another machine that is to be one of the places (`tests/mounts`),
//! `DRUMLIN_RCLONE=1` has rclone, too (`tests/remote`).
//!
//! On a server nobody decides who comes first, so that a seed is another run each time; `simulation` has runs that come
//! again.

use crate::common;
use crate::deed::{self, Deed, prune_options, store_error};
use crate::faults::again;
use crate::scene::{Contents, Scene, contents, tidy};
use drumlin_engine::Error;
use drumlin_engine::backup::{self, backup};
use drumlin_engine::check::{self, Part, check};
use drumlin_engine::monitor::Quiet;
use drumlin_engine::prune::prune;
use drumlin_format::SnapshotId;
use drumlin_repo::Error as RepoError;
use drumlin_repo::collection::{Board, Desk};
use drumlin_store::{Fault, FaultStore, Faults, Kind, Location, Put, Store, Surroundings, When};
use drumlin_testkit::{Bucket, Rclone, Rng, Sshd};
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Tries on each server; a fourth on each further account of one.
const TRIES: u64 = 16;
/// What each of those who are at work at once does, in turn.
const ROUNDS: usize = 6;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn seed() -> u64 {
    number("DRUMLIN_SERVER_SEED").unwrap_or(1)
}

fn tries() -> u64 {
    number("DRUMLIN_SERVER_TRIES").unwrap_or(TRIES)
}

/// Where stores are made.
struct Place {
    name: &'static str,
    /// Before what tells one store from another.
    address: String,
    around: Surroundings,
    tries: u64,
    /// Nothing can be removed or replaced there.
    only_adds: bool,
    /// What one has stored another one may not see at once.
    is_for_one: bool,
    /// Goes when this does.
    _server: Box<dyn Send + Sync>,
}

impl Place {
    fn new(name: &'static str, address: String, around: Surroundings, server: Box<dyn Send + Sync>) -> Self {
        Place { name, address, around, tries: tries(), only_adds: false, is_for_one: false, _server: server }
    }

    /// What the environment names.
    fn asked_for() -> Vec<Place> {
        let (place, mut places) = (Self::new, Vec::new());
        if let Some(mount) = std::env::var_os("DRUMLIN_MOUNT") {
            let folder = tempfile::tempdir_in(mount).unwrap();
            let address = folder.path().join("r").to_str().unwrap().to_owned();
            places.push(place("a mounted file system", address, Surroundings::default(), Box::new(folder)));
        }
        if std::env::var_os("DRUMLIN_RCLONE").is_some() {
            let rclone = Arc::new(Rclone::start());
            places.extend(rclone.remotes().map(|remote| Place {
                tries: tries().div_ceil(4),
                is_for_one: true,
                ..place(
                    if remote == "dav" { "rclone, WebDAV" } else { "rclone, a folder" },
                    format!("stdio:{}", rclone.serves(remote, "r")),
                    Surroundings::default(),
                    Box::new(rclone.clone()),
                )
            }));
        }
        places
    }

    /// A folder, and every server that can be had; or what is asked for alone.
    fn all() -> Vec<Place> {
        let asked = Self::asked_for();
        if !asked.is_empty() {
            return asked;
        }
        let folder = tempfile::tempdir().unwrap();
        let (address, around) = (folder.path().join("r").to_str().unwrap().to_owned(), Surroundings::default());
        let place = Self::new;
        let mut places = vec![place("a folder", address, around, Box::new(folder))];
        let mut accounts = |server: Option<Sshd>, accounts: &[(&'static str, &str, u64, bool)]| {
            let Some(server) = server else { return };
            let around = Surroundings {
                user: "nobody".into(),
                ssh_config: Some(server.config(server.port(), "")),
                ..Surroundings::default()
            };
            let server = Arc::new(server);
            places.extend(accounts.iter().map(|(name, address, tries, only_adds)| Place {
                tries: *tries,
                only_adds: *only_adds,
                ..place(name, (*address).to_owned(), around.clone(), Box::new(server.clone()))
            }));
        };
        let (tries, fewer) = (tries(), tries().div_ceil(4));
        accounts(
            Sshd::start(),
            &[
                ("sshd", "sftp://plain/~/r", tries, false),
                ("sshd, a chroot", "sftp://jail/data/r", fewer, false),
                ("sshd, an account that may rename and not remove", "sftp://publish/~/r", fewer, true),
                ("sshd, an account that may only add", "sftp://append/~/r", fewer, true),
            ],
        );
        accounts(
            Sshd::start_proftpd(),
            &[
                ("ProFTPD", "sftp://jail/data/r", fewer, false),
                ("ProFTPD, an account that may only add", "sftp://append/~/r", fewer, true),
            ],
        );
        places.extend(Bucket::all().into_iter().map(|bucket| {
            let aws = bucket.variables().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            let around = Surroundings { endpoint: Some(bucket.endpoint().to_owned()), aws, ..Surroundings::default() };
            let address = format!("s3://{}/r", bucket.bucket());
            place(bucket.server(), address, around, Box::new(bucket))
        }));
        places
    }

    fn location(&self, number: u64) -> Location {
        Location::parse(&format!("{}{number}", self.address)).unwrap()
    }

    /// A store with what was there at the start.
    fn store_of(&self, scene: &Scene, number: u64) -> Arc<dyn Store> {
        let store = drumlin_store::create(&self.location(number), &self.around).unwrap_or_else(|e| panic!("{e}"));
        scene.objects.iter().for_each(|(name, bytes)| store.put(name, bytes, Put::Create).unwrap());
        store.sync().unwrap();
        store.into()
    }

    /// The same over another line.
    fn line_to(&self, number: u64) -> Arc<dyn Store> {
        drumlin_store::open(&self.location(number), &self.around).unwrap_or_else(|e| panic!("{e}")).into()
    }
}

/// Something happens at one of the next `calls` calls.
fn trouble(faults: &Faults, calls: usize, rng: &mut Rng) -> String {
    let at = rng.below(calls.max(1)) as u64;
    let (when, how) = (When::any().skip(at), rng.below(4));
    match how {
        0 => faults.add(when, Fault::Fail(Kind::Io)),
        1 => {
            // The answer to the last thing that it ever asks for is lost.
            faults.add(when.clone().times(1), Fault::FailAfter(Kind::Io));
            faults.add(When::any().skip(at), Fault::Fail(Kind::Io));
        }
        2 => faults.add(when.times(1), Fault::Fail(Kind::Transient)),
        _ => faults.add(when.times(1), Fault::FailAfter(Kind::Transient)),
    }
    let what = ["killed", "killed, and the answer lost", "failed once", "answer lost once"][how];
    format!("{what} at call {at}")
}

/// How many calls it takes.
fn calls_of(scene: &Scene, deed: Deed) -> usize {
    let store = FaultStore::new(scene.store());
    let faults = store.faults();
    let repository = scene.open(store);
    let before = faults.calls();
    deed.run(scene, &repository).unwrap();
    (faults.calls() - before) as usize
}

#[test]
fn every_operation_on_servers_stopped_at_any_call() {
    let scene = tidy();
    let deeds: Vec<Deed> = deed::ALL.into_iter().filter(|deed| deed.writes()).collect();
    let adding = [Deed::Backup, Deed::AddKey];
    let calls: BTreeMap<Deed, usize> =
        deeds.iter().chain(&adding).map(|deed| (*deed, calls_of(&scene, *deed))).collect();
    for place in Place::all() {
        let start = Instant::now();
        let deeds = if place.only_adds { &adding[..] } else { &deeds };
        for number in 0..place.tries {
            let mut rng = Rng::new(seed() + number);
            let deed = deeds[(seed() + number) as usize % deeds.len()];
            let plain = place.store_of(&scene, number);
            let store = FaultStore::new(plain.clone());
            let faults = store.faults();
            let repository = scene.open(store);
            let happened = trouble(&faults, calls[&deed], &mut rng);
            let what = format!("{}, seed {}, {deed:?}, {happened}", place.name, seed() + number);
            if let Err(error) = deed.run(&scene, &repository) {
                let of = store_error(&error).unwrap_or_else(|| panic!("{what}: {error}"));
                assert!(of.to_string().contains("the test says so"), "{what}: {error}");
            }
            drop((repository, plain));
            let store = place.line_to(number);
            let wrongs = scene.wrongs(&store, &deed.takes(&scene));
            assert!(wrongs.is_empty(), "{what}: {wrongs:#?}");
            again(&scene, deed, &store, &what);
            scene.can_save_the_old(&store, &what);
        }
        println!("{}: {:.1?}", place.name, start.elapsed());
    }
}

/// What those who are at work at once know together.
#[derive(Default)]
struct Known {
    /// What was committed, and what is in it.
    committed: BTreeMap<SnapshotId, Contents>,
    /// What somebody may have forgotten.
    forgotten: HashSet<SnapshotId>,
}

/// One of those.
struct Actor<'a> {
    what: String,
    scene: &'a Scene,
    store: Arc<FaultStore<Arc<dyn Store>>>,
    rng: Rng,
    known: &'a Mutex<Known>,
    /// Sessions that were declared dead so far, counted by prunes.
    evictions: &'a AtomicU64,
}

impl Actor<'_> {
    /// Whether what it does may end so.
    fn is_fair(&self, error: &Error, evictions: u64) -> bool {
        // As it is, or as the reason of somebody who draws a conclusion from it: a prune that is in doubt.
        let of_the_test = error.to_string().contains("the test says so");
        let collected = matches!(error, Error::Busy(_) | Error::Changing | Error::Repo(RepoError::Evicted));
        of_the_test || collected || self.evictions.load(Ordering::SeqCst) > evictions
    }

    /// Do it, over a line that may fail.
    fn attempt<T>(&mut self, deed: impl FnOnce(&mut Self) -> drumlin_engine::Result<T>) -> Option<T> {
        let evictions = self.evictions.load(Ordering::SeqCst);
        let faults = self.store.faults();
        let happened = if self.rng.one_in(2) { trouble(&faults, 60, &mut self.rng) } else { "no trouble".into() };
        let outcome = deed(self);
        faults.clear();
        match outcome {
            Ok(done) => Some(done),
            Err(error) => {
                assert!(self.is_fair(&error, evictions), "{}, {happened}: {error} ({error:?})", self.what);
                None
            }
        }
    }

    fn write(&mut self, number: usize) {
        let folder = tempfile::tempdir_in(self.scene.folder.path()).unwrap();
        for round in 0..ROUNDS {
            for _ in 0..3 {
                let (file, len) = (folder.path().join(self.rng.below(8).to_string()), self.rng.below(20_000));
                fs::write(file, self.rng.bytes(len)).unwrap();
            }
            common::settle();
            let is = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
            let is: Contents = is.map(|path| (path.to_str().unwrap().to_owned(), fs::read(path).unwrap())).collect();
            let path = folder.path().to_owned();
            let done = self.attempt(|actor| {
                let repository = actor.scene.try_open(actor.store.clone())?;
                let options = backup::Options {
                    host: format!("host{number}"),
                    tags: vec![format!("round{round}")],
                    ..common::options(&[&path])
                };
                backup(&repository, &actor.scene.cache(&repository), options, &Quiet::default())
            });
            if let Some(snapshot) = done.and_then(|report| report.snapshot) {
                self.known.lock().unwrap().committed.insert(snapshot.id, is);
            }
        }
    }

    fn collect(&mut self) {
        for _ in 0..ROUNDS {
            self.attempt(|actor| {
                let repository = actor.scene.try_open(actor.store.clone())?;
                let evict = match actor.rng.one_in(2) {
                    true => Desk::new(&repository).sessions()?,
                    false => Vec::new(),
                };
                actor.evictions.fetch_add(evict.len() as u64, Ordering::SeqCst);
                let cache = actor.scene.cache(&repository);
                prune(&repository, &cache, &prune_options(evict), &Quiet::default())
            });
        }
    }

    fn forget(&mut self) {
        for _ in 0..ROUNDS {
            let ids: Vec<_> = self.known.lock().unwrap().committed.keys().copied().collect();
            let Some(id) = self.rng.pick(&ids).copied() else { continue };
            self.known.lock().unwrap().forgotten.insert(id);
            self.attempt(|actor| {
                let repository = actor.scene.try_open(actor.store.clone())?;
                match repository.forget(&[id]) {
                    Err(RepoError::NoSnapshot(_)) => Ok(()),
                    other => Ok(other?),
                }
            });
        }
    }

    fn look(&mut self) {
        for _ in 0..ROUNDS {
            let read = self.rng.one_in(2).then_some(Part::All);
            let report = self.attempt(|actor| {
                let repository = actor.scene.try_open(actor.store.clone())?;
                let options = check::Options { read, workers: 1 };
                check(&repository, &actor.scene.cache(&repository), options, &Quiet::default())
            });
            // What the line doesn't give twice is a finding, too, and tells of the line.
            let findings = report.map(|report| report.findings).unwrap_or_default();
            let own: Vec<_> = findings.iter().filter(|f| !format!("{f:?}").contains("the test says so")).collect();
            assert!(own.is_empty(), "{}: {own:#?}", self.what);
        }
    }
}

#[test]
fn many_at_once_on_servers() {
    let scene = tidy();
    for place in Place::all().into_iter().filter(|place| !place.only_adds && !place.is_for_one) {
        let start = Instant::now();
        let number = 1_000_000;
        drop(place.store_of(&scene, number));
        let known = Mutex::new(Known::default());
        known.lock().unwrap().committed.extend(scene.standing.iter().cloned());
        let evictions = AtomicU64::new(0);
        let actor = |n: u64| Actor {
            what: format!("{}, actor {n} of seed {}", place.name, seed()),
            scene: &scene,
            store: Arc::new(FaultStore::new(place.line_to(number))),
            rng: Rng::new(seed() * 100 + n),
            known: &known,
            evictions: &evictions,
        };
        std::thread::scope(|scope| {
            scope.spawn(|| actor(0).write(0));
            scope.spawn(|| actor(1).write(1));
            scope.spawn(|| actor(2).write(1));
            scope.spawn(|| actor(3).collect());
            scope.spawn(|| actor(4).forget());
            scope.spawn(|| actor(5).look());
        });
        let Known { committed, forgotten } = known.into_inner().unwrap();
        let store = place.line_to(number);
        // All have ended: what is left of those that were killed is cleared up, and nothing else.
        for _ in 0..2 {
            let repository = scene.open(store.clone());
            let options = prune_options(Desk::new(&repository).sessions().unwrap());
            prune(&repository, &scene.cache(&repository), &options, &Quiet::default()).unwrap();
        }
        let gone: Vec<_> = forgotten.iter().copied().collect();
        let wrongs = scene.wrongs(&store, &gone);
        assert!(wrongs.is_empty(), "{}: {wrongs:#?}", place.name);
        let repository = scene.open(store.clone());
        let (infos, _) = repository.snapshots().unwrap();
        for (id, is) in committed.iter().filter(|(id, _)| !forgotten.contains(id)) {
            let info = infos.iter().find(|info| info.snapshot.id == *id);
            let info = info.unwrap_or_else(|| panic!("{}: {id} is not listed", place.name));
            let found = contents(&repository, &info.snapshot, scene.folder.path()).unwrap();
            assert!(found == *is, "{}: {id} is not what was saved", place.name);
        }
        let findings = scene.check(&store).findings;
        assert!(findings.is_empty(), "{}: {findings:#?}", place.name);
        assert!(committed.len() > scene.standing.len() + 4, "{}: hardly a backup succeeded", place.name);
        println!("{}: {} backups, {:.1?}", place.name, committed.len(), start.elapsed());
    }
}
