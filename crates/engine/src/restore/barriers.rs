//! Directories in or below which a restore does less than elsewhere, since something stands in their place or on them.
//!
//! All are known by their keys in the tree, and count for what lies below them too.

use super::selection::is_below;
use drumlin_format::tree::join;

/// What is in the way of a restore, as far as it has come.
#[derive(Default)]
pub(super) struct Barriers {
    /// Directories that are there and on which something is mounted: in them nothing is deleted.
    mounted: Vec<Vec<u8>>,
    /// In whose place a symlink is that stays; or, in a dry run, something that would give way.
    barred: Vec<Vec<u8>>,
    /// In whose place something else is that stays: it was told.
    kept_out: Vec<Vec<u8>>,
}

impl Barriers {
    /// Something is mounted on that directory.
    pub fn mounted(&mut self, dir: &[u8], name: &[u8]) {
        self.mounted.push(join(dir, name));
    }

    /// A symlink is in its place, or something that would give way; nothing is made in it.
    pub fn barred(&mut self, dir: &[u8], name: &[u8]) {
        self.barred.push(join(dir, name));
    }

    /// Something else is in its place, and stays.
    pub fn kept_out(&mut self, dir: &[u8], name: &[u8]) {
        self.kept_out.push(join(dir, name));
    }

    /// Whether a directory lies on or below what something is mounted on.
    pub fn is_mounted(&self, key: &[u8]) -> bool {
        is_below_any(&self.mounted, key)
    }

    /// Whether something is in a directory's way, or in that of one above it.
    pub fn is_barred(&self, key: &[u8]) -> bool {
        is_below_any(&self.barred, key) || self.is_kept_out(key)
    }

    /// Whether that stays where it is.
    pub fn is_kept_out(&self, key: &[u8]) -> bool {
        is_below_any(&self.kept_out, key)
    }
}

/// Whether a directory is one of these, or lies below one.
fn is_below_any(dirs: &[Vec<u8>], key: &[u8]) -> bool {
    dirs.iter().any(|dir| is_below(key, dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_way_is_in_the_way_of_all_below_it() {
        let mut barriers = Barriers::default();
        barriers.mounted(b"srv", b"disk");
        barriers.barred(b"srv", b"link");
        barriers.kept_out(b"srv", b"file");
        for (key, mounted, barred, kept_out) in [
            (&b"srv"[..], false, false, false),
            (b"srv\0disk", true, false, false),
            (b"srv\0disk\0a\0b", true, false, false),
            (b"srv\0disks", false, false, false),
            (b"srv\0link\0a", false, true, false),
            (b"srv\0file", false, true, true),
            (b"srv\0file\0a", false, true, true),
            (b"srv\0file.old\0a", false, false, false),
        ] {
            let found = (barriers.is_mounted(key), barriers.is_barred(key), barriers.is_kept_out(key));
            assert_eq!(found, (mounted, barred, kept_out), "{:?}", String::from_utf8_lossy(key));
        }
    }
}
