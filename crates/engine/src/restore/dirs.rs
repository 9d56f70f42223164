//! The directories' own metadata, when all else is there: read backwards, so that a directory is completed after
//! everything in it.

use super::plan::{Planned, extras, owner};
use super::selection;
use super::worker::Context;
use crate::list::report_damage;
use crate::monitor::ProblemKind;
use crate::{Error, Result, convert};
use drumlin_format::tree::{Kind, join};
use drumlin_host::place::{Target, Wanted};
use drumlin_repo::tree::Cursor;

/// Give the restored directories their metadata.
pub(super) fn finish(context: &Context, planned: &Planned) -> Result<()> {
    let Some(target) = context.target.as_ref().filter(|_| !context.options.dry_run) else { return Ok(()) };
    let cursor = Cursor::new(context.reader.clone(), None)?;
    for child in planned.leaves.iter().rev() {
        let (leaf, body) = match cursor.leaf(child).and_then(|leaf| Ok((cursor.body(child, &leaf)?, leaf))) {
            Ok((body, leaf)) => (leaf, body),
            // It could be read a while ago.
            Err(e) => {
                report_damage(context.monitor, child, e)?;
                continue;
            }
        };
        for at in (0..leaf.len()).rev() {
            let (dir, name, meta) = leaf.get(at);
            if meta.kind != Kind::Dir || !planned.selection.covers(dir, name) {
                continue;
            }
            let path = selection::source(dir, name);
            let own = selection::joined(&planned.selection.below(dir), name);
            // One that was there and only leads to what is wanted stays as it is.
            let is_way = planned.selection.is_way(dir, name);
            let is_wanted = planned.selection.wants(&path, meta) && !is_way;
            let is_barred = planned.barriers.is_barred(&join(dir, name));
            if !planned.made.contains(&own) && !is_wanted || is_barred {
                continue;
            }
            let extras = extras(&body.contents[at]);
            let wanted = Wanted {
                mode: meta.mode,
                owner: Some(owner(context, &leaf, meta)),
                mtime: convert::host_time(meta.mtime),
                extras: &extras,
            };
            match target.dir(&own).and_then(|d| d.finish_dir(&wanted)) {
                Ok(mut problems) => {
                    // `/home` is root's, and nobody else could give it to him: that is no news, and nothing that was
                    // saved.
                    problems.retain(|problem| !is_way || !problem.is_about_owners());
                    context.attributes(&path, problems);
                }
                // Its absence was told where it should have been made.
                Err(e) if e.is_missing() => {}
                Err(e) => context.unwritable(&path, e),
            }
        }
    }
    if !target.is_made() {
        return Ok(());
    }
    match own(context, planned, target) {
        Err(Error::Repo(e)) if e.is_damage() => {
            if let Some((dir, name)) = planned.selection.base() {
                context.problem(&selection::source(&dir, &name), ProblemKind::Damaged, format!("its metadata: {e}"));
            }
            Ok(())
        }
        done => done,
    }
}

/// A target that was made for a folder of the snapshot is that folder: it isn't open to more than that was.
fn own(context: &Context, planned: &Planned, target: &Target) -> Result<()> {
    let Some((dir, name)) = planned.selection.base() else { return Ok(()) };
    let mut cursor = Cursor::new(context.reader.clone(), context.options.snapshot.root)?;
    cursor.seek(&dir, &name)?;
    let Some(child) = cursor.next_leaf()? else { return Ok(()) };
    let leaf = cursor.leaf(&child)?;
    let body = cursor.body(&child, &leaf)?;
    let Some(at) = leaf.iter().position(|(d, n, _)| (d, n) == (&dir[..], &name[..])) else { return Ok(()) };
    let (_, _, meta) = leaf.get(at);
    let extras = extras(&body.contents[at]);
    let (mode, mtime) = (meta.mode, convert::host_time(meta.mtime));
    let wanted = Wanted { mode, owner: Some(owner(context, &leaf, meta)), mtime, extras: &extras };
    let path = selection::source(&dir, &name);
    match target.root().finish_dir(&wanted) {
        Ok(problems) => context.attributes(&path, problems),
        Err(e) => context.unwritable(&path, e),
    }
    Ok(())
}
