//! What stands for losses and can't be read.

use drumlin_format::LossId;
use drumlin_format::loss::Loss;
use drumlin_repo::{CreateOptions, NewLock, Repository, names};
use drumlin_seal::Secret;
use drumlin_store::{LocalStore, WHOLE_BYTES_MAX};
use std::fs::File;
use std::sync::Arc;

/// Who may add can put one that no store gives out as a whole. It is told as damage of that one, as any other is, so that
/// a repair can clear it away; and nobody ends by it.
#[test]
fn one_that_is_too_long_is_told_and_the_others_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(LocalStore::create(folder.path().join("repository")).unwrap());
    let lock = NewLock::File(Secret::new([1; 32]));
    let (repository, _) = Repository::create(store, CreateOptions::default(), lock, "test", 0).unwrap();
    let sound = Loss { id: LossId([1; 16]), chunks: Vec::new(), packs: Vec::new() };
    repository.put_loss(&sound).unwrap();
    let long = LossId([2; 16]);
    let file = File::create(folder.path().join("repository").join(names::loss(long))).unwrap();
    file.set_len(WHOLE_BYTES_MAX + 1).unwrap();
    let losses = repository.readable_losses().unwrap();
    assert_eq!(losses.whole, [sound]);
    assert!(losses.broken.iter().map(|(id, _)| *id).eq([long]));
    repository.remove_loss(long).unwrap();
    assert_eq!(repository.readable_losses().unwrap().broken.len(), 0);
}
