//! What has no contents and is no directory: symlinks, pipes, sockets and devices.

use super::existing;
use super::worker::Context;
use crate::convert;
use drumlin_format::tree::{Content, Kind, Meta};
use drumlin_host::meta::Stat;
use drumlin_host::place::{self, FileId, TargetDir, Wanted};
use std::sync::Arc;

/// Whether the one that is there is the one that is wanted.
pub(super) fn is_right(handle: &TargetDir, name: &[u8], meta: &Meta, content: &Content, there: &Stat) -> bool {
    match meta.kind {
        Kind::Symlink => handle.read_link(name).is_ok_and(|target| target == content.target),
        _ => there.rdev == meta.rdev,
    }
}

/// Make one, or mend what differs about it, in a directory whose path below the target is `dir`. `there`: one of its
/// kind, which is `None` afterwards if it was not kept; `in_the_way`: what is of another.
pub(super) fn place(
    context: &Context,
    (dir, handle): (&[u8], &Arc<TargetDir>),
    name: &[u8],
    (meta, content, wanted): (&Meta, &Content, &Wanted),
    there: &mut Option<Stat>,
    in_the_way: Option<Stat>,
) -> place::Result<place::Problems> {
    if let Some(stat) = there.filter(|stat| is_right(handle, name, meta, content, stat)) {
        match handle.amend(name, convert::host_kind(meta.kind), FileId::of(&stat), wanted) {
            // It has names elsewhere that are to stay as they are.
            Err(place::Error::Shared(_)) => {}
            amended => return amended,
        }
    }
    let replaced = there.take().or(in_the_way);
    let make = |name: &[u8]| match meta.kind {
        Kind::Symlink => handle.symlink(name, wanted),
        kind => handle.mknod(name, convert::host_kind(kind), meta.rdev, wanted),
    };
    let Some(replaced) = replaced else { return make(name) };
    // Where it can't be made, what is there stays.
    handle.replace_by(name, |temporary| {
        let problems = make(temporary)?;
        if !problems.iter().any(|problem| matches!(problem.what, place::What::Node)) {
            existing::make_way(context, (dir, handle), name, &replaced)?;
        }
        Ok(problems)
    })
}
