//! Whether what an operation gave is right: asked where it came to its end and told of nothing.

use crate::scene::{Contents, Scene, contents};
use drumlin_engine::Result;
use drumlin_engine::copy::Copier;
use drumlin_repo::{Repository, SnapshotInfo, Unlock};
use drumlin_seal::Secret;
use drumlin_store::Store;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// What is wrong, in words.
pub type Verdict = Option<String>;

/// `None` if it is right.
pub fn right(is: bool, wrong: impl FnOnce() -> String) -> Verdict {
    (!is).then(wrong)
}

/// The files of a restored tree.
pub fn restored(expected: &Contents, target: &Path) -> Verdict {
    let bent = expected.iter().filter(|(path, bytes)| {
        let at = target.join(path.trim_start_matches('/'));
        fs::read(at).ok().as_ref() != Some(*bytes)
    });
    let bent: Vec<&String> = bent.map(|(path, _)| path).collect();
    right(bent.is_empty(), || format!("restored otherwise than saved: {bent:?}"))
}

/// The paths of files that were found.
pub fn listed<'c>(expected: impl IntoIterator<Item = &'c String>, found: &BTreeSet<String>) -> Verdict {
    let expected: BTreeSet<String> = expected.into_iter().cloned().collect();
    right(*found == expected, || format!("{found:?} instead of {expected:?}"))
}

/// The paths at which two snapshots differ in their contents.
pub fn differing<'c>(old: &'c Contents, new: &'c Contents) -> impl Iterator<Item = &'c String> {
    let paths: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    paths.into_iter().filter(|path| old.get(*path) != new.get(*path))
}

/// The copies of those snapshots of the scene that are listed.
pub fn copied(scene: &Scene, infos: &[SnapshotInfo], copier: &Copier, to: &Repository) -> Result<Verdict> {
    for (id, expected) in &scene.standing {
        let Some(info) = infos.iter().find(|info| info.snapshot.id == *id) else { continue };
        let Some(copy) = copier.copy_of(&info.snapshot)? else { return Ok(Some(format!("{id} was not copied"))) };
        match contents(to, &copy, scene.folder.path()) {
            Ok(found) if found == *expected => {}
            other => return Ok(Some(format!("the copy of {id} is not what was saved: {:?}", other.err()))),
        }
    }
    Ok(None)
}

/// A key opens the repository.
pub fn opens(store: &Arc<dyn Store>, key_file: &str) -> Verdict {
    Repository::open(store.clone(), &Unlock::File(key_file.into())).err().map(|e| format!("the key opens nothing: {e}"))
}

/// What opens the keys that are made here.
pub fn secret() -> Secret {
    Secret::new([3; 32])
}
