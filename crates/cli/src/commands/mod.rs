//! The commands: from arguments to a call of the engine to a report. One file a command.

mod about;
mod backup;
mod cache;
mod check;
mod copy;
mod count;
mod forget;
mod gather;
mod init;
mod key;
mod look;
mod prune;
mod repair;
mod restore;
mod snapshots;
mod undelete;
mod why;

use crate::args::{Cli, Command, Global};
use crate::exit::{Exit, Failure, Result};
use crate::place;
use crate::profile::Profile;
use crate::render::Out;
use crate::unlock;
use drumlin_engine::select::SnapshotSpec;
use drumlin_repo::{Cache, Repository, SnapshotInfo};
use drumlin_store::{Location, ReadOnlyStore, Store};
use std::path::PathBuf;
use std::sync::Arc;

/// Run a command.
///
/// # Errors
/// Whatever ends it as a whole.
pub fn run(cli: Cli, out: &Out) -> Result<Exit> {
    let context = Context::new(cli.global, out)?;
    match cli.command {
        Command::Init(args) => init::run(&context, &args),
        Command::Backup(args) => backup::run(&context, *args),
        Command::Restore(args) => restore::run(&context, *args),
        Command::Copy(args) => copy::run(&context, &args),
        Command::Prune(args) => prune::run(&context, &args),
        Command::Repair(args) => repair::run(&context, &args),
        Command::Snapshots(args) => snapshots::run(&context, &args),
        Command::Forget(args) => forget::run(&context, &args),
        Command::Undelete(args) => undelete::run(&context, &args),
        Command::Ls(args) => look::ls::run(&context, &args),
        Command::Find(args) => look::find::run(&context, &args),
        Command::Diff(args) => look::diff::run(&context, &args),
        Command::Du(args) => look::du::run(&context, &args),
        Command::Dump(args) => look::dump::run(&context, &args),
        Command::Stats(args) => count::stats(&context, &args),
        Command::Estimate(args) => count::run_estimate(&context, *args),
        Command::Check(args) => check::run(&context, &args),
        Command::Key(args) => key::run(&context, &args),
        Command::Why(args) => why::run(&context, &args),
        Command::Cache(args) => cache::run(&context, &args),
        Command::Completions(args) => about::completions(&context, &args),
        Command::Man(args) => about::man(&context, &args),
        Command::Version(_) => about::version(&context),
    }
}

/// A snapshot where a folder of it makes no sense.
///
/// # Errors
/// A folder was given.
pub fn whole(spec: SnapshotSpec) -> Result<SnapshotInfo> {
    if spec.subfolder.is_root() {
        return Ok(spec.snapshot);
    }
    Err(Failure::usage(format!("a whole snapshot is meant here: leave away ':{}'", spec.subfolder)))
}

/// How many threads can run at once.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What every command has at hand.
pub struct Context<'a> {
    /// Options of every command.
    pub global: Global,
    /// Where to write.
    pub out: &'a Out,
    /// The profile, if one was named.
    pub profile: Option<Profile>,
}

/// Where the repository is.
#[derive(Debug)]
pub enum Place {
    /// Where the user said.
    Named(Location),
    /// Where it is if nobody says anything.
    Default(PathBuf),
}

impl Place {
    /// As the store takes it.
    pub fn location(&self) -> Location {
        match self {
            Place::Named(location) => location.clone(),
            Place::Default(path) => path.clone().into(),
        }
    }
}

impl<'a> Context<'a> {
    fn new(global: Global, out: &'a Out) -> Result<Self> {
        let profile = match &global.profile {
            Some(name) => Some(Profile::load(name, global.config.as_deref())?),
            None => None,
        };
        Ok(Context { global, out, profile })
    }

    /// Where the repository is: by flag, profile, environment, or by default.
    ///
    /// # Errors
    /// What is given is no location.
    pub fn place(&self) -> Result<Place> {
        if let Some(given) = &self.global.repo {
            return Ok(Place::Named(Location::parse(given)?));
        }
        if let Some(given) = self.profile.as_ref().and_then(|p| p.repository.as_deref()) {
            if given.starts_with('~') {
                return Ok(Place::Named(place::expand(given)?.into()));
            }
            return Ok(Place::Named(Location::parse(given)?));
        }
        if let Some(given) = std::env::var_os("DRUMLIN_REPOSITORY").filter(|v| !v.is_empty()) {
            return Ok(Place::Named(match given.into_string() {
                Ok(text) => Location::parse(&text)?,
                // No URL is like that.
                Err(bytes) => PathBuf::from(bytes).into(),
            }));
        }
        place::default_repository().map(Place::Default)
    }

    /// The folder of caches, whether caches are used or not.
    pub fn caches(&self) -> Option<PathBuf> {
        self.global.cache_dir.clone().or_else(|| place::caches().ok())
    }

    /// The store of the repository.
    ///
    /// # Errors
    /// There is none, or it can't be reached.
    pub fn store(&self, place: &Place) -> Result<Arc<dyn Store>> {
        let store = drumlin_store::open(&place.location()).map_err(|e| {
            let failure = Failure::from(e);
            match (place, failure.exit) {
                (Place::Default(_), Exit::NoRepository) => Failure {
                    message: "no repository is named, and none was made yet where one is by default".into(),
                    hint: Some("name one with -r; or let 'drumlin init' or the first 'drumlin backup' make it".into()),
                    ..failure
                },
                _ => failure,
            }
        })?;
        Ok(Arc::from(store))
    }

    /// Open the repository with the user's key.
    ///
    /// # Errors
    /// There is none, or the key doesn't fit.
    pub fn open(&self) -> Result<Repository> {
        self.unlock(self.store(&self.place()?)?)
    }

    /// Open the repository for a command that only reads.
    ///
    /// # Errors
    /// As [`Context::open`].
    pub fn open_to_read(&self) -> Result<Repository> {
        self.unlock(Arc::new(ReadOnlyStore::new(self.store(&self.place()?)?)))
    }

    /// Open the repository in a store.
    ///
    /// # Errors
    /// There is none in it, or the key doesn't fit.
    pub fn unlock(&self, store: Arc<dyn Store>) -> Result<Repository> {
        unlock::open(store, unlock::given(&self.global, self.profile.as_ref())?)
    }

    /// The cache for a repository.
    ///
    /// # Errors
    /// It can't be used.
    pub fn cache(&self, repository: &Repository) -> Result<Arc<Cache>> {
        let folder = self.caches().filter(|_| !self.global.no_cache);
        Ok(Arc::new(Cache::open(repository, folder.as_deref(), &std::env::temp_dir())?))
    }
}
