//! `key`: who may do what.

use super::init::{create_secret, write_secret};
use crate::args::key::{Action, Add, Export, Key, NewLock as LockArgs, Passwd, Rekey, Remove};
use crate::context::Context;
use crate::exit::{Exit, Failure, Result};
use crate::process::{host_name, user_name};
use crate::render::path::{JsonPath, shown};
use crate::render::table::Table;
use crate::render::time::{local, now, rfc3339};
use crate::{place, unlock};
use drumlin_format::KeyId;
use drumlin_format::key::Role;
use drumlin_format::key_file::KeyFile;
use drumlin_repo::collection::{Board, Desk};
use drumlin_repo::{Error as RepoError, KeyInfo, Keys, NewLock, RekeyOptions, Rekeyed, Repository, random_secret};
use drumlin_seal::{PassphraseCost, Secret};
use serde::Serialize;
use std::fs::File;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// So many digits of an id tell keys apart.
const SHORT: usize = 8;

/// Run it.
///
/// # Errors
/// The key in use may not do it, or it can't be done.
pub fn run(context: &Context, args: &Key) -> Result<Exit> {
    match &args.action {
        Action::List => return list(context),
        Action::Add(args) => add(context, args)?,
        Action::Remove(args) => remove(context, args)?,
        Action::Passwd(args) => passwd(context, args)?,
        Action::Rekey(args) => rekey(context, args)?,
        Action::Export(args) => export(context, args)?,
    }
    Ok(Exit::Done)
}

#[derive(Serialize)]
struct JsonKey<'a> {
    message_type: &'static str,
    id: String,
    role: &'static str,
    label: &'a str,
    created: String,
    lock: &'static str,
    current: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    revoked: Option<String>,
}

/// What opens a key, in a word.
fn lock_word(key: &KeyInfo) -> &'static str {
    match (key.revoked, key.passphrase) {
        (Some(_), _) => "none",
        (None, true) => "passphrase",
        (None, false) => "key file",
    }
}

fn list(context: &Context) -> Result<Exit> {
    let Keys { sound: keys, lost } = context.open_to_ask(Repository::keys)??;
    let out = context.out;
    if out.json() {
        keys.iter().try_for_each(|key| {
            out.object(&JsonKey {
                message_type: "key",
                id: key.id.to_string(),
                role: key.role.name(),
                label: &key.label,
                created: rfc3339((key.created, 0)),
                lock: lock_word(key),
                current: key.current,
                revoked: key.revoked.map(|t| rfc3339((t, 0))),
            })
        })?;
    } else {
        table(&keys).lines().into_iter().try_for_each(|l| out.line(l))?;
    }
    for (_, e) in &lost {
        out.trouble_with("key list", &e.to_string());
    }
    Ok(if lost.is_empty() { Exit::Done } else { Exit::Incomplete })
}

fn table(keys: &[KeyInfo]) -> Table {
    let mut table = Table::new(&["", "ID", "Role", "Opened by", "Made", "Label"]);
    for key in keys {
        let lock = match key.revoked {
            Some(time) => format!("nothing: removed {}", local((time, 0))),
            None => lock_word(key).to_owned(),
        };
        table.row(vec![
            if key.current { "*" } else { "" }.into(),
            key.id.to_string()[..SHORT].to_owned(),
            key.role.name().into(),
            lock,
            local((key.created, 0)),
            shown(key.label.as_bytes()).into_owned(),
        ]);
    }
    table
}

/// A new lock, and the file that its key goes to.
struct Fresh {
    lock: NewLock,
    file: Option<(PathBuf, File, Secret)>,
}

impl Fresh {
    fn new(args: &LockArgs) -> Result<Self> {
        if let Some(path) = &args.new_key_file {
            let (file, secret) = (create_secret(path)?, random_secret()?);
            return Ok(Fresh { lock: NewLock::File(secret.clone()), file: Some((path.clone(), file, secret)) });
        }
        let passphrase = match &args.new_password_file {
            Some(path) => unlock::passphrase_file(path)?,
            None => unlock::ask_new(
                "give --new-password-file, or --new-key-file to have a random key written to a new file",
            )?,
        };
        Ok(Fresh { lock: NewLock::Passphrase(passphrase, PassphraseCost::DEFAULT), file: None })
    }

    /// Write the file of `key`, if it is one.
    fn save(&self, repository: &Repository, key: KeyId) -> Result<()> {
        match &self.file {
            Some((path, file, secret)) => write_secret(path, file, &repository.key_file(key, secret)),
            None => Ok(()),
        }
    }

    /// It opens nothing: away with its file.
    fn discard(&self) {
        if let Some((path, _, _)) = &self.file {
            let _ = std::fs::remove_file(path);
        }
    }
}

#[derive(Serialize)]
struct JsonAdded<'a> {
    message_type: &'static str,
    id: String,
    role: &'static str,
    label: &'a str,
}

fn add(context: &Context, args: &Add) -> Result<()> {
    let repository = context.open()?;
    let label = args.label.clone().unwrap_or_else(|| format!("{}@{}", user_name(), host_name()));
    let role = args.role.into();
    let fresh = Fresh::new(&args.lock)?;
    let id = repository.add_key(role, &fresh.lock, &label, now().0).inspect_err(|_| fresh.discard())?;
    if let Err(failure) = fresh.save(&repository, id) {
        // Nobody has what it is opened with.
        let _ = repository.remove_key(id, now().0);
        fresh.discard();
        return Err(failure);
    }
    if context.out.json() {
        return context.out.object(&JsonAdded {
            message_type: "key_added",
            id: id.to_string(),
            role: role.name(),
            label: &label,
        });
    }
    context.out.note(format!("added {} key {}", role.name(), &id.to_string()[..SHORT]));
    if let Some(path) = &args.lock.new_key_file {
        context.out.note(format!("it is in {}: hand it over in a way that nobody else can read", path.display()));
    }
    Ok(())
}

fn remove(context: &Context, args: &Remove) -> Result<()> {
    let repository = context.open()?;
    let Keys { sound, lost } = repository.keys()?;
    // Of one that is lost nobody knows whose it was.
    let known = sound.iter().map(|key| (key.id, Some(key.role)));
    let all = known.chain(lost.iter().map(|(id, _)| (*id, None)));
    let fits: Vec<_> = all.filter(|(id, _)| id.to_string().starts_with(&args.id)).collect();
    let (id, role) = match (args.id.is_empty(), &fits[..]) {
        (false, [one]) => *one,
        (false, [_, _, ..]) => {
            return Err(Failure::failed(format!("'{}' is the start of several keys' ids", args.id)));
        }
        _ => {
            return Err(Failure::failed(format!("there is no key whose id starts with '{}'", args.id))
                .hint("'drumlin key list' lists the keys"));
        }
    };
    repository.remove_key(id, now().0)?;
    let short = &id.to_string()[..SHORT];
    let Some(role) = role else {
        context.out.note(format!("removed what was left of key {short}, which no longer opened anything"));
        return Ok(());
    };
    context.out.note(format!("removed {} key {short}", role.name()));
    context.out.note("Whoever had this key may have kept copies of its secrets; removing it doesn't undo that.");
    context
        .out
        .note("'drumlin key rekey' gives the repository new secrets, which protect what is written from then on.");
    Ok(())
}

#[derive(Serialize)]
struct JsonRekeyed<'a> {
    message_type: &'static str,
    generation: u32,
    keys: Vec<JsonGiven<'a>>,
    removed: Vec<JsonGiven<'a>>,
    open_sessions: Vec<JsonSession>,
}

#[derive(Serialize)]
struct JsonGiven<'a> {
    id: String,
    role: &'static str,
    label: &'a str,
}

#[derive(Serialize)]
struct JsonSession {
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    purpose: Option<String>,
}

fn rekey(context: &Context, args: &Rekey) -> Result<()> {
    let repository = context.open_to_remove()?;
    let done = repository.rekey(RekeyOptions { now: now().0, remove_old: args.remove_old })?;
    // It is done, whatever can't be told of it.
    let sessions = open_sessions(&done.repository).unwrap_or_default();
    let removed_owner = done.repository.list_keys()?.iter().any(|k| k.role == Role::Owner && k.revoked.is_some());
    if context.out.json() {
        let given = |k| -> Vec<JsonGiven<'_>> { named(k) };
        return context.out.object(&JsonRekeyed {
            message_type: "rekeyed",
            generation: done.number,
            keys: given(&done.given),
            removed: given(&done.removed),
            open_sessions: sessions,
        });
    }
    told(&done, &sessions).into_iter().for_each(|line| context.out.note(line));
    if removed_owner {
        context.out.warn(
            "an owner's key was removed from this repository earlier: whoever still has a copy of it can sign new keys and new \
             secrets; if it was stolen, copy everything to a new repository instead",
        );
    }
    Ok(())
}

fn named(keys: &[KeyInfo]) -> Vec<JsonGiven<'_>> {
    keys.iter().map(|k| JsonGiven { id: k.id.to_string(), role: k.role.name(), label: &k.label }).collect()
}

/// Who is at work, with the older secrets.
fn open_sessions(repository: &Repository) -> drumlin_repo::Result<Vec<JsonSession>> {
    let desk = Desk::new(repository);
    let mut sessions = Vec::new();
    for id in desk.sessions()? {
        // What can't be told of it is no reason not to name it.
        if desk.is_over(id).unwrap_or(false) {
            continue;
        }
        let of = desk.session(id)?;
        let (host, purpose) = of.map_or((None, None), |of| (Some(of.host), Some(of.purpose)));
        sessions.push(JsonSession { id: id.to_string(), host, purpose });
    }
    Ok(sessions)
}

fn told(done: &Rekeyed, sessions: &[JsonSession]) -> Vec<String> {
    let word =
        |k: &KeyInfo| format!("{} key {} ({})", k.role.name(), &k.id.to_string()[..SHORT], shown(k.label.as_bytes()));
    let mut lines =
        vec![format!("the repository has new secrets (generation {}), and these keys have them:", done.number)];
    lines.extend(done.given.iter().map(|k| format!("  {}", word(k))));
    if !done.removed.is_empty() {
        lines.push("removed, because the version that made them is too old; add new ones to replace them:".into());
        lines.extend(done.removed.iter().map(|k| format!("  {}", word(k))));
    }
    for session in sessions {
        let host = session.host.as_deref().unwrap_or("?");
        let purpose = session.purpose.as_deref().unwrap_or("run");
        let host = shown(host.as_bytes());
        lines.push(format!(
            "a {purpose} of host '{host}' is at work (session {}): it uses the old secrets until it ends",
            session.id
        ));
    }
    lines.push(
        "What is stored already can be read with the old secrets until it is re-encrypted: each 'drumlin prune' does a part,"
            .into(),
    );
    lines.push("and 'drumlin stats' shows how much is left.".into());
    lines
}

fn passwd(context: &Context, args: &Passwd) -> Result<()> {
    let repository = context.open()?;
    let key = repository.secrets().key;
    let fresh = Fresh::new(&args.lock)?;
    // The file is there before anything depends on it.
    fresh.save(&repository, key).inspect_err(|_| fresh.discard())?;
    let relocked = match repository.lacks_its_key() && repository.secrets().owner_signing.is_some() {
        true => repository.remake_key(&fresh.lock, &format!("{}@{}", user_name(), host_name()), now().0),
        false => repository.relock(&fresh.lock),
    };
    relocked.map_err(|e| match (&args.lock.new_key_file, e) {
        // It may have happened all the same: then the file is all there is.
        (Some(path), e @ RepoError::Store(_)) => {
            Failure::from(e).hint(format!("keep {} until you know which key opens the repository", path.display()))
        }
        (_, e) => {
            fresh.discard();
            e.into()
        }
    })?;
    context.out.note(match &args.lock.new_key_file {
        Some(path) => {
            format!(
                "from now on the key in {} opens the repository, and what opened it before no longer does",
                path.display()
            )
        }
        None => "from now on the new passphrase opens the repository, and what opened it before no longer does".into(),
    });
    if let Ok(kept) = place::key_file(&repository.config().id)
        && is_file_of(&kept, key)
        && !args.lock.new_key_file.as_ref().is_some_and(|new| same_file(new, &kept))
    {
        std::fs::remove_file(&kept).map_err(Failure::file("delete", &kept))?;
        context.out.note(format!("deleted {}, which no longer opens anything", kept.display()));
    }
    Ok(())
}

fn is_file_of(path: &Path, key: KeyId) -> bool {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    KeyFile::decode(&text).is_ok_and(|file| file.key == key)
}

fn same_file(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        // In doubt it is: what is deleted can't be had back.
        _ => true,
    }
}

#[derive(Serialize)]
struct JsonRecovery<'a> {
    message_type: &'static str,
    role: &'static str,
    /// The file that it went to.
    #[serde(flatten)]
    path: Option<JsonPath<'a>>,
    /// If it went to none.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
}

fn export(context: &Context, args: &Export) -> Result<()> {
    let repository = context.open_to_read()?;
    let text = repository.recovery_file();
    let told = JsonRecovery {
        message_type: "recovery",
        role: repository.role().name(),
        path: args.file.as_ref().map(|path| path.as_os_str().as_bytes().into()),
        text: args.file.is_none().then_some(&text),
    };
    match &args.file {
        Some(path) => {
            let file = create_secret(path)?;
            write_secret(path, &file, &text)?;
            if context.out.json() {
                return context.out.object(&told);
            }
            context.out.note(format!(
                "wrote a recovery file of the {} key to {}",
                repository.role().name(),
                path.display()
            ));
            context.out.note(
                "Whoever has that file can open the repository: keep it in a safe place, and not only on this machine.",
            );
        }
        None if context.out.json() => context.out.object(&told)?,
        None => {
            if std::io::stdout().is_terminal() {
                context.out.warn("whoever sees the following lines can open the repository");
            }
            text.lines().try_for_each(|l| context.out.line(l))?;
        }
    }
    Ok(())
}
