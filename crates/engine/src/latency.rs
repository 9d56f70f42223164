//! Whether a file system answers late, so that a worker would spend its time waiting: then many threads wait in its
//! place.

use std::time::Duration;

/// What is waited for, and no work: of a disk at hand a file is opened in some 5 µs, from a cold one in some 100.
pub const LATE: Duration = Duration::from_micros(500);
/// So many tell.
const FILES_TOLD: u32 = 8;
/// Threads that wait in the place of one worker.
pub(crate) const THREADS: usize = 32;

/// What opening or making files took of late.
pub(crate) struct Latency {
    /// What is too long.
    late: Duration,
    files: u32,
    took: Duration,
    is_late: bool,
}

impl Latency {
    pub fn new(late: Duration) -> Self {
        Latency { late, files: 0, took: Duration::ZERO, is_late: false }
    }

    /// So many files were opened, or made, in so long.
    pub fn note(&mut self, files: u32, took: Duration) {
        self.files += files;
        self.took += took;
    }

    /// What another one has noted, too.
    pub fn join(&mut self, other: &Latency) {
        self.note(other.files, other.took);
    }

    /// A batch is over: the next one begins with what this one has shown.
    pub fn settle(&mut self) {
        if self.files > 0 {
            self.is_late = self.took > self.late * self.files;
            (self.files, self.took) = (0, Duration::ZERO);
        }
    }

    /// Whether what comes next is to be done by many threads.
    pub fn is_late(&self) -> bool {
        self.is_late || self.files >= FILES_TOLD && self.took > self.late * self.files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_is_what_took_long_of_late() {
        let mut latency = Latency::new(LATE);
        latency.settle();
        assert!(!latency.is_late());
        // One that took long tells nothing of the next in the same batch.
        latency.note(1, LATE * 30);
        assert!(!latency.is_late());
        latency.note(FILES_TOLD - 1, Duration::ZERO);
        assert!(latency.is_late());
        latency.settle();
        assert!(latency.is_late());
        // A batch without files tells nothing.
        latency.settle();
        assert!(latency.is_late());
        latency.note(10, LATE);
        latency.settle();
        assert!(!latency.is_late());
    }
}
