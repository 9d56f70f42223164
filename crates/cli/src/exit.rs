//! How a command ends: exit statuses, and errors turned into a message, a hint and a status.
//!
//! The libraries tell their errors apart by type; this is the one place that says what each means to a user and to a
//! script.

use crate::render::missing;
use drumlin_repo::{Error as RepoError, names};
use drumlin_store::{Action, Kind};
use std::borrow::Cow;
use std::fmt;

/// A result of a command.
pub type Result<T> = std::result::Result<T, Failure>;

/// The exit statuses, as `--help`, the man page and `docs/json.md` have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// Failed.
    Failed = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// Done, but something could not be read or written, or is damaged.
    Incomplete = 3,
    /// Done, but the repository lacks what this client has seen in it, or can't be compared with that.
    Unexplained = 4,
    /// There is no repository there.
    NoRepository = 10,
    /// Refused, because something else is at work.
    Busy = 11,
    /// The key doesn't open the repository.
    WrongKey = 12,
    /// Interrupted.
    Interrupted = 130,
}

impl Exit {
    /// All of them, in order.
    pub const ALL: [Exit; 9] = [
        Exit::Done,
        Exit::Failed,
        Exit::Usage,
        Exit::Incomplete,
        Exit::Unexplained,
        Exit::NoRepository,
        Exit::Busy,
        Exit::WrongKey,
        Exit::Interrupted,
    ];

    /// What it means.
    pub fn meaning(self) -> &'static str {
        match self {
            Exit::Done => "done",
            Exit::Failed => "failed",
            Exit::Usage => "the command line makes no sense",
            Exit::Incomplete => "done, but something could not be read or written, or is damaged",
            Exit::Unexplained => "done, but the storage has lost or withholds what this client has seen in it",
            Exit::NoRepository => "there is no repository at that place",
            Exit::Busy => "refused, because something else is at work",
            Exit::WrongKey => "the passphrase or key file does not open the repository",
            Exit::Interrupted => "interrupted",
        }
    }
}

/// The statuses as `--help` shows them.
pub fn statuses() -> String {
    let lines = Exit::ALL.map(|exit| format!("{:>5}  {}", exit as i32, exit.meaning()));
    format!("Exit status:\n{}", lines.join("\n"))
}

/// A command that failed.
#[derive(Debug)]
pub struct Failure {
    /// The status to exit with.
    pub exit: Exit,
    /// What failed, on what, and the cause; empty if there is nothing to say.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Failure {
    /// A failure of this status.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Failure { exit, message: message.into(), hint: None }
    }

    /// A plain failure.
    pub fn failed(message: impl Into<String>) -> Self {
        Failure::new(Exit::Failed, message)
    }

    /// A command line that makes no sense.
    pub fn usage(message: impl Into<String>) -> Self {
        Failure::new(Exit::Usage, message)
    }

    /// An end without words: the reader of the output has gone, which is its right.
    pub fn silent() -> Self {
        Failure::new(Exit::Done, "")
    }

    /// A closure that says what was tried with a file.
    pub fn file(action: &'static str, path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Failure {
        let path = path.display().to_string();
        move |e| Failure::failed(format!("cannot {action} '{path}': {}", plain(&e)))
    }

    /// Add what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// What to do about a place that was meant to be in the home folder.
pub fn tilde(location: &str) -> Option<&'static str> {
    location.starts_with("~/").then_some("the shell did not expand '~'; write the whole path")
}

/// An error of the system without the number that says nothing to a reader of the words before it.
pub fn plain(error: &std::io::Error) -> String {
    let words = error.to_string();
    match error.raw_os_error().and_then(|code| words.strip_suffix(&format!(" (os error {code})"))) {
        Some(words) => words.to_owned(),
        None => words,
    }
}

/// As [`plain`], of words that were put together already: the number ends them, or a part of them.
pub fn without_number(words: &str) -> Cow<'_, str> {
    if let Some((before, rest)) = words.rsplit_once(" (os error ")
        && let Some((code, after)) = rest.split_once(')')
        && !code.is_empty()
        && code.bytes().all(|b| b.is_ascii_digit())
        && (after.is_empty() || after.starts_with(';'))
    {
        return if after.is_empty() { before.into() } else { format!("{before}{after}").into() };
    }
    words.into()
}

impl From<drumlin_engine::Error> for Failure {
    fn from(error: drumlin_engine::Error) -> Self {
        use drumlin_engine::Error;
        match error {
            Error::Repo(e) => e.into(),
            Error::Interrupted => Failure::new(Exit::Interrupted, "interrupted"),
            Error::Pattern(message) => Failure::usage(message),
            Error::NoSnapshot(message) => {
                Failure::failed(message).hint("'drumlin snapshots' lists the snapshots that there are")
            }
            Error::NoPath(_) => {
                Failure::failed(error.to_string()).hint(
                    "paths in a snapshot are absolute, as 'drumlin ls' shows them; behind SNAP:FOLDER they are below that folder",
                )
            }
            Error::Nothing { .. } => Failure::failed(error.to_string()).hint(
                "if all snapshots were forgotten on purpose, add --unsafe-allow-remove-all; otherwise check that the whole \
                 storage is mounted, and that this account may list it",
            ),
            Error::Busy(_) => Failure::new(Exit::Busy, error.to_string())
                .hint(
                    "run it again once that has ended ('prune' and 'repair' wait for it with --wait); if you know that it is dead, give its session to --evict",
                ),
            Error::Overtaken(_) => Failure::new(Exit::Busy, error.to_string()).hint("run it again"),
            Error::Unsure { snapshot, .. } => Failure::failed(error.to_string())
                .hint(format!("'drumlin repair' heals what can be healed; 'drumlin forget {snapshot}' gives up the snapshot")),
            Error::System { action, source } => Failure::failed(format!("cannot {action}: {}", plain(&source))),
            other => Failure::failed(without_number(&other.to_string())),
        }
    }
}

impl From<RepoError> for Failure {
    fn from(error: RepoError) -> Self {
        let message = error.to_string();
        match error {
            RepoError::NoRepository { ref location } => Failure::new(Exit::NoRepository, message).hint(
                tilde(location).unwrap_or("check that place; 'drumlin init' makes a new repository"),
            ),
            RepoError::NotAllowed { action, .. } => {
                let who = match action {
                    "back up" => "an owner's or a writer's",
                    "forget" | "prune" | "repair" | "make parity" => "an owner's or a keeper's",
                    "read snapshots" | "read what is in the repository" => "an owner's or a reader's",
                    "undelete" | "add keys" | "add such a key" | "remove keys" | "rekey" => "an owner's",
                    _ => return Failure::failed(message),
                };
                Failure::failed(message).hint(format!("{who} can: give another key file or passphrase (docs/guides/keys.md)"))
            }
            RepoError::NoConfig { .. } => Failure::failed(message).hint(
                "put one of them back from a copy of the repository (both are the same); nothing opens it without",
            ),
            RepoError::NoKeys { .. } => Failure::new(Exit::WrongKey, message).hint(
                "put the folder back from a copy of the repository, or give an owner's recovery file as the key file: 'drumlin key passwd' recreates its key",
            ),
            RepoError::NoPassphrase { .. } => {
                Failure::new(Exit::WrongKey, message).hint("use one of their key files instead")
            }
            RepoError::WrongKey { untried: Some(untried), .. } => {
                Failure { hint: Failure::from(*untried).hint, ..Failure::new(Exit::WrongKey, message) }
            }
            RepoError::WrongKey { .. } | RepoError::RevokedKey { .. } => Failure::new(Exit::WrongKey, message),
            RepoError::OtherRepository { .. } => Failure::new(Exit::WrongKey, message)
                .hint("each repository has keys of its own; check -r and the key file"),
            RepoError::Damaged { ref source, .. } if source.is_newer() => Failure::failed(message),
            RepoError::Damaged { ref object, .. } if object == "the key file" || object == "the recovery file" => {
                Failure::new(Exit::WrongKey, message.replacen(" in the repository", "", 1))
                    .hint("a file that contains a passphrase is a password file, not a key file")
            }
            RepoError::Damaged { ref object, .. } => match remedy(object) {
                Some(hint) => Failure::failed(message).hint(hint),
                None => Failure::failed(message),
            },
            RepoError::Store(e) => e.into(),
            RepoError::Unexplained(missing) => {
                Failure::failed(format!("{}; nothing was changed", missing::words(&missing))).hint(missing::HINT)
            }
            RepoError::OldKeys(_) => Failure::failed(format!("{message}; nothing was changed"))
                .hint("add new keys to replace them, and remove these; or use --remove-old, which removes them"),
            RepoError::Rekeyed { .. } => Failure::new(Exit::Busy, message),
            RepoError::Generation { .. } => Failure::failed(message)
                .hint("see 'When the storage goes back' in docs/guides/repair.md; what is there can be restored"),
            RepoError::NoSnapshot(_) => {
                Failure::failed(message).hint("'drumlin snapshots' lists the snapshots that there are")
            }
            RepoError::Cache { .. } => {
                Failure::failed(message).hint("use another folder with --cache-dir, or none with --no-cache")
            }
            _ => Failure::failed(message),
        }
    }
}

/// What to do about a damaged object.
fn remedy(object: &str) -> Option<&'static str> {
    match object.split_once('/')?.0 {
        names::INDEX | names::PLANS | names::LOSSES => Some("'drumlin repair' fixes that"),
        names::SNAPSHOTS => Some(
            "put it back from a copy of the repository if there is one; 'drumlin forget' with its full id gives it up",
        ),
        names::DECISIONS => Some(
            "it does no harm; the next prune removes it once its session is known to have ended, or is given to --evict",
        ),
        names::KEYS => {
            Some("'drumlin repair' restores it if its copy is intact; 'drumlin key remove' removes a key that is lost")
        }
        names::DATA | names::TREE => {
            Some("'drumlin check' names the affected files, and 'drumlin repair --read-data' heals what can be healed")
        }
        _ => None,
    }
}

fn is_pack(object: &str) -> bool {
    matches!(object.split_once('/'), Some((names::DATA | names::TREE, _)))
}

impl From<drumlin_store::Error> for Failure {
    fn from(error: drumlin_store::Error) -> Self {
        if error.kind == Kind::Missing && error.action == Action::FindBucket {
            return Failure::new(Exit::NoRepository, error.to_string())
                .hint("make the bucket first, with the provider's own tools, or check the address and --endpoint");
        }
        // The store as a whole is missing, rather than one object in it.
        if error.kind == Kind::Missing && error.name.is_empty() {
            return RepoError::NoRepository { location: error.location }.into();
        }
        let failure = Failure::failed(error.to_string());
        match error.kind {
            Kind::Frozen if !is_pack(&error.name) => failure.hint(
                "only packs may be in cold storage: have the provider bring back everything that is not below data and tree, \
                 and exclude it from the rule that has moved it",
            ),
            Kind::Frozen => failure.hint("'drumlin restore' has what it needs brought back (--thaw), and waits for it"),
            Kind::Refused if error.action == Action::LogIn => failure.hint(
                "give the user in the address and a key in ~/.ssh or an agent; 'ssh -v' with the same address shows what goes \
                 wrong; --ssh-command ssh uses ssh itself",
            ),
            // What S3 refuses for many reasons the message says, and what to do about it.
            Kind::Refused if error.location.starts_with("s3:") => failure,
            // The message says what to do about a server's key.
            Kind::Refused if error.action == Action::Connect => failure,
            Kind::Transient if error.action == Action::Connect => {
                failure.hint("check the address, and whether that machine can be reached from here")
            }
            Kind::Transient if !matches!(error.location.as_bytes(), [b'/', ..]) => {
                failure.hint("this may be temporary: run it again, and it continues from what is stored")
            }
            Kind::Full => failure.hint(format!(
                "make room on the storage of {}, and run it again: what a backup has stored so far is not stored again. \
                 'drumlin prune' would free that, too",
                error.location
            )),
            Kind::Refused if matches!(error.action, Action::Open | Action::Read | Action::List) => {
                failure.hint(format!("check who may read {}", error.location))
            }
            Kind::Refused => {
                failure.hint(format!("check who may write to {}, and whether it is mounted read-only", error.location))
            }
            Kind::Transient => failure.hint("this may be temporary: run it again"),
            Kind::Exhausted => failure.hint(
                "this machine is short of it, not the storage: raise the limits of open files and memory for this program (ulimit -a), or run \
                 less at the same time",
            ),
            // What is wrong is the storage and not the object.
            Kind::Io if error.action == Action::Write => failure,
            Kind::Io => match remedy(&error.name) {
                Some(hint) => failure.hint(hint),
                None => failure,
            },
            _ => failure,
        }
    }
}

impl From<drumlin_store::LocationError> for Failure {
    fn from(error: drumlin_store::LocationError) -> Self {
        Failure::usage(error.to_string())
    }
}

impl From<drumlin_host::filter::FilterError> for Failure {
    fn from(error: drumlin_host::filter::FilterError) -> Self {
        Failure::usage(format!("the pattern {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_become_statuses() {
        let location = || "/srv".to_owned();
        let of = |e: RepoError| Failure::from(e).exit;
        assert_eq!(of(RepoError::NoRepository { location: location() }), Exit::NoRepository);
        assert_eq!(of(RepoError::WrongKey { what: "passphrase", location: location(), untried: None }), Exit::WrongKey);
        assert_eq!(of(RepoError::Misuse("x".into())), Exit::Failed);
        let missing = drumlin_store::Error::because(Kind::Missing, Action::Open, "", "/srv", "none");
        assert_eq!(Failure::from(missing).exit, Exit::NoRepository);
        let object = drumlin_store::Error::because(Kind::Missing, Action::Read, "data/00/x", "/srv", "none");
        assert_eq!(Failure::from(object).exit, Exit::Failed);
        assert_eq!(Failure::from(drumlin_engine::Error::Interrupted).exit, Exit::Interrupted);
    }

    #[test]
    fn numbers_of_errors_are_left_out() {
        assert_eq!(without_number("No such file (os error 2)"), "No such file");
        assert_eq!(without_number("Denied (os error 1); so what"), "Denied; so what");
        for kept in ["No such file", "x (os error )", "x (os error 2", "x (os error 2) y"] {
            assert_eq!(without_number(kept), kept);
        }
        assert_eq!(plain(&std::io::Error::from_raw_os_error(2)), "No such file or directory");
    }
}
