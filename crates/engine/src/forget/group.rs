//! Groups: the rules count within each of them, so that one machine's snapshots don't crowd out another's.

use super::policy::Candidate;
use crate::legible::legible;
use std::fmt;
use std::str::FromStr;

/// What snapshots of one group have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupBy {
    /// The host.
    pub host: bool,
    /// The set of sources.
    pub paths: bool,
    /// The set of tags.
    pub tags: bool,
}

impl Default for GroupBy {
    fn default() -> Self {
        GroupBy { host: true, paths: true, tags: false }
    }
}

impl FromStr for GroupBy {
    type Err = String;

    /// `host`, `paths`, `tags`, joined by commas; all snapshots are one group if the text is empty.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut by = GroupBy { host: false, paths: false, tags: false };
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word {
                "host" | "hosts" => by.host = true,
                "path" | "paths" => by.paths = true,
                "tag" | "tags" => by.tags = true,
                _ => return Err(format!("'{word}' is none of 'host', 'paths' and 'tags'")),
            }
        }
        Ok(by)
    }
}

/// What the snapshots of a group have in common; `None` of what they were not grouped by.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupKey {
    /// The host.
    pub host: Option<String>,
    /// The sources, each once, in order.
    pub paths: Option<Vec<Vec<u8>>>,
    /// The tags, each once, in order.
    pub tags: Option<Vec<String>>,
}

impl GroupKey {
    pub(super) fn of(candidate: &Candidate, by: GroupBy) -> Self {
        GroupKey {
            host: by.host.then(|| candidate.host.clone()),
            paths: by.paths.then(|| set(&candidate.paths)),
            tags: by.tags.then(|| set(&candidate.tags)),
        }
    }
}

impl fmt::Display for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some(host) = &self.host {
            parts.push(format!("host {}", legible(host.as_bytes())));
        }
        if let Some(paths) = &self.paths {
            let paths: Vec<_> = paths.iter().map(legible).collect();
            parts.push(format!("paths {}", paths.join(" ")));
        }
        match &self.tags {
            Some(tags) if tags.is_empty() => parts.push("no tags".into()),
            Some(tags) => parts.push(format!("tags {}", legible(tags.join(",").as_bytes()))),
            None => {}
        }
        if parts.is_empty() { f.write_str("all groups") } else { f.write_str(&parts.join(", ")) }
    }
}

fn set<T: Clone + Ord>(all: &[T]) -> Vec<T> {
    let mut all = all.to_vec();
    all.sort();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_users() {
        assert_eq!("host,paths".parse(), Ok(GroupBy::default()));
        assert_eq!(" tags , host".parse(), Ok(GroupBy { host: true, paths: false, tags: true }));
        assert_eq!("".parse(), Ok(GroupBy { host: false, paths: false, tags: false }));
        let key = GroupKey {
            host: Some("a\x1b[2J".into()),
            paths: Some(vec![b"/\xc3\xa4".to_vec()]),
            tags: Some(Vec::new()),
        };
        assert_eq!(key.to_string(), "host a\\u{1b}[2J, paths /ä, no tags");
        assert_eq!(GroupKey::default().to_string(), "all groups");
        assert!("hast".parse::<GroupBy>().unwrap_err().contains("'hast'"));
    }
}
