//! Trees: written in one pass in tree order, read from any place on.

mod cursor;
mod list;
mod node;
mod writer;

pub use cursor::{Cursor, LeafRef};
pub use list::{ListWriter, Refs};
pub use node::{Family, Nodes, TREE_BLOCK_BYTES};
pub use writer::{NameSource, TreeWriter};
