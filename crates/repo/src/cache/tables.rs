//! Tables of packs of a storage far away, as index objects have them: who needs one chunk need not fetch what all
//! chunks of its pack are called.
//!
//! ```text
//! <folder>/<pack id>    fresh (16), the table, sealed under a key of the cache's, as which each key has a folder
//! ```
//!
//! An index object may be wrong, as in all that it says, and so may a table that was taken from it: chunks are checked
//! by their ids, and where one isn't what it should be the table goes, and the pack's own counts.

use super::shelf::Shelf;
use crate::lock::lock;
use drumlin_format::PackId;
use drumlin_format::pack::Table;
use drumlin_seal::{SealKey, Secret, Suite, TAG_BYTES, derive};
use drumlin_store::descriptors;
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;

const FRESH_BYTES: usize = 16;

/// A client's tables of packs of one repository.
pub(crate) struct Tables {
    shelf: Shelf,
    secret: Secret,
    suite: Suite,
    bytes_max: u64,
    /// What they take, once it was looked at.
    bytes: Mutex<Option<u64>>,
}

impl Tables {
    /// Those in a folder, which take up to so many bytes.
    pub fn new(folder: PathBuf, secret: Secret, suite: Suite, bytes_max: u64) -> Self {
        Tables { shelf: Shelf::new(folder), secret, suite, bytes_max, bytes: Mutex::new(None) }
    }

    /// A pack's table; `None` if there is none, or none that is sound.
    pub fn get(&self, pack: PackId) -> Option<Table> {
        let mut bytes = descriptors::wait_for(|| fs::read(self.shelf.path(pack))).ok()?;
        let table = bytes.split_first_chunk_mut::<FRESH_BYTES>().and_then(|(fresh, sealed)| {
            let plain = self.seal(fresh).open(0, &pack.0, sealed).ok()?;
            Table::decode(plain).ok()
        });
        if table.is_none() {
            self.forget(pack);
        }
        table
    }

    /// Whether there is something of a pack.
    pub fn has(&self, pack: PackId) -> bool {
        self.shelf.path(pack).exists()
    }

    /// Keep a pack's table, if there is room. What can't be kept costs time later, nothing else.
    pub fn keep(&self, pack: PackId, table: &Table) {
        let Ok(fresh) = crate::random_id() else { return };
        let mut sealed = table.encode();
        let len = (sealed.len() + FRESH_BYTES + TAG_BYTES) as u64;
        {
            let mut bytes = lock(&self.bytes);
            let taken = bytes.get_or_insert_with(|| self.shelf.all().iter().map(|(_, len)| len).sum());
            if *taken + len > self.bytes_max || self.has(pack) {
                return;
            }
            *taken += len;
        }
        self.seal(&fresh).seal(0, &pack.0, &mut sealed);
        self.shelf.put(pack, &[&fresh[..], &sealed].concat());
    }

    /// Throw away what there is of a pack.
    pub fn forget(&self, pack: PackId) {
        self.shelf.forget(pack);
    }

    /// Throw away the tables of packs that are no more, and of the others those that were kept first, until the rest
    /// leaves some room.
    pub fn tidy(&self, is_there: impl Fn(PackId) -> bool) {
        self.shelf.surplus(is_there, self.bytes_max / 8 * 7).into_iter().for_each(|pack| self.forget(pack));
        *lock(&self.bytes) = None;
    }

    fn seal(&self, fresh: &[u8; FRESH_BYTES]) -> SealKey {
        SealKey::new(self.suite, &derive(&self.secret, "kept table", fresh))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_format::ChunkId;
    use drumlin_format::pack::{Codec, Slot};
    use drumlin_seal::WRAPPED_BYTES;

    const PACK: PackId = PackId([7; 16]);

    fn table(chunks: u8) -> Table {
        let slots = vec![Slot { origin: PACK, wrapped: vec![1; WRAPPED_BYTES] }];
        let mut table = Table { slots, ..Table::default() };
        let ids: Vec<_> = (0..chunks).map(|n| (ChunkId([n; 32]), 100)).collect();
        table.push(0, 0, Codec::Zstd, 300, 100 * u32::from(chunks), &ids).unwrap();
        table
    }

    fn tables(folder: &tempfile::TempDir, bytes_max: u64) -> Tables {
        Tables::new(folder.path().join("tables"), Secret::new([5; 32]), Suite::Aes256Gcm, bytes_max)
    }

    #[test]
    fn they_are_kept_across_processes() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(tables(&folder, 1 << 20).get(PACK), None);
        tables(&folder, 1 << 20).keep(PACK, &table(3));
        let again = tables(&folder, 1 << 20);
        assert_eq!((again.get(PACK), again.has(PACK)), (Some(table(3)), true));
        // What stands there stays: it is as good as another.
        again.keep(PACK, &table(4));
        assert_eq!(again.get(PACK), Some(table(3)));
        again.forget(PACK);
        assert_eq!((again.get(PACK), again.has(PACK)), (None, false));
    }

    #[test]
    fn what_is_torn_or_another_packs_is_thrown_away() {
        let folder = tempfile::tempdir().unwrap();
        let tables = tables(&folder, 1 << 20);
        let path = folder.path().join("tables").join(PACK.to_string());
        tables.keep(PACK, &table(3));
        let whole = fs::read(&path).unwrap();
        for len in 0..whole.len() {
            fs::write(&path, &whole[..len]).unwrap();
            assert_eq!((tables.get(PACK), path.exists()), (None, false), "{len}");
        }
        for at in (0..whole.len()).step_by(7) {
            let mut bytes = whole.clone();
            bytes[at] ^= 4;
            fs::write(&path, bytes).unwrap();
            assert_eq!((tables.get(PACK), path.exists()), (None, false), "{at}");
        }
        let other = PackId([8; 16]);
        fs::write(folder.path().join("tables").join(other.to_string()), whole).unwrap();
        assert_eq!(tables.get(other), None);
    }

    #[test]
    fn they_take_no_more_room_than_they_may() {
        let folder = tempfile::tempdir().unwrap();
        let len = (table(100).encode().len() + FRESH_BYTES + TAG_BYTES) as u64;
        let tables = tables(&folder, 8 * len);
        let pack = |n| PackId([n; 16]);
        (0..12).for_each(|n| tables.keep(pack(n), &table(100)));
        assert_eq!((0..12).filter(|n| tables.has(pack(*n))).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
        for n in 0..8 {
            let file =
                fs::File::options().append(true).open(folder.path().join("tables").join(pack(n).to_string())).unwrap();
            file.set_modified(std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(u64::from(n)))
                .unwrap();
        }
        tables.tidy(|pack| pack.0[0] != 5);
        assert_eq!((0..12).filter(|n| tables.has(pack(*n))).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 6, 7]);
        tables.keep(pack(20), &table(100));
        tables.keep(pack(21), &table(100));
        assert!(tables.has(pack(20)) && !tables.has(pack(21)), "room for eight");
        tables.tidy(|_| true);
        assert_eq!((0..30).filter(|n| tables.has(pack(*n))).collect::<Vec<_>>(), [1, 2, 3, 4, 6, 7, 20]);
    }
}
