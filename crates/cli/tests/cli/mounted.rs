//! Repositories on file systems that are mounted, wherever they lie: `tests/mounts` runs this over sshfs and NFS.

use crate::everything;
use crate::home::{Home, Ran};
use std::path::PathBuf;

#[test]
#[ignore = "needs DRUMLIN_MOUNT, a folder on the file system"]
fn mounted() {
    let mount = PathBuf::from(std::env::var_os("DRUMLIN_MOUNT").expect("DRUMLIN_MOUNT names a folder"));
    let base = tempfile::tempdir_in(&mount).unwrap();
    let home = Home::new();
    let repo = base.path().join("repo");
    let run = |args: &[&str]| -> Ran { home.run(&[&["-r", repo.to_str().unwrap(), "-k", "k"], args].concat()) };
    everything::done(&home, &run, "");
}
