//! A profile's hooks: commands for the shell around each command that needs the repository ([`Opened`]), and before a
//! backup, after one that made a snapshot or needed none, and after one that failed.
//!
//! They learn what happened from variables: `DRUMLIN_PROFILE`, `DRUMLIN_HOOK`, and afterwards `DRUMLIN_EXIT_STATUS`,
//! `DRUMLIN_SNAPSHOT_ID`, `DRUMLIN_ERROR`. Their output goes to standard error, so that it never mixes with JSON.

mod users;

use crate::exit::{Exit, Failure, Result};
use crate::lock::Lock;
use crate::profile::{Commands, Profile};
use crate::render::Out;
use crate::signals::{BeforeEnd, before_end};
use crate::stream::ended;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

/// The moment that a hook is run at.
#[derive(Clone, Copy)]
pub enum When<'a> {
    /// Before the repository is needed.
    Open,
    /// When nobody needs it any more.
    Close {
        /// What the last command will exit with, if that is known.
        exit: Option<Exit>,
    },
    /// Before the backup.
    Before,
    /// After one that made a snapshot, or needed none.
    After {
        /// What it will exit with.
        exit: Exit,
        /// The snapshot, if one was made.
        snapshot: Option<&'a str>,
    },
    /// After one that failed or was interrupted.
    Failure {
        /// What it will exit with.
        exit: Exit,
        /// Why.
        message: &'a str,
    },
}

const CLOSE: &str = "close";
/// Linux starts no program with a variable of more than 128 KiB.
const MESSAGE_BYTES_MAX: usize = 16 << 10;

impl When<'_> {
    fn name(self) -> &'static str {
        match self {
            When::Open => "open",
            When::Close { .. } => CLOSE,
            When::Before => "before",
            When::After { .. } => "after",
            When::Failure { .. } => "failure",
        }
    }
}

/// Run the hooks of a moment, one after the other until one fails.
///
/// # Errors
/// The one that failed.
pub fn run(profile: &Profile, when: When) -> Result<()> {
    let hooks = match when {
        When::Open => &profile.hooks.open,
        When::Close { .. } => &profile.hooks.close,
        When::Before => &profile.hooks.before,
        When::After { .. } => &profile.hooks.after,
        When::Failure { .. } => &profile.hooks.failure,
    };
    run_all(hooks, profile.name(), when)
}

fn run_all(hooks: &Commands, profile: &str, when: When) -> Result<()> {
    for command in &hooks.0 {
        let mut shell = shell(command, profile, when);
        match when {
            When::Open | When::Before => {}
            When::Close { exit } => {
                shell.env("DRUMLIN_EXIT_STATUS", exit.map_or_else(String::new, |exit| (exit as i32).to_string()));
            }
            When::After { exit, snapshot } => {
                shell.env("DRUMLIN_EXIT_STATUS", (exit as i32).to_string());
                shell.env("DRUMLIN_SNAPSHOT_ID", snapshot.unwrap_or_default());
            }
            When::Failure { exit, message } => {
                shell.env("DRUMLIN_EXIT_STATUS", (exit as i32).to_string());
                shell.env("DRUMLIN_ERROR", cut(&message.replace('\0', " ")));
            }
        }
        let hook = format!("the hook '{}' of profile '{profile}'", when.name());
        match shell.status() {
            Ok(status) if status.success() => {}
            Ok(status) => {
                return Err(Failure::failed(format!("{hook} failed ({}): {command}", ended(status))).hint(
                    match when {
                        When::Open => "nothing was begun",
                        When::Before => "no backup was made",
                        When::Close { exit: Some(Exit::Done) } => "everything else was done",
                        When::After { exit: Exit::Done, .. } => "the backup itself is complete",
                        _ => "the result of the command itself is shown above",
                    },
                ));
            }
            Err(e) => return Err(Failure::failed(format!("cannot run {hook}: {}", crate::exit::plain(&e)))),
        }
    }
    Ok(())
}

/// As much of a message as a program can be given: a longer variable keeps it from being started.
fn cut(message: &str) -> &str {
    let mut end = message.len().min(MESSAGE_BYTES_MAX);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    &message[..end]
}

/// The shell that runs a command of a hook.
fn shell(command: &str, profile: &str, when: When) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(command).stdin(Stdio::null());
    if let Ok(stderr) = std::io::stderr().as_fd().try_clone_to_owned() {
        shell.stdout(stderr);
    }
    shell.env("DRUMLIN_PROFILE", profile).env("DRUMLIN_HOOK", when.name());
    shell
}

/// Run the hooks for a failure; what goes wrong there must not hide why it failed.
pub fn on_failure(out: &Out, profile: &Profile, exit: Exit, message: &str) {
    if let Err(failure) = run(profile, When::Failure { exit, message }) {
        out.trouble_with("hook", &failure.message);
    }
}

/// Whether a hook that opens or closes runs this, which would wait for that hook's own end.
fn is_within() -> bool {
    std::env::var("DRUMLIN_HOOK").is_ok_and(|hook| [When::Open.name(), CLOSE].contains(&&hook[..]))
}

/// Be the only backup of a profile with hooks of that kind, for as long as this lives. `None` where there is no telling.
///
/// # Errors
/// [`Exit::Busy`]: another one is at work.
pub fn alone(profile: &Profile, out: &Out) -> Result<Option<Lock>> {
    if is_within() || !profile.hooks.are_of_backups() { Ok(None) } else { users::alone(profile, out) }
}

/// What the hook `open` has opened, until the last that uses it closes it.
pub struct Opened<'a> {
    profile: &'a Profile,
    out: &'a Out,
    user: users::User,
    before_end: BeforeEnd,
}

/// Run the hook `open`, if the profile has hooks of that kind, and use what it opens from then on.
///
/// # Errors
/// It failed, or another run's hook doesn't end, and nothing was opened.
pub fn open<'a>(profile: &'a Profile, out: &'a Out) -> Result<Option<Opened<'a>>> {
    if is_within() || profile.hooks.open.0.is_empty() && profile.hooks.close.0.is_empty() {
        return Ok(None);
    }
    let (close, name) = (profile.hooks.close.clone(), profile.name().to_owned());
    // Before anything is open: a signal may come as soon as it is.
    let opened = Arc::new(Mutex::new(None::<users::User>));
    let of_end = opened.clone();
    let before_end = before_end(false, move || {
        let opened = of_end.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(user) = opened.as_ref().filter(|user| user.is_last()) {
            become_close(&close, &name, user);
        }
    });
    // What the hook has begun to open when a signal comes is closed once it is open: the end waits for this. (It
    // doesn't wait for another one's turn.)
    let mut slot = None;
    let user = users::User::begin(profile, out, || {
        slot = Some(opened.lock().unwrap_or_else(PoisonError::into_inner));
        run(profile, When::Open)
    })?;
    *slot.unwrap_or_else(|| opened.lock().unwrap_or_else(PoisonError::into_inner)) = Some(user.clone());
    Ok(Some(Opened { profile, out, user, before_end }))
}

/// Become the shell that runs the hook `close`: whatever this process has open of what is to be unmounted is closed
/// with that, whoever was using it. Comes back only if there is no shell.
fn become_close(close: &Commands, profile: &str, user: &users::User) {
    let without = user.hand_on().map(|turn| format!(" {turn}>&-")).unwrap_or_default();
    let commands = close.0.iter().map(|command| format!("({command}\n){without} || exit {STOPPED}\n"));
    let script: String = commands.chain([format!("exit {STOPPED}")]).collect();
    let _ = shell(&script, profile, When::Close { exit: None }).env("DRUMLIN_EXIT_STATUS", "").exec();
}

const STOPPED: i32 = Exit::Interrupted as i32;

impl Opened<'_> {
    /// Use it no more; the hook `close` is run if nobody else uses it either.
    ///
    /// # Errors
    /// That failed.
    pub fn close(self, exit: Exit) -> Result<()> {
        drop(self.before_end);
        self.user.end(self.profile.name(), self.out, || run(self.profile, When::Close { exit: Some(exit) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_cut_between_its_letters() {
        assert_eq!(cut("short"), "short");
        for shift in 0..3 {
            let long = "x".repeat(shift) + &"ü€".repeat(MESSAGE_BYTES_MAX);
            let cut = cut(&long);
            assert!(cut.len() <= MESSAGE_BYTES_MAX && cut.len() + 3 > MESSAGE_BYTES_MAX && long.starts_with(cut));
        }
    }
}
