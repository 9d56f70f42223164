//! A restore into a folder that has something in it already: what is right stays, what is wrong is replaced, and what
//! the user didn't ask for is left alone.

mod chosen;
#[path = "../common/mod.rs"]
mod common;
mod gaps;
mod links;
mod locked;
mod midway;
mod scene;
mod spared;
mod there;
