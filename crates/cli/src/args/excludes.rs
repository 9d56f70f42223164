//! What to leave out.

use crate::render::size;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};
use std::path::PathBuf;

/// Patterns of what to leave out, in command-line order, whichever options gave them: the last matching one wins.
#[derive(Clone, Debug, Default)]
pub struct Rules(pub Vec<Given>);

/// What one option gave.
#[derive(Clone, Debug)]
pub struct Given {
    /// One pattern or several.
    pub rule: Rule,
    /// Upper and lower case are the same.
    pub ignore_case: bool,
}

/// Where a pattern stands.
#[derive(Clone, Debug)]
pub enum Rule {
    /// On the command line.
    Pattern(String),
    /// In a file, one a line.
    File(PathBuf),
}

impl Args for Rules {
    fn augment_args(command: Command) -> Command {
        let option = |id: &'static str, value, help| {
            Arg::new(id)
                .long(id)
                .value_name(value)
                .help(help)
                .action(ArgAction::Append)
                .help_heading("What to leave out")
        };
        let help = "Leave out what matches PATTERN (as in a .gitignore, but at any depth unless it starts with '/'; may be repeated, the last matching pattern wins)";
        let pattern = option("exclude", "PATTERN", help).short('e');
        let help = "Leave out what matches a pattern in FILE, one per line";
        let file = option("exclude-file", "FILE", help).value_parser(value_parser!(PathBuf));
        let help = "Like --exclude-file, ignoring case";
        let ifile = option("iexclude-file", "FILE", help).value_parser(value_parser!(PathBuf));
        command.arg(pattern).arg(option("iexclude", "PATTERN", "Like --exclude, ignoring case")).arg(file).arg(ifile)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Rules {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut all = Vec::new();
        for (id, ignore_case) in [("exclude", false), ("iexclude", true)] {
            let given = matches.get_many::<String>(id).into_iter().flatten().cloned().map(Rule::Pattern);
            all.extend(matches.indices_of(id).into_iter().flatten().zip(given.map(|rule| Given { rule, ignore_case })));
        }
        for (id, ignore_case) in [("exclude-file", false), ("iexclude-file", true)] {
            let given = matches.get_many::<PathBuf>(id).into_iter().flatten().cloned().map(Rule::File);
            all.extend(matches.indices_of(id).into_iter().flatten().zip(given.map(|rule| Given { rule, ignore_case })));
        }
        all.sort_by_key(|(at, _)| *at);
        Ok(Rules(all.into_iter().map(|(_, given)| given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Rules {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Rules for what to leave out. Patterns have the syntax of .gitignore; one that begins with `/` is an absolute path.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "What to leave out")]
pub struct Excludes {
    /// Patterns.
    #[command(flatten)]
    pub rules: Rules,

    /// In directories that contain NAME (starting with HEADER, if given), save only NAME and leave out the rest
    #[arg(long, value_name = "NAME[:HEADER]")]
    pub exclude_if_present: Vec<String>,

    /// Leave out the contents of cache directories (those with a CACHEDIR.TAG)
    #[arg(long)]
    pub exclude_caches: bool,

    /// Leave out files larger than SIZE
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub exclude_larger_than: Option<u64>,

    /// Stay on the file systems of the sources
    #[arg(short = 'x', long)]
    pub one_file_system: bool,
}
