//! By what names of one file are told.

use drumlin_format::tree::{Content, Data, Meta};

/// File system, inode, and what is in it: length, contents, and where it leads. A number may have been used again,
/// during the backup or by file systems that have the same ones several times; whoever has other contents is another
/// file.
pub(crate) type Identity = (u32, u64, u64, [u8; 32], Box<[u8]>);

/// That of an entry.
pub(crate) fn identity(meta: &Meta, content: &Content) -> Identity {
    let whole = match &content.data {
        Data::Chunk(id) => id.0,
        Data::List(list) => list.whole,
        Data::None => [0; 32],
    };
    (meta.filesystem, meta.ino, meta.size, whole, content.target.as_slice().into())
}
