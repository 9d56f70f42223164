//! A line to a server, to be measured over:
//! `relay <port here> <port of the server> <round trip in ms> <bytes a second up> <bytes a second down>`, 0 for any
//! number.
//!
//! For each line on its standard input it says what has passed since the last one: bytes up, bytes down, turns,
//! connections.

use drumlin_testkit::{Line, Relay};
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut number = || -> Result<u64, Box<dyn std::error::Error>> {
        Ok(args
            .next()
            .ok_or("usage: relay <port here> <port of the server> <round trip in ms> <bytes a second up> <bytes a second down>")?
            .parse()?)
    };
    let (here, there, millis, up, down) = (number()?, number()?, number()?, number()?, number()?);
    let line = Line { round_trip: Duration::from_millis(millis), up, down };
    let relay = Relay::between(u16::try_from(here)?, u16::try_from(there)?, line);
    let mut before = (0, 0, 0, 0);
    for _ in std::io::stdin().lines() {
        let ((up, down), turns, connections) = (relay.bytes(), relay.turns(), relay.connections());
        println!("{} {} {} {}", up - before.0, down - before.1, turns - before.2, connections - before.3);
        before = (up, down, turns, connections);
    }
    Ok(())
}
