//! Work that is known but not done: subdirectories to be listed, entries of a flat directory to be looked at.
//!
//! Both are ranges over names that their directory's scan left behind, so they can be cut anywhere between workers, and
//! a directory with a million subdirectories puts one item on the frontier, not a million.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use crate::dir::{Dir, Held};

use super::plan::Plan;
use super::scan::Found;

/// What the walk of a directory inherits from above.
#[derive(Clone)]
pub(crate) struct Heritage {
    /// The directory's node among the sources, where it has one.
    pub(crate) plan: Option<Arc<Plan>>,
    /// Device of the source it belongs to.
    pub(crate) dev: u64,
    /// Everything in it is covered, not only what leads to a source.
    pub(crate) full: bool,
}

/// Subdirectories of one directory, in the order of their names, that wait to be listed.
#[derive(Clone)]
pub(crate) struct Group {
    pub(crate) dir: Arc<Dir>,
    /// Its descriptor, where the directory doesn't hold one itself.
    pub(crate) held: Option<Arc<Held>>,
    /// Names, each ended by a NUL.
    pub(crate) names: Arc<Vec<u8>>,
    pub(crate) starts: Arc<Vec<u32>>,
    pub(crate) at: u32,
    pub(crate) end: u32,
    /// Of the parent. `full` here means that these children inherit it.
    pub(crate) heritage: Heritage,
}

/// Builds the groups for the subdirectories of one directory. `special` are those of `starts` that are covered only as
/// far as sources lie below them.
pub(crate) fn groups(
    dir: &Arc<Dir>,
    held: Option<Arc<Held>>,
    names: Arc<Vec<u8>>,
    starts: Vec<u32>,
    special: &[u32],
    heritage: &Heritage,
) -> Vec<Group> {
    let count = starts.len() as u32;
    let starts = Arc::new(starts);
    let group = |at, end, full| Group {
        dir: Arc::clone(dir),
        held: held.clone(),
        names: Arc::clone(&names),
        starts: Arc::clone(&starts),
        at,
        end,
        heritage: Heritage { full, ..heritage.clone() },
    };
    let mut out = Vec::new();
    let mut from = 0;
    if !special.is_empty() {
        // As many as there are sources in one directory.
        let special: HashSet<u32> = special.iter().copied().collect();
        for (i, _) in starts.iter().enumerate().filter(|(_, s)| special.contains(s)) {
            let i = i as u32;
            if from < i {
                out.push(group(from, i, heritage.full));
            }
            out.push(group(i, i + 1, false));
            from = i + 1;
        }
    }
    if from < count {
        out.push(group(from, count, heritage.full));
    }
    out
}

/// A directory with so many or so slow entries that several workers look at them.
pub(crate) struct Flat {
    pub(crate) dir: Arc<Dir>,
    pub(crate) held: Option<Arc<Held>>,
    pub(crate) names: FlatNames,
    pub(crate) heritage: Heritage,
    /// Of a directory marked by a tag file: the one entry that is kept.
    pub(crate) only: Option<u32>,
    /// Whether all of its names are known.
    pub(crate) complete: bool,
    /// Where the frontier keeps what comes after the last entry.
    pub(crate) tail: AtomicU32,
}

/// Some entries of a flat directory, by their rank.
#[derive(Clone)]
pub(crate) struct Span {
    pub(crate) flat: Arc<Flat>,
    pub(crate) at: u32,
    pub(crate) end: u32,
}

/// Subdirectories that some entries of a flat directory turned out to be.
#[derive(Default)]
pub(crate) struct Kids {
    /// Rank of the first entry looked at.
    pub(crate) rank: u32,
    /// Entries looked at.
    pub(crate) seen: u32,
    pub(crate) starts: Vec<u32>,
    pub(crate) special: Vec<u32>,
}

impl Kids {
    pub(crate) fn push(&mut self, start: u32, found: Found) {
        self.starts.push(start);
        if found == Found::Special {
            self.special.push(start);
        }
    }
}

/// What follows the last entry of a flat directory: its subdirectories, once all entries have been looked at.
pub(crate) struct Tail {
    pub(crate) flat: Arc<Flat>,
    pub(crate) left: u32,
    pub(crate) kids: Vec<Kids>,
}

impl Tail {
    /// Takes in what one span brought; true once nothing is missing.
    pub(crate) fn add(&mut self, kids: Kids) -> bool {
        self.left = self.left.saturating_sub(kids.seen);
        if !kids.starts.is_empty() {
            self.kids.push(kids);
        }
        self.left == 0
    }

    pub(crate) fn into_groups(mut self) -> Vec<Group> {
        self.kids.sort_by_key(|k| k.rank);
        let mut starts = Vec::with_capacity(self.kids.iter().map(|k| k.starts.len()).sum());
        let mut special = Vec::new();
        for kids in self.kids {
            starts.extend_from_slice(&kids.starts);
            special.extend_from_slice(&kids.special);
        }
        if starts.is_empty() {
            return Vec::new();
        }
        let flat = &self.flat;
        groups(&flat.dir, flat.held.clone(), Arc::clone(&flat.names.bytes), starts, &special, &flat.heritage)
    }
}

/// An item of work, or the place of one.
pub(crate) enum Pending {
    Root(Arc<Plan>, Vec<(Vec<u8>, io::Error)>),
    Group(Group),
    Span(Span),
    Tail(Tail),
    /// Stands for a group while one of its directories is being listed.
    Hole,
}

/// The names of a large directory: each as the low half of its inode number (4 bytes), its length (2), its bytes, and a
/// NUL, in one piece of memory; and where each begins, in the order of names. Costs 11 bytes a name besides the name.
#[derive(Clone, Default)]
pub(crate) struct FlatNames {
    pub(crate) bytes: Arc<Vec<u8>>,
    pub(crate) starts: Vec<u32>,
}

impl FlatNames {
    pub(crate) fn len(&self) -> u32 {
        self.starts.len() as u32
    }

    /// The name of this rank, with its NUL.
    pub(crate) fn with_nul(&self, rank: u32) -> &[u8] {
        let start = self.starts[rank as usize];
        let name = name_at(&self.bytes, start);
        &self.bytes[start as usize..start as usize + name.len() + 1]
    }

    /// The low half of its inode number, good for an order of access.
    pub(crate) fn ino(&self, rank: u32) -> u32 {
        let start = self.starts[rank as usize] as usize;
        self.bytes[start - HEAD..start - 2].try_into().map_or(0, u32::from_le_bytes)
    }

    /// The name of this rank.
    pub(crate) fn name(&self, rank: u32) -> &[u8] {
        name_at(&self.bytes, self.starts[rank as usize])
    }

    pub(crate) fn start(&self, rank: u32) -> u32 {
        self.starts[rank as usize]
    }

    pub(crate) fn find(&self, name: &[u8]) -> Option<u32> {
        self.starts.binary_search_by(|&s| name_at(&self.bytes, s).cmp(name)).ok().map(|i| i as u32)
    }
}

/// What stands before a name.
const HEAD: usize = 6;

fn name_at(bytes: &[u8], start: u32) -> &[u8] {
    let start = start as usize;
    let len = usize::from(u16::from_le_bytes([bytes[start - 2], bytes[start - 1]]));
    &bytes[start..start + len]
}

/// Gathers the names of a large directory in sorted runs, then merges them.
#[derive(Default)]
pub(crate) struct FlatBuilder {
    bytes: Vec<u8>,
    starts: Vec<u32>,
    runs: Vec<usize>,
}

impl FlatBuilder {
    /// Adds a name to the run at hand; false when 4 GiB of names are held already.
    pub(crate) fn push(&mut self, name: &[u8], ino: u64) -> bool {
        let (Ok(start), Ok(len)) = (u32::try_from(self.bytes.len() + HEAD), u16::try_from(name.len())) else {
            return false;
        };
        if self.bytes.len() + HEAD + name.len() + 1 > u32::MAX as usize {
            return false;
        }
        self.bytes.extend_from_slice(&(ino as u32).to_le_bytes());
        self.bytes.extend_from_slice(&len.to_le_bytes());
        self.bytes.extend_from_slice(name);
        self.bytes.push(0);
        self.starts.push(start);
        true
    }

    /// Ends a run. The names since the last call must have been ascending.
    pub(crate) fn end_run(&mut self) {
        self.runs.push(self.starts.len());
    }

    /// Merges all runs and drops names that were listed twice. `None` if `stop` was set meanwhile.
    pub(crate) fn finish(mut self, stop: &AtomicBool) -> Option<FlatNames> {
        let bytes = &self.bytes;
        let mut left = Vec::new();
        while self.runs.len() > 1 {
            let mut merged = Vec::with_capacity(self.runs.len().div_ceil(2));
            let mut from = 0;
            for pair in self.runs.chunks(2) {
                let end = pair[pair.len() - 1];
                if pair.len() == 2 && !merge(bytes, &mut self.starts[from..end], pair[0] - from, &mut left, stop) {
                    return None;
                }
                merged.push(end);
                from = end;
            }
            self.runs = merged;
        }
        self.starts.dedup_by(|a, b| name_at(bytes, *a) == name_at(bytes, *b));
        self.starts.shrink_to_fit();
        self.bytes.shrink_to_fit();
        Some(FlatNames { bytes: Arc::new(self.bytes), starts: self.starts })
    }
}

/// Merges the ascending `starts[..mid]` and `starts[mid..]`. `left` is scratch.
fn merge(bytes: &[u8], starts: &mut [u32], mid: usize, left: &mut Vec<u32>, stop: &AtomicBool) -> bool {
    left.clear();
    left.extend_from_slice(&starts[..mid]);
    let (mut i, mut j, mut out) = (0, mid, 0);
    while i < left.len() && j < starts.len() {
        if out & 0xffff == 0 && stop.load(std::sync::atomic::Ordering::Relaxed) {
            return false;
        }
        if name_at(bytes, left[i]).cmp(name_at(bytes, starts[j])) == Ordering::Greater {
            starts[out] = starts[j];
            j += 1;
        } else {
            starts[out] = left[i];
            i += 1;
        }
        out += 1;
    }
    starts[out..out + left.len() - i].copy_from_slice(&left[i..]);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_merge_in_order_without_doubles() {
        for (count, run) in [(0usize, 4usize), (1, 4), (1000, 7), (1000, 1), (5000, 512), (513, 512)] {
            let mut names: Vec<Vec<u8>> =
                (0..count).map(|i| format!("{:x}", (i as u64 * 0x9e37_79b9) % 4096).into_bytes()).collect();
            let mut builder = FlatBuilder::default();
            for chunk in names.chunks_mut(run) {
                chunk.sort();
                for name in chunk.iter() {
                    assert!(builder.push(name, 7));
                }
                builder.end_run();
            }
            names.sort();
            names.dedup();
            let flat = builder.finish(&AtomicBool::new(false)).expect("not stopped");
            assert_eq!(flat.len() as usize, names.len());
            for (i, name) in names.iter().enumerate() {
                assert_eq!(flat.with_nul(i as u32).strip_suffix(&[0]), Some(name.as_slice()));
                assert_eq!(flat.find(name), Some(i as u32));
            }
            assert_eq!(flat.find(b"~"), None);
        }
    }

    #[test]
    fn a_stop_ends_the_merge() {
        let mut builder = FlatBuilder::default();
        for name in [b"b", b"a"] {
            builder.push(name, 7);
            builder.end_run();
        }
        assert!(builder.finish(&AtomicBool::new(true)).is_none());
    }
}
