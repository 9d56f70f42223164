//! Reading objects: handles of those read last are kept open, and all pieces of a range are asked for at once.
//!
//! A handle shows the file that bore the name when it was opened. It is given up when this store replaces or removes
//! the object. Another process may do so, too: objects up to [`REPLACED_BYTES_MAX`], among which are all that anybody
//! ever replaces, are asked for by name along with each read, at no cost in time, and opened anew when they have
//! changed.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, unbounded};

use super::Inner;
use super::peer::{Answer, Gone, Peer, Together, Trouble};
use super::wire::{Attrs, PIECE_BYTES, Reply, Request, Sort, open, status};
use crate::lock::lock;
use crate::readers::Readers;
use crate::{Action, Error, Kind, Result, TOO_LONG, WHOLE_BYTES_MAX};

/// Handles that are kept open.
const HANDLES_MAX: usize = 32;
/// An object that is another one at each of so many looks will be that at the next one.
const LOOKS_MAX: usize = 32;
/// Objects of up to this length may be replaced.
const REPLACED_BYTES_MAX: u64 = 8 << 20;
/// An object that is read whole is asked for in ranges of this length.
const WHOLE_STEP_BYTES: usize = 16 << 20;
/// So much at most is asked for along with the request that opens an object.
const ALONG_BYTES_MAX: usize = 2 << 20;
/// Pieces of a range that are on their way at once.
const PIECES_AT_ONCE: usize = 64;
/// Bytes that were asked for in advance and have not been fetched yet: no more are asked for.
const EXPECTED_BYTES_MAX: usize = 16 << 20;
/// What has been here for so long, and nobody has fetched, is given up, once others have been fetched instead that were
/// asked for later, or not in advance, [`EXPECTED_BYTES_MAX`] of them, or nobody has read anything for as long. (Over a
/// slow line what is on its way may take far longer, and what comes over one connection be wanted behind what comes over
/// another.)
const EXPECTED_FOR: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 60 });

/// An object that is open on some connection; closed when dropped.
struct Handle {
    peer: Arc<Peer>,
    handle: Vec<u8>,
    attrs: Attrs,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.peer.tell(&Request::Close { handle: &self.handle });
    }
}

/// Handles, and what was asked for in advance.
#[derive(Default)]
pub(super) struct Kept {
    state: Mutex<State>,
    readers: Readers,
}

#[derive(Default)]
struct State {
    handles: HashMap<String, (Arc<Handle>, u64)>,
    /// Counts uses.
    now: u64,
    /// Counts what was forgotten: a handle opened before must not be kept after.
    forgotten: u64,
    expected: VecDeque<Expected>,
    expected_bytes: usize,
}

/// A range that was asked for in advance: in pieces, or as soon as its object is open.
struct Expected {
    name: String,
    offset: u64,
    len: usize,
    pieces: Pieces,
    /// When it was seen that all of it is here.
    here: Option<Instant>,
    /// Bytes that were asked for later, or not in advance, and fetched.
    overtaken: usize,
}

impl Expected {
    /// Whether nobody wants it, as it seems, or it will never come. `quiet`: nobody has read anything for a while.
    fn is_stale(&mut self, quiet: bool) -> bool {
        if self.here.is_none() && self.pieces.are_here() {
            self.here = Some(Instant::now());
        }
        let is_passed_over = quiet || self.overtaken >= EXPECTED_BYTES_MAX;
        is_passed_over && self.here.is_some_and(|here| here.elapsed() > EXPECTED_FOR)
            || self.pieces.handle.peer.check().is_err()
    }
}

/// What was asked of an object; or, if there is no such object, what the server says of the repository's folder.
type OfObject<T> = std::result::Result<std::result::Result<T, std::result::Result<Attrs, Trouble>>, Trouble>;

/// What came of reading a range.
enum Outcome {
    Filled,
    /// The object ends after so many bytes.
    Ends(u64),
    /// It is another one than was opened, or gone.
    Changed,
}

/// A range on its way.
struct Pieces {
    handle: Arc<Handle>,
    answers: Receiver<Answer>,
    to: crossbeam_channel::Sender<Answer>,
    offset: u64,
    len: usize,
    /// What the next READ begins with.
    next: usize,
    /// Where the READs that are on their way begin, and their lengths; by tag.
    asked: Vec<(usize, usize)>,
    under_way: usize,
    step: usize,
}

impl Pieces {
    fn begin(handle: Arc<Handle>, offset: u64, len: usize) -> Self {
        let (to, answers) = unbounded();
        let step = handle.peer.read_bytes.load(Ordering::Relaxed).max(4096);
        let mut pieces = Pieces { handle, answers, to, offset, len, next: 0, asked: Vec::new(), under_way: 0, step };
        pieces.ask();
        pieces
    }

    fn ask(&mut self) {
        while self.next < self.len && self.under_way < PIECES_AT_ONCE {
            let len = self.step.min(self.len - self.next);
            self.ask_for(self.next, len);
            self.next += len;
        }
    }

    fn ask_for(&mut self, at: usize, len: usize) {
        let request = Request::Read { handle: &self.handle.handle, offset: self.offset + at as u64, len: len as u32 };
        self.handle.peer.ask(&request, &self.to, self.asked.len());
        self.asked.push((at, len));
        self.under_way += 1;
    }

    /// Whether all answers are here to what was asked so far.
    fn are_here(&self) -> bool {
        self.answers.len() >= self.under_way
    }

    /// Fill `buf`. `false`: the object ends before.
    fn fill(mut self, buf: &mut [u8]) -> std::result::Result<bool, Trouble> {
        let mut whole = true;
        while self.under_way > 0 {
            let answer = self.handle.peer.wait(&self.answers)?;
            self.under_way -= 1;
            let (at, len) = self.asked[answer.tag];
            match answer.reply? {
                Reply::Data(data) => {
                    let bytes = data.bytes();
                    if bytes.is_empty() || bytes.len() > len {
                        return Err(Trouble::Odd);
                    }
                    buf[at..at + bytes.len()].copy_from_slice(bytes);
                    if bytes.len() < len {
                        // Servers may give less than was asked for, and then usually never give more.
                        if bytes.len() >= 4096 {
                            self.step = self.step.min(bytes.len());
                            self.handle.peer.read_bytes.fetch_min(bytes.len(), Ordering::Relaxed);
                        }
                        let (mut at, end) = (at + bytes.len(), at + len);
                        while at < end {
                            let len = self.step.min(end - at);
                            self.ask_for(at, len);
                            at += len;
                        }
                    }
                }
                Reply::Status { code: status::EOF, .. } => whole = false,
                other => return Err(other.done().err().unwrap_or(Trouble::Odd)),
            }
            if whole {
                self.ask();
            }
        }
        Ok(whole)
    }
}

impl Kept {
    /// Give up the handle of `name`: it may be another file's name now, or nobody's.
    pub(super) fn forget(&self, name: &str) {
        let mut state = lock(&self.state);
        state.forgotten += 1;
        let handle = state.handles.remove(name);
        let expected = state.expected.len();
        state.expected.retain(|e| e.name != name);
        if state.expected.len() < expected {
            state.expected_bytes = state.expected.iter().map(|e| e.len).sum();
        }
        drop(state);
        drop(handle);
    }

    fn find(&self, name: &str) -> Option<Arc<Handle>> {
        let mut state = lock(&self.state);
        state.now += 1;
        let now = state.now;
        let (handle, used) = state.handles.get_mut(name)?;
        *used = now;
        let handle = handle.clone();
        drop(state);
        if handle.peer.check().is_ok() {
            return Some(handle);
        }
        self.forget(name);
        None
    }

    fn keep(&self, name: &str, handle: &Arc<Handle>, forgotten: u64) {
        let mut state = lock(&self.state);
        if state.forgotten != forgotten {
            return;
        }
        let mut evicted = None;
        if state.handles.len() >= HANDLES_MAX
            && let Some(oldest) = state.handles.iter().min_by_key(|(_, (_, used))| *used).map(|(name, _)| name.clone())
        {
            evicted = state.handles.remove(&oldest);
        }
        let now = state.now;
        state.handles.insert(name.to_owned(), (handle.clone(), now));
        drop(state);
        drop(evicted);
    }

    /// What was asked for in advance.
    fn fetch(&self, name: &str, offset: u64, len: usize) -> Option<Pieces> {
        let mut state = lock(&self.state);
        let place = state.expected.iter().position(|e| e.name == name && e.offset == offset && e.len == len);
        let earlier = place.unwrap_or(state.expected.len());
        state.expected.iter_mut().take(earlier).for_each(|earlier| earlier.overtaken += len);
        let expected = state.expected.remove(place?)?;
        state.expected_bytes -= expected.len;
        Some(expected.pieces)
    }
}

/// What a server says of an object that it was asked to open: LSTAT, OPEN, and STAT of the repository's folder.
fn judge(peer: &Arc<Peer>, replies: &mut impl Iterator<Item = Reply>) -> OfObject<Handle> {
    let mut next = || replies.next().ok_or(Trouble::Odd);
    let (looked, opened, base) = (next()?.attrs(), next()?.handle(), next()?.attrs());
    let handle = opened.map(|handle| Handle { peer: peer.clone(), handle, attrs: Attrs::default() });
    match (looked, handle) {
        (Ok(attrs), _) if attrs.sort() == Sort::Folder => Ok(Err(base)),
        (Ok(attrs), _) if attrs.sort() != Sort::File || attrs.size.is_none() => Err(Trouble::NoObject(attrs.sort())),
        (Ok(attrs), Ok(mut handle)) => {
            handle.attrs = attrs;
            Ok(Ok(handle))
        }
        (Err(trouble), _) | (_, Err(trouble)) if trouble.is(status::NO_SUCH_FILE) => Ok(Err(base)),
        (Err(trouble), _) | (_, Err(trouble)) => Err(trouble),
    }
}

/// What a server says that can't be.
fn restless() -> Trouble {
    Trouble::Status { code: status::FAILURE, words: "the server reports something different about it each time".into() }
}

/// Read an object to its end; `false`: it ends before. A server may claim any length: room is taken as bytes come.
fn read_whole(handle: &Arc<Handle>, len: u64, bytes: &mut Vec<u8>) -> std::result::Result<bool, Trouble> {
    let too_long = || Trouble::Status { code: status::FAILURE, words: TOO_LONG.into() };
    let len = usize::try_from(len).ok().filter(|_| len <= WHOLE_BYTES_MAX).ok_or_else(too_long)?;
    while bytes.len() < len {
        let (at, step) = (bytes.len(), (len - bytes.len()).min(WHOLE_STEP_BYTES));
        if bytes.try_reserve(step).is_err() {
            return Err(Trouble::Status { code: status::FAILURE, words: "there is no memory for all of it".into() });
        }
        bytes.resize(at + step, 0);
        if !Pieces::begin(handle.clone(), at as u64, step).fill(&mut bytes[at..])? {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Inner {
    /// The length of an object, or `None` if there is none.
    pub(super) fn len(&self, name: &str) -> Result<Option<u64>> {
        let (object, base) = self.run(Action::Find, name, |peer| {
            let mut flight = peer.flight();
            flight.add(&Request::LinkStat { path: &self.path(name) });
            flight.add(&Request::Stat { path: &self.base });
            let mut replies = flight.land()?.into_iter().map(Reply::attrs);
            Ok((replies.next().ok_or(Trouble::Odd)?, replies.next().ok_or(Trouble::Odd)?))
        })?;
        match object {
            Ok(attrs) => match (attrs.sort(), attrs.size) {
                (Sort::File, Some(len)) => Ok(Some(len)),
                (Sort::Folder, _) => self.linked(Action::Find, base).map(|()| None),
                (sort, _) => Err(self.error(Action::Find, name, &Trouble::NoObject(sort))),
            },
            Err(trouble) if trouble.is(status::NO_SUCH_FILE) => self.linked(Action::Find, base).map(|()| None),
            Err(trouble) => Err(self.error(Action::Find, name, &trouble)),
        }
    }

    /// Open an object for reading, and look at it.
    fn open(&self, peer: &Arc<Peer>, name: &str) -> OfObject<Handle> {
        let path = self.path(name);
        let mut flight = peer.flight();
        flight.add(&Request::LinkStat { path: &path });
        flight.add(&Request::Open { path: &path, flags: open::READ, mode: None });
        flight.add(&Request::Stat { path: &self.base });
        judge(peer, &mut flight.land()?.into_iter())
    }

    /// As `open`, and its first bytes from `offset`, asked for in the same round trip. They may be fewer, and none if
    /// that can't be done, or if it isn't certain that they are this object's.
    fn open_to_read(
        &self,
        peer: &Arc<Peer>,
        name: &str,
        offset: u64,
        len: usize,
    ) -> OfObject<(Arc<Handle>, Option<Vec<u8>>)> {
        let foreseen = if len <= ALONG_BYTES_MAX { peer.foresee() } else { None };
        let Some(mut flight) = foreseen else {
            return Ok(self.open(peer, name)?.map(|handle| (Arc::new(handle), None)));
        };
        let (path, foreseen) = (self.path(name), flight.handle);
        flight.add(&Request::LinkStat { path: &path });
        flight.add(&Request::Open { path: &path, flags: open::READ, mode: None });
        flight.add(&Request::Stat { path: &self.base });
        flight.add(&Request::FileStat { handle: &foreseen });
        let step = peer.read_bytes.load(Ordering::Relaxed).max(4096);
        let steps: Vec<_> = (0..len).step_by(step).take(PIECES_AT_ONCE).map(|at| (at, step.min(len - at))).collect();
        for (at, len) in &steps {
            flight.add(&Request::Read { handle: &foreseen, offset: offset + *at as u64, len: *len as u32 });
        }
        let (replies, in_order) = flight.land()?;
        let mut replies = replies.into_iter();
        let mut handle = match judge(peer, &mut replies)? {
            Ok(handle) => handle,
            Err(base) => return Ok(Err(base)),
        };
        let looked = replies.next().ok_or(Trouble::Odd)?.attrs();
        let (Ok(attrs), true) = (looked, handle.handle == foreseen && in_order) else {
            return Ok(Ok((Arc::new(handle), None)));
        };
        // Of what is open, not of what had the name a moment before.
        handle.attrs = attrs;
        let mut bytes = Vec::new();
        for ((_, len), reply) in steps.iter().zip(replies) {
            let Reply::Data(data) = reply else { break };
            let data = data.bytes();
            if data.len() > *len {
                return Err(Trouble::Odd);
            }
            bytes.extend_from_slice(data);
            // What comes behind a short piece is not what comes next.
            if data.len() < *len {
                break;
            }
        }
        Ok(Ok((Arc::new(handle), Some(bytes))))
    }

    /// The whole object, opened anew: what is read whole is what gets replaced.
    pub(super) fn get(&self, name: &str) -> Result<Vec<u8>> {
        let read = self.run(Action::Read, name, |peer| {
            let (handle, begun) = match self.open_to_read(peer, name, 0, PIECE_BYTES)? {
                Ok(opened) => opened,
                Err(base) => return Ok(Err(base)),
            };
            let mut bytes = match begun {
                Some(bytes) if handle.attrs.size == Some(bytes.len() as u64) => return Ok(Ok(Some(bytes))),
                begun => begun.unwrap_or_default(),
            };
            // What was looked at may have been replaced before it was opened: the handle is asked, too, on the way.
            let mut len = handle.attrs.size.unwrap_or(0);
            if bytes.len() as u64 > len {
                bytes.clear();
            }
            for _ in 0..LOOKS_MAX {
                let (to, looked) = unbounded();
                peer.ask(&Request::FileStat { handle: &handle.handle }, &to, 0);
                let whole = read_whole(&handle, len, &mut bytes)?;
                match peer.wait(&looked)?.reply?.attrs()?.size {
                    Some(real) if real != len => len = real,
                    _ => return Ok(Ok(whole.then_some(bytes))),
                }
                bytes.clear();
            }
            Err(restless())
        })?;
        match read {
            Ok(Some(bytes)) => {
                self.found.store(true, Ordering::Relaxed);
                Ok(bytes)
            }
            Ok(None) => Err(self.because(Kind::Io, Action::Read, name, "it became shorter while it was read")),
            Err(base) => Err(self.missing(Action::Read, name, base)),
        }
    }

    /// Fill `buf` from `offset`.
    pub(super) fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        let _reading = self.kept.readers.begin();
        let wanted = offset.saturating_add(buf.len() as u64);
        if let Some(pieces) = self.kept.fetch(name, offset, buf.len())
            && let Ok(true) = pieces.fill(buf)
        {
            return Ok(());
        }
        let outcome = self.run(Action::Read, name, |peer| {
            let forgotten = lock(&self.kept.state).forgotten;
            let mut known = self.kept.find(name);
            for _ in 0..LOOKS_MAX {
                let (handle, is_new) = match known.take() {
                    Some(handle) => (handle, false),
                    None => match self.open_to_read(peer, name, offset, buf.len())? {
                        Ok((handle, begun)) => {
                            self.kept.keep(name, &handle, forgotten);
                            if let Some(bytes) = begun
                                && bytes.len() == buf.len()
                                && wanted <= handle.attrs.size.unwrap_or(0)
                            {
                                buf.copy_from_slice(&bytes);
                                return Ok(Ok(Outcome::Filled));
                            }
                            (handle, true)
                        }
                        Err(base) => return Ok(Err(base)),
                    },
                };
                match self.read_range(name, &handle, is_new, offset, buf) {
                    Ok(Outcome::Changed) => self.kept.forget(name),
                    // A handle of a connection that broke meanwhile.
                    Err(Trouble::Gone(_)) if handle.peer.number != peer.number => self.kept.forget(name),
                    other => return other.map(Ok),
                }
            }
            Err(restless())
        })?;
        match outcome {
            Ok(Outcome::Ends(len)) => Err(Error::truncated(Action::Read, name, self.location(), wanted, len)),
            Ok(_) => Ok(()),
            Err(base) => Err(self.missing(Action::Read, name, base)),
        }
    }

    /// Read a range of an open object. What was opened during the call may have been replaced since, by those who
    /// replace it without pause at each look: its bytes are what the object was while it was read, all the same.
    fn read_range(
        &self,
        name: &str,
        handle: &Arc<Handle>,
        is_new: bool,
        offset: u64,
        buf: &mut [u8],
    ) -> std::result::Result<Outcome, Trouble> {
        let len = handle.attrs.size.unwrap_or(0);
        let end = offset.checked_add(buf.len() as u64).filter(|end| *end <= len);
        if end.is_none() {
            // Others may have put a longer one in its place.
            return Ok(match self.still(name, handle)? {
                true => Outcome::Ends(len),
                false => Outcome::Changed,
            });
        }
        let pieces = Pieces::begin(handle.clone(), offset, buf.len());
        let is_current = is_new || len > REPLACED_BYTES_MAX || self.still(name, handle)?;
        let whole = pieces.fill(buf)?;
        // What was looked at may have been replaced before it was opened, by a shorter one.
        let is_current = is_current && (whole || !is_new || self.still(name, handle)?);
        Ok(match (is_current, whole) {
            (false, _) => Outcome::Changed,
            (true, true) => Outcome::Filled,
            (true, false) => Outcome::Ends(len.min(offset)),
        })
    }

    /// Whether the file that was opened still has the name, as far as can be told.
    fn still(&self, name: &str, handle: &Handle) -> std::result::Result<bool, Gone> {
        let reply = handle.peer.one(&Request::LinkStat { path: &self.path(name) });
        match reply {
            Ok(reply) => Ok(reply.attrs().is_ok_and(|attrs| attrs == handle.attrs)),
            Err(Trouble::Gone(gone)) => Err(gone),
            Err(_) => Ok(false),
        }
    }

    /// Ask for a range in advance, if there is room. `false`: its object is not open.
    pub(super) fn expect(&self, name: &str, offset: u64, len: usize) -> bool {
        let Some(handle) = self.kept.find(name) else { return false };
        let is_whole = offset.checked_add(len as u64).is_some_and(|end| end <= handle.attrs.size.unwrap_or(0));
        if !is_whole || len > EXPECTED_BYTES_MAX {
            return true;
        }
        let quiet = self.kept.readers.are_quiet(EXPECTED_FOR);
        let mut state = lock(&self.kept.state);
        state.expected.retain_mut(|expected| !expected.is_stale(quiet));
        state.expected_bytes = state.expected.iter().map(|expected| expected.len).sum();
        let is_known = state.expected.iter().any(|e| e.name == name && e.offset == offset);
        if is_known || state.expected_bytes + len > EXPECTED_BYTES_MAX {
            return true;
        }
        let pieces = Pieces::begin(handle, offset, len);
        state.expected.push_back(Expected { name: name.to_owned(), offset, len, pieces, here: None, overtaken: 0 });
        state.expected_bytes += len;
        true
    }
}
