//! What restoring costs: small files with their metadata on one and two threads, big files direct and buffered.
//!
//! `place small [FILES] [DIR]`: in DIR, or in a fresh journalled ext4 in a loop file (as root).
//! `place big [MIB] [DIR]`: in DIR, or in the temporary directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use drumlin_host::meta::{Extras, Time};
use drumlin_host::place::{BigFile, Target, TargetDir, Wanted};
use drumlin_testkit::{LoopFs, Rng};
use rustix::fs::{self, Mode, OFlags, Timespec, Timestamps};

const FILES_PER_DIR: usize = 100;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let count = args.get(2).and_then(|n| n.parse().ok());
    let dir = args.get(3).map(PathBuf::from);
    match args.get(1).map(String::as_str) {
        Some("small") => small(count.unwrap_or(50_000), dir),
        Some("big") => big(count.unwrap_or(2048), dir.unwrap_or_else(std::env::temp_dir)),
        _ => eprintln!("place small [FILES] [DIR] | place big [MIB] [DIR]"),
    }
}

/// Wall time since the process began to count, and processor time of all threads, in seconds.
fn clocks(start: Instant) -> (f64, f64) {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    (start.elapsed().as_secs_f64(), used.tv_sec as f64 + used.tv_nsec as f64 * 1e-9)
}

type Work = fn(&Arc<TargetDir>, usize, &[u8], &Wanted<'_>);

fn small(files: usize, dir: Option<PathBuf>) {
    let (_mounted, top) = match dir {
        Some(dir) => (None, dir),
        None => {
            let fs = LoopFs::new(2 << 30).expect("root, mkfs.ext4 and a loop device");
            let top = fs.path().join("top");
            (Some(fs), top)
        }
    };
    let extras = Extras::default();
    let labelled = Extras { xattrs: vec![(b"user.label".to_vec(), b"value".to_vec())], ..Extras::default() };
    let me = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let mtime = Time { sec: 1_600_000_000, nsec: 5 };
    let mine = Wanted { mode: 0o644, owner: Some(me), mtime, extras: &extras };
    let other = Wanted { owner: Some((1234, 1234)), ..mine };
    let labelled = Wanted { extras: &labelled, ..mine };
    let place: Work = |dir, i, data, wanted| drop(dir.place_file(&name(i), data, wanted).expect("placed"));
    let pieces: Work = |dir, i, data, wanted| {
        let file = dir.create_file(&name(i)).expect("created");
        file.write_at(0, data).expect("written");
        file.finish(wanted).expect("finished");
    };
    let temp: Work = |dir, i, data, wanted| {
        let file = dir.create_temp().expect("created");
        file.write_at(0, data).expect("written");
        file.commit_as(&name(i), wanted).expect("committed");
    };
    let link: Work = |dir, i, _, wanted| {
        let extras = Extras { target: name(i), ..Extras::default() };
        dir.symlink(&name(i), &Wanted { extras: &extras, ..*wanted }).expect("made");
    };
    for threads in [1, 2] {
        let run = |label: &str, wanted, work| measure(&top, files, threads, label, wanted, work);
        run("system calls alone: open, write, fchown, fchmod, futimens", &mine, bare as Work);
        run("place_file", &mine, place);
        run("place_file, owner differs", &other, place);
        run("place_file, one attribute", &labelled, place);
        run("create_file, write_at, finish", &mine, pieces);
        run("create_temp, write_at, commit_as", &mine, temp);
        run("symlink", &mine, link);
    }
}

fn name(i: usize) -> Vec<u8> {
    format!("file{i:04}").into_bytes()
}

/// What the calls cost without anything around them.
fn bare(dir: &Arc<TargetDir>, i: usize, data: &[u8], _: &Wanted<'_>) {
    // The directory's descriptor is private to the crate: the file is made by the directory's own path instead.
    thread_local!(static HELD: std::cell::RefCell<Option<(u64, rustix::fd::OwnedFd)>> = const { std::cell::RefCell::new(None) });
    HELD.with_borrow_mut(|held| {
        if i.is_multiple_of(FILES_PER_DIR) {
            let ino = dir.stat_self().expect("looked at").ino;
            let path = BARE_DIRS.lock().expect("not poisoned").remove(&ino).expect("registered");
            let fd = fs::open(&path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).expect("opened");
            *held = Some((ino, fd));
        }
        let (_, at) = held.as_ref().expect("opened above");
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let fd = fs::openat(at, name(i), flags, Mode::from_raw_mode(0o600)).expect("created");
        rustix::io::write(&fd, data).expect("written");
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        fs::fchown(&fd, Some(uid), Some(gid)).expect("given");
        fs::fchmod(&fd, Mode::from_raw_mode(0o644)).expect("set");
        let time = Timespec { tv_sec: 1_600_000_000, tv_nsec: 5 };
        fs::futimens(&fd, &Timestamps { last_access: time, last_modification: time }).expect("set");
    });
}

static BARE_DIRS: std::sync::Mutex<std::collections::BTreeMap<u64, PathBuf>> =
    std::sync::Mutex::new(std::collections::BTreeMap::new());

fn measure(top: &Path, files: usize, threads: usize, label: &str, wanted: &Wanted<'_>, work: Work) {
    let (mut best, mut best_cpu) = (f64::MAX, f64::MAX);
    let data = [7u8; 1024];
    for _ in 0..3 {
        let target = Target::open(top, true).expect("opened");
        let (start, before) = (Instant::now(), clocks(Instant::now()).1);
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let root = target.root();
                scope.spawn(move || {
                    for d in (thread..files / FILES_PER_DIR).step_by(threads) {
                        let dir_name = format!("d{d}");
                        let dir = root.make_dir(dir_name.as_bytes()).expect("made");
                        if work as usize == bare as Work as usize {
                            let ino = dir.stat_self().expect("looked at").ino;
                            BARE_DIRS.lock().expect("not poisoned").insert(ino, top.join(&dir_name));
                        }
                        for i in 0..FILES_PER_DIR {
                            work(&dir, d * FILES_PER_DIR + i, &data, wanted);
                        }
                        dir.finish_dir(&Wanted { mode: 0o755, ..*wanted }).expect("finished");
                    }
                });
            }
        });
        let (wall, cpu) = clocks(start);
        best = best.min(wall);
        best_cpu = best_cpu.min(cpu - before);
        drop(target);
        std::fs::remove_dir_all(top).expect("removed");
    }
    let per = 1e6 / files as f64;
    println!("{threads} threads  wall {:6.2} µs/file  cpu {:6.2} µs/file  {label}", best * per, best_cpu * per);
}

fn big(mib: usize, dir: PathBuf) {
    let home = tempfile::tempdir_in(dir).expect("made");
    let target = Target::open(home.path(), false).expect("opened");
    let data = Rng::new(1).bytes(1 << 20);
    let extras = Extras::default();
    let wanted = Wanted { mode: 0o600, owner: None, mtime: Time::default(), extras: &extras };
    let size = (mib as u64) << 20;
    for (label, hint, holes) in [
        ("BigFile, direct, reserved", size, false),
        ("BigFile, direct, not reserved (holes)", size, true),
        ("BigFile, buffered", 0, false),
    ] {
        for sync in [false, true] {
            let (mut best, mut best_cpu) = (f64::MAX, f64::MAX);
            for _ in 0..3 {
                let (start, before) = (Instant::now(), clocks(Instant::now()).1);
                let file = target.root().create_file(b"big").expect("created");
                let mut writer = BigFile::new(&file, hint, holes).expect("begun");
                for _ in 0..mib {
                    writer.write(&data).expect("written");
                }
                writer.finish().expect("ended");
                if sync {
                    file.sync().expect("synced");
                }
                file.finish(&wanted).expect("finished");
                let (wall, cpu) = clocks(start);
                best = best.min(wall);
                best_cpu = best_cpu.min(cpu - before);
                target.root().remove(b"big").expect("removed");
                target.sync().expect("synced");
            }
            let rate = size as f64 / best / 1e9;
            let per_mib = best_cpu * 1e6 / mib as f64;
            let synced = if sync { "fdatasync" } else { "no sync" };
            println!("{rate:6.2} GB/s  {per_mib:6.0} µs cpu/MiB  {label}, {synced}");
        }
    }
}
