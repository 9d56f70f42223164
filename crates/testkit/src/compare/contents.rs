//! Bytes and holes of two files.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

const STEP_BYTES: usize = 128 << 10;
const BLOCK_BYTES: u64 = 4096;

/// The offset of the first byte that differs in two files of that size. What is a hole in both is not read.
pub(super) fn first_difference(a: &File, b: &File, size: u64) -> io::Result<Option<u64>> {
    let (mut x, mut y) = (vec![0; STEP_BYTES], vec![0; STEP_BYTES]);
    let mut offset = 0;
    while offset < size {
        let data = next_data(a, offset, size)?.min(next_data(b, offset, size)?);
        if data > offset {
            offset = data;
            continue;
        }
        let n = STEP_BYTES.min(usize::try_from(size - offset).unwrap_or(STEP_BYTES));
        a.read_exact_at(&mut x[..n], offset)?;
        b.read_exact_at(&mut y[..n], offset)?;
        if x[..n] != y[..n] {
            let at = x[..n].iter().zip(&y[..n]).position(|(p, q)| p != q).unwrap_or(0);
            return Ok(Some(offset + at as u64));
        }
        offset += n as u64;
    }
    Ok(None)
}

/// All holes of at least `min` bytes, cut to whole blocks, one at the end of the file included.
pub(super) fn holes(file: &File, size: u64, min: u64) -> io::Result<Vec<Range<u64>>> {
    let mut found = Vec::new();
    let mut offset = 0;
    while offset < size {
        let start = match seek(file, SeekFrom::Hole(offset)) {
            Ok(start) => start.min(size),
            Err(Errno::NXIO) => break,
            Err(e) => return Err(e.into()),
        };
        let end = next_data(file, start, size)?;
        let cut_end = if end == size { size } else { end / BLOCK_BYTES * BLOCK_BYTES };
        let hole = start.next_multiple_of(BLOCK_BYTES)..cut_end;
        if hole.end.saturating_sub(hole.start) >= min.max(BLOCK_BYTES) {
            found.push(hole);
        }
        offset = end.max(start + 1);
    }
    Ok(found)
}

fn next_data(file: &File, offset: u64, size: u64) -> io::Result<u64> {
    if offset >= size {
        return Ok(size);
    }
    match seek(file, SeekFrom::Data(offset)) {
        Ok(data) => Ok(data.min(size)),
        Err(Errno::NXIO) => Ok(size),
        Err(e) => Err(e.into()),
    }
}
