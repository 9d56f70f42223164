//! Profiles: what a backup saves, where to, with which key, and what runs before and after it, under a name.
//!
//! ```toml
//! [profile.home]
//! repository = "/mnt/backup"
//! key-file = "~/.config/drumlin/home.key"
//! sources = ["~"]
//! exclude = ["*.o", "~/tmp"]
//! exclude-caches = true
//! keep = { daily = 7, weekly = 5, monthly = 12 }
//! hooks = { open = "mount /mnt/backup", close = "umount /mnt/backup", failure = "mail -s backup me" }
//! ```

use crate::args::backup::compression;
use crate::args::forget::tag_sets;
use crate::exit::{Failure, Result};
use crate::place;
use crate::render::size;
use drumlin_engine::forget::{Count, PerUnit, Period, Rules};
use drumlin_store::{Location, ObjectLock};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    profile: BTreeMap<String, Profile>,
}

/// A profile. The command line takes precedence: its sources replace those of the profile, while its patterns, its
/// names of files that mark directories, and its tags are added to them.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Profile {
    /// The repository.
    pub repository: Option<String>,
    /// A file with the passphrase.
    pub password_file: Option<String>,
    /// A command that prints it.
    pub password_command: Option<String>,
    /// A key file.
    pub key_file: Option<String>,
    /// What logs in to another machine.
    pub ssh_command: Option<String>,
    /// The S3 server.
    pub endpoint: Option<String>,
    /// It may be spoken to without TLS.
    pub allow_http: bool,
    /// The storage class of packs of file contents.
    pub storage_class: Option<String>,
    /// For how long what is stored is kept from being removed.
    object_lock: Option<String>,
    /// KiB a second to another machine.
    pub limit_upload: Option<u32>,
    /// KiB a second from another machine.
    pub limit_download: Option<u32>,
    /// What to save.
    pub sources: Vec<String>,
    /// Patterns of what to leave out, each with its place in the file.
    exclude: Vec<Spanned<String>>,
    iexclude: Vec<Spanned<String>>,
    exclude_file: Vec<String>,
    iexclude_file: Vec<String>,
    /// Files that mark directories to leave out.
    pub exclude_if_present: Vec<String>,
    /// Leave out caches.
    pub exclude_caches: bool,
    exclude_larger_than: Option<String>,
    /// Stay on the file systems of the sources.
    pub one_file_system: bool,
    /// Make none where nothing has changed.
    pub skip_if_unchanged: bool,
    /// Tags of the snapshots.
    pub tags: Vec<String>,
    /// The host's name in the snapshots.
    pub host: Option<String>,
    compression: Option<String>,
    memory: Option<String>,
    /// Threads.
    pub workers: Option<u16>,
    /// Which snapshots shall be kept: for `forget`.
    keep: Option<Keep>,
    /// What runs before and after.
    pub hooks: Hooks,
    #[serde(skip)]
    name: String,
    #[serde(skip)]
    file: PathBuf,
    #[serde(skip)]
    text: String,
}

/// Commands for the shell.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Hooks {
    /// Before any command that needs the repository, which doesn't start if one of them fails.
    pub open: Commands,
    /// After it, when no other command that the same hook was run for is still at work.
    pub close: Commands,
    /// Before the backup, which doesn't start if one of them fails.
    pub before: Commands,
    /// After a backup that made a snapshot, or needed none.
    pub after: Commands,
    /// After one that didn't.
    pub failure: Commands,
}

impl Hooks {
    /// Whether there are any that are run around backups alone.
    pub fn are_of_backups(&self) -> bool {
        [&self.before, &self.after, &self.failure].iter().any(|commands| !commands.0.is_empty())
    }
}

/// One command or several.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "OneOrMany")]
pub struct Commands(pub Vec<String>);

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl From<OneOrMany> for Commands {
    fn from(commands: OneOrMany) -> Self {
        match commands {
            OneOrMany::One(command) => Commands(vec![command]),
            OneOrMany::Many(commands) => Commands(commands),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Keep {
    last: Kept,
    hourly: Kept,
    daily: Kept,
    weekly: Kept,
    monthly: Kept,
    yearly: Kept,
    within: Option<String>,
    within_hourly: Option<String>,
    within_daily: Option<String>,
    within_weekly: Option<String>,
    within_monthly: Option<String>,
    within_yearly: Option<String>,
    tags: Vec<String>,
}

/// A number, or `"unlimited"`.
#[derive(Debug, Default, Deserialize)]
#[serde(try_from = "NumberOrWord")]
struct Kept(Count);

#[derive(Deserialize)]
#[serde(untagged)]
enum NumberOrWord {
    Number(i64),
    Word(String),
}

impl TryFrom<NumberOrWord> for Kept {
    type Error = String;

    fn try_from(given: NumberOrWord) -> std::result::Result<Self, String> {
        match given {
            NumberOrWord::Number(number) => number.to_string().parse().map(Kept),
            NumberOrWord::Word(word) => word.parse().map(Kept),
        }
    }
}

impl Keep {
    /// As the engine takes them. Rules that would keep nothing at all are surely a slip.
    fn rules(&self) -> std::result::Result<Rules, String> {
        let period = |text: &Option<String>| text.as_deref().map(str::parse::<Period>).transpose();
        let rules = Rules {
            last: self.last.0,
            every: PerUnit {
                hourly: self.hourly.0,
                daily: self.daily.0,
                weekly: self.weekly.0,
                monthly: self.monthly.0,
                yearly: self.yearly.0,
            },
            within: period(&self.within)?,
            within_every: PerUnit {
                hourly: period(&self.within_hourly)?,
                daily: period(&self.within_daily)?,
                weekly: period(&self.within_weekly)?,
                monthly: period(&self.within_monthly)?,
                yearly: period(&self.within_yearly)?,
            },
            tags: tag_sets(&self.tags),
        };
        if rules.is_empty() { Err("its rules would keep no snapshot at all".into()) } else { Ok(rules) }
    }
}

/// A pattern and the line that it stands on, counted from 1.
pub struct PatternLine<'a> {
    /// The pattern.
    pub text: &'a str,
    /// Whether letters of either case match.
    pub ignore_case: bool,
    /// The line.
    pub line: u64,
}

impl Profile {
    /// The profile of a name from `file`, or from the user's own file.
    ///
    /// # Errors
    /// There is none, or something in it makes no sense.
    pub fn load(name: &str, file: Option<&Path>) -> Result<Self> {
        let path = match file {
            Some(path) => path.to_owned(),
            None => place::profiles()?,
        };
        let text = std::fs::read_to_string(&path).map_err(|e| {
            Failure::file("read the profiles in", &path)(e)
                .hint(format!("'[profile.{name}]' in that file begins the profile"))
        })?;
        Profile::parse(name, &path, text)
    }

    /// Repositories on this machine, key files and files of passphrases that any profile of a file names, as far as it
    /// can be read.
    pub fn files_of_all(file: &Path) -> Vec<PathBuf> {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let all = toml::from_str::<File>(&text).map(|file| file.profile).unwrap_or_default();
        let files_of = |profile: &Profile| -> Vec<PathBuf> {
            let repository = profile.repository.as_deref().and_then(|given| match given.starts_with('~') {
                true => place::expand(given).ok(),
                false => match Location::parse(given) {
                    Ok(Location::Local(path)) => Some(path),
                    _ => None,
                },
            });
            repository.into_iter().chain(profile.openers()).collect()
        };
        all.values().flat_map(files_of).collect()
    }

    /// Its key file and the file of its passphrase.
    pub fn openers(&self) -> impl Iterator<Item = PathBuf> {
        [&self.key_file, &self.password_file].into_iter().flatten().filter_map(|given| place::expand(given).ok())
    }

    fn parse(name: &str, path: &Path, text: String) -> Result<Self> {
        let shown = path.display();
        let mut file: File =
            toml::from_str(&text).map_err(|e| Failure::failed(format!("'{shown}' is not a file of profiles: {e}")))?;
        let known: Vec<String> = file.profile.keys().cloned().collect();
        let Some(mut profile) = file.profile.remove(name) else {
            let failure = Failure::failed(format!("there is no profile '{name}' in '{shown}'"));
            return Err(match known.is_empty() {
                true => failure.hint(format!("'[profile.{name}]' in that file begins it")),
                false => failure.hint(format!("there are: {}", known.join(", "))),
            });
        };
        (profile.name, profile.file, profile.text) = (name.to_owned(), path.to_owned(), text);
        profile.check().map_err(|e| Failure::failed(format!("profile '{name}' in '{shown}': {e}")))?;
        Ok(profile)
    }

    fn check(&self) -> std::result::Result<(), String> {
        let relative = |p: &&String| !(p.starts_with('/') || *p == "~" || p.starts_with("~/"));
        let paths = self.sources.iter().chain(&self.exclude_file).chain(&self.iexclude_file);
        // What a URL names has been made absolute.
        let is_folder = |text: &&String| matches!(Location::parse(text), Ok(Location::Local(_))) && !text.contains(':');
        let paths =
            paths.chain(&self.password_file).chain(&self.key_file).chain(self.repository.iter().filter(is_folder));
        if let Some(path) = { paths }.find(relative) {
            return Err(format!("'{path}' is relative; paths in a profile begin with '/' or '~/'"));
        }
        self.keep().map(drop)?;
        self.larger_than().map(drop)?;
        self.compression().map(drop)?;
        self.object_lock().map(drop)?;
        self.memory().map(drop)?;
        for (key, limit) in [("limit-upload", self.limit_upload), ("limit-download", self.limit_download)] {
            if limit == Some(0) {
                return Err(format!("'{key}' must not be 0; leave it out for no limit"));
            }
        }
        match self.workers {
            Some(0) => Err("at least one worker is needed".into()),
            Some(1025..) => Err("more than 1024 workers are of no use".into()),
            _ => Ok(()),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file that it is from.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The patterns of what to leave out. Those that begin with `~/` mean the home folder.
    pub fn patterns(&self) -> impl Iterator<Item = PatternLine<'_>> {
        let line = |at: usize| self.text.as_bytes().iter().take(at).filter(|b| **b == b'\n').count() as u64 + 1;
        let exclude = self.exclude.iter().map(|p| (p, false));
        exclude.chain(self.iexclude.iter().map(|p| (p, true))).map(move |(p, ignore_case)| PatternLine {
            text: p.get_ref(),
            ignore_case,
            line: line(p.span().start),
        })
    }

    /// The files of patterns, and whether letters of either case match.
    pub fn pattern_files(&self) -> impl Iterator<Item = (&str, bool)> {
        let exact = self.exclude_file.iter().map(|f| (f.as_str(), false));
        exact.chain(self.iexclude_file.iter().map(|f| (f.as_str(), true)))
    }

    /// The size above which files are left out.
    pub fn larger_than(&self) -> std::result::Result<Option<u64>, String> {
        self.exclude_larger_than.as_deref().map(size::parse).transpose()
    }

    /// How hard to compress.
    pub fn compression(&self) -> std::result::Result<Option<drumlin_engine::backup::Compression>, String> {
        self.compression.as_deref().map(compression).transpose()
    }

    /// For how long what is stored is kept from being removed.
    pub fn object_lock(&self) -> std::result::Result<Option<ObjectLock>, String> {
        self.object_lock.as_deref().map(str::parse).transpose()
    }

    /// Which snapshots `forget` keeps, if it says so.
    pub fn keep(&self) -> std::result::Result<Option<Rules>, String> {
        self.keep.as_ref().map(Keep::rules).transpose()
    }

    /// Memory to use.
    pub fn memory(&self) -> std::result::Result<Option<usize>, String> {
        self.memory.as_deref().map(size::parse_memory).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Profile> {
        Profile::parse("home", Path::new("/p.toml"), text.into())
    }

    #[test]
    fn a_whole_profile_is_read() {
        let profile = parse(
            "[profile.home]\nrepository = '/r'\nsources = ['~', '/etc']\nexclude = [\n  '*.o',\n  '/tmp']\niexclude = ['x']\n\
             exclude-larger-than = '1G'\ncompression = 'max'\nkeep = { last = 'unlimited', daily = 7, within = '1y6m', \
             within-weekly = '2y', tags = ['a,b', 'c'] }\n\
             [profile.home.hooks]\nbefore = 'true'\nafter = ['a', 'b']\n[profile.other]\n",
        )
        .unwrap();
        assert_eq!(profile.sources, ["~", "/etc"]);
        let lines: Vec<_> = profile.patterns().map(|p| (p.text.to_owned(), p.ignore_case, p.line)).collect();
        assert_eq!(lines, [("*.o".into(), false, 5), ("/tmp".into(), false, 6), ("x".into(), true, 7)]);
        assert_eq!(profile.larger_than(), Ok(Some(1 << 30)));
        let rules = profile.keep().unwrap().unwrap();
        assert_eq!((rules.every.daily, rules.last), (Count::Of(7), Count::All));
        assert_eq!((rules.within, rules.within_every.weekly), ("1y6m".parse().ok(), "2y".parse().ok()));
        assert_eq!(rules.tags, [vec!["a".to_owned(), "b".to_owned()], vec!["c".to_owned()]]);
        assert_eq!(
            (profile.hooks.before.0.len(), profile.hooks.after.0.len(), profile.hooks.failure.0.len()),
            (1, 2, 0)
        );
    }

    #[test]
    fn slips_are_told() {
        for (text, part) in [
            ("", "no profile 'home'"),
            ("[profile.work]", "no profile 'home'"),
            ("[profile.home]\nsorces = []", "sorces"),
            ("[profile.home]\nsources = ['x']", "relative"),
            ("[profile.home]\nkeep = {}", "no snapshot at all"),
            ("[profile.home]\nkeep = { daily = 0 }", "no snapshot at all"),
            ("[profile.home]\nkeep = { within = '3' }", "period"),
            ("[profile.home]\nkeep = { within-daily = '0d' }", "period"),
            ("[profile.home]\nkeep = { last = -2 }", "unlimited"),
            ("[profile.home]\nkeep = { last = 'many' }", "unlimited"),
            ("[profile.home]\nkeep = { dayly = 3 }", "dayly"),
            ("[profile.home]\ncompression = 'much'", "auto"),
            ("[profile.home]\nobject-lock = 'strict:3'", "compliance"),
            ("[profile.home]\nworkers = 0", "worker"),
            ("[profile.home\n", "not a file of profiles"),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
