//! Bad days of every operation: a full disk, places that can't be read, kills, listings that are cut short, damage of
//! every kind to every kind of object. Each ends with an error that names the object, or goes on lawfully; every
//! snapshot that was committed stays whole; the same operation ends well once the storage does.

#[path = "../common/mod.rs"]
mod common;

mod damage;
mod deed;
mod faults;
mod judge;
mod kills;
mod listings;
mod mending;
mod scene;
mod servers;
