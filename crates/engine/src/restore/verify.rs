//! Everything read back from the target and compared with the snapshot.

use super::compare;
use super::selection::{self, Selection};
use super::worker::Context;
use crate::{Error, Result};
use drumlin_format::tree::{Kind, marks};
use drumlin_repo::tree::Cursor;

/// How many files were found right.
pub(super) fn verify(context: &Context, selection: &Selection) -> Result<u64> {
    let Some(target) = &context.target else { return Ok(0) };
    let mut cursor = Cursor::new(context.reader.clone(), context.options.snapshot.root)?;
    let mut right = 0;
    for range in selection.ranges.iter().filter(|r| !r.way) {
        match cursor.seek(&range.start.0, &range.start.1) {
            Err(e) if e.is_damage() => {}
            other => other?,
        }
        'leaves: loop {
            let child = match cursor.next_leaf() {
                Ok(Some(child)) => child,
                Ok(None) => break,
                // What can't be read of the tree was told.
                Err(e) if e.is_damage() => continue,
                Err(e) => return Err(e.into()),
            };
            let (leaf, body) = match cursor.leaf(&child).and_then(|leaf| Ok((cursor.body(&child, &leaf)?, leaf))) {
                Ok((body, leaf)) => (leaf, body),
                Err(e) if e.is_damage() => continue,
                Err(e) => return Err(e.into()),
            };
            for at in 0..leaf.len() {
                let (dir, name, meta) = leaf.get(at);
                if (dir, name) < (&range.start.0[..], &range.start.1[..]) {
                    continue;
                }
                if range.end.as_ref().is_some_and(|end| (dir, name) >= (&end.0[..], &end.1[..])) {
                    break 'leaves;
                }
                if context.ended() {
                    return Ok(right);
                }
                let path = selection::source(dir, name);
                let read = meta.kind == Kind::File && meta.marks & marks::CONTENTS_MISSING == 0;
                if !read || !selection.wants(&path, meta) {
                    continue;
                }
                let same = match target.dir(&selection.below(dir)).and_then(|d| d.open_existing(name)) {
                    Ok((file, stat)) if stat.size == meta.size => {
                        match compare::same(context, &file, &body.contents[at].data, meta.size, drop) {
                            // What it should be can't be known any more.
                            Err(Error::Repo(e)) if e.is_damage() => false,
                            Err(Error::Interrupted) => return Ok(right),
                            same => same?,
                        }
                    }
                    _ => false,
                };
                if same {
                    right += 1;
                } else {
                    context.differs(&path, "read back, it differs from the snapshot");
                }
            }
        }
    }
    Ok(right)
}
