//! Two trees compared in everything that a restore promises: the judge of all round trips.

mod contents;
mod difference;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{FileType, Statx};

pub use difference::{Difference, What};

use crate::at;
use difference::{bytes, kind_name, time};

/// What to compare. All but holes, by default.
#[derive(Clone, Debug)]
pub struct Options {
    /// Owner and group, by number.
    pub owner: bool,
    /// Times of the last change, to the nanosecond.
    pub mtime: bool,
    /// The same for directories, if `mtime` says so.
    pub dir_mtime: bool,
    /// Permission bits.
    pub mode: bool,
    /// Extended attributes, POSIX ACLs among them.
    pub xattrs: bool,
    /// Settable inode flags.
    pub flags: bool,
    /// The bytes of regular files.
    pub contents: bool,
    /// Which names are links to the same file.
    pub hard_links: bool,
    /// Holes of at least that many bytes (4,096 or more, and rounded to blocks of that size). `None`: not compared.
    pub holes: Option<u64>,
    /// Compare the two given directories themselves too, not only what is in them.
    pub roots: bool,
    /// Names in the top directories that are passed over.
    pub ignore: Vec<Vec<u8>>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            owner: true,
            mtime: true,
            dir_mtime: true,
            mode: true,
            xattrs: true,
            flags: true,
            contents: true,
            hard_links: true,
            holes: None,
            roots: true,
            ignore: Vec::new(),
        }
    }
}

/// Compares two directories entry by entry; empty if they are the same. In the order of a walk, names sorted bytewise.
///
/// What can be read on neither side (as an ordinary user) is passed over; what can be read on one side only is a
/// difference. An error is only a top directory that can't be opened or a listing that fails.
pub fn trees(a: &Path, b: &Path, options: &Options) -> io::Result<Vec<Difference>> {
    at::raise_descriptor_limit();
    let (a_root, b_root) = (at::open_root(a)?, at::open_root(b)?);
    let mut walk =
        Walk { options, found: Vec::new(), path: Vec::new(), first_a: HashMap::new(), first_b: HashMap::new() };
    if options.roots {
        let (x, y) = (at::stat(a_root.as_fd(), b".")?, at::stat(b_root.as_fd(), b".")?);
        walk.attributes(a_root.as_fd(), b_root.as_fd(), b".", &x, &y);
    }
    walk.dir(a_root.as_fd(), b_root.as_fd())?;
    Ok(walk.found)
}

/// Fails the test with all differences listed, if there are any.
#[track_caller]
pub fn assert_same(a: &Path, b: &Path, options: &Options) {
    match trees(a, b, options) {
        Ok(found) if found.is_empty() => {}
        Ok(found) => {
            let lines: Vec<String> = found.iter().take(50).map(ToString::to_string).collect();
            panic!("{} differences between {} and {}:\n{}", found.len(), a.display(), b.display(), lines.join("\n"));
        }
        Err(e) => panic!("can't compare {} and {}: {e}", a.display(), b.display()),
    }
}

type Inode = (u32, u32, u64);

struct Walk<'a> {
    options: &'a Options,
    found: Vec<Difference>,
    /// Of the current directory, components joined by slashes.
    path: Vec<u8>,
    /// The first name met of each file that has several.
    first_a: HashMap<Inode, Vec<u8>>,
    first_b: HashMap<Inode, Vec<u8>>,
}

impl Walk<'_> {
    fn dir(&mut self, a: BorrowedFd<'_>, b: BorrowedFd<'_>) -> io::Result<()> {
        let (mut left, mut right) = (at::names(a)?, at::names(b)?);
        if self.path.is_empty() {
            left.retain(|n| !self.options.ignore.contains(n));
            right.retain(|n| !self.options.ignore.contains(n));
        }
        let (mut i, mut j) = (0, 0);
        while i < left.len() || j < right.len() {
            match (left.get(i), right.get(j)) {
                (Some(x), Some(y)) if x == y => {
                    self.entry(a, b, x)?;
                    (i, j) = (i + 1, j + 1);
                }
                (Some(x), y) if y.is_none_or(|y| x < y) => {
                    self.differ(x, What::Presence, "there".into(), "missing".into());
                    i += 1;
                }
                (_, Some(y)) => {
                    self.differ(y, What::Presence, "missing".into(), "there".into());
                    j += 1;
                }
                _ => break,
            }
        }
        Ok(())
    }

    fn entry(&mut self, a: BorrowedFd<'_>, b: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
        let (x, y) = (at::stat(a, name)?, at::stat(b, name)?);
        if at::kind(&x) != at::kind(&y) {
            self.differ(name, What::Kind, kind_name(at::kind(&x)), kind_name(at::kind(&y)));
            return Ok(());
        }
        self.attributes(a, b, name, &x, &y);
        self.hard_links(name, &x, &y);
        match at::kind(&x) {
            FileType::RegularFile => self.file(a, b, name, &x, &y),
            FileType::Directory => {
                let opened = (at::open_dir(a, name), at::open_dir(b, name));
                let Some((x, y)) = self.both(name, opened) else { return Ok(()) };
                let parent = self.path.len();
                self.path = self.path_of(name);
                self.dir(x.as_fd(), y.as_fd())?;
                self.path.truncate(parent);
            }
            FileType::Symlink => {
                let read = |at: BorrowedFd<'_>| -> io::Result<_> {
                    Ok(rustix::fs::readlinkat(at, name, Vec::new())?.into_bytes())
                };
                let Some((x, y)) = self.both(name, (read(a), read(b))) else { return Ok(()) };
                if x != y {
                    self.differ(name, What::Target, bytes(&x), bytes(&y));
                }
            }
            FileType::CharacterDevice | FileType::BlockDevice => {
                let device = |s: &Statx| format!("{}:{}", s.stx_rdev_major, s.stx_rdev_minor);
                if device(&x) != device(&y) {
                    self.differ(name, What::Device, device(&x), device(&y));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn attributes(&mut self, a: BorrowedFd<'_>, b: BorrowedFd<'_>, name: &[u8], x: &Statx, y: &Statx) {
        let kind = at::kind(x);
        if self.options.mode && kind != FileType::Symlink && (x.stx_mode ^ y.stx_mode) & 0o7777 != 0 {
            let mode = |s: &Statx| format!("{:04o}", s.stx_mode & 0o7777);
            self.differ(name, What::Mode, mode(x), mode(y));
        }
        if self.options.owner && (x.stx_uid, x.stx_gid) != (y.stx_uid, y.stx_gid) {
            let owner = |s: &Statx| format!("{}:{}", s.stx_uid, s.stx_gid);
            self.differ(name, What::Owner, owner(x), owner(y));
        }
        let timed = self.options.mtime && (kind != FileType::Directory || self.options.dir_mtime);
        if timed && time(x) != time(y) {
            self.differ(name, What::Mtime, time(x), time(y));
        }
        if self.options.xattrs
            && let Some((x, y)) = self.both(name, (at::xattrs(a, name), at::xattrs(b, name)))
        {
            self.xattrs(name, &x, &y);
        }
        if self.options.flags && matches!(kind, FileType::RegularFile | FileType::Directory) {
            let read = |at| at::open(at, name).and_then(|fd| at::flags(fd.as_fd()));
            if let Some((x, y)) = self.both(name, (read(a), read(b)))
                && x != y
            {
                self.differ(name, What::Flags, format!("{x:#x}"), format!("{y:#x}"));
            }
        }
    }

    fn xattrs(&mut self, name: &[u8], x: &at::Xattrs, y: &at::Xattrs) {
        let value = |all: &at::Xattrs, key: &[u8]| {
            let found = all.iter().find(|(k, _)| k == key);
            found.map_or("missing".to_owned(), |(_, v)| bytes(v))
        };
        let mut keys: Vec<&[u8]> = x.iter().chain(y).map(|(k, _)| k.as_slice()).collect();
        keys.sort();
        keys.dedup();
        for key in keys {
            let pair = |all: &at::Xattrs| all.iter().find(|(k, _)| k == key).map(|(_, v)| v.clone());
            if pair(x) != pair(y) {
                self.differ(name, What::Xattr(key.to_vec()), value(x, key), value(y, key));
            }
        }
    }

    /// Two trees are linked alike if each name's first-met link has the same path in both.
    fn hard_links(&mut self, name: &[u8], x: &Statx, y: &Statx) {
        if !self.options.hard_links || at::kind(x) == FileType::Directory || (x.stx_nlink < 2 && y.stx_nlink < 2) {
            return;
        }
        let path = self.path_of(name);
        let inode = |s: &Statx| (s.stx_dev_major, s.stx_dev_minor, s.stx_ino);
        let first_a = self.first_a.entry(inode(x)).or_insert_with(|| path.clone()).clone();
        let first_b = self.first_b.entry(inode(y)).or_insert_with(|| path.clone()).clone();
        if first_a != first_b {
            self.differ(name, What::HardLink, bytes(&first_a), bytes(&first_b));
        }
    }

    fn file(&mut self, a: BorrowedFd<'_>, b: BorrowedFd<'_>, name: &[u8], x: &Statx, y: &Statx) {
        if x.stx_size != y.stx_size {
            self.differ(name, What::Size, x.stx_size.to_string(), y.stx_size.to_string());
            return;
        }
        if !self.options.contents && self.options.holes.is_none() {
            return;
        }
        let Some((left, right)) = self.both(name, (at::open(a, name), at::open(b, name))) else { return };
        let (left, right) = (std::fs::File::from(left), std::fs::File::from(right));
        if self.options.contents {
            match contents::first_difference(&left, &right, x.stx_size) {
                Ok(None) => {}
                Ok(Some(at)) => {
                    let at = format!("offset {at}");
                    self.differ(name, What::Contents, at.clone(), at);
                }
                Err(e) => self.differ(name, What::Unreadable, e.to_string(), e.to_string()),
            }
        }
        if let Some(min) = self.options.holes {
            let holes = |file| contents::holes(file, x.stx_size, min);
            if let Some((x, y)) = self.both(name, (holes(&left), holes(&right)))
                && x != y
            {
                self.differ(name, What::Holes, format!("{x:?}"), format!("{y:?}"));
            }
        }
    }

    /// Both values, or nothing: then one side could not be read, which is a difference if the other could.
    fn both<T>(&mut self, name: &[u8], pair: (io::Result<T>, io::Result<T>)) -> Option<(T, T)> {
        match pair {
            (Ok(x), Ok(y)) => Some((x, y)),
            (Err(_), Err(_)) => None,
            (x, y) => {
                let say = |r: io::Result<T>| r.err().map_or("readable".to_owned(), |e| e.to_string());
                self.differ(name, What::Unreadable, say(x), say(y));
                None
            }
        }
    }

    fn differ(&mut self, name: &[u8], what: What, a: String, b: String) {
        let path = self.path_of(name);
        self.found.push(Difference { path, what, a, b });
    }

    fn path_of(&self, name: &[u8]) -> Vec<u8> {
        let mut path = self.path.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        path
    }
}
