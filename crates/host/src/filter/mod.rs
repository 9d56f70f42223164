//! Which entries a backup leaves out, by which rule, and why.
//!
//! Patterns have the syntax of gitignore; the last that matches wins, `!` takes back. A pattern that starts with `/` is
//! an absolute path; any other matches at any depth. What lies below an excluded directory is never looked at, so
//! nothing in it can be taken back. Sources given explicitly, and the directories above them, are not subject to rules.
//!
//! Files inside the tree are never read for patterns: whoever could write one could hide files from the backup.

mod explain;
mod rule;
mod tag;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::meta::Kind;

pub use explain::{Explanation, Reason, Scope};
pub use rule::{FilterError, Origin, Pattern, Rule};

use tag::Tag;

/// The rules as the user gives them.
#[derive(Clone, Debug, Default)]
pub struct FilterOptions {
    /// Patterns, the later ones stronger.
    pub exclude: Vec<Pattern>,
    /// `NAME` or `NAME:HEADER`: of a directory that contains a file of this name (that starts with these bytes), only
    /// that file is kept.
    pub exclude_if_present: Vec<String>,
    /// Only `CACHEDIR.TAG` is kept of directories where it has its signature (<https://bford.info/cachedir/>).
    pub exclude_caches: bool,
    /// Regular files larger than this are left out.
    pub exclude_larger_than: Option<u64>,
}

impl FilterOptions {
    /// See [`Filter::digest`].
    fn digest(&self) -> Option<u64> {
        let mut bytes = Vec::new();
        for pattern in
            self.exclude.iter().filter(|pattern| pattern.origin != Origin::BuiltIn && pattern.glob().is_some())
        {
            bytes.extend([b"p", pattern.text.as_bytes(), &[0, u8::from(pattern.ignore_case)]].concat());
        }
        for name in &self.exclude_if_present {
            bytes.extend([b"n", name.as_bytes(), &[0]].concat());
        }
        bytes.extend(self.exclude_caches.then_some(b'c'));
        bytes.extend(self.exclude_larger_than.iter().flat_map(|max| [&b"l"[..], &max.to_le_bytes()].concat()));
        // FNV-1a: it tells rules apart that nobody made to be mistaken for others.
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        (!bytes.is_empty()).then(|| bytes.iter().fold(0xcbf2_9ce4_8422_2325, step))
    }
}

/// What a filter says of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// Part of the backup.
    Include,
    /// Left out by this rule.
    Exclude(&'a Rule),
}

/// The rules, compiled. Costs nothing an entry if there are none.
#[derive(Debug)]
pub struct Filter {
    patterns: Gitignore,
    /// By the index of their pattern.
    rules: Vec<Rule>,
    tags: Vec<Tag>,
    larger: Option<(u64, Rule)>,
    digest: Option<u64>,
}

impl Filter {
    /// A filter that keeps everything.
    pub fn none() -> Filter {
        Filter { patterns: Gitignore::empty(), rules: Vec::new(), tags: Vec::new(), larger: None, digest: None }
    }

    /// Compiles the rules.
    ///
    /// # Errors
    /// The first pattern that is not well formed, with its origin.
    pub fn new(options: &FilterOptions) -> Result<Filter, FilterError> {
        let mut builder = GitignoreBuilder::new("/");
        let mut rules = Vec::new();
        for pattern in &options.exclude {
            let Some(glob) = pattern.glob() else { continue };
            let rule = pattern.rule();
            if let Some(why) = pattern.is_futile() {
                return Err(FilterError { rule, cause: why.to_owned() });
            }
            let fault = |e: ignore::Error| FilterError { rule: rule.clone(), cause: e.to_string() };
            builder.case_insensitive(pattern.ignore_case).map_err(fault)?;
            // Patterns are told apart by their "file", which carries the index.
            builder.add_line(Some(rules.len().to_string().into()), &glob).map_err(fault)?;
            rules.push(rule);
        }
        let patterns = builder.build().map_err(|e| FilterError {
            rule: Rule { text: "all patterns together".into(), origin: Origin::BuiltIn },
            cause: e.to_string(),
        })?;
        let mut tags = Vec::new();
        for given in &options.exclude_if_present {
            tags.push(Tag::parse(given)?);
        }
        if options.exclude_caches {
            tags.push(Tag::cachedir());
        }
        let larger = options
            .exclude_larger_than
            .map(|max| (max, Rule { text: format!("files larger than {max} bytes"), origin: Origin::Flag }));
        Ok(Filter { patterns, rules, tags, larger, digest: options.digest() })
    }

    /// A number of these rules alone, wherever they stand; `None` if there are none. Those of the program's own don't
    /// count.
    pub fn digest(&self) -> Option<u64> {
        self.digest
    }

    /// Whether any rule looks at single entries.
    pub fn has_rules(&self) -> bool {
        !self.patterns.is_empty() || self.larger.is_some()
    }

    /// What the rules for single entries say of this one, `path` being absolute. Directories above are not considered:
    /// a walk has asked for them before, and [`Filter::explain`] does.
    pub fn verdict(&self, path: &[u8], kind: Kind, size: u64) -> Verdict<'_> {
        if let Match::Ignore(glob) = self.matched(path, kind)
            && let Some(rule) = self.rule_of(glob)
        {
            return Verdict::Exclude(rule);
        }
        match &self.larger {
            Some((max, rule)) if kind == Kind::File && size > *max => Verdict::Exclude(rule),
            _ => Verdict::Include,
        }
    }

    fn matched(&self, path: &[u8], kind: Kind) -> Match<&ignore::gitignore::Glob> {
        if self.patterns.is_empty() {
            return Match::None;
        }
        self.patterns.matched(Path::new(OsStr::from_bytes(path)), kind == Kind::Dir)
    }

    /// The pattern that takes this path back (`!`), if that is what the patterns say.
    fn taken_back(&self, path: &[u8], kind: Kind) -> Option<&Rule> {
        match self.matched(path, kind) {
            Match::Whitelist(glob) => self.rule_of(glob),
            _ => None,
        }
    }

    fn rule_of(&self, glob: &ignore::gitignore::Glob) -> Option<&Rule> {
        let index: usize = glob.from()?.to_str()?.parse().ok()?;
        self.rules.get(index)
    }

    /// The tag file that marks a directory, of which then nothing else is kept. `has` says which names the directory
    /// holds; only for those is anything read.
    pub(crate) fn tag(&self, dir: BorrowedFd<'_>, has: impl Fn(&[u8]) -> bool) -> Option<&[u8]> {
        self.tags.iter().find(|tag| has(&tag.name) && tag.marks(dir)).map(|tag| tag.name.as_slice())
    }
}
