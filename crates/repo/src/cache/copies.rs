//! Copies of what tree packs hold: blocks and tables, sealed as they are in the repository, so that a storage far away
//! is asked for each but once.
//!
//! ```text
//! <folder>/<pack id>    records: offset in the pack u64, length u32 (little endian), bytes
//! ```
//!
//! Packs never change, so a copy is as good as what it was taken from, and its seal is opened and judged like that of
//! any other bytes: a copy that can't be opened is thrown away. What a crash tears is thrown away with the file that it
//! is in. Several processes may append at once: each record is one write.

use super::shelf::Shelf;
use crate::lock::lock;
use drumlin_format::PackId;
use drumlin_store::descriptors;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

const HEAD_BYTES: usize = 8 + 4;
/// Files that are held open.
const OPEN_MAX: usize = 64;
/// Longer records are none of ours.
const RECORD_BYTES_MAX: u32 = 256 << 20;

/// A client's copies of tree packs of one repository.
pub(crate) struct Copies {
    shelf: Shelf,
    open: Mutex<HashMap<PackId, Arc<Copy>>>,
}

/// What there is of one pack.
struct Copy {
    file: File,
    records: Mutex<Records>,
}

#[derive(Default)]
struct Records {
    /// Where a range of the pack stands in the file, by its offset in the pack; and its length.
    at: HashMap<u64, (u64, u32)>,
    /// The file was read so far.
    end: u64,
}

impl Copies {
    pub fn new(folder: PathBuf) -> Self {
        Copies { shelf: Shelf::new(folder), open: Mutex::default() }
    }

    /// Fill `buf` from the copy of a pack; `false` if there is none of just this range.
    pub fn read(&self, pack: PackId, offset: u64, buf: &mut [u8]) -> bool {
        let Some(copy) = self.copy(pack, false) else { return false };
        let Some(at) = copy.find(offset, buf.len()) else { return false };
        copy.file.read_exact_at(buf, at).is_ok()
    }

    /// Whether there is a copy of just this range.
    pub fn has(&self, pack: PackId, offset: u64, len: usize) -> bool {
        self.copy(pack, false).is_some_and(|copy| copy.find(offset, len).is_some())
    }

    /// Keep a range of a pack. What can't be kept costs time later, nothing else.
    pub fn keep(&self, pack: PackId, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() || self.has(pack, offset, bytes.len()) {
            return;
        }
        let Some(copy) = self.copy(pack, true) else { return };
        let len = bytes.len() as u32;
        let record = [&offset.to_le_bytes()[..], &len.to_le_bytes(), bytes].concat();
        if (&copy.file).write_all(&record).is_err() {
            // It may be there in part.
            self.forget(pack);
        }
    }

    /// Throw away what there is of a pack.
    pub fn forget(&self, pack: PackId) {
        lock(&self.open).remove(&pack);
        self.shelf.forget(pack);
    }

    /// The packs of which there are copies, with the bytes that these take, the latest used first.
    pub fn all(&self) -> Vec<(PackId, u64)> {
        self.shelf.all()
    }

    /// Throw away the copies of packs that are no more, and of the others those that were not used for longest, until
    /// the rest takes no more than so many bytes.
    pub fn tidy(&self, is_there: impl Fn(PackId) -> bool, bytes_max: u64) {
        self.shelf.surplus(is_there, bytes_max).into_iter().for_each(|pack| self.forget(pack));
    }

    fn copy(&self, pack: PackId, make: bool) -> Option<Arc<Copy>> {
        let mut open = lock(&self.open);
        if let Some(copy) = open.get(&pack) {
            return Some(copy.clone());
        }
        let path = self.shelf.path(pack);
        let copy = match Copy::open(&path, make) {
            Ok(copy) => Arc::new(copy),
            Err(e) => {
                // It is torn, or no copy at all.
                if e.kind() == io::ErrorKind::InvalidData {
                    let _ = fs::remove_file(&path);
                }
                return None;
            }
        };
        if open.len() >= OPEN_MAX {
            open.clear();
        }
        open.insert(pack, copy.clone());
        Some(copy)
    }
}

impl Copy {
    fn open(path: &Path, make: bool) -> io::Result<Self> {
        let open = || OpenOptions::new().read(true).append(true).create(make).mode(0o600).open(path);
        let open = || descriptors::wait_for(open);
        let file = match open() {
            Err(e) if make && e.kind() == io::ErrorKind::NotFound => {
                super::make_folder(path.parent().unwrap_or(path))?;
                open()?
            }
            other => other?,
        };
        // It is used now: what was not for longest goes first.
        let _ = file.set_modified(SystemTime::now());
        let copy = Copy { file, records: Mutex::default() };
        copy.catch_up(&mut lock(&copy.records))?;
        Ok(copy)
    }

    /// Where a range stands in the file.
    fn find(&self, offset: u64, len: usize) -> Option<u64> {
        let mut records = lock(&self.records);
        let fits = |records: &Records| records.at.get(&offset).filter(|(_, of)| *of as usize == len).map(|(at, _)| *at);
        // What was written since, here or elsewhere, stands behind.
        fits(&records).or_else(|| self.catch_up(&mut records).ok().and_then(|()| fits(&records)))
    }

    /// Read the heads of the records that are new. An error of kind `InvalidData`: what is there is no row of records.
    fn catch_up(&self, records: &mut Records) -> io::Result<()> {
        let len = self.file.metadata()?.len();
        let mut head = [0; HEAD_BYTES];
        while records.end < len {
            let torn = || io::Error::from(io::ErrorKind::InvalidData);
            if len - records.end < HEAD_BYTES as u64 {
                return Err(torn());
            }
            self.file.read_exact_at(&mut head, records.end)?;
            let (offset, bytes) = head.split_first_chunk::<8>().ok_or_else(torn)?;
            let bytes = u32::from_le_bytes(bytes.try_into().map_err(|_| torn())?);
            let at = records.end + HEAD_BYTES as u64;
            if bytes == 0 || bytes > RECORD_BYTES_MAX || u64::from(bytes) > len - at {
                return Err(torn());
            }
            records.at.insert(u64::from_le_bytes(*offset), (at, bytes));
            records.end = at + u64::from(bytes);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACK: PackId = PackId([7; 16]);

    fn read(copies: &Copies, offset: u64, len: usize) -> Option<Vec<u8>> {
        let mut buf = vec![0; len];
        assert_eq!(copies.has(PACK, offset, len), copies.read(PACK, offset, &mut buf));
        copies.has(PACK, offset, len).then_some(buf)
    }

    #[test]
    fn ranges_are_kept_across_processes() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (Copies::new(folder.path().join("trees")), Copies::new(folder.path().join("trees")));
        assert_eq!(read(&one, 32, 5), None);
        one.keep(PACK, 32, b"first");
        other.keep(PACK, 100, b"second");
        one.keep(PACK, 100, b"second");
        for copies in [&one, &other, &Copies::new(folder.path().join("trees"))] {
            assert_eq!(read(copies, 32, 5).unwrap(), b"first");
            assert_eq!(read(copies, 100, 6).unwrap(), b"second");
            // Ranges are asked for as they were kept; anything else is not had.
            assert_eq!((read(copies, 32, 4), read(copies, 33, 4)), (None, None));
        }
        assert_eq!(one.all(), [(PACK, 5 + 6 + 2 * HEAD_BYTES as u64)]);
        one.forget(PACK);
        assert_eq!(read(&Copies::new(folder.path().join("trees")), 32, 5), None);
    }

    #[test]
    fn what_is_torn_is_thrown_away() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(PACK.to_string());
        let whole = {
            let copies = Copies::new(folder.path().to_owned());
            copies.keep(PACK, 1, b"abc");
            copies.keep(PACK, 9, b"defg");
            fs::read(&path).unwrap()
        };
        for len in 0..whole.len() {
            fs::write(&path, &whole[..len]).unwrap();
            let copies = Copies::new(folder.path().to_owned());
            let is_row = [0, HEAD_BYTES + 3].contains(&len);
            assert_eq!(read(&copies, 1, 3).is_some(), len == HEAD_BYTES + 3, "{len}");
            assert_eq!(path.exists(), is_row, "{len}");
            copies.keep(PACK, 9, b"defg");
            assert_eq!(read(&Copies::new(folder.path().to_owned()), 9, 4).unwrap(), b"defg", "{len}");
        }
        // As a crash of the machine leaves it: as long as it was, and nothing in it.
        fs::write(&path, vec![0; 100]).unwrap();
        assert_eq!(read(&Copies::new(folder.path().to_owned()), 0, 1), None);
        assert!(!path.exists());
    }

    #[test]
    fn what_is_no_more_and_what_was_not_used_for_longest_goes() {
        let folder = tempfile::tempdir().unwrap();
        let copies = Copies::new(folder.path().to_owned());
        let pack = |n| PackId([n; 16]);
        for n in 0..6 {
            copies.keep(pack(n), 0, &[1; 88]);
            let file = File::options().append(true).open(folder.path().join(pack(n).to_string())).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(u64::from(n))).unwrap();
        }
        copies.tidy(|pack| pack.0[0] != 5, 300);
        let left: Vec<_> = copies.all().into_iter().map(|(pack, _)| pack.0[0]).collect();
        assert_eq!(left, [4, 3, 2]);
    }
}
