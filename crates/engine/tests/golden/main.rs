//! Golden repositories: what version 1 of the format wrote must be read for ever.
//!
//! `tests/golden/` at the root of the checkout holds them, with their keys and with what was in them when they were
//! made. They are NEVER edited or made anew, whatever fails here: a failure means that today's code can't read what is
//! stored in the world. A later version of the format gets a folder of its own, made by `make` once: `cargo test -p
//! drumlin-engine --test golden -- --ignored make`.

#[path = "../common/mod.rs"]
mod common;
mod expected;
mod make;
mod recipe;
mod stored;

use crate::expected::{Entry, Expected, Tree, differences, scan, with_links_counted};
use drumlin_engine::backup;
use drumlin_engine::monitor::{ProblemKind, Quiet};
use drumlin_engine::restore;
use drumlin_format::index;
use drumlin_format::key::Role;
use drumlin_format::pack::Codec;
use drumlin_format::snapshot::Snapshot;
use drumlin_format::tree::Data;
use drumlin_format::{IndexId, SessionId};
use drumlin_repo::pack::Reader;
use drumlin_repo::{Cache, Error, Index, Repository, Trust, Unlock, names};
use drumlin_store::{LocalStore, ReadOnlyStore, Store};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const ALL: [&str; 2] = ["v1", "v1-chacha"];

fn folder(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden")).join(name)
}

/// The hashes of all files of a repository, by object names.
fn object_hashes(repository: &Path) -> BTreeMap<String, String> {
    let mut hashes = BTreeMap::new();
    let mut folders = vec![(repository.to_owned(), String::new())];
    while let Some((folder, prefix)) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{prefix}{}", entry.file_name().into_string().unwrap());
            if entry.file_type().unwrap().is_dir() {
                folders.push((entry.path(), name + "/"));
            } else {
                hashes.insert(name, blake3::hash(&fs::read(entry.path()).unwrap()).to_hex().to_string());
            }
        }
    }
    hashes
}

/// A golden repository, opened for reading alone, and what it shall give back.
struct Golden {
    name: &'static str,
    store: Arc<dyn Store>,
    expected: Expected,
    scratch: tempfile::TempDir,
}

impl Golden {
    fn load(name: &'static str) -> Self {
        let store = LocalStore::open(folder(name).join("repository")).unwrap();
        let expected = fs::read_to_string(folder(name).join("expected.json")).unwrap();
        Golden {
            name,
            store: Arc::new(ReadOnlyStore::new(store)),
            expected: serde_json::from_str(&expected).unwrap(),
            scratch: tempfile::tempdir().unwrap(),
        }
    }

    fn file(&self, file: &str) -> Unlock {
        Unlock::File(fs::read_to_string(folder(self.name).join(file)).unwrap())
    }

    fn passphrase(&self) -> Unlock {
        Unlock::Passphrase(fs::read_to_string(folder(self.name).join("passphrase.txt")).unwrap().trim_end().into())
    }

    fn open(&self, unlock: &Unlock) -> Repository {
        Repository::open(self.store.clone(), unlock).unwrap()
    }

    fn owner(&self) -> Repository {
        self.open(&self.file("key-file.txt"))
    }

    fn cache(repository: &Repository, scratch: &Path) -> Arc<Cache> {
        Arc::new(Cache::open(repository, None, scratch).unwrap())
    }

    /// What reads chunks of a repository.
    fn stored(repository: &Repository, scratch: &Path) -> Arc<Reader> {
        let cache = Golden::cache(repository, scratch);
        let index = Arc::new(Index::open(repository, cache.clone()).unwrap());
        Arc::new(Reader::new(repository.clone(), index, cache, 16 << 20))
    }

    fn source(&self, snapshot: &expected::Snapshot) -> &str {
        if snapshot.state == "stream" { "" } else { &self.expected.source }
    }

    /// The snapshots of a repository, which are those that are expected of it.
    fn snapshots(&self, repository: &Repository) -> Vec<(Snapshot, &expected::Snapshot)> {
        let (found, errors) = repository.snapshots().unwrap();
        assert!(errors.is_empty(), "{errors:?}");
        let keys = repository.list_keys().unwrap();
        assert_eq!(found.len(), self.expected.snapshots.len());
        let pairs = found.into_iter().zip(&self.expected.snapshots).map(|(info, expected)| {
            let (s, e) = (&info.snapshot, expected);
            assert_eq!((s.id.to_string(), s.time, &s.host, &s.user), (e.id.clone(), e.time, &e.host, &e.user));
            assert!(s.paths.iter().eq(e.paths.iter().map(|p| &p.0)));
            assert_eq!((&s.tags, s.parent.map(|p| p.to_string())), (&e.tags, e.parent.clone()));
            assert_eq!(info.open_session, e.open_session);
            let until = e.until.as_ref().map(|(dir, name)| (&dir.0, &name.0));
            assert_eq!(s.partial.as_ref().map(|r| (&r.dir, &r.name)), until);
            let Trust::Signed(signer) = info.trust else { panic!("{:?}", info.trust) };
            assert_eq!(keys.iter().find(|k| k.id == signer).unwrap().label, e.signer);
            (info.snapshot, expected)
        });
        pairs.collect()
    }

    fn check_objects(&self) {
        let found = object_hashes(&folder(self.name).join("repository"));
        assert!(found == self.expected.objects, "golden repositories are never edited: fetch {} again", self.name);
    }

    fn check_trees(&self, repository: &Repository) {
        let reader = Golden::stored(repository, self.scratch.path());
        for (snapshot, expected) in self.snapshots(repository) {
            let wanted = self.expected.tree(&expected.state, expected.until.as_ref());
            assert!(!wanted.is_empty());
            let found = stored::tree(&reader, &snapshot, self.source(expected), true);
            let differences = differences(&wanted, &found);
            assert!(differences.is_empty(), "{:?}: {differences:#?}", expected.tags);
        }
    }

    fn check_all(&self) {
        self.check_objects();
        self.check_trees(&self.owner());
    }
}

fn is_root() -> bool {
    fs::read_to_string("/proc/self/status").unwrap().lines().any(|l| l.starts_with("Uid:\t0\t"))
}

/// What a folder on this machine and for this user can be compared by.
fn comparable(mut tree: Tree) -> Tree {
    let whole = is_root();
    // What others than root can't make.
    tree.retain(|_, e| whole || !e.kind.contains("device"));
    for entry in tree.values_mut() {
        // Not every file system has them, nor holes of this size.
        entry.flags = 0;
        entry.holes.clear();
        entry.xattrs.clear();
        if !whole {
            *entry = Entry { uid: 0, gid: 0, mode: entry.mode & 0o777, ..entry.clone() };
        }
    }
    with_links_counted(tree)
}

#[test]
fn the_objects_are_those_that_were_made() {
    for name in ALL {
        Golden::load(name).check_objects();
    }
}

#[test]
fn every_key_opens_what_it_may() {
    let golden = Golden::load("v1");
    for unlock in [golden.file("key-file.txt"), golden.file("recovery.txt"), golden.passphrase()] {
        let repository = golden.open(&unlock);
        assert_eq!(repository.role(), Role::Owner);
        golden.snapshots(&repository);
        let found = repository.list_keys().unwrap();
        let found: Vec<_> = found
            .into_iter()
            .map(|k| expected::Key {
                label: k.label,
                role: k.role.name().into(),
                created: k.created,
                revoked: k.revoked,
                passphrase: k.passphrase,
            })
            .collect();
        assert_eq!(found, golden.expected.keys);
    }
    let writer = golden.open(&golden.file("writer-key-file.txt"));
    assert_eq!(writer.role(), Role::Writer);
    assert!(matches!(writer.snapshots(), Err(Error::NotAllowed { .. })));
    let reader = golden.open(&golden.file("reader-key-file.txt"));
    assert_eq!(reader.role(), Role::Reader);
    golden.check_trees(&reader);
    assert!(reader.may_write().is_err());
    // The keeper sees all but contents.
    let keeper = golden.open(&golden.file("keeper-key-file.txt"));
    assert_eq!(keeper.role(), Role::Keeper);
    let stored = Golden::stored(&keeper, golden.scratch.path());
    for (snapshot, expected) in golden.snapshots(&keeper) {
        let mut wanted = golden.expected.tree(&expected.state, expected.until.as_ref());
        wanted.values_mut().for_each(|e| *e = Entry { blake3: None, holes: Vec::new(), ..e.clone() });
        let found = stored::tree(&stored, &snapshot, golden.source(expected), false);
        assert_eq!(differences(&wanted, &found), Vec::<String>::new());
    }
    let revoked = Repository::open(golden.store.clone(), &golden.file("revoked-key-file.txt"));
    assert!(matches!(revoked, Err(Error::RevokedKey { .. })));
    let other = Repository::open(Golden::load("v1-chacha").store.clone(), &golden.file("key-file.txt"));
    assert!(matches!(other, Err(Error::OtherRepository { .. })));
}

#[test]
fn every_snapshot_lists_as_it_was_saved() {
    for name in ALL {
        let golden = Golden::load(name);
        for unlock in [golden.file("key-file.txt"), golden.file("recovery.txt")] {
            golden.check_trees(&golden.open(&unlock));
        }
    }
}

/// Restore, and compare the folder with what is expected.
fn restore_and_compare(golden: &Golden, repository: &Repository, snapshot: &Snapshot, expected: &expected::Snapshot) {
    let target = golden.scratch.path().join(&expected.id);
    let source = golden.source(expected);
    let monitor = Quiet::default();
    let mut options = common::restore_options(snapshot, &target);
    options.subfolder = (!source.is_empty()).then(|| source.as_bytes().to_vec());
    options.verify = true;
    let cache = Golden::cache(repository, golden.scratch.path());
    let report = restore::restore(repository, &cache, options, &monitor).unwrap();
    let wanted = golden.expected.tree(&expected.state, expected.until.as_ref());
    // Attributes that this file system lacks, and devices and owners that this user may not make, are told.
    let expects_trouble = |kind| kind == ProblemKind::Attribute || kind == ProblemKind::Unwritable && !is_root();
    let problems: Vec<_> = monitor.problems().into_iter().filter(|p| !expects_trouble(p.kind)).collect();
    assert!(problems.is_empty(), "{problems:#?}");
    assert_eq!(report.counts.damaged, 0);
    if is_root() {
        assert_eq!(report.counts.restored, wanted.len() as u64);
    }
    let found = scan(&target).unwrap();
    let whole = wanted.clone();
    let (wanted, comparable_found) = (comparable(wanted), comparable(found.clone()));
    let differences = differences(&wanted, &comparable_found);
    assert!(differences.is_empty(), "{:?}: {differences:#?}", expected.tags);
    for (path, entry) in &found {
        let path = path.escape_ascii();
        let wanted = &whole[&entry.path.0];
        // Whatever is there of what some systems don't have is right.
        for (name, value) in &entry.xattrs {
            assert_eq!(Some(value), wanted.xattrs.get(name), "{path}: {name:?}");
        }
        assert_eq!(entry.flags & !wanted.flags, 0, "{path}");
    }
    // On a system with holes, files of holes take no room.
    let probe = fs::File::create(golden.scratch.path().join("probe")).unwrap();
    probe.set_len(1 << 20).unwrap();
    if blocks(&golden.scratch.path().join("probe")) == 0 {
        for (path, entry) in whole.iter().filter(|(_, e)| !e.holes.is_empty()) {
            let data = entry.size - entry.holes.iter().map(|(_, len)| len).sum::<u64>();
            let takes = blocks(&target.join(std::str::from_utf8(path).unwrap())) * 512;
            assert!(takes <= data + (256 << 10), "{}: {takes} bytes for {data}", path.escape_ascii());
        }
    }
}

fn blocks(path: &Path) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(&fs::symlink_metadata(path).unwrap())
}

#[test]
fn every_snapshot_restores() {
    for name in ALL {
        let golden = Golden::load(name);
        let repository = golden.owner();
        for (snapshot, expected) in golden.snapshots(&repository) {
            restore_and_compare(&golden, &repository, &snapshot, expected);
        }
    }
}

/// A copy as a checkout makes it: files alone, none of the empty folders, no modes.
fn copy(golden: &Golden) -> Arc<dyn Store> {
    let to = golden.scratch.path().join("copy");
    for name in golden.expected.objects.keys() {
        let file = to.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, fs::read(folder(golden.name).join("repository").join(name)).unwrap()).unwrap();
    }
    Arc::new(LocalStore::open(to).unwrap())
}

#[test]
fn a_copy_takes_backups_and_stores_nothing_twice() {
    for (name, key, role) in [
        ("v1", "key-file.txt", Role::Owner),
        ("v1", "writer-key-file.txt", Role::Writer),
        ("v1-chacha", "recovery.txt", Role::Owner),
    ] {
        let golden = Golden::load(name);
        let owner = golden.owner();
        let snapshots = golden.snapshots(&owner);
        let (snapshot, expected) = snapshots.iter().rfind(|(_, e)| e.state != "stream").unwrap();
        restore_and_compare(&golden, &owner, snapshot, expected);
        let source = golden.scratch.path().join(&expected.id);

        let store = copy(&golden);
        let writer = Repository::open(store.clone(), &golden.file(key)).unwrap();
        assert_eq!(writer.role(), role);
        let cache = Golden::cache(&writer, golden.scratch.path());
        common::settle();
        let run = || backup::backup(&writer, &cache, common::options(&[&source]), &Quiet::default()).unwrap();
        let report = run();
        assert!(report.counts.chunks > 0);
        assert_eq!((report.counts.chunks_new, report.counts.bytes_new), (0, 0), "all of it was there");
        fs::write(source.join("new"), "not there before").unwrap();
        common::settle();
        let report = run();
        assert_eq!((report.counts.chunks_new, report.counts.bytes_new), (1, 16));

        // What was there is there as before, and what is new comes back.
        let owner = Repository::open(store, &golden.file("recovery.txt")).unwrap();
        let (now, errors) = owner.snapshots().unwrap();
        assert!(errors.is_empty(), "{errors:?}");
        assert_eq!(now.len(), snapshots.len() + 2);
        assert!(snapshots.iter().all(|(old, _)| now.iter().any(|info| info.snapshot == *old)));
        let latest = report.snapshot.unwrap();
        assert!(now.iter().any(|info| info.snapshot == latest && matches!(info.trust, Trust::Signed(_))));
        let stored = Golden::stored(&owner, golden.scratch.path());
        let tree = stored::tree(&stored, &latest, source.to_str().unwrap(), true);
        let mut wanted = comparable(scan(&source).unwrap());
        let mut found = comparable(tree);
        for tree in [&mut wanted, &mut found] {
            // A write to a directory changes its time, and another file system has other holes.
            tree.values_mut().for_each(|e| e.holes.clear());
        }
        assert_eq!(differences(&wanted, &found), Vec::<String>::new());
        golden.check_objects();
    }
}

/// The golden repositories are worth something only while they hold one of everything.
#[test]
fn every_form_of_object_is_there() {
    let mut suites = BTreeSet::new();
    let mut codecs = BTreeSet::new();
    let mut lists = BTreeSet::new();
    for name in ALL {
        let golden = Golden::load(name);
        let owner = golden.owner();
        suites.insert(owner.config().suite.number());
        let found = golden.store.list(names::INDEX, &mut |listed| {
            let id = IndexId::parse(names::last(&listed.name)).unwrap();
            let bytes = golden.store.get(&listed.name).unwrap();
            let (entries, _) = index::open(id, &owner.secrets().index, &bytes).unwrap();
            codecs.extend(entries.iter().flat_map(|e| &e.table.blocks).map(|b| b.codec as u8));
        });
        found.unwrap();
        let stored = Golden::stored(&owner, golden.scratch.path());
        for (snapshot, _) in golden.snapshots(&owner) {
            let root = drumlin_engine::select::TreePath::root();
            let all = drumlin_engine::list::Depth::All;
            let listed = drumlin_engine::list::list(&stored, snapshot.root, &root, all, &Quiet::default(), &mut |e| {
                match &e.content()?.data {
                    Data::List(list) => lists.insert(format!("list of level {}", list.level)),
                    Data::Chunk(_) => lists.insert("chunk".into()),
                    Data::None => lists.insert("none".into()),
                };
                Ok(ControlFlow::Continue(()))
            });
            listed.unwrap();
        }
    }
    assert_eq!(suites, [1, 2].into());
    assert_eq!(codecs, [Codec::Raw as u8, Codec::Zstd as u8, Codec::Padding as u8].into());
    let forms = ["chunk", "list of level 0", "list of level 1", "list of level 2", "none"];
    assert!(lists.iter().eq(forms), "{lists:?}");

    let golden = Golden::load("v1");
    let count = |folder: &str| golden.expected.objects.keys().filter(|n| n.starts_with(folder)).count();
    assert_eq!((count("sessions/"), count("decisions/"), count("snapshots/"), count("keys/")), (3, 2, 6, 6));
    let owner = golden.owner();
    golden
        .store
        .list(names::SESSIONS, &mut |listed| {
            let id = SessionId::parse(names::last(&listed.name)).unwrap();
            let bytes = golden.store.get(&listed.name).unwrap();
            let (session, _) = drumlin_format::session::Session::open(id, &owner.secrets().index, &bytes).unwrap();
            assert_eq!((&session.host[..], &session.purpose[..]), ("golden", "backup"));
        })
        .unwrap();
}
