//! Parity across packs: what is lost comes back, what is covered stays covered, whatever happens beside it or in its
//! middle.

#[path = "../common/mod.rs"]
mod common;

mod kills;
mod losses;
mod scene;
mod upkeep;
