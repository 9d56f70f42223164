//! What a change of keys writes: small objects, and how many, whatever the repository holds.

use drumlin_format::KeyId;
use drumlin_format::key::Role;
use drumlin_repo::{CreateOptions, NewLock, Repository, Unlock};
use drumlin_seal::{PassphraseCost, Secret};
use drumlin_store::{Call, CallLog, MemoryStore, Put, RecordStore, Store};
use std::collections::BTreeMap;
use std::sync::Arc;

const COST: PassphraseCost = PassphraseCost { memory_kib: 64, passes: 1, lanes: 1 };
/// A key object is longer than this only if its label is: the public half of its pair is most of it.
const SMALL: u64 = 3 << 10;

fn passphrase(text: &str) -> NewLock {
    NewLock::Passphrase(text.as_bytes().to_vec(), COST)
}

fn objects(memory: &MemoryStore) -> BTreeMap<String, Vec<u8>> {
    let mut names = Vec::new();
    memory.list("", &mut |listed| names.push(listed.name)).unwrap();
    names.into_iter().map(|name| (name.clone(), memory.get(&name).unwrap())).collect()
}

/// A repository with many keys, and other objects that nobody has to touch.
fn repository() -> (MemoryStore, Repository, CallLog, Vec<KeyId>) {
    let memory = MemoryStore::new();
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    Repository::create(store, CreateOptions::default(), passphrase("owner"), "first", 1).unwrap();
    for n in 0..50u8 {
        memory.put(&format!("data/{n:02x}/{n:032x}"), &[n; 10_000], Put::Create).unwrap();
    }
    let store = RecordStore::new(memory.clone());
    let log = store.log();
    let repository = Repository::open(Arc::new(store), &Unlock::Passphrase(b"owner".to_vec())).unwrap();
    let keys = [Role::Reader, Role::Writer, Role::Keeper, Role::Owner]
        .map(|role| repository.add_key(role, &NewLock::File(Secret::new([3; 32])), role.name(), 2).unwrap());
    log.take();
    (memory, repository, log, keys.to_vec())
}

/// The only thing that was written: a key's object, and its copy, which comes first where there was one.
#[track_caller]
fn only(log: &CallLog, key: KeyId, expected: Put) {
    let (name, copy) = (format!("keys/{key}"), format!("keys/{key}.copy"));
    let in_order = if expected == Put::Create { [name, copy] } else { [copy, name] };
    let writes = log.writes();
    assert_eq!(writes.len(), 2, "{writes:?}");
    for (call, expected_name) in writes.iter().zip(in_order) {
        match call {
            Call::Put { name, bytes, how } => {
                assert_eq!((name, *how), (&expected_name, expected));
                assert!(*bytes <= SMALL, "{bytes} bytes");
            }
            other => panic!("{other:?}"),
        }
    }
    // Nor is anything read that grows with the repository.
    let far = |call: &Call| match call {
        Call::Get { name, .. } | Call::ReadAt { name, .. } => !name.starts_with("keys/"),
        Call::List { prefix, .. } => prefix != "keys",
        _ => false,
    };
    assert!(!log.calls().iter().any(far), "{:?}", log.calls());
    log.take();
}

#[test]
fn each_change_of_keys_writes_one_small_object_and_its_copy() {
    let (memory, repository, log, keys) = repository();
    let before = objects(&memory);
    let own = repository.secrets().key;
    repository.relock(&passphrase("another")).unwrap();
    only(&log, own, Put::Replace);
    repository.relock(&NewLock::File(Secret::new([5; 32]))).unwrap();
    only(&log, own, Put::Replace);
    for key in &keys {
        repository.remove_key(*key, 9).unwrap();
        only(&log, *key, Put::Replace);
    }
    let new = repository.add_key(Role::Writer, &passphrase("new"), "new", 10).unwrap();
    only(&log, new, Put::Create);

    let after = objects(&memory);
    let changed: Vec<_> = after.keys().filter(|name| before.get(*name) != after.get(*name)).collect();
    assert_eq!(changed.len(), 2 * (2 + keys.len()));
    assert!(changed.iter().all(|name| name.starts_with("keys/")) && before.len() + 2 == after.len());
}

/// What the guide says of a thief: removing his key changes none of the secrets that he has.
#[test]
fn a_removed_key_keeps_the_secrets_that_it_had() {
    let (memory, repository, _, keys) = repository();
    let file = repository.key_file(keys[0], &Secret::new([3; 32])).to_string();
    let thief = Repository::open(Arc::new(memory.clone()), &Unlock::File(file.clone())).unwrap();
    let kept = thief.recovery_file().to_string();
    repository.remove_key(keys[0], 9).unwrap();
    assert!(Repository::open(Arc::new(memory.clone()), &Unlock::File(file)).is_err());
    let again = Repository::open(Arc::new(memory), &Unlock::File(kept)).unwrap();
    assert!(again.may_read().is_ok() && again.role() == Role::Reader);
    assert_eq!(again.secrets().index, repository.secrets().index);
}
