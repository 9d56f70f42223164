//! The directory whose entries are being planned.

use super::delete::delete;
use super::plan::extras;
use super::selection::{self, Selection};
use super::stream::Stream;
use super::window::Window;
use super::worker::Context;
use crate::monitor::ProblemKind;
use crate::{Error, Result, convert};
use drumlin_format::tree::{Content, Meta};
use drumlin_host::meta::{Kind, Stat};
use drumlin_host::place::{Names, Target, TargetDir};
use std::cell::Cell;
use std::collections::HashSet;
use std::sync::Arc;

/// The directory at hand.
pub(super) struct AtHand {
    key: Vec<u8>,
    /// Below the target, joined by slashes.
    pub path: Arc<[u8]>,
    /// Absolute in the source.
    pub source: Vec<u8>,
    /// `None`: it can't be had, or in a dry run isn't there; or `is_unopened`.
    handle: Option<Arc<TargetDir>>,
    /// It was made a moment ago, and is opened when something has to be made in it.
    is_unopened: bool,
    /// What was there before.
    there: Option<Names>,
    /// It is there, and can't be listed: each name is looked for by itself.
    is_unlisted: bool,
    /// Its number in the window, if it has one.
    number: Option<u32>,
    /// Names that the snapshot has, where all others are to be deleted.
    keep: Option<Vec<Box<[u8]>>>,
    /// Something is in its way: why was told.
    pub barred: bool,
    /// And stays there: nothing that belongs in it is restored.
    pub stays: bool,
}

/// What is known of a directory before it begins.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    /// All that the snapshot has in it is wanted.
    pub whole: bool,
    /// What else is there may be deleted, if all of it is wanted.
    pub deletes: bool,
    /// So far every directory that was to be made could be.
    pub all_made: bool,
    /// Something is in its way, or in that of one above it: why was told.
    pub barred: bool,
    /// And stays there.
    pub stays: bool,
}

impl AtHand {
    /// The directory of that key.
    pub fn begin(context: &Context, selection: &Selection, key: &[u8], terms: Terms) -> Self {
        let Terms { whole, deletes, all_made, barred, stays } = terms;
        let path: Arc<[u8]> = selection.below(key).into();
        let source = selection::source_dir(key);
        // Nothing is in it yet: only what has all of it puts anything there.
        let is_new = whole && !path.is_empty() && context.target.as_ref().is_some_and(Target::is_new);
        let is_unopened = is_new && all_made && !selection.is_picky() && !context.options.dry_run;
        let handle = match context.target.as_ref().filter(|_| !is_unopened && !barred).map(|t| t.dir(&path)) {
            None => None,
            Some(Ok(handle)) => Some(handle),
            // It is made when something in it is wanted; or nothing is; or why it could not be made was told then.
            Some(Err(e)) if e.is_missing() || selection.is_picky() => None,
            Some(Err(e)) => {
                context.unwritable(&source, e);
                None
            }
        };
        let listed = handle.as_ref().map(|h| h.list());
        let is_unlisted = matches!(listed, Some(Err(_)));
        let there = listed.and_then(|names| names.ok()).filter(|names| !names.is_empty());
        // A run that was stopped in this directory has left the rest of it out.
        let cut = context.options.snapshot.partial.as_ref().is_some_and(|reached| reached.dir == key);
        let deletes = context.options.delete && deletes && whole && !cut && selection.is_whole(key);
        let keep = (deletes && there.is_some()).then(Vec::new);
        let is_repository = context.own.is_of_repository(&path);
        if is_repository {
            let cause = "it lies in the repository that is read; nothing is restored into that";
            context.problem(&source, ProblemKind::Unwritable, cause);
        }
        let barred = barred || is_repository;
        let handle = handle.filter(|_| !barred);
        let is_unopened = is_unopened && !barred;
        AtHand {
            key: key.to_vec(),
            path,
            source,
            handle,
            is_unopened,
            there,
            is_unlisted,
            number: None,
            keep,
            barred,
            stays,
        }
    }

    /// Whether it is there, as far as is known.
    pub fn is_there(&self) -> bool {
        self.handle.is_some() || self.is_unopened
    }

    /// To make something in it; `None` if it can't be had, or in a dry run isn't there.
    pub fn open(&mut self, context: &Context) -> Option<Arc<TargetDir>> {
        if std::mem::take(&mut self.is_unopened) {
            match context.target.as_ref()?.dir(&self.path) {
                Ok(handle) => self.handle = Some(handle),
                Err(e) => context.unwritable(&self.source, e),
            }
        }
        self.handle.clone()
    }

    /// What was there of that name, before; with the directory.
    pub fn had(&self, name: &[u8]) -> Option<&Arc<TargetDir>> {
        let is_there = |handle: &&Arc<TargetDir>| match &self.there {
            Some(names) => names.contains(name),
            None => self.is_unlisted && !matches!(handle.stat(name), Ok(None)),
        };
        self.handle.as_ref().filter(is_there)
    }

    pub fn is(&self, key: &[u8]) -> bool {
        self.key == key
    }

    /// Its key in the tree.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The snapshot has an entry of that name.
    pub fn keep(&mut self, name: &[u8]) {
        if let Some(keep) = &mut self.keep {
            keep.push(name.into());
        }
    }

    /// Nobody knows what else should be there: nothing is deleted.
    pub fn keep_all(&mut self) {
        self.keep = None;
    }

    /// Make it, and those above it. Paths below the target of those that were not there go to `made`.
    pub fn make(&mut self, context: &Context, made: &mut HashSet<Vec<u8>>) -> Result<()> {
        let target = context.target.as_ref().ok_or(Error::Worker)?;
        let (mut dir, mut path) = (target.root().clone(), Vec::new());
        for name in self.path.split(|b| *b == b'/').filter(|n| !n.is_empty()) {
            let above = path.clone();
            path.extend_from_slice(if path.is_empty() { b"" } else { b"/" });
            path.extend_from_slice(name);
            let next = match dir.make_dir(name) {
                Err(e) if e.is_exists() => match dir.stat(name) {
                    // What leads elsewhere isn't followed, and stays.
                    Ok(Some(stat))
                        if !matches!(stat.kind, Kind::Dir | Kind::Symlink) && !context.options.overwrite.spares() =>
                    {
                        let source = &self.source[..self.source.len() - (self.path.len() - path.len())];
                        let put = context.asides.make_dir((&above, &dir), name, 0, source);
                        put.and_then(|()| dir.open_dir(name)).inspect(|_| _ = made.insert(path.clone()))
                    }
                    _ => dir.open_dir(name),
                },
                other => other.inspect(|_| _ = made.insert(path.clone())),
            };
            dir = match next {
                Ok(next) => next,
                Err(e) => {
                    // What else is wanted may lie elsewhere.
                    self.barred = true;
                    context.unwritable(&self.source, e);
                    return Ok(());
                }
            };
        }
        self.handle = Some(dir);
        Ok(())
    }

    /// A file of it that one worker writes from start to end, in the place of what is there.
    pub fn stream(
        &self,
        name: &[u8],
        meta: &Meta,
        owner: (u32, u32),
        content: &Content,
        path: Vec<u8>,
        there: Option<Stat>,
    ) -> Stream {
        Stream {
            path,
            dir: self.path.to_vec(),
            name: name.to_vec(),
            mode: meta.mode,
            owner,
            mtime: convert::host_time(meta.mtime),
            size: meta.size,
            extras: extras(content),
            data: content.data.clone(),
            there,
            anew: false,
            counted: Cell::new(0),
        }
    }

    /// Its number among the window's directories.
    pub fn number_in(&mut self, window: &mut Window) -> u32 {
        *self.number.get_or_insert_with(|| window.add_dir(self.source.clone(), self.path.to_vec()))
    }

    /// Another window has begun.
    pub fn forget_number(&mut self) {
        self.number = None;
    }

    /// Delete what the snapshot doesn't have in it.
    pub fn end(self, context: &Context, selection: &Selection) {
        let (Some(mut keep), Some(handle), Some(there)) = (self.keep, self.handle, self.there) else { return };
        if selection.is_marked(&handle, &there) {
            return;
        }
        keep.sort_unstable();
        for name in there.iter().filter(|n| keep.binary_search_by(|k| (**k).cmp(n)).is_err()) {
            let mut path = self.source.clone();
            path.push(b'/');
            path.extend_from_slice(name);
            delete(context, (&self.path, &handle), name, &path, selection);
        }
    }
}
