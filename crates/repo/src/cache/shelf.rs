//! A folder of the cache with a file for each of some packs, named by it.

use drumlin_format::PackId;
use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

/// Such a folder, which need not be there.
pub(super) struct Shelf {
    folder: PathBuf,
}

impl Shelf {
    pub fn new(folder: PathBuf) -> Self {
        Shelf { folder }
    }

    /// The file of a pack.
    pub fn path(&self, pack: PackId) -> PathBuf {
        self.folder.join(pack.to_string())
    }

    /// Put a whole file, in one step.
    pub fn put(&self, pack: PackId, bytes: &[u8]) {
        if super::make_folder(&self.folder).is_ok() {
            let _ = super::replace_file(&self.path(pack), bytes);
        }
    }

    /// Throw a file away.
    pub fn forget(&self, pack: PackId) {
        let _ = fs::remove_file(self.path(pack));
    }

    /// The packs of which there are files, with the bytes that these take, the latest used or written first.
    pub fn all(&self) -> Vec<(PackId, u64)> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let Some(pack) = entry.file_name().to_str().and_then(PackId::parse) else { continue };
            if let Ok(meta) = entry.metadata() {
                found.push((meta.modified().unwrap_or(SystemTime::UNIX_EPOCH), pack, meta.len()));
            }
        }
        found.sort_by_key(|(used, ..)| std::cmp::Reverse(*used));
        found.into_iter().map(|(_, pack, len)| (pack, len)).collect()
    }

    /// The packs that are no more, and of the others those whose files come last in [`Shelf::all`], so that the rest
    /// takes no more than so many bytes.
    pub fn surplus(&self, is_there: impl Fn(PackId) -> bool, bytes_max: u64) -> Vec<PackId> {
        let (mut kept, mut surplus) = (0, Vec::new());
        for (pack, len) in self.all() {
            if is_there(pack) && kept + len <= bytes_max {
                kept += len;
            } else {
                surplus.push(pack);
            }
        }
        surplus
    }
}
