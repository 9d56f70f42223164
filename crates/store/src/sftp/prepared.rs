//! Small objects that lie in `tmp/`, whole and synced, before anybody puts them: who says what he will put has nothing
//! to wait for then but its name.
//!
//! What is said and never put is removed when the store is let go of, if the connection over which it was written still
//! stands; else it is left to [`crate::Store::clear_unfinished`], like every file that was not finished.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use bytes::Bytes;
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};

use super::folders::Opened;
use super::peer::{Peer, SETTLING, Trouble};
use super::spare::File;
use super::wire::Request;
use super::{Inner, split};
use crate::lock::lock;

/// So many at once.
const PREPARED_MAX: usize = 8;

#[derive(Default)]
pub(super) struct Prepared(Mutex<Vec<UnderWay>>);

struct UnderWay {
    name: String,
    body: Bytes,
    /// `None`: it can't be, or went wrong.
    written: Receiver<Option<Written>>,
}

/// A file that lacks nothing but its name.
pub(super) struct Written {
    pub peer: Arc<Peer>,
    /// Its name in `tmp/`.
    pub temporary: String,
    /// The folders that have to be synced once it has its own.
    pub opened: Opened,
}

impl Inner {
    /// Write what will be put under this name, in a thread. What goes wrong there is told when it is put.
    pub(super) fn prepare(self: &Arc<Self>, name: &str, bytes: &[u8]) {
        let (to, written) = bounded(1);
        let (body, under_way) = (Bytes::copy_from_slice(bytes), &mut *lock(&self.prepared.0));
        if under_way.len() >= PREPARED_MAX || under_way.iter().any(|of| of.name == name) {
            return;
        }
        let (store, of, bytes) = (self.clone(), split(name).0.to_owned(), body.clone());
        // For what was said first: it is most often wanted first.
        let spare = self.spare.take();
        let started = thread::Builder::new().name("sftp-prepare".into()).spawn(move || {
            // Whoever lets go of the store last waits for what is sent here: it must not be this thread, with nothing
            // sent.
            let to = to;
            let _ = to.send(store.write_nameless(&of, &bytes, spare).ok().flatten());
        });
        if started.is_ok() {
            under_way.push(UnderWay { name: name.to_owned(), body, written });
        }
    }

    /// `None` where nothing can be written first and named after, or not taken away again.
    fn write_nameless(&self, folder: &str, body: &Bytes, spare: Option<File>) -> Result<Option<Written>, Trouble> {
        let peer = match self.pool.peer() {
            Ok(peer) if peer.abilities()?.rename && peer.offers().replace => peer,
            _ => {
                spare.iter().for_each(|file| self.drop_file(file));
                return Ok(None);
            }
        };
        let Ok(mut temporary) = self.temporary() else { return Ok(None) };
        let opened = self.write_temporary(&peer, &mut temporary, body, folder, spare)?;
        Ok(Some(Written { peer, temporary, opened }))
    }

    /// The file that was written for this, if there is one, and the connection over which it was is still there.
    pub(super) fn take_prepared(&self, name: &str, body: &Bytes) -> Option<Written> {
        let mut under_way = lock(&self.prepared.0);
        let place = under_way.iter().position(|of| of.name == name)?;
        let of = under_way.swap_remove(place);
        drop(under_way);
        let written = of.written.recv().ok()??;
        if of.body == body && written.peer.check().is_ok() {
            return Some(written);
        }
        self.discard_prepared(&written);
        None
    }

    fn discard_prepared(&self, written: &Written) {
        written.peer.tell(&Request::Remove { path: &self.path(&written.temporary) });
    }

    /// Nobody is going to put anything any more. What takes too long to be written is left to its thread, which lets go
    /// of the rest then.
    pub(super) fn drop_prepared(&self) {
        let deadline = Instant::now() + SETTLING;
        lock(&self.prepared.0).retain(|of| match of.written.recv_deadline(deadline) {
            Ok(Some(written)) => {
                self.discard_prepared(&written);
                false
            }
            Ok(None) | Err(RecvTimeoutError::Disconnected) => false,
            Err(RecvTimeoutError::Timeout) => true,
        });
    }
}
