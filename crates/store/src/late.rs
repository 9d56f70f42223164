//! Objects that were put more than once, because an answer was lost or somebody on the way had given up: the attempts
//! that seemed to have failed may be carried out later, when the object has long been removed.

use std::collections::HashSet;
use std::sync::Mutex;

use crate::lock::lock;

/// Their names.
#[derive(Debug, Default)]
pub(crate) struct Late(Mutex<HashSet<String>>);

impl Late {
    /// It was sent more than once.
    pub fn note(&self, name: &str) {
        lock(&self.0).insert(name.to_owned());
    }

    pub fn has(&self, name: &str) -> bool {
        lock(&self.0).contains(name)
    }
}
