//! Listing one directory, from its open descriptor to a part of a run and the work that follows from it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::dir::{Dir, DirFd};
use crate::sys::{self, Follow};

use super::Shared;
use super::listing::{Mark, Part, Store, WalkError, What};
use super::names::{self, Filled, Key, RAW_BYTES, RAW_SLACK};
use super::pending::{Flat, FlatBuilder, FlatNames, Group, Heritage, Kids, Pending, Span, Tail, groups};
use super::scan::{Found, Scene, Tally};
use super::worker::{RUN_TIME, Worker};

/// How often the clock is read, in entries.
const CHECK_ENTRIES: usize = 16;
/// Entries that take longer than this on average are shared out among workers.
pub(super) const SLOW_ENTRY: Duration = Duration::from_micros(60);
/// Entries after which it is worth sharing out the rest.
const SLOW_ENTRIES_MIN: usize = 4;

/// From how many entries on they are looked at in the order of their inodes. On a cold disk that saves a third of the
/// time; below, they mostly share a block anyway.
const INODE_ORDER_MIN: usize = 24;

/// Where a part stands in its directory.
#[derive(Clone, Copy)]
struct Place {
    first: bool,
    last: bool,
    complete: bool,
}

/// The only part, and all of it.
const ALONE: Place = Place { first: true, last: true, complete: true };

impl Place {
    fn failed(self) -> Place {
        Place { complete: false, ..self }
    }
}

/// How a directory is handed to all workers.
struct Sharing {
    names: FlatNames,
    only: Option<u32>,
    place: Place,
}

/// Notices entries that take long, reading the clock seldom while they don't.
struct Pace {
    began: Instant,
    slow: bool,
}

impl Pace {
    /// Whether what was done so far took long enough to let others help.
    #[inline]
    fn is_slow(&mut self, done: usize) -> bool {
        if done % CHECK_ENTRIES != SLOW_ENTRIES_MIN && !(self.slow && done > 0) {
            return false;
        }
        let took = self.began.elapsed();
        self.slow = took > SLOW_ENTRY * done as u32;
        self.slow && took > RUN_TIME && done >= SLOW_ENTRIES_MIN
    }

    fn entry_ns(&self, done: usize) -> u64 {
        self.began.elapsed().as_nanos() as u64 / done.max(1) as u64
    }
}

/// What looking at each entry of a directory brought, by its rank; and scratch for the order of looking.
#[derive(Default)]
pub(super) struct Survey {
    order: Vec<(u64, u32)>,
    /// What it is, and where it stands in the store.
    found: Vec<(Found, u32)>,
}

/// Where `Survey::look` puts what it finds.
struct Sink<'a> {
    store: &'a mut Store,
    tally: &'a mut Tally,
    path: &'a mut Vec<u8>,
}

impl Survey {
    /// Looks at `count` entries, of which `entry` gives the inode number and the name, and tells how many of the first
    /// it has looked at: all, unless they are so slow that others should help. Many are looked at in the order of their
    /// inodes.
    fn look<'n>(
        &mut self,
        scene: &Scene<'_>,
        stop: &AtomicBool,
        count: usize,
        pace: &mut Pace,
        sink: Sink<'_>,
        entry: impl Fn(usize) -> (u64, &'n [u8]),
    ) -> usize {
        let Sink { store, tally, path } = sink;
        self.found.clear();
        if count < INODE_ORDER_MIN || pace.slow {
            for rank in 0..count {
                if stop.load(Ordering::Relaxed) || pace.is_slow(rank) && count - rank >= SLOW_ENTRIES_MIN {
                    return rank;
                }
                let at = store.entries.len() as u32;
                self.found.push((scene.look(entry(rank).1, store, tally, path), at));
            }
            return count;
        }
        self.order.clear();
        self.order.extend((0..count).map(|rank| (entry(rank).0, rank as u32)));
        if !self.order.is_sorted() {
            self.order.sort_unstable();
        }
        self.found.resize(count, (Found::Nothing, 0));
        for (done, &(_, rank)) in self.order.iter().enumerate() {
            if stop.load(Ordering::Relaxed) || pace.is_slow(done) && count - done >= SLOW_ENTRIES_MIN {
                return 0;
            }
            let at = store.entries.len() as u32;
            self.found[rank as usize] = (scene.look(entry(rank as usize).1, store, tally, path), at);
        }
        count
    }
}

fn scene<'a>(
    shared: &'a Shared,
    fd: BorrowedFd<'a>,
    dir: &'a Dir,
    heritage: &'a Heritage,
    only: Option<&'a [u8]>,
) -> Scene<'a> {
    Scene { fd, dir, heritage, filter: &shared.filter, one_file_system: shared.one_file_system, only, plain: false }
        .settle()
}

/// What keeps a directory from being listed. Of one that is a source nothing is there.
fn directory_error(dir: &Dir, heritage: &Heritage, errno: Errno) -> WalkError {
    let error = WalkError::new([b"/", dir.path()].concat(), errno);
    match heritage.plan.as_ref().is_some_and(|plan| plan.source) {
        true => WalkError { what: What::NoSource, ..error },
        false => error,
    }
}

fn flat_names(keys: &[Key], raw: &[u8]) -> Option<FlatNames> {
    let mut builder = FlatBuilder::default();
    // The buffer is far smaller than what a builder takes.
    keys.iter().all(|key| builder.push(key.name(raw), key.ino(raw))).then_some(())?;
    builder.end_run();
    builder.finish(&AtomicBool::new(false))
}

impl Worker<'_> {
    /// Lists a directory, or reports that it could not be opened.
    pub(super) fn list(&mut self, dir: Arc<Dir>, opened: Result<OwnedFd, Errno>, mut heritage: Heritage) {
        let source = heritage.plan.as_ref().is_some_and(|p| p.source);
        let opened = opened.and_then(|fd| {
            if self.shared.one_file_system && source {
                heritage.dev = sys::stat_at(fd.as_fd(), b"\0", Follow::No)?.dev;
            }
            Ok(fd)
        });
        match opened {
            Ok(fd) if heritage.full => self.list_all(dir, fd, heritage),
            Ok(fd) => self.list_planned(dir, fd, &heritage),
            Err(errno) => {
                let tally = Tally { errors: vec![directory_error(&dir, &heritage, errno)], ..Tally::default() };
                self.push_part(&dir, self.store.order.len(), tally, ALONE.failed());
            }
        }
    }

    fn push_part(&mut self, dir: &Arc<Dir>, start: usize, mut tally: Tally, place: Place) {
        tally.errors.sort_by(|a, b| a.path.cmp(&b.path));
        self.parts.push(Part {
            dir: Arc::clone(dir),
            start: start as u32,
            end: self.store.order.len() as u32,
            first: place.first,
            last: place.last,
            complete: place.complete,
            vanished: tally.vanished,
            excluded: tally.excluded,
            errors: tally.errors,
            passed_by: tally.passed_by,
        });
    }

    fn push_groups(&mut self, groups: Vec<Group>) {
        self.stack.extend(groups.into_iter().rev().map(Pending::Group));
    }

    /// A directory above sources: only what leads to them.
    fn list_planned(&mut self, dir: Arc<Dir>, fd: OwnedFd, heritage: &Heritage) {
        let mark = self.store.mark();
        let mut tally = Tally::default();
        let (mut names, mut starts) = (Vec::new(), Vec::new());
        let scene = scene(self.shared, fd.as_fd(), &dir, heritage, None);
        for name in heritage.plan.iter().flat_map(|p| p.children.keys()) {
            let at = names.len();
            names.extend_from_slice(name);
            names.push(0);
            let entry = self.store.entries.len() as u32;
            let found = scene.look(&names[at..], &mut self.store, &mut tally, &mut self.path);
            if found != Found::Nothing {
                self.store.order.push(entry);
            }
            if found.descends() {
                starts.push(at as u32);
            }
        }
        self.push_part(&dir, mark.order, tally, ALONE);
        let special = starts.clone();
        let held = dir.keep_for_walk(fd).map(Arc::new);
        self.push_groups(groups(&dir, held, Arc::new(names), starts, &special, heritage));
    }

    /// A directory of which everything is covered.
    fn list_all(&mut self, dir: Arc<Dir>, fd: OwnedFd, heritage: Heritage) {
        let shared = self.shared;
        let mut tally = Tally::default();
        let mut place = ALONE;
        let mut filled = 0;
        loop {
            match names::fill(&fd, &mut self.raw, &mut filled) {
                _ if shared.stopped() => return,
                Ok(Filled::Some) => {}
                Ok(Filled::End) => break,
                Ok(Filled::Full) => return self.list_large(dir, fd, heritage, filled),
                Err(errno) => {
                    tally.errors.push(directory_error(&dir, &heritage, errno));
                    place = place.failed();
                    break;
                }
            }
        }
        names::gather(&self.raw, filled, &mut self.keys);
        let count = self.keys.len();
        let (keys, raw) = (&self.keys, &self.raw);
        let has = |name: &[u8]| keys.iter().any(|k| k.name(raw) == name);
        let only = shared.filter.tag(fd.as_fd(), has);
        let scene = scene(shared, fd.as_fd(), &dir, &heritage, only);
        scene.report_missing(has, &mut tally);

        let mark = self.store.mark();
        if count <= shared.part_entries_max as usize && !(self.slow && count >= 2 * SLOW_ENTRIES_MIN) {
            let mut pace = Pace { began: self.now, slow: false };
            let mut fresh = Tally::default();
            let sink = Sink { store: &mut self.store, tally: &mut fresh, path: &mut self.path };
            let look = |i: usize| (keys[i].ino(raw), keys[i].with_nul(raw));
            let done = self.survey.look(&scene, &shared.stop, count, &mut pace, sink, look);
            if shared.stopped() {
                return;
            }
            if done == count {
                tally.add(fresh);
                names::sort(&mut self.keys, &self.raw);
                return self.finish(dir, fd, &heritage, mark, tally, place);
            }
            // Few were looked at, and not the first by name: they will be looked at again.
            self.store.back_to(mark);
            self.slow = true;
            shared.entry_ns.store(pace.entry_ns(done.max(SLOW_ENTRIES_MIN)), Ordering::Relaxed);
        }
        let only = only.map(<[u8]>::to_vec);
        names::sort(&mut self.keys, &self.raw);
        if let Some(names) = flat_names(&self.keys, &self.raw) {
            let only = only.and_then(|name| names.find(&name));
            self.share_out(dir, fd, heritage, Sharing { names, only, place }, tally);
        }
    }

    /// Makes a listing of what was looked at, and work of the subdirectories among it. The keys are in order.
    fn finish(&mut self, dir: Arc<Dir>, fd: OwnedFd, heritage: &Heritage, mark: Mark, tally: Tally, place: Place) {
        let (mut names, mut starts, mut special) = (Vec::new(), Vec::new(), Vec::new());
        for key in &self.keys {
            let (found, at) = self.survey.found[usize::from(key.index)];
            if found == Found::Nothing {
                continue;
            }
            self.store.order.push(at);
            if found.descends() {
                let start = names.len() as u32;
                names.extend_from_slice(key.with_nul(&self.raw));
                starts.push(start);
                if found == Found::Special {
                    special.push(start);
                }
            }
        }
        let empty = self.store.order.len() == mark.order;
        self.push_part(&dir, mark.order, tally, place);
        if !starts.is_empty() {
            let held = dir.keep_for_walk(fd).map(Arc::new);
            self.push_groups(groups(&dir, held, Arc::new(names), starts, &special, heritage));
        } else if !empty {
            drop(dir.keep(fd));
        }
    }

    /// Goes on with a directory whose names don't fit the buffer: only names and their order are held, all at once.
    fn list_large(&mut self, dir: Arc<Dir>, fd: OwnedFd, heritage: Heritage, mut filled: usize) {
        let shared = self.shared;
        let mut tally = Tally::default();
        let mut place = ALONE;
        let mut builder = FlatBuilder::default();
        let mut more = true;
        while more {
            loop {
                match names::fill(&fd, &mut self.raw, &mut filled) {
                    _ if shared.stopped() => return,
                    Ok(Filled::Some) => continue,
                    Ok(Filled::Full) => {}
                    Ok(Filled::End) => more = false,
                    Err(errno) => {
                        tally.errors.push(directory_error(&dir, &heritage, errno));
                        place = place.failed();
                        more = false;
                    }
                }
                break;
            }
            names::gather(&self.raw, filled, &mut self.keys);
            names::sort(&mut self.keys, &self.raw);
            filled = 0;
            if !self.keys.iter().all(|key| builder.push(key.name(&self.raw), key.ino(&self.raw))) {
                tally.errors.push(directory_error(&dir, &heritage, Errno::OVERFLOW));
                place = place.failed();
                more = false;
            }
            builder.end_run();
        }
        self.raw.truncate(RAW_BYTES + RAW_SLACK);
        self.raw.shrink_to_fit();
        self.keys = Vec::new();
        let Some(names) = builder.finish(&shared.stop) else { return };
        let only = shared.filter.tag(fd.as_fd(), |tag| names.find(tag).is_some()).and_then(|tag| names.find(tag));
        scene(shared, fd.as_fd(), &dir, &heritage, None).report_missing(|name| names.find(name).is_some(), &mut tally);
        self.share_out(dir, fd, heritage, Sharing { names, only, place }, tally);
    }

    /// Hands the entries of a directory to all workers. Its first part is empty.
    fn share_out(&mut self, dir: Arc<Dir>, fd: OwnedFd, heritage: Heritage, what: Sharing, tally: Tally) {
        let Sharing { names, only, place } = what;
        let total = names.len();
        self.push_part(&dir, self.store.order.len(), tally, Place { last: total == 0, ..place });
        if total == 0 {
            return;
        }
        let held = dir.keep_for_walk(fd).map(Arc::new);
        let flat = Arc::new(Flat {
            dir,
            held,
            names,
            heritage,
            only,
            complete: place.complete,
            tail: AtomicU32::new(u32::MAX),
        });
        self.stack.push(Pending::Tail(Tail { flat: Arc::clone(&flat), left: total, kids: Vec::new() }));
        self.stack.push(Pending::Span(Span { flat, at: 0, end: total }));
    }

    /// Looks at a span of a directory that was shared out; what takes too long is left to others.
    pub(super) fn look_at(&mut self, span: Span) {
        let shared = self.shared;
        let Span { flat, at, end } = span;
        let mut tally = Tally::default();
        let mut kids = Kids { rank: at, ..Kids::default() };
        let mark = self.store.mark();
        let mut complete = flat.complete;
        let mut reached = end;
        let fd = match &flat.held {
            Some(held) => Ok(DirFd::Held(held.as_fd())),
            None => flat.dir.fd(),
        };
        match fd {
            Ok(fd) => {
                let only = flat.only.map(|rank| flat.names.name(rank));
                let scene = scene(shared, fd.as_fd(), &flat.dir, &flat.heritage, only);
                let names = &flat.names;
                let count = (end - at) as usize;
                let mut pace = Pace { began: self.began, slow: shared.entries_are_slow() };
                let mut done = 0;
                // In the order of inodes first; that comes to nothing where entries turn out to be slow.
                for _ in 0..2 {
                    self.store.back_to(mark);
                    tally = Tally::default();
                    let sink = Sink { store: &mut self.store, tally: &mut tally, path: &mut self.path };
                    done = self.survey.look(&scene, &shared.stop, count, &mut pace, sink, |i| {
                        let rank = at + i as u32;
                        (names.ino(rank).into(), names.with_nul(rank))
                    });
                    if shared.stopped() {
                        return;
                    }
                    if done > 0 {
                        break;
                    }
                }
                reached = at + done as u32;
                self.slow = pace.slow;
                shared.entry_ns.store(pace.entry_ns(done), Ordering::Relaxed);
                for (rank, &(found, entry)) in (at..reached).zip(&self.survey.found) {
                    if found != Found::Nothing {
                        self.store.order.push(entry);
                    }
                    if found.descends() {
                        kids.push(names.start(rank), found);
                    }
                }
            }
            Err(error) => {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                tally.errors.push(directory_error(&flat.dir, &flat.heritage, errno));
                complete = false;
            }
        }
        let last = reached == flat.names.len();
        self.push_part(&flat.dir, mark.order, tally, Place { first: false, last, complete });
        kids.seen = reached - at;
        if reached < end {
            self.stack.push(Pending::Span(Span { flat: Arc::clone(&flat), at: reached, end }));
        }
        self.seen = Some((flat, kids));
    }
}
