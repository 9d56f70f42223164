//! The trees that the golden repositories hold, by a fixed recipe: little on disk, and one of each thing that a
//! snapshot keeps. Needs root (owners, devices, capabilities) and a file system with attributes, flags and holes.

use drumlin_testkit::Rng;
use rustix::fs::{self, AtFlags, CWD, FileType, Gid, IFlags, Mode, Timespec, Timestamps, Uid, XattrFlags};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{File, create_dir, create_dir_all, hard_link, write};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

/// Bytes of a block of the file system, as ext4 has them: no hole is smaller.
const BLOCK: u64 = 4096;

/// The first state of the main repository's source. `ends_node` tells chunks behind which a node of a list ends.
pub fn first(dir: &Path, ends_node: &dyn Fn(&[u8]) -> bool) -> io::Result<()> {
    // Enough entries for several leaves.
    create_dir(dir.join("many"))?;
    for n in 0..1200u32 {
        let contents = if n % 4 == 0 { format!("contents {}", n % 36) } else { String::new() };
        write(dir.join(format!("many/{n:04}")), contents)?;
    }
    write(dir.join("empty"), "")?;
    write(dir.join("one byte"), "1")?;
    write(dir.join("noise"), Rng::new(1).bytes(9_000))?;
    create_dir(dir.join("chunks"))?;
    // Some refs in the body; a node of a list; two such nodes; so many that they have a node above them.
    write(dir.join("chunks/inline"), lines("inline", 260_000))?;
    write(dir.join("chunks/list"), lines("repeated", 256 << 10).repeat(48))?;
    let kinds: Vec<_> = (0..16).map(island).collect();
    islands(&dir.join("chunks/islands"), 2200, &kinds)?;
    let mut kinds = vec![(16..).map(island).find(|chunk| ends_node(chunk)).unwrap_or_default()];
    kinds.extend((0..5).map(island));
    islands(&dir.join("chunks/many nodes"), 700, &kinds)?;
    create_dir(dir.join("holes"))?;
    sparse(&dir.join("holes/all"), 1 << 20, &[])?;
    sparse(&dir.join("holes/start"), 40 * BLOCK, &[39])?;
    sparse(&dir.join("holes/middle"), 40 * BLOCK, &[0, 39])?;
    sparse(&dir.join("holes/end, odd"), 40 * BLOCK + 123, &[0, 1])?;
    names(&dir.join("names"))?;
    links(dir)?;
    nodes(&dir.join("nodes"))?;
    attributes(&dir.join("attributes"))?;
    let mut deep = dir.join("deep");
    for level in 0..24 {
        deep = deep.join(format!("level {level}"));
    }
    create_dir_all(&deep)?;
    write(deep.join("bottom"), "far down")?;
    create_dir(dir.join("old"))?;
    write(dir.join("old/replaced by a directory"), "a file")?;
    write(dir.join("old/gone"), lines("gone", 3_000))?;
    write(dir.join("old/renamed"), lines("renamed", 3_000))?;
    times(dir)
}

/// The second state, from the first.
pub fn second(dir: &Path) -> io::Result<()> {
    for n in (0..1200u32).step_by(150) {
        std::fs::remove_file(dir.join(format!("many/{n:04}")))?;
        write(dir.join(format!("many/{n:04} new")), "new")?;
    }
    let inline = File::options().write(true).open(dir.join("chunks/inline"))?;
    inline.write_all_at(b"other", 130_000)?;
    let list = File::options().append(true).open(dir.join("chunks/list"))?;
    list.write_all_at(&lines("appended", 5_000), (256 << 10) * 48)?;
    std::fs::remove_file(dir.join("old/replaced by a directory"))?;
    create_dir(dir.join("old/replaced by a directory"))?;
    write(dir.join("old/replaced by a directory/inside"), "a file")?;
    std::fs::remove_file(dir.join("old/gone"))?;
    std::fs::rename(dir.join("old/renamed"), dir.join("old/under another name"))?;
    fs::chmod(dir.join("one byte"), Mode::from_raw_mode(0o600))?;
    // Late in the order, so that a run which is stopped before has not seen it.
    create_dir(dir.join("zz"))?;
    write(dir.join("zz/more noise"), Rng::new(2).bytes(7_000))?;
    mtime(&dir.join("chunks/inline"), 1_600_000_001, 5)?;
    mtime(&dir.join("zz/more noise"), 1_600_000_002, 6)
}

/// The source of the smaller repository.
pub fn small(dir: &Path) -> io::Result<()> {
    write(dir.join("text"), lines("text", 120_000))?;
    write(dir.join("noise"), Rng::new(3).bytes(6_000))?;
    write(dir.join("empty"), "")?;
    symlink("text", dir.join("link"))?;
    create_dir(dir.join("sub"))?;
    write(dir.join("sub/same noise"), Rng::new(3).bytes(6_000))?;
    mtime(&dir.join("text"), 1_500_000_000, 1)
}

/// Numbered lines: no two chunks of them are alike, and they compress to next to nothing.
pub fn lines(word: &str, len: usize) -> Vec<u8> {
    let mut text = String::with_capacity(len + 32);
    for n in 0.. {
        if text.len() >= len {
            break;
        }
        let _ = writeln!(text, "{word} {n:07}");
    }
    text.truncate(len);
    text.into_bytes()
}

fn island(number: u64) -> Vec<u8> {
    lines(&format!("island {number}"), BLOCK as usize)
}

/// A file of so many blocks with holes between them, of few different contents.
fn islands(path: &Path, count: u64, kinds: &[Vec<u8>]) -> io::Result<()> {
    let file = File::create_new(path)?;
    file.set_len(count * 2 * BLOCK)?;
    for n in 0..count {
        let kind = (n * 7 + n / 16) % kinds.len() as u64;
        file.write_all_at(&kinds[kind as usize], (2 * n + 1) * BLOCK)?;
    }
    file.sync_all()
}

/// A file of holes with some blocks written.
fn sparse(path: &Path, len: u64, blocks: &[u64]) -> io::Result<()> {
    let file = File::create_new(path)?;
    file.set_len(len)?;
    for block in blocks {
        file.write_all_at(&lines("data", BLOCK as usize), block * BLOCK)?;
    }
    file.sync_all()
}

fn names(dir: &Path) -> io::Result<()> {
    create_dir(dir)?;
    let long = [b'n'; 255];
    for name in [
        &b"new\nline"[..],
        b"\xff\xfe",
        b"\x01\x7f\x80",
        b"-rf",
        b" ",
        b"'single' \"double\" back\\slash",
        b"*?[a]",
        "e\u{301}".as_bytes(),
        "\u{e9}".as_bytes(),
        b"...",
        &long,
    ] {
        write(dir.join(OsStr::from_bytes(name)), name)?;
    }
    // Sorts before and after '/' would, were it part of the names.
    for name in ["sort", "sort!", "sort0"] {
        create_dir(dir.join(name))?;
        write(dir.join(name).join("in"), name)?;
    }
    Ok(())
}

fn links(dir: &Path) -> io::Result<()> {
    let (here, there) = (dir.join("links"), dir.join("links elsewhere"));
    create_dir(&here)?;
    create_dir(&there)?;
    write(here.join("first"), "three names")?;
    hard_link(here.join("first"), here.join("second"))?;
    hard_link(here.join("first"), there.join("third"))?;
    write(here.join("large"), lines("linked", 70_000))?;
    hard_link(here.join("large"), there.join("large"))?;
    write(here.join("same bytes, not linked"), "three names")?;
    symlink("first", here.join("symlink"))?;
    symlink("/no/such/thing", here.join("dangling"))?;
    symlink(OsStr::from_bytes(b"\xff\n'"), here.join("bytes"))?;
    symlink("x/".repeat(1500), here.join("long"))?;
    // The name of the link itself: `hard_link` would follow it on some systems.
    fs::linkat(CWD, here.join("dangling"), CWD, there.join("linked symlink"), AtFlags::empty())?;
    Ok(())
}

fn nodes(dir: &Path) -> io::Result<()> {
    create_dir(dir)?;
    let mode = Mode::from_raw_mode(0o640);
    fs::mknodat(CWD, dir.join("fifo"), FileType::Fifo, mode, 0)?;
    fs::mknodat(CWD, dir.join("socket"), FileType::Socket, mode, 0)?;
    fs::mknodat(CWD, dir.join("null"), FileType::CharacterDevice, mode, fs::makedev(1, 3))?;
    fs::mknodat(CWD, dir.join("big"), FileType::BlockDevice, mode, fs::makedev(259, 0xf_1234))?;
    for (name, mode) in [("0400", 0o400), ("0777", 0o777), ("4755", 0o4755), ("2755", 0o2755), ("1644", 0o1644)] {
        write(dir.join(name), "mode")?;
        fs::chmod(dir.join(name), Mode::from_raw_mode(mode))?;
    }
    create_dir(dir.join("1777"))?;
    fs::chmod(dir.join("1777"), Mode::from_raw_mode(0o1777))?;
    create_dir(dir.join("empty"))?;
    for (name, uid, gid) in [("owned", 1234, 4321), ("owned by many digits", u32::MAX - 2, u32::MAX - 3)] {
        write(dir.join(name), name)?;
        fs::chownat(CWD, dir.join(name), Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)), AtFlags::empty())?;
    }
    Ok(())
}

fn attributes(dir: &Path) -> io::Result<()> {
    const NONE: u32 = u32::MAX;
    create_dir(dir)?;
    let set = |name: &str, attribute: &str, value: &[u8]| {
        fs::lsetxattr(dir.join(name), attribute, value, XattrFlags::empty()).map_err(io::Error::from)
    };
    for name in ["user", "user again", "acl", "capability", "flags"] {
        write(dir.join(name), name)?;
    }
    for name in ["user", "user again"] {
        set(name, "user.empty", b"")?;
        set(name, "user.binary", b"\0\xff\0\n")?;
    }
    set("", "user.on a directory", &[b'v'; 300])?;
    // Version 2; owner rw, user 1234 r, group r, mask r, others nothing: tag, permissions, id.
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in [(1u16, 6u16, NONE), (2, 4, 1234), (4, 4, NONE), (0x10, 4, NONE), (0x20, 0, NONE)] {
        acl.extend_from_slice(&tag.to_le_bytes());
        acl.extend_from_slice(&permissions.to_le_bytes());
        acl.extend_from_slice(&id.to_le_bytes());
    }
    set("acl", "system.posix_acl_access", &acl)?;
    // Version 2, effective, permitted: cap_net_raw.
    let capability: Vec<u8> = [0x0200_0001u32, 1 << 13, 0, 0, 0].iter().flat_map(|w| w.to_le_bytes()).collect();
    set("capability", "security.capability", &capability)?;
    let file = File::open(dir.join("flags"))?;
    let flags = fs::ioctl_getflags(&file)?;
    fs::ioctl_setflags(&file, flags | IFlags::NODUMP)?;
    Ok(())
}

fn times(dir: &Path) -> io::Result<()> {
    create_dir(dir.join("times"))?;
    for (name, sec, nsec) in [
        ("last nanosecond", 1_500_000_000, 999_999_999),
        ("zero", 0, 0),
        ("before 1970", -2, 500_000_000),
        ("after 2038", 2_500_000_000, 7),
        ("year 2400", 13_569_465_600, 0),
    ] {
        write(dir.join("times").join(name), "")?;
        mtime(&dir.join("times").join(name), sec, nsec)?;
    }
    mtime(&dir.join("links/dangling"), 1_111_111_111, 222_222_222)?;
    mtime(&dir.join("times"), 987_654_321, 123)
}

fn mtime(path: &Path, sec: i64, nsec: i64) -> io::Result<()> {
    let time = Timespec { tv_sec: sec, tv_nsec: nsec };
    let times = Timestamps { last_access: time, last_modification: time };
    Ok(fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}
