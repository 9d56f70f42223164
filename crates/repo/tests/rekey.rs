//! New secrets for a repository: who gets them and who doesn't, what a storage can do about it, and a stop at any call.

use drumlin_format::generation::{Generation, GenerationSecrets, LazyKey, Origin};
use drumlin_format::key::Role;
use drumlin_format::session::Session;
use drumlin_format::{Header, KeyId, ObjectType, RepositoryId, SessionId};
use drumlin_repo::collection::{Board, Desk, Registration};
use drumlin_repo::history::Memory;
use drumlin_repo::{CreateOptions, Error, NewLock, RekeyOptions, Repository, Unlock, names};
use drumlin_seal::{Secret, SigningKey, Suite};
use drumlin_store::{Call, Fault, FaultStore, Kind, MemoryStore, Op, Put, RecordStore, Store, When};
use std::path::Path;
use std::sync::Arc;

const PLAIN: RekeyOptions = RekeyOptions { now: 50, remove_old: false };
const ROLES: [Role; 4] = [Role::Owner, Role::Reader, Role::Writer, Role::Keeper];

fn file(repository: &Repository, key: KeyId, secret: u8) -> String {
    repository.key_file(key, &Secret::new([secret; 32])).to_string()
}

fn open(memory: &MemoryStore, file: &str) -> drumlin_repo::Result<Repository> {
    Repository::open(Arc::new(memory.clone()), &Unlock::File(file.to_owned()))
}

/// A repository, its owner's key file, and one of each role.
struct Bench {
    memory: MemoryStore,
    owner: String,
    files: Vec<(Role, KeyId, String)>,
}

fn bench() -> Bench {
    let memory = MemoryStore::new();
    let lock = NewLock::File(Secret::new([1; 32]));
    let (owner, key) = Repository::create(Arc::new(memory.clone()), CreateOptions::default(), lock, "", 1).unwrap();
    let mut files = Vec::new();
    for (role, secret) in ROLES.into_iter().zip(10..) {
        let key = owner.add_key(role, &NewLock::File(Secret::new([secret; 32])), role.name(), 2).unwrap();
        files.push((role, key, file(&owner, key, secret)));
    }
    Bench { owner: file(&owner, key, 1), memory, files }
}

impl Bench {
    fn owner(&self) -> Repository {
        open(&self.memory, &self.owner).unwrap()
    }

    fn names(&self, folder: &str) -> Vec<String> {
        let mut names = Vec::new();
        self.memory.list(folder, &mut |listed| names.push(listed.name)).unwrap();
        names.sort();
        names
    }
}

/// All objects of a store in one of their own.
fn copy(memory: &MemoryStore) -> MemoryStore {
    let (copy, mut names) = (MemoryStore::new(), Vec::new());
    memory.list("", &mut |listed| names.push(listed.name)).unwrap();
    names.iter().for_each(|name| copy.put(name, &memory.get(name).unwrap(), Put::Create).unwrap());
    copy
}

/// Register a session: what comes of it is sealed with the newest secrets that this client has.
fn session(by: &Repository) -> drumlin_repo::Result<SessionId> {
    let before = Desk::new(by).sessions()?;
    Registration::begin(by, Session::new("host", "test", 5))?;
    Ok(Desk::new(by).sessions()?.into_iter().find(|id| !before.contains(id)).unwrap())
}

fn tag_of(memory: &MemoryStore, id: SessionId) -> u32 {
    Header::decode(&memory.get(&names::session(id)).unwrap(), ObjectType::Session).unwrap().generation
}

#[test]
fn every_key_that_is_left_reads_and_writes_before_and_after() {
    let bench = bench();
    let (_, thief, stolen) = &bench.files[1];
    let stolen = open(&bench.memory, stolen).unwrap();
    let before = session(&bench.owner()).unwrap();
    bench.owner().remove_key(*thief, 9).unwrap();
    let done = bench.owner().rekey(PLAIN).unwrap();
    assert_eq!((done.number, done.given.len(), done.removed.len()), (1, 4, 0));
    assert!(done.given.iter().all(|key| key.id != *thief));
    let after = session(&done.repository).unwrap();
    let tag = done.repository.generation().unwrap();
    assert_ne!(tag, 0);
    assert_eq!((tag_of(&bench.memory, before), tag_of(&bench.memory, after)), (0, tag));

    for (role, key, file) in bench.files.iter().filter(|(_, key, _)| key != thief) {
        let by = open(&bench.memory, file).unwrap();
        assert_eq!((by.role(), by.generation().unwrap()), (*role, tag));
        for id in [before, after] {
            assert_eq!(Desk::new(&by).session(id).unwrap().unwrap().host, "host", "{role:?}");
        }
        if *role == Role::Writer {
            assert_eq!(tag_of(&bench.memory, session(&by).unwrap()), tag);
        }
        // What the role reads of contents and trees, it reads of both generations.
        use drumlin_format::pack::PackKind::{Data, Tree};
        for kind in [Data, Tree] {
            assert_eq!(by.opens(kind, 0), by.opens(kind, tag), "{role:?} {kind:?} {key}");
        }
    }
    // Whoever opened it before goes on as he was.
    assert!(Desk::new(&stolen).session(before).unwrap().is_some());
    assert!(Desk::new(&stolen).session(after).unwrap().is_none(), "the thief's secrets open nothing new");
    // With all that he has, opened anew, by a program that doesn't ask whether his key was removed: he can't learn the
    // new ones.
    let kept = stolen.recovery_file().to_string();
    assert!(matches!(open(&bench.memory, &kept), Err(Error::RevokedKey { .. })));
    let his = MemoryStore::new();
    let own = format!("{}/{thief}", names::KEYS);
    for name in bench.names("").into_iter().filter(|name| !name.starts_with(&own)) {
        his.put(&name, &bench.memory.get(&name).unwrap(), Put::Create).unwrap();
    }
    let again = open(&his, &kept).unwrap();
    assert!(matches!(again.generation(), Err(Error::Generation { .. })));
    assert!(Desk::new(&again).session(after).unwrap().is_none() && again.secrets().generations.is_empty());
    assert!(again.secrets().wrapping_key().is_some(), "he has a pair, and was handed nothing");

    // Once more: both stay readable.
    let second = bench.owner().rekey(PLAIN).unwrap();
    assert_eq!((second.number, second.repository.generations().newest()), (2, 2));
    assert_ne!(second.repository.generation().unwrap(), tag);
    let last = session(&second.repository).unwrap();
    let keeper = open(&bench.memory, &bench.files[3].2).unwrap();
    assert!([before, after, last].iter().all(|id| Desk::new(&keeper).session(*id).unwrap().is_some()));
    let both = |number| [names::generation(number), names::generation_copy(number)];
    assert_eq!(bench.names(names::GENERATIONS), [both(1), both(2)].concat());
}

#[test]
fn small_objects_are_written_and_nothing_that_grows_is_read() {
    let bench = bench();
    for n in 0..50u8 {
        bench.memory.put(&format!("data/{n:02x}/{n:032x}"), &[n; 10_000], Put::Create).unwrap();
    }
    let store = RecordStore::new(bench.memory.clone());
    let log = store.log();
    let owner = Repository::open(Arc::new(store), &Unlock::File(bench.owner.clone())).unwrap();
    log.take();
    owner.rekey(PLAIN).unwrap();
    let writes: Vec<_> = log
        .writes()
        .iter()
        .map(|call| match call {
            Call::Put { name, bytes, how } => {
                assert!(*bytes < 16 << 10, "{name}: {bytes} bytes");
                (name.clone(), *how)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    let copy = (names::generation_copy(1), Put::Replace);
    let [config, its_copy] = [names::CONFIG, names::CONFIG_COPY].map(|name| (name.to_owned(), Put::Replace));
    // The config's copy as it is first, to see whether it may be replaced.
    assert_eq!(writes, [its_copy.clone(), (names::generation(1), Put::Create), copy, its_copy, config]);
    let far = |call: &Call| match call {
        Call::Get { name, .. } | Call::ReadAt { name, .. } => {
            !name.starts_with(names::CONFIG) && !name.starts_with(names::KEYS) && !name.starts_with(names::GENERATIONS)
        }
        Call::List { prefix, .. } => prefix != names::KEYS && prefix != names::GENERATIONS,
        _ => false,
    };
    assert!(!log.calls().iter().any(far), "{:?}", log.calls());
}

#[test]
fn new_keys_and_recovery_files_know_all_of_it_by_themselves() {
    let bench = bench();
    let early = bench.owner().recovery_file().to_string();
    let first = session(&bench.owner()).unwrap();
    let owner = bench.owner().rekey(PLAIN).unwrap().repository;
    let second = session(&owner).unwrap();
    let late = owner.recovery_file().to_string();
    for (role, secret) in ROLES.into_iter().zip(40..) {
        let key = owner.add_key(role, &NewLock::File(Secret::new([secret; 32])), role.name(), 60).unwrap();
        let by = open(&bench.memory, &file(&owner, key, secret)).unwrap();
        assert_eq!(by.generation().unwrap(), owner.generation().unwrap());
        assert!([first, second].iter().all(|id| Desk::new(&by).session(*id).unwrap().is_some()), "{role:?}");
        assert!(by.list_keys().unwrap().iter().any(|info| info.id == key && info.label == role.name()));
        by.relock(&NewLock::File(Secret::new([secret + 9; 32]))).unwrap();
        let by = open(&bench.memory, &file(&owner, key, secret + 9)).unwrap();
        assert_eq!(by.generation().unwrap(), owner.generation().unwrap());
    }
    // The next one is handed to them, too.
    let owner = bench.owner().rekey(PLAIN).unwrap();
    assert_eq!(owner.given.len(), 9);
    // One of before finds it in the repository, one of after has it in itself.
    for (text, alone) in [(&early, false), (&late, true)] {
        let by = open(&bench.memory, text).unwrap();
        assert_eq!(by.generation().unwrap(), owner.repository.generation().unwrap());
        let bare = copy(&bench.memory);
        bench.names(names::GENERATIONS).iter().for_each(|name| bare.delete(name).unwrap());
        let by = open(&bare, text).unwrap();
        assert!(by.generation().is_err() && Desk::new(&by).session(first).unwrap().is_some());
        assert_eq!(Desk::new(&by).session(second).unwrap().is_some(), alone);
    }
}

/// The repository that a program of before made: its keys have no pairs.
fn lived() -> (MemoryStore, String, String) {
    let golden = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/v1-lived"));
    let memory = MemoryStore::new();
    let mut folders = vec![(golden.join("repository"), String::new())];
    while let Some((folder, prefix)) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let name = format!("{prefix}{}", entry.file_name().into_string().unwrap());
            match entry.file_type().unwrap().is_dir() {
                true => folders.push((entry.path(), name + "/")),
                false => memory.put(&name, &std::fs::read(entry.path()).unwrap(), Put::Create).unwrap(),
            }
        }
    }
    let text = |name| std::fs::read_to_string(golden.join(name)).unwrap();
    (memory, text("key-file.txt"), text("writer-key-file.txt"))
}

#[test]
fn keys_of_before_are_named_and_removed_only_if_wanted() {
    let (memory, owner_file, writer_file) = lived();
    let (owner, writer) = (open(&memory, &owner_file).unwrap(), open(&memory, &writer_file).unwrap());
    let recovery = owner.recovery_file().to_string();
    let before = copy(&memory);
    let names_of = |memory: &MemoryStore| {
        let mut all = Vec::new();
        memory.list("", &mut |listed| all.push((listed.name.clone(), memory.get(&listed.name).unwrap()))).unwrap();
        all.sort();
        all
    };
    let refused = owner.rekey(PLAIN).err().unwrap();
    assert!(matches!(&refused, Error::OldKeys(keys) if keys.len() == 1), "{refused}");
    assert!(refused.to_string().contains(&writer.secrets().key.to_string()), "{refused}");
    assert_eq!(names_of(&before), names_of(&memory), "nothing has changed");
    let (count, errors) = owner.snapshots().unwrap();
    assert!(!count.is_empty() && errors.is_empty());

    let done = owner.rekey(RekeyOptions { remove_old: true, ..PLAIN }).unwrap();
    assert_eq!((done.given.len(), done.removed.len()), (1, 1));
    assert!(matches!(open(&memory, &writer_file), Err(Error::RevokedKey { .. })));
    // The owner's key and its recovery file of before open it: they derive the pair that nobody had then.
    for text in [&owner_file, &recovery] {
        let again = open(&memory, text).unwrap();
        assert_eq!(again.generation().unwrap(), done.repository.generation().unwrap());
        assert_eq!(again.snapshots().unwrap().0.len(), count.len());
        session(&again).unwrap();
    }
    // A snapshot that is sealed anew is the same, signed by the same key, and the old secrets don't open it.
    let old = done.repository.older_snapshots().unwrap();
    assert!(!old.is_empty());
    let listed = done.repository.snapshots().unwrap().0;
    let resealed: Vec<_> =
        old.iter().filter(|id| done.repository.reseal_snapshot(**id, SessionId([9; 16])).unwrap()).collect();
    assert!(!resealed.is_empty());
    let now = done.repository.snapshots().unwrap().0;
    let told = |infos: &[drumlin_repo::SnapshotInfo]| -> Vec<_> {
        infos.iter().map(|info| (info.snapshot.clone(), info.trust)).collect()
    };
    assert_eq!(told(&listed), told(&now));
    // Who goes on with those is told of others as such.
    assert!(matches!(owner.snapshots(), Err(Error::Rekeyed { .. })));
    let (_, errors) = owner.snapshots_so_far(&[]).unwrap();
    assert_eq!(errors.len(), resealed.len(), "{errors:?}");
    assert!(errors.iter().all(Error::is_unknown_generation));
}

#[test]
fn only_an_owner_rekeys_and_not_by_a_key_that_was_removed() {
    let bench = bench();
    for (role, _, file) in &bench.files[1..] {
        let refused = open(&bench.memory, file).unwrap().rekey(PLAIN).err();
        assert!(matches!(refused, Some(Error::NotAllowed { .. })), "{role:?}");
    }
    let other = open(&bench.memory, &bench.files[0].2).unwrap();
    bench.owner().remove_key(other.secrets().key, 3).unwrap();
    assert!(matches!(other.rekey(PLAIN), Err(Error::RevokedKey { .. })));
    assert!(bench.names(names::GENERATIONS).is_empty());
}

/// A storage in which something happens right before an object below a name is put: once.
struct Meanwhile {
    inner: MemoryStore,
    prefix: &'static str,
    then: std::sync::Mutex<Option<Box<dyn FnOnce() + Send>>>,
}
impl Store for Meanwhile {
    fn location(&self) -> String {
        self.inner.location()
    }
    fn list(&self, prefix: &str, each: &mut dyn FnMut(drumlin_store::Listed)) -> drumlin_store::Result<()> {
        self.inner.list(prefix, each)
    }
    fn len(&self, name: &str) -> drumlin_store::Result<Option<u64>> {
        self.inner.len(name)
    }
    fn get(&self, name: &str) -> drumlin_store::Result<Vec<u8>> {
        self.inner.get(name)
    }
    fn read_at(&self, name: &str, offset: u64, out: &mut [u8]) -> drumlin_store::Result<()> {
        self.inner.read_at(name, offset, out)
    }
    fn put(&self, name: &str, bytes: &[u8], how: Put) -> drumlin_store::Result<()> {
        if name.starts_with(self.prefix)
            && let Some(then) = self.then.lock().unwrap().take()
        {
            then();
        }
        self.inner.put(name, bytes, how)
    }
    fn upload(&self, name: &str, expected: u64) -> drumlin_store::Result<Box<dyn drumlin_store::Upload>> {
        self.inner.upload(name, expected)
    }
    fn delete(&self, name: &str) -> drumlin_store::Result<()> {
        self.inner.delete(name)
    }
    fn sync(&self) -> drumlin_store::Result<()> {
        self.inner.sync()
    }
}

/// Two owners at once: one of them is told, and whatever either had sealed by then stays readable.
#[test]
fn of_two_at_once_one_is_told() {
    let bench = bench();
    let (one, two) = (bench.owner(), open(&bench.memory, &bench.files[0].2).unwrap());
    let done = one.rekey(PLAIN).unwrap();
    let sealed = session(&done.repository).unwrap();
    // It opened the repository before, and has listed what there was.
    assert!(matches!(two.rekey(PLAIN), Err(Error::Rekeyed { .. })));

    // The other one does all of it between the last look and the put, or once the keys have been read, of which he has
    // removed one.
    let (mut generations, mut removed) = (2, vec![0, 1].into_iter());
    for prefix in [names::GENERATIONS, names::CONFIG_COPY] {
        let (inside, gone) = (bench.owner(), bench.files[removed.next().unwrap()].1);
        let then: Box<dyn FnOnce() + Send> = Box::new(move || {
            if prefix == names::CONFIG_COPY {
                inside.remove_key(gone, 4).unwrap();
            }
            drop(inside.rekey(PLAIN).unwrap());
        });
        let store = Meanwhile { inner: bench.memory.clone(), prefix, then: std::sync::Mutex::new(Some(then)) };
        let slow = Repository::open(Arc::new(store), &Unlock::File(bench.owner.clone())).unwrap();
        let refused = slow.rekey(PLAIN).err().unwrap();
        assert!(refused.to_string().contains("another owner"), "{refused}");
        generations += 2;
        assert_eq!(bench.names(names::GENERATIONS).len(), generations, "{prefix}");
    }
    let by = open(&bench.memory, &bench.files[3].2).unwrap();
    assert!(Desk::new(&by).session(sealed).unwrap().is_some());
    assert_eq!(by.generations().newest(), 3);
}

/// As long as the config tells of none, what is there may be what a killed run has left. One that has come since the
/// keys were read isn't.
#[test]
fn of_two_at_once_the_very_first_is_seen_too() {
    let bench = bench();
    let gone = bench.files[0].1;
    let faults = FaultStore::new(bench.memory.clone());
    faults.faults().add(When::op(Op::Put).named(names::CONFIG), Fault::Fail(Kind::Io));
    let other = Repository::open(Arc::new(faults), &Unlock::File(bench.owner.clone())).unwrap();
    let then = move || {
        other.remove_key(gone, 4).unwrap();
        assert!(other.rekey(PLAIN).is_err());
    };
    let then = std::sync::Mutex::new(Some(Box::new(then) as Box<dyn FnOnce() + Send>));
    let store = Meanwhile { inner: bench.memory.clone(), prefix: names::CONFIG_COPY, then };
    let slow = Repository::open(Arc::new(store), &Unlock::File(bench.owner.clone())).unwrap();
    let refused = slow.rekey(PLAIN).err().unwrap();
    assert!(refused.to_string().contains("another owner"), "{refused}");
    assert_eq!(bench.names(names::GENERATIONS).len(), 2, "there is something for a key that was removed");
    // The next one goes by.
    bench.owner().rekey(PLAIN).unwrap();
}

/// Stopped at any call: nothing has happened, or all of it. The next one ends well, and whatever was sealed is read.
#[test]
fn stopped_at_every_call() {
    let bench = bench();
    let (memory, owner_file, _) = lived();
    for (memory, owner_file, options) in
        [(&bench.memory, &bench.owner, PLAIN), (&memory, &owner_file, RekeyOptions { remove_old: true, ..PLAIN })]
    {
        for again in [false, true] {
            let start = copy(memory);
            if again {
                open(&start, owner_file).unwrap().rekey(options).unwrap();
            }
            let old = session(&open(&start, owner_file).unwrap()).unwrap();
            let run = |memory: &MemoryStore, from: Option<u64>| {
                let store = FaultStore::new(memory.clone());
                let faults = store.faults();
                let owner = Repository::open(Arc::new(store), &Unlock::File(owner_file.clone())).unwrap();
                let first = faults.calls();
                if let Some(from) = from {
                    faults.add(When::any().skip(from).times(u64::MAX), Fault::Fail(Kind::Io));
                }
                let done = owner.rekey(options).map(|done| session(&done.repository));
                (done, faults.calls() - first)
            };
            let (done, calls) = run(&copy(&start), None);
            done.unwrap().unwrap();
            assert!(calls > 10, "{calls}");
            for from in 0..calls {
                let memory = copy(&start);
                let stopped = run(&memory, Some(from)).0;
                let newest = open(&memory, owner_file).unwrap().generations().newest();
                assert!(!matches!(stopped, Ok(Ok(_))) || newest > 0, "call {from}");
                let between = session(&open(&memory, owner_file).unwrap()).unwrap();
                let next = open(&memory, owner_file).unwrap().rekey(options).unwrap();
                assert!(next.number > newest, "call {from}");
                let after = session(&next.repository).unwrap();
                let by = open(&memory, owner_file).unwrap();
                for id in [old, between, after] {
                    assert!(Desk::new(&by).session(id).unwrap().is_some(), "call {from}");
                }
            }
        }
    }
}

/// A storage that gives back what there was before a rekey: whoever has seen it writes nothing with the old secrets.
#[test]
fn an_older_state_is_noticed_and_nothing_is_sealed_with_it() {
    let bench = bench();
    let before = copy(&bench.memory);
    let folder = tempfile::tempdir().unwrap();
    let seen = |memory: &MemoryStore, file: &str| {
        let repository = open(memory, file).unwrap();
        let kept = Arc::new(Memory::open(&repository, Some(folder.path())));
        repository.with_memory(kept)
    };
    let writer_file = &bench.files[2].2;
    bench.owner().rekey(PLAIN).unwrap();
    let writer = seen(&bench.memory, writer_file);
    assert!(writer.look_back(5, true).unwrap().is_empty());
    writer.memory().unwrap().save().unwrap();

    // The config as it was; the config and no object; another state as a whole.
    let with = |name: &str| {
        let store = copy(&bench.memory);
        store.put(name, &before.get(name).unwrap(), Put::Replace).unwrap();
        store
    };
    let dropped = copy(&bench.memory);
    dropped.delete(&names::generation(1)).unwrap();
    dropped.delete(&names::generation_copy(1)).unwrap();
    for (what, store) in [("config", with(names::CONFIG)), ("object", dropped), ("all", copy(&before))] {
        let writer = seen(&store, writer_file);
        let missing = writer.look_back(6, true).unwrap();
        assert_eq!(missing.generations, [1], "{what}");
        assert!(missing.to_string().contains("generation 1 of its secrets"), "{missing}");
        assert!(matches!(session(&writer), Err(Error::Generation { .. })), "{what}");
        assert!(matches!(writer.may_write(), Err(Error::Generation { .. })), "{what}");
        assert!(matches!(
            seen(&store, &bench.owner).rekey(PLAIN),
            Err(Error::Unexplained(_) | Error::Generation { .. })
        ));
        // Whoever has never seen the newer one takes the older for it.
        assert_eq!(session(&open(&store, writer_file).unwrap()).is_ok(), what != "object", "{what}");
    }
    // Another one under the same number, by an owner who was shown less.
    let other = copy(&before);
    open(&other, &bench.owner).unwrap().rekey(PLAIN).unwrap();
    assert_eq!(seen(&other, writer_file).look_back(7, true).unwrap().generations, [1]);
    // All as it should be, and a process that opened it before the rekey accuses nobody.
    let old = open(&before, writer_file).unwrap();
    let kept = Arc::new(Memory::open(&old, Some(folder.path())));
    drop(old);
    assert!(seen(&bench.memory, writer_file).look_back(8, true).unwrap().is_empty());
    drop(kept);
}

/// What others put in the place of generations is worth nothing.
#[test]
fn forged_generations_hand_nothing_out() {
    let bench = bench();
    let done = bench.owner().rekey(PLAIN).unwrap();
    let (tag, writer_file) = (done.repository.generation().unwrap(), &bench.files[2].2);
    let genuine = bench.memory.get(&names::generation(1)).unwrap();
    let thief = SigningKey::new(Secret::new([66; 32])).unwrap();
    let writer = open(&bench.memory, writer_file).unwrap();
    let half = || Some(LazyKey::new(Secret::new([67; 32])));
    let secrets = GenerationSecrets { number: 2, tag: 99, index: Secret::new([67; 32]), data: half(), meta: half() };
    let forged = |repository: RepositoryId, signing: &SigningKey| {
        let of = Origin { repository, suite: Suite::Aes256Gcm, created: 1 };
        let mut generation = Generation::new(of, &secrets).unwrap();
        let share = secrets.lessen(Role::Writer).unwrap();
        let pair = writer.secrets().wrapping_key().unwrap().public();
        let fresh = (&Secret::new([1; 32]), &Secret::new([2; 32]));
        generation.share(writer.secrets().key, &pair, &share, fresh).unwrap();
        generation.encode(signing)
    };
    let owner = bench.owner();
    let own = owner.secrets().owner_signing.as_ref().unwrap();
    let id = owner.config().id;
    for (what, number, bytes) in [
        ("signed by a thief", 2, forged(id, &thief)),
        ("of another repository", 2, forged(RepositoryId([9; 16]), own)),
        ("a copy under another number", 2, genuine.clone()),
        ("cut short", 2, forged(id, own)[..900].to_vec()),
        ("nothing", 7, Vec::new()),
    ] {
        let store = copy(&bench.memory);
        store.put(&names::generation(number), &bytes, Put::Create).unwrap();
        let by = open(&store, writer_file).unwrap();
        assert_eq!(by.generation().unwrap(), tag, "{what}");
        assert_eq!(by.generations().broken().len(), 1, "{what}");
        // The next one goes past it.
        let next = open(&store, &bench.owner).unwrap().rekey(PLAIN).unwrap();
        assert!(next.number != number && next.number >= 2, "{what}");
        assert_eq!(open(&store, writer_file).unwrap().generations().newest(), next.number);
    }
    // The newest damaged: what there is can be read, and nothing is sealed with older secrets.
    for bytes in [genuine[..500].to_vec(), Vec::new(), [&genuine[..700], &[genuine[700] ^ 1], &genuine[701..]].concat()]
    {
        let store = copy(&bench.memory);
        store.put(&names::generation(1), &bytes, Put::Replace).unwrap();
        // One is as good as two, and makes the other one anew.
        let by = open(&store, writer_file).unwrap();
        session(&by).unwrap();
        assert_eq!(by.generation_troubles().unwrap().len(), 1);
        assert_eq!((by.mend_generations().unwrap().put, by.mend_generations().unwrap().put), (1, 0));
        assert!(by.generation_troubles().unwrap().is_empty());
        for name in [names::generation(1), names::generation_copy(1)] {
            store.put(&name, &bytes, Put::Replace).unwrap();
        }
        let by = open(&store, writer_file).unwrap();
        let why = session(&by).unwrap_err();
        assert!(matches!(&why, Error::Generation { .. }) && why.to_string().contains(&names::generation(1)), "{why}");
        assert!(by.list_keys().is_ok());
    }
    assert!(matches!(Generation::decode(id, &owner.config().owner, 1, &genuine), Ok(g) if g.tag == tag));
}

/// An account that may add and not replace gives no new secrets: it would find that out when they are there.
#[test]
fn who_may_not_replace_changes_nothing() {
    let bench = bench();
    bench.owner().rekey(PLAIN).unwrap();
    let (before, config) = (bench.names(names::GENERATIONS), bench.memory.get(names::CONFIG).unwrap());
    for has_copy in [true, false] {
        if !has_copy {
            bench.memory.delete(names::CONFIG_COPY).unwrap();
        }
        let store = FaultStore::new(bench.memory.clone());
        // A copy that isn't there may be added.
        store.faults().add(When::op(Op::Put).named("config*").skip(u64::from(!has_copy)), Fault::Fail(Kind::Exists));
        let owner = Repository::open(Arc::new(store), &Unlock::File(bench.owner.clone())).unwrap();
        assert!(matches!(owner.rekey(PLAIN), Err(Error::Store(_))));
        let now = (bench.names(names::GENERATIONS), bench.memory.get(names::CONFIG).unwrap());
        assert_eq!(now, (before.clone(), config.clone()));
    }
    assert_eq!(bench.memory.get(names::CONFIG_COPY).unwrap(), config);
}

/// Until the config speaks of generations nobody looks for them.
#[test]
fn a_config_that_can_t_be_put_leaves_all_as_it_was() {
    let bench = bench();
    let before = bench.memory.get(names::CONFIG).unwrap();
    let store = FaultStore::new(bench.memory.clone());
    store.faults().add(When::op(Op::Put).named(names::CONFIG), Fault::Fail(Kind::Full));
    let owner = Repository::open(Arc::new(store), &Unlock::File(bench.owner.clone())).unwrap();
    assert!(owner.rekey(PLAIN).is_err());
    assert_eq!(bench.memory.get(names::CONFIG).unwrap(), before);
    // An object is there that nobody looks at, since the config speaks of none.
    assert_eq!(bench.names(names::GENERATIONS).len(), 2);
    let by = bench.owner();
    assert_eq!((by.generation().unwrap(), by.generations().iter().count()), (0, 0));
    assert_eq!(by.rekey(PLAIN).unwrap().number, 2);
    assert_eq!(bench.owner().generations().newest(), 2);
}
