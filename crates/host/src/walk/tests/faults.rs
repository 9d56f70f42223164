//! Trees that change, refuse or fail while they are walked.

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::super::listing::What;
use super::*;

const NOBODY: u32 = 65534;

/// Runs `f` on a thread that is an ordinary user, if this process is root; else just runs it.
fn as_user<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|s| {
        s.spawn(|| {
            if rustix::process::geteuid().is_root() {
                // SAFETY: raw calls change the credentials of this thread (and of those it starts) only.
                let changed = unsafe {
                    libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()) == 0
                        && libc::syscall(libc::SYS_setresgid, NOBODY, NOBODY, NOBODY) == 0
                        && libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) == 0
                };
                assert!(changed);
            }
            f()
        })
        .join()
        .expect("no panic")
    })
}

#[test]
fn what_a_user_may_not_see_is_reported() {
    let tmp = quick_dir();
    let t = |p: &str| tmp.path().join(p);
    for dir in ["closed/below", "unsearchable", "open"] {
        std::fs::create_dir_all(t(dir)).expect("mkdir");
    }
    std::fs::write(t("unsearchable/a"), b"x").expect("write");
    std::fs::write(t("unsearchable/b"), b"x").expect("write");
    std::fs::write(t("open/c"), b"x").expect("write");
    let mode = |p: &str, mode| std::fs::set_permissions(t(p), PermissionsExt::from_mode(mode)).expect("chmod");
    mode("", 0o755);
    mode("closed", 0o000);
    mode("unsearchable", 0o444);
    let all = as_user(|| walk(options(&[tmp.path()])));
    mode("closed", 0o700);
    mode("unsearchable", 0o700);

    let at = |p: &str| below(&all, &t(p))[0];
    assert_eq!(below(&all, tmp.path())[0].names(), ["closed", "open", "unsearchable"]);
    assert_eq!(at("open").names(), ["c"]);
    assert!(!at("closed").complete && at("unsearchable").complete);
    let errors: Vec<_> = all.iter().flat_map(|l| &l.errors).map(|e| (e.path.clone(), e.what)).collect();
    let want = ["closed", "unsearchable/a", "unsearchable/b"].map(|p| (t(p).into_os_string().into_vec(), What::Denied));
    assert_eq!(errors, want);
}

/// The owner is somebody else, so O_NOATIME is refused: no reason to fail.
#[test]
fn foreign_trees_are_walked_and_read() {
    let tmp = quick_dir();
    std::fs::set_permissions(tmp.path(), PermissionsExt::from_mode(0o755)).expect("chmod");
    std::fs::create_dir(tmp.path().join("d")).expect("mkdir");
    std::fs::write(tmp.path().join("d/f"), b"x").expect("write");
    as_user(|| {
        let mut walk = Walk::start(options(&[tmp.path()]), Arc::new(Filter::none())).expect("threads");
        let mut read = 0;
        while let Some(listing) = walk.next() {
            assert!(listing.errors().is_empty(), "{:?}", listing.errors());
            for entry in listing.iter().filter(|e| e.name == b"f") {
                listing.dir().open_file(entry.name).expect("open");
                listing.dir().extras(entry.name, entry.stat.kind).expect("extras");
                read += 1;
            }
        }
        assert_eq!(read, 1);
    });
}

#[test]
fn failing_and_vanished_entries_are_told_apart() {
    let tmp = quick_dir();
    for name in ["a", "b~eio~", "c~gone~", "d", "e~gone~", "f"] {
        std::fs::write(tmp.path().join(name), b"x").expect("write");
    }
    // Also in a directory large enough for the order of inodes, and in parts.
    for name in 0..40 {
        std::fs::write(tmp.path().join(format!("n{name}")), b"x").expect("write");
    }
    for part_entries_max in [3, 4096] {
        let all = walk(Options { part_entries_max, ..options(&[tmp.path()]) });
        let got = below(&all, tmp.path())[0];
        assert_eq!(&got.names()[..4], ["a", "d", "f", "n0"]);
        assert_eq!((got.entries.len(), got.vanished, got.complete), (43, 2, true));
        let errors: Vec<_> = got.errors.iter().map(|e| (e.what, e.path.clone())).collect();
        assert_eq!(errors, [(What::Other, tmp.path().join("b~eio~").into_os_string().into_vec())]);
    }
}

/// A disk that is dead, a server that is gone: what was there is as far away as if it had never been there.
#[test]
fn a_source_that_can_not_be_looked_at_counts_as_not_there() {
    let tmp = quick_dir();
    for name in ["a~eio~", "b"] {
        std::fs::create_dir_all(tmp.path().join(name).join("in it")).expect("mkdir");
    }
    let (dead, alive) = (tmp.path().join("a~eio~"), tmp.path().join("b"));
    let all = walk(options(&[&dead, &alive]));
    let errors: Vec<_> = all.iter().flat_map(|l| &l.errors).map(|e| (e.what, e.path.clone())).collect();
    assert_eq!(errors, [(What::NoSource, dead.into_os_string().into_vec())]);
    assert!(!below(&all, &alive).is_empty());
}

#[test]
fn who_wants_to_stop_doesnt_wait_for_a_mount_that_is_dead() {
    let tmp = quick_dir();
    std::fs::create_dir(tmp.path().join("d")).expect("mkdir");
    std::fs::write(tmp.path().join("d/~dead~"), b"x").expect("write");
    // Long enough that what came before is handed out first.
    std::fs::write(tmp.path().join("~slow~"), b"x").expect("write");
    let mut walk = Walk::start(options(&[tmp.path()]), Arc::new(Filter::none())).expect("threads");
    let begun = Instant::now();
    let listed = std::cell::Cell::new(0);
    while walk.next_unless(|| listed.get() > 0 && begun.elapsed() > Duration::from_millis(200)).is_some() {
        listed.set(listed.get() + 1);
    }
    assert!(listed.get() > 0 && walk.is_stopped());
    drop(walk);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    // One that is at its end was not stopped, whoever wants what.
    let mut walk = Walk::start(options(&[&tmp.path().join("gone")]), Arc::new(Filter::none())).expect("threads");
    while walk.next().is_some() {}
    assert!(walk.next_unless(|| true).is_none() && !walk.is_stopped());
}

#[test]
fn a_tree_in_motion_is_walked_without_harm() {
    let tmp = quick_dir();
    let stable = tmp.path().join("m-stable");
    std::fs::create_dir(&stable).expect("mkdir");
    grow(&stable, &mut Dice(5), &mut 500, 0);
    let want = model(&stable);
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut dice = Dice(1);
            let path =
                |dice: &mut Dice| tmp.path().join(format!("{}{}", ["a", "z"][dice.roll(2) as usize], dice.roll(20)));
            while !stop.load(Ordering::Relaxed) {
                let (p, q) = (path(&mut dice), path(&mut dice));
                let _ = match dice.roll(6) {
                    0 => std::fs::create_dir_all(p.join("x/y")),
                    1 => std::fs::write(&p, b"x"),
                    2 => std::fs::rename(&p, &q),
                    3 => std::fs::remove_dir_all(&p),
                    4 => std::fs::remove_file(&p),
                    _ => std::os::unix::fs::symlink("/etc", &p),
                };
            }
        });
        for round in 0..150 {
            let all = walk(Options { threads: (1 + round % 4).into(), ..options(&[tmp.path()]) });
            assert_same(&below(&all, &stable), &want);
            for error in all.iter().flat_map(|l| &l.errors) {
                assert_eq!(error.what, What::Vanished, "{error}");
            }
            assert!(all.iter().all(|l| !l.names().contains(&"passwd")), "a symlink was followed");
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// A directory and a symlink change places all the time: what the symlink leads to must never be listed.
#[test]
fn a_directory_that_turns_into_a_symlink_is_not_followed() {
    let (tmp, outside) = (quick_dir(), quick_dir());
    std::fs::write(outside.path().join("secret"), b"x").expect("write");
    let (dir, link) = (tmp.path().join("dir"), tmp.path().join("link"));
    std::fs::create_dir(&dir).expect("mkdir");
    std::os::unix::fs::symlink(outside.path(), &link).expect("symlink");
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            let exchange = rustix::fs::RenameFlags::EXCHANGE;
            while !stop.load(Ordering::Relaxed) {
                let _ = rustix::fs::renameat_with(rustix::fs::CWD, &dir, rustix::fs::CWD, &link, exchange);
            }
        });
        let began = std::time::Instant::now();
        let mut races = 0;
        // On a busy machine it takes a while until the exchange falls between the look and the open.
        while began.elapsed() < Duration::from_millis(500) || races == 0 && began.elapsed() < Duration::from_secs(8) {
            let all = walk(Options { threads: 1.into(), ..options(&[tmp.path()]) });
            assert!(all.iter().all(|l| !l.names().contains(&"secret")), "a symlink was followed");
            races += all.iter().flat_map(|l| &l.errors).filter(|e| e.what == What::Vanished).count();
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn waiting_listings_are_bounded() {
    let tmp = quick_dir();
    for d in 0..100 {
        let dir = tmp.path().join(format!("d{d}/e"));
        std::fs::create_dir_all(&dir).expect("mkdir");
        for f in 0..100 {
            std::os::unix::fs::symlink("x", dir.join(format!("f{f}"))).expect("symlink");
        }
    }
    let budget_bytes = 256 << 10;
    let options = Options { budget_bytes, threads: 4.into(), ..options(&[tmp.path()]) };
    let mut walk = Walk::start(options, Arc::new(Filter::none())).expect("threads");
    let ready = || walk.shared.lock().frontier.ready_bytes();
    let until = Instant::now() + Duration::from_secs(20);
    while ready() <= budget_bytes / 2 {
        assert!(Instant::now() < until, "{} bytes wait", ready());
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(100));
    // About 1.3 MB all told; the budget, and what four workers held when it was reached.
    assert!(ready() < budget_bytes * 2, "{} bytes wait", ready());
    let all = collect(&mut walk, 4096);
    assert_same(&below(&all, tmp.path()), &model(tmp.path()));
    assert_eq!(walk.shared.lock().frontier.ready_bytes(), 0);
}
