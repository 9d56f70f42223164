//! Storage as named opaque bytes: the [`Store`] trait, its implementations, its wrappers and its conformance suite.
//!
//! A store knows no pack, no key and no snapshot. Names are ASCII paths such as `data/1f/1f00…`.

mod action;
mod ahead;
mod around;
pub mod conformance;
pub mod descriptors;
mod dial;
mod discard;
mod error;
mod fault;
mod forward;
mod late;
mod legible;
mod limit;
mod local;
mod location;
mod lock;
mod memory;
pub mod name;
mod readers;
mod readonly;
mod record;
mod retry;
mod s3;
mod sftp;
mod whose;

pub use action::Action;
pub use around::{Ask, Stopped, Surroundings, Tell};
pub use discard::DiscardStore;
pub use error::{Error, Kind, Result};
pub use fault::{Fault, FaultStore, Faults, When};
pub use local::LocalStore;
pub use location::{Location, LocationError, create, open};
pub use memory::MemoryStore;
pub use readonly::ReadOnlyStore;
pub use record::{Call, CallLog, Op, RecordStore};
pub use retry::Retries;
pub use s3::{ObjectLock, S3Address, S3Store};
pub use sftp::{Address, SftpStore};

/// An object's name and length as a listing gives them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The whole name, with its folders: `data/1f/1f00…`.
    pub name: String,
    /// Length in bytes.
    pub len: u64,
}

/// What [`Store::clear_unfinished`] has removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleared {
    /// How many unfinished objects.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What will be asked for soon: see [`Store::expect`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Soon<'a> {
    /// [`Store::read_at`] with the same offset and length.
    Range {
        /// The object.
        name: &'a str,
        /// Where the range begins.
        offset: u64,
        /// Its length.
        len: usize,
    },
    /// [`Store::get`] of this object.
    Object(&'a str),
    /// [`Store::list`] of this folder.
    Listing(&'a str),
    /// [`Store::len`] of this object.
    Length(&'a str),
    /// [`Store::put`] of a new object.
    Put,
    /// [`Store::put`] of just these bytes under this name.
    Bytes {
        /// The object.
        name: &'a str,
        /// What will be in it.
        bytes: &'a [u8],
    },
}

/// What is looked at right behind a put: see [`Store::put_and_look`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look<'a> {
    /// What is in this folder; if there is anything, nobody looks at what comes behind.
    Empty(&'a str),
    /// What is in this folder.
    Listing(&'a str),
    /// The same, given out by [`Store::list_in_order`] alone, to who lists it behind the folder before it: by itself it
    /// may be older than what the asker has seen of another one.
    InOrder(&'a str),
    /// How long this object is.
    Length(&'a str),
}

/// How soon what is in cold storage shall be there: the sooner, the dearer. Times are those that providers name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Haste {
    /// In half a day, or two days.
    Bulk,
    /// In some hours.
    #[default]
    Standard,
    /// In minutes, where the provider has that.
    Expedited,
}

/// What [`Store::thaw`] has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thaw {
    /// It can be read.
    Ready,
    /// It has been asked for, now or before, and will be readable.
    Coming,
}

/// Whether an object appears under its name only if nobody else has created it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// Fail with [`Kind::Exists`] if the name exists; of several concurrent creators exactly one wins.
    Create,
    /// Replace whatever has that name, atomically: a reader sees the old bytes or the new.
    Replace,
}

/// Nothing that [`Store::get`] is meant for is longer. A storage may claim any length, and send bytes without end.
pub const WHOLE_BYTES_MAX: u64 = 512 << 20;
const TOO_LONG: &str = "it is longer than any object that is read at once, so Drumlin can't have written it";

/// Named bytes on some storage. All methods may be called from many threads at once.
///
/// Names are made of segments `[A-Za-z0-9._-]+` joined by `/`; no segment starts with a dot, and the first is not
/// `tmp`, which stores keep for themselves. Any other name is [`Kind::Refused`], whatever the method; see [`name`].
///
/// After a method that writes returns `Ok`, the object is complete under its name or absent, never in part, even if
/// the power fails; it is *durable* only once [`Store::sync`] (or `put`, which includes it) has returned `Ok`.
/// After an error from a method that writes, its effect may have taken place or not.
pub trait Store: Send + Sync {
    /// Where this is, for messages: a path or a URL without secrets.
    fn location(&self) -> String;

    /// Whether every call takes its time, however small it is, so that what is read again and again is better kept on
    /// this side.
    fn is_far(&self) -> bool {
        false
    }

    /// Whether of several who put an object with [`Put::Create`] exactly one wins, and nothing is ever overwritten.
    /// Where it isn't so, a creation fails if the object is seen to be there, and no more can be said.
    fn creates_atomically(&self) -> Result<bool> {
        Ok(true)
    }

    /// Whether an object that was put from here may be put once more by the storage itself, minutes or hours later,
    /// even though it was removed meanwhile: an attempt that seemed to have failed may be carried out yet, while
    /// another one has succeeded.
    fn may_come_late(&self, name: &str) -> bool {
        let _ = name;
        false
    }

    /// All objects below the folder `prefix` (`"packs"`, or `""` for all), in no particular order.
    /// A folder that does not exist is empty; anything that keeps the listing from being complete is an error.
    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed)) -> Result<()>;

    /// Several folders, each of them seen after the one before it was; `each` is told by its place which one it is.
    fn list_in_order(&self, folders: &[&str], each: &mut dyn FnMut(usize, Listed)) -> Result<()> {
        folders.iter().enumerate().try_for_each(|(at, folder)| self.list(folder, &mut |listed| each(at, listed)))
    }

    /// The length of an object, or `None` if there is none.
    fn len(&self, name: &str) -> Result<Option<u64>>;

    /// The whole object. [`Kind::Missing`] if there is none; one longer than [`WHOLE_BYTES_MAX`] is an error.
    fn get(&self, name: &str) -> Result<Vec<u8>>;

    /// Fill `buf` from `offset`. [`Kind::Missing`] if there is no such object, [`Kind::Truncated`] if it ends before
    /// `offset + buf.len()`, even when `buf` is empty.
    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Whether some objects may be in cold storage, as far as that is known without asking.
    fn freezes(&self) -> bool {
        false
    }

    /// See to it that an object that may be in cold storage can be read for some days. Asking again does no harm and
    /// costs little: so one finds out whether it is there. [`Kind::Missing`] if there is no such object.
    fn thaw(&self, name: &str, haste: Haste) -> Result<Thaw> {
        let _ = (name, haste);
        Ok(Thaw::Ready)
    }

    /// Keep an object from being removed for as long as the user has asked for, from now on, where the storage does
    /// that. An object that isn't there is no error.
    fn retain(&self, name: &str) -> Result<()> {
        let _ = name;
        Ok(())
    }

    /// Whether the user has asked for retention ([`Store::retain`]).
    fn retains(&self) -> bool {
        false
    }

    /// Whether the user has asked for retention, and an object that is there has less than half of that time left; or
    /// more than all of it, so that the time left doesn't tell when it began.
    fn retention_ends_soon(&self, name: &str) -> Result<bool> {
        let _ = name;
        Ok(false)
    }

    /// A hint that this will be asked for soon. A store that is far away may ask its server for it now; then the next
    /// answer may be what was true at the time of the hint. Or it may write the bytes now, without their name. A hint
    /// that nobody makes use of costs some room.
    fn expect(&self, soon: Soon<'_>) {
        let _ = soon;
    }

    /// Write a small object (up to a few MiB) whole and durably.
    fn put(&self, name: &str, bytes: &[u8], how: Put) -> Result<()>;

    /// [`Store::put`] a new object ([`Put::Create`]), and look at these once it is durable, one after the other. A
    /// storage far away is asked along with the put where it can be held to that order; what was seen is given out
    /// once, by [`Store::list`], [`Store::list_in_order`] and [`Store::len`], until something else is put, removed or
    /// uploaded here. Elsewhere they are passed over, and asked for when they are wanted.
    fn put_and_look(&self, name: &str, bytes: &[u8], looks: &[Look<'_>]) -> Result<()> {
        let _ = looks;
        self.put(name, bytes, Put::Create)
    }

    /// Begin a large object that is written in order. It appears when [`Upload::finish`] is called; dropped before, it
    /// leaves nothing. `len_hint` is the expected length in bytes, 0 if unknown; a wrong one costs time, nothing else.
    fn upload(&self, name: &str, len_hint: u64) -> Result<Box<dyn Upload>>;

    /// Make every object that was finished, and every removal that returned, before this call durable.
    fn sync(&self) -> Result<()>;

    /// Remove an object; removing one that is not there is no error. The removal is durable after [`Store::sync`].
    fn delete(&self, name: &str) -> Result<()>;

    /// Remove what writers that are gone left unfinished, where the storage doesn't do so by itself. It has no name
    /// that anybody could see, and takes room. Whatever somebody may still be writing stays.
    fn clear_unfinished(&self) -> Result<Cleared> {
        Ok(Cleared::default())
    }
}

/// An object being written. See [`Store::upload`].
pub trait Upload: Send {
    /// Append bytes. Implementations may write in the background; an error may surface at a later call. After an error
    /// every further call fails, so that nobody goes on after a gap.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;

    /// Give the object its name, as [`Put::Create`] does: [`Kind::Exists`] if the name is taken, and what has it stays
    /// as it is. Readers find the object once this returns. Its durability is [`Store::sync`]'s to promise.
    fn finish(self: Box<Self>) -> Result<()>;
}
