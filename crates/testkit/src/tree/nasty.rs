//! One of everything that a Linux file can be.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{self, AtFlags, FileType, Gid, Mode, Uid};
use rustix::io::Errno;

use crate::{Rng, at};

/// What the file system or the user could not be given, and why. Empty on ext4 as root.
pub type Skipped = Vec<(&'static str, io::Error)>;

/// Fills the empty directory `dir`. `as_root` adds what only root can make: devices, foreign owners, capabilities,
/// `trusted.` attributes, immutable and append-only entries (see [`super::unprotect`]).
///
/// The same at each call, except for times that are not set on purpose.
pub fn nasty(dir: &Path, as_root: bool) -> io::Result<Skipped> {
    at::raise_descriptor_limit();
    let root = at::open_root(dir)?;
    let mut skipped = Skipped::new();
    files(root.as_fd())?;
    dirs(root.as_fd())?;
    names(root.as_fd())?;
    links(root.as_fd())?;
    nodes(root.as_fd(), as_root, &mut skipped)?;
    modes(root.as_fd())?;
    sparse(root.as_fd())?;
    attributes(root.as_fd(), as_root, &mut skipped)?;
    if as_root {
        owners(root.as_fd())?;
    }
    times(root.as_fd(), &mut skipped)?;
    flags(root.as_fd(), as_root, &mut skipped)?;
    Ok(skipped)
}

fn note(skipped: &mut Skipped, what: &'static str, result: io::Result<()>) {
    if let Err(e) = result {
        skipped.push((what, e));
    }
}

fn files(root: BorrowedFd<'_>) -> io::Result<()> {
    let dir = at::make_dir(root, b"files")?;
    let mut rng = Rng::new(1);
    for (name, len) in [
        ("empty", 0),
        ("one", 1),
        ("64k-1", (64 << 10) - 1),
        ("64k", 64 << 10),
        ("64k+1", (64 << 10) + 1),
        ("300k", 300 << 10),
        ("9m+5", (9 << 20) + 5),
    ] {
        at::write(dir.as_fd(), name.as_bytes(), &rng.bytes(len))?;
    }
    at::write(dir.as_fd(), b"text", &rng.text(200_000))?;
    at::write(dir.as_fd(), b"zeros", &vec![0; 3 << 20])?;
    let same = rng.bytes(100_000);
    at::write(dir.as_fd(), b"twin-1", &same)?;
    at::write(dir.as_fd(), b"twin-2", &same)?;
    Ok(())
}

fn dirs(root: BorrowedFd<'_>) -> io::Result<()> {
    at::make_dir(root, b"dir-empty")?;
    let many = at::make_dir(root, b"dir-many")?;
    for i in 0..3000 {
        let name = format!("entry {i:04}");
        at::write(many.as_fd(), name.as_bytes(), if i % 3 == 0 { name.as_bytes() } else { b"" })?;
    }
    // 30 levels of 200 bytes: half as long again as PATH_MAX.
    let mut deep = at::make_dir(root, b"dir-deep")?;
    for level in 0..30 {
        deep = at::make_dir(deep.as_fd(), &[b'a' + level % 26; 200])?;
    }
    at::write(deep.as_fd(), b"bottom", b"far down")?;
    fs::symlinkat(c"bottom", &deep, c"link")?;
    at::make_dir(deep.as_fd(), b"hollow")?;
    Ok(())
}

fn names(root: BorrowedFd<'_>) -> io::Result<()> {
    let dir = at::make_dir(root, b"names")?;
    let long = [b'n'; 255];
    let all: [&[u8]; 22] = [
        b"new\nline",
        b"\xff\xfe",
        b"\x01\x7f\x80",
        b"-rf",
        b"--help",
        b" leading",
        b"trailing ",
        b" ",
        b"'single'",
        b"\"double\"",
        b"back\\slash",
        b"$HOME",
        b"*?[a]",
        "\u{1f9ca}\u{2744}\u{fe0f}".as_bytes(),
        "e\u{301}".as_bytes(),
        "\u{e9}".as_bytes(),
        b"...",
        b".hidden",
        b"CON",
        b"case",
        b"CASE",
        &long,
    ];
    for name in all {
        at::write(dir.as_fd(), name, name)?;
    }
    // Sorts before and after '/' would, were it part of the names.
    for name in [&b"sort"[..], b"sort!", b"sort0", b"sort.d"] {
        let sub = at::make_dir(dir.as_fd(), name)?;
        at::write(sub.as_fd(), b"in", name)?;
    }
    Ok(())
}

fn links(root: BorrowedFd<'_>) -> io::Result<()> {
    let dir = at::make_dir(root, b"links")?;
    let other = at::make_dir(root, b"links-other")?;
    let long = [&b"x/"[..]; 2000].concat();
    let targets: [(&str, &[u8]); 6] = [
        ("dangling", b"no such thing"),
        ("absolute", b"/etc/passwd"),
        ("outside", b"../../.."),
        ("long", &long),
        ("bytes", b"\xff\n'"),
        ("itself", b"itself"),
    ];
    for (name, target) in targets {
        fs::symlinkat(target, &dir, name)?;
    }
    at::write(dir.as_fd(), b"first", b"three names")?;
    fs::linkat(&dir, c"first", &dir, c"second", AtFlags::empty())?;
    fs::linkat(&dir, c"first", &other, c"third", AtFlags::empty())?;
    fs::linkat(&dir, c"dangling", &other, c"linked symlink", AtFlags::empty())?;
    at::write(dir.as_fd(), b"same bytes, not linked", b"three names")?;
    Ok(())
}

fn nodes(root: BorrowedFd<'_>, as_root: bool, skipped: &mut Skipped) -> io::Result<()> {
    let dir = at::make_dir(root, b"nodes")?;
    let mode = Mode::from_raw_mode(0o640);
    fs::mknodat(&dir, c"fifo", FileType::Fifo, mode, 0)?;
    fs::linkat(&dir, c"fifo", &dir, c"fifo-link", AtFlags::empty())?;
    fs::mknodat(&dir, c"socket", FileType::Socket, mode, 0)?;
    if as_root {
        let devices = [
            ("null", FileType::CharacterDevice, fs::makedev(1, 3)),
            ("big-minor", FileType::CharacterDevice, fs::makedev(4000, 0xf_1234)),
            ("loop", FileType::BlockDevice, fs::makedev(7, 300)),
        ];
        for (name, kind, device) in devices {
            note(skipped, "device", fs::mknodat(&dir, name, kind, mode, device).map_err(Into::into));
        }
    }
    Ok(())
}

fn modes(root: BorrowedFd<'_>) -> io::Result<()> {
    let dir = at::make_dir(root, b"modes")?;
    for mode in [0o000, 0o400, 0o444, 0o200, 0o111, 0o777, 0o4755, 0o2755, 0o6711, 0o1644] {
        let file = at::write(dir.as_fd(), format!("{mode:04o}").as_bytes(), b"mode")?;
        fs::fchmod(&file, Mode::from_raw_mode(mode))?;
    }
    for mode in [0o700, 0o1777, 0o2775, 0o555] {
        let sub = at::make_dir(dir.as_fd(), format!("dir-{mode:04o}").as_bytes())?;
        at::write(sub.as_fd(), b"inside", b"")?;
        fs::fchmod(&sub, Mode::from_raw_mode(mode))?;
    }
    Ok(())
}

fn sparse(root: BorrowedFd<'_>) -> io::Result<()> {
    const MIB: u64 = 1 << 20;
    let dir = at::make_dir(root, b"sparse")?;
    let mut rng = Rng::new(2);
    // Name, length, and where pieces of 64 KiB are written.
    let shapes: [(&str, u64, &[u64]); 6] = [
        ("start", 3 * MIB, &[2 * MIB, 3 * MIB - (64 << 10)]),
        ("middle", 3 * MIB, &[0, 3 * MIB - (64 << 10)]),
        ("end", 3 * MIB, &[0]),
        ("all", 5 * MIB, &[]),
        ("odd", 3 * MIB + 1234, &[MIB, 2 * MIB]),
        ("huge", 1 << 40, &[1 << 39]),
    ];
    for (name, len, pieces) in shapes {
        let file = at::write(dir.as_fd(), name.as_bytes(), b"")?;
        file.set_len(len)?;
        for &offset in pieces {
            file.write_all_at(&rng.bytes(64 << 10), offset)?;
        }
    }
    Ok(())
}

/// The binary form of `system.posix_acl_*`: version 2, then tag, permissions and id of each.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut out = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        out.extend_from_slice(&tag.to_le_bytes());
        out.extend_from_slice(&permissions.to_le_bytes());
        out.extend_from_slice(&id.to_le_bytes());
    }
    out
}

fn attributes(root: BorrowedFd<'_>, as_root: bool, skipped: &mut Skipped) -> io::Result<()> {
    const NONE: u32 = u32::MAX;
    let dir = at::make_dir(root, b"attributes")?;
    let at = dir.as_fd();
    let mut set = |name: &[u8], xattr: &'static str, value: &[u8]| {
        note(skipped, xattr, at::set_xattr(at, name, xattr, value));
    };
    at::write(at, b"user", b"1")?;
    set(b"user", "user.empty", b"");
    set(b"user", "user.binary", b"\0\xff\0\n");
    set(b"user", "user.text", b"some words");
    at::write(at, b"user-big", b"2")?;
    set(b"user-big", "user.big", &[b'v'; 2000]);
    let read_only = at::write(at, b"user-read-only", b"3")?;
    set(b"user-read-only", "user.note", b"set before the mode was");
    fs::fchmod(&read_only, Mode::from_raw_mode(0o444))?;
    at::make_dir(at, b"user-dir")?;
    set(b"user-dir", "user.dir", b"on a directory");
    // Owner rw, user 1234 r, group r, group 4321 rw, mask rw, others nothing.
    let access = acl(&[(1, 6, NONE), (2, 4, 1234), (4, 4, NONE), (8, 6, 4321), (0x10, 6, NONE), (0x20, 0, NONE)]);
    at::write(at, b"acl", b"4")?;
    set(b"acl", "system.posix_acl_access", &access);
    at::make_dir(at, b"acl-dir")?;
    let all = acl(&[(1, 7, NONE), (2, 5, 1234), (4, 5, NONE), (0x10, 5, NONE), (0x20, 0, NONE)]);
    // Files made before and after there is a default to inherit.
    at::write(at::open_dir(at, b"acl-dir")?.as_fd(), b"before", b"5")?;
    set(b"acl-dir", "system.posix_acl_access", &all);
    set(b"acl-dir", "system.posix_acl_default", &all);
    let acl_dir = at::open_dir(at, b"acl-dir")?;
    at::write(acl_dir.as_fd(), b"after", b"6")?;
    at::make_dir(acl_dir.as_fd(), b"sub")?;
    if as_root {
        // Version 2, effective, permitted: cap_net_raw.
        let capability: Vec<u8> = [0x0200_0001u32, 1 << 13, 0, 0, 0].iter().flat_map(|w| w.to_le_bytes()).collect();
        let file = at::write(at, b"capability", b"7")?;
        fs::fchmod(&file, Mode::from_raw_mode(0o755))?;
        set(b"capability", "security.capability", &capability);
        let file = at::write(at, b"capability-foreign", b"8")?;
        fs::fchown(&file, Some(Uid::from_raw(1234)), Some(Gid::from_raw(4321)))?;
        fs::fchmod(&file, Mode::from_raw_mode(0o4755))?;
        set(b"capability-foreign", "security.capability", &capability);
        at::write(at, b"trusted", b"9")?;
        set(b"trusted", "trusted.note", b"root only");
        fs::symlinkat(c"target", at, c"trusted-link")?;
        set(b"trusted-link", "trusted.note", b"on a symlink");
    }
    Ok(())
}

fn owners(root: BorrowedFd<'_>) -> io::Result<()> {
    let dir = at::make_dir(root, b"owners")?;
    let at = dir.as_fd();
    let own = |name: &[u8], uid, gid| -> io::Result<()> {
        let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        Ok(fs::chownat(at, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?)
    };
    at::write(at, b"other", b"1")?;
    own(b"other", 1234, 4321)?;
    at::write(at, b"only-group", b"2")?;
    own(b"only-group", 0, 4321)?;
    at::write(at, b"huge", b"3")?;
    own(b"huge", u32::MAX - 2, u32::MAX - 3)?;
    let suid = at::write(at, b"suid-other", b"4")?;
    own(b"suid-other", 1234, 4321)?;
    fs::fchmod(&suid, Mode::from_raw_mode(0o6755))?;
    at::make_dir(at, b"dir")?;
    own(b"dir", 1234, 4321)?;
    fs::symlinkat(c"target", at, c"link")?;
    own(b"link", 1234, 4321)?;
    fs::mknodat(at, c"fifo", FileType::Fifo, Mode::from_raw_mode(0o622), 0)?;
    own(b"fifo", 1234, 4321)?;
    Ok(())
}

fn times(root: BorrowedFd<'_>, skipped: &mut Skipped) -> io::Result<()> {
    let dir = at::make_dir(root, b"times")?;
    let all: [(&str, i64, i64); 7] = [
        ("nanoseconds", 1_500_000_000, 123_456_789),
        ("last-nanosecond", 1_500_000_000, 999_999_999),
        ("zero", 0, 0),
        ("before-1970", -1, 500_000_000),
        ("year-1905", -2_040_000_000, 1),
        ("after-2038", 2_500_000_000, 7),
        ("year-2400", 13_569_465_600, 0),
    ];
    for (name, sec, nsec) in all {
        at::write(dir.as_fd(), name.as_bytes(), b"")?;
        at::set_mtime(dir.as_fd(), name.as_bytes(), sec, nsec)?;
        let is = at::stat(dir.as_fd(), name.as_bytes())?.stx_mtime;
        if (is.tv_sec, i64::from(is.tv_nsec)) != (sec, nsec) {
            skipped.push(("times", Errno::OVERFLOW.into()));
        }
    }
    fs::symlinkat(c"target", &dir, c"link")?;
    at::set_mtime(dir.as_fd(), b"link", 1_111_111_111, 222_222_222)?;
    at::make_dir(dir.as_fd(), b"dir")?;
    at::set_mtime(dir.as_fd(), b"dir", 1_000_000_000, 1)?;
    fs::mknodat(&dir, c"fifo", FileType::Fifo, Mode::from_raw_mode(0o600), 0)?;
    at::set_mtime(dir.as_fd(), b"fifo", 1_000_000_001, 2)?;
    at::set_mtime(root, b"times", 987_654_321, 123)?;
    // Directories that others filled above.
    at::set_mtime(root, b"files", 987_654_321, 456)?;
    at::set_mtime(root, b"dir-many", -5, 789)
}

fn flags(root: BorrowedFd<'_>, as_root: bool, skipped: &mut Skipped) -> io::Result<()> {
    const NODUMP: u32 = 0x40;
    const NOATIME: u32 = 0x80;
    const APPEND: u32 = 0x20;
    const IMMUTABLE: u32 = 0x10;
    let dir = at::make_dir(root, b"flags")?;
    let mut set = |fd: OwnedFd, what, flags| note(skipped, what, at::change_flags(fd.as_fd(), flags, 0));
    set(at::write(dir.as_fd(), b"nodump", b"1")?.into(), "nodump", NODUMP);
    set(at::write(dir.as_fd(), b"noatime", b"2")?.into(), "noatime", NOATIME | NODUMP);
    // Filled before it hands its flag on to new entries, and after.
    let sub = at::make_dir(dir.as_fd(), b"dir-nodump")?;
    at::write(sub.as_fd(), b"before", b"3")?;
    set(at::open_dir(dir.as_fd(), b"dir-nodump")?, "nodump on a directory", NODUMP);
    at::write(sub.as_fd(), b"after", b"4")?;
    if as_root {
        set(at::write(dir.as_fd(), b"append", b"5")?.into(), "append", APPEND);
        set(at::write(dir.as_fd(), b"immutable", b"6")?.into(), "immutable", IMMUTABLE);
        let sub = at::make_dir(dir.as_fd(), b"dir-immutable")?;
        at::write(sub.as_fd(), b"inside", b"7")?;
        set(sub, "immutable on a directory", IMMUTABLE);
        let sub = at::make_dir(dir.as_fd(), b"dir-append")?;
        at::write(sub.as_fd(), b"inside", b"8")?;
        set(sub, "append on a directory", APPEND);
    }
    Ok(())
}
