//! Directories on other file systems that a backup did not look into: what is in them nobody knows, so that a restore
//! that deletes has to leave it.

use std::collections::BTreeSet;

/// So many are kept. Of machines with more (containers have a mount or two each) whole folders of them are.
const MOST: usize = 1024;

/// They and all below them, by absolute path.
#[derive(Default)]
pub(super) struct PassedBy(BTreeSet<Vec<u8>>);

impl PassedBy {
    /// More of them.
    pub fn add(&mut self, paths: Vec<Vec<u8>>) {
        self.0.extend(paths);
        while self.0.len() > MOST {
            self.gather();
        }
    }

    /// In their order.
    pub fn paths(&self) -> Vec<Vec<u8>> {
        self.0.iter().cloned().collect()
    }

    /// Takes the deepest together, as the directories that they are in.
    fn gather(&mut self) {
        let depth = |path: &[u8]| path.iter().filter(|byte| **byte == b'/').count();
        let deepest = self.0.iter().map(|path| depth(path)).max().unwrap_or_default();
        let (deep, rest): (BTreeSet<_>, _) =
            std::mem::take(&mut self.0).into_iter().partition(|path| depth(path) == deepest);
        self.0 = rest;
        self.0.extend(deep.into_iter().map(|path| match path.iter().rposition(|byte| *byte == b'/') {
            Some(at) if at > 0 => path[..at].to_vec(),
            _ => b"/".to_vec(),
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(paths: impl IntoIterator<Item = String>) -> Vec<String> {
        let mut passed = PassedBy::default();
        for path in paths {
            passed.add(vec![path.into_bytes()]);
        }
        passed.paths().into_iter().map(|path| String::from_utf8(path).unwrap()).collect()
    }

    #[test]
    fn too_many_are_kept_as_the_folders_that_they_are_in() {
        let few = ["/a/b".to_owned(), "/srv".to_owned()];
        assert_eq!(of(few.clone()), few);
        let many = (0..MOST).map(|n| format!("/var/lib/c/{n}/merged"));
        let found = of(many.chain(["/srv".to_owned(), "/var/lib/d/1/2".to_owned()]));
        assert_eq!(found, ["/srv", "/var/lib/c", "/var/lib/d/1/2"].map(String::from));
        let wide = (0..=MOST).map(|n| format!("/{n}"));
        assert_eq!(of(wide), ["/"]);
    }
}
