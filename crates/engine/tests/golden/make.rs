//! Making the golden repositories: once, for a format version. A folder that is there already is left alone.

use crate::common::{options, settle};
use crate::expected::{Bytes, Entry, Expected, Key, Snapshot, Tree, scan};
use crate::{Golden, folder, object_hashes, recipe, stored};
use drumlin_engine::backup::{self, Compression, Options, Source};
use drumlin_engine::monitor::{Change, Counters, Monitor, Problem, Quiet};
use drumlin_format::config::ChunkSizes;
use drumlin_format::decision::{self, Verdict};
use drumlin_format::key::Role;
use drumlin_format::tree::Ref;
use drumlin_format::{KeyId, SessionId};
use drumlin_repo::{Cache, CreateOptions, NewLock, Repository, Trust, Unlock, names, random_id, random_secret};
use drumlin_seal::{PassphraseCost, Secret, Suite};
use drumlin_store::{Fault, FaultStore, Faults, Kind, LocalStore, Op, Put, Store, When};
use std::collections::BTreeMap;
use std::fs;
use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Its name is in the snapshots, so it is always the same.
const SOURCE: &str = "/tmp/drumlin-golden";
const PASSPHRASE: &str = "grüne Hügel, 7 Steine";
const START: i64 = 1_700_000_000;

/// A repository in the making.
struct Maker {
    name: &'static str,
    store: Arc<dyn Store>,
    faults: Faults,
    repository: Repository,
    owner: KeyId,
    caches: tempfile::TempDir,
    entries: Vec<Entry>,
}

impl Maker {
    fn new(name: &'static str, create: CreateOptions) -> Self {
        let to = folder(name);
        fs::create_dir(&to).unwrap_or_else(|e| panic!("{}: {e}: a golden repository is made once", to.display()));
        let store = FaultStore::new(LocalStore::create(to.join("repository")).unwrap());
        let faults = store.faults();
        let store: Arc<dyn Store> = Arc::new(store);
        let secret = random_secret().unwrap();
        let lock = NewLock::File(secret.clone());
        let (repository, owner) = Repository::create(store.clone(), create, lock, "owner", START).unwrap();
        let caches = tempfile::tempdir().unwrap();
        let maker = Maker { name, store, faults, repository, owner, caches, entries: Vec::new() };
        maker.keep("key-file.txt", &maker.repository.key_file(owner, &secret));
        maker.keep("recovery.txt", &maker.repository.recovery_file());
        let _ = fs::remove_dir_all(SOURCE);
        fs::create_dir(SOURCE).unwrap();
        maker
    }

    fn keep(&self, file: &str, text: &str) {
        fs::write(folder(self.name).join(file), text).unwrap();
    }

    fn add_key(&self, role: Role, label: &str, created: i64) -> (KeyId, Secret) {
        let secret = random_secret().unwrap();
        let id = self.repository.add_key(role, &NewLock::File(secret.clone()), label, created).unwrap();
        self.keep(&format!("{label}-key-file.txt"), &self.repository.key_file(id, &secret));
        (id, secret)
    }

    fn open(&self, unlock: &Unlock) -> Repository {
        Repository::open(self.store.clone(), unlock).unwrap()
    }

    fn backup(
        &self,
        by: &Repository,
        options: Options,
        monitor: &dyn Monitor,
    ) -> drumlin_engine::Result<backup::Report> {
        settle();
        let folder = self.caches.path().join(by.secrets().key.to_string());
        let cache = Arc::new(Cache::open(by, Some(&folder), self.caches.path()).unwrap());
        backup::backup(by, &cache, options, monitor)
    }

    /// A backup whose call to the store is refused: what is left is what a crash at this place leaves. Gives the
    /// session.
    fn crash(&self, by: &Repository, options: Options, op: Op, name: &str) -> SessionId {
        let sessions = || {
            let mut all = Vec::new();
            self.store.list(names::SESSIONS, &mut |l| all.push(l.name)).unwrap();
            all
        };
        let before = sessions();
        self.faults.add(When::op(op).named(name), Fault::Fail(Kind::Transient));
        assert!(self.backup(by, options, &Quiet::default()).is_err());
        self.faults.clear();
        let left = sessions().into_iter().find(|s| !before.contains(s)).unwrap();
        SessionId::parse(names::last(&left)).unwrap()
    }

    /// Take a state of the source down.
    fn record(&mut self, state: &str, tree: Tree) {
        self.entries.extend(tree.into_values().map(|entry| Entry { state: state.into(), ..entry }));
    }

    /// Write `expected.json`, and check that the repository is what it says.
    fn finish(mut self) {
        let _ = fs::remove_dir_all(SOURCE);
        let keys = self.repository.list_keys().unwrap();
        let label = |key: KeyId| keys.iter().find(|k| k.id == key).unwrap().label.clone();
        let (snapshots, errors) = self.repository.snapshots().unwrap();
        assert!(errors.is_empty());
        let snapshots = snapshots.iter().map(|info| {
            let s = &info.snapshot;
            let Trust::Signed(signer) = info.trust else { panic!("{:?}", info.trust) };
            Snapshot {
                id: s.id.to_string(),
                time: s.time,
                host: s.host.clone(),
                user: s.user.clone(),
                paths: s.paths.iter().cloned().map(Bytes).collect(),
                tags: s.tags.clone(),
                parent: s.parent.map(|p| p.to_string()),
                signer: label(signer),
                open_session: info.open_session,
                state: s.tags[0].clone(),
                until: s.partial.clone().map(|r| (Bytes(r.dir), Bytes(r.name))),
            }
        });
        let snapshots = snapshots.collect();
        let keys = keys.iter().map(|k| Key {
            label: k.label.clone(),
            role: k.role.name().into(),
            created: k.created,
            revoked: k.revoked,
            passphrase: k.passphrase,
        });
        let to = folder(self.name);
        // Where unfinished objects were; nobody needs it empty.
        let _ = fs::remove_dir(to.join("repository/tmp"));
        let expected = Expected {
            objects: object_hashes(&to.join("repository")),
            source: SOURCE.into(),
            keys: keys.collect(),
            snapshots,
            entries: shared(std::mem::take(&mut self.entries)),
        };
        // One entry a line, so that the file can be read.
        let mut json = serde_json::to_string(&expected).unwrap();
        for start in ["{\"path\":", "{\"id\":", "{\"label\":"] {
            json = json.replace(start, &format!("\n{start}"));
        }
        self.keep("expected.json", &(json + "\n"));
        drop(self.caches);
        Golden::load(self.name).check_all();
    }
}

/// Entries that both states have alike, once.
fn shared(entries: Vec<Entry>) -> Vec<Entry> {
    let mut by_path: BTreeMap<Vec<u8>, Vec<Entry>> = BTreeMap::new();
    entries.into_iter().for_each(|e| by_path.entry(e.path.0.clone()).or_default().push(e));
    let merged = by_path.into_values().map(|mut of_path| {
        let alike = |e: &Entry| Entry { state: String::new(), ..e.clone() };
        if let [a, b] = &of_path[..]
            && alike(a) == alike(b)
        {
            of_path = vec![alike(a)];
        }
        of_path
    });
    merged.flatten().collect()
}

fn options_at(hours: i64, state: &str, tags: &[&str]) -> Options {
    let mut all = vec![state.to_owned()];
    all.extend(tags.iter().map(|t| (*t).to_owned()));
    Options {
        host: "golden".into(),
        user: "maker".into(),
        tags: all,
        time: Some((START + hours * 3600, 123_456_789)),
        program: "drumlin, the first".into(),
        ..options(&[Path::new(SOURCE)])
    }
}

/// Asks to stop in the midst of the largest directory.
#[derive(Default)]
struct StopLate {
    counters: Counters,
    seen: AtomicU64,
}

impl Monitor for StopLate {
    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn problem(&self, problem: &Problem) {
        panic!("{problem:?}");
    }

    fn wants_entries(&self) -> bool {
        true
    }

    fn entry(&self, _: Change, path: &[u8]) {
        if path.ends_with(b"/many/0500") {
            // What comes before shall be stored by then.
            std::thread::sleep(std::time::Duration::from_millis(500));
            self.seen.store(1, Ordering::Relaxed);
        }
    }

    fn stop(&self) -> bool {
        self.seen.load(Ordering::Relaxed) > 0
    }
}

#[test]
#[ignore = "a golden repository is made once for a version of the format"]
fn make() {
    make_main();
    make_chacha();
}

fn make_main() {
    let mut maker = Maker::new("v1", CreateOptions::default());
    let cost = PassphraseCost { memory_kib: 64, passes: 1, lanes: 1 };
    let lock = NewLock::Passphrase(PASSPHRASE.into(), cost);
    maker.repository.add_key(Role::Owner, &lock, "passphrase, Füße & 石", START + 1).unwrap();
    maker.keep("passphrase.txt", &format!("{PASSPHRASE}\n"));
    let by_passphrase = maker.open(&Unlock::Passphrase(PASSPHRASE.into()));
    let (writer, writer_secret) = maker.add_key(Role::Writer, "writer", START + 2);
    let writer = maker.open(&Unlock::File(maker.repository.key_file(writer, &writer_secret).to_string()));
    maker.add_key(Role::Reader, "reader", START + 3);
    let (keeper, keeper_secret) = maker.add_key(Role::Keeper, "keeper", START + 4);
    let keeper = maker.open(&Unlock::File(maker.repository.key_file(keeper, &keeper_secret).to_string()));
    let (revoked, _) = maker.add_key(Role::Writer, "revoked", START + 5);
    maker.repository.remove_key(revoked, START + 6).unwrap();
    let owner = maker.repository.clone();
    assert_eq!(owner.secrets().key, maker.owner);

    let source = Path::new(SOURCE);
    let ends_node = |chunk: &[u8]| {
        let id = owner.data_id(chunk).unwrap();
        // As the last of so many refs as a node has at least.
        Ref::Chunk { id, len: chunk.len() as u64 }.ends_node(64)
    };
    recipe::first(source, &ends_node).unwrap();
    let tree = scan(source).unwrap();
    maker.record("first", tree);
    maker.backup(&owner, options_at(1, "first", &["whole", "première"]), &Quiet::default()).unwrap();

    recipe::second(source).unwrap();
    let tree = scan(source).unwrap();
    maker.record("second", tree);
    let partial = maker.backup(&owner, options_at(2, "second", &["partial"]), &StopLate::default()).unwrap();
    assert!(partial.stopped && partial.snapshot.unwrap().partial.is_some());
    let raw = Options { compression: Compression::None, ..options_at(3, "second", &["whole"]) };
    maker.backup(&writer, raw, &Quiet::default()).unwrap();

    // A writer that fell over between its commit and clearing up.
    let bytes = recipe::lines("stream", 150_000);
    let reader = Box::new(Cursor::new(bytes.clone()));
    let stream = Source::Stream { name: b"stream.sql".to_vec(), reader, outcome: Box::new(|| Ok(())) };
    let stream = Options { source: stream, compression: Compression::Level(19), ..options_at(4, "stream", &[]) };
    maker.crash(&by_passphrase, stream, Op::Delete, "sessions/*");
    let stored = Golden::stored(&owner, maker.caches.path());
    let (snapshots, _) = owner.snapshots().unwrap();
    let snapshot = &snapshots.last().unwrap().snapshot;
    let tree = stored::tree(&stored, snapshot, "", true);
    let entry = &tree[&b"stream.sql"[..]];
    assert_eq!((entry.size, &entry.blake3), (150_000, &Some(blake3::hash(&bytes).to_hex().to_string())));
    maker.record("stream", tree);

    // One that fell over before its commit and was evicted, and one on which nothing was decided.
    let session = maker.crash(&owner, options_at(5, "second", &["evicted"]), Op::Put, "decisions/*");
    let sealing = keeper.secrets().sealing(0, random_id().unwrap()).unwrap();
    let bytes = decision::seal(session, &Verdict::Evicted { plan: 1 }, keeper.config().suite, sealing);
    maker.store.put(&names::decision(session), &bytes, Put::Create).unwrap();
    maker.crash(&owner, options_at(6, "second", &["undecided"]), Op::Put, "decisions/*");
    maker.finish();
}

fn make_chacha() {
    let create = CreateOptions {
        suite: Suite::ChaCha20Poly1305,
        chunks: ChunkSizes { min: 1024, normal: 4096, max: 16384 },
        block_bytes: 16 << 10,
        pack_bytes: 64 << 10,
    };
    let mut maker = Maker::new("v1-chacha", create);
    let source = Path::new(SOURCE);
    recipe::small(source).unwrap();
    let tree = scan(source).unwrap();
    maker.record("first", tree);
    let owner = maker.repository.clone();
    let level = Options { compression: Compression::Level(1), ..options_at(1, "first", &[]) };
    maker.backup(&owner, level, &Quiet::default()).unwrap();
    maker.finish();
}
