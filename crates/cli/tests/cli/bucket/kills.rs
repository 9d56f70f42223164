//! The program killed at requests that it makes, from the first to the last: before one is carried out, or before it is
//! told so; and while bytes pass to and from real servers.

use super::{Cloud, careless};
use crate::aftermath;
use crate::home::Home;
use drumlin_testkit::s3::Habits;
use drumlin_testkit::{Bucket, Line, Relay, Rng};
use std::process::{Child, Stdio};
use std::time::Duration;

/// Run a command and kill it after so many requests. Whether it made so many.
fn killed(cloud: &Cloud, args: &[&str], after: u32) -> bool {
    cloud.server.stop_after(after, after.is_multiple_of(2));
    let mut child: Child = cloud.command(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let stopped = loop {
        if cloud.server.has_stopped(Duration::from_millis(20)) {
            child.kill().unwrap();
            child.wait().unwrap();
            break true;
        }
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "{args:?} after {after}: {status}");
            break false;
        }
    };
    cloud.server.resume();
    stopped
}

/// `step` is odd, so that every other kill finds its last request done.
fn each_kill(habits: Habits, step: usize) {
    let cloud = Cloud::with(habits);
    let mut rng = Rng::new(3);
    cloud.home.write("kept/a", rng.bytes(200_000));
    cloud.run(&["init"]).expect(0);
    let first =
        cloud.run(&["--json", "backup", "kept"]).expect(0).the("summary")["snapshot_id"].as_str().unwrap().to_owned();
    let mut kills = 0;
    for (deed, args) in [("backup", &["backup", "src"][..]), ("prune", &["prune", "--wait", "0", "--max-unused", "0%"])]
    {
        for after in (0..200).step_by(step) {
            cloud.home.write("src/b", rng.bytes(100_000));
            if deed == "prune" {
                let ran = cloud.run(&["--json", "backup", "src"]).expect(0);
                let id = ran.the("summary")["snapshot_id"].as_str().unwrap().to_owned();
                cloud.run(&["forget", &id]).expect(0);
            }
            let was_killed = killed(&cloud, args, after);
            aftermath::goes_on(&cloud.home, |args| cloud.run(args), &first, &format!("{deed} killed after {after}"));
            if !was_killed {
                assert!(after > 10, "{deed} makes more requests than {after}");
                break;
            }
            kills += 1;
        }
    }
    assert!(kills >= 10, "{kills}");
    // A prune that has nothing to remove leaves dead sessions alone; what the last kill left may take two that have.
    for _ in 0..2 {
        cloud.home.write("src/b", rng.bytes(100_000));
        let ran = cloud.run(&["--json", "backup", "src"]).expect(0);
        cloud.home.write("src/b", rng.bytes(100_000));
        cloud.run(&["backup", "src"]).expect(0);
        cloud.run(&["forget", ran.the("summary")["snapshot_id"].as_str().unwrap()]).expect(0);
        cloud.run(&["prune", "--wait", "0", "--max-unused", "0%"]).expect(0);
    }
    for folder in ["sessions", "plans"] {
        assert_eq!(cloud.objects(folder), Vec::<String>::new(), "{folder}");
    }
}

#[test]
fn killed_at_requests() {
    each_kill(Habits::default(), 3);
}

#[test]
fn killed_where_conditions_are_ignored() {
    each_kill(careless(), 5);
}

#[test]
fn killed_on_real_servers() {
    for bucket in Bucket::all() {
        let (home, relay) = (Home::new(), Relay::to(bucket.port(), Line::default()));
        let repo = format!("s3:http://127.0.0.1:{}/{}/killed", relay.port(), bucket.bucket());
        aftermath::kills_while_bytes_pass(&home, &relay, 500, |args| {
            let mut command = home.command(&[&["-r", &repo, "-k", "k"], args].concat());
            command.envs(bucket.variables());
            command
        });
    }
}
