//! What is dropped is noticed, what is removed lawfully is not: one by one, and in random orders of the steps of
//! several processes.

use super::judge::FoundKey;
use super::seen::{Ids, Seen, SeenKey};
use super::{Act, KeyTrouble, Memory, Missing, Trouble};
use crate::collection::{Board, Desk};
use crate::{CreateOptions, Error, NewLock, Repository, Unlock, names, random_id};
use drumlin_format::key::Role;
use drumlin_format::{HistoryId, IndexId, KeyId, SnapshotId};
use drumlin_seal::Secret;
use drumlin_store::{Call, Listed, MemoryStore, Put, RecordStore, Store, Upload};
use std::sync::{Arc, Mutex};

mod orders;

/// A repository, and who opens it with which key.
struct Bench {
    memory: MemoryStore,
    owner: Repository,
}

fn bench() -> Bench {
    let memory = MemoryStore::new();
    let lock = NewLock::File(Secret::new([1; 32]));
    let (owner, _) = Repository::create(Arc::new(memory.clone()), CreateOptions::default(), lock, "", 1).unwrap();
    Bench { memory, owner }
}

fn snapshot(n: u8) -> SnapshotId {
    SnapshotId([n; 16])
}

impl Bench {
    /// The same repository with a key of this role, by another store perhaps.
    fn by(&self, role: Role, store: Arc<dyn Store>) -> Repository {
        let secret = Secret::new([7; 32]);
        let key = self.owner.add_key(role, &NewLock::File(secret.clone()), "", 2).unwrap();
        Repository::open(store, &Unlock::File(self.owner.key_file(key, &secret).to_string())).unwrap()
    }

    /// A client that has seen nothing yet, and keeps nothing in a file.
    fn client(&self, role: Role) -> Repository {
        let repository = self.by(role, Arc::new(self.memory.clone()));
        let memory = Arc::new(Memory::open(&repository, None));
        repository.with_memory(memory)
    }

    fn put(&self, name: &str) {
        self.memory.put(name, name.as_bytes(), Put::Create).unwrap();
    }

    fn put_snapshots(&self, numbers: impl IntoIterator<Item = u8>) {
        numbers.into_iter().for_each(|n| self.put(&names::snapshot(snapshot(n))));
    }

    fn drop_object(&self, name: &str) {
        assert!(self.memory.len(name).unwrap().is_some(), "{name}");
        self.memory.delete(name).unwrap();
    }

    fn entries(&self) -> Vec<HistoryId> {
        self.owner.history_ids().unwrap().into_iter().map(|(id, _)| id).collect()
    }

    /// Everything as it is, to be put back later.
    fn copy(&self) -> Vec<(String, Vec<u8>)> {
        let mut names = Vec::new();
        self.memory.list("", &mut |listed| names.push(listed.name)).unwrap();
        names.into_iter().map(|name| (name.clone(), self.memory.get(&name).unwrap())).collect()
    }

    fn put_back(&self, copy: &[(String, Vec<u8>)]) {
        self.copy().iter().for_each(|(name, _)| self.memory.delete(name).unwrap());
        copy.iter().for_each(|(name, bytes)| self.memory.put(name, bytes, Put::Create).unwrap());
    }
}

fn look(client: &Repository) -> Missing {
    client.look_back(1000, true).unwrap()
}

#[track_caller]
fn sound(client: &Repository) {
    let missing = look(client);
    assert!(missing.is_empty(), "{missing}");
}

#[test]
fn each_dropped_object_is_noticed_by_who_has_seen_it() {
    let bench = bench();
    bench.put_snapshots(1..5);
    bench.put(&names::index(IndexId([9; 16])));
    let (old, new) = (bench.client(Role::Reader), bench.client(Role::Writer));
    sound(&old);
    bench.put_snapshots([5]);
    sound(&new);
    bench.drop_object(&names::snapshot(snapshot(5)));
    sound(&old);
    assert_eq!(look(&new).snapshots, [snapshot(5)], "only one has seen it");
    bench.drop_object(&names::index(IndexId([9; 16])));
    assert_eq!(look(&old).indexes, [IndexId([9; 16])]);
    assert!(look(&old).is_but_indexes() && !look(&new).is_but_indexes());
    assert_eq!(look(&old).last, 1000);
    new.accept_history(2000).unwrap();
    sound(&new);
    bench.put_snapshots([5]);
    sound(&new);
}

#[test]
fn what_is_removed_lawfully_is_gone_for_everybody() {
    let bench = bench();
    bench.put_snapshots(1..10);
    (101..110).for_each(|n| bench.put(&names::index(IndexId([n; 16]))));
    let clients = [Role::Owner, Role::Reader, Role::Writer, Role::Keeper].map(|role| bench.client(role));
    clients.iter().for_each(sound);
    clients[3].forget(&[snapshot(1), snapshot(2)]).unwrap();
    clients.iter().for_each(sound);
    Desk::new(&bench.owner).remove_indexes(&[IndexId([101; 16]), IndexId([102; 16])]).unwrap();
    clients.iter().for_each(sound);
    assert_eq!(bench.entries().len(), 2);
    // Neither of the entries may go, nor anything that is left.
    for entry in bench.entries() {
        bench.drop_object(&names::history(entry));
        assert_eq!(look(&clients[2]).entries, [entry]);
        assert!(matches!(clients[3].forget(&[snapshot(3)]), Err(Error::Unexplained(_))));
        clients.iter().for_each(|client| client.accept_history(1000).unwrap());
    }
    assert!(bench.memory.len(&names::snapshot(snapshot(3))).unwrap().is_some(), "nothing was removed");
}

#[test]
fn an_older_state_is_noticed() {
    let bench = bench();
    bench.put_snapshots(1..4);
    let client = bench.client(Role::Owner);
    sound(&client);
    let older = bench.copy();
    bench.owner.forget(&[snapshot(1)]).unwrap();
    bench.put_snapshots([4]);
    sound(&client);
    bench.put_back(&older);
    let missing = look(&client);
    assert_eq!((missing.snapshots.len(), missing.entries.len()), (1, 1), "{missing}");
    let error = client.refuse_unexplained(1).unwrap_err().to_string();
    assert!(error.contains("1 snapshot (04") && error.contains("1 entry of the history"), "{error}");
    let never = bench.client(Role::Reader);
    sound(&never);
}

#[test]
fn who_may_not_remove_explains_nothing() {
    let bench = bench();
    bench.put_snapshots(1..3);
    let (client, writer) = (bench.client(Role::Reader), bench.client(Role::Writer));
    sound(&client);
    assert!(matches!(writer.record(Act::now("forget"), &[snapshot(1)], &[]), Err(Error::NotAllowed { .. })));
    let mut entry = drumlin_format::history::Entry::new(HistoryId([3; 16]), "forget", 1);
    entry.snapshots = vec![snapshot(1)];
    let bytes = entry.seal(writer.config().suite, writer.sealing().unwrap());
    bench.memory.put(&names::history(entry.id), &bytes, Put::Create).unwrap();
    bench.put(&names::history(HistoryId([4; 16])));
    bench.drop_object(&names::snapshot(snapshot(1)));
    assert_eq!(look(&client).snapshots, [snapshot(1)], "a writer signed it");
    // A keeper's word counts, and after the key was revoked it still does.
    let keeper = bench.client(Role::Keeper);
    keeper.record(Act::now("forget"), &[snapshot(1)], &[]).unwrap();
    sound(&client);
    bench.owner.remove_key(keeper.secrets().key, 9).unwrap();
    sound(&client);
    sound(&bench.client(Role::Writer));
}

#[test]
fn keys_stay_and_stay_revoked() {
    let bench = bench();
    let doomed = bench.client(Role::Writer);
    let (key, name) = (doomed.secrets().key, names::key(doomed.secrets().key));
    let client = bench.client(Role::Reader);
    sound(&client);
    let before = bench.memory.get(&name).unwrap();
    bench.owner.remove_key(key, 9).unwrap();
    let revoked = bench.memory.get(&name).unwrap();
    let put = |bytes: &[u8]| bench.memory.put(&name, bytes, Put::Replace).unwrap();
    sound(&client);
    put(&before);
    assert_eq!(look(&client).keys, [(key, KeyTrouble::Unrevoked)]);
    put(&revoked);
    sound(&client);
    bench.drop_object(&name);
    sound(&client);
    put(&before);
    assert_eq!(look(&client).keys, [(key, KeyTrouble::Unrevoked)]);
    bench.drop_object(&name);
    bench.drop_object(&names::copy_of(&name));
    assert_eq!(look(&client).keys, [(key, KeyTrouble::Gone)]);
    assert_eq!(client.look_back(1, false).unwrap().keys, [(key, KeyTrouble::Gone)], "that takes no reading");
    put(&revoked[..revoked.len() - 1]);
    assert_eq!(look(&client).keys, [(key, KeyTrouble::Gone)]);
}

#[test]
fn another_config_and_another_certificate_are_noticed() {
    let id = [5; 16];
    let key = SeenKey { certificate: [1; 16], revoked: true };
    let seen = Seen { config: Some([1; 16]), keys: [(id, key)].into(), ..Seen::default() };
    let other = FoundKey { key: SeenKey { certificate: [2; 16], ..key }, dated: [3; 16] };
    let view = super::judge::View { config: [2; 16], keys: Some([(id, other)].into()), ..Default::default() };
    let (missing, next) = super::judge::judge(&seen, &view);
    assert!(missing.config && missing.keys == [(KeyId(id), KeyTrouble::Changed)]);
    assert_eq!((next.config, next.keys[&id].certificate), (Some([1; 16]), [1; 16]));
}

#[test]
fn what_was_remembered_of_a_certificate_with_its_time_is_believed_and_replaced() {
    let id = [5; 16];
    let seen = Seen { keys: [(id, SeenKey { certificate: [3; 16], revoked: true })].into(), ..Seen::default() };
    let found = FoundKey { key: SeenKey { certificate: [2; 16], revoked: true }, dated: [3; 16] };
    let view = super::judge::View { keys: Some([(id, found)].into()), ..Default::default() };
    let (missing, next) = super::judge::judge(&seen, &view);
    assert!(missing.keys.is_empty());
    assert_eq!(next.keys[&id].certificate, [2; 16]);
}

#[test]
fn a_prune_needs_a_whole_list_of_snapshots() {
    let bench = bench();
    bench.put_snapshots(1..4);
    let client = bench.client(Role::Owner);
    sound(&client);
    assert!(client.lists_all(&[1, 2, 3].map(snapshot), 1).unwrap());
    assert!(!client.lists_all(&[1, 3].map(snapshot), 1).unwrap(), "the listing was short, and the next one was not");
    bench.owner.forget(&[snapshot(2)]).unwrap();
    assert!(client.lists_all(&[1, 3].map(snapshot), 1).unwrap());
    bench.drop_object(&names::snapshot(snapshot(1)));
    assert!(matches!(client.lists_all(&[3].map(snapshot), 1), Err(Error::Unexplained(_))));
}

#[test]
fn a_checkpoint_that_its_writer_replaces_is_not_missed() {
    let bench = bench();
    bench.put(&names::session(drumlin_format::SessionId([1; 16])));
    bench.put(&names::index(IndexId::of(drumlin_format::SessionId([1; 16]), [7; 8])));
    bench.put(&names::index(IndexId([2; 16])));
    bench.put_snapshots([1]);
    let client = bench.client(Role::Writer);
    sound(&client);
    bench.drop_object(&names::snapshot(snapshot(1)));
    bench.drop_object(&names::index(IndexId::of(drumlin_format::SessionId([1; 16]), [7; 8])));
    sound(&client);
    bench.drop_object(&names::index(IndexId([2; 16])));
    assert_eq!(look(&client).indexes.len(), 1);
    // What a writer has made itself it knows.
    client.memory().unwrap().made(snapshot(4), &[IndexId([4; 16])]);
    let missing = look(&client);
    assert_eq!((missing.snapshots, missing.indexes.len()), (vec![snapshot(4)], 2));
}

/// A storage in which something is done when a folder is about to be listed for the first time.
struct Before {
    memory: MemoryStore,
    folder: &'static str,
    then: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Store for Before {
    fn location(&self) -> String {
        self.memory.location()
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed)) -> drumlin_store::Result<()> {
        if prefix == self.folder
            && let Some(then) = self.then.lock().unwrap().take()
        {
            then();
        }
        self.memory.list(prefix, each)
    }

    fn len(&self, name: &str) -> drumlin_store::Result<Option<u64>> {
        self.memory.len(name)
    }

    fn get(&self, name: &str) -> drumlin_store::Result<Vec<u8>> {
        self.memory.get(name)
    }

    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> drumlin_store::Result<()> {
        self.memory.read_at(name, offset, buf)
    }

    fn put(&self, name: &str, bytes: &[u8], how: Put) -> drumlin_store::Result<()> {
        self.memory.put(name, bytes, how)
    }

    fn upload(&self, name: &str, len_hint: u64) -> drumlin_store::Result<Box<dyn Upload>> {
        self.memory.upload(name, len_hint)
    }

    fn sync(&self) -> drumlin_store::Result<()> {
        self.memory.sync()
    }

    fn delete(&self, name: &str) -> drumlin_store::Result<()> {
        self.memory.delete(name)
    }
}

/// It ends, and removes them, between the listing that has them and that of the sessions: nothing tells then that they
/// were no more than that.
#[test]
fn checkpoints_of_a_writer_that_ends_under_a_look_are_not_missed() {
    let bench = bench();
    let session = drumlin_format::SessionId([1; 16]);
    let of_session =
        [names::index(IndexId::of(session, [7; 8])), names::snapshot(snapshot(1)), names::session(session)];
    of_session.iter().for_each(|name| bench.put(name));
    bench.put_snapshots([2]);
    bench.put(&names::index(IndexId([2; 16])));
    let memory = bench.memory.clone();
    let end = move || of_session.iter().for_each(|name| memory.delete(name).unwrap());
    let then = Mutex::new(Some(Box::new(end) as Box<dyn FnOnce() + Send>));
    let store = Before { memory: bench.memory.clone(), folder: names::SESSIONS, then };
    let repository = bench.by(Role::Writer, Arc::new(store));
    let client = repository.clone().with_memory(Arc::new(Memory::open(&repository, None)));
    sound(&client);
    assert!(bench.memory.len(&names::session(session)).unwrap().is_none(), "it has not ended");
    sound(&client);
    // What stands is remembered.
    bench.drop_object(&names::snapshot(snapshot(2)));
    bench.drop_object(&names::index(IndexId([2; 16])));
    let missing = look(&client);
    assert_eq!((missing.snapshots.len(), missing.indexes.len()), (1, 1));
}

#[test]
fn ten_years_of_daily_prunes_stay_small() {
    let bench = bench();
    let early = bench.client(Role::Reader);
    let count = || bench.owner.history_ids().unwrap();
    let mut written = 0;
    let (mut most, mut standing) = (0, std::collections::HashSet::new());
    for day in 0..3650 {
        let id = || random_id().unwrap();
        bench.owner.record(Act::now("forget"), &[SnapshotId(id())], &[]).unwrap();
        bench.owner.record(Act::now("prune"), &[], &[IndexId(id()), IndexId(id())]).unwrap();
        for (id, len) in count() {
            written += if standing.insert(id) { len } else { 0 };
        }
        most = most.max(count().len());
        if day % 500 == 0 {
            sound(&early);
        }
    }
    let bytes: u64 = count().iter().map(|(_, len)| len).sum();
    assert!(most <= 48, "{most} entries at once");
    // Ids of 3 objects a day, and of 2 entries.
    assert!(bytes < 3650 * 5 * 16 * 11 / 10, "{bytes} bytes");
    assert!(written < bytes * 16, "{written} bytes were written for {bytes}");
    let late = bench.client(Role::Writer);
    sound(&late);
    sound(&early);
    let remembered = early.memory().unwrap().read(|seen| (seen.gone.len(), seen.entries.len()));
    assert!(remembered.1 <= count().len() && remembered.0 > 3650 * 4, "{remembered:?}");
    bench.drop_object(&names::history(count()[0].0));
    assert_eq!(look(&early).entries.len(), 1);
    assert_eq!(look(&late).entries.len(), 1);
}

#[test]
fn a_look_at_what_is_known_is_four_listings() {
    let bench = bench();
    for n in 0..20_000u32 {
        let id = drumlin_seal::checksum(&n.to_le_bytes());
        bench.memory.put(&names::index(IndexId(id)), b"", Put::Create).unwrap();
        if n % 10 == 0 {
            bench.memory.put(&names::snapshot(SnapshotId(id)), b"", Put::Create).unwrap();
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let store = RecordStore::new(bench.memory.clone());
    let log = store.log();
    let repository = bench.by(Role::Writer, Arc::new(store));
    let open = || {
        let memory = Arc::new(Memory::open(&repository, Some(folder.path())));
        repository.clone().with_memory(memory)
    };
    let first = open();
    first.forget(&[]).unwrap_err();
    assert!(first.look_back(1, false).unwrap().is_empty());
    first.memory().unwrap().save().unwrap();
    let kept = first.memory().unwrap().path().unwrap().metadata().unwrap().len();
    assert!(kept < 22_000 * 16 + 500, "{kept}");
    let second = open();
    log.take();
    assert!(second.look_back(1, false).unwrap().is_empty());
    let calls = log.take();
    assert!(calls.iter().all(|call| matches!(call, Call::List { .. })) && calls.len() == 4, "{calls:?}");
    // Whoever has something new to remember asks who is at work; whoever has an entry to read, who may sign it.
    bench.put_snapshots([1]);
    bench.owner.record(Act::now("forget"), &[snapshot(1)], &[]).unwrap();
    assert!(second.look_back(1, false).unwrap().is_empty());
    let reads = log.take().iter().filter(|call| matches!(call, Call::Get { .. })).count();
    assert_eq!(reads, 2 * (1 + 2), "an entry and two keys, and once more: was what it names there before?");
}

#[test]
fn what_is_kept_comes_back() {
    let ids = |of: std::ops::Range<u8>| of.map(|n| [n; 16]).collect::<Ids>();
    let key = SeenKey { certificate: [3; 16], revoked: true };
    let seen = Seen {
        last: -5,
        config: Some([1; 16]),
        snapshots: ids(0..9),
        indexes: ids(3..4),
        entries: Ids::default(),
        gone: ids(7..60),
        keys: [([2; 16], key)].into(),
        generations: [(1, [5; 16]), (4, [6; 16])].into(),
    };
    // What another one has accepted meanwhile.
    let other = SeenKey { certificate: [9; 16], revoked: false };
    let accepted = Seen {
        config: Some([8; 16]),
        snapshots: ids(0..3),
        keys: [([2; 16], other)].into(),
        generations: [(1, [7; 16])].into(),
        ..seen.clone()
    };
    let mut own = Seen { snapshots: ids(0..10), ..seen.clone() };
    own.accept(&seen, &accepted);
    own.join(accepted.clone());
    let own_too = [0, 1, 2, 9].map(|n| [n; 16]).into_iter().collect::<Ids>();
    assert_eq!(own, Seen { snapshots: own_too, ..accepted });

    let bytes = seen.encode();
    assert_eq!(Seen::decode(&bytes, true), Some(seen.clone()));
    assert_eq!(Seen::decode(&Seen::default().encode(), true), Some(Seen::default()));
    // As it was written before there were generations: without their count, and without any.
    let bare = Seen { generations: Default::default(), ..seen.clone() };
    let mut before = bare.encode();
    let at = before.len() - 33 - 8;
    before.drain(at..at + 8);
    assert_eq!(Seen::decode(&before, false), Some(bare));
    for cut in 0..bytes.len() - 33 {
        assert_ne!(Seen::decode(&bytes[..cut], true), Some(seen.clone()), "{cut}");
    }
    let mut huge = bytes.clone();
    huge[25..33].copy_from_slice(&u64::MAX.to_le_bytes());
    assert_eq!(Seen::decode(&huge, true), None);
    let mut huge = bytes.clone();
    let at = huge.len() - 33 - 40 - 8;
    huge[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
    assert_eq!(Seen::decode(&huge, true), None, "a count of generations that lies");
    let (some, others) = (ids(1..200), (0..250).step_by(3).map(|n| [n; 16]).collect::<Ids>());
    let expected: Vec<_> = (1..200u8).filter(|n| n % 3 != 0).map(|n| [n; 16]).collect();
    assert_eq!(some.not_in(&others).copied().collect::<Vec<_>>(), expected);
}

#[test]
fn the_file_is_shared_and_its_loss_is_told_and_no_more() {
    let bench = bench();
    bench.put_snapshots(1..3);
    let folder = tempfile::tempdir().unwrap();
    let open = |repository: &Repository| {
        let memory = Arc::new(Memory::open(repository, Some(folder.path())));
        repository.clone().with_memory(memory)
    };
    let keep = |client: &Repository| client.memory().unwrap().save().unwrap();
    let path = Memory::open(&bench.owner, Some(folder.path())).path().unwrap().to_owned();
    // Two processes at once, with two keys: what either has seen is kept.
    let (one, two) = (open(&bench.owner), open(&bench.by(Role::Writer, Arc::new(bench.memory.clone()))));
    sound(&one);
    bench.put_snapshots([5]);
    sound(&two);
    keep(&two);
    let time = || path.metadata().unwrap().modified().unwrap();
    keep(&one);
    let after = time();
    let three = open(&bench.owner);
    sound(&three);
    keep(&three);
    assert_eq!(time(), after, "nothing is new");
    bench.drop_object(&names::snapshot(snapshot(5)));
    bench.drop_object(&names::snapshot(snapshot(1)));
    let four = open(&bench.owner);
    assert_eq!(look(&four).snapshots, [1, 5].map(snapshot));
    keep(&four);
    assert_eq!(look(&open(&bench.owner)).snapshots.len(), 2, "told until it is accepted");
    // One that is at work meanwhile doesn't take that back.
    let early = open(&bench.owner);
    assert_eq!(look(&early).snapshots.len(), 2);
    four.accept_history(5).unwrap();
    keep(&four);
    bench.put_snapshots([6]);
    early.memory().unwrap().made(snapshot(6), &[]);
    keep(&early);
    sound(&open(&bench.owner));
    bench.drop_object(&names::snapshot(snapshot(6)));
    let five = open(&bench.owner);
    assert_eq!(look(&five).snapshots, [snapshot(6)], "what it has made is remembered");
    // That the file is gone is nobody's word.
    let aside = path.with_extension("aside");
    std::fs::rename(&path, &aside).unwrap();
    five.memory().unwrap().made(snapshot(2), &[]);
    bench.put_snapshots([7]);
    look(&five);
    keep(&five);
    assert_eq!(look(&open(&bench.owner)).snapshots, [snapshot(6)], "it still knows");
    five.accept_history(6).unwrap();
    keep(&five);

    let bytes = std::fs::read(&path).unwrap();
    for bad in [&bytes[..7], &bytes[..40], &[&bytes[..50], &[bytes[50] ^ 1], &bytes[51..]].concat(), b"something else"]
    {
        std::fs::write(&path, bad).unwrap();
        let client = open(&bench.owner);
        assert!(matches!(client.memory().unwrap().trouble(), Some(Trouble::Useless(_))));
        sound(&client);
        keep(&client);
        assert!(open(&bench.owner).memory().unwrap().trouble().is_none());
    }
    // What can't be read now may say something yet: it is not written over.
    let aside = path.with_extension("aside");
    std::fs::rename(&path, &aside).unwrap();
    std::fs::create_dir(&path).unwrap();
    let client = open(&bench.owner);
    assert!(matches!(client.memory().unwrap().trouble(), Some(Trouble::Unread(_))));
    sound(&client);
    assert!(client.memory().unwrap().save().is_err());
    std::fs::remove_dir(&path).unwrap();
    std::fs::rename(&aside, &path).unwrap();
    assert_eq!(open(&bench.owner).memory().unwrap().trouble(), None);
    std::fs::remove_dir_all(folder.path()).unwrap();
    std::fs::write(folder.path(), "no folder").unwrap();
    let client = open(&bench.owner);
    sound(&client);
    assert!(client.memory().unwrap().save().is_err());
    std::fs::remove_file(folder.path()).unwrap();
}
