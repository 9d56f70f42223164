//! What the snapshot doesn't have, deleted: all of it but what has to stay.

use super::existing::{is_mounted, why_it_stays};
use super::own::Stance;
use super::selection::Selection;
use super::spared::Spared;
use super::worker::Context;
use crate::convert;
use crate::monitor::ProblemKind;
use drumlin_format::tree::Kind;
use drumlin_host::meta::Stat;
use drumlin_host::place::{self, Names, TargetDir};
use std::rc::Rc;
use std::sync::Arc;

/// Delete an entry that the snapshot doesn't have, if it would have been restored. `dir`: the path of its directory
/// below the target.
///
/// Of any depth: who may write there may have made it as deep as he likes.
pub(super) fn delete(
    context: &Context,
    (dir, handle): (&[u8], &Arc<TargetDir>),
    name: &[u8],
    path: &[u8],
    selection: &Selection,
) {
    let mut deletion = Deletion { context, selection, path: path.to_vec(), dir: dir.to_vec() };
    let mut open = Vec::new();
    open.extend(deletion.entry(handle, name, None));
    while let Some(opened) = open.last_mut() {
        deletion.path.truncate(opened.path);
        deletion.dir.truncate(opened.dir);
        let Some(name) = opened.names.get(opened.at) else {
            open.pop();
            continue;
        };
        opened.at += 1;
        deletion.path.push(b'/');
        deletion.path.extend_from_slice(name);
        let below = deletion.entry(&opened.handle, name, opened.spared.as_ref());
        open.extend(below);
    }
}

/// A directory that stays, and of which some entries may go.
struct Opened {
    handle: Arc<TargetDir>,
    names: Names,
    /// The next of them.
    at: usize,
    /// What in it has to stay, if that is known.
    spared: Option<Rc<Spared>>,
    /// The lengths of its paths in the source and below the target.
    path: usize,
    dir: usize,
}

struct Deletion<'a> {
    context: &'a Context<'a>,
    selection: &'a Selection,
    /// The entry's path in the source.
    path: Vec<u8>,
    /// The path of its directory below the target.
    dir: Vec<u8>,
}

impl Deletion<'_> {
    /// One entry: gone, left alone, or opened, so that its own entries come next.
    fn entry(&mut self, handle: &Arc<TargetDir>, name: &[u8], spared: Option<&Rc<Spared>>) -> Option<Opened> {
        let (context, path) = (self.context, &self.path[..]);
        let stat = handle.stat(name).ok().flatten()?;
        if !self.selection.lets_go(path, &stat) || context.asides.has(&self.dir, name) {
            return None;
        }
        if place::is_aside(name) {
            let cause = "it stays: an unfinished or incomplete restore has set it aside, and it may be the only copy; remove \
                         it when you don't need it any more";
            context.problem(path, ProblemKind::Unwritable, cause);
            return None;
        }
        match context.own.stance(&self.dir, name, &stat) {
            Stance::Own => return None,
            Stance::Around if is_mounted(handle, &stat) => return None,
            Stance::Around => return self.open(handle, name, spared.cloned()),
            Stance::Free => {
                if let Some(why) = why_it_stays(handle, name, &stat) {
                    context.problem(path, ProblemKind::Unwritable, why);
                    return None;
                }
                let find = || Rc::new(Spared::find(self.selection, handle, name, path));
                let spared = spared.cloned().unwrap_or_else(find);
                if spared.has(&stat) {
                    return self.open(handle, name, Some(spared));
                }
            }
        }
        if !context.options.dry_run
            && let Err(e) = remove(handle, name, &stat)
        {
            context.problem(path, ProblemKind::Unwritable, e);
            return None;
        }
        context.deleted(&self.dir, name);
        None
    }

    fn open(&mut self, handle: &Arc<TargetDir>, name: &[u8], spared: Option<Rc<Spared>>) -> Option<Opened> {
        match handle.open_dir(name).and_then(|handle| Ok((handle.list()?, handle))) {
            Ok((names, handle)) if self.selection.is_marked(&handle, &names) => None,
            Ok((names, handle)) => {
                if !self.dir.is_empty() {
                    self.dir.push(b'/');
                }
                self.dir.extend_from_slice(name);
                Some(Opened { handle, names, at: 0, spared, path: self.path.len(), dir: self.dir.len() })
            }
            Err(e) => {
                self.context.problem(&self.path, ProblemKind::Unwritable, e);
                None
            }
        }
    }
}

/// Remove whatever it is; the cause, if some of it stays.
fn remove(handle: &Arc<TargetDir>, name: &[u8], stat: &Stat) -> std::result::Result<(), String> {
    if convert::kind(stat.kind) != Kind::Dir {
        return handle.remove(name).map_err(|e| e.to_string());
    }
    let removed = handle.remove_tree(name).map_err(|e| e.to_string())?;
    if removed.failures == 0 { Ok(()) } else { Err(format!("{} entries in it can't be removed", removed.failures)) }
}
