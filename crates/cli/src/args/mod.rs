//! The command line: one file a command. Help, man pages and completions come from these definitions alone.

pub mod about;
pub mod backup;
pub mod check;
pub mod copy;
pub mod count;
pub mod excludes;
pub mod forget;
pub mod init;
pub mod key;
pub mod look;
pub mod parity;
pub mod prune;
pub mod repair;
pub mod restore;
pub mod select;
mod sessions;
pub mod snapshots;

use crate::exit::statuses;
use crate::render::time;
use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand};
use drumlin_store::ObjectLock;
use std::path::PathBuf;

/// Deduplicated, compressed, end-to-end encrypted backups.
#[derive(Debug, Parser)]
#[command(name = "drumlin", version, max_term_width = 120)]
pub struct Cli {
    /// What holds for every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Options of every command")]
pub struct Global {
    /// The repository: a folder, sftp://USER@HOST/FOLDER, s3://BUCKET/PREFIX, or stdio:PROGRAM
    ///
    /// A folder: a path, or file:///FOLDER. A folder on another machine: sftp://USER@HOST:PORT/FOLDER, or
    /// sftp://USER@HOST/~/FOLDER for one in the home folder there. A bucket on an S3 server: s3://BUCKET/PREFIX, with
    /// --endpoint, or s3:https://HOST:PORT/BUCKET/PREFIX. A shell command that speaks SFTP on its standard input and
    /// output, such as 'stdio:rclone serve sftp --stdio REMOTE:FOLDER'.
    ///
    /// Without this option, a profile or DRUMLIN_REPOSITORY names the repository; without these it is
    /// $XDG_DATA_HOME/drumlin/repository, which the first backup makes.
    #[arg(short, long, global = true, value_name = "REPO", alias = "repository")]
    pub repo: Option<String>,

    /// Read the passphrase from the first line of FILE [env: DRUMLIN_PASSWORD_FILE; the passphrase itself:
    /// DRUMLIN_PASSWORD]
    #[arg(short, long, global = true, value_name = "FILE")]
    pub password_file: Option<PathBuf>,

    /// Run COMMAND in a shell and read the passphrase from its output [env: DRUMLIN_PASSWORD_COMMAND]
    #[arg(long, global = true, value_name = "COMMAND")]
    pub password_command: Option<String>,

    /// Unlock with a key file or a recovery file [env: DRUMLIN_KEY_FILE]
    #[arg(short, long, global = true, value_name = "FILE")]
    pub key_file: Option<PathBuf>,

    /// Write one JSON object per line, for programs
    #[arg(long, global = true)]
    pub json: bool,

    /// Print only what was asked for, errors, and warnings that change what the outcome means
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,

    /// Name each new or changed entry; -vv also unmodified ones
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,

    /// Keep caches below DIR instead of $XDG_CACHE_HOME/drumlin
    #[arg(long, global = true, value_name = "DIR")]
    pub cache_dir: Option<PathBuf>,

    /// Use no cache
    #[arg(long, global = true)]
    pub no_cache: bool,

    /// Connect with COMMAND, such as an ssh with options, instead of the built-in SSH client
    ///
    /// It is run in a shell with '-p PORT -l USER -s -- HOST sftp' appended. Use it for settings of ~/.ssh/config that
    /// the built-in client doesn't support.
    #[arg(long, global = true, value_name = "COMMAND")]
    pub ssh_command: Option<String>,

    /// The S3 server for addresses s3://BUCKET/PREFIX [env: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL]
    ///
    /// A URL, such as https://s3.example.com. Without it, the profile in ~/.aws/config names the server; otherwise it
    /// is Amazon's. Credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, from ~/.aws, or from the
    /// machine; the region comes from AWS_REGION or ~/.aws.
    #[arg(long, global = true, value_name = "URL")]
    pub endpoint: Option<String>,

    /// Allow an S3 server on another machine without TLS, if its URL starts with http://
    #[arg(long, global = true)]
    pub allow_http: bool,

    /// Store packs of file contents in this S3 storage class, such as STANDARD_IA; all else stays in the default one
    #[arg(long, global = true, value_name = "CLASS")]
    pub storage_class: Option<String>,

    /// Protect stored objects from removal by S3 object lock, for this long: DAYS, governance:DAYS or compliance:DAYS
    ///
    /// The bucket must have been made with object lock. 'prune' with this option extends the protection of everything
    /// in the repository to the full time again, once half of the time has passed.
    #[arg(long, global = true, value_name = "DAYS")]
    pub object_lock: Option<ObjectLock>,

    /// Use a bucket's repository as it was at TIME, such as '2026-11-20 16:00:44', from the versions that it keeps
    ///
    /// What was removed or replaced after TIME is there, what was added after TIME is not, and nothing can be changed.
    /// To get back what an attacker has removed: restore from this state, or copy it to another repository with
    /// 'drumlin copy'. No cache is used, and snapshots made after TIME are not reported as missing.
    #[arg(long, global = true, value_name = "TIME", value_parser = time::parse)]
    pub as_of: Option<time::Time>,

    /// Send at most N KiB per second to a repository on another machine
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit_upload: Option<u32>,

    /// Receive at most N KiB per second from a repository on another machine
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit_download: Option<u32>,

    /// Read profiles from FILE instead of $XDG_CONFIG_HOME/drumlin/profiles.toml
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Use the profile NAME for the repository, the key and everything else that the command line doesn't give
    #[arg(long, global = true, value_name = "NAME")]
    pub profile: Option<String>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    // Each is described where its options are.
    Init(init::Init),
    Backup(Box<backup::Backup>),
    Restore(Box<restore::Restore>),
    Copy(Box<copy::Copy>),
    Prune(prune::Prune),
    Repair(repair::Repair),
    Parity(parity::Parity),
    Snapshots(snapshots::Snapshots),
    Forget(Box<forget::Forget>),
    Undelete(forget::Undelete),
    Ls(look::Ls),
    Find(Box<look::Find>),
    Diff(look::Diff),
    Du(look::Du),
    Dump(look::Dump),
    Stats(count::Stats),
    Estimate(Box<count::Estimate>),
    Check(check::Check),
    Key(key::Key),
    Why(Box<about::Why>),
    Cache(about::Cache),
    Completions(about::Completions),
    Man(about::Man),
    Version(about::Version),
}

/// The whole definition: what parses the command line, and what help, man pages and completions are made of.
pub fn definition() -> clap::Command {
    // Every page tells the exit statuses: scripts are written from any of them.
    Cli::command().after_help(statuses()).mut_subcommands(|c| c.after_help(statuses()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_definition_is_sound() {
        super::definition().debug_assert();
    }

    /// The command lines in README and the guides, and where they stand.
    fn shown() -> Vec<(String, Vec<String>)> {
        let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let guides = std::fs::read_dir(root.join("docs/guides")).unwrap().map(|entry| entry.unwrap().path());
        let mut shown = Vec::new();
        for page in guides.chain([root.join("README.md")]).filter(|page| page.extension().is_some_and(|of| of == "md"))
        {
            let text = std::fs::read_to_string(&page).unwrap();
            for (number, line) in text.lines().enumerate().filter(|(_, line)| line.starts_with("    ")) {
                // As crontabs and units have it.
                for mut command in commands(&line.replace("\\%", "%").replace("%%", "%")) {
                    if command.last().is_some_and(|last| last == "…") {
                        command.pop();
                        // Any command.
                        if super::definition().try_get_matches_from(&command).is_err() {
                            command.push("snapshots".to_owned());
                        }
                    }
                    shown.push((format!("{}:{}", page.file_name().unwrap().display(), number + 1), command));
                }
            }
        }
        shown
    }

    /// The words of the commands of drumlin's in a line for the shell, quotes taken off.
    fn commands(line: &str) -> Vec<Vec<String>> {
        let (mut words, mut word, mut quote, mut all) = (Vec::new(), None::<String>, None, Vec::new());
        for c in line.chars().chain(['\n']) {
            match (quote, c) {
                (Some(of), _) if c == of => quote = None,
                (None, '\'' | '"') => {
                    quote = Some(c);
                    word.get_or_insert_default();
                }
                (None, ' ' | '\n' | '|' | ';' | '&' | '<' | '>' | '(' | ')') => {
                    words.extend(word.take());
                    if c != ' ' {
                        all.push(std::mem::take(&mut words));
                    }
                }
                (None, '#') if word.is_none() => break,
                _ => word.get_or_insert_default().push(c),
            }
        }
        all.push(words);
        let program = |words: Vec<String>| {
            let is_it = |word: &String| word == "drumlin" || word.ends_with("/bin/drumlin");
            words.iter().position(is_it).map(|at| words[at..].to_vec()).filter(|words| words.len() > 1)
        };
        all.into_iter().filter_map(program).collect()
    }

    #[test]
    fn what_the_guides_say_to_type_is_understood() {
        let shown = shown();
        assert!(shown.len() > 70, "{}", shown.len());
        let wrong: Vec<String> = shown
            .into_iter()
            .filter_map(|(place, words)| {
                let error = super::definition().try_get_matches_from(&words).err()?;
                let is_asked_for = !error.use_stderr();
                (!is_asked_for).then(|| format!("{place}: {}\n{error}", words.join(" ")))
            })
            .collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn every_page_tells_the_statuses() {
        let mut command = super::definition();
        command.build();
        for mut page in [vec![command.clone()], command.get_subcommands().cloned().collect()].concat() {
            let help = page.render_long_help().to_string();
            assert!(page.get_name() == "help" || help.contains("130  interrupted"), "{}", page.get_name());
        }
    }
}
