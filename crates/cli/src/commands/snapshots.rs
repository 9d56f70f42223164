//! `snapshots`: which there are.

use super::{add_once, gather, whole};
use crate::args::snapshots::Snapshots;
use crate::context::Context;
use crate::exit::{Exit, Result};
use crate::render::path::{JsonPaths, shown};
use crate::render::size::{bytes, counted};
use crate::render::table::Table;
use crate::render::time::{local, rfc3339};
use drumlin_format::snapshot::Snapshot;
use drumlin_repo::{Repository, SnapshotInfo, Trust};
use serde::Serialize;
use std::collections::HashMap;

/// So many digits of an id tell snapshots apart in all but the largest repositories.
pub const SHORT: usize = 8;

/// A snapshot in JSON.
#[derive(Serialize)]
struct JsonSnapshot<'a> {
    message_type: &'static str,
    id: String,
    short_id: String,
    time: String,
    host: &'a str,
    user: &'a str,
    #[serde(flatten)]
    paths: JsonPaths<'a>,
    tags: &'a [String],
    partial: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    original: Option<String>,
    program: &'a str,
    key: String,
    signed: bool,
    open_session: bool,
    entries: u64,
    files: u64,
    dirs: u64,
    bytes: u64,
    summary: JsonSummary,
}

#[derive(Serialize)]
struct JsonSummary {
    entries_new: u64,
    entries_changed: u64,
    entries_unmodified: u64,
    entries_unreadable: u64,
    sources_missing: u64,
    files_changed_while_read: u64,
    entries_excluded: u64,
    bytes_read: u64,
    data_added: u64,
    data_added_packed: u64,
    total_duration: f64,
}

impl<'a> From<&'a SnapshotInfo> for JsonSnapshot<'a> {
    fn from(info: &'a SnapshotInfo) -> Self {
        let s = &info.snapshot;
        let sums = s.root.map(|r| r.sums).unwrap_or_default();
        let id = s.id.to_string();
        let (signed, key) = match info.trust {
            Trust::Signed(key) => (true, key),
            Trust::Unknown(key) => (false, key),
        };
        JsonSnapshot {
            message_type: "snapshot",
            short_id: id[..SHORT].to_owned(),
            id,
            time: rfc3339(s.time),
            host: &s.host,
            user: &s.user,
            paths: s.paths[..].into(),
            tags: &s.tags,
            partial: s.partial.is_some(),
            parent: s.parent.map(|p| p.to_string()),
            original: s.original.map(|o| o.to_string()),
            program: &s.program,
            key: key.to_string(),
            signed,
            open_session: info.open_session,
            entries: sums.entries,
            files: sums.files,
            dirs: sums.dirs,
            bytes: sums.bytes,
            summary: JsonSummary {
                entries_new: s.summary.new,
                entries_changed: s.summary.changed,
                entries_unmodified: s.summary.unmodified,
                entries_unreadable: s.summary.unreadable,
                sources_missing: s.summary.absent.unwrap_or_default(),
                files_changed_while_read: s.summary.changed_while_read,
                entries_excluded: s.summary.excluded,
                bytes_read: s.summary.bytes_read,
                data_added: s.summary.bytes_new,
                data_added_packed: s.summary.bytes_stored,
                total_duration: s.summary.millis as f64 / 1e3,
            },
        }
    }
}

/// Run it.
///
/// # Errors
/// The repository can't be read, or one of the named snapshots isn't there.
pub fn run(context: &Context, args: &Snapshots) -> Result<Exit> {
    let list = |of: &Repository| if args.forgotten { of.forgotten() } else { of.snapshots() };
    let (all, damaged) = context.open_to_ask(list)??;
    let filter = args.select.filter()?;
    let mut infos = match args.snapshots.is_empty() {
        true => filter.select(&all),
        false => {
            let mut named = Vec::new();
            for spec in &args.snapshots {
                add_once(&mut named, whole(gather::find(context, &all, spec.as_ref(), &args.select)?)?);
            }
            named
        }
    };
    if let Some(n) = args.latest {
        infos = latest(infos, n);
    }
    show(context, &infos, if args.forgotten { "forgotten " } else { "" })?;
    // What can't be read is told last, and by the status too: a list that isn't whole must not look as if it were.
    for error in &damaged {
        context.out.trouble_with("snapshots", &error.to_string());
    }
    Ok(if damaged.is_empty() { Exit::Done } else { Exit::Incomplete })
}

/// The last `n` of each host and set of sources.
fn latest(infos: Vec<SnapshotInfo>, n: usize) -> Vec<SnapshotInfo> {
    let mut seen: HashMap<(String, Vec<Vec<u8>>), usize> = HashMap::new();
    let mut kept: Vec<_> = infos
        .into_iter()
        .rev()
        .filter(|info| {
            let count = seen.entry((info.snapshot.host.clone(), info.snapshot.paths.clone())).or_default();
            *count += 1;
            *count <= n
        })
        .collect();
    kept.reverse();
    kept
}

fn show(context: &Context, infos: &[SnapshotInfo], which: &str) -> Result<()> {
    let out = context.out;
    if out.json() {
        return infos.iter().try_for_each(|info| out.object(&JsonSnapshot::from(info)));
    }
    if infos.is_empty() {
        out.note(format!("no {which}snapshots"));
        return Ok(());
    }
    let mut table = Table::new(&HEADS);
    infos.iter().for_each(|info| table.row(cells(info).to_vec()));
    table.lines().into_iter().try_for_each(|l| out.line(l))?;
    let (one, many) = (format!("{which}snapshot"), format!("{which}snapshots"));
    out.note(counted(infos.len() as u64, &one, &many));
    Ok(())
}

/// The heads of a table of snapshots.
pub const HEADS: [&str; 7] = ["ID", "Time", "Host", "Tags", "Notes", ">Size", "Paths"];

/// A snapshot's row in it.
pub fn cells(info: &SnapshotInfo) -> [String; HEADS.len()] {
    let s = &info.snapshot;
    [
        s.id.to_string()[..SHORT].to_owned(),
        local(s.time),
        shown(s.host.as_bytes()).into_owned(),
        s.tags.iter().map(|t| shown(t.as_bytes())).collect::<Vec<_>>().join(","),
        notes(info).join(", "),
        bytes(s.root.map_or(0, |r| r.sums.bytes)),
        s.paths.iter().map(|p| shown(p)).collect::<Vec<_>>().join("\n"),
    ]
}

/// What is unusual about a snapshot.
fn notes(info: &SnapshotInfo) -> Vec<String> {
    let mut notes = Vec::new();
    if info.snapshot.partial.is_some() {
        notes.push("partial".to_owned());
    }
    let summary = &info.snapshot.summary;
    // Sources are among what could not be read.
    let absent = summary.absent.unwrap_or_default();
    let counts = [
        (absent, "missing source"),
        (summary.unreadable.saturating_sub(absent), "unreadable"),
        (summary.changed_while_read, "changed while read"),
    ];
    notes.extend(counts.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| match (n, what) {
        (2.., "missing source") => format!("{n} missing sources"),
        _ => format!("{n} {what}"),
    }));
    if summary.behind.is_some() {
        notes.push("clock behind".to_owned());
    }
    if matches!(info.trust, Trust::Unknown(_)) {
        notes.push("unknown key".to_owned());
    }
    notes
}

/// A snapshot in a few words.
pub fn in_words(snapshot: &Snapshot) -> String {
    let id = snapshot.id.to_string();
    let partial = if snapshot.partial.is_some() { "partial snapshot" } else { "snapshot" };
    format!("{partial} {} of {}", &id[..SHORT], local(snapshot.time))
}
