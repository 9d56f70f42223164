//! What an operation did: in lines for people, in one object for programs.

use crate::exit::Exit;
use crate::render::size::{bytes, count, counted, ratio, took};
use drumlin_engine::backup::Report;
use drumlin_engine::monitor::Counts;
use drumlin_engine::restore;
use drumlin_format::SnapshotId;
use serde::Serialize;

/// What the report of a backup doesn't know.
pub struct Extra {
    /// Nothing was stored.
    pub dry_run: bool,
    /// What the program will exit with.
    pub exit: Exit,
}

/// The summary of a backup in JSON.
#[derive(Serialize)]
pub struct BackupSummary {
    message_type: &'static str,
    dry_run: bool,
    partial: bool,
    exit_code: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_id: Option<String>,
    total_entries_processed: u64,
    total_files_processed: u64,
    total_dirs_processed: u64,
    total_bytes_processed: u64,
    entries_new: u64,
    entries_changed: u64,
    entries_unmodified: u64,
    entries_removed: u64,
    entries_excluded: u64,
    entries_unreadable: u64,
    sources_missing: u64,
    entries_vanished: u64,
    files_changed_while_read: u64,
    bytes_read: u64,
    chunks: u64,
    chunks_new: u64,
    data_added: u64,
    data_added_packed: u64,
    tree_added_packed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    deduplication_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    compression_ratio: Option<f64>,
    total_duration: f64,
}

/// The summary of a backup as an object.
pub fn json(report: &Report, extra: Extra) -> BackupSummary {
    let c = &report.counts;
    let ratio = |from: u64, to: u64| (from > 0 && to > 0).then(|| (from as f64 / to as f64 * 1e4).round() / 1e4);
    BackupSummary {
        message_type: "summary",
        dry_run: extra.dry_run,
        partial: report.stopped,
        exit_code: extra.exit as i32,
        snapshot_id: report.snapshot.as_ref().filter(|_| !extra.dry_run).map(|s| s.id.to_string()),
        parent_id: report.parent.as_ref().map(|s| s.id.to_string()),
        total_entries_processed: c.entries,
        total_files_processed: c.files,
        total_dirs_processed: c.dirs,
        total_bytes_processed: c.bytes,
        entries_new: c.new,
        entries_changed: c.changed,
        entries_unmodified: c.unmodified,
        entries_removed: c.removed,
        entries_excluded: c.excluded,
        entries_unreadable: c.unreadable,
        sources_missing: c.absent,
        entries_vanished: c.vanished,
        files_changed_while_read: c.changed_while_read,
        bytes_read: c.bytes_read,
        chunks: c.chunks,
        chunks_new: c.chunks_new,
        data_added: c.bytes_new,
        data_added_packed: c.bytes_stored,
        tree_added_packed: report.tree_bytes,
        deduplication_ratio: ratio(c.bytes_read, c.bytes_new),
        compression_ratio: ratio(c.bytes_new, c.bytes_stored),
        total_duration: report.millis as f64 / 1e3,
    }
}

/// The summary of a backup for people.
pub fn lines(report: &Report, dry_run: bool) -> Vec<String> {
    let c = &report.counts;
    let mut lines = vec![
        format!(
            "entries:      {} new, {} changed, {} unmodified, {} removed",
            count(c.new),
            count(c.changed),
            count(c.unmodified),
            count(c.removed)
        ),
        format!(
            "contents:     {} in {} and {}",
            bytes(c.bytes),
            counted(c.files, "file", "files"),
            counted(c.dirs, "directory", "directories")
        ),
    ];
    if let Some(left_out) = left_out(c) {
        lines.push(format!("left out:     {left_out}"));
    }
    if c.changed_while_read > 0 {
        lines.push(format!("inconsistent: {} changed while read", counted(c.changed_while_read, "file", "files")));
    }
    let times = |from, to| ratio(from, to).map_or_else(String::new, |r| format!(" ({r})"));
    lines.push(format!(
        "deduplicated: {} read, {} of it new{}",
        bytes(c.bytes_read),
        bytes(c.bytes_new),
        match c.bytes_new {
            0 => String::new(),
            new => times(c.bytes_read, new),
        }
    ));
    lines.push(format!(
        "compressed:   {} to {}{}",
        bytes(c.bytes_new),
        bytes(c.bytes_stored),
        times(c.bytes_new, c.bytes_stored)
    ));
    let verb = if dry_run { "would store" } else { "stored" };
    lines.push(format!(
        "{:<14}{} of contents, {} of metadata, in {}",
        format!("{verb}:"),
        bytes(c.bytes_stored),
        bytes(report.tree_bytes),
        took(report.millis)
    ));
    lines
}

/// The summary of a restore in JSON.
#[derive(Serialize)]
pub struct RestoreSummary {
    message_type: &'static str,
    snapshot_id: String,
    snapshot_partial: bool,
    dry_run: bool,
    partial: bool,
    exit_code: i32,
    total_entries_processed: u64,
    total_files_processed: u64,
    total_dirs_processed: u64,
    total_bytes_processed: u64,
    entries_restored: u64,
    entries_kept: u64,
    entries_deleted: u64,
    entries_unwritable: u64,
    entries_damaged: u64,
    attributes_not_set: u64,
    files_verified: u64,
    bytes_written: u64,
    total_duration: f64,
}

/// Which snapshot was restored.
#[derive(Clone, Copy)]
pub struct Restored {
    /// Its id.
    pub id: SnapshotId,
    /// Whether its backup was interrupted, so that what it did not reach is missing.
    pub partial: bool,
}

/// The summary of a restore as an object.
pub fn restore_json(report: &restore::Report, restored: Restored, dry_run: bool, exit: Exit) -> RestoreSummary {
    let c = &report.counts;
    RestoreSummary {
        message_type: "summary",
        snapshot_id: restored.id.to_string(),
        snapshot_partial: restored.partial,
        dry_run,
        partial: report.stopped,
        exit_code: exit as i32,
        total_entries_processed: c.entries,
        total_files_processed: c.files,
        total_dirs_processed: c.dirs,
        total_bytes_processed: c.bytes,
        entries_restored: c.restored,
        entries_kept: c.kept,
        entries_deleted: c.deleted,
        entries_unwritable: c.unwritable,
        entries_damaged: c.damaged,
        attributes_not_set: c.attributes,
        files_verified: report.verified,
        bytes_written: c.bytes_written,
        total_duration: report.millis as f64 / 1e3,
    }
}

/// The summary of a restore for people; `keeps`: what was there may have been kept though it differs.
pub fn restore_lines(report: &restore::Report, dry_run: bool, verify: bool, keeps: bool) -> Vec<String> {
    let c = &report.counts;
    let restored = if dry_run { "would be restored" } else { "restored" };
    let kept = if keeps { "kept as they were" } else { "right already" };
    let mut line = format!("entries:  {} {restored}, {} {kept}", count(c.restored), count(c.kept));
    if c.deleted > 0 {
        let deleted = if dry_run { "would be deleted" } else { "deleted" };
        line.push_str(&format!(", {} {deleted}", count(c.deleted)));
    }
    let mut lines = vec![line];
    let troubles = [
        (c.unwritable, "could not be written"),
        (c.damaged, "without their right contents"),
        (c.attributes, "without some attribute"),
    ];
    let told: Vec<_> =
        troubles.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{} {what}", count(*n))).collect();
    if !told.is_empty() {
        lines.push(format!("trouble:  {}", told.join(", ")));
    }
    if verify && !dry_run {
        lines.push(format!("verified: {} read back and right", counted(report.verified, "file", "files")));
    }
    let written = if dry_run { String::new() } else { format!(", {} written", bytes(c.bytes_written)) };
    lines.push(format!(
        "contents: {} in {}{written}, in {}",
        bytes(c.bytes),
        counted(c.files, "file", "files"),
        took(report.millis)
    ));
    lines
}

fn left_out(c: &Counts) -> Option<String> {
    let parts = [(c.excluded, "excluded"), (c.unreadable, "unreadable"), (c.vanished, "vanished")];
    let told: Vec<_> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{} {what}", count(*n))).collect();
    (!told.is_empty()).then(|| told.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let counts = Counts {
            entries: 12,
            files: 10,
            dirs: 2,
            bytes: 4096,
            new: 3,
            bytes_read: 2048,
            bytes_new: 1024,
            bytes_stored: 256,
            unreadable: 1,
            changed_while_read: 2,
            ..Counts::default()
        };
        Report {
            snapshot: None,
            indexes: Vec::new(),
            parent: None,
            counts,
            tree_bytes: 100,
            millis: 310,
            stopped: false,
        }
    }

    #[test]
    fn each_saving_is_told_apart() {
        let text = lines(&report(), false).join("\n");
        assert!(text.contains("2.00 KiB read, 1.00 KiB of it new (2.00:1)"), "{text}");
        assert!(text.contains("1.00 KiB to 256 B (4.00:1)"), "{text}");
        assert!(text.contains("1 unreadable") && text.contains("2 files changed while read"), "{text}");
        assert!(lines(&report(), true).join("\n").contains("would store"));
        let json = serde_json::to_value(json(&report(), Extra { dry_run: false, exit: Exit::Incomplete })).unwrap();
        assert_eq!((json["deduplication_ratio"].as_f64(), json["compression_ratio"].as_f64()), (Some(2.0), Some(4.0)));
        assert_eq!(
            (json["entries_unreadable"].as_u64(), json["files_changed_while_read"].as_u64()),
            (Some(1), Some(2))
        );
    }

    #[test]
    fn nothing_new_divides_by_nothing() {
        let mut report = report();
        (report.counts.bytes_new, report.counts.bytes_stored, report.counts.bytes_read) = (0, 0, 0);
        assert!(lines(&report, false).join("\n").contains("0 B to 0 B"));
        let json = serde_json::to_value(json(&report, Extra { dry_run: false, exit: Exit::Done })).unwrap();
        assert!(json.get("deduplication_ratio").is_none());
    }
}
