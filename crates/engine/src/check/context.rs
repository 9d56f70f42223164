//! What all parts of a check have at hand, and how they read small objects: one that is gone may have been removed
//! rightly, one that can't be read is told, and only what concerns the storage as a whole ends the check.

use super::finding::{Findings, ObjectKind};
use crate::monitor::Monitor;
use crate::{Error, Result};
use drumlin_repo::{Repository, names};

/// At hand everywhere.
pub(super) struct Context<'a> {
    pub repository: &'a Repository,
    pub findings: &'a Findings,
    pub monitor: &'a dyn Monitor,
    pub workers: usize,
}

/// What came of reading an object.
pub(super) enum Read {
    /// Its bytes.
    Whole(Vec<u8>),
    /// It isn't there.
    Gone,
    /// The storage doesn't give it out, for this reason.
    Unreadable(String),
}

impl Context<'_> {
    /// Fails if the user wants an end.
    pub fn go_on(&self) -> Result<()> {
        if self.monitor.stop() { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// What is in a folder, as far as `parse` makes something of the last part of its name, and how long it is.
    pub fn list<T>(&self, folder: &str, mut parse: impl FnMut(&str) -> Option<T>) -> Result<Vec<(T, u64)>> {
        self.go_on()?;
        let mut found = Vec::new();
        let listed = self.repository.store().list(folder, &mut |listed| {
            found.extend(parse(names::last(&listed.name)).map(|id| (id, listed.len)));
        });
        listed.map_err(drumlin_repo::Error::from)?;
        Ok(found)
    }

    /// Read a small object.
    pub fn get(&self, name: &str) -> Result<Read> {
        self.go_on()?;
        match self.repository.store().get(name).map_err(drumlin_repo::Error::from) {
            Ok(bytes) => Ok(Read::Whole(bytes)),
            Err(e) if e.is_missing() => Ok(Read::Gone),
            Err(e) if e.is_of_one_object() => Ok(Read::Unreadable(e.cause())),
            Err(e) => Err(e.into()),
        }
    }

    /// Read a small object that may be removed at any time; `None` if it was, or if it can't be read, which is told.
    pub fn get_or_tell(&self, (kind, name): (ObjectKind, &str)) -> Result<Option<Vec<u8>>> {
        Ok(match self.get(name)? {
            Read::Whole(bytes) => Some(bytes),
            Read::Gone => None,
            Read::Unreadable(cause) => {
                self.findings.add(kind, name, cause);
                None
            }
        })
    }
}
