//! `stats` and `estimate`: how much there is, and how much there would be.

use super::look::Look;
use super::{add_once, gather, processors, walkers, whole};
use crate::args::count::{Estimate, Stats};
use crate::context::{Context, Place};
use crate::exit::{Exit, Result};
use crate::render::progress::Watch;
use crate::render::size::{bytes, count, counted};
use crate::render::sums::{JsonSums, in_words};
use crate::render::time::rfc3339;
use crate::rules;
use crate::sources::Lines;
use drumlin_engine::backup::{self, ParentSnapshots};
use drumlin_engine::estimate::{self, Report, estimate};
use drumlin_engine::select::open_reader;
use drumlin_engine::stats::{GenerationStats, Part, of_repository, of_snapshots};
use drumlin_format::snapshot::Snapshot;
use serde::Serialize;
use std::sync::Arc;

#[derive(Serialize)]
struct JsonPart {
    packs: u64,
    chunks: u64,
    bytes: u64,
    stored: u64,
    compression_ratio: f64,
}

impl From<&Part> for JsonPart {
    fn from(p: &Part) -> Self {
        JsonPart {
            packs: p.packs,
            chunks: p.chunks,
            bytes: p.bytes,
            stored: p.stored,
            compression_ratio: round(p.compression()),
        }
    }
}

fn round(ratio: f64) -> f64 {
    (ratio * 1e4).round() / 1e4
}

#[derive(Serialize)]
struct JsonStats {
    message_type: &'static str,
    snapshots: u64,
    total: JsonSums,
    deduplication_ratio: f64,
    data: JsonPart,
    tree: JsonPart,
    #[serde(skip_serializing_if = "Option::is_none")]
    stored_twice: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pack_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    index_objects: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    index_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    recovery_objects: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    recovery_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    missing_chunks: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    generations: Vec<JsonGeneration>,
}

/// What the secrets of one generation open.
#[derive(Serialize)]
struct JsonGeneration {
    number: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<String>,
    packs: u64,
    pack_bytes: u64,
    index_objects: u64,
    snapshots: u64,
    others: u64,
}

impl From<&GenerationStats> for JsonGeneration {
    fn from(of: &GenerationStats) -> Self {
        let GenerationStats { number, created, packs, pack_bytes, index_objects, snapshots, others } = *of;
        let created = created.map(|time| rfc3339((time, 0)));
        JsonGeneration { number, created, packs, pack_bytes, index_objects, snapshots, others }
    }
}

/// `stats`.
///
/// # Errors
/// The repository can't be read, or there is no such snapshot.
pub fn stats(context: &Context, args: &Stats) -> Result<Exit> {
    let look = Look::open(context, "stats")?;
    let filter = args.select.filter()?;
    let all = args.snapshots.is_empty() && filter == Default::default();
    let stats = if all {
        let snapshots: Vec<Snapshot> = look.snapshots.iter().map(|i| i.snapshot.clone()).collect();
        let s = look.watch.run(|monitor| of_repository(&look.reader, &snapshots, processors(), monitor))?;
        JsonStats {
            message_type: "stats",
            snapshots: s.snapshots,
            total: s.logical.into(),
            deduplication_ratio: round(s.deduplication()),
            data: (&s.data).into(),
            tree: (&s.tree).into(),
            stored_twice: Some(s.twice),
            pack_bytes: Some(s.pack_bytes),
            index_objects: Some(s.index_objects),
            index_bytes: Some(s.index_bytes),
            recovery_objects: Some(s.parity.objects),
            recovery_bytes: Some(s.parity.bytes),
            missing_chunks: None,
            generations: s.generations.iter().map(Into::into).collect(),
        }
    } else {
        let mut infos = if args.snapshots.is_empty() { filter.select(&look.snapshots) } else { Vec::new() };
        for spec in &args.snapshots {
            add_once(&mut infos, whole(look.find(context, spec, &args.select)?)?);
        }
        let snapshots: Vec<Snapshot> = infos.into_iter().map(|info| info.snapshot).collect();
        let s = look.watch.run(|monitor| of_snapshots(&look.reader, &snapshots, processors(), monitor))?;
        JsonStats {
            message_type: "stats",
            snapshots: s.snapshots,
            total: s.logical.into(),
            deduplication_ratio: round(s.deduplication()),
            data: (&s.data).into(),
            tree: (&s.tree).into(),
            stored_twice: None,
            pack_bytes: None,
            index_objects: None,
            index_bytes: None,
            recovery_objects: None,
            recovery_bytes: None,
            missing_chunks: Some(s.missing),
            generations: Vec::new(),
        }
    };
    let damaged = stats.missing_chunks.is_some_and(|n| n > 0);
    match context.out.json() {
        true => context.out.object(&stats)?,
        false => stats_lines(&stats).into_iter().try_for_each(|l| context.out.line(l))?,
    }
    Ok(if damaged { Exit::Incomplete } else { look.exit() })
}

fn stats_lines(s: &JsonStats) -> Vec<String> {
    let part = |p: &JsonPart| {
        format!(
            "{} in {} to {} ({:.2}:1) in {}",
            bytes(p.bytes),
            counted(p.chunks, "chunk", "chunks"),
            bytes(p.stored),
            p.compression_ratio,
            counted(p.packs, "pack", "packs")
        )
    };
    let mut lines = vec![
        format!("snapshots:    {}", count(s.snapshots)),
        format!(
            "to restore:   {} in {}, {} in all",
            bytes(s.total.bytes),
            counted(s.total.files, "file", "files"),
            counted(s.total.entries, "entry", "entries")
        ),
        format!("deduplicated: {} to {} ({:.2}:1)", bytes(s.total.bytes), bytes(s.data.bytes), s.deduplication_ratio),
        format!("compressed:   {}", part(&s.data)),
        format!("metadata:     {}", part(&s.tree)),
    ];
    if let (Some(packs), Some(objects), Some(index)) = (s.pack_bytes, s.index_objects, s.index_bytes) {
        lines.push(format!("packs:        {} with tables and padding", bytes(packs)));
        lines.push(format!("index:        {} in {}", bytes(index), counted(objects, "object", "objects")));
    }
    if let (Some(objects), Some(recovery)) = (s.recovery_objects.filter(|n| *n > 0), s.recovery_bytes) {
        let objects = counted(objects, "recovery object", "recovery objects");
        lines.push(format!("parity:       {} across packs, in {objects}", bytes(recovery)));
    }
    if let Some(twice) = s.stored_twice.filter(|n| *n > 0) {
        lines.push(format!("stored twice: {}", bytes(twice)));
    }
    if let Some(missing) = s.missing_chunks.filter(|n| *n > 0) {
        lines.push(format!("missing:      {}: the repository is damaged", counted(missing, "chunk", "chunks")));
    }
    lines.extend(generation_lines(&s.generations));
    lines
}

/// What each generation of secrets opens, the newest last.
fn generation_lines(generations: &[JsonGeneration]) -> Vec<String> {
    let older = generations.len().saturating_sub(1);
    let line = |(at, of): (usize, &JsonGeneration)| {
        let what = match of.packs + of.index_objects + of.snapshots {
            0 => "nothing of what was backed up".into(),
            _ => format!(
                "{} in {}, {}, {}",
                bytes(of.pack_bytes),
                counted(of.packs, "pack", "packs"),
                counted(of.index_objects, "index object", "index objects"),
                counted(of.snapshots, "snapshot", "snapshots")
            ),
        };
        let which = if at < older { "old" } else { "new" };
        format!("secrets {}:    {which}, open {what}", of.number)
    };
    generations.iter().enumerate().map(line).collect()
}

#[derive(Serialize)]
struct JsonEstimate {
    message_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_id: Option<String>,
    total: JsonSums,
    new: JsonSums,
    changed: JsonSums,
    unmodified: JsonSums,
    removed: JsonSums,
    excluded_files: u64,
    excluded_dirs: u64,
    excluded_bytes: u64,
    entries_unreadable: u64,
    entries_vanished: u64,
}

/// `estimate`.
///
/// # Errors
/// None of the sources can be read, or a repository that is named can't be.
pub fn run_estimate(context: &Context, args: Estimate) -> Result<Exit> {
    let paths = gather::paths(context, args.paths, &[(&args.files_from, Lines::Patterns)])?;
    let own = gather::own_folders(context)?;
    let filter = Arc::new(rules::filter(&args.excludes, context.profile.as_ref(), &own, &paths)?);
    let host = gather::host(context, args.host);
    // Without a repository there is no earlier snapshot, and nothing else to miss.
    let previous = match context.place()? {
        Place::Default(path) if !path.exists() => None,
        _ => {
            let repository = context.open_to_read()?;
            let cache = context.cache(&repository)?;
            let parent = gather::parent(context, &repository, args.parent.as_deref())?;
            let remembered = backup::remembered(&cache, &host, &paths).unwrap_or_default();
            let parents = ParentSnapshots::find(
                &repository,
                &remembered,
                &parent,
                &host,
                &paths,
                &drumlin_repo::collection::Known::default(),
            )?;
            Some((open_reader(&repository, &cache)?, parents))
        }
    };
    let one_file_system = args.excludes.one_file_system || context.profile.as_ref().is_some_and(|p| p.one_file_system);
    let options = estimate::Options { paths, filter, one_file_system, walkers: walkers() };
    let watch = Watch::new(context.out, "estimate");
    let compared = previous.as_ref().map(|(reader, parents)| (reader, parents));
    let report = watch.run(|monitor| estimate(options, compared, monitor))?;
    let parent = previous.as_ref().and_then(|(_, parents)| parents.first());
    match context.out.json() {
        true => context.out.object(&json(&report, parent))?,
        false => lines(&report, parent.is_some()).into_iter().try_for_each(|l| context.out.line(l))?,
    }
    Ok(if report.unreadable > 0 { Exit::Incomplete } else { Exit::Done })
}

fn json(report: &Report, parent: Option<&Snapshot>) -> JsonEstimate {
    JsonEstimate {
        message_type: "estimate",
        parent_id: parent.map(|p| p.id.to_string()),
        total: report.found.into(),
        new: report.new.into(),
        changed: report.changed.into(),
        unmodified: report.unmodified.into(),
        removed: report.removed.into(),
        excluded_files: report.excluded.files,
        excluded_dirs: report.excluded.dirs,
        excluded_bytes: report.excluded.bytes,
        entries_unreadable: report.unreadable,
        entries_vanished: report.vanished,
    }
}

fn lines(report: &Report, compared: bool) -> Vec<String> {
    let mut lines = vec![format!("in all:     {}", in_words(&report.found))];
    if compared {
        for (word, sums) in [
            ("new", &report.new),
            ("changed", &report.changed),
            ("unmodified", &report.unmodified),
            ("removed", &report.removed),
        ] {
            lines.push(format!("{:<12}{}", format!("{word}:"), in_words(sums)));
        }
    }
    let (files, dirs) = (report.excluded.files, report.excluded.dirs);
    if files + dirs > 0 {
        let what = [counted(files, "file", "files"), counted(dirs, "directory", "directories")].join(", ");
        lines.push(format!("excluded:   {what} (what is below the directories is not counted)"));
    }
    if report.unreadable > 0 {
        lines.push(format!("unreadable: {}", counted(report.unreadable, "entry", "entries")));
    }
    lines
}
