//! What the server keeps.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Habits, Instead};

pub(super) struct Object {
    pub bytes: Arc<[u8]>,
    pub tag: String,
    pub class: String,
    /// Asked back from cold storage: told so many times more that it is under way.
    pub thaws_in: Option<u32>,
    /// The mode of its object lock, and when it ends.
    pub lock: Option<(String, String)>,
}

/// A version of an object, or the mark of its removal.
pub(super) struct Kept {
    pub id: String,
    /// In seconds since 1970.
    pub since: i64,
    pub object: Option<Arc<[u8]>>,
}

/// An upload in parts.
pub(super) struct Upload {
    pub key: String,
    pub class: String,
    pub lock: Option<(String, String)>,
    /// When it began, in seconds since 1970.
    pub since: i64,
    pub parts: BTreeMap<u32, Object>,
}

pub(super) struct State {
    pub habits: Habits,
    pub objects: BTreeMap<String, Object>,
    /// By key, the newest first.
    pub versions: BTreeMap<String, Vec<Kept>>,
    pub uploads: BTreeMap<String, Upload>,
    pub asked: Vec<(&'static str, String)>,
    /// Action, how many are still to be answered truly, how many not, and how then.
    pub instead: Vec<(&'static str, u32, u32, Instead)>,
    /// So many requests are still answered.
    pub stop_after: Option<u32>,
    pub does_last: bool,
    pub stopped: bool,
    count: u64,
}

impl State {
    pub(super) fn new(habits: Habits) -> Self {
        State {
            habits,
            objects: BTreeMap::new(),
            versions: BTreeMap::new(),
            uploads: BTreeMap::new(),
            asked: Vec::new(),
            instead: Vec::new(),
            stop_after: None,
            does_last: false,
            stopped: false,
            count: 0,
        }
    }

    /// A number that nothing else has.
    pub(super) fn number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    pub(super) fn made(&mut self, bytes: Vec<u8>, class: &str) -> Object {
        let tag = format!("\"{:032x}\"", self.number());
        Object { bytes: bytes.into(), tag, class: class.to_owned(), thaws_in: None, lock: None }
    }

    pub(super) fn set(&mut self, key: &str, bytes: Vec<u8>, class: &str) -> String {
        let object = self.made(bytes, class);
        let tag = object.tag.clone();
        self.keep(key, Some(object.bytes.clone()));
        self.objects.insert(key.to_owned(), object);
        tag
    }

    /// Remove an object.
    pub(super) fn remove(&mut self, key: &str) {
        self.objects.remove(key);
        self.keep(key, None);
    }

    fn keep(&mut self, key: &str, object: Option<Arc<[u8]>>) {
        if self.habits.versions {
            let (id, since) = (format!("v&{}", self.number()), super::now() + self.habits.clock_ahead);
            self.versions.entry(key.to_owned()).or_default().insert(0, Kept { id, since, object });
        }
    }

    /// Bytes that are kept.
    pub(super) fn bytes(&self) -> u64 {
        let parts = self.uploads.values().flat_map(|upload| upload.parts.values());
        self.objects.values().chain(parts).map(|object| object.bytes.len() as u64).sum()
    }

    /// How a request is to be answered otherwise.
    pub(super) fn otherwise(&mut self, action: &str) -> Option<Instead> {
        for (of, after, times, instead) in &mut self.instead {
            if *of != action {
                continue;
            }
            if *after > 0 {
                *after -= 1;
            } else if *times > 0 {
                *times -= 1;
                return Some(*instead);
            }
        }
        None
    }
}
