//! The names of objects in the store.

use drumlin_format::pack::PackKind;
use drumlin_format::{HistoryId, IndexId, KeyId, LossId, PackId, PlanId, RecoveryId, SessionId, SnapshotId};

/// The config.
pub const CONFIG: &str = "config";
/// A copy of the config, the same bytes: nothing could be opened without either.
pub const CONFIG_COPY: &str = "config.copy";
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

/// The folder of generations: secrets for what came after them.
pub const GENERATIONS: &str = "generations";
/// The folder of recovery objects: parity across packs.
pub const PARITY: &str = "parity";

/// What a repository can't do without, and what is removed by nobody but a prune: the rest lasts as long as a run, or
/// until the next one.
pub const LASTING: [&str; 10] = [CONFIG, CONFIG_COPY, KEYS, GENERATIONS, SNAPSHOTS, HISTORY, INDEX, TREE, DATA, PARITY];

/// A key object.
pub fn key(id: KeyId) -> String {
    format!("{KEYS}/{id}")
}

/// The key of this name of an object, or of its copy.
pub fn key_id(name: &str) -> Option<KeyId> {
    KeyId::parse(last(name.strip_suffix(COPY).unwrap_or(name)))
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

/// A generation, by its number.
pub fn generation(number: u32) -> String {
    format!("{GENERATIONS}/{number:032x}")
}

/// A copy of a generation, the same bytes: much would be lost with the only one.
pub fn generation_copy(number: u32) -> String {
    copy_of(&generation(number))
}

/// The copy of an object of which there are two, the same bytes.
pub fn copy_of(name: &str) -> String {
    format!("{name}{COPY}")
}

const COPY: &str = ".copy";

/// The number of the generation of this name, or of its copy; `None` if it is no such name.
pub fn generation_number(name: &str) -> Option<u32> {
    let name = name.strip_suffix(COPY).unwrap_or(name);
    let number = u32::from_str_radix(last(name).get(24..)?, 16).ok()?;
    (number > 0 && name.ends_with(&generation(number))).then_some(number)
}

/// A recovery object.
pub fn recovery(id: RecoveryId) -> String {
    format!("{PARITY}/{id}")
}

/// The session that a listed decision is about, by whichever protocol.
pub fn decided_on(name: &str) -> Option<SessionId> {
    SessionId::parse(last(name).get(..32)?)
}

/// The last segment of a listed name, where ids stand.
pub fn last(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}
