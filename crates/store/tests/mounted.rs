//! The conformance suite on a file system that is mounted, wherever it lies: `tests/mounts` runs it over sshfs and NFS.
//! Those that lack something are shown by a layer of ours, in every run.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use drumlin_store::conformance::{self, May};
use drumlin_store::{LocalStore, Put, Store};
use drumlin_testkit::{Lacking, Lacks};

#[test]
#[ignore = "needs DRUMLIN_MOUNT, an empty folder on the file system"]
fn mounted() {
    let mount = PathBuf::from(std::env::var_os("DRUMLIN_MOUNT").expect("DRUMLIN_MOUNT names a folder"));
    // Over SMB what somebody has open gives up its name first.
    let is_smb = matches!(rustix::fs::statfs(&mount).unwrap().f_type as u64 & 0xffff_ffff, 0xfe53_4d42 | 0xff53_4d42);
    conforms(&mount, May { replace_in_use: !is_smb, ..May::ALL });
}

/// What a file system can't do is found out, and done in another way: names that only one can create, direct writes.
#[test]
fn file_systems_that_lack_something() {
    let (links, new_names, direct) = (true, true, true);
    let none = Lacks::default();
    let check = |lacks: Lacks| {
        let (folder, at) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let Some(mounted) = Lacking::mount(folder.path(), at.path(), lacks) else {
            return println!("file_systems_that_lack_something: passed over, nothing can be mounted here");
        };
        let _base = conforms(mounted.path(), May::ALL);
        let left = temporaries(folder.path());
        assert!(left.is_empty(), "{lacks:?}: {left:?}");
    };
    std::thread::scope(|scope| {
        scope.spawn(|| check(Lacks { links, direct, ..none }));
        scope.spawn(|| check(Lacks { links, new_names, ..none }));
    });
}

/// What lies in the folders for files that have no names yet, of all stores there.
fn temporaries(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(temporaries(&path));
        } else if path.parent().is_some_and(|folder| folder.ends_with("tmp")) {
            found.push(path);
        }
    }
    found
}

fn conforms(mount: &Path, may: May) -> tempfile::TempDir {
    let base = tempfile::tempdir_in(mount).unwrap();
    let count = Cell::new(0);
    conformance::check_as(may, || {
        count.set(count.get() + 1);
        Box::new(LocalStore::create(base.path().join(count.get().to_string())).unwrap())
    });
    let store = LocalStore::create(base.path().join("last")).unwrap();
    assert!(store.is_far(), "this file system is taken for one at hand");
    let large = vec![7; 40 << 20];
    let mut upload = store.upload("data/large", large.len() as u64).unwrap();
    upload.write(&large).unwrap();
    upload.finish().unwrap();
    store.put("small", b"1", Put::Create).unwrap();
    store.sync().unwrap();
    drop(store);
    assert!(LocalStore::open(base.path().join("last")).unwrap().get("data/large").unwrap() == large);
    base
}
