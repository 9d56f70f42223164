//! Single paths and patterns: what leads to them comes along, and nothing else.

use crate::scene::{at, scene};
use drumlin_engine::Error;
use drumlin_engine::monitor::{ProblemKind, Quiet};
use drumlin_engine::restore::{self, Options};
use drumlin_testkit::compare;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

#[test]
fn single_paths_bring_what_leads_to_them_and_a_wrong_one_brings_nothing() {
    let scene = scene(|source| {
        fs::create_dir_all(source.join("a/b/c")).unwrap();
        for name in ["a/b/c/file", "a/b/beside", "a/beside", "beside"] {
            fs::write(source.join(name), name).unwrap();
        }
        fs::set_permissions(source.join("a/b"), PermissionsExt::from_mode(0o710)).unwrap();
        fs::File::open(source.join("a/b")).unwrap().set_modified(at(1000)).unwrap();
    });
    let paths = |paths: &[&str]| paths.iter().map(|p| p.as_bytes().to_vec()).collect();
    let options = Options { paths: paths(&["/a/b/c", "/a/wrong"]), ..scene.options() };
    let refused = restore::restore(&scene.bench.repository, &scene.bench.cache, options, &Quiet::default());
    let whole = format!("{}/a/wrong", scene.source.display());
    assert!(matches!(&refused, Err(Error::NoPath(path)) if *path == whole), "{refused:?}");
    let made = fs::read_dir(&scene.target).map_or(0, Iterator::count);
    assert_eq!(made, 0, "something was made before the paths were known");
    let (report, monitor) = scene.run(Options { paths: paths(&["/a/b/c"]), verify: true, ..scene.options() });
    assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
    assert_eq!((report.counts.restored, report.counts.files, report.verified), (4, 1, 1));
    assert_eq!(scene.read("a/b/c/file"), "a/b/c/file");
    let differences =
        compare::trees(&scene.source, &scene.target, &compare::Options { roots: false, ..Default::default() });
    let missing: Vec<_> = differences.unwrap().into_iter().map(|d| String::from_utf8(d.path).unwrap()).collect();
    assert_eq!(missing, ["a/b/beside", "a/beside", "beside"], "directories on the way lack their attributes");
}

#[test]
fn what_matches_comes_with_the_directories_that_lead_to_it() {
    let scene = scene(|source| {
        for dir in ["a/b", "c", "d"] {
            fs::create_dir_all(source.join(dir)).unwrap();
            fs::write(source.join(dir).join("x.txt"), dir).unwrap();
            fs::write(source.join(dir).join("x.bin"), dir).unwrap();
        }
        for (dir, mode, time) in [("a/b", 0o750, 3), ("a", 0o711, 2), ("d", 0o770, 1)] {
            fs::set_permissions(source.join(dir), fs::Permissions::from_mode(mode)).unwrap();
            fs::File::open(source.join(dir)).unwrap().set_modified(at(time)).unwrap();
        }
    });
    // One is in the way, and one is there already and stays as it is.
    symlink("elsewhere", scene.target.join("c")).unwrap();
    fs::create_dir(scene.target.join("d")).unwrap();
    fs::set_permissions(scene.target.join("d"), fs::Permissions::from_mode(0o701)).unwrap();
    let (report, monitor) = scene.run(Options { include: vec!["*.txt".into()], ..scene.options() });
    let told: Vec<_> = monitor.problems().iter().map(|p| (p.path.clone(), p.kind)).collect();
    assert_eq!(told, [(scene.source.join("c").as_os_str().as_bytes().to_vec(), ProblemKind::Unwritable)]);
    assert!(report.counts.unwritable > 0);
    assert_eq!((scene.read("a/b/x.txt"), scene.read("d/x.txt")), ("a/b".to_owned(), "d".to_owned()));
    assert!(["a/b/x.bin", "d/x.bin"].iter().all(|name| !scene.target.join(name).exists()));
    for (dir, mode, time) in [("a/b", 0o750, Some(3)), ("a", 0o711, Some(2)), ("d", 0o701, None)] {
        let found = fs::metadata(scene.target.join(dir)).unwrap();
        assert_eq!(found.mode() & 0o7777, mode, "{dir}");
        assert!(time.is_none_or(|time| found.modified().unwrap() == at(time)), "{dir}");
    }
    assert_eq!(fs::read_link(scene.target.join("c")).unwrap(), Path::new("elsewhere"));
}

/// Nobody who could not look into the folder looks into what was made of it.
#[test]
fn a_target_that_is_made_is_open_to_nobody_else_than_the_folder_was() {
    let scene = scene(|source| {
        fs::create_dir_all(source.join("private/within")).unwrap();
        fs::write(source.join("private/within/file"), "saved").unwrap();
        fs::set_permissions(source.join("private"), PermissionsExt::from_mode(0o710)).unwrap();
        fs::File::open(source.join("private")).unwrap().set_modified(at(1000)).unwrap();
    });
    let restore = |folder: &Path, target: &Path| {
        let subfolder = Some(folder.as_os_str().as_bytes().to_vec());
        let (_, monitor) = scene.run(Options { subfolder, target: target.to_owned(), ..scene.options() });
        assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
        let meta = fs::metadata(target).unwrap();
        (meta.mode() & 0o7777, meta.modified().unwrap())
    };
    assert_eq!(restore(&scene.source.join("private"), &scene.target.join("new/made")), (0o710, at(1000)));
    // One that was there stays as it is.
    let there = scene.target.join("there");
    fs::create_dir(&there).unwrap();
    fs::set_permissions(&there, PermissionsExt::from_mode(0o751)).unwrap();
    assert_eq!(restore(&scene.source.join("private"), &there).0, 0o751);
    let whole = Options { subfolder: None, target: scene.target.join("whole"), ..scene.options() };
    scene.run(whole);
    assert_eq!(fs::metadata(scene.target.join("whole")).unwrap().mode() & 0o7777, 0o700);
}
