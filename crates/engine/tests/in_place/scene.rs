//! A snapshot, a target with something in it, and what is asked of both.

use crate::common::{Bench, bench, restore_options, settle};
use drumlin_engine::monitor::Quiet;
use drumlin_engine::restore::{self, Options};
use drumlin_format::snapshot::Snapshot;
use drumlin_testkit::compare;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A snapshot of `source`, and a target.
pub struct Scene {
    pub bench: Bench,
    pub source: PathBuf,
    pub target: PathBuf,
    pub snapshot: Snapshot,
}

pub fn scene(make: impl FnOnce(&Path)) -> Scene {
    let bench = bench();
    let (source, target) = (bench.folder.path().join("source"), bench.folder.path().join("target"));
    fs::create_dir(&source).unwrap();
    fs::create_dir(&target).unwrap();
    make(&source);
    settle();
    let snapshot = bench.backup(&source).snapshot.unwrap();
    Scene { bench, source, target, snapshot }
}

impl Scene {
    pub fn options(&self) -> Options {
        let subfolder = Some(self.source.as_os_str().as_bytes().to_vec());
        Options { subfolder, ..restore_options(&self.snapshot, &self.target) }
    }

    pub fn run(&self, options: Options) -> (restore::Report, Quiet) {
        let monitor = Quiet::default();
        let report = restore::restore(&self.bench.repository, &self.bench.cache, options, &monitor).unwrap();
        (report, monitor)
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.target.join(name)).unwrap()
    }

    pub fn put(&self, name: &str, contents: &str, time: SystemTime) {
        fs::write(self.target.join(name), contents).unwrap();
        fs::File::options().write(true).open(self.target.join(name)).unwrap().set_modified(time).unwrap();
    }

    #[track_caller]
    pub fn same(&self) {
        compare::assert_same(&self.source, &self.target, &compare::Options { roots: false, ..Default::default() });
    }
}

pub fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}
