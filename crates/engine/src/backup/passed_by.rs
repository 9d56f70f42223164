//! Directories on other file systems that a backup did not look into: what is in them nobody knows, so that a restore
//! that deletes has to leave it.

use std::collections::BTreeSet;

/// So many are kept, and so many bytes of their paths: whoever lists snapshots reads them all. Of machines with more
/// (containers have a mount or two each) whole folders of them are.
const MOST: usize = 256;
const BYTES_MOST: usize = 16 << 10;

/// They and all below them, by absolute path.
pub(super) struct PassedBy {
    paths: BTreeSet<Vec<u8>>,
    /// What is saved, without slashes at the end.
    sources: BTreeSet<Vec<u8>>,
}

impl PassedBy {
    /// Of a backup of these sources.
    pub fn new(sources: &[Vec<u8>]) -> Self {
        PassedBy { paths: BTreeSet::new(), sources: sources.iter().map(|path| plain(path)).collect() }
    }

    /// More of them.
    pub fn add(&mut self, paths: Vec<Vec<u8>>) {
        if paths.is_empty() {
            return;
        }
        for path in paths {
            if !self.is_said(&path) {
                self.paths.insert(path);
            }
        }
        while (self.paths.len() > MOST || self.paths.iter().map(Vec::len).sum::<usize>() > BYTES_MOST) && self.gather()
        {
        }
    }

    /// Whether that it lies in another one says as much: no source is nearer.
    fn is_said(&self, path: &[u8]) -> bool {
        let above = (1..path.len()).rev().filter(|at| path[*at] == b'/').map(|at| &path[..at]).chain([&b"/"[..]]);
        let nearest = [path].into_iter().chain(above).find(|at| self.paths.contains(*at) || self.sources.contains(*at));
        nearest.is_some_and(|at| self.paths.contains(at))
    }

    /// In their order.
    pub fn paths(&self) -> Vec<Vec<u8>> {
        self.paths.iter().cloned().collect()
    }

    /// Takes the deepest together, as the directories that they are in; none above a source: that is saved as a whole
    /// again, whatever is said of what it lies in. Whether there were any.
    fn gather(&mut self) -> bool {
        let depth = |path: &[u8]| path.iter().filter(|byte| **byte == b'/').count();
        let moves = |path: &&Vec<u8>| path.len() > 1 && !self.sources.contains(*path);
        let Some(deepest) = self.paths.iter().filter(moves).map(|path| depth(path)).max() else { return false };
        let deep: Vec<_> = self.paths.iter().filter(moves).filter(|path| depth(path) == deepest).cloned().collect();
        for path in deep {
            self.paths.remove(&path);
            self.paths.insert(match path.iter().rposition(|byte| *byte == b'/') {
                Some(at) if at > 0 => path[..at].to_vec(),
                _ => b"/".to_vec(),
            });
        }
        true
    }
}

/// A path without what says nothing.
fn plain(path: &[u8]) -> Vec<u8> {
    let parts = path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    let plain: Vec<u8> = parts.flat_map(|part| [b"/", part].concat()).collect();
    if plain.is_empty() { b"/".to_vec() } else { plain }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sources: &[&str], paths: impl IntoIterator<Item = String>) -> Vec<String> {
        let sources: Vec<_> = sources.iter().map(|path| path.as_bytes().to_vec()).collect();
        let mut passed = PassedBy::new(&sources);
        for path in paths {
            passed.add(vec![path.into_bytes()]);
        }
        passed.paths().into_iter().map(|path| String::from_utf8(path).unwrap()).collect()
    }

    #[test]
    fn too_many_are_kept_as_the_folders_that_they_are_in() {
        let few = ["/a/b".to_owned(), "/srv".to_owned()];
        assert_eq!(of(&["/"], few.clone()), few);
        let many = (0..MOST).map(|n| format!("/var/lib/c/{n}/merged"));
        let found = of(&["/"], many.chain(["/srv".to_owned(), "/var/lib/d/1/2".to_owned()]));
        assert_eq!(found, ["/srv", "/var/lib/c", "/var/lib/d/1/2"].map(String::from));
        let wide = (0..=MOST).map(|n| format!("/{n}"));
        assert_eq!(of(&["/"], wide), ["/"]);
        let found = of(&["/"], (0..8).map(|n| format!("/deep/{n}/{}", "x".repeat(4000))));
        assert!(found.len() == 8 && found.iter().map(String::len).sum::<usize>() <= BYTES_MOST);
    }

    /// What is said above a source says nothing of it.
    #[test]
    fn none_is_taken_for_a_folder_above_its_source() {
        let many = || (0..=MOST).map(|n| format!("/srv/{n}"));
        let found = of(&["/", "/data/x/y/"], ["/data/x/y/m/n".to_owned()].into_iter().chain(many()));
        assert_eq!(found, ["/data/x/y", "/srv"].map(String::from));
        let homes: Vec<String> = (0..=MOST).map(|n| format!("/home/u{n:03}")).collect();
        let sources: Vec<&str> = homes.iter().map(String::as_str).collect();
        assert_eq!(of(&sources, homes.iter().map(|home| format!("{home}/mnt"))), homes);
    }
}
