//! Entries of a snapshot: one, those of a directory, or all below it.
//!
//! In bounded memory whatever the directories hold. A deep path costs the depth of the tree, not its size. Names and
//! what a change test needs come from leaves alone; a leaf's body is read only if contents are asked for.

#[cfg(test)]
pub(crate) mod fixture;
mod steps;
#[cfg(test)]
mod tests;

pub(crate) use steps::{Entered, Key, Nodes, Span, Steps, body, partition};

use crate::Result;
use crate::monitor::{Monitor, Problem, ProblemKind, add};
use crate::select::{TreePath, push_path};
use drumlin_format::snapshot::Root;
use drumlin_format::tree::{Body, Child, Content, Kind, Leaf, Meta, Sums};
use drumlin_repo::pack::Reader;
use std::cell::OnceCell;
use std::ops::ControlFlow;
use std::sync::Arc;

/// How much of a path to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Its own entry alone.
    Itself,
    /// The entries of the directory, in the order of their names; of anything else its own entry.
    Children,
    /// All that is below the directory: each directory's names, then the contents of its subdirectories in turn. Of
    /// anything else its own entry.
    All,
}

/// An entry, as it is handed to a callback.
pub struct Entry<'a> {
    reader: &'a Reader,
    child: &'a Child,
    leaf: &'a Leaf,
    body: &'a OnceCell<Body>,
    at: usize,
}

impl<'a> Entry<'a> {
    /// Its directory: components joined by zero bytes, empty for the root.
    pub fn dir(&self) -> &'a [u8] {
        self.leaf.get(self.at).0
    }

    /// Its name.
    pub fn name(&self) -> &'a [u8] {
        self.leaf.get(self.at).1
    }

    /// What the leaf keeps of it.
    pub fn meta(&self) -> &'a Meta {
        self.leaf.get(self.at).2
    }

    /// Append its absolute path.
    pub fn push_path(&self, out: &mut Vec<u8>) {
        push_path(self.dir(), self.name(), out);
    }

    /// Its absolute path.
    pub fn path(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.dir().len() + self.name().len() + 2);
        self.push_path(&mut out);
        out
    }

    /// The name that its owner had where the snapshot was taken.
    pub fn user(&self) -> Option<&'a [u8]> {
        owner(&self.leaf.owners.users, self.meta().uid)
    }

    /// The name that its group had.
    pub fn group(&self) -> Option<&'a [u8]> {
        owner(&self.leaf.owners.groups, self.meta().gid)
    }

    /// What leads to its contents: chunks, a symlink's target, extended attributes. Read when it is first asked for.
    pub fn content(&self) -> Result<&'a Content> {
        let body = match self.body.get() {
            Some(body) => body,
            None => {
                let read = body(self.reader, self.child, self.leaf)?;
                self.body.get_or_init(|| read)
            }
        };
        // A body has as many contents as its leaf has entries, or it is not decoded.
        Ok(&body.contents[self.at])
    }
}

/// The name that an owner or a group had where the snapshot was taken.
pub(crate) fn owner(names: &[(u32, Vec<u8>)], id: u32) -> Option<&[u8]> {
    names.iter().find(|(of, _)| *of == id).map(|(_, name)| &name[..])
}

/// List a path. `each` may end it early. Gives the sums of what was handed to `each`.
///
/// # Errors
/// [`Error::NoPath`](crate::Error::NoPath) if the snapshot has no such path; what `each` says. A damaged node is told
/// to the monitor, and the listing goes on behind it.
pub fn list(
    reader: &Arc<Reader>,
    root: Option<Root>,
    path: &TreePath,
    depth: Depth,
    monitor: &dyn Monitor,
    each: &mut dyn FnMut(&Entry) -> Result<ControlFlow<()>>,
) -> Result<Sums> {
    let is_dir = match (kind(reader, root, path)?, depth) {
        (None, Depth::Itself) => return Ok(Sums::default()),
        (Some(kind), Depth::Children | Depth::All) => kind == Kind::Dir,
        (None, _) => true,
        (Some(_), Depth::Itself) => false,
    };
    let span = match depth {
        _ if !is_dir => Span::entry(path),
        Depth::All => Span::below(path.key()),
        _ => Span::children(path.key()),
    };
    let mut sums = Sums::default();
    each_entry(reader, root, span, monitor, &mut |entry| {
        sums.add_entry(entry.meta());
        each(entry)
    })?;
    Ok(sums)
}

/// The type of a path's entry; `None` for the root, which has no entry.
pub(crate) fn kind(reader: &Arc<Reader>, root: Option<Root>, path: &TreePath) -> Result<Option<Kind>> {
    if path.is_root() {
        return Ok(None);
    }
    find_entry(reader, root, path, |entry| Ok(entry.meta().kind)).map(Some)
}

/// Look at the entry of a path. The root has none.
///
/// # Errors
/// [`Error::NoPath`](crate::Error::NoPath) if the snapshot has no such path; damage on the way to it.
pub fn find_entry<T>(
    reader: &Arc<Reader>,
    root: Option<Root>,
    path: &TreePath,
    look: impl FnOnce(&Entry) -> Result<T>,
) -> Result<T> {
    let mut steps = Steps::new(reader, root, Span::entry(path));
    while steps.head().is_some() {
        if let Some(entered) = steps.enter()?
            && let Some(at) = entered.within.clone().next()
        {
            let cell = OnceCell::new();
            return look(&Entry { reader, child: &entered.child, leaf: &entered.leaf, body: &cell, at });
        }
    }
    Err(path.missing())
}

/// Hand out all entries of a span in order. Damaged nodes are told to the monitor and passed over.
pub(crate) fn each_entry(
    reader: &Arc<Reader>,
    root: Option<Root>,
    span: Span,
    monitor: &dyn Monitor,
    each: &mut dyn FnMut(&Entry) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let mut steps = Steps::new(reader, root, span);
    while let Some(head) = steps.head() {
        if monitor.stop() {
            return Err(crate::Error::Interrupted);
        }
        let child = head.child.clone();
        let entered = match steps.enter() {
            Ok(Some(entered)) => entered,
            Ok(None) => continue,
            Err(e) => {
                report_damage(monitor, &child, e)?;
                continue;
            }
        };
        let cell = OnceCell::new();
        for at in entered.within.clone() {
            let entry = Entry { reader, child: &entered.child, leaf: &entered.leaf, body: &cell, at };
            if each(&entry)?.is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Tell the monitor that a node can't be read, and with it all that is below it.
///
/// # Errors
/// The error itself, if it is not about this node alone.
pub(crate) fn report_damage(monitor: &dyn Monitor, child: &Child, error: drumlin_repo::Error) -> Result<()> {
    if !error.is_damage() {
        return Err(error.into());
    }
    add(&monitor.counters().damaged, child.sums.entries);
    let mut path = Vec::new();
    if child.name.is_empty() {
        path.push(b'/')
    } else {
        push_path(&child.dir, &child.name, &mut path)
    }
    let cause = format!("{} entries from here on can't be listed: {error}", child.sums.entries);
    monitor.problem(&Problem { path, kind: ProblemKind::Damaged, cause });
    Ok(())
}
