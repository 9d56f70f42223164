//! What has been gathered of a big file before it is written: bytes in a buffer that direct writes accept, and where
//! they go.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use rustix::fd::BorrowedFd;
use rustix::fs::{self, OFlags};
use rustix::io::Errno;

use super::file::write_all_at;

/// Alignment that direct writes of all common devices are content with.
pub(super) const BLOCK_BYTES: usize = 4096;
pub(super) const BUFFER_BYTES: usize = 2 << 20;
const PIECES_MAX: usize = 1024;

/// A full buffer is written by one call for each stretch between two holes.
pub(super) struct Gathered {
    buffer: Aligned,
    /// Bytes in the buffer.
    len: usize,
    /// Stretches: where in the file, and where in the buffer each begins.
    pieces: Vec<(u64, usize)>,
}

impl Gathered {
    pub fn new() -> Self {
        Gathered { buffer: Aligned::new(), len: 0, pieces: Vec::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn is_full(&self) -> bool {
        self.len == BUFFER_BYTES
    }

    /// Whether there are so many stretches that more had better wait.
    pub fn is_scattered(&self) -> bool {
        self.pieces.len() >= PIECES_MAX
    }

    pub fn clear(&mut self) {
        self.len = 0;
        self.pieces.clear();
    }

    /// Take in what goes to `offset`, as much as there is room for. Returns how much that was.
    pub fn add(&mut self, offset: u64, data: &[u8]) -> usize {
        let len = data.len().min(BUFFER_BYTES - self.len);
        self.buffer.bytes_mut()[self.len..self.len + len].copy_from_slice(&data[..len]);
        let follows = self.pieces.last().is_some_and(|&(at, start)| at + (self.len - start) as u64 == offset);
        if !follows && len > 0 {
            self.pieces.push((offset, self.len));
        }
        self.len += len;
        len
    }

    /// Give back what doesn't fill a block at the end.
    pub fn split_tail(&mut self) -> Vec<u8> {
        let whole = self.len / BLOCK_BYTES * BLOCK_BYTES;
        let tail = self.buffer.bytes()[whole..self.len].to_vec();
        self.len = whole;
        self.pieces.retain(|&(_, start)| start < whole);
        tail
    }

    /// Write it out.
    pub fn write_to(&self, file: BorrowedFd<'_>) -> rustix::io::Result<()> {
        let ends = self.pieces.iter().skip(1).map(|&(_, start)| start).chain([self.len]);
        for (&(at, start), end) in self.pieces.iter().zip(ends) {
            let data = &self.buffer.bytes()[start..end];
            match write_all_at(file, at, data) {
                Err(Errno::INVAL) => {
                    // Taken at open, refused at the first write: some file systems do that.
                    set_direct(file, false);
                    write_all_at(file, at, data)?;
                }
                written => written?,
            }
        }
        Ok(())
    }
}

/// Pass by the page cache, or no longer. Whether that is so now.
pub(super) fn set_direct(file: BorrowedFd<'_>, on: bool) -> bool {
    let Ok(flags) = fs::fcntl_getfl(file) else { return false };
    let flags = if on { flags | OFlags::DIRECT } else { flags - OFlags::DIRECT };
    fs::fcntl_setfl(file, flags).is_ok()
}

/// A buffer that direct writes accept, [`BUFFER_BYTES`] long.
struct Aligned(NonNull<u8>);

// SAFETY: it is the only owner of its memory, as a `Box<[u8]>` would be.
unsafe impl Send for Aligned {}
// SAFETY: shared references only give shared slices.
unsafe impl Sync for Aligned {}

impl Aligned {
    const LAYOUT: Layout = match Layout::from_size_align(BUFFER_BYTES, BLOCK_BYTES) {
        Ok(layout) => layout,
        Err(_) => unreachable!(),
    };

    fn new() -> Self {
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc_zeroed(Self::LAYOUT) };
        NonNull::new(start).map_or_else(|| handle_alloc_error(Self::LAYOUT), Aligned)
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: allocated with that length, zeroed at first, and owned.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), BUFFER_BYTES) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` is the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr(), BUFFER_BYTES) }
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `new`, and not freed before.
        unsafe { dealloc(self.0.as_ptr(), Self::LAYOUT) }
    }
}
