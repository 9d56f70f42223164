//! Directories and sources that vanish, become something else or are closed in mid run.

use super::*;

/// Entries of a directory whose listing is more than may wait.
const WIDE: usize = 500;

fn long(n: usize) -> String {
    format!("{n:0240}")
}

/// Directories, each of them with more listings than may wait, and then one that is met last.
fn wide(folder: &Path, name: &str) -> PathBuf {
    let source = folder.join(name);
    for dir in 0..3 {
        let dir = source.join(format!("a{dir}"));
        fs::create_dir_all(&dir).unwrap();
        for n in 0..WIDE {
            fs::write(dir.join(long(n)), []).unwrap();
        }
    }
    fs::create_dir(source.join("z")).unwrap();
    fs::write(source.join("z/file"), "in z").unwrap();
    source
}

type Deeds = [(&'static str, fn(&Path)); 4];

/// What may become of a directory between being listed and being entered.
const DIR_DEEDS: Deeds = [
    ("removed", |z| fs::remove_dir_all(z).unwrap()),
    ("a file now", |z| {
        fs::remove_dir_all(z).unwrap();
        fs::write(z, "no directory").unwrap();
    }),
    ("a pipe now", |z| {
        fs::remove_dir_all(z).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, z, rustix::fs::Mode::RUSR).unwrap();
    }),
    ("a symlink now", |z| {
        fs::rename(z, z.with_file_name("z-moved")).unwrap();
        symlink("z-moved", z).unwrap();
    }),
];

#[test]
fn directories_that_vanish_before_they_are_entered() {
    for (what, deed) in DIR_DEEDS {
        // Before the directory's own entry is dealt with, and after.
        for early in [true, false] {
            println!("{what}, {}", if early { "early" } else { "late" });
            let bench = quick_bench();
            let source = wide(bench.folder.path(), "source");
            settle();
            let z = source.join("z");
            let trigger = if early { source.join("a0") } else { source.join(format!("a0/{}", long(70))) };
            let monitor = Saboteur::after(&trigger, {
                let z = z.clone();
                move || deed(&z)
            });
            let report = run(&bench, &[&source], &monitor);
            let mut told = monitor.told(&source);
            assert_eq!(report.counts.vanished, told.len() as u64);
            told.dedup();
            assert_eq!(told, [("/z".into(), ProblemKind::Vanished)]);
            assert_eq!((report.counts.changed_while_read, report.counts.unreadable), (0, 0));
            let snapshot = report.snapshot.unwrap();
            assert!(meta(&bench, &snapshot, &z.join("file")).is_none());
            // Of the directory itself stays what the walk saw of it, or nothing.
            assert!(meta(&bench, &snapshot, &z).is_none_or(|m| m.kind == Kind::Dir));
            let target = bench.folder.path().join("target");
            let (restored, monitor) = bench.restore(&snapshot, &source, &target);
            assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
            assert_eq!(restored.counts.entries, restored.counts.restored);
            next_run_is_right(&bench, &source);
        }
    }
}

/// A directory that vanishes when its contents have been listed: what is unchanged in it stays, and must have a place.
#[test]
fn a_directory_that_vanishes_after_it_was_listed_keeps_a_place_for_what_it_had() {
    let bench = bench();
    let source = bench.folder.path().join("source");
    fs::create_dir_all(source.join("b")).unwrap();
    fs::write(source.join("a"), "the first").unwrap();
    fs::write(source.join("b/old"), "unchanged").unwrap();
    fs::write(source.join("b/will"), "vanish").unwrap();
    settle();
    bench.backup(&source);
    // The directory counts as changed, one file in it as unchanged.
    fs::set_permissions(source.join("b"), PermissionsExt::from_mode(0o700)).unwrap();
    fs::write(source.join("a"), "another").unwrap();
    fs::write(source.join("b/will"), "vanish!").unwrap();
    settle();
    let b = source.join("b");
    // All of it is in one batch, so all of it has been listed and compared.
    let monitor = Saboteur::after(&source.join("a"), move || fs::remove_dir_all(b).unwrap());
    let report = run(&bench, &[&source], &monitor);
    let told = monitor.told(&source);
    let vanished = |p: &str| (p.to_owned(), ProblemKind::Vanished);
    assert_eq!(told, [vanished("/b"), vanished("/b/will")]);
    assert_eq!(troubles(&report.counts), (2, 0, 0));
    let target = bench.folder.path().join("target");
    let (restored, monitor) = bench.restore(&report.snapshot.unwrap(), &source, &target);
    assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
    assert_eq!((restored.counts.unwritable, restored.counts.restored), (0, restored.counts.entries));
    assert_eq!(fs::read(target.join("b/old")).unwrap(), b"unchanged");
    next_run_is_right(&bench, &source);
}

#[test]
fn a_source_that_vanishes_is_told_and_the_others_are_saved() {
    for (what, deed) in DIR_DEEDS {
        println!("{what}");
        let bench = quick_bench();
        // The first source fills all that may wait; the second is met after it, in a directory beside it.
        let first = wide(bench.folder.path(), "first");
        let second = bench.folder.path().join("second/z");
        fs::create_dir_all(&second).unwrap();
        fs::write(second.join("file"), "in it").unwrap();
        settle();
        let monitor = Saboteur::after(&first.join(format!("a0/{}", long(70))), {
            let second = second.clone();
            move || deed(&second)
        });
        let report = run(&bench, &[&first, &second], &monitor);
        let told = monitor.told(bench.folder.path());
        let snapshot = report.snapshot.unwrap();
        match what {
            "removed" => {
                assert_eq!(told, [("/second/z".into(), ProblemKind::Unreadable)]);
                assert_eq!(troubles(&report.counts), (0, 0, 1));
                assert!(meta(&bench, &snapshot, &second).is_none());
            }
            // What is there when its turn comes is the source.
            _ => assert_eq!((told, troubles(&report.counts)), (vec![], (0, 0, 0))),
        }
        let target = bench.folder.path().join("target");
        let (restored, monitor) = bench.restore(&snapshot, &first, &target);
        assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
        assert_eq!(restored.counts.entries, 3 * (WIDE as u64 + 1) + 2);
    }
}

#[test]
fn files_and_folders_that_are_closed_in_mid_run() {
    user::run("directories::files_and_folders_that_are_closed_in_mid_run", |_| {
        let bench = quick_bench();
        let folder = bench.folder.path();
        let source = wide(folder, "source");
        let shut = ["a0/file", "a0/large", "y/in"];
        fs::create_dir(source.join("y")).unwrap();
        for path in shut {
            fs::write(source.join(path), noise(1, if path.ends_with("large") { 3 << 20 } else { 3000 })).unwrap();
        }
        settle();
        let at = source.clone();
        let monitor = Saboteur::after(&source.join(format!("a0/{}", long(70))), move || {
            for path in ["a0/file", "a0/large", "y/in", "z"] {
                fs::set_permissions(at.join(path), PermissionsExt::from_mode(0o000)).unwrap();
            }
        });
        let report = run(&bench, &[&source], &monitor);
        let unreadable = |p: &str| (p.to_owned(), ProblemKind::Unreadable);
        assert_eq!(monitor.told(&source), ["/a0/file", "/a0/large", "/y/in", "/z"].map(unreadable));
        assert_eq!(troubles(&report.counts), (0, 0, 4));
        let snapshot = report.snapshot.unwrap();
        for path in shut {
            let found = meta(&bench, &snapshot, &source.join(path)).unwrap();
            assert_eq!(found.marks & marks::CONTENTS_MISSING, marks::CONTENTS_MISSING, "{path}");
        }
        assert!(meta(&bench, &snapshot, &source.join("z")).is_some());
        assert!(meta(&bench, &snapshot, &source.join("z/file")).is_none());
        let target = folder.join("target");
        let (restored, monitor) = bench.restore(&snapshot, &source, &target);
        assert_eq!((restored.counts.damaged, monitor.problems().len()), (3, 3), "{:?}", monitor.problems());
        assert!(shut.iter().all(|p| !target.join(p).exists()), "a file without its contents passes for an empty one");
        for path in ["a0/file", "a0/large", "y/in", "z"] {
            fs::set_permissions(source.join(path), PermissionsExt::from_mode(0o755)).unwrap();
        }
        let next = next_run_is_right(&bench, &source);
        assert_eq!(next.counts.bytes_read, (3 << 20) + 6000 + 4);
    });
}
