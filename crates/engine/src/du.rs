//! How much is below a path and each of its directories, from the sums that inner nodes keep.
//!
//! Only leaves at the edges of directories are read: the listings that lead to the wanted depth, and where one
//! directory's contents end and the next one's begin. A file with several hard links counts once for each of its names.

use crate::list::{Entered, Nodes, Span, Steps, find_entry, partition, report_damage};
use crate::monitor::Monitor;
use crate::select::TreePath;
use crate::{Error, Result};
use drumlin_format::snapshot::Root;
use drumlin_format::tree::{Kind, Sums};
use drumlin_repo::pack::Reader;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;

/// Directories deeper than this below the path are counted in the one above them: each level keeps a leaf in memory.
pub const DEPTH_MAX: usize = 128;

/// Receives a directory's path, its depth below the given one, and what it holds. May end it early.
pub type Each<'a> = dyn FnMut(&TreePath, usize, &Sums) -> Result<ControlFlow<()>> + 'a;

/// Sum up a path and its directories down to `depth` levels below it: those below a directory come before it, the path
/// itself comes last. An entry's own is part of its sums.
///
/// # Errors
/// [`Error::NoPath`] if the snapshot has no such path; what `each` says. A damaged node is told to the monitor; what is
/// below it is missing from the sums.
pub fn du(
    reader: &Arc<Reader>,
    root: Option<Root>,
    path: &TreePath,
    depth: usize,
    monitor: &dyn Monitor,
    each: &mut Each,
) -> Result<Sums> {
    let mut own = Sums::default();
    let mut is_dir = true;
    if !path.is_root() {
        let meta = find_entry(reader, root, path, |entry| Ok(*entry.meta()))?;
        own.add_entry(&meta);
        is_dir = meta.kind == Kind::Dir;
    }
    let nodes = Nodes::new(reader);
    let mut walk = Walk {
        root,
        monitor,
        sweep: Sweep { steps: Steps::over(&nodes, root, Span::below(path.key())), leaf: None },
        nodes,
        each,
        ended: false,
    };
    if is_dir {
        own.add(&walk.below(path, 0, depth.min(DEPTH_MAX))?);
    }
    if !walk.ended {
        let _ = (walk.each)(path, 0, &own)?;
    }
    Ok(own)
}

struct Walk<'a, 'e> {
    nodes: Rc<Nodes>,
    root: Option<Root>,
    monitor: &'a dyn Monitor,
    sweep: Sweep,
    each: &'a mut Each<'e>,
    ended: bool,
}

impl Walk<'_, '_> {
    /// What is below a directory that is itself `level` levels below the start.
    fn below(&mut self, dir: &TreePath, level: usize, depth: usize) -> Result<Sums> {
        if level == depth {
            return self.sum(dir);
        }
        let mut sums = Sums::default();
        let mut listing = Steps::over(&self.nodes, self.root, Span::children(dir.key()));
        while let Some(head) = listing.head() {
            let child = head.child.clone();
            let entered = match listing.enter() {
                Ok(Some(entered)) => entered,
                Ok(None) => continue,
                Err(e) => {
                    report_damage(self.monitor, &child, e)?;
                    continue;
                }
            };
            for at in entered.within.clone() {
                if self.monitor.stop() {
                    return Err(Error::Interrupted);
                }
                let (_, name, meta) = entered.leaf.get(at);
                let mut one = Sums::default();
                one.add_entry(meta);
                if meta.kind == Kind::Dir {
                    let path = TreePath::of(dir.key(), name);
                    one.add(&self.below(&path, level + 1, depth)?);
                    if self.ended || (self.each)(&path, level + 1, &one)?.is_break() {
                        self.ended = true;
                        return Ok(sums);
                    }
                }
                sums.add(&one);
            }
        }
        Ok(sums)
    }

    fn sum(&mut self, dir: &TreePath) -> Result<Sums> {
        let span = Span::below(dir.key());
        let Some((end, _)) = span.end else { return Ok(self.root.map_or_else(Sums::default, |r| r.sums)) };
        // Directories come in tree order, so the sweep only ever goes on.
        self.sweep.to((dir.key(), b""), &mut Sums::default(), self.monitor)?;
        let mut sums = Sums::default();
        self.sweep.to((&end, b""), &mut sums, self.monitor)?;
        Ok(sums)
    }
}

/// Goes through the tree once, from its start to its end, adding up.
struct Sweep {
    steps: Steps,
    /// A leaf of which some entries are still to come.
    leaf: Option<Entered>,
}

impl Sweep {
    /// Go on to `key`, adding what is passed to `sums`. Only nodes that reach beyond it are entered.
    fn to(&mut self, key: (&[u8], &[u8]), sums: &mut Sums, monitor: &dyn Monitor) -> Result<()> {
        loop {
            if let Some(entered) = &mut self.leaf {
                let within = &mut entered.within;
                let to = partition(&entered.leaf, |k| k < key).clamp(within.start, within.end);
                (within.start..to).for_each(|at| sums.add_entry(entered.leaf.get(at).2));
                within.start = to;
                if within.start < within.end {
                    return Ok(());
                }
                self.leaf = None;
            }
            let Some(head) = self.steps.head() else { return Ok(()) };
            if head.first() >= key {
                return Ok(());
            }
            if head.next.is_some_and(|next| next <= key) && self.steps.holds(&head) {
                sums.add(&head.child.sums);
                self.steps.skip();
                continue;
            }
            let child = head.child.clone();
            match self.steps.enter() {
                Ok(entered) => self.leaf = entered,
                Err(e) => report_damage(monitor, &child, e)?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::fixture::{Fixture, tree_of};
    use crate::monitor::Quiet;
    use std::collections::BTreeMap;

    fn all(fixture: &Fixture, path: &str, depth: usize) -> (Sums, Vec<(String, usize, u64, u64)>) {
        let mut seen = Vec::new();
        let path = TreePath::parse(path.as_bytes()).unwrap();
        let sums = du(&fixture.reader(), fixture.root(), &path, depth, &Quiet::default(), &mut |p, depth, sums| {
            seen.push((p.to_string(), depth, sums.entries, sums.bytes));
            Ok(ControlFlow::Continue(()))
        });
        (sums.unwrap(), seen)
    }

    #[test]
    fn sums_agree_with_adding_up() {
        let mut files = Vec::new();
        for dir in 0..40 {
            for n in 0..400 {
                files.push((format!("/top/d{dir:02}/s{}/f{n}", n % 3), 10 + n as u64));
            }
        }
        files.push(("/top/z".into(), 7));
        let fixture = tree_of(&files.iter().map(|(p, s)| (p.as_str(), *s)).collect::<Vec<_>>());
        // Entries by directory, the plain way.
        let mut plain: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for (path, size, is_dir) in fixture.entries() {
            let mut at = path.as_str();
            loop {
                if at != path || is_dir {
                    let sums = plain.entry(at.to_owned()).or_default();
                    sums.0 += 1;
                    sums.1 += size;
                }
                match at.rfind('/') {
                    Some(0) if at.len() > 1 => at = "/",
                    Some(cut) if cut > 0 => at = &at[..cut],
                    _ => break,
                }
            }
        }
        for (path, depth) in [("/", 0), ("/", 1), ("/", 2), ("/", 9), ("/top", 1), ("/top/d07", 5), ("/top/d39/s2", 0)]
        {
            let (sums, seen) = all(&fixture, path, depth);
            let last = seen.last().unwrap();
            assert_eq!((last.0.as_str(), last.1, last.2), (path, 0, sums.entries));
            let below = |p: &&String| path == "/" || **p == path || p.starts_with(&format!("{path}/"));
            let level = |p: &str| if p == "/" { 0 } else { p.matches('/').count() };
            let expected = plain.keys().filter(below).filter(|p| level(p) - level(path) <= depth).count();
            assert_eq!(seen.len(), expected, "{path} {depth}");
            for (p, d, entries, bytes) in &seen {
                assert_eq!((*entries, *bytes), plain[p], "{p}");
                assert_eq!(*d, level(p) - level(path));
            }
        }
        let (sums, seen) = all(&fixture, "/top/z", 3);
        assert_eq!((sums.entries, sums.bytes, seen.len()), (1, 7, 1));
        let path = TreePath::parse(b"/none").unwrap();
        let gone = du(&fixture.reader(), fixture.root(), &path, 1, &Quiet::default(), &mut |_, _, _| {
            Ok(ControlFlow::Continue(()))
        });
        assert!(matches!(gone, Err(Error::NoPath(_))));
    }

    #[test]
    fn leaves_within_a_directory_are_not_read() {
        let files: Vec<_> = (0..120_000).map(|n| (format!("/a/b{}/f{n:06}", n / 40_000), 1)).collect();
        let fixture = tree_of(&files.iter().map(|(p, s)| (p.as_str(), *s)).collect::<Vec<_>>());
        let whole = fixture.tree_reads(|reader| {
            let mut count = 0;
            let path = TreePath::root();
            let depth = crate::list::Depth::All;
            crate::list::list(reader, fixture.root(), &path, depth, &Quiet::default(), &mut |_| {
                count += 1;
                Ok(ControlFlow::Continue(()))
            })
            .unwrap();
            assert_eq!(count, 120_004);
        });
        let edges = fixture.tree_reads(|reader| {
            let sums = du(reader, fixture.root(), &TreePath::root(), 1, &Quiet::default(), &mut |_, _, _| {
                Ok(ControlFlow::Continue(()))
            });
            assert_eq!(sums.unwrap().bytes, 120_000);
        });
        // The table, a block of inner nodes, and the first leaves: what is below /a is known from its sums.
        assert!(edges <= 4 && whole > 2 * edges, "{edges} of {whole} reads");
    }
}
