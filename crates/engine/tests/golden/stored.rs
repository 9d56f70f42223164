//! What a snapshot in a repository holds, read entry by entry and chunk by chunk.

use crate::expected::{Bytes, Entry, Tree, with_links_counted};
use drumlin_engine::list::{self, Depth};
use drumlin_engine::monitor::Quiet;
use drumlin_engine::select::TreePath;
use drumlin_format::pack::PackKind;
use drumlin_format::snapshot::Snapshot;
use drumlin_format::tree::{Content, Data, Kind, Ref};
use drumlin_repo::pack::Reader;
use drumlin_repo::tree::Refs;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// The entries below `source`. Those above it must be directories on the way there. Without `contents`, what only the
/// data key opens is left out of what is compared.
pub fn tree(reader: &Arc<Reader>, snapshot: &Snapshot, source: &str, contents: bool) -> Tree {
    let prefix = [source.as_bytes(), b"/"].concat();
    let monitor = Quiet::default();
    let mut tree = Tree::new();
    let mut inodes = HashMap::new();
    let sums = list::list(reader, snapshot.root, &TreePath::root(), Depth::All, &monitor, &mut |listed| {
        let path = listed.path();
        let Some(path) = path.strip_prefix(&prefix[..]) else {
            assert!(prefix.starts_with(&path) && listed.meta().kind == Kind::Dir, "{}", path.escape_ascii());
            return Ok(ControlFlow::Continue(()));
        };
        let (meta, content) = (listed.meta(), listed.content()?);
        let mut entry = Entry {
            path: Bytes(path.to_vec()),
            kind: kind(meta.kind).into(),
            mode: meta.mode.into(),
            uid: meta.uid,
            gid: meta.gid,
            mtime: (meta.mtime.sec, meta.mtime.nsec),
            size: meta.size,
            rdev: meta.rdev,
            target: (meta.kind == Kind::Symlink).then(|| Bytes(content.target.clone())),
            xattrs: content.xattrs.iter().map(|(name, value)| (Bytes(name.clone()), Bytes(value.clone()))).collect(),
            flags: content.flags,
            ..Entry::default()
        };
        assert_eq!(meta.marks, 0, "{}", path.escape_ascii());
        if meta.nlink > 1 {
            let next = inodes.len() as u32 + 1;
            entry.link = *inodes.entry((meta.filesystem, meta.ino)).or_insert(next);
        }
        if contents {
            read(reader, content, &mut entry);
        }
        tree.insert(path.to_vec(), entry);
        Ok(ControlFlow::Continue(()))
    });
    assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
    assert_eq!(sums.unwrap(), snapshot.root.map(|root| root.sums).unwrap_or_default());
    with_links_counted(tree)
}

/// Fill in the holes and the hash of a file's contents.
fn read(reader: &Reader, content: &Content, entry: &mut Entry) {
    let mut hasher = blake3::Hasher::new();
    let mut len = 0;
    let mut take = |r: Ref| {
        match r {
            Ref::Hole { len: hole } => {
                entry.holes.push((len, hole));
                hasher.update(&vec![0; hole as usize]);
            }
            Ref::Chunk { id, len } => {
                let bytes = reader.chunk(PackKind::Data, &id).unwrap();
                assert_eq!(bytes.len() as u64, len);
                hasher.update(&bytes);
            }
        }
        len += r.len();
    };
    match &content.data {
        Data::None => {}
        Data::Chunk(id) => take(Ref::Chunk { id: *id, len: entry.size }),
        Data::List(list) => Refs::new(reader, list).for_each(|r| take(r.unwrap())),
    }
    if len > 0 {
        assert_eq!(len, entry.size);
        entry.blake3 = Some(hasher.finalize().to_hex().to_string());
    }
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Dir => "dir",
        Kind::Symlink => "symlink",
        Kind::Fifo => "fifo",
        Kind::Socket => "socket",
        Kind::CharDevice => "char device",
        Kind::BlockDevice => "block device",
    }
}
