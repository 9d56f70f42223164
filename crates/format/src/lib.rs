//! Format v1: what each object of a repository looks like, encoded and decoded. `docs/format.md` specifies it byte by
//! byte.
//!
//! Pure: no I/O, no clock, no randomness. Every decoder takes hostile bytes and answers with an [`Error`], never with a
//! panic or with memory out of proportion to its input.

mod cbor;
mod error;
mod header;
mod ids;
mod sealed;
mod signer;
mod wire;

pub mod band;
pub mod config;
pub mod decision;
pub mod generation;
pub mod history;
pub mod index;
pub mod key;
pub mod key_file;
pub mod loss;
pub mod pack;
pub mod parity;
pub mod plan;
pub mod session;
pub mod snapshot;
pub mod tree;

pub use error::{Error, Result};
pub use header::{HEADER_BYTES, Header, ObjectType};
pub use ids::{
    BandId, ChunkId, HistoryId, IndexId, KeyId, LossId, PackId, PlanId, RecoveryId, RepositoryId, SessionId, SnapshotId,
};
pub use signer::{Sealing, Signer};

/// Random bytes that go into the key of everything sealed under a key derived from the index secret: two writers of one
/// name, or one writer twice, never seal under the same key.
pub const FRESH_BYTES: usize = 16;

/// The version of the format that this crate writes, and the newest that it reads.
pub const VERSION: u8 = 1;
