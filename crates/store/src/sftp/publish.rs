//! Giving a whole file its name, so that of several who want a name exactly one gets it.
//!
//! | way | where |
//! |---|---|
//! | link | the server offers hard links (`hardlink@openssh.com`), and its file system has them |
//! | rename | OpenSSH, for an account that may not link or replace, and where links are not to be had: its rename is a link and a removal, or a look and a rename where there are no links, and never replaces; and servers without OpenSSH's extensions that keep to version 3 of the protocol, by which a rename never does |
//! | reserve | elsewhere: whoever creates the empty name owns it, and renames over it |
//!
//! Only with the last one may a reader, or a crash, find an object empty; and it is as good as the server's exclusive
//! creation is: rclone's is not.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::{ThreadId, current};

use super::behind::Looking;
use super::folders::Opened;
use super::list::Foresight;
use super::peer::{Peer, Together, Trouble};
use super::wire::{Attrs, Reply, Request, open, status};
use super::{Inner, split};
use crate::Put;
use crate::lock::lock;

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    Done,
    /// Somebody else has the name.
    Taken,
    /// The account may not replace anything, or the server can't.
    NoReplacing,
}

/// Names that threads of this process have asked for by creating them empty, and not given to anything yet. When the
/// connection breaks in between, an empty object of such a name is nobody else's: the thread that tries again goes on
/// with it. (Two clients that want one name at one moment may then both get it, on a server that says of neither which
/// it was; most names are random.)
#[derive(Default)]
pub(super) struct Reserved(Mutex<HashMap<String, ThreadId>>);

impl Reserved {
    /// Whether what stands under a name is such an empty object of this thread's.
    pub(super) fn has(&self, name: &str, attrs: &Attrs) -> bool {
        attrs.size == Some(0) && lock(&self.0).get(name) == Some(&current().id())
    }

    /// Whether nobody else here has asked for it.
    fn ask_for(&self, name: &str) -> bool {
        *lock(&self.0).entry(name.to_owned()).or_insert_with(|| current().id()) == current().id()
    }

    fn forget(&self, name: &str) {
        lock(&self.0).remove(name);
    }
}

impl Inner {
    /// Give the file `from`, a path, the name `name`, and sync folders along with it; look behind it where that can be
    /// done at once.
    pub(super) fn publish(
        &self,
        peer: &Arc<Peer>,
        from: &[u8],
        name: &str,
        how: Put,
        opened: &Opened,
        looking: &mut Looking,
    ) -> Result<Named, Trouble> {
        if how == Put::Replace {
            if !peer.offers().replace && !peer.offers().sync && self.renames_over(peer)? {
                let to = self.path(name);
                return self
                    .named_by(peer, name, opened, looking, &Request::Rename { from, to: &to })?
                    .map(|()| Named::Done);
            }
            if !peer.offers().replace {
                // Where nothing is, nothing has to be replaced.
                let named = self.publish(peer, from, name, Put::Create, opened, looking)?;
                return Ok(if named == Named::Taken { Named::NoReplacing } else { named });
            }
            let to = self.path(name);
            return self
                .named_by(peer, name, opened, looking, &Request::Replace { from, to: &to })?
                .map(|()| Named::Done);
        }
        if peer.offers().link && peer.links.load(Ordering::Relaxed) {
            match self.named_by(peer, name, opened, looking, &Request::Link { from, to: &self.path(name) })? {
                // rclone (1.60) says that it has made a link, and makes none. OpenSSH can be believed.
                Ok(()) if !peer.offers().sync && !self.is_there(peer, name)? => {
                    peer.links.store(false, Ordering::Relaxed)
                }
                Ok(()) => {
                    peer.tell(&Request::Remove { path: from });
                    return Ok(Named::Done);
                }
                Err(_) if self.is_there(peer, name)? => return Ok(Named::Taken),
                Err(trouble) if trouble.is(status::NO_SUCH_FILE) => return Err(trouble),
                // No hard links on this file system; a mere failure may be anything, and what comes next will tell.
                Err(trouble) if trouble.is(status::FAILURE) => {}
                Err(_) => peer.links.store(false, Ordering::Relaxed),
            }
        }
        // To rename over a reserved name takes the right to replace; a rename that never does takes none, and nobody
        // has to see the name empty.
        if peer.offers().sync || !peer.offers().replace && !self.renames_over(peer)? {
            return match self.named_by(peer, name, opened, looking, &Request::Rename { from, to: &self.path(name) })? {
                Ok(()) => Ok(Named::Done),
                Err(_) if self.is_there(peer, name)? => Ok(Named::Taken),
                Err(trouble) => Err(trouble),
            };
        }
        self.reserve(peer, from, name, opened, looking)
    }

    fn reserve(
        &self,
        peer: &Arc<Peer>,
        from: &[u8],
        name: &str,
        opened: &Opened,
        looking: &mut Looking,
    ) -> Result<Named, Trouble> {
        let to = self.path(name);
        // rclone (1.60) creates what is there as well: so it is looked for before.
        let there = self.look(peer, name)?;
        let was_ours = there.as_ref().is_some_and(|attrs| self.reserved.has(name, attrs));
        if !was_ours && (there.is_some() || !self.create_empty(peer, name)?) {
            return Ok(Named::Taken);
        }
        let rename = match peer.offers().replace {
            true => Request::Replace { from, to: &to },
            false => Request::Rename { from, to: &to },
        };
        let renamed = self.named_by(peer, name, opened, looking, &rename)?;
        self.reserved.forget(name);
        match renamed {
            Ok(()) => Ok(Named::Done),
            Err(trouble) => {
                // The name is ours; leave nothing empty under it.
                peer.tell(&Request::Remove { path: &to });
                Err(trouble)
            }
        }
    }

    /// Whether this server's plain rename replaces what is there. By version 3 of the protocol it must not; some do it
    /// all the same.
    pub(super) fn renames_over(&self, peer: &Arc<Peer>) -> Result<bool, Trouble> {
        if let Some(known) = self.renames_over.get() {
            return Ok(*known);
        }
        let mut files = Vec::new();
        for _ in 0..2 {
            let file = self.path(&self.temporary().map_err(|_| Trouble::Odd)?);
            let flags = open::WRITE | open::CREATE | open::EXCLUSIVE;
            let handle = peer.one(&Request::Open { path: &file, flags, mode: Some(0o600) })?.handle()?;
            peer.one(&Request::Close { handle: &handle })?.done()?;
            files.push(file);
        }
        let renamed = peer.one(&Request::Rename { from: &files[0], to: &files[1] })?.done();
        files.iter().skip(usize::from(renamed.is_ok())).for_each(|file| peer.tell(&Request::Remove { path: file }));
        Ok(*self.renames_over.get_or_init(|| renamed.is_ok()))
    }

    /// Create the empty object of a name; `false` if somebody has it.
    fn create_empty(&self, peer: &Arc<Peer>, name: &str) -> Result<bool, Trouble> {
        let (to, flags) = (self.path(name), open::WRITE | open::CREATE | open::EXCLUSIVE);
        let is_first = self.reserved.ask_for(name);
        let mut is_second = false;
        loop {
            match peer.one(&Request::Open { path: &to, flags, mode: Some(0o444) })?.handle() {
                Ok(handle) => {
                    peer.one(&Request::Close { handle: &handle })?.done()?;
                    return Ok(true);
                }
                Err(trouble) if trouble.is(status::NO_SUCH_FILE) && !is_second => {
                    self.folders.make(self, peer, split(name).0)?;
                    is_second = true;
                }
                Err(trouble) => {
                    if is_first {
                        self.reserved.forget(name);
                    }
                    return if self.is_there(peer, name)? { Ok(false) } else { Err(trouble) };
                }
            }
        }
    }

    /// Make the folders of `name` that are not known to be there, do what names it, and sync. If the folders turn out
    /// to be gone, once more with all of them.
    fn named_by(
        &self,
        peer: &Arc<Peer>,
        name: &str,
        opened: &Opened,
        looking: &mut Looking,
        request: &Request,
    ) -> Result<Result<(), Trouble>, Trouble> {
        let folder = split(name).0;
        let mut is_second = false;
        loop {
            let lacking = self.folders.lacking(folder);
            self.folders.ask(opened, folder, &lacking);
            looking.begin_anew();
            let ask = |flight: &mut dyn Together| {
                self.folders.ask_to_make(self, flight, &lacking);
                flight.add(request);
                opened.sync(flight);
            };
            let (replies, foresight) = match looking.foresee(peer) {
                Some(mut flight) => {
                    ask(&mut flight);
                    looking.ask(self, &mut flight);
                    let handle = flight.handle;
                    let (replies, in_order) = flight.land()?;
                    (replies, Some(Foresight { handle, in_order }))
                }
                None => {
                    let mut flight = peer.flight();
                    ask(&mut flight);
                    (flight.land()?, None)
                }
            };
            let mut replies = replies.into_iter();
            self.folders.note_asked(&lacking, &mut replies);
            let named = replies.next().ok_or(Trouble::Odd)?.done();
            let syncs: Vec<Reply> = replies.by_ref().take(opened.count()).collect();
            if let Some(foresight) = foresight {
                looking.take(self, peer, foresight, &mut replies)?;
            }
            match named {
                Ok(()) => {
                    self.folders.know(folder);
                    return syncs.into_iter().try_for_each(|reply| self.folders.synced(peer, reply)).map(Ok);
                }
                Err(trouble) if trouble.is(status::NO_SUCH_FILE) && !is_second => {
                    is_second = true;
                    self.folders.unknow(folder);
                }
                Err(trouble) => return Ok(Err(trouble)),
            }
        }
    }

    pub(super) fn is_there(&self, peer: &Peer, name: &str) -> Result<bool, Trouble> {
        Ok(self.look(peer, name)?.is_some())
    }

    /// What stands under a name, if anything.
    fn look(&self, peer: &Peer, name: &str) -> Result<Option<Attrs>, Trouble> {
        match peer.one(&Request::LinkStat { path: &self.path(name) })?.attrs() {
            Ok(attrs) => Ok(Some(attrs)),
            Err(trouble) if trouble.is(status::NO_SUCH_FILE) => Ok(None),
            Err(trouble) => Err(trouble),
        }
    }
}
