//! Objects that stand there twice: which of the two is read, what is told, how each is put again by the other one, and
//! stops between them.

use drumlin_format::key::Role;
use drumlin_repo::{CreateOptions, Error, Mended, NewLock, RekeyOptions, Repository, Unlock, names};
use drumlin_seal::{PassphraseCost, Secret};
use drumlin_store::{Fault, FaultStore, Kind, MemoryStore, Op, Put, Store, When};
use std::sync::Arc;

/// A repository and its owner's key file.
struct Bench {
    memory: MemoryStore,
    owner: String,
}

fn lock() -> NewLock {
    NewLock::File(Secret::new([1; 32]))
}

fn create(store: impl Store + 'static) -> drumlin_repo::Result<(Repository, drumlin_format::KeyId)> {
    Repository::create(Arc::new(store), CreateOptions::default(), lock(), "", 1)
}

fn bench() -> Bench {
    let memory = MemoryStore::new();
    let (repository, key) = create(memory.clone()).unwrap();
    let owner = repository.key_file(key, &Secret::new([1; 32])).to_string();
    Bench { memory, owner }
}

impl Bench {
    fn open(&self) -> drumlin_repo::Result<Repository> {
        self.open_through(self.memory.clone())
    }

    fn open_through(&self, store: impl Store + 'static) -> drumlin_repo::Result<Repository> {
        Repository::open(Arc::new(store), &Unlock::File(self.owner.clone()))
    }

    fn both(&self) -> [Option<Vec<u8>>; 2] {
        [names::CONFIG, names::CONFIG_COPY].map(|name| self.memory.get(name).ok())
    }

    fn set(&self, name: &str, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.memory.put(name, bytes, Put::Replace).unwrap(),
            None => self.memory.delete(name).unwrap(),
        }
    }
}

fn rekey(repository: &Repository) -> drumlin_repo::Result<drumlin_repo::Rekeyed> {
    repository.rekey(RekeyOptions { now: 50, remove_old: false })
}

/// What can become of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Whole,
    Gone,
    Damaged,
    /// Another repository's.
    Foreign,
    /// As a newer program would write it.
    Newer,
}

impl Fate {
    const ALL: [Fate; 5] = [Fate::Whole, Fate::Gone, Fate::Damaged, Fate::Foreign, Fate::Newer];

    fn of(self, whole: &[u8], foreign: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = whole.to_vec();
        match self {
            Fate::Whole => {}
            Fate::Gone => return None,
            Fate::Damaged => bytes[90] ^= 1,
            Fate::Foreign => return Some(foreign.to_vec()),
            Fate::Newer => bytes[7] += 1,
        }
        Some(bytes)
    }
}

#[test]
fn whatever_becomes_of_the_two_what_can_be_opened_is_opened_told_and_mended() {
    let foreign = bench().memory.get(names::CONFIG).unwrap();
    for first in Fate::ALL {
        for copy in Fate::ALL {
            let what = format!("config {first:?}, copy {copy:?}");
            let bench = bench();
            let whole = bench.memory.get(names::CONFIG).unwrap();
            assert_eq!(bench.both(), [Some(whole.clone()), Some(whole.clone())]);
            let fates = [first, copy].map(|fate| fate.of(&whole, &foreign));
            bench.memory.delete(names::CONFIG).unwrap();
            bench.memory.delete(names::CONFIG_COPY).unwrap();
            for (name, bytes) in [names::CONFIG, names::CONFIG_COPY].iter().zip(&fates) {
                bytes.iter().for_each(|bytes| bench.set(name, Some(bytes)));
            }
            let repository = match (first, copy, bench.open()) {
                (Fate::Whole, _, Ok(repository)) => {
                    assert!(repository.healed().is_empty(), "{what}");
                    repository
                }
                (Fate::Gone | Fate::Damaged, Fate::Whole, Ok(repository)) => {
                    assert_eq!(repository.healed(), [names::CONFIG], "{what}");
                    repository
                }
                (Fate::Gone, Fate::Gone, Err(Error::NoRepository { .. })) => continue,
                (Fate::Foreign, _, Err(Error::OtherRepository { .. })) => continue,
                (Fate::Gone | Fate::Damaged, Fate::Foreign, Err(Error::OtherRepository { .. })) => continue,
                (Fate::Newer, _, Err(e)) => {
                    assert!(e.is_newer() && e.to_string().contains("use a newer drumlin"), "{what}: {e}");
                    continue;
                }
                (Fate::Gone | Fate::Damaged, _, Err(Error::Damaged { object, .. })) => {
                    let of_copy = first == Fate::Gone || copy == Fate::Newer;
                    let expected = if of_copy { names::CONFIG_COPY } else { names::CONFIG };
                    assert_eq!(object, expected, "{what}");
                    continue;
                }
                (.., other) => panic!("{what}: {:?}", other.map(|repository| repository.healed())),
            };
            let examined = repository.examine_config().unwrap();
            let troubles = examined.troubles;
            assert_eq!(examined.lacks_copy, copy == Fate::Gone, "{what}");
            let told: Vec<&str> = troubles.iter().map(|(name, _)| name.as_str()).collect();
            let expected = match (first, copy) {
                (Fate::Whole, Fate::Whole | Fate::Gone) => vec![],
                (Fate::Whole, _) => vec![names::CONFIG_COPY],
                _ => vec![names::CONFIG],
            };
            assert_eq!(told, expected, "{what}");
            assert!(troubles.iter().all(|(_, cause)| cause.ends_with(" is sound")), "{what}: {troubles:?}");
            // What a newer program has written is not ours to replace.
            let mended = u64::from(![Fate::Whole, Fate::Newer].contains(&copy) || first != Fate::Whole);
            assert_eq!(repository.mend_config().unwrap().put, mended, "{what}");
            assert!(repository.healed().is_empty(), "{what}");
            if copy == Fate::Newer {
                assert_eq!(bench.both(), fates, "{what}");
            } else {
                assert_eq!(bench.both(), [Some(whole.clone()), Some(whole)], "{what}");
                let sound = repository.examine_config().unwrap();
                assert_eq!((sound.troubles, sound.lacks_copy), (vec![], false), "{what}");
                assert_eq!(repository.mend_config().unwrap().put, 0, "{what}");
            }
        }
    }
}

#[test]
fn where_the_storage_gives_no_config_out_its_copy_is_read() {
    let bench = bench();
    for kind in [Kind::Io, Kind::Refused, Kind::Truncated] {
        let store = FaultStore::new(bench.memory.clone());
        store.faults().add(When::op(Op::Get).named(names::CONFIG), Fault::Fail(kind));
        assert_eq!(bench.open_through(store).unwrap().healed(), [names::CONFIG], "{kind:?}");
    }
    // A storage that is away has lost nothing: nothing else is asked for.
    let store = FaultStore::new(bench.memory.clone());
    store.faults().add(When::op(Op::Get).named(names::CONFIG), Fault::Fail(Kind::Transient));
    assert!(matches!(bench.open_through(store), Err(e) if e.is_transient()));
    bench.set(names::CONFIG, None);
    let store = FaultStore::new(bench.memory.clone());
    store.faults().add(When::op(Op::Get).named(names::CONFIG_COPY), Fault::Fail(Kind::Transient));
    assert!(matches!(bench.open_through(store), Err(e) if e.is_transient()), "nobody knows whether there is a copy");
}

/// A copy alone is a repository: another one in its place would make it unreadable.
#[test]
fn where_a_copy_is_no_repository_is_made() {
    let bench = bench();
    bench.set(names::CONFIG, None);
    let mut keys = Vec::new();
    bench.memory.list(names::KEYS, &mut |listed| keys.push(listed.name)).unwrap();
    keys.iter().for_each(|key| bench.set(key, None));
    assert!(matches!(create(bench.memory.clone()), Err(Error::Exists { .. })));
    bench.set(names::CONFIG_COPY, None);
    create(bench.memory).unwrap();
}

/// What is new is there before its copy: a copy that is missing is no harm.
#[test]
fn what_is_cut_short_before_the_copy_is_made() {
    let memory = MemoryStore::new();
    let store = FaultStore::new(memory.clone());
    store.faults().add(When::op(Op::Put).named("*.copy"), Fault::Fail(Kind::Full));
    assert!(create(store).is_err());
    let bench = bench();
    let store = FaultStore::new(bench.memory.clone());
    store.faults().add(When::op(Op::Put).named("keys/*.copy"), Fault::Fail(Kind::Full));
    let owner = bench.open_through(store).unwrap();
    assert!(owner.add_key(Role::Reader, &NewLock::File(Secret::new([9; 32])), "", 2).is_err());
    let owner = bench.open().unwrap();
    let found: Vec<_> = owner.key_ids().unwrap().into_iter().map(|id| owner.examine_key(id).unwrap()).collect();
    assert_eq!((found.len(), found.iter().filter(|key| key.lacks_copy).count()), (2, 1));
    assert!(found.iter().all(|key| key.troubles.is_empty()));
    assert_eq!((owner.mend_keys().unwrap().put, owner.mend_keys().unwrap().put), (1, 0));
}

/// The copy is newer then, and all that it speaks of is there.
#[test]
fn a_rekey_that_is_cut_short_between_the_two_is_not_in_force_before_the_next() {
    let bench = bench();
    let [before, _] = bench.both();
    let store = FaultStore::new(bench.memory.clone());
    store.faults().add(When::op(Op::Put).named(names::CONFIG), Fault::Fail(Kind::Full));
    assert!(rekey(&bench.open_through(store).unwrap()).is_err());
    let owner = bench.open().unwrap();
    assert_eq!((owner.generation().unwrap(), owner.config().generation), (0, 0), "the config counts");
    let troubles = owner.examine_config().unwrap().troubles;
    assert!(troubles.len() == 1 && troubles[0].0 == names::CONFIG && troubles[0].1.contains("older"), "{troubles:?}");
    // Whether it was cut short, or the config is one of before, is not for a repair to say.
    let both = bench.both();
    assert_eq!((owner.mend_config().unwrap().put, bench.both()), (0, both));
    // Without the config what was begun is in force, and nothing of it is missing.
    bench.set(names::CONFIG, None);
    let by_copy = bench.open().unwrap();
    assert!(by_copy.generation().unwrap() > 0 && by_copy.generations().newest() == 1);
    bench.set(names::CONFIG, before.as_deref());
    assert_eq!(rekey(&bench.open().unwrap()).unwrap().number, 2);
    assert_eq!(bench.open().unwrap().generations().newest(), 2);
    // An older copy is put again by the config, and not the other way round.
    bench.set(names::CONFIG_COPY, before.as_deref());
    let owner = bench.open().unwrap();
    let troubles = owner.examine_config().unwrap().troubles;
    assert!(troubles.len() == 1 && troubles[0].0 == names::CONFIG_COPY, "{troubles:?}");
    assert_eq!(owner.mend_config().unwrap().put, 1);
    assert_eq!(bench.open().unwrap().generations().newest(), 2);
    assert_eq!(rekey(&bench.open().unwrap()).unwrap().number, 3);
    let [first, copy] = bench.both();
    assert!(first == copy && first != before);
}

#[test]
fn a_key_opens_by_its_copy() {
    let bench = bench();
    let owner = bench.open().unwrap();
    let cost = PassphraseCost { memory_kib: 64, passes: 1, lanes: 1 };
    let typed = owner.add_key(Role::Reader, &NewLock::Passphrase(b"typed".to_vec(), cost), "typed", 2).unwrap();
    let by_typing = || Repository::open(Arc::new(bench.memory.clone()), &Unlock::Passphrase(b"typed".to_vec()));
    let by_file = || bench.open();
    let ways: [(_, &dyn Fn() -> drumlin_repo::Result<Repository>); 2] =
        [(owner.secrets().key, &by_file), (typed, &by_typing)];
    for (key, open) in ways {
        let (name, copy) = (names::key(key), names::copy_of(&names::key(key)));
        let whole = bench.memory.get(&name).unwrap();
        assert!(bench.memory.get(&copy).unwrap() == whole);
        for damaged in [None, Some(&whole[..whole.len() - 1]), Some(&b""[..])] {
            bench.set(&name, damaged);
            let by_copy = open().unwrap();
            assert_eq!(by_copy.healed(), [name.as_str()]);
            assert_eq!((by_copy.list_keys().unwrap().len(), by_copy.mend_keys().unwrap().put), (2, 1));
            assert!(by_copy.healed().is_empty() && bench.memory.get(&name).unwrap() == whole);
            // The copy, which an older program doesn't make.
            bench.set(&copy, damaged);
            let by_key = open().unwrap();
            let found = by_key.examine_key(key).unwrap();
            let told = found.troubles;
            assert_eq!((by_key.healed().len(), told.len()), (0, usize::from(damaged.is_some())), "{told:?}");
            assert!(found.object.is_some() && found.lacks_copy == damaged.is_none());
            assert_eq!((by_key.mend_keys().unwrap().put, by_key.mend_keys().unwrap().put), (1, 0));
            assert!(bench.memory.get(&copy).unwrap() == whole);
        }
    }
}

/// Of a key of which neither is sound nothing is left but to say so, and to remove what stands there.
#[test]
fn a_key_that_is_lost_with_its_copy_is_named_and_can_be_removed() {
    for damage in [Some(&b"odd"[..]), Some(b""), None] {
        let bench = bench();
        let owner = bench.open().unwrap();
        let add = |label| owner.add_key(Role::Writer, &NewLock::File(Secret::new([9; 32])), label, 2).unwrap();
        let (lost, sound) = (add("lost"), add("sound"));
        let names = [names::key(lost), names::copy_of(&names::key(lost))];
        bench.set(&names[0], Some(b"odd"));
        assert!(owner.keys().unwrap().lost.is_empty(), "its copy is read");
        bench.set(&names[1], damage);
        let mended = owner.mend_keys().unwrap();
        assert_eq!((mended.put, &mended.lost[..]), (0, &names[..1]));
        let keys = owner.keys().unwrap();
        assert_eq!((keys.sound.len(), keys.lost.len(), keys.lost[0].0), (2, 1, lost));
        assert!(owner.list_keys().is_err() && rekey(&owner).is_err());
        owner.remove_key(sound, 3).unwrap();
        owner.remove_key(lost, 3).unwrap();
        assert!(names.iter().all(|name| bench.memory.get(name).is_err()));
        assert_eq!((owner.list_keys().unwrap().len(), owner.mend_keys().unwrap()), (2, Mended::default()));
        assert!(rekey(&owner).is_ok());
        assert!(owner.remove_key(lost, 4).is_err(), "there is no such key");
    }
}

/// What a newer program has written is not lost, whatever this one makes of it.
#[test]
fn a_key_of_a_newer_format_is_neither_lost_nor_removed() {
    let bench = bench();
    let owner = bench.open().unwrap();
    let key = owner.add_key(Role::Writer, &NewLock::File(Secret::new([9; 32])), "", 2).unwrap();
    let (name, copy) = (names::key(key), names::copy_of(&names::key(key)));
    let newer = Fate::Newer.of(&bench.memory.get(&name).unwrap(), b"").unwrap();
    bench.set(&name, Some(&newer));
    bench.set(&copy, Some(&newer));
    assert_eq!(owner.mend_keys().unwrap(), Mended::default());
    assert!(owner.remove_key(key, 3).unwrap_err().to_string().contains("must not be removed"));
    assert!(bench.memory.get(&name).unwrap() == newer && bench.memory.get(&copy).unwrap() == newer);
}

/// The word that a key is revoked is not lost between the two, and nothing takes it back.
#[test]
fn a_revocation_that_is_cut_short_can_be_brought_to_its_end() {
    let bench = bench();
    let secret = Secret::new([9; 32]);
    let key = bench.open().unwrap().add_key(Role::Writer, &NewLock::File(secret.clone()), "", 2).unwrap();
    let file = bench.open().unwrap().key_file(key, &secret).to_string();
    let open = || Repository::open(Arc::new(bench.memory.clone()), &Unlock::File(file.clone()));
    let before = bench.memory.get(&names::key(key)).unwrap();
    let store = FaultStore::new(bench.memory.clone());
    store.faults().add(When::op(Op::Put).named(&names::key(key)), Fault::Fail(Kind::Io));
    assert!(bench.open_through(store).unwrap().remove_key(key, 10).is_err());
    assert!(open().is_ok(), "the owner was told that it failed");
    let owner = bench.open().unwrap();
    let troubles = owner.examine_key(key).unwrap().troubles;
    assert!(troubles.len() == 1 && troubles[0].1.contains("older"), "{troubles:?}");
    assert_eq!(owner.mend_keys().unwrap().put, 1);
    assert!(matches!(open(), Err(Error::RevokedKey { .. })));
    // An old copy that the storage gives back opens nothing, and goes.
    bench.set(&names::copy_of(&names::key(key)), Some(&before));
    assert!(matches!(open(), Err(Error::RevokedKey { .. })));
    assert_eq!(owner.mend_keys().unwrap().put, 1);
    assert!(bench.memory.get(&names::copy_of(&names::key(key))).unwrap() != before);
}

#[test]
fn what_opens_a_key_is_changed_in_both() {
    let bench = bench();
    bench.open().unwrap().relock(&NewLock::File(Secret::new([2; 32]))).unwrap();
    assert!(matches!(bench.open(), Err(Error::WrongKey { .. })));
    let mut keys = Vec::new();
    bench.memory.list(names::KEYS, &mut |listed| keys.push(listed.name)).unwrap();
    keys.sort();
    assert_eq!(keys.len(), 2);
    bench.memory.delete(&keys[0]).unwrap();
    assert!(matches!(bench.open(), Err(Error::WrongKey { .. })));
}
