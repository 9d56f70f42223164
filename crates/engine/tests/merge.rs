//! The new tree, merged from the old one and what has changed: in order, complete, and the old nodes taken over where
//! nothing in them is different.

mod common;

use common::{Bench, bench_in, quick_folder, settle, small};
use drumlin_engine::backup;
use drumlin_engine::monitor::{Change, Counters, Monitor, Problem, Quiet};
use drumlin_engine::select::open_reader;
use drumlin_format::snapshot::Snapshot;
use drumlin_repo::tree::{Cursor, LeafRef};
use drumlin_testkit::compare;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

fn leaves(bench: &Bench, snapshot: &Snapshot) -> Vec<LeafRef> {
    let reader = open_reader(&bench.repository, &bench.cache).unwrap();
    let mut cursor = Cursor::new(reader, snapshot.root).unwrap();
    std::iter::from_fn(|| cursor.next_leaf().unwrap()).collect()
}

/// Every entry, in the order in which the tree has them.
fn keys(bench: &Bench, snapshot: &Snapshot) -> Vec<(Vec<u8>, Vec<u8>)> {
    let reader = open_reader(&bench.repository, &bench.cache).unwrap();
    let cursor = Cursor::new(reader, None).unwrap();
    let mut keys = Vec::new();
    for child in leaves(bench, snapshot) {
        let leaf = cursor.leaf(&child).unwrap();
        assert_eq!(cursor.body(&child, &leaf).unwrap().contents.len(), leaf.len());
        keys.extend(leaf.iter().map(|(dir, name, _)| (dir.to_vec(), name.to_vec())));
    }
    keys
}

fn flat(bench: &Bench, files: u32) -> PathBuf {
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    for n in 0..files {
        fs::write(source.join(format!("n{n:06}")), n.to_string()).unwrap();
    }
    settle();
    source
}

/// The name of each leaf's first entry, as far as it is one of `flat`.
fn firsts(bench: &Bench, snapshot: &Snapshot) -> Vec<String> {
    let names = leaves(bench, snapshot).into_iter().map(|l| String::from_utf8(l.name).unwrap());
    let firsts: Vec<_> = names.filter(|n| n.starts_with('n') && n.len() == 7).collect();
    assert!(firsts.len() > 3, "{firsts:?}");
    firsts
}

/// What was taken over is what would have been made from scratch: so that equal trees are stored once, whatever they
/// were before.
#[track_caller]
fn as_from_scratch(bench: &Bench, source: &Path, snapshot: &Snapshot) {
    let options = backup::Options { parent: backup::Parent::None, ..common::options(&[source]) };
    let report = backup::backup(&bench.repository, &bench.cache, options, &Quiet::default()).unwrap();
    let (merged, scratch) = (leaves(bench, snapshot), leaves(bench, &report.snapshot.unwrap()));
    let same = merged.iter().zip(&scratch).filter(|(a, b)| a.node == b.node).count();
    // The first leaf has the directories above the source, whose times are anybody's.
    assert!(merged.len() == scratch.len() && same + 1 >= scratch.len(), "{same} of {} are the same", scratch.len());
}

#[track_caller]
fn whole(bench: &Bench, source: &Path, snapshot: &Snapshot, files: usize) {
    let keys = keys(bench, snapshot);
    assert!(keys.is_sorted_by(|a, b| a < b), "the tree is out of order");
    let root = snapshot.root.unwrap();
    assert_eq!((keys.len() as u64, root.sums.files), (root.sums.entries, files as u64));
    let target = bench.folder.path().join("target");
    as_from_scratch(bench, source, snapshot);
    let (_, monitor) = bench.restore(snapshot, source, &target);
    assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
    compare::assert_same(source, &target, &compare::Options { roots: false, flags: false, ..Default::default() });
    fs::remove_dir_all(target).unwrap();
}

#[test]
fn what_comes_right_before_or_behind_an_unchanged_leaf_has_its_place_there() {
    let bench = bench_in(quick_folder(), small());
    let source = flat(&bench, 4000);
    let first = bench.backup(&source).snapshot.unwrap();
    let firsts = firsts(&bench, &first);
    for (at, name) in firsts.iter().enumerate() {
        let number: u32 = name[1..].parse().unwrap();
        if at % 2 == 0 && number > 0 {
            // Between the last entry of one leaf and the first of the next, whose entries all stay.
            fs::write(source.join(format!("n{:06}+", number - 1)), "new").unwrap();
        } else {
            // The first of a leaf changes, the others stay.
            fs::write(source.join(name), "another").unwrap();
        }
    }
    settle();
    let report = bench.backup(&source);
    let new = firsts.iter().enumerate().filter(|(at, name)| at % 2 == 0 && *name != "n000000").count();
    assert_eq!((report.counts.new, report.counts.removed), (new as u64, 0));
    // The directory itself has changed as well.
    assert_eq!(report.counts.changed, (firsts.len() - new) as u64 + 1);
    whole(&bench, &source, &report.snapshot.unwrap(), 4000 + new);
}

#[test]
fn leaves_that_lose_their_ends_or_all_they_had() {
    let bench = bench_in(quick_folder(), small());
    let source = flat(&bench, 4000);
    let first = bench.backup(&source).snapshot.unwrap();
    let firsts = firsts(&bench, &first);
    let mut gone: Vec<u32> = Vec::new();
    let numbers: Vec<u32> = firsts.iter().map(|n| n[1..].parse().unwrap()).collect();
    for (at, number) in numbers.iter().enumerate() {
        match (at % 3, numbers.get(at + 1)) {
            (0, _) => gone.push(*number),
            (1, Some(next)) => gone.extend(*number..*next),
            _ => gone.extend(number.checked_sub(1).filter(|n| !gone.contains(n))),
        }
    }
    gone.sort_unstable();
    gone.dedup();
    gone.iter().for_each(|n| fs::remove_file(source.join(format!("n{n:06}"))).unwrap());
    settle();
    let report = bench.backup(&source);
    assert_eq!((report.counts.removed, report.counts.new), (gone.len() as u64, 0));
    whole(&bench, &source, &report.snapshot.unwrap(), 4000 - gone.len());
    // What was the end of the tree is followed by more, and then is the end again.
    fs::write(source.join("zzz"), "last").unwrap();
    settle();
    let report = bench.backup(&source);
    whole(&bench, &source, &report.snapshot.unwrap(), 4001 - gone.len());
    fs::remove_file(source.join("zzz")).unwrap();
    settle();
    let last = bench.backup(&source);
    assert_eq!(last.counts.removed, 1);
    whole(&bench, &source, &last.snapshot.unwrap(), 4000 - gone.len());
}

#[test]
fn a_change_leaves_the_leaves_that_it_does_not_touch_as_they_are() {
    let bench = bench_in(quick_folder(), small());
    let source = flat(&bench, 4000);
    let before = leaves(&bench, &bench.backup(&source).snapshot.unwrap());
    fs::write(source.join("n002000"), "another").unwrap();
    settle();
    let snapshot = bench.backup(&source).snapshot.unwrap();
    let after = leaves(&bench, &snapshot);
    assert_eq!(before.len(), after.len());
    let different = before.iter().zip(&after).filter(|(a, b)| a.node != b.node).count();
    assert_eq!(different, 1);
    as_from_scratch(&bench, &source, &snapshot);
}

/// Asks to stop once so many entries have been compared.
struct StopAfter {
    counters: Counters,
    left: AtomicU64,
}

impl Monitor for StopAfter {
    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn problem(&self, problem: &Problem) {
        panic!("{problem:?}");
    }

    fn wants_entries(&self) -> bool {
        true
    }

    fn entry(&self, _: Change, _: &[u8]) {
        let _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
    }

    fn stop(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }
}

#[test]
fn a_run_that_is_stopped_keeps_all_that_it_has_compared_and_the_next_goes_on_from_there() {
    // At some entry of a leaf; and, where each file has a directory of its own, right behind one.
    for (dirs, stop_at) in [(150, 100), (150, 170), (150, 333), (150, 1000), (150, 2500), (3000, 0)] {
        let bench = bench_in(quick_folder(), small());
        let source = bench.folder.path().join("source");
        for n in 0..3000 {
            let dir = source.join(format!("dir{:04}", n % dirs));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join(format!("file{n}")), n.to_string()).unwrap();
        }
        settle();
        let first = bench.backup(&source).snapshot.unwrap();
        let whole_tree = keys(&bench, &first);
        let stop_at = if stop_at > 0 {
            stop_at
        } else {
            let leaf = leaves(&bench, &first).into_iter().find(|l| l.name.starts_with(b"file")).unwrap();
            whole_tree.iter().position(|(dir, name)| (dir, name) == (&leaf.dir, &leaf.name)).unwrap() as u64
        };
        let monitor = StopAfter { counters: Counters::default(), left: AtomicU64::new(stop_at) };
        let options = common::options(&[&source]);
        let report = backup::backup(&bench.repository, &bench.cache, options, &monitor).unwrap();
        let partial = report.snapshot.unwrap();
        // Nothing had changed, so nothing was under way: what was compared is what is kept.
        let kept = keys(&bench, &partial);
        assert_eq!(kept.len() as u64, report.counts.entries);
        assert!(report.counts.entries >= stop_at && kept.len() < whole_tree.len());
        assert_eq!(kept, whole_tree[..kept.len()]);
        let reached = partial.partial.as_ref().unwrap();
        assert_eq!(kept.last(), Some(&(reached.dir.clone(), reached.name.clone())));

        let resumed = bench.backup(&source);
        assert_eq!((resumed.counts.unmodified, resumed.counts.removed), (whole_tree.len() as u64, 0));
        let resumed = resumed.snapshot.unwrap();
        assert_eq!(keys(&bench, &resumed), whole_tree);
        whole(&bench, &source, &resumed, 3000);
    }
}

#[test]
fn a_run_that_was_interrupted_twice_takes_up_where_the_better_one_got() {
    for stops in [[333, 1500], [1500, 333]] {
        let bench = bench_in(quick_folder(), small());
        let source = bench.folder.path().join("source");
        for n in 0..3000 {
            let dir = source.join(format!("dir{:03}", n / 20));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join(format!("file{n}")), n.to_string()).unwrap();
        }
        settle();
        let whole_tree = keys(&bench, &bench.backup(&source).snapshot.unwrap());
        for stop_at in stops {
            let monitor = StopAfter { counters: Counters::default(), left: AtomicU64::new(stop_at) };
            let options = common::options(&[&source]);
            let report = backup::backup(&bench.repository, &bench.cache, options, &monitor).unwrap();
            assert!(report.snapshot.unwrap().partial.is_some());
            assert_eq!((report.counts.removed, report.counts.bytes_read), (0, 0));
        }
        let resumed = bench.backup(&source);
        assert_eq!((resumed.counts.bytes_read, resumed.counts.removed), (0, 0), "{stops:?}");
        assert_eq!(keys(&bench, &resumed.snapshot.unwrap()), whole_tree);
    }
}
