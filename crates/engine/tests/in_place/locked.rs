//! Directories that their owner, or root, may not write into.

use crate::common::{bench, settle, user};
use crate::scene::{at, scene};
use drumlin_engine::restore::{Options, Overwrite};
use drumlin_testkit::compare;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

#[test]
fn a_closed_directory_is_finished_after_what_is_in_it() {
    const TEST: &str = "locked::a_closed_directory_is_finished_after_what_is_in_it";
    let run = |folder: &Path| {
        let bench = bench();
        let (source, target) = (folder.join("source"), folder.join("target"));
        let inner = source.join("outer/inner");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("file"), "saved").unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        mode(&inner, 0o500);
        mode(&source.join("outer"), 0o500);
        for path in [&inner, &source.join("outer")] {
            fs::File::open(path).unwrap().set_modified(at(1000)).unwrap();
        }
        settle();
        let snapshot = bench.backup(&source).snapshot.unwrap();
        for _ in 0..2 {
            let (_, monitor) = bench.restore(&snapshot, &source, &target);
            assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
            compare::assert_same(&source, &target, &compare::Options { roots: false, ..Default::default() });
        }
    };
    let _ = TEST;
    match user::folder() {
        Some(folder) => run(&folder),
        None => {
            let folder = user::shared_folder();
            let _ends = drumlin_testkit::tree::Unprotect(folder.path());
            if user::is_root() { user::again(TEST, folder.path()) } else { run(folder.path()) }
        }
    }
}

#[test]
fn root_goes_on_in_directories_that_are_locked() {
    let scene = scene(|source| {
        fs::create_dir_all(source.join("outer/inner")).unwrap();
        fs::write(source.join("outer/inner/file"), "saved").unwrap();
    });
    let dirs = [scene.target.join("outer/inner"), scene.target.join("outer")];
    let lock =
        |flag: &str| dirs.iter().all(|dir| Command::new("chattr").arg(flag).arg(dir).status().unwrap().success());
    for flag in ["i", "a"] {
        scene.run(scene.options());
        if flag == "i" {
            fs::remove_file(scene.target.join("outer/inner/file")).unwrap();
        } else {
            fs::write(scene.target.join("outer/inner/file"), "other").unwrap();
        }
        if !user::is_root() || !lock(&format!("+{flag}")) {
            return;
        }
        let (_, monitor) = scene.run(Options { overwrite: Overwrite::Always, ..scene.options() });
        lock("-i");
        lock("-a");
        assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
        scene.same();
    }
}
