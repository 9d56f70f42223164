//! Repositories on file systems that are mounted, wherever they lie: `tests/mounts` runs this over sshfs and NFS. One that lacks something
//! is shown by a layer of ours, in every run.

use crate::home::{Home, Ran};
use crate::{aftermath, everything};
use drumlin_testkit::{Lacking, Lacks};
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
