//! An entry of a snapshot, as a line and as an object.

use crate::render::path::{JsonPath, shown};
use crate::render::time::{local, rfc3339};
use drumlin_format::tree::{Kind, Meta, marks};
use serde::Serialize;
use std::borrow::Cow;

/// The word for a type.
pub fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Dir => "dir",
        Kind::Symlink => "symlink",
        Kind::Fifo => "fifo",
        Kind::Socket => "socket",
        Kind::CharDevice => "chardev",
        Kind::BlockDevice => "blockdev",
    }
}

/// Type and mode as `ls -l` shows them.
pub fn permissions(meta: &Meta) -> String {
    let mut out = String::with_capacity(10);
    out.push(match meta.kind {
        Kind::File => '-',
        Kind::Dir => 'd',
        Kind::Symlink => 'l',
        Kind::Fifo => 'p',
        Kind::Socket => 's',
        Kind::CharDevice => 'c',
        Kind::BlockDevice => 'b',
    });
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = meta.mode >> shift;
        out.push(if bits & 4 > 0 { 'r' } else { '-' });
        out.push(if bits & 2 > 0 { 'w' } else { '-' });
        out.push(match (meta.mode & special > 0, bits & 1 > 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    out
}

/// What is known of an entry besides its metadata.
#[derive(Clone, Copy, Default)]
pub struct More<'a> {
    /// The owner's name.
    pub user: Option<&'a [u8]>,
    /// The group's.
    pub group: Option<&'a [u8]>,
    /// Where a symlink leads.
    pub target: Option<&'a [u8]>,
}

/// A line with everything, as `ls -l` has it.
pub fn long(path: &[u8], meta: &Meta, more: More) -> String {
    let name = |name: Option<&[u8]>, id: u32| name.map_or_else(|| id.to_string(), |n| shown(n).into_owned());
    let mut line = format!(
        "{} {:<8} {:<8} {:>12} {} {}",
        permissions(meta),
        name(more.user, meta.uid),
        name(more.group, meta.gid),
        meta.size,
        local((meta.mtime.sec, meta.mtime.nsec)),
        shown(path)
    );
    if let Some(target) = more.target {
        line.push_str(" -> ");
        line.push_str(&shown(target));
    }
    if meta.marks & marks::CONTENTS_MISSING > 0 {
        line.push_str("  (could not be read)");
    } else if meta.marks & marks::CHANGED_WHILE_READ > 0 {
        line.push_str("  (changed while it was read)");
    }
    line
}

/// An entry in JSON.
#[derive(Serialize)]
pub struct JsonEntry<'a> {
    message_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<&'a str>,
    #[serde(flatten)]
    path: JsonPath<'a>,
    #[serde(rename = "type")]
    kind: &'static str,
    mode: u16,
    permissions: String,
    uid: u32,
    gid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<Cow<'a, str>>,
    size: u64,
    mtime: String,
    ctime: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    btime: Option<String>,
    inode: u64,
    links: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<JsonPath<'a>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    contents_missing: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    changed_while_read: bool,
}

impl<'a> JsonEntry<'a> {
    /// An entry; with the id of its snapshot where several are looked through.
    pub fn new(
        message_type: &'static str,
        snapshot: Option<&'a str>,
        path: &'a [u8],
        meta: &Meta,
        more: More<'a>,
    ) -> Self {
        let time = |t: drumlin_format::tree::Time| rfc3339((t.sec, t.nsec));
        JsonEntry {
            message_type,
            snapshot,
            path: path.into(),
            kind: kind(meta.kind),
            mode: meta.mode,
            permissions: permissions(meta),
            uid: meta.uid,
            gid: meta.gid,
            user: more.user.map(String::from_utf8_lossy),
            group: more.group.map(String::from_utf8_lossy),
            size: meta.size,
            mtime: time(meta.mtime),
            ctime: time(meta.ctime),
            btime: meta.btime.map(time),
            inode: meta.ino,
            links: meta.nlink,
            target: more.target.map(JsonPath::from),
            contents_missing: meta.marks & marks::CONTENTS_MISSING > 0,
            changed_while_read: meta.marks & marks::CHANGED_WHILE_READ > 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_format::tree::Time;

    #[test]
    fn modes_as_ls_shows_them() {
        let time = Time { sec: 0, nsec: 0 };
        let meta = |kind, mode| Meta {
            kind,
            mode,
            marks: 0,
            uid: 0,
            gid: 0,
            size: 5,
            mtime: time,
            ctime: time,
            btime: None,
            ino: 1,
            nlink: 1,
            filesystem: 0,
            rdev: 0,
        };
        for (kind, mode, text) in [
            (Kind::File, 0o644, "-rw-r--r--"),
            (Kind::Dir, 0o1777, "drwxrwxrwt"),
            (Kind::File, 0o4755, "-rwsr-xr-x"),
            (Kind::File, 0o6644, "-rwSr-Sr--"),
            (Kind::Symlink, 0o777, "lrwxrwxrwx"),
        ] {
            assert_eq!(permissions(&meta(kind, mode)), text);
        }
        let more = More { user: Some(b"me"), target: Some(b"x\n"), ..More::default() };
        let line = long(b"/a\xff", &meta(Kind::Symlink, 0o777), more);
        assert!(line.starts_with("lrwxrwxrwx me       0 ") && line.ends_with(" /a\\xff -> x\\n"), "{line}");
    }
}
