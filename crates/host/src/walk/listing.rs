//! What a walk hands out: the entries of one directory, or of a part of it.
//!
//! Listings of neighbouring directories share one `Batch` of memory, so that a directory of three entries costs no
//! buffer of its own. A batch goes back to the pool with the last listing that refers to it.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;

use crate::dir::Dir;
use crate::meta::Stat;

/// What became of an entry that can't be saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum What {
    /// It was removed, or replaced by another type of file, between being listed and being looked at.
    Vanished,
    /// The system doesn't let this user look.
    Denied,
    /// A path given as a source leads nowhere, or to what can't be looked at or listed.
    NoSource,
    /// Anything else: an I/O error most of all.
    Other,
}

/// One thing that went wrong; the walk went on.
#[derive(Debug)]
pub struct WalkError {
    /// Absolute path, bytes.
    pub path: Vec<u8>,
    /// The kind of failure.
    pub what: What,
    /// What the system said.
    pub source: io::Error,
}

impl std::fmt::Display for WalkError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = String::from_utf8_lossy(&self.path);
        match self.what {
            What::Vanished => write!(f, "{path}: vanished during the walk: {}", self.source),
            What::Denied => write!(f, "{path}: access denied: {}", self.source),
            What::NoSource => write!(f, "{path}: can't be walked as a source: {}", self.source),
            What::Other => write!(f, "{path}: {}", self.source),
        }
    }
}

impl std::error::Error for WalkError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

impl WalkError {
    pub(crate) fn new(path: Vec<u8>, errno: Errno) -> WalkError {
        let what = match errno {
            // ESTALE is none of these: a server that has come back without a file system says it of all that is there.
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP => What::Vanished,
            Errno::ACCESS | Errno::PERM => What::Denied,
            _ => What::Other,
        };
        WalkError { path, what, source: errno.into() }
    }
}

/// What the filter left out of one listing. What lies below an excluded directory was not looked at and is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Excluded {
    /// Entries that are not directories.
    pub files: u64,
    /// Directories, each with all that it holds.
    pub dirs: u64,
    /// Sizes of the regular files among `files`.
    pub bytes: u64,
}

impl Excluded {
    /// Adds another count to this one.
    pub fn add(&mut self, other: &Excluded) {
        self.files += other.files;
        self.dirs += other.dirs;
        self.bytes += other.bytes;
    }
}

/// An entry as a batch keeps it. The name is followed by its NUL.
#[derive(Clone, Copy)]
pub(crate) struct Raw {
    pub(crate) stat: Stat,
    pub(crate) name_at: u32,
    pub(crate) name_len: u32,
}

/// Entries of one or several listings, in the order in which they were looked at, and their proper order.
#[derive(Clone, Default)]
pub(crate) struct Store {
    pub(crate) names: Vec<u8>,
    pub(crate) entries: Vec<Raw>,
    /// Indices of `entries`. A listing is a range of it.
    pub(crate) order: Vec<u32>,
}

/// A state of a store to go back to.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    names: usize,
    pub(crate) entries: usize,
    pub(crate) order: usize,
}

impl Store {
    pub(crate) fn bytes(&self) -> usize {
        self.names.len() + self.entries.len() * size_of::<Raw>() + self.order.len() * size_of::<u32>()
    }

    fn capacity(&self) -> usize {
        self.names.capacity() + self.entries.capacity() * size_of::<Raw>() + self.order.capacity() * size_of::<u32>()
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark { names: self.names.len(), entries: self.entries.len(), order: self.order.len() }
    }

    pub(crate) fn back_to(&mut self, mark: Mark) {
        self.names.truncate(mark.names);
        self.entries.truncate(mark.entries);
        self.order.truncate(mark.order);
    }

    fn clear(&mut self) {
        self.names.clear();
        self.entries.clear();
        self.order.clear();
    }
}

/// Buffers that wait to be used again.
#[derive(Default)]
pub(crate) struct Pool {
    free: Mutex<Vec<Store>>,
}

impl Pool {
    /// Buffers kept at most, and the sizes worth keeping.
    const FREE_MAX: usize = 16;
    const BYTES_MIN: usize = 32 << 10;
    const BYTES_MAX: usize = 768 << 10;

    fn get(&self) -> Store {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    fn put(&self, mut store: Store) {
        if !(Self::BYTES_MIN..=Self::BYTES_MAX).contains(&store.capacity()) {
            return;
        }
        store.clear();
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < Self::FREE_MAX {
            free.push(store);
        }
    }
}

pub(crate) struct Batch {
    store: Store,
    pool: Arc<Pool>,
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.pool.put(std::mem::take(&mut self.store));
    }
}

impl Batch {
    /// Makes the contents of `store` shareable and leaves an empty store behind. A little in a large buffer is copied
    /// out of it, so that waiting listings hold no more memory than they fill.
    pub(crate) fn seal(store: &mut Store, pool: &Arc<Pool>) -> Batch {
        let sealed = if store.bytes() * 4 < store.capacity() {
            let copy = store.clone();
            store.clear();
            copy
        } else {
            std::mem::replace(store, pool.get())
        };
        Batch { store: sealed, pool: Arc::clone(pool) }
    }
}

/// A listing without its memory.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) dir: Arc<Dir>,
    pub(crate) start: u32,
    pub(crate) end: u32,
    pub(crate) first: bool,
    pub(crate) last: bool,
    pub(crate) complete: bool,
    pub(crate) vanished: u64,
    pub(crate) excluded: Excluded,
    pub(crate) errors: Vec<WalkError>,
    pub(crate) passed_by: Vec<Vec<u8>>,
}

/// Listings that follow one another in tree order.
pub(crate) struct Run {
    pub(crate) batch: Arc<Batch>,
    pub(crate) parts: std::vec::IntoIter<Part>,
    pub(crate) bytes: usize,
}

impl Iterator for Run {
    type Item = Listing;

    fn next(&mut self) -> Option<Listing> {
        let part = self.parts.next()?;
        Some(Listing { batch: Arc::clone(&self.batch), part })
    }
}

/// The entries of a directory in the order of their names, or one of several parts of them in that order.
///
/// Files are opened later through [`Listing::dir`]; drop what isn't needed, it holds memory and often a descriptor.
pub struct Listing {
    batch: Arc<Batch>,
    part: Part,
}

/// One entry of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Name within the directory: bytes, no slash, no NUL.
    pub name: &'a [u8],
    /// What `statx` said.
    pub stat: &'a Stat,
}

impl Listing {
    /// The directory. Its path has its components joined by `/`; [`Dir::key`] gives the key of the tree order.
    pub fn dir(&self) -> &Arc<Dir> {
        &self.part.dir
    }

    /// Path of the directory: components joined by `/`, no leading slash, empty for the root.
    pub fn path(&self) -> &[u8] {
        self.part.dir.path()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        (self.part.end - self.part.start) as usize
    }

    /// Whether there is no entry; such listings come for empty directories and for those that could not be read.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn order(&self) -> &[u32] {
        &self.batch.store.order[self.part.start as usize..self.part.end as usize]
    }

    fn view(&self, index: u32) -> Entry<'_> {
        let store = &self.batch.store;
        let raw = &store.entries[index as usize];
        let at = raw.name_at as usize;
        Entry { name: &store.names[at..at + raw.name_len as usize], stat: &raw.stat }
    }

    /// The entry at `index`, if there are so many.
    pub fn get(&self, index: usize) -> Option<Entry<'_>> {
        self.order().get(index).map(|&index| self.view(index))
    }

    /// All entries, names ascending bytewise.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Entry<'_>> {
        self.order().iter().map(|&index| self.view(index))
    }

    /// Whether this is the first (or only) part of the directory.
    pub fn is_first(&self) -> bool {
        self.part.first
    }

    /// Whether this is the last (or only) part of the directory.
    pub fn is_last(&self) -> bool {
        self.part.last
    }

    /// False where the directory, or the rest of it, could not be listed: what is absent here may still exist. The same
    /// holds for each path in [`Listing::errors`].
    pub fn is_complete(&self) -> bool {
        self.part.complete
    }

    /// Entries that were removed between being listed and being looked at. They are not errors.
    pub fn vanished(&self) -> u64 {
        self.part.vanished
    }

    /// What the filter left out.
    pub fn excluded(&self) -> &Excluded {
        &self.part.excluded
    }

    /// What could not be looked at.
    pub fn errors(&self) -> &[WalkError] {
        &self.part.errors
    }

    /// Takes out the directories in it that were not looked into, as they are on other file systems: absolute paths.
    pub fn take_passed_by(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.part.passed_by)
    }

    /// Takes the errors out.
    pub fn take_errors(&mut self) -> Vec<WalkError> {
        std::mem::take(&mut self.part.errors)
    }
}

impl std::fmt::Debug for Listing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listing").field("part", &self.part).finish_non_exhaustive()
    }
}
