//! A repository: opened with a key, written in packs, found by an index, read as trees.
//!
//! [`Repository`] opens, reads, writes and lists; what is done with it (backup, restore, …) lives in `engine`.
//!
//! Crash order, which every writer keeps: session → packs → durable → index objects → snapshot → decision. Nothing
//! refers to what is not durable. The local cache is a hint: without it everything takes longer and nothing is lost.

mod access;
mod beside;
mod cache;
mod config;
mod create;
mod entropy;
mod error;
mod forgotten;
mod generations;
mod keys;
mod leftovers;
mod lock;
mod losses;
mod many;
mod puts;
mod rekey;
mod repository;
mod reseal;
mod retention;
mod snapshots;
mod twice;
mod writer;

pub mod band;
pub mod collection;
pub mod history;
pub mod index;
pub mod names;
pub mod pack;
pub mod tree;

pub use access::Unlock;
pub use beside::{Beside, beside};
pub use cache::{Cache, Remembered};
pub use create::{CreateOptions, NewRepository, NotMade};
pub use drumlin_store::Haste;
pub use entropy::{random_id, random_secret};
pub use error::{Error, Result};
pub use generations::Generations;
pub use index::{Index, IndexMode, IndexStats, Location, PackInfo};
pub use keys::{KeyInfo, Keys, NewLock};
pub use losses::Losses;
pub use rekey::{RekeyOptions, Rekeyed};
pub use repository::Repository;
pub use snapshots::{SnapshotInfo, Trust, may_decide};
pub use twice::{Examined, Mended};
pub use writer::{WriteSession, Written};
