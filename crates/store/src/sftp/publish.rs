//! Giving a whole file its name, so that of several who want a name exactly one gets it.
//!
//! | way | where |
//! |---|---|
//! | link | the server offers hard links (`hardlink@openssh.com`), and its file system has them |
//! | rename | OpenSSH, for an account that may not link: its rename is a link and a removal, and never replaces |
//! | reserve | elsewhere: whoever creates the empty name owns it, and renames over it |
//!
//! Only with the last one may a reader, or a crash, find an object empty; and it is as good as the server's exclusive creation
//! is: rclone's is not.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::folders::Opened;
use super::peer::{Peer, Trouble};
use super::wire::{Request, open, status};
use super::{Inner, split};
use crate::Put;

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    Done,
    /// Somebody else has the name.
    Taken,
    /// The account may not replace anything, or the server can't.
    NoReplacing,
}

impl Inner {
    /// Give the file `from`, a path, the name `name`, and sync folders along with it.
    pub(super) fn publish(
        &self,
        peer: &Arc<Peer>,
        from: &[u8],
        name: &str,
        how: Put,
        opened: &Opened,
    ) -> Result<Named, Trouble> {
        if how == Put::Replace {
            if !peer.offers().replace {
                // Where nothing is, nothing has to be replaced.
                let named = self.publish(peer, from, name, Put::Create, opened)?;
                return Ok(if named == Named::Taken { Named::NoReplacing } else { named });
            }
            let to = self.path(name);
            return self.named_by(peer, name, opened, &Request::Replace { from, to: &to })?.map(|()| Named::Done);
        }
        if peer.offers().link && peer.links.load(Ordering::Relaxed) {
            match self.named_by(peer, name, opened, &Request::Link { from, to: &self.path(name) })? {
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
        } else if !peer.offers().link && peer.offers().sync {
            return match self.named_by(peer, name, opened, &Request::Rename { from, to: &self.path(name) })? {
                Ok(()) => Ok(Named::Done),
                Err(_) if self.is_there(peer, name)? => Ok(Named::Taken),
                Err(trouble) => Err(trouble),
            };
        }
        self.reserve(peer, from, name, opened)
    }

    fn reserve(&self, peer: &Arc<Peer>, from: &[u8], name: &str, opened: &Opened) -> Result<Named, Trouble> {
        let to = self.path(name);
        let flags = open::WRITE | open::CREATE | open::EXCLUSIVE;
        let mut is_second = false;
        let reserved = loop {
            match peer.one(&Request::Open { path: &to, flags, mode: Some(0o444) })?.handle() {
                Err(trouble) if trouble.is(status::NO_SUCH_FILE) && !is_second => {
                    self.folders.make(self, peer, split(name).0)?;
                    is_second = true;
                }
                Err(_) if self.is_there(peer, name)? => return Ok(Named::Taken),
                other => break other?,
            }
        };
        peer.one(&Request::Close { handle: &reserved })?.done()?;
        let rename = match peer.offers().replace {
            true => Request::Replace { from, to: &to },
            false => Request::Rename { from, to: &to },
        };
        match self.named_by(peer, name, opened, &rename)? {
            Ok(()) => Ok(Named::Done),
            Err(trouble) => {
                // The name is ours; leave nothing empty under it.
                peer.tell(&Request::Remove { path: &to });
                Err(trouble)
            }
        }
    }

    /// Make the folders of `name` that are not known to be there, do what names it, and sync. If the folders turn out to be
    /// gone, once more with all of them.
    fn named_by(
        &self,
        peer: &Arc<Peer>,
        name: &str,
        opened: &Opened,
        request: &Request,
    ) -> Result<Result<(), Trouble>, Trouble> {
        let folder = split(name).0;
        let mut is_second = false;
        loop {
            let lacking = self.folders.lacking(folder);
            let mut flight = peer.flight();
            self.folders.ask_to_make(self, &mut flight, &lacking);
            flight.add(request);
            opened.sync(&mut flight);
            let mut replies = flight.land()?.into_iter();
            self.folders.note_made(&lacking, &mut replies);
            let named = replies.next().ok_or(Trouble::Odd)?.done();
            match named {
                Err(trouble) if trouble.is(status::NO_SUCH_FILE) && !is_second => {
                    is_second = true;
                    self.folders.unknow(folder);
                }
                Err(trouble) => return Ok(Err(trouble)),
                Ok(()) => {
                    self.folders.mark(folder);
                    return match replies.find_map(|reply| reply.done().err()) {
                        Some(trouble) => Err(self.folders.fail(trouble)),
                        None => Ok(Ok(())),
                    };
                }
            }
        }
    }

    pub(super) fn is_there(&self, peer: &Peer, name: &str) -> Result<bool, Trouble> {
        match peer.one(&Request::LinkStat { path: &self.path(name) })?.attrs() {
            Ok(_) => Ok(true),
            Err(trouble) if trouble.is(status::NO_SUCH_FILE) => Ok(false),
            Err(trouble) => Err(trouble),
        }
    }
}
