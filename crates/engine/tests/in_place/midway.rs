//! What the target is like while a restore is at work, and when it is stopped, killed or has no room.

use crate::scene::scene;
use drumlin_engine::Error;
use drumlin_engine::monitor::{Counters, Monitor, Problem, Quiet};
use drumlin_engine::restore::{self, Options, Overwrite};
use drumlin_testkit::{LoopFs, Rng};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

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
        // Of one chunk, and of none.
        (0..300).for_each(|n| fs::write(source.join(format!("small-{n}")), Rng::new(n).bytes(60_000)).unwrap());
        fs::write(source.join("empty"), "").unwrap();
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
            // Its name is there when its time is.
            for n in 0..300 {
                let name = format!("small-{n}");
                let Ok(there) = fs::metadata(scene.target.join(&name)) else { continue };
                let source = fs::metadata(scene.source.join(&name)).unwrap();
                assert_eq!((there.len(), there.modified().unwrap()), (60_000, source.modified().unwrap()), "{name}");
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

/// Saves into a file that is there, once a few bytes of its successor are read.
struct Saves {
    quiet: Quiet,
    path: PathBuf,
    asked: AtomicU32,
}

impl Monitor for Saves {
    fn counters(&self) -> &Counters {
        self.quiet.counters()
    }

    fn problem(&self, problem: &Problem) {
        self.quiet.problem(problem);
    }

    fn stop(&self) -> bool {
        let is_under_way = self.counters().get().bytes_written > 0;
        if is_under_way && self.asked.fetch_add(1, Ordering::Relaxed) == 0 {
            fs::write(&self.path, "saved just now").unwrap();
        }
        false
    }
}

#[test]
fn what_is_saved_while_its_successor_is_written_stays_if_it_is_newer() {
    let scene = scene(|source| fs::write(source.join("large"), Rng::new(7).bytes(24 << 20)).unwrap());
    for (overwrite, stays) in [(Overwrite::IfNewer, true), (Overwrite::Always, false)] {
        scene.put("large", "old", crate::scene::at(1));
        let (quiet, path) = (Quiet::default(), scene.target.join("large"));
        let saves = Saves { quiet, path, asked: AtomicU32::new(0) };
        let options = Options { overwrite, ..scene.options() };
        let report = restore::restore(&scene.bench.repository, &scene.bench.cache, options, &saves).unwrap();
        assert!(saves.asked.into_inner() > 0);
        assert_eq!((report.counts.restored, report.counts.kept), if stays { (0, 1) } else { (1, 0) });
        match stays {
            true => assert_eq!(scene.read("large"), "saved just now"),
            false => scene.same(),
        }
    }
}

/// Replacing one name of a file changes what the other one is, and nobody has saved anything.
#[test]
fn names_of_one_older_file_are_all_replaced() {
    let scene = scene(|source| {
        fs::write(source.join("a"), "new a").unwrap();
        fs::write(source.join("b"), "new b").unwrap();
    });
    scene.put("a", "old", crate::scene::at(1));
    fs::hard_link(scene.target.join("a"), scene.target.join("b")).unwrap();
    let (report, _) = scene.run(Options { overwrite: Overwrite::IfNewer, workers: 1, ..scene.options() });
    assert_eq!((report.counts.restored, report.counts.kept), (2, 0));
    scene.same();
}
