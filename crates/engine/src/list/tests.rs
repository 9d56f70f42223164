use super::fixture::{Fixture, tree_of};
use super::*;
use crate::Error;
use crate::monitor::Quiet;
use drumlin_store::{Put, Store};

fn names(fixture: &Fixture, path: &str, depth: Depth) -> Result<Vec<String>> {
    let mut all = Vec::new();
    let path = TreePath::parse(path.as_bytes()).unwrap();
    let sums = list(&fixture.reader(), fixture.root(), &path, depth, &Quiet::default(), &mut |entry| {
        all.push(String::from_utf8_lossy(&entry.path()).into_owned());
        Ok(ControlFlow::Continue(()))
    })?;
    assert_eq!(sums.entries, all.len() as u64);
    Ok(all)
}

#[test]
fn one_level_all_levels_or_the_entry() {
    let fixture = tree_of(&[("/a/b/c", 1), ("/a/b/d/e", 2), ("/a/b!", 3), ("/a/b/d!/f", 4), ("/a/bb/g", 5), ("/z", 6)]);
    let of = |path, depth| names(&fixture, path, depth).unwrap();
    assert_eq!(of("/", Depth::Children), ["/a", "/z"]);
    assert_eq!(of("/", Depth::Itself), [""; 0]);
    assert_eq!(of("/a", Depth::Children), ["/a/b", "/a/b!", "/a/bb"]);
    assert_eq!(of("a/b/", Depth::Itself), ["/a/b"]);
    assert_eq!(of("/a/b", Depth::Children), ["/a/b/c", "/a/b/d", "/a/b/d!"]);
    assert_eq!(of("/a/b", Depth::All), ["/a/b/c", "/a/b/d", "/a/b/d!", "/a/b/d/e", "/a/b/d!/f"]);
    assert_eq!(of("/z", Depth::All), ["/z"]);
    assert_eq!(of("/z", Depth::Children), ["/z"]);
    let all: Vec<_> = fixture.entries().into_iter().map(|e| e.0).collect();
    assert_eq!(of("/", Depth::All), all);
    for missing in ["/a/c", "/y", "/z/x", "/a/b/c/d"] {
        assert!(
            matches!(names(&fixture, missing, Depth::Children), Err(Error::NoPath(p)) if p == missing),
            "{missing}"
        );
    }
    let empty = Fixture::new();
    let nothing =
        list(&empty.reader(), None, &TreePath::root(), Depth::All, &Quiet::default(), &mut |_| unreachable!());
    assert_eq!(nothing.unwrap(), Sums::default());
}

#[test]
fn a_deep_path_costs_its_depth() {
    let files: Vec<_> = (0..100_000).map(|n| (format!("/d/{:03}/f{n:06}", n / 100), 1)).collect();
    let fixture = tree_of(&files.iter().map(|(p, s)| (p.as_str(), *s)).collect::<Vec<_>>());
    let whole = fixture.tree_reads(|reader| {
        list(reader, fixture.root(), &TreePath::root(), Depth::All, &Quiet::default(), &mut |_| {
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
    });
    let one = fixture.tree_reads(|reader| {
        let path = TreePath::parse(b"/d/777").unwrap();
        let mut count = 0;
        list(reader, fixture.root(), &path, Depth::Children, &Quiet::default(), &mut |entry| {
            assert!(entry.name() >= &b"f077700"[..] && entry.name() < &b"f077800"[..]);
            count += 1;
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
        assert_eq!(count, 100);
    });
    // The pack's table, a block of inner nodes, the block of the directory's own leaf, and that of its contents, which
    // may lie across two.
    assert!(one <= 5 && whole > 2 * one, "{one} of {whole} reads");
}

#[test]
fn contents_come_when_asked_for() {
    let source = tempfile::tempdir().unwrap();
    std::fs::write(source.path().join("file"), b"some bytes").unwrap();
    std::os::unix::fs::symlink("to/there", source.path().join("link")).unwrap();
    let mut fixture = Fixture::new();
    fixture.backup(source.path());
    use std::os::unix::ffi::OsStrExt;
    let path = TreePath::parse(source.path().as_os_str().as_bytes()).unwrap();
    let mut seen = 0;
    list(&fixture.reader(), fixture.root(), &path, Depth::Children, &Quiet::default(), &mut |entry| {
        seen += 1;
        let content = entry.content()?;
        match entry.name() {
            b"link" => assert_eq!(&content.target[..], b"to/there"),
            _ => assert!(matches!(content.data, drumlin_format::tree::Data::Chunk(_))),
        }
        let own = drumlin_host::names::Names::new().user(entry.meta().uid);
        assert_eq!(entry.user(), own.as_deref());
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    assert_eq!(seen, 2);
}

#[test]
fn a_damaged_leaf_costs_its_entries_alone() {
    let files: Vec<_> = (0..60_000).map(|n| (format!("/d/f{n:06}"), 1)).collect();
    let fixture = tree_of(&files.iter().map(|(p, s)| (p.as_str(), *s)).collect::<Vec<_>>());
    // One byte amid the blocks, which begin with the leaves.
    let mut packs = Vec::new();
    fixture.store.list("tree", &mut |listed| packs.push(listed.name)).unwrap();
    let mut bytes = fixture.store.get(&packs[0]).unwrap();
    drumlin_testkit::wipe_parity(&mut bytes);
    bytes[40_000] ^= 1;
    fixture.store.put(&packs[0], &bytes, Put::Replace).unwrap();
    let monitor = Quiet::default();
    let path = TreePath::root();
    let sums =
        list(&fixture.reader(), fixture.root(), &path, Depth::All, &monitor, &mut |_| Ok(ControlFlow::Continue(())));
    let lost = monitor.counters().get().damaged;
    assert!(lost > 0 && lost < 30_000, "{lost}");
    assert_eq!(sums.unwrap().entries + lost, 60_001);
    assert!(monitor.problems().iter().all(|p| p.kind == ProblemKind::Damaged && p.path.starts_with(b"/d")));
}

#[test]
fn each_may_end_it() {
    let fixture = tree_of(&[("/a", 1), ("/b", 1), ("/c", 1)]);
    let mut count = 0;
    list(&fixture.reader(), fixture.root(), &TreePath::root(), Depth::All, &Quiet::default(), &mut |_| {
        count += 1;
        Ok(if count == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })
    .unwrap();
    assert_eq!(count, 2);
}
