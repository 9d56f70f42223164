//! Any tree, backed up and restored, is the same tree.

mod common;

use common::{bench, options, settle, user};
use drumlin_engine::backup::{Options, Parent, backup};
use drumlin_engine::monitor::{Change, Counters, Monitor, Problem, Quiet};
use drumlin_engine::restore::restore;
use drumlin_testkit::{compare, tree};
use std::collections::HashSet;
use std::fs;
use std::sync::Mutex;
use std::thread::ThreadId;
use std::time::Duration;

fn same(a: &std::path::Path, b: &std::path::Path) {
    let differences = compare::trees(a, b, &compare::Options { roots: false, ..compare::Options::default() }).unwrap();
    assert!(differences.is_empty(), "{differences:#?}");
}

/// As an ordinary user: `ordinary_user.rs`.
#[test]
fn a_nasty_tree_comes_back_whole() {
    if user::needs_root("a_nasty_tree_comes_back_whole") {
        return;
    }
    let bench = bench();
    let (source, target) = (bench.folder.path().join("source"), bench.folder.path().join("target"));
    fs::create_dir(&source).unwrap();
    let _ends = (tree::Unprotect(&source), tree::Unprotect(&target));
    tree::nasty(&source, true).unwrap();
    settle();
    let snapshot = bench.backup(&source).snapshot.unwrap();
    let (report, monitor) = bench.restore(&snapshot, &source, &target);
    assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
    assert_eq!(report.counts.unwritable + report.counts.damaged + report.counts.attributes, 0);
    same(&source, &target);
    // A second run finds nothing changed and stores no data.
    settle();
    let again = bench.backup(&source);
    // The folders above the source are entries too, and the target was made in one of them: that counts for nothing.
    assert_eq!((again.counts.new, again.counts.changed, again.counts.bytes_new, again.counts.removed), (0, 0, 0, 0));
    assert_eq!(again.snapshot.unwrap().root, snapshot.root);
}

/// Where every open counts as late, everything that may be is read ahead; what is stored is the same to the bit.
#[test]
fn what_is_read_ahead_is_the_same_tree() {
    let bench = bench();
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    tree::random(&source, 7, 900).unwrap();
    for n in 0..700 {
        fs::write(source.join(format!("small {n}")), vec![n as u8; n]).unwrap();
    }
    settle();
    let root = |late| {
        let monitor = Quiet::default();
        let options = Options { parent: Parent::None, late, ..options(&[&source]) };
        let report = backup(&bench.repository, &bench.cache, options, &monitor).unwrap();
        assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
        (report.snapshot.unwrap().root.unwrap(), report.counts.new, report.counts.bytes_read)
    };
    // Of the folders above the times are stored, and other tests work in one of them.
    let same = (0..5).any(|_| root(Duration::from_secs(60)) == root(Duration::ZERO));
    assert!(same, "five times another tree");
}

/// Notes which threads have made files.
#[derive(Default)]
struct Hands(Quiet, Mutex<HashSet<ThreadId>>);

impl Monitor for Hands {
    fn counters(&self) -> &Counters {
        self.0.counters()
    }
    fn problem(&self, problem: &Problem) {
        self.0.problem(problem);
    }
    fn wants_entries(&self) -> bool {
        true
    }
    fn entry(&self, _: Change, _: &[u8]) {
        self.1.lock().unwrap().insert(std::thread::current().id());
    }
}

/// Where every file that is made counts as late, small ones are made by many threads; what comes out is the same.
#[test]
fn what_many_threads_make_is_the_same_tree() {
    let bench = bench();
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    tree::random(&source, 8, 600).unwrap();
    for n in 0..2000 {
        let folder = source.join(format!("folder {}", n % 7));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("small {n}")), vec![n as u8; n % 3000]).unwrap();
    }
    settle();
    let snapshot = bench.backup(&source).snapshot.unwrap();
    let [few, many] = [Duration::from_secs(60), Duration::ZERO].map(|late| {
        let target = bench.folder.path().join(format!("target {late:?}"));
        let monitor = Hands::default();
        let mut options = common::restore_options(&snapshot, &target);
        options.subfolder = Some(source.as_os_str().as_encoded_bytes().to_vec());
        options.late = late;
        let report = restore(&bench.repository, &bench.cache, options, &monitor).unwrap();
        assert!(monitor.0.problems().is_empty(), "{:?}", monitor.0.problems());
        assert_eq!(report.counts.entries, report.counts.restored);
        same(&source, &target);
        let hands = monitor.1.lock().unwrap().len();
        (report.counts.entries, report.counts.bytes_written, hands)
    });
    assert_eq!((few.0, few.1), (many.0, many.1));
    assert!(few.2 <= 4 && many.2 > 16, "{} and {} threads", few.2, many.2);
}

#[test]
fn random_trees_come_back_after_every_change() {
    for seed in 0..6 {
        println!("seed {seed}");
        let bench = bench();
        let source = bench.folder.path().join("source");
        fs::create_dir(&source).unwrap();
        tree::random(&source, seed, 600).unwrap();
        for step in 0..4 {
            settle();
            let report = bench.backup(&source);
            let snapshot = report.snapshot.unwrap();
            let target = bench.folder.path().join(format!("target-{step}"));
            let (report, monitor) = bench.restore(&snapshot, &source, &target);
            assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
            assert_eq!(report.counts.entries, report.counts.restored, "seed {seed} step {step}");
            same(&source, &target);
            // Onto an older state, in place, deleting what is not in the snapshot.
            if step > 0 {
                let old = bench.folder.path().join("target-0");
                let monitor = drumlin_engine::monitor::Quiet::default();
                let mut options = common::restore_options(&snapshot, &old);
                options.subfolder = Some(source.as_os_str().as_encoded_bytes().to_vec());
                options.delete = true;
                options.verify = true;
                let report =
                    drumlin_engine::restore::restore(&bench.repository, &bench.cache, options, &monitor).unwrap();
                assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
                assert!(report.counts.kept > 0 && report.verified > 0);
                same(&source, &old);
            }
            tree::mutate(&source, seed * 100 + step).unwrap();
        }
    }
}

/// On the way to a source, and where a source ends in a slash, a symlink stands for what it points to.
#[test]
fn sources_behind_symlinks_come_with_their_directories() {
    let bench = bench();
    let folder = bench.folder.path();
    fs::create_dir_all(folder.join("real/sub")).unwrap();
    fs::create_dir(folder.join("other")).unwrap();
    fs::write(folder.join("real/sub/file"), "it").unwrap();
    fs::write(folder.join("other/file"), "that").unwrap();
    rustix::fs::setxattr(folder.join("real"), "user.a", b"real", rustix::fs::XattrFlags::empty()).unwrap();
    rustix::fs::setxattr(folder.join("other"), "user.a", b"other", rustix::fs::XattrFlags::empty()).unwrap();
    std::os::unix::fs::symlink("real", folder.join("via")).unwrap();
    std::os::unix::fs::symlink("other", folder.join("slash")).unwrap();
    settle();
    let monitor = Quiet::default();
    let options = options(&[&folder.join("via/sub"), std::path::Path::new(&format!("{}/slash/", folder.display()))]);
    let report = backup(&bench.repository, &bench.cache, options, &monitor).unwrap();
    assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
    let target = folder.join("target");
    let (_, monitor) = bench.restore(&report.snapshot.unwrap(), folder, &target);
    assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
    assert_eq!(fs::read(target.join("via/sub/file")).unwrap(), b"it");
    assert_eq!(fs::read(target.join("slash/file")).unwrap(), b"that");
    for (name, value) in [("via", &b"real"[..]), ("slash", b"other")] {
        assert!(target.join(name).symlink_metadata().unwrap().is_dir());
        let mut found = [0; 16];
        let len = rustix::fs::getxattr(target.join(name), "user.a", &mut found).unwrap();
        assert_eq!(&found[..len], value);
    }
}

/// Folders that lead to sources have their group and its setgid before anything is made in them, and what is made
/// there inherits that: it is unlike what was made elsewhere, whichever comes first.
#[test]
fn what_lies_below_a_setgid_folder_keeps_its_group() {
    if user::needs_root("what_lies_below_a_setgid_folder_keeps_its_group") {
        return;
    }
    for (plain, shared) in [("a", "b"), ("b", "a")] {
        let bench = bench();
        let folder = bench.folder.path().join("source");
        let (plain, way) = (folder.join(plain), folder.join(shared));
        let below = way.join("dir");
        for dir in [&plain, &below] {
            fs::create_dir_all(dir).unwrap();
            (0..4).for_each(|n| fs::write(dir.join(format!("file{n}")), "x".repeat(n * 100)).unwrap());
            fs::create_dir(dir.join("sub")).unwrap();
        }
        std::os::unix::fs::chown(&way, None, Some(12345)).unwrap();
        fs::set_permissions(&way, std::os::unix::fs::PermissionsExt::from_mode(0o2775)).unwrap();
        settle();
        let monitor = Quiet::default();
        let report = backup(&bench.repository, &bench.cache, options(&[&plain, &below]), &monitor).unwrap();
        let target = bench.folder.path().join("target");
        let (_, monitor) = bench.restore(&report.snapshot.unwrap(), &folder, &target);
        assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
        same(&folder, &target);
    }
}
