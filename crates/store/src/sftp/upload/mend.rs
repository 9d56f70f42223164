//! Going on over another connection, from where the file was last known to be safe.

use std::sync::Arc;

use bytes::Bytes;

use super::{Manner, SftpUpload};
use crate::sftp::lanes::Under;
use crate::sftp::objects::BORN;
use crate::sftp::peer::{Peer, Together, Trouble};
use crate::sftp::wire::{Reply, Request, open, status};
use crate::{Action, Error, Kind, Result};

/// Pieces that are copied at once when an upload goes on in a new file.
const COPIED_AT_ONCE: usize = 16;

impl SftpUpload {
    /// Go on over another connection.
    pub(super) fn mend(&mut self) -> Result<()> {
        let peer = self.store.pool.peer()?;
        let handle = match self.manner {
            Manner::Mendable => self.open_again(&peer),
            Manner::Sealed => self.copy_to_new(&peer),
            Manner::Straight => return Err(self.torn()),
        };
        let handle = handle.map_err(|trouble| match trouble {
            Trouble::Gone(gone) => self.store.pool.broken(Action::Write, &self.name, &gone),
            trouble if trouble.is(status::NO_SUCH_FILE) => {
                let cause = "its unfinished file is gone: another run took this one for dead";
                self.store.because(Kind::Io, Action::Write, &self.name, cause)
            }
            trouble => self.store.write_error(&peer, &self.name, &trouble),
        })?;
        self.pieces.hold_all();
        self.under = Some(Under::new(&peer, handle));
        self.feed();
        Ok(())
    }

    /// A part of the object stands under its name, or nothing, and can't be gone on with.
    pub(super) fn torn(&self) -> Error {
        let cause = "the connection broke while it was written, and this account may not continue an existing file; the part \
                     that is there does no harm, and whoever may remove files can remove it";
        self.store.because(Kind::Io, Action::Write, &self.name, cause)
    }

    fn open_again(&self, peer: &Peer) -> std::result::Result<Vec<u8>, Trouble> {
        let path = self.store.path(&self.temporary);
        let mut flight = peer.flight();
        flight.add(&Request::Open { path: &path, flags: open::WRITE, mode: None });
        flight.add(&Request::Stat { path: &path });
        let mut replies = flight.land()?.into_iter();
        let handle = replies.next().ok_or(Trouble::Odd)?.handle()?;
        let attrs = replies.next().ok_or(Trouble::Odd)?.attrs()?;
        self.is_long_enough(attrs.size)?;
        Ok(handle)
    }

    pub(super) fn is_long_enough(&self, size: Option<u64>) -> std::result::Result<(), Trouble> {
        if size.is_some_and(|size| size >= self.pieces.safe()) {
            return Ok(());
        }
        let words = "it has lost bytes that it had said were safe".into();
        Err(Trouble::Status { code: status::FAILURE, words })
    }

    /// Copy what is safe into a new file: the old one can't be opened to write.
    fn copy_to_new(&mut self, peer: &Arc<Peer>) -> std::result::Result<Vec<u8>, Trouble> {
        let old = self.temporary.clone();
        self.temporary = self.store.temporary().map_err(|_| Trouble::Odd)?;
        let handle = match self.copy_from(peer, &old) {
            Ok(handle) => handle,
            Err(trouble) => {
                peer.tell(&Request::Remove { path: &self.store.path(&self.temporary) });
                // The next attempt begins where this one did.
                self.temporary = old;
                return Err(trouble);
            }
        };
        peer.tell(&Request::Remove { path: &self.store.path(&old) });
        Ok(handle)
    }

    fn copy_from(&self, peer: &Arc<Peer>, old: &str) -> std::result::Result<Vec<u8>, Trouble> {
        let new = self.create_file(peer, BORN)?;
        let safe = self.pieces.safe();
        if safe == 0 {
            return Ok(new);
        }
        let from = peer.one(&Request::Open { path: &self.store.path(old), flags: open::READ, mode: None })?.handle()?;
        let mut at = 0;
        while at < safe {
            let mut flight = peer.flight();
            let mut starts = Vec::new();
            let mut next = at;
            while next < safe && starts.len() < COPIED_AT_ONCE {
                let len = (safe - next).min(self.piece as u64);
                flight.add(&Request::Read { handle: &from, offset: next, len: len as u32 });
                starts.push(next);
                next += len;
            }
            let mut copies = peer.flight();
            for (start, reply) in starts.into_iter().zip(flight.land()?) {
                // A short piece is read again from where it ends.
                if start != at {
                    break;
                }
                let data = match reply {
                    Reply::Data(data) if !data.bytes().is_empty() => data,
                    Reply::Status { code: status::EOF, .. } => {
                        return Err(self.is_long_enough(Some(0)).err().unwrap_or(Trouble::Odd));
                    }
                    other => return Err(other.done().err().unwrap_or(Trouble::Odd)),
                };
                copies.write(&new, at, Bytes::copy_from_slice(data.bytes()));
                at += data.bytes().len() as u64;
            }
            copies.land()?.into_iter().try_for_each(Reply::done)?;
        }
        peer.tell(&Request::Close { handle: &from });
        if peer.offers().sync {
            peer.one(&Request::Sync { handle: &new })?.done()?;
        }
        Ok(new)
    }
}
