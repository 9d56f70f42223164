//! Which paths a walk covers: the sources, merged into one tree below `/`.
//!
//! The tree is small (one node a component of a source) and says where the walk lists everything, and where it lists
//! only what leads to a source. A source given explicitly is covered even where a rule, or a boundary between file
//! systems, keeps the walk from coming upon it.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;

/// A node of the tree of sources.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// What is to be covered below, by name.
    pub(crate) children: BTreeMap<Vec<u8>, Arc<Plan>>,
    /// A source: all below it is covered.
    pub(crate) source: bool,
    follow: bool,
}

impl Plan {
    /// Whether a symlink at this node stands for what it points to: on the way to a source, and where the source was
    /// given with a slash at its end.
    pub(crate) fn follow(&self) -> bool {
        self.follow || !self.children.is_empty()
    }

    /// Names of children at which symlinks are followed.
    pub(crate) fn followed(&self) -> impl Iterator<Item = Vec<u8>> {
        self.children.iter().filter(|(_, child)| child.follow()).map(|(name, _)| name.clone())
    }

    /// The paths of all sources at and below this node, `path` being its own.
    pub(crate) fn sources(&self, path: &[u8], out: &mut Vec<Vec<u8>>) {
        if self.source {
            out.push(path.to_vec());
        }
        for (name, child) in &self.children {
            let path = [path, b"/", name].concat();
            child.sources(&path, out);
        }
    }

    /// Builds the tree. A source that can't be made sense of (empty, relative, a `..` that leads nowhere) comes back
    /// with its error.
    pub(crate) fn new(sources: &[Vec<u8>]) -> (Arc<Plan>, Vec<(Vec<u8>, io::Error)>) {
        let mut root = Arc::new(Plan::default());
        let mut errors = Vec::new();
        for given in sources {
            match normalise(given) {
                Ok((components, follow)) => {
                    let mut node = &mut root;
                    for name in components {
                        node = Arc::make_mut(node).children.entry(name).or_default();
                    }
                    let node = Arc::make_mut(node);
                    node.source = true;
                    node.follow |= follow;
                }
                Err(e) => errors.push((given.clone(), e)),
            }
        }
        (root, errors)
    }
}

/// Splits an absolute path into components, and says whether its last one is to be followed.
pub(crate) fn normalise(path: &[u8]) -> io::Result<(Vec<Vec<u8>>, bool)> {
    if !path.starts_with(b"/") {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path of a source must be absolute"));
    }
    if path.contains(&0) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path of a source contains a zero byte"));
    }
    let follow = path.ends_with(b"/") || path.ends_with(b"/.");
    let parts: Vec<&[u8]> = path.split(|&b| b == b'/').filter(|c| !matches!(*c, b"" | b".")).collect();
    let Some(up) = parts.iter().rposition(|c| *c == b"..") else {
        return Ok((parts.into_iter().map(<[u8]>::to_vec).collect(), follow));
    };
    // `..` after a symlink means the parent of its target: only the system can tell.
    let upward = [b"/".as_slice(), &parts[..=up].join(&b'/')].concat();
    let mut real = Path::new(std::ffi::OsStr::from_bytes(&upward)).canonicalize()?.into_os_string().into_vec();
    for part in &parts[up + 1..] {
        real.push(b'/');
        real.extend_from_slice(part);
    }
    let parts = real.split(|&b| b == b'/').filter(|c| !c.is_empty()).map(<[u8]>::to_vec).collect();
    Ok((parts, follow))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_made_plain() {
        let plain =
            |p: &str| normalise(p.as_bytes()).map(|(c, f)| (String::from_utf8(c.join(&b'/')).unwrap_or_default(), f));
        assert_eq!(plain("//a/./b//c").ok(), Some(("a/b/c".into(), false)));
        assert_eq!(plain("/a/b/").ok(), Some(("a/b".into(), true)));
        assert_eq!(plain("/a/b/.").ok(), Some(("a/b".into(), true)));
        assert_eq!(plain("/").ok(), Some((String::new(), true)));
        assert_eq!(plain("/usr/../usr/bin/../lib").ok().map(|p| p.1), Some(false));
        assert!(plain("a/b").is_err() && plain("").is_err() && plain("/no-such-dir-here/../x").is_err());
    }

    #[test]
    fn sources_merge() {
        let (plan, errors) =
            Plan::new(&[b"/home/u".to_vec(), b"/etc".to_vec(), b"/home/u/x".to_vec(), b"rel".to_vec()]);
        assert_eq!(errors.len(), 1);
        let mut got = Vec::new();
        plan.sources(b"", &mut got);
        assert_eq!(got, [b"/etc".to_vec(), b"/home/u".to_vec(), b"/home/u/x".to_vec()]);
        assert!(!plan.source);
    }
}
