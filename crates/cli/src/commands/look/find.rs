//! `find`: entries of one snapshot or of many.

use super::entry::{JsonEntry, More, long};
use super::{Look, Written, is_dir};
use crate::args::look::{Find, Kind};
use crate::commands::add_once;
use crate::commands::snapshots::in_words;
use crate::context::Context;
use crate::exit::{Exit, Failure, Result};
use crate::render::path::shown;
use crate::render::time::Time;
use drumlin_engine::find::{Match, Options, find};
use drumlin_engine::select::TreePath;
use drumlin_format::SnapshotId;
use drumlin_format::snapshot::Snapshot;
use drumlin_format::tree;
use std::os::unix::ffi::OsStrExt;

/// Run it.
///
/// # Errors
/// There is no such snapshot, or a pattern makes no sense.
pub fn run(context: &Context, args: &Find) -> Result<Exit> {
    let look = Look::open(context, "find")?;
    let filter = args.select.filter()?;
    let mut below = TreePath::root();
    let snapshots: Vec<Snapshot> = if args.snapshots.is_empty() {
        filter.select(&look.snapshots).into_iter().map(|i| i.snapshot).collect()
    } else {
        let mut named = Vec::new();
        for (at, spec) in args.snapshots.iter().enumerate() {
            let spec = look.find(context, spec, &args.select)?;
            if at > 0 && spec.subfolder != below {
                return Err(Failure::usage("one search covers one folder: give the same one for all snapshots"));
            }
            below = spec.subfolder;
            // A folder that isn't there is a slip, and no search without a result.
            is_dir(&look.reader, spec.snapshot.snapshot.root, &below)?;
            add_once(&mut named, spec.snapshot);
        }
        named.into_iter().map(|info| info.snapshot).collect()
    };
    let time = |t: Time| tree::Time { sec: t.0, nsec: t.1 };
    let options = Options {
        patterns: args.patterns.iter().map(|p| p.as_bytes().to_vec()).collect(),
        ignore_case: args.ignore_case,
        kinds: args.kinds.iter().map(|k| kind(*k)).collect(),
        newer: args.newer.map(time),
        older: args.older.map(time),
        size_min: args.larger,
        size_max: args.smaller,
        below,
    };
    let mut written = Written::default();
    let mut show = Show { context, long: args.long, last: None };
    let searched = look.watch.plainly(|monitor| {
        find(&look.reader, &snapshots, &options, monitor, &mut |snapshot, found| {
            let shown = show.one(snapshot, found);
            written.heed(shown)
        })
    });
    searched?;
    written.check()?;
    Ok(look.exit())
}

fn kind(kind: Kind) -> tree::Kind {
    match kind {
        Kind::File => tree::Kind::File,
        Kind::Dir => tree::Kind::Dir,
        Kind::Symlink => tree::Kind::Symlink,
        Kind::Fifo => tree::Kind::Fifo,
        Kind::Socket => tree::Kind::Socket,
        Kind::Chardev => tree::Kind::CharDevice,
        Kind::Blockdev => tree::Kind::BlockDevice,
    }
}

struct Show<'a, 'o> {
    context: &'a Context<'o>,
    long: bool,
    /// The snapshot whose matches are being shown.
    last: Option<SnapshotId>,
}

impl Show<'_, '_> {
    fn one(&mut self, snapshot: &Snapshot, found: &Match) -> Result<()> {
        let out = self.context.out;
        let path = found.path();
        let more = More { user: found.user.as_deref(), group: found.group.as_deref(), target: None };
        if out.json() {
            let id = snapshot.id.to_string();
            return out.object(&JsonEntry::new("match", Some(&id), &path, &found.meta, more));
        }
        if self.last != Some(snapshot.id) {
            if self.last.is_some() {
                out.line("")?;
            }
            out.line(format!("in {}:", in_words(snapshot)))?;
            self.last = Some(snapshot.id);
        }
        match self.long {
            true => out.line(long(&path, &found.meta, more)),
            false => out.line(shown(&path)),
        }
    }
}
