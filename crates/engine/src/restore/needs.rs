//! Which packs a restore has to read: told when some turn out to be in cold storage, so that all are asked for at once.

use super::selection::{self, Selection};
use super::{Options, Overwrite};
use crate::Result;
use crate::convert;
use crate::monitor::Monitor;
use drumlin_format::ChunkId;
use drumlin_format::tree::{Data, Kind, Meta, Ref};
use drumlin_repo::PackInfo;
use drumlin_repo::pack::Reader;
use drumlin_repo::tree::{Cursor, Refs};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

/// The packs with contents of what is wanted. Files that are there in the same size and of the same time are taken to
/// be right: if one isn't, its pack is asked for when that is seen. What of the tree can't be read the restore itself
/// tells. Some of them, if the user ends it.
///
/// Memory: four bytes a pack.
pub(super) fn packs(
    reader: &Reader,
    cursor: &mut Cursor,
    options: &Options,
    monitor: &dyn Monitor,
) -> Result<Vec<Arc<PackInfo>>> {
    let selection = Selection::new(options)?;
    let mut needs = Needs { reader, packs: BTreeSet::new() };
    for range in selection.ranges.iter().filter(|range| !range.way) {
        match cursor.seek(&range.start.0, &range.start.1) {
            Err(e) if e.is_damage() => {}
            sought => sought?,
        }
        'leaves: loop {
            if monitor.stop() {
                break;
            }
            let child = match cursor.next_leaf() {
                Ok(Some(child)) => child,
                Ok(None) => break,
                Err(e) if e.is_damage() => continue,
                Err(e) => return Err(e.into()),
            };
            let (body, leaf) = match cursor.leaf(&child).and_then(|leaf| Ok((cursor.body(&child, &leaf)?, leaf))) {
                Ok(read) => read,
                Err(e) if e.is_damage() => continue,
                Err(e) => return Err(e.into()),
            };
            for (at, (dir, name, meta)) in leaf.iter().enumerate() {
                if (dir, name) < (&range.start.0[..], &range.start.1[..]) {
                    continue;
                }
                if range.end.as_ref().is_some_and(|end| (dir, name) >= (&end.0[..], &end.1[..])) {
                    break 'leaves;
                }
                if meta.kind == Kind::File
                    && meta.size > 0
                    && selection.wants(&selection::source(dir, name), meta)
                    && !is_there(options, &selection.below(dir), name, meta)
                {
                    needs.file(&body.contents[at].data)?;
                }
            }
        }
    }
    Ok(needs.packs.iter().map(|number| reader.index().pack(*number)).collect())
}

struct Needs<'a> {
    reader: &'a Reader,
    packs: BTreeSet<u32>,
}

impl Needs<'_> {
    fn file(&mut self, data: &Data) -> Result<()> {
        match data {
            Data::None => Ok(()),
            Data::Chunk(id) => self.chunk(id),
            Data::List(list) => {
                for r in Refs::new(self.reader, list) {
                    match r {
                        Ok(Ref::Chunk { id, .. }) => self.chunk(&id)?,
                        Ok(Ref::Hole { .. }) => {}
                        Err(e) if e.is_damage() => return Ok(()),
                        Err(e) => return Err(e.into()),
                    }
                }
                Ok(())
            }
        }
    }

    fn chunk(&mut self, id: &ChunkId) -> Result<()> {
        self.packs.extend(self.reader.index().lookup(id)?.map(|location| location.pack));
        Ok(())
    }
}

/// Whether there is something where this one would go that stays, or a file of its size and time.
fn is_there(options: &Options, dir: &[u8], name: &[u8], meta: &Meta) -> bool {
    let path = options.target.join(OsStr::from_bytes(dir)).join(OsStr::from_bytes(name));
    let wanted = convert::host_time(meta.mtime);
    path.symlink_metadata().is_ok_and(|there| {
        let time = (there.mtime(), there.mtime_nsec());
        let stays = match options.overwrite {
            Overwrite::Never => true,
            Overwrite::IfNewer => time >= (wanted.sec, i64::from(wanted.nsec)),
            Overwrite::IfChanged | Overwrite::Always => false,
        };
        stays || there.is_file() && there.size() == meta.size && time == (wanted.sec, i64::from(wanted.nsec))
    })
}
