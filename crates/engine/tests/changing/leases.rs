//! Files that somebody holds under a lease for writing (a Samba or NFS server does, for its clients): who opens one has
//! to wait until it is given back.

use super::*;
use drumlin_testkit::Lease;
use std::fs::File;
use std::time::Duration;

/// A lease on a file that is there.
fn lease(path: &Path) -> Lease {
    Lease::take(File::options().write(true).open(path).unwrap()).unwrap()
}

#[test]
fn a_file_under_a_lease_is_waited_for() {
    let bench = quick_bench();
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("leased"), "what its holder has written").unwrap();
    settle();
    let held = lease(&source.join("leased"));
    let holder = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        drop(held);
    });
    let report = run(&bench, &[&source], &Quiet::default());
    holder.join().unwrap();
    assert_eq!(troubles(&report.counts), (0, 0, 0));
    next_run_is_right(&bench, &source);
}

/// Stops when something is waited for.
#[derive(Default)]
struct Impatient {
    counters: Counters,
    asked: AtomicU64,
}

impl Monitor for Impatient {
    fn counters(&self) -> &Counters {
        &self.counters
    }
    fn problem(&self, problem: &Problem) {
        panic!("{problem:?}");
    }
    fn stop(&self) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed) > 20
    }
}

#[test]
fn who_wants_to_stop_does_not_wait() {
    let bench = quick_bench();
    let source = bench.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("leased"), "contents").unwrap();
    let held = lease(&source.join("leased"));
    let start = std::time::Instant::now();
    let options = backup::Options { workers: 1, walkers: 1.into(), ..common::options(&[&source]) };
    let outcome = backup::backup(&bench.repository, &bench.cache, options, &Impatient::default());
    drop(held);
    assert!(outcome.is_err() || outcome.is_ok_and(|report| report.stopped));
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}
