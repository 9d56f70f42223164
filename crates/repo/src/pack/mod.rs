//! Packs: blocks gathered, coded, sealed and written; read, opened and decoded.

mod coder;
mod lru;
mod packer;
mod reader;
mod rescue;

pub use coder::{BlockBuilder, Coder, Coding};
pub use packer::{Appended, Finished, Packer};
pub use reader::Reader;

pub(crate) use lru::Lru;
pub(crate) use reader::read_table;
