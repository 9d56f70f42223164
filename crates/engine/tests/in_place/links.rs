//! Files of several names.

use crate::scene::{at, scene};
use drumlin_engine::Error;
use drumlin_engine::monitor::{Counters, Monitor, Problem, Quiet};
use drumlin_engine::restore::{self, Options, Overwrite};
use drumlin_testkit::{LoopFs, Rng};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Command;
use std::sync::Mutex;

#[test]
fn links_to_other_files_become_links_to_the_right_one() {
    let scene = scene(|source| {
        fs::write(source.join("a"), "saved").unwrap();
        fs::hard_link(source.join("a"), source.join("b")).unwrap();
        fs::hard_link(source.join("a"), source.join("c")).unwrap();
    });
    scene.put("a", "other", at(5));
    scene.put("b", "saved", at(5));
    let (report, monitor) = scene.run(scene.options());
    assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
    assert_eq!(report.counts.restored, 3);
    scene.same();
    let (report, _) = scene.run(scene.options());
    assert_eq!(report.counts.kept, 3);
}

#[test]
fn a_hard_link_across_file_systems_becomes_a_file_of_its_own() {
    let Some(fs_there) = LoopFs::new(16 << 20) else {
        println!("a_hard_link_across_file_systems: passed over, it needs root and loop devices");
        return;
    };
    let mount = fs_there.path().file_name().unwrap().to_owned();
    let long = Rng::new(3).bytes(9 << 20);
    let scene = scene(|source| {
        fs::create_dir(source.join(&mount)).unwrap();
        for (name, contents) in [("short", &b"short"[..]), ("long", &long)] {
            fs::write(source.join(name), contents).unwrap();
            fs::set_permissions(source.join(name), fs::Permissions::from_mode(0o640)).unwrap();
            fs::hard_link(source.join(name), source.join(&mount).join(name)).unwrap();
        }
    });
    let target = fs_there.path().parent().unwrap();
    let run = || {
        let options = Options { target: target.to_path_buf(), overwrite: Overwrite::Always, ..scene.options() };
        let (report, monitor) = scene.run(options);
        assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
        for name in ["short", "long"] {
            let (first, second) = (target.join(name), fs_there.path().join(name));
            assert_eq!(fs::read(&first).unwrap(), fs::read(&second).unwrap());
            assert_eq!(fs::read(&second).unwrap(), fs::read(scene.source.join(name)).unwrap());
            let (first, second) = (fs::metadata(first).unwrap(), fs::metadata(second).unwrap());
            assert_ne!(first.dev(), second.dev());
            assert_eq!((first.mode(), first.modified().unwrap()), (second.mode(), second.modified().unwrap()));
        }
        assert_eq!(report.counts.bytes, 2 * (long.len() as u64 + 5));
        report.counts
    };
    assert_eq!((run().restored, run().kept), (4, 5));
    // What had the names before is replaced, by what is whole.
    fs::write(fs_there.path().join("short"), "something else").unwrap();
    fs::remove_file(fs_there.path().join("long")).unwrap();
    symlink("short", fs_there.path().join("long")).unwrap();
    let counts = run();
    assert_eq!((counts.restored, counts.kept), (2, 3));
}

/// What becomes of links is seen to after all files: a disk that is full only then ends the restore, too.
#[test]
fn a_disk_that_is_full_when_links_are_made_ends_it() {
    let Some(fs_there) = LoopFs::new(16 << 20) else {
        println!("a_disk_that_is_full_when_links_are_made: passed over, it needs root and loop devices");
        return;
    };
    let mount = fs_there.path().file_name().unwrap().to_owned();
    let scene = scene(|source| {
        fs::create_dir(source.join(&mount)).unwrap();
        fs::write(source.join("long"), Rng::new(3).bytes(9 << 20)).unwrap();
        fs::hard_link(source.join("long"), source.join(&mount).join("long")).unwrap();
    });
    fs::write(fs_there.path().join("in the way"), vec![1; 8 << 20]).unwrap();
    let options = Options { target: fs_there.path().parent().unwrap().to_path_buf(), ..scene.options() };
    let monitor = Quiet::default();
    let ended = restore::restore(&scene.bench.repository, &scene.bench.cache, options, &monitor);
    assert!(matches!(&ended, Err(Error::Place(e)) if e.is_full()), "{ended:?} {:?}", monitor.problems());
    assert!(!fs_there.path().join("long").exists(), "half a file");
}

#[test]
fn names_of_one_file_that_are_two_in_the_snapshot_become_two() {
    let scene = scene(|source| {
        for name in ["a", "b", "c"] {
            fs::write(source.join(name), "the same").unwrap();
        }
        fs::hard_link(source.join("c"), source.join("d")).unwrap();
        fs::set_permissions(source.join("b"), PermissionsExt::from_mode(0o640)).unwrap();
    });
    for name in ["b", "c", "d"] {
        scene.put("a", "the same", at(1000));
        fs::hard_link(scene.target.join("a"), scene.target.join(name)).unwrap();
    }
    scene.run(scene.options());
    scene.same();
    let inode = |name: &str| fs::metadata(scene.target.join(name)).unwrap().ino();
    assert_eq!(BTreeSet::from(["a", "b", "c"].map(inode)).len(), 3);
    assert_eq!(inode("c"), inode("d"));
    // What is right is left alone, links too.
    let before = ["a", "b", "c", "d"].map(inode);
    let (report, _) = scene.run(Options { overwrite: Overwrite::Always, ..scene.options() });
    assert_eq!((["a", "b", "c", "d"].map(inode), report.counts.bytes_written), (before, 0));
}

#[test]
fn an_immutable_file_has_all_its_names() {
    let mut can = true;
    let scene = scene(|source| {
        fs::write(source.join("a"), "immutable").unwrap();
        fs::create_dir(source.join("dir")).unwrap();
        fs::hard_link(source.join("a"), source.join("dir/b")).unwrap();
        let set = Command::new("chattr").arg("+i").arg(source.join("a")).output();
        can = set.is_ok_and(|set| set.status.success());
    });
    let _ends = drumlin_testkit::tree::Unprotect(scene.bench.folder.path());
    if !can {
        return;
    }
    for _ in 0..2 {
        let (_, monitor) = scene.run(scene.options());
        assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
        scene.same();
        let inode = |name: &str| fs::metadata(scene.target.join(name)).unwrap().ino();
        assert_eq!(inode("a"), inode("dir/b"));
    }
}

/// A user whose home root restores may have made a name in it a name of somebody else's file.
#[test]
fn what_has_other_names_elsewhere_is_left_to_them() {
    let scene = scene(|source| {
        fs::write(source.join("file"), "the same").unwrap();
        fs::set_permissions(source.join("file"), fs::Permissions::from_mode(0o600)).unwrap();
        symlink("there", source.join("link")).unwrap();
    });
    let outside = scene.bench.folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "the same").unwrap();
    fs::set_permissions(outside.join("file"), fs::Permissions::from_mode(0o664)).unwrap();
    symlink("there", outside.join("link")).unwrap();
    for name in ["file", "link"] {
        fs::hard_link(outside.join(name), scene.target.join(name)).unwrap();
    }
    let seen = |name: &str| {
        let of = fs::symlink_metadata(outside.join(name)).unwrap();
        (of.mode(), of.mtime(), of.mtime_nsec(), of.nlink())
    };
    let before = ["file", "link"].map(seen);
    let (foreseen, _) = scene.run(Options { dry_run: true, ..scene.options() });
    assert_eq!((foreseen.counts.restored, foreseen.counts.kept), (2, 0));
    let (report, monitor) = scene.run(scene.options());
    assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
    assert_eq!((report.counts.restored, report.counts.kept), (2, 0));
    for (before, after) in before.into_iter().zip(["file", "link"].map(seen)) {
        assert_eq!(after, (before.0, before.1, before.2, 1));
    }
    scene.same();
    // One that is right in all has nothing to be changed.
    fs::hard_link(scene.target.join("file"), outside.join("another")).unwrap();
    let (report, _) = scene.run(scene.options());
    assert_eq!(report.counts.kept, 2);
    assert_eq!(fs::metadata(outside.join("another")).unwrap().nlink(), 2);
}

#[test]
fn names_of_an_immutable_file_are_made_one() {
    let Some(fs_there) = LoopFs::new(16 << 20) else {
        println!("names_of_an_immutable_file_are_made_one: passed over, it needs root and loop devices");
        return;
    };
    let flag =
        |how: &str, path: &std::path::Path| Command::new("chattr").arg(how).arg(path).status().unwrap().success();
    let scene = scene(|source| {
        fs::write(source.join("a"), "same").unwrap();
        fs::hard_link(source.join("a"), source.join("b")).unwrap();
        fs::write(source.join("c"), "saved").unwrap();
        assert!(flag("+i", &source.join("a")) && flag("+a", &source.join("c")));
    });
    let target = fs_there.path().join("target");
    fs::create_dir(&target).unwrap();
    for (name, contents) in [("a", "same"), ("b", "same"), ("c", "other")] {
        fs::write(target.join(name), contents).unwrap();
    }
    assert!(flag("+i", &target.join("a")) && flag("+i", &target.join("c")));
    for restored in [[2, 0], [0, 3]] {
        let (report, monitor) = scene.run(Options { target: target.clone(), ..scene.options() });
        assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
        assert_eq!(report.counts.kept, [1, 3][usize::from(restored[0] == 0)], "{:?}", report.counts);
        let ino = |name: &str| fs::metadata(target.join(name)).unwrap().ino();
        assert_eq!(ino("a"), ino("b"));
        assert_eq!(fs::read_to_string(target.join("c")).unwrap(), "saved");
        assert!(fs::write(target.join("a"), "x").is_err() && fs::remove_file(target.join("c")).is_err(), "immutable");
        let left: Vec<_> = fs::read_dir(&target).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left.len(), 3, "{left:?}");
    }
    for name in ["a", "c"] {
        assert!(flag("-ia", &target.join(name)) && flag("-ia", &scene.source.join(name)));
    }
}

/// A dry run counts as the run does, of files and of what else has several names.
#[test]
fn names_that_are_made_one_are_foreseen() {
    let scene = scene(|source| {
        symlink("A", source.join("p")).unwrap();
        fs::hard_link(source.join("p"), source.join("q")).unwrap();
        fs::write(source.join("f"), "same").unwrap();
        fs::hard_link(source.join("f"), source.join("g")).unwrap();
    });
    symlink("B", scene.target.join("p")).unwrap();
    fs::hard_link(scene.target.join("p"), scene.target.join("q")).unwrap();
    scene.put("f", "same", at(5));
    fs::hard_link(scene.target.join("f"), scene.target.join("g")).unwrap();
    let [foreseen, done] = [true, false].map(|dry_run| {
        let counts = scene.run(Options { dry_run, ..scene.options() }).0.counts;
        (counts.restored, counts.kept)
    });
    assert_eq!((foreseen, done), ((4, 0), (4, 0)));
    scene.same();
    assert_eq!(scene.run(scene.options()).0.counts.kept, 4);
}

/// Does something once the first contents are being written.
struct Meanwhile<F> {
    quiet: Quiet,
    then: Mutex<Option<F>>,
}

impl<F: FnOnce() + Send> Monitor for Meanwhile<F> {
    fn counters(&self) -> &Counters {
        self.quiet.counters()
    }

    fn problem(&self, problem: &Problem) {
        self.quiet.problem(problem);
    }

    fn stop(&self) -> bool {
        if self.counters().get().bytes_written > 0
            && let Some(then) = self.then.lock().unwrap().take()
        {
            then();
        }
        false
    }
}

/// Links come last, perhaps hours after it was looked what is in their places.
#[test]
fn what_has_come_into_the_place_of_a_link_is_looked_at() {
    let scene = scene(|source| {
        fs::write(source.join("large"), Rng::new(7).bytes(24 << 20)).unwrap();
        fs::hard_link(source.join("large"), source.join("link")).unwrap();
    });
    let (folder, file) = (scene.target.join("link/x"), scene.target.join("link"));
    for (case, overwrite, stays) in [
        ("a folder", Overwrite::Always, true),
        ("a file", Overwrite::Never, true),
        ("a file", Overwrite::IfChanged, false),
    ] {
        let then = || match case {
            "a folder" => {
                fs::create_dir(&file).unwrap();
                fs::write(&folder, "mine").unwrap();
            }
            _ => fs::write(&file, "mine").unwrap(),
        };
        let monitor = Meanwhile { quiet: Quiet::default(), then: Mutex::new(Some(then)) };
        let options = Options { overwrite, ..scene.options() };
        let report = restore::restore(&scene.bench.repository, &scene.bench.cache, options, &monitor).unwrap();
        assert!(monitor.then.lock().unwrap().is_none(), "{case}: nothing has come");
        let told = monitor.quiet.problems();
        match (case, stays) {
            ("a folder", _) => {
                assert_eq!(fs::read(&folder).unwrap(), b"mine");
                assert!(told.iter().any(|p| p.cause.contains("a directory of that name is there")), "{told:?}");
                fs::remove_dir_all(&file).unwrap();
            }
            (_, true) => {
                assert_eq!((fs::read(&file).unwrap(), report.counts.kept), (b"mine".to_vec(), 1));
                fs::remove_file(&file).unwrap();
            }
            (_, false) => {
                assert!(told.is_empty(), "{told:?}");
                scene.same();
            }
        }
        let _ = fs::remove_file(scene.target.join("large"));
    }
}
