//! Finding what unlocks a repository: flags, then the profile, then the environment, then the key file kept for it,
//! then a question on the terminal.

use crate::args::Global;
use crate::exit::{Exit, Failure, Result};
use crate::place;
use crate::profile::Profile;
use crate::question::Asking;
use crate::render::path::shown;
use drumlin_format::KeyId;
use drumlin_repo::{Error, Repository, Unlock};
use drumlin_store::Store;
use std::ffi::OsString;
use std::fs::File;
use std::io::{IsTerminal, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// A passphrase that is asked for may be mistyped so often.
const ATTEMPTS: usize = 3;

/// What the user gave to unlock with.
pub enum Given {
    /// A passphrase.
    Passphrase(Vec<u8>),
    /// The file of a key.
    KeyFile(PathBuf),
}

/// What the user gave, if anything.
///
/// # Errors
/// It can't be had, or it is ambiguous.
pub fn given(global: &Global, profile: Option<&Profile>) -> Result<Option<Given>> {
    let flags = Sources {
        password_file: global.password_file.clone(),
        password_command: global.password_command.clone().map(Into::into),
        key_file: global.key_file.clone(),
        password: None,
    };
    if let Some(given) = flags.resolve("on the command line")? {
        return Ok(Some(given));
    }
    if let Some(profile) = profile {
        let expand = |p: &Option<String>| p.as_deref().map(place::expand).transpose();
        let of_profile = Sources {
            password_file: expand(&profile.password_file)?,
            password_command: profile.password_command.clone().map(Into::into),
            key_file: expand(&profile.key_file)?,
            password: None,
        };
        if let Some(given) = of_profile.resolve("in the profile")? {
            return Ok(Some(given));
        }
    }
    Sources::environment("").resolve("in the environment")
}

/// What unlocks another repository than the one at hand, as options say.
pub struct Asked {
    /// A file whose first line is the passphrase.
    pub password_file: Option<PathBuf>,
    /// A command that writes the passphrase.
    pub password_command: Option<String>,
    /// A key file.
    pub key_file: Option<PathBuf>,
}

/// What the user gave for another repository, if anything: by options, or by variables with `name` in theirs.
///
/// # Errors
/// It can't be had, or it is ambiguous.
fn other(name: &str, asked: Asked) -> Result<Option<Given>> {
    let Asked { password_file, password_command, key_file } = asked;
    let flags = Sources { password_file, password_command: password_command.map(Into::into), key_file, password: None };
    match flags.resolve("on the command line for the other one")? {
        Some(given) => Ok(Some(given)),
        None => Sources::environment(&format!("{name}_")).resolve("in the environment for the other one"),
    }
}

struct Sources {
    password_file: Option<PathBuf>,
    password_command: Option<OsString>,
    key_file: Option<PathBuf>,
    password: Option<OsString>,
}

impl Sources {
    /// What the environment's variables for the repository of this name say.
    fn environment(name: &str) -> Self {
        let variable = |what: &str| std::env::var_os(format!("DRUMLIN_{name}{what}")).filter(|v| !v.is_empty());
        Sources {
            password_file: variable("PASSWORD_FILE").map(Into::into),
            password_command: variable("PASSWORD_COMMAND"),
            key_file: variable("KEY_FILE").map(Into::into),
            password: variable("PASSWORD"),
        }
    }

    fn resolve(self, place: &str) -> Result<Option<Given>> {
        let Sources { password_file, password_command, key_file, password } = self;
        let given = [password_file.is_some(), password_command.is_some(), key_file.is_some(), password.is_some()];
        if given.into_iter().filter(|g| *g).count() > 1 {
            return Err(Failure::usage(format!(
                "more than one way to unlock the repository is given {place}; give only one of passphrase, file, command and key file"
            )));
        }
        if let Some(path) = key_file {
            return Ok(Some(Given::KeyFile(path)));
        }
        let passphrase = match (password_file, password_command, password) {
            (Some(path), _, _) => passphrase_file(&path)?,
            (_, Some(command), _) => {
                let whence = || format!("what '{}' prints", shown(command.as_bytes()));
                not_empty(first_line(output(&command)?), whence)?
            }
            (_, _, Some(password)) => not_empty(password.into_vec(), || format!("it is given {place}"))?,
            _ => return Ok(None),
        };
        Ok(Some(Given::Passphrase(passphrase)))
    }
}

/// Where a passphrase is from that was asked for.
const TYPED: &str = "nothing was typed";

fn not_empty(passphrase: Vec<u8>, whence: impl Fn() -> String) -> Result<Vec<u8>> {
    match passphrase.is_empty() {
        true => Err(Failure::new(Exit::WrongKey, format!("the passphrase is empty: {}", whence()))),
        false => Ok(passphrase),
    }
}

/// A passphrase ends with its line.
fn first_line(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(end) = bytes.iter().position(|b| *b == b'\n') {
        bytes.truncate(end);
    }
    if bytes.last() == Some(&b'\r') {
        bytes.pop();
    }
    bytes
}

/// What is as long is no passphrase, with whatever comes behind it: a device, a program that goes on and on.
const PASSPHRASE_BYTES_MAX: u64 = 1 << 20;

/// Read it, if it is no longer than that.
fn read_short(from: impl Read) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(PASSPHRASE_BYTES_MAX).read_to_end(&mut bytes)?;
    match bytes.len() as u64 == PASSPHRASE_BYTES_MAX {
        true => Err(std::io::Error::other("it is longer than any passphrase, 1 MiB and more")),
        false => Ok(bytes),
    }
}

fn output(command: &OsString) -> Result<Vec<u8>> {
    let shown = command.to_string_lossy();
    let failed = |e| Failure::failed(format!("cannot run the passphrase command '{shown}': {e}"));
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(command).stdin(Stdio::inherit()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = shell.spawn().map_err(failed)?;
    // With its end closed, what writes to it ends.
    let read = child.stdout.take().map_or_else(|| Ok(Vec::new()), read_short);
    if read.is_err() {
        let _ = child.kill();
    }
    let status = child.wait().map_err(failed)?;
    let bytes =
        read.map_err(|e| Failure::failed(format!("cannot read what the passphrase command '{shown}' wrote: {e}")))?;
    if !status.success() {
        return Err(Failure::failed(format!("the passphrase command '{shown}' failed: {status}")));
    }
    Ok(bytes)
}

/// The passphrase of a new key from `file`.
///
/// # Errors
/// It can't be read, or is empty.
pub fn passphrase_file(path: &Path) -> Result<Vec<u8>> {
    let bytes = File::open(path).and_then(read_short).map_err(Failure::file("read the passphrase from", path))?;
    not_empty(first_line(bytes), || format!("the first line of '{}'", path.display()))
}

/// Whether there is a terminal to ask on.
pub fn can_ask() -> bool {
    std::io::stdin().is_terminal() || std::io::stderr().is_terminal()
}

/// Ask for something that isn't shown.
///
/// # Errors
/// It can't be asked for, or the user ends the program.
pub fn ask(prompt: &str) -> Result<Vec<u8>> {
    answer(&Asking::begin(), prompt)
}

fn answer(asking: &Asking, prompt: &str) -> Result<Vec<u8>> {
    let failed = |e| Failure::failed(format!("cannot ask for the passphrase: {}", crate::exit::plain(&e)));
    asking.answer(prompt).map_err(failed)
}

/// Ask for a new passphrase, twice.
///
/// # Errors
/// There is no terminal to ask on, or the two differ too often. `hint` says how else it can be given.
pub fn ask_new(hint: &str) -> Result<Vec<u8>> {
    if !can_ask() {
        return Err(Failure::usage("a new key needs a passphrase, and there is no terminal to ask for one").hint(hint));
    }
    let asking = Asking::begin();
    for _ in 0..ATTEMPTS {
        let first = not_empty(answer(&asking, "new passphrase: ")?, || TYPED.into())?;
        if first == answer(&asking, "the same again: ")? {
            return Ok(first);
        }
        eprintln!("the two differ");
    }
    Err(Failure::failed("the two passphrases differed each time"))
}

/// Open the repository in `store` with what the user gave, with the key file kept for it, or with what they type.
///
/// # Errors
/// There is no repository, no key for it, or the key doesn't fit.
pub fn open(store: Arc<dyn Store>, given: Option<Given>) -> Result<Repository> {
    open_as(store, given, "give --password-file or --key-file, or set DRUMLIN_PASSWORD or DRUMLIN_KEY_FILE")
}

/// The same of another repository than the one that is worked on: `name` is in the names of options and variables for
/// it.
///
/// # Errors
/// As [`open`].
pub fn open_other(store: Arc<dyn Store>, name: &str, asked: Asked) -> Result<Repository> {
    let option = name.to_lowercase();
    let hint = format!(
        "give --{option}-password-file or --{option}-key-file, or set DRUMLIN_{name}_PASSWORD or DRUMLIN_{name}_KEY_FILE"
    );
    open_as(store, other(name, asked)?, &hint)
}

/// `hint` says how to name what unlocks it.
fn open_as(store: Arc<dyn Store>, given: Option<Given>, hint: &str) -> Result<Repository> {
    match given {
        Some(Given::Passphrase(passphrase)) => return Ok(Repository::open(store, &Unlock::Passphrase(passphrase))?),
        Some(Given::KeyFile(path)) => return by_file(store, &path, "read the key file"),
        None => {}
    }
    // Before anything is asked: a place without a repository is told at once.
    let config = Repository::read_config(&*store)?;
    let kept = place::key_file(&config.id);
    if let Some(kept) = kept.as_ref().ok().filter(|kept| kept.exists()) {
        return by_file(store, kept, "read the key file kept for this repository,");
    }
    if !can_ask() {
        let none = |kept: PathBuf| format!(", and none is kept in '{}'", shown(kept.as_os_str().as_bytes()));
        let kept = kept.map(none);
        let message = format!(
            "no passphrase or key file is given for the repository in {}{}",
            store.location(),
            kept.unwrap_or_default()
        );
        return Err(Failure::new(Exit::WrongKey, message).hint(hint));
    }
    let mut attempt = 1;
    loop {
        let passphrase = ask(&format!("passphrase for the repository in {}: ", store.location()))?;
        let passphrase = not_empty(passphrase, || TYPED.into())?;
        match Repository::open(store.clone(), &Unlock::Passphrase(passphrase)) {
            Err(Error::WrongKey { .. }) if attempt < ATTEMPTS => eprintln!("wrong passphrase; try again"),
            opened => return Ok(opened?),
        }
        attempt += 1;
    }
}

/// Which key's object will be read, if the user has given a regular file of that key.
pub fn key_at_hand(global: &Global, profile: Option<&Profile>) -> Option<KeyId> {
    // As `given` has it: what is said first counts, and a passphrase is of no key that is known before.
    let is_any = |given: bool| given.then_some(None);
    let of_line = || {
        let key = global.key_file.clone().map(Some);
        key.or_else(|| is_any(global.password_file.is_some() || global.password_command.is_some()))
    };
    let of_profile = || {
        let profile = profile?;
        let key = profile.key_file.as_deref().map(|path| place::expand(path).ok());
        key.or_else(|| is_any(profile.password_file.is_some() || profile.password_command.is_some()))
    };
    let of_environment =
        || std::env::var_os("DRUMLIN_KEY_FILE").filter(|path| !path.is_empty()).map(|path| Some(path.into()));
    let path: PathBuf = of_line().or_else(of_profile).or_else(of_environment)??;
    // What isn't one, a pipe for instance, may be read but once.
    let text = path.metadata().ok().filter(|meta| meta.is_file()).and_then(|_| read_key_file(&path).ok())?;
    Unlock::File(text).key()
}

fn read_key_file(path: &Path) -> std::io::Result<String> {
    // A key file has a few lines: what is much longer is something else, and isn't read to its end.
    const KEY_FILE_BYTES_MAX: u64 = 1 << 20;
    let mut text = String::new();
    std::fs::File::open(path)?.take(KEY_FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

fn by_file(store: Arc<dyn Store>, path: &Path, action: &'static str) -> Result<Repository> {
    let text = read_key_file(path).map_err(Failure::file(action, path))?;
    Repository::open(store, &Unlock::File(text)).map_err(|e| {
        let failure = Failure::from(e);
        match failure.exit {
            Exit::WrongKey => {
                Failure { message: format!("{} (key file {})", failure.message, path.display()), ..failure }
            }
            _ => failure,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_passphrase_is_one_line_as_it_stands() {
        for (file, passphrase) in [("a b ", "a b "), ("a\n", "a"), ("a\r\nb\n", "a"), ("\n", ""), ("", "")] {
            assert_eq!(first_line(file.into()), passphrase.as_bytes());
        }
        assert!(not_empty(Vec::new(), String::new).is_err());
    }

    #[test]
    fn two_ways_at_once_are_refused() {
        let global = Global { password_file: Some("/x".into()), key_file: Some("/y".into()), ..Global::default() };
        assert_eq!(given(&global, None).err().map(|f| f.exit), Some(Exit::Usage));
    }
}
