//! Every decoder against bytes that somebody bent: no panic, no memory out of proportion, and what is taken for
//! something comes back from its own encoding. The same targets as in `fuzz/`, for every toolchain, a fixed number of
//! times.
//!
//! The seed is new at each run and printed when it fails; `DRUMLIN_SEED` sets it, to see the same again.

mod memory;
mod mutate;
mod targets;

use drumlin_testkit::Rng;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{SystemTime, UNIX_EPOCH};

/// What was bent and still decodes is bent further; so much of it is kept.
const POOL: usize = 64;
/// Longer inputs find nothing that shorter ones don't.
const BYTES_MAX: usize = 64 << 10;

fn seed() -> u64 {
    match std::env::var("DRUMLIN_SEED") {
        Ok(text) => text.parse().expect("DRUMLIN_SEED is a number"),
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64,
    }
}

/// Bend the samples of a target so many times.
fn hostile(name: &str, times: usize) {
    let target = targets::ALL.iter().find(|t| t.name == name).unwrap();
    let seed = seed();
    println!("DRUMLIN_SEED={seed}");
    let mut rng = Rng::new(seed);
    let samples = (target.samples)();
    let mut pool = samples.clone();
    let mut taken = 0;
    for round in 0..times {
        let other = rng.below(pool.len());
        let at = if rng.one_in(3) { rng.below(samples.len()) } else { rng.below(pool.len()) };
        let mut bytes = mutate::mutate(&mut rng, &pool[at], &pool[other]);
        bytes.truncate(BYTES_MAX);
        match catch_unwind(AssertUnwindSafe(|| (target.run)(&bytes))) {
            Ok(false) => {}
            Ok(true) => {
                taken += 1;
                if pool.len() < POOL {
                    pool.push(bytes);
                } else {
                    let place = samples.len() + rng.below(POOL - samples.len());
                    pool[place] = bytes;
                }
            }
            Err(panic) => {
                let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
                println!("round {round}, {} bytes: {hex}", bytes.len());
                resume_unwind(panic);
            }
        }
    }
    println!("{taken} of {times} taken");
    // Else the rounds have tried the outermost checks alone.
    assert!(taken > times / 200, "{name}: only {taken} of {times} inputs went all the way");
}

macro_rules! hostile {
    ($($name:ident $times:literal),+ $(,)?) => {
        $(#[test]
        fn $name() {
            hostile(stringify!($name), $times);
        })+

        #[test]
        fn no_target_is_left_out() {
            let names = [$(stringify!($name)),+];
            assert!(targets::ALL.iter().map(|t| t.name).eq(names));
        }
    };
}

hostile! {
    leaf 60_000,
    body 40_000,
    inner 40_000,
    list 60_000,
    table 20_000,
    footer 40_000,
    parity 20_000,
    band 20_000,
    index 15_000,
    config 3_000,
    key_object 3_000,
    key_file 40_000,
    recovery 3_000,
    generation 3_000,
    snapshot 10_000,
    session 20_000,
    decision 20_000,
    plan 20_000,
    loss 20_000,
    history 20_000,
}

#[test]
fn every_sample_is_taken_and_nothing_is_not() {
    for target in &targets::ALL {
        for (number, sample) in (target.samples)().iter().enumerate() {
            assert!((target.run)(sample), "sample {number} of {}", target.name);
        }
        for len in 0..16 {
            assert!(!(target.run)(&vec![0; len]), "{len} zeros as {}", target.name);
        }
    }
}
