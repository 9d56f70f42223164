//! What is in the target already: what may stay, what has to go.

use super::Overwrite;
use super::own::Stance;
use super::selection::Selection;
use super::worker::Context;
use crate::convert;
use crate::monitor::{Change, ProblemKind, add};
use drumlin_format::tree::{Kind, Meta};
use drumlin_host::meta::Stat;
use drumlin_host::place::{self, TargetDir};
use std::sync::Arc;

/// What is there of that name, in a directory whose path below the target is `dir`, if anything; `None` if the entry is not to be touched. What is of another kind goes when its successor
/// is whole: see [`make_way`].
pub(super) fn there(
    context: &Context,
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
    if stays {
        context.placed(path, Vec::new(), Change::Kept);
        return None;
    }
    if !same_kind && convert::kind(stat.kind) == Kind::Dir {
        let cause = match (context.options.delete, context.own.stance(dir, name, &stat)) {
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

/// Delete an entry that the snapshot doesn't have, if it would have been restored. `dir`: the path of its directory below the target.
pub(super) fn delete(
    context: &Context,
    (dir, handle): (&[u8], &Arc<TargetDir>),
    name: &[u8],
    path: &[u8],
    selection: &Selection,
) {
    let Ok(Some(stat)) = handle.stat(name) else { return };
    if !selection.wants(path, &convert::meta(&stat, 0)) {
        return;
    }
    match context.own.stance(dir, name, &stat) {
        Stance::Free => {}
        Stance::Own => return,
        Stance::Around => {
            let within = [dir, if dir.is_empty() { b"" } else { b"/" }, name].concat();
            let listed = handle.open_dir(name).and_then(|handle| Ok((handle.list()?, handle)));
            match listed {
                Ok((names, handle)) => names.iter().for_each(|name| {
                    delete(context, (&within, &handle), name, &[path, b"/", name].concat(), selection);
                }),
                Err(e) => context.problem(path, ProblemKind::Unwritable, e),
            }
            return;
        }
    }
    if !context.options.dry_run
        && let Err(e) = remove(handle, name, &stat)
    {
        return context.problem(path, ProblemKind::Unwritable, e);
    }
    add(&context.counters().deleted, 1);
    context.monitor.entry(Change::Deleted, path);
}

/// Remove whatever it is; the cause, if some of it stays.
fn remove(handle: &Arc<TargetDir>, name: &[u8], stat: &Stat) -> std::result::Result<(), String> {
    if convert::kind(stat.kind) != Kind::Dir {
        return handle.remove(name).map_err(|e| e.to_string());
    }
    let removed = handle.remove_tree(name).map_err(|e| e.to_string())?;
    if removed.failures == 0 { Ok(()) } else { Err(format!("{} entries in it can't be removed", removed.failures)) }
}
