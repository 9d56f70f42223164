//! What differs between two snapshots, in tree order, in time proportional to the difference: both trees are walked
//! side by side, and a node that is in both at the same place is passed over with all that is below it.

use crate::list::{Entered, Span, Steps, body, kind, report_damage};
use crate::monitor::Monitor;
use crate::select::{TreePath, push_path};
use crate::{Error, Result};
use drumlin_format::snapshot::Root;
use drumlin_format::tree::{Body, Child, Content, Data, Meta, Sums};
use drumlin_repo::pack::Reader;
use std::cell::OnceCell;
use std::cmp::Ordering;
use std::ops::ControlFlow;
use std::sync::Arc;

/// What to compare.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only what is at or below this path.
    pub path: TreePath,
    /// Count as metadata also what a copy with all attributes would not keep: change and birth time, inode and link
    /// numbers, marks of the backup.
    pub inodes: bool,
}

/// How an entry that is in both differs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modified {
    /// It is of another type.
    pub kind: bool,
    /// A file's bytes, or a symlink's target.
    pub content: bool,
    /// Mode, owner, group, time of change, extended attributes, flags or device number.
    pub metadata: bool,
}

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Only the new snapshot has it.
    Added,
    /// Only the old snapshot has it.
    Removed,
    /// Both have it, and they differ.
    Modified(Modified),
}

/// An entry that differs.
#[derive(Clone, Copy, Debug)]
pub struct Difference<'a> {
    /// Its directory: components joined by zero bytes, empty for the root.
    pub dir: &'a [u8],
    /// Its name.
    pub name: &'a [u8],
    /// What became of it.
    pub change: Change,
    /// As it was, if it was.
    pub old: Option<&'a Meta>,
    /// As it is, if it is.
    pub new: Option<&'a Meta>,
}

impl Difference<'_> {
    /// The absolute path.
    pub fn path(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.dir.len() + self.name.len() + 2);
        push_path(self.dir, self.name, &mut out);
        out
    }
}

/// The differences, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What only the new snapshot has.
    pub added: Sums,
    /// What only the old snapshot has.
    pub removed: Sums,
    /// Entries in both that differ: as they were.
    pub modified_old: Sums,
    /// Entries in both that differ: as they are.
    pub modified_new: Sums,
    /// Entries of another type.
    pub kind: u64,
    /// Entries of the same type with other contents.
    pub content: u64,
    /// Entries with the same contents and other metadata.
    pub metadata: u64,
    /// Leaves that had to be read, of both.
    pub leaves_read: u64,
}

/// Compare two trees. `each` may end it early.
///
/// # Errors
/// [`Error::NoPath`] if neither snapshot has the path; what `each` says. A damaged node is told to the monitor; what is
/// below it looks as if it were not there.
pub fn diff(
    reader: &Arc<Reader>,
    old: Option<Root>,
    new: Option<Root>,
    options: &Options,
    monitor: &dyn Monitor,
    each: &mut dyn FnMut(&Difference) -> Result<ControlFlow<()>>,
) -> Result<Report> {
    let mut walk = Walk { options, monitor, each, report: Report::default() };
    if !options.path.is_root() {
        let found = |root| match kind(reader, root, &options.path) {
            Ok(_) => Ok(true),
            Err(Error::NoPath(_)) => Ok(false),
            Err(e) => Err(e),
        };
        let (in_old, in_new): (bool, bool) = (found(old)?, found(new)?);
        if !in_old && !in_new {
            return Err(options.path.missing());
        }
        let side = |root| Side::new(reader, root, Span::entry(&options.path));
        if walk.run(side(old), side(new))?.is_break() {
            return Ok(walk.report);
        }
    }
    let side = |root| Side::new(reader, root, Span::below(options.path.key()));
    // Whether it was ended early no longer matters.
    let _ = walk.run(side(old), side(new))?;
    Ok(walk.report)
}

/// One of the two trees.
struct Side {
    reader: Arc<Reader>,
    steps: Steps,
    leaf: Option<Open>,
}

/// A leaf with the position in it.
struct Open {
    entered: Entered,
    body: OnceCell<Body>,
}

/// Where a side stands.
enum Place<'a> {
    /// Before a node.
    Node { key: (&'a [u8], &'a [u8]), child: &'a Child, level: u8 },
    /// Before an entry.
    Entry { key: (&'a [u8], &'a [u8]) },
    /// At its end.
    End,
}

impl Side {
    fn new(reader: &Arc<Reader>, root: Option<Root>, span: Span) -> Self {
        Side { reader: reader.clone(), steps: Steps::new(reader, root, span), leaf: None }
    }

    fn place(&self) -> Place<'_> {
        if let Some(open) = &self.leaf {
            let (dir, name, _) = open.entered.leaf.get(open.entered.within.start);
            return Place::Entry { key: (dir, name) };
        }
        match self.steps.head() {
            Some(head) => {
                Place::Node { key: (&head.child.dir, &head.child.name), child: head.child, level: head.level }
            }
            None => Place::End,
        }
    }

    /// Enter the node at hand.
    fn enter(&mut self, monitor: &dyn Monitor, report: &mut Report) -> Result<()> {
        let Some(head) = self.steps.head() else { return Ok(()) };
        let child = head.child.clone();
        match self.steps.enter() {
            Ok(Some(entered)) => {
                report.leaves_read += 1;
                self.leaf = (!entered.within.is_empty()).then(|| Open { entered, body: OnceCell::new() });
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(e) => report_damage(monitor, &child, e),
        }
    }

    /// Go on to the next entry.
    fn next(&mut self) {
        if let Some(open) = &mut self.leaf {
            open.entered.within.start += 1;
            if open.entered.within.is_empty() {
                self.leaf = None;
            }
        }
    }

    /// The entry at hand.
    fn entry(&self) -> Option<(&[u8], &[u8], &Meta)> {
        self.leaf.as_ref().map(|open| open.entered.leaf.get(open.entered.within.start))
    }

    /// What leads to the contents of the entry at hand.
    fn content(&self) -> drumlin_repo::Result<Option<&Content>> {
        let Some(open) = &self.leaf else { return Ok(None) };
        let body = match open.body.get() {
            Some(body) => body,
            None => {
                let read = body(&self.reader, &open.entered.child, &open.entered.leaf)?;
                open.body.get_or_init(|| read)
            }
        };
        Ok(body.contents.get(open.entered.within.start))
    }

    /// Whether the contents of both entries at hand are the same place of the same body.
    fn same_content(&self, other: &Side) -> bool {
        let of = |side: &Side| side.leaf.as_ref().map(|open| (open.entered.child.body, open.entered.within.start));
        of(self) == of(other)
    }
}

/// What to do next.
enum Step {
    Skip,
    EnterOld,
    EnterNew,
    EnterBoth,
    Removed,
    Added,
    Compare,
    End,
}

struct Walk<'a> {
    options: &'a Options,
    monitor: &'a dyn Monitor,
    each: &'a mut dyn FnMut(&Difference) -> Result<ControlFlow<()>>,
    report: Report,
}

impl Walk<'_> {
    fn run(&mut self, mut old: Side, mut new: Side) -> Result<ControlFlow<()>> {
        loop {
            if self.monitor.stop() {
                return Err(Error::Interrupted);
            }
            let flow = match step(&old.place(), &new.place()) {
                Step::End => return Ok(ControlFlow::Continue(())),
                Step::Skip => {
                    old.steps.skip();
                    new.steps.skip();
                    ControlFlow::Continue(())
                }
                enter @ (Step::EnterOld | Step::EnterNew | Step::EnterBoth) => {
                    if !matches!(enter, Step::EnterNew) {
                        old.enter(self.monitor, &mut self.report)?;
                    }
                    if !matches!(enter, Step::EnterOld) {
                        new.enter(self.monitor, &mut self.report)?;
                    }
                    ControlFlow::Continue(())
                }
                Step::Removed => {
                    let flow = self.single(&old, Change::Removed)?;
                    old.next();
                    flow
                }
                Step::Added => {
                    let flow = self.single(&new, Change::Added)?;
                    new.next();
                    flow
                }
                Step::Compare => {
                    let flow = self.compare(&old, &new)?;
                    old.next();
                    new.next();
                    flow
                }
            };
            if flow.is_break() {
                return Ok(flow);
            }
        }
    }

    fn single(&mut self, side: &Side, change: Change) -> Result<ControlFlow<()>> {
        let Some((dir, name, meta)) = side.entry() else { return Ok(ControlFlow::Continue(())) };
        let added = change == Change::Added;
        if added { &mut self.report.added } else { &mut self.report.removed }.add_entry(meta);
        let (old, new) = if added { (None, Some(meta)) } else { (Some(meta), None) };
        (self.each)(&Difference { dir, name, change, old, new })
    }

    fn compare(&mut self, old: &Side, new: &Side) -> Result<ControlFlow<()>> {
        let (Some((dir, name, was)), Some((.., is))) = (old.entry(), new.entry()) else {
            return Ok(ControlFlow::Continue(()));
        };
        let mut modified = Modified { kind: was.kind != is.kind, content: false, metadata: self.differ(was, is) };
        modified.content = !modified.kind && was.size != is.size;
        if !modified.kind && !old.same_content(new) {
            match (old.content(), new.content()) {
                (Ok(Some(a)), Ok(Some(b))) => {
                    modified.content |= !same_data(a, b) || a.target != b.target;
                    modified.metadata |= a.xattrs != b.xattrs || a.flags != b.flags;
                }
                (Err(e), _) | (_, Err(e)) => {
                    // Without bodies the metadata has to tell: better to name an entry than to miss one.
                    modified.content |= was.mtime != is.mtime || was.ctime != is.ctime;
                    if let Some(open) = &new.leaf {
                        report_damage(self.monitor, &open.entered.child, e)?;
                    }
                }
                _ => {}
            }
        }
        if modified == Modified::default() {
            return Ok(ControlFlow::Continue(()));
        }
        match modified {
            Modified { kind: true, .. } => self.report.kind += 1,
            Modified { content: true, .. } => self.report.content += 1,
            _ => self.report.metadata += 1,
        }
        self.report.modified_old.add_entry(was);
        self.report.modified_new.add_entry(is);
        (self.each)(&Difference { dir, name, change: Change::Modified(modified), old: Some(was), new: Some(is) })
    }

    /// Whether metadata differs, as far as leaves tell.
    fn differ(&self, was: &Meta, is: &Meta) -> bool {
        let kept = |m: &Meta| (m.mode, m.uid, m.gid, m.mtime, m.rdev);
        let inode = |m: &Meta| (m.ctime, m.btime, m.ino, m.nlink, m.filesystem, m.marks);
        kept(was) != kept(is) || self.options.inodes && inode(was) != inode(is)
    }
}

fn same_data(a: &Content, b: &Content) -> bool {
    // A single chunk's identity is that of the whole contents, as a list states it.
    let whole = |data: &Data| match data {
        Data::None => None,
        Data::Chunk(id) => Some(id.0),
        Data::List(list) => Some(list.whole),
    };
    whole(&a.data) == whole(&b.data)
}

/// The side that is behind goes on; a node that is equal in both, at the same place, is passed over.
fn step(old: &Place, new: &Place) -> Step {
    use Place::*;
    match (old, new) {
        (End, End) => Step::End,
        (Node { .. }, End) => Step::EnterOld,
        (End, Node { .. }) => Step::EnterNew,
        (Entry { .. }, End) => Step::Removed,
        (End, Entry { .. }) => Step::Added,
        (Node { key: a, child: was, level: i }, Node { key: b, child: is, level: j }) => match (a.cmp(b), i.cmp(j)) {
            (Ordering::Equal, Ordering::Equal) if was.node == is.node && was.body == is.body => Step::Skip,
            (Ordering::Equal, Ordering::Equal) => Step::EnterBoth,
            (Ordering::Less, _) | (Ordering::Equal, Ordering::Greater) => Step::EnterOld,
            (Ordering::Greater, _) | (Ordering::Equal, Ordering::Less) => Step::EnterNew,
        },
        (Node { key: a, .. }, Entry { key: b }) if a <= b => Step::EnterOld,
        (Entry { key: a }, Node { key: b, .. }) if b <= a => Step::EnterNew,
        (Entry { .. }, Node { .. }) => Step::Removed,
        (Node { .. }, Entry { .. }) => Step::Added,
        (Entry { key: a }, Entry { key: b }) => match a.cmp(b) {
            Ordering::Less => Step::Removed,
            Ordering::Greater => Step::Added,
            Ordering::Equal => Step::Compare,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::fixture::Fixture;
    use crate::monitor::Quiet;
    use drumlin_testkit::{Rng, tree};
    use std::collections::BTreeMap;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    fn run(fixture: &Fixture, options: &Options) -> (Report, Vec<(String, Change)>) {
        let mut seen = Vec::new();
        let [.., old, new] = &fixture.snapshots[..] else { panic!("two snapshots are compared") };
        let report = diff(&fixture.reader(), old.root, new.root, options, &Quiet::default(), &mut |d| {
            seen.push((String::from_utf8_lossy(&d.path()).into_owned(), d.change));
            Ok(ControlFlow::Continue(()))
        });
        (report.unwrap(), seen)
    }

    #[test]
    fn cost_follows_the_difference() {
        let mut files: Vec<_> = (0..50_000).map(|n| (format!("/d/{:02}/f{n:05}", n / 1000), 1)).collect();
        let mut fixture = Fixture::new();
        let write = |fixture: &mut Fixture, files: &[(String, u64)]| {
            fixture.write(&files.iter().map(|(p, s)| (p.as_str(), *s)).collect::<Vec<_>>());
        };
        write(&mut fixture, &files);
        files[25_000].1 = 5;
        files.remove(40_000);
        files.push(("/d/07/new".into(), 3));
        write(&mut fixture, &files);
        let (report, seen) = run(&fixture, &Options::default());
        let modified = Change::Modified(Modified { content: true, ..Modified::default() });
        let expected = [("/d/07/new", Change::Added), ("/d/25/f25000", modified), ("/d/40/f40000", Change::Removed)];
        assert_eq!(seen, expected.map(|(p, c)| (p.to_owned(), c)));
        assert_eq!((report.added.bytes, report.removed.bytes), (3, 1));
        assert_eq!((report.modified_old.bytes, report.modified_new.bytes, report.content), (1, 5, 1));
        assert!(report.leaves_read <= 10, "{} leaves", report.leaves_read);

        let path = TreePath::parse(b"/d/25").unwrap();
        assert_eq!(run(&fixture, &Options { path, ..Options::default() }).1.len(), 1);
        let path = TreePath::parse(b"/d/07/new").unwrap();
        assert_eq!(run(&fixture, &Options { path, ..Options::default() }).1.len(), 1);
        let [.., old, new] = &fixture.snapshots[..] else { unreachable!() };
        let options = Options { path: TreePath::parse(b"/none").unwrap(), ..Options::default() };
        let each = &mut |_: &Difference| Ok(ControlFlow::Continue(()));
        let none = diff(&fixture.reader(), old.root, new.root, &options, &Quiet::default(), each);
        assert!(matches!(none, Err(Error::NoPath(_))));
        // Against nothing all is added, against itself nothing is, and nothing is read for it.
        let monitor = Quiet::default();
        let all = diff(&fixture.reader(), None, new.root, &Options::default(), &monitor, each).unwrap();
        assert_eq!(all.added, new.root.unwrap().sums);
        let same = diff(&fixture.reader(), new.root, new.root, &Options::default(), &monitor, each).unwrap();
        assert_eq!(same, Report::default());
        assert_eq!(
            fixture.tree_reads(|r| {
                diff(r, new.root, new.root, &Options::default(), &monitor, each).unwrap();
            }),
            0
        );
    }

    #[test]
    fn kinds_of_change() {
        let source = tempfile::tempdir().unwrap();
        let at = |name: &str| source.path().join(name);
        for name in ["content", "mode", "kind", "gone", "same", "touched"] {
            std::fs::write(at(name), name.repeat(1000)).unwrap();
        }
        std::fs::write(at("large"), Rng::new(1).bytes(3 << 20)).unwrap();
        symlink("one", at("link")).unwrap();
        let mut fixture = Fixture::new();
        fixture.backup(source.path());
        std::fs::write(at("content"), "CONTENT".repeat(1000)).unwrap();
        std::fs::set_permissions(at("mode"), std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::remove_file(at("kind")).unwrap();
        std::fs::create_dir(at("kind")).unwrap();
        std::fs::remove_file(at("gone")).unwrap();
        std::fs::write(at("new"), b"new").unwrap();
        std::fs::write(at("large"), Rng::new(1).bytes((3 << 20) + 1)).unwrap();
        std::fs::remove_file(at("link")).unwrap();
        symlink("two", at("link")).unwrap();
        // A new time, and back to the old one: the inode alone differs.
        let time = std::fs::metadata(at("touched")).unwrap().modified().unwrap();
        std::fs::File::options().write(true).open(at("touched")).unwrap().set_modified(time).unwrap();
        fixture.backup(source.path());
        let (report, seen) = run(&fixture, &Options::default());
        let seen: BTreeMap<_, _> =
            seen.into_iter().map(|(p, c)| (p.rsplit('/').next().unwrap().to_owned(), c)).collect();
        let of = |name: &str| match seen.get(name) {
            Some(Change::Modified(m)) => format!("{}{}{}", u8::from(m.kind), u8::from(m.content), u8::from(m.metadata)),
            Some(other) => format!("{other:?}"),
            None => String::new(),
        };
        assert_eq!((of("new"), of("gone")), ("Added".into(), "Removed".into()));
        assert_eq!((of("content"), of("large"), of("link")), ("011".into(), "011".into(), "011".into()));
        assert_eq!((of("mode"), of("same"), of("touched")), ("001".into(), String::new(), String::new()));
        assert!(of("kind").starts_with('1'));
        assert_eq!((report.kind, report.content), (1, 3));
        let (_, seen) = run(&fixture, &Options { inodes: true, ..Options::default() });
        assert!(seen.iter().any(|(p, _)| p.ends_with("/touched")));
    }

    #[test]
    fn agrees_with_comparing_entry_by_entry() {
        for seed in 0..3 {
            let source = tempfile::tempdir().unwrap();
            tree::random(source.path(), seed, 1500).unwrap();
            let mut fixture = Fixture::new();
            fixture.backup(source.path());
            tree::mutate(source.path(), seed).unwrap();
            fixture.backup(source.path());
            let (_, seen) = run(&fixture, &Options::default());
            let [old, new] = &fixture.snapshots[..] else { unreachable!() };
            let (old, new) = (plain(&fixture, old.root), plain(&fixture, new.root));
            let mut expected: Vec<String> = Vec::new();
            for path in old.keys().chain(new.keys().filter(|p| !old.contains_key(*p))) {
                if old.get(path) != new.get(path) {
                    expected.push(path.clone());
                }
            }
            let mut got: Vec<_> = seen.into_iter().map(|(p, _)| p).collect();
            expected.sort();
            got.sort();
            assert_eq!(got, expected, "seed {seed}");
            assert!(Path::new(&got[0]).is_absolute());
        }
    }

    /// Everything that counts of each entry.
    fn plain(fixture: &Fixture, root: Option<Root>) -> BTreeMap<String, String> {
        let reader = fixture.reader();
        let mut all = BTreeMap::new();
        let (path, depth) = (TreePath::root(), crate::list::Depth::All);
        crate::list::list(&reader, root, &path, depth, &Quiet::default(), &mut |entry| {
            let (m, c) = (entry.meta(), entry.content()?);
            let text = format!("{:?} {:o} {} {} {} {:?} {c:?}", m.kind, m.mode, m.uid, m.gid, m.size, m.mtime);
            all.insert(String::from_utf8_lossy(&entry.path()).into_owned(), text);
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
        all
    }
}
