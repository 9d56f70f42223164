//! Whether a file on this machine has the contents that the snapshot says, without fetching these.

use super::worker::Context;
use crate::{Error, Result};
use drumlin_format::pack::BLOCK_BYTES_MAX;
use drumlin_format::tree::{Data, Ref};
use drumlin_host::read::next_data;
use drumlin_repo::tree::Refs;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Whether the file, whose length is `size`, has these contents. Holes and zeros are the same here. `right` is told the
/// lengths of parts that are.
pub(super) fn same(context: &Context, file: &File, data: &Data, size: u64, right: impl Fn(u64)) -> Result<bool> {
    let mut buffer = Vec::new();
    let mut chunk = |id: &[u8; 32], at: u64, len: u64| {
        // A chunk is never longer than a block: nothing else is worth the memory.
        if len > BLOCK_BYTES_MAX {
            return false;
        }
        buffer.resize(len as usize, 0);
        file.read_exact_at(&mut buffer, at).is_ok() && context.data_ids.id(&buffer) == *id
    };
    match data {
        Data::None => Ok(size == 0),
        Data::Chunk(id) => Ok(chunk(&id.0, 0, size)),
        Data::List(list) => {
            let mut at = 0;
            for r in Refs::new(&context.reader, list) {
                if context.ended() {
                    return Err(Error::Interrupted);
                }
                let r = r?;
                let same = match r {
                    Ref::Chunk { id, len } => chunk(&id.0, at, len),
                    Ref::Hole { len } => zeros(file, at, len),
                };
                if !same {
                    return Ok(false);
                }
                at += r.len();
                right(r.len());
            }
            Ok(at == size)
        }
    }
}

/// Whether there is nothing but zeros: what the file system itself knows for a hole isn't read.
fn zeros(file: &File, at: u64, len: u64) -> bool {
    let (mut at, end) = (at, at + len);
    let mut buffer = vec![0; 64 << 10];
    while at < end {
        let Some(data) = next_data(file, at) else { return true };
        // A hole may begin anywhere in what is read then: it reads as zeros.
        let want = end.saturating_sub(data).min(buffer.len() as u64) as usize;
        if file.read_exact_at(&mut buffer[..want], data).is_err() || buffer[..want].iter().any(|b| *b != 0) {
            return false;
        }
        at = data + want as u64;
    }
    true
}
