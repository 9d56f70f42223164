//! What every store must do, as one suite: [`check`] runs it against a store that starts out empty.
//!
//! A failed expectation is a panic that says which one, as in any test.

mod listing;
mod objects;
mod race;
mod uploads;

use crate::{Error, Kind, Result, Store, Upload};

/// What an account on the storage may do besides adding and reading. A store that is not hampered may do all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct May {
    /// Remove and replace objects.
    pub remove: bool,
    /// Write an object where nobody sees it before it is whole.
    pub hide: bool,
    /// Create an object that nobody else creates at the same moment, and be sure of that.
    pub create_alone: bool,
    /// Replace an object that others read at that moment, so that they see it as it was or as it is, and never none.
    pub replace_in_use: bool,
}

impl May {
    /// All that a store should be able to do.
    pub const ALL: May = May { remove: true, hide: true, create_alone: true, replace_in_use: true };
}

/// Run the whole suite. `make` gives a new, empty store at each call.
pub fn check(make: impl Fn() -> Box<dyn Store>) {
    check_as(May::ALL, make);
}

/// Run the parts of the suite that an account may pass. What it may not do has to be refused.
pub fn check_as(may: May, make: impl Fn() -> Box<dyn Store>) {
    check_one(may, &make, listing::OBJECTS);
    race::check(&make, may);
}

/// Run the parts that hold where nobody else uses the storage at the same time: it can't tell who of several was first.
pub fn check_alone(make: impl Fn() -> Box<dyn Store>) {
    check_one(May::ALL, &make, OBJECTS_ALONE);
}

/// What serves one program at a time may do so slowly: over rclone (1.60) thousands of objects take longer than nine
/// minutes.
const OBJECTS_ALONE: usize = 300;

fn check_one(may: May, make: &impl Fn() -> Box<dyn Store>, many: usize) {
    objects::check(make, may);
    listing::check(make, may, many);
    uploads::check(make, may);
}

/// `len` bytes that differ from place to place and from `seed` to `seed`, so that a piece at a wrong place shows.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        // xorshift64*
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        bytes.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// The value, or a panic with the error as a user would read it.
#[track_caller]
fn ok<T>(result: Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("unexpected error: {error}"),
    }
}

/// The error, which must be of this kind and tell what a user needs.
#[track_caller]
fn fails<T>(kind: Kind, result: Result<T>) -> Error {
    match result {
        Ok(_) => panic!("succeeded instead of failing as {kind:?}"),
        Err(error) => {
            assert_eq!(error.kind, kind, "{error}");
            assert!(!error.location.is_empty(), "{error:?}");
            error
        }
    }
}

/// Compare without printing megabytes.
#[track_caller]
fn same(found: &[u8], expected: &[u8], what: &str) {
    assert_eq!(found.len(), expected.len(), "length of {what}");
    if let Some(at) = found.iter().zip(expected).position(|(a, b)| a != b) {
        panic!("{what} differs at byte {at}");
    }
}

/// Upload `bytes` in writes of `step` bytes.
fn upload(store: &dyn Store, name: &str, bytes: &[u8], len_hint: u64, step: usize) -> Result<()> {
    let mut upload: Box<dyn Upload> = store.upload(name, len_hint)?;
    for piece in bytes.chunks(step) {
        upload.write(piece)?;
    }
    upload.finish()
}

/// All names below `prefix`, in order.
fn names(store: &dyn Store, prefix: &str) -> Vec<String> {
    let mut names = Vec::new();
    ok(store.list(prefix, &mut |listed| names.push(listed.name)));
    names.sort_unstable();
    names
}
