//! What directories hold, summed up: in words, and in JSON.

use crate::render::size::{bytes, counted};
use drumlin_format::tree::Sums;
use serde::Serialize;

/// Sums in JSON.
#[derive(Serialize)]
pub struct JsonSums {
    /// Entries of all types.
    pub entries: u64,
    /// Files among them.
    pub files: u64,
    /// Directories among them.
    pub dirs: u64,
    /// Bytes of the files' contents.
    pub bytes: u64,
}

impl From<Sums> for JsonSums {
    fn from(s: Sums) -> Self {
        JsonSums { entries: s.entries, files: s.files, dirs: s.dirs, bytes: s.bytes }
    }
}

/// Sums in words: `1.50 KiB in 3 entries (1 file, 2 directories)`.
pub fn in_words(s: &Sums) -> String {
    let (files, dirs) = (counted(s.files, "file", "files"), counted(s.dirs, "directory", "directories"));
    format!("{} in {} ({files}, {dirs})", bytes(s.bytes), counted(s.entries, "entry", "entries"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_four_are_told() {
        let sums = Sums { entries: 5, files: 1, dirs: 2, bytes: 1536 };
        assert_eq!(in_words(&sums), "1.50 KiB in 5 entries (1 file, 2 directories)");
    }
}
