//! Why a path is part of a backup, or why it isn't.
//!
//! Goes down from the source to the path and asks what the walk asks at each step.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::CWD;

use crate::meta::Kind;
use crate::sys::{self, Follow};
use crate::walk::normalise;

use super::rule::Rule;
use super::{Filter, Verdict};

/// What a backup covers, besides what its filter leaves out.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Absolute paths of the sources.
    pub sources: Vec<Vec<u8>>,
    /// Whether the walk stays on the devices of its sources.
    pub one_file_system: bool,
}

/// The answer for one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Whether the path is part of the backup (or would be, if it existed).
    pub included: bool,
    /// Absolute path where that is decided: the path itself or a directory above it.
    pub at: Vec<u8>,
    /// Why.
    pub reason: Reason,
}

/// Why a path is in or out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// In: it is a source.
    Source,
    /// In: it is a directory above a source, kept without its other contents.
    AboveSource,
    /// In: it lies below the source `at` and no rule keeps it out.
    NoRule,
    /// In: this rule takes it back.
    TakenBack(Rule),
    /// In: `at` is the file that marks its directory.
    Tag(Rule),
    /// Out: no source covers it.
    NotCovered,
    /// Out: this rule matches `at`.
    Excluded(Rule),
    /// Out: the directory `at` is marked by a tag file.
    Tagged(Rule),
    /// Out: `at` is a mount point, and the walk stays on the source's file system.
    OtherFileSystem,
    /// Out: `at` is a symlink; the walk doesn't follow it.
    BeyondSymlink,
    /// Undecided: `at` can't be looked at. The message of the system.
    Unreadable(String),
}

impl std::fmt::Display for Explanation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at = String::from_utf8_lossy(&self.at);
        let verb = if self.included { "included" } else { "excluded" };
        match &self.reason {
            Reason::Source => write!(f, "{verb}: {at} is a source"),
            Reason::AboveSource => write!(f, "{verb}: {at} leads to a source; its other contents are not covered"),
            Reason::NoRule => write!(f, "{verb}: covered by the source {at}, no rule matches"),
            Reason::TakenBack(rule) => write!(f, "{verb}: {at} is taken back by {rule}"),
            Reason::Tag(rule) => write!(f, "{verb}: {at} marks its directory, by {rule}"),
            Reason::NotCovered => write!(f, "{verb}: no source covers {at}"),
            Reason::Excluded(rule) => write!(f, "{verb}: {at} matches {rule}"),
            Reason::Tagged(rule) => write!(f, "{verb}: the directory {at} is marked by {rule}"),
            Reason::OtherFileSystem => write!(f, "{verb}: {at} is on another file system than its source"),
            Reason::BeyondSymlink => write!(f, "{verb}: {at} is a symlink, which is not followed"),
            Reason::Unreadable(cause) => write!(f, "{verb}: {at} can't be looked at: {cause}"),
        }
    }
}

fn absolute(parts: &[Vec<u8>]) -> Vec<u8> {
    [b"/".as_slice(), &parts.join(&b'/')].concat()
}

impl Filter {
    /// Explains what becomes of an absolute path. Looks at the file system, as the rules depend on it.
    pub fn explain(&self, path: &[u8], scope: &Scope) -> Explanation {
        let answer = |included, at: &[Vec<u8>], reason| Explanation { included, at: absolute(at), reason };
        let parts = match normalise(path) {
            Ok((parts, _)) => parts,
            Err(e) => {
                return Explanation { included: false, at: path.to_vec(), reason: Reason::Unreadable(e.to_string()) };
            }
        };
        let sources: Vec<(Vec<Vec<u8>>, bool)> = scope.sources.iter().filter_map(|s| normalise(s).ok()).collect();
        if sources.iter().any(|(source, _)| *source == parts) {
            return answer(true, &parts, Reason::Source);
        }
        if sources.iter().any(|(source, _)| source.starts_with(&parts)) {
            return answer(true, &parts, Reason::AboveSource);
        }
        // The innermost source counts: rules hold from there on.
        let of_path = sources.iter().filter(|(source, _)| parts.starts_with(source));
        let Some((source, _)) = of_path.clone().max_by_key(|(source, _)| source.len()) else {
            return answer(false, &parts, Reason::NotCovered);
        };
        // Of a symlink only itself is saved, unless a slash behind it says otherwise.
        let is_followed = of_path.clone().any(|(of, follow)| of == source && *follow);
        let is_link = sys::stat_at(CWD, &[&absolute(source)[..], b"\0"].concat(), Follow::No);
        if !is_followed && is_link.is_ok_and(|stat| stat.kind == Kind::Symlink) {
            return answer(false, source, Reason::BeyondSymlink);
        }
        match self.descend(&parts, source.len(), scope.one_file_system) {
            Some((included, depth, reason)) => answer(included, &parts[..depth], reason),
            None => answer(true, source, Reason::NoRule),
        }
    }

    /// Goes from the first `depth` components down to the whole path: (included, components of the deciding path, why).
    fn descend(&self, parts: &[Vec<u8>], mut depth: usize, one_file_system: bool) -> Option<(bool, usize, Reason)> {
        let source = parts[..depth].join(&b'/');
        let mut dir: OwnedFd = match sys::open_dir_path(&source, source.len()) {
            Ok(fd) => fd,
            Err(e) => return Some((false, depth, Reason::Unreadable(e.to_string()))),
        };
        let dev = sys::stat_at(dir.as_fd(), b"\0", Follow::No).map(|s| s.dev);
        loop {
            let name = parts.get(depth)?;
            let last = depth + 1 == parts.len();
            let name_nul = [name.as_slice(), b"\0"].concat();
            let stat = sys::stat_at(dir.as_fd(), &name_nul, Follow::No);
            let (kind, size) = match &stat {
                Ok(stat) => (stat.kind, stat.size),
                // What doesn't exist yet is judged by its name.
                Err(rustix::io::Errno::NOENT) => (if last { Kind::File } else { Kind::Dir }, 0),
                Err(e) => return Some((false, depth + 1, Reason::Unreadable(e.to_string()))),
            };
            let held = |tag: &[u8]| sys::stat_at(dir.as_fd(), &[tag, b"\0"].concat(), Follow::No).is_ok();
            if let Some(tag) = self.tags.iter().find(|t| held(&t.name) && t.marks(dir.as_fd())) {
                let is_tag = *name == tag.name && last;
                if is_tag && let Verdict::Exclude(rule) = self.verdict(&absolute(&parts[..=depth]), kind, size) {
                    return Some((false, depth + 1, Reason::Excluded(rule.clone())));
                }
                return Some(if is_tag {
                    (true, depth + 1, Reason::Tag(tag.rule.clone()))
                } else {
                    (false, depth, Reason::Tagged(tag.rule.clone()))
                });
            }
            let here = absolute(&parts[..=depth]);
            if let Verdict::Exclude(rule) = self.verdict(&here, kind, size) {
                return Some((false, depth + 1, Reason::Excluded(rule.clone())));
            }
            if last {
                return self.taken_back(&here, kind).map(|rule| (true, depth + 1, Reason::TakenBack(rule.clone())));
            }
            if kind == Kind::Symlink {
                return Some((false, depth + 1, Reason::BeyondSymlink));
            }
            if one_file_system && matches!((&stat, &dev), (Ok(s), Ok(dev)) if s.dev != *dev) {
                return Some((false, depth + 1, Reason::OtherFileSystem));
            }
            if stat.is_ok() {
                dir = match sys::open_dir_path(&here[1..], source.len()) {
                    Ok(fd) => fd,
                    Err(e) => return Some((false, depth + 1, Reason::Unreadable(e.to_string()))),
                };
            } else {
                // Nothing below exists: names alone are left to judge by.
                return self.by_name(parts, depth + 1);
            }
            depth += 1;
        }
    }

    fn by_name(&self, parts: &[Vec<u8>], from: usize) -> Option<(bool, usize, Reason)> {
        for depth in from..parts.len() {
            let last = depth + 1 == parts.len();
            let kind = if last { Kind::File } else { Kind::Dir };
            let here = absolute(&parts[..=depth]);
            if let Verdict::Exclude(rule) = self.verdict(&here, kind, 0) {
                return Some((false, depth + 1, Reason::Excluded(rule.clone())));
            }
            if last && let Some(rule) = self.taken_back(&here, kind) {
                return Some((true, depth + 1, Reason::TakenBack(rule.clone())));
            }
        }
        None
    }
}
