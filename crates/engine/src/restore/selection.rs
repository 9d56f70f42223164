//! What of a snapshot is wanted, and where below the target it goes.

use super::Options;
use super::range::{self, Range, ranges};
use crate::convert;
use crate::{Error, Result};
use drumlin_format::tree::{Meta, join};
use drumlin_host::filter::{Filter, FilterOptions, Pattern, Verdict};
use drumlin_host::meta::{Kind, Stat};
use drumlin_host::place::{Names, TargetDir};
use std::collections::HashSet;
use std::sync::Arc;

/// What of a snapshot is wanted.
pub(super) struct Selection {
    /// Stretches of the tree.
    pub ranges: Vec<Range>,
    /// The key of the directory that stands for the target.
    base: Vec<u8>,
    /// The keys of what was saved; an empty one is everything.
    sources: HashSet<Vec<u8>>,
    /// The keys of what lies on other file systems and was not looked into.
    passed_by: HashSet<Vec<u8>>,
    /// Whether the snapshot says so.
    tells_passed_by: bool,
    /// Those that were given with a slash at the end: a symlink may be there.
    followed: HashSet<Vec<u8>>,
    include: Option<Filter>,
    exclude: Filter,
    /// What these rules leave out was never compared with anything.
    unsaved: Option<Arc<Filter>>,
}

impl Selection {
    /// What the options say.
    pub fn new(options: &Options) -> Result<Self> {
        let filter = |exclude: Vec<Pattern>| {
            Filter::new(&FilterOptions { exclude, ..FilterOptions::default() })
                .map_err(|e| Error::Repo(drumlin_repo::Error::Misuse(e.to_string())))
        };
        let base = options.subfolder.as_deref().and_then(range::key).map(|(dir, name)| join(&dir, &name));
        let paths = || options.snapshot.paths.iter();
        Ok(Selection {
            ranges: ranges(&options.paths, options.subfolder.as_deref()),
            base: base.unwrap_or_default(),
            sources: paths().filter_map(|path| source_key(path)).collect(),
            passed_by: options.snapshot.passed_by.iter().flatten().filter_map(|path| source_key(path)).collect(),
            tells_passed_by: options.snapshot.passed_by.is_some(),
            followed: paths().filter(|path| path.ends_with(b"/")).filter_map(|path| source_key(path)).collect(),
            include: if options.include.is_empty() {
                None
            } else {
                Some(filter(options.include.iter().map(Pattern::flag).collect())?)
            },
            exclude: filter(options.exclude.clone())?,
            unsaved: options.unsaved.clone(),
        })
    }

    /// Whether a directory is a source, or lies below one.
    pub fn is_of_sources(&self, dir: &[u8]) -> bool {
        nearest(&self.sources, dir).is_some()
    }

    /// Whether a directory was saved with all that was in it, or as much as rules let through: it is a source, or lies
    /// below one, and not on another file system that wasn't looked into.
    pub fn is_whole(&self, dir: &[u8]) -> bool {
        let Some(source) = nearest(&self.sources, dir) else { return false };
        match self.tells_passed_by {
            true => nearest(&self.passed_by, dir).is_none_or(|at| at < source),
            // That there is a source in it may be all that is known of it.
            false => !self.sources.iter().any(|source| source.len() > dir.len() && is_below(source, dir)),
        }
    }

    /// Whether a directory only leads to what was saved, or to what is wanted of it: its path may look through
    /// symlinks, and what is known of it may be older than the snapshot.
    pub fn is_way(&self, dir: &[u8], name: &[u8]) -> bool {
        let at = (dir, name);
        let is_wanted = self.ranges.iter().any(|range| !range.way && range.holds(at));
        !is_wanted || !self.is_of_sources(&join(dir, name))
    }

    /// Whether [`Selection::is_way`] says so, or it is a source that was given with a slash at the end.
    pub fn may_be_link(&self, dir: &[u8], name: &[u8]) -> bool {
        self.is_way(dir, name) || self.followed.contains(&join(dir, name))
    }

    /// Whether there are rules, so that not all of a directory that the snapshot doesn't have may be deleted.
    pub fn spares(&self) -> bool {
        self.include.is_some() || self.exclude.has_rules() || self.unsaved.is_some()
    }

    /// Whether rules let an entry of the target be deleted that the snapshot doesn't have, by the absolute path that it
    /// would have in the source.
    pub fn lets_go(&self, path: &[u8], stat: &Stat) -> bool {
        let meta = convert::meta(stat, 0);
        self.wants(path, &meta) && !self.unsaved.as_ref().is_some_and(|filter| hits(filter, path, &meta))
    }

    /// Whether a file in a directory of the target marks all else in it as not worth saving.
    pub fn is_marked(&self, dir: &TargetDir, names: &Names) -> bool {
        self.unsaved.as_ref().is_some_and(|filter| dir.is_marked(names, filter))
    }

    /// Whether only what matches a pattern is wanted, so that directories are made when something in them is.
    pub fn is_picky(&self) -> bool {
        self.include.is_some()
    }

    /// Whether the patterns let an entry through, by its absolute path in the source.
    pub fn wants(&self, path: &[u8], meta: &Meta) -> bool {
        let hit = |filter: &Filter| hits(filter, path, meta);
        !hit(&self.exclude) && self.include.as_ref().is_none_or(hit)
    }

    /// Whether an entry of the tree is part of the restore, or of the way to something that is.
    pub fn covers(&self, dir: &[u8], name: &[u8]) -> bool {
        self.ranges.iter().any(|range| range.holds((dir, name)))
    }

    /// Where in the tree a path that was asked for stands; `None` for the root.
    pub fn key(&self, path: &[u8]) -> Option<range::Key> {
        let (dir, name) = range::key(path)?;
        let dir = match (self.base.is_empty(), dir.is_empty()) {
            (true, _) => dir,
            (false, true) => self.base.clone(),
            (false, false) => [&self.base[..], &[0], &dir].concat(),
        };
        Some((dir, name))
    }

    /// The folder that stands for the target, if that isn't all there is.
    pub fn base(&self) -> Option<range::Key> {
        let name = self.base.rsplit(|b| *b == 0).next().filter(|name| !name.is_empty())?;
        let dir = &self.base[..self.base.len() - name.len()];
        Some((dir.strip_suffix(&[0]).unwrap_or(dir).to_vec(), name.to_vec()))
    }

    /// The absolute path in the source of an entry, whose directory is `dir` below the target.
    pub fn source_of(&self, dir: &[u8], name: &[u8]) -> Vec<u8> {
        let mut path = source_dir(&self.base);
        for part in [dir, name].into_iter().filter(|part| !part.is_empty()) {
            path.push(b'/');
            path.extend_from_slice(part);
        }
        path
    }

    /// The key in the tree of an entry, whose directory is `dir` below the target.
    pub fn key_below(&self, dir: &[u8], name: &[u8]) -> Option<range::Key> {
        range::key(&self.source_of(dir, name))
    }

    /// A directory's path below the target.
    pub fn below(&self, dir: &[u8]) -> Vec<u8> {
        let rest = dir.strip_prefix(&self.base[..]).unwrap_or(dir);
        slashes(rest.strip_prefix(&[0]).unwrap_or(rest))
    }
}

/// Whether a key is that of a directory, or below it.
pub(super) fn is_below(key: &[u8], dir: &[u8]) -> bool {
    dir.is_empty() || key.strip_prefix(dir).is_some_and(|rest| matches!(rest, [] | [0, ..]))
}

/// How long the longest of some keys is that is a directory's own, or that of one above it.
fn nearest(keys: &HashSet<Vec<u8>>, dir: &[u8]) -> Option<usize> {
    let above = (0..dir.len()).filter(|at| dir[*at] == 0);
    let mut upwards = [0].into_iter().chain(above).chain([dir.len()]).rev();
    if keys.is_empty() { None } else { upwards.find(|at| keys.contains(&dir[..*at])) }
}

/// Whether a filter leaves out an entry, or a directory above it.
fn hits(filter: &Filter, path: &[u8], meta: &Meta) -> bool {
    let matches = |path: &[u8], kind| matches!(filter.verdict(path, kind, meta.size), Verdict::Exclude(_));
    let mut ancestors = (1..path.len()).filter(|at| path[*at] == b'/').map(|at| &path[..at]);
    filter.has_rules()
        && (matches(path, convert::host_kind(meta.kind)) || ancestors.any(|above| matches(above, Kind::Dir)))
}

/// Where a source stands, as a directory; `None` for a stream, which is no directory.
fn source_key(path: &[u8]) -> Option<Vec<u8>> {
    path.starts_with(b"/").then(|| range::key(path).map(|(dir, name)| join(&dir, &name)).unwrap_or_default())
}

/// The absolute path of an entry in the source.
pub(super) fn source(dir: &[u8], name: &[u8]) -> Vec<u8> {
    [&source_dir(dir), &b"/"[..], name].concat()
}

/// The absolute path of a directory in the source; empty for the root.
pub(super) fn source_dir(dir: &[u8]) -> Vec<u8> {
    if dir.is_empty() { Vec::new() } else { [&b"/"[..], &slashes(dir)].concat() }
}

/// The path of an entry below the target, whose directory's is `dir`.
pub(super) fn joined(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}

fn slashes(key: &[u8]) -> Vec<u8> {
    key.iter().map(|b| if *b == 0 { b'/' } else { *b }).collect()
}
