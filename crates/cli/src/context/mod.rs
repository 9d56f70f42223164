//! What every command has at hand: where the repository is, how it is opened, and what is noticed of it.

mod heed;

use crate::args::Global;
use crate::exit::{Exit, Failure, Result};
use crate::place;
use crate::profile::Profile;
use crate::remote;
use crate::render::Out;
use crate::unlock;
use drumlin_repo::history::Memory;
use drumlin_repo::{Cache, Repository, SnapshotInfo, names};
use drumlin_store::{Location, ReadOnlyStore, Store, Surroundings};
use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::sync::Arc;

/// What every command has at hand.
pub struct Context<'a> {
    /// Options of every command.
    pub global: Global,
    /// Where to write.
    pub out: &'a Out,
    /// The profile, if one was named.
    pub profile: Option<Profile>,
    /// What was seen of the repositories at hand.
    memories: RefCell<Vec<Arc<Memory>>>,
    /// Something is missing that was seen before.
    alarmed: Cell<bool>,
    /// Something was passed over: of the index, which could not be read, or a snapshot, whose time is to come.
    passed_over: Cell<bool>,
    /// The repositories that were opened.
    opened: RefCell<Vec<Repository>>,
}

/// A repository that was opened to look into its snapshots.
pub struct Looked {
    /// The repository.
    pub repository: Repository,
    /// Its cache.
    pub cache: Arc<Cache>,
    /// Its snapshots, oldest first.
    pub snapshots: Vec<SnapshotInfo>,
    /// Of those that can't be read, why.
    pub damaged: Vec<drumlin_repo::Error>,
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
    /// Of the options of every command.
    ///
    /// # Errors
    /// There is no such profile, or it makes no sense.
    pub fn new(global: Global, out: &'a Out) -> Result<Self> {
        let profile = match &global.profile {
            Some(name) => Some(Profile::load(name, global.config.as_deref())?),
            // Not left to the parser, to which the two must stand on the same side of the command.
            None if global.config.is_some() => {
                return Err(Failure::usage("--config names a file of profiles, but no --profile is given")
                    .hint("--profile NAME does"));
            }
            None => None,
        };
        let (memories, opened) = (RefCell::default(), RefCell::default());
        Ok(Context { global, out, profile, memories, alarmed: Cell::new(false), passed_over: Cell::new(false), opened })
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
        if let Some(given) = std::env::var_os("DRUMLIN_REPOSITORY") {
            if given.is_empty() {
                // A variable of the user's that isn't set, most likely: nothing is to be made elsewhere because of
                // that.
                return Err(Failure::usage("DRUMLIN_REPOSITORY is set, but empty")
                    .hint("set it to where the repository is, or unset it"));
            }
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

    /// Files and folders that the program keeps on this machine: caches, what is remembered, key files, profiles, and
    /// the repositories that there may be, whichever is at hand.
    pub fn own_files(&self) -> Vec<PathBuf> {
        let of_environment = std::env::var_os("DRUMLIN_REPOSITORY").map(PathBuf::from);
        let repositories = [place::default_repository().ok(), of_environment].into_iter().flatten();
        let profiles = [place::profiles().ok(), self.global.config.clone()].into_iter().flatten();
        let of_profiles = profiles.clone().flat_map(|file| Profile::files_of_all(&file));
        let others = self.caches().into_iter().chain(repositories).chain(profiles).chain(of_profiles);
        others.chain(place::states()).chain(self.guarded_files()).collect()
    }

    /// What repositories are opened with here.
    pub fn guarded_files(&self) -> Vec<PathBuf> {
        let named = self.global.key_file.iter().chain(&self.global.password_file).cloned();
        let variables = ["KEY_FILE", "PASSWORD_FILE", "TO_KEY_FILE", "TO_PASSWORD_FILE"];
        let variables = variables.iter().filter_map(|name| std::env::var_os(format!("DRUMLIN_{name}")));
        let of_profile = self.profile.iter().flat_map(Profile::openers);
        place::keys().into_iter().chain(named).chain(variables.map(PathBuf::from)).chain(of_profile).collect()
    }

    /// What a store on another machine may know of the user.
    pub fn around(&self) -> Surroundings {
        remote::around(&self.global, self.profile.as_ref(), self.out)
    }

    /// What is read of a repository before all else: its config, and the key, if that is known by now.
    fn read_first(&self) -> Vec<String> {
        let key = unlock::key_at_hand(&self.global, self.profile.as_ref());
        [names::CONFIG.to_owned()].into_iter().chain(key.map(names::key)).collect()
    }

    /// The store of the repository.
    ///
    /// # Errors
    /// There is none, or it can't be reached.
    pub fn store(&self, place: &Place) -> Result<Arc<dyn Store>> {
        let (location, mut around) = (place.location(), self.around());
        if matches!(location, Location::Sftp(_)) {
            around.first = self.read_first();
        }
        if around.object_lock.is_some() && !matches!(location, Location::S3(_)) {
            self.out.caution(format!(
                "--object-lock works only in buckets: {location} can't protect anything from removal"
            ));
        }
        let store = drumlin_store::open(&location, &around).map_err(|e| {
            let failure = Failure::from(e);
            match (place, failure.exit) {
                (Place::Default(_), Exit::NoRepository) => Failure {
                    message: "no repository is named, and there is none at the default place yet".into(),
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
        let repository = self.open_to_remove()?;
        self.heed(&repository, true);
        Ok(repository)
    }

    /// Open the repository for a command that removes something, and so looks itself whether anything is missing that
    /// this client has seen.
    ///
    /// # Errors
    /// As [`Context::open`].
    pub fn open_to_remove(&self) -> Result<Repository> {
        self.unlock(self.store(&self.place()?)?)
    }

    /// Open the repository for a command that only reads.
    ///
    /// # Errors
    /// As [`Context::open`].
    pub fn open_to_read(&self) -> Result<Repository> {
        let repository = self.open_keeping()?;
        self.heed(&repository, true);
        Ok(repository)
    }

    /// Open the repository for a command that reads what is in snapshots, with the cache, and list all snapshots
    /// ([`Repository::snapshots`]) while it is looked whether anything is missing: that is told first. `whole`: all
    /// that a snapshot has will be read, not some folders.
    ///
    /// # Errors
    /// As [`Context::open`]; and if they can't be listed.
    pub fn open_to_look(&self, whole: bool) -> Result<Looked> {
        let repository = self.open_keeping()?;
        let cache = self.cache(&repository)?;
        if whole {
            cache.expect_copies(&repository);
        }
        let (snapshots, damaged) = self.heed_beside(&repository, || repository.snapshots_before(&[names::INDEX]))?;
        Ok(Looked { cache, snapshots, damaged, repository })
    }

    /// Open the repository for a command that reads, and ask something of it meanwhile: as [`Context::open_to_look`].
    ///
    /// # Errors
    /// As [`Context::open`].
    pub fn open_to_ask<T: Send>(&self, ask: impl FnOnce(&Repository) -> T + Send) -> Result<T> {
        let repository = self.open_keeping()?;
        Ok(self.heed_beside(&repository, || ask(&repository)))
    }

    /// Open the repository for reading, with copies of snapshots.
    fn open_keeping(&self) -> Result<Repository> {
        let repository = self.open_to_check()?;
        Ok(match self.cache_folder() {
            Some(folder) => repository.keeping_snapshots(&folder),
            None => repository,
        })
    }

    /// Open the repository for a check, which reads, and tells itself what is missing.
    ///
    /// # Errors
    /// As [`Context::open`].
    pub fn open_to_check(&self) -> Result<Repository> {
        self.unlock(Arc::new(ReadOnlyStore::new(self.store(&self.place()?)?)))
    }

    /// Open the repository in a store.
    ///
    /// # Errors
    /// There is none in it, or the key doesn't fit.
    pub fn unlock(&self, store: Arc<dyn Store>) -> Result<Repository> {
        let repository = unlock::open(store, unlock::given(&self.global, self.profile.as_ref())?)?;
        Ok(match self.global.as_of {
            // What was seen later is not missing there, and nothing is learned of what is there now.
            Some(_) => self.noted(repository),
            None => self.remembered(repository),
        })
    }

    /// The cache for a repository.
    ///
    /// # Errors
    /// It can't be used.
    pub fn cache(&self, repository: &Repository) -> Result<Arc<Cache>> {
        Ok(Arc::new(Cache::open(repository, self.cache_folder().as_deref(), &std::env::temp_dir())?))
    }

    /// Where caches are, if they are used.
    fn cache_folder(&self) -> Option<PathBuf> {
        self.caches().filter(|_| !self.global.no_cache && self.global.as_of.is_none())
    }
}
