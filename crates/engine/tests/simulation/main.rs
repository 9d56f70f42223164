//! Writers, collectors, somebody who forgets and readers at work on one repository, in a world that a seed decides: who
//! goes on at which call to the storage, what fails, who is killed or stands still, what a loss of power takes.
//!
//! ```text
//! DRUMLIN_SIM_SEED=17 cargo test -p drumlin-engine --test simulation            one seed again, with every call told
//! DRUMLIN_SIM_SECONDS=3600 cargo test … --test simulation -- --ignored          new seeds for that long
//! ```

mod actors;
mod base;
mod book;
mod machine;
mod run;
mod sums;
mod turns;
mod world;

use base::Base;
use run::Run;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use sums::Sums;

/// Seeds of every test run.
const SEEDS: u64 = 2000;
/// A part of the work of a test, for a process of its own: first seed, distance to the next, number of seeds.
const PART: &str = "DRUMLIN_SIM_PART";

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Run some seeds, or as many as there is time for. Gives how many, and what happened.
fn part(first: u64, distance: u64, count: u64, time: Duration) -> (u64, Sums) {
    let (base, start) = (Base::new(), Instant::now());
    let (mut done, mut sums) = (0, Sums::default());
    while done < count && start.elapsed() < time {
        let seed = first + done * distance;
        let outcome = Run::new(&base, seed, false).go();
        let wrong = outcome.wrong;
        assert!(
            wrong.is_empty(),
            "seed {seed}, after {done} others: {}\nagain, with every call:  DRUMLIN_SIM_SEED={seed} cargo test -p drumlin-engine \
             --test simulation\n",
            wrong.join("\n")
        );
        sums.join(&outcome.sums);
        done += 1;
    }
    (done, sums)
}

/// Seeds from `first` on, shared out to as many processes as there are processors: a run has one clock and one source
/// of random bytes. In as many as are run every time everything has to happen that can.
fn all(test: &str, first: u64, count: u64, time: Duration) {
    if let Ok(part_of) = std::env::var(PART) {
        let numbers: Vec<u64> = part_of.split(' ').map(|n| n.parse().unwrap()).collect();
        let (done, sums) = part(numbers[0], numbers[1], numbers[2], time);
        println!("\n{done} seeds\n{}", sums.lines());
        return;
    }
    let start = Instant::now();
    let processes = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let children: Vec<_> = (0..processes)
        .map(|n| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args([test, "--exact", "--nocapture", "--include-ignored"]);
            command.env(PART, format!("{} {processes} {}", first + n, count.div_ceil(processes)));
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let (mut done, mut sums) = (0, Sums::default());
    for child in children {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        done += text.lines().filter_map(|line| line.strip_suffix(" seeds")?.parse::<u64>().ok()).sum::<u64>();
        sums.join(&Sums::parse(&text));
    }
    println!("{done} seeds from {first} on, in {:.1?}\n{}", start.elapsed(), sums.lines());
    assert!(
        done < SEEDS || sums.missing().is_empty(),
        "in {done} seeds there were no {}",
        sums.missing().join(", no ")
    );
}

#[test]
fn every_seed_ends_well() {
    if let Some(seed) = number("DRUMLIN_SIM_SEED") {
        let outcome = Run::new(&Base::new(), seed, true).go();
        println!("{}", outcome.trace.join("\n"));
        assert!(outcome.wrong.is_empty(), "seed {seed}: {}", outcome.wrong.join("\n"));
        return;
    }
    all("every_seed_ends_well", 1, number("DRUMLIN_SIM_SEEDS").unwrap_or(SEEDS), Duration::MAX);
}

#[test]
#[ignore = "takes as long as DRUMLIN_SIM_SECONDS says"]
fn seeds_for_as_long_as_there_is_time() {
    let seconds = number("DRUMLIN_SIM_SECONDS").unwrap_or(50);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    all("seeds_for_as_long_as_there_is_time", now.as_secs() << 20, u64::MAX >> 8, Duration::from_secs(seconds));
}

#[test]
fn a_seed_is_the_same_run_every_time() {
    if std::env::var(PART).is_ok() {
        return;
    }
    // In a process of its own: this one has other tests at the same time.
    let digests = || {
        let base = Base::new();
        let seeds = 1..=number("DRUMLIN_SIM_SEEDS").unwrap_or(60);
        seeds.map(|seed| Run::new(&base, seed, false).go().digest).collect::<Vec<_>>()
    };
    const CHILD: &str = "DRUMLIN_SIM_DIGESTS";
    if std::env::var(CHILD).is_ok() {
        println!("digests {:?}", digests());
        return;
    }
    let told = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["a_seed_is_the_same_run_every_time", "--exact", "--nocapture"]).env(CHILD, "");
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        text.lines().find(|line| line.starts_with("digests")).unwrap().to_owned()
    };
    assert_eq!(told(), told());
}
