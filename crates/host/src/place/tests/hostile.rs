//! Targets that somebody prepared: nothing outside of them may be touched.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags};

use super::super::{Error, resolve};
use super::*;
use crate::meta::Kind;

/// A target, and a directory beside it with one file that must stay as it is.
fn scene() -> (tempfile::TempDir, Arc<TargetDir>) {
    let home = tempfile::tempdir().expect("made");
    fs::create_dir(home.path().join("outside")).expect("made");
    fs::write(home.path().join("outside/precious"), b"precious").expect("written");
    let target = open(&home.path().join("target"));
    (home, target)
}

fn assert_untouched(home: &tempfile::TempDir) {
    let outside = home.path().join("outside");
    assert_eq!(fs::read(outside.join("precious")).expect("still there"), b"precious");
    assert_eq!(fs::read_dir(outside).expect("listed").count(), 1);
}

#[test]
fn symlinks_are_no_directories() {
    let (home, target) = scene();
    let top = home.path().join("target");
    symlink("../outside", top.join("relative")).expect("made");
    symlink(home.path().join("outside"), top.join("absolute")).expect("made");
    symlink("real", top.join("inside")).expect("made");
    fs::create_dir(top.join("real")).expect("made");
    symlink("..", top.join("real/up")).expect("made");
    let whole = Target::open(&top, false).expect("opened");
    for name in [&b"relative"[..], b"absolute", b"inside"] {
        assert!(matches!(target.open_dir(name), Err(Error::Blocked(_))));
        assert!(matches!(target.open_dir_for_writing(name), Err(Error::Blocked(_))));
        assert!(target.make_dir(name).is_err_and(|e| e.is_exists()));
        assert!(matches!(target.amend(name, Kind::Dir, id(&target, name), &plain(0o700)), Err(Error::Swapped(_))));
        for path in [name, &[name, b"/x"].concat()] {
            for openat2 in [true, false] {
                let result = resolve::open_path_with(target.fd(), path, openat2);
                assert!(matches!(result, Err(Error::Blocked(_))), "{} {openat2}", path.escape_ascii());
            }
        }
    }
    for path in [&b"real/up/real"[..], b"real/up"] {
        assert!(matches!(whole.dir(path), Err(Error::Blocked(_))));
    }
    for path in [&b"/"[..], b"..", b"real/..", b"/etc", b"real//up", b"./real", b"real/", b"real\0"] {
        assert!(matches!(whole.dir(path), Err(Error::BadName(_))), "{}", path.escape_ascii());
    }
    assert!(whole.dir(b"real").is_ok());
    assert_untouched(&home);
}

#[test]
fn names_that_lead_elsewhere_are_refused_everywhere() {
    let (home, target) = scene();
    for name in [&b".."[..], b".", b"", b"../outside", b"/etc/x", b"a/b", b"x\0y"] {
        let bad = |e: Error| matches!(e, Error::BadName(_));
        assert!(target.create_file(name).is_err_and(bad));
        assert!(target.place_file(name, b"", &plain(0o600)).is_err_and(bad));
        assert!(target.make_dir(name).is_err_and(bad));
        assert!(target.open_dir(name).is_err_and(bad));
        assert!(target.symlink(name, &plain(0o777)).is_err_and(bad));
        assert!(target.mknod(name, Kind::Fifo, 0, &plain(0o600)).is_err_and(bad));
        assert!(target.remove(name).is_err_and(bad));
        assert!(target.remove_tree(name).is_err_and(bad));
        assert!(target.stat(name).is_err_and(bad));
        assert!(target.hard_link(name, &target, b"x", None).is_err_and(bad));
        assert!(target.hard_link(b"x", &target, name, None).is_err_and(bad));
        assert!(target.rename(b"x", &target, name).is_err_and(bad));
        assert!(target.open_existing(name).is_err_and(bad));
        assert!(target.amend(name, Kind::File, id(&target, name), &plain(0o600)).is_err_and(bad));
        let temp = target.create_temp().expect("created");
        assert!(temp.commit_as(name, &plain(0o600)).is_err_and(bad));
    }
    assert!(target.list().expect("listed").is_empty(), "temporary files are gone too");
    assert_untouched(&home);
}

#[test]
fn what_stands_at_a_name_is_not_written_through() {
    let (home, target) = scene();
    let link = home.path().join("target/name");
    symlink("../outside/precious", &link).expect("made");
    assert!(target.create_file(b"name").is_err_and(|e| e.is_exists()));
    assert!(target.place_file(b"name", b"evil", &plain(0o600)).is_err_and(|e| e.is_exists()));
    assert!(matches!(target.open_existing(b"name"), Err(Error::Blocked(_))));
    let temp = target.create_temp().expect("created");
    temp.write_at(0, b"new").expect("written");
    temp.commit_as(b"name", &plain(0o644)).expect("committed");
    assert_eq!(fs::read(&link).expect("read"), b"new");
    assert!(link.symlink_metadata().expect("there").is_file(), "the link itself was replaced");
    // A pipe would hang whoever opens it.
    target.mknod(b"pipe", Kind::Fifo, 0, &plain(0o600)).expect("made");
    assert!(matches!(target.open_existing(b"pipe"), Err(Error::Blocked(_))));
    // Metadata of a symlink stays the symlink's.
    fs::remove_file(&link).expect("removed");
    symlink("../outside/precious", &link).expect("made");
    let before = fs::metadata(home.path().join("outside/precious")).expect("there").modified().expect("kept");
    target.amend(b"name", Kind::Symlink, id(&target, b"name"), &plain(0o777)).expect("amended");
    assert_eq!(fs::metadata(home.path().join("outside/precious")).expect("there").modified().expect("kept"), before);
    assert_eq!(target.stat(b"name").expect("looked at").expect("there").mtime, plain(0).mtime);
    assert_untouched(&home);
}

#[test]
fn a_file_that_was_exchanged_is_not_written_to() {
    let (_home, target) = scene();
    let file = target.create_file(b"mine").expect("created");
    let id = file.id().expect("looked at");
    drop(file);
    target.reopen_file(b"mine", id).expect("the same").write_at(5, b"x").expect("written");
    target.create_file(b"other").expect("created");
    target.rename(b"other", &target, b"mine").expect("renamed");
    assert!(matches!(target.reopen_file(b"mine", id), Err(Error::Swapped(_))));
    assert!(matches!(target.hard_link(b"link", &target, b"mine", Some(id)), Err(Error::Swapped(_))));
    assert!(target.stat(b"link").expect("looked at").is_none(), "the wrong link was taken back");
}

/// Somebody exchanges a directory and a symlink to the outside as fast as possible while entries are made and removed.
#[test]
fn a_race_leads_nowhere() {
    let (home, target) = scene();
    let top = home.path().join("target");
    fs::create_dir_all(top.join("d/sub")).expect("made");
    symlink("../outside", top.join("trap")).expect("made");
    let stop = AtomicBool::new(false);
    /// Ends the other thread when this one panics, too.
    struct StopAtEnd<'a>(&'a AtomicBool);
    impl Drop for StopAtEnd<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let (a, b) = (top.join("d"), top.join("trap"));
                let _ = rustix::fs::renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE);
            }
        });
        let whole = Target::open(&top, false).expect("opened");
        let (mut entered, mut blocked) = (0, 0);
        for i in 0..4000 {
            match target.open_dir(b"d") {
                Ok(dir) => {
                    entered += 1;
                    dir.place_file(format!("f{i}").as_bytes(), b"x", &plain(0o600)).expect("placed");
                }
                Err(e) => {
                    assert!(matches!(e, Error::Blocked(_)) || e.is_missing(), "{e}");
                    blocked += 1;
                }
            }
            match whole.dir(b"d/sub") {
                Ok(dir) => drop(dir.place_file(format!("g{i}").as_bytes(), b"x", &plain(0o600)).expect("placed")),
                Err(e) => assert!(matches!(e, Error::Blocked(_)) || e.is_missing(), "{e}"),
            }
            if i % 100 == 0 {
                let _ = target.remove_tree(b"d");
                let _ = target.make_dir(b"d").and_then(|d| d.make_dir(b"sub"));
            }
        }
        assert!(entered > 0 && entered + blocked == 4000);
    });
    assert_untouched(&home);
}

/// What takes the place of a new symlink or pipe before it is held does not get its metadata.
#[test]
fn a_node_that_was_exchanged_is_left_alone() {
    let (home, target) = scene();
    let top = home.path().join("target");
    fs::hard_link(home.path().join("outside/precious"), top.join("other kind")).expect("linked");
    symlink("x", top.join("two names")).expect("made");
    fs::hard_link(top.join("two names"), top.join("second name")).expect("linked");
    let mut swapped = vec!["other kind", "two names"];
    if root() {
        symlink("x", top.join("other owner")).expect("made");
        std::os::unix::fs::lchown(top.join("other owner"), Some(STRANGER), None).expect("given");
        swapped.push("other owner");
    }
    for name in swapped {
        let before = target.stat(name.as_bytes()).expect("looked at");
        let result = target.finish_node(name.as_bytes(), Kind::Symlink, &plain(0o777));
        assert!(matches!(result, Err(Error::Swapped(_))), "{name}");
        assert_eq!(target.stat(name.as_bytes()).expect("looked at"), before);
    }
    symlink("x", top.join("ours")).expect("made");
    assert_eq!(target.finish_node(b"ours", Kind::Symlink, &plain(0o777)).expect("finished"), vec![]);
    fs::remove_file(top.join("other kind")).expect("removed");
    assert_untouched(&home);
}
