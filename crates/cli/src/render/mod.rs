//! What a user or a script sees: lines, tables, progress, JSON; sizes, times and paths in words.

pub mod check;
pub mod json;
pub mod missing;
pub mod out;
pub mod path;
pub mod progress;
pub mod size;
pub mod summary;
pub mod sums;
pub mod table;
pub mod time;

pub use out::Out;
