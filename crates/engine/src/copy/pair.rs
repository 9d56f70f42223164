//! Two snapshots of the source side by side, the new one and one that was copied before: what both have alike is told
//! as stretches of the tree's order, without being looked into; of the rest each entry is handed out.
//!
//! One bad node of the new tree costs what is below it. One of the old tree costs that more is read.

use crate::Result;
use crate::list::{Entered, Key, Span, Steps, body, report_damage};
use crate::monitor::{Monitor, Problem, ProblemKind, add};
use crate::select::push_path;
use drumlin_format::snapshot::Root;
use drumlin_format::tree::{Body, Child, Content, Data, Kind, Leaf, Meta, marks};
use drumlin_repo::pack::Reader;
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

/// What comes next.
pub(super) enum Event {
    /// All entries of this stretch are in both trees, and alike.
    Same(Span),
    /// An entry that is in the new tree alone, or differs.
    Entry(Found),
}

/// An entry of the source.
pub(super) struct Found {
    /// Its leaf, which has its name and the names of its owners.
    pub leaf: Arc<Leaf>,
    /// Its place there.
    pub at: usize,
    /// Its metadata; with a mark if what leads to its contents could not be read.
    pub meta: Meta,
    /// What leads to its contents, in the source.
    pub content: Content,
    /// The old tree has the same contents for it.
    pub known: bool,
}

impl Found {
    /// Its directory and name.
    pub fn key(&self) -> (&[u8], &[u8]) {
        let (dir, name, _) = self.leaf.get(self.at);
        (dir, name)
    }
}

/// The two trees.
pub(super) struct Pair<'a> {
    monitor: &'a dyn Monitor,
    new: Side,
    old: Side,
    /// A stretch of equal entries that may go on.
    same: Option<Span>,
    ready: VecDeque<Event>,
}

impl<'a> Pair<'a> {
    pub fn new(reader: &Arc<Reader>, new: Option<Root>, old: Option<Root>, monitor: &'a dyn Monitor) -> Self {
        let (new, old) = (Side::new(reader, new), Side::new(reader, old));
        Pair { monitor, new, old, same: None, ready: VecDeque::new() }
    }

    /// The next event; `None` at the end.
    pub fn next(&mut self) -> Result<Option<Event>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            match step(&self.new.place(), &self.old.place()) {
                Step::End => {
                    self.end_stretch();
                    return Ok(self.ready.pop_front());
                }
                Step::Skip => self.skip(),
                Step::EnterNew => self.enter_new()?,
                Step::EnterOld => self.enter_old()?,
                Step::EnterBoth => {
                    self.enter_new()?;
                    self.enter_old()?;
                }
                Step::Removed => {
                    self.end_stretch();
                    self.old.next();
                }
                Step::Added => self.entry(false)?,
                Step::Compare => self.compare()?,
            }
        }
    }

    fn end_stretch(&mut self) {
        self.ready.extend(self.same.take().map(Event::Same));
    }

    /// The stretch at hand goes on to there, or begins.
    fn extend(&mut self, start: Key, end: Option<Key>) {
        match &mut self.same {
            Some(same) => same.end = end,
            None => self.same = Some(Span { start, end }),
        }
    }

    /// A node that is in both.
    fn skip(&mut self) {
        let stretch = self.new.steps.head().zip(self.old.steps.head()).map(|(new, old)| {
            let owned = |key: (&[u8], &[u8])| (key.0.to_vec(), key.1.to_vec());
            // Neither tree has an entry between the node's last one and this.
            let end = match (new.next, old.next) {
                (Some(new), Some(old)) => Some(new.min(old)),
                (one, other) => one.or(other),
            };
            (owned(new.first()), end.map(owned))
        });
        self.new.steps.skip();
        self.old.steps.skip();
        if let Some((start, end)) = stretch {
            self.extend(start, end);
        }
    }

    fn enter_new(&mut self) -> Result<()> {
        let Some(child) = self.new.steps.head().map(|head| head.child.clone()) else { return Ok(()) };
        self.new.enter().or_else(|e| report_damage(self.monitor, &child, e))
    }

    fn enter_old(&mut self) -> Result<()> {
        match self.old.enter() {
            Ok(()) => Ok(()),
            Err(e) if e.is_damage() => {
                // There may be entries in it that the new tree doesn't have.
                self.end_stretch();
                Ok(())
            }
            Err(e) => Err(e.into()),
        }
    }

    fn compare(&mut self) -> Result<()> {
        let (Some((dir, name, is)), Some((.., was))) = (self.new.entry(), self.old.entry()) else { return Ok(()) };
        let key = (dir.to_vec(), name.to_vec());
        let same_meta = is == was;
        let place = self.new.place_of_body();
        let mut known = place.is_some() && place == self.old.place_of_body();
        let mut same = same_meta && known;
        if !known {
            self.new.read_body(self.monitor)?;
            // Without it there is nothing to compare with.
            let read = self.old.read_body(&crate::monitor::Quiet::default());
            if let (Some(new), Some(old)) = (self.new.content(), self.old.content())
                && read.is_ok()
            {
                same = same_meta && new == old;
                known = new.data == old.data;
            }
        }
        if same {
            let end = (key.0.clone(), [&key.1[..], &[0]].concat());
            self.extend(key, Some(end));
            self.new.next();
            self.old.next();
            return Ok(());
        }
        self.entry(known)?;
        self.old.next();
        Ok(())
    }

    /// Hand out the new tree's entry at hand.
    fn entry(&mut self, known: bool) -> Result<()> {
        self.end_stretch();
        self.new.read_body(self.monitor)?;
        if let Some(open) = &self.new.open {
            let at = open.entered.within.start;
            let mut meta = *open.entered.leaf.get(at).2;
            let content = match &open.body {
                Read::Whole(body) => body.contents.get(at).cloned().unwrap_or_default(),
                Read::Not | Read::Lost => {
                    if meta.kind == Kind::Symlink || meta.kind == Kind::File && meta.size > 0 {
                        meta.marks |= marks::CONTENTS_MISSING;
                    }
                    Content::default()
                }
            };
            let known = known && content.data != Data::None;
            self.ready.push_back(Event::Entry(Found { leaf: open.entered.leaf.clone(), at, meta, content, known }));
        }
        self.new.next();
        Ok(())
    }
}

/// One of the two trees.
struct Side {
    reader: Arc<Reader>,
    steps: Steps,
    open: Option<Open>,
}

/// A leaf with the position in it.
struct Open {
    entered: Entered,
    body: Read,
}

/// A leaf's body.
enum Read {
    Not,
    Whole(Body),
    /// It can't be read.
    Lost,
}

/// Where a side stands.
enum Place<'a> {
    Node { key: (&'a [u8], &'a [u8]), child: &'a Child, level: u8 },
    Entry { key: (&'a [u8], &'a [u8]) },
    End,
}

impl Side {
    fn new(reader: &Arc<Reader>, root: Option<Root>) -> Self {
        Side { reader: reader.clone(), steps: Steps::new(reader, root, Span::default()), open: None }
    }

    fn place(&self) -> Place<'_> {
        if let Some((dir, name, _)) = self.entry() {
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
    fn enter(&mut self) -> drumlin_repo::Result<()> {
        if let Some(entered) = self.steps.enter()? {
            self.open = (!entered.within.is_empty()).then_some(Open { entered, body: Read::Not });
        }
        Ok(())
    }

    fn next(&mut self) {
        if let Some(open) = &mut self.open {
            open.entered.within.start += 1;
            if open.entered.within.is_empty() {
                self.open = None;
            }
        }
    }

    fn entry(&self) -> Option<(&[u8], &[u8], &Meta)> {
        self.open.as_ref().map(|open| open.entered.leaf.get(open.entered.within.start))
    }

    /// Where the contents of the entry at hand stand.
    fn place_of_body(&self) -> Option<(drumlin_format::ChunkId, usize)> {
        let open = self.open.as_ref()?;
        Some((open.entered.child.body?, open.entered.within.start))
    }

    /// Read the body of the leaf at hand, once. Damage is told, and costs the contents of its entries.
    fn read_body(&mut self, monitor: &dyn Monitor) -> Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        if !matches!(open.body, Read::Not) {
            return Ok(());
        }
        open.body = match body(&self.reader, &open.entered.child, &open.entered.leaf) {
            Ok(body) => Read::Whole(body),
            Err(e) if e.is_damage() => {
                let (dir, name, _) = open.entered.leaf.get(open.entered.within.start);
                let left = open.entered.within.len();
                let mut path = Vec::new();
                push_path(dir, name, &mut path);
                let cause = format!("what leads to the contents of {left} entries from here on can't be read: {e}");
                add(&monitor.counters().damaged, left as u64);
                monitor.problem(&Problem { path, kind: ProblemKind::Damaged, cause });
                Read::Lost
            }
            Err(e) => return Err(e.into()),
        };
        Ok(())
    }

    /// What leads to the contents of the entry at hand, if its body has been read.
    fn content(&self) -> Option<&Content> {
        let open = self.open.as_ref()?;
        match &open.body {
            Read::Whole(body) => body.contents.get(open.entered.within.start),
            Read::Not | Read::Lost => None,
        }
    }
}

enum Step {
    Skip,
    EnterNew,
    EnterOld,
    EnterBoth,
    Removed,
    Added,
    Compare,
    End,
}

/// The side that is behind goes on; a node that is equal in both, at the same place, is passed over.
fn step(new: &Place, old: &Place) -> Step {
    use Place::*;
    match (new, old) {
        (End, End) => Step::End,
        (End, Node { .. }) => Step::EnterOld,
        (End, Entry { .. }) => Step::Removed,
        (Node { .. }, End) => Step::EnterNew,
        (Entry { .. }, End) => Step::Added,
        (Node { key: a, child: is, level: i }, Node { key: b, child: was, level: j }) => match (a.cmp(b), i.cmp(j)) {
            (Ordering::Equal, Ordering::Equal) if is.node == was.node && is.body == was.body => Step::Skip,
            (Ordering::Equal, Ordering::Equal) => Step::EnterBoth,
            (Ordering::Less, _) | (Ordering::Equal, Ordering::Greater) => Step::EnterNew,
            (Ordering::Greater, _) | (Ordering::Equal, Ordering::Less) => Step::EnterOld,
        },
        (Node { key: a, .. }, Entry { key: b }) if a <= b => Step::EnterNew,
        (Node { .. }, Entry { .. }) => Step::Removed,
        (Entry { key: a }, Node { key: b, .. }) if b <= a => Step::EnterOld,
        (Entry { .. }, Node { .. }) => Step::Added,
        (Entry { key: a }, Entry { key: b }) => match a.cmp(b) {
            Ordering::Less => Step::Added,
            Ordering::Greater => Step::Removed,
            Ordering::Equal => Step::Compare,
        },
    }
}
