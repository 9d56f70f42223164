//! Small files of a block written by many threads at once, where the file system answers late.
//!
//! On a disk at hand a small file is made in some 20 µs, most of them the kernel's work, and a worker makes one after
//! the other. On a file system on another machine each file takes several turns over the line, in which nobody works.
//! What a block holds is opened and checked by its worker as everywhere; only making the files is spread.

use super::window::{Use, Window};
use super::worker::Worker;
use crate::latency::THREADS;
use crate::lock::lock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

impl Worker<'_> {
    /// Write these files of one chunk each, with the contents that belong to them.
    pub(super) fn spread(&mut self, window: &Arc<Window>, files: &[(&Use, &[u8])]) {
        if files.is_empty() {
            return;
        }
        let context = self.context;
        let next = AtomicUsize::new(0);
        let told = Mutex::new(&mut self.latency);
        let work = || {
            let mut hand = Worker::hand(context);
            while let Some((used, content)) = files.get(next.fetch_add(1, Ordering::Relaxed))
                && !context.ended()
            {
                hand.write(window, used, content);
            }
            lock(&told).join(&hand.latency);
        };
        // Each holds a directory and a file open.
        let threads = THREADS.min(context.room.dirs).min(files.len());
        std::thread::scope(|scope| {
            for _ in 1..threads {
                // Where no more threads can be had those that are there do the work.
                if std::thread::Builder::new().name("spread".into()).spawn_scoped(scope, work).is_err() {
                    break;
                }
            }
            work();
        });
    }
}
