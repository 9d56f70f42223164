//! `completions`, `man`, `version`: what can be told without a repository.

use crate::args::about::{Completions, Man};
use crate::args::definition;
use crate::context::Context;
use crate::exit::{Exit, Failure, Result};
use serde::Serialize;
use std::io::Write;

/// `completions`.
///
/// # Errors
/// Standard output can't be written to.
pub fn completions(context: &Context, args: &Completions) -> Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut definition(), "drumlin", &mut script);
    text(context, &script)
}

/// `man`.
///
/// # Errors
/// There is no such command.
pub fn man(context: &Context, args: &Man) -> Result<Exit> {
    let mut command = definition();
    command.build();
    let mut name = command.get_name().to_owned();
    for part in &args.command {
        let Some(found) = command.find_subcommand(part) else {
            return Err(Failure::usage(format!("'{name}' has no command '{part}'")));
        };
        name = format!("{name} {}", found.get_name());
        command = found.clone();
    }
    let mut page = Vec::new();
    render(command, args.command.is_empty(), &mut page)
        .map_err(|e| Failure::failed(format!("cannot write the page: {e}")))?;
    text(context, &page)
}

fn render(mut command: clap::Command, whole: bool, page: &mut Vec<u8>) -> std::io::Result<()> {
    // The statuses get a section of their own.
    command = command
        .version(env!("CARGO_PKG_VERSION"))
        .after_help(clap::builder::StyledStr::new())
        .after_long_help(clap::builder::StyledStr::new());
    let has_commands = command.has_subcommands();
    let man = clap_mangen::Man::new(command);
    man.render_title(page)?;
    man.render_name_section(page)?;
    man.render_synopsis_section(page)?;
    man.render_description_section(page)?;
    man.render_options_section(page)?;
    if has_commands {
        man.render_subcommands_section(page)?;
    }
    section(page, "EXIT STATUS", &Exit::ALL.map(|e| ((e as i32).to_string(), e.meaning())))?;
    if whole {
        section(page, "ENVIRONMENT", &VARIABLES.map(|(name, text)| (name.to_owned(), text)))?;
        section(page, "FILES", &FILES.map(|(name, text)| (name.to_owned(), text)))?;
    }
    man.render_version_section(page)
}

/// Variables that are read.
const VARIABLES: [(&str, &str); 14] = [
    ("DRUMLIN_REPOSITORY", "the repository, unless -r or a profile names one"),
    ("DRUMLIN_PASSWORD", "the passphrase"),
    ("DRUMLIN_PASSWORD_FILE", "a file whose first line is the passphrase"),
    ("DRUMLIN_PASSWORD_COMMAND", "a command for the shell that prints the passphrase"),
    ("DRUMLIN_KEY_FILE", "a key file or a recovery file"),
    ("DRUMLIN_HOST", "this host's name in snapshots"),
    ("DRUMLIN_TO_PASSWORD, DRUMLIN_TO_PASSWORD_FILE, ...", "the same for the repository that 'copy' copies to"),
    (
        "DRUMLIN_LIKE_PASSWORD, DRUMLIN_LIKE_PASSWORD_FILE, ...",
        "the same for the repository that 'init --cut-like' names",
    ),
    (
        "XDG_DATA_HOME, XDG_CONFIG_HOME, XDG_CACHE_HOME, XDG_STATE_HOME",
        "where the files below are [~/.local/share, ~/.config, ~/.cache, ~/.local/state]",
    ),
    ("SSH_AUTH_SOCK", "the agent that holds keys for SFTP"),
    (
        "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_PROFILE, AWS_REGION, ...",
        "credentials and settings for S3, as other programs use them",
    ),
    (
        "HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY",
        "proxies by which S3's servers are reached (http://USER:PASSWORD@HOST:PORT), and servers that are reached directly",
    ),
    ("TERM, COLUMNS", "what the terminal supports, and how wide it is"),
    ("NO_COLOR", "if it is set, no colours are used"),
];

/// Files that are read or written unless others are named.
const FILES: [(&str, &str); 5] = [
    ("$XDG_DATA_HOME/drumlin/repository", "the repository that is used when none is named"),
    ("$XDG_CONFIG_HOME/drumlin/keys/ID.key", "the key file of the repository with this id"),
    ("$XDG_CONFIG_HOME/drumlin/profiles.toml", "profiles"),
    (
        "$XDG_STATE_HOME/drumlin",
        "what this machine has seen in repositories: without it, nobody notices what a storage withholds",
    ),
    (
        "$XDG_CACHE_HOME/drumlin",
        "caches: they only save time; without them a machine with a writer's key reads everything once more, and copies once more what it has copied",
    ),
];

fn section(page: &mut Vec<u8>, head: &str, items: &[(String, &str)]) -> std::io::Result<()> {
    writeln!(page, ".SH \"{head}\"")?;
    for (term, text) in items {
        let quote = |t: &str| t.replace('\\', "\\\\").replace('-', "\\-");
        writeln!(page, ".TP\n\\fB{}\\fR\n{}", quote(term), quote(text))?;
    }
    Ok(())
}

fn text(context: &Context, bytes: &[u8]) -> Result<Exit> {
    String::from_utf8_lossy(bytes).lines().try_for_each(|l| context.out.line(l))?;
    Ok(Exit::Done)
}

#[derive(Serialize)]
struct JsonVersion {
    message_type: &'static str,
    version: &'static str,
    format_version: u8,
    os: &'static str,
    arch: &'static str,
}

/// `version`.
///
/// # Errors
/// Standard output can't be written to.
pub fn version(context: &Context) -> Result<Exit> {
    let version = JsonVersion {
        message_type: "version",
        version: env!("CARGO_PKG_VERSION"),
        format_version: drumlin_format::VERSION,
        os: std::env::consts::OS,
        arch: std::env::consts::ARCH,
    };
    match context.out.json() {
        true => context.out.object(&version)?,
        false => context.out.line(format!(
            "drumlin {} (repository format {}, {}-{})",
            version.version, version.format_version, version.os, version.arch
        ))?,
    }
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page() {
        fn check(command: &clap::Command, depth: usize) -> usize {
            let mut page = Vec::new();
            render(command.clone(), depth == 0, &mut page).unwrap();
            let page = String::from_utf8(page).unwrap();
            assert!(page.contains(".SH \"EXIT STATUS\""), "{}", command.get_name());
            assert_eq!(page.contains("DRUMLIN_REPOSITORY\\fR"), depth == 0);
            1 + command.get_subcommands().map(|c| check(c, depth + 1)).sum::<usize>()
        }
        let mut command = definition();
        command.build();
        assert!(check(&command, 0) > 20);
    }
}
