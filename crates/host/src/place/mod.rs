//! Entries created below a target folder, and their metadata written back: the restoring side.
//!
//! Every entry is reached through a directory descriptor that is held open and one name of a single component, which is
//! never followed when it is a symlink; whole paths below the target are resolved by the kernel with `openat2`
//! (`RESOLVE_BENEATH`, `RESOLVE_NO_SYMLINKS`, `RESOLVE_NO_MAGICLINKS`), or by components where it lacks that. So
//! nothing planted in the target, before or during a restore, leads outside it, and a path may be longer than
//! `PATH_MAX`.
//!
//! What can't be given back (another owner as an ordinary user, attributes that the file system lacks) becomes a
//! [`Problem`] beside the entry; an error is only what keeps the entry or its contents from being there.
//!
//! The usual course: [`Target::open`], directories by [`TargetDir::make_dir`] (mode 0700 while they fill), small files
//! by [`TargetDir::place_file`], larger ones by [`TargetDir::create_file`] and [`NewFile::finish`] (with [`BigFile`]
//! for those written in order), files that replace others by [`TargetDir::create_temp`] and [`TempFile::commit_as`],
//! and [`TargetDir::finish_dir`] once a directory is complete, children before parents. Nothing is durable before
//! [`Target::sync`].

mod apply;
mod behind;
mod big;
mod dir;
mod entry;
mod error;
mod file;
mod gathered;
mod gift;
mod handle;
mod list;
mod locked;
mod node;
mod owners;
mod remove;
mod resolve;
mod target;
#[cfg(test)]
mod tests;

pub use apply::Wanted;
pub use big::BigFile;
pub use dir::TargetDir;
pub use entry::FileId;
pub use error::{Error, Problem, Problems, Result, What};
pub use file::{NewFile, TempFile, is_aside};
pub use list::Names;
pub use owners::Owners;
pub use remove::Removed;
pub use target::Target;
