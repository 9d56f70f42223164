//! Objects that are well made and wrong: by a writer that lies, or has a bug. Each seal opens and each signature holds.

use crate::bench::{assert_sound, check_plainly, finding, folder, objects, replaced, tiny_bench};
use crate::common::{Bench, settle};
use drumlin_engine::check::Part;
use drumlin_format::index::{self, Entry};
use drumlin_format::pack::PackKind;
use drumlin_format::snapshot::{Root, Snapshot, Summary};
use drumlin_format::tree::{Child, Inner, Sums};
use drumlin_format::{ChunkId, Header, IndexId, ObjectType, SnapshotId};
use drumlin_repo::collection::Registration;
use drumlin_repo::pack::{BlockBuilder, Coder, Coding};
use drumlin_repo::{Index, WriteSession, names};
use std::fs;
use std::sync::Arc;

fn session(bench: &Bench) -> WriteSession {
    let registration =
        Registration::begin(&bench.repository, drumlin_format::session::Session::new("liar", "backup", 0)).unwrap();
    let index = Arc::new(Index::open(&bench.repository, bench.cache.clone()).unwrap());
    WriteSession::begin(registration, index, bench.cache.clone())
}

fn snapshot(session: &WriteSession, node: ChunkId, level: u8) -> Snapshot {
    Snapshot {
        id: SnapshotId([1; 16]),
        session: session.id(),
        time: (0, 0),
        host: "host".into(),
        user: "user".into(),
        paths: vec![b"/".to_vec()],
        tags: Vec::new(),
        root: Some(Root { node, level, sums: Sums { entries: 7, ..Sums::default() } }),
        partial: None,
        parent: None,
        original: None,
        passed_by: None,
        program: "test".into(),
        summary: Summary::default(),
        plans: Vec::new(),
    }
}

#[test]
fn a_chunk_that_is_not_what_its_name_says() {
    let bench = tiny_bench();
    let (mut block, mut coder) = (BlockBuilder::default(), Coder::new().unwrap());
    let liar = session(&bench);
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    for n in 0..3u8 {
        let bytes = vec![n; 1000];
        fs::write(source.join(n.to_string()), &bytes).unwrap();
        // The second one is sealed under the name of something else.
        let sealed = if n == 1 { vec![b'!'; 1000] } else { bytes.clone() };
        block.push(bench.repository.data_id(&bytes).unwrap(), &sealed);
    }
    liar.data.append(&mut block, &mut coder, Coding::Raw).unwrap();
    liar.flush().unwrap();
    liar.abandon().unwrap();
    settle();
    assert_eq!(bench.backup(&source).counts.bytes_new, 0);
    assert_sound(&check_plainly(&bench.repository, None));
    let report = check_plainly(&bench.repository, Some(Part::All));
    let [found] = &report.findings[..] else { panic!("{:#?}", report.findings) };
    assert!(found.causes[0].contains("doesn't match its id"), "{found:#?}");
    let paths: Vec<_> = found.touched.iter().map(|t| String::from_utf8_lossy(&t.path)).collect();
    assert_eq!((found.chunks, &paths[..]), (1, &[source.join("1").to_str().unwrap().into()][..]));
}

#[test]
fn a_node_that_is_no_node_or_of_another_level() {
    let inner = Inner {
        level: 1,
        children: vec![Child {
            dir: Vec::new(),
            name: b"x".to_vec(),
            node: ChunkId([1; 32]),
            body: Some(ChunkId([2; 32])),
            sums: Sums::default(),
        }],
    };
    for (bytes, level) in [(b"no node at all".to_vec(), 1), (inner.encode(), 2)] {
        let bench = tiny_bench();
        let (mut block, mut coder) = (BlockBuilder::default(), Coder::new().unwrap());
        let liar = session(&bench);
        let id = ChunkId(bench.repository.tree_ids().unwrap().id(&bytes));
        block.push(id, &bytes);
        liar.tree.append(&mut block, &mut coder, Coding::Raw).unwrap();
        liar.flush().unwrap();
        let snapshot = snapshot(&liar, id, level);
        liar.put_snapshot(&snapshot).unwrap();
        liar.commit(snapshot.id).unwrap();
        let report = check_plainly(&bench.repository, None);
        let [found] = &report.findings[..] else { panic!("{:#?}", report.findings) };
        assert!(folder(&found.object) == "tree" && found.causes[0].contains(&id.to_string()), "{found:#?}");
        assert!(found.made_so && found.healed.is_none(), "nothing makes up for it: {found:#?}");
        assert_eq!((found.snapshots[0].id, found.snapshots[0].entries), (snapshot.id, Some(7)));
        assert_eq!((&found.touched[0].path[..], found.touched[0].entries), (&b"/"[..], 7));
    }
}

#[test]
fn a_tree_that_was_never_stored() {
    let bench = tiny_bench();
    let liar = session(&bench);
    let snapshot = snapshot(&liar, ChunkId([3; 32]), 1);
    liar.put_snapshot(&snapshot).unwrap();
    liar.commit(snapshot.id).unwrap();
    let report = check_plainly(&bench.repository, None);
    let found = finding(&report, "index").unwrap_or_else(|| panic!("{:#?}", report.findings));
    assert_eq!((found.snapshots[0].id, found.snapshots[0].entries), (snapshot.id, Some(7)));
}

/// An index object that says other things of a pack than the pack itself.
#[test]
fn an_index_object_that_lies_about_a_pack() {
    let bench = tiny_bench();
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    (0..10).for_each(|n| fs::write(source.join(n.to_string()), [n; 2000]).unwrap());
    settle();
    bench.backup(&source);
    let whole = objects(&bench.memory);
    let (recovery, secrets) = (bench.repository.recovery_file(), bench.repository.secrets());
    let truth = whole.keys().find(|name| folder(name) == "index").unwrap();
    let id = IndexId::parse(names::last(truth)).unwrap();
    let mut entries: Vec<Entry> = index::open(id, &secrets.index, &whole[truth]).unwrap().0;
    let entry = entries.iter_mut().find(|e| e.kind == PackKind::Data).unwrap();
    let pack = names::pack(entry.kind, entry.pack);
    entry.table.chunks.swap(0, 1);
    let (a, b) = (entry.table.chunks[0].id, entry.table.chunks[1].id);
    assert_ne!(a, b);
    let id = IndexId([9; 16]);
    let header = Header::new(ObjectType::Index, bench.repository.config().suite, id.0);
    let lie = index::seal(&header, &entries, secrets.sealing(0, [3; 16]).unwrap());
    // Beside the truth, the two contradict each other.
    let mut both = whole.clone();
    both.insert(names::index(id), lie);
    let report = check_plainly(&replaced(&whole, &both, &recovery), None);
    assert_eq!(report.findings.len(), 1, "{:#?}", report.findings);
    assert!(report.findings[0].causes[0].contains("contradicts"), "{:#?}", report.findings);
    // By itself, it is found out by the pack.
    both.remove(truth);
    let repository = replaced(&whole, &both, &recovery);
    assert_sound(&check_plainly(&repository, None));
    let report = check_plainly(&repository, Some(Part::All));
    let found = finding(&report, &pack).unwrap_or_else(|| panic!("{:#?}", report.findings));
    assert!(found.causes[0].contains("is not the one that its index object has"), "{found:#?}");
}
