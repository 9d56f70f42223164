//! What a restore never deletes, nor writes into: folders of the program's own that lie in the target.
//!
//! A backup of what is around them leaves them out, so that a snapshot doesn't have them, and a restore that deletes
//! what the snapshot doesn't have would delete the repository that it reads.

use super::Options;
use drumlin_host::meta::Stat;
use drumlin_host::place::FileId;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where they are, and where the target is, symlinks resolved.
pub(super) struct Own {
    target: PathBuf,
    repository: Option<PathBuf>,
    spared: Vec<PathBuf>,
    guarded: Vec<PathBuf>,
    remembered: Vec<PathBuf>,
    /// Of these, and of all directories above them: they may be mounted at several places.
    ids: HashSet<FileId>,
}

/// What an entry has to do with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stance {
    /// Nothing.
    Free,
    /// It is one of them, or lies in one.
    Own,
    /// One of them lies in it.
    Around,
}

impl Own {
    /// For a restore.
    pub fn new(options: &Options) -> Self {
        let target = options.target.canonicalize().or_else(|_| std::path::absolute(&options.target));
        let repository = options.repository.as_ref().and_then(|folder| folder.canonicalize().ok());
        let real = |paths: &[PathBuf]| paths.iter().filter_map(|path| path.canonicalize().ok()).collect();
        let (guarded, remembered) = (real(&options.guarded), real(&options.remembered));
        let spared = options.spared.iter().filter_map(|path| path.canonicalize().ok());
        let spared: Vec<PathBuf> = repository.iter().cloned().chain(spared).collect();
        let ids = spared.iter().flat_map(|path| path.ancestors()).filter_map(id).collect();
        Own { target: target.unwrap_or_else(|_| options.target.clone()), repository, spared, guarded, remembered, ids }
    }

    /// What an entry of a directory, whose path below the target is given, has to do with them.
    pub fn stance(&self, dir: &[u8], name: &[u8], stat: &Stat) -> Stance {
        let path = self.real(dir).join(OsStr::from_bytes(name));
        let is_in = self.is_in(&self.spared, dir, name);
        let id = FileId::of(stat);
        match () {
            () if is_in || self.spared.iter().filter_map(|spared| self::id(spared)).any(|spared| spared == id) => {
                Stance::Own
            }
            () if self.ids.contains(&id) || self.spared.iter().any(|spared| spared.starts_with(&path)) => {
                Stance::Around
            }
            () => Stance::Free,
        }
    }

    /// Whether an entry of a directory is one that is not to become another.
    pub fn is_guarded(&self, dir: &[u8], name: &[u8]) -> bool {
        self.is_in(&self.guarded, dir, name)
    }

    /// Whether it is one that stays as it is without a word.
    pub fn is_remembered(&self, dir: &[u8], name: &[u8]) -> bool {
        self.is_in(&self.remembered, dir, name)
    }

    fn is_in(&self, those: &[PathBuf], dir: &[u8], name: &[u8]) -> bool {
        let path = self.real(dir).join(OsStr::from_bytes(name));
        those.iter().any(|one| path.starts_with(one))
    }

    /// Whether a directory is the repository, or lies in it.
    pub fn is_of_repository(&self, dir: &[u8]) -> bool {
        self.repository.as_ref().is_some_and(|repository| self.real(dir).starts_with(repository))
    }

    fn real(&self, dir: &[u8]) -> PathBuf {
        match dir.is_empty() {
            true => self.target.clone(),
            false => self.target.join(OsStr::from_bytes(dir)),
        }
    }
}

fn id(path: &Path) -> Option<FileId> {
    path.metadata().ok().map(|meta| FileId { dev: meta.dev(), ino: meta.ino() })
}
