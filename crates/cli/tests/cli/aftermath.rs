//! The program killed, and what has to be true after that, wherever the repository is.

use crate::home::{Home, Ran, same};
use drumlin_testkit::{Relay, Rng};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What was saved comes back (`kept`, by the snapshot `first`), and what comes next goes on as if nothing had been.
pub fn goes_on(home: &Home, run: impl Fn(&[&str]) -> Ran, first: &str, told: &str) {
    let listed = run(&["--json", "snapshots"]).expect(0).objects();
    assert!(listed.iter().any(|snapshot| snapshot["id"] == *first), "{told}: {listed:?}");
    let folder = format!("{first}:{}", home.text("kept"));
    run(&["restore", &folder, "-t", "out"]).expect(0);
    assert!(same(&home.path("kept"), &home.path("out")), "{told}");
    std::fs::remove_dir_all(home.path("out")).unwrap();
    run(&["backup", "src"]).expect(0);
    run(&["prune", "--wait", "0", "--max-unused", "0%"]).expect(0);
    run(&["check", "--read-data"]).expect(0);
}

/// Over what shows half of an object under its name when its writer is killed: a session that is torn is named, and
/// ended.
pub fn end_torn_sessions(run: impl Fn(&[&str]) -> Ran) {
    let ran = run(&["check"]);
    let told = format!("{}{}", ran.stdout, ran.stderr);
    for (_, rest) in told.match_indices("session 'sessions/").map(|(at, begin)| told.split_at(at + begin.len())) {
        run(&["repair", "--wait", "0", "--evict", rest.split('\'').next().unwrap()]).expect(0);
    }
}

/// Run a command and kill it once so many bytes have passed. Whether so many did.
pub fn killed(relay: &Relay, mut command: Command, after: u64) -> bool {
    let passed = || relay.bytes().0 + relay.bytes().1;
    let before = passed();
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while passed() - before < after {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "{command:?} after {after}: {status}");
            return false;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    true
}

/// Backups and prunes killed at any moment, where nobody counts what passes. `is_torn`: what was being written may be
/// there in part.
pub fn kills_at_any_moment(home: &Home, is_torn: bool, command: impl Fn(&[&str]) -> Command) {
    let run = |args: &[&str]| Ran::from(command(args).output().unwrap());
    let mut rng = Rng::new(5);
    home.write("kept/a", rng.bytes(200_000));
    run(&["init"]).expect(0);
    let first = run(&["--json", "backup", "kept"]).expect(0).the("summary")["snapshot_id"].clone();
    let first = first.as_str().unwrap();
    let prune = ["prune", "--wait", "0", "--max-unused", "0%"];
    for (deed, args) in [("backup", &["backup", "src"][..]), ("prune", &prune)] {
        // How long one takes that nobody disturbs.
        let (mut whole, mut kills, mut number) = (None, 0, 0);
        while kills < 6 {
            number += 1;
            assert!(number < 60, "{deed}: hardly any is killed under way");
            home.write("src/b", rng.bytes(300_000));
            if deed == "prune" {
                let ran = run(&["--json", "backup", "src"]).expect(0);
                run(&["forget", ran.the("summary")["snapshot_id"].as_str().unwrap()]).expect(0);
            }
            let start = Instant::now();
            let Some(took) = whole else {
                run(args).expect(0);
                whole = Some(start.elapsed());
                continue;
            };
            let mut child = command(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let after: Duration = took.mul_f64(rng.below(1000) as f64 / 1000.0);
            std::thread::sleep(after);
            child.kill().unwrap();
            let code = child.wait().unwrap().code();
            assert!(matches!(code, None | Some(0)), "{deed}: {code:?}");
            match code {
                None => kills += 1,
                // Others were at work when it was timed.
                Some(_) => whole = Some(took.min(after)),
            }
            if is_torn {
                end_torn_sessions(run);
            }
            goes_on(home, run, first, &format!("{deed} killed after {after:?}"));
        }
    }
}

/// Backups and prunes killed while bytes pass, over a real server, which goes on with what it has heard. `from`: what
/// logging in takes.
pub fn kills_while_bytes_pass(home: &Home, relay: &Relay, from: u64, command: impl Fn(&[&str]) -> Command) {
    let run = |args: &[&str]| Ran::from(command(args).output().unwrap());
    let mut rng = Rng::new(3);
    home.write("kept/a", rng.bytes(200_000));
    run(&["init"]).expect(0);
    let first = run(&["--json", "backup", "kept"]).expect(0).the("summary")["snapshot_id"].clone();
    let first = first.as_str().unwrap();
    let prune = ["prune", "--wait", "0", "--max-unused", "0%"];
    for (deed, args, step) in [("backup", &["backup", "src"][..], 10_000), ("prune", &prune, 2500)] {
        let mut kills = 0;
        for number in 0..12 {
            home.write("src/b", rng.bytes(100_000));
            if deed == "prune" {
                let ran = run(&["--json", "backup", "src"]).expect(0);
                run(&["forget", ran.the("summary")["snapshot_id"].as_str().unwrap()]).expect(0);
            }
            let after = from + number * step + rng.below(step as usize) as u64;
            kills += u32::from(killed(relay, command(args), after));
            goes_on(home, run, first, &format!("{deed} killed after {after} bytes"));
        }
        eprintln!("{deed}: {kills} kills, {} connections so far", relay.connections());
        assert!(kills >= 4, "{deed}: {kills}");
    }
}
