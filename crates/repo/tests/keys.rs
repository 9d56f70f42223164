//! What a change of keys writes: small objects, and how many, whatever the repository holds.

use drumlin_format::KeyId;
use drumlin_format::key::{KeyObject, KeyParts, Lock, Role, Secrets};
use drumlin_repo::{CreateOptions, Error, NewLock, Repository, Unlock};
use drumlin_seal::{PassphraseCost, Secret, SigningKey};
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
    // By this program nothing is opened with it any more, but there are others.
    let again = Repository::open(Arc::new(memory), &Unlock::File(kept.clone()));
    assert!(matches!(again, Err(Error::RevokedKey { .. })));
    let again = drumlin_format::key_file::decode_recovery(&kept).unwrap();
    assert!(again.data.is_some() && again.role == Role::Reader);
    assert_eq!(again.index, repository.secrets().index);
}

/// All that is left of an owner's key is a recovery file.
#[test]
fn an_owners_key_that_is_gone_is_made_again() {
    let (memory, repository, _, _) = repository();
    let (own, kept) = (repository.secrets().key, repository.recovery_file().to_string());
    let open = |unlock| Repository::open(Arc::new(memory.clone()), &unlock);
    assert!(!open(Unlock::File(kept.clone())).unwrap().lacks_its_key());
    for name in [format!("keys/{own}"), format!("keys/{own}.copy")] {
        memory.delete(&name).unwrap();
    }
    assert!(open(Unlock::Passphrase(b"owner".to_vec())).is_err());
    let by_file = open(Unlock::File(kept.clone())).unwrap();
    assert!(by_file.lacks_its_key());
    // Nobody could tell whose plan it is, and backups would refer to what it removes.
    for refused in [by_file.may_collect("prune"), by_file.may_forget()] {
        assert!(matches!(&refused, Err(Error::Misuse(why)) if why.contains("key passwd")), "{refused:?}");
    }
    by_file.remake_key(&passphrase("anew"), "label", 9).unwrap();
    let again = open(Unlock::Passphrase(b"anew".to_vec())).unwrap();
    assert!(again.secrets().key == own && !again.lacks_its_key());
    assert!(again.keys().unwrap().sound.iter().any(|key| key.id == own && key.label == "label"));
    assert!(!open(Unlock::File(kept)).unwrap().lacks_its_key());
}

/// Who may add can write key objects that take as long to be tried as he likes.
#[test]
fn no_passphrase_is_tried_on_what_the_owner_has_not_certified() {
    let (memory, repository, _, _) = repository();
    let (key, signing) = (KeyId([0; 16]), SigningKey::new(Secret::new([8; 32])).unwrap());
    let secrets = Secrets { key, ..repository.secrets().clone() };
    let dear = PassphraseCost { memory_kib: 1 << 20, passes: 64, lanes: 1 };
    let (lock, unlock) = (Lock::passphrase([1; 16], dear), &Secret::new([1; 32]));
    let parts = KeyParts { secrets: &secrets, lock, unlock, label: "", created: 0, fresh: [0; 16], generation: 0 };
    let forged = KeyObject::seal(&parts, repository.config().suite, &signing);
    memory.put(&format!("keys/{key}"), &forged, Put::Create).unwrap();
    // Nor is anything read that is longer than a key object can be.
    let long = "keys/00000000000000000000000000000001";
    memory.put(long, &vec![0; 2 << 20], Put::Create).unwrap();
    let (again, store) = (memory.clone(), RecordStore::new(memory));
    let log = store.log();
    let started = std::time::Instant::now();
    let opened = Repository::open(Arc::new(store), &Unlock::Passphrase(b"owner".to_vec())).unwrap();
    assert_eq!(opened.secrets().key, repository.secrets().key);
    assert!(started.elapsed().as_secs() < 5);
    assert!(!log.calls().iter().any(|call| matches!(call, Call::Get { name, .. } if name == long)));
    // Nor does a wrong passphrase pass for damage because of them.
    let slip = Repository::open(Arc::new(again), &Unlock::Passphrase(b"ovner".to_vec()));
    let Err(slip @ Error::WrongKey { untried: Some(_), .. }) = slip else { panic!("{:?}", slip.err()) };
    assert!(slip.to_string().contains("opens none of the keys"), "{slip}");
}
