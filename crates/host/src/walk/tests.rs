//! What the walk promises, against a plain recursive reading of the same tree.

mod faults;
mod shape;
mod sources;
mod speed;

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use crate::filter::{Filter, FilterOptions, Pattern};

use super::listing::{Excluded, WalkError};
use super::{Crew, Options, Walk};

/// A directory as the walk gave it, its parts put together.
#[derive(Debug, Default)]
pub(super) struct Listed {
    pub(super) path: Vec<u8>,
    /// Name, inode, size.
    pub(super) entries: Vec<(Vec<u8>, u64, u64)>,
    pub(super) errors: Vec<WalkError>,
    pub(super) vanished: u64,
    pub(super) excluded: Excluded,
    pub(super) complete: bool,
    pub(super) parts: usize,
}

impl Listed {
    pub(super) fn names(&self) -> Vec<&str> {
        self.entries.iter().map(|e| std::str::from_utf8(&e.0).unwrap_or("?")).collect()
    }
}

/// Consumes a walk and checks all that must hold of any.
pub(super) fn collect(walk: &mut Walk, part_max: usize) -> Vec<Listed> {
    let mut all: Vec<Listed> = Vec::new();
    let mut last_key: Option<Vec<u8>> = None;
    let mut within = false;
    while let Some(mut listing) = walk.next() {
        assert!(listing.len() <= part_max, "{} entries in a part", listing.len());
        assert_eq!(listing.is_first(), !within, "parts of {:?}", String::from_utf8_lossy(listing.path()));
        if listing.is_first() {
            let mut key = Vec::new();
            listing.dir().key(&mut key);
            assert!(last_key.as_ref().is_none_or(|last| *last < key), "order of directories");
            last_key = Some(key);
            all.push(Listed { path: listing.path().to_vec(), complete: true, ..Listed::default() });
        }
        within = !listing.is_last();
        let dir = all.last_mut().expect("a first part");
        assert_eq!(dir.path, listing.path(), "parts of different directories are mixed");
        for (i, entry) in listing.iter().enumerate() {
            assert_eq!(listing.get(i), Some(entry));
            assert!(dir.entries.last().is_none_or(|e| e.0.as_slice() < entry.name), "order of names");
            dir.entries.push((entry.name.to_vec(), entry.stat.ino, entry.stat.size));
        }
        assert!(listing.get(listing.len()).is_none());
        dir.vanished += listing.vanished();
        dir.excluded.add(listing.excluded());
        dir.complete &= listing.is_complete();
        dir.parts += 1;
        dir.errors.append(&mut listing.take_errors());
    }
    assert!(!within, "the last part of a directory is missing");
    all
}

pub(super) fn options(sources: &[&Path]) -> Options {
    Options { sources: sources.iter().map(|p| p.as_os_str().as_bytes().to_vec()).collect(), ..Options::default() }
}

pub(super) fn walk(options: Options) -> Vec<Listed> {
    walk_filtered(options, Filter::none())
}

pub(super) fn walk_filtered(options: Options, filter: Filter) -> Vec<Listed> {
    let part_max = options.part_entries_max;
    collect(&mut Walk::start(options, Arc::new(filter)).expect("threads"), part_max)
}

pub(super) fn excluding(patterns: &[&str]) -> Filter {
    let exclude = patterns.iter().map(|p| Pattern::flag(*p)).collect();
    Filter::new(&FilterOptions { exclude, ..FilterOptions::default() }).expect("patterns")
}

/// The listings below `path`, itself included, as the recursive model has them.
pub(super) fn model(path: &Path) -> Vec<Listed> {
    let mut dir = Listed { path: path.as_os_str().as_bytes()[1..].to_vec(), complete: true, ..Listed::default() };
    let mut below = Vec::new();
    let mut names: Vec<_> = std::fs::read_dir(path).expect("read_dir").map(|e| e.expect("entry").file_name()).collect();
    names.sort();
    for name in names {
        let meta = std::fs::symlink_metadata(path.join(&name)).expect("stat");
        if meta.is_dir() {
            below.push(path.join(&name));
        }
        dir.entries.push((name.into_vec(), meta.ino(), meta.len()));
    }
    let mut all = vec![dir];
    for path in below {
        all.append(&mut model(&path));
    }
    all
}

/// Those of `all` at and below `path`.
pub(super) fn below<'a>(all: &'a [Listed], path: &Path) -> Vec<&'a Listed> {
    let top = &path.as_os_str().as_bytes()[1..];
    let is_below = |p: &[u8]| p.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"));
    all.iter().filter(|l| is_below(&l.path)).collect()
}

pub(super) fn assert_same(got: &[&Listed], want: &[Listed]) {
    let show = |l: &Listed| String::from_utf8_lossy(&l.path).into_owned();
    assert_eq!(
        got.iter().map(|l| show(l)).collect::<Vec<_>>(),
        want.iter().map(show).collect::<Vec<_>>(),
        "directories"
    );
    for (got, want) in got.iter().zip(want) {
        assert_eq!(got.entries, want.entries, "entries of {}", show(want));
        assert!(got.errors.is_empty() && got.complete && got.vanished == 0, "{got:?}");
    }
}

/// A small generator, so that a seed names a tree.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }
}

/// Fills `path` with a random tree of about `budget` entries, with names that try the order.
pub(super) fn grow(path: &Path, dice: &mut Dice, budget: &mut i64, depth: u32) {
    let letters = b"ab.-/ 0\x01\x7f\x80\xff\n"; // the slash is replaced below
    let count = if dice.roll(8) == 0 { 20 + dice.roll(90) } else { dice.roll(9) };
    for _ in 0..count {
        if *budget <= 0 {
            return;
        }
        let length = if dice.roll(20) == 0 { 200 } else { 1 + dice.roll(12) };
        let name: Vec<u8> = (0..length)
            .map(|_| match letters[dice.roll(letters.len() as u64) as usize] {
                b'/' => b'!',
                b => b,
            })
            .collect();
        let path = path.join(std::ffi::OsStr::from_bytes(&name));
        if name == b"." || name == b".." || path.symlink_metadata().is_ok() {
            continue;
        }
        *budget -= 1;
        match dice.roll(6) {
            0..=2 if depth < 7 => {
                std::fs::create_dir(&path).expect("mkdir");
                grow(&path, dice, budget, depth + 1);
            }
            3 => std::os::unix::fs::symlink("..", &path).expect("symlink"),
            _ => std::fs::write(&path, vec![0; dice.roll(50) as usize]).expect("write"),
        }
    }
}

/// A directory in memory where there is one: many small files cost little there.
pub(super) fn quick_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory")
}
