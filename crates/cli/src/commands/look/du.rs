//! `du`: how much is below the directories of a snapshot.

use super::{Look, Written, paths};
use crate::args::look::Du;
use crate::context::Context;
use crate::exit::{Exit, Result};
use crate::render::path::{JsonPath, shown};
use crate::render::size;
use crate::render::sums::JsonSums;
use drumlin_engine::du::du;
use drumlin_format::tree::Sums;
use serde::Serialize;

#[derive(Serialize)]
struct JsonDu<'a> {
    message_type: &'static str,
    #[serde(flatten)]
    path: JsonPath<'a>,
    depth: usize,
    #[serde(flatten)]
    sums: JsonSums,
}

/// Run it.
///
/// # Errors
/// There is no such snapshot or path.
pub fn run(context: &Context, args: &Du) -> Result<Exit> {
    let look = Look::open(context, "du")?;
    let spec = look.find(context, &args.snapshot, &args.select)?;
    for path in paths(&spec.subfolder, &args.paths)? {
        let mut written = Written::default();
        look.watch.plainly(|monitor| {
            du(&look.reader, spec.snapshot.snapshot.root, &path, args.depth, monitor, &mut |path, depth, sums| {
                let shown = show(context, args, &path.to_bytes(), depth, sums);
                written.heed(shown)
            })
        })?;
        written.check()?;
    }
    Ok(look.exit())
}

fn show(context: &Context, args: &Du, path: &[u8], depth: usize, sums: &Sums) -> Result<()> {
    if context.out.json() {
        return context.out.object(&JsonDu { message_type: "du", path: path.into(), depth, sums: (*sums).into() });
    }
    let bytes = if args.bytes { sums.bytes.to_string() } else { size::bytes(sums.bytes) };
    context.out.line(format!("{bytes:>12}  {:>12}  {}", size::counted(sums.entries, "entry", "entries"), shown(path)))
}
