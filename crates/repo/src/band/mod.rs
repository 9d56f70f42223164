//! Parity across packs: a band is some packs and the recovery objects made of them, by which packs that are gone or
//! damaged beyond their own parity are made again.
//!
//! Which packs are banded, and when, is for `engine::parity` to say; here a band is made, found and read through.
//! Recovery objects say nothing that isn't in packs: without them everything is as it was. So no step of a backup, a
//! restore or a collection rests on them, and their loss loses nothing.
//!
//! Crash order: recovery data, durable; then the object of number 0, durable. A band counts from then on. It is taken
//! away in the opposite order.

mod bands;
mod code;
mod make;
mod through;

pub use bands::{Band, Bands, Verified};
pub use make::{Cost, Made, Recipe, make};
pub use through::Through;
