//! Big files written in order: past the page cache where the file system allows it, with their holes left.
//!
//! Direct writes cost a small part of the processor time of buffered ones and throw nothing out of the cache. They go out
//! in whole blocks from an aligned buffer; an unaligned end is written the ordinary way.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use rustix::fs::{self, OFlags};
use rustix::io::Errno;

use super::error::Result;
use super::file::{NewFile, write_all_at};

/// Alignment that direct writes of all common devices are content with.
const BLOCK_BYTES: usize = 4096;
const BUFFER_BYTES: usize = 4 << 20;
/// Below that the page cache is quicker, and the file is likely to be read soon.
const DIRECT_BYTES_MIN: u64 = 8 << 20;

/// Writes one file from its start to its end. Call [`BigFile::finish`], then [`NewFile::finish`].
pub struct BigFile<'a> {
    file: &'a NewFile,
    /// `None` only while it is being dropped.
    buffer: Option<Aligned>,
    /// Where the buffer's first byte goes: a multiple of the block while writes are direct.
    base: u64,
    /// Bytes in the buffer.
    len: usize,
    /// The file's length so far.
    end: u64,
    direct: bool,
}

impl<'a> BigFile<'a> {
    /// For a file that is still empty. `size` is what it will probably have; with `holes` no room is reserved for that.
    pub fn new(file: &'a NewFile, size: u64, holes: bool) -> Result<Self> {
        let big = size >= DIRECT_BYTES_MIN;
        let mut end = 0;
        if big && !holes {
            if let Err(e) = file.reserve(size) {
                // What there was room for is taken until it is given back.
                let _ = file.set_len(0);
                return Err(e);
            }
            end = size;
        }
        let direct = big && set_direct(file, true);
        let buffer = file.dir().shared().take_buffer().unwrap_or_else(Aligned::new);
        Ok(BigFile { file, buffer: Some(buffer), base: 0, len: 0, end, direct })
    }

    /// Whether the page cache is being passed by.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// The offset that the next byte goes to.
    pub fn position(&self) -> u64 {
        self.base + self.len as u64
    }

    /// Appends `data`.
    pub fn write(&mut self, mut data: &[u8]) -> Result<()> {
        while !data.is_empty() {
            if !self.direct && self.len == 0 && data.len() >= BUFFER_BYTES / 4 {
                // Nothing is gained by gathering: the page cache copies anyway.
                write_all_at(self.file.fd(), self.base, data).map_err(|e| self.file.error("write", e))?;
                self.base += data.len() as u64;
                self.end = self.end.max(self.base);
                return Ok(());
            }
            let room = &mut self.bytes()[..];
            let n = room.len().min(data.len());
            room[..n].copy_from_slice(&data[..n]);
            self.len += n;
            data = &data[n..];
            if self.len == BUFFER_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Leaves a hole of `count` bytes (zeros where it isn't whole blocks).
    pub fn skip(&mut self, count: u64) -> Result<()> {
        let position = self.position();
        let Some(next) = position.checked_add(count).filter(|&n| i64::try_from(n).is_ok()) else {
            return Err(self.file.error("write", Errno::FBIG));
        };
        let block = BLOCK_BYTES as u64;
        let (filled_to, resume) = match self.direct {
            true => (position.next_multiple_of(block), next / block * block),
            false => (position, next),
        };
        if resume <= filled_to {
            // Ends in the block that it starts in, or in the next.
            return self.zeros(count as usize);
        }
        self.zeros((filled_to - position) as usize)?;
        self.flush()?;
        self.base = resume;
        self.zeros((next - resume) as usize)
    }

    /// Writes what is left and sets the length; returns that. A hole at the end is kept.
    pub fn finish(mut self) -> Result<u64> {
        let whole = if self.direct { self.len / BLOCK_BYTES * BLOCK_BYTES } else { self.len };
        let rest = self.len - whole;
        if whole > 0 {
            self.len = whole;
            self.flush()?;
        }
        if self.direct {
            set_direct(self.file, false);
            self.direct = false;
        }
        if rest > 0 {
            let tail = self.buffer.as_ref().map_or(&[][..], |b| &b.bytes()[whole..whole + rest]);
            write_all_at(self.file.fd(), self.base, tail).map_err(|e| self.file.error("write", e))?;
            self.base += rest as u64;
            self.end = self.end.max(self.base);
        }
        self.len = 0;
        if self.end != self.base {
            self.file.set_len(self.base)?;
        }
        Ok(self.base)
    }

    /// Zero bytes into the buffer; `count` is at most two blocks.
    fn zeros(&mut self, count: usize) -> Result<()> {
        const ZEROS: [u8; 2 * BLOCK_BYTES] = [0; 2 * BLOCK_BYTES];
        self.write(&ZEROS[..count.min(ZEROS.len())])
    }

    /// Writes out the buffer: whole blocks, if direct.
    fn flush(&mut self) -> Result<()> {
        if self.len == 0 {
            return Ok(());
        }
        let data = self.buffer.as_ref().map_or(&[][..], |b| &b.bytes()[..self.len]);
        let mut written = write_all_at(self.file.fd(), self.base, data);
        if written == Err(Errno::INVAL) && self.direct {
            // Taken at open, refused at the first write: some file systems do that.
            set_direct(self.file, false);
            self.direct = false;
            written = write_all_at(self.file.fd(), self.base, data);
        }
        written.map_err(|e| self.file.error("write", e))?;
        self.base += self.len as u64;
        self.end = self.end.max(self.base);
        self.len = 0;
        Ok(())
    }

    /// The free part of the buffer.
    fn bytes(&mut self) -> &mut [u8] {
        let len = self.len;
        self.buffer.as_mut().map_or(&mut [][..], |b| &mut b.bytes_mut()[len..])
    }
}

impl Drop for BigFile<'_> {
    fn drop(&mut self) {
        if self.direct {
            set_direct(self.file, false);
        }
        if let Some(buffer) = self.buffer.take() {
            self.file.dir().shared().give_buffer(buffer);
        }
    }
}

fn set_direct(file: &NewFile, on: bool) -> bool {
    let Ok(flags) = fs::fcntl_getfl(file.fd()) else { return false };
    let flags = if on { flags | OFlags::DIRECT } else { flags - OFlags::DIRECT };
    fs::fcntl_setfl(file.fd(), flags).is_ok()
}

/// A buffer that direct writes accept, [`BUFFER_BYTES`] long.
pub(super) struct Aligned(NonNull<u8>);

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
