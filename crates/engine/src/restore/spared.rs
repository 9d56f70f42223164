//! What has to stay because of what is in it.

use super::existing::{is_mounted, why_it_stays};
use super::selection::Selection;
use crate::convert;
use drumlin_format::tree::Kind;
use drumlin_host::meta::Stat;
use drumlin_host::place::{self, FileId, Names, TargetDir};
use std::collections::HashSet;
use std::sync::Arc;

/// Directories in which, or below which, something is left out by rules, is a repository or was set aside, or can't be
/// looked at now: nobody knows then that nothing is.
pub(super) struct Spared(HashSet<FileId>);

impl Spared {
    /// Those of an entry and of all below it.
    pub fn find(selection: &Selection, handle: &TargetDir, name: &[u8], path: &[u8]) -> Self {
        let mut spared = Spared(HashSet::new());
        let Ok(Some(stat)) = handle.stat(name) else { return spared };
        if convert::kind(stat.kind) != Kind::Dir || is_mounted(handle, &stat) {
            return spared;
        }
        let mut path = path.to_vec();
        let mut open = Vec::new();
        spared.enter(selection, handle, name, &stat, path.len(), &mut open);
        while let Some(looked) = open.last_mut() {
            let id = looked.id;
            path.truncate(looked.path);
            let Some(name) = looked.names.get(looked.at) else {
                open.pop();
                // What is above it stays, too.
                if spared.0.contains(&id) {
                    spared.0.extend(open.last().map(|above| above.id));
                }
                continue;
            };
            looked.at += 1;
            path.push(b'/');
            path.extend_from_slice(name);
            let (handle, name) = (looked.handle.clone(), name.to_vec());
            match handle.stat(&name) {
                Ok(None) => {}
                // It may be the only copy.
                Ok(Some(_)) if place::is_aside(&name) => _ = spared.0.insert(id),
                Ok(Some(stat)) if selection.lets_go(&path, &stat) => {
                    if convert::kind(stat.kind) == Kind::Dir && !is_mounted(&handle, &stat) {
                        spared.enter(selection, &handle, &name, &stat, path.len(), &mut open);
                    }
                }
                Ok(Some(_)) | Err(_) => _ = spared.0.insert(id),
            }
        }
        spared
    }

    fn enter(
        &mut self,
        selection: &Selection,
        handle: &TargetDir,
        name: &[u8],
        stat: &Stat,
        path: usize,
        open: &mut Vec<Looked>,
    ) {
        let id = FileId::of(stat);
        match handle.open_dir(name).and_then(|handle| Ok((handle.list()?, handle))) {
            Ok((names, opened))
                if !selection.is_marked(&opened, &names) && why_it_stays(handle, name, stat).is_none() =>
            {
                open.push(Looked { handle: opened, names, at: 0, id, path })
            }
            // Where nothing is left out by rules, it goes if it can: what this user may not look into, too.
            Err(e) if !selection.spares() && !e.is_unread() => {}
            _ => {
                self.0.insert(id);
                self.0.extend(open.last().map(|above| above.id));
            }
        }
    }

    /// Whether a directory is one of them.
    pub fn has(&self, stat: &Stat) -> bool {
        self.0.contains(&FileId::of(stat))
    }
}

/// A directory that is being looked through.
struct Looked {
    handle: Arc<TargetDir>,
    names: Names,
    /// The next of them.
    at: usize,
    id: FileId,
    /// The length of its path.
    path: usize,
}
