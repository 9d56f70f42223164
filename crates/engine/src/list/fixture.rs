//! Small repositories in memory for the tests of the operations that read.

use crate::backup::{self, Compression, Parent, Source, backup};
use crate::monitor::Quiet;
use drumlin_format::session::Session;
use drumlin_format::snapshot::{Root, Snapshot, Summary};
use drumlin_format::tree::{Boundaries, Content, Kind, Meta, Time, marks};
use drumlin_format::{SessionId, SnapshotId};
use drumlin_host::filter::Filter;
use drumlin_repo::collection::Registration;
use drumlin_repo::pack::Reader;
use drumlin_repo::tree::{NameSource, Nodes, TreeWriter};
use drumlin_repo::{Cache, CreateOptions, Index, NewLock, Repository, WriteSession, random_secret};
use drumlin_store::{Call, CallLog, MemoryStore, RecordStore};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// A repository, and its last snapshot.
pub(crate) struct Fixture {
    pub repository: Repository,
    pub cache: Arc<Cache>,
    pub store: MemoryStore,
    pub snapshots: Vec<Snapshot>,
    log: CallLog,
    _scratch: TempDir,
}

impl Fixture {
    /// An empty repository.
    pub fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let store = MemoryStore::new();
        let record = RecordStore::new(store.clone());
        let log = record.log();
        let lock = NewLock::File(random_secret().unwrap());
        let repository = Repository::create(Arc::new(record), CreateOptions::default(), lock, "test", 0).unwrap().0;
        let cache = Arc::new(Cache::open(&repository, None, scratch.path()).unwrap());
        Fixture { repository, cache, store, snapshots: Vec::new(), log, _scratch: scratch }
    }

    /// A fresh reader: nothing is cached.
    pub fn reader(&self) -> Arc<Reader> {
        crate::select::open_reader(&self.repository, &self.cache).unwrap()
    }

    /// The root of the last snapshot.
    pub fn root(&self) -> Option<Root> {
        self.snapshots.last().unwrap().root
    }

    /// Back up a folder.
    pub fn backup(&mut self, folder: &Path) -> &Snapshot {
        use std::os::unix::ffi::OsStrExt;
        let paths = vec![folder.as_os_str().as_bytes().to_vec()];
        let source = Source::Paths { paths, filter: Arc::new(Filter::none()), one_file_system: false };
        let options = backup::Options {
            source,
            host: "host".into(),
            user: "user".into(),
            tags: Vec::new(),
            time: None,
            parent: Parent::Latest,
            force: false,
            compression: Compression::Auto,
            workers: 2,
            walkers: 1.into(),
            late: crate::LATE,
            memory: 64 << 20,
            checkpoint_bytes: 0,
            skip_unchanged: false,
            index: drumlin_repo::IndexMode::Exact,
            program: "test".into(),
        };
        let report = backup(&self.repository, &self.cache, options, &Quiet::default()).unwrap();
        self.snapshots.push(report.snapshot.unwrap());
        self.snapshots.last().unwrap()
    }

    /// Write a tree of entries that have metadata alone, in any order; the directories above them are made up.
    pub fn write(&mut self, entries: &[(&str, u64)]) -> &Snapshot {
        self.write_as(entries, |_, _, _| ())
    }

    /// The same, with whatever is to be otherwise of an entry, by its name.
    pub fn write_as(&mut self, entries: &[(&str, u64)], adjust: impl Fn(&[u8], &mut Meta, &mut Content)) -> &Snapshot {
        let registration = Registration::begin(&self.repository, Session::new("host", "test", 0)).unwrap();
        let index = Arc::new(Index::open(&self.repository, self.cache.clone()).unwrap());
        let session = WriteSession::begin(registration, index, self.cache.clone());
        let id = session.id();
        let session = Arc::new(session);
        let mut nodes = Nodes::new(session.clone(), self.repository.tree_ids().unwrap().clone()).unwrap();
        let cutting = self.repository.secrets().cutting.clone().unwrap();
        let mut writer = TreeWriter::new(Boundaries::new(&cutting), Box::new(NoNames));
        for ((dir, name), (kind, size)) in sorted(entries) {
            let target = if kind == Kind::Symlink { b"elsewhere".to_vec() } else { Vec::new() };
            let (mut meta, mut content) = (meta(&name, kind, size), Content { target, ..Content::default() });
            adjust(&name, &mut meta, &mut content);
            writer.push(&mut nodes, &dir, &name, &meta, content).unwrap();
        }
        let root = writer.finish(&mut nodes).unwrap();
        nodes.flush().unwrap();
        drop(nodes);
        session.flush().unwrap();
        let snapshot = snapshot(id, self.snapshots.len() as u8, root);
        session.put_snapshot(&snapshot).unwrap();
        Arc::try_unwrap(session).unwrap_or_else(|_| panic!("the session is in use")).commit(snapshot.id).unwrap();
        self.snapshots.push(snapshot);
        self.snapshots.last().unwrap()
    }

    /// All entries of the last snapshot, straight from a cursor: path, size, whether it is a directory.
    pub fn entries(&self) -> Vec<(String, u64, bool)> {
        let mut cursor = drumlin_repo::tree::Cursor::new(self.reader(), self.root()).unwrap();
        let mut all = Vec::new();
        while let Some(child) = cursor.next_leaf().unwrap() {
            for (dir, name, meta) in cursor.leaf(&child).unwrap().iter() {
                let mut path = Vec::new();
                crate::select::push_path(dir, name, &mut path);
                let size = if meta.kind == Kind::File { meta.size } else { 0 };
                all.push((String::from_utf8_lossy(&path).into_owned(), size, meta.kind == Kind::Dir));
            }
        }
        all
    }

    /// How often `run` reads from tree packs (tables and blocks), with a reader that has cached nothing.
    pub fn tree_reads(&self, run: impl FnOnce(&Arc<Reader>)) -> usize {
        self.reads("tree/", run)
    }

    /// How often `run` reads from objects whose names begin so.
    pub fn reads(&self, prefix: &str, run: impl FnOnce(&Arc<Reader>)) -> usize {
        let reader = self.reader();
        self.log.take();
        run(&reader);
        let read = |call: &&Call| match call {
            Call::ReadAt { name, .. } | Call::Get { name, .. } => name.starts_with(prefix),
            _ => false,
        };
        self.log.calls().iter().filter(read).count()
    }
}

/// A repository with one tree of such entries.
pub(crate) fn tree_of(entries: &[(&str, u64)]) -> Fixture {
    let mut fixture = Fixture::new();
    fixture.write(entries);
    fixture
}

type Sorted = BTreeMap<(Vec<u8>, Vec<u8>), (Kind, u64)>;

/// In place of a size: it is a symbolic link. Behind what stands below it, that takes it for none.
pub const LINK: u64 = u64::MAX;

fn sorted(entries: &[(&str, u64)]) -> Sorted {
    let mut all = Sorted::new();
    for (path, size) in entries {
        let mut key = Vec::new();
        let mut parts = path.split('/').filter(|p| !p.is_empty()).peekable();
        while let Some(part) = parts.next() {
            let kind = match (parts.peek(), *size) {
                (Some(_), _) => (Kind::Dir, 0),
                (None, LINK) => (Kind::Symlink, 0),
                (None, size) => (Kind::File, size),
            };
            all.insert((key.clone(), part.into()), kind);
            key = drumlin_format::tree::join(&key, part.as_bytes());
        }
    }
    all
}

/// The times vary from name to name, or the tree would compress to nothing.
fn meta(name: &[u8], kind: Kind, size: u64) -> Meta {
    let [a, b, c, d, ..] = drumlin_seal::checksum(name);
    let time = Time { sec: 1_700_000_000, nsec: u32::from_le_bytes([a, b, c, d]) % 1_000_000_000 };
    Meta {
        kind,
        mode: 0o644,
        // There are no contents in these trees.
        marks: if kind == Kind::File { marks::CONTENTS_MISSING } else { 0 },
        uid: 1,
        gid: 2,
        size,
        mtime: time,
        ctime: Time { sec: time.sec, nsec: time.nsec ^ 0xff },
        btime: None,
        ino: 1,
        nlink: 1,
        filesystem: 0,
        rdev: 0,
    }
}

fn snapshot(session: SessionId, number: u8, root: Option<Root>) -> Snapshot {
    Snapshot {
        id: SnapshotId([number + 1; 16]),
        session,
        time: (1_700_000_000 + i64::from(number), 0),
        host: "host".into(),
        user: "user".into(),
        paths: vec![b"/".to_vec()],
        tags: Vec::new(),
        root,
        partial: None,
        parent: None,
        program: "test".into(),
        summary: Summary::default(),
        plans: Vec::new(),
        original: None,
        passed_by: None,
    }
}

struct NoNames;

impl NameSource for NoNames {
    fn user(&mut self, uid: u32) -> Option<Vec<u8>> {
        (uid == 1).then(|| b"one".to_vec())
    }

    fn group(&mut self, _: u32) -> Option<Vec<u8>> {
        None
    }
}
