//! The system calls that a walk is made of, each one call and no allocation; and those by which files are opened and
//! their contents fetched.
//!
//! `unsafe` is kept to four places here: two for which the safe ways copy or scan more than a walk can afford, and two
//! calls that have none. Paths are bytes without a leading slash, relative to `/`; every helper works for paths beyond
//! `PATH_MAX`.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags, StatxTimestamp};
use rustix::io::Errno;

use crate::meta::{Kind, Stat, Time};

/// What a path is handed to the kernel in at most: below `PATH_MAX` (4096, the NUL included).
const STEP_MAX: usize = 4000;

/// Flags for opening a directory to list it; `O_NOFOLLOW` and `O_NOATIME` come on top.
pub(crate) const DIR_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Whether a last component that is a symlink is looked through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follow {
    No,
    Yes,
}

fn kind_of(mode: u16) -> Option<Kind> {
    Some(match u32::from(mode) & libc::S_IFMT {
        libc::S_IFREG => Kind::File,
        libc::S_IFDIR => Kind::Dir,
        libc::S_IFLNK => Kind::Symlink,
        libc::S_IFIFO => Kind::Fifo,
        libc::S_IFSOCK => Kind::Socket,
        libc::S_IFCHR => Kind::CharDevice,
        libc::S_IFBLK => Kind::BlockDevice,
        _ => return None,
    })
}

fn time(t: &StatxTimestamp) -> Time {
    // A damaged inode may say more than there are in a second.
    Time { sec: t.tv_sec, nsec: t.tv_nsec.min(999_999_999) }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// `statx` of `name_nul` (a name with its NUL) below `dir`; an empty name means `dir` itself.
#[inline]
pub(crate) fn stat_at(dir: BorrowedFd<'_>, name_nul: &[u8], follow: Follow) -> Result<Stat, Errno> {
    if name_nul.last() != Some(&0) {
        return Err(Errno::INVAL);
    }
    #[cfg(test)]
    fault::before(name_nul)?;
    let mut flags = AtFlags::NO_AUTOMOUNT;
    if follow == Follow::No {
        flags |= AtFlags::SYMLINK_NOFOLLOW;
    }
    if name_nul.len() == 1 {
        flags |= AtFlags::EMPTY_PATH;
    }
    // SAFETY: it ends with a NUL, as checked above; an earlier one would only make the name shorter for the kernel.
    let name = unsafe { CStr::from_bytes_with_nul_unchecked(name_nul) };
    let s = rustix::fs::statx(dir, name, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME)?;
    Ok(Stat {
        kind: kind_of(s.stx_mode).ok_or(Errno::INVAL)?,
        mode: s.stx_mode & 0o7777,
        uid: s.stx_uid,
        gid: s.stx_gid,
        size: s.stx_size,
        mtime: time(&s.stx_mtime),
        ctime: time(&s.stx_ctime),
        btime: (s.stx_mask & StatxFlags::BTIME.bits() != 0).then(|| time(&s.stx_btime)),
        ino: s.stx_ino,
        dev: rustix::fs::makedev(s.stx_dev_major, s.stx_dev_minor),
        rdev: rustix::fs::makedev(s.stx_rdev_major, s.stx_rdev_minor),
        nlink: s.stx_nlink,
        blocks: s.stx_blocks,
    })
}

/// One `getdents64` into `buf`; 0 is the end.
pub(crate) fn getdents(dir: BorrowedFd<'_>, buf: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: the kernel writes at most `buf.len()` bytes to `buf`, which outlives the call.
    let n = unsafe { libc::syscall(libc::SYS_getdents64, dir.as_raw_fd(), buf.as_mut_ptr(), buf.len()) };
    usize::try_from(n).map_err(|_| last_errno())
}

/// Begin to write out what of a file is dirty; nothing is synced, and nothing waited for: whoever waits takes the
/// failures of earlier writes with him, which are for those who sync.
pub(crate) fn write_out(file: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: no memory is handed over, and the descriptor is open as long as it is borrowed.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) } {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}

/// Whether anybody has a file open for writing, who may have mapped it: while this is so nobody gets a lease for
/// reading it. The file is open for reading alone.
pub(crate) fn has_writer(file: BorrowedFd<'_>) -> Result<bool, Errno> {
    /// From `asm-generic/fcntl.h`; the `libc` crate doesn't have it.
    const F_SETSIG: i32 = 10;
    let fcntl = |command: i32, argument: i32| {
        // SAFETY: a call that takes numbers alone, on a descriptor that is open as long as it is borrowed.
        match unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } {
            -1 => Err(last_errno()),
            _ => Ok(()),
        }
    };
    // Whoever opens it for writing while the lease stands has us told, and the usual signal ends the program: this one
    // is ignored.
    fcntl(F_SETSIG, libc::SIGURG)?;
    match fcntl(libc::F_SETLEASE, libc::F_RDLCK) {
        Ok(()) => fcntl(libc::F_SETLEASE, libc::F_UNLCK).map(|()| false),
        Err(Errno::AGAIN) => Ok(true),
        Err(e) => Err(e),
    }
}

/// Where the name stands in a record of `getdents64`.
pub(crate) const NAME_AT: usize = 19;

/// The records that `getdents` left in a buffer, as (offset of the name, length of the name); `.` and `..` are left
/// out.
///
/// A record is inode (8), offset (8), length (2), type (1), then the name with its NUL, filled up to a multiple of 8:
/// so the NUL is the first zero byte of the last eight that belongs to the name.
pub(crate) struct Dirents<'a> {
    pub(crate) buf: &'a [u8],
    pub(crate) at: usize,
}

impl Iterator for Dirents<'_> {
    type Item = (usize, usize);

    #[inline]
    fn next(&mut self) -> Option<(usize, usize)> {
        loop {
            let rec = self.buf.get(self.at..)?;
            let len = usize::from(u16::from_ne_bytes([*rec.get(16)?, *rec.get(17)?]));
            let tail = u64::from_le_bytes(rec.get(len.checked_sub(8)?..len)?.try_into().ok()?);
            let name_at = self.at + NAME_AT;
            let tail_at = len - 8;
            // Bytes of the tail that lie before the name (a record of 24 bytes) must not count as zero.
            let shield = if tail_at < NAME_AT { (1u64 << (8 * (NAME_AT - tail_at).min(7))) - 1 } else { 0 };
            let tail = tail | shield;
            let zeros = tail.wrapping_sub(0x0101_0101_0101_0101) & !tail & 0x8080_8080_8080_8080;
            let end = self.at + tail_at + (zeros.trailing_zeros() / 8) as usize;
            self.at += len;
            let name_len = end.checked_sub(name_at)?;
            match &rec[NAME_AT..NAME_AT + name_len] {
                b"." | b".." | b"" => continue,
                _ => return Some((name_at, name_len)),
            }
        }
    }
}

/// Opens the directory at `path` (components joined by `/`, relative to the root). Symlinks are followed within the
/// first `follow` bytes of the path only; beyond them any symlink is an error.
pub(crate) fn open_dir_path(path: &[u8], follow: usize) -> Result<OwnedFd, Errno> {
    let (before, after) = path.split_at(follow.min(path.len()));
    let mut fd = open_retry(|| rustix::fs::openat(CWD, c"/", DIR_FLAGS, Mode::empty()))?;
    for step in steps(before) {
        let step = CString::new(step).map_err(|_| Errno::INVAL)?;
        fd = open_way(|flags| rustix::fs::openat(&fd, &step, flags, Mode::empty()), DIR_FLAGS)?;
    }
    for step in steps(after) {
        fd = open_steadfast(fd.as_fd(), step)?;
    }
    Ok(fd)
}

/// Cuts a path at slashes into pieces that the kernel takes.
fn steps(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = path;
    std::iter::from_fn(move || {
        while let [b'/', tail @ ..] = rest {
            rest = tail;
        }
        if rest.is_empty() {
            return None;
        }
        let mut end = rest.len();
        if end > STEP_MAX {
            end = rest[..STEP_MAX].iter().rposition(|&b| b == b'/').unwrap_or(STEP_MAX);
        }
        let (step, tail) = rest.split_at(end);
        rest = tail;
        Some(step)
    })
}

/// Opens a directory some components below, refusing every symlink on the way.
fn open_steadfast(dir: BorrowedFd<'_>, step: &[u8]) -> Result<OwnedFd, Errno> {
    let path = CString::new(step).map_err(|_| Errno::INVAL)?;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::BENEATH;
    // EAGAIN: a rename elsewhere made the kernel unsure that it had stayed beneath.
    for _ in 0..16 {
        match open_retry(|| rustix::fs::openat2(dir, &path, DIR_FLAGS, Mode::empty(), resolve)) {
            Err(Errno::AGAIN) => continue,
            // Kernels before 5.6, and sandboxes that don't know the call.
            Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => break,
            other => return other,
        }
    }
    let mut fd: Option<OwnedFd> = None;
    for name in step.split(|&b| b == b'/').filter(|n| !n.is_empty()) {
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        let at = fd.as_ref().map_or(dir, |fd| fd.as_fd());
        fd = Some(open_retry(|| rustix::fs::openat(at, &name, DIR_FLAGS | OFlags::NOFOLLOW, Mode::empty()))?);
    }
    fd.ok_or(Errno::INVAL)
}

/// Opens a directory on the way to others: one that may be entered and not listed (`/home` of mode 0711, or on a server
/// that maps root to nobody) as a path, by which others in it can be found.
pub(crate) fn open_way<T>(open: impl Fn(OFlags) -> Result<T, Errno>, flags: OFlags) -> Result<T, Errno> {
    match open_retry(|| open(flags)) {
        Err(Errno::ACCESS) => {
            let path = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            open_retry(|| open(path | (flags & OFlags::NOFOLLOW)))
        }
        other => other,
    }
}

/// Repeats an open that a signal interrupted, or that found the process or the system out of descriptors: those are
/// bounded here, so others will return theirs soon. Gives up after about a second.
pub(crate) fn open_retry<T>(mut open: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    let mut tries = 0;
    loop {
        match open() {
            Err(Errno::INTR) => {}
            Err(Errno::MFILE | Errno::NFILE) if tries < 100 => {
                tries += 1;
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            other => return other,
        }
    }
}

/// Faults and delays for tests, chosen by name, so that tests don't disturb one another.
#[cfg(test)]
pub(crate) mod fault {
    use rustix::io::Errno;

    /// A name with `~eio~` can't be looked at; one with `~slow~` takes 5 ms, and one with `~dead~` a minute.
    pub(crate) fn before(name: &[u8]) -> Result<(), Errno> {
        let has = |what: &[u8]| name.windows(what.len()).any(|w| w == what);
        if name.len() < 6 || !name.contains(&b'~') {
            return Ok(());
        }
        if has(b"~eio~") {
            return Err(Errno::IO);
        }
        if has(b"~gone~") {
            return Err(Errno::NOENT);
        }
        if has(b"~slow~") {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        if has(b"~dead~") {
            std::thread::sleep(std::time::Duration::from_secs(60));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &[u8], junk: u8) -> Vec<u8> {
        let len = (19 + name.len() + 1).next_multiple_of(8);
        let mut rec = vec![0u8; 16];
        rec.extend_from_slice(&(len as u16).to_ne_bytes());
        rec.push(8);
        rec.extend_from_slice(name);
        rec.push(0);
        rec.resize(len, junk);
        rec
    }

    #[test]
    fn records_of_every_length() {
        for junk in [0, 1, 0x7f, 0x80, 0xff] {
            let names: Vec<Vec<u8>> =
                (1..=255usize).flat_map(|n| [vec![1u8; n], vec![0x80; n], vec![0xff; n]]).collect();
            let mut buf = Vec::new();
            buf.extend(record(b".", junk));
            for n in &names {
                buf.extend(record(n, junk));
            }
            buf.extend(record(b"..", junk));
            let got: Vec<&[u8]> = Dirents { buf: &buf, at: 0 }.map(|(at, len)| &buf[at..at + len]).collect();
            assert_eq!(got, names, "padding {junk:#x}");
        }
    }

    #[test]
    fn cut_records_end_the_listing() {
        let whole = [record(b"one", 0), record(b"a-second-name", 0)].concat();
        for cut in 0..whole.len() {
            assert!(Dirents { buf: &whole[..cut], at: 0 }.count() <= 1);
        }
        assert_eq!(Dirents { buf: &[0; 64], at: 0 }.count(), 0);
    }

    #[test]
    fn steps_are_whole_components() {
        let path = vec![vec![b'a'; 200]; 100].join(&b'/');
        let got: Vec<&[u8]> = steps(&path).collect();
        assert!(
            got.len() > 4 && got.iter().all(|s| s.len() <= STEP_MAX && !s.starts_with(b"/") && s.len() % 201 == 200)
        );
        assert_eq!(got.join(&b'/'), path);
        assert_eq!(steps(b"").count(), 0);
    }
}
