//! `ls`: what is in a snapshot.

use super::entry::{JsonEntry, More, long};
use super::{Look, Written, paths};
use crate::args::look::Ls;
use crate::context::Context;
use crate::exit::{Exit, Result};
use crate::render::path::shown;
use drumlin_engine::list::{Depth, Entry, list};
use drumlin_format::tree::Kind;

/// Run it.
///
/// # Errors
/// There is no such snapshot or path.
pub fn run(context: &Context, args: &Ls) -> Result<Exit> {
    let look = Look::open(context, "ls")?;
    let spec = look.find(context, &args.snapshot, &args.select)?;
    // As restic has it: all of a snapshot, but of a directory that is named only what is right in it.
    let whole = args.paths.is_empty() && spec.subfolder.is_root();
    let depth = if args.recursive || whole { Depth::All } else { Depth::Children };
    let mut path = Vec::new();
    for listed in paths(&spec.subfolder, &args.paths)? {
        let mut written = Written::default();
        look.watch.plainly(|monitor| {
            list(&look.reader, spec.snapshot.snapshot.root, &listed, depth, monitor, &mut |entry| {
                path.clear();
                entry.push_path(&mut path);
                let shown = show(context, args, entry, &path);
                written.heed(shown)
            })
        })?;
        written.check()?;
    }
    Ok(look.exit())
}

fn show(context: &Context, args: &Ls, entry: &Entry, path: &[u8]) -> Result<()> {
    let out = context.out;
    if !out.json() && !args.long {
        return out.line(shown(path));
    }
    let meta = entry.meta();
    // Only what is asked for is read.
    let target = match meta.kind {
        Kind::Symlink => Some(entry.content()?.target.as_slice()),
        _ => None,
    };
    let more = More { user: entry.user(), group: entry.group(), target };
    match out.json() {
        true => out.object(&JsonEntry::new("node", None, path, meta, more)),
        false => out.line(long(path, meta, more)),
    }
}
