//! A repository that is far away, over lines that break.

use super::Away;
use crate::home::{MEMORY, peak, same, signal};
use crate::line::{MANY_PACKS, few_round_trips};
use drumlin_testkit::{Line, Rng};
use std::time::{Duration, Instant};

/// Blocking round trips of a backup that finds nothing changed, the login's apart: 7, and whatever doesn't overlap on a
/// busy machine. The law says 20.
const ROUND_TRIPS_MAX: u64 = 9;
/// Those of a login: ssh's own, and the greeting.
const LOGIN_MAX: u64 = 8;
/// What a line of 200 ms may add to it, the login included.
const ADDED_MAX: Duration = Duration::from_millis(3600);

#[test]
fn everything_over_sftp() {
    let Some(away) = Away::new() else { return };
    away.home.sources();
    away.run("plain", &["init"]).ok();
    away.run("plain", &["backup", "src"]).ok();
    away.home.write("src/new", "new");
    away.run("plain", &["backup", "src"]).ok();
    let summary = away.run("plain", &["--json", "backup", "src"]).ok().the("summary").clone();
    assert_eq!((&summary["entries_new"], &summary["data_added"]), (&0.into(), &0.into()), "{summary}");
    away.run("plain", &["check", "--read-data"]).ok();
    away.run("plain", &["restore", &away.home.saved_folder(), "-t", "out"]).ok();
    assert!(same(&away.home.path("src"), &away.home.path("out")));
    away.run("plain", &["forget", "--keep-last", "1"]).ok();
    away.run("plain", &["prune", "--max-unused", "0%"]).ok();
    away.run("plain", &["check", "--read-data"]).ok();
    // The same repository, as a folder on this machine, and through the user's own ssh.
    let folder = away.folder("plain");
    away.home.run(&["-r", folder.to_str().unwrap(), "-k", "k", "check"]).ok();
    assert_eq!(std::fs::read_dir(folder.join("tmp")).unwrap().count(), 0);
    away.run("plain", &["--ssh-command", "ssh -F home/.ssh/config", "snapshots"]).ok();
    assert_eq!(away.home.run(&["--json", "cache"]).ok().objects().len(), 1, "one cache, whatever the way");
}

#[test]
fn a_backup_of_nothing_new_takes_few_round_trips() {
    let Some(away) = Away::new() else { return };
    for n in 0..3000 {
        away.home.write(&format!("src/{}/file-{n}", n % 50), n.to_string());
    }
    away.run("plain", &["init"]).ok();
    // The last tree lies in several packs.
    for n in 0..6 {
        away.home.write(&format!("src/{}/more", n * 8), n.to_string());
        away.run("plain", &["backup", "src"]).ok();
    }
    away.run("plain", &["backup", "src"]).ok();
    // Long enough for what the machines themselves take not to count.
    let round_trip = Duration::from_millis(200);
    away.relay.set(Line::long(round_trip));
    // On a busy machine what goes together may go one after the other.
    let mut runs = 0;
    let mut is_quick = || {
        let (bytes, travelled, turns) = (away.relay.bytes(), away.relay.travelled(), away.relay.turns());
        away.run("plain", &["backup", "src"]).expect(0);
        let (up, down) = (away.relay.bytes().0 - bytes.0, away.relay.bytes().1 - bytes.1);
        let (added, turns) = (away.relay.travelled() - travelled, away.relay.turns() - turns);
        eprintln!("{turns} turns, {added:?} on the line, {up} bytes up, {down} down");
        assert!(up < 60_000 && down < 100_000, "{up} {down}");
        runs += 1;
        added <= ADDED_MAX && turns <= ROUND_TRIPS_MAX + LOGIN_MAX
    };
    assert!((0..3).any(|_| is_quick()));
    assert_eq!(away.relay.connections(), 8 + runs, "one connection a run");
}

/// What is put is written while something else is waited for, and has but its name to get: a backup of something new
/// waits 11 times, the login apart, where nothing else makes it wait.
#[test]
fn a_backup_of_little_takes_few_round_trips() {
    let Some(away) = Away::new() else { return };
    away.run("plain", &["init"]).ok();
    let round_trip = Duration::from_millis(100);
    away.relay.set(Line::long(round_trip));
    // On a busy machine what goes together may go one after the other.
    let mut waited = (0..6).map(|n| {
        away.home.write("src/new", Rng::new(n).bytes(100_000));
        let before = away.relay.travelled();
        away.run("plain", &["backup", "src"]).ok();
        let waited = (away.relay.travelled() - before).as_secs_f64() / round_trip.as_secs_f64();
        eprintln!("{waited:.1} round trips");
        waited
    });
    let most = LOGIN_MAX as f64 + 12.5;
    assert!(waited.any(|waited| waited <= most));
}

/// Besides the login's eight: what it is, what there is, what that says, and the files.
#[test]
fn a_restore_of_little_takes_few_round_trips() {
    let Some(away) = Away::new() else { return };
    away.run("plain", &["init"]).ok();
    away.home.write("src/a", Rng::new(1).bytes(700_000));
    away.home.write("src/b", "little");
    away.run("plain", &["backup", "src"]).ok();
    let saved = away.home.saved_folder();
    // 18 when one thing was asked for after the other.
    few_round_trips(&away.relay, 14.0, || {
        let _ = std::fs::remove_dir_all(away.home.path("out"));
        away.run("plain", &["restore", &saved, "-t", "out"]).ok();
        assert!(same(&away.home.path("src"), &away.home.path("out")));
    });
}

/// Each backup made a pack. What is needed to read from the next ones is asked for while one is read.
#[test]
fn a_restore_from_many_packs_takes_few_round_trips() {
    let Some(away) = Away::new() else { return };
    away.run("plain", &["init"]).ok();
    for n in 0..MANY_PACKS {
        away.home.write(&format!("src/{n}"), Rng::new(n).bytes(3000));
        away.run("plain", &["backup", "src"]).ok();
    }
    let saved = away.home.saved_folder();
    // With snapshots read one after the other it was 92, with openings waited for 50, where lengths that are asked for
    // ahead leave no room for them 29; the login's eight are in it.
    few_round_trips(&away.relay, 20.0, || {
        // Each run is a first one: snapshots that were read once are kept.
        let kept = std::fs::read_dir(away.home.path("cache/drumlin")).unwrap();
        kept.for_each(|of| drop(std::fs::remove_dir_all(of.unwrap().path().join("snapshots"))));
        let _ = std::fs::remove_dir_all(away.home.path("out"));
        away.run("plain", &["restore", &saved, "-t", "out"]).ok();
        assert!(same(&away.home.path("src"), &away.home.path("out")));
    });
    // All but one snapshot at once: 51 turns and 18, where one after the other it is six for each, and one.
    away.relay.set(Line::long(Duration::from_millis(50)));
    // A prune reads what each index object says twice, and the tables of small packs: side by side.
    let prune = &["prune"][..];
    for (args, turns_max) in
        [(&["forget", "--keep-last", "1"][..], 90), (&["snapshots", "--forgotten"], 36), (prune, 1000)]
    {
        let before = away.relay.turns();
        away.run("plain", args).ok();
        let turns = away.relay.turns() - before;
        eprintln!("{args:?}: {turns} turns");
        assert!(turns <= turns_max, "{args:?}: {turns}");
    }
}

#[test]
fn a_line_of_any_length_is_filled() {
    const BYTES: u64 = 16 << 20;
    const RATE: u64 = 4_000_000;
    let Some(away) = Away::new() else { return };
    away.run("plain", &["init"]).ok();
    let mut rng = Rng::new(11);
    for millis in [1, 50, 200] {
        away.relay.set(Line { up: RATE, ..Line::long(Duration::from_millis(millis)) });
        let mut attempt = || {
            away.home.write("src/noise", rng.bytes(BYTES as usize));
            let rate = away.relay.rate_up(BYTES, || _ = away.run("plain", &["backup", "src"]).expect(0));
            eprintln!("{millis} ms: {:.0} % of the line", rate / RATE as f64 * 100.0);
            rate
        };
        // A machine that is busy with something else takes time, too.
        assert!((0..3).any(|_| attempt() > 0.9 * RATE as f64), "{millis} ms");
    }
}

#[test]
fn limits_are_those_that_were_asked_for_each_way() {
    let Some(away) = Away::new() else { return };
    away.run("plain", &["init"]).ok();
    let mut rng = Rng::new(12);
    let mut timed = |args: &[&str]| {
        away.home.write("src/noise", rng.bytes(6 << 20));
        let start = Instant::now();
        away.run("plain", args).expect(0);
        start.elapsed().as_secs_f64()
    };
    // 6 MiB at 2 MiB a second.
    let up = timed(&["--limit-upload", "2048", "backup", "src"]);
    assert!((2.8..12.0).contains(&up), "{up}");
    let saved = away.home.saved_folder();
    let down = timed(&["--limit-download", "2048", "restore", &saved, "-t", "out"]);
    assert!((2.8..12.0).contains(&down), "{down}");
    // The other way is free: 6 MiB would take a minute.
    let free = timed(&["--limit-download", "100", "backup", "src"]);
    assert!(free < 20.0, "{free}");
}

/// What waits for the line is not piled up.
#[test]
fn a_slow_line_takes_no_more_memory() {
    const RATE: u64 = 20_000_000;
    let Some(away) = Away::new() else { return };
    away.run("plain", &["init"]).ok();
    away.home.write("src/noise", Rng::new(13).bytes(64 << 20));
    for n in 0..500u64 {
        away.home.write(&format!("src/{n}"), Rng::new(n).bytes(20_000));
    }
    away.relay.set(Line { up: RATE, down: RATE, ..Line::long(Duration::from_millis(50)) });
    let saved = away.home.saved_folder();
    for args in [&["backup", "src"][..], &["restore", &saved, "-t", "out"]] {
        let (ran, most) = peak(away.command("plain", args));
        ran.expect(0);
        eprintln!("{}: {} MiB", args[0], most >> 20);
        assert!((1 << 20..MEMORY).contains(&most), "{}: {most}", args[0]);
    }
    assert!(same(&away.home.path("src"), &away.home.path("out")));
}

#[test]
fn a_line_that_breaks_again_and_again_is_no_matter() {
    let Some(away) = Away::new() else { return };
    let mut rng = Rng::new(7);
    away.run("plain", &["init"]).ok();
    for seed in 0..6 {
        for n in 0..40 {
            away.home.write(&format!("src/{n}"), rng.bytes(300_000));
        }
        away.home.write("src/large", rng.bytes(25 << 20));
        let passed = away.relay.bytes().0 + away.relay.bytes().1;
        // Behind the first login, along with which the config and the key are asked for: who can't log in is told so at
        // once.
        let mut cuts: Vec<u64> = (0..3).map(|_| passed + 20_000 + rng.below(30_000) as u64).collect();
        cuts.extend((0..4).map(|_| passed + rng.below(38 << 20) as u64));
        away.relay.cut_at(cuts);
        let connections = away.relay.connections();
        away.run("plain", &["backup", "src"]).expect(0);
        assert!(away.relay.connections() > connections + 1, "seed {seed}: nothing was cut");
        away.relay.cut_at(Vec::new());
    }
    away.run("plain", &["check", "--read-data"]).ok();
    let passed = away.relay.bytes().0 + away.relay.bytes().1;
    away.relay.cut_at((1..4).map(|n| passed + n * (9 << 20)).collect());
    away.run("plain", &["restore", &away.home.saved_folder(), "-t", "out"]).expect(0);
    assert!(same(&away.home.path("src"), &away.home.path("out")));
}

#[test]
fn who_stops_while_the_line_is_down_waits_no_longer() {
    let Some(away) = Away::new() else { return };
    away.run("plain", &["init"]).ok();
    away.home.write("src/large", Rng::new(9).bytes(60 << 20));
    let passed = away.relay.bytes().0 + away.relay.bytes().1;
    // From then on each connection breaks while it logs in.
    away.relay.cut_at((0..100_000).map(|n| passed + (8 << 20) + n * 500).collect());
    let mut child = away.home.start(&["-r", "sftp://plain/~/repo", "-k", "k", "-q", "backup", "src"]);
    let connections = away.relay.connections();
    while away.relay.connections() < connections + 4 {
        assert!(child.try_wait().unwrap().is_none(), "it has ended by itself");
        std::thread::sleep(Duration::from_millis(20));
    }
    let start = Instant::now();
    signal(&child, rustix::process::Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    away.relay.cut_at(Vec::new());
    away.run("plain", &["backup", "src"]).expect(0);
    away.run("plain", &["check", "--read-data"]).ok();
}

/// As when the server's machine goes down and comes up again.
#[test]
fn sessions_that_are_killed_are_no_matter_either() {
    let Some(away) = Away::new() else { return };
    away.run("plain", &["init"]).ok();
    let mut rng = Rng::new(8);
    away.home.write("src/large", rng.bytes(120 << 20));
    std::thread::scope(|scope| {
        let running = scope.spawn(|| away.run("plain", &["backup", "src"]));
        for _ in 0..4 {
            std::thread::sleep(Duration::from_millis(400));
            away.sshd.kill_sessions();
        }
        running.join().unwrap().expect(0);
    });
    away.run("plain", &["check", "--read-data"]).ok();
}
