//! What stands for losses, and is none or can't be read.

use drumlin_format::key::Role;
use drumlin_format::loss::Loss;
use drumlin_format::{ChunkId, LossId};
use drumlin_repo::{CreateOptions, NewLock, Repository, Unlock, names};
use drumlin_seal::{PassphraseCost, Secret};
use drumlin_store::{LocalStore, MemoryStore, WHOLE_BYTES_MAX};
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

/// A loss says something if an owner or a keeper signed it. One of anybody else's stands, and is told apart, so that no
/// prune takes it for a repair's that has ended meanwhile, and a repair removes it.
#[test]
fn one_that_a_writer_signed_says_nothing() {
    let store = Arc::new(MemoryStore::new());
    let lock = |secret| NewLock::Passphrase(vec![secret], PassphraseCost { memory_kib: 64, passes: 1, lanes: 1 });
    let (repository, _) = Repository::create(store.clone(), CreateOptions::default(), lock(1), "test", 0).unwrap();
    repository.add_key(Role::Writer, &lock(2), "writer", 0).unwrap();
    let writer = Repository::open(store, &Unlock::Passphrase(vec![2])).unwrap();
    let idle = Loss { id: LossId([3; 16]), chunks: vec![ChunkId([4; 32])], packs: Vec::new() };
    writer.put_loss(&idle).unwrap();
    let losses = repository.readable_losses().unwrap();
    assert_eq!((losses.whole.len(), losses.broken.len(), losses.idle), (0, 0, vec![idle.id]));
    assert!(repository.losses().unwrap().is_empty());
}
