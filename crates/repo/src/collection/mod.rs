//! Removing what no snapshot needs, beside writers that know nothing of it: the protocol of `docs/collection.md`.
//!
//! Here stands who asks what of the storage in which order, and nothing else. The storage is seen through [`Board`], so
//! that the same code runs against a repository and, in `tests/collection`, against a model in which every order of the
//! steps of several processes is tried.

mod board;
mod collector;
mod decide;
mod desk;
mod moved;
mod register;
mod registration;

pub use board::{Board, Flag};
pub use collector::{Collected, Draft, Patience, Subject, alone, bury, collect, discard};
pub use decide::{Fate, commit, end, evict};
pub(crate) use desk::Announced;
pub use desk::{Desk, Looks};
pub use register::{Known, register};
pub use registration::Registration;
