//! The tree of a snapshot: entries ordered by (directory, name), cut into leaves by content, under inner nodes.
//!
//! Each leaf is two chunks: the *leaf* proper holds names and what a change test needs, its *body* holds what leads to
//! the contents. A run that finds nothing changed reads leaves alone; new timestamps rewrite leaves alone.
//!
//! A directory is written as its components joined by zero bytes, the root as the empty string. Then plain comparison
//! of (directory, name) as byte strings is the tree's order: all names of a directory together, then the contents of
//! its subdirectories in turn. The root itself has no entry.

mod body;
mod boundary;
mod inner;
mod leaf;
mod list;
mod xattrs;

pub use body::{Body, Content, Data};
pub use boundary::Boundaries;
pub use inner::{Child, Inner, LEVEL_MAX};
pub use leaf::{Leaf, Owners};
pub use list::{HOLE_BEHIND_HOLE, INLINE_REFS_MAX, List, ListNode, Ref};
pub use xattrs::Xattrs;

use crate::Result;
use crate::wire::Reader;
use minicbor::{Decode, Encode};

/// The most entries that a leaf, or children that a node may have.
pub const NODE_ENTRIES_MAX: usize = 8192;
/// The longest name of an entry, in bytes. Linux allows 255; other systems some more.
pub const NAME_BYTES_MAX: usize = 1024;
/// The longest directory path, in bytes.
pub const DIR_BYTES_MAX: usize = 1 << 20;
/// The longest chunk of a tree pack, in bytes.
pub const TREE_CHUNK_BYTES_MAX: usize = 8 << 20;
/// The most bytes of text that a leaf (each run's directory once, and all names) or an inner node (directories and
/// names of all children) may stand for: shared prefixes could otherwise make gigabytes of a small chunk.
pub const NODE_TEXT_MAX: usize = 4 << 20;
/// The most extended attributes in all the sets of a body together.
pub const BODY_XATTRS_MAX: usize = 64 << 10;

/// The first byte of each kind of node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NodeKind {
    /// Names and metadata of entries.
    Leaf = 1,
    /// What leads to their contents.
    Body = 2,
    /// What leads to leaves, or to nodes like this one.
    Inner = 3,
    /// A part of a long list of chunks.
    List = 4,
}

impl NodeKind {
    /// What a node says it is; whether the rest of it is, its decoder tells. `None`: nothing that is known here.
    pub fn of(node: &[u8]) -> Option<Self> {
        [NodeKind::Leaf, NodeKind::Body, NodeKind::Inner, NodeKind::List]
            .into_iter()
            .find(|kind| node.first() == Some(&(*kind as u8)))
    }
}

/// A reader of the chunk of a node, its kind read and checked.
fn read_node<'b>(bytes: &'b [u8], kind: NodeKind, object: &'static str) -> Result<Reader<'b>> {
    let mut r = Reader::new(bytes, object);
    if bytes.len() > TREE_CHUNK_BYTES_MAX {
        return r.fail("it is too long");
    }
    if r.u8()? != kind as u8 {
        return r.fail("it is a node of another kind");
    }
    Ok(r)
}

/// A point in time: seconds since 1970 and nanoseconds (below 1,000,000,000).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Seconds since 1970; negative before.
    pub sec: i64,
    /// Nanoseconds into that second.
    pub nsec: u32,
}

/// The type of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A regular file.
    File = 0,
    /// A directory.
    Dir = 1,
    /// A symbolic link.
    Symlink = 2,
    /// A named pipe.
    Fifo = 3,
    /// A Unix-domain socket.
    Socket = 4,
    /// A character device.
    CharDevice = 5,
    /// A block device.
    BlockDevice = 6,
}

impl Kind {
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        use Kind::*;
        [File, Dir, Symlink, Fifo, Socket, CharDevice, BlockDevice].into_iter().find(|k| *k as u8 == number)
    }
}

/// Facts about an entry that the backup found out: a set of bits.
pub mod marks {
    /// The contents could not be read: they are not in the snapshot.
    pub const CONTENTS_MISSING: u8 = 1;
    /// The file changed while it was read: its contents are a mixture.
    pub const CHANGED_WHILE_READ: u8 = 2;
    /// The last change was so near to the reading that a later one may bear the same time: the next run reads again.
    pub const RACY: u8 = 4;
    /// All that this version knows.
    pub const KNOWN: u8 = CONTENTS_MISSING | CHANGED_WHILE_READ | RACY;
}

/// What a leaf keeps of an entry besides its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// The type.
    pub kind: Kind,
    /// Permission bits with setuid, setgid and sticky: the low 12 bits of `st_mode`.
    pub mode: u16,
    /// [`marks`].
    pub marks: u8,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length of a file's contents or of a symlink's target in bytes; 0 for the rest.
    pub size: u64,
    /// Last change of the contents.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Birth, where it is known.
    pub btime: Option<Time>,
    /// Inode number, for the change test and to tell hard links.
    pub ino: u64,
    /// How many hard links the file had; 1 for directories.
    pub nlink: u32,
    /// For entries with several hard links: which file system, counted in the order of the tree. Never a device number,
    /// which may change from one mount to the next.
    pub filesystem: u32,
    /// Device number of a device; else 0.
    pub rdev: u64,
}

/// What a part of the tree holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Sums {
    /// Entries of any type.
    #[n(0)]
    pub entries: u64,
    /// Regular files.
    #[n(1)]
    pub files: u64,
    /// Directories.
    #[n(2)]
    pub dirs: u64,
    /// Lengths of the regular files together, in bytes.
    #[n(3)]
    pub bytes: u64,
}

impl Sums {
    /// Count one entry.
    pub fn add_entry(&mut self, meta: &Meta) {
        self.entries += 1;
        match meta.kind {
            Kind::File => {
                self.files += 1;
                self.bytes = self.bytes.saturating_add(meta.size);
            }
            Kind::Dir => self.dirs += 1,
            _ => {}
        }
    }

    /// Count all of another part.
    pub fn add(&mut self, other: &Sums) {
        self.entries = self.entries.saturating_add(other.entries);
        self.files = self.files.saturating_add(other.files);
        self.dirs = self.dirs.saturating_add(other.dirs);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// Whether bytes can be an entry's name: not empty, not `.` or `..`, no `/` and no zero byte in it.
pub fn is_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && name != b"."
        && name != b".."
        && !name.iter().any(|b| *b == b'/' || *b == 0)
}

/// Whether bytes can be a directory: empty, or names joined by zero bytes.
pub fn is_dir_path(dir: &[u8]) -> bool {
    dir.is_empty() || dir.len() <= DIR_BYTES_MAX && dir.split(|b| *b == 0).all(is_name)
}

/// The directory that the entry `name` of `dir` is.
pub fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, &[0], name].concat() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_listing_first_then_subdirectories() {
        let mut keys: Vec<(&[u8], &[u8])> =
            vec![(b"a\0b", b"x"), (b"a", b"z"), (b"", b"b"), (b"a-", b"q"), (b"a", b"b"), (b"", b"a"), (b"", b"a-")];
        keys.sort();
        let expected: Vec<(&[u8], &[u8])> =
            vec![(b"", b"a"), (b"", b"a-"), (b"", b"b"), (b"a", b"b"), (b"a", b"z"), (b"a\0b", b"x"), (b"a-", b"q")];
        assert_eq!(keys, expected);
    }

    #[test]
    fn names_that_lead_elsewhere_are_no_names() {
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0b", &[b'x'; 1025]] {
            assert!(!is_name(bad), "{bad:?}");
        }
        assert!(is_name(b"...") && is_name(b"\xff\n") && is_name(&[b'x'; 255]));
        for bad in [&b"\0"[..], b"a\0", b"\0a", b"a\0..\0b", b"a\0\0b"] {
            assert!(!is_dir_path(bad), "{bad:?}");
        }
        assert!(is_dir_path(b"") && is_dir_path(b"a\0b"));
        assert_eq!(join(b"", b"a"), b"a");
        assert_eq!(join(b"a", b"b"), b"a\0b");
    }
}
