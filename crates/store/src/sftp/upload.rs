//! Uploads: large objects sent in pieces that nobody waits for, and mended when the line breaks.
//!
//! Every [`SAFE_BYTES`] the server is asked to sync the file. What was sent since the last sync that has succeeded is
//! kept in memory, [`KEPT_BYTES_MAX`] at most; waiting for room there is what holds a fast producer back.
//!
//! What is no longer than [`AT_ONCE_BYTES_MAX`] is written when it is whole, in one round trip, where that can be done
//! ([`super::handles`]): until more has come, or [`HELD_BACK`] has passed, an upload asks for nothing. When the
//! connection breaks it is written once more, to another file.
//!
//! A connection takes no more than a certain amount a round trip, so a far server is sent one file over several of
//! them, as *lanes*: each opens the file by itself, and a piece goes down the one that has the least to do. No lane is
//! given more than it can have under way ([`LANE_BYTES_MAX`]): what waited in the queue of one would come late, and
//! nothing behind it is safe before it.
//!
//! When the connection breaks, any other upload goes on over another one from where the file was last known to be safe,
//! whatever the server has lost since, a crash of its machine included:
//!
//! | the account | its files in `tmp/` are born | and an upload goes on |
//! |---|---|---|
//! | may replace files (posix-rename) | 0600, and made 0444 before they get their names; 0444 what is written at once | in the same file, opened again |
//! | may rename, and replace nothing | 0444 | in a new file, into which the old one is copied, over the line and back |
//! | may only add | 0444, under the object's own name | not at all: the object is torn, and the run fails |
//!
//! In the second case the mode is what protects an object from a thief of the account; in the first nothing would.

mod mend;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::behind::Looking;
use super::folders::Opened;
use super::lanes::{OF_SYNC, Under};
use super::objects::{AT_ONCE_BYTES_MAX, BORN};
use super::peer::{Peer, Together, Trouble};
use super::pieces::Pieces;
use super::publish::Named;
use super::wire::{PIECE_BYTES, Reply, Request, open, status};
use super::{Inner, split};
use crate::{Action, Error, Kind, Put, Result};

/// The file is synced whenever so much has been sent.
const SAFE_BYTES: u64 = 8 << 20;
/// So much is kept until the server has it for sure.
const KEPT_BYTES_MAX: usize = 16 << 20;
/// So much more, by one upload at a time, over several connections: four of them carry 8 MiB a round trip, and what
/// they have carried is safe after another two or three.
const MORE_BYTES: usize = 16 << 20;
/// So much of a file is on its way on each of several connections: OpenSSH takes 2 MiB, and what comes next should be
/// there when it has.
const LANE_BYTES_MAX: usize = 4 << 20;
/// What comes slowly is not held back for longer: the line would be idle, and all of it to be carried at the end.
const HELD_BACK: Duration = Duration::from_millis(200);
/// The mode of a file that its account may open again.
const MENDABLE: u32 = 0o600;
/// The mode that an object has.
const OBJECT: u32 = 0o444;

/// How the file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// In `tmp/`, and it can be opened again.
    Mendable,
    /// In `tmp/`, and it can't.
    Sealed,
    /// Under its own name.
    Straight,
}

/// The right to keep [`MORE_BYTES`] more.
struct More(Arc<Inner>);

impl More {
    fn new(store: &Arc<Inner>) -> Option<Self> {
        (!store.keeps_more.swap(true, Ordering::Relaxed)).then(|| More(store.clone()))
    }
}

impl Drop for More {
    fn drop(&mut self) {
        self.0.keeps_more.store(false, Ordering::Relaxed);
    }
}

pub(super) struct SftpUpload {
    store: Arc<Inner>,
    name: String,
    manner: Manner,
    /// In `tmp/`; of no use if it is written straight.
    temporary: String,
    under: Option<Under>,
    /// There is a file; else all that has come is in `filling`, [`AT_ONCE_BYTES_MAX`] at most.
    is_begun: bool,
    /// When it began.
    since: Instant,
    /// The piece that is being filled.
    filling: Vec<u8>,
    piece: usize,
    pieces: Pieces,
    more: Option<More>,
    /// Nothing is left to be removed.
    finished: bool,
    /// A piece was refused, or the file could not be created: what was written isn't in it, and every further call
    /// fails with this.
    failed: Option<(Kind, String)>,
}

impl SftpUpload {
    pub(super) fn begin(store: Arc<Inner>, name: &str) -> Result<Self> {
        let temporary = store.temporary().map_err(|source| store.system(Action::Write, name, source))?;
        let mut upload = SftpUpload {
            manner: Manner::Mendable,
            name: name.to_owned(),
            temporary,
            under: None,
            is_begun: false,
            since: Instant::now(),
            filling: Vec::new(),
            piece: PIECE_BYTES,
            pieces: Pieces::default(),
            more: None,
            finished: false,
            failed: None,
            store,
        };
        if !upload.store.run(Action::Write, name, |peer| Ok(peer.writes_at_once() && peer.abilities()?.rename))? {
            upload.create_now()?;
        }
        Ok(upload)
    }

    /// Create the file, to write to it piece by piece.
    fn create_now(&mut self) -> Result<()> {
        let pool = self.store.pool.clone();
        let mut tries = 0;
        pool.again(|| {
            tries += 1;
            self.open(tries > 1)
        })?;
        self.is_begun = self.under.is_some();
        match self.is_begun {
            true => Ok(()),
            false if tries > 1 => Err(self.torn()),
            false => Err(self.store.taken(&self.name)),
        }
    }

    /// Write all of a file that nothing was asked for yet. `false`: it has to be begun in the usual way.
    fn write_at_once(&mut self) -> Result<bool> {
        let body = Bytes::from(std::mem::take(&mut self.filling));
        let pool = self.store.pool.clone();
        let mut is_second = false;
        let written = pool.again(|| {
            let peer = self.store.pool.peer()?;
            if std::mem::replace(&mut is_second, true) {
                self.name_anew(&peer)?;
            }
            if body.is_empty() {
                return Ok(false);
            }
            let folder = split(&self.name).0;
            let written = self.store.write_at_once(&peer, &mut self.temporary, &body, folder);
            written.map(|opened| opened.is_some()).map_err(|trouble| {
                // Told before it goes: how much room there is, is asked for.
                let error = self.late_error(&peer, &trouble);
                peer.tell(&Request::Remove { path: &self.store.path(&self.temporary) });
                error
            })
        })?;
        match written {
            true => self.pieces = Pieces::all_safe(body.len() as u64),
            false => self.filling = body.into(),
        }
        Ok(written)
    }

    /// The file before may have been created, and no answer came: another one.
    fn name_anew(&mut self, peer: &Peer) -> Result<()> {
        peer.tell(&Request::Remove { path: &self.store.path(&self.temporary) });
        self.temporary =
            self.store.temporary().map_err(|source| self.store.system(Action::Write, &self.name, source))?;
        Ok(())
    }

    /// Create the file; if it is to be written under its own name, and somebody has that, there is none.
    fn open(&mut self, is_second: bool) -> Result<()> {
        let peer = self.store.pool.peer()?;
        if is_second && self.manner != Manner::Straight {
            self.name_anew(&peer)?;
        }
        let created = self.create(&peer);
        created.map_err(|trouble| self.error(&peer, &trouble))
    }

    fn error(&self, peer: &Peer, trouble: &Trouble) -> Error {
        match trouble {
            Trouble::Gone(gone) => self.store.pool.broken(Action::Write, &self.name, gone),
            trouble => self.store.write_error(peer, &self.name, trouble),
        }
    }

    /// As [`SftpUpload::error`], for a file that was written already: if it is gone, that is a failed write, and not a
    /// missing object as it would be for a reader.
    fn late_error(&self, peer: &Peer, trouble: &Trouble) -> Error {
        let error = self.error(peer, trouble);
        match error.kind {
            Kind::Missing => Error { kind: Kind::Io, ..error },
            _ => error,
        }
    }

    fn create(&mut self, peer: &Arc<Peer>) -> std::result::Result<(), Trouble> {
        let able = peer.abilities()?;
        self.piece = able.write_bytes;
        self.manner = match (able.rename, peer.offers().replace) {
            (true, true) => Manner::Mendable,
            (true, false) => Manner::Sealed,
            (false, _) => Manner::Straight,
        };
        let handle = match self.manner {
            Manner::Straight => self.store.create_straight(peer, &self.name)?,
            Manner::Mendable => Some(self.create_file(peer, MENDABLE)?),
            Manner::Sealed => Some(self.create_file(peer, BORN)?),
        };
        self.under = handle.map(|handle| Under::new(peer, handle));
        Ok(())
    }

    /// Create the file, and on the way open the folders that will have to be synced once it has its name: whoever syncs
    /// them has a round trip less to wait.
    fn create_file(&self, peer: &Arc<Peer>, mode: u32) -> std::result::Result<Vec<u8>, Trouble> {
        let path = self.store.path(&self.temporary);
        Ok(self.store.create(peer, &path, mode, split(&self.name).0)?.0)
    }

    /// Send what is filled so far.
    fn send(&mut self) -> Result<()> {
        if !self.is_begun
            && let Err(error) = self.create_now()
        {
            // What has come so far is held nowhere else.
            let kind = if error.kind == Kind::Missing { Kind::Io } else { error.kind };
            self.failed = Some((kind, error.cause()));
            return self.refuse_failed();
        }
        let mut filled = Bytes::from(std::mem::take(&mut self.filling));
        while !filled.is_empty() {
            // What was filled before the file was begun may be several pieces.
            let bytes = filled.split_to(filled.len().min(self.piece));
            self.pieces.push(bytes);
            self.feed();
            // Whoever waits for room does so here, with the file at hand.
            let most = self.kept_most();
            self.settle(most)?;
        }
        Ok(())
    }

    /// So much may be not known to be safe. Who needs no more than others leaves the rest to them.
    fn kept_most(&mut self) -> usize {
        if self.pieces.unsafe_bytes() <= KEPT_BYTES_MAX {
            self.more = None;
        } else if self.more.is_none() && self.under.as_ref().is_some_and(|under| under.lanes.len() > 1) {
            self.more = More::new(&self.store);
        }
        KEPT_BYTES_MAX + if self.more.is_some() { MORE_BYTES } else { 0 }
    }

    /// Send what is held, as far as there is room for it on the lanes; more of them are opened if that helps.
    fn feed(&mut self) {
        if !self.pieces.are_held() {
            return;
        }
        self.widen();
        let is_wide = self.may_widen()
            && self.under.as_ref().is_some_and(|under| under.lanes.len() > 1 || self.store.pool.may_grow());
        let most = if is_wide { LANE_BYTES_MAX } else { usize::MAX };
        if let Some(under) = &mut self.under {
            self.pieces.send(under, most);
        }
    }

    /// Whether more than one connection may write to it. Who offers no sync may have no file there but a stream to
    /// somewhere else, which takes what comes next and nothing else.
    fn may_widen(&self) -> bool {
        self.manner == Manner::Mendable && self.under.as_ref().is_some_and(Under::syncs)
    }

    /// Open the file on the connections that are not busy, if those on which it is open are.
    fn widen(&mut self) {
        if !self.may_widen() {
            return;
        }
        let Some(under) = &mut self.under else { return };
        let least = under.lanes.iter().map(|lane| lane.peer.load()).min().unwrap_or(0);
        let others = self.store.pool.others(least, &under.numbers());
        if !others.is_empty() {
            let path = self.store.path(&self.temporary);
            others.into_iter().for_each(|peer| under.open(peer, &path));
        }
    }

    fn refuse_failed(&self) -> Result<()> {
        let Some((kind, cause)) = &self.failed else { return Ok(()) };
        Err(self.store.because(*kind, Action::Write, &self.name, cause))
    }

    /// Take in answers until no more than so many bytes are not known to be safe, mending the connection when it
    /// breaks.
    fn settle(&mut self, most: usize) -> Result<()> {
        self.refuse_failed()?;
        let pool = self.store.pool.clone();
        let settled = pool.again(|| {
            if self.under.is_none() {
                self.mend()?;
            }
            self.settle_here(most)
        });
        self.failed = settled.as_ref().err().map(|error| (error.kind, error.cause()));
        settled
    }

    /// As [`SftpUpload::settle`], on the connections that it has; once one breaks, on none.
    fn settle_here(&mut self, most: usize) -> Result<()> {
        match self.take_answers(most) {
            Err(Trouble::Gone(gone)) => {
                self.under.take().into_iter().for_each(Under::leave);
                Err(self.store.pool.broken(Action::Write, &self.name, &gone))
            }
            Err(trouble) => match self.under.as_ref().and_then(Under::first) {
                Some(peer) => Err(self.store.write_error(&peer, &self.name, &trouble)),
                None => Err(self.store.error(Action::Write, &self.name, &trouble)),
            },
            Ok(()) => Ok(()),
        }
    }

    fn take_answers(&mut self, most: usize) -> std::result::Result<(), Trouble> {
        loop {
            self.ask_to_sync(most);
            let mut is_enough = self.pieces.unsafe_bytes() <= most;
            let Some(under) = &mut self.under else { return Ok(()) };
            // A server that answers in any order may yet say that it could not write what it has synced.
            is_enough &= most > 0 || !under.is_owed();
            let answer = match under.answers.try_recv() {
                Ok(answer) => answer,
                Err(_) if is_enough => return Ok(()),
                Err(_) => under.wait()?,
            };
            let Some(answer) = under.opened(answer) else {
                self.feed();
                continue;
            };
            let done = answer.reply?.done();
            under.heard(answer.tag);
            if answer.tag == OF_SYNC {
                done?;
                if let Some(under) = &mut self.under
                    && let Some(safe) = under.syncing.take()
                {
                    self.pieces.make_safe(safe, under);
                }
                self.feed();
                continue;
            }
            done?;
            if let Some(under) = &mut self.under {
                self.pieces.take(answer.tag as u64, under);
                if !under.syncs() {
                    // There is no more to be had here than that the server has taken it.
                    let taken = self.pieces.taken();
                    self.pieces.make_safe(taken, under);
                }
            }
            self.feed();
        }
    }

    /// If enough has been sent since the last sync, or all has to be safe, ask for one. Requests to one file are
    /// carried out in order on one connection, so there it covers all that was sent before; over several, what has been
    /// taken in.
    fn ask_to_sync(&mut self, most: usize) {
        let pieces = &self.pieces;
        let (taken, sent, end, safe) = (pieces.taken(), pieces.sent(), pieces.end(), pieces.safe());
        let Some(under) = &mut self.under else { return };
        let Some(lane) = under.lanes.first().filter(|lane| lane.peer.offers().sync && under.syncing.is_none()) else {
            return;
        };
        let covered = if under.lanes.len() == 1 { sent } else { taken };
        let last = most == 0 && covered == end && end > safe;
        if covered.saturating_sub(safe) >= SAFE_BYTES || last {
            under.syncing = Some(covered);
            lane.peer.ask(&Request::Sync { handle: &lane.handle }, &under.to, OF_SYNC);
        }
    }

    fn complete(&mut self) -> Result<()> {
        self.refuse_failed()?;
        if self.is_begun || !self.write_at_once()? {
            self.send()?;
            self.settle(KEPT_BYTES_MAX)?;
            // For the next one.
            self.more = None;
            self.settle(0)?;
        }
        // Whatever breaks from here on, all bytes are safe, and the file has its name or not.
        let pool = self.store.pool.clone();
        let mut is_second = false;
        let named = pool.again(|| {
            let is_first = !std::mem::replace(&mut is_second, true);
            let peer = match self.close(self.manner == Manner::Mendable) {
                Some((peer, closed)) => {
                    if let Err(trouble) = closed {
                        // It may be refused; then it stays.
                        peer.tell(&Request::Remove { path: &self.store.path(self.written_to()) });
                        return Err(self.late_error(&peer, &trouble));
                    }
                    peer
                }
                None => self.store.pool.peer()?,
            };
            let named = if is_first { self.give_name(&peer) } else { self.name_again(&peer) };
            named.map_err(|trouble| {
                let error = self.late_error(&peer, &trouble);
                // Nobody wants what gets no name.
                if error.kind != Kind::Transient && self.manner != Manner::Straight {
                    peer.tell(&Request::Remove { path: &self.store.path(&self.temporary) });
                }
                error
            })
        })?;
        self.finished = true;
        if named != Named::Done {
            let path = self.store.path(&self.temporary);
            self.store.run(Action::Write, &self.name, |peer| {
                peer.tell(&Request::Remove { path: &path });
                Ok(())
            })?;
        }
        self.store.told(named, &self.name)
    }

    /// Where the file is, as long as it has no name, or not another one.
    fn written_to(&self) -> &str {
        if self.manner == Manner::Straight { &self.name } else { &self.temporary }
    }

    /// Close the file everywhere, and take away the right to write to it, if wanted. Gives the connection on which that
    /// was done, and what came of it.
    fn close(&mut self, protect: bool) -> Option<(Arc<Peer>, std::result::Result<(), Trouble>)> {
        let mut under = self.under.take()?;
        under.settle();
        let is_synced = under.syncs();
        let others = under.lanes.iter().skip(1).map(|lane| lane.close(is_synced));
        let closed = others.fold(Ok(()), std::result::Result::and);
        let first = under.lanes.into_iter().next()?;
        if protect {
            first.peer.tell(&Request::SetMode { handle: &first.handle, mode: OBJECT });
        }
        let closed = closed.and(first.close(is_synced));
        Some((first.peer, closed))
    }

    fn give_name(&self, peer: &Arc<Peer>) -> std::result::Result<Named, Trouble> {
        match self.manner {
            Manner::Straight => Ok(Named::Done),
            _ => {
                let path = self.store.path(&self.temporary);
                self.store.publish(peer, &path, &self.name, Put::Create, &Opened::default(), &mut Looking::default())
            }
        }
    }

    /// The connection broke when the name was given: see whether it was.
    fn name_again(&self, peer: &Arc<Peer>) -> std::result::Result<Named, Trouble> {
        match self.manner {
            Manner::Straight => Ok(Named::Done),
            _ => self.look_and_name(peer, false),
        }
    }

    fn look_and_name(&self, peer: &Arc<Peer>, is_last: bool) -> std::result::Result<Named, Trouble> {
        let (ours, name) = (self.store.path(&self.temporary), self.store.path(&self.name));
        let mut flight = peer.flight();
        flight.add(&Request::LinkStat { path: &ours });
        flight.add(&Request::LinkStat { path: &name });
        let mut replies = flight.land()?.into_iter().map(Reply::attrs);
        let (ours_looked, named) = (replies.next().ok_or(Trouble::Odd)?, replies.next().ok_or(Trouble::Odd)?);
        let missing = |trouble: &Trouble| trouble.is(status::NO_SUCH_FILE);
        let named = match named {
            // The name alone, which nothing has got yet.
            Ok(named) if self.pieces.end() > 0 && self.store.reserved.has(&self.name, &named) => {
                Err(Trouble::Status { code: status::NO_SUCH_FILE, words: String::new() })
            }
            named => named,
        };
        match (ours_looked, named) {
            // A file with two names: same length, and made at the same moment. Names of objects are random, but for
            // some small ones, which are not uploaded.
            (Ok(a), Ok(b)) if a.size == b.size && a.mtime == b.mtime => {
                peer.tell(&Request::Remove { path: &ours });
                Ok(Named::Done)
            }
            (_, Ok(named)) if named.size != Some(self.pieces.end()) => Ok(Named::Taken),
            (Err(gone), Ok(_)) if missing(&gone) => Ok(Named::Done),
            (Ok(_), Ok(_)) => Ok(Named::Taken),
            (Ok(ours), Err(none)) if missing(&none) && !is_last => {
                self.is_long_enough(ours.size)?;
                if self.manner == Manner::Mendable {
                    self.protect(peer)?;
                }
                match self.give_name(peer) {
                    // What was asked for over the old connection may have been done just now.
                    Ok(Named::Taken) => self.look_and_name(peer, true),
                    Err(trouble) if missing(&trouble) => self.look_and_name(peer, true),
                    named => named,
                }
            }
            (Err(trouble), _) | (_, Err(trouble)) => Err(trouble),
        }
    }

    /// Take away the right to write, if that may not have happened yet.
    fn protect(&self, peer: &Peer) -> std::result::Result<(), Trouble> {
        let path = self.store.path(&self.temporary);
        let opened = peer.one(&Request::Open { path: &path, flags: open::READ, mode: None })?.handle()?;
        peer.tell(&Request::SetMode { handle: &opened, mode: OBJECT });
        peer.tell(&Request::Close { handle: &opened });
        Ok(())
    }
}

impl SftpUpload {
    /// As [`crate::Upload::write`].
    pub(super) fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.refuse_failed()?;
        while !bytes.is_empty() {
            let held = self.filling.len();
            if !self.is_begun && (held == AT_ONCE_BYTES_MAX || held >= self.piece && self.since.elapsed() > HELD_BACK) {
                self.send()?;
            }
            let most = if self.is_begun { self.piece } else { AT_ONCE_BYTES_MAX };
            if self.filling.capacity() == 0 {
                self.filling.reserve_exact(self.piece);
            }
            let (now, later) = bytes.split_at(bytes.len().min(most - self.filling.len()));
            self.filling.extend_from_slice(now);
            bytes = later;
            if self.is_begun && self.filling.len() == self.piece {
                self.send()?;
            }
        }
        Ok(())
    }

    /// Whether something is held that no connection has had room for.
    pub(super) fn holds(&self) -> bool {
        self.pieces.are_held()
    }

    /// Take in the answers that are here, and send what there is room for then. `false`: nothing is held any more, or
    /// whoever calls next has to see to it.
    pub(super) fn go_on(&mut self) -> bool {
        if self.failed.is_some() || self.under.is_none() || !self.holds() {
            return false;
        }
        match self.settle_here(usize::MAX) {
            Ok(()) => {
                self.feed();
                self.holds()
            }
            Err(error) => {
                if error.kind != Kind::Transient {
                    self.failed = Some((error.kind, error.cause()));
                }
                false
            }
        }
    }

    /// As [`crate::Upload::finish`].
    pub(super) fn finish(mut self) -> Result<()> {
        self.complete()?;
        self.store.folders.mark(split(&self.name).0);
        Ok(())
    }
}

impl Drop for SftpUpload {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        // The file takes room for as long as it is open anywhere.
        if let Some(under) = &mut self.under {
            under.settle();
            for lane in under.lanes.drain(1..) {
                let _ = lane.peer.one(&Request::Close { handle: &lane.handle });
            }
        }
        // Without a connection, whoever comes later clears it away.
        let Some((peer, _)) = self.close(false) else { return };
        let _ = peer.one(&Request::Remove { path: &self.store.path(self.written_to()) });
    }
}
