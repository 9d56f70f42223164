//! A profile's hooks: commands for the shell before a backup, after one that made a snapshot or needed none, and after one that failed.
//!
//! They learn what happened from variables: `DRUMLIN_PROFILE`, `DRUMLIN_HOOK`, and afterwards `DRUMLIN_EXIT_STATUS`,
//! `DRUMLIN_SNAPSHOT_ID`, `DRUMLIN_ERROR`. Their output goes to standard error, so that it never mixes with JSON.

use crate::exit::{Exit, Failure, Result};
use crate::profile::Profile;
use crate::render::Out;
use crate::stream::ended;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

/// The moment that a hook is run at.
#[derive(Clone, Copy)]
pub enum When<'a> {
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

impl When<'_> {
    fn name(self) -> &'static str {
        match self {
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
        When::Before => &profile.hooks.before,
        When::After { .. } => &profile.hooks.after,
        When::Failure { .. } => &profile.hooks.failure,
    };
    for command in &hooks.0 {
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(command).stdin(Stdio::null());
        if let Ok(stderr) = std::io::stderr().as_fd().try_clone_to_owned() {
            shell.stdout(stderr);
        }
        shell.env("DRUMLIN_PROFILE", profile.name()).env("DRUMLIN_HOOK", when.name());
        match when {
            When::Before => {}
            When::After { exit, snapshot } => {
                shell.env("DRUMLIN_EXIT_STATUS", (exit as i32).to_string());
                shell.env("DRUMLIN_SNAPSHOT_ID", snapshot.unwrap_or_default());
            }
            When::Failure { exit, message } => {
                shell.env("DRUMLIN_EXIT_STATUS", (exit as i32).to_string());
                shell.env("DRUMLIN_ERROR", message.replace('\0', " "));
            }
        }
        let hook = format!("the hook '{}' of profile '{}'", when.name(), profile.name());
        match shell.status() {
            Ok(status) if status.success() => {}
            Ok(status) => {
                return Err(Failure::failed(format!("{hook} failed ({}): {command}", ended(status))).hint(
                    match when {
                        When::Before => "no backup was made",
                        When::After { exit: Exit::Done, .. } => "the backup itself is whole",
                        _ => "what the backup came to is told above",
                    },
                ));
            }
            Err(e) => return Err(Failure::failed(format!("cannot run {hook}: {}", crate::exit::plain(&e)))),
        }
    }
    Ok(())
}

/// Run the hooks for a failure; what goes wrong there must not hide why it failed.
pub fn on_failure(out: &Out, profile: &Profile, exit: Exit, message: &str) {
    if let Err(failure) = run(profile, When::Failure { exit, message }) {
        out.trouble_with("hook", &failure.message);
    }
}
