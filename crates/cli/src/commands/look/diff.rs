//! `diff`: what differs between two snapshots.

use super::{Look, Written};
use crate::args::look::Diff;
use crate::context::Context;
use crate::exit::{Exit, Failure, Result};
use crate::render::path::{JsonPath, shown};
use crate::render::size::count;
use crate::render::sums::{JsonSums, in_words};
use drumlin_engine::diff::{Change, Difference, Options, Report, diff};
use serde::Serialize;

#[derive(Serialize)]
struct JsonChange<'a> {
    message_type: &'static str,
    #[serde(flatten)]
    path: JsonPath<'a>,
    modifier: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    size_before: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size_after: Option<u64>,
}

#[derive(Serialize)]
struct JsonStatistics {
    message_type: &'static str,
    source_snapshot: String,
    target_snapshot: String,
    added: JsonSums,
    removed: JsonSums,
    changed_contents: u64,
    changed_type: u64,
    changed_metadata: u64,
}

/// Run it.
///
/// # Errors
/// There is no such snapshot or path.
pub fn run(context: &Context, args: &Diff) -> Result<Exit> {
    let look = Look::open(context, "diff")?;
    let (old, new) = (look.find(context, &args.old, &args.select)?, look.find(context, &args.new, &args.select)?);
    if old.subfolder != new.subfolder {
        return Err(Failure::usage("the same folder of both snapshots is compared")
            .hint("give both the same folder, as in 'drumlin diff A:/etc B:/etc'"));
    }
    let options = Options { path: old.subfolder, ..Options::default() };
    let (old, new) = (old.snapshot.snapshot, new.snapshot.snapshot);
    let mut written = Written::default();
    let report = look.watch.plainly(|monitor| {
        diff(&look.reader, old.root, new.root, &options, monitor, &mut |difference| {
            let shown = show(context, args, difference);
            written.heed(shown)
        })
    })?;
    written.check()?;
    if context.out.json() {
        context.out.object(&JsonStatistics {
            message_type: "statistics",
            source_snapshot: old.id.to_string(),
            target_snapshot: new.id.to_string(),
            added: report.added.into(),
            removed: report.removed.into(),
            changed_contents: report.content,
            changed_type: report.kind,
            changed_metadata: report.metadata,
        })?;
    } else {
        sums(&report).into_iter().for_each(|l| context.out.note(l));
    }
    Ok(look.exit())
}

fn modifier(change: Change) -> &'static str {
    match change {
        Change::Added => "+",
        Change::Removed => "-",
        Change::Modified(m) if m.kind => "T",
        Change::Modified(m) if m.content => "M",
        Change::Modified(_) => "U",
    }
}

fn show(context: &Context, args: &Diff, difference: &Difference) -> Result<()> {
    let modifier = modifier(difference.change);
    if modifier == "U" && !args.metadata {
        return Ok(());
    }
    let path = difference.path();
    if context.out.json() {
        return context.out.object(&JsonChange {
            message_type: "change",
            path: path[..].into(),
            modifier,
            size_before: difference.old.map(|m| m.size),
            size_after: difference.new.map(|m| m.size),
        });
    }
    context.out.line(format!("{modifier}    {}", shown(&path)))
}

fn sums(report: &Report) -> [String; 3] {
    [
        format!("added:   {}", in_words(&report.added)),
        format!("removed: {}", in_words(&report.removed)),
        format!(
            "changed: {} in contents, {} in type, {} in metadata alone",
            count(report.content),
            count(report.kind),
            count(report.metadata)
        ),
    ]
}
