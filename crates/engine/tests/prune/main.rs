//! Prune: what is needed stays whole, what isn't goes, whatever happens beside it or in its middle.

#[path = "../common/mod.rs"]
mod common;

mod across;
mod amounts;
mod beside;
mod forgers;
mod history;
mod idle;
mod kills;
mod liars;
mod listings;
mod meanwhile;
mod rekey;
mod sessions;
mod twins;
mod undone;
