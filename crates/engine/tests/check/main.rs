//! Checks: whatever is damaged is found and named, with exactly what it touches; what is sound is called so, beside
//! others at work too.

mod bench;
#[path = "../common/mod.rs"]
mod common;
mod cost;
mod forged;
mod matrix;
mod model;
mod races;
mod reading;
mod roles;
mod sound;
mod touched;
