//! What snapshots reach: every chunk that their trees refer to, each node read once however many snapshots share it.
//!
//! [`walk`](walk::walk) goes over the trees on any number of threads. Who walks decides what is met for the first time,
//! and keeps that in [`Marks`](marks::Marks) or [`Bits`](bits::Bits), one for each chunk. Where a chunk is, a
//! [`Finder`](find::Finder) mostly guesses right from [`Keys`](keys::Keys), without asking the index.

pub(crate) mod bits;
pub(crate) mod find;
pub(crate) mod keys;
pub(crate) mod marks;
mod queue;
pub(crate) mod walk;

/// What can't be read is read once more before it passes for that.
pub(crate) fn twice<T>(read: impl Fn() -> drumlin_repo::Result<T>) -> drumlin_repo::Result<T> {
    read().or_else(|e| if e.is_damage() { read() } else { Err(e) })
}
