//! What is in the target already where something of the snapshot's goes.

use super::Overwrite;
use super::own::Stance;
use super::selection::Selection;
use super::spared::Spared;
use super::worker::Context;
use crate::convert;
use crate::monitor::{Change, ProblemKind};
use drumlin_format::tree::{Kind, Meta};
use drumlin_format::{HEADER_BYTES, Header, ObjectType};
use drumlin_host::meta::Stat;
use drumlin_host::place::{self, TargetDir};
use drumlin_repo::names;
use std::io::Read;
use std::sync::Arc;

/// What is there of that name, in a directory whose path below the target is `dir`, if anything; `None` if the entry is
/// not to be touched. What is of another kind goes when its successor is whole: see [`make_way`].
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
    if stays && meta.kind == Kind::Dir {
        let cause = "something else is there, which --overwrite keeps: what belongs in the folder is not restored";
        context.problem(path, ProblemKind::Unwritable, cause);
        return None;
    }
    if stays || is_other_file && context.own.is_remembered(dir, name) {
        context.placed(path, Vec::new(), Change::Kept);
        return None;
    }
    if is_other_file && context.own.is_guarded(dir, name) {
        let cause = "a different key or password file in use is there and is kept; restore this one to another folder to have both";
        context.problem(path, ProblemKind::Unwritable, cause);
        return None;
    }
    if !same_kind && convert::kind(stat.kind) == Kind::Dir {
        let cause = match (context.options.delete, context.own.stance(dir, name, &stat)) {
            (true, Stance::Free) if Spared::find(selection, handle, name, path).has(&stat) => {
                "a directory of that name is there, and contains something that --exclude or --include leaves out, or a repository"
            }
            (true, Stance::Free) => match why_it_stays(handle, name, &stat) {
                None => {
                    if context.options.dry_run {
                        context.deleted(dir, name);
                    }
                    return Some(Some(stat));
                }
                Some(why) => {
                    context.problem(path, ProblemKind::Unwritable, why);
                    return None;
                }
            },
            (true, _) => "a directory of that name is there that Drumlin itself needs",
            (false, _) => "a directory of that name is there; --delete would remove it",
        };
        context.problem(path, ProblemKind::Unwritable, cause);
        return None;
    }
    Some(Some(stat))
}

/// Whether something else is there than was before, or it was written to. What is gone isn't. (The time of the inode's
/// last change doesn't tell: a restore that replaces one name of a file changes it for the others.)
pub(super) fn has_changed(handle: &TargetDir, name: &[u8], before: &Stat) -> bool {
    let state = |stat: &Stat| (stat.dev, stat.ino, stat.size, stat.mtime);
    handle.stat(name).unwrap_or(None).is_some_and(|now| state(&now) != state(before))
}

/// Remove a directory whose place something else is about to take, and which no rename replaces, with all that is in
/// it. Anything else stays for that. `dir`: the path of its directory below the target.
pub(super) fn make_way(
    context: &Context,
    (dir, handle): (&[u8], &Arc<TargetDir>),
    name: &[u8],
    stat: &Stat,
) -> place::Result<()> {
    if convert::kind(stat.kind) != Kind::Dir {
        return Ok(());
    }
    match handle.remove_tree(name)?.failed.into_iter().next() {
        Some((_, first)) => Err(first),
        None => {
            context.deleted(dir, name);
            Ok(())
        }
    }
}

/// Why a restore never deletes an entry of a directory, if so: it is a folder that holds a repository, whoever's. A
/// backup leaves out the repository that it writes to, so the snapshot of another client may lack one that must stay.
pub(super) fn why_it_stays(handle: &TargetDir, name: &[u8], stat: &Stat) -> Option<String> {
    let why = match is_repository(handle, name, stat) {
        Ok(false) => return None,
        Ok(true) => "it is a repository, which restores never delete".to_owned(),
        Err(e) => format!("it may be a repository, which restores never delete: {e}"),
    };
    Some(format!("{why}; remove it yourself if nobody needs it"))
}

/// Whether it is one.
///
/// # Errors
/// What may tell can't be read.
fn is_repository(handle: &TargetDir, name: &[u8], stat: &Stat) -> Result<bool, String> {
    if convert::kind(stat.kind) != Kind::Dir {
        return Ok(false);
    }
    let unread = |e: place::Error| if e.is_unread() { Err(e.to_string()) } else { Ok(false) };
    let dir = match handle.open_dir(name) {
        Ok(dir) => dir,
        Err(e) => return unread(e),
    };
    // By its copy a repair makes a lost one anew.
    for config in [names::CONFIG, names::CONFIG_COPY] {
        let is_config = match dir.open_existing(config.as_bytes()) {
            Ok((file, _)) => {
                let mut bytes = Vec::new();
                file.take(HEADER_BYTES as u64).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
                Header::decode(&bytes, ObjectType::Config).is_ok()
            }
            Err(e) => unread(e)?,
        };
        if is_config {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a symlink is where a directory of the snapshot only leads to what was saved, as a path looks through it:
/// that is no directory to be made. Told if so.
pub(super) fn leads_elsewhere(context: &Context, handle: &TargetDir, name: &[u8], path: &[u8]) -> bool {
    let is_link =
        handle.stat(name).is_ok_and(|stat| stat.is_some_and(|stat| convert::kind(stat.kind) == Kind::Symlink));
    if is_link {
        let to = handle.read_link(name).unwrap_or_default();
        let cause = format!(
            "a symbolic link to '{}' is there, which a restore neither follows nor replaces with a folder that only leads to \
             others: restore 'SNAPSHOT:{}' with --target where it leads",
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
