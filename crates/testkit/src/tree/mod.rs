//! Trees to save and restore, and changes to them.

mod mutate;
mod nasty;
mod protect;
mod random;

pub use mutate::mutate;
pub use nasty::{Skipped, nasty};
pub use protect::{Unprotect, remove, unprotect};
pub use random::random;
