//! Further names of files that are there: hard links, or files of their own where the target can't have them.

use super::compare;
use super::existing;
use super::plan::{Planned, extras, owner};
use super::stream::Stream;
use super::worker::Context;
use crate::identity::{Identity, identity};
use crate::monitor::{Change, ProblemKind};
use crate::{Error, Result, convert};
use drumlin_format::tree::{Body, Content, Kind, Leaf, Meta};
use drumlin_host::meta::Stat;
use drumlin_host::place::{self, FileId, TargetDir};
use drumlin_repo::tree::Cursor;
use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

const UNSTEADY: &str = "what has its name changes again and again: it stays";
const NO_FIRST: &str = "the file that it is a hard link to was not restored";

/// A place below the target: directory and name.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub dir: Arc<[u8]>,
    pub name: Box<[u8]>,
}

/// Files of several names, as they are met.
#[derive(Default)]
pub(super) struct Links {
    /// The first name of each, and how many are still to come.
    first: HashMap<Identity, (Link, u32)>,
    /// Links to be made.
    pub found: Vec<Further>,
}

/// A further name of a file.
#[derive(Clone, Debug)]
pub(super) struct Further {
    /// What it is to be a link to.
    pub first: Link,
    pub link: Link,
    /// What has the name already, and may be replaced by it: found out when it was planned.
    pub there: Option<FileId>,
}

impl Links {
    /// Whether an entry is a further name of a file met before: such are made at the end. `there`: what it may replace.
    pub fn is_further(&mut self, link: Link, meta: &Meta, content: &Content, there: Option<&Stat>) -> bool {
        match self.first.entry(identity(meta, content)) {
            Entry::Vacant(entry) => {
                entry.insert((link, meta.nlink - 1));
                false
            }
            Entry::Occupied(mut entry) => {
                let (first, left) = entry.get_mut();
                self.found.push(Further { first: first.clone(), link, there: there.map(FileId::of) });
                *left -= 1;
                if *left == 0 {
                    // All names of the file have been met.
                    entry.remove();
                }
                true
            }
        }
    }

    /// A file that is there stays: further names of it become links to it, if it has these contents.
    pub fn keep(
        &mut self,
        context: &Context,
        handle: &TargetDir,
        link: Link,
        meta: &Meta,
        content: &Content,
    ) -> Result<()> {
        if meta.kind != Kind::File || meta.nlink < 2 || context.options.dry_run {
            return Ok(());
        }
        let Ok((file, stat)) = handle.open_existing(&link.name) else { return Ok(()) };
        if stat.size != meta.size {
            return Ok(());
        }
        match compare::same(context, &file, &content.data, meta.size, |_| ()) {
            Ok(true) => _ = self.first.entry(identity(meta, content)).or_insert((link, meta.nlink - 1)),
            Ok(false) => {}
            Err(Error::Repo(e)) if e.is_damage() => {}
            Err(e) => return Err(e),
        }
        Ok(())
    }
}

/// Make them.
pub(super) fn make(context: &Context, planned: &Planned) -> Result<()> {
    let source_of = |link: &Link| planned.selection.source_of(&link.dir, &link.name);
    let mut scratch = Vec::new();
    for Further { first, link, there } in &planned.links {
        if context.ended() {
            return Ok(());
        }
        let path = source_of(link);
        if context.options.dry_run {
            let is_kept = !context.is_replaced(&source_of(first)) && is_made(context, first, link);
            let change = if is_kept { Change::Kept } else { Change::Restored };
            context.placed(&path, place::Problems::new(), change);
            continue;
        }
        if context.is_lost(&source_of(first)) {
            // What has its name is something else that was there before.
            context.problem(&path, ProblemKind::Unwritable, NO_FIRST);
            continue;
        }
        let made = match one(context, first, link, *there) {
            Ok(None) => match met(context, planned, link, &path)? {
                Some(there) => one(context, first, link, there.as_ref().map(FileId::of)),
                None => continue,
            },
            made => made,
        };
        match made {
            Ok(Some(change)) => context.placed(&path, place::Problems::new(), change),
            Ok(None) => context.problem(&path, ProblemKind::Unwritable, UNSTEADY),
            Err(e) if e.is_missing() => context.problem(&path, ProblemKind::Unwritable, NO_FIRST),
            // Another file system, or one without links: the contents count for more than that they are shared.
            Err(e) if e.is_no_link() => copy(context, planned, link, path, &mut scratch)?,
            Err(e) => context.unwritable(&path, e),
        }
    }
    Ok(())
}

/// Whether both are names of one file already.
fn is_made(context: &Context, first: &Link, link: &Link) -> bool {
    let stat = |link: &Link| context.target.as_ref()?.dir(&link.dir).ok()?.stat(&link.name).ok()?;
    stat(first).zip(stat(link)).is_some_and(|(a, b)| FileId::of(&a) == FileId::of(&b))
}

/// `None`: something else has the name than what may be replaced.
fn one(context: &Context, first: &Link, link: &Link, there: Option<FileId>) -> place::Result<Option<Change>> {
    let target = context.target.as_ref().expect("links are made only where there is a target");
    let (from, to) = (target.dir(&first.dir)?, target.dir(&link.dir)?);
    let called = |name: &[u8]| to.hard_link(name, &from, &first.name, None);
    let link = || match called(&link.name) {
        Err(e) if e.is_exists() => {
            let now = to.stat(&link.name)?;
            let id = now.as_ref().map(FileId::of);
            if id.is_some() && id == from.stat(&first.name)?.as_ref().map(FileId::of) {
                return Ok(Some(Change::Kept));
            }
            if id.is_some() && id != there {
                return Ok(None);
            }
            to.replace_by(&link.name, |temporary| {
                called(temporary)?;
                now.as_ref().map_or(Ok(()), |now| existing::make_way(context, (&link.dir, &to), &link.name, now))
            })?;
            Ok(Some(Change::Restored))
        }
        other => other.map(|()| Some(Change::Restored)),
    };
    match link() {
        // An immutable file shall have further names nonetheless: it is none until it has them, under a temporary name
        // and under the right one.
        Err(e) if e.is_no_link() => from.while_unlocked(&first.name, link).unwrap_or(Err(e)),
        other => other,
    }
}

/// What has come to have the name since it was planned, if anything, and may be replaced as if it had been there by
/// then; `None`: it may not.
fn met(context: &Context, planned: &Planned, link: &Link, path: &[u8]) -> Result<Option<Option<Stat>>> {
    let (leaf, _, at) = match entry(context, planned, link) {
        Ok(found) => found,
        Err(Error::Repo(e)) if e.is_damage() => {
            context.problem(path, ProblemKind::Damaged, e);
            return Ok(None);
        }
        Err(e) => return Err(e),
    };
    let target = context.target.as_ref().expect("links are made only where there is a target");
    match target.dir(&link.dir) {
        Ok(handle) => {
            let (meta, place) = (leaf.get(at).2, (&*link.dir, &handle));
            Ok(existing::there((context, &planned.selection), place, &link.name, meta, path))
        }
        Err(e) => {
            context.unwritable(path, e);
            Ok(None)
        }
    }
}

/// The snapshot's entry: its leaf, with the contents, and its place there.
fn entry(context: &Context, planned: &Planned, link: &Link) -> Result<(Leaf, Body, usize)> {
    let Some((dir, name)) = planned.selection.key_below(&link.dir, &link.name) else { return Err(Error::Worker) };
    let mut cursor = Cursor::new(context.reader.clone(), context.options.snapshot.root)?;
    cursor.seek(&dir, &name)?;
    let Some(child) = cursor.next_leaf()? else { return Err(Error::Worker) };
    let leaf = cursor.leaf(&child)?;
    let body = cursor.body(&child, &leaf)?;
    let Some(at) = leaf.iter().position(|(d, n, _)| (d, n) == (&dir[..], &name[..])) else { return Err(Error::Worker) };
    Ok((leaf, body, at))
}

/// Write the file's contents under this name as well.
fn copy(context: &Context, planned: &Planned, link: &Link, path: Vec<u8>, scratch: &mut Vec<u8>) -> Result<()> {
    let (leaf, body, at) = entry(context, planned, link)?;
    let (_, _, meta) = leaf.get(at);
    let target = context.target.as_ref().expect("links are made only where there is a target");
    let there = match target.dir(&link.dir).and_then(|dir| Ok((dir.stat(&link.name)?, dir))) {
        Ok((None, _)) => None,
        Ok((Some(_), handle)) => {
            match existing::there((context, &planned.selection), (&link.dir, &handle), &link.name, meta, &path) {
                Some(there) => there,
                None => return Ok(()),
            }
        }
        Err(e) => {
            context.unwritable(&path, e);
            return Ok(());
        }
    };
    let stream = Stream {
        path,
        dir: link.dir.to_vec(),
        name: link.name.to_vec(),
        mode: meta.mode,
        owner: owner(context, &leaf, meta),
        mtime: convert::host_time(meta.mtime),
        size: meta.size,
        extras: extras(&body.contents[at]),
        data: body.contents[at].data.clone(),
        anew: there.as_ref().is_some_and(|there| there.nlink > 1),
        there,
        // The planner has counted this name.
        counted: Cell::new(meta.size),
    };
    Box::new(stream).run(context, scratch)
}
