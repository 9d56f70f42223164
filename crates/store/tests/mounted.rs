//! The conformance suite on a file system that is mounted, wherever it lies: `tests/mounts` runs it over sshfs and NFS.

use std::cell::Cell;
use std::path::PathBuf;

use drumlin_store::{LocalStore, Put, Store, conformance};

#[test]
#[ignore = "needs DRUMLIN_MOUNT, an empty folder on the file system"]
fn mounted() {
    let mount = PathBuf::from(std::env::var_os("DRUMLIN_MOUNT").expect("DRUMLIN_MOUNT names a folder"));
    let base = tempfile::tempdir_in(&mount).unwrap();
    let count = Cell::new(0);
    conformance::check(|| {
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
}
