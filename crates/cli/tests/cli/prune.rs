//! `prune`.

use crate::home::{Home, same, signal};
use crate::interrupt::wait_for;
use crate::kills::files;
use drumlin_testkit::Rng;
use rustix::process::Signal;
use std::path::Path;
use std::time::{Duration, Instant};

fn bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let size = |path: &Path| if path.is_dir() { bytes(path) } else { path.metadata().unwrap().len() };
    entries.map(|entry| size(&entry.path())).sum()
}

/// Two states of a folder that share little, and a third that is small.
fn home() -> Home {
    let home = Home::new();
    for state in 0..3u64 {
        let size = if state == 2 { 10_000 } else { 4_000_000 };
        home.write("src/file", Rng::new(state + 1).bytes(size));
        home.write(&format!("src/kept{state}"), Rng::new(state + 7).text(20_000));
        home.run(&["backup", "src"]).ok();
    }
    home
}

#[test]
fn what_was_forgotten_frees_room_and_is_gone_for_good() {
    let home = home();
    let (all, gone) = (bytes(&home.repository()), home.run(&["--json", "snapshots", "latest~1"]).ok().the("snapshot"));
    home.run(&["forget", "--keep-last", "1"]).ok();
    assert!(bytes(&home.repository()) > 8_000_000, "forgetting frees nothing");
    let plan = home.run(&["--json", "prune", "-n"]).ok().the("prune_plan");
    let freed = plan["unneeded"]["bytes"].as_u64().unwrap() + plan["repacked"]["bytes"].as_u64().unwrap();
    assert!(freed > 7_900_000, "{plan}");
    assert!(bytes(&home.repository()) > 8_000_000, "a dry run frees nothing");
    let done = home.run(&["--json", "prune"]).ok().the("prune");
    let left = bytes(&home.repository());
    assert!(left < 300_000 && left < all, "{left} bytes are left of {all}");
    let freed = done["bytes_before"].as_u64().unwrap() - done["bytes_after"].as_u64().unwrap();
    assert!(freed > 7_900_000, "{done}");
    home.run(&["restore", &home.saved_folder(), "-t", "out"]).ok();
    assert!(same(&home.path("src"), &home.path("out")));
    let refused = home.run(&["undelete", gone["id"].as_str().unwrap()]).expect(1);
    assert!(refused.stderr.contains("there is no"), "{}", refused.stderr);
    assert!(home.run(&["prune"]).ok().stdout.contains("nothing to prune"));
    home.run(&["backup", "src"]).ok();
}

#[test]
fn where_nothing_goes_undelete_has_an_end_all_the_same() {
    let home = Home::new();
    home.sources();
    home.run(&["backup", "src"]).ok();
    home.run(&["backup", "src"]).ok();
    home.run(&["forget", "--keep-last", "1"]).ok();
    let pruned = home.run(&["prune"]).ok().stdout;
    assert!(pruned.contains("nothing could be freed\n1 forgotten snapshot can no longer be brought back"), "{pruned}");
    assert!(!home.run(&["prune"]).ok().stdout.contains("brought back"));
    home.run(&["undelete", "latest"]).expect(1);
}

#[test]
fn forget_prunes_as_well_if_it_shall() {
    let home = home();
    let before = bytes(&home.repository());
    home.run(&["forget", "--keep-last", "1", "--prune", "-n"]).ok();
    assert_eq!(bytes(&home.repository()), before, "a dry run removes nothing");
    home.run(&["forget", "--keep-last", "1", "--prune"]).ok();
    assert!(bytes(&home.repository()) < 300_000);
    home.run(&["check", "--read-data"]).ok();
}

#[test]
fn all_goes_only_if_that_is_said() {
    let home = home();
    home.run(&["forget", "latest", "latest~1", "latest~2"]).ok();
    let before = bytes(&home.repository());
    for args in [&["prune"][..], &["prune", "-n"]] {
        let refused = home.run(args).expect(1);
        assert!(refused.stderr.contains("lists no snapshot at all"), "{}", refused.stderr);
        assert!(refused.stderr.contains("--unsafe-allow-remove-all"), "{}", refused.stderr);
    }
    assert_eq!(bytes(&home.repository()), before);
    home.run(&["prune", "--unsafe-allow-remove-all"]).ok();
    assert!(bytes(&home.repository()) < 10_000);
    home.run(&["prune"]).ok();
    // Who has said it to forget needn't say it twice.
    home.run(&["backup", "src"]).ok();
    home.run(&["forget", "--unsafe-allow-remove-all", "--path", home.path("src").to_str().unwrap(), "--prune"]).ok();
    assert!(bytes(&home.repository()) < 20_000);
}

#[test]
fn a_backup_at_work_is_named_and_can_be_given_up() {
    let home = home();
    home.run(&["forget", "--keep-last", "1"]).ok();
    let mut child = home.start(&["--json", "-v", "backup", "--command", "endless", "--", "cat", "/dev/zero"]);
    wait_for(&mut child, "status");
    let start = Instant::now();
    let busy = home.run(&["prune", "--wait", "1s"]).expect(11);
    assert!(start.elapsed() > Duration::from_secs(1) && start.elapsed() < Duration::from_secs(30));
    assert!(busy.stderr.contains("a backup of host") && busy.stderr.contains("--evict"), "{}", busy.stderr);
    assert!(busy.stdout.contains("waiting: a backup of host"), "{}", busy.stdout);
    // The process is gone and left its session: that is seen.
    signal(&child, Signal::KILL);
    child.wait().unwrap();
    home.run(&["prune", "--wait", "0"]).ok();
    assert!(home.repository().join("sessions").read_dir().unwrap().next().is_none());
    home.run(&["restore", "latest", "-t", "out"]).ok();
}

#[test]
fn one_that_lives_and_was_evicted_fails_at_its_end() {
    let home = home();
    home.run(&["forget", "--keep-last", "1"]).ok();
    let wait = "while [ ! -e go ]; do sleep 0.05; done";
    let mut child = home.start(&["--json", "-v", "backup", "--command", "slow", "--", "sh", "-c", wait]);
    wait_for(&mut child, "status");
    let sessions = home.repository().join("sessions").read_dir().unwrap();
    let session = sessions.map(|e| e.unwrap().file_name().into_string().unwrap()).next().unwrap();
    home.run(&["prune", "--wait", "0", "--evict", &session]).ok();
    home.write("go", "");
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(home.run(&["--json", "snapshots"]).ok().objects().len(), 1);
    home.run(&["restore", "latest", "-t", "out"]).ok();
}

#[test]
fn limits_that_make_no_sense_are_usage_errors() {
    let home = home();
    for args in [
        ["--max-unused", "x"],
        ["--max-unused", "-3%"],
        ["--max-repack", "5 apples"],
        ["--wait", "5"],
        ["--evict", "latest"],
    ] {
        home.run(&[&["prune"], &args[..]].concat()).expect(2);
    }
}

/// What stays because it is damaged is told, in a dry run as well.
#[test]
fn damage_that_is_met_is_in_the_status() {
    let home = home();
    let foresee = &["forget", "--keep-last", "1", "--prune", "-n"];
    home.run(foresee).ok();
    for path in files(&home.repository().join("data")) {
        let mut bytes = std::fs::read(&path).unwrap();
        drumlin_testkit::wipe_parity(&mut bytes);
        // Not the length of the object, nor where things are.
        let end = bytes.len() - 1000;
        bytes[1000..end].iter_mut().step_by(16).for_each(|byte| *byte = byte.wrapping_add(1));
        std::fs::write(&path, bytes).unwrap();
    }
    let is_told = |args: &[&str]| {
        let told = home.run(args).expect(3);
        assert!(told.stderr.contains("it stays as it is"), "{args:?}: {}", told.stderr);
    };
    is_told(foresee);
    home.run(&["forget", "--keep-last", "1"]).ok();
    for args in [&["prune", "-n"][..], &["prune"], &["prune"]] {
        is_told(args);
    }
}
