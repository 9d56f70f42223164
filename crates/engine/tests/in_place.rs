//! A restore into a folder that has something in it already: what is right stays, what is wrong is replaced, and what the
//! user didn't ask for is left alone.

mod common;

use common::{Bench, bench, restore_options, settle, user};
use drumlin_engine::monitor::{Counters, Monitor, Problem, ProblemKind, Quiet};
use drumlin_engine::restore::{self, Options, Overwrite};
use drumlin_engine::{Error, backup};
use drumlin_format::snapshot::Snapshot;
use drumlin_store::{Put, Store};
use drumlin_testkit::{LoopFs, Rng, compare};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A snapshot of `source`, and a target.
struct Scene {
    bench: Bench,
    source: PathBuf,
    target: PathBuf,
    snapshot: Snapshot,
}

fn scene(make: impl FnOnce(&Path)) -> Scene {
    let bench = bench();
    let (source, target) = (bench.folder.path().join("source"), bench.folder.path().join("target"));
    fs::create_dir(&source).unwrap();
    fs::create_dir(&target).unwrap();
    make(&source);
    settle();
    let snapshot = bench.backup(&source).snapshot.unwrap();
    Scene { bench, source, target, snapshot }
}

impl Scene {
    fn options(&self) -> Options {
        let subfolder = Some(self.source.as_os_str().as_bytes().to_vec());
        Options { subfolder, ..restore_options(&self.snapshot, &self.target) }
    }

    fn run(&self, options: Options) -> (restore::Report, Quiet) {
        let monitor = Quiet::default();
        let report = restore::restore(&self.bench.repository, &self.bench.cache, options, &monitor).unwrap();
        (report, monitor)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.target.join(name)).unwrap()
    }

    fn put(&self, name: &str, contents: &str, time: SystemTime) {
        fs::write(self.target.join(name), contents).unwrap();
        fs::File::options().write(true).open(self.target.join(name)).unwrap().set_modified(time).unwrap();
    }

    #[track_caller]
    fn same(&self) {
        compare::assert_same(&self.source, &self.target, &compare::Options { roots: false, ..Default::default() });
    }
}

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

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

/// Law 24, for what is of another kind than what the snapshot has: it goes when its successor is whole, and stays where that is lost.
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
    let exclude = || vec!["*.out".to_owned()];
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
    assert!(matches!(&refused, Err(Error::NoPath(path)) if path == "/a/wrong"), "{refused:?}");
    assert_eq!(fs::read_dir(&scene.target).unwrap().count(), 0, "something was made before the paths were known");
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
fn a_full_target_ends_the_run_with_that_and_leaves_no_half_file() {
    let Some(fs) = LoopFs::new(16 << 20) else {
        println!("a_full_target: passed over, it needs root and loop devices");
        return;
    };
    for (files, len) in [(400usize, 100_000usize), (8, 5_000_000), (2, 20_000_000)] {
        let scene = scene(|source| {
            for n in 0..files {
                fs::write(source.join(n.to_string()), Rng::new(n as u64).bytes(len)).unwrap();
            }
        });
        let target = fs.dir(&format!("target-{files}")).unwrap();
        let options = Options { target: target.clone(), ..scene.options() };
        let full = restore::restore(&scene.bench.repository, &scene.bench.cache, options, &Quiet::default());
        let Err(Error::Place(e)) = full else { panic!("{full:?}") };
        assert!(e.is_full(), "{e}");
        for entry in fs::read_dir(&target).unwrap() {
            let entry = entry.unwrap();
            let whole = fs::read(scene.source.join(entry.file_name())).unwrap();
            assert!(fs::read(entry.path()).unwrap() == whole, "half of {:?} was left", entry.file_name());
        }
        fs::remove_dir_all(target).unwrap();
    }
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
            let options = backup::Options { host: host.into(), ..common::options(&[path]) };
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
fn a_closed_directory_is_finished_after_what_is_in_it() {
    const TEST: &str = "a_closed_directory_is_finished_after_what_is_in_it";
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
    let (deleted, left) = run(Options { exclude: vec!["left out".into()], ..options() });
    assert_eq!((deleted, left), (4, vec!["left out/w"]));
    assert_eq!(run(options()), (5, vec![]));
    scene.same();

    // Of a snapshot in which something could not be read nobody knows whether the directory was empty.
    let mut snapshot = scene.snapshot.clone();
    snapshot.summary.unreadable = 1;
    let (deleted, left) = run(Options { snapshot, ..options() });
    assert_eq!((deleted, left), (1, litter[..4].to_vec()));
}

/// Notes how many bytes were done whenever it is asked whether to stop.
#[derive(Default)]
struct Watch {
    quiet: Quiet,
    seen: Mutex<BTreeSet<u64>>,
}

impl Monitor for Watch {
    fn counters(&self) -> &Counters {
        self.quiet.counters()
    }

    fn problem(&self, problem: &Problem) {
        self.quiet.problem(problem);
    }

    fn stop(&self) -> bool {
        self.seen.lock().unwrap().insert(self.counters().get().bytes);
        false
    }
}

#[test]
fn a_large_file_is_counted_as_it_comes_and_not_when_it_is_planned() {
    const LEN: usize = 24 << 20;
    let mut contents = Rng::new(7).bytes(LEN);
    let scene = scene(|source| {
        fs::write(source.join("large"), &contents).unwrap();
        fs::write(source.join("small"), "small").unwrap();
    });
    contents[LEN - 1] ^= 1;
    // Written; looked at, as it is right; looked at nearly to its end and then written anew.
    for there in [None, Some("right"), Some("wrong")] {
        if there == Some("wrong") {
            fs::write(scene.target.join("large"), &contents).unwrap();
        }
        let watch = Watch::default();
        let options = Options { overwrite: Overwrite::Always, ..scene.options() };
        let report = restore::restore(&scene.bench.repository, &scene.bench.cache, options, &watch).unwrap();
        assert_eq!(report.counts.bytes, LEN as u64 + 5, "{there:?}");
        let seen = watch.seen.into_inner().unwrap();
        let between = seen.iter().filter(|bytes| (1 << 20..LEN as u64 - (1 << 20)).contains(*bytes)).count();
        assert!(between > 5, "{there:?}: {seen:?}");
        scene.same();
    }
}

/// A user who wants to stop at the n-th look at whether he does.
struct Impatient {
    quiet: Quiet,
    left: Mutex<u32>,
}

impl Monitor for Impatient {
    fn counters(&self) -> &Counters {
        self.quiet.counters()
    }

    fn problem(&self, problem: &Problem) {
        self.quiet.problem(problem);
    }

    fn stop(&self) -> bool {
        let mut left = self.left.lock().unwrap();
        *left = left.saturating_sub(1);
        *left == 0
    }
}

#[test]
fn whenever_it_is_stopped_it_ends_with_a_report_and_no_half_file() {
    let scene = scene(|source| {
        fs::write(source.join("large"), Rng::new(3).bytes(9 << 20)).unwrap();
        (0..6).for_each(|n| fs::write(source.join(n.to_string()), Rng::new(n).bytes(400_000)).unwrap());
        fs::hard_link(source.join("large"), source.join("linked")).unwrap();
    });
    let mut looks = 1;
    loop {
        let _ = fs::remove_dir_all(&scene.target);
        let monitor = Impatient { quiet: Quiet::default(), left: Mutex::new(looks) };
        let options = Options { verify: true, ..scene.options() };
        let report = restore::restore(&scene.bench.repository, &scene.bench.cache, options, &monitor);
        let report = report.unwrap_or_else(|e| panic!("stopped at look {looks}: {e}"));
        assert!(monitor.quiet.problems().is_empty(), "{looks}: {:?}", monitor.quiet.problems());
        let there = fs::read_dir(&scene.target).into_iter().flatten().map(|entry| entry.unwrap().file_name());
        for name in there {
            let whole = fs::read(scene.source.join(&name)).unwrap();
            assert!(fs::read(scene.target.join(&name)).unwrap() == whole, "{looks}: half of {name:?}");
        }
        if !report.stopped {
            break;
        }
        looks += if looks < 20 { 1 } else { 23 };
    }
    assert!(looks > 100, "there are more looks than {looks} in a restore");
    scene.same();
}

/// Looks at the target whenever it is asked whether to stop.
struct Looking<'a> {
    quiet: Quiet,
    look: &'a (dyn Fn() + Sync),
}

impl Monitor for Looking<'_> {
    fn counters(&self) -> &Counters {
        self.quiet.counters()
    }

    fn problem(&self, problem: &Problem) {
        self.quiet.problem(problem);
    }

    fn stop(&self) -> bool {
        (self.look)();
        false
    }
}

#[test]
fn who_spares_what_is_there_meets_no_half_files_of_a_run_that_was_killed() {
    let scene = scene(|source| {
        fs::write(source.join("large"), Rng::new(3).bytes(9 << 20)).unwrap();
        (0..6).for_each(|n| fs::write(source.join(n.to_string()), Rng::new(n).bytes(400_000)).unwrap());
    });
    let len = |path: PathBuf| fs::metadata(path).map_or(0, |meta| meta.len());
    for overwrite in [Overwrite::Never, Overwrite::IfNewer] {
        let _ = fs::remove_dir_all(&scene.target);
        let looks = AtomicU32::new(0);
        let look = || {
            looks.fetch_add(1, Ordering::Relaxed);
            for name in ["large", "0", "1", "2", "3", "4", "5"] {
                // Half a file may well be as long as the whole.
                let Ok(there) = fs::read(scene.target.join(name)) else { continue };
                assert!(there == fs::read(scene.source.join(name)).unwrap(), "half of {name}");
            }
        };
        let monitor = Looking { quiet: Quiet::default(), look: &look };
        let options = Options { overwrite, ..scene.options() };
        restore::restore(&scene.bench.repository, &scene.bench.cache, options, &monitor).unwrap();
        assert!(looks.load(Ordering::Relaxed) > 10);
        assert_eq!(len(scene.target.join("large")), 9 << 20);
        scene.same();
    }
}

#[test]
fn flags_that_count_on_empty_files_alone_are_set_before_anything_is_written() {
    let chattr = |flag: &str, path: &Path| {
        Command::new("chattr").arg(flag).arg(path).output().is_ok_and(|output| output.status.success())
    };
    // Random contents are several chunks, and so is what is written as a stream.
    let names = ["large", "several", "dir"];
    let mut can = true;
    let scene = scene(|source| {
        fs::write(source.join("large"), Rng::new(3).bytes(9 << 20)).unwrap();
        fs::write(source.join("several"), Rng::new(1).bytes(400_000)).unwrap();
        fs::create_dir(source.join("dir")).unwrap();
        fs::write(source.join("dir/inside"), Rng::new(2).bytes(400_000)).unwrap();
        // Compression: ext4 keeps the flag, and does nothing.
        can = names.iter().all(|name| chattr("+c", &source.join(name)));
    });
    if !can {
        return;
    }
    let flag = |path: PathBuf| {
        let has_something = match fs::read_dir(&path) {
            Ok(mut names) => names.next().is_some(),
            Err(_) => fs::metadata(&path).ok()?.blocks() > 0,
        };
        let file = has_something.then(|| fs::File::open(path).unwrap())?;
        Some(rustix::fs::ioctl_getflags(&file).unwrap().bits() & 0x4 != 0)
    };
    let seen = AtomicU32::new(0);
    let look = || {
        for (bit, name) in names.iter().enumerate() {
            if let Some(set) = flag(scene.target.join(name)) {
                assert!(set, "{name} has something in it, and not yet its flag");
                seen.fetch_or(1 << bit, Ordering::Relaxed);
            }
        }
    };
    let monitor = Looking { quiet: Quiet::default(), look: &look };
    restore::restore(&scene.bench.repository, &scene.bench.cache, scene.options(), &monitor).unwrap();
    assert_eq!(seen.load(Ordering::Relaxed), 7);
    assert!(monitor.quiet.problems().is_empty(), "{:?}", monitor.quiet.problems());
    scene.same();
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
