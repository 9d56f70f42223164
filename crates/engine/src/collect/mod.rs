//! What collectors have in common, prunes and repairs, and keepers of parity with them: what there is, what of it is
//! needed and where it is had from, moving it, and waiting for those who are in the way.

pub(crate) mod duplicates;
pub(crate) mod ground;
pub(crate) mod naming;
pub(crate) mod need;
pub(crate) mod places;
pub(crate) mod rank;
pub(crate) mod repack;
pub(crate) mod silence;
