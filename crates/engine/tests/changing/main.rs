//! Sources that change while they are backed up: told, counted apart, never fatal; what is kept restores, and the next
//! run gets it right.

#[path = "../common/mod.rs"]
mod common;
mod directories;
mod files;
mod leases;
mod mapped;

use common::{Bench, bench, settle, user};
use drumlin_engine::backup::{self, Report};
use drumlin_engine::list::{self, Depth};
use drumlin_engine::monitor::{Change, Counters, Counts, Monitor, Problem, ProblemKind, Quiet};
use drumlin_engine::select::{TreePath, open_reader};
use drumlin_format::snapshot::Snapshot;
use drumlin_format::tree::{Kind, Meta, marks};
use drumlin_testkit::{Rng, compare};
use std::collections::HashMap;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

type Action = Box<dyn FnOnce() + Send>;

/// Acts in the midst of a run: when an entry has been dealt with, or when so many bytes have been read.
#[derive(Default)]
struct Saboteur {
    counters: Counters,
    problems: Mutex<Vec<Problem>>,
    at: Mutex<HashMap<Vec<u8>, Action>>,
    read: Mutex<Option<(u64, Action)>>,
}

impl Saboteur {
    fn after(path: &Path, action: impl FnOnce() + Send + 'static) -> Self {
        let saboteur = Saboteur::default();
        saboteur.at.lock().unwrap().insert(path.as_os_str().as_bytes().to_vec(), Box::new(action));
        saboteur
    }

    fn after_bytes(bytes: u64, action: impl FnOnce() + Send + 'static) -> Self {
        Saboteur { read: Mutex::new(Some((bytes, Box::new(action)))), ..Saboteur::default() }
    }

    /// Paths with the kind of trouble, sorted.
    fn told(&self, base: &Path) -> Vec<(String, ProblemKind)> {
        assert!(self.at.lock().unwrap().is_empty() && self.read.lock().unwrap().is_none(), "nothing was done");
        let short = |p: &Problem| p.path.strip_prefix(base.as_os_str().as_bytes()).unwrap_or(&p.path).to_vec();
        let problems = self.problems.lock().unwrap();
        let mut told: Vec<_> = problems.iter().map(|p| (String::from_utf8(short(p)).unwrap(), p.kind)).collect();
        told.sort_by(|a, b| a.0.cmp(&b.0));
        told
    }
}

impl Monitor for Saboteur {
    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn problem(&self, problem: &Problem) {
        self.problems.lock().unwrap().push(problem.clone());
    }

    fn wants_entries(&self) -> bool {
        true
    }

    fn entry(&self, _: Change, path: &[u8]) {
        let action = self.at.lock().unwrap().remove(path);
        if let Some(action) = action {
            action();
        }
    }

    fn stop(&self) -> bool {
        let mut read = self.read.lock().unwrap();
        if read.as_ref().is_some_and(|(bytes, _)| self.counters.get().bytes_read >= *bytes) {
            let (_, action) = read.take().unwrap();
            action();
        }
        false
    }
}

fn quick_bench() -> Bench {
    common::bench_in(common::quick_folder(), common::small())
}

/// With one worker, what comes after an entry in the tree is read after it.
fn run(bench: &Bench, sources: &[&Path], monitor: &dyn Monitor) -> Report {
    let options = backup::Options { workers: 1, walkers: 1.into(), memory: 1 << 20, ..common::options(sources) };
    backup::backup(&bench.repository, &bench.cache, options, monitor).unwrap()
}

fn troubles(counts: &Counts) -> (u64, u64, u64) {
    (counts.vanished, counts.changed_while_read, counts.unreadable)
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    Rng::new(seed).bytes(len)
}

/// What a snapshot says of a path.
fn meta(bench: &Bench, snapshot: &Snapshot, path: &Path) -> Option<Meta> {
    let reader = open_reader(&bench.repository, &bench.cache).unwrap();
    let path = TreePath::parse(path.as_os_str().as_bytes()).unwrap();
    let mut found = None;
    let listed = list::list(&reader, snapshot.root, &path, Depth::Itself, &Quiet::default(), &mut |entry| {
        found = Some(*entry.meta());
        Ok(ControlFlow::Continue(()))
    });
    listed.is_ok().then_some(found).flatten()
}

/// A run without disturbance saves what is there now.
#[track_caller]
fn next_run_is_right(bench: &Bench, source: &Path) -> Report {
    settle();
    let report = bench.backup(source);
    let target = bench.folder.path().join("target-next");
    let (restored, monitor) = bench.restore(report.snapshot.as_ref().unwrap(), source, &target);
    assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
    assert_eq!(restored.counts.entries, restored.counts.restored);
    compare::assert_same(source, &target, &compare::Options { roots: false, ..compare::Options::default() });
    // And there is no mark left that would make it read again.
    let last = bench.backup(source);
    assert_eq!((last.counts.unmodified, last.counts.bytes_read), (last.counts.entries, 0));
    report
}
