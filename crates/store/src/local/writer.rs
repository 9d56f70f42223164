//! The writer: one thread a store that writes the data of uploads, past the page cache where the file system lets it.
//!
//! An upload copies its bytes into an aligned buffer; a full buffer goes to the thread, and comes back when it is
//! written. There are [`BUFFERS`] of them in all, and waiting for a free one is what holds a fast producer back.
//!
//! An upload keeps a half-filled buffer between its writes, so an upload has to hold a *seat* to take buffers at all,
//! and there are as many seats as buffers: whoever waits for a buffer holds none, so the others hold at most
//! `BUFFERS - 1`, and the one that is left is free or on its way back. An upload that finds no seat writes by itself,
//! through the page cache.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, Result};

/// How many buffers there are in all: enough that nobody waits while a disk takes a breath (20 % of the time to write
/// 8 GiB with three of twice the length).
pub(super) const BUFFERS: usize = 8;

/// The length of a buffer.
pub(super) const BUFFER_BYTES: usize = 1 << 20;

/// Direct writes begin and end at multiples of this, in memory and in the file.
pub(super) const BLOCK_BYTES: usize = 4096;

/// Written data is pushed towards the disk in steps of this, where it goes through the page cache.
const PUSH_BYTES: u64 = 4 << 20;

/// An aligned piece of memory.
pub(super) struct Buffer {
    /// Empty until first needed. Never grows after that, so it never moves.
    memory: Vec<u8>,
    start: usize,
    filled: usize,
}

impl Buffer {
    fn new() -> Self {
        Self { memory: Vec::new(), start: 0, filled: 0 }
    }

    /// Make sure of the memory, and begin anew.
    fn reset(&mut self) {
        if self.memory.is_empty() {
            self.memory = vec![0; BUFFER_BYTES + BLOCK_BYTES];
            self.start = self.memory.as_ptr().align_offset(BLOCK_BYTES).min(BLOCK_BYTES);
        }
        self.filled = 0;
    }

    /// Take in as many of `bytes` as there is room for; the rest is given back.
    pub(super) fn fill<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (now, rest) = bytes.split_at(bytes.len().min(BUFFER_BYTES - self.filled));
        let at = self.start + self.filled;
        self.memory[at..at + now.len()].copy_from_slice(now);
        self.filled += now.len();
        rest
    }

    pub(super) fn filled(&self) -> usize {
        self.filled
    }

    pub(super) fn is_full(&self) -> bool {
        self.filled == BUFFER_BYTES
    }

    /// The bytes, with zeros up to a whole block.
    fn padded(&mut self) -> &[u8] {
        let end = self.filled.next_multiple_of(BLOCK_BYTES);
        self.memory[self.start + self.filled..self.start + end].fill(0);
        &self.memory[self.start..self.start + end]
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.filled]
    }
}

/// A file that is written in order, by the thread or by its owner.
pub(super) struct Output {
    file: File,
    /// Whether the file takes direct writes; cleared when it turns out not to.
    direct: AtomicBool,
    /// Nobody wants it any more: what is still on its way needn't be written.
    abandoned: AtomicBool,
    progress: Mutex<Progress>,
    changed: Condvar,
}

#[derive(Default)]
struct Progress {
    /// Buffers on their way.
    pending: usize,
    /// The first failure; nothing is written after it.
    failed: Option<Errno>,
    /// How far the data has been pushed towards the disk.
    pushed: u64,
}

impl Output {
    pub(super) fn new(file: File, direct: bool) -> Self {
        Self {
            file,
            direct: AtomicBool::new(direct),
            abandoned: AtomicBool::new(false),
            progress: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// The first failure so far.
    pub(super) fn check(&self) -> Result<()> {
        self.progress().failed.map_or(Ok(()), Err)
    }

    /// Wait until no buffer is on its way.
    pub(super) fn wait(&self) -> Result<()> {
        let waiting = |progress: &mut Progress| progress.pending > 0;
        let progress = self.changed.wait_while(self.progress(), waiting).unwrap_or_else(PoisonError::into_inner);
        progress.failed.map_or(Ok(()), Err)
    }

    pub(super) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    /// Write `bytes` at `offset` through the page cache, and see that the disk begins to take them.
    pub(super) fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.check()?;
        let result = write_all(&self.file, bytes, offset).map(|()| self.push(offset + bytes.len() as u64));
        self.note(result)
    }

    fn write_buffer(&self, buffer: &mut Buffer, offset: u64) -> Result<()> {
        if self.abandoned.load(Ordering::Relaxed) {
            return Ok(());
        }
        if !self.direct.load(Ordering::Relaxed) {
            return self.write(buffer.bytes(), offset);
        }
        self.check()?;
        match write_all(&self.file, buffer.padded(), offset) {
            // This file system took the flag and not the write, or wrote a part that ends within a block.
            Err(Errno::INVAL) => {
                self.go_buffered()?;
                self.write(buffer.bytes(), offset)
            }
            result => self.note(result),
        }
    }

    fn go_buffered(&self) -> Result<()> {
        let flags = fcntl_getfl(&self.file).and_then(|flags| fcntl_setfl(&self.file, flags - OFlags::DIRECT));
        self.direct.store(false, Ordering::Relaxed);
        self.note(flags)
    }

    fn note(&self, result: Result<()>) -> Result<()> {
        if let Err(errno) = result {
            self.progress().failed.get_or_insert(errno);
        }
        result
    }

    /// Have the kernel begin to write back what has been written up to `end`, in steps: left to itself it lets data
    /// pile up, and a sync at the end then takes several times as long.
    fn push(&self, end: u64) {
        let mut progress = self.progress();
        let from = progress.pushed;
        if end.saturating_sub(from) < PUSH_BYTES {
            return;
        }
        progress.pushed = end;
        drop(progress);
        if let (Ok(from), Ok(len)) = (i64::try_from(from), i64::try_from(end - from)) {
            // SAFETY: takes a descriptor, which `self.file` keeps open, and numbers; touches no memory of ours.
            // Only a hint: a failure to write back is kept by the kernel, and told by the fdatasync at the end.
            unsafe { libc::sync_file_range(self.file.as_raw_fd(), from, len, libc::SYNC_FILE_RANGE_WRITE) };
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn write_all(file: &File, bytes: &[u8], offset: u64) -> Result<()> {
    file.write_all_at(bytes, offset).map_err(|error| match error.kind() {
        // A write of nothing without an error: what is known to do that is a full device.
        io::ErrorKind::WriteZero => Errno::NOSPC,
        _ => Errno::from_io_error(&error).unwrap_or(Errno::IO),
    })
}

struct Job {
    output: Arc<Output>,
    buffer: Buffer,
    offset: u64,
}

/// The thread, its buffers and its seats.
pub(super) struct Writer {
    /// `None` only while it is being dropped.
    jobs: Option<Sender<Job>>,
    free: Receiver<Buffer>,
    seats: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

/// The right to take buffers; returned when dropped.
pub(super) struct Seat {
    seats: Arc<AtomicUsize>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.fetch_add(1, Ordering::Relaxed);
    }
}

impl Writer {
    /// Start the thread.
    pub(super) fn start() -> io::Result<Self> {
        let (jobs, incoming) = bounded::<Job>(BUFFERS);
        let (give_back, free) = bounded(BUFFERS);
        for _ in 0..BUFFERS {
            // There is room for all of them, so this neither waits nor fails.
            let _ = give_back.send(Buffer::new());
        }
        let thread = thread::Builder::new().name("store-writer".to_owned()).spawn(move || {
            for Job { output, mut buffer, offset } in incoming {
                // A failure is kept in the output, for the upload to find.
                let _ = output.write_buffer(&mut buffer, offset);
                let _ = give_back.send(buffer);
                output.progress().pending -= 1;
                output.changed.notify_all();
            }
        })?;
        Ok(Self { jobs: Some(jobs), free, seats: Arc::new(AtomicUsize::new(BUFFERS)), thread: Some(thread) })
    }

    /// A seat, if one is free.
    pub(super) fn seat(&self) -> Option<Seat> {
        self.seats.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |seats| seats.checked_sub(1)).ok()?;
        Some(Seat { seats: Arc::clone(&self.seats) })
    }

    /// An empty buffer; waits for one. The caller must hold a seat and no buffer.
    pub(super) fn buffer(&self, _seat: &Seat) -> Result<Buffer> {
        // The thread ends before the store only if it panicked.
        let mut buffer = self.free.recv().map_err(|_| Errno::IO)?;
        buffer.reset();
        Ok(buffer)
    }

    /// Have `buffer` written at `offset`, a multiple of [`BLOCK_BYTES`]. All but the last buffer of a file are full.
    pub(super) fn submit(&self, output: &Arc<Output>, buffer: Buffer, offset: u64) -> Result<()> {
        output.progress().pending += 1;
        let job = Job { output: Arc::clone(output), buffer, offset };
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        if !sent {
            output.progress().pending -= 1;
        }
        if sent { Ok(()) } else { Err(Errno::IO) }
    }

    /// Take back a buffer that was not submitted.
    pub(super) fn discard(&self, output: &Arc<Output>, buffer: Buffer) {
        // By way of the thread, which has the other end of the channel of free buffers.
        output.abandon();
        let _ = self.submit(output, buffer, 0);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // It ends when it has written what it had; if it panicked, every upload was told.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::OpenOptionsExt;

    /// An offset within a block stands for whatever makes a file system turn a direct write down.
    #[test]
    fn a_direct_write_that_is_turned_down_goes_through_the_page_cache() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let mut options = File::options();
        options.read(true).write(true).create_new(true).custom_flags(OFlags::DIRECT.bits().cast_signed());
        let Ok(file) = options.open(&path) else {
            return eprintln!("skipped: no direct writes on {}", dir.path().display());
        };
        let output = Output::new(file, true);
        let mut buffer = Buffer::new();
        buffer.reset();
        buffer.fill(&[7; 5000]);
        output.write_buffer(&mut buffer, 1).unwrap();
        output.check().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), [&[0][..], &[7; 5000]].concat());
        assert!(!output.direct.load(Ordering::Relaxed));
    }

    #[test]
    fn after_a_failure_nothing_more_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, b"").unwrap();
        let writer = Writer::start().unwrap();
        let seat = writer.seat().unwrap();
        // Opened for reading only, so that writes fail.
        let output = Arc::new(Output::new(File::open(&path).unwrap(), false));
        for round in 0..2 * BUFFERS as u64 {
            let mut buffer = writer.buffer(&seat).unwrap();
            buffer.fill(b"1");
            writer.submit(&output, buffer, round * BLOCK_BYTES as u64).unwrap();
        }
        assert_eq!(output.wait().unwrap_err(), Errno::BADF);
        assert_eq!(output.check().unwrap_err(), Errno::BADF);
        assert_eq!(writer.free.len(), BUFFERS, "every buffer came back");
    }

    #[test]
    fn seats_run_out_and_come_back() {
        let writer = Writer::start().unwrap();
        let seats: Vec<_> = (0..BUFFERS).map(|_| writer.seat().unwrap()).collect();
        assert!(writer.seat().is_none());
        drop(seats);
        assert!(writer.seat().is_some());
    }
}
