//! Measures the operations that only read on a tree of three million entries:
//! `read_ops FOLDER build`, then `read_ops FOLDER ls|du|find|diff|stats|dump`. Each prints seconds and the peak of
//! memory; `dump` streams a file of a gibibyte that doesn't compress.

use drumlin_engine::backup::{self, Compression, Parent, Source};
use drumlin_engine::list::Depth;
use drumlin_engine::monitor::Quiet;
use drumlin_engine::select::{TreePath, open_reader};
use drumlin_engine::{diff, du, dump, find, list, stats};
use drumlin_format::session::Session;
use drumlin_format::snapshot::{Snapshot, Summary};
use drumlin_format::tree::{Boundaries, Content, Data, Kind, Meta, Time};
use drumlin_format::{ChunkId, SnapshotId};
use drumlin_repo::collection::Registration;
use drumlin_repo::tree::{NameSource, Nodes, TreeWriter};
use drumlin_repo::{Cache, CreateOptions, Index, NewLock, Repository, Unlock, WriteSession};
use drumlin_seal::{Secret, checksum};
use drumlin_store::{LocalStore, Store};
use std::error::Error;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

const DIRS: u32 = 100_000;
const FILES_EACH: u32 = 29;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [folder, action] = &args[..] else {
        return Err("usage: read_ops FOLDER build|ls|du|find|diff|stats|dump".into());
    };
    let folder = Path::new(folder);
    let secret = Secret::new([7; 32]);
    if action == "build" {
        std::fs::create_dir_all(folder.join("store"))?;
        let store: Arc<dyn Store> = Arc::new(LocalStore::create(folder.join("store"))?);
        let (repository, key) =
            Repository::create(store, CreateOptions::default(), NewLock::File(secret.clone()), "measure", 0)?;
        std::fs::write(folder.join("key"), repository.key_file(key, &secret))?;
        let cache = Arc::new(Cache::open(&repository, Some(&folder.join("cache")), folder)?);
        build(&repository, &cache, 1, |_| false)?;
        build(&repository, &cache, 2, |n| n % 30_000 == 7)?;
        return save_stream(&repository, &cache);
    }
    let store: Arc<dyn Store> = Arc::new(LocalStore::open(folder.join("store"))?);
    let unlock = Unlock::File(std::fs::read_to_string(folder.join("key"))?);
    let repository = Repository::open(store, &unlock)?;
    let cache = Arc::new(Cache::open(&repository, Some(&folder.join("cache")), folder)?);
    let (infos, _) = repository.snapshots()?;
    let snapshots: Vec<Snapshot> = infos.into_iter().map(|i| i.snapshot).collect();
    let [old, new, stream] = &snapshots[..] else { return Err("build first".into()) };
    let reader = open_reader(&repository, &cache)?;
    let (root, monitor) = (TreePath::root(), Quiet::default());
    let start = Instant::now();
    match action.as_str() {
        "ls" => {
            let mut bytes = 0;
            let mut path = Vec::new();
            let sums = list::list(&reader, new.root, &root, Depth::All, &monitor, &mut |entry| {
                path.clear();
                entry.push_path(&mut path);
                bytes += path.len();
                Ok(ControlFlow::Continue(()))
            })?;
            println!("{} entries, {bytes} bytes of paths", sums.entries);
        }
        "du" => {
            for depth in [0, 1, 2, 128] {
                let (mut dirs, start) = (0, Instant::now());
                let sums = du::du(&reader, new.root, &root, depth, &monitor, &mut |_, _, _| {
                    dirs += 1;
                    Ok(ControlFlow::Continue(()))
                })?;
                println!("depth {depth}: {dirs} directories, {} bytes, {:?}", sums.bytes, start.elapsed());
            }
        }
        "find" => {
            for all in [&snapshots[..1], &snapshots[..2]] {
                let start = Instant::now();
                let options = find::Options { patterns: vec![b"*77.txt".to_vec()], ..find::Options::default() };
                let each = &mut |_: &Snapshot, _: &find::Match| Ok(ControlFlow::Continue(()));
                let report = find::find(&reader, all, &options, &monitor, each)?;
                println!("{} snapshots: {report:?}, {:?}", all.len(), start.elapsed());
            }
        }
        "diff" => {
            let each = &mut |_: &diff::Difference| Ok(ControlFlow::Continue(()));
            let options = diff::Options::default();
            println!("{:?}", diff::diff(&reader, old.root, new.root, &options, &monitor, each)?);
            println!("{:?}", start.elapsed());
            let all = diff::diff(&reader, None, new.root, &options, &monitor, each)?;
            println!("{} added", all.added.entries);
        }
        "stats" => println!("{:?}", stats::of_snapshots(&reader, &snapshots[2..], 2, &monitor)?),
        "dump" => {
            let path = TreePath::parse(b"stream")?;
            println!("{:?}", dump::dump_file(&reader, stream.root, &path, 2, &monitor, &mut std::io::sink())?);
        }
        _ => return Err("no such operation".into()),
    }
    println!("{:?}", start.elapsed());
    let status = std::fs::read_to_string("/proc/self/status")?;
    status.lines().filter(|l| l.starts_with("VmHWM")).for_each(|l| println!("{l}"));
    Ok(())
}

/// Numbers that don't compress.
struct Noise(u64);

impl Read for Noise {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        for piece in buf.chunks_mut(8) {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let word = (self.0 ^ self.0 >> 33).to_le_bytes();
            piece.copy_from_slice(&word[..piece.len()]);
        }
        Ok(buf.len())
    }
}

fn save_stream(repository: &Repository, cache: &Arc<Cache>) -> Result<(), Box<dyn Error>> {
    let reader = Box::new(Noise(1).take(1 << 30));
    let options = backup::Options {
        source: Source::Stream { name: b"stream".to_vec(), reader, outcome: Box::new(|| Ok(())) },
        host: "host".into(),
        user: "user".into(),
        tags: Vec::new(),
        time: None,
        parent: Parent::None,
        force: false,
        compression: Compression::Auto,
        workers: 2,
        walkers: 1.into(),
        late: drumlin_engine::LATE,
        memory: 128 << 20,
        checkpoint_bytes: 0,
        skip_unchanged: false,
        index: drumlin_repo::IndexMode::Exact,
        program: "measure".into(),
    };
    backup::backup(repository, cache, options, &Quiet::default())?;
    Ok(())
}

struct NoNames;

impl NameSource for NoNames {
    fn user(&mut self, _: u32) -> Option<Vec<u8>> {
        None
    }

    fn group(&mut self, _: u32) -> Option<Vec<u8>> {
        None
    }
}

fn build(
    repository: &Repository,
    cache: &Arc<Cache>,
    number: u8,
    changed: impl Fn(u32) -> bool,
) -> Result<(), Box<dyn Error>> {
    let registration = Registration::begin(repository, Session::new("host", "measure", 0))?;
    let index = Arc::new(Index::open(repository, cache.clone())?);
    let session = Arc::new(WriteSession::begin(registration, index, cache.clone()));
    let mut nodes = Nodes::new(session.clone(), repository.tree_ids().cloned().ok_or("a key that may write")?)?;
    let cutting = repository.secrets().cutting.clone().ok_or("a key that may write")?;
    let mut writer = TreeWriter::new(Boundaries::new(&cutting), Box::new(NoNames));
    let mut entry = |dir: &[u8], name: &[u8], kind: Kind, n: u32| {
        let sum = checksum(&(u64::from(n) << 8 | u64::from(kind == Kind::Dir)).to_le_bytes());
        let word = u64::from_le_bytes([sum[0], sum[1], sum[2], sum[3], sum[4], sum[5], sum[6], sum[7]]);
        let differs = i64::from(number) * i64::from(changed(n));
        let time = Time { sec: 1_700_000_000 + differs, nsec: word as u32 % 1_000_000_000 };
        let file = kind == Kind::File;
        let meta = Meta {
            kind,
            mode: 0o644,
            marks: 0,
            uid: 1000,
            gid: 1000,
            size: if file { 1 + word % 100_000 } else { 0 },
            mtime: time,
            ctime: time,
            btime: None,
            ino: u64::from(n) * 3,
            nlink: 1,
            filesystem: 0,
            rdev: 0,
        };
        let mut id = [0; 32];
        id[..16].copy_from_slice(&sum);
        id[16..].copy_from_slice(&checksum(&sum));
        let data = if file { Data::Chunk(ChunkId(id)) } else { Data::None };
        writer.push(&mut nodes, dir, name, &meta, Content { data, ..Content::default() })
    };
    entry(b"", b"data", Kind::Dir, 0)?;
    // A hundred directories of a thousand directories of files.
    let top = DIRS / 1000;
    (0..top).try_for_each(|a| entry(b"data", format!("d{a:03}").as_bytes(), Kind::Dir, a))?;
    for a in 0..top {
        let dir = format!("data\0d{a:03}");
        (0..1000).try_for_each(|b| entry(dir.as_bytes(), format!("e{b:03}").as_bytes(), Kind::Dir, a * 1000 + b))?;
        for b in 0..1000 {
            let dir = format!("{dir}\0e{b:03}");
            for n in 0..FILES_EACH {
                let number = (a * 1000 + b) * FILES_EACH + n;
                entry(dir.as_bytes(), format!("file-{number:07}.txt").as_bytes(), Kind::File, number)?;
            }
        }
    }
    let root = writer.finish(&mut nodes)?;
    nodes.flush()?;
    drop(nodes);
    session.flush()?;
    let snapshot = Snapshot {
        id: SnapshotId([number; 16]),
        session: session.id(),
        time: (i64::from(number), 0),
        host: "host".into(),
        user: "user".into(),
        paths: vec![b"/data".to_vec()],
        tags: Vec::new(),
        root,
        partial: None,
        parent: None,
        program: "measure".into(),
        summary: Summary::default(),
        plans: Vec::new(),
        original: None,
        passed_by: None,
    };
    session.put_snapshot(&snapshot)?;
    Arc::try_unwrap(session).map_err(|_| "the session is in use")?.commit(snapshot.id)?;
    println!("{:?}", root.map(|r| r.sums));
    Ok(())
}
