//! What a check found: in lines for people, in objects for programs.

use crate::exit::Exit;
use crate::render::path::{JsonPath, shown};
use crate::render::size::{bytes, count, counted, took};
use drumlin_engine::check::{Finding, Limit, ObjectKind, Parity, ReadReport, Report, Touched};
use drumlin_format::key::Role;
use serde::Serialize;

/// So many snapshots are named by a finding in words.
const SNAPSHOTS_NAMED: usize = 10;

/// A damaged object in JSON.
#[derive(Serialize)]
pub struct JsonDamage<'a> {
    message_type: &'static str,
    object: &'a str,
    kind: &'static str,
    causes: &'a [String],
    causes_total: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    chunks: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chunks_elsewhere: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    healed_by_parity: Option<bool>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    healed_by_band: bool,
    snapshots: Vec<JsonSnapshot>,
    touched: Vec<JsonTouched<'a>>,
    touches_more: bool,
}

#[derive(Serialize)]
struct JsonSnapshot {
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    entries: Option<u64>,
}

#[derive(Serialize)]
struct JsonTouched<'a> {
    #[serde(flatten)]
    path: JsonPath<'a>,
    entries: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<JsonPath<'a>>,
}

impl<'a> From<&'a Finding> for JsonDamage<'a> {
    fn from(f: &'a Finding) -> Self {
        let of_pack = |n| is_pack(f.kind).then_some(n);
        JsonDamage {
            message_type: "damage",
            object: &f.object,
            kind: match f.kind {
                ObjectKind::TreePack => "tree_pack",
                ObjectKind::DataPack => "data_pack",
                ObjectKind::Recovery => "recovery_object",
                other => other.name(),
            },
            causes: &f.causes,
            causes_total: f.causes_total,
            chunks: of_pack(f.chunks),
            chunks_elsewhere: of_pack(f.chunks_elsewhere),
            healed_by_parity: f.healed,
            healed_by_band: f.by_band,
            snapshots: f.snapshots.iter().map(|s| JsonSnapshot { id: s.id.to_string(), entries: s.entries }).collect(),
            touched: f.touched.iter().map(JsonTouched::from).collect(),
            touches_more: f.touches_more,
        }
    }
}

impl<'a> From<&'a Touched> for JsonTouched<'a> {
    fn from(t: &'a Touched) -> Self {
        let before = t.before.as_deref().map(JsonPath::from);
        JsonTouched { path: t.path[..].into(), entries: t.entries, before }
    }
}

fn is_pack(kind: ObjectKind) -> bool {
    matches!(kind, ObjectKind::DataPack | ObjectKind::TreePack)
}

/// The end of a check in JSON.
#[derive(Serialize)]
pub struct JsonCheck {
    message_type: &'static str,
    sound: bool,
    damaged_objects: u64,
    partial: bool,
    exit_code: i32,
    snapshots: u64,
    entries: u64,
    nodes: u64,
    chunks: u64,
    index_objects: u64,
    packs: u64,
    pack_bytes: u64,
    leftover_packs: u64,
    leftover_bytes: u64,
    copies_lacking: u64,
    open_sessions: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    parity: Option<JsonParity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    read: Option<JsonRead>,
    not_checked: Vec<&'static str>,
    total_duration: f64,
}

#[derive(Serialize)]
struct JsonParity {
    bands: u64,
    recovery_objects: u64,
    recovery_bytes: u64,
    covered_packs: u64,
    covered_bytes: u64,
    uncovered_packs: u64,
    uncovered_bytes: u64,
    unfinished_objects: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    objects_read: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_read: Option<u64>,
}

impl From<Parity> for JsonParity {
    fn from(p: Parity) -> Self {
        JsonParity {
            bands: p.bands,
            recovery_objects: p.objects.objects,
            recovery_bytes: p.objects.bytes,
            covered_packs: p.covered.packs,
            covered_bytes: p.covered.bytes,
            uncovered_packs: p.uncovered.packs,
            uncovered_bytes: p.uncovered.bytes,
            unfinished_objects: p.unfinished.objects,
            objects_read: p.read.map(|read| read.objects),
            bytes_read: p.read.map(|read| read.bytes),
        }
    }
}

#[derive(Serialize)]
struct JsonRead {
    packs: u64,
    bytes: u64,
    packs_before: u64,
    bytes_before: u64,
    packs_total: u64,
    bytes_total: u64,
}

impl From<ReadReport> for JsonRead {
    fn from(r: ReadReport) -> Self {
        let ReadReport { packs, bytes, packs_before, bytes_before, packs_total, bytes_total } = r;
        JsonRead { packs, bytes, packs_before, bytes_before, packs_total, bytes_total }
    }
}

impl JsonCheck {
    /// Of this report, with which the program exits so.
    pub fn new(report: &Report, exit: Exit) -> Self {
        let limit = |l: &Limit| match l {
            Limit::Trees => "trees",
            Limit::TreeBlocks => "tree_blocks",
            Limit::DataBlocks => "data_blocks",
        };
        JsonCheck {
            message_type: "check",
            sound: report.findings.is_empty(),
            damaged_objects: report.findings.len() as u64,
            partial: report.stopped,
            exit_code: exit as i32,
            snapshots: report.snapshots,
            entries: report.entries,
            nodes: report.nodes,
            chunks: report.chunks,
            index_objects: report.index_objects,
            packs: report.packs,
            pack_bytes: report.pack_bytes,
            leftover_packs: report.leftover.packs,
            leftover_bytes: report.leftover.bytes,
            copies_lacking: report.lacking_copies,
            open_sessions: report.open_sessions,
            parity: report.parity.map(JsonParity::from),
            read: report.read.map(JsonRead::from),
            not_checked: report.limits.iter().map(limit).collect(),
            total_duration: report.millis as f64 / 1e3,
        }
    }
}

/// A damaged object in words.
pub fn damage(f: &Finding) -> Vec<String> {
    let mut lines = vec![format!("damaged: {} '{}'", f.kind.name(), f.object)];
    lines.extend(f.causes.iter().map(|cause| format!("  {cause}")));
    let more = f.causes_total - f.causes.len() as u64;
    if more > 0 {
        lines.push(format!("  and {} of that kind", counted(more, "more", "more")));
    }
    if f.chunks > 0 {
        let elsewhere = match f.chunks_elsewhere {
            0 => String::new(),
            n if n == f.chunks => "; all of them are whole in other packs, so nothing is lost".into(),
            n => format!("; {} whole in other packs, and not lost", counted(n, "of them is", "of them are")),
        };
        lines.push(format!("  {} can't be read{elsewhere}", counted(f.chunks, "chunk in it", "chunks in it")));
    }
    if f.kind == ObjectKind::Recovery {
        lines.push("  nothing that was backed up is affected; 'drumlin repair --read-data' makes its band anew".into());
    }
    if f.made_so {
        lines.push("  it was written wrong in the first place; no repair can mend it".into());
    }
    lines.extend(f.healed.map(|healed| {
        match healed {
            true if f.by_band => {
                "parity across packs makes up for it, so nothing is lost; 'drumlin repair --read-data' rewrites \
                              what was in it"
                    .into()
            }
            true => "  its parity makes up for it, so nothing is lost; 'drumlin repair --read-data' rewrites it".into(),
            false => "  its parity doesn't heal all of it".into(),
        }
    }));
    for s in f.snapshots.iter().take(SNAPSHOTS_NAMED) {
        let what = match s.entries {
            Some(n) => format!("{} of", counted(n, "entry", "entries")),
            None => "all of".into(),
        };
        lines.push(format!("  touches {what} snapshot {}", &s.id.to_string()[..8]));
    }
    let more = f.snapshots.len().saturating_sub(SNAPSHOTS_NAMED) as u64;
    if more > 0 {
        lines.push(format!("  and {}", counted(more, "more snapshot", "more snapshots")));
    }
    lines.extend(f.touched.iter().map(|t| format!("    {}", stretch(t))));
    if f.touches_more {
        lines.push("    and more".into());
    }
    lines
}

fn stretch(t: &Touched) -> String {
    let path = shown(&t.path);
    match (&t.before, t.entries) {
        (None, 1) => path.into_owned(),
        (None, n) => format!("{path} and all that follows: {}", counted(n, "entry", "entries")),
        (Some(before), n) => {
            format!("{path} and what follows, up to {}: {}", shown(before), counted(n, "entry", "entries"))
        }
    }
}

/// What was checked, in words.
pub fn lines(report: &Report, role: Role) -> Vec<String> {
    let packs = |packs: u64, of: u64| format!("{} of {}", counted(packs, "pack", "packs"), bytes(of));
    let mut lines = vec![format!(
        "checked:   {} with {}; {} in {}; in {}",
        counted(report.snapshots, "snapshot", "snapshots"),
        counted(report.entries, "different entry", "different entries"),
        packs(report.packs, report.pack_bytes),
        counted(report.index_objects, "index object", "index objects"),
        took(report.millis)
    )];
    if report.read.is_none() && report.packs > 0 && !report.limits.contains(&Limit::DataBlocks) {
        lines.push("read:      no contents of files: --read-data reads them, --read-data=10% a tenth of them".into());
    }
    if let Some(read) = &report.read {
        lines.push(format!(
            "read:      {}, of {}",
            packs(read.packs, read.bytes),
            packs(read.packs_total, read.bytes_total)
        ));
        if read.packs_before > 0 {
            let before = packs(read.packs_before, read.bytes_before);
            lines.push(format!("           {before} more were read before, by a stopped run that this one continued"));
        }
    }
    if let Some(parity) = &report.parity {
        let all = parity.covered.packs + parity.uncovered.packs;
        let recovery = counted(parity.objects.objects, "recovery object", "recovery objects");
        let what = format!("{} of {}", count(parity.covered.packs), counted(all, "pack", "packs"));
        let others = if parity.uncovered.packs > 0 { "; 'drumlin parity' covers the others" } else { "" };
        let by = format!("{} in {recovery}", bytes(parity.objects.bytes));
        lines.push(format!("parity:    {what} can be made again, by {by}{others}"));
        if let Some(read) = parity.read {
            lines.push(format!(
                "           {} of {} read",
                counted(read.objects, "object", "objects"),
                bytes(read.bytes)
            ));
        }
        if parity.unfinished.objects > 0 {
            let unfinished = counted(parity.unfinished.objects, "recovery object is", "recovery objects are");
            let whose = "of a run at work, or of an interrupted one; 'drumlin parity' removes what is left";
            lines.push(format!("           {unfinished} {whose}"));
        }
    }
    if report.leftover.packs > 0 {
        let leftover = packs(report.leftover.packs, report.leftover.bytes);
        let verb = if report.leftover.packs == 1 { "is" } else { "are" };
        let index_is_damaged = report.findings.iter().any(|f| f.kind == ObjectKind::Index);
        let whose = match (index_is_damaged, report.open_sessions) {
            (true, _) => "perhaps the damaged or missing index objects named them, and they are needed",
            (false, 0) => "left by a repair or an interrupted run; prune removes what is left",
            (false, _) => "of a backup at work, or left by a repair or an interrupted run; prune removes what is left",
        };
        lines.push(format!("left over: {leftover} {verb} in no index object that can be read: {whose}"));
    }
    if report.lacking_copies > 0 {
        let objects = counted(report.lacking_copies, "object has", "objects have");
        lines.push(format!("no copy:   {objects} none (config, keys); 'drumlin repair' makes one"));
    }
    for limit in &report.limits {
        let what = match limit {
            Limit::Trees => "snapshots and what they refer to",
            Limit::TreeBlocks => "the contents of metadata packs",
            Limit::DataBlocks => "the contents of data packs",
        };
        lines.push(format!("unchecked: {what}, which a {} key can't read", role.name()));
    }
    lines.push(match (report.findings.len(), report.stopped) {
        (0, false) => "no damage was found".into(),
        (0, true) => "no damage was found until it was stopped".into(),
        (_, true) => "the check was stopped before it looked for what the damage affects".into(),
        (_, false) => return lines,
    });
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_engine::check::TouchedSnapshot;
    use drumlin_format::SnapshotId;

    fn finding() -> Finding {
        Finding {
            object: "data/1f/x".into(),
            kind: ObjectKind::DataPack,
            causes: vec!["block 3: it can't be decompressed".into()],
            causes_total: 3,
            chunks: 7,
            chunks_elsewhere: 2,
            healed: Some(false),
            by_band: false,
            made_so: false,
            snapshots: (0..12).map(|n| TouchedSnapshot { id: SnapshotId([n; 16]), entries: Some(4) }).collect(),
            touched: vec![
                Touched { path: b"/a\n".to_vec(), entries: 1, before: None },
                Touched { path: b"/b".to_vec(), entries: 1200, before: Some(b"/c\xff".to_vec()) },
                Touched { path: b"/d".to_vec(), entries: 2, before: None },
            ],
            touches_more: true,
        }
    }

    #[test]
    fn a_finding_in_words_and_in_json() {
        let text = damage(&finding()).join("\n");
        for part in [
            "damaged: data pack 'data/1f/x'\n  block 3: it can't be decompressed\n  and 2 more of that kind\n",
            "  7 chunks in it can't be read; 2 of them are whole in other packs, and not lost\n  its parity doesn't",
            "  touches 4 entries of snapshot 00000000",
            "  and 2 more snapshots",
            "    /a\\n\n    /b and what follows, up to /c\\xff: 1,200 entries\n    /d and all that follows: 2 entries",
        ] {
            assert!(text.contains(part), "{part}\n--\n{text}");
        }
        let json = serde_json::to_value(JsonDamage::from(&finding())).unwrap();
        assert_eq!((&json["kind"], &json["chunks"]), (&"data_pack".into(), &7.into()));
        assert_eq!(json["touched"][1]["before"]["path_b64"], "L2P/");
        assert!(json["touched"][0].get("before").is_none());
    }

    #[test]
    fn packs_that_a_damaged_index_may_have_named_are_not_called_rubbish() {
        let leftover = drumlin_engine::check::Leftover { packs: 2, bytes: 10 };
        let sound = Report { leftover, ..Report::default() };
        assert!(
            lines(&sound, Role::Owner)
                .join("\n")
                .contains("2 packs of 10 B are in no index object that can be read: left")
        );
        let index = Finding { kind: ObjectKind::Index, ..finding() };
        let damaged = Report { findings: vec![index], ..sound };
        let text = lines(&damaged, Role::Owner).join("\n");
        assert!(text.contains("needed") && !text.contains("prune"), "{text}");
    }

    #[test]
    fn whoever_may_not_see_all_is_told() {
        let report = Report { limits: vec![Limit::Trees, Limit::DataBlocks], ..Report::default() };
        let text = lines(&report, Role::Writer).join("\n");
        assert!(text.contains("snapshots and what they refer to, which a writer key can't read"), "{text}");
        assert!(text.ends_with("no damage was found"), "{text}");
    }
}
