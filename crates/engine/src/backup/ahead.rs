//! Small files read ahead of a worker, where the file system answers late.
//!
//! Of a disk at hand a file is opened in microseconds, and a worker does so one file after the other, straight into a
//! block. On a cluster's file system, or a cold disk, most of its time would go by in waiting: there all small files of
//! a batch are opened and read by many threads first, and directories and symlinks asked for what there is of them.
//! What can't be read so is left to the worker, which tells why.

use super::job::Entry;
use super::racy::mapped;
use super::worker::is_sparse;
use crate::latency::{Latency, THREADS};
use drumlin_host::meta::{Kind, Stat};
use drumlin_host::read::{self, Had};
use std::io::Read;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Larger files are read by the worker.
const BYTES_MAX: u64 = 256 << 10;

/// What was read of an entry.
pub(super) enum Ahead {
    File(Found),
    /// What there is of something else, and when that was.
    Other(std::io::Result<Had>, SystemTime),
}

/// What was read of a file that is as the walk has seen it. It isn't held open: a worker may be long in coming to it.
pub(super) struct Found {
    /// All of its bytes.
    pub bytes: Vec<u8>,
    pub had: Had,
    /// When that was, not when the worker comes to it: a change since then may bear the time of the one before.
    pub at: SystemTime,
    /// [`mapped`], then.
    pub mapped: u8,
}

/// Whether an entry is read ahead. What has several names is often known already; devices and the like are hardly ever
/// many.
fn is_wanted(entry: &Entry) -> bool {
    let stat = &entry.stat;
    match stat.kind {
        Kind::File => stat.nlink <= 1 && stat.size <= BYTES_MAX,
        Kind::Dir | Kind::Symlink => true,
        _ => false,
    }
}

fn read_one(entry: &Entry) -> Option<(Ahead, Duration)> {
    let (start, at) = (Instant::now(), SystemTime::now());
    if entry.stat.kind != Kind::File {
        let had = entry.dir.extras(&entry.name, entry.stat.kind);
        return Some((Ahead::Other(had, at), start.elapsed()));
    }
    let file = entry.dir.open_file(&entry.name).ok()?;
    let took = start.elapsed();
    if is_sparse(&entry.stat, &file) || entry.stat.size == 0 && !read::knows_its_length(&file) {
        return None;
    }
    let mapped = mapped(&file, &entry.stat);
    let mut bytes = Vec::with_capacity(entry.stat.size as usize);
    (&file).take(entry.stat.size).read_to_end(&mut bytes).ok()?;
    let (after, had) = (read::restat(&file).ok()?, read::extras_of_fd(&file));
    let state = |stat: &Stat| (stat.kind, stat.size, stat.mtime, stat.ctime);
    let is_same = bytes.len() as u64 == entry.stat.size && state(&after) == state(&entry.stat);
    is_same.then_some((Ahead::File(Found { bytes, had, at, mapped }), took))
}

/// Read what can be of a batch, by many threads. Gives what was read, by the places of the entries.
pub(super) fn read(entries: &[Entry], latency: &mut Latency) -> Vec<Option<Ahead>> {
    let wanted: Vec<usize> = (0..entries.len()).filter(|at| is_wanted(&entries[*at])).collect();
    let slots: Vec<OnceLock<(Ahead, Duration)>> = entries.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(at) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Some(read) = read_one(&entries[*at]) {
                let _ = slots[*at].set(read);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..THREADS.min(wanted.len()) {
            // Where no more threads can be had those that are there do the work.
            if std::thread::Builder::new().name("ahead".into()).spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    let read = slots.into_iter().map(|slot| {
        let (ahead, took) = slot.into_inner()?;
        latency.note(1, took);
        Some(ahead)
    });
    read.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_host::filter::Filter;
    use drumlin_host::walk::{Options, Walk};
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;
    use std::sync::Arc;

    /// What a walk finds in a folder.
    fn entries(folder: &Path) -> Vec<Entry> {
        let options = Options { sources: vec![folder.as_os_str().as_bytes().to_vec()], ..Options::default() };
        let mut found = Vec::new();
        for listing in Walk::start(options, Arc::new(Filter::none())).unwrap() {
            if listing.path() != &folder.as_os_str().as_bytes()[1..] {
                continue;
            }
            for entry in listing.iter() {
                found.push(Entry {
                    dir: listing.dir().clone(),
                    key: Arc::from(&b""[..]),
                    name: entry.name.into(),
                    stat: *entry.stat,
                    filesystem: 0,
                    known: false,
                    old: None,
                });
            }
        }
        found
    }

    #[test]
    fn small_files_are_read_and_the_rest_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let content = |n: usize| vec![n as u8; n * 37];
        (0..40).for_each(|n| std::fs::write(at(&format!("f{n:02}")), content(n)).unwrap());
        std::fs::write(at("large"), vec![1; BYTES_MAX as usize + 1]).unwrap();
        std::fs::create_dir(at("dir")).unwrap();
        std::os::unix::fs::symlink("f00", at("symlink")).unwrap();
        std::fs::write(at("one name"), b"x").unwrap();
        std::fs::hard_link(at("one name"), at("another")).unwrap();
        let found = entries(folder.path());
        assert_eq!(found.len(), 45);
        // Between the walk and the reading things happen.
        std::fs::remove_file(at("f07")).unwrap();
        std::fs::write(at("f08"), content(9)).unwrap();
        std::fs::write(at("f09"), b"").unwrap();
        let (mut latency, before) = (Latency::new(Duration::ZERO), SystemTime::now());
        let read = read(&found, &mut latency);
        for (entry, read) in found.iter().zip(read) {
            let name = std::str::from_utf8(&entry.name).unwrap();
            let n = name.strip_prefix('f').and_then(|n| n.parse::<usize>().ok()).filter(|n| *n != 7);
            let Found { bytes, had, at, .. } = match (n, read) {
                // What has changed since the walk is left to the worker.
                (Some(8 | 9), None) => continue,
                (Some(_), Some(Ahead::File(found))) => found,
                (None, Some(Ahead::Other(had, at))) => {
                    assert!(name == "dir" || had.unwrap().extras.target == b"f00" && name == "symlink");
                    assert!(before <= at && at <= SystemTime::now());
                    continue;
                }
                (n, read) => {
                    assert!(n.is_none() && read.is_none(), "{name}");
                    continue;
                }
            };
            assert!(bytes == content(n.unwrap()), "{name}");
            assert!(had.extras.target.is_empty() && had.lost.is_none());
            assert!(before <= at && at <= SystemTime::now());
        }
        latency.settle();
        assert!(latency.is_late(), "what was read is counted");
    }
}
