//! The holes of a file on its way: a part of its identity, behind all its contents.

use drumlin_repo::Cache;
use drumlin_seal::Hasher;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// So much of them is held in memory: of 65,536. A file may have any number of them.
const BYTES_MAX: usize = 1 << 20;
/// Those that wait elsewhere are read back in pieces of this.
const PIECE_BYTES: usize = 64 << 10;

/// Holes in the order of a file, until all its contents are known.
#[derive(Default)]
pub(crate) struct Holes {
    /// Of the last ones offset and length, 8 bytes each, little-endian.
    bytes: Vec<u8>,
    /// A file without a name, and how many bytes of those before them are in it.
    elsewhere: Option<(File, u64)>,
    /// Nothing more can be put there: what comes stays in memory.
    stays: bool,
}

impl Holes {
    /// The next hole.
    pub fn add(&mut self, cache: &Cache, at: u64, len: u64) {
        self.add_beyond(BYTES_MAX, || cache.scratch_file().ok(), at, len);
    }

    fn add_beyond(&mut self, max: usize, scratch: impl FnOnce() -> Option<File>, at: u64, len: u64) {
        if self.bytes.len() >= max && !self.stays {
            self.stays = !self.put_aside(scratch);
        }
        self.bytes.extend_from_slice(&at.to_le_bytes());
        self.bytes.extend_from_slice(&len.to_le_bytes());
    }

    /// Whether there was room.
    fn put_aside(&mut self, scratch: impl FnOnce() -> Option<File>) -> bool {
        if self.elsewhere.is_none() {
            self.elsewhere = scratch().map(|file| (file, 0));
        }
        let Some((file, end)) = &mut self.elsewhere else { return false };
        if file.write_all_at(&self.bytes, *end).is_err() {
            return false;
        }
        *end += self.bytes.len() as u64;
        self.bytes.clear();
        true
    }

    /// Take them all into the identity of the contents.
    ///
    /// # Errors
    /// Those that were put elsewhere can't be read back.
    pub fn finish(self, hasher: &mut Hasher) -> std::io::Result<()> {
        if let Some((file, end)) = self.elsewhere {
            let (mut piece, mut at) = (vec![0; PIECE_BYTES], 0);
            while at < end {
                let len = (end - at).min(PIECE_BYTES as u64) as usize;
                file.read_exact_at(&mut piece[..len], at)?;
                hasher.update(&piece[..len]);
                at += len as u64;
            }
        }
        hasher.update(&self.bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: u64 = 20_000;

    fn identity(holes: Holes) -> [u8; 32] {
        let mut hasher = Hasher::new();
        holes.finish(&mut hasher).unwrap();
        *hasher.finalize().as_bytes()
    }

    /// Holes of which no more than `max` bytes are to be held, and the identity that they give.
    fn held(max: usize, scratch: impl Fn() -> Option<File>) -> (Holes, [u8; 32]) {
        let mut holes = [Holes::default(), Holes::default()];
        for of in &mut holes {
            (0..COUNT).for_each(|n| of.add_beyond(max, &scratch, n * 8192, 4096));
        }
        let [first, second] = holes;
        (first, identity(second))
    }

    #[test]
    fn however_many_there_are_little_is_held_of_them() {
        let (all, right) = held(usize::MAX, || panic!("there is room"));
        assert_eq!(all.bytes.len() as u64, COUNT * 16);
        let (some, is) = held(1024, || tempfile::tempfile().ok());
        assert!(some.bytes.len() <= 1024 && some.bytes.capacity() <= 4096);
        assert_eq!(is, right);
    }

    #[test]
    fn what_can_not_be_put_elsewhere_stays() {
        let (_, right) = held(usize::MAX, || None);
        assert_eq!(held(1024, || None).1, right);
        // One that takes nothing.
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, b"").unwrap();
        assert_eq!(held(1024, || File::open(&path).ok()).1, right);
    }
}
