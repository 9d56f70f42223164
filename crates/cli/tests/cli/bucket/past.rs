//! What somebody has taken away is had back from the versions that a bucket keeps.

use super::Cloud;
use crate::home::same;
use drumlin_testkit::s3::Habits;
use std::time::{SystemTime, UNIX_EPOCH};

const DAY: i64 = 86_400;

#[test]
fn what_a_thief_has_removed_is_had_back() {
    let cloud = Cloud::with(Habits { versions: true, ..Habits::default() });
    let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().cast_signed();
    cloud.home.sources();
    cloud.run(&["init"]).ok();
    cloud.run(&["backup", "src"]).ok();
    cloud.home.write("src/new", "new");
    cloud.run(&["backup", "src"]).ok();
    cloud.run(&["key", "rekey"]).ok();

    // A day later: all is forgotten and pruned, and what the program keeps is removed by hand.
    cloud.server.habits(|habits| habits.clock_ahead = DAY);
    cloud.run(&["forget", "--keep-last", "1"]).expect(0);
    cloud.run(&["prune", "--max-unused", "0"]).expect(0);
    for key in cloud.server.keys() {
        cloud.server.remove(&key);
    }
    cloud.run(&["snapshots"]).expect(10);

    let then = format!("@{}", start + DAY / 2);
    let as_of = |args: &[&str]| cloud.run(&[&["--as-of", &then], args].concat());
    assert_eq!(as_of(&["--json", "snapshots"]).expect(0).objects().len(), 2);
    as_of(&["check", "--read-data"]).expect(0);
    as_of(&["restore", &cloud.home.saved_folder(), "-t", "out"]).expect(0);
    assert!(same(&cloud.home.path("src"), &cloud.home.path("out")));
    as_of(&["copy", "--to", "copy", "--to-key-file", "copy.key"]).expect(10);
    cloud.home.run(&["-r", "copy", "-k", "copy.key", "init"]).ok();
    as_of(&["copy", "--to", "copy", "--to-key-file", "copy.key"]).expect(0);
    let copied = |args: &[&str]| cloud.home.run(&[&["-r", "copy", "-k", "copy.key"], args].concat());
    copied(&["restore", &cloud.home.saved_folder(), "-t", "out2"]).ok();
    assert!(same(&cloud.home.path("src"), &cloud.home.path("out2")));
    assert_eq!(copied(&["--json", "snapshots"]).ok().objects().len(), 2);
}

#[test]
fn the_past_is_for_looking_at() {
    let cloud = Cloud::with(Habits { versions: true, ..Habits::default() });
    cloud.home.sources();
    cloud.run(&["init"]).ok();
    cloud.run(&["backup", "src"]).ok();
    let before = cloud.server.keys();
    for args in [&["backup", "src"][..], &["prune"], &["forget", "--keep-last", "1"], &["key", "list"], &["repair"]] {
        let ran = cloud.run(&[&["--as-of", "now"], args].concat()).expect(2);
        assert!(
            ran.stderr.contains("--as-of shows an earlier state") && ran.stderr.contains("drumlin copy"),
            "{}",
            ran.stderr
        );
    }
    assert_eq!(cloud.server.keys(), before);
    // Before there was anything.
    cloud.run(&["--as-of", "2020-01-01", "snapshots"]).expect(10);
    let ran = cloud.run(&["--as-of", "yesterday", "snapshots"]).expect(2);
    assert!(ran.stderr.contains("is not a time such as"), "{}", ran.stderr);
    // What is no bucket.
    cloud.home.run(&["-r", "folder", "-k", "folder.key", "init"]).ok();
    let ran = cloud.home.run(&["-r", "folder", "-k", "folder.key", "--as-of", "now", "snapshots"]).expect(1);
    assert!(ran.stderr.contains("only a bucket keeps versions"), "{}", ran.stderr);
}
