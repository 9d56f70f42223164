//! What tests need: trees with everything a Linux file can be, random ones and random changes to them, a comparison of
//! two trees that misses nothing, a fresh file system to try it all on, and servers behind lines that break.
//!
//! Nothing here uses the crates under test: it is the second opinion. All of it works on descriptors and single names,
//! so that paths may be longer than `PATH_MAX`.

mod at;
mod bucket;
pub mod compare;
mod lacking;
mod lease;
mod loopfs;
mod mapping;
mod numberless;
mod parity;
mod rclone;
mod relay;
mod rng;
pub mod s3;
mod server;
mod sshd;
pub mod tree;

pub use bucket::Bucket;
pub use lacking::{Lacking, Lacks, Written};
pub use lease::Lease;
pub use loopfs::LoopFs;
pub use mapping::{Mapping, are_stores_stamped_anew};
pub use numberless::Numberless;
pub use parity::{parity_of, wipe_parity};
pub use rclone::Rclone;
pub use relay::{Line, Relay};
pub use rng::Rng;
pub use s3::S3;
pub use sshd::Sshd;
