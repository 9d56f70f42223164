//! Big files written in order: past the page cache where the file system allows it, with their holes left.
//!
//! Direct writes cost a small part of the processor time of buffered ones and throw nothing out of the cache. They go
//! out in whole blocks from an aligned buffer, by a thread of their own, since whoever makes one waits for the disk; an
//! unaligned end is written the ordinary way.

use rustix::io::Errno;

use super::behind::Behind;
use super::error::Result;
use super::file::{NewFile, write_all_at};
use super::gathered::{BLOCK_BYTES, BUFFER_BYTES, Gathered, set_direct};

/// Below that the page cache is quicker, and the file is likely to be read soon.
const DIRECT_BYTES_MIN: u64 = 8 << 20;

/// Writes one file from its start to its end. Call [`BigFile::finish`], then [`NewFile::finish`].
pub struct BigFile<'a> {
    file: &'a NewFile,
    /// Of whole blocks at each hole, while writes are direct. `None` once a write has failed.
    gathered: Option<Gathered>,
    position: u64,
    /// The file's length, once all is written.
    end: u64,
    direct: bool,
    /// Begins with the first full buffer.
    behind: Option<Behind>,
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
        let direct = big && set_direct(file.fd(), true);
        let gathered = Some(take_buffer(file));
        Ok(BigFile { file, gathered, position: 0, end, direct, behind: None })
    }

    /// Whether the page cache is to be passed by.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// The offset that the next byte goes to.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Appends `data`.
    pub fn write(&mut self, mut data: &[u8]) -> Result<()> {
        while !data.is_empty() {
            let Some(gathered) = &mut self.gathered else { return Err(self.file.error("write", Errno::IO)) };
            let len = if !self.direct && gathered.is_empty() && data.len() >= BUFFER_BYTES / 4 {
                // Nothing is gained by gathering: the page cache copies anyway.
                write_all_at(self.file.fd(), self.position, data).map_err(|e| self.file.error("write", e))?;
                data.len()
            } else {
                gathered.add(self.position, data)
            };
            self.position += len as u64;
            self.end = self.end.max(self.position);
            data = &data[len..];
            if gathered.is_full() {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Leaves a hole of `count` bytes (zeros where it isn't whole blocks).
    pub fn skip(&mut self, count: u64) -> Result<()> {
        let position = self.position;
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
        if self.gathered.as_ref().is_some_and(Gathered::is_scattered) {
            self.flush()?;
        }
        self.position = resume;
        self.zeros((next - resume) as usize)
    }

    /// Writes what is left and sets the length; returns that. A hole at the end is kept.
    pub fn finish(mut self) -> Result<u64> {
        let tail = match &mut self.gathered {
            Some(gathered) if self.direct => gathered.split_tail(),
            _ => Vec::new(),
        };
        self.flush()?;
        if let Some(mut behind) = self.behind.take() {
            let settled = behind.settle(|gathered| give_buffer(self.file, gathered)).and_then(|()| behind.end());
            settled.map_err(|e| self.file.error("write", e))?;
        }
        if self.direct {
            set_direct(self.file.fd(), false);
            self.direct = false;
        }
        let at = self.position - tail.len() as u64;
        write_all_at(self.file.fd(), at, &tail).map_err(|e| self.file.error("write", e))?;
        if self.end != self.position {
            self.file.set_len(self.position)?;
        }
        Ok(self.position)
    }

    /// Zero bytes; `count` is at most two blocks.
    fn zeros(&mut self, count: usize) -> Result<()> {
        const ZEROS: [u8; 2 * BLOCK_BYTES] = [0; 2 * BLOCK_BYTES];
        self.write(&ZEROS[..count.min(ZEROS.len())])
    }

    /// Writes out what was gathered, or has it written.
    fn flush(&mut self) -> Result<()> {
        let Some(mut gathered) = self.gathered.take() else { return Err(self.file.error("write", Errno::IO)) };
        if self.direct && self.behind.is_none() && gathered.is_full() {
            // Without a thread it is written here.
            self.behind = Behind::start(self.file.fd()).ok();
        }
        let done = match &mut self.behind {
            Some(behind) if !gathered.is_empty() => behind.write(gathered, || take_buffer(self.file)),
            _ => gathered.write_to(self.file.fd()).map(|()| {
                gathered.clear();
                gathered
            }),
        };
        self.gathered = Some(done.map_err(|e| self.file.error("write", e))?);
        Ok(())
    }
}

impl Drop for BigFile<'_> {
    fn drop(&mut self) {
        // Nobody writes to the file any more once it is removed, or has other flags.
        self.behind = None;
        if self.direct {
            set_direct(self.file.fd(), false);
        }
        if let Some(gathered) = self.gathered.take() {
            give_buffer(self.file, gathered);
        }
    }
}

fn take_buffer(file: &NewFile) -> Gathered {
    file.dir().shared().take_buffer().unwrap_or_else(Gathered::new)
}

fn give_buffer(file: &NewFile, mut gathered: Gathered) {
    gathered.clear();
    file.dir().shared().give_buffer(gathered);
}
