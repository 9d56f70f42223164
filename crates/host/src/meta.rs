//! What a file is, besides its contents: the facts that one `statx` gives, and the extras that cost more calls.
//!
//! Names are bytes. Times are whole seconds since 1970 (may be negative) and nanoseconds (0..1_000_000_000).

/// A point in time as the file system keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Seconds since 1970-01-01T00:00:00Z; negative before.
    pub sec: i64,
    /// Nanoseconds into that second, 0..1_000_000_000.
    pub nsec: u32,
}

/// The type of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A Unix-domain socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

/// What one `statx` call tells of an entry. Plain data: cheap to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The type of the entry.
    pub kind: Kind,
    /// Permission bits with setuid, setgid and sticky (the low 12 bits of `st_mode`).
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length in bytes (regular files), of the target (symlinks), else as the kernel says.
    pub size: u64,
    /// Last change of the contents.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Birth, where the file system keeps it.
    pub btime: Option<Time>,
    /// Inode number.
    pub ino: u64,
    /// Device that holds the inode, as `makedev(major, minor)`. Never stored: only compared within a run.
    pub dev: u64,
    /// Device number of a character or block device, as `makedev(major, minor)`; else 0.
    pub rdev: u64,
    /// Number of hard links.
    pub nlink: u32,
    /// Space in use, in units of 512 bytes. Less than `size` asks for: the file has holes.
    pub blocks: u64,
}

/// The inode flags (`FS_*_FL` of `linux/fs.h`) that a user can set, and that are worth saving: secure deletion 0x1,
/// undelete 0x2, compress 0x4, sync 0x8, immutable 0x10, append-only 0x20, nodump 0x40, noatime 0x80, nocompress 0x400,
/// data journalling 0x4000, notail 0x8000, dirsync 0x1_0000, topdir 0x2_0000, nocow 0x80_0000, DAX 0x200_0000,
/// projinherit 0x2000_0000, casefold 0x4000_0000. All others (extents, index, inline data, …) tell how the file system
/// stores the file.
pub const FLAGS_KEPT: u32 = 0x6283_c4ff;

/// Facts that need calls of their own: read only for entries that are new or whose ctime changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extras {
    /// Extended attributes as (name, value), sorted by name, raw: user, security, system (POSIX ACLs), trusted.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Inode flags as `FS_IOC_GETFLAGS` gives them, only those a user can set (see `FLAGS_KEPT`); 0 where unsupported.
    pub flags: u32,
    /// Target of a symlink, else empty.
    pub target: Vec<u8>,
}
