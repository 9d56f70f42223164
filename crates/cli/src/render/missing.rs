//! What a client has seen in a repository and is gone by nobody's word: in words, and as an object.

use crate::render::time::{local, rfc3339};
use drumlin_repo::history::Missing;
use serde::Serialize;
use std::fmt::Display;

/// What to do about it.
pub const HINT: &str = "see 'When the storage goes back' in docs/guides/repair.md; if an older copy was put back on purpose, \
                        'drumlin check --accept-history' accepts the repository as it is";

/// What is missing, and since when.
pub fn words(missing: &Missing) -> String {
    let since = match missing.last {
        0 => String::new(),
        last => format!(". Nothing was missing when it was looked at on {}", local((last, 0))),
    };
    format!("the storage has lost or withholds what this client has seen in {}: {missing}{since}", missing.place)
}

/// What is missing, for programs.
#[derive(Serialize)]
pub struct JsonMissing {
    message_type: &'static str,
    repository: String,
    snapshots: Vec<String>,
    index_objects: Vec<String>,
    history_entries: Vec<String>,
    keys: Vec<JsonKey>,
    config: bool,
    generations: Vec<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_seen: Option<String>,
    message: String,
    hint: &'static str,
}

#[derive(Serialize)]
struct JsonKey {
    id: String,
    message: &'static str,
}

impl From<&Missing> for JsonMissing {
    fn from(missing: &Missing) -> Self {
        let key = |id: &dyn Display, message| JsonKey { id: id.to_string(), message };
        JsonMissing {
            message_type: "missing",
            repository: missing.place.clone(),
            snapshots: names(&missing.snapshots),
            index_objects: names(&missing.indexes),
            history_entries: names(&missing.entries),
            keys: missing.keys.iter().map(|(id, trouble)| key(id, trouble.words())).collect(),
            config: missing.config,
            generations: missing.generations.clone(),
            last_seen: (missing.last != 0).then(|| rfc3339((missing.last, 0))),
            message: words(missing),
            hint: HINT,
        }
    }
}

fn names(ids: &[impl Display]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}
