//! Entries by their names, types, times and sizes, in one snapshot or in many.
//!
//! Snapshots of one machine share nearly all of their tree. What was found below a node is remembered by the node's
//! identity, in bounded memory: the second of two nearly equal snapshots costs what differs between them.

mod glob;
#[cfg(test)]
mod tests;

use crate::list::{Span, Steps, owner, report_damage};
use crate::monitor::Monitor;
use crate::select::{TreePath, push_path};
use crate::{Error, Result};
use drumlin_format::ChunkId;
use drumlin_format::snapshot::Snapshot;
use drumlin_format::tree::{Child, Kind, Leaf, Meta, Time};
use drumlin_repo::pack::Reader;
use glob::Glob;
use std::collections::HashMap;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// What to look for. Of each list one is enough; what is empty excludes nothing.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Patterns: on the whole absolute path if there is a slash in them, else on the name. What ends with a slash fits
    /// directories alone.
    pub patterns: Vec<Vec<u8>>,
    /// Letters (of ASCII) match without regard to case.
    pub ignore_case: bool,
    /// Types.
    pub kinds: Vec<Kind>,
    /// Changed at this time or later.
    pub newer: Option<Time>,
    /// Changed at this time or earlier.
    pub older: Option<Time>,
    /// Of at least so many bytes.
    pub size_min: Option<u64>,
    /// Of at most so many bytes.
    pub size_max: Option<u64>,
    /// Only what is below this path.
    pub below: TreePath,
}

/// An entry that fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// Its directory: components joined by zero bytes, empty for the root.
    pub dir: Vec<u8>,
    /// Its name.
    pub name: Vec<u8>,
    /// What the leaf keeps of it.
    pub meta: Meta,
    /// The name that its owner had where the snapshot was taken.
    pub user: Option<Vec<u8>>,
    /// The name that its group had.
    pub group: Option<Vec<u8>>,
}

impl Match {
    /// What it takes in memory, in bytes.
    fn bytes(&self) -> usize {
        let names = [&self.user, &self.group].into_iter().flatten().map(Vec::len).sum::<usize>();
        self.dir.len() + self.name.len() + names + size_of::<Match>()
    }

    /// Its absolute path.
    pub fn path(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.dir.len() + self.name.len() + 2);
        push_path(&self.dir, &self.name, &mut out);
        out
    }
}

/// What a search did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Matches handed out.
    pub matches: u64,
    /// Leaves that had to be read.
    pub leaves_read: u64,
}

/// Look through snapshots, one after the other. `each` may end it early.
///
/// # Errors
/// A pattern that is not well formed; what `each` says. A damaged node is told to the monitor, and the search goes on
/// behind it.
pub fn find(
    reader: &Arc<Reader>,
    snapshots: &[Snapshot],
    options: &Options,
    monitor: &dyn Monitor,
    each: &mut dyn FnMut(&Snapshot, &Match) -> Result<ControlFlow<()>>,
) -> Result<Report> {
    let wanted = Wanted::new(options)?;
    let span = Span::below(options.below.key());
    let mut memory = Memory::default();
    let mut report = Report::default();
    for snapshot in snapshots {
        let mut steps = Steps::new(reader, snapshot.root, span.clone());
        // Inner nodes entered and not yet left: depth, identity, and whether anything was found below.
        let mut open: Vec<(usize, ChunkId, bool)> = Vec::new();
        while let Some(head) = steps.head() {
            if monitor.stop() {
                return Err(Error::Interrupted);
            }
            leave(&mut open, steps.depth(), &mut memory);
            let child = head.child.clone();
            let level = head.level;
            match memory.known.get(&child.node) {
                Some(found) => {
                    if !found.is_empty() {
                        mark(&mut open);
                    }
                    for range in found {
                        report.matches += 1;
                        if each(snapshot, range)?.is_break() {
                            return Ok(report);
                        }
                    }
                    steps.skip();
                    continue;
                }
                None if level > 0 => open.push((steps.depth(), child.node, false)),
                None => {}
            }
            let entered = match steps.enter() {
                Ok(Some(entered)) => entered,
                Ok(None) => continue,
                Err(e) => {
                    // What could not be read is not known to hold nothing.
                    mark(&mut open);
                    report_damage(monitor, &child, e)?;
                    continue;
                }
            };
            report.leaves_read += 1;
            let found = wanted.of(&entered.leaf, entered.within);
            if !found.is_empty() {
                mark(&mut open);
            }
            for found in &found {
                report.matches += 1;
                if each(snapshot, found)?.is_break() {
                    return Ok(report);
                }
            }
            memory.remember(child, found);
        }
        leave(&mut open, 0, &mut memory);
    }
    Ok(report)
}

/// Nodes as deep as the head, or deeper, are behind: nothing is below them if nothing was found.
fn leave(open: &mut Vec<(usize, ChunkId, bool)>, depth: usize, memory: &mut Memory) {
    while let Some((_, node, found)) = open.pop_if(|(of, ..)| *of >= depth) {
        if !found {
            memory.remember_nothing(node);
        }
    }
}

fn mark(open: &mut [(usize, ChunkId, bool)]) {
    open.iter_mut().for_each(|(_, _, found)| *found = true);
}

/// Bytes that the memory of a search may take.
const MEMORY_BYTES_MAX: usize = 16 << 20;
/// What a node without matches takes, about.
const NODE_BYTES: usize = 2 * (size_of::<ChunkId>() + size_of::<Vec<Match>>());

/// What was found below nodes.
#[derive(Default)]
struct Memory {
    known: HashMap<ChunkId, Vec<Match>>,
    bytes: usize,
}

impl Memory {
    fn remember(&mut self, leaf: Child, found: Vec<Match>) {
        let bytes = found.iter().map(Match::bytes).sum::<usize>() + NODE_BYTES;
        if self.bytes + bytes <= MEMORY_BYTES_MAX {
            self.bytes += bytes;
            self.known.insert(leaf.node, found);
        }
    }

    fn remember_nothing(&mut self, node: ChunkId) {
        if self.bytes + NODE_BYTES <= MEMORY_BYTES_MAX {
            self.bytes += NODE_BYTES;
            self.known.insert(node, Vec::new());
        }
    }
}

/// The options, compiled.
struct Wanted<'a> {
    options: &'a Options,
    names: Vec<Pattern>,
    paths: Vec<Pattern>,
}

struct Pattern {
    glob: Glob,
    dirs_only: bool,
}

impl Pattern {
    fn fits(&self, text: &[u8], kind: Kind) -> bool {
        (!self.dirs_only || kind == Kind::Dir) && self.glob.matches(text)
    }
}

impl<'a> Wanted<'a> {
    fn new(options: &'a Options) -> Result<Self> {
        let (mut names, mut paths) = (Vec::new(), Vec::new());
        for pattern in &options.patterns {
            let (text, dirs_only) = match pattern.strip_suffix(b"/") {
                Some(text) if !text.is_empty() => (text, true),
                _ => (&pattern[..], false),
            };
            if text.contains(&b'/') {
                // Paths are absolute: `a/b` is meant to be found anywhere.
                let anywhere = if text.starts_with(b"/") { &b""[..] } else { b"**/" };
                let glob = Glob::new(&[anywhere, text].concat(), options.ignore_case)?;
                paths.push(Pattern { glob, dirs_only });
            } else {
                names.push(Pattern { glob: Glob::new(text, options.ignore_case)?, dirs_only });
            }
        }
        Ok(Wanted { options, names, paths })
    }

    fn of(&self, leaf: &Leaf, within: Range<usize>) -> Vec<Match> {
        let mut path = Vec::new();
        within
            .map(|at| leaf.get(at))
            .filter(|(dir, name, meta)| self.fits(dir, name, meta, &mut path))
            .map(|(dir, name, meta)| Match {
                dir: dir.to_vec(),
                name: name.to_vec(),
                meta: *meta,
                user: owner(&leaf.owners.users, meta.uid).map(<[u8]>::to_vec),
                group: owner(&leaf.owners.groups, meta.gid).map(<[u8]>::to_vec),
            })
            .collect()
    }

    fn fits(&self, dir: &[u8], name: &[u8], meta: &Meta, path: &mut Vec<u8>) -> bool {
        let o = self.options;
        if !o.kinds.is_empty() && !o.kinds.contains(&meta.kind)
            || o.newer.is_some_and(|t| meta.mtime < t)
            || o.older.is_some_and(|t| meta.mtime > t)
            || o.size_min.is_some_and(|min| meta.size < min)
            || o.size_max.is_some_and(|max| meta.size > max)
        {
            return false;
        }
        if o.patterns.is_empty() || self.names.iter().any(|pattern| pattern.fits(name, meta.kind)) {
            return true;
        }
        if self.paths.is_empty() {
            return false;
        }
        path.clear();
        push_path(dir, name, path);
        self.paths.iter().any(|pattern| pattern.fits(path, meta.kind))
    }
}
