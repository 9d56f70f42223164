//! A bucket that is far away, over lines that break.

use super::Cloud;
use crate::home::{MEMORY, peak, same};
use crate::line::{MANY_PACKS, few_round_trips};
use drumlin_testkit::{Line, Relay, Rng};
use std::time::Duration;

/// Blocking round trips of a backup that finds nothing changed.
const ROUND_TRIPS_MAX: u64 = 20;

#[test]
fn a_backup_of_nothing_new_takes_few_round_trips() {
    let mut cloud = Cloud::new();
    for n in 0..3000 {
        cloud.home.write(&format!("src/{}/file-{n}", n % 50), n.to_string());
    }
    cloud.run(&["init"]).ok();
    for _ in 0..2 {
        cloud.run(&["backup", "src"]).ok();
    }
    // Long enough for what the machines themselves take not to count.
    let round_trip = Duration::from_millis(200);
    let relay = Relay::to(cloud.server.port(), Line::long(round_trip));
    cloud.through(relay.port());
    // On a busy machine what goes together may go one after the other.
    let is_quick = || {
        let (before, bytes) = (relay.travelled(), relay.bytes());
        cloud.server.asked();
        cloud.run(&["backup", "src"]).ok();
        let waited = (relay.travelled() - before).as_secs_f64() / round_trip.as_secs_f64();
        let asked = cloud.server.asked();
        let (up, down) = (relay.bytes().0 - bytes.0, relay.bytes().1 - bytes.1);
        eprintln!("{waited:.1} round trips, {} requests, {up} bytes up, {down} down: {asked:?}", asked.len());
        assert!(asked.len() <= 40, "{}: {asked:?}", asked.len());
        assert!(up < 60_000 && down < 400_000, "{up} {down}");
        waited <= ROUND_TRIPS_MAX as f64
    };
    assert!((0..3).any(|_| is_quick()));
}

/// Whoever looks after a backup of his own whether anything is missing knows what that has made, and lists no more than
/// the next time.
#[test]
fn what_a_client_has_made_itself_is_nothing_new_to_it() {
    let cloud = Cloud::new();
    cloud.run(&["init"]).ok();
    let listings_after = |contents: &str| {
        cloud.home.write("src/file", contents);
        cloud.run(&["backup", "src"]).ok();
        cloud.server.asked();
        [(); 2].map(|()| {
            cloud.run(&["stats"]).ok();
            cloud.server.asked().iter().filter(|(what, _)| *what == "ListBucket").count()
        })
    };
    for contents in ["first", "second"] {
        let [first, next] = listings_after(contents);
        assert_eq!(first, next, "{contents}");
    }
}

/// Each backup made a pack. What is needed to read from the next ones is asked for while one is read.
#[test]
fn a_restore_from_many_packs_takes_few_round_trips() {
    let mut cloud = Cloud::new();
    cloud.run(&["init"]).ok();
    for n in 0..MANY_PACKS {
        cloud.home.write(&format!("src/{n}"), Rng::new(n).bytes(3000));
        cloud.run(&["backup", "src"]).ok();
    }
    let relay = Relay::to(cloud.server.port(), Line::default());
    cloud.through(relay.port());
    let saved = cloud.home.saved_folder();
    // With snapshots read one after the other it was 45.
    few_round_trips(&relay, 16.0, || {
        let _ = std::fs::remove_dir_all(cloud.home.path("out"));
        cloud.run(&["restore", &saved, "-t", "out"]).ok();
        assert!(same(&cloud.home.path("src"), &cloud.home.path("out")));
    });
}

#[test]
fn a_line_of_any_length_is_filled() {
    const BYTES: u64 = 16 << 20;
    const RATE: u64 = 4_000_000;
    let mut cloud = Cloud::new();
    let relay = Relay::to(cloud.server.port(), Line::default());
    cloud.through(relay.port());
    cloud.run(&["init"]).ok();
    let mut rng = Rng::new(11);
    for millis in [1, 50, 200] {
        relay.set(Line { up: RATE, ..Line::long(Duration::from_millis(millis)) });
        let mut attempt = || {
            cloud.home.write("src/noise", rng.bytes(BYTES as usize));
            let rate = relay.rate_up(BYTES, || _ = cloud.run(&["backup", "src"]).expect(0));
            eprintln!("{millis} ms: {:.0} % of the line", rate / RATE as f64 * 100.0);
            rate
        };
        // A machine that is busy with something else takes time, too.
        assert!((0..3).any(|_| attempt() > 0.9 * RATE as f64), "{millis} ms");
    }
}

/// What waits for the line is not piled up.
#[test]
fn a_slow_line_takes_no_more_memory() {
    const RATE: u64 = 20_000_000;
    let mut cloud = Cloud::new();
    let relay = Relay::to(cloud.server.port(), Line::default());
    cloud.through(relay.port());
    cloud.run(&["init"]).ok();
    cloud.home.write("src/noise", Rng::new(13).bytes(64 << 20));
    for n in 0..500u64 {
        cloud.home.write(&format!("src/{n}"), Rng::new(n).bytes(20_000));
    }
    relay.set(Line { up: RATE, down: RATE, ..Line::long(Duration::from_millis(50)) });
    let saved = cloud.home.saved_folder();
    for args in [&["backup", "src"][..], &["restore", &saved, "-t", "out"]] {
        let (ran, most) = peak(cloud.command(args));
        ran.expect(0);
        eprintln!("{}: {} MiB", args[0], most >> 20);
        assert!((1 << 20..MEMORY).contains(&most), "{}: {most}", args[0]);
    }
    assert!(same(&cloud.home.path("src"), &cloud.home.path("out")));
}

#[test]
fn a_line_that_breaks_again_and_again_is_no_matter() {
    let mut cloud = Cloud::new();
    let relay = Relay::to(cloud.server.port(), Line::default());
    cloud.through(relay.port());
    let mut rng = Rng::new(7);
    cloud.run(&["init"]).ok();
    for seed in 0..4 {
        for n in 0..40 {
            cloud.home.write(&format!("src/{n}"), rng.bytes(300_000));
        }
        cloud.home.write("src/large", rng.bytes(25 << 20));
        let passed = relay.bytes().0 + relay.bytes().1;
        let mut cuts: Vec<u64> = (0..3).map(|_| passed + 2000 + rng.below(20_000) as u64).collect();
        cuts.extend((0..4).map(|_| passed + rng.below(38 << 20) as u64));
        relay.cut_at(cuts);
        cloud.run(&["backup", "src"]).expect(0);
        relay.cut_at(Vec::new());
        assert!(seed > 0 || relay.connections() > 8, "nothing was cut");
    }
    cloud.run(&["check", "--read-data"]).ok();
    let passed = relay.bytes().0 + relay.bytes().1;
    relay.cut_at((1..4).map(|n| passed + n * (9 << 20)).collect());
    cloud.run(&["restore", &cloud.home.saved_folder(), "-t", "out"]).expect(0);
    assert!(same(&cloud.home.path("src"), &cloud.home.path("out")));
}
