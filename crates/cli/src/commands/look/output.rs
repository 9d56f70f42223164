//! Where a dump goes: a new file, or whatever standard output is. What has been written is durable before anybody is
//! told so, and of a file of our own, or one that is written from its end on, stretches of zeros take no room.

use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Zeros that begin and end at multiples of this are left out.
const BLOCK_BYTES: usize = 4096;

/// See the module.
pub(super) struct Output {
    file: File,
    /// It is on some storage, and not for another program.
    is_stored: bool,
    /// Where the next byte belongs, if holes can be left: nothing stands there, or behind.
    at: Option<u64>,
    /// The last bytes were a hole.
    ends_in_hole: bool,
    failed: Option<ErrorKind>,
}

impl Output {
    /// A new file, for nobody else's eyes: who may read it isn't known from the snapshot's own modes, as an archive
    /// holds many.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        Ok(Output { file, is_stored: true, at: Some(0), ends_in_hole: false, failed: None })
    }

    /// Standard output.
    pub fn stdout() -> io::Result<Self> {
        let mut file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let stat = fstat(&file)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let is_stored = matches!(kind, FileType::RegularFile | FileType::BlockDevice);
        let appends = fcntl_getfl(&file)?.contains(OFlags::APPEND);
        let at = match kind {
            FileType::RegularFile if !appends => {
                Some(file.stream_position()?).filter(|at| *at >= stat.st_size.unsigned_abs())
            }
            // What stands on a device is anything but zeros.
            _ => None,
        };
        Ok(Output { file, is_stored, at, ends_in_hole: false, failed: None })
    }

    /// What a write has failed with.
    pub fn failed(&self) -> Option<ErrorKind> {
        self.failed
    }

    /// All has been written: see that it is there. A device that is full may only say so now.
    pub fn finish(&mut self) -> io::Result<()> {
        if let Some(at) = self.at.filter(|_| self.ends_in_hole) {
            self.file.set_len(at)?;
        }
        if !self.is_stored {
            return Ok(());
        }
        match self.file.sync_all() {
            // Some file systems can't.
            Err(e) if matches!(e.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => Ok(()),
            synced => synced,
        }
    }

    /// How many of the bytes, from the first on, are to be left out, or are to be written.
    fn stretch(at: u64, buf: &[u8]) -> (bool, usize) {
        let to_block = (BLOCK_BYTES as u64 - at % BLOCK_BYTES as u64) as usize % BLOCK_BYTES;
        if to_block > 0 {
            return (false, to_block.min(buf.len()));
        }
        let is_hole = |block: &[u8]| block.len() == BLOCK_BYTES && block.iter().all(|byte| *byte == 0);
        let first = is_hole(&buf[..buf.len().min(BLOCK_BYTES)]);
        let alike = buf.chunks(BLOCK_BYTES).take_while(|block| is_hole(block) == first);
        (first, alike.map(<[u8]>::len).sum())
    }

    fn put(&mut self, buf: &[u8]) -> io::Result<usize> {
        let Some(at) = self.at.filter(|_| !buf.is_empty()) else { return self.file.write(buf) };
        let (is_hole, len) = Self::stretch(at, buf);
        let done = match is_hole {
            true => self.file.seek(SeekFrom::Current(len as i64)).map(|_| len)?,
            false => self.file.write(&buf[..len])?,
        };
        self.ends_in_hole = is_hole;
        self.at = Some(at + done as u64);
        Ok(done)
    }
}

impl Write for Output {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.put(buf).inspect_err(|e| {
            if e.kind() != ErrorKind::Interrupted {
                self.failed = Some(e.kind());
            }
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn zeros_take_no_room_and_all_else_is_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let parts: [&[u8]; 6] = [&[0; 9000], b"x", &[0; 100_000], &[7; 5000], &[0; 4096], &[0; 70_000]];
        let all = parts.concat();
        for piece in [1, 100, 4096, 5000, 131_072] {
            let path = dir.path().join(piece.to_string());
            let mut output = Output::create(&path).unwrap();
            all.chunks(piece).for_each(|part| output.write_all(part).unwrap());
            output.finish().unwrap();
            assert!(std::fs::read(&path).unwrap() == all, "{piece}");
            let meta = path.metadata().unwrap();
            assert_eq!(meta.mode() & 0o7777, 0o600);
            // Pieces that are no whole blocks don't show that they are zeros.
            assert!(piece % BLOCK_BYTES > 0 || meta.blocks() * 512 < 60_000, "{piece}: {} blocks", meta.blocks());
        }
    }
}
