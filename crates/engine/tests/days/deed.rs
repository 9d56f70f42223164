//! What is tried: every operation, with what each of them may leave behind.

use crate::common;
use crate::judge::{self, Verdict};
use crate::scene::{Scene, readable};
use drumlin_engine::backup::{self, Compression, Parent};
use drumlin_engine::check::{self, Part};
use drumlin_engine::copy::{Copier, End, Options as CopyOptions};
use drumlin_engine::diff;
use drumlin_engine::find;
use drumlin_engine::forget::Plan;
use drumlin_engine::list::{self, Depth};
use drumlin_engine::monitor::Quiet;
use drumlin_engine::parity;
use drumlin_engine::prune::{self, Unused};
use drumlin_engine::repair;
use drumlin_engine::restore;
use drumlin_engine::select::{SnapshotFilter, TreePath, open_reader};
use drumlin_engine::undelete::{self, undelete};
use drumlin_engine::{Error, Result};
use drumlin_format::key::Role;
use drumlin_format::snapshot::Snapshot;
use drumlin_format::tree::{Kind, Meta};
use drumlin_format::{SessionId, SnapshotId};
use drumlin_repo::collection::{Board, Desk};
use drumlin_repo::{Cache, CreateOptions, IndexMode, KeyInfo, NewLock, RekeyOptions, Repository, SnapshotInfo};
use drumlin_seal::Secret;
use drumlin_store::MemoryStore;
use std::collections::{BTreeSet, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deed {
    Backup,
    Restore,
    Ls,
    Check,
    Forget,
    Undelete,
    Prune,
    Repair,
    Parity,
    ParityOff,
    CopyFrom,
    CopyTo,
    Dump,
    Find,
    Diff,
    AddKey,
    RemoveKey,
    Relock,
    Rekey,
}

/// What is done to the keys alone.
pub const KEYS: [Deed; 4] = [Deed::AddKey, Deed::RemoveKey, Deed::Relock, Deed::Rekey];

/// What else looks into a snapshot.
pub const LOOKS: [Deed; 3] = [Deed::Dump, Deed::Find, Deed::Diff];

/// All others.
pub const ALL: [Deed; 12] = [
    Deed::Backup,
    Deed::Restore,
    Deed::Ls,
    Deed::Check,
    Deed::Forget,
    Deed::Undelete,
    Deed::Prune,
    Deed::Repair,
    Deed::Parity,
    Deed::ParityOff,
    Deed::CopyFrom,
    Deed::CopyTo,
];

/// What an operation had to say though it came to its end: findings, problems, snapshots that can't be read.
pub type Told = Vec<String>;

/// Begins what is told of an outcome that is wrong and of which nothing else was told.
pub const SILENT: &str = "silently: ";

impl Deed {
    /// Do it. Sessions that are in the way are said to be dead.
    pub fn run(self, scene: &Scene, repository: &Repository) -> Result<Told> {
        let (cache, monitor) = (Arc::new(Cache::open(repository, None, scene.folder.path())?), Quiet::default());
        let mut told = Told::new();
        let wrong = self.attempt(scene, repository, &cache, &monitor, &mut told)?;
        told.extend(monitor.problems().iter().map(|p| format!("{}: {}", String::from_utf8_lossy(&p.path), p.cause)));
        told.extend(repository.passed_over().iter().map(|(name, cause)| format!("{name}: passed over: {cause}")));
        // Who was told has to look; where nothing was told all has to be right.
        if let (true, Some(wrong)) = (told.is_empty(), wrong) {
            told.push(format!("{SILENT}{wrong}"));
        }
        told.extend(repository.healed().iter().map(|pack| format!("{pack}: read through its parity")));
        Ok(told)
    }

    fn attempt(
        self,
        scene: &Scene,
        repository: &Repository,
        cache: &Arc<Cache>,
        monitor: &Quiet,
        told: &mut Told,
    ) -> Result<Verdict> {
        match self {
            Deed::Backup => {
                let options = backup::Options { workers: 1, walkers: 1.into(), ..common::options(&[&scene.source]) };
                backup::backup(repository, cache, options, monitor)?;
            }
            Deed::Restore => {
                let snapshot = standing(scene, repository, told)?;
                let target = tempfile::tempdir_in(scene.folder.path()).unwrap();
                let options = restore::Options { workers: 1, ..common::restore_options(&snapshot, target.path()) };
                restore::restore(repository, cache, options, monitor)?;
                return Ok(judge::restored(&scene.standing[1].1, target.path()));
            }
            Deed::Ls => {
                let snapshot = standing(scene, repository, told)?;
                let (reader, mut found) = (open_reader(repository, cache)?, BTreeSet::new());
                list::list(&reader, snapshot.root, &TreePath::root(), Depth::All, monitor, &mut |entry| {
                    if entry.meta().kind == Kind::File {
                        found.insert(String::from_utf8(entry.path()).unwrap());
                    }
                    Ok(ControlFlow::Continue(()))
                })?;
                return Ok(judge::listed(scene.standing[1].1.keys(), &found));
            }
            Deed::Dump => {
                let snapshot = standing(scene, repository, told)?;
                let found = readable(repository, &snapshot, scene.folder.path(), monitor)?;
                return Ok(judge::right(found == scene.standing[1].1, || "it is not what was saved".into()));
            }
            Deed::Find => {
                let snapshot = standing(scene, repository, told)?;
                let (reader, mut found) = (open_reader(repository, cache)?, BTreeSet::new());
                let options = find::Options { kinds: vec![Kind::File], ..find::Options::default() };
                find::find(&reader, &[snapshot], &options, monitor, &mut |_, met| {
                    found.insert(String::from_utf8(met.path()).unwrap());
                    Ok(ControlFlow::Continue(()))
                })?;
                return Ok(judge::listed(scene.standing[1].1.keys(), &found));
            }
            Deed::Diff => {
                let (old, new) = (standing(scene, repository, told)?, one(scene, repository, 2, told)?);
                let (reader, mut found) = (open_reader(repository, cache)?, BTreeSet::new());
                diff::diff(&reader, old.root, new.root, &diff::Options::default(), monitor, &mut |differs| {
                    let is_file = |meta: Option<&Meta>| meta.is_some_and(|meta| meta.kind == Kind::File);
                    if is_file(differs.old) || is_file(differs.new) {
                        found.insert(String::from_utf8(differs.path()).unwrap());
                    }
                    Ok(ControlFlow::Continue(()))
                })?;
                return Ok(judge::listed(judge::differing(&scene.standing[1].1, &scene.standing[2].1), &found));
            }
            Deed::Check => {
                let options = check::Options { read: Some(Part::All), workers: 1 };
                let report = check::check(repository, cache, options, monitor)?;
                told.extend(report.findings.iter().map(|f| format!("{}: {:?}", f.object, f.causes)));
            }
            Deed::Forget => {
                let (infos, errors) = repository.snapshots()?;
                let first = scene.standing[0].0.to_string();
                Plan::by_names(&infos, &errors, &[first], &SnapshotFilter::default(), i64::MAX)?
                    .carry_out(repository)?;
                told.extend(errors.iter().map(ToString::to_string));
            }
            Deed::Undelete => {
                let (infos, errors) = repository.forgotten()?;
                let gone = scene.forgotten.0;
                let Some(forgotten) = infos.into_iter().find(|info| info.snapshot.id == gone) else {
                    let cause = errors.into_iter().next().map(Error::from);
                    return Err(cause.unwrap_or(Error::NoSnapshot(format!("'forgotten/{gone}' is not there"))));
                };
                let options = undelete::Options { forgotten, host: "host".into(), workers: 1, now: 7 };
                let report = undelete(repository, cache, &options, monitor)?;
                told.extend(report.leftover.iter().map(ToString::to_string));
            }
            Deed::Prune => {
                let options = prune_options(Desk::new(repository).sessions()?);
                prune::prune(repository, cache, &options, monitor)?;
            }
            Deed::Repair => {
                let options = repair::Options {
                    host: "host".into(),
                    damaged: scene.damaged.clone(),
                    spoiled: HashSet::new(),
                    wait: Duration::ZERO,
                    evict: Desk::new(repository).sessions()?,
                    evict_after: Duration::from_secs(1 << 40),
                    workers: 1,
                };
                let report = repair::repair(repository, cache, &options, monitor)?;
                told.extend(report.unreadable.iter().map(|(id, why)| format!("{id}: {why}")));
            }
            Deed::Parity => {
                let report = parity::cover(repository, cache, &parity_options(repository)?, monitor)?;
                told.extend((report.lost > 0).then(|| format!("{} packs are not there", report.lost)));
            }
            Deed::ParityOff => {
                parity::off(repository, cache, &parity_options(repository)?, false, monitor)?;
            }
            Deed::CopyFrom => {
                let to = other(scene);
                let target = to.repository.clone();
                let (infos, copier) =
                    copy(End { repository: repository.clone(), cache: cache.clone() }, to, monitor, told)?;
                return judge::copied(scene, &infos, &copier, &target);
            }
            Deed::CopyTo => {
                copy(other(scene), End { repository: repository.clone(), cache: cache.clone() }, monitor, told)?;
            }
            Deed::AddKey => {
                let key = repository.add_key(Role::Writer, &NewLock::File(judge::secret()), "new", 7)?;
                return Ok(judge::opens(repository.store(), &repository.key_file(key, &judge::secret())));
            }
            Deed::RemoveKey => {
                let keys = repository.list_keys()?;
                let is_his = |key: &&KeyInfo| key.role == Role::Writer && key.revoked.is_none();
                let Some(writer) = keys.iter().find(is_his) else {
                    return Err(Error::NoSnapshot("there is no writer's key".into()));
                };
                repository.remove_key(writer.id, 7)?;
                let gone = repository.list_keys()?.iter().any(|key| key.id == writer.id && key.revoked.is_some());
                return Ok(judge::right(gone, || "the key was not removed".into()));
            }
            Deed::Relock => {
                repository.relock(&NewLock::File(judge::secret()))?;
                return Ok(judge::opens(
                    repository.store(),
                    &repository.key_file(repository.secrets().key, &judge::secret()),
                ));
            }
            Deed::Rekey => {
                let rekeyed = repository.rekey(RekeyOptions { now: 7, remove_old: false })?;
                let newest = rekeyed.repository.generations().newest();
                return Ok(judge::right(newest == rekeyed.number, || format!("{newest} is the newest")));
            }
        }
        Ok(None)
    }

    /// The snapshots that it takes away.
    pub fn takes(self, scene: &Scene) -> Vec<SnapshotId> {
        if self == Deed::Forget { vec![scene.standing[0].0] } else { Vec::new() }
    }

    /// Whether it writes to the repository.
    pub fn writes(self) -> bool {
        !LOOKS.contains(&self) && !matches!(self, Deed::Restore | Deed::Ls | Deed::Check | Deed::CopyFrom)
    }
}

/// Whoever is at work is said to be dead.
pub fn parity_options(repository: &Repository) -> Result<parity::Options> {
    Ok(parity::Options {
        host: "host".into(),
        shape: None,
        spoiled: HashSet::new(),
        evict: Desk::new(repository).sessions()?,
        evict_after: Duration::from_secs(1 << 40),
        workers: 1,
    })
}

/// A prune that leaves nothing unused, and waits for nobody.
pub fn prune_options(evict: Vec<SessionId>) -> prune::Options {
    prune::Options {
        host: "host".into(),
        max_unused: Unused::Bytes(0),
        max_repack: None,
        max_rekey: Unused::Percent(5.0),
        // Some begin with nothing.
        allow_remove_all: true,
        wait: Duration::ZERO,
        evict,
        evict_after: Duration::from_secs(1 << 40),
        workers: 1,
    }
}

/// The second of the snapshots, which every operation leaves where it is.
fn standing(scene: &Scene, repository: &Repository, told: &mut Told) -> Result<Snapshot> {
    one(scene, repository, 1, told)
}

fn one(scene: &Scene, repository: &Repository, number: usize, told: &mut Told) -> Result<Snapshot> {
    let (infos, errors) = repository.snapshots()?;
    let id = scene.standing[number].0;
    match infos.into_iter().find(|info| info.snapshot.id == id) {
        Some(info) => {
            told.extend(errors.iter().map(ToString::to_string));
            Ok(info.snapshot)
        }
        None => {
            let name = drumlin_repo::names::snapshot(id);
            let of_it = |e: &&drumlin_repo::Error| e.to_string().contains(&name);
            let cause = errors.iter().find(of_it).or(errors.first());
            Err(Error::NoSnapshot(cause.map_or(format!("'{name}' is not there"), ToString::to_string)))
        }
    }
}

/// Another repository, of one snapshot.
fn other(scene: &Scene) -> End {
    static OTHER: std::sync::OnceLock<(crate::scene::Objects, String)> = std::sync::OnceLock::new();
    let (objects, key) = OTHER.get_or_init(|| {
        let memory = MemoryStore::new();
        let lock = NewLock::File(Secret::new([2; 32]));
        let repository =
            Repository::create(Arc::new(memory.clone()), CreateOptions::default(), lock, "other", 0).unwrap().0;
        let options = backup::Options { parent: Parent::None, ..common::options(&[&scene.source]) };
        backup::backup(&repository, &scene.cache(&repository), options, &Quiet::default()).unwrap();
        (crate::scene::objects(&memory), repository.recovery_file().to_string())
    });
    let memory = crate::scene::store_of(objects);
    let repository = Repository::open(Arc::new(memory), &drumlin_repo::Unlock::File(key.clone())).unwrap();
    End { cache: scene.cache(&repository), repository }
}

/// Copy all snapshots that are listed; those, and what tells of copies.
fn copy(from: End, to: End, monitor: &Quiet, told: &mut Told) -> Result<(Vec<SnapshotInfo>, Copier)> {
    let (infos, errors) = from.repository.snapshots()?;
    told.extend(errors.iter().map(ToString::to_string));
    let options = CopyOptions {
        host: "host".into(),
        now: 7,
        compression: Compression::Level(1),
        workers: 1,
        memory: 16 << 20,
        index: IndexMode::Exact,
    };
    let mut copier = Copier::new(from, to, options)?;
    told.extend(copier.unreadable().iter().map(ToString::to_string));
    for info in &infos {
        if copier.copy_of(&info.snapshot)?.is_none() {
            // One that can't be copied is told, and the others follow.
            match copier.copy(info, &infos, monitor) {
                Err(Error::Repo(e)) if e.is_damage() => told.push(e.to_string()),
                Err(e @ Error::Hollow(_)) => told.push(e.to_string()),
                other => drop(other?),
            }
        }
    }
    Ok((infos, copier))
}

/// The storage's error in an error, if that is what it comes from.
pub fn store_error(error: &Error) -> Option<&drumlin_store::Error> {
    match error {
        Error::Repo(drumlin_repo::Error::Store(e)) => Some(e),
        Error::Unsure { source: drumlin_repo::Error::Store(e), .. } => Some(e),
        _ => None,
    }
}
