//! Repositories on file systems that are mounted, wherever they lie: `tests/mounts` runs this over sshfs and NFS. One
//! that lacks something is shown by a layer of ours, in every run.

use crate::home::{Home, Ran};
use crate::{aftermath, everything};
use drumlin_testkit::{Lacking, Lacks, Rng, Written};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[test]
#[ignore = "needs DRUMLIN_MOUNT, a folder on the file system"]
fn mounted() {
    everything_on(&mount());
}

#[test]
#[ignore = "needs DRUMLIN_MOUNT, a folder on the file system"]
fn killed_on_what_is_mounted() {
    killed_on(&mount());
}

fn mount() -> PathBuf {
    PathBuf::from(std::env::var_os("DRUMLIN_MOUNT").expect("DRUMLIN_MOUNT names a folder"))
}

#[test]
fn a_file_system_without_links_and_direct_writes() {
    // Where names can only be reserved, a kill between that and the rename leaves an empty object: the guide says so.
    for new_names in [true, false] {
        let (folder, at) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let lacks = Lacks { links: true, new_names, direct: true };
        let Some(mounted) = Lacking::mount(folder.path(), at.path(), lacks) else {
            return println!("a_file_system_without_links_and_direct_writes: passed over, nothing can be mounted here");
        };
        match new_names {
            true => everything_on(mounted.path()),
            false => killed_on(mounted.path()),
        }
    }
}

/// What lies far away is written in few, large pieces, each behind the one before; by direct writes or not.
#[test]
fn writes_are_few_and_large_and_in_order() {
    for direct in [false, true] {
        let (folder, at) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let Some(mounted) = Lacking::mount(folder.path(), at.path(), Lacks { direct, ..Lacks::default() }) else {
            return println!("writes_are_few_and_large_and_in_order: passed over, nothing can be mounted here");
        };
        let home = Home::new();
        let mut rng = Rng::new(5);
        home.write("src/large", rng.bytes(40 << 20));
        for n in 0..600 {
            home.write(&format!("src/{n}"), rng.bytes(20_000));
        }
        let repo = mounted.path().join("repo");
        let run = |args: &[&str]| home.run(&[&["-r", repo.to_str().unwrap(), "-k", "k"], args].concat());
        run(&["init"]).ok();
        mounted.writes();
        run(&["backup", "src"]).ok();
        let mut files: BTreeMap<u64, Vec<Written>> = BTreeMap::new();
        for write in mounted.writes() {
            files.entry(write.opening).or_default().push(write);
        }
        let (mut count, mut bytes) = (0, 0);
        for writes in files.values() {
            let mut end = 0;
            for write in writes {
                assert_eq!(write.offset, end, "{direct}: out of order: {writes:?}");
                end += write.len;
            }
            (count, bytes) = (count + writes.len() as u64, bytes + end);
        }
        let stored = bytes >> 20;
        assert!((52..60).contains(&stored), "{direct}: {stored} MiB");
        println!("{} files, {count} writes of {} KiB on average", files.len(), (bytes >> 10) / count);
        assert!(count <= stored + 20, "{direct}: {count} writes of {stored} MiB in {} files", files.len());
    }
}

fn killed_on(mount: &Path) {
    let base = tempfile::tempdir_in(mount).unwrap();
    let home = Home::new();
    let repo = base.path().join("repo");
    aftermath::kills_at_any_moment(&home, false, |args| {
        home.command(&[&["-r", repo.to_str().unwrap(), "-k", "k"], args].concat())
    });
}

fn everything_on(mount: &Path) {
    let base = tempfile::tempdir_in(mount).unwrap();
    let home = Home::new();
    let repo = base.path().join("repo");
    let run = |args: &[&str]| -> Ran { home.run(&[&["-r", repo.to_str().unwrap(), "-k", "k"], args].concat()) };
    everything::done(&home, &run, "");
}
