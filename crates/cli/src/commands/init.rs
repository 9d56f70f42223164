//! `init`: a new repository, and the key of its owner.

use crate::args::init::Init;
use crate::context::{Context, Place};
use crate::exit::{Exit, Failure, Result, tilde};
use crate::place::{self, sync_folder};
use crate::process::{host_name, user_name};
use crate::render::time;
use crate::unlock::{self, Asked, Given};
use drumlin_repo::{CreateOptions, NewLock, NewRepository, NotMade, Repository, random_id, random_secret};
use drumlin_seal::{PassphraseCost, Secret};
use drumlin_store::{Kind, LocalStore, Location, ReadOnlyStore, Store};
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A secret's text is no longer than this.
const SECRET_BYTES_MAX: usize = 4096;

const HOW_TO_GIVE: &str = "give --password-file, or --key-file to have a random key written to a new file";

/// What was made.
pub struct Made {
    /// The repository.
    pub repository: Repository,
    /// Where its key is, if that is a file.
    pub key_file: Option<PathBuf>,
}

#[derive(Serialize)]
struct Initialized<'a> {
    message_type: &'static str,
    id: String,
    repository: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_file: Option<String>,
}

/// Run it.
///
/// # Errors
/// There is a repository already, or it can't be made.
pub fn run(context: &Context, args: &Init) -> Result<Exit> {
    let given = unlock::given(&context.global, context.profile.as_ref())?;
    let like = args.cut_like.as_deref().map(|location| cut_like(context, location, args)).transpose()?;
    let made = match context.place()? {
        Place::Default(path) => make(&path, given, like.as_ref())?,
        Place::Named(location) => {
            let given = match given {
                Some(given) => given,
                None => {
                    refuse_early(context, &location)?;
                    Given::Passphrase(unlock::ask_new(HOW_TO_GIVE)?)
                }
            };
            // The key's file first, and whole: a repository whose key is nowhere is of no use to anybody.
            let key = NewKey::new(Some(given))?;
            let drawn = drumlin_store::create(&location, &context.around())
                .map_err(|e| not_made(context, &location, e))
                .and_then(|store| key.draw(Arc::from(store), like.as_ref()))
                .and_then(|new| Ok((key.save(&new)?, new)));
            let (key_file, new) = drawn.inspect_err(|_| key.discard())?;
            let repository = new.make().map_err(|not| key.not_needed(not))?;
            Made { key_file, repository }
        }
    };
    made.report(context)?;
    Ok(Exit::Done)
}

/// The repository whose cuts are taken over.
fn cut_like(context: &Context, location: &str, args: &Init) -> Result<Repository> {
    let store = ReadOnlyStore::new(drumlin_store::open(&Location::parse(location)?, &context.around())?);
    let asked = Asked {
        password_file: args.like_password_file.clone(),
        password_command: args.like_password_command.clone(),
        key_file: args.like_key_file.clone(),
    };
    let like = unlock::open_other(Arc::new(store), "LIKE", asked)?;
    // A reader doesn't know where files are cut.
    like.cut_secret()?;
    Ok(like)
}

/// A store that can't be made, in words for the one who wanted it.
fn not_made(context: &Context, location: &Location, error: drumlin_store::Error) -> Failure {
    match error.kind {
        Kind::Exists if is_repository(context, location) => {
            drumlin_repo::Error::Exists { location: error.location }.into()
        }
        Kind::Missing if error.action != drumlin_store::Action::FindBucket => {
            let message = format!("cannot make a repository in {}: the folder above it does not exist", error.location);
            let usual = "make that folder first, or mount what should be there";
            Failure::failed(message).hint(tilde(&error.location).unwrap_or(usual))
        }
        Kind::Full => full(&error),
        _ => error.into(),
    }
}

/// Before anybody thinks of a passphrase: what can be seen on this machine to be in the way.
fn refuse_early(context: &Context, location: &Location) -> Result<()> {
    let Location::Local(path) = location else { return Ok(()) };
    let shown = path.display().to_string();
    if is_repository(context, location) {
        return Err(drumlin_repo::Error::Exists { location: shown }.into());
    }
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // One that may not be looked into may be there.
    match path.try_exists().unwrap_or(true) || above.try_exists().unwrap_or(true) {
        true => Ok(()),
        false => Err(not_made(
            context,
            location,
            drumlin_store::Error::because(Kind::Missing, drumlin_store::Action::Create, "", &shown, ""),
        )),
    }
}

/// Nothing was stored that a prune could free.
fn full(error: &drumlin_store::Error) -> Failure {
    Failure::failed(error.to_string()).hint(format!("make room on the storage of {}, and run it again", error.location))
}

/// A repository that could not be put into the storage.
fn not_put(error: drumlin_repo::Error) -> Failure {
    match error {
        drumlin_repo::Error::Store(e) if e.kind == Kind::Full => full(&e),
        e => e.into(),
    }
}

fn is_repository(context: &Context, location: &Location) -> bool {
    drumlin_store::open(location, &context.around()).is_ok_and(|store| Repository::read_config(&*store).is_ok())
}

impl Made {
    /// Say where everything is.
    pub fn report(&self, context: &Context) -> Result<()> {
        let location = self.repository.store().location();
        let id = self.repository.config().id.to_string();
        let out = context.out;
        if out.json() {
            let key_file = self.key_file.as_ref().map(|p| p.display().to_string());
            return out.object(&Initialized { message_type: "initialized", id, repository: &location, key_file });
        }
        out.note(format!("made repository {} in {location}", &id[..8]));
        match &self.key_file {
            Some(path) => {
                out.note(format!("its key is in {}", path.display()));
                out.note("Without that key nobody can ever read this repository, and it is on this machine alone:");
                out.note(format!("'{} key export FILE' writes a copy for a safe place.", self.command(context, path)?));
            }
            None => out.note("Without the passphrase nobody can ever read this repository: don't lose it."),
        }
        Ok(())
    }
}

impl Made {
    /// What opens this repository, and none that is used by default.
    fn command(&self, context: &Context, key_file: &Path) -> Result<String> {
        let word = |word: &str| match word.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-:@+,=".contains(&b)) {
            true => word.to_owned(),
            false => format!("'{}'", word.replace('\'', r"'\''")),
        };
        Ok(match (&context.global.profile, context.place()?) {
            (Some(profile), _) => {
                let file = context.global.config.as_ref();
                let file = file.map(|file| format!(" --config {}", word(&file.display().to_string())));
                format!("drumlin{} --profile {}", file.unwrap_or_default(), word(profile))
            }
            (None, Place::Default(_)) => "drumlin".into(),
            (None, Place::Named(_)) => {
                let place = word(&self.repository.store().location());
                format!("drumlin -r {place} --key-file {}", word(&key_file.display().to_string()))
            }
        })
    }

    /// Say of one that nobody asked for where it is, though nothing but errors is to be told.
    pub fn insist(&self, context: &Context) {
        let location = self.repository.store().location();
        let key = match &self.key_file {
            Some(path) => format!("without the key in {} nobody can ever read it", path.display()),
            None => "without the passphrase nobody can ever read it".into(),
        };
        context.out.insist(format!("no repository was named: a new one was made in {location}, and {key}"));
    }
}

/// Make the repository that is used when none is named, with a key file kept for it unless something else is given.
///
/// It is made beside its place and moved there once its key is safe, so that whatever happens there is never a
/// repository without its key. If somebody else was faster, theirs stays.
///
/// # Errors
/// There is one already, or it can't be made.
pub fn make_default(path: &Path, given: Option<Given>) -> Result<Made> {
    make(path, given, None)
}

fn make(path: &Path, given: Option<Given>, like: Option<&Repository>) -> Result<Made> {
    let exists = || Failure::from(drumlin_repo::Error::Exists { location: path.display().to_string() });
    if path.exists() {
        return Err(exists());
    }
    let parent = path.parent().unwrap_or(Path::new("/"));
    place::make_lasting_folder(parent)?;
    let beside = parent.join(format!("repository.new-{}", hex(&random_id()?)));
    let again = match &given {
        Some(Given::Passphrase(passphrase)) => Some(Given::Passphrase(passphrase.clone())),
        _ => None,
    };
    let key = NewKey::new(given)?;
    let made = (|| {
        let new = key.draw(Arc::new(LocalStore::create(&beside)?), like)?;
        let key_file = key.save(&new)?;
        let moved = new.make().map_err(|not| not_put(not.error)).and_then(|_| {
            // A folder that isn't empty: there is no telling whose it is, so it stays.
            let failed = |e| if path.exists() { exists() } else { Failure::file("make", path)(e) };
            std::fs::rename(&beside, path).map_err(failed)
        });
        if moved.is_err() {
            key_file.iter().for_each(|k| drop(std::fs::remove_file(k)));
        }
        moved.map(|()| key_file)
    })();
    if made.is_err() {
        key.discard();
        let _ = std::fs::remove_dir_all(&beside);
    }
    let key_file = made?;
    sync_folder(parent)?;
    let store: Arc<dyn Store> = Arc::new(LocalStore::open(path)?);
    let repository = unlock::open(store, again.or(key_file.clone().map(Given::KeyFile)))?;
    Ok(Made { repository, key_file })
}

/// A key to come, and where it is kept.
enum NewKey {
    /// A passphrase: in the user's head, or wherever they got it from.
    Passphrase(Vec<u8>),
    /// In a new file, made already.
    File(PathBuf, File, Secret),
    /// In the folder of key files, under the repository's id.
    Kept(Secret),
}

impl NewKey {
    fn new(given: Option<Given>) -> Result<Self> {
        Ok(match given {
            Some(Given::Passphrase(passphrase)) => NewKey::Passphrase(passphrase),
            Some(Given::KeyFile(path)) => {
                let file = create_secret(&path)?;
                NewKey::File(path, file, random_secret()?)
            }
            None => NewKey::Kept(random_secret()?),
        })
    }

    fn lock(&self) -> NewLock {
        match self {
            NewKey::Passphrase(passphrase) => NewLock::Passphrase(passphrase.clone(), PassphraseCost::DEFAULT),
            NewKey::File(_, _, secret) | NewKey::Kept(secret) => NewLock::File(secret.clone()),
        }
    }

    /// The repository that it is to open.
    fn draw(&self, store: Arc<dyn Store>, like: Option<&Repository>) -> Result<NewRepository> {
        let label = format!("{}@{}", user_name(), host_name());
        let (options, lock, now) = (CreateOptions::default(), self.lock(), time::now().0);
        let drawn = match like {
            Some(like) => NewRepository::draw_like(store, like, options, &lock, &label, now),
            None => NewRepository::draw(store, options, &lock, &label, now),
        };
        drawn.map_err(not_put)
    }

    /// Keep it, durably, before anything is there that it alone opens. Gives the file.
    fn save(&self, new: &NewRepository) -> Result<Option<PathBuf>> {
        let text = |secret| new.repository().key_file(new.key(), secret);
        match self {
            NewKey::Passphrase(_) => Ok(None),
            NewKey::File(path, file, secret) => {
                write_secret(path, file, &text(secret))?;
                Ok(Some(path.clone()))
            }
            NewKey::Kept(secret) => {
                place::make_lasting_folder(&place::keys()?)?;
                let path = place::key_file(&new.repository().config().id)?;
                write_secret(&path, &create_secret(&path)?, &text(secret))?;
                Ok(Some(path))
            }
        }
    }

    /// The repository could not be put into the storage. Where nobody knows whether it is there all the same, the key
    /// stays.
    fn not_needed(&self, not: NotMade) -> Failure {
        let failure = not_put(not.error);
        match self {
            NewKey::File(path, ..) if not.is_unsure => failure.hint(format!(
                "the repository may be there all the same, so its key stays in '{}'; if it isn't, remove that file and run it again",
                path.display()
            )),
            _ => {
                self.discard();
                failure
            }
        }
    }

    /// There is nothing that it could open.
    fn discard(&self) {
        if let NewKey::File(path, _, _) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A new file for its owner's eyes only, with room for a secret's text: a disk that is full shows before anything is
/// made that only this secret opens.
///
/// # Errors
/// It can't be made; a file that is there is never overwritten.
pub fn create_secret(path: &Path) -> Result<File> {
    // The program's own folder of settings need not be there yet.
    if let (Some(folder), Ok(keys)) = (path.parent(), place::keys())
        && keys.parent().is_some_and(|own| folder.starts_with(own))
    {
        place::make_lasting_folder(folder)?;
    }
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let file = created.map_err(Failure::file("make the new file", path))?;
    let room = file.write_all_at(&[b'\n'; SECRET_BYTES_MAX], 0).and_then(|()| file.sync_data());
    match room {
        Ok(()) => Ok(file),
        Err(e) => {
            let _ = std::fs::remove_file(path);
            Err(Failure::file("make the new file", path)(e))
        }
    }
}

/// Write a secret's text to its new file, durably.
///
/// # Errors
/// The system's.
pub fn write_secret(path: &Path, file: &File, text: &str) -> Result<()> {
    let written = file.write_all_at(text.as_bytes(), 0).and_then(|()| file.set_len(text.len() as u64));
    written.and_then(|()| file.sync_all()).map_err(Failure::file("write", path))?;
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_folder(parent),
        _ => sync_folder(Path::new(".")),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_repo::names;
    use drumlin_store::{Action, Error};

    /// A line that breaks may have carried what makes a repository: then its key is all that opens it.
    #[test]
    fn a_key_goes_only_where_there_is_surely_nothing_for_it() {
        let folder = tempfile::tempdir().unwrap();
        for (kind, stays) in [(Kind::Transient, true), (Kind::Full, true), (Kind::Full, false), (Kind::Exists, false)] {
            let path = folder.path().join(format!("{kind:?}, {stays}"));
            let key = NewKey::new(Some(Given::KeyFile(path.clone()))).unwrap();
            let failed = Error::because(kind, Action::Write, names::CONFIG, "there", "no reason");
            let failure = key.not_needed(NotMade { error: failed.into(), is_unsure: stays });
            assert_eq!(path.exists(), stays, "{kind:?}");
            assert_eq!(failure.hint.is_some_and(|hint| hint.contains(&*path.to_string_lossy())), stays, "{kind:?}");
        }
    }
}
