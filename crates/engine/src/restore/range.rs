//! Which part of a tree is wanted: stretches of it in tree order, so that one path out of millions costs its depth.

use drumlin_format::tree::join;

/// Where an entry stands: directory and name.
pub(super) type Key = (Vec<u8>, Vec<u8>);

/// A stretch of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    /// The first entry.
    pub start: Key,
    /// The first entry behind it; `None` for the end of the tree.
    pub end: Option<Key>,
    /// Whether these entries only lead to others: of them only directories are wanted.
    pub way: bool,
}

impl Range {
    /// Whether an entry, by its directory and name, is in it.
    pub fn holds(&self, at: (&[u8], &[u8])) -> bool {
        (&self.start.0[..], &self.start.1[..]) <= at
            && self.end.as_ref().is_none_or(|end| at < (&end.0[..], &end.1[..]))
    }

    /// Whether all entries of a directory are in this stretch, if some of them are.
    pub fn has_all_of(&self, dir: &[u8]) -> bool {
        // A stretch begins with a single entry, or with the first one of a directory that is wanted with all below it.
        !self.way && (&self.start.0[..], &self.start.1[..]) <= (dir, b"")
    }
}

/// An absolute path as directory and name; `None` for the root.
pub(super) fn key(path: &[u8]) -> Option<Key> {
    let names: Vec<&[u8]> = path.split(|b| *b == b'/').filter(|n| !n.is_empty() && *n != b".").collect();
    let (name, dirs) = names.split_last()?;
    Some((dirs.join(&0), name.to_vec()))
}

/// The stretches that hold these paths, all that is below them, and the directories that lead to them; in tree order.
pub(super) fn ranges(paths: &[Vec<u8>], subfolder: Option<&[u8]>) -> Vec<Range> {
    let base = subfolder.and_then(key).map(|(dir, name)| join(&dir, &name)).unwrap_or_default();
    let mut ranges = Vec::new();
    let below = |dir: &[u8]| {
        let end = (!dir.is_empty()).then(|| ([dir, &[1]].concat(), Vec::new()));
        Range { start: (dir.to_vec(), Vec::new()), end, way: false }
    };
    let single = |(dir, name): &Key, way| Range {
        start: (dir.clone(), name.clone()),
        end: Some((dir.clone(), [&name[..], &[0]].concat())),
        way,
    };
    let wanted: Vec<Key> = paths.iter().filter_map(|p| key(p)).collect();
    if wanted.len() < paths.len() || paths.is_empty() {
        return vec![below(&base)];
    }
    for (dir, name) in wanted {
        let dir =
            if base.is_empty() || dir.is_empty() { [&base[..], &dir].concat() } else { [&base[..], &dir].join(&0) };
        // The directories on the way, below the subfolder.
        let mut at = base.len() + usize::from(!base.is_empty());
        while at < dir.len() {
            let end = dir[at..].iter().position(|b| *b == 0).map_or(dir.len(), |n| at + n);
            let parent = dir[..at.saturating_sub(1)].to_vec();
            ranges.push(single(&(parent, dir[at..end].to_vec()), true));
            at = end + 1;
        }
        let own = join(&dir, &name);
        ranges.push(single(&(dir, name), false));
        ranges.push(below(&own));
    }
    merge(ranges)
}

/// In tree order, without overlaps.
fn merge(mut ranges: Vec<Range>) -> Vec<Range> {
    // Of equal starts the whole entry comes before the mere way to others.
    ranges.sort_by(|a, b| (&a.start, a.way).cmp(&(&b.start, b.way)));
    let mut merged: Vec<Range> = Vec::new();
    for range in ranges {
        match merged.last() {
            Some(last) if !last.way && covers(last, &range) => {}
            Some(last) if last.start == range.start && last.end == range.end => {}
            _ => merged.push(range),
        }
    }
    merged
}

fn covers(outer: &Range, inner: &Range) -> bool {
    match (&outer.end, &inner.end) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(outer), Some(inner)) => inner <= outer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inside(ranges: &[Range], path: &str) -> Option<bool> {
        let at = key(path.as_bytes()).unwrap();
        ranges.iter().find(|r| r.start <= at && r.end.as_ref().is_none_or(|end| at < *end)).map(|r| r.way)
    }

    #[test]
    fn paths_bring_what_is_below_and_what_leads_to_them() {
        let ranges = ranges(&[b"/home/u/Docs".to_vec(), b"home/u/x/".to_vec()], None);
        for (path, expected) in [
            ("/home", Some(true)),
            ("/home/u", Some(true)),
            ("/home/v", None),
            ("/home/u/Docs", Some(false)),
            ("/home/u/Docs/a/b", Some(false)),
            ("/home/u/Docs-2", None),
            ("/home/u/Docs-2/a", None),
            ("/home/u/x", Some(false)),
            ("/home/u/x/y", Some(false)),
            ("/etc", None),
        ] {
            assert_eq!(inside(&ranges, path), expected, "{path}");
        }
        assert!(ranges.is_sorted_by(|a, b| a.start < b.start));
    }

    #[test]
    fn everything_subfolders_and_nested_paths() {
        assert_eq!(ranges(&[], None), [Range { start: (vec![], vec![]), end: None, way: false }]);
        let sub = ranges(&[], Some(b"/home/u"));
        assert_eq!(inside(&sub, "/home/u/a"), Some(false));
        assert_eq!(inside(&sub, "/home/u"), None);
        let nested = ranges(&[b"/a".to_vec(), b"/a/b".to_vec()], Some(b"/r"));
        assert_eq!(inside(&nested, "/r/a/b/c"), Some(false));
        assert_eq!(inside(&nested, "/r/b"), None);
        assert_eq!(nested.iter().filter(|r| r.way).count(), 0);
    }
}
