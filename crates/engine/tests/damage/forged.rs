//! What somebody who may write has sealed, and is not so: chunks under others' names, places, files and sums that are
//! wrong. Nothing of it is restored.

use super::*;

#[test]
fn a_chunk_that_is_not_what_its_name_says_is_never_restored() {
    use drumlin_repo::pack::{BlockBuilder, Coder, Coding};
    use drumlin_repo::{Index, WriteSession};

    let bench = bench();
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    // The one small, the other of nearly a whole chunk.
    let right = [b"what the owner has".to_vec(), vec![7; 60_000]];
    // A writer claims to have them, and seals something else under their names.
    let registration = Registration::begin(&bench.repository, Session::new("liar", "backup", 0)).unwrap();
    let index = Arc::new(Index::open(&bench.repository, bench.cache.clone()).unwrap());
    let session = WriteSession::begin(registration, index, bench.cache.clone());
    let (mut block, mut coder) = (BlockBuilder::default(), Coder::new().unwrap());
    for (n, bytes) in right.iter().enumerate() {
        block.push(bench.repository.data_id(bytes).unwrap(), &vec![b'!'; bytes.len()]);
        fs::write(source.join(n.to_string()), bytes).unwrap();
    }
    session.data.append(&mut block, &mut coder, Coding::Raw).unwrap();
    session.flush().unwrap();
    session.abandon().unwrap();

    let report = bench.backup(&source);
    assert_eq!(report.counts.bytes_new, 0);
    let target = bench.folder.path().join("target");
    // In place, the files go another way: they are compared, and written in order.
    for _ in 0..2 {
        let (report, monitor) = bench.restore(report.snapshot.as_ref().unwrap(), &source, &target);
        assert_eq!(report.counts.damaged, 2, "{:?}", monitor.problems());
        for (n, bytes) in right.iter().enumerate() {
            assert_ne!(fs::read(target.join(n.to_string())).ok(), Some(vec![b'!'; bytes.len()]));
            fs::write(target.join(n.to_string()), "old").unwrap();
        }
    }
    assert_eq!(fs::read(target.join("0")).unwrap(), b"old", "damage never replaces what is there");
}

/// A writer's index object takes two chunks of a pack for one another: the pack is as it should be, and so is each
/// chunk in it.
#[test]
fn a_chunk_that_the_index_takes_for_another_is_never_restored() {
    use drumlin_format::index;
    use drumlin_format::pack::PackKind;
    use drumlin_format::{Header, IndexId, ObjectType};
    use drumlin_repo::pack::{BlockBuilder, Coder, Coding};
    use drumlin_repo::{Index, WriteSession, names};

    for elsewhere in [false, true] {
        let bench = bench();
        let source = bench.folder.path().join("source");
        fs::create_dir(&source).unwrap();
        (0..3u8).for_each(|n| fs::write(source.join(n.to_string()), vec![n; 2000 + usize::from(n)]).unwrap());
        settle();
        let snapshot = bench.backup(&source).snapshot.unwrap();
        let mut whole = objects(&bench.memory);
        let secrets = bench.repository.secrets();
        let truth = whole.keys().find(|name| kind(name) == "index").unwrap().clone();
        let id = IndexId::parse(names::last(&truth)).unwrap();
        let mut entries = index::open(id, &secrets.index, &whole[&truth]).unwrap().0;
        let entry = entries.iter_mut().find(|e| e.kind == PackKind::Data).unwrap();
        let (a, b) = (entry.table.chunks[0].id, entry.table.chunks[1].id);
        (entry.table.chunks[0].id, entry.table.chunks[1].id) = (b, a);
        if elsewhere {
            // Another pack has one of them as well, and an honest index object.
            let registration = Registration::begin(&bench.repository, Session::new("other", "backup", 0)).unwrap();
            let index = Arc::new(Index::open(&bench.repository, bench.cache.clone()).unwrap());
            let session = WriteSession::begin(registration, index, bench.cache.clone());
            let (mut block, mut coder) = (BlockBuilder::default(), Coder::new().unwrap());
            let right = (0..3u8).map(|n| vec![n; 2000 + usize::from(n)]);
            let right = right.into_iter().find(|bytes| bench.repository.data_id(bytes).unwrap() == a).unwrap();
            block.push(a, &right);
            session.data.append(&mut block, &mut coder, Coding::Raw).unwrap();
            session.flush().unwrap();
            session.abandon().unwrap();
            whole = objects(&bench.memory);
        }
        let id = IndexId([9; 16]);
        let header = Header::new(ObjectType::Index, bench.repository.config().suite, id.0);
        whole.insert(names::index(id), index::seal(&header, &entries, secrets.sealing(0, [3; 16]).unwrap()));
        whole.remove(&truth);

        let key = Unlock::File(bench.repository.recovery_file().to_string());
        let repository = Repository::open(Arc::new(copy(&whole)), &key).unwrap();
        let folder = bench.folder.path().join("other");
        fs::create_dir(&folder).unwrap();
        let cache = Arc::new(Cache::open(&repository, None, &folder).unwrap());
        let (target, monitor) = (folder.join("target"), Quiet::default());
        let mut options = common::restore_options(&snapshot, &target);
        options.subfolder = Some(source.as_os_str().as_encoded_bytes().to_vec());
        let report = restore::restore(&repository, &cache, options, &monitor).unwrap();
        // The pack's own table says where they are.
        assert_eq!(report.counts.damaged, 0, "{:?}", monitor.problems());
        for n in 0..3u8 {
            let [found, right] = [&target, &source].map(|folder| fs::read(folder.join(n.to_string())).unwrap());
            assert_eq!(found, right, "file {n}");
        }
    }
}

/// Contents of two chunks that are there and right, in a file that says it is something else as a whole, and in one
/// that says that a chunk is shorter than it is.
#[test]
fn a_file_whose_chunks_are_right_and_whose_whole_is_not_is_never_restored() {
    use drumlin_format::SnapshotId;
    use drumlin_format::snapshot::{Snapshot, Summary};
    use drumlin_format::tree::{Boundaries, Content, Data, Kind, Meta, Ref, Time};
    use drumlin_repo::pack::{BlockBuilder, Coder, Coding};
    use drumlin_repo::tree::{ListWriter, NameSource, Nodes, TreeWriter};
    use drumlin_repo::{Index, WriteSession, random_id};

    struct Nameless;
    impl NameSource for Nameless {
        fn user(&mut self, _: u32) -> Option<Vec<u8>> {
            None
        }
        fn group(&mut self, _: u32) -> Option<Vec<u8>> {
            None
        }
    }

    let bench = bench();
    let repository = &bench.repository;
    let registration = Registration::begin(repository, Session::new("liar", "backup", 0)).unwrap();
    let index = Arc::new(Index::open(repository, bench.cache.clone()).unwrap());
    let session = WriteSession::begin(registration, index, bench.cache.clone());
    let session = Arc::new(session);
    let ids = repository.data_ids().unwrap();
    let chunks = [vec![1; 1000], vec![2; 1000]];
    let (mut block, mut coder) = (BlockBuilder::default(), Coder::new().unwrap());
    let refs = chunks.each_ref().map(|bytes| {
        let id = repository.data_id(bytes).unwrap();
        block.push(id, bytes);
        Ref::Chunk { id, len: 1000 }
    });
    session.data.append(&mut block, &mut coder, Coding::Raw).unwrap();

    let mut nodes = Nodes::new(session.clone(), repository.tree_ids().unwrap().clone()).unwrap();
    let cutting = repository.secrets().cutting.as_ref().unwrap();
    let mut writer = TreeWriter::new(Boundaries::new(cutting), Box::new(Nameless));
    let time = Time { sec: 1000, nsec: 0 };
    let meta = Meta {
        kind: Kind::File,
        mode: 0o644,
        marks: 0,
        uid: 0,
        gid: 0,
        size: 2000,
        mtime: time,
        ctime: time,
        btime: None,
        ino: 1,
        nlink: 1,
        filesystem: 0,
        rdev: 0,
    };
    let whole = ids.id(&chunks.concat());
    let [first, Ref::Chunk { id, .. }] = refs else { unreachable!() };
    let short = [first, Ref::Chunk { id, len: 10 }];
    for (name, refs, whole, size) in
        [("long", short, whole, 1010), ("right", refs, whole, 2000), ("wrong", refs, ids.id(&chunks[0]), 2000)]
    {
        let mut list = ListWriter::default();
        refs.iter().for_each(|r| list.push(&mut nodes, *r).unwrap());
        let data = Data::List(list.finish(&mut nodes, whole).unwrap());
        let content = Content { data, ..Content::default() };
        writer.push(&mut nodes, b"", name.as_bytes(), &Meta { size, ..meta }, content).unwrap();
    }
    let root = writer.finish(&mut nodes).unwrap();
    nodes.flush().unwrap();
    drop(nodes);
    session.flush().unwrap();
    let snapshot = Snapshot {
        id: SnapshotId(random_id().unwrap()),
        session: session.id(),
        time: (0, 0),
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
        passed_by: Some(Vec::new()),
    };
    session.put_snapshot(&snapshot).unwrap();

    let target = bench.folder.path().join("target");
    let restore = || {
        let monitor = Quiet::default();
        let options = common::restore_options(&snapshot, &target);
        let report = restore::restore(repository, &bench.cache, options, &monitor).unwrap();
        assert_eq!((report.counts.damaged, monitor.problems().len()), (2, 2), "{:?}", monitor.problems());
        let wrong = monitor.problems().into_iter().find(|problem| problem.path.ends_with(b"wrong")).unwrap();
        assert!(wrong.cause.contains("as a whole"), "{wrong:?}");
        assert_eq!(fs::read(target.join("right")).unwrap(), chunks.concat());
    };
    restore();
    for name in ["wrong", "long"] {
        assert!(!target.join(name).exists(), "{name} was written all the same");
    }
    // What replaces another file goes another way.
    for name in ["right", "wrong", "long"] {
        fs::write(target.join(name), "old").unwrap();
    }
    restore();
    for name in ["wrong", "long"] {
        assert_eq!(fs::read(target.join(name)).unwrap(), b"old");
    }
}

/// What a restore has met is held against what the snapshot says it has: a part of the tree that was passed over
/// without a word would show so.
#[test]
fn a_tree_with_less_in_it_than_the_snapshot_says_is_told() {
    let bench = bench();
    let source = bench.folder.path().join("source");
    fs::create_dir_all(source.join("folder")).unwrap();
    fs::write(source.join("folder/file"), "file").unwrap();
    settle();
    let snapshot = bench.backup(&source).snapshot.unwrap();
    let restored = |entries: u64, files: u64, exclude: &[&str]| {
        let mut snapshot = snapshot.clone();
        let sums = &mut snapshot.root.as_mut().unwrap().sums;
        (sums.entries, sums.files) = (sums.entries + entries, sums.files + files);
        let target = bench.folder.path().join("target");
        let _ = fs::remove_dir_all(&target);
        let monitor = Quiet::default();
        let exclude = exclude.iter().map(|text| drumlin_host::filter::Pattern::flag(*text)).collect();
        let options = restore::Options { exclude, ..common::restore_options(&snapshot, &target) };
        let report = restore::restore(&bench.repository, &bench.cache, options, &monitor).unwrap();
        let causes: Vec<String> = monitor.problems().into_iter().map(|problem| problem.cause).collect();
        (report.counts.damaged, causes)
    };
    assert_eq!(restored(0, 0, &[]), (0, Vec::new()));
    for (entries, files) in [(1, 0), (0, 1)] {
        let (damaged, causes) = restored(entries, files, &[]);
        assert!(damaged == 1 && causes[0].contains("where the snapshot says"), "{causes:?}");
        assert_eq!(restored(entries, files, &["file"]), (0, Vec::new()), "of a part nobody knows");
    }
}
