//! Whether an entry that a walk meets is as a previous snapshot has it, so that nothing of it needs to be read.

use crate::convert::{kind, size, time};
use drumlin_format::tree::{self, Meta, join};
use drumlin_host::dir::Dir;
use drumlin_host::meta::Stat;
use std::collections::{HashMap, HashSet};

/// What is to be known of the sources, and of the file systems that are met, to tell it.
pub(crate) struct Unchanged {
    above: HashSet<Vec<u8>>,
    /// Devices in the order in which hard links on them were met.
    filesystems: HashMap<u64, u32>,
    /// Devices on which an inode number may have become another, and whether numbers last there.
    lasting: HashMap<u64, bool>,
}

impl Unchanged {
    /// For these absolute paths.
    pub fn new(sources: &[Vec<u8>]) -> Self {
        Unchanged { above: above(sources), filesystems: HashMap::new(), lasting: HashMap::new() }
    }

    /// Whether an entry is a directory that only leads to the sources. What happens in it beside them is none of this
    /// backup's business, so its times don't count.
    pub fn is_above(&self, dir: &[u8], name: &[u8]) -> bool {
        self.above.contains(&join(dir, name))
    }

    /// The number of an entry's file system, by which hard links of one are told from those of another; 0 for what has
    /// none.
    pub fn filesystem(&mut self, stat: &Stat) -> u32 {
        if stat.nlink < 2 || stat.kind == drumlin_host::meta::Kind::Dir {
            return 0;
        }
        let next = self.filesystems.len() as u32;
        *self.filesystems.entry(stat.dev).or_insert(next)
    }

    /// Whether an entry is as it was; `key` is `dir`'s key in the tree, `filesystem` what [`Unchanged::filesystem`]
    /// says of it.
    ///
    /// Where numbers don't last (FUSE, FAT, SMB) another one alone is no change, or each mount would have all read
    /// again (docs/decisions/0018-numbers.md).
    pub fn is(&mut self, old: &Meta, dir: &Dir, key: &[u8], name: &[u8], stat: &Stat, filesystem: u32) -> bool {
        let same = |stat: &Stat| {
            unchanged(old, stat, filesystem)
                || old.kind == tree::Kind::Dir && self.is_above(key, name) && unchanged_but_for_time(old, stat)
        };
        same(stat)
            || old.ino != stat.ino
                && may_have_another_number(old, stat)
                && same(&Stat { ino: old.ino, ..*stat })
                && !self.numbers_last(dir, name, stat.dev)
    }

    /// Whether inode numbers last on the file system of an entry; asked of each once. Of what can't be told they do.
    fn numbers_last(&mut self, dir: &Dir, name: &[u8], dev: u64) -> bool {
        if let Some(known) = self.lasting.get(&dev) {
            return *known;
        }
        let Ok(lasting) = dir.numbers_last(name, dev) else { return true };
        self.lasting.insert(dev, lasting);
        lasting
    }
}

/// Whether nothing but its number and its contents could tell an entry from another of its name: it has one name alone,
/// as those of several are told by their numbers, and it was born when the old one was, as far as the file system
/// knows.
fn may_have_another_number(old: &Meta, stat: &Stat) -> bool {
    old.nlink < 2 && old.btime == stat.btime.map(time)
}

/// Everything that a change would touch. Birth times are not compared, nor devices, which change from one mount to the
/// next. Some file systems say of a file that it has no link at all.
#[inline]
fn unchanged(old: &Meta, stat: &Stat, filesystem: u32) -> bool {
    let kind = kind(stat.kind);
    old.kind == kind
        && old.marks == 0
        && old.ino == stat.ino
        && old.ctime == time(stat.ctime)
        && old.mtime == time(stat.mtime)
        && old.size == size(kind, stat.size)
        && old.mode == stat.mode & 0o7777
        && old.uid == stat.uid
        && old.gid == stat.gid
        && (kind == tree::Kind::Dir
            || old.nlink == stat.nlink.max(1) && (old.nlink < 2 || old.filesystem == filesystem))
}

/// A directory, apart from its times.
fn unchanged_but_for_time(old: &Meta, stat: &Stat) -> bool {
    let entry = (kind(stat.kind), stat.ino, stat.mode & 0o7777, stat.uid, stat.gid);
    (old.kind, old.ino, old.mode, old.uid, old.gid) == entry
}

/// The keys of all directories above these absolute paths that are not in one of them, nor one of them.
fn above(sources: &[Vec<u8>]) -> HashSet<Vec<u8>> {
    let names = |source: &Vec<u8>| -> Vec<Vec<u8>> {
        let names = source.split(|b| *b == b'/').filter(|n| !n.is_empty() && *n != b".");
        names.map(<[u8]>::to_vec).collect()
    };
    let sources: Vec<_> = sources.iter().map(names).collect();
    let mut above = HashSet::new();
    for source in &sources {
        let outside = |dir: &[Vec<u8>]| !sources.iter().any(|other| dir.starts_with(other));
        above.extend((1..source.len()).map(|depth| &source[..depth]).filter(|d| outside(d)).map(|d| d.join(&0)));
    }
    above
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_host::meta;

    const STAT: Stat = Stat {
        kind: meta::Kind::File,
        mode: 0o644,
        uid: 1,
        gid: 2,
        size: 3,
        mtime: meta::Time { sec: 4, nsec: 5 },
        ctime: meta::Time { sec: 6, nsec: 7 },
        btime: None,
        ino: 8,
        dev: 9,
        rdev: 0,
        nlink: 1,
        blocks: 8,
    };

    #[test]
    fn a_file_without_a_link_is_as_it_was() {
        let stat = Stat { nlink: 0, ..STAT };
        assert!(unchanged(&crate::convert::meta(&stat, 0), &stat, 0));
        assert!(!unchanged(&crate::convert::meta(&stat, 0), &Stat { nlink: 2, ..stat }, 0));
    }

    #[test]
    fn another_birth_or_several_names_tell_of_another_file() {
        let born = |sec| Some(meta::Time { sec, nsec: 0 });
        let old = |stat: &Stat| crate::convert::meta(stat, 0);
        let other = Stat { ino: 80, ..STAT };
        assert!(may_have_another_number(&old(&STAT), &other));
        assert!(!may_have_another_number(&old(&Stat { btime: born(1), ..STAT }), &Stat { btime: born(2), ..other }));
        assert!(may_have_another_number(&old(&Stat { btime: born(1), ..STAT }), &Stat { btime: born(1), ..other }));
        // A kernel that has learnt to tell it.
        assert!(!may_have_another_number(&old(&STAT), &Stat { btime: born(2), ..other }));
        assert!(!may_have_another_number(&old(&Stat { nlink: 2, ..STAT }), &Stat { nlink: 2, ..other }));
    }
}
