//! What is done when all files are there: hard links, and the directories' own metadata, read backwards so that a directory
//! is completed after everything in it.

use super::plan::{Link, Planned, extras, owner};
use super::selection;
use super::worker::Context;
use crate::Result;
use crate::convert;
use crate::list::report_damage;
use crate::monitor::{Change, ProblemKind};
use drumlin_format::tree::Kind;
use drumlin_host::place::{self, Wanted};
use drumlin_repo::tree::Cursor;

const NO_FIRST: &str = "the file that it is a hard link to was not restored";

/// Make the further links of files that are there.
pub(super) fn links(context: &Context, planned: &Planned) {
    let source_of = |link: &Link| planned.selection.source_of(&link.dir, &link.name);
    for (first, link) in &planned.links {
        if context.ended() {
            return;
        }
        let path = source_of(link);
        if context.options.dry_run {
            context.placed(&path, place::Problems::new(), Change::Restored);
            continue;
        }
        if context.is_lost(&source_of(first)) {
            // What has its name is something else that was there before.
            context.problem(&path, ProblemKind::Unwritable, NO_FIRST);
            continue;
        }
        match make_link(context, first, link) {
            Ok(change) => context.placed(&path, place::Problems::new(), change),
            Err(e) if e.is_missing() => context.problem(&path, ProblemKind::Unwritable, NO_FIRST),
            Err(e) => context.unwritable(&path, e),
        }
    }
}

fn make_link(context: &Context, first: &Link, link: &Link) -> place::Result<Change> {
    let target = context.target.as_ref().expect("links are made only where there is a target");
    let (from, to) = (target.dir(&first.dir)?, target.dir(&link.dir)?);
    match to.hard_link(&link.name, &from, &first.name, None) {
        Err(e) if e.is_exists() => {
            let same = |a: &drumlin_host::meta::Stat, b: &drumlin_host::meta::Stat| (a.dev, a.ino) == (b.dev, b.ino);
            if let (Some(a), Some(b)) = (from.stat(&first.name)?, to.stat(&link.name)?)
                && same(&a, &b)
            {
                return Ok(Change::Kept);
            }
            to.remove(&link.name)?;
            to.hard_link(&link.name, &from, &first.name, None)?;
            Ok(Change::Restored)
        }
        other => other.map(|()| Change::Restored),
    }
}

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
            let path = selection::source(dir, name);
            if meta.kind != Kind::Dir || !planned.selection.covers(dir, name) || !planned.selection.wants(&path, meta) {
                continue;
            }
            let extras = extras(&body.contents[at]);
            let wanted = Wanted {
                mode: meta.mode,
                owner: Some(owner(context, &leaf, meta)),
                mtime: convert::host_time(meta.mtime),
                extras: &extras,
            };
            let below = planned.selection.below(dir);
            let own = if below.is_empty() { name.to_vec() } else { [&below[..], b"/", name].concat() };
            match target.dir(&own).and_then(|d| d.finish_dir(&wanted)) {
                Ok(problems) => context.attributes(&path, problems),
                // Its absence was told where it should have been made.
                Err(e) if e.is_missing() => {}
                Err(e) => context.unwritable(&path, e),
            }
        }
    }
    Ok(())
}
