//! The writer: one thread a store that writes the data of uploads, past the page cache where the file system lets it.
//!
//! An upload copies its bytes into an aligned buffer; a full buffer goes to the thread, and comes back when it is
//! written. There are [`BUFFERS`] of them in all, and waiting for a free one is what holds a fast producer back. What
//! has piled up while the disk was busy goes out in one call, so that a disk which has to come back to its place
//! between others' requests does so the less often the more it is behind.
//!
//! An upload keeps a half-filled buffer between its writes, so an upload has to hold a *seat* to take buffers at all,
//! and there are as many seats as buffers: whoever waits for a buffer holds none, so the others hold at most
//! `BUFFERS - 1`, and the one that is left is unused, free or on its way back. An upload that finds no seat writes by
//! itself, through the page cache.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, Result, pwritev, retry_on_intr};

/// How many buffers there are in all: enough that nobody waits while a disk takes a breath (20 % of the time to write
/// 8 GiB with three of twice the length).
pub(super) const BUFFERS: usize = 8;

/// The length of a buffer.
pub(super) const BUFFER_BYTES: usize = 1 << 20;

/// So many buffers go out in one call at most: the others are filled meanwhile.
const TOGETHER: usize = BUFFERS / 2;

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

    /// Put zeros behind the bytes, up to a whole block.
    fn pad(&mut self) {
        let end = self.filled.next_multiple_of(BLOCK_BYTES);
        self.memory[self.start + self.filled..self.start + end].fill(0);
    }

    /// The bytes, up to a whole block.
    fn blocks(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.filled.next_multiple_of(BLOCK_BYTES)]
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
        let written = self.file.write_all_at(bytes, offset).map_err(|error| match error.kind() {
            // As below.
            io::ErrorKind::WriteZero => Errno::NOSPC,
            _ => Errno::from_io_error(&error).unwrap_or(Errno::IO),
        });
        self.note(written.map(|()| self.push(offset + bytes.len() as u64)))
    }

    /// Write buffers that follow each other from `offset` on, of which all but the last are full.
    fn write_buffers(&self, buffers: &mut [Buffer], offset: u64) -> Result<()> {
        if self.abandoned.load(Ordering::Relaxed) {
            return Ok(());
        }
        if self.direct.load(Ordering::Relaxed) {
            self.check()?;
            buffers.iter_mut().for_each(Buffer::pad);
            match write_all(&self.file, buffers, offset) {
                // This file system took the flag and not the write, or wrote a part that ends within a block.
                Err(Errno::INVAL) => self.go_buffered()?,
                result => return self.note(result),
            }
        }
        let mut offset = offset;
        for buffer in buffers {
            self.write(buffer.bytes(), offset)?;
            offset += buffer.filled() as u64;
        }
        Ok(())
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

/// Write the blocks of buffers from `offset` on, with as few calls as the system takes.
fn write_all(file: &File, buffers: &[Buffer], mut offset: u64) -> Result<()> {
    let mut slices: Vec<IoSlice<'_>> = buffers.iter().map(|buffer| IoSlice::new(buffer.blocks())).collect();
    let mut rest = &mut slices[..];
    while !rest.is_empty() {
        match retry_on_intr(|| pwritev(file, rest, offset))? {
            // A write of nothing without an error: what is known to do that is a full device.
            0 => return Err(Errno::NOSPC),
            written => {
                offset += written as u64;
                IoSlice::advance_slices(&mut rest, written);
            }
        }
    }
    Ok(())
}

struct Job {
    output: Arc<Output>,
    buffer: Buffer,
    offset: u64,
}

/// Buffers that go out in one call.
struct Batch {
    output: Arc<Output>,
    buffers: Vec<Buffer>,
    /// Where the first of them belongs.
    offset: u64,
}

impl Batch {
    fn new(Job { output, buffer, offset }: Job) -> Self {
        Self { output, buffers: vec![buffer], offset }
    }

    /// Take a job that follows on what is there; any other is given back.
    fn take(&mut self, job: Job) -> Option<Job> {
        let end = self.offset + self.buffers.iter().map(|buffer| buffer.filled() as u64).sum::<u64>();
        let follows = Arc::ptr_eq(&self.output, &job.output) && job.offset == end;
        // What isn't full is the last, and padded.
        let is_open = self.buffers.last().is_some_and(Buffer::is_full);
        if !follows || !is_open || self.buffers.len() == TOGETHER {
            return Some(job);
        }
        self.buffers.push(job.buffer);
        None
    }

    /// Write them, and give them back.
    fn write(mut self, free: &Sender<Buffer>) {
        // A failure is kept in the output, for the upload to find.
        let _ = self.output.write_buffers(&mut self.buffers, self.offset);
        let done = self.buffers.len();
        for buffer in self.buffers {
            let _ = free.send(buffer);
        }
        self.output.progress().pending -= done;
        self.output.changed.notify_all();
    }
}

/// Write what comes, and what has piled up meanwhile at once.
fn write_all_that_comes(incoming: &Receiver<Job>, free: &Sender<Buffer>) {
    let mut next = incoming.recv().ok();
    while let Some(job) = next {
        let mut batch = Batch::new(job);
        next = loop {
            match incoming.try_recv() {
                Ok(job) => match batch.take(job) {
                    None => {}
                    other => break other,
                },
                Err(_) => break None,
            }
        };
        batch.write(free);
        next = next.or_else(|| incoming.recv().ok());
    }
}

/// The thread, its buffers and its seats.
pub(super) struct Writer {
    /// `None` only while it is being dropped.
    jobs: Option<Sender<Job>>,
    free: Receiver<Buffer>,
    /// Buffers that nobody has needed so far: while one that came back is free, their memory needn't be touched.
    unused: AtomicUsize,
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
        let thread = thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || write_all_that_comes(&incoming, &give_back))?;
        let (unused, seats) = (AtomicUsize::new(BUFFERS), Arc::new(AtomicUsize::new(BUFFERS)));
        Ok(Self { jobs: Some(jobs), free, unused, seats, thread: Some(thread) })
    }

    /// A seat, if one is free.
    pub(super) fn seat(&self) -> Option<Seat> {
        self.seats.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |seats| seats.checked_sub(1)).ok()?;
        Some(Seat { seats: Arc::clone(&self.seats) })
    }

    /// An empty buffer; waits for one. The caller must hold a seat and no buffer.
    pub(super) fn buffer(&self, _seat: &Seat) -> Result<Buffer> {
        let take = || self.unused.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |unused| unused.checked_sub(1));
        let mut buffer = match self.free.try_recv() {
            Ok(buffer) => buffer,
            Err(TryRecvError::Empty) if take().is_ok() => Buffer::new(),
            // The thread ends before the store only if it panicked.
            Err(_) => self.free.recv().map_err(|_| Errno::IO)?,
        };
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
        output.write_buffers(&mut [buffer], 1).unwrap();
        output.check().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), [&[0][..], &[7; 5000]].concat());
        assert!(!output.direct.load(Ordering::Relaxed));
    }

    /// Of one file those that follow each other, and so many.
    #[test]
    fn what_has_piled_up_goes_out_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let output = |name: &str| Arc::new(Output::new(File::create_new(dir.path().join(name)).unwrap(), true));
        let (a, b) = (output("a"), output("b"));
        let at = |output: &Arc<Output>, offset: u64, byte: u8, len: usize| {
            let mut buffer = Buffer::new();
            buffer.reset();
            buffer.fill(&vec![byte; len]);
            Job { output: output.clone(), buffer, offset }
        };
        let job = |output: &Arc<Output>, n: u64, len: usize| at(output, n * BUFFER_BYTES as u64, n as u8, len);
        let mut batch = Batch::new(job(&a, 0, BUFFER_BYTES));
        assert!(batch.take(job(&b, 1, 10)).is_some(), "another file");
        assert!(batch.take(job(&a, 2, 10)).is_some(), "not what follows");
        (1..TOGETHER as u64).for_each(|n| assert!(batch.take(job(&a, n, BUFFER_BYTES)).is_none()));
        assert!(batch.take(job(&a, TOGETHER as u64, BUFFER_BYTES)).is_some(), "enough");
        let mut short = Batch::new(job(&b, 0, 5000));
        assert!(short.take(at(&b, 5000, 1, 10)).is_some(), "behind one that isn't full");

        let (jobs, incoming) = bounded(BUFFERS + 1);
        let (give_back, free) = bounded(BUFFERS + 1);
        a.progress().pending = BUFFERS;
        b.progress().pending = 1;
        (0..BUFFERS as u64 - 1).for_each(|n| jobs.send(job(&a, n, BUFFER_BYTES)).unwrap());
        jobs.send(job(&b, 0, 5000)).unwrap();
        jobs.send(job(&a, BUFFERS as u64 - 1, 5000)).unwrap();
        drop(jobs);
        write_all_that_comes(&incoming, &give_back);
        assert_eq!(free.len(), BUFFERS + 1);
        a.wait().unwrap();
        b.wait().unwrap();
        let mut is = std::fs::read(dir.path().join("a")).unwrap();
        // It was padded to a whole block.
        is.truncate((BUFFERS - 1) * BUFFER_BYTES + 5000);
        let mut was: Vec<u8> = (0..BUFFERS as u8 - 1).flat_map(|n| vec![n; BUFFER_BYTES]).collect();
        was.extend([BUFFERS as u8 - 1; 5000]);
        assert!(is == was);
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
        assert_eq!(writer.free.len() + writer.unused.load(Ordering::Relaxed), BUFFERS, "every buffer came back");
    }

    #[test]
    fn what_came_back_is_taken_before_more_memory_is() {
        let dir = tempfile::tempdir().unwrap();
        let writer = Writer::start().unwrap();
        let seat = writer.seat().unwrap();
        let output = Arc::new(Output::new(File::create_new(dir.path().join("a")).unwrap(), false));
        for round in 0..2 * BUFFERS as u64 {
            let mut buffer = writer.buffer(&seat).unwrap();
            buffer.fill(&[1; BLOCK_BYTES]);
            writer.submit(&output, buffer, round * BLOCK_BYTES as u64).unwrap();
            output.wait().unwrap();
        }
        assert_eq!(writer.unused.load(Ordering::Relaxed), BUFFERS - 1);
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
