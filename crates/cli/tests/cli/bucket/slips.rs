//! What goes wrong, told with what to do about it and the right status.

use super::Cloud;
use crate::home::{Ran, same};
use drumlin_testkit::Rng;
use drumlin_testkit::s3::{BUCKET, Habits, Instead, KEYS};
use std::time::Instant;

/// An address, an access key, the status, and what is said.
type Case<'a> = (&'a str, (&'a str, &'a str), i32, &'a [&'a str]);

#[test]
fn places_and_credentials_that_are_wrong() {
    let cloud = Cloud::new();
    cloud.run(&["init"]).ok();
    let endpoint = cloud.server.endpoint();
    let repo = |bucket: &str, prefix: &str| format!("s3:{endpoint}/{bucket}/{prefix}");
    let cases: [Case<'_>; 8] = [
        (&repo(BUCKET, "none"), KEYS, 10, &["there is no repository", "drumlin init"]),
        (&repo("other", "repo"), KEYS, 10, &["there is no bucket 'other'", "hint: make the bucket"]),
        (&repo(BUCKET, "repo"), (KEYS.0, "geheim"), 1, &["enter both again"]),
        (&repo(BUCKET, "repo"), ("AKnone", "geheim"), 1, &["doesn't know the access key"]),
        (&repo(BUCKET, "repo"), ("", ""), 1, &["there are no credentials", "AWS_ACCESS_KEY_ID"]),
        ("s3:http://127.0.0.1:1/test/repo", KEYS, 1, &["can't be reached", "check the address"]),
        ("s3:http://192.0.2.1/test/repo", KEYS, 1, &["--allow-http"]),
        ("s3://id:geheim@test/repo", KEYS, 2, &["credentials don't belong in an address", "id:***@test"]),
    ];
    for (repo, keys, code, parts) in cases {
        let mut command = cloud.home.command(&["-r", repo, "-k", "k", "snapshots"]);
        command.env("AWS_ACCESS_KEY_ID", keys.0).env("AWS_SECRET_ACCESS_KEY", keys.1);
        let ran = Ran::from(command.output().unwrap()).expect(code);
        for part in parts {
            assert!(ran.stderr.contains(part), "{repo}: {part}: {}", ran.stderr);
        }
        assert!(!ran.stderr.contains("geheim") && !ran.stderr.contains(KEYS.1), "{}", ran.stderr);
    }
    // A repository that can't be made leaves no key behind.
    std::fs::remove_file(cloud.home.path("k")).unwrap();
    let mut command = cloud.home.command(&["-r", &repo("other", "x"), "-k", "k", "init"]);
    command.env("AWS_ACCESS_KEY_ID", KEYS.0).env("AWS_SECRET_ACCESS_KEY", KEYS.1);
    let ran = Ran::from(command.output().unwrap()).expect(10);
    assert!(ran.stderr.contains("there is no bucket 'other'"), "{}", ran.stderr);
    assert!(!cloud.home.path("k").exists());
}

/// Another program's objects where a repository is to be made.
#[test]
fn objects_of_other_programs() {
    let cloud = Cloud::new();
    cloud.server.set("repo/letter", b"dear");
    let ran = cloud.run(&["init"]).expect(1);
    assert!(ran.stderr.contains("there are objects in it already, such as 'repo/letter'"), "{}", ran.stderr);
    assert!(!cloud.home.path("k").exists() && cloud.server.keys() == ["repo/letter"]);
}

#[test]
fn a_quota_a_clock_and_a_server_that_has_enough() {
    let cloud = Cloud::new();
    cloud.home.sources();
    cloud.run(&["init"]).ok();
    cloud.run(&["backup", "src"]).ok();
    cloud.home.write("noise", Rng::new(1).bytes(40 << 20));
    cloud.server.habits(|habits: &mut Habits| habits.quota = Some(20 << 20));
    let ran = cloud.run(&["backup", "noise"]).expect(1);
    for part in ["takes no more", "QuotaExceeded", "make room"] {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
    cloud.server.habits(|habits: &mut Habits| habits.quota = None);
    assert_eq!(cloud.run(&["--json", "snapshots"]).ok().objects().len(), 1);
    cloud.server.habits(|habits: &mut Habits| habits.clock_ahead = 26 * 3600);
    let ran = cloud.run(&["backup", "noise"]).expect(0);
    assert!(ran.stderr.contains("26 hours behind") && ran.stderr.contains("set the clock"), "{}", ran.stderr);
    cloud.server.habits(|habits: &mut Habits| habits.clock_ahead = 0);
    cloud.server.instead("PutObject", 2, 3, Instead::Refuse(503, "SlowDown"));
    cloud.home.write("src/new", "new");
    cloud.run(&["backup", "src"]).expect(0);
    cloud.run(&["restore", &cloud.home.saved_folder(), "-t", "out"]).ok();
    assert!(same(&cloud.home.path("src"), &cloud.home.path("out")));
    cloud.run(&["check", "--read-data"]).ok();
}

/// As long as its patience is, which no option sets.
#[test]
#[ignore = "takes ten minutes: by tests/remote patience"]
fn a_server_that_has_enough_for_good() {
    let cloud = Cloud::new();
    cloud.home.sources();
    cloud.run(&["init"]).ok();
    cloud.run(&["backup", "src"]).ok();
    cloud.home.write("src/new", Rng::new(1).bytes(1 << 20));
    cloud.server.instead("PutObject", 4, u32::MAX, Instead::Refuse(503, "SlowDown"));
    let start = Instant::now();
    let ran = cloud.run(&["backup", "src"]).expect(1);
    // It ends where the next wait, of twenty seconds at most, would be too long.
    assert!((565..900).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    for part in ["SlowDown", "trying again", "tried again for", "hint: "] {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
    cloud.server.as_usual();
    assert_eq!(cloud.run(&["--json", "snapshots"]).ok().objects().len(), 1);
    cloud.run(&["backup", "src"]).ok();
    cloud.run(&["check", "--read-data"]).ok();
    cloud.run(&["restore", &cloud.home.saved_folder(), "-t", "out"]).ok();
    assert!(same(&cloud.home.path("src"), &cloud.home.path("out")));
}

#[test]
fn a_session_that_has_ended() {
    let cloud = Cloud::new();
    cloud.home.sources();
    cloud.run(&["init"]).ok();
    cloud.server.habits(|habits: &mut Habits| habits.token = Some("new".into()));
    let run =
        |token: &str| Ran::from(cloud.command(&["backup", "src"]).env("AWS_SESSION_TOKEN", token).output().unwrap());
    let ran = run("geheim").expect(1);
    for part in ["the session of the credentials of the environment has ended", "log in again"] {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
    assert!(!ran.stderr.contains("geheim"), "{}", ran.stderr);
    run("new").expect(0);

    // In the midst of a check it is told once, and nothing is called damaged for it.
    cloud.server.habits(|habits: &mut Habits| habits.token = None);
    for n in 0..4 {
        cloud.home.write("src/n", Rng::new(n).bytes(100_000));
        cloud.run(&["backup", "src"]).ok();
    }
    cloud.run(&["check", "--read-data"]).ok();
    // What was asked is told once.
    cloud.server.asked();
    cloud.run(&["check", "--read-data"]).ok();
    let gets = cloud.server.asked().iter().filter(|(action, _)| *action == "GetObject").count();
    let of_a_check = u32::try_from(gets).unwrap();
    for after in [of_a_check / 2, of_a_check - 2] {
        cloud.server.instead("GetObject", after, 1_000_000, Instead::Refuse(400, "ExpiredToken"));
        let ran = cloud.run(&["check", "--read-data"]).expect(1);
        cloud.server.as_usual();
        assert_eq!(ran.stderr.matches("log in again").count(), 1, "{after}: {}", ran.stderr);
        assert!(!ran.stderr.contains("damaged") && !ran.stdout.contains("damaged"), "{}{}", ran.stderr, ran.stdout);
    }
}
