//! Packs: blocks gathered, coded, sealed and written; read, opened and decoded.

mod came;
mod coder;
mod fold;
mod heal;
mod lru;
mod opened;
mod packer;
mod parity;
mod reader;
mod rescue;
mod scan;
mod table;

pub use coder::{BlockBuilder, Coder, Coding};
pub use heal::{Damage, Healed};
pub use packer::{Appended, Finished, Packer};
pub use parity::Encoder;
pub use reader::Reader;
pub use scan::PackScan;

pub(crate) use fold::{ENGINE, Line};
pub(crate) use heal::read_footer;
pub(crate) use lru::Lru;
pub(crate) use parity::added_to;
pub(crate) use table::read_table;
