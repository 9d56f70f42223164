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
mod parity;
mod prune;
mod repair;
mod restore;
mod snapshots;
mod undelete;
mod why;

use crate::args::{Cli, Command, Global};
use crate::exit::{Exit, Failure, Result, plain, without_number};
use crate::hooks;
use crate::place;
use crate::profile::Profile;
use crate::remote;
use crate::render::Out;
use crate::render::missing::{self, JsonMissing};
use crate::render::time::now;
use crate::unlock;
use drumlin_engine::select::SnapshotSpec;
use drumlin_host::walk::Crew;
use drumlin_repo::history::{Memory, Missing};
use drumlin_repo::{Cache, Repository, SnapshotInfo, names};
use drumlin_store::{Location, ReadOnlyStore, Store, Surroundings};
use serde::Serialize;
use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::sync::Arc;

/// Run a command.
///
/// # Errors
/// Whatever ends it as a whole.
pub fn run(cli: Cli, out: &Out) -> Result<Exit> {
    let context = Context::new(cli.global, out)?;
    let repairs = matches!(cli.command, Command::Repair(_));
    if context.global.as_of.is_some() && !only_looks(&cli.command) {
        return Err(Failure::usage("--as-of shows what was, and this command doesn't only look at it")
            .hint("restore from there, or 'drumlin copy' what is there into another repository"));
    }
    let needs = needs_repository(&cli.command);
    let Some(profile) = context.profile.as_ref().filter(|_| needs) else {
        return ended(&context, command(&context, cli.command), repairs);
    };
    let states = place::states().ok();
    let opened = hooks::open(profile, states.as_deref()).inspect_err(|failure| {
        if matches!(&cli.command, Command::Backup(args) if !args.dry_run) {
            hooks::on_failure(out, profile, failure.exit, &failure.message);
        }
    })?;
    let done = ended(&context, command(&context, cli.command), repairs);
    let Some(opened) = opened else { return done };
    context.opened.borrow_mut().clear();
    let closed = opened.close(done.as_ref().map_or_else(|failure| failure.exit, |exit| *exit));
    match (&done, closed) {
        // What the command itself came to says more.
        (Err(_) | Ok(Exit::Incomplete | Exit::Unexplained | Exit::Interrupted), Err(failure)) => {
            out.trouble_with("hook", &failure.message);
        }
        (_, closed) => closed?,
    }
    done
}

/// Tell what is to be told at the end, and with what to exit.
fn ended(context: &Context, done: Result<Exit>, repairs: bool) -> Result<Exit> {
    context.keep();
    if !repairs {
        context.tell_healed();
    }
    done.map(|exit| context.outcome(exit))
}

/// Whether a command looks at the repository.
fn needs_repository(command: &Command) -> bool {
    use Command::{Cache, Completions, Man, Version, Why};
    !matches!(command, Cache(_) | Completions(_) | Man(_) | Version(_) | Why(_))
}

/// Whether a command changes nothing in the repository that it is run on.
fn only_looks(command: &Command) -> bool {
    use Command::{Check, Copy, Diff, Du, Dump, Find, Ls, Restore, Snapshots, Stats};
    matches!(
        command,
        Restore(_) | Copy(_) | Snapshots(_) | Ls(_) | Find(_) | Diff(_) | Du(_) | Dump(_) | Stats(_) | Check(_)
    )
}

fn command(context: &Context, command: Command) -> Result<Exit> {
    match command {
        Command::Init(args) => init::run(context, &args),
        Command::Backup(args) => backup::run(context, *args),
        Command::Restore(args) => restore::run(context, *args),
        Command::Copy(args) => copy::run(context, &args),
        Command::Prune(args) => prune::run(context, &args),
        Command::Repair(args) => repair::run(context, &args),
        Command::Parity(args) => parity::run(context, &args),
        Command::Snapshots(args) => snapshots::run(context, &args),
        Command::Forget(args) => forget::run(context, &args),
        Command::Undelete(args) => undelete::run(context, &args),
        Command::Ls(args) => look::ls::run(context, &args),
        Command::Find(args) => look::find::run(context, &args),
        Command::Diff(args) => look::diff::run(context, &args),
        Command::Du(args) => look::du::run(context, &args),
        Command::Dump(args) => look::dump::run(context, &args),
        Command::Stats(args) => count::stats(context, &args),
        Command::Estimate(args) => count::run_estimate(context, *args),
        Command::Check(args) => check::run(context, &args),
        Command::Key(args) => key::run(context, &args),
        Command::Why(args) => why::run(context, &args),
        Command::Cache(args) => cache::run(context, &args),
        Command::Completions(args) => about::completions(context, &args),
        Command::Man(args) => about::man(context, &args),
        Command::Version(_) => about::version(context),
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

/// So many threads list directories where they mostly wait, for a disk that seeks or a server that answers.
const WALKERS_MOST: usize = 64;

/// How many threads list directories.
pub fn walkers() -> Crew {
    Crew { first: processors().max(2), most: WALKERS_MOST }
}

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

/// A look under way: see [`Context::look`].
pub struct Looking(Option<std::thread::JoinHandle<drumlin_repo::Result<Missing>>>);

/// Packs that were damaged and could be read all the same.
#[derive(Serialize)]
struct JsonHealed<'a> {
    message_type: &'static str,
    packs: &'a [String],
    copies: &'a [String],
}

impl<'a> Context<'a> {
    fn new(global: Global, out: &'a Out) -> Result<Self> {
        let profile = match &global.profile {
            Some(name) => Some(Profile::load(name, global.config.as_deref())?),
            // Not left to the parser, to which the two must stand on the same side of the command.
            None if global.config.is_some() => {
                return Err(Failure::usage("--config says where profiles are, and no profile is named")
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
                // A variable of the user's that isn't set, most likely: nothing is to be made elsewhere because of that.
                return Err(Failure::usage("DRUMLIN_REPOSITORY is set, and empty")
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

    /// Files and folders that the program keeps on this machine: caches, what is remembered, key files, profiles, and the repositories that there may be, whichever
    /// is at hand.
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

    /// The store of the repository.
    ///
    /// # Errors
    /// There is none, or it can't be reached.
    pub fn store(&self, place: &Place) -> Result<Arc<dyn Store>> {
        let (location, around) = (place.location(), self.around());
        if around.object_lock.is_some() && !matches!(location, Location::S3(_)) {
            self.out.caution(format!("--object-lock is for buckets: nothing in {location} is kept from being removed"));
        }
        let store = drumlin_store::open(&location, &around).map_err(|e| {
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
        let repository = self.open_to_remove()?;
        self.heed(&repository, true);
        Ok(repository)
    }

    /// Open the repository for a command that removes something, and so looks itself whether anything is missing that this
    /// client has seen.
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
        let repository = self.open_to_check()?;
        self.heed(&repository, true);
        Ok(match self.cache_folder() {
            Some(folder) => repository.keeping_snapshots(&folder),
            None => repository,
        })
    }

    /// The same for a check, which tells itself what is missing.
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

    /// Tell if what opened the repository is all that is left of the key: what it signs counts for nobody else.
    fn tell_key(&self, repository: &Repository) {
        if repository.lacks_its_key() {
            self.note_doubt();
            let advice = match repository.secrets().owner_signing {
                Some(_) => "'drumlin key passwd' with this recovery file makes it again",
                None => "have its owner add a key in its place",
            };
            let key = repository.secrets().key;
            self.out.caution(format!(
                "the object of key {key} is gone from the repository: what is signed with it counts for nobody but who has its recovery file; {advice}"
            ));
        }
    }

    /// The same repository, with what this client has seen of it.
    pub fn remembered(&self, repository: Repository) -> Repository {
        let memory = Arc::new(Memory::open(&repository, place::states().ok().as_deref()));
        if let (Some(why), Some(path)) = (memory.trouble(), memory.path()) {
            let path = path.display();
            self.out.warn(format!("what was seen of the repository before is not known any more: '{path}': {why}"));
        }
        self.memories.borrow_mut().push(memory.clone());
        self.noted(repository.with_memory(memory))
    }

    /// The same repository, of which it is told at the end what could be read by its copies or parity alone.
    fn noted(&self, repository: Repository) -> Repository {
        self.tell_key(&repository);
        self.opened.borrow_mut().push(repository.clone());
        repository
    }

    /// Tell if anything is missing in a repository that this client has seen; its keys are looked at, too, if wanted. The
    /// command goes on.
    pub fn heed(&self, repository: &Repository, keys: bool) {
        self.told(repository.look_back(now().0, keys));
    }

    /// Look whether anything is missing that this client has seen, while something else is done: [`Context::heard`] tells.
    pub fn look(&self, repository: &Repository) -> Looking {
        let looked = repository.clone();
        match std::thread::Builder::new().name("look-back".into()).spawn(move || looked.look_back(now().0, false)) {
            Ok(thread) => Looking(Some(thread)),
            Err(_) => {
                self.heed(repository, false);
                Looking(None)
            }
        }
    }

    /// Tell what has been found missing. To be called before anything new is remembered.
    pub fn heard(&self, looking: Looking) {
        // A panic there has ended the program.
        if let Some(Ok(looked)) = looking.0.map(std::thread::JoinHandle::join) {
            self.told(looked);
        }
    }

    fn told(&self, looked: drumlin_repo::Result<Missing>) {
        match looked {
            Ok(missing) if missing.is_empty() => {}
            Ok(missing) => {
                self.alarmed.set(true);
                match self.out.json() {
                    true => self.out.tell_err(&JsonMissing::from(&missing)),
                    false => self.out.alarm(&missing::words(&missing), missing::HINT),
                }
            }
            Err(e) => {
                self.alarmed.set(true);
                let message = format!("the repository can't be compared with what this client has seen of it: {e}");
                self.out.trouble_with("history", &message);
            }
        }
    }

    /// What is done is perhaps not what was meant: whoever looks at nothing but the status shall notice.
    pub fn note_doubt(&self) {
        self.passed_over.set(true);
    }

    /// With what to exit: whoever looks at nothing else shall notice.
    pub fn outcome(&self, exit: Exit) -> Exit {
        let passes_over = |repository: &Repository| !repository.passed_over().is_empty();
        if self.opened.borrow().iter().any(passes_over) {
            self.passed_over.set(true);
        }
        match exit {
            Exit::Done | Exit::Incomplete if self.alarmed.get() => Exit::Unexplained,
            Exit::Done if self.passed_over.get() => Exit::Incomplete,
            other => other,
        }
    }

    /// Keep what was seen. Failing that, it is told, and nothing else suffers.
    fn keep(&self) {
        for memory in self.memories.take() {
            if let (Err(e), Some(path)) = (memory.save(), memory.path()) {
                let (path, why) = (path.display(), plain(&e));
                self.out.warn(format!("what is in the repository can't be remembered: cannot write '{path}': {why}"));
            }
        }
    }

    /// Tell once of what was damaged and could be read all the same, and of what could not be kept.
    fn tell_healed(&self) {
        for repository in self.opened.borrow().iter() {
            for (name, cause) in repository.passed_over() {
                self.out.caution(format!(
                    "index object '{name}' can't be read, and was passed over: {cause}. What only it names was not found; 'drumlin repair' makes that good"
                ));
            }
            if let Some(why) = repository.unkept() {
                let why = without_number(why);
                self.out.warn(format!(
                    "{why}; it goes without, and takes longer: each run reads the index anew until it can be kept"
                ));
            }
            let is_pack = |name: &String| [names::DATA, names::TREE].iter().any(|folder| name.starts_with(folder));
            let (packs, others): (Vec<_>, Vec<_>) = repository.healed().into_iter().partition(is_pack);
            if self.out.json() && !(packs.is_empty() && others.is_empty()) {
                self.out.tell_err(&JsonHealed { message_type: "healed", packs: &packs, copies: &others });
                continue;
            }
            for name in others {
                let advice = "nothing is lost yet, and 'drumlin repair' puts it again";
                self.out.warn(format!("'{name}' is damaged or gone, and its copy was read instead: {advice}"));
            }
            let Some(first) = packs.first() else { continue };
            let which = match packs.len() {
                1 => format!("pack '{first}' is damaged or gone, and was read through its parity or the index"),
                n => format!(
                    "{n} packs are damaged or gone, '{first}' among them, and were read through their parity or the index"
                ),
            };
            let advice = "what was read of that is whole, and 'drumlin repair --read-data' writes it anew";
            self.out.warn(format!("{which}: {advice}"));
        }
    }

    /// Let go of the repositories, and tell what is to be told of them at the end: what comes next may be an unmount.
    pub fn close(&self) {
        self.keep();
        self.tell_healed();
        self.outcome(Exit::Done);
        self.opened.borrow_mut().clear();
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
