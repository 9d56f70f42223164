//! Slow file systems are walked by many workers, and every walk stops at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::super::Shared;
use super::*;

/// Looking at a name with `~slow~` takes 5 ms.
fn time(path: &Path, threads: usize) -> Duration {
    let began = Instant::now();
    let all = walk(Options { threads: threads.into(), ..options(&[path]) });
    assert_same(&below(&all, path), &model(path));
    began.elapsed()
}

/// Sixteen workers against one; the best of some tries, as other programs may want the processor too.
fn assert_shared(path: &Path) {
    let one = time(path, 1);
    let tries: Vec<Duration> = (0..4).map(|_| time(path, 16)).collect();
    assert!(tries.iter().any(|&many| many * 8 <= one), "one worker {one:?}, sixteen {tries:?}");
}

#[test]
fn sixteen_workers_share_a_flat_directory() {
    let tmp = slow_files(400);
    assert_shared(tmp.path());
}

#[test]
fn sixteen_workers_share_directories_of_one_file() {
    let tmp = quick_dir();
    for i in 0..300 {
        let dir = tmp.path().join(format!("d{i}"));
        std::fs::create_dir(&dir).expect("mkdir");
        std::fs::write(dir.join("f~slow~"), b"").expect("write");
    }
    assert_shared(tmp.path());
}

#[test]
fn sixteen_workers_share_a_nested_tree() {
    let tmp = quick_dir();
    for i in 0..200 {
        let dir = tmp.path().join(format!("{}/{}/{}", i / 40, i / 8 % 5, i % 8));
        std::fs::create_dir_all(&dir).expect("mkdir");
        std::fs::write(dir.join("f~slow~"), b"").expect("write");
    }
    assert_shared(tmp.path());
}

/// How many workers a walk of `path` has at most, if it is made ready by `prepare` once it goes on.
fn most_workers(path: &Path, threads: Crew, prepare: impl Fn(&Shared)) -> usize {
    let mut walk = Walk::start(Options { threads, ..options(&[path]) }, Arc::new(Filter::none())).expect("threads");
    let (shared, done) = (Arc::clone(&walk.shared), AtomicBool::new(false));
    prepare(&shared);
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut most = 0;
            while !done.load(Ordering::Relaxed) {
                most = most.max(shared.lock().workers);
                std::thread::sleep(Duration::from_millis(1));
            }
            most
        });
        while walk.next().is_some() {}
        done.store(true, Ordering::Relaxed);
        looking.join().expect("it only looks")
    })
}

fn slow_files(count: usize) -> tempfile::TempDir {
    let tmp = quick_dir();
    for i in 0..count {
        std::fs::write(tmp.path().join(format!("f{i}~slow~")), b"").expect("write");
    }
    tmp
}

/// Nobody says how many, and the tree is slow: there are soon as many as are of use.
#[test]
fn workers_join_while_they_wait() {
    let tmp = slow_files(2000);
    let threads = Crew { first: 2, most: 32 };
    let all = walk(Options { threads, ..options(&[tmp.path()]) });
    assert_same(&below(&all, tmp.path()), &model(tmp.path()));
    // Other tests keep processors busy.
    let idle = |shared: &Shared| shared.load.lock().unwrap().processors = u32::MAX;
    let tries: Vec<_> = (0..4).map(|_| most_workers(tmp.path(), threads, idle)).collect();
    assert!(tries.iter().any(|most| *most >= 16), "{tries:?} workers at most");
}

/// Who waits then waits for a lock or a processor, whatever the file system does.
#[test]
fn nobody_joins_while_processors_are_full() {
    let tmp = slow_files(600);
    let full = |shared: &Shared| {
        let mut load = shared.load.lock().unwrap();
        (load.processors, load.full) = (0, true);
    };
    let tries: Vec<_> = (0..4).map(|_| most_workers(tmp.path(), Crew { first: 2, most: 32 }, full)).collect();
    assert!(tries.iter().any(|most| *most <= 4), "{tries:?} workers at most");
}

/// Where nothing is waited for, those that are there do the work; and never are there more than was said.
#[test]
fn no_more_workers_than_are_of_use() {
    let tmp = quick_dir();
    for i in 0..20_000 {
        let dir = tmp.path().join(format!("d{}", i / 100));
        std::fs::create_dir_all(&dir).expect("mkdir");
        std::fs::write(dir.join(format!("f{i}")), b"").expect("write");
    }
    for i in 0..600 {
        std::fs::write(tmp.path().join(format!("f{i}~slow~")), b"").expect("write");
    }
    let most = |source: &Path, threads| {
        let options = Options { threads, ..options(&[source]) };
        let mut walk = Walk::start(options, Arc::new(Filter::none())).expect("threads");
        let mut most = 0;
        while walk.next().is_some() {
            most = most.max(walk.shared.lock().workers);
        }
        most
    };
    // None, if they are done before the first listing is taken.
    assert!(most(&tmp.path().join("d7"), Crew { first: 2, most: 32 }) <= 2);
    assert!(most(tmp.path(), Crew { first: 2, most: 5 }) <= 5);
}

#[test]
fn a_stop_takes_milliseconds() {
    let tmp = slow_files(3000);
    let stop = |threads: usize| {
        let mut walk =
            Walk::start(Options { threads: threads.into(), ..options(&[tmp.path()]) }, Arc::new(Filter::none()))
                .expect("threads");
        std::thread::sleep(Duration::from_millis(60));
        let began = Instant::now();
        walk.stop();
        assert!(walk.next().is_none());
        let shared = Arc::clone(&walk.shared);
        drop(walk);
        let took = began.elapsed();
        let until = Instant::now() + Duration::from_secs(20);
        while shared.lock().workers > 0 {
            assert!(Instant::now() < until, "workers go on");
            std::thread::sleep(Duration::from_millis(1));
        }
        took
    };
    // On a busy machine, one of some. Who isn't stopped is waited for twice as long.
    for threads in [1, 4] {
        let tries: Vec<Duration> = (0..10).map(|_| stop(threads)).collect();
        assert!(tries.iter().any(|took| *took < Duration::from_millis(100)), "{threads}: {tries:?}");
    }
}
