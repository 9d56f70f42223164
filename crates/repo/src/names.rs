//! The names of objects in the store.

use drumlin_format::pack::PackKind;
use drumlin_format::{HistoryId, IndexId, KeyId, LossId, PackId, PlanId, SessionId, SnapshotId};

/// The config.
pub const CONFIG: &str = "config";
/// The folder of key objects.
pub const KEYS: &str = "keys";
/// The folder of data packs.
pub const DATA: &str = "data";
/// The folder of tree packs.
pub const TREE: &str = "tree";
/// The folder of index objects.
pub const INDEX: &str = "index";
/// The folder of snapshots.
pub const SNAPSHOTS: &str = "snapshots";
/// The folder of snapshots that were forgotten.
pub const FORGOTTEN: &str = "forgotten";
/// The folder of sessions.
pub const SESSIONS: &str = "sessions";
/// The folder of decisions.
pub const DECISIONS: &str = "decisions";
/// The folder of the history: what was removed.
pub const HISTORY: &str = "history";
/// The folder of losses: what could not be healed.
pub const LOSSES: &str = "losses";
/// The folder of collection plans.
pub const PLANS: &str = "plans";

/// A key object.
pub fn key(id: KeyId) -> String {
    format!("{KEYS}/{id}")
}

/// A pack; packs are spread over 256 folders.
pub fn pack(kind: PackKind, id: PackId) -> String {
    format!("{}/{:02x}/{id}", folder(kind), id.0[0])
}

/// The folder of packs of a kind.
pub fn folder(kind: PackKind) -> &'static str {
    match kind {
        PackKind::Data => DATA,
        PackKind::Tree => TREE,
    }
}

/// An index object.
pub fn index(id: IndexId) -> String {
    format!("{INDEX}/{id}")
}

/// A snapshot.
pub fn snapshot(id: SnapshotId) -> String {
    format!("{SNAPSHOTS}/{id}")
}

/// A snapshot that was forgotten: the same object under another name.
pub fn forgotten(id: SnapshotId) -> String {
    format!("{FORGOTTEN}/{id}")
}

/// A session.
pub fn session(id: SessionId) -> String {
    format!("{SESSIONS}/{id}")
}

/// What became of a session.
pub fn decision(id: SessionId) -> String {
    format!("{DECISIONS}/{id}")
}

/// A collection plan.
pub fn plan(id: PlanId) -> String {
    format!("{PLANS}/{id}")
}

/// What could not be healed.
pub fn loss(id: LossId) -> String {
    format!("{LOSSES}/{id}")
}

/// An entry of the history.
pub fn history(id: HistoryId) -> String {
    format!("{HISTORY}/{id}")
}

/// The last segment of a listed name, where ids stand.
pub fn last(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}
