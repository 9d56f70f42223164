//! The user's machine: walk, filter, metadata read and written back, sources and sinks of bytes.
//!
//! This crate knows nothing of chunks, packs or repositories. It never prints, reads the environment or exits.

pub mod dir;
pub mod filter;
pub mod meta;
pub mod names;
mod numbers;
pub mod place;
pub mod process;
pub mod read;
mod sys;
pub mod walk;
