//! What is tried: every operation, with what each of them may leave behind.

use crate::common;
use crate::scene::Scene;
use drumlin_engine::backup::{self, Compression, Parent};
use drumlin_engine::check::{self, Part};
use drumlin_engine::copy::{Copier, End, Options as CopyOptions};
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
use drumlin_format::snapshot::Snapshot;
use drumlin_format::{SessionId, SnapshotId};
use drumlin_repo::collection::{Board, Desk};
use drumlin_repo::{Cache, CreateOptions, IndexMode, NewLock, Repository};
use drumlin_seal::Secret;
use drumlin_store::MemoryStore;
use std::collections::HashSet;
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
}

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

impl Deed {
    /// Do it. Sessions that are in the way are said to be dead.
    pub fn run(self, scene: &Scene, repository: &Repository) -> Result<Told> {
        let (cache, monitor) = (Arc::new(Cache::open(repository, None, scene.folder.path())?), Quiet::default());
        let mut told = self.with(scene, repository, &cache, &monitor)?;
        told.extend(monitor.problems().iter().map(|p| format!("{}: {}", String::from_utf8_lossy(&p.path), p.cause)));
        told.extend(repository.healed().iter().map(|pack| format!("{pack}: read through its parity")));
        Ok(told)
    }

    fn with(self, scene: &Scene, repository: &Repository, cache: &Arc<Cache>, monitor: &Quiet) -> Result<Told> {
        let nothing = Ok(Told::new());
        match self {
            Deed::Backup => {
                let options = backup::Options { workers: 1, walkers: 1.into(), ..common::options(&[&scene.source]) };
                backup::backup(repository, cache, options, monitor)?;
                nothing
            }
            Deed::Restore => {
                let (snapshot, told) = standing(scene, repository)?;
                let target = tempfile::tempdir_in(scene.folder.path()).unwrap();
                let options = restore::Options { workers: 1, ..common::restore_options(&snapshot, target.path()) };
                restore::restore(repository, cache, options, monitor)?;
                Ok(told)
            }
            Deed::Ls => {
                let (snapshot, told) = standing(scene, repository)?;
                let reader = open_reader(repository, cache)?;
                let each = &mut |_: &list::Entry| Ok(ControlFlow::Continue(()));
                list::list(&reader, snapshot.root, &TreePath::root(), Depth::All, monitor, each)?;
                Ok(told)
            }
            Deed::Check => {
                let options = check::Options { read: Some(Part::All), workers: 1 };
                let report = check::check(repository, cache, options, monitor)?;
                Ok(report.findings.iter().map(|f| format!("{}: {:?}", f.object, f.causes)).collect())
            }
            Deed::Forget => {
                let (infos, errors) = repository.snapshots()?;
                let first = scene.standing[0].0.to_string();
                Plan::by_names(&infos, &errors, &[first], &SnapshotFilter::default())?.carry_out(repository)?;
                Ok(errors.iter().map(ToString::to_string).collect())
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
                Ok(report.leftover.iter().map(ToString::to_string).collect())
            }
            Deed::Prune => {
                let options = prune_options(Desk::new(repository).sessions()?);
                prune::prune(repository, cache, &options, monitor)?;
                nothing
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
                Ok(report.unreadable.iter().map(|(id, why)| format!("{id}: {why}")).collect())
            }
            Deed::Parity => {
                let report = parity::cover(repository, cache, &parity_options(repository)?, monitor)?;
                Ok(if report.lost > 0 { vec![format!("{} packs are not there", report.lost)] } else { Told::new() })
            }
            Deed::ParityOff => {
                parity::off(repository, cache, &parity_options(repository)?, false, monitor)?;
                nothing
            }
            Deed::CopyFrom | Deed::CopyTo => {
                let other = other(scene);
                let end = End { repository: repository.clone(), cache: cache.clone() };
                let ends = if self == Deed::CopyFrom { (end, other) } else { (other, end) };
                copy(ends.0, ends.1, monitor)
            }
        }
    }

    /// The snapshots that it takes away.
    pub fn takes(self, scene: &Scene) -> Vec<SnapshotId> {
        if self == Deed::Forget { vec![scene.standing[0].0] } else { Vec::new() }
    }

    /// Whether it writes to the repository.
    pub fn writes(self) -> bool {
        !matches!(self, Deed::Restore | Deed::Ls | Deed::Check | Deed::CopyFrom)
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
        allow_remove_all: false,
        wait: Duration::ZERO,
        evict,
        evict_after: Duration::from_secs(1 << 40),
        workers: 1,
    }
}

/// The second of the snapshots, which every operation leaves where it is.
fn standing(scene: &Scene, repository: &Repository) -> Result<(Snapshot, Told)> {
    let (infos, errors) = repository.snapshots()?;
    let id = scene.standing[1].0;
    match infos.into_iter().find(|info| info.snapshot.id == id) {
        Some(info) => Ok((info.snapshot, errors.iter().map(ToString::to_string).collect())),
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

fn copy(from: End, to: End, monitor: &Quiet) -> Result<Told> {
    let (infos, errors) = from.repository.snapshots()?;
    let mut told: Told = errors.iter().map(ToString::to_string).collect();
    let options = CopyOptions {
        host: "host".into(),
        now: 7,
        compression: Compression::Level(1),
        workers: 1,
        memory: 16 << 20,
        index: IndexMode::Exact,
    };
    let mut copier = Copier::new(from, to, options)?;
    for info in &infos {
        if copier.copy_of(&info.snapshot)?.is_none() {
            // One that can't be copied is told, and the others follow.
            match copier.copy(info, &infos, monitor) {
                Err(Error::Repo(e)) if e.is_damage() => told.push(e.to_string()),
                other => drop(other?),
            }
        }
    }
    Ok(told)
}

/// The storage's error in an error, if that is what it comes from.
pub fn store_error(error: &Error) -> Option<&drumlin_store::Error> {
    match error {
        Error::Repo(drumlin_repo::Error::Store(e)) => Some(e),
        Error::Unsure { source: drumlin_repo::Error::Store(e), .. } => Some(e),
        _ => None,
    }
}
