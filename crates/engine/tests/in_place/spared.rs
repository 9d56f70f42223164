//! What a restore leaves alone, though the snapshot doesn't have it or has something else there.

use crate::common::settle;
use crate::scene::{Scene, scene};
use drumlin_engine::backup;
use drumlin_engine::monitor::{ProblemKind, Quiet};
use drumlin_engine::restore::{Options, Overwrite};
use drumlin_format::snapshot::Snapshot;
use drumlin_host::filter::Pattern;
use drumlin_store::{Put, Store};
use drumlin_testkit::LoopFs;
use rustix::fs::{Mode, OFlags};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// The disk with the repository on it, and others, mounted where the snapshot has nothing, or a directory.
#[test]
fn nothing_is_deleted_on_what_is_mounted_there() {
    let Some(mount) = LoopFs::new(16 << 20) else {
        println!("nothing_is_deleted_on_what_is_mounted_there: passed over, it needs root and loop devices");
        return;
    };
    let (target, name) = (mount.path().parent().unwrap(), mount.path().file_name().unwrap().to_owned());
    let files = ["repository/config", "other", "deep/other", "in-both"];
    let put = || {
        for file in files {
            let path = mount.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "there").unwrap();
        }
    };
    let without = scene(|source| fs::write(source.join("file"), "saved").unwrap());
    let with = scene(|source| {
        fs::create_dir_all(source.join(&name).join("deep")).unwrap();
        fs::write(source.join(&name).join("in-both"), "there").unwrap();
    });
    let empty = scene(|source| fs::create_dir(source.join(&name)).unwrap());
    for (scene, repository) in [(&without, true), (&with, true), (&with, false), (&empty, false)] {
        put();
        let repository = repository.then(|| mount.path().join("repository"));
        let options = Options { target: target.to_path_buf(), repository, delete: true, ..scene.options() };
        let (report, monitor) = scene.run(options);
        assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
        assert!(files.iter().all(|file| mount.path().join(file).exists()), "{:?}", report.counts);
    }
    // Asked for by its own path it is what is meant.
    let paths = vec![[b"/", name.as_bytes()].concat()];
    let (report, _) = with.run(Options { target: target.to_path_buf(), delete: true, paths, ..with.options() });
    assert!(report.counts.deleted > 0 && !mount.path().join("other").exists());
    assert!(!mount.path().join("deep/other").exists());
}

/// A backup that stays on one file system has of others where they are mounted, and of what is in them nothing but
/// sources.
#[test]
fn nothing_is_deleted_that_was_on_a_file_system_which_was_not_looked_into() {
    let Some(mount) = LoopFs::new(16 << 20) else {
        println!("nothing_is_deleted_that_was_on_a_file_system…: passed over, it needs root and loop devices");
        return;
    };
    let (source, name) = (mount.path().parent().unwrap(), mount.path().file_name().unwrap().to_str().unwrap());
    let own = mount.dir("own").unwrap();
    fs::write(own.join("file"), "saved").unwrap();
    fs::write(mount.path().join("other"), "not saved").unwrap();
    let scene = scene(|_| ());
    let backup = |sources: &[&Path]| {
        settle();
        let mut options = crate::common::options(sources);
        let backup::Source::Paths { one_file_system, .. } = &mut options.source else { unreachable!() };
        *one_file_system = true;
        let report = backup::backup(&scene.bench.repository, &scene.bench.cache, options, &Quiet::default()).unwrap();
        let snapshot = report.snapshot.unwrap();
        assert_eq!(snapshot.passed_by, Some(vec![mount.path().as_os_str().as_bytes().to_vec()]));
        snapshot
    };
    let with_own = backup(&[source, &own]);
    let without = backup(&[source]);
    // From before snapshots said so.
    let old = |snapshot: &Snapshot| Snapshot { passed_by: None, ..snapshot.clone() };
    let (old_with, old_without) = (old(&with_own), old(&without));
    let own_goes = &["own/stranger"][..];
    // Of the old ones nobody knows but of what is a source by itself, or has none in it.
    for (snapshot, goes, stranger_goes) in
        [(&with_own, own_goes, true), (&without, &[], true), (&old_with, own_goes, false), (&old_without, &[], true)]
    {
        // There it is a folder like any other.
        let there = ["other", "deep/other", "own/stranger"].map(|file| scene.target.join(name).join(file));
        for path in &there {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "there").unwrap();
        }
        fs::write(scene.target.join("stranger"), "goes").unwrap();
        let subfolder = Some(source.as_os_str().as_bytes().to_vec());
        let options = Options { snapshot: snapshot.clone(), subfolder, delete: true, ..scene.options() };
        let (_, monitor) = scene.run(options);
        assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
        let gone: Vec<_> = there.into_iter().filter(|path| !path.exists()).collect();
        let meant: Vec<_> = goes.iter().map(|file| scene.target.join(name).join(file)).collect();
        assert_eq!(gone, meant);
        assert_eq!(scene.target.join("stranger").exists(), !stranger_goes);
    }
}

/// In directories that the snapshot doesn't have, too, and in those that are in the way.
#[test]
fn what_is_left_out_stays_wherever_it_lies() {
    let scene = scene(|source| {
        fs::write(source.join("file"), "saved").unwrap();
        fs::write(source.join("replaced"), "saved").unwrap();
    });
    let there = ["new/deep/mine.out", "new/deep/other", "new/other", "replaced/mine.out", "gone/deep/other"];
    for name in there {
        let path = scene.target.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "there").unwrap();
    }
    let options = |dry_run| Options { delete: true, dry_run, exclude: vec![Pattern::flag("*.out")], ..scene.options() };
    for dry_run in [true, false] {
        let (report, monitor) = scene.run(options(dry_run));
        assert_eq!(report.counts.deleted, 3, "two files, and what holds nothing that is left out");
        let told: Vec<_> = monitor.problems().into_iter().map(|problem| problem.cause).collect();
        assert!(told.len() == 1 && told[0].contains("--exclude"), "{told:?}");
    }
    let left: Vec<_> = there.into_iter().filter(|name| scene.target.join(name).exists()).collect();
    assert_eq!(left, ["new/deep/mine.out", "replaced/mine.out"]);
    assert!(!scene.target.join("gone").exists());
}

/// Not before all that belongs in its place is there, whichever run brings that.
#[test]
fn what_was_set_aside_is_not_deleted_by_the_next_run() {
    let scene = scene(|source| {
        fs::create_dir(source.join("dir")).unwrap();
        fs::write(source.join("dir/file"), "saved".repeat(10_000)).unwrap();
    });
    fs::write(scene.target.join("dir"), "the only one").unwrap();
    let mut packs = Vec::new();
    scene.bench.memory.list("data", &mut |listed| packs.push(listed.name)).unwrap();
    let kept: Vec<_> = packs.iter().map(|name| (name, scene.bench.memory.get(name).unwrap())).collect();
    packs.iter().for_each(|name| scene.bench.memory.delete(name).unwrap());
    let options = || Options { delete: true, ..scene.options() };
    let aside = || -> Vec<PathBuf> {
        let paths = fs::read_dir(&scene.target).unwrap().map(|entry| entry.unwrap().path());
        paths.filter(|path| path.as_os_str().as_bytes().ends_with(b".old")).collect()
    };
    for run in 0..2 {
        scene.run(options());
        let aside = aside();
        assert_eq!(aside.len(), 1, "run {run}");
        assert_eq!(fs::read_to_string(&aside[0]).unwrap(), "the only one");
    }
    kept.iter().for_each(|(name, bytes)| scene.bench.memory.put(name, bytes, Put::Create).unwrap());
    let (report, monitor) = scene.run(options());
    // Of this run it isn't: whether anybody wants it only the user knows.
    let told = monitor.problems();
    assert_eq!((aside().len(), report.counts.deleted, told.len()), (1, 0, 1), "{told:?}");
    assert!(told[0].cause.contains("set it aside"), "{told:?}");

    // Below a folder that the snapshot doesn't have, too.
    let (deep, name) = (scene.target.join("new/deep"), aside()[0].file_name().unwrap().to_owned());
    fs::create_dir_all(&deep).unwrap();
    fs::rename(&aside()[0], deep.join(&name)).unwrap();
    fs::write(deep.join("other"), "goes").unwrap();
    let (report, monitor) = scene.run(options());
    let told = monitor.problems();
    assert_eq!(fs::read_to_string(deep.join(name)).unwrap(), "the only one");
    assert!(report.counts.deleted == 1 && !deep.join("other").exists());
    assert!(told[0].cause.contains("set it aside"), "{told:?}");
}

/// A snapshot of one folder in the source, with what leads to it.
fn of_one(scene: &Scene, path: &Path) -> Snapshot {
    settle();
    let options = crate::common::options(&[path]);
    let report = backup::backup(&scene.bench.repository, &scene.bench.cache, options, &Quiet::default()).unwrap();
    report.snapshot.unwrap()
}

/// The way to what was saved looked through it.
#[test]
fn a_symlink_on_the_way_stays() {
    let scene = scene(|source| {
        fs::create_dir_all(source.join("real/user/docs/more")).unwrap();
        fs::write(source.join("real/user/docs/file"), "saved").unwrap();
        fs::write(source.join("real/user/docs/more/file"), "saved").unwrap();
        symlink("real", source.join("home")).unwrap();
    });
    let real = scene.target.join("real/user/docs");
    fs::create_dir_all(&real).unwrap();
    fs::write(real.join("file"), "there").unwrap();
    symlink("real", scene.target.join("home")).unwrap();
    let with_slash = [scene.source.join("home").as_os_str().as_bytes(), b"/"].concat();
    let slash = PathBuf::from(std::ffi::OsStr::from_bytes(&with_slash));
    for (source, paths) in [
        (scene.source.join("home/user/docs"), vec![]),
        (scene.source.join("home/user/docs"), vec![b"/home/user/docs/file".to_vec()]),
        (slash, vec![]),
    ] {
        let options = Options { snapshot: of_one(&scene, &source), paths, delete: true, ..scene.options() };
        let (report, monitor) = scene.run(options);
        let told: Vec<_> = monitor.problems().into_iter().map(|problem| (problem.kind, problem.cause)).collect();
        assert!(told.len() == 1 && told[0].0 == ProblemKind::Unwritable, "told once: {told:?}");
        assert!(told[0].1.contains("symbolic link to 'real'"), "{told:?}");
        assert!(report.counts.unwritable > 0 && report.counts.deleted == 0);
        assert_eq!(fs::read_link(scene.target.join("home")).unwrap(), Path::new("real"));
        assert_eq!(fs::read_to_string(real.join("file")).unwrap(), "there");
    }
    // In what was saved a symlink is in the way like anything else.
    let whole = scene.snapshot.clone();
    fs::remove_dir_all(scene.target.join("real")).unwrap();
    symlink("elsewhere", scene.target.join("real")).unwrap();
    let (_, monitor) = scene.run(Options { snapshot: whole, ..scene.options() });
    assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
    scene.same();
}

/// What was recorded of it may be old, and it isn't what was asked for.
#[test]
fn a_directory_on_the_way_that_is_there_stays_as_it_is() {
    let scene = scene(|source| {
        fs::create_dir_all(source.join("home/user/docs")).unwrap();
        fs::write(source.join("home/user/docs/file"), "saved").unwrap();
        for dir in ["home", "home/user"] {
            fs::set_permissions(source.join(dir), PermissionsExt::from_mode(0o755)).unwrap();
        }
    });
    let mode = |name: &str| fs::metadata(scene.target.join(name)).unwrap().mode() & 0o7777;
    let one = of_one(&scene, &scene.source.join("home/user/docs"));
    let asked = || Options { paths: vec![b"/home/user/docs/file".to_vec()], ..scene.options() };
    for options in [asked(), Options { snapshot: one, ..scene.options() }] {
        let _ = fs::remove_dir_all(scene.target.join("home"));
        fs::create_dir_all(scene.target.join("home")).unwrap();
        fs::set_permissions(scene.target.join("home"), PermissionsExt::from_mode(0o700)).unwrap();
        scene.run(options);
        assert_eq!(scene.read("home/user/docs/file"), "saved");
        assert_eq!(
            (mode("home"), mode("home/user")),
            (0o700, 0o755),
            "the one that was there, and the one that wasn't"
        );
    }
    scene.run(scene.options());
    assert_eq!(mode("home"), 0o755, "all of it was asked for");
}

/// Those that were there before the run that was killed, and those of that run.
#[test]
fn further_names_of_a_file_that_stays_become_links_to_it() {
    let scene = scene(|source| {
        for (first, others) in [("right", ["right-2", "right-3"]), ("wrong", ["wrong-2", "wrong-3"])] {
            fs::write(source.join(first), first).unwrap();
            others.iter().for_each(|other| fs::hard_link(source.join(first), source.join(other)).unwrap());
        }
    });
    for overwrite in [Overwrite::Never, Overwrite::IfNewer] {
        let _ = fs::remove_dir_all(&scene.target);
        fs::create_dir(&scene.target).unwrap();
        let time = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
        scene.put("right", "right", time);
        scene.put("wrong", "others", time);
        let (_, monitor) = scene.run(Options { overwrite, ..scene.options() });
        assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
        let inode = |name: &str| fs::metadata(scene.target.join(name)).unwrap().ino();
        assert_eq!([inode("right-2"), inode("right-3")], [inode("right"); 2]);
        assert_eq!((scene.read("wrong"), scene.read("wrong-2")), ("others".to_owned(), "wrong".to_owned()));
        assert_eq!(inode("wrong-2"), inode("wrong-3"));
    }
}

/// As deep as anybody may make it who may write there.
#[test]
fn of_a_very_deep_folder_what_is_excluded_stays() {
    let scene = scene(|source| fs::write(source.join("file"), "saved").unwrap());
    for (name, bottom) in [("spares", &["kept"][..]), ("goes", &["other"])] {
        fs::create_dir(scene.target.join(name)).unwrap();
        let mut at = rustix::fs::open(scene.target.join(name), OFlags::PATH, Mode::empty()).unwrap();
        for _ in 0..3000 {
            rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
            at = rustix::fs::openat(&at, "d", OFlags::PATH, Mode::empty()).unwrap();
        }
        for file in bottom {
            rustix::fs::openat(&at, *file, OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
        }
    }
    // With the stack that a thread has by itself.
    let run = |dry_run| {
        let options = Options { delete: true, exclude: vec![Pattern::flag("kept")], dry_run, ..scene.options() };
        let (report, monitor) = scene.run(options);
        assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
        report.counts.deleted
    };
    assert_eq!((run(true), run(false), run(false)), (1, 1, 0));
    assert!(!scene.target.join("goes").exists() && scene.target.join("spares").exists());
    let options = Options { delete: true, ..scene.options() };
    assert_eq!(scene.run(options).0.counts.deleted, 1);
}
