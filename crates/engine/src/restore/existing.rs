//! What is in the target already: what may stay, what has to go.

use super::Overwrite;
use super::own::Stance;
use super::selection::Selection;
use super::worker::Context;
use crate::convert;
use crate::monitor::{Change, ProblemKind, add};
use drumlin_format::tree::{Kind, Meta};
use drumlin_format::{HEADER_BYTES, Header, ObjectType};
use drumlin_host::meta::Stat;
use drumlin_host::place::{self, FileId, Names, TargetDir};
use drumlin_repo::names;
use std::collections::HashSet;
use std::io::Read;
use std::rc::Rc;
use std::sync::Arc;

/// What is there of that name, in a directory whose path below the target is `dir`, if anything; `None` if the entry is not to be touched. What is of another kind goes when its successor
/// is whole: see [`make_way`].
pub(super) fn there(
    (context, selection): (&Context, &Selection),
    (dir, handle): (&[u8], &Arc<TargetDir>),
    name: &[u8],
    meta: &Meta,
    path: &[u8],
) -> Option<Option<Stat>> {
    let Some(stat) = handle.stat(name).unwrap_or(None) else { return Some(None) };
    let same_kind = convert::kind(stat.kind) == meta.kind;
    if meta.kind == Kind::Dir && same_kind {
        return Some(Some(stat));
    }
    let stays = match context.options.overwrite {
        Overwrite::Never => true,
        Overwrite::IfNewer => convert::time(stat.mtime) >= meta.mtime,
        Overwrite::IfChanged | Overwrite::Always => false,
    };
    // What is as it was in the snapshot, which most is, needs no look at whose it is.
    let is_alike = same_kind && (stat.size, convert::time(stat.mtime)) == (meta.size, meta.mtime);
    let is_other_file = !is_alike && convert::kind(stat.kind) != Kind::Dir;
    if stays || is_other_file && context.own.is_remembered(dir, name) {
        context.placed(path, Vec::new(), Change::Kept);
        return None;
    }
    if is_other_file && context.own.is_guarded(dir, name) {
        let cause = "another one is there that repositories are opened with: it stays as it is; restore this one to another folder to have both";
        context.problem(path, ProblemKind::Unwritable, cause);
        return None;
    }
    if !same_kind && convert::kind(stat.kind) == Kind::Dir {
        let cause = match (context.options.delete, context.own.stance(dir, name, &stat)) {
            (true, Stance::Free) if Spared::find(selection, handle, name, path).has(&stat) => {
                "a directory of that name is there, and in it what --exclude or --include leaves out"
            }
            (true, Stance::Free) => return Some(Some(stat)),
            (true, _) => "a directory of that name is there that Drumlin itself needs",
            (false, _) => "a directory of that name is there; --delete would remove it",
        };
        context.problem(path, ProblemKind::Unwritable, cause);
        return None;
    }
    Some(Some(stat))
}

/// Remove a directory whose place something else is about to take, and which no rename replaces. Anything else stays for that.
pub(super) fn make_way(handle: &Arc<TargetDir>, name: &[u8], stat: &Stat) -> place::Result<()> {
    if convert::kind(stat.kind) != Kind::Dir {
        return Ok(());
    }
    match handle.remove_tree(name)?.failed.into_iter().next() {
        Some((_, first)) => Err(first),
        None => Ok(()),
    }
}

/// Whether a symlink is where a directory of the snapshot only leads to what was saved, as a path looks through it: that is no directory to be
/// made. Told if so.
pub(super) fn leads_elsewhere(context: &Context, handle: &TargetDir, name: &[u8], path: &[u8]) -> bool {
    let is_link =
        handle.stat(name).is_ok_and(|stat| stat.is_some_and(|stat| convert::kind(stat.kind) == Kind::Symlink));
    if is_link {
        let to = handle.read_link(name).unwrap_or_default();
        let cause = format!(
            "a symbolic link to '{}' is there, which restores don't follow, nor replace by a folder on the way to others: \
             restore 'SNAPSHOT:{}' with --target where it leads",
            to.escape_ascii(),
            path.escape_ascii()
        );
        context.problem(path, ProblemKind::Unwritable, cause);
    }
    is_link
}

/// Whether something else is mounted on an entry of a directory.
pub(super) fn is_mounted(handle: &TargetDir, stat: &Stat) -> bool {
    handle.stat_self().map_or(true, |above| above.dev != stat.dev)
}

/// Delete an entry that the snapshot doesn't have, if it would have been restored. `dir`: the path of its directory below the target.
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
        if !self.selection.wants(path, &convert::meta(&stat, 0)) || context.asides.has(&self.dir, name) {
            return None;
        }
        if place::is_aside(name) {
            let cause = "it stays: a restore that did not end, or not with all of it, has set it aside, and there may be no other of it; \
                         remove it once it isn't wanted";
            context.problem(path, ProblemKind::Unwritable, cause);
            return None;
        }
        match context.own.stance(&self.dir, name, &stat) {
            Stance::Own => return None,
            Stance::Around if is_mounted(handle, &stat) => return None,
            Stance::Around => return self.open(handle, name, spared.cloned()),
            Stance::Free => {
                let find = || Rc::new(Spared::find(self.selection, handle, name, path));
                let spared = spared.cloned().unwrap_or_else(find);
                if spared.has(&stat) {
                    return self.open(handle, name, Some(spared));
                }
            }
        }
        if is_repository(handle, name, &stat) {
            let cause = "it is a repository, which no restore deletes: remove it yourself if nobody needs it";
            context.problem(path, ProblemKind::Unwritable, cause);
            return None;
        }
        if !context.options.dry_run
            && let Err(e) = remove(handle, name, &stat)
        {
            context.problem(path, ProblemKind::Unwritable, e);
            return None;
        }
        add(&context.counters().deleted, 1);
        context.monitor.entry(Change::Deleted, path);
        None
    }

    fn open(&mut self, handle: &Arc<TargetDir>, name: &[u8], spared: Option<Rc<Spared>>) -> Option<Opened> {
        match handle.open_dir(name).and_then(|handle| Ok((handle.list()?, handle))) {
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

/// Whether an entry of a directory is a folder with a repository in it, whoever's: a backup leaves out its own, which another client may have made.
fn is_repository(handle: &TargetDir, name: &[u8], stat: &Stat) -> bool {
    let config = || -> place::Result<Vec<u8>> {
        let (file, _) = handle.open_dir(name)?.open_existing(names::CONFIG.as_bytes())?;
        let mut bytes = Vec::new();
        let _ = file.take(HEADER_BYTES as u64).read_to_end(&mut bytes);
        Ok(bytes)
    };
    convert::kind(stat.kind) == Kind::Dir
        && config().is_ok_and(|bytes| Header::decode(&bytes, ObjectType::Config).is_ok())
}

/// Directories in which, or below which, something is left out by the patterns, or can't be looked at: nobody knows then that nothing is.
struct Spared(HashSet<FileId>);

impl Spared {
    /// Those of an entry and of all below it.
    fn find(selection: &Selection, handle: &TargetDir, name: &[u8], path: &[u8]) -> Self {
        let mut spared = Spared(HashSet::new());
        if !selection.has_rules() {
            return spared;
        }
        let Ok(Some(stat)) = handle.stat(name) else { return spared };
        if convert::kind(stat.kind) != Kind::Dir || is_mounted(handle, &stat) {
            return spared;
        }
        let mut path = path.to_vec();
        let mut open = Vec::new();
        spared.enter(handle, name, &stat, path.len(), &mut open);
        while let Some(looked) = open.last_mut() {
            let id = looked.id;
            path.truncate(looked.path);
            let Some(name) = looked.names.get(looked.at) else {
                open.pop();
                // What is above it stays, too.
                if spared.0.contains(&id) {
                    spared.0.extend(open.last().map(|above| above.id));
                }
                continue;
            };
            looked.at += 1;
            path.push(b'/');
            path.extend_from_slice(name);
            let (handle, name) = (looked.handle.clone(), name.to_vec());
            match handle.stat(&name) {
                Ok(None) => {}
                Ok(Some(stat)) if selection.wants(&path, &convert::meta(&stat, 0)) => {
                    if convert::kind(stat.kind) == Kind::Dir && !is_mounted(&handle, &stat) {
                        spared.enter(&handle, &name, &stat, path.len(), &mut open);
                    }
                }
                Ok(Some(_)) | Err(_) => _ = spared.0.insert(id),
            }
        }
        spared
    }

    fn enter(&mut self, handle: &TargetDir, name: &[u8], stat: &Stat, path: usize, open: &mut Vec<Looked>) {
        let id = FileId::of(stat);
        match handle.open_dir(name).and_then(|handle| Ok((handle.list()?, handle))) {
            Ok((names, handle)) => open.push(Looked { handle, names, at: 0, id, path }),
            Err(_) => {
                self.0.insert(id);
                self.0.extend(open.last().map(|above| above.id));
            }
        }
    }

    /// Whether a directory is one of them.
    fn has(&self, stat: &Stat) -> bool {
        self.0.contains(&FileId::of(stat))
    }
}

/// A directory that is being looked through.
struct Looked {
    handle: Arc<TargetDir>,
    names: Names,
    /// The next of them.
    at: usize,
    id: FileId,
    /// The length of its path.
    path: usize,
}

/// Remove whatever it is; the cause, if some of it stays.
fn remove(handle: &Arc<TargetDir>, name: &[u8], stat: &Stat) -> std::result::Result<(), String> {
    if convert::kind(stat.kind) != Kind::Dir {
        return handle.remove(name).map_err(|e| e.to_string());
    }
    let removed = handle.remove_tree(name).map_err(|e| e.to_string())?;
    if removed.failures == 0 { Ok(()) } else { Err(format!("{} entries in it can't be removed", removed.failures)) }
}
