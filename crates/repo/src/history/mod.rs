//! The history: who removes snapshots or index objects from a repository says so first, in a signed entry. A client
//! that remembers what it has seen so tells a lawful removal from a storage that drops objects, or gives back an older
//! state.
//!
//! Why nobody is accused wrongly is in `docs/history.md`.

mod entries;
mod judge;
mod look;
mod memory;
mod missing;
mod seen;
#[cfg(test)]
mod tests;

pub use entries::Act;
pub(crate) use entries::now;
pub use memory::{Memory, Trouble};
pub use missing::{KeyTrouble, Missing};
