//! The operations: backup, restore, and what is asked of snapshots.
//!
//! Each takes an open repository, an options struct and a [`Monitor`], and gives a report. Nothing here prints,
//! prompts, reads the environment or exits.
//!
//! Threads wait for one another: whoever calls these operations has a panic in any thread end the program (a hook does
//! that, as `cli/src/process.rs` sets one), or one that is a bug leaves the others waiting.

pub mod backup;
pub mod check;
mod collect;
pub mod convert;
pub mod copy;
pub mod diff;
pub mod du;
pub mod dump;
mod error;
pub mod estimate;
pub mod find;
pub mod forget;
mod holes;
mod identity;
mod latency;
pub mod legible;
pub mod list;
mod lock;
pub mod monitor;
pub mod parity;
pub mod prune;
mod reach;
pub mod repair;
pub mod restore;
pub mod select;
pub mod stats;
pub mod thaw;
mod threads;
mod unchanged;
pub mod undelete;

pub use error::{Error, Result};
pub use latency::LATE;
pub use monitor::{Counters, Monitor, Problem, ProblemKind};
