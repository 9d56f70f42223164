//! What was seen before and is gone by nobody's word.

use drumlin_format::{HistoryId, IndexId, KeyId, SnapshotId};
use std::fmt;

/// What is wrong with a key that was seen before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyTrouble {
    /// It isn't there, or is damaged.
    Gone,
    /// It was revoked, and what is there is from before.
    Unrevoked,
    /// Its role or its signing key is another.
    Changed,
}

impl KeyTrouble {
    /// In words that follow the key.
    pub fn words(self) -> &'static str {
        match self {
            KeyTrouble::Gone => "is not there any more, or damaged",
            KeyTrouble::Unrevoked => "was revoked, and is there as it was before that",
            KeyTrouble::Changed => "has another role or signing key than it had",
        }
    }
}

/// What a client has seen in a repository, that isn't there any more, though no entry of the history that counts says
/// so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// The storage that it is missing from, as [`drumlin_store::Store::location`] names it.
    pub place: String,
    /// When all of it was there, as this client saw it, in seconds since 1970; 0 if that is not known.
    pub last: i64,
    /// Snapshots.
    pub snapshots: Vec<SnapshotId>,
    /// Index objects.
    pub indexes: Vec<IndexId>,
    /// Entries of the history.
    pub entries: Vec<HistoryId>,
    /// Keys.
    pub keys: Vec<(KeyId, KeyTrouble)>,
    /// The config's public keys or sizes are others.
    pub config: bool,
    /// Generations of its secrets, by their numbers: gone, or others.
    pub generations: Vec<u32>,
}

/// So many ids are named in words.
const NAMED_MAX: usize = 3;

impl Missing {
    /// Whether everything is accounted for.
    pub fn is_empty(&self) -> bool {
        self.indexes.is_empty() && self.is_but_indexes()
    }

    /// Whether nothing but index objects is missing, which can be made anew from the packs.
    pub fn is_but_indexes(&self) -> bool {
        let lists = self.snapshots.is_empty() && self.entries.is_empty();
        lists && self.keys.is_empty() && !self.config && self.generations.is_empty()
    }
}

/// What is missing, in words.
impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(told(&self.snapshots, "snapshot", "snapshots"));
        parts.extend(told(&self.indexes, "index object", "index objects"));
        parts.extend(told(&self.entries, "entry of the history", "entries of the history"));
        parts.extend(self.keys.iter().map(|(id, trouble)| format!("key {id}, which {}", trouble.words())));
        if self.config {
            parts.push("the config, which is another one".into());
        }
        let generation = |number: &u32| format!("generation {number} of its secrets");
        parts.extend(self.generations.iter().map(generation));
        f.write_str(&parts.join("; "))
    }
}

fn told(ids: &[impl fmt::Display], one: &str, many: &str) -> Option<String> {
    let names: Vec<String> = ids.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    let more = if ids.len() > NAMED_MAX { ", …" } else { "" };
    (!ids.is_empty())
        .then(|| format!("{} {} ({}{more})", ids.len(), if ids.len() == 1 { one } else { many }, names.join(", ")))
}
