//! How an operation tells what it does, and hears that it shall end.

use std::sync::atomic::{AtomicU64, Ordering};

/// Watches an operation. Called from several threads.
pub trait Monitor: Send + Sync {
    /// The numbers that the operation keeps up to date.
    fn counters(&self) -> &Counters;

    /// Something went wrong with one entry; the operation goes on.
    fn problem(&self, problem: &Problem);

    /// Whether [`Monitor::entry`] wants to hear of each entry.
    fn wants_entries(&self) -> bool {
        false
    }

    /// What became of an entry.
    fn entry(&self, _change: Change, _path: &[u8]) {}

    /// The operation has begun to wait for somebody: `whom` is part of a sentence.
    fn waits(&self, _whom: &str) {}

    /// Whether the operation shall end as soon as it can, keeping what it has.
    fn stop(&self) -> bool {
        false
    }
}

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was not there before.
    New,
    /// It was there, and differs.
    Changed,
    /// It is as before.
    Unmodified,
    /// It is there no more.
    Removed,
    /// It was written by a restore.
    Restored,
    /// It was right already.
    Kept,
    /// It was deleted by a restore.
    Deleted,
}

/// What kind of trouble an entry gave: the kinds are counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// It could not be read.
    Unreadable,
    /// It changed while it was read; what was read is kept.
    ChangedWhileRead,
    /// It vanished before it could be read.
    Vanished,
    /// Its contents in the repository are damaged or missing.
    Damaged,
    /// It could not be written.
    Unwritable,
    /// It was written, but some attribute of it could not be set.
    Attribute,
}

/// Trouble with one entry.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Absolute path in the source or in the target.
    pub path: Vec<u8>,
    /// The kind of trouble.
    pub kind: ProblemKind,
    /// The cause, as a person reads it.
    pub cause: String,
}

impl Problem {
    /// Damage of an object of the repository.
    pub(crate) fn damage(name: String, cause: impl Into<String>) -> Self {
        Problem { path: name.into_bytes(), kind: ProblemKind::Damaged, cause: cause.into() }
    }

    /// Tell it; damage is counted, and what could not be written.
    pub(crate) fn tell(&self, monitor: &dyn Monitor) {
        monitor.problem(self);
        match self.kind {
            ProblemKind::Damaged => add(&monitor.counters().damaged, 1),
            ProblemKind::Unwritable => add(&monitor.counters().unwritable, 1),
            _ => {}
        }
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// Numbers that grow while an operation runs; read them at any time.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: AtomicU64,)+
        }

        /// The numbers at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)+
        }

        impl Counters {
            /// The numbers now.
            pub fn get(&self) -> Counts {
                Counts { $($name: self.$name.load(Ordering::Relaxed),)+ }
            }

            /// Begin to count anew.
            pub(crate) fn reset(&self) {
                self.set(&Counts::default());
            }

            /// Go on from these numbers.
            pub(crate) fn set(&self, counts: &Counts) {
                $(self.$name.store(counts.$name, Ordering::Relaxed);)+
            }
        }
    };
}

counters! {
    /// Entries dealt with.
    entries,
    /// Regular files among them.
    files,
    /// Directories among them.
    dirs,
    /// Bytes of file contents that the entries dealt with have.
    bytes,
    /// Entries that were not there before.
    new,
    /// Entries that differ.
    changed,
    /// Entries as before.
    unmodified,
    /// Entries that are gone.
    removed,
    /// Entries that could not be read.
    unreadable,
    /// Sources that were not there, or could not be looked at or listed; they are unreadable, too.
    absent,
    /// Entries that vanished before they could be read.
    vanished,
    /// Files that changed while they were read.
    changed_while_read,
    /// Entries left out by a rule, not counting what is below excluded directories.
    excluded,
    /// Bytes read from sources.
    bytes_read,
    /// Bytes of chunks that the repository didn't have.
    bytes_new,
    /// Chunks that the repository didn't have.
    chunks_new,
    /// Chunks met, known ones included.
    chunks,
    /// Bytes that new chunks take in the repository.
    bytes_stored,
    /// Entries written by a restore.
    restored,
    /// Entries that a restore found right.
    kept,
    /// Entries that a restore deleted.
    deleted,
    /// Bytes written by a restore.
    bytes_written,
    /// Entries that could not be written, or not wholly.
    unwritable,
    /// Attributes that could not be set.
    attributes,
    /// Entries whose contents in the repository are damaged.
    damaged,
    /// Entries expected in all; 0 if unknown.
    expected_entries,
    /// Bytes expected in all; 0 if unknown.
    expected_bytes,
}

/// Add to a counter.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

/// A monitor that keeps the problems, for tests and for callers that want no progress.
#[derive(Debug, Default)]
pub struct Quiet {
    counters: Counters,
    problems: std::sync::Mutex<Vec<Problem>>,
    stop: std::sync::atomic::AtomicBool,
}

impl Quiet {
    /// The problems so far.
    pub fn problems(&self) -> Vec<Problem> {
        self.problems.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Ask the operation to end.
    pub fn request_stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Monitor for Quiet {
    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn problem(&self, problem: &Problem) {
        self.problems.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(problem.clone());
    }

    fn stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
