//! What differs between two snapshots, in tree order, in time proportional to the difference: both trees are walked
//! side by side, and a node that is in both at the same place is passed over with all that is below it.

#[cfg(test)]
mod tests;

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
