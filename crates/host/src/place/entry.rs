//! What `statx` says of an entry of the target.

use rustix::fd::BorrowedFd;
use rustix::fs::{self, AtFlags, FileType, Statx, StatxFlags};

use crate::meta::{Kind, Stat, Time};

/// Which inode an entry is: two names with the same id are hard links of one file. Only valid while the target is
/// mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    /// Device that holds the inode.
    pub dev: u64,
    /// Number of the inode.
    pub ino: u64,
}

impl FileId {
    /// The id of the entry that `stat` was taken of.
    pub fn of(stat: &Stat) -> Self {
        FileId { dev: stat.dev, ino: stat.ino }
    }
}

/// Of an open descriptor, `O_PATH` ones included.
pub(super) fn stat_fd(fd: BorrowedFd<'_>) -> rustix::io::Result<Stat> {
    let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    Ok(from_statx(&fs::statx(fd, c"", AtFlags::EMPTY_PATH, mask)?))
}

/// Of the entry `name` in the directory `at`; a symlink is not followed.
pub(super) fn stat_at(at: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<Stat> {
    let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    Ok(from_statx(&fs::statx(at, name, AtFlags::SYMLINK_NOFOLLOW, mask)?))
}

fn from_statx(s: &Statx) -> Stat {
    let time = |t: fs::StatxTimestamp| Time { sec: t.tv_sec, nsec: t.tv_nsec };
    let born = s.stx_mask & StatxFlags::BTIME.bits() != 0;
    let kind = match FileType::from_raw_mode(u32::from(s.stx_mode)) {
        FileType::Directory => Kind::Dir,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::CharacterDevice => Kind::CharDevice,
        FileType::BlockDevice => Kind::BlockDevice,
        _ => Kind::File,
    };
    Stat {
        kind,
        mode: s.stx_mode & 0o7777,
        uid: s.stx_uid,
        gid: s.stx_gid,
        size: s.stx_size,
        mtime: time(s.stx_mtime),
        ctime: time(s.stx_ctime),
        btime: born.then(|| time(s.stx_btime)),
        ino: s.stx_ino,
        dev: fs::makedev(s.stx_dev_major, s.stx_dev_minor),
        rdev: match kind {
            Kind::CharDevice | Kind::BlockDevice => fs::makedev(s.stx_rdev_major, s.stx_rdev_minor),
            _ => 0,
        },
        nlink: s.stx_nlink,
        blocks: s.stx_blocks,
    }
}
