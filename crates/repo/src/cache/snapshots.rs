//! Copies of snapshots of a storage far away, sealed as they are there, so that each is fetched but once.
//!
//! ```text
//! <folder>/<snapshot id>    the object's bytes
//! ```
//!
//! A snapshot never changes, but for its seal. A copy is believed as far as its seal and its signature go, and only
//! while the storage lists the snapshot. Whoever looks after the repository itself (a check, a repair, a prune) reads
//! what is there.

use crate::{Repository, names};
use drumlin_format::SnapshotId;
use drumlin_store::descriptors;
use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A client's copies of a repository's snapshots.
pub(crate) struct Snapshots {
    folder: PathBuf,
}

impl Repository {
    /// This repository, for reading: if its storage is far away, snapshots that this client has read before are taken
    /// from the caches in `folder`.
    #[must_use]
    pub fn keeping_snapshots(mut self, folder: &Path) -> Self {
        let folder = folder.join(self.config().id.to_string()).join(names::SNAPSHOTS);
        let is_worth_it = self.store().is_far() && super::make_folder(&folder).is_ok();
        self.kept = is_worth_it.then(|| Arc::new(Snapshots { folder }));
        self
    }
}

impl Snapshots {
    pub fn get(&self, id: SnapshotId) -> Option<Vec<u8>> {
        descriptors::wait_for(|| fs::read(self.path(id))).ok()
    }

    pub fn has(&self, id: SnapshotId) -> bool {
        self.path(id).exists()
    }

    /// Keep one. What can't be kept costs time later, nothing else.
    pub fn keep(&self, id: SnapshotId, bytes: &[u8]) {
        let path = self.path(id);
        // A torn one is found by its seal.
        let open = || fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
        let file = descriptors::wait_for(open);
        if file.and_then(|mut file| file.write_all(bytes)).is_err() {
            let _ = fs::remove_file(&path);
        }
    }

    /// Throw away the copies of snapshots that are no more.
    pub fn tidy(&self, there: &[SnapshotId]) {
        let there: HashSet<&SnapshotId> = there.iter().collect();
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let id = entry.file_name().to_str().and_then(SnapshotId::parse);
            if id.is_none_or(|id| !there.contains(&id)) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    fn path(&self, id: SnapshotId) -> PathBuf {
        self.folder.join(id.to_string())
    }
}
