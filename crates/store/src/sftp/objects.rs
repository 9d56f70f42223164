//! Small objects written whole, and objects removed.
//!
//! # Accounts that may only add
//!
//! Where an account may neither rename nor link, nothing can be written first and named after. There an object is
//! created under its own name, exclusively, with mode 0444: so that nobody, a thief of the account included, can open
//! it to write once its writer's connection is gone. A writer that is cut off between the creation and the last byte
//! leaves a torn object, which it may not remove. `docs/guides/sftp.md` says what becomes of those.
//!
//! Whether an account may rename is found without leaving anything: by renaming a name that nobody has.

use std::sync::Arc;

use bytes::Bytes;

use super::behind::Looking;
use super::folders::Opened;
use super::peer::{Peer, Together, Trouble};
use super::publish::Named;
use super::spare::File;
use super::wire::{PIECE_BYTES, Request, open, status};
use super::{Inner, split};
use crate::name::TMP;
use crate::whose::Writer;
use crate::{Action, Kind, Look, Put, Result};

/// Flags of a file that must be new.
pub(super) const NEW: u32 = open::WRITE | open::CREATE | open::EXCLUSIVE;
/// Nobody is to write an object twice: it is born read-only, and only the handle of its creation can write.
pub(super) const BORN: u32 = 0o444;

/// So much of a file is written before its handle is known, at most: it is held until all of it is there.
pub(super) const AT_ONCE_BYTES_MAX: usize = 4 * PIECE_BYTES;

/// What came of an attempt to put an object.
enum Attempt {
    Named(Named),
    /// A part of it stands under its name, and can't be taken away.
    Torn,
}

/// Folders that are opened, and made, while an object is written into one of them.
#[derive(Default)]
struct OnTheWay {
    wanted: Opened,
    closed: Vec<String>,
    lacking: Vec<String>,
}

impl Inner {
    /// Write a small object whole and durably, and look behind it, where that can be done at once.
    pub(super) fn put(&self, name: &str, bytes: &[u8], how: Put, looks: &[Look<'_>]) -> Result<()> {
        let mut looking = Looking::at(looks);
        let body = Bytes::copy_from_slice(bytes);
        // Of an attempt whose end is unknown, because the connection broke.
        let mut before: Option<String> = None;
        let mut durable = false;
        let attempt = self.pool.again(|| {
            let peer = self.pool.peer()?;
            let mut temporary = self.temporary().map_err(|source| self.system(Action::Write, name, source))?;
            let attempt =
                self.try_put(&peer, name, &body, how, &mut temporary, before.as_deref(), (&mut durable, &mut looking));
            attempt.map_err(|trouble| match trouble {
                Trouble::Gone(gone) => {
                    self.late.note(name);
                    before = Some(temporary);
                    self.pool.broken(Action::Write, name, &gone)
                }
                trouble => self.write_error(&peer, name, &trouble),
            })
        })?;
        if how == Put::Replace {
            self.kept.forget(name);
        }
        match attempt {
            Attempt::Named(named) => self.told(named, name)?,
            Attempt::Torn => {
                let cause = "the connection broke while it was written, and this account may not remove the part that is \
                             there; it does no harm, and whoever may remove files can remove it";
                return Err(self.because(Kind::Io, Action::Write, name, cause));
            }
        }
        if durable {
            looking.keep(&self.behind);
            return Ok(());
        }
        let folder = [split(name).0.to_owned()];
        self.run(Action::Write, name, |peer| self.folders.persist(self, peer, &folder))
    }

    pub(super) fn told(&self, named: Named, name: &str) -> Result<()> {
        match named {
            Named::Done => Ok(()),
            Named::Taken => Err(self.taken(name)),
            Named::NoReplacing => {
                let cause = "there is one already, and this account, or the server, can't replace it";
                Err(self.because(Kind::Refused, Action::Write, name, cause))
            }
        }
    }

    pub(super) fn taken(&self, name: &str) -> crate::Error {
        self.because(Kind::Exists, Action::Write, name, "an object of that name exists already")
    }

    /// A new name in `tmp/`.
    pub(super) fn temporary(&self) -> std::io::Result<String> {
        Ok(format!("{TMP}/{}", Writer::this().file_name()?))
    }

    pub(super) fn system(&self, action: Action, name: &str, source: std::io::Error) -> crate::Error {
        crate::Error::new(action, name, self.location(), source)
    }

    #[allow(clippy::too_many_arguments, reason = "what one attempt knows of the others")]
    fn try_put(
        &self,
        peer: &Arc<Peer>,
        name: &str,
        body: &Bytes,
        how: Put,
        temporary: &mut String,
        before: Option<&str>,
        (durable, looking): (&mut bool, &mut Looking),
    ) -> std::result::Result<Attempt, Trouble> {
        let able = peer.abilities()?;
        if let Some(before) = before {
            if able.rename {
                // First of all: the old connection's server may be at work yet, and nothing gets the name once this is
                // gone. It goes along with the next request.
                peer.tell(&Request::Remove { path: &self.path(before) });
            }
            if how == Put::Create || !able.rename {
                match self.compare(peer, name, body)? {
                    None => {}
                    Some(true) => return Ok(Attempt::Named(Named::Done)),
                    Some(false) if !able.rename => return Ok(Attempt::Torn),
                    Some(false) => return Ok(Attempt::Named(Named::Taken)),
                }
            }
        }
        let (folder, step) = (split(name).0, able.write_bytes);
        if !able.rename {
            return self.put_straight(peer, name, body, how, step).map(Attempt::Named);
        }
        if let Some(written) = self.take_prepared(name, body) {
            *temporary = written.temporary;
            match self.name(&written.peer, temporary, name, how, &written.opened, (durable, looking)) {
                // Somebody has cleared it away: it is written once more.
                Err(trouble) if trouble.is(status::NO_SUCH_FILE) => {
                    *temporary = self.temporary().map_err(|_| Trouble::Odd)?;
                }
                named => return named.map(Attempt::Named),
            }
        }
        let opened = self.write_temporary(peer, temporary, body, folder, self.spare.take())?;
        self.name(peer, temporary, name, how, &opened, (durable, looking)).map(Attempt::Named)
    }

    /// Write a file in `tmp/`: the spare one, whose name `temporary` is then, or a new one. The folders that have to be
    /// synced once it has its own.
    pub(super) fn write_temporary(
        &self,
        peer: &Arc<Peer>,
        temporary: &mut String,
        body: &Bytes,
        folder: &str,
        spare: Option<File>,
    ) -> std::result::Result<Opened, Trouble> {
        let step = peer.abilities()?.write_bytes;
        let ready = spare.and_then(|file| self.ready(file, peer));
        if ready.is_none() && body.len() <= AT_ONCE_BYTES_MAX {
            match self.write_at_once(peer, temporary, body, folder) {
                Ok(Some(opened)) => return Ok(opened),
                Ok(None) => {}
                Err(trouble) => {
                    peer.tell(&Request::Remove { path: &self.path(temporary) });
                    return Err(trouble);
                }
            }
        }
        let (handle, mut opened) = match ready {
            Some((spare, handle)) => {
                *temporary = spare;
                (handle, None)
            }
            None => {
                let (handle, opened) = self.create(peer, &self.path(temporary), BORN, folder)?;
                (handle, Some(opened))
            }
        };
        // Along with what is written now, for the next one.
        self.set_spare(peer);
        let written = self.write_whole(peer, &handle, body, step, folder, &mut opened);
        if let Err(trouble) = written {
            peer.tell(&Request::Remove { path: &self.path(temporary) });
            return Err(trouble);
        }
        Ok(opened.unwrap_or_default())
    }

    /// Create a file in `tmp/`, write all of it, sync and close it, in one round trip, before its handle is known: see
    /// [`super::handles`]. `None` if that can't be done, or came out otherwise; `temporary` is a name then that nobody
    /// has. A failure leaves the file to be removed.
    pub(super) fn write_at_once(
        &self,
        peer: &Arc<Peer>,
        temporary: &mut String,
        body: &Bytes,
        folder: &str,
    ) -> std::result::Result<Option<Opened>, Trouble> {
        let (path, step) = (self.path(temporary), peer.abilities()?.write_bytes);
        let OnTheWay { mut wanted, closed, lacking } = self.on_the_way(peer, folder)?;
        let Some(mut flight) = peer.foresee_new() else { return Ok(None) };
        let handle = flight.handle;
        flight.add(&Request::Open { path: &path, flags: NEW, mode: Some(BORN) });
        for (at, piece) in body.chunks(step).enumerate() {
            flight.write((at * step) as u64, piece);
        }
        flight.add(&Request::Sync { handle: &handle });
        flight.add(&Request::Close { handle: &handle });
        self.folders.ask_to_make(self, &mut flight, &lacking);
        self.folders.ask_to_open(self, &mut flight, &closed);
        let (replies, in_order) = flight.land()?;
        let mut replies = replies.into_iter();
        let mut next = || replies.next().ok_or(Trouble::Odd);
        let created = next()?.handle();
        let written = (0..body.len().div_ceil(step) + 2)
            .map(|_| Ok(next()?.done()))
            .collect::<std::result::Result<Vec<_>, Trouble>>()?;
        self.folders.note_made(&lacking, &mut replies);
        self.folders.note_opened(peer, &closed, &mut replies, &mut wanted);
        match created {
            Ok(given) if given == handle && in_order => {}
            // The folder is made on the usual way.
            Err(trouble) if trouble.is(status::NO_SUCH_FILE) => return Ok(None),
            Err(trouble) => return Err(trouble),
            Ok(given) => {
                if given != handle {
                    peer.tell(&Request::Close { handle: &given });
                }
                peer.tell(&Request::Remove { path: &path });
                *temporary = self.temporary().map_err(|_| Trouble::Odd)?;
                return Ok(None);
            }
        }
        match written.into_iter().find_map(|reply| reply.err()) {
            Some(trouble) => Err(trouble),
            None => Ok(Some(wanted)),
        }
    }

    /// The folders that will have to be synced once something in `folder` has a name.
    fn on_the_way(&self, peer: &Peer, folder: &str) -> std::result::Result<OnTheWay, Trouble> {
        let wanted = self.folders.wanted(peer, &[folder.to_owned()])?;
        let closed = self.folders.closed(peer, &wanted);
        // One that isn't there yet can't be opened.
        let lacking = if closed.is_empty() { Vec::new() } else { self.folders.lacking(folder) };
        Ok(OnTheWay { wanted, closed, lacking })
    }

    /// Give a file in `tmp/`, which is whole, its name; one that gets none goes.
    fn name(
        &self,
        peer: &Arc<Peer>,
        temporary: &str,
        name: &str,
        how: Put,
        opened: &Opened,
        (durable, looking): (&mut bool, &mut Looking),
    ) -> std::result::Result<Named, Trouble> {
        let path = self.path(temporary);
        let named = self.publish(peer, &path, name, how, opened, looking);
        match &named {
            Ok(Named::Done) => *durable = self.folders.note_synced(peer, opened),
            Err(Trouble::Gone(_)) => {}
            _ => peer.tell(&Request::Remove { path: &path }),
        }
        named
    }

    /// Create a file in `tmp/`, and on the way make and open the folders that will have to be synced once something in
    /// `folder` has a name.
    pub(super) fn create(
        &self,
        peer: &Arc<Peer>,
        path: &[u8],
        mode: u32,
        folder: &str,
    ) -> std::result::Result<(Vec<u8>, Opened), Trouble> {
        let mut is_second = false;
        loop {
            let OnTheWay { mut wanted, closed, lacking } = self.on_the_way(peer, folder)?;
            let mut flight = peer.flight();
            flight.add(&Request::Open { path, flags: NEW, mode: Some(mode) });
            self.folders.ask_to_make(self, &mut flight, &lacking);
            self.folders.ask_to_open(self, &mut flight, &closed);
            let mut replies = flight.land()?.into_iter();
            let created = replies.next().ok_or(Trouble::Odd)?.handle();
            self.folders.note_made(&lacking, &mut replies);
            self.folders.note_opened(peer, &closed, &mut replies, &mut wanted);
            match created {
                Err(trouble) if trouble.is(status::NO_SUCH_FILE) && !is_second => {
                    is_second = true;
                    self.folders.make(self, peer, TMP)?;
                }
                other => return Ok((other?, wanted)),
            }
        }
    }

    /// Write all of a file that was just created, sync and close it; and on the way make and open the folders that will
    /// have to be synced, unless they are `opened`.
    pub(super) fn write_whole(
        &self,
        peer: &Arc<Peer>,
        handle: &[u8],
        body: &Bytes,
        step: usize,
        folder: &str,
        opened: &mut Option<Opened>,
    ) -> std::result::Result<(), Trouble> {
        let OnTheWay { mut wanted, closed, lacking } = match opened {
            Some(_) => OnTheWay::default(),
            None => self.on_the_way(peer, folder)?,
        };
        let mut flight = peer.flight();
        self.folders.ask_to_make(self, &mut flight, &lacking);
        self.folders.ask_to_open(self, &mut flight, &closed);
        for start in (0..body.len()).step_by(step) {
            flight.write(handle, start as u64, body.slice(start..body.len().min(start + step)));
        }
        if peer.offers().sync {
            flight.add(&Request::Sync { handle });
        }
        flight.add(&Request::Close { handle });
        let mut replies = flight.land()?.into_iter();
        self.folders.note_made(&lacking, &mut replies);
        self.folders.note_opened(peer, &closed, &mut replies, &mut wanted);
        opened.get_or_insert(wanted);
        replies.try_for_each(|reply| reply.done())
    }

    /// Write under the object's own name.
    fn put_straight(
        &self,
        peer: &Arc<Peer>,
        name: &str,
        body: &Bytes,
        how: Put,
        step: usize,
    ) -> std::result::Result<Named, Trouble> {
        let handle = match self.create_straight(peer, name)? {
            Some(handle) => handle,
            None if how == Put::Replace => return Ok(Named::NoReplacing),
            None => return Ok(Named::Taken),
        };
        let written = self.write_whole(peer, &handle, body, step, "", &mut Some(Opened::default()));
        if let Err(trouble) = written {
            // It may be refused; then it stays.
            peer.tell(&Request::Remove { path: &self.path(name) });
            return Err(trouble);
        }
        Ok(Named::Done)
    }

    /// Create an object under its own name; `None` if somebody has it.
    pub(super) fn create_straight(
        &self,
        peer: &Arc<Peer>,
        name: &str,
    ) -> std::result::Result<Option<Vec<u8>>, Trouble> {
        let (path, folder) = (self.path(name), split(name).0);
        let mut is_second = false;
        loop {
            match peer.one(&Request::Open { path: &path, flags: NEW, mode: Some(BORN) })?.handle() {
                Ok(handle) => {
                    self.folders.mark(folder);
                    return Ok(Some(handle));
                }
                Err(trouble) if trouble.is(status::NO_SUCH_FILE) && !is_second => {
                    is_second = true;
                    self.folders.make(self, peer, folder)?;
                }
                Err(trouble) => {
                    return if self.is_there(peer, name)? { Ok(None) } else { Err(trouble) };
                }
            }
        }
    }

    /// Whether the object under this name has these bytes; `None` if there is none, or but the name.
    fn compare(&self, peer: &Arc<Peer>, name: &str, body: &Bytes) -> std::result::Result<Option<bool>, Trouble> {
        let attrs = match peer.one(&Request::LinkStat { path: &self.path(name) })?.attrs() {
            Err(trouble) if trouble.is(status::NO_SUCH_FILE) => return Ok(None),
            other => other?,
        };
        if self.reserved.has(name, &attrs) && !body.is_empty() {
            return Ok(None);
        }
        if attrs.size != Some(body.len() as u64) {
            return Ok(Some(false));
        }
        // Over whatever connection.
        Ok(Some(self.get(name).is_ok_and(|found| found == *body)))
    }

    /// Remove an object.
    pub(super) fn delete(&self, name: &str) -> Result<()> {
        // Who removes has mostly put all that he will, and needn't wait once more at his end.
        self.drop_spare();
        let (mut synced, mut tries) = (false, 0);
        let (removed, looked, base) = self.run(Action::Delete, name, |peer| {
            tries += 1;
            let path = self.path(name);
            let opened = self.folders.at_hand(peer, split(name).0);
            let mut flight = peer.flight();
            flight.add(&Request::Remove { path: &path });
            flight.add(&Request::LinkStat { path: &path });
            flight.add(&Request::Stat { path: &self.base });
            opened.sync(&mut flight);
            let mut replies = flight.land()?.into_iter();
            let mut next = || replies.next().ok_or(Trouble::Odd);
            let told = (next()?.done(), next()?.attrs(), next()?.attrs());
            let sync = replies.next();
            synced = sync.is_some();
            sync.map_or(Ok(()), |reply| self.folders.synced(peer, reply))?;
            Ok(told)
        })?;
        self.kept.forget(name);
        if tries > 1 {
            // It may have been removed the first time, and the folder not been synced.
            self.folders.mark_removed(split(name).0);
        }
        match (removed, looked) {
            (Ok(()), _) if synced => {}
            (Ok(()), _) => self.folders.mark_removed(split(name).0),
            (Err(trouble), _) if trouble.is(status::NO_SUCH_FILE) => self.linked(Action::Delete, base)?,
            // A folder of that name is no object.
            (Err(_), Ok(attrs)) if attrs.sort() == super::Sort::Folder => self.linked(Action::Delete, base)?,
            (Err(_), Err(trouble)) if trouble.is(status::NO_SUCH_FILE) => self.linked(Action::Delete, base)?,
            (Err(trouble), _) => return Err(self.error(Action::Delete, name, &trouble)),
        }
        Ok(())
    }

    /// Make every object that was finished, and every removal, durable.
    pub(super) fn sync(&self) -> Result<()> {
        self.folders.sync(self)
    }
}
