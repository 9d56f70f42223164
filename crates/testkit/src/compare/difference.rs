//! A difference, in words.

use std::fmt;

use rustix::fs::{FileType, Statx};

/// One thing in which two trees differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Path from the top directories on, components joined by slashes; `.` is those themselves.
    pub path: Vec<u8>,
    /// In what.
    pub what: What,
    /// How it is in the first tree, in words.
    pub a: String,
    /// How it is in the second.
    pub b: String,
}

/// What may differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The entry is there in one tree only.
    Presence,
    /// The type.
    Kind,
    /// Permission bits.
    Mode,
    /// Owner or group.
    Owner,
    /// Time of the last change.
    Mtime,
    /// The extended attribute of that name.
    Xattr(Vec<u8>),
    /// Inode flags.
    Flags,
    /// Length.
    Size,
    /// Bytes.
    Contents,
    /// Where the holes are.
    Holes,
    /// Target of a symlink.
    Target,
    /// Number of a device.
    Device,
    /// Which other name is the same file: the first one met, in words of each tree.
    HardLink,
    /// It can be read in one tree only.
    Unreadable,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            What::Presence => "presence",
            What::Kind => "type",
            What::Mode => "mode",
            What::Owner => "owner",
            What::Mtime => "mtime",
            What::Xattr(name) => return write!(f, "attribute {}", name.escape_ascii()),
            What::Flags => "flags",
            What::Size => "size",
            What::Contents => "contents",
            What::Holes => "holes",
            What::Target => "target",
            What::Device => "device",
            What::HardLink => "hard link",
            What::Unreadable => "readability",
        })
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {} | {}", bytes(&self.path), self.what, self.a, self.b)
    }
}

/// Readable, and not endless.
pub(super) fn bytes(value: &[u8]) -> String {
    const SHOWN_MAX: usize = 200;
    match value.len() {
        0..=SHOWN_MAX => format!("'{}'", value.escape_ascii()),
        n => {
            let (start, end) = (&value[..SHOWN_MAX / 2], &value[n - SHOWN_MAX / 2..]);
            format!("'{}…{}' ({n} bytes)", start.escape_ascii(), end.escape_ascii())
        }
    }
}

pub(super) fn time(stat: &Statx) -> String {
    format!("{} s {} ns", stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec)
}

pub(super) fn kind_name(kind: FileType) -> String {
    match kind {
        FileType::RegularFile => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::Fifo => "pipe",
        FileType::Socket => "socket",
        FileType::CharacterDevice => "character device",
        FileType::BlockDevice => "block device",
        FileType::Unknown => "unknown",
    }
    .to_owned()
}
