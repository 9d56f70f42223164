//! Any tree, backed up and restored, is the same tree.

mod common;

use common::{bench, settle, user};
use drumlin_testkit::{compare, tree};
use std::fs;

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
    let _ = tree::unprotect(&source);
    let _ = tree::unprotect(&target);
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
