//! What is in the target already: what is right stays, what is wrong is replaced, what the snapshot lacks goes only
//! when told.

use crate::common::{bench, settle};
use crate::scene::{at, scene};
use drumlin_engine::backup;
use drumlin_engine::monitor::{Counts, ProblemKind, Quiet};
use drumlin_engine::restore::{self, Options, Overwrite};
use drumlin_host::filter::Pattern;
use drumlin_store::{Put, Store};
use drumlin_testkit::Rng;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

#[test]
fn what_is_there_is_overwritten_as_asked() {
    use Overwrite::{Always, IfChanged, IfNewer, Never};
    // Name, what is there, its time; and whether each way replaces it. The snapshot has `saved` of time 1,000.
    let cases = [
        ("older", "there", 900, [(Always, true), (IfChanged, true), (IfNewer, true), (Never, false)]),
        ("newer", "there", 1100, [(Always, true), (IfChanged, true), (IfNewer, false), (Never, false)]),
        ("disguised", "there", 1000, [(Always, true), (IfChanged, false), (IfNewer, false), (Never, false)]),
        ("longer", "is there", 1000, [(Always, true), (IfChanged, true), (IfNewer, false), (Never, false)]),
        ("right", "saved", 1000, [(Always, false), (IfChanged, false), (IfNewer, false), (Never, false)]),
        ("touched", "saved", 900, [(Always, false), (IfChanged, false), (IfNewer, false), (Never, false)]),
    ];
    let scene = scene(|source| {
        for (name, ..) in cases {
            fs::write(source.join(name), "saved").unwrap();
            fs::File::open(source.join(name)).unwrap().set_modified(at(1000)).unwrap();
        }
        fs::write(source.join("missing"), "saved").unwrap();
    });
    for (way, overwrite) in [Always, IfChanged, IfNewer, Never].into_iter().enumerate() {
        let _ = fs::remove_file(scene.target.join("missing"));
        cases.iter().for_each(|(name, there, time, _)| scene.put(name, there, at(*time)));
        let inodes = cases.map(|(name, ..)| fs::metadata(scene.target.join(name)).unwrap().ino());
        let replaced = cases.iter().filter(|case| case.3[way].1).count() as u64;
        let run = |dry_run| scene.run(Options { overwrite, dry_run, ..scene.options() });
        let (dry, _) = run(true);
        assert!(!scene.target.join("missing").exists());
        let (report, monitor) = run(false);
        assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
        for ((name, there, _, ways), inode) in cases.iter().zip(inodes) {
            let expected = if ways[way].1 { "saved" } else { there };
            assert_eq!(scene.read(name), expected, "{name}, {overwrite:?}");
            let now = fs::metadata(scene.target.join(name)).unwrap();
            // In one step, by another file; or not at all.
            assert_eq!(now.ino() != inode, ways[way].1, "{name}, {overwrite:?}");
            // What is left alone keeps its time, what is made right has the snapshot's.
            if matches!(overwrite, Always | IfChanged) {
                assert_eq!(now.modified().unwrap(), at(1000), "{name}, {overwrite:?}");
            }
        }
        assert_eq!(scene.read("missing"), "saved");
        assert_eq!((report.counts.restored, report.counts.kept), (replaced + 1, 6 - replaced));
        assert_eq!(report.counts.bytes_written, (replaced + 1) * 5);
        assert_eq!((dry.counts.restored, dry.counts.kept), (replaced + 1, 6 - replaced), "{overwrite:?}");
    }
}

/// Whatever is there: nothing, some of it and some of it wrong, all of it.
#[test]
fn a_dry_run_counts_what_a_run_then_does() {
    let scene = scene(|source| {
        fs::create_dir(source.join("dir")).unwrap();
        for name in ["file", "dir/in", "first", "other"] {
            fs::write(source.join(name), name).unwrap();
        }
        fs::write(source.join("empty"), "").unwrap();
        symlink("there", source.join("link")).unwrap();
        symlink("there", source.join("dir/link")).unwrap();
        fs::hard_link(source.join("first"), source.join("dir/second")).unwrap();
        fs::hard_link(source.join("other"), source.join("dir/another")).unwrap();
    });
    let target = &scene.target;
    let replace = |name: &str| fs::remove_file(target.join(name)).map(|()| target.join(name)).unwrap();
    let states: [(&str, &dyn Fn(), u64); 8] = [
        ("no folder", &|| fs::remove_dir(target).unwrap(), 10),
        ("all of it", &|| (), 0),
        ("links that lead elsewhere", &|| symlink("elsewhere", replace("dir/link")).unwrap(), 1),
        ("a file in the place of a link", &|| fs::write(replace("link"), "there").unwrap(), 1),
        ("a file in the place of a further name", &|| fs::write(replace("dir/second"), "first").unwrap(), 1),
        ("other contents of both names", &|| fs::write(target.join("other"), "OTHER").unwrap(), 2),
        (
            "a file in the place of a folder",
            &|| fs::remove_dir_all(target.join("dir")).and_then(|()| fs::write(target.join("dir"), "there")).unwrap(),
            5,
        ),
        ("an empty folder", &|| fs::remove_dir_all(target).and_then(|()| fs::create_dir(target)).unwrap(), 10),
    ];
    for (state, make, changes) in states {
        make();
        let run = |dry_run| scene.run(Options { dry_run, delete: true, ..scene.options() });
        let ((dry, _), (report, monitor)) = (run(true), run(false));
        assert!(monitor.problems().is_empty(), "{state}: {:?}", monitor.problems());
        assert_eq!(report.counts.restored, changes, "{state}");
        let told = |counts: Counts| (counts.restored, counts.kept, counts.deleted, counts.bytes_written, counts.bytes);
        assert_eq!(told(dry.counts), told(report.counts), "{state}");
        scene.same();
    }
}

#[test]
fn modes_and_times_of_what_is_right_are_put_right() {
    let scene = scene(|source| {
        fs::write(source.join("file"), "saved").unwrap();
        fs::create_dir(source.join("dir")).unwrap();
        symlink("there", source.join("link")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, source.join("pipe"), rustix::fs::Mode::from_raw_mode(0o640)).unwrap();
        fs::set_permissions(source.join("file"), PermissionsExt::from_mode(0o640)).unwrap();
        fs::set_permissions(source.join("dir"), PermissionsExt::from_mode(0o750)).unwrap();
    });
    scene.run(scene.options());
    scene.same();
    for name in ["file", "dir", "pipe"] {
        fs::set_permissions(scene.target.join(name), PermissionsExt::from_mode(0o777)).unwrap();
    }
    scene.put("file", "saved", at(5));
    fs::File::open(scene.target.join("dir")).unwrap().set_modified(at(5)).unwrap();
    let (report, _) = scene.run(scene.options());
    assert_eq!((report.counts.kept, report.counts.bytes_written), (report.counts.entries, 0));
    scene.same();
    // Others of their kind, but not the same.
    fs::remove_file(scene.target.join("link")).unwrap();
    symlink("elsewhere", scene.target.join("link")).unwrap();
    let (report, _) = scene.run(scene.options());
    assert_eq!((report.counts.restored, report.counts.kept), (1, 3));
    scene.same();
}

#[test]
fn what_is_right_is_not_touched_and_the_next_backup_finds_it_unchanged() {
    let mut scene = scene(|source| {
        fs::create_dir_all(source.join("deep/down")).unwrap();
        for name in ["small", "deep/one", "deep/down/two"] {
            fs::write(source.join(name), name).unwrap();
        }
        fs::write(source.join("large"), Rng::new(3).bytes(3 << 20)).unwrap();
        symlink("small", source.join("link")).unwrap();
        fs::set_permissions(source.join("small"), fs::Permissions::from_mode(0o4711)).unwrap();
    });
    scene.target = scene.source.clone();
    for overwrite in [Overwrite::IfChanged, Overwrite::Always] {
        let (report, monitor) = scene.run(Options { overwrite, ..scene.options() });
        assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
        assert_eq!(report.counts.restored, 0, "{overwrite:?}: {:?}", report.counts);
        settle();
        let again = scene.bench.backup(&scene.source);
        assert_eq!((again.counts.new, again.counts.changed), (0, 0), "{overwrite:?}");
    }
}

#[test]
fn other_kinds_of_things_give_way_but_a_directory_only_when_told() {
    let scene = scene(|source| {
        fs::create_dir_all(source.join("dir/sub")).unwrap();
        fs::write(source.join("dir/sub/file"), "saved").unwrap();
        fs::write(source.join("file"), "saved").unwrap();
        symlink("there", source.join("link")).unwrap();
        fs::write(source.join("was-a-link"), "saved").unwrap();
    });
    let outside = tempfile::tempdir().unwrap();
    fs::create_dir(outside.path().join("sub")).unwrap();
    fs::write(outside.path().join("sub/file"), "outside").unwrap();
    let prepare = || {
        let _ = fs::remove_dir_all(&scene.target);
        fs::create_dir_all(scene.target.join("file/full")).unwrap();
        fs::create_dir_all(scene.target.join("link")).unwrap();
        fs::write(scene.target.join("file/full/of"), "things").unwrap();
        symlink(outside.path(), scene.target.join("dir")).unwrap();
        symlink(outside.path().join("sub/file"), scene.target.join("was-a-link")).unwrap();
    };
    prepare();
    let (report, monitor) = scene.run(scene.options());
    let told: BTreeSet<_> = monitor.problems().iter().map(|p| p.path.clone()).collect();
    let expected = ["file", "link"].map(|n| scene.source.join(n).as_os_str().as_bytes().to_vec());
    assert_eq!(told, expected.into());
    assert!(monitor.problems().iter().all(|p| p.kind == ProblemKind::Unwritable && p.cause.contains("--delete")));
    assert_eq!((report.counts.unwritable, report.counts.entries), (2, 6));
    assert_eq!((scene.read("file/full/of"), scene.read("dir/sub/file")), ("things".into(), "saved".into()));
    assert!(!scene.target.join("dir").is_symlink());

    prepare();
    let options = || Options { delete: true, ..scene.options() };
    scene.run(Options { dry_run: true, ..options() });
    assert_eq!(scene.read("file/full/of"), "things", "a dry run deleted something");
    assert!(scene.target.join("dir").is_symlink());
    let (_, monitor) = scene.run(options());
    assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
    scene.same();
    assert_eq!(fs::read_to_string(outside.path().join("sub/file")).unwrap(), "outside");
}

/// Law 24, for what is of another kind than what the snapshot has: it goes when its successor is whole, and stays where
/// that is lost.
#[test]
fn what_is_of_another_kind_stays_until_its_successor_is_whole() {
    let scene = scene(|source| {
        for name in ["was-a-link", "was-a-pipe", "was-a-folder", "linked"] {
            fs::write(source.join(name), name.repeat(1000)).unwrap();
        }
        fs::hard_link(source.join("linked"), source.join("linked-too")).unwrap();
        symlink("there", source.join("link")).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o640);
        rustix::fs::mkfifoat(rustix::fs::CWD, source.join("pipe"), mode).unwrap();
    });
    let target = |name: &str| scene.target.join(name);
    symlink("elsewhere", target("was-a-link")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, target("was-a-pipe"), rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    for name in ["was-a-folder", "linked-too", "link"] {
        fs::create_dir_all(target(name).join("full")).unwrap();
        fs::write(target(name).join("full/of"), "things").unwrap();
    }
    fs::write(target("pipe"), "things").unwrap();
    let mut packs = Vec::new();
    scene.bench.memory.list("data", &mut |listed| packs.push(listed.name)).unwrap();
    let kept: Vec<_> = packs.iter().map(|name| (name, scene.bench.memory.get(name).unwrap())).collect();
    packs.iter().for_each(|name| scene.bench.memory.delete(name).unwrap());

    let options = || Options { delete: true, ..scene.options() };
    let (report, monitor) = scene.run(options());
    assert_eq!((report.counts.damaged, report.counts.unwritable), (4, 1), "{:?}", monitor.problems());
    assert_eq!(fs::read_link(target("was-a-link")).unwrap(), Path::new("elsewhere"));
    assert!(std::os::unix::fs::FileTypeExt::is_fifo(&fs::symlink_metadata(target("was-a-pipe")).unwrap().file_type()));
    for name in ["was-a-folder", "linked-too"] {
        assert_eq!(scene.read(&format!("{name}/full/of")), "things");
    }
    // What has no contents is there.
    assert_eq!(fs::read_link(target("link")).unwrap(), Path::new("there"));
    assert!(std::os::unix::fs::FileTypeExt::is_fifo(&fs::symlink_metadata(target("pipe")).unwrap().file_type()));

    kept.iter().for_each(|(name, bytes)| scene.bench.memory.put(name, bytes, Put::Create).unwrap());
    let (_, monitor) = scene.run(options());
    assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
    scene.same();
}

/// The same where the successor is a directory: what is in it decides.
#[test]
fn what_a_directory_takes_the_place_of_stays_until_all_is_in_it() {
    let scene = scene(|source| {
        for name in ["was-a-file", "was-a-link"] {
            fs::create_dir_all(source.join(name).join("deep")).unwrap();
            fs::write(source.join(name).join("deep/file"), name.repeat(1000)).unwrap();
        }
        fs::create_dir(source.join("empty")).unwrap();
    });
    let target = |name: &str| scene.target.join(name);
    fs::write(target("was-a-file"), "things").unwrap();
    fs::write(target("empty"), "things").unwrap();
    symlink("elsewhere", target("was-a-link")).unwrap();
    let mut packs = Vec::new();
    scene.bench.memory.list("data", &mut |listed| packs.push(listed.name)).unwrap();
    let kept: Vec<_> = packs.iter().map(|name| (name, scene.bench.memory.get(name).unwrap())).collect();
    packs.iter().for_each(|name| scene.bench.memory.delete(name).unwrap());
    let aside = || {
        let names = fs::read_dir(&scene.target).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".old")).map(|name| target(&name)).collect::<Vec<_>>()
    };

    let (report, monitor) = scene.run(scene.options());
    let problems = monitor.problems();
    assert_eq!((report.counts.damaged, report.counts.unwritable), (2, 2), "{problems:?}");
    let aside_now = aside();
    assert_eq!(aside_now.len(), 2, "{aside_now:?}");
    for path in &aside_now {
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(problems.iter().any(|problem| problem.cause.contains(name)), "{name} is told: {problems:?}");
        match fs::read_link(path) {
            Ok(to) => assert_eq!(to, Path::new("elsewhere")),
            Err(_) => assert_eq!(fs::read_to_string(path).unwrap(), "things"),
        }
    }
    assert!(target("empty").is_dir(), "nothing was to be in it");

    // Of that run they are the user's by now.
    for path in aside_now {
        let name = if fs::read_link(&path).is_ok() { "was-a-link" } else { "was-a-file" };
        fs::remove_dir_all(target(name)).unwrap();
        fs::rename(path, target(name)).unwrap();
    }
    kept.iter().for_each(|(name, bytes)| scene.bench.memory.put(name, bytes, Put::Create).unwrap());
    let (_, monitor) = scene.run(scene.options());
    assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
    assert!(aside().is_empty(), "{:?}", aside());
    scene.same();
}

/// More chunks and holes than a window has room for.
#[test]
fn a_small_file_of_many_holes_comes_back() {
    let scene = scene(|source| {
        let file = fs::File::create(source.join("scattered")).unwrap();
        (0..900).for_each(|n| file.write_all_at(&Rng::new(n).bytes(4096), n * 8192).unwrap());
        file.set_len(900 * 8192).unwrap();
    });
    let (report, monitor) = scene.run(scene.options());
    assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
    assert_eq!(report.counts.restored, 1);
    scene.same();
}

#[test]
fn what_the_snapshot_does_not_have_is_deleted_only_when_told_and_never_what_is_left_out() {
    let scene = scene(|source| {
        fs::create_dir(source.join("dir")).unwrap();
        fs::write(source.join("dir/file"), "saved").unwrap();
        fs::write(source.join("left.out"), "saved").unwrap();
    });
    let extras = ["extra", "dir/extra", "dir/tree/deep/extra", "dir/mine.out", "mine.out/in"];
    for extra in extras {
        let path = scene.target.join(extra);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "extra").unwrap();
    }
    let there = || extras.into_iter().filter(|e| scene.target.join(e).exists()).collect::<Vec<_>>();
    let exclude = || vec![Pattern::flag("*.out")];
    let run = |delete, dry_run| scene.run(Options { delete, dry_run, exclude: exclude(), ..scene.options() }).0.counts;
    assert_eq!(run(false, false).deleted, 0);
    assert_eq!((run(true, true).deleted, there()), (3, extras.to_vec()));
    assert_eq!((run(true, false).deleted, there()), (3, vec!["dir/mine.out", "mine.out/in"]));
    assert!(!scene.target.join("left.out").exists());
    assert_eq!(scene.read("dir/file"), "saved");
    // One path alone: what stands beside it, or beside what leads to it, is nobody's business.
    for (path, deleted, left) in [
        (&b"/dir"[..], 2, &["extra", "mine.out/in"][..]),
        (b"/dir/file", 0, &extras),
        (b"/left.out", 0, &extras),
        (b"/", 4, &[]),
    ] {
        for extra in extras {
            fs::create_dir_all(scene.target.join(extra).parent().unwrap()).unwrap();
            fs::write(scene.target.join(extra), "extra").unwrap();
        }
        let _ = fs::remove_dir_all(scene.target.join("dir/tree"));
        let (report, _) = scene.run(Options { delete: true, paths: vec![path.to_vec()], ..scene.options() });
        let left: Vec<_> = left.iter().copied().filter(|e| !e.contains("tree")).collect();
        assert_eq!((report.counts.deleted, there()), (deleted, left), "{}", path.escape_ascii());
        assert_eq!(scene.read("dir/file"), "saved");
    }
}

#[test]
fn reading_back_finds_what_is_not_what_the_snapshot_says() {
    let noise = Rng::new(3).bytes(3 << 20);
    let scene = scene(|source| {
        for name in ["one", "two"] {
            fs::write(source.join(name), "saved").unwrap();
        }
        fs::write(source.join("large"), &noise).unwrap();
        fs::write(source.join("large-too"), [&noise[..], &noise].concat()).unwrap();
        fs::File::create(source.join("hole")).unwrap().set_len(3 << 20).unwrap();
    });
    let verify = |overwrite| scene.run(Options { verify: true, overwrite, ..scene.options() });
    let (report, monitor) = verify(Overwrite::Always);
    assert_eq!((report.verified, monitor.problems().len()), (5, 0));
    // Left alone as told, but not what the snapshot says: in a byte, in length, in what should be zeros.
    scene.put("two", "SAVED", at(5));
    let open = |name: &str| fs::File::options().write(true).open(scene.target.join(name)).unwrap();
    open("large").write_all_at(b"x", (3 << 20) - 1).unwrap();
    open("large-too").set_len(5 << 20).unwrap();
    open("hole").write_all_at(b"x", 2 << 20).unwrap();
    let (report, monitor) = verify(Overwrite::Never);
    assert_eq!((report.verified, report.counts.damaged), (1, 4));
    assert!(monitor.problems().iter().all(|p| p.cause.contains("read back")), "{:?}", monitor.problems());
    // And the other way round, each of them is found to be wrong and replaced.
    let (report, monitor) = verify(Overwrite::Always);
    assert_eq!((report.verified, report.counts.kept, monitor.problems().len()), (5, 1, 0));
    scene.same();
}

#[test]
fn the_parent_is_of_the_same_host_and_paths_and_still_there() {
    let bench = bench();
    let (a, b) = (bench.folder.path().join("a"), bench.folder.path().join("b"));
    for dir in [&a, &b] {
        fs::create_dir(dir).unwrap();
        fs::write(dir.join("file"), "same").unwrap();
    }
    settle();
    let fresh = || {
        let cache = drumlin_repo::Cache::open(&bench.repository, None, bench.folder.path()).unwrap();
        std::sync::Arc::new(cache)
    };
    for remembered in [true, false] {
        let run = |path: &Path, host: &str| {
            let cache = if remembered { bench.cache.clone() } else { fresh() };
            let options = backup::Options { host: host.into(), ..crate::common::options(&[path]) };
            backup::backup(&bench.repository, &cache, options, &Quiet::default()).unwrap()
        };
        let host = format!("host-{remembered}");
        let first = run(&a, &host).snapshot.unwrap();
        assert_eq!(run(&b, &host).parent, None);
        assert_eq!(run(&a, &format!("another-{remembered}")).parent, None);
        let second = run(&a, &host);
        assert_eq!(second.parent, Some(first));
        let second = second.snapshot.unwrap();
        let third = run(&a, &host);
        assert_eq!(third.parent.as_ref(), Some(&second));
        bench.repository.remove_snapshot(third.snapshot.unwrap().id).unwrap();
        assert_eq!(run(&a, &host).parent, Some(second), "a parent that was forgotten");
    }
}

#[test]
fn what_is_in_a_directory_that_was_empty_is_deleted_too() {
    let scene = scene(|source| {
        for dir in ["a/empty", "a/full", "b", "c-empty", "d/e/f", "left out"] {
            fs::create_dir_all(source.join(dir)).unwrap();
        }
        for file in ["a/full/file", "b/file"] {
            fs::write(source.join(file), "saved").unwrap();
        }
    });
    let litter = ["a/empty/x", "c-empty/deep/y", "d/e/f/z", "left out/w", "new/v"];
    let run = |options: Options| {
        scene.run(scene.options());
        for file in litter {
            let path = scene.target.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "litter").unwrap();
        }
        let (report, monitor) = scene.run(options);
        assert!(monitor.problems().is_empty(), "{:?}", monitor.problems());
        let left: Vec<&str> = litter.into_iter().filter(|file| scene.target.join(file).exists()).collect();
        (report.counts.deleted, left)
    };
    let options = || Options { delete: true, ..scene.options() };
    assert_eq!(run(Options { dry_run: true, ..options() }), (5, litter.to_vec()));
    // Only below what was asked for, and not what is excluded.
    let paths = vec![b"/a/empty".to_vec(), b"/d/e".to_vec()];
    assert_eq!(run(Options { paths, ..options() }), (2, vec!["c-empty/deep/y", "left out/w", "new/v"]));
    let (deleted, left) = run(Options { exclude: vec![Pattern::flag("left out")], ..options() });
    assert_eq!((deleted, left), (4, vec!["left out/w"]));
    assert_eq!(run(options()), (5, vec![]));
    scene.same();

    // Of a snapshot in which something could not be read nobody knows whether the directory was empty.
    let mut snapshot = scene.snapshot.clone();
    snapshot.summary.unreadable = 1;
    let (deleted, left) = run(Options { snapshot, ..options() });
    assert_eq!((deleted, left), (1, litter[..4].to_vec()));
}

/// The directories above what was saved were on the way to it, and nobody looked what else is in them.
#[test]
fn what_lies_beside_the_sources_is_not_deleted() {
    let scene = scene(|source| {
        fs::create_dir_all(source.join("a/saved/empty")).unwrap();
        fs::write(source.join("a/saved/file"), "saved").unwrap();
        fs::write(source.join("a/one"), "saved by itself").unwrap();
    });
    let (saved, one) = (scene.source.join("a/saved"), scene.source.join("a/one"));
    settle();
    let save =
        |options| backup::backup(&scene.bench.repository, &scene.bench.cache, options, &Quiet::default()).unwrap();
    let snapshot = save(crate::common::options(&[&saved, &one])).snapshot.unwrap();
    let put = |name: &str| {
        let path = scene.target.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "there").unwrap();
    };
    for subfolder in [None, Some(&scene.source)] {
        let options = |dry_run| Options {
            snapshot: snapshot.clone(),
            subfolder: subfolder.map(|folder| folder.as_os_str().as_bytes().to_vec()),
            delete: true,
            dry_run,
            ..scene.options()
        };
        let base = match subfolder {
            Some(_) => String::new(),
            None => format!("{}/", scene.source.strip_prefix("/").unwrap().display()),
        };
        for name in ["beside", "a/beside", "a/saved/new", "a/saved/empty/new", "a/saved-not"] {
            put(&format!("{base}{name}"));
        }
        put("at the root");
        for dry_run in [true, false] {
            assert_eq!(scene.run(options(dry_run)).0.counts.deleted, 2, "{subfolder:?}");
        }
        for (name, stays) in [
            ("beside", true),
            ("a/beside", true),
            ("a/saved-not", true),
            ("a/saved/new", false),
            ("a/saved/empty/new", false),
        ] {
            assert_eq!(scene.target.join(format!("{base}{name}")).exists(), stays, "{name}, {subfolder:?}");
        }
        assert!(scene.target.join("at the root").exists());
    }
    // A stream is no folder.
    let stream = backup::Source::Stream {
        name: b"dump".to_vec(),
        reader: Box::new(&b"dumped"[..]),
        outcome: Box::new(|| Ok(())),
    };
    let options = backup::Options { source: stream, ..crate::common::options(&[]) };
    let options =
        Options { snapshot: save(options).snapshot.unwrap(), subfolder: None, delete: true, ..scene.options() };
    let (report, _) = scene.run(options);
    assert_eq!((report.counts.deleted, report.counts.restored), (0, 1));
    assert!(scene.target.join("at the root").exists() && scene.read("dump") == "dumped");
}

/// What the program keeps for itself lies in what is restored, and no snapshot has it.
#[test]
fn what_the_program_needs_is_not_deleted() {
    let scene = scene(|source| {
        fs::create_dir_all(source.join("dir")).unwrap();
        fs::write(source.join("dir/file"), "saved").unwrap();
        fs::write(source.join("place"), "saved").unwrap();
    });
    let own = ["dir/deep/down/repository/config", "cache/of/it", "key", "place/config"];
    let other = ["dir/deep/other", "dir/deep/down/other/file", "cached", "keys"];
    for name in own.iter().chain(&other) {
        let path = scene.target.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "there").unwrap();
    }
    // By another way to the same place.
    symlink(&scene.target, scene.bench.folder.path().join("way")).unwrap();
    let at = |name: &str| scene.bench.folder.path().join("way").join(name);
    let options = |dry_run| Options {
        repository: Some(at("dir/deep/down/repository")),
        spared: vec![at("cache"), at("key"), at("place"), at("none")],
        delete: true,
        dry_run,
        ..scene.options()
    };
    for dry_run in [true, false] {
        let (report, monitor) = scene.run(options(dry_run));
        assert_eq!(report.counts.deleted, other.len() as u64, "{dry_run}");
        let told = monitor.problems();
        assert!(told.len() == 1 && told[0].cause.contains("Drumlin itself needs"), "{told:?}");
    }
    own.iter().for_each(|name| assert_eq!(scene.read(name), "there", "{name}"));
    other.iter().for_each(|name| assert!(!scene.target.join(name).exists(), "{name}"));

    // Nothing is written into the repository, though a snapshot has something there.
    let inside = Options { target: scene.target.join("dir/deep/down/repository"), ..options(false) };
    let (report, monitor) = scene.run(inside);
    assert_eq!((report.counts.restored, report.counts.deleted), (0, 0));
    assert!(monitor.problems()[0].cause.contains("lies in the repository"), "{:?}", monitor.problems());
    assert_eq!(fs::read_dir(scene.target.join("dir/deep/down/repository")).unwrap().count(), 1);
}

/// Some TiB of nothing take as long as nothing.
#[test]
fn holes_that_are_there_are_not_read() {
    let scene = scene(|source| {
        let file = fs::File::create(source.join("sparse")).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"end", 1 << 40).unwrap();
    });
    let (foreseen, _) = scene.run(Options { dry_run: true, ..scene.options() });
    let (report, _) = scene.run(scene.options());
    assert_eq!(report.counts.restored, 1);
    assert_eq!(foreseen.counts.bytes_written, report.counts.bytes_written);
    let started = std::time::Instant::now();
    let (report, _) = scene.run(Options { overwrite: Overwrite::Always, ..scene.options() });
    assert_eq!(report.counts.kept, 1);
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
    // Something in a hole is seen.
    let file = fs::File::options().write(true).open(scene.target.join("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"x", 1 << 39).unwrap();
    let (report, _) = scene.run(Options { overwrite: Overwrite::Always, ..scene.options() });
    assert_eq!(report.counts.restored, 1);
}

/// With what is in the way of a folder, however it is asked for.
#[test]
fn what_is_in_the_way_of_a_folder() {
    let scene = scene(|source| {
        for dir in ["file", "link"] {
            fs::create_dir(source.join(dir)).unwrap();
            fs::write(source.join(dir).join("x.o"), "1").unwrap();
            fs::write(source.join(dir).join("y.o"), "2").unwrap();
        }
    });
    let put = || {
        for name in ["file", "link"] {
            let _ = fs::remove_dir_all(scene.target.join(name));
            let _ = fs::remove_file(scene.target.join(name));
        }
        fs::write(scene.target.join("file"), "in the way").unwrap();
        std::os::unix::fs::symlink("elsewhere", scene.target.join("link")).unwrap();
    };
    let options = |overwrite, include: &[&str], dry_run| {
        let include = include.iter().map(ToString::to_string).collect();
        Options { overwrite, include, dry_run, ..scene.options() }
    };
    for overwrite in [Overwrite::Never, Overwrite::IfNewer] {
        put();
        let [(foreseen, told), (done, problems)] =
            [true, false].map(|dry_run| scene.run(options(overwrite, &[], dry_run)));
        let counts = |report: &restore::Report| (report.counts.restored, report.counts.kept, report.counts.unwritable);
        assert_eq!(counts(&foreseen), counts(&done));
        assert_eq!((counts(&done), problems.problems().len()), ((0, 0, 6), 2), "{:?}", problems.problems());
        assert_eq!(told.problems().len(), 2);
        assert_eq!(scene.read("file"), "in the way");
    }
    // A file gives way to a folder that leads to what is wanted. What leads elsewhere doesn't.
    put();
    let (report, monitor) = scene.run(options(Overwrite::IfChanged, &["*.o"], false));
    assert_eq!((report.counts.restored, scene.read("file/x.o")), (2, "1".into()), "{:?}", monitor.problems());
    assert!(scene.target.join("link").is_symlink());
    let left: Vec<_> = fs::read_dir(&scene.target).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}
